//! Training on a GPU from the command line. They fail where there is no adapter; Mesa's software
//! Vulkan is one.
#![cfg(feature = "gpu")]

mod common;

use std::path::Path;

use common::{experiment, run};
use retrograd::train::TensorFile;

const TRAIN: &str = "optimizer = { kind = \"sgd\", lr = 0.05, momentum = 0.9 }\nepochs = 4";

fn train(folder: &Path, args: &[&str]) -> (String, String) {
    let all = [&["train", "--no-verify"], args].concat();
    let (code, stdout, stderr) = run(folder, &all);
    assert_eq!(code, 0, "{args:?}: {stderr}");
    (stdout, stderr)
}

/// Weights and optimizer state of a run's checkpoint, by name.
fn state(run: &Path) -> Vec<(String, Vec<f64>)> {
    let file = TensorFile::read(&run.join("checkpoint.safetensors")).unwrap();
    let tensors = file.tensors.into_iter();
    tensors.map(|t| (t.name, t.values.to_f64())).collect()
}

/// The largest difference of two states of the same names.
fn difference(a: &Path, b: &Path) -> f64 {
    let (a, b) = (state(a), state(b));
    assert!(a.iter().map(|t| &t.0).eq(b.iter().map(|t| &t.0)));
    let pairs = a.iter().zip(&b).flat_map(|(a, b)| a.1.iter().zip(&b.1));
    pairs.fold(0.0, |most, (a, b)| (a - b).abs().max(most))
}

/// An epoch on the CPU, one hybrid, one native, one on the CPU again: as four on the CPU, dropout
/// and all.
#[test]
fn a_run_goes_on_from_cpu_to_hybrid_to_native_to_cpu() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(folder, TRAIN);
    train(folder, &["test.toml", "--out", "straight"]);
    train(folder, &["test.toml", "--out", "moved", "--epochs", "1"]);
    for (epochs, device) in [
        ("2", &["--device", "gpu", "--mode", "hybrid"][..]),
        ("3", &["--device", "gpu", "--mode", "native"]),
        ("4", &["--device", "cpu"]),
    ] {
        let args = [&["--resume", "moved", "--epochs", epochs], device].concat();
        let (stdout, _) = train(folder, &args);
        let steps = 10 * epochs.parse::<u64>().unwrap();
        assert!(
            stdout.contains(&format!("{:20} {steps}\n", "steps")),
            "{stdout}"
        );
    }
    // What differs is rounding: of the parameters and of the gradient, 2⁻²⁴ of numbers of order 1
    // in some 2⁶ operations that add up as their root, carried on by momentum up to 1/(1 − 0.9)
    // times at each of 40 steps.
    let bound = 40.0 * 10.0 * 8.0 * 2.0_f64.powi(-24);
    let moved = difference(&folder.join("straight"), &folder.join("moved"));
    assert!(moved <= bound, "{moved:e}, bound {bound:e}");
    // That has power: a run that forgot its momentum once would be off by the rate times it.
    let state = state(&folder.join("straight"));
    let momentum = state
        .iter()
        .filter(|(name, _)| name.starts_with("optimizer/"));
    let size = momentum
        .flat_map(|(_, v)| v)
        .fold(0.0_f64, |m, v| v.abs().max(m));
    assert!(
        0.05 * size > 10.0 * bound,
        "momentum {size:e}, bound {bound:e}"
    );
}

