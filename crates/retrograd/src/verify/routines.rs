//! What every model shares, beside a second form of its definition.
//!
//! Optimizers, losses and clipping are one generic source for every scalar: the f64 reference cannot see
//! a mistake in them, it makes the same. Here each is written a second time, plainly, in f64, from the
//! definition and in another form (Adam by its corrected moments, cross-entropy by probabilities), and
//! the two are compared: f64 with f64 to its rounding, and f32 within the predicted bound. Sizes are
//! drawn around the cuts, values from what is usual to what breaks a careless form.

use super::chain::Options;
use super::precision::Bounds;
use super::report::{Link, Row, compare, largest};
use super::rounded::{Granted, Rounded};
use super::sizes::Stretch;
use crate::Layout;
use crate::cuts::cut;
use crate::group::{self, Pending, Tree};
use crate::optim::{self, Optimizer, OptimizerSpec};
use crate::rng::Key;
use crate::scalar::cast;
use crate::{Loss, Result, Scalar, Target, loss, math, parallel, simd};

/// Runs that predict rounding.
const RUNS: u64 = 8;

/// f64 rounds by half of this, and a value of these forms goes through fewer than 64 roundings a step
/// where its terms are of its own size.
const F64: f64 = 64.0 * f64::EPSILON;

/// The routines and their cuts.
pub(super) fn sizes() -> Vec<Stretch> {
    let lanes = cut(simd::CUTS, "LANES");
    let of_loss = |name| cut(loss::CUTS, name);
    let of_step = |name| cut(optim::CUTS, name);
    let elements = [
        of_loss("SUMS"),
        lanes,
        of_loss("PIECE"),
        of_loss("PARALLEL"),
        of_loss("PIECE").times(64),
        of_loss("PIECES").times(1024),
    ];
    let rows = [
        of_loss("PIECE").over(5),
        of_loss("PARALLEL").over(5),
        of_loss("PIECES"),
    ];
    let classes = [
        lanes,
        of_loss("PIECE"),
        cut(parallel::CUTS, "COLUMNS").over(8),
    ];
    let step = [
        lanes,
        of_step("NORM_CHUNK"),
        of_step("CHUNK"),
        of_step("PARALLEL"),
        of_step("PARALLEL").times(2),
    ];
    let of_pending = |name| cut(group::PENDING_CUTS, name);
    let of_shards = [
        of_pending("BLOCK"),
        of_pending("PIECE"),
        of_pending("PIECE").times(2),
        cut(group::SUMS_CUTS, "PIECE"),
        cut(group::SUMS_CUTS, "PIECE").times(2),
    ];
    vec![
        Stretch::own("losses", elementwise).axis("elements", 7, elements),
        Stretch::own("cross_entropy", cross_entropy)
            .axis("rows", 6, rows)
            .axis("classes", 5, classes),
        Stretch::own("optimizers", optimizers).axis("parameters", 9, step),
        Stretch::own("sums of pieces", sums_of_pieces)
            .axis("sums", 5, [lanes, cut(parallel::CUTS, "COLUMNS")])
            .axis("pieces", 3, [lanes]),
        Stretch::own("sums of shards", sums_of_shards)
            .axis("parameters", 5, of_shards)
            .axis("shards", 6, [cut(simd::CUTS, "LANES").over(2)]),
    ]
}

/// Numbers in ±scale that f32 holds, some of them 0 and some equal.
fn numbers(count: usize, scale: f64, purpose: &str) -> Vec<f64> {
    let mut stream = Key::new(3).purpose(purpose).stream();
    let mut last = 0.0;
    (0..count)
        .map(|i| {
            let drawn = f64::from(stream.range(-scale, scale) as f32);
            last = match i % 11 {
                4 => 0.0,
                7 => last,
                _ => drawn,
            };
            last
        })
        .collect()
}

