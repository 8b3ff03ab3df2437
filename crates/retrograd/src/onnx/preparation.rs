//! What stands before and after the layers: numbers and categories as users have them, and
//! predictions in their units and words.
//!
//! Numbers are scaled in f64, as [`Preparation`] does it. A table's number columns come in one input,
//! `numbers`, in the order of their names in the file's note; every category column is an input of
//! texts under its own name, every column of dates one of days since 1970.

use super::{Axis, Graph, Kind, write_network};
use crate::Result;
use crate::data::{Column, Cycle, Encoding, Inputs, Labels, Preparation, Scaling, TargetRule};
use crate::network::Network;

/// A trained network with its preparation, as a file's bytes.
pub(crate) fn prepared(
    network: &Network,
    params: &[f32],
    preparation: &Preparation,
) -> Result<Vec<u8>> {
    let mut graph = Graph::default();
    let x = match &preparation.inputs {
        Inputs::Columns(columns) => columns_of(&mut graph, columns),
        Inputs::Array { shape, scaling, .. } => array_of(&mut graph, shape, scaling),
    };
    let sample = preparation.sample_shape.iter().map(|&n| n as i64);
    let shape: Vec<i64> = std::iter::once(-1).chain(sample).collect();
    let x = graph.reshape(&x, &shape);
    let y = write_network(&mut graph, network, params, &x)?;
    let y = graph.reshape(&y, &[-1, network.output_len() as i64]);
    match &preparation.target {
        TargetRule::Values { names, scaling, .. } => {
            write_values(&mut graph, &y, names, scaling, network.output_len());
        }
        TargetRule::Classes { labels, .. } => write_classes(&mut graph, &y, labels, network),
    }
    Ok(graph.into_bytes("network"))
}

fn samples_of(width: usize) -> [Axis; 2] {
    [Axis::Named("samples"), Axis::Fixed(width)]
}

/// (x − shift) / scale in f64.
fn scaled(graph: &mut Graph, x: &str, shape: &[usize], shift: &[f64], scale: &[f64]) -> String {
    let shift = graph.f64s("shift", shape, shift);
    let scale = graph.f64s("scale", shape, scale);
    let x = graph.node("Sub", &[x, &shift]);
    graph.node("Div", &[&x, &scale])
}

fn array_of(graph: &mut Graph, shape: &[usize], scaling: &Scaling) -> String {
    let sample = shape.iter().map(|&n| Axis::Fixed(n));
    let axes: Vec<Axis> = std::iter::once(Axis::Named("samples"))
        .chain(sample)
        .collect();
    let x = graph.input("x", Kind::F32, &axes);
    let groups = scaling.shift.len();
    if groups == 0 {
        return x;
    }
    let len = shape.iter().product::<usize>();
    let wide = graph.cast(&x, Kind::F64);
    let grouped = graph.reshape(&wide, &[-1, groups as i64, (len / groups) as i64]);
    let x = scaled(
        graph,
        &grouped,
        &[groups, 1],
        &scaling.shift,
        &scaling.scale,
    );
    graph.cast(&x, Kind::F32)
}

/// A scaling's pair for a single value; nothing changes where it has none.
fn pair(scaling: &Scaling) -> (f64, f64) {
    let first = |values: &[f64], otherwise| values.first().copied().unwrap_or(otherwise);
    (first(&scaling.shift, 0.0), first(&scaling.scale, 1.0))
}

/// The encoded columns side by side, in f32.
fn columns_of(graph: &mut Graph, columns: &[Column]) -> String {
    let numbers: Vec<&Column> = columns
        .iter()
        .filter(|c| matches!(c.encoding, Encoding::Number { .. }))
        .collect();
    let encoded = (!numbers.is_empty()).then(|| numbers_of(graph, &numbers));
    let mut parts = Vec::new();
    let mut at = 0;
    for run in columns.chunk_by(|a, b| {
        [a, b]
            .iter()
            .all(|c| matches!(c.encoding, Encoding::Number { .. }))
    }) {
        match (&run[0].encoding, &encoded) {
            (Encoding::Number { .. }, Some(encoded)) if run.len() == numbers.len() => {
                parts.push(encoded.clone());
            }
            (Encoding::Number { .. }, Some(encoded)) => {
                parts.push(graph.slice(encoded, 1, at, at + run.len()));
                at += run.len();
            }
            (Encoding::Category { fill, labels }, _) => {
                parts.push(category(graph, &run[0].name, *fill, labels));
            }
            (
                Encoding::Date {
                    fill,
                    scaling,
                    cycles,
                    ..
                },
                _,
            ) => parts.push(date(graph, &run[0].name, *fill, scaling, cycles)),
            (Encoding::Number { .. }, None) => unreachable!("a number column makes `numbers`"),
        }
    }
    match parts.as_slice() {
        [one] => one.clone(),
        parts => {
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            graph.node_with("Concat", &parts, &[("axis", super::Attribute::Int(1))])
        }
    }
}

