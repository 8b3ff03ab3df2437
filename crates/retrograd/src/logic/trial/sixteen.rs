//! All sixteen gates in one place at once.
//!
//! A circuit is run on sixteen copies of what it is tried on, side by side, and one of its gates is another one
//! in each. Grids of eight columns fill words that way of which one alone takes an eighth, and a circuit is
//! stripped once for all of them.

use super::super::HardCircuit;
use super::super::gates::GATES;
use super::stripped::Various;
use super::{Grids, Shape, Stripped, Table, Trial};

/// The boards of a trial, or its first grids, for every gate.
pub(in super::super) struct Sixteen {
    copies: Copies,
    /// Where a gate is 1 at (0, 0), (0, 1), (1, 0), (1, 1).
    tables: [Vec<u64>; 4],
}

enum Copies {
    /// A gate that is always 0, and one that is always 1: each board is looked at in one of both, which is decided
    /// by what the gate's inputs are there.
    Boards(Table),
    /// So many grids of each gate.
    Grids(Grids, usize),
}

/// Whether a gate is 1 where its first input is i / 2 and its second i % 2.
fn is_one(gate: usize, i: usize) -> bool {
    gate >> (3 - i) & 1 == 1
}

impl Sixteen {
    pub fn new(trial: &Trial) -> Self {
        match trial {
            Trial::Boards(wanted) => Sixteen {
                copies: Copies::Boards(*wanted),
                tables: [0; 4].map(|_: u8| [[0; 8], [u64::MAX; 8]].concat()),
            },
            Trial::Grids(grids) => {
                let each = grids[0].shape.samples;
                let copies = grids[0].copied(GATES);
                let shape = copies.shape;
                Sixteen {
                    tables: [0, 1, 2, 3].map(|i| shape.filled(|s, _, _| is_one(s / each, i))),
                    copies: Copies::Grids(copies, each),
                }
            }
        }
    }

    /// Words of a value that is computed for all gates, times steps.
    pub fn words(&self) -> usize {
        match &self.copies {
            Copies::Boards(_) => 16,
            Copies::Grids(grids, _) => grids.shape.words() * grids.steps,
        }
    }

    /// Cells, or boards, that are wrong with each gate in these places of the circuit, which must have been
    /// stripped with a gate there that reads both of its inputs.
    pub fn wrong(
        &self,
        circuit: &HardCircuit,
        stripped: &Stripped,
        places: &[usize],
    ) -> [usize; GATES] {
        let tables = &self.tables;
        let various = Some(Various { places, tables });
        let mut wrong = [0; GATES];
        match (&self.copies, places) {
            (Copies::Boards(wanted), &[place]) => {
                let values = stripped.on_boards::<16>(circuit, various);
                if let Some(reads) = stripped.reads(place) {
                    let [a, b] = reads.map(|slot| &values[slot]);
                    let counts = by_inputs(a, b, &values[stripped.slot_of(0)], wanted);
                    for (gate, wrong) in wrong.iter_mut().enumerate() {
                        *wrong = (0..4)
                            .map(|i| counts[i][usize::from(is_one(gate, i))])
                            .sum();
                    }
                }
            }
            // A gate of several channels: boards are tried with each.
            (Copies::Boards(wanted), _) => {
                let mut circuit = circuit.clone();
                for (gate, wrong) in wrong.iter_mut().enumerate() {
                    places
                        .iter()
                        .for_each(|&place| circuit.gates[place].op = gate as u8);
                    *wrong = Trial::Boards(*wanted).wrong(&circuit, stripped);
                }
            }
            (Copies::Grids(grids, each), _) => grids.run(circuit, stripped, various, |differ| {
                let shape = &grids.shape;
                shape.count(differ, |sample, cells| wrong[sample / each] += cells);
            }),
        }
        wrong
    }
}

/// How many boards are wrong where a gate's inputs are (0, 0), (0, 1), (1, 0), (1, 1): if it is 0, and if it is 1.
fn by_inputs(a: &[u64; 16], b: &[u64; 16], given: &[u64; 16], wanted: &Table) -> [[usize; 2]; 4] {
    let mut counts = [[0; 2]; 4];
    for (i, wanted) in wanted.iter().enumerate() {
        let wheres = [!a[i] & !b[i], !a[i] & b[i], a[i] & !b[i], a[i] & b[i]];
        for (counts, boards) in counts.iter_mut().zip(wheres) {
            for (value, count) in counts.iter_mut().enumerate() {
                *count += ((given[8 * value + i] ^ wanted) & boards).count_ones() as usize;
            }
        }
    }
    counts
}

impl Grids {
    /// Several times the same, one after the other.
    fn copied(&self, times: usize) -> Grids {
        let samples = self.shape.samples;
        let shape = self.shape.of_samples(samples * times);
        let planes = |planes: &[u64]| -> Vec<u64> {
            let planes = planes.chunks_exact(self.shape.words());
            let copies = planes
                .map(|plane| shape.filled(|s, y, x| self.shape.bit(plane, s % samples, y, x)));
            copies.flatten().collect()
        };
        let wanted = self.wanted.iter().map(|(c, bits)| (*c, planes(bits)));
        Grids {
            shape,
            start: planes(&self.start),
            steps: self.steps,
            fire: self.fire.as_deref().map(planes),
            erased: self
                .erased
                .as_ref()
                .map(|(when, left)| (*when, planes(left))),
            looked_at: self.looked_at.clone(),
            cells: planes(&self.cells),
            wanted: wanted.collect(),
        }
    }
}

impl Shape {
    fn bit(&self, plane: &[u64], sample: usize, y: usize, x: usize) -> bool {
        let (word, place) = self.place(sample, y, x);
        plane[word] >> place & 1 == 1
    }

    /// The bits of every grid in a plane that has none beside.
    fn count(&self, plane: &[u64], mut of: impl FnMut(usize, usize)) {
        let low = u64::MAX >> (64 - self.width.min(64));
        for (i, group) in plane.chunks_exact(self.height * self.row).enumerate() {
            for beside in 0..self.abreast {
                let sample = i * self.abreast + beside;
                if sample < self.samples {
                    let bits = |word: &u64| (word >> (beside * self.width) & low).count_ones();
                    of(sample, group.iter().map(bits).sum::<u32>() as usize);
                }
            }
        }
    }
}
