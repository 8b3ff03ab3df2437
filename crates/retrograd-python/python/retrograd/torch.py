"""Modules for PyTorch on the CPU, whose forward and backward are retrograd's kernels.

>>> import torch, retrograd.torch
>>> kan = retrograd.torch.KAN([2, 5, 1])
>>> optimizer = torch.optim.Adam(kan.parameters(), lr=0.02)
>>> x = torch.rand(64, 2) * 2 - 1
>>> for _ in range(3):
...     optimizer.zero_grad()
...     loss = (kan(x) - x[:, :1] * x[:, 1:]).square().mean()
...     loss.backward()
...     optimizer.step()
>>> list(kan.state_dict())
['0.spline_weight', '0.base_weight', '1.spline_weight', '1.base_weight']

Parameters are views of one flat vector in the order of the kernels, under the names and shapes that
PyTorch and our files give them. Inputs and parameters are read where they are; gradients are views
of one vector, too. float32 is computed by the fast kernels and float64 by the plain reference.
"""

from __future__ import annotations

import json
from typing import Any, Mapping, Sequence

import numpy as np
import torch

from . import _retrograd
from ._autograd import Absorbing, Module, OnArrays, OnGraph, OnGrids
from .models import Circuit, Graph, automaton_spec, graph_spec, network_spec

__all__ = [
    "KAN",
    "Conv2d",
    "GATConv",
    "GATv2Conv",
    "GCNConv",
    "GINConv",
    "GINEConv",
    "GraphNetwork",
    "KANLinear",
    "LogicCA",
    "Network",
    "SAGEConv",
]


def _draws(layers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a forward in training draws random numbers."""
    return any(layer.get("kind") == "dropout" or layer.get("dropout") for layer in layers)


class Network(Module):
    """A network of layers as an experiment file lists them.

    >>> import torch, retrograd.torch
    >>> layers = [{"kind": "conv2d", "out": 4, "kernel": 3}, {"kind": "relu"}, {"kind": "flatten"},
    ...           {"kind": "kan", "out": 2, "grid": 4, "degree": 3}]
    >>> retrograd.torch.Network([1, 8, 8], layers)(torch.rand(5, 1, 8, 8)).shape
    torch.Size([5, 2])
    """

    def __init__(
        self, input: Sequence[int] | int, layers: Sequence[Mapping[str, Any]], *, seed: int | None = None
    ):
        super().__init__()
        self.spec = network_spec(input, layers)
        self._random = _draws(self.spec["layers"])
        self._moves = any("batch" in str(layer.get("kind")) for layer in self.spec["layers"])
        self._begin(self._make_engine(), seed)

    def _make_engine(self):
        return _retrograd.Network(json.dumps(self.spec))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        engine, shape = self._engine, self.spec["input"]
        if isinstance(x, torch.Tensor) and list(x.shape[-len(shape) :]) != shape:
            raise ValueError(f"x: got the shape {list(x.shape)}, needs […, {', '.join(map(str, shape))}]")
        seed = int(torch.randint(2**31 - 1, ())) if self._random and self.training else 0
        leading = x.shape[: x.dim() - len(shape)] if isinstance(x, torch.Tensor) else ()
        flat = x.reshape(-1, *shape) if isinstance(x, torch.Tensor) and len(leading) != 1 else x
        y = self._call(lambda: Absorbing(self, engine, self.training, seed), flat)
        return y if len(leading) == 1 else y.reshape(*leading, *y.shape[1:])

    def extra_repr(self) -> str:
        return ", ".join(str(layer.get("kind")) for layer in self.spec["layers"])


def _kan(out: int, grid: int, degree: int, range, base: bool, bias: bool, outside: str):
    low, high = range
    return {
        "kind": "kan",
        "out": int(out),
        "grid": int(grid),
        "degree": int(degree),
        "range": [float(low), float(high)],
        "base": "silu" if base else "none",
        "bias": bool(bias),
        "outside": outside,
    }


class KAN(Network):
    """A Kolmogorov–Arnold network: `sizes` are its inputs, hidden widths and outputs.

    >>> import torch, retrograd.torch
    >>> retrograd.torch.KAN([3, 8, 2])(torch.rand(10, 3)).shape
    torch.Size([10, 2])
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        grid: int = 5,
        degree: int = 3,
        range: tuple[float, float] = (-1.0, 1.0),
        base: bool = True,
        bias: bool = False,
        outside: str = "decay",
        seed: int | None = None,
    ):
        if len(sizes) < 2:
            raise ValueError(f"sizes: got {list(sizes)}, needs inputs and outputs at least")
        layers = [_kan(n, grid, degree, range, base, bias, outside) for n in sizes[1:]]
        super().__init__(int(sizes[0]), layers, seed=seed)

    def picture(self, x: torch.Tensor):
        """The network's picture over some inputs, every edge with its function."""
        from .formulas import Picture

        params = self.params
        x = np.ascontiguousarray(x.detach().numpy(), dtype=np.float32)
        svg = self._engine.plot(params, x, False)
        return Picture(svg, lambda: self._engine.plot(params, x, True))


