//! Fused updates: the bits of the plain order, what is refused, and what is left after a number that
//! is not finite.

use std::ops::Range;
use std::sync::Arc;

use super::*;
use crate::graph::{DagNN, DagSpec, Graph, GraphBatch, GraphNetwork, GraphSpec};
use crate::logic::{LogicBatch, LogicCa, LogicSpec};
use crate::network::{Network, NetworkSpec, NetworkTape};
use crate::optim::OptimizerSpec;
use crate::{Reported, parallel};

fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut stream = Key::new(seed).purpose("fused").stream();
    (0..n).map(|_| stream.range(-1.0, 1.0) as f32).collect()
}

/// Every kind of update: with state and without, with decay in both places.
fn optimizers() -> [OptimizerSpec; 5] {
    let sgd = |momentum, nesterov, weight_decay| OptimizerSpec::Sgd {
        lr: 0.02,
        momentum,
        nesterov,
        weight_decay,
    };
    [
        sgd(0.0, false, 0.0),
        sgd(0.9, false, 0.01),
        sgd(0.8, true, 0.0),
        OptimizerSpec::adam(0.02),
        OptimizerSpec::adamw(0.02),
    ]
}

/// Whether both orders give the same losses, parameters, gradients and optimizer state, to the bit,
/// over steps on these examples; and over how many ranges a fused step went.
fn same_bits<M: Model>(model: &M, loss: Loss, examples: &[Example<M>], clip: &Clip) -> bool {
    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    optimizers().into_iter().all(|spec| {
        let start = model.init(1);
        let mut plain = Stepper::new(model, start.clone(), spec);
        let mut fused = Stepper::new(model, start.clone(), spec);
        let mut same = true;
        for (step, example) in examples.iter().cycle().take(6).enumerate() {
            let pass = Pass::training(Key::new(3).step(step as u64));
            let lr = spec.lr() / (1.0 + step as f64);
            let value = plain
                .gradient(model, loss, example, &pass, 1.0, false)
                .unwrap();
            let penalty = plain.update(model, clip, lr).unwrap();
            let lesson = Lesson::new(loss, example, &pass);
            let stepped = fused
                .fused_step(model, &lesson, clip, lr, &mut ())
                .unwrap_or_else(|error| panic!("{error:?}"));
            let expected = Stepped {
                loss: value,
                penalty,
            };
            same &= stepped == expected
                && bits(&plain.params) == bits(&fused.params)
                && bits(plain.grads()) == bits(fused.grads())
                && plain.optimizer.steps() == fused.optimizer.steps();
            let states = plain.optimizer.state().iter().zip(fused.optimizer.state());
            same &= states.into_iter().all(|(a, b)| bits(a) == bits(b));
        }
        assert_ne!(plain.params, start, "{spec:?}: nothing was learnt");
        same
    })
}

/// The ranges of a backward pass, in the order in which they are reported.
fn ranges<M: Model>(model: &M, example: &Example<M>) -> Vec<Range<usize>> {
    let mut params = model.init(1);
    let mut d_params = vec![f32::NAN; params.len()];
    let mut tape = Default::default();
    let pass = Pass::training(Key::new(0));
    model.compute_forward(&params, &example.input, &pass, &mut tape);
    let d_output = vec![0.1; model.output(&tape).len()];
    let mut reported = Vec::new();
    model.compute_backward_reporting(
        Reported::Updated(&mut params, &mut |range, _, _| reported.push(range)),
        &example.input,
        &pass,
        &mut tape,
        &d_output,
        &mut d_params,
    );
    reported
}

/// Ranges cover the vector once, and hold whole tensors.
fn check_ranges(layout: &Layout, ranges: &[Range<usize>]) {
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|range| range.start);
    let mut end = 0;
    for range in sorted {
        assert_eq!(range.start, end);
        let starts = |t: &crate::Tensor| t.range().start == range.start;
        assert!(layout.tensors().iter().any(starts), "{range:?}");
        end = range.end;
    }
    assert_eq!(end, layout.len());
}

