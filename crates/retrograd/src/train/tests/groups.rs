//! Groups of processes: the same bits whatever their number, for every family, and one end for all.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::group::{self, Group, Tree, cut, with_courier};
use crate::optim::OptimizerSpec;
use crate::train::shards::Shards;
use crate::{Family, parallel};

/// The small model of a family.
fn model(name: &str) -> Experiment {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let path = folder.join(format!("../../tests/machines/models/{name}.toml"));
    Experiment::read(path).unwrap()
}

fn with(name: &str, change: impl FnOnce(&mut TrainSpec)) -> Experiment {
    let mut experiment = model(name);
    change(&mut experiment.train);
    experiment
}

/// What a run of rank 0 says that is not a time, and its weights.
fn said(experiment: &Experiment, group: &dyn Group) -> Result<(String, Vec<u32>)> {
    let mut params = Vec::new();
    let mut session = Session::new(experiment.clone())
        .in_group(group)
        .kept_in(&mut params);
    let family = Family::find(experiment.family())?;
    let summary = family.train(&mut session)?;
    drop(session);
    let mut json = summary.to_json();
    let figures = json.as_object_mut().expect("an object");
    figures.retain(|name, _| !["seconds", "ms_per_step"].contains(&name.as_str()));
    Ok((
        json.to_string(),
        params.iter().map(|p| p.to_bits()).collect(),
    ))
}

fn same_for_any_number(experiment: &Experiment) {
    let mut first = None;
    for size in [1, 2, 3, 4] {
        let mut all = group::threads(size, |group| said(experiment, group).unwrap());
        let run = all.swap_remove(0);
        assert!(
            !run.1.is_empty() && run.0.contains("train_loss"),
            "{}",
            run.0
        );
        let first = first.get_or_insert_with(|| run.clone());
        assert_eq!(run.0, first.0, "{}: {size} processes", experiment.name);
        assert!(run.1 == first.1, "{}: {size} processes", experiment.name);
        // The same where gradients are sent whole.
        let whole = |group: &dyn Group| said(experiment, &Counted::whole(group)).unwrap();
        let run = group::threads(size, whole).swap_remove(0);
        assert!(run == *first, "{}: {size}, whole", experiment.name);
    }
    // Without a group, the key in the file gives the same.
    let (mut alone, mut params) = (experiment.clone(), Vec::new());
    alone.train.shards.get_or_insert(8);
    let mut session = Session::new(alone).kept_in(&mut params);
    Family::find(experiment.family())
        .unwrap()
        .train(&mut session)
        .unwrap();
    drop(session);
    let bits: Vec<u32> = params.iter().map(|p| p.to_bits()).collect();
    assert!(Some(bits) == first.map(|run| run.1), "{}", experiment.name);
}

#[test]
fn rows_of_tables_are_shared() {
    // Dropout, clipping by the norm; the last batch of an epoch is smaller, with shards without rows.
    same_for_any_number(&with("network", |train| {
        (train.shards, train.batch, train.epochs) = (Some(6), Some(59), 3);
    }));
    // KANs, gradients accumulated.
    same_for_any_number(&with("kan", |train| {
        (train.batch, train.epochs) = (Some(128), 2);
    }));
    same_for_any_number(&with("kan", |train| {
        (train.shards, train.epochs) = (Some(5), 2);
        train.accumulate = 3;
    }));
}

#[test]
fn images_with_batch_norm_dropout_and_accumulation_are_shared() {
    same_for_any_number(&with("cnn", |train| {
        train.shards = Some(7);
    }));
}

#[test]
fn patches_of_denoisers_are_shared() {
    same_for_any_number(&with("denoise", |train| train.shards = Some(4)));
    // The loss looks at blind spots alone: targets with weights.
    let mut blind = with("denoise", |train| {
        (train.shards, train.batch, train.accumulate) = (Some(5), Some(6), 2);
    });
    blind.data.insert("method".into(), "noise2void".into());
    blind.model.remove("loss_terms");
    same_for_any_number(&blind);
    let mut halves = with("denoise", |train| {
        (train.shards, train.batch) = (Some(5), Some(5));
    });
    halves.data.insert("method".into(), "noise2noise".into());
    same_for_any_number(&halves);
}

