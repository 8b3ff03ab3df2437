//! Every constant that cuts work is declared beside it, and sizes are drawn around every one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::verify::sizes;

/// Where kernels are: constants of other code cut no arithmetic.
const KERNELS: &[&str] = &[
    "layer",
    "graph/ops",
    "graph/dag",
    "graph/pattern.rs",
    "loss.rs",
    "optim/mod.rs",
    "parallel.rs",
    "simd.rs",
    "logic/fast",
    "group/pending.rs",
    "group/sums.rs",
];

/// Constants of those files that cut nothing, and why.
const NO_CUTS: &[(&str, &str, &str)] = &[
    ("graph/dag/cpu.rs", "NODE", "what a node counts for"),
    (
        "graph/ops/aggregate/packed.rs",
        "VAST",
        "above 8 million numbers; `packed` has a test of its own",
    ),
    ("graph/ops/aggregate/packed.rs", "PACKED_ROWS", "the same"),
    ("layer/conv2d/cpu.rs", "SLACK", "memory past the end"),
    (
        "layer/conv2d/cpu.rs",
        "PARTIAL_SUMS",
        "fewer rows of a piece, which PIECES draws",
    ),
    (
        "layer/conv2d/stack.rs",
        "TILE_FLOATS",
        "whether layers are stacked at all, by their channels",
    ),
    (
        "layer/conv2d/sums.rs",
        "PARTIAL_SUMS",
        "fewer rows of a piece, which PIECES draws",
    ),
    (
        "layer/conv2d/sums.rs",
        "SUM_FLOATS",
        "fewer rows of a copy, which SUM_PIXELS draws",
    ),
    (
        "layer/conv2d/tile.rs",
        "PIECE_WORK",
        "fewer rows of a piece, which PIECES draws",
    ),
    ("layer/conv2d/tile.rs", "SLACK", "memory past the end"),
    (
        "layer/conv2d/tile.rs",
        "TILE_FLOATS",
        "fewer rows of a piece, which PIECES draws",
    ),
    (
        "layer/conv2d/winograd/mod.rs",
        "PLACES",
        "the places of a tile",
    ),
    (
        "layer/conv2d/winograd/mod.rs",
        "BLOCK_FLOATS",
        "fewer tiles of a block, which TILES draws",
    ),
    (
        "layer/conv2d/winograd/weights.rs",
        "PARTIAL_SUMS",
        "fewer rows of a piece, which PIECES draws",
    ),
    ("layer/gat/mod.rs", "ATT_SRC", "a tensor's place"),
    ("layer/gat/mod.rs", "ATT_DST", "a tensor's place"),
    ("layer/gat/mod.rs", "BIAS", "a tensor's place"),
    ("layer/gatv2/mod.rs", "ATT", "a tensor's place"),
    ("layer/gatv2/mod.rs", "BIAS", "a tensor's place"),
    ("layer/gemm/segments.rs", "LEN", "numbers of a tile"),
    ("layer/gine/mod.rs", "EPS", "a tensor's place"),
    ("layer/graph_conv/mod.rs", "EPS", "a tensor's place"),
    (
        "layer/kan/block.rs",
        "INTERVALS",
        "more than a grid may have",
    ),
    ("layer/kan/block.rs", "VECTORS", "BLOCK in vectors"),
    (
        "layer/kan/input.rs",
        "ROOM",
        "whether a slice is SLICE or half of it, which both are drawn",
    ),
    ("layer/kan/mod.rs", "MAX_DEGREE", "a limit of files"),
    ("layer/kan/rows.rs", "LEN", "numbers of a type's registers"),
    ("layer/mod.rs", "TENSORS", "places for tensors"),
    ("layer/spec.rs", "MAX_LAYERS", "a limit of files"),
    ("layer/spec.rs", "MAX_PIXELS", "a limit of files"),
    ("layer/spec.rs", "MAX_VALUES", "a limit of files"),
    (
        "parallel.rs",
        "LINE",
        "a cache line, which is touched and not computed",
    ),
    ("simd.rs", "FMA_ROUND", "a benchmark"),
];

/// Constants that are the places of a layer's buffers on the device; what cuts the work there is in WGSL.
const BUFFERS: &[(&str, &[&str])] = &[
    (
        "graph/dag/gpu.rs",
        &["WEIGHT", "BIAS", "U", "A", "D_A", "D_U"],
    ),
    ("layer/conv2d/gpu.rs", &["SUMS", "D_PADDED"]),
    (
        "layer/gat/gpu.rs",
        &["Z", "D_Z", "SENT", "RECEIVED", "D_SENT", "D_RECEIVED"],
    ),
    ("layer/gatv2/gpu.rs", &["L", "R", "D_L", "D_R", "SHARES"]),
    (
        "layer/gine/gpu.rs",
        &["L", "D_L", "M", "D_M", "HIDDEN", "D_HIDDEN", "SUMS"],
    ),
    (
        "layer/graph_conv/gpu.rs",
        &[
            "BETWEEN",
            "D_BETWEEN",
            "HIDDEN",
            "D_HIDDEN",
            "SUMS",
            "SCALE",
            "ENTRIES",
            "D_ENTRIES",
        ],
    ),
    (
        "layer/self_attention/gpu.rs",
        &["QKV", "D_QKV", "ALPHA", "D_SCORES", "SUMMED", "D_SUMMED"],
    ),
];

fn sources(at: &Path, found: &mut Vec<PathBuf>) {
    if at.is_file() {
        found.push(at.to_path_buf());
        return;
    }
    for entry in std::fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" || name.ends_with(".rs") {
            sources(&path, found);
        }
    }
}

