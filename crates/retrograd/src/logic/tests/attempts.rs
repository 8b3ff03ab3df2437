//! Runs that look for an exact circuit, start again, and stop when they have learned.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::small;
use crate::Model;
use crate::logic::BoundaryCondition::Periodic;
use crate::logic::evaluate::{Grown, boards_right};
use crate::logic::gates::{GATES, hardest};
use crate::logic::rounding::{decide, round};
use crate::logic::rule::Rule;
use crate::logic::trial::{Grids, Stripped, Trial};
use crate::logic::{BitGrid, HardCircuit, LogicCa, LogicTask, Program};
use crate::parallel::with_threads;
use crate::rng::Key;
use crate::train::{Event, Experiment, Observer, Session, Specimen, Summary, Task};
use crate::verify::{Link, Verdict, check_trained};

/// A trial whose every cell is as a circuit makes it in one step.
fn grids_of(circuit: &HardCircuit, seed: u64) -> Grids {
    let mut start = BitGrid::new([3, 5, 7], circuit.channels, circuit.boundary).unwrap();
    start.randomise(&mut Key::new(seed).stream());
    let mut end = start.clone();
    end.step(&Program::new(circuit), None);
    let channels = 0..circuit.channels;
    channels.fold(Grids::new(&start, 1, None), |grids, c| {
        grids.want(c, |sample, y, x| end.get(sample, y, x, c))
    })
}

/// The gates that the logits decide for.
fn decided(params: &[f32]) -> Vec<u8> {
    params.chunks_exact(GATES).map(hardest).collect()
}

/// A circuit, and logits in which both of its outputs were decided wrongly, by a little.
fn nearly_right() -> (LogicCa, HardCircuit, Vec<f32>) {
    let model = small(Periodic, 1, 1.0);
    let mut stream = Key::new(11).stream();
    let right: Vec<u8> = (0..model.gates())
        .map(|_| [1, 6, 7, 9, 3, 5][stream.below(6)])
        .collect();
    let mut params = vec![0.0; model.layout().len()];
    for (i, (logits, &op)) in params.chunks_exact_mut(GATES).zip(&right).enumerate() {
        logits[usize::from(op)] = 5.0;
        if i >= right.len() - 2 {
            logits[usize::from(15 - op)] = 5.2;
        }
    }
    let circuit = HardCircuit::with_ops(&model, &right);
    (model, circuit, params)
}

#[test]
fn gates_that_were_decided_wrongly_by_a_little_are_found() {
    let (model, right, mut params) = nearly_right();
    let trial = Trial::Grids(vec![grids_of(&right, 5)]);
    assert_eq!(trial.wrong_of(&right), 0);
    let largest = HardCircuit::of(&model, &params);
    assert_eq!(trial.wrong_of(&largest), trial.count());
    let key = Key::new(1);
    let found = round(&model, &params, decided(&params), &trial, 1 << 27, key);
    assert_eq!(found.wrong, 0);
    for threads in [1, 2, 7] {
        let again = with_threads(threads, || {
            round(&model, &params, decided(&params), &trial, 1 << 27, key)
        });
        assert_eq!(again, found, "{threads} threads");
    }
    // The circuit that the logits stand for afterwards is the one that was found.
    decide(&mut params, &found.ops);
    assert_eq!(trial.wrong_of(&HardCircuit::of(&model, &params)), 0);
    for logits in params.chunks_exact(GATES) {
        let best = usize::from(hardest(logits));
        let others = logits.iter().enumerate().filter(|(i, _)| *i != best);
        assert!(others.clone().all(|(_, &l)| logits[best] - l >= 10.0));
    }
}

