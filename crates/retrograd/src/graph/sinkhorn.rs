//! A structural loss between two graphs: how far their nodes are from being matched.
//!
//! The nodes' rows x (n) and y (m) are matched softly by an entropic transport plan. With
//! C_ij = ‖x_i − y_j‖², temperature ε, marginals 1/n and 1/m, and L = −C/ε, `iterations` times
//!
//! ```text
//! u_i ← −ln n − ln Σ_j e^(L_ij + v_j),   v_j ← −ln m − ln Σ_i e^(L_ij + u_i)
//! ```
//!
//! from v = 0, and P = e^(L + u + v). The loss is what the plan costs, plus (λ = `structure`) how
//! badly it carries the edges of one graph onto those of the other:
//!
//! ```text
//! loss = Σ P·C + λ/(n·m) · ‖A·Π − Π·B‖²,   Π = n·P
//! ```
//!
//! with A and B the adjacency matrices. The gradient is that of this very computation, all
//! iterations included, exact at any number of them. With G = P·d_P:
//!
//! - d_P = C + 2λ/m·(Aᵀ·D − D·Bᵀ), D = A·Π − Π·B
//! - d_L = G, d_u = row sums of G, d_v = column sums of G; then for every iteration, last first:
//!   R = m·e^(L+u+v): d_L −= d_v_j·R, d_u −= Σ_j d_v_j·R; Q = n·e^(L+u+v′) with v′ the v before:
//!   d_L −= d_u_i·Q, d_v′ = −Σ_i d_u_i·Q
//! - d_C = P − d_L/ε — the temperature divides the gradient, as it divides C — and
//!   d_ε = Σ d_L·C/ε²
//! - d_x_i = Σ_j 2·d_C_ij·(x_i − y_j), d_y_j = −Σ_i 2·d_C_ij·(x_i − y_j)

use super::structure::Graph;
use crate::{Error, Result, Scalar};

/// The loss's constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SinkhornLoss {
    /// ε: small matches sharply.
    pub temperature: f64,
    /// Iterations, all of which are differentiated.
    pub iterations: usize,
    /// λ, the weight of the edges; 0 compares nodes alone.
    pub structure: f64,
}

/// The value and its gradients.
#[derive(Clone, Debug, PartialEq)]
pub struct SinkhornResult<T> {
    /// The loss.
    pub value: T,
    /// The plan P, row by row.
    pub plan: Vec<T>,
    /// The gradient of the first graph's rows.
    pub d_x: Vec<T>,
    /// The gradient of the second graph's rows.
    pub d_y: Vec<T>,
    /// The gradient of the temperature.
    pub d_temperature: T,
}

/// u and v after every iteration; v before the first is 0.
struct Iterates<T> {
    sizes: [usize; 2],
    us: Vec<Vec<T>>,
    vs: Vec<Vec<T>>,
}

impl<T: Scalar> Iterates<T> {
    fn new([n, m]: [usize; 2], l: &[T], iterations: usize) -> Self {
        let mut us = Vec::with_capacity(iterations);
        let mut vs = vec![vec![T::ZERO; m]];
        let (ln_n, ln_m) = (T::from_usize(n).ln(), T::from_usize(m).ln());
        for _ in 0..iterations {
            let v = vs.last().expect("v before the first");
            let u: Vec<T> = (0..n)
                .map(|i| -ln_n - log_sum_exp((0..m).map(|j| l[i * m + j] + v[j])))
                .collect();
            let v: Vec<T> = (0..m)
                .map(|j| -ln_m - log_sum_exp((0..n).map(|i| l[i * m + j] + u[i])))
                .collect();
            us.push(u);
            vs.push(v);
        }
        let sizes = [n, m];
        Iterates { sizes, us, vs }
    }

    /// Adds to `d_l`, the gradient through the plan alone, that through the iterations.
    fn backward(&self, l: &[T], d_l: &mut [T]) {
        let [n, m] = self.sizes;
        let (ln_n, ln_m) = (T::from_usize(n).ln(), T::from_usize(m).ln());
        let mut d_u: Vec<T> = d_l
            .chunks_exact(m)
            .map(|g| g.iter().copied().sum())
            .collect();
        let mut d_v: Vec<T> = (0..m)
            .map(|j| (0..n).map(|i| d_l[i * m + j]).sum())
            .collect();
        for t in (0..self.us.len()).rev() {
            let (u, v, v_before) = (&self.us[t], &self.vs[t + 1], &self.vs[t]);
            for i in 0..n {
                for j in 0..m {
                    let r = (l[i * m + j] + u[i] + v[j] + ln_m).exp();
                    d_l[i * m + j] -= d_v[j] * r;
                    d_u[i] -= d_v[j] * r;
                }
            }
            d_v.fill(T::ZERO);
            for i in 0..n {
                for j in 0..m {
                    let q = (l[i * m + j] + u[i] + v_before[j] + ln_n).exp();
                    d_l[i * m + j] -= d_u[i] * q;
                    d_v[j] -= d_u[i] * q;
                }
            }
            d_u.fill(T::ZERO);
        }
    }
}

