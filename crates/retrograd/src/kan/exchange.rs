//! States of other libraries, as safetensors: efficient-kan's and pykan's.
//!
//! efficient-kan: `layers.L.base_weight` (out, in), `layers.L.spline_weight` (out, in, G+k),
//! `layers.L.spline_scaler` (out, in; optional), `layers.L.grid` (in, G+2k+1). The scaler is folded
//! into the weights.
//!
//! pykan: `act_fun.L.grid` (in, G+2k+1), `act_fun.L.coef` (in, out, G+k), `act_fun.L.scale_base`,
//! `act_fun.L.scale_sp` and `act_fun.L.mask` (in, out), and per layer `node_scale_L`, `node_bias_L`,
//! `subnode_scale_L`, `subnode_bias_L` (out). A node there is
//! node_scale·(subnode_scale·Σ mask·(scale_base·silu(x) + scale_sp·spline(x)) + subnode_bias) + node_bias:
//! all of it is folded into weights and a bias. Symbolic edges (`symbolic_fun.L.mask` not 0) and
//! multiplication nodes have no place in a KAN layer and are refused.
//!
//! PyTorch's own pickles are not read: `safetensors.torch.save_file(model.state_dict(), path)`
//! writes the file.

use std::collections::BTreeMap;
use std::path::Path;

use super::edges::Layers;
use crate::data::Values;
use crate::data::safetensors::{NamedTensor, TensorFile, Tensors};
use crate::layer::kan::{Kan, KanSpec, uniform_knots};
use crate::network::{Base, LayerSpec, Network, NetworkSpec, Outside};
use crate::{Buffer, Error, Model, Result};

/// Whose names a state has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// <https://github.com/Blealtan/efficient-kan>
    EfficientKan,
    /// <https://github.com/KindXiaoming/pykan>
    Pykan,
}

/// A file's tensors, taken by name; those that are not asked for may be of any type.
struct State<'a>(Tensors<'a>);

impl State<'_> {
    fn get(&self, name: &str, shape: &[usize]) -> Result<Vec<f64>> {
        let found = self.0.shape(name)?;
        if found != shape {
            let problem = format!("shape {found:?}, needs {shape:?}");
            return Err(self.0.bad(name, problem));
        }
        let array = self.0.array(name)?;
        if array.is_integer() {
            return Err(self.0.bad(name, "whole numbers, needs floats"));
        }
        let values = array.values.to_f64();
        if let Some(i) = values.iter().position(|v| !v.is_finite()) {
            return Err(self.0.bad(name, format!("element {i} is {}", values[i])));
        }
        Ok(values)
    }

    fn optional(&self, name: &str, shape: &[usize], absent: f64) -> Result<Vec<f64>> {
        match self.0.contains(name) {
            true => self.get(name, shape),
            false => Ok(vec![absent; shape.iter().product()]),
        }
    }

    fn shape(&self, name: &str, rank: usize) -> Result<&[usize]> {
        let shape = self.0.shape(name)?;
        if shape.len() != rank || shape.contains(&0) {
            let problem = format!("shape {shape:?}, needs {rank} axes");
            return Err(self.0.bad(name, problem));
        }
        Ok(shape)
    }
}

/// A layer in PyTorch's order, as read.
struct ReadLayer {
    inputs: usize,
    outputs: usize,
    grid: usize,
    degree: usize,
    knots: Vec<f64>,
    /// (out, in, basis)
    spline: Vec<f64>,
    /// (out, in)
    base: Vec<f64>,
    bias: Vec<f64>,
}

