//! The sixteen gates of two inputs, relaxed to real numbers.
//!
//! On bits, gate i is the Boolean function with that number; on numbers in [0, 1] it is the
//! probability that the function of two independent random bits is 1. All sixteen are bilinear,
//! gate_i(a, b) = [`TABLE`]\[i\] · (1, a, b, ab), so a mixture with weights p is bilinear too:
//!
//! y = c₀ + c₁a + c₂b + c₃ab with c = p · TABLE.

use crate::Scalar;

/// The number of gates of two inputs.
pub const GATES: usize = 16;

/// The gate that passes a through, which every gate starts as.
pub const PASS_A: usize = 3;

/// The gate that passes b through.
pub const PASS_B: usize = 5;

/// The coefficients of (1, a, b, ab) of every gate.
pub const TABLE: [[i8; 4]; GATES] = [
    [0, 0, 0, 0],   // 0
    [0, 0, 0, 1],   // a and b
    [0, 1, 0, -1],  // a and not b
    [0, 1, 0, 0],   // a
    [0, 0, 1, -1],  // not a and b
    [0, 0, 1, 0],   // b
    [0, 1, 1, -2],  // a xor b
    [0, 1, 1, -1],  // a or b
    [1, -1, -1, 1], // nor
    [1, -1, -1, 2], // xnor
    [1, 0, -1, 0],  // not b
    [1, 0, -1, 1],  // a or not b
    [1, -1, 0, 0],  // not a
    [1, -1, 0, 1],  // not a or b
    [1, 0, 0, -1],  // nand
    [1, 0, 0, 0],   // 1
];

/// The names of the gates, for pictures and statistics.
pub const NAMES: [&str; GATES] = [
    "0", "and", "a∧¬b", "a", "¬a∧b", "b", "xor", "or", "nor", "xnor", "¬b", "a∨¬b", "¬a", "¬a∨b",
    "nand", "1",
];

/// The value of every gate at (a, b).
pub fn relaxed<T: Scalar>(a: T, b: T) -> [T; GATES] {
    let one = T::ONE;
    let ab = a * b;
    let or = a + b - ab;
    let xor = a + b - ab - ab;
    [
        T::ZERO,
        ab,
        a - ab,
        a,
        b - ab,
        b,
        xor,
        or,
        one - or,
        one - xor,
        one - b,
        one - b + ab,
        one - a,
        one - a + ab,
        one - ab,
        one,
    ]
}

/// The derivative of every gate with respect to a, at b: c₁ + c₃b.
pub fn relaxed_d_a<T: Scalar>(b: T) -> [T; GATES] {
    TABLE.map(|[_, c1, _, c3]| T::from_f64(f64::from(c1)) + T::from_f64(f64::from(c3)) * b)
}

/// The derivative of every gate with respect to b, at a: c₂ + c₃a.
pub fn relaxed_d_b<T: Scalar>(a: T) -> [T; GATES] {
    TABLE.map(|[_, _, c2, c3]| T::from_f64(f64::from(c2)) + T::from_f64(f64::from(c3)) * a)
}

/// The gate's output on bits. Bit 3 − (2a + b) of the gate's number is its value: gate 1 = 0b0001
/// is 1 at a = b = 1 alone.
pub fn on_bits(gate: u8, a: bool, b: bool) -> bool {
    gate >> (3 - (2 * u8::from(a) + u8::from(b))) & 1 == 1
}

/// The softmax of one gate's logits.
pub fn softmax<T: Scalar>(logits: &[T], p: &mut [T]) {
    let largest = logits.iter().copied().fold(logits[0], T::max);
    let mut sum = T::ZERO;
    for (p, &x) in p.iter_mut().zip(logits) {
        *p = (x - largest).exp();
        sum += *p;
    }
    for p in p {
        *p /= sum;
    }
}

/// The chance of a gate to be another one than a or b, which pass an input on. Its gradient times a
/// factor is added to the logits'.
///
/// With q = p_a + p_b it is 1 − q, and ∂(1 − q)/∂logit_i = −p_i·([i is a or b] − q).
pub fn activity<T: Scalar>(logits: &[T], d_logits: Option<(T, &mut [T])>) -> T {
    let mut p = [T::ZERO; GATES];
    softmax(logits, &mut p);
    let passing = p[PASS_A] + p[PASS_B];
    if let Some((factor, d_logits)) = d_logits {
        for (i, (d, &p)) in d_logits.iter_mut().zip(&p).enumerate() {
            let passes = if i == PASS_A || i == PASS_B {
                T::ONE
            } else {
                T::ZERO
            };
            *d += factor * p * (passing - passes);
        }
    }
    T::ONE - passing
}

/// The gate with the largest logit, the first on ties.
pub fn hardest<T: Scalar>(logits: &[T]) -> u8 {
    let mut best = 0;
    for i in 1..logits.len() {
        if logits[i] > logits[best] {
            best = i;
        }
    }
    best as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_the_relaxed_gates_and_the_bits_agree() {
        for (i, row) in TABLE.iter().enumerate() {
            for (a, b) in [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0), (0.25, 0.75)] {
                let value = relaxed(a, b)[i];
                let [c0, c1, c2, c3] = row.map(f64::from);
                assert_eq!(value, c0 + c1 * a + c2 * b + c3 * a * b, "gate {i}");
                assert_eq!(relaxed_d_a(b)[i], c1 + c3 * b, "gate {i}");
                assert_eq!(relaxed_d_b(a)[i], c2 + c3 * a, "gate {i}");
                if a.fract() == 0.0 {
                    let bit = on_bits(i as u8, a == 1.0, b == 1.0);
                    assert_eq!(f64::from(u8::from(bit)), value, "gate {i} at {a} {b}");
                }
            }
        }
    }

    #[test]
    fn ties_go_to_the_first_gate() {
        assert_eq!(hardest(&[0.0, 2.0, 1.0, 2.0]), 1);
        assert_eq!(hardest(&[0.0_f32; 16]), 0);
    }
}
