//! From a user's table or arrays to numbers for a network, and back.
//!
//! A [`Preparation`] is what was learnt from the training data: which columns or arrays are used,
//! the categories and classes, and the statistics of a normalisation. It is kept as JSON in the
//! checkpoint and applied unchanged to the validation data and to new data.
//!
//! - A number x becomes (x − shift) / scale, computed in f64. `standard`: the mean and the standard
//!   deviation (over n); `minmax`: the minimum and the range; a column that never varies gets the
//!   scale 1. The statistics are those of the training part alone.
//! - Arrays with one axis a sample are scaled value by value, as columns are; images (channels,
//!   height, width) by channel, other arrays as a whole.
//! - A category becomes as many values as there are categories, 1 at its own place and 0 elsewhere.
//!   The categories are those of the whole training file, sorted: by value where all are numbers,
//!   by their text otherwise. One that is not among them has 0 at every place, and is counted and
//!   said; or it is an error.
//! - A date becomes a number of days, scaled as a number is, and the sine and cosine of its place in
//!   the day, the week and the year, as far as the training part goes through them.
//! - Classes are numbered in the same order.

mod arrays;
mod columns;
mod table;

use crate::math;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::csv::{ColumnSummary, Reading, Table};
use super::dates::DateForm;
use super::files::{did_you_mean, list, quote};
use super::metrics::{Confusion, Regression, predicted_class};
use super::spec::DataFormat;
use super::{Dataset, idx, npy, safetensors};
use crate::{Error, Result};

pub(crate) use arrays::{Arrays, Named};
pub(crate) use table::{sample_classes, training_rows};

/// What is learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    /// Numbers.
    Regression,
    /// One of several classes.
    Classification,
}

/// How numbers are brought to a common size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Normalise {
    /// Not at all.
    #[default]
    None,
    /// Mean 0, standard deviation 1.
    Standard,
    /// From 0 to 1.
    Minmax,
}

/// What happens to cells that hold no value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// They are an error.
    #[default]
    Error,
    /// A number becomes the training part's mean, a category its most frequent one; a missing
    /// target or weight is an error.
    Mean,
    /// The row is left out.
    Drop,
}

/// What happens to categories that training did not see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// They are none of the known ones; how many is said.
    #[default]
    Ignore,
    /// They are an error.
    Error,
}

/// x becomes (x − shift) / scale: one pair per group of values of a sample, none for no change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// Taken off first.
    pub shift: Vec<f64>,
    /// Divided by then; never 0.
    pub scale: Vec<f64>,
}

impl Scaling {
    /// The statistics of values given group by group.
    pub(crate) fn fit<'a>(
        kind: Normalise,
        groups: usize,
        values: impl Fn(usize) -> Box<dyn Iterator<Item = f64> + 'a>,
    ) -> Self {
        let mut scaling = Scaling::default();
        for group in 0..if kind == Normalise::None { 0 } else { groups } {
            let (shift, scale) = match kind {
                Normalise::None => (0.0, 1.0),
                Normalise::Standard => mean_and_deviation(|| values(group)),
                Normalise::Minmax => {
                    let ends = (f64::INFINITY, f64::NEG_INFINITY);
                    let (low, high) =
                        values(group).fold(ends, |e, v| (math::min(e.0, v), math::max(e.1, v)));
                    (low, high - low)
                }
            };
            // What doesn't vary becomes 0; a range beyond f64 can't be divided by.
            let usable = scale > 0.0 && scale.is_finite();
            scaling
                .shift
                .push(if shift.is_finite() { shift } else { 0.0 });
            scaling.scale.push(if usable { scale } else { 1.0 });
        }
        scaling
    }

    /// The shift and scale of value `i` of a sample of `len` values.
    fn of(&self, i: usize, len: usize) -> (f64, f64) {
        if self.shift.is_empty() {
            return (0.0, 1.0);
        }
        let group = i * self.shift.len() / len;
        (self.shift[group], self.scale[group])
    }

    /// What a network sees of a value.
    pub fn apply(&self, i: usize, len: usize, value: f64) -> f64 {
        let (shift, scale) = self.of(i, len);
        (value - shift) / scale
    }

    /// The value of what a network sees, or says.
    pub fn undo(&self, i: usize, len: usize, value: f64) -> f64 {
        let (shift, scale) = self.of(i, len);
        value * scale + shift
    }

    fn check(&self, what: &str, len: usize) -> Result<()> {
        let groups = self.shift.len();
        let fits = groups == self.scale.len() && (groups == 0 || len.is_multiple_of(groups));
        let numbers = self.shift.iter().chain(&self.scale);
        if !fits || !numbers.clone().all(|v| v.is_finite()) || self.scale.contains(&0.0) {
            return Err(Error::invalid(
                format!("the statistics of {what}"),
                format!("{groups} shifts, {} scales", self.scale.len()),
                format!("finite ones, scales not 0, in groups of {len} values"),
            ));
        }
        Ok(())
    }
}

