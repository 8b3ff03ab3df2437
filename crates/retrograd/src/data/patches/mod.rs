//! Patches drawn at random from many large images.
//!
//! What a step gets is a function of the seed and the step alone: a place in one of the scenes,
//! uniform over all places where a patch fits, and one of the eight orientations that flips and
//! right-angle turns make. A resumed run continues where the first one stopped, and whether pixels
//! come from memory or from disk changes nothing.
//!
//! Images that fit the memory budget are held in memory, normalised. Otherwise batches are read
//! ahead from disk by one thread into a ring of buffers that fits the budget; when all are full
//! the thread waits. The budget covers pixels, buffers and what reading them needs; it doesn't
//! cover the system's own cache of files, which it takes back when memory is short.

mod stream;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::image::{Image, ImageFile, Rect};
use super::normalise::Normalisation;
use crate::rng::Key;
use crate::{Error, Result, parallel};

/// The mean of some sections of a file, normalised: one half of a movie, or a single image.
#[derive(Clone, Debug)]
pub struct Plane {
    file: Arc<ImageFile>,
    sections: Vec<usize>,
    normalisation: Normalisation,
    /// The normalised pixels, where they are held in memory.
    held: Option<Arc<Image>>,
}

impl Plane {
    /// The mean of these sections, normalised as given.
    pub fn new(
        file: Arc<ImageFile>,
        sections: Vec<usize>,
        normalisation: Normalisation,
    ) -> Result<Self> {
        let count = file.sections;
        if sections.is_empty() || sections.iter().any(|&s| s >= count) {
            return Err(Error::invalid(
                format!("sections of {}", file.path.display()),
                format!("{sections:?}"),
                format!("at least one, all below {count}"),
            ));
        }
        Ok(Plane {
            file,
            sections,
            normalisation,
            held: None,
        })
    }

    /// The mean of these sections, normalised by its own median and deviation.
    pub fn normalised(file: Arc<ImageFile>, sections: Vec<usize>) -> Result<Self> {
        let mut plane = Self::new(file, sections, Normalisation::IDENTITY)?;
        plane.normalisation = Normalisation::of_file(&plane.file, &plane.sections)?;
        Ok(plane)
    }

    /// The file.
    pub fn file(&self) -> &Arc<ImageFile> {
        &self.file
    }

    /// Centre and scale.
    pub fn normalisation(&self) -> Normalisation {
        self.normalisation
    }

    /// Reads a window, averaged and normalised. `frame` is memory for one window.
    pub fn read(&self, window: Rect, frame: &mut Vec<f32>, out: &mut [f32]) -> Result<()> {
        if let Some(image) = &self.held {
            image.window(window, out);
            return Ok(());
        }
        self.file.read_window(self.sections[0], window, out)?;
        if self.sections.len() > 1 {
            frame.resize(window.pixels(), 0.0);
            for &section in &self.sections[1..] {
                self.file.read_window(section, window, frame)?;
                for (o, &f) in out.iter_mut().zip(frame.iter()) {
                    *o += f;
                }
            }
            let share = 1.0 / self.sections.len() as f32;
            out.iter_mut().for_each(|o| *o *= share);
        }
        self.normalisation.apply(out);
        Ok(())
    }

    /// Reads the plane into memory, a few rows at a time.
    fn hold(&mut self) -> Result<()> {
        let (width, height) = (self.file.width, self.file.height);
        let mut image = Image::new(width, height);
        let mut frame = Vec::new();
        for (i, rows) in image.pixels.chunks_mut(HELD_ROWS * width).enumerate() {
            let window = Rect {
                x: 0,
                y: i * HELD_ROWS,
                width,
                height: rows.len() / width,
            };
            self.read(window, &mut frame, rows)?;
        }
        self.held = Some(Arc::new(image));
        Ok(())
    }

    fn bytes(&self) -> u64 {
        4 * self.file.width as u64 * self.file.height as u64
    }
}

/// Rows that are read at once into memory.
const HELD_ROWS: usize = 32;

/// What a patch is cut from: an input and, where there is one, a target of the same size.
#[derive(Clone, Debug)]
pub struct Scene {
    /// What the network sees.
    pub input: Plane,
    /// What it should show.
    pub target: Option<Plane>,
}

