//! The automaton recorded for the GPU: all its steps are one layer there, whose rows are cells. The
//! kernels are in automaton.wgsl.

use super::circuit::Circuit;
use super::gates::GATES;
use super::grid::BoundaryCondition;
use super::{LogicBatch, LogicCa};
use crate::gpu::Recorded;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Lengths, Record, flag, groups};
use crate::gpu::recording::{Part, Recording};
use crate::layer::{Backward, Describe, Forward, Layer};
use crate::network::Sparsity;
use crate::plan::{Grids, Input, Layers, Place, RowsOf};
use crate::{Model, Result, Scalar};

pub(crate) static AUTOMATON: Kernel =
    Kernel::new("logic/automaton.wgsl", include_str!("automaton.wgsl"));

/// Gates in workgroup memory at a time.
const GATE_SLICE: usize = 128;
crate::cuts::cuts!(GATE_SLICE);

/// All steps of an automaton.
struct Automaton {
    channels: usize,
    steps: usize,
    boundary: BoundaryCondition,
    /// Gates of the perception circuit, and of both.
    perception: usize,
    gates: usize,
    /// What every gate reads first, then what it reads second: places among the numbers of a channel
    /// in the perception circuit, among those of a cell in the update circuit. Those whose gradient begins
    /// there are marked ([`mark`]); the places of a cell whose gradient begins with 0 follow.
    wires: Vec<u32>,
    /// How many of those there are.
    zeros: usize,
    /// The price of a gate that does something.
    price: f64,
}

/// The inputs of a circuit's gates, gate after gate, in its values.
fn inputs_of(circuit: &Circuit) -> [Vec<u32>; 2] {
    let mut sides = [Vec::new(), Vec::new()];
    let mut first = 0;
    for layer in &circuit.layers {
        for (side, wires) in sides.iter_mut().zip([&layer.a, &layer.b]) {
            side.extend(wires.iter().map(|w| w + first));
        }
        first += layer.inputs as u32;
    }
    sides
}

/// A wire at which the gradient of what it reads begins.
const BEGINS: u32 = 1 << 31;

/// Marks the wires at which a gradient begins: gates go backward from the last, and the first of them that reads
/// a value sets its gradient, the others add to it. Gives the places of a cell's values that none is marked for
/// and that are no output. Values that both circuits read are among them: channels may differ there.
fn mark(
    sides: &mut [Vec<u32>; 2],
    perception: usize,
    (channels, kept, outputs): (usize, usize, usize),
) -> Vec<u32> {
    let gates = sides[0].len();
    let of_update = channels * kept;
    let all = of_update + gates - perception;
    // Numbers of a channel in the perception circuit, then those of the update circuit.
    let mut begins = vec![false; kept + gates - perception];
    let both = |local: usize| local == 4 || local >= kept - outputs;
    for gate in (0..gates).rev() {
        for side in &mut *sides {
            let wire = side[gate] as usize;
            let own = match (gate < perception, wire.checked_sub(of_update)) {
                (true, _) if !both(wire) => wire,
                (false, Some(own)) => kept + own,
                _ => continue,
            };
            if !std::mem::replace(&mut begins[own], true) {
                side[gate] |= BEGINS;
            }
        }
    }
    let is_zero = |place: &usize| match place.checked_sub(of_update) {
        Some(own) => !begins[kept + own] && *place + channels < all,
        None => !begins[place % kept],
    };
    (0..all).filter(is_zero).map(|place| place as u32).collect()
}

impl Automaton {
    fn of(model: &LogicCa) -> Self {
        let (perception, update) = (&model.perception, &model.update);
        let channels = model.spec().channels;
        let (kept, outputs) = (perception.values, perception.outputs());
        // The update circuit reads the cell's own channels and what perception gave, where they are.
        let place = |value: u32| {
            let value = value as usize;
            let place = match value.checked_sub(channels) {
                None => value * kept + 4,
                Some(rest) if value < update.inputs => {
                    rest / outputs * kept + kept - outputs + rest % outputs
                }
                Some(_) => channels * kept + value - update.inputs,
            };
            place as u32
        };
        let (seen, used) = (inputs_of(perception), inputs_of(update));
        let side = |seen: &[u32], used: &[u32]| -> Vec<u32> {
            let used = used.iter().map(|&value| place(value));
            seen.iter().copied().chain(used).collect()
        };
        let mut sides = [side(&seen[0], &used[0]), side(&seen[1], &used[1])];
        let gates = sides[0].len();
        let zeros = mark(&mut sides, seen[0].len(), (channels, kept, outputs));
        let [a, b] = sides;
        Automaton {
            channels,
            steps: model.spec().steps,
            boundary: model.spec().boundary,
            perception: seen[0].len(),
            gates,
            zeros: zeros.len(),
            wires: [a, b, zeros].concat(),
            price: model.spec().gate_penalty,
        }
    }

