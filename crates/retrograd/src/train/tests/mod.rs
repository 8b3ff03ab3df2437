//! The loop's promises, held on a model small enough to be seen through.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

mod crashes;
mod failures;
mod fused;
mod groups;
mod memory;
mod mistakes;
mod plain;
#[cfg(feature = "gpu")]
mod short;

use super::*;
use crate::rng::Key;
use crate::{Buffer, Error, Grads, Layout, Loss, Model, Pass, Result, Scalar, Target};

const IN: usize = 3;
const OUT: usize = 2;

/// y = W·dropout(x) + b, with a running mean of its outputs beside: something random, something
/// saved and not trained, and a tensor stored in another order than PyTorch's.
struct Tiny {
    layout: Layout,
    mean: f64,
}

impl Tiny {
    fn new(out: usize) -> Self {
        let mut layout = Layout::new();
        layout.push_stored("0.weight", &[out, IN], &[1, 0]);
        layout.push("0.bias", &[out]);
        Tiny { layout, mean: 0.0 }
    }

    fn out(&self) -> usize {
        self.layout.tensors()[1].len()
    }

    /// Kept inputs are doubled in training.
    fn mask(pass: &Pass, len: usize) -> Vec<f64> {
        let mut stream = pass.key.purpose("dropout").stream();
        let drawn = (0..len).map(|_| if stream.u32() & 1 == 0 { 0.0 } else { 2.0 });
        if pass.training {
            drawn.collect()
        } else {
            vec![1.0; len]
        }
    }
}

impl Model for Tiny {
    type Input<T: Scalar> = Vec<T>;
    type Tape<T: Scalar> = Vec<T>;

    fn layout(&self) -> &Layout {
        &self.layout
    }
    fn layout_mut(&mut self) -> &mut Layout {
        &mut self.layout
    }
    fn init(&self, seed: u64) -> Vec<f32> {
        let mut stream = Key::new(seed).purpose("init").stream();
        let len = self.layout.len();
        (0..len).map(|_| stream.range(-0.5, 0.5) as f32).collect()
    }
    fn compute_forward<T: Scalar>(
        &self,
        params: &[T],
        input: &Vec<T>,
        pass: &Pass,
        tape: &mut Vec<T>,
    ) {
        let mask = Self::mask(pass, input.len());
        let out = self.out();
        let (weight, bias) = params.split_at(IN * out);
        tape.clear();
        for (x, mask) in input.chunks_exact(IN).zip(mask.chunks_exact(IN)) {
            for j in 0..out {
                let dot: T = (0..IN)
                    .map(|i| weight[i * out + j] * x[i] * T::from_f64(mask[i]))
                    .sum();
                tape.push(dot + bias[j]);
            }
        }
    }
    fn output<'t, T: Scalar>(&self, tape: &'t Vec<T>) -> &'t [T] {
        tape
    }
    fn compute_backward<T: Scalar>(
        &self,
        _params: &[T],
        input: &Vec<T>,
        pass: &Pass,
        _tape: &mut Vec<T>,
        d_output: &[T],
        grads: Grads<'_, T>,
    ) {
        let mask = Self::mask(pass, input.len());
        let out = self.out();
        let d_params = grads.params.expect("training asks for it");
        if !grads.accumulate {
            d_params.fill(T::ZERO);
        }
        for (b, d_y) in d_output.chunks_exact(out).enumerate() {
            for j in 0..out {
                for i in 0..IN {
                    let x = input[b * IN + i] * T::from_f64(mask[b * IN + i]);
                    d_params[i * out + j] += d_y[j] * x;
                }
                d_params[IN * out + j] += d_y[j];
            }
        }
    }
    fn cast_input<T: Scalar, U: Scalar>(&self, input: &Vec<T>) -> Vec<U> {
        crate::scalar::cast(input)
    }
    fn buffers(&self) -> Vec<Buffer> {
        vec![Buffer {
            name: "0.running_mean".into(),
            shape: vec![1],
            values: vec![self.mean],
        }]
    }
    fn set_buffer(&mut self, buffer: &Buffer) -> Result<()> {
        assert_eq!(buffer.name, "0.running_mean");
        self.mean = buffer.values[0];
        Ok(())
    }
    fn absorb(&mut self, tape: &Vec<f32>) {
        let mean = tape.iter().map(|&y| f64::from(y)).sum::<f64>() / tape.len() as f64;
        self.mean = 0.9 * self.mean + 0.1 * mean;
    }
}

