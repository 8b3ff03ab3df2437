//! The layer in a list of layers: it can't be written in a file.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Own, OwnLayer};
use crate::Result;
use crate::layer::spec::{At, Built, Spec};
use crate::layer::{LayerSpec, TENSORS};

/// A layer of one's own at its place in a list; [`LayerSpec::own`] makes it.
#[derive(Clone)]
pub struct OwnSpec(Arc<dyn Build>);

/// Builds the layer for a shape.
trait Build: Send + Sync {
    fn name(&self) -> &'static str;
    fn build(&self, at: &At<'_>) -> Result<Built>;
}

struct Builds<L>(Arc<L>);

impl<L: OwnLayer> Build for Builds<L> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn build(&self, at: &At<'_>) -> Result<Built> {
        let tensors = self.0.tensors(at.shape);
        at.at_most("tensors", tensors.len(), TENSORS)?;
        let shape = self.0.output(at.shape)?;
        if shape.is_empty() || shape.contains(&0) {
            let got = format!("{shape:?} of {}", self.name());
            return Err(at.invalid("output", got, "sizes of at least 1"));
        }
        let own = Own {
            layer: self.0.clone(),
            shape: at.shape.to_vec(),
            tensors,
        };
        Built::new(own, shape)
    }
}

impl LayerSpec {
    /// A layer of one's own.
    pub fn own(layer: impl OwnLayer) -> Self {
        LayerSpec::Own(OwnSpec(Arc::new(Builds(Arc::new(layer)))))
    }
}

impl Spec for OwnSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        self.0.build(at)
    }
}

impl std::fmt::Debug for OwnSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnSpec({})", self.0.name())
    }
}

/// Equal where it is the same layer.
impl PartialEq for OwnSpec {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

const IN_FILES: &str = "a layer of one's own comes from Rust: a file can't hold it";

impl Serialize for OwnSpec {
    fn serialize<S: Serializer>(&self, _: S) -> std::result::Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom(IN_FILES))
    }
}

impl<'de> Deserialize<'de> for OwnSpec {
    fn deserialize<D: Deserializer<'de>>(_: D) -> std::result::Result<Self, D::Error> {
        Err(serde::de::Error::custom(IN_FILES))
    }
}
