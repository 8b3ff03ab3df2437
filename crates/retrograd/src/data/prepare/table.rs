//! Columns of a table as inputs, targets and weights.

use std::collections::{HashMap, HashSet};

use super::columns::{PARALLEL_CELLS, encode_rows, find, missing_cell, narrow};
use super::{Column, Inputs, Labels, Missing, Preparation, Scaling, Survey, TargetRule, TaskKind};
use crate::budget::{self, Demand, product};
use crate::data::csv::{Kind, Table, Words};
use crate::data::files::{list, quote};
use crate::data::spec::Source;
use crate::data::{DataSpec, Dataset};
use crate::{Error, Result, parallel};

/// Which columns of a table are what.
struct Roles {
    inputs: Vec<usize>,
    targets: Vec<usize>,
    weights: Option<usize>,
}

impl Roles {
    fn of(spec: &DataSpec, table: &Table) -> Result<Self> {
        let column = |name: &String| table.column(name);
        let targets: Vec<usize> = spec.targets.iter().map(column).collect::<Result<_>>()?;
        if targets.is_empty() {
            let names = table.columns().iter().map(String::as_str);
            return Err(Error::invalid(
                "data.targets",
                "none",
                format!("the column to predict: one of {}", list(names)),
            ));
        }
        let weights = spec.weights.as_ref().map(column).transpose()?;
        let ignored: Vec<usize> = spec.ignore.iter().map(column).collect::<Result<_>>()?;
        // What the split goes by is no input unless it is asked for: it would tell the parts apart.
        let split = [&spec.group, &spec.time].into_iter().flatten();
        let split: Vec<usize> = split.map(column).collect::<Result<_>>()?;
        // What each column is; a target is nothing else, whatever else is said of it.
        let mut known = vec![None; table.columns().len()];
        if spec.inputs.is_empty() {
            for &c in &split {
                known[c] = Some("what the split goes by");
            }
        }
        for &c in &ignored {
            known[c] = Some("ignored");
        }
        if let Some(c) = weights {
            known[c] = Some("the weights");
        }
        for &c in &targets {
            known[c] = Some("a target");
        }
        let inputs: Vec<usize> = if spec.inputs.is_empty() {
            (0..table.columns().len())
                .filter(|&c| known[c].is_none() && !table.columns()[c].is_empty())
                .collect()
        } else {
            spec.inputs.iter().map(column).collect::<Result<_>>()?
        };
        for &c in &inputs {
            if let Some(also) = known[c].replace("an input already") {
                return Err(Error::invalid(
                    "data.inputs",
                    format!("{}, which is {also}", quote(&table.columns()[c])),
                    "columns that are nothing else",
                ));
            }
        }
        let mut seen = HashSet::new();
        if let Some(i) = (0..targets.len()).find(|&i| !seen.insert(targets[i])) {
            return Err(Error::invalid(
                "data.targets",
                format!("{} twice", quote(&spec.targets[i])),
                "each column once",
            ));
        }
        if inputs.is_empty() {
            return Err(Error::invalid(
                "data.inputs",
                "no column that isn't a target, ignored or the weights",
                "at least one",
            ));
        }
        for name in &spec.categories {
            let c = table.column(name)?;
            if known[c] != Some("an input already") {
                return Err(Error::invalid(
                    "data.categories",
                    format!("{}, which is not an input", quote(name)),
                    "input columns",
                ));
            }
        }
        Ok(Roles {
            inputs,
            targets,
            weights,
        })
    }

    fn all(&self) -> impl Iterator<Item = usize> + '_ {
        let inputs = self.inputs.iter().chain(&self.targets);
        inputs.chain(&self.weights).copied()
    }
}

/// The rows that can be used: all, or those without missing cells in the used columns where the
/// rule is to drop them.
fn complete_rows(table: &Table, used: &[usize], missing: Missing) -> Result<Vec<usize>> {
    let complete = |row: &usize| !used.iter().any(|&c| table.is_missing(*row, c));
    let rows = 0..table.rows();
    if missing != Missing::Drop {
        return Ok(rows.collect());
    }
    let rows: Vec<usize> = rows.filter(complete).collect();
    if rows.is_empty() {
        return Err(Error::file(
            table.path(),
            format!("all {} rows", table.rows()),
            "every one has a missing value and was dropped, needs at least one that has none",
        ));
    }
    Ok(rows)
}

