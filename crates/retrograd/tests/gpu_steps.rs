//! Forms of a training step on the GPU: batches that are accumulated, tensors that are updated early.
#![cfg(feature = "gpu")]

mod gpu_helper;

use std::ops::Range;
use std::sync::Arc;

use gpu_helper::{batch, gpu, kan, network_of, target};
use retrograd::gpu::{
    Choice, Counters, Gpu, GpuEvent, GpuNetwork, GpuOptimizer, GpuTrainOptions, GpuTrainer,
    Precision,
};
use retrograd::network::Network;
use retrograd::optim::{Optimizer, OptimizerSpec};
use retrograd::rng::Key;
use retrograd::train::{
    Accelerator, Clip, Event, Example, Experiment, MicroBatch, Mode, NetworkTask, Observer,
    Placement, Session, Task, TensorFile, save_weights,
};
use retrograd::{Error, Loss, Model, Pass, Reported, Target};

/// The batches of a step, of several sizes.
fn batches(network: &Network) -> Vec<(Vec<f32>, Target<f32>)> {
    let sizes = [5, 9, 2];
    let width = network.input_len();
    let lesson = |(i, &n): (usize, &usize)| {
        let x = batch(network, n + i).split_off(i * width);
        (x, target(network, n))
    };
    sizes.iter().enumerate().map(lesson).collect()
}

/// A step on accumulated batches is the step of the sum of their gradients, which are fetched one by one
/// from the same device.
#[test]
fn accumulated_batches_step_with_the_sum_of_their_gradients() {
    let network = kan(&[3, 40, 2], 3);
    let params = network.init(3);
    let lr = 0.5;
    let all = batches(&network);
    for loss in [Loss::Mse, Loss::SumSquares] {
        let mut apart = GpuNetwork::new(&gpu(), &network, &params).unwrap();
        let mut grads = Vec::new();
        let mut losses = Vec::new();
        for (x, t) in &all {
            let options = GpuTrainOptions::default();
            losses.push(apart.loss_and_gradients(x, t, loss, &options).unwrap());
            grads.push(apart.gradients().unwrap());
        }
        let mut on_gpu = GpuNetwork::new(&gpu(), &network, &params).unwrap();
        let mut sgd = GpuOptimizer::new(&on_gpu, OptimizerSpec::sgd(lr)).unwrap();
        let before = gpu().counters();
        for (index, (x, t)) in (0..).zip(&all) {
            let micro = MicroBatch { index, of: 3 };
            let options = GpuTrainOptions {
                micro,
                ..Default::default()
            };
            on_gpu
                .train_step_gpu_native_with_options(x, t, loss, &mut sgd, &options)
                .unwrap();
        }
        let after = gpu().counters().since(before);
        assert_eq!((after.submits, after.waits), (3, 0), "{after:?}");
        let arrived = on_gpu.finish().unwrap();
        assert_eq!(arrived.len(), 1);
        assert_eq!(sgd.steps(), 1);
        let mean = losses.iter().sum::<f64>() / 3.0;
        // Eight roundings: three products, two sums, the loss that comes back, and 1/3 itself.
        let bound = 8.0 * 2.0_f64.powi(-24) * losses.iter().map(|l| l.abs()).sum::<f64>();
        assert!((arrived[0].loss - mean).abs() <= bound, "{loss:?}");
        let share = if loss == Loss::Mse { 1.0 / 3.0 } else { 1.0 };
        let weights = on_gpu.sync_weights_to_cpu().unwrap();
        for (i, (&w, &p)) in weights.iter().zip(&params).enumerate() {
            let parts = grads.iter().map(|g| share * f64::from(g[i]));
            let sum: f64 = parts.clone().sum();
            let size: f64 = parts.map(f64::abs).sum();
            let expected = f64::from(p) - lr * sum;
            // Every product and sum is rounded once, and the parameter.
            let bound = 2.0_f64.powi(-24) * (8.0 * lr * size + expected.abs() + lr * sum.abs());
            let off = (f64::from(w) - expected).abs();
            assert!(
                off <= bound,
                "{loss:?} {i}: {w} {expected}, bound {bound:e}"
            );
        }
        // Something moved by far more than that.
        let moved = weights.iter().zip(&params).map(|(w, p)| (w - p).abs());
        assert!(moved.fold(0.0, f32::max) > 1e-3);
    }
}

