//! Cross-validation: an experiment once for every fold, then on all rows.
//!
//! In a fold the test rows are its own part of the data; the others train, and the validation share
//! of them chooses the epoch. So no figure comes from rows that taught or chose. The model that is
//! kept is fitted to all rows, for the median of the folds' best epochs, at the rates of a whole
//! run: nothing is left to choose by, and the folds say how good it is.

use crate::math;
use serde_json::{Value, json};

use super::{Content, Experiment, Figure, Findings, Summary, Verdict};

/// Figures of the folds, or of runs that differ in their seeds.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    /// Names of the runs.
    pub runs: Vec<String>,
    /// Epochs whose parameters were kept.
    pub epochs: Vec<u64>,
    /// The figures of every run, by their names.
    pub figures: Vec<(String, Vec<f64>)>,
    /// Those of them that are measured on rows which neither taught nor chose.
    pub tested: Vec<String>,
    /// Whether each of them learned.
    pub learned: Vec<Learned>,
}

/// Whether a run learned, and what it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learned {
    /// Where that can be said.
    pub learned: Option<bool>,
    /// The attempt that it ended with, counted from 1; where starts are given up.
    pub attempt: Option<u64>,
    /// Seconds of training.
    pub seconds: f64,
}

impl Learned {
    fn cells(self) -> [String; 3] {
        let learned = match self.learned {
            Some(true) => "yes",
            Some(false) => "no",
            None => "",
        };
        let attempt = self.attempt.map_or(String::new(), |n| n.to_string());
        [learned.into(), attempt, format!("{:.1}", self.seconds)]
    }
}

/// The experiment of a fold, counted from 1.
pub fn fold(experiment: &Experiment, of: usize, number: usize) -> Experiment {
    let mut fold = experiment.clone();
    let mut table = toml::Table::new();
    table.insert("of".into(), (of as i64).into());
    table.insert("number".into(), (number as i64).into());
    fold.data.insert("fold".into(), table.into());
    // Another seed per run would split the rows anew; the first weights may be the same.
    fold.data
        .entry("split_seed")
        .or_insert((experiment.train.seed as i64).into());
    fold.data.remove("test");
    fold
}

/// The experiment on all rows, that ends after an epoch.
pub fn on_all_rows(experiment: &Experiment, epoch: u64) -> Experiment {
    let mut all = experiment.clone();
    for key in ["fold", "test"] {
        all.data.remove(key);
    }
    for key in ["file", "targets_file", "weights_file"] {
        all.data.remove(&format!("validation_{key}"));
    }
    all.data.insert("validation".into(), 0.0.into());
    all.train.stop_after = Some(epoch);
    all.train.early_stopping = None;
    all
}

impl Spread {
    /// Takes in the measures of a run.
    pub fn add(&mut self, run: &str, summary: &Summary) {
        self.runs.push(run.to_string());
        self.epochs
            .push(summary.best_epoch.unwrap_or(summary.epochs));
        self.learned.push(Learned {
            learned: summary.verdict.as_ref().map(|v| *v == Verdict::Learned),
            attempt: summary.attempts.map(|(attempt, _)| attempt),
            seconds: summary.seconds,
        });
        let done = self.runs.len();
        for source in &summary.sources {
            let value = match source.name.as_str() {
                "train_loss" => Some(summary.train_loss),
                "validation_loss" => summary.validation_loss,
                name => summary.more.get(name).and_then(Value::as_f64),
            };
            let at = self.figures.iter().position(|f| f.0 == source.name);
            let at = at.unwrap_or_else(|| {
                if source.on.part == "test" {
                    self.tested.push(source.name.clone());
                }
                self.figures.push((source.name.clone(), Vec::new()));
                self.figures.len() - 1
            });
            let values = &mut self.figures[at].1;
            values.resize(done - 1, f64::NAN);
            values.push(value.unwrap_or(f64::NAN));
        }
    }

    /// The median of the best epochs: of an even number the smaller of the middle ones.
    pub fn median_epoch(&self) -> u64 {
        let mut epochs = self.epochs.clone();
        epochs.sort_unstable();
        epochs
            .get(epochs.len().saturating_sub(1) / 2)
            .copied()
            .unwrap_or(1)
    }

    /// Mean and standard deviation (over n − 1) of a figure; none where a run lacks it.
    pub fn of(&self, figure: &str) -> Option<(f64, f64)> {
        let (_, values) = self.figures.iter().find(|f| f.0 == figure)?;
        let n = values.len() as f64;
        if values.len() != self.runs.len() || values.iter().any(|v| !v.is_finite()) {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|v| math::powi(v - mean, 2)).sum();
        Some((mean, (squares / math::max(n - 1.0, 1.0)).sqrt()))
    }

    /// The run that is best by a figure.
    pub fn best(&self, figure: &str, smaller: bool) -> Option<usize> {
        let (_, values) = self.figures.iter().find(|f| f.0 == figure)?;
        let better = |a: f64, b: f64| if smaller { a < b } else { a > b };
        let mut best: Option<usize> = None;
        for (i, &value) in values.iter().enumerate() {
            if value.is_finite() && best.is_none_or(|b| better(value, values[b])) {
                best = Some(i);
            }
        }
        best
    }

