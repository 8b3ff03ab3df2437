//! What a layer kind is in files: its options, and what follows from them.

use super::{AnyLayer, LayerSpec, TENSORS};
use crate::Layout;
use crate::plan::{Place, RowsOf, Value, before};
use crate::verify::mutants::Mutation;
use crate::verify::sizes::Stretch;
use crate::{Error, Loss, Result};

/// A layer kind's options, as written in files. One struct for each kind, in its folder.
pub(crate) trait Spec {
    /// Checks the options against the shape before the layer, and builds it.
    fn build(&self, at: &At<'_>) -> Result<Built>;

    /// What a pixel of the output sees, where a layer sees a neighbourhood alone.
    fn reach(&self, before: View) -> Reach {
        let _ = before;
        Reach::Refused("looks at the whole image")
    }

    /// The mistakes that people make in this kind's backward pass.
    fn faults(&self, layer: &dyn AnyLayer) -> Vec<Mutation> {
        let _ = layer;
        Vec::new()
    }

    /// Small networks, made of this kind and others, that the kind is verified on.
    fn small() -> &'static [Small]
    where
        Self: Sized,
    {
        &[]
    }

    /// Small graph networks, for a kind that looks at a graph.
    fn small_graphs() -> &'static [SmallGraph]
    where
        Self: Sized,
    {
        &[]
    }

    /// Models of this kind whose sizes are drawn around the cuts of its kernels.
    fn sizes() -> Vec<Stretch>
    where
        Self: Sized,
    {
        Vec::new()
    }
}

/// A model for the verifier: its name, which begins with the kind, the sample's shape, the layers as
/// JSON, samples, and the loss.
pub(crate) type Small = (&'static str, &'static [usize], &'static str, usize, Loss);

/// A graph network for the verifier: its name, which begins with the kind, and its spec as JSON.
pub(crate) type SmallGraph = (&'static str, &'static str);

/// A layer as built, the shape of its output and the earlier value that a skip reads.
pub(crate) struct Built {
    pub layer: Box<dyn AnyLayer>,
    pub shape: Vec<usize>,
    pub with: Option<Value>,
    /// What its output has a row for, where that is something else than before it.
    pub rows: Option<RowsOf>,
}

impl Built {
    /// A layer that reads the one before it.
    pub fn new(layer: impl AnyLayer, shape: Vec<usize>) -> Result<Self> {
        Ok(Built {
            layer: Box::new(layer),
            shape,
            with: None,
            rows: None,
        })
    }

    /// One whose output has a row for something else.
    pub fn per(rows: RowsOf, layer: impl AnyLayer, shape: Vec<usize>) -> Result<Self> {
        let rows = Some(rows);
        let built = Self::new(layer, shape)?;
        Ok(Built { rows, ..built })
    }

    /// One that reads an earlier value too.
    pub fn skip(layer: impl AnyLayer, with: Value, shape: Vec<usize>) -> Result<Self> {
        let with = Some(with);
        let built = Self::new(layer, shape)?;
        Ok(Built { with, ..built })
    }
}

/// A pixel of a value stands for a block of `jump` pixels of the image, and depends on pixels up to
/// `radius` to either side of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub jump: usize,
    pub radius: usize,
}

impl View {
    /// The jump after pixels became `scale` times as many.
    pub fn finer(self, scale: usize) -> Option<usize> {
        (scale > 0 && self.jump.is_multiple_of(scale)).then(|| self.jump / scale)
    }
}

/// What a layer does to what a pixel sees.
pub(crate) enum Reach {
    Sees(View),
    /// The larger of two views of one jump: that before it, and an earlier layer's.
    With(i64),
    /// It can't be tiled: why.
    Refused(&'static str),
}

/// The largest kernel, stride, dilation and scale: beyond it sizes would overflow.
pub(crate) const MAX_PIXELS: usize = 1 << 16;
/// The most values of one sample of a layer's output: positions are 32 bits wide.
const MAX_VALUES: usize = 1 << 31;

/// Where a layer is built: what comes before it, and the words for its errors.
pub(crate) struct At<'a> {
    pub index: usize,
    pub kind: &'static str,
    /// Of one sample of the value before it.
    pub shape: &'a [usize],
    /// Of the network's input, and of every earlier layer's output.
    pub input: &'a [usize],
    pub places: &'a [Place],
    /// What the value before it has a row for.
    pub rows: RowsOf,
    /// Features per edge, in a graph network.
    pub edge_features: Option<usize>,
}

impl At<'_> {
    /// Whether the layer is one of a graph network.
    pub fn is_on_graph(&self) -> bool {
        self.edge_features.is_some()
    }

