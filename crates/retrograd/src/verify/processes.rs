//! Link 5, beside threads: groups of processes of any size give the same bits.

use std::ops::Range;

use super::bundle::BundleOptimizer;
use super::chain::{equal_bits, worst_of};
use super::report::{Link, Row};
use super::subject::{Runner, Subject, Trajectory, follow};
use crate::group::{self, Group, Leaf, Segments, Sums, Tree, add_to, cut};
use crate::network::Network;
use crate::optim::OptimizerSpec;
use crate::scalar::cast;
use crate::train::joins;
use crate::{Grads, Kernels, Model, Pass, parallel};

/// Shards of the batch that is trained on: for two processes whole subtrees, for three some of theirs.
const SHARDS: usize = 5;
/// Steps that are taken.
const STEPS: usize = 3;
/// The sizes of groups, of threads that play processes.
const SIZES: [usize; 3] = [1, 2, 3];

/// Some steps of Adam on a batch whose shards are the subject's, each at a slightly other place.
pub fn process_rows<M: Model>(subject: &Subject<'_, M>) -> Vec<Row> {
    let [first, others @ ..] = SIZES;
    let largest = others[others.len() - 1];
    if !parallel::can_start(largest) {
        let why = format!("the system refuses {largest} threads that would play processes");
        let name = &subject.name;
        return vec![Row::unchecked(name, "gradients", Link::Processes, why)];
    }
    let run = |size: usize| {
        let trained = |group: &dyn Group| trained(subject, STEPS, group);
        group::threads(size, trained).swap_remove(0)
    };
    let reference = run(first);
    let row = |size: usize| {
        let trajectory = run(size);
        let worst = worst_of([
            equal_bits(&trajectory.params, &reference.params),
            equal_bits(&trajectory.losses, &reference.losses),
        ]);
        let note = format!("as {first}, {STEPS} steps on {SHARDS} shards");
        Row::compared(
            &subject.name,
            format!("{size} processes"),
            Link::Processes,
            &worst,
        )
        .noted(note)
    };
    others.map(row).to_vec()
}

fn trained<M: Model>(subject: &Subject<'_, M>, steps: usize, group: &dyn Group) -> Trajectory<f32> {
    let optimizer = BundleOptimizer {
        spec: OptimizerSpec::adam(1e-3),
        clip: Some(1.0),
        clip_element: None,
    };
    let start: Vec<f32> = cast(&subject.params);
    let tree = Tree::new(SHARDS);
    let own = tree.of_process(group.rank(), group.size());
    let mut runner = Runner::<M, f32>::new(subject, Kernels::Fast);
    let mut sums = Sums::default();
    follow(
        subject.model.layout(),
        &start,
        &optimizer,
        steps,
        |params, d_params| {
            let mut losses = Vec::new();
            let mut leaf = |node: &Range<usize>| {
                if node.len() > 1 {
                    return Leaf::Inner;
                }
                // Shards of a batch have different gradients: these are at different places.
                let apart = 1.0 + node.start as f32 / 64.0;
                let there: Vec<f32> = params.iter().map(|p| p * apart).collect();
                let mut grads = vec![0.0; params.len()];
                losses.push(runner.gradients(&there, &mut grads, None, false));
                Leaf::Value(grads)
            };
            let mut add = |mut a: Vec<f32>, b: Vec<f32>| {
                add_to(&mut a, &b);
                a
            };
            let roots = tree.roots(&own).into_iter();
            let roots = roots
                .map(|root| tree.sum(root, &mut leaf, &mut add))
                .collect();
            let said = group.gather(bytemuck::cast_slice(&losses));
            let number = |bytes: &[u8; 4]| f32::from_ne_bytes(*bytes);
            let losses: Vec<f32> = said
                .iter()
                .flat_map(|l| l.as_chunks().0.iter().map(number))
                .collect();
            let (total, _) = sums.over_all(group, tree, roots, |_| true, params.len());
            d_params.copy_from_slice(&total);
            tree.sum_all(|shard| Some(losses[shard]), |a, b| a + b)
                .unwrap_or(0.0)
        },
    )
}

/// Shards of a network's batch that are computed at once: output and gradients have the bits of shards that
/// are computed one by one and added along their tree. Nothing where a network's shards are not, or where
/// its batch is too small for two.
pub fn joined_row(subject: &Subject<'_, Network>) -> Option<Row> {
    let network = subject.model;
    let (x, params): (Vec<f32>, Vec<f32>) = (cast(&subject.input), cast(&subject.params));
    let samples = x.len() / network.input_len();
    let mut numbers = (2..=SHARDS).rev();
    let shards = numbers.find(|&shards| joins(samples, shards))?;
    if !network.joins_shards() {
        return None;
    }
    let pass = Pass {
        kernels: Kernels::Fast,
        ..subject.pass
    };
    // The gradient of the loss over all samples: any would do, as long as both are given the same.
    let mut tape = Default::default();
    network.compute_forward(&params, &x, &pass, &mut tape);
    let output = network.output(&tape);
    let mut d_output = vec![0.0; output.len()];
    let target = subject.target.cast();
    subject.loss.compute(output, &target, Some(&mut d_output));

    let part = |all: &[f32], of: &Range<usize>| {
        let each = all.len() / samples;
        all[of.start * each..of.end * each].to_vec()
    };
    let run = |of: Range<usize>, pass: Pass| {
        let (x, d_y) = (part(&x, &of), part(&d_output, &of));
        let mut tape = Default::default();
        network.compute_forward(&params, &x, &pass, &mut tape);
        let (mut d_params, mut d_x) = (vec![f32::NAN; params.len()], vec![f32::NAN; x.len()]);
        let grads = Grads::both(&mut d_params, &mut d_x);
        network.compute_backward(&params, &x, &pass, &mut tape, &d_y, grads);
        (network.output(&tape).to_vec(), d_x, d_params)
    };
    let (mut output, mut d_x) = (Vec::new(), Vec::new());
    let d_params = Tree::new(shards).sum_all(
        |shard| {
            let of = cut(samples, shard, shards);
            let alone = run(of.clone(), pass.from(pass.first + of.start));
            output.extend(alone.0);
            d_x.extend(alone.1);
            Some(alone.2)
        },
        |mut a, b| {
            add_to(&mut a, &b);
            a
        },
    )?;
    let segments = Segments::new(samples, shards, 0..shards);
    let at_once = run(0..samples, pass.of_segments(segments));
    let worst = worst_of([
        equal_bits(&at_once.0, &output),
        equal_bits(&at_once.1, &d_x),
        equal_bits(&at_once.2, &d_params),
    ]);
    let label = format!("{shards} shards at once");
    Some(Row::compared(&subject.name, label, Link::Processes, &worst))
}
