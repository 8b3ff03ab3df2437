//! An experiment for a table: what is predicted, from which columns, with how large a network.

use std::path::Path;

use super::survey::{Columns, Gaps, How, MAX_CATEGORIES, read};
use crate::data::csv::{ColumnSummary, Kind, Reading, Table};
use crate::data::prepare::TaskKind;
use crate::data::{self, DataSpec, Preparation};
use crate::family::draft::{
    Draft, InitOptions, Place, counted, list, quoted, remark, some, thousands,
};
use crate::train::NetworkTask;
use crate::{Error, Result};

/// More classes than this are taken for numbers.
const MAX_CLASSES: usize = 20;
/// Rows that a class has on average where whole numbers are taken for classes.
const ROWS_PER_CLASS: usize = 10;
/// Fewer rows teach nothing that could be measured.
const FEWEST_ROWS: usize = 10;

/// Looks at a table and drafts its experiment. Every file that isn't a graph is taken for a table.
pub(super) fn draft(options: &InitOptions, place: &Place) -> Result<Option<Draft>> {
    let graph = options.links || options.features.is_some() || options.labels.is_some();
    if options.data.is_dir() || graph || crate::graph::takes(&options.data) {
        return Ok(None);
    }
    if options.bin.is_some() {
        let problem = format!("{} is no folder of images", options.data.display());
        return Err(Error::refused("--bin", problem));
    }
    let target = options.target.as_deref();
    table(&options.data, target, options, place).map(Some)
}

fn table(path: &Path, target: Option<&str>, options: &InitOptions, place: &Place) -> Result<Draft> {
    let task = options.task;
    let (table, survey, how) = read(path, target)?;
    let Some(target) = target else {
        let columns = table.columns().iter().map(String::as_str);
        let problem = format!(
            "{} needs --target COLUMN, the column to predict: one of {}; or --features and \
             --labels if it is a list of edges",
            path.display(),
            some(columns)
        );
        return Err(Error::refused("init", problem));
    };
    let target_column = table.column(target)?;
    if table.rows() < FEWEST_ROWS {
        return Err(Error::invalid(
            path.display().to_string(),
            counted(table.rows(), "row"),
            format!("at least {FEWEST_ROWS} to train and validate on"),
        ));
    }
    let (task, why) = what_is_predicted(&table, &survey[target_column], target_column, task)?;
    let columns = Columns::of(&table, &survey, target_column);
    if columns.used.is_empty() {
        let reasons = columns.reasons().join("; ");
        return Err(Error::refused(
            path.display(),
            format!("no column is left to predict {target:?} from: {reasons}"),
        ));
    }
    let missing = Gaps::of(&table, &survey, target_column, &columns.used);
    let mut parts = Parts {
        place,
        path,
        file: place.relative(path)?,
        target,
        task,
        why: &why,
        how: &how,
        columns: &columns,
        gaps: &missing,
        kan: options.kan,
        shape: Shape::new(1, 1, table.rows()),
    };
    // Prepared as the experiment will be: the number of inputs and outputs is what comes out.
    let spec: DataSpec = place.experiment(&parts.text())?.data_as()?;
    let (preparation, rows, table) = spec.fit(table, &survey, 0)?;
    parts.shape = Shape::new(
        preparation.sample_shape.iter().product(),
        preparation.outputs(),
        rows.train.len(),
    );
    let text = parts.text();
    NetworkTask::check(&place.experiment(&text)?, &preparation)?;
    let findings = parts.findings(&table, &preparation, &rows);
    Ok(Draft {
        text,
        findings,
        inputs: "NEW.csv --out predictions.csv".into(),
    })
}

