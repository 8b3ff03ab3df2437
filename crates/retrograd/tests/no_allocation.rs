//! After the first, a training step allocates nothing: counted by the allocator itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};

use retrograd::graph::data::{GraphSet, karate_club};
use retrograd::graph::task::{Folds, GraphTask, LinkTask, NodeTask, TextTask};
use retrograd::graph::{DagNN, DagSpec, DagTape, Graph, GraphBatch, GraphSpec};
use retrograd::logic::LogicTask;
use retrograd::train::{Event, Experiment, NetworkTask, Observer, Session, Task, TrainSpec};
use retrograd::{Grads, Model, Pass};

/// The system's allocator with a counter for this thread. With one thread there are no queues of
/// rayon's, and every kernel runs here.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    /// Whether the next allocation should say where it comes from, and where it came from.
    static ARMED: Cell<bool> = const { Cell::new(false) };
    static FIRST: RefCell<Option<Backtrace>> = const { RefCell::new(None) };
}

fn count() {
    // A thread that is ending has no counter any more.
    let _ = COUNT.try_with(|c| c.set(c.get() + 1));
    if ARMED.try_with(|armed| armed.replace(false)) == Ok(true) {
        let _ = FIRST.try_with(|first| *first.borrow_mut() = Some(Backtrace::force_capture()));
    }
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
#[derive(Default)]
struct AfterEachStep {
    counts: Vec<u64>,
    steps: u64,
}

impl Observer for AfterEachStep {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start { steps, .. } => {
                self.counts.reserve(steps as usize);
                self.steps = steps;
            }
            Event::Step { step, .. } => {
                self.counts.push(COUNT.get());
                ARMED.set(step < self.steps);
            }
            _ => {}
        }
    }
}

/// Allocations of every step after the first, and where the first of them happened. Three epochs
/// of six batches, the last of each one sample smaller, evaluated once at the end.
fn allocations(layers: &str, train: &str) -> (Vec<u64>, Option<Backtrace>) {
    let text = format!(
        "name = \"counted\"\n[model]\nfamily = \"network\"\nlayers = [{layers}]\n\
         [data]\ngenerate = {{ name = \"digits\" }}\nshape = [1, 8, 8]\nvalidation = 0.8\n\
         [train]\nepochs = 3\nbatch = 60\nevaluate_every = 3\n{train}\n"
    );
    let experiment = Experiment::parse(&text, "counted.toml").unwrap();
    let task = NetworkTask::new(&experiment).unwrap();
    count_steps(experiment, task)
}

fn count_steps(experiment: Experiment, mut task: impl Task) -> (Vec<u64>, Option<Backtrace>) {
    let mut observer = AfterEachStep::default();
    Session::new(experiment)
        .observed_by(&mut observer)
        .fit(&mut task)
        .unwrap();
    assert!(observer.counts.len() >= 9);
    let counts = observer.counts.windows(2).map(|w| w[1] - w[0]).collect();
    (counts, FIRST.take())
}

/// Nothing counted on one thread, or where the first allocation came from.
fn assert_none(what: &str, count: impl FnOnce() -> (Vec<u64>, Option<Backtrace>) + Send) {
    retrograd::parallel::with_threads(1, || {
        let (counts, first) = count();
        let from = first.map_or(String::new(), |b| format!("{b}"));
        assert!(counts.iter().all(|&n| n == 0), "{what}: {counts:?}\n{from}");
    });
}

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
    let kan = "{ kind = \"flatten\" }, { kind = \"kan\", out = 12, grid = 5, degree = 3 }, \
               { kind = \"kan\", out = 10, grid = 3, degree = 2, bias = true }";
    let adam = "optimizer = { kind = \"adam\", lr = 0.001 }\nclip = 1.0\n\
                schedule = { kind = \"cosine\" }";
    let momentum = "optimizer = { kind = \"sgd\", lr = 0.001, momentum = 0.9 }\n\
                    accumulate = 2\nclip_element = 1.0\nfreeze = [\"1.*\"]";
    for (what, layers, train) in [
        ("dense", dense, adam),
        ("dense, accumulated, frozen", dense, momentum),
        ("images", images, adam),
        ("kan", kan, adam),
    ] {
        assert_none(what, || allocations(layers, train));
    }
}

fn graph_experiment() -> Experiment {
    let text = "name = \"counted\"\n[model]\nfamily = \"graph\"\n[data]\n\
                [train]\nepochs = 12\nevaluate_every = 12\n\
                optimizer = { kind = \"adam\", lr = 0.001 }\n";
    Experiment::parse(text, "counted.toml").unwrap()
}

fn graph_spec(text: &str) -> GraphSpec {
    toml::from_str(text).unwrap()
}

/// Rings of eight nodes with a chord somewhere: graphs of one size, edges of which differ.
fn rings() -> GraphSet {
    let mut graphs = Vec::new();
    for g in 0..40 {
        let mut ends: [Vec<u32>; 2] = [(0..8).collect(), (0..8).map(|i| (i + 1) % 8).collect()];
        ends[0].push(g % 8);
        ends[1].push((g + 3) % 8);
        let graph = Graph::undirected(8, &ends[0], &ends[1]).unwrap();
        let numbers =
            |n: usize| -> Vec<f32> { (0..n).map(|i| (i as f32 + g as f32).sin()).collect() };
        let edges = graph.edges();
        let batch = GraphBatch::dense(std::sync::Arc::new(graph), 3, numbers(24)).unwrap();
        graphs.push(batch.with_edge_features(2, &numbers(2 * edges)).unwrap());
    }
    GraphSet {
        classes: (0..40).map(|g| g % 2).collect(),
        class_names: vec!["a".into(), "b".into()],
        targets: Vec::new(),
        scaling: [0.0, 1.0],
        names: None,
        graphs,
    }
}

