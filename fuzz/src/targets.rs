//! What is done with a fuzzer's bytes: every reader by its name. Each function returns, whatever
//! the bytes are; what it returns from the reader is used as the program would use it.
//!
//! The tests of the library feed them every file of the corpus (`tests/fuzz_corpus.rs`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use retrograd::data::csv::{Reading, Table};
use retrograd::data::formula::Formula;
use retrograd::data::image::{ImageFile, Rect, Spool};
use retrograd::data::mrc::MrcFile;
use retrograd::data::safetensors::{TensorFile, Tensors};
use retrograd::data::{DataSpec, Preparation, TaskKind, idx, npy};
use retrograd::family::draft::{InitOptions, Place, draft};
use retrograd::graph::EdgeRule;
use retrograd::graph::data::{
    EdgeListFiles, GraphFolder, read_content_cites, read_edge_list, read_folder, read_planetoid,
    read_tudataset, read_unlabelled,
};
use retrograd::graph::task::Predict;
use retrograd::kan::{FrozenKan, read_state};
use retrograd::logic::{HardCircuit, LogicTask, Program};
use retrograd::network::{LayerSpec, Network, NetworkSpec};
use retrograd::train::{Experiment, load_weights};
use retrograd::verify::Bundle;

/// What a target does with the fuzzer's bytes.
pub type Target = fn(&[u8]);

/// Every target: its name, which is its corpus's and its dictionary's too, and what it does.
pub const TARGETS: &[(&str, Target)] = &[
    ("csv", csv),
    ("table", table),
    ("npy", npy_array),
    ("npy_image", image),
    ("idx", idx_array),
    ("safetensors", safetensors),
    ("weights", weights),
    ("checkpoint", checkpoint),
    ("metrics", metrics),
    ("bundle", bundle),
    ("kan_state", kan_state),
    ("frozen_kan", frozen_kan),
    ("preparation", preparation),
    ("experiment", experiment),
    ("mrc", mrc),
    ("png", image),
    ("tiff", image),
    ("edge_list", edge_list),
    ("graphml", graphml),
    ("gml", gml),
    ("graph_folder", graph_folder),
    ("content_cites", content_cites),
    ("planetoid", planetoid),
    ("tudataset", tudataset),
    ("circuit", circuit),
    ("formula", formula),
    ("init", init),
    ("picture", picture),
    ("training", super::experiments::train),
];

/// Between the files of a target that reads several.
const BETWEEN: &[u8] = b"\n==\n";

fn path() -> &'static Path {
    Path::new("fuzzed.file")
}

/// A folder in memory where the system has one, or where TMPDIR says; it goes with the value.
pub fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = match std::env::var_os("TMPDIR").is_none() && memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    made.expect("a folder for a file")
}

/// The thread's own folder, empty but for what the reader before left in it: making and removing one
/// takes longer than most readers do.
fn in_folder<X>(work: impl FnOnce(&Path) -> X) -> X {
    thread_local!(static OWN: tempfile::TempDir = folder());
    OWN.with(|own| work(own.path()))
}

/// The bytes as a file for a reader that takes a path.
fn with_file<X>(name: &str, bytes: &[u8], read: impl FnOnce(&Path) -> X) -> X {
    in_folder(|folder| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).expect("a small file");
        read(&path)
    })
}

/// The bytes cut into files of those names; the last ones are missing where the bytes end early.
fn with_files<X>(names: &[&str], bytes: &[u8], read: impl FnOnce(&Path) -> X) -> X {
    in_folder(|folder| {
        let mut rest = Some(bytes);
        for name in names {
            let path = folder.join(name);
            let Some(bytes) = rest else {
                // Missing, or there from the call before.
                let _ = std::fs::remove_file(path);
                continue;
            };
            let cut = bytes.windows(BETWEEN.len()).position(|w| w == BETWEEN);
            std::fs::write(path, &bytes[..cut.unwrap_or(bytes.len())]).expect("a small file");
            rest = cut.map(|at| &bytes[at + BETWEEN.len()..]);
        }
        read(folder)
    })
}

fn csv(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else {
        return;
    };
    let reading = Reading {
        separator: [None, Some(','), Some(';'), Some('\t')][usize::from(choice & 3)],
        decimal: if choice & 4 == 0 { '.' } else { ',' },
        header: choice & 8 == 0,
        ..Reading::default()
    };
    let Ok(table) = Table::decode(path(), bytes, &reading) else {
        return;
    };
    for column in 0..table.columns().len().min(20) {
        table.kind(column, 0..table.rows());
        table.summary(column);
        for row in 0..table.rows().min(20) {
            let _ = table.number(row, column);
            table.place(row, column);
        }
        let _ = table.column(table.cell(0, column));
    }
}

