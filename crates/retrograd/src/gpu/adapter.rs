//! Adapters: what there is, and which one is taken.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use super::device::Gpu;
use crate::{Error, Result};

/// What an adapter is and can do.
#[derive(Clone, Debug)]
pub struct AdapterDescription {
    /// Its place in the list, for `--device gpu:INDEX`.
    pub index: usize,
    /// The adapter's name.
    pub name: String,
    /// `vulkan`, `metal`, `dx12` …
    pub backend: String,
    /// Discrete, integrated, software …
    pub kind: String,
    /// The driver's name and version.
    pub driver: String,
    /// 16-bit floats in shaders.
    pub f16: bool,
    /// Subgroup operations.
    pub subgroups: bool,
    /// Timestamps, for `bench --profile`.
    pub timestamps: bool,
    /// The CPU can map the device's own buffers.
    pub mappable: bool,
    /// The largest buffer, in bytes.
    pub max_buffer: u64,
    /// The largest part of a buffer that a kernel can see, in bytes.
    pub max_binding: u64,
    /// The most workgroups along one axis of a dispatch.
    pub max_workgroups: u32,
    /// The most invocations in a workgroup.
    pub max_invocations: u32,
    /// Memory that a workgroup shares, in bytes.
    pub workgroup_memory: u32,
}

/// Which adapter to take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// A discrete card before an integrated one before software.
    #[default]
    Auto,
    /// Its place in [`Gpu::adapters`].
    Index(usize),
    /// Part of its name, in any case.
    Name(String),
}

impl Choice {
    /// `auto`, a number, or a part of a name.
    pub fn parse(text: &str) -> Self {
        match text.trim() {
            "" | "auto" => Choice::Auto,
            text => text
                .parse()
                .map_or_else(|_| Choice::Name(text.into()), Choice::Index),
        }
    }
}

impl Gpu {
    /// All adapters, in a fixed order.
    pub fn adapters() -> Vec<AdapterDescription> {
        all_adapters()
            .iter()
            .enumerate()
            .map(|(i, adapter)| describe(i, adapter))
            .collect()
    }

    /// The numbers of the adapters that one would compute with: all that are like the one that is
    /// chosen where none is named. Several processes of a machine take one each, and
    /// `--device gpu:all` takes all. An error where there is none.
    pub fn best_adapters() -> Result<Vec<usize>> {
        let adapters = Self::adapters();
        choose(&Choice::Auto, &adapters)?;
        Ok(best(&adapters))
    }

    /// From here on adapters are those of this instance, and not the system's: for a program that has an
    /// instance already, or a backend of its own (`wgpu::Instance::from_custom`), as the playground has for
    /// the browser's WebGPU. Devices that are open stay as they are.
    pub fn take_adapters_of(instance: wgpu::Instance) {
        *GIVEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(instance);
    }
}

/// What [`Gpu::take_adapters_of`] was given.
static GIVEN: Mutex<Option<wgpu::Instance>> = Mutex::new(None);

pub(super) fn all_adapters() -> Vec<wgpu::Adapter> {
    let given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(instance) = given {
        return block_on(instance.enumerate_adapters(wgpu::Backends::all()));
    }
    // Where wgpu has no backend for the system, it makes no instance.
    if wgpu::Instance::enabled_backend_features().is_empty() {
        return Vec::new();
    }
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY))
}

pub(super) fn describe(index: usize, adapter: &wgpu::Adapter) -> AdapterDescription {
    let (info, limits, features) = (adapter.get_info(), adapter.limits(), adapter.features());
    AdapterDescription {
        index,
        name: info.name,
        backend: info.backend.to_string(),
        kind: match info.device_type {
            wgpu::DeviceType::DiscreteGpu => "discrete",
            wgpu::DeviceType::IntegratedGpu => "integrated",
            wgpu::DeviceType::VirtualGpu => "virtual",
            wgpu::DeviceType::Cpu => "software",
            wgpu::DeviceType::Other => "other",
        }
        .into(),
        driver: format!("{} {}", info.driver, info.driver_info),
        f16: features.contains(wgpu::Features::SHADER_F16),
        subgroups: features.contains(wgpu::Features::SUBGROUP),
        timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
        mappable: features.contains(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS),
        max_buffer: limits.max_buffer_size,
        max_binding: limits.max_storage_buffer_binding_size,
        max_workgroups: limits.max_compute_workgroups_per_dimension,
        max_invocations: limits.max_compute_invocations_per_workgroup,
        workgroup_memory: limits.max_compute_workgroup_storage_size,
    }
}

