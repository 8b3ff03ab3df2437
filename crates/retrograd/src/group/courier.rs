//! What a process sends while it computes.
//!
//! The gradient of a tensor is complete before those of earlier layers are. A courier takes it from
//! there: on a thread of its own it meets the other processes and adds over them, in the order in which
//! things were posted, while the posting threads go on. Every process posts the same things in the same
//! order (the plan of a step decides it, not the clock), so their couriers make the same calls.
//!
//! A step is one meeting, at which every process says how its forward passes went, and the sums that
//! follow it. Where a process failed, or the meeting says so, the sums are dropped by all alike.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::meeting::{Frame, meet};
use super::sums::owned_by;
use super::{Group, Roots, Sum, Sums, Tree};
use crate::clock::Instant;
use crate::{Error, Result, parallel};

/// Some ranges of the gradient, one after the other: the sums of this process's subtrees on their way,
/// everybody's when they are back.
pub(crate) struct Bucket {
    pub ranges: Vec<Range<usize>>,
    pub roots: Roots,
    /// The shards that have samples.
    pub full: Vec<bool>,
    /// Numbers of the gradient, where every process gets the sum of its slice of them alone.
    pub slices_of: Option<usize>,
}

/// Whether sums follow a meeting, by what everybody said.
pub(crate) type GoOn = fn(&[Vec<u8>]) -> bool;

enum Job {
    /// What this process says, and what decides whether sums follow: the meeting of a step does, others
    /// change nothing.
    Meet(Vec<u8>, Option<GoOn>),
    Sum(Bucket),
}

enum Done {
    Met(Result<Vec<Vec<u8>>>),
    /// Everybody's sum, where it was made.
    Summed(Ranges, Option<Sum>),
}

/// What exchanges took and sent since they were last asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Exchanged {
    /// Seconds spent in meetings and sums, with waiting for other processes.
    pub seconds: f64,
    /// Of these, seconds in which this process waited for them and computed nothing.
    pub waited: f64,
    /// Bytes sent to other processes.
    pub bytes: u64,
}

/// See the [module](self).
pub(crate) struct Courier<'a> {
    group: &'a dyn Group,
    /// Whether exchanges go on while this process computes.
    pub overlaps: bool,
    post: Mutex<Post>,
    back: Mutex<Back>,
}

/// Ranges of the flat vector that are added together.
type Ranges = Vec<Range<usize>>;
/// They, and their sum.
type Summed = (Ranges, Sum);

/// Where jobs go.
enum Post {
    /// Done when somebody waits for them.
    Here(Desk, VecDeque<Job>),
    There(Sender<Job>, Mutex<Receiver<(Done, Exchanged)>>),
}

/// What came back, and how much is still to come.
#[derive(Default)]
struct Back {
    met: VecDeque<Result<Vec<Vec<u8>>>>,
    summed: Vec<(Ranges, Option<Sum>)>,
    expected: usize,
    exchanged: Exchanged,
}

