//! The gradient of x on the device, without those of the weights (input.wgsl): its tiles, what they read and write,
//! and its recording.

use super::Kan;
use crate::Result;
use crate::cuts::cuts;
use crate::gpu::form::{Cost, Numbers, best};
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::Io;
use crate::gpu::recording::{Part, Recording};

pub(crate) static INPUT: Kernel = Kernel::new("layer/kan/input.wgsl", include_str!("input.wgsl"));

/// The sides of the square tiles, of 64 invocations and of 256.
const TILE: usize = 64;
const WIDE_TILE: usize = 128;
/// Outputs in workgroup memory at a time, where both slices fit.
const SLICE: usize = 16;
/// Results of an invocation, down and across.
const OWN: usize = 8;
cuts!(TILE, WIDE_TILE, SLICE, OWN);

/// Numbers of workgroup memory.
const ROOM: usize = 4096;

/// A tile's invocations, down and across.
const TILES: [[usize; 2]; 6] = [
    [TILE / OWN, TILE / OWN],
    [16, 4],
    [4, 16],
    [WIDE_TILE / OWN, WIDE_TILE / OWN],
    [32, 8],
    [8, 32],
];

/// How the work is cut.
#[derive(Clone, Copy)]
struct Tiling {
    lanes: [usize; 2],
    /// Inputs of a workgroup.
    owned: usize,
    workgroups: usize,
    numbers: Numbers,
}

impl Kan {
    /// d_y once for every block of inputs, W once for every block of rows, slopes and d_x once.
    fn input_tiling(&self, rows: usize, half: bool) -> Option<Tiling> {
        let features = self.features_of_input();
        let numbers = |[down, across]: [usize; 2]| {
            let of_d_y = across * rows * self.outputs;
            let of_weights = down * self.inputs * features * self.outputs;
            Numbers {
                reals: (of_d_y + of_weights + rows * self.inputs * (features + 1)) as u64,
                floats: 0,
            }
        };
        let all = TILES.into_iter().filter_map(|lanes| {
            let [down, across] = lanes.map(|n| OWN * n);
            let owned = across / features;
            if owned == 0 {
                return None;
            }
            let blocks = [rows.div_ceil(down), self.inputs.div_ceil(owned)];
            let tiling = Tiling {
                lanes,
                owned,
                workgroups: blocks[0] * blocks[1],
                numbers: numbers(blocks),
            };
            let cost = Cost {
                bytes: tiling.numbers.bytes(half),
                computed: tiling.workgroups * lanes[0] * lanes[1],
                workgroups: tiling.workgroups,
            };
            Some((tiling, cost))
        });
        best(numbers([1, 1]).bytes(half), all)
    }

    /// What the kernel reads and writes.
    pub(super) fn input_numbers(&self, rows: usize, half: bool) -> Numbers {
        let tiling = self.input_tiling(rows, half);
        tiling.map_or_else(Numbers::default, |tiling| tiling.numbers)
    }

    pub(super) fn record_input(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        rows: usize,
        (d_y, d_x): (&Part, &Part),
    ) -> Result<()> {
        // An input has 72 features at most: several tiles have room for them.
        let Some(tiling) = self.input_tiling(rows, recording.is_half()) else {
            return Ok(());
        };
        let [down, across] = tiling.lanes;
        let slice = match OWN * (down + across) * SLICE <= ROOM {
            true => SLICE,
            false => SLICE / 2,
        };
        let constants = [
            ("INPUTS", self.inputs as f64),
            ("OUTPUTS", self.outputs as f64),
            ("BASES", self.bases() as f64),
            ("BASE", self.has_base() as f64),
            ("OWNED", tiling.owned as f64),
            ("LANE_ROWS", down as f64),
            ("LANE_COLUMNS", across as f64),
            ("SLICE", slice as f64),
        ];
        let entry = match down * across > 64 {
            true => "kan_backward_input_wide",
            false => "kan_backward_input",
        };
        io.run(
            recording,
            (&INPUT, entry),
            &constants,
            &[
                ("rows", rows),
                ("weight", io.at(0)),
                ("workgroups", tiling.workgroups),
            ],
            &[&io.saved[1], io.params, d_y, d_x],
            tiling.workgroups,
        )
    }
}