/// Values and gradients of a loss in one scalar.
fn evaluated<T: Scalar>(loss: Loss, y: &[f64], target: &Target<f64>) -> (f64, Vec<f64>) {
    let y: Vec<T> = cast(y);
    let mut d_y = vec![T::from_f64(f64::NAN); y.len()];
    let value = loss.compute(&y, &target.cast(), Some(&mut d_y));
    let alone = loss.compute(&y, &target.cast(), None);
    // A number that rounds at random rounds otherwise the second time.
    assert!(
        T::ROUNDS
            || value.to_f64().to_bits() == alone.to_f64().to_bits()
            || value.to_f64().is_nan(),
        "the loss with and without its gradient"
    );
    (value.to_f64(), cast(&d_y))
}

/// One loss beside its second form.
fn loss_rows(
    name: &str,
    loss: Loss,
    y: &[f64],
    target: &Target<f64>,
    plain: &(f64, Vec<f64>),
) -> Vec<Row> {
    let (value, d_y) = evaluated::<f64>(loss, y, target);
    let scale = largest(&plain.1);
    let reference = [
        (
            "value",
            compare(&[value], &[plain.0], |_| {
                F64 * math::max(plain.0.abs(), largest(y))
            }),
        ),
        ("d y", compare(&d_y, &plain.1, |_| F64 * scale)),
    ];
    let runs = parallel::isolated(RUNS as usize, |run| {
        Rounded::start(run as u64 + 1, &Granted::CPU);
        evaluated::<Rounded>(loss, y, target)
    });
    let fast = evaluated::<f32>(loss, y, target);
    let values: Vec<[f64; 1]> = runs.iter().map(|(value, _)| [*value]).collect();
    let bound = Bounds::new(&[plain.0], values.iter().map(|v| &v[..]));
    let bounds = Bounds::new(&plain.1, runs.iter().map(|(_, d)| &d[..]));
    let device = [
        ("value", compare(&[fast.0], &[plain.0], |_| bound.at(0))),
        ("d y", compare(&fast.1, &plain.1, |i| bounds.at(i))),
    ];
    let row = |link: Link, (what, worst): &(&str, _)| {
        Row::compared("losses", format!("{name} {what}"), link, worst)
    };
    let rows = reference.iter().map(|r| row(Link::Form, r));
    rows.chain(device.iter().map(|r| row(Link::Cpu, r)))
        .collect()
}

/// Σ w·f / Σ w and its derivatives, from the definitions.
fn plain_elements(loss: Loss, y: &[f64], target: &Target<f64>) -> (f64, Vec<f64>) {
    let one = |y: f64, t: f64| -> (f64, f64) {
        let e = y - t;
        match loss {
            Loss::Mse | Loss::SumSquares => (e * e, 2.0 * e),
            Loss::L1 => (e.abs(), if e == 0.0 { 0.0 } else { e.signum() }),
            Loss::Huber if e.abs() < 1.0 => (0.5 * e * e, e),
            Loss::Huber => (e.abs() - 0.5, e.signum()),
            // −t·ln p − (1 − t)·ln(1 − p), each logarithm from the side that does not cancel.
            Loss::BceLogits => {
                let ln = |y: f64| {
                    if y > 0.0 {
                        -math::ln_1p(math::exp(-y))
                    } else {
                        y - math::ln_1p(math::exp(y))
                    }
                };
                let p = if y > 0.0 {
                    1.0 / (1.0 + math::exp(-y))
                } else {
                    math::exp(y) / (1.0 + math::exp(y))
                };
                (-t * ln(y) - (1.0 - t) * ln(-y), p - t)
            }
            Loss::CrossEntropy => (0.0, 0.0),
        }
    };
    let weight = |i: usize| target.weights.as_ref().map_or(1.0, |w| w[i]);
    let all: f64 = (0..y.len()).map(weight).sum();
    let all = if loss == Loss::SumSquares { 1.0 } else { all };
    let mut value = 0.0;
    let mut d = Vec::new();
    for (i, (&y, &t)) in y.iter().zip(&target.values).enumerate() {
        let (f, slope) = one(y, t);
        value += weight(i) * f;
        d.push(if all == 0.0 {
            0.0
        } else {
            weight(i) * slope / all
        });
    }
    (if all == 0.0 { 0.0 } else { value / all }, d)
}

