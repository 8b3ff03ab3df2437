//! Trains a small convolutional network with its gradients from the GPU and the optimizer on the
//! CPU: any optimizer, and the gradient can be looked at.
//!
//! cargo run --release --example 05_train_on_gpu_hybrid

use retrograd::gpu::{Choice, Gpu, GpuNetwork, GpuTrainOptions};
use retrograd::network::{Network, NetworkSpec};
use retrograd::optim::{Optimizer, OptimizerSpec, global_norm};
use retrograd::{Loss, Model, Target};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let spec: NetworkSpec = serde_json::from_str(
        r#"{"input": [1, 8, 8], "layers": [
            {"kind": "conv2d", "out": 4, "kernel": 3, "padding": 1},
            {"kind": "relu"},
            {"kind": "max_pool2d", "kernel": 2},
            {"kind": "flatten"},
            {"kind": "dense", "out": 2}]}"#,
    )?;
    let network = Network::new(&spec)?;
    let gpu = Gpu::open(&Choice::Auto)?;
    println!("on {}", gpu.description().name);
    let mut on_gpu = GpuNetwork::new(&gpu, &network, &network.init(0))?;
    let mut optimizer = Optimizer::new(OptimizerSpec::adamw(0.01), network.layout().len());

    // Horizontal stripes are class 0, vertical ones class 1, with any phase.
    let pixel = |n: usize, p: usize| {
        let along = if n.is_multiple_of(2) { p / 8 } else { p % 8 };
        (1.6 * along as f32 + n as f32).sin()
    };
    let x: Vec<f32> = (0..32 * 64).map(|i| pixel(i / 64, i % 64)).collect();
    let target = Target::classes((0..32).map(|n| n % 2).collect());

    let options = GpuTrainOptions::default();
    for step in 0..40 {
        let loss = on_gpu.train_step_with_options(
            &x,
            &target,
            Loss::CrossEntropy,
            &mut optimizer,
            &options,
        )?;
        if step % 10 == 0 {
            let norm = global_norm(&on_gpu.gradients()?, network.layout());
            println!("step {step:2}  loss {loss:.5}  gradient {norm:.4}");
        }
    }
    let logits = on_gpu.forward_batch(&x)?;
    let right = logits.chunks(2).enumerate();
    let right = right.filter(|(n, l)| (l[1] > l[0]) == (n % 2 == 1)).count();
    println!("{right} of 32 right, {:?}", gpu.counters());
    Ok(())
}
