//! From data to a formula: train, prune, fit functions, tune, from several starts.

use super::edges::Layers;
use super::expression::Expression;
use super::{
    Function, GridUpdate, KanConfig, Pruned, SymbolicNetwork, SymbolicOptions, prune, update_grid,
};
use crate::math;
use crate::network::{Network, Sparsity};
use crate::optim::Lbfgs;
use crate::scalar::cast;
use crate::{Error, Loss, Model, Result, Target};

/// How a formula is looked for.
#[derive(Clone, Debug)]
pub struct Discover {
    /// The network that is trained; its sparsity is set below.
    pub config: KanConfig,
    /// The penalty of the first part of training.
    pub sparsity: Sparsity,
    /// Steps of L-BFGS with the penalty, and after pruning without it.
    pub iterations: [usize; 2],
    /// Edges below this share of their layer's largest importance go.
    pub threshold: f64,
    /// How edges become functions.
    pub symbolic: SymbolicOptions,
    /// Starts that are tried, seeds 0, 1, …; those of even seeds begin near a product of two
    /// inputs, the others anywhere.
    pub starts: u64,
    /// A formula whose error is below this share of the target's deviation ends the search.
    pub enough: f64,
}

impl Discover {
    /// For a network of that shape over that range.
    pub fn new(sizes: &[usize], range: [f64; 2]) -> Self {
        let mut config = KanConfig::new(sizes);
        config.range = range;
        Discover {
            config,
            sparsity: Sparsity {
                l1: 2e-3,
                entropy: 2e-3,
            },
            iterations: [60, 100],
            threshold: 0.04,
            symbolic: SymbolicOptions::default(),
            starts: 10,
            enough: 1e-5,
        }
    }
}

/// What was found.
pub struct Discovery {
    /// The trained and pruned network.
    pub network: Network,
    /// Its parameters.
    pub params: Vec<f32>,
    /// Its error (root mean square) on the data.
    pub network_rms: f64,
    /// The network of functions.
    pub symbolic: SymbolicNetwork,
    /// Its error (root mean square) on the data.
    pub rms: f64,
    /// The start that led there.
    pub seed: u64,
}

impl Discovery {
    /// The formula of an output, coefficients with three decimals.
    pub fn formula(&self, output: usize) -> Expression {
        self.symbolic.formula(output).rounded(3)
    }
}

/// Looks for a formula of targets in inputs: whole samples, one after the other.
pub fn discover(x: &[f32], target: &[f32], options: &Discover) -> Result<Discovery> {
    let deviation = {
        let t: Vec<f64> = cast(target);
        super::edges::deviation(&t)
    };
    let mut best: Option<Discovery> = None;
    for seed in 0..options.starts.max(1) {
        let Ok(found) = attempt(x, target, options, seed, deviation) else {
            continue;
        };
        let better = best.as_ref().is_none_or(|b| found.rms < b.rms);
        let done = found.rms <= options.enough * deviation;
        if better && found.rms.is_finite() {
            best = Some(found);
        }
        if done {
            break;
        }
    }
    best.ok_or_else(|| {
        let needed = "data that a network can be trained on";
        Error::invalid(
            "discovery",
            format!("no start of {} that ended well", options.starts),
            needed,
        )
    })
}

/// Below this share of the target's deviation, a formula's functions are worth simplifying.
const PROMISING: f64 = 0.1;

