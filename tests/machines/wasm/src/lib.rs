//! Trains an experiment in memory, in a browser or in Node, and says what came out.
//!
//! The host asks for memory ([`reserve`]), writes the experiment's text there, calls [`train`], and reads
//! the answer from where it stands.

use std::cell::RefCell;
use std::fmt::Write;

use retrograd::Family;
use retrograd::train::{Event, Experiment, Observer, Session};
use serde_json::json;

thread_local! {
    static TEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The address of that many bytes, for the host to write to.
#[unsafe(no_mangle)]
pub extern "C" fn reserve(bytes: usize) -> *mut u8 {
    TEXT.with_borrow_mut(|text| {
        text.clear();
        text.resize(bytes, 0);
        text.as_mut_ptr()
    })
}

/// Trains the experiment whose text was written to what [`reserve`] gave; the length of the answer, which
/// [`answer`] has the address of: JSON with the digest of the weights and the lines of `metrics.csv`
/// without their times, or with an error.
#[unsafe(no_mangle)]
pub extern "C" fn train() -> usize {
    let text = TEXT.with_borrow(|text| String::from_utf8_lossy(text).into_owned());
    let answer = match run(&text) {
        Ok(answer) => answer,
        Err(error) => json!({ "error": error.to_string() }),
    };
    TEXT.with_borrow_mut(|text| {
        *text = answer.to_string().into_bytes();
        text.len()
    })
}

/// The address of the answer.
#[unsafe(no_mangle)]
pub extern "C" fn answer() -> *const u8 {
    TEXT.with_borrow(|text| text.as_ptr())
}

/// The figures of every epoch.
#[derive(Default)]
struct Metrics(String);

impl Observer for Metrics {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Epoch(record) = event {
            let _ = write!(self.0, "{},{},{},{}", record.epoch, record.step, record.train_loss, record.lr);
            for (_, value) in &record.metrics {
                let _ = write!(self.0, ",{value}");
            }
            let _ = writeln!(self.0, ",{}", u8::from(record.best));
        }
    }
}

fn run(text: &str) -> retrograd::Result<serde_json::Value> {
    let experiment = Experiment::parse(text, "the experiment")?;
    let family = Family::find(experiment.family())?;
    let mut metrics = Metrics::default();
    let mut session = Session::new(experiment).observed_by(&mut metrics);
    let summary = family.train(&mut session)?;
    drop(session);
    let digests = summary.digests.expect("every run has them");
    Ok(json!({
        "contract": digests.contract,
        "weights": digests.weights,
        "metrics": metrics.0,
        "simd": retrograd::command::instruction_set().to_string(),
    }))
}