class KANLinear(Network):
    """One KAN layer, in the place of `nn.Linear`."""

    _prefix = "0."

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        grid: int = 5,
        degree: int = 3,
        range: tuple[float, float] = (-1.0, 1.0),
        base: bool = True,
        bias: bool = False,
        outside: str = "decay",
        seed: int | None = None,
    ):
        layer = _kan(out_features, grid, degree, range, base, bias, outside)
        super().__init__(int(in_features), [layer], seed=seed)


class Conv2d(Module):
    """A convolution with the arguments of `nn.Conv2d`, on images (batch, channels, rows, columns)."""

    _prefix = "0."

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        seed: int | None = None,
    ):
        super().__init__()
        for name, value in (("kernel_size", kernel_size), ("stride", stride), ("padding", padding)):
            if not isinstance(value, int):
                raise TypeError(f"{name}: got {value!r}, needs one whole number for both axes")
        self.in_channels = in_channels
        self.layer = {
            "kind": "conv2d",
            "out": out_channels,
            "kernel": kernel_size,
            "stride": stride,
            "padding": padding,
            "padding_mode": padding_mode,
            "dilation": dilation,
            "groups": groups,
            "bias": bias,
        }
        self._engines: dict[tuple[int, int], Any] = {}
        self._begin(self._make_engine(), seed)

    def _make_engine(self):
        self._engines = {}
        # The least image that it fits on: names and shapes don't depend on it.
        side = self.layer["dilation"] * (self.layer["kernel"] - 1) + 1
        return self._sized(max(side, self.layer["padding"] + 1), max(side, self.layer["padding"] + 1))

    def _sized(self, height: int, width: int):
        if (height, width) not in self._engines:
            if len(self._engines) >= 32:
                self._engines.clear()
            spec = {"input": [self.in_channels, height, width], "layers": [self.layer]}
            self._engines[height, width] = _retrograd.Network(json.dumps(spec))
        return self._engines[height, width]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"x: got {type(x).__name__}, needs a tensor")
        if x.dim() != 4 or x.shape[1] != self.in_channels:
            raise ValueError(
                f"x: got the shape {list(x.shape)}, needs [samples, {self.in_channels}, rows, columns]"
            )
        engine = self._sized(x.shape[2], x.shape[3])
        return self._call(lambda: OnArrays(engine, self.training, 0), x)

    def extra_repr(self) -> str:
        options = {k: v for k, v in self.layer.items() if k != "kind"}
        return f"{self.in_channels}, " + ", ".join(f"{k}={v}" for k, v in options.items())


class GraphNetwork(Module):
    """A network of layers over the nodes of a graph.

    >>> import torch, retrograd.torch
    >>> network = retrograd.torch.GraphNetwork(3, [{"kind": "gcn", "out": 4}, {"kind": "relu"},
    ...                                            {"kind": "gcn", "out": 2}])
    >>> network(torch.rand(4, 3), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])).shape
    torch.Size([4, 2])
    """

    def __init__(
        self,
        features: int,
        layers: Sequence[Mapping[str, Any]],
        *,
        edge_weight: bool = False,
        edge_features: int = 0,
        seed: int | None = None,
    ):
        super().__init__()
        self.spec = graph_spec(features, layers, edge_weight, edge_features)
        self._random = _draws(self.spec["layers"])
        self._last: tuple[Any, int, int, Graph] | None = None
        self._begin(self._make_engine(), seed)

    def _make_engine(self):
        self._last = None
        return _retrograd.GraphNetwork(json.dumps(self.spec))

    def _graph(self, edges, nodes: int) -> Graph:
        """The graph of an `edge_index`; that of the last call is kept."""
        if isinstance(edges, Graph):
            return edges
        if not isinstance(edges, torch.Tensor):
            return Graph.of(edges)
        last = self._last
        if last and last[0] is edges and last[1:3] == (edges._version, nodes):
            return last[3]
        graph = Graph(edges, nodes)
        self._last = (edges, edges._version, nodes, graph)
        return graph

    def forward(self, x, edges, edge_weight=None, edge_attr=None) -> torch.Tensor:
        """`edges` is (2, edges), a `retrograd.Graph`, or what `Graph.of` takes."""
        if not isinstance(x, torch.Tensor) or x.dim() != 2:
            raise ValueError("x: needs a tensor of shape [nodes, features]")
        graph = self._graph(edges, x.shape[0])
        seed = int(torch.randint(2**31 - 1, ())) if self._random and self.training else 0
        call = lambda: OnGraph(self._engine, graph._graph, self.training, seed)
        return self._call(call, x, edge_weight, edge_attr)

    def extra_repr(self) -> str:
        return ", ".join(str(layer.get("kind")) for layer in self.spec["layers"])


