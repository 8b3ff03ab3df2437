//! A denoiser as the training loop sees it.

use crate::math;
use std::ops::Range;
use std::path::Path;

use serde_json::json;

use super::data::{DenoiseDataSpec, Sample};
use super::findings::{Measured, ring_figure};
use super::infer::{Denoiser, TilePlan};
use super::{DenoiserSpec, network_spec};
use crate::budget::{self, Demand};
use crate::data::denoise::{DenoiseBatches, Method};
use crate::data::image::{Format, Image, Rect};
use crate::data::mrc::{Header, MrcMode};
use crate::data::patches::{PatchSpec, Plane, Scene, split_by_file};
use crate::loss_image::ImageLoss;
use crate::network::{LayerSpec, Network};
use crate::train::{
    Content, Example, Experiment, Figure, Findings, MeasuredOn, Metrics, Specimen, Task, TrainSpec,
};
use crate::{Error, Loss, Model, Pass, Result, Target};

/// Patches in a batch, where the experiment doesn't say.
const BATCH: usize = 8;
/// The most batches of validation after an epoch.
const VALIDATION_STEPS: u64 = 16;
/// The side of the patch that a trained network is verified on, and from how many parameters on a
/// smaller one does. Both are sides of images that can be halved three times.
const SPECIMEN: usize = 16;
const LARGE: usize = 500_000;
/// The side of the largest picture in the report.
const PICTURE: usize = 384;

/// Trains a denoiser.
pub struct DenoiseTask {
    network: Network,
    layers: Vec<LayerSpec>,
    /// Patches in a batch, and their side.
    sizes: [usize; 2],
    loss: Loss,
    terms: Option<ImageLoss>,
    train: DenoiseBatches,
    validation: Option<DenoiseBatches>,
    validation_terms: Option<ImageLoss>,
    method: Method,
    steps_per_epoch: u64,
    memory: u64,
    /// What the report shows: a scene that wasn't trained on where there is one.
    shown: Scene,
    shown_clean: Option<Image>,
    shown_is_validation: bool,
    notes: Vec<String>,
    tape: <Network as Model>::Tape<f32>,
    input: Vec<f32>,
    target: Target<f32>,
}

/// The demand of training on patches: batch and side could be smaller.
fn demand<'a>(
    layers: &'a [LayerSpec],
    network: &'a Network,
    [batch, side]: [usize; 2],
    train: &TrainSpec,
) -> Demand<'a> {
    let optimizer = train.optimizer;
    let sizes = [("train.batch", batch as u64), ("data.patch", side as u64)];
    Demand::of(sizes, move |[batch, patch]| {
        if patch == side as u64 {
            return network.training_bytes(batch, batch, &optimizer);
        }
        match Network::new(&network_spec(layers, patch as usize, patch as usize)) {
            Ok(network) => network.training_bytes(batch, batch, &optimizer),
            // What can't be built is no proposal.
            Err(_) => u128::MAX,
        }
    })
}

