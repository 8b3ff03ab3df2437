"""`pair_dot` in PyTorch's operations: the dot product of the two rows of every pair. A bundle has no
place for pairs, so that none can be written with it."""

from counterparts import needs
from torch import nn


class PairDot(nn.Module):
    on_graph = True

    def forward(self, x, graph):
        return (x[graph.pairs[:, 0]] * x[graph.pairs[:, 1]]).sum(-1, keepdim=True)


def describe(module):
    if isinstance(module, PairDot):
        needs(module, False, "pairs, for which there is no place")


KINDS = {"pair_dot": lambda options, shape: PairDot()}
EXAMPLES = None