/// Numbers or classes, and why.
fn what_is_predicted(
    table: &Table,
    summary: &ColumnSummary,
    column: usize,
    asked: Option<TaskKind>,
) -> Result<(TaskKind, String)> {
    let name = &table.columns()[column];
    let column_of = format!("{}: column {name:?}", table.path().display());
    if summary.distinct < 2 {
        return Err(Error::invalid(
            column_of,
            counted(summary.distinct, "value"),
            "at least 2 different values to tell apart",
        ));
    }
    let present = table.rows() - summary.missing;
    let values = counted(summary.distinct, "different value");
    if let Some(task) = asked {
        return Ok((task, format!("as --task says; {values}")));
    }
    let classes = |why: String| Ok((TaskKind::Classification, why));
    let numbers = |why: String| Ok((TaskKind::Regression, why));
    let range = summary.range.unwrap_or_default();
    match summary.kind {
        Kind::Empty => Err(Error::refused(column_of, "no row has a value")),
        Kind::Text | Kind::Mixed { .. } => {
            if summary.distinct > MAX_CATEGORIES || summary.distinct * 2 > present {
                return Err(Error::invalid(
                    column_of,
                    format!("{values} of text in {}", counted(present, "row")),
                    "numbers, or classes that many rows share",
                ));
            }
            let kind = match summary.kind {
                Kind::Text => "text",
                _ => "text and numbers",
            };
            classes(format!("it holds {kind}, {values}"))
        }
        Kind::Numbers if summary.distinct == 2 => {
            classes(format!("it holds two values, {} and {}", range.0, range.1))
        }
        Kind::Numbers => {
            let whole = (0..table.rows())
                .filter_map(|row| table.reading().number(table.cell(row, column)))
                .all(|v| v.fract() == 0.0);
            let counting =
                [0.0, 1.0].contains(&range.0) && range.1 - range.0 + 1.0 == summary.distinct as f64;
            let few =
                summary.distinct <= MAX_CLASSES && summary.distinct * ROWS_PER_CLASS <= present;
            if whole && counting && few {
                return classes(format!(
                    "it holds the whole numbers {} to {}, each of them often (--task regression \
                     takes them as numbers)",
                    range.0, range.1
                ));
            }
            numbers(format!("it holds {values} from {} to {}", range.0, range.1))
        }
    }
}

/// The sizes that follow from the data.
struct Shape {
    inputs: usize,
    outputs: usize,
    rows: usize,
    hidden: Vec<usize>,
    batch: usize,
    epochs: usize,
    /// The rate, and the decay of the weights.
    rate: &'static str,
    decay: &'static str,
}

/// Inputs from which on narrow layers lose what tells classes apart.
const MANY_INPUTS: usize = 33;

impl Shape {
    /// A network that some rows can teach: the more rows, the wider. Some four thousand steps are
    /// enough for all of these, and take seconds. Few rows are learnt by heart long before that, so
    /// that weights are held back by a strong decay. Chosen on parts of the training rows of public
    /// tables and on generated ones (docs/tables.md says how, and what came of it).
    fn new(inputs: usize, outputs: usize, rows: usize) -> Self {
        let (hidden, batch, rate) = match rows {
            0..200 => (vec![64], 16, "2e-3"),
            200..2_000 if inputs >= MANY_INPUTS => (vec![128, 128], 32, "2e-3"),
            200..2_000 => (vec![32, 32], 32, "5e-3"),
            2_000..20_000 => (vec![64, 64], 64, "5e-3"),
            _ => (vec![128, 128], 256, "5e-3"),
        };
        let steps = rows.div_ceil(batch).max(1);
        Shape {
            inputs,
            outputs,
            rows,
            hidden,
            batch,
            epochs: (4_000 / steps).clamp(10, 300),
            rate,
            decay: match rows {
                0..2_000 => "0.3",
                _ => "1e-2",
            },
        }
    }

    fn parameters(&self) -> usize {
        let widths: Vec<usize> = std::iter::once(self.inputs)
            .chain(self.hidden.iter().copied())
            .chain([self.outputs])
            .collect();
        widths.windows(2).map(|w| (w[0] + 1) * w[1]).sum()
    }

    fn sentence(&self) -> String {
        let widths = self.hidden.iter().map(|h| h.to_string());
        format!(
            "{}-{}-{}, {} parameters for {} training rows",
            self.inputs,
            widths.collect::<Vec<_>>().join("-"),
            self.outputs,
            thousands(self.parameters()),
            thousands(self.rows)
        )
    }
}

/// All that the file says.
struct Parts<'a> {
    place: &'a Place,
    path: &'a Path,
    file: String,
    target: &'a str,
    task: TaskKind,
    why: &'a str,
    how: &'a How,
    columns: &'a Columns,
    gaps: &'a Gaps,
    /// Whether layers are those of a KAN.
    kan: bool,
    shape: Shape,
}

