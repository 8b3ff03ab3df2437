//! Mistakes that are put in on purpose: every one of them is seen by the checks at the end of the run, and
//! the run says that it is there.

use crate::family::Family;
use crate::train::{Event, Experiment, Observer, Session, Verification};
use crate::verify::{Link, Mistake, Verdict};

const KAN: &str = r#"
name = "kan"
[model]
family = "kan"
sizes = [2, 3, 1]
grid = 4
[data]
generate = { name = "formula", formula = "x*y", inputs = { x = [-1.0, 1.0], y = [-1.0, 1.0] }, samples = 60 }
[train]
epochs = 3
batch = 10
optimizer = { kind = "adam", lr = 0.02 }
"#;

const POINTS: &str = r#"
name = "points"
[model]
family = "network"
layers = [{ kind = "dense", out = 5 }, { kind = "gelu" }, { kind = "dense", out = 2 }]
[data]
generate = { name = "two_moons", samples = 60, noise = 0.1 }
[train]
epochs = 3
batch = 10
optimizer = { kind = "adam", lr = 0.01 }
"#;

const CLUB: &str = r#"
name = "club"
[model]
family = "graph"
features = 34
layers = [{ kind = "gcn", out = 4 }, { kind = "tanh" }, { kind = "gat", out = 2, heads = 2 }, { kind = "tanh" }, { kind = "gcn", out = 2 }]
[data]
kind = "karate"
[train]
epochs = 3
optimizer = { kind = "adam", lr = 0.01 }
"#;

const BOARD: &str = r#"
name = "board"
[model]
family = "logic_ca"
channels = 4
kernels = 2
perception = [9, 8, 4, 2]
update = [20, 12, 8, 4]
steps = 2
pass_logit = 3.0
[data]
grid = [5, 4]
start = "random"
target = "checkerboard"
[train]
epochs = 3
batch = 2
optimizer = { kind = "adam", lr = 0.05 }
"#;

#[derive(Default)]
struct Seen {
    verified: Option<Verification>,
    notes: String,
}

impl Observer for Seen {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Verified(verification) => self.verified = Some(verification.clone()),
            Event::Note(text) => self.notes += text,
            _ => {}
        }
    }
}

fn mistakes(text: &str) -> Vec<String> {
    let experiment = Experiment::parse(text, "the experiment").unwrap();
    let family = Family::find(experiment.family()).unwrap();
    let mut all = Vec::new();
    let mut session = Session::new(experiment).mistakes_into(&mut all);
    family.train(&mut session).unwrap();
    drop(session);
    all
}

fn train(text: &str, mistake: Option<Mistake>) -> crate::Result<Seen> {
    let experiment = Experiment::parse(text, "the experiment").unwrap();
    let family = Family::find(experiment.family()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut seen = Seen::default();
    let mut session = Session::new(experiment)
        .in_folder(folder.path().join("run"))
        .verified(true)
        .reported(false)
        .observed_by(&mut seen);
    if let Some(mistake) = mistake {
        session = session.with_mistake(mistake);
    }
    family.train(&mut session)?;
    drop(session);
    Ok(seen)
}

fn failed(seen: &Seen) -> Vec<Link> {
    let links = seen.verified.as_ref().unwrap().links();
    let failed = links.iter().filter(|l| l.verdict == Verdict::Fail);
    failed.map(|l| l.link).collect()
}

#[test]
fn every_mistake_that_a_user_can_pick_is_seen_by_the_checks_of_the_run() {
    let mut unseen = Vec::new();
    for text in [KAN, POINTS, CLUB, BOARD] {
        assert!(failed(&train(text, None).unwrap()).is_empty());
        let all = mistakes(text);
        assert!(all.len() > 10, "{all:?}");
        for words in &all {
            for only_f32 in [false, true] {
                let words = words.clone();
                let mistake = Mistake {
                    words: words.clone(),
                    only_f32,
                };
                let seen = train(text, Some(mistake)).unwrap();
                let link = if only_f32 {
                    Link::Cpu
                } else {
                    Link::Differences
                };
                assert!(seen.notes.contains(&words), "{}", seen.notes);
                if !failed(&seen).contains(&link) {
                    unseen.push((words, only_f32));
                }
            }
        }
    }
    assert_eq!(unseen, []);
}

#[test]
fn words_are_unique_and_others_are_refused() {
    for text in [KAN, POINTS, CLUB, BOARD] {
        let mut all = mistakes(text);
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }
    let words = "layer 9, dense: nothing".to_string();
    let mistake = Mistake {
        words,
        only_f32: false,
    };
    let error = train(POINTS, Some(mistake)).err().unwrap().to_string();
    assert!(error.contains("layer 9"), "{error}");
}
