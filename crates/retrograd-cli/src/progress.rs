//! What a person sees while a model trains: a bar with loss, rate and time left on a terminal,
//! plain lines elsewhere. All of it on stderr; results go to stdout.

use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use retrograd::train::{Event, Observer, Record, Verification, number};

use crate::log;
use crate::signals::{self, Phase};

/// Shows a run's events.
pub struct Progress {
    bars: Option<Bars>,
    started: Instant,
    printed: Option<Instant>,
    first_step: u64,
    steps: u64,
    steps_per_epoch: u64,
    skipped: u64,
    /// What is said where a signal ends a run that has saved.
    saved: String,
}

struct Bars {
    all: MultiProgress,
    steps: ProgressBar,
    picture: Option<ProgressBar>,
    /// The bar redraws at most so often; its text is made no more often either.
    refreshed: Instant,
    figures: String,
}

/// Lines elsewhere than on a terminal come at most this often, the first and the last always.
const LINES: Duration = Duration::from_secs(2);
const REFRESH: Duration = Duration::from_millis(60);
/// And steps as JSON.
const STEPS: Duration = Duration::from_millis(100);

impl Progress {
    /// For stderr as it is. What is said where a signal ends a run that has saved.
    pub fn new(saved: String) -> Self {
        Progress {
            saved,
            bars: log::draws().then(|| {
                let all = MultiProgress::new();
                let steps = all.add(ProgressBar::no_length());
                let style = "{bar:28} {percent:>3}%  {msg}  {eta} left";
                if let Ok(style) = ProgressStyle::with_template(style) {
                    steps.set_style(style.progress_chars("━╸ "));
                }
                Bars {
                    all,
                    steps,
                    picture: None,
                    refreshed: Instant::now(),
                    figures: String::new(),
                }
            }),
            started: Instant::now(),
            printed: None,
            first_step: 0,
            steps: 0,
            steps_per_epoch: 1,
            skipped: 0,
        }
    }

    fn line(&self, text: &str) {
        match &self.bars {
            Some(bars) => {
                // A terminal that is gone is no reason to stop.
                let _ = bars.all.println(log::plain(text));
            }
            None => log::note(text),
        }
    }

    /// A line above the bars that is said even with --quiet.
    fn warn(&self, text: &str) {
        match &self.bars {
            Some(bars) => bars.all.suspend(|| log::warn(text)),
            None => log::warn(text),
        }
    }

    fn epoch(&mut self, record: &Record) {
        let figures = figures(record);
        let done = record.step >= self.steps;
        if let Some(bars) = &mut self.bars {
            bars.steps
                .set_message(format!("epoch {} {figures}", record.epoch));
            bars.figures = figures;
            return;
        }
        let due = self.printed.is_none_or(|at| at.elapsed() >= LINES);
        if due || done {
            let elapsed = self.started.elapsed().as_secs_f64();
            let rate = (record.step - self.first_step) as f64 / elapsed.clamp(1e-9, f64::INFINITY);
            let left =
                (self.steps - record.step.min(self.steps)) as f64 / rate.clamp(1e-9, f64::INFINITY);
            log::note(&format!(
                "epoch {}/{} {figures}  {rate:.0} steps/s, {left:.0} s left",
                record.epoch,
                self.steps / self.steps_per_epoch
            ));
            self.printed = Some(Instant::now());
        }
    }
}

impl Progress {
    fn verified(&self, verification: &Verification) {
        if !verification.failed() {
            self.line(&format!(
                "verified in {:.1} s: {}",
                verification.seconds,
                verification.sentence()
            ));
            return;
        }
        let problems: Vec<_> = verification.report.problems().cloned().collect();
        self.warn(&format!(
            "THE VERIFICATION OF THE TRAINED MODEL FAILED: {}\n{}",
            verification.sentence(),
            retrograd::verify::table(&problems)
        ));
    }

    /// One line for an event; steps at most ten a second.
    fn json(&mut self, event: &Event<'_>) {
        if matches!(event, Event::Step { .. }) {
            if self.printed.is_some_and(|at| at.elapsed() < STEPS) {
                return;
            }
            self.printed = Some(Instant::now());
        }
        // Steps tell as much of an epoch that is not evaluated.
        if matches!(event, Event::EpochEnded { .. }) {
            return;
        }
        if let Some((name, more)) = event.to_json() {
            log::event(name, more);
        }
    }
}

