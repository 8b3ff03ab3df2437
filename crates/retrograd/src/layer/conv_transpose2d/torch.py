"""`conv_transpose2d` is PyTorch's ConvTranspose2d, without what bundles have no options for."""

from counterparts import needs, single
from torch import nn


def make(options, shape):
    more = {name: options[name] for name in ["stride", "padding", "bias"] if name in options}
    return nn.ConvTranspose2d(shape[0], options["out"], options["kernel"], **more)


def describe(module):
    if not isinstance(module, nn.ConvTranspose2d):
        return None
    plain = single("dilation", module.dilation) == 1 and module.groups == 1
    plain = plain and single("output_padding", module.output_padding) == 0
    needs(module, plain, "dilation 1, groups 1, no output padding")
    return {
        "kind": "conv_transpose2d",
        "out": module.out_channels,
        "kernel": single("kernel_size", module.kernel_size),
        "stride": single("stride", module.stride),
        "padding": single("padding", module.padding),
        "bias": module.bias is not None,
    }


KINDS = {"conv_transpose2d": make}
EXAMPLES = {
    "conv_transpose2d": {
        "input": [3, 4, 5],
        "batch": 2,
        "loss": "mse",
        "layers": [
            {"kind": "conv_transpose2d", "out": 2, "kernel": 3, "stride": 2, "padding": 1},
            {"kind": "silu"},
            {"kind": "conv_transpose2d", "out": 2, "kernel": 2, "bias": False},
        ],
    },
}
