//! What users of KANs were promised, and the mistakes of other implementations.

use super::*;
use crate::data::image::{ImageFile, Spool};
use crate::network::{LayerSpec, Network, NetworkSpec, NetworkTape, Sparsity};
use crate::rng::Key;
use crate::scalar::cast;
use crate::verify::precision::{Bounds, SamplePlan, sample};
use crate::verify::{Granted, Subject};
use crate::{Grads, Kernels, Loss, Model, Pass, Target, verify};

/// Samples in [−1, 1] per input.
fn samples(inputs: usize, count: usize, seed: u64) -> Vec<f32> {
    let mut stream = Key::new(seed).purpose("kan samples").stream();
    (0..inputs * count)
        .map(|_| stream.range(-1.0, 1.0) as f32)
        .collect()
}

fn run(network: &Network, params: &[f32], x: &[f32]) -> Vec<f32> {
    let mut tape = NetworkTape::default();
    network.compute_forward(params, &x.to_vec(), &Pass::inference(), &mut tape);
    network.output(&tape).to_vec()
}

fn random(network: &Network, seed: u64) -> Vec<f32> {
    let mut stream = Key::new(seed).purpose("kan params").stream();
    (0..network.layout().len())
        .map(|_| stream.range(-0.7, 0.7) as f32)
        .collect()
}

/// The outputs in f64, by the plain loops.
fn exact(network: &Network, params: &[f32], x: &[f32]) -> Vec<f64> {
    let pass = Pass {
        kernels: Kernels::Reference,
        ..Pass::inference()
    };
    let mut tape = NetworkTape::default();
    network.compute_forward(&cast::<f32, f64>(params), &cast(x), &pass, &mut tape);
    network.output(&tape).to_vec()
}

/// The outputs in f64, and what rounding to f32 can move each by, as the verifier predicts it.
fn rounding(network: &Network, params: &[f32], x: &[f32]) -> (Vec<f64>, Bounds) {
    let outputs = x.len() / network.input_len() * network.output_len();
    let target = Target::values(vec![0.0; outputs]);
    let input = x.to_vec();
    let subject = Subject::new("kan", network, params, &input, &target, Loss::Mse).unwrap();
    let plan = SamplePlan {
        runs: 8,
        ..SamplePlan::default()
    };
    let runs = sample(&subject, &Granted::CPU, &[], 0, &plan).evaluations;
    let exact = exact(network, params, x);
    let bounds = Bounds::new(&exact, runs.iter().map(|run| &run.output[..]));
    (exact, bounds)
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |m, v| m.max(v.abs()))
}

fn rms(a: &[f64], b: &[f64]) -> f64 {
    let sum: f64 = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum();
    (sum / a.len() as f64).sqrt()
}

/// The spline weights of a layer's edges as straight lines, one slope per output: a line's weight is
/// the mean of the k knots inside its basis function.
fn lines(params: &mut [f32], knots: &[f64], degree: usize, slopes: &[f64]) {
    let bases = knots.len() - degree - 1;
    for (at, p) in params.iter_mut().enumerate() {
        // Inputs, basis functions, outputs.
        let (j, slope) = (at / slopes.len() % bases, slopes[at % slopes.len()]);
        let inside = (1..=degree).map(|m| knots[j + m]).sum::<f64>();
        *p = (slope * inside / degree as f64) as f32;
    }
}

#[test]
fn the_sparsity_penalty_passes_the_verifier() {
    let mut config = KanConfig::new(&[3, 4, 2]);
    config.sparsity = Some(Sparsity {
        l1: 0.03,
        entropy: 0.2,
    });
    let network = Network::new(&config.spec().unwrap()).unwrap();
    let params = random(&network, 1);
    let x = samples(3, 5, 1);
    let target = Target::values(samples(2, 5, 2));
    let options = verify::Options {
        steps: 3,
        ..Default::default()
    };
    let report = verify::check(
        "sparsity",
        &network,
        &params,
        &x,
        &target,
        Loss::Mse,
        &options,
    )
    .unwrap();
    assert!(report.passed(), "{}", report.table());
    // And it is what the docs say, by hand: two edges of sizes 3 and 1.
    let mut config = KanConfig::new(&[2, 1]);
    config.sparsity = Some(Sparsity {
        l1: 2.0,
        entropy: 1.0,
    });
    let network = Network::new(&config.spec().unwrap()).unwrap();
    let mut params = vec![0.0_f64; network.layout().len()];
    let base = network.layout().get("0.base_weight").unwrap().range();
    params[base.start] = 3.0;
    params[base.start + 1] = -1.0;
    let entropy = -(0.75_f64 * 0.75_f64.ln() + 0.25 * 0.25_f64.ln());
    // Sizes, shares and the l1 part are exact. Two logarithms (to a unit in the last place), two
    // products and two sums on either side, of numbers no larger than the result.
    let exact = 2.0 * 4.0 + entropy;
    let error = (network.penalty(&params, None) - exact).abs();
    assert!(error <= 2.0 * 4.0 * f64::EPSILON * exact, "{error:e}");
}

