//! The chain on a small model written here, right and wrong in single places.

mod cuts;

use super::*;
use crate::rng::Key;
use crate::train::Precision;
use crate::{Grads, Layout, Model, Pass, Scalar, Target};

/// Where the model is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// The activation's derivative is forgotten.
    NoSlope,
    /// The last weight's gradient is a millionth too large.
    Millionth,
    /// The first bias's gradient is never written.
    Forgotten,
    /// The parameters' gradient is added to what is there.
    Added,
    /// In f32, one part in 10,000 is missing: what a bad kernel does, not what rounding does.
    Sloppy,
    /// The tape of the first forward is kept.
    Stale,
}

/// y = W₂·f(W₁x + b₁) + b₂, f = tanh or ReLU.
struct Tiny {
    layout: Layout,
    inputs: usize,
    hidden: usize,
    outputs: usize,
    relu: bool,
    fault: Fault,
}

#[derive(Default)]
struct Tape<T> {
    hidden: Vec<T>,
    output: Vec<T>,
}

impl Tiny {
    fn new(relu: bool, fault: Fault) -> Self {
        let (inputs, hidden, outputs) = (3, 5, 2);
        let mut layout = Layout::new();
        layout.push("0.weight", &[hidden, inputs]);
        layout.push("0.bias", &[hidden]);
        layout.push_stored("2.weight", &[outputs, hidden], &[1, 0]);
        layout.push("2.bias", &[outputs]);
        Tiny {
            layout,
            inputs,
            hidden,
            outputs,
            relu,
            fault,
        }
    }
}

impl Model for Tiny {
    type Input<T: Scalar> = Vec<T>;
    type Tape<T: Scalar> = Tape<T>;

    fn layout(&self) -> &Layout {
        &self.layout
    }
    fn layout_mut(&mut self) -> &mut Layout {
        &mut self.layout
    }
    fn init(&self, seed: u64) -> Vec<f32> {
        let mut stream = Key::new(seed).purpose("init").stream();
        (0..self.layout.len())
            .map(|_| stream.range(-0.7, 0.7) as f32)
            .collect()
    }
    fn compute_forward<T: Scalar>(&self, p: &[T], x: &Vec<T>, _: &Pass, tape: &mut Tape<T>) {
        if self.fault == Fault::Stale && !tape.hidden.is_empty() {
            return;
        }
        let [w1, b1, w2, b2] = [0, 1, 2, 3].map(|i| &p[self.layout.tensors()[i].range()]);
        tape.hidden.clear();
        tape.output.clear();
        for x in x.chunks_exact(self.inputs) {
            let first = tape.hidden.len();
            for j in 0..self.hidden {
                let row = &w1[j * self.inputs..(j + 1) * self.inputs];
                let sum: T = row.iter().zip(x).map(|(&w, &x)| w * x).sum::<T>() + b1[j];
                let h = if self.relu {
                    sum.max(T::ZERO)
                } else {
                    sum.tanh()
                };
                tape.hidden.push(h);
            }
            for k in 0..self.outputs {
                let mut sum = b2[k];
                for j in 0..self.hidden {
                    sum += w2[j * self.outputs + k] * tape.hidden[first + j];
                }
                tape.output.push(sum);
            }
        }
    }
    fn output<'t, T: Scalar>(&self, tape: &'t Tape<T>) -> &'t [T] {
        &tape.output
    }
    fn compute_backward<T: Scalar>(
        &self,
        p: &[T],
        x: &Vec<T>,
        _: &Pass,
        tape: &mut Tape<T>,
        d_y: &[T],
        grads: Grads<'_, T>,
    ) {
        let ranges = [0, 1, 2, 3].map(|i| self.layout.tensors()[i].range());
        let [w1, _, w2, _] = ranges.clone().map(|r| &p[r]);
        let mut d = vec![T::ZERO; p.len()];
        let mut d_input = vec![T::ZERO; x.len()];
        let samples = x.len() / self.inputs;
        for s in 0..samples {
            let x = &x[s * self.inputs..(s + 1) * self.inputs];
            let hidden = &tape.hidden[s * self.hidden..(s + 1) * self.hidden];
            let d_y = &d_y[s * self.outputs..(s + 1) * self.outputs];
            for j in 0..self.hidden {
                let mut d_h = T::ZERO;
                for k in 0..self.outputs {
                    d_h += w2[j * self.outputs + k] * d_y[k];
                    d[ranges[2].start + j * self.outputs + k] += d_y[k] * hidden[j];
                }
                let slope = match (self.relu, self.fault) {
                    (_, Fault::NoSlope) => T::ONE,
                    (true, _) if hidden[j] > T::ZERO => T::ONE,
                    (true, _) => T::ZERO,
                    (false, _) => T::ONE - hidden[j] * hidden[j],
                };
                let d_sum = d_h * slope;
                d[ranges[1].start + j] += d_sum;
                for i in 0..self.inputs {
                    d[j * self.inputs + i] += d_sum * x[i];
                    d_input[s * self.inputs + i] += w1[j * self.inputs + i] * d_sum;
                }
            }
            for k in 0..self.outputs {
                d[ranges[3].start + k] += d_y[k];
            }
        }
        let wrong = match self.fault {
            Fault::Millionth => 1.0 + 1e-6,
            Fault::Sloppy if T::NAME == "f32" => 1.0 + 1e-4,
            _ => 1.0,
        };
        for v in &mut d[ranges[2].clone()] {
            *v *= T::from_f64(wrong);
        }
        if let Some(params) = grads.params {
            for (i, (to, from)) in params.iter_mut().zip(d).enumerate() {
                if self.fault == Fault::Forgotten && ranges[1].contains(&i) {
                    continue;
                }
                if grads.accumulate || self.fault == Fault::Added {
                    *to += from;
                } else {
                    *to = from;
                }
            }
        }
        if let Some(input) = grads.input {
            input.copy_from_slice(&d_input);
        }
    }
    fn cast_input<T: Scalar, U: Scalar>(&self, input: &Vec<T>) -> Vec<U> {
        crate::scalar::cast(input)
    }
    fn pattern<T: Scalar>(&self, _: &[T], _: &Vec<T>, tape: &Tape<T>, pattern: &mut Vec<u32>) {
        if self.relu {
            pattern.extend(tape.hidden.iter().map(|&h| u32::from(h > T::ZERO)));
        }
    }
}