#[test]
fn grids_of_automata_are_shared() {
    same_for_any_number(&with("automaton", |train| {
        (train.shards, train.batch, train.epochs) = (Some(5), Some(6), 4);
        train.clip = Some(0.5);
    }));
}

#[test]
fn texts_of_graph_networks_are_shared() {
    same_for_any_number(&with("text", |train| train.epochs = 1));
}

/// The model of a graph on another one, of 3,000 nodes, half of which have a known class.
fn large_graph(folder: &Path) -> Experiment {
    let nodes = 3000;
    let (mut edges, mut features, mut labels) = (
        String::from("a,b\n"),
        String::from("x,y,z\n"),
        String::from("c\n"),
    );
    for i in 0..nodes {
        for step in [1, 7, 50] {
            edges += &format!("{i},{}\n", (i + step) % nodes);
        }
        features += &format!("{},{},{}\n", i % 3, i % 5, i % 7);
        labels += &format!("{}\n", if i % 2 == 0 { i / 2 % 2 } else { -1 });
    }
    for (name, text) in [("edges", edges), ("features", features), ("labels", labels)] {
        std::fs::write(folder.join(format!("{name}.csv")), text).unwrap();
    }
    let mut experiment = with("graph", |train| train.epochs = 2);
    experiment.folder = Some(folder.into());
    experiment.model.insert("features".into(), 3.into());
    experiment.data = toml::toml! {
        kind = "edge_list"
        edges = "edges.csv"
        features = "features.csv"
        labels = "labels.csv"
        predict = "nodes"
    };
    experiment
}

/// Whole runs of every family, large enough for their work to be shared.
#[test]
fn runs_of_every_family_have_the_same_bits_on_1_2_and_7_threads() {
    let folder = tempfile::tempdir().unwrap();
    let mut automaton = with("automaton", |train| {
        (train.batch, train.epochs) = (Some(8), 2)
    });
    automaton.data.insert("grid".into(), vec![16, 16].into());
    let wide = |name| {
        let mut wide = with(name, |train| (train.batch, train.epochs) = (Some(240), 2));
        for layer in wide.model["layers"].as_array_mut().unwrap() {
            let layer = layer.as_table_mut().unwrap();
            if layer
                .get("out")
                .is_some_and(|out| out.as_integer() > Some(2))
            {
                layer.insert("out".into(), 300.into());
            }
        }
        wide
    };
    let experiments = [
        wide("network"),
        wide("kan"),
        with("cnn", |train| train.batch = Some(128)),
        model("denoise"),
        automaton,
        model("text"),
        large_graph(folder.path()),
    ];
    for experiment in &experiments {
        let [one, two, seven] = [1, 2, 7].map(|threads| {
            parallel::with_threads(threads, || {
                parallel::SHARED.set(0);
                let said = said(experiment, &group::Alone).unwrap();
                (said, parallel::SHARED.get())
            })
        });
        let name = &experiment.name;
        assert!(two.0 == one.0 && seven.0 == one.0, "{name}");
        assert!(
            one.1 == 0 && two.1 > 0 && seven.1 > 0,
            "{name}: never shared"
        );
    }
}

/// Shards on threads of their own, whose ranges are complete at different times.
#[test]
fn processes_of_several_threads_give_the_bits_of_one() {
    let experiments = [
        with("kan", |train| {
            (train.shards, train.batch, train.epochs) = (Some(8), Some(128), 2);
        }),
        with("cnn", |train| train.shards = Some(7)),
    ];
    for experiment in &experiments {
        let alone = said(experiment, &group::Alone).unwrap();
        for size in [1, 2, 3] {
            let mut all = group::threads(size, |group| {
                parallel::with_threads(2, || said(experiment, group).unwrap())
            });
            assert!(all.swap_remove(0) == alone, "{}: {size}", experiment.name);
        }
    }
}

