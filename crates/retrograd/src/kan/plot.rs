//! Pictures of a network: nodes, and on every edge its learned function, the more opaque the more
//! it matters. As SVG, and the same lines as PNG.

use super::edges::{Edge, EdgeImportance, Layers, curve};
use crate::data::Preparation;
use crate::data::image::encode_png;
use crate::data::prepare::TargetRule;
use crate::math;
use crate::network::Network;
use crate::{Error, Result};

/// How the picture is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlotOptions {
    /// Edges per layer at most; of larger layers the most important ones are drawn.
    pub edges: usize,
    /// Edges below this share of their layer's largest importance are left out.
    pub threshold: f64,
}

impl Default for PlotOptions {
    fn default() -> Self {
        PlotOptions {
            edges: 32,
            threshold: 0.01,
        }
    }
}

/// What inputs and outputs are called.
pub(crate) struct Names {
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
}

impl Names {
    /// Columns, and what is predicted, by the user's words.
    pub(crate) fn of(preparation: &Preparation, outputs: usize) -> Self {
        Names {
            inputs: preparation.input_names(),
            outputs: output_names(preparation, outputs),
        }
    }
}

/// What is predicted, by the user's words.
fn output_names(preparation: &Preparation, outputs: usize) -> Vec<String> {
    match &preparation.target {
        TargetRule::Values { names, .. } if names.len() == outputs => names.clone(),
        TargetRule::Classes { labels, .. } if labels.names.len() == outputs => labels
            .names
            .iter()
            .map(|label| format!("logit({label})"))
            .collect(),
        TargetRule::Classes { labels, .. } => vec![format!("logit({})", labels.names[1])],
        TargetRule::Values { .. } => (1..=outputs).map(|i| format!("y{i}")).collect(),
    }
}

/// Room below the inputs for their names, which lean so that they don't meet.
const NAMES: f64 = 110.0;

enum Shape {
    Line {
        points: Vec<(f64, f64)>,
        width: f64,
        opacity: f64,
    },
    Box {
        x: f64,
        y: f64,
        side: f64,
        opacity: f64,
    },
    Dot {
        x: f64,
        y: f64,
        radius: f64,
    },
    Label {
        x: f64,
        y: f64,
        text: String,
    },
    /// A name that ends at its place, from below on the left.
    Leaning {
        x: f64,
        y: f64,
        text: String,
    },
}

struct Scene {
    width: f64,
    height: f64,
    shapes: Vec<Shape>,
}

const SIDE: f64 = 44.0;
const LEVEL: f64 = 190.0;
const MARGIN: f64 = 40.0;
const POINTS: usize = 33;
/// In levels of more nodes, those that no drawn edge touches are left out.
const CROWDED: usize = 64;

/// Where nodes and edges are drawn, and which edges.
struct Drawing<'a> {
    layers: Layers<'a>,
    importance: EdgeImportance,
    /// The largest importance of every layer.
    largest: Vec<f64>,
    /// The drawn edges, by layer.
    edges: Vec<Edge>,
    /// Nodes of every level.
    widths: Vec<usize>,
    /// The width between the margins.
    inner: f64,
    height: f64,
}

impl<'a> Drawing<'a> {
    fn new(layers: Layers<'a>, importance: EdgeImportance, options: &PlotOptions) -> Self {
        let mut widths = vec![layers.size(0).0];
        widths.extend((0..layers.len()).map(|l| layers.size(l).1));
        let height = layers.len() as f64 * LEVEL + 2.0 * MARGIN;
        let largest = (0..layers.len()).map(|l| importance.largest(l));
        let mut drawing = Drawing {
            largest: largest.collect(),
            layers,
            importance,
            edges: Vec::new(),
            widths,
            inner: 0.0,
            height,
        };
        drawing.edges = drawing.most_important(options);
        let most = (0..drawing.layers.len()).map(|layer| drawing.drawn(layer));
        let most = most.max().unwrap_or(1);
        let widest = drawing.widths.iter().copied().max().unwrap_or(1);
        drawing.inner = math::max(
            math::max(
                most as f64 * (SIDE + 8.0),
                widest.min(CROWDED) as f64 * 18.0,
            ),
            240.0,
        );
        drawing
    }

    /// The edges that are drawn.
    fn most_important(&self, options: &PlotOptions) -> Vec<Edge> {
        let mut edges = Vec::new();
        for layer in 0..self.layers.len() {
            let matters = |&e: &Edge| e.layer == layer && self.relative(e) > options.threshold;
            let mut own: Vec<Edge> = self.layers.edges().filter(matters).collect();
            own.sort_by(|&a, &b| self.relative(b).total_cmp(&self.relative(a)));
            own.truncate(options.edges);
            own.sort();
            edges.extend(own);
        }
        edges
    }

