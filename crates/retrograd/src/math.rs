//! The functions of real numbers, the same bits on every machine.
//!
//! The standard library's come from the system's C library, and differ from one system to the next;
//! `clippy.toml` forbids them. These are compiled from one source in Rust (the `libm` crate, at one
//! version): sums, products, quotients and square roots of IEEE 754 in the order in which they stand
//! there. Vectors have theirs in [`simd`](crate::simd).

pub use libm::{
    acos, asin, atan, atan2, cos, cosh, erf, exp, hypot, lgamma, log as ln, log1p as ln_1p, log2,
    log10, pow as powf, sin, sinh, tan, tanh,
};

/// The same of f32.
pub mod single {
    pub use libm::{
        cosf as cos, erff as erf, expf as exp, log1pf as ln_1p, logf as ln, powf, sinf as sin,
        tanhf as tanh,
    };
}

/// xⁿ by squaring: the binary digits of n from the lowest on, and one division where n is negative.
pub fn powi(x: f64, n: i32) -> f64 {
    let (mut power, mut square, mut digits) = (1.0, x, n.unsigned_abs());
    while digits > 0 {
        if digits % 2 == 1 {
            power *= square;
        }
        square *= square;
        digits /= 2;
    }
    if n < 0 { 1.0 / power } else { power }
}

/// The larger of two; one of them where the other is NaN. Where both are zeros the second, whichever
/// sign it has: [`f32::max`] leaves that open.
#[inline(always)]
pub fn max<T: PartialOrd>(a: T, b: T) -> T {
    #[allow(clippy::eq_op, reason = "only a NaN differs from itself")]
    if a > b || b != b { a } else { b }
}

/// The smaller of two; see [`max`].
#[inline(always)]
pub fn min<T: PartialOrd>(a: T, b: T) -> T {
    #[allow(clippy::eq_op, reason = "only a NaN differs from itself")]
    if a < b || b != b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_powers_are_products() {
        assert_eq!(powi(3.0, 5), 243.0);
        assert_eq!(powi(-2.0, 3), -8.0);
        assert_eq!(powi(2.0, -24), 1.0 / 16_777_216.0);
        assert_eq!((powi(0.3, 0), powi(0.3, 1)), (1.0, 0.3));
        assert_eq!(powi(0.0, -1), f64::INFINITY);
        // Sixty roundings at most, each half a unit in the last place.
        for n in [7, 100, 1000] {
            let (exact, bound) = (0.999_f64.powf(f64::from(n)), 60.0 * f64::EPSILON);
            assert!((powi(0.999, n) / exact - 1.0).abs() < bound);
        }
    }

    #[test]
    fn the_larger_of_two_zeros_is_the_second() {
        assert!(max(-0.0_f64, 0.0).is_sign_positive() && max(0.0_f64, -0.0).is_sign_negative());
        assert!(min(-0.0_f64, 0.0).is_sign_positive() && min(0.0_f64, -0.0).is_sign_negative());
        for (larger, smaller) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
            assert_eq!((max(larger, smaller), min(larger, smaller)), (1.0, 1.0));
        }
        assert_eq!((max(2.0, 1.0), min(2.0, 1.0)), (2.0, 1.0));
    }

    /// What the C library of this system says, which is right to a unit in the last place or so: a
    /// wrong function or a wrong name is far from it.
    #[test]
    fn functions_are_those_of_their_names() {
        type Function = fn(f64) -> f64;
        let ours: [(Function, Function); 13] = [
            (exp, f64::exp),
            (ln, f64::ln),
            (ln_1p, f64::ln_1p),
            (log2, f64::log2),
            (log10, f64::log10),
            (sin, f64::sin),
            (cos, f64::cos),
            (tan, f64::tan),
            (asin, f64::asin),
            (acos, f64::acos),
            (atan, f64::atan),
            (tanh, f64::tanh),
            (sinh, f64::sinh),
        ];
        for (i, (ours, theirs)) in ours.into_iter().enumerate() {
            for x in 1..100 {
                let x = f64::from(x) / 101.0;
                let (ours, theirs) = (ours(x), theirs(x));
                assert!(
                    (ours - theirs).abs() <= 4.0 * f64::EPSILON * theirs.abs(),
                    "{i} of {x}"
                );
            }
        }
        assert!((powf(1.7, 2.3) - 1.7_f64.powf(2.3)).abs() < 1e-15);
        assert!((hypot(3.0, 4.0), atan2(1.0, -1.0)) == (5.0, 0.75 * std::f64::consts::PI));
    }
}
