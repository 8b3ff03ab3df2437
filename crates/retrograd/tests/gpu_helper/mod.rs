//! What the GPU tests share: a device, small networks and batches, and the comparison of a device
//! with the f64 reference within the verifier's predicted bound.
#![allow(dead_code, reason = "each test file uses its part")]

use retrograd::layer::kan::KanSpec;
use std::sync::{Arc, OnceLock};

use retrograd::gpu::{Choice, Gpu, GpuNetwork};
use retrograd::network::{Base, LayerSpec, Network, NetworkSpec, Outside};
use retrograd::rng::Key;
use retrograd::verify::{
    BundleOptimizer, Cpu, Device, Evaluation, Granted, Link, Options, Subject, Trajectory, check_on,
};
use retrograd::{Loss, Model, Result, Target};

/// The device; a test without one fails.
pub fn gpu() -> Arc<Gpu> {
    static GPU: OnceLock<Arc<Gpu>> = OnceLock::new();
    let open = || Gpu::open(&Choice::Auto).expect("an adapter (mesa-vulkan-drivers is enough)");
    Arc::clone(GPU.get_or_init(open))
}

pub fn kan_layer(out: usize, degree: usize) -> LayerSpec {
    LayerSpec::Kan(KanSpec {
        out,
        grid: 5,
        degree,
        range: [-1.0, 1.0],
        base: Base::Silu,
        bias: true,
        outside: Outside::Decay,
        free_knots: false,
    })
}

/// KAN layers of those widths.
pub fn kan(widths: &[usize], degree: usize) -> Network {
    let layers = widths[1..]
        .iter()
        .map(|&out| kan_layer(out, degree))
        .collect();
    Network::new(&NetworkSpec::new(&widths[..1], layers)).unwrap()
}

/// A structured batch: waves of another frequency and phase for every input, inside and a little
/// outside the grid, away from the knots of grid 5 (multiples of 0.2 of the half range).
pub fn batch(network: &Network, samples: usize) -> Vec<f32> {
    let width = network.input_len();
    let value = |n: usize, i: usize| {
        let phase = (1.0 + 0.37 * i as f64) * (n as f64 + 0.5) + 0.61 * i as f64;
        let v = 1.13 * phase.sin();
        // Not nearer than 0.004 to a knot.
        let step = 0.4;
        let nearest = ((v + 1.0) / step).round() * step - 1.0;
        let off = v - nearest;
        if off.abs() < 0.004 {
            (nearest + 0.004_f64.copysign(off)) as f32
        } else {
            v as f32
        }
    };
    (0..samples * width)
        .map(|j| value(j / width, j % width))
        .collect()
}

pub fn target(network: &Network, samples: usize) -> Target<f32> {
    let len = samples * network.output_len();
    Target::values(
        (0..len)
            .map(|j| ((j * 7 % 13) as f32 - 6.0) / 8.0)
            .collect(),
    )
}

/// Forward and backward by parts, on one object that is kept: its tape, plans and buffers have
/// seen other batches.
pub struct ByParts(pub GpuNetwork);

impl Device<Network> for ByParts {
    fn link(&self) -> Link {
        Link::Gpu
    }

    fn granted(&self) -> &'static Granted {
        &Granted::WGSL
    }

    fn evaluate(&mut self, subject: &Subject<'_, Network>) -> Result<Evaluation<f64>> {
        let x: Vec<f32> = subject.input.iter().map(|&v| v as f32).collect();
        let y = self.0.forward_batch_training(&x, &subject.pass)?;
        let mut d_y = vec![0.0; y.len()];
        let target: Target<f32> = subject.target.cast();
        let loss = subject.loss.evaluate(&y, &target, Some(&mut d_y)).unwrap();
        self.0.backward_batch(&d_y)?;
        let wide = |v: Vec<f32>| v.into_iter().map(f64::from).collect();
        Ok(Evaluation {
            output: wide(y),
            loss: f64::from(loss),
            d_params: wide(self.0.gradients()?),
            d_input: wide(self.0.input_gradient()?),
        })
    }

    fn trajectory(
        &mut self,
        subject: &Subject<'_, Network>,
        optimizer: &BundleOptimizer,
        steps: usize,
    ) -> Result<Trajectory<f64>> {
        Device::<Network>::trajectory(&mut Cpu, subject, optimizer, steps)
    }
}

/// The chain with the device's output and gradients, without trajectories.
pub fn gradients_only() -> Options {
    Options {
        optimizers: Vec::new(),
        ..Options::default()
    }
}

/// Output, loss, every gradient: within the predicted bound.
pub fn assert_parity(
    name: &str,
    network: &Network,
    samples: usize,
    device: &mut dyn Device<Network>,
) {
    let params = network.init(3);
    let (x, t) = (batch(network, samples), target(network, samples));
    let subject = Subject::new(name, network, &params, &x, &t, Loss::Mse).unwrap();
    let report = check_on(&subject, device, &gradients_only()).unwrap();
    assert!(report.passed(), "{}{}", report.table(), report.summary());
}

/// A fresh network on the device, by parts.
pub fn parts(network: &Network) -> ByParts {
    ByParts(GpuNetwork::new(&gpu(), network, &network.init(3)).unwrap())
}

pub fn key() -> Key {
    Key::new(0).purpose("verify")
}

/// A network from its layers as a spec has them.
pub fn network_of(input: &[usize], layers: &str) -> Network {
    let spec = format!("{{\"input\": {input:?}, \"layers\": {layers}}}");
    let spec: NetworkSpec = serde_json::from_str(&spec).unwrap();
    Network::new(&spec).unwrap()
}
