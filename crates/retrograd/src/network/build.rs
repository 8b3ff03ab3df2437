//! From a layer's spec to the layer, with every shape and option checked.

use super::Network;
use super::spec::{LayerSpec, PaddingMode};
use crate::layer::AnyLayer;
use crate::layer::activation::Activation;
use crate::layer::add::Add;
use crate::layer::concat::Concat;
use crate::layer::conv_transpose2d::ConvTranspose2d;
use crate::layer::conv2d::Conv2d;
use crate::layer::dense::Dense;
use crate::layer::dropout::Dropout;
use crate::layer::flatten::Flatten;
use crate::layer::kan::{Kan, MAX_DEGREE};
use crate::layer::norm::{Norm, NormKind};
use crate::layer::normalize::Normalize;
use crate::layer::pool::{Pool, PoolKind};
use crate::layer::upsample::Upsample;
use crate::plan::{Value, before};
use crate::{Error, Result};

/// The largest kernel, stride, dilation and scale: beyond it sizes would overflow.
const MAX_PIXELS: usize = 1 << 16;
/// The most values of one sample of a layer's output: positions are 32 bits wide.
const MAX_VALUES: usize = 1 << 31;

/// A layer as built, the shape of its output and the earlier value that a skip reads.
pub(crate) struct Built {
    pub layer: Box<dyn AnyLayer>,
    pub shape: Vec<usize>,
    pub with: Option<Value>,
}

fn built(layer: impl AnyLayer, shape: Vec<usize>) -> Result<Built> {
    let layer = Box::new(layer);
    let with = None;
    Ok(Built { layer, shape, with })
}

fn skip(layer: impl AnyLayer, with: Value, shape: Vec<usize>) -> Result<Built> {
    let layer = Box::new(layer);
    let with = Some(with);
    Ok(Built { layer, shape, with })
}

