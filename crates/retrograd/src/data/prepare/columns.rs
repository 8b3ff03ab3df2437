//! The columns of a table: what they hold, and how their cells become numbers.

use crate::math;
use std::collections::HashMap;

use super::{
    Column, Cycle, Encoding, Inputs, Labels, Missing, Normalise, Preparation, Scaling, Survey,
    Unknown, most_frequent,
};
use crate::data::DataSpec;
use crate::data::csv::{ByWord, Kind, Table};
use crate::data::dates::{DAY, DateForm};
use crate::data::files::quote;
use crate::{Error, Result, parallel};

/// Cells above which columns and rows are read on all threads: a tenth of a second's work.
pub(super) const PARALLEL_CELLS: usize = 1 << 21;

/// Rows that a thread encodes at a time.
const BLOCK: usize = 1024;

/// The advice that goes with a missing cell.
pub(super) fn missing_cell(
    table: &Table,
    row: usize,
    column: usize,
    what: &str,
    fillable: bool,
) -> Error {
    let rules = if fillable {
        "\"mean\" or \"drop\""
    } else {
        "\"drop\""
    };
    let needed = format!("{what}; missing = {rules} would accept it");
    table.bad_cell(row, column, &needed)
}

impl Column {
    /// Learns from the training rows of a column (categories from all usable rows; numbers from those
    /// of the survey where there is one).
    pub(super) fn fit(
        spec: &DataSpec,
        table: &Table,
        c: usize,
        category: bool,
        usable: &[usize],
        training: &[usize],
        survey: Option<Survey<'_>>,
    ) -> Result<Self> {
        let name = table.columns()[c].clone();
        let surveyed = |rows| Some((rows, numbers_of(table, c, rows).ok()?));
        let numbers = survey.and_then(|survey| surveyed(survey.some));
        let encoding = if category {
            fit_category(spec, table, c, usable, training)?
        } else if let Some((rows, cells)) = numbers {
            fit_number(spec, table, c, (rows, &cells), rows)?
        } else {
            let cells = match survey.map(|survey| survey.columns[c].kind) {
                Some(Kind::Text) => Err(Kind::Text),
                _ => numbers_of(table, c, usable),
            };
            match cells {
                Ok(cells) => fit_number(spec, table, c, (usable, &cells), training)?,
                Err(Kind::Text) => match date_form(table, c, usable) {
                    Some(form) => fit_date(spec, table, c, form, training)?,
                    None => fit_category(spec, table, c, usable, training)?,
                },
                Err(Kind::Mixed { text_row, .. }) => return Err(mixed(table, text_row, c)),
                Err(_) => {
                    return Err(Error::file(
                        table.path(),
                        format!("column {}", quote(&name)),
                        "no row has a value, needs some; or put it into `ignore`",
                    ));
                }
            }
        };
        Ok(Column { name, encoding })
    }

    /// What the cell of a row becomes.
    fn encode(
        &self,
        unknown: Unknown,
        index: &HashMap<&str, u32>,
        table: &Table,
        (row, c): (usize, usize),
        into: &mut [f32],
    ) -> Result<()> {
        match &self.encoding {
            Encoding::Number { fill, scaling } => {
                let value = match (table.number(row, c)?, fill) {
                    (Some(value), _) => value,
                    (None, Some(mean)) => *mean,
                    (None, None) => return Err(missing_cell(table, row, c, "a number", true)),
                };
                into[0] = narrow(table, row, c, scaling.apply(0, 1, value))?;
            }
            Encoding::Category { fill, labels } => {
                let category = match (table.is_missing(row, c), fill) {
                    (false, _) => match find(labels, index, table, row, c) {
                        Err(_) if unknown == Unknown::Ignore => return Ok(()),
                        found => found?,
                    },
                    (true, Some(most)) => *most,
                    (true, None) => return Err(missing_cell(table, row, c, "a category", true)),
                };
                into[category as usize] = 1.0;
            }
            Encoding::Date {
                form,
                fill,
                scaling,
                cycles,
            } => {
                let days = match (date(table, row, c, *form)?, fill) {
                    (Some(days), _) => days,
                    (None, Some(mean)) => *mean,
                    (None, None) => return Err(missing_cell(table, row, c, "a date", true)),
                };
                into[0] = narrow(table, row, c, scaling.apply(0, 1, days))?;
                let waves = cycles.iter().flat_map(|cycle| cycle.of(days));
                for (value, wave) in into[1..].iter_mut().zip(waves) {
                    *value = wave as f32;
                }
            }
        }
        Ok(())
    }
}

