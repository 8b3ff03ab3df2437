//! Plain loops, generic over the scalar: the oracle. A node's samples lie side by side, the whole
//! batch in one block.

use super::{DagNN, DagTape};
use crate::{Grads, Scalar};

pub(super) fn forward<T: Scalar>(dag: &DagNN, params: &[T], x: &[T], tape: &mut DagTape<T>) {
    let (inputs, outputs) = (dag.spec.inputs, dag.spec.outputs);
    let batch = x.len() / inputs;
    let (weight, bias) = params.split_at(dag.edges());
    let rows = &dag.pattern.by_row;
    for v in 0..dag.spec.nodes() {
        for b in 0..batch {
            let at = v * batch + b;
            if v < inputs {
                tape.a[at] = x[b * inputs + v];
                continue;
            }
            let mut sum = bias[dag.bias_of(v)];
            for p in rows.range(v) {
                let source = rows.neighbour[p] as usize;
                sum += weight[dag.edge[p] as usize] * tape.a[source * batch + b];
            }
            tape.u[at] = sum;
            tape.a[at] = dag.activation[v].value(sum);
        }
    }
    for &(place, o) in &dag.outputs {
        for b in 0..batch {
            tape.output[b * outputs + o as usize] = tape.a[place as usize * batch + b];
        }
    }
}

pub(super) fn backward<T: Scalar>(
    dag: &DagNN,
    params: &[T],
    batch: usize,
    tape: &mut DagTape<T>,
    d_output: &[T],
    grads: Grads<'_, T>,
) {
    let (inputs, outputs) = (dag.spec.inputs, dag.spec.outputs);
    let (rows, columns) = (&dag.pattern.by_row, &dag.pattern.by_column);
    let d_u = &mut tape.d_u;
    d_u.fill(T::ZERO);
    for &(place, o) in &dag.outputs {
        for b in 0..batch {
            d_u[place as usize * batch + b] = d_output[b * outputs + o as usize];
        }
    }
    for v in (0..dag.spec.nodes()).rev() {
        for b in 0..batch {
            let at = v * batch + b;
            let mut d_a = d_u[at];
            for q in columns.range(v) {
                let target = columns.neighbour[q] as usize;
                d_a += params[dag.column_edge[q] as usize] * d_u[target * batch + b];
            }
            d_u[at] = if v < inputs {
                d_a
            } else {
                d_a * dag.activation[v].slope(tape.u[at], tape.a[at])
            };
        }
    }
    if let Some(d_params) = grads.params {
        if !grads.accumulate {
            d_params.fill(T::ZERO);
        }
        let (d_weight, d_bias) = d_params.split_at_mut(dag.edges());
        let row = |v: usize| v * batch..(v + 1) * batch;
        let [weights, biases] = dag.trained();
        for v in inputs..dag.spec.nodes() {
            let d_u = &d_u[row(v)];
            if weights {
                for p in rows.range(v) {
                    let a = &tape.a[row(rows.neighbour[p] as usize)];
                    let products = d_u.iter().zip(a).map(|(&d, &a)| d * a);
                    d_weight[dag.edge[p] as usize] += products.sum();
                }
            }
            if biases {
                d_bias[dag.bias_of(v)] += d_u.iter().copied().sum();
            }
        }
    }
    if let Some(d_x) = grads.input {
        for i in 0..inputs {
            for b in 0..batch {
                d_x[b * inputs + i] = d_u[i * batch + b];
            }
        }
    }
}
