"""`gcn`, `sage`, `gin` and `message_passing` in PyTorch's operations, with the names of PyTorch
Geometric's GCNConv, SAGEConv and GINConv."""

import torch
from torch import nn
from torch.nn import functional as F


class GCN(nn.Module):
    """Self-loops of weight 1 are added, then an edge from j to i weighs w/√(d_i·d_j), d being the
    weighted in-degree."""

    on_graph = True

    def __init__(self, inputs, out):
        super().__init__()
        self.lin = nn.Linear(inputs, out, bias=False)
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x, graph):
        source, target = graph.with_loops()
        weight = torch.ones(len(source), dtype=x.dtype)
        if graph.edge_weight is not None:
            weight[: len(graph.edge_weight)] = graph.edge_weight
        root = graph.sum(weight, target) ** -0.5
        weight = root[source] * weight * root[target]
        return graph.sum(weight[:, None] * self.lin(x)[source], target) + self.bias


class SAGE(nn.Module):
    """The mean of the in-neighbours through lin_l, the node itself through lin_r."""

    on_graph = True

    def __init__(self, inputs, out):
        super().__init__()
        self.lin_l = nn.Linear(inputs, out)
        self.lin_r = nn.Linear(inputs, out, bias=False)

    def forward(self, x, graph):
        source, target = graph.edge_index
        return self.lin_l(graph.mean(x[source], target)) + self.lin_r(x)


class GIN(nn.Module):
    """Two dense layers over the sum of the in-neighbours and (1 + eps) times the node itself."""

    on_graph = True

    def __init__(self, inputs, out):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.nn = nn.Sequential(nn.Linear(inputs, out), nn.ReLU(), nn.Linear(out, out))

    def forward(self, x, graph):
        source, target = graph.edge_index
        return self.nn(graph.sum(x[source], target) + (1 + self.eps) * x)


class MessagePassing(nn.Module):
    """W · mean over the node and its in-neighbours + b."""

    on_graph = True

    def __init__(self, inputs, out):
        super().__init__()
        start = nn.Linear(inputs, out)
        self.weight, self.bias = start.weight, start.bias

    def forward(self, x, graph):
        source, target = graph.with_loops()
        return F.linear(graph.mean(x[source], target), self.weight, self.bias)


def describe(module):
    if isinstance(module, GCN):
        return {"kind": "gcn", "out": module.lin.out_features}
    if isinstance(module, SAGE):
        return {"kind": "sage", "out": module.lin_l.out_features}
    if isinstance(module, GIN):
        return {"kind": "gin", "out": module.nn[0].out_features}
    if isinstance(module, MessagePassing):
        return {"kind": "message_passing", "out": module.weight.shape[0]}


KINDS = {
    "gcn": lambda options, shape: GCN(shape[-1], options["out"]),
    "sage": lambda options, shape: SAGE(shape[-1], options["out"]),
    "gin": lambda options, shape: GIN(shape[-1], options["out"]),
    "message_passing": lambda options, shape: MessagePassing(shape[-1], options["out"]),
}
EXAMPLES = {
    kind: {
        "nodes": 10,
        "features": 4,
        "loss": "mse",
        "layers": [{"kind": kind, "out": 6}, {"kind": "silu"}, {"kind": kind, "out": 2}],
    }
    for kind in KINDS
}
EXAMPLES["gcn_weighted"] = {
    "nodes": 11,
    "features": 5,
    "edge_weight": True,
    "loss": "cross_entropy",
    "layers": [{"kind": "gcn", "out": 7}, {"kind": "relu"}, {"kind": "gcn", "out": 3}],
}
