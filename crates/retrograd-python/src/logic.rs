//! Cellular automata of logic gates, and the circuits that they become.

use std::sync::Arc;

use numpy::{PyArrayDyn, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::PyClassInitializer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use retrograd::Model;
use retrograd::logic::{BitGrid, HardCircuit, LogicBatch, LogicCa as Inner, LogicSpec, Program};

use crate::convert::{array, checked, compute, described, elements, shaped, wrong_shape};
use crate::engine::{AnyModel, Engine, GRADIENT, Gradients, Meant, Tape, Taped, of_one_type};

/// A differentiable-logic cellular automaton.
#[pyclass(frozen, extends = AnyModel, module = "retrograd._retrograd")]
pub struct LogicCa {
    engine: Arc<Engine<Inner>>,
}

impl LogicCa {
    fn batch<T: Taped>(
        &self,
        state: &PyReadonlyArrayDyn<'_, T>,
        fire: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<LogicBatch<T>> {
        let &[batch, height, width, _] = state.shape() else {
            let needed = "[grids, rows, columns, channels]";
            return Err(wrong_shape("state", state.shape(), needed));
        };
        let fire = match fire {
            None => None,
            Some(fire) => Some(elements(&array::<bool>("fire", fire)?)?.to_vec()),
        };
        let model = self.engine.model();
        let size = [batch, height, width];
        checked(LogicBatch::new(
            &model,
            elements(state)?.to_vec(),
            size,
            fire,
        ))
    }

    fn run<'py, T: Taped>(
        &self,
        py: Python<'py>,
        params: &[T],
        state: &PyReadonlyArrayDyn<'_, T>,
        batch: &LogicBatch<T>,
        meant: Meant,
    ) -> PyResult<(Bound<'py, PyAny>, Option<Tape>)> {
        let (y, tape) = self.engine.forward(py, params, batch, meant)?;
        Ok((shaped(py, y, state.shape())?.into_any(), tape))
    }
}

#[pymethods]
impl LogicCa {
    /// From a description in JSON, wired by a seed.
    #[new]
    fn new(spec: &str, seed: u64) -> PyResult<PyClassInitializer<Self>> {
        let spec: LogicSpec = described("the automaton", spec)?;
        let engine = Arc::new(Engine::new(checked(Inner::new(spec, seed))?));
        Ok(AnyModel::under(&engine.clone(), LogicCa { engine }))
    }

    /// The state after the automaton's steps. `fire` (steps, rows, columns) says which cells take
    /// their new state.
    #[pyo3(signature = (params, state, fire=None, keep=false))]
    fn forward<'py>(
        &self,
        py: Python<'py>,
        params: &Bound<'py, PyAny>,
        state: &Bound<'py, PyAny>,
        fire: Option<&Bound<'py, PyAny>>,
        keep: bool,
    ) -> PyResult<(Bound<'py, PyAny>, Option<Tape>)> {
        let meant = Meant {
            training: true,
            seed: 0,
            keep,
        };
        of_one_type!((params: "params", state: "state") => {
            let batch = self.batch(&state, fire)?;
            self.run(py, elements(&params)?, &state, &batch, meant)
        })
    }

    /// The gradients of parameters and state, flat, from that of the output.
    #[pyo3(signature = (params, state, tape, d_output, fire=None, of_params=true, of_input=true))]
    fn backward<'py>(
        &self,
        py: Python<'py>,
        params: &Bound<'py, PyAny>,
        state: &Bound<'py, PyAny>,
        tape: &Tape,
        d_output: &Bound<'py, PyAny>,
        fire: Option<&Bound<'py, PyAny>>,
        of_params: bool,
        of_input: bool,
    ) -> PyResult<Gradients<'py>> {
        let wanted = [of_params, of_input];
        of_one_type!((params: "params", state: "state", d_output: GRADIENT) => {
            let batch = self.batch(&state, fire)?;
            let (params, d_output) = (elements(&params)?, elements(&d_output)?);
            self.engine.backward(py, params, &batch, tape, d_output, wanted)
        })
    }

    /// The exact circuit that the parameters stand for, simplified.
    fn circuit(&self, py: Python<'_>, params: &Bound<'_, PyAny>) -> PyResult<Circuit> {
        let params = array::<f32>("params", params)?;
        let params = elements(&params)?;
        let model = self.engine.model();
        let needed = model.layout().len();
        if params.len() != needed {
            return Err(wrong_shape("params", &[params.len()], needed));
        }
        let circuit = compute(py, || Ok(HardCircuit::of(&model, params).simplify()))?;
        Ok(Circuit::of(circuit))
    }

    /// The gradients against the oracles, on some grids: a report as JSON.
    fn verify(
        &self,
        py: Python<'_>,
        name: &str,
        params: &Bound<'_, PyAny>,
        state: &Bound<'_, PyAny>,
        target: &Bound<'_, PyAny>,
        loss: &str,
        quick: bool,
    ) -> PyResult<crate::verify::Checked> {
        let params = array::<f32>("params", params)?;
        let batch = self.batch(&array::<f32>("state", state)?, None)?;
        let model = self.engine.model().clone();
        let target = crate::verify::target(target)?;
        let params = elements(&params)?;
        crate::verify::model(py, name, &model, params, &batch, &target, loss, quick)
    }
}

