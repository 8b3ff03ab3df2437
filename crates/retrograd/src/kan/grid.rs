//! Grids that follow the data, and grids that grow finer.
//!
//! Both keep the functions on the edges: the spline of every edge is refitted on the new knots by
//! least squares. With points x_p of weight ω_p, A[p,m] = B_m(x_p) on the new knots and b_p the old
//! spline there, the coefficients c solve (AᵀΩA)·c = AᵀΩb by Cholesky, in f64, one factorisation
//! for all outputs of an input.

use serde::{Deserialize, Serialize};

use super::edges::Layers;
use crate::layer::kan::KanSpec;
use crate::layer::kan::{Kan, reference};
use crate::linalg::{cholesky, cholesky_solve};
use crate::math;
use crate::network::{LayerSpec, Network};
use crate::{Buffer, Error, Model, Result};

/// How knots follow the data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GridUpdate {
    /// The share of the uniform grid in the blend with the data's quantiles; efficient-kan's and
    /// pykan's `grid_eps`. More than 0, so that knots increase where many samples are equal.
    pub uniform: f64,
    /// How far the grid reaches beyond the samples, as a share of their range.
    pub margin: f64,
}

impl Default for GridUpdate {
    fn default() -> Self {
        GridUpdate {
            uniform: 0.02,
            margin: 0.01,
        }
    }
}

/// When knots follow the data during training: `[model] update_grid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridSchedule {
    /// After every so many epochs.
    pub every: u64,
    /// Up to the end of this one; the last that is followed by another where it isn't written.
    #[serde(default)]
    pub until: Option<u64>,
}

impl GridSchedule {
    /// Whether they do after that many epochs.
    pub fn is_due(&self, epochs: u64) -> bool {
        epochs.is_multiple_of(self.every) && self.until.is_none_or(|until| epochs <= until)
    }
}

/// How well the new splines reproduce the old ones, over all edges and fitted points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refit {
    /// The largest difference of an edge's value.
    pub largest: f64,
    /// The root of the mean square.
    pub rms: f64,
    /// The root of the mean square of the old values, to compare with.
    pub scale: f64,
}

/// Weight of points that only keep the old function where there are no samples.
const BACKGROUND: f64 = 1e-3;
/// Points per interval of the new grid over which the function is kept.
const POINTS: usize = 8;

/// Moves the knots of every KAN layer to where a batch has its samples. Returns the network with
/// free knots, its parameters, and how well the functions were kept on the samples.
pub fn update_grid(
    network: &Network,
    params: &[f32],
    x: &[f32],
    options: &GridUpdate,
) -> Result<(Network, Vec<f32>, Refit)> {
    if !(options.uniform > 0.0 && options.uniform <= 1.0) {
        return Err(Error::invalid(
            "grid update's uniform share",
            options.uniform,
            "0 < share ≤ 1",
        ));
    }
    if !(options.margin >= 0.0 && options.margin.is_finite()) {
        return Err(Error::invalid(
            "grid update's margin",
            options.margin,
            "a finite number ≥ 0",
        ));
    }
    let layers = Layers::new(network)?;
    let values = layers.values(params, x)?;
    let plans = (0..layers.len()).map(|layer| {
        let kan = layers.kan(layer);
        let samples = values[layer].len() / kan.inputs;
        let mut knots = Vec::new();
        let mut points = Vec::new();
        for i in 0..kan.inputs {
            let mut x: Vec<f64> = (0..samples)
                .map(|s| f64::from(values[layer][s * kan.inputs + i]))
                .collect();
            x.sort_by(f64::total_cmp);
            let own = adapted_knots(kan, &x, options);
            let share = BACKGROUND * samples as f64 / (POINTS * kan.grid) as f64;
            let background = spread(&own, kan, kan.grid).map(|x| (x, share));
            points.push(x.into_iter().map(|x| (x, 1.0)).chain(background).collect());
            knots.extend(own);
        }
        (kan.grid, Some(knots), points)
    });
    let plans: Vec<_> = plans.collect();
    rebuild(network, params, &layers, plans)
}

/// Cuts the grid of every KAN layer into `grid` intervals over the same range. Where the new grid
/// is a multiple of the old one every old spline is one of the new ones inside the range; else it
/// is fitted by least squares. Outside the range the splines fade within k of the new, shorter
/// intervals.
pub fn extend_grid(
    network: &Network,
    params: &[f32],
    grid: usize,
) -> Result<(Network, Vec<f32>, Refit)> {
    let layers = Layers::new(network)?;
    let mut plans = Vec::new();
    for layer in 0..layers.len() {
        let kan = layers.kan(layer);
        if grid < kan.grid || grid > 64 {
            let needed = format!("{} (what it has) to 64", kan.grid);
            return Err(Error::invalid("new grid", grid, needed));
        }
        let mut knots = Vec::new();
        let mut points = Vec::new();
        for i in 0..kan.inputs {
            let own = finer_knots(&kan.knots(i), kan.grid, kan.degree, grid);
            points.push(
                spread(&own, &with_grid(kan, grid), grid)
                    .map(|x| (x, 1.0))
                    .collect(),
            );
            knots.extend(own);
        }
        plans.push((grid, kan.free_knots.is_some().then_some(knots), points));
    }
    rebuild(network, params, &layers, plans)
}

