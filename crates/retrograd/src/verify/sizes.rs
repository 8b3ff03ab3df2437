//! Sizes around the cuts: every kernel on both sides of where it takes another path.
//!
//! A small model runs one block of everything. Here a layer's small network is stretched along one axis
//! (rows, inputs, outputs, a plane's pixels, a node's neighbours) to one less than a [cut](crate::cuts),
//! just so much and one more; [`Draw::Deep`] stretches two axes at a time. The f64 reference, which cuts
//! nothing, is the oracle, with the bound that is predicted for every model; the number of threads and
//! memory used before must change no bit.

use std::collections::BTreeSet;

use super::builtin::network::case_of;
use super::builtin::{graph, subject};
use super::chain::{Expectation, Options, precision_rows, reuse_rows, thread_evaluations};
use super::device::{Cpu, Device};
use super::precision::SamplePlan;
use super::processes::joined_row;
use super::report::{Link, Report, Row, Verdict, merged};
use super::subject::Subject;
use crate::cuts::Cut;
use crate::network::Network;
use crate::rng::Key;
use crate::{FAMILIES, Loss, Model, Result, parallel};

/// How many sizes are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Draw {
    /// One axis at a time.
    #[default]
    Plain,
    /// And two at a time.
    Deep,
}

/// A model, or a routine, whose sizes are drawn.
pub struct Stretch {
    /// What is stretched: the layer's kind, or the routine's name.
    pub name: &'static str,
    axes: Vec<Axis>,
    make: Make,
}

/// One size of a model.
struct Axis {
    name: &'static str,
    /// While another axis is stretched.
    usual: usize,
    cuts: Vec<Cut>,
}

/// A network by its sizes.
pub(crate) struct SizedNetwork {
    /// Of one sample.
    pub input: Vec<usize>,
    /// The layers as JSON.
    pub layers: String,
    pub samples: usize,
    pub loss: Loss,
}

/// What checks something at some sizes.
pub(crate) type CheckSizes = fn(&[usize], &Options) -> Result<Vec<Row>>;

/// Something by its sizes.
type MakeSized<T> = Box<dyn Fn(&[usize]) -> T + Send + Sync>;

enum Make {
    Network(MakeSized<SizedNetwork>),
    Graph(MakeSized<graph::SizedGraph>),
    /// Something with an oracle of its own; it says what came out for such sizes.
    Own(CheckSizes),
}

impl Stretch {
    /// A network that is made from as many sizes as there will be axes.
    pub(crate) fn network(
        name: &'static str,
        make: impl Fn(&[usize]) -> SizedNetwork + Send + Sync + 'static,
    ) -> Self {
        Self::of(name, Make::Network(Box::new(make)))
    }

    /// A graph network.
    pub(crate) fn graph(
        name: &'static str,
        make: impl Fn(&[usize]) -> graph::SizedGraph + Send + Sync + 'static,
    ) -> Self {
        Self::of(name, Make::Graph(Box::new(make)))
    }

    /// A routine, or a model of another family, that is checked by itself.
    pub(crate) fn own(name: &'static str, check: CheckSizes) -> Self {
        Self::of(name, Make::Own(check))
    }

    fn of(name: &'static str, make: Make) -> Self {
        let axes = Vec::new();
        Stretch { name, axes, make }
    }

    /// With an axis: its size where another is stretched, and where work is cut along it.
    pub(crate) fn axis(
        mut self,
        name: &'static str,
        usual: usize,
        cuts: impl IntoIterator<Item = Cut>,
    ) -> Self {
        let cuts = cuts.into_iter().collect();
        self.axes.push(Axis { name, usual, cuts });
        self
    }

    /// Its cuts on all axes.
    pub fn cuts(&self) -> impl Iterator<Item = &Cut> {
        self.axes.iter().flat_map(|a| &a.cuts)
    }

    /// Whether a GPU computes it too.
    pub fn is_network(&self) -> bool {
        matches!(self.make, Make::Network(_))
    }

    /// The sizes that are checked, none twice.
    fn drawn(&self, draw: Draw, of: impl Fn(&Cut) -> bool) -> Vec<Vec<usize>> {
        let usual: Vec<usize> = self.axes.iter().map(|a| a.usual).collect();
        let mut all = BTreeSet::new();
        let around = |axis: &Axis| -> BTreeSet<usize> {
            let sizes = axis.cuts.iter().filter(|c| of(c)).map(|c| c.size);
            let sizes = sizes.flat_map(|s| [s.saturating_sub(1), s, s + 1]);
            sizes.filter(|&s| s > 0).collect()
        };
        for (i, axis) in self.axes.iter().enumerate() {
            for size in around(axis) {
                let mut sizes = usual.clone();
                sizes[i] = size;
                all.insert(sizes);
            }
        }
        if draw == Draw::Deep {
            for (i, first) in self.axes.iter().enumerate() {
                for (j, second) in self.axes.iter().enumerate().skip(i + 1) {
                    let pairs = self.pairs(&around(first), &around(second), (i, j));
                    all.extend(pairs.into_iter().map(|(a, b)| {
                        let mut sizes = usual.clone();
                        (sizes[i], sizes[j]) = (a, b);
                        sizes
                    }));
                }
            }
        }
        all.into_iter().collect()
    }

    /// Pairs of two axes' sizes: all, or [`PAIRS`] drawn where there are more; not those that would
    /// take minutes.
    fn pairs(
        &self,
        first: &BTreeSet<usize>,
        second: &BTreeSet<usize>,
        (i, j): (usize, usize),
    ) -> Vec<(usize, usize)> {
        let both = |&a: &usize| second.iter().map(move |&b| (a, b));
        let mut pairs: Vec<_> = (first.iter().flat_map(both))
            .filter(|(a, b)| a * b <= LARGEST_PAIR)
            .collect();
        let key = Key::new(0).purpose("pairs of sizes").purpose(self.name);
        let mut stream = key.index((i * self.axes.len() + j) as u64).stream();
        while pairs.len() > PAIRS {
            let one = stream.below(pairs.len());
            pairs.swap_remove(one);
        }
        pairs
    }
}

