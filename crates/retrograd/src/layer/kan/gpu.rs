//! The layer recorded for the GPU: products of matrices, and the kernels in kan.wgsl, in penalty.wgsl, and in
//! fused.wgsl backward in one kernel.

use super::Kan;
use super::basis::round_up;
use super::fused::Wanted;
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Lengths, Record, flag, groups};
use crate::gpu::product::{Matrix, Product, Shape, add_pieces};
use crate::gpu::recording::{Part, Recording};
use crate::layer::TENSORS;
use crate::network::{Base, Outside, Sparsity};

pub(crate) static KAN: Kernel = Kernel::new("layer/kan/kan.wgsl", include_str!("kan.wgsl"));
pub(crate) static FUSED: Kernel = Kernel::new("layer/kan/fused.wgsl", include_str!("fused.wgsl"));
pub(crate) static PENALTY: Kernel =
    Kernel::new("layer/kan/penalty.wgsl", include_str!("penalty.wgsl"));

impl Kan {
    pub(super) fn has_base(&self) -> usize {
        usize::from(self.base != Base::None)
    }

    /// Spline features, then base features, then the bias.
    pub(super) fn features(&self) -> usize {
        self.inputs * (self.bases() + self.has_base()) + usize::from(self.bias)
    }

    pub(super) fn constants(&self) -> Vec<(&'static str, f64)> {
        let [lo, hi] = self.range;
        vec![
            ("INPUTS", self.inputs as f64),
            ("OUTPUTS", self.outputs as f64),
            ("GRID", self.grid as f64),
            ("DEGREE", self.degree as f64),
            ("BASES", self.bases() as f64),
            ("BASE", self.has_base() as f64),
            ("BIAS", flag(self.bias)),
            ("FEATURES4", self.features().div_ceil(4) as f64),
            ("CLAMP", flag(self.outside == Outside::Clamp)),
            ("FREE", flag(self.free_knots.is_some())),
            ("LO", lo),
            ("INVERSE_STEP", self.grid as f64 / (hi - lo)),
        ]
    }

    /// The features, rows by features.
    fn phi<'a>(&self, part: &'a Part) -> Matrix<'a> {
        Matrix::rows(part, self.features().next_multiple_of(4))
    }

    /// d_W of a run of features is phi^T d_y.
    pub(super) fn weights_shape(&self, rows: usize, [first, end]: [usize; 2]) -> Shape {
        Shape {
            rows: end - first,
            columns: self.outputs,
            inner: rows,
            weights: true,
            cuts: true,
            ..Shape::default()
        }
    }

    fn record_weights(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        rows: usize,
        run: [usize; 2],
        d_y: &Part,
    ) -> Result<()> {
        let shape = self.weights_shape(rows, run);
        let tiling = shape.tiling(recording.is_half());
        let first = run[0] * self.outputs;
        let (to, at) = match tiling.pieces() {
            1 => (io.grads, io.at(0) + first),
            _ => (&io.saved[2], first),
        };
        let phi = self.phi(&io.saved[0]).transposed();
        let product = Product {
            name: "backward_weight",
            shape,
            a: Matrix { at: run[0], ..phi },
            b: Matrix::rows(d_y, self.outputs),
            c: Matrix {
                at,
                ..Matrix::rows(to, self.outputs)
            },
            bias: 0,
            sums: 0,
            relu: false,
        };
        product.record(recording, io, tiling, self.parameters())?;
        match tiling.pieces() {
            1 => Ok(()),
            pieces => self.add_pieces(recording, io, pieces, run),
        }
    }

    /// Adds the pieces' gradients of a run of features.
    pub(super) fn add_pieces(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        pieces: usize,
        run: [usize; 2],
    ) -> Result<()> {
        let [first, end] = run.map(|feature| feature * self.outputs);
        let span = (true, first, io.at(0) + first, end - first);
        let pieces = (&io.saved[2], pieces, self.parameters());
        add_pieces(recording, io, pieces, &[span])
    }

    /// The runs of features whose weights are trained.
    pub(super) fn trained_features(&self, trained: [bool; TENSORS]) -> Vec<[usize; 2]> {
        let splines = self.inputs * self.bases();
        let ends = [
            splines,
            splines + self.inputs * self.has_base(),
            self.features(),
        ];
        let mut runs: Vec<[usize; 2]> = Vec::new();
        let mut start = 0;
        for (end, trained) in ends.into_iter().zip(trained) {
            if trained && end > start {
                match runs.last_mut() {
                    Some(run) if run[1] == start => run[1] = end,
                    _ => runs.push([start, end]),
                }
            }
            start = end;
        }
        runs
    }
}

