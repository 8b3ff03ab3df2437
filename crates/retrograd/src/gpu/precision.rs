//! Mixed precision: 16-bit storage and products, 32-bit sums and weights, and a scale on the loss.
//!
//! f16 holds 11 bits and nothing below 2⁻²⁴. Gradients are often smaller, so the loss is multiplied
//! by a power of two before backward, and the weights' gradient, which is f32, divided by it
//! afterwards: exact both times. A scale that is too large shows as a gradient that is not finite
//! beside a loss that is; that step is left out and the scale halved. After a run of good steps it
//! is doubled. In native mode the device decides all of it, in the update's kernel.

use crate::math;
use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

pub use crate::train::Precision;
use crate::{Error, Result};

/// How the loss scale of mixed precision begins and grows; the defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScale {
    /// The first scale: a power of two, at least 1.
    pub initial: f32,
    /// Good steps in a row until it is doubled.
    pub growth_interval: u32,
    /// How many of them were already made, where a run goes on.
    pub good_steps: u32,
}

impl Default for LossScale {
    fn default() -> Self {
        LossScale {
            initial: 65_536.0,
            growth_interval: 2000,
            good_steps: 0,
        }
    }
}

impl LossScale {
    /// The largest that a run can come to.
    pub(crate) fn largest() -> Self {
        LossScale {
            initial: LARGEST,
            ..Self::default()
        }
    }

    /// An error where it can't be worked with.
    pub fn check(&self) -> Result<()> {
        let is_power =
            self.initial.is_normal() && math::log2(f64::from(self.initial)).fract() == 0.0;
        if is_power && (1.0..=LARGEST).contains(&self.initial) && self.growth_interval > 0 {
            return Ok(());
        }
        Err(Error::invalid(
            "the loss scale",
            format!("{self:?}"),
            "a power of two from 1 to 2²⁴, and an interval of at least 1",
        ))
    }
}

/// The largest scale; as in optimizer.wgsl.
const LARGEST: f32 = 16_777_216.0;

/// A scale that follows the rule of optimizer.wgsl: what the CPU decides in hybrid mode, and what it
/// knows of the device's decisions in native mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub value: f32,
    pub good: u32,
    pub growth_interval: u32,
}

impl Scale {
    pub fn new(spec: LossScale) -> Self {
        Scale {
            value: spec.initial,
            good: spec.good_steps,
            growth_interval: spec.growth_interval,
        }
    }

    /// After a step whose gradient was finite.
    pub fn went_well(&mut self) {
        self.good += 1;
        if self.good >= self.growth_interval {
            self.value = math::min(2.0 * self.value, LARGEST);
            self.good = 0;
        }
    }

    /// After one whose gradient was not, where the scale can be smaller.
    pub fn halve(&mut self) {
        self.value *= 0.5;
        self.good = 0;
    }
}

/// Bytes of an activation.
pub(crate) fn real_bytes(half: bool) -> u64 {
    if half { 2 } else { 4 }
}

/// 32-bit words for that many activations.
pub(crate) fn real_words(half: bool, len: usize) -> usize {
    if half { len.div_ceil(2) } else { len }
}

/// Activations as the device keeps them, in whole words.
pub(crate) fn to_device<'a>(half: bool, values: &'a [f32], scratch: &'a mut Vec<f16>) -> &'a [u8] {
    if !half {
        return bytemuck::cast_slice(values);
    }
    scratch.clear();
    scratch.resize(values.len().next_multiple_of(2), f16::ZERO);
    scratch[..values.len()].convert_from_f32_slice(values);
    bytemuck::cast_slice(scratch.reinterpret_cast())
}

/// What came back from [`to_device`]'s layout.
pub(crate) fn from_device(half: bool, words: Vec<f32>, len: usize) -> Vec<f32> {
    if !half {
        return words;
    }
    let bits: &[u16] = bytemuck::cast_slice(&words);
    let halves: &[f16] = bits.reinterpret_cast();
    let mut values = vec![0.0; len];
    halves[..len].convert_to_f32_slice(&mut values);
    values
}

/// A kernel's text with 16-bit activations.
pub(crate) fn with_f16(text: &str) -> String {
    let text = text.replace("alias real = f32;", "alias real = f16;");
    format!("enable f16;\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_halves_on_overflow_and_doubles_after_a_run_of_good_steps() {
        let mut scale = Scale::new(LossScale {
            initial: 8.0,
            growth_interval: 3,
            good_steps: 0,
        });
        scale.halve();
        assert_eq!(scale.value, 4.0);
        for _ in 0..2 {
            scale.went_well();
        }
        assert_eq!(scale.value, 4.0);
        scale.went_well();
        assert_eq!(scale.value, 8.0);
    }

    #[test]
    fn an_odd_number_of_activations_goes_there_and_back() {
        let values = [1.0, -0.5, 65_504.0];
        let mut scratch = Vec::new();
        let bytes = to_device(true, &values, &mut scratch).to_vec();
        assert_eq!(bytes.len(), 8);
        let words = bytemuck::pod_collect_to_vec(&bytes);
        assert_eq!(from_device(true, words, 3), values);
    }
}
