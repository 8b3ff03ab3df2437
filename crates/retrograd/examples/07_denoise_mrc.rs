//! Trains a denoiser on the odd and even halves of micrographs (MRC files) without a clean image,
//! and applies it to a file.
//!
//! cargo run --release --example 07_denoise_mrc

use retrograd::data::image::{ImageFile, Spool};
use retrograd::data::mrc::{self, Header, MrcMode};
use retrograd::data::quality::psnr;
use retrograd::data::synthetic::Micrograph;
use retrograd::denoise::{DenoiseTask, Denoiser};
use retrograd::train::{Experiment, Session};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Micrographs as a detector would give them: counted electrons, two halves each.
    let folder = tempfile::tempdir()?;
    let file = |name: String| folder.path().join(name);
    let mut clean = Vec::new();
    for n in 0..2 {
        let exposure = Micrograph::default().generate(n, 0);
        for (half, image) in [("odd", &exposure.odd), ("even", &exposure.even)] {
            let header = Header::new(image.width, image.height, 1, MrcMode::F32);
            mrc::write(file(format!("{n}-{half}.mrc")), header, &[image])?;
        }
        clean = exposure.clean.pixels;
    }

    let text = r#"
        name = "micrographs"
        model = { family = "denoise", architecture = "simple-cnn" }
        [data]
        method = "noise2noise"
        inputs = ["*-odd.mrc"]
        targets = ["*-even.mrc"]
        [train]
        epochs = 15
        batch = 8
        optimizer = { kind = "adam", lr = 2e-3 }
    "#;
    let mut experiment = Experiment::parse(text, "experiment.toml")?;
    experiment.folder = Some(folder.path().into());
    let mut task = DenoiseTask::new(&experiment)?;
    let run = folder.path().join("run");
    let summary = Session::new(experiment).in_folder(&run).fit(&mut task)?;
    println!("{} steps, loss {:.3}", summary.steps, summary.train_loss);

    // Tiles keep the work within 64 MiB, whatever the image's size.
    let denoiser = Denoiser::open(&run)?;
    let plan = denoiser.plan(64 << 20)?;
    let noisy = ImageFile::open(file("1-odd.mrc".into()), &Spool::new()?)?;
    let out = file("denoised.mrc".into());
    denoiser.denoise_file(&noisy, &out, "denoised by an example", &plan, |_rows| ())?;
    let denoised = ImageFile::open(&out, &Spool::new()?)?;

    for (name, file) in [("noisy", noisy), ("denoised", denoised)] {
        let pixels = file.read_section(0)?.pixels;
        println!("{name:8} PSNR {:.1} dB", psnr(&pixels, &clean, 10.0));
    }
    Ok(())
}