/// The mean and the standard deviation (over n), in two passes.
fn mean_and_deviation<'a>(values: impl Fn() -> Box<dyn Iterator<Item = f64> + 'a>) -> (f64, f64) {
    let (sum, n) = values().fold((0.0, 0.0), |(s, n), v| (s + v, n + 1.0));
    let mean = sum / n;
    let squares: f64 = values().map(|v| (v - mean) * (v - mean)).sum();
    (mean, (squares / n).sqrt())
}

/// The words of a category or of the classes, in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Labels {
    /// The words.
    pub names: Vec<String>,
    /// Whether they are numbers, so that 1, 1.0 and 01 are the same.
    pub numeric: bool,
}

impl Labels {
    /// The labels of some texts.
    pub(crate) fn fit<'a>(texts: impl Iterator<Item = &'a str> + Clone, reading: &Reading) -> Self {
        let finite = |t: &str| reading.number(t).filter(|n| n.is_finite());
        let numeric = texts.clone().all(|t| finite(t).is_some());
        let names = if numeric {
            let mut numbers: Vec<f64> = texts.filter_map(finite).map(|n| n + 0.0).collect();
            numbers.sort_unstable_by(f64::total_cmp);
            numbers.dedup();
            numbers.iter().map(f64::to_string).collect()
        } else {
            let set: std::collections::BTreeSet<&str> = texts.collect();
            set.into_iter().map(String::from).collect()
        };
        Labels { names, numeric }
    }

    /// A text in the form that the names have.
    fn canonical<'a>(&self, text: &'a str, reading: &Reading) -> std::borrow::Cow<'a, str> {
        match reading.number(text) {
            // + 0.0 makes 0 of −0.
            Some(number) if self.numeric => (number + 0.0).to_string().into(),
            _ => text.into(),
        }
    }

    fn index(&self) -> HashMap<&str, u32> {
        let names = self.names.iter().map(String::as_str);
        names.zip(0..).collect()
    }

    /// What is wrong with a label that isn't among these, as the end of a message.
    fn unknown(&self, text: &str) -> String {
        let names = || self.names.iter().map(String::as_str);
        format!(
            "got {}, needs one of the {} seen in training: {}{}",
            quote(text),
            self.names.len(),
            list(names()),
            did_you_mean(text, names())
        )
    }
}

/// What is known of a large table already.
#[derive(Clone, Copy)]
pub(crate) struct Survey<'a> {
    /// What every column holds.
    pub columns: &'a [ColumnSummary],
    /// Some of the training rows: enough for the statistics of numbers.
    pub some: &'a [usize],
}

/// How a column becomes inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Number or category.
    pub encoding: Encoding,
}

/// How the cells of a column become numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// One value.
    Number {
        /// The training part's mean, where missing cells take it.
        fill: Option<f64>,
        /// The normalisation.
        scaling: Scaling,
    },
    /// A value per category.
    Category {
        /// The most frequent category, where missing cells take it.
        fill: Option<u32>,
        /// The categories.
        labels: Labels,
    },
    /// The days since 1970, and two values for every cycle.
    Date {
        /// How it is written.
        form: DateForm,
        /// The training part's mean in days, where missing cells take it.
        fill: Option<f64>,
        /// The normalisation of the days.
        scaling: Scaling,
        /// What the dates go through.
        cycles: Vec<Cycle>,
    },
}

