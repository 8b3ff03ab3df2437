//! A trained model verified at the end of its run: links 1, 3 and 5 on a small batch, within a few
//! seconds.
//!
//! The same checks as [`super::check`], with less of everything: eight runs or a few more for the
//! bounds, a sample of every tensor where all elements would take long, three steps for the
//! threads. How much is counted in roundings, not in seconds, so that the same model gets the same
//! checks everywhere. Only a model whose reference takes so long that a few runs of it would be
//! noticed is left unchecked in link 1, or in links 1 and 3, and its report says so.

use crate::clock::Instant;
use std::time::Duration;

use super::chain::{self, Expectation, Options};
use super::device::{Cpu, Device};
use super::differences::Coverage;
use super::machines::machine_rows;
use super::precision::SamplePlan;
use super::processes::process_rows;
use super::report::{Link, Report, Row};
use super::subject::{Runner, Subject};
use crate::{Kernels, Loss, Model, Result, Target};

/// A forward pass of the f64 reference that takes longer is too long for the end of a run: an
/// evaluation is 3 of it, one on the number that rounds 8 times that, and at least 9 are needed.
/// On two cores that makes 3 s.
const LONGEST_FORWARD: Duration = Duration::from_millis(25 * SLOWER);
/// The same for the differences. A tensor's element takes 5 forward passes, and 37 where none of its
/// steps is free of kinks and rounding; there may be tens of tensors.
const LONGEST_DIFFERENCED: Duration = Duration::from_millis(10 * SLOWER);

/// Forward passes are timed so often at most, and none is begun after so long.
const PASSES: u32 = 20;
const TIMING: Duration = Duration::from_millis(500);

/// A build with assertions, or under a sanitizer, is so much slower: what is checked should be the same.
const SLOWER: u64 = if cfg!(debug_assertions) { 20 } else { 1 };
/// Roundings of all runs: half a second on two cores, more where eight runs cost more.
const ROUNDINGS: u64 = 200_000_000;
/// What the differences may cost in the same unit. An element takes 5 forward passes in f64, or
/// more at a kink; that is a quarter of an evaluation on the number that rounds.
const DIFFERENCES: u64 = 200_000_000;
const ELEMENT: u64 = 4;

/// Checks a trained model on a small batch. An error where the arguments don't fit together.
pub fn check_trained<M: Model>(
    name: &str,
    model: &M,
    params: &[f32],
    input: &M::Input<f32>,
    target: &Target<f32>,
    loss: Loss,
) -> Result<Report> {
    check_trained_on(&mut Cpu, name, model, params, input, target, loss)
}

/// The same with the kernels of a device.
pub fn check_trained_on<M: Model>(
    device: &mut dyn Device<M>,
    name: &str,
    model: &M,
    params: &[f32],
    input: &M::Input<f32>,
    target: &Target<f32>,
    loss: Loss,
) -> Result<Report> {
    let subject = Subject::new(name, model, params, input, target, loss)?;
    let forward = forward_time(&subject);
    let options = Options {
        thread_steps: 3,
        ..Options::default()
    };
    let mut report = Report::default();
    let too_long = |link| {
        let why = format!(
            "the f64 reference takes {} ms for one forward pass, too long for the end of a run",
            forward.as_millis()
        );
        Row::unchecked(name, "gradients", link, why)
    };
    if forward > LONGEST_FORWARD {
        report.rows.push(too_long(Link::Differences));
        report.rows.push(too_long(device.link()));
    } else {
        let plan = SamplePlan {
            roundings: ROUNDINGS,
            ..SamplePlan::default()
        };
        let expected = Expectation::new(&subject, device.granted(), &[], 0, &plan);
        if forward > LONGEST_DIFFERENCED {
            report.rows.push(too_long(Link::Differences));
        } else {
            let tensors = model.layout().tensors().iter().filter(|t| !t.frozen);
            let sections = tensors.count() + 1;
            let coverage = coverage(expected.samples.roundings, sections);
            let numeric = chain::differences_of(&subject, &expected, &coverage);
            let rows = chain::differences_rows(&subject, &expected, &numeric, &expected.exact);
            report.rows.extend(rows);
        }
        let evaluation = device.evaluate(&subject)?;
        let rows = chain::precision_rows(&subject, &expected, &evaluation, device.link());
        report.rows.extend(rows);
    }
    if device.link() == Link::Cpu {
        report.rows.extend(chain::thread_rows(&subject, &options));
        report.rows.extend(process_rows(&subject));
        report.rows.extend(machine_rows(&subject, &options));
    }
    Ok(report)
}

