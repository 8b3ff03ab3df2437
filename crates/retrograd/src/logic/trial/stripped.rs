//! A circuit that is stripped of what does nothing, and interpreted.

use super::super::HardCircuit;
use super::super::hard::Gate;
use crate::simd::{Simd, dispatch, level};

/// Bit k of word i is bit i of k.
const ALTERNATING: [u64; 6] = [
    0xaaaa_aaaa_aaaa_aaaa,
    0xcccc_cccc_cccc_cccc,
    0xf0f0_f0f0_f0f0_f0f0,
    0xff00_ff00_ff00_ff00,
    0xffff_0000_ffff_0000,
    0xffff_ffff_0000_0000,
];

/// A circuit without gates that pass an input on, and without those that nothing reads. Which gates these
/// are is found once; the others may change afterwards.
pub(in super::super) struct Stripped {
    /// The circuit's inputs that are read.
    inputs: Vec<u32>,
    /// Places in the circuit, and the slots that they read: inputs first, then gates.
    gates: Vec<(u32, [u32; 2])>,
    /// Channels that matter, and the slots of their new values.
    outputs: Vec<(usize, u32)>,
}

impl Stripped {
    /// Of all outputs.
    pub fn new(circuit: &HardCircuit) -> Self {
        let inputs = circuit.inputs();
        let nodes = inputs + circuit.gates.len();
        // What a node is: itself, or what it passes on.
        let mut stands: Vec<u32> = (0..inputs as u32).collect();
        stands.reserve(circuit.gates.len());
        for &Gate { op, a, b } in &circuit.gates {
            stands.push(match op {
                3 => stands[a as usize],
                5 => stands[b as usize],
                _ => stands.len() as u32,
            });
        }
        let mut used = vec![false; nodes];
        for &output in &circuit.outputs {
            used[stands[output as usize] as usize] = true;
        }
        for (i, &Gate { op, a, b }) in circuit.gates.iter().enumerate().rev() {
            if used[inputs + i] {
                used[stands[a as usize] as usize] |= reads_a(op);
                used[stands[b as usize] as usize] |= reads_b(op);
            }
        }
        let mut slots = vec![0; nodes];
        // Constants read something, too, which is of no account.
        used[0] = true;
        let read: Vec<u32> = (0..inputs as u32).filter(|&i| used[i as usize]).collect();
        for (slot, &input) in read.iter().enumerate() {
            slots[input as usize] = slot as u32;
        }
        let mut gates = Vec::new();
        for (i, &Gate { a, b, .. }) in circuit.gates.iter().enumerate() {
            if used[inputs + i] {
                let slot = |node: u32| slots[stands[node as usize] as usize];
                gates.push((i as u32, [slot(a), slot(b)]));
                slots[inputs + i] = (read.len() + gates.len() - 1) as u32;
            }
        }
        let slot = |&output: &u32| slots[stands[output as usize] as usize];
        Stripped {
            inputs: read,
            gates,
            outputs: circuit.outputs.iter().map(slot).enumerate().collect(),
        }
    }

