//! The layer in ONNX: the recursion of Cox and de Boor in elementary operators, for all inputs and
//! intervals at once, then products of matrices.

use super::Kan;
use crate::network::{Base, Outside};
use crate::onnx::{Graph, Kind, Site, ToOnnx};

impl Kan {
    /// A number of every input and knot: (in, n), or (1, n) where all inputs share their knots.
    fn per_knot(&self, graph: &mut Graph, of: impl Fn(&[f64]) -> Vec<f64>) -> String {
        let inputs = if self.free_knots.is_some() {
            self.inputs
        } else {
            1
        };
        let rows: Vec<Vec<f64>> = (0..inputs).map(|i| of(&self.knots(i))).collect();
        let values: Vec<f32> = rows.iter().flatten().map(|&v| v as f32).collect();
        graph.f32s("knots", &[inputs, rows[0].len()], &values)
    }

    /// All basis functions at x (…, in, 1): (…, in, bases).
    fn basis(&self, graph: &mut Graph, x: &str) -> String {
        let intervals = self.knot_count() - 1;
        let from = self.per_knot(graph, |t| t[..intervals].to_vec());
        let to = self.per_knot(graph, |t| t[1..].to_vec());
        let above = graph.node("GreaterOrEqual", &[x, &from]);
        let below = graph.node("Less", &[x, &to]);
        let inside = graph.node("And", &[&above, &below]);
        let mut b = graph.cast(&inside, Kind::F32);
        for d in 1..=self.degree {
            let n = intervals - d;
            let start = self.per_knot(graph, |t| t[..n].to_vec());
            let end = self.per_knot(graph, |t| t[d + 1..][..n].to_vec());
            let rise = self.per_knot(graph, |t| (0..n).map(|m| t[m + d] - t[m]).collect());
            let fall = self.per_knot(graph, |t| (0..n).map(|m| t[m + d + 1] - t[m + 1]).collect());
            let up = graph.node("Sub", &[x, &start]);
            let up = graph.node("Div", &[&up, &rise]);
            let down = graph.node("Sub", &[&end, x]);
            let down = graph.node("Div", &[&down, &fall]);
            let first = graph.slice(&b, -1, 0, n);
            let second = graph.slice(&b, -1, 1, n + 1);
            let left = graph.node("Mul", &[&up, &first]);
            let right = graph.node("Mul", &[&down, &second]);
            b = graph.node("Add", &[&left, &right]);
        }
        b
    }
}

impl ToOnnx for Kan {
    fn write(&self, to: &mut Site<'_>) -> String {
        let [spline_weight, base_weight, ..] = to.params;
        let last = to.graph.i64s(&[-1]);
        let mut x = to.graph.node("Unsqueeze", &[to.x, &last]);
        if self.outside == Outside::Clamp {
            let (lo, hi) = (self.degree, self.degree + self.grid);
            let lo = self.per_knot(to.graph, |t| vec![t[lo]]);
            let hi = self.per_knot(to.graph, |t| vec![t[hi]]);
            let least = to.graph.node("Max", &[&x, &lo]);
            x = to.graph.node("Min", &[&least, &hi]);
        }
        let basis = self.basis(to.graph, &x);
        // The axes of inputs and bases in one, as the weights are stored.
        let wide = self.inputs * self.bases();
        let rows = to.shape[..to.shape.len() - 1].iter().map(|&n| n as i64);
        let shape: Vec<i64> = [-1].into_iter().chain(rows).chain([wide as i64]).collect();
        let basis = to.graph.reshape(&basis, &shape);
        let weight = to
            .graph
            .f32s("spline_weight", &[wide, self.outputs], spline_weight);
        let mut y = to.graph.node("MatMul", &[&basis, &weight]);
        if self.base != Base::None {
            let seen = to.graph.node("Squeeze", &[&x, &last]);
            let sigmoid = to.graph.node("Sigmoid", &[&seen]);
            let silu = to.graph.node("Mul", &[&seen, &sigmoid]);
            let shape = [self.inputs, self.outputs];
            let weight = to.graph.f32s("base_weight", &shape, base_weight);
            let base = to.graph.node("MatMul", &[&silu, &weight]);
            y = to.graph.node("Add", &[&y, &base]);
        }
        to.add_bias(y, 2)
    }
}