#[test]
fn an_automatic_batch_is_said_with_its_reason_and_kept_in_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(folder, TRAIN);
    let args = [
        "test.toml",
        "--out",
        "auto",
        "--device",
        "gpu",
        "--batch",
        "auto",
    ];
    let (_, stderr) = train(folder, &args);
    // 160 of the 200 samples are trained on, and 16 steps are left in an epoch.
    assert!(stderr.contains("batch 8: "), "{stderr}");
    assert!(stderr.contains("fewer than 16 steps"), "{stderr}");
    let kept = std::fs::read_to_string(folder.join("auto/experiment.toml")).unwrap();
    assert!(kept.contains("batch = 8\n"), "{kept}");
    for (args, hint) in [
        (&["test.toml", "--batch", "auto"][..], "--device gpu"),
        (&["test.toml", "--batch", "0"], "auto"),
        (&["test.toml", "--precision", "mixed"], "--device gpu"),
        (&["test.toml", "--mode", "hybrid"], "--device gpu"),
        (
            &["karate", "--device", "gpu", "--batch", "auto"],
            "\"graph\"",
        ),
    ] {
        let all = [&["train"], args].concat();
        let (code, _, stderr) = run(folder, &all);
        assert_eq!(code, 2, "{args:?}: {stderr}");
        assert!(stderr.contains(hint), "{args:?}: {stderr}");
    }
}

#[test]
fn mixed_precision_trains_and_its_checkpoint_goes_on_in_f32() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(folder, TRAIN);
    let gpu = ["--device", "gpu", "--precision", "mixed"];
    train(
        folder,
        &[&["test.toml", "--out", "mixed"], &gpu[..]].concat(),
    );
    let report = std::fs::read_to_string(folder.join("mixed/report.html")).unwrap();
    assert!(report.contains("mixed precision"));
    train(folder, &["--resume", "mixed", "--epochs", "5"]);
}

/// Two epochs, a checkpoint, two more: the bits of four in one go, for every optimizer and with
/// everything that a GPU keeps beside the weights.
#[test]
fn a_run_resumed_on_the_gpu_has_the_bits_of_one_that_was_not() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (name, optimizer, device) in [
        ("native", "{ kind = \"adam\", lr = 0.02 }", &[][..]),
        (
            "mixed",
            "{ kind = \"adamw\", lr = 0.02 }",
            &["--precision", "mixed"],
        ),
        (
            "compressed",
            "{ kind = \"sgd\", lr = 0.05, momentum = 0.9 }",
            &["--mode", "hybrid", "--compress-gradients"],
        ),
    ] {
        experiment(folder, &format!("optimizer = {optimizer}\nepochs = 4"));
        let device = [&["--device", "gpu"], device].concat();
        let [straight, resumed] = ["straight", "resumed"].map(|run| format!("{name}-{run}"));
        let out = ["test.toml", "--out", &straight];
        train(folder, &[&out, &device[..]].concat());
        let out = ["test.toml", "--out", &resumed, "--epochs", "2"];
        train(folder, &[&out, &device[..]].concat());
        let on = ["--resume", &resumed, "--epochs", "4"];
        train(folder, &[&on, &device[..]].concat());
        let [straight, resumed] = [straight, resumed].map(|run| folder.join(run));
        assert_eq!(state(&straight), state(&resumed), "{name}");
        let file = TensorFile::read(&resumed.join("checkpoint.safetensors")).unwrap();
        let scale = file.metadata["progress"].contains("\"loss_scale\"");
        assert_eq!(scale, name == "mixed", "{:?}", file.metadata);
        let owed = |t: &(String, Vec<f64>)| t.0.starts_with("compression/residual/");
        assert_eq!(state(&resumed).iter().any(owed), name == "compressed");
    }
    // Such a checkpoint goes on anywhere.
    train(folder, &["--resume", "mixed-resumed", "--epochs", "5"]);
    train(folder, &["--resume", "compressed-resumed", "--epochs", "5"]);
}

/// Losses of native steps arrive late; the step that is blamed is the one that failed.
#[test]
fn a_step_that_is_not_finite_is_named_rightly_wherever_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(
        folder,
        "optimizer = { kind = \"sgd\", lr = 1e30 }\nepochs = 4",
    );
    for (out, device) in [
        ("cpu", &["--device", "cpu"][..]),
        ("hybrid", &["--device", "gpu", "--mode", "hybrid"]),
        ("native", &["--device", "gpu"]),
    ] {
        let all = [&["train", "test.toml", "--out", out], device].concat();
        let (code, _, stderr) = run(folder, &all);
        assert_eq!(code, 2, "{stderr}");
        assert!(
            stderr.contains("step 1: the loss is not finite"),
            "{out}: {stderr}"
        );
    }
}

