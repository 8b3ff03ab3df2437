//! More threads than a system gives.

use std::io;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;

use super::super::pool;
use super::*;

/// A system that starts that many threads in all, those that have ended not counted.
fn only(limit: usize) -> impl Fn(rayon::ThreadBuilder) -> io::Result<JoinHandle<()>> {
    let alive = std::sync::Arc::new(AtomicUsize::new(0));
    move |thread| {
        if alive.fetch_add(1, Ordering::SeqCst) >= limit {
            alive.fetch_sub(1, Ordering::SeqCst);
            return Err(io::Error::from(io::ErrorKind::WouldBlock));
        }
        let alive = alive.clone();
        std::thread::Builder::new().spawn(move || {
            thread.run();
            alive.fetch_sub(1, Ordering::SeqCst);
        })
    }
}

/// Sums that a reduction in another order would round otherwise.
fn sums() -> Vec<u32> {
    let mut out = vec![0.25_f32; 3000];
    sum_pieces(29, &mut out, &mut Vec::new(), true, |piece, row| {
        for (i, r) in row.iter_mut().enumerate() {
            *r = 1.0 / (1.0 + piece as f32 + i as f32);
        }
    });
    out.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn with_fewer_threads_than_asked_for_results_keep_their_bits() {
    let expected = with_threads(1, sums);
    for (limit, count) in [(1, 1), (3, 2), (7, 7)] {
        let pool = pool::build(7, only(limit)).expect("some threads");
        assert_eq!(pool.current_num_threads(), count);
        assert_eq!(pool.install(threads), count);
        assert_eq!(pool.install(sums), expected);
    }
}

#[test]
fn without_a_single_thread_work_stays_on_this_one() {
    assert!(pool::build(7, only(0)).is_none());
    let expected = with_threads(1, sums);
    let here = std::thread::current().id();
    let (count, results, isolates) = pool::alone(|| {
        for_each(5, true, |_| assert_eq!(std::thread::current().id(), here));
        (threads(), sums(), isolated(3, |i| (i, threads())))
    });
    assert_eq!(count, 1);
    assert_eq!(results, expected);
    assert_eq!(isolates, [(0, 1), (1, 1), (2, 1)]);
    // Only within the call.
    assert_eq!(threads(), within(threads));
}

#[test]
fn ten_thousand_threads_are_as_many_as_are_sensible() {
    let most = MAX_THREADS.max(pool::cores());
    let (count, results) = with_threads(10_000, || (threads(), sums()));
    assert!((1..=most).contains(&count), "{count} threads");
    assert_eq!(results, with_threads(1, sums));
}

#[test]
fn outside_of_any_pool_results_are_the_same() {
    assert_eq!(sums(), with_threads(1, sums));
}
