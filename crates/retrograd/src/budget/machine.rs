//! What the machine, a container or a shell's limit leaves. Linux says it in files; elsewhere
//! nothing is known here.

use std::path::{Path, PathBuf};

/// The bytes that this process can still have; `None` where the system doesn't say.
pub fn free() -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    [available(&read), groups(&read), address_space(&read)]
        .into_iter()
        .flatten()
        .min()
}

/// A file's text, where it can be read; tests bring files of their own.
type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// `MemAvailable` of `/proc/meminfo`.
pub(super) fn available(read: Read<'_>) -> Option<u64> {
    kibibytes(&read(Path::new("/proc/meminfo"))?, "MemAvailable:")
}

/// The number after a word at the start of a line, in units of 1024 bytes.
fn kibibytes(text: &str, word: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.starts_with(word))?;
    let number: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    number.checked_mul(1024)
}

/// What the limits of the process's control groups leave: those of its own group and of every one
/// above it.
pub(super) fn groups(read: Read<'_>) -> Option<u64> {
    let text = read(Path::new("/proc/self/cgroup"))?;
    let mut left: Vec<u64> = Vec::new();
    for line in text.lines() {
        // number:controllers:path
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (root, limit, used, unused) = if controllers.is_empty() {
            (
                "/sys/fs/cgroup",
                "memory.max",
                "memory.current",
                "inactive_file",
            )
        } else if controllers.split(',').any(|c| c == "memory") {
            (
                "/sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
            )
        } else {
            continue;
        };
        let path = Path::new(path.trim_start_matches('/'));
        // Inside a container the path may be the host's: the root is then the container's own.
        for above in path.ancestors() {
            let folder: PathBuf = Path::new(root).join(above);
            let number = |name: &str| read(&folder.join(name))?.trim().parse::<u64>().ok();
            let (Some(limit), Some(used)) = (number(limit), number(used)) else {
                continue;
            };
            // Files that are merely kept in memory make way.
            let kept = read(&folder.join("memory.stat")).and_then(|text| {
                let line = text.lines().find_map(|l| l.strip_prefix(unused))?;
                line.trim().parse::<u64>().ok()
            });
            left.push(limit.saturating_sub(used.saturating_sub(kept.unwrap_or(0))));
        }
    }
    left.into_iter().min()
}

/// What `ulimit -v` leaves.
pub(super) fn address_space(read: Read<'_>) -> Option<u64> {
    let limits = read(Path::new("/proc/self/limits"))?;
    let line = limits
        .lines()
        .find_map(|l| l.strip_prefix("Max address space"))?;
    let limit: u64 = line.split_whitespace().next()?.parse().ok()?;
    let used = kibibytes(&read(Path::new("/proc/self/status"))?, "VmSize:")?;
    Some(limit.saturating_sub(used))
}
