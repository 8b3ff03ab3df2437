//! Runs whose disk fails at every call in turn, and runs whose power is cut after every call: what was
//! there is whole, the message names the file, and the run comes to the same bits in the end.

use std::path::PathBuf;

use super::*;
use crate::Family;
use crate::disk::faults::{Disk, Done, any_of, failing_at};

/// A short run of every family that trains: `[model]`, `[data]`, and more of `[train]`.
const SHORT: [(&str, &str, &str, &str); 5] = [
    (
        "network",
        "layers = [{ kind = \"dense\", out = 4 }, { kind = \"tanh\" }, \
         { kind = \"dropout\", p = 0.2 }, { kind = \"dense\", out = 2 }]",
        "generate = { name = \"two_moons\", samples = 60 }",
        "batch = 16\ncheckpoint_every = 2",
    ),
    (
        "kan",
        "sizes = [2, 2, 2]\ngrid = 3",
        "generate = { name = \"two_moons\", samples = 60 }",
        "batch = 16\ncheckpoint_every = 2",
    ),
    (
        "denoise",
        "layers = [{ kind = \"conv2d\", out = 1, kernel = 3, padding = 1 }]",
        "method = \"supervised\"\npatch = 16\nsteps_per_epoch = 2\n\
         generate = { kind = \"photograph\", count = 2, width = 32, height = 32, sigma = 25.0 }",
        "batch = 2\ncheckpoint_every = 1",
    ),
    (
        "logic_ca",
        "channels = 1\nkernels = 2\nperception = [9, 8, 4, 2, 1]\nupdate = [3, 2, 1]\n\
         boundary = \"zero\"\nsteps = 2",
        // A pattern: checkerboards are tried on large boards for thousands of steps at the end of every run.
        "grid = [4, 4]\nstart = \"random\"\ntarget = \"bitmap\"\nbitmap = [[\"6\", \"9\", \"9\", \"6\"]]",
        "batch = 2\ncheckpoint_every = 1",
    ),
    (
        "graph",
        "features = 34\nlayers = [{ kind = \"gcn\", out = 2 }]",
        "kind = \"karate\"",
        "checkpoint_every = 1",
    ),
];

fn short(which: usize) -> Experiment {
    let (family, model, data, train) = SHORT[which];
    let text = format!(
        "name = \"{family}\"\n[model]\nfamily = \"{family}\"\n{model}\n[data]\n{data}\n\
         [train]\nepochs = 3\noptimizer = {{ kind = \"adam\", lr = 0.01 }}\n{train}\n"
    );
    Experiment::parse(&text, "short.toml").unwrap()
}

fn train(session: Session<'_>) -> Result<Summary> {
    let mut session = session;
    Family::find(session.experiment().family())?.train(&mut session)
}

/// As a user would: with `--resume` where there is a run, with `--out` where there is none.
fn go_on(run: &Path, experiment: &Experiment) -> Result<Summary> {
    if run.join("experiment.toml").exists() {
        train(Session::new(experiment_of(run)?).resuming(run))
    } else {
        train(Session::new(experiment.clone()).in_folder(run))
    }
}

/// The files that a run leaves, and the bits of those that hold its state.
struct End {
    state: TensorFile,
    model: TensorFile,
    metrics: Vec<String>,
    files: Vec<PathBuf>,
}

fn end(run: &Path) -> End {
    let files = std::fs::read_dir(run).unwrap();
    let mut files: Vec<PathBuf> = files
        .map(|entry| entry.unwrap().file_name().into())
        .collect();
    files.sort();
    End {
        state: state(run),
        model: TensorFile::read(&model_file(run)).unwrap(),
        metrics: metrics_without_time(run),
        files,
    }
}

/// Says in which part two ends differ, not all that they hold.
fn assert_same(found: &End, expected: &End, when: &str) {
    assert_eq!(found.files, expected.files, "{when}");
    assert_eq!(found.metrics, expected.metrics, "{when}");
    assert!(found.state == expected.state, "{when}: another state");
    assert!(found.model == expected.model, "{when}: another model");
}

fn whole(which: usize, folder: &Path) -> End {
    let run = folder.join("whole");
    train(Session::new(short(which)).in_folder(&run)).unwrap();
    end(&run)
}

/// Small enough for every run, larger with `RETROGRAD_FULL`.
fn full() -> bool {
    std::env::var_os("RETROGRAD_FULL").is_some()
}

/// A run that stopped in the middle is copied for every trial.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// Makes a run fail at every call in turn; after each, it must go on to the same end.
fn fail_everywhere(
    experiment: &Experiment,
    expected: &End,
    folder: &Path,
    prepare: impl Fn(&Path),
) -> usize {
    for call in 0.. {
        let run = folder.join(format!("run-{call}"));
        prepare(&run);
        let (result, log) = failing_at(Some(call), || go_on(&run, experiment));
        let Some(failed) = log.failed else {
            result.expect("nothing failed");
            assert_same(&end(&run), expected, "undisturbed");
            return call;
        };
        if let Err(error) = &result {
            let (message, failed) = (error.to_string(), failed.display().to_string());
            assert!(message.contains(&failed), "{failed}: {message}");
        }
        if run.join("experiment.toml").exists() {
            let found = examine(&run).unwrap();
            assert!(found.resume.is_some(), "call {call}: {found:?}");
        }
        if result.is_err() {
            go_on(&run, experiment).unwrap();
        }
        let when = format!("call {call}, {}", failed.display());
        assert_same(&end(&run), expected, &when);
        std::fs::remove_dir_all(&run).unwrap();
    }
    unreachable!("calls end")
}

