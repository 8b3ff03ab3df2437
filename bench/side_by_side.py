"""The command `bench/side-by-side`, which sets up what this needs and says how it is used."""

import argparse
import datetime
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import growth
import sides
from page import machine, page, svg, update_readme
from peers.modes import NAMES, modes
from sides import ROOT, Machine, Side, expected_losses, measure, say

ALL = ["torch", "jax", "burn", "candle"]
TWO = ["torch", "jax"]
GRAPHS = ["torch", "pyg", "jax"]
ONE = ["torch", "jax", "onnx"]

# Of every workload its family, its peers, and what it is.
WORKLOADS = {
    "kan-poker-64": ("rows", ALL, "KAN 21-64-64-24, batch 64"),
    "kan-poker-256": ("rows", ALL, "KAN 21-64-64-24, batch 256"),
    "kan-wide-256": ("rows", ALL, "KAN 64-128-128-10, batch 256"),
    "kan-mnist-256": ("rows", ALL, "KAN 784-64-10, batch 256"),
    "mlp-256": ("rows", ALL, "MLP 64-256-256-10, GELU, batch 256"),
    "cnn-128": ("images", ALL, "convolutions 1-16-16-1, 2 images of 128×128"),
    "cnn-1024": ("images", ALL, "convolutions 1-16-16-1, 2 images of 1024×1024"),
    "cnn-deep12-256": ("images", ALL, "12 convolutions, 32 channels, 1 image of 256×256"),
    "unet-256": ("images", TWO, "U-Net 32-64-128-256, 1 image of 256×256"),
    "graph-gcn16": ("graph", GRAPHS, "GCN, 16 hidden, a graph of Cora's size"),
    "graph-gcn64": ("graph", GRAPHS, "GCN, 64 hidden, a graph of Cora's size"),
    "graph-gat8": ("graph", GRAPHS, "GAT, 8 heads of 8, a graph of Cora's size"),
    "logic-life": ("logic", TWO, "automaton, Game of Life, 20 boards"),
    "logic-checkerboard": ("logic", TWO, "automaton, checkerboard, 20 steps"),
    "logic-async": ("logic", TWO, "automaton, asynchronous, 50 steps"),
    "logic-g": ("logic", TWO, "automaton, coloured G, 64 channels"),
    "logic-lizard": ("logic", TWO, "automaton, lizard, 128 channels"),
    "kan-poker-1-frozen-f32": ("rows", ONE, "inference: KAN 21-64-64-24, one sample"),
    "mlp-1-forward": ("rows", ONE, "inference: MLP 64-256-256-10, one sample"),
    "unet-256-forward": ("images", ONE, "inference: U-Net, one image of 256×256"),
}
QUICK = ["kan-poker-64", "mlp-256", "cnn-128", "graph-gcn16", "logic-life", "mlp-1-forward"]


def of_workload(workload):
    """Its peers with their modes."""
    family, peers, _ = WORKLOADS[workload]
    trains = not workload.endswith(("-forward", "-frozen-f32"))
    return [(peer, mode) for peer in peers for mode in modes(peer, family, trains)]


def rust_versions():
    lock = (ROOT / "bench" / "peers" / "Cargo.lock").read_text().split("[[package]]")
    versions = {}
    for package in lock:
        fields = dict(line.split(" = ", 1) for line in package.splitlines() if " = " in line)
        name = fields.get("name", "").strip('"')
        if name in ("burn", "candle-core"):
            versions[name.split("-")[0]] = fields["version"].strip('"')
    return versions


def version_of(given):
    """The commit that was built, or when a given command was."""
    if given is not None:
        when = datetime.datetime.fromtimestamp(given.stat().st_mtime, datetime.timezone.utc)
        return f"built {when:%Y-%m-%d %H:%M}"
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return commit.stdout.strip()


def chosen(only, workload):
    """The modes that `--mode` leaves: those that contain one of its texts."""
    name = lambda side: f"{NAMES[side[0]]}, {side[1]}"
    return [side for side in of_workload(workload) if not only or any(text in name(side) for text in only)]


