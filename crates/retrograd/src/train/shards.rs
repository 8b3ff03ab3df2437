//! A batch that is cut into shards: every shard's gradient alone, added along the tree of
//! [`crate::group`].
//!
//! With mean losses, a shard of n of the batch's N samples counts for n/N. Where targets have weights,
//! the mean is over all weights W = Σ w of the batch, which is known when all shards have said theirs:
//! a shard's gradient is scaled by its own sum of weights over N, and the sum by N/W at the end.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::step::{Work, gradient_of};
use super::{Accelerator, Example, Lesson, Stepper, Task, TrainSpec};
use crate::clock::Instant;
use crate::group::{Frame, Group, Leaf, Roots, Shared, Sums, Tree, add_to, cut, in_step, meet};
use crate::rng::Key;
use crate::{Error, Loss, Model, Pass, Result, parallel};

/// Shards of a batch where the experiment says nothing and processes are to share it.
const SHARDS: usize = 8;

/// The shards of an experiment's batches; none where it has none and no group asks for them.
pub(super) fn choose<T: Task>(
    task: &T,
    train: &TrainSpec,
    group: Option<&dyn Group>,
) -> Result<Option<usize>> {
    let size = group.map_or(1, Group::size);
    let (name, least) = task.shard_of();
    let Some(samples) = task.samples(0) else {
        if train.shards.is_none() && size == 1 {
            return Ok(None);
        }
        let (what, got) = match train.shards {
            Some(shards) => ("train.shards", shards.to_string()),
            None => ("processes", size.to_string()),
        };
        return Err(Error::invalid(
            what,
            format!("{got} for a batch that is one graph in one piece"),
            "1: its nodes depend on each other in every layer; threads share it (--threads)",
        ));
    };
    let shards = match (train.shards, group) {
        (Some(shards), _) => shards,
        (None, Some(_)) => (samples / least).clamp(1, SHARDS),
        (None, None) => return Ok(None),
    };
    if shards > samples {
        return Err(Error::invalid(
            "train.shards",
            format!("{shards} for batches of {samples} {name}"),
            format!("at most {samples}, or a larger train.batch"),
        ));
    }
    if size > shards {
        return Err(Error::invalid(
            "train.shards",
            format!("{shards} (of a batch of {samples} {name}) for {size} processes"),
            format!("at least {size}, a larger train.batch, or fewer processes"),
        ));
    }
    Ok(Some(shards))
}

/// What a step asks of the shards of one batch.
pub(super) struct Asked {
    pub loss: Loss,
    /// The step's random key.
    pub key: Key,
    pub step: u64,
    /// What the gradient is scaled by.
    pub share: f32,
    /// Whether it is added to the one that is there.
    pub add: bool,
    /// Whether this process was asked to stop.
    pub stop: bool,
}

/// The shards of a run, and this process's among them.
pub(super) struct Shards<'a, M: Model> {
    group: &'a dyn Group,
    tree: Tree,
    own: Range<usize>,
    /// Memory of gradients, of examples and, where shards are computed side by side, of these.
    sums: Sums,
    examples: Vec<Option<Example<M>>>,
    works: Vec<Mutex<Work<M>>>,
    /// Whether any process was asked to stop, as all of them know.
    pub stopped: bool,
    /// Seconds spent on making batches.
    pub loading: f64,
}

/// What a shard says of its batch: the loss, and the sum of its weights.
#[derive(Clone, Copy, Default)]
struct Said {
    loss: f64,
    weight: f64,
}

impl<'a, M: Model> Shards<'a, M> {
    pub fn new(shards: usize, group: &'a dyn Group) -> Self {
        let tree = Tree::new(shards);
        let own = tree.of_process(group.rank(), group.size());
        Shards {
            group,
            tree,
            sums: Sums::default(),
            examples: own.clone().map(|_| None).collect(),
            works: Vec::new(),
            own,
            stopped: false,
            loading: 0.0,
        }
    }

    /// The samples of all shards of this process, of batches of that many.
    pub fn own_samples(&self, samples: usize) -> Range<usize> {
        let of = |shard| cut(samples, shard, self.tree.shards());
        of(self.own.start).start..of(self.own.end - 1).end
    }

    /// The samples of a shard; where there are fewer than shards, some have none.
    fn samples_of(&self, shard: usize, samples: usize) -> Range<usize> {
        cut(samples, shard, self.tree.shards())
    }

