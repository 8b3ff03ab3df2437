//! A batch that is cut into shards: every shard's gradient alone, added along the tree of
//! [`crate::group`].
//!
//! With mean losses, a shard of n of the batch's N samples counts for n/N. Where targets have weights,
//! the mean is over all weights W = Σ w of the batch, which is known when all shards have said theirs:
//! a shard's gradient is scaled by its own sum of weights over N, and the sum by N/W at the end.

mod outbox;
mod own;
mod slices;

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use self::outbox::{OVERLAPS, Outbox, SAVE, STOP, Said, said_in, says};
use super::step::Work;
use super::{Accelerator, Example, Stepper, Task};
use crate::group::{Courier, Exchanged, Group, Sum, Tree, cut};
use crate::rng::Key;
use crate::{Error, Loss, Model, Result, parallel};

/// Shards of a batch where the experiment says nothing and processes are to share it.
const SHARDS: usize = 8;

/// The shards of an experiment's batches; none where it has none and no group asks for them.
pub(crate) fn choose<T: Task>(
    task: &T,
    asked: Option<usize>,
    group: Option<&dyn Group>,
) -> Result<Option<usize>> {
    let size = group.map_or(1, Group::size);
    let (name, least) = task.shard_of();
    let Some(samples) = task.samples(0) else {
        if asked.is_none() && size == 1 {
            return Ok(None);
        }
        let (what, got) = match asked {
            Some(shards) => ("train.shards", shards.to_string()),
            None => ("processes", size.to_string()),
        };
        return Err(Error::invalid(
            what,
            format!("{got} for a batch that is one graph in one piece"),
            "1: its nodes depend on each other in every layer; threads share it (--threads). Where nodes \
             are classified, [data] neighbours = [10, 5] makes batches of them with a sample of what is \
             around, which processes share",
        ));
    };
    let shards = match (asked, group) {
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

/// Samples of a shard from which on neighbouring shards are computed at once: kernels take a handful of
/// rows another way, to other bits.
const JOINED: usize = 16;

/// Whether the shards of a batch may be computed at once, by its size alone: for any number of processes
/// alike.
pub(crate) fn joins(samples: usize, shards: usize) -> bool {
    samples / shards >= JOINED
}

/// What a step asks of the shards of one batch.
pub(crate) struct Asked {
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
    /// Whether every process needs its own slice of the gradient alone.
    pub sliced: bool,
    /// Whether this process is to save the state of the run after the step.
    pub save: bool,
}

/// The shards of a run, and this process's among them.
pub(crate) struct Shards<'a, M: Model> {
    courier: &'a Courier<'a>,
    tree: Tree,
    own: Range<usize>,
    /// Memory of gradients and of examples, and what shards are computed in.
    free: Vec<Vec<f32>>,
    examples: Vec<Option<Example<M>>>,
    works: Vec<Mutex<Work<M>>>,
    /// Whether any process was asked to stop, as all of them know.
    pub stopped: bool,
    /// Whether one is to save the state after this step, as all of them know.
    pub saves: bool,
    /// Whether gradients are sent as they are complete, by what all processes said last.
    early: bool,
    /// Seconds spent on making batches.
    pub loading: f64,
}

impl<'a, M: Model> Shards<'a, M> {
    pub fn new(tree: Tree, courier: &'a Courier<'a>) -> Self {
        let group = courier.group();
        let own = tree.of_process(group.rank(), group.size());
        Shards {
            courier,
            tree,
            free: Vec::new(),
            examples: own.clone().map(|_| None).collect(),
            works: Vec::new(),
            own,
            stopped: false,
            saves: false,
            early: false,
            loading: 0.0,
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.tree.shards()
    }

    /// The samples of all shards of this process, of batches of that many.
    pub fn own_samples(&self, samples: usize) -> Range<usize> {
        let of = |shard| self.samples_of(shard, samples);
        of(self.own.start).start..of(self.own.end - 1).end
    }

    /// The samples of a shard; where there are fewer than shards, some have none.
    fn samples_of(&self, shard: usize, samples: usize) -> Range<usize> {
        cut(samples, shard, self.tree.shards())
    }

    /// What exchanges took since this was last asked.
    pub fn exchanged(&self) -> Exchanged {
        self.courier.exchanged()
    }

    /// Loss and gradient of a batch, the gradient in the stepper's; the same at every process, or where it is
    /// [sliced](Asked::sliced) each one's own slice of it.
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
        let shards = 0..self.tree.shards();
        let full = shards.map(|shard| !self.samples_of(shard, samples).is_empty());
        let full: Vec<bool> = full.collect();
        let (courier, mut free) = (self.courier, std::mem::take(&mut self.free));
        let len = stepper.params.len();
        if !asked.add {
            // The sum is made where it is needed, step after step: what is in a core's cache stays there.
            free.push(std::mem::take(&mut stepper.grads));
        }
        let own = self.own.clone();
        let mut outbox = Outbox::new(courier, self.tree, own, &full, len, asked, free);
        outbox.early &= self.early && accelerator.is_none();
        let joined = accelerator.is_none()
            && stepper.image_loss.is_none()
            && task.model().joins_shards()
            && joins(samples, self.tree.shards());
        let computed = if joined {
            self.together(task, stepper, samples, asked, &outbox)
        } else if couples || enough {
            self.side_by_side(task, stepper, samples, asked, couples, &outbox)
        } else {
            self.one_by_one(task, stepper, accelerator, samples, asked, &outbox)
        };
        if let Err(error) = computed {
            // What was posted before, all processes have given up alike.
            courier.clear();
            stepper.grads.resize(len, 0.0);
            return Err(error);
        }
        self.free = outbox.close();
        let (met, mut sums) = courier.finish();
        self.take_memory(&mut stepper.grads, &mut sums, len);
        let met = met?;
        let anybody = |flag| met.iter().any(|bytes| says(bytes, flag));
        self.stopped |= anybody(STOP);
        self.saves = anybody(SAVE);
        self.early = anybody(OVERLAPS);
        let said: Vec<Said> = met.iter().flat_map(|bytes| said_in(bytes)).collect();
        let [mut loss, scale] = self.total(&said, &full, samples, asked.loss);
        let bad = said.iter().map(|s| s.loss).find(|loss| !loss.is_finite());
        if let Some(bad) = bad {
            loss = bad;
        }
        for (ranges, sum) in sums {
            take_sum(&mut stepper.grads, &ranges, &sum, scale as f32, asked.add);
            self.free
                .extend(Some(sum.memory).filter(|memory| !memory.is_empty()));
        }
        if couples && bad.is_none() {
            let work = lock(&self.works[0]);
            task.model_mut().absorb(&work.tape);
        }
        stepper.note_loss(loss, asked.add);
        Ok(loss)
    }

    /// Memory for the gradient that was given away: the sum's, where that is whole, or any other.
    fn take_memory(
        &mut self,
        grads: &mut Vec<f32>,
        sums: &mut [(Vec<Range<usize>>, Sum)],
        len: usize,
    ) {
        if !grads.is_empty() {
            return;
        }
        if let [(ranges, sum)] = sums
            && sum.memory.len() == len
            && ranges[..] == [sum.at.clone()]
        {
            *grads = std::mem::take(&mut sum.memory);
            return;
        }
        *grads = self.free.pop().unwrap_or_default();
        grads.resize(len, 0.0);
    }

    /// The batch's loss, and what the sum of gradients is still to be scaled by.
    fn total(&self, said: &[Said], full: &[bool], samples: usize, loss: Loss) -> [f64; 2] {
        let sum = |value: &dyn Fn(Said) -> f64| {
            let of = |shard: usize| full[shard].then(|| value(said[shard]));
            self.tree.sum_all(of, |a, b| a + b).unwrap_or(0.0)
        };
        if loss == Loss::SumSquares {
            return [sum(&|s| s.loss), 1.0];
        }
        let weight = sum(&|s| s.weight);
        if weight == 0.0 {
            return [0.0, 0.0];
        }
        let scale = match said.iter().any(|said| said.weighted) {
            true => samples as f64 / weight,
            false => 1.0,
        };
        [sum(&|s| s.loss * s.weight) / weight, scale]
    }
}

fn lock<V>(mutex: &Mutex<V>) -> std::sync::MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Elements of a piece: 32 kB of each.
const PIECE: usize = 1 << 13;

/// Some ranges of the gradient are their sum, scaled, or that is added to them. A sum without memory lies
/// there already.
fn take_sum(grads: &mut [f32], ranges: &[Range<usize>], sum: &Sum, scale: f32, add: bool) {
    let there = sum.memory.is_empty();
    if there && scale == 1.0 {
        return;
    }
    let mut rest = if there { &[] } else { sum.values() };
    for range in ranges {
        let own = &mut grads[range.clone()];
        let parallel = own.len() > 2 * PIECE;
        let part = rest.split_off(..own.len()).unwrap_or_default();
        parallel::for_each_chunk(own, PIECE, parallel, |piece, grads| {
            let part = part.get(piece * PIECE..).unwrap_or_default();
            if there {
                grads.iter_mut().for_each(|g| *g *= scale);
            } else if add {
                let pairs = grads.iter_mut().zip(part);
                pairs.for_each(|(g, t)| *g += t * scale);
            } else {
                let pairs = grads.iter_mut().zip(part);
                pairs.for_each(|(g, t)| *g = t * scale);
            }
        });
    }
}
