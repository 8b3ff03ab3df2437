//! Sizes that no machine holds are refused before anything is allocated, with the largest value that
//! fits; and that value does fit: training with it takes no more than was allowed, and not much
//! less.

#![allow(unsafe_code, reason = "a counting allocator has to be one")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use retrograd::train::{Experiment, Session};
use retrograd::{Family, budget};

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(held, Relaxed);
        // SAFETY: the caller's promise is the one that System asks for.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

const LIMIT: usize = 32 << 20;
/// What a run takes whatever its sizes: tables of kernels, threads, the report.
const FIXED: usize = 6 << 20;

/// The limit and the counters are the process's: one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const TRAIN: &str = "[train]\nepochs = 1\noptimizer = { kind = \"adam\", lr = 0.001 }\n";

/// An experiment with a size in the place of `#`.
fn experiment(text: &str, size: u64) -> Experiment {
    let text = format!(
        "name = \"x\"\n{}{TRAIN}",
        text.replace('#', &size.to_string())
    );
    // A key of [train] stands in the model's text, after its own table.
    let text = match text.split_once("BATCH") {
        Some((before, after)) => format!("{before}{after}batch = {size}\n"),
        None => text,
    };
    Experiment::parse(&text, "x.toml").expect("an experiment")
}

/// Trains with everything at the end, in a folder; the most bytes held, and what came of it.
fn peak(experiment: Experiment) -> (usize, Result<(), String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let before = HELD.load(Relaxed);
    MOST.store(before, Relaxed);
    let family = Family::find(experiment.family()).expect("a family");
    let mut session = Session::new(experiment).in_folder(folder.path().join("run"));
    let outcome = family.train(&mut session);
    let outcome = outcome.map(|_| ()).map_err(|e| e.to_string());
    (MOST.load(Relaxed).saturating_sub(before), outcome)
}

/// The refusal of a size, checked, and the value that it proposes.
fn proposed(text: &str, name: &str, size: u64) -> u64 {
    proposed_after(text, name, size, FIXED)
}

/// The same where as much may have been allocated by then.
fn proposed_after(text: &str, name: &str, size: u64, most: usize) -> u64 {
    let (bytes, outcome) = peak(experiment(text, size));
    let error = outcome.expect_err(name);
    assert!(bytes < most, "{name}: {bytes} bytes before the refusal");
    assert!(
        error.contains(&format!("{name} = {size}")),
        "{name}: {error}"
    );
    assert!(error.contains("are allowed: at most "), "{name}: {error}");
    let number = error
        .split("at most ")
        .nth(1)
        .and_then(|t| t.split(' ').next());
    number.and_then(|n| n.parse().ok()).expect("a number")
}

fn holds(text: &str, name: &str, size: u64) {
    holds_beside(text, name, size, FIXED);
}

fn holds_beside(text: &str, name: &str, size: u64, fixed: usize) {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    budget::limit_to(Some(LIMIT as u64));
    let largest = proposed(text, name, size);
    fits(text, name, largest, fixed);
}

/// Training with that size takes no more than the limit, and not much less.
fn fits(text: &str, name: &str, largest: u64, fixed: usize) {
    let (bytes, outcome) = peak(experiment(text, largest));
    outcome.unwrap_or_else(|e| panic!("{name} = {largest}: {e}"));
    println!(
        "{name} = {largest}: {:.0} of {} MiB",
        bytes as f64 / 1_048_576.0,
        LIMIT >> 20
    );
    assert!(bytes <= LIMIT + fixed, "{name} = {largest}: {bytes} bytes");
    assert!(bytes >= LIMIT / 2, "{name} = {largest}: only {bytes} bytes");
    budget::limit_to(None);
}

#[test]
fn generated_samples() {
    let text = "[model]\nfamily = \"network\"\nlayers = [{ kind = \"dense\", out = 1 }]\n\
                [data]\ngenerate = { name = \"friedman\", samples = # }\n";
    holds(text, "data.generate.samples", 9_000_000);
}

#[test]
fn outputs_of_a_dense_layer() {
    let text = "[model]\nfamily = \"network\"\nlayers = [{ kind = \"dense\", out = # }, \
                { kind = \"dense\", out = 2 }]\n\
                [data]\ngenerate = { name = \"two_moons\", samples = 64 }\n";
    holds(text, "model.layers[0].out", 2_000_000_000);
}

