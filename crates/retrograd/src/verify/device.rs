//! The f32 side of the chain: what computes a subject on a device.

use super::bundle::BundleOptimizer;
use super::report::Link;
use super::rounded::Granted;
use super::subject::{Evaluation, Runner, Subject, Trajectory};
use crate::scalar::cast;
use crate::{Kernels, Model, Result};

/// Something that computes models in f32. The CPU's kernels are one; a GPU is another.
pub trait Device<M: Model> {
    /// [`Link::Cpu`] or [`Link::Gpu`].
    fn link(&self) -> Link;

    /// What the device's functions may be wrong by.
    fn granted(&self) -> &'static Granted;

    /// Output, loss and gradients.
    fn evaluate(&mut self, subject: &Subject<'_, M>) -> Result<Evaluation<f64>>;

    /// Optimizer steps on the subject's batch.
    fn trajectory(
        &mut self,
        subject: &Subject<'_, M>,
        optimizer: &BundleOptimizer,
        steps: usize,
    ) -> Result<Trajectory<f64>>;
}

/// The CPU's fast kernels.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu;

impl<M: Model> Device<M> for Cpu {
    fn link(&self) -> Link {
        Link::Cpu
    }

    fn granted(&self) -> &'static Granted {
        &Granted::CPU
    }

    fn evaluate(&mut self, subject: &Subject<'_, M>) -> Result<Evaluation<f64>> {
        let params: Vec<f32> = cast(&subject.params);
        let mut runner = Runner::<M, f32>::new(subject, Kernels::Fast);
        Ok(runner.evaluate(&params).to_f64())
    }

    fn trajectory(
        &mut self,
        subject: &Subject<'_, M>,
        optimizer: &BundleOptimizer,
        steps: usize,
    ) -> Result<Trajectory<f64>> {
        let params: Vec<f32> = cast(&subject.params);
        let mut runner = Runner::<M, f32>::new(subject, Kernels::Fast);
        Ok(runner.trajectory(&params, optimizer, steps, None).to_f64())
    }
}
