//! The fast kernels against the reference: bundles, every degree, both rules outside, free knots,
//! odd sizes, changing batches, threads, NaN.

use super::*;
use crate::layer::kan::KanSpec;
use crate::model::{Grads, Pass};
use crate::network::{LayerSpec, Network, NetworkSpec, NetworkTape};
use crate::optim::OptimizerSpec;
use crate::rng::Key;
use crate::scalar::cast;
use crate::verify::precision::SamplePlan;
use crate::verify::{
    self, Bundle, BundleOptimizer, Cpu, Device, Expectation, FromBundle, Granted, Link, Options,
    Subject, Verdict, precision_rows,
};
use crate::{Loss, Model, Target, parallel};

/// The verifier with one trajectory of each kind of optimizer, to stay quick.
fn quick() -> Options {
    let plain = |spec| BundleOptimizer {
        spec,
        clip: None,
        clip_element: None,
    };
    let mut options = Options {
        optimizers: vec![("adam".into(), plain(OptimizerSpec::adam(0.01)))],
        steps: 3,
        thread_steps: 3,
        ..Options::default()
    };
    options.plan.runs = 8;
    options.coverage.all_up_to = 400;
    options.coverage.per_tensor = 24;
    options
}

fn kan_layer(out: usize, grid: usize, degree: usize) -> LayerSpec {
    LayerSpec::kan(out, grid, degree, [-1.0, 1.0])
}

/// A layer with every option said.
fn layer(
    out: usize,
    grid: usize,
    degree: usize,
    base: Base,
    bias: bool,
    outside: Outside,
    free_knots: bool,
) -> LayerSpec {
    LayerSpec::Kan(KanSpec {
        out,
        grid,
        degree,
        range: [-1.0, 1.0],
        base,
        bias,
        outside,
        free_knots,
    })
}

/// Weights large enough that splines matter, inputs inside, outside and on knots.
fn problem(network: &Network, samples: usize, seed: u64) -> (Vec<f32>, Vec<f32>, Target<f32>) {
    let mut stream = Key::new(seed).purpose("kan test").stream();
    let params = (0..network.layout().len())
        .map(|_| stream.range(-0.5, 0.5) as f32)
        .collect();
    let input = (0..samples * network.input_len())
        .map(|n| match n % 7 {
            // Exactly on knots that f32 holds, the ends of the range among them.
            3 => [-1.0, 1.0, 0.0, 0.5, -0.5, 2.0, -3.5][n / 7 % 7],
            _ => stream.range(-1.9, 1.9) as f32,
        })
        .collect();
    let target = (0..samples * network.output_len())
        .map(|_| stream.range(-1.0, 1.0) as f32)
        .collect();
    (params, input, Target::values(target))
}

fn random_knots(network: &mut Network, seed: u64) {
    let mut stream = Key::new(seed).purpose("knots").stream();
    for mut buffer in network.buffers() {
        let count = buffer.shape[1];
        for knots in buffer.values.chunks_exact_mut(count) {
            let mut t = stream.range(-2.5, -1.5);
            for knot in knots {
                *knot = f64::from(t as f32);
                t += stream.range(0.1, 0.6);
            }
        }
        network.set_buffer(&buffer).unwrap();
    }
}

struct Evaluated {
    y: Vec<f32>,
    d_params: Vec<f32>,
    d_input: Vec<f32>,
}

fn evaluate(
    network: &Network,
    params: &[f32],
    input: &Vec<f32>,
    d_y: &[f32],
    tape: &mut NetworkTape<f32>,
) -> Evaluated {
    let pass = Pass::training(Key::new(0));
    network.compute_forward(params, input, &pass, tape);
    let y = network.output(tape).to_vec();
    let mut d_params = vec![0.0; params.len()];
    let mut d_input = vec![0.0; input.len()];
    let grads = Grads::both(&mut d_params, &mut d_input);
    network.compute_backward(params, input, &pass, tape, d_y, grads);
    Evaluated {
        y,
        d_params,
        d_input,
    }
}

