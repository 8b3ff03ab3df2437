//! Verification: a chain of checks, each link of which localises a fault.
//!
//! 1. Central differences on the f64 reference ↔ the f64 reference's gradients ([`differences`]).
//! 2. The f64 reference ↔ PyTorch, from bundles ([`Bundle`]), within what rounding to f64 explains.
//! 3. The CPU's f32 kernels, and 4. a GPU's ↔ the f64 reference, within a bound that is predicted
//!    beforehand by the same code for every model ([`precision`]).
//! 5. Any number of threads ↔ one: equal bits; and memory used before ↔ fresh memory.
//! 6. Optimizer steps ↔ the f64 reference's and PyTorch's.
//! 7. Mutants: deliberate faults, every one of which the checks must catch.
//!
//! What cannot be checked says so and never counts as passed.
//!
//! [`check`] takes any [`Model`] and a batch:
//!
//! ```no_run
//! # use retrograd::{Loss, Model, Target, verify};
//! # fn example<M: Model>(model: &M, input: &M::Input<f32>, target: &Target<f32>) {
//! let params = model.init(0);
//! let report = verify::check("mine", model, &params, input, target, Loss::Mse, &Default::default());
//! let report = report.unwrap();
//! print!("{}{}\n", report.table(), report.summary());
//! assert!(report.passed());
//! # }
//! ```

mod against;
pub mod builtin;
mod bundle;
pub mod calibrate;
mod chain;
mod device;
pub mod differences;
mod dual;
mod families;
mod function;
mod kept;
mod machines;
pub mod mutants;
#[cfg(feature = "gpu")]
pub mod on_device;
pub mod practice;
pub mod precision;
mod processes;
mod report;
mod rounded;
mod routines;
pub mod sizes;
mod subject;
#[cfg(test)]
mod tests;
mod trained;
mod trajectories;

pub use against::{against, against_on, unchecked};
pub use builtin::BuiltIn;
pub use bundle::{Bundle, BundleArray, BundleOptimizer, Case, FromBundle};
#[cfg(test)]
pub(crate) use chain::precision_rows;
pub use chain::{Expectation, OnProgress, Options, check_on};
pub use device::{Cpu, Device};
pub use dual::Dual;
pub use families::{Against, Check, On, built_in, check_bundle};
pub use function::{
    Backward, Forward, Function, Input, Reference, Round, RoundedBackward, RoundedForward, function,
};
pub use kept::Kept;
pub use mutants::Mistake;
pub use report::{
    Counts, Link, Report, Row, Verdict, Worst, compare, compare_some, largest, table,
};
pub use rounded::{Granted, Margin, Rounded};
pub use subject::{Evaluation, Runner, Subject, Trajectory};
pub use trained::{check_trained, check_trained_on};

use crate::{Loss, Model, Result, Target};

/// Checks any model on a batch: central differences, f32 kernels, threads, reused memory and
/// trajectories. An error where the arguments don't fit together.
pub fn check<M: Model>(
    name: &str,
    model: &M,
    params: &[f32],
    input: &M::Input<f32>,
    target: &Target<f32>,
    loss: Loss,
    options: &Options,
) -> Result<Report> {
    let subject = Subject::new(name, model, params, input, target, loss)?;
    check_on(&subject, &mut Cpu, options)
}
