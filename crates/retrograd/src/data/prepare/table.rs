//! Columns of a table as inputs, targets and weights.

use std::collections::HashSet;

use super::{
    Column, Encoding, Inputs, Labels, Missing, Preparation, Scaling, TargetRule, TaskKind,
    most_frequent,
};
use crate::budget::{self, Demand, product};
use crate::data::csv::{Kind, Table};
use crate::data::files::{list, quote};
use crate::data::{DataSpec, Dataset};
use crate::{Error, Result};

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
        // What each column is; a target is nothing else, whatever else is said of it.
        let mut known = vec![None; table.columns().len()];
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

/// The advice that goes with a missing cell.
fn missing_cell(table: &Table, row: usize, column: usize, what: &str, fillable: bool) -> Error {
    let rules = if fillable {
        "\"mean\" or \"drop\""
    } else {
        "\"drop\""
    };
    let needed = format!("{what}; missing = {rules} would accept it");
    table.bad_cell(row, column, &needed)
}

impl Preparation {
    /// Learns from the training rows of a table (categories and classes from all usable rows).
    pub(crate) fn fit_table(
        spec: &DataSpec,
        table: &Table,
        usable: &[usize],
        training: &[usize],
    ) -> Result<Self> {
        let roles = Roles::of(spec, table)?;
        let mut columns = Vec::new();
        let categories: HashSet<&String> = spec.categories.iter().collect();
        for &c in &roles.inputs {
            let name = table.columns()[c].clone();
            let encoding = if categories.contains(&name) {
                fit_category(spec, table, c, usable, training)?
            } else {
                match table.kind(c, usable.iter().copied()) {
                    Kind::Numbers => fit_number(spec, table, c, training)?,
                    Kind::Text => fit_category(spec, table, c, usable, training)?,
                    Kind::Mixed { text_row, .. } => return Err(mixed(table, text_row, c)),
                    Kind::Empty => {
                        return Err(Error::file(
                            table.path(),
                            format!("column {}", quote(&name)),
                            "no row has a value, needs some; or put it into `ignore`",
                        ));
                    }
                }
            };
            columns.push(Column { name, encoding });
        }
        let target = fit_target(spec, table, &roles.targets, usable, training)?;
        let width = columns.iter().map(|c| c.encoding.width()).sum();
        let preparation = Preparation {
            inputs: Inputs::Columns(columns),
            sample_shape: spec.shape.clone().unwrap_or_else(|| vec![width]),
            target,
            weights: spec.weights.clone(),
            missing: spec.missing,
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
        let written = |&i: &usize| !columns.iter().any(|&c| table.is_missing(rows[i], c));
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
        let mut first = 0;
        for column in columns {
            let c = table.column(&column.name)?;
            let into = inputs.chunks_exact_mut(width).zip(rows);
            match &column.encoding {
                Encoding::Number { fill, scaling } => {
                    for (sample, &row) in into {
                        let value = match (table.number(row, c)?, fill) {
                            (Some(value), _) => value,
                            (None, Some(mean)) => *mean,
                            (None, None) => {
                                return Err(missing_cell(table, row, c, "a number", true));
                            }
                        };
                        sample[first] = narrow(table, row, c, scaling.apply(0, 1, value))?;
                    }
                }
                Encoding::Category { fill, labels } => {
                    let index = labels.index();
                    for (sample, &row) in into {
                        let category = match (table.is_missing(row, c), fill) {
                            (false, _) => find(labels, &index, table, row, c)?,
                            (true, Some(most)) => *most,
                            (true, None) => {
                                return Err(missing_cell(table, row, c, "a category", true));
                            }
                        };
                        sample[first + category as usize] = 1.0;
                    }
                }
            }
            first += column.encoding.width();
        }
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

/// The value as f32; an error where it is too large for one.
fn narrow(table: &Table, row: usize, column: usize, value: f64) -> Result<f32> {
    let narrow = value as f32;
    if narrow.is_finite() {
        return Ok(narrow);
    }
    let needed = "a number below 3.4e38 in magnitude (after the normalisation, if any)";
    Err(table.bad_cell(row, column, needed))
}

fn find(
    labels: &Labels,
    index: &std::collections::HashMap<&str, u32>,
    table: &Table,
    row: usize,
    column: usize,
) -> Result<u32> {
    let cell = table.cell(row, column);
    let found = index.get(&*labels.canonical(cell, table.reading()));
    found
        .copied()
        .ok_or_else(|| Error::file(table.path(), table.place(row, column), labels.unknown(cell)))
}

/// A column of numbers and text, which is more often a slip than meant.
fn mixed(table: &Table, text_row: usize, column: usize) -> Error {
    let cell = table.cell(text_row, column);
    let comma = table.reading().decimal == '.' && cell.replacen(',', ".", 1).parse::<f64>().is_ok();
    let needed = if comma {
        "a number as other rows have; if the comma is a decimal mark, set `decimal = \",\"`"
    } else {
        "a number as other rows have; or the column's name in `categories`, or this text in `missing_values`"
    };
    table.bad_cell(text_row, column, needed)
}

fn fit_number(spec: &DataSpec, table: &Table, c: usize, training: &[usize]) -> Result<Encoding> {
    let mut values = Vec::with_capacity(training.len());
    for &row in training {
        match table.number(row, c)? {
            Some(value) => values.push(value),
            None if spec.missing == Missing::Mean => {}
            None => return Err(missing_cell(table, row, c, "a number", true)),
        }
    }
    if values.is_empty() {
        return Err(Error::file(
            table.path(),
            format!("column {}", quote(&table.columns()[c])),
            "no row of the training part has a value, needs some; or put it into `ignore`",
        ));
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let fill = (spec.missing == Missing::Mean).then_some(mean);
    let scaling = Scaling::fit(spec.normalise, 1, |_| Box::new(values.iter().copied()));
    Ok(Encoding::Number { fill, scaling })
}

fn fit_category(
    spec: &DataSpec,
    table: &Table,
    c: usize,
    usable: &[usize],
    training: &[usize],
) -> Result<Encoding> {
    // One pass for the numbers with a comma that only look like words.
    if let Some(&row) = usable.iter().find(|&&row| decimal_comma(table, row, c))
        && !spec.categories.contains(&table.columns()[c])
    {
        return Err(mixed(table, row, c));
    }
    let present = |rows: &[usize]| -> Vec<usize> {
        let rows = rows.iter().copied();
        rows.filter(|&row| !table.is_missing(row, c)).collect()
    };
    let all = present(usable);
    let labels = Labels::fit(all.iter().map(|&row| table.cell(row, c)), table.reading());
    let count = labels.names.len();
    if count == 0 || count > spec.max_categories {
        return Err(Error::file(
            table.path(),
            format!("column {}", quote(&table.columns()[c])),
            format!(
                "got {count} categories, needs 1 to {}; put it into `ignore`, or raise `max_categories`",
                spec.max_categories
            ),
        ));
    }
    let fill = if spec.missing == Missing::Mean {
        let index = labels.index();
        let seen: Vec<u32> = present(training)
            .iter()
            .map(|&row| find(&labels, &index, table, row, c))
            .collect::<Result<_>>()?;
        most_frequent(seen.into_iter())
    } else {
        None
    };
    Ok(Encoding::Category { fill, labels })
}

/// Whether a cell is a number with a decimal comma where the mark is a point.
fn decimal_comma(table: &Table, row: usize, c: usize) -> bool {
    let cell = table.cell(row, c);
    table.reading().decimal == '.'
        && cell.contains(',')
        && cell.replacen(',', ".", 1).parse::<f64>().is_ok()
}

fn fit_target(
    spec: &DataSpec,
    table: &Table,
    targets: &[usize],
    usable: &[usize],
    training: &[usize],
) -> Result<TargetRule> {
    let kinds = targets
        .iter()
        .map(|&c| table.kind(c, usable.iter().copied()));
    let text = kinds.clone().any(|k| k == Kind::Text);
    let task = match spec.task {
        Some(task) => task,
        None if text || spec.classes.is_some() => TaskKind::Classification,
        None => TaskKind::Regression,
    };
    if task == TaskKind::Classification {
        let [c] = targets else {
            return Err(Error::invalid(
                "data.targets",
                format!("{} columns", targets.len()),
                "one column of classes for a classification",
            ));
        };
        let present: Vec<usize> = usable
            .iter()
            .copied()
            .filter(|&row| !table.is_missing(row, *c))
            .collect();
        if let Some(&row) = usable.iter().find(|&&row| table.is_missing(row, *c)) {
            return Err(missing_cell(table, row, *c, "a class", false));
        }
        let texts = present.iter().map(|&row| table.cell(row, *c));
        let labels = fit_classes(spec, texts, table.reading())?;
        return Ok(TargetRule::Classes {
            name: table.columns()[*c].clone(),
            labels,
        });
    }
    let mut columns = Vec::new();
    for &c in targets {
        let mut values = Vec::with_capacity(training.len());
        for &row in training {
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
