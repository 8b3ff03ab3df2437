//! What the loop tells whoever watches it.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Digests, Figure, MeasuredOn, Metrics, Verdict, Verification};

/// The figures of an evaluated epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Epochs done.
    pub epoch: u64,
    /// Steps done.
    pub step: u64,
    /// The mean loss over the steps since the record before.
    pub train_loss: f64,
    /// The learning rate of the last step.
    pub lr: f64,
    /// What the task measured.
    pub metrics: Metrics,
    /// Seconds of training up to here, those before a resume included.
    pub seconds: f64,
    /// Whether these parameters are the best so far.
    pub best: bool,
}

impl Record {
    /// A figure by its name, `train_loss` among them.
    pub fn get(&self, name: &str) -> Option<f64> {
        if name == "train_loss" {
            return Some(self.train_loss);
        }
        let found = self.metrics.iter().find(|(n, _)| n == name);
        found.map(|&(_, value)| value)
    }
}

impl Record {
    fn to_json(&self) -> Value {
        let metrics = self.metrics.iter();
        let metrics: Map<String, Value> = metrics
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        json!({
            "epoch": self.epoch,
            "step": self.step,
            "train_loss": self.train_loss,
            "lr": self.lr,
            "metrics": metrics,
            "seconds": self.seconds,
            "best": self.best,
        })
    }
}