/// The picture of a KAN has 3,488 × 920 pixels, however wide it is: bytes, and then packed.
const KAN_PICTURE: usize = 3488 * 920 * (1 + 1);

#[test]
fn sizes_of_a_kan() {
    let text = "[model]\nfamily = \"kan\"\nsizes = [2, #, 2]\n\
                [data]\ngenerate = { name = \"two_moons\", samples = 64 }\n";
    holds_beside(text, "model.sizes[1]", 1_000_000_000, FIXED + KAN_PICTURE);
}

/// Knots of its own for every input are made with the layer, before anything else is known.
#[test]
fn inputs_with_knots_of_their_own() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    budget::limit_to(Some(LIMIT as u64));
    let text = "[model]\nfamily = \"kan\"\nsizes = [#, 2]\nupdate_grid = { every = 1 }\n\
                [data]\ngenerate = { name = \"two_moons\", samples = 64 }\n";
    let largest = proposed(text, "layers[0].inputs (kan)", 1_000_000_000);
    assert!((10_000..200_000).contains(&largest), "{largest}");
    budget::limit_to(None);
}

#[test]
fn sizes_of_a_kan_whose_knots_move() {
    let text = "[model]\nfamily = \"kan\"\nsizes = [2, #, 2]\nupdate_grid = { every = 1 }\n\
                [data]\ngenerate = { name = \"two_moons\", samples = 64 }\n";
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    budget::limit_to(Some(LIMIT as u64));
    // The knots themselves would fit, and are there when the rest is computed.
    let largest = proposed_after(text, "model.sizes[1]", 30_000, LIMIT);
    fits(text, "model.sizes[1]", largest, FIXED + KAN_PICTURE);
}

const AUTOMATON: &str = "[model]\nfamily = \"logic_ca\"\nchannels = 4\nkernels = 8\n\
    perception = [9, 8, 4, 2]\nupdate = [68, 64, 32, 16, 8, 4]\nboundary = \"zero\"\nsteps = 8\n\
    [data]\nstart = \"random\"\ntarget = \"checkerboard\"\n";

#[test]
fn the_grid_of_an_automaton() {
    holds(
        &format!("{AUTOMATON}grid = [#, 16]\n"),
        "data.grid[0]",
        1_000_000_000,
    );
}

#[test]
fn the_batch_of_an_automaton() {
    holds(
        &format!("{AUTOMATON}grid = [8, 8]\nBATCH"),
        "train.batch",
        1 << 40,
    );
}

#[test]
fn the_steps_of_an_automaton() {
    let text = AUTOMATON.replace("steps = 8", "steps = #");
    holds(&format!("{text}grid = [32, 32]\n"), "model.steps", 1 << 50);
}

const DENOISER: &str = "[model]\nfamily = \"denoise\"\narchitecture = \"simple-cnn\"\n\
    [data]\nmethod = \"supervised\"\nsteps_per_epoch = 1\n";

#[test]
fn the_batch_of_a_denoiser() {
    let text = format!(
        "{DENOISER}patch = 32\ngenerate = {{ kind = \"photograph\", count = 2, width = 64, height \
         = 64, sigma = 9.0 }}\nBATCH"
    );
    holds(&text, "train.batch", 1 << 40);
}

#[test]
fn generated_images() {
    let text = format!(
        "{DENOISER}patch = 32\ngenerate = {{ kind = \"photograph\", count = #, width = 256, height \
         = 256, sigma = 9.0 }}\n"
    );
    holds(&text, "data.generate.count", 1 << 40);
}

#[test]
fn characters_of_a_text() {
    let text = "[model]\nfamily = \"graph\"\nlayers = [{ kind = \"embedding\", vocabulary = 29, \
                out = 16 }, { kind = \"message_passing\", out = 16 }, { kind = \"dense\", out = 28 \
                }]\n[data]\nkind = \"text\"\nsamples = 4\ncharacters = #\n";
    holds(text, "data.characters", 1 << 40);
}

#[test]
fn a_patch_that_no_machine_holds() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    budget::limit_to(Some(LIMIT as u64));
    let text = format!(
        "{DENOISER}patch = #\ngenerate = {{ kind = \"photograph\", count = 2, width = 64, height = \
         64, sigma = 9.0 }}\n"
    );
    let largest = proposed(&text, "data.patch", 8_000);
    assert!((32..4000).contains(&largest), "{largest}");
    budget::limit_to(None);
}
