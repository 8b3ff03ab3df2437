//! Activations recorded for the GPU; the kernels are in activation.wgsl.

use super::Activation;
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Record, groups};
use crate::gpu::recording::{Part, Recording};

static ACTIVATION: Kernel = Kernel::new(
    "layer/activation/activation.wgsl",
    include_str!("activation.wgsl"),
);

impl Activation {
    fn constants(self) -> [(&'static str, f64); 2] {
        let (kind, slope) = match self {
            Activation::Identity => (0, 0.0),
            Activation::Relu => (1, 0.0),
            Activation::LeakyRelu { slope } => (2, slope),
            Activation::Silu => (3, 0.0),
            Activation::Gelu => (4, 0.0),
            Activation::Tanh => (5, 0.0),
            Activation::Sigmoid => (6, 0.0),
            Activation::Elu { alpha } => (7, alpha),
        };
        [("KIND", f64::from(kind)), ("SLOPE", slope)]
    }
}

impl Record for Activation {
    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        io.run(
            recording,
            (&ACTIVATION, "activation_forward"),
            &self.constants(),
            &[("elements", io.x_len)],
            &[io.x, io.y],
            groups(io.x_len),
        )
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        let Some(d_x) = d_x else { return Ok(()) };
        io.run(
            recording,
            (&ACTIVATION, "activation_backward"),
            &self.constants(),
            &[("elements", io.x_len)],
            &[io.x, io.y, d_y, d_x],
            groups(io.x_len),
        )
    }
}
