//! What was checked, what came out, and what it was held to.

use crate::math;
use std::fmt::Write as _;

use serde::Serialize;

/// The links of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// 1: central differences against the f64 reference's gradients.
    Differences,
    /// 2: the f64 reference against PyTorch.
    Oracle,
    /// 2, beside it: a second form of the same definition, written plainly in f64.
    Form,
    /// 3: the CPU's f32 kernels against the f64 reference.
    Cpu,
    /// 4: the GPU's kernels against the f64 reference.
    Gpu,
    /// 3, beside it: the CPU's f32 error against PyTorch's own.
    Peer,
    /// 5: any number of threads against one.
    Threads,
    /// 5, beside it: groups of processes of any size against one.
    Processes,
    /// 5, beside it: every instruction set of this machine against the best.
    Machines,
    /// 5, beside it: memory used before, gradients accumulated.
    Reuse,
    /// 6: optimizer steps.
    Trajectory,
    /// 7: a deliberate fault that the checks must catch.
    Mutant,
    /// 8: schedules, and which samples a step sees.
    Training,
    /// 9: splits and measures.
    Data,
    /// 10: circuits of bits against the gates that were trained.
    Circuit,
}

impl Link {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Link::Differences => "1 differences",
            Link::Oracle => "2 oracle f64",
            Link::Form => "2 second form",
            Link::Cpu => "3 cpu f32",
            Link::Gpu => "4 gpu f32",
            Link::Peer => "3 peer f32",
            Link::Threads => "5 threads",
            Link::Processes => "5 processes",
            Link::Machines => "5 machines",
            Link::Reuse => "5 reuse",
            Link::Trajectory => "6 trajectory",
            Link::Mutant => "7 mutant",
            Link::Training => "8 training",
            Link::Data => "9 data",
            Link::Circuit => "10 circuit",
        }
    }
}

/// What a row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Within the bound.
    Pass,
    /// Not within the bound.
    Fail,
    /// Not checked, for the reason in the note. Never counts as passed.
    Unchecked,
}

/// One comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The model or bundle.
    pub model: String,
    /// The tensor, or what else is compared.
    pub tensor: String,
    /// The link of the chain.
    pub link: Link,
    /// The error of the element whose error is the largest part of its bound.
    pub error: f64,
    /// That element's bound.
    pub bound: f64,
    /// error / bound.
    pub ratio: f64,
    /// Pass, fail, or unchecked.
    pub verdict: Verdict,
    /// The elements compared.
    pub elements: usize,
    /// The worst element, in PyTorch's order.
    pub worst: Option<usize>,
    /// Elements whose differences straddled a kink at first; checked at a smaller step or on
    /// another input.
    pub at_kink: usize,
    /// Elements left out, because they have no defined value in f32 (Adam's division by a gradient
    /// that is nothing but rounding).
    pub left_out: usize,
    /// Of a mutant: whether a link caught it that needs no right model beside it.
    pub independent: bool,
    /// Our f32 error over PyTorch's own, where that is known.
    pub peer: Option<f64>,
    /// What else there is to say.
    pub note: String,
}

impl Row {
    /// A row that says why nothing was checked.
    pub fn unchecked(
        model: impl Into<String>,
        tensor: impl Into<String>,
        link: Link,
        note: impl Into<String>,
    ) -> Self {
        Row {
            model: model.into(),
            tensor: tensor.into(),
            link,
            error: f64::NAN,
            bound: f64::NAN,
            ratio: f64::NAN,
            verdict: Verdict::Unchecked,
            elements: 0,
            worst: None,
            at_kink: 0,
            left_out: 0,
            independent: false,
            peer: None,
            note: note.into(),
        }
    }

    /// A row from the comparison of the worst element.
    pub fn compared(
        model: impl Into<String>,
        tensor: impl Into<String>,
        link: Link,
        worst: &Worst,
    ) -> Self {
        Row {
            error: worst.error,
            bound: worst.bound,
            ratio: worst.ratio,
            verdict: if worst.ratio <= 1.0 {
                Verdict::Pass
            } else {
                Verdict::Fail
            },
            elements: worst.elements,
            worst: worst.index,
            ..Row::unchecked(model, tensor, link, "")
        }
    }

