//! The same bits, whatever the threads; pure functions; bad input.

use super::{case, small};
use crate::logic::BoundaryCondition::{Periodic, Zero};
use crate::logic::{LogicBatch, LogicCa, TrainingLoop, channel_target, reference};
use crate::model::{Buffer, Kernels, Model};
use crate::optim::OptimizerSpec;
use crate::parallel::with_threads;

#[test]
fn test_cell_gradients_deterministic() {
    let model = small(Periodic, 1, 1.0);
    let (params, input) = case(&model, [1, 4, 4], 1);
    let mut p = Vec::new();
    model.soften(&params, &mut p);
    let around = reference::neighbourhoods(&model, &input, &input.state, 5);
    let once = reference::compute_cell_gradients(&model, &p, &around, &[0.5, -1.0]);
    let twice = reference::compute_cell_gradients(&model, &p, &around, &[0.5, -1.0]);
    assert_eq!(once, twice);
    assert!(once.h.iter().any(|&h| h != 0.0));
}

/// The weights after five epochs.
fn train(model: &LogicCa, kernels: Kernels, threads: usize) -> Vec<f32> {
    with_threads(threads, || {
        let params = model.init(0);
        let optimizer = OptimizerSpec::adamw(0.05);
        let mut run = TrainingLoop::new(model.clone(), params, optimizer, kernels).unwrap();
        for epoch in 0..5 {
            let (_, input) = case(model, [2, 6, 19], epoch);
            let first: Vec<f32> = (0..2 * 6 * 19).map(|i| (i % 2) as f32).collect();
            let target = channel_target(&first, 1, model.spec().channels);
            run.train_step(&input, &target).unwrap();
        }
        run.params().to_vec()
    })
}

#[test]
fn test_parallel_backward_equivalence() {
    for rate in [1.0, 0.6] {
        let mut model = small(Zero, 3, rate);
        model.parallel = false;
        let sequential = train(&model, Kernels::Reference, 1);
        model.parallel = true;
        for threads in [1, 2, 7] {
            assert_eq!(
                sequential,
                train(&model, Kernels::Reference, threads),
                "{threads}"
            );
        }
    }
}

#[test]
fn the_fast_path_gives_the_same_bits_on_1_2_and_7_threads() {
    // Large enough that blocks and channels go to threads.
    let mut spec = small(Zero, 3, 0.6).spec().clone();
    spec.channels = 32;
    spec.update = vec![32 + 32 * 2 * 3, 256, 256, 128, 64, 32];
    for boundary in [Zero, Periodic] {
        spec.boundary = boundary;
        let model = LogicCa::new(spec.clone(), 1).unwrap();
        let one = train(&model, Kernels::Fast, 1);
        assert_eq!(one, train(&model, Kernels::Fast, 2));
        assert_eq!(one, train(&model, Kernels::Fast, 7));
    }
}

#[test]
fn a_tape_serves_batches_of_any_size() {
    let model = small(Zero, 2, 1.0);
    let mut kept = Default::default();
    let pass = crate::Pass::inference();
    for shape in [[2, 6, 19], [1, 2, 3], [3, 5, 16]] {
        let (params, input) = case(&model, shape, 4);
        let mut fresh = Default::default();
        model.compute_forward(&params, &input, &pass, &mut kept);
        model.compute_forward(&params, &input, &pass, &mut fresh);
        assert_eq!(model.output(&kept), model.output(&fresh));
        let d_output = vec![0.5; input.state.len()];
        let mut gradients = [vec![0.0; params.len()], vec![0.0; params.len()]];
        for (tape, d) in [&mut kept, &mut fresh].into_iter().zip(&mut gradients) {
            let grads = crate::Grads::params(d);
            model.compute_backward(&params, &input, &pass, tape, &d_output, grads);
        }
        assert_eq!(gradients[0], gradients[1]);
    }
}

#[test]
fn wires_survive_a_round_trip_and_bad_ones_are_refused() {
    let model = small(Zero, 1, 1.0);
    let mut other = LogicCa::new(model.spec().clone(), 99).unwrap();
    assert_ne!(other.buffers(), model.buffers());
    for buffer in model.buffers() {
        other.set_buffer(&buffer).unwrap();
    }
    assert_eq!(other.buffers(), model.buffers());
    let (params, input) = case(&model, [1, 3, 3], 0);
    let run = |model: &LogicCa| {
        let mut tape = Default::default();
        model.compute_forward(&params, &input, &crate::Pass::inference(), &mut tape);
        model.output(&tape).to_vec()
    };
    assert_eq!(run(&model), run(&other));
    let mut bad = model.buffers()[4].clone();
    bad.values[3] = 500.0;
    let error = other.set_buffer(&bad).unwrap_err().to_string();
    assert!(
        error.contains("wires.update.1") && error.contains("500"),
        "{error}"
    );
    let unknown = Buffer {
        name: "wires.update.9".into(),
        ..bad
    };
    assert!(other.set_buffer(&unknown).is_err());
}

#[test]
fn bad_descriptions_and_batches_are_named() {
    let spec = small(Zero, 2, 1.0).spec().clone();
    let with = |change: &dyn Fn(&mut crate::logic::LogicSpec)| {
        let mut spec = spec.clone();
        change(&mut spec);
        LogicCa::new(spec, 0).unwrap_err().to_string()
    };
    assert!(with(&|s| s.channels = 0).contains("channels"));
    assert!(with(&|s| s.channels = 129).contains("129"));
    assert!(with(&|s| s.fire_rate = 0.0).contains("fire_rate"));
    assert!(with(&|s| s.fire_rate = 1.5).contains("fire_rate"));
    assert!(with(&|s| s.fire_rate = f64::NAN).contains("fire_rate"));
    assert!(with(&|s| s.steps = 0).contains("steps"));
    assert!(with(&|s| s.kernels = 0).contains("kernels"));
    assert!(with(&|s| s.update = vec![14, 6, 2]).contains("update[1]"));
    assert!(with(&|s| s.update[0] = 15).contains("update[0]"));
    assert!(with(&|s| s.perception = vec![9, 4]).contains("update[0]"));
    assert!(with(&|s| s.perception = vec![]).contains("perception"));
    let model = small(Zero, 2, 1.0);
    let batch = |state: Vec<f32>, shape, fire| LogicBatch::new(&model, state, shape, fire);
    assert!(batch(vec![], [1, 0, 3], None).is_err());
    assert!(batch(vec![0.0; 17], [1, 3, 3], None).is_err());
    assert!(batch(vec![f32::NAN; 18], [1, 3, 3], None).is_err());
    assert!(batch(vec![0.0; 18], [1, 3, 3], Some(vec![true; 9])).is_err());
    assert!(batch(vec![0.0; 18], [1, 3, 3], Some(vec![true; 18])).is_ok());
}
