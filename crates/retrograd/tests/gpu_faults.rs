//! What fails on the GPU fails with an error that says what to do, and leaves weights as they were: memory
//! that runs out at any allocation, a device that is lost, a batch and a graph that are too large.
#![cfg(feature = "gpu")]

mod gpu_helper;

use std::sync::Arc;

use gpu_helper::{batch, kan, network_of, target};
use retrograd::gpu::{
    Choice, Gpu, GpuNetwork, GpuOptimizer, GpuTrainOptions, Precision, auto_batch,
};
use retrograd::graph::{Graph, GraphBatch, GraphNetwork};
use retrograd::network::Network;
use retrograd::optim::{Optimizer, OptimizerSpec};
use retrograd::{Loss, Model, Result, Target};

/// A network put on a device, a native step, a hybrid step, and one of another size; what was synchronised
/// before something failed is left in `kept`.
fn train(gpu: &Arc<Gpu>, network: &Network, kept: &mut Vec<f32>) -> Result<Vec<f32>> {
    let mut on_gpu = GpuNetwork::new(gpu, network, &network.init(1))?;
    *kept = on_gpu.cpu_weights().to_vec();
    let mut native = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(0.01))?;
    let mut cpu = Optimizer::new(OptimizerSpec::sgd(0.1), network.layout().len());
    // What fails is tried once more on the same object: it has to be as if it had not been tried.
    for samples in [4, 6] {
        let (x, t) = (batch(network, samples), target(network, samples));
        let options = GpuTrainOptions::default();
        let mut step =
            || on_gpu.train_step_gpu_native_with_options(&x, &t, Loss::Mse, &mut native, &options);
        if let Err(error) = step() {
            says_what_to_do(&error.to_string());
            step()?;
        }
        *kept = on_gpu.sync_weights_to_cpu()?.to_vec();
        let hybrid = on_gpu.train_step(&x, &t, Loss::Mse, &mut cpu);
        if let Err(error) = hybrid {
            says_what_to_do(&error.to_string());
            assert_eq!(on_gpu.cpu_weights(), &kept[..], "{error}");
            on_gpu.train_step(&x, &t, Loss::Mse, &mut cpu)?;
        }
        *kept = on_gpu.cpu_weights().to_vec();
    }
    on_gpu.finish()?;
    Ok(on_gpu.sync_weights_to_cpu()?.to_vec())
}

fn says_what_to_do(error: &str) {
    assert!(error.contains("no memory for"), "{error}");
    let advice = ["smaller batch", "--device cpu"];
    assert!(advice.iter().any(|a| error.contains(a)), "{error}");
    assert!(error.contains("the weights are as they were"), "{error}");
}

/// Every allocation of a run fails once: the error says what to do, and what is tried again gives the
/// weights of a run in which nothing failed.
#[test]
fn memory_that_runs_out_at_any_allocation_is_an_error_and_changes_nothing() {
    let gpu = Gpu::open(&Choice::Auto).unwrap();
    let network = network_of(
        &[3],
        r#"[{"kind":"kan","out":4,"grid":5,"degree":3},{"kind":"dense","out":2}]"#,
    );
    let mut kept = Vec::new();
    let undisturbed = train(&gpu, &network, &mut kept).unwrap();
    let mut failed = 0;
    for after in 0.. {
        gpu.simulate_failing_allocation(after);
        let result = train(&gpu, &network, &mut kept);
        if !gpu.allocation_failed() {
            break;
        }
        failed += 1;
        match result {
            // It failed inside a step, which was made again.
            Ok(weights) => assert_eq!(weights, undisturbed, "allocation {after}"),
            // It failed where something is put on the device or brought back.
            Err(error) => says_what_to_do(&error.to_string()),
        }
    }
    gpu.simulate_failing_allocation(u64::MAX);
    assert!(failed > 50, "{failed}");
    assert_eq!(train(&gpu, &network, &mut kept).unwrap(), undisturbed);
}