/// Four batches a step, and what is left at the end of an epoch of ten: as on the CPU, dropout and all.
#[test]
fn accumulated_batches_train_alike_wherever_they_are_added() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(folder, TRAIN);
    train(folder, &["test.toml", "--out", "alone"]);
    experiment(folder, &format!("{TRAIN}\naccumulate = 4"));
    for (out, device) in MODES {
        train(folder, &[&["test.toml", "--out", out], device].concat());
        let moved = difference(&folder.join("cpu"), &folder.join(out));
        // Three updates in an epoch.
        assert!(moved <= rounding(12), "{out}: {moved:e}");
        let steps = |run: &str| {
            let path = folder.join(run).join("checkpoint.safetensors");
            TensorFile::read(&path).unwrap().metadata["optimizer_steps"].clone()
        };
        assert_eq!(steps(out), "12", "{out}");
        // Resumed between epochs.
        let resumed = format!("{out}-resumed");
        let first = ["test.toml", "--out", &resumed, "--epochs", "2"];
        train(folder, &[&first, device].concat());
        train(
            folder,
            &[&["--resume", &resumed, "--epochs", "4"], device].concat(),
        );
        let [straight, resumed] = [out, &resumed].map(|run| state(&folder.join(run)));
        assert_eq!(straight, resumed, "{out}");
    }
    let without = difference(&folder.join("cpu"), &folder.join("alone"));
    assert!(without > 10.0 * rounding(12), "{without:e}");
    // The step that is blamed is counted in batches.
    experiment(
        folder,
        "optimizer = { kind = \"sgd\", lr = 1e30 }\nepochs = 4\naccumulate = 4",
    );
    for (out, device) in MODES {
        let out = format!("bad-{out}");
        let all = [&["train", "test.toml", "--out", &out], device].concat();
        let (code, _, stderr) = run(folder, &all);
        assert_eq!(code, 2, "{stderr}");
        let step = "step 4: the loss is not finite";
        assert!(stderr.contains(step), "{out}: {stderr}");
    }
}

/// The recurrence of a pipeline is the CPU's, whoever computes its gradients; what it leaves in flight is
/// in its checkpoints.
#[test]
fn a_pipeline_trains_alike_on_the_cpu_and_hybrid_and_goes_on_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(folder, TRAIN);
    train(folder, &["test.toml", "--out", "plain"]);
    for more in ["", "\naccumulate = 3", "\nclip = 0.5"] {
        experiment(folder, &format!("{TRAIN}\npipeline = 1{more}"));
        let name = |out: &str| format!("{out}-{}", more.len());
        for (out, device) in &MODES[..2] {
            let out = name(out);
            train(folder, &[&["test.toml", "--out", &out], *device].concat());
            let moved = difference(&folder.join(name("cpu")), &folder.join(&out));
            assert!(moved <= rounding(40), "{out}: {moved:e}");
            let resumed = format!("{out}-resumed");
            let first = ["test.toml", "--out", &resumed, "--epochs", "2"];
            train(folder, &[&first, *device].concat());
            let on = ["--resume", &resumed, "--epochs", "4"];
            train(folder, &[&on, *device].concat());
            let [straight, resumed] = [&out, &resumed].map(|run| state(&folder.join(run)));
            assert_eq!(straight, resumed, "{out}");
        }
        // Steps of another recurrence than the plain one, by far.
        let piped = state(&folder.join(name("cpu")));
        let plain = state(&folder.join("plain"));
        let apart = plain.iter().map(|(name, values)| {
            let other = &piped.iter().find(|(n, _)| n == name).unwrap().1;
            let pairs = values.iter().zip(other);
            pairs.fold(0.0_f64, |most, (a, b)| (a - b).abs().max(most))
        });
        assert!(apart.fold(0.0, f64::max) > 10.0 * rounding(40));
    }
    let all = ["train", "test.toml", "--out", "native", "--device", "gpu"];
    let (code, _, stderr) = run(folder, &all);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("train.pipeline"), "{stderr}");
}

