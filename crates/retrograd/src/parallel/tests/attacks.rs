//! Lengths that lie, and products beyond 64 bits: nothing may run before they are refused.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;

use super::super::crew::{MAX_PIECES, Owner};
use super::*;

/// The message that the call panics with; no piece may have run.
fn refusal(call: impl FnOnce(&(dyn Fn() + Sync))) -> String {
    let ran = AtomicBool::new(false);
    let run = || ran.store(true, Ordering::Relaxed);
    let outcome = catch_unwind(AssertUnwindSafe(|| call(&run)));
    assert!(!ran.into_inner(), "a piece ran");
    let panic = outcome.expect_err("it was not refused");
    match panic.downcast_ref::<&str>() {
        Some(message) => message.to_string(),
        None => panic.downcast_ref::<String>().expect("a message").clone(),
    }
}

/// 4 · (2⁶² + 1) wraps to 4: plane 2⁶² would have been 2⁶⁶ bytes away.
#[test]
fn bands_of_planes_whose_product_wraps_are_refused() {
    let mut out = [0.0; 4];
    for (planes, plane_len) in [((1 << 62) + 1, 4), (4, (1 << 62) + 1), (1 << 32, 1 << 32)] {
        let message = refusal(|run| {
            for_each_band(&mut out, planes, plane_len, 2, true, |_, _| run());
        });
        assert!(message.contains("in an array of 4"), "{message}");
    }
    let message = refusal(|run| for_each_band(&mut out, 3, 1, 1, true, |_, _| run()));
    assert_eq!(message, "3 planes of 1 in an array of 4");
    let message = refusal(|run| for_each_band(&mut out, 2, 2, 0, true, |_, _| run()));
    assert_eq!(message, "2 elements in chunks of length 0");
}

/// 4 · 2⁶² wraps to nothing, and 3 · 2⁶² to less than 2 · 2⁶².
#[test]
fn uneven_pieces_whose_product_wraps_are_refused() {
    let bounds = [0, 1, 3, 4];
    for width in [1 << 62, (1 << 62) + 1, 2, 0] {
        let message = refusal(|run| {
            let mut data = [0; 4];
            let owned = Uneven::new(&mut data, &bounds, width);
            for_each_cut(3, true, owned, |_, _| run());
        });
        assert_eq!(
            message,
            format!("pieces of 4 rows of {width} in an array of 4")
        );
    }
}

#[test]
fn more_pieces_than_an_output_has_are_refused() {
    let (long, short) = ([0, 1, 2, 3], [0, 3]);
    let message = refusal(|run| {
        let (mut a, mut b) = ([0; 3], [0; 3]);
        let owned = (
            Uneven::new(&mut a, &long, 1),
            Uneven::new(&mut b, &short, 1),
        );
        for_each_cut(3, true, owned, |_, _| run());
    });
    assert_eq!(message, "3 pieces of an output of 1");
    let message = refusal(|run| {
        for_each_cut(1, true, Uneven::new(&mut [0; 0], &[], 1), |_, _| run());
    });
    assert_eq!(message, "1 pieces of an output of 0");
}

/// The third chunk of 2⁶³ begins where the first does, as 2 · 2⁶³ wraps to 0.
#[test]
fn chunks_whose_place_wraps_are_refused() {
    let mut a = [0; 4];
    let message = refusal(|run| {
        for_each_chunks([&mut a[..]], [1 << 63], 4, true, |_, _| run());
    });
    assert!(
        message.starts_with("4 chunks of 9223372036854775808"),
        "{message}"
    );
    for_each_chunks([&mut a[..]], [usize::MAX], 2, true, |i, [a]| {
        assert_eq!(a.len(), if i == 0 { 4 } else { 0 });
    });
}

#[test]
fn arrays_side_by_side_of_different_numbers_of_chunks_are_refused() {
    let (mut a, mut b) = ([0; 6], [0; 6]);
    let message = refusal(|run| {
        for_each_chunk2(&mut a, 2, &mut b, 3, true, |_, _, _| run());
    });
    assert!(
        message.contains("chunks of 2 of 6 elements beside chunks of 3 of 6"),
        "{message}"
    );
}

