//! Pooling recorded for the GPU; the kernels are in pool.wgsl.

use super::{Pool, PoolKind};
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Lengths, Record, flag, groups};
use crate::gpu::recording::{Part, Recording};

pub(crate) static POOL: Kernel = Kernel::new("layer/pool/pool.wgsl", include_str!("pool.wgsl"));

impl Pool {
    fn constants(&self) -> [(&'static str, f64); 7] {
        [
            ("KERNEL", self.kernel as f64),
            ("STRIDE", self.stride as f64),
            ("HEIGHT", self.height as f64),
            ("WIDTH", self.width as f64),
            ("OUT_HEIGHT", self.out_height() as f64),
            ("OUT_WIDTH", self.out_width() as f64),
            ("LARGEST", flag(self.kind == PoolKind::Max)),
        ]
    }
}

impl Record for Pool {
    fn saved(&self, io: &Lengths<'_>) -> Vec<usize> {
        vec![io.y_len]
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        io.run(
            recording,
            (&POOL, "pool_forward"),
            &self.constants(),
            &[("elements", io.y_len)],
            &[io.x, io.y, &io.saved[0]],
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
            (&POOL, "pool_backward"),
            &self.constants(),
            &[("elements", io.x_len)],
            &[d_y, &io.saved[0], d_x],
            groups(io.x_len),
        )
    }
}
