//! The recurrence of a pipeline, w₍n+1₎ = w₍n₎ − step(g₍n₎(w₍n−1₎)), on the CPU: written out by hand, in a
//! resumed run, and where it is refused.

use retrograd::network::Network;
use retrograd::optim::{Optimizer, OptimizerSpec, clip_global_norm};
use retrograd::rng::Key;
use retrograd::train::{
    Clip, Example, Experiment, NetworkTask, OnNan, Session, Stepper, TensorFile, TrainSpec,
};
use retrograd::{Loss, Model, Pass, Target};

const SPEC: &str = r#"{"input":[3],"layers":[{"kind":"kan","out":5,"grid":5,"degree":3},{"kind":"dropout","p":0.2},{"kind":"kan","out":2,"grid":5,"degree":3}],"sparsity":{"l1":0.01,"entropy":0.02}}"#;

fn example(step: u64) -> Example<Network> {
    let mut stream = Key::new(11).step(step).stream();
    let mut numbers =
        |len: usize| -> Vec<f32> { (0..len).map(|_| stream.range(-1.0, 1.0) as f32).collect() };
    Example {
        input: numbers(3 * 4),
        target: Target::values(numbers(2 * 4)),
    }
}

/// Eight steps, the penalty's gradient among each: every gradient is taken with a fresh stepper at the
/// parameters that the recurrence names.
#[test]
fn a_pipelines_steps_are_those_of_its_recurrence() {
    let network = Network::new(&serde_json::from_str(SPEC).unwrap()).unwrap();
    let spec = OptimizerSpec::adam(0.02);
    let clip = Clip {
        norm: Some(0.5),
        element: None,
    };
    let start = network.init(2);
    let mut stepper = Stepper::new(&network, start.clone(), spec);
    stepper.pipeline(None);
    let mut optimizer = Optimizer::new(spec, start.len());
    let (mut before, mut now) = (start.clone(), start.clone());
    let mut plain = Stepper::new(&network, start, spec);
    for n in 0..8 {
        let pass = Pass::training(Key::new(5).step(n));
        let example = example(n);
        let (loss, share) = (Loss::Mse, 1.0);
        let value = stepper
            .gradient(&network, loss, &example, &pass, share, false)
            .unwrap();
        stepper.update(&network, &clip, 0.02).unwrap();
        // By hand.
        let mut at = Stepper::new(&network, before.clone(), spec);
        let expected = at
            .gradient(&network, loss, &example, &pass, share, false)
            .unwrap();
        let mut grads = at.grads().to_vec();
        network.penalty(&before, Some(&mut grads));
        clip_global_norm(&mut grads, network.layout(), 0.5);
        before.clone_from(&now);
        optimizer.step(&mut now, &grads, network.layout(), 0.02);
        assert_eq!(value.to_bits(), expected.to_bits(), "{n}");
        assert_eq!(stepper.params, now, "{n}");
        assert_eq!(stepper.taken_at(), before, "{n}");
        // The plain recurrence is another one, from the second step on.
        plain
            .gradient(&network, loss, &example, &pass, share, false)
            .unwrap();
        plain.update(&network, &clip, 0.02).unwrap();
        assert_eq!(plain.params == stepper.params, n == 0, "{n}");
    }
}

fn text(train: &str) -> String {
    format!(
        "name = \"test\"\n[model]\nfamily = \"network\"\nlayers = [{{ kind = \"dense\", out = 8 }}, \
         {{ kind = \"layer_norm\" }}, {{ kind = \"tanh\" }}, {{ kind = \"dropout\", p = 0.1 }}, \
         {{ kind = \"dense\", out = 2 }}]\n[data]\n\
         generate = {{ name = \"two_moons\", samples = 100 }}\n[train]\nbatch = 16\n\
         optimizer = {{ kind = \"adam\", lr = 0.01 }}\n{train}\n"
    )
}

/// What the next gradient is taken at is part of a checkpoint: a resumed run has the bits of one that was
/// never stopped, and one that forgot it has not.
#[test]
fn a_resumed_pipeline_has_the_bits_of_one_that_was_not_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, epochs: u64, resume: bool, pipeline: u64| {
        let mut experiment = Experiment::parse(&text("epochs = 4"), "test.toml").unwrap();
        (experiment.train.epochs, experiment.train.pipeline) = (epochs, pipeline);
        let mut task = NetworkTask::new(&experiment).unwrap();
        let path = folder.path().join(name);
        let session = Session::new(experiment);
        let mut session = match resume {
            true => session.resuming(&path),
            false => session.in_folder(&path),
        };
        session.fit(&mut task).unwrap();
        let file = TensorFile::read(&path.join("checkpoint.safetensors")).unwrap();
        let tensors = file.tensors.into_iter();
        tensors
            .map(|t| (t.name, t.values.to_f64()))
            .collect::<Vec<_>>()
    };
    let straight = run("straight", 4, false, 1);
    assert!(straight.iter().any(|(name, _)| name == "pipeline/0.weight"));
    run("resumed", 2, false, 1);
    assert_eq!(run("resumed", 4, true, 1), straight);
    // Stopped without a pipeline, which then begins at the parameters of that moment: other bits.
    run("other", 2, false, 0);
    assert_ne!(run("other", 4, true, 1), straight);
}

#[test]
fn a_pipeline_is_refused_where_it_does_not_fit() {
    for (train, words) in [
        ("epochs = 1\npipeline = 2", "0 or 1"),
        (
            "epochs = 1\npipeline = 1\nfused_updates = true",
            "one step later",
        ),
        ("epochs = 1\npipeline = 1\nshards = 2", "shards = 2"),
    ] {
        let error = Experiment::parse(&text(train), "test.toml").unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("train.pipeline") && error.contains(words),
            "{error}"
        );
    }
    let plain = TrainSpec::default();
    assert_eq!((plain.pipeline, plain.on_nan), (0, OnNan::Stop));
}
