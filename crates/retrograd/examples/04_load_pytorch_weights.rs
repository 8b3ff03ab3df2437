//! Loads the weights of a PyTorch network and runs it.
//!
//! In Python, `safetensors.torch.save_file(net.state_dict(), "net.safetensors")` of a
//! `Sequential(Linear(2, 3), GELU(), Linear(3, 1))`; here
//!
//! cargo run --release --example 04_load_pytorch_weights -- net.safetensors
//!
//! Without a file the example writes one of its own, as PyTorch would.

use std::path::{Path, PathBuf};

use retrograd::network::{LayerSpec, Network, NetworkSpec};
use retrograd::train::{NamedTensor, TensorFile, Values, load_weights};
use retrograd::{Model, Pass};

/// The `state_dict` of a network whose weights are easy to follow by hand.
fn write_state_dict(path: &Path) -> retrograd::Result<()> {
    let tensor = |name: &str, shape: &[usize], values: &[f32]| NamedTensor {
        name: name.into(),
        shape: shape.to_vec(),
        values: Values::F32(values.to_vec()),
    };
    let tensors = vec![
        tensor("0.weight", &[3, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]), // [out, in]
        tensor("0.bias", &[3], &[0.0, 0.0, -0.5]),
        tensor("2.weight", &[1, 3], &[1.0, -1.0, 2.0]),
        tensor("2.bias", &[1], &[0.25]),
    ];
    TensorFile {
        tensors,
        ..Default::default()
    }
    .write(path)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = match std::env::args().nth(1) {
        Some(path) => PathBuf::from(path),
        None => folder.path().join("net.safetensors"),
    };
    if std::env::args().len() == 1 {
        write_state_dict(&path)?;
    }
    let layers = vec![LayerSpec::dense(3), LayerSpec::gelu(), LayerSpec::dense(1)];
    let mut network = Network::new(&NetworkSpec::new(&[2], layers))?;

    // Names, shapes and order are PyTorch's; what doesn't fit is an error that says what.
    let (params, _) = load_weights(&path, &mut network)?;
    let mut tape = Default::default();
    let x = vec![0.5, -1.0, 2.0, 0.0];
    network.forward(&params, &x, &Pass::inference(), &mut tape)?;
    println!("f(0.5, −1), f(2, 0) = {:?}", network.output(&tape));
    Ok(())
}
