//! Mistakes that somebody picks, to see what they do to a training and which check sees them: those of every
//! layer kind, and of the others the ones that people make.

use super::layer::{FaultKind, Mutation};
use super::model::ModelFault;
use super::transform::Transform;
use crate::layer::LayerSpec;
use crate::plan::Place;
use crate::{Error, Grads, Layout, Result, Scalar};

/// A mistake by its words, as [`crate::Model::mistakes`] has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Which.
    pub words: String,
    /// In the f32 kernels alone: the reference stays right.
    pub only_f32: bool,
}

impl Mistake {
    pub(crate) fn unknown(&self) -> Error {
        let needed = "one of the model's own, in its words";
        Error::invalid("the mistake", &self.words, needed)
    }
}

/// Every mistake of a list of layers, with the number of its layer.
pub(crate) struct LayerMistakes(Vec<(usize, &'static str, Mutation)>);

impl LayerMistakes {
    /// The first layer computes no gradient of what it reads in a training, and what a kind's own mistakes
    /// spoil is mostly that: they are left to the later ones.
    pub fn of(places: &[Place], specs: &[LayerSpec]) -> Self {
        let mut all = Vec::new();
        for (n, (place, spec)) in places.iter().zip(specs).enumerate() {
            let own = spec.spec().faults(&*place.layer);
            let own = own
                .into_iter()
                .filter(|fault| n > 0 && fault.spoils_training);
            let general = general(place, n > 0).into_iter().map(Mutation::from);
            all.extend(own.chain(general).map(|fault| (n, spec.kind(), fault)));
        }
        LayerMistakes(all)
    }

    pub fn words(&self) -> Vec<String> {
        self.0.iter().map(words).collect()
    }

    pub fn find(&self, mistake: &Mistake) -> Result<(usize, &Mutation)> {
        let found = self.0.iter().find(|one| words(one) == mistake.words);
        let (layer, _, mutation) = found.ok_or_else(|| mistake.unknown())?;
        Ok((*layer, mutation))
    }
}

fn words((layer, kind, mutation): &(usize, &'static str, Mutation)) -> String {
    format!("layer {}, {kind}: {}", layer + 1, mutation.words)
}

/// Those of any layer that change something in this one.
fn general(place: &Place, reads_values: bool) -> Vec<FaultKind> {
    let mut all = Vec::new();
    let tensors = place.layer.tensors();
    for (slot, spec) in tensors.iter().enumerate() {
        let Some(spec) = spec else { continue };
        let of_first = [
            Transform::SwapFirst,
            Transform::SwapLast,
            Transform::Rotate,
            Transform::Shift,
            Transform::OverSamples,
            Transform::Negate,
            Transform::Scale(1.001),
        ];
        let of_first = of_first.into_iter().filter(|_| slot == 0);
        let telling = of_first.chain([Transform::Zero]);
        let telling = telling.filter(|t| changes(*t, &spec.shape));
        all.extend(telling.map(|t| FaultKind::DParam(slot, t)));
    }
    if !all.is_empty() && reads_values {
        all.push(FaultKind::X(Transform::RollSamples));
        all.push(FaultKind::DX(Transform::LastSampleOnly));
    }
    all
}

/// Whether a transform does anything to a tensor of that shape.
fn changes(transform: Transform, shape: &[usize]) -> bool {
    let right: Vec<f64> = (0..shape.iter().product())
        .map(|i| i as f64 + 1.0)
        .collect();
    let mut wrong = right.clone();
    transform.apply(&mut wrong, shape, 2);
    wrong != right
}

/// A mistake in the gradients of a model that is no list of layers.
#[derive(Clone, Debug)]
pub(crate) struct GradientMistake {
    fault: ModelFault,
    only_f32: bool,
}

impl GradientMistake {
    fn all(layout: &Layout) -> Vec<(String, ModelFault)> {
        let mut all = Vec::new();
        for (i, tensor) in layout.tensors().iter().enumerate() {
            let telling = [
                Transform::SwapFirst,
                Transform::Shift,
                Transform::DropHalf,
                Transform::Negate,
                Transform::Scale(1.001),
            ];
            let telling = telling.into_iter().filter(|t| changes(*t, &tensor.shape));
            all.extend(telling.map(|t| {
                let words = format!("d {}: {}", tensor.name, t.words());
                (words, ModelFault::Tensor(i, t))
            }));
        }
        all
    }

    pub fn words(layout: &Layout) -> Vec<String> {
        Self::all(layout)
            .into_iter()
            .map(|(words, _)| words)
            .collect()
    }

    pub fn find(layout: &Layout, mistake: &Mistake) -> Result<Self> {
        let found = Self::all(layout)
            .into_iter()
            .find(|one| one.0 == mistake.words);
        let (_, fault) = found.ok_or_else(|| mistake.unknown())?;
        let only_f32 = mistake.only_f32;
        Ok(GradientMistake { fault, only_f32 })
    }

    /// A backward pass, and the mistake after it.
    pub fn around<T: Scalar>(
        &self,
        layout: &Layout,
        samples: usize,
        d_output: &[T],
        grads: Grads<'_, T>,
        right: impl FnOnce(&[T], Grads<'_, T>),
    ) {
        if self.only_f32 && T::NAME != f32::NAME {
            return right(d_output, grads);
        }
        match self.fault {
            ModelFault::Tensor(number, transform) => {
                let Some(to) = grads.params else {
                    return right(d_output, grads);
                };
                let mut own = vec![T::ZERO; layout.len()];
                let grads_of = Grads {
                    params: Some(&mut own),
                    accumulate: false,
                    ..grads
                };
                right(d_output, grads_of);
                let tensor = &layout.tensors()[number];
                let mut torch = tensor.to_torch(&own[tensor.range()]);
                transform.apply(&mut torch, &tensor.shape, samples);
                tensor.from_torch(&torch, &mut own[tensor.range()]);
                for (to, own) in to.iter_mut().zip(own) {
                    *to = if grads.accumulate { *to + own } else { own };
                }
            }
            _ => right(d_output, grads),
        }
    }
}
