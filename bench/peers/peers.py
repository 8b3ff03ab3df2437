#!/usr/bin/env python3
"""A peer in one of its modes, on a workload that `retrograd bench NAME --dump FILE` wrote.

    peers.py PEER MODE WORKLOAD FILE THREADS

Sets up, compiles where the mode does, and prints one JSON object: the losses before the first three
training steps (`losses`; where the workload has dropout `inference`, the loss of the initial weights, and
`plain`, the losses of three steps without dropout), the seconds of compilation (`compile_s`), and the memory
of a process that has imported the library and nothing else. Then, for every line of standard input, which is a number of seconds, it makes steps for so long and prints
another object: the median and the least time of a step, and the most memory that the process had since the
first object.
"""

import importlib
import json
import os
import sys
import time


def memory(field):
    """Bytes of memory, as Linux counts them: VmRSS now, VmHWM at most."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith(f"{field}:"))
    except (OSError, StopIteration):
        return None


def forget_peak():
    """Importing and compiling is no part of a step's memory, but for what stays."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


def timed(step, seconds):
    warm = time.perf_counter()
    while time.perf_counter() - warm < min(0.3, seconds / 4):
        step()
    times = []
    start = time.perf_counter()
    # Where a step takes seconds, two are enough: rounds repeat them.
    while time.perf_counter() - start < seconds or len(times) < 2:
        before = time.perf_counter_ns()
        step()
        times.append(time.perf_counter_ns() - before)
    times.sort()
    return {"step_ns": times[len(times) // 2], "min_ns": times[0], "steps": len(times)}


def main():
    peer, mode, workload, path, threads = sys.argv[1:]
    from problem import Problem

    problem = Problem(workload, path)
    own = {("torch", "graph"): "torch_graphs", ("jax", "graph"): "jax_graphs", ("jax", "logic"): "jax_automata"}
    name = own.get((peer, problem.family), f"with_{peer}")
    module = importlib.import_module(name)
    imported = memory("VmRSS")
    told, step = (module.train if problem.trains else module.infer)(problem, mode, int(threads))
    # Libraries print what they like; these lines are ours.
    print("\n" + json.dumps(told | {"imported_rss_bytes": imported}), flush=True)
    forget_peak()
    for line in sys.stdin:
        print("\n" + json.dumps(timed(step, float(line)) | {"peak_rss_bytes": memory("VmHWM")}), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    main()
