"""A network on a directed acyclic graph in PyTorch: a number per node, a weight per edge."""

import torch
from torch import nn
from torch.nn import functional as F

FAMILY = "dag"

ACTIVATIONS = {
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "silu": F.silu,
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


class Dag(nn.Module):
    """Nodes are numbered inputs, hidden, outputs; the outputs are linear."""

    def __init__(self, model, inputs):
        super().__init__()
        self.inputs, self.hidden, self.outputs = model["inputs"], model["hidden"], model["outputs"]
        self.activation = ACTIVATIONS[model["activation"]]
        sources, targets = inputs["edge_index"].tolist()
        nodes = self.inputs + self.hidden + self.outputs
        self.into = [[] for _ in range(nodes)]
        for edge, (source, target) in enumerate(zip(sources, targets)):
            self.into[target].append((edge, source))
        self.edge_weight = nn.Parameter(torch.zeros(len(sources)))
        self.bias = nn.Parameter(torch.zeros(self.hidden + self.outputs))
        self.order = self._order()

    def _order(self):
        """Every node after those that it reads."""
        order, known = [], set(range(self.inputs))
        waiting = list(range(self.inputs, len(self.into)))
        while waiting:
            ready = [v for v in waiting if all(s in known for _, s in self.into[v])]
            if not ready:
                raise ValueError("edge_index: got a cycle, needs a graph without")
            order += ready
            known |= set(ready)
            waiting = [v for v in waiting if v not in known]
        return order

    def forward(self, x):
        values = dict(enumerate(x.unbind(1)))
        first_output = self.inputs + self.hidden
        for node in self.order:
            total = self.bias[node - self.inputs].expand(len(x))
            for edge, source in self.into[node]:
                total = total + self.edge_weight[edge] * values[source]
            values[node] = total if node >= first_output else self.activation(total)
        return torch.stack([values[v] for v in range(first_output, first_output + self.outputs)], 1)


def make(model, inputs):
    """The module of a model, with what its bundle brings beside the batch."""
    return Dag(model, inputs)
