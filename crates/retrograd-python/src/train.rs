//! Training from Python: whole experiments in folders, and networks on arrays in memory.
//!
//! The training runs on threads of its own, without the interpreter's lock. The thread of Python's
//! that asked for it looks after it: it calls back what happened, in order, and sees Ctrl-C, which
//! the interpreter tells its main thread alone.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use numpy::{PyArrayDyn, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use retrograd::data::{Dataset, Targets};
use retrograd::kan::GridSchedule;
use retrograd::train::{
    Event, Experiment, Mode, NetworkTask, Observer, Placement, Precision, Session, Task, TrainSpec,
};
use retrograd::{Family, Model, parallel};
use serde_json::{Value, json};

use crate::convert::{array, checked, copied, described, elements, exception, panicked, shaped};
use crate::network::Network;

/// How often Ctrl-C is looked for, and steps are told at most.
const LOOK: Duration = Duration::from_millis(50);
const STEPS: Duration = Duration::from_millis(100);

/// What happened, and whether the training waits until it was told.
struct Message {
    kind: &'static str,
    more: Value,
    told: Option<Sender<()>>,
}

/// Watches on the training's side.
struct Teller {
    sender: Sender<Message>,
    stepped: Option<Instant>,
    /// Whether epochs are told that are not evaluated.
    every_epoch: bool,
}

impl Teller {
    fn tell(&self, kind: &'static str, more: Value, wait: bool) {
        let (told, answer) = mpsc::channel();
        let message = Message {
            kind,
            more,
            told: wait.then_some(told),
        };
        // Where nobody listens any more the training has been stopped.
        if self.sender.send(message).is_ok() && wait {
            let _ = answer.recv();
        }
    }
}

impl Observer for Teller {
    fn event(&mut self, event: Event<'_>) {
        if matches!(event, Event::Step { .. }) {
            if self.stepped.is_some_and(|at| at.elapsed() < STEPS) {
                return;
            }
            self.stepped = Some(Instant::now());
        }
        if matches!(event, Event::EpochEnded { .. }) && !self.every_epoch {
            return;
        }
        let Some((kind, mut more)) = event.to_json() else {
            return;
        };
        // The figures of an epoch beside its others, as the columns of `metrics` are.
        if let Some(Value::Object(figures)) = more.get_mut("metrics").map(Value::take)
            && let Value::Object(more) = &mut more
        {
            more.remove("metrics");
            more.extend(figures);
        }
        // Who is called back may want to stop, or look at the state as it was then.
        self.tell(kind, more, matches!(kind, "epoch" | "epoch_ended"));
    }
}

/// Trains beside this thread, which tells what happens. Ctrl-C, and what a callback raises, stop the
/// training, which saves.
fn attended<R: Send>(
    py: Python<'_>,
    threads: usize,
    every_epoch: bool,
    on_event: Option<&Py<PyAny>>,
    train: impl FnOnce(&mut Teller, &AtomicBool) -> retrograd::Result<R> + Send,
) -> PyResult<R> {
    let stop = AtomicBool::new(false);
    let (sender, receiver) = mpsc::channel();
    let stopped = &stop;
    let (result, raised) = py.detach(move || {
        std::thread::scope(|scope| {
            let worker = scope.spawn(move || {
                let mut teller = Teller {
                    sender,
                    stepped: None,
                    every_epoch,
                };
                parallel::with_threads(threads, || train(&mut teller, stopped))
            });
            let raised = look_after(&receiver, stopped, on_event);
            (worker.join(), raised)
        })
    });
    match (result, raised) {
        (Err(panic), _) => Err(panicked(&*panic)),
        (Ok(Err(error)), None) => Err(exception(error)),
        (Ok(Ok(value)), None) => Ok(value),
        (Ok(_), Some(raised)) => Err(raised),
    }
}

/// Until the training has ended; what was raised meanwhile.
fn look_after(
    receiver: &Receiver<Message>,
    stop: &AtomicBool,
    on_event: Option<&Py<PyAny>>,
) -> Option<PyErr> {
    let mut raised = None;
    loop {
        let message = match receiver.recv_timeout(LOOK) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return raised,
        };
        let heard = Python::attach(|py| {
            py.check_signals()?;
            if let (Some(message), Some(call), None) = (&message, on_event, &raised) {
                call.call1(py, (message.kind, message.more.to_string()))?;
            }
            Ok(())
        });
        if let Err(error) = heard {
            stop.store(true, Ordering::SeqCst);
            raised.get_or_insert(error);
        }
        if let Some(told) = message.and_then(|m| m.told) {
            let _ = told.send(());
        }
    }
}