/// The inputs of those rows, one after the other. `numbers` says where the columns are.
pub(super) fn encode_rows(
    preparation: &Preparation,
    table: &Table,
    numbers: &[usize],
    rows: &[usize],
    inputs: &mut [f32],
) -> Result<()> {
    let Inputs::Columns(columns) = &preparation.inputs else {
        return Ok(());
    };
    let indices: Vec<HashMap<&str, u32>> = columns
        .iter()
        .map(|column| match &column.encoding {
            Encoding::Category { labels, .. } => labels.index(),
            _ => HashMap::new(),
        })
        .collect();
    let width: usize = columns.iter().map(|c| c.encoding.width()).sum();
    let block = |rows: &[usize], inputs: &mut [f32]| -> Result<()> {
        for (&row, sample) in rows.iter().zip(inputs.chunks_exact_mut(width)) {
            let mut first = 0;
            for ((column, &c), index) in columns.iter().zip(numbers).zip(&indices) {
                let into = &mut sample[first..first + column.encoding.width()];
                column.encode(preparation.unknown, index, table, (row, c), into)?;
                first += into.len();
            }
        }
        Ok(())
    };
    let blocks = rows
        .chunks(BLOCK)
        .zip(inputs.chunks_mut(BLOCK * width.max(1)));
    let mut blocks: Vec<_> = blocks
        .map(|(rows, inputs)| (rows, inputs, Ok(())))
        .collect();
    let much = rows.len() * columns.len() > PARALLEL_CELLS;
    parallel::for_each_mut(&mut blocks, much, |_, (rows, inputs, result)| {
        *result = block(rows, inputs);
    });
    blocks.into_iter().try_for_each(|(_, _, result)| result)
}

/// The numbers of a column's cells, NaN where one is missing; what the column is otherwise.
fn numbers_of(table: &Table, c: usize, rows: &[usize]) -> Result<Vec<f64>, Kind> {
    let mut values = Vec::with_capacity(rows.len());
    let mut any = false;
    for &row in rows {
        let cell = table.cell(row, c);
        let value = match table.reading().is_missing(cell) {
            true => f64::NAN,
            false => match table.reading().number(cell) {
                Some(value) => value,
                None => return Err(table.kind(c, rows.iter().copied())),
            },
        };
        any |= !value.is_nan();
        values.push(value);
    }
    if any { Ok(values) } else { Err(Kind::Empty) }
}

impl Preparation {
    /// Categories in those rows that training did not see, a sentence a column.
    pub(crate) fn unseen(&self, table: &Table, rows: &[usize]) -> Result<Vec<String>> {
        let mut sentences = Vec::new();
        let Inputs::Columns(columns) = &self.inputs else {
            return Ok(sentences);
        };
        for column in columns {
            let Encoding::Category { labels, .. } = &column.encoding else {
                continue;
            };
            let (c, index) = (table.column(&column.name)?, labels.index());
            let unseen = |&&row: &&usize| {
                !table.is_missing(row, c) && find(labels, &index, table, row, c).is_err()
            };
            let those: Vec<usize> = rows.iter().filter(unseen).copied().collect();
            if let Some(&first) = those.first() {
                sentences.push(format!(
                    "{} of {} rows have a {} that training did not see, such as {} ({}): taken as none of the known ones",
                    those.len(),
                    rows.len(),
                    quote(&column.name),
                    quote(table.cell(first, c)),
                    table.line(first),
                ));
            }
        }
        Ok(sentences)
    }
}

/// How a column of text is written where all of it are dates; a point in a table of categories that
/// the user names is none.
fn date_form(table: &Table, c: usize, rows: &[usize]) -> Option<DateForm> {
    let cells = rows.iter().map(|&row| table.cell(row, c));
    DateForm::of(cells.filter(|cell| !table.reading().is_missing(cell)))
}

/// A date in days since 1970; none where it is missing.
fn date(table: &Table, row: usize, c: usize, form: DateForm) -> Result<Option<f64>> {
    let cell = table.cell(row, c);
    if table.reading().is_missing(cell) {
        return Ok(None);
    }
    match form.seconds(cell) {
        Some(seconds) => Ok(Some(seconds / DAY)),
        None => {
            let needed = format!("a date as in training ({})", form.words());
            Err(table.bad_cell(row, c, &needed))
        }
    }
}