    /// Loss and gradient of a batch, the gradient in the stepper's; the same at every process.
    pub fn gradient<T: Task<Model = M>>(
        &mut self,
        task: &mut T,
        stepper: &mut Stepper<M>,
        accelerator: Option<&mut Box<dyn Accelerator<M>>>,
        asked: &Asked,
    ) -> Result<f64> {
        let samples = task.samples(asked.step).unwrap_or(1);
        let couples = task.model().couples_samples();
        // A shard is small: a thread for each does better than all threads on one after the other, where
        // there are enough of them.
        let threads = parallel::threads();
        let enough = accelerator.is_none() && threads > 1 && self.own.len() >= threads;
        let (roots, said) = match couples || enough {
            true => self.side_by_side(task, stepper, samples, asked, couples)?,
            false => self.one_by_one(task, stepper, accelerator, samples, asked)?,
        };
        let (said, weighted) = self.meet(asked, &said)?;
        let [mut loss, scale] = self.total(&said, samples, asked.loss, weighted);
        let bad = said.iter().map(|s| s.loss).find(|loss| !loss.is_finite());
        let finite = bad.is_none();
        if let Some(bad) = bad {
            loss = bad;
        }
        if finite {
            let (shards, len) = (self.tree.shards(), stepper.grads.len());
            let full = |shard: usize| !cut(samples, shard, shards).is_empty();
            let mut total = self.sums.over_all(self.group, self.tree, roots, full, len);
            if scale == 1.0 && !asked.add {
                std::mem::swap(&mut stepper.grads, &mut total);
            } else {
                take_total(&mut stepper.grads, &total, scale as f32, asked.add);
            }
            self.sums.free.push(total);
        } else {
            self.sums.free.extend(roots.into_iter().flatten());
        }
        if couples && finite {
            let work = lock(&self.works[0]);
            task.model_mut().absorb(&work.tape);
        }
        stepper.note_loss(loss, asked.add);
        Ok(loss)
    }

