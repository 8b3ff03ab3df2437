//! y = (x − mean) / std over the last axis, with fixed statistics: the normalisation of the input
//! as a layer, so that no device can apply it and another forget it.
//!
//! Statistics live in the buffers `N.mean` and `N.std`; d_x = d_y / std.

#[cfg(feature = "gpu")]
pub(crate) mod gpu;
mod onnx;
mod spec;

pub use spec::NormalizeSpec;

use crate::layer::{Backward, Describe, Forward, Layer, check_shape};
use crate::{Buffer, Error, Result, Scalar};

pub(crate) struct Normalize {
    mean: Vec<f64>,
    std: Vec<f64>,
}

impl Normalize {
    /// Mean 0 and deviation 1 until the buffers are set.
    pub fn new(width: usize) -> Self {
        Normalize {
            mean: vec![0.0; width],
            std: vec![1.0; width],
        }
    }
}

impl Describe for Normalize {
    fn to_onnx(&self) -> Option<&dyn crate::onnx::ToOnnx> {
        Some(self)
    }

    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }

    fn buffers(&self) -> Vec<Buffer> {
        [("mean", &self.mean), ("std", &self.std)]
            .map(|(name, values)| Buffer {
                name: name.into(),
                shape: vec![values.len()],
                values: values.clone(),
            })
            .into()
    }

    fn set_buffer(&mut self, name: &str, buffer: &Buffer) -> Result<bool> {
        let own = match name {
            "mean" => &mut self.mean,
            "std" => &mut self.std,
            _ => return Ok(false),
        };
        check_shape(buffer, &[own.len()])?;
        if name == "std"
            && let Some(i) = buffer.values.iter().position(|&v| v <= 0.0)
        {
            let what = format!("buffer {}, element {i}", buffer.name);
            return Err(Error::invalid(what, buffer.values[i], "a deviation > 0"));
        }
        own.copy_from_slice(&buffer.values);
        Ok(true)
    }
}

impl<T: Scalar> Layer<T> for Normalize {
    fn forward(&self, io: Forward<'_, T>) {
        let width = self.mean.len();
        for (x, y) in io.x.chunks_exact(width).zip(io.y.chunks_exact_mut(width)) {
            for (i, (x, y)) in x.iter().zip(y).enumerate() {
                *y = (*x - T::from_f64(self.mean[i])) / T::from_f64(self.std[i]);
            }
        }
    }

    fn backward(&self, io: Backward<'_, T>) {
        let Some(d_x) = io.d_x else { return };
        let width = self.std.len();
        for (d_x, d_y) in d_x.chunks_exact_mut(width).zip(io.d_y.chunks_exact(width)) {
            for (i, (d_x, d_y)) in d_x.iter_mut().zip(d_y).enumerate() {
                *d_x = *d_y / T::from_f64(self.std[i]);
            }
        }
    }
}