/// The fast kernels against the f64 reference, within what rounding to f32 can explain.
fn assert_agrees(
    name: &str,
    network: &Network,
    params: &[f32],
    input: &Vec<f32>,
    target: &Target<f32>,
) {
    let subject = Subject::new(name, network, params, input, target, Loss::Mse).unwrap();
    let plan = SamplePlan {
        runs: 8,
        ..SamplePlan::default()
    };
    let expected = Expectation::new(&subject, &Granted::CPU, &[], 0, &plan);
    let evaluation = Cpu.evaluate(&subject).unwrap();
    let rows = precision_rows(&subject, &expected, &evaluation, Link::Cpu);
    assert!(rows.len() > 3, "{name}: output, loss, weights and input");
    for row in rows {
        assert!(row.verdict == Verdict::Pass, "{row:?}");
    }
}

#[test]
fn every_kan_bundle_passes_the_verifier_on_the_fast_path() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if !name.starts_with("kan_") && name != "conv_then_kan" {
            continue;
        }
        seen += 1;
        let bundle = Bundle::read(&path).unwrap();
        let case = Network::from_bundle(&bundle).unwrap();
        // Trajectories and PyTorch's own numbers are the bundle check's; here every gradient of
        // the fast kernels, and the threads.
        let options = Options {
            optimizers: Vec::new(),
            ..quick()
        };
        let report = verify::check(
            &name,
            &case.model,
            &cast::<f64, f32>(&case.params),
            &cast::<f64, f32>(&case.input),
            &case.target.cast(),
            bundle.loss,
            &options,
        )
        .unwrap();
        let checked = [Link::Differences, Link::Cpu, Link::Threads];
        let rows: Vec<_> = report
            .rows
            .iter()
            .filter(|r| checked.contains(&r.link))
            .collect();
        assert!(rows.iter().any(|r| r.link == Link::Cpu), "{name}");
        for row in rows {
            assert!(row.verdict == Verdict::Pass, "{}", report.table());
        }
    }
    assert!(seen >= 13, "{seen} bundles");
}

#[test]
fn every_degree_base_bias_and_rule_passes_the_verifier() {
    let all = [1, 2, 3, 4, 5, 6, 7].into_iter().flat_map(|degree| {
        let grid = [1, 5, 8, 3, 2, 6, 4][degree - 1];
        [
            (degree, grid, Base::Silu, true, Outside::Decay, false),
            (degree, grid, Base::None, false, Outside::Clamp, false),
            (degree, grid, Base::Silu, false, Outside::Clamp, true),
        ]
    });
    for (degree, grid, base, bias, outside, free) in all {
        let layers = vec![
            layer(5, grid, degree, base, bias, outside, free),
            layer(2, grid, degree, base, bias, outside, free),
        ];
        let mut network = Network::new(&NetworkSpec::new(&[3], layers)).unwrap();
        if free {
            random_knots(&mut network, degree as u64);
        }
        let (params, input, target) = problem(&network, 6, degree as u64);
        let name = format!("degree {degree}, grid {grid}, {base:?}, {outside:?}, free {free}");
        let report = verify::check(
            &name,
            &network,
            &params,
            &input,
            &target,
            Loss::Mse,
            &quick(),
        )
        .unwrap();
        assert!(report.passed(), "{}", report.table());
    }
}

