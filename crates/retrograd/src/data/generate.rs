//! Data for ready experiments that needs no file: generated from a seed, or built in.
//!
//! The seed belongs to the data, not to the run: runs with different seeds learn the same data.

use crate::math;
use std::collections::BTreeMap;
use std::f64::consts::PI;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::array::{Array, Values};
use super::csv::Table;
use super::formula::Formula;
use super::spec::{Source, built_in};
use crate::budget::{self, Demand, product};
use crate::rng::{Key, Stream};
use crate::{Error, Result};

/// Data that needs no file: `generate = { name = "two_moons", samples = 500 }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
pub enum Generate {
    /// Two half circles of radius 1 that reach into one another: (cos t, sin t) is `upper` and
    /// (1 − cos t, 1/2 − sin t) is `lower`, t uniform in \[0, π\], with normal noise on both `x1`
    /// and `x2`; to predict: `moon`.
    TwoMoons {
        /// How many samples, half of each class.
        #[serde(default = "samples")]
        samples: usize,
        /// Standard deviation of the noise.
        #[serde(default = "noise")]
        noise: f64,
        /// The data's own seed.
        #[serde(default)]
        seed: u64,
    },
    /// Arms of a spiral: with t uniform in \[0, 1\], the point at radius t and angle 2π(turns·t +
    /// arm/arms), with normal noise on `x1` and `x2`; to predict: `arm`.
    Spirals {
        /// How many samples, in equal shares.
        #[serde(default = "samples")]
        samples: usize,
        /// How many arms, 2 to 26, called `a`, `b`, ….
        #[serde(default = "arms")]
        arms: usize,
        /// How often each arm turns.
        #[serde(default = "turns")]
        turns: f64,
        /// Standard deviation of the noise.
        #[serde(default = "spiral_noise")]
        noise: f64,
        /// The data's own seed.
        #[serde(default)]
        seed: u64,
    },
    /// A formula of inputs that are uniform in their ranges; to predict: `f`, with normal noise.
    Formula {
        /// The formula, such as `x*y + sin(x)`.
        formula: String,
        /// The inputs with their ranges, such as `{ x = [-1, 1], y = [-1, 1] }`.
        inputs: BTreeMap<String, [f64; 2]>,
        /// How many samples.
        #[serde(default = "samples")]
        samples: usize,
        /// Standard deviation of the noise on `f`.
        #[serde(default)]
        noise: f64,
        /// The data's own seed.
        #[serde(default)]
        seed: u64,
    },
    /// Friedman's first function: y = 10·sin(π·x1·x2) + 20·(x3 − 1/2)² + 10·x4 + 5·x5 with ten
    /// inputs uniform in \[0, 1\], five of which say nothing; to predict: `y`.
    Friedman {
        /// How many samples.
        #[serde(default = "samples")]
        samples: usize,
        /// Standard deviation of the noise on `y`.
        #[serde(default)]
        noise: f64,
        /// The data's own seed.
        #[serde(default)]
        seed: u64,
    },
    /// 1797 handwritten digits of 8 × 8 pixels, 0 to 16 (see `builtin/ORIGIN.md`).
    Digits {},
}

fn samples() -> usize {
    1000
}
fn noise() -> f64 {
    0.1
}
fn spiral_noise() -> f64 {
    0.02
}
fn arms() -> usize {
    2
}
fn turns() -> f64 {
    1.0
}

/// Generated data stays in memory, as text first: more than this is a slip of the hand.
const MAX_SAMPLES: usize = 10_000_000;