fn numbers_of(graph: &mut Graph, columns: &[&Column]) -> String {
    let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
    graph.note("numbers", serde_json::json!(names).to_string());
    let x = graph.input("numbers", Kind::F32, &samples_of(columns.len()));
    let mut x = graph.cast(&x, Kind::F64);
    let (mut fills, mut shifts, mut scales) = (Vec::new(), Vec::new(), Vec::new());
    for column in columns {
        if let Encoding::Number { fill, scaling } = &column.encoding {
            let (shift, scale) = pair(scaling);
            // Without a rule for missing numbers they stay what they are.
            fills.push(fill.unwrap_or(f64::NAN));
            shifts.push(shift);
            scales.push(scale);
        }
    }
    if fills.iter().any(|f| !f.is_nan()) {
        x = filled(graph, &x, &fills);
    }
    let n = columns.len();
    let x = scaled(graph, &x, &[n], &shifts, &scales);
    graph.cast(&x, Kind::F32)
}

/// x, or the fill where x is NaN.
fn filled(graph: &mut Graph, x: &str, fills: &[f64]) -> String {
    let missing = graph.node("IsNaN", &[x]);
    let fills = graph.f64s("fill", &[fills.len()], fills);
    graph.node("Where", &[&missing, &fills, x])
}

/// A column of texts: 1 at the category's place, 0 elsewhere. An empty text is a missing one.
fn category(graph: &mut Graph, name: &str, fill: Option<u32>, labels: &Labels) -> String {
    let mut x = graph.input(name, Kind::Text, &samples_of(1));
    if let Some(fill) = fill {
        let nothing = graph.texts(&[""]);
        let missing = graph.node("Equal", &[&x, &nothing]);
        let fill = graph.texts(&[&labels.names[fill as usize]]);
        x = graph.node("Where", &[&missing, &fill, &x]);
    }
    let names: Vec<&str> = labels.names.iter().map(String::as_str).collect();
    let names = graph.texts(&names);
    let equal = graph.node("Equal", &[&x, &names]);
    graph.cast(&equal, Kind::F32)
}

/// A column of days: scaled, and the sine and cosine of its place in every cycle.
fn date(
    graph: &mut Graph,
    name: &str,
    fill: Option<f64>,
    scaling: &Scaling,
    cycles: &[Cycle],
) -> String {
    let mut days = graph.input(name, Kind::F64, &samples_of(1));
    if let Some(fill) = fill {
        days = filled(graph, &days, &[fill]);
    }
    let (shift, scale) = pair(scaling);
    let mut parts = vec![scaled(graph, &days, &[1], &[shift], &[scale])];
    for cycle in cycles {
        let length = graph.f64s("cycle", &[1], &[cycle.days()]);
        let turns = graph.node("Div", &[&days, &length]);
        let whole = graph.node("Floor", &[&turns]);
        let part = graph.node("Sub", &[&turns, &whole]);
        let circle = graph.f64s("circle", &[1], &[std::f64::consts::TAU]);
        let angle = graph.node("Mul", &[&part, &circle]);
        parts.push(graph.node("Sin", &[&angle]));
        parts.push(graph.node("Cos", &[&angle]));
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let all = graph.node_with("Concat", &parts, &[("axis", super::Attribute::Int(1))]);
    graph.cast(&all, Kind::F32)
}

/// Outputs in the target's units.
fn write_values(graph: &mut Graph, y: &str, names: &[String], scaling: &Scaling, outputs: usize) {
    graph.note("values", serde_json::json!(names).to_string());
    let mut y = y.to_string();
    let groups = scaling.shift.len();
    if groups > 0 {
        let wide = graph.cast(&y, Kind::F64);
        let grouped = graph.reshape(&wide, &[-1, groups as i64, (outputs / groups) as i64]);
        let scale = graph.f64s("scale", &[groups, 1], &scaling.scale);
        let shift = graph.f64s("shift", &[groups, 1], &scaling.shift);
        let product = graph.node("Mul", &[&grouped, &scale]);
        let sum = graph.node("Add", &[&product, &shift]);
        let flat = graph.reshape(&sum, &[-1, outputs as i64]);
        y = graph.cast(&flat, Kind::F32);
    }
    graph.output(&y, "values", Kind::F32, &samples_of(outputs));
}

/// The class in the user's words, and the probability of every class.
fn write_classes(graph: &mut Graph, y: &str, labels: &Labels, network: &Network) {
    graph.note("classes", serde_json::json!(labels.names).to_string());
    let mut logits = y.to_string();
    if network.output_len() == 1 {
        // σ(z) is the softmax of (0, z).
        let zero = graph.f32(0.0);
        let nothing = graph.node("Mul", &[y, &zero]);
        let axis = [("axis", super::Attribute::Int(1))];
        logits = graph.node_with("Concat", &[&nothing, y], &axis);
    }
    let axis = [("axis", super::Attribute::Int(1))];
    let probabilities = graph.node_with("Softmax", &[&logits], &axis);
    graph.output(
        &probabilities,
        "probabilities",
        Kind::F32,
        &samples_of(labels.names.len()),
    );
    let options = [
        ("axis", super::Attribute::Int(1)),
        ("keepdims", super::Attribute::Int(0)),
    ];
    let best = graph.node_with("ArgMax", &[&logits], &options);
    let names: Vec<&str> = labels.names.iter().map(String::as_str).collect();
    let names = graph.texts(&names);
    let class = graph.node("Gather", &[&names, &best]);
    graph.output(&class, "class", Kind::Text, &[Axis::Named("samples")]);
}