/// Widths around the 16 lanes of vectors and the 8 of their halves, one and several, and batches
/// around the blocks of samples.
#[test]
fn all_widths_and_batches_agree_with_the_reference() {
    for (n, &(inputs, outputs)) in [
        (1, 1),
        (3, 15),
        (16, 16),
        (17, 17),
        (5, 31),
        (33, 24),
        (5, 70),
        (4, 100),
        (6, 130),
    ]
    .iter()
    .enumerate()
    {
        for (degree, grid, free) in [(3, 5, false), (2, 64, false), (7, 9, false), (3, 6, true)] {
            let layers = vec![layer(
                outputs,
                grid,
                degree,
                Base::Silu,
                true,
                Outside::Decay,
                free,
            )];
            let mut network = Network::new(&NetworkSpec::new(&[inputs], layers)).unwrap();
            if free {
                random_knots(&mut network, 5);
            }
            for samples in [1, 7, 65] {
                let (params, input, target) = problem(&network, samples, n as u64);
                let name = format!(
                    "{inputs} → {outputs}, degree {degree}, grid {grid}, free {free}, {samples} \
                     samples"
                );
                assert_agrees(&name, &network, &params, &input, &target);
            }
        }
    }
}

/// What rounding does to the splines of degree k on uniform knots up to |T|, h apart, with u half a
/// unit in the last place of 1: a bound of the values, and of the slopes.
///
/// s = (x − t_q)/h is off by e = u·(|T|/h + 2), by the rounding of the knot, of 1/h and of the product, and so is
/// r = (t_{q+1} − x)/h. Level d multiplies what level d−1 is off by with right_{r+1}/d and left_{d−r+1}/d, which sum
/// to (d+1)/d, and adds e/d twice, for s and for r: from e at level 1 that grows to (3k − 1)/2·e. Each of k levels
/// multiplies positive terms with errors of 4u: a difference, 1/d, its product, and the sum. Degree 3 in closed form
/// stays below that: its largest are 2/3 and a product ≤ 1/2 of factors that are off by 2u together. A slope is the
/// difference of two splines of degree k−1, each multiplied by 1/h.
fn spline_rounding(degree: usize, largest_knot: f64, inverse_step: f64) -> (f64, f64) {
    let u = f64::from(f32::EPSILON) / 2.0;
    let s = u * (largest_knot * inverse_step + 2.0);
    let value = s * (3.0 * degree as f64 - 1.0) / 2.0 + u * 4.0 * degree as f64;
    (value, 2.0 * inverse_step * (value + 2.0 * u))
}

/// Interval, values and slopes at every knot, at the f32 next to it on either side, and at the
/// ends: the interval must be the one that f64 finds.
#[test]
fn inputs_on_knots_take_the_interval_that_f64_takes() {
    for degree in 1..=7 {
        for (grid, range) in [
            (5, [-1.0, 1.0]),
            (1, [0.0, 1.0]),
            (64, [-3.0, 3.3]),
            (7, [-0.3, 2.0]),
        ] {
            let kan = Kan::new(1, 1, grid, degree, range, Base::Silu, false, Outside::Decay);
            let knots = kan.knots(0);
            let x: Vec<f32> = knots
                .iter()
                .flat_map(|&t| [(t as f32).next_down(), t as f32, (t as f32).next_up()])
                .collect();
            let largest = knots.iter().fold(0.0_f64, |m, t| m.max(t.abs()));
            let inverse_step = grid as f64 / (range[1] - range[0]);
            let (value_bound, slope_bound) = spline_rounding(degree, largest, inverse_step);
            let (fast_values, fast_slopes) = block::evaluate(&kan, 0, &x);
            let (mut values, mut slopes) = (vec![0.0; kan.bases()], vec![0.0; kan.bases()]);
            for (s, &x_s) in x.iter().enumerate() {
                reference::basis(degree, &knots, f64::from(x_s), &mut values, &mut slopes);
                for m in 0..kan.bases() {
                    let at = s * kan.bases() + m;
                    assert!(
                        (f64::from(fast_values[at]) - values[m]).abs() <= value_bound,
                        "degree {degree}, grid {grid}, x {x_s}: value {m}: {} for {}",
                        fast_values[at],
                        values[m]
                    );
                    assert!(
                        (f64::from(fast_slopes[at]) - slopes[m]).abs() <= slope_bound,
                        "degree {degree}, grid {grid}, x {x_s}: slope {m}: {} for {}",
                        fast_slopes[at],
                        slopes[m]
                    );
                }
            }
        }
    }
}