fn with_grid(kan: &Kan, grid: usize) -> Kan {
    let Kan {
        inputs,
        outputs,
        degree,
        range,
        base,
        bias,
        outside,
        ..
    } = *kan;
    Kan::new(inputs, outputs, grid, degree, range, base, bias, outside)
}

/// Points inside the range, POINTS to an interval, the ends among them but the last one kept just
/// inside, where the splines of the range still hold.
fn spread<'a>(knots: &'a [f64], kan: &Kan, grid: usize) -> impl Iterator<Item = f64> + 'a {
    let k = kan.degree;
    (0..grid).flat_map(move |n| {
        let (a, b) = (knots[k + n], knots[k + n + 1]);
        (0..POINTS).map(move |p| a + (b - a) * (p as f64 + 0.5) / POINTS as f64)
    })
}

/// Grid points at quantiles of sorted samples, blended with uniform ones, k more on either side.
fn adapted_knots(kan: &Kan, sorted: &[f64], options: &GridUpdate) -> Vec<f64> {
    let (grid, degree) = (kan.grid, kan.degree);
    let (least, most) = (sorted[0], sorted[sorted.len() - 1]);
    // All samples equal: a grid around them of the old width.
    let old = kan.knots(0);
    let width = if most > least {
        most - least
    } else {
        old[degree + grid] - old[degree]
    };
    let (lo, hi) = (
        least - options.margin * width,
        most + options.margin * width,
    );
    let (lo, hi) = if most > least {
        (lo, hi)
    } else {
        (lo - width / 2.0, hi + width / 2.0)
    };
    let step = (hi - lo) / grid as f64;
    let inner: Vec<f64> = (0..=grid)
        .map(|n| {
            let uniform = lo + n as f64 * step;
            let rank = n as f64 / grid as f64 * (sorted.len() - 1) as f64;
            let (below, part) = (rank.floor() as usize, rank.fract());
            let above = (below + 1).min(sorted.len() - 1);
            let quantile = sorted[below] + part * (sorted[above] - sorted[below]);
            // The ends reach to the margin.
            let adaptive = match n {
                0 => lo,
                n if n == grid => hi,
                _ => quantile,
            };
            options.uniform * uniform + (1.0 - options.uniform) * adaptive
        })
        .collect();
    let before = (1..=degree).rev().map(|n| inner[0] - n as f64 * step);
    let after = (1..=degree).map(|n| inner[grid] + n as f64 * step);
    let knots = before.chain(inner.iter().copied()).chain(after);
    // f32 keeps the kernels' and the files' knots the same.
    knots.map(|t| f64::from(t as f32)).collect()
}

/// The old grid points read as a function of their number, at `grid` + 1 equal steps.
fn finer_knots(old: &[f64], old_grid: usize, degree: usize, grid: usize) -> Vec<f64> {
    let inner = &old[degree..=degree + old_grid];
    let points: Vec<f64> = (0..=grid)
        .map(|n| {
            let at = n as f64 * old_grid as f64 / grid as f64;
            let below = (at.floor() as usize).min(old_grid - 1);
            inner[below] + (at - below as f64) * (inner[below + 1] - inner[below])
        })
        .collect();
    let (first, last) = (points[1] - points[0], points[grid] - points[grid - 1]);
    let before = (1..=degree).rev().map(|n| points[0] - n as f64 * first);
    let after = (1..=degree).map(|n| points[grid] + n as f64 * last);
    before.chain(points.iter().copied()).chain(after).collect()
}

/// The grid of a layer, its new free knots, and for every input the points and weights of the fit.
type LayerPlan = (usize, Option<Vec<f64>>, Vec<Vec<(f64, f64)>>);

