//! Backward in one kernel (fused.wgsl): how many numbers it reads and writes in storage buffers, and its
//! recording.

use super::Dense;
use super::gpu::FUSED;
use super::map::Trained;
use crate::Result;
use crate::cuts::cuts;
use crate::gpu::form::{self, Numbers, row_pieces};
use crate::gpu::layer::Io;
use crate::gpu::recording::{Part, Recording};

/// Inputs and outputs of a workgroup's tile of W, and rows of its tiles of x and d_y.
const INPUTS: usize = 32;
const OUTPUTS: usize = 64;
const ROWS: usize = 16;
/// Rows of a piece, where there are few.
const PIECE: usize = form::PIECE;
cuts!(INPUTS, OUTPUTS, ROWS, PIECE);

/// What of a backward pass is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub rows: usize,
    pub trained: Trained,
    pub input: bool,
}

impl Dense {
    /// Parameters, with those that aren't trained.
    fn parameters(&self) -> usize {
        self.outputs * (self.inputs + usize::from(self.bias))
    }

    /// The trained ones.
    fn trained(&self, wanted: Wanted) -> usize {
        let weights = self.inputs * usize::from(wanted.trained.weight);
        self.outputs * (weights + usize::from(wanted.trained.bias))
    }

    /// The length of the pieces' sums, where there is more than one piece.
    pub(super) fn partial_sums(&self, rows: usize) -> Option<usize> {
        let (_, pieces) = row_pieces(rows);
        (pieces > 1).then_some(pieces * self.parameters())
    }

    /// x once for every block of outputs, d_y once for every block of inputs, W once for every piece of
    /// rows; d_x is written for every block of outputs and read for all but the first.
    pub(super) fn fused_numbers(&self, wanted: Wanted) -> Numbers {
        let (inputs, outputs, rows) = (self.inputs, self.outputs, wanted.rows);
        let (_, pieces) = row_pieces(rows);
        let (input_blocks, output_blocks) = (inputs.div_ceil(INPUTS), outputs.div_ceil(OUTPUTS));
        let mut reals = input_blocks * rows * outputs;
        if wanted.trained.weight {
            reals += output_blocks * rows * inputs;
        }
        if wanted.input {
            reals += pieces * inputs * outputs + (2 * output_blocks - 1) * rows * inputs;
        }
        let trained = self.trained(wanted);
        // Pieces' sums are written, read and added.
        let times = if pieces > 1 { 2 * pieces + 1 } else { 1 };
        Numbers {
            reals: reals as u64,
            floats: (times * trained) as u64,
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
        let weights = self.inputs * self.outputs;
        let [d_weight, d_bias] = match stays {
            true => [io.at(0), io.at(1)],
            false => [0, weights],
        };
        let sizes = [
            ("rows", wanted.rows),
            ("piece", piece),
            ("pieces", pieces),
            ("weight", io.at(0)),
            ("d_weight", d_weight),
            ("d_bias", d_bias),
            ("piece_step", self.parameters()),
            ("trains_weight", wanted.trained.weight.into()),
            ("trains_bias", wanted.trained.bias.into()),
            ("wants_input", wanted.input.into()),
        ];
        let sums = if stays { io.grads } else { &io.saved[0] };
        io.run(
            recording,
            (&FUSED, "dense_backward"),
            &self.constants(),
            &sizes,
            // Something has to be bound where d_x is not wanted; y is touched by nothing here.
            &[io.x, d_y, io.params, sums, d_x.unwrap_or(io.y)],
            self.inputs.div_ceil(INPUTS) * pieces,
        )?;
        match stays {
            true => Ok(()),
            false => {
                let pieces = (sums, pieces, self.parameters());
                (self.map(io)).add_pieces(recording, io, pieces, wanted.trained)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::form::counted_backward;
    use crate::gpu::{BackwardForm, Choice, Gpu};
    use crate::layer::dense::map::Map;

    fn layer(inputs: usize, outputs: usize, bias: bool) -> Dense {
        Dense {
            inputs,
            outputs,
            bias,
            rows: 1,
            by_input: false,
        }
    }

    /// What the kernels count when they run is what the plan counted before.
    #[test]
    fn both_forms_read_and_write_what_the_plan_says() {
        let gpu = Gpu::open(&Choice::Auto).unwrap();
        for (rows, inputs, outputs, bias) in [
            (1, 1, 1, true),
            (5, 3, 2, false),
            (17, 33, 65, true),
            (300, 6, 130, true),
            (130, 130, 130, true),
        ] {
            let layers = format!(
                r#"[{{"kind":"dense","out":{inputs},"bias":false}},{{"kind":"dense","out":{outputs},"bias":{bias}}}]"#
            );
            for (at, wants_input) in [(0, false), (1, true)] {
                let own = match at {
                    0 => layer(3, inputs, false),
                    _ => layer(inputs, outputs, bias),
                };
                let trained = Trained {
                    weight: true,
                    bias: own.bias,
                };
                let wanted = Wanted {
                    rows,
                    trained,
                    input: wants_input,
                };
                let map = Map {
                    inputs: own.inputs,
                    outputs: own.outputs,
                    by_input: false,
                    weight: 0,
                    bias: 0,
                };
                let separate = map.backward_numbers(rows, trained, wants_input, false);
                for (form, numbers) in [
                    (BackwardForm::Separate, separate),
                    (BackwardForm::Fused, own.fused_numbers(wanted)),
                ] {
                    let label = format!("{at}.dense ");
                    let counted = counted_backward(&gpu, (&layers, 3, rows), form, &label);
                    assert_eq!(
                        counted,
                        numbers.bytes(false),
                        "{form:?} {layers} {rows} {at}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_form_with_fewer_bytes_is_taken() {
        let gpu = Gpu::open(&Choice::Auto).unwrap();
        let [few, many] = [1, 2].map(|reals| Numbers { reals, floats: 3 });
        assert!(gpu.fuses(false, many, few) && !gpu.fuses(false, few, many));
        assert!(!gpu.fuses(false, few, few));
        gpu.set_backward_form(BackwardForm::Separate);
        assert!(!gpu.fuses(false, many, few));
    }
}
