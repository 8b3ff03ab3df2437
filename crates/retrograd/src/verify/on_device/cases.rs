//! Models with numbers of their own: losses at their kinks and far out, weights of samples, penalties,
//! frozen tensors, clipping of elements, folded dispatches, and outputs without training.

use std::sync::Arc;

use super::{DeviceCheck, Run};
use crate::gpu::GpuVerifier;
use crate::network::{Network, NetworkSpec};
use crate::optim::OptimizerSpec;
use crate::verify::builtin::network::{case, case_of};
use crate::verify::builtin::{structured, subject};
use crate::verify::chain::{Expectation, Options, check_on, precision_rows};
use crate::verify::sizes::SizedNetwork;
use crate::verify::subject::Runner;
use crate::verify::{BundleOptimizer, Case, Evaluation, Link, On, Report, Row, compare};
use crate::{Error, Kernels, Loss, Model, Pass, Result, Target, math};

/// A model, its loss and the optimizers whose steps are followed.
pub(super) type Made<M = Network> = (Case<M>, Loss, Vec<(String, BundleOptimizer)>);

pub(super) fn all() -> Vec<DeviceCheck> {
    let mut all = losses();
    all.extend(frozen());
    all.push(check("kan with a penalty", || penalised(false, 11)));
    all.push(check("kan with a penalty on zeros", || penalised(true, 11)));
    // 128 and 48 edges: whole workgroups, and less than one.
    all.push(check("kan with a penalty on 128 edges", || {
        penalised(false, 16)
    }));
    all.extend(KNOTS.iter().map(|&(name, layer)| at_knots(name, layer)));
    all.push(check("steps with clipped elements", clipped_elements));
    for &(name, layers, input, samples) in CONVOLUTIONS {
        all.push(check(name, move || of_layers(name, layers, input, samples)));
    }
    for &(name, layers, input, samples) in FOLDED {
        let make = move || of_layers(name, layers, input, samples);
        all.push(folded(name, make));
    }
    for &(name, layers, input, samples) in INFERRED {
        let make = move || of_layers(name, layers, input, samples);
        all.push(inferred(name, make));
    }
    all
}

/// Its chain on the device.
fn check(name: &str, make: impl Fn() -> Result<Made> + Send + Sync + 'static) -> DeviceCheck {
    let name = format!("device: {name}");
    DeviceCheck::of(name.clone(), false, chain(name, make))
}

/// The chain of a model of any family on the device.
pub(super) fn chain<M: Model + 'static>(
    name: String,
    make: impl Fn() -> Result<Made<M>> + Send + Sync + 'static,
) -> Run {
    Box::new(move |options: &Options| {
        let (case, loss, optimizers) = make()?;
        let subject = subject(&name, &case, loss);
        let mut device = no_device(case.model.verifier(options.on)?)?;
        let mut options = Options {
            optimizers,
            ..options.clone()
        };
        // Differences are the CPU's affair, and meaningless on a kink.
        options.coverage.all_up_to = 0;
        options.coverage.per_tensor = 0;
        let mut report = check_on(&subject, &mut *device, &options)?;
        report.rows.retain(|row| row.link != Link::Differences);
        Ok(report)
    })
}

fn no_device<T>(device: Option<T>) -> Result<T> {
    device.ok_or_else(|| Error::invalid("a network", "no kernels", "a device"))
}

/// Every loss, with weights and without.
fn losses() -> Vec<DeviceCheck> {
    let kinds = [
        Loss::Mse,
        Loss::SumSquares,
        Loss::L1,
        Loss::Huber,
        Loss::BceLogits,
        Loss::CrossEntropy,
    ];
    let of = |(loss, weighted): (Loss, bool)| {
        let beside = if weighted { ", weighted" } else { "" };
        check(&format!("{loss:?}{beside}"), move || {
            loss_case(loss, weighted)
        })
    };
    (kinds.into_iter())
        .flat_map(|loss| [(loss, false), (loss, true)])
        .map(of)
        .collect()
}

