//! One mutant through the checks that reach its kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::accepted::parsed;
use super::make::{Mutant, SHARED};
use super::tokens;
use crate::gpu::device::Mutation;
use crate::gpu::kernels::{self, COMMON, Kernel};
use crate::gpu::{Gpu, GpuVerifier};
use crate::verify::on_device::{self, DeviceCheck};
use crate::verify::{Kept, OnProgress, Options, Verdict};
use crate::{Error, Result, math};

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judged {
    /// It is no kernel.
    Rejected,
    /// A check failed on it.
    Caught {
        /// The check.
        by: String,
    },
    /// Every check that reaches it passed.
    Survived {
        /// How many those are.
        checks: usize,
        /// Their names.
        #[serde(default)]
        passed: Vec<String>,
    },
}

/// Which kernels a check runs, and how long it takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reach {
    /// Of a CPU, when everything is compiled and the reference is known.
    pub seconds: f64,
    /// Files and entry points.
    pub kernels: BTreeSet<(String, String)>,
}

/// The most checks that a mutant is run through. Of a model that is checked at several sizes one comes
/// before the others', so that all models are among them.
const MAX_CHECKS: usize = 160;

/// Runs mutants through checks.
pub struct Judge {
    gpu: Arc<Gpu>,
    checks: Vec<DeviceCheck>,
    options: Options,
    /// Checks that were seen to pass without a mutant.
    sound: Mutex<BTreeSet<String>>,
}

impl Judge {
    /// On the adapter that is chosen where none is named. `progress` is told what is computed; what the reference
    /// says is kept in a folder, where one is given.
    pub fn new(progress: OnProgress, folder: Option<PathBuf>) -> Result<Self> {
        on_device::guard_buffers();
        let gpu = GpuVerifier::shared()?;
        let options = Options {
            kept: Some(folder.map_or_else(Kept::default, Kept::in_folder)),
            progress: Some(progress),
            ..Options::default()
        };
        Ok(Judge {
            checks: on_device::all(gpu.description().f16),
            gpu,
            options,
            sound: Mutex::default(),
        })
    }

    /// The names of its checks.
    pub fn checks(&self) -> impl Iterator<Item = &str> {
        self.checks.iter().map(|check| &check.name[..])
    }

    /// What a check reaches.
    pub fn reach(&self, name: &str) -> Result<Reach> {
        let check = self.check(name)?;
        let options = Options {
            touches: true,
            ..self.options.clone()
        };
        self.gpu.mutate(None);
        self.gpu.take_used();
        check.run(&options)?;
        let kernels = (self.gpu.take_used().into_iter())
            .map(|(file, entry)| (file.to_string(), entry.to_string()))
            .collect();
        let clock = || cpu_seconds(std::process::id());
        let (start, before) = (Instant::now(), clock());
        check.run(&options)?;
        let mut seconds = start.elapsed().as_secs_f64();
        if let (Some(before), Some(now)) = (before, clock()) {
            // Its ticks are hundredths.
            seconds = math::min(seconds, now - before + 0.01);
        }
        Ok(Reach { seconds, kernels })
    }

    /// A check that fails on kernels that are right says nothing about others.
    fn is_sound(&self, check: &DeviceCheck) -> Result<()> {
        let mut sound = self.sound.lock().unwrap_or_else(PoisonError::into_inner);
        if sound.contains(&check.name) {
            return Ok(());
        }
        self.gpu.mutate(None);
        let report = check.run(&self.options)?;
        match report.rows.iter().find(|row| row.verdict == Verdict::Fail) {
            None => drop(sound.insert(check.name.clone())),
            Some(row) => {
                return Err(Error::Gpu {
                    what: format!("{} fails without a mutant: {}", check.name, row.tensor),
                    advice: "correct what `retrograd verify --device gpu` shows first".into(),
                });
            }
        }
        Ok(())
    }

    fn check(&self, name: &str) -> Result<&DeviceCheck> {
        let found = self.checks.iter().find(|check| check.name == name);
        found.ok_or_else(|| Error::invalid("check", name, "the name of a check on the device"))
    }