    /// A line a run and one for mean and deviation; the best is marked.
    pub fn table(&self, first: &str, best: Option<usize>) -> (Vec<String>, Vec<Vec<String>>) {
        let known: Vec<_> = self
            .figures
            .iter()
            .filter_map(|(name, values)| Some((name, values, self.of(name)?)))
            .collect();
        let mut header = vec![first.to_string(), "epoch".to_string()];
        header.extend(known.iter().map(|(name, ..)| name.replace('_', " ")));
        let mut rows = Vec::new();
        for (i, run) in self.runs.iter().enumerate() {
            let mark = if best == Some(i) { " (best)" } else { "" };
            let mut row = vec![format!("{run}{mark}"), self.epochs[i].to_string()];
            row.extend(known.iter().map(|(_, values, _)| super::number(values[i])));
            rows.push(row);
        }
        if self.learned.iter().any(|l| l.learned.is_some()) {
            header.extend(["learned", "attempts", "seconds"].map(String::from));
            for (row, one) in rows.iter_mut().zip(&self.learned) {
                row.extend(one.cells());
            }
        }
        let mut row = vec!["mean ± deviation".to_string(), String::new()];
        row.extend(known.iter().map(|(_, _, (mean, deviation))| {
            format!("{} ± {}", super::number(*mean), super::number(*deviation))
        }));
        row.resize(header.len(), String::new());
        rows.push(row);
        (header, rows)
    }

    /// How many runs learned, where that can be said: `20 of 20, 17 at the first attempt; median 5.1 s,
    /// slowest 14.0 s`, times of those that did.
    pub fn success(&self) -> Option<String> {
        self.learned.iter().find_map(|l| l.learned)?;
        let good = || self.learned.iter().filter(|l| l.learned == Some(true));
        let mut said = format!("{} of {}", good().count(), self.learned.len());
        if self.learned.iter().any(|l| l.attempt.is_some()) {
            let first = good().filter(|l| l.attempt == Some(1)).count();
            said += &format!(", {first} at the first attempt");
        }
        let mut seconds: Vec<f64> = good().map(|l| l.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        if let (Some(median), Some(slowest)) = (seconds.get(seconds.len() / 2), seconds.last()) {
            said += &format!("; median {median:.1} s, slowest {slowest:.1} s");
        }
        Some(said)
    }

    /// What summary and report of the model on all rows say of the folds.
    pub fn findings(&self) -> Findings {
        let mut folds = serde_json::Map::new();
        for (name, values) in &self.figures {
            if let Some((mean, deviation)) = self.of(name) {
                let about = json!({ "mean": mean, "deviation": deviation, "folds": values });
                folds.insert(name.clone(), about);
            }
        }
        folds.insert("best_epochs".into(), json!(self.epochs));
        let mut findings = Findings::default();
        findings.summary.insert("folds".into(), folds.into());
        // What taught or chose has no place beside what is reported.
        let mut tested = self.clone();
        tested
            .figures
            .retain(|(name, _)| self.tested.contains(name));
        let (header, rows) = tested.table("fold", None);
        let measured = "measured on rows that neither taught nor chose the epoch";
        findings.figures.push(Figure {
            title: format!("Cross-validation, {} folds", self.runs.len()),
            caption: format!(
                "Every row was tested on in one fold, and every figure is {measured}; the deviation \
                 is that of the folds. The model of this run was then fitted to all rows, for the \
                 median of the folds' best epochs, {}.",
                self.median_epoch()
            ),
            content: Content::Table { header, rows },
        });
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::{MeasuredOn, Source};

    fn summary(epoch: u64, r2: f64) -> Summary {
        let mut summary = Summary {
            best_epoch: Some(epoch),
            ..Summary::default()
        };
        for (name, part) in [("r2", "test"), ("validation_r2", "validation")] {
            summary.more.insert(name.into(), r2.into());
            summary.sources.push(Source {
                name: name.into(),
                on: MeasuredOn::part(part, Some((4, "rows"))),
                epoch,
            });
        }
        summary
    }

    #[test]
    fn folds_become_mean_and_deviation_and_the_median_epoch() {
        let mut spread = Spread::default();
        for (i, (epoch, r2)) in [(9, 0.5), (3, 0.7), (30, 0.9)].into_iter().enumerate() {
            spread.add(&(i + 1).to_string(), &summary(epoch, r2));
        }
        let (mean, deviation) = spread.of("r2").unwrap();
        assert!((mean - 0.7).abs() < 1e-15 && (deviation - 0.2).abs() < 1e-15);
        assert_eq!(
            (spread.median_epoch(), spread.best("r2", false)),
            (9, Some(2))
        );
        let findings = spread.findings();
        assert_eq!(findings.summary["folds"]["best_epochs"], json!([9, 3, 30]));
        let Content::Table { header, rows } = &findings.figures[0].content else {
            panic!("a table");
        };
        assert_eq!(header, &["fold", "epoch", "r2"]);
        assert_eq!(rows.len(), 4);
        let (header, rows) = spread.table("fold", Some(2));
        assert_eq!(header, ["fold", "epoch", "r2", "validation r2"]);
        assert_eq!(rows[2][0], "3 (best)");
        assert_eq!(rows[3][2], "0.7000 ± 0.2000");
    }
}