/// Outputs are inputs: logits to ±400, equal ones, and differences that sit on the kinks. 70 rows of 17
/// are more than a workgroup's rows and elements.
fn loss_case(loss: Loss, weighted: bool) -> Result<Made> {
    const ROWS: usize = 70;
    const WIDTH: usize = 17;
    let layers = format!(r#"[{{"kind":"dense","out":{WIDTH},"bias":false}}]"#);
    let sized = SizedNetwork {
        input: vec![WIDTH],
        layers,
        samples: ROWS,
        loss,
    };
    let (mut case, loss) = case_of("losses", &sized)?;
    for (i, p) in case.params.iter_mut().enumerate() {
        *p = if i / WIDTH == i % WIDTH { 1.0 } else { 0.0 };
    }
    let is_far = matches!(loss, Loss::BceLogits | Loss::CrossEntropy);
    for (i, v) in case.input.iter_mut().enumerate() {
        let (row, column) = (i / WIDTH, i % WIDTH);
        match (row % 7, column) {
            (1, 0) if is_far => *v = 400.0,
            (2, 3) if is_far => *v = -400.0,
            (3, 4) if is_far => *v = 90.0,
            (4, _) => *v = 0.25,
            (5, 1) => *v = 0.0,
            _ => {}
        }
    }
    if matches!(loss, Loss::Mse | Loss::SumSquares | Loss::L1 | Loss::Huber) {
        // Differences of 0, of ±1 and beside them; f32 holds eighths, and their differences.
        let kinks = [0.0, 1.0, -1.0, 0.5, -1.5, 1.25, -0.75];
        for v in &mut case.input {
            *v = (8.0 * *v).round() / 8.0;
        }
        let pairs = case.input.iter().zip(kinks.into_iter().cycle());
        case.target = Target::values(pairs.map(|(y, d)| y - d).collect());
    }
    if weighted {
        let rows = match loss {
            Loss::CrossEntropy => ROWS,
            _ => ROWS * WIDTH,
        };
        // One that 11 bits don't hold.
        let uneven = f64::from(0.7_f32);
        let weights = (0..rows).map(|i| [0.5, 0.0, 2.0, uneven][i % 4]).collect();
        case.target = case.target.weighted(weights);
    }
    Ok((case, loss, Vec::new()))
}

/// Tensors that keep their values, each in turn: what is beside them must not change, nor they.
fn frozen() -> Vec<DeviceCheck> {
    let models = [
        ("dense", "0.weight", DENSE),
        ("dense", "0.bias", DENSE),
        ("kan", "0.spline_weight", KAN),
        ("kan", "0.base_weight", KAN),
        ("kan", "0.bias", KAN),
        ("layer_norm", "1.weight", NORM),
        ("layer_norm", "1.bias", NORM),
        ("conv2d", "0.weight", CONV),
        ("conv2d", "0.bias", CONV),
        ("conv_transpose2d", "1.weight", CONV),
        ("conv_transpose2d", "1.bias", CONV),
    ];
    let of = |(kind, tensor, (input, layers)): (
        &str,
        &'static str,
        (&'static [usize], &'static str),
    )| {
        check(&format!("{kind} without {tensor}"), move || {
            let (mut case, loss, _) = of_layers("frozen", layers, input, 9)?;
            case.model.layout_mut().freeze(tensor)?;
            let sgd = one("sgd", OptimizerSpec::sgd(0.01));
            Ok((case, loss, sgd))
        })
    };
    models.into_iter().map(of).collect()
}

const DENSE: (&[usize], &str) = (
    &[5],
    r#"[{"kind":"dense","out":6},{"kind":"tanh"},{"kind":"dense","out":3}]"#,
);
const KAN: (&[usize], &str) = (
    &[5],
    r#"[{"kind":"kan","out":6,"grid":4,"degree":3,"range":[-2,2],"bias":true},{"kind":"tanh"},{"kind":"dense","out":3}]"#,
);
const NORM: (&[usize], &str) = (
    &[5],
    r#"[{"kind":"dense","out":6},{"kind":"layer_norm"},{"kind":"dense","out":3}]"#,
);
const CONV: (&[usize], &str) = (
    &[2, 5, 4],
    r#"[{"kind":"conv2d","out":3,"kernel":3,"padding":1},{"kind":"conv_transpose2d","out":2,"kernel":2,"stride":2}]"#,
);

/// Kernels that come to a tile place by place, and strides that leave pixels out.
const CONVOLUTIONS: &[Layers] = &[
    (
        "conv2d of large kernels",
        r#"[{"kind":"conv2d","out":3,"kernel":23,"padding":11},{"kind":"tanh"},{"kind":"conv2d","out":2,"kernel":24,"padding":11,"dilation":1}]"#,
        &[2, 24, 25],
        2,
    ),
    (
        "conv2d of wide strides",
        r#"[{"kind":"conv2d","out":5,"kernel":3,"stride":2,"padding":1,"dilation":2},{"kind":"tanh"},{"kind":"conv2d","out":6,"kernel":2,"stride":9,"padding":1}]"#,
        &[2, 40, 43],
        2,
    ),
    (
        "conv_transpose2d of wide strides",
        r#"[{"kind":"conv2d","out":5,"kernel":2},{"kind":"conv_transpose2d","out":6,"kernel":2,"stride":3},{"kind":"tanh"},{"kind":"conv_transpose2d","out":2,"kernel":5,"stride":11,"padding":1}]"#,
        &[2, 4, 5],
        2,
    ),
    (
        "conv2d of several tiles, reflected",
        r#"[{"kind":"conv2d","out":9,"kernel":3,"padding":1},{"kind":"tanh"},{"kind":"conv2d","out":3,"kernel":5,"padding":4,"padding_mode":"reflect","dilation":2}]"#,
        &[2, 33, 35],
        2,
    ),
];

pub(super) fn one(name: &str, spec: OptimizerSpec) -> Vec<(String, BundleOptimizer)> {
    let optimizer = BundleOptimizer {
        spec,
        clip: None,
        clip_element: None,
    };
    vec![(name.to_string(), optimizer)]
}

/// A network of those layers, and Mse.
fn of_layers(
    name: &'static str,
    layers: &'static str,
    input: &'static [usize],
    samples: usize,
) -> Result<Made> {
    let (case, loss) = case((name, input, layers, samples, Loss::Mse))?;
    Ok((case, loss, Vec::new()))
}

/// The penalty's kernels run in native steps.
fn penalised(all_zero: bool, hidden: usize) -> Result<Made> {
    let inputs = if hidden == 16 { 8 } else { 9 };
    let spec = format!(
        r#"{{"input":[{inputs}],"layers":[
        {{"kind":"kan","out":{hidden},"grid":4,"degree":3,"range":[-2,2],"bias":true}},
        {{"kind":"kan","out":3,"grid":3,"degree":2,"base":"none"}}],
        "sparsity":{{"l1":0.02,"entropy":0.03}}}}"#
    );
    let spec: NetworkSpec = serde_json::from_str(&spec)
        .map_err(|e| Error::invalid("the network with a penalty", e, "a network"))?;
    let model = Network::new(&spec)?;
    let mut params: Vec<f64> = crate::scalar::cast(&model.init(11));
    for (p, s) in params.iter_mut().zip(structured(model.layout().len(), 0.3)) {
        *p = f64::from((*p + 0.25 * s) as f32);
    }
    // A weight of 0 has no direction.
    params.iter_mut().step_by(17).for_each(|p| *p = 0.0);
    if all_zero {
        let last = model
            .layout()
            .tensors()
            .iter()
            .filter(|t| t.name.starts_with("1."));
        last.for_each(|t| params[t.range()].fill(0.0));
    }
    let samples = 7;
    let case = Case {
        input: structured(samples * model.input_len(), 0.0),
        target: Target::values(structured(samples * model.output_len(), 1.7)),
        params,
        model,
    };
    Ok((case, Loss::Mse, one("sgd", OptimizerSpec::sgd(0.05))))
}

