//! Training the checkerboard, the whole process, stays under 64 MB, by what the operating system
//! says it held at most. Alone in its file: a process has one peak.

#![cfg(target_os = "linux")]

use retrograd::logic::LogicTask;
use retrograd::train::{Experiment, Session};

#[test]
fn the_checkerboard_trains_in_64_megabytes() {
    let text = include_str!("../../../experiments/checkerboard.toml");
    let mut experiment = Experiment::parse(text, "checkerboard.toml").unwrap();
    experiment.train.epochs = 3;
    let mut task = LogicTask::new(&experiment).unwrap();
    Session::new(experiment).fit(&mut task).unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    println!("{kib} KiB at most");
    assert!(kib << 10 < 64_000_000, "{kib} KiB at most");
}
