//! What goes wrong during a run: numbers that are not finite, disks, and wrong gradients.

use super::*;
use crate::verify::Link;

#[test]
fn a_number_that_is_not_finite_stops_with_step_tensor_and_advice_and_keeps_the_state() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let mut task = Fake::new();
    task.bad_step = Some(10);
    let error = Session::new(experiment(ADAM))
        .in_folder(&run)
        .fit(&mut task)
        .unwrap_err();
    let message = error.to_string();
    for part in [
        "step 10",
        "the loss",
        "NaN",
        "learning rate",
        "--on-nan skip",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert!(state(&run).metadata["progress"].contains("\"step\":10"));
    // The state before the step is good: resumed with `skip`, the run goes on to its end.
    let mut resumed = experiment_of(&run).unwrap();
    resumed.train.on_nan = OnNan::Skip;
    let summary = Session::new(resumed).resuming(&run).fit(&mut task).unwrap();
    assert_eq!((summary.steps, summary.skipped_steps), (35, 1));

    let mut skipping = experiment(ADAM);
    skipping.train.on_nan = OnNan::Skip;
    let mut seen = Vec::new();
    struct Seen<'a>(&'a mut Vec<u64>);
    impl Observer for Seen<'_> {
        fn event(&mut self, event: Event<'_>) {
            if let Event::Skipped { step, .. } = event {
                self.0.push(step);
            }
        }
    }
    let summary = Session::new(skipping)
        .observed_by(&mut Seen(&mut seen))
        .fit(&mut task)
        .unwrap();
    assert_eq!(summary.skipped_steps, 1);
    assert!(summary.train_loss.is_finite());
    assert_eq!(seen, [10]);
}

#[test]
fn a_gradient_that_is_not_finite_names_its_tensor_and_changes_nothing() {
    let model = Tiny::new(OUT);
    let mut stepper = Stepper::new(
        &model,
        vec![0.0; model.layout().len()],
        crate::optim::OptimizerSpec::adam(0.1),
    );
    // The outputs stay 0, the products with the gradient of the loss overflow.
    let example = Example::<Tiny> {
        input: vec![1.0, f32::MAX, 1.0],
        target: Target::values(vec![0.0, -100.0]),
    };
    let pass = Pass::inference();
    stepper
        .gradient(&model, Loss::Mse, &example, &pass, 1.0, false)
        .unwrap();
    let bad = stepper.update(&model, &Clip::default(), 0.1).unwrap_err();
    // PyTorch's element of W[1][1].
    assert_eq!(bad.tensor, "the gradient of 0.weight, element 4,");
    assert_eq!(bad.value, f64::INFINITY);
    assert!(!bad.half_updated);
    let error = stepper
        .step(&model, Loss::Mse, &example, &pass)
        .unwrap_err();
    assert!(error.to_string().contains("0.weight, element 4"), "{error}");
    assert!(stepper.params.iter().all(|&p| p == 0.0));
    assert_eq!(stepper.optimizer.steps(), 0);
}

#[test]
fn a_checkpoint_that_cannot_be_written_is_told_and_the_old_one_stays_whole() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    /// Moves the folder away for a while, as a disk that is full or gone.
    struct Blocker<'a> {
        run: &'a Path,
        failed: Vec<u64>,
        step: u64,
    }
    impl Observer for Blocker<'_> {
        fn event(&mut self, event: Event<'_>) {
            let away = self.run.with_file_name("away");
            match event {
                Event::Step { step, .. } => {
                    self.step = step;
                    match step {
                        8 => std::fs::rename(self.run, &away).unwrap(),
                        20 => std::fs::rename(&away, self.run).unwrap(),
                        _ => {}
                    }
                }
                Event::SaveFailed(error) => {
                    let message = error.to_string();
                    assert!(message.contains("cannot write"), "{message}");
                    self.failed.push(self.step);
                    let progress = &state(&away).metadata["progress"];
                    assert!(progress.contains("\"step\":5"), "{progress}");
                }
                _ => {}
            }
        }
    }
    let mut experiment = experiment(ADAM);
    experiment.train.checkpoint_every = Some(5);
    let mut observer = Blocker {
        run: &run,
        failed: Vec::new(),
        step: 0,
    };
    Session::new(experiment.clone())
        .in_folder(&run)
        .observed_by(&mut observer)
        .fit(&mut Fake::new())
        .unwrap();
    // Checkpoints at 10 and 15, the metrics of the epoch that ends at 14; at 20 the way is free.
    assert_eq!(observer.failed, [10, 14, 15]);
    let whole = folder.path().join("whole");
    Session::new(experiment)
        .in_folder(&whole)
        .fit(&mut Fake::new())
        .unwrap();
    assert_eq!(state(&run), state(&whole));
    assert_eq!(metrics_without_time(&run), metrics_without_time(&whole));
}