/// Splines of degree 1, whose slopes jump at knots, and clamped ones: the intervals have to be right there.
const KNOTS: &[(&str, &str)] = &[
    (
        "kan of degree 1 at its knots",
        r#"{"kind":"kan","out":3,"grid":7,"degree":1,"range":[-1,1],"bias":true}"#,
    ),
    (
        "kan of degree 1 at many knots",
        r#"{"kind":"kan","out":2,"grid":23,"degree":1,"range":[-0.9,1.7],"base":"none"}"#,
    ),
    (
        "kan of degree 2 at its knots, clamped",
        r#"{"kind":"kan","out":3,"grid":5,"degree":2,"range":[-0.7,1.3],"outside":"clamp"}"#,
    ),
    (
        "kan of degree 1 at its knots, clamped",
        r#"{"kind":"kan","out":3,"grid":5,"degree":1,"range":[-0.7,1.3],"outside":"clamp"}"#,
    ),
    (
        "kan of free knots of degree 1 at its knots",
        r#"{"kind":"kan","out":3,"grid":5,"degree":1,"range":[-0.7,1.3],"outside":"clamp","free_knots":true}"#,
    ),
];

/// Inputs at every knot, as f32 holds it, at its neighbours, and a step further out on both sides.
fn beside_knots(name: &'static str, layer: &'static str) -> Result<Made> {
    let layers = format!("[{layer}]");
    let sized = SizedNetwork {
        input: vec![1],
        layers,
        samples: 1,
        loss: Loss::Mse,
    };
    let spec: serde_json::Value = serde_json::from_str(layer)
        .map_err(|e| Error::invalid("a layer of the verifier", e, "a KAN"))?;
    let number = |v: &serde_json::Value| v.as_f64().unwrap_or_default();
    let (grid, degree) = (number(&spec["grid"]), number(&spec["degree"]));
    let [lo, hi] = [0, 1].map(|i| number(&spec["range"][i]));
    let mut x = Vec::new();
    for n in 0..(grid + 2.0 * degree + 3.0) as usize {
        let knot = lo + (n as f64 - degree - 1.0) * (hi - lo) / grid;
        let nearest = knot as f32;
        let around = [nearest.next_down(), nearest, nearest.next_up()];
        x.extend(around.map(f64::from));
    }
    let samples = x.len();
    let (mut case, loss) = case_of(name, &SizedNetwork { samples, ..sized })?;
    case.input = x;
    Ok((case, loss, Vec::new()))
}

