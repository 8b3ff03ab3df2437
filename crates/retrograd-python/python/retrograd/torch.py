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
from torch import nn

from . import _retrograd
from .models import Circuit, Graph

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

_TYPES = {torch.float32: np.float32, torch.float64: np.float64}


class _Function(torch.autograd.Function):
    """One forward of an engine, and the backward that follows it."""

    @staticmethod
    def forward(ctx, module, call, x, weight, attr, *params):
        keep = any(ctx.needs_input_grad)
        flat = module._flat.numpy()
        arrays = [None if t is None else t.detach().numpy() for t in (x, weight, attr)]
        y, tape = call.forward(flat, arrays, keep)
        ctx.module, ctx.call, ctx.tape = module, call, tape
        ctx.given = [t is not None for t in (x, weight, attr)]
        ctx.save_for_backward(*(t for t in (x, weight, attr) if t is not None), *params)
        return torch.from_numpy(y)

    @staticmethod
    def backward(ctx, d_y):
        if torch.is_grad_enabled():
            raise RuntimeError(
                "retrograd.torch: a gradient of a gradient was asked for (create_graph=True); "
                "retrograd's kernels have first derivatives alone"
            )
        saved = list(ctx.saved_tensors)
        tensors = [saved.pop(0) if there else None for there in ctx.given]
        arrays = [None if t is None else t.detach().numpy() for t in tensors]
        of_input = any(ctx.needs_input_grad[2:5])
        of_params = any(ctx.needs_input_grad[5:])
        module, flat = ctx.module, ctx.module._flat.numpy()
        d_y = d_y.contiguous().numpy()
        d_params, d_input = ctx.call.backward(flat, arrays, ctx.tape, d_y, of_params, of_input)
        gradients, first = [], 0
        for tensor, wanted in zip(tensors, ctx.needs_input_grad[2:5]):
            if tensor is None or d_input is None:
                gradients.append(None)
                continue
            part = d_input[first : first + tensor.numel()]
            first += tensor.numel()
            gradients.append(torch.from_numpy(part).view(tensor.shape) if wanted else None)
        views = [None] * (len(ctx.needs_input_grad) - 5)
        if d_params is not None:
            views = module._views(torch.from_numpy(d_params))
            views = [v if wanted else None for v, wanted in zip(views, ctx.needs_input_grad[5:])]
        return (None, None, *gradients, *views)


class _OnArrays:
    """Calls of a network."""

    def __init__(self, engine, training: bool, seed: int):
        self.engine, self.training, self.seed = engine, training, seed

    def forward(self, flat, arrays, keep):
        return self.engine.forward(flat, arrays[0], self.training, self.seed, keep)

    def backward(self, flat, arrays, tape, d_y, of_params, of_input):
        return self.engine.backward(flat, arrays[0], tape, d_y, of_params, of_input)


class _OnGraph:
    """Calls of a network over a graph."""

    def __init__(self, engine, graph, training: bool, seed: int):
        self.engine, self.graph, self.training, self.seed = engine, graph, training, seed

    def forward(self, flat, arrays, keep):
        x, weight, attr = arrays
        return self.engine.forward(flat, self.graph, x, weight, attr, self.training, self.seed, keep)

    def backward(self, flat, arrays, tape, d_y, of_params, of_input):
        x, weight, attr = arrays
        return self.engine.backward(
            flat, self.graph, x, tape, d_y, weight, attr, of_params, of_input
        )


class _OnGrids:
    """Calls of an automaton."""

    def __init__(self, engine, fire):
        self.engine, self.fire = engine, fire

    def forward(self, flat, arrays, keep):
        return self.engine.forward(flat, arrays[0], self.fire, keep)

    def backward(self, flat, arrays, tape, d_y, of_params, of_input):
        return self.engine.backward(
            flat, arrays[0], tape, d_y, self.fire, of_params, of_input
        )