    /// With a note, appended to what is there.
    pub fn noted(mut self, note: impl AsRef<str>) -> Self {
        if !self.note.is_empty() && !note.as_ref().is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(note.as_ref());
        self
    }

    /// Turned into "unchecked", for a reason; a failure stays one.
    pub fn doubted(mut self, reason: impl AsRef<str>) -> Self {
        if self.verdict == Verdict::Pass {
            self.verdict = Verdict::Unchecked;
        }
        self.noted(reason)
    }
}

/// Several rows of one link as one: the worst of them, with the elements of all. It fails where one
/// fails, and is unchecked where those that were compared hold less than half of the elements.
pub(super) fn merged(model: &str, tensor: &str, link: Link, rows: &[&Row]) -> Row {
    let bad = |row: &Row| match row.verdict {
        Verdict::Fail => 1,
        _ => 0,
    };
    let rank = |row: &Row| if row.ratio.is_nan() { -1.0 } else { row.ratio };
    let order = |a: &&&Row, b: &&&Row| (bad(a).cmp(&bad(b))).then(rank(a).total_cmp(&rank(b)));
    let Some(worst) = rows.iter().max_by(order) else {
        return Row::unchecked(model, tensor, link, "nothing to compare");
    };
    let elements = |verdict: Verdict| -> usize {
        let own = rows.iter().filter(|r| r.verdict == verdict);
        own.map(|r| r.elements.max(1)).sum()
    };
    let mut row = Row {
        model: model.to_string(),
        tensor: tensor.to_string(),
        note: String::new(),
        elements: rows.iter().map(|r| r.elements).sum(),
        left_out: rows.iter().map(|r| r.left_out).sum(),
        at_kink: rows.iter().map(|r| r.at_kink).sum(),
        ..(**worst).clone()
    };
    if rows.len() > 1 {
        row = row.noted(format!("worst in {}", worst.tensor));
    }
    if worst.verdict != Verdict::Fail {
        let (passed, unchecked) = (elements(Verdict::Pass), elements(Verdict::Unchecked));
        row.verdict = if unchecked > passed {
            Verdict::Unchecked
        } else {
            Verdict::Pass
        };
    }
    row
}

/// The element whose error is the largest part of its bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Worst {
    /// Where; none where nothing was compared.
    pub index: Option<usize>,
    /// |value − reference|.
    pub error: f64,
    /// What it was allowed.
    pub bound: f64,
    /// error / bound; 0 for no error at all, infinite for one where none is allowed or for a
    /// value that is not a number.
    pub ratio: f64,
    /// Elements compared.
    pub elements: usize,
}

/// The one comparison: values against references, each with its own bound.
pub fn compare(values: &[f64], reference: &[f64], bound: impl Fn(usize) -> f64) -> Worst {
    compare_some(values, reference, bound, |_| true)
}

/// The same for the elements that `included` takes.
pub fn compare_some(
    values: &[f64],
    reference: &[f64],
    bound: impl Fn(usize) -> f64,
    included: impl Fn(usize) -> bool,
) -> Worst {
    let mut worst = Worst::default();
    if values.len() != reference.len() {
        worst.ratio = f64::INFINITY;
        worst.error = f64::INFINITY;
        return worst;
    }
    for (i, (&value, &reference)) in values.iter().zip(reference).enumerate() {
        if !included(i) {
            continue;
        }
        worst.elements += 1;
        let error = (value - reference).abs();
        let bound = bound(i);
        let ratio = if error == 0.0 {
            0.0
        } else if error.is_finite() && bound.is_finite() {
            error / bound
        } else {
            f64::INFINITY
        };
        if worst.index.is_none() || ratio > worst.ratio {
            worst = Worst {
                index: Some(i),
                error,
                bound,
                ratio,
                ..worst
            };
        }
    }
    worst
}

/// The largest finite magnitude: the scale of a tensor. What is not finite fails every comparison.
pub fn largest(values: &[f64]) -> f64 {
    let finite = values.iter().filter(|v| v.is_finite());
    finite.fold(0.0, |max: f64, v| math::max(max, v.abs()))
}