fn elementwise(sizes: &[usize], _: &Options) -> Result<Vec<Row>> {
    let n = sizes[0];
    let mut rows = Vec::new();
    for loss in [
        Loss::Mse,
        Loss::L1,
        Loss::Huber,
        Loss::BceLogits,
        Loss::SumSquares,
    ] {
        // Logits of ±400 where a sigmoid saturates; errors of ±1, where Huber's pieces meet.
        let scales: &[f64] = match (loss, n < 100) {
            (Loss::BceLogits, true) => &[3.0, 400.0],
            _ => &[3.0],
        };
        for &scale in scales {
            let y = numbers(n, scale, loss.name());
            let t: Vec<f64> = match loss {
                Loss::BceLogits => (0..n).map(|i| [0.0, 1.0, 0.25][i % 3]).collect(),
                // Now and then the target itself, and 1 away from it.
                _ => (numbers(n, 2.0, "targets").iter().enumerate())
                    .map(|(i, &t)| match i % 6 {
                        2 => y[i],
                        5 => f64::from((y[i] - 1.0) as f32),
                        _ => t,
                    })
                    .collect(),
            };
            let weights = (0..n)
                .map(|i| [1.0, 0.0, 0.5, 2.0][i % 4])
                .collect::<Vec<_>>();
            let plain = Target::values(t);
            for (words, target) in [("", plain.clone()), (" weighted", plain.weighted(weights))] {
                let second = plain_elements(loss, &y, &target);
                let name = format!("{}{words}, ±{scale}", loss.name());
                rows.extend(loss_rows(&name, loss, &y, &target, &second));
            }
        }
    }
    Ok(rows)
}

/// Cross-entropy by the probabilities themselves, each a sum of ratios.
fn plain_classes(y: &[f64], classes: &[u32], weights: Option<&[f64]>) -> (f64, Vec<f64>) {
    let width = y.len() / classes.len();
    let weight = |r: usize| weights.map_or(1.0, |w| w[r]);
    let all: f64 = (0..classes.len()).map(weight).sum();
    let mut value = 0.0;
    let mut d = Vec::new();
    for (r, (row, &class)) in y.chunks_exact(width).zip(classes).enumerate() {
        // 1/p_c = Σ_k e^(y_k − y_c)
        let inverse = |c: usize| row.iter().map(|v| math::exp(v - row[c])).sum::<f64>();
        value += weight(r) * math::ln(inverse(class as usize));
        for c in 0..width {
            let others: f64 = (0..width)
                .filter(|&k| k != c)
                .map(|k| math::exp(row[k] - row[c]))
                .sum();
            let p = 1.0 / inverse(c);
            // p − 1 = −(Σ of the others)/(1 + them)
            let slope = if c == class as usize {
                -others / (1.0 + others)
            } else {
                p
            };
            let slope = if others.is_infinite() {
                -f64::from(c == class as usize)
            } else {
                slope
            };
            d.push(if all == 0.0 {
                0.0
            } else {
                weight(r) * slope / all
            });
        }
    }
    (if all == 0.0 { 0.0 } else { value / all }, d)
}

fn cross_entropy(sizes: &[usize], _: &Options) -> Result<Vec<Row>> {
    let (n, width) = (sizes[0], sizes[1]);
    let classes: Vec<u32> = (0..n).map(|i| ((i * 7 + i / 3) % width) as u32).collect();
    let weights: Vec<f64> = (0..n).map(|i| [1.0, 0.0, 0.5, 2.0][i % 4]).collect();
    let mut rows = Vec::new();
    let scales: &[f64] = if n * width < 100 {
        &[3.0, 300.0]
    } else {
        &[3.0]
    };
    for &scale in scales {
        let y = numbers(n * width, scale, "logits");
        let plain = Target::classes(classes.clone());
        for (words, target) in [
            ("", plain.clone()),
            (" weighted", plain.weighted(weights.clone())),
        ] {
            let second = plain_classes(&y, &classes, target.weights.as_deref());
            let name = format!("cross_entropy{words}, ±{scale}");
            rows.extend(loss_rows(&name, Loss::CrossEntropy, &y, &target, &second));
        }
    }
    Ok(rows)
}

