//! Everything that makes training steps makes those of a few plain lines: forward, loss, backward,
//! penalty, mask, clipping, decay, optimizer. And batches that don't fit are errors.

use std::sync::Arc;

use super::*;
use crate::Kernels;
use crate::graph::{
    DagNN, DagSpec, Graph, GraphBatch, GraphNetwork, GraphSpec, GraphTransformNet, Head,
    TransformSpec, encode_text,
};
use crate::kan::{Edge, EdgeMask, KanConfig, KanNetwork, TrainOptions};
use crate::logic::{LogicBatch, LogicCa, LogicSpec, TrainingLoop};
use crate::network::{LayerSpec, Network, NetworkSpec, Sparsity};
use crate::optim::{Optimizer, OptimizerSpec, clip_elements, clip_global_norm};

fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut stream = Key::new(seed).purpose("plain").stream();
    (0..n).map(|_| stream.range(-1.0, 1.0) as f32).collect()
}

/// Loss and gradient, in the order of the mathematics.
fn gradient<M: Model>(
    model: &M,
    params: &[f32],
    (input, target): (&M::Input<f32>, &Target<f32>),
    loss: Loss,
    pass: &Pass,
) -> (f32, Vec<f32>) {
    let mut tape = Default::default();
    model.compute_forward(params, input, pass, &mut tape);
    let y = model.output(&tape).to_vec();
    let mut d_y = vec![0.0; y.len()];
    let value = loss.compute(&y, target, Some(&mut d_y));
    let mut d_params = vec![0.0; params.len()];
    let grads = Grads::params(&mut d_params);
    model.compute_backward(params, input, pass, &mut tape, &d_y, grads);
    (value, d_params)
}

#[test]
fn the_loop_steps_as_written_plainly() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let settings = "optimizer = { kind = \"adamw\", lr = 0.02 }\nclip_element = 0.5\nclip = 0.3\n\
         schedule = { kind = \"cosine\", warmup = 3 }\naccumulate = 3\n";
    let experiment = experiment(settings);
    Session::new(experiment.clone())
        .in_folder(&run)
        .fit(&mut Fake::new())
        .unwrap();
    let mut task = Fake::new();
    let mut params = task.model.init(0);
    let mut optimizer = Optimizer::new(experiment.train.optimizer, params.len());
    let key = Key::new(0).purpose("step");
    // Seven batches an epoch: updates on three, three and one.
    for update in 0..15 {
        let first = update / 3 * 7 + update % 3 * 3;
        let batches = if update % 3 == 2 { 1 } else { 3 };
        let mut sum = vec![0.0; params.len()];
        for step in first..first + batches {
            let mut example = None;
            task.batch(step, &mut example).unwrap();
            let Example { input, target } = example.unwrap();
            let pass = Pass::training(key.step(step));
            let mut tape = Vec::new();
            task.model
                .compute_forward(&params, &input, &pass, &mut tape);
            let mut d_y = vec![0.0; tape.len()];
            Loss::Mse.compute(&tape.clone(), &target, Some(&mut d_y));
            for d in &mut d_y {
                *d *= 1.0 / batches as f32;
            }
            let grads = Grads {
                params: Some(&mut sum),
                input: None,
                accumulate: step > first,
            };
            let model = &task.model;
            model.compute_backward(&params, &input, &pass, &mut tape, &d_y, grads);
        }
        clip_elements(&mut sum, 0.5);
        clip_global_norm(&mut sum, task.model.layout(), 0.3);
        let lr = 0.02 * experiment.train.schedule.factor(update, 15);
        optimizer.step(&mut params, &sum, task.model.layout(), lr);
    }
    let (found, _) = load_weights(&run.join("checkpoint.safetensors"), &mut task.model).unwrap();
    assert_eq!(found, params);
}

