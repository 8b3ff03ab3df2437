//! A model's layers, whatever model it is.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Place, RowsOf};
use crate::graph::{Features, GraphBatch, Pattern};
use crate::layer::{AnyLayer, TENSORS};
use crate::rng::Key;
use crate::{Batch, Buffer, Error, Layout, Result, Scalar};

/// A model's layers in a row, with skips, and where their tensors are: what its plans are made of.
#[derive(Clone, Copy)]
pub struct Layers<'m> {
    pub(crate) places: &'m [Place],
    pub(crate) layout: &'m Layout,
    /// Tells plans of one model from those of another.
    pub(crate) id: u64,
}

/// Counts models.
pub(crate) fn new_id() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

/// One batch of a model's input.
pub struct Input<'a, T> {
    /// What the first layer reads.
    pub values: &'a [T],
    /// Samples of a network's batch.
    pub samples: usize,
    /// The graphs, in a graph network.
    pub batch: Option<&'a GraphBatch<T>>,
    /// The grids, of an automaton.
    #[cfg_attr(
        not(feature = "gpu"),
        allow(dead_code, reason = "the GPU's kernels read it")
    )]
    pub grids: Option<Grids<'a>>,
}

/// The grids that an automaton's samples, cells, lie in.
#[derive(Clone, Copy)]
#[cfg_attr(
    not(feature = "gpu"),
    allow(dead_code, reason = "the GPU's kernels read it")
)]
pub struct Grids<'a> {
    /// Rows and columns.
    pub size: [usize; 2],
    /// Which cells fire, by step, row and column; all where nothing says so.
    pub fire: Option<&'a [bool]>,
}

impl<T> Clone for Input<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Input<'_, T> {}

impl<'a, T: Scalar> Input<'a, T> {
    /// A batch of graphs.
    pub(crate) fn of_graphs(batch: &'a GraphBatch<T>) -> Self {
        Input {
            values: &batch.values()[..batch.feature_values()],
            samples: batch.graph().nodes(),
            batch: Some(batch),
            grids: None,
        }
    }

    pub(crate) fn rows(&self, of: RowsOf) -> usize {
        match (of, self.batch) {
            (RowsOf::Nodes, Some(batch)) => batch.graph().nodes(),
            (RowsOf::Graphs, Some(batch)) => batch.graph().graphs(),
            (RowsOf::Pairs, Some(batch)) => batch.pairs().len(),
            _ => self.samples,
        }
    }

    /// The places of the values, where they are sparse.
    pub(crate) fn sparse(&self) -> Option<&'a Pattern> {
        match self.batch.map(GraphBatch::features) {
            Some(Features::Sparse(pattern)) => Some(pattern),
            _ => None,
        }
    }
}

impl Layers<'_> {
    /// Initial values. A tensor's stream is a number that the model gives by the tensor's layer and
    /// slot and its place among all tensors.
    pub fn init(&self, seed: u64, stream: impl Fn(usize, usize, usize) -> usize) -> Vec<f32> {
        let mut params = vec![0.0; self.layout.len()];
        for (layer, place) in self.places.iter().enumerate() {
            for (slot, range) in place.tensors.iter().enumerate() {
                let mut tensors = self.layout.tensors().iter().enumerate();
                let tensor = tensors.find(|(_, t)| t.range() == *range);
                let Some((number, tensor)) = tensor.filter(|_| !range.is_empty()) else {
                    continue;
                };
                // A stream of its own for every tensor: equal shapes start with other weights.
                let index = stream(layer, slot, number) as u64;
                let mut stream = Key::new(seed).purpose("init").index(index).stream();
                let values = place.layer.init(slot, tensor.len(), &mut stream);
                tensor.from_torch(&values, &mut params[range.clone()]);
            }
        }
        params
    }

    /// What is saved with the parameters but not trained.
    pub fn buffers(&self) -> Vec<Buffer> {
        let mut all = Vec::new();
        for (layer, place) in self.places.iter().enumerate() {
            for mut buffer in place.layer.buffers() {
                buffer.name = format!("{layer}.{}", buffer.name);
                all.push(buffer);
            }
        }
        all
    }

    pub fn params_of<'a, T>(&self, layer: usize, params: &'a [T]) -> [&'a [T]; TENSORS] {
        std::array::from_fn(|slot| &params[self.places[layer].tensors[slot].clone()])
    }

    /// The gradients of a layer's trained tensors; frozen and absent ones are `None`.
    pub fn d_params_of<'a, T>(
        &self,
        layer: usize,
        mut d_params: Option<&'a mut [T]>,
    ) -> [Option<&'a mut [T]>; TENSORS] {
        // The tensors of a layer follow one another: split off one at a time.
        let mut taken = 0;
        std::array::from_fn(|slot| {
            let range = self.places[layer].tensors[slot].clone();
            if range.is_empty() {
                return None;
            }
            let rest = d_params.take()?.split_at_mut(range.start - taken).1;
            let (own, rest) = rest.split_at_mut(range.len());
            taken = range.end;
            d_params = Some(rest);
            (!self.layout.is_frozen(range)).then_some(own)
        })
    }
}

/// Takes a saved buffer back. An error where no layer has it or it doesn't fit.
pub(crate) fn set_buffer(places: &mut [Place], buffer: &Buffer) -> Result<()> {
    let what = || format!("buffer {}", buffer.name);
    if let Some(i) = buffer.values.iter().position(|v| !v.is_finite()) {
        let element = format!("{}, element {i}", what());
        return Err(Error::invalid(element, buffer.values[i], "a finite number"));
    }
    if let Some((layer, name)) = buffer.name.split_once('.')
        && let Ok(layer) = layer.parse::<usize>()
        && let Some(place) = places.get_mut(layer)
        && place.layer.set_buffer(name, buffer)?
    {
        return Ok(());
    }
    let of = |(layer, place): (usize, &Place)| -> Vec<String> {
        let buffers = place.layer.buffers().into_iter();
        buffers.map(|b| format!("{layer}.{}", b.name)).collect()
    };
    let names: Vec<String> = places.iter().enumerate().flat_map(of).collect();
    let needed = format!("one of the model's buffers: [{}]", names.join(", "));
    Err(Error::invalid(what(), "no such buffer", needed))
}

/// Replaces a layer by what `wrap` makes of it.
pub(crate) fn wrap_layer(
    places: &mut Vec<Place>,
    layer: usize,
    wrap: impl FnOnce(Box<dyn AnyLayer>) -> Box<dyn AnyLayer>,
) {
    let place = places.remove(layer);
    let wrapped = wrap(place.layer);
    places.insert(
        layer,
        Place {
            layer: wrapped,
            ..place
        },
    );
}
