//! Forward and backward of any model, with tapes that are kept and reused.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use numpy::{PyArrayDyn, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::{PyClass, PyClassInitializer};
use retrograd::graph::{GraphBatch, GraphNetwork};
use retrograd::logic::{LogicBatch, LogicCa};
use retrograd::network::Network;
use retrograd::rng::Key;
use retrograd::{Buffer, Error, Grads, Layout, Model, Pass, Result, Scalar, parallel};

use crate::convert::{Number, array, checked, compute, copied, elements, shaped};

/// A model whose batches may borrow from arrays of Python's.
pub trait Called: Model + 'static {
    /// A batch.
    type Given<'a, T: Scalar>: Sync;

    fn run<T: Scalar>(
        &self,
        params: &[T],
        given: &Self::Given<'_, T>,
        pass: &Pass,
        tape: &mut Self::Tape<T>,
    ) -> Result<()>;

    fn differentiate<T: Scalar>(
        &self,
        params: &[T],
        given: &Self::Given<'_, T>,
        pass: &Pass,
        tape: &mut Self::Tape<T>,
        d_output: &[T],
        grads: Grads<'_, T>,
    ) -> Result<()>;

    /// The numbers of a batch.
    fn values<'a, T: Scalar>(given: &'a Self::Given<'_, T>) -> &'a [T];
}

impl Called for Network {
    type Given<'a, T: Scalar> = &'a [T];

    fn run<T: Scalar>(
        &self,
        params: &[T],
        given: &&[T],
        pass: &Pass,
        tape: &mut Self::Tape<T>,
    ) -> Result<()> {
        self.forward(params, given, pass, tape)
    }

    fn differentiate<T: Scalar>(
        &self,
        params: &[T],
        given: &&[T],
        pass: &Pass,
        tape: &mut Self::Tape<T>,
        d_output: &[T],
        grads: Grads<'_, T>,
    ) -> Result<()> {
        self.backward(params, given, pass, tape, d_output, grads)
    }

    fn values<'a, T: Scalar>(given: &'a &[T]) -> &'a [T] {
        given
    }
}

macro_rules! called_with_its_own_batch {
    ($model:ty, $batch:ident) => {
        impl Called for $model {
            type Given<'a, T: Scalar> = $batch<T>;

            fn run<T: Scalar>(
                &self,
                params: &[T],
                given: &$batch<T>,
                pass: &Pass,
                tape: &mut Self::Tape<T>,
            ) -> Result<()> {
                self.forward(params, given, pass, tape)
            }

            fn differentiate<T: Scalar>(
                &self,
                params: &[T],
                given: &$batch<T>,
                pass: &Pass,
                tape: &mut Self::Tape<T>,
                d_output: &[T],
                grads: Grads<'_, T>,
            ) -> Result<()> {
                self.backward(params, given, pass, tape, d_output, grads)
            }

            fn values<T: Scalar>(given: &$batch<T>) -> &[T] {
                retrograd::Batch::values(given)
            }
        }
    };
}
called_with_its_own_batch!(GraphNetwork, GraphBatch);
called_with_its_own_batch!(LogicCa, LogicBatch);

/// Tapes that nobody uses now. A lock is never waited for: after a fork nobody might be left to open
/// it, and a new tape costs little.
type Spare<C, T> = Mutex<Vec<<C as Model>::Tape<T>>>;

/// The spare tapes of both scalars.
pub struct Spares<C: Called> {
    f32: Spare<C, f32>,
    f64: Spare<C, f64>,
}

/// A number that has tapes.
pub trait Taped: Number {
    fn spare<C: Called>(spares: &Spares<C>) -> &Spare<C, Self>;
}

impl Taped for f32 {
    fn spare<C: Called>(spares: &Spares<C>) -> &Spare<C, f32> {
        &spares.f32
    }
}

impl Taped for f64 {
    fn spare<C: Called>(spares: &Spares<C>) -> &Spare<C, f64> {
        &spares.f64
    }
}

/// Spare tapes that are kept: more than are in use at once in a loop of training.
const KEPT: usize = 8;

/// A tape in use.
struct Lease<C: Called, T: Taped> {
    tape: Option<C::Tape<T>>,
    spares: Arc<Spares<C>>,
}

impl<C: Called, T: Taped> Lease<C, T> {
    fn new(spares: &Arc<Spares<C>>) -> Self {
        let spare = T::spare(spares).try_lock().ok().and_then(|mut s| s.pop());
        Lease {
            tape: Some(spare.unwrap_or_default()),
            spares: spares.clone(),
        }
    }

    fn tape(&mut self) -> &mut C::Tape<T> {
        self.tape.get_or_insert_default()
    }
}

impl<C: Called, T: Taped> Drop for Lease<C, T> {
    fn drop(&mut self) {
        // What a failure left half done is of no use to anyone.
        if std::thread::panicking() {
            return;
        }
        if let (Some(tape), Ok(mut spare)) = (self.tape.take(), T::spare(&self.spares).try_lock())
            && spare.len() < KEPT
        {
            spare.push(tape);
        }
    }
}