/// The figures of a record, short.
pub fn figures(record: &Record) -> String {
    let mut text = format!("loss {}", number(record.train_loss));
    for (name, value) in &record.metrics {
        let short = name.replace("validation_", "val ");
        text += &format!(" {short} {}", number(*value));
    }
    text
}

impl Observer for Progress {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start { .. } => {
                signals::last_words(std::mem::take(&mut self.saved));
                signals::enter(Phase::Stepping);
            }
            Event::Stepped | Event::Epoch(_) => signals::enter(Phase::Stepping),
            Event::LongStep | Event::Evaluating => signals::enter(Phase::Repeatable),
            Event::Finishing => signals::enter(Phase::Free),
            _ => {}
        }
        if log::style().json {
            self.json(&event);
            return;
        }
        match event {
            Event::Note(text) => self.line(text),
            Event::Warning(text) => self.warn(text),
            Event::LongStep
            | Event::Stepped
            | Event::Evaluating
            | Event::EpochEnded { .. }
            | Event::Finishing => {}
            Event::Start {
                params,
                step,
                steps,
                steps_per_epoch,
            } => {
                self.started = Instant::now();
                self.first_step = step;
                self.steps = steps;
                self.steps_per_epoch = steps_per_epoch;
                let from = match step {
                    0 => String::new(),
                    step => format!(", going on after step {step}"),
                };
                self.line(&format!("{params} parameters, {steps} steps{from}"));
                if let Some(bars) = &self.bars {
                    bars.steps.set_length(steps);
                    bars.steps.set_position(step);
                    bars.steps.reset_eta();
                }
            }
            Event::Step { step, loss } => {
                if let Some(bars) = &mut self.bars
                    && bars.refreshed.elapsed() >= REFRESH
                {
                    bars.refreshed = Instant::now();
                    bars.steps.set_position(step);
                    if bars.figures.is_empty() {
                        bars.steps.set_message(format!("loss {}", number(loss)));
                    }
                }
            }
            Event::Skipped { step, tensor } => {
                self.skipped += 1;
                // A run that goes wrong for good would fill the screen.
                if self.skipped <= 5 {
                    self.line(&format!("step {step} left out: {tensor} is not finite"));
                }
            }
            Event::Epoch(record) => self.epoch(record),
            Event::Picture(picture) => {
                if let Some(bars) = &mut self.bars {
                    let all = &bars.all;
                    let bar = bars.picture.get_or_insert_with(|| {
                        let bar = all.add(ProgressBar::no_length());
                        if let Ok(style) = ProgressStyle::with_template("{msg}") {
                            bar.set_style(style);
                        }
                        bar
                    });
                    bar.set_message(picture.to_string());
                }
            }
            Event::Saved(_) | Event::View(_) | Event::Figures(_) => {}
            Event::SaveFailed(error) => {
                self.warn(&format!("{error}; the run goes on and tries again"));
            }
            Event::Verified(verification) => self.verified(verification),
            Event::Restarted {
                attempt,
                attempts,
                epoch,
            } => self.line(&format!(
                "not learned by epoch {epoch}: starting again, attempt {attempt} of {attempts}"
            )),
            Event::Learned { epoch } => self.line(&format!("learned: stopped at epoch {epoch}")),
            Event::StoppedEarly { best } => {
                self.line(&format!("no better than epoch {best}: stopped early"));
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bars) = &self.bars {
            bars.steps.finish_and_clear();
            if let Some(picture) = &bars.picture {
                picture.finish();
            }
        }
    }
}

/// Rows of an image done: a bar on a terminal, nothing elsewhere.
pub struct Rows {
    bar: Option<ProgressBar>,
}

impl Rows {
    /// For a file of that many rows.
    pub fn new(file: &std::path::Path, rows: usize) -> Self {
        Rows {
            bar: log::draws().then(|| {
                let bar = ProgressBar::new(rows as u64);
                let style = "{bar:28} {percent:>3}%  {msg}  {eta} left";
                if let Ok(style) = ProgressStyle::with_template(style) {
                    bar.set_style(style.progress_chars("━╸ "));
                }
                let name = file.file_name().unwrap_or_default();
                bar.set_message(name.to_string_lossy().into_owned());
                bar
            }),
        }
    }

    /// So many rows are done.
    pub fn done(&mut self, rows: usize) {
        if let Some(bar) = &self.bar {
            bar.set_position(rows as u64);
        }
    }

    /// The file is done.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