#[test]
fn what_is_left_wrong_is_said_and_never_more_than_before() {
    let (model, _, params) = nearly_right();
    // What no circuit can do: cells that see the same and should differ.
    let start = BitGrid::new([3, 5, 7], 2, Periodic).unwrap();
    let grids = Grids::new(&start, 1, None);
    let grids = (0..2).fold(grids, |grids, c| grids.want(c, |_, y, _| y % 2 == 0));
    let trial = Trial::Grids(vec![grids]);
    let before = trial.wrong_of(&HardCircuit::of(&model, &params));
    let ops = decided(&params);
    let found = round(&model, &params, ops, &trial, 1 << 27, Key::new(1));
    assert!(found.wrong > 0 && found.wrong <= before);
    let ops = HardCircuit::with_ops(&model, &found.ops);
    assert_eq!(trial.wrong_of(&ops), found.wrong);
}

#[test]
fn grids_after_the_first_that_are_wrong_count_as_wrong() {
    let (model, right, params) = nearly_right();
    let wrong = HardCircuit::of(&model, &params);
    let (first, second) = (grids_of(&right, 5), grids_of(&right, 6));
    let cells = first.count();
    let alone = first.wrong(&wrong, &Stripped::new(&wrong));
    assert!(alone > 0);
    let mut trial = Trial::Grids(vec![first]);
    let words = trial.words(0);
    trial.and(second);
    assert_eq!(trial.wrong_of(&right), 0);
    assert_eq!(trial.wrong_of(&wrong), alone + cells);
    assert_eq!(trial.count(), cells);
    // Right on the first, wrong on the second: whatever is wrong there, it is less.
    let mut later = Trial::Grids(vec![grids_of(&wrong, 5)]);
    later.and(grids_of(&right, 5));
    assert_eq!(later.wrong_of(&wrong), alone);
    // Grids that were never come to took no work.
    assert_eq!(trial.words(cells + 1), words);
    assert_eq!(trial.words(cells), 2 * words);
    assert_eq!(trial.words(0), 2 * words);
    // One cell in ten of the first, and all of the second.
    assert!(trial.nearly(cells + cells / 10, 10));
    assert!(!trial.nearly(cells + cells / 10 + 1, 10));
}

#[test]
fn all_boards_at_once_are_right_as_often_as_board_by_board() {
    let mut spec = small(Periodic, 1, 1.0).spec().clone();
    spec.channels = 1;
    spec.update = vec![7, 6, 4, 2, 1];
    let model = LogicCa::new(spec, 2).unwrap();
    let mut stream = Key::new(4).stream();
    for rule in [Rule::LIFE, "B36/S23".parse().unwrap()] {
        for _ in 0..20 {
            let ops: Vec<u8> = (0..model.gates())
                .map(|_| stream.below(GATES) as u8)
                .collect();
            let circuit = HardCircuit::with_ops(&model, &ops);
            let right = 512 - Trial::of_rule(rule).wrong_of(&circuit);
            assert_eq!(right, boards_right(rule, &circuit));
        }
    }
}

/// A circuit in the words of a run's file.
fn circuit(channels: usize, gates: &str, outputs: &str) -> HardCircuit {
    let text = format!(
        "{{\"format\":\"retrograd-circuit-1\",\"channels\":{channels},\"boundary\":\"zero\",\
         \"gate_names\":[],\"gates\":[{gates}],\"outputs\":[{outputs}]}}"
    );
    HardCircuit::from_json(&text).unwrap()
}

fn checkerboard(channels: usize, more: &str) -> LogicTask {
    let text = format!(
        "name = \"boards\"\n[model]\nfamily = \"logic_ca\"\nchannels = {channels}\nkernels = 3\n\
         perception = [9, 8, 4, 2]\nupdate = [{}, 32, 16, 8, {channels}]\nboundary = \"zero\"\n{more}\n\
         [data]\ngrid = [8, 8]\nstart = \"random\"\ntarget = \"checkerboard\"\n[train]\nepochs = 1\n\
         optimizer = {{ kind = \"adam\", lr = 0.1 }}\n",
        7 * channels,
    );
    LogicTask::new(&Experiment::parse(&text, "boards.toml").unwrap()).unwrap()
}

