//! Frozen networks for deployment: f32, f16 or i8 weights, one sample at a time, in a file of its
//! own that needs nothing of the training code.
//!
//! In f16 a weight is rounded to 11 bits. In i8 the weights of an input (splines and base apart)
//! share a scale, the largest magnitude over 127, and are off by half of it at most. Knots, biases
//! and all sums stay f32.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::edges::Layers;
use crate::data::safetensors::{self, Dtype, Tensors};
use crate::layer::kan::Kan;
use crate::layer::kan::basis::Tile;
use crate::layer::kan::frozen::{Half, Stored, Weights, forward_single};
use crate::math;
use crate::network::{Base, Network, Outside};
use crate::{Error, Model, Pass, Result};

/// How weights are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrozenPrecision {
    /// 4 bytes, as trained.
    F32,
    /// 2 bytes.
    F16,
    /// 1 byte and a scale per input.
    I8,
}

enum Kept {
    F32 {
        spline: Vec<f32>,
        base: Vec<f32>,
    },
    F16 {
        spline: Vec<Half>,
        base: Vec<Half>,
    },
    I8 {
        spline: Vec<i8>,
        base: Vec<i8>,
        spline_scale: Vec<f32>,
        base_scale: Vec<f32>,
    },
}

struct FrozenLayer {
    kan: Kan,
    kept: Kept,
    bias: Vec<f32>,
}

/// A frozen network.
pub struct FrozenKan {
    precision: FrozenPrecision,
    /// mean and 1/std, where the network normalises its input.
    normalise: Option<(Vec<f32>, Vec<f32>)>,
    layers: Vec<FrozenLayer>,
    tile: Box<Tile>,
    a: Vec<f32>,
    b: Vec<f32>,
}

/// The layer's description in the file.
#[derive(Serialize, Deserialize)]
struct Shape {
    inputs: usize,
    outputs: usize,
    grid: usize,
    degree: usize,
    range: [f64; 2],
    base: Base,
    outside: Outside,
    bias: bool,
    free_knots: bool,
}

const FORMAT: &str = "retrograd-kan-frozen-1";

fn quantise(weights: &[f32], inputs: usize) -> (Vec<i8>, Vec<f32>) {
    let len = weights.len() / inputs.max(1);
    let mut scales = Vec::new();
    let mut values = Vec::with_capacity(weights.len());
    for own in weights.chunks_exact(len.max(1)) {
        let largest = own.iter().fold(0.0_f32, |m, w| math::max(m, w.abs()));
        let scale = if largest > 0.0 { largest / 127.0 } else { 1.0 };
        scales.push(scale);
        values.extend(
            own.iter()
                .map(|w| (w / scale).round().clamp(-127.0, 127.0) as i8),
        );
    }
    (values, scales)
}

impl FrozenKan {
    /// Freezes a network of KAN layers (a normalisation in front is allowed).
    pub fn freeze(network: &Network, params: &[f32], precision: FrozenPrecision) -> Result<Self> {
        let layers = Layers::new(network)?;
        if let Some(i) = params.iter().position(|p| !p.is_finite()) {
            return Err(Error::invalid(
                format!("parameter {i}"),
                params[i],
                "a finite number",
            ));
        }
        let mut frozen = Vec::new();
        for layer in 0..layers.len() {
            let kan = layers.kan(layer).clone();
            let [spline, base, bias] = layers.weights(layer, params);
            let half = |w: &[f32]| -> Result<Vec<Half>> {
                w.iter()
                    .map(|&w| {
                        let h = half::f16::from_f32(w);
                        if h.is_finite() {
                            Ok(Half(h.to_bits()))
                        } else {
                            Err(Error::invalid(
                                "weight for f16",
                                w,
                                "a magnitude below 65520",
                            ))
                        }
                    })
                    .collect()
            };
            let kept = match precision {
                FrozenPrecision::F32 => Kept::F32 {
                    spline: spline.to_vec(),
                    base: base.to_vec(),
                },
                FrozenPrecision::F16 => Kept::F16 {
                    spline: half(spline)?,
                    base: half(base)?,
                },
                FrozenPrecision::I8 => {
                    let (spline, spline_scale) = quantise(spline, kan.inputs);
                    let (base, base_scale) = quantise(base, kan.inputs);
                    Kept::I8 {
                        spline,
                        base,
                        spline_scale,
                        base_scale,
                    }
                }
            };
            frozen.push(FrozenLayer {
                kan,
                kept,
                bias: bias.to_vec(),
            });
        }
        let buffers = network.buffers();
        let find = |name: &str| buffers.iter().find(|b| b.name == name);
        let normalise = match (find("0.mean"), find("0.std")) {
            (Some(mean), Some(std)) => Some((
                mean.values.iter().map(|&m| m as f32).collect(),
                std.values.iter().map(|&s| (1.0 / s) as f32).collect(),
            )),
            _ => None,
        };
        Ok(Self::build(precision, normalise, frozen))
    }

