//! Choices of a random model: sizes, data, targets, optimizers.

use crate::math;
use crate::optim::OptimizerSpec;
use crate::rng::{Key, Stream};
use crate::verify::BundleOptimizer;
use crate::{Loss, Model, Target};

/// Sizes around powers of two and primes.
pub(super) const SIZES: [usize; 15] = [1, 2, 3, 5, 7, 8, 9, 13, 15, 16, 17, 23, 31, 32, 33];
pub(super) const SMOOTH: [&str; 4] = ["tanh", "sigmoid", "gelu", "silu"];
pub(super) const KINKED: [&str; 3] = ["relu", "leaky_relu", "elu"];

/// What a seed chooses, in order.
pub(super) struct Draw(Stream);

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Draw(Key::new(seed).purpose("a right model").stream())
    }

    pub(super) fn of<X: Clone>(&mut self, all: &[X]) -> X {
        all[self.0.below(all.len())].clone()
    }

    pub(super) fn chance(&mut self, share: f64) -> bool {
        self.0.uniform() < share
    }

    /// From `least` to `most`, both included.
    pub(super) fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.0.below(most - least + 1)
    }

    /// Ten to a power between two.
    pub(super) fn power(&mut self, least: f64, most: f64) -> f64 {
        math::powf(10.0, self.0.range(least, most))
    }

    pub(super) fn seed(&mut self) -> u64 {
        self.0.u64()
    }

    /// Uniform in [least, most), as f32 holds it.
    pub(super) fn numbers(&mut self, count: usize, least: f64, most: f64) -> Vec<f64> {
        let number = |_| f64::from(self.0.range(least, most) as f32);
        (0..count).map(number).collect()
    }

    pub(super) fn normals(&mut self, count: usize, scale: f64) -> Vec<f64> {
        let number = |_| f64::from((scale * self.0.normal()) as f32);
        (0..count).map(number).collect()
    }

    /// Samples of some size: now and then with ties, a sample that is repeated, one of zeros.
    pub(super) fn samples(&mut self, samples: usize, each: usize) -> Vec<f64> {
        let scale = self.power(-3.0, 3.0);
        let mut x = self.normals(samples * each, scale);
        if self.chance(0.3) {
            let step = 0.5 * scale;
            for v in &mut x {
                *v = f64::from(((*v / step).round() * step) as f32);
            }
        }
        if samples > 1 && self.chance(0.3) {
            let copies = self.of(&[1, samples - 1]);
            let (first, rest) = x.split_at_mut(each);
            for sample in rest.chunks_exact_mut(each).take(copies) {
                sample.copy_from_slice(first);
            }
        }
        if samples > 1 && self.chance(0.1) {
            x[(samples - 1) * each..].fill(0.0);
        }
        x
    }

    /// Parameters around those that a model starts with, where norms and splines have other values
    /// than 1 and 0.
    pub(super) fn params<M: Model>(&mut self, model: &M) -> Vec<f64> {
        let start = model.init(self.0.u64());
        let moved = |p: &f32| f64::from((f64::from(*p) + 0.1 * self.0.normal()) as f32);
        start.iter().map(moved).collect()
    }

    /// A loss and a target for an output of rows.
    pub(super) fn target(&mut self, rows: usize, width: usize) -> (Loss, Target<f64>) {
        let mut losses = vec![
            Loss::Mse,
            Loss::L1,
            Loss::Huber,
            Loss::BceLogits,
            Loss::SumSquares,
        ];
        if width > 1 {
            losses.extend([Loss::CrossEntropy; 2]);
        }
        let loss = self.of(&losses);
        let target = match loss {
            Loss::CrossEntropy => {
                let class = |_| self.0.below(width) as u32;
                Target::classes((0..rows).map(class).collect())
            }
            Loss::BceLogits => {
                let label = |_| f64::from(u8::from(self.chance(0.4)));
                Target::values((0..rows * width).map(label).collect())
            }
            _ => Target::values(self.normals(rows * width, 1.0)),
        };
        let targets = target.values.len().max(target.classes.len());
        if self.chance(0.2) {
            let weights = (0..targets)
                .map(|_| self.of(&[0.0, 0.5, 1.0, 3.0]))
                .collect();
            return (loss, target.weighted(weights));
        }
        (loss, target)
    }

    /// Two of the optimizers, with rates from 1e-4 to 0.1.
    pub(super) fn optimizers(&mut self) -> Vec<(String, BundleOptimizer)> {
        let lr = self.power(-4.0, -1.0);
        let decay = self.of(&[0.0, 0.0, 1e-3]);
        let momentum = |nesterov| OptimizerSpec::Sgd {
            lr,
            momentum: 0.9,
            nesterov,
            weight_decay: decay,
        };
        let adam = OptimizerSpec::Adam {
            lr,
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: decay,
        };
        let mut all = vec![
            ("sgd", OptimizerSpec::sgd(lr)),
            ("momentum", momentum(false)),
            ("nesterov", momentum(true)),
            ("adam", adam),
            ("adamw", OptimizerSpec::adamw(lr)),
        ];
        self.0.shuffle(&mut all);
        all.truncate(2);
        let clip = self.of(&[None, None, Some(0.5), Some(10.0)]);
        let clip_element = self.of(&[None, None, None, Some(0.1)]);
        let named = |(name, spec): (&str, OptimizerSpec)| {
            let optimizer = BundleOptimizer {
                spec,
                clip,
                clip_element,
            };
            (name.to_string(), optimizer)
        };
        all.into_iter().map(named).collect()
    }

    /// An activation as files have it.
    pub(super) fn activation(&mut self) -> String {
        let kind = self.of(&[&SMOOTH[..], &KINKED].concat());
        match kind {
            "leaky_relu" => r#"{"kind":"leaky_relu","slope":0.2}"#.to_string(),
            "elu" => r#"{"kind":"elu","alpha":0.7}"#.to_string(),
            kind => format!(r#"{{"kind":"{kind}"}}"#),
        }
    }
}
