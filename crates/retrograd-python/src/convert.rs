//! Arrays, errors and settings on their way between Python and the library.

use std::panic::{AssertUnwindSafe, catch_unwind};

use numpy::{Element, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArray};
use numpy::{PyUntypedArrayMethods, ToPyArray};
use pyo3::create_exception;
use pyo3::exceptions::{
    PyFileExistsError, PyFileNotFoundError, PyFloatingPointError, PyKeyboardInterrupt, PyOSError,
    PyPermissionError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use retrograd::{Error, Scalar};

create_exception!(
    _retrograd,
    InternalError,
    PyRuntimeError,
    "A mistake of retrograd itself: please report it with what led to it."
);

/// The exception that says a library's error.
pub fn exception(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Invalid { .. } | Error::File { .. } | Error::Refused { .. } => {
            PyValueError::new_err(text)
        }
        Error::Io { error, .. } => match error.kind() {
            std::io::ErrorKind::NotFound => PyFileNotFoundError::new_err(text),
            std::io::ErrorKind::AlreadyExists => PyFileExistsError::new_err(text),
            std::io::ErrorKind::PermissionDenied => PyPermissionError::new_err(text),
            _ => PyOSError::new_err(text),
        },
        Error::NotFinite { .. } => PyFloatingPointError::new_err(text),
        Error::Interrupted { .. } => PyKeyboardInterrupt::new_err(text),
        _ => PyRuntimeError::new_err(text),
    }
}

/// A panic as an exception; it would be a mistake of ours.
pub fn panicked(panic: &(dyn std::any::Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied());
    InternalError::new_err(text.unwrap_or("a panic without a word").to_string())
}

/// Computes without the interpreter's lock. Errors become exceptions, and so would a panic.
pub fn compute<R: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> retrograd::Result<R> + Send,
) -> PyResult<R> {
    let result = py.detach(|| catch_unwind(AssertUnwindSafe(work)));
    match result {
        Ok(result) => result.map_err(exception),
        Err(panic) => Err(panicked(&*panic)),
    }
}

/// What fails without computing.
pub fn checked<R>(result: retrograd::Result<R>) -> PyResult<R> {
    result.map_err(exception)
}

/// The numbers that models compute with in Python.
pub trait Number: Scalar + Element {}
impl Number for f32 {}
impl Number for f64 {}

/// An array of one of them, its elements in order, borrowed.
pub enum Floats<'py> {
    F32(PyReadonlyArrayDyn<'py, f32>),
    F64(PyReadonlyArrayDyn<'py, f64>),
}

/// An argument as floats; nothing is copied.
pub fn floats<'py>(what: &str, object: &Bound<'py, PyAny>) -> PyResult<Floats<'py>> {
    if let Ok(array) = object.extract::<PyReadonlyArrayDyn<'py, f32>>() {
        contiguous(what, &array)?;
        return Ok(Floats::F32(array));
    }
    if let Ok(array) = object.extract::<PyReadonlyArrayDyn<'py, f64>>() {
        contiguous(what, &array)?;
        return Ok(Floats::F64(array));
    }
    Err(wrong_type(
        what,
        object,
        "a NumPy array of float32 or float64",
    ))
}

/// An argument as an array of one type; nothing is copied.
pub fn array<'py, T: Element>(
    what: &str,
    object: &Bound<'py, PyAny>,
) -> PyResult<PyReadonlyArrayDyn<'py, T>> {
    let Ok(array) = object.extract::<PyReadonlyArrayDyn<'py, T>>() else {
        let needed = format!("a NumPy array of {}", T::get_dtype(object.py()));
        return Err(wrong_type(what, object, &needed));
    };
    contiguous(what, &array)?;
    Ok(array)
}

fn contiguous<T: Element>(what: &str, array: &PyReadonlyArrayDyn<'_, T>) -> PyResult<()> {
    if array.is_c_contiguous() {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "{what}: got an array whose elements are not in order, needs one in C order \
         (numpy.ascontiguousarray)"
    )))
}

fn wrong_type(what: &str, object: &Bound<'_, PyAny>, needed: &str) -> PyErr {
    let got = match object.cast::<PyUntypedArray>() {
        Ok(array) => format!("an array of {}", array.dtype()),
        Err(_) => match object.get_type().name() {
            Ok(name) => name.to_string(),
            Err(_) => "another object".into(),
        },
    };
    PyTypeError::new_err(format!("{what}: got {got}, needs {needed}"))
}

/// The elements of an array that was found to have them in order.
pub fn elements<'a, T: Element>(array: &'a PyReadonlyArrayDyn<'_, T>) -> PyResult<&'a [T]> {
    Ok(array.as_slice()?)
}

/// An error about a shape.
pub fn wrong_shape(what: &str, got: &[usize], needed: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{what}: got the shape {got:?}, needs {needed}"))
}

/// Numbers as an array of that shape.
pub fn shaped<'py, T: Element>(
    py: Python<'py>,
    values: Vec<T>,
    shape: &[usize],
) -> PyResult<Bound<'py, PyArrayDyn<T>>> {
    numpy::PyArray1::from_vec(py, values).reshape(shape)
}

/// Numbers copied into an array of that shape.
pub fn copied<'py, T: Element>(
    py: Python<'py>,
    values: &[T],
    shape: &[usize],
) -> PyResult<Bound<'py, PyArrayDyn<T>>> {
    values.to_pyarray(py).reshape(shape)
}

/// A description of a model from JSON.
pub fn described<S: for<'de> serde::Deserialize<'de>>(what: &str, json: &str) -> PyResult<S> {
    serde_json::from_str(json).map_err(|error| {
        let text = error.to_string();
        // Where it stands in text that the user never saw.
        let text = text.split(" at line ").next().unwrap_or_default();
        PyValueError::new_err(format!("{what}: {text}"))
    })
}
