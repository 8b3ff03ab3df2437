//! Functions that are learned to a stated error, and formulas that are found.

use crate::kan::*;
use crate::network::{Network, NetworkTape};
use crate::optim::Lbfgs;
use crate::rng::Key;
use crate::scalar::cast;
use crate::{Loss, Model, Pass, Target};

fn samples(count: usize, range: f64, seed: u64) -> Vec<f32> {
    let mut stream = Key::new(seed).purpose("kan fit").stream();
    (0..2 * count)
        .map(|_| stream.range(-range, range) as f32)
        .collect()
}

fn of(x: &[f32], f: impl Fn(f64, f64) -> f64) -> Vec<f32> {
    x.chunks_exact(2)
        .map(|x| f(x[0].into(), x[1].into()) as f32)
        .collect()
}

/// sin(2x)·exp(−y²): a root mean square error below 1e-3 after 500 steps of L-BFGS, lower on a
/// grid twice as fine, and the same on points not seen. About a second on one core.
#[test]
fn a_smooth_function_is_learned_to_a_thousandth_and_better_on_a_finer_grid() {
    let f = |x: f64, y: f64| (2.0 * x).sin() * (-y * y).exp();
    let x = samples(300, 1.0, 3);
    let network = Network::new(&KanConfig::new(&[2, 5, 1]).spec().unwrap()).unwrap();
    let input: Vec<f64> = cast(&x);
    let target = Target::values(cast::<f32, f64>(&of(&x, f)));
    let lbfgs = Lbfgs {
        iterations: 500,
        ..Lbfgs::default()
    };
    let mut params: Vec<f64> = cast(&network.init(0));
    let coarse = lbfgs.fit(&network, &mut params, Loss::Mse, &input, &target);
    let coarse = coarse.loss.sqrt();
    assert!(coarse < 1e-3, "RMSE {coarse:e}");
    let (fine, params, _) = extend_grid(&network, &cast::<f64, f32>(&params), 10).unwrap();
    let mut params: Vec<f64> = cast(&params);
    let finer = lbfgs.fit(&fine, &mut params, Loss::Mse, &input, &target);
    let finer = finer.loss.sqrt();
    assert!(
        finer < coarse,
        "RMSE {coarse:e}, on the finer grid {finer:e}"
    );
    let new = samples(200, 1.0, 4);
    let mut tape = NetworkTape::default();
    let params: Vec<f32> = cast(&params);
    fine.compute_forward(&params, &new, &Pass::inference(), &mut tape);
    let squares: f64 = fine
        .output(&tape)
        .iter()
        .zip(of(&new, f))
        .map(|(a, b)| f64::from(a - b).powi(2))
        .sum();
    let error = (squares / 200.0).sqrt();
    assert!(error < 1e-3, "{error:e} on points not seen");
}

/// x·y + sin(x) from samples alone: the printed formula has those functions and no other, and
/// agrees within 1e-3 over the domain.
#[test]
fn a_product_and_a_sine_are_recovered_as_a_formula() {
    let f = |x: f64, y: f64| x * y + x.sin();
    let x = samples(250, 2.0, 13);
    let options = Discover::new(&[2, 3, 1], [-2.0, 2.0]);
    let found = discover(&x, &of(&x, f), &options).unwrap();
    let formula = found.formula(0);
    let text = formula.text();
    let mut worst = 0.0_f64;
    for a in -20..=20 {
        for b in -20..=20 {
            let (a, b) = (f64::from(a) / 10.0, f64::from(b) / 10.0);
            worst = worst.max((formula.value(&[a, b]) - f(a, b)).abs());
        }
    }
    let about = format!("{text}: off by {worst:e}, seed {}", found.seed);
    assert!(worst < 1e-3, "{about}");
    assert!(
        text.contains("x_1*x_2") && text.contains("sin(x_1)"),
        "{about}"
    );
    assert_eq!(formula.functions(), [Function::Sin], "{about}");
    assert!(
        formula.latex().contains(r"\sin\left(x_{1}\right)"),
        "{about}"
    );
}

#[test]
fn a_product_with_a_sine_and_a_root_of_squares_are_recovered() {
    type Formula = fn(f64, f64) -> f64;
    let formulas: [(&str, Formula); 2] = [
        ("sin(x_2)*x_1 + 1", |x, y| 1.0 + x * y.sin()),
        ("sqrt(x_1^2 + x_2^2 + 1)", |x, y| {
            (x * x + y * y + 1.0).sqrt()
        }),
    ];
    for (text, f) in formulas {
        let x = samples(400, 2.5, 17);
        let options = Discover::new(&[2, 2, 1], [-2.5, 2.5]);
        let found = discover(&x, &of(&x, f), &options).unwrap();
        assert_eq!(found.formula(0).text(), text, "seed {}", found.seed);
    }
}

/// Each function, shifted and scaled, is found among all others by its own points.
#[test]
fn every_function_of_the_library_is_recognised() {
    let x: Vec<f64> = (0..120).map(|n| -1.0 + f64::from(n) / 59.5).collect();
    for &function in LIBRARY {
        let (a, b) = match function {
            Function::Sqrt | Function::Log | Function::InverseSqrt => (1.3, 1.6),
            Function::Inverse | Function::InverseSquare => (1.0, 1.9),
            Function::Tan => (0.9, 0.2),
            Function::Sin => (2.2, 0.4),
            Function::Cos => (2.2, 0.3),
            Function::Gaussian | Function::Tanh | Function::Sigmoid | Function::Arctan => {
                (2.0, 0.5)
            }
            _ => (1.2, 0.3),
        };
        let y: Vec<f64> = x
            .iter()
            .map(|&x| 1.7 * function.value(a * x + b) - 0.4)
            .collect();
        let own = fit_function(function, &x, &y).unwrap();
        assert!(own.r2 > 1.0 - 1e-9, "{function}: {own:?}");
        // A cosine is a shifted sine, a sigmoid a scaled tanh.
        let same = match function {
            Function::Cos => Function::Sin,
            Function::Sigmoid => Function::Tanh,
            other => other,
        };
        let best = fit_all(LIBRARY, &x, &y)[0];
        assert!(
            best.function == function || best.function == same,
            "{function}: {best:?}"
        );
    }
}
