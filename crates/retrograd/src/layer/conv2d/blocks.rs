//! How a convolution's kernels cut their work on the device (conv2d.wgsl), and what each reads and writes in
//! storage buffers.
//!
//! A workgroup owns a tile of pixels and a block of channels. The pixels that a tile sees come into workgroup
//! memory with those around it, which neighbours read, too; larger tiles have fewer of those and read W less
//! often, larger blocks read pixels less often. All that follows from the shape, and the plan takes the cut as it
//! takes that of a product ([`crate::gpu::form::best`]).

use super::Conv2d;
use crate::cuts::cuts;
use crate::gpu::form::{Cost, Numbers, best};
use crate::network::PaddingMode;

/// Numbers of workgroup memory for pixels, and for quads of weights or gradients.
const PIXELS: usize = 2048;
const QUADS: usize = 512;
/// Pixels, or places of the kernel, of an invocation; an invocation's channels are one or two fours.
const OWN: usize = 8;
const FOUR: usize = 4;
/// Rows and columns of the tiles of the weights' gradients, at most.
const TILE: usize = 16;
cuts!(PIXELS, QUADS, OWN, FOUR, TILE);

/// How one of the kernels is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub lanes: usize,
    pub lane_channels: usize,
    pub quads: usize,
    /// Pixels of a tile.
    pub tile: [usize; 2],
    pub slice: usize,
    pub taps: usize,
    pub area: [usize; 2],
    pub spread: usize,
    pub step: usize,
    pub phases: usize,
    pub place_lanes: usize,
    pub splits: usize,
    /// Tiles of a piece, and pieces.
    pub piece: usize,
    pub pieces: usize,
    pub workgroups: usize,
    /// Iterations of an invocation's loops.
    pub loops: usize,
    pub numbers: Numbers,
}

/// A side of a tile's rows or columns: of the output, of the image, and how they meet.
struct Side {
    size: usize,
    out: usize,
    padding: usize,
    reflects: bool,
}

impl Conv2d {
    fn sides(&self) -> [Side; 2] {
        let of = |size, out| Side {
            size,
            out,
            padding: self.padding,
            reflects: self.padding_mode == PaddingMode::Reflect,
        };
        [
            of(self.height, self.out_height()),
            of(self.width, self.out_width()),
        ]
    }

    /// A stride beyond the padded image is as good as any other beyond.
    pub(super) fn near_stride(&self) -> usize {
        let (high, wide) = self.padded();
        self.stride.min(high.max(wide) + 1)
    }

    fn group(&self) -> [usize; 2] {
        [self.inputs / self.groups, self.outputs / self.groups]
    }

    pub(crate) fn weights(&self) -> usize {
        self.outputs * self.inputs / self.groups * self.kernel * self.kernel
    }

    /// Weights, and the bias.
    pub(crate) fn parameters(&self) -> usize {
        self.weights() + usize::from(self.bias) * self.outputs
    }

    /// Whole kernels at a time, or one place.
    fn taps(&self) -> impl Iterator<Item = usize> + use<> {
        let all = match self.kernel {
            1 => vec![1],
            kernel => vec![kernel, 1],
        };
        all.into_iter()
    }

    /// Rows, or columns, of x that all tiles of the output read, at all places of the kernel.
    fn seen(&self, side: &Side, tile: usize, taps: usize) -> usize {
        let (stride, dilation) = (self.near_stride(), self.dilation);
        let spread = if taps == self.kernel { stride } else { 1 };
        let step = if taps == self.kernel { 1 } else { stride };
        let mut all = 0;
        for first in (0..side.out).step_by(tile) {
            let inside = tile.min(side.out - first);
            let reach = (inside - 1) * spread + (taps - 1) * dilation + 1;
            for tap in (0..self.kernel).step_by(taps) {
                let from = first * stride + tap * dilation;
                let is_in = |r: &usize| {
                    let at = from + r * step;
                    side.reflects || at >= side.padding && at < side.padding + side.size
                };
                all += (0..reach).filter(is_in).count();
            }
        }
        all
    }