/// Reads a state: the kind is told from its names. Returns network, parameters and kind.
pub fn read_state(path: impl AsRef<Path>) -> Result<(Network, Vec<f32>, Exchange)> {
    let path = path.as_ref();
    let bytes = crate::data::files::read(path)?;
    let state = State(Tensors::new(path, &bytes)?);
    let kind = if state.0.contains("layers.0.spline_weight") {
        Exchange::EfficientKan
    } else if state.0.contains("act_fun.0.coef") {
        Exchange::Pykan
    } else {
        let needed = "layers.0.spline_weight (efficient-kan) or act_fun.0.coef (pykan)";
        return Err(Error::file(
            path,
            "tensors",
            format!("none is named {needed}"),
        ));
    };
    let mut layers = Vec::new();
    loop {
        let n = layers.len();
        let (present, layer) = match kind {
            Exchange::EfficientKan => (
                format!("layers.{n}.spline_weight"),
                efficient as fn(_, _) -> _,
            ),
            Exchange::Pykan => (format!("act_fun.{n}.coef"), pykan as fn(_, _) -> _),
        };
        if !state.0.contains(&present) {
            break;
        }
        let layer: ReadLayer = layer(&state, n)?;
        if let Some(before) = layers.last()
            && ReadLayer::outputs(before) != layer.inputs
        {
            let problem = format!(
                "{} inputs after a layer of {} outputs; multiplication nodes are not supported",
                layer.inputs,
                ReadLayer::outputs(before)
            );
            return Err(Error::file(path, present, problem));
        }
        layers.push(layer);
    }
    let (network, params) = assemble(&layers)?;
    Ok((network, params, kind))
}

impl ReadLayer {
    fn outputs(&self) -> usize {
        self.outputs
    }
}

/// G and k from the lengths of coefficients and knots.
fn grid_and_degree(
    state: &State<'_>,
    name: &str,
    bases: usize,
    knots: usize,
) -> Result<(usize, usize)> {
    let degree = knots.saturating_sub(bases + 1);
    let grid = bases.saturating_sub(degree);
    if !(1..=7).contains(&degree) || !(1..=64).contains(&grid) {
        let problem = format!(
            "{knots} knots and {bases} coefficients mean degree {degree} and grid {grid}, needs \
             1 to 7 and 1 to 64"
        );
        return Err(state.0.bad(name, problem));
    }
    Ok((grid, degree))
}

fn efficient(state: &State<'_>, n: usize) -> Result<ReadLayer> {
    let name = |tensor: &str| format!("layers.{n}.{tensor}");
    let shape = state.shape(&name("spline_weight"), 3)?;
    let (outputs, inputs, bases) = (shape[0], shape[1], shape[2]);
    let knot_count = state.shape(&name("grid"), 2)?[1];
    let (grid, degree) = grid_and_degree(state, &name("grid"), bases, knot_count)?;
    let knots = state.get(&name("grid"), &[inputs, knot_count])?;
    let mut spline = state.get(&name("spline_weight"), shape)?;
    let scaler = state.optional(&name("spline_scaler"), &[outputs, inputs], 1.0)?;
    for (own, scale) in spline.chunks_exact_mut(bases).zip(&scaler) {
        for w in own {
            *w *= scale;
        }
    }
    Ok(ReadLayer {
        inputs,
        outputs,
        grid,
        degree,
        knots,
        spline,
        base: state.get(&name("base_weight"), &[outputs, inputs])?,
        bias: vec![0.0; outputs],
    })
}

fn pykan(state: &State<'_>, n: usize) -> Result<ReadLayer> {
    let name = |tensor: &str| format!("act_fun.{n}.{tensor}");
    let shape = state.shape(&name("coef"), 3)?;
    let (inputs, outputs, bases) = (shape[0], shape[1], shape[2]);
    let knot_count = state.shape(&name("grid"), 2)?[1];
    let (grid, degree) = grid_and_degree(state, &name("grid"), bases, knot_count)?;
    let knots = state.get(&name("grid"), &[inputs, knot_count])?;
    let coef = state.get(&name("coef"), shape)?;
    let edge = [inputs, outputs];
    let scale_base = state.get(&name("scale_base"), &edge)?;
    let scale_sp = state.get(&name("scale_sp"), &edge)?;
    let mask = state.optional(&name("mask"), &edge, 1.0)?;
    let symbolic = format!("symbolic_fun.{n}.mask");
    if state.0.contains(&symbolic) {
        let mask = state.0.array(&symbolic)?.values.to_f64();
        if mask.iter().any(|&v| v != 0.0) {
            let problem = "an edge is symbolic; only splines can be imported";
            return Err(state.0.bad(&symbolic, problem));
        }
    }
    let node = |what: &str, absent| state.optional(&format!("{what}_{n}"), &[outputs], absent);
    let (node_scale, node_bias) = (node("node_scale", 1.0)?, node("node_bias", 0.0)?);
    let (sub_scale, sub_bias) = (node("subnode_scale", 1.0)?, node("subnode_bias", 0.0)?);
    let mut spline = vec![0.0; outputs * inputs * bases];
    let mut base = vec![0.0; outputs * inputs];
    for i in 0..inputs {
        for j in 0..outputs {
            let e = i * outputs + j;
            let scale = node_scale[j] * sub_scale[j] * mask[e];
            base[j * inputs + i] = scale * scale_base[e];
            for m in 0..bases {
                spline[(j * inputs + i) * bases + m] = scale * scale_sp[e] * coef[e * bases + m];
            }
        }
    }
    let bias = (0..outputs)
        .map(|j| node_scale[j] * sub_bias[j] + node_bias[j])
        .collect();
    Ok(ReadLayer {
        inputs,
        outputs,
        grid,
        degree,
        knots,
        spline,
        base,
        bias,
    })
}

