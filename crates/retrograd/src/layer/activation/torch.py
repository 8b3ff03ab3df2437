"""The activations are PyTorch's."""

from counterparts import needs
from torch import nn

PLAIN = {"relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "gelu": nn.GELU}


def describe(module):
    if isinstance(module, nn.LeakyReLU):
        return {"kind": "leaky_relu", "slope": module.negative_slope}
    if isinstance(module, nn.ELU):
        return {"kind": "elu", "alpha": module.alpha}
    for kind, own in PLAIN.items():
        if isinstance(module, own):
            needs(module, getattr(module, "approximate", "none") == "none", "the exact function")
            return {"kind": kind}


KINDS = {kind: lambda options, shape, own=own: own() for kind, own in PLAIN.items()}
KINDS["leaky_relu"] = lambda options, shape: nn.LeakyReLU(options.get("slope", 0.01))
KINDS["elu"] = lambda options, shape: nn.ELU(options.get("alpha", 1.0))

EXAMPLES = {
    kind: {
        "input": [4],
        "batch": 7,
        "loss": "mse",
        "layers": [{"kind": "dense", "out": 6}, {"kind": kind, **options}, {"kind": "dense", "out": 3}],
    }
    for kind, options in [*[(kind, {}) for kind in PLAIN], ("leaky_relu", {"slope": 0.2}), ("elu", {"alpha": 0.7})]
}
