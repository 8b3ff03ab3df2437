//! Small networks, one or more for every layer kind, and the faults of their layers.

use super::{BuiltIn, layer_mutants, layer_of, structured};
use crate::layer::small_models;
use crate::layer::spec::Small;
use crate::math;
use crate::network::{LayerSpec, Network, NetworkSpec};
use crate::plan::{Value, before};
use crate::verify::bundle::Case;
use crate::verify::mutants::Honest;
use crate::verify::report::Report;
use crate::verify::sizes::SizedNetwork;
use crate::verify::subject::Subject;
use crate::{Buffer, Error, Loss, Model, Result, Target};

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
    // Every kind's own, from the folder of the kind: a model names its layers, the first of which
    // of a kind stands for it.
    let small = small_models().into_iter().map(|small| {
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

/// A network for the verifier, with its numbers.
pub(crate) fn case((name, input, layers, samples, loss): Small) -> Result<(Case<Network>, Loss)> {
    let sized = SizedNetwork {
        input: input.to_vec(),
        layers: layers.to_string(),
        samples,
        loss,
    };
    case_of(name, &sized)
}

/// The same for a network of drawn sizes.
pub(crate) fn case_of(name: &str, sized: &SizedNetwork) -> Result<(Case<Network>, Loss)> {
    let (samples, loss) = (sized.samples, sized.loss);
    let layers: Vec<LayerSpec> = serde_json::from_str(&sized.layers)
        .map_err(|e| Error::invalid(format!("built-in network {name}"), e, "layers"))?;
    let mut model = Network::new(&NetworkSpec::new(&sized.input, layers))?;
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
        let wave = math::sin(1.3 * i as f64);
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

/// Every fault of the layer, in the reference and in the f32 kernels alone.
fn own_mutants(subject: &Subject<'_, Network>, honest: &Honest) -> Result<Report> {
    let right = subject.model;
    let layer = layer_of(&subject.name, &right.spec().layers);
    let about = (&right.places[layer], &right.spec().layers[layer]);
    layer_mutants(subject, honest, about, |mutation, only_f32| {
        let mut model = Network::new(right.spec())?;
        for buffer in right.buffers() {
            model.set_buffer(&buffer)?;
        }
        let shapes = [before(layer), Value::Of(layer)];
        let shapes = shapes.map(|value| model.shape_of(value).to_vec());
        Ok(model.wrapping(layer, |inner| mutation.wrap(inner, shapes, only_f32)))
    })
}