fn assemble(layers: &[ReadLayer]) -> Result<(Network, Vec<f32>)> {
    let mut specs = Vec::new();
    let mut free = Vec::new();
    for layer in layers {
        let count = layer.grid + 2 * layer.degree + 1;
        let own = &layer.knots[..count];
        let range = [own[layer.degree], own[layer.degree + layer.grid]];
        let uniform = if range[0] < range[1] {
            uniform_knots(layer.grid, layer.degree, range)
        } else {
            Vec::new()
        };
        // Knots saved in f32 are uniform to within their last digits.
        let close = 1e-5 * (range[1] - range[0]).abs() / layer.grid as f64;
        let is_uniform = layer.knots.chunks_exact(count).all(|knots| {
            !uniform.is_empty()
                && knots
                    .iter()
                    .zip(&uniform)
                    .all(|(a, b)| (a - b).abs() <= close)
        });
        free.push(!is_uniform);
        let range = match is_uniform {
            true => range.map(|v| {
                // −1 was saved as −1.0000001: the number that was meant.
                let near = (v * 1e4).round() / 1e4;
                if (near - v).abs() <= close { near } else { v }
            }),
            false => range,
        };
        specs.push(LayerSpec::Kan(KanSpec {
            out: layer.outputs,
            grid: layer.grid,
            degree: layer.degree,
            range: if range[0] < range[1] {
                range
            } else {
                [-1.0, 1.0]
            },
            base: Base::Silu,
            bias: layer.bias.iter().any(|&b| b != 0.0),
            outside: Outside::Decay,
            free_knots: !is_uniform,
        }));
    }
    let mut network = Network::new(&NetworkSpec::new(&[layers[0].inputs], specs))?;
    let mut params = vec![0.0_f32; network.layout().len()];
    for (n, layer) in layers.iter().enumerate() {
        if free[n] {
            network.set_buffer(&Buffer {
                name: format!("{n}.knots"),
                shape: vec![layer.inputs, layer.knots.len() / layer.inputs],
                values: layer.knots.clone(),
            })?;
        }
        for (tensor, values) in [
            ("spline_weight", &layer.spline),
            ("base_weight", &layer.base),
            ("bias", &layer.bias),
        ] {
            if let Some(t) = network.layout().get(&format!("{n}.{tensor}")) {
                let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
                t.from_torch(&values, &mut params[t.range()]);
            }
        }
    }
    Ok((network, params))
}

/// Writes a network's state under another library's names. Refused where that library has no
/// place for something: a bias in efficient-kan, `outside = "clamp"`, no base function.
pub fn write_state(
    network: &Network,
    params: &[f32],
    kind: Exchange,
    path: impl AsRef<Path>,
) -> Result<()> {
    let path = path.as_ref();
    let layers = Layers::new(network)?;
    if layers.at[0] != 0 {
        return Err(Error::invalid(
            "export",
            "a normalize layer",
            "KAN layers alone",
        ));
    }
    let mut tensors = Vec::new();
    for layer in 0..layers.len() {
        check_layer(&layers, layer, params, kind)?;
        let mut put = |name: String, shape: Vec<usize>, values: Vec<f32>| {
            let values = Values::F32(values);
            tensors.push(NamedTensor {
                name,
                shape,
                values,
            });
        };
        match kind {
            Exchange::EfficientKan => put_efficient_kan(network, &layers, layer, params, &mut put),
            Exchange::Pykan => put_pykan(&layers, layer, params, &mut put),
        }
    }
    let metadata = BTreeMap::new();
    TensorFile { metadata, tensors }.write(path)
}

