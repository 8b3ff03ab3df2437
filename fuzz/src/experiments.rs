//! Whole experiments drawn from bytes, trained for a step or two; and a run that goes on from a
//! checkpoint, or beside tables, made of bytes.

use std::ffi::OsString;
use std::fs::DirEntry;
use std::path::Path;

use retrograd::Family;
use retrograd::train::{Experiment, Recorded, Session, Summary, examine};

/// Every byte is a choice; after the last one the first is taken everywhere.
struct Draw<'a>(&'a [u8]);

impl Draw<'_> {
    fn below(&mut self, n: usize) -> usize {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        usize::from(first) % n
    }

    fn of<'b>(&mut self, texts: &[&'b str]) -> &'b str {
        texts[self.below(texts.len())]
    }

    /// A small size mostly, and now and then one that no machine holds.
    fn size(&mut self) -> u64 {
        const SIZES: [u64; 16] = [
            4,
            1,
            2,
            3,
            5,
            6,
            7,
            8,
            9,
            12,
            16,
            17,
            0,
            1_000_000_000_000,
            u32::MAX as u64,
            i64::MAX as u64,
        ];
        match self.below(8) {
            0 => SIZES[self.below(SIZES.len())],
            n => SIZES[n],
        }
    }

    fn number(&mut self) -> &'static str {
        const NUMBERS: [&str; 12] = [
            "0.5", "0.01", "0.9", "1.0", "0.0", "-1.0", "1e-12", "1e30", "1e-300", "1e308", "inf",
            "nan",
        ];
        NUMBERS[match self.below(4) {
            0 => self.below(NUMBERS.len()),
            n => n - 1,
        }]
    }

    fn list(&mut self, longest: usize, mut item: impl FnMut(&mut Self) -> String) -> String {
        let items: Vec<String> = (0..1 + self.below(longest)).map(|_| item(self)).collect();
        format!("[{}]", items.join(", "))
    }
}

fn layer(draw: &mut Draw<'_>) -> String {
    let kind = draw.below(18);
    let options = match kind {
        0 => format!("kind = \"dense\", out = {}", draw.size()),
        1 => format!(
            "kind = \"kan\", out = {}, grid = {}, degree = {}, free_knots = {}",
            draw.size(),
            draw.size(),
            draw.size(),
            draw.of(&["false", "true"])
        ),
        2 => format!(
            "kind = \"conv2d\", out = {}, kernel = {}, stride = {}, padding = {}, dilation = {}, \
             groups = {}, padding_mode = \"{}\"",
            draw.size(),
            draw.size(),
            1 + draw.below(3),
            draw.below(4),
            1 + draw.below(3),
            1 + draw.below(3),
            draw.of(&["zeros", "reflect", "replicate", "circular"])
        ),
        3 => format!(
            "kind = \"conv_transpose2d\", out = {}, kernel = {}, stride = {}, padding = {}",
            draw.size(),
            draw.size(),
            1 + draw.below(3),
            draw.below(4)
        ),
        4 => format!("kind = \"max_pool2d\", kernel = {}", draw.size()),
        5 => format!(
            "kind = \"avg_pool2d\", kernel = {}, stride = {}",
            draw.size(),
            draw.size()
        ),
        6 => "kind = \"layer_norm\"".into(),
        7 => format!("kind = \"group_norm\", groups = {}", draw.size()),
        8 => "kind = \"batch_norm2d\"".into(),
        9 => "kind = \"normalize\"".into(),
        10 => format!("kind = \"upsample\", scale = {}", draw.size()),
        11 => format!("kind = \"dropout\", p = {}", draw.number()),
        12 => "kind = \"flatten\"".into(),
        13 => format!("kind = \"add\", with = {}", draw.below(5) as i64 - 2),
        14 => format!("kind = \"concat\", with = {}", draw.below(5) as i64 - 2),
        15 => format!("kind = \"leaky_relu\", slope = {}", draw.number()),
        16 => format!("kind = \"elu\", alpha = {}", draw.number()),
        _ => format!(
            "kind = \"{}\"",
            draw.of(&["relu", "silu", "gelu", "tanh", "sigmoid"])
        ),
    };
    format!("{{ {options} }}")
}

