//! Pooling over k × k windows, no padding, sizes rounded down.
//!
//! - max: y = x at the first largest element of the window; d_x gathers d_y at those positions,
//!   which forward keeps.
//! - mean: y = Σ x / k²; d_x = Σ over the windows that hold it of d_y / k².
//!
//! Windows may overlap (stride < kernel): gradients add up.

mod cpu;
pub(crate) mod faults;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
mod onnx;
mod spec;
#[cfg(test)]
mod tests;

pub use spec::{AvgPool2dSpec, MaxPool2dSpec};

use crate::layer::{Backward, Describe, Forward, Layer, Seen};
use crate::{Kernels, Scalar};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolKind {
    Max,
    Average,
}

pub(crate) struct Pool {
    pub kind: PoolKind,
    pub kernel: usize,
    pub stride: usize,
    pub height: usize,
    pub width: usize,
}

impl Pool {
    pub fn out_height(&self) -> usize {
        (self.height - self.kernel) / self.stride + 1
    }

    pub fn out_width(&self) -> usize {
        (self.width - self.kernel) / self.stride + 1
    }

    /// The positions in the plane of the window at (row, column) of the output.
    fn window(&self, row: usize, column: usize) -> impl Iterator<Item = usize> + '_ {
        let (top, left) = (row * self.stride, column * self.stride);
        (top..top + self.kernel)
            .flat_map(move |r| (left..left + self.kernel).map(move |c| r * self.width + c))
    }
}

impl Describe for Pool {
    fn to_onnx(&self) -> Option<&dyn crate::onnx::ToOnnx> {
        Some(self)
    }

    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }
}

impl<T: Scalar> Layer<T> for Pool {
    fn forward(&self, io: Forward<'_, T>) {
        let (height, width) = (self.out_height(), self.out_width());
        let planes = io.x.chunks_exact(self.height * self.width);
        let share = T::from_f64(1.0 / (self.kernel * self.kernel) as f64);
        if self.kind == PoolKind::Max {
            io.saved.indices.resize(io.y.len(), 0);
        }
        if io.pass.kernels == Kernels::Fast
            && let (Some(x), Some(y)) = (T::f32s(io.x), T::f32s_mut(io.y))
        {
            return cpu::forward(self, x, y, &mut io.saved.indices);
        }
        for (p, (x, y)) in planes
            .zip(io.y.chunks_exact_mut(height * width))
            .enumerate()
        {
            for row in 0..height {
                for column in 0..width {
                    let at = row * width + column;
                    match self.kind {
                        PoolKind::Max => {
                            let mut window = self.window(row, column);
                            let mut best = window.next().expect("a kernel of at least 1");
                            for i in window {
                                // A NaN wins, so that it is seen.
                                if x[i] > x[best] || x[i].to_f64().is_nan() {
                                    best = i;
                                }
                            }
                            y[at] = x[best];
                            io.saved.indices[p * height * width + at] = best as u32;
                        }
                        PoolKind::Average => {
                            let sum: T = self.window(row, column).map(|i| x[i]).sum();
                            y[at] = sum * share;
                        }
                    }
                }
            }
        }
    }

    fn backward(&self, io: Backward<'_, T>) {
        let Some(d_x) = io.d_x else { return };
        let (height, width) = (self.out_height(), self.out_width());
        if io.pass.kernels == Kernels::Fast
            && let (Some(d_y), Some(d_x)) = (T::f32s(io.d_y), T::f32s_mut(d_x))
        {
            return cpu::backward(self, &io.saved.indices, d_y, d_x);
        }
        let share = T::from_f64(1.0 / (self.kernel * self.kernel) as f64);
        let planes = d_x.chunks_exact_mut(self.height * self.width);
        for (p, (d_x, d_y)) in planes.zip(io.d_y.chunks_exact(height * width)).enumerate() {
            d_x.fill(T::ZERO);
            for row in 0..height {
                for column in 0..width {
                    let at = row * width + column;
                    match self.kind {
                        PoolKind::Max => {
                            let best = io.saved.indices[p * height * width + at];
                            d_x[best as usize] += d_y[at];
                        }
                        PoolKind::Average => {
                            for i in self.window(row, column) {
                                d_x[i] += d_y[at] * share;
                            }
                        }
                    }
                }
            }
        }
    }

    fn pattern(&self, seen: Seen<'_, T>, pattern: &mut Vec<u32>) {
        if self.kind == PoolKind::Max {
            pattern.extend_from_slice(&seen.saved.indices);
        }
    }
}
