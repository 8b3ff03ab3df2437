//! `retrograd verify`

use crate::exit::Result;

/// Checks gradients against independent oracles.
#[derive(Debug, clap::Args)]
pub struct VerifyArgs {}

pub fn run(args: VerifyArgs) -> Result {
    let VerifyArgs {} = args;
    anyhow::bail!("verify: no model family has checks in this build yet")
}
