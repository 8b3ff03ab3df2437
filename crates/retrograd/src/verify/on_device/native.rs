//! What only native steps compute: an automaton's price of gates, gradients that are accumulated, and Adam
//! where steps are left out before the CPU knows of it.

use std::sync::Arc;

use super::DeviceCheck;
use super::cases::{Made, chain, one};
use super::routines::{check, network, numbers, row};
use crate::gpu::{Gpu, GpuNetwork, GpuOptimizer, GpuTrainOptions, LossScale};
use crate::logic::{LogicBatch, LogicCa, LogicSpec};
use crate::optim::{Optimizer, OptimizerSpec};
use crate::rng::Key;
use crate::scalar::cast;
use crate::train::{Clip, MicroBatch};
use crate::verify::builtin::structured;
use crate::verify::{Case, Row};
use crate::{Error, Loss, Model, Result, Target};

pub(super) fn all(half: bool) -> Vec<DeviceCheck> {
    let name = "device: gates that have a price".to_string();
    let mut all = vec![
        DeviceCheck::of(name.clone(), false, chain(name, priced)),
        check("gradients that are accumulated", false, accumulated),
        check("updates as gradients are complete", false, fused),
        check("the norm of many parameters", false, long_norm),
        check("the loss of many rows", false, long_loss),
    ];
    if half {
        all.push(check("adam with steps left out", true, left_out));
    }
    all
}

/// Over 64 gates: more than a workgroup.
fn priced() -> Result<Made<LogicCa>> {
    let spec = r#"{"channels":2,"kernels":3,"perception":[9,8,4,2],"update":[14,40,20,10,5,3,2],"steps":2,
        "gate_penalty":0.05}"#;
    let spec: LogicSpec = serde_json::from_str(spec)
        .map_err(|e| Error::invalid("the automaton with a price", e, "a spec"))?;
    let model = LogicCa::new(spec, 3)?;
    let unit = |len: usize, phase: f64| -> Vec<f64> {
        let within = |v: f64| f64::from((0.5 + 0.25 * v).clamp(0.0, 1.0) as f32);
        structured(len, phase).into_iter().map(within).collect()
    };
    let cells = 5 * 7;
    let params = structured(model.layout().len(), 0.3);
    let case = Case {
        params: params.iter().map(|p| f64::from(*p as f32)).collect(),
        input: LogicBatch::new(&model, unit(cells * 2, 0.0), [1, 5, 7], None)?,
        target: Target::values(unit(cells * 2, 1.7)),
        model,
    };
    let sgd = one("sgd", OptimizerSpec::sgd(0.05));
    Ok((case, Loss::SumSquares, sgd))
}

