//! The `[data]` part of an experiment.
//!
//! ```toml
//! [data]
//! file = "iris.csv"          # CSV, NPY, IDX or safetensors, known by its ending
//! targets = "species"        # the column to predict, or a list of columns
//! validation = 0.2           # a share drawn from the seed; or validation_file = "…"
//! normalise = "standard"     # with the statistics of the training part
//! ```

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};

use super::csv::{ColumnSummary, Reading, Table, separator_words};
use super::generate::Generate;
use super::prepare::{
    Arrays, Missing, Named, Normalise, Preparation, Survey, TaskKind, Unknown, sample_classes,
    training_rows,
};
use super::split::{Fold, Parts, Plan, Rule};
use super::{Array, Batches, Dataset, Targets, files, idx, npy, safetensors};
use crate::rng::Key;
use crate::{Error, Result};

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataFormat {
    /// A table of text (`.csv`, `.tsv`, `.txt`, `.data`).
    Csv,
    /// A NumPy array (`.npy`).
    Npy,
    /// MNIST's format, plain or gzip (`…idx3-ubyte`, `.idx`, each also with `.gz`).
    Idx,
    /// Named arrays (`.safetensors`).
    Safetensors,
}

impl DataFormat {
    /// The format by the file's ending.
    pub fn of(path: &Path) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_lowercase();
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        let ends = |endings: &[&str]| endings.iter().any(|e| name.ends_with(e));
        let table = [".csv", ".tsv", ".txt", ".data", ".dat"];
        if table.iter().any(|e| plain.ends_with(e)) {
            Ok(DataFormat::Csv)
        } else if ends(&[".npy"]) {
            Ok(DataFormat::Npy)
        } else if ends(&[".safetensors"]) {
            Ok(DataFormat::Safetensors)
        } else if plain.ends_with("ubyte") || plain.ends_with(".idx") {
            Ok(DataFormat::Idx)
        } else {
            Err(Error::file(
                path,
                "the file's ending",
                "got none that is known, needs .csv, .tsv, .txt, .data, .dat, .npy, .safetensors, .idx or …-ubyte (tables and IDX also with .gz); or set `format`",
            ))
        }
    }
}

/// Where the data is and how it is used: what users write under `[data]`. Paths are relative to
/// the experiment's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DataSpec {
    /// The file of the inputs, or of everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Generated or built-in data instead of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generate: Option<Generate>,
    /// The format of all files, where the ending doesn't tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<DataFormat>,
    /// The file of the targets, for NPY and IDX.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub targets_file: Option<PathBuf>,
    /// The file of the weights or the mask, for NPY and IDX.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights_file: Option<PathBuf>,
    /// The input columns; all others where it is left out. For safetensors the tensor (`x`).
    #[serde(
        deserialize_with = "one_or_many",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub inputs: Vec<String>,
    /// The columns to predict. For safetensors the tensor (`y`).
    #[serde(
        deserialize_with = "one_or_many",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub targets: Vec<String>,
    /// Columns that are neither.
    #[serde(
        deserialize_with = "one_or_many",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ignore: Vec<String>,
    /// Columns of numbers that are categories.
    #[serde(
        deserialize_with = "one_or_many",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub categories: Vec<String>,
    /// The column, or for safetensors the tensor, of the samples' weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    /// Regression or classification. Where it is left out: text and arrays of one integer a sample
    /// are classes, everything else is numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskKind>,
    /// The classes in the order of their numbers; found in the data where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<Vec<String>>,
    /// The share of the samples that is kept for validation: 0.2, or 0 for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<f64>,
    /// The share that neither trains nor chooses the epoch, for the figures that are reported; none
    /// where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<f64>,
    /// The test part is a fold of a cross-validation instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fold: Option<Fold>,
    /// Whether every class gives its share to every part. Where it is left out the classes of a file
    /// do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stratify: Option<bool>,
    /// The column of rows that belong together: all of a group are in one part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The column of dates, times or numbers that orders the rows: the latest are measured on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// A file of its own for validation, in the same form as `file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_file: Option<PathBuf>,
    /// Its targets, for NPY and IDX.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_targets_file: Option<PathBuf>,
    /// Its weights, for NPY and IDX.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_weights_file: Option<PathBuf>,
    /// Whether the validation share and the batches are drawn at random. If not, the last samples
    /// are for validation and batches follow the file.
    pub shuffle: bool,
    /// The seed of the split, where it should not change with the run's seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_seed: Option<u64>,
    /// Whether inputs are normalised, with the statistics of the training part.
    pub normalise: Normalise,
    /// Whether targets are normalised. Measures and predictions stay in the targets' own units.
    pub normalise_targets: Normalise,
    /// What happens to missing cells.
    pub missing: Missing,
    /// What happens to categories of new data that training did not see.
    #[serde(skip_serializing_if = "is_default")]
    pub unknown: Unknown,
    /// Cells that hold no value, instead of the usual words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_values: Option<Vec<String>>,
    /// Between the fields of a table; found out where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub separator: Option<char>,
    /// Before the fractional digits: `.` or `,`.
    pub decimal: char,
    /// Whether a table's first line names the columns.
    pub header: bool,
    /// The shape of one sample for the network, of the same size as the data's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<usize>>,
    /// More categories or classes than this in one column are taken for a mistake.
    pub max_categories: usize,
}

