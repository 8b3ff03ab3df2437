//! Trains a Kolmogorov–Arnold network on a formula, prunes it, and draws what it learnt.
//!
//! cargo run --release --example 01_train_kan -- kan.svg

use retrograd::Target;
use retrograd::kan::{
    KanConfig, KanNetwork, PlotOptions, SymbolicNetwork, SymbolicOptions, TrainOptions, plot_svg,
    prune,
};
use retrograd::network::Sparsity;
use retrograd::scalar::cast;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // y = sin(3a) + eᵇ on 512 points of the square [−1, 1]², and an input that says nothing.
    let mut draw = retrograd::rng::Key::new(1).purpose("example").stream();
    let x: Vec<f32> = (0..3 * 512).map(|_| draw.range(-1.0, 1.0) as f32).collect();
    let y = |x: &[f32]| (3.0 * x[0]).sin() + x[1].exp();
    let target = Target::values(x.chunks(3).map(y).collect());

    // One layer is a sum of one function per input; the penalty asks for few of them.
    let mut config = KanConfig::new(&[3, 1]);
    config.sparsity = Some(Sparsity {
        l1: 1e-4,
        entropy: 1e-4,
    });
    let mut kan = KanNetwork::new(&config, 0)?;
    let mut options = TrainOptions {
        lr: 0.02,
        ..Default::default()
    };
    for step in 0..600 {
        if step == 400 {
            options.lr = 0.002;
        }
        let loss = kan.train_step_with_options(&x, &target, &options)?;
        if step % 100 == 0 {
            println!("step {step:3}  loss {loss:.6}");
        }
    }

    let (network, params) = kan.into_parts();
    let pruned = prune(&network, &params, &x, 0.03)?;
    let (network, params) = (&pruned.network, &pruned.params);
    let options = SymbolicOptions::default();
    let mut symbolic = SymbolicNetwork::from_kan(network, params, &x, &options)?;
    symbolic.refine(&cast(&x), &cast(&target.values), 20);
    println!("y = {}", symbolic.formula(0).rounded(2).text());
    let svg = plot_svg(network, params, &x, &PlotOptions::default())?;
    match std::env::args().nth(1) {
        Some(path) => std::fs::write(path, svg)?,
        None => println!("a picture of {} bytes; name a file to keep it", svg.len()),
    }
    Ok(())
}