/// Seven batches of four samples of a linear function.
struct Fake {
    model: Tiny,
    /// This batch holds an infinity.
    bad_step: Option<u64>,
    /// Validation losses to report instead of the true ones.
    scripted: Vec<f64>,
}

impl Fake {
    fn new() -> Self {
        Fake {
            model: Tiny::new(OUT),
            bad_step: None,
            scripted: Vec::new(),
        }
    }
}

impl Task for Fake {
    type Model = Tiny;
    fn model(&self) -> &Tiny {
        &self.model
    }
    fn model_mut(&mut self) -> &mut Tiny {
        &mut self.model
    }
    fn loss(&self) -> Loss {
        Loss::Mse
    }
    fn steps_per_epoch(&self) -> u64 {
        7
    }
    fn batch(&mut self, step: u64, example: &mut Option<Example<Tiny>>) -> Result<()> {
        let mut stream = Key::new(5).purpose("data").step(step % 7).stream();
        let mut x: Vec<f32> = (0..4 * IN)
            .map(|_| stream.range(-1.0, 1.0) as f32)
            .collect();
        let y = x
            .chunks_exact(IN)
            .flat_map(|x| [x[0] - 2.0 * x[1], 0.5 * x[2] + 1.0]);
        let target = Target::values(y.collect());
        if self.bad_step == Some(step) {
            x[0] = f32::INFINITY;
        }
        *example = Some(Example { input: x, target });
        Ok(())
    }
    fn evaluate(&mut self, params: &[f32], epoch: u64) -> Result<Metrics> {
        if let Some(&value) = self.scripted.get(epoch as usize - 1) {
            return Ok(vec![("validation_loss".into(), value)]);
        }
        let mut example = None;
        self.batch(0, &mut example)?;
        let example = example.unwrap();
        let mut tape = Vec::new();
        self.model
            .compute_forward(params, &example.input, &Pass::inference(), &mut tape);
        let loss = Loss::Mse.compute(&tape, &example.target, None);
        Ok(vec![("validation_loss".into(), f64::from(loss))])
    }
    fn metadata(&self) -> Vec<(String, String)> {
        vec![("columns".into(), "a,b,c".into())]
    }
}

fn experiment(train: &str) -> Experiment {
    let text = format!(
        "name = \"tiny\"\n[model]\nfamily = \"tiny\"\nout = 2\n[train]\nepochs = 5\n{train}\n"
    );
    Experiment::parse(&text, "tiny.toml").unwrap()
}

const ADAM: &str = "optimizer = { kind = \"adamw\", lr = 0.01 }\n\
     schedule = { kind = \"cosine\", warmup = 3 }\nclip = 1.0\n";
const MOMENTUM: &str = "optimizer = { kind = \"sgd\", lr = 0.05, momentum = 0.9 }\n\
     accumulate = 3\nfreeze = [\"0.bias\"]\n";

/// Sets the flag after so many events of steps.
struct StopAfter<'a> {
    stop: &'a AtomicBool,
    step: u64,
}

