//! The shards of this process: computed one after the other, or side by side.

use std::ops::Range;
use std::sync::Arc;

use super::outbox::{Outbox, Said, Tells, Watcher};
use super::{Asked, Shards, lock};
use crate::clock::Instant;
use crate::group::{Segments, Shared, in_step};
use crate::train::step::{Watch, Work, gradient_of, gradient_of_segments};
use crate::train::{Accelerator, Lesson, Stepper, Task};
use crate::{Error, Loss, Model, Pass, Result, Target, parallel};

impl<M: Model> Shards<'_, M> {
    /// What a shard's gradient counts for in the batch's.
    fn share(&self, target: &Target<f32>, samples: usize, all: usize, asked: &Asked) -> f32 {
        let share = match (asked.loss, &target.weights) {
            (Loss::SumSquares, _) => 1.0,
            (_, None) => samples as f64 / all as f64,
            (_, Some(_)) => asked.loss.weight(target) / all as f64,
        };
        (share * f64::from(asked.share)) as f32
    }

    /// What a shard says beside its loss.
    fn said(&self, target: &Target<f32>, asked: &Asked) -> Said {
        Said {
            loss: 0.0,
            weight: asked.loss.weight(target),
            weighted: target.weights.is_some(),
        }
    }

    /// The shard's example.
    fn load<T: Task<Model = M>>(
        &mut self,
        task: &mut T,
        step: u64,
        place: usize,
        samples: Range<usize>,
    ) -> Result<()> {
        let start = Instant::now();
        let loaded = task.part(step, samples, &mut self.examples[place]);
        self.loading += start.elapsed().as_secs_f64();
        loaded
    }

    /// What so many shards are computed in at once.
    fn prepare(&mut self, shards: usize, stepper: &Stepper<M>) {
        let works = shards.max(self.works.len());
        self.works.resize_with(works, Default::default);
        for work in &self.works {
            let mut work = lock(work);
            if work.image_loss.is_none() {
                work.image_loss.clone_from(&stepper.image_loss);
            }
        }
    }

    /// All shards of a subtree at once, a subtree after the other. The last one's gradient is sent as it is
    /// computed.
    pub(super) fn together<T: Task<Model = M>>(
        &mut self,
        task: &mut T,
        stepper: &mut Stepper<M>,
        all: usize,
        asked: &Asked,
        outbox: &Outbox<'_>,
    ) -> Result<()> {
        self.prepare(1, stepper);
        let roots = self.tree.roots(&self.own);
        for root in &roots {
            let of = |shard| self.samples_of(shard, all);
            let samples = of(root.start).start..of(root.end - 1).end;
            let place = root.start - self.own.start;
            self.load(task, asked.step, place, samples.clone())?;
            let example = self.examples[place].as_ref().expect("a task gives a part");
            let segments = Segments::new(all, self.tree.shards(), root.clone());
            let pass = Pass::training(asked.key.step(asked.step)).from(samples.start);
            let pass = pass.of_segments(segments);
            let lesson = Lesson::new(asked.loss, example, &pass);
            let last = outbox.early && roots.last() == Some(root);
            let mut watch = Watcher {
                outbox,
                node: root.clone(),
                said: Said::default(),
                tells: if last { Tells::Last } else { Tells::Nothing },
            };
            let mut each = |segment, target: &Target<f32>, loss| {
                let said = self.said(target, asked);
                outbox.loss(root.start + segment, Said { loss, ..said });
                self.share(target, segments.rows(segment).len(), all, asked)
            };
            let work = &mut *lock(&self.works[0]);
            work.grads = outbox.memory();
            let (model, params) = (task.model(), &stepper.params);
            gradient_of_segments(
                model, params, &lesson, segments, &mut each, work, &mut watch,
            )?;
            let grads = std::mem::take(&mut work.grads);
            match last {
                true => outbox.spare(grads),
                false => outbox.give(root.clone(), grads, false),
            }
        }
        Ok(())
    }

    /// A shard after the other. The last one's gradient is sent as it is computed.
    pub(super) fn one_by_one<T: Task<Model = M>>(
        &mut self,
        task: &mut T,
        stepper: &mut Stepper<M>,
        mut accelerator: Option<&mut Box<dyn Accelerator<M>>>,
        all: usize,
        asked: &Asked,
        outbox: &Outbox<'_>,
    ) -> Result<()> {
        self.prepare(1, stepper);
        let shards = outbox.shards();
        for &shard in &shards {
            let samples = self.samples_of(shard, all);
            let place = shard - self.own.start;
            self.load(task, asked.step, place, samples.clone())?;
            let example = self.examples[place].as_ref().expect("a task gives a part");
            let share = self.share(&example.target, samples.len(), all, asked);
            let said = self.said(&example.target, asked);
            let mut grads = outbox.memory();
            if let Some(accelerator) = accelerator.as_deref_mut() {
                // A device draws by the element of its own batch: every shard has a key of its own.
                let key = asked.key.step(asked.step | (shard as u64) << 48);
                let pass = Pass::training(key);
                let params = &stepper.params;
                let loss = accelerator.gradient(params, asked.loss, example, &pass, &mut grads)?;
                grads.iter_mut().for_each(|g| *g *= share);
                outbox.loss(shard, Said { loss, ..said });
                outbox.give(shard..shard + 1, grads, true);
                continue;
            }
            let pass = Pass::training(asked.key.step(asked.step)).from(samples.start);
            let lesson = Lesson::new(asked.loss, example, &pass);
            let last = outbox.early && shards.last() == Some(&shard);
            let mut watch = Watcher {
                outbox,
                node: shard..shard + 1,
                said,
                tells: if last { Tells::Last } else { Tells::Nothing },
            };
            let work = &mut *lock(&self.works[0]);
            work.grads = grads;
            let (model, params) = (task.model(), &stepper.params);
            gradient_of(model, params, &lesson, share, work, &mut watch)?;
            let grads = std::mem::take(&mut work.grads);
            match last {
                true => outbox.spare(grads),
                false => outbox.give(shard..shard + 1, grads, true),
            }
        }
        Ok(())
    }

    /// The same with a thread for each shard. Where they look at each other all run at once, and a process
    /// without samples goes along with the first shard, and adds nothing.
    pub(super) fn side_by_side<T: Task<Model = M>>(
        &mut self,
        task: &mut T,
        stepper: &mut Stepper<M>,
        all: usize,
        asked: &Asked,
        couples: bool,
        outbox: &Outbox<'_>,
    ) -> Result<()> {
        let mut shards = outbox.shards();
        let shadow = couples && shards.is_empty();
        if shadow {
            let first = (0..self.tree.shards()).find(|&s| !self.samples_of(s, all).is_empty());
            shards.push(first.unwrap_or(0));
        }
        if couples && self.works.is_empty() && !parallel::can_start(shards.len()) {
            return Err(Error::refused(
                "train.shards",
                format!(
                    "the system refuses {} threads, one for every shard of this process: batch norm \
                     looks at all at once; take fewer shards, or another norm",
                    shards.len()
                ),
            ));
        }
        self.prepare(shards.len(), stepper);
        for (place, &shard) in shards.iter().enumerate() {
            self.load(task, asked.step, place, self.samples_of(shard, all))?;
            lock(&self.works[place]).grads = outbox.memory();
        }
        let (model, params, this) = (task.model(), &stepper.params, &*self);
        let compute = |place: usize| {
            let shard = shards[place];
            let samples = this.samples_of(shard, all);
            let example = this.examples[place].as_ref().expect("loaded above");
            let share = this.share(&example.target, samples.len(), all, asked);
            let pass = Pass::training(asked.key.step(asked.step)).from(samples.start);
            let lesson = Lesson::new(asked.loss, example, &pass);
            let tells = match outbox.early {
                true => Tells::Beside(0),
                false => Tells::Nothing,
            };
            let said = this.said(&example.target, asked);
            let mut watcher = Watcher {
                outbox,
                node: shard..shard + 1,
                said,
                tells,
            };
            let watch: &mut dyn Watch = if shadow { &mut () } else { &mut watcher };
            let work: &mut Work<M> = &mut lock(&this.works[place]);
            gradient_of(model, params, &lesson, share, work, watch)
        };
        let mut failed = None;
        let exchange = |own: Vec<Option<Vec<f64>>>| this.exchange(own, shadow, all, &mut failed);
        let results = match couples {
            true => in_step(shards.len(), exchange, compute),
            false => parallel::apart(shards.len(), compute),
        };
        for result in results {
            result?;
        }
        if let Some(error) = failed {
            return Err(error);
        }
        for (place, &shard) in shards.iter().enumerate() {
            let grads = std::mem::take(&mut lock(&self.works[place]).grads);
            match outbox.early || shadow {
                true => outbox.spare(grads),
                false => outbox.give(shard..shard + 1, grads, false),
            }
        }
        Ok(())
    }

    /// Everybody's values, by shard, from those of this process's shards. After a failure only these.
    fn exchange(
        &self,
        own: Vec<Option<Vec<f64>>>,
        shadow: bool,
        all: usize,
        failed: &mut Option<Error>,
    ) -> Shared {
        let whole = own.iter().all(Option::is_some);
        let mut bytes = Vec::new();
        for value in own.iter().flatten().flatten().filter(|_| !shadow) {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        if !whole || failed.is_some() {
            return Arc::new(own);
        }
        let met = match self.courier.meet(bytes) {
            Ok(met) => met,
            Err(error) => {
                *failed = Some(error);
                return Arc::new(own);
            }
        };
        let mut values = Vec::with_capacity(self.tree.shards());
        for (rank, bytes) in met.iter().enumerate() {
            let shards = self.tree.of_process(rank, met.len());
            let full = |&shard: &usize| !self.samples_of(shard, all).is_empty();
            let count = shards.clone().filter(full).count();
            let numbers = bytes.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b));
            let mut parts = numbers.collect::<Vec<f64>>().into_iter();
            let each = parts.len() / count.max(1);
            values.extend(
                shards.map(|shard| full(&shard).then(|| parts.by_ref().take(each).collect())),
            );
        }
        Arc::new(values)
    }
}