impl Parts<'_> {
    /// What was seen in the table and what was chosen.
    fn findings(
        &self,
        table: &Table,
        preparation: &Preparation,
        rows: &data::split::Parts,
    ) -> Vec<(&'static str, String)> {
        let mut findings = vec![(
            "table",
            format!(
                "{}, {}, separated by {}",
                counted(table.rows(), "row"),
                counted(table.columns().len(), "column"),
                separator_name(table.separator())
            ),
        )];
        findings.extend(self.how.notes.iter().map(|note| ("reading", note.clone())));
        let word = match self.task {
            TaskKind::Regression => "a number (regression)",
            TaskKind::Classification => "a class (classification)",
        };
        findings.push(("predicts", format!("{}, {word}: {}", self.target, self.why)));
        let few = few_rows(table, self.target, preparation, &rows.train);
        if !few.is_empty() {
            let text = format!(
                "fewer than 5 training rows for {}",
                some(few.iter().map(String::as_str))
            );
            findings.push(("note", text));
        }
        let inputs = self
            .columns
            .used
            .iter()
            .map(|&c| table.columns()[c].as_str());
        let width = self.shape.inputs;
        findings.push((
            "from",
            format!(
                "{} ({}: {})",
                counted(width, "input"),
                counted(self.columns.used.len(), "column"),
                some(inputs)
            ),
        ));
        findings.extend(self.columns.dates.iter().map(|(name, form)| {
            let text = format!(
                "{name}: {}; as days, and their place in its cycles",
                form.words()
            );
            ("dates", text)
        }));
        let reasons = self.columns.reasons();
        findings.extend(reasons.into_iter().map(|reason| ("left out", reason)));
        if let Some((_, why)) = self.gaps.rule() {
            findings.push(("missing", why));
        }
        let parts = format!(
            "{} to train, {} that choose the epoch, {} for the figures that are reported",
            thousands(rows.train.len()),
            thousands(rows.validation.len()),
            thousands(rows.test.len())
        );
        findings.push(("rows", parts));
        findings.push(match self.kan {
            true => ("network", "Kolmogorov-Arnold, for a formula".to_string()),
            false => ("network", self.shape.sentence()),
        });
        findings
    }

    fn text(&self) -> String {
        let Parts { place, shape, .. } = self;
        let base = self.path.file_name().unwrap_or_default().to_string_lossy();
        let about = format!(
            "{base}: {} from {}",
            self.target,
            counted(self.columns.used.len(), "column")
        );
        let mut layers = String::new();
        for width in &shape.hidden {
            layers +=
                &format!("  {{ kind = \"dense\", out = {width} }},\n  {{ kind = \"silu\" }},\n");
        }
        let outputs = match self.task {
            TaskKind::Regression => "the number to predict",
            TaskKind::Classification => "one for every class",
        };
        layers += &format!(
            "  {{ kind = \"dense\", out = {} }},  # {outputs}\n",
            shape.outputs
        );
        let kan = |mark: &str, out: usize| {
            format!(
                "{mark}  {{ kind = \"kan\", out = {out}, grid = 5, degree = 3, range = [-3.0, 3.0] }},\n"
            )
        };
        let hidden = shape.inputs.clamp(1, 5);
        let model = match self.kan {
            true => format!(
                "# A Kolmogorov-Arnold network: functions of one input each, added. retrograd explain\n\
                 # runs/{} says its formula. sparsity asks for few, clear functions.\n\
                 layers = [\n{}{}]\n\
                 sparsity = {{ l1 = 1e-3, entropy = 1e-3 }}\n",
                place.name,
                kan("", hidden),
                kan("", shape.outputs)
            ),
            false => format!(
                "# {}.\n\
                 # Wider layers can learn more, and learn the noise sooner.\n\
                 layers = [\n{layers}]\n\
                 # A Kolmogorov-Arnold network instead (init --kan), whose functions the report draws:\n\
                 # layers = [\n{}{}# ]\n",
                shape.sentence(),
                kan("# ", 8),
                kan("# ", shape.outputs)
            ),
        };
        format!(
            "# Written by retrograd init. Change what you like; every setting that is not here has\n\
             # its default.\n\
             #\n\
             #   retrograd train {file}\n\
             #   retrograd run runs/{name} NEW.csv --out predictions.csv\n\
             \n\
             name = {quoted_name}\n\
             about = {about}\n\
             \n\
             [model]\n\
             family = \"network\"\n\
             {model}\
             \n\
             [data]\n{data}\
             \n\
             [train]\n\
             epochs = {epochs}        # of some {steps} steps each; the best epoch's weights are kept\n\
             batch = {batch}\n\
             optimizer = {{ kind = \"adamw\", lr = {rate}, weight_decay = {decay} }}\n\
             schedule = {{ kind = \"cosine\" }}\n\
             # early_stopping = 20   # epochs without a better figure\n\
             # seed = 0              # of the split, the first weights and the order of the rows\n",
            file = remark(&place.file.display().to_string()),
            name = place.name,
            quoted_name = quoted(&place.name),
            about = quoted(&about),
            data = self.data(),
            epochs = shape.epochs,
            rate = if self.kan { "5e-3" } else { shape.rate },
            decay = if self.kan { "1e-2" } else { shape.decay },
            steps = shape.rows.div_ceil(shape.batch.max(1)),
            batch = shape.batch.max(1),
        )
    }

    fn data(&self) -> String {
        let mut text = format!("file = {}\n", quoted(&self.file));
        if !self.how.header {
            text += "header = false          # the first line is data\n";
        }
        if self.how.decimal_comma {
            text += "decimal = \",\"\n";
        }
        if !self.how.placeholders.is_empty() {
            let words = Reading::default().missing_values;
            let words = words.iter().chain(&self.how.placeholders);
            let words = list(words.map(String::as_str));
            text += &format!("missing_values = {words}\n");
        }
        let (task, word) = match self.task {
            TaskKind::Regression => ("regression", "number"),
            TaskKind::Classification => ("classification", "class"),
        };
        text += &format!(
            "# The {word} to predict: {}.\ntargets = {}\ntask = \"{task}\"\n",
            self.why
                .replace(" (--task regression takes them as numbers)", ""),
            quoted(self.target)
        );
        if self.columns.ignored.is_empty() {
            text += "# ignore = [\"a column\"]  # all others are inputs\n";
        } else {
            for (name, why) in &self.columns.ignored {
                text += &format!("# {}: {why}\n", remark(name));
            }
            let names = self.columns.ignored.iter().map(|(name, _)| name.as_str());
            text += &format!("ignore = {}\n", list(names));
        }
        if !self.columns.categories.is_empty() {
            text += "# Columns of text and numbers, every value a category.\n";
            let names = self.columns.categories.iter().map(String::as_str);
            text += &format!("categories = {}\n", list(names));
        }
        match self.gaps.rule() {
            Some((rule, why)) => text += &format!("# {why}.\nmissing = \"{rule}\"\n"),
            None => {
                text += "# missing = \"mean\"      # no cell is empty; in new data one would be an error\n"
            }
        }
        text += "test = 0.2              # rows for the figures that are reported: they neither teach nor choose\n\
                 validation = 0.2        # of the others: they choose the epoch whose weights are kept\n\
                 # group = \"COLUMN\"      # keeps rows of one patient, one day … on one side\n\
                 # time = \"COLUMN\"       # measures on the latest rows\n\
                 normalise = \"standard\"  # inputs to mean 0 and deviation 1; new data alike\n";
        if self.task == TaskKind::Regression {
            text += "normalise_targets = \"standard\"  # predictions come back in the column's own units\n";
        }
        text
    }
}

