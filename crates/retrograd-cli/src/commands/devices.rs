//! `retrograd devices`

use crate::exit::{Outcome, Result};

/// Lists what models can be computed on.
#[derive(Debug, clap::Args)]
pub struct DevicesArgs {}

pub fn run(args: DevicesArgs) -> Result {
    let DevicesArgs {} = args;
    println!(
        "cpu    {} threads, {}",
        retrograd::parallel::threads(),
        retrograd::simd::level_name()
    );
    Ok(Outcome::Done)
}
