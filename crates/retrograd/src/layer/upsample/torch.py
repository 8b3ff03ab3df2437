"""`upsample` is PyTorch's Upsample, nearest."""

from counterparts import needs, single
from torch import nn


def make(options, shape):
    return nn.Upsample(scale_factor=options["scale"])


def describe(module):
    if not isinstance(module, nn.Upsample):
        return None
    needs(module, module.mode == "nearest" and module.scale_factor is not None, "nearest and a scale")
    return {"kind": "upsample", "scale": int(single("scale_factor", module.scale_factor))}


KINDS = {"upsample": make}
EXAMPLES = {
    "upsample": {
        "input": [2, 3, 4],
        "batch": 2,
        "loss": "mse",
        "layers": [
            {"kind": "conv2d", "out": 3, "kernel": 2},
            {"kind": "upsample", "scale": 3},
            {"kind": "conv2d", "out": 2, "kernel": 2},
        ],
    },
}
