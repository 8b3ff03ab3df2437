"""What kind of mistake a wrong gradient looks like: the mutants' transformations on the right one, until one
explains the difference to a thousandth of it."""

from __future__ import annotations

import itertools
from typing import Callable, Iterator, Mapping

import numpy as np

# The part of the difference that may be left.
LEFT = 1e-3


def _factors(got: np.ndarray, right: np.ndarray, sizes: Mapping[str, int]) -> Iterator[tuple[str, np.ndarray]]:
    """One factor for all: the best in the least squares' sense, with a name where it has one."""
    scale = float(np.vdot(right, right))
    if scale == 0:
        return
    factor = float(np.vdot(right, got)) / scale
    if abs(factor) < 1e-12:
        return
    name = f"scaled by {factor:.4g}"
    if abs(factor + 1) < 1e-3:
        name = "like another sign"
    else:
        sign = "minus " if factor < 0 else ""
        for what, size in sizes.items():
            for value, word in [(size, f"{sign}{what} = {size}"), (1 / size if size else 0, f"{sign}1/{what} = 1/{size}")]:
                if value not in (0, 1) and abs(abs(factor) - value) < 1e-3 * value:
                    yield f"scaled by {word}", factor * right
        if abs(factor - 2) < 1e-3:
            name = "doubled: added to what was there, or added twice"
    yield name, factor * right


def _moves(right: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The same numbers in other places."""
    if 2 <= right.ndim <= 4:
        for order in itertools.permutations(range(right.ndim)):
            if order != tuple(range(right.ndim)):
                moved = right.transpose(order)
                yield f"transposed (axes {list(order)})", np.ascontiguousarray(moved).reshape(right.shape)
                if moved.shape != right.shape:
                    # Read in the layout of the other.
                    back = right.reshape(moved.shape).transpose(np.argsort(order))
                    yield f"transposed (read as axes {list(order)})", np.ascontiguousarray(back).reshape(right.shape)
    for axis in range(right.ndim):
        if right.shape[axis] > 1:
            yield f"reversed along axis {axis}", np.flip(right, axis)
            for shift in (1, -1):
                yield f"shifted by {shift} along axis {axis}", np.roll(right, shift, axis)
            even, odd = np.arange(0, right.shape[axis], 2), np.arange(1, right.shape[axis], 2)
            yield f"interleaved along axis {axis}", np.take(right, np.concatenate([even, odd]), axis)
            half = right.shape[axis] // 2
            if 2 * half == right.shape[axis]:
                halves = np.arange(right.shape[axis]).reshape(2, half).T.reshape(-1)
                yield f"interleaved along axis {axis}", np.take(right, halves, axis)


def _terms(
    got: np.ndarray, right: np.ndarray, others: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, np.ndarray]]:
    """A term too few or too many: what is left is the same along an axis, or a multiple of another array."""
    left = got - right
    for axis in range(left.ndim):
        if left.shape[axis] > 1:
            same = np.broadcast_to(left.mean(axis, keepdims=True), left.shape)
            yield f"like a missing term that is the same along axis {axis}", right + same
    for name, other in others.items():
        try:
            other = np.broadcast_to(other, right.shape)
        except ValueError:
            continue
        scale = float(np.vdot(other, other))
        if scale > 0 and np.all(np.isfinite(other)):
            share = float(np.vdot(other, left)) / scale
            yield f"like a missing term: off by {share:.3g} × {name}", right + share * other
            for axis in range(left.ndim):
                scale_row = np.sum(other * other, axis, keepdims=True)
                with np.errstate(invalid="ignore", divide="ignore"):
                    rows = np.nan_to_num(np.sum(other * left, axis, keepdims=True) / scale_row)
                if left.shape[axis] > 2:
                    yield f"like a missing term: off by a multiple of {name} for every row of axis {axis}", right + rows * other


def _place(wrong: np.ndarray) -> str:
    """Where the wrong elements are, where they have one place."""
    for axis in range(wrong.ndim):
        size = wrong.shape[axis]
        lines = np.any(wrong, axis=tuple(a for a in range(wrong.ndim) if a != axis)).nonzero()[0]
        if not lines.size or lines.size == size:
            continue
        first, last = int(lines[0]), int(lines[-1])
        if lines.size == last - first + 1 and last == size - 1:
            return f"like a tail: wrong from index {first} of {size} on along axis {axis}"
        if lines.size == last - first + 1 and first == 0:
            return f"like an edge: wrong up to index {last} of {size} along axis {axis}"
        if list(lines) == [0, size - 1]:
            return f"like an edge: wrong at both ends of axis {axis}"
        steps = set(np.diff(lines).tolist())
        if len(steps) == 1 and lines.size > 2:
            return f"like an index: wrong at every {steps.pop()}th line of axis {axis}"
    return ""


def likeness(
    got: np.ndarray,
    right: np.ndarray,
    bound: np.ndarray,
    sizes: Mapping[str, int] | None = None,
    others: Mapping[str, np.ndarray] | None = None,
    gradients: Mapping[str, np.ndarray] | None = None,
) -> str:
    """Words for the difference; empty where none fits. `others` are arrays that a missing term may be a multiple
    of, `gradients` the right ones of other tensors and of earlier calls."""
    if got.shape != right.shape or not right.size:
        return ""
    wrong = ~(np.abs(got - right) <= bound)
    if not np.all(np.isfinite(got[np.isfinite(right)])):
        spot = ~np.isfinite(got)
        place = _place(spot) if spot.sum() < spot.size else ""
        return f"like memory that was never written, or an overflow: {int(spot.sum())} of {spot.size} not finite" + (
            f", {place[5:]}" if place else ""
        )
    allowed = max(float(np.max(bound[np.isfinite(bound)], initial=0.0)), LEFT * float(np.max(np.abs(got - right))))
    fits: Callable[[np.ndarray], bool] = lambda told: bool(np.max(np.abs(got - told)) <= allowed)
    if not np.any(got):
        return "like nothing was computed: all zeros"
    for name, other in (gradients or {}).items():
        if other.shape == right.shape and fits(other):
            return f"like {name}"
        if other.shape == right.shape and fits(right + other):
            return f"like stale memory: added to {name}"
    place = _place(wrong) if wrong.mean() < 0.9 else ""
    if place:
        zero = not np.any(got[wrong])
        return place + (", zeros there" if zero else "")
    for name, told in itertools.chain(_factors(got, right, sizes or {}), _moves(right)):
        if fits(told):
            return name
    for name, told in _terms(got, right, others or {}):
        if fits(told):
            return name
    relative = np.abs(got - right)[right != 0] / np.abs(right[right != 0])
    if wrong.mean() > 0.3 and relative.size and np.quantile(relative, 0.9) < 2.0**-6:
        return f"like rounding in a narrower type: typically {np.median(relative):.1e} of the value"
    return ""