impl Observer for StopAfter<'_> {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Step { step, .. } = event
            && step >= self.step
        {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Everything of a checkpoint but the time it took.
fn state(run: &Path) -> TensorFile {
    let mut file = TensorFile::read(&run.join("checkpoint.safetensors")).unwrap();
    let progress = file.metadata.get_mut("progress").unwrap();
    let mut value: serde_json::Value = serde_json::from_str(progress).unwrap();
    let times = [
        "stepping",
        "loading",
        "forward",
        "updating",
        "evaluating",
        "saving",
    ];
    for time in times {
        assert!(value.as_object_mut().unwrap().remove(time).is_some());
    }
    *progress = value.to_string();
    file
}

fn metrics_without_time(run: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(run.join("metrics.csv")).unwrap();
    text.lines()
        .map(|line| line.rsplit_once(',').unwrap().0.to_string())
        .collect()
}

#[test]
fn k_steps_saved_and_resumed_equal_an_uninterrupted_run_to_the_bit() {
    for settings in [ADAM, MOMENTUM] {
        let folder = tempfile::tempdir().unwrap();
        let whole = folder.path().join("whole");
        let experiment = experiment(settings);
        Session::new(experiment.clone())
            .in_folder(&whole)
            .fit(&mut Fake::new())
            .unwrap();
        // In the middle of an epoch, at its end, before and after the first record.
        for k in [1, 4, 7, 9, 21, 33] {
            let part = folder.path().join(format!("part-{k}"));
            let stop = AtomicBool::new(false);
            let mut observer = StopAfter {
                stop: &stop,
                step: k,
            };
            let stopped = Session::new(experiment.clone())
                .in_folder(&part)
                .observed_by(&mut observer)
                .stopped_by(&stop)
                .fit(&mut Fake::new());
            assert!(matches!(stopped, Err(Error::Interrupted { .. })));
            assert_ne!(state(&part), state(&whole), "stopped before the end");
            let resumed = experiment_of(&part).unwrap();
            Session::new(resumed)
                .resuming(&part)
                .fit(&mut Fake::new())
                .unwrap();
            assert_eq!(state(&part), state(&whole), "resumed at step {k}");
            assert_eq!(metrics_without_time(&part), metrics_without_time(&whole));
            let model = |run: &Path| std::fs::read(run.join("model.safetensors")).unwrap();
            assert_eq!(model(&part), model(&whole));
        }
    }
}

/// The comparison above has teeth: whatever is left out of a checkpoint shows.
#[test]
fn a_resumed_run_that_forgets_any_part_of_its_state_ends_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = experiment(&(ADAM.to_string() + "evaluate_every = 2\n"));
    let run_to = |name: &str, step: u64| {
        let run = folder.path().join(name);
        let stop = AtomicBool::new(false);
        let mut observer = StopAfter { stop: &stop, step };
        let _ = Session::new(experiment.clone())
            .in_folder(&run)
            .observed_by(&mut observer)
            .stopped_by(&stop)
            .fit(&mut Fake::new());
        run
    };
    let whole = run_to("whole", 1000);
    let zero = |file: &mut TensorFile, name: &str| {
        let found = file.tensors.iter_mut().find(|t| t.name == name).unwrap();
        found.values = Values::F64(vec![0.0; found.values.to_f64().len()]);
    };
    let edit = |file: &mut TensorFile, key: &str, from: &str, to: &str| {
        let text = file.metadata.get_mut(key).unwrap();
        assert!(text.contains(from), "{text}");
        *text = text.replace(from, to);
    };
    type Forget<'a> = &'a dyn Fn(&mut TensorFile);
    let mutants: [(&str, Forget); 7] = [
        ("weights", &|f| zero(f, "0.weight")),
        ("first moments", &|f| zero(f, "optimizer/exp_avg/0.weight")),
        ("second moments", &|f| {
            zero(f, "optimizer/exp_avg_sq/0.bias")
        }),
        ("buffers", &|f| zero(f, "0.running_mean")),
        ("optimizer steps", &|f| edit(f, "optimizer_steps", "9", "0")),
        ("the step", &|f| {
            edit(f, "progress", "\"step\":9", "\"step\":10")
        }),
        ("losses", &|f| {
            edit(f, "progress", "\"loss_count\":9", "\"loss_count\":8")
        }),
    ];
    for (what, forget) in mutants {
        let part = run_to(what, 9);
        let path = part.join("checkpoint.safetensors");
        let mut file = TensorFile::read(&path).unwrap();
        forget(&mut file);
        file.write(&path).unwrap();
        Session::new(experiment.clone())
            .resuming(&part)
            .fit(&mut Fake::new())
            .unwrap();
        let same = state(&part) == state(&whole)
            && metrics_without_time(&part) == metrics_without_time(&whole);
        assert!(!same, "{what} forgotten, and nothing seen");
    }
}

