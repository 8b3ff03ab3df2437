//! In which order the gates of a layer are visited, so that values stay in registers.
//!
//! Gates are sorted by their inputs. Gates with the same two inputs form a group (the first
//! perception layer, whose kernels share their wiring). Where a group's a is the b of the group
//! before (a layer of unique pairs is such a chain: (0,1), (1,2), (2,3) …), a is not read again,
//! and the gradient of that input stays in a register until it is complete.

use crate::logic::LogicCa;
use crate::logic::circuit::{Circuit, Layer};

/// Gates that read the same two inputs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub a: u32,
    pub b: u32,
    pub gates: u32,
    /// a is the b of the group before.
    pub chained: bool,
    /// b is the a of the group after.
    pub carried: bool,
    /// An earlier group has written the gradient of a: add to it.
    pub add_a: bool,
    /// The same for b.
    pub add_b: bool,
}

/// A layer in the order in which its gates are visited.
#[derive(Clone, Debug)]
pub(super) struct LayerPlan {
    pub inputs: usize,
    pub groups: Vec<Group>,
    /// The gate's output, in the order of the visits.
    pub outputs: Vec<u32>,
    /// Inputs that no gate reads.
    pub unread: Vec<u32>,
    /// The place of the layer among all gates.
    pub first: usize,
}

/// The plans of all layers.
#[derive(Clone, Debug, Default)]
pub struct GatePlan {
    pub(super) perception: Vec<LayerPlan>,
    pub(super) update: Vec<LayerPlan>,
    /// For every gate, in the order of the parameters, when it is visited.
    pub(super) visit: Vec<u32>,
    /// The reverse: the gates in the order in which they are visited.
    pub(super) order: Vec<u32>,
}

impl GatePlan {
    /// The plan of a model.
    pub(in crate::logic) fn new(model: &LogicCa) -> Self {
        let mut visit = vec![0; model.gates()];
        let mut plan = |circuit: &Circuit| -> Vec<LayerPlan> {
            circuit
                .layers
                .iter()
                .map(|layer| {
                    let plan = LayerPlan::new(layer);
                    for (i, &j) in plan.outputs.iter().enumerate() {
                        visit[layer.first + j as usize] = (layer.first + i) as u32;
                    }
                    plan
                })
                .collect()
        };
        let perception = plan(&model.perception);
        let update = plan(&model.update);
        let mut order = vec![0; visit.len()];
        for (gate, &at) in visit.iter().enumerate() {
            order[at as usize] = gate as u32;
        }
        GatePlan {
            perception,
            update,
            visit,
            order,
        }
    }
}

impl LayerPlan {
    fn new(layer: &Layer) -> Self {
        let mut outputs: Vec<u32> = (0..layer.a.len() as u32).collect();
        let pair = |j: u32| (layer.a[j as usize], layer.b[j as usize]);
        outputs.sort_by_key(|&j| (pair(j), j));
        let mut groups: Vec<Group> = Vec::new();
        for &j in &outputs {
            let (a, b) = pair(j);
            match groups.last_mut() {
                Some(last) if (last.a, last.b) == (a, b) => last.gates += 1,
                _ => groups.push(Group {
                    a,
                    b,
                    gates: 1,
                    chained: false,
                    carried: false,
                    add_a: false,
                    add_b: false,
                }),
            }
        }
        let mut written = vec![false; layer.inputs];
        for i in 0..groups.len() {
            let next = groups.get(i + 1).map(|g| g.a);
            let chained = i > 0 && groups[i - 1].b == groups[i].a;
            let group = &mut groups[i];
            group.chained = chained;
            group.carried = next == Some(group.b);
            group.add_a = std::mem::replace(&mut written[group.a as usize], true);
            if !group.carried {
                group.add_b = std::mem::replace(&mut written[group.b as usize], true);
            }
        }
        LayerPlan {
            inputs: layer.inputs,
            groups,
            outputs,
            unread: (0..layer.inputs as u32)
                .filter(|&i| !written[i as usize])
                .collect(),
            first: layer.first,
        }
    }
}