impl Network {
    /// Checks one layer against the shape before it, and gives the layer and its output's shape.
    pub(crate) fn build(&self, index: usize, spec: &LayerSpec) -> Result<Built> {
        let shape = self.shape_of(before(index)).to_vec();
        let at = |option: &str| match option {
            "" => format!("layers[{index}] ({})", spec.kind()),
            option => format!("layers[{index}].{option} ({})", spec.kind()),
        };
        let positive = |option: &str, n: usize| {
            if n == 0 {
                Err(Error::invalid(at(option), 0, "at least 1"))
            } else {
                Ok(n)
            }
        };
        let image = || match shape[..] {
            [c, h, w] => Ok([c, h, w]),
            _ => Err(Error::invalid(
                format!("{}'s input", at("")),
                format!("{shape:?}"),
                "[channels, height, width]",
            )),
        };
        let last = *shape.last().expect("at least one axis");
        let with_last = |n: usize| {
            let mut shape = shape.clone();
            *shape.last_mut().expect("at least one axis") = n;
            shape
        };
        let rows = shape.iter().product::<usize>() / last;
        let earlier = |with: i64| -> Result<Value> {
            let needed = format!(
                "−1 (the input) to {}, a layer before this one",
                index as i64 - 1
            );
            match with {
                -1 => Ok(Value::Input),
                0.. if (with as usize) < index => Ok(Value::Of(with as usize)),
                _ => Err(Error::invalid(at("with"), with, needed)),
            }
        };
        let activation = |a: Activation| built(a, shape.clone());
        match *spec {
            LayerSpec::Dense { out, bias } => {
                let layer = Dense {
                    inputs: last,
                    outputs: positive("out", out)?,
                    bias,
                    rows,
                };
                built(layer, with_last(out))
            }
            LayerSpec::Kan {
                out,
                grid,
                degree,
                range,
                base,
                bias,
                outside,
                free_knots,
            } => {
                if !(1..=MAX_DEGREE).contains(&degree) {
                    return Err(Error::invalid(at("degree"), degree, "1 to 7"));
                }
                if !(1..=64).contains(&grid) {
                    return Err(Error::invalid(at("grid"), grid, "1 to 64"));
                }
                let [lo, hi] = range;
                if !(lo.is_finite() && hi.is_finite() && lo < hi) {
                    let got = format!("{range:?}");
                    return Err(Error::invalid(
                        at("range"),
                        got,
                        "finite [low, high], low < high",
                    ));
                }
                positive("out", out)?;
                let mut kan = Kan::new(last, out, grid, degree, range, base, bias, outside);
                if free_knots {
                    kan.set_knots(kan.uniform_knots().repeat(last));
                }
                built(kan, with_last(out))
            }
            LayerSpec::Conv2d {
                out,
                kernel,
                stride,
                padding,
                padding_mode,
                dilation,
                groups,
                bias,
            } => {
                let [inputs, height, width] = image()?;
                let conv = Conv2d {
                    inputs,
                    outputs: positive("out", out)?,
                    height,
                    width,
                    kernel: positive("kernel", kernel)?,
                    stride: positive("stride", stride)?,
                    padding,
                    padding_mode,
                    dilation: positive("dilation", dilation)?,
                    groups: positive("groups", groups)?,
                    bias,
                };
                for (name, value) in [
                    ("kernel", kernel),
                    ("padding", padding),
                    ("dilation", dilation),
                ] {
                    if value > MAX_PIXELS {
                        let needed = format!("at most {MAX_PIXELS}");
                        return Err(Error::invalid(at(name), value, needed));
                    }
                }
                if inputs % groups != 0 || out % groups != 0 {
                    let needed = format!("a divisor of {inputs} inputs and {out} outputs");
                    return Err(Error::invalid(at("groups"), groups, needed));
                }
                if padding_mode == PaddingMode::Reflect && padding >= height.min(width) {
                    let needed = format!("less than the image, {height} × {width}, to reflect");
                    return Err(Error::invalid(at("padding"), padding, needed));
                }
                let (high, wide) = conv.padded();
                check_size(&at("padding"), "a padded image", &[inputs, high, wide])?;
                if conv.span() > high.min(wide) {
                    let got = format!("{} pixels with dilation {dilation}", conv.span());
                    let needed = format!("at most the padded image, {high} × {wide}");
                    return Err(Error::invalid(at("kernel"), got, needed));
                }
                let shape = vec![out, conv.out_height(), conv.out_width()];
                built(conv, shape)
            }
            LayerSpec::ConvTranspose2d {
                out,
                kernel,
                stride,
                padding,
                bias,
            } => {
                let [inputs, height, width] = image()?;
                let conv = ConvTranspose2d {
                    inputs,
                    outputs: positive("out", out)?,
                    height,
                    width,
                    kernel: positive("kernel", kernel)?,
                    stride: positive("stride", stride)?,
                    padding,
                    bias,
                };
                for (name, value) in [("kernel", kernel), ("stride", stride), ("padding", padding)]
                {
                    if value > MAX_PIXELS {
                        let needed = format!("at most {MAX_PIXELS}");
                        return Err(Error::invalid(at(name), value, needed));
                    }
                }
                if 2 * padding >= (height.min(width) - 1) * stride + kernel {
                    return Err(Error::invalid(
                        at("padding"),
                        padding,
                        "less, so that an output is left",
                    ));
                }
                let shape = vec![out, conv.out_height(), conv.out_width()];
                built(conv, shape)
            }
            LayerSpec::MaxPool2d { kernel, stride } | LayerSpec::AvgPool2d { kernel, stride } => {
                let [channels, height, width] = image()?;
                let kind = match spec {
                    LayerSpec::MaxPool2d { .. } => PoolKind::Max,
                    _ => PoolKind::Average,
                };
                if kernel > height.min(width) {
                    let needed = format!("at most the image, {height} × {width}");
                    return Err(Error::invalid(at("kernel"), kernel, needed));
                }
                let pool = Pool {
                    kind,
                    kernel: positive("kernel", kernel)?,
                    stride: positive("stride", stride.unwrap_or(kernel))?,
                    height,
                    width,
                };
                let shape = vec![channels, pool.out_height(), pool.out_width()];
                built(pool, shape)
            }
            LayerSpec::Upsample { scale } => {
                let [channels, height, width] = image()?;
                let scale = positive("scale", scale)?;
                if scale > MAX_PIXELS {
                    let needed = format!("at most {MAX_PIXELS}");
                    return Err(Error::invalid(at("scale"), scale, needed));
                }
                let shape = vec![channels, height * scale, width * scale];
                built(Upsample { scale, width }, shape)
            }
            LayerSpec::LayerNorm {} => built(Norm::new(NormKind::Layer, last, 1), shape),
            LayerSpec::GroupNorm { groups } => {
                let channels = shape[0];
                if positive("groups", groups)? > channels || !channels.is_multiple_of(groups) {
                    let needed = format!("a divisor of {channels} channels");
                    return Err(Error::invalid(at("groups"), groups, needed));
                }
                let plane = shape[1..].iter().product();
                built(Norm::new(NormKind::Group(groups), channels, plane), shape)
            }
            LayerSpec::BatchNorm2d {} => {
                let [channels, height, width] = image()?;
                built(Norm::new(NormKind::Batch, channels, height * width), shape)
            }
            LayerSpec::Concat { with } => {
                let value = earlier(with)?;
                let other = self.shape_of(value);
                if shape.len() != other.len() || shape[1..] != other[1..] {
                    let got = format!("{other:?} beside {shape:?}");
                    return Err(Error::invalid(
                        at("with"),
                        got,
                        "equal sizes behind the channels",
                    ));
                }
                let mut joined = shape.clone();
                joined[0] += other[0];
                skip(
                    Concat {
                        lens: [&shape[..], other].map(|s| s.iter().product()),
                    },
                    value,
                    joined,
                )
            }
            LayerSpec::Add { with } => {
                let value = earlier(with)?;
                let other = self.shape_of(value);
                if shape != other {
                    let got = format!("{other:?} beside {shape:?}");
                    return Err(Error::invalid(at("with"), got, "equal shapes"));
                }
                skip(Add, value, shape)
            }
            LayerSpec::Flatten {} => built(Flatten, vec![shape.iter().product()]),
            LayerSpec::Dropout { p } => {
                if !(0.0..1.0).contains(&p) {
                    return Err(Error::invalid(at("p"), p, "0 ≤ p < 1"));
                }
                let index = index as u64;
                built(Dropout { p, index }, shape)
            }
            LayerSpec::Normalize {} => built(Normalize::new(last), shape),
            LayerSpec::Relu {} => activation(Activation::Relu),
            LayerSpec::LeakyRelu { slope } => {
                if !slope.is_finite() {
                    return Err(Error::invalid(at("slope"), slope, "a finite number"));
                }
                activation(Activation::LeakyRelu { slope })
            }
            LayerSpec::Elu { alpha } => {
                if !alpha.is_finite() {
                    return Err(Error::invalid(at("alpha"), alpha, "a finite number"));
                }
                activation(Activation::Elu { alpha })
            }
            LayerSpec::Silu {} => activation(Activation::Silu),
            LayerSpec::Gelu {} => activation(Activation::Gelu),
            LayerSpec::Tanh {} => activation(Activation::Tanh),
            LayerSpec::Sigmoid {} => activation(Activation::Sigmoid),
        }
    }
}

/// Whether one sample of what a layer makes can be counted, and be meant.
pub(crate) fn check_size(place: &str, what: &str, shape: &[usize]) -> Result<()> {
    let values = shape
        .iter()
        .try_fold(1_usize, |n, &size| n.checked_mul(size));
    if values.is_none_or(|n| n > MAX_VALUES) {
        return Err(Error::invalid(
            place,
            format!("{what} of {shape:?}"),
            format!("at most {MAX_VALUES} values a sample"),
        ));
    }
    Ok(())
}
