use std::sync::Arc;

use super::*;
use crate::graph::batch::Features;
use crate::graph::data::{Split, karate_club};
use crate::graph::structure::{EdgeRules, Graph};
use crate::train::{Example, Experiment, Session, Specimen, Task, TrainSpec};

fn experiment(name: &str) -> Experiment {
    let path = format!(
        "{}/../../experiments/{name}.toml",
        env!("CARGO_MANIFEST_DIR")
    );
    Experiment::read(path).unwrap()
}

#[test]
fn karate_reaches_33_of_34_nodes_from_two_labels() {
    for seed in 0..3 {
        let mut experiment = experiment("karate");
        experiment.train.seed = seed;
        let summary = train(&mut Session::new(experiment)).unwrap().to_json();
        // Two of the 34 are labelled, the other 32 are the test.
        assert_eq!(summary["train_accuracy"].as_f64(), Some(1.0), "seed {seed}");
        let right = (32.0 * summary["test_accuracy"].as_f64().unwrap()).round() as u32;
        assert!(right + 2 >= 33, "seed {seed}: {} of 34", right + 2);
    }
}

#[test]
fn the_karate_report_has_the_graph_and_the_embedding_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let mut experiment = experiment("karate");
    experiment.train.epochs = 20;
    train(&mut Session::new(experiment).in_folder(&run)).unwrap();
    let report = std::fs::read_to_string(run.join("report.html")).unwrap();
    assert!(report.contains("The graph") && report.contains("embedding"));
    let svg = std::fs::read_to_string(run.join("graph.svg")).unwrap();
    assert_eq!(svg.matches("<path").count(), 78);
    assert_eq!(svg.matches("<title>").count(), 34);
}

#[test]
fn links_of_the_club_are_told_from_pairs_that_are_none() {
    let spec: GraphSpec = toml::from_str(
        "features = 34\nlayers = [{ kind = \"gcn\", out = 16 }, { kind = \"tanh\" }, \
         { kind = \"gcn\", out = 8 }, { kind = \"pair_dot\" }]",
    )
    .unwrap();
    let batch = karate_club().unwrap().batch;
    let mut task = LinkTask::new(&spec, batch, 1).unwrap();
    let mut experiment = experiment("karate");
    experiment.train.epochs = 100;
    let (params, mut session) = (task.model().init(0), Session::new(experiment));
    let before = task.evaluate(&params, 0).unwrap();
    let summary = session.fit(&mut task).unwrap().to_json();
    let auc = summary["test_auc"].as_f64().unwrap();
    // 7 held-out links against 7 pairs: chance gives 0.5 with a deviation of 0.16.
    assert!(auc > 0.66, "{auc}, {before:?} before");
    // The seen graph must not hold what is tested.
    let seen = task.model().spec();
    assert_eq!(seen.layers.len(), 4);
}

/// Rings and stars: told apart by structure alone.
fn rings_and_stars() -> GraphSet {
    use crate::graph::{Graph, GraphBatch};
    use std::sync::Arc;
    let (mut graphs, mut classes) = (Vec::new(), Vec::new());
    for n in 4..24_u32 {
        for class in 0..2 {
            let a: Vec<u32> = (0..n - 1 + u32::from(class == 0)).collect();
            let b: Vec<u32> = a
                .iter()
                .map(|&i| if class == 0 { (i + 1) % n } else { n - 1 })
                .collect();
            let graph = Arc::new(Graph::undirected(n as usize, &a, &b).unwrap());
            graphs.push(GraphBatch::dense(graph, 1, vec![1.0; n as usize]).unwrap());
            classes.push(class);
        }
    }
    GraphSet {
        graphs,
        classes,
        class_names: vec!["ring".into(), "star".into()],
        targets: Vec::new(),
        scaling: [0.0, 1.0],
        names: None,
    }
}