impl DenoiseTask {
    /// Builds the network and opens the data of an experiment.
    pub fn new(experiment: &Experiment) -> Result<Self> {
        let model = DenoiserSpec::parse(&experiment.model)?;
        let data = DenoiseDataSpec::parse(&experiment.data)?;
        let layers = model.layers()?;
        let network = Network::new(&network_spec(&layers, data.patch, data.patch))?;
        let batch = experiment.train.batch.unwrap_or(BATCH);
        budget::allow(&demand(
            &layers,
            &network,
            [batch, data.patch],
            &experiment.train,
        ))?;
        // What can't be applied to whole images is refused before it is trained.
        Denoiser::new(layers.clone(), network.init(0), network.buffers())?;
        let loss = Self::pixel_loss(experiment)?;
        let terms = Self::image_loss(&model, &data)?;
        let samples = data.open(experiment)?;
        let seed = experiment.train.seed;
        let (train, validation) = split_by_file(samples.len(), data.validation, seed)?;
        let mut notes = warnings(&samples);
        if validation.is_empty() && data.validation > 0.0 {
            notes.push("a single image can't be split: there is no validation".to_string());
        }
        let mut samples: Vec<Option<Sample>> = samples.into_iter().map(Some).collect();
        let mut take = |numbers: &[usize]| -> Vec<Sample> {
            let taken = numbers.iter().filter_map(|&n| samples[n].take());
            taken.collect()
        };
        let (mut train, mut validation) = (take(&train), take(&validation));
        let shown_is_validation = !validation.is_empty();
        let first = validation.first_mut().or(train.first_mut());
        let Some((shown, shown_clean)) = first.and_then(|s| {
            let scene = s.scenes.first()?.clone();
            Some((scene, s.clean.take()))
        }) else {
            return Err(Error::invalid("images", 0, "at least one"));
        };
        let scenes = |samples: Vec<Sample>| -> Vec<Scene> {
            samples.into_iter().flat_map(|s| s.scenes).collect()
        };
        let (train, validation) = (scenes(train), scenes(validation));
        let memory = data.memory_mib.saturating_mul(1 << 20);
        let spec = PatchSpec {
            size: data.patch,
            batch,
            augment: data.augment,
            budget: memory,
            seed,
        };
        let (train, validation, streaming) = Self::batches(&data, spec, train, validation)?;
        notes.push(streaming);
        let steps = train.patches().steps_per_epoch();
        Ok(DenoiseTask {
            network,
            layers,
            sizes: [batch, data.patch],
            loss,
            validation_terms: terms.clone(),
            terms,
            steps_per_epoch: data.steps_per_epoch.unwrap_or(steps),
            train,
            validation,
            method: data.method,
            memory,
            shown,
            shown_clean,
            shown_is_validation,
            notes,
            tape: Default::default(),
            input: Vec::new(),
            target: Target::default(),
        })
    }

    /// The batches of training and of validation within one budget of memory, and a note of where
    /// they come from.
    fn batches(
        data: &DenoiseDataSpec,
        spec: PatchSpec,
        train: Vec<Scene>,
        validation: Vec<Scene>,
    ) -> Result<(DenoiseBatches, Option<DenoiseBatches>, String)> {
        let memory = spec.budget;
        let batches = |scenes, spec, purpose| {
            DenoiseBatches::new(data.method, data.blind_spots, scenes, spec, purpose)
        };
        let bytes = |scenes: &[Scene]| scenes.iter().map(Scene::bytes).sum::<u64>();
        let (files, train_bytes) = (train.len(), bytes(&train));
        // What training doesn't take is validation's; half of it where neither fits.
        let validation = if validation.is_empty() {
            None
        } else {
            let left = memory.saturating_sub(train_bytes);
            let fits = bytes(&validation) < left / 2;
            let spec = PatchSpec {
                augment: false,
                budget: if fits { left / 2 } else { memory / 2 },
                ..spec
            };
            Some(batches(validation, spec, "validation patches")?)
        };
        let held = validation.as_ref().map_or(0, |v| v.patches().held_bytes());
        let spec = PatchSpec {
            budget: memory.saturating_sub(held),
            ..spec
        };
        let train = batches(train, spec, "patches")?;
        let where_from = if train.patches().streamed() {
            "streamed from disk"
        } else {
            "in memory"
        };
        let note = format!(
            "training on {files} images, {} MiB, {where_from} (memory_mib = {})",
            train_bytes.div_ceil(1 << 20),
            data.memory_mib
        );
        Ok((train, validation, note))
    }

    fn pixel_loss(experiment: &Experiment) -> Result<Loss> {
        let loss = experiment.train.loss.unwrap_or(Loss::Mse);
        if matches!(loss, Loss::Mse | Loss::L1 | Loss::Huber) {
            return Ok(loss);
        }
        Err(Error::invalid(
            "train.loss of a denoiser",
            loss.name(),
            "mse, l1 or huber",
        ))
    }

    fn image_loss(model: &DenoiserSpec, data: &DenoiseDataSpec) -> Result<Option<ImageLoss>> {
        match model.loss_terms {
            terms if terms.is_empty() => Ok(None),
            terms if data.method == Method::Noise2void => Err(Error::invalid(
                "model.loss_terms",
                format!("{terms:?}"),
                "none with noise2void, whose loss looks at single pixels only",
            )),
            terms => ImageLoss::new(terms, data.patch, data.patch).map(Some),
        }
    }

    /// Whether the training images are streamed from disk.
    pub fn streamed(&self) -> bool {
        self.train.patches().streamed()
    }

