//! The layers that a network is made of, and what they read.

use crate::Scalar;
use crate::layer::activation::Activation;
use crate::layer::conv_transpose2d::ConvTranspose2d;
use crate::layer::conv2d::Conv2d;
use crate::layer::dense::Dense;
use crate::layer::dropout::Dropout;
use crate::layer::kan::Kan;
use crate::layer::norm::Norm;
use crate::layer::normalize::Normalize;
use crate::layer::pool::Pool;
use crate::layer::upsample::Upsample;
use crate::layer::{Describe, Layer};

/// A layer as built, every shape known.
pub(crate) enum Node {
    Dense(Dense),
    Kan(Kan),
    Conv2d(Conv2d),
    ConvTranspose2d(ConvTranspose2d),
    Pool(Pool),
    Upsample(Upsample),
    Norm(Norm),
    Dropout(Dropout),
    Normalize(Normalize),
    Activation(Activation),
    /// Another name for the values before it.
    Flatten,
    /// With the value of that number.
    Concat(Value),
    Add(Value),
}

/// The output of a layer, or the network's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Input,
    Of(usize),
}

macro_rules! any_layer {
    ($node:expr, $layer:ident => $use:expr, $skip:expr) => {
        match $node {
            Node::Dense($layer) => $use,
            Node::Kan($layer) => $use,
            Node::Conv2d($layer) => $use,
            Node::ConvTranspose2d($layer) => $use,
            Node::Pool($layer) => $use,
            Node::Upsample($layer) => $use,
            Node::Norm($layer) => $use,
            Node::Dropout($layer) => $use,
            Node::Normalize($layer) => $use,
            Node::Activation($layer) => $use,
            Node::Flatten | Node::Concat(_) | Node::Add(_) => $skip,
        }
    };
}

impl Node {
    pub(crate) fn layer<T: Scalar>(&self) -> Option<&dyn Layer<T>> {
        any_layer!(self, layer => Some(layer), None)
    }

    pub(crate) fn describe(&self) -> Option<&dyn Describe> {
        any_layer!(self, layer => Some(layer), None)
    }

    pub(crate) fn describe_mut(&mut self) -> Option<&mut dyn Describe> {
        any_layer!(self, layer => Some(layer), None)
    }
}
