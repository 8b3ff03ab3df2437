"""The verifier: gradients against independent oracles."""

from __future__ import annotations

import json
import os
from typing import Any, Sequence

import numpy as np

from . import _retrograd
from ._arrays import numbers, whole


class Report:
    """What was checked: `passed`, the `rows`, and the table as text."""

    def __init__(self, passed: bool, rows: str, text: str):
        self.passed = passed
        self._json = rows
        self.text = text

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every check with its error, its bound and what came of it."""
        told = json.loads(self._json)
        return told["rows"] if isinstance(told, dict) else told

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Report({'passed' if self.passed else 'FAILED'}, {len(self.rows)} checks)"


def verify(
    what=None,
    x=None,
    y=None,
    *,
    graph=None,
    edge_weight=None,
    edge_attr=None,
    loss: str = "mse",
    quick: bool = False,
    mutants: bool = True,
    name: str | None = None,
) -> Report:
    """Checks gradients against central differences in float64, float32 against the reference within
    predicted bounds, threads, reused memory and trajectories.

    `what` is one of our models (of `retrograd` or `retrograd.torch`, or a fitted estimator) with a
    small batch `x` and targets `y`; or the path of a bundle, or several; or nothing, for everything
    that is built in, with its mutants. `quick` leaves out the trajectories.

    >>> import numpy as np, retrograd
    >>> network = retrograd.Network([2], [{"kind": "kan", "out": 1, "grid": 3, "degree": 3}])
    >>> x = np.random.default_rng(0).uniform(-1, 1, (6, 2))
    >>> report = retrograd.verify(network, x, x[:, :1] * 2, quick=True)
    >>> report.passed
    True
    """
    if what is None:
        return Report(*_retrograd.verify_built_in(bool(mutants)))
    if isinstance(what, (str, os.PathLike)):
        what = [what]
    if isinstance(what, (list, tuple)):
        return Report(*_retrograd.verify_bundles([os.fspath(path) for path in what]))
    if hasattr(what, "_verified"):
        engine, params, x, y, loss = what._verified(x, y)
    else:
        engine, params = getattr(what, "_engine", None), getattr(what, "params", None)
    if engine is None:
        raise TypeError(f"what: got {type(what).__name__}, needs one of retrograd's models or a path")
    params = numbers("params", params)
    if x is None or y is None:
        raise TypeError("verify: needs a batch, x and y, for a model")
    y = whole("y", y) if loss == "cross_entropy" else numbers("y", y)
    x = numbers("x", x)
    name = name or type(what).__name__
    if isinstance(engine, _retrograd.GraphNetwork):
        from .models import Graph

        if graph is None:
            raise TypeError("verify: a network over graphs needs graph=")
        weight = None if edge_weight is None else numbers("edge_weight", edge_weight)
        attr = None if edge_attr is None else numbers("edge_attr", edge_attr)
        graph = Graph.of(graph)._graph
        told = engine.verify(name, params, graph, x, y, loss, quick, weight, attr)
    else:
        told = engine.verify(name, params, x, y, loss, quick)
    return Report(*told)
