//! Training a denoiser, with clean images and without.
//!
//! - **Supervised**: a noisy image and a clean one of the same scene. Both are normalised by the
//!   noisy one, so that undoing the normalisation on output gives the clean one's values.
//! - **Noise2noise** (Lehtinen et al. 2018): two noisy images of the same scene, odd and even
//!   halves of a movie. The target's noise is independent of the input's and averages out. Each
//!   half is normalised by itself, and which of the two is the input is drawn for every patch.
//! - **Noise2void** (Krull et al. 2019): single images. Some pixels of the input, the blind spots,
//!   are replaced by a neighbour; the loss compares with their true values, and only there. One
//!   blind spot is drawn in every cell of a grid, so they don't gather.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::image::{ImageFile, Spool};
use super::patches::{PatchSpec, Patches, Plane, Scene};
use crate::rng::Key;
use crate::{Error, Result, Target};

/// How a denoiser is trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Noisy inputs, clean targets.
    Supervised,
    /// Pairs of noisy images.
    #[default]
    Noise2noise,
    /// Single noisy images.
    Noise2void,
}

/// The files of one scene.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sources {
    /// A noisy image and its clean target, or the two halves of a scene. Section k of the one
    /// belongs to section k of the other.
    Pair(PathBuf, PathBuf),
    /// A stack of frames whose odd and even ones make the two halves.
    Frames(PathBuf),
    /// Single images, each section one.
    Single(PathBuf),
}

impl Method {
    /// Opens the files of a scene; several scenes where files hold several sections.
    /// `bin` × `bin` of their pixels become one.
    pub fn open(self, sources: &Sources, bin: usize, spool: &Arc<Spool>) -> Result<Vec<Scene>> {
        let open = |path: &Path| ImageFile::open(path, spool)?.binned(bin).map(Arc::new);
        match (self, sources) {
            (Method::Noise2void, Sources::Single(path)) => self.scenes(open(path)?, None),
            (Method::Noise2noise, Sources::Frames(path)) => {
                let file = open(path)?;
                frames(file).map(|scene| vec![scene])
            }
            (Method::Supervised | Method::Noise2noise, Sources::Pair(input, target)) => {
                self.scenes(open(input)?, Some(open(target)?))
            }
            (_, sources) => Err(Error::invalid(
                format!("images for {self:?}"),
                format!("{sources:?}"),
                match self {
                    Method::Supervised => "pairs of a noisy and a clean image",
                    Method::Noise2noise => "pairs of halves, or stacks of frames",
                    Method::Noise2void => "single images",
                },
            )),
        }
    }

    /// The scenes of open files, one for every section.
    pub fn scenes(
        self,
        input: Arc<ImageFile>,
        target: Option<Arc<ImageFile>>,
    ) -> Result<Vec<Scene>> {
        if let Some(target) = &target
            && target.sections != input.sections
        {
            return Err(Error::invalid(
                format!("sections of {}", target.path.display()),
                target.sections,
                format!("{}, as {}", input.sections, input.path.display()),
            ));
        }
        (0..input.sections)
            .map(|section| {
                let input = Plane::normalised(input.clone(), vec![section])?;
                let target = match (&target, self) {
                    (None, _) => None,
                    (Some(file), Method::Supervised) => Some(Plane::new(
                        file.clone(),
                        vec![section],
                        input.normalisation(),
                    )?),
                    (Some(file), _) => Some(Plane::normalised(file.clone(), vec![section])?),
                };
                Ok(Scene { input, target })
            })
            .collect()
    }
}

/// The two halves of a stack of frames: those numbered 1, 3, 5 … and 2, 4, 6 …, averaged.
pub fn frames(file: Arc<ImageFile>) -> Result<Scene> {
    if file.sections < 2 {
        return Err(Error::invalid(
            format!("frames of {}", file.path.display()),
            file.sections,
            "at least 2, to be split into odd and even ones",
        ));
    }
    let half = |first: usize| (first..file.sections).step_by(2).collect();
    Ok(Scene {
        input: Plane::normalised(file.clone(), half(0))?,
        target: Some(Plane::normalised(file.clone(), half(1))?),
    })
}

