"""`self_attention` is PyTorch's MultiheadAttention among the nodes of a graph, whatever its edges."""

from torch import nn


class SelfAttention(nn.MultiheadAttention):
    on_graph = True

    def forward(self, x, graph):
        of_node, _ = graph.graphs()
        apart = of_node[:, None] != of_node[None, :]
        return super().forward(x, x, x, attn_mask=apart, need_weights=False)[0]


def describe(module):
    if isinstance(module, SelfAttention):
        return {"kind": "self_attention", "heads": module.num_heads}


KINDS = {"self_attention": lambda options, shape: SelfAttention(shape[-1], options.get("heads", 1))}
EXAMPLES = {
    "self_attention": {
        "nodes": 9,
        "graphs": 3,
        "features": 4,
        "loss": "mse",
        # A bias of all keys changes no softmax: its gradient is rounding, which Adam would follow.
        "optimizers": ["sgd", "momentum_clip"],
        "layers": [{"kind": "self_attention", "heads": 2}, {"kind": "dense", "out": 3}],
    },
}
