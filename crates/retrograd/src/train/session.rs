//! A run: its settings, where it writes, who watches and how it is stopped.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::auto::{self, Clock};
use super::fit::Fit;
use super::folder::RunFolder;
use super::{Experiment, Findings, Observer, Placement, Quiet, Summary, Task, shards};
use crate::clock::Instant;
use crate::group::{Alone, Courier, Frame, Group, Tree, meet, with_courier};
use crate::verify::Mistake;
use crate::{Error, Model, Result, budget, simd};

/// One run of an experiment.
pub struct Session<'a> {
    experiment: Experiment,
    folder: Place,
    placement: Placement,
    /// Where it may be placed, and who says how long steps take there.
    places: Vec<Placement>,
    clock: Option<Clock<'a>>,
    group: Option<&'a dyn Group>,
    verify: bool,
    report: bool,
    stop: Option<&'a AtomicBool>,
    observer: Option<&'a mut (dyn Observer + Send)>,
    plan: Option<&'a mut String>,
    mistake: Option<Mistake>,
    mistakes: Option<&'a mut Vec<String>>,
    kept: Option<&'a mut Vec<f32>>,
    added: Findings,
}

/// Where a run writes.
enum Place {
    Memory,
    New(PathBuf),
    Resume(PathBuf),
}

impl<'a> Session<'a> {
    /// A run in memory, that writes no files.
    pub fn new(experiment: Experiment) -> Self {
        Session {
            experiment,
            folder: Place::Memory,
            placement: Placement::Cpu,
            places: Vec::new(),
            clock: None,
            group: None,
            verify: false,
            report: true,
            stop: None,
            observer: None,
            plan: None,
            mistake: None,
            mistakes: None,
            kept: None,
            added: Findings::default(),
        }
    }

    /// A new run that writes into a folder. It is made when the task has been built: bad data
    /// leave nothing behind.
    pub fn in_folder(mut self, path: impl Into<PathBuf>) -> Self {
        self.folder = Place::New(path.into());
        self
    }

    /// Goes on with the run in a folder.
    pub fn resuming(mut self, path: impl Into<PathBuf>) -> Self {
        self.folder = Place::Resume(path.into());
        self
    }

