//! What the loop trains.

use std::ops::Range;
use std::path::Path;

use super::TrainSpec;
use crate::budget::Demand;
use crate::loss_image::ImageLoss;
use crate::{Loss, Model, Result, Target};

/// One batch with what should come out.
pub struct Example<M: Model> {
    /// The model's input.
    pub input: M::Input<f32>,
    /// What the loss compares with.
    pub target: Target<f32>,
}

/// What a trained model is verified on.
pub struct Specimen<M: Model> {
    /// A small batch.
    pub example: Example<M>,
    /// A model with the same layout for batches of that size, where the trained one takes larger
    /// ones alone.
    pub model: Option<M>,
}

/// Named figures, in the order in which they are shown.
pub type Metrics = Vec<(String, f64)>;

/// What a family found out at the end of a run.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What it adds to `summary.json`.
    pub summary: serde_json::Map<String, serde_json::Value>,
    /// What it adds to the report, in order.
    pub figures: Vec<Figure>,
}

/// What a figure is measured on: `30 test rows`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredOn {
    /// Which part of the data.
    pub part: String,
    /// How many of what, where it is known.
    pub count: Option<(usize, &'static str)>,
}

impl MeasuredOn {
    /// A part of the data, and how many of what it has.
    pub fn part(part: impl Into<String>, count: Option<(usize, &'static str)>) -> Self {
        MeasuredOn {
            part: part.into(),
            count,
        }
    }
}

impl std::fmt::Display for MeasuredOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.count {
            Some((1, what)) => write!(f, "1 {} {}", self.part, what.trim_end_matches('s')),
            Some((count, what)) => write!(f, "{count} {} {what}", self.part),
            None if self.part.contains(' ') => f.write_str(&self.part),
            None => write!(f, "{} data", self.part),
        }
    }
}

/// Whether a run learnt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It did.
    Learned,
    /// It did not.
    NotLearned {
        /// By what that is seen.
        why: String,
        /// What to try.
        advice: String,
    },
}

/// A part of the report.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its heading.
    pub title: String,
    /// A sentence under it; may be empty.
    pub caption: String,
    /// What is shown.
    pub content: Content,
}

/// What a figure shows. Pictures are embedded: the report is one file.
#[derive(Clone, Debug)]
pub enum Content {
    /// A whole `<svg>` element. `currentColor` follows light and dark.
    Svg(String),
    /// The bytes of a PNG file.
    Png(Vec<u8>),
    /// The bytes of a GIF file.
    Gif(Vec<u8>),
    /// Plain text in a fixed-width font.
    Text(String),
    /// A table.
    Table {
        /// The columns' names.
        header: Vec<String>,
        /// Its rows.
        rows: Vec<Vec<String>>,
    },
}

/// A model, its data and its measures. What a task draws is a function of the seed and the step,
/// so a resumed run continues where the first one stopped.
pub trait Task {
    /// What is trained.
    type Model: Model;