    /// The pixels of a plane, normalised.
    fn pixels(plane: &Plane) -> Result<Image> {
        let (width, height) = (plane.file().width, plane.file().height);
        let mut image = Image::new(width, height);
        let mut frame = Vec::new();
        plane.read(Rect::whole(width, height), &mut frame, &mut image.pixels)?;
        Ok(image)
    }

    /// Denoises a plane, back in its own units; the noisy one, too.
    fn denoised(denoiser: &Denoiser, plan: &TilePlan, plane: &Plane) -> Result<(Image, Image)> {
        let mut noisy = Self::pixels(plane)?;
        let mut clean = Image {
            pixels: Vec::with_capacity(noisy.pixels.len()),
            ..noisy
        };
        let read = |window, pixels: &mut [f32]| {
            noisy.window(window, pixels);
            Ok(())
        };
        // The plane is normalised already.
        let same = crate::data::normalise::Normalisation::IDENTITY;
        denoiser.run(noisy.width, noisy.height, same, plan, read, |rows| {
            clean.pixels.extend_from_slice(rows);
            Ok(())
        })?;
        plane.normalisation().undo(&mut noisy.pixels);
        plane.normalisation().undo(&mut clean.pixels);
        Ok((noisy, clean))
    }
}

/// What was odd about the files of images, each file once.
fn warnings(samples: &[Sample]) -> Vec<String> {
    let mut notes = Vec::new();
    for scene in samples.iter().flat_map(|s| &s.scenes) {
        for plane in [Some(&scene.input), scene.target.as_ref()]
            .into_iter()
            .flatten()
        {
            let file = plane.file();
            let warnings = file.warnings.iter();
            notes.extend(warnings.map(|w| format!("{}: {w}", file.path.display())));
        }
    }
    notes.dedup();
    notes
}

impl DenoiseTask {
    /// The shown image without noise, where it is known.
    fn clean(&self) -> Result<Option<Image>> {
        Ok(match (&self.shown_clean, self.method, &self.shown.target) {
            (Some(clean), _, _) => Some(clean.clone()),
            (None, Method::Supervised, Some(target)) => {
                let mut clean = Self::pixels(target)?;
                target.normalisation().undo(&mut clean.pixels);
                Some(clean)
            }
            _ => None,
        })
    }

    /// How an example is written: as the shown image's file, where that is MRC.
    fn example_format(&self, image: &Image) -> Format {
        let mut header = Header::new(image.width, image.height, 1, MrcMode::F32);
        if let Format::Mrc(own) = &self.shown.input.file().format {
            header = own.with_data(1, MrcMode::F32);
        }
        header.add_label("retrograd: example of a denoising run");
        Format::Mrc(Box::new(header))
    }
}

impl Task for DenoiseTask {
    type Model = Network;

    fn model(&self) -> &Network {
        &self.network
    }

    fn model_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    fn loss(&self) -> Loss {
        self.loss
    }

    fn image_loss(&self) -> Option<ImageLoss> {
        self.terms.clone()
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn steps_per_epoch(&self) -> u64 {
        self.steps_per_epoch
    }

    fn batch(&mut self, step: u64, example: &mut Option<Example<Network>>) -> Result<()> {
        self.part(step, 0..self.sizes[0], example)
    }

    fn samples(&self, _: u64) -> Option<usize> {
        Some(self.sizes[0])
    }

    fn shard_of(&self) -> (&'static str, usize) {
        ("patches", 1)
    }

    fn part(
        &mut self,
        step: u64,
        samples: Range<usize>,
        example: &mut Option<Example<Network>>,
    ) -> Result<()> {
        let example = example.get_or_insert_with(|| Example {
            input: Vec::new(),
            target: Target::default(),
        });
        self.train
            .part(step, samples, &mut example.input, &mut example.target)
    }

    fn only(&mut self, samples: Range<usize>) {
        self.train.patches().only(samples);
    }

    fn demand(&self, train: &TrainSpec) -> Demand<'_> {
        demand(&self.layers, &self.network, self.sizes, train)
    }