/// Four batches in one step: the sum of their quarters. What is added is exact but for a rounding each.
fn accumulated(gpu: &Arc<Gpu>, name: &str) -> Result<Vec<Row>> {
    const BATCHES: usize = 4;
    const RATE: f32 = 0.25;
    const ROWS: usize = 300;
    let network = network(r#"[{"kind":"dense","out":17}]"#, &[6])?;
    let start = numbers(network.layout().len(), 0.3);
    let batch = |i: usize| {
        let x = numbers(ROWS * 6, i as f64);
        let y = numbers(ROWS * 17, 1.7 + i as f64);
        (x, Target::values(y))
    };
    let mut on_gpu = GpuNetwork::new(gpu, &network, &start)?;
    let mut sgd = GpuOptimizer::new(&on_gpu, OptimizerSpec::sgd(f64::from(RATE)))?;
    for index in 0..BATCHES {
        let (x, target) = batch(index);
        let options = GpuTrainOptions {
            micro: MicroBatch {
                index: index as u64,
                of: BATCHES as u64,
            },
            ..Default::default()
        };
        let loss = Loss::Mse;
        on_gpu.train_step_gpu_native_with_options(&x, &target, loss, &mut sgd, &options)?;
    }
    let arrived = on_gpu.finish()?;
    let losses: Vec<f64> = arrived.iter().map(|l| l.loss).collect();
    let params: Vec<f64> = cast(on_gpu.sync_weights_to_cpu()?);
    let mut right: Vec<f64> = cast(&start);
    let mut size: Vec<f64> = right.iter().map(|p| p.abs()).collect();
    let mut mean = 0.0;
    for index in 0..BATCHES {
        let (x, target) = batch(index);
        let mut alone = GpuNetwork::new(gpu, &network, &start)?;
        mean += alone.loss_and_gradients(&x, &target, Loss::Mse, &Default::default())? / 4.0;
        for (i, g) in alone.gradients()?.iter().enumerate() {
            let step = f64::from(RATE) * f64::from(*g) / 4.0;
            right[i] -= step;
            size[i] += step.abs();
        }
    }
    // Four sums and a step, half a unit each.
    let unit = f64::from(f32::EPSILON);
    let bound = |i: usize| 6.0 * unit * size[i];
    // Pieces of 1,024, which are trees of runs, and sums of those.
    let of_loss = |_| 16.0 * unit * mean;
    Ok(vec![
        row(name, "parameters", &params, &right, bound),
        row(name, "loss", &losses, &[mean], of_loss),
    ])
}

/// The first steps overflow. What Adam's correction is, the device knows before the CPU does: the bits are
/// those of a run that is waited for at every step, which are the CPU's Adam on the same gradients.
fn left_out(gpu: &Arc<Gpu>, name: &str) -> Result<Vec<Row>> {
    const STEPS: usize = 16;
    let network = network(
        r#"[{"kind":"dense","out":5},{"kind":"dense","out":3}]"#,
        &[6],
    )?;
    let start = numbers(network.layout().len(), 0.3);
    let spec = LossScale {
        initial: 16_777_216.0,
        ..LossScale::default()
    };
    let x = numbers(4 * 6, 0.0);
    let target = Target::values(numbers(4 * 3, 1.7));
    let options = GpuTrainOptions {
        key: Key::new(0).purpose("verify"),
        ..Default::default()
    };
    let rate = 0.01;
    // Keeps the device busy, so that nothing is known of the steps that follow when they are sent.
    let busy = {
        let wide = network_of_width()?;
        let params = numbers(wide.layout().len(), 0.1);
        move || -> Result<()> {
            let mut on_gpu = GpuNetwork::new(gpu, &wide, &params)?;
            let mut sgd = GpuOptimizer::new(&on_gpu, OptimizerSpec::sgd(0.0))?;
            let (x, target) = (
                numbers(512 * 256, 0.0),
                Target::values(numbers(512 * 256, 1.7)),
            );
            for _ in 0..2 {
                on_gpu.train_step_gpu_native(&x, &target, Loss::Mse, &mut sgd)?;
            }
            Ok(())
        }
    };
    let run = |waits: bool| -> Result<(Vec<f32>, Vec<f32>, usize)> {
        let mut on_gpu = GpuNetwork::mixed(gpu, &network, &start, spec)?;
        let mut adam = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(rate))?;
        let mut on_cpu = Optimizer::new(OptimizerSpec::adam(rate), start.len());
        let mut params = start.clone();
        let mut overflows = 0;
        if !waits {
            busy()?;
        }
        for _ in 0..STEPS {
            let loss = Loss::Mse;
            on_gpu.train_step_gpu_native_with_options(&x, &target, loss, &mut adam, &options)?;
            if !waits {
                continue;
            }
            if on_gpu.finish()?.iter().any(|l| l.overflowed) {
                overflows += 1;
                continue;
            }
            on_cpu.step(&mut params, &on_gpu.gradients()?, network.layout(), rate);
        }
        on_gpu.finish()?;
        Ok((on_gpu.sync_weights_to_cpu()?.to_vec(), params, overflows))
    };
    let (waited, on_cpu, overflows) = run(true)?;
    let (ahead, _, _) = run(false)?;
    let cast = |v: &[f32]| -> Vec<f64> { v.iter().map(|&v| f64::from(v)).collect() };
    // An update is a few operations, two of them with 2.5 units by WGSL's word; it is at most the rate.
    let unit = f64::from(f32::EPSILON);
    let bound = |i: usize| {
        let moved = rate * STEPS as f64;
        STEPS as f64 * unit * f64::from(on_cpu[i].abs()) + 16.0 * unit * moved
    };
    let some = [f64::from(u8::from(overflows > 3 && overflows < STEPS - 3))];
    Ok(vec![
        row(
            name,
            "after steps left out",
            &cast(&waited),
            &cast(&on_cpu),
            bound,
        ),
        row(
            name,
            "bits without waiting",
            &cast(&ahead),
            &cast(&waited),
            |_| 0.0,
        ),
        row(
            name,
            "several were left out, and not all",
            &some,
            &[1.0],
            |_| 0.0,
        ),
    ])
}

/// Some 70 million products forward.
fn network_of_width() -> Result<crate::network::Network> {
    network(
        r#"[{"kind":"dense","out":256},{"kind":"dense","out":256}]"#,
        &[256],
    )
}

/// Every tensor updated once its gradient is complete: the bits of all at the end. Tensors begin and end
/// between the fours that kernels read, and one has more than a workgroup's parameters.
fn fused(gpu: &Arc<Gpu>, name: &str) -> Result<Vec<Row>> {
    let network = network(
        r#"[{"kind":"dense","out":3},{"kind":"tanh"},{"kind":"dense","out":1031},{"kind":"dense","out":5}]"#,
        &[3],
    )?;
    let start = numbers(network.layout().len(), 0.3);
    let x = numbers(4 * 3, 0.0);
    let target = Target::values(numbers(4 * 5, 1.7));
    let run = |fused: bool| -> Result<(Vec<f64>, Vec<f64>)> {
        let mut on_gpu = GpuNetwork::new(gpu, &network, &start)?;
        let mut adam = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(0.01))?;
        let options = GpuTrainOptions {
            fused,
            ..Default::default()
        };
        let mut losses = Vec::new();
        for _ in 0..3 {
            let loss = Loss::Mse;
            on_gpu.train_step_gpu_native_with_options(&x, &target, loss, &mut adam, &options)?;
            losses.extend(on_gpu.finish()?.iter().map(|l| l.loss));
        }
        Ok((cast(on_gpu.sync_weights_to_cpu()?), losses))
    };
    let (right, right_losses) = run(false)?;
    let (params, losses) = run(true)?;
    Ok(vec![
        row(name, "parameters", &params, &right, |_| 0.0),
        row(name, "losses", &losses, &right_losses, |_| 0.0),
    ])
}