impl Default for DataSpec {
    fn default() -> Self {
        let reading = Reading::default();
        DataSpec {
            file: None,
            generate: None,
            format: None,
            targets_file: None,
            weights_file: None,
            inputs: Vec::new(),
            targets: Vec::new(),
            ignore: Vec::new(),
            categories: Vec::new(),
            weights: None,
            task: None,
            classes: None,
            validation: None,
            test: None,
            fold: None,
            stratify: None,
            group: None,
            time: None,
            validation_file: None,
            validation_targets_file: None,
            validation_weights_file: None,
            shuffle: true,
            split_seed: None,
            normalise: Normalise::None,
            normalise_targets: Normalise::None,
            missing: Missing::Error,
            unknown: Unknown::default(),
            missing_values: None,
            separator: None,
            decimal: reading.decimal,
            header: reading.header,
            shape: None,
            // Workspace for letters, states and countries; a free text has more.
            max_categories: 256,
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// `"a"` or `["a", "b"]`.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a name or a list of names")]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(name) => vec![name],
        OneOrMany::Many(names) => names,
    })
}

/// The share for validation where the experiment says nothing.
const VALIDATION: f64 = 0.2;
/// Training rows beyond which statistics that are only looked at come from a part of them.
const MANY_ROWS: usize = 10_000;

/// Data ready for training.
#[derive(Clone, Debug)]
pub struct Data {
    /// What is trained on.
    pub train: Dataset,
    /// What chooses the epoch, where there is any.
    pub validation: Option<Dataset>,
    /// What is kept for the figures that are reported, where there is any.
    pub test: Option<Dataset>,
    /// What was learnt from the training data, for the checkpoint.
    pub preparation: Preparation,
    /// What was found out or decided, a line each, to be shown to the user.
    pub notes: Vec<String>,
    shuffle: bool,
}

impl Data {
    /// The training batches.
    pub fn batches(&self, size: usize, seed: u64) -> Result<Batches> {
        if self.shuffle {
            Batches::new(self.train.len(), size, seed)
        } else {
            Batches::in_order(self.train.len(), size)
        }
    }
}

/// A table or arrays, read but not prepared.
pub(crate) enum Source {
    Table(Table),
    Arrays(Arrays),
}