impl SinkhornLoss {
    /// Checks the constants.
    pub fn new(temperature: f64, iterations: usize, structure: f64) -> Result<Self> {
        if !(temperature > 0.0 && temperature.is_finite()) {
            return Err(Error::invalid(
                "temperature",
                temperature,
                "a finite number > 0",
            ));
        }
        if iterations == 0 {
            return Err(Error::invalid("iterations", 0, "at least 1"));
        }
        if !(structure >= 0.0 && structure.is_finite()) {
            return Err(Error::invalid(
                "structure",
                structure,
                "a finite number ≥ 0",
            ));
        }
        Ok(SinkhornLoss {
            temperature,
            iterations,
            structure,
        })
    }

    /// The loss between two graphs whose nodes have rows of equal width. Graphs without nodes cost
    /// nothing.
    pub fn evaluate<T: Scalar>(
        &self,
        [a, b]: [&Graph; 2],
        [x, y]: [&[T]; 2],
    ) -> Result<SinkhornResult<T>> {
        let (n, m) = (a.nodes(), b.nodes());
        let width = x.len().checked_div(n).unwrap_or(y.len() / m.max(1));
        if x.len() != n * width || y.len() != m * width {
            return Err(Error::invalid(
                "rows of the two graphs",
                format!("{} and {} numbers", x.len(), y.len()),
                format!("rows of one width for {n} and {m} nodes"),
            ));
        }
        let mut result = SinkhornResult {
            value: T::ZERO,
            plan: vec![T::ZERO; n * m],
            d_x: vec![T::ZERO; x.len()],
            d_y: vec![T::ZERO; y.len()],
            d_temperature: T::ZERO,
        };
        if n == 0 || m == 0 {
            return Ok(result);
        }
        let epsilon = T::from_f64(self.temperature);
        let mut cost = vec![T::ZERO; n * m];
        for i in 0..n {
            for j in 0..m {
                cost[i * m + j] = (0..width)
                    .map(|k| {
                        let d = x[i * width + k] - y[j * width + k];
                        d * d
                    })
                    .sum();
            }
        }
        let l: Vec<T> = cost.iter().map(|&c| -c / epsilon).collect();
        let iterates = Iterates::new([n, m], &l, self.iterations);
        let (us, vs) = (&iterates.us, &iterates.vs);
        let (u, v) = (&us[self.iterations - 1], &vs[self.iterations]);
        for i in 0..n {
            for j in 0..m {
                result.plan[i * m + j] = (l[i * m + j] + u[i] + v[j]).exp();
            }
        }
        let plan = &result.plan;
        let mut value: T = plan.iter().zip(&cost).map(|(&p, &c)| p * c).sum();
        let mut d_plan = cost.clone();
        if self.structure > 0.0 {
            value += self.structure_term(a, b, plan, &mut d_plan);
        }
        // Through the plan and the iterations.
        let mut d_l: Vec<T> = plan.iter().zip(&d_plan).map(|(&p, &d)| p * d).collect();
        iterates.backward(&l, &mut d_l);
        let two = T::from_f64(2.0);
        for i in 0..n {
            for j in 0..m {
                let at = i * m + j;
                let d_cost = plan[at] - d_l[at] / epsilon;
                result.d_temperature += d_l[at] * cost[at] / (epsilon * epsilon);
                for k in 0..width {
                    let d = two * d_cost * (x[i * width + k] - y[j * width + k]);
                    result.d_x[i * width + k] += d;
                    result.d_y[j * width + k] -= d;
                }
            }
        }
        result.value = value;
        Ok(result)
    }

    /// λ/(n·m)·‖A·Π − Π·B‖²; adds its gradient to d_P.
    fn structure_term<T: Scalar>(&self, a: &Graph, b: &Graph, plan: &[T], d_plan: &mut [T]) -> T {
        let (n, m) = (a.nodes(), b.nodes());
        let scale = T::from_usize(n);
        // D = A·Π − Π·B with A_ts = 1 for an edge s → t.
        let mut d = vec![T::ZERO; n * m];
        for (&s, &t) in a.sources().iter().zip(a.targets()) {
            for j in 0..m {
                d[t as usize * m + j] += scale * plan[s as usize * m + j];
            }
        }
        for (&s, &t) in b.sources().iter().zip(b.targets()) {
            for i in 0..n {
                d[i * m + s as usize] -= scale * plan[i * m + t as usize];
            }
        }
        let weight = T::from_f64(self.structure) / T::from_usize(n * m);
        let factor = T::from_f64(2.0) * weight * scale;
        for (&s, &t) in a.sources().iter().zip(a.targets()) {
            for j in 0..m {
                d_plan[s as usize * m + j] += factor * d[t as usize * m + j];
            }
        }
        for (&s, &t) in b.sources().iter().zip(b.targets()) {
            for i in 0..n {
                d_plan[i * m + t as usize] -= factor * d[i * m + s as usize];
            }
        }
        weight * d.iter().map(|&d| d * d).sum()
    }
}

