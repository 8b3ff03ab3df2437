//! Layer, group and batch normalisation.
//!
//! Each splits its input into sets S of n elements that share a mean μ and a variance σ² (over n):
//! x̂ = (x − μ)/√(σ² + ε), y = γ_c·x̂ + β_c with c the element's channel. With g = γ_c·d_y:
//!
//! - d_x = (g − mean_S(g) − x̂·mean_S(g·x̂)) / √(σ² + ε)
//! - d_γ_c = Σ d_y·x̂ and d_β_c = Σ d_y over the elements of channel c
//!
//! | kind | a set | channel |
//! |---|---|---|
//! | `layer_norm` | the last axis of one row | the place on that axis |
//! | `group_norm` | C/groups channels of one sample | C |
//! | `batch_norm2d` | one channel over batch, height, width | C |
//!
//! `batch_norm2d` takes the batch's statistics in training and its running ones in inference
//! (momentum 0.1, running variance over n−1, as PyTorch); they are buffers, not parameters. In
//! inference the statistics are constants: d_x = g/√(σ² + ε).

mod cpu;
pub(crate) mod faults;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
mod joint;
mod onnx;
pub(crate) mod rows;
mod spec;
#[cfg(test)]
mod tests;

pub use spec::{BatchNorm2dSpec, GroupNormSpec, LayerNormSpec};

use crate::layer::{Backward, Describe, Forward, Layer, Saved, TensorSpec, check_shape, sized};
use crate::math;
use crate::rng::Stream;
use crate::{Buffer, Kernels, Result, Scalar};

const EPS: f64 = 1e-5;
const MOMENTUM: f64 = 0.1;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NormKind {
    Layer,
    Group(usize),
    Batch,
}

pub(crate) struct Norm {
    kind: NormKind,
    channels: usize,
    /// Elements of one channel in one sample (1 for the last axis).
    plane: usize,
    running: Option<Running>,
}

struct Running {
    mean: Vec<f64>,
    var: Vec<f64>,
    batches: f64,
}

impl Norm {
    pub fn new(kind: NormKind, channels: usize, plane: usize) -> Self {
        let running = (kind == NormKind::Batch).then(|| Running {
            mean: vec![0.0; channels],
            var: vec![1.0; channels],
            batches: 0.0,
        });
        Norm {
            kind,
            channels,
            plane,
            running,
        }
    }

    /// The sets over an input of that length: their number, their size, and the place and channel
    /// of the j-th element of set s.
    pub fn sets(&self, len: usize) -> (usize, usize) {
        let size = match self.kind {
            NormKind::Layer => self.channels,
            NormKind::Group(groups) => self.channels / groups * self.plane,
            NormKind::Batch => len / self.channels,
        };
        (len / size, size)
    }

    #[inline(always)]
    pub fn place(&self, size: usize, s: usize, j: usize) -> (usize, usize) {
        match self.kind {
            NormKind::Layer => (s * size + j, j),
            NormKind::Group(groups) => {
                let at = s * size + j;
                (at, (s % groups) * (self.channels / groups) + j / self.plane)
            }
            NormKind::Batch => {
                let (sample, k) = (j / self.plane, j % self.plane);
                ((sample * self.channels + s) * self.plane + k, s)
            }
        }
    }

    /// Whether the statistics are those of all samples of the batch, of other shards too.
    fn joins(&self, training: bool) -> bool {
        training && self.kind == NormKind::Batch
    }

    /// Mean and squared deviations of a set.
    fn moments<T: Scalar>(&self, x: &[T], set: usize, size: usize) -> [f64; 2] {
        let x = |j| x[self.place(size, set, j).0].to_f64();
        let mean = (0..size).map(x).sum::<f64>() / size as f64;
        let squares = (0..size).map(|j| (x(j) - mean) * (x(j) - mean)).sum();
        [mean, squares]
    }

    /// Constants instead of the batch's statistics?
    fn fixed(&self, training: bool) -> Option<&Running> {
        self.running.as_ref().filter(|_| !training)
    }
}

impl Describe for Norm {
    fn to_onnx(&self) -> Option<&dyn crate::onnx::ToOnnx> {
        Some(self)
    }

