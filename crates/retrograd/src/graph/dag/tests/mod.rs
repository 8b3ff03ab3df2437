mod wrong;

use super::*;
use crate::verify::{self, Options, Subject};
use crate::{Loss, Target};
use wrong::{Mutant, Wrong, reborrow};

#[test]
fn cycles_and_edges_into_inputs_are_refused() {
    let spec = DagSpec::new(1, 2, 1, "tanh");
    let message = |s: &[u32], t: &[u32]| DagNN::new(&spec, s, t).err().unwrap().to_string();
    assert!(message(&[0, 1, 2, 2], &[1, 2, 1, 3]).contains("cycle"));
    assert!(message(&[1], &[0]).contains("input"));
    assert!(message(&[0], &[4]).contains("target 4"));
    let spec = DagSpec::new(1, 2, 1, "softmax");
    assert!(DagNN::new(&spec, &[], &[]).is_err());
}

#[test]
fn the_derivative_of_the_activation_is_in_the_gradient() {
    // One chain x → h → y: y = w₂·tanh(w₁·x), so dy/dw₁ = w₂·(1 − tanh²)·x.
    let dag = DagNN::new(&DagSpec::new(1, 1, 1, "tanh"), &[0, 1], &[1, 2]).unwrap();
    let (w1, w2, x) = (0.8_f64, -1.5, 0.9);
    let params = vec![w1, w2, 0.0, 0.0];
    let mut tape = DagTape::default();
    let input = vec![x];
    let pass = Pass::inference();
    dag.compute_forward(&params, &input, &pass, &mut tape);
    let mut d = vec![0.0; 4];
    let mut d_x = vec![0.0];
    let grads = Grads::both(&mut d, &mut d_x);
    dag.compute_backward(&params, &input, &pass, &mut tape, &[1.0], grads);
    let slope = 1.0 - (w1 * x).tanh().powi(2);
    for (ours, exact) in [
        (d[0], w2 * slope * x),
        (d[1], (w1 * x).tanh()),
        (d[2], w2 * slope),
        (d_x[0], w2 * slope * w1),
    ] {
        assert!((ours - exact).abs() < 1e-15, "{ours} {exact}");
    }
}

#[test]
fn nodes_have_activations_of_their_own() {
    let mut dag = DagNN::new(&DagSpec::new(1, 1, 1, "relu"), &[0, 1], &[1, 2]).unwrap();
    dag.set_activation(1, Activation::Tanh).unwrap();
    assert!(dag.set_activation(2, Activation::Tanh).is_err());
    let mut tape = DagTape::default();
    let params = [1.0, 1.0, 0.0, 0.0];
    dag.compute_forward(&params, &vec![-2.0], &Pass::inference(), &mut tape);
    assert_eq!(dag.output(&tape), [(-2.0_f64).tanh()]);
}

/// What is wrong with the backward pass.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// The activation's derivative is left out.
    NoDerivative,
    /// The derivative of another activation.
    OtherDerivative,
    /// Edges over more than one level pass nothing back.
    SkipEdges,
    /// Levels in the order of forward: only the edges into outputs pass anything back.
    ForwardOrder,
    /// Every edge passes back by the weight of the next.
    ShiftedWeights,
    /// Inputs pass on as if they had the hidden nodes' activation.
    IntoInputs,
    /// Divided by the in-degree, which the sum of forward is not.
    MeanInsteadOfSum,
}

struct Faulty {
    inner: DagNN,
    /// The same with other activations.
    other: DagNN,
    fault: Fault,
}

impl Faulty {
    fn new(fault: Fault, activation: &str, sources: &[u32], targets: &[u32]) -> Self {
        let spec = DagSpec::new(3, 6, 2, activation);
        let inner = DagNN::new(&spec, sources, targets).unwrap();
        let mut other = DagNN::new(&spec, sources, targets).unwrap();
        let wrong = match fault {
            Fault::NoDerivative => Activation::Identity,
            Fault::OtherDerivative => Activation::Sigmoid,
            _ => activation_named(activation).unwrap(),
        };
        for node in 3..9 {
            other.set_activation(node, wrong).unwrap();
        }
        Faulty {
            inner,
            other,
            fault,
        }
    }

