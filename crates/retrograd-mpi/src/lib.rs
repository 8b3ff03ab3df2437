//! A [`Group`] of processes over MPI, started by `mpirun` or `srun`.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mpi::Threading;
use mpi::datatype::{Partition, PartitionMut};
use mpi::environment::Universe;
use mpi::request::{Request, Scope, scope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Root};
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
            calls: Mutex::new(()),
            universe: Mutex::new(Some(universe)),
        })
    }

    /// Which of those on this machine this is.
    pub fn local_rank(&self) -> usize {
        self.local_rank
    }

    /// How many of them are on this machine.
    pub fn local_size(&self) -> usize {
        self.local_size
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
        let (sent, from) = parts(sent);
        let (counts, to) = parts(counts);
        let send = Partition::new(send, sent, from);
        let mut received = PartitionMut::new(received, counts, to);
        scope(|scope| {
            patient(world.immediate_all_to_all_varcount_into(scope, &send, &mut received));
        });
    }

    fn share(&self, all: &mut [f32], counts: &[usize]) {
        let (world, _turn) = self.world();
        let start: usize = counts[..self.rank].iter().sum();
        let own = all[start..start + counts[self.rank]].to_vec();
        let (counts, places) = parts(counts);
        let mut to = PartitionMut::new(all, counts, places);
        scope(|scope| {
            patient(world.immediate_all_gather_varcount_into(scope, &own[..], &mut to));
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
}