/// The loss of 4,300 rows comes in 68 pieces of 64: more than a workgroup has lanes. Of a step, and of one whose
/// batch comes in two parts.
fn long_loss(gpu: &Arc<Gpu>, name: &str) -> Result<Vec<Row>> {
    const ROWS: usize = 4300;
    const CLASSES: usize = 3;
    let network = network(r#"[{"kind":"dense","out":3}]"#, &[2])?;
    let start = numbers(network.layout().len(), 0.3);
    let x = numbers(ROWS * 2, 0.0);
    let classes = (0..ROWS).map(|i| ((i * i) % CLASSES) as u32).collect();
    let target = Target::classes(classes);
    let cpu: f64 = {
        let [x, params]: [Vec<f64>; 2] = [cast(&x), cast(&start)];
        let mut tape = Default::default();
        let pass = crate::Pass::training(Key::new(0)).reference();
        network.compute_forward(&params, &x, &pass, &mut tape);
        let y = network.output(&tape);
        Loss::CrossEntropy.compute(y, &target.cast(), None)
    };
    let mut rows = Vec::new();
    for parts in [1, 2] {
        let mut on_gpu = GpuNetwork::new(gpu, &network, &start)?;
        let mut sgd = GpuOptimizer::new(&on_gpu, OptimizerSpec::sgd(0.25))?;
        for index in 0..parts {
            let options = GpuTrainOptions {
                micro: MicroBatch { index, of: parts },
                ..Default::default()
            };
            let loss = Loss::CrossEntropy;
            on_gpu.train_step_gpu_native_with_options(&x, &target, loss, &mut sgd, &options)?;
        }
        let losses: Vec<f64> = on_gpu.finish()?.iter().map(|l| l.loss).collect();
        // A row's loss is a logarithm by WGSL's word, 2^-21, and some 30 roundings of numbers below 4; of sums a lane
        // adds two, trees 64 twice.
        let unit = f64::from(f32::EPSILON);
        let bound = |_| 1.0 / 2_097_152.0 + 64.0 * unit * (1.0 + cpu);
        rows.push(row(name, &format!("in {parts}"), &losses, &[cpu], bound));
    }
    Ok(rows)
}

/// 69 pieces of 4,096 numbers: more than a workgroup has lanes. A step that the norm cuts short is the norm.
fn long_norm(gpu: &Arc<Gpu>, name: &str) -> Result<Vec<Row>> {
    const CLIP: f64 = 0.125;
    let network = network(r#"[{"kind":"dense","out":701}]"#, &[401])?;
    let start = numbers(network.layout().len(), 0.3);
    let x = numbers(2 * 401, 0.0);
    let target = Target::values(numbers(2 * 701, 1.7));
    let mut alone = GpuNetwork::new(gpu, &network, &start)?;
    alone.loss_and_gradients(&x, &target, Loss::Mse, &Default::default())?;
    let grads: Vec<f64> = cast(&alone.gradients()?);
    let norm = grads.iter().map(|g| g * g).sum::<f64>().sqrt();
    let mut on_gpu = GpuNetwork::new(gpu, &network, &start)?;
    let mut sgd = GpuOptimizer::new(&on_gpu, OptimizerSpec::sgd(1.0))?;
    let options = GpuTrainOptions {
        clip: Clip {
            norm: Some(CLIP * norm),
            element: None,
        },
        ..Default::default()
    };
    let loss = Loss::Mse;
    on_gpu.train_step_gpu_native_with_options(&x, &target, loss, &mut sgd, &options)?;
    on_gpu.finish()?;
    let params: Vec<f64> = cast(on_gpu.sync_weights_to_cpu()?);
    let factor = CLIP * norm / (norm + 1e-6);
    let right: Vec<f64> = (start.iter().zip(&grads))
        .map(|(&p, g)| f64::from(p) - factor * g)
        .collect();
    // A lane adds some 64 squares, trees 64 sums; a root and a quotient by WGSL's word: 2.5 units and 3.
    let unit = f64::from(f32::EPSILON);
    let bound = |i: usize| unit * (right[i].abs() + 100.0 * factor * grads[i].abs());
    Ok(vec![row(name, "parameters", &params, &right, bound)])
}
