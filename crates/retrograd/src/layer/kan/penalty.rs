//! Sparsity: a loss on the weights of a layer that asks for few, clear edges.
//!
//! The size of edge e = (i → j) is a_e = Σ_m |spline_weight[j,i,m]| / (G+k) + |base_weight[j,i]|.
//! With A = Σ a_e over the layer and p_e = a_e / A,
//!
//! penalty = l1·A + entropy·S, S = −Σ p_e·ln p_e = ln A − T, T = Σ a_e·ln a_e / A.
//!
//! ∂A/∂a_e = 1 and ∂S/∂a_e = 1/A − (ln a_e + 1)/A + T/A = (T − ln a_e)/A, so
//!
//! - d_spline_weight[j,i,m] += (l1 + entropy·(T − ln a_e)/A)·sign(spline_weight[j,i,m])/(G+k)
//! - d_base_weight[j,i] += (l1 + entropy·(T − ln a_e)/A)·sign(base_weight[j,i])
//!
//! A weight of 0 has the gradient 0; so has every weight of a layer whose A is 0.

use super::Kan;
use crate::Scalar;
use crate::network::Sparsity;

fn sign<T: Scalar>(w: T) -> T {
    if w > T::ZERO {
        T::ONE
    } else if w < T::ZERO {
        -T::ONE
    } else {
        T::ZERO
    }
}

impl Kan {
    /// The sizes of the edges, stored \[in\]\[out\].
    pub(crate) fn edge_sizes<T: Scalar>(&self, spline_weight: &[T], base_weight: &[T]) -> Vec<T> {
        let (bases, outputs) = (self.bases(), self.outputs);
        let share = T::ONE / T::from_usize(bases);
        let mut sizes = vec![T::ZERO; self.inputs * outputs];
        for (i, rows) in spline_weight.chunks_exact(bases * outputs).enumerate() {
            let sizes = &mut sizes[i * outputs..(i + 1) * outputs];
            for row in rows.chunks_exact(outputs) {
                for (size, w) in sizes.iter_mut().zip(row) {
                    *size += w.abs();
                }
            }
            for size in sizes.iter_mut() {
                *size *= share;
            }
        }
        for (size, w) in sizes.iter_mut().zip(base_weight) {
            *size += w.abs();
        }
        sizes
    }

    /// The penalty of this layer; its gradient is added.
    pub(crate) fn penalty<T: Scalar>(
        &self,
        sparsity: &Sparsity,
        spline_weight: &[T],
        base_weight: &[T],
        d_weights: [Option<&mut [T]>; 2],
    ) -> T {
        let (bases, outputs) = (self.bases(), self.outputs);
        let [l1, entropy] = [sparsity.l1, sparsity.entropy].map(T::from_f64);
        let sizes = self.edge_sizes(spline_weight, base_weight);
        let total: T = sizes.iter().copied().sum();
        if total <= T::ZERO {
            return T::ZERO;
        }
        let logs: Vec<T> = sizes
            .iter()
            .map(|&a| if a > T::ZERO { a.ln() } else { T::ZERO })
            .collect();
        let mean_log = sizes.iter().zip(&logs).map(|(&a, &l)| a * l).sum::<T>() / total;
        let [d_spline_weight, d_base_weight] = d_weights;
        let d_size = |e: usize| l1 + entropy * (mean_log - logs[e]) / total;
        if let Some(d_spline_weight) = d_spline_weight {
            let share = T::ONE / T::from_usize(bases);
            for (row, (d_row, w_row)) in d_spline_weight
                .chunks_exact_mut(outputs)
                .zip(spline_weight.chunks_exact(outputs))
                .enumerate()
            {
                let i = row / bases;
                for (j, (d_w, &w)) in d_row.iter_mut().zip(w_row).enumerate() {
                    *d_w += d_size(i * outputs + j) * sign(w) * share;
                }
            }
        }
        if let Some(d_base_weight) = d_base_weight {
            for (e, (d_w, &w)) in d_base_weight.iter_mut().zip(base_weight).enumerate() {
                *d_w += d_size(e) * sign(w);
            }
        }
        l1 * total + entropy * (total.ln() - mean_log)
    }
}
