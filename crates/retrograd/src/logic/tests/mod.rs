//! What the automaton promises.

mod attempts;
mod bundles;
mod gradients;
mod hard;
mod penalty;
mod same_bits;
pub(in crate::logic) mod simplifier;
mod sixteen;
mod thinning;

use super::*;
use crate::rng::Key;

/// A small model of every kind of part: several channels and kernels, a boundary, a fire rate.
pub(super) fn small(boundary: BoundaryCondition, steps: usize, fire_rate: f64) -> LogicCa {
    let spec = LogicSpec {
        family: "logic_ca".into(),
        channels: 2,
        kernels: 3,
        perception: vec![9, 8, 4, 2],
        update: vec![14, 12, 9, 5, 3, 2],
        boundary,
        steps,
        fire_rate,
        wiring: WiringKind::Unique,
        wiring_seed: None,
        per_kernel_wiring: false,
        pass_logit: 10.0,
        gate_penalty: 0.0,
    };
    LogicCa::new(spec, 3).unwrap()
}

/// Logits, states and masks with structure: no two alike, and every gate leans to one that lets
/// its inputs through, so that gradients reach the first layer.
pub(super) fn case(
    model: &LogicCa,
    [b, h, w]: [usize; 3],
    seed: u64,
) -> (Vec<f32>, LogicBatch<f32>) {
    use crate::Model;
    let mut stream = Key::new(seed).purpose("test").stream();
    let mut params: Vec<f32> = (0..model.layout().len())
        .map(|_| stream.range(-1.5, 1.5) as f32)
        .collect();
    for logits in params.chunks_exact_mut(16) {
        logits[[3, 5, 3, 6, 10, 12][stream.below(6)]] += 5.0;
    }
    let state = (0..b * h * w * model.spec().channels)
        .map(|_| {
            let u = stream.uniform_f32();
            if u < 0.5 {
                0.3 * u
            } else {
                1.0 - 0.3 * (1.0 - u)
            }
        })
        .collect();
    let rate = model.spec().fire_rate;
    let fire = (rate < 1.0).then(|| {
        (0..model.spec().steps * h * w)
            .map(|_| stream.uniform() < rate)
            .collect()
    });
    let input = LogicBatch::new(model, state, [b, h, w], fire).unwrap();
    (params, input)
}

#[test]
fn a_wiring_seed_draws_the_wires_of_every_run() {
    let wires = |model: &LogicCa| model.update_wires().to_vec();
    for wiring in [WiringKind::Unique, WiringKind::Random, WiringKind::Jax] {
        let mut spec = small(BoundaryCondition::Zero, 1, 1.0).spec().clone();
        spec.wiring = wiring;
        let drawn = |seed| wires(&LogicCa::new(spec.clone(), seed).unwrap());
        assert!(drawn(5) != drawn(6), "{wiring:?}");
        let pinned = LogicSpec {
            wiring_seed: Some(5),
            ..spec.clone()
        };
        let mut model = LogicCa::new(pinned, 6).unwrap();
        assert!(wires(&model) == drawn(5), "{wiring:?}");
        // The next attempt has others.
        model.rewire(7).unwrap();
        assert!(wires(&model) == drawn(7), "{wiring:?}");
    }
}