impl DataSpec {
    /// Reads, splits and prepares the data. `base` is the folder that paths are relative to.
    pub fn load(&self, base: &Path, seed: u64) -> Result<Data> {
        self.check()?;
        let mut notes = Vec::new();
        let source = match (&self.file, &self.generate) {
            (Some(file), _) => {
                let join = |p: &Option<PathBuf>| p.as_ref().map(|p| base.join(p));
                let (y, w) = (join(&self.targets_file), join(&self.weights_file));
                self.read(&base.join(file), y.as_deref(), w.as_deref())?
            }
            (None, Some(generate)) => generate.source()?,
            (None, None) => {
                return Err(Error::invalid("data", "neither", "`file` or `generate`"));
            }
        };
        let mut spec = self.clone();
        if let (Some(generate), true) = (&self.generate, self.targets.is_empty()) {
            spec.targets = generate.targets();
        }
        let spec = &spec;
        let usable = match &source {
            Source::Table(table) => {
                note_table(&mut notes, table);
                let usable = training_rows(spec, table)?;
                let dropped = table.rows() - usable.len();
                if dropped > 0 {
                    notes.push(format!("{dropped} rows with missing values left out"));
                }
                usable
            }
            Source::Arrays(arrays) => (0..arrays.samples()?).collect(),
        };
        let Parts {
            train: training,
            validation: held_out,
            test,
        } = spec.split(&source, &usable, seed, &mut notes)?;
        let preparation = match &source {
            Source::Table(table) => Preparation::fit_table(spec, table, &usable, &training, None)?,
            Source::Arrays(arrays) => Preparation::fit_arrays(spec, arrays, &training)?,
        };
        let train = preparation.apply(&source, &training)?;
        let validation = match &self.validation_file {
            Some(file) => {
                let join = |p: &Option<PathBuf>| p.as_ref().map(|p| base.join(p));
                let y = join(&self.validation_targets_file);
                let w = join(&self.validation_weights_file);
                let source = self.read(&base.join(file), y.as_deref(), w.as_deref())?;
                let rows = match &source {
                    Source::Table(table) => {
                        let rows = preparation.usable_rows(table, true)?;
                        notes.extend(preparation.unseen(table, &rows)?);
                        rows
                    }
                    Source::Arrays(arrays) => {
                        if arrays.y.is_none() {
                            return Err(Error::invalid(
                                "data.validation_targets_file",
                                "none",
                                "the file of the validation targets",
                            ));
                        }
                        (0..arrays.samples()?).collect()
                    }
                };
                Some(preparation.apply(&source, &rows)?)
            }
            None if held_out.is_empty() => None,
            None => Some(preparation.apply(&source, &held_out)?),
        };
        let test = match test.is_empty() {
            true => None,
            false => Some(preparation.apply(&source, &test)?),
        };
        let parts = [Some(&train), validation.as_ref(), test.as_ref()];
        note_preparation(&mut notes, &preparation, parts);
        Ok(Data {
            train,
            validation,
            test,
            preparation,
            notes,
            shuffle: self.shuffle,
        })
    }

    /// What training would learn from a table that is read already, and its parts: what
    /// [`DataSpec::load`] does, without the samples. The statistics of numbers are those of some
    /// 10,000 rows.
    pub(crate) fn fit(
        &self,
        table: Table,
        columns: &[ColumnSummary],
        seed: u64,
    ) -> Result<(Preparation, Parts, Table)> {
        self.check()?;
        let usable = training_rows(self, &table)?;
        let source = Source::Table(table);
        let parts = self.split(&source, &usable, seed, &mut Vec::new())?;
        let Source::Table(table) = source else {
            unreachable!("a table");
        };
        let thinned = (parts.train.len() > MANY_ROWS).then(|| {
            let every = parts.train.len() / MANY_ROWS + 1;
            let rows = parts.train.iter().step_by(every).copied();
            rows.collect::<Vec<_>>()
        });
        let (usable, training) = (&usable, &parts.train);
        let survey = thinned.as_deref().map(|some| Survey { columns, some });
        let preparation = Preparation::fit_table(self, &table, usable, training, survey)?;
        Ok((preparation, parts, table))
    }

    /// What can be seen without reading a file.
    pub fn check(&self) -> Result<()> {
        if self.file.is_some() && self.generate.is_some() {
            return Err(Error::invalid(
                "data",
                "`file` and `generate`",
                "one of the two",
            ));
        }
        if self.validation.is_some() && self.validation_file.is_some() {
            return Err(Error::invalid(
                "data",
                "`validation` and `validation_file`",
                "one of the two",
            ));
        }
        self.check_split()?;
        if self.validation_file.is_some() && self.file.is_none() {
            return Err(Error::invalid(
                "data.validation_file",
                "no `file`",
                "a training file beside it",
            ));
        }
        if self.max_categories < 2 {
            return Err(Error::invalid(
                "data.max_categories",
                self.max_categories,
                "at least 2",
            ));
        }
        self.reading().check()
    }

    /// How tables are understood.
    pub fn reading(&self) -> Reading {
        let usual = Reading::default();
        Reading {
            separator: self.separator,
            decimal: self.decimal,
            header: self.header,
            missing_values: self.missing_values.clone().unwrap_or(usual.missing_values),
            grouped: false,
        }
    }

