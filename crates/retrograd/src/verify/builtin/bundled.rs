//! Small models of the other families, most of them out of the reference bundles: model, parameters
//! and batch.

use std::path::Path;

use super::BuiltIn;
use crate::rng::Key;
use crate::scalar::cast;
use crate::verify::bundle::{Bundle, Case, FromBundle};
use crate::{Loss, Model};

/// A built-in model from a bundle's bytes, with the faults that apply to any model.
pub fn from_bundle<M: FromBundle + 'static>(
    name: &'static str,
    bytes: &'static [u8],
    samples: usize,
) -> BuiltIn {
    let make = move || {
        let bundle = Bundle::from_bytes(Path::new(name), bytes)?;
        Ok((M::from_bundle(&bundle)?, bundle.loss))
    };
    BuiltIn::new(name, make, samples, None)
}

macro_rules! bundled {
    ($model:ty, $samples:expr, $name:expr, $file:expr) => {
        from_bundle::<$model>(
            $name,
            include_bytes!(concat!("../../../tests/reference/", $file, ".safetensors")),
            $samples,
        )
    };
}

/// Graph networks. A sample is a node. GATv2 is left to its bundle: a shift of a target's score
/// that no LeakyReLU sees cancels in the softmax, so some of its gradients are zero but for
/// rounding, and a mutant that loses them is none.
pub fn graph() -> Vec<BuiltIn> {
    use crate::graph::GraphNetwork;
    vec![
        bundled!(GraphNetwork, 40, "graph: gcn", "graph_gcn"),
        bundled!(
            GraphNetwork,
            50,
            "graph: message passing",
            "graph_message_passing"
        ),
        bundled!(
            GraphNetwork,
            30,
            "graph: gcn, edge weights",
            "graph_edge_weights"
        ),
        bundled!(GraphNetwork, 31, "graph: sage", "graph_sage"),
        bundled!(GraphNetwork, 35, "graph: gat", "graph_gat"),
        bundled!(GraphNetwork, 60, "graph: gin, pooled", "graph_gin_pool"),
        bundled!(GraphNetwork, 48, "graph: gine", "graph_edge_features"),
        bundled!(GraphNetwork, 44, "graph: max pool", "graph_max_pool"),
    ]
}

/// Differentiable-logic cellular automata. A sample is a grid. An automaton whose gates nearly all
/// pass an input through has gradients below rounding, and mutants there that nothing can see: the
/// Game of Life, in its small form, has gates that lean to all sixteen.
pub fn logic() -> Vec<BuiltIn> {
    use crate::logic::LogicCa;
    vec![
        bundled!(LogicCa, 2, "logic_ca: asynchronous", "logic_async_small"),
        BuiltIn::new("logic_ca: life", life, 3, None),
    ]
}

/// Three tori of 4×5 cells and what Life makes of them, for a small automaton of one channel.
fn life() -> crate::Result<(Case<crate::logic::LogicCa>, Loss)> {
    use crate::logic::patterns::{Goal, LogicData, Start};
    use crate::logic::{BoundaryCondition, LogicBatch, LogicCa, LogicSpec, channel_target};
    let spec = LogicSpec {
        family: "logic_ca".into(),
        channels: 1,
        kernels: 4,
        perception: vec![9, 8, 4, 2, 1],
        update: vec![5, 8, 8, 4, 2, 1],
        boundary: BoundaryCondition::Periodic,
        steps: 1,
        fire_rate: 1.0,
        wiring: Default::default(),
        per_kernel_wiring: false,
    };
    let data = LogicData {
        grid: [4, 5],
        start: Start::Random,
        target: Goal::Life,
        bitmap: Vec::new(),
    };
    let model = LogicCa::new(spec, 1)?;
    let key = Key::new(1).purpose("life");
    // Gates lean to those that let a value through, mixed with all the others.
    let mut stream = key.stream();
    let mut params: Vec<f64> = (0..model.layout().len())
        .map(|_| f64::from(stream.range(-1.5, 1.5) as f32))
        .collect();
    for logits in params.chunks_exact_mut(16) {
        logits[[3, 5, 6, 7, 9, 12][stream.below(6)]] += 4.0;
    }
    let mut start = vec![0.0; 3 * 4 * 5];
    data.fill_start(1, &mut key.index(1).stream(), &mut start);
    let grids = start.chunks_exact(4 * 5);
    let goal: Vec<f32> = grids
        .flat_map(|start| data.goal(1, BoundaryCondition::Periodic, start))
        .collect();
    let input = LogicBatch::new(&model, cast(&start), [3, 4, 5], None)?;
    let target = channel_target(&cast::<f32, f64>(&goal), 1, 1);
    let case = Case {
        model,
        params,
        input,
        target,
    };
    Ok((case, Loss::SumSquares))
}

/// Networks over a directed acyclic graph of single neurons.
pub fn dag() -> Vec<BuiltIn> {
    use crate::graph::DagNN;
    vec![
        bundled!(DagNN, 6, "dag: tanh", "dag_tanh"),
        bundled!(DagNN, 6, "dag: leaky relu", "dag_leaky"),
    ]
}