#[test]
fn chunks_of_any_length_stay_within_the_array() {
    let mut a = [0_u8; 5];
    for len in [1, 2, 5, 6, usize::MAX / 2 + 2, usize::MAX] {
        a.fill(0);
        for_each_chunk(&mut a, len, true, |_, a| a.iter_mut().for_each(|a| *a += 1));
        assert_eq!(a, [1; 5], "chunks of {len}");
    }
    let message = refusal(|run| for_each_chunk(&mut a, 0, true, |_, _| run()));
    assert_eq!(message, "5 elements in chunks of length 0");
    // No element needs memory, and there are as many as an index can count.
    let mut units = vec![(); usize::MAX];
    for_each_chunk(&mut units, usize::MAX / 2 + 2, true, |_, _| ());
}

#[test]
fn shares_whose_product_wraps_and_tensors_beyond_the_array_are_refused() {
    let mut a = [0.0; 200];
    let (two, long) = (tensors(&[0..64, 64..200]), tensors(&[0..64, 64..201]));
    let message = refusal(|run| {
        let tensors = Tensors::all(&two);
        for_each_share([&mut a[..]], tensors, usize::MAX, true, |_, _| run());
    });
    assert!(message.ends_with("shares of 136 elements"), "{message}");
    let message = refusal(|run| {
        for_each_share([&mut a[..]], Tensors::all(&long), 2, true, |_, _| run());
    });
    assert_eq!(message, "tensors of 201 elements in an array of 200");
}

/// A tensor that would end beyond what can be counted ends at the last number instead.
#[test]
fn tensors_whose_end_wraps_are_refused() {
    let mut a = [0.0; 200];
    let mut list = tensors(&[0..64, 64..200]);
    list[1].shape = vec![usize::MAX];
    let message = refusal(|run| {
        for_each_share([&mut a[..]], Tensors::all(&list), 2, true, |_, _| run());
    });
    let needed = format!("tensors of {} elements in an array of 200", usize::MAX);
    assert_eq!(message, needed);
}

#[test]
fn sums_of_more_pieces_than_memory_has_are_refused() {
    let mut out = [0.0; 8];
    let message = refusal(|run| {
        sum_pieces(1 << 61, &mut out, &mut Vec::new(), true, |_, _| run());
    });
    assert!(message.contains("pieces of 8 sums"), "{message}");
    let message = refusal(|run| {
        sum_cut_pieces(2, 0, &mut out, &mut Vec::new(), true, |_, _, _| run());
    });
    assert_eq!(message, "8 sums in 0 parts");
}

/// 2³² pieces would have been none: a span has 32 bits for each of its ends.
#[test]
fn more_pieces_than_a_span_counts_are_refused() {
    let mut owner = Owner::new(2);
    let message = refusal(|run| owner.run(MAX_PIECES + 1, &|_| run()));
    assert!(message.starts_with("4294967296 pieces"), "{message}");
}

/// The owner and a helper panic in one job. Its caller hears of one, and nobody later of the other.
#[test]
fn a_panic_that_was_caught_does_not_come_back() {
    let mut owner = Owner::new(2);
    let (crew, end) = (owner.crew().clone(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut seen = 0;
            while !end.load(Ordering::Relaxed) {
                crew.help(1, &mut seen);
                std::hint::spin_loop();
            }
        });
        for round in 0..50 {
            let both = Barrier::new(2);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                owner.run(2, &|piece| {
                    both.wait();
                    resume_unwind(Box::new(piece));
                });
            }));
            let panic = outcome.expect_err("both pieces panic");
            assert_eq!(panic.downcast_ref(), Some(&0_usize), "the owner's own");
            let done = AtomicUsize::new(0);
            owner.run(2, &|_| {
                done.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(done.into_inner(), 2, "round {round}");
        }
        end.store(true, Ordering::Relaxed);
    });
}
