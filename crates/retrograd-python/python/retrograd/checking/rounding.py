"""Monte Carlo arithmetic on NumPy arrays: float64 whose every result is rounded, up or down, at random, to a
narrower type.

A `Rounding` is one run. A reference that computes through it several times shows by the spread of its
results how much of a difference rounding can explain (`bounds`). The chance of rounding up is the share of
the interval that is covered, so that rounding is right on average and what the type holds exactly stays as
it is: whatever only moves numbers needs no special treatment.

Which way a result goes is a hash of what it came from and of the run: what is equal rounds alike within a
run, as it does on a device, and its errors add up. A sum is hashed by its smaller addend and the place where
that is cut: the same number added again and again loses the same each time.

Sums. x_1 + … + x_K adds its terms one after the other, in an order drawn for the run; with p_k the partial
sums, adding x_k to p_{k−1} keeps of x_k what is above the last place of p_k. To first order the result is
Σ_k round(x_k to the last place of p_k), which needs no loop over k. Kernels add in blocks, trees or with
fused products, and lose as much or less.

float16 and bfloat16 are stored: within one operation sums and functions are float32's, as in PyTorch and JAX.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Kind:
    """A type of numbers: bits of its fraction (the leading one counted), the power of two of its smallest
    subnormal, its largest number."""

    name: str
    bits: int
    smallest: int
    largest: float


KINDS = {
    "float64": Kind("float64", 53, -1074, float(np.finfo(np.float64).max)),
    "float32": Kind("float32", 24, -149, float(np.finfo(np.float32).max)),
    "float16": Kind("float16", 11, -24, 65504.0),
    "bfloat16": Kind("bfloat16", 8, -133, float(np.ldexp(2.0 - 2.0**-7, 127))),
}

# Units in the last place of float32 by which a device's functions may be off beyond the rounding of their
# results; what the engine grants a CPU. Arithmetic and square roots are IEEE 754's.
MARGINS = {
    "exp": 2.0, "exp2": 2.0, "expm1": 2.0, "log": 2.0, "log2": 2.0, "log10": 2.0, "log1p": 2.0,
    "sin": 2.0, "cos": 2.0, "tan": 4.0, "pow": 2.0, "sigmoid": 2.0, "logistic": 2.0,
    "tanh": 4.0, "sinh": 4.0, "cosh": 4.0, "erf": 4.0, "erfc": 4.0, "erfinv": 4.0,
    "asin": 4.0, "acos": 4.0, "atan": 4.0, "atan2": 4.0, "lgamma": 8.0, "digamma": 8.0,
    "rsqrt": 1.0,
}  # fmt: skip

# Terms of a contraction that are formed at once.
CHUNK = 1 << 21
# … and formed at all; beyond, the same model by its variance.
MAX_TERMS = 1 << 23
# Blocks of partial sums that the variance is taken from.
BLOCKS = 16

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(0xD6E8FEB86659FD93)


def _mix(x: np.ndarray) -> np.ndarray:
    """A hash: every bit of it depends on every bit of x."""
    shift = np.uint64(32)
    for _ in range(2):
        x = (x ^ (x >> shift)) * _FACTOR
    return x ^ (x >> shift)


def _bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x, dtype=np.float64).view(np.uint64).reshape(np.shape(x))


def _fraction(x: np.ndarray) -> np.ndarray:
    """A number's fraction alone: its sign and power of two decide nothing."""
    return _bits(x) << np.uint64(12)