/// A batch that is not finite spoils its step and no other, and nothing of it is left in the sum.
#[test]
fn an_accumulated_batch_that_is_not_finite_leaves_its_step_out() {
    let network = kan(&[3, 5, 2], 3);
    let params = network.init(3);
    let all = batches(&network);
    let run = |spoiled: bool| {
        let mut on_gpu = GpuNetwork::new(&gpu(), &network, &params).unwrap();
        let mut adam = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(0.01)).unwrap();
        for step in 0..3 {
            // Without the spoiled one the second step is not made at all.
            if step == 1 && !spoiled {
                continue;
            }
            for (index, (x, t)) in (0..).zip(&all) {
                let huge = Target::values(vec![3e38; t.values.len()]);
                let bad = step == 1 && index == 1;
                let options = GpuTrainOptions {
                    micro: MicroBatch { index, of: 3 },
                    skip_not_finite: true,
                    ..Default::default()
                };
                let t = if bad { &huge } else { t };
                on_gpu
                    .train_step_gpu_native_with_options(x, t, Loss::Mse, &mut adam, &options)
                    .unwrap();
            }
        }
        let updated: Vec<bool> = on_gpu.finish().unwrap().iter().map(|l| l.updated).collect();
        (updated, on_gpu.sync_weights_to_cpu().unwrap().to_vec())
    };
    let (updated, weights) = run(true);
    assert_eq!(updated, [true, false, true]);
    assert_eq!(weights, run(false).1);
}

/// The options of a step in the fused order, with an element clipped now and then.
fn early(step: u64, fused: bool) -> GpuTrainOptions {
    GpuTrainOptions {
        key: Key::new(7).step(step),
        clip: Clip {
            element: Some(0.05),
            norm: None,
        },
        fused,
        ..Default::default()
    }
}

/// Skips, frozen tensors, norms, dropout, a penalty.
fn networks() -> Vec<Network> {
    let mut frozen = network_of(
        &[6],
        r#"[{"kind":"dense","out":7},{"kind":"layer_norm"},{"kind":"tanh"},{"kind":"dense","out":7},{"kind":"add","with":0},{"kind":"dropout","p":0.2},{"kind":"dense","out":3}]"#,
    );
    frozen.layout_mut().freeze("3.weight").unwrap();
    let penalised = r#"{"input":[3],"layers":[{"kind":"kan","out":4,"grid":5,"degree":3},{"kind":"kan","out":3,"grid":5,"degree":3}],"sparsity":{"l1":0.01,"entropy":0.02}}"#;
    vec![
        frozen,
        Network::new(&serde_json::from_str(penalised).unwrap()).unwrap(),
        network_of(
            &[2, 6, 5],
            r#"[{"kind":"conv2d","out":5,"kernel":3},{"kind":"batch_norm2d"},{"kind":"relu"},{"kind":"flatten"},{"kind":"dense","out":3}]"#,
        ),
    ]
}

#[test]
fn tensors_updated_as_their_gradients_are_complete_have_the_bits_of_the_plain_order() {
    for spec in [
        OptimizerSpec::sgd(0.1),
        OptimizerSpec::adam(0.01),
        OptimizerSpec::adamw(0.01),
    ] {
        for network in networks() {
            let run = |fused: bool| {
                let mut on_gpu = GpuNetwork::new(&gpu(), &network, &network.init(1)).unwrap();
                let mut optimizer = GpuOptimizer::new(&on_gpu, spec).unwrap();
                let (x, t) = (batch(&network, 6), target(&network, 6));
                for step in 0..5 {
                    let options = early(step, fused);
                    on_gpu
                        .train_step_gpu_native_with_options(
                            &x,
                            &t,
                            Loss::Mse,
                            &mut optimizer,
                            &options,
                        )
                        .unwrap();
                }
                let losses: Vec<f64> = on_gpu.finish().unwrap().iter().map(|l| l.loss).collect();
                let weights = on_gpu.sync_weights_to_cpu().unwrap().to_vec();
                (
                    losses,
                    weights,
                    optimizer.to_cpu().unwrap().state().to_vec(),
                )
            };
            assert_eq!(run(true), run(false));
        }
    }
}

