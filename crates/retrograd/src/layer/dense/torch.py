"""`dense` is PyTorch's Linear."""

from torch import nn


def make(options, shape):
    return nn.Linear(shape[-1], options["out"], bias=options.get("bias", True))


def describe(module):
    if isinstance(module, nn.Linear):
        return {"kind": "dense", "out": module.out_features, "bias": module.bias is not None}


KINDS = {"dense": make}
EXAMPLES = {
    "dense": {
        "input": [4],
        "batch": 9,
        "loss": "cross_entropy",
        "layers": [{"kind": "dense", "out": 7, "bias": False}, {"kind": "tanh"}, {"kind": "dense", "out": 3}],
    },
}