fn network(text: &str) -> Network {
    let spec: NetworkSpec = toml::from_str(&format!("family = \"network\"\n{text}")).unwrap();
    Network::new(&spec).unwrap()
}

fn examples(network: &Network, loss: Loss) -> Vec<Example<Network>> {
    // A smaller batch between larger ones.
    [9, 4, 9]
        .into_iter()
        .enumerate()
        .map(|(seed, samples)| Example {
            input: numbers(samples * network.input_len(), seed as u64),
            target: match loss {
                Loss::CrossEntropy => Target::classes((0..samples as u32).map(|i| i % 2).collect()),
                _ => Target::values(numbers(samples * network.output_len(), 50 + seed as u64)),
            },
        })
        .collect()
}

const SKIPS: &str = "input = [5]\nlayers = [\
    { kind = \"dense\", out = 33 }, { kind = \"tanh\" }, { kind = \"dense\", out = 33 }, \
    { kind = \"relu\" }, { kind = \"add\", with = 1 }, { kind = \"layer_norm\" }, \
    { kind = \"dropout\", p = 0.2 }, { kind = \"dense\", out = 17 }, { kind = \"silu\" }, \
    { kind = \"concat\", with = 4 }, { kind = \"dense\", out = 2 }]";

#[test]
fn a_network_with_skips_gets_the_same_bits_layer_by_layer() {
    let clip = Clip {
        element: Some(0.01),
        norm: None,
    };
    let mut network = network(SKIPS);
    let examples = examples(&network, Loss::CrossEntropy);
    for threads in [1, 2, 7] {
        parallel::with_threads(threads, || {
            for clip in [Clip::default(), clip] {
                assert!(same_bits(&network, Loss::CrossEntropy, &examples, &clip));
            }
        });
    }
    let found = ranges(&network, &examples[0]);
    check_ranges(network.layout(), &found);
    // Four dense layers and a norm.
    assert_eq!(found.len(), 5);
    // Frozen at the beginning, in the middle and within a layer.
    for pattern in ["0.*", "5.*", "7.bias"] {
        network.layout_mut().freeze(pattern).unwrap();
        assert!(same_bits(&network, Loss::CrossEntropy, &examples, &clip));
        check_ranges(network.layout(), &ranges(&network, &examples[0]));
    }
}

#[test]
fn convolutions_whose_backward_is_one_pass_are_updated_after_it() {
    let network = network(
        "input = [1, 12, 20]\nlayers = [\
         { kind = \"conv2d\", out = 16, kernel = 3, padding = 1 }, { kind = \"relu\" }, \
         { kind = \"conv2d\", out = 16, kernel = 3, padding = 1 }, { kind = \"relu\" }, \
         { kind = \"conv2d\", out = 1, kernel = 3, padding = 1 }, { kind = \"batch_norm2d\" }, \
         { kind = \"conv2d\", out = 2, kernel = 3, padding = 1 }]",
    );
    let examples = examples(&network, Loss::Mse);
    assert!(same_bits(&network, Loss::Mse, &examples, &Clip::default()));
    let found = ranges(&network, &examples[0]);
    check_ranges(network.layout(), &found);
    // The last convolution, the norm, and three convolutions together.
    assert_eq!(found.len(), 3);
}

#[test]
fn a_kan_with_its_penalty_gets_the_same_bits() {
    for sparsity in ["", "sparsity = { l1 = 0.01, entropy = 0.02 }\n"] {
        let mut network = network(&format!(
            "input = [3]\n{sparsity}layers = [{{ kind = \"kan\", out = 5, grid = 5, degree = 3 }}, \
             {{ kind = \"kan\", out = 4, grid = 4, degree = 2, bias = true }}, \
             {{ kind = \"kan\", out = 2, grid = 5, degree = 3 }}]"
        ));
        let examples = examples(&network, Loss::Mse);
        assert!(same_bits(&network, Loss::Mse, &examples, &Clip::default()));
        assert_eq!(ranges(&network, &examples[0]).len(), 3);
        network.layout_mut().freeze("1.spline_weight").unwrap();
        assert!(same_bits(&network, Loss::Mse, &examples, &Clip::default()));
    }
}