    /// The model.
    fn model(&self) -> &Self::Model;
    /// The model, to freeze tensors, restore buffers and let statistics follow.
    fn model_mut(&mut self) -> &mut Self::Model;
    /// What is minimised.
    fn loss(&self) -> Loss;
    /// What is added to it where outputs are images; nothing usually.
    fn image_loss(&self) -> Option<ImageLoss> {
        None
    }
    /// What was found out about the data, a line each; said before training begins.
    fn notes(&self) -> &[String] {
        &[]
    }
    /// The memory that training takes, as a function of the sizes that could be smaller; asked
    /// before anything is allocated for it ([`budget`](crate::budget)).
    fn demand(&self, train: &TrainSpec) -> Demand<'_> {
        let params = self.model().layout().len() as u64;
        Demand::fixed(super::memory::of_params(params, &train.optimizer))
    }
    /// Steps in an epoch, each with a batch of its own. (With gradient accumulation the optimizer
    /// steps once for several of them.)
    fn steps_per_epoch(&self) -> u64;

    /// The batch of a step, counted from 0 over the whole run. The memory of `example`, left by an
    /// earlier call, is reused: after the first step nothing is allocated.
    fn batch(&mut self, step: u64, example: &mut Option<Example<Self::Model>>) -> Result<()>;

    /// Samples in the batch of a step, where it can be cut into shards of some of them.
    fn samples(&self, step: u64) -> Option<usize> {
        let _ = step;
        None
    }

    /// What samples are: their name, and the fewest that are worth a shard of their own.
    fn shard_of(&self) -> (&'static str, usize) {
        ("samples", 1)
    }

    /// Some samples of the batch of a step, as [`Task::batch`] has them at these places.
    fn part(
        &mut self,
        step: u64,
        samples: Range<usize>,
        example: &mut Option<Example<Self::Model>>,
    ) -> Result<()> {
        let _ = samples;
        self.batch(step, example)
    }

    /// No other samples of batches than these will be asked for: others need not be read.
    fn only(&mut self, samples: Range<usize>) {
        let _ = samples;
    }

    /// Whether [`Task::adapt`] does something after this epoch, counted from 1.
    fn adapts(&self, epoch: u64) -> bool {
        let _ = epoch;
        false
    }

    /// Between two epochs: changes parameters and buffers otherwise than by a step, such as grids
    /// that follow the data. The number of parameters stays.
    fn adapt(&mut self, params: &mut [f32]) -> Result<()> {
        let _ = params;
        Ok(())
    }

    /// The figures after an epoch (counted from 1), `validation_loss` first where there is
    /// validation data.
    fn evaluate(&mut self, params: &[f32], epoch: u64) -> Result<Metrics>;

    /// Whether the task can say that its model has learned, and can start again:
    /// [`Task::learned`], [`Task::confirm`] and [`Task::begin_again`] are its own.
    fn judges(&self) -> bool {
        false
    }

    /// Whether nothing is wrong in the figures of an evaluation.
    fn learned(&self, metrics: &Metrics) -> bool {
        let _ = metrics;
        false
    }

    /// Whether a model in whose evaluations nothing is wrong can do what it is for beside: asked
    /// before a run ends by it.
    fn confirm(&mut self, params: &[f32], epoch: u64) -> Result<bool> {
        let _ = (params, epoch);
        Ok(true)
    }

    /// Looks for an exact model near the soft one, after an epoch with this training loss, where it
    /// gets something wrong. Whether the parameters were changed.
    fn round(&mut self, params: &mut [f32], loss: f64, epoch: u64) -> Result<bool> {
        let _ = (params, loss, epoch);
        Ok(false)
    }

    /// Whether a start with this training loss is about to learn, so that it is worth more epochs than
    /// others.
    fn hopeful(&self, loss: f64) -> bool {
        let _ = loss;
        false
    }

    /// Looks for a smaller model that is as right, once it has learned. Whether the parameters were
    /// changed.
    fn thin(&mut self, params: &mut [f32], epoch: u64) -> Result<bool> {
        let _ = (params, epoch);
        Ok(false)
    }

    /// Draws the model anew from the key of an attempt (the first is 0), and gives the parameters that
    /// it begins with.
    fn begin_again(&mut self, seed: u64, attempt: u64) -> Result<Vec<f32>> {
        let _ = attempt;
        Ok(self.model().init(seed))
    }

    /// The figure that decides which parameters are the best, and whether smaller is better. Where
    /// `evaluate` gives no such figure the last parameters are taken.
    fn best_by(&self) -> (&'static str, bool) {
        ("validation_loss", true)
    }

    /// The figures of the parameters that were kept, measured once at the end; they take the place of
    /// [`Task::evaluate`]'s where they have the same name. Rows that chose the epoch flatter: where a
    /// task keeps others aside, its figures are from those.
    fn measure(&mut self, params: &[f32]) -> Result<Metrics> {
        let _ = params;
        Ok(Metrics::new())
    }

    /// Whether the model learnt what it should, as the summary has it; none where there is no such
    /// line.
    fn verdict(&self, summary: &super::Summary) -> Option<Verdict> {
        let _ = summary;
        None
    }

    /// What a figure of the summary is measured on; none where it is no measure (a count, a time).
    fn measured_on(&self, figure: &str) -> Option<MeasuredOn> {
        let part = match figure.split('_').next()? {
            "train" => "training",
            "validation" => "validation",
            "test" => "test",
            _ => return None,
        };
        Some(MeasuredOn::part(part, None))
    }

    /// A few lines that show the current state on a terminal (a pattern, a sample); none usually.
    fn picture(&mut self, params: &[f32]) -> Option<String> {
        let _ = params;
        None
    }

    /// Figures of the current state, for who watches on a page; asked for right after
    /// [`Task::evaluate`], and only where somebody does.
    fn view(&mut self, params: &[f32]) -> Result<Vec<Figure>> {
        let _ = params;
        Ok(Vec::new())
    }

    /// After training, with the best parameters: writes the family's own files (pictures,
    /// circuits) into the run's folder, and returns what it adds to summary and report.
    fn finish(&mut self, params: &[f32], run: &Path) -> Result<Findings> {
        let _ = (params, run);
        Ok(Findings::default())
    }

    /// Makes parameters whose gradients are lost in rounding, as those of decided gates are, into others of the
    /// same model whose gradients can be checked; says what was done to them.
    fn soften(&self, params: &mut [f32]) -> Option<String> {
        let _ = params;
        None
    }

    /// What the trained model is verified on: a few samples, a patch, a small grid. The batch of
    /// the first step where the family has nothing smaller.
    fn specimen(&mut self) -> Result<Specimen<Self::Model>> {
        let mut example = None;
        self.batch(0, &mut example)?;
        match example {
            Some(example) => Ok(Specimen {
                example,
                model: None,
            }),
            None => Err(crate::Error::invalid("the first step", "no batch", "one")),
        }
    }

    /// What must be saved with every checkpoint beside parameters and buffers, as text: statistics
    /// of a normalisation, encodings of columns.
    fn metadata(&self) -> super::Metadata {
        Vec::new()
    }
}
