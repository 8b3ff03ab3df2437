//! The workloads in burn, on its CPU backend "flex".

use burn::module::{Module, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, PaddingConfig2d};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::activation::{gelu, relu, silu};
use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::{Between, DEGREE, Kind, Problem, knots};

#[derive(Module, Debug)]
struct Kan {
    /// (in, out)
    base: Param<Tensor<2>>,
    /// (in · basis, out)
    spline: Param<Tensor<2>>,
}

#[derive(Module, Debug)]
struct Net {
    dense: Vec<Linear>,
    conv: Vec<Conv2d>,
    kan: Vec<Kan>,
}

/// The B-splines of every input: (rows, in · basis), by Cox and de Boor's recursion as
/// efficient-kan does it.
fn splines(x: Tensor<2>, t: &Tensor<3>) -> Tensor<2> {
    let [rows, inputs] = x.dims();
    let n = t.dims()[2];
    let x: Tensor<3> = x.unsqueeze_dim(2);
    let part = |from: usize, len: usize| t.clone().narrow(2, from, len);
    let mut b = x
        .clone()
        .greater_equal(part(0, n - 1))
        .bool_and(x.clone().lower(part(1, n - 1)))
        .float();
    for d in 1..=DEGREE {
        let m = n - 1 - d;
        let (low, high) = (part(0, m), part(d + 1, m));
        let left = (x.clone() - low.clone()) / (part(d, m) - low);
        let right = (high.clone() - x.clone()) / (high - part(1, m));
        b = left * b.clone().narrow(2, 0, m) + right * b.narrow(2, 1, m);
    }
    b.reshape([rows, inputs * (n - 1 - DEGREE)])
}

enum Batch {
    Rows(Tensor<2>),
    Images(Tensor<4>),
}

enum Goal {
    Classes(Tensor<1, Int>),
    Rows(Tensor<2>),
    Images(Tensor<4>),
}

fn rows(net: &Net, x: &Tensor<2>, t: &Tensor<3>) -> Tensor<2> {
    let mut x = x.clone();
    for kan in &net.kan {
        let base = silu(x.clone()).matmul(kan.base.val());
        x = base + splines(x, t).matmul(kan.spline.val());
    }
    for (i, dense) in net.dense.iter().enumerate() {
        x = dense.forward(x);
        if i + 1 < net.dense.len() && Between::after(Kind::Dense) == Between::Gelu {
            x = gelu(x);
        }
    }
    x
}

fn images(net: &Net, x: &Tensor<4>) -> Tensor<4> {
    let mut x = x.clone();
    for (i, conv) in net.conv.iter().enumerate() {
        x = conv.forward(x);
        if i + 1 < net.conv.len() && Between::after(Kind::Conv) == Between::Relu {
            x = relu(x);
        }
    }
    x
}

pub fn step(problem: &Problem) -> Box<dyn FnMut() -> f32> {
    let device = Device::flex().autodiff();
    let data = |name: &str, shape: Vec<usize>| {
        TensorData::new(problem.get(name).values.clone(), shape)
    };
    // burn keeps (in, out) where PyTorch keeps (out, in).
    let transposed = |name: String| -> TensorData {
        let tensor = problem.get(&name);
        let (out, inputs) = (tensor.shape[0], tensor.values.len() / tensor.shape[0]);
        let mut values = Vec::with_capacity(tensor.values.len());
        for i in 0..inputs {
            values.extend((0..out).map(|o| tensor.values[o * inputs + i]));
        }
        TensorData::new(values, vec![inputs, out])
    };
    let mut net = Net {
        dense: Vec::new(),
        conv: Vec::new(),
        kan: Vec::new(),
    };
    for (n, kind) in problem.layers() {
        let of = |name: &str| format!("params/{n}.{name}");
        let bias = || {
            let shape = problem.get(&of("bias")).shape.clone();
            Some(Param::from_data(data(&of("bias"), shape), &device))
        };
        match kind {
            Kind::Dense => net.dense.push(Linear {
                weight: Param::from_data(transposed(of("weight")), &device),
                bias: bias(),
            }),
            Kind::Conv => {
                let shape = problem.get(&of("weight")).shape.clone();
                let config = Conv2dConfig::new([shape[1], shape[0]], [3, 3])
                    .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1));
                let mut conv = config.init(&device);
                conv.weight = Param::from_data(data(&of("weight"), shape), &device);
                conv.bias = bias();
                net.conv.push(conv);
            }
            Kind::Kan => net.kan.push(Kan {
                base: Param::from_data(transposed(of("base_weight")), &device),
                spline: Param::from_data(transposed(of("spline_weight")), &device),
            }),
        }
    }
    let shape = problem.batch_shape();
    let x = data("batch/values", shape.clone());
    let batch = match shape.len() {
        2 => Batch::Rows(Tensor::from_data(x, &device)),
        _ => Batch::Images(Tensor::from_data(x, &device)),
    };
    let goal = match (problem.tensors.get("target/classes"), &batch) {
        (Some(classes), _) => {
            let classes: Vec<i64> = classes.values.iter().map(|&c| c as i64).collect();
            let shape = vec![classes.len()];
            Goal::Classes(Tensor::from_data(TensorData::new(classes, shape), &device))
        }
        (None, Batch::Rows(_)) => {
            let len = problem.get("target/values").values.len();
            let shape = vec![shape[0], len / shape[0]];
            Goal::Rows(Tensor::from_data(data("target/values", shape), &device))
        }
        (None, Batch::Images(_)) => {
            Goal::Images(Tensor::from_data(data("target/values", shape), &device))
        }
    };
    let t = knots();
    let shape = vec![1, 1, t.len()];
    let t: Tensor<3> = Tensor::from_data(TensorData::new(t, shape), &device);
    let cross_entropy = CrossEntropyLossConfig::new().init(&device);
    let mut adam = AdamConfig::new().with_epsilon(1e-8).init();
    let mut net = Some(net);
    Box::new(move || {
        let model = net.take().expect("put back below");
        let loss: Tensor<1> = match (&batch, &goal) {
            (Batch::Rows(x), Goal::Classes(classes)) => {
                cross_entropy.forward(rows(&model, x, &t), classes.clone())
            }
            (Batch::Rows(x), Goal::Rows(target)) => {
                (rows(&model, x, &t) - target.clone()).square().mean()
            }
            (Batch::Images(x), Goal::Images(target)) => {
                (images(&model, x) - target.clone()).square().mean()
            }
            _ => unreachable!("rows with rows, images with images"),
        };
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        net = Some(adam.step(1e-3, model, grads));
        loss.into_scalar::<f32>()
    })
}