    /// Rows, or columns, of the output's gradient that all tiles of x meet; `wide` pixels of a tile.
    fn met(&self, side: &Side, wide: usize, taps: usize) -> usize {
        let (stride, dilation) = (self.near_stride() as i64, self.dilation as i64);
        let mut all = 0;
        for first in (0..side.size).step_by(wide) {
            let last = (first + wide).min(side.size) - 1;
            for tap in (0..self.kernel).step_by(taps) {
                let distance =
                    |at: usize, tap: usize| (at + side.padding) as i64 - tap as i64 * dilation;
                let low = -(-distance(first, tap + taps - 1)).div_euclid(stride);
                let end = distance(last, tap).div_euclid(stride) + 1;
                all += (end.min(side.out as i64) - low.max(0)).max(0) as usize;
            }
        }
        all
    }

    /// The cut of forward for a batch.
    pub(crate) fn forward_cut(&self, samples: usize, half: bool) -> Cut {
        let [group_in, group_out] = self.group();
        let sides = self.sides();
        let stride = self.near_stride();
        let outputs = self.outputs * sides[0].out * sides[1].out;
        let least = samples * (self.inputs * self.height * self.width + outputs) + self.weights();
        let mut all = Vec::new();
        for [lanes, lane_channels, runs] in arrangements() {
            let quads = if group_out <= FOUR { 1 } else { 2 };
            let block = FOUR * quads * lane_channels;
            let tile = [lanes / lane_channels / runs, OWN * runs];
            for taps in self.taps() {
                let spread = if taps == self.kernel { stride } else { 1 };
                let step = if taps == self.kernel { 1 } else { stride };
                let area = tile.map(|n| (n - 1) * spread + (taps - 1) * self.dilation + 1);
                let of_quads = QUADS / (taps * taps * lane_channels * quads);
                let Some(slice) = slice(area, of_quads, group_in) else {
                    continue;
                };
                let tiles = sides[0].out.div_ceil(tile[0]) * sides[1].out.div_ceil(tile[1]);
                let blocks = group_out.div_ceil(block);
                let seen =
                    self.seen(&sides[0], tile[0], taps) * self.seen(&sides[1], tile[1], taps);
                let bias = usize::from(self.bias) * self.outputs;
                let reals = blocks * self.inputs * seen + tiles * (self.weights() + bias) + outputs;
                let workgroups = samples * tiles * self.groups * blocks;
                let cut = Cut {
                    lanes,
                    lane_channels,
                    quads,
                    tile,
                    slice,
                    taps,
                    area,
                    spread,
                    step,
                    workgroups,
                    numbers: Numbers {
                        reals: (samples * reals) as u64,
                        floats: 0,
                    },
                    ..Cut::whole()
                };
                all.push(cut.looping(self.kernel, group_in, slice * taps * (1 + taps)));
            }
        }
        let least = Numbers {
            reals: least as u64,
            floats: 0,
        };
        taken(all, least, half)
    }

