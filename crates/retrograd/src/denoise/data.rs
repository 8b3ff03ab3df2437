//! Where a denoiser's images come from: the `[data]` table.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::budget::{self, Demand, product};
use crate::data::denoise::{BlindSpots, Method, Sources};
use crate::data::image::{Image, ImageFile, Spool};
use crate::data::patches::Scene;
use crate::data::synthetic::{Micrograph, photograph, with_gaussian_noise};
use crate::rng::Key;
use crate::suggest::explain;
use crate::train::Experiment;
use crate::{Error, Result};

/// The `[data]` table of a denoiser.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DenoiseDataSpec {
    /// How it is trained.
    pub method: Method,
    /// Noisy images, or odd halves: files, folders, or patterns with one `*` in the last part.
    pub inputs: Vec<PathBuf>,
    /// Clean images, or even halves, in the order of the inputs.
    pub targets: Vec<PathBuf>,
    /// Stacks of frames, split odd/even.
    pub frames: Vec<PathBuf>,
    /// Generated images instead of files.
    pub generate: Option<GenerateImages>,
    /// So many by so many pixels become one.
    pub bin: usize,
    /// The side of a patch.
    pub patch: usize,
    /// Whether patches are flipped and turned.
    pub augment: bool,
    /// The share of the files that is kept for validation, at least one.
    pub validation: f64,
    /// Memory for images; beyond it they are streamed from disk.
    pub memory_mib: u64,
    /// Steps in an epoch; as many as it takes to draw as many pixels as there are, by default.
    pub steps_per_epoch: Option<u64>,
    /// Noise2void's blind spots.
    pub blind_spots: BlindSpots,
}

impl Default for DenoiseDataSpec {
    fn default() -> Self {
        DenoiseDataSpec {
            method: Method::default(),
            inputs: Vec::new(),
            targets: Vec::new(),
            frames: Vec::new(),
            generate: None,
            bin: 1,
            patch: 64,
            augment: true,
            validation: 0.2,
            memory_mib: 2048,
            steps_per_epoch: None,
            blind_spots: BlindSpots::default(),
        }
    }
}

/// Images made up by a formula: no download needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum GenerateImages {
    /// Scenes with the structure of photographs, 8 bits, with Gaussian noise added.
    Photograph {
        /// How many.
        count: u64,
        /// Columns.
        width: usize,
        /// Rows.
        height: usize,
        /// The noise's standard deviation in grey levels.
        sigma: f64,
    },
    /// Micrographs: particles in ice of varying thickness, counted electrons, two halves.
    Micrograph {
        /// How many.
        count: u64,
        /// Columns.
        width: usize,
        /// Rows.
        height: usize,
        /// Electrons per pixel, both halves together.
        dose: f64,
    },
}

/// The most pixels of a generated image; more is surely a mistake.
const MAX_PIXELS: usize = 1 << 28;

/// The files of one micrograph or photograph: they are on one side of the split together.
pub(super) struct Sample {
    pub scenes: Vec<Scene>,
    /// The true image of the first scene, where it is known.
    pub clean: Option<Image>,
}

impl DenoiseDataSpec {
    /// From an experiment's `[data]` table.
    pub fn parse(table: &toml::Table) -> Result<Self> {
        let spec: Self = table.clone().try_into().map_err(|e: toml::de::Error| {
            Error::invalid("[data]", explain(e.message()), "a denoiser's data")
        })?;
        if spec.patch == 0 {
            return Err(Error::invalid("data.patch", 0, "at least 1"));
        }
        if spec.bin == 0 {
            return Err(Error::invalid("data.bin", 0, "at least 1"));
        }
        if spec.steps_per_epoch == Some(0) {
            return Err(Error::invalid("data.steps_per_epoch", 0, "at least 1"));
        }
        Ok(spec)
    }

    /// Opens or generates all images.
    pub(super) fn open(&self, experiment: &Experiment) -> Result<Vec<Sample>> {
        let files = [&self.inputs, &self.targets, &self.frames];
        if let Some(generate) = &self.generate {
            if self.bin != 1 {
                return Err(Error::invalid(
                    "data.bin",
                    self.bin,
                    "1 for generated images",
                ));
            }
            if files.iter().any(|f| !f.is_empty()) {
                return Err(Error::invalid(
                    "[data]",
                    "generate and files",
                    "one of the two",
                ));
            }
            return generate.samples(self.method, experiment.train.seed);
        }
        let [inputs, targets, frames] = files;
        let inputs = list(experiment, "data.inputs", inputs)?;
        let targets = list(experiment, "data.targets", targets)?;
        let frames = list(experiment, "data.frames", frames)?;
        if self.method != Method::Noise2void && inputs.len() != targets.len() {
            return Err(Error::invalid(
                "data.targets",
                format!("{} files", targets.len()),
                format!("{}, one for every input", inputs.len()),
            ));
        }
        if self.method == Method::Noise2void && !targets.is_empty() {
            return Err(Error::invalid(
                "data.targets",
                format!("{} files", targets.len()),
                "none: noise2void learns from single images",
            ));
        }
        let pairs = inputs
            .into_iter()
            .enumerate()
            .map(|(i, input)| match targets.get(i) {
                Some(target) => Sources::Pair(input, target.clone()),
                None => Sources::Single(input),
            });
        let sources: Vec<Sources> = pairs
            .chain(frames.into_iter().map(Sources::Frames))
            .collect();
        if sources.is_empty() {
            return Err(Error::invalid(
                "[data]",
                "no images",
                "inputs, frames or generate",
            ));
        }
        let spool = Spool::new()?;
        sources
            .iter()
            .map(|sources| {
                Ok(Sample {
                    scenes: self.method.open(sources, self.bin, &spool)?,
                    clean: None,
                })
            })
            .collect()
    }
}

