#!/usr/bin/env python3
"""Random right models, written as bundles from PyTorch and checked: whatever is accused is a false alarm, or a bug.

    python3 calibrate.py --models 200 [--seed S] [--retrograd PATH] [--keep FOLDER] [--device gpu]

Draws models of dense layers and KANs, of convolutions, of graphs, and automata: kinds, options, shapes (odd, prime, around powers of
two), batches of one and of hundreds, losses, optimizers, and data from 1e-3 to 1e3 with ties and repeated samples. PyTorch
computes each in float64 and float32, `retrograd verify --against` compares. Printed are rows that were
checked, left unchecked and accused, by family and link, and every accused row with the number that draws its model
again (`--only N`). Bundles of accused models are kept in --keep. The exit code is 1 where one was accused.

Needs torch and safetensors, as reference.py does, and the command (`cargo build --release`).
"""

import argparse
import collections
import json
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import torch
from anew import families
from counterparts import Graph, build
from reference import LOSSES, OPTIMIZERS, compute, write_bundle
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILT = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "retrograd"
SMOOTH = ["tanh", "sigmoid", "gelu", "silu"]
ACTIVATIONS = [*SMOOTH, "relu", "leaky_relu", "elu"]
# Where kernels part their work: one below, at and one above.
SIZES = [1, 2, 3, 5, 7, 8, 9, 13, 15, 16, 17, 23, 31, 32, 33]
BATCHES = [1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 257]
AT_A_TIME = 25


def activation(draw):
    kind = draw.choice(ACTIVATIONS)
    options = {"leaky_relu": {"slope": draw.choice([0.01, 0.2])}, "elu": {"alpha": draw.choice([1.0, 0.7])}}
    return {"kind": kind, **options.get(kind, {})}


def kan(draw, out):
    low = draw.choice([-1.0, -2.0, 0.0])
    return {
        "kind": "kan",
        "out": out,
        "grid": draw.choice([1, 2, 5, 8]),
        "degree": draw.choice([1, 2, 3]),
        "range": [low, low + draw.choice([1.0, 2.0, 4.0])],
        "base": draw.choice(["silu", "none"]),
        "bias": draw.random() < 0.5,
        "outside": draw.choice(["decay", "clamp"]),
    }


def dense_model(draw):
    """Rows of numbers."""
    width = inputs = draw.choice(SIZES)
    layers, widths = [], [inputs]
    if draw.random() < 0.2:
        layers.append({"kind": "normalize"})
        widths.append(width)
    for _ in range(draw.randint(1, 3)):
        out = draw.choice(SIZES)
        if draw.random() < 0.4:
            layers.append(kan(draw, out))
        else:
            layers.append({"kind": "dense", "out": out, "bias": draw.random() < 0.7})
        widths.append(out)
        if out > 1 and draw.random() < 0.3:
            layers.append({"kind": "layer_norm"})
            widths.append(out)
        if draw.random() < 0.7:
            layers.append(activation(draw))
            widths.append(out)
        # The last entry is the layer before, the first the network's input.
        earlier = [i - 1 for i, w in enumerate(widths[:-1]) if w == out]
        if earlier and draw.random() < 0.3:
            layers.append({"kind": "add", "with": draw.choice(earlier)})
            widths.append(out)
        width = out
    layers.append({"kind": "dense", "out": draw.choice([2, 3, 5, 10])})
    return {"family": "network", "input": [inputs], "layers": layers}, draw.choice(BATCHES)


