//! Circuits as the model runs them: layers of gates with their wires and their place among the
//! parameters.

use super::{LogicSpec, Wires};

/// One layer of a circuit: gate j reads inputs a\[j\] and b\[j\]; its logits are those of gate
/// `first` + j of the flat vector.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub inputs: usize,
    pub a: Vec<u32>,
    pub b: Vec<u32>,
    pub first: usize,
}

/// Layers in a row. The values of a run lie in one vector: inputs, then each layer's outputs.
#[derive(Clone, Debug)]
pub(super) struct Circuit {
    pub layers: Vec<Layer>,
    pub inputs: usize,
    /// Inputs and all gates.
    pub values: usize,
}

impl Circuit {
    fn new(layers: Vec<Layer>) -> Self {
        Circuit {
            inputs: layers[0].inputs,
            values: layers[0].inputs + layers.iter().map(|l| l.a.len()).sum::<usize>(),
            layers,
        }
    }

    pub fn outputs(&self) -> usize {
        self.layers[self.layers.len() - 1].a.len()
    }
}
/// All kernels of one channel, kernel fastest: gate j·K + k.
pub(super) fn perception_circuit(spec: &LogicSpec, wires: &[Vec<Wires>]) -> Circuit {
    let kernels = spec.kernels;
    let mut first = 0;
    let layers = wires
        .iter()
        .enumerate()
        .map(|(l, of_kernel)| {
            let gates = spec.perception[l + 1];
            let expand = |side: fn(&Wires) -> &Vec<u32>| -> Vec<u32> {
                (0..gates * kernels)
                    .map(|e| {
                        let (j, k) = (e / kernels, e % kernels);
                        let wire = side(&of_kernel[k % of_kernel.len()])[j];
                        if l == 0 {
                            wire
                        } else {
                            wire * kernels as u32 + k as u32
                        }
                    })
                    .collect()
            };
            let layer = Layer {
                inputs: if l == 0 {
                    9
                } else {
                    spec.perception[l] * kernels
                },
                a: expand(|w| &w.a),
                b: expand(|w| &w.b),
                first,
            };
            first += gates * kernels;
            layer
        })
        .collect();
    Circuit::new(layers)
}

/// The update circuit, whose parameters follow those of the perception.
pub(super) fn update_circuit(spec: &LogicSpec, wires: &[Wires]) -> Circuit {
    let mut first = spec.perception[1..].iter().sum::<usize>() * spec.kernels;
    let layers = wires
        .iter()
        .enumerate()
        .map(|(l, wires)| {
            let layer = Layer {
                inputs: spec.update[l],
                a: wires.a.clone(),
                b: wires.b.clone(),
                first,
            };
            first += wires.gates();
            layer
        })
        .collect();
    Circuit::new(layers)
}