    /// Shares that leave something, and one rule for the split.
    fn check_split(&self) -> Result<()> {
        let shares = [("validation", self.validation), ("test", self.test)];
        for (name, share) in shares {
            if let Some(share) = share
                && !(0.0..1.0).contains(&share)
            {
                let needed = "a share from 0 to below 1";
                return Err(Error::invalid(format!("data.{name}"), share, needed));
            }
        }
        if let Some(fold) = &self.fold {
            fold.check()?;
        }
        let rules = [
            ("group", self.group.is_some()),
            ("time", self.time.is_some()),
            ("stratify", self.stratify == Some(true)),
            ("shuffle = false", !self.shuffle),
        ];
        let named: Vec<&str> = rules.iter().filter(|r| r.1).map(|r| r.0).collect();
        if named.len() > 1 {
            return Err(Error::invalid(
                "data",
                named.join(" and "),
                "one of them to split by",
            ));
        }
        Ok(())
    }

    /// The parts of the usable samples, each in the file's order.
    fn split(
        &self,
        source: &Source,
        usable: &[usize],
        seed: u64,
        notes: &mut Vec<String>,
    ) -> Result<Parts> {
        let rule = self.split_rule(source, usable)?;
        let share = match self.validation_file {
            Some(_) => 0.0,
            None => self.validation.unwrap_or(VALIDATION),
        };
        let plan = Plan {
            rule: &rule,
            validation: share,
            test: self.test.unwrap_or(0.0),
            fold: self.fold,
            key: Key::new(self.split_seed.unwrap_or(seed)),
        };
        let parts = plan.parts(usable.len())?;
        let by = match (&rule, &self.group, &self.time) {
            _ if parts.validation.len() + parts.test.len() == 0 => None,
            (Rule::Groups(groups), Some(name), _) => Some(format!(
                "split by the {} groups of {name:?}: each is in one part",
                1 + groups.iter().max().map_or(0, |&g| g as usize)
            )),
            (Rule::Time(_), _, Some(name)) => Some(format!(
                "split by {name:?}: the latest rows are measured on"
            )),
            (Rule::Stratified(_), ..) => {
                Some("split by class: every part has its share of each".to_string())
            }
            _ => None,
        };
        notes.extend(by);
        let at = |part: Vec<usize>| part.into_iter().map(|i| usable[i]).collect();
        Ok(Parts {
            train: at(parts.train),
            validation: at(parts.validation),
            test: at(parts.test),
        })
    }

    /// What keeps the usable samples together or apart.
    fn split_rule(&self, source: &Source, usable: &[usize]) -> Result<Rule> {
        let table = |key: &str| match source {
            Source::Table(table) => Ok(table),
            Source::Arrays(_) => Err(Error::invalid(
                format!("data.{key}"),
                "arrays",
                "a table with such a column",
            )),
        };
        if let Some(name) = &self.group {
            let table = table("group")?;
            let column = table.column(name)?;
            let mut numbers = std::collections::HashMap::new();
            let number = |&row: &usize| {
                let next = numbers.len() as u32;
                *numbers.entry(table.cell(row, column)).or_insert(next)
            };
            return Ok(Rule::Groups(usable.iter().map(number).collect()));
        }
        if let Some(name) = &self.time {
            let table = table("time")?;
            let column = table.column(name)?;
            return Ok(Rule::Time(table.times(column, usable)?));
        }
        if !self.shuffle {
            return Ok(Rule::InOrder);
        }
        // Generated data is balanced as it is made.
        if self.stratify.unwrap_or(self.generate.is_none())
            && let Some(classes) = sample_classes(self, source, usable)?
        {
            return Ok(Rule::Stratified(classes));
        }
        Ok(Rule::Random)
    }