/// The faster device is said, written into the run, and kept by a run that goes on.
#[test]
fn the_faster_device_is_said_and_kept_in_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(folder, TRAIN);
    let (stdout, stderr) = train(folder, &["test.toml", "--out", "run", "--device", "auto"]);
    let said = format!("{stdout}{stderr}");
    assert!(said.contains("--device auto: "), "{said}");
    let text = std::fs::read_to_string(folder.join("run").join("experiment.toml")).unwrap();
    let kept = text.lines().find(|line| line.starts_with("device = "));
    let kept = kept.unwrap().to_string();
    assert!(
        kept.contains("cpu") || kept.contains("native gpu:auto"),
        "{kept}"
    );
    // Whatever it was: a resumed run is placed where the file says.
    let moved = text.replace(&kept, "device = \"hybrid gpu:auto\"");
    std::fs::write(folder.join("run").join("experiment.toml"), moved).unwrap();
    train(folder, &["--resume", "run", "--epochs", "5"]);
    let report = std::fs::read_to_string(folder.join("run").join("report.html")).unwrap();
    assert!(report.contains("hybrid"), "the report names the device");
    // And one that is placed by hand is not timed.
    let (stdout, stderr) = train(
        folder,
        &["--resume", "run", "--epochs", "6", "--device", "cpu"],
    );
    assert!(!format!("{stdout}{stderr}").contains("--device auto"));
}

/// A price on gates has kernels of its own on the device, and is the CPU's in hybrid mode.
#[test]
fn an_automaton_with_a_price_on_gates_trains_alike_wherever_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let write = |more: &str| {
        let text = FAMILIES[2].1.replace("[data]", &format!("{more}\n[data]"));
        let text = format!("name = \"test\"\n{text}");
        std::fs::write(folder.join("test.toml"), text).unwrap();
    };
    // Gates that have not made up their minds, which a price can move.
    let open = "pass_logit = 1.0";
    write(open);
    train(folder, &["test.toml", "--out", "free"]);
    write(&format!("{open}\ngate_penalty = 0.5"));
    // Logits of order 1 and some 2⁸ operations, at each of 6 steps.
    let bound = 2.0 * rounding(6);
    for (out, device) in MODES {
        train(folder, &[&["test.toml", "--out", out], device].concat());
        let moved = difference(&folder.join("cpu"), &folder.join(out));
        assert!(moved <= bound, "{out}: {moved:e}");
        let loss = |run: &str| {
            let text = std::fs::read_to_string(folder.join(run).join("summary.json")).unwrap();
            let summary: serde_json::Value = serde_json::from_str(&text).unwrap();
            summary["train_loss"].as_f64().unwrap()
        };
        let [here, there] = ["cpu", out].map(loss);
        assert!((here - there).abs() <= bound * here, "{here} {there}");
    }
    let without = difference(&folder.join("cpu"), &folder.join("free"));
    assert!(without > 10.0 * bound, "{without:e}");
}

/// A KAN of two layers on two moons; `more` is added to its `[model]`.
fn kan(folder: &Path, more: &str) {
    let text = format!(
        "name = \"test\"\n[model]\nfamily = \"kan\"\nsizes = [2, 5, 2]\nrange = [-2.0, 2.0]\n{more}\n\
         [data]\ngenerate = {{ name = \"two_moons\", samples = 200 }}\n\
         [train]\nbatch = 16\n{TRAIN}\n"
    );
    std::fs::write(folder.join("test.toml"), text).unwrap();
}

const MODES: [(&str, &[&str]); 3] = [
    ("cpu", &["--device", "cpu"]),
    ("hybrid", &["--device", "gpu", "--mode", "hybrid"]),
    ("native", &["--device", "gpu"]),
];

