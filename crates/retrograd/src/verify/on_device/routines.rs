//! What runs on a device beside layers and losses of models: image terms, gradients sent as 16-bit floats,
//! running statistics, the loss scale, and steps that fail.

use std::sync::{Arc, OnceLock};

use half::f16;

use super::DeviceCheck;
use crate::gpu::{Gpu, GpuNetwork, GpuOptimizer, GpuTrainOptions, GpuVerifier, LossScale};
use crate::loss_image::{ImageLoss, ImageTerms, Workspace};
use crate::network::{Network, NetworkSpec};
use crate::optim::OptimizerSpec;
use crate::rng::Key;
use crate::scalar::cast;
use crate::verify::builtin::structured;
use crate::verify::chain::Options;
use crate::verify::precision::Bounds;
use crate::verify::{Granted, Link, Report, Rounded, Row, compare};
use crate::{Error, Loss, Model, Result, Target, math, parallel};

pub(super) fn all(half: bool) -> Vec<DeviceCheck> {
    let mut all = image_terms();
    all.push(check("gradients as 16-bit floats", false, compressed));
    all.push(check("running statistics", false, statistics));
    all.push(check("running statistics of two", false, |gpu, name| {
        statistics_of(gpu, name, [2, 1])
    }));
    all.push(check("steps that fail", false, failing));
    if half {
        all.push(check("the loss scale", true, scale));
    }
    all
}

pub(super) fn check(
    name: &str,
    half: bool,
    rows: fn(&Arc<Gpu>, &str) -> Result<Vec<Row>>,
) -> DeviceCheck {
    let name = format!("device: {name}");
    let of = name.clone();
    let run = move |options: &Options| {
        options.say(&format!("{of}: f32 kernels"));
        let gpu = GpuVerifier::shared()?;
        let rows = rows(&gpu, &of)?;
        gpu.check_guards()?;
        Ok(Report { rows })
    };
    DeviceCheck::of(name, half, Box::new(run))
}

/// Numbers that must be within a bound of others.
pub(super) fn row(
    name: &str,
    tensor: &str,
    values: &[f64],
    right: &[f64],
    bound: impl Fn(usize) -> f64,
) -> Row {
    Row::compared(name, tensor, Link::Gpu, &compare(values, right, bound))
}