class Rounding:
    """One run of the arithmetic, for numbers of one kind; "float64" rounds nothing."""

    def __init__(self, kind: str, seed: int):
        self.kind = KINDS[kind]
        self.exact = kind == "float64"
        # Within one operation.
        self.inner = KINDS["float32"] if self.kind.bits < 24 else self.kind
        self._order = np.random.default_rng([seed, 1])
        with np.errstate(over="ignore"):
            self._key = _mix(np.array([seed + 1], dtype=np.uint64) * _STEP ^ np.uint64(0x5851F42D4C957F2D))[0]
        self._shares = {name: self._order.uniform(-1, 1) for name in MARGINS}

    def _uniform(self, origin: np.ndarray) -> np.ndarray:
        """In [0, 1), a function of what it is drawn for and of the run."""
        with np.errstate(over="ignore"):
            return (_mix(origin ^ self._key) >> np.uint64(11)) * 2.0**-53

    @staticmethod
    def _last_place(x: np.ndarray, kind: Kind) -> np.ndarray:
        """What the last bit of a number of that size is worth."""
        _, exponent = np.frexp(x)
        return np.ldexp(1.0, np.maximum(exponent - kind.bits, kind.smallest))

    def _cut(self, x: np.ndarray, place: np.ndarray, origin: np.ndarray) -> np.ndarray:
        """x as a multiple of `place`, up or down."""
        units = np.abs(x) / place
        below = np.floor(units)
        up = self._uniform(origin) < units - below
        return np.copysign((below + up) * place, x)

    def _to(self, kind: Kind, x: np.ndarray, origin: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore", over="ignore"):
            cut = self._cut(x, self._last_place(x, kind), origin)
            cut = np.where(np.abs(cut) > kind.largest, np.copysign(np.inf, x), cut)
            return np.where(np.isfinite(x), cut, x)

    def round(self, x) -> np.ndarray:
        """A product, a quotient, a function's value; or what was only moved, which stays."""
        x = np.asarray(x, dtype=np.float64)
        return x if self.exact else self._to(self.kind, x, _fraction(x))

    def add(self, a, b) -> np.ndarray:
        """a + b of numbers that are rounded already."""
        a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            x = np.asarray(a + b)
        if self.exact:
            return x
        smaller = np.where(np.abs(a) < np.abs(b), a, b)
        cut = np.uint64((1 << (53 - self.kind.bits)) - 1)
        return self._to(self.kind, x, _fraction(smaller) | _bits(x) & cut)

    def function(self, name: str, y) -> np.ndarray:
        """The value y of a function, off by a random part of its margin: half of it drawn for every result,
        half once a run, because a polynomial that is too large tends to be too large everywhere."""
        y = np.asarray(y, dtype=np.float64)
        if self.exact or name not in MARGINS:
            return self.round(y)
        with np.errstate(invalid="ignore", over="ignore"):
            margin = MARGINS[name] * 2.0 ** (1 - self.inner.bits) * np.abs(y)
            own = 2.0 * self._uniform(~_fraction(y)) - 1.0
            off = y + margin * (own + self._shares[name]) / 2
        return self.round(np.where(np.isfinite(y), off, y))

    def perturb(self, x) -> np.ndarray:
        """x off by up to a unit in the last place: for operations that are known by their results alone."""
        x = np.asarray(x, dtype=np.float64)
        if self.exact:
            return x
        off = x * (1.0 + 2.0 ** (1 - self.inner.bits) * (2.0 * self._uniform(_bits(x)) - 1.0))
        return np.where(np.isfinite(x), off, x)

    def _sum_last(self, terms: np.ndarray) -> np.ndarray:
        """Over the last axis, within one operation."""
        if terms.shape[-1] < 2:
            return terms.sum(-1)
        terms = terms[..., self._order.permutation(terms.shape[-1])]
        with np.errstate(invalid="ignore", over="ignore"):
            partial = np.cumsum(terms, -1)
            place = self._last_place(partial, self.inner)
            # The place within the origin: other bits are lost where the sum is of another size.
            _, exponent = np.frexp(place)
            cut = self._cut(terms, place, _fraction(terms) ^ exponent.astype(np.uint64))
            return np.where(np.isfinite(partial[..., -1]), cut.sum(-1), partial[..., -1])

    def sum(self, x, axes: tuple[int, ...] | None = None, keep: bool = False) -> np.ndarray:
        """The sum over axes, all where there are none given."""
        x = np.asarray(x, dtype=np.float64)
        axes = tuple(range(x.ndim)) if axes is None else tuple(sorted(a % x.ndim for a in axes))
        if self.exact or not axes:
            return x.sum(axis=axes, keepdims=keep) if axes else x
        rest = tuple(a for a in range(x.ndim) if a not in axes)
        shape = tuple(x.shape[a] for a in rest)
        count = math.prod(x.shape[a] for a in axes)
        told = self.round(self._sum_last(x.transpose(rest + axes).reshape(*shape, count)))
        return told.reshape([1 if a in axes else n for a, n in enumerate(x.shape)]) if keep else told

    def cumulative_sum(self, x, axis: int) -> np.ndarray:
        """Partial sums, in their order."""
        x = np.moveaxis(np.asarray(x, dtype=np.float64), axis, -1)
        partial = np.cumsum(x, -1)
        if not self.exact and x.size:
            place = self._last_place(partial, self.inner)
            partial = self.round(np.cumsum(self._cut(x, place, _fraction(x)), -1))
        return np.moveaxis(partial, -1, axis)

    def matmul(self, a, b) -> np.ndarray:
        """(…, M, K) by (…, K, N), with batch axes that are equal."""
        a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            told = a @ b
            if self.exact or not told.size or a.shape[-1] == 0:
                return told
            batch = math.prod(told.shape[:-2])
            m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
            if batch * m * k * n > MAX_TERMS:
                return self._matmul_by_variance(a, b, told)
            a, b = a.reshape(batch, m, k), b.swapaxes(-1, -2).reshape(batch, n, k)
            result = np.empty((batch, m, n))
            rows = max(1, CHUNK // max(1, n * k))
            for i in range(batch):
                for at in range(0, m, rows):
                    terms = a[i, at : at + rows, None, :] * b[i, None, :, :]
                    terms = self._to(self.inner, terms, _fraction(terms))
                    result[i, at : at + rows] = self._sum_last(terms)
            return self.round(result.reshape(told.shape))

    def _matmul_by_variance(self, a: np.ndarray, b: np.ndarray, exact: np.ndarray) -> np.ndarray:
        """The same errors by their size: rounding at random to a place q has the variance q²/6 on average;
        of products a·b with q = 2^(1−bits)·|a·b| at most; of partial sums, q of the sums so far."""
        order = self._order.permutation(a.shape[-1])
        variance = (a * a) @ (b * b) * 4.0 ** (1 - self.inner.bits)
        partial = np.zeros_like(exact)
        for block in np.array_split(order, BLOCKS):
            if block.size:
                partial = partial + a[..., block] @ b[..., block, :]
                variance += block.size * self._last_place(partial, self.inner) ** 2
        uniform = self._uniform(_fraction(exact)), self._uniform(~_fraction(exact))
        normal = np.sqrt(-2.0 * np.log(1.0 - uniform[0])) * np.cos(2.0 * np.pi * uniform[1])
        return self.round(exact + np.sqrt(variance / 6.0) * normal)