    /// Numbers that a cell keeps in a step.
    fn values(&self) -> usize {
        self.channels * (9 + self.perception) + self.gates - self.perception
    }
}

impl Describe for Automaton {
    fn record(&self) -> Option<&dyn Record> {
        Some(self)
    }
}

/// On the CPU the model itself computes all steps ([`LogicCa`]'s own forward and backward).
impl<T: Scalar> Layer<T> for Automaton {
    fn forward(&self, _: Forward<'_, T>) {
        unreachable!("recorded for a device alone");
    }

    fn backward(&self, _: Backward<'_, T>) {
        unreachable!("recorded for a device alone");
    }
}

/// Saved: every gate's softmax and coefficients, the states of all steps, a step's values, their
/// gradients, every gate's sums, and the gradients of two states.
const SOFTMAX: usize = 0;
const MIXTURE: usize = 1;
const STATES: usize = 2;
const VALUES: usize = 3;
const D_VALUES: usize = 4;
const SUMS: usize = 5;
const D_STATE: usize = 6;

/// One kernel's own sizes.
#[derive(Clone, Copy, Default)]
struct At {
    step: usize,
    old: usize,
    fresh: usize,
    first: bool,
    gates: [usize; 2],
}

impl Automaton {
    fn run(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        (entry, count): (&'static str, usize),
        at: At,
        buffers: &[&Part],
    ) -> Result<()> {
        let [height, width] = io.extent.grid;
        let constants = [
            ("CHANNELS", self.channels as f64),
            ("PERCEPTION", self.perception as f64),
            ("GATES", self.gates as f64),
            ("ZERO", flag(self.boundary == BoundaryCondition::Zero)),
            ("FIRES", flag(io.extent.fires)),
            ("PRICE", self.price),
            ("SLICE", GATE_SLICE as f64),
            ("ZEROS", self.zeros as f64),
        ];
        let sizes = [
            ("cells", io.samples),
            ("height", height),
            ("width", width),
            ("step", at.step),
            ("old", at.old),
            ("fresh", at.fresh),
            ("first", at.first.into()),
            ("begin", at.gates[0]),
            ("end", at.gates[1]),
        ];
        io.run(
            recording,
            (&AUTOMATON, entry),
            &constants,
            &sizes,
            buffers,
            count,
        )
    }

    /// The mask of the cells that fire; never read where all do.
    fn fire<'a>(io: &Io<'a>) -> &'a Part {
        io.fire.unwrap_or(io.fixed)
    }
}

impl Record for Automaton {
    /// The wires, as the bits of numbers.
    fn fixed(&self) -> Vec<f32> {
        self.wires
            .iter()
            .map(|&wire| f32::from_bits(wire))
            .collect()
    }

