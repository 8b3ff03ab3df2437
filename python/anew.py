#!/usr/bin/env python3
"""Makes bundles anew: from the model, the parameters and the batch that each has, everything that PyTorch computes.

    python3 python/anew.py                  every bundle of the tests, in place
    python3 python/anew.py --check          only compares: float64 has to agree to 1e-10 of a tensor's largest element
    python3 python/anew.py FILE …           these

All families are covered: networks and graphs by the layers' `torch.py` (counterparts.py), DAGs and automata by their
folders'. A bundle that another framework wrote (its `source`) is left as it is. Needs torch and safetensors.
"""

import argparse
import json
import pathlib
import sys

import torch
from counterparts import SOURCES, Graph, build, load
from reference import compute
from safetensors import safe_open
from safetensors.torch import save_file

TESTS = SOURCES.parent / "tests" / "reference"
# What a bundle is made from; all else is computed.
GIVEN = ("input/", "param/", "buffer/")


def families():
    """The folders of families that are not lists of layers, by the family's name."""
    found = [load(path) for path in sorted(SOURCES.glob("*/torch.py")) + sorted(SOURCES.glob("graph/*/torch.py"))]
    return {family.FAMILY: family for family in found}


def model_of(spec, tensors):
    """The module, with the bundle's parameters and buffers."""
    inputs = {name.removeprefix("input/"): t for name, t in tensors.items() if name.startswith("input/")}
    own = families()
    for name in tensors:
        if name.startswith("buffer/") and name.endswith(".knots"):
            # Knots that a bundle brings are free, whether its model says so or not.
            spec["layers"][int(name.removeprefix("buffer/").split(".")[0])]["free_knots"] = True
    module = own[spec["family"]].make(spec, inputs) if spec["family"] in own else build(spec)
    module = module.double().train()
    given = {name.removeprefix("param/"): t for name, t in tensors.items() if name.startswith("param/")}
    names = dict(module.named_parameters())
    if set(names) != set(given):
        raise ValueError(f"parameters: got {sorted(given)}, needs {sorted(names)}")
    with torch.no_grad():
        for name, parameter in names.items():
            parameter.copy_(given[name])
        for name, t in tensors.items():
            if name.startswith("buffer/"):
                number, buffer = name.removeprefix("buffer/").split(".", 1)
                getattr(module[int(number)], buffer).copy_(t)
    return module


def graph_of(tensors):
    """The graph of a bundle, or None."""
    if "input/edge_index" not in tensors or "input/edge_weight" in tensors and "param/edge_weight" in tensors:
        return None
    x = tensors.get("input/x", tensors.get("input/ids"))
    rest = [tensors.get(f"input/{name}") for name in ("edge_weight", "edge_attr", "graph_of_node")]
    return Graph(len(x), tensors["input/edge_index"], *rest)


def anew(path):
    """The bundle's tensors as they were and as they are computed now, and its metadata; None where PyTorch didn't
    write it."""
    with safe_open(path, "pt") as file:
        metadata = dict(file.metadata())
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    task, spec = json.loads(metadata["task"]), json.loads(metadata["model"])
    if "optimizers" not in task or "orch" not in metadata.get("source", ""):
        return None
    told = {name: t for name, t in tensors.items() if name.startswith(GIVEN)}
    module = model_of(spec, tensors)
    graph = graph_of(tensors) if spec["family"] == "graph" else None
    state = "input/state" in tensors
    x = tensors["input/state"] if state else tensors.get("input/x", tensors.get("input/ids"))
    for dtype, suffix in [(torch.float64, ""), (torch.float32, "32")]:
        real = lambda t: t.to(dtype) if t.is_floating_point() else t
        own = graph and graph.to(dtype)
        settings = task["loss"], task["optimizers"], task["steps"]
        compute(module.to(dtype), real(x), own, real(tensors["input/target"]), *settings, told, suffix)
        if state:
            # The grid an automaton starts from is bits.
            told.pop(f"grad_input{suffix}/x")
    metadata["source"] = f"PyTorch {torch.__version__}, anew.py"
    return tensors, {name: t.detach().contiguous().clone() for name, t in told.items()}, metadata


def differences(before, now):
    """The tensors in float64 that differ by more than 1e-10 of their largest element, and names that only one has."""
    wrong = [f"{name}: missing now" for name in sorted(set(before) - set(now))]
    wrong += [f"{name}: missing before" for name in sorted(set(now) - set(before))]
    for name in sorted(set(before) & set(now)):
        a, b = before[name], now[name]
        if a.shape != b.shape:
            wrong.append(f"{name}: shape {list(a.shape)}, now {list(b.shape)}")
        elif a.dtype == torch.float64 and a.numel():
            error = (a - b).abs().max().item()
            if not error <= 1e-10 * max(a.abs().max().item(), 1e-300):
                wrong.append(f"{name}: off by {error:.1e}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    files = arguments.files or sorted(TESTS.glob("*.safetensors"))
    failed = 0
    for path in files:
        told = anew(path)
        if told is None:
            print(f"{path.name}: left as it is, another framework wrote it")
            continue
        before, now, metadata = told
        wrong = differences(before, now)
        if arguments.check:
            failed += bool(wrong)
            print(f"{path.name}: {len(now)} tensors, {'; '.join(wrong[:3]) or 'the same'}", flush=True)
        else:
            save_file(now, path, metadata)
            print(f"{path.name}: {len(now)} tensors, {len(wrong)} other", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
