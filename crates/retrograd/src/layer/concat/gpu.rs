//! Joined channels recorded for the GPU: rows of values, copied.

use super::Concat;
use crate::Result;
use crate::gpu::layer::{Io, Record};
use crate::gpu::recording::{Part, Recording};

impl Record for Concat {
    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        let [a, b] = self.lens;
        let total = a + b;
        for (value, len, at) in [(io.x, a, 0), (io.other, b, a)] {
            let (from, to) = ((value, [len, len, 0]), (io.y, [len, total, at]));
            io.copy_rows(recording, io.samples, from, to, false)?;
        }
        Ok(())
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        let [a, b] = self.lens;
        let parts = [(d_x, a, 0, io.adds[0]), (io.d_other, b, a, io.adds[1])];
        for (d, len, at, adds) in parts {
            if let Some(d) = d {
                let (from, to) = ((d_y, [len, a + b, at]), (d, [len, len, 0]));
                io.copy_rows(recording, io.samples, from, to, adds)?;
            }
        }
        Ok(())
    }
}