    /// Where steps are computed.
    pub fn placed(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Steps are computed at the fastest of these places, which a few steps at each decide. The experiment
    /// keeps it: a resumed run that says nothing of its own stays there.
    pub fn placed_by_time(mut self, places: Vec<Placement>) -> Self {
        self.places = places;
        self
    }

    /// The clock that [`Session::placed_by_time`] looks at.
    #[doc(hidden)]
    pub fn timed_by(mut self, clock: Clock<'a>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The processes that share the work. Every one of them makes the same session of the same
    /// experiment; files are rank 0's, and so is the summary.
    pub fn in_group(mut self, group: &'a dyn Group) -> Self {
        self.group = Some(group);
        self
    }

    /// Whether the trained model is verified at the end, for summary and report; it takes from a
    /// part of a second to a few. Only in a folder, and not unless asked for.
    pub fn verified(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// Whether curves and report are drawn at the end. They are unless it is said otherwise.
    pub fn reported(mut self, report: bool) -> Self {
        self.report = report;
        self
    }

    /// Where steps are computed.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Who watches.
    pub fn observed_by(mut self, observer: &'a mut (dyn Observer + Send)) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Leaves the [plan](crate::Model::plan_text) of a training step here, instead of training.
    pub fn planned_into(mut self, plan: &'a mut String) -> Self {
        self.plan = Some(plan);
        self
    }

    /// Trains, and verifies, with a mistake in the gradients: to see what it does, and that it is seen.
    pub fn with_mistake(mut self, mistake: Mistake) -> Self {
        self.mistake = Some(mistake);
        self
    }

    /// Leaves the mistakes that the experiment's model can have here, instead of training.
    pub fn mistakes_into(mut self, mistakes: &'a mut Vec<String>) -> Self {
        self.mistakes = Some(mistakes);
        self
    }

    /// Leaves the best parameters here at the end (the last where nothing is measured). The task's
    /// model has the buffers that belong to them.
    pub fn kept_in(mut self, params: &'a mut Vec<f32>) -> Self {
        self.kept = Some(params);
        self
    }

    /// What others found out about the experiment: its summary and report have it, too.
    pub fn with_findings(mut self, added: Findings) -> Self {
        self.added = added;
        self
    }

    /// Training saves and ends when this becomes true.
    pub fn stopped_by(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// The experiment, with what the command line changed.
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// Writes the experiment's `[data]` in another way, before training: what was read from files
    /// that the run should not need.
    pub(crate) fn set_data(&mut self, data: toml::Table) {
        self.experiment.data = data;
    }

    /// The run's folder, where it has one.
    pub fn folder(&self) -> Option<&Path> {
        match &self.folder {
            Place::Memory => None,
            Place::New(path) | Place::Resume(path) => Some(path),
        }
    }

    /// Tells who watches something to know before training begins.
    pub fn note(&mut self, text: &str) {
        if let Some(observer) = self.observer.as_deref_mut() {
            observer.event(super::Event::Note(text));
        }
    }

    /// Trains a task to the end of the experiment, its steps computed where the run is placed.
    pub fn fit<T: Task>(&mut self, task: &mut T) -> Result<Summary> {
        simd::asked()?;
        self.experiment.train.check()?;
        for note in task.notes() {
            self.note(note);
        }
        if let Some(plan) = self.plan.as_deref_mut() {
            *plan = task.model().plan_text();
            return Ok(Summary::default());
        }
        if let Some(mistakes) = self.mistakes.as_deref_mut() {
            *mistakes = task.model().mistakes();
            return Ok(Summary::default());
        }
        if let Some(mistake) = self.mistake.clone() {
            task.model_mut().make_mistake(&mistake)?;
            let note = "there is a mistake in this run's gradients, on purpose";
            self.note(&format!("{note}: {}", mistake.words));
        }
        budget::allow(&task.demand(&self.experiment.train))?;
        self.place_by_time(task)?;
        let shards = shards::choose(task, self.experiment.train.shards, self.group)?;
        if let Some(shards) = shards {
            self.experiment.train.shards = Some(shards);
            self.experiment.train.check()?;
        }
        let group = self.group.unwrap_or(&Alone);
        if group.rank() > 0
            && let Place::New(_) = self.folder
        {
            self.folder = Place::Memory;
        }
        let tree = Tree::new(shards.unwrap_or(1));
        with_courier(group, tree, |courier| self.fit_with(task, shards, courier))
    }

    /// Chooses among several places; a run that goes on stays where it is.
    fn place_by_time<T: Task>(&mut self, task: &mut T) -> Result<()> {
        if self.places.is_empty() {
            return Ok(());
        }
        let known = self.experiment.train.device.as_deref();
        if let (Some(text), Place::Resume(_)) = (known, &self.folder) {
            self.placement = Placement::parse(text)?;
            return Ok(());
        }
        let spec = &self.experiment.train;
        let (placement, line) = match &mut self.clock {
            Some(clock) => auto::choose(task, spec, &self.places, clock)?,
            None => {
                let begun = Instant::now();
                let mut clock = || begun.elapsed().as_secs_f64();
                auto::choose(task, spec, &self.places, &mut clock)?
            }
        };
        self.experiment.train.device = Some(placement.to_text());
        self.placement = placement;
        self.note(&line);
        Ok(())
    }

    fn fit_with<T: Task>(
        &mut self,
        task: &mut T,
        shards: Option<usize>,
        courier: &Courier<'_>,
    ) -> Result<Summary> {
        let mut quiet = Quiet;
        let observer: &mut dyn Observer = match self.observer.as_deref_mut() {
            Some(observer) => observer,
            None => &mut quiet,
        };
        let resume = matches!(self.folder, Place::Resume(_));
        let mut fit = Fit::new(&self.experiment, task, observer, self.stop, resume)?;
        fit.check_attempts()?;
        fit.share(shards, courier);
        fit.verify = self.verify;
        fit.mistake = self.mistake.as_ref();
        fit.report = self.report;
        fit.kept = self.kept.as_deref_mut();
        fit.added = self.added.clone();
        match &self.folder {
            Place::Memory => {
                fit.accelerate(&self.placement)?;
                fit.compare()?;
            }
            Place::New(path) => {
                fit.accelerate(&self.placement)?;
                // A process that can't go on leaves nothing behind.
                fit.compare()?;
                fit.begin_in(RunFolder::create(path, &self.experiment)?)?;
            }
            Place::Resume(path) => {
                if courier.group().rank() == 0 {
                    fit.resume_in(RunFolder::open(path)?)?;
                }
                fit.spread()?;
                fit.accelerate(&self.placement)?;
                fit.compare()?;
            }
        }
        fit.run()
    }

    /// What came out at all processes: where one of them failed on its own, all do.
    pub(crate) fn settle(&self, result: Result<Summary>) -> Result<Summary> {
        let Some(group) = self.group.filter(|group| group.size() > 1) else {
            return result;
        };
        let met = match &result {
            // They know already.
            Err(Error::Process { .. }) => return result,
            // All have agreed to stop; rank 0 may have failed to save.
            Ok(_) | Err(Error::Interrupted { .. }) => meet(group, Frame::Fine(&[])),
            Err(error) => meet(group, Frame::Failed(error)),
        };
        match (met, result) {
            // The error itself says more than its text.
            (Err(Error::Process { rank, .. }), Err(own)) if rank == group.rank() => Err(own),
            (Err(error), _) => Err(error),
            (Ok(_), result) => result,
        }
    }
}
