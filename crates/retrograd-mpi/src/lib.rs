//! A [`Group`] of processes over MPI, started by `mpirun` or `srun`.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mpi::Threading;
use mpi::datatype::{Partition, PartitionMut};
use mpi::environment::Universe;
use mpi::request::{Request, Scope, scope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, Root, Source};
use retrograd::group::Group;
use retrograd::{Error, Result};

/// Bytes of one broadcast: MPI counts in 32 bits.
const PIECE: usize = 1 << 30;

/// The processes that were started together.
pub struct Mpi {
    rank: usize,
    size: usize,
    local_rank: usize,
    local_size: usize,
    cores: usize,
    /// One call at a time, from whichever thread.
    calls: Mutex<()>,
    /// Ends MPI when it is dropped.
    universe: Mutex<Option<Universe>>,
}

impl Mpi {
    /// Begins MPI. All processes that were started together come here.
    pub fn join() -> Result<Self> {
        let begun = mpi::initialize_with_threading(Threading::Serialized);
        let Some((universe, threading)) = begun else {
            return Err(Error::refused("MPI", "it was begun before in this process"));
        };
        if threading < Threading::Serialized {
            return Err(Error::refused(
                "MPI",
                "this library allows calls from one thread alone; one that was built with support for \
                 threads is needed (Open MPI and MPICH of every distribution are)",
            ));
        }
        let world = SimpleCommunicator::world();
        let local = world.split_shared(world.rank());
        Ok(Mpi {
            rank: number(world.rank()),
            size: number(world.size()),
            local_rank: number(local.rank()),
            local_size: number(local.size()),
            cores: cores(number(local.size())),
            calls: Mutex::new(()),
            universe: Mutex::new(Some(universe)),
        })
    }

    /// Which of those on this machine this is.
    pub fn local_rank(&self) -> usize {
        self.local_rank
    }

    /// Cores for this process: those that it is bound to, or its share of the machine's.
    pub fn cores(&self) -> usize {
        self.cores
    }

    /// Ends MPI; no call may follow.
    pub fn leave(&self) {
        let universe = self.universe.lock();
        drop(universe.unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Ends all processes at once, without their doing anything more. For what can't be agreed upon: a
    /// panic.
    pub fn abort(code: i32) -> ! {
        SimpleCommunicator::world().abort(code)
    }

    fn world(&self) -> (SimpleCommunicator, MutexGuard<'_, ()>) {
        let turn = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        (SimpleCommunicator::world(), turn)
    }
}

/// Cores for one of so many processes on this machine.
fn cores(local_size: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let bound = online().is_some_and(|all| cores < all);
    match bound {
        true => cores,
        false => (cores / local_size).max(1),
    }
}

/// The machine's cores: `0-7,16-23`.
fn online() -> Option<usize> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<usize>().ok()? + 1 - first.parse::<usize>().ok()?)
    };
    list.trim().split(',').map(count).sum()
}

/// What MPI counts.
fn number(count: i32) -> usize {
    usize::try_from(count).expect("a count")
}

/// Counts and places of neighbouring parts.
///
/// # Panics
/// With 2³¹ numbers or more for one exchange.
fn parts(counts: &[usize]) -> (Vec<i32>, Vec<i32>) {
    let whole = |n: usize| i32::try_from(n).expect("fewer than 2³¹ numbers in one exchange");
    let mut at = 0;
    let mut places = Vec::with_capacity(counts.len());
    for &count in counts {
        places.push(whole(at));
        at += count;
    }
    whole(at);
    (counts.iter().map(|&n| whole(n)).collect(), places)
}

/// Bytes of which everybody's are gathered in one call, their length among them.
const HEAD: usize = 256;

/// Waits for a request. MPI's own waiting keeps a core busy, which this process may be computing on:
/// here whoever has work goes first, and after a while (another process writes files, or verifies) looks
/// become rare.
fn patient<'a, D: ?Sized, S: Scope<'a>>(mut request: Request<'a, D, S>) {
    let start = Instant::now();
    loop {
        match request.test() {
            Ok(_) => return,
            Err(waiting) => request = waiting,
        }
        match start.elapsed() < Duration::from_millis(50) {
            true => std::thread::yield_now(),
            false => std::thread::sleep(Duration::from_micros(500)),
        }
    }
}

