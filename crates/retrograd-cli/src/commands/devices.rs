//! `retrograd devices`

use retrograd::command::{InstructionSet, instruction_set};

use crate::exit::{Outcome, Result};

/// Lists the devices that models can be computed on.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  retrograd devices
  retrograd train digits --device gpu:0      an adapter by its number
  retrograd train digits --device gpu:nvidia or by a part of its name")]
pub struct DevicesArgs {}

pub fn run(args: DevicesArgs) -> Result {
    let DevicesArgs {} = args;
    let set = instruction_set();
    println!("cpu    {} threads, {set}", retrograd::parallel::threads());
    let others: Vec<String> = InstructionSet::available()
        .filter(|other| *other != set)
        .map(|other| other.to_string())
        .collect();
    println!(
        "       RETROGRAD_SIMD={} would take another instruction set, to the same bits",
        others.join("|")
    );
    #[cfg(feature = "gpu")]
    gpus();
    Ok(Outcome::Done)
}

/// The adapters that wgpu sees.
#[cfg(feature = "gpu")]
fn gpus() {
    let adapters = retrograd::gpu::Gpu::adapters();
    if adapters.is_empty() {
        println!("gpu    none found; Mesa's software Vulkan (mesa-vulkan-drivers) is one");
    }
    let yes = |has: bool| if has { "yes" } else { "no" };
    for a in adapters {
        println!("gpu:{}  {}, {}, {}", a.index, a.name, a.backend, a.kind);
        println!("       driver {}", a.driver);
        println!(
            "       f16 {}, subgroups {}, timestamps {}, mappable buffers {}",
            yes(a.f16),
            yes(a.subgroups),
            yes(a.timestamps),
            yes(a.mappable)
        );
        println!(
            "       buffers up to {} MiB, bindings up to {} MiB, {} workgroups a side, {} \
             invocations and {} KiB in a workgroup",
            a.max_buffer >> 20,
            a.max_binding >> 20,
            a.max_workgroups,
            a.max_invocations,
            a.workgroup_memory >> 10
        );
    }
}
