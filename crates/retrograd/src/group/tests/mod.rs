//! The tree's order, and groups of threads.

use super::*;

/// What a sum in the tree's order looks like, written with brackets.
fn written(tree: Tree, processes: usize) -> String {
    let add = |a: String, b: String| format!("({a} {b})");
    // Every process its own subtrees, whoever is first all of them.
    let mut roots = Vec::new();
    for rank in 0..processes {
        for root in tree.roots(&tree.of_process(rank, processes)) {
            let mut leaf = |node: &std::ops::Range<usize>| match node.len() {
                1 => Leaf::Value(node.start.to_string()),
                _ => Leaf::Inner,
            };
            let sum = tree.sum(root.clone(), &mut leaf, &mut { add });
            roots.push((root, sum.unwrap()));
        }
    }
    let mut leaf = |node: &std::ops::Range<usize>| {
        let found = roots.iter().find(|(root, _)| root == node);
        found.map_or(Leaf::Inner, |(_, sum)| Leaf::Value(sum.clone()))
    };
    tree.sum(0..tree.shards(), &mut leaf, &mut { add }).unwrap()
}

#[test]
fn a_sum_is_bracketed_alike_for_any_number_of_processes() {
    assert_eq!(written(Tree::new(6), 1), "(((0 1) (2 3)) (4 5))");
    for shards in 1..=17 {
        let tree = Tree::new(shards);
        for processes in 1..=shards {
            assert_eq!(
                written(tree, processes),
                written(tree, 1),
                "{shards} by {processes}"
            );
        }
    }
}

#[test]
fn a_power_of_two_of_processes_sends_one_root_each() {
    let roots = |shards, size| {
        let tree = Tree::new(shards);
        let of = |rank| tree.roots(&tree.of_process(rank, size)).len();
        (0..size).map(of).collect::<Vec<_>>()
    };
    assert_eq!(roots(8, 2), [1, 1]);
    assert_eq!(roots(8, 4), [1; 4]);
    assert_eq!(roots(8, 8), [1; 8]);
    // 0 and 1, 2 to 4 (two of them), 5 to 7.
    assert_eq!(roots(8, 3), [1, 2, 2]);
}

#[test]
fn an_empty_shard_adds_nothing() {
    let tree = Tree::new(5);
    let sum = tree.sum_all(|shard| (shard % 2 == 0).then_some(shard), |a, b| a + b);
    assert_eq!(sum, Some(6));
    assert_eq!(tree.sum_all(|_| None::<u8>, |a, _| a), None);
}

#[test]
fn threads_play_processes() {
    for size in 1..=4 {
        let all = threads(size, |group| {
            let rank = group.rank();
            // Many rounds: nobody takes from the round before or after.
            for round in 0..50_u8 {
                let gathered = group.gather(&vec![round; rank + 1]);
                let right: Vec<_> = (0..size).map(|r| vec![round; r + 1]).collect();
                assert_eq!(gathered, right);
            }
            let mut bytes = vec![rank as u8 + 7];
            group.broadcast(&mut bytes);
            assert_eq!(bytes, [7]);
            // To rank r go r + 1 numbers that name both ends.
            let sent: Vec<usize> = (0..size).map(|r| r + 1).collect();
            let send: Vec<f32> = (0..size)
                .flat_map(|to| vec![(10 * rank + to) as f32; to + 1])
                .collect();
            let mut counts = vec![rank + 1; size];
            counts[rank] = 0;
            let mut received = vec![0.0; (size - 1) * (rank + 1)];
            group.exchange(&send, &sent, &mut received, &counts);
            let others = (0..size).filter(|&r| r != rank);
            for (from, part) in others.zip(received.chunks(rank + 1)) {
                assert!(part.iter().all(|&x| x == (10 * from + rank) as f32));
            }
            let mut all = vec![-1.0; size];
            all[rank] = rank as f32;
            group.share(&mut all, &vec![1; size]);
            group.barrier();
            all
        });
        let right: Vec<f32> = (0..size).map(|r| r as f32).collect();
        assert_eq!(all, vec![right; size]);
    }
}

