//! Samples that teach, choose and judge.

use std::collections::BTreeSet;

use super::holds;
use crate::data::split::{Fold, Parts, Plan, Rule};
use crate::rng::Key;
use crate::verify::report::{Link, Row};
use crate::{Result, math};

/// No sample on two sides and none lost; groups whole, the latest last, every class its share; every
/// sample in the test part of one fold.
pub fn splits() -> Result<Vec<Row>> {
    let n = 120;
    let classes: Vec<u32> = (0..n as u32)
        .map(|i| u32::from(i % 10 == 0) + u32::from(i % 3 == 0))
        .collect();
    let groups: Vec<u32> = (0..n as u32).map(|i| i * i % 17).collect();
    let times: Vec<f64> = (0..n).map(|i| f64::from((i as u32 * 53) % 97)).collect();
    let rules = [
        ("random", Rule::Random),
        ("in order", Rule::InOrder),
        ("stratified", Rule::Stratified(classes.clone())),
        ("groups", Rule::Groups(groups.clone())),
        ("time", Rule::Time(times.clone())),
    ];
    let mut rows = Vec::new();
    for (name, rule) in &rules {
        let plan = |fold| Plan {
            rule,
            validation: 0.25,
            test: 0.2,
            fold,
            key: Key::new(9),
        };
        let parts = plan(None).parts(n)?;
        let wrong = broken(name, &parts, n, &classes, &groups, &times);
        rows.push(holds("splits", *name, Link::Data, n, wrong));
        let mut tested = Vec::new();
        for number in 1..=4 {
            let parts = plan(Some(Fold { of: 4, number })).parts(n)?;
            tested.extend(parts.test.iter().copied());
        }
        let unique: BTreeSet<usize> = tested.iter().copied().collect();
        // By time the first block is trained on in every fold.
        let once = *name == "time" || unique.len() == n;
        let wrong = usize::from(unique.len() != tested.len()) + usize::from(!once);
        rows.push(holds(
            "splits",
            format!("{name}, four folds"),
            Link::Data,
            n,
            wrong,
        ));
    }
    Ok(rows)
}

/// Promises of a split that don't hold.
fn broken(
    name: &str,
    parts: &Parts,
    n: usize,
    classes: &[u32],
    groups: &[u32],
    times: &[f64],
) -> usize {
    let sides = [&parts.train, &parts.validation, &parts.test];
    let mut all: Vec<usize> = sides.iter().flat_map(|s| s.iter().copied()).collect();
    all.sort_unstable();
    let mut wrong = usize::from(!all.iter().copied().eq(0..n));
    let share = |part: usize, of: usize, is: f64, slack: f64| {
        usize::from((part as f64 - of as f64 * is).abs() > slack)
    };
    let rest = n - parts.test.len();
    // Whole samples; whole groups are as large as the largest, 24 of a square's rests.
    let slack = if name == "groups" {
        24.0
    } else {
        0.5 + if name == "stratified" { 3.0 } else { 0.0 }
    };
    wrong +=
        share(parts.test.len(), n, 0.2, slack) + share(parts.validation.len(), rest, 0.25, slack);
    match name {
        "stratified" => {
            for class in 0..3 {
                let count = |part: &[usize]| part.iter().filter(|&&i| classes[i] == class).count();
                let of: usize = sides.iter().map(|s| count(s)).sum();
                wrong += share(count(&parts.test), of, 0.2, 1.0);
            }
        }
        "groups" => {
            let of = |part: &[usize]| part.iter().map(|&i| groups[i]).collect::<BTreeSet<_>>();
            let [a, b, c] = sides.map(|s| of(s));
            wrong += a.intersection(&b).count()
                + b.intersection(&c).count()
                + a.intersection(&c).count();
        }
        "time" => {
            let last = |part: &[usize]| {
                part.iter()
                    .map(|&i| times[i])
                    .fold(f64::NEG_INFINITY, math::max)
            };
            let first = |part: &[usize]| {
                part.iter()
                    .map(|&i| times[i])
                    .fold(f64::INFINITY, math::min)
            };
            wrong += usize::from(last(&parts.train) > first(&parts.validation));
            wrong += usize::from(last(&parts.validation) > first(&parts.test));
        }
        "in order" => {
            let ordered = sides.iter().flat_map(|s| s.iter().copied());
            wrong += usize::from(!ordered.eq(0..n));
        }
        _ => {}
    }
    wrong
}