/// A forward that backward can follow.
struct Recorded<C: Called, T: Taped> {
    lease: Lease<C, T>,
    pass: Pass,
    values: usize,
}

/// What a forward leaves for backward.
#[pyclass(frozen, module = "retrograd._retrograd")]
pub struct Tape(Mutex<Box<dyn Any + Send>>);

/// Multiplications from which on a whole pass goes into the pool of threads: going there costs some
/// microseconds, and every parallel part from outside would cost as much.
const INTO_POOL: usize = 1 << 18;

fn placed<R: Send>(work: usize, run: impl FnOnce() -> R + Send) -> R {
    if work >= INTO_POOL {
        parallel::within(run)
    } else {
        run()
    }
}

/// How a forward is meant.
#[derive(Clone, Copy)]
pub struct Meant {
    /// Whether dropout drops and batch norm takes the batch's statistics.
    pub training: bool,
    /// Where dropout draws from.
    pub seed: u64,
    /// Whether a backward will follow.
    pub keep: bool,
}

impl Meant {
    fn pass(self) -> Pass {
        match self.training {
            true => Pass::training(Key::new(self.seed).purpose("step")),
            false => Pass::inference(),
        }
    }
}

/// A model with its spare tapes.
pub struct Engine<C: Called> {
    model: RwLock<C>,
    spares: Arc<Spares<C>>,
}

impl<C: Called> Engine<C> {
    pub fn new(model: C) -> Self {
        Engine {
            model: RwLock::new(model),
            spares: Arc::new(Spares {
                f32: Mutex::default(),
                f64: Mutex::default(),
            }),
        }
    }

    pub fn model(&self) -> RwLockReadGuard<'_, C> {
        self.model.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn buffers(&self) -> Vec<Buffer> {
        self.model().buffers()
    }

    pub fn set_buffer(&self, buffer: &Buffer) -> PyResult<()> {
        let mut model = self.model.write().unwrap_or_else(PoisonError::into_inner);
        checked(model.set_buffer(buffer))
    }

    fn check_params<T>(&self, params: &[T]) -> Result<()> {
        let needed = self.model().layout().len();
        match params.len() == needed {
            true => Ok(()),
            false => Err(Error::invalid("params", params.len(), needed)),
        }
    }

    /// The output, and the tape where it is to be kept.
    pub fn forward<T: Taped>(
        &self,
        py: Python<'_>,
        params: &[T],
        given: &C::Given<'_, T>,
        meant: Meant,
    ) -> PyResult<(Vec<T>, Option<Tape>)> {
        compute(py, || {
            self.check_params(params)?;
            let values = C::values(given);
            check_finite(values)?;
            let (pass, model) = (meant.pass(), self.model());
            let mut lease = Lease::<C, T>::new(&self.spares);
            let work = params.len().saturating_mul(values.len());
            placed(work, || model.run(params, given, &pass, lease.tape()))?;
            let output = model.output(lease.tape()).to_vec();
            let tape = meant.keep.then(|| {
                let values = values.len();
                let recorded = Recorded {
                    lease,
                    pass,
                    values,
                };
                Tape(Mutex::new(Box::new(recorded)))
            });
            Ok((output, tape))
        })
    }

    /// The gradients that are wanted of parameters and batch.
    pub fn backward<'py, T: Taped>(
        &self,
        py: Python<'py>,
        params: &[T],
        given: &C::Given<'_, T>,
        tape: &Tape,
        d_output: &[T],
        wanted: [bool; 2],
    ) -> PyResult<Gradients<'py>> {
        let [d_params, d_input] = compute(py, || {
            self.check_params(params)?;
            let values = C::values(given).len();
            let failed = |_| Error::refused("the tape", "a computation with it failed before");
            let mut held = tape.0.lock().map_err(failed)?;
            let recorded = held.downcast_mut::<Recorded<C, T>>();
            let Some(recorded) = recorded.filter(|r| Arc::ptr_eq(&r.lease.spares, &self.spares))
            else {
                let needed = "the one that this model's forward left, on numbers of this type";
                return Err(Error::invalid("tape", "another model's", needed));
            };
            if recorded.values != values {
                let needed = format!("the {} of the forward before it", recorded.values);
                let got = format!("{values} values");
                return Err(Error::invalid("the batch of a backward", got, needed));
            }
            let model = self.model();
            let outputs = model.output(recorded.lease.tape()).len();
            if d_output.len() != outputs {
                let got = format!("{} values", d_output.len());
                return Err(Error::invalid("the output's gradient", got, outputs));
            }
            let [of_params, of_input] = wanted;
            let mut d_params = of_params.then(|| vec![T::ZERO; params.len()]);
            let mut d_input = of_input.then(|| vec![T::ZERO; values]);
            let grads = Grads {
                params: d_params.as_deref_mut(),
                input: d_input.as_deref_mut(),
                accumulate: false,
            };
            let pass = recorded.pass;
            let tape = recorded.lease.tape();
            placed(params.len().saturating_mul(values), || {
                model.differentiate(params, given, &pass, tape, d_output, grads)
            })?;
            Ok([d_params, d_input])
        })?;
        let array = |values: Vec<T>| flat(py, values).map(Bound::into_any);
        Ok((
            d_params.map(array).transpose()?,
            d_input.map(array).transpose()?,
        ))
    }
}