    /// The weights that the wrong backward pass works with.
    fn weights<T: Scalar>(&self, params: &[T]) -> Vec<T> {
        let dag = &self.inner;
        let level = |place: usize| dag.bounds.partition_point(|&first| first <= place);
        let rows = &dag.pattern.by_row;
        let mut wrong = params.to_vec();
        for t in 0..rows.len() {
            let is_output = dag.node[t] >= 9;
            for p in rows.range(t) {
                let (e, s) = (dag.edge[p] as usize, rows.neighbour[p] as usize);
                match self.fault {
                    Fault::SkipEdges if level(t) > level(s) + 1 => wrong[e] = T::ZERO,
                    Fault::ForwardOrder if !is_output => wrong[e] = T::ZERO,
                    Fault::ShiftedWeights => wrong[e] = params[(e + 1) % dag.edges()],
                    Fault::MeanInsteadOfSum => wrong[e] /= T::from_usize(rows.degree(t)),
                    _ => {}
                }
            }
        }
        wrong
    }
}

impl Wrong for Faulty {
    type Right = DagNN;

    fn right(&self) -> &DagNN {
        &self.inner
    }
    fn right_mut(&mut self) -> &mut DagNN {
        &mut self.inner
    }
    fn compute_backward<T: Scalar>(
        &self,
        params: &[T],
        x: &Vec<T>,
        pass: &Pass,
        tape: &mut DagTape<T>,
        d_output: &[T],
        mut grads: Grads<'_, T>,
    ) {
        let params = self.weights(params);
        let own = reborrow(&mut grads);
        self.other
            .compute_backward(&params, x, pass, tape, d_output, own);
        if self.fault == Fault::IntoInputs
            && let Some(d) = grads.input
        {
            for (d, &x) in d.iter_mut().zip(x) {
                *d *= Activation::Tanh.slope(x, x.tanh());
            }
        }
    }
}

#[test]
fn every_mutant_of_the_backward_pass_is_caught_and_the_right_one_is_not() {
    // Inputs 0 to 2, hidden 3 to 8, outputs 9 and 10; 0 → 9 and 3 → 10 skip levels.
    let sources = [0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 8, 0, 3, 5, 2];
    let targets = [3, 3, 4, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 8];
    for (fault, activation) in [
        (Fault::None, "tanh"),
        (Fault::None, "elu"),
        (Fault::NoDerivative, "tanh"),
        (Fault::NoDerivative, "silu"),
        (Fault::OtherDerivative, "tanh"),
        (Fault::SkipEdges, "tanh"),
        (Fault::ForwardOrder, "tanh"),
        (Fault::ShiftedWeights, "tanh"),
        (Fault::IntoInputs, "tanh"),
        (Fault::MeanInsteadOfSum, "tanh"),
    ] {
        let model = Mutant(Faulty::new(fault, activation, &sources, &targets));
        let mut stream = Key::new(3).purpose("dag mutants").stream();
        let mut numbers =
            |n: usize| -> Vec<f32> { (0..n).map(|_| stream.normal() as f32).collect() };
        let (x, target) = (numbers(4 * 3), Target::values(numbers(4 * 2)));
        let params = numbers(sources.len() + 8);
        let subject = Subject::new("dag", &model, &params, &x, &target, Loss::Mse).unwrap();
        let report = verify::check_on(&subject, &mut verify::Cpu, &Options::default()).unwrap();
        assert_eq!(
            report.passed(),
            fault == Fault::None,
            "{fault:?}\n{}",
            report.table()
        );
        let seen = report
            .rows
            .iter()
            .any(|r| r.link == verify::Link::Differences && r.verdict == verify::Verdict::Fail);
        assert_eq!(seen, fault != Fault::None, "{fault:?}\n{}", report.table());
    }
}

fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut stream = Key::new(seed).purpose("dag tests").stream();
    (0..count).map(|_| stream.normal() as f32).collect()
}