fn rebuild(
    network: &Network,
    params: &[f32],
    layers: &Layers<'_>,
    plans: Vec<LayerPlan>,
) -> Result<(Network, Vec<f32>, Refit)> {
    let mut spec = network.spec().clone();
    for ((new_grid, knots, _), &at) in plans.iter().zip(&layers.at) {
        if let LayerSpec::Kan(KanSpec {
            grid, free_knots, ..
        }) = &mut spec.layers[at]
        {
            *grid = *new_grid;
            *free_knots = knots.is_some();
        }
    }
    let mut new = Network::new(&spec)?;
    for buffer in network.buffers() {
        if !buffer.name.ends_with(".knots") {
            new.set_buffer(&buffer)?;
        }
    }
    for ((_, knots, _), &at) in plans.iter().zip(&layers.at) {
        if let Some(knots) = knots {
            let inputs = layers
                .kan(layers.at.iter().position(|&l| l == at).unwrap_or(0))
                .inputs;
            new.set_buffer(&Buffer {
                name: format!("{at}.knots"),
                shape: vec![inputs, knots.len() / inputs],
                values: knots.clone(),
            })?;
        }
    }
    let mut new_params = vec![0.0; new.layout().len()];
    let (mut largest, mut squares, mut size, mut count) = (0.0_f64, 0.0, 0.0, 0_usize);
    let new_layers = Layers::new(&new)?;
    for (layer, (_, _, points)) in plans.iter().enumerate() {
        let (old_kan, new_kan) = (layers.kan(layer), new_layers.kan(layer));
        let [spline, ..] = layers.weights(layer, params);
        let at = layers.at[layer];
        let ranges = new.places[at].tensors.clone();
        for slot in [1, 2] {
            new_params[ranges[slot].clone()]
                .copy_from_slice(&params[network.places[at].tensors[slot].clone()]);
        }
        let own = &mut new_params[ranges[0].clone()];
        for (i, points) in points.iter().enumerate() {
            let error = refit_input(old_kan, new_kan, i, spline, own, points);
            largest = math::max(largest, error.0);
            squares += error.1;
            size += error.2;
            count += error.3;
        }
    }
    let n = count.max(1) as f64;
    let refit = Refit {
        largest,
        rms: (squares / n).sqrt(),
        scale: (size / n).sqrt(),
    };
    Ok((new, new_params, refit))
}

/// Fits the splines of all outputs of one input. Returns the largest error, the sums of squared
/// errors and values, and their number, over points of full weight.
fn refit_input(
    old: &Kan,
    new: &Kan,
    input: usize,
    old_weights: &[f32],
    new_weights: &mut [f32],
    points: &[(f64, f64)],
) -> (f64, f64, f64, usize) {
    let (n, outputs) = (new.bases(), new.outputs);
    let old_bases = old.bases();
    let (old_knots, new_knots) = (old.knots(input), new.knots(input));
    let mut gram = vec![0.0; n * n];
    let mut right = vec![0.0; n * outputs];
    let mut rows = Vec::with_capacity(points.len());
    let (mut old_values, mut old_slopes) = (vec![0.0; old_bases], vec![0.0; old_bases]);
    let mut slopes = vec![0.0; n];
    for &(x, weight) in points {
        let mut row = vec![0.0; n];
        reference::basis(new.degree, &new_knots, x, &mut row, &mut slopes);
        reference::basis(old.degree, &old_knots, x, &mut old_values, &mut old_slopes);
        let y: Vec<f64> = (0..outputs)
            .map(|j| {
                (0..old_bases)
                    .map(|m| {
                        let w = old_weights[(input * old_bases + m) * outputs + j];
                        old_values[m] * f64::from(w)
                    })
                    .sum()
            })
            .collect();
        for a in 0..n {
            if row[a] == 0.0 {
                continue;
            }
            for b in 0..n {
                gram[a * n + b] += weight * row[a] * row[b];
            }
            for (j, y) in y.iter().enumerate() {
                right[a * outputs + j] += weight * row[a] * y;
            }
        }
        rows.push((row, y, weight));
    }
    // A basis function that no point touches gets 0 from a ridge far below the fit's accuracy.
    let trace: f64 = (0..n).map(|a| gram[a * n + a]).sum();
    for a in 0..n {
        gram[a * n + a] += 1e-13 * math::max(trace, f64::MIN_POSITIVE);
    }
    cholesky(&mut gram, n, f64::MIN_POSITIVE);
    cholesky_solve(&gram, &mut right, n, outputs);
    for m in 0..n {
        for j in 0..outputs {
            new_weights[(input * n + m) * outputs + j] = right[m * outputs + j] as f32;
        }
    }
    let (mut largest, mut squares, mut size, mut count) = (0.0_f64, 0.0, 0.0, 0);
    for (row, y, weight) in &rows {
        if *weight < 1.0 {
            continue;
        }
        for j in 0..outputs {
            let fitted: f64 = (0..n)
                .map(|m| row[m] * f64::from(new_weights[(input * n + m) * outputs + j]))
                .sum();
            let error = (fitted - y[j]).abs();
            largest = math::max(largest, error);
            squares += error * error;
            size += y[j] * y[j];
            count += 1;
        }
    }
    (largest, squares, size, count)
}