/// `cpu`, `gpu`, or `gpu:` and a number or a part of a name.
fn placement(device: &str) -> PyResult<Placement> {
    let adapter = match device.split_once(':') {
        None if device == "cpu" => return Ok(Placement::Cpu),
        None if device == "gpu" => "auto",
        Some(("gpu", adapter)) => adapter,
        _ => {
            return Err(PyValueError::new_err(format!(
                "device: got {device:?}, needs \"cpu\", \"gpu\", \"gpu:N\" or \"gpu:NAME\""
            )));
        }
    };
    Ok(Placement::Gpu {
        adapter: adapter.into(),
        mode: Mode::Native,
        precision: Precision::F32,
        compress: false,
    })
}

/// The text of an experiment: of a ready one, or a description in JSON as TOML.
#[pyfunction]
pub fn experiment_text(name: Option<&str>, json: Option<&str>) -> PyResult<String> {
    if let Some(name) = name {
        return Ok(checked(retrograd_cli::experiments::ready(name))?.to_toml());
    }
    let table: toml::Table = described("the experiment", json.unwrap_or("{}"))?;
    Ok(table.to_string())
}

/// The names of the ready experiments.
#[pyfunction]
pub fn experiments() -> Vec<&'static str> {
    retrograd_cli::experiments::names().collect()
}

/// An experiment as JSON, everything that is its own checked.
#[pyfunction]
pub fn experiment_json(text: &str, path: PathBuf) -> PyResult<String> {
    let experiment = checked(Experiment::parse(text, path))?;
    let json = serde_json::to_string(&experiment);
    json.map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Trains an experiment in a folder; its summary as JSON.
#[pyfunction]
#[pyo3(signature = (text, path, base, folder, resume, device, threads, verify, every_epoch, on_event=None))]
pub fn train(
    py: Python<'_>,
    text: &str,
    path: PathBuf,
    base: Option<PathBuf>,
    folder: PathBuf,
    resume: bool,
    device: &str,
    threads: usize,
    verify: bool,
    every_epoch: bool,
    on_event: Option<Py<PyAny>>,
) -> PyResult<String> {
    let mut experiment = checked(Experiment::parse(text, path))?;
    if experiment.folder.is_none() {
        experiment.folder = base;
    }
    let placement = placement(device)?;
    let family = checked(Family::find(experiment.family()))?;
    let summary = attended(
        py,
        threads,
        every_epoch,
        on_event.as_ref(),
        |teller, stop| {
            let session = Session::new(experiment).placed(placement).verified(verify);
            let session = match resume {
                true => session.resuming(folder),
                false => session.in_folder(folder),
            };
            let mut session = session.observed_by(teller).stopped_by(stop);
            family.train(&mut session)
        },
    )?;
    Ok(summary.to_json().to_string())
}

/// Samples from arrays: values (float32) or class numbers (int64) of `classes` classes.
fn dataset(
    shape: &[usize],
    x: &Bound<'_, PyAny>,
    y: &Bound<'_, PyAny>,
    weights: Option<&Bound<'_, PyAny>>,
    classes: usize,
) -> PyResult<Dataset> {
    let x = array::<f32>("x", x)?;
    let mut data = checked(Dataset::new(shape.to_vec(), elements(&x)?.to_vec()))?;
    data = match classes {
        0 => {
            let y = array::<f32>("y", y)?;
            let shape = y.shape().get(1..).unwrap_or_default();
            let shape = if shape.is_empty() { &[1] } else { shape };
            checked(data.with_values(shape.to_vec(), elements(&y)?.to_vec()))?
        }
        _ => {
            let y = array::<i64>("y", y)?;
            let numbers = elements(&y)?.iter().map(|&c| u32::try_from(c));
            let numbers: Result<Vec<u32>, _> = numbers.collect();
            let negative = |_| PyValueError::new_err("y: got a negative class, needs 0 and more");
            checked(data.with_classes(classes, numbers.map_err(negative)?))?
        }
    };
    if let Some(weights) = weights {
        let weights = array::<f32>("sample_weight", weights)?;
        data = checked(data.with_weights(elements(&weights)?.to_vec()))?;
    }
    debug_assert!(*data.targets() != Targets::Unknown);
    Ok(data)
}

/// The parameters, and a summary as JSON.
type Fitted<'py> = (Bound<'py, PyArrayDyn<f32>>, String);