impl Scene {
    /// Bytes of its planes in memory.
    pub fn bytes(&self) -> u64 {
        self.input.bytes() + self.target.as_ref().map_or(0, Plane::bytes)
    }
}

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PatchSpec {
    /// The side of a patch.
    pub size: usize,
    /// Patches in a batch.
    pub batch: usize,
    /// Whether patches are flipped and turned.
    pub augment: bool,
    /// Bytes of memory for pixels and buffers.
    pub budget: u64,
    /// The run's seed.
    pub seed: u64,
}

impl PatchSpec {
    /// Bytes of one batch.
    fn batch_bytes(&self, targets: bool) -> u64 {
        let planes = if targets { 2 } else { 1 };
        4 * planes * self.batch as u64 * (self.size * self.size) as u64
    }
}

/// A batch of patches, each of `size` × `size`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PatchBatch {
    /// The inputs, one after another.
    pub inputs: Vec<f32>,
    /// The targets, likewise; empty where scenes have none.
    pub targets: Vec<f32>,
}

/// Where a patch is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Draw {
    scene: usize,
    x: usize,
    y: usize,
    /// One of the eight: bit 0 mirrors columns, bit 1 rows, bit 2 exchanges them.
    orientation: usize,
}

/// Memory for reading one patch.
#[derive(Clone, Debug, Default)]
struct Workspace {
    frame: Vec<f32>,
    window: Vec<f32>,
}

/// The scenes and the rule by which patches are drawn from them.
#[derive(Debug)]
struct Sampler {
    scenes: Vec<Scene>,
    /// For every scene, the number of places in it and in all before it.
    places_up_to: Vec<u64>,
    spec: PatchSpec,
    key: Key,
    targets: bool,
    /// The patches of a batch that are wanted; all where it isn't said.
    only: OnceLock<Range<usize>>,
}

impl Sampler {
    fn wants(&self, patch: usize) -> bool {
        self.only.get().is_none_or(|only| only.contains(&patch))
    }

    fn draw(&self, step: u64, index: usize) -> Draw {
        let mut stream = self.key.step(step).index(index as u64).stream();
        let places = *self.places_up_to.last().expect("at least one scene");
        let place = stream.below(places as usize) as u64;
        let scene = self.places_up_to.partition_point(|&up_to| up_to <= place);
        let before = scene.checked_sub(1).map_or(0, |s| self.places_up_to[s]);
        let columns = (self.scenes[scene].input.file.width + 1 - self.spec.size) as u64;
        let inside = place - before;
        let orientation = if self.spec.augment {
            stream.below(8)
        } else {
            0
        };
        Draw {
            scene,
            x: (inside % columns) as usize,
            y: (inside / columns) as usize,
            orientation,
        }
    }

    fn resize(&self, batch: &mut PatchBatch) {
        let pixels = self.spec.batch * self.spec.size * self.spec.size;
        batch.inputs.resize(pixels, 0.0);
        batch
            .targets
            .resize(if self.targets { pixels } else { 0 }, 0.0);
    }

    /// Cuts the patches of a step from planes in memory, side by side.
    fn cut(&self, step: u64, batch: &mut PatchBatch) {
        self.resize(batch);
        let size = self.spec.size;
        let pixels = size * size;
        let cut = |plane: &Plane, draw: Draw, out: &mut [f32]| {
            let image = plane.held.as_ref().expect("held in memory");
            let start = draw.y * image.width + draw.x;
            orient(
                &image.pixels[start..],
                image.width,
                size,
                draw.orientation,
                out,
            );
        };
        if self.targets {
            let PatchBatch { inputs, targets } = batch;
            parallel::for_each_chunk2(inputs, pixels, targets, pixels, true, |i, input, target| {
                if !self.wants(i) {
                    return;
                }
                let draw = self.draw(step, i);
                let scene = &self.scenes[draw.scene];
                cut(&scene.input, draw, input);
                cut(scene.target.as_ref().expect("all have one"), draw, target);
            });
        } else {
            parallel::for_each_chunk(&mut batch.inputs, pixels, true, |i, input| {
                if !self.wants(i) {
                    return;
                }
                let draw = self.draw(step, i);
                cut(&self.scenes[draw.scene].input, draw, input);
            });
        }
    }

