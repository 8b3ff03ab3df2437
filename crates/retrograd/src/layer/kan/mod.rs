//! Kolmogorov–Arnold layer: a learned function on every edge.
//!
//! `y_j = bias_j + Σ_i ( base_weight[j,i]·silu(x_i) + Σ_m spline_weight[j,i,m]·B_m(x_i) )`
//!
//! B_m are the B-splines of degree k on knots t_0 < t_1 < … < t_{G+2k}, uniform
//! t_n = lo + (n − k)·(hi − lo)/G, or free ones per input (`free_knots`). By Cox and de Boor,
//!
//! B_{m,0}(x) = \[t_m ≤ x < t_{m+1}\],
//! B_{m,d}(x) = (x − t_m)/(t_{m+d} − t_m)·B_{m,d−1}(x) + (t_{m+d+1} − x)/(t_{m+d+1} − t_{m+1})·B_{m+1,d−1}(x),
//!
//! and the derivative of degree k comes from the splines of degree k−1:
//!
//! B′_{m,k}(x) = k/(t_{m+k} − t_m)·B_{m,k−1}(x) − k/(t_{m+k+1} − t_{m+1})·B_{m+1,k−1}(x).
//!
//! Backward, per sample:
//!
//! - `d_spline_weight[j,i,m] = Σ d_y_j·B_m(x_i)`, `d_base_weight[j,i] = Σ d_y_j·silu(x_i)`,
//!   `d_bias_j = Σ d_y_j`
//! - `d_x_i = Σ_j d_y_j·( base_weight[j,i]·silu′(x_i) + Σ_m spline_weight[j,i,m]·B′_m(x_i) )`
//!
//! `outside = "clamp"`: everything is evaluated at x clamped to [lo, hi] (with free knots
//! \[t_k, t_{G+k}\]), and d_x is 0 outside.
//!
//! Weights are stored \[in\]\[basis\]\[out\] and \[in\]\[out\]: the loops of the fast kernels run
//! over outputs, contiguously. Files see PyTorch's (out, in, basis).

/// Runs an expression with the constant that chooses a kernel: 4 basis functions, degree 3, or room
/// for the 8 of degree 7.
macro_rules! by_degree {
    ($degree:expr, $n:ident => $call:expr) => {
        if $degree == 3 {
            const $n: usize = 4;
            $call
        } else {
            const $n: usize = 8;
            $call
        }
    };
}

/// Runs an expression with the room for rows of weights that a kernel is compiled for: 4, or the 8
/// of degree 7. Rows that a degree doesn't have are zeros: two kernels to compile instead of seven.
macro_rules! by_rows {
    ($degree:expr, $n:ident => $call:expr) => {
        if $degree <= 3 {
            const $n: usize = 4;
            $call
        } else {
            const $n: usize = 8;
            $call
        }
    };
}

mod backward;
pub(crate) mod basis;
mod block;
mod cpu;
pub(crate) mod faults;
pub(crate) mod frozen;
#[cfg(feature = "gpu")]
mod fused;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
#[cfg(feature = "gpu")]
pub(crate) mod input;
mod onnx;
mod penalty;
pub(crate) mod reference;
mod rows;
mod single;
mod spec;
mod sums;
#[cfg(test)]
mod tests;

pub use spec::KanSpec;

use crate::layer::{Backward, Describe, Forward, Layer, Seen, TensorSpec, check_shape, uniform};
use crate::linalg::{cholesky, cholesky_solve};
use crate::network::{Base, Outside};
use crate::rng::Stream;
use crate::{Buffer, Error, Kernels, Result, Scalar};

/// The highest degree.
pub(crate) const MAX_DEGREE: usize = 7;

#[derive(Clone)]
pub(crate) struct Kan {
    pub inputs: usize,
    pub outputs: usize,
    pub grid: usize,
    pub degree: usize,
    pub range: [f64; 2],
    pub base: Base,
    pub bias: bool,
    pub outside: Outside,
    /// (in, G+2k+1), where every input has knots of its own.
    pub free_knots: Option<Vec<f64>>,
    /// The knots as the fast kernels want them.
    pub(crate) table: basis::Table,
}