#[test]
fn graph_networks_get_the_same_bits() {
    let spec: GraphSpec = toml::from_str(
        "features = 4\nlayers = [{ kind = \"gcn\", out = 8 }, { kind = \"tanh\" }, \
         { kind = \"gat\", out = 4, heads = 2 }, { kind = \"add\", with = 1 }, \
         { kind = \"layer_norm\" }, { kind = \"sage\", out = 8 }, { kind = \"mean_pool\" }, \
         { kind = \"dense\", out = 2 }]",
    )
    .unwrap();
    let mut network = GraphNetwork::new(&spec).unwrap();
    let graph = Graph::new(7, &[0, 1, 2, 3, 4, 5, 6, 3], &[1, 2, 0, 4, 5, 6, 3, 6]).unwrap();
    let graph = graph.with_graphs(&[0, 0, 0, 1, 1, 1, 1], 2).unwrap();
    let batch = GraphBatch::dense(Arc::new(graph), 4, numbers(28, 1)).unwrap();
    let examples = [Example {
        input: batch,
        target: Target::classes(vec![0, 1]),
    }];
    let loss = Loss::CrossEntropy;
    assert!(same_bits(&network, loss, &examples, &Clip::default()));
    let found = ranges(&network, &examples[0]);
    check_ranges(network.layout(), &found);
    assert_eq!(found.len(), 5);
    network.layout_mut().freeze("0.*").unwrap();
    assert!(same_bits(&network, loss, &examples, &Clip::default()));
    check_ranges(network.layout(), &ranges(&network, &examples[0]));
}

#[test]
fn automata_and_dags_whose_gradients_are_complete_at_the_end_get_the_same_bits() {
    let spec: LogicSpec = toml::from_str(
        "family = \"logic_ca\"\nchannels = 2\nkernels = 3\nperception = [9, 8, 4, 2]\n\
         update = [14, 12, 9, 5, 3, 2]\nsteps = 3\n",
    )
    .unwrap();
    let model = LogicCa::new(spec, 3).unwrap();
    let state = numbers(2 * 5 * 6 * 2, 4).iter().map(|x| x.abs()).collect();
    let input = LogicBatch::new(&model, state, [2, 5, 6], None).unwrap();
    let target = Target::values(numbers(2 * 5 * 6 * 2, 5));
    let clip = Clip {
        element: Some(1.0),
        norm: None,
    };
    let examples = [Example { input, target }];
    assert!(same_bits(&model, Loss::SumSquares, &examples, &clip));

    let sources = [0, 1, 2, 0, 3, 4, 1];
    let targets = [3, 3, 4, 4, 5, 5, 5];
    let model = DagNN::new(&DagSpec::new(3, 2, 1, "tanh"), &sources, &targets).unwrap();
    let examples = [Example {
        input: numbers(3 * 40, 6),
        target: Target::values(numbers(40, 7)),
    }];
    assert!(same_bits(&model, Loss::Mse, &examples, &clip));
}

/// A network that is wrong in one way.
struct Wrong {
    inner: Network,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Updates the last layer before its input's gradient has read it.
    Early,
    /// This element of the gradient is NaN.
    Poison(usize),
    /// Reports layer by layer, with a penalty that it has no parts of.
    Coupled,
}

impl Model for Wrong {
    type Input<T: Scalar> = Vec<T>;
    type Tape<T: Scalar> = NetworkTape<T>;