/// A table with a `[data]` part: from the file to the data set, and back through a checkpoint.
fn table(bytes: &[u8]) {
    with_files(&["data.toml", "t.csv"], bytes, |folder| {
        let text = std::fs::read_to_string(folder.join("data.toml")).unwrap_or_default();
        let Ok(spec) = toml::from_str::<DataSpec>(&text) else {
            return;
        };
        // Anywhere else is no file of this target's.
        let elsewhere = spec.file.as_ref().is_none_or(|f| f != Path::new("t.csv"));
        if elsewhere || text.contains('/') || text.contains("..") {
            return;
        }
        if let Ok(data) = spec.load(folder, 3) {
            let json = data.preparation.to_json();
            let again = Preparation::from_json(&json).expect("what was written reads back");
            again
                .read(folder.join("t.csv"))
                .expect("the file that it came from is accepted");
        }
    });
}

fn npy_array(bytes: &[u8]) {
    if let Ok(array) = npy::decode(path(), bytes) {
        let again = npy::decode(path(), &npy::encode(&array)).expect("what was written reads back");
        assert_eq!(again.shape, array.shape);
    }
}

fn idx_array(bytes: &[u8]) {
    let _ = idx::decode(path(), bytes);
}

fn safetensors(bytes: &[u8]) {
    let Ok(tensors) = Tensors::new(path(), bytes) else {
        return;
    };
    tensors.metadata();
    for name in tensors.names() {
        let _ = tensors.array(&name);
        let _ = tensors.shape(&name);
    }
    let _ = TensorFile::decode(path(), bytes);
}

fn small_network() -> Network {
    let layers = vec![LayerSpec::dense(2), LayerSpec::gelu(), LayerSpec::dense(1)];
    Network::new(&NetworkSpec::new(&[2], layers)).expect("a network")
}

fn weights(bytes: &[u8]) {
    with_file("weights.safetensors", bytes, |path| {
        let _ = load_weights(path, &mut small_network());
    });
}

/// A run's folder, whose checkpoint is the bytes, goes on for an epoch.
fn checkpoint(bytes: &[u8]) {
    super::experiments::resume(bytes);
}

/// The tables that stand beside a run's checkpoint: `metrics.csv`, and `summary.json`.
fn metrics(bytes: &[u8]) {
    let cut = bytes.windows(BETWEEN.len()).position(|w| w == BETWEEN);
    let (metrics, summary) = match cut {
        Some(at) => (&bytes[..at], &bytes[at + BETWEEN.len()..]),
        None => (bytes, &b"{}"[..]),
    };
    super::experiments::told(metrics, summary);
}

fn bundle(bytes: &[u8]) {
    let Ok(bundle) = Bundle::from_bytes(path(), bytes) else {
        return;
    };
    for name in bundle.names() {
        let _ = bundle.indices(name);
    }
    bundle.name();
    let _ = bundle.target();
    if let Ok(spec) = bundle.model_spec::<NetworkSpec>()
        && let Ok(network) = Network::new(&spec)
    {
        let _ = bundle.flat(&network, "param/");
    }
}

fn kan_state(bytes: &[u8]) {
    with_file("state.safetensors", bytes, |path| {
        let _ = read_state(path);
    });
}

fn frozen_kan(bytes: &[u8]) {
    with_file("frozen.safetensors", bytes, |path| {
        if let Ok(mut kan) = FrozenKan::read(path) {
            let (x, mut y) = (vec![0.25; kan.inputs()], vec![0.0; kan.outputs()]);
            kan.forward_single(&x, &mut y).expect("the right lengths");
        }
    });
}

fn preparation(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(preparation) = Preparation::from_json(&text) {
        preparation.outputs();
        preparation.input_names();
        preparation.regression();
        let width = preparation.outputs();
        let _ = preparation.predictions(&vec![0.5; 3 * width], width);
        with_file("t.csv", b"a,b,y\n1,2,x\n3,4,z\n", |path| {
            let _ = preparation.read(path);
        });
    }
}

fn experiment(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(experiment) = Experiment::parse(&text, path()) {
        let _ = experiment.data_as::<DataSpec>();
        let _ = experiment.data_as::<retrograd::graph::task::GraphDataSpec>();
        let _ = experiment.data_as::<retrograd::denoise::DenoiseDataSpec>();
        let _ = experiment.model_as::<retrograd::graph::GraphSpec>();
        if let Ok(spec) = experiment.model_as::<retrograd::logic::LogicSpec>() {
            let _ = spec.check();
        }
        let again = Experiment::parse(&experiment.to_toml(), path());
        again.expect("what was written reads back");
    }
}