impl Group for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    /// In one call where everybody has little to say.
    fn gather(&self, own: &[u8]) -> Vec<Vec<u8>> {
        let (world, _turn) = self.world();
        let mut head = [0_u8; HEAD];
        let little = own.len().min(HEAD - 8);
        head[..8].copy_from_slice(&(own.len() as u64).to_le_bytes());
        head[8..8 + little].copy_from_slice(&own[..little]);
        let mut heads = vec![0_u8; HEAD * self.size];
        scope(|scope| {
            patient(world.immediate_all_gather_into(scope, &head[..], &mut heads[..]));
        });
        let heads = heads.as_chunks::<HEAD>().0;
        let length = |head: &[u8; HEAD]| {
            let (length, _) = head.split_first_chunk().expect("longer than a number");
            u64::from_le_bytes(*length) as usize
        };
        let lengths: Vec<usize> = heads.iter().map(length).collect();
        if lengths.iter().all(|&length| length <= HEAD - 8) {
            let parts = heads.iter().zip(&lengths);
            return parts
                .map(|(head, &len)| head[8..8 + len].to_vec())
                .collect();
        }
        let mut all = vec![0_u8; lengths.iter().sum()];
        let (counts, places) = parts(&lengths);
        let mut to = PartitionMut::new(&mut all[..], counts, places);
        scope(|scope| patient(world.immediate_all_gather_varcount_into(scope, own, &mut to)));
        let mut rest = &all[..];
        let cut = lengths.iter().map(|&length| {
            let (part, after) = rest.split_at(length);
            rest = after;
            part.to_vec()
        });
        cut.collect()
    }

    fn exchange(&self, send: &[f32], sent: &[usize], received: &mut [f32], counts: &[usize]) {
        let (world, _turn) = self.world();
        let (mut sent, from) = parts(sent);
        let (counts, to) = parts(counts);
        // What is for this process stays where it is.
        sent[self.rank] = 0;
        let send = Partition::new(send, sent, from);
        let mut received = PartitionMut::new(received, counts, to);
        scope(|scope| {
            patient(world.immediate_all_to_all_varcount_into(scope, &send, &mut received));
        });
    }

    /// From where it is to where it belongs: MPI's own call would want a copy of what is sent.
    fn share(&self, all: &mut [f32], counts: &[usize]) {
        let (world, _turn) = self.world();
        parts(counts);
        let mut rest = all;
        let cut = |&count| rest.split_off_mut(..count).expect("as many as are counted");
        let mut slices: Vec<&mut [f32]> = counts.iter().map(cut).collect();
        let own = std::mem::take(&mut slices[self.rank]);
        let process = |rank: usize| world.process_at_rank(i32::try_from(rank).expect("a rank"));
        scope(|scope| {
            let others = slices.into_iter().enumerate();
            let others = others.filter(|(_, slice)| !slice.is_empty());
            let mut requests: Vec<Request<'_, [f32], _>> = others
                .map(|(rank, slice)| process(rank).immediate_receive_into(scope, slice))
                .collect();
            if !own.is_empty() {
                let others = (0..self.size).filter(|&rank| rank != self.rank);
                requests.extend(others.map(|rank| process(rank).immediate_send(scope, &*own)));
            }
            requests.into_iter().for_each(patient);
        });
    }

    fn broadcast(&self, bytes: &mut Vec<u8>) {
        let (world, _turn) = self.world();
        let root = world.process_at_rank(0);
        let mut length = bytes.len() as u64;
        root.broadcast_into(&mut length);
        bytes.resize(length as usize, 0);
        for piece in bytes.chunks_mut(PIECE) {
            root.broadcast_into(piece);
        }
    }

    fn barrier(&self) {
        let (world, _turn) = self.world();
        world.barrier();
    }

    /// Between machines a network carries it; on one, it takes a core.
    fn overlaps(&self, threads: usize) -> bool {
        self.local_size < self.size || threads < self.cores
    }
}
