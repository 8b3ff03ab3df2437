//! What a run leaves when its steps are done: the best weights, figures, findings and their verification.

use super::super::folder::RunFolder;
use super::super::report;
use super::super::{Digests, Event, Example, Source, Specimen, Summary, Task, Verification};
use super::{Fit, set_buffers};
use crate::clock::Instant;
use crate::verify::{self, Link, Report, Row};
use crate::{Error, Loss, Model, Result, Target};

impl<T: Task> Fit<'_, T> {
    pub(super) fn finish(mut self, per_epoch: u64) -> Result<Summary> {
        self.gather_state();
        self.save()?;
        self.observer.event(Event::Finishing);
        if self.is_stopped() {
            let step = self.progress.step;
            return Err(Error::Interrupted { step });
        }
        if self.group.rank() > 0 {
            return Ok(Summary::default());
        }
        let mut summary = self.figures(per_epoch)?;
        let weights = self.best_file()?;
        if let Some(kept) = self.kept.take() {
            kept.clone_from(&self.best_params);
        }
        let run = self.folder.as_ref().map(RunFolder::path);
        let device = self.accelerator.is_some().then_some(&*self.device);
        summary.digests = Some(Digests::new(&weights, self.experiment, run, device)?);
        drop(weights);
        let Some(folder) = &self.folder else {
            return Ok(summary);
        };
        let start = Instant::now();
        let findings = self.task.finish(&self.best_params, folder.path())?;
        let finishing = start.elapsed().as_secs_f64();
        summary.more.extend(findings.summary);
        self.add_sources(&mut summary);
        summary.verdict = self.task.verdict(&summary);
        let added = self.added.figures.iter().cloned();
        let figures: Vec<_> = added.chain(findings.figures).collect();
        self.observer.event(Event::Figures(&figures));
        summary.more.extend(self.added.summary.clone());
        if self.verify {
            let verification = self.verification();
            self.observer.event(Event::Verified(&verification));
            summary.verification = Some(verification);
        }
        let Some(folder) = &self.folder else {
            return Ok(summary);
        };
        self.metrics.rewrite(&folder.metrics(), &self.records)?;
        let json = serde_json::to_string_pretty(&summary.to_json()).expect("plain values");
        folder.write(&folder.summary(), &(json + "\n"))?;
        if !self.report {
            return Ok(summary);
        }
        let curves = report::curves(&self.records);
        folder.write(&folder.curves(), &curves)?;
        let page = report::page(&report::Page {
            experiment: self.experiment,
            folder: folder.path(),
            layout: self.task.model().layout(),
            summary: &summary,
            progress: &self.progress,
            records: &self.records,
            figures: &figures,
            finishing,
            device: &self.device,
        });
        folder.write(&folder.report(), &page)?;
        Ok(summary)
    }

    /// The figures of the parameters that were kept: all of one epoch.
    pub(super) fn figures(&mut self, per_epoch: u64) -> Result<Summary> {
        let progress = &self.progress;
        let best = progress.best.map(|best| best.epoch);
        let kept = match best {
            Some(epoch) => self.records.iter().find(|r| r.epoch == epoch),
            None => self.records.last(),
        };
        let mut summary = Summary {
            epochs: progress.step / per_epoch,
            steps: progress.step,
            seconds: self.seconds(),
            ms_per_step: progress.stepping * 1e3 / progress.step.max(1) as f64,
            train_loss: kept.map_or(f64::NAN, |r| r.train_loss),
            validation_loss: kept.and_then(|r| r.get("validation_loss")),
            skipped_steps: progress.skipped,
            attempts: self
                .spec
                .attempts()
                .map(|most| (progress.restarts + 1, most)),
            best_epoch: best,
            chosen_by: progress.best.map(|best| {
                let (name, smaller) = self.task.best_by();
                (name, smaller, best.value)
            }),
            ..Summary::default()
        };
        for (name, value) in kept.iter().flat_map(|r| &r.metrics) {
            if !["validation_loss", "attempt"].contains(&name.as_str()) {
                summary.more.insert(name.clone(), (*value).into());
            }
        }
        if progress.rounded {
            summary.more.insert("rounded".into(), true.into());
        }
        set_buffers(self.task.model_mut(), &self.best_buffers)?;
        for (name, value) in self.task.measure(&self.best_params)? {
            summary.more.insert(name, value.into());
        }
        self.add_sources(&mut summary);
        Ok(summary)
    }

    /// Says of every measure where it comes from.
    pub(super) fn add_sources(&self, summary: &mut Summary) {
        let epoch = summary.best_epoch.unwrap_or(summary.epochs);
        let losses = [
            ("train_loss", Some(summary.train_loss)),
            ("validation_loss", summary.validation_loss),
        ];
        let losses = losses.into_iter().filter(|l| l.1.is_some()).map(|l| l.0);
        let more = summary.more.iter().filter(|(_, value)| value.is_number());
        let names = losses.chain(more.map(|(name, _)| name.as_str()));
        let source = |name: &str| {
            Some(Source {
                name: name.to_string(),
                on: self.task.measured_on(name)?,
                epoch,
            })
        };
        summary.sources = names.filter_map(source).collect();
    }

    /// Checks the best parameters on the task's specimen. That it cannot be done is a finding, not
    /// the end of a run that is otherwise whole.
    pub(super) fn verification(&mut self) -> Verification {
        let start = Instant::now();
        let name = &self.experiment.name;
        let report = self.check_specimen().unwrap_or_else(|error| Report {
            rows: vec![Row::unchecked(
                name,
                "the model",
                Link::Differences,
                error.to_string(),
            )],
        });
        Verification {
            report,
            seconds: start.elapsed().as_secs_f64(),
        }
    }

    pub(super) fn check_specimen(&mut self) -> Result<Report> {
        let Specimen {
            mut example,
            mut model,
        } = self.task.specimen()?;
        if let Some(model) = &mut model {
            set_buffers(model, &self.best_buffers)?;
            for pattern in &self.spec.freeze {
                model.layout_mut().freeze(pattern)?;
            }
            if let Some(mistake) = self.mistake {
                model.make_mistake(mistake)?;
            }
        }
        let model = model.as_ref().unwrap_or(self.task.model());
        let loss = self.task.loss();
        miss(&mut example.target, loss);
        let Example { input, target } = &example;
        let name = &self.experiment.name;
        // With the kernels that trained it.
        let own = self.accelerator.as_ref().and_then(|a| a.verifier());
        let mut device = own.unwrap_or_else(|| Box::new(verify::Cpu));
        let mut params = self.best_params.clone();
        let softened = self.task.soften(&mut params);
        let Report { rows } =
            verify::check_trained_on(&mut *device, name, model, &params, input, target, loss)?;
        let noted = |row: Row| row.noted(softened.as_deref().unwrap_or_default());
        Ok(Report {
            rows: rows.into_iter().map(noted).collect(),
        })
    }
}

/// Makes a target one that the model has not learnt. At the end of a training gradients vanish, and
/// what vanishes can hardly be checked.
fn miss(target: &mut Target<f32>, loss: Loss) {
    for class in &mut target.classes {
        *class = u32::from(*class == 0);
    }
    for value in &mut target.values {
        *value = match loss {
            Loss::BceLogits => 1.0 - *value,
            // Sums of squares grow with it, and their rounding.
            Loss::SumSquares => *value,
            _ => *value + 1.0,
        };
    }
}