/// Whether the other library has a place for everything that a layer is.
fn check_layer(layers: &Layers<'_>, layer: usize, params: &[f32], kind: Exchange) -> Result<()> {
    let kan = layers.kan(layer);
    if kan.outside != Outside::Decay || kan.base != Base::Silu {
        let got = format!("{:?}, {:?}", kan.outside, kan.base);
        return Err(Error::invalid(
            format!("layer {layer} for export"),
            got,
            "decay and silu",
        ));
    }
    let [_, _, bias] = layers.weights(layer, params);
    if kind == Exchange::EfficientKan && bias.iter().any(|&b| b != 0.0) {
        let what = format!("layer {layer} for efficient-kan");
        return Err(Error::invalid(
            what,
            "a bias",
            "none: it has no place for one",
        ));
    }
    Ok(())
}

/// Takes a tensor's name, shape and values.
type Put<'a> = &'a mut dyn FnMut(String, Vec<usize>, Vec<f32>);

/// The knots of every input, as a tensor.
fn knots_of(kan: &Kan) -> (Vec<usize>, Vec<f32>) {
    let knots = (0..kan.inputs).flat_map(|i| kan.knots(i));
    let values = knots.map(|t| t as f32).collect();
    (vec![kan.inputs, kan.knot_count()], values)
}

fn put_efficient_kan(
    network: &Network,
    layers: &Layers<'_>,
    layer: usize,
    params: &[f32],
    put: Put<'_>,
) {
    let kan = layers.kan(layer);
    let (inputs, outputs, bases) = (kan.inputs, kan.outputs, kan.bases());
    let torch = |name: &str| {
        let tensor = network.layout().get(&format!("{layer}.{name}"));
        tensor
            .map(|t| t.to_torch(&params[t.range()]))
            .unwrap_or_default()
    };
    let mut put = |name: &str, shape, values| {
        put(format!("layers.{layer}.{name}"), shape, values);
    };
    put("base_weight", vec![outputs, inputs], torch("base_weight"));
    put(
        "spline_weight",
        vec![outputs, inputs, bases],
        torch("spline_weight"),
    );
    put(
        "spline_scaler",
        vec![outputs, inputs],
        vec![1.0; outputs * inputs],
    );
    let (shape, knots) = knots_of(kan);
    put("grid", shape, knots);
}

fn put_pykan(layers: &Layers<'_>, layer: usize, params: &[f32], put: Put<'_>) {
    let kan = layers.kan(layer);
    let (inputs, outputs, bases) = (kan.inputs, kan.outputs, kan.bases());
    let [spline, base, bias] = layers.weights(layer, params);
    let mut coef = vec![0.0; inputs * outputs * bases];
    for i in 0..inputs {
        for j in 0..outputs {
            for m in 0..bases {
                coef[(i * outputs + j) * bases + m] = spline[(i * bases + m) * outputs + j];
            }
        }
    }
    let ones = |n: usize| vec![1.0; n];
    let edge = vec![inputs, outputs];
    let act = |name: &str| format!("act_fun.{layer}.{name}");
    let (shape, knots) = knots_of(kan);
    put(act("grid"), shape, knots);
    put(act("coef"), vec![inputs, outputs, bases], coef);
    put(act("mask"), edge.clone(), ones(inputs * outputs));
    put(act("scale_base"), edge.clone(), base.to_vec());
    put(act("scale_sp"), edge, ones(inputs * outputs));
    let bias = match bias.is_empty() {
        true => vec![0.0; outputs],
        false => bias.to_vec(),
    };
    put(format!("node_bias_{layer}"), vec![outputs], bias);
    put(format!("node_scale_{layer}"), vec![outputs], ones(outputs));
    put(
        format!("subnode_bias_{layer}"),
        vec![outputs],
        vec![0.0; outputs],
    );
    put(
        format!("subnode_scale_{layer}"),
        vec![outputs],
        ones(outputs),
    );
    let affine = vec![0.0; outputs * inputs * 4];
    put(
        format!("symbolic_fun.{layer}.affine"),
        vec![outputs, inputs, 4],
        affine,
    );
    let mask = vec![0.0; outputs * inputs];
    put(
        format!("symbolic_fun.{layer}.mask"),
        vec![outputs, inputs],
        mask,
    );
}
