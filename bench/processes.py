"""Processes that share a step, beside PyTorch's DistributedDataParallel on gloo: `bench/side-by-side
--processes` sets up what this needs and says how it is used."""

import argparse
import json
import math
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from page import machine, time
from sides import FIRST_AGREES, LATER_AGREES, ROOT, expected_losses, say

# What everything that is timed is run under, `nice -n -5` for example.
PREFIX = os.environ.get("SIDE_BY_SIDE_PREFIX", "").split()

WORKLOADS = {"kan-wide-256": 8, "cnn-1024": 2, "logic-checkerboard": 2}


def started(commands, environments):
    """Runs programs side by side, and gives what the first printed."""
    running = [
        subprocess.Popen(PREFIX + [str(c) for c in command], env=os.environ | environment, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for command, environment in zip(commands, environments)
    ]  # fmt: skip
    ended = [process.communicate() for process in running]
    for process, (_, error) in zip(running, ended):
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(str(c) for c in commands[0])}\n{error[-2000:]}")
    return ended[0][0]


def retrograd():
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "retrograd"


def launcher(processes):
    launch = ["mpirun", "-np", processes, "--oversubscribe", "--bind-to", "core" if processes > 1 else "none"]
    return launch if processes > 1 else []


AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def ours(workload, processes, threads, shards, folder):
    out = folder / "ours.json"
    command = launcher(processes) + [retrograd(), "bench", workload, "--threads", threads, "--json", out]
    if shards:
        command += ["--shards", shards]
    started([command], [AS_ROOT])
    return json.loads(out.read_text())[0]


def ddp(workload, problem, seconds, processes, threads):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = ROOT / "bench" / "peers" / "ddp.py"
    command = [sys.executable, script, workload, problem, seconds, threads]
    environments = [
        {"RANK": str(rank), "WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
         "OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo"}
        for rank in range(processes)
    ]  # fmt: skip
    text = started([command] * processes, environments)
    return json.loads(text.strip().splitlines()[-1])


def check(workload, losses, expected):
    for step, (their, our) in enumerate(zip(losses, expected)):
        bound = LATER_AGREES if step or workload.startswith("logic-") else FIRST_AGREES
        if not abs(their - our) <= bound * abs(our):
            raise RuntimeError(f"{workload}: DDP's loss before step {step} is {their!r}, ours {our!r}")