/// Counts the sums that go through it.
struct Counted<'a> {
    group: &'a dyn Group,
    sums: AtomicU64,
    overlaps: bool,
}

impl<'a> Counted<'a> {
    fn new(group: &'a dyn Group) -> Self {
        Counted {
            group,
            sums: AtomicU64::new(0),
            overlaps: true,
        }
    }

    /// With nothing to gain from gradients that are sent in parts.
    fn whole(group: &'a dyn Group) -> Self {
        Counted {
            overlaps: false,
            ..Counted::new(group)
        }
    }
}

impl Group for Counted<'_> {
    fn rank(&self) -> usize {
        self.group.rank()
    }
    fn size(&self) -> usize {
        self.group.size()
    }
    fn gather(&self, own: &[u8]) -> Vec<Vec<u8>> {
        self.group.gather(own)
    }
    fn exchange(&self, send: &[f32], sent: &[usize], received: &mut [f32], counts: &[usize]) {
        self.sums.fetch_add(1, Ordering::Relaxed);
        self.group.exchange(send, sent, received, counts);
    }
    fn share(&self, all: &mut [f32], counts: &[usize]) {
        self.group.share(all, counts);
    }
    fn broadcast(&self, bytes: &mut Vec<u8>) {
        self.group.broadcast(bytes);
    }
    fn barrier(&self) {
        self.group.barrier();
    }
    fn overlaps(&self, _: usize) -> bool {
        self.overlaps
    }
}

#[test]
fn gradients_of_later_layers_are_sent_before_those_of_earlier_ones_are_there() {
    let sums_of_a_step = |experiment: &Experiment| {
        let counts = group::threads(2, |group| {
            let counted = Counted::new(group);
            let json: serde_json::Value =
                serde_json::from_str(&said(experiment, &counted).unwrap().0).unwrap();
            let steps = json["steps"].as_u64().unwrap();
            (counted.sums.into_inner(), steps)
        });
        // The first process alone says how many steps there were.
        assert_eq!(counts[0].0, counts[1].0);
        // Before their first meeting processes don't know of each other whether it would gain anything.
        let (sums, steps) = (counts[0].0 - 1, counts[0].1 - 1);
        assert!(sums.is_multiple_of(steps), "{sums} sums in {steps} steps");
        sums / steps
    };
    // A layer's gradient is complete when the layer is done.
    let kan = with("kan", |train| {
        (train.shards, train.batch, train.epochs) = (Some(4), Some(128), 1);
    });
    assert!(sums_of_a_step(&kan) > 1);
    // The gates of an automaton are the same at all times.
    let automaton = with("automaton", |train| {
        (train.shards, train.batch, train.epochs) = (Some(2), Some(4), 2);
    });
    assert_eq!(sums_of_a_step(&automaton), 1);
}

#[test]
fn what_cannot_be_shared_is_refused_with_what_to_do() {
    let refusal = |experiment: &Experiment, size| {
        let all = group::threads(size, |group| {
            said(experiment, group).unwrap_err().to_string()
        });
        let first = all[0].clone();
        assert!(all.iter().all(|error| error.contains(&first)), "{all:?}");
        first
    };
    let one_graph = refusal(&model("graph"), 2);
    assert!(one_graph.contains("one graph in one piece") && one_graph.contains("--threads"));
    // Batches of 23 rows: one shard of at least 16.
    let small = refusal(&model("network"), 2);
    for part in [
        "train.shards: got 1",
        "23 rows",
        "2 processes",
        "train.batch",
    ] {
        assert!(small.contains(part), "{small}");
    }
    let many = refusal(&with("automaton", |train| train.shards = Some(3)), 1);
    assert!(many.contains("batches of 2 grids"), "{many}");
    let fused = with("kan", |train| {
        (train.shards, train.fused_updates) = (Some(2), true);
    });
    assert!(refusal(&fused, 1).contains("shards = 2"));
}

