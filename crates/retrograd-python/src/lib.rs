//! retrograd for Python: what the package of that name (`python/retrograd`) stands on.
//!
//! Everything here takes and gives NumPy arrays; what they mean to scikit-learn, PyTorch and
//! notebooks is written in Python. Arrays are borrowed, not copied. Nothing computes while it holds
//! the interpreter's lock. Errors are exceptions with the library's words, and a panic, which would
//! be a mistake of ours, is one too.

#![warn(clippy::disallowed_methods, clippy::disallowed_types)]

mod convert;
mod denoise;
mod engine;
mod graph;
mod logic;
mod network;
mod train;
mod verify;

use std::ffi::OsString;

use pyo3::prelude::*;

#[global_allocator]
static ALLOCATOR: retrograd_cli::Aligned = retrograd_cli::Aligned;

/// Runs the `retrograd` command with its arguments; its exit code.
#[pyfunction]
fn command(py: Python<'_>, args: Vec<OsString>) -> PyResult<u8> {
    convert::compute(py, || Ok(retrograd_cli::run(args)))
}

/// After a fork, in the child.
#[pyfunction]
fn forked() {
    retrograd::parallel::forked();
}

/// The number of threads that work is spread over where nobody says otherwise.
#[pyfunction]
fn threads() -> usize {
    retrograd::parallel::threads()
}

/// Panics, for the test that a panic arrives as an exception.
#[pyfunction]
fn panic_for_a_test(py: Python<'_>) -> PyResult<()> {
    convert::compute(py, || panic!("on purpose"))
}

#[pymodule]
mod _retrograd {
    #[pymodule_export]
    use super::convert::InternalError;
    #[pymodule_export]
    use super::denoise::Denoiser;
    #[pymodule_export]
    use super::engine::{AnyModel, Tape};
    #[pymodule_export]
    use super::graph::{Graph, GraphNetwork};
    #[pymodule_export]
    use super::logic::{Circuit, LogicCa};
    #[pymodule_export]
    use super::network::{Network, find_formula};
    #[pymodule_export]
    use super::train::{
        experiment_json, experiment_text, experiments, fit, predict, read_tensors, train,
    };
    #[pymodule_export]
    use super::verify::{verify_built_in, verify_bundles};
    #[pymodule_export]
    use super::{command, forked, panic_for_a_test, threads};
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