impl Kan {
    /// With uniform knots.
    pub fn new(
        inputs: usize,
        outputs: usize,
        grid: usize,
        degree: usize,
        range: [f64; 2],
        base: Base,
        bias: bool,
        outside: Outside,
    ) -> Self {
        let knots = uniform_knots(grid, degree, range);
        let step = (range[1] - range[0]) / grid as f64;
        let clamp = outside == Outside::Clamp;
        Kan {
            inputs,
            outputs,
            grid,
            degree,
            range,
            base,
            bias,
            outside,
            free_knots: None,
            table: basis::Table::new(degree, grid, clamp, Some(step), &[knots]),
        }
    }

    /// Gives every input knots of its own: (in, G+2k+1), increasing.
    pub fn set_knots(&mut self, knots: Vec<f64>) {
        let tables: Vec<Vec<f64>> = knots
            .chunks_exact(self.knot_count())
            .map(<[f64]>::to_vec)
            .collect();
        let clamp = self.outside == Outside::Clamp;
        self.table = basis::Table::new(self.degree, self.grid, clamp, None, &tables);
        self.free_knots = Some(knots);
    }

    /// G + k.
    pub fn bases(&self) -> usize {
        self.grid + self.degree
    }

    /// G + 2k + 1.
    pub fn knot_count(&self) -> usize {
        self.grid + 2 * self.degree + 1
    }

    /// The bytes of one input's own knots: the knots, the fast kernels' two tables, and what stands
    /// beside them while they are made.
    pub(crate) fn free_knot_bytes(&self) -> u64 {
        let extended = self.grid + 4 * self.degree + 1;
        8 * (2 * self.knot_count() + 3 + 2 * extended) as u64
    }

    /// The bytes of the weights in rows of whole vectors, which fast kernels read.
    pub(crate) fn padded_bytes(&self) -> u128 {
        let rows = self.inputs as u128 * (self.bases() as u128 + 1);
        4 * rows * rows::padded_width(self.outputs) as u128
    }

    /// The uniform knots.
    pub fn uniform_knots(&self) -> Vec<f64> {
        uniform_knots(self.grid, self.degree, self.range)
    }

    /// The knots of an input.
    pub fn knots(&self, input: usize) -> Vec<f64> {
        match &self.free_knots {
            Some(knots) => knots[input * self.knot_count()..][..self.knot_count()].to_vec(),
            None => self.uniform_knots(),
        }
    }
}

/// t_n = lo + (n − k)·(hi − lo)/G.
pub(crate) fn uniform_knots(grid: usize, degree: usize, [lo, hi]: [f64; 2]) -> Vec<f64> {
    (0..grid + 2 * degree + 1)
        .map(|n| lo + (n as f64 - degree as f64) * (hi - lo) / grid as f64)
        .collect()
}

impl Describe for Kan {
    fn joins_shards(&self) -> bool {
        true
    }

    fn to_onnx(&self) -> Option<&dyn crate::onnx::ToOnnx> {
        Some(self)
    }

    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }

    fn tensors(&self) -> Vec<Option<TensorSpec>> {
        let shape = [self.outputs, self.inputs, self.bases()];
        let base = TensorSpec::new("base_weight", &[self.outputs, self.inputs]).stored(&[1, 0]);
        vec![
            Some(TensorSpec::new("spline_weight", &shape).stored(&[1, 2, 0])),
            (self.base != Base::None).then_some(base),
            self.bias.then(|| TensorSpec::new("bias", &[self.outputs])),
        ]
    }

    /// efficient-kan's: base weights uniform in ±1/√in; splines fitted to noise of ±0.05/G at the
    /// grid's points, times a scale uniform in ±1/√in; biases 0.
    fn init(&self, slot: usize, len: usize, stream: &mut Stream) -> Vec<f32> {
        let bound = 1.0 / (self.inputs as f64).sqrt();
        match slot {
            0 => self.init_splines(bound, stream),
            1 => uniform(len, bound, stream),
            _ => vec![0.0; len],
        }
    }

    fn buffers(&self) -> Vec<Buffer> {
        let Some(knots) = &self.free_knots else {
            return Vec::new();
        };
        vec![Buffer {
            name: "knots".into(),
            shape: vec![self.inputs, self.knot_count()],
            values: knots.clone(),
        }]
    }

    fn set_buffer(&mut self, name: &str, buffer: &Buffer) -> Result<bool> {
        if name != "knots" {
            return Ok(false);
        }
        check_shape(buffer, &[self.inputs, self.knot_count()])?;
        for (i, knots) in buffer.values.chunks_exact(self.knot_count()).enumerate() {
            if let Some(n) = (1..knots.len()).find(|&n| knots[n] <= knots[n - 1]) {
                return Err(Error::invalid(
                    format!("buffer {}, input {i}", buffer.name),
                    format!("knots {} then {}", knots[n - 1], knots[n]),
                    "increasing knots",
                ));
            }
        }
        self.set_knots(buffer.values.clone());
        Ok(true)
    }
}

