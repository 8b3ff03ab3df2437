"""The layers in PyTorch. A layer's counterpart is the `torch.py` of its folder; this file finds them.

A `torch.py` has

    KINDS      for every kind of the folder a function of its options (the model's beside them) and
               the shape of a sample that makes the `nn.Module`; the module's parameters have the
               names that bundles give them after the layer's number
    describe   from a module to the layer as a bundle writes it, or None for modules of other kinds
    EXAMPLES   small models to compare: name → `layers`, `loss`, and what they read: `batch` samples of
               shape `input`, or a graph of `nodes` with `features` or `ids` (perhaps several `graphs`,
               with `edge_weight`, `edge_features`), and perhaps the `optimizers` to follow; None where
               no bundle can hold the kind

A module with an attribute `earlier`, a layer's number or −1 for the network's input, is called with
that layer's output after x; one with `on_graph` set is called with the `Graph` after x. Buffers that
a bundle has to bring are named in the attribute `kept`.
"""

import importlib.util
import pathlib

import torch
from torch import nn

SOURCES = pathlib.Path(__file__).resolve().parent.parent / "crates" / "retrograd" / "src"


def needs(module, condition, what):
    """Refuses a module with options that bundles cannot express."""
    if not condition:
        raise ValueError(f"{module}: a bundle can only hold it with {what}")


def single(name, value):
    """The one number of an option that PyTorch keeps for height and width."""
    if isinstance(value, (tuple, list)):
        if any(v != value[0] for v in value):
            raise ValueError(f"{name} = {value}: height and width must have the same")
        return value[0]
    return value


class Layers(nn.Sequential):
    """Layers one after the other, of which some also read an earlier output or the graph."""

    def forward(self, x, graph=None):
        outputs = {-1: x}
        for number, module in enumerate(self):
            x = outputs[number] = apply(module, x, outputs, graph)
        return x


def apply(module, x, outputs, graph):
    more = []
    if hasattr(module, "earlier"):
        more.append(outputs[module.earlier])
    if getattr(module, "on_graph", False):
        more.append(graph)
    return module(x, *more)


class Graph:
    """Edges from `edge_index[0]` to `edge_index[1]`, and what they and the nodes bring."""

    def __init__(self, nodes, edge_index, edge_weight=None, edge_attr=None, graph_of_node=None):
        self.nodes, self.edge_index = nodes, edge_index
        self.edge_weight, self.edge_attr, self.graph_of_node = edge_weight, edge_attr, graph_of_node

    def to(self, dtype):
        """With its numbers in another precision."""
        real = lambda t: None if t is None else t.to(dtype)
        return Graph(self.nodes, self.edge_index, real(self.edge_weight), real(self.edge_attr), self.graph_of_node)

    def tensors(self):
        """By the names that a bundle gives them."""
        names = ["edge_index", "edge_weight", "edge_attr", "graph_of_node"]
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def graphs(self):
        """The number of each node's graph, and how many there are."""
        if self.graph_of_node is None:
            return torch.zeros(self.nodes, dtype=torch.long), 1
        return self.graph_of_node, int(self.graph_of_node.max()) + 1

    def with_loops(self):
        """Sources and targets, with an edge from every node to itself at the end."""
        own = torch.arange(self.nodes)
        return torch.cat([self.edge_index, torch.stack([own, own])], 1)

    def sum(self, messages, targets):
        """For every node the sum of the messages to it, 0 where there are none."""
        zeros = torch.zeros(self.nodes, *messages.shape[1:], dtype=messages.dtype)
        return zeros.index_add(0, targets, messages)

    def mean(self, messages, targets):
        """For every node the mean of the messages to it, 0 where there are none."""
        degree = self.sum(torch.ones(len(targets), dtype=messages.dtype), targets).clamp(min=1)
        return self.sum(messages, targets) / degree.reshape(-1, *[1] * (messages.dim() - 1))

    def softmax(self, scores, targets):
        """Over the edges of each target."""
        index = targets.reshape(-1, *[1] * (scores.dim() - 1)).expand_as(scores)
        low = torch.full((self.nodes, *scores.shape[1:]), -torch.inf, dtype=scores.dtype)
        largest = low.scatter_reduce(0, index, scores.detach(), "amax")
        powers = (scores - largest[targets]).exp()
        return powers / self.sum(powers, targets)[targets]


def build(model):
    """The modules of a model as a bundle's metadata describes it, a dictionary."""
    options = {key: value for key, value in model.items() if key not in ("family", "input", "layers")}
    graph = None
    if model["family"] == "graph":
        edges = torch.tensor([[0], [1]])
        attributes = torch.zeros(1, model.get("edge_features", 0))
        graph = Graph(2, edges, torch.ones(1), attributes, torch.zeros(2, dtype=torch.long))
        features = model.get("features")
        x = torch.zeros(2, dtype=torch.long) if features is None else torch.zeros(2, features)
    else:
        x = torch.zeros(2, *model["input"])
    modules, outputs = [], {-1: x}
    for number, layer in enumerate(model["layers"]):
        if layer["kind"] not in KINDS:
            raise ValueError(f"layer {number}: no torch.py has the kind {layer['kind']!r}")
        module = KINDS[layer["kind"]]({**options, **layer}, list(x.shape[1:]))
        with torch.no_grad():
            x = outputs[number] = apply(module.eval(), x, outputs, graph)
        modules.append(module.train())
    return Layers(*modules)


def describe(module):
    """A module as a bundle's model describes it."""
    for counterpart in COUNTERPARTS:
        layer = counterpart.describe(module)
        if layer is not None:
            return layer
    raise ValueError(f"{module}: bundles have no such layer")


def load(path):
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def find():
    """What the layers' folders have, with no kind twice."""
    found, kinds, examples, modules = [], {}, {}, {}
    for path in sorted(SOURCES.glob("layer/*/torch.py")):
        counterpart = load(path)
        for kind, make in counterpart.KINDS.items():
            if kind in kinds:
                raise ValueError(f"{path}: another folder has the kind {kind!r}, too")
            kinds[kind] = make
        own = counterpart.EXAMPLES or {}
        shown = {layer["kind"] for example in own.values() for layer in example["layers"]}
        if counterpart.EXAMPLES is not None and set(counterpart.KINDS) - shown:
            raise ValueError(f"{path}: no example has {set(counterpart.KINDS) - shown}")
        examples.update(own)
        defined = vars(counterpart).items()
        modules.update({n: v for n, v in defined if isinstance(v, type) and v.__module__ == counterpart.__name__})
        found.append(counterpart)
    return found, kinds, examples, modules


# MODULES are the classes that the folders define, by name.
COUNTERPARTS, KINDS, EXAMPLES, MODULES = find()
