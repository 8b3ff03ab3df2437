//! The family's entry: training, predictions, and the network drawn or written in other forms.

use super::{Exchange, FrozenKan, FrozenPrecision, trained_kan, write_pictures, write_state};
use crate::family::{Console, ExportOptions, Family};
use crate::train::{Experiment, Session, Summary, Task};
use crate::{Error, Result};

/// Kolmogorov–Arnold networks on tables.
pub const FAMILY: Family = Family {
    train: Some(train),
    run: Some(|_, options, console| crate::network::family::predict(options, console, trained_kan)),
    export: Some(export),
    folds: true,
    explain: Some(|_, options, console| {
        super::explain::explain_run(super::task_of_run, options, console)
    }),
    auto_batch: Some(|experiment, placement, console| {
        crate::network::family::auto_batch(super::task(experiment), placement, console)
    }),
    formats: &[
        ("efficient-kan", "efficient-kan's state"),
        ("pykan", "pykan's state"),
        ("frozen-f32", "A frozen network, weights in f32"),
        ("frozen-f16", "A frozen network, weights in f16"),
        ("frozen-i8", "A frozen network, weights in i8"),
    ],
    works: &[(
        "kan",
        "Z. Liu et al.: KAN: Kolmogorov–Arnold Networks. arXiv:2404.19756, 2024.",
    )],
    workloads: &[
        super::bench::WORKLOADS,
        #[cfg(feature = "gpu")]
        super::bench_gpu::WORKLOADS,
    ],
    growths: super::bench::GROWTHS,
    ..Family::new("kan")
};

fn train(session: &mut Session<'_>) -> Result<Summary> {
    let mut task = super::task(session.experiment())?;
    session.fit(&mut task)
}

/// Draws the network, or writes its weights in another form.
fn export(_: &Experiment, options: &ExportOptions, console: &mut dyn Console) -> Result<()> {
    if options.onnx {
        return options.write_onnx(|| trained_kan(&options.run)?.to_onnx(), console);
    }
    if !options.plot && options.format.is_none() {
        return Err(Error::refused(
            "export",
            "a KAN needs --onnx, --plot, or --kan FORMAT",
        ));
    }
    let (task, params) = super::task_of_run(&options.run)?;
    if options.plot {
        let folder = options.out.as_deref().unwrap_or(&options.run);
        for name in ["network.svg", "network.png"] {
            options.check_output(&folder.join(name))?;
        }
        write_pictures(task.model(), &params, task.shown_inputs(), folder)?;
        for name in ["network.svg", "network.png"] {
            console.value("picture", &folder.join(name).display());
        }
    }
    let Some(format) = options.format.as_deref() else {
        return Ok(());
    };
    let path = match &options.out {
        Some(out) if !options.plot => out.clone(),
        _ => options.run.join(format!("{format}.safetensors")),
    };
    options.check_output(&path)?;
    let network = task.model();
    let precision = match format {
        "efficient-kan" | "pykan" => {
            let kind = match format {
                "pykan" => Exchange::Pykan,
                _ => Exchange::EfficientKan,
            };
            write_state(network, &params, kind, &path)?;
            console.value("state", &path.display());
            return Ok(());
        }
        "frozen-f32" => FrozenPrecision::F32,
        "frozen-f16" => FrozenPrecision::F16,
        "frozen-i8" => FrozenPrecision::I8,
        _ => {
            let names: Vec<_> = FAMILY.formats.iter().map(|f| f.0).collect();
            let needed = format!("one of {}", names.join(", "));
            return Err(Error::invalid("--kan", format!("{format:?}"), needed));
        }
    };
    let mut frozen = FrozenKan::freeze(network, &params, precision)?;
    let (largest, rms, scale) = frozen.error_against(network, &params, task.shown_inputs())?;
    frozen.write(&path)?;
    console.value("frozen", &path.display());
    console.value("weights", &format!("{} bytes", frozen.weight_bytes()));
    let largest = format!("{largest:.3e} of outputs up to {scale:.3e}");
    console.value("largest error", &largest);
    console.value("rms error", &format!("{rms:.3e}"));
    Ok(())
}