/// Inside the range a grid twice or three times as fine holds every old spline exactly, and any grid
/// holds a straight line. What is left is the rounding of the new weights to f32, u·|w| each; the
/// basis functions of an input add up to 1, so a value of three inputs moves by 3·u·max|w| at most.
/// (Both are computed in f64.)
#[test]
fn grid_extension_keeps_the_function() {
    for (degree, grid, finer) in [
        (3, 5, 10),
        (2, 4, 12),
        (1, 3, 6),
        (5, 4, 8),
        (3, 5, 7),
        (2, 6, 64),
    ] {
        let mut config = KanConfig::new(&[3, 4]);
        (config.grid, config.degree) = (grid, degree);
        let network = Network::new(&config.spec().unwrap()).unwrap();
        let splines = network.layout().get("0.spline_weight").unwrap().range();
        let mut params = random(&network, 5);
        if finer % grid != 0 {
            let knots = crate::layer::kan::uniform_knots(grid, degree, [-1.0, 1.0]);
            let slopes = [0.5, -0.25, 1.0, 0.125];
            lines(&mut params[splines.clone()], &knots, degree, &slopes);
        }
        let x = samples(3, 200, 6);
        let (new, new_params, refit) = extend_grid(&network, &params, finer).unwrap();
        let largest = |network: &Network, params: &[f32]| {
            let range = network.layout().get("0.spline_weight").unwrap().range();
            params[range]
                .iter()
                .fold(0.0_f64, |m, w| m.max(f64::from(w.abs())))
        };
        // A line's own weights are rounded too.
        let weight = largest(&new, &new_params) + largest(&network, &params);
        let bound = weight * 2.0_f64.powi(-24) + 2.0_f64.powi(-40);
        let case = format!("{degree} {grid} → {finer}");
        assert!(refit.largest <= bound, "{case}: {refit:?}, bound {bound:e}");
        let (old, new) = (exact(&network, &params, &x), exact(&new, &new_params, &x));
        for (old, new) in old.iter().zip(&new) {
            assert!((old - new).abs() <= 3.0 * bound, "{case}: {old} {new}");
        }
    }
    let network = Network::new(&KanConfig::new(&[1, 1]).spec().unwrap()).unwrap();
    let message = extend_grid(&network, &random(&network, 0), 3)
        .err()
        .unwrap()
        .to_string();
    assert!(message.contains("5 (what it has) to 64"), "{message}");
}

