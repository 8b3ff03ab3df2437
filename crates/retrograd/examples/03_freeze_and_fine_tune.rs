//! Trains a network, then adapts it to a new task with its first layers frozen: they keep every
//! bit, and cost no backward work.
//!
//! cargo run --release --example 03_freeze_and_fine_tune

use retrograd::network::{LayerSpec, Network, NetworkSpec};
use retrograd::optim::OptimizerSpec;
use retrograd::rng::Key;
use retrograd::train::{Example, Stepper};
use retrograd::{Loss, Model, Pass, Target};

/// Steps of Adam on all samples at once. Returns the parameters and the last loss.
fn train(network: &Network, params: Vec<f32>, example: &Example<Network>) -> (Vec<f32>, f64) {
    let mut stepper = Stepper::new(network, params, OptimizerSpec::adam(0.01));
    let mut loss = f64::NAN;
    for step in 0..500 {
        let pass = Pass::training(Key::new(0).step(step));
        let step = stepper.step(network, Loss::Mse, example, &pass);
        loss = step.expect("an example that fits, and finite numbers");
    }
    (stepper.params, loss)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let layers = vec![LayerSpec::dense(32), LayerSpec::tanh(), LayerSpec::dense(1)];
    let mut network = Network::new(&NetworkSpec::new(&[1], layers))?;
    let x: Vec<f32> = (0..64).map(|i| i as f32 / 32.0 - 1.0).collect();
    let example = |f: fn(f32) -> f32| Example {
        input: x.clone(),
        target: Target::values(x.iter().map(|&x| f(x)).collect()),
    };

    let (first, loss) = train(&network, network.init(0), &example(|x| (3.0 * x).sin()));
    println!("sin(3x)            loss {loss:.6}");

    network.layout_mut().freeze("0.*")?;
    let trained: usize = network.layout().trainable().map(|range| range.len()).sum();
    println!("layer 0 frozen: {trained} of {} parameters", first.len());

    let new = example(|x| (3.0 * x).sin() * 0.5 + x);
    let (second, loss) = train(&network, first.clone(), &new);
    println!("sin(3x)/2 + x      loss {loss:.6}");
    for tensor in network.layout().tensors() {
        let same = first[tensor.range()] == second[tensor.range()];
        println!("{:10} unchanged: {same}", tensor.name);
        assert_eq!(same, tensor.frozen);
    }
    Ok(())
}
