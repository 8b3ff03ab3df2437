//! When a run ends: without a better epoch for so long, after an epoch that was asked for, when its model has learned,
//! and starts that are given up.
//!
//! What early stopping keeps and leaves out is read off a run that goes to its end: up to the stop both are the same
//! run, to the bit. Attempts are run by a task that says by a list which epochs are right, and beside them the plain
//! loop ([`super::plain`]) with the same list.

use super::holds;
use super::plain::{Plain, Script, Watch, data, experiment, fitted};
use crate::data::Dataset;
use crate::network::Network;
use crate::train::{Example, Experiment, Metrics, NetworkTask, Record, Session, Task};
use crate::verify::report::{Link, Row};
use crate::{Loss, Model, Result};

/// A run whose best epoch is not its last: its validation loss goes up and down.
const MODEL: &str = r#"input = [6]
    layers = [{ kind = "dense", out = 8 }, { kind = "tanh" }, { kind = "dense", out = 2 }]"#;
const TRAIN: &str = r#"loss = "mse"
    optimizer = { kind = "adam", lr = 0.15 }"#;
const EPOCHS: u64 = 40;

/// Early stopping, ends that are asked for, attempts.
pub fn endings() -> Result<Vec<Row>> {
    let mut rows = stopped_early()?;
    rows.push(stopped_after()?);
    rows.extend(attempts()?);
    Ok(rows)
}

fn figures(records: &[Record]) -> Vec<(u64, u64, u64, u64, bool)> {
    let each = records.iter().map(|r| {
        let validation = r.get("validation_loss").unwrap_or(f64::NAN);
        let (loss, validation) = (r.train_loss.to_bits(), validation.to_bits());
        (r.epoch, loss, validation, r.lr.to_bits(), r.best)
    });
    each.collect()
}

fn run(settings: &str) -> Result<(Vec<Record>, Vec<u32>)> {
    let experiment = experiment(MODEL, &format!("{settings}\n{TRAIN}"))?;
    let (train, validation) = (data(0, false, false, false)?, data(1, false, false, false)?);
    let (records, kept, _) = fitted(&experiment, &train, Some(&validation), None)?;
    Ok((records, kept.iter().map(|p| p.to_bits()).collect()))
}

/// With a patience of p the run ends with the first evaluation that is p epochs or more after the best, and keeps what
/// a run to that best epoch ends with.
fn stopped_early() -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (patience, every) in [(1, 1), (2, 1), (5, 2)] {
        let every_so = format!("evaluate_every = {every}");
        let (whole, _) = run(&format!("epochs = {EPOCHS}\n{every_so}"))?;
        // By counting: how many epochs ago the least of all values so far was seen first.
        let value = |r: &Record| r.get("validation_loss").unwrap_or(f64::NAN);
        let since = |at: usize| {
            let so_far = &whole[..=at];
            let best = so_far
                .iter()
                .find(|r| so_far.iter().all(|other| value(r) <= value(other)));
            best.map_or(0, |best| whole[at].epoch - best.epoch)
        };
        let end = (0..whole.len()).find(|&at| since(at) >= patience);
        let label = format!("early stopping, {patience} epochs, every {every}");
        let Some(end) = end else {
            // It would say nothing.
            rows.push(holds("runs", label, Link::Training, whole.len(), 1));
            continue;
        };
        let settings = format!("epochs = {EPOCHS}\nearly_stopping = {patience}\n{every_so}");
        let (stopped, kept) = run(&settings)?;
        let best = whole[end].epoch - since(end);
        let (_, of_best) = run(&format!("epochs = {best}\n{every_so}"))?;
        let mut wrong = usize::from(figures(&stopped) != figures(&whole[..=end]));
        wrong += usize::from(kept != of_best);
        wrong += usize::from(end + 1 == whole.len());
        rows.push(holds("runs", label, Link::Training, whole.len(), wrong));
    }
    Ok(rows)
}

/// A run that is to end after an epoch has the rates of a whole one.
fn stopped_after() -> Result<Row> {
    let settings = "epochs = 9\nschedule = { kind = \"cosine\", min = 0.05, warmup = 3 }";
    let (whole, _) = run(settings)?;
    let (short, _) = run(&format!("stop_after = 4\n{settings}"))?;
    let wrong = usize::from(figures(&short) != figures(&whole[..4]));
    let label = "an end that is asked for";
    Ok(holds("runs", label, Link::Training, 4, wrong))
}

/// The first parameters of an attempt.
fn seed(seed: u64, attempt: u64) -> u64 {
    seed + 1_000 * attempt
}

