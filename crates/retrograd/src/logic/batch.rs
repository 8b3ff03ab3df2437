//! What goes into an automaton: states, which cells fire, what is wanted; and reference bundles.

use super::grid::check_shape;
use super::model::wires_of;
use super::{LogicCa, LogicSpec};
use crate::model::Batch;
use crate::verify::{Bundle, Case, FromBundle};
use crate::{Error, Result, Scalar, Target};

/// States of several grids of one size, and which cells fire in which step.
#[derive(Clone, Debug, PartialEq)]
pub struct LogicBatch<T> {
    /// (batch, height, width, channels).
    pub state: Vec<T>,
    /// Grids.
    pub batch: usize,
    /// Rows of a grid.
    pub height: usize,
    /// Columns of a grid.
    pub width: usize,
    /// (steps, height, width), the same for all grids; none where every cell fires.
    pub fire: Option<Vec<bool>>,
}

impl<T: Scalar> LogicBatch<T> {
    /// A batch for a model, everything checked.
    pub fn new(
        model: &LogicCa,
        state: Vec<T>,
        [batch, height, width]: [usize; 3],
        fire: Option<Vec<bool>>,
    ) -> Result<Self> {
        let made = LogicBatch {
            state,
            batch,
            height,
            width,
            fire,
        };
        made.check_lengths(model)?;
        if let Some(i) = made.state.iter().position(|x| !x.is_finite()) {
            return Err(Error::invalid(
                format!("state, element {i}"),
                made.state[i].to_f64(),
                "a finite number",
            ));
        }
        Ok(made)
    }

    /// Whether the states and the cells that fire are as many as the model and the size say.
    pub(super) fn check_lengths(&self, model: &LogicCa) -> Result<()> {
        let (batch, height, width) = (self.batch, self.height, self.width);
        let channels = model.spec().channels;
        check_shape(height, width, channels)?;
        let len = batch * height * width * channels;
        if batch == 0 || self.state.len() != len {
            return Err(Error::invalid(
                "state",
                format!("{} values", self.state.len()),
                format!("{batch}·{height}·{width}·{channels}, of at least one grid"),
            ));
        }
        let steps = model.spec().steps;
        if let Some(fire) = &self.fire
            && fire.len() != steps * height * width
        {
            return Err(Error::invalid(
                "fire",
                format!("{} values", fire.len()),
                format!("{steps}·{height}·{width}: steps, rows, columns"),
            ));
        }
        Ok(())
    }

    /// Whether cell (y, x) fires in step t.
    pub fn fires(&self, t: usize, y: usize, x: usize) -> bool {
        let cell = (t * self.height + y) * self.width + x;
        self.fire.as_ref().is_none_or(|fire| fire[cell])
    }
}

impl<T: Send + Sync> Batch<T> for LogicBatch<T> {
    fn values(&self) -> &[T] {
        &self.state
    }
    fn values_mut(&mut self) -> &mut [T] {
        &mut self.state
    }
}

impl FromBundle for LogicCa {
    fn from_bundle(bundle: &Bundle) -> Result<Case<Self>> {
        let spec: LogicSpec = bundle.model_spec()?;
        spec.check()?;
        let wires = |circuit: &str, widths: &[usize]| {
            (0..widths.len() - 1)
                .map(|l| {
                    let name = format!("input/wires.{circuit}.{l}");
                    let array = bundle.array(&name)?;
                    let gates = widths[l + 1];
                    if !array.shape.ends_with(&[2, gates]) {
                        return Err(Error::file(
                            &bundle.path,
                            &name,
                            format!("shape {:?}, needs [2, {gates}]", array.shape),
                        ));
                    }
                    wires_of(&name, &array.values, gates)
                })
                .collect::<Result<Vec<_>>>()
        };
        let perception = wires("perception", &spec.perception)?;
        let update = wires("update", &spec.update)?
            .into_iter()
            .map(|mut w| w.remove(0))
            .collect();
        let model = LogicCa::with_wires(spec, perception, update)?;
        let state = bundle.array("input/state")?;
        let &[batch, height, width, channels] = &state.shape[..] else {
            return Err(Error::file(
                &bundle.path,
                "input/state",
                format!("shape {:?}, needs (B, H, W, C)", state.shape),
            ));
        };
        if channels != model.spec().channels {
            return Err(Error::file(
                &bundle.path,
                "input/state",
                format!(
                    "{channels} channels, the model has {}",
                    model.spec().channels
                ),
            ));
        }
        let fire = bundle
            .get("input/fire")
            .map(|fire| fire.values.iter().map(|&f| f != 0.0).collect());
        let input = LogicBatch::new(&model, state.values.clone(), [batch, height, width], fire)?;
        let first = &bundle.array("input/target")?.values;
        if first.len() != batch * height * width {
            return Err(Error::file(
                &bundle.path,
                "input/target",
                format!("{} values, needs one for every cell", first.len()),
            ));
        }
        let target = channel_target(first, 1, channels);
        let params = bundle.flat(&model, "param")?;
        Ok(Case {
            model,
            params,
            input,
            target,
        })
    }
}

/// A target for the first `read` channels of every cell, given in the order (cell, channel); the
/// others have weight 0.
pub fn channel_target<T: Scalar>(values: &[T], read: usize, channels: usize) -> Target<T> {
    let cells = values.len() / read;
    let mut all = vec![T::ZERO; cells * channels];
    let mut weights = vec![T::ZERO; cells * channels];
    for cell in 0..cells {
        for c in 0..read {
            all[cell * channels + c] = values[cell * read + c];
            weights[cell * channels + c] = T::ONE;
        }
    }
    Target::values(all).weighted(weights)
}
