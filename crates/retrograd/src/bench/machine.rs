//! What the machine gives: the measures that other workloads are held against.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::Instant;
use crate::{Error, parallel};

use crate::bench::{BenchDevice, Prepared, Workload};

/// This file's workloads.
pub(crate) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "memory-read",
        about: "256 MB read in order: the bandwidth that graph-large is a share of",
        build: |device, _| memory_read(device),
    },
    Workload {
        name: "parallel-region",
        about: "20 µs of work, then two pieces of 10 µs on all threads: 30 µs if that were free",
        build: |device, _| parallel_region(device),
    },
    Workload {
        name: "cache-line",
        about: "a cache line to another core and back, 8 times: a sixteenth is the latency between them",
        build: |device, _| cache_line(device),
    },
];

/// Floats that are read in order, and those of one piece.
const READ: usize = 64 << 20;
const PIECE: usize = 1 << 18;

/// Sums an array, pieces on all threads: as fast as memory gives it.
fn read_in_order(memory: &[f32]) {
    parallel::for_each(memory.len() / PIECE, true, |piece| {
        let mut sums = [0.0_f32; 64];
        for row in memory[piece * PIECE..(piece + 1) * PIECE].chunks_exact(64) {
            for (sum, x) in sums.iter_mut().zip(row) {
                *sum += x;
            }
        }
        std::hint::black_box(sums);
    });
}

/// Bytes a second of reading in order: the median of some passes over 256 MB.
pub fn read_bandwidth() -> f64 {
    let memory = vec![1.0; READ];
    let mut seconds: Vec<f64> = (0..9)
        .map(|_| {
            let start = Instant::now();
            read_in_order(&memory);
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    (4 * READ) as f64 / seconds[4]
}

fn memory_read(device: BenchDevice) -> crate::Result<Prepared> {
    device.is_cpu()?;
    let memory = vec![1.0; READ];
    Ok(Prepared {
        step: Box::new(move || read_in_order(&memory)),
        flops: None,
        rate: Some(("bytes_per_s", (4 * READ) as f64)),
        problem: None,
        fused: None,
        sharded: None,
        on_gpu: None,
    })
}

/// Works for that long.
fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn parallel_region(device: BenchDevice) -> crate::Result<Prepared> {
    device.is_cpu()?;
    Ok(Prepared {
        step: Box::new(|| {
            spin(Duration::from_micros(20));
            parallel::for_each(2, true, |_| spin(Duration::from_micros(10)));
        }),
        flops: None,
        rate: None,
        problem: None,
        fused: None,
        sharded: None,
        on_gpu: None,
    })
}

/// Times that a line goes to the other core and back in a step.
const RETURNS: usize = 8;
/// Tells the other thread to end; no count reaches it.
const END: usize = usize::MAX;

/// A line of its own, so that nothing else moves with it.
#[repr(align(128))]
struct Line(AtomicUsize);

/// Another thread that adds one to every odd number in a line, until it is told to end.
struct Partner {
    line: Arc<Line>,
    thread: Option<JoinHandle<()>>,
}

impl Partner {
    fn start() -> crate::Result<Self> {
        let line = Arc::new(Line(AtomicUsize::new(0)));
        let theirs = line.clone();
        let answer = move || {
            loop {
                match theirs.0.load(Ordering::Acquire) {
                    END => break,
                    odd if odd % 2 == 1 => theirs.0.store(odd + 1, Ordering::Release),
                    _ => std::hint::spin_loop(),
                }
            }
        };
        let thread = std::thread::Builder::new().spawn(answer);
        let thread = thread.map_err(|e| Error::refused("cache-line", e.to_string()))?;
        Ok(Partner {
            line,
            thread: Some(thread),
        })
    }

    /// Writes the next odd number and waits for the even one.
    fn there_and_back(&self) {
        let even = self.line.0.load(Ordering::Relaxed);
        self.line.0.store(even + 1, Ordering::Release);
        while self.line.0.load(Ordering::Acquire) != even + 2 {
            std::hint::spin_loop();
        }
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        self.line.0.store(END, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It can't panic.
            let _ = thread.join();
        }
    }
}

fn cache_line(device: BenchDevice) -> crate::Result<Prepared> {
    device.is_cpu()?;
    // On one core the two would wait for the scheduler, not for each other.
    if parallel::threads() < 2 {
        return Err(Error::invalid(
            "--threads",
            "1",
            "2: the line goes between two",
        ));
    }
    let partner = Partner::start()?;
    Ok(Prepared {
        step: Box::new(move || (0..RETURNS).for_each(|_| partner.there_and_back())),
        flops: None,
        rate: None,
        problem: None,
        fused: None,
        sharded: None,
        on_gpu: None,
    })
}
