"""`concat`: the channels of an earlier output after those of x."""

import torch
from torch import nn


class Concat(nn.Module):
    def __init__(self, earlier):
        super().__init__()
        self.earlier = earlier

    def forward(self, x, other):
        return torch.cat([x, other], 1)


def describe(module):
    if isinstance(module, Concat):
        return {"kind": "concat", "with": module.earlier}


KINDS = {"concat": lambda options, shape: Concat(options["with"])}
EXAMPLES = {
    "concat": {
        "input": [2, 4, 5],
        "batch": 3,
        "loss": "mse",
        "layers": [
            {"kind": "conv2d", "out": 3, "kernel": 3, "padding": 1},
            {"kind": "tanh"},
            {"kind": "concat", "with": -1},
            {"kind": "conv2d", "out": 2, "kernel": 1},
            {"kind": "concat", "with": 0},
            {"kind": "conv2d", "out": 2, "kernel": 2},
        ],
    },
}
