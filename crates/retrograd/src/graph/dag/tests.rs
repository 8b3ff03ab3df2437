use super::*;
use crate::graph::wrong::{Mutant, Wrong, reborrow};
use crate::verify::{self, Options, Subject};
use crate::{Loss, Target};

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
    dag.forward(&params, &input, &pass, &mut tape);
    let mut d = vec![0.0; 4];
    let mut d_x = vec![0.0];
    let grads = Grads::both(&mut d, &mut d_x);
    dag.backward(&params, &input, &pass, &mut tape, &[1.0], grads);
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
    dag.forward(&params, &vec![-2.0], &Pass::inference(), &mut tape);
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
        let edges = dag.source.len();
        let level =
            |place: u32| (0..dag.levels()).find(|&l| dag.places(l).contains(&(place as usize)));
        let mut wrong = params.to_vec();
        for e in 0..edges {
            let (s, t) = (dag.source[e], dag.target[e]);
            let is_output = dag.node[t as usize] >= 9;
            match self.fault {
                Fault::SkipEdges if level(t) > level(s).map(|l| l + 1) => wrong[e] = T::ZERO,
                Fault::ForwardOrder if !is_output => wrong[e] = T::ZERO,
                Fault::ShiftedWeights => wrong[e] = params[(e + 1) % edges],
                Fault::MeanInsteadOfSum => {
                    wrong[e] /= T::from_usize(dag.pattern.by_row.degree(t as usize));
                }
                _ => {}
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
    fn backward<T: Scalar>(
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
        self.other.backward(&params, x, pass, tape, d_output, own);
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