#[test]
fn a_batch_beyond_a_binding_says_how_much_smaller_one_would_fit() {
    let gpu = Gpu::open_limited(&Choice::Auto, 256 * 1024).unwrap();
    let network = kan(&[3, 64, 2], 3);
    let mut on_gpu = GpuNetwork::new(&gpu, &network, &network.init(1)).unwrap();
    let mut adam = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(0.01)).unwrap();
    let mut step = |on_gpu: &mut GpuNetwork, samples: usize| {
        let (x, t) = (batch(&network, samples), target(&network, samples));
        on_gpu.train_step_gpu_native(&x, &t, Loss::Mse, &mut adam)
    };
    step(&mut on_gpu, 16).unwrap();
    let before = on_gpu.sync_weights_to_cpu().unwrap().to_vec();
    let error = step(&mut on_gpu, 4096).unwrap_err().to_string();
    assert!(
        error.contains("smaller batch") && error.contains("times smaller"),
        "{error}"
    );
    assert_eq!(on_gpu.sync_weights_to_cpu().unwrap(), &before[..]);
    step(&mut on_gpu, 16).unwrap();
    assert!(on_gpu.finish().unwrap().iter().all(|l| l.updated));
}

#[test]
fn a_graph_beyond_a_binding_is_refused_with_what_would_fit() {
    let gpu = Gpu::open_limited(&Choice::Auto, 32 * 1024).unwrap();
    let spec = r#"{"features":4,"layers":[{"kind":"gcn","out":3}]}"#;
    let network = GraphNetwork::new(&serde_json::from_str(spec).unwrap()).unwrap();
    let nodes = 3000;
    let sources: Vec<u32> = (0..nodes).collect();
    let targets: Vec<u32> = (0..nodes).map(|n| (n + 1) % nodes).collect();
    let graph = Arc::new(Graph::new(nodes as usize, &sources, &targets).unwrap());
    let given = GraphBatch::dense(graph, 4, vec![0.5; 4 * nodes as usize]).unwrap();
    let params = network.init(1);
    let mut on_gpu = GpuNetwork::new(&gpu, &network, &params).unwrap();
    let goal = Target::values(vec![0.0; 3 * nodes as usize]);
    let mut adam = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(0.01)).unwrap();
    let error = on_gpu
        .train_step_gpu_native(&given, &goal, Loss::Mse, &mut adam)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("smaller graphs") && error.contains("--device cpu"),
        "{error}"
    );
    assert_eq!(on_gpu.sync_weights_to_cpu().unwrap(), &params[..]);
}

/// A device that is lost in the middle of a hybrid step's life: an error, and the CPU's weights are those
/// of the last whole step.
#[test]
fn a_device_lost_between_hybrid_steps_leaves_the_weights_of_the_last_one() {
    let gpu = Gpu::open(&Choice::Auto).unwrap();
    let network = kan(&[3, 5, 2], 3);
    let mut on_gpu = GpuNetwork::new(&gpu, &network, &network.init(1)).unwrap();
    let mut adam = Optimizer::new(OptimizerSpec::adam(0.01), network.layout().len());
    let (x, t) = (batch(&network, 4), target(&network, 4));
    on_gpu.train_step(&x, &t, Loss::Mse, &mut adam).unwrap();
    let good = on_gpu.cpu_weights().to_vec();
    assert_ne!(good, network.init(1));
    gpu.destroy();
    let error = on_gpu.train_step(&x, &t, Loss::Mse, &mut adam).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("lost") && error.contains("checkpoint"),
        "{error}"
    );
    assert_eq!(on_gpu.cpu_weights(), &good[..]);
}

/// The size that was computed is run before a run depends on it, and halved until it does.
#[test]
fn an_automatic_batch_that_does_not_run_is_halved() {
    let gpu = Gpu::open(&Choice::Auto).unwrap();
    let network = kan(&[3, 64, 2], 3);
    let samples = 16 * 1024;
    let chosen = auto_batch(&gpu, &network, Precision::F32, samples).unwrap();
    assert_eq!(chosen.samples, 1024);
    let ran = chosen
        .clone()
        .tried(&gpu, &network, Precision::F32)
        .unwrap();
    assert_eq!(ran, chosen);
    // The widest buffer: 64 inputs of the second layer, 8 splines and a base each, a row.
    gpu.simulate_short_memory(4 * 64 * 9 * 300);
    let ran = chosen.tried(&gpu, &network, Precision::F32).unwrap();
    assert_eq!(ran.samples, 256, "{}", ran.reason);
    assert!(ran.reason.contains("no memory for"), "{}", ran.reason);
    gpu.simulate_short_memory(1000);
    let error = ran.tried(&gpu, &network, Precision::F32).unwrap_err();
    assert!(error.to_string().contains("no memory"), "{error}");
}
