//! Convolutional networks that denoise images.

use crate::bench::{BenchDevice, Cut, Growth, Prepared, Workload, inference, training};
use crate::layer::concat::ConcatSpec;
use crate::layer::pool::MaxPool2dSpec;
use crate::layer::upsample::UpsampleSpec;
use crate::network::bench::samples;
use crate::network::{LayerSpec, Network, NetworkSpec};
use crate::optim::OptimizerSpec;
use crate::train::Example;
use crate::{Loss, Target};

/// This file's workloads: MSE and Adam throughout.
pub(crate) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "cnn-128",
        about: "1-16-16-1 convolutions 3×3 with ReLU, 2 images of 128×128",
        build: |device, _| simple(device, 128),
    },
    Workload {
        name: "cnn-1024",
        about: "1-16-16-1 convolutions 3×3 with ReLU, 2 images of 1024×1024",
        build: |device, _| simple(device, 1024),
    },
    Workload {
        name: "cnn-deep12-256",
        about: "1-32-(32×10)-1 convolutions 3×3 with ReLU, 1 image of 256×256",
        build: |device, _| deep_12(device),
    },
    Workload {
        name: "unet-256",
        about: "U-Net 32-64-128, bottleneck 256, 1 image of 256×256",
        build: |device, _| prepare(device, unet(), 256, 1),
    },
    Workload {
        name: "unet-256-forward",
        about: "U-Net 32-64-128, bottleneck 256, 1 image of 256×256, forward",
        build: |device, _| {
            let (network, example) = denoiser(unet(), 256, 1)?;
            inference(device, network, Loss::Mse, example, None)
        },
    },
];

/// Denoisers of images that grow.
pub(crate) const GROWTHS: &[Growth] = &[
    Growth {
        name: "cnn-side",
        about: "1-16-16-1 convolutions 3×3 with ReLU, 2 images of N×N",
        axis: "side N of an image",
        first: 32,
        power: 2,
        build: |side, _| simple(BenchDevice::Cpu, side),
    },
    Growth {
        name: "unet-side",
        about: "U-Net 32-64-128, bottleneck 256, 1 image of N×N",
        axis: "side N of an image",
        first: 16,
        power: 2,
        build: |side, _| prepare(BenchDevice::Cpu, unet(), side, 1),
    },
];

fn simple(device: BenchDevice, size: usize) -> crate::Result<Prepared> {
    let layers = vec![
        LayerSpec::conv2d(16, 3, 1),
        LayerSpec::relu(),
        LayerSpec::conv2d(16, 3, 1),
        LayerSpec::relu(),
        LayerSpec::conv2d(1, 3, 1),
    ];
    prepare(device, layers, size, 2)
}

fn deep_12(device: BenchDevice) -> crate::Result<Prepared> {
    let mut layers = Vec::new();
    for _ in 0..11 {
        layers.extend([LayerSpec::conv2d(32, 3, 1), LayerSpec::relu()]);
    }
    layers.push(LayerSpec::conv2d(1, 3, 1));
    prepare(device, layers, 256, 1)
}

fn unet() -> Vec<LayerSpec> {
    let mut layers = Vec::new();
    let convolve = |layers: &mut Vec<LayerSpec>, out| {
        layers.extend([LayerSpec::conv2d(out, 3, 1), LayerSpec::relu()]);
    };
    let mut skips = Vec::new();
    for out in [32, 64, 128] {
        convolve(&mut layers, out);
        skips.push(layers.len() as i64 - 1);
        layers.push(LayerSpec::MaxPool2d(MaxPool2dSpec {
            kernel: 2,
            stride: None,
        }));
    }
    convolve(&mut layers, 256);
    for out in [128, 64, 32] {
        layers.push(LayerSpec::Upsample(UpsampleSpec { scale: 2 }));
        let with = skips.pop().expect("one skip for every scale");
        layers.push(LayerSpec::Concat(ConcatSpec { with }));
        convolve(&mut layers, out);
    }
    layers.push(LayerSpec::conv2d(1, 3, 1));
    layers
}

/// Layers for images of that size, and a batch of so many.
fn denoiser(
    layers: Vec<LayerSpec>,
    size: usize,
    images: usize,
) -> crate::Result<(Network, Example<Network>)> {
    let network = Network::new(&NetworkSpec::new(&[1, size, size], layers))?;
    let example = Example {
        input: samples(images * size, size),
        target: Target::values(samples(size, images * size)),
    };
    Ok((network, example))
}

fn prepare(
    device: BenchDevice,
    layers: Vec<LayerSpec>,
    size: usize,
    images: usize,
) -> crate::Result<Prepared> {
    let (network, example) = denoiser(layers, size, images)?;
    let flops = images as f64 * network.flops();
    let adam = OptimizerSpec::adam(1e-3);
    let cut = Cut::rows(images);
    training(device, network, Loss::Mse, adam, example, Some(flops), cut)
}