/// The rows of a training table that can be used.
pub(crate) fn training_rows(spec: &DataSpec, table: &Table) -> Result<Vec<usize>> {
    let roles = Roles::of(spec, table)?;
    let used: Vec<usize> = roles.all().collect();
    complete_rows(table, &used, spec.missing)
}

/// Whether those columns are classes rather than numbers.
fn is_classification(spec: &DataSpec, table: &Table, targets: &[usize], usable: &[usize]) -> bool {
    let text = |&c: &usize| table.kind(c, usable.iter().copied()) == Kind::Text;
    match spec.task {
        Some(task) => task == TaskKind::Classification,
        None => spec.classes.is_some() || targets.iter().any(text),
    }
}

/// The class of every usable sample, numbered as they come; none where numbers are to be predicted.
pub(crate) fn sample_classes(
    spec: &DataSpec,
    source: &Source,
    usable: &[usize],
) -> Result<Option<Vec<u32>>> {
    let mut numbers = HashMap::new();
    let mut number = |class: String| {
        let next = numbers.len() as u32;
        *numbers.entry(class).or_insert(next)
    };
    match source {
        Source::Table(table) => {
            let roles = Roles::of(spec, table)?;
            let [c] = *roles.targets else {
                return Ok(None);
            };
            if !is_classification(spec, table, &roles.targets, usable) {
                return Ok(None);
            }
            // 1 and 1.0 are one class where all are numbers.
            let class = |&row: &usize| match table.reading().number(table.cell(row, c)) {
                Some(number) => (number + 0.0).to_string(),
                None => table.cell(row, c).to_string(),
            };
            Ok(Some(usable.iter().map(|row| number(class(row))).collect()))
        }
        Source::Arrays(arrays) => {
            let Some(y) = arrays.class_numbers(spec) else {
                return Ok(None);
            };
            let class = |&sample: &usize| number(y.get(sample).to_string());
            Ok(Some(usable.iter().map(class).collect()))
        }
    }
}

impl Preparation {
    /// Learns from the training rows of a table (categories and classes from all usable rows). With
    /// `survey` the statistics of numbers are those of its rows: enough to know a shape by.
    pub(crate) fn fit_table(
        spec: &DataSpec,
        table: &Table,
        usable: &[usize],
        training: &[usize],
        survey: Option<Survey<'_>>,
    ) -> Result<Self> {
        let roles = Roles::of(spec, table)?;
        let categories: HashSet<&String> = spec.categories.iter().collect();
        let mut fitted: Vec<Option<Result<Column>>> = vec![];
        fitted.resize_with(roles.inputs.len(), || None);
        let much = roles.inputs.len() * usable.len() > PARALLEL_CELLS;
        parallel::for_each_mut(&mut fitted, much, |i, column| {
            let c = roles.inputs[i];
            let category = categories.contains(&table.columns()[c]);
            let fit = Column::fit(spec, table, c, category, usable, training, survey);
            *column = Some(fit);
        });
        let columns: Vec<Column> = fitted.into_iter().flatten().collect::<Result<_>>()?;
        let target = fit_target(spec, table, &roles.targets, usable, training, survey)?;
        let width = columns.iter().map(|c| c.encoding.width()).sum();
        let preparation = Preparation {
            inputs: Inputs::Columns(columns),
            sample_shape: spec.shape.clone().unwrap_or_else(|| vec![width]),
            target,
            weights: spec.weights.clone(),
            missing: spec.missing,
            unknown: spec.unknown,
            reading: table.reading().clone(),
        };
        preparation.check()?;
        Ok(preparation)
    }

    /// Whether a table has every target column.
    pub(super) fn table_has_targets(&self, table: &Table) -> bool {
        self.target_names()
            .iter()
            .all(|name| table.columns().contains(name))
    }

    fn target_names(&self) -> &[String] {
        match &self.target {
            TargetRule::Values { names, .. } => names,
            TargetRule::Classes { name, .. } => std::slice::from_ref(name),
        }
    }