    /// The cut of the input's gradient. A transposed convolution, whose forward that is, has a bias of its own.
    pub(crate) fn input_cut(&self, samples: usize, transposed_bias: bool, half: bool) -> Cut {
        let [group_in, group_out] = self.group();
        let sides = self.sides();
        let stride = self.near_stride();
        let inputs = self.inputs * self.height * self.width;
        let least =
            samples * (self.outputs * sides[0].out * sides[1].out + inputs) + self.weights();
        let mut all = Vec::new();
        for [lanes, lane_channels, runs] in arrangements() {
            let quads = if group_in <= FOUR { 1 } else { 2 };
            let block = FOUR * quads * lane_channels;
            let phases = if stride <= OWN { stride } else { 1 };
            let high = lanes / lane_channels / (runs * phases);
            if high == 0 {
                continue;
            }
            let tile = [high, OWN * runs];
            for taps in self.taps() {
                let reach = (taps - 1) * self.dilation;
                let area = [
                    (tile[0] - 1 + reach) / stride + 1,
                    (tile[1] * stride - 1 + reach) / stride + 1,
                ];
                let of_quads = QUADS / (taps * taps * lane_channels * quads);
                let Some(slice) = slice(area, of_quads, group_out) else {
                    continue;
                };
                let tiles = self.height.div_ceil(tile[0])
                    * self.width.div_ceil(tile[1] * stride)
                    * (stride / phases);
                let blocks = group_in.div_ceil(block);
                let met = self.met(&sides[0], tile[0], taps)
                    * self.met(&sides[1], tile[1] * stride, taps)
                    * (stride / phases);
                let bias = usize::from(transposed_bias) * self.inputs;
                let reals = blocks * self.outputs * met + tiles * (self.weights() + bias) + inputs;
                let cut = Cut {
                    lanes,
                    lane_channels,
                    quads,
                    tile,
                    slice,
                    taps,
                    area,
                    phases,
                    workgroups: samples * tiles * self.groups * blocks,
                    numbers: Numbers {
                        reals: (samples * reals) as u64,
                        floats: 0,
                    },
                    ..Cut::whole()
                };
                let body = slice * (1 + taps * (1 + taps)) + 2 * taps;
                all.push(cut.looping(self.kernel, group_out, body));
            }
        }
        let least = Numbers {
            reals: least as u64,
            floats: 0,
        };
        taken(all, least, half)
    }

    /// The cut of the gradients of the weights and of the bias.
    pub(crate) fn weight_cut(&self, samples: usize, half: bool) -> Cut {
        let [group_in, group_out] = self.group();
        let sides = self.sides();
        let stride = self.near_stride();
        let outputs = samples * self.outputs * sides[0].out * sides[1].out;
        let floats = self.parameters();
        let least = Numbers {
            reals: (samples * self.inputs * self.height * self.width + outputs) as u64,
            floats: floats as u64,
        };
        let mut all = Vec::new();
        for [lanes, lane_channels, _] in arrangements().filter(|[_, _, runs]| *runs == 1) {
            let quads = if group_out <= FOUR { 1 } else { 2 };
            let block = FOUR * quads * lane_channels;
            for (tile, taps) in TILES
                .into_iter()
                .flat_map(|t| self.taps().map(move |n| (t, n)))
            {
                let spread = if taps == self.kernel { stride } else { 1 };
                let step = if taps == self.kernel { 1 } else { stride };
                let area = tile.map(|n| (n - 1) * spread + (taps - 1) * self.dilation + 1);
                let of_lanes = lanes / lane_channels * OWN / (taps * taps);
                let fits = tile[0] * tile[1] * lane_channels * quads <= QUADS;
                let Some(slice) = slice(area, of_lanes, group_in).filter(|_| fits) else {
                    continue;
                };
                let place_lanes = (slice * taps * taps).div_ceil(OWN);
                let splits = (lanes / (lane_channels * place_lanes)).min(tile[0] * tile[1]);
                let tiles =
                    samples * sides[0].out.div_ceil(tile[0]) * sides[1].out.div_ceil(tile[1]);
                let blocks = group_out.div_ceil(block);
                let chunks = (self.kernel / taps).pow(2) * group_in.div_ceil(slice);
                let seen =
                    self.seen(&sides[0], tile[0], taps) * self.seen(&sides[1], tile[1], taps);
                let reals = samples * blocks * self.inputs * seen + chunks * outputs;
                for pieces in [1, 2, 4, 8, 16, 32, 64] {
                    let piece = tiles.div_ceil(pieces);
                    let pieces = tiles.div_ceil(piece);
                    let times = if pieces > 1 { 2 * pieces + 1 } else { 1 };
                    all.push(Cut {
                        lanes,
                        lane_channels,
                        quads,
                        tile,
                        slice,
                        taps,
                        area,
                        spread,
                        step,
                        place_lanes,
                        splits,
                        piece,
                        pieces,
                        workgroups: self.groups * blocks * chunks * pieces,
                        loops: piece * of_tile(lanes, area, slice, block, tile, splits),
                        numbers: Numbers {
                            reals: reals as u64,
                            floats: (times * floats) as u64,
                        },
                        ..Cut::whole()
                    });
                }
            }
        }
        taken(all, least, half)
    }
}

