"""`gine` in PyTorch's operations, with the names of PyTorch Geometric's GINEConv."""

import torch
from torch import nn


class GINE(nn.Module):
    """As `gin`, with messages ReLU(x_j + lin(edge_attr))."""

    on_graph = True

    def __init__(self, inputs, out, edge_features):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.nn = nn.Sequential(nn.Linear(inputs, out), nn.ReLU(), nn.Linear(out, out))
        self.lin = nn.Linear(edge_features, inputs)

    def forward(self, x, graph):
        source, target = graph.edge_index
        messages = (x[source] + self.lin(graph.edge_attr)).relu()
        return self.nn(graph.sum(messages, target) + (1 + self.eps) * x)


def describe(module):
    if isinstance(module, GINE):
        return {"kind": "gine", "out": module.nn[0].out_features}


KINDS = {"gine": lambda options, shape: GINE(shape[-1], options["out"], options["edge_features"])}
EXAMPLES = {
    "gine": {
        "nodes": 9,
        "features": 3,
        "edge_features": 2,
        "loss": "mse",
        "layers": [{"kind": "gine", "out": 5}, {"kind": "tanh"}, {"kind": "gine", "out": 2}],
    },
}
