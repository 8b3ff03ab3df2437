//! A network whose edges are functions of the library: fitted to a KAN's edges, tuned on data,
//! and read as a formula.
//!
//! Every edge is a sum of terms c·f(a·x + b), every node has an offset. Constants that say the
//! same twice are folded at once (the a of a square into its c), so that tuning is well posed.
//!
//! With h the inputs of a layer and o_j = offset_j + Σ_i Σ_terms c·f(a·h_i + b), z = a·h_i + b:
//! d_c = Σ d_o_j·f(z), d_a = Σ d_o_j·c·f′(z)·h_i, d_b = Σ d_o_j·c·f′(z),
//! d_h_i = Σ_j d_o_j·c·f′(z)·a, d_offset_j = Σ d_o_j.

use super::edges::{Edge, EdgeImportance, Layers, curve};
use super::expression::Expression;
use super::symbolic::{Candidate, Function, LIBRARY, fit_all, fit_function};
use crate::math;
use crate::network::Network;
use crate::optim::Lbfgs;
use crate::{Error, Layout, Model, Result};

/// How edges are turned into functions.
#[derive(Clone, Debug)]
pub struct SymbolicOptions {
    /// The functions to choose from.
    pub library: Vec<Function>,
    /// An edge below this share of the largest importance of its layer is left out.
    pub threshold: f64,
    /// Below this R² of the best function, a sum of two is tried.
    pub enough: f64,
    /// Points per edge at most.
    pub points: usize,
}

impl Default for SymbolicOptions {
    fn default() -> Self {
        SymbolicOptions {
            library: LIBRARY.to_vec(),
            threshold: 0.02,
            enough: 0.9995,
            points: 200,
        }
    }
}

/// c·f(a·x + b).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Term {
    function: Function,
    pub a: f64,
    pub b: f64,
    pub c: f64,
}

impl Term {
    /// With constants that say the same twice folded together; also what is left over as offset.
    fn folded(candidate: &Candidate) -> (Self, f64) {
        let Candidate {
            function, a, b, c, ..
        } = *candidate;
        let size = a.abs();
        let shift = b / a;
        let (a, b, c, extra) = match function {
            Function::Identity => (1.0, 0.0, c * a, c * b),
            Function::Square => (1.0, shift, c * a * a, 0.0),
            Function::Cube => (1.0, shift, c * a * a * a, 0.0),
            Function::Fourth => (1.0, shift, c * math::powi(a, 4), 0.0),
            Function::Inverse => (1.0, shift, c / a, 0.0),
            Function::InverseSquare => (1.0, shift, c / (a * a), 0.0),
            Function::Abs => (1.0, shift, c * size, 0.0),
            Function::Sqrt => (a.signum(), b / size, c * size.sqrt(), 0.0),
            Function::InverseSqrt => (a.signum(), b / size, c / size.sqrt(), 0.0),
            Function::Log => (a.signum(), b / size, c, c * math::ln(size)),
            Function::Exp => (a, 0.0, c * math::exp(b), 0.0),
            _ => (a, b, c, 0.0),
        };
        (Term { function, a, b, c }, extra)
    }

    /// Which of a, b and c are tuned.
    fn free(&self) -> [bool; 3] {
        match self.function {
            Function::Identity => [false, false, true],
            Function::Exp => [true, false, true],
            Function::Sin | Function::Cos | Function::Tan | Function::Tanh => [true; 3],
            Function::Sigmoid | Function::Gaussian | Function::Arctan => [true; 3],
            _ => [false, true, true],
        }
    }
}

/// An edge as a sum of functions.
#[derive(Clone, Debug)]
pub struct SymbolicEdge {
    /// Which edge.
    pub edge: Edge,
    pub(super) terms: Vec<Term>,
    /// How well it fits the KAN's edge.
    pub r2: f64,
}

impl SymbolicEdge {
    /// Its functions.
    pub fn functions(&self) -> Vec<Function> {
        self.terms.iter().map(|t| t.function).collect()
    }
}

