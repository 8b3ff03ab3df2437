//! After the first, a training step allocates nothing: counted by the allocator itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use retrograd::train::{Event, Experiment, NetworkTask, Observer, Session};

/// The system's allocator with a counter for this thread. Rayon's queues grow on its own threads
/// and, rarely, on the caller's; with one thread there are none, and every kernel runs here.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending has no counter any more.
    let _ = COUNT.try_with(|c| c.set(c.get() + 1));
}

#[allow(unsafe_code, reason = "an allocator is unsafe by its signature")]
// SAFETY: every call is passed on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        unsafe { System.realloc(pointer, layout, size) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        unsafe { System.alloc_zeroed(layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The counter after every step.
struct AfterEachStep(Vec<u64>);

impl Observer for AfterEachStep {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Step { .. } = event {
            self.0.push(COUNT.get());
        }
    }
}

/// Allocations of every step of three epochs of 7 batches, evaluated once at the end.
fn allocations(layers: &str, train: &str) -> Vec<u64> {
    let text = format!(
        "name = \"counted\"\n[model]\nfamily = \"network\"\nlayers = [{layers}]\n\
         [data]\ngenerate = {{ name = \"digits\" }}\nshape = [1, 8, 8]\nvalidation = 0.8\n\
         [train]\nepochs = 3\nbatch = 60\nevaluate_every = 3\n{train}\n"
    );
    let experiment = Experiment::parse(&text, "counted.toml").unwrap();
    let mut task = NetworkTask::new(&experiment).unwrap();
    let mut observer = AfterEachStep(Vec::with_capacity(100));
    Session::new(experiment)
        .observed_by(&mut observer)
        .fit(&mut task)
        .unwrap();
    // The first 359 samples of the split make 5 batches of 60 and one of 59.
    assert_eq!(observer.0.len() % 3, 0);
    let counts = observer.0;
    counts.windows(2).map(|w| w[1] - w[0]).collect()
}

const ADAM: &str = "optimizer = { kind = \"adam\", lr = 0.001 }\nclip = 1.0\n\
     schedule = { kind = \"cosine\" }";

#[test]
fn a_step_after_the_first_allocates_nothing() {
    let dense = "{ kind = \"flatten\" }, { kind = \"dense\", out = 40 }, { kind = \"gelu\" }, \
                 { kind = \"dropout\", p = 0.1 }, { kind = \"layer_norm\" }, \
                 { kind = \"dense\", out = 10 }";
    let images = "{ kind = \"conv2d\", out = 4, kernel = 3, padding = 1 }, { kind = \"relu\" }, \
                  { kind = \"batch_norm2d\" }, { kind = \"max_pool2d\", kernel = 2 }, \
                  { kind = \"upsample\", scale = 2 }, { kind = \"concat\", with = 2 }, \
                  { kind = \"conv2d\", out = 4, kernel = 1 }, { kind = \"add\", with = 2 }, \
                  { kind = \"group_norm\", groups = 2 }, \
                  { kind = \"flatten\" }, { kind = \"dense\", out = 10 }";
    let splines = "{ kind = \"flatten\" }, \
                   { kind = \"kan\", out = 8, grid = 5, degree = 3, range = [-1.0, 16.0] }, \
                   { kind = \"kan\", out = 10, grid = 3, degree = 2, range = [-2.0, 2.0], outside = \"clamp\" }";
    let momentum = "optimizer = { kind = \"sgd\", lr = 0.001, momentum = 0.9 }\n\
                    accumulate = 2\nclip_element = 1.0\nfreeze = [\"1.*\"]";
    for (layers, train) in [
        (dense, ADAM),
        (dense, momentum),
        (images, ADAM),
        (splines, ADAM),
    ] {
        retrograd::parallel::with_threads(1, || {
            let counts = allocations(layers, train);
            assert!(
                counts.iter().all(|&n| n == 0),
                "allocations of the steps after the first: {counts:?}; {layers}; {train}"
            );
        });
    }
}

#[test]
fn the_counter_counts() {
    let before = COUNT.get();
    drop(std::hint::black_box(vec![1_u8; 100]));
    assert_eq!(COUNT.get() - before, 1);
}
