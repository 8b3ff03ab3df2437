"""`dropout` is PyTorch's Dropout. What it drops is drawn from other streams there, so that a bundle
can only compare p = 0."""

from counterparts import needs
from torch import nn


def describe(module):
    if not isinstance(module, nn.Dropout):
        return None
    needs(module, module.p == 0, "p = 0")
    return {"kind": "dropout", "p": 0.0}


KINDS = {"dropout": lambda options, shape: nn.Dropout(options["p"])}
EXAMPLES = {
    "dropout": {
        "input": [3],
        "batch": 5,
        "loss": "mse",
        "layers": [{"kind": "dense", "out": 4}, {"kind": "dropout", "p": 0.0}, {"kind": "dense", "out": 2}],
    },
}
