//! The f32 kernels, layer by layer: forward, and backward to parameters and input.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use retrograd::layer::gemm::{Onto, Stride, gemm};
use retrograd::layer::norm::GroupNormSpec;
use retrograd::layer::pool::MaxPool2dSpec;
use retrograd::network::{LayerSpec, Network, NetworkSpec, NetworkTape};
use retrograd::rng::Key;
use retrograd::{Grads, Model, Pass};

fn values(len: usize) -> Vec<f32> {
    let mut stream = Key::new(0).purpose("bench").stream();
    (0..len).map(|_| stream.range(-1.0, 1.0) as f32).collect()
}

fn products(c: &mut Criterion) {
    let mut group = c.benchmark_group("gemm");
    for n in [64, 256] {
        let (a, b, mut y) = (values(n * n), values(n * n), vec![0.0; n * n]);
        group.throughput(Throughput::Elements((n * n * n) as u64));
        group.bench_function(format!("{n}"), |bench| {
            let (a, b) = ((&a[..], Stride::rows(n)), (&b[..], Stride::rows(n)));
            bench.iter(|| gemm([n, n, n], a, b, &mut y, Onto::Zero));
        });
    }
}

fn layers(c: &mut Criterion) {
    let image = [16, 64, 64];
    let cases: [(&str, &[usize], LayerSpec, usize); 6] = [
        ("dense 256-256", &[256], LayerSpec::dense(256), 256),
        ("gelu 65536", &[256], LayerSpec::gelu(), 256),
        (
            "kan 64-64",
            &[64],
            LayerSpec::kan(64, 5, 3, [-1.0, 1.0]),
            256,
        ),
        ("conv 16-16", &image, LayerSpec::conv2d(16, 3, 1), 2),
        (
            "max pool",
            &image,
            LayerSpec::MaxPool2d(MaxPool2dSpec {
                kernel: 2,
                stride: None,
            }),
            2,
        ),
        (
            "group norm",
            &image,
            LayerSpec::GroupNorm(GroupNormSpec { groups: 4 }),
            2,
        ),
    ];
    for (name, shape, layer, samples) in cases {
        let network = Network::new(&NetworkSpec::new(shape, vec![layer])).expect("a valid layer");
        let params = network.init(0);
        let input = values(samples * network.input_len());
        let d_output = values(samples * network.output_len());
        let pass = Pass::training(Key::new(0));
        let mut tape = NetworkTape::default();
        let mut d_params = vec![0.0; params.len()];
        let mut d_input = vec![0.0; input.len()];
        let mut group = c.benchmark_group(name);
        group.bench_function("forward", |bench| {
            bench.iter(|| network.compute_forward(&params, &input, &pass, &mut tape));
        });
        group.bench_function("backward", |bench| {
            bench.iter(|| {
                let grads = Grads::both(&mut d_params, &mut d_input);
                network.compute_backward(&params, &input, &pass, &mut tape, &d_output, grads);
            });
        });
    }
}

criterion_group!(benches, products, layers);
criterion_main!(benches);
