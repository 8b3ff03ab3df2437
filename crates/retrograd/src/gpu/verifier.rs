//! The GPU as the f32 side of the verifier's chain.

use std::sync::Arc;

use super::{Gpu, GpuNetwork, GpuOptimizer, GpuTrainOptions, LossScale, Precision};
use crate::network::Network;
use crate::scalar::cast;
use crate::train::Clip;
use crate::verify::{BundleOptimizer, Device, Evaluation, Granted, Link, Subject, Trajectory};
use crate::{Result, Target};

/// Computes networks on a device for [`crate::verify::check_on`].
pub struct GpuVerifier {
    gpu: Arc<Gpu>,
    precision: Precision,
}

impl GpuVerifier {
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

    fn put(&self, subject: &Subject<'_, Network>) -> Result<(GpuNetwork, Vec<f32>, Target<f32>)> {
        let params: Vec<f32> = cast(&subject.params);
        let network = match self.precision {
            Precision::F32 => GpuNetwork::new(&self.gpu, subject.model, &params)?,
            Precision::Mixed => {
                let scale = LossScale::default();
                GpuNetwork::mixed(&self.gpu, subject.model, &params, scale)?
            }
        };
        Ok((network, cast(&subject.input), subject.target.cast()))
    }
}

impl Device<Network> for GpuVerifier {
    fn link(&self) -> Link {
        Link::Gpu
    }

    fn granted(&self) -> &'static Granted {
        match self.precision {
            Precision::F32 => &Granted::WGSL,
            Precision::Mixed => &Granted::MIXED,
        }
    }

    fn evaluate(&mut self, subject: &Subject<'_, Network>) -> Result<Evaluation<f64>> {
        let (mut network, x, target) = self.put(subject)?;
        let output = network.forward_batch_training(&x, &subject.pass)?;
        let options = GpuTrainOptions {
            key: subject.pass.key,
            ..Default::default()
        };
        let (loss, d_params) = network.bring_gradients(&x, &target, subject.loss, &options)?;
        Ok(Evaluation {
            output: cast(&output),
            loss,
            d_params: cast(&d_params),
            d_input: cast(&network.input_gradient()?),
        })
    }

    fn trajectory(
        &mut self,
        subject: &Subject<'_, Network>,
        optimizer: &BundleOptimizer,
        steps: usize,
    ) -> Result<Trajectory<f64>> {
        let (mut network, x, target) = self.put(subject)?;
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
            network.train_step_gpu_native_with_options(
                &x,
                &target,
                subject.loss,
                &mut state,
                &options,
            )?;
            let arrived = network.finish()?;
            // Left out with a loss scale that was too large: made again with half of it.
            if arrived.iter().any(|step| step.overflowed) {
                continue;
            }
            trajectory.losses.extend(arrived.iter().map(|l| l.loss));
            trajectory.grads.push(cast(&network.gradients()?));
        }
        trajectory.params = cast(network.sync_weights_to_cpu()?);
        Ok(trajectory)
    }
}
