//! Automata of drawn sizes: cells, gates and steps on both sides of where the fast path cuts them.

use super::{LogicBatch, LogicCa, LogicSpec, fast};
use crate::cuts::cut;
use crate::rng::Key;
use crate::simd;
use crate::verify::builtin::{structured, subject};
use crate::verify::sizes::{Stretch, stretched};
use crate::verify::{Case, Options, Row};
use crate::{Error, Loss, Model, Result, Target};

/// Gates of perception; the update circuit has about twice as many as its first layer.
const OTHERS: usize = 8;

pub(super) fn sizes() -> Vec<Stretch> {
    let own = |name| cut(fast::CUTS, name);
    let lanes = cut(simd::CUTS, "LANES");
    let block = cut(fast::BLOCK_CUTS, "BLOCK");
    // A row of five cells of two channels.
    let places = own("PARALLEL_PLACES").over(5 * 2);
    let gates = [
        own("GATE_CHUNK").less(OTHERS).over(2),
        own("PARALLEL_LOGITS").less(OTHERS).over(2),
        // Of four vectors of cells.
        own("PARALLEL_GATES").over(2 * 4),
    ];
    let stretch = Stretch::model("logic_ca", check)
        .axis("height", 4, [block.times(16).over(5), places])
        .axis("width", 5, [lanes, block.times(16).over(4)])
        .axis("gates", 6, gates)
        .axis("steps", 2, [block]);
    #[cfg(feature = "gpu")]
    let stretch = {
        let slice = cut(super::gpu::CUTS, "GATE_SLICE");
        stretch.on_device("gates", [slice.less(OTHERS).over(2)])
    };
    vec![stretch]
}

fn check(n: &[usize], options: &Options) -> Result<Vec<Row>> {
    let (height, width, gates, steps) = (n[0], n[1], n[2], n[3]);
    // Every gate is read: a layer has half of the gates before it, down to the two channels.
    // No pair of wires twice: 8 inputs make 28 gates, those 300 of their 378.
    let mut update = vec![8];
    for (most, grown) in [(28, 28), (378, 300)] {
        if gates > most {
            update.push(grown);
        }
    }
    update.push(gates);
    while update[update.len() - 1] > 4 {
        update.push(update[update.len() - 1].div_ceil(2));
    }
    update.push(2);
    let spec = format!(
        r#"{{"channels":2,"kernels":1,"perception":[9,5,3],"update":{update:?},"steps":{steps},
        "fire_rate":0.6}}"#
    );
    let spec: LogicSpec = serde_json::from_str(&spec)
        .map_err(|e| Error::invalid("the automaton of drawn sizes", e, "a spec"))?;
    let model = LogicCa::new(spec, 1)?;
    let cells = height * width;
    // States between 0 and 1, as gates take them.
    let unit = |len: usize, phase: f64| -> Vec<f64> {
        let within = |v: f64| f64::from((0.5 + 0.25 * v).clamp(0.0, 1.0) as f32);
        structured(len, phase).into_iter().map(within).collect()
    };
    let mut stream = Key::new(5).purpose("cells that fire").stream();
    let fire = (0..steps * cells).map(|_| stream.uniform() < 0.6).collect();
    let case = Case {
        params: structured(model.layout().len(), 0.3),
        input: LogicBatch::new(&model, unit(cells * 2, 0.0), [1, height, width], Some(fire))?,
        target: Target::values(unit(cells * 2, 1.7)),
        model,
    };
    stretched(
        &subject(&format!("logic_ca {n:?}"), &case, Loss::SumSquares),
        options,
    )
}