fn batch() -> (Vec<f32>, Target<f32>) {
    let x = (0..21).map(|i| (i as f32 * 0.37).sin() * 1.5).collect();
    let t = (0..14).map(|i| (i as f32 * 0.71).cos()).collect();
    (x, Target::values(t))
}

fn quick() -> Options {
    Options {
        steps: 3,
        thread_steps: 3,
        ..Options::default()
    }
}

fn report(relu: bool, fault: Fault, loss: Loss) -> Report {
    let model = Tiny::new(relu, fault);
    let (x, target) = batch();
    check("tiny", &model, &model.init(3), &x, &target, loss, &quick()).unwrap()
}

#[test]
fn a_right_model_passes_every_link() {
    for relu in [false, true] {
        for loss in [Loss::Mse, Loss::L1, Loss::Huber] {
            let report = report(relu, Fault::None, loss);
            assert!(report.passed(), "{}\n{}", report.table(), report.summary());
            let links: std::collections::BTreeSet<Link> =
                report.rows.iter().map(|r| r.link).collect();
            // Differences, f32, threads, processes, instruction sets, reused memory, trajectories.
            assert_eq!(links.len(), 7, "{links:?}");
            // Every parameter and every input was differenced.
            let differenced: usize = report
                .rows
                .iter()
                .filter(|r| r.link == Link::Differences)
                .map(|r| r.elements)
                .sum();
            assert_eq!(differenced, 15 + 5 + 10 + 2 + 21);
        }
    }
}

#[test]
fn every_fault_is_caught_by_the_link_that_should_see_it() {
    for (fault, link) in [
        (Fault::NoSlope, Link::Differences),
        (Fault::Millionth, Link::Differences),
        (Fault::Forgotten, Link::Differences),
        (Fault::Added, Link::Differences),
        (Fault::Sloppy, Link::Cpu),
        (Fault::Stale, Link::Reuse),
    ] {
        let report = report(false, fault, Loss::Mse);
        assert!(
            report
                .rows
                .iter()
                .any(|r| r.link == link && r.verdict == Verdict::Fail),
            "{fault:?} went unseen by {}\n{}",
            link.name(),
            report.table()
        );
    }
}