#[test]
fn batches_of_graphs_text_nodes_and_links_are_drawn_and_trained_without_allocation() {
    let layers = "features = 3\nedge_features = 2\nlayers = [\
        { kind = \"dropout\", p = 0.1 }, { kind = \"gine\", out = 8 }, { kind = \"relu\" }, \
        { kind = \"gcn\", out = 8 }, { kind = \"add\", with = 2 }, { kind = \"layer_norm\" }, \
        { kind = \"sage\", out = 8 }, { kind = \"gin\", out = 8 }, { kind = \"elu\" }, \
        { kind = \"message_passing\", out = 8 }, \
        { kind = \"gat\", out = 4, heads = 2, dropout = 0.2 }, \
        { kind = \"gatv2\", out = 4, heads = 2 }, { kind = \"self_attention\", heads = 2 }, \
        { kind = \"POOL_pool\" }, { kind = \"dense\", out = 2 }]";
    for pool in ["max", "mean", "sum"] {
        assert_none(pool, || {
            let spec = graph_spec(&layers.replace("POOL", pool));
            // Five folds of eight graphs: three train, in batches of five and a last one of four.
            let task =
                GraphTask::new(&spec, rings(), Folds::next_validates(0, 5), 5, 0, None).unwrap();
            count_steps(graph_experiment(), task)
        });
    }
    assert_none("text", || {
        let spec = graph_spec(
            "layers = [{ kind = \"embedding\", vocabulary = 29, out = 8 }, \
             { kind = \"message_passing\", out = 8 }, { kind = \"dense\", out = 28 }]",
        );
        let task = TextTask::new(&spec, [12, 8, 4], 0.2, &[2], &TrainSpec::default()).unwrap();
        count_steps(graph_experiment(), task)
    });
    let gcn = "features = 34\nlayers = [{ kind = \"gcn\", out = 8 }, { kind = \"tanh\" }, LAST]";
    assert_none("nodes", || {
        let spec = graph_spec(&gcn.replace("LAST", "{ kind = \"gcn\", out = 2 }"));
        let task = NodeTask::new(&spec, karate_club().unwrap()).unwrap();
        count_steps(graph_experiment(), task)
    });
    assert_none("links", || {
        let spec = graph_spec(&gcn.replace("LAST", "{ kind = \"pair_dot\" }"));
        let task = LinkTask::new(&spec, karate_club().unwrap().batch, 0).unwrap();
        count_steps(graph_experiment(), task)
    });
}

#[test]
fn a_pass_through_a_dag_allocates_nothing() {
    // A chain of forty nodes with an edge past every second one; batches of two blocks and a part.
    let (sources, targets): (Vec<u32>, Vec<u32>) = (0..40)
        .flat_map(|v: u32| [(v, v + 1), (v, v + 3)])
        .filter(|&(_, t)| t <= 40)
        .unzip();
    let spec = DagSpec::new(1, 39, 1, "tanh");
    let dag = DagNN::new(&spec, &sources, &targets).unwrap();
    let params = dag.init(0);
    let mut d_params = vec![0.0; params.len()];
    let (x, d_output) = (vec![0.5; 70], vec![1.0; 70]);
    let (pass, mut tape) = (Pass::inference(), DagTape::default());
    retrograd::parallel::with_threads(1, || {
        let mut pass_through = || {
            dag.compute_forward(&params, &x, &pass, &mut tape);
            let grads = Grads::params(&mut d_params);
            dag.compute_backward(&params, &x, &pass, &mut tape, &d_output, grads);
        };
        pass_through();
        let before = COUNT.get();
        pass_through();
        assert_eq!(COUNT.get(), before);
    });
}

/// The same of an automaton: eight steps, evaluated once at the end.
fn automaton_allocations(text: &str) -> (Vec<u64>, Option<Backtrace>) {
    let mut experiment = Experiment::parse(text, "counted.toml").unwrap();
    experiment.train.epochs = 8;
    experiment.train.evaluate_every = 8;
    let mut task = LogicTask::new(&experiment).unwrap();
    let mut observer = AfterEachStep::default();
    Session::new(experiment)
        .observed_by(&mut observer)
        .fit(&mut task)
        .unwrap();
    assert_eq!(observer.counts.len(), 8);
    let counts = observer.counts.windows(2).map(|w| w[1] - w[0]).collect();
    (counts, FIRST.take())
}

#[test]
fn a_step_of_an_automaton_allocates_nothing() {
    let mut failures = String::new();
    for (what, text) in [
        ("life", include_str!("../../../experiments/life-small.toml")),
        (
            "asynchronous",
            include_str!("../../../experiments/checkerboard-async-small.toml"),
        ),
        (
            "bitmap",
            include_str!("../../../experiments/colored-g-small.toml"),
        ),
    ] {
        retrograd::parallel::with_threads(1, || {
            let (counts, first) = automaton_allocations(text);
            if counts.iter().any(|&n| n > 0) {
                failures += &format!("{what}: {counts:?}\n");
                failures += &first.map_or(String::new(), |b| format!("{b}\n"));
            }
        });
    }
    assert!(
        failures.is_empty(),
        "allocations after the first step:\n{failures}"
    );
}

#[test]
fn the_counter_counts() {
    let before = COUNT.get();
    drop(std::hint::black_box(vec![1_u8; 100]));
    assert_eq!(COUNT.get() - before, 1);
}
