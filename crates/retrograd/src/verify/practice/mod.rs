//! What users trust beside gradients, each beside an oracle of its own: what a layer does by chance or
//! remembers, schedules, the order of samples, splits, measures, hard circuits.
//!
//! Nothing here is a gradient, so nothing of the chain would see it wrong; and where it is one source for
//! every scalar (dropout's scale, a pool's ties, running statistics), the f64 reference would be wrong
//! alike. The oracles are definitions written a second time: the recursion instead of the closed form, a
//! count instead of a sum, truth tables instead of polynomials.

mod circuits;
mod ending;
mod images;
mod layers;
mod measures;
mod plain;
mod runs;
mod shards;
mod splits;
mod training;

use super::report::{Link, Report, Row, Verdict, compare};
use crate::{Result, parallel};

/// f64's rounding of a few dozen operations of numbers up to 1.
const FEW: f64 = 64.0 * f64::EPSILON;

/// A group of such checks.
pub struct Practice {
    /// What is checked.
    pub name: &'static str,
    check: fn() -> Result<Vec<Row>>,
}

/// All of them.
pub fn all() -> Vec<Practice> {
    vec![
        Practice {
            name: "dropout",
            check: layers::dropout,
        },
        Practice {
            name: "max_pool2d",
            check: layers::max_pool,
        },
        Practice {
            name: "running statistics",
            check: layers::running_statistics,
        },
        Practice {
            name: "image losses",
            check: images::image_losses,
        },
        Practice {
            name: "schedules",
            check: training::schedules,
        },
        Practice {
            name: "batches",
            check: training::batches,
        },
        Practice {
            name: "runs",
            check: runs::runs,
        },
        Practice {
            name: "shards",
            check: shards::shards,
        },
        Practice {
            name: "endings",
            check: ending::endings,
        },
        Practice {
            name: "splits",
            check: splits::splits,
        },
        Practice {
            name: "measures",
            check: measures::measures,
        },
        Practice {
            name: "hard circuits",
            check: circuits::hard_circuits,
        },
    ]
}

/// Runs them, several at a time.
pub fn check_all(all: &[Practice]) -> Result<Report> {
    let mut report = Report::default();
    for rows in parallel::isolated(all.len(), |i| (all[i].check)()) {
        report.rows.extend(rows?);
    }
    Ok(report)
}

fn row(
    model: &str,
    what: impl Into<String>,
    link: Link,
    got: &[f64],
    is: &[f64],
    bound: f64,
) -> Row {
    Row::compared(model, what, link, &compare(got, is, |_| bound))
}

/// A row about something that is so or not.
fn holds(model: &str, what: impl Into<String>, link: Link, count: usize, wrong: usize) -> Row {
    let mut row = Row::unchecked(model, what, link, "");
    (row.error, row.bound, row.elements) = (wrong as f64, 0.0, count);
    row.ratio = if wrong == 0 { 0.0 } else { f64::INFINITY };
    row.verdict = if wrong == 0 {
        Verdict::Pass
    } else {
        Verdict::Fail
    };
    row
}
