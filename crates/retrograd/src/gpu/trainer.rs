//! The GPU in the training loop.

use std::sync::Arc;

use super::{
    Choice, Gpu, GpuNetwork, GpuOptimizer, GpuTrainOptions, GpuVerifier, LossScale, Precision,
    Recorded, StepLoss,
};
use crate::loss_image::ImageLoss;
use crate::network::Network;
use crate::optim::Optimizer;
use crate::train::{
    Accelerator, Arrived, Carried, CarriedScale, Example, MicroBatch, Mode, Placement, Start,
    Updating,
};
use crate::verify::Device;
use crate::{Loss, Pass, Reported, Result};

/// Trains a network on a device, native or hybrid, for [`crate::train::Session::fit`].
pub struct GpuTrainer<M: Recorded = Network> {
    network: GpuNetwork<M>,
    /// The optimizer of native mode.
    optimizer: Option<GpuOptimizer>,
    /// Hybrid: gradients come back as 16-bit floats, with error feedback.
    compress: bool,
    /// What is added to the loss where outputs are images. The device evaluates it in native mode,
    /// the CPU in hybrid mode.
    image_loss: Option<ImageLoss>,
}

impl<M: Recorded + 'static> GpuTrainer<M> {
    /// Takes up a run where a placement says that a GPU computes its steps.
    pub(crate) fn placed(
        network: &M,
        placement: &Placement,
        start: &Start<'_>,
    ) -> Result<Option<Box<dyn Accelerator<M>>>> {
        let Placement::Gpu {
            adapter,
            mode,
            precision,
            compress,
        } = placement
        else {
            return Ok(None);
        };
        let Start {
            params, optimizer, ..
        } = start;
        let trainer = GpuTrainer::new(
            adapter, *mode, *precision, *compress, network, params, optimizer,
        )?;
        let trainer = trainer.with_image_loss(start.image_loss.cloned())?;
        Ok(Some(Box::new(trainer.carry_on(start.carried)?)))
    }

    /// Takes up a run with its parameters and its optimizer's state. With `compress`, gradients of
    /// hybrid steps come back as 16-bit floats with error feedback.
    pub fn new(
        adapter: &str,
        mode: Mode,
        precision: Precision,
        compress: bool,
        network: &M,
        params: &[f32],
        optimizer: &Optimizer<f32>,
    ) -> Result<Self> {
        let gpu = Gpu::open(&Choice::parse(adapter))?;
        Self::on(&gpu, mode, precision, compress, network, params, optimizer)
    }

    /// The network on the device.
    pub fn network(&self) -> &GpuNetwork<M> {
        &self.network
    }

    /// The same on a device that is open.
    pub fn on(
        gpu: &Arc<Gpu>,
        mode: Mode,
        precision: Precision,
        compress: bool,
        network: &M,
        params: &[f32],
        optimizer: &Optimizer<f32>,
    ) -> Result<Self> {
        let on_gpu = match precision {
            Precision::F32 => GpuNetwork::new(gpu, network, params)?,
            Precision::Mixed => GpuNetwork::mixed(gpu, network, params, LossScale::default())?,
        };
        let optimizer = match mode {
            Mode::Native => Some(GpuOptimizer::from_cpu(&on_gpu, optimizer)?),
            Mode::Hybrid => None,
        };
        Ok(GpuTrainer {
            network: on_gpu,
            optimizer,
            compress,
            image_loss: None,
        })
    }

    fn with_image_loss(mut self, image_loss: Option<ImageLoss>) -> Result<Self> {
        if let (Some(terms), Mode::Native) = (&image_loss, self.mode()) {
            self.network.set_image_loss(terms)?;
        }
        self.image_loss = image_loss;
        Ok(self)
    }

    /// Goes on with what a checkpoint holds beside parameters and optimizer.
    pub fn carry_on(mut self, carried: &Carried) -> Result<Self> {
        if let Some(scale) = carried.loss_scale {
            self.network.set_loss_scale(LossScale {
                initial: scale.value,
                good_steps: scale.good_steps,
                ..LossScale::default()
            })?;
        }
        if self.compress && !carried.residual.is_empty() {
            self.network.set_compression_residual(&carried.residual)?;
        }
        Ok(self)
    }
}

impl<M: Recorded + 'static> GpuTrainer<M> {
    /// Sends what leads to a gradient, at parameters that the device may know.
    fn begin_at(
        &mut self,
        params: &[f32],
        known: bool,
        loss: Loss,
        example: &Example<M>,
        pass: &Pass,
    ) -> Result<()> {
        let options = GpuTrainOptions {
            key: pass.key,
            compress_gradients: self.compress,
            ..Default::default()
        };
        // In native mode the weights are the device's own.
        if self.optimizer.is_none() && !known {
            self.network.sync_weights_from_cpu(params)?;
        }
        let (x, target) = (M::given(&example.input), &example.target);
        match &mut self.image_loss {
            None => self.network.begin_gradients(x, target, loss, &options),
            Some(terms) => {
                let evaluate = |y: &[f32], d_y: &mut [f32]| {
                    let value = f64::from(loss.compute(y, target, Some(d_y)));
                    value + terms.compute(y, &target.values, Some(d_y))
                };
                let brought = self
                    .network
                    .bring_gradients_through(x, &options, evaluate)?;
                self.network.land_later(brought);
                Ok(())
            }
        }
    }
}