    #[cfg(feature = "gpu")]
    fn running_channels(&self) -> Option<usize> {
        self.running.as_ref().map(|_| self.channels)
    }

    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }

    fn couples(&self) -> bool {
        self.kind == NormKind::Batch
    }

    fn tensors(&self) -> Vec<Option<TensorSpec>> {
        vec![
            Some(TensorSpec::new("weight", &[self.channels])),
            Some(TensorSpec::new("bias", &[self.channels])),
        ]
    }

    fn init(&self, slot: usize, len: usize, _: &mut Stream) -> Vec<f32> {
        vec![if slot == 0 { 1.0 } else { 0.0 }; len]
    }

    fn buffers(&self) -> Vec<Buffer> {
        let Some(running) = &self.running else {
            return Vec::new();
        };
        let of = |name: &str, shape: Vec<usize>, values: Vec<f64>| Buffer {
            name: name.into(),
            shape,
            values,
        };
        vec![
            of("running_mean", vec![self.channels], running.mean.clone()),
            of("running_var", vec![self.channels], running.var.clone()),
            of("num_batches_tracked", vec![], vec![running.batches]),
        ]
    }

    fn set_buffer(&mut self, name: &str, buffer: &Buffer) -> Result<bool> {
        let channels = self.channels;
        let Some(running) = &mut self.running else {
            return Ok(false);
        };
        match name {
            "running_mean" | "running_var" => {
                check_shape(buffer, &[channels])?;
                let own = if name == "running_mean" {
                    &mut running.mean
                } else {
                    &mut running.var
                };
                own.copy_from_slice(&buffer.values);
            }
            "num_batches_tracked" => {
                check_shape(buffer, &[])?;
                running.batches = buffer.values[0];
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn absorb(&mut self, saved: &Saved<f32>, samples: usize) {
        // Of the whole batch, where this was a shard.
        let n = match saved.indices[..] {
            [low, high] => f64::from(low) + f64::from(high) * 4_294_967_296.0,
            _ => (samples * self.plane) as f64,
        };
        let Some(running) = &mut self.running else {
            return;
        };
        running.batches += 1.0;
        for (c, stats) in saved.values.chunks_exact(2).enumerate() {
            let [mean, inverse] = [0, 1].map(|i| f64::from(stats[i]));
            let var = math::max(1.0 / (inverse * inverse) - EPS, 0.0) * n / math::max(n - 1.0, 1.0);
            running.mean[c] += MOMENTUM * (mean - running.mean[c]);
            running.var[c] += MOMENTUM * (var - running.var[c]);
        }
    }
}

impl<T: Scalar> Layer<T> for Norm {
    fn forward(&self, io: Forward<'_, T>) {
        let [weight, bias, ..] = io.params;
        let (sets, size) = self.sets(io.x.len());
        let (n, eps) = (T::from_usize(size), T::from_f64(EPS));
        // Mean and 1/√(σ² + ε) of every set.
        let stats = sized(&mut io.saved.values, 2 * sets);
        if io.pass.kernels == Kernels::Fast
            && let [Some(weight), Some(bias), Some(x)] = [weight, bias, io.x].map(T::f32s)
            && let [Some(y), Some(stats)] = [&mut *io.y, &mut *stats].map(T::f32s_mut)
            && let Some(scratch) = T::f32_vec(&mut io.saved.scratch)
        {
            if self.kind == NormKind::Layer {
                return rows::forward([weight, bias], x, y, stats);
            }
            let fixed = self.fixed(io.pass.training);
            let join = self.joins(io.pass.training);
            let whole = cpu::forward(self, (fixed, join), [weight, bias], x, y, stats, scratch);
            return keep_count(&mut io.saved.indices, whole);
        }
        let joined = self.joins(io.pass.training).then(|| {
            joint::whole(|| joint::Moments {
                count: size as f64,
                channels: (0..sets).map(|s| self.moments(io.x, s, size)).collect(),
            })
        });
        let joined = joined.flatten();
        keep_count(&mut io.saved.indices, joined.as_ref().map(|m| m.count));
        for (s, stats) in stats.chunks_exact_mut(2).enumerate() {
            let x = |j| io.x[self.place(size, s, j).0];
            let (mean, var) = match (self.fixed(io.pass.training), &joined) {
                (Some(fixed), _) => (T::from_f64(fixed.mean[s]), T::from_f64(fixed.var[s])),
                (None, Some(all)) => {
                    let [mean, squares] = all.channels[s];
                    (T::from_f64(mean), T::from_f64(squares / all.count))
                }
                (None, None) => {
                    let mean = (0..size).map(x).sum::<T>() / n;
                    let squares: T = (0..size).map(|j| (x(j) - mean) * (x(j) - mean)).sum();
                    (mean, squares / n)
                }
            };
            let inverse = T::ONE / (var + eps).sqrt();
            stats.copy_from_slice(&[mean, inverse]);
            for j in 0..size {
                let (at, c) = self.place(size, s, j);
                io.y[at] = (io.x[at] - mean) * inverse * weight[c] + bias[c];
            }
        }
    }

    fn backward(&self, io: Backward<'_, T>) {
        let [weight, ..] = io.params;
        let [mut d_weight, mut d_bias, ..] = io.d_params;
        let d_x = io.d_x;
        let (sets, size) = self.sets(io.x.len());
        let n = T::from_usize(size);
        let fixed = self.fixed(io.pass.training).is_some();
        if io.pass.kernels == Kernels::Fast
            && let [Some(weight), Some(x), Some(d_y), Some(stats)] =
                [weight, io.x, io.d_y, &io.saved.values[..]].map(T::f32s)
            && let Some(scratch) = T::f32_vec(&mut io.saved.scratch)
        {
            let grads = [d_weight, d_bias].map(|d| d.and_then(T::f32s_mut));
            let d_x = d_x.and_then(T::f32s_mut);
            if self.kind == NormKind::Layer {
                return rows::backward(weight, (x, d_y), stats, grads, d_x, scratch);
            }
            let kind = (fixed, self.joins(io.pass.training));
            return cpu::backward(self, kind, weight, (x, d_y), stats, grads, d_x, scratch);
        }
        let mut sums = vec![[T::ZERO; 2]; sets];
        for s in 0..sets {
            let [mean, inverse] = [io.saved.values[2 * s], io.saved.values[2 * s + 1]];
            let [mut sum_g, mut sum_gx] = [T::ZERO; 2];
            for j in 0..size {
                let (at, c) = self.place(size, s, j);
                let normal = (io.x[at] - mean) * inverse;
                let g = weight[c] * io.d_y[at];
                sum_g += g;
                sum_gx += g * normal;
                if let Some(d_weight) = &mut d_weight {
                    d_weight[c] += io.d_y[at] * normal;
                }
                if let Some(d_bias) = &mut d_bias {
                    d_bias[c] += io.d_y[at];
                }
            }
            sums[s] = match fixed {
                true => [T::ZERO; 2],
                false => [sum_g / n, sum_gx / n],
            };
        }
        let Some(d_x) = d_x else {
            return;
        };
        if self.joins(io.pass.training) {
            let own = || sums.iter().flatten().map(|s| (*s * n).to_f64()).collect();
            if let Some((count, all)) = joint::sums(size, own) {
                for (mean, total) in sums.as_flattened_mut().iter_mut().zip(all) {
                    *mean = T::from_f64(total / count);
                }
            }
        }
        for (s, [mean_g, mean_gx]) in sums.into_iter().enumerate() {
            let [mean, inverse] = [io.saved.values[2 * s], io.saved.values[2 * s + 1]];
            for j in 0..size {
                let (at, c) = self.place(size, s, j);
                let normal = (io.x[at] - mean) * inverse;
                let g = weight[c] * io.d_y[at];
                d_x[at] = inverse * (g - mean_g - normal * mean_gx);
            }
        }
    }
}

/// Keeps the number of elements of a channel in the whole batch, where this was a shard of it.
fn keep_count(indices: &mut Vec<u32>, count: Option<f64>) {
    indices.clear();
    if let Some(count) = count {
        let count = count as u64;
        indices.extend([count as u32, (count >> 32) as u32]);
    }
}