/// The bound of [`a_run_goes_on_from_cpu_to_hybrid_to_native_to_cpu`] for that many steps.
fn rounding(steps: u32) -> f64 {
    f64::from(steps) * 10.0 * 8.0 * 2.0_f64.powi(-24)
}

/// The penalty has kernels of its own on the device, and is the CPU's in hybrid mode.
#[test]
fn a_kan_with_a_penalty_trains_alike_wherever_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    kan(folder, "");
    train(folder, &["test.toml", "--out", "plain"]);
    kan(folder, "sparsity = { l1 = 0.02, entropy = 0.01 }");
    for (out, device) in MODES {
        train(folder, &[&["test.toml", "--out", out], device].concat());
        let moved = difference(&folder.join("cpu"), &folder.join(out));
        assert!(moved <= rounding(40), "{out}: {moved:e}");
        let loss = |run: &str| {
            let text = std::fs::read_to_string(folder.join(run).join("summary.json")).unwrap();
            let summary: serde_json::Value = serde_json::from_str(&text).unwrap();
            summary["train_loss"].as_f64().unwrap()
        };
        let [here, there] = ["cpu", out].map(loss);
        assert!((here - there).abs() <= rounding(40), "{here} {there}");
    }
    let without = difference(&folder.join("cpu"), &folder.join("plain"));
    assert!(without > 10.0 * rounding(40), "{without:e}");
}

/// Knots that follow the data between epochs are buffers; a device goes on with the new ones.
#[test]
fn grids_are_updated_wherever_a_kan_trains_and_a_resumed_run_has_the_bits() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    kan(folder, "update_grid = { every = 1, until = 0 }");
    train(folder, &["test.toml", "--out", "never"]);
    kan(folder, "update_grid = { every = 1, until = 3 }");
    for (out, device) in MODES {
        train(folder, &[&["test.toml", "--out", out], device].concat());
        // A device with the old knots would be as far away as a run without updates.
        let near = difference(&folder.join("cpu"), &folder.join(out));
        let far = difference(&folder.join("cpu"), &folder.join("never"));
        assert!(near < 1e-3 * far, "{out}: {near:e}, {far:e}");
        let resumed = format!("{out}-resumed");
        let first = ["test.toml", "--out", &resumed, "--epochs", "2"];
        train(folder, &[&first, device].concat());
        let on = ["--resume", &resumed, "--epochs", "4"];
        train(folder, &[&on, device].concat());
        let [straight, resumed] = [out, &resumed].map(|run| state(&folder.join(run)));
        assert_eq!(straight, resumed, "{out}");
    }
}

/// A denoiser with batch norm on generated photographs; `more` is added to its `[model]`.
fn denoiser(folder: &Path, more: &str) {
    let text = format!(
        "name = \"test\"\n[model]\nfamily = \"denoise\"\nlayers = [\n\
         {{ kind = \"conv2d\", out = 4, kernel = 3, padding = 1 }},\n\
         {{ kind = \"batch_norm2d\" }},\n{{ kind = \"silu\" }},\n\
         {{ kind = \"conv2d\", out = 1, kernel = 3, padding = 1 }},\n]\n{more}\n\
         [data]\nmethod = \"supervised\"\npatch = 16\nsteps_per_epoch = 5\n\
         generate = {{ kind = \"photograph\", count = 3, width = 48, height = 48, sigma = 25.0 }}\n\
         [train]\nbatch = 4\nepochs = 2\n\
         optimizer = {{ kind = \"sgd\", lr = 0.05, momentum = 0.9 }}\n"
    );
    std::fs::write(folder.join("test.toml"), text).unwrap();
}