/// The shortest of a few forward passes of the reference. The machine may be busy with other things, and
/// a pass wait for a core longer than it takes: one that seems too long is timed again, unless the reference is
/// so slow that this would be noticed.
fn forward_time<M: Model>(subject: &Subject<'_, M>) -> Duration {
    let mut runner = Runner::<M, f64>::new(subject, Kernels::Reference);
    let begin = Instant::now();
    let mut shortest = Duration::MAX;
    for pass in 1.. {
        let start = Instant::now();
        runner.loss(&subject.params);
        shortest = shortest.min(start.elapsed());
        let settled = pass >= 2 && shortest <= LONGEST_DIFFERENCED;
        if settled || pass >= 2 && begin.elapsed() > TIMING || pass == PASSES {
            break;
        }
    }
    shortest
}

/// The elements that can be afforded: all, or the same power of two of every tensor.
fn coverage(roundings: u64, sections: usize) -> Coverage {
    let affordable = (DIFFERENCES * ELEMENT / roundings.max(1)).min(4_000) as usize;
    let each = (affordable / sections).clamp(1, 64);
    Coverage {
        all_up_to: affordable,
        per_tensor: 1 << each.ilog2(),
        ..Coverage::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::network::{LayerSpec, Network, NetworkSpec};
    use crate::verify::{Granted, Verdict};

    #[test]
    fn a_small_network_is_checked_whole_in_all_three_links_and_a_wrong_gradient_is_seen() {
        let layers = vec![LayerSpec::dense(7), LayerSpec::tanh(), LayerSpec::dense(3)];
        let network = Network::new(&NetworkSpec::new(&[5], layers)).unwrap();
        let params = network.init(3);
        let input: Vec<f32> = (0..20).map(|i| (i as f32 * 0.7).sin()).collect();
        let target = Target::classes(vec![0, 1, 2, 1]);
        let check = |loss, target: &Target<f32>| {
            check_trained("small", &network, &params, &input, target, loss)
        };
        let report = check(Loss::CrossEntropy, &target).unwrap();
        assert!(report.passed(), "{}", report.table());
        for link in [Link::Differences, Link::Cpu, Link::Threads, Link::Machines] {
            assert!(report.rows.iter().any(|row| row.link == link), "{link:?}");
        }
        // 4 tensors and the batch, every element.
        let elements: usize = report
            .rows
            .iter()
            .filter(|row| row.link == Link::Differences)
            .map(|row| row.elements)
            .sum();
        assert_eq!(elements, params.len() + input.len());
        // What doesn't fit together is an error, not a verdict.
        assert!(check(Loss::Mse, &target).is_err());
    }

    /// Equal nodes are rounded alike in f32, and their errors add up instead of averaging out: a
    /// bound from roundings that are drawn anew for every operation is too narrow here.
    #[test]
    fn graphs_of_equal_nodes_are_not_accused() {
        use crate::graph::{Graph, GraphBatch, GraphNetwork};
        let spec = "features = 3\nlayers = [{ kind = \"gin\", out = 8 }, { kind = \"layer_norm\" }, \
                    { kind = \"relu\" }, { kind = \"gin\", out = 8 }, { kind = \"layer_norm\" }, \
                    { kind = \"relu\" }, { kind = \"sum_pool\" }, { kind = \"dense\", out = 2 }]";
        let network = GraphNetwork::new(&toml::from_str(spec).unwrap()).unwrap();
        let nodes: Vec<u32> = (0..25).collect();
        let next: Vec<u32> = nodes.iter().map(|n| (n + 1) % 25).collect();
        let ring = Arc::new(Graph::undirected(25, &nodes, &next).unwrap());
        let ring = GraphBatch::dense(ring, 3, [0.7, -0.3, 0.45].repeat(25)).unwrap();
        let batch = GraphBatch::union(&vec![&ring; 40]).unwrap();
        let target = Target::classes((0..40).map(|g| u32::from(g < 10)).collect());
        for seed in 0..8 {
            let (params, loss) = (network.init(seed), Loss::CrossEntropy);
            let subject = Subject::new("rings", &network, &params, &batch, &target, loss).unwrap();
            let plan = SamplePlan::default();
            let expected = Expectation::new(&subject, &Granted::CPU, &[], 0, &plan);
            let evaluation = Cpu.evaluate(&subject).unwrap();
            let rows = chain::precision_rows(&subject, &expected, &evaluation, Link::Cpu);
            let report = Report { rows };
            assert!(report.passed(), "seed {seed}\n{}", report.table());
        }
    }

    #[test]
    fn the_dearer_a_model_the_fewer_of_its_elements() {
        assert_eq!(coverage(1_000, 5).all_up_to, 4_000);
        assert_eq!(coverage(10_000_000, 5).per_tensor, 16);
        assert_eq!(coverage(u64::MAX, 5).per_tensor, 1);
        let unchecked = Row::unchecked("m", "t", Link::Cpu, "why");
        assert_eq!(unchecked.verdict, Verdict::Unchecked);
    }
}
