//! A linear map on the device, y = x·W + b, as products of matrices: of dense layers, and within graph layers.

use crate::Result;
use crate::gpu::form::Numbers;
use crate::gpu::layer::Io;
use crate::gpu::product::{Matrix, Product, Shape, add_pieces};
use crate::gpu::recording::{Part, Recording};

/// Its shape, and where its tensors begin in the flat vector.
#[derive(Clone, Copy)]
pub(crate) struct Map {
    pub inputs: usize,
    pub outputs: usize,
    /// W is stored as [in][out], else as [out][in].
    pub by_input: bool,
    pub weight: usize,
    pub bias: usize,
}

/// What forward does beside multiplying.
#[derive(Clone, Copy, Default)]
pub(crate) struct Also {
    pub bias: bool,
    /// The product is added to what is there.
    pub add: bool,
    /// Negative results are set to 0.
    pub relu: bool,
}

/// Which gradients of parameters are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trained {
    pub weight: bool,
    pub bias: bool,
}

impl Map {
    /// W, inputs by outputs, where it begins at a place.
    fn weights<'a>(&self, part: &'a Part, at: usize) -> Matrix<'a> {
        let [row, column] = match self.by_input {
            true => [self.outputs, 1],
            false => [1, self.inputs],
        };
        Matrix {
            part,
            at,
            row,
            column,
        }
    }

    fn forward_shape(&self, rows: usize, also: Also) -> Shape {
        Shape {
            rows,
            columns: self.outputs,
            inner: self.inputs,
            bias: also.bias,
            add: also.add,
            ..Shape::default()
        }
    }

    /// d_W = xᵀ·d_y, and the sums of d_y's columns.
    fn params_shape(&self, rows: usize, trained: Trained, cuts: bool) -> Shape {
        Shape {
            rows: if trained.weight { self.inputs } else { 0 },
            columns: self.outputs,
            inner: rows,
            sums: trained.bias,
            weights: true,
            cuts,
            ..Shape::default()
        }
    }

    fn input_shape(&self, rows: usize, add: bool) -> Shape {
        Shape {
            rows,
            columns: self.inputs,
            inner: self.outputs,
            add,
            ..Shape::default()
        }
    }

    /// What the gradients' kernels read and write.
    pub fn backward_numbers(
        &self,
        rows: usize,
        trained: Trained,
        input: bool,
        half: bool,
    ) -> Numbers {
        let mut numbers = Numbers::default();
        if trained.weight || trained.bias {
            let shape = self.params_shape(rows, trained, true);
            numbers += shape.numbers(shape.tiling(half));
        }
        if input {
            let shape = self.input_shape(rows, false);
            numbers += shape.numbers(shape.tiling(half));
        }
        numbers
    }

    /// y of rows of x.
    pub fn record_forward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        rows: usize,
        (x, y): (&Part, &Part),
        also: Also,
    ) -> Result<()> {
        let shape = self.forward_shape(rows, also);
        let product = Product {
            name: "forward",
            shape,
            a: Matrix::rows(x, self.inputs),
            b: self.weights(io.params, self.weight),
            c: Matrix::rows(y, self.outputs),
            bias: self.bias,
            sums: 0,
            relu: also.relu,
        };
        product.record(recording, io, shape.tiling(recording.is_half()), 0)
    }

    /// The gradients of W and of the bias. With many rows pieces of them have sums of their own, where a
    /// part is given for those.
    pub fn record_params(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        rows: usize,
        (x, d_y): (&Part, &Part),
        trained: Trained,
        partial_sums: Option<&Part>,
    ) -> Result<()> {
        if !(trained.weight || trained.bias) {
            return Ok(());
        }
        let shape = self.params_shape(rows, trained, partial_sums.is_some());
        let tiling = shape.tiling(recording.is_half());
        let weights = self.inputs * self.outputs;
        let step = weights + usize::from(trained.bias) * self.outputs;
        let partial_sums = partial_sums.filter(|_| tiling.pieces() > 1);
        let (to, weight, sums) = match partial_sums {
            Some(part) => (part, 0, weights),
            None => (io.grads, self.weight, self.bias),
        };
        let product = Product {
            name: "backward_weight",
            shape,
            a: Matrix::rows(x, self.inputs).transposed(),
            b: Matrix::rows(d_y, self.outputs),
            c: self.weights(to, weight),
            bias: 0,
            sums,
            relu: false,
        };
        product.record(recording, io, tiling, step)?;
        match partial_sums {
            Some(part) => self.add_pieces(recording, io, (part, tiling.pieces(), step), trained),
            None => Ok(()),
        }
    }

    /// Adds pieces' gradients: those of the weights, and those of the bias behind them.
    pub fn add_pieces(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        pieces: (&Part, usize, usize),
        trained: Trained,
    ) -> Result<()> {
        let weights = self.inputs * self.outputs;
        let spans = [
            (trained.weight, 0, self.weight, weights),
            (trained.bias, weights, self.bias, self.outputs),
        ];
        add_pieces(recording, io, pieces, &spans)
    }

    /// d_x = d_y·Wᵀ.
    pub fn record_input(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        rows: usize,
        (d_y, d_x): (&Part, &Part),
        add: bool,
    ) -> Result<()> {
        let shape = self.input_shape(rows, add);
        let product = Product {
            name: "backward_input",
            shape,
            a: Matrix::rows(d_y, self.outputs),
            b: self.weights(io.params, self.weight).transposed(),
            c: Matrix::rows(d_x, self.inputs),
            bias: 0,
            sums: 0,
            relu: false,
        };
        product.record(recording, io, shape.tiling(recording.is_half()), 0)
    }
}
