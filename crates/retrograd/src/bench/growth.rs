//! Workloads that grow along one axis: doubled again and again, they show with which power of the size the time and
//! the memory of a step grow.

use super::{Prepared, ReadyExperiment};
use crate::{FAMILIES, Result, math};

/// A training step of a size of one's choice.
pub struct Growth {
    /// Its name; it begins as those of the workloads that are alike.
    pub name: &'static str,
    /// What stays as it is.
    pub about: &'static str,
    /// What a size counts.
    pub axis: &'static str,
    /// The first size.
    pub first: usize,
    /// The power of the size with which the arithmetic of large steps grows.
    pub power: u32,
    /// Builds model and batch of a size.
    pub build: fn(usize, ReadyExperiment<'_>) -> Result<Prepared>,
}

/// The families' growing workloads.
pub fn growths() -> impl Iterator<Item = &'static Growth> {
    FAMILIES.iter().flat_map(|family| family.growths)
}

/// The power of the size that figures grow with: the slope of their logarithms, by least squares. None of
/// fewer than two sizes.
pub fn exponent(figures: &[(usize, f64)]) -> Option<f64> {
    if figures.len() < 2 {
        return None;
    }
    let logs = figures.iter().map(|&(size, figure)| {
        let [size, figure] = [size as f64, figure].map(math::ln);
        (size, figure)
    });
    let logs: Vec<_> = logs.collect();
    let count = logs.len() as f64;
    let mean_of = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean_of(|log| log.0), mean_of(|log| log.1));
    let above: f64 = logs.iter().map(|log| (log.0 - x) * (log.1 - y)).sum();
    let below: f64 = logs.iter().map(|log| (log.0 - x) * (log.0 - x)).sum();
    Some(above / below)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// c·nᵖ has the slope p; with every second figure a little off, close to it.
    #[test]
    fn the_exponent_is_that_of_a_power() {
        let figures = |off: f64| -> Vec<(usize, f64)> {
            let sizes = (0..6).map(|i| 64 << i);
            let of = |(i, n): (usize, usize)| {
                (
                    n,
                    3e-9 * (n as f64).powf(1.5) * (1.0 + off * (i % 2) as f64),
                )
            };
            sizes.enumerate().map(of).collect()
        };
        assert!((exponent(&figures(0.0)).unwrap() - 1.5).abs() < 1e-12);
        let rough = exponent(&figures(0.1)).unwrap();
        assert!(
            (rough - 1.5).abs() > 1e-3 && (rough - 1.5).abs() < 0.05,
            "{rough}"
        );
        assert_eq!(exponent(&[(8, 1.0)]), None);
    }

    /// Every one builds at its first size and at twice that, and makes a step.
    #[test]
    fn workloads_grow_from_their_first_size() {
        let ready = |name: &str| {
            let path = format!(
                "{}/../../experiments/{name}.toml",
                env!("CARGO_MANIFEST_DIR")
            );
            crate::train::Experiment::read(std::path::Path::new(&path))
        };
        let mut names = std::collections::BTreeSet::new();
        for growth in growths() {
            assert!(names.insert(growth.name), "two are named {}", growth.name);
            for size in [growth.first, 2 * growth.first] {
                let mut prepared = (growth.build)(size, &ready).unwrap();
                (prepared.step)();
                assert!(
                    prepared.problem.is_some(),
                    "{}: others can't do it",
                    growth.name
                );
            }
        }
        assert!(names.len() >= 12, "{names:?}");
    }
}
