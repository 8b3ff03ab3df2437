"""Formulas and pictures of Kolmogorov–Arnold networks."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any, Sequence

import numpy as np

from . import _retrograd
from ._arrays import numbers


class Picture:
    """A picture, shown by notebooks as SVG and written to files as SVG or PNG."""

    def __init__(self, svg: str, png):
        self.svg = svg
        self._png = png

    @property
    def png(self) -> bytes:
        """The bytes of a PNG file."""
        if callable(self._png):
            self._png = self._png()
        return self._png

    def save(self, path: str | os.PathLike) -> None:
        """Writes a file that ends in .svg or .png."""
        name = os.fspath(path)
        if name.endswith(".svg"):
            with open(name, "w", encoding="utf-8") as file:
                file.write(self.svg)
        elif name.endswith(".png"):
            with open(name, "wb") as file:
                file.write(self.png)
        else:
            raise ValueError(f"path: got {name!r}, needs a name that ends in .svg or .png")

    def _repr_svg_(self) -> str:
        return self.svg


@dataclass(frozen=True)
class Formula:
    """A formula: its text is `str(formula)`, notebooks show the LaTeX."""

    text: str
    latex: str
    #: The root of the mean squared error on the data that it was tuned on, in the target's units.
    error: float
    names: Sequence[str] = field(default=())

    def __str__(self) -> str:
        return self.text

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {self.latex}$"

    def sympy(self) -> Any:
        """The formula as an expression of SymPy's, which must be installed."""
        try:
            import sympy
        except ImportError:
            raise ImportError("a formula's expression needs SymPy: pip install sympy") from None
        x = sympy.Symbol("x")
        functions = {
            "abs": sympy.Abs,
            "arctan": sympy.atan,
            "sigmoid": sympy.Lambda(x, 1 / (1 + sympy.exp(-x))),
            "gaussian": sympy.Lambda(x, sympy.exp(-x**2)),
            "gauss": sympy.Lambda(x, sympy.exp(-x**2)),
            "log": sympy.log,
        }
        names = {name: sympy.Symbol(name) for name in self.names}
        return sympy.sympify(self.text.replace("^", "**"), locals={**functions, **names})


def named(text: str, latex: str, error: float, names: Sequence[str]) -> Formula:
    """A formula in the columns' names, where they are words."""
    plain = [f"x_{i + 1}" for i in range(len(names))]
    usable = [n if re.fullmatch(r"[A-Za-z_]\w*", n) else p for n, p in zip(names, plain)]
    if usable != plain:
        text = re.sub(r"\bx_(\d+)\b", lambda m: usable[int(m[1]) - 1], text)
        word = lambda n: n if len(n) == 1 else r"\mathrm{" + n.replace("_", r"\_") + "}"
        tex = [word(n) if n != p else f"x_{{{i + 1}}}" for i, (n, p) in enumerate(zip(usable, plain))]
        latex = re.sub(r"x_\{(\d+)\}", lambda m: tex[int(m[1]) - 1], latex)
    return Formula(text, latex, error, tuple(usable))


def find_formula(
    x, y, *, hidden: Sequence[int] = (), starts: int = 10, n_jobs: int | None = None
) -> list[Formula]:
    """Looks for a formula in data, from several starts: a KAN is trained with a penalty on its edges,
    pruned, its edges matched against functions, and the constants tuned. One formula for every
    column of `y`.

    >>> import numpy as np, retrograd
    >>> x = np.random.default_rng(0).uniform(-2, 2, (300, 1))
    >>> formula, = retrograd.find_formula(x, np.sin(3 * x[:, 0]))
    >>> str(formula)
    'sin(3*x_1)'
    """
    x, y = numbers("x", x), numbers("y", y)
    if x.ndim != 2 or x.shape[0] == 0:
        raise ValueError(f"x: got the shape {list(x.shape)}, needs [samples, inputs], at least one")
    y = y.reshape(len(y), -1) if y.ndim else y
    if y.ndim != 2 or len(y) != len(x):
        raise ValueError(f"y: got the shape {list(y.shape)}, needs {len(x)} rows, as x has")
    sizes = [x.shape[1], *map(int, hidden), y.shape[1]]
    low, high = float(x.min()), float(x.max())
    if low == high:
        raise ValueError("x: got one number everywhere, needs inputs that vary")
    found, error, _, _ = _retrograd.find_formula(
        x, np.ascontiguousarray(y), sizes, [low, high], int(starts), threads(n_jobs)
    )
    names = [f"x_{i + 1}" for i in range(x.shape[1])]
    return [Formula(text, latex, error, names) for text, latex in found]


def threads(n_jobs: int | None) -> int:
    """scikit-learn's `n_jobs` as a number of threads; 0 stands for all cores."""
    if n_jobs is None:
        return 0
    if n_jobs == 0:
        raise ValueError("n_jobs: got 0, needs a number of threads, or -1 for all")
    if n_jobs < 0:
        return max(1, (os.cpu_count() or 1) + 1 + n_jobs)
    return int(n_jobs)