    /// The width of the nodes' rows before it, for a layer that looks at the graph.
    pub fn nodes(&self) -> Result<usize> {
        if !self.is_on_graph() {
            let needed = format!(
                "a graph: {} is a layer of graph networks, family = \"graph\"",
                self.kind
            );
            return Err(self.invalid("", "a network without a graph", needed));
        }
        if self.rows != RowsOf::Nodes {
            return Err(Error::invalid(
                format!("{}'s input", self.place("")),
                format!("one row per {}", self.rows.name()),
                "one row per node",
            ));
        }
        Ok(self.shape.iter().product())
    }

    /// A probability below 1.
    pub fn probability(&self, option: &str, p: f64) -> Result<f64> {
        match (0.0..1.0).contains(&p) {
            true => Ok(p),
            false => Err(self.invalid(option, p, "0 ≤ p < 1")),
        }
    }

    /// The place of an option, or of the layer.
    pub fn place(&self, option: &str) -> String {
        let (index, kind) = (self.index, self.kind);
        match option {
            "" => format!("layers[{index}] ({kind})"),
            option => format!("layers[{index}].{option} ({kind})"),
        }
    }

    pub fn invalid(
        &self,
        option: &str,
        got: impl std::fmt::Display,
        needed: impl std::fmt::Display,
    ) -> Error {
        Error::invalid(self.place(option), got, needed)
    }

    pub fn positive(&self, option: &str, n: usize) -> Result<usize> {
        match n {
            0 => Err(self.invalid(option, 0, "at least 1")),
            n => Ok(n),
        }
    }

    pub fn at_most(&self, option: &str, n: usize, most: usize) -> Result<usize> {
        match n <= most {
            true => Ok(n),
            false => Err(self.invalid(option, n, format!("at most {most}"))),
        }
    }

    pub fn finite(&self, option: &str, x: f64) -> Result<f64> {
        match x.is_finite() {
            true => Ok(x),
            false => Err(self.invalid(option, x, "a finite number")),
        }
    }

    /// Channels, height and width of what comes before.
    pub fn image(&self) -> Result<[usize; 3]> {
        match *self.shape {
            [c, h, w] => Ok([c, h, w]),
            _ if self.is_on_graph() => {
                let got = format!(
                    "a graph network, whose layers read a row per {}",
                    self.rows.name()
                );
                let needed = format!("images: {} is a layer of networks on images", self.kind);
                Err(self.invalid("", got, needed))
            }
            _ => Err(Error::invalid(
                format!("{}'s input", self.place("")),
                format!("{:?}", self.shape),
                "[channels, height, width]",
            )),
        }
    }

    /// The length of the last axis before it.
    pub fn last(&self) -> usize {
        *self.shape.last().expect("at least one axis")
    }

    /// The shape before it with another last axis.
    pub fn with_last(&self, n: usize) -> Vec<usize> {
        let mut shape = self.shape.to_vec();
        *shape.last_mut().expect("at least one axis") = n;
        shape
    }

