//! The family's entry: training, and files of any size denoised tile by tile.

use std::path::{Path, PathBuf};

use super::{DenoiseDataSpec, DenoiseTask, Denoiser};
use crate::data::frc::RingCorrelation;
use crate::data::image::{Format, ImageFile, Spool};
use crate::data::quality::{Quality, compare};
use crate::family::{Console, ExportOptions, Family, RunOptions};
use crate::train::{Experiment, Session, Summary};
use crate::{Error, Result};

/// Denoisers of images.
pub const FAMILY: Family = Family {
    train: Some(train),
    run: Some(run),
    export: Some(export),
    works: &[
        (
            "noise2noise",
            "J. Lehtinen et al.: Noise2Noise: Learning Image Restoration without Clean Data. \
             ICML 2018.",
        ),
        (
            "noise2void",
            "A. Krull, T.-O. Buchholz, F. Jug: Noise2Void: Learning Denoising from Single Noisy \
             Images. CVPR 2019.",
        ),
    ],
    draft: Some(super::draft::draft),
    workloads: &[super::bench::WORKLOADS],
    growths: super::bench::GROWTHS,
    ..Family::new("denoise")
};

fn train(session: &mut Session<'_>) -> Result<Summary> {
    let mut task = DenoiseTask::new(session.experiment())?;
    session.fit(&mut task)
}

/// Writes the denoiser as ONNX, its normalisation included.
fn export(_: &Experiment, options: &ExportOptions, console: &mut dyn Console) -> Result<()> {
    if !options.onnx {
        return Err(Error::refused("export", "a denoiser needs --onnx"));
    }
    options.write_onnx(|| Denoiser::open(&options.run)?.to_onnx(), console)
}

/// Denoises files of any size into a folder, tile by tile.
fn run(experiment: &Experiment, options: &RunOptions, console: &mut dyn Console) -> Result<()> {
    let options = &with_folders(options)?;
    let inputs = &options.inputs;
    check(options)?;
    let (folder, outputs) = outputs(options)?;
    options.check_outputs(&outputs)?;
    let denoiser = Denoiser::open(&options.run)?;
    let folders = folders_for(folder, &outputs)?;
    let plan = denoiser.plan(options.memory_mib.saturating_mul(1 << 20))?;
    let label = format!(
        "retrograd {}: denoised by {}",
        env!("CARGO_PKG_VERSION"),
        experiment.name
    );
    let seen = Seen::of(experiment, options)?;
    for (input, output) in inputs.iter().zip(&outputs) {
        // A spool for every file: what was unpacked goes when the file is done.
        let file = seen.open(input, console)?;
        for warning in &file.warnings {
            console.warn(&format!("{}: {warning}", input.display()));
        }
        let rows = file.height * file.sections;
        denoiser.denoise_file(&file, output, &label, &plan, |done| {
            // The last rows count when the file is whole.
            console.rows(input, done.min(rows - 1), rows);
        })?;
        console.rows(input, rows, rows);
        console.value("denoised", &output.display());
    }
    drop(folders);
    for ((input, output), reference) in inputs.iter().zip(&outputs).zip(&options.reference) {
        console.line(&format!(
            "{} against {}",
            input.display(),
            reference.display()
        ));
        for (name, path) in [("before", input), ("after", output)] {
            let binned = [seen.before(name), seen.bin];
            say_quality(name, &quality(path, reference, binned)?, console);
        }
    }
    if options.halves {
        for (inputs, outputs) in inputs.chunks_exact(2).zip(outputs.chunks_exact(2)) {
            console.line(&format!(
                "{} and {}",
                inputs[0].display(),
                inputs[1].display()
            ));
            for (name, pair) in [("before", inputs), ("after", outputs)] {
                let quality = quality(&pair[0], &pair[1], [seen.before(name); 2])?;
                let correlation = format!("{:.6}", quality.correlation);
                console.value(&format!("odd/even {name}"), &correlation);
                say_rings(name, &pair[0], &pair[1], seen.before(name), console)?;
            }
        }
    }
    Ok(())
}