/// The most pairs of sizes of two axes.
const PAIRS: usize = 12;
/// Of a larger product a check would take tens of seconds.
const LARGEST_PAIR: usize = 1 << 17;

/// Eight runs, the fewest whose factor is of use: what is looked for is a lost element, far above it.
const PLAN: SamplePlan = SamplePlan {
    runs: 8,
    roundings: 0,
    seed: 1,
};

/// All that is stretched: every layer kind's, and the shared routines'.
pub fn all() -> Vec<Stretch> {
    let mut all = crate::layer::sizes();
    all.extend(FAMILIES.iter().flat_map(|f| (f.sizes)()));
    all.extend(super::routines::sizes());
    all
}

/// A constant of a GPU's kernel.
fn on_gpu(cut: &Cut) -> bool {
    cut.file.contains("gpu")
}

/// One stretched thing at every size of a draw. A size that cannot be built is a failure of the
/// declaration, and a row.
pub fn check(stretch: &Stretch, draw: Draw, options: &Options) -> Report {
    let mut report = Report::default();
    for sizes in stretch.drawn(draw, |c| !on_gpu(c)) {
        let (name, label) = (format!("sizes: {}", stretch.name), stretch.label(&sizes));
        options.say(&format!("{name}, {label}"));
        match stretch.rows(&name, &label, &sizes, options) {
            Ok(rows) => report.rows.extend(by_link(&name, &label, &rows)),
            Err(error) => {
                let row = Row::unchecked(&name, &label, Link::Cpu, error.to_string());
                let verdict = Verdict::Fail;
                report.rows.push(Row { verdict, ..row });
            }
        }
    }
    report
}

/// A stretched network at every size that a device's kernels are cut at.
pub fn check_on(
    stretch: &Stretch,
    draw: Draw,
    device: &mut dyn Device<Network>,
    options: &Options,
) -> Result<Report> {
    let mut report = Report::default();
    let Make::Network(make) = &stretch.make else {
        return Ok(report);
    };
    for sizes in stretch.drawn(draw, on_gpu) {
        let (name, label) = (format!("sizes: {}", stretch.name), stretch.label(&sizes));
        options.say(&format!("{name}, {label}"));
        let (case, loss) = case_of(&name, &make(&sizes))?;
        let subject = subject(&label, &case, loss);
        let expected = Expectation::new(&subject, device.granted(), &[], 0, &PLAN);
        let evaluation = device.evaluate(&subject)?;
        let rows = precision_rows(&subject, &expected, &evaluation, device.link());
        report.rows.extend(by_link(&name, &label, &rows));
    }
    Ok(report)
}

impl Stretch {
    /// Everything that is compared at some sizes.
    fn rows(
        &self,
        name: &str,
        label: &str,
        sizes: &[usize],
        options: &Options,
    ) -> Result<Vec<Row>> {
        match &self.make {
            Make::Network(make) => {
                let (case, loss) = case_of(name, &make(sizes))?;
                let subject = subject(label, &case, loss);
                let mut rows = on_cpu(&subject, options)?;
                rows.extend(joined_row(&subject));
                Ok(rows)
            }
            Make::Graph(make) => {
                let (case, loss) = graph::sized(name, &make(sizes))?;
                on_cpu(&subject(label, &case, loss), options)
            }
            Make::Own(check) => check(sizes, options),
        }
    }

    /// Rows 257, outputs 8: the axes whose sizes are not the usual ones.
    fn label(&self, sizes: &[usize]) -> String {
        let stretched = self.axes.iter().zip(sizes).filter(|(a, s)| a.usual != **s);
        let words: Vec<String> = stretched.map(|(a, s)| format!("{} {s}", a.name)).collect();
        match words.is_empty() {
            true => "usual sizes".to_string(),
            false => words.join(", "),
        }
    }
}

/// A model of drawn sizes: kernels, threads and memory.
pub(crate) fn on_cpu<M: Model>(subject: &Subject<'_, M>, options: &Options) -> Result<Vec<Row>> {
    let mut device = Cpu;
    let device: &mut dyn Device<M> = &mut device;
    let expected = Expectation::new(subject, device.granted(), &[], 0, &PLAN);
    let evaluation = device.evaluate(subject)?;
    let mut rows = precision_rows(subject, &expected, &evaluation, Link::Cpu);
    rows.extend(thread_evaluations(subject, options));
    rows.extend(reuse_rows(subject, &expected));
    Ok(rows)
}

/// A row for each link: the worst of its tensors.
fn by_link(name: &str, label: &str, rows: &[Row]) -> Vec<Row> {
    let links: BTreeSet<Link> = rows.iter().map(|r| r.link).collect();
    let of = |link: Link| {
        let own: Vec<&Row> = rows.iter().filter(|r| r.link == link).collect();
        merged(name, label, link, &own)
    };
    links.into_iter().map(of).collect()
}

/// Everything that is stretched, several at a time.
pub fn check_all(
    all: &[Stretch],
    draw: Draw,
    options: &Options,
    done: impl Fn() + Send + Sync,
) -> Report {
    let mut report = Report::default();
    let reports = parallel::isolated(all.len(), |i| {
        let report = check(&all[i], draw, options);
        done();
        report
    });
    reports
        .into_iter()
        .for_each(|checked| report.extend(checked));
    report
}