fn fails_from_the_start(which: usize) {
    let folder = tempfile::tempdir().unwrap();
    let expected = whole(which, folder.path());
    let calls = fail_everywhere(&short(which), &expected, folder.path(), |_| ());
    println!("{}: failed at each of {calls} calls", SHORT[which].0);
    assert!(calls > 60, "{calls} calls");
}

fn fails_when_resumed(which: usize) {
    let folder = tempfile::tempdir().unwrap();
    let expected = whole(which, folder.path());
    let half = folder.path().join("half");
    let stop = AtomicBool::new(false);
    let mut observer = StopAfter {
        stop: &stop,
        step: 2,
    };
    let stopped = Session::new(short(which))
        .in_folder(&half)
        .observed_by(&mut observer)
        .stopped_by(&stop);
    assert!(matches!(train(stopped), Err(Error::Interrupted { .. })));
    let calls = fail_everywhere(&short(which), &expected, folder.path(), |run| {
        copy(&half, run);
    });
    println!(
        "{}: resumed, failed at each of {calls} calls",
        SHORT[which].0
    );
    assert!(calls > 30, "{calls} calls");
}

/// Cuts the power after the calls of a run: with nothing kept that was not synced, with all of it, and
/// with parts.
fn power_is_cut(which: usize) {
    let folder = tempfile::tempdir().unwrap();
    let expected = whole(which, folder.path());
    let run = folder.path().join("run");
    let experiment = short(which);
    let (result, log) = failing_at(None, || go_on(&run, &experiment));
    result.unwrap();
    // Every call of the first family, and enough of the others to meet each kind of file.
    let stride = if which == 0 || full() { 1 } else { 7 };
    let parts = if full() { 8 } else { 2 };
    let mut disk = Disk::default();
    let mut cuts = 0;
    for (call, done) in log.done.iter().enumerate() {
        disk.apply(done);
        if call % stride != 0 || matches!(done, Done::Look) {
            continue;
        }
        for part in 0..parts + 2 {
            let mut chosen = any_of(Key::new(call as u64).step(part).stream());
            let kept = || match part {
                0 => false,
                1 => true,
                _ => chosen(),
            };
            let after = folder.path().join("after");
            disk.cut(folder.path(), &after, kept);
            let run = after.join("run");
            go_on(&run, &experiment)
                .unwrap_or_else(|error| panic!("call {call}, part {part}: {error}"));
            let when = format!("call {call}, part {part}");
            assert_same(&end(&run), &expected, &when);
            std::fs::remove_dir_all(&after).unwrap();
            cuts += 1;
        }
    }
    println!(
        "{}: {cuts} power cuts in {} calls",
        SHORT[which].0,
        log.done.len()
    );
    assert!(cuts > 40, "{cuts} cuts");
}

macro_rules! every_family {
    ($($name:ident = $which:literal),*) => {$(
        mod $name {
            #[test]
            fn a_disk_that_fails_at_any_call_loses_nothing() {
                super::fails_from_the_start($which);
            }

            #[test]
            fn a_disk_that_fails_at_any_call_of_a_resumed_run_loses_nothing() {
                super::fails_when_resumed($which);
            }

            #[test]
            fn a_power_cut_leaves_a_run_that_goes_on() {
                super::power_is_cut($which);
            }
        }
    )*};
}

every_family!(network = 0, kan = 1, denoise = 2, logic_ca = 3, graph = 4);

/// The bits that a power cut leaves are compared with something: without the sync of files before
/// their renaming a run would be lost.
#[test]
fn without_syncs_a_power_cut_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let (result, log) = failing_at(None, || go_on(&run, &short(0)));
    result.unwrap();
    let mut disk = Disk::default();
    let unsynced = |done: &&Done| !matches!(done, Done::SyncFile(_));
    log.done
        .iter()
        .filter(unsynced)
        .for_each(|done| disk.apply(done));
    let after = folder.path().join("after");
    disk.cut(folder.path(), &after, || false);
    assert!(go_on(&after.join("run"), &short(0)).is_err());
    let found = examine(&after.join("run")).unwrap();
    assert!(found.damaged() && found.resume.is_none(), "{found:?}");
}