    /// Judges one; by the checks named first, then by the others but those that it has passed, as many as begin
    /// within so many seconds of a CPU.
    pub fn judge(
        &self,
        mutant: &Mutant,
        reach: &BTreeMap<String, Reach>,
        [first, passed]: [&[String]; 2],
        seconds: f64,
    ) -> Result<Judged> {
        if mutant.accepted(false).is_err() {
            return Ok(Judged::Rejected);
        }
        let in_half = mutant.accepted(true).is_ok();
        let mut names = mutant.checks(reach);
        let place = |name: &&str| first.iter().position(|f| f == name).unwrap_or(first.len());
        names.sort_by_key(place);
        self.gpu.mutate(Some(mutant.mutation()));
        let clock = || cpu_seconds(std::process::id()).unwrap_or(0.0);
        let start = clock();
        let mut survived = passed.to_vec();
        let mut judged = None;
        for name in names {
            if passed.iter().any(|p| p == name) {
                continue;
            }
            if clock() - start > seconds {
                break;
            }
            let check = self.check(name)?;
            if check.half && !in_half {
                continue;
            }
            let report = catch_unwind(AssertUnwindSafe(|| check.run(&self.options)));
            if self.gpu.refused().is_some() {
                judged = Some(Judged::Rejected);
                break;
            }
            let passes = match report {
                Ok(Ok(report)) => report.rows.iter().all(|row| row.verdict != Verdict::Fail),
                Ok(Err(_)) | Err(_) => false,
            };
            if !passes {
                self.is_sound(check)?;
                judged = Some(Judged::Caught { by: name.into() });
                break;
            }
            survived.push(name.into());
        }
        self.gpu.mutate(None);
        // Lost devices stay lost: the next judge opens another.
        self.gpu.check()?;
        Ok(judged.unwrap_or(Judged::Survived {
            checks: survived.len(),
            passed: survived,
        }))
    }
}

impl Mutant {
    /// Whether naga takes it for a kernel, with 16-bit activations where asked.
    pub(super) fn accepted(&self, half: bool) -> std::result::Result<(), String> {
        let kernel = kernels::all().into_iter().find(|k| k.name == self.file);
        let text = match kernel {
            Some(kernel) => self.text_of(kernel),
            None => self.applied(COMMON),
        };
        parsed(&text, half).map(|_| ())
    }

    /// What is compiled instead of a kernel's text.
    fn text_of(&self, kernel: &Kernel) -> String {
        match self.file == SHARED {
            true => format!("{}\n{}", self.applied(COMMON), kernel.source()),
            false => format!("{COMMON}\n{}", self.applied(kernel.source())),
        }
    }

    fn mutation(&self) -> Mutation {
        let of = |kernel: &Kernel, file: &str| file == SHARED || kernel.name == file;
        let (for_text, for_entries) = (self.clone(), self.clone());
        Mutation {
            text: Box::new(move |kernel| {
                of(kernel, for_text.file).then(|| for_text.text_of(kernel))
            }),
            changes: Box::new(move |kernel, entry| {
                of(kernel, for_entries.file) && reaches(kernel, entry, &for_entries.function)
            }),
        }
    }

    /// The checks that reach it: those that run the fewest other kernels first, then the quickest.
    fn checks<'r>(&self, reach: &'r BTreeMap<String, Reach>) -> Vec<&'r str> {
        let kernels = kernels::all();
        let reaches_it = |(file, entry): &(String, String)| {
            (self.file == SHARED || file == self.file)
                && (kernels.iter())
                    .find(|k| k.name == file)
                    .is_some_and(|k| reaches(k, entry, &self.function))
        };
        let mut found: Vec<(&String, &Reach)> = (reach.iter())
            .filter(|(_, reach)| reach.kernels.iter().any(reaches_it))
            .collect();
        found.sort_by(|(_, a), (_, b)| {
            let (more, less) = (a.kernels.len(), b.kernels.len());
            more.cmp(&less).then(a.seconds.total_cmp(&b.seconds))
        });
        // Those of one model one after the other, and none of them twice.
        let mut before: BTreeMap<&str, usize> = BTreeMap::new();
        let mut turns: Vec<(usize, &str)> = (found.iter())
            .map(|(name, _)| {
                let turn = before.entry(model_of(name)).or_default();
                *turn += 1;
                (*turn, &name[..])
            })
            .collect();
        turns.sort_by_key(|(turn, _)| *turn);
        turns.truncate(MAX_CHECKS);
        turns.into_iter().map(|(_, name)| name).collect()
    }
}

/// The CPU time of a process, from Linux's table of processes; its ticks are hundredths of a second.
pub fn cpu_seconds(id: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let after_name = text.rsplit_once(')')?.1;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / 100.0)
}

/// What is checked, without its size: `sizes: kan` of `sizes: kan, rows 63`.
fn model_of(name: &str) -> &str {
    match name.contains("sizes: ") {
        true => name.rsplit_once(", ").map_or(name, |(model, _)| model),
        false => name,
    }
}

/// Whether an entry point is that function or calls it, itself or through others.
fn reaches(kernel: &Kernel, entry: &str, function: &str) -> bool {
    let text = kernel.text(false);
    let all = tokens::tokens(&text);
    let functions = tokens::functions(&text, &all);
    let mut seen = BTreeSet::from([entry]);
    let mut todo = vec![entry];
    while let Some(name) = todo.pop() {
        if name == function {
            return true;
        }
        let Some(body) = functions.iter().find(|f| f.name == name).map(|f| &f.body) else {
            continue;
        };
        for token in all.iter().filter(|t| body.contains(&t.range.start)) {
            let word = &text[token.range.clone()];
            if functions.iter().any(|f| f.name == word) && seen.insert(word) {
                todo.push(word);
            }
        }
    }
    false
}
