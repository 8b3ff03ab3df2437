//! Pictures for the report: a graph drawn by springs, and rows projected to the plane.

use crate::math;
use std::collections::BTreeSet;
use std::fmt::Write;

use super::structure::Graph;
use crate::rng::Key;

/// Colours of classes, distinct in light and dark, and to the colour-blind: those of Okabe and Ito, one of
/// Tol and a brown. To who lacks one kind of cones any two of them are 16 apart in CIELAB, or more
/// (`web/tests/colours.mjs`).
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#645028",
];

/// The colour of a class.
pub fn colour(class: u32) -> &'static str {
    COLOURS[class as usize % COLOURS.len()]
}

/// Places in the unit square: edges pull, all nodes push (Fruchterman and Reingold), the same for
/// the same graph. Quadratic in the nodes: for graphs of a few hundred.
pub fn spring_layout(graph: &Graph) -> Vec<[f64; 2]> {
    let n = graph.nodes();
    let mut stream = Key::new(0).purpose("layout").stream();
    let mut at: Vec<[f64; 2]> = (0..n)
        .map(|_| [stream.uniform(), stream.uniform()])
        .collect();
    let k = (1.0 / n.max(1) as f64).sqrt();
    let lines = lines(graph);
    const ROUNDS: usize = 300;
    for round in 0..ROUNDS {
        let mut force = vec![[0.0; 2]; n];
        let mut push = |a: usize, b: usize, strength: f64, at: &[[f64; 2]]| {
            let d = [at[a][0] - at[b][0], at[a][1] - at[b][1]];
            let length = math::max(math::hypot(d[0], d[1]), 1e-6);
            let f = strength
                * if strength > 0.0 {
                    k * k / length
                } else {
                    length * length / k
                };
            for c in 0..2 {
                force[a][c] += d[c] / length * f;
                force[b][c] -= d[c] / length * f;
            }
        };
        for a in 0..n {
            for b in 0..a {
                push(a, b, 1.0, &at);
            }
        }
        for &(s, t) in &lines {
            push(s as usize, t as usize, -1.0, &at);
        }
        let limit = 0.1 * (1.0 - round as f64 / ROUNDS as f64);
        for (place, force) in at.iter_mut().zip(force) {
            let length = math::max(math::hypot(force[0], force[1]), 1e-9);
            for c in 0..2 {
                place[c] += force[c] / length * math::min(length, limit);
            }
        }
    }
    fit(&mut at);
    at
}

/// The pairs of nodes with an edge between them, once for both directions.
fn lines(graph: &Graph) -> BTreeSet<(u32, u32)> {
    let ends = graph.sources().iter().zip(graph.targets());
    let lines = ends.map(|(&s, &t)| (s.min(t), s.max(t)));
    lines.filter(|(s, t)| s != t).collect()
}

/// Several graphs side by side, in rows of four, each filled by its predicted class and ringed by
/// the true one where that differs.
pub fn gallery(graphs: &[&Graph], predicted: &[u32], truth: &[u32], names: &[String]) -> String {
    const ACROSS: usize = 4;
    let (mut places, mut said, mut was) = (Vec::new(), Vec::new(), Vec::new());
    for (g, graph) in graphs.iter().enumerate() {
        let corner = [g % ACROSS, g / ACROSS].map(|c| c as f64 / ACROSS as f64);
        for [x, y] in spring_layout(graph) {
            places.push([x, y].map(|p| p * 0.8 / ACROSS as f64));
            let place = places.last_mut().expect("just pushed");
            place[0] += corner[0];
            place[1] += corner[1];
        }
        said.resize(places.len(), predicted[g]);
        was.resize(places.len(), truth[g]);
    }
    let all = Graph::union(graphs.iter().copied());
    circles(&places, Some(&all), [&said, &was], names, false)
}

/// Stretches places to the unit square.
fn fit(at: &mut [[f64; 2]]) {
    for c in 0..2 {
        let low = at.iter().map(|p| p[c]).fold(f64::INFINITY, math::min);
        let high = at.iter().map(|p| p[c]).fold(f64::NEG_INFINITY, math::max);
        for p in at.iter_mut() {
            p[c] = if high > low {
                (p[c] - low) / (high - low)
            } else {
                0.5
            };
        }
    }
}