/// A network of functions.
#[derive(Clone, Debug)]
pub struct SymbolicNetwork {
    sizes: Vec<usize>,
    layers: Vec<Vec<SymbolicEdge>>,
    offsets: Vec<Vec<f64>>,
    /// What stands before the first layer: x·scale + shift.
    input: Vec<(f64, f64)>,
}

impl SymbolicNetwork {
    /// Fits every edge that matters on a batch of inputs.
    pub fn from_kan(
        network: &Network,
        params: &[f32],
        x: &[f32],
        options: &SymbolicOptions,
    ) -> Result<Self> {
        let layers = Layers::new(network)?;
        let importance = EdgeImportance::measure(network, params, x)?;
        let values = layers.values(params, x)?;
        let mut sizes = vec![layers.size(0).0];
        let mut all = Vec::new();
        let mut offsets = Vec::new();
        for layer in 0..layers.len() {
            let kan = layers.kan(layer);
            let weights = layers.weights(layer, params);
            let mut own = Vec::new();
            let mut offset: Vec<f64> = match weights[2].is_empty() {
                true => vec![0.0; kan.outputs],
                false => weights[2].iter().map(|&b| f64::from(b)).collect(),
            };
            let samples = values[layer].len() / kan.inputs;
            let step = samples.div_ceil(options.points.max(8));
            let least = options.threshold * importance.largest(layer);
            for from in 0..kan.inputs {
                let x: Vec<f64> = (0..samples)
                    .step_by(step)
                    .map(|s| f64::from(values[layer][s * kan.inputs + from]))
                    .collect();
                for to in 0..kan.outputs {
                    let edge = Edge { layer, from, to };
                    let y = curve(kan, weights, from, to, &x);
                    if importance.of(edge) <= least {
                        offset[to] += y.iter().sum::<f64>() / y.len() as f64;
                        continue;
                    }
                    let (fitted, extra) = fit_edge(edge, &x, &y, options);
                    offset[to] += extra;
                    own.push(fitted);
                }
            }
            sizes.push(kan.outputs);
            all.push(own);
            offsets.push(offset);
        }
        let mut input = vec![(1.0, 0.0); sizes[0]];
        let buffers = network.buffers();
        let statistics = |name: &str| buffers.iter().find(|b| b.name == name);
        if let (Some(mean), Some(std)) = (statistics("0.mean"), statistics("0.std")) {
            for (i, place) in input.iter_mut().enumerate() {
                *place = (1.0 / std.values[i], -mean.values[i] / std.values[i]);
            }
        }
        Ok(SymbolicNetwork {
            sizes,
            layers: all,
            offsets,
            input,
        })
    }

    /// The edges that are left.
    pub fn edges(&self) -> impl Iterator<Item = &SymbolicEdge> {
        self.layers.iter().flatten()
    }

    /// Gives an edge this function, fitted to what the edge computes on some inputs. An error
    /// where there is no such edge or the function has no value on them. Returns R².
    pub fn fix(&mut self, edge: Edge, function: Function, x: &[f32]) -> Result<f64> {
        let inputs = self.sizes[0];
        let no_edge = || {
            let got = format!("{edge:?}");
            Error::invalid("edge to fix", got, "an edge that is left")
        };
        let place = self
            .layers
            .get(edge.layer)
            .and_then(|l| l.iter().position(|e| e.edge == edge))
            .ok_or_else(no_edge)?;
        let mut h = Vec::new();
        for sample in x.chunks_exact(inputs) {
            let sample: Vec<f64> = sample.iter().map(|&v| f64::from(v)).collect();
            h.push(self.levels(&sample)[edge.layer][edge.from]);
        }
        let old = &self.layers[edge.layer][place];
        let value = |h: f64| -> f64 {
            let terms = old.terms.iter();
            terms.map(|t| t.c * t.function.value(t.a * h + t.b)).sum()
        };
        let y: Vec<f64> = h.iter().map(|&h| value(h)).collect();
        let fitted = fit_function(function, &h, &y).ok_or_else(|| {
            Error::invalid(
                format!("{function} on {edge:?}"),
                "no fit",
                "values in its domain",
            )
        })?;
        let (term, extra) = Term::folded(&fitted);
        let own = &mut self.layers[edge.layer][place];
        own.terms = vec![term];
        own.r2 = fitted.r2;
        self.offsets[edge.layer][edge.to] += extra + fitted.d;
        Ok(fitted.r2)
    }