pub(super) fn network(layers: &str, input: &[usize]) -> Result<Network> {
    let spec = format!(r#"{{"input":{input:?},"layers":{layers}}}"#);
    let spec: NetworkSpec = serde_json::from_str(&spec)
        .map_err(|e| Error::invalid("a network of the verifier", e, "a network"))?;
    Network::new(&spec)
}

pub(super) fn numbers(len: usize, phase: f64) -> Vec<f32> {
    cast(&structured(len, phase))
}

const BOTH: ImageTerms = ImageTerms {
    ssim: 0.7,
    ssim_range: 4.0,
    gradient: 0.3,
};

/// Samples, channels, width and height: tiles of 8 × 8 places (beyond the window of 11), of 8 × 8 pixels,
/// and more partial sums than lanes.
fn image_terms() -> Vec<DeviceCheck> {
    let gradient = ImageTerms { ssim: 0.0, ..BOTH };
    let ssim = ImageTerms {
        gradient: 0.0,
        ..BOTH
    };
    let sizes = [
        (BOTH, [1, 1, 11, 11]),
        (BOTH, [2, 1, 12, 16]),
        (BOTH, [1, 2, 17, 18]),
        (BOTH, [2, 1, 18, 19]),
        (BOTH, [1, 1, 19, 17]),
        (ssim, [3, 2, 33, 40]),
        (gradient, [1, 1, 2, 2]),
        (gradient, [2, 1, 7, 3]),
        (gradient, [1, 2, 8, 9]),
        (gradient, [1, 1, 9, 8]),
        (gradient, [5, 1, 33, 31]),
    ];
    sizes
        .into_iter()
        .map(|(terms, size)| image_check(terms, size))
        .collect()
}

/// The terms' value and gradient, from the f64 reference, and on runs of the number that rounds at random.
struct Predicted {
    exact: Vec<f64>,
    runs: Vec<Vec<f64>>,
}

fn image_check(terms: ImageTerms, size: [usize; 4]) -> DeviceCheck {
    let [samples, channels, width, height] = size;
    let which = match (terms.ssim > 0.0, terms.gradient > 0.0) {
        (true, true) => "both terms",
        (true, false) => "ssim",
        _ => "gradient",
    };
    let name = format!("device: {which} of {samples} × {channels} images of {width} × {height}");
    let of = name.clone();
    let predicted = OnceLock::new();
    let run = move |options: &Options| {
        let len = samples * channels * width * height;
        let (y, t) = (numbers(len, 0.2), numbers(len, 1.1));
        if options.touches {
            image_terms_of(&GpuVerifier::shared()?, terms, size, &y, &t)?;
            return Ok(Report::default());
        }
        options.say(&format!("{of}: what rounding can explain"));
        let Predicted { exact, runs } =
            predicted.get_or_init(|| predict(terms, [width, height], &y, &t));
        options.say(&format!("{of}: f32 kernels"));
        let gpu = GpuVerifier::shared()?;
        let (value, d_y) = image_terms_of(&gpu, terms, size, &y, &t)?;
        let last = exact.len() - 1;
        let of_gradient = Bounds::new(&exact[..last], runs.iter().map(|r| &r[..last]));
        let of_value = Bounds::new(&exact[last..], runs.iter().map(|r| &r[last..]));
        let rows = vec![
            row(&of, "value", &[value], &exact[last..], |i| of_value.at(i)),
            row(&of, "gradient", &d_y, &exact[..last], |i| of_gradient.at(i)),
        ];
        Ok(Report { rows })
    };
    DeviceCheck::of(name, false, Box::new(run))
}

fn predict(terms: ImageTerms, [width, height]: [usize; 2], y: &[f32], t: &[f32]) -> Predicted {
    let exact = {
        let (y, t): (Vec<f64>, Vec<f64>) = (cast(y), cast(t));
        let mut d_y = vec![0.0; y.len()];
        let scratch = &mut Workspace::default();
        let value = terms.compute(width, height, &y, &t, Some(&mut d_y), scratch);
        d_y.push(value);
        d_y
    };
    let runs = parallel::isolated(16, |run| {
        Rounded::start(run as u64 + 1, &Granted::WGSL);
        let (y, t): (Vec<Rounded>, Vec<Rounded>) = (cast(y), cast(t));
        let mut d_y: Vec<Rounded> = cast(&vec![0.0_f64; y.len()]);
        let scratch = &mut Workspace::default();
        let value = terms.compute(width, height, &y, &t, Some(&mut d_y), scratch);
        d_y.push(value);
        cast(&d_y)
    });
    Predicted { exact, runs }
}

/// On the device, through a network that hands its input on. The pixels have no weight: the terms are
/// alone.
fn image_terms_of(
    gpu: &Arc<Gpu>,
    terms: ImageTerms,
    [_, channels, width, height]: [usize; 4],
    y: &[f32],
    t: &[f32],
) -> Result<(f64, Vec<f64>)> {
    let layers = format!(
        r#"[{{"kind":"conv2d","out":{channels},"kernel":1,"groups":{channels},"bias":false}}]"#
    );
    let network = network(&layers, &[channels, height, width])?;
    let ones = vec![1.0; network.layout().len()];
    let mut on_gpu = GpuNetwork::new(gpu, &network, &ones)?;
    on_gpu.set_image_loss(&ImageLoss::new(terms, width, height)?)?;
    let target = Target::values(t.to_vec()).weighted(vec![0.0; t.len()]);
    let options = GpuTrainOptions::default();
    let value = on_gpu.loss_and_gradients(y, &target, Loss::Mse, &options)?;
    let d_y = cast(&on_gpu.input_gradient()?);
    gpu.check_guards()?;
    Ok((value, d_y))
}

/// What is sent is the nearest 16-bit float, or its neighbour, of the gradient and what is owed; what is
/// owed is the rest, to the bit.
fn compressed(gpu: &Arc<Gpu>, name: &str) -> Result<Vec<Row>> {
    // An odd number of parameters, and more pairs than a workgroup has invocations.
    let network = network(r#"[{"kind":"dense","out":11}]"#, &[12])?;
    let len = network.layout().len();
    let mut on_gpu = GpuNetwork::new(gpu, &network, &numbers(len, 0.3))?;
    let options = GpuTrainOptions::default();
    let mut owed = vec![0.0_f32; len];
    let mut rows = Vec::new();
    // The last two are beyond what 16 bits hold, and what 32 do.
    for (step, size) in [1.0, 0.7, 3e6, 3e38].into_iter().enumerate() {
        let x = numbers(3 * 12, step as f64);
        let target = numbers(3 * 11, 1.7).iter().map(|v| size * v).collect();
        let target = Target::values(target);
        on_gpu.loss_and_gradients(&x, &target, Loss::Mse, &options)?;
        let grads = on_gpu.gradients()?;
        let sent = on_gpu.gradients_f16()?;
        let rest = on_gpu.compression_residual()?.unwrap_or_default();
        let wanted: Vec<f32> = grads.iter().zip(&owed).map(|(g, o)| g + o).collect();
        let largest = f16::MAX.to_f32();
        let pair = |i: usize| i / 2 * 2..(i / 2 * 2 + 2).min(len);
        let good: Vec<bool> = (0..len)
            .map(|i| wanted[pair(i)].iter().all(|w| w.is_finite()))
            .collect();
        let right: Vec<f64> = (wanted.iter().zip(&good))
            .map(|(w, good)| match good {
                true => f64::from(w.clamp(-largest, largest)),
                false => 0.0,
            })
            .collect();
        // A number that is none stands for both of its pair.
        let seen: Vec<f64> = (sent.iter().zip(&good))
            .map(|(s, good)| match (good, s.is_nan()) {
                (true, _) => f64::from(*s),
                (false, true) => 0.0,
                (false, false) => f64::NAN,
            })
            .collect();
        // Half a unit, or a whole one, as WGSL leaves open.
        let unit = |i: usize| math::max(right[i].abs() / 1024.0, 1.0 / f64::from(1 << 24));
        rows.push(row(name, &format!("sent {step}"), &seen, &right, unit));
        owed = (wanted.iter().zip(&sent).zip(&good))
            .map(|((w, s), good)| if *good { w - s } else { 0.0 })
            .collect();
        let (rest, right): (Vec<f64>, Vec<f64>) = (cast(&rest), cast(&owed));
        rows.push(row(name, &format!("owed {step}"), &rest, &right, |_| 0.0));
    }
    Ok(rows)
}

/// Means and variances of two batches, from their definition; 70 channels are more than a workgroup.
fn statistics(gpu: &Arc<Gpu>, name: &str) -> Result<Vec<Row>> {
    statistics_of(gpu, name, [3, 6])
}

fn statistics_of(gpu: &Arc<Gpu>, name: &str, [samples, plane]: [usize; 2]) -> Result<Vec<Row>> {
    const CHANNELS: usize = 70;
    let network = network(r#"[{"kind":"batch_norm2d"}]"#, &[CHANNELS, plane, 1])?;
    let len = network.layout().len();
    let mut on_gpu = GpuNetwork::new(gpu, &network, &numbers(len, 0.3))?;
    let mut right = [vec![0.0; CHANNELS], vec![1.0; CHANNELS]];
    let mut largest = [vec![0.0_f64; CHANNELS], vec![1.0_f64; CHANNELS]];
    for step in 0..2 {
        let x = numbers(samples * CHANNELS * plane, f64::from(step));
        let target = Target::values(numbers(x.len(), 1.7));
        on_gpu.loss_and_gradients(&x, &target, Loss::Mse, &GpuTrainOptions::default())?;
        for c in 0..CHANNELS {
            let own = || {
                let planes = x.chunks_exact(plane).skip(c).step_by(CHANNELS);
                planes.flatten().map(|&v| f64::from(v))
            };
            let n = (samples * plane) as f64;
            let mean = own().sum::<f64>() / n;
            let var = own().map(|v| math::powi(v - mean, 2)).sum::<f64>() / (n - 1.0);
            for (kind, fresh) in [mean, var].into_iter().enumerate() {
                right[kind][c] += 0.1 * (fresh - right[kind][c]);
                let size = own().map(f64::abs).fold(fresh.abs(), math::max);
                largest[kind][c] = math::max(largest[kind][c], size);
            }
        }
    }
    on_gpu.sync_buffers_to_cpu()?;
    let buffers = on_gpu.network().buffers();
    let of = |kind: usize, suffix: &str| {
        let values = buffers.iter().find(|b| b.name.ends_with(suffix));
        let values = values.map_or_else(Vec::new, |b| b.values.clone());
        // A variance comes back out of 1/√(v + ε): a root and two quotients of 3 units each and their
        // squares, of two steps; sums of 18 numbers.
        let bound = |c: usize| 64.0 * f64::from(f32::EPSILON) * largest[kind][c];
        row(name, suffix, &values, &right[kind], bound)
    };
    Ok(vec![of(0, "running_mean"), of(1, "running_var")])
}

/// A step that fails changes nothing, nor does any after it, until it is forgiven.
fn failing(gpu: &Arc<Gpu>, name: &str) -> Result<Vec<Row>> {
    let network = network(r#"[{"kind":"dense","out":11}]"#, &[12])?;
    let start = numbers(network.layout().len(), 0.3);
    let x = numbers(3 * 12, 0.5);
    let good = Target::values(numbers(3 * 11, 1.7));
    let bad = Target::values(vec![3e38; 3 * 11]);
    let after = |targets: &[&Target<f32>], forgives: bool| -> Result<(Vec<f64>, bool)> {
        let mut on_gpu = GpuNetwork::new(gpu, &network, &start)?;
        let mut adam = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(0.01))?;
        let mut failed = false;
        for target in targets {
            let step = on_gpu.train_step_gpu_native(&x, target, Loss::Mse, &mut adam);
            let updated = match step.and_then(|()| on_gpu.finish()) {
                Ok(arrived) => arrived.iter().all(|l| l.updated),
                Err(_) => false,
            };
            failed |= !updated;
            if !updated && forgives {
                on_gpu.clear_failure()?;
            }
        }
        Ok((cast(on_gpu.sync_weights_to_cpu()?), failed))
    };
    let (one, clean) = after(&[&good], false)?;
    let (stopped, failed) = after(&[&good, &bad, &good], false)?;
    let (forgiven, failed_too) = after(&[&good, &bad, &good], true)?;
    let (two, _) = after(&[&good, &good], false)?;
    let says = [clean, failed, failed_too].map(|f| f64::from(u8::from(f)));
    Ok(vec![
        row(name, "says so", &says, &[0.0, 1.0, 1.0], |_| 0.0),
        row(name, "weights after it", &stopped, &one, |_| 0.0),
        row(name, "weights when forgiven", &forgiven, &two, |_| 0.0),
    ])
}

/// The scale that the device keeps, step by step: halved where a gradient overflows, doubled after three
/// good steps.
fn scale(gpu: &Arc<Gpu>, name: &str) -> Result<Vec<Row>> {
    let network = network(
        r#"[{"kind":"dense","out":5},{"kind":"dense","out":3}]"#,
        &[6],
    )?;
    let spec = LossScale {
        initial: 16_777_216.0,
        growth_interval: 3,
        good_steps: 0,
    };
    let mut on_gpu = GpuNetwork::mixed(gpu, &network, &numbers(network.layout().len(), 0.3), spec)?;
    let mut sgd = GpuOptimizer::new(&on_gpu, OptimizerSpec::sgd(1e-4))?;
    let x = numbers(4 * 6, 0.0);
    let target = Target::values(numbers(4 * 3, 1.7));
    let (mut seen, mut right) = (Vec::new(), Vec::new());
    let [mut value, mut good, mut left_out] = [f64::from(spec.initial), 0.0, 0.0];
    let (mut overflows, mut doubled) = (0, 0);
    let key = Key::new(0).purpose("verify");
    let options = GpuTrainOptions {
        key,
        ..Default::default()
    };
    for step in 1..=24 {
        let loss = Loss::Mse;
        on_gpu.train_step_gpu_native_with_options(&x, &target, loss, &mut sgd, &options)?;
        let overflowed = on_gpu.finish()?.iter().any(|l| l.overflowed);
        if overflowed {
            [value, good] = [0.5 * value, 0.0];
            left_out += 1.0;
            overflows += 1;
        } else {
            good += 1.0;
            if good == 3.0 {
                [value, good] = [2.0 * value, 0.0];
                doubled += 1;
            }
        }
        seen.extend(on_gpu.scale_on_device(step)?.iter().map(|&v| f64::from(v)));
        right.extend([value, good, left_out]);
    }
    let both = [
        f64::from(u8::from(overflows > 1)),
        f64::from(u8::from(doubled > 1)),
    ];
    Ok(vec![
        row(
            name,
            "scale, good steps, steps left out",
            &seen,
            &right,
            |_| 0.0,
        ),
        row(name, "halved and doubled", &both, &[1.0, 1.0], |_| 0.0),
    ])
}