/// The kernels' order is what early updates are about: an update stands right behind the kernel that
/// completes its gradient, before those of earlier layers.
#[test]
fn an_early_update_comes_before_the_gradients_of_earlier_layers() {
    let gpu = Gpu::open(&Choice::Auto).unwrap();
    let network = network_of(
        &[4],
        r#"[{"kind":"dense","out":5},{"kind":"tanh"},{"kind":"dense","out":6},{"kind":"tanh"},{"kind":"dense","out":2}]"#,
    );
    let mut on_gpu = GpuNetwork::new(&gpu, &network, &network.init(1)).unwrap();
    let mut optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(0.01)).unwrap();
    let (x, t) = (batch(&network, 6), target(&network, 6));
    let mut order = |fused: bool| -> Vec<char> {
        let labels = on_gpu
            .profile_native_step(&x, &t, Loss::Mse, &mut optimizer, &early(0, fused))
            .unwrap();
        let letter = |(label, _): &(String, f64)| match &label[..] {
            "optimizer_update" => Some('u'),
            label if label.contains("backward") => label.chars().next(),
            _ => None,
        };
        let mut letters: Vec<char> = labels.iter().filter_map(letter).collect();
        letters.dedup();
        letters
    };
    let fused: String = order(true)
        .into_iter()
        .filter(|c| "024u".contains(*c))
        .collect();
    assert_eq!(fused, "4u2u0u");
    let plain: String = order(false)
        .into_iter()
        .filter(|c| "024u".contains(*c))
        .collect();
    assert_eq!(plain, "420u");
}

#[test]
fn early_updates_are_refused_where_the_whole_gradient_has_to_be_known_first() {
    let network = kan(&[3, 5, 2], 3);
    let mut on_gpu = GpuNetwork::new(&gpu(), &network, &network.init(1)).unwrap();
    let mut optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(0.01)).unwrap();
    let (x, t) = (batch(&network, 6), target(&network, 6));
    let clipped = GpuTrainOptions {
        clip: Clip {
            norm: Some(1.0),
            element: None,
        },
        fused: true,
        ..Default::default()
    };
    let accumulated = GpuTrainOptions {
        micro: MicroBatch { index: 0, of: 2 },
        ..early(0, true)
    };
    let skipped = GpuTrainOptions {
        skip_not_finite: true,
        ..early(0, true)
    };
    let beyond = GpuTrainOptions {
        micro: MicroBatch { index: 2, of: 2 },
        ..Default::default()
    };
    for (options, word) in [
        (clipped, "clipping"),
        (accumulated, "accumulated"),
        (skipped, "left out"),
        (beyond, "less than 2"),
    ] {
        let error = on_gpu
            .train_step_gpu_native_with_options(&x, &t, Loss::Mse, &mut optimizer, &options)
            .unwrap_err()
            .to_string();
        assert!(error.contains(word), "{error}");
    }
}

/// Layers wide enough for three groups: the last two, then one each.
fn wide() -> Network {
    network_of(
        &[128],
        r#"[{"kind":"dense","out":128},{"kind":"tanh"},{"kind":"dense","out":128},{"kind":"tanh"},{"kind":"dense","out":128},{"kind":"tanh"},{"kind":"dense","out":2}]"#,
    )
}

/// What happened in a hybrid step, the CPU's own part among it.
#[derive(Debug, PartialEq)]
enum Seen {
    Device(GpuEvent),
    /// A range was stepped.
    Stepped(Range<usize>),
}

/// Hybrid steps piece by piece with plain gradient descent: events, counters of the last step, gradient.
fn in_pieces(gpu: &Arc<Gpu>, network: &Network, steps: usize) -> (Vec<Seen>, Counters, Vec<f32>) {
    let mut params = network.init(1);
    let optimizer = Optimizer::new(OptimizerSpec::sgd(0.1), params.len());
    let (mode, precision) = (Mode::Hybrid, Precision::F32);
    let mut trainer =
        GpuTrainer::on(gpu, mode, precision, false, network, &params, &optimizer).unwrap();
    let example = Example {
        input: batch(network, 6),
        target: target(network, 6),
    };
    let pass = Pass::training(Key::new(3));
    let mut grads = vec![f32::NAN; params.len()];
    let mut seen = Vec::new();
    let mut before = gpu.counters();
    for step in 0..steps {
        seen.clear();
        gpu.take_events();
        before = gpu.counters();
        let mut ready = |range: Range<usize>, params: &mut [f32], grads: &mut [f32]| {
            seen.extend(gpu.take_events().into_iter().map(Seen::Device));
            for i in range.clone() {
                params[i] -= 0.1 * grads[i];
            }
            seen.push(Seen::Stepped(range));
        };
        let told = Reported::Updated(&mut params, &mut ready);
        let known = step > 0;
        let value = trainer
            .gradient_in_pieces(told, known, Loss::Mse, &example, &pass, &mut grads)
            .unwrap();
        assert!(value.is_finite());
        seen.extend(gpu.take_events().into_iter().map(Seen::Device));
    }
    (seen, gpu.counters().since(before), grads)
}