fn graph_layer(draw: &mut Draw<'_>) -> String {
    let kind = draw.of(&[
        "gcn",
        "sage",
        "gin",
        "gine",
        "message_passing",
        "dense",
        "gat",
        "gatv2",
        "self_attention",
        "embedding",
        "add",
        "dropout",
        "layer_norm",
        "mean_pool",
        "sum_pool",
        "max_pool",
        "pair_dot",
        "relu",
        "tanh",
    ]);
    let options = match kind {
        "gcn" | "sage" | "gin" | "gine" | "message_passing" | "dense" => {
            format!(", out = {}", draw.size())
        }
        "gat" | "gatv2" => format!(
            ", out = {}, heads = {}, dropout = {}",
            draw.size(),
            draw.size(),
            draw.number()
        ),
        "self_attention" => format!(", heads = {}", draw.size()),
        "embedding" => format!(", vocabulary = {}, out = {}", draw.size(), draw.size()),
        "add" => format!(", with = {}", draw.below(4)),
        "dropout" => format!(", p = {}", draw.number()),
        _ => String::new(),
    };
    format!("{{ kind = \"{kind}\"{options} }}")
}

/// The `[data]` of a network.
fn generated(draw: &mut Draw<'_>) -> String {
    let samples = draw.size();
    let generate = match draw.below(4) {
        0 => format!("name = \"two_moons\", samples = {samples}"),
        1 => format!(
            "name = \"spirals\", samples = {samples}, arms = {}",
            draw.size()
        ),
        2 => format!(
            "name = \"friedman\", samples = {samples}, noise = {}",
            draw.number()
        ),
        _ => format!(
            "name = \"formula\", formula = \"x*y\", inputs = {{ x = [-1, {}], y = [0, 1] }}, \
             samples = {samples}",
            draw.number()
        ),
    };
    format!(
        "generate = {{ {generate} }}\nnormalise = \"{}\"\nvalidation = {}\n",
        draw.of(&["none", "standard", "minmax"]),
        draw.number()
    )
}

fn network(draw: &mut Draw<'_>) -> (String, String) {
    let input = match draw.below(3) {
        0 => String::new(),
        1 => "input = [1, 1, 2]\n".into(),
        _ => format!("input = {}\n", draw.list(3, |d| d.size().to_string())),
    };
    let layers = draw.list(5, layer);
    let data = generated(draw);
    (
        format!("family = \"network\"\n{input}layers = {layers}\n"),
        data,
    )
}

fn kan(draw: &mut Draw<'_>) -> (String, String) {
    let sizes = draw.list(4, |d| d.size().to_string());
    let model = format!(
        "family = \"kan\"\nsizes = {sizes}\ngrid = {}\ndegree = {}\nrange = [-1.0, {}]\n",
        draw.size(),
        draw.size(),
        draw.number()
    );
    let data = match draw.below(3) {
        0 => generated(draw),
        1 => format!("poker = {{ samples = {} }}\n", draw.size()),
        // Its three networks are sought for seconds where there is data.
        _ => "feynman = { samples = 0 }\n".into(),
    };
    (model, data)
}

fn denoise(draw: &mut Draw<'_>) -> (String, String) {
    let model = match draw.below(3) {
        0 => "architecture = \"simple-cnn\"\n".to_string(),
        _ => format!("layers = {}\n", draw.list(4, layer)),
    };
    let side = |d: &mut Draw<'_>| match d.below(6) {
        0 => d.size(),
        n => 8 * n as u64,
    };
    let (kind, noise) = match draw.below(2) {
        0 => ("photograph", "sigma"),
        _ => ("micrograph", "dose"),
    };
    let data = format!(
        "method = \"{}\"\npatch = {}\nvalidation = {}\nsteps_per_epoch = 1\n\
         generate = {{ kind = \"{kind}\", count = {}, width = {}, height = {}, {noise} = {} }}\n\
         blind_spots = {{ cell = {}, radius = {} }}\n",
        draw.of(&["noise2noise", "supervised", "noise2void"]),
        draw.size(),
        draw.number(),
        draw.size(),
        side(draw),
        side(draw),
        draw.number(),
        1 + draw.below(9),
        draw.below(4),
    );
    (format!("family = \"denoise\"\n{model}"), data)
}