    /// Reads the patches of a step from disk, one after another.
    fn read(&self, step: u64, batch: &mut PatchBatch, scratch: &mut Workspace) -> Result<()> {
        self.resize(batch);
        let pixels = self.spec.size * self.spec.size;
        let mut targets = batch.targets.chunks_exact_mut(pixels);
        for (i, input) in batch.inputs.chunks_exact_mut(pixels).enumerate() {
            let target = targets.next().unwrap_or_default();
            if self.wants(i) {
                self.read_one(self.draw(step, i), scratch, input, target)?;
            }
        }
        Ok(())
    }

    fn read_one(
        &self,
        draw: Draw,
        scratch: &mut Workspace,
        input: &mut [f32],
        target: &mut [f32],
    ) -> Result<()> {
        let size = self.spec.size;
        let window = Rect {
            x: draw.x,
            y: draw.y,
            width: size,
            height: size,
        };
        let scene = &self.scenes[draw.scene];
        scratch.window.resize(size * size, 0.0);
        scene
            .input
            .read(window, &mut scratch.frame, &mut scratch.window)?;
        orient(&scratch.window, size, size, draw.orientation, input);
        if let Some(plane) = &scene.target {
            plane.read(window, &mut scratch.frame, &mut scratch.window)?;
            orient(&scratch.window, size, size, draw.orientation, target);
        }
        Ok(())
    }
}

/// Copies a square patch, whose rows are `stride` apart, in one of its eight orientations.
fn orient(patch: &[f32], stride: usize, size: usize, orientation: usize, out: &mut [f32]) {
    let (mirror_columns, mirror_rows, exchange) = (
        orientation & 1 != 0,
        orientation & 2 != 0,
        orientation & 4 != 0,
    );
    for (i, row) in out.chunks_exact_mut(size).enumerate() {
        for (j, o) in row.iter_mut().enumerate() {
            let (mut y, mut x) = if exchange { (j, i) } else { (i, j) };
            if mirror_rows {
                y = size - 1 - y;
            }
            if mirror_columns {
                x = size - 1 - x;
            }
            *o = patch[y * stride + x];
        }
    }
}

#[derive(Debug)]
enum Way {
    /// The batch of a step.
    Held(Option<u64>, PatchBatch),
    Streamed(stream::ReadAhead),
}

/// Batches of patches by step, from memory or from disk.
#[derive(Debug)]
pub struct Patches {
    sampler: Arc<Sampler>,
    way: Way,
}

impl Patches {
    /// Checks the scenes and takes them into memory if the budget allows it. `purpose` names the
    /// stream of random numbers ("patches", "validation patches").
    pub fn new(mut scenes: Vec<Scene>, spec: PatchSpec, purpose: &str) -> Result<Self> {
        if spec.size == 0 || spec.batch == 0 {
            return Err(Error::invalid(
                "patches",
                format!("{} of side {}", spec.batch, spec.size),
                "at least one, of at least one pixel",
            ));
        }
        let targets = scenes.iter().any(|s| s.target.is_some());
        let mut places_up_to = Vec::with_capacity(scenes.len());
        let mut places = 0_u64;
        for scene in &scenes {
            let file = &scene.input.file;
            let (width, height) = (file.width, file.height);
            if width.min(height) < spec.size {
                return Err(Error::invalid(
                    format!("size of {}", file.path.display()),
                    format!("{width} × {height}"),
                    format!("at least {0} × {0}, a patch", spec.size),
                ));
            }
            match &scene.target {
                Some(target) if (target.file.width, target.file.height) != (width, height) => {
                    return Err(Error::invalid(
                        format!("size of {}", target.file.path.display()),
                        format!("{} × {}", target.file.width, target.file.height),
                        format!("{width} × {height}, as {}", file.path.display()),
                    ));
                }
                None if targets => {
                    return Err(Error::invalid(
                        format!("target of {}", file.path.display()),
                        "none",
                        "one, as other images have",
                    ));
                }
                _ => {}
            }
            let here = (width + 1 - spec.size) as u64 * (height + 1 - spec.size) as u64;
            places += here;
            places_up_to.push(places);
        }
        if scenes.is_empty() {
            return Err(Error::invalid("images", 0, "at least one"));
        }
        let batch_bytes = spec.batch_bytes(targets);
        let pixels: u64 = scenes.iter().map(Scene::bytes).sum();
        // The last planes are read a few rows at a time while the others are there.
        let widest = scenes.iter().map(|s| s.input.file.width as u64).max();
        let loading = 8 * HELD_ROWS as u64 * widest.unwrap_or(0) + stream::READING;
        let held_bytes = pixels + batch_bytes + loading;
        let held = held_bytes <= spec.budget;
        if held {
            for scene in &mut scenes {
                scene.input.hold()?;
                if let Some(target) = &mut scene.target {
                    target.hold()?;
                }
            }
        }
        let sampler = Arc::new(Sampler {
            scenes,
            places_up_to,
            spec,
            key: Key::new(spec.seed).purpose(purpose),
            targets,
            only: OnceLock::new(),
        });
        let way = if held {
            Way::Held(None, PatchBatch::default())
        } else {
            Way::Streamed(stream::ReadAhead::new(sampler.clone())?)
        };
        Ok(Patches { sampler, way })
    }

