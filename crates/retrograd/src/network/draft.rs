//! An experiment for a table: what is predicted, from which columns, with how large a network.

use std::collections::BTreeSet;
use std::path::Path;

use crate::data::csv::{Kind, Reading, Table};
use crate::data::prepare::TaskKind;
use crate::data::{Data, DataSpec, Targets};
use crate::family::draft::{Draft, InitOptions, Place, counted, list, quoted, some, thousands};
use crate::train::NetworkTask;
use crate::{Error, Result};

/// Words that stand for a missing value where they are the only text among numbers.
const PLACEHOLDERS: [&str; 8] = ["?", "-", "--", ".", "*", "missing", "unknown", "n.a."];
/// More classes than this are taken for numbers.
const MAX_CLASSES: usize = 20;
/// Rows that a class has on average where whole numbers are taken for classes.
const ROWS_PER_CLASS: usize = 10;
/// More categories than this in one column are taken for free text.
const MAX_CATEGORIES: usize = 256;
/// Fewer rows teach nothing that could be measured.
const FEWEST_ROWS: usize = 10;

/// Looks at a table and drafts its experiment. Every file that isn't a list of edges is taken for a table.
pub(super) fn draft(options: &InitOptions, place: &Place) -> Result<Option<Draft>> {
    let graph = options.links || options.features.is_some() || options.labels.is_some();
    if options.data.is_dir() || graph {
        return Ok(None);
    }
    let target = options.target.as_deref();
    table(&options.data, target, options.task, place).map(Some)
}

fn table(
    path: &Path,
    target: Option<&str>,
    task: Option<TaskKind>,
    place: &Place,
) -> Result<Draft> {
    let (table, how) = read(path, target)?;
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
    let (task, why) = what_is_predicted(&table, target_column, task)?;
    let columns = Columns::of(&table, target_column);
    if columns.used.is_empty() {
        let reasons = columns.reasons().join("; ");
        return Err(Error::refused(
            path.display(),
            format!("no column is left to predict {target:?} from: {reasons}"),
        ));
    }
    let missing = Gaps::of(&table, target_column, &columns.used);
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
        shape: Shape::new(1, 1, table.rows()),
    };
    // Read once as the experiment will read it: the number of inputs and outputs is what comes out.
    let spec: DataSpec = place.experiment(&parts.text())?.data_as()?;
    let folder = place.experiment(&parts.text())?.resolve("");
    let data = spec.load(&folder, 0)?;
    parts.shape = Shape::new(
        data.preparation.sample_shape.iter().product(),
        data.preparation.outputs(),
        data.train.len(),
    );
    let text = parts.text();
    let experiment = place.experiment(&text)?;
    NetworkTask::new(&experiment)?;
    let findings = parts.findings(&table, &data);
    Ok(Draft {
        text,
        findings,
        inputs: "NEW.csv --out predictions.csv".into(),
    })
}

/// How the table's text has to be read, beyond the defaults.
#[derive(Default)]
struct How {
    header: bool,
    decimal_comma: bool,
    placeholders: Vec<String>,
    notes: Vec<String>,
}

/// Reads a table, finding out whether it names its columns, which decimal mark it has, and which
/// word stands for a missing value.
fn read(path: &Path, target: Option<&str>) -> Result<(Table, How)> {
    let mut how = How::default();
    let mut reading = Reading {
        header: false,
        ..Reading::default()
    };
    let bare = Table::read(path, &reading)?;
    how.header = has_header(&bare, target);
    reading.header = how.header;
    if !how.header {
        how.notes
            .push("the first line is data: the columns are called 0, 1, 2 …".into());
    }
    let mut table = Table::read(path, &reading)?;
    if table.separator() != ',' && has_decimal_commas(&table) {
        how.decimal_comma = true;
        how.notes.push("numbers are written 1,5".into());
        reading.decimal = ',';
        table = Table::read(path, &reading)?;
    }
    for c in 0..table.columns().len() {
        if let Some(word) = placeholder(&table, c) {
            how.notes.push(format!(
                "{word:?} is taken for a missing value, as in the column {:?}",
                table.columns()[c]
            ));
            how.placeholders.push(word);
        }
    }
    how.placeholders.sort();
    how.placeholders.dedup();
    how.notes.dedup();
    if !how.placeholders.is_empty() {
        reading.missing_values.extend(how.placeholders.clone());
        table = Table::read(path, &reading)?;
    }
    Ok((table, how))
}

