"""Sizes at which kernels differ from their small cases: odd and prime ones, powers of two and their neighbours.

An example is a value, or a function whose parameters are sizes; a parameter's default is its largest value:

    def example(rows, width=64):
        return torch.randn(rows, width), torch.randn(width)
"""

from __future__ import annotations

import inspect
import itertools
from typing import Any, Callable, Iterator

import numpy as np

# A parameter without a default.
LARGEST = 67
# What sizes are drawn from, up to the largest.
CANDIDATES = sorted(
    {1, 2, 3, 5, 7, 11, 13, 23, 37, 53, 67, 97, 131, 251, 509, 1021, 2039, 4093}
    | {2**p + d for p in range(3, 13) for d in (-1, 0, 1)}
)


def parameters(example: Callable[..., Any]) -> dict[str, int]:
    """The sizes of an example's function, with the largest of each."""
    told = {}
    for name, parameter in inspect.signature(example).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"example: needs sizes as parameters, got *{name}")
        default = LARGEST if parameter.default is parameter.empty else parameter.default
        if not isinstance(default, int) or isinstance(default, bool) or default < 1:
            raise TypeError(f"example: the largest {name} is {default!r}, needs a whole number from 1 on")
        told[name] = default
    return told


def draws(largest: dict[str, int], count: int, seed: int) -> Iterator[dict[str, int]]:
    """The first has sizes in the middle, all different, the last the largest. Between them every name goes through
    its sizes in an order of its own: neighbours of powers of two, where blocks have tails, and by turns 1, 2, 3 and
    the rest."""
    rng = np.random.default_rng([seed, 3])
    middle = [5, 7, 3, 9, 11, 13]
    yield {name: min(middle[i % len(middle)], top) for i, (name, top) in enumerate(largest.items())}
    orders = {}
    for place, (name, top) in enumerate(largest.items()):
        candidates = [c for c in CANDIDATES if c <= top]
        around = [c for c in candidates if any(abs(c - 2**p) == 1 for p in range(3, 13))]
        small = [c for c in candidates if c <= 3]
        rest = [c for c in candidates if c not in around and c not in small]
        # Not every name 1 at once.
        small = small[place // 2 % len(small) :] + small[: place // 2 % len(small)]
        lists = rng.permutation(around).tolist(), [*small, *rng.permutation(rest).tolist()]
        pairs = itertools.zip_longest(*(lists if place % 2 else reversed(lists)))
        orders[name] = [c for pair in pairs for c in pair if c is not None]
    for i in range(count - 2):
        yield {name: int(order[i % len(order)]) for name, order in orders.items()}
    if count > 1:
        yield dict(largest)


def zeros(largest: dict[str, int]) -> Iterator[dict[str, int]]:
    """Every name 0 once."""
    for empty in largest:
        yield {name: 0 if name == empty else min(3, top) for name, top in largest.items()}
