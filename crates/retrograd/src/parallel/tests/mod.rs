mod attacks;
mod refused;

use super::*;
use crate::Tensor;

/// One after the other at these places.
fn tensors(ranges: &[std::ops::Range<usize>]) -> Vec<Tensor> {
    let tensor = |range: &std::ops::Range<usize>| Tensor {
        name: format!("{range:?}"),
        shape: vec![range.len()],
        order: vec![0],
        offset: range.start,
        frozen: false,
    };
    ranges.iter().map(tensor).collect()
}

#[test]
fn uneven_pieces_own_their_bounds() {
    let bounds = [0, 2, 2, 5, 6];
    let (mut a, mut b) = (vec![0; 12], vec![0; 6]);
    let owned = (
        Uneven::new(&mut a, &bounds, 2),
        Uneven::new(&mut b, &bounds, 1),
    );
    for_each_cut(4, true, owned, |piece, (a, b)| {
        a.fill(piece + 1);
        b.fill(piece + 1);
    });
    assert_eq!(a, [1, 1, 1, 1, 3, 3, 3, 3, 3, 3, 4, 4]);
    assert_eq!(b, [1, 1, 3, 3, 3, 4]);
}

#[test]
fn bands_cover_every_element_once() {
    let (samples, planes, plane_len) = (3, 4, 50);
    let mut out = vec![0.0; samples * planes * plane_len];
    for_each_band(&mut out, planes, plane_len, 15, true, |sample, mut band| {
        let start = band.start();
        for p in 0..planes {
            for (i, x) in band.plane(p).iter_mut().enumerate() {
                *x += ((sample * planes + p) * plane_len + start + i) as f32;
            }
        }
    });
    assert!(out.iter().enumerate().all(|(i, &x)| x == i as f32));
}

#[test]
fn scratch_within_scratch_is_other_scratch() {
    with_scratch(4, |outer| {
        outer.fill(1.0);
        with_scratch(4, |inner| inner.fill(2.0));
        assert_eq!(outer, [1.0; 4]);
    });
}

#[test]
fn sums_of_pieces_have_the_same_bits_on_1_2_and_7_threads() {
    let sum = |threads| {
        with_threads(threads, || {
            let mut out = vec![0.25_f32; 5000];
            let mut workspace = Vec::new();
            sum_pieces(37, &mut out, &mut workspace, true, |piece, row| {
                for (i, r) in row.iter_mut().enumerate() {
                    *r = 1.0 / (1.0 + piece as f32 + i as f32);
                }
            });
            out
        })
    };
    let one = sum(1);
    assert_eq!(one, sum(2));
    assert_eq!(one, sum(7));
    let exact: f64 = 0.25 + (0..37).map(|p| 1.0 / (1.0 + f64::from(p))).sum::<f64>();
    assert!((f64::from(one[0]) - exact).abs() < 1e-6);
}

/// Long enough for the helpers to come, and for rounds to end and begin anew.
#[test]
fn every_piece_is_done_once_whoever_helps() {
    for threads in [1, 2, 7] {
        with_threads(threads, || {
            for round in 0..3000 {
                let mut done = vec![0_u32; 1 + round % 40];
                for_each_chunk(&mut done, 1, true, |i, d| {
                    let turns = (i * 37 + round) % 50;
                    for _ in 0..turns {
                        std::hint::spin_loop();
                    }
                    d[0] += 1;
                });
                assert!(
                    done.iter().all(|&d| d == 1),
                    "{threads} threads, round {round}"
                );
            }
        });
    }
}

#[test]
fn parallel_parts_within_parallel_parts_are_done() {
    with_threads(2, || {
        for _ in 0..300 {
            let mut sums = vec![0_usize; 8];
            for_each_chunk(&mut sums, 1, true, |i, sum| {
                let mut inner = vec![0; 16];
                for_each_chunk(&mut inner, 1, true, |k, x| x[0] = i * k);
                sum[0] = inner.iter().sum();
            });
            for (i, &sum) in sums.iter().enumerate() {
                assert_eq!(sum, i * 120);
            }
        }
    });
}

#[test]
fn a_panic_in_a_piece_reaches_the_caller_and_later_work_is_done() {
    with_threads(2, || {
        for round in 0..200 {
            let bad = round % 16;
            let outcome = std::panic::catch_unwind(|| {
                for_each(16, true, |piece| assert_ne!(piece, bad, "the bad piece"));
            });
            let panic = outcome.expect_err("a piece panicked");
            let message = panic.downcast_ref::<String>().expect("a message");
            assert!(message.contains("the bad piece"), "{message}");
            let mut done = vec![false; 16];
            for_each_chunk(&mut done, 1, true, |_, d| d[0] = true);
            assert!(done.iter().all(|&d| d), "round {round}");
        }
    });
}

/// Every element of every tensor once, in all arrays alike, and nothing between the tensors; a
/// piece has the same share of all tensors.
#[test]
fn shares_cover_every_tensor_once() {
    let ranges = [3..4, 10..1000, 1000..1000, 1064..5000];
    let tensors = tensors(&ranges);
    let (mut a, mut b) = (vec![0_usize; 6000], vec![0_usize; 6000]);
    for pieces in [1, 3, 16] {
        a.fill(0);
        b.fill(0);
        for_each_share(
            [&mut a, &mut b],
            Tensors::all(&tensors),
            pieces,
            true,
            |share, [a, b]| {
                assert_eq!((a.len(), b.len()), (share.len(), share.len()));
                for (i, (a, b)) in share.zip(a.iter_mut().zip(b)) {
                    *a += i;
                    *b += 1;
                }
            },
        );
        for i in 0..6000 {
            let inside = usize::from(ranges.iter().any(|t| t.contains(&i)));
            assert_eq!(
                (a[i], b[i]),
                (inside * i, inside),
                "element {i}, {pieces} pieces"
            );
        }
    }
}

#[test]
#[should_panic(expected = "a tensor at 9..20 follows one that ends at 10")]
fn shares_of_tensors_that_overlap_are_refused() {
    let mut a = [0.0; 20];
    let tensors = tensors(&[0..10, 9..20]);
    for_each_share([&mut a[..]], Tensors::all(&tensors), 2, true, |_, _| ());
}

#[test]
fn after_a_fork_work_goes_to_a_pool_of_its_own_and_to_the_same_sums() {
    let sum = || {
        let mut sums = vec![0.0; 3];
        sum_pieces(9, &mut sums, &mut Vec::new(), true, |piece, sums| {
            sums.fill(0.1 * piece as f32);
        });
        sums
    };
    let before = (threads(), sum());
    forked();
    assert_eq!((threads(), sum()), before);
    assert_eq!(within(threads), before.0);
    // No process is so old; one that is computes on its own thread.
    (0..100).for_each(|_| forked());
    assert_eq!((threads(), sum()), (1, before.1));
}