/// Whether the first row of a table read without a header names the columns: it holds the target's
/// name, or no number in a column of numbers.
fn has_header(bare: &Table, target: Option<&str>) -> bool {
    let columns = 0..bare.columns().len();
    if columns.clone().any(|c| Some(bare.cell(0, c)) == target) {
        return true;
    }
    let number = |row: usize, c: usize| bare.reading().number(bare.cell(row, c)).is_some();
    let counts = |from: usize| {
        let mut cells = columns.clone().map(|c| bare.cell(0, c).to_string());
        columns
            .clone()
            .all(|c| cells.next() == Some((from + c).to_string()))
    };
    if counts(0) || counts(1) {
        return true;
    }
    !columns.clone().any(|c| {
        number(0, c) && (1..bare.rows()).all(|row| bare.is_missing(row, c) || number(row, c))
    })
}

/// Whether some column is made of numbers with a decimal comma, and none of numbers with a point.
fn has_decimal_commas(table: &Table) -> bool {
    let mut found = false;
    for c in 0..table.columns().len() {
        let mut commas = 0;
        for row in 0..table.rows() {
            let cell = table.cell(row, c);
            if table.is_missing(row, c) {
                continue;
            }
            if table.reading().number(cell).is_some() {
                if cell.contains('.') {
                    return false;
                }
            } else if cell.contains(',') && cell.replacen(',', ".", 1).parse::<f64>().is_ok() {
                commas += 1;
            } else {
                commas = 0;
                break;
            }
        }
        found |= commas > 0;
    }
    found
}

/// The only text of a column of numbers, where it is a word for "no value".
fn placeholder(table: &Table, c: usize) -> Option<String> {
    if !matches!(table.kind(c, 0..table.rows()), Kind::Mixed { .. }) {
        return None;
    }
    let mut words = BTreeSet::new();
    for row in 0..table.rows() {
        let cell = table.cell(row, c);
        if !table.is_missing(row, c) && table.reading().number(cell).is_none() {
            words.insert(cell);
        }
    }
    let word = words.pop_first().filter(|_| words.is_empty())?;
    let known = PLACEHOLDERS.iter().any(|p| p.eq_ignore_ascii_case(word));
    known.then(|| word.to_string())
}

