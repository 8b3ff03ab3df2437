"""`max_pool2d` and `avg_pool2d` are PyTorch's."""

from counterparts import needs, single
from torch import nn


def maximum(options, shape):
    return nn.MaxPool2d(options["kernel"], options.get("stride"))


def average(options, shape):
    return nn.AvgPool2d(options["kernel"], options.get("stride"))


def describe(module):
    if not isinstance(module, (nn.MaxPool2d, nn.AvgPool2d)):
        return None
    plain = single("padding", module.padding) == 0 and not module.ceil_mode
    plain = plain and single("dilation", getattr(module, "dilation", 1)) == 1
    needs(module, plain, "no padding, no dilation, sizes rounded down")
    kind = "max_pool2d" if isinstance(module, nn.MaxPool2d) else "avg_pool2d"
    return {"kind": kind, "kernel": single("kernel_size", module.kernel_size), "stride": single("stride", module.stride)}


KINDS = {"max_pool2d": maximum, "avg_pool2d": average}
EXAMPLES = {
    "pool": {
        "input": [1, 9, 8],
        "batch": 3,
        "loss": "l1",
        "layers": [
            {"kind": "conv2d", "out": 3, "kernel": 2},
            {"kind": "max_pool2d", "kernel": 2, "stride": 1},
            {"kind": "avg_pool2d", "kernel": 2},
            {"kind": "conv2d", "out": 2, "kernel": 1},
        ],
    },
}
