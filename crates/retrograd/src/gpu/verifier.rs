//! The GPU as the f32 side of the verifier's chain.

use std::sync::{Arc, Mutex, PoisonError};

use super::{
    Choice, Gpu, GpuNetwork, GpuOptimizer, GpuTrainOptions, LossScale, Precision, Recorded,
};
use crate::scalar::cast;
use crate::train::Clip;
use crate::verify::{
    BundleOptimizer, Cpu, Device, Evaluation, Granted, Link, On, Subject, Trajectory,
};
use crate::{Error, Model, Result, Target};

/// Computes networks on a device for [`crate::verify::check_on`].
pub struct GpuVerifier {
    gpu: Arc<Gpu>,
    precision: Precision,
}

/// The device that models are checked on where no adapter is named: opened once, so that kernels are
/// compiled once.
static SHARED: Mutex<Option<Arc<Gpu>>> = Mutex::new(None);

/// A subject on a device: the model, its batch and its target.
type Put<M> = (GpuNetwork<M>, <M as Model>::Input<f32>, Target<f32>);

impl GpuVerifier {
    /// What computes a model of layers on the CPU, or on the adapter that is chosen where none is
    /// named.
    pub(crate) fn on<M: Recorded>(on: On) -> Result<Box<dyn Device<M>>> {
        let On::Gpu(precision) = on else {
            return Ok(Box::new(Cpu));
        };
        Ok(Box::new(Self::with_precision(&Self::shared()?, precision)))
    }

    pub(crate) fn shared() -> Result<Arc<Gpu>> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gpu) = &*shared {
            return Ok(Arc::clone(gpu));
        }
        let gpu = Gpu::open(&Choice::Auto)?;
        *shared = Some(Arc::clone(&gpu));
        Ok(gpu)
    }

    /// On that device.
    pub fn new(gpu: &Arc<Gpu>) -> Self {
        Self::with_precision(gpu, Precision::F32)
    }

    /// In 32 bits or mixed precision; the bounds are those of the precision.
    pub fn with_precision(gpu: &Arc<Gpu>, precision: Precision) -> Self {
        GpuVerifier {
            gpu: Arc::clone(gpu),
            precision,
        }
    }

    /// The output without training: no dropout, running statistics.
    pub(crate) fn infer<M: Recorded>(&self, subject: &Subject<'_, M>) -> Result<Vec<f64>> {
        let (mut network, x, _) = self.put(subject, LossScale::default())?;
        let output = network.forward_batch(M::given(&x))?;
        self.gpu.check_guards()?;
        Ok(cast(&output))
    }

    /// Output, loss and gradients, from that loss scale on.
    fn evaluate_at<M: Recorded>(
        &self,
        subject: &Subject<'_, M>,
        scale: LossScale,
    ) -> Result<Evaluation<f64>> {
        let (mut network, x, target) = self.put(subject, scale)?;
        let x = M::given(&x);
        let output = network.forward_batch_training(x, &subject.pass)?;
        let options = GpuTrainOptions {
            key: subject.pass.key,
            ..Default::default()
        };
        let (loss, d_params) = network.bring_gradients(x, &target, subject.loss, &options)?;
        let mut d_params: Vec<f64> = cast(&d_params);
        let penalty = subject.model.penalty(&subject.params, Some(&mut d_params));
        let d_input = cast(&network.input_gradient()?);
        self.gpu.check_guards()?;
        Ok(Evaluation {
            output: cast(&output),
            loss: loss + penalty,
            d_params,
            d_input,
        })
    }

    fn put<M: Recorded>(&self, subject: &Subject<'_, M>, scale: LossScale) -> Result<Put<M>> {
        let params: Vec<f32> = cast(&subject.params);
        let network = match self.precision {
            Precision::F32 => GpuNetwork::new(&self.gpu, subject.model, &params)?,
            Precision::Mixed => GpuNetwork::mixed(&self.gpu, subject.model, &params, scale)?,
        };
        let input = subject.model.cast_input(&subject.input);
        Ok((network, input, subject.target.cast()))
    }
}

impl<M: Recorded> Device<M> for GpuVerifier {
    fn link(&self) -> Link {
        Link::Gpu
    }

    fn granted(&self) -> &'static Granted {
        match self.precision {
            Precision::F32 => &Granted::WGSL,
            Precision::Mixed => &Granted::MIXED,
        }
    }

    /// In mixed precision with the largest loss scale at which no gradient overflows, the input's included,
    /// which training doesn't ask for.
    fn evaluate(&mut self, subject: &Subject<'_, M>) -> Result<Evaluation<f64>> {
        let mut scale = match self.precision {
            Precision::F32 => LossScale::default(),
            Precision::Mixed => LossScale::largest(),
        };
        loop {
            let evaluation = self.evaluate_at(subject, scale)?;
            let overflows = !evaluation.d_input.iter().all(|d| d.is_finite());
            let smaller = self.precision == Precision::Mixed && scale.initial > 1.0;
            if !(overflows && smaller && evaluation.loss.is_finite()) {
                return Ok(evaluation);
            }
            scale.initial *= 0.5;
        }
    }

    fn trajectory(
        &mut self,
        subject: &Subject<'_, M>,
        optimizer: &BundleOptimizer,
        steps: usize,
    ) -> Result<Trajectory<f64>> {
        let (mut network, x, target) = self.put(subject, LossScale::default())?;
        let x = M::given(&x);
        let mut state = GpuOptimizer::new(&network, optimizer.spec)?;
        let options = GpuTrainOptions {
            clip: Clip {
                element: optimizer.clip_element,
                norm: optimizer.clip,
            },
            key: subject.pass.key,
            ..Default::default()
        };
        let mut trajectory = Trajectory::default();
        while trajectory.losses.len() < steps {
            let step = network.train_step_gpu_native_with_options(
                x,
                &target,
                subject.loss,
                &mut state,
                &options,
            );
            let arrived = match step.and_then(|()| network.finish()) {
                // Steps that lead away: there is no number to compare with.
                Err(Error::NotFinite { .. }) => {
                    trajectory.params = vec![f64::NAN; subject.params.len()];
                    return Ok(trajectory);
                }
                arrived => arrived?,
            };
            // Left out with a loss scale that was too large: made again with half of it.
            if arrived.iter().any(|step| step.overflowed) {
                continue;
            }
            trajectory.losses.extend(arrived.iter().map(|l| l.loss));
            trajectory.grads.push(cast(&network.gradients()?));
        }
        trajectory.params = cast(network.sync_weights_to_cpu()?);
        self.gpu.check_guards()?;
        Ok(trajectory)
    }
}
