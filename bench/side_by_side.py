"""The measuring part of `bench/side-by-side`, which sets up what this needs and says how it is used."""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("SIDE_BY_SIDE_CACHE", ""))

# The peers of every workload, and what it is.
WORKLOADS = {
    "kan-poker-64": (["torch", "burn", "candle"], "KAN 21-64-64-24, batch 64"),
    "kan-poker-256": (["torch", "burn", "candle"], "KAN 21-64-64-24, batch 256"),
    "kan-wide-256": (["torch", "burn", "candle"], "KAN 64-128-128-10, batch 256"),
    "kan-mnist-256": (["torch", "burn", "candle"], "KAN 784-64-10, batch 256"),
    "mlp-256": (["torch", "burn", "candle"], "MLP 64-256-256-10, GELU, batch 256"),
    "cnn-128": (["torch", "burn", "candle"], "convolutions 1-16-16-1, 2 images of 128×128"),
    "cnn-1024": (["torch"], "convolutions 1-16-16-1, 2 images of 1024×1024"),
    "unet-256": (["torch"], "U-Net 32-64-128-256, 1 image of 256×256"),
    "graph-gcn16": (["torch", "pyg"], "GCN, 16 hidden, a graph of Cora's size"),
    "graph-gcn64": (["torch", "pyg"], "GCN, 64 hidden, a graph of Cora's size"),
    "graph-gat8": (["pyg"], "GAT, 8 heads of 8, a graph of Cora's size"),
    "logic-life": (["jax"], "automaton, Game of Life, 20 boards"),
    "logic-checkerboard": (["jax"], "automaton, checkerboard, 20 steps"),
    "logic-async": (["jax"], "automaton, asynchronous, 50 steps"),
    "logic-g": (["jax"], "automaton, coloured G, 64 channels"),
    "logic-lizard": (["jax"], "automaton, lizard, 128 channels"),
}
QUICK = ["kan-poker-64", "mlp-256", "cnn-128", "graph-gcn16", "graph-gat8", "logic-checkerboard"]
NAMES = {"torch": "PyTorch", "pyg": "PyTorch Geometric", "jax": "JAX", "burn": "burn", "candle": "candle"}

# The first loss is the same sum in another order: off by some 1e-7 times the root of its length. Later
# ones less so, since Adam divides a gradient by its size, and one that is nothing but rounding decides
# a parameter's whole step. Another function, or another optimizer, is off by far more than either.
# JAX's first loss is also taken in f64, since rounding adds up through an automaton's gates; that one
# is held to the narrow bound, and its f32 losses to the other.
FIRST_AGREES = 1e-5
LATER_AGREES = 1e-3

# Peers that could not be set up, and are left out.
WITHOUT = os.environ.get("SIDE_BY_SIDE_WITHOUT", "").split()

LOAD = os.getloadavg()[0]

# What everything that is timed is run under, `nice -n -5` for example.
PREFIX = os.environ.get("SIDE_BY_SIDE_PREFIX", "").split()


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(command, threads):
    """Runs a program on so many cores and returns what it printed."""
    pin = lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    environment = os.environ | {
        name: str(threads) for name in ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    }
    done = subprocess.run(
        PREFIX + [str(c) for c in command],
        capture_output=True,
        text=True,
        env=environment,
        preexec_fn=pin if hasattr(os, "sched_setaffinity") else None,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(str(c) for c in command)}\n{done.stderr[-2000:]}")
    return done.stdout


def retrograd():
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release" / "retrograd"


def ours(workload, threads, folder):
    out = folder / "ours.json"
    run([retrograd(), "bench", workload, "--threads", threads, "--json", out], threads)
    return json.loads(out.read_text())[0]


def theirs(peer, workload, problem, seconds, threads):
    if peer in ("burn", "candle"):
        program = CACHE / "target" / "release" / "peers"
        text = run([program, peer, workload, problem, seconds], threads)
    else:
        script = ROOT / "bench" / "peers" / "peers.py"
        text = run([sys.executable, script, peer, workload, problem, seconds, threads], threads)
    return json.loads(text.strip().splitlines()[-1])


