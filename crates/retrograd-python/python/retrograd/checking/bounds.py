"""What a difference is held to: Student's factor over the spread of runs that rounded at random.

With v the exact value and e_r the error of run r, s = √(Σ e_r² / R). A kernel's error is one more draw of that
size or less: over s it follows Student's t with R degrees of freedom. The bound of an element is k·max(s, floor)
with P(|t_R| > k) = α/n for a tensor of n elements; the floor is the root mean square of the tensor's spreads,
and at least that of storing its values. The same as the engine's own (docs/verification.md).
"""

from __future__ import annotations

import functools
import math
from typing import Sequence

import numpy as np

from .rounding import KINDS

# The chance of a wrong accusation for a tensor.
ALPHA = 1e-4
# The share of a tensor's scale that a bound may reach before it says nothing.
MEANINGFUL = 0.1


def _tail(t: float, degrees: int) -> float:
    """P(|t_degrees| > t): the regularised incomplete beta function I_x(degrees/2, 1/2) at
    x = degrees/(degrees + t²), by its continued fraction (Lentz's method)."""
    a, b, x = degrees / 2, 0.5, degrees / (degrees + t * t)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x > (a + 1) / (a + b + 2):
        return 1.0 - front / b * _fraction(b, a, 1 - x)
    return front / a * _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1.0 / max(1.0 - (a + b) * x / (a + 1), tiny)
    value = d
    for m in range(1, 300):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / (1.0 + step * d or tiny)
            c = 1.0 + step / c or tiny
            value *= c * d
        if abs(c * d - 1.0) < 1e-14:
            break
    return value


@functools.lru_cache(maxsize=4096)
def factor(degrees: int, elements: int) -> float:
    """Student's factor for a tensor of so many elements."""
    goal, low, high = ALPHA / max(elements, 1), 1.0, 2.0
    while _tail(high, degrees) > goal:
        high *= 2.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _tail(middle, degrees) > goal else (low, middle)
    return high


def root_mean_square(x: np.ndarray) -> float:
    x = x[np.isfinite(x)]
    return float(np.sqrt(np.mean(np.square(x)))) if x.size else 0.0


def bound(exact: np.ndarray, runs: Sequence[np.ndarray], kind: str) -> np.ndarray:
    """Of every element, from the exact values and those of the runs."""
    if exact.size == 0:
        return np.zeros_like(exact)
    with np.errstate(invalid="ignore", over="ignore"):
        spread = np.sqrt(np.mean([np.square(run - exact) for run in runs], axis=0))
    stored = 2.0 ** -KINDS[kind].bits * root_mean_square(exact)
    smallest = np.ldexp(1.0, KINDS[kind].smallest)
    floor = max(root_mean_square(spread), stored, smallest)
    return factor(len(runs), exact.size) * np.maximum(np.nan_to_num(spread, nan=np.inf), floor)
