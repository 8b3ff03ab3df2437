//! Applying a denoiser to images of any size.

use std::path::Path;

use super::reach::Reach;
use super::{DenoiseDataSpec, DenoiserSpec, network_spec};
use crate::data::image::{Format, Image, ImageFile, ImageWriter, Rect};
use crate::data::mrc::MrcMode;
use crate::data::normalise::Normalisation;
use crate::data::tiles::{self, Lane, Tiling};
use crate::network::{LayerSpec, Network};
use crate::train::{experiment_of, load_weights, model_file};
use crate::{Buffer, Error, Model, Pass, Result, parallel};

/// A trained denoiser.
#[derive(Clone, Debug)]
pub struct Denoiser {
    layers: Vec<LayerSpec>,
    params: Vec<f32>,
    buffers: Vec<Buffer>,
    reach: Reach,
    /// Bytes of all layers' outputs per pixel of the image.
    bytes_per_pixel: u64,
}

/// How an image is cut and how many tiles are computed side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TilePlan {
    /// The tiles.
    pub tiling: Tiling,
    /// Tiles at a time.
    pub lanes: usize,
}

/// The least and the most side of a tile. Below, the halo costs more than the tile; above, a tile
/// leaves every cache anyway.
const LEAST_TILE: usize = 64;
const MAX_TILE: usize = 512;

/// A lane's network for the current size of crop, its tape and its input.
#[derive(Default)]
struct Work {
    network: Option<Network>,
    tape: <Network as Model>::Tape<f32>,
    input: Vec<f32>,
}

impl Denoiser {
    /// From layers and trained parameters.
    pub fn new(layers: Vec<LayerSpec>, params: Vec<f32>, buffers: Vec<Buffer>) -> Result<Self> {
        let reach = Reach::of(&layers)?;
        let side = (2 * reach.align).max(16).next_multiple_of(reach.align);
        let network = Network::new(&network_spec(&layers, side, side))?;
        if network.output_shape() != [1, side, side] {
            return Err(Error::invalid(
                "the output of a denoiser",
                format!(
                    "{:?} for an image of [1, {side}, {side}]",
                    network.output_shape()
                ),
                "the shape of the image",
            ));
        }
        if params.len() != network.layout().len() {
            return Err(Error::invalid(
                "parameters of the denoiser",
                params.len(),
                network.layout().len(),
            ));
        }
        let values: usize = network
            .places
            .iter()
            .map(|p| p.shape.iter().product::<usize>())
            .sum();
        let bytes_per_pixel = (4 * values).div_ceil(side * side) as u64;
        Ok(Denoiser {
            layers,
            params,
            buffers,
            reach,
            bytes_per_pixel,
        })
    }

    /// The denoiser that a run has trained, with its best parameters.
    pub fn open(run: &Path) -> Result<Self> {
        let experiment = experiment_of(run)?;
        let layers = DenoiserSpec::parse(&experiment.model)?.layers()?;
        let patch = DenoiseDataSpec::parse(&experiment.data)?.patch;
        let mut network = Network::new(&network_spec(&layers, patch, patch))?;
        let (params, _) = load_weights(&model_file(run), &mut network)?;
        Self::new(layers, params, network.buffers())
    }

    /// The denoiser as an ONNX file: `image` in, `denoised` out, of any size whose sides are
    /// multiples of the [reach](Self::reach)'s `align`, in the image's own units.
    pub fn to_onnx(&self) -> Result<Vec<u8>> {
        let side = (2 * self.reach.align)
            .max(16)
            .next_multiple_of(self.reach.align);
        let mut network = Network::new(&network_spec(&self.layers, side, side))?;
        for buffer in &self.buffers {
            network.set_buffer(buffer)?;
        }
        crate::onnx::denoiser(&network, &self.params, self.reach.align)
    }

    /// What tiles need.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Tiles that keep the work within `memory` bytes. An image's own strip of rows comes on top:
    /// its width times the tile's side, 4 bytes each.
    pub fn plan(&self, memory: u64) -> Result<TilePlan> {
        // Every layer's output, crop and result, and as much again for what kernels keep.
        let per_pixel = 2 * (self.bytes_per_pixel + 12);
        let mut lanes = parallel::threads().max(1) as u64;
        loop {
            let side = ((memory / lanes / per_pixel) as f64).sqrt() as usize;
            let halo = self.reach.halo.next_multiple_of(self.reach.align);
            let tile = side.saturating_sub(2 * halo).min(MAX_TILE);
            let tile = tile - tile % self.reach.align;
            if tile >= LEAST_TILE.max(self.reach.align) {
                return Ok(TilePlan {
                    tiling: Tiling::new(tile, self.reach.halo, self.reach.align)?,
                    lanes: lanes as usize,
                });
            }
            if lanes == 1 {
                let side = (LEAST_TILE.max(self.reach.align) + 2 * halo) as u64;
                return Err(Error::invalid(
                    "memory for tiles",
                    format!("{memory} bytes"),
                    format!(
                        "at least {} for the smallest tile of this network",
                        (side + 1) * (side + 1) * per_pixel
                    ),
                ));
            }
            lanes -= 1;
        }
    }

