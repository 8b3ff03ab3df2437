//! What the graph layers share on a device: sums over neighbours and linear maps; the kernels are in
//! gather.wgsl and sums.wgsl, maps are products of matrices.

use crate::Result;
use crate::gpu::kernels::{ELEMENTWISE, Kernel};
use crate::gpu::layer::{Io, flag, groups};
use crate::gpu::recording::{Part, Recording};
use crate::gpu::topology::PatternAt;
use crate::graph::ops::Linear;
pub(crate) use crate::layer::dense::map::Also;
use crate::layer::dense::map::{Map, Trained};

pub(crate) static GATHER: Kernel =
    Kernel::new("layer/graph/gather.wgsl", include_str!("gather.wgsl"));
pub(crate) static SUMS: Kernel = Kernel::new("layer/graph/sums.wgsl", include_str!("sums.wgsl"));

/// The coefficient of every slot, as in `ops::aggregate`.
#[derive(Clone, Copy)]
pub(crate) enum Weigh<'a> {
    One,
    Slot(&'a Part),
    /// By the slot of the other side.
    Gather(&'a Part),
    /// 1/degree of the neighbour, counted on the other side.
    Degree,
}

/// A sum over the neighbours of every row: over the rows of a pattern, or transposed over its columns.
#[derive(Clone, Copy)]
pub(crate) struct Sum<'a> {
    pub pattern: &'a PatternAt,
    pub transposed: bool,
    pub rows: usize,
    pub weigh: Weigh<'a>,
    pub heads: usize,
    /// The slot of ε, where the row itself takes part times 1 + ε.
    pub eps: Option<usize>,
    /// Divided by the number of neighbours.
    pub mean: bool,
    /// The slot of the bias.
    pub bias: Option<usize>,
    /// Negative results set to 0.
    pub relu: bool,
    pub add: bool,
}

impl<'a> Sum<'a> {
    pub fn new(pattern: &'a PatternAt, transposed: bool, rows: usize, weigh: Weigh<'a>) -> Self {
        Sum {
            pattern,
            transposed,
            rows,
            weigh,
            heads: 1,
            eps: None,
            mean: false,
            bias: None,
            relu: false,
            add: false,
        }
    }

    fn constants(&self) -> [(&'static str, f64); 7] {
        let coefficient = match self.weigh {
            Weigh::One => 0.0,
            Weigh::Slot(_) => 1.0,
            Weigh::Gather(_) => 2.0,
            Weigh::Degree => 3.0,
        };
        [
            ("COEFFICIENT", coefficient),
            ("HEADS", self.heads as f64),
            ("OWN", flag(self.eps.is_some())),
            ("MEAN", flag(self.mean)),
            ("BIAS", flag(self.bias.is_some())),
            ("RELU", flag(self.relu)),
            ("ADD", flag(self.add)),
        ]
    }

    fn sizes(&self, io: &Io<'_>, width: usize) -> Vec<(&'static str, usize)> {
        let pattern = self.pattern;
        let [start, neighbour] = match self.transposed {
            true => [pattern.columns[0], pattern.columns[1]],
            false => pattern.rows,
        };
        vec![
            ("rows", self.rows),
            ("width", width),
            ("start", start),
            ("neighbour", neighbour),
            ("slot", pattern.columns[2]),
            ("degrees", pattern.rows[0]),
            ("bias", self.bias.map_or(0, |slot| io.at(slot))),
            ("eps", self.eps.map_or(0, |slot| io.at(slot))),
        ]
    }

    fn coefficients<'p>(&self, io: &'p Io<'_>) -> &'p Part
    where
        'a: 'p,
    {
        match self.weigh {
            Weigh::Slot(part) | Weigh::Gather(part) => part,
            _ => &io.on_graph().words,
        }
    }

    /// The sums of x's rows, which begin at a place in `x`, into y.
    pub fn record(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        (x, first): (&Part, usize),
        width: usize,
        y: &Part,
    ) -> Result<()> {
        let mut sizes = self.sizes(io, width);
        sizes.push(("x", first));
        let graph = &io.on_graph().words;
        let buffers = [graph, x, self.coefficients(io), io.params, io.master, y];
        let invocations = self.rows * width.div_ceil(4);
        let kernel = (&GATHER, "gather");
        io.run(
            recording,
            kernel,
            &self.constants(),
            &sizes,
            &buffers,
            groups(invocations),
        )
    }

    /// The same into the gradient of a tensor.
    pub fn record_weight(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        x: &Part,
        width: usize,
        tensor: usize,
    ) -> Result<()> {
        let mut sizes = self.sizes(io, width);
        sizes.push(("out", io.at(tensor)));
        let graph = &io.on_graph().words;
        let buffers = [
            graph,
            x,
            self.coefficients(io),
            io.params,
            io.master,
            io.grads,
        ];
        let invocations = self.rows * width.div_ceil(4);
        let kernel = (&GATHER, "gather_weight");
        io.run(
            recording,
            kernel,
            &self.constants(),
            &sizes,
            &buffers,
            groups(invocations),
        )
    }
}

/// For every slot of a pattern's rows the product of d_y's row and the neighbour's row of x.
pub(crate) fn record_dots(
    recording: &mut Recording,
    io: &Io<'_>,
    (pattern, rows): (&PatternAt, usize),
    (d_y, width): (&Part, usize),
    (x, first): (&Part, usize),
    (d_slot, add): (&Part, bool),
) -> Result<()> {
    let sizes = [
        ("rows", rows),
        ("width", width),
        ("start", pattern.rows[0]),
        ("neighbour", pattern.rows[1]),
        ("x", first),
    ];
    let buffers = [&io.on_graph().words, x, d_y, d_slot];
    let kernel = (&GATHER, "gather_dot");
    io.run(
        recording,
        kernel,
        &[("ADD", flag(add))],
        &sizes,
        &buffers,
        groups(rows),
    )
}

/// Sums over all rows of a, or of the products with b (whose numbers belong to equal shares of a's
/// columns), into a part.
pub(crate) fn record_sums(
    recording: &mut Recording,
    io: &Io<'_>,
    rows: usize,
    (a, width): (&Part, usize),
    b: Option<(&Part, usize)>,
    (to, at): (&Part, usize),
) -> Result<()> {
    let sizes = [
        ("rows", rows),
        ("width", width),
        ("b_width", b.map_or(1, |(_, width)| width)),
        ("out", at),
    ];
    let buffers = [a, b.map_or(a, |(b, _)| b), to];
    let constants = [("PRODUCT", flag(b.is_some()))];
    io.run(
        recording,
        (&SUMS, "column_sums"),
        &constants,
        &sizes,
        &buffers,
        width,
    )
}

/// The gradient of ε: Σ v·d_v over all numbers of two equal parts.
pub(crate) fn record_eps(
    recording: &mut Recording,
    io: &Io<'_>,
    (rows, width): (usize, usize),
    (v, d_v): (&Part, &Part),
    sums: &Part,
    tensor: usize,
) -> Result<()> {
    record_sums(
        recording,
        io,
        rows,
        (v, width),
        Some((d_v, width)),
        (sums, 0),
    )?;
    let sizes = [("rows", width), ("out", io.at(tensor))];
    io.run(
        recording,
        (&SUMS, "sum_all"),
        &[],
        &sizes,
        &[sums, io.grads],
        1,
    )
}

/// d = 0 where the ReLU that gave h was closed.
pub(crate) fn record_gate(
    recording: &mut Recording,
    io: &Io<'_>,
    len: usize,
    h: &Part,
    d: &Part,
) -> Result<()> {
    let kernel = (&ELEMENTWISE, "gate");
    io.run(
        recording,
        kernel,
        &[],
        &[("elements", len)],
        &[h, d],
        groups(len),
    )
}

/// What a map reads: dense rows, or the non-zeros of the batch's sparse features.
#[derive(Clone, Copy)]
pub(crate) enum X<'a> {
    Dense(&'a Part),
    Sparse(&'a Part),
}

impl<'a> X<'a> {
    /// What the layer reads.
    pub fn of(io: &Io<'a>) -> Self {
        match io.sparse {
            true => X::Sparse(io.x),
            false => X::Dense(io.x),
        }
    }

    /// Dense rows.
    pub fn dense(self) -> &'a Part {
        match self {
            X::Dense(x) | X::Sparse(x) => x,
        }
    }
}

impl Linear {
    fn map(&self, io: &Io<'_>) -> Map {
        Map {
            inputs: self.inputs,
            outputs: self.outputs,
            by_input: true,
            weight: io.at(self.weight),
            bias: self.bias.map_or(0, |slot| io.at(slot)),
        }
    }