#[test]
fn a_kan_steps_as_written_plainly() {
    let mut config = KanConfig::new(&[3, 5, 2]);
    config.bias = true;
    config.sparsity = Some(Sparsity {
        l1: 0.01,
        entropy: 0.02,
    });
    let edges = [(0, 1, 2), (1, 4, 0)];
    let mask = EdgeMask::new(
        edges
            .map(|(layer, from, to)| Edge { layer, from, to })
            .to_vec(),
    );
    for (max_grad_norm, weight_decay) in [(None, 0.0), (Some(0.05), 0.0), (Some(0.05), 0.3)] {
        let options = TrainOptions {
            lr: 0.02,
            loss: Loss::Mse,
            max_grad_norm,
            weight_decay,
        };
        let mut kan = KanNetwork::new(&config, 4).unwrap();
        kan.set_mask(Some(mask.clone()));
        let network = Network::new(&config.spec().unwrap()).unwrap();
        let mut params = kan.params().to_vec();
        let mut optimizer = Optimizer::new(OptimizerSpec::adam(1e-3), params.len());
        for step in 0..5 {
            let x = numbers(3 * 8, step);
            let target = Target::values(numbers(2 * 8, 100 + step));
            let found = kan.train_step_with_options(&x, &target, &options).unwrap();
            let pass = Pass::training(Key::new(0));
            let (loss, mut d) = gradient(&network, &params, (&x, &target), Loss::Mse, &pass);
            network.penalty(&params, Some(&mut d));
            mask.apply(&network, &mut d);
            if let Some(norm) = max_grad_norm {
                clip_global_norm(&mut d, network.layout(), norm);
            }
            if weight_decay != 0.0 {
                for p in &mut params {
                    *p *= (1.0 - 0.02 * weight_decay) as f32;
                }
            }
            optimizer.step(&mut params, &d, network.layout(), 0.02);
            assert_eq!(found, f64::from(loss));
            assert_eq!(kan.params(), params, "step {step}");
            assert_eq!(kan.d_params_of_last_step(), d, "step {step}");
        }
    }
}

fn automaton() -> LogicCa {
    let spec: LogicSpec = toml::from_str(
        "family = \"logic_ca\"\nchannels = 2\nkernels = 3\nperception = [9, 8, 4, 2]\n\
         update = [14, 12, 9, 5, 3, 2]\nsteps = 3\n",
    )
    .unwrap();
    LogicCa::new(spec, 3).unwrap()
}

#[test]
fn an_automaton_steps_as_written_plainly() {
    let model = automaton();
    for kernels in [Kernels::Fast, Kernels::Reference] {
        let spec = OptimizerSpec::adamw(0.05);
        let mut params = model.init(0);
        let mut run = TrainingLoop::new(model.clone(), params.clone(), spec, kernels).unwrap();
        run.clip_element = Some(0.01);
        let mut optimizer = Optimizer::new(spec, params.len());
        for step in 0..4 {
            let state = numbers(2 * 5 * 6 * 2, step).into_iter().map(f32::abs);
            let input = LogicBatch::new(&model, state.collect(), [2, 5, 6], None).unwrap();
            let target = Target::values(numbers(2 * 5 * 6 * 2, 100 + step));
            let found = run.train_step(&input, &target).unwrap();
            let pass = Pass {
                kernels,
                ..Pass::inference()
            };
            let batch = (&input, &target);
            let (loss, mut d) = gradient(&model, &params, batch, Loss::SumSquares, &pass);
            clip_elements(&mut d, 0.01);
            optimizer.step(&mut params, &d, model.layout(), 0.05);
            assert_eq!(found, f64::from(loss));
            assert_eq!(run.params(), params, "step {step}");
            assert_eq!(run.gradient(), d, "step {step}");
        }
    }
}

#[test]
fn a_graph_transform_steps_as_written_plainly() {
    let spec = TransformSpec {
        vocabulary: 6,
        embedding: 8,
        widths: vec![8, 12],
        attention_heads: Some(2),
        head: Head::Nodes,
        out: 5,
    };
    for optimizer in [OptimizerSpec::adam(0.01), OptimizerSpec::sgd(0.1)] {
        let mut apart = GraphTransformNet::new(&spec, optimizer, 1).unwrap();
        let mut fused = GraphTransformNet::new(&spec, optimizer, 1).unwrap();
        let network = GraphNetwork::new(&spec.to_graph_spec()).unwrap();
        let mut params = apart.params().to_vec();
        let mut plain = Optimizer::new(optimizer, params.len());
        let batch = encode_text("abcabdeacbe", "abcde", &[2]).unwrap();
        let classes = (0..batch.graph().nodes() as u32).map(|i| i % 5);
        let target = Target::classes(classes.collect());
        let loss = Loss::CrossEntropy;
        for step in 0..5 {
            let pass = Pass::training(Key::new(0).step(step));
            let lr = 0.02 / (1.0 + step as f64);
            let (value, d) = gradient(&network, &params, (&batch, &target), loss, &pass);
            plain.step(&mut params, &d, network.layout(), lr);
            let found = fused.fused_step(&batch, &target, loss, &pass, lr).unwrap();
            assert_eq!(found, value);
            assert_eq!(fused.params(), params, "step {step}");
            assert_eq!(fused.grads(), d, "step {step}");
            apart.zero_grad();
            let y = apart.forward_batch(std::slice::from_ref(&batch), &pass);
            let y = y.unwrap();
            let mut d_y = vec![0.0; y.len()];
            loss.compute(&y, &target, Some(&mut d_y));
            apart.backward_batch(&d_y, &pass).unwrap();
            apart.step(lr).unwrap();
            assert_eq!(apart.params(), params, "step {step}");
        }
    }
}

