//! What naga says about a kernel's text: whether it is one, and what its entry points are bound to.

use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Module, StorageAccess};

use crate::gpu::kernels::Kernel;
use crate::gpu::precision::with_f16;

/// A module that naga accepts.
pub(super) struct Parsed {
    pub module: Module,
    pub info: ModuleInfo,
}

/// Parses and validates a text, with 16-bit activations where asked.
pub(super) fn parsed(text: &str, half: bool) -> Result<Parsed, String> {
    let (text, capabilities) = match half {
        true => (
            with_f16(text),
            Capabilities::SHADER_FLOAT16_IN_FLOAT32 | Capabilities::SHADER_FLOAT16,
        ),
        false => (text.to_string(), Capabilities::SHADER_FLOAT16_IN_FLOAT32),
    };
    let module =
        naga::front::wgsl::parse_str(&text).map_err(|error| error.emit_to_string(&text))?;
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .map_err(|error| error.emit_to_string(&text))?;
    Ok(Parsed { module, info })
}

/// Whether naga takes a whole text for a module.
#[cfg(test)]
pub(in crate::gpu) fn parses(text: &str) -> Result<(), String> {
    let module = naga::front::wgsl::parse_str(text).map_err(|e| e.emit_to_string(text))?;
    Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map(|_| ())
        .map_err(|e| e.emit_to_string(text))
}

/// What an entry point of a right kernel is bound to: wrong ones get the same, whatever they still use.
pub(crate) fn layout(kernel: &Kernel, entry: &str) -> Vec<wgpu::BindGroupLayoutEntry> {
    let Ok(Parsed { module, info }) = parsed(&kernel.text(false), false) else {
        return Vec::new();
    };
    let Some(i) = module.entry_points.iter().position(|e| e.name == entry) else {
        return Vec::new();
    };
    let uses = info.get_entry_point(i);
    let bound = module
        .global_variables
        .iter()
        .filter_map(|(handle, global)| {
            let binding = global.binding.filter(|_| !uses[handle].is_empty())?.binding;
            let ty = match global.space {
                AddressSpace::Uniform => wgpu::BufferBindingType::Uniform,
                AddressSpace::Storage { access } => wgpu::BufferBindingType::Storage {
                    read_only: !access.contains(StorageAccess::STORE),
                },
                _ => return None,
            };
            Some(wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty,
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            })
        });
    bound.collect()
}