/// On which side of a knot an input lies decides its slope, and kernels decide it as f64 does: the bound that is
/// predicted, which lets rounding decide, would say nothing.
fn at_knots(name: &'static str, layer: &'static str) -> DeviceCheck {
    let of = format!("device: {name}");
    let run = move |options: &Options| {
        let of = format!("device: {name}");
        let (case, loss, _) = beside_knots(name, layer)?;
        let subject = subject(&of, &case, loss);
        let mut device = no_device(case.model.verifier(options.on)?)?;
        if options.touches {
            device.evaluate(&subject)?;
            return Ok(Report::default());
        }
        let mut reference = Runner::<Network, f64>::new(&subject, Kernels::Reference);
        let exact = reference.evaluate(&subject.params);
        options.say(&format!("{of}: f32 kernels"));
        let found = device.evaluate(&subject)?;
        let rows = [
            ("output", found.output, exact.output),
            ("d input", found.d_input, exact.d_input),
            ("d params", found.d_params, exact.d_params),
        ];
        // Sums of some ten products of numbers that have a rounding or three; parameters' gradients are sums over
        // the batch.
        let unit = f64::from(f32::EPSILON);
        let row = |(tensor, found, exact): (&str, Vec<f64>, Vec<f64>)| {
            let largest = exact.iter().fold(0.0_f64, |m, v| math::max(m, v.abs()));
            let worst = compare(&found, &exact, |_| 64.0 * unit * largest);
            Row::compared(&of, tensor, Link::Gpu, &worst)
        };
        let rows = rows.into_iter().map(row).collect();
        Ok(Report { rows })
    };
    DeviceCheck::of(of, false, Box::new(run))
}

/// Elements clipped alone, and then the norm, with decay in the gradient; more parameters than a
/// workgroup of the update and of the norm owns, and no multiple of 4.
fn clipped_elements() -> Result<Made> {
    const LAYERS: &str = r#"[{"kind":"dense","out":83},{"kind":"tanh"},{"kind":"dense","out":3}]"#;
    let (case, loss, _) = of_layers("clipped", LAYERS, &[61], 9)?;
    let sgd = OptimizerSpec::Sgd {
        lr: 0.02,
        momentum: 0.9,
        nesterov: true,
        weight_decay: 1e-2,
    };
    let clipped = |spec, clip, clip_element| BundleOptimizer {
        spec,
        clip,
        clip_element,
    };
    let optimizers = vec![
        ("elements".to_string(), clipped(sgd, None, Some(0.02))),
        ("both".to_string(), clipped(sgd, Some(0.05), Some(0.02))),
        ("far".to_string(), clipped(sgd, Some(1e-5), None)),
        ("wide".to_string(), clipped(sgd, Some(1e5), None)),
        (
            "adamw".to_string(),
            clipped(OptimizerSpec::adamw(0.01), Some(0.05), Some(0.02)),
        ),
    ];
    Ok((case, loss, optimizers))
}