/// After a second without a checkpoint one is written before an evaluation. A process that is killed
/// between that evaluation and the next checkpoint goes on from before it, and its row is there.
#[test]
fn an_evaluation_after_the_last_checkpoint_is_told_once() {
    struct Killed<'a> {
        run: &'a Path,
        left: &'a Path,
    }
    impl Observer for Killed<'_> {
        fn event(&mut self, event: Event<'_>) {
            match event {
                Event::Step { step: 7, .. } => {
                    std::thread::sleep(std::time::Duration::from_millis(1100));
                }
                Event::Step { step: 8, .. } => {
                    std::fs::create_dir(self.left).unwrap();
                    for file in std::fs::read_dir(self.run).unwrap().flatten() {
                        std::fs::copy(file.path(), self.left.join(file.file_name())).unwrap();
                    }
                }
                _ => {}
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let [run, left] = ["run", "left"].map(|name| folder.path().join(name));
    let mut killed = Killed {
        run: &run,
        left: &left,
    };
    Session::new(experiment(ADAM))
        .in_folder(&run)
        .observed_by(&mut killed)
        .fit(&mut Fake::new())
        .unwrap();
    let file = TensorFile::read(&left.join("checkpoint.safetensors")).unwrap();
    assert!(
        file.metadata["progress"].contains("\"step\":7"),
        "before the evaluation"
    );
    assert_eq!(
        metrics_without_time(&left).len(),
        2,
        "a header and the evaluation's row"
    );
    Session::new(experiment_of(&left).unwrap())
        .resuming(&left)
        .fit(&mut Fake::new())
        .unwrap();
    assert_eq!(metrics_without_time(&left), metrics_without_time(&run));
    assert_eq!(state(&left), state(&run));
}

#[test]
fn a_wrong_gradient_is_seen_at_the_end_of_training_and_the_run_is_whole_nevertheless() {
    // `Tiny` never writes the gradient of its input: central differences and f32 both show it, and
    // so do the comparisons of threads and of instruction sets, which start from memory that holds
    // no numbers.
    #[derive(Default)]
    struct Seen(Option<bool>);
    impl Observer for Seen {
        fn event(&mut self, event: Event<'_>) {
            if let Event::Verified(verification) = event {
                self.0 = Some(verification.failed());
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let mut seen = Seen::default();
    let summary = Session::new(experiment(ADAM))
        .in_folder(&run)
        .verified(true)
        .observed_by(&mut seen)
        .fit(&mut Fake::new())
        .unwrap();
    assert_eq!(seen.0, Some(true));
    let verification = summary.verification.as_ref().unwrap();
    let rows = verification.report.rows.iter();
    let wrong = rows.filter(|row| row.verdict == crate::verify::Verdict::Fail);
    for row in wrong {
        let bits = [Link::Threads, Link::Processes, Link::Machines].contains(&row.link);
        assert!(bits || row.tensor.contains("input"), "{row:?}");
    }
    assert!(
        summary.to_json()["verification"]["failed"]
            .as_u64()
            .unwrap()
            >= 2
    );
    let report = std::fs::read_to_string(run.join("report.html")).unwrap();
    assert!(report.contains("checks failed") && report.contains("FAILED"));
}