class _Module(nn.Module):
    """Parameters as views of one flat vector, and what calls an engine with it."""

    #: What stands before the names of the only layer's tensors.
    _prefix = ""

    def _begin(self, engine, seed: int | None) -> None:
        if seed is None:
            # PyTorch's own generator decides: torch.manual_seed is obeyed.
            seed = int(torch.randint(2**31 - 1, ()))
        self._engine = engine
        self._layout = [
            (name.removeprefix(self._prefix), shape, order, offset)
            for name, shape, order, offset in engine.places()
        ]
        self._flat = torch.from_numpy(engine.init(seed))
        for (name, *_), view in zip(self._layout, self._views(self._flat)):
            owner, leaf = self._owner(name)
            owner.register_parameter(leaf, nn.Parameter(view))
        for name, values in engine.buffers():
            owner, leaf = self._owner(name.removeprefix(self._prefix))
            owner.register_buffer(leaf, torch.from_numpy(values.copy()))
        self._buffer_names = [name for name, _ in engine.buffers()]
        self._told: dict[str, tuple[int, int]] = {}
        self._tell_buffers()

    def _owner(self, name: str) -> tuple[nn.Module, str]:
        *path, leaf = name.split(".")
        owner: nn.Module = self
        for part in path:
            if part not in owner._modules:
                owner.add_module(part, nn.Module())
            owner = owner._modules[part]
        return owner, leaf

    def _views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """The tensors of a flat vector, in PyTorch's shapes."""
        views = []
        for _, shape, order, offset in self._layout:
            size = 1
            for n in shape:
                size *= n
            stored = flat[offset : offset + size].view([shape[axis] for axis in order])
            views.append(stored.permute([order.index(axis) for axis in range(len(order))]))
        return views

    def _params(self) -> list[nn.Parameter]:
        found = self.__dict__.get("_found")
        if found is None:
            found = []
            for name, *_ in self._layout:
                owner, leaf = self._owner(name)
                found.append((owner._parameters, leaf))
            self.__dict__["_found"] = found
        return [owner[leaf] for owner, leaf in found]

    def _flatten(self, params: list[nn.Parameter]) -> None:
        """Makes the parameters views of one vector again, where a copy, a cast or a load has made
        tensors of their own of them."""
        flat = self._flat
        start, size = flat.data_ptr(), flat.element_size()
        if all(
            p.dtype == flat.dtype and p.data_ptr() == start + offset * size
            for p, (*_, offset) in zip(params, self._layout)
        ) and all(p.stride() == v for p, v in zip(params, self._strides())):
            return
        kinds = {p.dtype for p in params}
        if len(kinds) != 1 or not kinds <= set(_TYPES) or any(p.device.type != "cpu" for p in params):
            raise TypeError(
                f"parameters: got {', '.join(sorted(str(k) for k in kinds))} on "
                f"{params[0].device}, needs all float32 or all float64 on the CPU"
            )
        self._flat = torch.empty(sum(p.numel() for p in params), dtype=kinds.pop())
        with torch.no_grad():
            for param, view in zip(params, self._views(self._flat)):
                view.copy_(param)
                param.data = view

    def _strides(self) -> list[tuple[int, ...]]:
        strides = self.__dict__.get("_known_strides")
        if strides is None:
            strides = [view.stride() for view in self._views(self._flat)]
            self.__dict__["_known_strides"] = strides
        return strides

    def _tell_buffers(self, engine=None) -> None:
        """Lets the engine know of buffers that were loaded or changed."""
        for name in self._buffer_names:
            owner, leaf = self._owner(name.removeprefix(self._prefix))
            tensor = owner._buffers[leaf]
            state = (tensor.data_ptr(), tensor._version)
            if engine is not None or self._told.get(name) != state:
                values = np.asarray(tensor.detach().numpy(), dtype=np.float64, order="C")
                (engine or self._engine).set_buffer(name, values)
                self._told[name] = state

    def _take_buffers(self, engine) -> None:
        """Takes over the statistics that a training step has moved."""
        with torch.no_grad():
            for name, values in engine.buffers():
                owner, leaf = self._owner(name.removeprefix(self._prefix))
                tensor = owner._buffers[leaf]
                tensor.copy_(torch.from_numpy(values))
                self._told[name] = (tensor.data_ptr(), tensor._version)

    def _input(self, what: str, value) -> torch.Tensor:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{what}: got {type(value).__name__}, needs a tensor")
        if value.device.type != "cpu":
            raise TypeError(f"{what}: got a tensor on {value.device}, needs one on the CPU")
        if value.layout != torch.strided:
            raise TypeError(f"{what}: got a sparse tensor, needs a dense one; .to_dense() makes one")
        if value.dtype != self._flat.dtype:
            raise TypeError(f"{what}: got {value.dtype}, needs {self._flat.dtype}, as the parameters")
        return value.contiguous()

    @torch.compiler.disable
    def _call(self, make, x, weight=None, attr=None):
        params = self._params()
        self._flatten(params)
        self._tell_buffers()
        x = self._input("x", x)
        if weight is not None:
            weight = self._input("edge_weight", weight)
        if attr is not None:
            attr = self._input("edge_attr", attr)
        return _Function.apply(self, make(), x, weight, attr, *params)

    def _flat_copy(self) -> np.ndarray:
        """The parameters as one vector of float32, for `retrograd.verify`."""
        self._flatten(self._params())
        return self._flat.numpy().astype(np.float32)

    @property
    def params(self):
        return self._flat_copy

    # Engines are made anew where a module is copied, pickled or sent to a worker.

    def _make_engine(self):
        raise NotImplementedError

    def __getstate__(self):
        state = dict(self.__dict__)
        for name in ("_engine", "_engines", "_flat", "_found", "_known_strides", "_last"):
            state.pop(name, None)
        state["_told"] = {}
        return state

    def __setstate__(self, state) -> None:
        super().__setstate__(state)
        self._engine = self._make_engine()
        # Views again with the first call.
        self._flat = torch.empty(0)
        self._flatten_known()

    def _flatten_known(self) -> None:
        self._flat = torch.empty(sum(p.numel() for p in self._params()), dtype=self._params()[0].dtype)
        self.__dict__.pop("_known_strides", None)
        with torch.no_grad():
            for param, view in zip(self._params(), self._views(self._flat)):
                view.copy_(param)
                param.data = view
        self._tell_buffers()


