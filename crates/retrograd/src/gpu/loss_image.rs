//! The image terms of the loss recorded for a device; the mathematics is in loss_image.rs.

use super::device::storage_usage;
use super::kernels::LOSS_IMAGE;
use super::layer::flag;
use super::network::GpuNetwork;
use super::plan::{GpuPlan, Shared};
use super::recorded::Recorded;
use super::recording::{Part, Recording};
use crate::loss_image::{ImageLoss, WINDOW, constants, window};
use crate::{Error, Result};

/// Places or pixels of a workgroup along an axis; as in loss_image.wgsl.
const TILE: usize = 8;

/// Workgroups over a width, and over a plane.
fn tiles(width: usize, height: usize) -> [usize; 2] {
    let across = width.div_ceil(TILE);
    [across, across * height.div_ceil(TILE)]
}

/// The bits of a weight that is shared by that many.
fn share(weight: f64, count: usize) -> usize {
    ((weight / count as f64) as f32).to_bits() as usize
}

impl<M: Recorded> GpuNetwork<M> {
    /// Adds the terms to the loss of the steps that follow, where outputs are images of that size.
    /// Losses of classes have none.
    pub fn set_image_loss(&mut self, image_loss: &ImageLoss) -> Result<()> {
        let (width, height) = image_loss.size();
        let output = self.output_width();
        if !output.is_multiple_of(width * height) {
            return Err(Error::invalid(
                "the output of the network",
                format!("{output} numbers a sample"),
                format!("planes of {width} × {height}, the size of the image terms"),
            ));
        }
        self.image_loss = Some(image_loss.clone());
        self.forget_recordings();
        Ok(())
    }
}

/// Records the terms after the loss of the pixels: their gradient is added to the output's, their
/// value to the loss.
pub(super) fn record(
    shared: &Shared<'_>,
    plan: &GpuPlan,
    recording: &mut Recording,
    image_loss: &ImageLoss,
) -> Result<()> {
    let terms = image_loss.terms();
    if terms.is_empty() {
        return Ok(());
    }
    let gpu = shared.gpu;
    let (width, height) = image_loss.size();
    let planes = plan.output_len(shared.layers) / (width * height);
    let [c1, c2] = constants(terms.ssim_range);
    let flags = [
        ("SIMILARITY", flag(terms.ssim > 0.0)),
        ("DIFFERENCES", flag(terms.gradient > 0.0)),
    ];
    // The places where the window fits.
    let [columns, rows] = match terms.ssim > 0.0 {
        true => [width, height].map(|size| size + 1 - WINDOW),
        false => [0; 2],
    };
    let places = planes * columns * rows;
    let sizes = [
        ("width", width),
        ("height", height),
        ("planes", planes),
        ("columns", columns),
        ("rows", rows),
        ("similarity", share(terms.ssim, places.max(1))),
    ];
    let [place_across, place_tiles] = tiles(columns, rows);
    let [across, of_plane] = tiles(width, height);
    let first = planes * place_tiles;
    let partials = first + planes * of_plane;
    let mut numbers = Vec::new();
    window::<f32>(&mut numbers);
    let bytes = bytemuck::cast_slice(&numbers);
    let window = Part::whole(&gpu.constant("window", bytes, storage_usage())?);
    let partial = Part::whole(&gpu.floats("partial sums of the image terms", partials)?);
    let maps = Part::whole(&gpu.floats("maps of the ssim term", 4 * places.max(1))?);
    if places > 0 {
        recording.dispatch(
            gpu,
            "image_maps",
            (&LOSS_IMAGE, "image_maps"),
            &[("C1", c1), ("C2", c2)],
            &[
                &sizes[..],
                &[("across", place_across), ("tiles", place_tiles)],
            ]
            .concat(),
            &[plan.output(), &plan.target, &window, &partial, &maps],
            planes * place_tiles,
        )?;
    }
    let differences = [
        (
            "beside",
            share(terms.gradient, planes * (width - 1) * height),
        ),
        (
            "below",
            share(terms.gradient, planes * width * (height - 1)),
        ),
        ("across", across),
        ("tiles", of_plane),
        ("first", first),
    ];
    recording.dispatch(
        gpu,
        "image_gradient",
        (&LOSS_IMAGE, "image_gradient"),
        &flags,
        &[&sizes[..], &differences].concat(),
        &[
            plan.output(),
            &plan.target,
            &window,
            &partial,
            &maps,
            plan.d_output(),
            &plan.step,
            shared.scales,
        ],
        planes * of_plane,
    )?;
    recording.dispatch(
        gpu,
        "image_total",
        (&LOSS_IMAGE, "image_total"),
        &[],
        &[("partials", partials)],
        &[&partial, &plan.losses],
        1,
    )
}
