//! A device whose memory runs out in the middle of a run.

use super::*;
use crate::gpu::device::FIRST_FAILURE;

#[derive(Default)]
struct Warnings(Vec<String>);

impl Observer for Warnings {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Warning(text) = event {
            self.0.push(text.into());
        }
    }
}

/// A run on a device whose allocation of that number fails, once: its weights, or the error, and what it
/// warned of.
fn run(mode: Mode, text: &str, failure: u64) -> (Result<Vec<f32>>, Vec<String>) {
    let text = format!(
        "name = \"short\"\n{text}\nepochs = 2\noptimizer = {{ kind = \"adam\", lr = 0.01 }}\n"
    );
    let experiment = Experiment::parse(&text, "short.toml").unwrap();
    let mut task = NetworkTask::new(&experiment).unwrap();
    let (mut kept, mut warnings) = (Vec::new(), Warnings::default());
    FIRST_FAILURE.set(failure);
    let trained = Session::new(experiment)
        .placed(Placement::Gpu {
            adapter: "auto".into(),
            mode,
            precision: Precision::F32,
            compress: false,
        })
        .kept_in(&mut kept)
        .observed_by(&mut warnings)
        .fit(&mut task);
    FIRST_FAILURE.set(u64::MAX);
    (trained.map(|_| kept), warnings.0)
}

const DENSE: &str = r#"
[model]
family = "network"
layers = [{ kind = "dense", out = 9 }, { kind = "tanh" }, { kind = "dense", out = 2 }]
[data]
generate = { name = "two_moons", samples = 60 }
[train]
batch = 12
"#;

/// The step is made again in halves, and the run has the weights of one whose batches have two shards.
#[test]
fn batches_are_halved_where_memory_runs_out_in_a_step() {
    for mode in [Mode::Native, Mode::Hybrid] {
        let never = u64::MAX - 1;
        let (whole, halves) = (
            run(mode, DENSE, never).0.unwrap(),
            run(mode, &format!("{DENSE}shards = 2\n"), never).0.unwrap(),
        );
        assert_ne!(whole, halves);
        let mut halved = 0;
        for failure in (0..).step_by(5) {
            let (trained, warnings) = run(mode, DENSE, failure);
            match (trained, &warnings[..]) {
                (Ok(weights), []) => {
                    assert!(weights == whole, "{mode:?}, {failure}");
                    break;
                }
                (Ok(weights), [warning]) => {
                    assert!(warning.contains("no memory for"), "{warning}");
                    assert!(warning.contains("computed in 2 parts"), "{warning}");
                    let first = warning.contains("From step 0 on");
                    assert!(!first || weights == halves, "{mode:?}, {failure}");
                    halved += usize::from(first);
                }
                // Outside of a step: when the model is put there, or brought back.
                (trained, warnings) => {
                    let error = trained.expect_err("one warning").to_string();
                    assert!(error.contains("no memory for"), "{error} {warnings:?}");
                }
            }
        }
        assert!(halved > 1, "{mode:?}: {halved}");
    }
}

/// Batch norm looks at the whole batch.
#[test]
fn a_batch_that_cannot_be_cut_ends_with_the_devices_error() {
    let norm = r#"
[model]
family = "network"
input = [1, 8, 8]
layers = [
  { kind = "conv2d", out = 2, kernel = 3 },
  { kind = "batch_norm2d" },
  { kind = "flatten" },
  { kind = "dense", out = 10 },
]
[data]
generate = { name = "digits" }
[train]
batch = 600
"#;
    let mut errors = 0;
    for failure in (0..).step_by(17) {
        let (trained, warnings) = run(Mode::Hybrid, norm, failure);
        assert!(warnings.is_empty(), "{warnings:?}");
        match trained {
            Ok(_) => break,
            Err(error) => assert!(error.to_string().contains("no memory for"), "{error}"),
        }
        errors += 1;
    }
    assert!(errors > 2, "{errors}");
}
