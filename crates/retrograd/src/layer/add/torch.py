"""`add`: x and an earlier output."""

from torch import nn


class Add(nn.Module):
    def __init__(self, earlier):
        super().__init__()
        self.earlier = earlier

    def forward(self, x, other):
        return x + other


def describe(module):
    if isinstance(module, Add):
        return {"kind": "add", "with": module.earlier}


KINDS = {"add": lambda options, shape: Add(options["with"])}
EXAMPLES = {
    "add": {
        "input": [4],
        "batch": 6,
        "loss": "mse",
        "layers": [
            {"kind": "dense", "out": 4},
            {"kind": "tanh"},
            {"kind": "add", "with": -1},
            {"kind": "dense", "out": 4},
            {"kind": "add", "with": 1},
            {"kind": "dense", "out": 2},
        ],
    },
}
