//! Learning-rate schedules, as a factor on the base rate, by the step.

use crate::math;
use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The shape of a schedule. Steps are counted in optimizer steps, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ScheduleKind {
    /// The base rate throughout.
    #[default]
    Constant,
    /// Multiplied by `gamma` every `every` steps.
    Step {
        /// Steps between the drops.
        every: u64,
        /// Factor of each drop.
        #[serde(default = "default_gamma")]
        gamma: f64,
    },
    /// Half a cosine from the base rate to `min` times it, over the whole run.
    Cosine {
        /// The last rate, as a share of the base rate.
        #[serde(default)]
        min: f64,
    },
    /// PyTorch's `OneCycleLR` with cosine annealing; the base rate is its `max_lr`.
    OneCycle {
        /// The share of the run that rises.
        #[serde(default = "default_rise")]
        rise: f64,
        /// The first rate is max / this.
        #[serde(default = "default_div")]
        div_factor: f64,
        /// The last rate is the first / this.
        #[serde(default = "default_final_div")]
        final_div_factor: f64,
    },
}

fn default_gamma() -> f64 {
    0.1
}
fn default_rise() -> f64 {
    0.3
}
fn default_div() -> f64 {
    25.0
}
fn default_final_div() -> f64 {
    1e4
}

/// A schedule, with an optional linear warm-up before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Its shape.
    #[serde(flatten)]
    pub kind: ScheduleKind,
    /// Steps over which the rate rises from 0 to the schedule's own: (step + 1) / warmup.
    #[serde(default)]
    pub warmup: u64,
}

impl Schedule {
    /// The constants are in range.
    pub fn check(&self) -> Result<()> {
        let bad = |what: &str, got: f64, needed: &str| {
            Err(Error::invalid(format!("schedule.{what}"), got, needed))
        };
        match self.kind {
            ScheduleKind::Step { every: 0, .. } => bad("every", 0.0, "at least 1 step"),
            ScheduleKind::Step { gamma, .. } if !(gamma > 0.0 && gamma <= 1.0) => {
                bad("gamma", gamma, "0 < gamma ≤ 1")
            }
            ScheduleKind::Cosine { min } if !(0.0..=1.0).contains(&min) => {
                bad("min", min, "0 ≤ min ≤ 1")
            }
            ScheduleKind::OneCycle { rise, .. } if !(rise > 0.0 && rise < 1.0) => {
                bad("rise", rise, "0 < rise < 1")
            }
            ScheduleKind::OneCycle { div_factor, .. }
                if !(1.0..f64::INFINITY).contains(&div_factor) =>
            {
                bad("div_factor", div_factor, "a finite number ≥ 1")
            }
            ScheduleKind::OneCycle {
                final_div_factor, ..
            } if !(1.0..f64::INFINITY).contains(&final_div_factor) => {
                bad("final_div_factor", final_div_factor, "a finite number ≥ 1")
            }
            _ => Ok(()),
        }
    }

    /// The factor on the base rate at a step of a run of `total` steps.
    pub fn factor(&self, step: u64, total: u64) -> f64 {
        let anneal =
            |from: f64, to: f64, share: f64| to + (from - to) * (1.0 + math::cos(PI * share)) / 2.0;
        let shape = match self.kind {
            ScheduleKind::Constant => 1.0,
            ScheduleKind::Step { every, gamma } => math::powf(gamma, (step / every) as f64),
            ScheduleKind::Cosine { min } => {
                anneal(1.0, min, math::min(step as f64 / total.max(1) as f64, 1.0))
            }
            ScheduleKind::OneCycle {
                rise,
                div_factor,
                final_div_factor,
            } => {
                let first = 1.0 / div_factor;
                let last = first / final_div_factor;
                let top = rise * total as f64 - 1.0;
                let end = total as f64 - 1.0;
                let t = step as f64;
                if t <= top {
                    anneal(first, 1.0, t / top)
                } else {
                    anneal(1.0, last, math::min((t - top) / (end - top), 1.0))
                }
            }
        };
        let warm = if step < self.warmup {
            (step + 1) as f64 / self.warmup as f64
        } else {
            1.0
        };
        shape * warm
    }
}