/// Iterations that a tile of the weights' gradients takes: its pixels and gradients are brought, and gone through.
fn of_tile(
    lanes: usize,
    area: [usize; 2],
    slice: usize,
    block: usize,
    tile: [usize; 2],
    splits: usize,
) -> usize {
    let pixels = tile[0] * tile[1];
    (slice * area[0] * area[1]).div_ceil(lanes)
        + (pixels * block / FOUR).div_ceil(lanes)
        + pixels.div_ceil(splits)
        + 1
}

/// Tiles of the weights' gradients.
const TILES: [[usize; 2]; 6] = [[8, 8], [4, 8], [8, TILE], [TILE, TILE], [2, 8], [1, 8]];

/// Invocations of a workgroup, those of them side by side in channels, and runs of 8 pixels in a row of a tile.
fn arrangements() -> impl Iterator<Item = [usize; 3]> {
    [64, 256].into_iter().flat_map(|lanes| {
        [1, 2, 4, 8, 16, 32].into_iter().flat_map(move |channels| {
            let runs = [1, 2, 4, 8].into_iter();
            let fits = move |runs: &usize| lanes / channels >= *runs;
            runs.filter(fits).map(move |runs| [lanes, channels, runs])
        })
    })
}

/// Channels in workgroup memory: as many as fit, in equal parts.
fn slice([high, wide]: [usize; 2], of_quads: usize, channels: usize) -> Option<usize> {
    let fits = (PIXELS / (high * (wide | 1))).min(of_quads);
    match fits {
        0 => None,
        _ => Some(channels.div_ceil(channels.div_ceil(fits))),
    }
}

impl Cut {
    fn whole() -> Self {
        Cut {
            lanes: 64,
            lane_channels: 1,
            quads: 1,
            tile: [1, 1],
            slice: 1,
            taps: 1,
            area: [1, 1],
            spread: 1,
            step: 1,
            phases: 1,
            place_lanes: 1,
            splits: 1,
            piece: 1,
            pieces: 1,
            workgroups: 1,
            loops: 0,
            numbers: Numbers::default(),
        }
    }

    /// With the iterations of a workgroup that goes through so many channels, and for each slice of them through all
    /// places of the kernel; `body` is what it does where a slice is there.
    fn looping(self, kernel: usize, channels: usize, body: usize) -> Self {
        let taps = self.taps * self.taps;
        let brought = (self.slice * self.area[0] * self.area[1]).div_ceil(self.lanes)
            + (self.slice * taps * self.lane_channels * self.quads).div_ceil(self.lanes);
        let slices = channels.div_ceil(self.slice) * (kernel / self.taps).pow(2);
        Cut {
            loops: slices * (brought + body + 2),
            ..self
        }
    }

    /// What an invocation computes, times the invocations.
    fn computed(&self) -> usize {
        let places = self.place_lanes * self.splits;
        let of_tile = match places {
            1 => self.lanes,
            _ => self.piece * self.tile[0] * self.tile[1] * self.lane_channels * self.place_lanes,
        };
        self.workgroups * of_tile
    }
}

