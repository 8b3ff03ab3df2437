//! Activations recorded for the GPU; the kernels are in activation.wgsl.

use super::Activation;
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Record, groups};
use crate::gpu::recording::{Part, Recording};

pub(crate) static ACTIVATION: Kernel = Kernel::new(
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

impl Activation {
    /// The values of a span: where it begins, and its length.
    pub(crate) fn record_span(
        self,
        recording: &mut Recording,
        io: &Io<'_>,
        [first, elements]: [usize; 2],
        buffers: [&Part; 2],
    ) -> Result<()> {
        let sizes = [("first", first), ("elements", elements)];
        let kernel = (&ACTIVATION, "activation_forward");
        let count = groups(elements);
        io.run(
            recording,
            kernel,
            &self.constants(),
            &sizes,
            &buffers,
            count,
        )
    }

    /// The gradients of a span: x, y, d_y and d_x.
    pub(crate) fn record_span_back(
        self,
        recording: &mut Recording,
        io: &Io<'_>,
        [first, elements]: [usize; 2],
        buffers: [&Part; 4],
    ) -> Result<()> {
        let sizes = [("first", first), ("elements", elements)];
        let kernel = (&ACTIVATION, "activation_backward");
        let count = groups(elements);
        io.run(
            recording,
            kernel,
            &self.constants(),
            &sizes,
            &buffers,
            count,
        )
    }
}

impl Record for Activation {
    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        self.record_span(recording, io, [0, io.x_len], [io.x, io.y])
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        let Some(d_x) = d_x else { return Ok(()) };
        let buffers = [io.x, io.y, d_y, d_x];
        self.record_span_back(recording, io, [0, io.x_len], buffers)
    }
}