    fn layout(&self) -> &Layout {
        self.inner.layout()
    }
    fn layout_mut(&mut self) -> &mut Layout {
        self.inner.layout_mut()
    }
    fn init(&self, seed: u64) -> Vec<f32> {
        self.inner.init(seed)
    }
    fn compute_forward<T: Scalar>(
        &self,
        params: &[T],
        input: &Vec<T>,
        pass: &Pass,
        tape: &mut NetworkTape<T>,
    ) {
        self.inner.compute_forward(params, input, pass, tape);
    }
    fn output<'t, T: Scalar>(&self, tape: &'t NetworkTape<T>) -> &'t [T] {
        self.inner.output(tape)
    }
    fn compute_backward<T: Scalar>(
        &self,
        params: &[T],
        input: &Vec<T>,
        pass: &Pass,
        tape: &mut NetworkTape<T>,
        d_output: &[T],
        grads: Grads<'_, T>,
    ) {
        self.inner
            .compute_backward(params, input, pass, tape, d_output, grads);
    }
    fn compute_backward_reporting<T: Scalar>(
        &self,
        mut params: Reported<'_, T>,
        input: &Vec<T>,
        pass: &Pass,
        tape: &mut NetworkTape<T>,
        d_output: &[T],
        d_params: &mut [T],
    ) {
        if self.fault == Fault::Early {
            let last = self.layout().tensors().iter().rev().nth(1).unwrap().range();
            let mut whole = |params: &[T], d_params: &mut [T]| {
                let grads = Grads::params(d_params);
                self.inner
                    .compute_backward(params, input, pass, tape, d_output, grads);
            };
            whole(params.params(), d_params);
            params.complete(last.start..d_params.len(), d_params);
            let kept = d_params[last.start..].to_vec();
            whole(params.params(), d_params);
            d_params[last.start..].copy_from_slice(&kept);
            return params.complete(0..last.start, d_params);
        }
        let Reported::Updated(params, ready) = params else {
            unreachable!("a fused step updates");
        };
        let fault = self.fault;
        let mut poisoned = |range: Range<usize>, params: &mut [T], d_params: &mut [T]| {
            if let Fault::Poison(at) = fault
                && range.contains(&at)
            {
                d_params[at] = T::from_f64(f64::NAN);
            }
            ready(range, params, d_params);
        };
        let params = Reported::Updated(params, &mut poisoned);
        self.inner
            .compute_backward_reporting(params, input, pass, tape, d_output, d_params);
    }
    fn cast_input<T: Scalar, U: Scalar>(&self, input: &Vec<T>) -> Vec<U> {
        crate::scalar::cast(input)
    }
    fn penalty<T: Scalar>(&self, params: &[T], _: Option<&mut [T]>) -> T {
        match self.fault {
            Fault::Coupled => params[0] * params[params.len() - 1],
            _ => T::ZERO,
        }
    }
    fn penalty_range<T: Scalar>(&self, _: Range<usize>, _: &[T], _: &mut [T]) -> bool {
        self.fault != Fault::Coupled
    }
}

const THREE: &str = "input = [3]\nlayers = [{ kind = \"dense\", out = 6 }, { kind = \"tanh\" }, \
    { kind = \"dense\", out = 5 }, { kind = \"tanh\" }, { kind = \"dense\", out = 2 }]";

fn wrong(fault: Fault) -> Wrong {
    Wrong {
        inner: network(THREE),
        fault,
    }
}

fn example() -> Example<Wrong> {
    Example {
        input: numbers(12, 8),
        target: Target::values(numbers(8, 9)),
    }
}

#[test]
fn an_update_before_the_last_read_is_seen() {
    for (fault, expected) in [(Fault::None, true), (Fault::Early, false)] {
        let examples = [example()];
        let same = same_bits(&wrong(fault), Loss::Mse, &examples, &Clip::default());
        assert_eq!(same, expected, "{fault:?}");
    }
}

#[test]
fn a_fused_step_refuses_what_needs_the_whole_gradient_and_changes_nothing() {
    let pass = Pass::inference();
    let example = example();
    let by_norm = Clip {
        element: None,
        norm: Some(1.0),
    };
    for (fault, clip, part) in [
        (Fault::None, by_norm, "the norm is known when"),
        (Fault::Coupled, Clip::default(), "a sum over the tensors"),
    ] {
        let model = wrong(fault);
        let start = model.init(1);
        let mut stepper = Stepper::new(&model, start.clone(), OptimizerSpec::adam(0.1));
        let lesson = Lesson::new(Loss::Mse, &example, &pass);
        match stepper.fused_step(&model, &lesson, &clip, 0.1, &mut ()) {
            Err(StepError::Other(error)) => assert!(error.to_string().contains(part), "{error}"),
            other => panic!("{fault:?}: {other:?}"),
        }
        assert_eq!((stepper.params, stepper.optimizer.steps()), (start, 0));
    }
}