/// Where noise2void's blind spots are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BlindSpots {
    /// One blind spot in every cell of this side: 8 blinds 1.6 % of the pixels.
    pub cell: usize,
    /// How far away the replacing neighbour may be, in rows and in columns.
    pub radius: usize,
}

impl Default for BlindSpots {
    fn default() -> Self {
        BlindSpots { cell: 8, radius: 2 }
    }
}

impl BlindSpots {
    fn check(&self) -> Result<()> {
        if self.cell < 2 || self.radius < 1 {
            return Err(Error::invalid(
                "blind spots",
                format!("cells of {}, neighbours within {}", self.cell, self.radius),
                "cells of at least 2, neighbours within at least 1",
            ));
        }
        Ok(())
    }

    /// Blinds one square patch: `input` gets neighbours at the blind spots, where `weights` become
    /// 1. `truth` is the patch as it was.
    fn apply(&self, key: Key, size: usize, truth: &[f32], input: &mut [f32], weights: &mut [f32]) {
        let mut stream = key.stream();
        weights.fill(0.0);
        for cell_y in (0..size).step_by(self.cell) {
            for cell_x in (0..size).step_by(self.cell) {
                let y = cell_y + stream.below(self.cell.min(size - cell_y));
                let x = cell_x + stream.below(self.cell.min(size - cell_x));
                let span = |c: usize| {
                    let low = c.saturating_sub(self.radius);
                    (low, (c + self.radius).min(size - 1) + 1 - low)
                };
                let ((low_y, rows), (low_x, columns)) = (span(y), span(x));
                // One of the others: the blind spot's own place in the window is left out.
                let own = (y - low_y) * columns + x - low_x;
                let others = rows * columns - 1;
                if others == 0 {
                    continue;
                }
                let mut chosen = stream.below(others);
                if chosen >= own {
                    chosen += 1;
                }
                let from = (low_y + chosen / columns) * size + low_x + chosen % columns;
                input[y * size + x] = truth[from];
                weights[y * size + x] = 1.0;
            }
        }
    }
}

/// Training batches of a denoiser: a function of the seed and the step.
#[derive(Debug)]
pub struct DenoiseBatches {
    patches: Patches,
    method: Method,
    blind: BlindSpots,
    size: usize,
    key: Key,
}

impl DenoiseBatches {
    /// Batches of these scenes. `purpose` tells training from validation.
    pub fn new(
        method: Method,
        blind: BlindSpots,
        scenes: Vec<Scene>,
        spec: PatchSpec,
        purpose: &str,
    ) -> Result<Self> {
        blind.check()?;
        let needed = method != Method::Noise2void;
        if let Some(scene) = scenes.iter().find(|s| s.target.is_some() != needed) {
            return Err(Error::invalid(
                format!("target of {}", scene.input.file().path.display()),
                if needed { "none" } else { "one" },
                if needed { "one" } else { "none" },
            ));
        }
        Ok(DenoiseBatches {
            patches: Patches::new(scenes, spec, purpose)?,
            method,
            blind,
            size: spec.size,
            key: Key::new(spec.seed).purpose(&format!("{purpose}: noise")),
        })
    }

    /// Where the patches come from.
    pub fn patches(&self) -> &Patches {
        &self.patches
    }

    /// The batch of a step, into memory that is reused.
    pub fn batch(
        &mut self,
        step: u64,
        inputs: &mut Vec<f32>,
        target: &mut Target<f32>,
    ) -> Result<()> {
        let all = 0..self.patches.batch_size();
        self.part(step, all, inputs, target)
    }