    /// An edge's importance beside its layer's largest.
    fn relative(&self, e: Edge) -> f64 {
        self.importance.of(e) / math::max(self.largest[e.layer], f64::MIN_POSITIVE)
    }

    fn of_layer(&self, layer: usize) -> impl Iterator<Item = Edge> {
        self.edges.iter().copied().filter(move |e| e.layer == layer)
    }

    /// The number of a layer's drawn edges.
    fn drawn(&self, layer: usize) -> usize {
        self.of_layer(layer).count()
    }

    /// Inputs at the bottom, as pykan draws them.
    fn level_y(&self, level: usize) -> f64 {
        self.height - MARGIN - level as f64 * LEVEL
    }

    fn node_x(&self, level: usize, n: usize) -> f64 {
        MARGIN + self.inner * (n as f64 + 0.5) / self.widths[level] as f64
    }

    /// A layer's edges; `values` are those of its inputs.
    fn add_edges(&self, layer: usize, params: &[f32], values: &[f32], shapes: &mut Vec<Shape>) {
        let kan = self.layers.kan(layer);
        let weights = self.layers.weights(layer, params);
        let count = self.drawn(layer);
        for (n, edge) in self.of_layer(layer).enumerate() {
            let opacity = 0.15 + 0.85 * math::tanh(2.5 * self.relative(edge));
            let centre = MARGIN + self.inner * (n as f64 + 0.5) / count as f64;
            let middle = self.level_y(layer) - LEVEL / 2.0;
            let (left, top) = (centre - SIDE / 2.0, middle - SIDE / 2.0);
            let line = |a: (f64, f64), b: (f64, f64)| Shape::Line {
                points: vec![a, b],
                width: 1.0,
                opacity: 0.6 * opacity,
            };
            let from = (self.node_x(layer, edge.from), self.level_y(layer));
            let to = (self.node_x(layer + 1, edge.to), self.level_y(layer + 1));
            shapes.push(line(from, (centre, top + SIDE)));
            shapes.push(line((centre, top), to));
            shapes.push(Shape::Box {
                x: left,
                y: top,
                side: SIDE,
                opacity,
            });
            let own = values.iter().skip(edge.from).step_by(kan.inputs);
            let (lo, hi) = own.fold((f64::MAX, f64::MIN), |(l, h), &v| {
                (math::min(l, f64::from(v)), math::max(h, f64::from(v)))
            });
            let hi = if hi > lo { hi } else { lo + 1.0 };
            let at: Vec<f64> = (0..POINTS)
                .map(|p| lo + (hi - lo) * p as f64 / (POINTS - 1) as f64)
                .collect();
            let y = curve(kan, weights, edge.from, edge.to, &at);
            shapes.push(Shape::Line {
                points: points_in_box(&y, left, top),
                width: 1.8,
                opacity,
            });
        }
    }

    /// A level's nodes, and the names of inputs and outputs.
    fn add_nodes(&self, level: usize, shapes: &mut Vec<Shape>) {
        let count = self.widths[level];
        let joined = |n: usize| {
            self.edges
                .iter()
                .any(|e| (e.layer == level && e.from == n) || (e.layer + 1 == level && e.to == n))
        };
        for n in (0..count).filter(|&n| count <= CROWDED || joined(n)) {
            let (x, y) = (self.node_x(level, n), self.level_y(level));
            shapes.push(Shape::Dot { x, y, radius: 4.5 });
            if count <= 30 && (level == 0 || level == self.widths.len() - 1) {
                let (name, below) = if level == 0 {
                    ("x", 20.0)
                } else {
                    ("y", -10.0)
                };
                shapes.push(Shape::Label {
                    x,
                    y: y + below,
                    text: format!("{name}{}", n + 1),
                });
            }
        }
    }

    /// What a layer's picture leaves out.
    fn add_caption(&self, layer: usize, shapes: &mut Vec<Shape>) {
        let (inputs, outputs) = self.layers.size(layer);
        let (drawn, all) = (self.drawn(layer), inputs * outputs);
        if drawn < all {
            shapes.push(Shape::Label {
                x: (self.inner + 2.0 * MARGIN) / 2.0,
                y: self.level_y(layer) - LEVEL / 2.0 - SIDE / 2.0 - 8.0,
                text: format!("the {drawn} edges of {all} that matter most"),
            });
        }
    }
}

