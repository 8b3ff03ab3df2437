//! f32, stride 1: the gradient of the weights, on the same tiles as the [correlation](super::tile).
//!
//! 16 lanes of partial sums for 4 output channels × 6 taps stay in registers over a tile of 1024
//! pixels; the tiles of a piece are added in f32, the pieces in order in f64. The gradient of the
//! bias is summed on the way.

use super::tile::{
    Correlation, MAX_COLUMNS, PARALLEL, PIECES, SLACK, Source, Window, aligned, gather, pitch,
};
use crate::cuts::cuts;
use crate::parallel::{self, Workspace};
use crate::simd::{self, Fused, LANES, Simd, dispatch, f32x16, prelude::*};

/// Pixels of a tile of the weight gradient: 4 channels of it take half of 32 KB of L1.
const SUM_PIXELS: usize = 1024;
/// Its longest row.
const SUM_COLUMNS: usize = 256;
/// Input channels and floats that are copied together for it.
const SUM_INPUTS: usize = 32;
const SUM_FLOATS: usize = 160 << 10;
/// Tiles that a piece of the weight gradient adds in f32.
const SUM_TILES: usize = 8;
/// Floats that the partial sums of weight gradients may take.
const PARTIAL_SUMS: usize = 1 << 20;
cuts!(SUM_PIXELS, SUM_COLUMNS, SUM_INPUTS, SUM_TILES);

/// d_W[o,i,u,v] += Σ d_y[n,o,r,c] · x̄[n,i, r + d·u − before, c + d·v − before] and
/// d_b[o] += Σ d_y, for `shape` the forward correlation.
pub(crate) fn weight_gradient(
    shape: &Correlation,
    x: &[f32],
    d_y: Source<'_>,
    d_weight: Option<&mut [f32]>,
    d_bias: Option<&mut [f32]>,
) {
    if d_weight.is_none() && d_bias.is_none() {
        return;
    }
    let &Correlation {
        samples,
        groups,
        inputs,
        outputs,
        kernel,
        out_height,
        out_width,
        ..
    } = shape;
    let taps = inputs * kernel * kernel;
    let channels = groups * outputs;
    // A channel's sums: its taps, and its bias.
    let each = taps + 1;
    let len = channels * each;
    let most = (PARTIAL_SUMS / len).max(samples);
    let rows = (SUM_PIXELS * SUM_TILES / out_width.max(1))
        .min((samples * out_height).div_ceil(PIECES))
        .max((samples * out_height).div_ceil(most))
        .max(SUM_PIXELS / out_width.max(1))
        .clamp(1, out_height);
    let bands = out_height.div_ceil(rows);
    let parts = samples * bands;
    // Where there are too few bands, the output channels are divided too.
    let mut cut = 1;
    while parts * cut < PIECES && outputs.is_multiple_of(2 * cut) && outputs / cut >= 16 {
        cut *= 2;
    }
    let work = shape.multiply_adds();
    parallel::with_workspace(|scratch| {
        let Workspace { floats, .. } = scratch;
        parallel::with_workspace(|totals| {
            let totals = &mut totals.floats;
            totals.clear();
            totals.resize(len, 0.0);
            parallel::sum_cut_pieces(
                parts,
                groups * cut,
                totals,
                floats,
                work >= PARALLEL,
                |part, at, sums| {
                    let (n, first) = (part / bands, part % bands * rows);
                    let count = rows.min(out_height - first);
                    let own = outputs / cut;
                    let (g, o) = (at / cut, at % cut * own);
                    parallel::with_workspace(|scratch| {
                        dispatch!(simd::level(), simd => {
                            sums_of_band(simd, shape, x, d_y, n, (first, count), g, (o, own), sums, scratch)
                        });
                    });
                },
            );
            if let Some(d_weight) = d_weight {
                let rows = d_weight.chunks_exact_mut(taps);
                for (d, sums) in rows.zip(totals.chunks_exact(each)) {
                    for (d, &sum) in d.iter_mut().zip(sums) {
                        *d += sum;
                    }
                }
            }
            if let Some(d_bias) = d_bias {
                for (d, sums) in d_bias.iter_mut().zip(totals.chunks_exact(each)) {
                    *d += sums[taps];
                }
            }
        });
    });
}

/// How a band is cut for the weight gradient.
struct Cut {
    /// Rows and columns that are copied together, to fit L2.
    rows: usize,
    columns: usize,
    /// Input channels that are copied together.
    inputs: usize,
    /// Rows and columns that are summed together, to fit L1.
    sum_rows: usize,
    sum_columns: usize,
}

fn cut_sums(shape: &Correlation, outputs: usize) -> Cut {
    let columns = shape.out_width.clamp(1, MAX_COLUMNS);
    let inputs = shape.inputs.min(SUM_INPUTS);
    let sum_columns = columns.min(SUM_COLUMNS);
    let sum_rows = (SUM_PIXELS / sum_columns.next_multiple_of(LANES)).max(1);
    let row = inputs * pitch(shape, columns) + outputs * columns.next_multiple_of(LANES);
    let rows = (SUM_FLOATS / row).saturating_sub(shape.reach());
    let rows = if rows > sum_rows {
        rows / sum_rows * sum_rows
    } else {
        rows
    };
    Cut {
        rows: rows.clamp(1, shape.out_height.max(1)),
        columns,
        inputs,
        sum_rows,
        sum_columns,
    }
}

