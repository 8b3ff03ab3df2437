//! The reference bundles: outputs, gradients, trajectories, and the whole chain.

use super::*;
use crate::Pass;
use crate::rng::Key;
use crate::verify::{self, Bundle, FromBundle, Options, Subject};

fn bundles(family: &str) -> Vec<Bundle> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference");
    let mut all: Vec<Bundle> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| Bundle::read(e.unwrap().path()).unwrap())
        .filter(|b| b.family() == family)
        .collect();
    all.sort_by_key(Bundle::name);
    all
}

/// Against PyTorch: f64 within 1e-10, f32 on the fast path within what rounding can explain and at
/// most 4 times PyTorch's own error, and every optimizer's trajectory in both.
fn agrees<M: FromBundle>(bundle: &Bundle) {
    let report = verify::against::<M>(bundle, &Options::default()).unwrap();
    let links = |link| report.rows.iter().any(|r| r.link == link);
    assert!(links(verify::Link::Oracle) && links(verify::Link::Peer));
    assert!(links(verify::Link::Trajectory) && links(verify::Link::Threads));
    assert!(report.passed(), "{}\n{}", report.table(), report.summary());
}

#[test]
fn every_graph_bundle_agrees_with_pytorch() {
    let all = bundles("graph");
    assert!(all.len() >= 9, "{} bundles", all.len());
    all.iter().for_each(agrees::<GraphNetwork>);
}

#[test]
fn every_dag_bundle_agrees_with_pytorch() {
    let all = bundles("dag");
    assert!(all.len() >= 2, "{} bundles", all.len());
    all.iter().for_each(agrees::<DagNN>);
}

fn passes_the_chain<M: FromBundle>(bundle: &Bundle) {
    let case = M::from_bundle(bundle).unwrap();
    checks::passes(&Subject {
        name: bundle.name(),
        model: &case.model,
        params: case.params,
        input: case.input,
        target: case.target,
        loss: bundle.loss,
        pass: Pass::training(Key::new(0)),
    });
}

#[test]
fn bundles_pass_the_whole_chain() {
    bundles("graph")
        .iter()
        .for_each(passes_the_chain::<GraphNetwork>);
    bundles("dag").iter().for_each(passes_the_chain::<DagNN>);
}

#[test]
fn an_option_that_a_layer_does_not_have_is_an_error() {
    let kinds = "tanh relu silu gelu sigmoid layer_norm mean_pool sum_pool max_pool pair_dot";
    for kind in kinds.split(' ') {
        let read = |more: &str| {
            let text = format!(r#"{{"kind":"{kind}"{more}}}"#);
            serde_json::from_str::<LayerSpec>(&text)
        };
        assert!(read("").is_ok(), "{kind}");
        let error = read(r#","slpoe":0.1"#).unwrap_err().to_string();
        assert!(error.contains("slpoe"), "{kind}: {error}");
    }
}