impl GenerateImages {
    fn samples(&self, method: Method, seed: u64) -> Result<Vec<Sample>> {
        let (GenerateImages::Photograph {
            count,
            width,
            height,
            ..
        }
        | GenerateImages::Micrograph {
            count,
            width,
            height,
            ..
        }) = *self;
        let pixels = width.saturating_mul(height);
        if count == 0 || pixels == 0 || pixels > MAX_PIXELS {
            return Err(Error::invalid(
                "data.generate",
                format!("{count} images of {width} × {height}"),
                format!("at least one, of 1 to {MAX_PIXELS} pixels"),
            ));
        }
        let amount = match *self {
            GenerateImages::Photograph { sigma, .. } => ("data.generate.sigma", sigma),
            GenerateImages::Micrograph { dose, .. } => ("data.generate.dose", dose),
        };
        if !(amount.1.is_finite() && amount.1 > 0.0) {
            return Err(Error::invalid(amount.0, amount.1, "a number > 0"));
        }
        let sizes = [
            ("data.generate.count", count),
            ("data.generate.height", height as u64),
            ("data.generate.width", width as u64),
        ];
        // The clean image and two noisy ones, two normalised ones that patches are cut from, and
        // numbers twice as wide while one is drawn.
        budget::allow(&Demand::of(sizes, |[count, height, width]| {
            let drawn = product([height, width, 64]);
            product([count, height, width, 20]).saturating_add(drawn)
        }))?;
        (0..count)
            .map(|number| self.sample(method, seed, number))
            .collect()
    }

    fn sample(&self, method: Method, seed: u64, number: u64) -> Result<Sample> {
        // What is generated doesn't change with the run's seed beyond this one number.
        let own = Key::new(seed)
            .purpose("generated image")
            .index(number)
            .stream()
            .u64();
        let (clean, first, second, both) = match *self {
            GenerateImages::Photograph {
                width,
                height,
                sigma,
                ..
            } => {
                let clean = photograph(width, height, own);
                let noisy = |n: u64| with_gaussian_noise(&clean, sigma, own.wrapping_add(n));
                let (first, second) = (noisy(1), noisy(2));
                (clean, first.clone(), second, first)
            }
            GenerateImages::Micrograph {
                width,
                height,
                dose,
                ..
            } => {
                let micrograph = Micrograph {
                    width,
                    height,
                    dose,
                    ..Micrograph::default()
                };
                let exposure = micrograph.generate(own, 0);
                let both = exposure.both()?;
                (exposure.clean, exposure.odd, exposure.even, both)
            }
        };
        let file = |what: &str, image: Image| {
            ImageFile::from_images(format!("generated {number}, {what}"), vec![image]).map(Arc::new)
        };
        let scenes = match method {
            Method::Supervised => {
                method.scenes(file("noisy", both)?, Some(file("clean", clean.clone())?))
            }
            Method::Noise2noise => method.scenes(file("odd", first)?, Some(file("even", second)?)),
            Method::Noise2void => method.scenes(file("noisy", both)?, None),
        }?;
        Ok(Sample {
            scenes,
            clean: Some(clean),
        })
    }
}

/// Endings that are taken from a folder.
const ENDINGS: [&str; 8] = [
    ".mrc", ".mrcs", ".mrc.gz", ".mrcs.gz", ".png", ".tif", ".tiff", ".npy",
];

/// The files that paths, folders and patterns name, each list in alphabetical order.
fn list(experiment: &Experiment, what: &str, paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        let path = experiment.resolve(path);
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let pattern = name.split_once('*');
        if !path.is_dir() && pattern.is_none() {
            files.push(path);
            continue;
        }
        let folder = match pattern {
            Some(_) => path.parent().unwrap_or(Path::new("")),
            None => &path,
        };
        let (start, end) = pattern.unwrap_or(("", ""));
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(Error::io(folder, "read the folder"))? {
            let entry = entry.map_err(Error::io(folder, "read the folder"))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let lower = name.to_lowercase();
            let wanted = match pattern {
                Some(_) => {
                    name.len() >= start.len() + end.len()
                        && name.starts_with(start)
                        && name.ends_with(end)
                }
                None => ENDINGS.iter().any(|e| lower.ends_with(e)),
            };
            if wanted && !name.starts_with('.') && entry.path().is_file() {
                found.push(entry.path());
            }
        }
        if found.is_empty() {
            return Err(Error::invalid(
                what,
                path.display(),
                "a folder or pattern with at least one image",
            ));
        }
        found.sort();
        files.extend(found);
    }
    Ok(files)
}