#[test]
fn a_meeting_ends_for_all_where_one_has_failed() {
    let outcomes = threads(3, |group| {
        let error = crate::Error::invalid("the file", "nothing", "something");
        let own = match group.rank() {
            1 => Frame::Failed(&error),
            _ => Frame::Fine(b"well"),
        };
        meet(group, own).unwrap_err().to_string()
    });
    assert_eq!(
        outcomes,
        ["rank 1: the file: got nothing, needs something"; 3]
    );
    let fine = threads(2, |group| {
        meet(group, Frame::Fine(&[group.rank() as u8])).unwrap()
    });
    assert_eq!(fine, vec![vec![vec![0], vec![1]]; 2]);
}

#[test]
fn a_panic_of_one_member_releases_the_others() {
    let result = std::panic::catch_unwind(|| {
        threads(2, |group| {
            assert_eq!(group.rank(), 0, "the second one breaks");
            group.barrier();
        })
    });
    assert!(result.is_err());
}

#[test]
fn shards_that_look_at_each_other_meet_whatever_the_number_of_threads() {
    for threads in [1, 2, 5] {
        let results = crate::parallel::with_threads(threads, || {
            in_step(4, Shared::new, |place| {
                let mut own = vec![place as f64];
                for _ in 0..3 {
                    let all = exchange(|| own.clone()).unwrap();
                    own = sum(&all, |a, b| vec![a[0] + 2.0 * b[0]]).unwrap();
                }
                own[0]
            })
        });
        // (0 + 2·1) + 2·(2 + 2·3) = 18, then 9 times as much for equal values, twice.
        assert_eq!(results, [18.0 * 81.0; 4]);
    }
    assert!(exchange(|| unreachable!("nobody asks")).is_none());
}

#[test]
fn parents_are_the_nodes_whose_children_they_have() {
    for shards in 1..=17 {
        let tree = Tree::new(shards);
        assert_eq!(tree.parent(&(0..shards)), None);
        let mut nodes: Vec<_> = std::iter::once(0..shards).collect();
        while let Some(node) = nodes.pop() {
            if node.len() > 1 {
                for child in tree::split(&node) {
                    assert_eq!(tree.parent(&child), Some(node.clone()), "{shards}");
                    nodes.push(child);
                }
            }
        }
        // What is no node has no parent.
        assert_eq!(tree.parent(&(1..3)), None);
    }
}

/// Numbers whose sum depends on the order: pending ones, folded or not, whole or in ranges, with the last
/// one beside them, have the bits of a plain walk.
#[test]
fn pending_gradients_are_added_in_the_order_of_the_tree() {
    let len = 5000;
    let value = |shard: usize, i: usize| {
        let x = ((shard * 7919 + i * 104_729) % 1000) as f32;
        (x - 500.0) * [1.0, 1e-3, 1e4, 1e-6][(shard + i) % 4]
    };
    let grads = |shard: usize| -> Vec<f32> { (0..len).map(|i| value(shard, i)).collect() };
    for shards in [1, 2, 3, 5, 8, 13] {
        let tree = Tree::new(shards);
        // Every third shard has no samples, but for the first.
        let full = |shard: usize| shard == 0 || shard % 3 != 2;
        let add = |mut a: Vec<f32>, b: Vec<f32>| {
            add_to(&mut a, &b);
            a
        };
        let right = tree.sum_all(|s| full(s).then(|| grads(s)), add).unwrap();
        for fold in [false, true] {
            let mut pending = Pending::default();
            let mut free = Vec::new();
            for shard in (0..shards).filter(|&s| full(s)) {
                pending.push(shard..shard + 1, grads(shard));
                if fold {
                    pending.fold(tree, &mut free);
                }
            }
            let all = 0..shards;
            for range in [0..len, 17..3001, 4999..5000] {
                let part = pending.root(tree, &all, range.clone(), None, Vec::new());
                assert!(part.as_deref() == Some(&right[range]), "{shards}, {fold}");
            }
            let whole = pending.into_roots(tree, &all, len, &mut free);
            assert!(whole == [Some(right.clone())], "{shards}, {fold}");
        }
        // The last one is still being computed.
        let last = (0..shards).rfind(|&s| full(s)).unwrap();
        let mut pending = Pending::default();
        let mut free = Vec::new();
        for shard in (0..last).filter(|&s| full(s)) {
            pending.push(shard..shard + 1, grads(shard));
            pending.fold(tree, &mut free);
        }
        let own = grads(last);
        let part = pending.root(
            tree,
            &(0..shards),
            5..77,
            Some((&(last..last + 1), &own)),
            free.pop().unwrap_or_default(),
        );
        assert!(part.as_deref() == Some(&right[5..77]), "{shards}");
        let none = Pending::default().root(tree, &(0..shards), 0..9, None, Vec::new());
        assert!(none.is_none());
    }
}

