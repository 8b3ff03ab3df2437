"""What is checked: code that computes outputs and gradients, whatever it is written in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Sequence

import numpy as np


class Opaque(Exception):
    """The code's operations can't be followed: it leaves the framework (a compiled kernel, another library)."""


class Refused(Exception):
    """The code raised an error of its own on an input."""


@dataclass
class Evaluation:
    """Outputs and gradients as float64 arrays, and the type each output had. A gradient that wasn't asked for is
    None."""

    outputs: list[np.ndarray]
    gradients: list[np.ndarray | None]
    kinds: list[str]
    # What changed that should not have: inputs, gradients of outputs.
    touched: list[str] = field(default_factory=list)


class Code:
    """Forward and backward over arrays, the leaves: what may have a gradient. Values come and go in float64, which
    holds every narrower type exactly, and are converted to `kind` ("own": each leaf to its own type)."""

    # Of every leaf.
    names: list[str]
    kinds: list[str]
    values: list[np.ndarray]
    # The leaves that gradients are checked of.
    wanted: list[int]
    # Other forms of memory that inputs can come in ("strided", "transposed").
    forms: tuple[str, ...] = ()
    # Whether inputs and gradients of outputs can come as one number with strides of 0.
    broadcasts = False
    # Whether gradients can be asked of some inputs alone.
    subsets = False
    # Whether memory that is not written can be filled with NaN ("poisoned").
    poison = False

    def evaluate(
        self,
        values: Sequence[np.ndarray],
        kind: str,
        cotangents: Sequence[np.ndarray] | None,
        *,
        form: str = "plain",
        wanted: Sequence[int] | None = None,
        poisoned: bool = False,
    ) -> Evaluation:
        """Runs it; without cotangents forward alone."""
        raise NotImplementedError

    def sample(
        self, values: Sequence[np.ndarray], kind: str, cotangents: Sequence[np.ndarray], seed: int
    ) -> Evaluation:
        """Runs it in float64 with every operation rounded to `kind` at random; raises `Opaque` where operations
        can't be followed. "float64" rounds nothing."""
        raise NotImplementedError

    def own(self) -> str:
        """The narrowest of the leaves' types."""
        order = ["bfloat16", "float16", "float32", "float64"]
        return min((self.kinds[i] for i in self.wanted), key=order.index)

    def runs_in_f64(self) -> bool:
        """Whether it computes in float64 when it is given float64."""
        try:
            told = self.evaluate(self.values, "float64", None)
        except Refused:
            return False
        return bool(told.kinds) and all(kind == "float64" for kind in told.kinds)


def to_kind(x: np.ndarray, kind: str) -> np.ndarray:
    """x rounded to nearest in a type, as float64."""
    if kind == "float64":
        return x
    if kind == "bfloat16":
        bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
        up = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        with np.errstate(over="ignore"):
            cut = ((bits + up) & np.uint32(0xFFFF0000)).view(np.float32).reshape(np.shape(x))
        return np.where(np.isfinite(x), cut, x).astype(np.float64)
    with np.errstate(over="ignore"):
        return np.asarray(x).astype(kind).astype(np.float64)


def arguments_of(example: Any) -> tuple:
    """An example as a tuple of arguments."""
    return tuple(example) if isinstance(example, (tuple, list)) else (example,)
