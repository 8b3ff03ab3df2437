"""`layer_norm` (over the last axis), `group_norm` and `batch_norm2d` are PyTorch's."""

from counterparts import needs
from torch import nn


def describe(module):
    if not isinstance(module, (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm2d)):
        return None
    needs(module, module.eps == 1e-5 and module.weight is not None, "eps 1e-5, weight and bias")
    if isinstance(module, nn.GroupNorm):
        return {"kind": "group_norm", "groups": module.num_groups}
    return {"kind": "layer_norm" if isinstance(module, nn.LayerNorm) else "batch_norm2d"}


KINDS = {
    "layer_norm": lambda options, shape: nn.LayerNorm(shape[-1]),
    "group_norm": lambda options, shape: nn.GroupNorm(options["groups"], shape[0]),
    "batch_norm2d": lambda options, shape: nn.BatchNorm2d(shape[0]),
}
EXAMPLES = {
    "layer_norm": {
        "input": [4],
        "batch": 7,
        "loss": "mse",
        "layers": [{"kind": "dense", "out": 6}, {"kind": "layer_norm"}, {"kind": "dense", "out": 3}],
    },
    "norms": {
        "input": [2, 5, 4],
        "batch": 4,
        "loss": "huber",
        "layers": [
            {"kind": "conv2d", "out": 4, "kernel": 2},
            {"kind": "batch_norm2d"},
            {"kind": "tanh"},
            {"kind": "conv2d", "out": 6, "kernel": 1},
            {"kind": "group_norm", "groups": 3},
            {"kind": "conv2d", "out": 2, "kernel": 2},
        ],
    },
}
