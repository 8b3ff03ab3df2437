//! What the machine gives: the measures that other workloads are held against.

use crate::clock::Instant;
use std::time::Duration;

use crate::parallel;

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
    })
}