/// The knots go to the samples' quantiles, and the function stays where the new knots can hold it.
///
/// The fit minimises Σ ω·r² + ρ·|c|² over the new weights c, r the residual at a point, ω = 1 at the
/// samples, ρ = 10⁻¹³·Σ ω·ΣB². Where c₀ would leave no residual the minimum is at most ρ·|c₀|², and
/// basis functions add up to 1, so that ΣB² ≤ 1 and ρ ≤ 10⁻¹³·1.001·n for n samples and their
/// background. The root mean square of r over the samples is √(10⁻¹³·1.001)·|c₀| at most, and u·max|c|
/// more for the rounding of the weights.
#[test]
fn grid_update_follows_the_samples_and_keeps_the_function_there() {
    let kept = |c0: f64, bases: usize| {
        let ridge = (1e-13_f64 * 1.001).sqrt() * (bases as f64).sqrt();
        // c is no longer than c₀, and c₀ was rounded itself.
        c0 * (ridge + 2.0 * 2.0_f64.powi(-24))
    };
    let weight = |network: &Network, params: &[f32]| {
        let range = network.layout().get("0.spline_weight").unwrap().range();
        largest(&cast::<f32, f64>(&params[range]))
    };
    // Straight lines, which any knots hold, and most samples in the middle.
    let network = Network::new(&KanConfig::new(&[2, 3]).spec().unwrap()).unwrap();
    let mut params = random(&network, 7);
    let spline = network.layout().get("0.spline_weight").unwrap().range();
    let old = crate::layer::kan::uniform_knots(5, 3, [-1.0, 1.0]);
    lines(&mut params[spline], &old, 3, &[0.5, -0.25, 1.0]);
    let x: Vec<f32> = samples(2, 400, 8).iter().map(|x| x * x * x * 0.8).collect();
    let options = GridUpdate::default();
    let (new, new_params, refit) = update_grid(&network, &params, &x, &options).unwrap();
    let knots = &new.buffers()[0].values[..old.len()];
    assert!(knots.windows(2).all(|w| w[0] < w[1]), "{knots:?}");
    let own: Vec<f64> = x.iter().step_by(2).map(|&x| f64::from(x)).collect();
    for n in 1..5 {
        // Without its share of the uniform grid a knot is a quantile: n fifths of the samples are
        // below it, but for the one that it may fall on.
        let share = n as f64 / 5.0;
        let uniform = knots[3] + share * (knots[8] - knots[3]);
        let quantile = (knots[3 + n] - options.uniform * uniform) / (1.0 - options.uniform);
        let below = own.iter().filter(|&&x| x < quantile).count() as f64;
        assert!((below - share * 400.0).abs() <= 1.0, "{n}: {below}");
    }
    // A line's weights lie between the first and the last knot, times its slope.
    let bound = kept(old[0].abs(), 8);
    assert!(refit.rms <= bound, "{refit:?}, bound {bound:e}");
    let (a, b) = (exact(&network, &params, &x), exact(&new, &new_params, &x));
    let error = rms(&a, &b);
    assert!(error <= 2.0 * bound, "{error:e}, bound {bound:e}");
    // Uniform samples and a uniform grid over the same range: the same splines. Knots that f32
    // holds exactly.
    let x: Vec<f32> = (0..=128).map(|n| n as f32 / 64.0 - 1.0).collect();
    let mut config = KanConfig::new(&[1, 1]);
    config.grid = 4;
    let one = Network::new(&config.spec().unwrap()).unwrap();
    let params = random(&one, 9);
    let options = GridUpdate {
        uniform: 1.0,
        margin: 0.0,
    };
    let (new, new_params, _) = update_grid(&one, &params, &x, &options).unwrap();
    let old = crate::layer::kan::uniform_knots(4, 3, [-1.0, 1.0]);
    assert_eq!(new.buffers()[0].values, old);
    let error = rms(&exact(&one, &params, &x), &exact(&new, &new_params, &x));
    let bound = kept(weight(&one, &params), 7);
    assert!(error <= bound, "{error:e}, bound {bound:e}");
}

#[test]
fn pruning_equals_masking_and_masked_edges_stay_at_zero() {
    let mut config = KanConfig::new(&[3, 6, 2]);
    config.bias = true;
    let network = Network::new(&config.spec().unwrap()).unwrap();
    let mut params = random(&network, 10);
    // Three hidden nodes hardly matter.
    let weak: Vec<Edge> = (0..3)
        .flat_map(|node| (0..2).map(move |to| (node, to)))
        .map(|(from, to)| Edge { layer: 1, from, to })
        .collect();
    let mut without = params.clone();
    EdgeMask::new(weak).apply(&network, &mut without);
    for (p, w) in params.iter_mut().zip(&without) {
        *p = w + (*p - w) * 1e-3;
    }
    let x = samples(3, 100, 11);
    let pruned = prune(&network, &params, &x, 0.02).unwrap();
    assert_eq!(pruned.kept, [vec![3, 4, 5]]);
    let mut masked = params.clone();
    pruned.masked.apply(&network, &mut masked);
    assert_eq!(
        run(&network, &masked, &x),
        run(&pruned.network, &pruned.params, &x)
    );
    // An edge that is masked in the smaller network stays so in training.
    let mask = EdgeMask::new(vec![Edge {
        layer: 0,
        from: 1,
        to: 2,
    }]);
    let mut kan = KanNetwork::from_parts(pruned.network, pruned.params).unwrap();
    kan.set_mask(Some(mask.clone()));
    let target = Target::values(samples(2, 100, 12));
    for _ in 0..5 {
        kan.train_step_with_options(&x, &target, &TrainOptions::default())
            .unwrap();
    }
    let mut again = kan.params().to_vec();
    mask.apply(kan.network(), &mut again);
    assert_eq!(again, kan.params());
}