impl Record for Kan {
    fn saved(&self, io: &Lengths<'_>) -> Vec<usize> {
        let rows = io.x_len / self.inputs;
        let slopes = self.bases() + self.has_base();
        let mut saved = vec![
            io.reals(rows * self.features().next_multiple_of(4)),
            io.reals(io.x_len * slopes),
        ];
        saved.extend(self.partial_sums(rows));
        saved
    }

    /// Free knots, continued by `degree` steps on either side: the recursion then never misses one.
    /// Uniform ones once for all inputs, to the nearest f32 and then rounded up.
    fn fixed(&self) -> Vec<f32> {
        let Some(all) = &self.free_knots else {
            let knots = self.knots(0);
            let nearest = knots.iter().map(|&t| t as f32);
            let up = knots.iter().map(|&t| round_up(t));
            return nearest.chain(up).collect();
        };
        let mut padded = Vec::new();
        for knots in all.chunks_exact(self.knot_count()) {
            let (first, last) = (knots[0], knots[knots.len() - 1]);
            let below = knots[1] - first;
            let above = last - knots[knots.len() - 2];
            let k = self.degree;
            padded.extend((1..=k).rev().map(|n| (first - n as f64 * below) as f32));
            padded.extend(knots.iter().map(|&t| t as f32));
            padded.extend((1..=k).map(|n| (last + n as f64 * above) as f32));
        }
        padded
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        let constants = self.constants();
        let rows = io.x_len / self.inputs;
        let (phi, slopes) = (&io.saved[0], &io.saved[1]);
        io.run(
            recording,
            (&KAN, "kan_basis"),
            &constants,
            &[("rows", rows)],
            &[io.x, io.fixed, phi, slopes],
            groups(io.x_len),
        )?;
        let shape = Shape {
            rows,
            columns: self.outputs,
            inner: self.features(),
            ..Shape::default()
        };
        let product = Product {
            name: "forward",
            shape,
            a: self.phi(phi),
            b: Matrix {
                at: io.at(0),
                ..Matrix::rows(io.params, self.outputs)
            },
            c: Matrix::rows(io.y, self.outputs),
            bias: 0,
            sums: 0,
            relu: false,
        };
        product.record(recording, io, shape.tiling(recording.is_half()), 0)
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        let rows = io.x_len / self.inputs;
        let wanted = Wanted {
            rows,
            trained: io.trained,
            input: d_x.is_some(),
        };
        let half = recording.is_half();
        let separate = self.separate_numbers(wanted, half);
        if (io.gpu).fuses(half, separate, self.fused_numbers(wanted)) {
            return self.record_fused(recording, io, wanted, d_y, d_x);
        }
        for run in self.trained_features(io.trained) {
            self.record_weights(recording, io, rows, run, d_y)?;
        }
        match d_x {
            Some(d_x) => self.record_input(recording, io, rows, (d_y, d_x)),
            None => Ok(()),
        }
    }

    fn penalty(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        sparsity: Option<&Sparsity>,
        losses: &Part,
    ) -> Result<()> {
        let Some(sparsity) = sparsity else {
            return Ok(());
        };
        let edges = self.inputs * self.outputs;
        let shape = [
            ("OUTPUTS", self.outputs as f64),
            ("BASES", self.bases() as f64),
            ("BASE", self.has_base() as f64),
        ];
        let weights = [("L1", sparsity.l1), ("ENTROPY", sparsity.entropy)];
        let edge_sizes = Part::whole(&io.gpu.floats("edge sizes", edges)?);
        let sums = Part::whole(&io.gpu.floats("sums of edge sizes", 2)?);
        let sizes = [
            ("edges", edges),
            ("spline_weight", io.at(0)),
            ("base_weight", io.at(1)),
            ("trains_spline", usize::from(io.trained[0])),
            ("trains_base", usize::from(io.trained[1])),
        ];
        io.run(
            recording,
            (&PENALTY, "kan_penalty_edges"),
            &shape,
            &sizes,
            &[io.master, &edge_sizes],
            groups(edges),
        )?;
        io.run(
            recording,
            (&PENALTY, "kan_penalty_sums"),
            &weights,
            &sizes,
            &[&edge_sizes, &sums, losses],
            1,
        )?;
        io.run(
            recording,
            (&PENALTY, "kan_penalty_gradient"),
            &[&shape[..], &weights].concat(),
            &sizes,
            &[io.master, &edge_sizes, &sums, io.grads],
            groups(edges),
        )
    }
}
