"""Training steps of graph networks in JAX: sums over neighbours by `segment_sum`, features sparse (rows of the
weights that are added up) or dense."""

import jax
import jax.numpy as jnp
import numpy as np

from problem import Graph
from with_jax import VERSION, cross_entropy, first_steps, stepper

# Dropout of features and hidden values (and of a GAT's attention).
DROPOUT = {"gcn": 0.5, "gat": 0.6}


def network(problem, mode, dropout):
    """The loss, a function of weights and a random key."""
    graph = Graph(problem)
    nodes = graph.nodes
    source, target = (jnp.array(a.astype(np.int32)) for a in (graph.source, graph.target))
    weight = jnp.array(graph.weight)
    picked = np.flatnonzero(graph.mask).astype(np.int32)
    classes = jnp.array(graph.classes[graph.mask].astype(np.int32))
    # By row, so that sums go in order.
    order = np.lexsort((graph.columns, graph.rows))
    at_row, column = (jnp.array(a[order].astype(np.int32)) for a in (graph.rows, graph.columns))
    values = jnp.array(graph.values[order])
    x = jnp.array(graph.dense()) if "dense" in mode else None
    gather = lambda terms: jax.ops.segment_sum(terms, target, nodes, indices_are_sorted=True)

    def drop(key, x):
        if dropout == 0:
            return x
        return jnp.where(jax.random.bernoulli(key, 1 - dropout, x.shape), x / (1 - dropout), 0)

    def features(w, key):
        if x is not None:
            return drop(key, x) @ w.T
        terms = drop(key, values)[:, None] * w.T[column]
        return jax.ops.segment_sum(terms, at_row, nodes, indices_are_sorted=True)

    def gcn(params, keys):
        convolve = lambda h, n: gather(weight[:, None] * h[source]) + params[f"{n}.bias"]
        h = jax.nn.relu(convolve(features(params["1.lin.weight"], keys[0]), 1))
        return convolve(drop(keys[1], h) @ params["4.lin.weight"].T, 4)

    def attention(params, n, h, key, concat):
        heads, out = params[f"{n}.att_src"].shape[1:]
        h = h.reshape(nodes, heads, out)
        of = lambda name: (h * params[f"{n}.{name}"]).sum(-1)
        score = jax.nn.leaky_relu(of("att_src")[source] + of("att_dst")[target], 0.2)
        most = jax.ops.segment_max(jax.lax.stop_gradient(score), target, nodes, indices_are_sorted=True)
        e = jnp.exp(score - most[target])
        alpha = drop(key, e / (gather(e)[target] + 1e-16))
        y = gather(alpha[:, :, None] * h[source])
        return (y.reshape(nodes, -1) if concat else y.mean(1)) + params[f"{n}.bias"]

    def gat(params, keys):
        h = attention(params, 1, features(params["1.lin.weight"], keys[0]), keys[1], True)
        h = drop(keys[2], jax.nn.elu(h)) @ params["4.lin.weight"].T
        return attention(params, 4, h, keys[3], False)

    forward = gcn if problem.workload.startswith("graph-gcn") else gat

    def loss(params, key):
        return cross_entropy(forward(params, jax.random.split(key, 4))[picked], classes)

    return loss


def train(problem, mode, threads):
    params = {name: jnp.array(t) for name, t in problem.params.items()}
    kind = "gcn" if problem.workload.startswith("graph-gcn") else "gat"
    timed = stepper(problem, params, network(problem, mode, DROPOUT[kind]))
    _, compile_s = first_steps(timed)
    plain, _ = first_steps(stepper(problem, params, network(problem, mode, 0.0)))
    return {"version": VERSION, "inference": plain[0], "plain": plain, "compile_s": compile_s}, timed