type Layers = (&'static str, &'static str, &'static [usize], usize);

/// Dispatches of few workgroups along an axis: what has more is folded.
const FOLDED: &[Layers] = &[
    (
        "dense, folded",
        r#"[{"kind":"dense","out":33},{"kind":"tanh"},{"kind":"dense","out":5}]"#,
        &[9],
        70,
    ),
    (
        "kan, folded",
        r#"[{"kind":"kan","out":33,"grid":4,"degree":3,"range":[-2,2]},{"kind":"kan","out":9,"grid":4,"degree":3}]"#,
        &[9],
        70,
    ),
    (
        "conv2d, folded",
        r#"[{"kind":"conv2d","out":5,"kernel":3,"padding":1},{"kind":"batch_norm2d"},{"kind":"relu"},{"kind":"conv2d","out":2,"kernel":3}]"#,
        &[2, 9, 7],
        7,
    ),
];

/// 49 in all, which is more than these networks have.
const FOLD: u32 = 7;

/// Built-in models whose dispatches are folded: their last workgroups have no work.
pub(super) fn folded_models(models: Vec<DeviceCheck>) -> Vec<DeviceCheck> {
    let of = |check: DeviceCheck| {
        let name = format!("folded, {}", check.name);
        let run = move |options: &Options| {
            let gpu = GpuVerifier::shared()?;
            let mut report = Err(Error::invalid("folded dispatches", "none", "some"));
            // The first at which all workgroups have a place.
            for limit in [FOLD - 2, FOLD, 3 * FOLD, 9 * FOLD] {
                gpu.fold_at(Some(limit));
                report = check.run(options);
                gpu.fold_at(None);
                if report.is_ok() {
                    break;
                }
            }
            let mut report = report?;
            for row in &mut report.rows {
                row.model = format!("folded, {}", row.model);
            }
            Ok(report)
        };
        DeviceCheck::of(name, false, Box::new(run))
    };
    models.into_iter().map(of).collect()
}

fn folded(name: &str, make: impl Fn() -> Result<Made> + Send + Sync + 'static) -> DeviceCheck {
    let name = format!("device: {name}");
    let run = chain(name.clone(), make);
    let folded = move |options: &Options| {
        let gpu = GpuVerifier::shared()?;
        gpu.fold_at(Some(FOLD));
        let report = run(options);
        gpu.fold_at(None);
        report
    };
    DeviceCheck::of(name, false, Box::new(folded))
}

/// What is computed otherwise without training.
const INFERRED: &[Layers] = &[
    (
        "batch_norm2d and dropout without training",
        r#"[{"kind":"conv2d","out":5,"kernel":3,"padding":1},{"kind":"batch_norm2d"},{"kind":"dropout","p":0.5},{"kind":"relu"},{"kind":"conv2d","out":2,"kernel":3}]"#,
        &[2, 9, 7],
        3,
    ),
    (
        "normalize and kan without training",
        r#"[{"kind":"normalize"},{"kind":"kan","out":7,"grid":4,"degree":3,"range":[-2,2]},{"kind":"dropout","p":0.2}]"#,
        &[5],
        9,
    ),
];

fn inferred(name: &str, make: impl Fn() -> Result<Made> + Send + Sync + 'static) -> DeviceCheck {
    let name = format!("device: {name}");
    let of = name.clone();
    let run = move |options: &Options| {
        let On::Gpu(precision) = options.on else {
            return Ok(Report::default());
        };
        let (case, loss, _) = make()?;
        let mut subject = subject(&of, &case, loss);
        subject.pass = Pass::inference();
        let verifier = GpuVerifier::with_precision(&GpuVerifier::shared()?, precision);
        if options.touches {
            verifier.infer(&subject)?;
            return Ok(Report::default());
        }
        let device: &dyn crate::verify::Device<Network> = &verifier;
        let (granted, plan) = (device.granted(), &options.plan);
        let expected: Arc<Expectation> = options.expectation(&subject, || {
            Expectation::new(&subject, granted, &[], 0, plan)
        });
        options.say(&format!("{of}: f32 kernels"));
        let evaluation = Evaluation {
            output: verifier.infer(&subject)?,
            ..expected.exact.clone()
        };
        let mut rows = precision_rows(&subject, &expected, &evaluation, Link::Gpu);
        rows.retain(|row| row.tensor == "output");
        Ok(Report { rows })
    };
    DeviceCheck::of(name, false, Box::new(run))
}
