//! Upsampling recorded for the GPU; the kernels are in upsample.wgsl.

use super::Upsample;
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Record, groups};
use crate::gpu::recording::{Part, Recording};

pub(crate) static UPSAMPLE: Kernel = Kernel::new(
    "layer/upsample/upsample.wgsl",
    include_str!("upsample.wgsl"),
);

impl Upsample {
    fn constants(&self) -> [(&'static str, f64); 2] {
        [("SCALE", self.scale as f64), ("WIDTH", self.width as f64)]
    }
}

impl Record for Upsample {
    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        io.run(
            recording,
            (&UPSAMPLE, "upsample_forward"),
            &self.constants(),
            &[("elements", io.y_len)],
            &[io.x, io.y],
            groups(io.y_len),
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
            (&UPSAMPLE, "upsample_backward"),
            &self.constants(),
            &[("elements", io.x_len)],
            &[d_y, d_x],
            groups(io.x_len),
        )
    }
}