    fn build(
        precision: FrozenPrecision,
        normalise: Option<(Vec<f32>, Vec<f32>)>,
        layers: Vec<FrozenLayer>,
    ) -> Self {
        let sizes = layers.iter().flat_map(|l| [l.kan.inputs, l.kan.outputs]);
        let widest = sizes.max().unwrap_or(0);
        FrozenKan {
            precision,
            normalise,
            layers,
            tile: Box::new(Tile::new()),
            a: vec![0.0; widest],
            b: vec![0.0; widest],
        }
    }

    /// How its weights are kept.
    pub fn precision(&self) -> FrozenPrecision {
        self.precision
    }

    /// The number of inputs.
    pub fn inputs(&self) -> usize {
        self.layers[0].kan.inputs
    }

    /// The number of outputs.
    pub fn outputs(&self) -> usize {
        self.layers[self.layers.len() - 1].kan.outputs
    }

    /// Bytes of weights and scales.
    pub fn weight_bytes(&self) -> usize {
        self.layers
            .iter()
            .map(|l| match &l.kept {
                Kept::F32 { spline, base } => 4 * (spline.len() + base.len()),
                Kept::F16 { spline, base } => 2 * (spline.len() + base.len()),
                Kept::I8 {
                    spline,
                    base,
                    spline_scale,
                    base_scale,
                } => spline.len() + base.len() + 4 * (spline_scale.len() + base_scale.len()),
            })
            .sum()
    }

    /// One sample, without allocation and without threads.
    pub fn forward_single(&mut self, x: &[f32], y: &mut [f32]) -> Result<()> {
        let (inputs, outputs) = (self.inputs(), self.outputs());
        if x.len() != inputs || y.len() != outputs {
            return Err(Error::invalid(
                "forward_single",
                format!("{} inputs and room for {} outputs", x.len(), y.len()),
                format!("{inputs} and {outputs}"),
            ));
        }
        let (mut from, mut to) = (&mut self.a, &mut self.b);
        from[..inputs].copy_from_slice(x);
        if let Some((mean, inverse)) = &self.normalise {
            for ((v, m), s) in from.iter_mut().zip(mean).zip(inverse) {
                *v = (*v - m) * s;
            }
        }
        for layer in &self.layers {
            let kan = &layer.kan;
            let (x, y) = (&from[..kan.inputs], &mut to[..kan.outputs]);
            let tile = &mut self.tile;
            match &layer.kept {
                Kept::F32 { spline, base } => {
                    let weights = Weights {
                        spline,
                        base,
                        spline_scale: &[],
                        base_scale: &[],
                    };
                    forward_single(kan, &weights, &layer.bias, tile, x, y);
                }
                Kept::F16 { spline, base } => {
                    let weights = Weights {
                        spline,
                        base,
                        spline_scale: &[],
                        base_scale: &[],
                    };
                    forward_single(kan, &weights, &layer.bias, tile, x, y);
                }
                Kept::I8 {
                    spline,
                    base,
                    spline_scale,
                    base_scale,
                } => {
                    let weights = Weights {
                        spline,
                        base,
                        spline_scale,
                        base_scale,
                    };
                    forward_single(kan, &weights, &layer.bias, tile, x, y);
                }
            }
            std::mem::swap(&mut from, &mut to);
        }
        y.copy_from_slice(&from[..outputs]);
        Ok(())
    }