/// Inputs, targets and weights that are kept apart.
type Held<'py> = (
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Option<Bound<'py, PyAny>>,
);

/// Trains a network on arrays, in memory. `params` are the first ones; the network's buffers become
/// those of the parameters that are kept.
#[pyfunction]
#[pyo3(signature = (network, train, x, y, classes=0, weights=None, validation=None, update_grid=None, device="cpu", threads=0, on_event=None))]
pub fn fit<'py>(
    py: Python<'py>,
    network: &Network,
    train: &str,
    x: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
    classes: usize,
    weights: Option<&Bound<'py, PyAny>>,
    validation: Option<Held<'py>>,
    update_grid: Option<(u64, u64)>,
    device: &str,
    threads: usize,
    on_event: Option<Py<PyAny>>,
) -> PyResult<Fitted<'py>> {
    let spec: TrainSpec = described("the training", train)?;
    let placement = placement(device)?;
    let shape = network.spec.input.clone();
    let samples = dataset(&shape, x, y, weights, classes)?;
    let held = match &validation {
        Some((x, y, weights)) => Some(dataset(&shape, x, y, weights.as_ref(), classes)?),
        None => None,
    };
    let experiment = Experiment {
        name: "fit".into(),
        about: String::new(),
        folder: None,
        train: spec,
        model: toml::Table::new(),
        data: toml::Table::new(),
    };
    let grid = match update_grid {
        Some((every, until)) => {
            let schedule = json!({ "every": every, "until": until });
            Some(described::<GridSchedule>(
                "update_grid",
                &schedule.to_string(),
            )?)
        }
        None => None,
    };
    let model = network.copy()?;
    let (summary, params, buffers) =
        attended(py, threads, false, on_event.as_ref(), |teller, stop| {
            let task = NetworkTask::on(&experiment, model, samples, held)?;
            let mut task = task.with_grid(grid);
            let mut params = Vec::new();
            let session = Session::new(experiment).placed(placement);
            let session = session.observed_by(teller).stopped_by(stop);
            let summary = session.kept_in(&mut params).fit(&mut task)?;
            Ok((summary, params, task.model().buffers()))
        })?;
    for buffer in buffers {
        network.engine.set_buffer(&buffer)?;
    }
    let len = params.len();
    Ok((shaped(py, params, &[len])?, summary.to_json().to_string()))
}

/// What the trained model of a run says about files: columns of text. Graphs may do without one: their
/// own data is meant then.
#[pyfunction]
pub fn predict(
    py: Python<'_>,
    run: PathBuf,
    files: Vec<PathBuf>,
    threads: usize,
) -> PyResult<Vec<(String, Vec<String>)>> {
    crate::convert::compute(py, || {
        parallel::with_threads(threads, || {
            let experiment = retrograd::train::experiment_of(&run)?;
            let trained = match experiment.family() {
                "graph" => return Ok(retrograd::graph::task::predict(&run, &files)?.columns),
                "kan" => retrograd::kan::trained_kan(&run)?,
                "network" => retrograd::train::TrainedNetwork::open(&run)?,
                other => {
                    return Err(retrograd::Error::refused(
                        "predict",
                        format!("the family {other:?} has no tables to predict"),
                    ));
                }
            };
            let [file] = &files[..] else {
                let needed = "one table, array or file";
                return Err(retrograd::Error::invalid("x", files.len(), needed));
            };
            Ok(trained.predict(file, &[])?.columns)
        })
    })
}

/// The tensors of a safetensors file, under their names.
#[pyfunction]
pub fn read_tensors<'py>(
    py: Python<'py>,
    path: PathBuf,
) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
    use retrograd::train::{TensorFile, Values};
    let file = crate::convert::compute(py, || TensorFile::read(&path))?;
    let tensors = file.tensors.iter().map(|t| {
        let array = match &t.values {
            Values::F32(v) => copied(py, v, &t.shape)?.into_any(),
            Values::F64(v) => copied(py, v, &t.shape)?.into_any(),
            Values::I64(v) => copied(py, v, &t.shape)?.into_any(),
            Values::U8(v) => copied(py, v, &t.shape)?.into_any(),
        };
        Ok((t.name.clone(), array))
    });
    tensors.collect()
}