#[test]
fn a_process_that_fails_alone_ends_all_with_its_message() {
    // One of them has other data: a file that the others have and it can't read.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.csv");
    let rows: String = (0..100).map(|i| format!("{i},{}\n", i % 7)).collect();
    std::fs::write(&file, "x,y\n".to_string() + &rows).unwrap();
    let of = |file: &Path| {
        let mut experiment = with("kan", |train| train.shards = Some(2));
        let file = file.display();
        let data = format!("file = \"{file}\"\ntargets = \"y\"\ntask = \"regression\"");
        experiment.data = toml::from_str(&data).unwrap();
        experiment
    };
    let (good, bad) = (of(&file), of(&folder.path().join("gone.csv")));
    let errors = group::threads(2, |group| {
        let experiment = if group.rank() == 1 { &bad } else { &good };
        said(experiment, group).unwrap_err().to_string()
    });
    assert!(
        errors[0].starts_with("rank 1: ") && errors[0].contains("gone.csv"),
        "{errors:?}"
    );
    // Another experiment at one of them is noticed before the first step.
    let mut other = good.clone();
    other.train.seed = 5;
    let errors = group::threads(2, |group| {
        let experiment = if group.rank() == 1 { &other } else { &good };
        said(experiment, group).unwrap_err().to_string()
    });
    assert!(
        errors.iter().all(|e| e.contains("another experiment")),
        "{errors:?}"
    );
}

#[test]
fn nan_in_one_shard_is_seen_by_all_and_left_out_alike() {
    let bad = |on_nan| {
        with("kan", |train| {
            (train.shards, train.batch, train.on_nan) = (Some(4), Some(64), on_nan);
            train.optimizer = toml::from_str("kind = \"sgd\"\nlr = 1e30").unwrap();
        })
    };
    // Batch norm, whose shards wait for each other, goes through with it.
    let norm = with("cnn", |train| {
        (train.shards, train.on_nan) = (Some(4), OnNan::Skip);
        train.optimizer = toml::from_str("kind = \"sgd\"\nlr = 1e30").unwrap();
        train.clip_element = None;
    });
    let ends = |size| {
        let all = group::threads(size, |group| said(&norm, group).map_err(|e| e.to_string()));
        format!("{:?}", all[0])
    };
    assert_eq!(ends(3), ends(1));
    let stopped = group::threads(3, |group| {
        said(&bad(OnNan::Stop), group).unwrap_err().to_string()
    });
    assert!(stopped[0].contains("not finite"), "{stopped:?}");
    let skipped = group::threads(3, |group| {
        said(&bad(OnNan::Skip), group).err().map(|e| e.to_string())
    });
    let alone = said(&bad(OnNan::Skip), &group::Alone)
        .err()
        .map(|e| e.to_string());
    assert!(skipped[0] == alone && alone.is_some(), "{skipped:?}");
}

/// Every process has the optimizer's state of its own slice alone; a checkpoint in the middle has all of it,
/// and is made when rank 0 wants one.
#[test]
fn checkpoints_have_the_state_of_all_slices() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = |size: usize, every: Option<u64>| {
        let run = folder.path().join(format!("{size} {every:?}"));
        group::threads(size, |group| {
            let experiment = with("kan", |train| {
                (train.shards, train.batch, train.epochs) = (Some(4), Some(64), 3);
                (train.checkpoint_every, train.stop_after) = (every, Some(2));
            });
            let mut session = Session::new(experiment).in_group(group).in_folder(&run);
            let trained = Family::find("network").unwrap().train(&mut session);
            trained.unwrap();
        });
        // The last one, and the one before it.
        ["checkpoint.safetensors", "checkpoint.previous.safetensors"].map(|name| {
            let file = TensorFile::read(&run.join(name)).unwrap();
            (file.metadata["optimizer_steps"].clone(), file.tensors)
        })
    };
    let alone = checkpoint(1, Some(3));
    assert_ne!(alone[0].0, alone[1].0);
    let names = alone[1].1.iter().map(|tensor| &tensor.name);
    let moments = names.filter(|name| name.starts_with("optimizer/exp_avg_sq/"));
    assert!(moments.count() >= 2);
    for size in [2, 3, 4] {
        assert!(checkpoint(size, Some(3)) == alone, "{size}");
        assert!(checkpoint(size, None)[0] == alone[0], "{size}");
    }
}

