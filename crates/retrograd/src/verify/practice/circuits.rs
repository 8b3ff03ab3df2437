//! Soft gates and the circuit that they become.

use super::row;
use crate::logic::{HardCircuit, LogicBatch, LogicCa, LogicSpec};
use crate::rng::Key;
use crate::verify::report::{Link, Row};
use crate::{Error, Model, Pass, Result};

/// Random automata of many gates: the circuit of bits gives what the soft gates give on 0 and 1 where one
/// logit outweighs the others, and a simplified circuit gives the same.
pub fn hard_circuits() -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for seed in 0..6_u64 {
        let spec = r#"{"channels":3,"kernels":2,"perception":[9,8,4,2],"update":[15,40,30,16,8,4,3],
            "steps":1,"boundary":"periodic"}"#;
        let spec: LogicSpec = serde_json::from_str(spec)
            .map_err(|e| Error::invalid("an automaton of the verifier", e, "a spec"))?;
        let model = LogicCa::new(spec, seed)?;
        let mut stream = Key::new(seed).purpose("random circuit").stream();
        // e^−60 of the other gates is far below a rounding of 1.
        let mut params = vec![0.0_f32; model.layout().len()];
        for logits in params.chunks_exact_mut(16) {
            logits[stream.below(16)] = 60.0;
        }
        let (height, width, channels) = (5, 7, 3);
        let state: Vec<f32> = (0..height * width * channels)
            .map(|_| stream.below(2) as f32)
            .collect();
        let batch = LogicBatch::new(&model, state.clone(), [1, height, width], None)?;
        let mut tape = Default::default();
        model.compute_forward(&params, &batch, &Pass::training(Key::new(0)), &mut tape);
        let soft: Vec<f64> = model.output(&tape).iter().map(|&v| f64::from(v)).collect();
        let whole = HardCircuit::of(&model, &params);
        for (words, circuit) in [("", whole.clone()), (", simplified", whole.simplify())] {
            let bit = |y: usize, x: usize, c: usize| state[(y * width + x) * channels + c] == 1.0;
            let mut bits = Vec::new();
            for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
                let mut around = Vec::new();
                for c in 0..channels {
                    for k in 0..9 {
                        let (v, u) = (
                            (y + height + k / 3 - 1) % height,
                            (x + width + k % 3 - 1) % width,
                        );
                        around.push(bit(v, u, c));
                    }
                }
                bits.extend(circuit.cell(&around).into_iter().map(f64::from));
            }
            let label = format!("circuit {seed}{words}");
            let bound = 64.0 * f64::from(f32::EPSILON);
            rows.push(row(
                "hard circuits",
                label,
                Link::Circuit,
                &soft,
                &bits,
                bound,
            ));
        }
    }
    Ok(rows)
}
