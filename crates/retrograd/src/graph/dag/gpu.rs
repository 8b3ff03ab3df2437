//! The network recorded for the GPU: one layer, a few dispatches for every level. The kernels are in
//! dag.wgsl and, of activations, in the layers' own file.

use super::DagNN;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Lengths, Record, groups};
use crate::gpu::recording::{Part, Recording};
use crate::gpu::{OnDevice, Recorded};
use crate::layer::activation::Activation;
use crate::layer::{Backward, Describe, Forward, Layer};
use crate::network::Sparsity;
use crate::plan::{Input, Layers, Place, RowsOf};
use crate::{Model, Result, Scalar};

pub(crate) static DAG: Kernel = Kernel::new("graph/dag/dag.wgsl", include_str!("dag.wgsl"));

/// Slots of the tensors.
const WEIGHT: usize = 0;
const BIAS: usize = 1;

/// No output.
const NONE: u32 = u32::MAX;

/// Runs of places of one level and one activation, and where everything is in the words.
struct Dag {
    inputs: usize,
    outputs: usize,
    nodes: usize,
    edges: usize,
    runs: Vec<(usize, usize, Activation)>,
    words: Vec<u32>,
    rows: [usize; 3],
    columns: [usize; 3],
    own: usize,
    output: usize,
    ends: [usize; 2],
    /// Neighbours of every place, by rows and by columns.
    degrees: [Vec<usize>; 2],
}

/// Samples that lie side by side in a workgroup of sums.
const SIDE: usize = 64;
crate::cuts::cuts!(SIDE);

