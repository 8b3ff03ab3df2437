//! The mask's probability and scale.

use super::*;

/// What is kept times its scale is 1, to the last bit of p that is drawn.
#[test]
fn the_scale_is_that_of_the_probability_that_is_drawn() {
    for p in [
        1e-9,
        1e-3,
        0.1,
        0.25,
        0.3,
        0.5,
        0.6,
        0.9,
        0.99999,
        1.0 - 1e-12,
    ] {
        let kept = f64::from(65_536 - cut(p)) / 65_536.0;
        assert!((kept * scale(p) - 1.0).abs() <= f64::EPSILON, "{p}");
        // Rounded to the nearest multiple; never everything.
        assert!((kept - (1.0 - p)).abs() <= 1.0 / 65_536.0, "{p}");
        assert!(kept > 0.0, "{p}");
    }
    assert_eq!([cut(0.5), cut(0.25)], [32_768, 16_384]);
}

/// Elements 2k and 2k + 1 take the lower and the upper half of word k, whatever the piece.
#[test]
fn an_element_takes_its_half_of_a_word() {
    let key = Key::new(5).purpose("dropout").index(2);
    let n = 3 * PIECE + 37;
    let x = vec![1.0_f32; n];
    let (mut m, mut y) = (vec![0.0; n], vec![0.0; n]);
    drop_out((key, 0), 0.3, &x, &mut m, &mut y);
    let mut stream = key.stream();
    for pair in m.chunks(2) {
        let word = stream.u32();
        for (i, &m) in pair.iter().enumerate() {
            let bits = word >> (16 * i) & 0xffff;
            let right = if bits >= cut(0.3) {
                scale(0.3) as f32
            } else {
                0.0
            };
            assert_eq!(m, right);
        }
    }
    assert_eq!(m, y);
    // A shard that begins in the middle, at an even or an odd element, draws the same.
    for first in [1, 2, PIECE + 7] {
        let mut part = [vec![0.0_f32; n - first], vec![0.0; n - first]];
        let [own, y] = &mut part;
        drop_out((key, first as u64), 0.3, &x[first..], own, y);
        assert_eq!(own[..], m[first..]);
    }
    let kept = m.iter().filter(|&&m| m > 0.0).count() as f64 / n as f64;
    // Five standard deviations of a binomial.
    assert!(
        (kept - 0.7).abs() < 5.0 * (0.21 / n as f64).sqrt(),
        "{kept}"
    );
}