fn attempt(
    x: &[f32],
    target: &[f32],
    options: &Discover,
    seed: u64,
    deviation: f64,
) -> Result<Discovery> {
    let mut config = options.config.clone();
    config.sparsity = Some(options.sparsity);
    let network = Network::new(&config.spec()?)?;
    let outputs = network.output_len();
    network.check_batch(x)?;
    let goal: Target<f64> = Target::values(cast(target));
    Loss::Mse.check(x.len() / network.input_len() * outputs, &goal)?;
    let input: Vec<f64> = cast(x);
    let mut params: Vec<f64> = cast(&network.init(seed));
    if seed.is_multiple_of(2) {
        start_from_products(&network, &mut params, seed as usize / 2)?;
    }
    let lbfgs = |iterations| Lbfgs {
        iterations,
        history: 20,
        ..Lbfgs::default()
    };
    let [with_penalty, without] = options.iterations;
    // The hidden values find their places first; then the grids follow them.
    lbfgs(with_penalty / 3).fit(&network, &mut params, Loss::Mse, &input, &goal);
    let params: Vec<f32> = cast(&params);
    let (network, params, _) = update_grid(&network, &params, x, &follow())?;
    let mut params: Vec<f64> = cast(&params);
    lbfgs(with_penalty).fit(&network, &mut params, Loss::Mse, &input, &goal);

    let Pruned {
        network,
        params,
        mask,
        ..
    } = prune(&network, &cast::<f64, f32>(&params), x, options.threshold)?;
    let mut spec = network.spec().clone();
    spec.sparsity = None;
    let mut plain = Network::new(&spec)?;
    for buffer in network.buffers() {
        plain.set_buffer(&buffer)?;
    }
    let network = plain;
    let (network, params, _) = update_grid(&network, &params, x, &follow())?;
    let mut params: Vec<f64> = cast(&params);
    let minimum = fit_masked(&network, &mut params, &mask, &input, &goal, &lbfgs(without));
    let mut params: Vec<f32> = cast(&params);
    mask.apply(&network, &mut params);
    Layers::new(&network)?;
    let mut symbolic = SymbolicNetwork::from_kan(&network, &params, x, &options.symbolic)?;
    let mut rms = symbolic.refine(&input, &goal.values, 400);
    if rms < PROMISING * deviation {
        let enough = options.enough * deviation;
        let mut tried = vec![symbolic];
        if rms > enough {
            // A square near its vertex looks like a cosine there: both are tried.
            let mut squared = tried[0].clone();
            let last = squared.edges().map(|e| e.edge.layer).max();
            let edges: Vec<_> = squared.edges().map(|e| e.edge).collect();
            for edge in edges.into_iter().filter(|e| Some(e.layer) == last) {
                squared.fix(edge, Function::Square, x)?;
            }
            squared.refine(&input, &goal.values, 300);
            tried.push(squared);
        }
        let library = &options.symbolic.library;
        let simplified = tried.into_iter().map(|mut tried| {
            tried.simplify(library, &input, &goal.values, 60, enough);
            let rms = tried.refine(&input, &goal.values, 400);
            (tried, rms)
        });
        let best = simplified.min_by(|a, b| a.1.total_cmp(&b.1));
        (symbolic, rms) = best.expect("one at least");
    }
    Ok(Discovery {
        network,
        params,
        network_rms: math::max(minimum, 0.0).sqrt(),
        symbolic,
        rms,
        seed,
    })
}

