//! Training on samples in memory, and the parameters that are kept.

use super::*;
use crate::data::Dataset;
use crate::network::{LayerSpec, Network, NetworkSpec};
use crate::optim::OptimizerSpec;

fn experiment(epochs: u64, batch: usize) -> Experiment {
    Experiment {
        name: "memory".into(),
        about: String::new(),
        folder: None,
        train: TrainSpec {
            epochs,
            batch: Some(batch),
            optimizer: OptimizerSpec::sgd(0.1),
            ..TrainSpec::default()
        },
        model: Default::default(),
        data: Default::default(),
    }
}

fn network(outputs: usize) -> Network {
    let layers = vec![
        LayerSpec::dense(3),
        LayerSpec::gelu(),
        LayerSpec::dense(outputs),
    ];
    Network::new(&NetworkSpec::new(&[2], layers)).unwrap()
}

fn inputs(samples: usize) -> Vec<f32> {
    (0..2 * samples).map(|i| (i as f32 * 0.7).sin()).collect()
}

fn values(samples: usize) -> Dataset {
    let targets = (0..samples).map(|i| (i as f32).cos()).collect();
    let data = Dataset::new(vec![2], inputs(samples)).unwrap();
    data.with_values(vec![1], targets).unwrap()
}

/// The parameters that a training keeps.
fn trained(train: Dataset, validation: Option<Dataset>, epochs: u64, batch: usize) -> Vec<f32> {
    let experiment = experiment(epochs, batch);
    let mut task = NetworkTask::on(&experiment, network(1), train, validation).unwrap();
    let mut params = Vec::new();
    let session = Session::new(experiment).kept_in(&mut params);
    { session }.fit(&mut task).unwrap();
    params
}

#[test]
fn the_parameters_that_are_kept_are_those_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let experiment = experiment(7, 4);
    let mut task = NetworkTask::on(&experiment, network(1), values(20), Some(values(6))).unwrap();
    let mut kept = Vec::new();
    let session = Session::new(experiment).in_folder(&run).kept_in(&mut kept);
    { session }.fit(&mut task).unwrap();
    let (saved, _) = load_weights(&model_file(&run), &mut network(1)).unwrap();
    assert_eq!(kept, saved);
    assert_eq!(kept, trained(values(20), Some(values(6)), 7, 4));
}

#[test]
fn a_weight_is_a_number_of_repetitions() {
    // One batch holds everything: the same mean, summed in another order.
    let weights: Vec<f32> = (0..12).map(|i| [1.0, 0.0, 3.0][i % 3]).collect();
    let repeated: Vec<u32> = (0..12)
        .flat_map(|i| [vec![i], vec![], vec![i; 3]][i as usize % 3].clone())
        .collect();
    let weighted = values(12).with_weights(weights).unwrap();
    let one = trained(weighted, None, 5, 100);
    let other = trained(values(12).subset(&repeated).unwrap(), None, 5, 100);
    // Five steps of rounding, on numbers around 1.
    for (a, b) in one.iter().zip(&other) {
        assert!((a - b).abs() <= 5.0 * 16.0 * f32::EPSILON, "{a} {b}");
    }
    let unweighted = trained(values(12), None, 5, 100);
    assert!(
        one.iter()
            .zip(&unweighted)
            .any(|(a, b)| (a - b).abs() > 1e-3)
    );
}

#[test]
fn classes_are_measured_and_sizes_that_do_not_fit_are_refused() {
    let experiment = experiment(3, 4);
    let classes = |count| {
        let data = Dataset::new(vec![2], inputs(10)).unwrap();
        data.with_classes(count, (0..10).map(|i| i % 2).collect())
            .unwrap()
    };
    let mut task = NetworkTask::on(&experiment, network(2), classes(2), Some(classes(2))).unwrap();
    let summary = Session::new(experiment.clone()).fit(&mut task).unwrap();
    assert!(summary.more.contains_key("accuracy"), "{:?}", summary.more);
    let wrong = |network, data| NetworkTask::on(&experiment, network, data, None).err();
    let message = wrong(network(3), classes(2)).unwrap().to_string();
    assert!(message.contains("the network's outputs"), "{message}");
    let narrow = Dataset::new(vec![1], inputs(10)).unwrap();
    let narrow = narrow.with_values(vec![1], vec![0.0; 20]).unwrap();
    let message = wrong(network(1), narrow).unwrap().to_string();
    assert!(message.contains("the network's inputs"), "{message}");
}
