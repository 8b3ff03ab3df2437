//! What a run keeps on the disk, and how it goes on from there.

use crate::clock::Instant;
use std::path::Path;
use std::time::Duration;

use super::super::checkpoint::{
    Progress, make_checkpoint, take_progress, take_residual, take_stale, take_weights, weights_file,
};
use super::super::folder::{MetricsFile, RunFolder, there};
use super::super::shards::Shards;
use super::super::step::{BadNumber, find_bad};
use super::super::{CHECKPOINT_SECONDS, Carried, Event, Task, TensorFile};
use super::{Fit, first_params, model_text, set_buffers};
use crate::group::{Frame, meet};
use crate::{Error, Model, Result};

/// What takes longer isn't waited for when the run is to stop.
const LONG: Duration = Duration::from_millis(300);
/// As much work may be lost by a signal in an evaluation or a long step, beside the step itself.
const WORTH_SAVING: Duration = Duration::from_secs(1);
/// Checkpoints before long steps take at most this part of the time.
const SAVING_SHARE: u32 = 10;

impl<T: Task> Fit<'_, T> {
    /// Writes the first checkpoint: shows that the folder can be written to before hours are
    /// spent. Where it can't, nothing of the run stays behind.
    pub(in super::super) fn begin_in(&mut self, folder: RunFolder) -> Result<()> {
        self.folder = Some(folder);
        self.save().inspect_err(|_| {
            if let Some(folder) = self.folder.take() {
                folder.abandon();
            }
        })
    }

    /// Takes up the state of the folder's checkpoint, or of the one before where it is damaged. A run
    /// that was killed before it had one begins.
    pub(in super::super) fn resume_in(&mut self, folder: RunFolder) -> Result<()> {
        let (newest, previous) = (folder.checkpoint(), folder.previous());
        match (there(&newest)?, there(&previous)?) {
            (false, false) => return self.begin_again(folder),
            (true, false) => self.take_up(&newest)?,
            (false, true) => {
                self.take_up(&previous)?;
                self.say_fallen_back(&previous, &format!("{}: is not there", newest.display()));
            }
            (true, true) => {
                if let Err(error) = self.take_up(&newest) {
                    // Where it doesn't fit either, both are of another model or seed.
                    if self.take_up(&previous).is_err() {
                        return Err(error);
                    }
                    self.say_fallen_back(&previous, &error.to_string());
                }
            }
        }
        self.take_best(&folder)?;
        // Losses since the last evaluation: that of this step, if there was one, came after the
        // checkpoint and is made up for.
        let evaluated = match self.progress.loss_count {
            0 => self.progress.step,
            _ => self.progress.step.saturating_sub(1),
        };
        self.records = MetricsFile::read(&folder.metrics(), evaluated)?;
        // What was lost in the crash is written again, in place of rows beyond the checkpoint.
        self.metrics.rewrite(&folder.metrics(), &self.records)?;
        folder.write(&folder.experiment(), &self.experiment.to_toml())?;
        self.folder = Some(folder);
        Ok(())
    }

    /// Brings what rank 0 took up to everybody.
    pub(in super::super) fn spread(&mut self) -> Result<()> {
        let group = self.group;
        if group.size() == 1 {
            return Ok(());
        }
        meet(group, Frame::Fine(&[]))?;
        let mut bytes = match group.rank() {
            0 => self.checkpoint()?.to_bytes(),
            _ => Vec::new(),
        };
        group.broadcast(&mut bytes);
        match group.rank() {
            0 => Ok(()),
            _ => {
                let path = Path::new("the checkpoint of rank 0");
                self.take_state(&TensorFile::decode(path, &bytes)?, path)
            }
        }
    }

    /// Begins a run whose folder is there and has no checkpoint.
    fn begin_again(&mut self, folder: RunFolder) -> Result<()> {
        let said = format!(
            "{}: there is no checkpoint, the run was stopped before its first one; it begins at step 0",
            folder.path().display()
        );
        self.observer.event(Event::Warning(&said));
        self.stepper.params = first_params(self.experiment, self.task)?;
        self.stepper.restart_pipeline();
        self.best_params.copy_from_slice(&self.stepper.params);
        self.best_buffers = self.task.model().buffers();
        folder.write(&folder.experiment(), &self.experiment.to_toml())?;
        self.folder = Some(folder);
        self.save()
    }

    fn say_fallen_back(&mut self, previous: &Path, problem: &str) {
        // What is damaged must not take the place of what is whole.
        self.keeps_previous = false;
        let said = format!(
            "{problem}; going on from the checkpoint before it, {}, after step {}",
            previous.display(),
            self.progress.step
        );
        self.observer.event(Event::Warning(&said));
    }

    /// Takes up the state of a checkpoint.
    fn take_up(&mut self, path: &Path) -> Result<()> {
        self.take_state(&TensorFile::read(path)?, path)
    }

    fn take_state(&mut self, file: &TensorFile, path: &Path) -> Result<()> {
        self.check_model(file, path)?;
        let model = self.task.model_mut();
        self.stepper.params = take_weights(file, path, model)?;
        let progress = take_progress(file, path, model.layout(), &mut self.stepper.optimizer)?;
        self.carried = Carried {
            loss_scale: progress.loss_scale,
            residual: take_residual(file, path, model.layout())?,
        };
        if self.spec.pipeline > 0 {
            self.stepper
                .pipeline(take_stale(file, path, model.layout())?);
        }
        self.check_seed(&progress, path)?;
        self.progress = progress;
        self.best_params.copy_from_slice(&self.stepper.params);
        self.best_buffers = self.task.model().buffers();
        Ok(())
    }

    /// The best parameters so far, where something has decided.
    fn take_best(&mut self, folder: &RunFolder) -> Result<()> {
        if self.progress.best.is_none() {
            return Ok(());
        }
        let path = folder.model();
        if !there(&path)? {
            self.progress.best = None;
            let said = format!(
                "{}: is not there; the next evaluated parameters count as the best so far",
                path.display()
            );
            self.observer.event(Event::Warning(&said));
            return Ok(());
        }
        let model = self.task.model_mut();
        let last = std::mem::take(&mut self.best_buffers);
        let file = TensorFile::read(&path)?;
        self.best_params = take_weights(&file, &path, model)?;
        self.best_buffers = model.buffers();
        set_buffers(model, &last)
    }

    /// A checkpoint says which model it belongs to.
    fn check_model(&self, file: &TensorFile, path: &Path) -> Result<()> {
        let own = model_text(self.experiment);
        match file.metadata.get("model") {
            Some(theirs) if *theirs != own => Err(Error::file(
                path,
                "metadata \"model\"",
                format!(
                    "the checkpoint is of another model: got {theirs}, the experiment needs {own}"
                ),
            )),
            _ => Ok(()),
        }
    }

    fn check_seed(&self, progress: &Progress, path: &Path) -> Result<()> {
        if progress.seed == self.spec.seed {
            return Ok(());
        }
        Err(Error::file(
            path,
            "seed",
            format!(
                "got {} from the experiment, the run was started with {}",
                self.spec.seed, progress.seed
            ),
        ))
    }

    /// Sees to it that the checkpoint is the last good state, and says where it is.
    pub(super) fn keep_last_good(&mut self, bad: &BadNumber) -> String {
        let path = self.folder.as_ref().map(RunFolder::checkpoint);
        let at = path.map(|path| path.display().to_string());
        if bad.half_updated {
            // No state of a run: some tensors are those after the step, the others before it.
            return at.map_or_else(String::new, |at| {
                format!("; the last checkpoint, before it, is {at}")
            });
        }
        // The parameters are those before this step: the last good state, unless the step before
        // made them overflow. Then `save` refuses them and the older checkpoint stays.
        match (self.save(), at) {
            (Ok(()), Some(at)) => format!("; the state before it is in {at}"),
            _ => String::new(),
        }
    }

    /// Whether a step, begun at that one, ends where checkpoints are to be made.
    fn at_interval(&self, before: u64) -> bool {
        let step = self.progress.step;
        let every = self.spec.checkpoint_every;
        every.is_some_and(|every| before / every != step / every)
    }

    pub(super) fn save_at_interval(&mut self, before: u64) {
        let due = match self.spec.checkpoint_every {
            Some(_) => self.at_interval(before),
            None => self.saved.elapsed() >= Duration::from_secs(CHECKPOINT_SECONDS),
        };
        if due {
            self.save_or_say();
        }
    }

    /// Whether this process may want to save after the next step: where processes have slices of the
    /// optimizer's state, they bring it together in time.
    pub(super) fn is_to_save(&self) -> bool {
        let soon = self.saved.elapsed() + 2 * self.last_step.unwrap_or_default();
        let per_epoch = self.task.steps_per_epoch().max(1);
        let left = per_epoch - self.progress.step % per_epoch;
        let before_evaluation = left <= self.spec.accumulate && self.evaluates_long();
        let after = match self.spec.checkpoint_every {
            _ if self.steps_long() || before_evaluation => Some(WORTH_SAVING),
            None => Some(Duration::from_secs(CHECKPOINT_SECONDS)),
            Some(_) => None,
        };
        self.folder.is_some() && after.is_some_and(|after| soon >= after)
    }

    /// Brings the optimizer's state together where anybody is to save it after the step begun at that one.
    pub(super) fn gather_state_to_save(&mut self, before: u64) {
        let saves = |shards: &Shards<'_, _>| shards.saves || shards.stopped;
        if self.shards.as_ref().is_some_and(saves) || self.at_interval(before) {
            self.gather_state();
        }
    }

    /// Brings the optimizer's state together, where processes have slices of it. All of them come here.
    pub(super) fn gather_state(&mut self) {
        if let Some(shards) = self.shards.as_ref().filter(|_| !self.state_here) {
            shards.gather_state(&mut self.stepper.optimizer);
        }
        self.state_here = true;
    }

    /// Whether an evaluation takes its time, as far as is known.
    pub(super) fn evaluates_long(&self) -> bool {
        self.last_evaluation.is_none_or(|t| t >= LONG)
    }

    /// Whether a step takes its time, as far as is known, and less is lost by ending the process in it
    /// than by waiting for it: checkpoints are quick beside it.
    pub(super) fn steps_long(&self) -> bool {
        self.last_step
            .is_none_or(|t| t >= LONG && t >= SAVING_SHARE * self.last_save)
    }

    /// A signal may end the process in a long step, as in an evaluation: the step is made again by the
    /// run that goes on. What came before it is saved.
    pub(super) fn before_long_step(&mut self) -> Result<()> {
        if self.folder.is_some() && self.saved.elapsed() >= WORTH_SAVING {
            self.save_or_say();
        }
        self.observer.event(Event::LongStep);
        // Whoever asked before this event saw nothing to wait for.
        self.end_if_stopped()
    }

    /// A signal may end the process in an evaluation, which a resumed run makes up for. Where it takes
    /// its time, and there is something to lose, that is saved before.
    pub(super) fn save_before_evaluation(&mut self) {
        if self.evaluates_long() && self.folder.is_some() && self.saved.elapsed() >= WORTH_SAVING {
            self.save_or_say();
        }
    }

    fn save_or_say(&mut self) {
        // After the next step, then: it brings the optimizer's state together.
        if !self.state_here {
            return;
        }
        if let Err(error) = self.save() {
            // What is on the disk is still whole; the disk may have room again next time.
            self.observer.event(Event::SaveFailed(&error));
            self.saved = Instant::now();
        }
    }

    /// The best parameters and buffers as `model.safetensors` has them.
    pub(super) fn best_file(&mut self) -> Result<TensorFile> {
        let metadata = self.task.metadata();
        let model = self.task.model_mut();
        let last_buffers = model.buffers();
        set_buffers(model, &self.best_buffers)?;
        let mut best = weights_file(model, &self.best_params, &metadata);
        set_buffers(model, &last_buffers)?;
        let own = model_text(self.experiment);
        best.metadata.insert("model".into(), own);
        Ok(best)
    }

    /// The state of the run.
    fn checkpoint(&mut self) -> Result<TensorFile> {
        let metadata = self.task.metadata();
        let model = self.task.model_mut();
        let mut file = weights_file(model, &self.stepper.params, &metadata);
        let own = model_text(self.experiment);
        file.metadata.insert("model".into(), own);
        let optimizer = &self.stepper.optimizer;
        if let Some(accelerator) = &mut self.accelerator {
            self.carried = accelerator.carried()?;
        }
        self.progress.loss_scale = self.carried.loss_scale;
        let residual = &self.carried.residual;
        make_checkpoint(
            &mut file,
            model.layout(),
            optimizer,
            [residual, self.stepper.stale.as_deref().unwrap_or(&[])],
            &self.progress,
        );
        Ok(file)
    }

    /// Writes the model's and the checkpoint's files, each whole or not at all.
    pub(super) fn save(&mut self) -> Result<()> {
        self.sync()?;
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let start = Instant::now();
        let (model, params) = (self.task.model_mut(), &self.stepper.params);
        if let Some(bad) = find_bad(params, model.layout(), 0..params.len(), "the parameter") {
            return Err(Error::NotFinite {
                step: self.progress.step,
                tensor: bad.tensor,
                value: bad.value,
                advice: "it is not saved; the last checkpoint stays".into(),
            });
        }
        if self.best_changed {
            let path = folder.model();
            self.best_file()?.write(&path)?;
            self.best_changed = false;
        }
        let file = self.checkpoint()?;
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        // Rows of epochs before a checkpoint are not written again after it.
        self.metrics.sync(&folder.metrics())?;
        let (path, previous) = (folder.checkpoint(), folder.previous());
        file.write_keeping(&path, self.keeps_previous.then_some(&*previous))?;
        self.keeps_previous = true;
        self.last_save = start.elapsed();
        self.progress.saving += start.elapsed().as_secs_f64();
        self.saved = Instant::now();
        self.observer.event(Event::Saved(&path));
        Ok(())
    }
}
