//! Graphs and graph networks.

use std::sync::Arc;

use numpy::{PyArrayDyn, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::PyClassInitializer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use retrograd::Model;
use retrograd::graph::GraphSpec;
use retrograd::graph::{EdgeRule, EdgeRules, Graph as Inner, GraphBatch, GraphNetwork as Net};

use crate::convert::{array, checked, compute, copied, described, elements, shaped, wrong_shape};
use crate::engine::{AnyModel, Engine, GRADIENT, Gradients, Meant, Tape, Taped, of_one_type};

/// The topology of a batch of graphs.
#[pyclass(frozen, module = "retrograd._retrograd")]
pub struct Graph {
    inner: Arc<Inner>,
    kept: Vec<u32>,
}

fn rule(what: &str, name: &str) -> PyResult<EdgeRule> {
    match name {
        "keep" => Ok(EdgeRule::Keep),
        "drop" => Ok(EdgeRule::Drop),
        "refuse" => Ok(EdgeRule::Refuse),
        _ => Err(PyValueError::new_err(format!(
            "{what}: got {name:?}, needs \"keep\", \"drop\" or \"refuse\""
        ))),
    }
}

/// Whole numbers from 0 on; what is none of a node is said with the edge.
fn ends(name: &str, numbers: &[i64], nodes: usize) -> PyResult<Vec<u32>> {
    let end = |(edge, &node): (usize, &i64)| {
        u32::try_from(node).map_err(|_| {
            PyValueError::new_err(format!(
                "edge {edge}: got {name} {node}, needs a node below {nodes}"
            ))
        })
    };
    numbers.iter().enumerate().map(end).collect()
}

#[pymethods]
impl Graph {
    /// `edge_index` is (2, edges): sources and targets. `graph_of_node` says which graph of several
    /// a node belongs to, in order.
    #[new]
    #[pyo3(signature = (nodes, edge_index, self_loops="keep", duplicates="keep", graph_of_node=None, graphs=1))]
    fn new(
        py: Python<'_>,
        nodes: usize,
        edge_index: &Bound<'_, PyAny>,
        self_loops: &str,
        duplicates: &str,
        graph_of_node: Option<&Bound<'_, PyAny>>,
        graphs: usize,
    ) -> PyResult<Self> {
        let edges = array::<i64>("edge_index", edge_index)?;
        let [2, count] = *edges.shape() else {
            return Err(wrong_shape("edge_index", edges.shape(), "[2, edges]"));
        };
        let (sources, targets) = elements(&edges)?.split_at(count);
        let rules = EdgeRules {
            self_loops: rule("self_loops", self_loops)?,
            duplicates: rule("duplicates", duplicates)?,
        };
        let (sources, targets) = (
            ends("source", sources, nodes)?,
            ends("target", targets, nodes)?,
        );
        let owners = match graph_of_node {
            None => None,
            Some(numbers) => {
                let numbers = array::<i64>("batch", numbers)?;
                let whole = elements(&numbers)?.iter().map(|&n| u32::try_from(n));
                let whole: Result<Vec<u32>, _> = whole.collect();
                Some(whole.map_err(|_| {
                    PyValueError::new_err("batch: got a negative number, needs graphs from 0 on")
                })?)
            }
        };
        let (inner, kept) = compute(py, || {
            let built = Inner::build(nodes, &sources, &targets, rules)?;
            let graph = match &owners {
                Some(owners) => built.graph.with_graphs(owners, graphs)?,
                None => built.graph,
            };
            Ok((graph, built.kept))
        })?;
        Ok(Graph {
            inner: Arc::new(inner),
            kept,
        })
    }

    #[getter]
    fn nodes(&self) -> usize {
        self.inner.nodes()
    }

    #[getter]
    fn edges(&self) -> usize {
        self.inner.edges()
    }

    #[getter]
    fn graphs(&self) -> usize {
        self.inner.graphs()
    }

    /// For every edge that is left, which of the given ones it was.
    fn kept<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArrayDyn<i64>>> {
        let kept: Vec<i64> = self.kept.iter().map(|&e| e.into()).collect();
        let len = kept.len();
        shaped(py, kept, &[len])
    }

    /// (2, edges), as they are used.
    fn edge_index<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArrayDyn<i64>>> {
        let ends = self.inner.sources().iter().chain(self.inner.targets());
        let ends: Vec<i64> = ends.map(|&n| n.into()).collect();
        copied(py, &ends, &[2, self.inner.edges()])
    }
}

/// A network of layers over graphs.
#[pyclass(frozen, extends = AnyModel, module = "retrograd._retrograd")]
pub struct GraphNetwork {
    engine: Arc<Engine<Net>>,
    spec: GraphSpec,
}

impl GraphNetwork {
    fn batch<T: Taped>(
        &self,
        graph: &Graph,
        x: &PyReadonlyArrayDyn<'_, T>,
        weights: Option<&Bound<'_, PyAny>>,
        features: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<GraphBatch<T>> {
        let &[nodes, width] = x.shape() else {
            return Err(wrong_shape("x", x.shape(), "[nodes, features]"));
        };
        if nodes != graph.inner.nodes() {
            let needed = format!("a row for each of {} nodes", graph.inner.nodes());
            return Err(wrong_shape("x", x.shape(), needed));
        }
        let values = elements(x)?.to_vec();
        let mut batch = checked(GraphBatch::dense(graph.inner.clone(), width, values))?;
        if let Some(weights) = weights {
            let weights = array::<T>("edge_weight", weights)?;
            batch = checked(batch.with_edge_weights(elements(&weights)?))?;
        }
        if let Some(features) = features {
            let features = array::<T>("edge_attr", features)?;
            let width = features.shape().last().copied().unwrap_or(0);
            batch = checked(batch.with_edge_features(width, elements(&features)?))?;
        }
        checked(self.engine.model().check(&batch))?;
        Ok(batch)
    }

    fn run<'py, T: Taped>(
        &self,
        py: Python<'py>,
        params: &[T],
        batch: &GraphBatch<T>,
        meant: Meant,
    ) -> PyResult<(Bound<'py, PyAny>, Option<Tape>)> {
        let (y, tape) = self.engine.forward(py, params, batch, meant)?;
        let model = self.engine.model();
        let shape = [model.output_rows(batch), model.output_width()];
        Ok((shaped(py, y, &shape)?.into_any(), tape))
    }
}

#[pymethods]
impl GraphNetwork {
    /// From a description in JSON: features, and layers.
    #[new]
    fn new(spec: &str) -> PyResult<PyClassInitializer<Self>> {
        let spec: GraphSpec = described("the graph network", spec)?;
        let engine = Arc::new(Engine::new(checked(Net::new(&spec))?));
        Ok(AnyModel::under(
            &engine.clone(),
            GraphNetwork { engine, spec },
        ))
    }

    #[getter]
    fn output_width(&self) -> usize {
        self.engine.model().output_width()
    }

    /// The output for a graph and, with `keep`, the tape for a backward.
    #[pyo3(signature = (params, graph, x, edge_weight=None, edge_attr=None, training=false, seed=0, keep=false))]
    fn forward<'py>(
        &self,
        py: Python<'py>,
        params: &Bound<'py, PyAny>,
        graph: &Graph,
        x: &Bound<'py, PyAny>,
        edge_weight: Option<&Bound<'py, PyAny>>,
        edge_attr: Option<&Bound<'py, PyAny>>,
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
            let batch = self.batch(graph, &x, edge_weight, edge_attr)?;
            self.run(py, elements(&params)?, &batch, meant)
        })
    }

    /// The gradients of parameters and input, flat: node features, then edge weights, then the
    /// edges' features.
    #[pyo3(signature = (params, graph, x, tape, d_output, edge_weight=None, edge_attr=None, of_params=true, of_input=true))]
    fn backward<'py>(
        &self,
        py: Python<'py>,
        params: &Bound<'py, PyAny>,
        graph: &Graph,
        x: &Bound<'py, PyAny>,
        tape: &Tape,
        d_output: &Bound<'py, PyAny>,
        edge_weight: Option<&Bound<'py, PyAny>>,
        edge_attr: Option<&Bound<'py, PyAny>>,
        of_params: bool,
        of_input: bool,
    ) -> PyResult<Gradients<'py>> {
        let wanted = [of_params, of_input];
        of_one_type!((params: "params", x: "x", d_output: GRADIENT) => {
            let batch = self.batch(graph, &x, edge_weight, edge_attr)?;
            let (params, d_output) = (elements(&params)?, elements(&d_output)?);
            self.engine.backward(py, params, &batch, tape, d_output, wanted)
        })
    }

    /// The gradients against the oracles, on a graph: a report as JSON.
    #[pyo3(signature = (name, params, graph, x, target, loss, quick, edge_weight=None, edge_attr=None))]
    fn verify(
        &self,
        py: Python<'_>,
        name: &str,
        params: &Bound<'_, PyAny>,
        graph: &Graph,
        x: &Bound<'_, PyAny>,
        target: &Bound<'_, PyAny>,
        loss: &str,
        quick: bool,
        edge_weight: Option<&Bound<'_, PyAny>>,
        edge_attr: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<crate::verify::Checked> {
        let (params, x) = (array::<f32>("params", params)?, array::<f32>("x", x)?);
        let batch = self.batch(graph, &x, edge_weight, edge_attr)?;
        let mut network = checked(Net::new(&self.spec))?;
        for buffer in self.engine.buffers() {
            checked(network.set_buffer(&buffer))?;
        }
        let target = crate::verify::target(target)?;
        let params = elements(&params)?;
        crate::verify::model(py, name, &network, params, &batch, &target, loss, quick)
    }
}