def measured(place, version, workload, peak, rounds, seconds, only):
    """The figures of a workload."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        problem = Path(folder, "problem.safetensors")
        place.run([place.retrograd, "bench", workload, "--dump", problem])
        asked = [Side(place, peer, mode, workload, problem) for peer, mode in chosen(only, workload)]
        figures = measure(place, workload, asked, expected_losses(problem), rounds, seconds)
    made = [(mode["peer"], mode["mode"]) for mode in figures["modes"]]
    left = [side for side in of_workload(workload) if side not in made]
    figures["modes"] += [{"peer": peer, "mode": mode, "failed": "not measured (--mode)"} for peer, mode in left]
    known = rust_versions()
    for mode in figures["modes"]:
        if mode["peer"] in known:
            mode["version"] = known[mode["peer"]]
    return {
        "workload": workload,
        "about": WORKLOADS[workload][2],
        "measured": {
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
            "retrograd": version,
            "machine": machine(place.threads),
            "threads": place.threads,
            "realtime": place.realtime,
            "peak_gflops": peak,
            "seconds": time.monotonic() - start,
        },
    } | figures


def kept(path):
    """The figures of earlier runs, by workload."""
    if path is None or not path.exists():
        return {}
    results = json.loads(path.read_text()).get("results", [])
    # Files of before had one mode for each peer.
    return {r["workload"]: r for r in results if "modes" in r}


def kept_growth(path):
    """The figures of earlier runs of what grows, by name."""
    if path is None or not path.exists():
        return {}
    return {g["name"]: g for g in json.loads(path.read_text()).get("growth", [])}


def arguments():
    parser = argparse.ArgumentParser(prog="bench/side-by-side")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--patience", type=float, default=sides.SETUP_SECONDS)
    parser.add_argument("--mode", action="append", default=[])
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--retrograd", type=Path)
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


def write(results, grown, out):
    """Page, pictures and README, from all figures that there are."""
    missing = [name for name in WORKLOADS if name not in results]
    ordered = [results[name] for name in WORKLOADS if name in results]
    text = page(ordered, missing if out else [], "images/benchmarks.svg" if out else "")
    grown = [grown[name] for name in growth.ALIKE if name in grown]
    text += growth.section(grown, "images/growth.svg")
    if out:
        (out / "images").mkdir(parents=True, exist_ok=True)
        (out / "benchmarks.md").write_text(text)
        (out / "images" / "benchmarks.svg").write_text(svg(ordered))
        if grown:
            (out / "images" / "growth.svg").write_text(growth.svg(grown))
        figures = {"results": ordered, "growth": grown}
        (out / "benchmarks.json").write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
        if out.resolve() == ROOT / "docs":
            update_readme(ordered)
    return text


def main():
    args = arguments()
    if args.list:
        for name, (_, _, about) in WORKLOADS.items():
            print(f"{name}: {about}")
            for peer, mode in of_workload(name):
                print(f"    {NAMES[peer]}, {mode}")
        return 0
    unknown = [name for name in args.workloads if name not in (growth.ALIKE if args.growth else WORKLOADS)]
    if unknown:
        say(f"no workload {', '.join(unknown)}; --list shows all")
        return 2
    results = kept(args.out and args.out / "benchmarks.json")
    grown = kept_growth(args.out and args.out / "benchmarks.json")
    if args.page:
        if not results:
            say("--page: got no figures in --out FOLDER, needs those of an earlier run")
            return 2
        print(write(results, grown, args.out), end="")
        return 0
    names = args.workloads or (QUICK if args.quick else list(WORKLOADS))
    rounds = args.rounds or (1 if args.quick else 5)
    seconds = args.seconds or (0.3 if args.quick else 1.0)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    sides.SETUP_SECONDS = args.patience
    # Sides that rest would rest for ever.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    place = Machine(args.threads, args.realtime, args.retrograd or target / "release" / "retrograd")
    try:
        version = version_of(args.retrograd)
        if args.growth:
            for figures in growth.measured(place, results, args.workloads, seconds):
                grown[figures["name"]] = figures
            print(growth.table([grown[name] for name in growth.ALIKE if name in grown]))
            if args.out:
                write(results, grown, args.out)
            return 0
        say("peak")
        peak = statistics.median(place.bench("peak-f32")["gflops"] for _ in range(min(rounds, 3)))
        for number, name in enumerate(names):
            say(f"{name}, {number + 1} of {len(names)}")
            results[name] = measured(place, version, name, peak, rounds, seconds, args.mode)
            # After each: what is measured is kept if the rest fails.
            text = write(results, grown, args.out)
    except (RuntimeError, OSError) as problem:
        say(f"error: {problem}")
        return 1
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
