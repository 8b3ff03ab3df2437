//! The layer recorded for the GPU; the kernels are in kan.wgsl and penalty.wgsl, and in fused.wgsl backward
//! in one kernel.

use super::Kan;
use super::basis::round_up;
use super::fused::Wanted;
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Lengths, Record, flag, groups};
use crate::gpu::recording::{Part, Recording};
use crate::layer::TENSORS;
use crate::network::{Base, Outside, Sparsity};

pub(crate) static KAN: Kernel = Kernel::new("layer/kan/kan.wgsl", include_str!("kan.wgsl"));
pub(crate) static FUSED: Kernel = Kernel::new("layer/kan/fused.wgsl", include_str!("fused.wgsl"));
pub(crate) static PENALTY: Kernel =
    Kernel::new("layer/kan/penalty.wgsl", include_str!("penalty.wgsl"));

/// Workgroups of 32 that own 8 × 8 results each.
fn tiles(rows: usize, columns: usize) -> usize {
    (rows.div_ceil(8) * columns.div_ceil(8)).div_ceil(32)
}

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
            ("BLOCKS", self.outputs.div_ceil(8) as f64),
            ("FEATURES4", self.features().div_ceil(4) as f64),
            ("CLAMP", flag(self.outside == Outside::Clamp)),
            ("FREE", flag(self.free_knots.is_some())),
            ("LO", lo),
            ("INVERSE_STEP", self.grid as f64 / (hi - lo)),
        ]
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
        io.run(
            recording,
            (&KAN, "kan_forward"),
            &constants,
            &[("rows", rows), ("weight", io.at(0))],
            &[phi, io.params, io.y],
            tiles(rows, self.outputs),
        )
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        let constants = self.constants();
        let rows = io.x_len / self.inputs;
        let wanted = Wanted {
            rows,
            trained: io.trained,
            input: d_x.is_some(),
        };
        let (separate, fused) = (self.separate_numbers(wanted), self.fused_numbers(wanted));
        if io.gpu.fuses(recording.is_half(), separate, fused) {
            return self.record_fused(recording, io, wanted, d_y, d_x);
        }
        for [first, end] in self.trained_features(io.trained) {
            io.run(
                recording,
                (&KAN, "kan_backward_weight"),
                &constants,
                &[
                    ("rows", rows),
                    ("weight", io.at(0)),
                    ("first_feature", first),
                    ("end_feature", end),
                ],
                &[&io.saved[0], d_y, io.grads],
                tiles(end - first / 8 * 8, self.outputs),
            )?;
        }
        if let Some(d_x) = d_x {
            io.run(
                recording,
                (&KAN, "kan_backward_input"),
                &constants,
                &[("rows", rows), ("weight", io.at(0))],
                &[&io.saved[1], io.params, d_y, d_x],
                self.inputs.div_ceil(8) * rows.div_ceil(64),
            )?;
        }
        Ok(())
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