#[test]
fn frozen_networks_keep_the_outputs_within_their_rounding() {
    let mut config = KanConfig::new(&[21, 64, 64, 24]);
    config.bias = true;
    let network = Network::new(&config.spec().unwrap()).unwrap();
    let params = network.init(3);
    let x = samples(21, 64, 14);
    let folder = tempfile::tempdir().unwrap();
    // Both sides of a comparison in f32 may be off by their rounding.
    let twice = 2.0 * largest(rounding(&network, &params, &x).1.values());
    for precision in [
        FrozenPrecision::F32,
        FrozenPrecision::F16,
        FrozenPrecision::I8,
    ] {
        let mut frozen = FrozenKan::freeze(&network, &params, precision).unwrap();
        // Each weight is within half a step of what it was: f16 has 11 digits, i8 127 steps up to
        // the largest weight of an input.
        let kept = frozen.params(&network).unwrap();
        let layers = Layers::new(&network).unwrap();
        for layer in 0..layers.len() {
            let [spline, base, bias] = layers.weights(layer, &params);
            let [kept_spline, kept_base, kept_bias] = layers.weights(layer, &kept);
            assert_eq!(bias, kept_bias);
            for (exact, kept) in [(spline, kept_spline), (base, kept_base)] {
                let len = exact.len() / layers.size(layer).0;
                for (exact, kept) in exact.chunks_exact(len).zip(kept.chunks_exact(len)) {
                    let largest = exact.iter().fold(0.0_f32, |m, w| m.max(w.abs()));
                    for (w, k) in exact.iter().zip(kept) {
                        let half_step = match precision {
                            FrozenPrecision::F32 => 0.0,
                            // Below 2⁻¹⁴ the steps are 2⁻²⁴.
                            FrozenPrecision::F16 => (w.abs() / 2048.0).max(f32::EPSILON / 4.0),
                            // The step and the product are rounded too: 127 · 2⁻²³.
                            FrozenPrecision::I8 => largest * (0.5 / 127.0 + 127.0 * f32::EPSILON),
                        };
                        assert!((w - k).abs() <= half_step, "{precision:?}: {w} became {k}");
                    }
                }
            }
        }
        // With the weights as they are kept, rounding alone is left: within the verifier's bound
        // of the f64 reference.
        let (exact, bounds) = rounding(&network, &kept, &x);
        let mut y = [0.0; 24];
        for (n, x) in x.chunks_exact(21).enumerate() {
            frozen.forward_single(x, &mut y).unwrap();
            for (j, y) in y.iter().enumerate() {
                let at = n * 24 + j;
                let error = (f64::from(*y) - exact[at]).abs();
                assert!(error <= bounds.at(at), "{precision:?}, {at}: {error:e}");
            }
        }
        // What the coarser weights cost is more than rounding, and seen.
        let (error, ..) = frozen.error_against(&network, &params, &x).unwrap();
        assert_eq!(
            error > twice,
            precision != FrozenPrecision::F32,
            "{error:e}"
        );
        let path = folder.path().join("frozen.safetensors");
        frozen.write(&path).unwrap();
        let mut read = FrozenKan::read(&path).unwrap();
        let (mut a, mut b) = ([0.0; 24], [0.0; 24]);
        frozen.forward_single(&x[..21], &mut a).unwrap();
        read.forward_single(&x[..21], &mut b).unwrap();
        assert_eq!(a, b);
        assert_eq!(read.weight_bytes(), frozen.weight_bytes());
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert!(FrozenKan::read(&path).is_err());
    }
    // f16 decoding: every finite half, against the half crate.
    use crate::layer::kan::frozen::{Half, Stored};
    for bits in 0..=u16::MAX {
        let exact = half::f16::from_bits(bits);
        if exact.is_finite() {
            assert_eq!(Half(bits).decode(), exact.to_f32());
        }
    }
}