/// With `--halves`, two folders stand for the files of equal names in them, by turns. Results of one
/// name go into folders of the halves' names.
fn with_folders(options: &RunOptions) -> Result<RunOptions> {
    let mut options = options.clone();
    let [a, b] = &options.inputs[..] else {
        return Ok(options);
    };
    if !options.halves || !a.is_dir() || !b.is_dir() {
        return Ok(options);
    }
    let files = super::draft::images_in(a)?;
    let pairs = files.into_iter().filter_map(|file| {
        let other = b.join(file.file_name()?);
        other.is_file().then_some([file, other])
    });
    let inputs: Vec<PathBuf> = pairs.flatten().collect();
    if inputs.is_empty() {
        let problem = format!(
            "{} and {} have no images of equal names",
            a.display(),
            b.display()
        );
        return Err(Error::refused("--halves", problem));
    }
    options.inputs = inputs;
    Ok(options)
}

/// What of a file the network is given: as in training.
struct Seen {
    /// Pixels that become one.
    bin: usize,
    /// Whether files are movies, whose frames are averaged.
    movies: bool,
    /// Whether results are floats, whatever the inputs are.
    float: bool,
}

impl Seen {
    fn of(experiment: &Experiment, options: &RunOptions) -> Result<Self> {
        let data = DenoiseDataSpec::parse(&experiment.data)?;
        Ok(Seen {
            bin: options.bin.unwrap_or(data.bin),
            movies: !data.frames.is_empty() && data.inputs.is_empty(),
            float: options.float,
        })
    }

    /// How an input is compared with what is as large as a result.
    fn before(&self, name: &str) -> usize {
        if name == "before" { self.bin } else { 1 }
    }

    fn open(&self, path: &Path, console: &mut dyn Console) -> Result<ImageFile> {
        let mut file = ImageFile::open(path, &Spool::new()?)?;
        match &mut file.format {
            Format::Tiff { bits } if self.float => *bits = 32,
            Format::Png { .. } if self.float => {
                let kind = format!("{} is a PNG, which has whole numbers", path.display());
                return Err(Error::refused("--float", kind));
            }
            _ => {}
        }
        if self.movies && file.sections > 1 {
            let frames = format!("{} frames to one image, as in training", file.sections);
            console.value("averaged", &format!("{}: {frames}", path.display()));
            file = file.averaged();
        } else if file.sections > 1 {
            let note = format!("{}: each an image of its own", file.sections);
            console.value("sections", &format!("{}: {note}", path.display()));
        }
        if self.bin != 1 {
            file = file.binned(self.bin)?;
            let note = format!(
                "{0} × {0} pixels to one, {1} × {2}",
                self.bin, file.width, file.height
            );
            console.value("binned", &format!("{}: {note}", path.display()));
        }
        Ok(file)
    }
}

fn check(options: &RunOptions) -> Result<()> {
    let (inputs, references) = (options.inputs.len(), options.reference.len());
    if inputs == 0 {
        return Err(Error::invalid(
            "run",
            "no input",
            "at least one image (MRC, PNG, TIFF, NPY)",
        ));
    }
    if references != 0 && references != inputs {
        return Err(Error::invalid(
            "--reference",
            format!("{references} files"),
            format!("{inputs}, one for every input"),
        ));
    }
    if options.halves && !inputs.is_multiple_of(2) {
        return Err(Error::invalid(
            "--halves",
            format!("{inputs} inputs"),
            "pairs: odd, even, odd, even …",
        ));
    }
    Ok(())
}

/// A folder for results. Where nothing was written into it, it goes again.
struct Folder(PathBuf);