    fn read(&self, file: &Path, y: Option<&Path>, w: Option<&Path>) -> Result<Source> {
        let format_of = |path: &Path| match self.format {
            Some(format) => Ok(format),
            None if path.ends_with("-") => Ok(DataFormat::Csv),
            None => DataFormat::of(path),
        };
        let format = format_of(file)?;
        if let (DataFormat::Csv | DataFormat::Safetensors, Some(extra)) = (format, y.or(w)) {
            return Err(Error::file(
                extra,
                "data.targets_file or data.weights_file",
                "inputs in a table or in safetensors have their targets and weights in the same file, named by `targets` and `weights`",
            ));
        }
        let array = |path: &Path| -> Result<Named> {
            let array = match format_of(path)? {
                DataFormat::Npy => npy::read(path)?,
                DataFormat::Idx => idx::read(path)?,
                DataFormat::Csv | DataFormat::Safetensors => {
                    return Err(Error::file(
                        path,
                        "format",
                        "needs NPY or IDX, as the inputs",
                    ));
                }
            };
            Ok(Named::new(path, None, array))
        };
        match format {
            DataFormat::Csv => {
                // `-`, in whichever folder the experiment is, is standard input.
                let stdin = file.ends_with("-");
                let file = if stdin { Path::new("-") } else { file };
                Ok(Source::Table(Table::read(file, &self.reading())?))
            }
            // One array of samples × columns, the target among them.
            DataFormat::Npy if y.is_none() && !self.targets.is_empty() => {
                Ok(Source::Table(Table::from_array(file, &npy::read(file)?)?))
            }
            DataFormat::Npy | DataFormat::Idx => Ok(Source::Arrays(Arrays {
                x: array(file)?,
                y: y.map(array).transpose()?,
                weights: w.map(array).transpose()?,
            })),
            DataFormat::Safetensors => {
                let bytes = files::read(file)?;
                let tensors = safetensors::Tensors::new(file, &bytes)?;
                let one = |field: &str, names: &[String], usual: &str| match names {
                    [] => Ok(usual.to_string()),
                    [name] => Ok(name.clone()),
                    _ => Err(Error::invalid(
                        field,
                        format!("{} names", names.len()),
                        "the name of one tensor of a safetensors file",
                    )),
                };
                let named = |name: &str| -> Result<Named> {
                    Ok(Named::new(file, Some(name), tensors.array(name)?))
                };
                Ok(Source::Arrays(Arrays {
                    x: named(&one("data.inputs", &self.inputs, "x")?)?,
                    y: Some(named(&one("data.targets", &self.targets, "y")?)?),
                    weights: self.weights.as_deref().map(named).transpose()?,
                }))
            }
        }
    }
}

impl Preparation {
    fn apply(&self, source: &Source, rows: &[usize]) -> Result<Dataset> {
        match source {
            Source::Table(table) => self.apply_table(table, rows, true),
            Source::Arrays(arrays) => self.apply_arrays(arrays, rows),
        }
    }
}

fn note_table(notes: &mut Vec<String>, table: &Table) {
    notes.push(format!(
        "{}: {} rows, {} columns, separated by {}",
        table.path().display(),
        table.rows(),
        table.columns().len(),
        separator_words(table.separator())
    ));
    notes.extend_from_slice(table.notes());
    let nameless = table.columns().iter().filter(|c| c.is_empty()).count();
    if nameless > 0 {
        notes.push(format!("{nameless} columns without a name are not used"));
    }
}

fn note_preparation(
    notes: &mut Vec<String>,
    preparation: &Preparation,
    [train, validation, test]: [Option<&Dataset>; 3],
) {
    let test = test.map_or(String::new(), |t| format!(", {} for the test", t.len()));
    notes.push(format!(
        "{} training samples, {} for validation{test}; inputs {:?}, {}",
        train.map_or(0, Dataset::len),
        validation.map_or(0, Dataset::len),
        preparation.sample_shape,
        match preparation.task() {
            TaskKind::Regression => format!("{} values to predict", preparation.outputs()),
            TaskKind::Classification => format!("{} classes", preparation.outputs()),
        }
    ));
    let names = preparation.input_names();
    if !names.is_empty() {
        notes.push(format!(
            "inputs: {}",
            files::list(names.iter().map(String::as_str))
        ));
    }
    if let Some(Targets::Classes { classes, .. }) = train.map(Dataset::targets) {
        for (class, name) in preparation.classes().iter().enumerate() {
            if !classes.iter().any(|&c| c as usize == class) {
                notes.push(format!("class {name:?} has no training sample"));
            }
        }
    }
}

/// An array of samples from memory, for data that is built in.
pub(crate) fn built_in(name: &str, x: Array, y: Array) -> Source {
    let path = Path::new(name);
    Source::Arrays(Arrays {
        x: Named::new(path, None, x),
        y: Some(Named::new(path, None, y)),
        weights: None,
    })
}