#[test]
fn more_epochs_go_on_past_the_old_end() {
    let folder = tempfile::tempdir().unwrap();
    let [long, short] = ["long", "short"].map(|name| folder.path().join(name));
    let mut experiment = experiment("optimizer = { kind = \"adam\", lr = 0.01 }");
    Session::new(experiment.clone())
        .in_folder(&short)
        .fit(&mut Fake::new())
        .unwrap();
    experiment.train.epochs = 8;
    let summary = Session::new(experiment.clone())
        .resuming(&short)
        .fit(&mut Fake::new())
        .unwrap();
    assert_eq!((summary.epochs, summary.steps), (8, 56));
    Session::new(experiment)
        .in_folder(&long)
        .fit(&mut Fake::new())
        .unwrap();
    assert_eq!(state(&short), state(&long));
    assert_eq!(experiment_of(&short).unwrap().train.epochs, 8);
}

#[test]
fn accumulated_batches_step_as_their_mean_gradient_does() {
    // Without dropout and with one step, three batches of 4 are one batch of 12.
    let mut task = Fake::new();
    let model = Tiny::new(OUT);
    let params = model.init(3);
    let spec = crate::optim::OptimizerSpec::sgd(0.1);
    let mut together = Stepper::new(&model, params.clone(), spec);
    let mut apart = Stepper::new(&model, params, spec);
    let pass = Pass::inference();
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for step in 0..3 {
        let mut example = None;
        task.batch(step, &mut example).unwrap();
        let example = example.unwrap();
        apart
            .gradient(&model, Loss::Mse, &example, &pass, 1.0 / 3.0, step > 0)
            .unwrap();
        x.extend(example.input);
        y.extend(example.target.values);
    }
    let all = Example {
        input: x,
        target: Target::values(y),
    };
    together
        .gradient(&model, Loss::Mse, &all, &pass, 1.0, false)
        .unwrap();
    for (a, b) in apart.grads().iter().zip(together.grads()) {
        // A few roundings of f32 apart: the sums are ordered differently.
        assert!(
            (a - b).abs() <= 4.0 * f32::EPSILON * b.abs().max(0.1),
            "{a} {b}"
        );
    }
}

#[test]
fn the_best_is_kept_and_patience_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let mut task = Fake::new();
    task.scripted = vec![3.0, 1.0, 2.0, f64::NAN, 2.5];
    let mut experiment = experiment(ADAM);
    experiment.train.early_stopping = Some(2);
    let summary = Session::new(experiment.clone())
        .in_folder(&run)
        .fit(&mut task)
        .unwrap();
    assert_eq!((summary.epochs, summary.best_epoch), (4, Some(2)));
    // The kept weights are those of two epochs.
    experiment.train.early_stopping = None;
    let two = folder.path().join("two");
    let stop = AtomicBool::new(false);
    let mut observer = StopAfter {
        stop: &stop,
        step: 14,
    };
    let _ = Session::new(experiment)
        .in_folder(&two)
        .observed_by(&mut observer)
        .stopped_by(&stop)
        .fit(&mut Fake::new());
    let weights = |path: &Path| load_weights(path, &mut Tiny::new(OUT)).unwrap();
    let (best, metadata) = weights(&model_file(&run));
    assert_eq!(best, weights(&two.join("checkpoint.safetensors")).0);
    assert_ne!(best, weights(&run.join("checkpoint.safetensors")).0);
    assert_eq!(metadata, [("columns".to_string(), "a,b,c".to_string())]);
}

#[test]
fn a_checkpoint_of_another_model_is_refused_and_nothing_is_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    Session::new(experiment(ADAM))
        .in_folder(&run)
        .fit(&mut Fake::new())
        .unwrap();
    let listing = || {
        let files = std::fs::read_dir(&run).unwrap().map(|e| e.unwrap().path());
        let mut files: Vec<_> = files
            .map(|p| (p.clone(), std::fs::read(p).unwrap()))
            .collect();
        files.sort();
        files
    };
    let before = listing();
    let mut other = Fake::new();
    other.model = Tiny::new(3);
    let resume = |experiment: Experiment, task: &mut Fake| {
        let result = Session::new(experiment).resuming(&run).fit(task);
        result.unwrap_err().to_string()
    };
    let message = resume(experiment(ADAM), &mut other);
    for part in ["checkpoint.safetensors", "0.weight", "[2, 3]", "[3, 3]"] {
        assert!(message.contains(part), "{message}");
    }
    let mut renamed = experiment(ADAM);
    renamed.model.insert("out".into(), toml::Value::Integer(3));
    let message = resume(renamed, &mut Fake::new());
    assert!(message.contains("another model"), "{message}");
    let mut reseeded = experiment(ADAM);
    reseeded.train.seed = 1;
    let message = resume(reseeded, &mut Fake::new());
    assert!(message.contains("seed"), "{message}");
    assert_eq!(listing(), before);
}

