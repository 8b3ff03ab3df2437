//! Rates of rare events: what a count of them says.

use crate::math;

/// P(X ≤ k) of so many trials with chance p.
fn at_most(k: usize, trials: usize, p: f64) -> f64 {
    if p <= 0.0 || k >= trials {
        return 1.0;
    }
    if p >= 1.0 {
        return 0.0;
    }
    let (n, odds) = (trials as f64, math::ln(p) - math::ln_1p(-p));
    let mut term = n * math::ln_1p(-p);
    let mut sum = math::exp(term);
    for j in 0..k {
        let j = j as f64;
        term += math::ln((n - j) / (j + 1.0)) + odds;
        sum += math::exp(term);
    }
    math::min(sum, 1.0)
}

/// Clopper and Pearson's upper limit: the largest rate at which so few events have a chance of 5 %. For no
/// event of n it is 1 − 0.05^(1/n), about 3/n.
pub fn upper_limit(events: usize, trials: usize) -> f64 {
    if events >= trials {
        return 1.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        match at_most(events, trials, middle) > 0.05 {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

/// Whether so many events refute a rate: were it kept, as many or more would have less than that chance.
pub fn refutes(events: usize, trials: usize, rate: f64, chance: f64) -> bool {
    events > 0 && 1.0 - at_most(events - 1, trials, rate) < chance
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_tables() {
        // One-sided 95 % limits: 1 − 0.05^(1/n) for no event, and Clopper and Pearson's tables.
        for (events, trials, limit) in [
            (0, 30_000, 9.985_2e-5),
            (0, 10, 0.258_866),
            (1, 10, 0.394_163),
            (5, 50, 0.198_833),
            (10, 10, 1.0),
        ] {
            let found = upper_limit(events, trials);
            assert!(
                (found / limit - 1.0).abs() < 1e-3,
                "{events}/{trials}: {found}"
            );
        }
        // Beyond what (1 − p)ⁿ can be written as.
        assert!((upper_limit(900, 1_000_000) / 9.516e-4 - 1.0).abs() < 1e-2);
    }

    #[test]
    fn a_rate_is_refuted_by_more_events_than_it_explains() {
        // 1 of 3,000 has a chance of 26 % at 10⁻⁴, 2 of 3.7 %.
        assert!(!refutes(0, 3_000, 1e-4, 0.05));
        assert!(!refutes(1, 3_000, 1e-4, 0.05));
        assert!(refutes(2, 3_000, 1e-4, 0.05));
    }
}
