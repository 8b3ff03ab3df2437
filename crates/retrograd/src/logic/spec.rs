//! The description of an automaton, as files have it.

use serde::{Deserialize, Serialize};

use super::grid::check_shape;
use super::{BoundaryCondition, WiringKind};
use crate::{Error, Result};

/// A differentiable-logic cellular automaton, as written in files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogicSpec {
    /// Always `logic_ca`.
    #[serde(default = "family")]
    pub family: String,
    /// Channels of a cell, 1 to 128.
    pub channels: usize,
    /// Perception kernels.
    pub kernels: usize,
    /// Widths of a perception kernel, from the 9 inputs to its outputs.
    pub perception: Vec<usize>,
    /// Widths of the update circuit, from channels + channels·outputs·kernels inputs to the
    /// channels.
    pub update: Vec<usize>,
    /// What lies beyond the border.
    #[serde(default)]
    pub boundary: BoundaryCondition,
    /// Steps of the automaton in one forward.
    pub steps: usize,
    /// The chance that a cell takes its new state in a step; 1 is synchronous.
    #[serde(default = "synchronous")]
    pub fire_rate: f64,
    /// How gates are wired.
    #[serde(default)]
    pub wiring: WiringKind,
    /// The seed that draws the wires of the first attempt, whatever the run's; the run's where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wiring_seed: Option<u64>,
    /// Every perception kernel has a wiring of its own.
    #[serde(default)]
    pub per_kernel_wiring: bool,
    /// The logit that every gate starts with for passing a through; the others start at 0.
    #[serde(default = "pass_logit", skip_serializing_if = "is_pass_logit")]
    pub pass_logit: f64,
    /// The price of a gate that does something: this times the sum of every gate's chance to be another
    /// one than those that pass an input on is added to the loss.
    #[serde(default, skip_serializing_if = "is_free")]
    pub gate_penalty: f64,
}

fn is_free(penalty: &f64) -> bool {
    *penalty == 0.0
}

/// The paper's.
fn pass_logit() -> f64 {
    10.0
}
fn is_pass_logit(logit: &f64) -> bool {
    *logit == pass_logit()
}

fn family() -> String {
    "logic_ca".into()
}
fn synchronous() -> f64 {
    1.0
}

impl LogicSpec {
    /// Inputs of the update circuit.
    pub fn update_inputs(&self) -> usize {
        let outputs = self.perception.last().copied().unwrap_or(0);
        // Sizes of no use to anyone saturate, and are refused as such.
        let read = self.channels.saturating_mul(outputs);
        self.channels
            .saturating_add(read.saturating_mul(self.kernels))
    }

    /// Widths, counts and rates fit together.
    pub fn check(&self) -> Result<()> {
        let bad = |what: &str, got: String, needed: String| Err(Error::invalid(what, got, needed));
        if self.family != family() {
            return bad("model.family", self.family.clone(), family());
        }
        check_shape(1, 1, self.channels)?;
        if self.kernels == 0 {
            return bad("kernels", "0".into(), "at least 1".into());
        }
        if self.per_kernel_wiring && self.wiring == WiringKind::Jax {
            return bad(
                "per_kernel_wiring",
                "true".into(),
                "false with wiring = \"jax\": the notebook's kernels share their wires".into(),
            );
        }
        if self.steps == 0 {
            return bad("steps", "0".into(), "at least 1".into());
        }
        if !(self.fire_rate > 0.0 && self.fire_rate <= 1.0) {
            return bad(
                "fire_rate",
                self.fire_rate.to_string(),
                "0 < fire_rate ≤ 1".into(),
            );
        }
        if !(0.0..=100.0).contains(&self.pass_logit) {
            return bad(
                "pass_logit",
                self.pass_logit.to_string(),
                "0 ≤ pass_logit ≤ 100".into(),
            );
        }
        if !(self.gate_penalty >= 0.0 && self.gate_penalty.is_finite()) {
            return bad(
                "gate_penalty",
                self.gate_penalty.to_string(),
                "a finite number ≥ 0".into(),
            );
        }
        for (name, widths) in [("perception", &self.perception), ("update", &self.update)] {
            if widths.len() < 2 || widths.contains(&0) {
                return bad(
                    name,
                    format!("{widths:?}"),
                    "at least two widths, all positive".into(),
                );
            }
            if widths.iter().any(|&w| w > 1 << 20) {
                return bad(name, format!("{widths:?}"), "widths up to 2²⁰".into());
            }
        }
        if self.perception[0] != 9 {
            return bad(
                "perception[0]",
                self.perception[0].to_string(),
                "9, the 3×3 neighbourhood".into(),
            );
        }
        if self.update[0] != self.update_inputs() {
            return bad(
                "update[0]",
                self.update[0].to_string(),
                format!(
                    "{}: channels + channels·perception outputs·kernels",
                    self.update_inputs()
                ),
            );
        }
        let last = self.update[self.update.len() - 1];
        if last != self.channels {
            return bad(
                "update's last width",
                last.to_string(),
                format!("{}, the number of channels", self.channels),
            );
        }
        Ok(())
    }
}
