use super::packed::VAST;
use super::*;
use crate::graph::ops::edge_dot;
use crate::graph::pattern::Pattern;
use crate::parallel;
use crate::rng::Key;
use crate::scalar;

#[test]
fn the_kernel_agrees_with_the_loops_for_every_width_and_form() {
    let mut stream = Key::new(5).purpose("aggregate test").stream();
    let n = 60;
    let edges = 900;
    let mut numbers = |len: usize, below: usize| -> Vec<u32> {
        (0..len).map(|_| stream.below(below) as u32).collect()
    };
    // Half of the edges end in node 3: a row longer than one run.
    let mut targets = numbers(edges, n);
    targets[..500].fill(3);
    let sources = numbers(edges, n);
    let (pattern, _) = Pattern::new(n, n, &targets, &sources);
    let mut random =
        |len: usize| -> Vec<f64> { (0..len).map(|_| stream.range(-1.0, 1.0)).collect() };
    for width in [1, 7, 15, 16, 17, 33, 64, 65, 130] {
        let x = random(n * width);
        let (c, s, b) = (random(edges), random(n), random(width));
        let before = random(n * width);
        for (form, coefficient) in [
            Coefficient::One,
            Coefficient::Slot(&c),
            Coefficient::Gather(&c, &pattern.slot),
            Coefficient::Neighbour(&s),
        ]
        .into_iter()
        .enumerate()
        {
            let rows = [&pattern.by_row, &pattern.by_column][form % 2];
            let full = form > 1;
            let a = Aggregate {
                own: full.then_some(0.5),
                row_scale: full.then_some(&s),
                bias: full.then_some(&b),
                add: full,
                ..Aggregate::new(rows, coefficient)
            };
            let mut exact = before.clone();
            aggregate(&a, &x, width, &mut exact, false);
            let f = |v: &[f64]| -> Vec<f32> { scalar::cast(v) };
            let (x32, c32, s32, b32) = (f(&x), f(&c), f(&s), f(&b));
            let a = Aggregate {
                rows,
                heads: 1,
                coefficient: match coefficient {
                    Coefficient::One => Coefficient::One,
                    Coefficient::Slot(_) => Coefficient::Slot(&c32),
                    Coefficient::Gather(_, slot) => Coefficient::Gather(&c32, slot),
                    Coefficient::Neighbour(_) => Coefficient::Neighbour(&s32),
                },
                own: full.then_some(0.5),
                row_scale: full.then_some(&s32),
                bias: full.then_some(&b32),
                add: full,
            };
            let mut out = f(&before);
            aggregate(&a, &x32, width, &mut out, true);
            for (i, (e, o)) in exact.iter().zip(&out).enumerate() {
                // 500 terms of size 1 at most, each rounded a few times.
                let bound = 500.0 * 8.0 * 2.0_f64.powi(-24);
                assert!((e - f64::from(*o)).abs() < bound, "{width} {form} {i}");
            }
        }
        let mut exact = vec![0.0; edges];
        edge_dot(&pattern.by_row, &x, &x, [width, 1], &mut exact, false);
        let x32: Vec<f32> = scalar::cast(&x);
        let mut out = vec![0.0; edges];
        edge_dot(&pattern.by_row, &x32, &x32, [width, 1], &mut out, true);
        for (e, o) in exact.iter().zip(&out) {
            assert!((e - f64::from(*o)).abs() < width as f64 * 8.0 * 2.0_f64.powi(-24));
        }
    }
}

#[test]
fn a_matrix_too_large_for_the_caches_is_summed_like_any_other() {
    let (n, width) = (VAST / 40 + 1000, 40);
    let mut stream = Key::new(6).purpose("aggregate test").stream();
    let x: Vec<f32> = (0..n * width).map(|i| (i % 1009) as f32 / 1009.0).collect();
    let scale: Vec<f32> = (0..n).map(|i| (i % 11) as f32 / 8.0).collect();
    // Few neighbours are read where they are, many from packed columns.
    for edges in [3000, 2 * n] {
        let sources: Vec<u32> = (0..edges).map(|_| stream.below(n) as u32).collect();
        let targets: Vec<u32> = (0..edges).map(|_| stream.below(50) as u32).collect();
        let (pattern, _) = Pattern::new(n, n, &targets, &sources);
        for coefficient in [Coefficient::One, Coefficient::Neighbour(&scale[..])] {
            let sum = Aggregate::new(&pattern.by_row, coefficient);
            let on = |threads| {
                parallel::with_threads(threads, || {
                    let mut out = vec![f32::NAN; n * width];
                    aggregate(&sum, &x, width, &mut out, true);
                    out
                })
            };
            let out = on(2);
            assert!(out == on(1) && out == on(7), "other bits on other threads");
            for i in 0..50 {
                for c in 0..width {
                    let exact: f64 = pattern
                        .by_row
                        .range(i)
                        .map(|p| {
                            let j = pattern.by_row.neighbour[p] as usize;
                            let factor = coefficient.at(p, j, [1, 0]);
                            f64::from(factor) * f64::from(x[j * width + c])
                        })
                        .sum();
                    let error = (exact - f64::from(out[i * width + c])).abs();
                    assert!(error < 200.0 * exact * 2.0_f64.powi(-24), "{i} {c}");
                }
            }
            assert!(out[50 * width..].iter().all(|&y| y == 0.0));
        }
    }
}