    /// The rows of another table that can be used.
    pub(crate) fn usable_rows(&self, table: &Table, with_targets: bool) -> Result<Vec<usize>> {
        let Inputs::Columns(columns) = &self.inputs else {
            return Ok((0..table.rows()).collect());
        };
        let mut used = Vec::new();
        for column in columns {
            used.push(table.column(&column.name)?);
        }
        if with_targets {
            for name in self.target_names() {
                used.push(table.column(name)?);
            }
        }
        complete_rows(table, &used, self.missing)
    }

    /// The samples of those of the rows whose targets are written down, and which ones they are. A
    /// row without a target is one to be predicted.
    pub(super) fn known_rows(
        &self,
        table: &Table,
        rows: &[usize],
    ) -> Result<Option<(Dataset, Vec<usize>)>> {
        if !self.table_has_targets(table) {
            return Ok(None);
        }
        let names = self.target_names().iter();
        let columns: Vec<usize> = names.map(|n| table.column(n)).collect::<Result<_>>()?;
        let classes = match &self.target {
            TargetRule::Classes { labels, .. } => Some((labels, labels.index())),
            TargetRule::Values { .. } => None,
        };
        // A class that training did not see can't be predicted, nor measured.
        let learnt = |row: usize, c: usize| match &classes {
            Some((labels, index)) => find(labels, index, table, row, c).is_ok(),
            None => true,
        };
        let written = |&i: &usize| {
            let mut columns = columns.iter();
            columns.all(|&c| !table.is_missing(rows[i], c) && learnt(rows[i], c))
        };
        let known: Vec<usize> = (0..rows.len()).filter(written).collect();
        if known.is_empty() {
            return Ok(None);
        }
        let rows: Vec<usize> = known.iter().map(|&i| rows[i]).collect();
        Ok(Some((self.apply_table(table, &rows, true)?, known)))
    }

    /// The samples of those rows, with targets and weights if asked for.
    pub(crate) fn apply_table(
        &self,
        table: &Table,
        rows: &[usize],
        with_targets: bool,
    ) -> Result<Dataset> {
        let Inputs::Columns(columns) = &self.inputs else {
            return Err(Error::file(
                table.path(),
                "format",
                "got a table, needs an array as in training",
            ));
        };
        let width: usize = columns.iter().map(|c| c.encoding.width()).sum();
        // A category has a column for each of its words.
        let sizes = [("columns after categories are encoded", width as u64)];
        let demand = Demand::of(sizes, |[width]| product([rows.len() as u64, width, 4]));
        budget::allow(&demand).map_err(|e| Error::file(table.path(), "inputs", e))?;
        let mut inputs = vec![0.0; rows.len() * width];
        let numbers: Vec<usize> = columns
            .iter()
            .map(|column| table.column(&column.name))
            .collect::<Result<_>>()?;
        encode_rows(self, table, &numbers, rows, &mut inputs)?;
        let data = Dataset::new(self.sample_shape.clone(), inputs)?;
        match with_targets {
            true => self.with_targets(table, rows, data),
            false => Ok(data),
        }
    }

    /// The samples with their rows' targets and weights.
    fn with_targets(&self, table: &Table, rows: &[usize], data: Dataset) -> Result<Dataset> {
        let data = match &self.target {
            TargetRule::Values {
                names,
                shape,
                scaling,
            } => {
                let columns: Vec<usize> = names
                    .iter()
                    .map(|n| table.column(n))
                    .collect::<Result<_>>()?;
                let mut values = Vec::with_capacity(rows.len() * columns.len());
                for &row in rows {
                    for (i, &c) in columns.iter().enumerate() {
                        let value = table
                            .number(row, c)?
                            .ok_or_else(|| missing_cell(table, row, c, "a number", false))?;
                        let value = scaling.apply(i, columns.len(), value);
                        values.push(narrow(table, row, c, value)?);
                    }
                }
                data.with_values(shape.clone(), values)?
            }
            TargetRule::Classes { name, labels } => {
                let c = table.column(name)?;
                let index = labels.index();
                let class = |&row: &usize| {
                    if table.is_missing(row, c) {
                        return Err(missing_cell(table, row, c, "a class", false));
                    }
                    find(labels, &index, table, row, c)
                };
                let classes = rows.iter().map(class).collect::<Result<_>>()?;
                data.with_classes(labels.names.len(), classes)?
            }
        };
        match &self.weights {
            None => Ok(data),
            Some(name) => {
                let c = table.column(name)?;
                let weight = |&row: &usize| {
                    let value = table.number(row, c)?;
                    let value =
                        value.ok_or_else(|| missing_cell(table, row, c, "a weight", false))?;
                    if value < 0.0 {
                        return Err(table.bad_cell(row, c, "a weight of at least 0"));
                    }
                    narrow(table, row, c, value)
                };
                data.with_weights(rows.iter().map(weight).collect::<Result<_>>()?)
            }
        }
    }
}