/// The optimizers, every option of theirs once.
fn specs() -> Vec<(&'static str, OptimizerSpec)> {
    let sgd = |momentum, nesterov, weight_decay| OptimizerSpec::Sgd {
        lr: 0.1,
        momentum,
        nesterov,
        weight_decay,
    };
    vec![
        ("sgd", sgd(0.0, false, 0.0)),
        ("sgd, decay", sgd(0.0, false, 0.03)),
        ("momentum", sgd(0.9, false, 0.0)),
        ("nesterov, decay", sgd(0.8, true, 0.02)),
        ("adam", OptimizerSpec::adam(0.02)),
        (
            "adam, decay",
            OptimizerSpec::Adam {
                lr: 0.02,
                betas: [0.8, 0.95],
                eps: 1e-3,
                weight_decay: 0.1,
            },
        ),
        (
            "adamw",
            OptimizerSpec::AdamW {
                lr: 0.03,
                betas: [0.7, 0.9],
                eps: 1e-4,
                weight_decay: 0.2,
            },
        ),
    ]
}

/// One parameter under a history of gradients, by the sums that the recursions stand for: momentum's
/// buffer is Σ μ^(t−i) gᵢ, Adam's moments are weighted means of all gradients so far.
fn plain_step(spec: &OptimizerSpec, start: f64, gradients: &[f64]) -> f64 {
    let mut p = start;
    let mut seen: Vec<f64> = Vec::new();
    for (t, &g) in gradients.iter().enumerate() {
        let power = |b: f64, i: usize| math::powi(b, i32::try_from(t - i).unwrap_or(i32::MAX));
        match *spec {
            OptimizerSpec::Sgd {
                lr,
                momentum,
                nesterov,
                weight_decay,
            } => {
                seen.push(g + weight_decay * p);
                let buffer: f64 = (seen.iter().enumerate())
                    .map(|(i, g)| power(momentum, i) * g)
                    .sum();
                let buffer = if momentum == 0.0 { seen[t] } else { buffer };
                p -= lr
                    * if nesterov {
                        seen[t] + momentum * buffer
                    } else {
                        buffer
                    };
            }
            OptimizerSpec::Adam {
                lr,
                betas,
                eps,
                weight_decay,
            }
            | OptimizerSpec::AdamW {
                lr,
                betas,
                eps,
                weight_decay,
            } => {
                let coupled = matches!(spec, OptimizerSpec::Adam { .. });
                seen.push(g + if coupled { weight_decay * p } else { 0.0 });
                // Σ bᵗ⁻ⁱ·x / Σ bᵗ⁻ⁱ is the corrected moment: (1 − b)/(1 − bᵗ⁺¹) is 1/Σ bⁱ.
                let mean = |b: f64, of: &dyn Fn(f64) -> f64| {
                    let weights: f64 = (0..=t).map(|i| power(b, i)).sum();
                    let sum: f64 = (seen.iter().enumerate())
                        .map(|(i, &g)| power(b, i) * of(g))
                        .sum();
                    sum / weights
                };
                let step = mean(betas[0], &|g| g) / (mean(betas[1], &|g| g * g).sqrt() + eps);
                let decayed = if coupled { 0.0 } else { lr * weight_decay * p };
                p -= decayed + lr * step;
            }
        }
    }
    p
}

/// Two trained tensors with a frozen one between them.
fn layout_of(n: usize) -> Layout {
    let cut = [n / 3, n / 3 + n / 4];
    let mut layout = Layout::new();
    for (name, len) in [
        ("first", cut[0]),
        ("frozen", cut[1] - cut[0]),
        ("last", n - cut[1]),
    ] {
        layout.push(name, &[len]);
    }
    layout.freeze("frozen").expect("a tensor of that name");
    layout
}