/// The order of events of a hybrid step: everything is submitted before anything is waited for; a group
/// is stepped when it has arrived, and before the next one is looked at; nothing waits for an idle device
/// but the last. With memory of its own the device gets a group's new weights at once.
#[test]
fn gradients_leave_as_they_are_ready_and_are_stepped_as_they_arrive() {
    let network = wide();
    let layout = network.layout();
    let of = |layer: &str| {
        let tensors = layout
            .tensors()
            .iter()
            .filter(|t| t.name.starts_with(layer));
        let ranges: Vec<_> = tensors.map(|t| t.range()).collect();
        ranges[0].start..ranges[ranges.len() - 1].end
    };
    let groups = [of("4.").start..of("6.").end, of("2."), of("0.")];
    for shared in [true, false] {
        let gpu = match shared {
            true => Gpu::open(&Choice::Auto).unwrap(),
            false => Gpu::open_unshared(&Choice::Auto).unwrap(),
        };
        let shared = gpu.shares_memory();
        let (seen, counters, _) = in_pieces(&gpu, &network, 3);
        let mut wanted: Vec<Seen> = (0..3)
            .map(|i| Seen::Device(GpuEvent::Submitted(i)))
            .collect();
        let bytes = |range: &Range<usize>| 4 * range.len() as u64;
        for (i, range) in groups.iter().enumerate() {
            wanted.push(Seen::Device(GpuEvent::Arrived(i)));
            wanted.push(Seen::Stepped(range.clone()));
            if !shared {
                wanted.push(Seen::Device(GpuEvent::Sent(bytes(range))));
            }
        }
        if shared {
            let all = groups.iter().map(bytes).sum();
            wanted.push(Seen::Device(GpuEvent::Sent(all)));
        }
        assert_eq!(seen, wanted, "shared memory: {shared}");
        assert_eq!(counters.submits, 3, "{counters:?}");
        assert!(counters.waits <= 1 && counters.pauses <= 2, "{counters:?}");
    }
}

/// The gradient in groups is the gradient in one piece, bit for bit, and so are the weights it leads to.
#[test]
fn gradients_in_groups_have_the_bits_of_those_in_one_piece() {
    let network = wide();
    let (_, _, grads) = in_pieces(&gpu(), &network, 1);
    let mut whole = GpuNetwork::new(&gpu(), &network, &network.init(1)).unwrap();
    let (x, t) = (batch(&network, 6), target(&network, 6));
    let options = GpuTrainOptions {
        key: Key::new(3),
        ..Default::default()
    };
    whole
        .loss_and_gradients(&x, &t, Loss::Mse, &options)
        .unwrap();
    assert_eq!(grads, whole.gradients().unwrap());
    // Later steps see the new weights: on memory of its own, and where it is shared.
    let unshared = Gpu::open_unshared(&Choice::Auto).unwrap();
    let [here, there] = [&gpu(), &unshared].map(|gpu| in_pieces(gpu, &network, 4).2);
    assert_eq!(here, there);
    assert_ne!(here, grads);
}

/// Where memory is shared, the CPU copies a gradient once on its way here and weights once on their way
/// there, into the memory that kernels read.
#[test]
fn nothing_is_copied_twice_where_memory_is_shared() {
    let gpu = Gpu::open(&Choice::Auto).unwrap();
    assert!(gpu.shares_memory(), "{:?}", gpu.description());
    for (network, groups) in [(wide(), 3), (kan(&[128, 4, 2], 3), 1)] {
        let (_, counters, _) = in_pieces(&gpu, &network, 3);
        let vector = 4 * network.layout().len() as u64;
        let batch = 4 * 6 * (128 + 2);
        // Losses, constants and random keys are small.
        let most = 2 * vector + batch + 1024;
        assert!(counters.bytes_copied >= 2 * vector, "{counters:?}");
        assert!(counters.bytes_copied <= most, "{counters:?}");
        // Weights are written where kernels read them; a gradient that comes in one piece is read where
        // they left it.
        let mapped = if groups == 1 { 2 * vector } else { vector };
        assert_eq!(counters.bytes_mapped, mapped, "{counters:?}");
    }
    let gpu = Gpu::open_unshared(&Choice::Auto).unwrap();
    let (_, counters, _) = in_pieces(&gpu, &wide(), 3);
    assert_eq!(counters.bytes_mapped, 0);
}

