//! The models whose steps a device records: lists of layers.

use std::sync::OnceLock;

use crate::graph::{GraphBatch, GraphNetwork};
use crate::network::{Network, Sparsity};
use crate::plan::{Input, Layers, Place};
use crate::{Batch, Model, Result, Scalar};

/// A model made of layers, which a device can record: [`Network`] and [`GraphNetwork`]; automata and
/// networks on a DAG are one layer each.
pub trait Recorded: Model {
    /// A batch, as it is borrowed.
    type Given: ?Sized;

    /// A batch of the training loop.
    fn given(input: &Self::Input<f32>) -> &Self::Given;

    /// Whether a batch fits.
    fn check_given(&self, batch: &Self::Given) -> Result<()>;

    /// A batch as the layers are given it.
    #[doc(hidden)]
    fn input_of<'a>(&self, batch: &'a Self::Given) -> Input<'a, f32>;

    /// What the plans are made of.
    #[doc(hidden)]
    fn layers_of(&self) -> Layers<'_>;

    /// The penalty on the parameters.
    fn sparsity(&self) -> Option<&Sparsity>;

    /// The same model, built anew.
    fn built_anew(&self) -> Result<Self>
    where
        Self: Sized;
}

/// A model that is one layer on a device, made when it is first put on one.
#[derive(Default)]
pub(crate) struct OnDevice(OnceLock<Vec<Place>>);

impl OnDevice {
    pub fn get_or_make(&self, make: impl FnOnce() -> Place) -> &[Place] {
        self.0.get_or_init(|| vec![make()])
    }
}

impl Clone for OnDevice {
    /// Made anew: a copy may be changed.
    fn clone(&self) -> Self {
        OnDevice::default()
    }
}

impl std::fmt::Debug for OnDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnDevice")
    }
}

impl Recorded for Network {
    type Given = [f32];

    fn given(input: &Vec<f32>) -> &[f32] {
        input
    }

    fn check_given(&self, batch: &[f32]) -> Result<()> {
        self.check_batch(batch)
    }

    fn input_of<'a>(&self, batch: &'a [f32]) -> Input<'a, f32> {
        self.input(batch)
    }

    fn layers_of(&self) -> Layers<'_> {
        self.layers()
    }

    fn sparsity(&self) -> Option<&Sparsity> {
        self.spec().sparsity.as_ref()
    }

    fn built_anew(&self) -> Result<Self> {
        Network::new(self.spec())
    }
}

impl Recorded for GraphNetwork {
    type Given = GraphBatch<f32>;

    fn given(input: &GraphBatch<f32>) -> &GraphBatch<f32> {
        input
    }

    fn check_given(&self, batch: &GraphBatch<f32>) -> Result<()> {
        self.check(batch)
    }

    fn input_of<'a>(&self, batch: &'a GraphBatch<f32>) -> Input<'a, f32> {
        Input::of_graphs(batch)
    }

    fn layers_of(&self) -> Layers<'_> {
        self.layers()
    }

    fn sparsity(&self) -> Option<&Sparsity> {
        None
    }

    fn built_anew(&self) -> Result<Self> {
        GraphNetwork::new(self.spec())
    }
}

impl<'a, T: Scalar> Input<'a, T> {
    /// The numbers of a batch that have a gradient: the values that layers read, the edges' weights
    /// and the edges' features.
    pub(crate) fn differentiable(&self) -> [usize; 3] {
        match self.batch {
            None => [self.values.len(), 0, 0],
            Some(batch) => {
                let [features, edges] = [batch.feature_values(), batch.edge_features_start()];
                let all = batch.values().len();
                [features, edges - features, all - edges]
            }
        }
    }
}