def check(peer, workload, result, expected):
    """The largest difference of the losses, as a share; an error where they don't agree."""
    pairs = []
    if result.get("inference") is not None:
        pairs.append(("without dropout", result["inference"], expected["inference"], FIRST_AGREES))
    for step, (their, our) in enumerate(zip(result["losses"], expected["training"])):
        bound = LATER_AGREES if step or peer == "jax" else FIRST_AGREES
        pairs.append((f"before step {step}", their, our, bound))
    if not pairs:
        raise RuntimeError(f"{workload}: {NAMES[peer]} gives no loss to compare")
    for what, their, our, bound in pairs:
        if not abs(their - our) <= bound * abs(our):
            raise RuntimeError(f"{workload}: {NAMES[peer]}'s loss {what} is {their!r}, ours {our!r}")
    return max(abs(their - our) / abs(our) for _, their, our, _ in pairs)


def expected_losses(problem):
    from safetensors import safe_open

    with safe_open(problem, "numpy") as file:
        get = lambda name: [float(v) for v in file.get_tensor(name)]
        return {"inference": get("loss/inference")[0], "training": get("loss/training")}


def measure(names, threads, rounds, seconds):
    results, versions = [], {}
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        say("peak")
        peaks = [ours("peak-f32", threads, folder)["gflops"] for _ in range(min(rounds, 3))]
        peak = statistics.median(peaks)
        for workload in names:
            peers, about = WORKLOADS[workload]
            peers = [peer for peer in peers if peer not in WITHOUT]
            problem = folder / f"{workload}.safetensors"
            run([retrograd(), "bench", workload, "--dump", problem], threads)
            expected = expected_losses(problem)
            our_times, gflops = [], []
            their_times = {peer: [] for peer in peers}
            agreement, notes = {}, {}
            for number in range(rounds):
                say(f"{workload}, round {number + 1} of {rounds}")
                timing = ours(workload, threads, folder)
                our_times.append(timing["step_ns"])
                gflops.append(timing.get("gflops"))
                for peer in peers:
                    result = theirs(peer, workload, problem, seconds, threads)
                    agreement[peer] = check(peer, workload, result, expected)
                    their_times[peer].append(result["step_ns"])
                    notes[peer] = result.get("note", "")
                    if "version" in result:
                        versions[peer] = result["version"]
            results.append(
                {
                    "workload": workload,
                    "about": about,
                    "ours_ns": statistics.median(our_times),
                    "ours_all_ns": our_times,
                    "gflops": None if gflops[0] is None else statistics.median(gflops),
                    "peers": [
                        {
                            "peer": peer,
                            "step_ns": statistics.median(their_times[peer]),
                            "all_ns": their_times[peer],
                            "loss_differs_by": agreement[peer],
                            "note": notes[peer],
                        }
                        for peer in peers
                    ],
                }
            )
    return peak, results, versions


def time(ns):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            value = ns / size
            return f"{value:.3g} {unit}" if value < 100 else f"{value:.0f} {unit}"
    return f"{ns:.0f} ns"


def ratio(value):
    text = f"{value:.2g}" if value < 10 else f"{value:.0f}"
    return f"{text} ×" if value >= 1 else f"**{text} ×, we lose**"


