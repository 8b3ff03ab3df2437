//! Zachary's karate club: which of two clubs each member joined, from the friendships and the
//! labels of the two leaders alone.
//!
//! cargo run --release --example 08_classify_nodes

use retrograd::graph::data::{Split, karate_club};
use retrograd::graph::{GraphNetwork, GraphSpec, LayerSpec};
use retrograd::optim::OptimizerSpec;
use retrograd::rng::Key;
use retrograd::train::{Example, Stepper};
use retrograd::{Loss, Model, Pass, Target};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let club = karate_club()?;
    let layers = vec![LayerSpec::gcn(16), LayerSpec::tanh(), LayerSpec::gcn(2)];
    let network = GraphNetwork::new(&GraphSpec::new(34, layers))?;
    network.check(&club.batch)?;

    // The loss sees the two leaders; every other member has the weight 0.
    let labelled = |split: &Split| f32::from(u8::from(*split == Split::Train));
    let weights = club.split.iter().map(labelled).collect();
    let example = Example {
        input: club.batch,
        target: Target::classes(club.classes.clone()).weighted(weights),
    };
    let adam = OptimizerSpec::adam(0.01);
    let mut stepper = Stepper::new(&network, network.init(0), adam);
    for step in 0..200 {
        let pass = Pass::training(Key::new(0).step(step));
        let loss = stepper.step(&network, Loss::CrossEntropy, &example, &pass)?;
        if step % 50 == 0 {
            println!("step {step:3}  loss {loss:.4}");
        }
    }

    let mut tape = Default::default();
    network.forward(
        &stepper.params,
        &example.input,
        &Pass::inference(),
        &mut tape,
    )?;
    let scores = network.output(&tape).chunks(2);
    let said: Vec<u32> = scores.map(|s| u32::from(s[1] > s[0])).collect();
    for (club_number, name) in club.class_names.iter().enumerate() {
        let members: Vec<usize> = (0..34).filter(|&m| said[m] == club_number as u32).collect();
        println!("{name}: {members:?}");
    }
    let right = said.iter().zip(&club.classes).filter(|(a, b)| a == b);
    println!("{} of 34 right", right.count());
    Ok(())
}