    /// y = x·W, with the bias where asked.
    pub fn record_forward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        rows: usize,
        x: X<'_>,
        y: &Part,
        also: Also,
    ) -> Result<()> {
        let bias = self.bias.filter(|_| also.bias);
        match x {
            X::Sparse(values) => {
                let pattern = &io.on_graph().at.features;
                let sum = Sum {
                    bias,
                    add: also.add,
                    ..Sum::new(pattern, false, rows, Weigh::Slot(values))
                };
                sum.record(
                    recording,
                    io,
                    (io.params, io.at(self.weight)),
                    self.outputs,
                    y,
                )
            }
            X::Dense(x) => {
                let also = Also {
                    bias: bias.is_some(),
                    ..also
                };
                (self.map(io)).record_forward(recording, io, rows, (x, y), also)
            }
        }
    }

    /// The gradients of W and, where asked, of b, of what is trained.
    pub fn record_params(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        rows: usize,
        x: X<'_>,
        d_y: &Part,
        with_bias: bool,
    ) -> Result<()> {
        let weight = io.trained[self.weight];
        let bias = with_bias && self.bias.is_some_and(|slot| io.trained[slot]);
        match x {
            X::Sparse(values) => {
                if weight {
                    let pattern = &io.on_graph().at.features;
                    let sum = Sum::new(pattern, true, self.inputs, Weigh::Gather(values));
                    sum.record_weight(recording, io, d_y, self.outputs, self.weight)?;
                }
                match bias {
                    true => self.record_bias(recording, io, rows, d_y),
                    false => Ok(()),
                }
            }
            X::Dense(x) => {
                let trained = Trained { weight, bias };
                (self.map(io)).record_params(recording, io, rows, (x, d_y), trained, None)
            }
        }
    }

    /// The gradient of b alone, from the gradient of wherever it was added.
    pub fn record_bias(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        rows: usize,
        d_y: &Part,
    ) -> Result<()> {
        match self.bias.filter(|&slot| io.trained[slot]) {
            Some(slot) => {
                let to = (io.grads, io.at(slot));
                record_sums(recording, io, rows, (d_y, self.outputs), None, to)
            }
            None => Ok(()),
        }
    }

    /// d_x = d_y·Wᵀ, or added to it; for sparse x one number per non-zero.
    pub fn record_input(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        rows: usize,
        x: X<'_>,
        d_y: &Part,
        (d_x, add): (&Part, bool),
    ) -> Result<()> {
        if let X::Sparse(_) = x {
            let features = (&io.on_graph().at.features, rows);
            let weight = (io.params, io.at(self.weight));
            return record_dots(
                recording,
                io,
                features,
                (d_y, self.outputs),
                weight,
                (d_x, add),
            );
        }
        (self.map(io)).record_input(recording, io, rows, (d_y, d_x), add)
    }
}