/// A spline is as small as a power of the distance to the knot where it ends, on the left or on the right, and keeps
/// its digits there: a norm may divide by how little the values of a batch differ. The knots are numbers of f32, and
/// 1/h too. Every factor has an error of 3u (the distance, its product with 1/h, the sum with a whole number), 1/d,
/// two products and a sum 4u more, and k factors with positive terms 8k·u. The two splines in the middle of degree 3
/// are differences of numbers up to 2/3, which are never below 1/6: 5u.
#[test]
fn splines_keep_their_digits_where_they_end() {
    let u = f64::from(f32::EPSILON) / 2.0;
    for degree in 1..=7 {
        for grid in [8, 64] {
            let kan = Kan::new(
                1,
                1,
                grid,
                degree,
                [-1.0, 1.0],
                Base::None,
                false,
                Outside::Decay,
            );
            let knots = kan.knots(0);
            let x: Vec<f32> = (0..12)
                .flat_map(|n| [-1.0, 1.0].map(|side| side * 0.013 / (1 << n) as f32))
                .collect();
            let (fast, _) = block::evaluate(&kan, 0, &x);
            let (mut values, mut slopes) = (vec![0.0; kan.bases()], vec![0.0; kan.bases()]);
            for (fast, &x) in fast.chunks_exact(kan.bases()).zip(&x) {
                reference::basis(degree, &knots, f64::from(x), &mut values, &mut slopes);
                for (m, (&fast, &value)) in fast.iter().zip(&values).enumerate() {
                    let middle = if degree == 3 && value > 0.1 {
                        5.0 * u
                    } else {
                        0.0
                    };
                    let bound = 8.0 * degree as f64 * u * value + middle;
                    assert!(
                        (f64::from(fast) - value).abs() <= bound,
                        "degree {degree}, grid {grid}, x {x:e}: value {m}: {fast:e} for {value:e}"
                    );
                }
                // The path of one sample has the same bits.
                let mut tile = basis::Tile::new();
                tile.fill(&kan.table, 0, &[x]);
                for r in 0..=degree {
                    let row = tile.start[0] as usize + r;
                    assert_eq!(tile.values[r][0].to_bits(), fast[row].to_bits());
                }
            }
        }
    }
}

#[test]
fn basis_functions_are_a_partition_of_unity_for_every_degree() {
    for degree in 1..=7 {
        let kan = Kan::new(
            1,
            1,
            6,
            degree,
            [-1.0, 1.0],
            Base::Silu,
            false,
            Outside::Decay,
        );
        let x: Vec<f32> = (0..400)
            .map(|n| -0.999 + n as f32 * 0.005)
            .filter(|&x| x < 1.0)
            .collect();
        let (values, slopes) = block::evaluate(&kan, 0, &x);
        for s in 0..x.len() {
            let of_sample = s * kan.bases()..(s + 1) * kan.bases();
            let sum = |of: &[f32]| of[of_sample.clone()].iter().map(|&v| f64::from(v)).sum();
            let (value, slope): (f64, f64) = (sum(&values), sum(&slopes));
            // Whatever s is, the splines there add up to 1, each with the error of k levels; slopes
            // are differences of neighbours, which cancel but for the rounding of each.
            let u = f64::from(f32::EPSILON) / 2.0;
            assert!(
                (value - 1.0).abs() <= u * 4.0 * degree as f64,
                "degree {degree}: Σ B = {value}"
            );
            assert!(
                slope.abs() <= u * 3.0 * (degree + 1) as f64,
                "degree {degree}: Σ B′ = {slope}"
            );
        }
    }
}