    /// The lesson's share in the batch's gradient, and what the shard says.
    fn share(&self, example: &Example<M>, samples: Range<usize>, all: usize, asked: &Asked) -> f32 {
        let share = match (asked.loss, &example.target.weights) {
            (Loss::SumSquares, _) => 1.0,
            (_, None) => samples.len() as f64 / all as f64,
            (_, Some(_)) => asked.loss.weight(&example.target) / all as f64,
        };
        (share * f64::from(asked.share)) as f32
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

    /// The sums of this process's subtrees, a shard after the other; no more gradients are alive than
    /// the tree is deep.
    fn one_by_one<T: Task<Model = M>>(
        &mut self,
        task: &mut T,
        stepper: &mut Stepper<M>,
        mut accelerator: Option<&mut Box<dyn Accelerator<M>>>,
        all: usize,
        asked: &Asked,
    ) -> Result<(Roots, Vec<Said>)> {
        let mut said = Vec::with_capacity(self.own.len());
        let (tree, mut roots) = (self.tree, Vec::new());
        let mut failed = None;
        // Taken out while the tree is walked.
        let free = Mutex::new(std::mem::take(&mut self.sums.free));
        for root in tree.roots(&self.own.clone()) {
            let mut leaf = |node: &Range<usize>| {
                if node.len() > 1 {
                    return Leaf::Inner;
                }
                let samples = self.samples_of(node.start, all);
                if samples.is_empty() || failed.is_some() {
                    said.push(Said::default());
                    return Leaf::Nothing;
                }
                let mut grads = lock(&free).pop().unwrap_or_default();
                grads.resize(stepper.grads.len(), 0.0);
                let device = accelerator.as_deref_mut();
                match self.one(
                    task,
                    stepper,
                    device,
                    node.start,
                    (samples, all),
                    asked,
                    &mut grads,
                ) {
                    Ok(one) => {
                        said.push(one);
                        Leaf::Value(grads)
                    }
                    Err(error) => {
                        failed = Some(error);
                        Leaf::Nothing
                    }
                }
            };
            let mut add = |mut a: Vec<f32>, b: Vec<f32>| {
                add_to(&mut a, &b);
                lock(&free).push(b);
                a
            };
            roots.push(tree.sum(root, &mut leaf, &mut add));
        }
        self.sums.free = free.into_inner().unwrap_or_else(PoisonError::into_inner);
        match failed {
            Some(error) => Err(error),
            None => Ok((roots, said)),
        }
    }

    /// One shard's gradient.
    fn one<T: Task<Model = M>>(
        &mut self,
        task: &mut T,
        stepper: &mut Stepper<M>,
        accelerator: Option<&mut Box<dyn Accelerator<M>>>,
        shard: usize,
        (samples, all): (Range<usize>, usize),
        asked: &Asked,
        grads: &mut [f32],
    ) -> Result<Said> {
        let place = shard - self.own.start;
        self.load(task, asked.step, place, samples.clone())?;
        let example = self.examples[place].as_ref().expect("a task gives a part");
        let share = self.share(example, samples.clone(), all, asked);
        let weight = asked.loss.weight(&example.target);
        let loss = match accelerator {
            Some(accelerator) => {
                // A device draws by the element of its own batch: every shard has a key of its own.
                let key = asked.key.step(asked.step | (shard as u64) << 48);
                let pass = Pass::training(key);
                let params = &stepper.params;
                let loss = accelerator.gradient(params, asked.loss, example, &pass, grads)?;
                grads.iter_mut().for_each(|g| *g *= share);
                loss
            }
            None => {
                let pass = Pass::training(asked.key.step(asked.step)).from(samples.start);
                let lesson = Lesson::new(asked.loss, example, &pass);
                stepper.gradient_into(task.model(), &lesson, share, grads)?
            }
        };
        Ok(Said { loss, weight })
    }

    /// The same with a thread for each shard. Where they look at each other all run at once, and a process
    /// without samples goes along with the first shard, and adds nothing.
    fn side_by_side<T: Task<Model = M>>(
        &mut self,
        task: &mut T,
        stepper: &mut Stepper<M>,
        all: usize,
        asked: &Asked,
        couples: bool,
    ) -> Result<(Roots, Vec<Said>)> {
        let mut shards: Vec<usize> = self.own.clone().collect();
        shards.retain(|&shard| !self.samples_of(shard, all).is_empty());
        let shadow = couples && shards.is_empty();
        if shadow {
            shards.push(
                (0..self.tree.shards())
                    .find(|&s| !self.samples_of(s, all).is_empty())
                    .unwrap_or(0),
            );
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
        let len = stepper.grads.len();
        self.works
            .resize_with(shards.len().max(self.works.len()), Mutex::default);
        for (place, &shard) in shards.iter().enumerate() {
            self.load(task, asked.step, place, self.samples_of(shard, all))?;
            let mut work = lock(&self.works[place]);
            if work.image_loss.is_none() {
                work.image_loss.clone_from(&stepper.image_loss);
            }
            work.grads.resize(len, 0.0);
        }
        let (model, params, this) = (task.model(), &stepper.params, &*self);
        let compute = |place: usize| {
            let samples = this.samples_of(shards[place], all);
            let example = this.examples[place].as_ref().expect("loaded above");
            let share = this.share(example, samples.clone(), all, asked);
            let pass = Pass::training(asked.key.step(asked.step)).from(samples.start);
            let lesson = Lesson::new(asked.loss, example, &pass);
            let work = &mut *lock(&this.works[place]);
            let loss = gradient_of(model, params, &lesson, share, work)?;
            let weight = asked.loss.weight(&example.target);
            Ok(Said { loss, weight })
        };
        let mut failed = None;
        let exchange = |own: Vec<Option<Vec<f64>>>| this.exchange(own, shadow, all, &mut failed);
        let results = match couples {
            true => in_step(shards.len(), exchange, compute),
            false => parallel::apart(shards.len(), compute),
        };
        let results: Result<Vec<Said>> = results.into_iter().collect();
        let results = results?;
        if let Some(error) = failed {
            return Err(error);
        }
        Ok(self.leaves(&shards, shadow, results))
    }

    /// What shards that were computed side by side come to.
    fn leaves(&mut self, shards: &[usize], shadow: bool, results: Vec<Said>) -> (Roots, Vec<Said>) {
        let mut said = vec![Said::default(); self.own.len()];
        if shadow {
            let roots = self.tree.roots(&self.own);
            return (roots.iter().map(|_| None).collect(), said);
        }
        for (&shard, one) in shards.iter().zip(results) {
            said[shard - self.own.start] = one;
        }
        let (works, free) = (&self.works, &mut self.sums.free);
        let tree = self.tree;
        let mut leaf = |node: &Range<usize>| {
            if node.len() > 1 {
                return Leaf::Inner;
            }
            match shards.iter().position(|&shard| shard == node.start) {
                Some(place) => Leaf::Value(std::mem::take(&mut lock(&works[place]).grads)),
                None => Leaf::Nothing,
            }
        };
        let mut add = |mut a: Vec<f32>, b: Vec<f32>| {
            add_to(&mut a, &b);
            free.push(b);
            a
        };
        let roots = tree.roots(&self.own).into_iter();
        let roots = roots
            .map(|root| tree.sum(root, &mut leaf, &mut add))
            .collect();
        // Given back, to be written over.
        for work in works {
            let mut work = lock(work);
            if work.grads.is_empty() {
                work.grads = free.pop().unwrap_or_default();
            }
        }
        (roots, said)
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
        let met = match meet(self.group, Frame::Fine(&bytes)) {
            Ok(met) => met,
            Err(error) => {
                *failed = Some(error);
                return Arc::new(own);
            }
        };
        let mut values = Vec::with_capacity(self.tree.shards());
        for (rank, bytes) in met.iter().enumerate() {
            let shards = self.tree.of_process(rank, self.group.size());
            let full = |&shard: &usize| !self.samples_of(shard, all).is_empty();
            let count = shards.clone().filter(full).count();
            let mut parts = numbers(bytes).collect::<Vec<f64>>().into_iter();
            let each = parts.len() / count.max(1);
            values.extend(
                shards.map(|shard| full(&shard).then(|| parts.by_ref().take(each).collect())),
            );
        }
        Arc::new(values)
    }

    /// What all shards have said, in their order, and whether targets have weights; who failed or wants
    /// to stop is known then.
    fn meet(&mut self, asked: &Asked, own: &[Said]) -> Result<(Vec<Said>, bool)> {
        let mut loaded = self.examples.iter().flatten();
        let weighted = loaded.any(|example| example.target.weights.is_some());
        let mut bytes = vec![u8::from(asked.stop) | u8::from(weighted) << 1];
        for one in own {
            bytes.extend_from_slice(&one.loss.to_le_bytes());
            bytes.extend_from_slice(&one.weight.to_le_bytes());
        }
        let met = meet(self.group, Frame::Fine(&bytes))?;
        let flags = met
            .iter()
            .filter_map(|bytes| bytes.first())
            .fold(0, |a, b| a | b);
        self.stopped |= flags & 1 != 0;
        let mut said = Vec::with_capacity(self.tree.shards());
        for bytes in &met {
            let values: Vec<f64> = numbers(bytes.get(1..).unwrap_or_default()).collect();
            let pairs = values.as_chunks::<2>().0.iter();
            said.extend(pairs.map(|&[loss, weight]| Said { loss, weight }));
        }
        Ok((said, flags & 2 != 0))
    }

    /// The batch's loss, and what the sum of gradients is still to be scaled by.
    fn total(&self, said: &[Said], samples: usize, loss: Loss, weighted: bool) -> [f64; 2] {
        let full = |shard: &usize| !self.samples_of(*shard, samples).is_empty();
        let sum = |value: &dyn Fn(Said) -> f64| {
            let of = |shard: usize| full(&shard).then(|| value(said[shard]));
            self.tree.sum_all(of, |a, b| a + b).unwrap_or(0.0)
        };
        if loss == Loss::SumSquares {
            return [sum(&|s| s.loss), 1.0];
        }
        let weight = sum(&|s| s.weight);
        if weight == 0.0 {
            return [0.0, 0.0];
        }
        let scale = if weighted {
            samples as f64 / weight
        } else {
            1.0
        };
        [sum(&|s| s.loss * s.weight) / weight, scale]
    }
}

fn lock<V>(mutex: &Mutex<V>) -> std::sync::MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b))
}

/// Elements of a piece: 32 kB of each.
const PIECE: usize = 1 << 13;

/// The gradient is the total, scaled, or that is added to it.
fn take_total(grads: &mut [f32], total: &[f32], scale: f32, add: bool) {
    let parallel = grads.len() > 2 * PIECE;
    parallel::for_each_chunk(grads, PIECE, parallel, |piece, grads| {
        let total = &total[piece * PIECE..][..grads.len()];
        for (g, t) in grads.iter_mut().zip(total) {
            *g = t * scale + if add { *g } else { 0.0 };
        }
    });
}
