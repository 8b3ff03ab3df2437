//! Trials on rows of words against the grids that the automaton runs on, and circuits that lose gates.

use super::small;
use crate::Model;
use crate::logic::BoundaryCondition::{self, Periodic, Zero};
use crate::logic::gates::GATES;
use crate::logic::thinning::thin;
use crate::logic::trial::{Grids, Stripped, Trial};
use crate::logic::{BitGrid, HardCircuit, LogicCa, Program};
use crate::rng::{Key, Stream};

fn random_ops(model: &LogicCa, stream: &mut Stream) -> Vec<u8> {
    let op = |stream: &mut Stream| match stream.below(3) {
        0 => [3, 5][stream.below(2)],
        _ => stream.below(GATES) as u8,
    };
    (0..model.gates()).map(|_| op(stream)).collect()
}

/// Starts of a size, cells that fire, a wound, and what becomes of all that where it is run as ever.
fn case(
    circuit: &HardCircuit,
    size: [usize; 3],
    fires: bool,
    seed: u64,
) -> (BitGrid, Option<Vec<bool>>, [BitGrid; 2]) {
    let mut stream = Key::new(seed).purpose("trial").stream();
    let mut start = BitGrid::new(size, circuit.channels, circuit.boundary).unwrap();
    start.randomise(&mut stream);
    let cells = size[1] * size[2];
    let fire = fires.then(|| (0..4 * cells).map(|_| stream.below(3) > 0).collect());
    let fire: Option<Vec<bool>> = fire;
    let program = Program::new(circuit);
    let mut grid = start.clone();
    let mut seen = Vec::new();
    for t in 0..4 {
        let fire = fire.as_ref().map(|f| &f[t * cells..(t + 1) * cells]);
        grid.step(&program, fire);
        if t == 2 {
            for sample in 0..size[0] {
                grid.erase(sample, [1, 0, 2, 2]);
            }
        }
        seen.push(grid.clone());
    }
    (start, fire, [seen[1].clone(), seen[3].clone()])
}

fn sizes() -> Vec<([usize; 3], BoundaryCondition)> {
    let sizes = [[1, 3, 5], [8, 12, 12], [3, 4, 64], [5, 3, 33], [2, 3, 65]];
    let sizes = sizes
        .into_iter()
        .chain([[1, 2, 130], [70, 2, 3], [9, 3, 8]]);
    sizes
        .flat_map(|size| [(size, Zero), (size, Periodic)])
        .collect()
}

#[test]
fn trials_are_wrong_where_the_automaton_is() {
    let mut stream = Key::new(3).purpose("ops").stream();
    for (i, (size, boundary)) in sizes().into_iter().enumerate() {
        let model = small(boundary, 1, 1.0);
        let circuit = HardCircuit::with_ops(&model, &random_ops(&model, &mut stream));
        let (start, fire, [before, after]) = case(&circuit, size, i % 3 == 0, i as u64);
        // The bits after four steps are wanted, and looked at before the wound, too.
        let grids = Grids::new(&start, 4, fire.as_deref()).erase([3, 3], [1, 0, 2, 2]);
        let grids = (0..2).fold(grids, |g, c| g.want(c, |s, y, x| after.get(s, y, x, c)));
        let mut expected = 0;
        for sample in 0..size[0] {
            let (a, b) = (before.bits(sample), after.bits(sample));
            expected += a.iter().zip(&b).filter(|(a, b)| a != b).count();
        }
        let trial = Trial::Grids(vec![grids]);
        assert_eq!(trial.wrong_of(&circuit), expected, "{size:?} {boundary:?}");
        assert_eq!(trial.count(), 2 * size.iter().product::<usize>());
        // And every cell that is wanted otherwise is one more or one less.
        let grids = Grids::new(&start, 4, fire.as_deref()).erase([4, 3], [0, 0, 1, 1]);
        let grids = grids.want(1, |s, y, x| !after.get(s, y, x, 1));
        let unhurt = Trial::Grids(vec![grids]).wrong_of(&circuit);
        assert!(unhurt > 0);
    }
}

/// A circuit of constants alone, and one that passes everything on.
#[test]
fn what_is_stripped_can_be_all_of_it() {
    let model = small(Periodic, 1, 1.0);
    for op in [0, 15, 3, 5] {
        let circuit = HardCircuit::with_ops(&model, &vec![op; model.gates()]);
        let (start, _, [_, after]) = case(&circuit, [2, 4, 6], false, 1);
        let grids = Grids::new(&start, 4, None).want(0, |s, y, x| after.get(s, y, x, 0));
        let grids = grids.erase([3, 3], [1, 0, 2, 2]);
        let wrong = Trial::Grids(vec![grids]).wrong_of(&circuit);
        assert!(op > 0 || wrong == 0, "{op}: {wrong}");
        let (both, all) = Stripped::new(&circuit).size(&circuit);
        assert_eq!(both, 0);
        assert_eq!(all > 0, op == 0 || op == 15);
    }
}

/// A goal that a part of the gates is enough for: the others go, and nothing is wrong.
#[test]
fn gates_that_are_of_no_use_go() {
    let model = small(Periodic, 1, 1.0);
    let mut stream = Key::new(6).purpose("ops").stream();
    let ops: Vec<u8> = (0..model.gates())
        .map(|_| [1, 6, 7, 9][stream.below(4)])
        .collect();
    let circuit = HardCircuit::with_ops(&model, &ops);
    let (start, _, _) = case(&circuit, [6, 7, 9], false, 4);
    let mut after = start.clone();
    after.step(&Program::new(&circuit), None);
    let grids = Grids::new(&start, 1, None).want(0, |s, y, x| after.get(s, y, x, 0));
    let trial = Trial::Grids(vec![grids]);
    assert_eq!(trial.wrong_of(&circuit), 0);
    let found = thin(&model, ops.clone(), &trial, Key::new(1));
    let size = |circuit: &HardCircuit| {
        let stripped = Stripped::new(circuit);
        assert_eq!(trial.wrong(circuit, &stripped), 0);
        stripped.size(circuit)
    };
    let mut before = size(&circuit);
    assert!(!found.is_empty());
    for fewer in &found {
        let now = size(&HardCircuit::with_ops(&model, fewer));
        assert!(now < before);
        before = now;
    }
    assert_eq!(found, thin(&model, ops.clone(), &trial, Key::new(1)));
    // Where something is wrong nothing changes.
    let grids = Grids::new(&start, 1, None).want(0, |s, y, x| !after.get(s, y, x, 0));
    let hopeless = Trial::Grids(vec![grids]);
    assert!(thin(&model, ops.clone(), &hopeless, Key::new(1)).is_empty());
    assert_eq!(model.layout().len(), GATES * ops.len());
}