def image_model(draw):
    """Pictures; sides follow from what the layers leave."""
    channels, height, width = draw.choice([1, 2, 3]), draw.randint(5, 19), draw.randint(5, 19)
    shape = [channels, height, width]
    layers = []
    for _ in range(draw.randint(1, 3)):
        c, h, w = shape
        side = min(h, w)
        kind = draw.choice(["conv2d", "conv2d", "conv2d", "max_pool2d", "avg_pool2d", "upsample", "conv_transpose2d"])
        out = draw.choice([1, 2, 4, 6, 8])
        if kind == "conv2d":
            kernel = draw.choice([k for k in (1, 2, 3, 5) if k <= side])
            padding = draw.choice([0, kernel // 2])
            layer = {"kind": kind, "out": out, "kernel": kernel, "padding": padding, "bias": draw.random() < 0.7}
            if padding and padding < side:
                layer["padding_mode"] = draw.choice(["zeros", "reflect"])
            if draw.random() < 0.3:
                layer["stride"] = 2
            if draw.random() < 0.2 and 2 * (kernel - 1) + 1 <= side:
                layer["dilation"] = 2
            if c > 1 and out % c == 0 and draw.random() < 0.3:
                layer["groups"] = c
        elif kind in ("max_pool2d", "avg_pool2d"):
            if side < 2:
                continue
            layer = {"kind": kind, "kernel": 2}
        elif kind == "upsample":
            if max(h, w) > 12:
                continue
            layer = {"kind": kind, "scale": 2}
        else:
            if max(h, w) > 12:
                continue
            layer = {"kind": kind, "out": out, "kernel": 3, "stride": draw.choice([1, 2]), "padding": 1}
        layers.append(layer)
        shape = shape_after(channels, height, width, layers)
        c = shape[0]
        if layer["kind"].startswith("conv") and draw.random() < 0.4:
            groups = draw.choice([g for g in (1, 2, c) if c % g == 0])
            layers.append(draw.choice([{"kind": "batch_norm2d"}, {"kind": "group_norm", "groups": groups}]))
        if draw.random() < 0.7:
            layers.append(activation(draw))
    if not any(layer["kind"].startswith("conv") for layer in layers):
        layers.append({"kind": "conv2d", "out": 2, "kernel": 1})
    if draw.random() < 0.5:
        layers += [{"kind": "flatten"}, {"kind": "dense", "out": draw.choice([2, 3, 10])}]
    return {"family": "network", "input": [channels, height, width], "layers": layers}, draw.choice([2, 3, 5, 8])


def shape_after(channels, height, width, layers):
    model = build({"family": "network", "input": [channels, height, width], "layers": layers})
    with torch.no_grad():
        return list(model.eval()(torch.zeros(2, channels, height, width)).shape[1:])


def graph_model(draw):
    """Nodes with edges of all kinds, some without any."""
    model = {"family": "graph", "features": draw.choice(SIZES)}
    kinds = ["gcn", "sage", "gin", "message_passing", "gat", "gatv2", "self_attention"]
    if draw.random() < 0.25:
        model["edge_weight"], kinds = True, ["gcn"]
    elif draw.random() < 0.25:
        model["edge_features"], kinds = draw.choice([1, 2, 5]), ["gine"]
    layers, width = [], model["features"]
    for _ in range(draw.randint(1, 2)):
        kind = draw.choice(kinds)
        out = draw.choice([2, 3, 5, 8, 16])
        if kind == "self_attention":
            layers.append({"kind": kind, "heads": draw.choice([h for h in (1, 2, 4) if width % h == 0])})
        elif kind in ("gat", "gatv2"):
            heads = draw.choice([1, 2, 3])
            layers.append({"kind": kind, "out": out, "heads": heads})
            width = out * heads
        else:
            layers.append({"kind": kind, "out": out})
            width = out
        if width > 1 and draw.random() < 0.3:
            layers.append({"kind": "layer_norm"})
        if draw.random() < 0.7:
            layers.append(activation(draw))
    if draw.random() < 0.4:
        layers.append({"kind": draw.choice(["sum_pool", "mean_pool", "max_pool"])})
        model["graphs"] = draw.choice([1, 2, 5])
    layers.append({"kind": "dense", "out": draw.choice([2, 3, 7])})
    return {**model, "layers": layers}, draw.choice([2, 3, 9, 16, 17, 40, 65])


def random_graph(draw, model, nodes):
    graphs = min(model.get("graphs", 1), nodes)
    of_node = torch.arange(nodes) * graphs // nodes
    dense = draw.choice([0.5, 2.5, 6.0])
    chosen = (torch.rand(nodes, nodes) < dense / nodes) & (of_node[:, None] == of_node[None, :])
    chosen.fill_diagonal_(False)
    edges = chosen.nonzero().T.contiguous()
    weight = torch.rand(edges.shape[1]) + 0.5 if "edge_weight" in model else None
    attributes = torch.randn(edges.shape[1], model["edge_features"]) if "edge_features" in model else None
    return Graph(nodes, edges, weight, attributes, of_node if "graphs" in model else None)


def wires(draw, inputs, gates):
    """Two different inputs for every gate."""
    pairs = [draw.sample(range(inputs), 2) for _ in range(gates)]
    return torch.tensor(pairs).T.contiguous()


def write_automaton(path, draw, optimizers, steps):
    """Soft gates over a grid of bits or of numbers between 0 and 1; the first channel is looked at."""
    channels, kernels = draw.choice([1, 2, 3, 8]), draw.choice([1, 2, 3])
    perception = draw.choice([[9, 8, 4, 2], [9, 5, 3], [9, 8, 1]])
    update = [channels * (1 + kernels * perception[-1])]
    update += [draw.choice([4, 7, 8, 16, 17]) for _ in range(draw.randint(0, 2))] + [channels]
    if min(update[:-1]) < 2:
        update[1:1] = [4]
    model = {"family": "logic_ca", "channels": channels, "kernels": kernels, "perception": perception, "update": update}
    model |= {"steps": draw.randint(1, 5), "boundary": draw.choice(["periodic", "zero"])}
    batch, height, width = draw.choice([1, 2, 3]), draw.randint(2, 9), draw.randint(2, 9)
    state = torch.rand(batch, height, width, channels)
    inputs = {"state": state.round() if draw.random() < 0.5 else state, "target": torch.rand(batch, height, width).round()}
    for name, widths in [("perception", perception), ("update", update)]:
        for number in range(len(widths) - 1):
            inputs[f"wires.{name}.{number}"] = wires(draw, widths[number], widths[number + 1])
    if draw.random() < 0.4:
        model["fire_rate"] = 0.6
        inputs["fire"] = (torch.rand(model["steps"], height, width) < 0.6).float()
    module = families()["logic_ca"].make(model, inputs)
    scale = draw.choice([0.3, 1.0, 5.0])
    with torch.no_grad():
        for p in module.parameters():
            p += scale * torch.randn(p.shape)
    real = lambda t, dtype: t.to(dtype) if t.is_floating_point() else t
    tensors = {f"input/{name}": real(t, torch.float64) for name, t in inputs.items()}
    for name, p in module.named_parameters():
        tensors[f"param/{name}"] = p.detach().double()
    for dtype, suffix in [(torch.float64, ""), (torch.float32, "32")]:
        settings = "sum_squares", optimizers, steps, tensors, suffix
        compute(module.to(dtype), real(inputs["state"], dtype), None, real(inputs["target"], dtype), *settings)
        # The grid an automaton starts from is bits.
        tensors.pop(f"grad_input{suffix}/x")
    task = {"loss": "sum_squares", "steps": steps, "optimizers": optimizers}
    metadata = {"format": "retrograd-reference-1", "model": json.dumps(model), "task": json.dumps(task)}
    metadata["source"] = f"PyTorch {torch.__version__}, calibrate.py"
    save_file({name: t.detach().contiguous().clone() for name, t in tensors.items()}, path, metadata)
    return f"{channels} channels, {kernels} kernels, update {update}, {model['steps']} steps, {batch}×{height}×{width}"


FAMILIES = {"dense": dense_model, "images": image_model, "graphs": graph_model, "automata": None}


def write(path, seed, number):
    """Draws the model of a number and writes its bundle; its family, and what it is."""
    draw = random.Random(f"{seed} {number}")
    torch.manual_seed(draw.getrandbits(32))
    family = draw.choice(list(FAMILIES))
    if family == "automata":
        optimizers = {name: OPTIMIZERS[name] for name in draw.sample(list(OPTIMIZERS), draw.randint(1, 2))}
        return family, write_automaton(path, draw, optimizers, draw.randint(1, 5))
    model, count = FAMILIES[family](draw)
    graph = random_graph(draw, model, count) if family == "graphs" else None
    shape = [count, model["features"]] if graph else [count, *model["input"]]
    x = torch.randn(shape) * 10 ** draw.uniform(-3, 3)
    if draw.random() < 0.3:
        x = (x * 2).round() / 2  # ties
    if count > 1 and draw.random() < 0.3:
        x[1] = x[0]
    modules = build({key: value for key, value in model.items() if key != "graphs"})
    with torch.no_grad():
        for p in modules.parameters():
            p += 0.1 * torch.randn(p.shape)
        y = modules(x, graph)
    names = [name for name in LOSSES if name != "cross_entropy" or y.dim() == 2]
    loss = draw.choice(names)
    target = torch.randn(y.shape)
    if loss == "cross_entropy":
        target = torch.randint(y.shape[1], (y.shape[0],))
    elif loss == "bce_logits":
        target = torch.rand(y.shape).round()
    optimizers = {name: OPTIMIZERS[name] for name in draw.sample(list(OPTIMIZERS), draw.randint(1, 2))}
    write_bundle(path, modules, x, target, loss, optimizers, steps=draw.randint(1, 5), graph=graph)
    kinds = " ".join(layer["kind"] for layer in model["layers"])
    return family, f"{kinds}; {count} samples, {loss}, data of {float(x.abs().max()):.1e}"


def upper_limit(accused, rows):
    """What the rate is below with 95 %: Poisson's."""
    low, high = 0.0, float(accused) * 3 + 30
    for _ in range(60):
        mean = (low + high) / 2
        terms = [math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(accused + 1)]
        low, high = (mean, high) if sum(terms) > 0.05 else (low, mean)
    return high / rows if rows else 1.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--retrograd", type=pathlib.Path, default=BUILT)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    numbers = list(range(arguments.models)) if arguments.only is None else [arguments.only]
    counts = collections.defaultdict(collections.Counter)
    problems = []
    for first in range(0, len(numbers), AT_A_TIME):
        with tempfile.TemporaryDirectory() as folder:
            drawn = {}
            for number in numbers[first : first + AT_A_TIME]:
                path = pathlib.Path(folder) / f"model-{number}.safetensors"
                drawn[path.stem] = (*write(path, arguments.seed, number), path)
            report = pathlib.Path(folder) / "report.json"
            paths = [path for *_, path in drawn.values()]
            command = [arguments.retrograd, "verify", "--device", arguments.device, "--json", report, "-q", "--against", *paths]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode not in (0, 1) or not report.exists():
                sys.exit(f"{done.stdout}{done.stderr}")
            for row in json.loads(report.read_text())["rows"]:
                stem = pathlib.Path(row["model"]).stem
                family, words, path = drawn[stem]
                counts[family, row["link"]][row["verdict"]] += 1
                if row["verdict"] == "fail":
                    by = "no number" if row["ratio"] is None else f"{row['ratio']:.2f} of its bound"
                    problems.append(f"{stem} ({words}): {row['tensor']}, link {row['link']}, {by}")
                    if arguments.keep:
                        arguments.keep.mkdir(parents=True, exist_ok=True)
                        shutil.copy(path, arguments.keep)
    print(f"| family | link | rows | unchecked | accused | rate, below with 95 % |\n|---|---|--:|--:|--:|--:|")
    for (family, link), verdicts in sorted(counts.items()):
        rows = verdicts["pass"] + verdicts["fail"]
        limit = upper_limit(verdicts["fail"], rows)
        print(f"| {family} | {link} | {rows} | {verdicts['unchecked']} | {verdicts['fail']} | {limit:.1e} |")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