/// Files and names.
type Constants = BTreeSet<(String, String)>;

/// The files of [`KERNELS`], and their text before their tests.
fn kernels() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    for place in KERNELS {
        sources(&root.join(place), &mut files);
    }
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let file = path.strip_prefix(&root).unwrap().to_string_lossy();
        (file.replace('\\', "/"), text.to_string())
    };
    files.into_iter().map(read).collect()
}

/// File and name of every constant of a whole number, and of those within `cuts!(…)`.
fn constants() -> (Constants, Constants) {
    let (mut all, mut declared) = (BTreeSet::new(), BTreeSet::new());
    for (file, text) in kernels() {
        for line in text.lines() {
            let line = line.trim_start();
            let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
            let line = line.strip_prefix("pub(super) ").unwrap_or(line);
            let line = line.strip_prefix("pub ").unwrap_or(line);
            // `$name` in a macro is a number that the compiler knows, not a length of data.
            let named = line
                .strip_prefix("const ")
                .filter(|rest| !rest.starts_with('$'));
            let Some(rest) = named else {
                continue;
            };
            if let Some((name, kind)) = rest.split_once(':')
                && kind.trim_start().starts_with("usize =")
            {
                all.insert((file.clone(), name.to_string()));
            }
        }
        for part in text.split("cuts!(").skip(1) {
            let names = part.split(')').next().unwrap().split(',');
            let names = names.map(str::trim).filter(|n| !n.is_empty());
            declared.extend(names.map(|n| (file.clone(), n.to_string())));
        }
    }
    (all, declared)
}

#[test]
fn a_constant_that_cuts_work_is_declared_and_drawn() {
    let (all, declared) = constants();
    assert!(all.len() > 60, "only {} constants found", all.len());
    let buffers =
        (BUFFERS.iter()).flat_map(|(file, names)| names.iter().map(move |name| (*file, *name)));
    let exempt: Constants = (NO_CUTS.iter().map(|(file, name, _)| (*file, *name)))
        .chain(buffers)
        .map(|(file, name)| (file.to_string(), name.to_string()))
        .collect();
    let silent: Vec<_> = all
        .difference(&declared)
        .filter(|c| !exempt.contains(c))
        .collect();
    assert!(
        silent.is_empty(),
        "not declared with cuts!(…), nor listed as none: {silent:?}"
    );
    let gone: Vec<_> = exempt
        .iter()
        .filter(|c| !all.contains(c) || declared.contains(c))
        .collect();
    assert!(
        gone.is_empty(),
        "listed as no cuts, but not there or declared: {gone:?}"
    );
    let drawn: Constants = (sizes::all().iter())
        .flat_map(|s| s.cuts().map(|c| (c.file, c.name)).collect::<Vec<_>>())
        .map(|(file, name)| {
            let file = file.rsplit_once("/src/").map_or(file, |(_, file)| file);
            (file.replace('\\', "/"), name.to_string())
        })
        .collect();
    let idle: Vec<_> = declared.difference(&drawn).collect();
    assert!(
        idle.is_empty(),
        "declared, and no size is drawn from them: {idle:?}"
    );
}

/// A number that cuts work without a name escapes the other test.
#[test]
fn work_is_cut_by_constants_with_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    for place in KERNELS {
        sources(&root.join(place), &mut files);
    }
    let cutters = [
        "chunks(",
        "chunks_mut(",
        "chunks_exact(",
        "chunks_exact_mut(",
        "step_by(",
    ];
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        for (n, line) in text
            .split("#[cfg(test)]")
            .next()
            .unwrap()
            .lines()
            .enumerate()
        {
            for cutter in cutters {
                for rest in line.split(cutter).skip(1) {
                    let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
                    // Pairs, quarters and lanes of eight are shapes of data, not pieces of work.
                    let large = number.parse::<usize>().is_ok_and(|n| n > 16);
                    assert!(!large, "{}:{}: {}", path.display(), n + 1, line.trim());
                }
            }
        }
    }
}

/// The whole plain draw is `retrograd verify`'s; here one kernel of every sort, so that a broken
/// declaration is seen by the tests.
#[test]
fn kernels_are_right_on_both_sides_of_their_cuts() {
    let all = sizes::all();
    for name in [
        "dense",
        "layer_norm",
        "conv2d stacked",
        "gcn",
        "losses",
        "cross_entropy",
        "dag",
    ] {
        let one = all.iter().find(|s| s.name == name).unwrap();
        let report = sizes::check(one, sizes::Draw::Plain, &Default::default());
        assert!(report.passed(), "{}", report.table());
        assert!(report.rows.len() > 3);
    }
}

#[test]
fn training_data_and_circuits_agree_with_their_oracles() {
    let all = crate::verify::practice::all();
    let report = crate::verify::practice::check_all(&all).unwrap();
    assert!(report.passed(), "{}", report.table());
}

/// `array::from_fn` and `array::map` may become functions of their own, compiled without the instructions of
/// the kernel: `simd::array` is always inlined.
#[test]
fn vectors_are_filled_by_what_is_always_inlined() {
    let mut slow = Vec::new();
    for (file, text) in kernels() {
        let of_vectors = text.contains("f32x16");
        for (i, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap();
            let fills = code.contains("array::from_fn(") || code.contains("].map(|v|");
            if of_vectors && fills {
                slow.push(format!("{file}:{}: {}", i + 1, line.trim()));
            }
        }
    }
    assert!(slow.is_empty(), "take simd::array:\n{}", slow.join("\n"));
}