def table(results, peak):
    lines = [
        "| workload | ours | GFLOP/s, of peak | peer | theirs | theirs / ours |",
        "|---|--:|--:|---|--:|--:|",
    ]
    for result in results:
        share = "–"
        if result["gflops"]:
            share = f"{result['gflops']:.3g}, {100 * result['gflops'] / peak:.0f} %"
        for i, peer in enumerate(result["peers"]):
            first = [f"{result['about']} (`{result['workload']}`)", time(result["ours_ns"]), share]
            cells = first if i == 0 else ["", "", ""]
            value = ratio(peer["step_ns"] / result["ours_ns"])
            cells += [NAMES[peer["peer"]], time(peer["step_ns"]), value]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def compact(results):
    """The README's table: a column for every peer, how many times as long as ours it takes."""
    peers = [p for p in NAMES if any(q["peer"] == p for r in results for q in r["peers"])]
    lines = [
        "| a training step | ours | " + " | ".join(NAMES[p] for p in peers) + " |",
        "|---|--:|" + "--:|" * len(peers),
    ]
    for result in results:
        times = {p["peer"]: p["step_ns"] for p in result["peers"]}
        cells = [ratio(times[p] / result["ours_ns"]) if p in times else "" for p in peers]
        lines.append(f"| {result['about']} | {time(result['ours_ns'])} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


BEGIN, END = "<!-- side by side: written by bench/side-by-side -->", "<!-- side by side: end -->"


def update_readme(results, threads, peak):
    """Puts the table between its two marks, where the README has them."""
    path = ROOT / "README.md"
    text = path.read_text()
    if BEGIN not in text or END not in text:
        return
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    shares = [r["gflops"] / peak for r in results if r["gflops"]]
    reach = f" We reach {100 * min(shares):.0f} to {100 * max(shares):.0f} % of its peak." if shares else ""
    where = f"On {machine(threads)}; measured peak {peak:.0f} GFLOP/s.{reach}"
    path.write_text(f"{before}{BEGIN}\n{compact(results)}\n\n{where}\n{END}{after}")


def machine(threads):
    model = platform.processor() or platform.machine()
    cores = os.cpu_count()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    system = f"{platform.system()} {platform.machine()}"
    return f"{model}, {cores} cores, {threads} used; {system}"


def rust_versions():
    lock = (ROOT / "bench" / "peers" / "Cargo.lock").read_text().split("[[package]]")
    versions = {}
    for package in lock:
        fields = dict(line.split(" = ", 1) for line in package.splitlines() if " = " in line)
        name = fields.get("name", "").strip('"')
        if name in ("burn", "candle-core"):
            versions[name.split("-")[0]] = fields["version"].strip('"')
    if "burn" in versions:
        versions["burn"] += " (its CPU backend flex)"
    return versions


COLOURS = {"torch": "#d1603d", "pyg": "#c98a1b", "jax": "#3f8f6b", "burn": "#7a5bb5", "candle": "#3b6ea5"}


def svg(results):
    """How many times as long as ours a step takes, on a logarithmic scale."""
    row, left, right, top = 26, 270, 40, 64
    width, height = 860, top + row * len(results) + 46
    ratios = [p["step_ns"] / r["ours_ns"] for r in results for p in r["peers"]]
    low = min(0.5, 0.9 * min(ratios))
    high = max(2.0, 1.2 * max(ratios))
    x = lambda v: left + (width - left - right) * math.log(v / low) / math.log(high / low)
    parts = []
    ticks = [m * 10**e for e in range(-2, 5) for m in (1, 2, 5) if low <= m * 10**e <= high]
    if len(ticks) > 9:
        ticks = [t for t in ticks if math.log10(t).is_integer() or t in (2, 5)]
    for tick in ticks:
        label = f"{tick:g}×"
        kind = "one" if tick == 1 else "grid"
        parts.append(f'<path class="{kind}" d="M{x(tick):.1f} {top - 8} V{height - 36}"/>')
        parts.append(f'<text class="s" x="{x(tick):.1f}" y="{height - 18}">{label}</text>')
    for i, result in enumerate(results):
        y = top + row * i + row / 2
        parts.append(f'<text class="l" x="{left - 14}" y="{y + 4:.1f}">{result["workload"]}</text>')
        for peer in result["peers"]:
            value = peer["step_ns"] / result["ours_ns"]
            colour = COLOURS[peer["peer"]]
            title = f"{NAMES[peer['peer']]}: {time(peer['step_ns'])}, ours {time(result['ours_ns'])}"
            parts.append(
                f'<circle cx="{x(value):.1f}" cy="{y:.1f}" r="5.5" fill="{colour}"><title>{title}</title></circle>'
            )
    at = left
    for peer in [p for p in NAMES if any(q["peer"] == p for r in results for q in r["peers"])]:
        parts.append(f'<circle cx="{at}" cy="24" r="5.5" fill="{COLOURS[peer]}"/>')
        parts.append(f'<text class="k" x="{at + 11}" y="28.5">{NAMES[peer]}</text>')
        at += 30 + 8 * len(NAMES[peer])
    parts.append(f'<text class="k" x="14" y="28.5">time of a training step, ours = 1</text>')
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="Times of training steps relative to retrograd's">
<style>
text {{ font-family: system-ui, "Segoe UI", Helvetica, Arial, sans-serif; font-size: 13px; fill: #1f2d3d }}
.l {{ text-anchor: end }} .s {{ text-anchor: middle; fill: #55636f }}
.bg {{ fill: #ffffff }} .grid {{ stroke: #dde1e5 }} .one {{ stroke: #1f2d3d; stroke-width: 1.5 }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #e6edf3 }} .s {{ fill: #a8b3bd }} .bg {{ fill: #0d1117 }} .grid {{ stroke: #2b3138 }} .one {{ stroke: #e6edf3 }}
}}
</style>
<rect class="bg" width="{width}" height="{height}" rx="8"/>
{chr(10).join(parts)}
</svg>
"""


def page(results, peak, versions, threads, rounds, command, picture):
    versions = ", ".join(f"{NAMES[p]} {v}" for p, v in versions.items())
    names = [p for p in NAMES if any(q["peer"] == p for r in results for q in r["peers"])]
    won = sum(p["step_ns"] >= r["ours_ns"] for r in results for p in r["peers"])
    total = sum(len(r["peers"]) for r in results)
    image = f"\n![Times of the peers as multiples of ours]({picture})\n" if picture else ""
    busy = f"load average at the start {LOAD:.1f}" + (", timed at a raised priority" if PREFIX else "")
    left_out = f"\n- Left out, not set up for this run: {', '.join(NAMES[p] for p in WITHOUT)}" if WITHOUT else ""
    rust = " burn and candle build the KAN from tensor operations." if {"burn", "candle"} & set(names) else ""
    commit = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    return f"""# Side by side

The output of `{command}`: the time of a training step (forward, loss, backward,
optimizer; an epoch for graphs), medians over {rounds} alternating round{"s" if rounds > 1 else ""} of ours and theirs. Above 1 × the peer takes longer, below
we lose; of {total} comparisons we are ahead in {won}.

- Machine: {machine(threads)}; {busy}
- Peak, measured with fused multiply-adds in registers: {peak:.0f} GFLOP/s in f32 on {threads} threads
- retrograd {commit}; {versions}{left_out}
{image}
{table(results, peak)}

Everything is f32. All of {", ".join(NAMES[p] for p in names)} start from the weights and the batch that
`retrograd bench NAME --dump FILE` writes, and before a time counts their losses must agree with ours: to
{FIRST_AGREES:g} before the first step and to {LATER_AGREES:g} before the second and the third (graphs, which drop
at random, are compared without dropout; JAX's automata by a first loss in f64). The largest difference was {max(p["loss_differs_by"] for r in results for p in r["peers"]):.0e}. PyTorch runs eagerly, with the layout of images that is faster; its
KAN is computed as efficient-kan does it. PyTorch's GCN uses sparse features and a sparse adjacency; PyTorch
Geometric's networks are those of its examples. JAX runs one jitted function per step, in the bilinear form
of the gates.{rust}
"""


def main():
    parser = argparse.ArgumentParser(prog="bench/side-by-side")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        for name, (peers, about) in WORKLOADS.items():
            print(f"{name:20} {', '.join(NAMES[p] for p in peers):32} {about}")
        return 0
    unknown = [name for name in args.workloads if name not in WORKLOADS]
    if unknown:
        say(f"no workload {', '.join(unknown)}; --list shows all")
        return 2
    names = args.workloads or (QUICK if args.quick else list(WORKLOADS))
    rounds = args.rounds or (1 if args.quick else 5)
    seconds = 0.5 if args.quick else 2.0
    try:
        peak, results, versions = measure(names, args.threads, rounds, seconds)
    except RuntimeError as problem:
        say(f"error: {problem}")
        return 1
    versions |= {p: v for p, v in rust_versions().items() if any(q["peer"] == p for r in results for q in r["peers"])}
    command = " ".join(["bench/side-by-side"] + sys.argv[1:])
    text = page(results, peak, versions, args.threads, rounds, command, "images/benchmarks.svg" if args.out else "")
    if args.out:
        (args.out / "images").mkdir(parents=True, exist_ok=True)
        (args.out / "benchmarks.md").write_text(text)
        (args.out / "images" / "benchmarks.svg").write_text(svg(results))
        figures = {
            "machine": machine(args.threads),
            "threads": args.threads,
            "rounds": rounds,
            "peak_gflops": peak,
            "versions": versions,
            "results": results,
        }
        if args.out.resolve() == ROOT / "docs":
            update_readme(results, args.threads, peak)
        (args.out / "benchmarks.json").write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