const STEPS: usize = 4;

/// Clipping by the norm of what is trained, and by elements, then a step: in one scalar.
fn steps_in<T: Scalar>(
    spec: OptimizerSpec,
    layout: &Layout,
    start: &[f64],
    gradients: &[Vec<f64>],
    clip: Option<f64>,
    clip_element: Option<f64>,
) -> Vec<f64> {
    let mut params: Vec<T> = cast(start);
    let mut optimizer = Optimizer::new(spec, params.len());
    for g in gradients {
        let mut g: Vec<T> = cast(g);
        if let Some(limit) = clip_element {
            optim::clip_elements(&mut g, limit);
        }
        if let Some(limit) = clip {
            optim::clip_global_norm(&mut g, layout, limit);
        }
        optimizer.step(&mut params, &g, layout, spec.lr());
    }
    cast(&params)
}

/// The same by the second form.
fn plain_steps(
    spec: &OptimizerSpec,
    layout: &Layout,
    start: &[f64],
    gradients: &[Vec<f64>],
    clip: Option<f64>,
    clip_element: Option<f64>,
) -> Vec<f64> {
    let trained = |i: usize| {
        let own = layout.tensors().iter().find(|t| t.range().contains(&i));
        own.is_some_and(|t| !t.frozen)
    };
    let trained: Vec<bool> = (0..start.len()).map(trained).collect();
    let limit = |g: f64| clip_element.map_or(g, |l| if g.abs() > l { l * g.signum() } else { g });
    let factors: Vec<f64> = (gradients.iter())
        .map(|g| {
            let own = g.iter().zip(&trained).filter(|(_, t)| **t);
            let norm = own.fold(0.0, |norm: f64, (g, _)| math::hypot(norm, limit(*g)));
            clip.map_or(1.0, |most| {
                if norm + 1e-6 > most {
                    most / (norm + 1e-6)
                } else {
                    1.0
                }
            })
        })
        .collect();
    let one = |i: usize| {
        let history: Vec<f64> = (gradients.iter().zip(&factors))
            .map(|(g, factor)| limit(g[i]) * factor)
            .collect();
        if trained[i] {
            plain_step(spec, start[i], &history)
        } else {
            start[i]
        }
    };
    (0..start.len()).map(one).collect()
}

fn optimizers(sizes: &[usize], options: &Options) -> Result<Vec<Row>> {
    let n = sizes[0];
    let layout = layout_of(n);
    let start = numbers(n, 1.0, "start");
    let gradients: Vec<Vec<f64>> = (0..STEPS)
        .map(|t| numbers(n, 0.7, &format!("gradient {t}")))
        .collect();
    // Half of what the norm is, so that every element counts.
    let norm = gradients[0].iter().map(|g| g * g).sum::<f64>().sqrt();
    let mut rows = Vec::new();
    for (name, spec) in specs() {
        for (words, clip, element) in [
            ("", None, None),
            (", norm clipped", Some(0.5 * norm), None),
            (", elements clipped", None, Some(0.3)),
        ] {
            let plain = plain_steps(&spec, &layout, &start, &gradients, clip, element);
            let of = |values: &[f64], bound: &dyn Fn(usize) -> f64, link| {
                let worst = compare(values, &plain, bound);
                Row::compared("optimizers", format!("{name}{words}"), link, &worst)
            };
            let exact = steps_in::<f64>(spec, &layout, &start, &gradients, clip, element);
            let scale = math::max(largest(&plain), 1.0) * STEPS as f64;
            // The norm's squares are n terms whose errors are of one sign at worst.
            let norm = clip.map_or(1.0, |_| 1.0 + n as f64 / 64.0);
            rows.push(of(&exact, &|_| F64 * norm * scale, Link::Form));
            let runs = parallel::isolated(RUNS as usize, |run| {
                Rounded::start(run as u64 + 1, &Granted::CPU);
                steps_in::<Rounded>(spec, &layout, &start, &gradients, clip, element)
            });
            let bounds = Bounds::new(&plain, runs.iter().map(|r| &r[..]));
            let on = |threads: usize| {
                parallel::with_threads(threads, || {
                    steps_in::<f32>(spec, &layout, &start, &gradients, clip, element)
                })
            };
            let fast = on(1);
            rows.push(of(&fast, &|i| bounds.at(i), Link::Cpu));
            for &threads in options.threads.iter().filter(|&&t| t > 1) {
                let worst = compare(&on(threads), &fast, |_| 0.0);
                let label = format!("{name}{words}, {threads} threads");
                rows.push(Row::compared("optimizers", label, Link::Threads, &worst));
            }
        }
    }
    Ok(rows)
}