fn fit_target(
    spec: &DataSpec,
    table: &Table,
    targets: &[usize],
    usable: &[usize],
    training: &[usize],
    survey: Option<Survey<'_>>,
) -> Result<TargetRule> {
    if is_classification(spec, table, targets, usable) {
        let [c] = targets else {
            return Err(Error::invalid(
                "data.targets",
                format!("{} columns", targets.len()),
                "one column of classes for a classification",
            ));
        };
        if let Some(&row) = usable.iter().find(|&&row| table.is_missing(row, *c)) {
            return Err(missing_cell(table, row, *c, "a class", false));
        }
        // Each text once: there are few, in many rows.
        let texts: Words<'_> = usable.iter().map(|&row| table.cell(row, *c)).collect();
        let labels = fit_classes(spec, texts.iter().copied(), table.reading())?;
        return Ok(TargetRule::Classes {
            name: table.columns()[*c].clone(),
            labels,
        });
    }
    let mut columns = Vec::new();
    for &c in targets {
        // Where all cells are known to be finite numbers, some tell enough of them.
        let known = |survey: &Survey<'_>| {
            let summary = &survey.columns[c];
            let finite = summary
                .range
                .is_some_and(|(a, b)| a.is_finite() && b.is_finite());
            summary.kind == Kind::Numbers && summary.missing == 0 && finite
        };
        let rows = survey.filter(known).map_or(training, |survey| survey.some);
        let mut values = Vec::with_capacity(rows.len());
        for &row in rows {
            let value = table.number(row, c)?;
            values.push(value.ok_or_else(|| missing_cell(table, row, c, "a number", false))?);
        }
        columns.push(values);
    }
    let scaling = Scaling::fit(spec.normalise_targets, targets.len(), |i| {
        Box::new(columns[i].iter().copied())
    });
    Ok(TargetRule::Values {
        names: targets
            .iter()
            .map(|&c| table.columns()[c].clone())
            .collect(),
        shape: vec![targets.len()],
        scaling,
    })
}

/// The classes: as given, or as found.
pub(super) fn fit_classes<'a>(
    spec: &DataSpec,
    texts: impl Iterator<Item = &'a str> + Clone,
    reading: &crate::data::csv::Reading,
) -> Result<Labels> {
    let labels = match &spec.classes {
        Some(given) => {
            let found = Labels::fit(given.iter().map(String::as_str), reading);
            if found.names.len() != given.len() {
                return Err(Error::invalid(
                    "data.classes",
                    format!("{given:?}"),
                    "each class once",
                ));
            }
            // In the order given, in the form in which data is looked up.
            let names = given
                .iter()
                .map(|g| found.canonical(g, reading).into_owned());
            Labels {
                names: names.collect(),
                numeric: found.numeric,
            }
        }
        None => Labels::fit(texts, reading),
    };
    // The same limit as for categories: a number column taken for classes is the usual slip.
    let count = labels.names.len();
    if count < 2 || count > spec.max_categories {
        return Err(Error::invalid(
            "the classes of data.targets",
            format!("{count} different values"),
            format!(
                "2 to {} (`max_categories`); numbers to predict need task = \"regression\"",
                spec.max_categories
            ),
        ));
    }
    Ok(labels)
}
