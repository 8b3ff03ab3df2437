//! The workloads in candle.

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, loss};

use crate::{Between, DEGREE, Kind, Problem, knots};

enum Layer {
    Dense(Var, Var),
    Conv(Var, Var),
    /// Base weights (out, in) and spline weights (out, in · basis).
    Kan(Var, Var),
}

/// The B-splines of every input: (rows, in · basis), by Cox and de Boor's recursion as
/// efficient-kan does it.
fn splines(x: &Tensor, t: &Tensor) -> Result<Tensor> {
    let n = t.dim(0)?;
    let x = x.unsqueeze(2)?;
    let part = |from: usize, len: usize| t.narrow(0, from, len)?.reshape((1, 1, len));
    let inside = x.broadcast_ge(&part(0, n - 1)?)?.to_dtype(DType::F32)?
        * x.broadcast_lt(&part(1, n - 1)?)?.to_dtype(DType::F32)?;
    let mut b = inside?;
    for d in 1..=DEGREE {
        let m = n - 1 - d;
        let (low, high) = (part(0, m)?, part(d + 1, m)?);
        let left = x
            .broadcast_sub(&low)?
            .broadcast_div(&(part(d, m)? - &low)?)?;
        let right = high
            .broadcast_sub(&x)?
            .broadcast_div(&(&high - part(1, m)?)?)?;
        b = ((left * b.narrow(2, 0, m)?)? + (right * b.narrow(2, 1, m)?)?)?;
    }
    b.flatten_from(1)
}

fn forward(layers: &[Layer], x: &Tensor, t: &Tensor) -> Result<Tensor> {
    let mut x = x.clone();
    for (i, layer) in layers.iter().enumerate() {
        let kind = match layer {
            Layer::Dense(w, b) => {
                x = x.matmul(&w.t()?)?.broadcast_add(b)?;
                Kind::Dense
            }
            Layer::Conv(w, b) => {
                let b = b.reshape((1, b.elem_count(), 1, 1))?;
                x = x.conv2d(w, 1, 1, 1, 1)?.broadcast_add(&b)?;
                Kind::Conv
            }
            Layer::Kan(base, spline) => {
                let base = x.silu()?.matmul(&base.t()?)?;
                x = (base + splines(&x, t)?.matmul(&spline.t()?)?)?;
                Kind::Kan
            }
        };
        if i + 1 < layers.len() {
            x = match Between::after(kind) {
                Between::Nothing => x,
                Between::Relu => x.relu()?,
                Between::Gelu => x.gelu_erf()?,
            };
        }
    }
    Ok(x)
}

pub fn step(problem: &Problem) -> Box<dyn FnMut() -> f32> {
    build(problem).expect("candle")
}

fn build(problem: &Problem) -> Result<Box<dyn FnMut() -> f32>> {
    let device = Device::Cpu;
    let tensor = |name: &str, shape: &[usize]| {
        Tensor::from_vec(problem.get(name).values.clone(), shape, &device)
    };
    let var = |name: String, flat: bool| -> Result<Var> {
        let shape = problem.get(&name).shape.clone();
        let shape = if flat {
            vec![shape[0], shape[1..].iter().product()]
        } else {
            shape
        };
        Var::from_tensor(&tensor(&name, &shape)?)
    };
    let mut layers = Vec::new();
    for (n, kind) in problem.layers() {
        let of = |name: &str| format!("params/{n}.{name}");
        layers.push(match kind {
            Kind::Dense => Layer::Dense(var(of("weight"), false)?, var(of("bias"), false)?),
            Kind::Conv => Layer::Conv(var(of("weight"), false)?, var(of("bias"), false)?),
            Kind::Kan => Layer::Kan(var(of("base_weight"), false)?, var(of("spline_weight"), true)?),
        });
    }
    let vars = layers.iter().flat_map(|layer| match layer {
        Layer::Dense(a, b) | Layer::Conv(a, b) | Layer::Kan(a, b) => [a.clone(), b.clone()],
    });
    let params = ParamsAdamW {
        lr: 1e-3,
        weight_decay: 0.0,
        ..Default::default()
    };
    let mut adam = AdamW::new(vars.collect(), params)?;
    let x = tensor("batch/values", &problem.batch_shape())?;
    let t = Tensor::new(knots(), &device)?;
    let classes = problem.tensors.get("target/classes").map(|c| {
        let classes: Vec<u32> = c.values.iter().map(|&c| c as u32).collect();
        Tensor::new(classes, &device)
    });
    let classes = classes.transpose()?;
    let y = forward(&layers, &x, &t)?;
    let target = match classes {
        Some(classes) => classes,
        None => tensor("target/values", y.dims())?,
    };
    Ok(Box::new(move || {
        let mut step = || -> Result<f32> {
            let y = forward(&layers, &x, &t)?;
            let loss = if target.dtype() == DType::U32 {
                loss::cross_entropy(&y, &target)?
            } else {
                loss::mse(&y, &target)?
            };
            adam.backward_step(&loss)?;
            loss.to_scalar()
        };
        step().expect("candle")
    }))
}
