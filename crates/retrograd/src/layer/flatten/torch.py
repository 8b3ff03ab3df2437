"""`flatten` is PyTorch's Flatten."""

from counterparts import needs
from torch import nn


def describe(module):
    if not isinstance(module, nn.Flatten):
        return None
    needs(module, module.start_dim == 1 and module.end_dim == -1, "all axes of a sample")
    return {"kind": "flatten"}


KINDS = {"flatten": lambda options, shape: nn.Flatten()}
EXAMPLES = {
    "flatten": {
        "input": [2, 3, 4],
        "batch": 5,
        "loss": "mse",
        "layers": [{"kind": "conv2d", "out": 3, "kernel": 2}, {"kind": "flatten"}, {"kind": "dense", "out": 2}],
    },
}
