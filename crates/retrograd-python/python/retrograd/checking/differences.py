"""Link 1: central differences of a function of arrays, with what they may be off by.

With D(h) the central difference of L along a direction, the derivative is Richardson's (4·D(h/2) − D(h))/3, and
its bound |D(h) − D(h/2)| + k·1.9·ν/h: the first part overestimates the truncation, the second is the rounding
ν of L in both differences, √2·√(16 + ¼)/3 = 1.9.

ν is measured, because code that is only called shows no operations: of nine values of L at equal tiny steps
along a random direction what is smooth vanishes in the fourth differences, which have C(8, 4) = 70 times the
variance of one value's rounding (Hamming). Four such tables, five fourth differences each; the differences of
a table depend on each other, so that a table counts as two degrees of freedom, and k is Student's for eight.

A kink at a distance c < h/2 is not seen by |D(h) − D(h/2)| = |Δ|·c/2h, Δ the jump of the slope, while the error
is |Δ|·|1/2 − 7c/6h|: the bound holds for c ≥ 0.3·h. Nearer ones are seen by the jump of one-sided slopes,
J(h) = (L(h) − 2L(0) + L(−h))/h, which halves with h where L is smooth and falls by less than
(1 − 2c/h)/(1 − c/h) > 0.57 at such a kink: then J(h/2) is added to the bound, more than the error left. h falls
by 8 as long as the bound says too little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, Sequence

import numpy as np

from .bounds import factor
from .rounding import KINDS

# Where the step starts, in units of max(1, |x|), by what it falls and how often.
STEP = {"float64": 1e-4, "float32": 2.0**-5, "float16": 2.0**-2, "bfloat16": 2.0**-2}
SHRINK = 8.0
ATTEMPTS = 4
# The widest bound that means something, relative to the tensor's largest gradient …
CAP = 1e-6
# … or to this share of the largest of all, for tensors whose gradient is 0.
SCALE_FLOOR = 1e-3
# Steps of a table of differences, in units of the numbers' last place.
NOISE_STEP = 2.0**12
TABLES, DEGREES = 4, 8
KINK = 0.57

# Units in the last place between points whose gradients scatter by rounding.
GRADIENT_STEP = 4.0

Loss = Callable[[Sequence[np.ndarray]], float]
Gradients = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]


@dataclass
class Derivative:
    """A derivative along a direction, and what it may be off by; infinite where nothing can be said."""

    value: float
    bound: float


def noise(loss: Loss, at: Sequence[np.ndarray], kind: str, rng: np.random.Generator) -> float:
    """The size of the rounding of L around a point, for numbers of that kind."""
    step = NOISE_STEP * 2.0 ** (1 - KINDS[kind].bits)
    size = max([float(np.max(np.abs(x))) for x in at if x.size] or [1.0]) or 1.0
    variances = []
    scale = 0.0
    for _ in range(TABLES):
        directions = [rng.uniform(0.5, 1, x.shape) * rng.choice([-1, 1], x.shape) * size for x in at]
        table = np.array(
            [loss([x + (i - 4) * step * d for x, d in zip(at, directions)]) for i in range(9)], dtype=np.float64
        )
        scale = max(scale, float(np.max(np.abs(table))))
        variances.append(float(np.mean(np.square(np.diff(table, 4)))) / 70.0)
    # At least the rounding of storing L.
    return max(math.sqrt(float(np.mean(variances))), 2.0 ** -KINDS["float64"].bits * scale)


def gradient_noise(gradients: Gradients, at: Sequence[np.ndarray], kind: str, seed: int) -> list[np.ndarray]:
    """What rounding makes of gradients themselves, where terms cancel: their scatter over points that are a few units
    in the last place apart, times Student's factor; at least the tensor's root mean square."""
    rng = np.random.default_rng([seed, 5])
    step = GRADIENT_STEP * 2.0 ** (1 - KINDS[kind].bits)
    told = []
    for _ in range(DEGREES + 1):
        told.append(gradients([x + step * rng.uniform(-1, 1, x.shape) * np.abs(x) for x in at]))
    bounds = []
    for runs in zip(*told):
        with np.errstate(invalid="ignore", over="ignore"):
            scatter = np.nan_to_num(np.std(np.array(runs), axis=0, ddof=1), posinf=0.0)
        floor = float(np.sqrt(np.mean(np.square(scatter)))) if scatter.size else 0.0
        bounds.append(factor(DEGREES, max(scatter.size, 1)) * np.maximum(scatter, floor))
    return bounds


class Differences:
    """Derivatives of L at a point, with steps in numbers of a kind."""

    def __init__(self, loss: Loss, at: Sequence[np.ndarray], kind: str, seed: int):
        self.loss, self.at, self.kind = loss, list(at), kind
        self.centre = loss(self.at)
        rng = np.random.default_rng(seed)
        self.rounding = factor(DEGREES, 1) * 1.9 * noise(loss, self.at, kind, rng)

    def along(self, tensor: int, direction: np.ndarray, cap: float) -> Derivative:
        """Along a direction in one tensor; as soon as the bound is below `cap`."""
        x = self.at[tensor]

        def value(step: float) -> float:
            moved = list(self.at)
            moved[tensor] = x + step * direction
            return self.loss(moved)

        best = Derivative(math.nan, math.inf)
        moving = np.abs(x)[direction != 0]
        h = STEP[self.kind] * max(1.0, float(np.max(moving)) if moving.size else 1.0)
        # Numbers in steps that their type holds exactly.
        h = 2.0 ** round(math.log2(h))
        for _ in range(ATTEMPTS):
            above, below = value(h), value(-h)
            above2, below2 = value(h / 2), value(-h / 2)
            whole, half = (above - below) / (2 * h), (above2 - below2) / h
            jump = abs(above - 2 * self.centre + below) / h
            jump2 = abs(above2 - 2 * self.centre + below2) / (h / 2)
            bound = abs(whole - half) + self.rounding / h
            if jump2 > KINK * jump:
                bound += jump2
            if bound < best.bound:
                best = Derivative((4 * half - whole) / 3, bound)
            if best.bound <= cap:
                break
            h /= SHRINK
        return best

    def element(self, tensor: int, index: int, cap: float) -> Derivative:
        """Of one element of one tensor."""
        direction = np.zeros(self.at[tensor].size)
        direction[index] = 1.0
        return self.along(tensor, direction.reshape(self.at[tensor].shape), cap)


def caps(gradients: Sequence[np.ndarray]) -> list[float]:
    """What a bound of each tensor's elements has to stay below to mean something."""
    largest = [float(np.max(np.abs(g[np.isfinite(g)]), initial=0.0)) for g in gradients]
    return [CAP * max(own, SCALE_FLOOR * max(largest)) for own in largest]
