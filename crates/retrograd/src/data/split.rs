//! Which samples are trained on, which choose the epoch, and which are kept for the figure that is
//! reported.
//!
//! - The test part is drawn first, then the validation part from what is left, each from the seed
//!   and a purpose of its own: another share of one leaves the other as it is.
//! - **Stratified** (classes of a file): every class gives its share, and at least one sample where
//!   it has two, so that a rare class is measured at all.
//! - **Groups**: samples of one group stay together: a patient's scans are never on both sides.
//! - **Time**: the latest samples are for the test, those before them for validation.
//! - **Folds**: the test part is the fold's; every sample is in the test part of exactly one fold.
//!   By time the samples are cut into one block more than there are folds, and a fold is trained on
//!   the blocks before its own.

use serde::{Deserialize, Serialize};

use crate::rng::Key;
use crate::{Error, Result};

/// One fold of a cross-validation: its test part is the `number`-th of `of` parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fold {
    /// The parts.
    pub of: usize,
    /// Which one is tested on, counted from 1.
    pub number: usize,
}

impl Fold {
    /// That there is such a fold.
    pub fn check(&self) -> Result<()> {
        if self.of < 2 || !(1..=self.of).contains(&self.number) {
            return Err(Error::invalid(
                "data.fold",
                format!("number {} of {}", self.number, self.of),
                "one of 2 or more folds, counted from 1",
            ));
        }
        Ok(())
    }
}

/// What keeps samples together or apart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rule {
    /// Nothing.
    Random,
    /// The order of the samples: the last ones are measured on.
    InOrder,
    /// A class for every sample.
    Stratified(Vec<u32>),
    /// A group for every sample.
    Groups(Vec<u32>),
    /// A time for every sample.
    Time(Vec<f64>),
}

/// How large the parts are, and how they are drawn.
pub(crate) struct Plan<'a> {
    pub rule: &'a Rule,
    pub validation: f64,
    pub test: f64,
    pub fold: Option<Fold>,
    pub key: Key,
}

/// Positions among the samples, each part in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    pub train: Vec<usize>,
    pub validation: Vec<usize>,
    pub test: Vec<usize>,
}

