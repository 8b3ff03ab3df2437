"""`embedding` is PyTorch's Embedding."""

from torch import nn


def describe(module):
    if isinstance(module, nn.Embedding):
        return {"kind": "embedding", "vocabulary": module.num_embeddings, "out": module.embedding_dim}


KINDS = {"embedding": lambda options, shape: nn.Embedding(options["vocabulary"], options["out"])}
EXAMPLES = {
    "embedding": {
        "nodes": 9,
        "ids": 6,
        "loss": "mse",
        "layers": [{"kind": "embedding", "vocabulary": 6, "out": 4}, {"kind": "gcn", "out": 2}],
    },
}
