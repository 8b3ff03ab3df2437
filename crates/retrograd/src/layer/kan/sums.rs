//! The order in which the gradients of weights are summed: samples in blocks, blocks in runs, runs in
//! segments, and segments along their tree.

use std::ops::Range;

use super::backward::RUN;
use super::block::BLOCK;
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

impl Sums<'_> {
    /// The place of a sum of one input.
    #[inline(always)]
    pub fn of(&mut self, depth: usize, input: usize) -> [&mut [f32]; 2] {
        let [spline, base] = match depth.checked_sub(1) {
            None => [&mut *self.spline, &mut *self.base],
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

    /// Adds the sum of one input, which is at some place of its depth, to the one before.
    #[inline(always)]
    pub fn close<S: Simd>(&mut self, simd: S, depth: usize, place: usize, input: usize) {
        let len = (self.each[0] + self.each[1]) * self.count;
        let (before, here) = self.open.split_at_mut((depth - 1) * len);
        let mut before = Sums {
            spline: &mut *self.spline,
            base: &mut *self.base,
            open: before,
            ..*self
        };
        let mut here = Sums {
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
