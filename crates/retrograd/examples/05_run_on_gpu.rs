//! Forward and backward by hand on the GPU: an output, and the gradients of parameters and input
//! for a gradient of the output.
//!
//! cargo run --release --example 05_run_on_gpu

use retrograd::gpu::{Choice, Gpu, GpuNetwork};
use retrograd::network::{Network, NetworkSpec};
use retrograd::rng::Key;
use retrograd::{Model, Pass};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let spec: NetworkSpec = serde_json::from_str(
        r#"{"input": [3], "layers": [{"kind": "kan", "out": 2, "grid": 5, "degree": 3}]}"#,
    )?;
    let network = Network::new(&spec)?;
    for adapter in Gpu::adapters() {
        println!(
            "{}: {} ({}, {})",
            adapter.index, adapter.name, adapter.backend, adapter.kind
        );
    }
    let gpu = Gpu::open(&Choice::Auto)?;
    let mut on_gpu = GpuNetwork::new(&gpu, &network, &network.init(0))?;
    let x = [0.1, -0.4, 0.7, 0.9, 0.2, -0.8];
    println!("y        {:?}", on_gpu.forward_batch(&x)?);
    on_gpu.forward_batch_training(&x, &Pass::training(Key::new(0)))?;
    on_gpu.backward_batch(&[1.0, 0.0, 1.0, 0.0])?;
    println!("d input  {:?}", on_gpu.input_gradient()?);
    let grads = on_gpu.gradients()?;
    for tensor in network.layout().tensors() {
        let largest = grads[tensor.range()]
            .iter()
            .fold(0.0_f32, |a, g| a.max(g.abs()));
        println!("d {:16} largest {largest}", tensor.name);
    }
    Ok(())
}
