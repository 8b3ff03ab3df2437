//! Streaming a data set ten times the memory budget stays within the budget, measured by what the
//! operating system says this process holds. Alone in its file: a process has one peak.

#![cfg(target_os = "linux")]

use retrograd::Target;
use retrograd::data::denoise::{BlindSpots, DenoiseBatches, Method, Sources};
use retrograd::data::image::Spool;
use retrograd::data::mrc::{Header, MrcMode, MrcWriter};
use retrograd::data::patches::PatchSpec;

const BUDGET: u64 = 16 << 20;
const SIDE: usize = 1024;

/// A line of /proc/self/status in bytes.
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with(field)).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

#[test]
fn a_data_set_of_ten_budgets_streams_within_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let mut sources = Vec::new();
    let mut on_disk = 0;
    // 40 halves of 4 MiB are 160 MiB, as pairs; every fourth file packed, so that the way through
    // the temporary file is measured too.
    for pair in 0..20 {
        let ending = if pair % 4 == 3 { "mrc.gz" } else { "mrc" };
        let paths =
            ["odd", "even"].map(|half| folder.path().join(format!("{pair}-{half}.{ending}")));
        for (half, path) in paths.iter().enumerate() {
            let header = Header::new(SIDE, SIDE, 1, MrcMode::F32);
            let mut writer = MrcWriter::create(path, header).unwrap();
            let mut row = vec![0.0; SIDE];
            for y in 0..SIDE {
                for (x, value) in row.iter_mut().enumerate() {
                    *value = ((x * 31 + y * 17 + pair * 7 + half) % 255) as f32;
                }
                writer.write_rows(&row).unwrap();
            }
            writer.finish().unwrap();
            on_disk += 4 * (SIDE * SIDE) as u64;
        }
        let [odd, even] = paths;
        sources.push(Sources::Pair(odd, even));
    }
    assert!(on_disk >= 10 * BUDGET);

    let before = memory("VmRSS");
    let spool = Spool::new().unwrap();
    let scenes = sources
        .iter()
        .flat_map(|s| Method::Noise2noise.open(s, 1, &spool).unwrap())
        .collect();
    let spec = PatchSpec {
        size: 256,
        batch: 4,
        augment: true,
        budget: BUDGET,
        seed: 1,
    };
    let blind = BlindSpots::default();
    let mut batches =
        DenoiseBatches::new(Method::Noise2noise, blind, scenes, spec, "patches").unwrap();
    assert!(batches.patches().streamed());
    assert!(batches.patches().held_bytes() <= BUDGET);
    let (mut inputs, mut target) = (Vec::new(), Target::default());
    let mut most = 0;
    for step in 0..150 {
        batches.batch(step, &mut inputs, &mut target).unwrap();
        most = most.max(memory("VmRSS"));
    }
    let peak = memory("VmHWM").max(most) - before;
    // The batch that was handed out is the caller's.
    let handed_out = 4 * 2 * inputs.len() as u64;
    println!(
        "{} MiB on disk, budget {} MiB, peak {:.1} MiB above the start",
        on_disk >> 20,
        BUDGET >> 20,
        peak as f64 / f64::from(1 << 20)
    );
    assert!(
        peak <= BUDGET + handed_out,
        "peak {peak} bytes above the start, budget {BUDGET}"
    );
    // The measure has teeth: holding the data set would have been seen.
    assert!(on_disk > 5 * peak);
}