/// The sums of some output channels of one group over a band of rows.
#[inline(always)]
fn sums_of_band<S: Simd>(
    simd: S,
    shape: &Correlation,
    x: &[f32],
    d_y: Source<'_>,
    n: usize,
    (first, count): (usize, usize),
    g: usize,
    (first_output, outputs): (usize, usize),
    sums: &mut [f32],
    scratch: &mut Workspace,
) {
    let cut = cut_sums(shape, outputs);
    let (k, d, reach) = (shape.kernel, shape.dilation, shape.reach());
    let x_pitch = pitch(shape, cut.columns);
    let d_pitch = cut.columns.next_multiple_of(LANES);
    let x_plane = (cut.rows + reach) * x_pitch;
    let d_plane = cut.rows * d_pitch;
    let Workspace { floats, indices } = scratch;
    indices.clear();
    for i in 0..cut.inputs {
        for u in 0..k {
            for v in 0..k {
                indices.push((i * x_plane + u * d * x_pitch + v * d) as u32);
            }
        }
    }
    let both = aligned(floats, outputs * d_plane + cut.inputs * x_plane + SLACK);
    let (d_tile, x_tile) = both.split_at_mut(outputs * d_plane);
    let each = shape.inputs * k * k + 1;
    for top in (first..first + count).step_by(cut.rows) {
        let high = cut.rows.min(first + count - top);
        for left in (0..shape.out_width).step_by(cut.columns) {
            let wide = cut.columns.min(shape.out_width - left);
            let d_window = Window {
                top: top as isize,
                left: left as isize,
                rows: high,
                columns: wide,
                pitch: d_pitch,
                row_stride: d_pitch,
                channel_stride: d_plane,
            };
            let x_window = Window {
                top: top as isize - shape.before,
                left: left as isize - shape.before,
                rows: high + reach,
                columns: cut.columns + reach,
                pitch: x_pitch,
                row_stride: x_pitch,
                channel_stride: x_plane,
            };
            let planes = (n * shape.groups + g) * shape.outputs + first_output;
            let size = (shape.out_height, shape.out_width);
            gather(simd, d_y, size, false, planes, outputs, &d_window, d_tile);
            for (o, sums) in sums.chunks_exact_mut(each).enumerate() {
                sums[each - 1] += total(simd, &d_tile[o * d_plane..][..high * d_pitch]);
            }
            for i in (0..shape.inputs).step_by(cut.inputs) {
                let inputs = cut.inputs.min(shape.inputs - i);
                let planes = (n * shape.groups + g) * shape.inputs + i;
                let source = Source::plain(x);
                let size = (shape.height, shape.width);
                gather(
                    simd,
                    source,
                    size,
                    shape.reflect,
                    planes,
                    inputs,
                    &x_window,
                    x_tile,
                );
                for row in (0..high).step_by(cut.sum_rows) {
                    for column in (0..d_pitch).step_by(cut.sum_columns.next_multiple_of(LANES)) {
                        let tiles = Tiles {
                            d: &d_tile[row * d_pitch + column..],
                            d_pitch,
                            d_plane,
                            x: &x_tile[row * x_pitch + column..],
                            x_pitch,
                            offsets: &indices[..inputs * k * k],
                            rows: cut.sum_rows.min(high - row),
                            columns: cut
                                .sum_columns
                                .next_multiple_of(LANES)
                                .min(d_pitch - column),
                            neighbours: k == 3 && d == 1,
                        };
                        products(simd, &tiles, outputs, each, &mut sums[i * k * k..]);
                    }
                }
            }
        }
    }
}

/// Σ of a slice of whole vectors.
#[inline(always)]
pub(super) fn total<S: Simd>(simd: S, x: &[f32]) -> f32 {
    let mut total = f32x16::splat(simd, 0.0);
    for x in x.as_chunks::<LANES>().0 {
        total += f32x16::from_slice(simd, x);
    }
    simd.reduce_sum_f32x16(total)
}

/// A tile of d_y and what lies under the kernel.
pub(super) struct Tiles<'a> {
    pub d: &'a [f32],
    pub d_pitch: usize,
    pub d_plane: usize,
    pub x: &'a [f32],
    pub x_pitch: usize,
    pub offsets: &'a [u32],
    pub rows: usize,
    pub columns: usize,
    /// Whether three taps in a row are neighbours.
    pub neighbours: bool,
}

