//! Read-ahead: one thread fills batches before they are asked for.
//!
//! A fixed number of buffers goes round: the thread takes an empty one, fills it with the next
//! step and puts it in the queue of full ones; the caller takes it from there and gives it back at
//! its next call. What a buffer holds is a function of its step, so timing changes nothing; a step
//! that isn't the next one (a resumed run, another epoch of validation) starts the thread anew.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::{PatchBatch, Sampler, Workspace};
use crate::{Error, Result, parallel};

/// Bytes that reading a window of a file needs at most (a piece of whole rows), with some room
/// for the thread itself.
pub(super) const READING: u64 = 2 << 20;

/// The most buffers: reading ahead further than this helps no disk.
const MAX_BUFFERS: u64 = 8;

type Filled = (u64, PatchBatch, Result<()>);

#[derive(Debug)]
struct Worker {
    /// None once it is told to stop.
    empty: Option<Sender<PatchBatch>>,
    full: Receiver<Filled>,
    thread: Option<JoinHandle<()>>,
    next: u64,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Without anyone to give it an empty buffer the thread ends after the one it is filling.
        self.empty = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been seen as a queue that ended.
            let _ = thread.join();
        }
    }
}

#[derive(Debug)]
pub(super) struct ReadAhead {
    sampler: Arc<Sampler>,
    buffers: u64,
    worker: Option<Worker>,
    current: Option<PatchBatch>,
    current_step: u64,
    /// Buffers of a worker that was stopped.
    spare: Vec<PatchBatch>,
}

impl ReadAhead {
    pub fn new(sampler: Arc<Sampler>) -> Result<Self> {
        let spec = &sampler.spec;
        let batch = spec.batch_bytes(sampler.targets);
        let scratch = Self::scratch_bytes(&sampler);
        let buffers = spec.budget.saturating_sub(scratch) / batch.max(1);
        if buffers < 2 {
            return Err(Error::invalid(
                "memory budget",
                format!("{} bytes", spec.budget),
                format!(
                    "at least {} for two batches of {} patches of side {}; or smaller batches",
                    2 * batch + scratch,
                    spec.batch,
                    spec.size
                ),
            ));
        }
        Ok(ReadAhead {
            sampler,
            buffers: buffers.min(MAX_BUFFERS),
            worker: None,
            current: None,
            current_step: 0,
            spare: Vec::new(),
        })
    }

    /// Two windows and what reading a file needs.
    fn scratch_bytes(sampler: &Sampler) -> u64 {
        8 * (sampler.spec.size * sampler.spec.size) as u64 + READING
    }

    pub fn bytes(&self) -> u64 {
        let batch = self.sampler.spec.batch_bytes(self.sampler.targets);
        self.buffers * batch + Self::scratch_bytes(&self.sampler)
    }

    fn start(&mut self, step: u64) -> Result<()> {
        // The old thread ends first, so that never more buffers than counted are alive.
        if let Some(mut worker) = self.worker.take() {
            worker.empty = None;
            self.spare
                .extend(worker.full.iter().map(|(_, buffer, _)| buffer));
        }
        let (empty, wants) = channel::<PatchBatch>();
        let (done, full) = channel::<Filled>();
        let mut spare = std::mem::take(&mut self.spare);
        spare.extend(self.current.take());
        spare.resize_with(self.buffers as usize, PatchBatch::default);
        for buffer in spare {
            // The other end is here.
            let _ = empty.send(buffer);
        }
        let sampler = self.sampler.clone();
        let thread = parallel::background("read ahead", move || {
            let mut scratch = Workspace::default();
            for step in step.. {
                let Ok(mut buffer) = wants.recv() else { break };
                let result = sampler.read(step, &mut buffer, &mut scratch);
                let failed = result.is_err();
                if done.send((step, buffer, result)).is_err() || failed {
                    break;
                }
            }
        })
        .map_err(Error::io(
            &self.sampler.scenes[0].input.file.path,
            "start a thread to read",
        ))?;
        self.worker = Some(Worker {
            empty: Some(empty),
            full,
            thread: Some(thread),
            next: step,
        });
        Ok(())
    }

    pub fn batch(&mut self, step: u64) -> Result<&PatchBatch> {
        if self.current.is_none() || self.current_step != step {
            match &mut self.worker {
                Some(worker) if worker.next == step => {
                    if let (Some(buffer), Some(empty)) = (self.current.take(), &worker.empty) {
                        // A thread that has ended is noticed below.
                        let _ = empty.send(buffer);
                    }
                }
                _ => self.start(step)?,
            }
            let worker = self.worker.as_mut().expect("started above");
            let (filled, buffer, result) = match worker.full.recv() {
                Ok(filled) => filled,
                Err(_) => {
                    self.worker = None;
                    return Err(Error::invalid(
                        "the thread that reads ahead",
                        "a stop",
                        "to run",
                    ));
                }
            };
            debug_assert_eq!(filled, step);
            worker.next = step + 1;
            if let Err(error) = result {
                self.worker = None;
                return Err(error);
            }
            self.current = Some(buffer);
            self.current_step = step;
        }
        Ok(self.current.as_ref().expect("set above"))
    }
}