impl Folder {
    fn create(path: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&path).map_err(Error::io(&path, "create the folder"))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Refused where something is in it, which is as it should be.
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The folders that results go into, the inner ones first.
fn folders_for(folder: Option<PathBuf>, outputs: &[PathBuf]) -> Result<Vec<Folder>> {
    let Some(folder) = folder else {
        return Ok(Vec::new());
    };
    let parents = outputs.iter().filter_map(|output| output.parent());
    let mut all: Vec<&Path> = parents.chain([folder.as_path()]).collect();
    all.sort_unstable();
    all.dedup();
    let inner_first = all.into_iter().rev().map(Path::to_path_buf);
    inner_first.map(Folder::create).collect()
}

/// Where every input's result goes, and the folder that is needed for it: `--out` is a file where
/// there is one input and the name has the input's ending.
fn outputs(options: &RunOptions) -> Result<(Option<PathBuf>, Vec<PathBuf>)> {
    let out = options.out.clone();
    let out = out.unwrap_or_else(|| options.run.join("denoised"));
    let ending = |path: &Path| path.extension().map(|e| e.to_ascii_lowercase());
    let image = ending(&out).is_some_and(|e| ENDINGS.iter().any(|&known| e == known));
    if out.is_dir() || !image {
        let outputs = output_names(&options.inputs, &out, options.halves)?;
        return Ok((Some(out), outputs));
    }
    let [input] = &options.inputs[..] else {
        return Err(Error::invalid(
            "--out",
            format!("{}, a file,", out.display()),
            format!("a folder for {} inputs", options.inputs.len()),
        ));
    };
    if ending(input) != ending(&out) {
        let kind = input.extension().unwrap_or_default();
        return Err(Error::invalid(
            "--out",
            out.display(),
            format!(
                "a name that ends in .{}: a result is of the kind of its input",
                kind.display()
            ),
        ));
    }
    Ok((None, vec![out]))
}

/// Endings by which a name is that of an image, not of a folder.
const ENDINGS: [&str; 9] = [
    "mrc", "mrcs", "map", "rec", "st", "png", "tif", "tiff", "npy",
];

/// Where every input's result goes in a folder: under its own name; halves of one name into folders
/// of their own folders' names.
fn output_names(inputs: &[PathBuf], folder: &Path, halves: bool) -> Result<Vec<PathBuf>> {
    let mut outputs: Vec<PathBuf> = Vec::new();
    let equal = |pair: &[PathBuf]| pair.len() == 2 && pair[0].file_name() == pair[1].file_name();
    if halves && inputs.chunks(2).any(equal) {
        for input in inputs {
            let own = input.parent().and_then(Path::file_name).unwrap_or_default();
            outputs.push(folder.join(own).join(input.file_name().unwrap_or_default()));
        }
        return Ok(outputs);
    }
    for input in inputs {
        let Some(name) = input.file_name() else {
            return Err(Error::refused(
                "run",
                format!("{} is no file", input.display()),
            ));
        };
        let output = folder.join(name);
        if outputs.contains(&output) {
            return Err(Error::refused(
                "run",
                format!(
                    "two inputs are named {}; denoise them into folders of their own",
                    name.display()
                ),
            ));
        }
        outputs.push(output);
    }
    Ok(outputs)
}

/// The first sections of two files compared.
fn quality(image: &Path, reference: &Path, [a, b]: [usize; 2]) -> Result<Quality> {
    let spool = Spool::new()?;
    let image = ImageFile::open(image, &spool)?.binned(a)?;
    let reference = ImageFile::open(reference, &spool)?.binned(b)?;
    compare((&image, 0), (&reference, 0), None)
}

/// Where the Fourier ring correlation of two files falls below 0.5 and 0.143.
fn say_rings(name: &str, a: &Path, b: &Path, bin: usize, console: &mut dyn Console) -> Result<()> {
    let spool = Spool::new()?;
    let a = ImageFile::open(a, &spool)?.binned(bin)?.read_section(0)?;
    let b = ImageFile::open(b, &spool)?.binned(bin)?.read_section(0)?;
    let rings = RingCorrelation::of(&a, &b)?;
    for threshold in [0.5, 0.143] {
        let at = match rings.crossing(threshold) {
            Some(pixels) => format!("{pixels:.2} pixels"),
            None => "nowhere below".to_string(),
        };
        console.value(&format!("FRC {threshold} {name}"), &at);
    }
    Ok(())
}

fn say_quality(name: &str, quality: &Quality, console: &mut dyn Console) {
    let mut value = |what: String, value: String| console.value(&what, &value);
    value(format!("PSNR {name}, dB"), format!("{:.3}", quality.psnr));
    if let Some(ssim) = quality.ssim {
        value(format!("SSIM {name}"), format!("{ssim:.6}"));
    }
    value(
        format!("correlation {name}"),
        format!("{:.6}", quality.correlation),
    );
    value(format!("RMSE {name}"), crate::train::number(quality.rmse));
    value(format!("R² {name}"), format!("{:.6}", quality.r2));
}
