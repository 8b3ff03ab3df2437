//! The command under `mpirun`.

use std::path::Path;
use std::process::Command;

use super::parts;

/// `mpirun` with so many processes on this machine, over TCP on the loopback device. What takes
/// longer than five minutes is ended by `timeout`, and fails.
pub fn mpirun(folder: &Path, processes: usize) -> Command {
    let mut command = Command::new("timeout");
    command.current_dir(folder);
    command.args([
        "--signal=KILL",
        if kills() > 3 { "600" } else { "300" },
        "mpirun",
        "--oversubscribe",
        "--bind-to",
        "none",
    ]);
    command.args([
        "--mca",
        "btl",
        "tcp,self",
        "--mca",
        "btl_tcp_if_include",
        "lo",
    ]);
    command.args(["-np", &processes.to_string()]);
    // Continuous integration runs as root, in a container.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1");
    command.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    // Processes that wait give the core to those that work.
    command.env("OMPI_MCA_mpi_yield_when_idle", "1");
    command
}

pub fn train(folder: &Path, processes: usize, args: &[&str]) -> (i32, String, String) {
    let mut command = mpirun(folder, processes);
    command.arg(env!("CARGO_BIN_EXE_retrograd")).arg("train");
    parts(command.args(args).output().unwrap())
}

/// How often a rank is killed.
pub fn kills() -> u64 {
    if std::env::var_os("RETROGRAD_FULL").is_some() {
        50
    } else {
        3
    }
}
