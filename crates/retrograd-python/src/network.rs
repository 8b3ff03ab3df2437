//! Networks of layers, and what KANs can do beside.

use std::sync::Arc;

use numpy::PyUntypedArrayMethods;
use pyo3::PyClassInitializer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use retrograd::kan::{
    Discover, PlotOptions, SymbolicNetwork, SymbolicOptions, discover, plot_png, plot_svg, prune,
};
use retrograd::network::{LayerSpec, Network as Inner, NetworkSpec};
use retrograd::{Buffer, Model, parallel};

use crate::convert::{array, checked, compute, described, elements, shaped, wrong_shape};
use crate::engine::{AnyModel, Engine, GRADIENT, Gradients, Meant, Tape, Taped, of_one_type};

/// A network of layers, over one flat vector of parameters.
#[pyclass(frozen, extends = AnyModel, module = "retrograd._retrograd")]
pub struct Network {
    pub(crate) engine: Arc<Engine<Inner>>,
    pub(crate) spec: NetworkSpec,
    input: Vec<usize>,
    output: Vec<usize>,
}

impl Network {
    fn of(spec: NetworkSpec) -> PyResult<Self> {
        let network = checked(Inner::new(&spec))?;
        Ok(Network {
            input: spec.input.clone(),
            output: network.output_shape().to_vec(),
            spec,
            engine: Arc::new(Engine::new(network)),
        })
    }

    /// A copy of the model, to train or to verify.
    pub(crate) fn copy(&self) -> PyResult<Inner> {
        let mut network = checked(Inner::new(&self.spec))?;
        for buffer in self.engine.buffers() {
            checked(network.set_buffer(&buffer))?;
        }
        Ok(network)
    }

    fn samples(&self, x: &[usize]) -> PyResult<usize> {
        match x {
            [samples, shape @ ..] if shape == self.input && *samples > 0 => Ok(*samples),
            got => {
                let needed = format!("[samples, {}], at least one", listed(&self.input));
                Err(wrong_shape("x", got, needed))
            }
        }
    }

    fn run<'py, T: Taped>(
        &self,
        py: Python<'py>,
        params: &[T],
        x: &[T],
        samples: usize,
        meant: Meant,
    ) -> PyResult<(Bound<'py, PyAny>, Option<Tape>)> {
        let (y, tape) = self.engine.forward(py, params, &x, meant)?;
        let shape = [&[samples], &self.output[..]].concat();
        Ok((shaped(py, y, &shape)?.into_any(), tape))
    }
}

fn listed(sizes: &[usize]) -> String {
    let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
    sizes.join(", ")
}

#[pymethods]
impl Network {
    /// From a description in JSON: the shape of a sample, and layers.
    #[new]
    fn new(spec: &str) -> PyResult<PyClassInitializer<Self>> {
        let network = Self::of(described("the network", spec)?)?;
        Ok(AnyModel::under(&network.engine.clone(), network))
    }

    /// The shape of one sample.
    #[getter]
    fn input_shape(&self) -> Vec<usize> {
        self.input.clone()
    }

    /// The shape of one sample's output.
    #[getter]
    fn output_shape(&self) -> Vec<usize> {
        self.output.clone()
    }