/// A hybrid run whose clipping looks at the whole gradient steps at the end; a limit that is never reached
/// changes nothing but the order.
#[test]
fn a_run_that_steps_as_gradients_arrive_has_the_bits_of_one_that_steps_at_the_end() {
    let run = |more: &str| {
        let text = format!(
            "name = \"test\"\n[model]\nfamily = \"network\"\nlayers = [{WIDE}]\n[data]\n\
             generate = {{ name = \"two_moons\", samples = 100 }}\n[train]\nbatch = 16\nepochs = 3\n\
             optimizer = {{ kind = \"adamw\", lr = 0.01 }}\n{more}\n"
        );
        let experiment = Experiment::parse(&text, "test.toml").unwrap();
        let mut task = NetworkTask::new(&experiment).unwrap();
        let mut kept = Vec::new();
        Session::new(experiment)
            .placed(Placement::Gpu {
                adapter: "auto".into(),
                mode: Mode::Hybrid,
                precision: Precision::F32,
                compress: false,
            })
            .kept_in(&mut kept)
            .fit(&mut task)
            .unwrap();
        kept
    };
    let arriving = run("");
    assert_eq!(arriving, run("clip = 1e30"));
    assert_eq!(arriving, run("fused_updates = true"));
}

const WIDE: &str = "{ kind = \"dense\", out = 128 }, { kind = \"tanh\" }, { kind = \"dense\", out = 128 }, \
    { kind = \"tanh\" }, { kind = \"dense\", out = 128 }, { kind = \"tanh\" }, { kind = \"dense\", out = 2 }";

/// A gradient that is not finite in a layer that arrives late: the tensors that were stepped before are put
/// back, with their optimizer state.
#[test]
fn a_number_that_is_not_finite_and_arrives_late_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let weights = folder.path().join("weights.safetensors");
    let text = format!(
        "name = \"test\"\n[model]\nfamily = \"network\"\nlayers = [{WIDE}]\n[data]\n\
         generate = {{ name = \"two_moons\", samples = 100 }}\n[train]\nbatch = 16\nepochs = 1\n\
         optimizer = {{ kind = \"adam\", lr = 0.01 }}\nweights = {weights:?}\n"
    );
    let experiment = Experiment::parse(&text, "test.toml").unwrap();
    let mut task = NetworkTask::new(&experiment).unwrap();
    let network = task.model();
    let mut params = network.init(0);
    for tensor in network.layout().tensors() {
        match &tensor.name[..] {
            // Layer 2 gives 0, whatever comes after it: the output is 0, and so is the gradient of the
            // weights of layers 4 and 6. What goes back to layer 2 overflows.
            "2.weight" | "2.bias" | "4.bias" => params[tensor.range()].fill(0.0),
            "4.weight" => params[tensor.range()].fill(1e20),
            "6.weight" => {
                let mut classes = vec![1e25; tensor.range().len()];
                let half = classes.len() / 2;
                classes[half..].fill(-1e25);
                tensor.from_torch(&classes, &mut params[tensor.range()]);
            }
            _ => {}
        }
    }
    save_weights(&weights, network, &params, &Vec::new()).unwrap();
    let placement = Placement::Gpu {
        adapter: "auto".into(),
        mode: Mode::Hybrid,
        precision: Precision::F32,
        compress: false,
    };
    let error = Session::new(experiment)
        .placed(placement)
        .in_folder(&run)
        .fit(&mut task)
        .unwrap_err();
    assert!(
        matches!(&error, Error::NotFinite { step: 0, tensor, .. } if tensor.contains("gradient")),
        "{error}"
    );
    let file = TensorFile::read(&run.join("checkpoint.safetensors")).unwrap();
    for tensor in task.model().layout().tensors() {
        let saved = file.get(&tensor.name).unwrap().values.to_f32();
        assert_eq!(
            saved,
            tensor.to_torch(&params[tensor.range()]),
            "{}",
            tensor.name
        );
        for state in ["exp_avg", "exp_avg_sq"] {
            let name = format!("optimizer/{state}/{}", tensor.name);
            let saved = file.get(&name).unwrap().values.to_f32();
            assert!(saved.iter().all(|&s| s == 0.0), "{name}");
        }
    }
    assert_eq!(file.metadata["optimizer_steps"], "0");
}