#[test]
fn weights_of_another_file_are_the_initial_weights_and_errors_name_the_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("torch.safetensors");
    let tensor = |name: &str, shape: &[usize], values: &[f64]| NamedTensor {
        name: name.into(),
        shape: shape.to_vec(),
        values: Values::F64(values.to_vec()),
    };
    let mut file = TensorFile {
        metadata: Default::default(),
        tensors: vec![
            tensor("0.weight", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
            tensor("0.bias", &[2], &[7.0, 8.0]),
            tensor("0.running_mean", &[1], &[0.1]),
        ],
    };
    file.write(&path).unwrap();
    let mut model = Tiny::new(OUT);
    let (params, _) = load_weights(&path, &mut model).unwrap();
    assert_eq!(params, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0, 7.0, 8.0]);
    assert_eq!(model.mean, 0.1);
    let mut tuned = experiment("optimizer = { kind = \"sgd\", lr = 0.0 }");
    tuned.folder = Some(folder.path().into());
    tuned.train.weights = Some("torch.safetensors".into());
    let run = folder.path().join("run");
    Session::new(tuned.clone())
        .in_folder(&run)
        .fit(&mut Fake::new())
        .unwrap();
    let (kept, _) = load_weights(&model_file(&run), &mut model).unwrap();
    assert_eq!(kept, params);

    for (change, parts) in [
        (
            tensor("0.weight", &[3, 2], &[0.0; 6]),
            ["0.weight", "[3, 2]"],
        ),
        (tensor("0.bias", &[2], &[0.0, f64::NAN]), ["0.bias", "NaN"]),
        (
            tensor("1.bias", &[2], &[0.0; 2]),
            ["1.bias", "another model"],
        ),
    ] {
        let mut bad = file.clone();
        bad.tensors.retain(|t| t.name != change.name);
        bad.tensors.push(change);
        bad.write(&path).unwrap();
        let message = load_weights(&path, &mut model).unwrap_err().to_string();
        for part in parts.into_iter().chain(["torch.safetensors"]) {
            assert!(message.contains(part), "{message}");
        }
    }
    file.tensors.remove(0);
    file.write(&path).unwrap();
    let message = load_weights(&path, &mut model).unwrap_err().to_string();
    assert!(
        message.contains("0.weight") && message.contains("[2, 3]"),
        "{message}"
    );
    assert!(Session::new(tuned).fit(&mut Fake::new()).is_err());
}

#[test]
fn a_run_leaves_its_files_and_the_page_needs_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    Session::new(experiment(ADAM))
        .in_folder(&run)
        .fit(&mut Fake::new())
        .unwrap();
    let read = |name: &str| std::fs::read_to_string(run.join(name)).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&read("summary.json")).unwrap();
    for key in [
        "epochs",
        "steps",
        "seconds",
        "ms_per_step",
        "train_loss",
        "validation_loss",
    ] {
        assert!(summary[key].is_number(), "{key} in {summary}");
    }
    assert_eq!(
        (&summary["epochs"], &summary["steps"]),
        (&5.into(), &35.into())
    );
    assert_eq!(read("metrics.csv").lines().count(), 6);
    let page = read("report.html");
    assert!(page.contains("<svg") && page.contains("prefers-color-scheme"));
    for outside in ["http://", "https://", "src=\"/", "<script"] {
        let found = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!found.contains(outside), "{outside}");
    }
    assert!(read("curves.svg").starts_with("<svg"));
}
