//! Networks as ONNX files, which other programs run.
//!
//! A layer's form in ONNX stands in the layer's folder (`ToOnnx`); here are the file, the way through
//! the layers, and what stands before and after them: the preparation of a table or an array, and the
//! predictions in the user's units and words. The operators are those of `OPSET`, elementary ones
//! where a layer has no operator of its own.

pub(crate) mod proto;

mod image;
mod preparation;
#[cfg(test)]
mod tests;

pub(crate) use image::denoiser;
pub(crate) use preparation::prepared;
pub(crate) use proto::{Attribute, Axis, Kind};

use crate::layer::TENSORS;
use crate::network::Network;
use crate::plan::{Value, before};
use crate::{Error, Model, Result};
use proto::{Message, Values, node, tensor, value};

/// The version of ONNX's operators: the first that compares texts.
const OPSET: i64 = 19;
/// The version of the file format that came with it.
const FORMAT: i64 = 9;

/// A layer that has a form in ONNX.
pub(crate) trait ToOnnx {
    /// Writes the operators of its inference and names their result.
    fn write(&self, to: &mut Site<'_>) -> String;
}

/// A model under construction.
#[derive(Default)]
pub(crate) struct Graph {
    nodes: Vec<Message>,
    constants: Vec<Message>,
    inputs: Vec<Message>,
    outputs: Vec<Message>,
    notes: Vec<(&'static str, String)>,
    count: usize,
}

impl Graph {
    fn name(&mut self, what: &str) -> String {
        self.count += 1;
        format!("{what}_{}", self.count)
    }

    /// An input that the caller brings.
    pub fn input(&mut self, name: &str, kind: Kind, shape: &[Axis]) -> String {
        self.inputs.push(value(name, kind, shape));
        name.to_string()
    }

    /// Gives a value to the caller under a name.
    pub fn output(&mut self, from: &str, name: &str, kind: Kind, shape: &[Axis]) {
        self.nodes.push(node("Identity", &[from], name, &[]));
        self.outputs.push(value(name, kind, shape));
    }

    /// Something that a reader of the file should know.
    pub fn note(&mut self, about: &'static str, text: String) {
        self.notes.push((about, text));
    }

    /// An operator without options.
    pub fn node(&mut self, operator: &str, inputs: &[&str]) -> String {
        self.node_with(operator, inputs, &[])
    }

    /// An operator.
    pub fn node_with(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute<'_>)],
    ) -> String {
        let output = self.name(operator);
        self.nodes.push(node(operator, inputs, &output, attributes));
        output
    }

    /// The first of the two values that an operator gives.
    pub fn first_of_two(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute<'_>)],
    ) -> String {
        let output = self.name(operator);
        let second = self.name(operator);
        let node = node(operator, inputs, &output, attributes);
        self.nodes.push(node.text(2, &second));
        output
    }

    fn constant(&mut self, what: &str, shape: &[usize], values: Values<'_>) -> String {
        let name = self.name(what);
        self.constants.push(tensor(&name, shape, values));
        name
    }

    /// A constant of f32s.
    pub fn f32s(&mut self, what: &str, shape: &[usize], values: &[f32]) -> String {
        self.constant(what, shape, Values::F32(values))
    }

    /// A single f32.
    pub fn f32(&mut self, value: f64) -> String {
        self.f32s("number", &[], &[value as f32])
    }

    /// A constant of f64s.
    pub fn f64s(&mut self, what: &str, shape: &[usize], values: &[f64]) -> String {
        self.constant(what, shape, Values::F64(values))
    }

    /// A constant list of integers.
    pub fn i64s(&mut self, values: &[i64]) -> String {
        self.constant("sizes", &[values.len()], Values::I64(values))
    }

    /// A constant list of texts.
    pub fn texts(&mut self, values: &[&str]) -> String {
        self.constant("names", &[values.len()], Values::Text(values))
    }

    /// Values in another type.
    pub fn cast(&mut self, x: &str, to: Kind) -> String {
        self.node_with("Cast", &[x], &[("to", Attribute::Int(to as i64))])
    }

