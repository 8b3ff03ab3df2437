//! Two hosts that share a run: network namespaces with an address each, and a launch agent of three lines
//! in the place of ssh. Where the machine allows no namespaces, two groups of processes over TCP on the
//! loopback device.
#![cfg(all(target_os = "linux", feature = "mpi"))]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use common::mpi::mpirun;
use common::parts;

/// Two namespaces with a cable between them.
struct Hosts {
    names: [String; 2],
}

impl Hosts {
    /// None where the machine allows no namespaces.
    fn new() -> Option<Self> {
        let names = ["a", "b"].map(|end| format!("rg{}{end}", std::process::id()));
        let hosts = Hosts { names };
        let [a, b] = &hosts.names;
        let made = ip(&["netns", "add", a])
            && ip(&["netns", "add", b])
            && ip(&["link", "add", "cable", "netns", a, "type", "veth", "peer", "name", "cable", "netns", b])
            && [(a, "10.77.0.1/24"), (b, "10.77.0.2/24")].iter().all(|(host, address)| {
                ip(&["-n", host, "addr", "add", address, "dev", "cable"])
                    && ip(&["-n", host, "link", "set", "cable", "up"])
                    && ip(&["-n", host, "link", "set", "lo", "up"])
            })
            // Every namespace is a host of its own name.
            && in_namespace(a, "true");
        made.then_some(hosts)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&["netns", "del", name]);
        }
    }
}

fn ip(args: &[&str]) -> bool {
    let done = Command::new("ip").args(args).output();
    done.is_ok_and(|output| output.status.success())
}

fn in_namespace(name: &str, script: &str) -> bool {
    let script = format!("hostname {name}; {script}");
    let args = [
        "netns", "exec", name, "unshare", "--uts", "sh", "-c", &script,
    ];
    ip(&args)
}

/// What mpirun calls instead of ssh: the host, then the command.
const AGENT: &str = "#!/bin/sh\n\
    host=$1; shift\n\
    exec ip netns exec \"$host\" unshare --uts sh -c \"hostname $host; $*\"\n";

/// `mpirun` over both hosts, two processes on each, over TCP alone.
fn over_hosts(folder: &Path, hosts: &Hosts, processes: usize) -> Command {
    let agent = folder.join("agent");
    std::fs::write(&agent, AGENT).unwrap();
    std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
    let [a, b] = &hosts.names;
    let mut command = Command::new("timeout");
    command.current_dir(folder);
    command.args([
        "--signal=KILL",
        "120",
        "ip",
        "netns",
        "exec",
        a,
        "unshare",
        "--uts",
        "sh",
        "-c",
    ]);
    command.arg(format!("hostname {a}; exec \"$@\"")).arg("sh");
    command
        .args(["mpirun", "--mca", "plm_rsh_agent"])
        .arg(&agent);
    command.args([
        "--mca",
        "btl",
        "tcp,self",
        "--mca",
        "btl_tcp_if_include",
        "10.77.0.0/24",
    ]);
    command.args([
        "--mca",
        "oob_tcp_if_include",
        "10.77.0.0/24",
        "--bind-to",
        "none",
    ]);
    command.args(["--host", &format!("{a}:2,{b}:2"), "--map-by", "node"]);
    command.args(["-np", &processes.to_string()]);
    for variable in [
        "OMPI_ALLOW_RUN_AS_ROOT",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
        "OMPI_MCA_mpi_yield_when_idle",
    ] {
        command.env(variable, "1");
    }
    command
}

#[test]
fn two_hosts_give_the_bits_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/machines/models/kan.toml");
    let text = std::fs::read_to_string(model).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("batch ="));
    let text = lines.collect::<Vec<_>>().join("\n") + "\nbatch = 64\nshards = 4\n";
    std::fs::write(folder.join("kan.toml"), text).unwrap();
    let hosts = Hosts::new();
    let mut weights = Vec::new();
    for processes in [1, 2, 4] {
        let mut command = match &hosts {
            Some(hosts) => over_hosts(folder, hosts, processes),
            None => mpirun(folder, processes),
        };
        let out = processes.to_string();
        command.args([
            env!("CARGO_BIN_EXE_retrograd"),
            "train",
            "kan.toml",
            "--no-verify",
            "--out",
            &out,
        ]);
        let (code, _, said) = parts(command.output().unwrap());
        assert_eq!(
            code,
            0,
            "{processes} processes, namespaces: {}: {said}",
            hosts.is_some()
        );
        weights.push(std::fs::read(folder.join(out).join("model.safetensors")).unwrap());
    }
    assert!(weights.iter().all(|w| *w == weights[0]));
    if let Some(hosts) = &hosts {
        // They were two hosts: processes of each have said so.
        let mut command = over_hosts(folder, hosts, 2);
        let (_, printed, said) = parts(command.arg("hostname").output().unwrap());
        for name in &hosts.names {
            assert!(printed.contains(name), "{printed}{said}");
        }
    }
}
