//! What a layer is to a recording: the GPU's side of `layer`.

use std::ops::Range;

use super::device::Gpu;
use super::extent::Extent;
use super::kernels::{ELEMENTWISE, Kernel};
use super::precision::real_words;
use super::recording::{Part, Recording};
use super::topology::{Topic, Topology};
use crate::layer::TENSORS;
use crate::network::Sparsity;
use crate::{Layout, Result};

/// Everything that a layer's kernels are bound to.
pub(crate) struct Io<'a> {
    pub gpu: &'a Gpu,
    /// `N.kind`, for labels.
    pub name: &'a str,
    /// Samples, or rows, of x.
    pub samples: usize,
    pub extent: &'a Extent,
    /// The graphs, in a graph network.
    pub graph: Option<&'a Topology>,
    /// Whether x are the non-zeros of sparse rows.
    pub sparse: bool,
    /// Which cells of an automaton fire, where not all do.
    pub fire: Option<&'a Part>,
    /// Elements of x and of y in the whole batch.
    pub x_len: usize,
    pub y_len: usize,
    /// The flat vectors and where the layer's tensors are in them: the weights as products take
    /// them, 16-bit in mixed precision; always f32; and their gradient, f32.
    pub params: &'a Part,
    pub master: &'a Part,
    pub grads: &'a Part,
    pub layout: &'a Layout,
    pub ranges: &'a [Range<usize>; TENSORS],
    /// Which of them are trained.
    pub trained: [bool; TENSORS],
    /// Whether the gradients of edges' weights and features are wanted, too.
    pub wants_edges: bool,
    pub x: &'a Part,
    /// The second value that a skip reads; x itself elsewhere.
    pub other: &'a Part,
    pub y: &'a Part,
    /// Backward of a skip: the gradient of the second value where it is wanted, and whether d_x and
    /// it are added to.
    pub d_other: Option<&'a Part>,
    pub adds: [bool; 2],
    /// Buffers of [`Record::saved`].
    pub saved: &'a [Part],
    /// The layer's [`Record::fixed`] numbers.
    pub fixed: &'a Part,
    /// The words of this step's random keys, and where this layer's start.
    pub keys: &'a Part,
    pub key_at: usize,
    pub training: bool,
}

impl Io<'_> {
    /// Adds a kernel of this layer; see [`Recording::dispatch`].
    pub fn run(
        &self,
        recording: &mut Recording,
        (kernel, entry): (&Kernel, &'static str),
        constants: &[(&'static str, f64)],
        sizes: &[(&'static str, usize)],
        buffers: &[&Part],
        groups: usize,
    ) -> Result<()> {
        let label = format!("{} {entry}", self.name);
        let target = (kernel, entry);
        recording.dispatch(self.gpu, &label, target, constants, sizes, buffers, groups)
    }

    /// Copies or adds rows: a buffer with the length of a row, the stride of rows and the place of
    /// the first, on either side.
    pub fn copy_rows(
        &self,
        recording: &mut Recording,
        rows: usize,
        (from, [len, from_stride, from_at]): (&Part, [usize; 3]),
        (to, [_, to_stride, to_at]): (&Part, [usize; 3]),
        adds: bool,
    ) -> Result<()> {
        let sizes = [
            ("rows", rows),
            ("row_len", len),
            ("from_stride", from_stride),
            ("from_start", from_at),
            ("to_stride", to_stride),
            ("to_start", to_at),
            ("adds", adds.into()),
        ];
        let kernel = (&ELEMENTWISE, "copy_rows");
        self.run(
            recording,
            kernel,
            &[],
            &sizes,
            &[from, to],
            groups(rows * len),
        )
    }

    /// Writes zeros.
    pub fn zero(&self, recording: &mut Recording, len: usize, to: &Part) -> Result<()> {
        let kernel = (&ELEMENTWISE, "zero");
        self.run(
            recording,
            kernel,
            &[],
            &[("elements", len)],
            &[to],
            groups(len),
        )
    }

    /// The graphs that a layer of a graph network looks at.
    pub fn on_graph(&self) -> &Topology {
        self.graph
            .expect("a layer of a graph network is built in one")
    }

    /// The start of a tensor in the flat vector.
    pub fn at(&self, slot: usize) -> usize {
        self.ranges[slot].start
    }
}

/// Workgroups of 64 for that many invocations.
pub(crate) fn groups(invocations: usize) -> usize {
    invocations.div_ceil(64)
}

/// 1 or 0, as a kernel's constant.
pub(crate) fn flag(yes: bool) -> f64 {
    f64::from(u8::from(yes))
}

/// A layer that can be recorded.
pub(crate) trait Record {
    /// The lengths of what forward leaves for backward, in 32-bit words.
    fn saved(&self, io: &Lengths<'_>) -> Vec<usize> {
        let _ = io;
        Vec::new()
    }

    /// What it looks at in a graph.
    fn looks_at(&self) -> &'static [Topic] {
        &[]
    }

    /// Numbers that are neither parameters nor of the batch: knots, statistics.
    fn fixed(&self) -> Vec<f32> {
        Vec::new()
    }

    /// y from x.
    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()>;

    /// The gradients of what is trained (overwritten), and d_x where it is wanted.
    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()>;

    /// Adds the layer's share of a penalty, the network's `sparsity` or one of its own, to the gradient of
    /// what is trained, and its value to the first of the `losses`.
    fn penalty(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        sparsity: Option<&Sparsity>,
        losses: &Part,
    ) -> Result<()> {
        let _ = (recording, io, sparsity, losses);
        Ok(())
    }

    /// Lets running statistics, which are in [`Record::fixed`], follow a training step.
    fn absorb(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        let _ = (recording, io);
        Ok(())
    }
}

/// The lengths that decide what is saved.
pub(crate) struct Lengths<'a> {
    /// Samples, or rows, of x.
    pub samples: usize,
    pub extent: &'a Extent,
    /// Whether x are the non-zeros of sparse rows.
    pub sparse: bool,
    pub x_len: usize,
    pub y_len: usize,
    /// Activations have 16 bits.
    pub half: bool,
}

impl Lengths<'_> {
    /// The words of that many activations.
    pub fn reals(&self, len: usize) -> usize {
        real_words(self.half, len)
    }
}
