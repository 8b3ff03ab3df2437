//! `retrograd bench mpi-*`: what processes take to reach each other, for the cost model of
//! docs/distributed.md.

use std::time::Instant;

use anyhow::bail;
use retrograd::group::Group;

use crate::exit::{Outcome, Result};
use crate::{log, processes};

/// The names, and a line about each.
pub const NAMES: [(&str, &str); 2] = [
    (
        "mpi-meeting",
        "all processes meet, 17 bytes each; under mpirun",
    ),
    (
        "mpi-exchange",
        "a gradient added over all processes; under mpirun",
    ),
];

/// Numbers in a gradient that is exchanged.
const LENGTHS: [usize; 3] = [10_000, 1_000_000, 10_000_000];

/// Measures those of the names that are asked for.
pub fn run(names: &[&str]) -> Result {
    let Some(group) = processes::join()? else {
        bail!(
            "{}: needs processes: mpirun -np 2 retrograd bench 'mpi-*'",
            names[0]
        );
    };
    let print = |line: String| {
        if !log::silent() {
            println!("{line}");
        }
    };
    print(format!(
        "{:24} {:>9} {:>12} {:>12}  rate",
        "measure", "processes", "median", "minimum"
    ));
    let row = |name: &str, [median, minimum]: [f64; 2], rate: String| {
        let [median, minimum] = [median, minimum].map(|t| format!("{:.1} µs", 1e6 * t));
        print(format!(
            "{name:24} {:>9} {median:>12} {minimum:>12}  {rate}",
            group.size()
        ));
    };
    if names.contains(&"mpi-meeting") {
        let times = timed(group, 1000, || {
            group.gather(&[0; 17]);
        });
        row("mpi-meeting", times, String::new());
    }
    for length in LENGTHS
        .into_iter()
        .filter(|_| names.contains(&"mpi-exchange"))
    {
        let times = exchange(group, length);
        let sent = 8.0 * length as f64 * (1.0 - 1.0 / group.size() as f64);
        let rate = format!("{:.2} GB/s sent by a process", sent / times[0] / 1e9);
        row(&format!("mpi-exchange {length}"), times, rate);
    }
    Ok(Outcome::Done)
}

/// What a step does with a gradient of which every process has one root, but for the sums.
fn exchange(group: &dyn Group, length: usize) -> [f64; 2] {
    let (rank, size) = (group.rank(), group.size());
    let part = |rank: usize| length * (rank + 1) / size - length * rank / size;
    let lengths: Vec<usize> = (0..size).map(part).collect();
    let mut all = vec![1.0_f32; length];
    let mut received = vec![0.0_f32; (size - 1) * lengths[rank]];
    let mut counts = vec![lengths[rank]; size];
    counts[rank] = 0;
    let rounds = (20_000_000 / length).clamp(10, 200);
    timed(group, rounds, || {
        group.exchange(&all, &lengths, &mut received, &counts);
        group.share(&mut all, &lengths);
    })
}

/// Median and minimum of so many rounds, in seconds, after a tenth of them to warm up.
fn timed(group: &dyn Group, rounds: usize, mut round: impl FnMut()) -> [f64; 2] {
    let mut times = Vec::with_capacity(rounds);
    for i in 0..rounds + rounds / 10 {
        group.barrier();
        let start = Instant::now();
        round();
        if i >= rounds / 10 {
            times.push(start.elapsed().as_secs_f64());
        }
    }
    times.sort_by(f64::total_cmp);
    [times[times.len() / 2], times[0]]
}