    /// Some patches of it.
    pub fn part(
        &mut self,
        step: u64,
        patches: Range<usize>,
        inputs: &mut Vec<f32>,
        target: &mut Target<f32>,
    ) -> Result<()> {
        let batch = self.patches.batch(step)?;
        let pixels = self.size * self.size;
        let of = patches.start * pixels..patches.end * pixels;
        let from = &batch.inputs[of.clone()];
        inputs.clear();
        inputs.extend_from_slice(from);
        target.classes.clear();
        target.values.clear();
        match self.method {
            Method::Supervised => {
                target.values.extend_from_slice(&batch.targets[of]);
                target.weights = None;
            }
            Method::Noise2noise => {
                target.values.extend_from_slice(&batch.targets[of]);
                target.weights = None;
                let mut stream = self.key.step(step).stream();
                for _ in 0..patches.start {
                    stream.below(2);
                }
                for (input, target) in inputs
                    .chunks_exact_mut(pixels)
                    .zip(target.values.chunks_exact_mut(pixels))
                {
                    if stream.below(2) == 1 {
                        input.swap_with_slice(target);
                    }
                }
            }
            Method::Noise2void => {
                target.values.extend_from_slice(from);
                let weights = target.weights.get_or_insert_default();
                weights.resize(inputs.len(), 0.0);
                for (i, (input, weights)) in inputs
                    .chunks_exact_mut(pixels)
                    .zip(weights.chunks_exact_mut(pixels))
                    .enumerate()
                {
                    let truth = &from[i * pixels..(i + 1) * pixels];
                    let key = self.key.step(step).index((patches.start + i) as u64);
                    self.blind.apply(key, self.size, truth, input, weights);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::image::Image;
    use crate::data::normalise::Normalisation;

    const SPEC: PatchSpec = PatchSpec {
        size: 20,
        batch: 6,
        augment: true,
        budget: 1 << 30,
        seed: 9,
    };

    fn file(offset: f32, sections: usize) -> Arc<ImageFile> {
        let image = |k: usize| Image {
            width: 33,
            height: 27,
            pixels: (0..33 * 27)
                .map(|i| offset + k as f32 + ((i * 7919) % 1009) as f32)
                .collect(),
        };
        let images = (0..sections).map(image).collect();
        Arc::new(ImageFile::from_images("test", images).unwrap())
    }

    fn batch(batches: &mut DenoiseBatches, step: u64) -> (Vec<f32>, Target<f32>) {
        let (mut inputs, mut target) = (Vec::new(), Target::default());
        batches.batch(step, &mut inputs, &mut target).unwrap();
        (inputs, target)
    }

    fn batches(method: Method, scenes: Vec<Scene>) -> DenoiseBatches {
        DenoiseBatches::new(method, BlindSpots::default(), scenes, SPEC, "patches").unwrap()
    }

    #[test]
    fn blind_spots_hide_a_pixel_and_the_loss_looks_only_there() {
        let scenes = Method::Noise2void.scenes(file(0.0, 2), None).unwrap();
        assert_eq!(scenes.len(), 2);
        let mut noise2void = batches(Method::Noise2void, scenes);
        for step in 0..20 {
            let (inputs, target) = batch(&mut noise2void, step);
            let weights = target.weights.as_ref().unwrap();
            // 3 × 3 cells in each of 6 patches.
            let blind: Vec<usize> = (0..inputs.len()).filter(|&i| weights[i] == 1.0).collect();
            assert_eq!(blind.len(), 6 * 9);
            for i in 0..inputs.len() {
                let differs = inputs[i] != target.values[i];
                // Values near each other are distinct in this image, so blind means different.
                assert_eq!(differs, weights[i] == 1.0, "pixel {i}");
                if !differs {
                    assert_eq!(weights[i], 0.0);
                    continue;
                }
                // The replacement is a true neighbour within two rows and columns.
                let (patch, y, x) = (i / 400, i % 400 / 20, i % 20);
                let found = (y.saturating_sub(2)..=(y + 2).min(19)).any(|v| {
                    (x.saturating_sub(2)..=(x + 2).min(19))
                        .any(|u| target.values[patch * 400 + v * 20 + u] == inputs[i])
                });
                assert!(found);
            }
        }
        assert_eq!(batch(&mut noise2void, 3), batch(&mut noise2void, 3));
        assert_ne!(batch(&mut noise2void, 3), batch(&mut noise2void, 4));
    }

    #[test]
    fn the_output_at_a_blind_spot_cannot_depend_on_its_own_noise() {
        // Changing the true value of a blind pixel changes the target, not the input.
        let truth: Vec<f32> = (0..400).map(|i| i as f32).collect();
        let blinded = |truth: &[f32]| {
            let (mut input, mut weights) = (truth.to_vec(), vec![0.0; 400]);
            let key = Key::new(1);
            BlindSpots::default().apply(key, 20, truth, &mut input, &mut weights);
            (input, weights)
        };
        let (input, weights) = blinded(&truth);
        let spot = weights.iter().position(|&w| w == 1.0).unwrap();
        let mut other = truth.clone();
        other[spot] = -99.0;
        let (again, _) = blinded(&other);
        for i in 0..400 {
            // Another blind spot may have copied it; the spot itself is blind to it.
            assert!(again[i] == input[i] || (weights[i] == 1.0 && i != spot));
        }
    }

    #[test]
    fn halves_take_turns_as_input() {
        let scenes = Method::Noise2noise
            .scenes(file(0.0, 1), Some(file(500.0, 1)))
            .unwrap();
        // Tell the halves apart by their normalisation.
        let mut scene = scenes.into_iter().next().unwrap();
        let shift = Normalisation {
            centre: 0.0,
            scale: 1.0,
        };
        scene.input = Plane::new(scene.input.file().clone(), vec![0], shift).unwrap();
        let even = scene.target.unwrap().file().clone();
        scene.target = Some(Plane::new(even, vec![0], shift).unwrap());
        let mut noise2noise = batches(Method::Noise2noise, vec![scene]);
        let mut turns = [0, 0];
        for step in 0..50 {
            let (inputs, target) = batch(&mut noise2noise, step);
            assert!(target.weights.is_none());
            for (input, target) in inputs.chunks(400).zip(target.values.chunks(400)) {
                let difference = target[0] - input[0];
                assert_eq!(difference.abs(), 500.0);
                assert!(input.iter().zip(target).all(|(i, t)| t - i == difference));
                turns[usize::from(difference > 0.0)] += 1;
            }
        }
        // 300 fair coins: five deviations are 43.
        assert!((turns[0] - 150_i32).abs() < 43, "{turns:?}");
    }

    #[test]
    fn supervised_targets_are_in_the_units_of_their_inputs() {
        let scenes = Method::Supervised
            .scenes(file(0.0, 1), Some(file(500.0, 1)))
            .unwrap();
        let scale = scenes[0].input.normalisation().scale;
        let mut supervised = batches(Method::Supervised, scenes);
        let (inputs, target) = batch(&mut supervised, 0);
        for (i, t) in inputs.iter().zip(&target.values) {
            // Two roundings of numbers below 4.
            assert!((t - i - 500.0 / scale).abs() < 4.0 * f32::EPSILON);
        }
    }

    #[test]
    fn frames_are_split_into_odd_and_even_ones() {
        let scene = frames(file(0.0, 5)).unwrap();
        // Sections 0, 2, 4 have the mean offset 2, sections 1, 3 too: (1 + 3) / 2.
        let (odd, even) = (scene.input, scene.target.unwrap());
        assert_eq!(odd.normalisation(), even.normalisation());
        assert!(frames(file(0.0, 1)).is_err());
        assert!(
            Method::Noise2void
                .open(&Sources::Frames("x.mrc".into()), 1, &Spool::new().unwrap())
                .unwrap_err()
                .to_string()
                .contains("single images")
        );
        let mismatch = Method::Supervised.scenes(file(0.0, 2), Some(file(0.0, 3)));
        assert!(mismatch.unwrap_err().to_string().contains("sections"));
        let without = Method::Noise2void.scenes(file(0.0, 1), None).unwrap();
        let blind = BlindSpots::default();
        assert!(DenoiseBatches::new(Method::Supervised, blind, without, SPEC, "x").is_err());
    }
}
