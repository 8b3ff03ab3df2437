//! What a network of two inputs says about the plane around its data.

use std::fmt::Write;

use super::{Content, Figure};
use crate::data::image::encode_png;
use crate::data::{Dataset, Targets};
use crate::graph::draw;
use crate::math;
use crate::network::Network;
use crate::{Model, Pass};

/// Places along a side where the network is asked.
const SIDE: usize = 96;

/// Samples that are drawn.
const POINTS: usize = 400;

/// The plane coloured by what the network says, with samples on it; none for networks of other inputs.
pub(super) fn figure(network: &Network, params: &[f32], data: &Dataset) -> Option<Figure> {
    if data.sample_len() != 2 || data.len() == 0 {
        return None;
    }
    let points = &data.inputs()[..data.len().min(POINTS) * 2];
    let [x, y] = [0, 1].map(|c| range(points.iter().skip(c).step_by(2)));
    let step = |[from, to]: [f32; 2], i: usize| from + (to - from) * (i as f32 + 0.5) / SIDE as f32;
    // Rows from above, as pictures have them.
    let places: Vec<f32> = (0..SIDE * SIDE)
        .flat_map(|i| [step(x, i % SIDE), step(y, SIDE - 1 - i / SIDE)])
        .collect();
    let mut tape = Default::default();
    let pass = Pass::inference();
    network.forward(params, &places, &pass, &mut tape).ok()?;
    let outputs = network.output(&tape);
    let width = outputs.len() / (SIDE * SIDE);
    let classes = match data.targets() {
        Targets::Classes { classes, .. } => Some(classes),
        _ => None,
    };
    let [low, high] = range(outputs.iter().step_by(width));
    let samples: Vec<u8> = outputs
        .chunks_exact(width)
        .flat_map(|row| match classes {
            Some(_) => mixture(row),
            None => ramp((row[0] - low) / (high - low)),
        })
        .collect();
    let (colour, depth) = (png::ColorType::Rgb, png::BitDepth::Eight);
    let png = encode_png([SIDE, SIDE], colour, depth, &samples).ok()?;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 100 100\">\
         <image width=\"100\" height=\"100\" preserveAspectRatio=\"none\" \
         href=\"data:image/png;base64,{}\"/>",
        super::report::base64(&png)
    );
    for (i, point) in points.chunks_exact(2).enumerate() {
        let at = |v: f32, [from, to]: [f32; 2]| 100.0 * (v - from) / (to - from);
        let fill = classes.map_or("#fff", |classes| draw::colour(classes[i]));
        let _ = write!(
            svg,
            "<circle cx=\"{:.2}\" cy=\"{:.2}\" r=\"0.9\" fill=\"{fill}\" stroke=\"#fff\" \
             stroke-width=\"0.25\"/>",
            at(point[0], x),
            100.0 - at(point[1], y)
        );
    }
    svg.push_str("</svg>");
    Some(Figure {
        title: "The plane".into(),
        caption: "What the network says at every place, and samples.".into(),
        content: Content::Svg(svg),
    })
}

/// From the least to the largest, a tenth wider; never empty.
fn range<'a>(values: impl Iterator<Item = &'a f32>) -> [f32; 2] {
    let start = [f32::INFINITY, f32::NEG_INFINITY];
    let [low, high] = values.fold(start, |[low, high], &v| {
        [math::min(low, v), math::max(high, v)]
    });
    let margin = math::max((high - low) * 0.05, 1e-6);
    [low - margin, high + margin]
}

/// The colours of the classes, mixed by their probabilities.
fn mixture(logits: &[f32]) -> [u8; 3] {
    let largest = logits
        .iter()
        .fold(f32::NEG_INFINITY, |a, &b| math::max(a, b));
    let weights: Vec<f64> = match logits {
        // One logit is that of the second class.
        &[logit] => {
            let p = 1.0 / (1.0 + math::exp(-f64::from(logit)));
            vec![1.0 - p, p]
        }
        _ => {
            let each = logits.iter().map(|&l| math::exp(f64::from(l - largest)));
            each.collect()
        }
    };
    let sum: f64 = weights.iter().sum();
    let mut mixed = [0.0; 3];
    for (class, weight) in weights.iter().enumerate() {
        let hex = u32::from_str_radix(&draw::colour(class as u32)[1..], 16).unwrap_or(0);
        for (c, m) in mixed.iter_mut().enumerate() {
            *m += weight / sum * f64::from(hex >> (16 - 8 * c) & 0xff);
        }
    }
    // Half as strong as the samples.
    mixed.map(|m| (0.5 * m + 127.5).round() as u8)
}

/// From blue over white to orange.
fn ramp(share: f32) -> [u8; 3] {
    let (ends, middle) = ([[59.0, 130.0, 246.0], [245.0, 158.0, 11.0]], [245.0; 3]);
    let (end, far) = match share < 0.5 {
        true => (ends[0], 1.0 - 2.0 * share),
        false => (ends[1], 2.0 * share - 1.0),
    };
    [0, 1, 2].map(|c: usize| {
        (middle[c] + (end[c] - middle[c]) * far)
            .clamp(0.0, 255.0)
            .round() as u8
    })
}