fn mrc(bytes: &[u8]) {
    with_file("image.mrc", bytes, |path| {
        let Ok(file) = MrcFile::open(path) else {
            return;
        };
        let header = file.header();
        header.labels();
        header.voxel_size();
        let [width, height, sections] = header.size();
        let window = Rect {
            x: width / 2,
            y: height / 2,
            width: (width - width / 2).min(50),
            height: (height - height / 2).min(50),
        };
        let mut pixels = vec![0.0; window.pixels()];
        let _ = file.read_window(sections - 1, window, &mut pixels);
    });
}

fn image(bytes: &[u8]) {
    with_file("image", bytes, |path| {
        let spool = Spool::new().expect("a temporary file");
        let Ok(file) = ImageFile::open(path, &spool) else {
            return;
        };
        if file.width * file.height < 1 << 20 {
            let _ = file.read_section(file.sections - 1);
        }
    });
}

fn edge_list(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else {
        return;
    };
    let rule = |bits: u8| match bits & 3 {
        0 => EdgeRule::Refuse,
        1 => EdgeRule::Keep,
        _ => EdgeRule::Drop,
    };
    with_files(&["edges.txt", "x.csv", "y.csv"], bytes, |folder| {
        let existing = |name: &str| Some(folder.join(name)).filter(|p: &PathBuf| p.exists());
        let files = EdgeListFiles {
            features: existing("x.csv"),
            labels: existing("y.csv"),
            predict: [Predict::Nodes, Predict::Links][usize::from(choice & 1)],
            undirected: choice & 2 != 0,
            self_loops: rule(choice >> 2),
            duplicates: rule(choice >> 4),
            ..EdgeListFiles::of_edges(&folder.join("edges.txt"))
        };
        let _ = read_unlabelled(&files);
        let _ = read_edge_list(&files, 0);
    });
}

fn graphml(bytes: &[u8]) {
    marked("graph.graphml", bytes);
}

fn gml(bytes: &[u8]) {
    marked("graph.gml", bytes);
}

/// A graph with attributes: those of the corpus, and whatever else is in it.
fn marked(name: &str, bytes: &[u8]) {
    with_file(name, bytes, |path| {
        let kinds = vec!["red".to_string(), "blue".to_string()];
        let files = EdgeListFiles {
            numbers: vec!["age".into()],
            categories: [("colour".to_string(), kinds)].into(),
            label: Some("team".into()),
            predict: Predict::Nodes,
            self_loops: EdgeRule::Keep,
            duplicates: EdgeRule::Keep,
            ..EdgeListFiles::of_edges(path)
        };
        let _ = read_edge_list(&files, 0);
        let _ = read_unlabelled(&EdgeListFiles::of_edges(path));
    });
}

/// Graphs that are files of one folder, and a table of what they are.
fn graph_folder(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else {
        return;
    };
    let kind = ["marked", "listed"][usize::from(choice & 1)];
    let names = match choice & 1 {
        0 => ["labels.csv", "marked/a.graphml", "marked/b.gml"],
        _ => ["labels.csv", "listed/a.csv", "listed/b.txt"],
    };
    in_folder(|folder| std::fs::create_dir_all(folder.join(kind)).expect("a folder"));
    with_files(&names, bytes, |folder| {
        let spec = GraphFolder {
            folder: folder.join(kind),
            target: (choice & 2 != 0).then(|| "kind".into()),
            labels: (choice & 4 != 0).then(|| folder.join("labels.csv")),
            task: match choice & 8 {
                0 => TaskKind::Classification,
                _ => TaskKind::Regression,
            },
            numbers: match choice & 16 {
                0 => Vec::new(),
                _ => vec!["age".into()],
            },
            categories: BTreeMap::new(),
            scaling: None,
            folds: 10,
            fold: None,
            validate: true,
        };
        let _ = read_folder(&spec, choice & 32 == 0);
    });
}

fn content_cites(bytes: &[u8]) {
    with_files(&["a.content", "a.cites"], bytes, |folder| {
        let _ = read_content_cites(&folder.join("a.content"), &folder.join("a.cites"));
    });
}

fn planetoid(bytes: &[u8]) {
    let names = [
        "about.json",
        "edges.csv",
        "x.npy",
        "x_values.npy",
        "labels.npy",
        "split.npy",
    ];
    with_files(&names, bytes, |folder| {
        let _ = read_planetoid(folder);
    });
}

