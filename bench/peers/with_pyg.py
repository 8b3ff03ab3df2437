"""Training steps of graph networks in PyTorch Geometric."""

import torch
import torch_geometric
from torch import nn
from torch.nn import functional as F
from torch_geometric.nn import GATConv, GCNConv

from torch_graphs import kind, train_network

VERSION = f"{torch_geometric.__version__} on torch {torch.__version__}"


class Geometric(nn.Module):
    """GCN and GAT as PyTorch Geometric's own examples build them: dense features, an edge index (or, as its
    guide to speed says, a sparse adjacency)."""

    def __init__(self, problem, graph, mode, dropout):
        super().__init__()
        self.p = dropout
        if kind(problem) == "gcn":
            hidden = problem.params["1.bias"].shape[0]
            first, second = (GCNConv(i, o, cached=True) for i, o in ((graph.features, hidden), (hidden, 7)))
            self.act = F.relu
        else:
            first = GATConv(graph.features, 8, heads=8, dropout=dropout)
            second = GATConv(64, 7, heads=1, concat=False, dropout=dropout)
            self.act = F.elu
        self.add_module("1", first)
        self.add_module("4", second)
        self.x = torch.tensor(graph.dense())
        edges = torch.tensor(graph.edges)
        if "sparse adjacency" in mode:
            shape = (graph.nodes, graph.nodes)
            ones = torch.ones(edges.shape[1])
            # Transposed: rows are targets.
            edges = torch.sparse_coo_tensor(edges.flip(0), ones, shape).coalesce().to_sparse_csr()
        self.edges = edges

    def forward(self):
        h = self._modules["1"](F.dropout(self.x, self.p, self.training), self.edges)
        h = F.dropout(self.act(h), self.p, self.training)
        return self._modules["4"](h, self.edges)


def train(problem, mode, threads):
    return train_network(problem, mode, threads, VERSION, Geometric)