#[test]
fn settings_that_need_the_whole_gradient_are_refused_with_the_reason() {
    for (setting, parts) in [
        ("clip = 1.0", ["clip = 1", "clip_element works"]),
        (
            "accumulate = 2",
            ["accumulate = 2", "the last of its batches"],
        ),
        ("on_nan = \"skip\"", ["skip", "can't be left out"]),
    ] {
        let text = format!(
            "name = \"tiny\"\n[model]\nfamily = \"tiny\"\n[train]\nepochs = 1\n\
             fused_updates = true\noptimizer = {{ kind = \"adam\", lr = 0.1 }}\n{setting}\n"
        );
        let message = Experiment::parse(&text, "a.toml").unwrap_err().to_string();
        for part in ["train.fused_updates"].iter().chain(&parts) {
            assert!(message.contains(part), "{message}");
        }
    }
    // And beside steps that are computed elsewhere.
    let error = Session::new(experiment(&format!("{SGD}fused_updates = true\n")))
        .placed(Placement::Gpu {
            adapter: "auto".into(),
            mode: Mode::Native,
            precision: Precision::Mixed,
            compress: false,
        })
        .fit(&mut Fake::new())
        .unwrap_err();
    assert!(error.to_string().contains("loss scale"), "{error}");
}

const SGD: &str = "optimizer = { kind = \"sgd\", lr = 0.05, momentum = 0.9 }\n";

/// Five batches an epoch; an element of the gradient of one of them is NaN.
struct Poisoned {
    model: Wrong,
    bad: Option<(u64, usize)>,
}

impl Poisoned {
    fn new(bad: Option<(u64, usize)>) -> Self {
        let model = wrong(Fault::None);
        Poisoned { model, bad }
    }
}

impl Task for Poisoned {
    type Model = Wrong;
    fn model(&self) -> &Wrong {
        &self.model
    }
    fn model_mut(&mut self) -> &mut Wrong {
        &mut self.model
    }
    fn loss(&self) -> Loss {
        Loss::Mse
    }
    fn steps_per_epoch(&self) -> u64 {
        5
    }
    fn batch(&mut self, step: u64, to: &mut Option<Example<Wrong>>) -> Result<()> {
        self.model.fault = match self.bad {
            Some((bad, at)) if bad == step => Fault::Poison(at),
            _ => Fault::None,
        };
        *to = Some(Example {
            input: numbers(12, 100 + step % 5),
            target: Target::values(numbers(8, 200 + step % 5)),
        });
        Ok(())
    }
    fn evaluate(&mut self, params: &[f32], _: u64) -> Result<Metrics> {
        Ok(vec![("validation_loss".into(), f64::from(params[0]))])
    }
}

/// A run of four epochs with a checkpoint every four steps.
fn settings(optimizer: &str) -> Experiment {
    let mut experiment = experiment(optimizer);
    experiment.train.epochs = 4;
    experiment.train.checkpoint_every = Some(4);
    experiment.train.fused_updates = true;
    experiment
}

