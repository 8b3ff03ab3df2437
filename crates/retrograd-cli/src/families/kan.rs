//! Kolmogorov–Arnold networks.

use anyhow::{Result, bail};
use clap::ValueEnum;
use retrograd::kan::{Exchange, FrozenKan, KanTask, Precision, trained_kan, write_state};
use retrograd::train::{Experiment, Session, Summary, Task};

use super::Family;
use crate::commands::{ExportArgs, RunArgs};
use crate::exit::Outcome;

pub const FAMILY: Family = Family {
    name: "kan",
    train,
    run: Some(run),
    export: Some(export),
};

/// What a KAN can be exported as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KanFormat {
    /// efficient-kan's state.
    EfficientKan,
    /// pykan's state.
    Pykan,
    /// A frozen network, weights in f32.
    FrozenF32,
    /// A frozen network, weights in f16.
    FrozenF16,
    /// A frozen network, weights in i8.
    FrozenI8,
}

fn train(session: &mut Session<'_>) -> retrograd::Result<Summary> {
    let mut task = KanTask::new(session.experiment())?;
    session.fit(&mut task)
}

fn run(_: &Experiment, args: &RunArgs) -> Result<Outcome> {
    super::network::predict(args, trained_kan)
}

/// Draws the network, or writes its weights in another form.
fn export(_: &Experiment, args: &ExportArgs) -> Result<Outcome> {
    if !args.plot && args.kan.is_none() {
        bail!("export: a KAN needs --plot, or --kan FORMAT");
    }
    let (task, params) = KanTask::of_run(&args.run)?;
    if args.plot {
        let folder = args.out.as_deref().unwrap_or(&args.run);
        task.write_pictures(&params, folder)?;
        println!(
            "picture              {}",
            folder.join("network.svg").display()
        );
        println!(
            "picture              {}",
            folder.join("network.png").display()
        );
    }
    let Some(format) = args.kan else {
        return Ok(Outcome::Done);
    };
    let name = format.to_possible_value().map(|v| v.get_name().to_string());
    let name = format!("{}.safetensors", name.unwrap_or_default());
    let path = match &args.out {
        Some(out) if !args.plot => out.clone(),
        _ => args.run.join(name),
    };
    let network = task.model();
    let precision = match format {
        KanFormat::EfficientKan | KanFormat::Pykan => {
            let kind = match format {
                KanFormat::Pykan => Exchange::Pykan,
                _ => Exchange::EfficientKan,
            };
            write_state(network, &params, kind, &path)?;
            println!("state                {}", path.display());
            return Ok(Outcome::Done);
        }
        KanFormat::FrozenF32 => Precision::F32,
        KanFormat::FrozenF16 => Precision::F16,
        KanFormat::FrozenI8 => Precision::I8,
    };
    let mut frozen = FrozenKan::freeze(network, &params, precision)?;
    let (largest, rms, scale) = frozen.error_against(network, &params, task.shown_inputs())?;
    frozen.write(&path)?;
    println!("frozen               {}", path.display());
    println!("weights              {} bytes", frozen.weight_bytes());
    println!("largest error        {largest:.3e} of outputs up to {scale:.3e}");
    println!("rms error            {rms:.3e}");
    Ok(Outcome::Done)
}