fn fit_date(
    spec: &DataSpec,
    table: &Table,
    c: usize,
    form: DateForm,
    training: &[usize],
) -> Result<Encoding> {
    let mut days = Vec::with_capacity(training.len());
    for &row in training {
        match date(table, row, c, form)? {
            Some(day) => days.push(day),
            None if spec.missing == Missing::Mean => {}
            None => return Err(missing_cell(table, row, c, "a date", true)),
        }
    }
    if days.is_empty() {
        return Err(Error::file(
            table.path(),
            format!("column {}", quote(&table.columns()[c])),
            "no row of the training part has a value, needs some; or put it into `ignore`",
        ));
    }
    let ends = (f64::INFINITY, f64::NEG_INFINITY);
    let (first, last) = days
        .iter()
        .fold(ends, |e, &d| (math::min(e.0, d), math::max(e.1, d)));
    // A cycle that the dates don't go through once is no more than the days themselves.
    let goes_through = |cycle: &Cycle| match cycle {
        Cycle::Day => form == DateForm::Clock || days.iter().any(|d| d.fract() != days[0].fract()),
        _ => form != DateForm::Clock && last - first >= cycle.days(),
    };
    let cycles = [Cycle::Day, Cycle::Week, Cycle::Year].into_iter();
    let mean = days.iter().sum::<f64>() / days.len() as f64;
    // Days since 1970 are far from 0 whatever is chosen for numbers.
    let normalise = match spec.normalise {
        Normalise::None => Normalise::Standard,
        chosen => chosen,
    };
    Ok(Encoding::Date {
        form,
        fill: (spec.missing == Missing::Mean).then_some(mean),
        scaling: Scaling::fit(normalise, 1, |_| Box::new(days.iter().copied())),
        cycles: cycles.filter(goes_through).collect(),
    })
}

/// The value as f32; an error where it is too large for one.
pub(super) fn narrow(table: &Table, row: usize, column: usize, value: f64) -> Result<f32> {
    let narrow = value as f32;
    if narrow.is_finite() {
        return Ok(narrow);
    }
    let needed = "a number below 3.4e38 in magnitude (after the normalisation, if any)";
    Err(table.bad_cell(row, column, needed))
}

pub(super) fn find(
    labels: &Labels,
    index: &HashMap<&str, u32>,
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

/// `cells` are those of all usable rows, not numbers where one is missing.
fn fit_number(
    spec: &DataSpec,
    table: &Table,
    c: usize,
    (usable, cells): (&[usize], &[f64]),
    training: &[usize],
) -> Result<Encoding> {
    let mut values = Vec::with_capacity(training.len());
    let mut place = 0;
    for &row in training {
        // Both are in the file's order.
        place += usable[place..].iter().position(|&u| u == row).unwrap_or(0);
        match cells[place] {
            value if value.is_finite() => values.push(value),
            value if value.is_infinite() => return Err(table.bad_cell(row, c, "a finite number")),
            _ if spec.missing == Missing::Mean => {}
            _ => return Err(missing_cell(table, row, c, "a number", true)),
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
    // One pass over the rows, which is what takes time; then each text once.
    let mut texts: ByWord<'_, usize> = ByWord::default();
    for &row in usable {
        texts.entry(table.cell(row, c)).or_insert(row);
    }
    // Numbers with a comma only look like words.
    let commas = texts.iter().filter(|(text, _)| decimal_comma(table, text));
    if let Some((_, &row)) = commas.min_by_key(|(_, row)| **row)
        && !spec.categories.contains(&table.columns()[c])
    {
        return Err(mixed(table, row, c));
    }
    let all = texts.keys().copied();
    let all: Vec<&str> = all
        .filter(|text| !table.reading().is_missing(text))
        .collect();
    let labels = Labels::fit(all.iter().copied(), table.reading());
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
        let present = training.iter().filter(|&&row| !table.is_missing(row, c));
        let seen: Vec<u32> = present
            .map(|&row| find(&labels, &index, table, row, c))
            .collect::<Result<_>>()?;
        most_frequent(seen.into_iter())
    } else {
        None
    };
    Ok(Encoding::Category { fill, labels })
}

/// Whether a cell is a number with a decimal comma where the mark is a point.
fn decimal_comma(table: &Table, cell: &str) -> bool {
    table.reading().decimal == '.'
        && cell.contains(',')
        && cell.replacen(',', ".", 1).parse::<f64>().is_ok()
}
