"""`gatv2` in PyTorch's operations, with the names of PyTorch Geometric's GATv2Conv. Attention dropout
draws from other streams there, so that a bundle has none."""

import torch
from torch import nn
from torch.nn import functional as F


def random(*shape):
    return nn.Parameter(torch.randn(shape) * shape[-1] ** -0.5)


class GATv2(nn.Module):
    """Scores are att · LeakyReLU(l_j + r_i), l = lin_l(x) and r = lin_r(x); the l_j are summed."""

    on_graph = True

    def __init__(self, inputs, out, heads=1):
        super().__init__()
        self.heads, self.out = heads, out
        self.lin_l, self.lin_r = nn.Linear(inputs, heads * out), nn.Linear(inputs, heads * out)
        self.att = random(1, heads, out)
        self.bias = nn.Parameter(torch.zeros(heads * out))

    def forward(self, x, graph):
        source, target = graph.with_loops()
        left = self.lin_l(x).reshape(-1, self.heads, self.out)
        right = self.lin_r(x).reshape(-1, self.heads, self.out)
        scores = (self.att * F.leaky_relu(left[source] + right[target], 0.2)).sum(-1)
        alpha = graph.softmax(scores, target)
        return graph.sum(alpha[..., None] * left[source], target).flatten(1) + self.bias


def make(options, shape):
    if options.get("dropout", 0) != 0:
        raise ValueError("gatv2: a bundle can only hold it with dropout 0")
    return GATv2(shape[-1], options["out"], options.get("heads", 1))


def describe(module):
    if isinstance(module, GATv2):
        return {"kind": "gatv2", "out": module.out, "heads": module.heads}


KINDS = {"gatv2": make}
EXAMPLES = {
    "gatv2": {
        "nodes": 14,
        "features": 5,
        "loss": "mse",
        "layers": [{"kind": "gatv2", "out": 4, "heads": 2}, {"kind": "elu"}, {"kind": "gatv2", "out": 3}],
    },
}
