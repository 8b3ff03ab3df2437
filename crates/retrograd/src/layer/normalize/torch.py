"""`normalize`: (x − mean) / std over the last axis, with statistics that are not trained."""

import torch
from torch import nn


class Normalize(nn.Module):
    kept = ["mean", "std"]

    def __init__(self, mean, std):
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, x):
        return (x - self.mean) / self.std


def make(options, shape):
    # Where a bundle brings none, any statistics.
    return Normalize(torch.randn(shape[-1]), torch.rand(shape[-1]) + 0.5)


def describe(module):
    if isinstance(module, Normalize):
        return {"kind": "normalize"}


KINDS = {"normalize": make}
EXAMPLES = {
    "normalize": {
        "input": [4],
        "batch": 6,
        "loss": "mse",
        "layers": [{"kind": "normalize"}, {"kind": "dense", "out": 5}, {"kind": "tanh"}, {"kind": "dense", "out": 2}],
    },
}
