//! f32: the backward pass of several convolutions and the ReLUs between them, fused over tiles.
//!
//! Layer by layer, the gradient of every value between two layers goes through memory several
//! times; on large images with few channels that costs as much as the arithmetic. Here a tile of
//! the image takes the gradient from the last layer down to the first within the cache. With D_l
//! the gradient of the output of layer l, before its ReLU, and A_l that output after it:
//!
//! - D_{l−1} = (W_l flipped in both axes) ∗ D_l, where A_{l−1} > 0 and else 0;
//! - d_W_l = Σ D_l · A_{l−1} and d_b_l = Σ D_l over the pixels of the tile itself.
//!
//! D_l is needed around the tile as far as the layers below it reach, and is computed again there
//! by the tiles beside it. Outside of the image A is 0, so D is too. A piece is a band of tiles;
//! its sums are f32, the pieces are added in order in f64: the same bits for any number of threads.

use super::sums::{Tiles, products, total};
use super::tile::{
    self, Correlation, PARALLEL, Part, SLACK, Source, Target, Window, aligned, channels, gather,
};
use crate::cuts::cuts;
use crate::parallel;
use crate::simd::{self, LANES, Simd, dispatch};

/// The most layers.
pub(crate) const MAX: usize = 4;
/// Rows and columns of a tile: with 16 channels a layer's values, its gradient and the gradient
/// before it take half of 1 MB of L2.
const ROWS: usize = 16;
const COLUMNS: usize = 128;
/// Rows that are summed together: 4 channels of them take half of L1.
const SUM_ROWS: usize = 8;
/// Floats of three tiles: three quarters of L2.
const TILE_FLOATS: usize = 192 << 10;
cuts!(MAX, ROWS, COLUMNS, SUM_ROWS);

/// A convolution of stride 1 whose output has the size of its input.
#[derive(Clone, Copy)]
pub(crate) struct Layer<'a> {
    /// Its forward correlation.
    pub shape: Correlation,
    pub weight: &'a [f32],
    /// Its input: the image, or the output of the ReLU before it.
    pub x: &'a [f32],
}

impl Layer<'_> {
    /// Sums of one output channel: its taps, and its bias.
    fn each(&self) -> usize {
        self.shape.inputs * self.shape.kernel * self.shape.kernel + 1
    }

    fn flipped(&self) -> Correlation {
        Correlation {
            inputs: self.shape.outputs,
            outputs: self.shape.inputs,
            ..self.shape
        }
    }

    fn padding(&self) -> usize {
        self.shape.reach() / 2
    }
}

/// Whether fusing these layers pays: what the tiles compute twice is below a twentieth, and a
/// tile fits the cache. (Measured with 1-16-16-1 against layer by layer, two cores with 1 MB of L2:
/// 2.0 to 2.2 ms on two images of 128 × 128, 148 to 175 ms on two of 1024 × 1024.)
pub(crate) fn pays(shapes: &[Correlation]) -> bool {
    let (mut halo, mut again, mut all) = (0, 0, 0);
    for (l, shape) in shapes.iter().enumerate() {
        let work = shape.inputs * shape.outputs * shape.kernel * shape.kernel;
        let tile = ROWS * COLUMNS;
        if l > 0 {
            // The gradient before this layer, with a border for the layers below.
            again += work * ((ROWS + 2 * halo) * (COLUMNS + 2 * halo) - tile);
            all += work * tile;
            halo += shape.reach() / 2;
        }
        all += work * tile;
    }
    let Workspace { tile_len, .. } = Workspace::of(shapes);
    20 * again <= all && 3 * tile_len <= TILE_FLOATS
}

/// The measures of a tile.
struct Workspace {
    /// How far every layer's gradient reaches around the tile.
    halos: [usize; MAX],
    columns: usize,
    /// Of a row of a channel, and of a tile with the most channels and the widest border.
    pitch: usize,
    tile_len: usize,
}

impl Workspace {
    fn of(shapes: &[Correlation]) -> Self {
        let mut halos = [0; MAX];
        let (mut channels, mut most_halo) = (1, 0);
        for (l, shape) in shapes.iter().enumerate() {
            let padding = shape.reach() / 2;
            if l > 0 {
                halos[l] = halos[l - 1] + padding;
            }
            most_halo = most_halo.max(halos[l]).max(padding);
            channels = channels.max(shape.inputs).max(shape.outputs);
        }
        let width = shapes[0].width.next_multiple_of(2 * LANES);
        let columns = COLUMNS.min(width);
        let pitch = (columns + 2 * most_halo).next_multiple_of(LANES) + LANES;
        Workspace {
            halos,
            columns,
            pitch,
            tile_len: (ROWS + 2 * most_halo) * channels * pitch + SLACK,
        }
    }
}

