"""retrograd: training for small and unusual networks, with a backward pass that is fast, repeatable
bit for bit, and proven right.

>>> import numpy as np, retrograd
>>> x = np.random.default_rng(0).uniform(-1, 1, (200, 2))
>>> model = retrograd.KanRegressor(hidden=(2,), epochs=40).fit(x, x[:, 0] * x[:, 1])
>>> model.predict(x[:3]).shape
(3,)

`train` runs whole experiments, the estimators speak scikit-learn, `retrograd.torch` has modules for
PyTorch, `Network`, `GraphNetwork` and `Automaton` are models on NumPy arrays, `verify` checks
gradients. Everything computes without the interpreter's lock, and the same seed gives the same bits
whatever the number of threads.
"""

from __future__ import annotations

import importlib as _importlib
import os as _os
from typing import TYPE_CHECKING

from . import _retrograd
from ._retrograd import VERSION as __version__
from ._retrograd import InternalError

if hasattr(_os, "register_at_fork"):
    # Threads stay with the parent: a child makes its own.
    _os.register_at_fork(after_in_child=_retrograd.forked)

# What is imported when it is asked for: an import of the package stays short, and scikit-learn and
# PyTorch are needed by those who use them alone.
_LAZY = {
    "Automaton": "models",
    "Circuit": "models",
    "Denoiser": "denoiser",
    "Formula": "formulas",
    "Graph": "models",
    "GraphNetwork": "models",
    "Interrupted": "runs",
    "KanClassifier": "estimators",
    "KanRegressor": "estimators",
    "Network": "models",
    "NetworkClassifier": "estimators",
    "NetworkRegressor": "estimators",
    "Picture": "formulas",
    "Report": "verifying",
    "Run": "runs",
    "denoise": "runs",
    "experiments": "runs",
    "find_formula": "formulas",
    "open_run": "runs",
    "train": "runs",
    "verify": "verifying",
}
_MODULES = {"torch"}

if TYPE_CHECKING:
    # The same for those who read the types and import nothing.
    from .denoiser import Denoiser as Denoiser
    from .estimators import KanClassifier as KanClassifier
    from .estimators import KanRegressor as KanRegressor
    from .estimators import NetworkClassifier as NetworkClassifier
    from .estimators import NetworkRegressor as NetworkRegressor
    from .formulas import Formula as Formula
    from .formulas import Picture as Picture
    from .formulas import find_formula as find_formula
    from .models import Automaton as Automaton
    from .models import Circuit as Circuit
    from .models import Graph as Graph
    from .models import GraphNetwork as GraphNetwork
    from .models import Network as Network
    from .runs import Interrupted as Interrupted
    from .runs import Run as Run
    from .runs import denoise as denoise
    from .runs import experiments as experiments
    from .runs import open_run as open_run
    from .runs import train as train
    from .verifying import Report as Report
    from .verifying import verify as verify

__all__ = ["InternalError", "__version__", *_LAZY, *_MODULES]


def __getattr__(name: str):
    if name in _MODULES:
        return _importlib.import_module(f".{name}", __name__)
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_importlib.import_module(f".{_LAZY[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