/// Normalisation is a layer: the frozen network and the formula have it too.
#[test]
fn normalisation_is_applied_everywhere() {
    let layers = vec![LayerSpec::normalize(), LayerSpec::kan(2, 5, 3, [-1.0, 1.0])];
    let mut network = Network::new(&NetworkSpec::new(&[2], layers)).unwrap();
    for mut buffer in network.buffers() {
        let mean = buffer.name == "0.mean";
        buffer.values = if mean {
            vec![10.0, -5.0]
        } else {
            vec![4.0, 2.0]
        };
        network.set_buffer(&buffer).unwrap();
    }
    let params = random(&network, 15);
    let x: Vec<f32> = samples(2, 80, 16)
        .chunks_exact(2)
        .flat_map(|x| [10.0 + 3.5 * x[0], -5.0 + 1.8 * x[1]])
        .collect();
    let mut frozen = FrozenKan::freeze(&network, &params, FrozenPrecision::F32).unwrap();
    let (error, ..) = frozen.error_against(&network, &params, &x).unwrap();
    let bound = 2.0 * largest(rounding(&network, &params, &x).1.values());
    assert!(error <= bound, "{error:e}, bound {bound:e}");
    // The formula multiplies powers out. Of a term c·(a·x' + b)ᵖ, x' = x·scale + shift, p ≤ 4, every
    // monomial is at most |c|·Zᵖ, Z = |a|·(|x·scale| + |shift|) + |b|, and has some ten roundings;
    // there are five of them at most in x, and as many roundings on the other side.
    use super::Function::{Cube, Fourth, Identity, Square};
    let options = SymbolicOptions {
        library: vec![Identity, Square, Cube, Fourth],
        ..SymbolicOptions::default()
    };
    let symbolic = SymbolicNetwork::from_kan(&network, &params, &x, &options).unwrap();
    let formula = symbolic.formula(0);
    let normal = [(0.25, 2.5), (0.5, 2.5)];
    for at in cast::<f32, f64>(&x).chunks_exact(2) {
        let mut size = 0.0;
        for edge in symbolic.edges().filter(|e| e.edge.to == 0) {
            let (scale, shift) = normal[edge.edge.from];
            for t in &edge.terms {
                let z = t.a.abs() * (at[edge.edge.from].abs() * scale + shift) + t.b.abs();
                size += t.c.abs() * z.max(1.0).powi(4);
            }
        }
        let error = (formula.value(at) - symbolic.value(at)[0]).abs();
        let bound = 2.0 * 5.0 * 10.0 * f64::EPSILON / 2.0 * size;
        assert!(error <= bound, "{error:e}, bound {bound:e}");
    }
}

#[test]
fn states_of_other_libraries_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = KanConfig::new(&[3, 4, 2]);
    config.bias = true;
    let x = samples(3, 20, 17);
    for kind in [Exchange::EfficientKan, Exchange::Pykan] {
        config.bias = kind == Exchange::Pykan;
        let network = Network::new(&config.spec().unwrap()).unwrap();
        let params = random(&network, 18);
        let path = folder.path().join("state.safetensors");
        write_state(&network, &params, kind, &path).unwrap();
        let (read, read_params, read_kind) = read_state(&path).unwrap();
        assert_eq!(read_kind, kind);
        assert_eq!(read.spec(), network.spec());
        assert_eq!(read_params, params);
        assert_eq!(run(&read, &read_params, &x), run(&network, &params, &x));
        // Free knots as well.
        let (free, free_params, _) =
            update_grid(&network, &params, &x, &GridUpdate::default()).unwrap();
        write_state(&free, &free_params, kind, &path).unwrap();
        let (read, read_params, _) = read_state(&path).unwrap();
        assert_eq!(run(&read, &read_params, &x), run(&free, &free_params, &x));
    }
    let network = Network::new(&config.spec().unwrap()).unwrap();
    let path = folder.path().join("bias.safetensors");
    let refused = write_state(
        &network,
        &random(&network, 1),
        Exchange::EfficientKan,
        &path,
    );
    assert!(refused.unwrap_err().to_string().contains("bias"));
}