/// One board in five is right in time by this circuit: it must not be asked for the same one again and
/// again.
#[test]
fn a_circuit_stands_on_many_boards_or_not_at_all() {
    let slow = circuit(
        4,
        "[2,0,6],[2,18,36],[6,11,15],[1,11,38],[7,9,27],[8,39,40],[1,9,27],[2,38,42]",
        "43,37,41,18",
    );
    let task = checkerboard(4, "steps = 28\nfire_rate = 0.6");
    let right = |key: Key| {
        let size = Grown::size_in_haste(task.model().spec());
        let grown = Grown::on(size, task.model().spec(), task.data(), &slow, key).unwrap();
        grown.wrong + grown.healed == 0
    };
    let key = Key::new(1).purpose("boards");
    assert!((0..40).any(|board| right(key.among(board))));
    for epoch in 0..40 {
        assert!(!task.stands(&slow, epoch).unwrap(), "{epoch}");
        // What it is looked for again with is something that it gets wrong.
        let more = task.fails_on(&slow, Key::new(epoch)).unwrap();
        assert!(more.unwrap().wrong(&slow, &Stripped::new(&slow)) > 0);
    }
    let quick = circuit(8, "[7,9,17],[11,15,72]", "73,6,6,15,0,6,15,73");
    let task = checkerboard(8, "steps = 20");
    for epoch in 0..3 {
        assert!(task.stands(&quick, epoch).unwrap(), "{epoch}");
        assert!(task.fails_on(&quick, Key::new(epoch)).unwrap().is_none());
    }
}

/// A pattern on a small grid; zeros grow from zeros, which gates that pass their input on do at once.
fn experiment(target: &str, train: &str) -> Experiment {
    let text = format!(
        "name = \"attempts\"\n[model]\nfamily = \"logic_ca\"\nchannels = 2\nkernels = 3\n\
         perception = [9, 8, 4, 2]\nupdate = [14, 12, 9, 5, 3, 2]\nboundary = \"periodic\"\nsteps = 3\n\
         pass_logit = 4.0\n[data]\ngrid = [4, 4]\n{target}\n\
         [train]\noptimizer = {{ kind = \"adamw\", lr = 0.1 }}\nseed = 3\n{train}\n"
    );
    Experiment::parse(&text, "attempts.toml").unwrap()
}

const NOISE: &str = "start = \"random\"\ntarget = \"checkerboard\"";
const ZEROS: &str =
    "start = \"zeros\"\ntarget = \"bitmap\"\nbitmap = [[\"0\", \"0\", \"0\", \"0\"]]";
const ATTEMPTS: &str =
    "epochs = 12\nbatch = 2\nrestart_after = 5\nround_every = 2\nstop_when_learned = 3";

fn fit(experiment: &Experiment, run: &Path, resume: bool) -> Summary {
    let mut task = LogicTask::new(experiment).unwrap();
    let session = Session::new(experiment.clone());
    let session = match resume {
        true => session.resuming(run),
        false => session.in_folder(run),
    };
    session.reported(false).fit(&mut task).unwrap()
}

/// The parameters, the wires, and what was measured.
fn left(run: &Path) -> (Vec<u8>, Vec<String>) {
    let model = std::fs::read(run.join("model.safetensors")).unwrap();
    let metrics = std::fs::read_to_string(run.join("metrics.csv")).unwrap();
    let without_time = |line: &str| line.rsplit_once(',').unwrap().0.to_string();
    (model, metrics.lines().map(without_time).collect())
}

#[test]
fn a_start_that_does_not_learn_is_given_up_and_the_bits_are_the_same_on_any_number_of_threads() {
    let experiment = experiment(NOISE, ATTEMPTS);
    let folder = tempfile::tempdir().unwrap();
    let run = |threads: usize| {
        let run = folder.path().join(threads.to_string());
        let summary = with_threads(threads, || fit(&experiment, &run, false));
        assert_eq!(summary.attempts, Some((3, 3)));
        assert_eq!(summary.to_json()["attempts"], 3);
        left(&run)
    };
    let one = run(1);
    let attempts: Vec<_> = one
        .1
        .iter()
        .map(|l| l.split(',').collect::<Vec<_>>())
        .collect();
    let at = attempts[0].iter().position(|h| *h == "attempt").unwrap();
    let numbers: Vec<_> = attempts[1..].iter().map(|row| row[at]).collect();
    assert_eq!(
        numbers,
        ["1", "1", "1", "1", "1", "2", "2", "2", "2", "2", "3", "3"]
    );
    assert_eq!(one, run(2));
    assert_eq!(one, run(7));
}