    /// The values of all levels for one sample.
    fn levels(&self, x: &[f64]) -> Vec<Vec<f64>> {
        let first = x
            .iter()
            .zip(&self.input)
            .map(|(x, (s, t))| x * s + t)
            .collect();
        let mut levels: Vec<Vec<f64>> = vec![first];
        for (edges, offset) in self.layers.iter().zip(&self.offsets) {
            let h = levels.last().expect("the input");
            let mut o = offset.clone();
            for edge in edges {
                for t in &edge.terms {
                    o[edge.edge.to] += t.c * t.function.value(t.a * h[edge.edge.from] + t.b);
                }
            }
            levels.push(o);
        }
        levels
    }

    /// The outputs for one sample.
    pub fn value(&self, x: &[f64]) -> Vec<f64> {
        self.levels(x).pop().expect("the output")
    }

    /// The root of the mean squared error on a batch.
    pub fn rms(&self, x: &[f64], target: &[f64]) -> f64 {
        let outputs = self.sizes[self.sizes.len() - 1];
        let sum: f64 = x
            .chunks_exact(self.sizes[0])
            .zip(target.chunks_exact(outputs))
            .map(|(x, t)| {
                let y = self.value(x);
                y.iter().zip(t).map(|(y, t)| (y - t) * (y - t)).sum::<f64>()
            })
            .sum();
        (sum / target.len().max(1) as f64).sqrt()
    }

    fn constants(&self) -> Vec<f64> {
        let mut p = Vec::new();
        for (edges, offset) in self.layers.iter().zip(&self.offsets) {
            for t in edges.iter().flat_map(|e| &e.terms) {
                p.extend([t.a, t.b, t.c]);
            }
            p.extend(offset);
        }
        p
    }

    fn set_constants(&mut self, p: &[f64]) {
        let mut p = p.iter().copied();
        let mut next = || p.next().expect("as many as there are");
        for (edges, offset) in self.layers.iter_mut().zip(&mut self.offsets) {
            for t in edges.iter_mut().flat_map(|e| &mut e.terms) {
                [t.a, t.b, t.c] = [next(), next(), next()];
            }
            for o in offset {
                *o = next();
            }
        }
    }

    /// Tunes all constants on data, in f64, by L-BFGS on the mean squared error. Returns the root
    /// of the mean squared error.
    pub fn refine(&mut self, x: &[f64], target: &[f64], iterations: usize) -> f64 {
        let mut p = self.constants();
        let mut layout = Layout::new();
        layout.push("constants", &[p.len()]);
        let lbfgs = Lbfgs {
            iterations,
            history: 30,
            tolerance_grad: 1e-13,
            tolerance_change: 1e-15,
        };
        let mut trial = self.clone();
        lbfgs.minimise(&mut p, &layout, |p: &[f64], g: &mut [f64]| {
            trial.set_constants(p);
            trial.gradient(x, target, g)
        });
        self.set_constants(&p);
        self.rms(x, target)
    }