    /// Denoises an image of any size: reads windows, writes rows from the top.
    pub fn run(
        &self,
        width: usize,
        height: usize,
        normalisation: Normalisation,
        plan: &TilePlan,
        read: impl Fn(Rect, &mut [f32]) -> Result<()> + Send + Sync,
        mut write: impl FnMut(&[f32]) -> Result<()>,
    ) -> Result<()> {
        let mut lanes: Vec<Lane<Work>> = tiles::lanes(plan.lanes);
        let infer = |work: &mut Work, crop: Rect, input: &[f32], output: &mut [f32]| {
            self.infer(work, crop, normalisation, input, output)
        };
        tiles::run(
            width,
            height,
            &plan.tiling,
            &mut lanes,
            read,
            infer,
            |rows| write(rows),
        )
    }

    fn infer(
        &self,
        work: &mut Work,
        crop: Rect,
        normalisation: Normalisation,
        input: &[f32],
        output: &mut [f32],
    ) -> Result<()> {
        let shape = [1, crop.height, crop.width];
        let fits = |n: &Network| n.spec().input == shape;
        if !work.network.as_ref().is_some_and(fits) {
            let spec = network_spec(&self.layers, crop.height, crop.width);
            let mut network = Network::new(&spec)?;
            for buffer in &self.buffers {
                network.set_buffer(buffer)?;
            }
            if network.output_shape() != shape || network.layout().len() != self.params.len() {
                return Err(Error::invalid(
                    "the output of a denoiser",
                    format!("{:?} for {shape:?}", network.output_shape()),
                    "the shape of the image",
                ));
            }
            work.network = Some(network);
        }
        let network = work.network.as_ref().expect("set above");
        work.input.clear();
        work.input.extend_from_slice(input);
        normalisation.apply(&mut work.input);
        network.compute_forward(
            &self.params,
            &work.input,
            &Pass::inference(),
            &mut work.tape,
        );
        output.copy_from_slice(network.output(&work.tape));
        normalisation.undo(output);
        Ok(())
    }

    /// Denoises an image in memory.
    pub fn denoise(&self, image: &Image, plan: &TilePlan) -> Result<Image> {
        let normalisation = Normalisation::of(&mut image.pixels.clone());
        let mut out = Image {
            pixels: Vec::with_capacity(image.pixels.len()),
            ..*image
        };
        let read = |window, pixels: &mut [f32]| {
            image.window(window, pixels);
            Ok(())
        };
        self.run(
            image.width,
            image.height,
            normalisation,
            plan,
            read,
            |rows| {
                out.pixels.extend_from_slice(rows);
                Ok(())
            },
        )?;
        Ok(out)
    }

    /// Denoises every section of a file into a file of the same kind. An MRC file keeps its header
    /// and gains a label; its pixels become 32-bit floats. A TIFF keeps its resolution and
    /// texts. `progress` is told the rows done.
    pub fn denoise_file(
        &self,
        file: &ImageFile,
        out: &Path,
        label: &str,
        plan: &TilePlan,
        mut progress: impl FnMut(usize),
    ) -> Result<()> {
        let format = match &file.format {
            Format::Mrc(header) => {
                let mut header = header.with_data(file.sections, MrcMode::F32);
                header.add_label(label);
                Format::Mrc(Box::new(header))
            }
            other => other.clone(),
        };
        let (width, height) = (file.width, file.height);
        let writer = ImageWriter::create(out, width, height, file.sections, &format)?;
        let mut writer = writer.with_tags(&file.tags);
        let mut done = 0;
        for section in 0..file.sections {
            let normalisation = Normalisation::of_file(file, &[section])?;
            let read = |window, pixels: &mut [f32]| file.read_window(section, window, pixels);
            self.run(width, height, normalisation, plan, read, |rows| {
                writer.write_rows(rows)?;
                done += rows.len() / width;
                progress(done);
                Ok(())
            })?;
        }
        writer.finish()
    }
}