fn log_sum_exp<T: Scalar>(terms: impl Iterator<Item = T> + Clone) -> T {
    let largest = terms.clone().reduce(|a, b| a.max(b)).unwrap_or(T::ZERO);
    terms.map(|t| (t - largest).exp()).sum::<T>().ln() + largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;

    fn example() -> (Graph, Graph, Vec<f64>, Vec<f64>) {
        let a = Graph::new(4, &[0, 1, 2, 3, 0], &[1, 2, 3, 0, 2]).unwrap();
        let b = Graph::new(3, &[0, 1, 2], &[1, 2, 0]).unwrap();
        let mut stream = Key::new(3).purpose("sinkhorn test").stream();
        let mut rows = |n: usize| -> Vec<f64> { (0..n).map(|_| stream.range(-1.0, 1.0)).collect() };
        (a, b, rows(8), rows(6))
    }

    /// The largest difference between gradient and central differences, relative to the gradient.
    fn worst(loss: SinkhornLoss, scale: f64) -> f64 {
        let (a, b, mut x, mut y) = example();
        let exact = loss.evaluate([&a, &b], [&x, &y]).unwrap();
        let largest = exact.d_x.iter().fold(0.0_f64, |a, d| a.max(d.abs()));
        let h = 1e-6;
        let mut worst = 0.0_f64;
        let value = |x: &[f64], y: &[f64]| loss.evaluate([&a, &b], [x, y]).unwrap().value;
        for i in 0..x.len() {
            let centre = x[i];
            x[i] = centre + h;
            let up = value(&x, &y);
            x[i] = centre - h;
            let down = value(&x, &y);
            x[i] = centre;
            worst = worst.max(((up - down) / (2.0 * h) - scale * exact.d_x[i]).abs() / largest);
        }
        for i in 0..y.len() {
            let centre = y[i];
            y[i] = centre + h;
            let up = value(&x, &y);
            y[i] = centre - h;
            let down = value(&x, &y);
            y[i] = centre;
            worst = worst.max(((up - down) / (2.0 * h) - scale * exact.d_y[i]).abs() / largest);
        }
        worst
    }

    #[test]
    fn the_gradient_agrees_with_central_differences_at_every_temperature() {
        for temperature in [0.1, 0.7, 3.0] {
            for iterations in [1, 3, 20] {
                for structure in [0.0, 0.5] {
                    let loss = SinkhornLoss::new(temperature, iterations, structure).unwrap();
                    // h² of a third derivative of order 1/ε², and rounding of order 1e-16/h.
                    let bound = 1e-7;
                    let error = worst(loss, 1.0);
                    assert!(error < bound, "{loss:?} {error:e}");
                    // The mistake this loss is known for: a gradient without its temperature.
                    assert!(worst(loss, temperature) > 1e4 * bound, "{loss:?}");
                }
            }
        }
    }

    #[test]
    fn the_temperature_has_a_gradient_too() {
        let (a, b, x, y) = example();
        let at = |t: f64| {
            let loss = SinkhornLoss::new(t, 5, 0.5).unwrap();
            loss.evaluate([&a, &b], [&x, &y]).unwrap()
        };
        let h = 1e-6;
        let numeric = (at(0.7 + h).value - at(0.7 - h).value) / (2.0 * h);
        let exact = at(0.7).d_temperature;
        assert!(
            (numeric - exact).abs() < 1e-7 * exact.abs().max(1e-2),
            "{numeric} {exact}"
        );
    }

    #[test]
    fn a_graph_matches_itself_and_marginals_hold() {
        let (a, _, x, _) = example();
        let loss = SinkhornLoss::new(0.02, 200, 1.0).unwrap();
        let own = loss.evaluate([&a, &a], [&x, &x]).unwrap();
        for j in 0..4 {
            let column: f64 = (0..4).map(|i| own.plan[i * 4 + j]).sum();
            assert!((column - 0.25).abs() < 1e-12);
        }
        let other: Vec<f64> = x.iter().map(|v| 1.0 - v).collect();
        let far = loss.evaluate([&a, &a], [&x, &other]).unwrap();
        assert!(own.value < 0.1 * far.value, "{} {}", own.value, far.value);
        assert!(SinkhornLoss::new(0.0, 5, 0.0).is_err());
        let empty = Graph::new(0, &[], &[]).unwrap();
        let nothing = loss.evaluate([&empty, &a], [&[], &x]).unwrap();
        assert_eq!(nothing.value, 0.0);
    }
}
