//! Products of matrices on the device, C = A·B; the kernels are in product.wgsl.
//!
//! A workgroup owns a tile of C. Tall tiles read B less often, wide ones A, large ones both; small ones are more
//! workgroups, and compute less beyond the edges. What each reads and writes follows from the shape:
//! A once for every block of columns, B once for every block of rows. The plan takes one of them by that
//! ([`super::form::best`]).

use super::form::{Cost, Numbers, best, row_pieces};
use super::kernels::Kernel;
use super::layer::{Io, flag, groups};
use super::recording::{Part, Recording};
use crate::Result;
use crate::cuts::cuts;

pub(crate) static PRODUCT: Kernel = Kernel::new("gpu/product.wgsl", include_str!("product.wgsl"));

/// The sides of a tile that has as many rows as columns, of 64 invocations and of 256.
const TILE: usize = 64;
const WIDE_TILE: usize = 128;
/// Products of a result that are in workgroup memory at a time, and in a run.
const SLICE: usize = 16;
const RUN: usize = 64;
/// Products of a result that one dispatch makes: each takes up to two and a quarter iterations of loops, of which
/// Mesa's software Vulkan makes 65,535.
const LONGEST: usize = 16_384;
cuts!(TILE, WIDE_TILE, SLICE, RUN, LONGEST);

/// Numbers of workgroup memory that both slices fit into.
const ROOM: usize = 4096;
/// Results of an invocation, down and across.
const OWN: usize = 8;

/// A tile's invocations, down and across: 64, or 256.
const TILES: [[usize; 2]; 8] = [
    [TILE / OWN, TILE / OWN],
    [16, 4],
    [4, 16],
    [32, 2],
    [2, 32],
    [WIDE_TILE / OWN, WIDE_TILE / OWN],
    [32, 8],
    [8, 32],
];

/// What a product is, but for where its matrices lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub rows: usize,
    pub columns: usize,
    pub inner: usize,
    /// A bias is added to every row.
    pub bias: bool,
    /// B's columns are summed, too.
    pub sums: bool,
    /// Results are added to what is there.
    pub add: bool,
    /// They are gradients of weights.
    pub weights: bool,
    /// Products may be cut into pieces, whose results have a place each.
    pub cuts: bool,
}

/// How it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiling {
    lanes: [usize; 2],
    /// Products of a piece, and pieces.
    piece: usize,
    pieces: usize,
}

impl Tiling {
    /// Pieces of the products.
    pub fn pieces(self) -> usize {
        self.pieces
    }

    fn slice(self) -> usize {
        let [down, across] = self.lanes;
        match OWN * (down + across) * SLICE <= ROOM {
            true => SLICE,
            false => SLICE / 2,
        }
    }
}

impl Shape {
    fn products(&self) -> usize {
        self.inner + usize::from(self.bias)
    }

    /// Blocks of rows and of columns.
    fn blocks(&self, tiling: Tiling) -> [usize; 2] {
        let [down, across] = tiling.lanes;
        [
            self.rows.div_ceil(OWN * down).max(1),
            self.columns.div_ceil(OWN * across),
        ]
    }

    fn workgroups(&self, tiling: Tiling) -> usize {
        self.blocks(tiling).iter().product::<usize>() * tiling.pieces
    }

    /// What it reads and writes.
    pub fn numbers(&self, tiling: Tiling) -> Numbers {
        let blocks = self.blocks(tiling);
        let mut numbers = self.counted(blocks);
        if tiling.pieces > 1 {
            // Every piece's are written, read and added.
            numbers.floats *= 2 * tiling.pieces as u64 + 1;
        }
        numbers
    }

    fn counted(&self, [down, across]: [usize; 2]) -> Numbers {
        let results = self.rows * self.columns;
        let sums = usize::from(self.sums) * self.columns;
        let mut reals = across * self.rows * self.inner + down * self.columns * self.products();
        let mut floats = 0;
        match self.weights {
            true => floats = results + sums,
            false => reals += results * (1 + usize::from(self.add)),
        }
        Numbers {
            reals: reals as u64,
            floats: floats as u64,
        }
    }

    /// The tiling that the plan takes.
    pub fn tiling(&self, half: bool) -> Tiling {
        let least = self.counted([1, 1]).bytes(half);
        let whole = [self.products(), 1];
        let mut cuts = vec![whole];
        if self.cuts {
            let (piece, pieces) = row_pieces(self.inner);
            cuts.push([piece, pieces]);
        }
        let all = TILES.into_iter().flat_map(|lanes| {
            let of = move |[piece, pieces]: [usize; 2]| Tiling {
                lanes,
                piece,
                pieces,
            };
            cuts.clone().into_iter().map(of)
        });
        let costs = all.map(|tiling| {
            let workgroups = self.workgroups(tiling);
            let lanes: usize = tiling.lanes.iter().product();
            let cost = Cost {
                bytes: self.numbers(tiling).bytes(half),
                computed: workgroups / tiling.pieces * lanes,
                workgroups,
            };
            (tiling, cost)
        });
        best(least, costs).unwrap_or(Tiling {
            lanes: TILES[0],
            piece: whole[0],
            pieces: 1,
        })
    }
}

/// Where a matrix lies: its first number, and how far it is from one row to the next and from one column.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub part: &'a Part,
    pub at: usize,
    pub row: usize,
    pub column: usize,
}