/// An exact circuit: what a cell becomes from its neighbourhood.
#[pyclass(frozen, module = "retrograd._retrograd")]
pub struct Circuit {
    circuit: HardCircuit,
    program: Program,
}

impl Circuit {
    fn of(circuit: HardCircuit) -> Self {
        Circuit {
            program: Program::compact(&circuit),
            circuit,
        }
    }
}

#[pymethods]
impl Circuit {
    /// From what [`Circuit::json`] wrote.
    #[new]
    fn new(json: &str) -> PyResult<Self> {
        Ok(Self::of(checked(HardCircuit::from_json(json))?))
    }

    #[getter]
    fn gates(&self) -> usize {
        self.circuit.gates.len()
    }

    #[getter]
    fn channels(&self) -> usize {
        self.circuit.channels
    }

    fn json(&self) -> String {
        self.circuit.to_json()
    }

    fn c(&self) -> String {
        self.circuit.to_c()
    }

    fn verilog(&self) -> String {
        self.circuit.to_verilog()
    }

    fn svg(&self) -> String {
        self.circuit.to_svg()
    }

    /// Grids (grids, rows, columns, channels) of bits after so many steps, in exact logic. `fire`
    /// (steps, rows, columns) says which cells take their new state.
    #[pyo3(signature = (state, steps, fire=None))]
    fn step<'py>(
        &self,
        py: Python<'py>,
        state: &Bound<'py, PyAny>,
        steps: usize,
        fire: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArrayDyn<bool>>> {
        let state = array::<bool>("state", state)?;
        let channels = self.circuit.channels;
        let &[grids, height, width, given] = state.shape() else {
            let needed = "[grids, rows, columns, channels]";
            return Err(wrong_shape("state", state.shape(), needed));
        };
        if given != channels || grids == 0 {
            let needed = format!("[grids, rows, columns, {channels}], at least one grid");
            return Err(wrong_shape("state", state.shape(), needed));
        }
        let cells = height * width;
        let fire = fire.map(|f| array::<bool>("fire", f)).transpose()?;
        let fire = match &fire {
            None => None,
            Some(fire) if fire.shape() == [steps, height, width] => Some(elements(fire)?),
            Some(fire) => {
                let needed = format!("[{steps}, {height}, {width}]: steps, rows, columns");
                return Err(wrong_shape("fire", fire.shape(), needed));
            }
        };
        let bits = elements(&state)?;
        let after = compute(py, || {
            let size = [grids, height, width];
            let mut grid = BitGrid::new(size, channels, self.circuit.boundary)?;
            let start: Vec<f32> = bits.iter().map(|&b| f32::from(u8::from(b))).collect();
            grid.load(&start);
            for t in 0..steps {
                let fire = fire.map(|f| &f[t * cells..(t + 1) * cells]);
                grid.step(&self.program, fire);
            }
            let mut after = Vec::with_capacity(bits.len());
            for sample in 0..grids {
                after.extend(grid.bits(sample));
            }
            Ok(after)
        })?;
        if after.len() != bits.len() {
            return Err(PyValueError::new_err("state: a grid of another size"));
        }
        shaped(py, after, state.shape())
    }
}