/// Lends a courier to `work`; with a thread of its own where exchanges go on while others compute, and the
/// system has one.
pub(crate) fn with_courier<R>(
    group: &dyn Group,
    tree: Tree,
    work: impl FnOnce(&Courier<'_>) -> R,
) -> R {
    let (jobs, inbox) = channel();
    let (outbox, done) = channel();
    let desk = || Desk {
        tree,
        sums: Sums::default(),
        going: true,
        failed: None,
    };
    let overlaps = group.size() > 1 && group.overlaps(parallel::threads());
    let courier = |post| Courier {
        group,
        overlaps,
        post: Mutex::new(post),
        back: Mutex::default(),
    };
    let here = || courier(Post::Here(desk(), VecDeque::new()));
    if !overlaps {
        return work(&here());
    }
    let mut there = desk();
    let deliver = move || {
        while let Ok(job) = inbox.recv() {
            if outbox.send(there.work(group, job)).is_err() {
                return;
            }
        }
    };
    parallel::accompanied("courier", deliver, |started| {
        let courier = match started {
            true => courier(Post::There(jobs, Mutex::new(done))),
            false => here(),
        };
        work(&courier)
    })
}

impl<'a> Courier<'a> {
    pub fn group(&self) -> &'a dyn Group {
        self.group
    }

    /// Says something at the step's meeting; the sums that are posted next are made where `go_on` says
    /// so.
    pub fn meet_and(&self, bytes: Vec<u8>, go_on: GoOn) {
        self.post(Job::Meet(bytes, Some(go_on)));
    }

    /// Adds some ranges over all processes.
    pub fn sum(&self, bucket: Bucket) {
        self.post(Job::Sum(bucket));
    }

    /// Meets at once; waits for what was posted before.
    pub fn meet(&self, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        self.post(Job::Meet(bytes, None));
        self.wait();
        lock(&self.back).met.pop_back().expect("met last")
    }

    /// Waits for what was posted: the meeting, and the sums that were made.
    pub fn finish(&self) -> (Result<Vec<Vec<u8>>>, Vec<Summed>) {
        self.wait();
        let mut back = lock(&self.back);
        let met = back.met.pop_back().expect("a step has a meeting");
        let made = back.summed.drain(..);
        let made = made.filter_map(|(ranges, sum)| Some((ranges, sum?)));
        (met, made.collect())
    }

    /// A call from this thread, when nothing that was posted is under way; it sends so many bytes.
    pub fn call<R>(&self, bytes: usize, call: impl FnOnce(&dyn Group) -> R) -> R {
        let start = Instant::now();
        let result = call(self.group);
        let exchanged = &mut lock(&self.back).exchanged;
        exchanged.bytes += (bytes * (self.group.size() - 1)) as u64;
        exchanged.seconds += start.elapsed().as_secs_f64();
        exchanged.waited += start.elapsed().as_secs_f64();
        result
    }

    /// Forgets what was posted, when it is done.
    pub fn clear(&self) {
        self.wait();
        let mut back = lock(&self.back);
        back.met.clear();
        back.summed.clear();
    }

    /// What exchanges took since this was last asked.
    pub fn exchanged(&self) -> Exchanged {
        std::mem::take(&mut lock(&self.back).exchanged)
    }

    fn post(&self, job: Job) {
        lock(&self.back).expected += 1;
        match &mut *lock(&self.post) {
            Post::Here(_, jobs) => jobs.push_back(job),
            // It is there as long as this is.
            Post::There(jobs, _) => drop(jobs.send(job)),
        }
    }

    /// Takes in everything that was posted.
    fn wait(&self) {
        let start = Instant::now();
        let (mut post, mut back) = (lock(&self.post), lock(&self.back));
        while back.expected > 0 {
            let next = match &mut *post {
                Post::Here(desk, jobs) => jobs.pop_front().map(|job| desk.work(self.group, job)),
                Post::There(_, done) => lock(done).recv().ok(),
            };
            let (done, took) = next.expect("a job for everything that is expected");
            back.expected -= 1;
            back.exchanged.seconds += took.seconds;
            back.exchanged.bytes += took.bytes;
            match done {
                Done::Met(met) => back.met.push_back(met),
                Done::Summed(ranges, sum) => back.summed.push((ranges, sum)),
            }
        }
        back.exchanged.waited += start.elapsed().as_secs_f64();
    }
}

/// Gradients kept for the next sums.
const SPARE: usize = 4;

/// Where jobs are done, one after the other.
struct Desk {
    tree: Tree,
    sums: Sums,
    /// Whether the last meeting wants sums.
    going: bool,
    /// The failure of a process: there is nothing more to exchange.
    failed: Option<(usize, String)>,
}

impl Desk {
    fn work(&mut self, group: &dyn Group, job: Job) -> (Done, Exchanged) {
        let start = Instant::now();
        let others = group.size() as u64 - 1;
        let mut bytes = 0;
        let done = match job {
            Job::Meet(own, go_on) => {
                bytes = others * own.len() as u64;
                Done::Met(self.meet(group, &own, go_on))
            }
            Job::Sum(bucket) if !self.going || self.failed.is_some() => {
                Done::Summed(bucket.ranges, None)
            }
            Job::Sum(bucket) => {
                let (ranges, sum, sent) = self.sum(group, bucket);
                bytes = sent;
                // A sum leaves with the memory of one root; where there are more, they would pile up.
                self.sums.free.truncate(SPARE);
                Done::Summed(ranges, Some(sum))
            }
        };
        let took = Exchanged {
            seconds: start.elapsed().as_secs_f64(),
            waited: 0.0,
            bytes,
        };
        (done, took)
    }

    /// The sum of a bucket's ranges, or of what this process owns of them.
    fn sum(&mut self, group: &dyn Group, bucket: Bucket) -> (Ranges, Sum, u64) {
        let (tree, roots, ranges) = (self.tree, bucket.roots, bucket.ranges);
        let full = |shard: usize| bucket.full[shard];
        if let Some(all) = bucket.slices_of {
            let (sum, sent) = self.sums.of_owned(group, tree, roots, full, &ranges, all);
            return (
                owned_by(&ranges, all, group.rank(), group.size()),
                sum,
                sent,
            );
        }
        let len = ranges.iter().map(ExactSizeIterator::len).sum();
        let (memory, sent) = self.sums.over_all(group, tree, roots, full, len);
        let sum = Sum { memory, at: 0..len };
        (ranges, sum, sent)
    }

    fn meet(&mut self, group: &dyn Group, own: &[u8], go_on: Option<GoOn>) -> Result<Vec<Vec<u8>>> {
        if let Some((rank, message)) = self.failed.clone() {
            return Err(Error::Process { rank, message });
        }
        let met = meet(group, Frame::Fine(own));
        match &met {
            Ok(said) => self.going = go_on.map_or(self.going, |go_on| go_on(said)),
            Err(Error::Process { rank, message }) => self.failed = Some((*rank, message.clone())),
            Err(error) => self.failed = Some((group.rank(), error.to_string())),
        }
        met
    }
}

fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