/// Segments are the shards of a subtree, and are bracketed as the tree brackets them.
#[test]
fn segments_are_added_as_the_tree_adds() {
    for shards in 1..=17 {
        let tree = Tree::new(shards);
        for samples in [shards, 3 * shards + 1, 64] {
            let segments = Segments::new(samples, shards, 0..shards);
            let sum = segments.sum(
                |rows| {
                    let shard = (0..shards).find(|&s| cut(samples, s, shards) == rows);
                    shard.map_or("?".into(), |shard| shard.to_string())
                },
                |a: String, b: String| format!("({a} {b})"),
            );
            if samples >= shards {
                assert_eq!(sum, written(tree, 1), "{samples} in {shards}");
            }
        }
    }
    // Of a part of them, counted from its first row.
    let segments = Segments::new(100, 8, 4..6).of_rows(3);
    let rows = [0, 1].map(|segment| segments.rows(segment));
    assert_eq!(rows, [0..36, 36..75]);
}

/// Numbers whose sum depends on the order. Whatever a process owns of some ranges, in any order, it gets the
/// bits of a plain walk, of one root or several; and all of them together are everything.
#[test]
fn every_process_adds_what_it_owns() {
    let len = 103;
    let value = |shard: usize, i: usize| {
        let x = ((shard * 7919 + i * 104_729) % 1000) as f32;
        (x - 500.0) * [1.0, 1e-3, 1e4, 1e-6][(shard + i) % 4]
    };
    let add = |mut a: Vec<f32>, b: Vec<f32>| {
        add_to(&mut a, &b);
        a
    };
    // All of it; ranges from the last on; some that one process or another has nothing of.
    let cases = [
        std::iter::once(0..103).collect(),
        vec![90..103, 40..90, 0..40],
        vec![7..9, 50..51],
    ];
    for (shards, size) in [(1, 1), (4, 2), (5, 2), (5, 3), (8, 3), (7, 4), (9, 4)] {
        let tree = Tree::new(shards);
        for empty in [None, Some(0), Some(shards - 1)]
            .into_iter()
            .filter(|_| shards > 1)
        {
            let full = |shard: usize| Some(shard) != empty;
            let grads = |shard: usize, ranges: &[std::ops::Range<usize>]| -> Vec<f32> {
                let places = ranges.iter().cloned().flatten();
                places.map(|i| value(shard, i)).collect()
            };
            for ranges in &cases {
                let sum_of = |node: std::ops::Range<usize>| {
                    let mut leaf = |node: &std::ops::Range<usize>| match node.len() {
                        1 if full(node.start) => Leaf::Value(grads(node.start, ranges)),
                        1 => Leaf::Nothing,
                        _ => Leaf::Inner,
                    };
                    tree.sum(node, &mut leaf, &mut { add })
                };
                let right = sum_of(0..shards).unwrap();
                let parts = threads(size, |group| {
                    let own = tree.of_process(group.rank(), size);
                    let roots = || tree.roots(&own).into_iter().map(sum_of).collect();
                    let mut sums = Sums::default();
                    let (sum, _) = sums.of_owned(group, tree, roots(), full, ranges, len);
                    let all = right.len();
                    let (total, _) = sums.over_all(group, tree, roots(), full, all);
                    assert!(total == right, "{shards}, {size}, {ranges:?}");
                    let places = sums::owned_by(ranges, len, group.rank(), size);
                    (places, sum.values().to_vec())
                });
                let mut found = vec![f32::NAN; len];
                for (places, values) in parts {
                    let places = places.into_iter().flatten();
                    places.zip(values).for_each(|(i, v)| found[i] = v);
                }
                let found: Vec<f32> = ranges.iter().cloned().flatten().map(|i| found[i]).collect();
                assert!(
                    found == right,
                    "{shards} shards, {size} processes, {ranges:?}, {empty:?}"
                );
            }
        }
    }
}