/// sums[o·each + tap] += Σ over a tile of d_y[o] · the tap's pixels.
#[inline(always)]
pub(super) fn products<S: Simd>(
    simd: S,
    tiles: &Tiles<'_>,
    outputs: usize,
    each: usize,
    sums: &mut [f32],
) {
    let wide = S::f32s::LEN >= LANES;
    let taps = tiles.offsets.len();
    let mut o = 0;
    while o < outputs {
        let high = if outputs - o >= 4 && wide { 4 } else { 1 };
        let sums = &mut sums[o * each..];
        let mut tap = 0;
        // A function of its own for each: in one too large the compiler keeps the sums in memory.
        macro_rules! of {
            ($o:literal, $g:literal, $k:literal) => {
                simd.vectorize(
                    #[inline(always)]
                    || sums_of::<S, $o, $g, $k>(simd, tiles, o, tap, each, sums),
                )
            };
        }
        while tap < taps {
            let left = taps - tap;
            tap += if tiles.neighbours && wide {
                if high == 4 && left >= 6 {
                    of!(4, 2, 3)
                } else if high == 4 {
                    of!(4, 1, 3)
                } else {
                    of!(1, 3, 3)
                }
            } else if high == 4 && left >= 4 {
                of!(4, 4, 1)
            } else if high == 4 {
                of!(4, 1, 1)
            } else if left >= 4 {
                of!(1, 4, 1)
            } else {
                of!(1, 1, 1)
            };
        }
        o += high;
    }
}

/// `O` channels × `G` runs of `K` neighbouring taps from `first` on; returns how many taps.
#[inline(always)]
fn sums_of<S: Simd, const O: usize, const G: usize, const K: usize>(
    simd: S,
    tiles: &Tiles<'_>,
    o: usize,
    first: usize,
    each: usize,
    sums: &mut [f32],
) -> usize {
    let mut sum = [[[f32x16::splat(simd, 0.0); K]; G]; O];
    let count = tiles.columns / LANES;
    for row in 0..tiles.rows {
        // As many vectors in each, which spares the checks within.
        let mut d_rows: [&[[f32; LANES]]; O] = [&[]; O];
        for (j, d_row) in d_rows.iter_mut().enumerate() {
            let at = (o + j) * tiles.d_plane + row * tiles.d_pitch;
            *d_row = &tiles.d[at..at + tiles.columns].as_chunks().0[..count];
        }
        let mut x_rows: [[&[[f32; LANES]]; K]; G] = [[&[]; K]; G];
        for (g, x_row) in x_rows.iter_mut().enumerate() {
            let at = tiles.offsets[first + g * K] as usize + row * tiles.x_pitch;
            let x = &tiles.x[at..at + tiles.columns + K - 1];
            for (k, x_row) in x_row.iter_mut().enumerate() {
                *x_row = &x[k..k + tiles.columns].as_chunks().0[..count];
            }
        }
        for c in 0..count {
            let mut d = [f32x16::splat(simd, 0.0); O];
            for j in 0..O {
                d[j] = f32x16::from_slice(simd, &d_rows[j][c]);
            }
            for g in 0..G {
                for k in 0..K {
                    let x = f32x16::from_slice(simd, &x_rows[g][k][c]);
                    for j in 0..O {
                        sum[j][g][k] = d[j].fma(x, sum[j][g][k]);
                    }
                }
            }
        }
    }
    // At known places, one by one: a loop over them would keep the sums in memory.
    macro_rules! channel {
        ($j:literal) => {
            if $j < O {
                let own = sum[if $j < O { $j } else { 0 }];
                add_totals(simd, own, &mut sums[$j * each + first..][..G * K]);
            }
        };
    }
    channel!(0);
    channel!(1);
    channel!(2);
    channel!(3);
    G * K
}

/// Adds the totals of one channel's vectors.
#[inline(always)]
fn add_totals<S: Simd, const G: usize, const K: usize>(
    simd: S,
    vectors: [[f32x16<S>; K]; G],
    sums: &mut [f32],
) {
    let mut first = [f32x16::splat(simd, 0.0); 8];
    let mut more = first;
    for g in 0..G {
        for k in 0..K {
            if g * K + k < 8 {
                first[g * K + k] = vectors[g][k];
            } else {
                more[g * K + k - 8] = vectors[g][k];
            }
        }
    }
    for (sum, total) in sums.iter_mut().zip(totals(simd, first)) {
        *sum += total;
    }
    if G * K > 8 {
        for (sum, total) in sums[8..].iter_mut().zip(totals(simd, more)) {
            *sum += total;
        }
    }
}

/// The sums of eight vectors, by halves: 16 lanes become 8, 4, 2 and 1.
#[inline(always)]
fn totals<S: Simd>(simd: S, v: [f32x16<S>; 8]) -> [f32; 8] {
    macro_rules! pairs {
        ($a:expr, $b:expr) => {
            simd.unzip_low_f32x16($a, $b) + simd.unzip_high_f32x16($a, $b)
        };
    }
    let eighths = [
        pairs!(v[0], v[1]),
        pairs!(v[2], v[3]),
        pairs!(v[4], v[5]),
        pairs!(v[6], v[7]),
    ];
    let quarters = [
        pairs!(eighths[0], eighths[1]),
        pairs!(eighths[2], eighths[3]),
    ];
    let halves = pairs!(quarters[0], quarters[1]);
    let all = pairs!(halves, halves);
    let mut totals = [0.0; LANES];
    all.store_slice(&mut totals);
    let [totals, _] = *totals.as_chunks().0 else {
        unreachable!("16 are twice 8");
    };
    totals
}
