"""A differentiable-logic cellular automaton in PyTorch: circuits of soft gates over the cells of a grid."""

import torch
from torch import nn
from torch.nn import functional as F

FAMILY = "logic_ca"


def gates(a, b):
    """The sixteen gates of two inputs on numbers in [0, 1]: gate i is the Boolean function of that number."""
    zero, one, both = torch.zeros_like(a), torch.ones_like(a), a * b
    either = a + b - both
    exclusive = a + b - 2 * both
    values = [zero, both, a - both, a, b - both, b, exclusive, either, 1 - either, 1 - exclusive, 1 - b, 1 - b + both]
    return torch.stack([*values, 1 - a, 1 - a + both, 1 - both, one], -1)


class Automaton(nn.Module):
    """Every cell reads its neighbourhood through the perception kernels, channel by channel, then the update circuit
    makes its new channels; a cell that doesn't fire keeps its own."""

    def __init__(self, model, inputs):
        super().__init__()
        self.channels, self.steps = model["channels"], model["steps"]
        self.boundary = model["boundary"]
        self.fire = inputs.get("fire")
        layers = len(model["perception"]) - 1, len(model["update"]) - 1
        wires = lambda name, n: [inputs[f"wires.{name}.{i}"] for i in range(n)]
        self.wires = wires("perception", layers[0]), wires("update", layers[1])
        kernels = model["kernels"]
        # (kernels, gates, 16) of the perception, (gates, 16) of the update.
        sizes = [(kernels, n, 16) for n in model["perception"][1:]]
        self.perception = nn.ModuleList(Logits(size) for size in sizes)
        self.update = nn.ModuleList(Logits((n, 16)) for n in model["update"][1:])

    def neighbourhoods(self, state):
        """(batch, height, width, channels, 9), row by row."""
        planes = state.permute(0, 3, 1, 2)
        padded = F.pad(planes, (1, 1, 1, 1), mode="circular") if self.boundary == "periodic" else F.pad(planes, (1, 1, 1, 1))
        height, width = state.shape[1:3]
        shifted = [padded[:, :, y : y + height, x : x + width] for y in range(3) for x in range(3)]
        return torch.stack(shifted, -1).permute(0, 2, 3, 1, 4)

    def step(self, state):
        around = self.neighbourhoods(state)
        kernels = self.perception[0].logits.shape[0]
        values = around.unsqueeze(-2).expand(*around.shape[:-1], kernels, 9)
        for layer, wires in zip(self.perception, self.wires[0]):
            values = self.mixed(layer, wires, values)
        # Channel by channel, output by output, the kernels side by side.
        seen = values.transpose(-1, -2).reshape(*state.shape[:3], -1)
        values = torch.cat([state, seen], -1)
        for layer, wires in zip(self.update, self.wires[1]):
            values = self.mixed(layer, wires, values)
        return values

    @staticmethod
    def mixed(layer, wires, values):
        a, b = values[..., wires[0]], values[..., wires[1]]
        return (torch.softmax(layer.logits, -1) * gates(a, b)).sum(-1)

    def forward(self, state):
        for number in range(self.steps):
            new = self.step(state)
            if self.fire is not None:
                fires = self.fire[number].to(state.dtype)[None, :, :, None]
                new = fires * new + (1 - fires) * state
            state = new
        return state


class Logits(nn.Module):
    """One layer's gates."""

    def __init__(self, size):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(size))


def make(model, inputs):
    """The module of a model, with what its bundle brings beside the batch."""
    return Automaton(model, inputs)
