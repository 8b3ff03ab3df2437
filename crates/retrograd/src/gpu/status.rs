//! Losses and failures of native steps, brought back without waiting.
//!
//! Every step leaves its loss and a flag, 8 bytes, in a ring on the device. Whenever one of a few
//! staging buffers is free, the step copies what is new into it and asks for it to be mapped; it is
//! read when that has happened. Nothing waits, unless the CPU is [`AHEAD`] steps in front.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::counters::count;
use super::device::{Gpu, storage_usage};
use super::precision::{LossScale, Scale};
use super::recording::{Part, read_mapped};
use crate::{Error, Result};

/// Steps that the ring holds.
pub(crate) const SLOTS: u64 = 1024;
/// Steps that the CPU may be ahead of the device: enough that the device never waits for it, few
/// enough that the uploads in flight stay small.
const AHEAD: usize = 32;
const STAGING: usize = 4;
/// Steps whose outcome may be unknown when another is sent: a copy waits for one of the staging
/// buffers for at most AHEAD steps, and takes as many again to arrive.
pub(crate) const UNKNOWN: u64 = 64;
/// Bytes of `Before` in optimizer.wgsl.
const BEFORE: u64 = 16;

/// The loss of a native step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepLoss {
    /// Steps before it, since the network was put on the device.
    pub step: u64,
    /// The loss before the update.
    pub loss: f64,
    /// Whether the update was made; it is not where the loss or a gradient is not finite.
    pub updated: bool,
    /// Mixed precision: the update was not made because the loss scale was too large; the next
    /// step takes half of it. No failure.
    pub overflowed: bool,
}

struct Staging {
    buffer: wgpu::Buffer,
    state: Arc<AtomicU8>,
    steps: std::ops::Range<u64>,
}

/// What a step's status says beside its loss; as in optimizer.wgsl.
const UPDATED: f32 = 0.0;
const OVERFLOWED: f32 = 2.0;

const IDLE: u8 = 0;
const PENDING: u8 = 1;
const READY: u8 = 2;
const FAILED: u8 = 3;

pub(crate) struct Status {
    pub ring: Part,
    /// A ring of what a step knows of those before it (`Before` in optimizer.wgsl): loss scale,
    /// good steps with it, steps left out. Behind it a scale of 1 for steps that have none.
    pub scales: Part,
    /// What is known of the loss scale.
    pub scale: Option<Scale>,
    /// It was changed here, and the device doesn't know.
    pub scale_changed: bool,
    staging: Vec<Staging>,
    /// Steps submitted, those whose status is on its way or here, and those whose is here.
    pub steps: u64,
    copied: u64,
    collected: u64,
    /// Steps that are known to have changed nothing; optimizers look at it.
    pub left_out: Arc<AtomicU64>,
    in_flight: VecDeque<wgpu::SubmissionIndex>,
    losses: VecDeque<StepLoss>,
    /// The first step that failed since the last [`Status::clear_failure`].
    pub failure: Option<StepLoss>,
    /// From this step on a failure before it doesn't count.
    pub forgiven: u64,
    pub skipped: u64,
    /// Steps left out because the loss scale was too large.
    pub overflows: u64,
}

impl Status {
    pub fn new(gpu: &Gpu, scale: Option<LossScale>) -> Result<Self> {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let staging: Result<Vec<_>> = (0..STAGING)
            .map(|_| {
                Ok(Staging {
                    buffer: gpu.buffer("losses", 8 * SLOTS, usage)?,
                    state: Arc::new(AtomicU8::new(IDLE)),
                    steps: 0..0,
                })
            })
            .collect();
        let scales = gpu.buffer("loss scales", BEFORE * (SLOTS + 1), storage_usage())?;
        gpu.write(&scales, BEFORE * SLOTS, bytemuck::cast_slice(&[1.0_f32]));
        Ok(Status {
            scales: Part::whole(&scales),
            scale: scale.map(Scale::new),
            scale_changed: scale.is_some(),
            ring: Part::whole(&gpu.buffer("losses", 8 * SLOTS, storage_usage())?),
            staging: staging?,
            steps: 0,
            copied: 0,
            collected: 0,
            left_out: Arc::default(),
            in_flight: VecDeque::new(),
            losses: VecDeque::new(),
            failure: None,
            forgiven: 0,
            skipped: 0,
            overflows: 0,
        })
    }

    /// Lets the device catch up where the CPU is far ahead, and takes in what has arrived.
    pub fn advance(&mut self, gpu: &Gpu) -> Result<()> {
        while self.in_flight.len() >= AHEAD {
            let oldest = self.in_flight.pop_front();
            count(&gpu.counting.throttles, 1);
            gpu.settle(oldest)?;
        }
        let _ = gpu.device.poll(wgpu::PollType::Poll);
        self.collect(gpu)?;
        // Never more than twice AHEAD; the kernels count on it.
        if self.unknown() >= UNKNOWN {
            count(&gpu.counting.throttles, 1);
            gpu.settle(None)?;
            self.collect(gpu)?;
            while self.is_expecting() {
                std::thread::yield_now();
                gpu.settle(None)?;
                self.collect(gpu)?;
            }
        }
        Ok(())
    }