/// A product of two inputs is what formulas have most, and what a random start finds least: it
/// takes two hidden nodes that agree, a·b = ((a + b)/2)² − ((a − b)/2)². So the first hidden node
/// of a two-layer network begins as the mean of a pair of inputs and the second as half their
/// difference, both squared afterwards; the other nodes pass an input on. Training turns these lines
/// and squares into what the data asks for. `turn` chooses the pair and the inputs; when all pairs
/// have had their turn, one of the two enters as a wave over its range, then the other.
fn start_from_products(network: &Network, params: &mut [f64], turn: usize) -> Result<()> {
    let layers = Layers::new(network)?;
    let (inputs, hidden) = layers.size(0);
    if layers.len() != 2 || inputs < 2 || hidden < 2 {
        return Ok(());
    }
    let pairs: Vec<(usize, usize)> = (0..inputs)
        .flat_map(|a| (a + 1..inputs).map(move |b| (a, b)))
        .collect();
    let (a, b) = pairs[turn % pairs.len()];
    let wave = match turn / pairs.len() % 3 {
        0 => None,
        1 => Some(b),
        _ => Some(a),
    };
    for layer in 0..2 {
        let kan = layers.kan(layer);
        let (line, square) = polynomials(&kan.uniform_knots(), kan.degree);
        // A spline whose coefficients are a function's values at these places follows the function.
        let [lo, hi] = kan.range;
        let turns = |x: &f64| math::sin(std::f64::consts::TAU * (x - (lo + hi) / 2.0) / (hi - lo));
        let waves: Vec<f64> = line.iter().map(turns).collect();
        let bases = kan.bases();
        let [spline, base, _] = layers.ranges(layer);
        params[base].fill(0.0);
        let spline = &mut params[spline];
        for from in 0..kan.inputs {
            for to in 0..kan.outputs {
                let (on_line, on_square) = match (layer, from, to) {
                    (0, _, 0) if from == a || from == b => (0.5, 0.0),
                    (0, _, 1) if from == a => (0.5, 0.0),
                    (0, _, 1) if from == b => (-0.5, 0.0),
                    (0, _, 2..) if (to + turn) % inputs == from => (1.0, 0.0),
                    (1, 0, _) => (0.0, 1.0),
                    (1, 1, _) => (0.0, -1.0),
                    (1, ..) => (1.0, 0.0),
                    _ => (0.0, 0.0),
                };
                let line = match layer == 0 && to < 2 && wave == Some(from) {
                    true => &waves,
                    false => &line,
                };
                // What is there already is small noise, which keeps equal nodes apart.
                for m in 0..bases {
                    spline[(from * bases + m) * kan.outputs + to] +=
                        on_line * line[m] + on_square * square[m];
                }
            }
        }
    }
    Ok(())
}

/// The coefficients of x and of x²: the means over t_{m+1} … t_{m+k} of a knot, and of the product
/// of two (with one knot only, its square).
fn polynomials(knots: &[f64], degree: usize) -> (Vec<f64>, Vec<f64>) {
    let bases = knots.len() - degree - 1;
    let of = |m: usize| &knots[m + 1..=m + degree];
    let line = |m: usize| of(m).iter().sum::<f64>() / degree as f64;
    let square = |m: usize| {
        let sum: f64 = of(m).iter().sum();
        let squares: f64 = of(m).iter().map(|t| t * t).sum();
        match degree {
            1 => squares,
            k => (sum * sum - squares) / (k * (k - 1)) as f64,
        }
    };
    (
        (0..bases).map(line).collect(),
        (0..bases).map(square).collect(),
    )
}

fn follow() -> GridUpdate {
    GridUpdate {
        uniform: 0.5,
        margin: 0.02,
    }
}

/// L-BFGS on the edges that are left.
fn fit_masked(
    network: &Network,
    params: &mut [f64],
    mask: &super::EdgeMask,
    input: &Vec<f64>,
    goal: &Target<f64>,
    lbfgs: &Lbfgs,
) -> f64 {
    use crate::{Grads, Pass};
    // What the mask puts to zero, by a vector of ones.
    let mut free = vec![1.0_f32; params.len()];
    mask.apply(network, &mut free);
    let pass = Pass::inference();
    let mut tape = Default::default();
    let mut d_output = vec![0.0; goal.values.len()];
    let minimum = lbfgs.minimise(
        params,
        network.layout(),
        |params: &[f64], grad: &mut [f64]| {
            network.compute_forward(params, input, &pass, &mut tape);
            let loss = Loss::Mse.compute(network.output(&tape), goal, Some(&mut d_output));
            network.compute_backward(
                params,
                input,
                &pass,
                &mut tape,
                &d_output,
                Grads::params(grad),
            );
            for (g, free) in grad.iter_mut().zip(&free) {
                *g *= f64::from(*free);
            }
            loss
        },
    );
    minimum.loss
}
