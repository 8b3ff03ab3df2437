//! What `metrics.csv` says of a run.

use std::path::Path;

use crate::Result;
use crate::data::csv;

/// What the evaluated epochs say.
pub(super) struct History {
    /// The training loss where the parameters were kept: at the best epoch, or the last.
    pub soft: f64,
    /// The first epoch with hard loss 0.
    pub first: Option<u64>,
    /// The first epoch from which on it stays 0.
    pub since: Option<u64>,
}

impl History {
    pub fn read(path: &Path) -> Result<Option<Self>> {
        // Where no row could be written the rest of the run is told nevertheless.
        if !path.exists() {
            return Ok(None);
        }
        Ok(history(csv::records(path)?))
    }
}

fn history(records: Vec<Vec<String>>) -> Option<History> {
    let mut records = records.into_iter();
    let header = records.next()?;
    let column = |name: &str| header.iter().position(|h| h == name);
    let (epoch, soft, hard, best) = (
        column("epoch")?,
        column("train_loss")?,
        column("hard_loss")?,
        column("best")?,
    );
    let mut decided = false;
    let mut history = History {
        soft: f64::NAN,
        first: None,
        since: None,
    };
    for record in records {
        let kept = record.get(best)? == "1";
        if kept || !decided {
            history.soft = record.get(soft)?.parse().ok()?;
        }
        decided |= kept;
        let wrong: f64 = record.get(hard)?.parse().ok()?;
        let epoch: u64 = record.get(epoch)?.parse().ok()?;
        if wrong > 0.0 {
            history.since = None;
        } else {
            history.first = history.first.or(Some(epoch));
            history.since = history.since.or(Some(epoch));
        }
    }
    Some(history)
}
