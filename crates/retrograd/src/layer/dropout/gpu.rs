//! Dropout recorded for the GPU; the kernels, which draw the CPU's mask, are in dropout.wgsl.

use super::{Dropout, cut, scale};
use crate::Result;
use crate::gpu::kernels::{ELEMENTWISE, Kernel};
use crate::gpu::layer::{Io, Lengths, Record, groups};
use crate::gpu::recording::{Part, Recording};

static DROPOUT: Kernel = Kernel::new("layer/dropout/dropout.wgsl", include_str!("dropout.wgsl"));

impl Dropout {
    fn constants(&self) -> [(&'static str, f64); 2] {
        [("LEAST", f64::from(cut(self.p))), ("SCALE", scale(self.p))]
    }

    fn drops_in(&self, io: &Io<'_>) -> bool {
        io.training && self.p > 0.0
    }
}

fn copy(recording: &mut Recording, io: &Io<'_>, from: &Part, to: &Part) -> Result<()> {
    let sizes = [("rows", 1), ("row_len", io.x_len)];
    let kernel = (&ELEMENTWISE, "copy_rows");
    io.run(
        recording,
        kernel,
        &[],
        &sizes,
        &[from, to],
        groups(io.x_len),
    )
}

impl Record for Dropout {
    fn saved(&self, io: &Lengths) -> Vec<usize> {
        vec![io.x_len]
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        if !self.drops_in(io) {
            return copy(recording, io, io.x, io.y);
        }
        io.run(
            recording,
            (&DROPOUT, "dropout_forward"),
            &self.constants(),
            &[("elements", io.x_len), ("key", io.key_at)],
            &[io.x, io.keys, &io.saved[0], io.y],
            groups(io.x_len.div_ceil(32)),
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
        if !self.drops_in(io) {
            return copy(recording, io, d_y, d_x);
        }
        io.run(
            recording,
            (&DROPOUT, "dropout_backward"),
            &self.constants(),
            &[("elements", io.x_len)],
            &[d_y, &io.saved[0], d_x],
            groups(io.x_len),
        )
    }
}