/// The fixed-order reduction: what is there, and every piece's share of every sum.
fn sums_of_pieces(sizes: &[usize], options: &Options) -> Result<Vec<Row>> {
    let (sums, pieces) = (sizes[0], sizes[1]);
    let there = numbers(sums, 1.0, "there");
    let shares = numbers(sums * pieces, 1.0, "shares");
    let plain: Vec<f64> = (0..sums)
        .map(|s| there[s] + (0..pieces).map(|p| shares[p * sums + s]).sum::<f64>())
        .collect();
    let on = |threads: usize| -> Vec<f64> {
        parallel::with_threads(threads, || {
            let mut out: Vec<f32> = cast(&there);
            let mut workspace = Vec::new();
            parallel::sum_pieces(pieces, &mut out, &mut workspace, true, |piece, row| {
                for (to, &from) in row.iter_mut().zip(&shares[piece * sums..]) {
                    *to += from as f32;
                }
            });
            cast(&out)
        })
    };
    // Added in f64, and rounded to f32 once.
    let half = 0.5 * f64::from(f32::EPSILON);
    let row = |threads: usize| {
        let worst = compare(&on(threads), &plain, |i| {
            half * plain[i].abs() + F64 * pieces as f64
        });
        let label = format!("{threads} threads");
        Row::compared("sums of pieces", label, Link::Form, &worst)
    };
    Ok(options.threads.iter().map(|&t| row(t)).collect())
}

/// Gradients of shards added along their tree, pair by pair as they come and all at once, beside plain sums
/// in f64.
fn sums_of_shards(sizes: &[usize], options: &Options) -> Result<Vec<Row>> {
    let (len, shards) = (sizes[0], sizes[1]);
    let terms = numbers(len * shards, 1.0, "shards");
    let of = |i: usize| (0..shards).map(move |shard| shard * len + i);
    let plain: Vec<f64> = (0..len).map(|i| of(i).map(|at| terms[at]).sum()).collect();
    let on = |threads: usize, as_they_come: bool| -> Vec<f64> {
        parallel::with_threads(threads, || {
            let (tree, mut pending, mut free) = (Tree::new(shards), Pending::default(), Vec::new());
            for shard in 0..shards {
                pending.push(shard..shard + 1, cast(&terms[shard * len..][..len]));
                if as_they_come {
                    pending.fold(tree, &mut free);
                }
            }
            let roots = pending.into_roots(tree, &(0..shards), len, &mut free);
            roots
                .into_iter()
                .flatten()
                .flat_map(|sum| cast(&sum))
                .collect()
        })
    };
    // One rounding fewer than shards, each of a partial sum.
    let half = 0.5 * f64::from(f32::EPSILON);
    let row = |threads: usize, as_they_come: bool| {
        let worst = compare(&on(threads, as_they_come), &plain, |i| {
            shards as f64 * half * of(i).map(|at| terms[at].abs()).sum::<f64>()
        });
        let form = if as_they_come { "in pairs" } else { "at once" };
        let label = format!("{form}, {threads} threads");
        Row::compared("sums of shards", label, Link::Form, &worst)
    };
    let forms = |&threads: &usize| [row(threads, true), row(threads, false)];
    Ok(options.threads.iter().flat_map(forms).collect())
}
