//! A denoiser: an image of any size in its own units, and the same image without its noise.
//!
//! What [`Normalisation`](crate::data::normalise::Normalisation) does is done here with a sort: the
//! median, 1.4826 times the median deviation from it, the standard deviation where that is 0, and 1
//! where an image is constant. Of images beyond its sample the medians are over all pixels.

use super::{Attribute, Axis, Graph, Kind, write_network};
use crate::Result;
use crate::data::normalise::DEVIATION_OVER_MAD;
use crate::network::Network;

/// The network, built for any size, whose images have sides of multiples of `align`.
pub(crate) fn denoiser(network: &Network, params: &[f32], align: usize) -> Result<Vec<u8>> {
    let mut graph = Graph::default();
    graph.note("sides", format!("multiples of {align}"));
    let shape = [Axis::Named("height"), Axis::Named("width")];
    let image = graph.input("image", Kind::F32, &shape);
    let flat = graph.reshape(&image, &[-1]);
    let centre = median(&mut graph, &flat);
    let scale = scale(&mut graph, &flat, &centre);
    let one = graph.f32(1.0);
    let factor = graph.node("Div", &[&one, &scale]);
    let x = graph.node("Sub", &[&image, &centre]);
    let x = graph.node("Mul", &[&x, &factor]);
    let front = graph.i64s(&[0, 1]);
    let x = graph.node("Unsqueeze", &[&x, &front]);
    let y = write_network(&mut graph, network, params, &x)?;
    let y = graph.node("Squeeze", &[&y, &front]);
    let y = graph.node("Mul", &[&y, &scale]);
    let y = graph.node("Add", &[&y, &centre]);
    graph.output(&y, "denoised", Kind::F32, &shape);
    Ok(graph.into_bytes("denoiser"))
}

/// The lower median of a list, as a list of one.
fn median(graph: &mut Graph, values: &str) -> String {
    let count = graph.node("Shape", &[values]);
    let [one, two] = [1, 2].map(|n| graph.i64s(&[n]));
    let last = graph.node("Sub", &[&count, &one]);
    let middle = graph.node("Div", &[&last, &two]);
    // The smallest ones up to the middle; the last of them is it.
    let wanted = graph.node("Add", &[&middle, &one]);
    let options = [("largest", Attribute::Int(0)), ("axis", Attribute::Int(0))];
    let sorted = graph.first_of_two("TopK", &[values, &wanted], &options);
    graph.node("Gather", &[&sorted, &middle])
}

/// The first of robust deviation, standard deviation and 1 that is above 0.
fn scale(graph: &mut Graph, values: &str, centre: &str) -> String {
    let away = graph.node("Sub", &[values, centre]);
    let distance = graph.node("Abs", &[&away]);
    let median = median(graph, &distance);
    let median = graph.cast(&median, Kind::F64);
    let ratio = graph.f64s("ratio", &[1], &[DEVIATION_OVER_MAD]);
    let robust = graph.node("Mul", &[&median, &ratio]);
    let robust = graph.cast(&robust, Kind::F32);
    let wide = graph.cast(&away, Kind::F64);
    let mean = graph.node("ReduceMean", &[&wide]);
    let rest = graph.node("Sub", &[&wide, &mean]);
    let squares = graph.node("Mul", &[&rest, &rest]);
    let variance = graph.node("ReduceMean", &[&squares]);
    let deviation = graph.node("Sqrt", &[&variance]);
    let deviation = graph.cast(&deviation, Kind::F32);
    let [zero, one] = [0.0, 1.0].map(|v| graph.f32(v));
    let varies = graph.node("Greater", &[&deviation, &zero]);
    let otherwise = graph.node("Where", &[&varies, &deviation, &one]);
    let spreads = graph.node("Greater", &[&robust, &zero]);
    graph.node("Where", &[&spreads, &robust, &otherwise])
}
