//! Denoisers of images.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use retrograd::data::image::{ImageFile, Spool};
use retrograd::data::quality::{Quality, compare};
use retrograd::denoise::{DenoiseTask, Denoiser};
use retrograd::train::{Experiment, Session, Summary};

use super::Family;
use crate::commands::RunArgs;
use crate::exit::Outcome;
use crate::progress::Rows;

pub const FAMILY: Family = Family {
    name: "denoise",
    train,
    run: Some(run),
    export: None,
};

fn train(session: &mut Session<'_>) -> retrograd::Result<Summary> {
    let mut task = DenoiseTask::new(session.experiment())?;
    for note in task.notes() {
        session.note(note);
    }
    session.fit(&mut task)
}

/// Denoises files of any size into a folder, tile by tile.
fn run(experiment: &Experiment, args: &RunArgs) -> Result<Outcome> {
    if args.inputs.is_empty() {
        bail!("run: got no input, needs at least one image (MRC, PNG, TIFF, NPY)");
    }
    if !args.reference.is_empty() && args.reference.len() != args.inputs.len() {
        bail!(
            "--reference: got {} files, needs {}, one for every input",
            args.reference.len(),
            args.inputs.len()
        );
    }
    if args.halves && !args.inputs.len().is_multiple_of(2) {
        bail!(
            "--halves: got {} inputs, needs pairs: odd, even, odd, even …",
            args.inputs.len()
        );
    }
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| args.run.join("denoised"));
    std::fs::create_dir_all(&out).map_err(retrograd::Error::io(&out, "create the folder"))?;
    let outputs = output_names(&args.inputs, &out)?;
    let denoiser = Denoiser::open(&args.run)?;
    let plan = denoiser.plan(args.memory_mib << 20)?;
    let label = format!(
        "retrograd {}: denoised by {}",
        env!("CARGO_PKG_VERSION"),
        experiment.name
    );
    for (input, output) in args.inputs.iter().zip(&outputs) {
        // A spool for every file: what was unpacked goes when the file is done.
        let file = ImageFile::open(input, &Spool::new()?)?;
        for warning in &file.warnings {
            crate::log::warn(&format!("{}: {warning}", input.display()));
        }
        let mut rows = Rows::new(input, file.height * file.sections);
        denoiser.denoise_file(&file, output, &label, &plan, |done| rows.done(done))?;
        rows.finish();
        println!("{:20} {}", "denoised", output.display());
    }
    for ((input, output), reference) in args.inputs.iter().zip(&outputs).zip(&args.reference) {
        println!("{} against {}", input.display(), reference.display());
        for (name, path) in [("before", input), ("after", output)] {
            print_quality(name, &quality(path, reference)?);
        }
    }
    if args.halves {
        for (inputs, outputs) in args.inputs.chunks_exact(2).zip(outputs.chunks_exact(2)) {
            println!("{} and {}", inputs[0].display(), inputs[1].display());
            for (name, pair) in [("before", inputs), ("after", outputs)] {
                let quality = quality(&pair[0], &pair[1])?;
                println!(
                    "{:20} {:.6}",
                    format!("odd/even {name}"),
                    quality.correlation
                );
            }
        }
    }
    Ok(Outcome::Done)
}

/// Where every input's result goes: its own name in the folder. Never onto an input.
fn output_names(inputs: &[PathBuf], folder: &Path) -> Result<Vec<PathBuf>> {
    let real = |path: &Path| path.canonicalize().ok();
    let mut outputs: Vec<PathBuf> = Vec::new();
    for input in inputs {
        let Some(name) = input.file_name() else {
            bail!("run: {} is no file", input.display());
        };
        let output = folder.join(name);
        if outputs.contains(&output) {
            bail!(
                "run: two inputs are named {}; denoise them into folders of their own",
                name.display()
            );
        }
        let there = real(&output);
        if there.is_some() && inputs.iter().any(|i| real(i) == there) {
            bail!(
                "--out: {} would overwrite an input; choose another folder",
                output.display()
            );
        }
        outputs.push(output);
    }
    Ok(outputs)
}

/// The first sections of two files compared.
fn quality(image: &Path, reference: &Path) -> Result<Quality> {
    let spool = Spool::new()?;
    let image = ImageFile::open(image, &spool)?;
    let reference = ImageFile::open(reference, &spool)?;
    Ok(compare((&image, 0), (&reference, 0), None)?)
}

fn print_quality(name: &str, quality: &Quality) {
    println!("{:20} {:.3}", format!("PSNR {name}, dB"), quality.psnr);
    if let Some(ssim) = quality.ssim {
        println!("{:20} {ssim:.6}", format!("SSIM {name}"));
    }
    println!(
        "{:20} {:.6}",
        format!("correlation {name}"),
        quality.correlation
    );
}