#[test]
fn every_attempt_has_wires_of_its_own() {
    let experiment = experiment(NOISE, ATTEMPTS);
    let mut task = LogicTask::new(&experiment).unwrap();
    use crate::train::Task;
    let mut seen = vec![task.model().update_wires().to_vec()];
    for attempt in 1..4 {
        let params = task.begin_again(3, attempt).unwrap();
        assert_eq!(params, task.model().init(3));
        let wires = task.model().update_wires().to_vec();
        assert!(!seen.contains(&wires), "attempt {attempt}");
        seen.push(wires);
    }
}

struct StopAfter<'a>(&'a AtomicBool, u64);

impl Observer for StopAfter<'_> {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Step { step, .. } = event
            && step >= self.1
        {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_run_resumed_within_any_attempt_ends_with_the_same_bits() {
    let experiment = experiment(NOISE, ATTEMPTS);
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    fit(&experiment, &whole, false);
    // In the first attempt, at its end, in the second, at its end, in the third.
    for k in [3, 5, 6, 8, 10, 11] {
        let part = folder.path().join(format!("part-{k}"));
        let stop = AtomicBool::new(false);
        let mut observer = StopAfter(&stop, k);
        let stopped = Session::new(experiment.clone())
            .in_folder(&part)
            .observed_by(&mut observer)
            .stopped_by(&stop)
            .fit(&mut LogicTask::new(&experiment).unwrap());
        assert!(matches!(stopped, Err(crate::Error::Interrupted { .. })));
        fit(&experiment, &part, true);
        assert_eq!(left(&part), left(&whole), "stopped after step {k}");
    }
}

#[test]
fn a_run_that_has_learned_stops_and_stays_so() {
    let experiment = experiment(ZEROS, ATTEMPTS);
    let folder = tempfile::tempdir().unwrap();
    let summary = fit(&experiment, folder.path().join("run").as_path(), false);
    assert_eq!((summary.epochs, summary.attempts), (3, Some((1, 3))));
    let again = fit(&experiment, folder.path().join("run").as_path(), true);
    assert_eq!(again.epochs, 3);
}

#[test]
fn only_what_can_say_that_it_has_learned_is_asked() {
    let moons = include_str!("../../../../../experiments/moons.toml");
    let text = format!("{moons}restart_after = 5\n");
    let experiment = Experiment::parse(&text, "moons.toml").unwrap();
    let family = crate::Family::find("network").unwrap();
    let error = family.train(&mut Session::new(experiment)).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("train.restart_after"), "{said}");
}

/// Gates that are decided have gradients that rounding hides; the end of a run is where they are decided.
#[test]
fn decided_gates_are_verified_where_they_are_not() {
    let mut task = checkerboard(4, "steps = 20");
    let mut params = task.model().init(0);
    let ops = decided(&params);
    decide(&mut params, &ops);
    decide(&mut params, &ops);
    let Specimen { example, model } = task.specimen().unwrap();
    let model = model.unwrap();
    assert_eq!(model.spec().steps, 3);
    let unchecked = |params: &[f32]| {
        let (input, target) = (&example.input, &example.target);
        let loss = task.loss();
        let report = check_trained("decided", &model, params, input, target, loss).unwrap();
        assert_eq!(report.counts().failed, 0, "{}", report.table());
        let rows = report.rows.iter().filter(|row| row.link != Link::Machines);
        rows.filter(|row| row.verdict == Verdict::Unchecked).count()
    };
    let said = task.soften(&mut params).unwrap();
    assert!(said.contains("between -2 and 5.8"), "{said}");
    assert_eq!(unchecked(&params), 0);
    assert_eq!(task.soften(&mut params), None);
}
