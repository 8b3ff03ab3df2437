//! Processes that `mpirun` or `srun` started together: one of them speaks, all end alike.
//!
//! The feature `mpi` brings the library that they reach each other with. Without it a command that
//! finds itself among others says so, instead of training as often as it was started.

use std::sync::OnceLock;

use retrograd::group::Group;

use crate::log;

/// How launchers tell a process how many there are, and which it is.
const LAUNCHERS: [[&str; 2]; 4] = [
    ["OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"],
    ["PMI_SIZE", "PMI_RANK"],
    ["MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"],
    // Of a step of srun's; what sbatch allots to a whole job says nothing about its processes.
    ["SLURM_STEP_NUM_TASKS", "SLURM_PROCID"],
];

/// What a launcher has said.
struct Launched {
    by: &'static str,
    size: usize,
    rank: usize,
}

fn launched() -> Option<Launched> {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let found = LAUNCHERS.iter().find_map(|&[size, rank]| {
        Some(Launched {
            by: size,
            size: number(size)?,
            rank: number(rank)?,
        })
    })?;
    // The script of a job of Slurm's is one process, whatever the job was allotted.
    let script = std::env::var("SLURM_STEP_ID").is_ok_and(|step| step == "batch");
    (!script).then_some(found)
}

static JOINED: OnceLock<Joined> = OnceLock::new();

#[cfg(feature = "mpi")]
type Joined = retrograd_mpi::Mpi;
#[cfg(not(feature = "mpi"))]
type Joined = retrograd::group::Alone;

/// The processes that were started together, where a launcher started this one.
pub fn join() -> anyhow::Result<Option<&'static dyn Group>> {
    let Some(launched) = launched() else {
        return Ok(None);
    };
    log::speak_as(launched.rank, launched.size);
    begin(&launched)
}

#[cfg(feature = "mpi")]
fn begin(launched: &Launched) -> anyhow::Result<Option<&'static dyn Group>> {
    let joined = retrograd_mpi::Mpi::join()?;
    if joined.size() != launched.size {
        anyhow::bail!(
            "MPI: {} says that there are {} processes, and MPI finds {}; start the command with the \
             mpirun of the library that it was built with, or with srun --mpi=pmix",
            launched.by,
            launched.size,
            joined.size()
        );
    }
    let group: &'static dyn Group = JOINED.get_or_init(|| joined);
    Ok(Some(group))
}

#[cfg(not(feature = "mpi"))]
fn begin(launched: &Launched) -> anyhow::Result<Option<&'static dyn Group>> {
    if launched.size == 1 {
        return Ok(None);
    }
    anyhow::bail!(
        "this is one of {} processes ({}), and this build of the command has no MPI: each would train on \
         its own. Build it with --features mpi, or start one process",
        launched.size,
        launched.by
    )
}

/// Whether others wait for this process.
pub fn joined() -> bool {
    JOINED.get().is_some()
}

/// Ends what was joined, when all have come to their end and rank 0 has spoken.
pub fn leave() {
    #[cfg(feature = "mpi")]
    if let Some(joined) = JOINED.get() {
        joined.barrier();
        joined.leave();
    }
}

/// After a panic of this process, the others end too.
pub fn abandon() {
    #[cfg(feature = "mpi")]
    if joined() {
        retrograd_mpi::Mpi::abort(2);
    }
}

/// Which of the processes on this machine this is; 0 where it is alone.
#[cfg_attr(
    not(feature = "gpu"),
    allow(dead_code, reason = "adapters are shared out by it")
)]
pub fn local_rank() -> usize {
    #[cfg(feature = "mpi")]
    {
        JOINED.get().map_or(0, Joined::local_rank)
    }
    #[cfg(not(feature = "mpi"))]
    0
}

/// Threads for this process, where several share a machine and none is bound to cores of its own.
pub fn threads() -> Option<usize> {
    #[cfg(feature = "mpi")]
    {
        let (own, all) = (JOINED.get()?.cores(), std::thread::available_parallelism());
        all.is_ok_and(|all| own < all.get()).then_some(own)
    }
    #[cfg(not(feature = "mpi"))]
    None
}