impl Plan<'_> {
    /// The parts of `n` samples.
    pub fn parts(&self, n: usize) -> Result<Parts> {
        let all: Vec<usize> = (0..n).collect();
        let (rest, test) = match self.fold {
            Some(fold) => self.fold(all, fold)?,
            None => self.take(all, self.test, "data.test", "test split")?,
        };
        let (train, validation) = self.take(rest, self.validation, "data.validation", "split")?;
        Ok(Parts {
            train,
            validation,
            test,
        })
    }

    /// Those that stay and those that a share takes away, each in order.
    fn take(
        &self,
        mut pool: Vec<usize>,
        share: f64,
        what: &str,
        purpose: &str,
    ) -> Result<(Vec<usize>, Vec<usize>)> {
        let n = pool.len();
        if share == 0.0 {
            return Ok((pool, Vec::new()));
        }
        if n < 2 {
            return Err(Error::invalid(
                what,
                format!("a share of {n} sample"),
                format!("at least 2 samples to split, or `{} = 0`", &what[5..]),
            ));
        }
        let wanted = ((n as f64 * share).round() as usize).clamp(1, n - 1);
        let mut stream = self.key.purpose(purpose).stream();
        let mut taken = match self.rule {
            Rule::Random => {
                stream.shuffle(&mut pool);
                pool.split_off(n - wanted)
            }
            Rule::InOrder => pool.split_off(n - wanted),
            Rule::Time(times) => {
                pool.sort_by(|&a, &b| times[a].total_cmp(&times[b]));
                pool.split_off(n - wanted)
            }
            Rule::Stratified(classes) => {
                stream.shuffle(&mut pool);
                let (mut stay, mut taken) = (Vec::new(), Vec::new());
                for mut own in by_label(&pool, classes) {
                    let count = ((own.len() as f64 * share).round() as usize)
                        .max(1)
                        .min(own.len() - 1);
                    taken.extend(own.split_off(own.len() - count));
                    stay.extend(own);
                }
                pool = stay;
                taken
            }
            Rule::Groups(groups) => {
                let mut own = by_label(&pool, groups);
                if own.len() < 2 {
                    return Err(one_group(what));
                }
                stream.shuffle(&mut own);
                let mut taken = Vec::new();
                while taken.len() < wanted && own.len() > 1 {
                    taken.extend(own.pop().expect("more than one"));
                }
                pool = own.concat();
                taken
            }
        };
        if taken.is_empty() {
            // Every class has a single sample: nothing to stratify by.
            stream.shuffle(&mut pool);
            taken = pool.split_off(n - wanted);
        }
        pool.sort_unstable();
        taken.sort_unstable();
        Ok((pool, taken))
    }

    fn fold(&self, mut pool: Vec<usize>, fold: Fold) -> Result<(Vec<usize>, Vec<usize>)> {
        fold.check()?;
        let n = pool.len();
        // By time there is a block more, that is only ever trained on.
        let blocks = fold.of + usize::from(matches!(self.rule, Rule::Time(_)));
        if n < blocks {
            return Err(Error::invalid(
                "--folds",
                format!("{} of {n} samples", fold.of),
                format!("at least {blocks} samples"),
            ));
        }
        let mut stream = self.key.purpose("folds").stream();
        // The fold of every sample, counted from 1.
        let mut of = vec![0; n];
        match self.rule {
            Rule::Time(times) => {
                pool.sort_by(|&a, &b| times[a].total_cmp(&times[b]));
                for (place, &i) in pool.iter().enumerate() {
                    of[i] = place * blocks / n;
                }
                let (own, before) = (fold.number, 0..fold.number);
                let rest = (0..n).filter(|&i| before.contains(&of[i])).collect();
                return Ok((rest, (0..n).filter(|&i| of[i] == own).collect()));
            }
            Rule::InOrder => {
                for (place, &i) in pool.iter().enumerate() {
                    of[i] = 1 + place * fold.of / n;
                }
            }
            Rule::Random | Rule::Stratified(_) => {
                stream.shuffle(&mut pool);
                // Dealt class after class, so that every fold has its share of each.
                if let Rule::Stratified(classes) = self.rule {
                    pool = by_label(&pool, classes).concat();
                }
                for (place, &i) in pool.iter().enumerate() {
                    of[i] = 1 + place % fold.of;
                }
            }
            Rule::Groups(groups) => {
                let mut own = by_label(&pool, groups);
                if own.len() < fold.of {
                    return Err(Error::invalid(
                        "--folds",
                        format!("{} of {} groups", fold.of, own.len()),
                        "at most as many folds as groups",
                    ));
                }
                stream.shuffle(&mut own);
                // The largest first, each into the fold that has least.
                own.sort_by_key(|group| std::cmp::Reverse(group.len()));
                let mut sizes = vec![0; fold.of];
                for group in own {
                    let least = (0..fold.of).min_by_key(|&f| sizes[f]).expect("folds");
                    sizes[least] += group.len();
                    group.iter().for_each(|&i| of[i] = 1 + least);
                }
            }
        }
        Ok((0..n).partition(|&i| of[i] != fold.number))
    }
}

fn one_group(what: &str) -> Error {
    Error::invalid(what, "one group", "at least 2 groups to keep apart")
}