    /// The output for a batch and, with `keep`, the tape for a backward.
    #[pyo3(signature = (params, x, training=false, seed=0, keep=false))]
    fn forward<'py>(
        &self,
        py: Python<'py>,
        params: &Bound<'py, PyAny>,
        x: &Bound<'py, PyAny>,
        training: bool,
        seed: u64,
        keep: bool,
    ) -> PyResult<(Bound<'py, PyAny>, Option<Tape>)> {
        let meant = Meant {
            training,
            seed,
            keep,
        };
        of_one_type!((params: "params", x: "x") => {
            let samples = self.samples(x.shape())?;
            self.run(py, elements(&params)?, elements(&x)?, samples, meant)
        })
    }

    /// The gradients of parameters and input, flat, from that of the output.
    #[pyo3(signature = (params, x, tape, d_output, of_params=true, of_input=true))]
    fn backward<'py>(
        &self,
        py: Python<'py>,
        params: &Bound<'py, PyAny>,
        x: &Bound<'py, PyAny>,
        tape: &Tape,
        d_output: &Bound<'py, PyAny>,
        of_params: bool,
        of_input: bool,
    ) -> PyResult<Gradients<'py>> {
        let wanted = [of_params, of_input];
        of_one_type!((params: "params", x: "x", d_output: GRADIENT) => {
            let (params, x) = (elements(&params)?, elements(&x)?);
            self.engine.backward(py, params, &x, tape, elements(&d_output)?, wanted)
        })
    }

    /// How long a forward takes without Python, on average: what benchmarks compare a call with.
    fn seconds_per_forward(
        &self,
        py: Python<'_>,
        params: &Bound<'_, PyAny>,
        x: &Bound<'_, PyAny>,
        repeats: u32,
    ) -> PyResult<f64> {
        let (params, x) = (array::<f32>("params", params)?, array::<f32>("x", x)?);
        self.samples(x.shape())?;
        let (params, x) = (elements(&params)?, elements(&x)?);
        let model = self.engine.model();
        if params.len() != model.layout().len() || repeats == 0 {
            return Err(wrong_shape("params", &[params.len()], model.layout().len()));
        }
        compute(py, || {
            let mut tape = Default::default();
            let start = std::time::Instant::now();
            for _ in 0..repeats {
                model.forward(params, x, &retrograd::Pass::inference(), &mut tape)?;
                std::hint::black_box(model.output(&tape));
            }
            Ok(start.elapsed().as_secs_f64() / f64::from(repeats))
        })
    }

    /// A KAN's picture over some inputs: SVG, or the bytes of a PNG.
    fn plot<'py>(
        &self,
        py: Python<'py>,
        params: &Bound<'py, PyAny>,
        x: &Bound<'py, PyAny>,
        png: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (params, x) = (array::<f32>("params", params)?, array::<f32>("x", x)?);
        self.samples(x.shape())?;
        let (params, x) = (elements(&params)?, elements(&x)?);
        let options = PlotOptions::default();
        let model = self.engine.model();
        Ok(match png {
            true => {
                let bytes = compute(py, || plot_png(&model, params, x, &options))?;
                pyo3::types::PyBytes::new(py, &bytes).into_any()
            }
            false => {
                let text = compute(py, || plot_svg(&model, params, x, &options))?;
                pyo3::types::PyString::new(py, &text).into_any()
            }
        })
    }

    /// The formula of every output of a KAN: (text, LaTeX). The network's inputs are x·scale + shift
    /// of the user's, its outputs y become y·scale + shift; both are written out. Edges below
    /// `threshold` of their layer's largest importance are left out; the constants are tuned on
    /// `x` and `y`, in the user's units.
    fn formula(
        &self,
        py: Python<'_>,
        params: &Bound<'_, PyAny>,
        x: &Bound<'_, PyAny>,
        y: &Bound<'_, PyAny>,
        inputs: (Vec<f64>, Vec<f64>),
        outputs: (Vec<f64>, Vec<f64>),
        threshold: f64,
        decimals: i32,
    ) -> PyResult<(Vec<(String, String)>, f64)> {
        let params = array::<f32>("params", params)?;
        let (x, y) = (array::<f64>("x", x)?, array::<f64>("y", y)?);
        self.samples(x.shape())?;
        let (params, x, y) = (elements(&params)?, elements(&x)?, elements(&y)?);
        let network = self.normalised(&inputs.0, &inputs.1)?;
        let (scale, shift) = outputs;
        compute(py, || {
            parallel::within(|| {
                let width = network.output_len();
                let narrow: Vec<f32> = x.iter().map(|&v| v as f32).collect();
                let in_units = y.iter().enumerate();
                let target: Vec<f64> = in_units
                    .map(|(i, v)| (v - shift[i % width]) / scale[i % width])
                    .collect();
                let pruned = prune(&network, params, &narrow, threshold)?;
                let options = SymbolicOptions::default();
                let mut symbolic =
                    SymbolicNetwork::from_kan(&pruned.network, &pruned.params, &narrow, &options)?;
                symbolic.refine(x, &target, 400);
                // As for `discover`: targets have a deviation of about 1 here.
                symbolic.simplify(&options.library, x, &target, 60, 1e-5);
                let rms = symbolic.refine(x, &target, 400);
                let formulas = (0..width).map(|o| {
                    let formula = symbolic.formula(o).affine(scale[o], shift[o]);
                    let formula = formula.rounded(decimals);
                    (formula.text(), formula.latex())
                });
                Ok((formulas.collect(), rms))
            })
        })
    }

    /// The gradients against the oracles, on a batch: a report as JSON.
    fn verify(
        &self,
        py: Python<'_>,
        name: &str,
        params: &Bound<'_, PyAny>,
        x: &Bound<'_, PyAny>,
        target: &Bound<'_, PyAny>,
        loss: &str,
        quick: bool,
    ) -> PyResult<crate::verify::Checked> {
        let (params, x) = (array::<f32>("params", params)?, array::<f32>("x", x)?);
        self.samples(x.shape())?;
        let network = self.copy()?;
        let input = elements(&x)?.to_vec();
        let target = crate::verify::target(target)?;
        crate::verify::model(
            py,
            name,
            &network,
            elements(&params)?,
            &input,
            &target,
            loss,
            quick,
        )
    }
}

