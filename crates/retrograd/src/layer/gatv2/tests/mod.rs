//! Where the targets of an attention have a gradient.

use std::sync::Arc;

use crate::graph::{Graph, GraphBatch, GraphNetwork, GraphTape};
use crate::rng::Key;
use crate::{Grads, Model, Pass};

/// Why some faults in the gradient of `lin_r` are none (see the verifier's built-in models):
/// with one slope for all in-edges, d_r is a multiple of Σ_p d_s_p = 0.
#[test]
fn targets_have_a_gradient_only_where_kinks_fall_among_their_edges() {
    let json = r#"{"features": 3, "layers": [{"kind": "gatv2", "out": 2, "heads": 2}]}"#;
    let network = GraphNetwork::new(&serde_json::from_str(json).unwrap()).unwrap();
    let graph = Graph::new(5, &[1, 2, 3, 4, 0, 2, 3], &[0, 0, 0, 0, 1, 1, 1]).unwrap();
    let mut stream = Key::new(3).purpose("gatv2 test").stream();
    let mut numbers =
        |count: usize| -> Vec<f64> { (0..count).map(|_| stream.range(-2.0, 2.0)).collect() };
    let batch = GraphBatch::dense(Arc::new(graph), 3, numbers(15)).unwrap();
    let d_y = numbers(20);
    let mut params = numbers(network.layout().len());
    let range = |name: &str| {
        let mut tensors = network.layout().tensors().iter();
        let found = tensors.find(|t| t.name.ends_with(name));
        found.expect("a tensor of the layer").range()
    };
    let pass = Pass::inference().reference();
    let gradients = |params: &[f64]| {
        let mut tape = GraphTape::default();
        network.compute_forward(params, &batch, &pass, &mut tape);
        let mut d = vec![0.0; params.len()];
        network.compute_backward(
            params,
            &batch,
            &pass,
            &mut tape,
            &d_y,
            Grads::params(&mut d),
        );
        d
    };
    let mixed = gradients(&params);
    for name in ["lin_r.weight", "lin_r.bias"] {
        assert!(mixed[range(name)].iter().any(|d| d.abs() > 1e-3), "{name}");
    }
    // All sums are now right of the kink.
    params[range("lin_r.bias")].fill(60.0);
    let open = gradients(&params);
    for name in ["lin_r.weight", "lin_r.bias"] {
        assert!(open[range(name)].iter().all(|d| d.abs() < 1e-11), "{name}");
    }
    assert!(open[range("lin_l.weight")].iter().any(|d| d.abs() > 1e-3));
}