/// Dropout of nodes, of attention and of graphs; the last batch of an epoch is smaller.
#[test]
fn graphs_are_shared_by_processes_to_the_same_bits() {
    let spec: GraphSpec = toml::from_str(
        "features = 1\nlayers = [{ kind = \"gat\", out = 4, heads = 2, dropout = 0.3 }, \
         { kind = \"dropout\", p = 0.2 }, { kind = \"gin\", out = 8 }, { kind = \"mean_pool\" }, \
         { kind = \"dropout\", p = 0.5 }, { kind = \"dense\", out = 2 }]",
    )
    .unwrap();
    let mut experiment = experiment("karate");
    experiment.train.epochs = 3;
    experiment.train.shards = Some(5);
    experiment.train.clip = Some(0.1);
    let trained = |size| {
        let mut all = crate::group::threads(size, |group| {
            let mut params = Vec::new();
            let folds = Folds::next_validates(0, 8);
            let mut task = GraphTask::new(&spec, rings_and_stars(), folds, 9, 0, None).unwrap();
            let mut session = Session::new(experiment.clone())
                .in_group(group)
                .kept_in(&mut params);
            let summary = session.fit(&mut task).unwrap();
            drop(session);
            let bits: Vec<u32> = params.iter().map(|p| p.to_bits()).collect();
            (summary.train_loss.to_bits(), bits)
        });
        all.swap_remove(0)
    };
    let alone = trained(1);
    for size in 2..=5 {
        assert!(trained(size) == alone, "{size} processes");
    }
}

/// The club with every other node to train on, in batches of five with a sample around them.
fn sampled_club(neighbours: &[usize]) -> Result<NodeTask> {
    let spec: GraphSpec = toml::from_str(
        "features = 34\nlayers = [{ kind = \"sage\", out = 8 }, { kind = \"relu\" }, \
         { kind = \"dropout\", p = 0.2 }, { kind = \"gcn\", out = 2 }]",
    )
    .unwrap();
    let mut data = karate_club().unwrap();
    for (node, split) in data.split.iter_mut().enumerate() {
        *split = [Split::Train, Split::Test][node % 2];
    }
    NodeTask::new(&spec, data)?.sampling(neighbours, 5, 1)
}

#[test]
fn sampled_neighbourhoods_are_shared_by_processes_to_the_same_bits_and_learn() {
    let mut experiment = experiment("karate");
    experiment.train.epochs = 30;
    experiment.train.shards = Some(4);
    experiment.train.clip = Some(1.0);
    let trained = |size| {
        let mut all = crate::group::threads(size, |group| {
            let mut params = Vec::new();
            let mut session = Session::new(experiment.clone())
                .in_group(group)
                .kept_in(&mut params);
            let summary = session.fit(&mut sampled_club(&[4, 3]).unwrap()).unwrap();
            drop(session);
            let bits: Vec<u32> = params.iter().map(|p| p.to_bits()).collect();
            (summary.to_json()["train_accuracy"].as_f64(), bits)
        });
        all.swap_remove(0)
    };
    let alone = trained(1);
    assert!(alone.0 > Some(0.9), "{:?}", alone.0);
    for size in 2..=4 {
        assert!(trained(size) == alone, "{size} processes");
    }
}