pub(super) fn choose(choice: &Choice, adapters: &[AdapterDescription]) -> Result<usize> {
    let names = || {
        let list = adapters
            .iter()
            .map(|a| format!("{}: {} ({}, {})", a.index, a.name, a.backend, a.kind));
        list.collect::<Vec<_>>().join("; ")
    };
    if adapters.is_empty() {
        return Err(Error::Gpu {
            what: "no adapter found".into(),
            advice: "install the card's Vulkan driver, or Mesa's software Vulkan (Debian: \
                     mesa-vulkan-drivers), or use --device cpu"
                .into(),
        });
    }
    let none = |wanted: String| Error::Gpu {
        what: format!("no adapter {wanted}"),
        advice: format!("choose one of: {}", names()),
    };
    match choice {
        Choice::Auto => Ok(best(adapters)[0]),
        Choice::Index(i) if *i < adapters.len() => Ok(*i),
        Choice::Index(i) => Err(none(format!("number {i}"))),
        Choice::Name(name) => {
            let wanted = name.to_lowercase();
            let found = adapters
                .iter()
                .find(|a| a.name.to_lowercase().contains(&wanted));
            found
                .map(|a| a.index)
                .ok_or_else(|| none(format!("whose name holds {name:?}")))
        }
    }
}

/// The adapters that are like the best one: a discrete card before an integrated one before software,
/// all behind the same interface, so that none is there twice.
fn best(adapters: &[AdapterDescription]) -> Vec<usize> {
    let rank = |a: &AdapterDescription| match a.kind.as_str() {
        "discrete" => 0,
        "integrated" => 1,
        "virtual" => 2,
        "other" => 3,
        _ => 4,
    };
    let Some(best) = adapters.iter().min_by_key(|a| rank(a)) else {
        return Vec::new();
    };
    let alike = |a: &&AdapterDescription| a.kind == best.kind && a.backend == best.backend;
    adapters.iter().filter(alike).map(|a| a.index).collect()
}

/// Drives a future of wgpu, which is ready at once on a system, and in the playground, whose backend waits for the
/// browser before it gives one.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_that_is_not_there_is_an_error_that_lists_those_that_are() {
        let adapters = Gpu::adapters();
        assert!(
            !adapters.is_empty(),
            "no adapter: install mesa-vulkan-drivers"
        );
        for choice in [Choice::Index(99), Choice::parse("no such card")] {
            let Err(error) = Gpu::open(&choice) else {
                panic!("{choice:?} was found");
            };
            assert!(error.to_string().contains(&adapters[0].name), "{error}");
        }
        let message = choose(&Choice::Auto, &[]).unwrap_err().to_string();
        assert!(message.contains("--device cpu"), "{message}");
        let part: String = adapters[0].name.chars().take(4).collect();
        assert_eq!(choose(&Choice::parse(&part), &adapters).unwrap(), 0);
        assert_eq!(Choice::parse("3"), Choice::Index(3));
        assert_eq!(Choice::parse("auto"), Choice::Auto);
    }

    #[test]
    fn adapters_are_those_of_the_instance_that_was_given() {
        let names = || Vec::from_iter(Gpu::adapters().into_iter().map(|a| a.name));
        let own = names();
        let descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        // (What other tests of this process see after it are the same adapters.)
        Gpu::take_adapters_of(wgpu::Instance::new(descriptor));
        assert_eq!(names(), own);
        assert!(Gpu::open(&Choice::Auto).is_ok());
    }

    #[test]
    fn processes_share_the_cards_that_are_alike_and_no_card_is_there_twice() {
        let one = Gpu::adapters().swap_remove(0);
        let adapter = |(index, (kind, backend)): (usize, (&str, &str))| AdapterDescription {
            index,
            kind: kind.into(),
            backend: backend.into(),
            ..one.clone()
        };
        let list = [
            ("software", "vulkan"),
            ("discrete", "vulkan"),
            ("integrated", "vulkan"),
            ("discrete", "dx12"),
            ("discrete", "vulkan"),
        ];
        let adapters: Vec<_> = list.into_iter().enumerate().map(adapter).collect();
        assert_eq!(best(&adapters), [1, 4]);
        assert_eq!(choose(&Choice::Auto, &adapters).unwrap(), 1);
        assert_eq!(best(&adapters[..1]), [0]);
        assert!(Gpu::best_adapters().unwrap().contains(&0));
    }
}