    /// Part of an axis.
    pub fn slice(&mut self, x: &str, axis: i64, from: usize, to: usize) -> String {
        let [from, to] = [from, to].map(|at| self.i64s(&[at as i64]));
        let axis = self.i64s(&[axis]);
        self.node("Slice", &[x, &from, &to, &axis])
    }

    /// The same values under another shape; −1 stands for what follows from the others.
    pub fn reshape(&mut self, x: &str, shape: &[i64]) -> String {
        let shape = self.i64s(shape);
        self.node("Reshape", &[x, &shape])
    }

    /// The file's bytes.
    pub fn into_bytes(self, name: &str) -> Vec<u8> {
        let list = |m: Message, field, all: &[Message]| {
            all.iter().fold(m, |m, each| m.message(field, each))
        };
        let graph = list(Message::default(), 1, &self.nodes).text(2, name);
        let graph = list(graph, 5, &self.constants);
        let graph = list(graph, 11, &self.inputs);
        let graph = list(graph, 12, &self.outputs);
        let operators = Message::default().text(1, "").int(2, OPSET);
        let model = Message::default()
            .int(1, FORMAT)
            .text(2, "retrograd")
            .text(3, env!("CARGO_PKG_VERSION"))
            .message(7, &graph)
            .message(8, &operators);
        let notes = self.notes.iter().map(|(key, text)| {
            let note = Message::default();
            note.text(1, key).text(2, text)
        });
        let notes: Vec<Message> = notes.collect();
        list(model, 14, &notes).into_bytes()
    }
}

/// Where a layer writes itself.
pub(crate) struct Site<'a> {
    pub graph: &'a mut Graph,
    /// The name of what it reads.
    pub x: &'a str,
    /// The second value that a skip reads.
    pub other: Option<&'a str>,
    /// The shape of one sample before it.
    pub shape: &'a [usize],
    /// Its tensors by slot, as they are stored; empty where there is none.
    pub params: [&'a [f32]; TENSORS],
}

impl Site<'_> {
    /// y + b along the last axis, where there is a b.
    pub fn add_bias(&mut self, y: String, slot: usize) -> String {
        let bias = self.params[slot];
        if bias.is_empty() {
            return y;
        }
        let bias = self.graph.f32s("bias", &[bias.len()], bias);
        self.graph.node("Add", &[&y, &bias])
    }
}

/// Writes a network's layers after the value `x`, and names its output.
pub(crate) fn write_network(
    graph: &mut Graph,
    network: &Network,
    params: &[f32],
    x: &str,
) -> Result<String> {
    let mut values: Vec<String> = Vec::new();
    for (number, place) in network.places.iter().enumerate() {
        let Some(layer) = place.layer.to_onnx() else {
            return Err(Error::refused(
                "export --onnx",
                format!("layer {number}, {}, has no form in ONNX", place.kind),
            ));
        };
        let named = |value: Value| match value {
            Value::Input => x,
            Value::Of(layer) => &values[layer],
        };
        let shape = match before(number) {
            Value::Input => &network.spec().input[..],
            Value::Of(layer) => &network.places[layer].shape,
        };
        let y = layer.write(&mut Site {
            graph,
            x: named(before(number)),
            other: place.with.map(named),
            shape,
            params: network.layers().params_of(number, params),
        });
        values.push(y);
    }
    values
        .pop()
        .ok_or_else(|| Error::invalid("a network to export", "no layers", "one"))
}

/// A network by itself: `x` in, `y` out, both with an axis of samples before a sample's own.
pub fn network(network: &Network, params: &[f32]) -> Result<Vec<u8>> {
    let needed = network.layout().len();
    if params.len() != needed {
        return Err(Error::invalid("parameters to export", params.len(), needed));
    }
    let mut graph = Graph::default();
    let shape = |sample: &[usize]| -> Vec<Axis> {
        let sample = sample.iter().map(|&n| Axis::Fixed(n));
        std::iter::once(Axis::Named("samples"))
            .chain(sample)
            .collect()
    };
    let x = graph.input("x", Kind::F32, &shape(&network.spec().input));
    let y = write_network(&mut graph, network, params, &x)?;
    graph.output(&y, "y", Kind::F32, &shape(network.output_shape()));
    Ok(graph.into_bytes("network"))
}