#[test]
fn one_object_takes_growing_and_shrinking_batches() {
    let layers = vec![kan_layer(6, 5, 3), kan_layer(4, 5, 3)];
    let network = Network::new(&NetworkSpec::new(&[5], layers)).unwrap();
    let mut tape = NetworkTape::default();
    for samples in [1, 7, 16, 64, 128, 64, 16, 7, 1, 128, 1] {
        let (params, input, target) = problem(&network, samples, samples as u64);
        let reused = evaluate(&network, &params, &input, &target.values, &mut tape);
        let fresh = evaluate(
            &network,
            &params,
            &input,
            &target.values,
            &mut NetworkTape::default(),
        );
        assert_eq!(reused.y, fresh.y, "{samples} samples");
        assert_eq!(reused.d_params, fresh.d_params, "{samples} samples");
        assert_eq!(reused.d_input, fresh.d_input, "{samples} samples");
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let layers = vec![kan_layer(40, 5, 3), kan_layer(10, 4, 2)];
    let network = Network::new(&NetworkSpec::new(&[21], layers)).unwrap();
    // More than one run of a long sum.
    for samples in [300, LONG] {
        let (params, input, target) = problem(&network, samples, 1);
        let on = |threads| {
            parallel::with_threads(threads, || {
                let mut tape = NetworkTape::default();
                evaluate(&network, &params, &input, &target.values, &mut tape)
            })
        };
        let one = on(1);
        for threads in [2, 7] {
            let other = on(threads);
            assert_eq!(one.y, other.y);
            assert_eq!(one.d_params, other.d_params);
            assert_eq!(one.d_input, other.d_input);
        }
    }
}

/// A gradient that is added to holds the sum, with and without padded rows. All terms are positive,
/// so that no partial sum exceeds the whole: an addition is off by u times it at most. A row gets
/// k+1 = 4 sums from each of two blocks in each of two batches, once in one and once in two chains.
#[test]
fn gradients_are_added_to_those_of_an_earlier_batch() {
    const ADDITIONS: f64 = 2.0 * (4 * 2 * 2) as f64;
    let u = f64::from(f32::EPSILON) / 2.0;
    for outputs in [10, 16, 24] {
        let layers = vec![kan_layer(outputs, 5, 3)];
        let network = Network::new(&NetworkSpec::new(&[6], layers)).unwrap();
        let params = network.init(0);
        let mut stream = Key::new(1).purpose("kan test").stream();
        let mut numbers = |len| (0..len).map(|_| stream.uniform_f32()).collect::<Vec<f32>>();
        let pass = Pass::training(Key::new(0));
        let mut tape = NetworkTape::default();
        let mut added = vec![0.0; params.len()];
        let mut sum = vec![0.0; params.len()];
        for _ in 0..2 {
            let (input, d_y) = (numbers(100 * 6), numbers(100 * outputs));
            let alone = evaluate(&network, &params, &input, &d_y, &mut tape).d_params;
            let grads = Grads {
                params: Some(&mut added),
                input: None,
                accumulate: true,
            };
            network.compute_backward(&params, &input, &pass, &mut tape, &d_y, grads);
            for (sum, d) in sum.iter_mut().zip(alone) {
                *sum += f64::from(d);
            }
        }
        for (i, (&added, &sum)) in added.iter().zip(&sum).enumerate() {
            let error = (f64::from(added) - sum).abs();
            assert!(
                error <= ADDITIONS * u * sum,
                "{outputs} outputs, parameter {i}: {added}, not {sum}"
            );
        }
    }
}

/// More samples than one run of a sum takes.
const LONG: usize = backward::RUN + 100;

/// Rounding that is random grows with the root of the terms; sums that are not cut would not.
#[test]
fn long_sums_stay_within_random_rounding() {
    let network = Network::new(&NetworkSpec::new(&[3], vec![kan_layer(2, 5, 3)])).unwrap();
    let (params, input, target) = problem(&network, LONG, 2);
    assert_agrees("a long batch", &network, &params, &input, &target);
}

/// One sample must give the bits of the same sample in a batch: a search that evaluates single
/// positions and a training that evaluates batches see one network.
#[test]
fn one_sample_has_the_bits_it_has_in_a_batch() {
    let layers = vec![kan_layer(24, 5, 3), kan_layer(7, 5, 3)];
    let network = Network::new(&NetworkSpec::new(&[21], layers)).unwrap();
    let (params, input, _) = problem(&network, 50, 3);
    let pass = Pass::inference();
    let mut tape = NetworkTape::default();
    network.compute_forward(&params, &input, &pass, &mut tape);
    let batch = network.output(&tape).to_vec();
    for (sample, y) in input.chunks_exact(21).zip(batch.chunks_exact(7)) {
        network.compute_forward(&params, &sample.to_vec(), &pass, &mut tape);
        assert_eq!(network.output(&tape), y);
    }
}

/// A clamped input must not get a gradient, from the splines or from the base.
#[test]
fn a_clamped_input_gets_no_gradient() {
    let layers = vec![layer(3, 5, 3, Base::Silu, false, Outside::Clamp, false)];
    let network = Network::new(&NetworkSpec::new(&[1], layers)).unwrap();
    let (params, ..) = problem(&network, 1, 2);
    let input = vec![-1.5, -1.0, 0.3, 1.0, 1.0_f32.next_up(), 7.0];
    let d_y = vec![1.0; 18];
    let got = evaluate(&network, &params, &input, &d_y, &mut NetworkTape::default());
    let is_zero: Vec<bool> = got.d_input.iter().map(|&d| d == 0.0).collect();
    assert_eq!(is_zero, [true, false, false, false, true, true]);
    assert_eq!(got.y[..3], {
        let edge = evaluate(
            &network,
            &params,
            &vec![-1.0],
            &d_y[..3],
            &mut NetworkTape::default(),
        );
        edge.y[..3].to_vec()
    });
}

/// NaN comes out as NaN, in every combination, and an optimizer never sees it: the batch is
/// refused before.
#[test]
fn nan_is_seen_not_swallowed() {
    for base in [Base::Silu, Base::None] {
        for outside in [Outside::Decay, Outside::Clamp] {
            for free in [false, true] {
                let layers = vec![layer(3, 5, 3, base, false, outside, free)];
                let network = Network::new(&NetworkSpec::new(&[2], layers)).unwrap();
                let (params, ..) = problem(&network, 1, 2);
                let input = vec![0.1, f32::NAN, 0.2, 0.3];
                let d_y = vec![1.0; 6];
                let got = evaluate(&network, &params, &input, &d_y, &mut NetworkTape::default());
                assert!(
                    got.y[..3].iter().all(|y| y.is_nan()),
                    "{base:?} {outside:?} {free}"
                );
                assert!(got.y[3..].iter().all(|y| y.is_finite()));
                let message = network.check_batch(&input).unwrap_err().to_string();
                assert!(message.contains("sample 0, value 1"), "{message}");
            }
        }
    }
}

/// Frozen tensors cost nothing and get zeros; the others are not touched by it.
#[test]
fn frozen_tensors_get_zeros_and_leave_the_rest_alone() {
    let layers = vec![layer(9, 5, 3, Base::Silu, true, Outside::Decay, false)];
    let mut network = Network::new(&NetworkSpec::new(&[4], layers)).unwrap();
    let (params, input, target) = problem(&network, 70, 4);
    let all = evaluate(
        &network,
        &params,
        &input,
        &target.values,
        &mut NetworkTape::default(),
    );
    for frozen in ["0.spline_weight", "0.base_weight", "0.bias"] {
        network.layout_mut().freeze(frozen).unwrap();
        let got = evaluate(
            &network,
            &params,
            &input,
            &target.values,
            &mut NetworkTape::default(),
        );
        for t in network.layout().tensors() {
            let own = &got.d_params[t.range()];
            if t.frozen {
                assert!(own.iter().all(|&d| d == 0.0), "{}", t.name);
            } else {
                assert_eq!(own, &all.d_params[t.range()], "{}", t.name);
            }
        }
        assert_eq!(got.d_input, all.d_input);
        network.layout_mut().unfreeze(frozen).unwrap();
    }
}
