//! Trained denoisers on arrays.

use std::path::PathBuf;

use numpy::{PyArrayDyn, PyUntypedArrayMethods};
use pyo3::prelude::*;
use retrograd::data::image::Image;
use retrograd::denoise::Denoiser as Inner;
use retrograd::parallel;

use crate::convert::{array, compute, elements, shaped, wrong_shape};

/// A trained denoiser.
#[pyclass(frozen, module = "retrograd._retrograd")]
pub struct Denoiser(Inner);

#[pymethods]
impl Denoiser {
    /// Of a run's folder.
    #[new]
    fn new(py: Python<'_>, run: PathBuf) -> PyResult<Self> {
        Ok(Denoiser(compute(py, || Inner::open(&run))?))
    }

    /// An image (rows, columns), tile by tile within so many MiB.
    fn apply<'py>(
        &self,
        py: Python<'py>,
        image: &Bound<'py, PyAny>,
        memory_mib: u64,
        threads: usize,
    ) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let pixels = array::<f32>("image", image)?;
        let &[height, width] = pixels.shape() else {
            return Err(wrong_shape("image", pixels.shape(), "[rows, columns]"));
        };
        if height == 0 || width == 0 {
            return Err(wrong_shape("image", pixels.shape(), "at least one pixel"));
        }
        let values = elements(&pixels)?;
        if let Some(i) = values.iter().position(|v| !v.is_finite()) {
            let what = format!("image, row {}, column {}", i / width, i % width);
            let error = retrograd::Error::invalid(what, values[i], "a finite number");
            return Err(crate::convert::exception(error));
        }
        let image = Image {
            width,
            height,
            pixels: values.to_vec(),
        };
        let denoised = compute(py, || {
            let run = || {
                let plan = self.0.plan(memory_mib.saturating_mul(1 << 20))?;
                self.0.denoise(&image, &plan)
            };
            match threads {
                0 => parallel::within(run),
                _ => parallel::with_threads(threads, run),
            }
        })?;
        shaped(py, denoised.pixels, &[height, width])
    }
}