#[test]
fn an_element_at_a_kink_is_counted_and_checked_elsewhere() {
    let model = Tiny::new(true, Fault::None);
    let (mut x, target) = batch();
    // The first sample is 0 and so are the biases: exactly on the ReLUs' kinks.
    x[..3].fill(0.0);
    let mut params = model.init(3);
    params[15..20].fill(0.0);
    let report = check("kink", &model, &params, &x, &target, Loss::Mse, &quick()).unwrap();
    let differences = |tensor: &str| {
        let mut rows = report.rows.iter();
        rows.find(|r| r.link == Link::Differences && r.tensor == tensor)
            .unwrap()
    };
    assert_eq!(differences("0.bias").at_kink, 5);
    assert_eq!(differences("0.bias").verdict, Verdict::Pass);
    assert_eq!(differences("0.bias").elements, 5);
    assert_eq!(differences("2.bias").at_kink, 0);
}

#[test]
fn the_predicted_bound_is_close_to_the_true_error() {
    let report = report(false, Fault::None, Loss::Mse);
    for row in report.rows.iter().filter(|r| r.link == Link::Cpu) {
        // Not so wide that it would hide anything: within 1e-4 of numbers around 0.1 to 1.
        assert!(row.bound < 1e-5, "{}: {}", row.tensor, row.bound);
    }
}

#[test]
fn arguments_that_do_not_fit_are_errors_and_say_so() {
    let model = Tiny::new(false, Fault::None);
    let (x, target) = batch();
    let params = model.init(3);
    let check = |params: &[f32], x: &Vec<f32>, target: &Target<f32>| {
        check("tiny", &model, params, x, target, Loss::Mse, &quick())
            .unwrap_err()
            .to_string()
    };
    assert!(check(&params[1..], &x, &target).contains("31 numbers, needs 32"));
    let mut bad = x.clone();
    bad[4] = f32::NAN;
    assert!(check(&params, &bad, &target).contains("element 4 of the input"));
    let short = Target::values(vec![0.0; 13]);
    assert!(check(&params, &x, &short).contains("13 values"));
}

#[test]
fn reports_are_tables_and_json() {
    let report = report(false, Fault::NoSlope, Loss::Mse);
    let table = report.table();
    assert!(
        table.contains("FAIL") && table.contains("0.weight"),
        "{table}"
    );
    let json = report.to_json();
    assert_eq!(json["passed"], false);
    assert_eq!(json["rows"].as_array().unwrap().len(), report.rows.len());
    assert_eq!(json["counts"]["failed"], report.counts().failed);
    assert!(!Report::default().passed(), "nothing checked is not passed");
}

/// The built-in models pass every link, and central differences cover all of their elements.
#[test]
fn built_in_models_pass_and_small_ones_are_differenced_completely() {
    let models = built_in();
    let options = quick();
    let report = builtin::all(&models, |model| model.check(&options)).unwrap();
    let problems: Vec<Row> = report.problems().cloned().collect();
    assert!(problems.is_empty(), "{}", table(&problems));
    for row in report.rows.iter().filter(|r| r.link == Link::Differences) {
        let sampled = row.note.contains("sample");
        assert_eq!(sampled, row.model.contains("wide") && sampled, "{row:?}");
    }
}

/// Every mutant is caught, a dozen or more of every layer kind, and every link catches some.
#[test]
fn every_mutant_is_caught_and_every_layer_kind_has_a_dozen() {
    let models: Vec<BuiltIn> = built_in()
        .into_iter()
        .filter(BuiltIn::has_mutants)
        .collect();
    let report = builtin::all(&models, |model| model.mutants(&quick())).unwrap();
    let missed: Vec<Row> = report.problems().cloned().collect();
    assert!(missed.is_empty(), "{}", table(&missed));
    for model in &models {
        let own = report.rows.iter().filter(|r| r.model == model.name).count();
        assert!(own >= 12, "{}: {own} mutants", model.name);
    }
    for link in [
        Link::Differences,
        Link::Oracle,
        Link::Cpu,
        Link::Threads,
        Link::Machines,
        Link::Reuse,
        Link::Trajectory,
    ] {
        let name = link.name();
        assert!(
            report.rows.iter().any(|r| r.note.contains(name)),
            "{name} catches nothing"
        );
    }
}