def measure(workload, shards, rounds, seconds, folder):
    problem = folder / f"{workload}.safetensors"
    started([[retrograd(), "bench", workload, "--dump", problem]], [{}])
    expected = expected_losses(problem)["training"]
    times = {name: [] for name in ("plain", "shards", "two", "ddp-1", "ddp-2")}
    result, digests = {}, {}
    for number in range(rounds):
        say(f"{workload}, round {number + 1} of {rounds}")
        times["plain"].append(ours(workload, 1, 2, None, folder)["step_ns"])
        times["shards"].append(ours(workload, 1, 2, shards, folder)["step_ns"])
        shared = ours(workload, 2, 1, shards, folder)
        times["two"].append(shared["step_ns"])
        result |= {name: shared[name] for name in ("params", "sent_bytes", "exchange_ns", "waited_ns")}
        for processes in (1, 2):
            peer = ddp(workload, problem, seconds, processes, 2 // processes)
            check(workload, peer["losses"], expected)
            times[f"ddp-{processes}"].append(peer["step_ns"])
            digests[processes] = peer["weights_sha256"]
            result["version"] = peer["version"]
    one, two = (np.fromfile(f"{problem}.ddp-{n}", np.float32) for n in (1, 2))
    result |= {
        "workload": workload,
        "shards": shards,
        "times_ns": times,
        "medians_ns": {name: statistics.median(values) for name, values in times.items()},
        "ddp_same_bits": digests[1] == digests[2],
        "ddp_differing": int(np.count_nonzero(one.view(np.uint32) != two.view(np.uint32))),
        "ddp_weights": len(one),
        "ddp_largest": float(np.abs(one - two).max()),
    }
    return result


def own_bits(folder):
    """The digests of a KAN that 1, 2 and 4 processes train."""
    model = (ROOT / "tests" / "machines" / "models" / "kan.toml").read_text()
    lines = [line for line in model.splitlines() if not line.startswith("batch =")]
    file = folder / "kan.toml"
    file.write_text("\n".join(lines) + "\nbatch = 128\nshards = 8\n")
    digests = []
    for processes in (1, 2, 4):
        run = folder / f"kan-{processes}"
        train = [retrograd(), "train", file, "--no-verify", "--no-report", "--out", run]
        started([launcher(processes)[:4] + train if processes > 1 else train], [AS_ROOT])
        digests.append(json.loads((run / "summary.json").read_text())["weights_sha256"])
    return digests


def section(results, digests, rounds, command):
    lines = [
        f"The output of `{command}`: medians over {rounds} alternating round{'s' if rounds > 1 else ''} on "
        f"{machine(2)}; PyTorch {results[0]['version']}.",
        "",
        "| workload | 1 × 2 threads | with shards | 2 × 1 thread | DDP, 1 × 2 | DDP, 2 × 1 |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for result in results:
        m = result["medians_ns"]
        more = lambda name, base: f"{time(m[name])} ({100 * (m[name] / m[base] - 1):+.0f} %)"
        cells = [f"`{result['workload']}`, {result['shards']} shards", time(m["plain"]), more("shards", "plain"),
                 more("two", "plain"), time(m["ddp-1"]), more("ddp-2", "ddp-1")]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| workload, 2 processes | bytes a process sends | of the least possible | exchanges | hidden |", "|---|--:|--:|--:|--:|"]
    for result in results:
        hidden = max(0.0, 1 - result["waited_ns"] / result["exchange_ns"])
        least = 4 * result["params"]
        cells = [f"`{result['workload']}`", f"{result['sent_bytes']:,}", f"{result['sent_bytes'] / least:.3f} ×",
                 time(result["exchange_ns"]), f"{100 * hidden:.0f} %"]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    same = len(set(digests)) == 1
    ours = "the same SHA-256" if same else "**different bits**"
    lines += ["", f"Bits: a KAN trained by 1, 2 and 4 processes has {ours} ({digests[0][:16]}…). DDP's weights after ten steps with 1 and with 2 processes:"]
    for result in results:
        if result["ddp_same_bits"]:
            lines.append(f"- `{result['workload']}`: the same bits.")
        else:
            lines.append(
                f"- `{result['workload']}`: {result['ddp_differing']:,} of {result['ddp_weights']:,} weights differ, "
                f"by {result['ddp_largest']:.1e} at most."
            )
    return "\n".join(lines) + "\n", same


# The workloads of the table of expected efficiency.
EXPECTED = ["kan-poker-256", "kan-wide-256", "kan-mnist-256", "mlp-256", "cnn-128", "cnn-1024", "unet-256",
            "logic-life", "logic-checkerboard", "logic-async", "logic-g", "logic-lizard"]  # fmt: skip
PROCESSES = [2, 8, 32, 128, 512]
# Bytes a second, and the seconds of a message: what is measured here is the software's part alone.
NETWORKS = {"10 Gb/s": (1.25e9, 20e-6), "100 Gb/s": (12.5e9, 2e-6)}


def measured_mpi():
    """The seconds of a meeting of two processes, and the bytes a second of an exchange, both over TCP."""
    tcp = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
    text = started([launcher(2) + tcp + [retrograd(), "bench", "mpi-*"]], [AS_ROOT])
    meeting = float(re.search(r"mpi-meeting +2 +([0-9.]+) µs", text)[1]) * 1e-6
    rates = re.findall(r"mpi-exchange.* ([0-9.]+) GB/s", text)
    return meeting, max(float(rate) for rate in rates) * 1e9


def efficiency(step, params, processes, bandwidth, latency):
    """See docs/distributed.md."""
    meeting = 2 * latency * math.ceil(math.log2(processes))
    messages = 2 * latency * (processes - 1)
    numbers = 8 * params / bandwidth * (processes - 1) / processes
    return step / (step + meeting + messages + numbers)


def expected(folder):
    out = folder / "expected.json"
    started([[retrograd(), "bench", *EXPECTED, "--shards", 1, "--threads", 1, "--json", out]], [{}])
    meeting, rate = measured_mpi()
    own = meeting / 2
    lines = [
        f"Measured here: a meeting of two processes over TCP takes {time(1e9 * meeting)}, so a message {time(1e9 * own)} "
        f"of the software's time, and an exchange moves {rate / 1e9:.2f} GB/s. The network's own time for a message is "
        "assumed: 20 µs on 10 Gb/s Ethernet, 2 µs on 100 Gb/s.",
        "",
        "| workload, a process's share | step | parameters | network | " + " | ".join(map(str, PROCESSES)) + " |",
        "|---|--:|--:|---|" + "--:|" * len(PROCESSES),
    ]
    for result in json.loads(out.read_text()):
        for i, (network, (bandwidth, latency)) in enumerate(NETWORKS.items()):
            share = [efficiency(1e-9 * result["step_ns"], result["params"], p, bandwidth, latency + own) for p in PROCESSES]
            first = [f"`{result['name']}`", time(result["step_ns"]), f"{result['params']:,}"] if i == 0 else ["", "", ""]
            lines.append("| " + " | ".join(first + [network] + [f"{100 * e:.0f} %" for e in share]) + " |")
    return "\n".join(lines) + "\n"


def put(page, name, text):
    """Puts a text between its marks, where the page has them."""
    begin, end = f"<!-- {name}: written by bench/side-by-side --processes -->", f"<!-- {name}: end -->"
    content = page.read_text()
    if begin in content:
        before, rest = content.split(begin, 1)
        page.write_text(f"{before}{begin}\n{text}{end}{rest.split(end, 1)[1]}")


def main():
    parser = argparse.ArgumentParser(prog="bench/side-by-side --processes")
    parser.add_argument("--processes", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--out", type=Path)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD")
    args = parser.parse_args()
    rounds = args.rounds or (1 if args.quick else 3)
    names = args.workloads or list(WORKLOADS)
    try:
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            seconds = 0.5 if args.quick else 2.0
            results = [measure(name, WORKLOADS[name], rounds, seconds, folder) for name in names]
            text, same = section(results, own_bits(folder), rounds, " ".join(["bench/side-by-side"] + sys.argv[1:]))
            table = expected(folder)
    except RuntimeError as problem:
        say(f"error: {problem}")
        return 1
    if args.out:
        put(args.out / "distributed.md", "processes", text)
        put(args.out / "distributed.md", "efficiency", table)
    print(text + "\n" + table, end="")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
