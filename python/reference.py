#!/usr/bin/env python3
"""Writes a reference bundle from a PyTorch model, to be checked by `retrograd verify --against`.

    from reference import KAN, write_bundle
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), KAN(8, 3, grid=5, degree=3))
    write_bundle("mine.safetensors", model, x, target, loss="cross_entropy")

`python3 reference.py FOLDER` writes an example for every kind of layer there. Needs torch and
safetensors. What a kind is in PyTorch is said in its own folder (counterparts.py); `build` makes the
modules from a model as bundles describe it.

Everything is computed twice: in float64, the oracle, and in float32, the peer. Parameters and
batch are rounded to float32 first, so that both start from the same numbers. Layers of the
`nn.Sequential` keep their numbers, so parameters are called `N.weight` and so on.
"""

import copy
import json
import sys

import torch
from counterparts import EXAMPLES, MODULES, Graph, build, describe
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F
globals().update(MODULES)

LOSSES = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "huber": F.huber_loss,
    "bce_logits": F.binary_cross_entropy_with_logits,
    "cross_entropy": F.cross_entropy,
    # Of automata, whose first channel is looked at.
    "sum_squares": lambda y, target: ((y[..., 0] if y.dim() > target.dim() else y) - target).square().sum(),
}

OPTIMIZERS = {
    "sgd": {"kind": "sgd", "lr": 0.05},
    "momentum_clip": {"kind": "sgd", "lr": 0.02, "momentum": 0.9, "weight_decay": 1e-3, "clip": 0.5},
    "adam": {"kind": "adam", "lr": 0.01},
    "adamw": {"kind": "adamw", "lr": 0.01, "betas": [0.9, 0.99], "weight_decay": 0.01},
}


def make_optimizer(options, parameters):
    options = dict(options)
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[options.pop("kind")]
    return kind(parameters, **options)


def compute(model, x, graph, target, loss, optimizers, steps, tensors, suffix):
    """Everything of one precision; `suffix` is empty for float64 and 32 for float32."""
    x = x.clone().requires_grad_(x.is_floating_point())
    given = () if graph is None else (graph,)
    run = copy.deepcopy(model)
    y = run(x, *given)
    value = LOSSES[loss](y, target)
    value.backward()
    tensors[f"output{suffix}/y"] = y.detach()
    tensors[f"output{suffix}/loss"] = value.detach().reshape(1)
    if x.grad is not None:
        tensors[f"grad_input{suffix}/x"] = x.grad
    for name, p in run.named_parameters():
        tensors[f"grad{suffix}/{name}"] = p.grad
    for label, options in optimizers.items():
        run = copy.deepcopy(model)
        options = dict(options)
        clip, clip_element = options.pop("clip", None), options.pop("clip_element", None)
        optimizer = make_optimizer(options, run.parameters())
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            value = LOSSES[loss](run(x.detach(), *given), target)
            value.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(run.parameters(), clip)
            if clip_element is not None:
                nn.utils.clip_grad_value_(run.parameters(), clip_element)
            optimizer.step()
            losses.append(value.detach())
        tensors[f"losses{suffix}/{label}"] = torch.stack(losses)
        for name, p in run.named_parameters():
            tensors[f"after{suffix}/{label}/{name}"] = p.detach()


def model_of(model, x, graph):
    """The model as the bundle's metadata describes it."""
    layers = [describe(module) for module in model]
    if graph is None:
        return {"family": "network", "input": list(x.shape[1:]), "layers": layers}
    spec = {"family": "graph"}
    if x.is_floating_point():
        spec["features"] = x.shape[1]
    if graph.edge_weight is not None:
        spec["edge_weight"] = True
    if graph.edge_attr is not None:
        spec["edge_features"] = graph.edge_attr.shape[1]
    return {**spec, "layers": layers}


def write_bundle(path, model, x, target, loss="mse", optimizers=None, steps=5, graph=None):
    """Writes the bundle. `model` is an nn.Sequential (or `build`'s), `x` a batch, `target` values
    like the output or class numbers. With a `graph`, `x` has a row for each node, or its id."""
    if loss not in LOSSES:
        raise ValueError(f"loss {loss!r}: needs one of {', '.join(LOSSES)}")
    optimizers = OPTIMIZERS if optimizers is None else optimizers
    model = copy.deepcopy(model).float().train()
    ids = not x.is_floating_point() and graph is not None
    x = x if ids else x.float()
    graph = graph and graph.to(torch.float32)
    description = model_of(model, x, graph)
    classes = loss == "cross_entropy"
    target = target.long() if classes else target.float()
    real = lambda t, dtype: t.to(dtype) if t.is_floating_point() else t
    tensors = {"input/ids" if ids else "input/x": real(x, torch.float64)}
    tensors["input/target"] = real(target, torch.float64)
    for name, t in (graph.tensors() if graph else {}).items():
        tensors[f"input/{name}"] = real(t, torch.float64)
    for name, p in model.named_parameters():
        tensors[f"param/{name}"] = p.detach().double()
    for number, module in enumerate(model):
        for name in getattr(module, "kept", []):
            tensors[f"buffer/{number}.{name}"] = getattr(module, name).double()
    for dtype, suffix in [(torch.float64, ""), (torch.float32, "32")]:
        run = copy.deepcopy(model).to(dtype)
        own = graph and graph.to(dtype)
        compute(run, real(x, dtype), own, real(target, dtype), loss, optimizers, steps, tensors, suffix)
    metadata = {
        "format": "retrograd-reference-1",
        "model": json.dumps(description),
        "task": json.dumps({"loss": loss, "steps": steps, "optimizers": optimizers}),
        "source": f"PyTorch {torch.__version__}, reference.py",
    }
    save_file({name: t.detach().contiguous().clone() for name, t in tensors.items()}, path, metadata)


def example_graph(example):
    """Random edges without loops, within a graph, and what else the example's model reads."""
    nodes = example["nodes"]
    of_node = torch.arange(nodes) * example.get("graphs", 1) // nodes
    chosen = (torch.rand(nodes, nodes) < 2.5 / nodes) & (of_node[:, None] == of_node[None, :])
    chosen.fill_diagonal_(False)
    edges = chosen.nonzero().T.contiguous()
    weight = torch.rand(edges.shape[1]) + 0.5 if example.get("edge_weight") else None
    attributes = torch.randn(edges.shape[1], example["edge_features"]) if "edge_features" in example else None
    return Graph(nodes, edges, weight, attributes, of_node if "graphs" in example else None)


def write_example(path, example):
    """A small model with weights, data and targets drawn at random."""
    torch.manual_seed(0)
    graph = None
    if "nodes" in example:
        graph = example_graph(example)
        nodes = example["nodes"]
        x = torch.randint(example["ids"], (nodes,)) if "ids" in example else torch.randn(nodes, example["features"])
    else:
        x = torch.randn(example["batch"], *example["input"])
    model = build({"family": "network" if graph is None else "graph", **example})
    with torch.no_grad():
        # Weights that start at 0 or 1 would hide mistakes.
        for p in model.parameters():
            p += 0.1 * torch.randn(p.shape)
        y = copy.deepcopy(model)(x, graph)
    classes = example["loss"] == "cross_entropy"
    target = torch.arange(y.shape[0]) % y.shape[1] if classes else torch.randn(y.shape)
    optimizers = {name: OPTIMIZERS[name] for name in example.get("optimizers", OPTIMIZERS)}
    write_bundle(path, model, x, target, example["loss"], optimizers, graph=graph)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for name, example in EXAMPLES.items():
        write_example(f"{sys.argv[1]}/example_{name}.safetensors", example)