const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference");

/// Every bundle of a family that is built passes, in f64, in f32 and along every trajectory.
#[test]
fn every_bundle_of_a_family_that_is_built_passes() {
    let mut options = quick();
    // Fewer runs and wider factors for the long ones: half a minute for all on two quiet cores.
    options.plan.roundings = 100_000_000;
    let mut checked = 0;
    let mut paths: Vec<_> = std::fs::read_dir(REFERENCE)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    paths.sort();
    for path in paths {
        let bundle = Bundle::read(&path).unwrap();
        if bundle.family() != "network" {
            continue;
        }
        let report = check_bundle(&bundle, &options).unwrap();
        let problems: Vec<Row> = report.problems().cloned().collect();
        assert!(problems.is_empty(), "{}", table(&problems));
        assert!(report.rows.len() > 15, "{}", report.summary());
        checked += 1;
    }
    assert!(checked >= 24, "{checked} bundles");
}

#[test]
fn what_nothing_can_check_is_unchecked_and_does_not_pass() {
    let path = format!("{REFERENCE}/loss_l1.safetensors");
    let mut bundle = Bundle::read(path).unwrap();
    let on_gpu = Options {
        on: On::Gpu(Precision::F32),
        ..quick()
    };
    let report = check_bundle(&bundle, &on_gpu);
    // Without GPU kernels this says so; with them it checks.
    assert!(report.is_ok());
    bundle.model["family"] = "telepathy".into();
    let report = check_bundle(&bundle, &quick()).unwrap();
    assert_eq!(report.counts().unchecked, 1);
    assert!(!report.passed() && report.table().contains("telepathy"));
}

mod bad_files {
    use proptest::prelude::*;

    use super::*;

    fn bytes() -> &'static [u8] {
        include_bytes!("../../../tests/reference/loss_l1.safetensors")
    }

    /// Reads and, where that succeeds, checks: an error or a report, never a panic.
    fn survive(bytes: &[u8]) -> bool {
        let mut options = quick();
        options.plan.roundings = 1;
        options.threads = vec![1];
        match Bundle::from_bytes("fuzz.safetensors".as_ref(), bytes) {
            Ok(bundle) => check_bundle(&bundle, &options).is_ok_and(|r| r.passed()),
            Err(error) => {
                assert!(error.to_string().contains("fuzz.safetensors"), "{error}");
                false
            }
        }
    }

    #[test]
    fn the_file_itself_survives_and_passes() {
        assert!(survive(bytes()));
    }

    #[test]
    fn lying_shapes_sizes_and_steps_are_errors() {
        let text = String::from_utf8_lossy(&bytes()[8..4000]).into_owned();
        assert!(text.contains("steps"));
        for (from, to) in [
            // Same lengths, so that the header's own size stays true.
            (&b"\\\"steps\\\": 10"[..], &b"\\\"steps\\\": 99"[..]),
            (b"\\\"out\\\": 8", b"\\\"out\\\": 9"),
            (b"\\\"input\\\": [5]", b"\\\"input\\\": [0]"),
            (b"reference-1", b"reference-9"),
        ] {
            let mut wrong = bytes().to_vec();
            let at = wrong.windows(from.len()).position(|w| w == from);
            let at = at.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(from)));
            wrong[at..at + to.len()].copy_from_slice(to);
            assert!(!survive(&wrong), "{}", String::from_utf8_lossy(to));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn random_bytes_are_errors(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert!(!survive(&bytes));
        }

        #[test]
        fn truncated_files_are_errors(cut in 1_usize..14_900) {
            prop_assert!(!survive(&bytes()[..bytes().len() - cut]));
        }

        #[test]
        fn changed_bytes_never_panic(at in 0_usize..14_900, to in any::<u8>(), n in 1_usize..4) {
            let mut wrong = bytes().to_vec();
            for i in 0..n {
                let at = (at + i * 131) % wrong.len();
                wrong[at] = to.wrapping_add(i as u8);
            }
            survive(&wrong);
        }
    }
}