/// A kernel, how many workgroups it has, and how many neighbours at most a place has that it is for.
type Kind = (&'static str, usize, usize);

impl Dag {
    fn of(dag: &DagNN) -> Self {
        let mut words = Vec::new();
        let mut put = |values: &[u32]| {
            let at = words.len();
            words.extend_from_slice(values);
            at
        };
        let (rows, columns) = (&dag.pattern.by_row, &dag.pattern.by_column);
        let nodes = dag.spec.nodes();
        let inputs = dag.spec.inputs;
        let own: Vec<u32> = (0..nodes)
            .map(|place| match place < inputs {
                true => 0,
                false => dag.bias_of(place) as u32,
            })
            .collect();
        let mut output = vec![NONE; nodes];
        for &(place, o) in &dag.outputs {
            output[place as usize] = o;
        }
        let mut sources = vec![0; dag.edges()];
        for place in 0..nodes {
            for p in rows.range(place) {
                sources[dag.edge[p] as usize] = rows.neighbour[p];
            }
        }
        let mut runs = Vec::new();
        for level in dag.bounds.windows(2) {
            let mut first = level[0].max(inputs);
            for &(end, activation) in &dag.runs {
                let end = end.min(level[1]);
                if end > first {
                    runs.push((first, end - first, activation));
                    first = end;
                }
            }
        }
        let at = |put: &mut dyn FnMut(&[u32]) -> usize, parts: [&[u32]; 3]| parts.map(put);
        Dag {
            inputs,
            outputs: dag.spec.outputs,
            nodes,
            edges: dag.edges(),
            runs,
            rows: at(&mut put, [&rows.start, &rows.neighbour, &dag.edge]),
            columns: at(
                &mut put,
                [&columns.start, &columns.neighbour, &dag.column_edge],
            ),
            own: put(&own),
            output: put(&output),
            ends: [put(&sources), put(&dag.target)],
            degrees: [rows, columns].map(|side| (0..nodes).map(|v| side.range(v).len()).collect()),
            words,
        }
    }

    fn run(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        (entry, workgroups, longest): Kind,
        [first, count]: [usize; 2],
        side: [usize; 3],
        buffers: &[&Part],
    ) -> Result<()> {
        let sizes = [
            ("samples", io.samples),
            ("first", first),
            ("count", count),
            ("inputs", self.inputs),
            ("outputs", self.outputs),
            ("weight", io.at(WEIGHT)),
            ("bias", io.at(BIAS)),
            ("start", side[0]),
            ("neighbour", side[1]),
            ("edge", side[2]),
            ("own", self.own),
            ("output", self.output),
            ("sources", self.ends[0]),
            ("targets", self.ends[1]),
            ("longest", longest),
        ];
        let side = match longest {
            0 => Vec::new(),
            _ => vec![("SIDE", side_by_side(io.samples) as f64)],
        };
        io.run(recording, (&DAG, entry), &side, &sizes, buffers, workgroups)
    }

    /// A kernel of sums over the neighbours of some places, by rows or by columns.
    fn sums(
        &self,
        entry: &'static str,
        [first, count]: [usize; 2],
        by: usize,
        samples: usize,
    ) -> Kind {
        let side = side_by_side(samples);
        let longest = self.degrees[by][first..first + count].iter().max();
        // Its constants are set where there is at least one.
        let longest = longest.map_or(1, |&most| most.max(1));
        (
            entry,
            count.div_ceil(64 / side) * samples.div_ceil(side),
            longest,
        )
    }
}

/// As many samples as there are, rounded up to a power of two.
fn side_by_side(samples: usize) -> usize {
    samples.next_power_of_two().min(SIDE)
}

impl Describe for Dag {
    fn record(&self) -> Option<&dyn Record> {
        Some(self)
    }
}

/// On the CPU the model itself computes it ([`DagNN`]'s own forward and backward).
impl<T: Scalar> Layer<T> for Dag {
    fn forward(&self, _: Forward<'_, T>) {
        unreachable!("recorded for a device alone");
    }

    fn backward(&self, _: Backward<'_, T>) {
        unreachable!("recorded for a device alone");
    }
}

/// Saved, by place and sample: u, a, d_a and d_u.
const U: usize = 0;
const A: usize = 1;
const D_A: usize = 2;
const D_U: usize = 3;

impl Record for Dag {
    /// The graph, as the bits of numbers.
    fn fixed(&self) -> Vec<f32> {
        self.words
            .iter()
            .map(|&word| f32::from_bits(word))
            .collect()
    }

    fn saved(&self, io: &Lengths<'_>) -> Vec<usize> {
        vec![io.reals(io.samples * self.nodes); 4]
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        let samples = io.samples;
        let [u, a] = [U, A].map(|i| &io.saved[i]);
        let inputs = ("dag_inputs", groups(self.inputs * samples), 0);
        self.run(recording, io, inputs, [0, 0], self.rows, &[io.x, a])?;
        for &(first, count, activation) in &self.runs {
            let sum = self.sums("dag_sum", [first, count], 0, samples);
            let buffers = [io.fixed, io.params, a, u];
            self.run(recording, io, sum, [first, count], self.rows, &buffers)?;
            let span = [first * samples, count * samples];
            activation.record_span(recording, io, span, [u, a])?;
        }
        let places = [self.inputs, self.nodes - self.inputs];
        let outputs = ("dag_outputs", groups(places[1] * samples), 0);
        self.run(
            recording,
            io,
            outputs,
            places,
            self.rows,
            &[io.fixed, a, io.y],
        )
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        let samples = io.samples;
        let [u, a, d_a, d_u] = [U, A, D_A, D_U].map(|i| &io.saved[i]);
        let back = |recording: &mut Recording, span: [usize; 2]| {
            let kernel = self.sums("dag_back", span, 1, samples);
            let buffers = [io.fixed, io.params, d_y, d_u, d_a];
            self.run(recording, io, kernel, span, self.columns, &buffers)
        };
        for &(first, count, activation) in self.runs.iter().rev() {
            back(recording, [first, count])?;
            let span = [first * samples, count * samples];
            activation.record_span_back(recording, io, span, [u, a, d_a, d_u])?;
        }
        if io.trained[WEIGHT] {
            let kernel = ("dag_weights", groups(self.edges), 0);
            let buffers = [io.fixed, a, d_u, io.grads];
            self.run(recording, io, kernel, [0, self.edges], self.rows, &buffers)?;
        }
        let places = [self.inputs, self.nodes - self.inputs];
        if io.trained[BIAS] {
            let buffers = [io.fixed, d_u, io.grads];
            self.run(
                recording,
                io,
                ("dag_biases", groups(places[1]), 0),
                places,
                self.rows,
                &buffers,
            )?;
        }
        match d_x {
            Some(d_x) => {
                back(recording, [0, self.inputs])?;
                let kernel = ("dag_d_inputs", groups(self.inputs * samples), 0);
                self.run(recording, io, kernel, [0, 0], self.rows, &[d_a, d_x])
            }
            None => Ok(()),
        }
    }
}

impl Recorded for DagNN {
    type Given = [f32];

    fn given(input: &Vec<f32>) -> &[f32] {
        input
    }

    fn check_given(&self, batch: &[f32]) -> Result<()> {
        self.check_values(batch)
    }

    fn input_of<'a>(&self, batch: &'a [f32]) -> Input<'a, f32> {
        Input {
            values: batch,
            samples: batch.len() / self.spec.inputs,
            batch: None,
            grids: None,
        }
    }

    fn layers_of(&self) -> Layers<'_> {
        let places = self.on_device.get_or_make(|| {
            let mut tensors: [_; crate::layer::TENSORS] = std::array::from_fn(|_| 0..0);
            for (range, tensor) in tensors.iter_mut().zip(self.layout.tensors()) {
                *range = tensor.range();
            }
            Place {
                layer: Box::new(Dag::of(self)),
                kind: "dag",
                with: None,
                reads: RowsOf::Samples,
                rows: RowsOf::Samples,
                shape: vec![self.spec.outputs],
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

impl DagNN {
    pub(super) fn not_on_device(&mut self) {
        self.on_device = OnDevice::default();
    }
}
