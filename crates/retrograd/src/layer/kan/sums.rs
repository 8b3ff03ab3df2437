//! The order in which the gradients of weights are summed: samples in blocks, blocks in runs, runs in
//! segments, and segments along their tree.

use std::ops::Range;

use super::backward::RUN;
use super::block::BLOCK;
use super::rows::Row;
use crate::group::Segments;
use crate::simd::{self, Simd};

/// The sums of a group's inputs, in padded rows: those of depth 0, and further ones that are open before them
/// in the tree over segments and runs.
pub(super) struct Sums<'a> {
    pub spline: &'a mut [f32],
    pub base: &'a mut [f32],
    pub open: &'a mut [f32],
    /// Inputs, and the numbers that each has in the splines' sums and in the base function's.
    pub count: usize,
    pub each: [usize; 2],
    /// Whether those of depth 0 begin with zeros.
    pub overwrite: bool,
}

impl<'a> Sums<'a> {
    /// The sum of one input at a depth.
    #[inline(always)]
    fn of(self, depth: usize, input: usize) -> [&'a mut [f32]; 2] {
        let [spline, base] = match depth.checked_sub(1) {
            None => [self.spline, self.base],
            Some(place) => {
                let [spline_len, base_len] = self.each.map(|len| len * self.count);
                let sums = &mut self.open[place * (spline_len + base_len)..];
                let (spline, base) = sums.split_at_mut(spline_len);
                [spline, base]
            }
        };
        let [spline_len, base_len] = self.each;
        [
            &mut spline[input * spline_len..][..spline_len],
            &mut base[input * base_len..][..base_len],
        ]
    }

    #[inline(always)]
    fn reborrow(&mut self) -> Sums<'_> {
        Sums {
            spline: &mut *self.spline,
            base: &mut *self.base,
            open: &mut *self.open,
            ..*self
        }
    }

    /// Adds the sum of one input, which is at some place of its depth, to the one before.
    #[inline(always)]
    pub fn close<S: Simd>(&mut self, simd: S, depth: usize, place: usize, input: usize) {
        let len = (self.each[0] + self.each[1]) * self.count;
        let (before, here) = self.open.split_at_mut((depth - 1) * len);
        let before = Sums {
            spline: &mut *self.spline,
            base: &mut *self.base,
            open: before,
            ..*self
        };
        let here = Sums {
            spline: &mut [],
            base: &mut [],
            open: here,
            ..*self
        };
        let (to, from) = (before.of(depth - 1, input), here.of(1, place));
        for (to, from) in to.into_iter().zip(from) {
            simd::axpy(simd, 1.0, from, to);
        }
    }

    /// Where rows go from a column on: to their input's sum of a depth.
    #[inline(always)]
    pub fn to(&mut self, depth: usize, input: usize, column: usize, begun: bool) -> To<'_> {
        let [spline, base] = self.reborrow().of(depth, input);
        To {
            spline: &mut spline[column..],
            base: &mut base[column..],
            begun,
        }
    }
}

/// Where the rows of one input's sums go, from a column on.
pub(super) struct To<'a> {
    spline: &'a mut [f32],
    base: &'a mut [f32],
    /// Whether there is something to add to.
    pub begun: bool,
}

impl To<'_> {
    /// The sum of a row of the splines' weights.
    #[inline(always)]
    pub fn take<S: Simd, const V: usize, const H: usize>(
        &mut self,
        simd: S,
        at: usize,
        sum: Row<S, V, H>,
    ) {
        add(simd, sum, self.begun, &mut self.spline[at..]);
    }

    /// That of the base function's.
    #[inline(always)]
    pub fn take_base<S: Simd, const V: usize, const H: usize>(
        &mut self,
        simd: S,
        sum: Row<S, V, H>,
    ) {
        add(simd, sum, self.begun, self.base);
    }

    /// Rows without samples.
    #[inline(always)]
    pub fn skip<S: Simd, const V: usize, const H: usize>(
        &mut self,
        simd: S,
        rows: Range<usize>,
        width: usize,
    ) {
        if self.begun {
            return;
        }
        for row in rows {
            self.take::<S, V, H>(simd, row * width, Row::zero(simd));
        }
    }
}

/// Adds a row to what there is of it.
#[inline(always)]
fn add<S: Simd, const V: usize, const H: usize>(
    simd: S,
    mut sum: Row<S, V, H>,
    begun: bool,
    to: &mut [f32],
) {
    match begun {
        true => sum.add(&Row::load(simd, to)),
        // As if it were added to zeros.
        false => sum.add(&Row::zero(simd)),
    }
    sum.store(to);
}

/// A block of samples in the order of sums: segments along their tree, and within each one run after
/// another.
pub(super) struct Step {
    pub samples: Range<usize>,
    /// Samples of the first of two segments that share the block; 0 where it has one.
    pub cut: usize,
    /// The sum that it belongs to: how many are open before it.
    pub depth: usize,
    /// Whether that begins here.
    pub first: bool,
    /// How many sums are complete after it, each added to the one before.
    pub closes: usize,
}

/// All blocks.
pub(super) struct Steps {
    segments: Segments,
    segment: usize,
    /// Samples of the segment that are done.
    done: usize,
}

impl Steps {
    pub fn new(segments: Segments) -> Self {
        Steps {
            segments,
            segment: 0,
            done: 0,
        }
    }
}

impl Iterator for Steps {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let (segments, segment) = (self.segments, self.segment);
        if segment == segments.count() {
            return None;
        }
        // A sum is open for every bit of the number of segments that are done, and one when all are.
        let open = segment.count_ones() as usize;
        let closes = |done: usize| match done == segments.count() {
            true => open,
            false => open + 1 - done.count_ones() as usize,
        };
        let rows = segments.rows(segment);
        if segment.is_multiple_of(2) && segment + 1 < segments.count() {
            let next = segments.rows(segment + 1);
            if next.end - rows.start <= BLOCK {
                // Both in one block, evaluated once.
                self.segment += 2;
                return Some(Step {
                    samples: rows.start..next.end,
                    cut: rows.len(),
                    depth: open,
                    first: true,
                    closes: closes(segment + 2),
                });
            }
        }
        let start = rows.start + self.done;
        let end = rows.end.min(start + BLOCK);
        let later_run = usize::from(self.done >= RUN);
        let first = self.done.is_multiple_of(RUN);
        self.done += end - start;
        let mut closed = match self.done.is_multiple_of(RUN) || end == rows.end {
            true => later_run,
            false => 0,
        };
        if end == rows.end {
            closed += closes(segment + 1);
            (self.segment, self.done) = (segment + 1, 0);
        }
        Some(Step {
            samples: start..end,
            cut: 0,
            depth: open + later_run,
            first,
            closes: closed,
        })
    }
}