#[test]
fn a_denoiser_trains_alike_wherever_it_runs_with_its_image_terms() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    denoiser(folder, "");
    for (out, device) in MODES {
        train(folder, &[&["test.toml", "--out", out], device].concat());
        let moved = difference(&folder.join("cpu"), &folder.join(out));
        assert!(moved <= rounding(10), "{out}: {moved:e}");
    }
    denoiser(folder, "loss_terms = { ssim = 0.5, gradient = 0.2 }");
    for (out, device) in MODES {
        let out = format!("terms-{out}");
        train(folder, &[&["test.toml", "--out", &out], device].concat());
        let moved = difference(&folder.join("terms-cpu"), &folder.join(&out));
        assert!(moved <= rounding(10), "{out}: {moved:e}");
    }
    let without = difference(&folder.join("terms-cpu"), &folder.join("cpu"));
    assert!(without > 10.0 * rounding(10), "{without:e}");
}

/// Experiments of one family each, on SGD with momentum, whose steps are as smooth as the gradient.
const FAMILIES: [(&str, &str); 3] = [
    (
        "nodes",
        "[model]\nfamily = \"graph\"\nfeatures = 34\n\
         layers = [{ kind = \"dropout\", p = 0.2 }, { kind = \"gcn\", out = 8 }, { kind = \"tanh\" }, \
         { kind = \"gat\", out = 2, heads = 1 }]\n[data]\nkind = \"karate\"\n[train]\n\
         epochs = 6\noptimizer = { kind = \"sgd\", lr = 0.05, momentum = 0.9 }\n",
    ),
    (
        "links",
        "[model]\nfamily = \"graph\"\nfeatures = 34\n\
         layers = [{ kind = \"sage\", out = 8 }, { kind = \"tanh\" }, { kind = \"gin\", out = 4 }, \
         { kind = \"pair_dot\" }]\n[data]\nkind = \"karate\"\npredict = \"links\"\n[train]\n\
         epochs = 6\noptimizer = { kind = \"sgd\", lr = 0.02, momentum = 0.9 }\n",
    ),
    (
        "automaton",
        "[model]\nfamily = \"logic_ca\"\nchannels = 2\nkernels = 2\nperception = [9, 8, 4, 2]\n\
         update = [10, 8, 4, 2]\nsteps = 3\nfire_rate = 0.6\n[data]\ngrid = [6, 5]\n\
         start = \"random\"\ntarget = \"checkerboard\"\n[train]\nepochs = 6\nbatch = 2\n\
         optimizer = { kind = \"sgd\", lr = 0.05, momentum = 0.9 }\n",
    ),
];

/// Graphs, links and automata: native and hybrid runs as on the CPU, and a run that moves from one to
/// the other.
#[test]
fn every_family_trains_native_and_hybrid_and_moves_between_devices() {
    for (name, experiment) in FAMILIES {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let text = format!("name = \"{name}\"\n{experiment}");
        std::fs::write(folder.join("test.toml"), text).unwrap();
        let gpu = ["--device", "gpu", "--mode"];
        train(folder, &["test.toml", "--out", "cpu"]);
        for mode in ["native", "hybrid"] {
            let args = [&["test.toml", "--out", mode], &gpu[..], &[mode]].concat();
            train(folder, &args);
            let again = format!("{mode}-again");
            let args = [&["test.toml", "--out", &again], &gpu[..], &[mode]].concat();
            train(folder, &args);
            let same = difference(&folder.join(mode), &folder.join(&again));
            assert_eq!(same, 0.0, "{name} {mode}: two runs differ");
        }
        train(folder, &["test.toml", "--out", "moved", "--epochs", "2"]);
        for (epochs, device) in [
            ("3", &["--device", "gpu", "--mode", "hybrid"][..]),
            ("5", &["--device", "gpu", "--mode", "native"]),
            ("6", &["--device", "cpu"]),
        ] {
            train(
                folder,
                &[&["--resume", "moved", "--epochs", epochs], device].concat(),
            );
        }
        // Rounding: 2⁻²⁴ of numbers of order 1 (an automaton starts with logits of 10, which are 16
        // times that) in some 2⁸ operations that add up as their root, carried on by momentum up to
        // 1/(1 − 0.9) times at each of 6 steps or epochs.
        let bound = 6.0 * 10.0 * 16.0 * 16.0 * 2.0_f64.powi(-24);
        for other in ["native", "hybrid", "moved"] {
            let moved = difference(&folder.join("cpu"), &folder.join(other));
            assert!(moved <= bound, "{name} {other}: {moved:e}, bound {bound:e}");
        }
        // That has power: weights move by far more.
        train(folder, &["test.toml", "--out", "short", "--epochs", "5"]);
        let step = difference(&folder.join("cpu"), &folder.join("short"));
        assert!(step > 4.0 * bound, "{name}: a step moves by {step:e}");
    }
}

