//! Backward in one kernel (fused.wgsl), or in products and a kernel of its own (input.rs): how many numbers each form
//! reads and writes in storage buffers, and the recording of the first.

use super::Kan;
use super::gpu::FUSED;
use crate::Result;
use crate::cuts::cuts;
use crate::gpu::form::{self, Numbers, row_pieces};
use crate::gpu::layer::Io;
use crate::gpu::recording::{Part, Recording};
use crate::layer::TENSORS;

/// Features and outputs of a workgroup's tile of W, and rows of its tiles of phi and d_y.
const FEATURES: usize = 32;
const OUTPUTS: usize = 64;
const ROWS: usize = 8;
/// Rows of a piece, where there are few.
const PIECE: usize = form::PIECE;
cuts!(FEATURES, OUTPUTS, ROWS, PIECE);

/// What of a backward pass is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub rows: usize,
    /// Splines' weights, base weights, bias.
    pub trained: [bool; TENSORS],
    pub input: bool,
}

impl Kan {
    /// The splines of an input, and its base.
    pub(super) fn features_of_input(&self) -> usize {
        self.bases() + self.has_base()
    }

    /// Inputs of a workgroup: as many as have 32 features together, or one.
    fn owned_inputs(&self) -> usize {
        (FEATURES / self.features_of_input()).max(1)
    }

    pub(super) fn parameters(&self) -> usize {
        self.features() * self.outputs
    }

    /// Trained features of an input, and of the whole layer.
    fn trained(&self, wanted: Wanted) -> [usize; 2] {
        let [splines, base, bias, ..] = wanted.trained.map(usize::from);
        let each = splines * self.bases() + base * self.has_base();
        let all = self.inputs * each + bias * usize::from(self.bias);
        [each, all]
    }

    /// The length of the pieces' sums, where there is more than one piece.
    pub(super) fn partial_sums(&self, rows: usize) -> Option<usize> {
        let (_, pieces) = row_pieces(rows);
        (pieces > 1).then_some(pieces * self.parameters())
    }

    /// A product for every run of trained features, and a kernel for x.
    pub(super) fn separate_numbers(&self, wanted: Wanted, half: bool) -> Numbers {
        let rows = wanted.rows;
        let mut numbers = Numbers::default();
        for run in self.trained_features(wanted.trained) {
            let shape = self.weights_shape(rows, run);
            numbers += shape.numbers(shape.tiling(half));
        }
        if wanted.input {
            numbers += self.input_numbers(rows, half);
        }
        numbers
    }

    /// Features and slopes once for every block of outputs, d_y once for every block of features, W once
    /// for every piece of rows; d_x is written for every pair of blocks and read for all but the first.
    pub(super) fn fused_numbers(&self, wanted: Wanted) -> Numbers {
        let (inputs, outputs, rows) = (self.inputs, self.outputs, wanted.rows);
        let (_, pieces) = row_pieces(rows);
        let features = self.features_of_input();
        let output_blocks = outputs.div_ceil(OUTPUTS);
        let feature_blocks = features.div_ceil(FEATURES);
        let workgroups = inputs.div_ceil(self.owned_inputs());
        let [each, all] = self.trained(wanted);
        let mut reals = workgroups * feature_blocks * rows * outputs;
        reals += output_blocks * rows * inputs * each;
        if wanted.input {
            let pairs = feature_blocks * output_blocks;
            reals += output_blocks * rows * inputs * features;
            reals += pieces * inputs * features * outputs;
            reals += (2 * pairs - 1) * rows * inputs;
        }
        // Pieces' sums are written, read and added.
        let times = if pieces > 1 { 2 * pieces + 1 } else { 1 };
        Numbers {
            reals: reals as u64,
            floats: (times * all * outputs) as u64,
        }
    }

    pub(super) fn record_fused(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        wanted: Wanted,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        let (piece, pieces) = row_pieces(wanted.rows);
        let stays = pieces == 1;
        let [splines, base, bias, ..] = wanted.trained;
        let sizes = [
            ("rows", wanted.rows),
            ("piece", piece),
            ("pieces", pieces),
            ("weight", io.at(0)),
            ("d_weight", if stays { io.at(0) } else { 0 }),
            ("piece_step", self.parameters()),
            ("trains_splines", splines.into()),
            ("trains_base", base.into()),
            ("trains_bias", bias.into()),
            ("wants_input", wanted.input.into()),
        ];
        let owned = self.owned_inputs();
        let of_shape = ["INPUTS", "OUTPUTS", "BASES", "BASE", "BIAS", "FEATURES4"];
        let mut constants = self.constants();
        constants.retain(|(name, _)| of_shape.contains(name));
        constants.push(("OWNED", owned as f64));
        let sums = if stays { io.grads } else { &io.saved[2] };
        let (phi, slopes) = (&io.saved[0], &io.saved[1]);
        io.run(
            recording,
            (&FUSED, "kan_backward"),
            &constants,
            &sizes,
            // Something has to be bound where d_x is not wanted; y is touched by nothing here.
            &[phi, slopes, io.params, d_y, sums, d_x.unwrap_or(io.y)],
            self.inputs.div_ceil(owned) * pieces,
        )?;
        if stays {
            return Ok(());
        }
        for run in self.trained_features(wanted.trained) {
            self.add_pieces(recording, io, pieces, run)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::form::counted_backward;
    use crate::gpu::{BackwardForm, Choice, Gpu};
    use crate::network::{Base, Outside};

    /// What the kernels count when they run is what the plan counted before.
    #[test]
    fn both_forms_read_and_write_what_the_plan_says() {
        let gpu = Gpu::open(&Choice::Auto).unwrap();
        for (rows, inputs, outputs, grid, base, bias) in [
            (1, 1, 1, 1, true, false),
            (9, 3, 5, 5, true, true),
            (9, 5, 66, 9, false, true),
            (260, 1, 2, 40, true, false),
        ] {
            let base_word = if base { "silu" } else { "none" };
            let layers = format!(
                r#"[{{"kind":"dense","out":{inputs}}},{{"kind":"kan","out":{outputs},"grid":{grid},"degree":3,"base":"{base_word}","bias":{bias}}}]"#
            );
            let base = if base { Base::Silu } else { Base::None };
            let own = Kan::new(
                inputs,
                outputs,
                grid,
                3,
                [-1.0, 1.0],
                base,
                bias,
                Outside::Decay,
            );
            let mut trained = [false; TENSORS];
            trained[..3].copy_from_slice(&[true, base != Base::None, bias]);
            let wanted = Wanted {
                rows,
                trained,
                input: true,
            };
            for (form, numbers) in [
                (BackwardForm::Separate, own.separate_numbers(wanted, false)),
                (BackwardForm::Fused, own.fused_numbers(wanted)),
            ] {
                let label = "1.kan ";
                let counted = counted_backward(&gpu, (&layers, 3, rows), form, label);
                assert_eq!(counted, numbers.bytes(false), "{form:?} {layers} {rows}");
            }
        }
    }
}
