//! The normalisation recorded for the GPU; the kernel is in gpu/elementwise.wgsl.

use super::Normalize;
use crate::Result;
use crate::gpu::kernels::ELEMENTWISE;
use crate::gpu::layer::{Io, Record, groups};
use crate::gpu::recording::{Part, Recording};

impl Record for Normalize {
    /// The means, then the deviations.
    fn fixed(&self) -> Vec<f32> {
        let both = self.mean.iter().chain(&self.std);
        both.map(|&v| v as f32).collect()
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        let sizes = [io.x_len, self.mean.len(), 1];
        let buffers = [io.x, io.y, io.fixed];
        let kernel = (&ELEMENTWISE, "normalize");
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
        let sizes = [io.x_len, self.mean.len(), 0];
        let kernel = (&ELEMENTWISE, "normalize");
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