fn automaton(draw: &mut Draw<'_>) -> (String, String) {
    let (channels, kernels) = (1 + draw.below(6) as u64, 1 + draw.below(4) as u64);
    // Widths mostly fit: the last of the kernels, and both ends of the update circuit.
    let inputs = channels + channels * 2 * kernels;
    let middle = draw.list(2, |d| d.size().to_string());
    let model = format!(
        "family = \"logic_ca\"\nchannels = {channels}\nkernels = {}\nperception = [9, {}, 2]\n\
         update = [{inputs}, {}, {channels}]\nboundary = \"{}\"\nsteps = {}\nfire_rate = {}\n",
        if draw.below(9) == 8 {
            draw.size()
        } else {
            kernels
        },
        draw.size(),
        middle.trim_matches(['[', ']']),
        draw.of(&["periodic", "zero"]),
        draw.size(),
        draw.number()
    );
    let data = format!(
        "grid = [{}, {}]\nstart = \"{}\"\ntarget = \"{}\"\n",
        draw.size(),
        draw.size(),
        draw.of(&["random", "zeros", "centre"]),
        draw.of(&["life", "checkerboard", "bitmap"])
    );
    (model, data)
}

fn graph(draw: &mut Draw<'_>) -> (String, String) {
    let layers = draw.list(5, graph_layer);
    let predict = draw.of(&["nodes", "links"]);
    let (features, data) = match draw.below(2) {
        0 => (
            "features = 34\n",
            format!("kind = \"karate\"\npredict = \"{predict}\"\n"),
        ),
        _ => (
            "",
            format!(
                "kind = \"text\"\ncharacters = {}\nmasked = {}\nskips = {}\nsamples = {}\n",
                draw.size(),
                draw.number(),
                draw.list(2, |d| d.size().to_string()),
                draw.size()
            ),
        ),
    };
    (
        format!("family = \"graph\"\n{features}layers = {layers}\n"),
        data,
    )
}

/// An experiment as a file has it.
pub fn drawn(bytes: &[u8]) -> String {
    let draw = &mut Draw(bytes);
    let (model, data) = match draw.below(5) {
        0 => network(draw),
        1 => kan(draw),
        2 => denoise(draw),
        3 => automaton(draw),
        _ => graph(draw),
    };
    let train = format!(
        "epochs = 1\nbatch = {}\noptimizer = {{ kind = \"{}\", lr = {} }}\n\
         schedule = {{ kind = \"{}\" }}\non_nan = \"{}\"\nclip_element = {}\n{}",
        draw.size(),
        draw.of(&["adam", "adamw", "sgd"]),
        draw.number(),
        draw.of(&["constant", "cosine", "one_cycle"]),
        draw.of(&["stop", "skip"]),
        draw.number(),
        match draw.below(7) {
            0 => String::new(),
            n => format!(
                "loss = \"{}\"\n",
                [
                    "mse",
                    "l1",
                    "huber",
                    "bce_logits",
                    "cross_entropy",
                    "sum_squares"
                ][n - 1]
            ),
        }
    );
    format!("name = \"drawn\"\n[model]\n{model}[data]\n{data}[train]\n{train}")
}

/// Decides what is done beside, so that copies of what was once treated at length mostly aren't.
fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, &byte| sum.wrapping_add(byte))
}

/// Draws an experiment and trains it; one of eight in a folder with all that is written at the end,
/// one of 256 verified.
pub fn train(bytes: &[u8]) {
    // A run's files take as long as its steps, and its verification a hundred times as long.
    let sum = sum(bytes);
    // What a run may take: the sizes that no machine holds are refused, not tried.
    retrograd::budget::limit_to(Some(256 << 20));
    let text = drawn(bytes);
    if std::env::var_os("FUZZ_SHOW").is_some() {
        println!("{text}");
    }
    let Ok(experiment) = Experiment::parse(&text, "drawn.toml") else {
        return;
    };
    let Ok(family) = Family::find(experiment.family()) else {
        return;
    };
    let folder = sum.is_multiple_of(8).then(super::targets::folder);
    // With the fuzzer's counters that of a ready architecture takes many seconds.
    let verified = sum == 0 && !text.contains("architecture");
    let mut session = Session::new(experiment).verified(verified);
    if let Some(folder) = &folder {
        session = session.in_folder(folder.path().join("run"));
    }
    let outcome = family.train(&mut session);
    if std::env::var_os("FUZZ_SHOW").is_some() {
        println!("{:?}", outcome.map(|_| ()).map_err(|e| e.to_string()));
    }
}