    /// Whether patches are read from disk as they are needed.
    pub fn streamed(&self) -> bool {
        matches!(self.way, Way::Streamed(_))
    }

    /// The scenes.
    pub fn scenes(&self) -> &[Scene] {
        &self.sampler.scenes
    }

    /// Steps after which as many pixels were drawn as there are, at least one.
    pub fn steps_per_epoch(&self) -> u64 {
        let spec = &self.sampler.spec;
        let drawn = (spec.batch * spec.size * spec.size) as u64;
        let pixels: u64 = self.scenes().iter().map(|s| s.input.bytes() / 4).sum();
        pixels.div_ceil(drawn).max(1)
    }

    /// Bytes that are held for pixels and buffers.
    pub fn held_bytes(&self) -> u64 {
        let spec = &self.sampler.spec;
        match &self.way {
            Way::Held(..) => {
                let pixels: u64 = self.scenes().iter().map(Scene::bytes).sum();
                pixels + spec.batch_bytes(self.sampler.targets)
            }
            Way::Streamed(ahead) => ahead.bytes(),
        }
    }

    /// Patches in a batch.
    pub fn batch_size(&self) -> usize {
        self.sampler.spec.batch
    }

    /// Of every batch only these patches are cut or read from now on; said once, before the first.
    pub fn only(&self, patches: Range<usize>) {
        let _ = self.sampler.only.set(patches);
    }

    /// The batch of a step, counted from 0 over the whole run.
    pub fn batch(&mut self, step: u64) -> Result<&PatchBatch> {
        match &mut self.way {
            Way::Held(cut, batch) => {
                if *cut != Some(step) {
                    self.sampler.cut(step, batch);
                    *cut = Some(step);
                }
                Ok(batch)
            }
            Way::Streamed(ahead) => ahead.batch(step),
        }
    }
}

/// Splits files into those to train on and those to validate on: whole files, never patches, for
/// neighbouring patches of one image know each other's noise and background. A fraction above 0
/// takes at least one file and leaves at least one; a single file can't be split.
pub fn split_by_file(files: usize, fraction: f64, seed: u64) -> Result<(Vec<usize>, Vec<usize>)> {
    if !(0.0..1.0).contains(&fraction) {
        return Err(Error::invalid(
            "the share of files for validation",
            fraction,
            "a number from 0 to less than 1",
        ));
    }
    let mut order: Vec<usize> = (0..files).collect();
    Key::new(seed)
        .purpose("split by file")
        .stream()
        .shuffle(&mut order);
    let validation = if fraction == 0.0 || files < 2 {
        0
    } else {
        ((files as f64 * fraction).round() as usize).clamp(1, files - 1)
    };
    let mut train = order.split_off(validation);
    train.sort_unstable();
    order.sort_unstable();
    Ok((train, order))
}