#[test]
fn a_run_with_fused_updates_is_the_run_without_them() {
    let folder = tempfile::tempdir().unwrap();
    for (i, optimizer) in [
        SGD,
        "optimizer = { kind = \"adamw\", lr = 0.01 }\nclip_element = 0.01\nfreeze = [\"2.weight\"]\n\
         schedule = { kind = \"cosine\", warmup = 3 }\n",
    ]
    .into_iter()
    .enumerate()
    {
        let mut experiment = settings(optimizer);
        let runs = [true, false].map(|fused| {
            let run = folder.path().join(format!("{i}-{fused}"));
            experiment.train.fused_updates = fused;
            Session::new(experiment.clone())
                .in_folder(&run)
                .fit(&mut Poisoned::new(None))
                .unwrap();
            run
        });
        assert_eq!(state(&runs[0]), state(&runs[1]));
        assert_eq!(
            metrics_without_time(&runs[0]),
            metrics_without_time(&runs[1])
        );
    }
    // The running statistics of a model that reports everything at once.
    let runs = [true, false].map(|fused| {
        let run = folder.path().join(format!("tiny-{fused}"));
        let mut experiment = experiment(SGD);
        experiment.train.fused_updates = fused;
        Session::new(experiment)
            .in_folder(&run)
            .fit(&mut Fake::new())
            .unwrap();
        run
    });
    assert_eq!(state(&runs[0]), state(&runs[1]));
}

#[test]
fn after_a_bad_number_in_the_middle_the_checkpoint_is_the_last_good_state() {
    let folder = tempfile::tempdir().unwrap();
    let layout = wrong(Fault::None).layout().clone();
    let element = |name: &str| layout.get(name).unwrap().range().start + 1;
    let adam = "optimizer = { kind = \"adam\", lr = 0.01 }\n";
    let whole = folder.path().join("whole");
    Session::new(settings(adam))
        .in_folder(&whole)
        .fit(&mut Poisoned::new(None))
        .unwrap();
    // Found in the middle, after the last layer was updated, the step's state is no state: that of
    // the last checkpoint stays. Found in the last layer, nothing was updated yet.
    for (tensor, last_good) in [("2.weight", 8), ("0.bias", 8), ("4.weight", 10)] {
        let at = element(tensor);
        let run = folder.path().join(tensor);
        let error = Session::new(settings(adam))
            .in_folder(&run)
            .fit(&mut Poisoned::new(Some((10, at))))
            .unwrap_err()
            .to_string();
        for part in [
            "step 10",
            &format!("the gradient of {tensor}"),
            "fused_updates",
        ] {
            assert!(error.contains(part), "{error}");
        }
        let until = folder.path().join(format!("until-{tensor}"));
        let stop = AtomicBool::new(false);
        let mut observer = StopAfter {
            stop: &stop,
            step: last_good,
        };
        Session::new(settings(adam))
            .in_folder(&until)
            .observed_by(&mut observer)
            .stopped_by(&stop)
            .fit(&mut Poisoned::new(None))
            .unwrap_err();
        assert_eq!(state(&run), state(&until), "{tensor}");
        // Resumed without what was wrong, it ends as the run that never met it.
        Session::new(experiment_of(&run).unwrap())
            .resuming(&run)
            .fit(&mut Poisoned::new(None))
            .unwrap();
        assert_eq!(state(&run), state(&whole), "{tensor}");
        assert_eq!(metrics_without_time(&run), metrics_without_time(&whole));
    }
}

#[test]
fn a_stepper_says_whether_it_is_half_updated() {
    let layout = wrong(Fault::None).layout().clone();
    let (example, pass) = (example(), Pass::inference());
    for (tensor, half_updated) in [("0.weight", true), ("2.bias", true), ("4.bias", false)] {
        let at = layout.get(tensor).unwrap().range().start;
        let model = wrong(Fault::Poison(at));
        let start = model.init(1);
        let mut stepper = Stepper::new(&model, start.clone(), OptimizerSpec::sgd(0.1));
        let lesson = Lesson::new(Loss::Mse, &example, &pass);
        let clip = Clip::default();
        match stepper.fused_step(&model, &lesson, &clip, 0.1, &mut ()) {
            Err(StepError::NotFinite(bad)) => {
                assert_eq!(bad.half_updated, half_updated, "{tensor}");
                assert!(bad.tensor.contains(tensor), "{}", bad.tensor);
            }
            other => panic!("{tensor}: {other:?}"),
        }
        assert_eq!(stepper.params != start, half_updated, "{tensor}");
        assert!(stepper.params.iter().all(|p| p.is_finite()));
    }
}
