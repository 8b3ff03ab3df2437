//! Trains a KAN wholly on the GPU: every step is one submit, nothing waits, losses come back when
//! they are ready.
//!
//! cargo run --release --example 05_train_on_gpu_native

use retrograd::gpu::{Choice, Gpu, GpuAdam, GpuNetwork, GpuTrainOptions};
use retrograd::network::{Network, NetworkSpec};
use retrograd::optim::OptimizerSpec;
use retrograd::train::Clip;
use retrograd::{Loss, Model, Target};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let spec: NetworkSpec = serde_json::from_str(
        r#"{"input": [2], "layers": [
            {"kind": "kan", "out": 8, "grid": 5, "degree": 3},
            {"kind": "kan", "out": 1, "grid": 5, "degree": 3}]}"#,
    )?;
    let network = Network::new(&spec)?;
    let gpu = Gpu::open(&Choice::Auto)?;
    println!("on {}", gpu.description().name);
    let mut on_gpu = GpuNetwork::new(&gpu, &network, &network.init(0))?;
    let mut optimizer = GpuAdam::new(&on_gpu, OptimizerSpec::adam(0.02))?;

    // y = sin(3a)·b on a grid of 16 × 16 points.
    let point = |i: usize| ((i % 16) as f32 / 7.5 - 1.0, (i / 16) as f32 / 7.5 - 1.0);
    let x: Vec<f32> = (0..256).flat_map(|i| [point(i).0, point(i).1]).collect();
    let y = (0..256)
        .map(|i| (3.0 * point(i).0).sin() * point(i).1)
        .collect();
    let target = Target::values(y);

    let options = GpuTrainOptions {
        clip: Clip {
            norm: Some(1.0),
            element: None,
        },
        ..Default::default()
    };
    let mut losses = Vec::new();
    for _ in 0..300 {
        on_gpu.train_step_gpu_native_with_options(
            &x,
            &target,
            Loss::Mse,
            &mut optimizer,
            &options,
        )?;
        losses.extend(on_gpu.losses()?);
    }
    losses.extend(on_gpu.finish()?);
    for arrived in losses.iter().step_by(50) {
        println!("step {:3}  loss {:.5}", arrived.step, arrived.loss);
    }
    let last = losses.last().ok_or("no loss came back")?;
    println!("last loss {:.7}", last.loss);
    let weights = on_gpu.sync_weights_to_cpu()?;
    println!("{} weights, {:?}", weights.len(), gpu.counters());
    Ok(())
}