/// Every bit of a checkpoint in turn would take long; some of each of its parts.
#[test]
fn a_damaged_checkpoint_is_noticed_and_the_one_before_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let expected = whole(0, folder.path());
    let half = folder.path().join("half");
    copy(&folder.path().join("whole"), &half);
    let bytes = std::fs::read(half.join("checkpoint.safetensors")).unwrap();
    #[derive(Default)]
    struct Warnings(Vec<String>);
    impl Observer for Warnings {
        fn event(&mut self, event: Event<'_>) {
            if let Event::Warning(text) = event {
                self.0.push(text.to_string());
            }
        }
    }
    for place in (0..bytes.len()).step_by(bytes.len() / 40) {
        let run = folder.path().join("run");
        copy(&half, &run);
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x10;
        std::fs::write(run.join("checkpoint.safetensors"), damaged).unwrap();
        let found = examine(&run).unwrap();
        let resume = found.resume.clone().unwrap();
        assert!(found.damaged() && found.usable, "byte {place}: {found:?}");
        assert!(resume.contains("previous"), "byte {place}: {resume}");
        let mut warnings = Warnings::default();
        let session = Session::new(experiment_of(&run).unwrap()).resuming(&run);
        train(session.observed_by(&mut warnings)).unwrap();
        assert!(
            warnings
                .0
                .iter()
                .any(|w| w.contains("going on from the checkpoint before it")),
            "{:?}",
            warnings.0
        );
        assert_same(&end(&run), &expected, &format!("byte {place}"));
        assert!(!examine(&run).unwrap().damaged());
        std::fs::remove_dir_all(&run).unwrap();
    }
    // Without the one before, the damage is an error that names the file and what to do.
    let path = half.join("checkpoint.safetensors");
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    std::fs::write(&path, damaged).unwrap();
    std::fs::remove_file(half.join("checkpoint.previous.safetensors")).unwrap();
    let message = go_on(&half, &short(0)).unwrap_err().to_string();
    for part in ["checkpoint.safetensors", "damaged", "remove it"] {
        assert!(message.contains(part), "{message}");
    }
    std::fs::remove_file(&path).unwrap();
    go_on(&half, &short(0)).unwrap();
    assert_same(&end(&half), &expected, "from step 0");
}

/// Numbers that no run can have are refused even where a digest agrees with them.
#[test]
fn impossible_states_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    train(Session::new(short(0)).in_folder(&run)).unwrap();
    std::fs::remove_file(run.join("checkpoint.previous.safetensors")).unwrap();
    let path = run.join("checkpoint.safetensors");
    let good = TensorFile::read(&path).unwrap();
    let refused = |change: &dyn Fn(&mut TensorFile)| {
        let mut file = good.clone();
        change(&mut file);
        file.write(&path).unwrap();
        let message = go_on(&run, &short(0)).unwrap_err().to_string();
        assert!(examine(&run).unwrap().resume.is_none());
        message
    };
    let message = refused(&|file| {
        let moments = |t: &&mut NamedTensor| t.name == "optimizer/exp_avg_sq/0.bias";
        let tensor = file.tensors.iter_mut().find(moments).unwrap();
        tensor.values = Values::F32(vec![-1e-9; 4]);
    });
    assert!(
        message.contains("exp_avg_sq/0.bias") && message.contains("squares"),
        "{message}"
    );
    for (from, to) in [
        ("\"step\":9", "\"step\":3"),
        ("\"skipped\":0", "\"skipped\":10"),
    ] {
        let message = refused(&|file| {
            let text = file.metadata.get_mut("progress").unwrap();
            assert!(text.contains(from), "{text}");
            *text = text.replace(from, to);
        });
        assert!(message.contains("needs at most step"), "{message}");
    }
    let message = refused(&|file| {
        file.metadata.insert("optimizer_steps".into(), "77".into());
    });
    assert!(message.contains("optimizer_steps 77"), "{message}");
}

/// Killed before its first checkpoint, or before its model even.
#[test]
fn a_run_without_a_checkpoint_begins_at_step_0() {
    let folder = tempfile::tempdir().unwrap();
    let expected = whole(0, folder.path());
    for kept in [
        &["experiment.toml"][..],
        &["experiment.toml", "model.safetensors"],
    ] {
        let run = folder.path().join("run");
        std::fs::create_dir(&run).unwrap();
        for name in kept {
            std::fs::copy(folder.path().join("whole").join(name), run.join(name)).unwrap();
        }
        let again = train(Session::new(short(0)).in_folder(&run)).unwrap_err();
        let message = again.to_string();
        assert!(
            message.contains("--resume begins it at step 0"),
            "{message}"
        );
        go_on(&run, &short(0)).unwrap();
        assert_same(&end(&run), &expected, "from step 0");
        std::fs::remove_dir_all(&run).unwrap();
    }
}

#[test]
fn a_figure_that_is_not_finite_is_never_the_best() {
    for (scripted, best) in [
        (
            vec![f64::INFINITY, 3.0, f64::NAN, 2.0, f64::NEG_INFINITY],
            Some(4),
        ),
        (vec![f64::INFINITY; 5], None),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let mut task = Fake::new();
        task.scripted = scripted;
        let summary = Session::new(experiment(ADAM))
            .in_folder(&run)
            .fit(&mut task)
            .unwrap();
        assert_eq!(summary.best_epoch, best);
        let weights = |path: &Path| load_weights(path, &mut Tiny::new(OUT)).unwrap().0;
        let last = weights(&run.join("checkpoint.safetensors"));
        // Where nothing decides, the last are kept.
        assert_eq!(weights(&model_file(&run)) == last, best.is_none());
    }
}
