//! Small networks, one or more for every layer kind, and the faults of their layers.

use super::{BuiltIn, structured};
use crate::layer::dropout::Dropout;
use crate::layer::norm::Norm;
use crate::layer::normalize::Normalize;
use crate::layer::{AnyLayer, activation, kan, norm, pool, upsample};
use crate::network::{LayerSpec, Network, NetworkSpec};
use crate::plan::{Place, Value, before};
use crate::verify::bundle::Case;
use crate::verify::mutants::{
    FaultKind, Honest, Mutation, Transform, general_faults, judge, mutant_row, on,
};
use crate::verify::report::Report;
use crate::verify::subject::Subject;
use crate::{Buffer, Error, Loss, Model, Result, Target};

/// Name, the sample's shape, the layers as JSON, samples, loss. The layer that the name speaks of
/// is the first of that kind.
type Small = (&'static str, &'static [usize], &'static str, usize, Loss);

const SMALL: &[Small] = &[
    (
        "dense",
        &[4],
        r#"[{"kind":"dense","out":5},{"kind":"tanh"},{"kind":"dense","out":3}]"#,
        6,
        Loss::CrossEntropy,
    ),
    (
        "relu",
        &[4],
        r#"[{"kind":"dense","out":6},{"kind":"relu"},{"kind":"dense","out":3}]"#,
        7,
        Loss::Mse,
    ),
    (
        "leaky_relu",
        &[4],
        r#"[{"kind":"dense","out":6},{"kind":"leaky_relu","slope":0.1},{"kind":"dense","out":3}]"#,
        7,
        Loss::L1,
    ),
    (
        "elu",
        &[4],
        r#"[{"kind":"dense","out":6},{"kind":"elu","alpha":0.7},{"kind":"dense","out":3}]"#,
        7,
        Loss::Mse,
    ),
    (
        "silu",
        &[4],
        r#"[{"kind":"dense","out":6},{"kind":"silu"},{"kind":"dense","out":3}]"#,
        7,
        Loss::Huber,
    ),
    (
        "gelu",
        &[4],
        r#"[{"kind":"dense","out":6},{"kind":"gelu"},{"kind":"dense","out":3,"bias":false}]"#,
        7,
        Loss::CrossEntropy,
    ),
    (
        "tanh",
        &[4],
        r#"[{"kind":"dense","out":6},{"kind":"tanh"},{"kind":"dense","out":3}]"#,
        7,
        Loss::SumSquares,
    ),
    (
        "sigmoid",
        &[4],
        r#"[{"kind":"dense","out":6},{"kind":"sigmoid"},{"kind":"dense","out":3}]"#,
        7,
        Loss::BceLogits,
    ),
    (
        "kan degree 1",
        &[3],
        r#"[{"kind":"dense","out":3},{"kind":"kan","out":4,"grid":4,"degree":1,"range":[-2,2]},{"kind":"kan","out":2,"grid":3,"degree":1}]"#,
        9,
        Loss::Mse,
    ),
    (
        "kan degree 2",
        &[3],
        r#"[{"kind":"dense","out":3},{"kind":"kan","out":4,"grid":4,"degree":2,"range":[-2,2],"bias":true},{"kind":"kan","out":2,"grid":3,"degree":2}]"#,
        9,
        Loss::Mse,
    ),
    (
        "kan degree 3",
        &[3],
        r#"[{"kind":"dense","out":3},{"kind":"kan","out":4,"grid":5,"degree":3,"range":[-2,2]},{"kind":"kan","out":2,"grid":3,"degree":3}]"#,
        9,
        Loss::Mse,
    ),
    (
        "kan degree 4",
        &[3],
        r#"[{"kind":"kan","out":4,"grid":4,"degree":4,"range":[-2,2]},{"kind":"dense","out":2}]"#,
        9,
        Loss::Huber,
    ),
    (
        "kan degree 5",
        &[3],
        r#"[{"kind":"kan","out":4,"grid":4,"degree":5,"range":[-2,2]},{"kind":"dense","out":2}]"#,
        9,
        Loss::Mse,
    ),
    (
        "kan degree 7",
        &[3],
        r#"[{"kind":"kan","out":2,"grid":3,"degree":7,"range":[-2,2]}]"#,
        9,
        Loss::Mse,
    ),
    (
        "kan clamp",
        &[3],
        r#"[{"kind":"kan","out":4,"grid":4,"degree":3,"range":[-1,1],"outside":"clamp"},{"kind":"dense","out":2}]"#,
        11,
        Loss::Mse,
    ),
    (
        "kan without base",
        &[3],
        r#"[{"kind":"kan","out":4,"grid":4,"degree":2,"range":[-2,2],"base":"none","bias":true},{"kind":"dense","out":2}]"#,
        9,
        Loss::Mse,
    ),
    (
        "kan free knots",
        &[3],
        r#"[{"kind":"kan","out":4,"grid":4,"degree":3,"free_knots":true},{"kind":"dense","out":2}]"#,
        9,
        Loss::Mse,
    ),
    (
        "conv2d",
        &[2, 5, 7],
        r#"[{"kind":"conv2d","out":3,"kernel":3,"padding":1},{"kind":"silu"},{"kind":"conv2d","out":2,"kernel":3,"stride":2}]"#,
        3,
        Loss::Mse,
    ),
    (
        "conv2d strided",
        &[2, 7, 6],
        r#"[{"kind":"conv2d","out":4,"kernel":2,"stride":2,"groups":2},{"kind":"tanh"},{"kind":"flatten"},{"kind":"dense","out":3}]"#,
        4,
        Loss::CrossEntropy,
    ),
    (
        "conv2d dilated, reflected",
        &[2, 6, 7],
        r#"[{"kind":"conv2d","out":3,"kernel":3,"padding":2,"padding_mode":"reflect","dilation":2,"bias":false},{"kind":"gelu"},{"kind":"conv2d","out":1,"kernel":1}]"#,
        3,
        Loss::L1,
    ),
    (
        "conv_transpose2d",
        &[3, 3, 4],
        r#"[{"kind":"conv_transpose2d","out":2,"kernel":3,"stride":2,"padding":1},{"kind":"tanh"},{"kind":"conv2d","out":1,"kernel":2}]"#,
        3,
        Loss::Mse,
    ),
    (
        "max_pool2d",
        &[2, 6, 7],
        r#"[{"kind":"conv2d","out":3,"kernel":3,"padding":1},{"kind":"max_pool2d","kernel":2},{"kind":"flatten"},{"kind":"dense","out":2}]"#,
        4,
        Loss::Mse,
    ),
    (
        "avg_pool2d",
        &[2, 6, 7],
        r#"[{"kind":"conv2d","out":3,"kernel":3,"padding":1},{"kind":"avg_pool2d","kernel":3,"stride":2},{"kind":"flatten"},{"kind":"dense","out":2}]"#,
        4,
        Loss::Mse,
    ),
    (
        "upsample",
        &[2, 3, 4],
        r#"[{"kind":"conv2d","out":3,"kernel":2},{"kind":"upsample","scale":2},{"kind":"conv2d","out":1,"kernel":2}]"#,
        4,
        Loss::Mse,
    ),
    (
        "layer_norm",
        &[5],
        r#"[{"kind":"dense","out":6},{"kind":"layer_norm"},{"kind":"dense","out":3}]"#,
        7,
        Loss::CrossEntropy,
    ),
    (
        "group_norm",
        &[2, 4, 5],
        r#"[{"kind":"conv2d","out":4,"kernel":2},{"kind":"group_norm","groups":2},{"kind":"flatten"},{"kind":"dense","out":2}]"#,
        4,
        Loss::Mse,
    ),
    (
        "batch_norm2d",
        &[2, 4, 5],
        r#"[{"kind":"conv2d","out":3,"kernel":2,"bias":false},{"kind":"batch_norm2d"},{"kind":"silu"},{"kind":"flatten"},{"kind":"dense","out":2}]"#,
        5,
        Loss::Mse,
    ),
    (
        "concat",
        &[2, 4, 5],
        r#"[{"kind":"conv2d","out":3,"kernel":3,"padding":1},{"kind":"tanh"},{"kind":"concat","with":-1},{"kind":"conv2d","out":2,"kernel":2}]"#,
        3,
        Loss::Mse,
    ),
    (
        "add",
        &[2, 4, 5],
        r#"[{"kind":"conv2d","out":2,"kernel":3,"padding":1},{"kind":"tanh"},{"kind":"add","with":0},{"kind":"conv2d","out":3,"kernel":2}]"#,
        3,
        Loss::Mse,
    ),
    (
        "flatten",
        &[2, 3, 4],
        r#"[{"kind":"conv2d","out":3,"kernel":2},{"kind":"flatten"},{"kind":"dense","out":3}]"#,
        4,
        Loss::Mse,
    ),
    (
        "dropout",
        &[4],
        r#"[{"kind":"dense","out":8},{"kind":"dropout","p":0.4},{"kind":"dense","out":3}]"#,
        7,
        Loss::Mse,
    ),
    (
        "normalize",
        &[4],
        r#"[{"kind":"normalize"},{"kind":"dense","out":5},{"kind":"tanh"},{"kind":"dense","out":2}]"#,
        6,
        Loss::Mse,
    ),
];

/// Networks whose work goes to threads; a sample of their elements is differenced.
const LARGE: &[Small] = &[
    (
        "wide dense",
        &[48],
        r#"[{"kind":"dense","out":96},{"kind":"gelu"},{"kind":"dense","out":64},{"kind":"silu"},{"kind":"dense","out":10}]"#,
        128,
        Loss::CrossEntropy,
    ),
    (
        "wide kan",
        &[12],
        r#"[{"kind":"kan","out":24,"grid":5,"degree":3,"range":[-2,2]},{"kind":"kan","out":8,"grid":5,"degree":3,"range":[-3,3]}]"#,
        96,
        Loss::Mse,
    ),
    (
        "wide conv2d",
        &[1, 40, 28],
        r#"[{"kind":"conv2d","out":8,"kernel":3,"padding":1},{"kind":"relu"},{"kind":"conv2d","out":8,"kernel":3,"padding":1},{"kind":"silu"},{"kind":"conv2d","out":1,"kernel":3,"padding":1}]"#,
        3,
        Loss::Mse,
    ),
];

/// All built-in networks.
pub fn built_in() -> Vec<BuiltIn> {
    let small = SMALL.iter().map(|&small| {
        let make = move || case(small);
        BuiltIn::new(
            format!("network: {}", small.0),
            make,
            small.3,
            Some(own_mutants),
        )
    });
    let large = LARGE
        .iter()
        .map(|&large| BuiltIn::large(format!("network: {}", large.0), move || case(large)));
    small.chain(large).collect()
}

fn case((name, input, layers, samples, loss): Small) -> Result<(Case<Network>, Loss)> {
    let layers: Vec<LayerSpec> = serde_json::from_str(layers)
        .map_err(|e| Error::invalid(format!("built-in network {name}"), e, "layers"))?;
    let mut model = Network::new(&NetworkSpec::new(input, layers))?;
    for mut buffer in model.buffers() {
        uneven(&mut buffer);
        model.set_buffer(&buffer)?;
    }
    let mut params: Vec<f64> = crate::scalar::cast(&model.init(11));
    // Norms start at 1 and 0, KAN splines almost at 0: moved away from there, less where there are
    // many to add up.
    let far = if model.layout().len() < 1000 {
        0.25
    } else {
        0.03
    };
    for (p, s) in params.iter_mut().zip(structured(model.layout().len(), 0.3)) {
        *p = f64::from((*p + far * s) as f32);
    }
    let outputs = samples * model.output_len();
    let target = match loss {
        Loss::CrossEntropy => {
            let classes = model.output_len() as u32;
            Target::classes(
                (0..samples as u32)
                    .map(|i| (i * 2 + i / 3) % classes)
                    .collect(),
            )
        }
        Loss::BceLogits => Target::values(
            (0..outputs)
                .map(|i| f64::from(u8::from(i % 3 == 0)))
                .collect(),
        ),
        _ => Target::values(structured(outputs, 1.7)),
    };
    Ok((
        Case {
            input: structured(samples * model.input_len(), 0.0),
            model,
            params,
            target,
        },
        loss,
    ))
}

/// Buffers away from their defaults, where the family's own numbers would hide a fault.
fn uneven(buffer: &mut Buffer) {
    let n = buffer.values.len();
    for (i, v) in buffer.values.iter_mut().enumerate() {
        let wave = (1.3 * i as f64).sin();
        if buffer.name.ends_with("knots") {
            *v += 0.06 * wave;
        } else if buffer.name.ends_with("mean") {
            *v = 0.2 * wave;
        } else if buffer.name.ends_with("std") || buffer.name.ends_with("var") {
            *v = 1.0 + 0.3 * wave + 0.01 * n as f64;
        }
        *v = f64::from(*v as f32);
    }
}

/// The layer that the model's name speaks of.
fn layer_of(subject: &Subject<'_, Network>) -> (usize, &'static str) {
    let layers = &subject.model.spec().layers;
    let kind = subject.name.trim_start_matches("network: ");
    let found = layers
        .iter()
        .position(|l| kind.split(' ').next() == Some(l.kind()));
    let index = found.unwrap_or(0);
    (index, layers[index].kind())
}

/// The faults that a layer can have: any layer's, and those of its kind.
fn faults(place: &Place) -> Vec<Mutation> {
    let layer = &*place.layer;
    let mut all = general_faults(layer, place.with.is_some());
    all.extend(own_faults(layer));
    all
}

fn own_faults(layer: &dyn AnyLayer) -> Vec<Mutation> {
    if let Some(own) = layer.downcast() {
        return activation::faults::faults(own);
    }
    if let Some(kan) = layer.downcast() {
        return kan::faults::faults(kan);
    }
    if layer.downcast::<Norm>().is_some() {
        return norm::faults::faults();
    }
    if let Some(pool) = layer.downcast() {
        return pool::faults::faults(pool);
    }
    if let Some(up) = layer.downcast() {
        return upsample::faults::faults(up);
    }
    if let Some(dropout) = layer.downcast::<Dropout>() {
        let keep = Transform::Scale(1.0 - dropout.p);
        return vec![FaultKind::NoDerivative.into(), FaultKind::DX(keep).into()];
    }
    if layer.downcast::<Normalize>().is_some() {
        return vec![FaultKind::NoDerivative.into()];
    }
    Vec::new()
}

/// Every fault of the layer, in the reference and in the f32 kernels alone.
fn own_mutants(subject: &Subject<'_, Network>, honest: &Honest) -> Result<Report> {
    let (layer, kind) = layer_of(subject);
    let mut report = Report::default();
    for mutation in faults(&subject.model.places[layer]) {
        for only_f32 in [false, true] {
            let mut model = Network::new(subject.model.spec())?;
            for buffer in subject.model.buffers() {
                model.set_buffer(&buffer)?;
            }
            let shapes = [before(layer), Value::Of(layer)];
            let shapes = shapes.map(|value| model.shape_of(value).to_vec());
            let model = model.wrapping(layer, |inner| mutation.wrap(inner, shapes, only_f32));
            if let Some(caught) = judge(&on(subject, &model), honest) {
                let words = format!(
                    "{kind} {}{}",
                    mutation.words,
                    if only_f32 { ", in f32" } else { "" }
                );
                report.rows.push(mutant_row(&subject.name, &words, &caught));
            }
        }
    }
    Ok(report)
}