/// A network's task that has learned when a script says so.
struct Scripted {
    task: NetworkTask,
    script: Script,
    epoch: u64,
}

impl Task for Scripted {
    type Model = Network;

    fn model(&self) -> &Network {
        self.task.model()
    }
    fn model_mut(&mut self) -> &mut Network {
        self.task.model_mut()
    }
    fn loss(&self) -> Loss {
        self.task.loss()
    }
    fn steps_per_epoch(&self) -> u64 {
        self.task.steps_per_epoch()
    }
    fn batch(&mut self, step: u64, example: &mut Option<Example<Network>>) -> Result<()> {
        self.task.batch(step, example)
    }
    fn evaluate(&mut self, params: &[f32], epoch: u64) -> Result<Metrics> {
        self.epoch = epoch;
        self.task.evaluate(params, epoch)
    }
    fn judges(&self) -> bool {
        true
    }
    fn learned(&self, _: &Metrics) -> bool {
        (self.script.right)(self.epoch)
    }
    fn confirm(&mut self, _: &[f32], epoch: u64) -> Result<bool> {
        Ok((self.script.confirmed)(epoch))
    }
    fn hopeful(&self, _: f64) -> bool {
        self.script.hopeful
    }
    fn begin_again(&mut self, first: u64, attempt: u64) -> Result<Vec<f32>> {
        Ok(self.task.model().init(seed(first, attempt)))
    }
}

/// What is run: settings, and which epochs are right.
const ATTEMPTS: [(&str, &str, Script); 4] = [
    (
        "attempts, none learns",
        "epochs = 11\nrestart_after = 3\nstop_when_learned = 2",
        Script {
            right: |_| false,
            confirmed: |_| true,
            hopeful: false,
            seed,
        },
    ),
    (
        // Epoch 3 is right, so that attempt 1 goes on to epoch 4; the second learns in epochs 5 and 6, which is not
        // confirmed, and in 7.
        "attempts, the second learns",
        "epochs = 20\nrestart_after = 3\nstop_when_learned = 2\nevaluate_every = 1\naccumulate = 2",
        Script {
            right: |epoch| matches!(epoch, 3 | 5..),
            confirmed: |epoch| epoch > 6,
            hopeful: false,
            seed,
        },
    ),
    (
        // Right from its second epoch on, and never confirmed: given up after three epochs as any other.
        "attempts, never confirmed",
        "epochs = 8\nrestart_after = 3\nstop_when_learned = 2",
        Script {
            right: |epoch| epoch % 3 != 1,
            confirmed: |_| false,
            hopeful: false,
            seed,
        },
    ),
    (
        // A hopeful start has half of its steps more: it is given up after three epochs and not two.
        "attempts, hopeful",
        "epochs = 10\nrestart_after = 2\nstop_when_learned = 1",
        Script {
            right: |_| false,
            confirmed: |_| true,
            hopeful: true,
            seed,
        },
    ),
];

fn attempts() -> Result<Vec<Row>> {
    let (train, validation) = (data(0, false, false, false)?, data(1, false, false, false)?);
    let mut rows = Vec::new();
    for (name, settings, script) in ATTEMPTS {
        let more = r#"loss = "mse"
            optimizer = { kind = "adam", lr = 0.02 }
            schedule = { kind = "cosine", min = 0.05, warmup = 2 }"#;
        let experiment = experiment(MODEL, &format!("{settings}\n{more}"))?;
        let (records, kept, task) = scripted(&experiment, &train, &validation, script)?;
        let plain = Plain {
            network: task.model(),
            spec: &experiment.train,
            loss: task.loss(),
            train: &train,
            validation: Some(&validation),
            script: Some(script),
        };
        rows.extend(plain.beside(name, &records, &kept)?);
    }
    Ok(rows)
}

fn scripted(
    experiment: &Experiment,
    train: &Dataset,
    validation: &Dataset,
    script: Script,
) -> Result<(Vec<Record>, Vec<f32>, NetworkTask)> {
    let network = Network::new(&experiment.model_as()?)?;
    let task = NetworkTask::on(experiment, network, train.clone(), Some(validation.clone()))?;
    let mut task = Scripted {
        task,
        script,
        epoch: 0,
    };
    let (mut kept, mut watch) = (Vec::new(), Watch::default());
    Session::new(experiment.clone())
        .kept_in(&mut kept)
        .observed_by(&mut watch)
        .reported(false)
        .fit(&mut task)?;
    Ok((watch.records, kept, task.task))
}