impl Kan {
    /// Coefficients of least norm whose spline passes through noise at the G+1 grid points, as
    /// efficient-kan's least squares gives them: with A the G+1 × G+k matrix of the bases there,
    /// c = Aᵀ·(A·Aᵀ)⁻¹·noise.
    fn init_splines(&self, bound: f64, stream: &mut Stream) -> Vec<f32> {
        let (points, bases) = (self.grid + 1, self.bases());
        let mut weights = vec![0.0; self.outputs * self.inputs * bases];
        for i in 0..self.inputs {
            let knots = self.knots(i);
            let mut rows = vec![vec![0.0; bases]; points];
            let mut unused = vec![0.0; bases];
            for (p, row) in rows.iter_mut().enumerate() {
                let x = knots[self.degree + p];
                reference::basis(self.degree, &knots, x, row, &mut unused);
            }
            // (A·Aᵀ)⁻¹ by Cholesky; A is the bases at the points, and has full row rank.
            let dot = |r: usize, c: usize| rows[r].iter().zip(&rows[c]).map(|(a, b)| a * b).sum();
            let mut gram: Vec<f64> = (0..points * points)
                .map(|e| dot(e / points, e % points))
                .collect();
            cholesky(&mut gram, points, 1e-12);
            for j in 0..self.outputs {
                let mut z: Vec<f64> = (0..points)
                    .map(|_| (stream.uniform() - 0.5) * 0.1 / self.grid as f64)
                    .collect();
                let scale = stream.range(-bound, bound);
                cholesky_solve(&gram, &mut z, points, 1);
                for m in 0..bases {
                    let c: f64 = rows.iter().zip(&z).map(|(row, z)| row[m] * z).sum();
                    weights[(j * self.inputs + i) * bases + m] = (scale * c) as f32;
                }
            }
        }
        weights
    }
}

impl<T: Scalar> Layer<T> for Kan {
    fn forward(&self, io: Forward<'_, T>) {
        if io.pass.kernels == Kernels::Fast
            && let [Some(spline), Some(base), Some(bias), ..] = io.params.map(T::f32s)
            && let (Some(x), Some(y)) = (T::f32s(io.x), T::f32s_mut(io.y))
        {
            let rows = x.len() / self.inputs;
            return cpu::forward(self, rows, spline, base, bias, x, y);
        }
        reference::forward(self, io);
    }

    fn backward(&self, io: Backward<'_, T>) {
        if io.pass.kernels == Kernels::Fast
            && let [Some(spline), Some(base), ..] = io.params.map(T::f32s)
            && let (Some(x), Some(d_y)) = (T::f32s(io.x), T::f32s(io.d_y))
            && let Some(scratch) = T::f32_vec(&mut io.saved.scratch)
        {
            let [d_spline_weight, d_base_weight, d_bias, ..] = io
                .d_params
                .map(|d| d.and_then(T::f32s_mut).unwrap_or_default());
            let grads = backward::Gradients {
                d_spline_weight,
                d_base_weight,
                d_bias,
            };
            let d_x = io.d_x.and_then(T::f32s_mut);
            let rows = x.len() / self.inputs;
            let segments = io.pass.segments_of(io.samples, rows / io.samples.max(1));
            return backward::backward(
                self, rows, spline, base, x, d_y, grads, d_x, scratch, segments,
            );
        }
        reference::backward(self, io);
    }

    /// The interval, where a derivative up to the second jumps at knots, and which side of a clamp.
    fn pattern(&self, seen: Seen<'_, T>, pattern: &mut Vec<u32>) {
        let clamped = self.outside == Outside::Clamp;
        if self.degree > 2 && !clamped {
            return;
        }
        let knots: Vec<Vec<f64>> = (0..self.inputs).map(|i| self.knots(i)).collect();
        for x in seen.x.chunks_exact(self.inputs) {
            for (&x, knots) in x.iter().zip(&knots) {
                let interval = knots.partition_point(|&t| t <= x.to_f64());
                let k = self.degree;
                let interval = if self.degree > 2 {
                    // Only the ends of the range matter.
                    usize::from(interval > k) + usize::from(x.to_f64() > knots[self.grid + k])
                } else {
                    interval
                };
                pattern.push(interval as u32);
            }
        }
    }
}
