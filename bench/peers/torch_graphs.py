"""Training steps of graph networks in PyTorch alone."""

import torch
from torch import nn
from torch.nn import functional as F

from problem import Graph
from with_torch import VERSION, first_steps, start

# Dropout of features and hidden values (and of a GAT's attention).
DROPOUT = {"gcn": 0.5, "gat": 0.6}


def kind(problem):
    return "gcn" if problem.workload.startswith("graph-gcn") else "gat"


def loss_of(graph):
    mask, classes = torch.tensor(graph.mask), torch.tensor(graph.classes)
    picked, wanted = mask.nonzero().squeeze(1), classes[mask]
    return lambda y: F.cross_entropy(y[picked], wanted)


class Features:
    """The product of the features, dropped at random, with a layer's weights: sparse (as a CSR matrix, or by
    rows of the weights that are added up) or dense."""

    def __init__(self, graph, mode):
        self.form = "dense" if "dense features" in mode else "index_add" if "index_add" in mode else "csr"
        self.nodes = graph.nodes
        if self.form == "dense":
            self.x = torch.tensor(graph.dense())
            return
        self.rows, self.columns = torch.tensor(graph.rows), torch.tensor(graph.columns)
        self.values = torch.tensor(graph.values)
        if self.form == "csr":
            places = torch.stack([self.rows, self.columns])
            x = torch.sparse_coo_tensor(places, self.values, (graph.nodes, graph.features))
            self.x = x.coalesce().to_sparse_csr()

    def times(self, weight, p, training):
        if self.form == "dense":
            return F.linear(F.dropout(self.x, p, training), weight)
        if self.form == "csr":
            v = F.dropout(self.x.values(), p, training)
            dropped = torch.sparse_csr_tensor(self.x.crow_indices(), self.x.col_indices(), v, self.x.shape)
            return torch.sparse.mm(dropped, weight.t())
        v = F.dropout(self.values, p, training)
        terms = v[:, None] * weight.t()[self.columns]
        return torch.zeros(self.nodes, weight.shape[0]).index_add(0, self.rows, terms)


class Layer(nn.Module):
    """The parameters of a layer under the names that they have in PyTorch Geometric."""

    def __init__(self, problem, number):
        super().__init__()
        of = {n.removeprefix(f"{number}."): t for n, t in problem.params.items() if n.startswith(f"{number}.")}
        out, inputs = of.pop("lin.weight").shape
        self.lin = nn.Linear(inputs, out, bias=False)
        for name, values in of.items():
            self.register_parameter(name, nn.Parameter(torch.tensor(values)))


class Plain(nn.Module):
    """GCN and GAT in PyTorch alone."""

    def __init__(self, problem, graph, mode, dropout):
        super().__init__()
        self.p, self.features = dropout, Features(graph, mode)
        self.add_module("1", Layer(problem, 1))
        self.add_module("4", Layer(problem, 4))
        self.source, self.target = torch.tensor(graph.source), torch.tensor(graph.target)
        self.weight, self.nodes = torch.tensor(graph.weight), graph.nodes
        if self.features.form == "csr":
            places = torch.stack([self.target, self.source])
            matrix = torch.sparse_coo_tensor(places, self.weight, (graph.nodes, graph.nodes))
            self.adjacency = matrix.coalesce().to_sparse_csr()

    def neighbours(self, h):
        if self.features.form == "csr":
            return torch.sparse.mm(self.adjacency, h)
        terms = self.weight[:, None] * h[self.source]
        return torch.zeros_like(h).index_add(0, self.target, terms)

    def attention(self, layer, h, concat):
        """h is (nodes, heads · out)."""
        heads, out = layer.att_src.shape[1:]
        h = h.view(self.nodes, heads, out)
        source, target = ((h * a).sum(-1) for a in (layer.att_src, layer.att_dst))
        score = F.leaky_relu(source[self.source] + target[self.target], 0.2)
        index = self.target[:, None].expand_as(score)
        # Of every sum the same may be taken off: no gradient.
        most = torch.full((self.nodes, heads), -torch.inf).scatter_reduce(0, index, score.detach(), "amax")
        e = (score - most[self.target]).exp()
        total = torch.zeros(self.nodes, heads).index_add(0, self.target, e)
        alpha = F.dropout(e / (total[self.target] + 1e-16), self.p, self.training)
        terms = alpha[:, :, None] * h[self.source]
        y = torch.zeros_like(h).index_add(0, self.target, terms)
        return (y.flatten(1) if concat else y.mean(1)) + layer.bias

    def forward(self):
        first, second = self._modules["1"], self._modules["4"]
        h = self.features.times(first.lin.weight, self.p, self.training)
        if hasattr(first, "att_src"):
            h = F.dropout(F.elu(self.attention(first, h, True)), self.p, self.training)
            return self.attention(second, second.lin(h), False)
        h = F.dropout(F.relu(self.neighbours(h) + first.bias), self.p, self.training)
        return self.neighbours(second.lin(h)) + second.bias


def train_network(problem, mode, threads, version, network):
    """The steps of a network, which is made for a dropout, and the losses of three steps without any."""
    torch.set_num_threads(threads)
    graph = Graph(problem)

    def steps(dropout):
        return start(problem, mode, (network(problem, graph, mode, dropout), (), loss_of(graph)))

    timed = steps(DROPOUT[kind(problem)])
    _, compile_s = first_steps(timed, "compiled" in mode)
    plain, _ = first_steps(steps(0.0), False)
    return {"version": version, "inference": plain[0], "plain": plain, "compile_s": compile_s}, timed


def train(problem, mode, threads):
    return train_network(problem, mode, threads, VERSION, Plain)