impl Generate {
    /// The name in experiments.
    pub fn name(&self) -> &'static str {
        match self {
            Generate::TwoMoons { .. } => "two_moons",
            Generate::Spirals { .. } => "spirals",
            Generate::Formula { .. } => "formula",
            Generate::Friedman { .. } => "friedman",
            Generate::Digits {} => "digits",
        }
    }

    /// The columns to predict where the experiment names none.
    pub(crate) fn targets(&self) -> Vec<String> {
        let target = match self {
            Generate::TwoMoons { .. } => "moon",
            Generate::Spirals { .. } => "arm",
            Generate::Formula { .. } => "f",
            Generate::Friedman { .. } => "y",
            Generate::Digits {} => return Vec::new(),
        };
        vec![target.to_string()]
    }

    fn check(&self) -> Result<()> {
        let bad = |field: &str, got: String, needed: &str| {
            let what = format!("data.generate ({}): {field}", self.name());
            Err(Error::invalid(what, got, needed))
        };
        let (samples, noise) = match self {
            Generate::TwoMoons { samples, noise, .. }
            | Generate::Spirals { samples, noise, .. }
            | Generate::Formula { samples, noise, .. }
            | Generate::Friedman { samples, noise, .. } => (*samples, *noise),
            Generate::Digits {} => return Ok(()),
        };
        if !(1..=MAX_SAMPLES).contains(&samples) {
            return bad("samples", samples.to_string(), "1 to 10000000");
        }
        if !(noise >= 0.0 && noise.is_finite()) {
            return bad("noise", noise.to_string(), "a finite number of at least 0");
        }
        match self {
            Generate::Spirals { arms, .. } if !(2..=26).contains(arms) => {
                bad("arms", arms.to_string(), "2 to 26")
            }
            Generate::Spirals { turns, .. } if !turns.is_finite() => {
                bad("turns", turns.to_string(), "a finite number")
            }
            Generate::Formula { inputs, .. } => {
                if inputs.is_empty() || inputs.contains_key("f") {
                    let names: Vec<&String> = inputs.keys().collect();
                    return bad(
                        "inputs",
                        format!("{names:?}"),
                        "at least one, none called f",
                    );
                }
                for (name, [low, high]) in inputs {
                    let word = |c: char| c.is_alphanumeric() || c == '_';
                    if !name.chars().all(word) || !name.starts_with(|c: char| !c.is_numeric()) {
                        return bad(
                            "inputs",
                            format!("{name:?}"),
                            "names of letters, digits and _",
                        );
                    }
                    if !(low <= high && low.is_finite() && high.is_finite()) {
                        return bad(name, format!("[{low}, {high}]"), "[low, high], finite");
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Cells are texts of their own first, then cells of a table, then numbers.
    fn demand(&self) -> Demand<'static> {
        let (samples, columns) = match self {
            Generate::TwoMoons { samples, .. } | Generate::Spirals { samples, .. } => (*samples, 3),
            Generate::Formula {
                samples, inputs, ..
            } => (*samples, 1 + inputs.len() as u64),
            Generate::Friedman { samples, .. } => (*samples, 11),
            Generate::Digits {} => return Demand::fixed(1 << 20),
        };
        let sizes = [("data.generate.samples", samples as u64)];
        Demand::of(sizes, move |[samples]| product([samples, columns, 120]))
    }

    /// The data, as if it had been read.
    pub(crate) fn source(&self) -> Result<Source> {
        self.check()?;
        budget::allow(&self.demand())?;
        let path = Path::new(self.name());
        let table = |columns: &[&str], rows: Vec<Vec<String>>| {
            let columns = columns.iter().map(|c| c.to_string()).collect();
            let cell = |row: usize, column: usize| rows[row][column].clone();
            Source::Table(Table::of(path, columns, rows.len(), cell))
        };
        let stream = |seed: u64| Key::new(seed).purpose("generated data").stream();
        match self {
            Generate::TwoMoons {
                samples,
                noise,
                seed,
            } => {
                let mut s = stream(*seed);
                let rows = (0..*samples).map(|i| {
                    let t = s.range(0.0, PI);
                    let ((x1, x2), moon) = if i % 2 == 0 {
                        ((math::cos(t), math::sin(t)), "upper")
                    } else {
                        ((1.0 - math::cos(t), 0.5 - math::sin(t)), "lower")
                    };
                    point(&mut s, x1, x2, *noise, moon)
                });
                Ok(table(&["x1", "x2", "moon"], rows.collect()))
            }
            Generate::Spirals {
                samples,
                arms,
                turns,
                noise,
                seed,
            } => {
                let mut s = stream(*seed);
                let rows = (0..*samples).map(|i| {
                    let arm = i % arms;
                    let t = s.uniform();
                    let angle = 2.0 * PI * (turns * t + arm as f64 / *arms as f64);
                    let name = char::from(b'a' + arm as u8).to_string();
                    point(
                        &mut s,
                        t * math::cos(angle),
                        t * math::sin(angle),
                        *noise,
                        &name,
                    )
                });
                Ok(table(&["x1", "x2", "arm"], rows.collect()))
            }
            Generate::Formula {
                formula,
                inputs,
                samples,
                noise,
                seed,
            } => {
                let names: Vec<&str> = inputs.keys().map(String::as_str).collect();
                let parsed = Formula::parse(formula, &names)?;
                let mut s = stream(*seed);
                let mut rows = Vec::with_capacity(*samples);
                for _ in 0..*samples {
                    let x: Vec<f64> = inputs.values().map(|&[a, b]| s.range(a, b)).collect();
                    let f = parsed.evaluate(&x);
                    if !f.is_finite() {
                        return Err(Error::invalid(
                            format!("formula {formula:?} at {names:?} = {x:?}"),
                            f,
                            "a finite value everywhere in the inputs' ranges",
                        ));
                    }
                    let f = f + noise * s.normal();
                    rows.push(x.iter().chain([&f]).map(f64::to_string).collect());
                }
                let columns: Vec<&str> = names.into_iter().chain(["f"]).collect();
                Ok(table(&columns, rows))
            }
            Generate::Friedman {
                samples,
                noise,
                seed,
            } => {
                let mut s = stream(*seed);
                let rows = (0..*samples).map(|_| {
                    let x: [f64; 10] = std::array::from_fn(|_| s.uniform());
                    let y = friedman(&x) + noise * s.normal();
                    x.iter().chain([&y]).map(f64::to_string).collect()
                });
                let names: Vec<String> = (1..=10).map(|i| format!("x{i}")).collect();
                let columns: Vec<&str> = names.iter().map(String::as_str).chain(["y"]).collect();
                Ok(table(&columns, rows.collect()))
            }
            Generate::Digits {} => {
                let (x, y) = digits();
                Ok(built_in(self.name(), x, y))
            }
        }
    }
}

fn friedman(x: &[f64; 10]) -> f64 {
    10.0 * math::sin(PI * x[0] * x[1]) + 20.0 * math::powi(x[2] - 0.5, 2) + 10.0 * x[3] + 5.0 * x[4]
}

fn point(s: &mut Stream, x1: f64, x2: f64, noise: f64, class: &str) -> Vec<String> {
    let x1 = x1 + noise * s.normal();
    let x2 = x2 + noise * s.normal();
    vec![x1.to_string(), x2.to_string(), class.to_string()]
}

/// The built-in digits: images (1797, 8, 8) and the digit of each.
pub fn digits() -> (Array, Array) {
    let packed: &[u8] = include_bytes!("builtin/digits.csv.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed)
        .read_to_string(&mut text)
        .expect("the built-in file is whole: a test reads it");
    let mut pixels = Vec::new();
    let mut labels = Vec::new();
    for line in text.lines() {
        let cells = line.split(',').map(|c| c.trim().parse::<f64>());
        let cells: Vec<u8> = cells.map(|c| c.expect("a number") as u8).collect();
        let (digit, image) = cells.split_last().expect("65 columns");
        pixels.extend_from_slice(image);
        labels.push(*digit);
    }
    let n = labels.len();
    let x = Array::new(vec![n, 8, 8], Values::U8(pixels)).expect("64 pixels a line");
    let y = Array::new(vec![n], Values::U8(labels)).expect("a digit a line");
    (x, y)
}
