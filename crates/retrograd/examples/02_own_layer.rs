//! A layer of your own, yᵢ = tanh(wᵢ·xᵢ), and the proof that its gradient is right.
//!
//! cargo run --release --example 02_own_layer

use retrograd::{Grads, Layout, Loss, Model, Pass, Scalar, Target, verify};

const WIDTH: usize = 3;
struct ScaledTanh(Layout);

#[rustfmt::skip]
impl Model for ScaledTanh {
    type Input<T: Scalar> = Vec<T>; // samples × WIDTH
    type Tape<T: Scalar> = Vec<T>;  // the output is all that backward needs

    fn layout(&self) -> &Layout { &self.0 }
    fn layout_mut(&mut self) -> &mut Layout { &mut self.0 }
    fn init(&self, _seed: u64) -> Vec<f32> { vec![0.5, 1.0, 1.5] }

    fn compute_forward<T: Scalar>(&self, w: &[T], x: &Vec<T>, _: &Pass, y: &mut Vec<T>) {
        y.clear();
        y.extend(x.iter().enumerate().map(|(k, &x)| (w[k % WIDTH] * x).tanh()));
    }
    fn output<'t, T: Scalar>(&self, y: &'t Vec<T>) -> &'t [T] { y }

    fn compute_backward<T: Scalar>(
        &self, w: &[T], x: &Vec<T>, _: &Pass, y: &mut Vec<T>, d_y: &[T], grads: Grads<'_, T>,
    ) {
        let Grads { params: mut d_w, input: mut d_x, accumulate } = grads;
        if let (Some(d_w), false) = (&mut d_w, accumulate) { d_w.fill(T::ZERO) }
        for (k, &d) in d_y.iter().enumerate() {
            let d_z = d * (T::ONE - y[k] * y[k]); // leave the factor out, and see what happens
            if let Some(d_w) = &mut d_w { d_w[k % WIDTH] += x[k] * d_z }
            if let Some(d_x) = &mut d_x { d_x[k] = w[k % WIDTH] * d_z }
        }
    }
    fn cast_input<T: Scalar, U: Scalar>(&self, x: &Vec<T>) -> Vec<U> {
        retrograd::scalar::cast(x)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut layout = Layout::new();
    layout.push("weight", &[WIDTH]);
    let model = ScaledTanh(layout);
    let x: Vec<f32> = (0..4 * WIDTH).map(|k| (k as f32 * 0.9).sin()).collect();
    let target = Target::values(vec![0.25; x.len()]);

    // Central differences, f32 against f64, threads, reused memory, five optimizers.
    let (p, options) = (model.init(0), Default::default());
    let report = verify::check("mine", &model, &p, &x, &target, Loss::Mse, &options)?;
    println!("{}{}", report.table(), report.summary());
    assert!(report.passed(), "the gradient is wrong");
    Ok(())
}