/// A curve's points in an edge's box, from its least to its largest value.
fn points_in_box(y: &[f64], left: f64, top: f64) -> Vec<(f64, f64)> {
    let (least, largest) = y.iter().fold((f64::MAX, f64::MIN), |(l, h), &v| {
        (math::min(l, v), math::max(h, v))
    });
    let span = if largest > least {
        largest - least
    } else {
        1.0
    };
    let points = y.iter().enumerate().map(|(p, y)| {
        let u = p as f64 / (POINTS - 1) as f64;
        let v = (y - least) / span;
        (
            left + 4.0 + u * (SIDE - 8.0),
            top + SIDE - 4.0 - v * (SIDE - 8.0),
        )
    });
    points.collect()
}

/// The picture with the names of inputs and outputs, as an SVG element.
pub(crate) fn plot_named(
    network: &Network,
    params: &[f32],
    x: &[f32],
    options: &PlotOptions,
    names: &Names,
) -> Result<String> {
    let mut scene = scene(network, params, x, options)?;
    let levels = [scene.height - MARGIN, MARGIN];
    // In the place of x1, x2 … and of what the picture leaves out, which lines run across.
    let mut named = Vec::new();
    for shape in scene.shapes {
        match shape {
            Shape::Label { .. } => {}
            Shape::Dot { x, y, radius } => {
                let all = [(&names.inputs, levels[0]), (&names.outputs, levels[1])];
                for (i, (names, level)) in all.iter().enumerate() {
                    let place = (x - MARGIN) / scene_inner(scene.width) * names.len() as f64;
                    let text = names.get(place as usize).map(|name| short(name));
                    if let (true, Some(text)) = ((y - level).abs() < 1.0, text) {
                        named.push(match i {
                            0 => Shape::Leaning {
                                x,
                                y: y + 16.0,
                                text,
                            },
                            _ => Shape::Label {
                                x,
                                y: y - 12.0,
                                text,
                            },
                        });
                    }
                }
                named.push(Shape::Dot { x, y, radius });
            }
            other => named.push(other),
        }
    }
    scene.shapes = named;
    scene.height += NAMES;
    Ok(svg_of(&scene))
}

/// The width between the margins.
fn scene_inner(width: f64) -> f64 {
    width - 2.0 * MARGIN
}

/// A name as long as there is room for, safe in SVG.
fn short(name: &str) -> String {
    const SHOWN: usize = 18;
    let cut: String = name.chars().take(SHOWN).collect();
    let cut = if name.chars().count() > SHOWN {
        cut + "…"
    } else {
        cut
    };
    cut.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn scene(network: &Network, params: &[f32], x: &[f32], options: &PlotOptions) -> Result<Scene> {
    let layers = Layers::new(network)?;
    let importance = EdgeImportance::measure(network, params, x)?;
    let values = layers.values(params, x)?;
    let drawing = Drawing::new(layers, importance, options);
    let count = drawing.layers.len();
    let mut shapes = Vec::new();
    for layer in 0..count {
        drawing.add_edges(layer, params, &values[layer], &mut shapes);
    }
    for level in 0..=count {
        drawing.add_nodes(level, &mut shapes);
    }
    for layer in 0..count {
        drawing.add_caption(layer, &mut shapes);
    }
    Ok(Scene {
        width: drawing.inner + 2.0 * MARGIN,
        height: drawing.height,
        shapes,
    })
}

/// The picture as an SVG element; ranges and importance come from a batch of inputs.
pub fn plot_svg(
    network: &Network,
    params: &[f32],
    x: &[f32],
    options: &PlotOptions,
) -> Result<String> {
    Ok(svg_of(&scene(network, params, x, options)?))
}

fn svg_of(scene: &Scene) -> String {
    use std::fmt::Write as _;
    // A leaning name ends at its node, so that of the first may begin left of the picture: some 8 units
    // a letter at this size, less by the cosine of 50 degrees.
    let begins = |shape: &Shape| match shape {
        Shape::Leaning { x, text, .. } => x - 0.65 * 8.0 * text.chars().count() as f64,
        _ => 0.0,
    };
    let left = scene.shapes.iter().map(begins).fold(0.0, math::min).floor();
    let width = scene.width - left;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{left:.0} 0 {width:.0} {:.0}\" \
         style=\"max-width:{width:.0}px;width:100%\" font-family=\"sans-serif\" font-size=\"13\">\n",
        scene.height
    );
    for shape in &scene.shapes {
        // Writing to a String cannot fail.
        let _ = match shape {
            Shape::Line {
                points,
                width,
                opacity,
            } => {
                let list: Vec<String> = points
                    .iter()
                    .map(|(x, y)| format!("{x:.1},{y:.1}"))
                    .collect();
                writeln!(
                    svg,
                    "<polyline points=\"{}\" fill=\"none\" stroke=\"currentColor\" \
                     stroke-width=\"{width}\" opacity=\"{opacity:.2}\"/>",
                    list.join(" ")
                )
            }
            Shape::Box {
                x,
                y,
                side,
                opacity,
            } => writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{side}\" height=\"{side}\" \
                 fill=\"none\" stroke=\"currentColor\" opacity=\"{opacity:.2}\"/>"
            ),
            Shape::Dot { x, y, radius } => writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"currentColor\"/>"
            ),
            Shape::Label { x, y, text } => writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" \
                 fill=\"currentColor\">{text}</text>"
            ),
            Shape::Leaning { x, y, text } => writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"end\" fill=\"currentColor\" \
                 transform=\"rotate(-50 {x:.1} {y:.1})\">{text}</text>"
            ),
        };
    }
    svg.push_str("</svg>\n");
    svg
}