    /// The places in the circuit of the gates that are left.
    pub fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.gates.iter().map(|gate| gate.0 as usize)
    }

    /// Gates that are left and need both of their inputs, and all that are left.
    pub fn size(&self, circuit: &HardCircuit) -> (usize, usize) {
        let op = |place: usize| circuit.gates[place].op;
        let both = self.places().filter(|&p| reads_a(op(p)) && reads_b(op(p)));
        (both.count(), self.gates.len())
    }

    /// Every value on all boards of nine cells of the first channel, once or several times over, where the other
    /// channels are 0.
    pub(super) fn on_boards<const N: usize>(
        &self,
        circuit: &HardCircuit,
        various: Option<Various>,
    ) -> Vec<[u64; N]> {
        let mut values = vec![[0; N]; self.inputs.len() + self.gates.len()];
        for (&input, value) in self.inputs.iter().zip(&mut values) {
            for (i, word) in value.iter_mut().enumerate() {
                // Board i·64 + k has the bits of its number.
                *word = match input {
                    0..6 => ALTERNATING[input as usize],
                    6..9 => 0_u64.wrapping_sub((i >> (input - 6) & 1) as u64),
                    _ => 0,
                };
            }
        }
        dispatch!(level(), simd => self.block(simd, circuit, 0, &mut values, various));
        values
    }

    /// Where a channel's new value is among all values.
    pub(super) fn slot_of(&self, channel: usize) -> usize {
        self.outputs[channel].1 as usize
    }

    /// The circuit's inputs that are read.
    pub(super) fn inputs(&self) -> &[u32] {
        &self.inputs
    }

    /// Where the values are that a gate reads, if it is left.
    pub(super) fn reads(&self, place: usize) -> Option<[usize; 2]> {
        let found = self
            .gates
            .binary_search_by_key(&(place as u32), |gate| gate.0);
        Some(self.gates[found.ok()?].1.map(|slot| slot as usize))
    }

    /// Gates that are left.
    pub fn len(&self) -> usize {
        self.gates.len()
    }

    /// All gates, as they are in the circuit now, but for places where every word has its own. A value has so many
    /// words: those of the inputs that are read are given, and those of all outputs are left.
    pub(super) fn run(
        &self,
        circuit: &HardCircuit,
        words: usize,
        seen: &[u64],
        given: &mut [u64],
        various: Option<Various>,
    ) {
        // A block of all values stays in a core's cache.
        match words {
            0..=8 => self.in_blocks::<8>(circuit, words, seen, given, various),
            _ => self.in_blocks::<16>(circuit, words, seen, given, various),
        }
    }

    fn in_blocks<const N: usize>(
        &self,
        circuit: &HardCircuit,
        words: usize,
        seen: &[u64],
        given: &mut [u64],
        various: Option<Various>,
    ) {
        let mut values = vec![[0; N]; self.inputs.len() + self.gates.len()];
        for start in (0..words).step_by(N) {
            let block = start..words.min(start + N);
            for (value, plane) in values.iter_mut().zip(seen.chunks_exact(words)) {
                value[..block.len()].copy_from_slice(&plane[block.clone()]);
            }
            dispatch!(level(), simd => self.block(simd, circuit, start, &mut values, various));
            for (&(_, slot), plane) in self.outputs.iter().zip(given.chunks_exact_mut(words)) {
                plane[block.clone()].copy_from_slice(&values[slot as usize][..block.len()]);
            }
        }
    }

    #[inline(always)]
    fn block<S: Simd, const N: usize>(
        &self,
        _: S,
        circuit: &HardCircuit,
        start: usize,
        values: &mut [[u64; N]],
        various: Option<Various>,
    ) {
        let mut places = various.map_or(&[][..], |v| v.places).iter().peekable();
        for (i, &(place, [a, b])) in self.gates.iter().enumerate() {
            let (a, b) = (values[a as usize], values[b as usize]);
            let y = &mut values[self.inputs.len() + i];
            while places.next_if(|&&p| p < place as usize).is_some() {}
            if let (Some(various), true) = (various, places.peek() == Some(&&(place as usize))) {
                various.run(start, a, b, y);
                continue;
            }
            // y = c₀ ⊕ c₁a ⊕ c₂b ⊕ c₃ab: the table's Reed–Muller form. Bit 3 is the value at (0, 0).
            let op = circuit.gates[place as usize].op;
            let mask = |bit: u8| 0_u64.wrapping_sub(u64::from(bit & 1));
            let (none, only_b, only_a, both) = (op >> 3, op >> 2, op >> 1, op);
            let (c0, c1, c2) = (mask(none), mask(none ^ only_a), mask(none ^ only_b));
            let c3 = mask(none ^ only_a ^ only_b ^ both);
            for i in 0..N {
                y[i] = c0 ^ (c1 & a[i]) ^ (b[i] & (c2 ^ (c3 & a[i])));
            }
        }
    }
}

/// Another gate in every word of some places.
#[derive(Clone, Copy)]
pub(super) struct Various<'a> {
    /// In ascending order.
    pub places: &'a [usize],
    /// Where the gate is 1 at (0, 0), (0, 1), (1, 0), (1, 1).
    pub tables: &'a [Vec<u64>; 4],
}

impl Various<'_> {
    /// A block that begins at this word.
    #[inline(always)]
    fn run<const N: usize>(self, start: usize, a: [u64; N], b: [u64; N], y: &mut [u64; N]) {
        let [none, only_b, only_a, both] = self.tables.each_ref().map(|t| &t[start..]);
        for i in 0..N.min(none.len()) {
            let at_0 = none[i] & !b[i] | only_b[i] & b[i];
            let at_1 = only_a[i] & !b[i] | both[i] & b[i];
            y[i] = at_0 & !a[i] | at_1 & a[i];
        }
    }
}

/// A gate ignores an input where both halves of its table are the same.
pub(in super::super) fn reads_a(op: u8) -> bool {
    op >> 2 != op & 3
}

pub(in super::super) fn reads_b(op: u8) -> bool {
    op >> 1 & 5 != op & 5
}
