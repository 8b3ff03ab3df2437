//! The entry of networks over a directed acyclic graph of single neurons: what the verifier checks.

use super::{DagNN, DagSpec, cpu, lanes};
use crate::cuts::cut;
use crate::family::Family;
use crate::verify::builtin::{bundled, structured, subject};
use crate::verify::sizes::{Stretch, stretched};
use crate::verify::{BuiltIn, Case, Check, Options, Row, against};
use crate::{Loss, Model, Result, Target};

/// Networks over a directed acyclic graph of single neurons.
pub const FAMILY: Family = Family {
    checks: &[Check::of_bundles(against::<DagNN>)],
    built_in,
    sizes,
    ..Family::new("dag")
};

fn built_in() -> Vec<BuiltIn> {
    vec![
        bundled!(DagNN, 6, "dag: tanh", "dag_tanh"),
        bundled!(DagNN, 6, "dag: leaky relu", "dag_leaky"),
    ]
}

/// A layer of hidden nodes that read all inputs, and outputs that read all of them: samples, inputs and
/// hidden nodes.
fn sizes() -> Vec<Stretch> {
    let own = |name| cut(cpu::CUTS, name);
    let block = cut(lanes::CUTS, "BLOCK");
    // A hidden node's 3 in-edges, 2 out-edges and what it counts for itself.
    let hidden = [
        own("PIECE").over(9),
        own("PARALLEL_LEVEL").over(5 * 9),
        own("CHUNK").over(5),
    ];
    let samples = [
        block,
        block.times(16),
        own("PARTS"),
        own("PARALLEL").over(4 * 5),
    ];
    let stretch = Stretch::model("dag", check)
        .axis("samples", 5, samples)
        .axis("inputs", 3, [own("PIECE").over(4)])
        .axis("hidden nodes", 4, hidden);
    #[cfg(feature = "gpu")]
    let stretch = stretch.on_device("samples", [cut(super::gpu::CUTS, "SIDE")]);
    vec![stretch]
}

fn check(n: &[usize], options: &Options) -> Result<Vec<Row>> {
    let (samples, inputs, hidden, outputs) = (n[0], n[1], n[2], 2);
    let spec = DagSpec::new(inputs, hidden, outputs, "tanh");
    let hidden_of = |t: usize| (0..inputs).map(move |s| [s, inputs + t]);
    let output_of = |t: usize| (0..hidden).map(move |s| [inputs + s, inputs + hidden + t]);
    let edges: Vec<[usize; 2]> = (0..hidden)
        .flat_map(hidden_of)
        .chain((0..outputs).flat_map(output_of))
        .collect();
    let [sources, targets] =
        [0, 1].map(|end| edges.iter().map(|e| e[end] as u32).collect::<Vec<_>>());
    let model = DagNN::new(&spec, &sources, &targets)?;
    let params = structured(model.layout().len(), 0.3);
    let params = params.iter().map(|p| f64::from((0.5 * p) as f32)).collect();
    let case = Case {
        params,
        input: structured(samples * inputs, 0.0),
        target: Target::values(structured(samples * outputs, 1.7)),
        model,
    };
    stretched(&subject(&format!("dag {n:?}"), &case, Loss::Mse), options)
}