/// The same lines, boxes and nodes as PNG, black on white, twice the size; without labels.
pub fn plot_png(
    network: &Network,
    params: &[f32],
    x: &[f32],
    options: &PlotOptions,
) -> Result<Vec<u8>> {
    const SCALE: f64 = 2.0;
    let scene = scene(network, params, x, options)?;
    let [width, height] = [scene.width, scene.height].map(|v| (v * SCALE).ceil() as usize);
    let mut ink = Canvas {
        width,
        height,
        light: vec![255; width * height],
    };
    for shape in &scene.shapes {
        match shape {
            Shape::Line {
                points,
                width,
                opacity,
            } => {
                for pair in points.windows(2) {
                    let [a, b] = [pair[0], pair[1]].map(|(x, y)| (x * SCALE, y * SCALE));
                    ink.stroke(a, b, width * SCALE, *opacity);
                }
            }
            Shape::Box {
                x,
                y,
                side,
                opacity,
            } => {
                let [l, t, r, b] = [*x, *y, x + side, y + side].map(|v| v * SCALE);
                let corners = [(l, t), (r, t), (r, b), (l, b), (l, t)];
                for pair in corners.windows(2) {
                    ink.stroke(pair[0], pair[1], SCALE, *opacity);
                }
            }
            Shape::Dot { x, y, radius } => {
                let at = (x * SCALE, y * SCALE);
                ink.stroke(at, at, 2.0 * radius * SCALE, 1.0);
            }
            Shape::Label { .. } | Shape::Leaning { .. } => {}
        }
    }
    let (grey, depth) = (png::ColorType::Grayscale, png::BitDepth::Eight);
    encode_png([width, height], grey, depth, &ink.light)
        .map_err(|e| Error::invalid("picture", e, "a PNG"))
}

struct Canvas {
    width: usize,
    height: usize,
    /// The pixels as they are written: three million of them in the widest picture.
    light: Vec<u8>,
}

impl Canvas {
    /// A line with round ends: every pixel near it is darkened by how much of it is covered.
    fn stroke(&mut self, a: (f64, f64), b: (f64, f64), width: f64, opacity: f64) {
        let reach = width / 2.0 + 1.0;
        let span = |p: f64, q: f64, most: usize| {
            let first = math::max((math::min(p, q) - reach).floor(), 0.0) as usize;
            let last = (math::max((math::max(p, q) + reach).ceil(), 0.0) as usize).min(most);
            first..last
        };
        let (dx, dy) = (b.0 - a.0, b.1 - a.1);
        let length = math::max(dx * dx + dy * dy, 1e-12);
        for row in span(a.1, b.1, self.height) {
            for column in span(a.0, b.0, self.width) {
                let (px, py) = (column as f64 + 0.5, row as f64 + 0.5);
                let t = (((px - a.0) * dx + (py - a.1) * dy) / length).clamp(0.0, 1.0);
                let distance = math::hypot(px - a.0 - t * dx, py - a.1 - t * dy);
                let cover = (width / 2.0 + 0.5 - distance).clamp(0.0, 1.0) * opacity;
                let light = &mut self.light[row * self.width + column];
                let shade = (255.0 * (1.0 - math::min(cover, 1.0))).round();
                *light = math::min(shade, f64::from(*light)) as u8;
            }
        }
    }
}
