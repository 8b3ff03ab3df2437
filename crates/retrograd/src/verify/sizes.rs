//! Sizes around the cuts: every kernel on both sides of where it takes another path.
//!
//! A small model runs one block of everything. Here a layer's small network is stretched along one axis
//! (rows, inputs, outputs, a plane's pixels, a node's neighbours) to one less than a cut,
//! just so much and one more; [`Draw::Deep`] stretches two axes at a time. The f64 reference, which cuts
//! nothing, is the oracle, with the bound that is predicted for every model; the number of threads and
//! memory used before must change no bit.

use std::collections::BTreeSet;

use super::builtin::network::case_of;
use super::builtin::{graph, subject};
use super::chain::{Expectation, Options, precision_rows, reuse_rows, thread_evaluations};
use super::families::On;
use super::precision::SamplePlan;
use super::processes::joined_row;
use super::report::{Link, Report, Row, Verdict, merged};
use super::subject::Subject;
use crate::cuts::Cut;
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
    /// Where a device's kernels cut, beside [`DEVICE_CUTS`].
    device_cuts: Vec<Cut>,
    /// The largest that means something.
    most: usize,
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
    /// A model of another family, which is handed to [`stretched`].
    Model(CheckSizes),
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

    /// A model of another family: what makes it hands it to [`stretched`].
    pub(crate) fn model(name: &'static str, check: CheckSizes) -> Self {
        Self::of(name, Make::Model(check))
    }

    /// A routine that is checked by itself.
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
        let most = usize::MAX;
        self.axes.push(Axis {
            name,
            usual,
            cuts,
            device_cuts: Vec::new(),
            most,
        });
        self
    }

    /// With sizes at which a device's kernels cut an axis, beside those that all have.
    #[cfg(feature = "gpu")]
    pub(crate) fn on_device(mut self, name: &str, cuts: impl IntoIterator<Item = Cut>) -> Self {
        let axis = self.axes.iter_mut().find(|axis| axis.name == name);
        axis.expect("one of its axes").device_cuts.extend(cuts);
        self
    }

    /// With at most so much on the last axis: beyond it rounding is all that is left.
    pub(crate) fn most(mut self, most: usize) -> Self {
        if let Some(axis) = self.axes.last_mut() {
            axis.most = most;
        }
        self
    }

    /// Its cuts on all axes.
    pub fn cuts(&self) -> impl Iterator<Item = &Cut> {
        (self.axes.iter()).flat_map(|a| a.cuts.iter().chain(&a.device_cuts))
    }

    /// Whether a GPU computes it, too.
    pub fn is_model(&self) -> bool {
        !matches!(self.make, Make::Own(_))
    }

    /// The sizes that are checked.
    pub fn sizes(&self, draw: Draw, on: On) -> Vec<Vec<usize>> {
        match on {
            On::Cpu => self.drawn(draw, |axis, _| axis.cuts.iter().map(|c| c.size).collect()),
            On::Gpu(_) if !self.is_model() => Vec::new(),
            On::Gpu(_) => {
                let mut sizes = self.drawn(draw, |axis, _| {
                    let own = axis.device_cuts.iter().map(|c| c.size);
                    own.chain(DEVICE_CUTS).collect()
                });
                let mut many: Vec<usize> = self.axes.iter().map(|a| a.usual).collect();
                if let Some(first) = self.axes.iter().position(|a| a.most >= DEVICE_MANY) {
                    many[first] = DEVICE_MANY;
                    sizes.push(many);
                }
                sizes
            }
        }
    }

    /// The sizes that are checked, none twice.
    fn drawn(&self, draw: Draw, cuts: impl Fn(&Axis, usize) -> Vec<usize>) -> Vec<Vec<usize>> {
        let usual: Vec<usize> = self.axes.iter().map(|a| a.usual).collect();
        let mut all = BTreeSet::new();
        let around = |axis: &Axis, place: usize| -> BTreeSet<usize> {
            let sizes = cuts(axis, place).into_iter();
            let sizes = sizes.flat_map(|s| [s.saturating_sub(1), s, s + 1]);
            sizes.filter(|&s| s > 0 && s <= axis.most).collect()
        };
        for (i, axis) in self.axes.iter().enumerate() {
            for size in around(axis, i) {
                let mut sizes = usual.clone();
                sizes[i] = size;
                all.insert(sizes);
            }
        }
        if draw == Draw::Deep {
            for (i, first) in self.axes.iter().enumerate() {
                for (j, second) in self.axes.iter().enumerate().skip(i + 1) {
                    let pairs = self.pairs(&around(first, i), &around(second, j), (i, j));
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

/// Where the kernels of a device cut, along any axis: tiles of 4 and of 8 results (8 is an edge of
/// both), workgroups and runs of 64.
const DEVICE_CUTS: [usize; 2] = [8, 64];
/// And a size of the first axis at which every kernel has several workgroups, runs and pieces.
const DEVICE_MANY: usize = 150;

/// One stretched thing at every size of a draw. A size that cannot be built is a failure of the
/// declaration, and a row.
pub fn check(stretch: &Stretch, draw: Draw, options: &Options) -> Report {
    let mut report = Report::default();
    for sizes in stretch.sizes(draw, options.on) {
        report.extend(check_one(stretch, &sizes, options));
    }
    report
}

/// One of its sizes.
pub fn check_one(stretch: &Stretch, sizes: &[usize], options: &Options) -> Report {
    let (name, label) = (format!("sizes: {}", stretch.name), stretch.label(sizes));
    options.say(&format!("{name}, {label}"));
    let rows = match stretch.rows(&name, &label, sizes, options) {
        Ok(rows) => by_link(&name, &label, &rows),
        Err(error) => {
            let row = Row::unchecked(&name, &label, Link::Cpu, error.to_string());
            let verdict = Verdict::Fail;
            vec![Row { verdict, ..row }]
        }
    };
    Report { rows }
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
                let subject = subject(&format!("{name}, {label}"), &case, loss);
                let mut rows = stretched(&subject, options)?;
                if options.on == On::Cpu {
                    rows.extend(joined_row(&subject));
                }
                Ok(rows)
            }
            Make::Graph(make) => {
                let (case, loss) = graph::sized(name, &make(sizes))?;
                stretched(&subject(&format!("{name}, {label}"), &case, loss), options)
            }
            Make::Model(check) | Make::Own(check) => check(sizes, options),
        }
    }

    /// Rows 257, outputs 8: the axes whose sizes are not the usual ones.
    pub(crate) fn label(&self, sizes: &[usize]) -> String {
        let stretched = self.axes.iter().zip(sizes).filter(|(a, s)| a.usual != **s);
        let words: Vec<String> = stretched.map(|(a, s)| format!("{} {s}", a.name)).collect();
        match words.is_empty() {
            true => "usual sizes".to_string(),
            false => words.join(", "),
        }
    }
}

/// A model of drawn sizes: kernels and, on the CPU, threads and memory.
pub(crate) fn stretched<M: Model>(subject: &Subject<'_, M>, options: &Options) -> Result<Vec<Row>> {
    let Some(mut device) = subject.model.verifier(options.on)? else {
        let why = "it has no kernels there";
        return Ok(vec![Row::unchecked(
            &subject.name,
            "everything",
            Link::Gpu,
            why,
        )]);
    };
    if options.touches {
        device.evaluate(subject)?;
        return Ok(Vec::new());
    }
    let granted = device.granted();
    let expected = options.expectation(subject, || {
        Expectation::new(subject, granted, &[], 0, &PLAN)
    });
    options.say(&format!("{}: f32 kernels", subject.name));
    let evaluation = device.evaluate(subject)?;
    let mut rows = precision_rows(subject, &expected, &evaluation, device.link());
    if options.on == On::Cpu {
        rows.extend(thread_evaluations(subject, options));
        rows.extend(reuse_rows(subject, &expected));
    }
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
