//! A workload as a file, so that other frameworks can do the same work from the same numbers and
//! be compared with what came out here.
//!
//! | tensor | what |
//! |---|---|
//! | `params/NAME` | initial weights, PyTorch's names, shapes and order |
//! | `buffers/NAME` | what belongs to the model and isn't trained: wires of logic gates |
//! | `batch/values` | the batch's numbers, flat |
//! | `batch/…` | its structure, where it has one |
//! | `target/values`, `target/classes`, `target/weights` | those that there are |
//! | `loss/inference` | the loss of the initial weights, without dropout |
//! | `loss/training` | the losses before each of three training steps on this batch |

use crate::optim::OptimizerSpec;
use crate::rng::Key;
use crate::train::{Clip, Example, NamedTensor, Stepper, TensorFile, Values};
use crate::{Batch, Error, Loss, Model, Pass};

/// Makes the file's content, when asked.
pub type MakeProblem = Box<dyn FnOnce() -> crate::Result<TensorFile> + Send>;

/// Steps whose losses are written.
const STEPS: u64 = 3;

/// A tensor of 32-bit numbers.
pub fn tensor(name: impl Into<String>, shape: &[usize], values: Vec<f32>) -> NamedTensor {
    NamedTensor {
        name: name.into(),
        shape: shape.to_vec(),
        values: Values::F32(values),
    }
}

/// The file of a model, its weights of seed 0 and a batch.
pub fn problem<M: Model>(
    model: &M,
    loss: Loss,
    optimizer: OptimizerSpec,
    clip: &Clip,
    example: &Example<M>,
) -> crate::Result<TensorFile> {
    let params = model.init(0);
    let mut file = TensorFile::default();
    let metadata = &mut file.metadata;
    metadata.insert("format".into(), "retrograd-workload-1".into());
    metadata.insert("loss".into(), loss.name().into());
    metadata.insert(
        "optimizer".into(),
        serde_json::to_string(&optimizer).expect("plain numbers"),
    );
    for t in model.layout().tensors() {
        let values = t.to_torch(&params[t.range()]);
        let name = format!("params/{}", t.name);
        file.tensors.push(tensor(name, &t.shape, values));
    }
    for b in model.buffers() {
        let values = b.values.iter().map(|&v| v as f32).collect();
        let name = format!("buffers/{}", b.name);
        file.tensors.push(tensor(name, &b.shape, values));
    }
    let mut put = |name: &str, values: Vec<f32>| {
        if !values.is_empty() {
            file.tensors.push(tensor(name, &[values.len()], values));
        }
    };
    put("batch/values", example.input.values().to_vec());
    put("target/values", example.target.values.clone());
    let classes = example.target.classes.iter().map(|&c| c as f32);
    put("target/classes", classes.collect());
    put(
        "target/weights",
        example.target.weights.clone().unwrap_or_default(),
    );

    let mut tape = Default::default();
    model.compute_forward(&params, &example.input, &Pass::inference(), &mut tape);
    let value = loss.compute(model.output(&tape), &example.target, None);
    put("loss/inference", vec![value]);
    let mut stepper = Stepper::new(model, params, optimizer);
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let pass = Pass::training(Key::new(0).purpose("step").step(step));
        let value = stepper.gradient(model, loss, example, &pass, 1.0, false)?;
        losses.push(value as f32);
        stepper
            .update(model, clip, optimizer.lr())
            .map_err(|bad| Error::refused(bad.tensor, format!("is {}", bad.value)))?;
    }
    put("loss/training", losses);
    Ok(file)
}
