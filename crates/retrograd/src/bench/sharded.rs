//! Workloads whose batches are cut into shards, alone or shared by processes.

use std::ops::Range;
use std::sync::Arc;

use crate::group::{Exchanged, Group, Tree, with_courier};
use crate::network::Network;
use crate::optim::OptimizerSpec;
use crate::rng::Key;
use crate::train::{
    Asked, Clip, Example, Metrics, Shards, StepError, Stepper, Task, choose_shards,
};
use crate::{Error, Loss, Model, Result, Target};

/// Steps on batches that are cut into so many shards (the usual number where none is given), shared by a
/// group. They are made by whom they are lent to.
pub type Sharded =
    Box<dyn FnOnce(Option<usize>, &dyn Group, &mut dyn FnMut(Sharing<'_>)) -> Result<()> + Send>;

/// Steps that processes share.
pub struct Sharing<'s> {
    /// Shards of a batch.
    pub shards: usize,
    /// Numbers of a gradient.
    pub params: usize,
    /// One step, and what its exchanges took.
    pub step: &'s mut dyn FnMut() -> Exchanged,
}

/// How an example is cut.
pub(crate) struct Cut<M: Model> {
    /// Samples of the whole.
    pub samples: usize,
    /// Some of so many samples.
    pub part: fn(&Example<M>, usize, Range<usize>) -> Example<M>,
}

impl Cut<Network> {
    /// By rows, patches or images.
    pub fn rows(samples: usize) -> Option<Self> {
        fn of<T: Clone>(all: &[T], samples: usize, range: &Range<usize>) -> Vec<T> {
            let each = all.len() / samples;
            all[each * range.start..each * range.end].to_vec()
        }
        Some(Cut {
            samples,
            part: |example, samples, range| Example {
                input: of(&example.input, samples, &range),
                target: Target {
                    values: of(&example.target.values, samples, &range),
                    classes: of(&example.target.classes, samples, &range),
                    weights: None,
                },
            },
        })
    }
}

/// The same batch at every step.
pub(crate) struct Fixed<M: Model> {
    shared: Arc<(M, Example<M>)>,
    loss: Loss,
    cut: Cut<M>,
}

impl<M: Model> Fixed<M> {
    pub fn new(shared: Arc<(M, Example<M>)>, loss: Loss, cut: Cut<M>) -> Self {
        Fixed { shared, loss, cut }
    }
}

impl<M: Model> Task for Fixed<M> {
    type Model = M;

    fn model(&self) -> &M {
        &self.shared.0
    }
    fn model_mut(&mut self) -> &mut M {
        let (model, _) =
            Arc::get_mut(&mut self.shared).expect("no workload has running statistics");
        model
    }
    fn loss(&self) -> Loss {
        self.loss
    }
    fn steps_per_epoch(&self) -> u64 {
        1
    }
    fn batch(&mut self, step: u64, example: &mut Option<Example<M>>) -> Result<()> {
        self.part(step, 0..self.cut.samples, example)
    }
    fn samples(&self, _: u64) -> Option<usize> {
        Some(self.cut.samples)
    }
    fn shard_of(&self) -> (&'static str, usize) {
        ("samples", 1)
    }
    /// Made once: what is timed is the step.
    fn part(&mut self, _: u64, of: Range<usize>, example: &mut Option<Example<M>>) -> Result<()> {
        let make = || (self.cut.part)(&self.shared.1, self.cut.samples, of);
        example.get_or_insert_with(make);
        Ok(())
    }
    fn evaluate(&mut self, _: &[f32], _: u64) -> Result<Metrics> {
        Ok(Metrics::new())
    }
}

/// Steps of a task, as the loop makes them.
pub(crate) fn sharded<T: Task>(
    make: impl FnOnce() -> Result<T> + Send + 'static,
    optimizer: OptimizerSpec,
    clip: Clip,
) -> Sharded {
    Box::new(move |asked, group, drive| {
        let mut task = make()?;
        let count = choose_shards(&task, asked, Some(group))?.unwrap_or(1);
        let tree = Tree::new(count);
        let params = task.model().init(0);
        let numbers = params.len();
        let mut stepper = Stepper::new(task.model(), params, optimizer);
        with_courier(group, tree, |courier| {
            let mut shards = Shards::new(tree, courier);
            let mut failed = None;
            let mut step = 0;
            let mut one = || {
                let asked = Asked {
                    loss: task.loss(),
                    key: Key::new(0).purpose("step"),
                    step,
                    share: 1.0,
                    add: false,
                    stop: false,
                    sliced: shards.slices(&clip, &stepper),
                    save: false,
                };
                step += 1;
                let made = shards.gradient(&mut task, &mut stepper, None, &asked);
                let (model, lr) = (task.model(), optimizer.lr());
                let updated = match asked.sliced {
                    true => shards.update(&mut stepper, model, &clip, lr),
                    false => stepper.update(model, &clip, lr).map_err(StepError::from),
                };
                let updated = updated.map_err(|error| match error {
                    StepError::NotFinite(bad) => Error::refused(bad.tensor, "is not finite"),
                    StepError::Other(error) => error,
                });
                failed = failed.take().or(made.err()).or(updated.err());
                shards.exchanged()
            };
            drive(Sharing {
                shards: count,
                params: numbers,
                step: &mut one,
            });
            failed.map_or(Ok(()), Err)
        })
    })
}
