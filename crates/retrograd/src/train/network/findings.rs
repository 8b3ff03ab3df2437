//! A trained network's tables and pictures for its report.

use super::Scoring;
use crate::Result;
use crate::data::{Dataset, Targets};
use crate::train::report::{scatter, scatter_around_zero};
use crate::train::{Content, Figure};

pub(super) fn confusion_table(name: &str, classes: &[String], rows: &[&[f64]]) -> Figure {
    let header = std::iter::once("true \\ predicted".to_string())
        .chain(classes.iter().cloned())
        .collect();
    let rows = rows.iter().zip(classes).map(|(row, class)| {
        let cells = row.iter().map(|n| n.to_string());
        std::iter::once(class.clone()).chain(cells).collect()
    });
    Figure {
        title: "Confusion matrix".into(),
        caption: format!("The {name} samples, by their true class and the one predicted."),
        content: Content::Table {
            header,
            rows: rows.collect(),
        },
    }
}

/// The first target's true values with the predicted ones, in the user's units.
pub(super) fn first_against_truth(
    scoring: &Scoring,
    data: &Dataset,
    outputs: &[f32],
    width: usize,
) -> Result<Vec<(f64, f64)>> {
    let Targets::Values { values, .. } = data.targets() else {
        return Ok(Vec::new());
    };
    let first = |values: &[f32]| -> Result<Vec<f64>> {
        let Scoring::Prepared(preparation) = scoring else {
            let firsts = values.iter().step_by(width.max(1));
            return Ok(firsts.map(|&v| f64::from(v)).collect());
        };
        let columns = preparation.predictions(values, width)?;
        let cells = columns.first().map_or(&[][..], |(_, cells)| cells);
        let number = |cell: &String| cell.parse().unwrap_or(f64::NAN);
        Ok(cells.iter().map(number).collect())
    };
    Ok(first(values)?.into_iter().zip(first(outputs)?).collect())
}

pub(super) fn truth_against_prediction(name: &str, points: &[(f64, f64)]) -> Figure {
    Figure {
        title: "Predictions".into(),
        caption: format!(
            "The {name} samples: across the true value, upwards the predicted one; on the line \
             they agree."
        ),
        content: Content::Svg(scatter(points, "true", "predicted")),
    }
}

pub(super) fn residuals(name: &str, points: &[(f64, f64)]) -> Figure {
    let left: Vec<(f64, f64)> = points.iter().map(|&(t, p)| (p, t - p)).collect();
    Figure {
        title: "Residuals".into(),
        caption: format!(
            "The {name} samples: across the predicted value, upwards what the true one has beyond it. \
             Where they are not the same on both sides of the line all along it, something is not learnt."
        ),
        content: Content::Svg(scatter_around_zero(
            &left,
            "predicted",
            "true minus predicted",
        )),
    }
}