impl Network {
    /// The network with x·scale + shift in front.
    fn normalised(&self, scale: &[f64], shift: &[f64]) -> PyResult<Inner> {
        let mut spec = self.spec.clone();
        let normalize = serde_json::json!({ "kind": "normalize" }).to_string();
        let normalize: LayerSpec = described("a layer", &normalize)?;
        spec.layers.insert(0, normalize);
        let mut network = checked(Inner::new(&spec))?;
        let std: Vec<f64> = scale.iter().map(|s| 1.0 / s).collect();
        let mean = shift.iter().zip(&std).map(|(shift, std)| -shift * std);
        for (name, values) in [("0.mean", mean.collect()), ("0.std", std)] {
            checked(network.set_buffer(&Buffer {
                name: name.into(),
                shape: vec![scale.len()],
                values,
            }))?;
        }
        // Names count layers, and one stands in front of them now.
        for buffer in self.engine.buffers() {
            let Some((layer, name)) = buffer.name.split_once('.') else {
                continue;
            };
            let Ok(layer) = layer.parse::<usize>() else {
                continue;
            };
            checked(network.set_buffer(&Buffer {
                name: format!("{}.{name}", layer + 1),
                ..buffer.clone()
            }))?;
        }
        Ok(network)
    }
}

/// Formulas as (text, LaTeX), their error and the KAN's, and the start.
type Found = (Vec<(String, String)>, f64, f64, u64);

/// Looks for a formula in data: trains, prunes, fits functions and tunes, from several starts.
#[pyfunction]
pub fn find_formula(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    y: &Bound<'_, PyAny>,
    sizes: Vec<usize>,
    range: [f64; 2],
    starts: u64,
    threads: usize,
) -> PyResult<Found> {
    let (x, y) = (array::<f32>("x", x)?, array::<f32>("y", y)?);
    let (x, y) = (elements(&x)?, elements(&y)?);
    if sizes.len() < 2 {
        return Err(PyValueError::new_err(
            "sizes: needs inputs and outputs at least",
        ));
    }
    let mut options = Discover::new(&sizes, range);
    options.starts = starts;
    let outputs = sizes[sizes.len() - 1];
    compute(py, || {
        parallel::with_threads(threads, || {
            let found = discover(x, y, &options)?;
            let formulas = (0..outputs).map(|o| {
                let formula = found.formula(o);
                (formula.text(), formula.latex())
            });
            Ok((formulas.collect(), found.rms, found.network_rms, found.seed))
        })
    })
}
