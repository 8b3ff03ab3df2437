//! The convolutions recorded for the GPU: sums over neighbours and linear maps, in the order that the
//! CPU's fast kernels take; the kernels of gcn's weighted edges are in normalise.wgsl.

use super::{Convolution, EPS, Propagation};
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Lengths, Record, groups};
use crate::gpu::recording::{Part, Recording};
use crate::gpu::topology::{PatternAt, Topic};
use crate::layer::graph::gpu::{Also, Sum, Weigh, X, record_dots, record_eps, record_gate};

pub(crate) static NORMALISE: Kernel = Kernel::new(
    "layer/graph_conv/normalise.wgsl",
    include_str!("normalise.wgsl"),
);

/// Saved: what stands between, its gradient, the hidden rows and theirs, sums for ε, and of weighted
/// edges s, P's entries and their gradient.
const BETWEEN: usize = 0;
const D_BETWEEN: usize = 1;
const HIDDEN: usize = 2;
const D_HIDDEN: usize = 3;
const SUMS: usize = 4;
const SCALE: usize = 5;
const ENTRIES: usize = 6;
const D_ENTRIES: usize = 7;

/// Neither a bias nor a ReLU after a propagation.
const NOTHING: (Option<usize>, bool) = (None, false);

impl Convolution {
    fn pattern<'a>(&self, io: &'a Io<'_>) -> &'a PatternAt {
        match self.propagation {
            Propagation::Normalised | Propagation::MeanWithSelf => &io.on_graph().at.looped,
            _ => &io.on_graph().at.edges,
        }
    }

    /// W before P, as the CPU's fast kernels choose.
    fn maps_first(&self, sparse: bool) -> bool {
        sparse || self.linear.outputs <= self.linear.inputs
    }

    /// The width of what P is applied to.
    fn width(&self, sparse: bool) -> usize {
        match self.maps_first(sparse) {
            true => self.linear.outputs,
            false => self.linear.inputs,
        }
    }

    fn is_weighted(io: &Io<'_>) -> bool {
        io.on_graph().has_edge_weights
    }

    fn normalise(&self, recording: &mut Recording, io: &Io<'_>, entry: &'static str) -> Result<()> {
        let at = self.pattern(io);
        let sizes = [
            ("rows", io.samples),
            ("start", at.rows[0]),
            ("neighbour", at.rows[1]),
            ("edge", at.edge),
            ("column_start", at.columns[0]),
            ("column_neighbour", at.columns[1]),
            ("slot", at.columns[2]),
        ];
        let graph = io.on_graph();
        let mut buffers = vec![&graph.words, &graph.edge_weights, &io.saved[SCALE]];
        match entry {
            "gcn_entries" => buffers.push(&io.saved[ENTRIES]),
            "gcn_backward_weights" => {
                buffers.extend([&io.saved[D_ENTRIES], &graph.d_edge_weights]);
            }
            _ => {}
        }
        let kernel = (&NORMALISE, entry);
        io.run(recording, kernel, &[], &sizes, &buffers, groups(io.samples))
    }

    /// P·v + bias, or Pᵀ·v.
    fn spread(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        transposed: bool,
        (v, width): (&Part, usize),
        (bias, relu): (Option<usize>, bool),
        y: &Part,
    ) -> Result<()> {
        let entries = match Self::is_weighted(io) {
            true => &io.saved[ENTRIES],
            false => &io.on_graph().normalisation,
        };
        let (weigh, mean) = match (self.propagation, transposed) {
            (Propagation::Normalised, false) => (Weigh::Slot(entries), false),
            (Propagation::Normalised, true) => (Weigh::Gather(entries), false),
            (Propagation::Sum, _) => (Weigh::One, false),
            (_, false) => (Weigh::One, true),
            (_, true) => (Weigh::Degree, false),
        };
        let sum = Sum {
            eps: (self.propagation == Propagation::Sum).then_some(EPS),
            mean,
            bias,
            relu,
            ..Sum::new(self.pattern(io), transposed, io.samples, weigh)
        };
        sum.record(recording, io, (v, 0), width, y)
    }

    /// The gradients of what P is made of, given v and d_(Pv).
    fn record_propagation(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        (v, d_pv): (&Part, &Part),
        width: usize,
    ) -> Result<()> {
        match self.propagation {
            Propagation::Sum if io.trained[EPS] => {
                let sums = &io.saved[SUMS];
                record_eps(recording, io, (io.samples, width), (v, d_pv), sums, EPS)
            }
            Propagation::Normalised if io.wants_edges && Self::is_weighted(io) => {
                let rows = (self.pattern(io), io.samples);
                let to = (&io.saved[D_ENTRIES], false);
                record_dots(recording, io, rows, (d_pv, width), (v, 0), to)?;
                self.normalise(recording, io, "gcn_backward_weights")
            }
            _ => Ok(()),
        }
    }
}