fn options_of(updating: &Updating<'_>) -> GpuTrainOptions {
    GpuTrainOptions {
        lr: Some(updating.lr),
        clip: *updating.clip,
        skip_not_finite: updating.skip_not_finite,
        fused: updating.fused,
        ..Default::default()
    }
}

fn arrived(losses: Vec<StepLoss>) -> Vec<Arrived> {
    let arrived = |l: StepLoss| Arrived {
        step: l.step,
        loss: l.loss,
        updated: l.updated || l.overflowed,
    };
    losses.into_iter().map(arrived).collect()
}

impl<M: Recorded + 'static> Accelerator<M> for GpuTrainer<M> {
    fn name(&self) -> String {
        let adapter = self.network.gpu().description();
        let precision = match self.network.precision() {
            Precision::F32 => "",
            Precision::Mixed => ", mixed precision",
        };
        format!("{} ({}){precision}", adapter.name, adapter.backend)
    }

    fn mode(&self) -> Mode {
        match self.optimizer {
            Some(_) => Mode::Native,
            None => Mode::Hybrid,
        }
    }

    fn gradient(
        &mut self,
        params: &[f32],
        loss: Loss,
        example: &Example<M>,
        pass: &Pass,
        grads: &mut [f32],
    ) -> Result<f64> {
        self.begin_at(params, false, loss, example, pass)?;
        self.finish_gradient(grads)
    }

    fn gradient_in_pieces(
        &mut self,
        params: Reported<'_, f32>,
        known: bool,
        loss: Loss,
        example: &Example<M>,
        pass: &Pass,
        grads: &mut [f32],
    ) -> Result<f64> {
        self.begin_at(params.params(), known, loss, example, pass)?;
        self.network.land_gradients(params, grads)
    }

    fn begin_gradient(
        &mut self,
        params: &[f32],
        loss: Loss,
        example: &Example<M>,
        pass: &Pass,
    ) -> Result<()> {
        self.begin_at(params, false, loss, example, pass)
    }

    fn finish_gradient(&mut self, grads: &mut [f32]) -> Result<f64> {
        let nothing = &mut |_, _: &[f32]| {};
        // (The parameters are not looked at.)
        self.network
            .land_gradients(Reported::Told(&[], nothing), grads)
    }

    fn step(
        &mut self,
        loss: Loss,
        example: &Example<M>,
        pass: &Pass,
        micro: MicroBatch,
        updating: &Updating<'_>,
    ) -> Result<Vec<Arrived>> {
        let arrived = arrived(self.network.losses()?);
        if !updating.skip_not_finite && arrived.iter().any(|a| !a.updated) {
            return Ok(arrived);
        }
        let options = GpuTrainOptions {
            key: pass.key,
            micro,
            ..options_of(updating)
        };
        let optimizer = self.optimizer.as_mut().expect("native mode");
        let (x, target) = (M::given(&example.input), &example.target);
        self.network
            .train_step_gpu_native_with_options(x, target, loss, optimizer, &options)?;
        Ok(arrived)
    }

    fn update(
        &mut self,
        grads: &[f32],
        loss: f64,
        updating: &Updating<'_>,
    ) -> Result<Vec<Arrived>> {
        // The gradient was waited for, and all that was sent before it: nothing is on its way, at any
        // process, and all learn of a step that failed at the same time.
        let arrived = arrived(self.network.finish()?);
        if !updating.skip_not_finite && arrived.iter().any(|a| !a.updated) {
            return Ok(arrived);
        }
        let options = options_of(updating);
        let optimizer = self.optimizer.as_mut().expect("native mode");
        let network = &mut self.network;
        network.update_native(grads, loss as f32, optimizer, &options)?;
        Ok(arrived)
    }

    fn sync(
        &mut self,
        params: &mut Vec<f32>,
        optimizer: &mut Optimizer<f32>,
        model: &mut M,
    ) -> Result<Vec<Arrived>> {
        let mut losses = Vec::new();
        if let Some(own) = &self.optimizer {
            losses = arrived(self.network.finish()?);
            params.copy_from_slice(self.network.sync_weights_to_cpu()?);
            *optimizer = own.to_cpu()?;
        }
        self.network.sync_buffers_to_cpu()?;
        // Only running statistics change on the device.
        for buffer in self.network.network().buffers() {
            if buffer.name.contains(".running_") || buffer.name.ends_with(".num_batches_tracked") {
                model.set_buffer(&buffer)?;
            }
        }
        Ok(losses)
    }

    fn restart(&mut self, model: &M, start: &Start<'_>) -> Result<()> {
        let gpu = Arc::clone(self.network.gpu());
        let (mode, precision) = (self.mode(), self.network.precision());
        let (params, optimizer) = (start.params, start.optimizer);
        let compress = self.compress;
        let begun = Self::on(&gpu, mode, precision, compress, model, params, optimizer)?;
        let image_loss = self.image_loss.take();
        *self = begun.with_image_loss(image_loss)?.carry_on(start.carried)?;
        Ok(())
    }

    fn verifier(&self) -> Option<Box<dyn Device<M>>> {
        let precision = self.network.precision();
        Some(Box::new(GpuVerifier::with_precision(
            self.network.gpu(),
            precision,
        )))
    }

    fn carried(&mut self) -> Result<Carried> {
        let scale = self.network.loss_scale_state();
        Ok(Carried {
            loss_scale: scale.map(|scale| CarriedScale {
                value: scale.initial,
                good_steps: scale.good_steps,
            }),
            residual: self.network.compression_residual()?.unwrap_or_default(),
        })
    }
}