    /// The largest and the root-mean-square difference to the network it was frozen from, over a
    /// batch, and the largest magnitude of the network's own outputs to compare with.
    pub fn error_against(
        &mut self,
        network: &Network,
        params: &[f32],
        x: &[f32],
    ) -> Result<(f64, f64, f64)> {
        network.check_batch(x)?;
        let mut tape = Default::default();
        network.compute_forward(params, &x.to_vec(), &Pass::inference(), &mut tape);
        let exact = network.output(&tape);
        let mut y = vec![0.0; self.outputs()];
        let (mut largest, mut squares, mut scale) = (0.0_f64, 0.0, 0.0_f64);
        for (x, exact) in x
            .chunks_exact(self.inputs())
            .zip(exact.chunks_exact(y.len()))
        {
            self.forward_single(x, &mut y)?;
            for (y, exact) in y.iter().zip(exact) {
                let error = f64::from(y - exact).abs();
                largest = math::max(largest, error);
                squares += error * error;
                scale = math::max(scale, f64::from(exact.abs()));
            }
        }
        Ok((largest, (squares / exact.len() as f64).sqrt(), scale))
    }

    /// The parameters of the network that computes the same: those it was frozen from, each weight
    /// as it is kept.
    pub fn params(&self, network: &Network) -> Result<Vec<f32>> {
        fn decode<W: Stored>(weights: &[W], scales: &[f32], to: &mut [f32]) {
            let len = weights.len() / scales.len().max(1);
            for (n, (to, w)) in to.iter_mut().zip(weights).enumerate() {
                *to = w.decode() * scales.get(n / len.max(1)).copied().unwrap_or(1.0);
            }
        }
        let layers = Layers::new(network)?;
        let mut params = vec![0.0; network.layout().len()];
        for (n, layer) in self.layers.iter().enumerate() {
            let [to_spline, to_base, to_bias] = layers.ranges(n);
            match &layer.kept {
                Kept::F32 { spline, base } => {
                    decode(spline, &[], &mut params[to_spline]);
                    decode(base, &[], &mut params[to_base]);
                }
                Kept::F16 { spline, base } => {
                    decode(spline, &[], &mut params[to_spline]);
                    decode(base, &[], &mut params[to_base]);
                }
                Kept::I8 {
                    spline,
                    base,
                    spline_scale,
                    base_scale,
                } => {
                    decode(spline, spline_scale, &mut params[to_spline]);
                    decode(base, base_scale, &mut params[to_base]);
                }
            }
            params[to_bias].copy_from_slice(&layer.bias);
        }
        Ok(params)
    }