fn tudataset(bytes: &[u8]) {
    let names = [
        "T_graph_indicator.txt",
        "T_A.txt",
        "T_graph_labels.txt",
        "T_node_labels.txt",
        "T_node_attributes.txt",
        "T_edge_labels.txt",
        "T_graph_attributes.txt",
    ];
    with_files(&names, bytes, |folder| {
        let _ = read_tudataset(folder, "T", bytes.len().is_multiple_of(2));
    });
}

fn circuit(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(circuit) = HardCircuit::from_json(&text) else {
        return;
    };
    HardCircuit::from_json(&circuit.to_json()).expect("what was written reads back");
    let simple = circuit.simplify();
    let inputs: Vec<bool> = (0..circuit.inputs()).map(|i| i % 3 == 0).collect();
    assert_eq!(circuit.cell(&inputs), simple.cell(&inputs));
    let _ = (simple.to_c(), simple.to_verilog(), simple.to_svg());
    Program::new(&circuit);
}

fn formula(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(formula) = Formula::parse(&text, &["x", "y", "alpha"]) {
        formula.evaluate(&[0.5, -2.0, 1e300]);
    }
}

/// What `retrograd init` makes of a table, a graph or a folder: an experiment that reads back; one of 32
/// is trained for an epoch.
fn init(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else {
        return;
    };
    let names: &[&str] = match choice & 7 {
        0..=2 => &["table.csv"],
        3 => &["edges.csv", "x.csv", "y.csv"],
        4 => &["graph.graphml"],
        5 => &["graph.gml"],
        6 => &["labels.csv", "graphs/a.graphml", "graphs/b.gml"],
        _ => &["images/a.png", "images/b.png"],
    };
    let inner = ["graphs", "images"];
    in_folder(|folder| {
        inner.map(|name| std::fs::create_dir_all(folder.join(name)).expect("a folder"))
    });
    with_files(names, rest, |folder| {
        let data = match choice & 7 {
            6 => folder.join("graphs"),
            7 => folder.join("images"),
            _ => folder.join(names[0]),
        };
        let beside = |name: &str| Some(folder.join(name)).filter(|path| path.exists());
        let marked = choice & 8 != 0;
        let options = InitOptions {
            data,
            target: match choice & 7 {
                0 => Some("y".into()),
                4 | 5 if marked => Some("team".into()),
                6 if marked => Some("kind".into()),
                _ => None,
            },
            task: match choice >> 6 {
                1 => Some(TaskKind::Regression),
                2 => Some(TaskKind::Classification),
                _ => None,
            },
            kan: choice & 16 != 0,
            bin: (choice & 7 == 7 && marked).then_some(2),
            features: (choice & 7 == 3).then(|| beside("x.csv")).flatten(),
            labels: match choice & 7 {
                3 => beside("y.csv").filter(|_| marked),
                6 => beside("labels.csv").filter(|_| !marked),
                _ => None,
            },
            links: (3..6).contains(&(choice & 7)) && !marked,
            directed: choice & 32 != 0,
        };
        let out = folder.join("made.toml");
        let place = Place::new(&options.data, Some(&out)).expect("a file that is there");
        let Ok(draft) = draft(&options, &place) else {
            return;
        };
        let experiment = place.experiment(&draft.text);
        let experiment = experiment.expect("what is drafted reads back");
        // A denoiser's epoch takes seconds with the fuzzer's counters.
        if choice & 7 != 7 {
            super::experiments::one_epoch(experiment, rest);
        }
    });
}

/// A picture that cells start from, and one that they should become.
fn picture(bytes: &[u8]) {
    with_files(&["goal.png", "start.png"], bytes, |folder| {
        let start = match folder.join("start.png").exists() {
            true => "start = \"bitmap\"\nstart_picture = \"start.png\"",
            false => "start = \"random\"",
        };
        let text = format!(
            "name = \"x\"\n[model]\nfamily = \"logic_ca\"\nchannels = 4\nkernels = 2\n\
             perception = [9, 8, 4, 2]\nupdate = [20, 16, 8, 4]\nsteps = 2\n[data]\n{start}\n\
             target = \"bitmap\"\npicture = \"goal.png\"\n[train]\nepochs = 1\n\
             optimizer = {{ kind = \"adam\", lr = 0.01 }}\n"
        );
        retrograd::budget::limit_to(Some(256 << 20));
        let mut experiment = Experiment::parse(&text, "x.toml").expect("an experiment");
        experiment.folder = Some(folder.into());
        let _ = LogicTask::new(&experiment);
    });
}