/// `--device auto` takes the place whose steps took less time by the clock it is given, says so, and the
/// run keeps it.
#[test]
fn the_faster_device_is_taken_and_kept() {
    #[derive(Default)]
    struct Notes(Vec<String>);
    impl Observer for Notes {
        fn event(&mut self, event: Event<'_>) {
            if let Event::Note(text) = event {
                self.0.push(text.to_string());
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let text = "name = \"test\"\n[model]\nfamily = \"network\"\nlayers = [{ kind = \"dense\", out = 8 }, \
         { kind = \"layer_norm\" }, { kind = \"dense\", out = 2 }]\n[data]\n\
         generate = { name = \"two_moons\", samples = 100 }\n[train]\nbatch = 16\nepochs = 1\n\
         optimizer = { kind = \"adam\", lr = 0.01 }\n";
    let gpu = Placement::parse("native gpu:auto").unwrap();
    // Seconds when the timed steps of the CPU began and ended, and those of the GPU.
    for (name, times, wanted) in [
        ("slow", [0.0, 1.0, 2.0, 2.5], "native gpu:auto"),
        ("fast", [0.0, 0.1, 2.0, 2.5], "cpu"),
    ] {
        let run = folder.path().join(name);
        let experiment = Experiment::parse(text, "test.toml").unwrap();
        let mut task = NetworkTask::new(&experiment).unwrap();
        let mut left = times.iter();
        let mut clock = || *left.next().unwrap();
        let mut notes = Notes::default();
        Session::new(experiment)
            .placed_by_time(vec![Placement::Cpu, gpu.clone()])
            .timed_by(&mut clock)
            .observed_by(&mut notes)
            .in_folder(&run)
            .fit(&mut task)
            .unwrap();
        let said = notes.0.iter().find(|note| note.contains("--device auto"));
        let said = said.unwrap();
        assert!(said.contains(&format!("auto: {wanted} (")), "{said}");
        assert!(
            said.contains("200.00 ms") || said.contains("20.00 ms"),
            "{said}"
        );
        let kept = retrograd::train::experiment_of(&run).unwrap();
        assert_eq!(kept.train.device.as_deref(), Some(wanted));
        // What was timed left nothing behind: the run has the bits of one that was placed there.
        let plain = folder.path().join(format!("{name}-plain"));
        let experiment = Experiment::parse(text, "test.toml").unwrap();
        let mut task = NetworkTask::new(&experiment).unwrap();
        Session::new(experiment)
            .placed(Placement::parse(wanted).unwrap())
            .in_folder(&plain)
            .fit(&mut task)
            .unwrap();
        let read = |run: &std::path::Path| {
            let file = TensorFile::read(&run.join("checkpoint.safetensors")).unwrap();
            let tensors = file.tensors.into_iter();
            tensors
                .map(|t| (t.name, t.values.to_f64()))
                .collect::<Vec<_>>()
        };
        assert_eq!(read(&run), read(&plain), "{name}");
        // A run that goes on doesn't ask the clock.
        let mut experiment = retrograd::train::experiment_of(&run).unwrap();
        experiment.train.epochs = 2;
        let mut task = NetworkTask::new(&experiment).unwrap();
        let mut never = || -> f64 { panic!("asked") };
        Session::new(experiment)
            .placed_by_time(vec![Placement::Cpu, gpu.clone()])
            .timed_by(&mut never)
            .resuming(&run)
            .fit(&mut task)
            .unwrap();
    }
    for text in [
        "cpu",
        "native gpu:auto",
        "hybrid mixed compressed gpu:a, b: c",
    ] {
        assert_eq!(Placement::parse(text).unwrap().to_text(), text);
    }
    for text in ["gpu", "slow gpu:0", ""] {
        assert!(Placement::parse(text).is_err(), "{text}");
    }
}