/// Trains what another target made of those bytes for an epoch; one of 32 is.
pub fn one_epoch(mut experiment: Experiment, bytes: &[u8]) {
    if !sum(bytes).is_multiple_of(32) {
        return;
    }
    retrograd::budget::limit_to(Some(256 << 20));
    experiment.train.epochs = 1;
    let family = Family::find(experiment.family()).expect("a family");
    let _ = family.train(&mut Session::new(experiment));
}

const EXPERIMENT: &str = "name = \"run\"\n[model]\nfamily = \"network\"\nlayers = [{ kind = \
    \"dense\", out = 2 }]\n[data]\ngenerate = { name = \"two_moons\", samples = 8 }\nvalidation = \
    0.25\n[train]\nepochs = 1\nbatch = 4\noptimizer = { kind = \"adam\", lr = 0.01 }\n";

/// A run of an epoch: its files, without the older checkpoint (one that is damaged is an error), and a
/// folder for them.
struct Finished {
    files: Vec<(OsString, Vec<u8>)>,
    folder: tempfile::TempDir,
}

impl Finished {
    fn new() -> Self {
        let folder = super::targets::folder();
        let experiment = Experiment::parse(EXPERIMENT, "run.toml").expect("an experiment");
        let family = Family::find(experiment.family()).expect("a family");
        let mut session = Session::new(experiment).in_folder(folder.path());
        family.train(&mut session).expect("trains");
        let previous = folder.path().join("checkpoint.previous.safetensors");
        std::fs::remove_file(previous).expect("two checkpoints");
        let entries = std::fs::read_dir(folder.path()).expect("a folder");
        let file = |entry: std::io::Result<DirEntry>| {
            let entry = entry.expect("an entry");
            let bytes = std::fs::read(entry.path()).expect("a file");
            (entry.file_name(), bytes)
        };
        let files = entries.map(file).collect();
        Finished { files, folder }
    }

    /// The folder as it was then, but for some files.
    fn but(&self, changed: &[(&str, &[u8])]) -> &Path {
        let folder = self.folder.path();
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let name = entry.expect("an entry").file_name();
            if self.files.iter().all(|(own, _)| *own != name) {
                std::fs::remove_file(folder.join(name)).expect("a file");
            }
        }
        for (name, bytes) in &self.files {
            let other = changed.iter().find(|(other, _)| name == other);
            let bytes = other.map_or(&bytes[..], |(_, bytes)| bytes);
            std::fs::write(folder.join(name), bytes).expect("a small file");
        }
        folder
    }
}

thread_local!(static FINISHED: Finished = Finished::new());

/// The report takes longer than all the rest.
fn one_epoch_more(run: &Path, report: bool) -> retrograd::Result<Summary> {
    let mut experiment = Experiment::parse(EXPERIMENT, "run.toml").expect("an experiment");
    experiment.train.epochs = 2;
    let family = Family::find(experiment.family()).expect("a family");
    let session = Session::new(experiment).resuming(run);
    family.train(&mut session.reported(report))
}

/// Goes on with that run, its checkpoint replaced; one of eight with a report.
pub fn resume(bytes: &[u8]) {
    FINISHED.with(|finished| {
        let run = finished.but(&[("checkpoint.safetensors", bytes)]);
        let _ = one_epoch_more(run, sum(bytes).is_multiple_of(8));
    });
}

/// The files of that run that nothing in it depends on, replaced; one of eight goes on.
pub fn told(metrics: &[u8], summary: &[u8]) {
    FINISHED.with(|finished| {
        let run = finished.but(&[("metrics.csv", metrics), ("summary.json", summary)]);
        let recorded = Recorded::read(run);
        let examined = examine(run).expect("a run");
        // Going on takes ten times as long as reading.
        if !sum(metrics).is_multiple_of(8) {
            return;
        }
        let outcome = one_epoch_more(run, true);
        if let (Ok(recorded), Ok(summary)) = (&recorded, &outcome) {
            recorded.compare(summary);
        }
        let outcome = outcome.map(|_| ());
        assert!(examined.resume.is_none() || outcome.is_ok(), "{outcome:?}");
    });
}