    fn saved(&self, io: &Lengths<'_>) -> Vec<usize> {
        let state = io.samples * self.channels;
        let values = io.samples * self.values();
        let gates = self.gates;
        let states = (self.steps + 1) * state;
        vec![
            gates * GATES,
            gates * 4,
            states,
            values,
            values,
            gates * 4,
            state,
            state,
        ]
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        let state = io.samples * self.channels;
        let [softmax, mixture, states, values] =
            [SOFTMAX, MIXTURE, STATES, VALUES].map(|i| &io.saved[i]);
        let soften = ("soften", groups(self.gates));
        let buffers = [io.master, softmax, mixture];
        let all = At {
            gates: [0, self.gates],
            ..At::default()
        };
        self.run(recording, io, soften, all, &buffers)?;
        let whole = groups(state);
        self.run(
            recording,
            io,
            ("state_in", whole),
            At::default(),
            &[io.x, states],
        )?;
        let cells = groups(io.samples);
        for step in 0..self.steps {
            let at = At {
                step,
                old: step * state,
                fresh: (step + 1) * state,
                ..At::default()
            };
            let buffers = [io.fixed, mixture, Self::fire(io), states, values];
            self.run(recording, io, ("step_forward", cells), at, &buffers)?;
        }
        let at = At {
            old: self.steps * state,
            ..At::default()
        };
        self.run(recording, io, ("state_out", whole), at, &[states, io.y])
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        let state = io.samples * self.channels;
        let [softmax, mixture, states, values, d_values, sums] =
            [SOFTMAX, MIXTURE, STATES, VALUES, D_VALUES, SUMS].map(|i| &io.saved[i]);
        let d_state = |t: usize| &io.saved[D_STATE + t % 2];
        let whole = groups(state);
        let into = [d_y, d_state(self.steps)];
        self.run(recording, io, ("state_in", whole), At::default(), &into)?;
        for step in (0..self.steps).rev() {
            let at = At {
                step,
                old: step * state,
                first: step + 1 == self.steps,
                ..At::default()
            };
            let (fire, d_new) = (Self::fire(io), d_state(step + 1));
            let buffers = [io.fixed, mixture, fire, states, values, d_new, d_values];
            let cells = groups(io.samples);
            self.run(recording, io, ("step_backward", cells), at, &buffers)?;
            let buffers = [io.fixed, values, fire, d_values, sums];
            self.run(recording, io, ("step_sums", self.gates), at, &buffers)?;
            if step > 0 || d_x.is_some() {
                let buffers = [d_values, d_new, fire, d_state(step)];
                self.run(recording, io, ("step_gather", whole), at, &buffers)?;
            }
        }
        for range in io.layout.trainable() {
            let gates = [range.start, range.end].map(|at| at / GATES);
            let at = At {
                gates,
                ..At::default()
            };
            let kernel = ("gate_gradients", groups(gates[1] - gates[0]));
            self.run(recording, io, kernel, at, &[softmax, sums, io.grads])?;
        }
        match d_x {
            Some(d_x) => {
                let buffers = [d_state(0), d_x];
                self.run(recording, io, ("state_out", whole), At::default(), &buffers)
            }
            None => Ok(()),
        }
    }

    /// Of the softmax that forward left.
    fn penalty(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        _: Option<&Sparsity>,
        losses: &Part,
    ) -> Result<()> {
        if self.price == 0.0 {
            return Ok(());
        }
        let softmax = &io.saved[SOFTMAX];
        let all = At {
            gates: [0, self.gates],
            ..At::default()
        };
        self.run(recording, io, ("gate_prices", 1), all, &[softmax, losses])?;
        for range in io.layout.trainable() {
            let gates = [range.start, range.end].map(|at| at / GATES);
            let at = At {
                gates,
                ..At::default()
            };
            let kernel = ("gate_price_gradients", groups(gates[1] - gates[0]));
            self.run(recording, io, kernel, at, &[softmax, io.grads])?;
        }
        Ok(())
    }
}

impl Recorded for LogicCa {
    type Given = LogicBatch<f32>;

    fn given(input: &LogicBatch<f32>) -> &LogicBatch<f32> {
        input
    }

    fn check_given(&self, batch: &LogicBatch<f32>) -> Result<()> {
        batch.check_lengths(self)
    }

    fn input_of<'a>(&self, batch: &'a LogicBatch<f32>) -> Input<'a, f32> {
        Input {
            values: &batch.state,
            samples: batch.batch * batch.height * batch.width,
            batch: None,
            grids: Some(Grids {
                size: [batch.height, batch.width],
                fire: batch.fire.as_deref(),
            }),
        }
    }

    fn layers_of(&self) -> Layers<'_> {
        let places = self.on_device.get_or_make(|| {
            let mut tensors: [_; crate::layer::TENSORS] = std::array::from_fn(|_| 0..0);
            tensors[0] = 0..self.layout().len();
            Place {
                layer: Box::new(Automaton::of(self)),
                kind: "logic_ca",
                with: None,
                reads: RowsOf::Samples,
                rows: RowsOf::Samples,
                shape: vec![self.spec().channels],
                tensors,
            }
        });
        Layers {
            places,
            layout: self.layout(),
            id: 0,
        }
    }

    fn sparsity(&self) -> Option<&Sparsity> {
        None
    }

    fn built_anew(&self) -> Result<Self> {
        Ok(self.clone())
    }
}
