//! Dropout recorded for the GPU; the kernels, which draw the CPU's mask, are in dropout.wgsl.

use super::{Dropout, cut, scale};
use crate::Result;
use crate::gpu::kernels::{ELEMENTWISE, Kernel};
use crate::gpu::layer::{Io, Lengths, Record, groups};
use crate::gpu::recording::{Part, Recording};

pub(crate) static DROPOUT: Kernel =
    Kernel::new("layer/dropout/dropout.wgsl", include_str!("dropout.wgsl"));

/// y = m·x with m drawn from the layer's key for probability p.
pub(crate) fn record_drop(
    recording: &mut Recording,
    io: &Io<'_>,
    p: f64,
    elements: usize,
    [x, mask, y]: [&Part; 3],
) -> Result<()> {
    io.run(
        recording,
        (&DROPOUT, "dropout_forward"),
        &[("LEAST", f64::from(cut(p))), ("SCALE", scale(p))],
        &[("elements", elements), ("key", io.key_at)],
        &[x, io.keys, mask, y],
        groups(elements.div_ceil(32)),
    )
}

impl Dropout {
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
    fn saved(&self, io: &Lengths<'_>) -> Vec<usize> {
        vec![io.x_len]
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        if !self.drops_in(io) {
            return copy(recording, io, io.x, io.y);
        }
        let buffers = [io.x, &io.saved[0], io.y];
        record_drop(recording, io, self.p, io.x_len, buffers)
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
            &[],
            &[("elements", io.x_len)],
            &[d_y, &io.saved[0], d_x],
            groups(io.x_len),
        )
    }
}