    fn evaluate(&mut self, params: &[f32], _epoch: u64) -> Result<Metrics> {
        let Some(validation) = &mut self.validation else {
            return Ok(Metrics::new());
        };
        let steps = validation.patches().steps_per_epoch().min(VALIDATION_STEPS);
        let mut total = 0.0;
        let (mut before, mut after) = (0.0, 0.0);
        for step in 0..steps {
            validation.batch(step, &mut self.input, &mut self.target)?;
            let pass = Pass::inference();
            self.network
                .compute_forward(params, &self.input, &pass, &mut self.tape);
            let output = self.network.output(&self.tape);
            total += f64::from(self.loss.compute(output, &self.target, None));
            if let Some(terms) = &mut self.validation_terms {
                total += terms.compute(output, &self.target.values, None);
            }
            for ((&x, &y), &t) in self.input.iter().zip(output).zip(&self.target.values) {
                before += math::powi(f64::from(x - t), 2);
                after += math::powi(f64::from(y - t), 2);
            }
        }
        let mut metrics = vec![("validation_loss".to_string(), total / steps as f64)];
        if self.method != Method::Noise2void {
            // How much closer to the target than the input was; a noisy target caps it.
            metrics.push(("gain_db".to_string(), 10.0 * math::log10(before / after)));
        }
        Ok(metrics)
    }

    fn measured_on(&self, figure: &str) -> Option<MeasuredOn> {
        let part = match figure.split('_').next()? {
            "train" => "training patches",
            "validation" | "gain" => "validation patches",
            "psnr" | "ssim" | "rmse" | "r2" | "odd" | "frc" | "resolution" => {
                match self.shown_is_validation {
                    true => return Some(MeasuredOn::part("validation", Some((1, "images")))),
                    false => return Some(MeasuredOn::part("training", Some((1, "images")))),
                }
            }
            _ => return None,
        };
        Some(MeasuredOn::part(part, None))
    }

    /// A corner of the first patch, with the network for images of that size.
    fn specimen(&mut self) -> Result<Specimen<Network>> {
        let mut example = None;
        self.batch(0, &mut example)?;
        let Example { input, target } = example.expect("a batch");
        let [_, patch, _] = self.network.output_shape() else {
            return Err(Error::invalid("a denoiser's input", "no image", "one"));
        };
        let patch = *patch;
        let small = if self.network.layout().len() > LARGE {
            SPECIMEN / 2
        } else {
            SPECIMEN
        };
        let side = small.min(patch);
        let corner = |values: &[f32]| -> Vec<f32> {
            let rows = values.chunks_exact(patch).take(side);
            rows.flat_map(|row| row[..side].iter().copied()).collect()
        };
        let mut weights = target.weights.as_deref().map(corner);
        // A blind spot that the corner happens to have none of.
        if let Some(weights) = &mut weights
            && weights.iter().all(|&w| w == 0.0)
        {
            weights[0] = 1.0;
        }
        let example = Example {
            input: corner(&input),
            target: Target {
                values: corner(&target.values),
                weights,
                ..Target::default()
            },
        };
        let model = Network::new(&network_spec(&self.layers, side, side))?;
        Ok(Specimen {
            example,
            model: Some(model),
        })
    }

    fn view(&mut self, params: &[f32]) -> Result<Vec<Figure>> {
        let buffers = self.network.buffers();
        let denoiser = Denoiser::new(self.layers.clone(), params.to_vec(), buffers)?;
        let plan = denoiser.plan(self.memory.max(64 << 20))?;
        let (noisy, denoised) = Self::denoised(&denoiser, &plan, &self.shown.input)?;
        let picture = |title: &str, image: &Image| -> Result<Figure> {
            Ok(Figure {
                title: title.into(),
                caption: String::new(),
                content: Content::Png(grey_png(&side_by_side(&[image]))?),
            })
        };
        Ok(vec![
            picture("noisy", &noisy)?,
            picture("denoised", &denoised)?,
        ])
    }