fn shapes(layers: &[Layer<'_>]) -> [Correlation; MAX] {
    std::array::from_fn(|l| layers[l.min(layers.len() - 1)].shape)
}

/// The gradients of all layers' weights and biases. `sums` is overwritten: for every layer, for
/// every output channel, its taps and then its bias.
pub(crate) fn backward(layers: &[Layer<'_>], d_y: Source<'_>, sums: &mut Vec<f32>) {
    let last = layers[layers.len() - 1].shape;
    let len = layers.iter().map(|l| l.shape.outputs * l.each()).sum();
    sums.clear();
    sums.resize(len, 0.0);
    let bands = last.out_height.div_ceil(ROWS);
    let work: usize = layers.iter().map(|l| l.shape.multiply_adds()).sum();
    parallel::with_workspace(|scratch| {
        let packed = &mut scratch.floats;
        // The flipped kernels of all layers but the first.
        packed.clear();
        let mut ends = [0; MAX];
        for (l, layer) in layers.iter().enumerate().skip(1) {
            let kk = layer.shape.kernel * layer.shape.kernel;
            let flipped = layer.flipped();
            let weight = |i: usize, o: usize, uv: usize| {
                layer.weight[(o * layer.shape.inputs + i) * kk + kk - 1 - uv]
            };
            tile::pack(&flipped, weight, packed);
            ends[l] = packed.len();
        }
        let packed = &packed[..];
        parallel::with_workspace(|workspace| {
            parallel::sum_pieces(
                last.samples * bands,
                sums,
                &mut workspace.floats,
                work >= PARALLEL,
                |piece, sums| {
                    let (n, band) = (piece / bands, piece % bands);
                    parallel::with_workspace(|scratch| {
                        dispatch!(simd::level(), simd => {
                            backward_band(simd, layers, d_y, (packed, &ends), n, band * ROWS, sums, scratch)
                        });
                    });
                },
            );
        });
    });
}

/// Adds what [`backward`] found for one layer to its gradients; returns the sums of the others.
pub(crate) fn add_sums<'s>(
    shape: &Correlation,
    sums: &'s [f32],
    d_weight: Option<&mut [f32]>,
    d_bias: Option<&mut [f32]>,
) -> &'s [f32] {
    let taps = shape.inputs * shape.kernel * shape.kernel;
    let (own, others) = sums.split_at(shape.outputs * (taps + 1));
    if let Some(d_weight) = d_weight {
        for (d, sums) in d_weight
            .chunks_exact_mut(taps)
            .zip(own.chunks_exact(taps + 1))
        {
            for (d, &sum) in d.iter_mut().zip(sums) {
                *d += sum;
            }
        }
    }
    if let Some(d_bias) = d_bias {
        for (d, sums) in d_bias.iter_mut().zip(own.chunks_exact(taps + 1)) {
            *d += sums[taps];
        }
    }
    others
}

/// A tile: [row][channel][pitch].
struct TileTarget<'a> {
    values: &'a mut [f32],
    pitch: usize,
}

impl Target for TileTarget<'_> {
    #[inline(always)]
    fn channel(&mut self, channel: usize) -> &mut [f32] {
        &mut self.values[channel * self.pitch..]
    }

    #[inline(always)]
    fn mask<'m>(&self, mask: &'m [f32], channel: usize) -> &'m [f32] {
        &mask[channel * self.pitch..]
    }
}