/// The classes with fewer than five training rows.
fn few_rows(table: &Table, target: &str, preparation: &Preparation, rows: &[usize]) -> Vec<String> {
    const FEW: usize = 5;
    let (Ok(c), false) = (table.column(target), preparation.classes().is_empty()) else {
        return Vec::new();
    };
    let mut counts = std::collections::HashMap::new();
    for &row in rows {
        let cell = table.cell(row, c);
        let class = match table.reading().number(cell) {
            Some(number) => (number + 0.0).to_string(),
            None => cell.to_string(),
        };
        *counts.entry(class).or_insert(0) += 1;
    }
    let few = |class: &&String| counts.get(*class).is_none_or(|&n: &usize| n < FEW);
    preparation.classes().iter().filter(few).cloned().collect()
}

fn separator_name(separator: char) -> &'static str {
    match separator {
        ';' => "semicolons",
        '\t' => "tabs",
        '|' => "bars",
        ' ' => "blanks",
        _ => "commas",
    }
}

#[cfg(test)]
mod tests {
    use super::Shape;

    /// What `bench/tables` measured: wider for many inputs, held back where rows are few.
    #[test]
    fn the_network_follows_from_rows_and_inputs() {
        for (inputs, rows, hidden, rate, decay) in [
            (13, 107, &[64][..], "2e-3", "0.3"),
            (30, 341, &[32, 32], "5e-3", "0.3"),
            (64, 1_078, &[128, 128], "2e-3", "0.3"),
            (64, 5_000, &[64, 64], "5e-3", "1e-2"),
            (20, 600_000, &[128, 128], "5e-3", "1e-2"),
        ] {
            let shape = Shape::new(inputs, 2, rows);
            assert_eq!((&shape.hidden[..], shape.rate), (hidden, rate), "{rows}");
            assert_eq!(shape.decay, decay, "{rows}");
        }
    }
}