/// Something happened in the loop.
#[derive(Debug)]
pub enum Event<'a> {
    /// Something to know before training begins: what was found in the data.
    Note(&'a str),
    /// Something that may be wrong, and what is done about it.
    Warning(&'a str),
    /// Training begins, or goes on after `step` steps of `steps`.
    Start {
        /// The number of trained parameters.
        params: usize,
        /// Steps done before.
        step: u64,
        /// Steps in the whole run.
        steps: u64,
        /// Steps in an epoch.
        steps_per_epoch: u64,
    },
    /// A step was done.
    Step {
        /// Steps done.
        step: u64,
        /// Its loss.
        loss: f64,
    },
    /// A step is about to be made that takes long, as far as is known. Whoever ends the process now
    /// loses that step and at most a second of work before it.
    LongStep,
    /// The step is made, or left out.
    Stepped,
    /// A step was left out because a number in it was not finite.
    Skipped {
        /// The step, counted from 0.
        step: u64,
        /// Which tensor.
        tensor: &'a str,
    },
    /// An epoch is about to be evaluated. Whoever ends the process now loses nothing but what was not
    /// saved.
    Evaluating,
    /// An epoch was evaluated.
    Epoch(&'a Record),
    /// An epoch has ended that is not evaluated (`evaluate_every`).
    EpochEnded {
        /// Epochs done.
        epoch: u64,
        /// Steps done.
        step: u64,
        /// The mean loss over the steps since the last evaluation, as far as they are known: a device
        /// that computes them may not have told of any.
        train_loss: Option<f64>,
        /// The learning rate of the last step.
        lr: f64,
        /// Seconds of training so far.
        seconds: f64,
    },
    /// The task's picture of the current state.
    Picture(&'a str),
    /// Figures of the current state, where [`Observer::views`].
    View(&'a [Figure]),
    /// Figures of the model that was kept, as the report has them.
    Figures(&'a [Figure]),
    /// A checkpoint was written.
    Saved(&'a Path),
    /// A checkpoint could not be written; the run goes on and tries again.
    SaveFailed(&'a crate::Error),
    /// All steps are done and saved; what follows is drawn, verified and told from what is saved.
    Finishing,
    /// The trained model was verified.
    Verified(&'a Verification),
    /// The start was given up; the next attempt begins.
    Restarted {
        /// The attempt that begins, counted from 1.
        attempt: u64,
        /// Attempts that fit into the run.
        attempts: u64,
        /// Epochs done in all attempts.
        epoch: u64,
    },
    /// The model has learned: the run ends.
    Learned {
        /// Epochs done in all attempts.
        epoch: u64,
    },
    /// No better figure for the epochs that `early_stopping` allows.
    StoppedEarly {
        /// The best epoch.
        best: u64,
    },
}

impl Event<'_> {
    /// The event's name and what it says, for logs and other languages; none for what only marks a
    /// moment, and for [`Event::Figures`].
    pub fn to_json(&self) -> Option<(&'static str, Value)> {
        Some(match self {
            Event::Note(text) => ("note", json!({ "text": text })),
            Event::Warning(text) => ("warning", json!({ "text": text })),
            Event::Start {
                params,
                step,
                steps,
                steps_per_epoch,
            } => (
                "start",
                json!({
                    "params": params,
                    "step": step,
                    "steps": steps,
                    "steps_per_epoch": steps_per_epoch,
                }),
            ),
            Event::Step { step, loss } => ("step", json!({ "step": step, "loss": loss })),
            Event::Skipped { step, tensor } => {
                ("skipped", json!({ "step": step, "tensor": tensor }))
            }
            Event::Epoch(record) => ("epoch", record.to_json()),
            Event::EpochEnded {
                epoch,
                step,
                train_loss,
                lr,
                seconds,
            } => (
                "epoch_ended",
                json!({
                    "epoch": epoch,
                    "step": step,
                    "train_loss": train_loss,
                    "lr": lr,
                    "seconds": seconds,
                }),
            ),
            Event::Picture(text) => ("picture", json!({ "text": text })),
            Event::View(figures) => ("view", shown(figures)),
            Event::Saved(path) => ("saved", json!({ "path": path.display().to_string() })),
            Event::SaveFailed(error) => {
                let text = format!("{error}; the run goes on and tries again");
                ("warning", json!({ "text": text }))
            }
            Event::Restarted {
                attempt,
                attempts,
                epoch,
            } => (
                "restarted",
                json!({ "attempt": attempt, "attempts": attempts, "epoch": epoch }),
            ),
            Event::Learned { epoch } => ("learned", json!({ "epoch": epoch })),
            Event::StoppedEarly { best } => ("stopped_early", json!({ "best": best })),
            Event::Verified(verification) => ("verified", verification.to_json()),
            // Figures are in the report; who shows them takes them as a view.
            Event::LongStep
            | Event::Stepped
            | Event::Evaluating
            | Event::Finishing
            | Event::Figures(_) => return None,
        })
    }
}

fn shown(figures: &[Figure]) -> Value {
    let figures = figures.iter().map(|figure| {
        json!({
            "title": figure.title,
            "caption": figure.caption,
            "html": super::report::content(&figure.content),
        })
    });
    figures.collect()
}

/// Watches a run.
pub trait Observer {
    /// Called for every event, in order, on the thread that trains.
    fn event(&mut self, event: Event<'_>);

    /// Whether [`Event::View`] is worth its time at the epoch that was just evaluated.
    fn views(&mut self) -> bool {
        false
    }
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Observer for Quiet {
    fn event(&mut self, _: Event<'_>) {}
}

/// The end of a run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Epochs done.
    pub epochs: u64,
    /// Steps done.
    pub steps: u64,
    /// Seconds of training.
    pub seconds: f64,
    /// Milliseconds per step: evaluation and files left out.
    pub ms_per_step: f64,
    /// The mean loss over the steps of the epoch whose parameters were kept.
    pub train_loss: f64,
    /// The task's validation loss after that epoch, where it has one.
    pub validation_loss: Option<f64>,
    /// Steps left out because of numbers that were not finite.
    pub skipped_steps: u64,
    /// The attempt that the run ended with, counted from 1, and how many there could have been; where
    /// starts are given up.
    pub attempts: Option<(u64, u64)>,
    /// The epoch whose parameters were kept as the best.
    pub best_epoch: Option<u64>,
    /// The figure that chose that epoch, whether smaller is better, and its value.
    pub chosen_by: Option<(&'static str, bool, f64)>,
    /// The trained model's verification, where it was asked for.
    pub verification: Option<Verification>,
    /// Whether the model learnt, where that can be said.
    pub verdict: Option<Verdict>,
    /// Digests of the weights and the data.
    pub digests: Option<Digests>,
    /// What the family adds.
    pub more: Map<String, Value>,
    /// Where the measures come from, by their names in `summary.json`.
    pub sources: Vec<Source>,
}

/// Where a figure comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The figure's name.
    pub name: String,
    /// Which data it is measured on.
    pub on: MeasuredOn,
    /// The epoch whose parameters it is of.
    pub epoch: u64,
}

impl Source {
    /// As a reader is told: `30 test rows, epoch 41`.
    pub fn sentence(&self) -> String {
        format!("{}, epoch {}", self.on, self.epoch)
    }
}

impl Summary {
    /// Where a figure comes from, if it is a measure.
    pub fn source(&self, figure: &str) -> Option<&Source> {
        self.sources.iter().find(|source| source.name == figure)
    }

    /// As `summary.json` has it.
    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        let mut put = |key: &str, value: Value| map.insert(key.to_string(), value);
        put("epochs", json!(self.epochs));
        put("steps", json!(self.steps));
        put("seconds", json!(self.seconds));
        put("ms_per_step", json!(self.ms_per_step));
        put("train_loss", json!(self.train_loss));
        put("validation_loss", json!(self.validation_loss));
        put("skipped_steps", json!(self.skipped_steps));
        put("best_epoch", json!(self.best_epoch));
        if let Some((attempts, _)) = self.attempts {
            put("attempts", json!(attempts));
        }
        if let Some(verdict) = &self.verdict {
            put("learned", json!(*verdict == Verdict::Learned));
        }
        if let Some(verification) = &self.verification {
            put("verification", verification.to_json());
        }
        if let Some(digests) = &self.digests {
            digests.put(|key, value| {
                put(key, value);
            });
        }
        map.extend(self.more.clone());
        if !self.sources.is_empty() {
            let sources = self.sources.iter().map(|source| {
                let count = source.on.count.map(|(count, _)| count);
                let about = json!({
                    "part": source.on.part, "count": count, "epoch": source.epoch,
                });
                (source.name.clone(), about)
            });
            map.insert("measured_on".into(), Value::Object(sources.collect()));
        }
        Value::Object(map)
    }
}