/// How many rows say what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Rows that passed.
    pub passed: usize,
    /// Rows that failed.
    pub failed: usize,
    /// Rows that were not checked.
    pub unchecked: usize,
    /// Elements compared at all.
    pub elements: usize,
    /// Elements at a kink, over all rows.
    pub at_kink: usize,
    /// Elements left out, over all rows.
    pub left_out: usize,
}

/// All rows of a verification.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// In the order of the checks.
    pub rows: Vec<Row>,
}

impl Report {
    /// Everything was checked and passed, and there was something.
    pub fn passed(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|r| r.verdict == Verdict::Pass)
    }

    /// How many rows say what.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for row in &self.rows {
            match row.verdict {
                Verdict::Pass => counts.passed += 1,
                Verdict::Fail => counts.failed += 1,
                Verdict::Unchecked => counts.unchecked += 1,
            }
            counts.elements += row.elements;
            counts.at_kink += row.at_kink;
            counts.left_out += row.left_out;
        }
        counts
    }

    /// The rows that did not pass.
    pub fn problems(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|r| r.verdict != Verdict::Pass)
    }

    /// Appends another report's rows.
    pub fn extend(&mut self, other: Report) {
        self.rows.extend(other.rows);
    }

    /// The report as JSON: the rows, the counts and the verdict. Numbers that are not finite are
    /// `null`.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "passed": self.passed(),
            "counts": self.counts(),
            "rows": self.rows,
        })
    }

    /// The last line of a table.
    pub fn summary(&self) -> String {
        let counts = self.counts();
        let mut line = format!(
            "{} checks over {} elements: {} passed, {} failed, {} unchecked",
            self.rows.len(),
            counts.elements,
            counts.passed,
            counts.failed,
            counts.unchecked
        );
        if counts.at_kink > 0 {
            let _ = write!(line, "; {} elements at a kink", counts.at_kink);
        }
        if counts.left_out > 0 {
            let _ = write!(line, "; {} elements left out", counts.left_out);
        }
        line
    }

    /// The rows as a table for people, without the summary.
    pub fn table(&self) -> String {
        table(&self.rows)
    }
}

/// Rows as a table for people.
pub fn table(rows: &[Row]) -> String {
    let header = [
        "model", "tensor", "link", "error", "bound", "ratio", "verdict", "",
    ];
    let number = |x: f64| {
        if x.is_nan() {
            "–".to_string()
        } else if x == 0.0 {
            "0".to_string()
        } else {
            format!("{x:.1e}")
        }
    };
    let lines: Vec<[String; 8]> = rows
        .iter()
        .map(|row| {
            let mut remarks = Vec::new();
            if let Some(peer) = row.peer {
                remarks.push(format!("{peer:.2} × PyTorch's"));
            }
            if row.at_kink > 0 {
                remarks.push(format!("{} at a kink", row.at_kink));
            }
            if row.left_out > 0 {
                let all = row.elements + row.left_out;
                remarks.push(format!("{} of {all} left out", row.left_out));
            }
            if row.verdict == Verdict::Fail
                && let Some(worst) = row.worst
            {
                remarks.push(format!("worst at element {worst}"));
            }
            if !row.note.is_empty() {
                remarks.push(row.note.clone());
            }
            let verdict = match row.verdict {
                Verdict::Pass => "pass",
                Verdict::Fail => "FAIL",
                Verdict::Unchecked => "unchecked",
            };
            let ratio = if row.ratio.is_nan() {
                "–".to_string()
            } else if row.ratio < 1000.0 {
                format!("{:.3}", row.ratio)
            } else {
                number(row.ratio)
            };
            [
                row.model.clone(),
                row.tensor.clone(),
                row.link.name().to_string(),
                number(row.error),
                number(row.bound),
                ratio,
                verdict.to_string(),
                remarks.join(", "),
            ]
        })
        .collect();
    let mut widths = header.map(|h| h.chars().count());
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let mut write_line = |cells: &[String; 8]| {
        let mut line = String::new();
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let pad = width - cell.chars().count();
            let right = (3..6).contains(&column);
            if column > 0 {
                line.push_str("  ");
            }
            if right {
                line.extend(std::iter::repeat_n(' ', pad));
            }
            line.push_str(cell);
            if !right {
                line.extend(std::iter::repeat_n(' ', pad));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    };
    write_line(&header.map(String::from));
    for line in &lines {
        write_line(line);
    }
    text
}
