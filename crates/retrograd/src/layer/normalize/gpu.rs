//! The normalisation recorded for the GPU; the kernel is in normalize.wgsl.

use super::Normalize;
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Record, groups};
use crate::gpu::recording::{Part, Recording};

pub(crate) static NORMALIZE: Kernel = Kernel::new(
    "layer/normalize/normalize.wgsl",
    include_str!("normalize.wgsl"),
);

impl Record for Normalize {
    /// The means, then the deviations.
    fn fixed(&self) -> Vec<f32> {
        let both = self.mean.iter().chain(&self.std);
        both.map(|&v| v as f32).collect()
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        let sizes = [
            ("elements", io.x_len),
            ("width", self.mean.len()),
            ("subtracts_mean", 1),
        ];
        let buffers = [io.x, io.y, io.fixed];
        let kernel = (&NORMALIZE, "normalize");
        io.run(recording, kernel, &[], &sizes, &buffers, groups(io.x_len))
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        let Some(d_x) = d_x else { return Ok(()) };
        let sizes = [("elements", io.x_len), ("width", self.mean.len())];
        let kernel = (&NORMALIZE, "normalize");
        io.run(
            recording,
            kernel,
            &[],
            &sizes,
            &[d_y, d_x, io.fixed],
            groups(io.x_len),
        )
    }
}