/// From the CPU to hybrid to native steps and back, under every optimizer that all three have, in every
/// family. Adam has an ε that makes its step a smooth function of the gradient, as wide as SGD's is: with the
/// usual one the sign of an element whose gradient is rounding would decide.
#[test]
fn checkpoints_move_between_devices_under_every_optimizer_in_every_family() {
    let more = [
        (
            "network",
            "[model]\nfamily = \"network\"\nlayers = [{ kind = \"dense\", out = 8 }, { kind = \"tanh\" }, \
             { kind = \"dropout\", p = 0.1 }, { kind = \"dense\", out = 2 }]\n\
             [data]\ngenerate = { name = \"two_moons\", samples = 40 }\n[train]\nbatch = 16\nepochs = 6\n\
             optimizer = { kind = \"sgd\", lr = 0.05, momentum = 0.9 }\n",
        ),
        (
            "kan",
            "[model]\nfamily = \"kan\"\nsizes = [2, 4, 2]\nrange = [-2.0, 2.0]\n\
             [data]\ngenerate = { name = \"two_moons\", samples = 40 }\n[train]\nbatch = 16\nepochs = 6\n\
             optimizer = { kind = \"sgd\", lr = 0.05, momentum = 0.9 }\n",
        ),
        (
            "denoise",
            "[model]\nfamily = \"denoise\"\nlayers = [\n\
             { kind = \"conv2d\", out = 4, kernel = 3, padding = 1 },\n{ kind = \"silu\" },\n\
             { kind = \"conv2d\", out = 1, kernel = 3, padding = 1 },\n]\n\
             [data]\nmethod = \"supervised\"\npatch = 16\nsteps_per_epoch = 2\n\
             generate = { kind = \"photograph\", count = 2, width = 32, height = 32, sigma = 25.0 }\n\
             [train]\nbatch = 4\nepochs = 6\n\
             optimizer = { kind = \"sgd\", lr = 0.05, momentum = 0.9 }\n",
        ),
    ];
    let sgd = "kind = \"sgd\", lr = 0.05, momentum = 0.9";
    for (name, experiment) in more.iter().chain(&FAMILIES) {
        let experiment = experiment.replace("lr = 0.02", "lr = 0.05");
        for optimizer in [
            sgd,
            "kind = \"adam\", lr = 0.05, eps = 0.1",
            "kind = \"adamw\", lr = 0.05, eps = 0.1",
        ] {
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            assert!(experiment.contains(sgd), "{name}");
            let text = experiment.replace(sgd, optimizer);
            let text = format!("name = \"{name}\"\n{text}");
            std::fs::write(folder.join("test.toml"), text).unwrap();
            train(folder, &["test.toml", "--out", "cpu"]);
            train(folder, &["test.toml", "--out", "moved", "--epochs", "2"]);
            for (epochs, device) in [
                ("3", &["--device", "gpu", "--mode", "hybrid"][..]),
                ("5", &["--device", "gpu", "--mode", "native"]),
                ("6", &["--device", "cpu"]),
            ] {
                let on = ["--resume", "moved", "--epochs", epochs];
                train(folder, &[&on, device].concat());
            }
            // As above, with up to 18 steps.
            let bound = 18.0 * 10.0 * 16.0 * 16.0 * 2.0_f64.powi(-24);
            let [here, there] = ["cpu", "moved"].map(|run| folder.join(run));
            let moved = difference(&here, &there);
            assert!(moved <= bound, "{name} {optimizer}: {moved:e}, {bound:e}");
            let steps = |run: &Path| {
                let file = TensorFile::read(&run.join("checkpoint.safetensors")).unwrap();
                file.metadata["optimizer_steps"].clone()
            };
            assert_eq!(steps(&here), steps(&there), "{name} {optimizer}");
        }
    }
}