/// A gradient that is not finite in one slice alone changes nothing in any process, and all say the same.
#[test]
fn a_bad_number_in_one_slice_changes_nothing_anywhere() {
    let model = Tiny::new(OUT);
    let (start, tree) = (model.init(0), Tree::new(3));
    let len = start.len();
    let right: Vec<f32> = (0..len).map(|i| i as f32 - 2.5).collect();
    let mut plain = Stepper::new(&model, start.clone(), OptimizerSpec::adam(0.1));
    plain.grads.copy_from_slice(&right);
    plain.update(&model, &Clip::default(), 0.1).unwrap();
    let messages = group::threads(3, |group| {
        let (model, clip) = (Tiny::new(OUT), Clip::default());
        let own = cut(len, group.rank(), 3);
        with_courier(group, tree, |courier| {
            let shards = Shards::new(tree, courier);
            let mut stepper = Stepper::new(&model, start.clone(), OptimizerSpec::adam(0.1));
            // What other processes own may be anything.
            stepper.grads.fill(f32::NAN);
            stepper.grads[own.clone()].copy_from_slice(&right[own.clone()]);
            for bad in [4, 7].into_iter().filter(|bad| own.contains(bad)) {
                stepper.grads[bad] = f32::INFINITY;
            }
            let Err(StepError::NotFinite(bad)) = shards.update(&mut stepper, &model, &clip, 0.1)
            else {
                panic!("updated with an infinity");
            };
            assert!(stepper.params == start && stepper.optimizer.steps() == 0);
            stepper.grads[own.clone()].copy_from_slice(&right[own.clone()]);
            shards.update(&mut stepper, &model, &clip, 0.1).unwrap();
            assert!(stepper.params == plain.params);
            assert!(stepper.optimizer.state() != plain.optimizer.state());
            shards.gather_state(&mut stepper.optimizer);
            assert!(stepper.optimizer.state() == plain.optimizer.state());
            format!("{} {}", bad.tensor, bad.value)
        })
    });
    // Slices 0..2, 2..5 and 5..8: the second one's is the first of all, number 4 of weights that are stored by input.
    assert_eq!(messages, ["the gradient of 0.weight, element 2, inf"; 3]);
}

#[test]
fn a_run_goes_on_with_another_number_of_processes() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = with("cnn", |train| train.shards = Some(4));
    let train = |run: &Path, size: usize, epochs: Option<u64>, resume: bool| {
        group::threads(size, |group| {
            let mut experiment = experiment.clone();
            experiment.train.epochs = 2;
            experiment.train.stop_after = epochs;
            let session = Session::new(experiment.clone()).in_group(group);
            let mut session = match resume {
                true => session.resuming(run),
                false => session.in_folder(run),
            };
            Family::find("network")
                .unwrap()
                .train(&mut session)
                .unwrap();
        });
        std::fs::read(run.join("model.safetensors")).unwrap()
    };
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    let right = train(&whole, 1, None, false);
    train(&parts, 3, Some(1), false);
    assert!(train(&parts, 2, None, true) == right);
    // What was chosen is part of the run.
    let written = std::fs::read_to_string(parts.join("experiment.toml")).unwrap();
    assert!(written.contains("shards = 4"), "{written}");
}