    /// Writes it to a file.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let mut tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = Vec::new();
        let f32s = |v: &[f32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let mut shapes = Vec::new();
        if let Some((mean, inverse)) = &self.normalise {
            tensors.push(("mean".into(), Dtype::F32, vec![mean.len()], f32s(mean)));
            tensors.push((
                "inverse_std".into(),
                Dtype::F32,
                vec![mean.len()],
                f32s(inverse),
            ));
        }
        for (n, FrozenLayer { kan, kept, bias }) in self.layers.iter().enumerate() {
            let shape = vec![kan.inputs, kan.bases(), kan.outputs];
            let base_shape = vec![kan.inputs, kan.outputs];
            let mut put = |name: &str, dtype, shape: &[usize], bytes: Vec<u8>| {
                if !bytes.is_empty() {
                    tensors.push((format!("{n}.{name}"), dtype, shape.to_vec(), bytes));
                }
            };
            match kept {
                Kept::F32 { spline, base } => {
                    put("spline_weight", Dtype::F32, &shape, f32s(spline));
                    put("base_weight", Dtype::F32, &base_shape, f32s(base));
                }
                Kept::F16 { spline, base } => {
                    let bytes = |v: &[Half]| v.iter().flat_map(|h| h.0.to_le_bytes()).collect();
                    put("spline_weight", Dtype::F16, &shape, bytes(spline));
                    put("base_weight", Dtype::F16, &base_shape, bytes(base));
                }
                Kept::I8 {
                    spline,
                    base,
                    spline_scale,
                    base_scale,
                } => {
                    let bytes = |v: &[i8]| v.iter().map(|&v| v as u8).collect();
                    put("spline_weight", Dtype::I8, &shape, bytes(spline));
                    put("base_weight", Dtype::I8, &base_shape, bytes(base));
                    put(
                        "spline_scale",
                        Dtype::F32,
                        &[kan.inputs],
                        f32s(spline_scale),
                    );
                    put(
                        "base_scale",
                        Dtype::F32,
                        &[base_scale.len()],
                        f32s(base_scale),
                    );
                }
            }
            put("bias", Dtype::F32, &[kan.outputs], f32s(bias));
            if let Some(knots) = &kan.free_knots {
                let bytes = knots.iter().flat_map(|t| t.to_le_bytes()).collect();
                put("knots", Dtype::F64, &[kan.inputs, kan.knot_count()], bytes);
            }
            shapes.push(Shape {
                inputs: kan.inputs,
                outputs: kan.outputs,
                grid: kan.grid,
                degree: kan.degree,
                range: kan.range,
                base: kan.base,
                outside: kan.outside,
                bias: kan.bias,
                free_knots: kan.free_knots.is_some(),
            });
        }
        let text = |v: serde_json::Result<String>| v.map_err(|e| Error::file(path, "metadata", e));
        let metadata = BTreeMap::from([
            ("format".to_string(), FORMAT.to_string()),
            ("layers".to_string(), text(serde_json::to_string(&shapes))?),
            (
                "precision".to_string(),
                text(serde_json::to_string(&self.precision))?,
            ),
        ]);
        let tensors = tensors
            .iter()
            .map(|(name, dtype, shape, bytes)| (&name[..], *dtype, &shape[..], &bytes[..]));
        safetensors::write(path, &metadata, tensors.collect())
    }

    /// Reads it back; every shape is checked.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = crate::data::files::read(path)?;
        let bad = |at: &str, problem: String| Error::file(path, at, problem);
        let file = Tensors::new(path, &bytes)?;
        let metadata = file.metadata();
        let text = |key: &str| -> Result<&String> {
            metadata
                .get(key)
                .ok_or_else(|| bad("metadata", format!("no {key:?}")))
        };
        if text("format")? != FORMAT {
            let problem = format!("got {:?}, needs {FORMAT:?}", text("format")?);
            return Err(bad("metadata \"format\"", problem));
        }
        let json = |e: serde_json::Error| bad("metadata", e.to_string());
        let precision: FrozenPrecision = serde_json::from_str(text("precision")?).map_err(json)?;
        let shapes: Vec<Shape> = serde_json::from_str(text("layers")?).map_err(json)?;
        if shapes.is_empty() || shapes.windows(2).any(|w| w[0].outputs != w[1].inputs) {
            return Err(bad(
                "metadata \"layers\"",
                "sizes that don't follow one another".into(),
            ));
        }
        let file = FrozenFile { path, file: &file };
        let mut layers = Vec::new();
        for (n, shape) in shapes.iter().enumerate() {
            let kan = file.kan(n, shape)?;
            let kept = file.kept(n, shape, &kan, precision)?;
            let bias = match shape.bias {
                true => file.f32s(&format!("{n}.bias"), &[shape.outputs])?,
                false => Vec::new(),
            };
            layers.push(FrozenLayer { kan, kept, bias });
        }
        let inputs = shapes[0].inputs;
        let normalise = match file.file.contains("mean") {
            true => {
                let mean = file.f32s("mean", &[inputs])?;
                Some((mean, file.f32s("inverse_std", &[inputs])?))
            }
            false => None,
        };
        Ok(Self::build(precision, normalise, layers))
    }
}

/// A file that is read, with its path for what is wrong with it.
struct FrozenFile<'a> {
    path: &'a Path,
    file: &'a Tensors<'a>,
}