#[inline(always)]
fn backward_band<S: Simd>(
    simd: S,
    layers: &[Layer<'_>],
    d_y: Source<'_>,
    (packed, ends): (&[f32], &[usize; MAX]),
    n: usize,
    top: usize,
    sums: &mut [f32],
    scratch: &mut parallel::Workspace,
) {
    let last = layers.len() - 1;
    let shape = layers[last].shape;
    let (height, width) = (shape.out_height, shape.out_width);
    let rows = ROWS.min(height - top);
    let Workspace {
        halos,
        columns,
        pitch,
        tile_len,
    } = Workspace::of(&shapes(layers)[..layers.len()]);
    let parallel::Workspace { floats, indices } = scratch;
    // Taps of the weight gradients and of the flipped kernels, layer after layer.
    indices.clear();
    let mut taps_at = [(0, 0); MAX];
    for (l, layer) in layers.iter().enumerate() {
        let start = indices.len();
        tile::offsets(&layer.shape, 1, pitch, indices);
        let middle = indices.len();
        if l > 0 {
            let flipped = layer.flipped();
            tile::offsets(&flipped, flipped.run(), pitch, indices);
        }
        taps_at[l] = (start, middle);
    }
    let end = indices.len();
    let all = aligned(floats, 3 * tile_len);
    let (d, rest) = all.split_at_mut(tile_len);
    let (a, d_before) = rest.split_at_mut(tile_len);
    let (mut d, mut d_before) = (d, d_before);
    for left in (0..width).step_by(columns) {
        let window = |channels: usize, halo: usize| Window {
            top: top as isize - halo as isize,
            left: left as isize - halo as isize,
            rows: rows + 2 * halo,
            columns: columns + 2 * halo,
            pitch,
            row_stride: channels * pitch,
            channel_stride: pitch,
        };
        let outputs = shape.outputs;
        let around = window(outputs, halos[last]);
        gather(
            simd,
            d_y,
            (height, width),
            false,
            n * outputs,
            outputs,
            &around,
            d,
        );
        let mut sums_end = sums.len();
        for l in (0..=last).rev() {
            let layer = &layers[l];
            let Correlation {
                inputs,
                outputs,
                kernel,
                ..
            } = layer.shape;
            let padding = layer.padding();
            let below = l.checked_sub(1).map_or(0, |l| halos[l]);
            let a_halo = padding.max(below);
            let source = Source::plain(layer.x);
            let around = window(inputs, a_halo);
            gather(
                simd,
                source,
                (height, width),
                false,
                n * inputs,
                inputs,
                &around,
                a,
            );
            // d_W and d_b of the tile itself.
            let each = layer.each();
            sums_end -= outputs * each;
            let sums = &mut sums[sums_end..][..outputs * each];
            let (d_row, a_row) = (outputs * pitch, inputs * pitch);
            let inner = halos[l] * d_row + halos[l];
            let shift = (a_halo - padding) * (a_row + 1);
            let (start, middle) = taps_at[l];
            for row in (0..rows).step_by(SUM_ROWS) {
                let tiles = Tiles {
                    d: &d[inner + row * d_row..],
                    d_pitch: d_row,
                    d_plane: pitch,
                    x: &a[shift + row * a_row..],
                    x_pitch: a_row,
                    offsets: &indices[start..middle],
                    rows: SUM_ROWS.min(rows - row),
                    columns,
                    neighbours: kernel == 3 && layer.shape.dilation == 1,
                };
                products(simd, &tiles, outputs, each, sums);
            }
            for (o, sums) in sums.chunks_exact_mut(each).enumerate() {
                let mut sum = 0.0;
                for row in 0..rows {
                    let at = inner + row * d_row + o * pitch;
                    sum += total(simd, &d[at..at + columns]);
                }
                sums[each - 1] += sum;
            }
            if l == 0 {
                break;
            }
            // The gradient before this layer, masked by the ReLU there.
            let next = taps_at.get(l + 1).filter(|_| l < last).map_or(end, |t| t.0);
            let shift = (a_halo - below) * (a_row + 1);
            let flipped_from = if l == 1 { 0 } else { ends[l - 1] };
            let wide = columns + 2 * below;
            for row in 0..rows + 2 * below {
                let part = Part {
                    offsets: &indices[middle..next],
                    weights: &packed[flipped_from..ends[l]],
                    bias: &[],
                    first: 0,
                    outputs: inputs,
                    relu: false,
                    mask: Some(&a[shift + row * a_row..]),
                };
                let source = &d[row * d_row..];
                let mut target = TileTarget {
                    values: &mut d_before[row * a_row..],
                    pitch,
                };
                simd.vectorize(
                    #[inline(always)]
                    || {
                        if layer.shape.run() == 3 {
                            row_of::<S, 3>(simd, source, &part, wide, &mut target);
                        } else {
                            row_of::<S, 1>(simd, source, &part, wide, &mut target);
                        }
                    },
                );
            }
            std::mem::swap(&mut d, &mut d_before);
        }
    }
}

/// All output channels of a row.
#[inline(always)]
fn row_of<S: Simd, const K: usize>(
    simd: S,
    source: &[f32],
    part: &Part<'_>,
    columns: usize,
    target: &mut impl Target,
) {
    let step = tile::step(part.outputs);
    for c in (0..columns).step_by(step) {
        let count = step.min(columns - c);
        channels::<S, K>(simd, &source[c..], part, c, count, target);
    }
}
