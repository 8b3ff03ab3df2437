"""`mean_pool`, `sum_pool` and `max_pool` in PyTorch's operations: one row for every graph."""

import torch
from torch import nn


POOLS = {
    "mean_pool": lambda rows: rows.mean(0),
    "sum_pool": lambda rows: rows.sum(0),
    "max_pool": lambda rows: rows.max(0).values,
}


class Pool(nn.Module):
    on_graph = True

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x, graph):
        of_node, graphs = graph.graphs()
        rows = [x[of_node == number] for number in range(graphs)]
        return torch.stack([POOLS[self.kind](row) for row in rows])


def describe(module):
    if isinstance(module, Pool):
        return {"kind": module.kind}


KINDS = {kind: lambda options, shape, kind=kind: Pool(kind) for kind in POOLS}
EXAMPLES = {
    kind: {
        "nodes": 11,
        "graphs": 3,
        "features": 4,
        "loss": "mse",
        "layers": [{"kind": "gcn", "out": 5}, {"kind": "tanh"}, {"kind": kind}, {"kind": "dense", "out": 2}],
    }
    for kind in KINDS
}