impl<'a> Matrix<'a> {
    /// Rows of a length one after the other.
    pub fn rows(part: &'a Part, len: usize) -> Self {
        Matrix {
            part,
            at: 0,
            row: len,
            column: 1,
        }
    }

    /// From a row and a column on.
    fn starting_at(self, row: usize, column: usize) -> Self {
        Matrix {
            at: self.at + row * self.row + column * self.column,
            ..self
        }
    }

    /// Rows and columns exchanged.
    pub fn transposed(self) -> Self {
        Matrix {
            row: self.column,
            column: self.row,
            ..self
        }
    }
}

/// A product, ready to be recorded.
pub(crate) struct Product<'a> {
    /// What it is called beside the layer's name.
    pub name: &'static str,
    pub shape: Shape,
    pub a: Matrix<'a>,
    pub b: Matrix<'a>,
    pub c: Matrix<'a>,
    /// Where the bias begins in B's part, and the sums in C's.
    pub bias: usize,
    pub sums: usize,
    /// Negative results are set to 0.
    pub relu: bool,
}

impl Product<'_> {
    /// Records it; pieces' results are `step` numbers apart.
    pub fn record(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        tiling: Tiling,
        step: usize,
    ) -> Result<()> {
        let Shape { inner, .. } = self.shape;
        if self.shape.weights || inner <= LONGEST {
            return self.record_part(recording, io, tiling, step);
        }
        // One part after the other, each added to those before.
        for first in (0..inner).step_by(LONGEST) {
            let end = inner.min(first + LONGEST);
            let is_last = end == inner;
            let shape = Shape {
                inner: end - first,
                bias: self.shape.bias && is_last,
                add: self.shape.add || first > 0,
                ..self.shape
            };
            let part = Product {
                shape,
                a: self.a.starting_at(0, first),
                b: self.b.starting_at(first, 0),
                relu: self.relu && is_last,
                ..*self
            };
            let piece = shape.products();
            part.record_part(recording, io, Tiling { piece, ..tiling }, step)?;
        }
        Ok(())
    }

    fn record_part(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        tiling: Tiling,
        step: usize,
    ) -> Result<()> {
        let Product { shape, a, b, c, .. } = self;
        let [down, across] = tiling.lanes;
        // A product, its share of what brings a slice, and of the loops around them.
        let [a_loops, b_loops] = tiling.lanes.map(|n| 2 * n * tiling.slice());
        let brought = a_loops.div_ceil(down * across) + b_loops.div_ceil(down * across);
        let loops = tiling.piece.div_ceil(tiling.slice()) * (tiling.slice() + brought + 1);
        let label = format!("{} {}", io.name, self.name);
        io.gpu.allow_loops(&label, loops + tiling.piece / RUN)?;
        let constants = [
            ("LANE_ROWS", down as f64),
            ("LANE_COLUMNS", across as f64),
            ("SLICE", tiling.slice() as f64),
            ("A_BY_ROW", flag(a.column == 1)),
            ("B_BY_ROW", flag(b.column == 1)),
            ("BIAS", flag(shape.bias)),
            ("SUMS", flag(shape.sums)),
            ("ADD", flag(shape.add)),
            ("RELU", flag(self.relu)),
        ];
        let sizes = [
            ("rows", shape.rows),
            ("columns", shape.columns),
            ("inner", shape.inner),
            ("piece", tiling.piece),
            ("piece_step", step),
            ("a", a.at),
            ("a_row", a.row),
            ("a_column", a.column),
            ("b", b.at),
            ("b_row", b.row),
            ("b_column", b.column),
            ("c", c.at),
            ("c_row", c.row),
            ("c_column", c.column),
            ("bias", self.bias),
            ("sums", self.sums),
        ];
        let entry = match (shape.weights, down * across > 64) {
            (false, false) => "product",
            (false, true) => "product_wide",
            (true, false) => "product_weights",
            (true, true) => "product_weights_wide",
        };
        recording.dispatch(
            io.gpu,
            &label,
            (&PRODUCT, entry),
            &constants,
            &sizes,
            &[a.part, b.part, c.part],
            shape.workgroups(tiling),
        )
    }
}

/// Numbers of a piece's results: whether they are wanted, where they begin there and in the flat vector, and how
/// many there are.
pub(crate) type Span = (bool, usize, usize, usize);

/// Sums of the pieces' results, which are `step` numbers apart, in their order, into the gradient. Spans that lie
/// one behind the other on both sides are one.
pub(crate) fn add_pieces(
    recording: &mut Recording,
    io: &Io<'_>,
    (part, pieces, step): (&Part, usize, usize),
    spans: &[Span],
) -> Result<()> {
    let mut joined: Vec<[usize; 3]> = Vec::new();
    for &(is_wanted, first, at, len) in spans {
        match joined.last_mut() {
            _ if !is_wanted => {}
            Some([f, a, n]) if *f + *n == first && *a + *n == at => *n += len,
            _ => joined.push([first, at, len]),
        }
    }
    for [first, at, len] in joined {
        let sizes = [
            ("inner", len),
            ("piece", pieces),
            ("piece_step", step),
            ("a", first),
            ("c", at),
        ];
        let kernel = (&PRODUCT, "product_add_pieces");
        io.run(
            recording,
            kernel,
            &[],
            &sizes,
            &[part, io.grads],
            groups(len),
        )?;
    }
    Ok(())
}
