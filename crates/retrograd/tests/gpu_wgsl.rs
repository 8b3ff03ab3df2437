//! Every f32 WGSL file within the limits that any WebGPU browser grants.
#![cfg(feature = "gpu")]

use std::path::{Path, PathBuf};

use naga::valid::{Capabilities, ValidationFlags, Validator};

fn wgsl_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            wgsl_files(&path, files);
        } else if path.extension().is_some_and(|e| e == "wgsl") {
            files.push(path);
        }
    }
}

/// The same files with 16-bit activations, as mixed precision compiles them.
#[test]
fn every_file_is_valid_with_f16_activations() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let common = source.join("gpu/common.wgsl");
    let shared = std::fs::read_to_string(&common).unwrap();
    assert!(shared.contains("alias real = f32;"));
    let mut files = Vec::new();
    wgsl_files(&source, &mut files);
    for file in files.iter().filter(|f| **f != common) {
        let text = format!("{shared}\n{}", std::fs::read_to_string(file).unwrap());
        let text = text.replace("alias real = f32;", "alias real = f16;");
        let text = format!("enable f16;\n{text}");
        let name = file.display();
        let module = naga::front::wgsl::parse_str(&text)
            .unwrap_or_else(|e| panic!("{name}: {}", e.emit_to_string(&text)));
        let with_f16 = Capabilities::SHADER_FLOAT16_IN_FLOAT32 | Capabilities::SHADER_FLOAT16;
        Validator::new(ValidationFlags::all(), with_f16)
            .validate(&module)
            .unwrap_or_else(|e| panic!("{name}: {}", e.emit_to_string(&text)));
    }
}

#[test]
fn every_f32_file_is_valid_within_the_webgpu_baseline_limits() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let common = source.join("gpu/common.wgsl");
    let shared = std::fs::read_to_string(&common).unwrap();
    let mut files = Vec::new();
    wgsl_files(&source, &mut files);
    files.sort();
    files.retain(|f| *f != common);
    assert!(files.len() >= 12, "{files:?}");
    for file in files {
        let name = file.strip_prefix(&source).unwrap().display();
        let text = format!("{shared}\n{}", std::fs::read_to_string(&file).unwrap());
        let module = naga::front::wgsl::parse_str(&text)
            .unwrap_or_else(|e| panic!("{name}: {}", e.emit_to_string(&text)));
        // No capability beyond WebGPU's own: no f16, no subgroups, no 64 bits. What packs two
        // halves into a word (pack2x16float) is part of every WebGPU; naga counts it apart for
        // the sake of older interfaces.
        let baseline = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
        let info = Validator::new(ValidationFlags::all(), baseline)
            .validate(&module)
            .unwrap_or_else(|e| panic!("{name}: {}", e.emit_to_string(&text)));
        assert!(!module.entry_points.is_empty(), "{name} has no kernel");
        for (i, entry) in module.entry_points.iter().enumerate() {
            let [x, y, z] = entry.workgroup_size;
            assert!(
                x <= 256 && y <= 256 && z <= 64 && x * y * z <= 256,
                "{name} {}",
                entry.name
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
            // WebGPU's limits that every browser grants: 8 storage and 12 uniform buffers per
            // stage, 16 KiB of workgroup memory.
            assert!(
                storage <= 8,
                "{name} {}: {storage} storage buffers",
                entry.name
            );
            assert!(
                uniform <= 12,
                "{name} {}: {uniform} uniform buffers",
                entry.name
            );
            assert!(
                workgroup <= 16_384,
                "{name} {}: {workgroup} bytes",
                entry.name
            );
        }
    }
}
