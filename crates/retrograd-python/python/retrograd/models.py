"""Models on NumPy arrays: networks of layers, networks over graphs, automata of logic gates."""

from __future__ import annotations

import json
from typing import Any, Mapping, Sequence

import numpy as np

from . import _retrograd
from ._arrays import from_flat, into_flat, numbers, whole


# What a model is made of, as the engine reads it: of these models, and of PyTorch's modules.


def network_spec(input: Sequence[int] | int, layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    shape = [input] if isinstance(input, (int, np.integer)) else list(input)
    return {"input": [int(n) for n in shape], "layers": [dict(layer) for layer in layers]}


def graph_spec(
    features: int, layers: Sequence[Mapping[str, Any]], edge_weight: bool, edge_features: int
) -> dict[str, Any]:
    return {
        "features": int(features),
        "layers": [dict(layer) for layer in layers],
        "edge_weight": bool(edge_weight),
        "edge_features": int(edge_features),
    }


def automaton_spec(
    channels: int,
    kernels: int,
    perception: Sequence[int],
    update: Sequence[int],
    steps: int,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "channels": int(channels),
        "kernels": int(kernels),
        "perception": [int(n) for n in perception],
        "update": [int(n) for n in update],
        "steps": int(steps),
        **options,
    }


class _Model:
    """What all models share: parameters under PyTorch's names, and buffers."""

    _engine: Any
    params: np.ndarray

    def _begin(self, engine, seed: int, state: Mapping[str, Any] | None) -> None:
        self._engine = engine
        self.params = engine.init(seed)
        if state is not None:
            self.load_state_dict(state)

    def state_dict(self) -> dict[str, np.ndarray]:
        """Parameters and buffers under the names that PyTorch and our files give them."""
        state = {name: view.copy() for name, view in from_flat(self._engine.places(), self.params).items()}
        for name, values in self._engine.buffers():
            state[name] = values
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over parameters and buffers; every one must be there."""
        params = self.params.copy()
        into_flat(self._engine.places(), state, params)
        buffers = [name for name, _ in self._engine.buffers()]
        known = {name for name, *_ in self._engine.places()} | set(buffers)
        for name in state:
            if name not in known:
                raise ValueError(f"state: got {name!r}, which the model doesn't have")
        for name in buffers:
            if name in state:
                self._engine.set_buffer(name, numbers(name, state[name], np.float64))
        self.params = params

    def __getstate__(self):
        return {"description": self._description(), "state": self.state_dict()}

    def __setstate__(self, kept) -> None:
        self.__init__(**kept["description"])
        self.load_state_dict(kept["state"])

    def _description(self) -> dict[str, Any]:
        raise NotImplementedError


class Network(_Model):
    """A network of layers, described as in an experiment file.

    >>> import numpy as np, retrograd
    >>> layers = [{"kind": "dense", "out": 8}, {"kind": "silu"}, {"kind": "dense", "out": 1}]
    >>> network = retrograd.Network([2], layers)
    >>> network(np.zeros((5, 2))).shape
    (5, 1)
    >>> sorted(network.state_dict())
    ['0.bias', '0.weight', '2.bias', '2.weight']
    """

    def __init__(
        self,
        input: Sequence[int] | int,
        layers: Sequence[Mapping[str, Any]],
        *,
        seed: int = 0,
        state: Mapping[str, Any] | None = None,
    ):
        self.spec = network_spec(input, layers)
        self._begin(_retrograd.Network(json.dumps(self.spec)), seed, state)

    def __call__(self, x) -> np.ndarray:
        """The outputs for a batch, (samples, …): float32, or float64 in the reference's kernels
        where `x` is float64 and `params` are too."""
        return self._engine.forward(self.params, numbers("x", x, self.params.dtype))[0]

    def gradients(self, x, d_output) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """The gradients of the parameters, under their names, and of `x`, from the output's."""
        x = numbers("x", x, self.params.dtype)
        y, tape = self._engine.forward(self.params, x, keep=True)
        d_output = numbers("d_output", d_output, self.params.dtype)
        if d_output.shape != y.shape:
            raise ValueError(f"d_output: got the shape {list(d_output.shape)}, needs {list(y.shape)}")
        d_params, d_x = self._engine.backward(self.params, x, tape, d_output)
        return from_flat(self._engine.places(), d_params), d_x.reshape(x.shape)

    def _description(self):
        return self.spec

    def __repr__(self) -> str:
        kinds = ", ".join(str(layer.get("kind")) for layer in self.spec["layers"])
        return f"Network({self.spec['input']}: {kinds}; {self.params.size} parameters)"


class Graph:
    """The edges of a graph, or of several at once.

    >>> import retrograd
    >>> graph = retrograd.Graph([[0, 1, 1, 2], [1, 0, 2, 1]], nodes=3)
    >>> graph.nodes, graph.edges
    (3, 4)
    >>> retrograd.Graph([[0], [7]], nodes=3)
    Traceback (most recent call last):
    ...
    ValueError: edge 0: got target 7, needs a node below 3
    """

    def __init__(
        self,
        edge_index,
        nodes: int | None = None,
        *,
        batch=None,
        self_loops: str = "keep",
        duplicates: str = "keep",
    ):
        """`edge_index` is (2, edges): sources and targets, PyTorch Geometric's order. `batch` says for
        every node which graph it belongs to, in order. Self-loops and duplicates are kept, dropped
        or refused."""
        edges = whole("edge_index", edge_index)
        if edges.size == 0:
            edges = edges.reshape(2, 0)
        if nodes is None:
            nodes = int(edges.max(initial=-1)) + 1
        nodes = int(nodes)
        if nodes < 1:
            raise ValueError(f"nodes: got {nodes}, needs at least 1")
        owners, graphs = None, 1
        if batch is not None:
            owners = whole("batch", batch)
            graphs = int(owners.max(initial=0)) + 1
        self._graph = _retrograd.Graph(nodes, edges, self_loops, duplicates, owners, graphs)

    @classmethod
    def of(cls, graph) -> "Graph":
        """From a `Graph`, a `torch_geometric.data.Data`, a networkx graph, or `edge_index`.

        A networkx graph's edges go both ways unless it is directed; its nodes are numbered in their
        order.
        """
        if isinstance(graph, cls):
            return graph
        if hasattr(graph, "edge_index"):
            return cls(
                graph.edge_index,
                graph.num_nodes,
                batch=getattr(graph, "batch", None),
            )
        if hasattr(graph, "is_directed") and hasattr(graph, "edges") and hasattr(graph, "nodes"):
            number = {node: i for i, node in enumerate(graph.nodes)}
            pairs = [(number[a], number[b]) for a, b, *_ in graph.edges]
            if not graph.is_directed():
                pairs += [(b, a) for a, b in pairs if a != b]
            return cls(np.array(pairs, dtype=np.int64).reshape(-1, 2).T, len(number))
        return cls(graph)

    @property
    def nodes(self) -> int:
        return self._graph.nodes

    @property
    def edges(self) -> int:
        return self._graph.edges

    @property
    def graphs(self) -> int:
        return self._graph.graphs

    @property
    def edge_index(self) -> np.ndarray:
        """(2, edges), as they are used."""
        return self._graph.edge_index()

    @property
    def kept(self) -> np.ndarray:
        """For every edge that is left, which of the given ones it was."""
        return self._graph.kept()

    def __repr__(self) -> str:
        return f"Graph({self.nodes} nodes, {self.edges} edges, {self.graphs} graphs)"


class GraphNetwork(_Model):
    """A network of layers over the nodes of graphs.

    >>> import numpy as np, retrograd
    >>> network = retrograd.GraphNetwork(3, [{"kind": "gcn", "out": 2}])
    >>> graph = retrograd.Graph([[0, 1], [1, 0]])
    >>> network(np.ones((2, 3)), graph).shape
    (2, 2)
    """

    def __init__(
        self,
        features: int,
        layers: Sequence[Mapping[str, Any]],
        *,
        edge_weight: bool = False,
        edge_features: int = 0,
        seed: int = 0,
        state: Mapping[str, Any] | None = None,
    ):
        self.spec = graph_spec(features, layers, edge_weight, edge_features)
        self._begin(_retrograd.GraphNetwork(json.dumps(self.spec)), seed, state)

    def __call__(self, x, graph, edge_weight=None, edge_attr=None) -> np.ndarray:
        """A row for every node (or graph, where the layers pool)."""
        dtype = self.params.dtype
        graph = Graph.of(graph)
        weight = None if edge_weight is None else numbers("edge_weight", edge_weight, dtype)
        attr = None if edge_attr is None else numbers("edge_attr", edge_attr, dtype)
        return self._engine.forward(
            self.params, graph._graph, numbers("x", x, dtype), weight, attr
        )[0]

    def _description(self):
        return self.spec

    def __repr__(self) -> str:
        kinds = ", ".join(str(layer.get("kind")) for layer in self.spec["layers"])
        return f"GraphNetwork({self.spec['features']} features: {kinds}; {self.params.size} parameters)"


class Circuit:
    """An exact circuit of logic gates: what a cell becomes from its neighbourhood."""

    def __init__(self, json_text: str):
        self._circuit = _retrograd.Circuit(json_text)

    @classmethod
    def _of(cls, inner) -> "Circuit":
        circuit = cls.__new__(cls)
        circuit._circuit = inner
        return circuit

    @property
    def gates(self) -> int:
        """The number of gates that are left after simplification."""
        return self._circuit.gates

    @property
    def channels(self) -> int:
        return self._circuit.channels

    def step(self, state, steps: int = 1, fire=None) -> np.ndarray:
        """Grids of bits after so many steps: (rows, columns, channels), or several of them. `fire`,
        (steps, rows, columns), says which cells take their new state."""
        bits = np.asarray(state)
        if bits.dtype.kind not in "biuf":
            raise TypeError(f"state: got an array of {bits.dtype}, needs bits")
        one = bits.ndim == 3
        bits = np.ascontiguousarray(bits[None] if one else bits) > 0.5
        if steps < 0:
            raise ValueError(f"steps: got {steps}, needs 0 or more")
        if fire is not None:
            fire = np.ascontiguousarray(fire, dtype=bool)
        after = self._circuit.step(np.ascontiguousarray(bits), int(steps), fire)
        return after[0] if one else after

    def text(self) -> str:
        """As JSON, which `Circuit` reads."""
        return self._circuit.json()

    def c(self) -> str:
        """As a function in C, 64 cells at a time."""
        return self._circuit.c()

    def verilog(self) -> str:
        """As a module in Verilog."""
        return self._circuit.verilog()

    def svg(self) -> str:
        """A drawing; of more than 200 gates an overview."""
        return self._circuit.svg()

    def __getstate__(self):
        return self.text()

    def __setstate__(self, text) -> None:
        self.__init__(text)

    def _repr_svg_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        return f"Circuit({self.gates} gates, {self.channels} channels)"


class Automaton(_Model):
    """A cellular automaton of soft logic gates.

    >>> import numpy as np, retrograd
    >>> automaton = retrograd.Automaton(channels=2, kernels=2, perception=[9, 8, 4, 2, 1], update=[6, 4, 2], steps=3)
    >>> automaton(np.zeros((1, 8, 8, 2))).shape
    (1, 8, 8, 2)
    >>> automaton.circuit().step(np.zeros((8, 8, 2)), steps=5).shape
    (8, 8, 2)
    """

    def __init__(
        self,
        *,
        channels: int,
        kernels: int,
        perception: Sequence[int],
        update: Sequence[int],
        steps: int,
        seed: int = 0,
        state: Mapping[str, Any] | None = None,
        **options: Any,
    ):
        """`options` are those of an experiment's `[model]`: boundary, fire_rate, wiring,
        per_kernel_wiring."""
        self.spec = automaton_spec(channels, kernels, perception, update, steps, options)
        self._begin(_retrograd.LogicCa(json.dumps(self.spec), seed), seed, state)

    def __call__(self, state, fire=None) -> np.ndarray:
        """Soft states (grids, rows, columns, channels) after the automaton's steps."""
        if fire is not None:
            fire = np.ascontiguousarray(fire, dtype=bool)
        return self._engine.forward(self.params, numbers("state", state, self.params.dtype), fire)[0]

    def circuit(self) -> Circuit:
        """The exact circuit that the parameters stand for, simplified."""
        return Circuit._of(self._engine.circuit(numbers("params", self.params)))

    def _description(self):
        return self.spec

    def __repr__(self) -> str:
        return f"Automaton({self.spec['channels']} channels, {self.params.size // 16} gates)"