#[test]
fn a_batch_of_neighbourhoods_has_its_own_nodes_first_and_no_more_neighbours_than_asked() {
    let mut task = sampled_club(&[2]).unwrap();
    // 17 nodes to train on, in batches of 5.
    assert_eq!(task.steps_per_epoch(), 4);
    assert_eq!((task.samples(0), task.samples(3)), (Some(5), Some(2)));
    let mut example = None;
    let mut seen = Vec::new();
    for step in 0..4 {
        task.batch(step, &mut example).unwrap();
        let Some(Example { input, target }) = &example else {
            panic!("a batch");
        };
        let weights = target.weights.as_ref().unwrap();
        let own = task.samples(step).unwrap();
        assert_eq!(weights.iter().sum::<f32>(), own as f32);
        assert!(weights[..own].iter().all(|&w| w == 1.0));
        let edges = input.graph().targets();
        for node in 0..own as u32 {
            assert!(edges.iter().filter(|&&t| t == node).count() <= 2);
        }
        // The club's features are one-hot: a row names its node.
        let Features::Sparse(features) = input.features() else {
            panic!("sparse");
        };
        seen.extend_from_slice(&features.by_row.neighbour[..own]);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..34).step_by(2).collect::<Vec<u32>>());
    let none = sampled_club(&[3, 0]).err().unwrap().to_string();
    assert!(none.contains("neighbours: got [3, 0]"), "{none}");
}

#[test]
fn graphs_are_classified_and_numbers_of_graphs_regressed() {
    let spec = |out: usize| -> GraphSpec {
        toml::from_str(&format!(
            "features = 1\nlayers = [{{ kind = \"gin\", out = 8 }}, {{ kind = \"max_pool\" }}, \
             {{ kind = \"dense\", out = {out} }}]"
        ))
        .unwrap()
    };
    let mut experiment = experiment("karate");
    experiment.train.epochs = 60;
    let mut task = GraphTask::new(
        &spec(2),
        rings_and_stars(),
        Folds::next_validates(0, 8),
        8,
        0,
        None,
    )
    .unwrap();
    let summary = Session::new(experiment.clone())
        .fit(&mut task)
        .unwrap()
        .to_json();
    assert_eq!(summary["test_accuracy"].as_f64().unwrap(), 1.0);
    // The logarithm of the number of nodes, by summing over them.
    let mut set = rings_and_stars();
    set.targets = set
        .graphs
        .iter()
        .map(|g| (g.graph().nodes() as f32).ln())
        .collect();
    set.classes.clear();
    set.class_names.clear();
    let mean = set.targets.iter().sum::<f32>() / set.targets.len() as f32;
    let variance = set
        .targets
        .iter()
        .map(|t| (t - mean) * (t - mean))
        .sum::<f32>()
        / set.targets.len() as f32;
    let pooled: GraphSpec = toml::from_str(
        "features = 1\nlayers = [{ kind = \"sum_pool\" }, { kind = \"dense\", out = 8 }, \
         { kind = \"tanh\" }, { kind = \"dense\", out = 1 }]",
    )
    .unwrap();
    let mut task = GraphTask::new(&pooled, set, Folds::next_validates(1, 8), 8, 0, None).unwrap();
    let summary = Session::new(experiment).fit(&mut task).unwrap().to_json();
    let loss = summary["test_loss"].as_f64().unwrap();
    assert!(
        loss < 0.2 * f64::from(variance),
        "{loss} of a variance of {variance}"
    );
    assert!(
        GraphTask::new(
            &spec(2),
            rings_and_stars(),
            Folds::next_validates(5, 5),
            8,
            0,
            None
        )
        .is_err()
    );
}

#[test]
fn folds_without_validation_train_to_the_end_and_give_the_papers_figure_beside_their_own() {
    let spec: GraphSpec = toml::from_str(
        "features = 1\nlayers = [{ kind = \"gin\", out = 4 }, { kind = \"mean_pool\" }, \
         { kind = \"dense\", out = 2 }]",
    )
    .unwrap();
    let mut experiment = experiment("karate");
    experiment.train.epochs = 6;
    experiment.train.evaluate_every = 1;
    let folds = |validation| Folds {
        count: 3,
        test: 0,
        validation,
    };
    let others = Some(experiment.clone());
    let mut task = GraphTask::new(&spec, rings_and_stars(), folds(None), 8, 0, others).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut session = Session::new(experiment).in_folder(folder.path().join("run"));
    let summary = session.fit(&mut task).unwrap().to_json();
    assert!(summary["validation_loss"].is_null() && summary["best_epoch"].is_null());
    let figure = |name: &str| summary[name].as_f64().unwrap();
    // The last epoch is among those that the best is chosen from.
    assert!(figure("folds_mean_at_best_epoch") >= figure("folds_mean"));
    assert!((1.0..=6.0).contains(&figure("folds_best_epoch")));
    for wrong in [0, 3] {
        let made = GraphTask::new(&spec, rings_and_stars(), folds(Some(wrong)), 8, 0, None);
        let message = made.err().unwrap().to_string();
        assert!(message.contains("validation fold"), "{message}");
    }
}