    /// Looks for plainer functions: a nearly straight piece of a sine or of 1/x fits a nearly
    /// straight edge better than a line does, and hides the formula. Edge by edge, from the input
    /// on, every plainer function of `library` is tried in the whole network with all constants
    /// tuned anew, and so is leaving the edge out. The first that costs at most a tenth of the
    /// error, or has an error of at most `enough`, stays, or an equally plain one that takes half of the
    /// error away: what is right already may still hold functions that cancel. Ends when a round
    /// changes nothing. Before that, lines are tried on all edges of a layer at once: where nodes
    /// share a curve among them, no single edge can change alone. Returns the root of the mean
    /// squared error.
    pub fn simplify(
        &mut self,
        library: &[Function],
        x: &[f64],
        target: &[f64],
        iterations: usize,
        enough: f64,
    ) -> f64 {
        let mut rms = self.rms(x, target);
        let narrow: Vec<f32> = crate::scalar::cast(x);
        let mut library = library.to_vec();
        library.sort_by(|a, b| a.complexity().total_cmp(&b.complexity()));
        let edges: Vec<Edge> = self.edges().map(|e| e.edge).collect();
        // Lines first: a whole layer's, then those of each node, together because the edges of a
        // node tend to be one function.
        let of_layer = |layer: usize| move |e: &Edge| e.layer == layer;
        let mut groups: Vec<Vec<Edge>> = (0..self.layers.len())
            .map(|layer| edges.iter().copied().filter(of_layer(layer)).collect())
            .collect();
        for &edge in &edges {
            let same = |e: &Edge| (e.layer, e.from) == (edge.layer, edge.from);
            let group: Vec<Edge> = edges.iter().copied().filter(same).collect();
            if group[0] == edge {
                groups.push(group);
            }
        }
        for group in groups {
            let mut trial = self.clone();
            let fits = group
                .iter()
                .map(|&e| trial.fix(e, Function::Identity, &narrow));
            if fits.collect::<Result<Vec<f64>>>().is_err() {
                continue;
            }
            let error = trial.refine(x, target, 5 * iterations);
            if error <= math::max(1.1 * rms, enough) {
                (*self, rms) = (trial, error);
            }
        }
        for _ in 0..3 {
            let mut changed = false;
            for &edge in &edges {
                let Some(own) = self.edges().find(|e| e.edge == edge) else {
                    continue;
                };
                let functions = own.functions();
                let complexity: f64 = functions.iter().map(|f| f.complexity()).sum();
                let without = std::iter::once(None);
                let with = library.iter().copied().map(Some);
                for function in without.chain(with) {
                    let cost = function.map_or(0.0, Function::complexity);
                    if cost > complexity || function.is_some_and(|f| functions == [f]) {
                        continue;
                    }
                    let mut trial = self.clone();
                    match function {
                        None => trial.layers[edge.layer].retain(|e| e.edge != edge),
                        Some(f) if trial.fix(edge, f, &narrow).is_err() => continue,
                        Some(_) => {}
                    }
                    let error = trial.refine(x, target, iterations);
                    let most = if cost < complexity {
                        math::max(1.1 * rms, enough)
                    } else {
                        0.5 * rms
                    };
                    if error <= most {
                        (*self, rms, changed) = (trial, error, true);
                        break;
                    }
                }
            }
            if !changed {
                break;
            }
        }
        rms
    }

    /// The mean squared error and its gradient with respect to the constants.
    fn gradient(&self, x: &[f64], target: &[f64], g: &mut [f64]) -> f64 {
        g.fill(0.0);
        let outputs = self.sizes[self.sizes.len() - 1];
        let scale = 1.0 / target.len() as f64;
        // Where every layer's constants begin.
        let mut starts = vec![0];
        for (edges, offset) in self.layers.iter().zip(&self.offsets) {
            let terms: usize = edges.iter().map(|e| e.terms.len()).sum();
            starts.push(starts[starts.len() - 1] + 3 * terms + offset.len());
        }
        let mut loss = 0.0;
        for (x, t) in x
            .chunks_exact(self.sizes[0])
            .zip(target.chunks_exact(outputs))
        {
            let levels = self.levels(x);
            let y = &levels[levels.len() - 1];
            let mut d_o: Vec<f64> = y
                .iter()
                .zip(t)
                .map(|(y, t)| 2.0 * (y - t) * scale)
                .collect();
            loss += y.iter().zip(t).map(|(y, t)| (y - t) * (y - t)).sum::<f64>() * scale;
            for layer in (0..self.layers.len()).rev() {
                let h = &levels[layer];
                let mut d_h = vec![0.0; h.len()];
                let mut at = starts[layer];
                for edge in &self.layers[layer] {
                    let (from, d) = (edge.edge.from, d_o[edge.edge.to]);
                    for t in &edge.terms {
                        let z = t.a * h[from] + t.b;
                        let inner = d * t.c * t.function.slope(z);
                        let free = t.free();
                        let own = [inner * h[from], inner, d * t.function.value(z)];
                        for (n, value) in own.into_iter().enumerate() {
                            if free[n] {
                                g[at + n] += value;
                            }
                        }
                        d_h[from] += inner * t.a;
                        at += 3;
                    }
                }
                for (n, d) in d_o.iter().enumerate() {
                    g[at + n] += d;
                }
                d_o = d_h;
            }
        }
        loss
    }