    fn finish(&mut self, params: &[f32], run: &Path) -> Result<Findings> {
        let buffers = self.network.buffers();
        let denoiser = Denoiser::new(self.layers.clone(), params.to_vec(), buffers)?;
        let plan = denoiser.plan(self.memory.max(64 << 20))?;
        let (noisy, denoised) = Self::denoised(&denoiser, &plan, &self.shown.input)?;
        let mut measured = Measured::default();
        let mut panels = vec![("noisy", noisy.clone()), ("denoised", denoised.clone())];
        if let Some(clean) = self.clean()? {
            measured.beside(&clean, &noisy, &denoised)?;
            panels.push(("clean", clean));
        }
        let mut halves = Vec::new();
        let mut curves = None;
        if let (Method::Noise2noise, Some(even)) = (self.method, &self.shown.target) {
            let (noisy_even, denoised_even) = Self::denoised(&denoiser, &plan, even)?;
            curves = Some(measured.between([&noisy, &noisy_even], [&denoised, &denoised_even])?);
            halves = vec![("odd", noisy.clone()), ("even", noisy_even)];
        }
        // The shown image in files, to try `run` on and to look at.
        for (name, image) in panels.iter().chain(&halves) {
            let path = run.join(format!("example-{name}.mrc"));
            image.write(path, &self.example_format(image))?;
        }
        let mut findings = Findings::default();
        for (name, value) in measured.figures {
            findings.summary.insert(name, json!(value));
        }
        let images: Vec<&Image> = panels.iter().map(|(_, image)| image).collect();
        let path = run.join("before-after.png");
        side_by_side(&images).write(&path, &Format::Png { bits: 8 })?;
        let png = crate::disk::read(&path)?;
        let whose = if self.shown_is_validation {
            "kept for validation"
        } else {
            "trained on"
        };
        let names: Vec<&str> = panels.iter().map(|(name, _)| *name).collect();
        findings.figures.push(Figure {
            title: "Before and after".to_string(),
            caption: format!(
                "From left to right: {}; of an image {whose}.",
                names.join(", ")
            ),
            content: Content::Png(png),
        });
        if let Some(rings) = &curves {
            findings.figures.push(ring_figure(rings));
        }
        if !measured.rows.is_empty() {
            findings.figures.push(Figure {
                title: "Quality".to_string(),
                caption: "Compared with the clean image, and between halves, where there are any. \
                          RMSE in the images' own units."
                    .to_string(),
                content: Content::Table {
                    header: ["", "PSNR, dB", "SSIM", "correlation", "RMSE", "R²"]
                        .map(String::from)
                        .to_vec(),
                    rows: measured.rows,
                },
            });
        }
        Ok(findings)
    }
}

/// A picture of grey levels from 0 to 255, as the bytes of a PNG file.
fn grey_png(picture: &Image) -> Result<Vec<u8>> {
    let samples: Vec<u8> = picture.pixels.iter().map(|&p| p.round() as u8).collect();
    let (size, colour) = ([picture.width, picture.height], png::ColorType::Grayscale);
    crate::data::image::encode_png(size, colour, png::BitDepth::Eight, &samples)
        .map_err(|e| Error::invalid("picture", e, "a PNG"))
}

/// The middles of images of equal size, in grey levels, one beside the other. The scale is that of
/// the last one, from its 1st to its 99th percentile.
fn side_by_side(images: &[&Image]) -> Image {
    let last = images.last().expect("at least one image");
    let window = Rect {
        x: (last.width - last.width.min(PICTURE)) / 2,
        y: (last.height - last.height.min(PICTURE)) / 2,
        width: last.width.min(PICTURE),
        height: last.height.min(PICTURE),
    };
    let mut cut = vec![0.0; window.pixels()];
    last.window(window, &mut cut);
    cut.sort_unstable_by(f32::total_cmp);
    let at = |share: f64| cut[((cut.len() - 1) as f64 * share) as usize];
    let (black, white) = (at(0.01), at(0.99));
    let scale = 255.0 / math::max(white - black, f32::MIN_POSITIVE);
    const GAP: usize = 4;
    let mut picture = Image::new(images.len() * (window.width + GAP) - GAP, window.height);
    picture.pixels.fill(255.0);
    let width = picture.width;
    for (i, image) in images.iter().enumerate() {
        image.window(window, &mut cut);
        for (y, row) in cut.chunks_exact(window.width).enumerate() {
            let start = y * width + i * (window.width + GAP);
            let out = &mut picture.pixels[start..start + window.width];
            for (o, &p) in out.iter_mut().zip(row) {
                *o = ((p - black) * scale).clamp(0.0, 255.0);
            }
        }
    }
    picture
}
