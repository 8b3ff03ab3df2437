//! The models that `retrograd verify` checks by itself: small ones of every family, with inputs
//! that have power (height ≠ width, in ≠ out, structured data), and their mutants.

pub mod bundled;
pub mod graph;
pub mod network;

use crate::math;
pub(crate) use bundled::bundled;

use super::against::no_kernels;
use super::bundle::Case;
use super::chain::{Options, check_on};
use super::mutants::{
    Honest, Mutation, general_faults, generic_mutants, judge, mutant_row, on, optimizer_mutants,
};
use super::report::{Link, Report, Row};
use super::subject::Subject;
use crate::layer::LayerSpec;
use crate::plan::Place;
use crate::rng::Key;
use crate::{Loss, Model, Pass, Result};

/// A check of one built-in model.
type Run = Box<dyn Fn(&Options) -> Result<Report> + Send + Sync>;

/// A built-in model: its chain and its mutants.
pub struct BuiltIn {
    /// The family and what it shows: `network: conv2d`.
    pub name: String,
    check: Run,
    mutants: Option<Run>,
}

/// A model's own mutants, given what the right model says.
pub type OwnMutants<M> = fn(&Subject<'_, M>, &Honest) -> Result<Report>;

impl BuiltIn {
    /// A model whose chain and mutants are run. `own` adds the family's own mutants; `samples` is
    /// the number of samples in the batch.
    pub fn new<M: Model + 'static>(
        name: impl Into<String>,
        make: impl Fn() -> Result<(Case<M>, Loss)> + Send + Sync + 'static,
        samples: usize,
        own: Option<OwnMutants<M>>,
    ) -> Self {
        let name = name.into();
        let make = std::sync::Arc::new(make);
        let (make_mutants, for_mutants) = (make.clone(), name.clone());
        let mutants = move |options: &Options| {
            let (case, loss) = make_mutants()?;
            let subject = subject(&for_mutants, &case, loss);
            subject.check()?;
            options.say(&format!("{for_mutants}: the right model"));
            let honest = Honest::new(&subject, options)?;
            options.say(&format!("{for_mutants}: mutants"));
            let mut report = Report {
                rows: generic_mutants(&subject, &honest, samples),
            };
            report.rows.extend(optimizer_mutants(&subject, &honest));
            if let Some(own) = own {
                report.extend(own(&subject, &honest)?);
            }
            Ok(report)
        };
        BuiltIn {
            check: chain(name.clone(), move || make()),
            mutants: Some(Box::new(mutants)),
            name,
        }
    }

    /// A model for one of its layers: its chain, and the mutants of that layer alone. (Those of any
    /// model are run on others of the family.)
    pub fn of_layer<M: Model + 'static>(
        name: impl Into<String>,
        make: impl Fn() -> Result<(Case<M>, Loss)> + Send + Sync + 'static,
        own: OwnMutants<M>,
    ) -> Self {
        let name = name.into();
        let make = std::sync::Arc::new(make);
        let (make_mutants, for_mutants) = (make.clone(), name.clone());
        let mutants = move |options: &Options| {
            let (case, loss) = make_mutants()?;
            let subject = subject(&for_mutants, &case, loss);
            subject.check()?;
            options.say(&format!("{for_mutants}: mutants"));
            let honest = Honest::new(&subject, options)?;
            own(&subject, &honest)
        };
        BuiltIn {
            check: chain(name.clone(), move || make()),
            mutants: Some(Box::new(mutants)),
            name,
        }
    }

    /// A larger model, whose work goes to threads: its chain only.
    pub fn large<M: Model + 'static>(
        name: impl Into<String>,
        make: impl Fn() -> Result<(Case<M>, Loss)> + Send + Sync + 'static,
    ) -> Self {
        let name = name.into();
        let check = chain(name.clone(), make);
        BuiltIn {
            check: Box::new(move |options: &Options| {
                let mut options = options.clone();
                options.coverage.all_up_to = 0;
                options.coverage.per_tensor = 16;
                check(&options)
            }),
            mutants: None,
            name,
        }
    }

    /// Whether it has mutants.
    pub fn has_mutants(&self) -> bool {
        self.mutants.is_some()
    }

    /// The chain but for bundles and mutants.
    pub fn check(&self, options: &Options) -> Result<Report> {
        (self.check)(options)
    }

    /// Every mutant with the checks that caught it; nothing for a large model.
    pub fn mutants(&self, options: &Options) -> Result<Report> {
        match &self.mutants {
            // A fault shows after two steps as well as after many.
            Some(mutants) => mutants(&Options {
                steps: 2,
                thread_steps: 2,
                ..options.clone()
            }),
            None => Ok(Report::default()),
        }
    }
}