def _draws(layers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a forward in training draws random numbers."""
    return any(layer.get("kind") == "dropout" or layer.get("dropout") for layer in layers)


class Network(_Module):
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
        shape = [input] if isinstance(input, int) else [int(n) for n in input]
        self.spec = {"input": shape, "layers": [dict(layer) for layer in layers]}
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
        y = self._call(lambda: _Absorbing(self, engine, self.training, seed), flat)
        return y if len(leading) == 1 else y.reshape(*leading, *y.shape[1:])

    def extra_repr(self) -> str:
        return ", ".join(str(layer.get("kind")) for layer in self.spec["layers"])


class _Absorbing(_OnArrays):
    """Calls of a network whose running statistics follow training."""

    def __init__(self, module, engine, training, seed):
        super().__init__(engine, training, seed)
        self.module = module

    def forward(self, flat, arrays, keep):
        moves = self.training and self.module._moves
        y, tape = super().forward(flat, arrays, keep or moves)
        if moves:
            self.engine.absorb(tape)
            self.module._take_buffers(self.engine)
        return y, tape


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

        params = self._flat_copy()
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


class Conv2d(_Module):
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
        return self._call(lambda: _OnArrays(engine, self.training, 0), x)

    def extra_repr(self) -> str:
        options = {k: v for k, v in self.layer.items() if k != "kind"}
        return f"{self.in_channels}, " + ", ".join(f"{k}={v}" for k, v in options.items())


class GraphNetwork(_Module):
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
        self.spec = {
            "features": int(features),
            "layers": [dict(layer) for layer in layers],
            "edge_weight": bool(edge_weight),
            "edge_features": int(edge_features),
        }
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
        call = lambda: _OnGraph(self._engine, graph._graph, self.training, seed)
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


class LogicCA(_Module):
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
        self.spec = {
            "channels": int(channels),
            "kernels": int(kernels),
            "perception": [int(n) for n in perception],
            "update": [int(n) for n in update],
            "steps": int(steps),
            **options,
        }
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
        return self._call(lambda: _OnGrids(self._engine, mask), state)

    def circuit(self) -> Circuit:
        """The exact circuit that the parameters stand for, simplified."""
        return Circuit._of(self._engine.circuit(self._flat_copy()))