/// A batch and a target that a stepper must refuse, with a part of the message. Nothing changes.
fn refused<M: Model>(model: &M, loss: Loss, input: M::Input<f32>, target: Target<f32>, part: &str) {
    let start = model.init(1);
    let mut stepper = Stepper::new(model, start.clone(), OptimizerSpec::sgd(0.1));
    let example = Example { input, target };
    let pass = Pass::inference();
    let mut messages = Vec::new();
    let error = stepper.gradient(model, loss, &example, &pass, 1.0, false);
    messages.push(error.unwrap_err().to_string());
    let error = stepper.step(model, loss, &example, &pass);
    messages.push(error.unwrap_err().to_string());
    let lesson = Lesson::new(loss, &example, &pass);
    match stepper.fused_step(model, &lesson, &Clip::default(), 0.1, &mut ()) {
        Err(StepError::Other(error)) => messages.push(error.to_string()),
        other => panic!("{other:?}"),
    }
    for message in messages {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!((stepper.params, stepper.optimizer.steps()), (start, 0));
}

#[test]
fn batches_and_targets_of_wrong_lengths_are_errors() {
    let spec = NetworkSpec::new(&[3], vec![LayerSpec::dense(2)]);
    let network = Network::new(&spec).unwrap();
    let values = |n| Target::values(vec![0.5; n]);
    for (inputs, target, part) in [
        (7, values(4), "multiple of 3"),
        (0, values(0), "multiple of 3"),
        (6, values(3), "4, one for every output"),
        (6, values(8), "4, one for every output"),
        (6, values(4).weighted(vec![1.0; 3]), "3 weights"),
    ] {
        refused(&network, Loss::Mse, vec![0.1; inputs], target, part);
    }
    for (classes, part) in [
        (vec![0; 3], "3 class numbers"),
        (vec![], "0 class numbers"),
        (vec![0, 2], "class 2"),
        // Passes for one row of four.
        (vec![3], "2, one for every row of 2"),
    ] {
        let target = Target::classes(classes);
        refused(&network, Loss::CrossEntropy, vec![0.1; 6], target, part);
    }
    let dag = DagNN::new(&DagSpec::new(2, 1, 1, "tanh"), &[0, 1, 2], &[2, 2, 3]).unwrap();
    refused(&dag, Loss::Mse, vec![0.1; 3], values(1), "multiple of 2");
    refused(&dag, Loss::Mse, vec![0.1; 4], values(1), "2, one for every");

    let model = automaton();
    let mut input = LogicBatch::new(&model, vec![0.5; 18], [1, 3, 3], None).unwrap();
    refused(
        &model,
        Loss::SumSquares,
        input.clone(),
        values(9),
        "18, one",
    );
    input.state.pop();
    refused(
        &model,
        Loss::SumSquares,
        input.clone(),
        values(18),
        "17 values",
    );
    input.state.push(0.5);
    input.fire = Some(vec![true; 9]);
    refused(&model, Loss::SumSquares, input, values(18), "9 values");

    let spec: GraphSpec =
        toml::from_str("features = 4\nlayers = [{ kind = \"gcn\", out = 2 }]").unwrap();
    let network = GraphNetwork::new(&spec).unwrap();
    let graph = Arc::new(Graph::new(3, &[0, 1], &[1, 2]).unwrap());
    let narrow = GraphBatch::dense(graph.clone(), 3, vec![0.1; 9]).unwrap();
    refused(&network, Loss::Mse, narrow, values(6), "3 per node");
    let batch = GraphBatch::dense(graph, 4, vec![0.1; 12]).unwrap();
    refused(&network, Loss::Mse, batch, values(5), "6, one for every");
}
