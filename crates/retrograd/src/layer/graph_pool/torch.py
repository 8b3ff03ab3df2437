"""`mean_pool`, `sum_pool` and `max_pool` in PyTorch's operations: one row for every graph."""

import torch
from torch import nn


class Pool(nn.Module):
    on_graph = True

    def __init__(self, what):
        super().__init__()
        self.what = what

    def forward(self, x, graph):
        of_node, graphs = graph.graphs()
        rows = [x[of_node == number] for number in range(graphs)]
        own = {"mean": lambda r: r.mean(0), "sum": lambda r: r.sum(0), "max": lambda r: r.max(0).values}
        return torch.stack([own[self.what](row) for row in rows])


def describe(module):
    if isinstance(module, Pool):
        return {"kind": f"{module.what}_pool"}


KINDS = {f"{what}_pool": lambda options, shape, what=what: Pool(what) for what in ["mean", "sum", "max"]}
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