    /// Whether something that was copied is not here yet. A device that has done its work may not have said so: where
    /// several threads wait for it, one calls what the others wait for, too.
    fn is_expecting(&self) -> bool {
        let is_idle = |s: &Staging| s.state.load(Ordering::Acquire) == IDLE;
        !self.staging.iter().all(is_idle)
    }

    /// Steps submitted of which it is not known whether they changed anything.
    pub fn unknown(&self) -> u64 {
        self.steps - self.collected
    }

    /// Steps that are known to have changed nothing.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Tells the device of a loss scale that was decided here, before its next step.
    pub fn send_scale(&mut self, gpu: &Gpu) {
        if let Some(scale) = self.scale.filter(|_| self.scale_changed) {
            let at = BEFORE * (self.steps % SLOTS);
            let words = [scale.value, scale.good as f32];
            gpu.write(&self.scales.buffer, at, bytemuck::cast_slice(&words));
            self.scale_changed = false;
        }
    }

    fn collect(&mut self, gpu: &Gpu) -> Result<()> {
        let mut order: Vec<usize> = (0..self.staging.len()).collect();
        order.sort_by_key(|&i| self.staging[i].steps.start);
        for i in order {
            let staging = &self.staging[i];
            match staging.state.load(Ordering::Acquire) {
                READY => {}
                FAILED => {
                    staging.state.store(IDLE, Ordering::Release);
                    gpu.check()?;
                    return Err(Error::Gpu {
                        what: "the losses could not be read back".into(),
                        advice: "resume from the last checkpoint".into(),
                    });
                }
                _ => continue,
            }
            let bytes = 8 * (staging.steps.end - staging.steps.start);
            let values = read_mapped(gpu, &staging.buffer, bytes)?;
            staging.state.store(IDLE, Ordering::Release);
            for (step, pair) in staging.steps.clone().zip(values.chunks_exact(2)) {
                let loss = StepLoss {
                    step,
                    loss: f64::from(pair[0]),
                    updated: pair[1] == UPDATED,
                    overflowed: pair[1] == OVERFLOWED,
                };
                match &mut self.scale {
                    Some(scale) if loss.updated => scale.went_well(),
                    Some(scale) if loss.overflowed => scale.halve(),
                    _ => {}
                }
                if !loss.updated {
                    self.left_out.fetch_add(1, Ordering::Relaxed);
                }
                self.collected = step + 1;
                if loss.overflowed {
                    self.overflows += 1;
                } else if !loss.updated {
                    self.skipped += 1;
                    if self.failure.is_none() && step >= self.forgiven {
                        self.failure = Some(loss);
                    }
                }
                self.losses.push_back(loss);
            }
        }
        Ok(())
    }

    /// Adds the copy of what is new to a step's commands, where a staging buffer is free. To be
    /// followed by [`Status::submitted`].
    pub fn copy(&mut self, encoder: &mut wgpu::CommandEncoder) -> Option<usize> {
        let free = |s: &Staging| s.state.load(Ordering::Acquire) == IDLE;
        let i = self.staging.iter().position(free)?;
        // Up to the end of the ring: the rest comes with the next.
        let first = self.copied;
        let end = (self.steps + 1).min((first / SLOTS + 1) * SLOTS);
        let bytes = 8 * (end - first);
        let from = 8 * (first % SLOTS);
        let staging = &mut self.staging[i];
        encoder.copy_buffer_to_buffer(&self.ring.buffer, from, &staging.buffer, 0, bytes);
        staging.steps = first..end;
        self.copied = end;
        Some(i)
    }

    /// Something was sent that is no whole step.
    pub fn under_way(&mut self, submission: wgpu::SubmissionIndex) {
        self.in_flight.push_back(submission);
    }

    pub fn submitted(&mut self, submission: wgpu::SubmissionIndex, staging: Option<usize>) {
        self.steps += 1;
        self.in_flight.push_back(submission);
        if let Some(i) = staging {
            self.map(i);
        }
    }

    fn map(&mut self, i: usize) {
        let staging = &self.staging[i];
        staging.state.store(PENDING, Ordering::Release);
        let state = Arc::clone(&staging.state);
        let bytes = 8 * (staging.steps.end - staging.steps.start);
        let slice = staging.buffer.slice(..bytes);
        slice.map_async(wgpu::MapMode::Read, move |result| {
            let to = if result.is_ok() { READY } else { FAILED };
            state.store(to, Ordering::Release);
        });
    }

    /// Waits until every step is done and its loss is here.
    pub fn flush(&mut self, gpu: &Gpu) -> Result<()> {
        loop {
            gpu.wait(None)?;
            self.in_flight.clear();
            self.collect(gpu)?;
            if self.is_expecting() {
                std::thread::yield_now();
                continue;
            }
            if self.copied == self.steps {
                return Ok(());
            }
            let mut encoder = gpu.device.create_command_encoder(&Default::default());
            // `copy` counts the step that is being recorded; here none is.
            self.steps -= 1;
            let staging = self.copy(&mut encoder);
            self.steps += 1;
            gpu.submit(encoder);
            if let Some(i) = staging {
                self.map(i);
            }
        }
    }

    /// The losses that have arrived, in order, each once.
    pub fn take(&mut self) -> Vec<StepLoss> {
        self.losses.drain(..).collect()
    }
}