/// What comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cycle {
    /// Of 24 hours.
    Day,
    /// Of 7 days.
    Week,
    /// Of 365.2425 days.
    Year,
}

impl Cycle {
    /// Its length in days.
    pub fn days(self) -> f64 {
        match self {
            Cycle::Day => 1.0,
            Cycle::Week => 7.0,
            Cycle::Year => 365.2425,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Cycle::Day => "day",
            Cycle::Week => "week",
            Cycle::Year => "year",
        }
    }

    /// Sine and cosine of a time's place in it.
    pub fn of(self, days: f64) -> [f64; 2] {
        let turn = (days / self.days()).rem_euclid(1.0) * std::f64::consts::TAU;
        [math::sin(turn), math::cos(turn)]
    }
}

impl Encoding {
    /// The number of values that one cell becomes.
    pub(crate) fn width(&self) -> usize {
        match self {
            Encoding::Number { .. } => 1,
            Encoding::Category { labels, .. } => labels.names.len(),
            Encoding::Date { cycles, .. } => 1 + 2 * cycles.len(),
        }
    }
}

/// Where a sample's inputs come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Inputs {
    /// The columns of a table, in this order.
    Columns(Vec<Column>),
    /// An array whose first axis counts the samples.
    Array {
        /// Its name in a safetensors file.
        name: Option<String>,
        /// The shape of one sample in the file.
        shape: Vec<usize>,
        /// The normalisation.
        scaling: Scaling,
    },
}

/// What is to be predicted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetRule {
    /// Numbers.
    Values {
        /// The columns, or the array's name.
        names: Vec<String>,
        /// The shape for one sample.
        shape: Vec<usize>,
        /// The normalisation.
        scaling: Scaling,
    },
    /// One of several classes.
    Classes {
        /// The column, or the array's name.
        name: String,
        /// The classes.
        labels: Labels,
    },
}

/// What the training data taught about the data's form. The module's docs state the rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preparation {
    /// Where inputs come from and how they become numbers.
    pub inputs: Inputs,
    /// The shape of one sample for the network.
    pub sample_shape: Vec<usize>,
    /// What is predicted.
    pub target: TargetRule,
    /// The column or array of weights.
    pub weights: Option<String>,
    /// The rule for missing cells.
    pub missing: Missing,
    /// The rule for categories that training did not see.
    #[serde(default)]
    pub unknown: Unknown,
    /// How a table's text is understood.
    pub reading: Reading,
}

/// New data, prepared.
#[derive(Clone, Debug)]
pub struct NewData {
    /// The samples, without targets.
    pub dataset: Dataset,
    /// Those of them whose targets are known, with them, and which ones they are.
    pub known: Option<(Dataset, Vec<usize>)>,
    /// The row of the file that each sample came from, counted from 0 below the header; rows with
    /// missing values may have been left out.
    pub rows: Vec<usize>,
    /// Rows in the file.
    pub total: usize,
    /// What was found out about the file, to be said.
    pub notes: Vec<String>,
    /// The file, where it is a table.
    pub(crate) table: Option<Table>,
}

impl NewData {
    /// A column of the file as it is written there, for predictions to stand beside.
    pub fn column(&self, name: &str) -> Result<Vec<String>> {
        let Some(table) = &self.table else {
            return Err(Error::invalid(
                "--keep",
                format!("{name:?}"),
                "a table: an array has no columns",
            ));
        };
        let column = table.column(name)?;
        let cell = |row| table.cell(row, column).to_string();
        Ok((0..table.rows()).map(cell).collect())
    }
}

