//! A user's layer beside the built-in ones, with the verifier's chain for it.

use std::sync::Arc;

use retrograd::graph::{Graph, GraphBatch, GraphNetwork, GraphSpec};
use retrograd::layer::own::{OwnBackward, OwnForward, OwnLayer, OwnTensor};
use retrograd::network::{LayerSpec, Network, NetworkSpec};
use retrograd::verify::{self, Report};
use retrograd::{Error, Loss, Model, Result, Scalar, Target};

/// y_i = Σ over a node's in-edges (j → i) of w·tanh(x_j); without a graph, of every row's own value.
/// `right` is whether backward has the derivative of tanh.
struct Gather {
    right: bool,
}

impl Gather {
    fn edges(rows: usize, graph: Option<&Graph>) -> Vec<(usize, usize)> {
        match graph {
            Some(graph) => {
                let edges = graph.sources().iter().zip(graph.targets());
                edges
                    .map(|(&from, &to)| (from as usize, to as usize))
                    .collect()
            }
            None => (0..rows).map(|row| (row, row)).collect(),
        }
    }
}

impl OwnLayer for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn output(&self, input: &[usize]) -> Result<Vec<usize>> {
        match input {
            [_] => Ok(input.to_vec()),
            _ => Err(Error::invalid(
                "gather's input",
                format!("{input:?}"),
                "[features]",
            )),
        }
    }

    fn tensors(&self, input: &[usize]) -> Vec<OwnTensor> {
        vec![OwnTensor::uniform("weight", input, 1.0)]
    }

    fn forward<T: Scalar>(&self, io: OwnForward<'_, T>) {
        let (w, n) = (io.params[0], io.shape[0]);
        io.y.fill(T::ZERO);
        io.saved.clear();
        io.saved.extend(io.x.iter().map(|x| x.tanh()));
        for (from, to) in Self::edges(io.rows, io.graph) {
            for k in 0..n {
                io.y[to * n + k] += w[k] * io.saved[from * n + k];
            }
        }
    }

    fn backward<T: Scalar>(&self, mut io: OwnBackward<'_, '_, T>) {
        let (w, n) = (io.params[0], io.shape[0]);
        if let Some(d_x) = &mut io.d_x {
            d_x.fill(T::ZERO);
        }
        for (from, to) in Self::edges(io.rows, io.graph) {
            for k in 0..n {
                let (t, d) = (io.saved[from * n + k], io.d_y[to * n + k]);
                if let Some(d_w) = &mut io.d_params[0] {
                    d_w[k] += d * t;
                }
                if let Some(d_x) = &mut io.d_x {
                    let slope = if self.right { T::ONE - t * t } else { T::ONE };
                    d_x[from * n + k] += d * w[k] * slope;
                }
            }
        }
    }
}

fn layers(right: bool) -> Vec<LayerSpec> {
    vec![
        LayerSpec::dense(5),
        LayerSpec::own(Gather { right }),
        LayerSpec::dense(2),
    ]
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|k| (k as f32 * 0.9).sin()).collect()
}

fn in_a_network(right: bool) -> Report {
    let network = Network::new(&NetworkSpec::new(&[3], layers(right))).unwrap();
    let names: Vec<&str> = network
        .layout()
        .tensors()
        .iter()
        .map(|t| t.name.as_str())
        .collect();
    assert_eq!(
        names,
        ["0.weight", "0.bias", "1.weight", "2.weight", "2.bias"]
    );
    let (params, x) = (network.init(3), numbers(7 * 3));
    let target = Target::values(numbers(7 * 2));
    let options = Default::default();
    verify::check("mine", &network, &params, &x, &target, Loss::Mse, &options).unwrap()
}

fn in_a_graph(right: bool) -> Report {
    let spec = GraphSpec::new(3, layers(right));
    let network = GraphNetwork::new(&spec).unwrap();
    let graph = Graph::new(6, &[0, 1, 2, 3, 4, 2, 5], &[1, 2, 0, 2, 3, 4, 4]).unwrap();
    let batch = GraphBatch::dense(Arc::new(graph), 3, numbers(6 * 3)).unwrap();
    let params = network.init(3);
    let target = Target::values(numbers(6 * 2));
    let options = Default::default();
    verify::check(
        "mine",
        &network,
        &params,
        &batch,
        &target,
        Loss::Mse,
        &options,
    )
    .unwrap()
}

#[test]
fn a_right_layer_passes_the_chain_in_networks_and_graph_networks() {
    for report in [in_a_network(true), in_a_graph(true)] {
        assert!(report.passed(), "{}", report.table());
        assert_eq!(report.counts().unchecked, 0, "{}", report.table());
    }
}

#[test]
fn a_wrong_layer_is_caught_in_both() {
    for report in [in_a_network(false), in_a_graph(false)] {
        assert!(!report.passed(), "{}", report.table());
    }
}

#[test]
fn what_does_not_fit_is_an_error_that_names_it() {
    let spec = NetworkSpec::new(&[1, 4, 4], vec![LayerSpec::own(Gather { right: true })]);
    let error = Network::new(&spec).err().expect("an image").to_string();
    assert!(error.contains("gather's input"), "{error}");
    let error = serde_json::to_string(&spec).unwrap_err().to_string();
    assert!(error.contains("comes from Rust"), "{error}");
    let read = serde_json::from_str::<LayerSpec>(r#"{"kind":"own"}"#);
    assert!(read.unwrap_err().to_string().contains("comes from Rust"));
}
