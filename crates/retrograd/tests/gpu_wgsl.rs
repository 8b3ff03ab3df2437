//! Every WGSL file: valid within the limits that any WebGPU browser grants, in f32 and with f16
//! activations, with its numbers in a `struct Sizes` of its own, and part of the program.
#![cfg(feature = "gpu")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{Module, Scalar, TypeInner};

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The files in a folder and below whose names end so.
fn files_of(folder: &Path, extension: &str, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_of(&path, extension, files);
        } else if path.extension().is_some_and(|e| e == extension) {
            files.push(path);
        }
    }
}

fn common() -> PathBuf {
    source().join("gpu/common.wgsl")
}

/// Every kernel's file: its path below `src`, and its text after the shared functions.
fn kernels() -> Vec<(String, String)> {
    let shared = std::fs::read_to_string(common()).unwrap();
    let mut files = Vec::new();
    files_of(&source(), "wgsl", &mut files);
    files.sort();
    files.retain(|f| *f != common());
    assert!(files.len() >= 12, "{files:?}");
    let kernel = |file: &PathBuf| {
        let text = std::fs::read_to_string(file).unwrap();
        (below_source(file), format!("{shared}\n{text}"))
    };
    files.iter().map(kernel).collect()
}

fn below_source(file: &Path) -> String {
    let path = file.strip_prefix(source()).unwrap();
    let parts = path.iter().map(|part| part.to_str().unwrap());
    parts.collect::<Vec<_>>().join("/")
}

fn validated(name: &str, text: &str, capabilities: Capabilities) -> (Module, ModuleInfo) {
    let module = naga::front::wgsl::parse_str(text)
        .unwrap_or_else(|e| panic!("{name}: {}", e.emit_to_string(text)));
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .unwrap_or_else(|e| panic!("{name}: {}", e.emit_to_string(text)));
    (module, info)
}

/// The same files with 16-bit activations, as mixed precision compiles them.
#[test]
fn every_file_is_valid_with_f16_activations() {
    for (name, text) in kernels() {
        assert!(text.contains("alias real = f32;"));
        let text = text.replace("alias real = f32;", "alias real = f16;");
        let text = format!("enable f16;\n{text}");
        let with_f16 = Capabilities::SHADER_FLOAT16_IN_FLOAT32 | Capabilities::SHADER_FLOAT16;
        validated(&name, &text, with_f16);
    }
}

#[test]
fn every_f32_file_is_valid_within_the_webgpu_baseline_limits() {
    for (name, text) in kernels() {
        // No capability beyond WebGPU's own: no f16, no subgroups, no 64 bits. What packs two
        // halves into a word (pack2x16float) is part of every WebGPU; naga counts it apart for
        // the sake of older interfaces.
        let baseline = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
        let (module, info) = validated(&name, &text, baseline);
        assert!(!module.entry_points.is_empty(), "{name} has no kernel");
        for i in 0..module.entry_points.len() {
            assert_within_limits(&name, &module, &info, i);
        }
    }
}

/// WebGPU's limits that every browser grants: 256 invocations in a workgroup, 8 storage and 12
/// uniform buffers per stage, 16 KiB of workgroup memory.
fn assert_within_limits(name: &str, module: &Module, info: &ModuleInfo, i: usize) {
    let entry = &module.entry_points[i];
    let name = format!("{name} {}", entry.name);
    let [x, y, z] = entry.workgroup_size;
    assert!(
        x <= 256 && y <= 256 && z <= 64 && x * y * z <= 256,
        "{name}"
    );
    let uses = info.get_entry_point(i);
    let (mut storage, mut uniform, mut workgroup) = (0, 0, 0);
    for (handle, global) in module.global_variables.iter() {
        if uses[handle].is_empty() {
            continue;
        }
        match global.space {
            naga::AddressSpace::Storage { .. } => storage += 1,
            naga::AddressSpace::Uniform => uniform += 1,
            naga::AddressSpace::WorkGroup => {
                workgroup += module.types[global.ty].inner.size(module.to_ctx());
            }
            _ => {}
        }
    }
    assert!(storage <= 8, "{name}: {storage} storage buffers");
    assert!(uniform <= 12, "{name}: {uniform} uniform buffers");
    assert!(workgroup <= 16_384, "{name}: {workgroup} bytes");
}

/// What Rust sets by name: up to 16 u32, one after the other, at binding 0.
#[test]
fn every_file_declares_its_sizes() {
    for (name, text) in kernels() {
        let (module, _) = validated(&name, &text, Capabilities::SHADER_FLOAT16_IN_FLOAT32);
        let mut globals = module.global_variables.iter();
        let (_, sizes) = globals
            .find(|(_, global)| global.name.as_deref() == Some("sizes"))
            .unwrap_or_else(|| panic!("{name} has no `sizes`"));
        let binding = sizes.binding.unwrap();
        assert_eq!((binding.group, binding.binding), (0, 0), "{name}");
        let TypeInner::Struct { members, .. } = &module.types[sizes.ty].inner else {
            panic!("the sizes of {name} are no struct");
        };
        assert!(members.len() <= 16, "{name} has {} sizes", members.len());
        for (i, member) in members.iter().enumerate() {
            let is_u32 = module.types[member.ty].inner == TypeInner::Scalar(Scalar::U32);
            let field = member.name.as_deref().unwrap();
            assert!(is_u32 && member.offset == 4 * i as u32, "{name} {field}");
            let is_read = text.contains(&format!("sizes.{field}"));
            assert!(is_read, "{name} never reads sizes.{field}");
        }
    }
}

/// A file that nothing includes would be checked here and run nowhere.
#[test]
fn every_file_is_included_beside_it_under_its_own_path() {
    let mut included = BTreeSet::new();
    let mut files = Vec::new();
    files_of(&source(), "rs", &mut files);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let folder = file.parent().unwrap();
        for (at, start) in text.match_indices("include_str!(\"") {
            let path = text[at + start.len()..].split('"').next().unwrap();
            if !path.ends_with(".wgsl") {
                continue;
            }
            let path = below_source(&folder.join(path));
            // The name that it gets, for messages.
            let before: String = text[..at].split_whitespace().collect();
            let is_named = before.ends_with(&format!("Kernel::new(\"{path}\","));
            assert!(is_named || path == "gpu/common.wgsl", "{path}");
            included.insert(path);
        }
    }
    let mut all: BTreeSet<_> = kernels().into_iter().map(|(name, _)| name).collect();
    all.insert(below_source(&common()));
    assert_eq!(included, all);
}