fn taken(all: Vec<Cut>, least: Numbers, half: bool) -> Cut {
    let costs = all.into_iter().map(|cut| {
        let cost = Cost {
            bytes: cut.numbers.bytes(half),
            computed: cut.computed(),
            workgroups: cut.workgroups,
        };
        (cut, cost)
    });
    best(least.bytes(half), costs).unwrap_or_else(Cut::whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::form::counted;
    use crate::gpu::{Choice, Gpu, KernelTraffic};

    fn conv(outputs: usize, options: [usize; 5]) -> Conv2d {
        let [kernel, stride, padding, dilation, groups] = options;
        Conv2d {
            inputs: 4,
            outputs,
            height: 24,
            width: 25,
            kernel,
            stride,
            padding,
            padding_mode: PaddingMode::Zeros,
            dilation,
            groups,
            bias: true,
        }
    }

    /// What the kernels count when they run is what the plan counted before.
    #[test]
    fn kernels_read_and_write_what_the_plan_says() {
        let gpu = Gpu::open(&Choice::Auto).unwrap();
        for (outputs, options, reflects) in [
            (3, [3, 1, 1, 1, 1], false),
            (20, [3, 1, 1, 1, 1], true),
            (6, [3, 2, 1, 1, 2], false),
            (5, [3, 1, 0, 2, 1], false),
            (2, [2, 3, 0, 1, 1], false),
            (2, [2, 9, 1, 1, 1], false),
            (2, [23, 1, 11, 1, 1], false),
        ] {
            let mut own = conv(outputs, options);
            if reflects {
                own.padding_mode = PaddingMode::Reflect;
            }
            let [kernel, stride, padding, dilation, groups] = options;
            let mode = if reflects { "reflect" } else { "zeros" };
            let spec = format!(
                r#"{{"input":[1,24,25],"layers":[{{"kind":"conv2d","out":4,"kernel":1}},{{"kind":"conv2d",
                "out":{outputs},"kernel":{kernel},"stride":{stride},"padding":{padding},
                "padding_mode":"{mode}","dilation":{dilation},"groups":{groups}}}]}}"#
            );
            let samples = 2;
            let kernels = counted(&gpu, &spec, samples);
            let bytes = |names: [&str; 2]| -> u64 {
                let is_one = |k: &&KernelTraffic| {
                    let name = k.label.strip_prefix("1.conv2d ");
                    name.is_some_and(|name| names.iter().any(|n| name.contains(n)))
                };
                kernels
                    .iter()
                    .filter(is_one)
                    .map(KernelTraffic::bytes)
                    .sum()
            };
            let padded = own.of_padded();
            let of_input = if reflects { &padded } else { &own };
            for (names, cut) in [
                (["forward"; 2], own.forward_cut(samples, false)),
                (
                    ["backward_weight", "add_pieces"],
                    own.weight_cut(samples, false),
                ),
                (
                    ["backward_input"; 2],
                    of_input.input_cut(samples, false, false),
                ),
            ] {
                assert_eq!(
                    bytes(names),
                    cut.numbers.bytes(false),
                    "{names:?} {spec} {cut:?}"
                );
            }
        }
    }

    #[test]
    fn cuts_fit_into_workgroup_memory() {
        for channels in [1, 4, 16, 64, 256] {
            for [size, kernel, stride] in
                [[8, 3, 1], [128, 3, 1], [64, 2, 2], [64, 31, 1], [33, 5, 7]]
            {
                let own = Conv2d {
                    inputs: channels,
                    height: size,
                    width: size + 1,
                    ..conv(channels, [kernel, stride, kernel / 2, 1, 1])
                };
                for cut in [
                    own.forward_cut(2, false),
                    own.weight_cut(2, false),
                    own.input_cut(2, false, true),
                ] {
                    let [high, wide] = cut.area;
                    assert!(cut.slice * high * (wide | 1) <= PIXELS, "{cut:?}");
                    assert!(cut.lane_channels * cut.place_lanes * cut.splits <= cut.lanes);
                    assert!(cut.lanes == 64 || cut.lanes == 256);
                    assert!(kernel % cut.taps == 0 && cut.slice <= channels, "{cut:?}");
                }
            }
        }
    }
}