/// efficient-kan's `spline_scaler` and pykan's scales and masks are part of the weights.
#[test]
fn scalers_and_masks_are_folded_in() {
    use safetensors::tensor::{Dtype, TensorView};
    let folder = tempfile::tempdir().unwrap();
    let grid = crate::layer::kan::uniform_knots(2, 1, [-1.0, 1.0]);
    let f32s = |v: &[f64]| {
        v.iter()
            .flat_map(|v| (*v as f32).to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let write = |name: &str, tensors: &[(&str, &[usize], Vec<f64>)]| {
        let bytes: Vec<Vec<u8>> = tensors.iter().map(|t| f32s(&t.2)).collect();
        let views = tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
            (
                *name,
                TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap(),
            )
        });
        let path = folder.path().join(name);
        std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
        path
    };
    // One edge of degree 1 on the grid −1, 0, 1: a hat of weight 3 at 0, and a base of 2.
    let silu = |x: f64| x / (1.0 + (-x).exp());
    // f32's result within its rounding of the f64 reference, and that one the function by hand but
    // for some ten roundings of its own.
    let check = |network: &Network, params: &[f32], by_hand: f64| {
        let y = f64::from(run(network, params, &[0.25])[0]);
        let (exact, bounds) = rounding(network, params, &[0.25]);
        assert!((y - exact[0]).abs() <= bounds.at(0), "{y} {exact:?}");
        let own = 10.0 * f64::EPSILON * by_hand.abs();
        assert!((exact[0] - by_hand).abs() <= own, "{exact:?} {by_hand}");
    };
    let path = write(
        "efficient.safetensors",
        &[
            ("layers.0.grid", &[1, 5], grid.clone()),
            ("layers.0.spline_weight", &[1, 1, 3], vec![0.0, 3.0, 0.0]),
            ("layers.0.spline_scaler", &[1, 1], vec![0.5]),
            ("layers.0.base_weight", &[1, 1], vec![2.0]),
        ],
    );
    let (network, params, _) = read_state(&path).unwrap();
    check(&network, &params, 1.5 * 0.75 + 2.0 * silu(0.25));
    let path = write(
        "pykan.safetensors",
        &[
            ("act_fun.0.grid", &[1, 5], grid),
            (
                "act_fun.0.coef",
                &[1, 2, 3],
                vec![0.0, 3.0, 0.0, 1.0, 1.0, 1.0],
            ),
            ("act_fun.0.scale_base", &[1, 2], vec![2.0, 7.0]),
            ("act_fun.0.scale_sp", &[1, 2], vec![0.5, 7.0]),
            ("act_fun.0.mask", &[1, 2], vec![1.0, 0.0]),
            ("node_scale_0", &[2], vec![3.0, 1.0]),
            ("node_bias_0", &[2], vec![0.25, -1.0]),
            ("subnode_bias_0", &[2], vec![0.5, 0.0]),
        ],
    );
    let (network, params, _) = read_state(&path).unwrap();
    let inner = 1.5 * 0.75 + 2.0 * silu(0.25) + 0.5;
    check(&network, &params, 3.0 * inner + 0.25);
    assert_eq!(run(&network, &params, &[0.25])[1], -1.0);
}

#[test]
fn pictures_show_every_edge_that_matters() {
    let network = Network::new(&KanConfig::new(&[2, 3, 1]).spec().unwrap()).unwrap();
    let params = random(&network, 19);
    let x = samples(2, 50, 20);
    let svg = plot_svg(&network, &params, &x, &PlotOptions::default()).unwrap();
    assert_eq!(svg.matches("<rect").count(), 9);
    assert_eq!(svg.matches("<circle").count(), 6);
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    let png = plot_png(&network, &params, &x, &PlotOptions::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kan.png");
    std::fs::write(&path, &png).unwrap();
    let picture = ImageFile::open(&path, &Spool::new().unwrap()).unwrap();
    let pixels = picture.read_section(0).unwrap().pixels;
    let dark = pixels.iter().filter(|&&p| p < 128.0).count();
    assert!(dark > 1000, "{dark} dark pixels");
}

mod fit;
mod mistakes;

#[test]
fn single_and_batch_forward_agree_to_the_bit() {
    let mut kan = KanNetwork::new(&KanConfig::new(&[21, 64, 64, 24]), 8).unwrap();
    let x = samples(21, 40, 28);
    let batch = kan.forward_batch(&x).unwrap().to_vec();
    let mut y = [0.0; 24];
    for (x, exact) in x.chunks_exact(21).zip(batch.chunks_exact(24)) {
        kan.forward_single(x, &mut y).unwrap();
        assert_eq!(y, exact);
    }
    // The gradient of a batch is unmoved by single evaluations between.
    let d_y = samples(24, 40, 29);
    let (network, params) = (kan.network(), kan.params().to_vec());
    let mut tape = NetworkTape::default();
    let pass = Pass::training(Key::new(0));
    network.compute_forward(&params, &x, &pass, &mut tape);
    let mut d_params = vec![0.0; params.len()];
    network.compute_backward(
        &params,
        &x,
        &pass,
        &mut tape,
        &d_y,
        Grads::params(&mut d_params),
    );
    assert_eq!(kan.backward_batch(&d_y).unwrap().0, d_params);
}
