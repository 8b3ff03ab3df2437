//! Gradients on their way back: the groups of layers that they leave in, and the buffers that they come
//! through.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::counters::count;
use super::device::Gpu;
use super::plan::GpuPlan;
use super::recording::Part;
use super::staging::map_when_done;
use crate::{Error, Layout, Result};

/// Parameters of a group, at least, where others follow: what is worth a submit and a mapping of its own.
const GROUP: usize = 16 * 1024;

/// Steps of backward, and what they complete.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) steps: Range<usize>,
    pub(super) ranges: Vec<Range<usize>>,
}

impl Group {
    pub(super) fn parameters(&self) -> usize {
        self.ranges.iter().map(|range| range.len()).sum()
    }
}

/// The groups of a backward pass, in its order.
pub(super) fn groups_of(plan: &GpuPlan, layout: &Layout) -> Vec<Group> {
    let empty = |at: usize| Group {
        steps: at..at,
        ranges: Vec::new(),
    };
    let mut all = vec![empty(0)];
    let mut done: Vec<Range<usize>> = Vec::new();
    for (i, (_, complete)) in plan.backward_steps().enumerate() {
        if all.last().is_some_and(|group| group.parameters() >= GROUP) && !complete.is_empty() {
            all.push(empty(i));
        }
        if let Some(group) = all.last_mut() {
            group.steps.end = i + 1;
            group.ranges.extend_from_slice(complete);
            done.extend_from_slice(complete);
        }
    }
    // What backward has no gradient for: the device's is 0.
    let is_done = |range: &Range<usize>| {
        let within = |d: &Range<usize>| d.start <= range.start && range.end <= d.end;
        done.iter().any(within)
    };
    let rest = layout.trainable().filter(|range| !is_done(range));
    let rest = rest.flat_map(|range| {
        let tensors = layout.tensors().iter().map(|tensor| tensor.range());
        tensors.filter(move |t| range.start <= t.start && t.end <= range.end)
    });
    let rest: Vec<Range<usize>> = rest.filter(|range| !is_done(range)).collect();
    all[0].ranges.extend(rest);
    for group in &mut all {
        group.ranges = super::native::joined(&group.ranges);
    }
    all
}

const IDLE: u8 = 0;
pub(super) const AWAY: u8 = 1;
pub(super) const READY: u8 = 2;
pub(super) const FAILED: u8 = 3;

/// A buffer that the CPU reads when the device has written it.
pub(super) struct Landing {
    pub(super) buffer: wgpu::Buffer,
    pub(super) state: Arc<AtomicU8>,
    submission: Option<wgpu::SubmissionIndex>,
}

impl Landing {
    pub(super) fn new(buffer: wgpu::Buffer) -> Self {
        Landing {
            buffer,
            state: Arc::new(AtomicU8::new(IDLE)),
            submission: None,
        }
    }

    /// To be called when what writes it is submitted.
    pub(super) fn submitted(&mut self, submission: wgpu::SubmissionIndex) {
        self.state.store(AWAY, Ordering::Release);
        self.submission = Some(submission);
        let mode = wgpu::MapMode::Read;
        map_when_done(&self.buffer, mode, &self.state, [READY, FAILED]);
    }

    /// Waits for what it was submitted with, if it isn't there, and no longer. The last of a step waits
    /// for an idle device.
    pub(super) fn await_it(&mut self, gpu: &Gpu, last: bool) -> Result<()> {
        let _ = gpu.device.poll(wgpu::PollType::Poll);
        if self.state.load(Ordering::Acquire) == AWAY {
            let counting = &gpu.counting;
            let stood_still = if last {
                &counting.waits
            } else {
                &counting.pauses
            };
            count(stood_still, 1);
            gpu.settle(self.submission.take())?;
        }
        match self.state.load(Ordering::Acquire) {
            READY => Ok(()),
            _ => {
                gpu.check()?;
                Err(Error::Gpu {
                    what: "a gradient could not be read back".into(),
                    advice: "the device may have been lost; resume from the last checkpoint".into(),
                })
            }
        }
    }

    /// Copies what lies at places of the buffer, in bytes, into ranges.
    pub(super) fn read<'r>(
        &self,
        gpu: &Gpu,
        places: impl Iterator<Item = (usize, &'r Range<usize>)>,
        into: &mut [f32],
    ) -> Result<()> {
        let view = self.buffer.get_mapped_range(..);
        let view = view.map_err(|e| Error::Gpu {
            what: format!("a gradient could not be read back: {e}"),
            advice: "the device may have been lost; resume from the last checkpoint".into(),
        })?;
        for (at, range) in places {
            let to: &mut [u8] = bytemuck::cast_slice_mut(&mut into[range.clone()]);
            to.copy_from_slice(&view[at..at + to.len()]);
            count(&gpu.counting.bytes_down, to.len() as u64);
            count(&gpu.counting.bytes_copied, to.len() as u64);
        }
        Ok(())
    }

    /// Gives it back to the device, whatever became of it.
    pub(super) fn release(&mut self, gpu: &Gpu) {
        if self.state.load(Ordering::Acquire) == AWAY {
            let _ = gpu.settle(self.submission.take());
        }
        if self.state.swap(IDLE, Ordering::AcqRel) == READY {
            self.buffer.unmap();
        }
    }
}

/// What gradients come back through, kept from step to step.
#[derive(Default)]
pub(crate) struct Landings {
    /// The loss first, then the groups.
    pub(super) all: Vec<Landing>,
    /// A gradient that is under way.
    pub(super) flight: Option<Flight>,
}

/// A gradient that was submitted and has not been brought back.
pub(super) struct Flight {
    pub(super) groups: Vec<Group>,
    /// Numbers of the loss.
    pub(super) pieces: usize,
    /// The gradient is read where it is.
    pub(super) in_place: bool,
    /// One that was not computed in groups.
    pub(super) brought: Option<(f64, Vec<f32>)>,
}

impl Landings {
    /// Makes sure of the buffer of that number, of at least so many bytes.
    pub(super) fn prepare(&mut self, gpu: &Gpu, i: usize, bytes: u64) -> Result<()> {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        if let Some(landing) = self.all.get_mut(i) {
            landing.release(gpu);
        }
        if self.all.get(i).is_none_or(|l| l.buffer.size() < bytes) {
            let made = Landing::new(gpu.model_buffer("gradients on their way", bytes, usage)?);
            self.all.truncate(i);
            self.all.push(made);
        }
        Ok(())
    }
}

/// Copies ranges of a flat vector of f32 one behind the other.
pub(super) fn copy_ranges(
    encoder: &mut wgpu::CommandEncoder,
    from: &Part,
    ranges: &[Range<usize>],
    to: &wgpu::Buffer,
) {
    let mut at = 0;
    for range in ranges {
        let bytes = 4 * range.len() as u64;
        let start = from.offset + 4 * range.start as u64;
        encoder.copy_buffer_to_buffer(&from.buffer, start, to, at, bytes);
        at += bytes;
    }
}
