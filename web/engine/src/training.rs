//! Runs of experiments: training, the check of what was trained, and mistakes on purpose.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use retrograd::train::{
    Event, Experiment, Mode, Observer, Placement, Precision, Session, experiment_of,
};
use retrograd::verify::Mistake;
use retrograd::{Family, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::workers::Workers;
use crate::{tell, webgpu};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Train {
    experiment: String,
    #[serde(default)]
    folder: Option<PathBuf>,
    /// Goes on with the run in the folder, up to the epochs of this experiment; the rest is the run's own.
    #[serde(default)]
    resume: bool,
    /// Milliseconds between two views of the state; none are drawn without it.
    #[serde(default)]
    view: Option<u64>,
    #[serde(default)]
    verify: bool,
    #[serde(default)]
    mistake: Option<Wrong>,
    #[serde(default)]
    device: Device,
    /// Which of several workers this is, that were all given this request.
    #[serde(default)]
    group: Option<Workers>,
}

/// What computes the steps, and is checked.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Device {
    #[default]
    Cpu,
    /// The browser's WebGPU. Such a call suspends: hosts make it with `WebAssembly.promising`.
    Gpu,
}

impl Device {
    fn placement(self) -> Placement {
        match self {
            Device::Cpu => Placement::Cpu,
            Device::Gpu => {
                webgpu::begin();
                Placement::Gpu {
                    adapter: "auto".into(),
                    mode: Mode::Native,
                    precision: Precision::F32,
                    compress: false,
                }
            }
        }
    }
}

/// A mistake in gradients, on purpose.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wrong {
    words: String,
    /// In the fast kernels alone: the reference stays right.
    #[serde(default)]
    only_f32: bool,
}

/// Tells the host what happens.
struct Teller<'a> {
    stop: &'a AtomicBool,
    view: Option<Duration>,
    viewed: Option<Instant>,
    stepped: Option<Instant>,
    /// The lines of `metrics.csv`, without their times.
    metrics: String,
}

/// Between two steps that are told.
const STEPS: Duration = Duration::from_millis(10);

impl Observer for Teller<'_> {
    fn event(&mut self, event: Event<'_>) {
        if matches!(event, Event::Step { .. }) {
            if self.stepped.is_some_and(|at| at.elapsed() < STEPS) {
                return;
            }
            self.stepped = Some(Instant::now());
        }
        if let Event::Epoch(record) = &event {
            self.metrics += &format!(
                "{},{},{},{}",
                record.epoch, record.step, record.train_loss, record.lr
            );
            for (_, value) in &record.metrics {
                self.metrics += &format!(",{value}");
            }
            self.metrics += &format!(",{}\n", u8::from(record.best));
        }
        if let Event::Figures(figures) = event {
            if let Some((_, figures)) = Event::View(figures).to_json() {
                tell("figures", figures);
            }
            return;
        }
        if let Some((kind, more)) = event.to_json()
            && tell(kind, more)
        {
            self.stop.store(true, Ordering::SeqCst);
        }
    }

    fn views(&mut self) -> bool {
        let due = self
            .view
            .is_some_and(|every| self.viewed.is_none_or(|at| at.elapsed() >= every));
        if due {
            self.viewed = Some(Instant::now());
        }
        due
    }
}

impl<'a> Teller<'a> {
    fn new(stop: &'a AtomicBool, view: Option<u64>) -> Self {
        Teller {
            stop,
            view: view.map(Duration::from_millis),
            viewed: None,
            stepped: None,
            metrics: String::new(),
        }
    }
}

/// Runs a session of an experiment whose files are the host's.
fn run(
    mut experiment: Experiment,
    mistake: Option<Wrong>,
    view: Option<u64>,
    group: Option<Workers>,
    place: impl FnOnce(Session<'_>) -> Session<'_>,
) -> Result<Value> {
    experiment.folder = Some("/".into());
    let family = Family::find(experiment.family())?;
    let stop = AtomicBool::new(false);
    let mut teller = Teller::new(&stop, view);
    let mut session = place(Session::new(experiment))
        .observed_by(&mut teller)
        .stopped_by(&stop);
    if let Some(group) = &group {
        session = session.in_group(group);
    }
    if let Some(Wrong { words, only_f32 }) = mistake {
        session = session.with_mistake(Mistake { words, only_f32 });
    }
    let summary = family.train(&mut session)?;
    drop(session);
    Ok(json!({
        "summary": summary.to_json(),
        "metrics": teller.metrics,
        "stopped": stop.load(Ordering::SeqCst),
        "simd": retrograd::command::instruction_set().to_string(),
    }))
}

pub fn train(asked: Train) -> Result<Value> {
    let mut experiment = Experiment::parse(&asked.experiment, "the experiment")?;
    if let (true, Some(folder)) = (asked.resume, &asked.folder) {
        let epochs = experiment.train.epochs;
        experiment = experiment_of(folder)?;
        experiment.train.epochs = epochs;
    }
    let group = asked.group;
    run(experiment, asked.mistake, asked.view, group, |session| {
        let session = session
            .verified(asked.verify)
            .placed(asked.device.placement());
        match asked.folder {
            Some(folder) if asked.resume => session.resuming(folder),
            Some(folder) => session.in_folder(folder),
            None => session,
        }
    })
}

pub fn check(folder: PathBuf, mistake: Option<Wrong>, device: Device) -> Result<Value> {
    let experiment = experiment_of(&folder)?;
    run(experiment, mistake, None, None, |session| {
        session
            .resuming(folder)
            .placed(device.placement())
            .verified(true)
            .reported(false)
    })
}

pub fn mistakes(text: &str) -> Result<Value> {
    let mut experiment = Experiment::parse(text, "the experiment")?;
    experiment.folder = Some("/".into());
    let family = Family::find(experiment.family())?;
    let mut all = Vec::new();
    let mut session = Session::new(experiment).mistakes_into(&mut all);
    family.train(&mut session)?;
    drop(session);
    Ok(json!(all))
}