/// Runs something on all of some models, several at a time, and puts the reports together in the
/// order of the models.
pub fn all(
    models: &[BuiltIn],
    run: impl Fn(&BuiltIn) -> Result<Report> + Send + Sync,
) -> Result<Report> {
    let mut all = Report::default();
    for report in crate::parallel::isolated(models.len(), |i| run(&models[i])) {
        all.extend(report?);
    }
    Ok(all)
}

fn chain<M: Model + 'static>(
    name: String,
    make: impl Fn() -> Result<(Case<M>, Loss)> + Send + Sync + 'static,
) -> Run {
    Box::new(move |options: &Options| {
        let (case, loss) = make()?;
        match case.model.verifier(options.on)? {
            Some(mut device) => check_on(&subject(&name, &case, loss), &mut *device, options),
            None => {
                let family = name.split(':').next().unwrap_or_default();
                let row = Row::unchecked(&name, "everything", Link::Gpu, no_kernels(family));
                Ok(Report { rows: vec![row] })
            }
        }
    })
}

/// The layer that a model's name speaks of after its family.
fn layer_of(name: &str, layers: &[LayerSpec]) -> usize {
    let kind = name.rsplit(": ").next().and_then(|n| n.split(' ').next());
    let found = layers.iter().position(|l| kind == Some(l.kind()));
    found.unwrap_or(0)
}

/// Every fault that a layer can have, any layer's and those of its kind, in the reference and in the
/// f32 kernels alone; `wrong` makes the model with the fault.
fn layer_mutants<M: Model>(
    subject: &Subject<'_, M>,
    honest: &Honest,
    (place, spec): (&Place, &LayerSpec),
    wrong: impl Fn(&Mutation, bool) -> Result<M>,
) -> Result<Report> {
    let mut mutations = general_faults(&*place.layer, place.with.is_some());
    mutations.extend(spec.spec().faults(&*place.layer));
    let mut report = Report::default();
    for mutation in &mutations {
        for only_f32 in [false, true] {
            let model = wrong(mutation, only_f32)?;
            if let Some(caught) = judge(&on(subject, &model), honest) {
                let where_ = if only_f32 { ", in f32" } else { "" };
                let words = format!("{} {}{where_}", spec.kind(), mutation.words);
                report.rows.push(mutant_row(&subject.name, &words, &caught));
            }
        }
    }
    Ok(report)
}

/// A built-in case as a subject.
pub(crate) fn subject<'c, M: Model>(name: &str, case: &'c Case<M>, loss: Loss) -> Subject<'c, M> {
    Subject {
        name: name.to_string(),
        model: &case.model,
        params: case.params.clone(),
        input: case.model.cast_input::<f64, f64>(&case.input),
        target: case.target.clone(),
        loss,
        pass: Pass::training(Key::new(0).purpose("verify")),
    }
}

/// Structured numbers that f32 holds: waves over ramps, no two alike.
pub fn structured(len: usize, phase: f64) -> Vec<f64> {
    (0..len)
        .map(|i| {
            let t = i as f64;
            let wave = math::sin(0.9 * t + phase) + 0.4 * math::cos(0.13 * t * t + phase);
            // Anew after 1000: a long batch is not one of large numbers.
            f64::from((0.8 * wave + 0.002 * (t % 1000.0)) as f32)
        })
        .collect()
}
