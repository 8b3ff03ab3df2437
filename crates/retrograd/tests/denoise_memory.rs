//! Denoising a 4096 × 4096 image stays within the memory it was given, measured by what the
//! operating system says this process holds. Alone in its file: a process has one peak.

#![cfg(target_os = "linux")]

use retrograd::Model;
use retrograd::data::image::{ImageFile, Spool};
use retrograd::data::mrc::{Header, MrcMode, MrcWriter};
use retrograd::denoise::Denoiser;
use retrograd::network::{LayerSpec, Network, NetworkSpec};

const SIDE: usize = 4096;
const MEMORY: u64 = 24 << 20;

/// A line of /proc/self/status in bytes.
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with(field)).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

#[test]
fn an_image_of_4096_by_4096_is_denoised_within_the_memory_given() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("in.mrc"), folder.path().join("out.mrc"));
    let header = Header::new(SIDE, SIDE, 1, MrcMode::I16);
    let mut writer = MrcWriter::create(&from, header).unwrap();
    let mut row = vec![0.0; SIDE];
    for y in 0..SIDE {
        for (x, value) in row.iter_mut().enumerate() {
            *value = ((x * 31 + y * 17) % 255) as f32;
        }
        writer.write_rows(&row).unwrap();
    }
    writer.finish().unwrap();
    // Few channels keep the test quick; the plan counts the bytes of any network's layers.
    let layers = vec![
        LayerSpec::conv2d(2, 3, 1),
        LayerSpec::relu(),
        LayerSpec::conv2d(1, 3, 1),
    ];
    let network = Network::new(&NetworkSpec::new(&[1, 16, 16], layers.clone())).unwrap();
    let denoiser = Denoiser::new(layers, network.init(1), Vec::new()).unwrap();
    let file = ImageFile::open(&from, &Spool::new().unwrap()).unwrap();
    retrograd::parallel::with_threads(2, || {
        let plan = denoiser.plan(MEMORY).unwrap();
        // Threads and their stacks are there before the measurement.
        retrograd::parallel::for_each(2, true, |_| {});
        let before = memory("VmRSS");
        denoiser
            .denoise_file(&file, &to, "denoised", &plan, |_| {})
            .unwrap();
        let peak = memory("VmHWM") - before;
        // One strip of rows, the sample for the normalisation (freed before the tiles) and the
        // buffers of reading and writing come on top of the tiles.
        let strip = 4 * (SIDE * plan.tiling.tile) as u64;
        let sample = 8 * retrograd::data::normalise::SAMPLE as u64;
        let files = 4 << 20;
        println!(
            "image {} MiB, tiles of {} within {} MiB, strip {} MiB: peak {:.1} MiB",
            (4 * SIDE * SIDE) >> 20,
            plan.tiling.tile,
            MEMORY >> 20,
            strip >> 20,
            peak as f64 / f64::from(1 << 20)
        );
        assert!(peak <= MEMORY + strip + sample + files, "{peak}");
        // The measure has teeth: the image, as floats, in and out, would not have fitted.
        assert!(MEMORY + strip + sample + files < 8 * (SIDE * SIDE) as u64);
    });
}