class _GraphLayer(GraphNetwork):
    _prefix = "0."


class GCNConv(_GraphLayer):
    """Kipf and Welling's convolution; with `edge_weight` every edge has a weight."""

    def __init__(self, in_channels: int, out_channels: int, *, edge_weight=False, seed=None):
        layer = {"kind": "gcn", "out": int(out_channels)}
        super().__init__(in_channels, [layer], edge_weight=edge_weight, seed=seed)


class SAGEConv(_GraphLayer):
    """GraphSAGE with the mean of the in-neighbours."""

    def __init__(self, in_channels: int, out_channels: int, *, seed=None):
        super().__init__(in_channels, [{"kind": "sage", "out": int(out_channels)}], seed=seed)


class GINConv(_GraphLayer):
    """A graph isomorphism layer: a sum over neighbours and a network of two layers."""

    def __init__(self, in_channels: int, out_channels: int, *, seed=None):
        super().__init__(in_channels, [{"kind": "gin", "out": int(out_channels)}], seed=seed)


class GINEConv(_GraphLayer):
    """The same with features of the edges, `edge_dim` each."""

    def __init__(self, in_channels: int, out_channels: int, *, edge_dim: int, seed=None):
        layer = {"kind": "gine", "out": int(out_channels)}
        super().__init__(in_channels, [layer], edge_features=edge_dim, seed=seed)

    def forward(self, x, edges, edge_attr) -> torch.Tensor:
        return super().forward(x, edges, None, edge_attr)


class GATConv(_GraphLayer):
    """Graph attention, the heads side by side."""

    def __init__(self, in_channels: int, out_channels: int, heads: int = 1, *, dropout=0.0, seed=None):
        layer = {"kind": "gat", "out": int(out_channels), "heads": int(heads), "dropout": float(dropout)}
        super().__init__(in_channels, [layer], seed=seed)


class GATv2Conv(_GraphLayer):
    """Graph attention in its second form."""

    def __init__(self, in_channels: int, out_channels: int, heads: int = 1, *, dropout=0.0, seed=None):
        layer = {"kind": "gatv2", "out": int(out_channels), "heads": int(heads), "dropout": float(dropout)}
        super().__init__(in_channels, [layer], seed=seed)


class LogicCA(Module):
    """A cellular automaton of soft logic gates on grids (batch, rows, columns, channels).

    >>> import torch, retrograd.torch
    >>> automaton = retrograd.torch.LogicCA(channels=2, kernels=2, perception=[9, 8, 4, 2, 1], update=[6, 4, 2], steps=3)
    >>> automaton(torch.zeros(1, 8, 8, 2)).shape
    torch.Size([1, 8, 8, 2])
    >>> automaton.circuit().channels
    2
    """

    def __init__(
        self,
        *,
        channels: int,
        kernels: int,
        perception: Sequence[int],
        update: Sequence[int],
        steps: int,
        wiring_seed: int = 0,
        **options: Any,
    ):
        """`options` are those of an experiment's `[model]`: boundary, fire_rate, wiring,
        per_kernel_wiring."""
        super().__init__()
        self.spec = automaton_spec(channels, kernels, perception, update, steps, options)
        self.wiring_seed = int(wiring_seed)
        self._begin(self._make_engine(), 0)

    def _make_engine(self):
        return _retrograd.LogicCa(json.dumps(self.spec), self.wiring_seed)

    def forward(self, state: torch.Tensor, fire: torch.Tensor | None = None) -> torch.Tensor:
        """The state after the automaton's steps. `fire`, (steps, rows, columns), says which cells take
        their new state; drawn where the automaton has a `fire_rate` below 1 and none is given."""
        if not isinstance(state, torch.Tensor) or state.dim() != 4:
            raise ValueError("state: needs a tensor of shape [grids, rows, columns, channels]")
        rate = self.spec.get("fire_rate", 1.0)
        if fire is None and rate < 1.0:
            fire = torch.rand(self.spec["steps"], *state.shape[1:3]) < rate
        mask = None if fire is None else np.ascontiguousarray(fire.numpy(), dtype=bool)
        return self._call(lambda: OnGrids(self._engine, mask), state)

    def circuit(self) -> Circuit:
        """The exact circuit that the parameters stand for, simplified."""
        return Circuit._of(self._engine.circuit(self.params))