impl FrozenFile<'_> {
    fn bad(&self, at: &str, problem: String) -> Error {
        Error::file(self.path, at, problem)
    }

    /// A tensor of finite numbers.
    fn f32s(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        self.file.exactly(name, Dtype::F32, shape)?;
        let values = self.file.array(name)?.values.to_f32();
        match values.iter().position(|v| !v.is_finite()) {
            Some(i) => Err(self.bad(name, format!("element {i} is {}", values[i]))),
            None => Ok(values),
        }
    }

    /// A layer's sizes and knots.
    fn kan(&self, n: usize, s: &Shape) -> Result<Kan> {
        let fits = (1..=7).contains(&s.degree)
            && (1..=64).contains(&s.grid)
            && s.inputs > 0
            && s.outputs > 0
            && s.range[0] < s.range[1];
        if !fits {
            return Err(self.bad(
                &format!("metadata \"layers\"[{n}]"),
                "a size, grid, degree or range out of bounds".into(),
            ));
        }
        let mut kan = Kan::new(
            s.inputs, s.outputs, s.grid, s.degree, s.range, s.base, s.bias, s.outside,
        );
        if s.free_knots {
            let name = format!("{n}.knots");
            (self.file).exactly(&name, Dtype::F64, &[s.inputs, kan.knot_count()])?;
            let knots = self.file.array(&name)?.values.to_f64();
            let increases = |t: &[f64]| t.windows(2).all(|w| w[0] < w[1]);
            if !knots.chunks_exact(kan.knot_count()).all(increases) {
                return Err(self.bad(&name, "knots that don't increase".into()));
            }
            kan.set_knots(knots);
        }
        Ok(kan)
    }

    /// A layer's weights, in the precision that they are kept in.
    fn kept(&self, n: usize, s: &Shape, kan: &Kan, precision: FrozenPrecision) -> Result<Kept> {
        let shape = [s.inputs, kan.bases(), s.outputs];
        let base_shape = [s.inputs, s.outputs];
        let has_base = s.base != Base::None;
        let (spline, base) = (format!("{n}.spline_weight"), format!("{n}.base_weight"));
        Ok(match precision {
            FrozenPrecision::F32 => Kept::F32 {
                spline: self.f32s(&spline, &shape)?,
                base: match has_base {
                    true => self.f32s(&base, &base_shape)?,
                    false => Vec::new(),
                },
            },
            FrozenPrecision::F16 => Kept::F16 {
                spline: self.halves(&spline, &shape, true)?,
                base: self.halves(&base, &base_shape, has_base)?,
            },
            FrozenPrecision::I8 => {
                let scale = |name: &str, wanted| match wanted {
                    true => self.f32s(&format!("{n}.{name}"), &[s.inputs]),
                    false => Ok(Vec::new()),
                };
                Kept::I8 {
                    spline: self.bytes(&spline, &shape, true)?,
                    base: self.bytes(&base, &base_shape, has_base)?,
                    spline_scale: scale("spline_scale", true)?,
                    base_scale: scale("base_scale", has_base)?,
                }
            }
        })
    }

    /// A tensor of finite 16-bit numbers; empty where it isn't there to be read.
    fn halves(&self, name: &str, shape: &[usize], wanted: bool) -> Result<Vec<Half>> {
        if !wanted {
            return Ok(Vec::new());
        }
        let bytes = self.file.exactly(name, Dtype::F16, shape)?.chunks_exact(2);
        let halves: Vec<u16> = bytes.map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
        match halves.iter().position(|h| h & 0x7c00 == 0x7c00) {
            Some(i) => Err(self.bad(name, format!("element {i} is not finite"))),
            None => Ok(halves.into_iter().map(Half).collect()),
        }
    }

    /// A tensor of 8-bit numbers; empty where it isn't there to be read.
    fn bytes(&self, name: &str, shape: &[usize], wanted: bool) -> Result<Vec<i8>> {
        if !wanted {
            return Ok(Vec::new());
        }
        let bytes = self.file.exactly(name, Dtype::I8, shape)?;
        Ok(bytes.iter().map(|&b| b as i8).collect())
    }
}