/// Of the parameters and of the input, flat, where they were asked for.
pub type Gradients<'py> = (Option<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>);

fn flat<T: Number>(py: Python<'_>, values: Vec<T>) -> PyResult<Bound<'_, PyArrayDyn<T>>> {
    let len = values.len();
    shaped(py, values, &[len])
}

/// What every model can do, whatever its batches are.
trait Parameters: Send + Sync {
    fn layout(&self) -> Layout;
    fn buffers(&self) -> Vec<Buffer>;
    fn set_buffer(&self, buffer: &Buffer) -> PyResult<()>;
    fn init(&self, seed: u64) -> Vec<f32>;
    fn absorb(&self, tape: &Tape);
}

impl<C: Called> Parameters for Engine<C> {
    fn layout(&self) -> Layout {
        self.model().layout().clone()
    }

    fn buffers(&self) -> Vec<Buffer> {
        Engine::buffers(self)
    }

    fn set_buffer(&self, buffer: &Buffer) -> PyResult<()> {
        Engine::set_buffer(self, buffer)
    }

    fn init(&self, seed: u64) -> Vec<f32> {
        self.model().init(seed)
    }

    fn absorb(&self, tape: &Tape) {
        let mut held = tape.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(recorded) = held.downcast_mut::<Recorded<C, f32>>() {
            let mut model = self.model.write().unwrap_or_else(PoisonError::into_inner);
            model.absorb(recorded.lease.tape());
        }
    }
}

/// A model over one flat vector of parameters: what all of them have in common.
#[pyclass(name = "Model", frozen, subclass, module = "retrograd._retrograd")]
pub struct AnyModel(Arc<dyn Parameters>);

impl AnyModel {
    /// The class of an engine's model, on what all have in common.
    pub fn under<C: Called, M>(engine: &Arc<Engine<C>>, class: M) -> PyClassInitializer<M>
    where
        M: PyClass<BaseType = AnyModel>,
    {
        PyClassInitializer::from(AnyModel(engine.clone())).add_subclass(class)
    }
}

/// The name, shape, stored order and place of every tensor in the flat vector.
type Places = Vec<(String, Vec<usize>, Vec<usize>, usize)>;

#[pymethods]
impl AnyModel {
    fn places(&self) -> Places {
        let layout = self.0.layout();
        let tensors = layout.tensors().iter();
        tensors
            .map(|t| (t.name.clone(), t.shape.clone(), t.order.clone(), t.offset))
            .collect()
    }

    /// What is saved beside the parameters: name, and values in float64.
    fn buffers<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Vec<(String, Bound<'py, PyArrayDyn<f64>>)>> {
        let buffers = self.0.buffers().into_iter();
        buffers
            .map(|b| Ok((b.name, copied(py, &b.values, &b.shape)?)))
            .collect()
    }

    /// Takes back a buffer.
    fn set_buffer(&self, name: String, values: &Bound<'_, PyAny>) -> PyResult<()> {
        let values = array::<f64>(&name, values)?;
        self.0.set_buffer(&Buffer {
            name,
            shape: values.shape().to_vec(),
            values: elements(&values)?.to_vec(),
        })
    }

    /// Initial parameters of a seed.
    fn init<'py>(&self, py: Python<'py>, seed: u64) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        flat(py, self.0.init(seed))
    }

    /// Lets running statistics follow the batch of a forward in training.
    fn absorb(&self, tape: &Tape) {
        self.0.absorb(tape);
    }
}

fn check_finite<T: Scalar>(values: &[T]) -> Result<()> {
    match values.iter().position(|v| !v.is_finite()) {
        None => Ok(()),
        Some(i) => {
            let got = values[i].to_f64();
            let what = format!("element {i} of the input");
            Err(Error::invalid(what, got, "a finite number"))
        }
    }
}

/// An error where the arrays of a call don't have one type.
pub fn mixed() -> PyErr {
    PyValueError::new_err("params and x: got float32 and float64, needs one type for both")
}

/// What messages call the gradient that a backward begins with.
pub const GRADIENT: &str = "the output's gradient";

/// Computes something with arrays that are all float32 or all float64, under their names.
macro_rules! of_one_type {
    (($($name:ident: $what:expr),+) => $work:expr) => {
        match ($($crate::convert::floats($what, $name)?),+) {
            ($($crate::convert::Floats::F32($name)),+) => $work,
            ($($crate::convert::Floats::F64($name)),+) => $work,
            _ => Err($crate::engine::mixed()),
        }
    };
}
pub(crate) use of_one_type;