    /// An earlier value and its shape, −1 for the network's input.
    pub fn earlier(&self, with: i64) -> Result<(Value, &[usize])> {
        match usize::try_from(with) {
            Err(_)
                if with == -1 && self.rows_fit(with, self.places.first().map(|p| p.reads))? =>
            {
                Ok((Value::Input, self.input))
            }
            Ok(layer)
                if layer < self.index && self.rows_fit(with, Some(self.places[layer].rows))? =>
            {
                Ok((Value::Of(layer), &self.places[layer].shape))
            }
            _ => {
                let last = self.index as i64 - 1;
                let needed = format!("−1 (the input) to {last}, a layer before this one");
                Err(self.invalid("with", with, needed))
            }
        }
    }
}

impl At<'_> {
    /// Whether an earlier value has a row for what the one before has a row for.
    fn rows_fit(&self, with: i64, rows: Option<RowsOf>) -> Result<bool> {
        let rows = rows.unwrap_or(self.rows);
        if rows == self.rows {
            return Ok(true);
        }
        let got = format!("layer {with}, a row per {}", rows.name());
        Err(self.invalid("with", got, format!("a row per {}", self.rows.name())))
    }
}

/// What the first layer reads.
pub(crate) struct Given<'a> {
    /// The shape of a sample, or of a row.
    pub shape: &'a [usize],
    pub rows: RowsOf,
    /// Features per edge, in a graph network.
    pub edge_features: Option<usize>,
}

/// The most layers.
pub(crate) const MAX_LAYERS: usize = 1024;

/// A model's layers and where their tensors are; every shape and option is checked here.
pub(crate) fn build(specs: &[LayerSpec], given: &Given<'_>) -> Result<(Vec<Place>, Layout)> {
    if specs.is_empty() {
        return Err(Error::invalid("model.layers", "none", "at least one layer"));
    }
    if specs.len() > MAX_LAYERS {
        let needed = format!("at most {MAX_LAYERS}");
        return Err(Error::invalid("model.layers", specs.len(), needed));
    }
    if specs.iter().all(|l| matches!(l, LayerSpec::Flatten(_))) {
        return Err(Error::invalid(
            "model.layers",
            "nothing but flatten",
            "a layer that computes",
        ));
    }
    let (mut places, mut layout) = (Vec::<Place>::new(), Layout::new());
    for (index, spec) in specs.iter().enumerate() {
        let (shape, reads) = match before(index) {
            Value::Input => (given.shape, given.rows),
            Value::Of(layer) => (&places[layer].shape[..], places[layer].rows),
        };
        let at = At {
            index,
            kind: spec.kind(),
            shape,
            input: given.shape,
            places: &places,
            rows: reads,
            edge_features: given.edge_features,
        };
        let built = spec.spec().build(&at)?;
        check_size(&format!("model.layers[{index}]"), "an output", &built.shape)?;
        let mut tensors = [(); TENSORS].map(|()| 0..0);
        for (range, tensor) in tensors.iter_mut().zip(built.layer.tensors()) {
            if let Some(t) = tensor {
                let name = format!("{index}.{}", t.name);
                *range = layout.push_stored(name, &t.shape, &t.order);
            }
        }
        places.push(Place {
            layer: built.layer,
            kind: spec.kind(),
            with: built.with,
            reads,
            rows: built.rows.unwrap_or(reads),
            shape: built.shape,
            tensors,
        });
    }
    Ok((places, layout))
}

/// Whether one sample of what a layer makes can be counted, and be meant.
pub(crate) fn check_size(place: &str, what: &str, shape: &[usize]) -> Result<()> {
    let values = shape
        .iter()
        .try_fold(1_usize, |n, &size| n.checked_mul(size));
    if values.is_none_or(|n| n > MAX_VALUES) {
        return Err(Error::invalid(
            place,
            format!("{what} of {shape:?}"),
            format!("at most {MAX_VALUES} values a sample"),
        ));
    }
    Ok(())
}

/// Defaults of options.
pub(crate) fn yes() -> bool {
    true
}
pub(crate) fn one() -> usize {
    1
}