/// Numbers or classes, and why.
fn what_is_predicted(
    table: &Table,
    column: usize,
    asked: Option<TaskKind>,
) -> Result<(TaskKind, String)> {
    let name = &table.columns()[column];
    let summary = table.summary(column);
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

/// Which columns the network sees, and why not the others.
#[derive(Default)]
struct Columns {
    used: Vec<usize>,
    /// Columns of numbers and text, as categories.
    categories: Vec<String>,
    /// Names with reasons.
    ignored: Vec<(String, String)>,
    nameless: usize,
}

impl Columns {
    fn of(table: &Table, target: usize) -> Self {
        let mut columns = Columns::default();
        for (c, name) in table.columns().iter().enumerate() {
            if c == target {
                continue;
            }
            if name.is_empty() {
                columns.nameless += 1;
                continue;
            }
            let summary = table.summary(c);
            let present = table.rows() - summary.missing;
            let text = !matches!(summary.kind, Kind::Numbers);
            let why = if summary.kind == Kind::Empty {
                "has no value in any row".to_string()
            } else if summary.distinct == 1 {
                "is the same in every row".to_string()
            } else if text && summary.distinct > MAX_CATEGORIES {
                format!(
                    "{} different texts are too many categories",
                    summary.distinct
                )
            } else if text && summary.distinct * 2 > present {
                format!(
                    "{} different texts in {} rows name rather than describe",
                    summary.distinct, present
                )
            } else if !text && counts_rows(table, c, name) {
                "numbers the rows".to_string()
            } else {
                if matches!(summary.kind, Kind::Mixed { .. }) {
                    columns.categories.push(name.clone());
                }
                columns.used.push(c);
                continue;
            };
            columns.ignored.push((name.clone(), why));
        }
        columns
    }

    fn reasons(&self) -> Vec<String> {
        let named = self.ignored.iter();
        let mut reasons: Vec<String> = named.map(|(name, why)| format!("{name}: {why}")).collect();
        if self.nameless > 0 {
            reasons.push(format!(
                "{} without a name",
                counted(self.nameless, "column")
            ));
        }
        reasons
    }
}

/// Whether a column of numbers is a row number, or says that it is an identifier and never repeats.
fn counts_rows(table: &Table, c: usize, name: &str) -> bool {
    let mut seen = std::collections::HashSet::new();
    let mut consecutive = true;
    let mut before: Option<f64> = None;
    for row in 0..table.rows() {
        let Some(value) = table.reading().number(table.cell(row, c)) else {
            return false;
        };
        if value.fract() != 0.0 || !seen.insert(value.to_bits()) {
            return false;
        }
        consecutive &= before.is_none_or(|b| value == b + 1.0);
        before = Some(value);
    }
    let name = name.to_lowercase();
    let words = ["id", "index", "row", "number", "no", "nr", "key"];
    let says_so = name
        .split(|c: char| !c.is_alphanumeric())
        .any(|word| words.contains(&word));
    consecutive || says_so
}

/// Missing cells of the columns in use.
struct Gaps {
    cells: usize,
    rows: usize,
    in_target: usize,
}

impl Gaps {
    fn of(table: &Table, target: usize, used: &[usize]) -> Self {
        let mut gaps = Gaps {
            cells: 0,
            rows: 0,
            in_target: table.summary(target).missing,
        };
        for row in 0..table.rows() {
            let here = used.iter().filter(|&&c| table.is_missing(row, c)).count();
            gaps.cells += here;
            gaps.rows += usize::from(here > 0);
        }
        gaps
    }

    /// `missing` in the file, and why.
    fn rule(&self) -> Option<(&'static str, String)> {
        if self.in_target > 0 {
            let and = match self.rows {
                0 => String::new(),
                rows => format!(", and {} that lack an input", counted(rows, "row")),
            };
            return Some((
                "drop",
                format!(
                    "left out: {} without a value to predict{and}",
                    counted(self.in_target, "row")
                ),
            ));
        }
        (self.cells > 0).then(|| {
            (
                "mean",
                format!(
                    "{} in {}: a number becomes the mean, a category the most frequent one",
                    counted(self.cells, "empty cell"),
                    counted(self.rows, "row")
                ),
            )
        })
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
}

impl Shape {
    /// A network that some rows can teach: the more rows, the wider. Some four thousand steps are
    /// enough for all of these, and take seconds.
    fn new(inputs: usize, outputs: usize, rows: usize) -> Self {
        let (hidden, batch) = match rows {
            0..200 => (vec![16], 16),
            200..2_000 => (vec![32, 32], 32),
            2_000..20_000 => (vec![64, 64], 64),
            _ => (vec![128, 128], 256),
        };
        let steps = rows.div_ceil(batch).max(1);
        Shape {
            inputs,
            outputs,
            rows,
            hidden,
            batch,
            epochs: (4_000 / steps).clamp(10, 300),
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
    shape: Shape,
}

impl Parts<'_> {
    /// What was seen in the table and what was chosen.
    fn findings(&self, table: &Table, data: &Data) -> Vec<(&'static str, String)> {
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
        if let Targets::Classes { classes, .. } = data.train.targets() {
            let names = data.preparation.classes();
            let few: Vec<&str> = names
                .iter()
                .enumerate()
                .filter(|(c, _)| classes.iter().filter(|&&k| k as usize == *c).count() < 5)
                .map(|(_, name)| name.as_str())
                .collect();
            if !few.is_empty() {
                let text = format!("fewer than 5 training rows for {}", some(few));
                findings.push(("note", text));
            }
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
        let reasons = self.columns.reasons();
        findings.extend(reasons.into_iter().map(|reason| ("left out", reason)));
        if let Some((_, why)) = self.gaps.rule() {
            findings.push(("missing", why));
        }
        findings.push(("network", self.shape.sentence()));
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
        let kan = |out: usize| {
            format!(
                "#   {{ kind = \"kan\", out = {out}, grid = 5, degree = 3, range = [-3.0, 3.0] }},\n"
            )
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
             # {sentence}.\n\
             # Wider layers can learn more, and learn the noise sooner.\n\
             layers = [\n{layers}]\n\
             # A Kolmogorov-Arnold network instead, whose functions the report draws:\n\
             # layers = [\n{kan}# ]\n\
             \n\
             [data]\n{data}\
             \n\
             [train]\n\
             epochs = {epochs}        # of some {steps} steps each; the best epoch's weights are kept\n\
             batch = {batch}\n\
             optimizer = {{ kind = \"adamw\", lr = 5e-3, weight_decay = 1e-2 }}\n\
             schedule = {{ kind = \"cosine\" }}\n\
             # early_stopping = 20   # epochs without a better figure\n\
             # seed = 0              # of the split, the first weights and the order of the rows\n",
            file = place.file.display(),
            name = place.name,
            quoted_name = quoted(&place.name),
            about = quoted(&about),
            sentence = shape.sentence(),
            kan = kan(8) + &kan(shape.outputs),
            data = self.data(),
            epochs = shape.epochs,
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
                text += &format!("# {}: {why}\n", name.replace(['\n', '\r'], " "));
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
        text += "validation = 0.2        # the share of the rows that is measured on, not trained on\n\
                 normalise = \"standard\"  # inputs to mean 0 and deviation 1; new data alike\n";
        if self.task == TaskKind::Regression {
            text += "normalise_targets = \"standard\"  # predictions come back in the column's own units\n";
        }
        text
    }
}

fn separator_name(separator: char) -> &'static str {
    match separator {
        ';' => "semicolons",
        '\t' => "tabs",
        '|' => "bars",
        _ => "commas",
    }
}
