//! Layers that the fast kernels compute together: a convolution and its ReLU in one pass, and the
//! backward pass of a whole stack of convolutions [over tiles](crate::layer::conv2d::stack).
//!
//! The layers one by one are what this is tested against. A pass falls back to them for other
//! scalars, for the reference kernels and where a fault sits on a layer. Which gradients are asked
//! for, and which tensors are frozen, changes no bit of the others.

use super::model::{Network, NetworkTape, Node, Value};
use super::spec::PaddingMode;
use crate::layer::Describe;
use crate::layer::activation::Activation;
use crate::layer::conv2d::cpu::correlation;
use crate::layer::conv2d::{stack, tile};
use crate::{Kernels, Pass, Scalar};

/// What may be computed together.
#[derive(Default)]
pub(crate) struct Fused {
    /// Whether a layer and the ReLU behind it are one pass.
    relu_behind: Vec<bool>,
    /// The convolutions from the input on whose backward pass is one; none, or at least two.
    pub(crate) stack: Vec<usize>,
}

impl Fused {
    pub fn find(network: &Network) -> Self {
        let relu_behind: Vec<bool> = (0..network.nodes.len())
            .map(|layer| network.has_relu_behind(layer))
            .collect();
        let stack = network.find_stack(&relu_behind);
        Fused { relu_behind, stack }
    }
}

impl Network {
    /// Whether a ReLU, and nothing else, reads this layer, which can do it in the same pass.
    fn has_relu_behind(&self, layer: usize) -> bool {
        let takes = self.nodes[layer]
            .describe()
            .is_some_and(Describe::takes_relu);
        let relu = matches!(
            self.nodes.get(layer + 1),
            Some(Node::Activation(Activation::Relu))
        );
        takes && relu && !self.is_skipped_from(layer)
    }

    /// Whether this pass computes the layer and the ReLU behind it in one: the layer's own value
    /// is then never stored. The fast kernels only, and not where a fault sits on either.
    pub(crate) fn fuses<T: Scalar>(&self, layer: usize, pass: &Pass) -> bool {
        let faulty = |at| self.fault.is_some_and(|fault| fault.at::<T>(at));
        self.fused.relu_behind[layer]
            && pass.kernels == Kernels::Fast
            && T::f32s(&[]).is_some()
            && !faulty(layer)
            && !faulty(layer + 1)
    }

    /// Whether a layer further on reads this one's output besides the next.
    fn is_skipped_from(&self, layer: usize) -> bool {
        let value = Value::Of(layer);
        self.nodes
            .iter()
            .any(|node| matches!(*node, Node::Concat(v) | Node::Add(v) if self.stored(v) == value))
    }

    /// Convolutions of stride 1 that keep the size, from the input on, a ReLU behind each but
    /// the last and nobody else reading what lies between; none where fusing them doesn't pay.
    fn find_stack(&self, relu_behind: &[bool]) -> Vec<usize> {
        let (mut found, mut shapes) = (Vec::new(), Vec::new());
        let mut layer = 0;
        while let Some(Node::Conv2d(conv)) = self.nodes.get(layer)
            && (conv.stride, conv.groups) == (1, 1)
            && conv.padding_mode == PaddingMode::Zeros
            && 2 * conv.padding == conv.dilation * (conv.kernel - 1)
        {
            found.push(layer);
            shapes.push(correlation(conv, 1));
            if !relu_behind[layer] || self.is_skipped_from(layer + 1) {
                break;
            }
            layer += 2;
        }
        let pays = (2..=stack::MAX).contains(&found.len()) && stack::pays(&shapes);
        if pays { found } else { Vec::new() }
    }

    /// Whether this layer is the last of a stack whose backward pass is one.
    pub(crate) fn ends_stack<T: Scalar>(&self, layer: usize, pass: &Pass) -> bool {
        let convs = &self.fused.stack;
        let (Some(&last), Some(below)) = (convs.last(), convs.len().checked_sub(1)) else {
            return false;
        };
        last == layer
            && pass.kernels == Kernels::Fast
            && T::f32s(&[]).is_some()
            && convs[..below].iter().all(|&l| self.fuses::<T>(l, pass))
            && convs.iter().any(|&l| self.is_trained(l))
            && !self.fault.is_some_and(|fault| fault.at::<T>(layer))
    }

    /// The gradients of the stack's weights, added to what is there.
    pub(crate) fn backward_stack<T: Scalar>(
        &self,
        params: &[T],
        input: &[T],
        tape: &mut NetworkTape<T>,
        d_y: &[T],
        d_params: &mut [T],
    ) {
        let convs = &self.fused.stack;
        let last = convs[convs.len() - 1];
        let mut saved = std::mem::take(&mut tape.saved[last]);
        let f32s = |x| T::f32s(x).expect("asked before");
        let shape_of = |layer: usize| match &self.nodes[layer] {
            Node::Conv2d(conv) => correlation(conv, tape.samples),
            _ => unreachable!("a stack is made of convolutions"),
        };
        let layers: [stack::Layer<'_>; stack::MAX] = std::array::from_fn(|l| {
            let layer = convs[l.min(convs.len() - 1)];
            let before = self.stored(Self::before(layer));
            stack::Layer {
                shape: shape_of(layer),
                weight: f32s(self.params_of(layer, params)[0]),
                x: f32s(tape.value(before, input)),
            }
        });
        let relu =
            self.fused.relu_behind[last].then(|| f32s(tape.value(Value::Of(last + 1), input)));
        let d_y = tile::Source {
            values: f32s(d_y),
            relu,
        };
        let sums = T::f32_vec(&mut saved.scratch).expect("asked before");
        stack::backward(&layers[..convs.len()], d_y, sums);
        let mut rest = &sums[..];
        for &layer in convs {
            let [d_weight, d_bias, _] = self
                .d_params_of(layer, Some(&mut *d_params))
                .map(|d| d.and_then(T::f32s_mut));
            rest = stack::add_sums(&shape_of(layer), rest, d_weight, d_bias);
        }
        tape.saved[last] = saved;
    }
}
