//! Layer norm of every row: x̂ = (x − mean)/√(variance + 1e-5), y = γ·x̂ + β.
//!
//! With g = γ·d_y: d_x = (g − mean(g) − x̂·mean(g·x̂))/√(variance + 1e-5), d_γ = Σ d_y·x̂,
//! d_β = Σ d_y.
//!
//! Memory: `a` x̂ · `b` 1/√(variance + 1e-5) of every row · `c` d_y·x̂. The fast form, which is that of
//! the networks' layer norm, keeps x in `a`, and the mean beside the root in `b`.

use super::{Back, Context, LayerTape, sized};
use crate::layer::norm::rows;
use crate::{Layout, Scalar};

/// PyTorch's ε.
const EPS: f64 = 1e-5;

pub(crate) struct LayerNorm {
    pub width: usize,
    weight: usize,
    at: usize,
}

impl LayerNorm {
    pub fn new(layout: &mut Layout, prefix: &str, width: usize) -> Self {
        let weight = layout.tensors().len();
        let at = layout.push(format!("{prefix}.weight"), &[width]).start;
        layout.push(format!("{prefix}.bias"), &[width]);
        LayerNorm { width, weight, at }
    }

    pub fn forward<T: Scalar>(&self, c: &Context<'_, T>, x: &[T], tape: &mut LayerTape<T>) {
        let width = self.width;
        let (gamma, beta) = c.params[self.at..self.at + 2 * width].split_at(width);
        let y = sized(&mut tape.output, x.len());
        let normal = sized(&mut tape.saved.a, x.len());
        if c.fast
            && let [Some(gamma), Some(beta), Some(x)] = [gamma, beta, x].map(T::f32s)
            && let Some(stats) = T::f32_vec(&mut tape.saved.b)
            && let [Some(y), Some(kept)] = [&mut *y, &mut *normal].map(T::f32s_mut)
        {
            kept.copy_from_slice(x);
            return rows::forward([gamma, beta], x, y, sized(stats, x.len() / width * 2));
        }
        let inverse = sized(&mut tape.saved.b, x.len() / width);
        let n = T::from_usize(width);
        for (i, x) in x.chunks_exact(width).enumerate() {
            let mean = x.iter().copied().sum::<T>() / n;
            let variance = x.iter().map(|&x| (x - mean) * (x - mean)).sum::<T>() / n;
            inverse[i] = T::ONE / (variance + T::from_f64(EPS)).sqrt();
            for k in 0..width {
                let at = i * width + k;
                normal[at] = (x[k] - mean) * inverse[i];
                y[at] = normal[at] * gamma[k] + beta[k];
            }
        }
    }

    pub fn backward<T: Scalar>(
        &self,
        b: &mut Back<'_, T>,
        tape: &mut LayerTape<T>,
        d_y: &[T],
        d_x: Option<&mut [T]>,
    ) {
        let width = self.width;
        let saved = &mut tape.saved;
        if b.c.fast
            && let [Some(params), Some(x), Some(stats), Some(d_y)] =
                [b.c.params, &saved.a, &saved.b, d_y].map(T::f32s)
        {
            let wanted = [self.weight, self.weight + 1].map(|tensor| b.wants(tensor));
            let d_params = b.d_params.as_deref_mut().and_then(T::f32s_mut);
            let grads = d_params.map_or([None, None], |d| {
                let (d_gamma, d_beta) = d[self.at..self.at + 2 * width].split_at_mut(width);
                let [gamma, beta] = wanted;
                [gamma.then_some(d_gamma), beta.then_some(d_beta)]
            });
            let gamma = &params[self.at..self.at + width];
            let d_x = d_x.and_then(T::f32s_mut);
            return rows::backward(gamma, (x, d_y), stats, grads, d_x, b.partial);
        }
        if b.wants(self.weight) {
            let products = sized(&mut saved.c, d_y.len());
            for ((p, &d), &x) in products.iter_mut().zip(d_y).zip(&saved.a) {
                *p = d * x;
            }
            b.add_column_sums(self.weight, products);
        }
        b.add_column_sums(self.weight + 1, d_y);
        let Some(d_x) = d_x else { return };
        let gamma = &b.c.params[self.at..self.at + width];
        let n = T::from_usize(width);
        for (i, d_y) in d_y.chunks_exact(width).enumerate() {
            let normal = &saved.a[i * width..(i + 1) * width];
            let (mut mean_g, mut mean_gx) = (T::ZERO, T::ZERO);
            for k in 0..width {
                let g = gamma[k] * d_y[k];
                mean_g += g;
                mean_gx += g * normal[k];
            }
            mean_g /= n;
            mean_gx /= n;
            for k in 0..width {
                let g = gamma[k] * d_y[k];
                d_x[i * width + k] = saved.b[i] * (g - mean_g - normal[k] * mean_gx);
            }
        }
    }
}
