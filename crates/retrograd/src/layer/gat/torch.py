"""`gat` in PyTorch's operations, with the names of PyTorch Geometric's GATConv. Attention dropout
draws from other streams there, so that a bundle has none."""

import torch
from torch import nn
from torch.nn import functional as F


def random(*shape):
    return nn.Parameter(torch.randn(shape) * shape[-1] ** -0.5)


class GAT(nn.Module):
    """Scores are LeakyReLU(att_src · z_j + att_dst · z_i), z = lin(x)."""

    on_graph = True

    def __init__(self, inputs, out, heads=1):
        super().__init__()
        self.heads, self.out = heads, out
        self.lin = nn.Linear(inputs, heads * out, bias=False)
        self.att_src, self.att_dst = random(1, heads, out), random(1, heads, out)
        self.bias = nn.Parameter(torch.zeros(heads * out))

    def forward(self, x, graph):
        source, target = graph.with_loops()
        z = self.lin(x).reshape(-1, self.heads, self.out)
        of_source, of_target = (self.att_src * z).sum(-1), (self.att_dst * z).sum(-1)
        alpha = graph.softmax(F.leaky_relu(of_source[source] + of_target[target], 0.2), target)
        return graph.sum(alpha[..., None] * z[source], target).flatten(1) + self.bias


def make(options, shape):
    if options.get("dropout", 0) != 0:
        raise ValueError("gat: a bundle can only hold it with dropout 0")
    return GAT(shape[-1], options["out"], options.get("heads", 1))


def describe(module):
    if isinstance(module, GAT):
        return {"kind": "gat", "out": module.out, "heads": module.heads}


KINDS = {"gat": make}
EXAMPLES = {
    "gat": {
        "nodes": 14,
        "features": 5,
        "loss": "mse",
        "layers": [{"kind": "gat", "out": 4, "heads": 2}, {"kind": "elu"}, {"kind": "gat", "out": 3}],
    },
}