impl Preparation {
    /// As text for a checkpoint. [`from_json`](Self::from_json) gives the same bits back.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("names, numbers and lists")
    }

    /// Back from a checkpoint's text.
    pub fn from_json(text: &str) -> Result<Self> {
        let preparation: Self = serde_json::from_str(text)
            .map_err(|e| Error::invalid("the data's preparation", e, "what a checkpoint holds"))?;
        preparation.check()?;
        Ok(preparation)
    }

    fn check(&self) -> Result<()> {
        let values = super::dataset::size_of(&self.sample_shape).unwrap_or(0);
        let inputs = match &self.inputs {
            Inputs::Columns(columns) => {
                for column in columns {
                    if let Encoding::Number { scaling, .. } | Encoding::Date { scaling, .. } =
                        &column.encoding
                    {
                        scaling.check(&format!("column {}", quote(&column.name)), 1)?;
                    }
                }
                columns.iter().map(|c| c.encoding.width()).sum()
            }
            Inputs::Array { shape, scaling, .. } => {
                let len = super::dataset::size_of(shape).unwrap_or(0);
                scaling.check("the inputs", len)?;
                len
            }
        };
        if inputs == 0 || inputs != values {
            return Err(Error::invalid(
                "the sample's shape",
                format!("{:?}", self.sample_shape),
                format!("the shape of {inputs} values, as many as the inputs give"),
            ));
        }
        match &self.target {
            TargetRule::Values { shape, scaling, .. } => {
                scaling.check("the targets", super::dataset::size_of(shape).unwrap_or(0))
            }
            TargetRule::Classes { .. } => Ok(()),
        }
    }

    /// Regression or classification.
    pub fn task(&self) -> TaskKind {
        match self.target {
            TargetRule::Values { .. } => TaskKind::Regression,
            TargetRule::Classes { .. } => TaskKind::Classification,
        }
    }

    /// The width of the output that is learnt: values, or classes.
    pub fn outputs(&self) -> usize {
        match &self.target {
            TargetRule::Values { shape, .. } => shape.iter().product(),
            TargetRule::Classes { labels, .. } => labels.names.len(),
        }
    }

    /// The classes in the order of their numbers; empty for a regression.
    pub fn classes(&self) -> &[String] {
        match &self.target {
            TargetRule::Values { .. } => &[],
            TargetRule::Classes { labels, .. } => &labels.names,
        }
    }

    /// The names of the network's inputs where they come from columns (`colour=red` for one value
    /// of a category); empty for arrays.
    pub fn input_names(&self) -> Vec<String> {
        let Inputs::Columns(columns) = &self.inputs else {
            return Vec::new();
        };
        let mut names = Vec::new();
        for column in columns {
            match &column.encoding {
                Encoding::Number { .. } => names.push(column.name.clone()),
                Encoding::Date { cycles, .. } => {
                    names.push(column.name.clone());
                    for cycle in cycles {
                        for wave in ["sin", "cos"] {
                            names.push(format!("{wave}({} of {})", column.name, cycle.name()));
                        }
                    }
                }
                Encoding::Category { labels, .. } => {
                    let values = labels.names.iter();
                    names.extend(values.map(|v| format!("{}={v}", column.name)));
                }
            }
        }
        names
    }

    /// Sums for a regression's measures, in the units of the user's targets.
    pub fn regression(&self) -> Regression {
        let outputs = self.outputs();
        match &self.target {
            TargetRule::Values { scaling, .. } => {
                let pairs = (0..outputs).map(|i| scaling.of(i, outputs));
                let (shift, scale): (Vec<f64>, Vec<f64>) = pairs.unzip();
                Regression::in_units(&shift, &scale)
            }
            TargetRule::Classes { .. } => Regression::new(outputs),
        }
    }

    /// A confusion matrix of the classes.
    pub fn confusion(&self) -> Confusion {
        Confusion::new(self.classes().len())
    }

    /// Reads new data to predict, or to measure where it has targets. The file's format is known
    /// by its ending.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<NewData> {
        let path = path.as_ref();
        let format = match path == Path::new("-") {
            true => DataFormat::Csv,
            false => DataFormat::of(path)?,
        };
        match &self.inputs {
            Inputs::Columns(_) => {
                let table = match format {
                    DataFormat::Csv => Table::read(path, &self.reading)?,
                    DataFormat::Npy => Table::from_array(path, &npy::read(path)?)?,
                    DataFormat::Idx | DataFormat::Safetensors => {
                        return Err(Error::file(
                            path,
                            "format",
                            "got an array; the model was trained on columns and needs a table, CSV or NPY",
                        ));
                    }
                };
                let rows = self.usable_rows(&table, false)?;
                let mut notes = table.notes().to_vec();
                notes.extend(self.unseen(&table, &rows)?);
                Ok(NewData {
                    notes,
                    dataset: self.apply_table(&table, &rows, false)?,
                    known: self.known_rows(&table, &rows)?,
                    total: table.rows(),
                    rows,
                    table: Some(table),
                })
            }
            Inputs::Array { name, .. } => {
                let x = match format {
                    DataFormat::Csv => {
                        return Err(Error::file(
                            path,
                            "format",
                            "got a table; the model was trained on an array and needs NPY, IDX or safetensors",
                        ));
                    }
                    DataFormat::Npy => npy::read(path)?,
                    DataFormat::Idx => idx::read(path)?,
                    DataFormat::Safetensors => {
                        safetensors::read(path, name.as_deref().unwrap_or("x"))?
                    }
                };
                let arrays = Arrays {
                    x: Named::new(path, name.as_deref(), x),
                    y: None,
                    weights: None,
                };
                let rows: Vec<usize> = (0..arrays.x.array.samples()).collect();
                Ok(NewData {
                    dataset: self.apply_arrays(&arrays, &rows)?,
                    known: None,
                    total: rows.len(),
                    rows,
                    notes: Vec::new(),
                    table: None,
                })
            }
        }
    }

    /// A network's outputs, `width` a sample, in the user's units and words, as columns for
    /// [`csv::write`]: the predicted values; or the predicted class and the probability of every
    /// class. For two classes the width may be 1, a logit.
    ///
    /// [`csv::write`]: super::csv::write
    pub fn predictions(&self, outputs: &[f32], width: usize) -> Result<Vec<(String, Vec<String>)>> {
        let expected = self.outputs();
        let logit = width == 1 && expected == 2 && self.task() == TaskKind::Classification;
        if width == 0 || !outputs.len().is_multiple_of(width) || (width != expected && !logit) {
            return Err(Error::invalid(
                "outputs to write",
                format!("{} values, {width} a sample", outputs.len()),
                format!("{expected} for every sample"),
            ));
        }
        let samples = || outputs.chunks_exact(width);
        match &self.target {
            TargetRule::Values { names, scaling, .. } => Ok((0..width)
                .map(|i| {
                    let name = match names.as_slice() {
                        names if names.len() == width => format!("predicted_{}", names[i]),
                        [name] if width > 1 => format!("predicted_{name}_{i}"),
                        _ => format!("predicted_{i}"),
                    };
                    // An f32 with f32's digits: more would be invented.
                    let value = |row: &[f32]| scaling.undo(i, width, f64::from(row[i])) as f32;
                    (name, samples().map(|row| value(row).to_string()).collect())
                })
                .collect()),
            TargetRule::Classes { name, labels } => {
                let last = labels.names.len() - 1;
                let class = |row: &[f32]| labels.names[predicted_class(row, 0.0).min(last)].clone();
                let mut columns =
                    vec![(format!("predicted_{name}"), samples().map(class).collect())];
                for (c, label) in labels.names.iter().enumerate() {
                    let cells = samples().map(|row| (probability(row, c) as f32).to_string());
                    columns.push((format!("probability_{label}"), cells.collect()));
                }
                Ok(columns)
            }
        }
    }
}

/// The softmax of a sample's outputs at class `c`; of a single logit its σ.
fn probability(outputs: &[f32], c: usize) -> f64 {
    let exp = |a: f32, b: f32| math::exp(f64::from(a) - f64::from(b));
    if let [logit] = *outputs {
        return 1.0
            / (1.0
                + if c == 1 {
                    exp(0.0, logit)
                } else {
                    exp(logit, 0.0)
                });
    }
    1.0 / outputs.iter().map(|&y| exp(y, outputs[c])).sum::<f64>()
}

/// How often each label occurs, for the most frequent one: the first of equally frequent ones.
fn most_frequent(labels: impl Iterator<Item = u32>) -> Option<u32> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    for label in labels {
        *counts.entry(label).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    counts.into_iter().find(|&(_, n)| n == most).map(|(l, _)| l)
}