/// The two directions in which rows differ most (principal components), as places in the unit
/// square.
pub fn project(rows: &[f32], width: usize) -> Vec<[f64; 2]> {
    let n = rows.len() / width.max(1);
    if n == 0 || width == 0 {
        return Vec::new();
    }
    let mut x: Vec<f64> = rows.iter().map(|&v| f64::from(v)).collect();
    for c in 0..width {
        let mean = (0..n).map(|i| x[i * width + c]).sum::<f64>() / n as f64;
        (0..n).for_each(|i| x[i * width + c] -= mean);
    }
    let mut places = vec![[0.0; 2]; n];
    let mut stream = Key::new(0).purpose("projection").stream();
    for axis in 0..2 {
        let mut direction: Vec<f64> = (0..width).map(|_| stream.normal()).collect();
        let mut along = vec![0.0; n];
        for _ in 0..60 {
            let norm = math::max(norm_of(&direction), 1e-300);
            direction.iter_mut().for_each(|d| *d /= norm);
            for (i, a) in along.iter_mut().enumerate() {
                *a = (0..width).map(|c| x[i * width + c] * direction[c]).sum();
            }
            let next: Vec<f64> = (0..width)
                .map(|c| (0..n).map(|i| along[i] * x[i * width + c]).sum())
                .collect();
            if next.iter().all(|d| *d == 0.0) {
                break;
            }
            direction = next;
        }
        let norm = math::max(norm_of(&direction), 1e-300);
        for i in 0..n {
            let a = (0..width)
                .map(|c| x[i * width + c] * direction[c])
                .sum::<f64>()
                / norm;
            places[i][axis] = a;
            // The second direction is sought in what the first leaves.
            for c in 0..width {
                x[i * width + c] -= a * direction[c] / norm;
            }
        }
    }
    fit(&mut places);
    places
}

/// The length of a vector.
fn norm_of(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// A drawing: edges as lines, nodes as circles filled by predicted class, ringed by the true one
/// where it differs, with their numbers where there is room for them.
pub fn drawing(
    places: &[[f64; 2]],
    graph: Option<&Graph>,
    predicted: &[u32],
    truth: &[u32],
    names: &[String],
) -> String {
    let numbered = places.len() <= LARGE;
    circles(places, graph, [predicted, truth], names, numbered)
}

/// Up to this many, nodes are drawn large.
const LARGE: usize = 60;

fn circles(
    places: &[[f64; 2]],
    graph: Option<&Graph>,
    [predicted, truth]: [&[u32]; 2],
    names: &[String],
    numbered: bool,
) -> String {
    const SIZE: f64 = 520.0;
    let names: Vec<String> = names.iter().map(|name| in_words(name)).collect();
    let point = |p: [f64; 2]| [20.0 + p[0] * (SIZE - 40.0), 20.0 + p[1] * (SIZE - 40.0)];
    let radius = match places.len() {
        ..=LARGE => 9.0,
        ..=400 if graph.is_some() => 4.0,
        _ => 2.5,
    };
    let legend = legend(&names, SIZE);
    let height = legend.last().map_or(SIZE, |at| SIZE + at[1] + 12.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {SIZE} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">"
    );
    if let Some(graph) = graph {
        svg.push_str("<g stroke=\"currentColor\" stroke-opacity=\"0.25\">");
        for (s, t) in lines(graph) {
            let ([x1, y1], [x2, y2]) = (point(places[s as usize]), point(places[t as usize]));
            let _ = write!(svg, "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"/>");
        }
        svg.push_str("</g>");
    }
    for (i, &place) in places.iter().enumerate() {
        let [x, y] = point(place);
        let fill = colour(predicted[i]);
        let ring = if predicted[i] == truth[i] {
            String::new()
        } else {
            let thick = if radius > 5.0 { 3.0 } else { 1.5 };
            format!(" stroke=\"{}\" stroke-width=\"{thick}\"", colour(truth[i]))
        };
        let _ = write!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\"{ring}>\
                             <title>{i}</title></circle>"
        );
        if numbered {
            // Right after its circle: one that is drawn over another covers the number as well.
            let _ = write!(
                svg,
                "<text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"9\" font-weight=\"bold\" \
                 text-anchor=\"middle\" fill=\"#fff\" pointer-events=\"none\">{i}</text>",
                y + 3.2
            );
        }
    }
    for ((class, name), [x, y]) in names.iter().enumerate().zip(legend) {
        let y = SIZE + y;
        let fill = colour(class as u32);
        let name = escaped(name);
        let _ = write!(
            svg,
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"5\" fill=\"{fill}\"/>\
                             <text x=\"{}\" y=\"{}\" fill=\"currentColor\">{name}</text>",
            x + 9.0,
            y + 4.0
        );
    }
    svg.push_str("</svg>");
    svg
}

/// Names at their places, coloured by class: a projection of few rows.
pub fn names_at(places: &[[f64; 2]], names: &[String], classes: &[u32]) -> String {
    const SIZE: f64 = 520.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {SIZE} {SIZE}\" \
         font-family=\"monospace\" font-size=\"18\" font-weight=\"bold\" text-anchor=\"middle\">"
    );
    for ((&[x, y], name), &class) in places.iter().zip(names).zip(classes) {
        let [x, y] = [x, y].map(|p| 20.0 + p * (SIZE - 40.0));
        let (fill, name) = (colour(class), escaped(name));
        let _ = write!(
            svg,
            "<text x=\"{x:.1}\" y=\"{:.1}\" fill=\"{fill}\">{name}</text>",
            y + 6.0
        );
    }
    svg.push_str("</svg>");
    svg
}

