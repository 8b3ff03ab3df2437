//! Sizes at which kernels have many workgroups, runs and pieces: beyond those that every layer is stretched
//! to.

use super::DeviceCheck;
use super::cases::{Made, chain};
use crate::graph::GraphNetwork;
use crate::verify::builtin::graph::{SizedGraph, paired, sized};
use crate::verify::builtin::network::case;
use crate::{Loss, Model, Result};

pub(super) fn all() -> Vec<DeviceCheck> {
    let networks = NETWORKS.iter().map(|&(name, input, layers, samples)| {
        check(name, move || {
            let (case, loss) = case((name, input, layers, samples, Loss::Mse))?;
            Ok((case, loss, Vec::new()))
        })
    });
    let graphs = GRAPHS
        .iter()
        .map(|&(name, spec, nodes)| check(name, move || graph(name, spec, nodes)));
    let pairs = check("150 pairs of nodes", || {
        let spec = r#"{"features":3,"layers":[{"kind":"gcn","out":4},{"kind":"pair_dot"}]}"#;
        let (case, loss) = paired("150 pairs of nodes", spec, 150)?;
        Ok((case, loss, Vec::new()))
    });
    let whole = check("128 pairs of nodes", || {
        let spec = r#"{"features":4,"layers":[{"kind":"gcn","out":4},{"kind":"pair_dot"}]}"#;
        let (case, loss) = paired("128 pairs of nodes", spec, 128)?;
        Ok((case, loss, Vec::new()))
    });
    networks.chain(graphs).chain([pairs, whole]).collect()
}

fn check<M: Model + 'static>(
    name: &str,
    make: impl Fn() -> Result<Made<M>> + Send + Sync + 'static,
) -> DeviceCheck {
    let name = format!("device: {name}");
    DeviceCheck::of(name.clone(), false, chain(name, make))
}

/// Name, input, layers, samples.
type Shaped = (&'static str, &'static [usize], &'static str, usize);

/// 600 rows are ten workgroups of 64 and three pieces; 4,608 positions are two pieces of a bias's sum.
const NETWORKS: &[Shaped] = &[
    (
        "many rows, dense",
        &[3],
        r#"[{"kind":"dense","out":5},{"kind":"dense","out":2}]"#,
        600,
    ),
    // Full tiles of 32 inputs, or features, beside more than one of 64 outputs.
    (
        "many outputs, dense",
        &[33],
        r#"[{"kind":"tanh"},{"kind":"dense","out":130}]"#,
        9,
    ),
    (
        "many outputs, kan",
        &[5],
        r#"[{"kind":"tanh"},{"kind":"kan","out":130,"grid":4,"degree":3,"range":[-2,2]}]"#,
        9,
    ),
    (
        "many rows, kan",
        &[3],
        r#"[{"kind":"kan","out":4,"grid":3,"degree":2,"range":[-2,2],"bias":true}]"#,
        600,
    ),
    // As many as tiles, pieces and workgroups hold, and more than one of each.
    (
        "whole tiles, dense",
        &[64],
        r#"[{"kind":"dense","out":128},{"kind":"dense","out":64}]"#,
        128,
    ),
    (
        "whole tiles, dense of three pieces",
        &[32],
        r#"[{"kind":"tanh"},{"kind":"dense","out":64}]"#,
        576,
    ),
    (
        "whole tiles, kan",
        &[16],
        r#"[{"kind":"tanh"},{"kind":"kan","out":64,"grid":4,"degree":3,"range":[-2,2],"bias":true}]"#,
        128,
    ),
    (
        "whole tiles, conv2d",
        &[8, 16, 32],
        r#"[{"kind":"tanh"},{"kind":"conv2d","out":16,"kernel":3,"padding":1}]"#,
        2,
    ),
    (
        "whole workgroups, elementwise",
        &[2, 8, 8],
        r#"[{"kind":"gelu"},{"kind":"add","with":-1},{"kind":"concat","with":0},{"kind":"max_pool2d","kernel":2},{"kind":"dropout","p":0.2},{"kind":"upsample","scale":2},{"kind":"group_norm","groups":2}]"#,
        2,
    ),
    // Sixteen inputs share a workgroup of 32 features.
    (
        "many rows, kan of few features",
        &[17],
        r#"[{"kind":"tanh"},{"kind":"kan","out":4,"grid":1,"degree":1,"base":"none","range":[-2,2]}]"#,
        300,
    ),
    (
        "many positions, conv_transpose2d",
        &[2, 24, 24],
        r#"[{"kind":"conv_transpose2d","out":3,"kernel":2,"stride":2}]"#,
        2,
    ),
    (
        "many positions, conv2d",
        &[2, 48, 48],
        r#"[{"kind":"conv2d","out":3,"kernel":3,"padding":2,"padding_mode":"reflect"}]"#,
        2,
    ),
    (
        "many positions, batch_norm2d",
        &[2, 48, 48],
        r#"[{"kind":"batch_norm2d"}]"#,
        2,
    ),
];

/// More than a workgroup of nodes, of weighted edges, and than a piece of a sum over nodes.
const GRAPHS: &[(&str, &str, usize)] = &[
    (
        "weighted edges of 150 nodes",
        r#"{"features":3,"edge_weight":true,"layers":[{"kind":"gcn","out":4}]}"#,
        150,
    ),
    (
        "weighted edges of 128 nodes",
        r#"{"features":4,"edge_weight":true,"layers":[{"kind":"gcn","out":4}]}"#,
        125,
    ),
    (
        "gin of 4,200 nodes",
        r#"{"features":2,"layers":[{"kind":"gin","out":3}]}"#,
        4200,
    ),
];

fn graph(name: &str, spec: &'static str, nodes: usize) -> Result<Made<GraphNetwork>> {
    let sized_graph = SizedGraph {
        spec: spec.to_string(),
        nodes,
        hub: 70,
    };
    let (case, loss) = sized(name, &sized_graph)?;
    Ok((case, loss, Vec::new()))
}