#[test]
fn blocks_of_every_width_and_batches_of_many_parts_pass_the_chain() {
    // Outputs 8 and 9; node 2 has no in-edges, 9 passes on to 8, activations differ along a level.
    let sources = [0, 1, 0, 2, 3, 4, 1, 5, 9, 6, 7, 3];
    let targets = [3, 3, 4, 4, 5, 6, 7, 9, 8, 8, 9, 8];
    let mut dag = DagNN::new(&DagSpec::new(2, 6, 2, "tanh"), &sources, &targets).unwrap();
    dag.set_activation(4, Activation::Silu).unwrap();
    dag.set_activation(6, Activation::Gelu).unwrap();
    let params = numbers(1, 12 + 8);
    for batch in [1, 9, 16, 17, 31, 32, 33, 600] {
        let target = Target::values(numbers(2, batch * 2));
        let x = numbers(3, batch * 2);
        let subject = Subject::new("dag", &dag, &params, &x, &target, Loss::Mse).unwrap();
        let report = verify::check_on(&subject, &mut verify::Cpu, &Options::default()).unwrap();
        assert!(report.passed(), "batch {batch}\n{}", report.table());
    }
}

/// Levels of `width` nodes, each with six in-edges from the three levels before it.
fn layered(levels: usize, width: usize) -> DagNN {
    let mut stream = Key::new(7).purpose("layered dag").stream();
    let (mut sources, mut targets) = (Vec::new(), Vec::new());
    for v in width..(levels + 1) * width {
        let before = v / width * width;
        let mut chosen = std::collections::BTreeSet::new();
        while chosen.len() < 6 {
            chosen.insert(before - 1 - stream.below(before.min(3 * width)));
        }
        sources.extend(chosen.iter().map(|&s| s as u32));
        targets.extend(std::iter::repeat_n(v as u32, 6));
    }
    let spec = DagSpec::new(width, (levels - 1) * width, width, "tanh");
    DagNN::new(&spec, &sources, &targets).unwrap()
}

/// The bits of the output and of all gradients.
fn bits(dag: &DagNN, batch: usize, threads: usize) -> Vec<u32> {
    let params = dag.init(1);
    let x = numbers(4, batch * dag.spec.inputs);
    let d_output = numbers(5, batch * dag.spec.outputs);
    let (mut d, mut d_x) = (vec![0.0; params.len()], vec![0.0; x.len()]);
    let mut tape = DagTape::default();
    let pass = Pass::inference();
    crate::parallel::with_threads(threads, || {
        // Often enough for helpers to be there.
        for _ in 0..4 {
            dag.compute_forward(&params, &x, &pass, &mut tape);
            let grads = Grads::both(&mut d, &mut d_x);
            dag.compute_backward(&params, &x, &pass, &mut tape, &d_output, grads);
        }
    });
    let all = [dag.output(&tape), &d, &d_x];
    all.concat().iter().map(|x| x.to_bits()).collect()
}

#[test]
fn parts_of_the_batch_and_nodes_of_a_level_give_the_same_bits_on_any_number_of_threads() {
    let (narrow, wide) = (layered(30, 12), layered(3, 1500));
    // Three parts: enough for two threads, and for seven only where levels can't be shared.
    for (dag, batch, on_two, on_seven) in [
        (&narrow, 80, true, true),
        (&wide, 80, true, false),
        (&wide, 20, false, false),
    ] {
        assert_eq!(dag.by_parts(batch, 2), on_two, "batch {batch}");
        assert_eq!(dag.by_parts(batch, 7), on_seven, "batch {batch}");
        let one = bits(dag, batch, 1);
        for threads in [2, 7] {
            assert!(one == bits(dag, batch, threads), "{threads} threads");
        }
    }
}

#[test]
fn what_is_frozen_has_no_gradient_and_changes_no_other() {
    let mut dag = layered(4, 8);
    let (params, x) = (dag.init(1), numbers(4, 40 * 8));
    let d_output = numbers(5, 40 * 8);
    let gradient = |dag: &DagNN| {
        let mut d = vec![1.0; params.len()];
        let (pass, mut tape) = (Pass::inference(), DagTape::default());
        dag.compute_forward(&params, &x, &pass, &mut tape);
        dag.compute_backward(
            &params,
            &x,
            &pass,
            &mut tape,
            &d_output,
            Grads::params(&mut d),
        );
        d
    };
    let all = gradient(&dag);
    dag.layout_mut().freeze("edge_weight").unwrap();
    let frozen = gradient(&dag);
    let (weights, biases) = frozen.split_at(dag.edges());
    assert!(weights.iter().all(|&d| d == 0.0));
    assert!(biases == &all[dag.edges()..] && biases.iter().any(|&d| d != 0.0));
}
