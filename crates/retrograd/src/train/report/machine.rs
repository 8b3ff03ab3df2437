//! What a run was computed on.

use crate::{parallel, simd};

/// The processor as its maker calls it, the threads in use and the instruction set.
pub(crate) fn cpu() -> String {
    let threads = match parallel::threads() {
        1 => "1 thread".to_string(),
        n => format!("{n} threads"),
    };
    format!(
        "{}, {threads}, {}",
        model().unwrap_or_else(|| format!("CPU ({})", std::env::consts::ARCH)),
        simd::instruction_set()
    )
}

/// Linux says it in a file; elsewhere the architecture must do.
fn model() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("model name"))?;
    let name = line.split_once(':')?.1;
    let name: Vec<&str> = name.split_whitespace().collect();
    Some(name.join(" ")).filter(|n| !n.is_empty())
}

/// The operating system and the architecture.
pub(super) fn system() -> String {
    format!("{}, {}", std::env::consts::OS, std::env::consts::ARCH)
}