/// An exact circuit on the device shows the cells that the CPU shows, damage and masks included;
/// families that are run on the CPU say so.
#[test]
fn automata_are_played_on_a_gpu_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (name, experiment_text) = FAMILIES[2];
    let text = format!("name = \"{name}\"\n{experiment_text}");
    std::fs::write(folder.join("test.toml"), text).unwrap();
    train(folder, &["test.toml", "--out", "automaton"]);
    let play = |device: &str| {
        let args = ["run", "automaton", "--size", "45x9", "--steps", "7"];
        let more = ["--damage", "3,2,8,4,2,4", "--device", device];
        let (code, stdout, stderr) = run(folder, &[&args[..], &more].concat());
        assert_eq!(code, 0, "{stderr}");
        let (grid, _) = stdout.split_once("cell updates").unwrap();
        grid.to_string()
    };
    let cpu = play("cpu");
    assert_eq!(play("gpu"), cpu);
    assert!(cpu.lines().count() > 4, "{cpu}");
    experiment(folder, TRAIN);
    train(folder, &["test.toml", "--out", "moons", "--epochs", "1"]);
    let (code, _, stderr) = run(folder, &["run", "moons", "new.csv", "--device", "gpu"]);
    assert_eq!(code, 2, "{stderr}");
    assert!(
        stderr.contains("--device") && stderr.contains("network"),
        "{stderr}"
    );
}

/// Several adapters share every batch; here it is one adapter, taken twice and thrice.
#[test]
fn several_adapters_of_one_process_give_the_bits_of_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(folder, &format!("{TRAIN}\nshards = 4"));
    for mode in ["native", "hybrid"] {
        let weights = |device: &str| {
            let out = format!("{mode}-{}", device.replace([':', ','], ""));
            let args = [
                "test.toml",
                "--out",
                &out,
                "--device",
                device,
                "--mode",
                mode,
            ];
            let (stdout, _) = train(folder, &args);
            assert_eq!(stdout.matches("train_loss").count(), 1, "{stdout}");
            state(&folder.join(out))
        };
        let one = weights("gpu:0");
        assert!(weights("gpu:0,0") == one, "{mode}");
        assert!(weights("gpu:0,0,0") == one, "{mode}");
        assert!(weights("gpu:all") == one, "{mode}");
    }
    // As the CPU's shards, up to rounding: the bound of 40 steps above.
    train(folder, &["test.toml", "--out", "cpu"]);
    let bound = 40.0 * 10.0 * 8.0 * 2.0_f64.powi(-24);
    let off = difference(&folder.join("cpu"), &folder.join("native-gpu0"));
    // Dropout is drawn for every shard's own batch on a device, and differs; without it nothing does.
    assert!(off > bound, "{off:e}");
    let path = folder.join("test.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("p = 0.1", "p = 0.0")).unwrap();
    train(folder, &["test.toml", "--out", "plain-cpu"]);
    for (out, mode) in [("plain-native", "native"), ("plain-hybrid", "hybrid")] {
        train(
            folder,
            &[
                "test.toml",
                "--out",
                out,
                "--device",
                "gpu:0,0",
                "--mode",
                mode,
            ],
        );
        let off = difference(&folder.join("plain-cpu"), &folder.join(out));
        assert!(off <= bound, "{mode}: {off:e}, bound {bound:e}");
    }
    // A run goes on with another number of adapters.
    let resume = [
        "--resume",
        "plain-native",
        "--epochs",
        "6",
        "--device",
        "gpu:0",
    ];
    train(folder, &resume);
    let (code, _, said) = run(
        folder,
        &["train", "test.toml", "--device", "gpu:0,0", "--seeds", "2"],
    );
    assert!(code == 2 && said.contains("several adapters"), "{said}");
}
