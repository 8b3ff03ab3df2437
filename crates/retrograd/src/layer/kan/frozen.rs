//! One sample through a layer whose weights are kept in f32, f16 or i8: for deployment.

use super::Kan;
use super::basis::Tile;
use crate::simd::{self, LANES, dispatch};

/// A weight as it is kept.
pub(crate) trait Stored: Copy + Send + Sync {
    /// As f32, without the scale.
    fn decode(self) -> f32;
}

impl Stored for f32 {
    #[inline(always)]
    fn decode(self) -> f32 {
        self
    }
}

impl Stored for i8 {
    #[inline(always)]
    fn decode(self) -> f32 {
        f32::from(self)
    }
}

/// The bits of a half-precision number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Half(pub u16);

impl Stored for Half {
    /// Exponent and fraction moved to f32's places and scaled by 2¹¹², which brings subnormal
    /// numbers right as well. Infinities and NaN are refused when a network is frozen.
    #[inline(always)]
    fn decode(self) -> f32 {
        let bits = u32::from(self.0);
        let magnitude = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
        f32::from_bits(magnitude.to_bits() | (bits & 0x8000) << 16)
    }
}

/// Weights with a scale per input, or none.
pub(crate) struct Weights<'a, W> {
    pub spline: &'a [W],
    pub base: &'a [W],
    pub spline_scale: &'a [f32],
    pub base_scale: &'a [f32],
}

/// y = bias + the layer of x. No allocation, no threads.
pub(crate) fn forward_single<W: Stored>(
    kan: &Kan,
    weights: &Weights<'_, W>,
    bias: &[f32],
    tile: &mut Tile,
    x: &[f32],
    y: &mut [f32],
) {
    if bias.is_empty() {
        y.fill(0.0);
    } else {
        y.copy_from_slice(bias);
    }
    let scale = |scales: &[f32], i: usize| scales.get(i).copied().unwrap_or(1.0);
    for first in (0..kan.inputs).step_by(LANES) {
        tile.fill(&kan.table, first, x);
        dispatch!(simd::level(), simd => {
            let _ = simd;
            for l in 0..LANES.min(kan.inputs - first) {
                let i = first + l;
                let row = i * kan.bases() + tile.start[l] as usize;
                let rows = &weights.spline[row * kan.outputs..][..(kan.degree + 1) * kan.outputs];
                let s = scale(weights.spline_scale, i);
                if kan.degree == 3 {
                    // A closure would be compiled without the instruction set, and called.
                    let v = &tile.values;
                    let b = [v[0][l] * s, v[1][l] * s, v[2][l] * s, v[3][l] * s];
                    add_four(b, rows, y);
                } else {
                    for (m, row) in rows.chunks_exact(kan.outputs).enumerate() {
                        add_row(tile.values[m][l] * s, row, y);
                    }
                }
                if !weights.base.is_empty() {
                    let row = &weights.base[i * kan.outputs..][..kan.outputs];
                    add_row(tile.silu[l] * scale(weights.base_scale, i), row, y);
                }
            }
        });
    }
}

#[inline(always)]
fn add_row<W: Stored>(b: f32, row: &[W], y: &mut [f32]) {
    for (y, w) in y.iter_mut().zip(row) {
        *y += b * w.decode();
    }
}

/// Four rows at once: y is read and written once. The usual degree.
#[inline(always)]
fn add_four<W: Stored>(b: [f32; 4], rows: &[W], y: &mut [f32]) {
    let n = y.len();
    let (r0, rest) = rows.split_at(n);
    let (r1, rest) = rest.split_at(n);
    let (r2, r3) = rest.split_at(n);
    let r3 = &r3[..n];
    for j in 0..n {
        y[j] += (b[0] * r0[j].decode() + b[1] * r1[j].decode())
            + (b[2] * r2[j].decode() + b[3] * r3[j].decode());
    }
}
