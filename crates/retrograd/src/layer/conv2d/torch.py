"""`conv2d` is PyTorch's Conv2d."""

from counterparts import needs, single
from torch import nn


def make(options, shape):
    names = ["stride", "padding", "padding_mode", "dilation", "groups", "bias"]
    more = {name: options[name] for name in names if name in options}
    return nn.Conv2d(shape[0], options["out"], options["kernel"], **more)


def describe(module):
    if not isinstance(module, nn.Conv2d):
        return None
    needs(module, module.padding_mode in ("zeros", "reflect"), "zeros or reflect beyond the border")
    return {
        "kind": "conv2d",
        "out": module.out_channels,
        "kernel": single("kernel_size", module.kernel_size),
        "stride": single("stride", module.stride),
        "padding": single("padding", module.padding),
        "padding_mode": module.padding_mode,
        "dilation": single("dilation", module.dilation),
        "groups": module.groups,
        "bias": module.bias is not None,
    }


KINDS = {"conv2d": make}
EXAMPLES = {
    "conv2d": {
        "input": [2, 7, 6],
        "batch": 3,
        "loss": "mse",
        "layers": [
            {"kind": "conv2d", "out": 4, "kernel": 3, "padding": 1, "padding_mode": "reflect"},
            {"kind": "tanh"},
            {"kind": "conv2d", "out": 2, "kernel": 3, "stride": 2, "dilation": 2, "padding": 2, "groups": 2, "bias": False},
        ],
    },
}