/// The samples of every label, the labels in order.
fn by_label(pool: &[usize], labels: &[u32]) -> Vec<Vec<usize>> {
    let mut parts: std::collections::BTreeMap<u32, Vec<usize>> = Default::default();
    for &i in pool {
        parts.entry(labels[i]).or_default().push(i);
    }
    parts.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rule: &Rule) -> Plan<'_> {
        Plan {
            rule,
            validation: 0.2,
            test: 0.2,
            fold: None,
            key: Key::new(3),
        }
    }

    fn whole(parts: &Parts, n: usize) {
        let mut all = [&parts.train[..], &parts.validation, &parts.test].concat();
        all.sort_unstable();
        assert_eq!(all, (0..n).collect::<Vec<_>>());
    }

    /// 5 positives of 200 left none for validation, and an accuracy of 1.
    #[test]
    fn a_rare_class_is_in_every_part() {
        let classes: Vec<u32> = (0..200).map(|i| u32::from(i % 40 == 7)).collect();
        for seed in 0..50 {
            let rule = Rule::Stratified(classes.clone());
            let key = Key::new(seed);
            let parts = Plan { key, ..plan(&rule) }.parts(200).unwrap();
            whole(&parts, 200);
            let positives = |part: &[usize]| part.iter().filter(|&&i| classes[i] == 1).count();
            let counts = [&parts.train, &parts.validation, &parts.test].map(|p| positives(p));
            assert_eq!(counts, [3, 1, 1], "seed {seed}");
            assert_eq!((parts.validation.len(), parts.test.len()), (32, 40));
        }
    }

    #[test]
    fn classes_of_one_sample_are_trained_on_and_two_samples_are_shared() {
        let rule = Rule::Stratified(vec![0, 1, 1, 2, 2, 2, 2, 2, 2, 2]);
        let parts = plan(&rule).parts(10).unwrap();
        whole(&parts, 10);
        assert!(parts.train.contains(&0));
        let all_single = Rule::Stratified((0..10).collect());
        let parts = plan(&all_single).parts(10).unwrap();
        whole(&parts, 10);
        assert_eq!((parts.test.len(), parts.validation.len()), (2, 2));
    }

    #[test]
    fn a_group_is_on_one_side() {
        let groups: Vec<u32> = (0..90).map(|i| i % 17).collect();
        let rule = Rule::Groups(groups.clone());
        let sides = |parts: &Parts| {
            whole(parts, 90);
            let of = |part: &[usize]| {
                let own = part.iter().map(|&i| groups[i]);
                own.collect::<std::collections::BTreeSet<u32>>()
            };
            let parts = [&parts.train, &parts.validation, &parts.test].map(|p| of(p));
            for (a, b) in [(0, 1), (0, 2), (1, 2)] {
                assert!(parts[a].is_disjoint(&parts[b]));
            }
            assert!(parts.iter().all(|p| !p.is_empty()));
        };
        sides(&plan(&rule).parts(90).unwrap());
        for number in 1..=4 {
            let fold = Some(Fold { of: 4, number });
            sides(
                &Plan {
                    fold,
                    ..plan(&rule)
                }
                .parts(90)
                .unwrap(),
            );
        }
    }

    #[test]
    fn by_time_the_past_predicts_the_future() {
        let times: Vec<f64> = (0..100).map(|i| ((i * 37) % 100) as f64).collect();
        let rule = Rule::Time(times.clone());
        let ends = |part: &[usize]| {
            let own = part.iter().map(|&i| times[i]);
            own.fold((f64::MAX, f64::MIN), |e, t| (e.0.min(t), e.1.max(t)))
        };
        let parts = plan(&rule).parts(100).unwrap();
        whole(&parts, 100);
        assert!(ends(&parts.train).1 < ends(&parts.validation).0);
        assert!(ends(&parts.validation).1 < ends(&parts.test).0);
        for number in 1..=4 {
            let fold = Some(Fold { of: 4, number });
            let parts = Plan {
                fold,
                ..plan(&rule)
            }
            .parts(100)
            .unwrap();
            assert_eq!(parts.test.len(), 20);
            assert!(ends(&parts.validation).1 < ends(&parts.test).0);
        }
    }

    #[test]
    fn every_sample_is_tested_in_one_fold_with_its_classes_in_proportion() {
        let classes: Vec<u32> = (0..103).map(|i| u32::from(i % 10 == 0)).collect();
        for rule in [
            Rule::Random,
            Rule::InOrder,
            Rule::Stratified(classes.clone()),
        ] {
            let mut tested = Vec::new();
            for number in 1..=5 {
                let fold = Some(Fold { of: 5, number });
                let parts = Plan {
                    fold,
                    ..plan(&rule)
                }
                .parts(103)
                .unwrap();
                whole(&parts, 103);
                assert!((20..=21).contains(&parts.test.len()));
                if let Rule::Stratified(_) = rule {
                    let rare = parts.test.iter().filter(|&&i| classes[i] == 1).count();
                    assert!((2..=3).contains(&rare), "{rare}");
                }
                tested.extend(parts.test);
            }
            tested.sort_unstable();
            assert_eq!(tested, (0..103).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_cannot_be_split_says_so() {
        let alone = Rule::Groups(vec![0; 9]);
        let error = plan(&alone).parts(9).unwrap_err().to_string();
        assert!(error.contains("at least 2 groups"), "{error}");
        let error = plan(&Rule::Random).parts(1).unwrap_err().to_string();
        assert!(error.contains("test = 0"), "{error}");
        let fold = Some(Fold { of: 9, number: 1 });
        let rule = Rule::Random;
        assert!(
            Plan {
                fold,
                ..plan(&rule)
            }
            .parts(5)
            .is_err()
        );
        assert!(Fold { of: 3, number: 4 }.check().is_err());
    }
}