impl Record for Convolution {
    fn looks_at(&self) -> &'static [Topic] {
        match self.propagation {
            Propagation::Normalised => &[Topic::Looped, Topic::Normalisation],
            Propagation::MeanWithSelf => &[Topic::Looped],
            _ => &[Topic::Edges],
        }
    }

    fn saved(&self, io: &Lengths<'_>) -> Vec<usize> {
        let width = self.width(io.sparse);
        let between = io.reals(io.samples * width);
        let hidden = match self.second {
            Some(_) => io.reals(io.samples * self.linear.outputs),
            None => 0,
        };
        let (scale, entries) = match self.propagation {
            Propagation::Normalised => (io.samples, io.reals(io.extent.looped)),
            _ => (0, 0),
        };
        vec![
            between, between, hidden, hidden, width, scale, entries, entries,
        ]
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        let (n, first, x) = (io.samples, &self.linear, X::of(io));
        if self.propagation == Propagation::Normalised && Self::is_weighted(io) {
            self.normalise(recording, io, "gcn_scale")?;
            self.normalise(recording, io, "gcn_entries")?;
        }
        let out = match &self.second {
            Some(_) => &io.saved[HIDDEN],
            None => io.y,
        };
        let between = &io.saved[BETWEEN];
        // A ReLU of the hidden rows comes with what is added last.
        let relu = self.second.is_some();
        if self.maps_first(io.sparse) {
            first.record_forward(recording, io, n, x, between, Also::default())?;
            let v = (between, first.outputs);
            self.spread(recording, io, false, v, (first.bias, relu), out)?;
        } else {
            self.spread(
                recording,
                io,
                false,
                (x.dense(), first.inputs),
                NOTHING,
                between,
            )?;
            let also = Also {
                bias: true,
                relu,
                ..Also::default()
            };
            first.record_forward(recording, io, n, X::Dense(between), out, also)?;
        }
        if let Some(root) = &self.root {
            let also = Also {
                add: true,
                ..Also::default()
            };
            root.record_forward(recording, io, n, x, out, also)?;
        }
        if let Some(second) = &self.second {
            let also = Also {
                bias: true,
                ..Also::default()
            };
            second.record_forward(recording, io, n, X::Dense(out), io.y, also)?;
        }
        Ok(())
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        let (n, first, x) = (io.samples, &self.linear, X::of(io));
        let mut d_y = d_y;
        if let Some(second) = &self.second {
            let (h, d_h) = (&io.saved[HIDDEN], &io.saved[D_HIDDEN]);
            second.record_params(recording, io, n, X::Dense(h), d_y, true)?;
            second.record_input(recording, io, n, X::Dense(h), d_y, (d_h, false))?;
            record_gate(recording, io, n * first.outputs, h, d_h)?;
            d_y = d_h;
        }
        let (between, d_between) = (&io.saved[BETWEEN], &io.saved[D_BETWEEN]);
        let edges =
            self.propagation == Propagation::Normalised && io.wants_edges && Self::is_weighted(io);
        if self.maps_first(io.sparse) {
            self.spread(
                recording,
                io,
                true,
                (d_y, first.outputs),
                NOTHING,
                d_between,
            )?;
            first.record_params(recording, io, n, x, d_between, false)?;
            first.record_bias(recording, io, n, d_y)?;
            self.record_propagation(recording, io, (between, d_y), first.outputs)?;
            if let Some(d_x) = d_x {
                first.record_input(recording, io, n, x, d_between, (d_x, false))?;
            }
        } else {
            first.record_params(recording, io, n, X::Dense(between), d_y, true)?;
            let wants_eps = self.propagation == Propagation::Sum && io.trained[EPS];
            if d_x.is_some() || wants_eps || edges {
                let to = (d_between, false);
                first.record_input(recording, io, n, X::Dense(between), d_y, to)?;
                self.record_propagation(recording, io, (x.dense(), d_between), first.inputs)?;
                if let Some(d_x) = d_x {
                    self.spread(recording, io, true, (d_between, first.inputs), NOTHING, d_x)?;
                }
            }
        }
        if let Some(root) = &self.root {
            root.record_params(recording, io, n, x, d_y, false)?;
            if let Some(d_x) = d_x {
                root.record_input(recording, io, n, x, d_y, (d_x, true))?;
            }
        }
        Ok(())
    }
}
