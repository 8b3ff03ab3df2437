//! The fuzzer: one program, and the environment's `FUZZ_TARGET` says which target it runs
//! (`fuzz/run` sets it). A panic, an allocation beyond the bound, a time-out and what a sanitizer
//! finds are findings.

#![no_main]

mod experiments;
mod targets;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use retrograd::logic::HardCircuit;

/// The largest block that an input of a few kilobytes may ask for.
const MAX_BLOCK: usize = 512 << 20;

struct Bounded;

#[global_allocator]
static ALLOCATOR: Bounded = Bounded;

fn bounded(size: usize) {
    if size > MAX_BLOCK {
        eprintln!("a block of {size} bytes");
        std::process::abort();
    }
}

// SAFETY: every call goes to the system's allocator unchanged, or the process ends.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        bounded(layout.size());
        // SAFETY: the caller's promise is the one that System asks for.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        bounded(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        bounded(size);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

/// The target's function. The fuzzer's own hook would end the process at every panic; one that the
/// library catches, of a decoder that is not ours, is no finding.
fn target() -> fn(&[u8]) {
    static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();
    *TARGET.get_or_init(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !retrograd::command::panic_is_caught() {
                usual(info);
            }
        }));
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        let found = targets::TARGETS.iter().find(|(own, _)| *own == name);
        match found {
            Some((_, target)) => *target,
            None => panic!("FUZZ_TARGET is {name:?}, needs one of the targets"),
        }
    })
}

/// The table of small circuits is made at its first use and takes seconds with the fuzzer's counters: the
/// input that comes first should not be blamed for it.
fn prepare() {
    target();
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    if ["circuit", "training"].contains(&name.as_str()) {
        let circuit = HardCircuit::from_json(include_str!("../corpus/circuit/three"));
        circuit.expect("a circuit").simplify();
    }
}

fuzz_target!(init: prepare(), |bytes: &[u8]| target()(bytes));
