//! A sum recorded for the GPU.

use super::Add;
use crate::Result;
use crate::gpu::kernels::ELEMENTWISE;
use crate::gpu::layer::{Io, Record, groups};
use crate::gpu::recording::{Part, Recording};

impl Record for Add {
    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        io.run(
            recording,
            (&ELEMENTWISE, "add"),
            &[],
            &[("elements", io.y_len)],
            &[io.x, io.y, io.other],
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
        for (d, adds) in [d_x, io.d_other].into_iter().zip(io.adds) {
            if let Some(d) = d {
                let row = [io.y_len, io.y_len, 0];
                io.copy_rows(recording, 1, (d_y, row), (d, row), adds)?;
            }
        }
        Ok(())
    }
}