/// The model of `text-graph` as it is trained, and a network on a graph too large to be verified
/// whole: no link may be left out.
#[test]
fn specimens_are_verified_in_all_three_links() {
    use crate::verify::{Link, check_trained};
    fn all_links<T: Task<Model = GraphNetwork>>(task: &mut T) {
        let Specimen { example, .. } = task.specimen().unwrap();
        let (input, target) = (&example.input, &example.target);
        let (model, loss) = (task.model(), task.loss());
        let report = check_trained("m", model, &model.init(1), input, target, loss).unwrap();
        assert!(report.passed(), "{}", report.table());
        for link in [Link::Differences, Link::Cpu, Link::Threads] {
            let rows: Vec<_> = report.rows.iter().filter(|row| row.link == link).collect();
            assert!(!rows.is_empty() && rows.iter().all(|row| row.elements > 0));
        }
    }
    let text = experiment("text-graph");
    let spec: GraphSpec = text.model_as().unwrap();
    all_links(
        &mut TextTask::new(&spec, [40, 64, 32], 0.15, &[2, 3], &TrainSpec::default()).unwrap(),
    );
    let n = 1000_u32;
    let sources: Vec<u32> = (0..4 * n).map(|e| (e * 7 + e / n) % n).collect();
    let targets: Vec<u32> = (0..4 * n).map(|e| e % n).collect();
    let graph = Graph::build(n as usize, &sources, &targets, EdgeRules::drop()).unwrap();
    let features = (0..5 * n).map(|i| (i as f32 * 0.7).sin()).collect();
    let data = NodeData {
        batch: GraphBatch::dense(Arc::new(graph.graph), 5, features).unwrap(),
        classes: (0..n).map(|i| i % 3).collect(),
        class_names: ["a", "b", "c"].map(String::from).to_vec(),
        split: (0..n)
            .map(|i| {
                if i % 9 == 0 {
                    Split::Train
                } else {
                    Split::Test
                }
            })
            .collect(),
        node_names: None,
        notes: Vec::new(),
    };
    let spec = "features = 5\nlayers = [{ kind = \"gat\", out = 4, heads = 2 }, \
                { kind = \"elu\" }, { kind = \"gat\", out = 3 }]";
    all_links(&mut NodeTask::new(&toml::from_str(spec).unwrap(), data).unwrap());
}

#[test]
fn masked_characters_are_restored_better_than_by_the_commonest() {
    let mut experiment = experiment("text-graph");
    experiment.train.epochs = 8;
    experiment
        .data
        .insert("samples".into(), toml::Value::Integer(256));
    let summary = train(&mut Session::new(experiment)).unwrap().to_json();
    // The space, the commonest character, is 17 % of the text; five standard errors of a share
    // among the some 3,000 masked characters are 3.4 %.
    let restored = summary["validation_accuracy"].as_f64().unwrap();
    assert!(restored > 0.21, "{restored}");
}

#[test]
fn a_data_set_that_was_not_fetched_says_how_to_get_it() {
    let mut experiment = experiment("cora-gcn");
    experiment.data.insert("name".into(), "no-such-set".into());
    let message = train(&mut Session::new(experiment))
        .err()
        .unwrap()
        .to_string();
    assert!(
        message.contains("fetch-graphs") && message.contains("no-such-set"),
        "{message}"
    );
}