    /// The formula of an output.
    pub fn formula(&self, output: usize) -> Expression {
        let mut level: Vec<Expression> = self
            .input
            .iter()
            .enumerate()
            .map(|(i, &(scale, shift))| Expression::variable(i).affine(scale, shift))
            .collect();
        for (edges, offset) in self.layers.iter().zip(&self.offsets) {
            let mut next: Vec<Expression> =
                offset.iter().map(|&o| Expression::constant(o)).collect();
            for edge in edges {
                for t in &edge.terms {
                    let inner = level[edge.edge.from].affine(t.a, t.b);
                    let value = match t.function {
                        Function::Sin | Function::Cos => inner.apply_wave(t.function),
                        Function::Sqrt | Function::InverseSqrt => inner.apply_root(t.function),
                        other => inner.apply(other),
                    };
                    next[edge.edge.to] = next[edge.edge.to].add(&value, t.c);
                }
            }
            level = next;
        }
        level.swap_remove(output)
    }
}

/// The best function through an edge's points, or the best sum of two where one is not enough.
fn fit_edge(edge: Edge, x: &[f64], y: &[f64], options: &SymbolicOptions) -> (SymbolicEdge, f64) {
    let found = fit_all(&options.library, x, y);
    let Some(best) = found.first().copied() else {
        // Nothing fits: its mean.
        let mean = y.iter().sum::<f64>() / y.len().max(1) as f64;
        let terms = Vec::new();
        return (
            SymbolicEdge {
                edge,
                terms,
                r2: 0.0,
            },
            mean,
        );
    };
    let single = |best: &Candidate| {
        let (term, extra) = Term::folded(best);
        let terms = vec![term];
        (
            SymbolicEdge {
                edge,
                terms,
                r2: best.r2,
            },
            extra + best.d,
        )
    };
    if best.r2 >= options.enough {
        return single(&best);
    }
    // Two functions, fitted in turn to what the other leaves.
    let total = math::powi(super::edges::deviation(y), 2);
    let mut by_fit = found.clone();
    by_fit.sort_by(|a, b| b.r2.total_cmp(&a.r2));
    let mut pair: Option<([Candidate; 2], f64)> = None;
    for first in by_fit.iter().take(5) {
        let mut one = *first;
        let mut last = None;
        for _ in 0..6 {
            let rest: Vec<f64> = x.iter().zip(y).map(|(&x, &y)| y - one.value(x)).collect();
            let second = match last {
                None => fit_all(&options.library, x, &rest).first().copied(),
                Some(Candidate { function, .. }) => fit_function(function, x, &rest),
            };
            let Some(second) = second else { break };
            let rest: Vec<f64> = x
                .iter()
                .zip(y)
                .map(|(&x, &y)| y - second.value(x))
                .collect();
            let Some(again) = fit_function(one.function, x, &rest) else {
                break;
            };
            one = again;
            last = Some(second);
        }
        let Some(second) = last else { continue };
        let error: f64 = x
            .iter()
            .zip(y)
            .map(|(&x, &y)| math::powi(y - one.value(x) - second.value(x), 2))
            .sum::<f64>()
            / x.len() as f64;
        let r2 = 1.0 - error / total;
        let cost = |r2: f64, c: f64| math::log2(1.0 - r2 + 1e-6) + c;
        let score = cost(r2, one.function.complexity() + second.function.complexity());
        let better = pair.as_ref().is_none_or(|(_, s)| score < *s);
        if better && score < best.score() {
            one.r2 = r2;
            pair = Some(([one, second], score));
        }
    }
    match pair {
        None => single(&best),
        Some(([one, two], _)) => {
            let ((first, e1), (second, e2)) = (Term::folded(&one), Term::folded(&two));
            let terms = vec![first, second];
            (
                SymbolicEdge {
                    edge,
                    terms,
                    r2: one.r2,
                },
                e1 + e2 + one.d + two.d,
            )
        }
    }
}