/// The name of a class as a reader would write it.
fn in_words(name: &str) -> String {
    if name.chars().all(|c| c.is_ascii_digit()) {
        format!("class {name}")
    } else {
        name.replace('_', " ")
    }
}

fn escaped(name: &str) -> String {
    name.replace('&', "&amp;").replace('<', "&lt;")
}

/// Where the names go below a drawing of that width: side by side, in as many lines as they need.
fn legend(names: &[String], size: f64) -> Vec<[f64; 2]> {
    let (mut x, mut y) = (20.0, 12.0);
    let mut places = Vec::new();
    for name in names {
        let width = 24.0 + 7.0 * name.chars().count() as f64;
        if x > 20.0 && x + width > size {
            (x, y) = (20.0, y + 18.0);
        }
        places.push([x, y]);
        x += width;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_projection_finds_the_two_directions_of_a_flat_cloud() {
        let mut stream = Key::new(2).stream();
        let mut rows = Vec::new();
        for _ in 0..50 {
            let (a, b) = (10.0 * stream.normal(), stream.normal());
            rows.extend([a as f32, (a + b) as f32, (a - b) as f32]);
        }
        let places = project(&rows, 3);
        // Along the first direction, places are a linear function of a (the first number).
        let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
        let mean_a = rows.iter().step_by(3).map(|&v| f64::from(v)).sum::<f64>() / 50.0;
        let mean_p = places.iter().map(|p| p[0]).sum::<f64>() / 50.0;
        for (i, p) in places.iter().enumerate() {
            let (a, p) = (f64::from(rows[3 * i]) - mean_a, p[0] - mean_p);
            xy += a * p;
            xx += a * a;
            yy += p * p;
        }
        assert!((xy / (xx * yy).sqrt()).abs() > 0.999);
        assert_eq!(project(&[], 3), Vec::<[f64; 2]>::new());
    }

    #[test]
    fn long_names_are_spread_over_lines_within_the_drawing() {
        let names: Vec<String> = (0..7)
            .map(|i| format!("Probabilistic_Methods_{i}"))
            .collect();
        let places = legend(&names, 520.0);
        let width = 9.0 + 7.0 * 23.0;
        assert!(places.iter().all(|&[x, _]| x >= 20.0 && x + width <= 520.0));
        let mut lines: Vec<f64> = places.iter().map(|&[_, y]| y).collect();
        lines.dedup();
        assert_eq!(lines, [12.0, 30.0, 48.0, 66.0]);
        let svg = drawing(&[], None, &[], &[], &names);
        assert!(svg.contains("viewBox=\"0 0 520 598\""), "{svg}");
    }

    #[test]
    fn neighbours_are_drawn_near_each_other() {
        // Two cliques joined by one edge: the mean distance within is below that between.
        let (mut a, mut b) = (vec![0], vec![5]);
        for g in [0, 5] {
            for i in 0..5 {
                for j in 0..i {
                    a.push(g + i);
                    b.push(g + j);
                }
            }
        }
        let graph = Graph::undirected(10, &a, &b).unwrap();
        let at = spring_layout(&graph);
        let mean = |pick: fn(usize, usize) -> bool| {
            let pairs = (0..10).flat_map(|i| (0..i).map(move |j| (i, j)));
            let chosen: Vec<f64> = pairs
                .filter(|&(i, j)| pick(i, j))
                .map(|(i, j)| (at[i][0] - at[j][0]).hypot(at[i][1] - at[j][1]))
                .collect();
            chosen.iter().sum::<f64>() / chosen.len() as f64
        };
        assert!(mean(|i, j| (i < 5) == (j < 5)) < 0.7 * mean(|i, j| (i < 5) != (j < 5)));
        let classes = vec![0; 10];
        let names = ["a<b".into(), "Rule_Learning".into(), "3".into()];
        let svg = drawing(&at, Some(&graph), &classes, &classes, &names);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"));
        for shown in [">a&lt;b<", ">Rule Learning<", ">class 3<", ">9</text>"] {
            assert!(svg.contains(shown), "{shown}");
        }
        // The numbers of several graphs' nodes would say nothing.
        let svg = gallery(&[&graph], &[0], &[0], &names);
        assert!(!svg.contains(">9</text>"));
    }
}
