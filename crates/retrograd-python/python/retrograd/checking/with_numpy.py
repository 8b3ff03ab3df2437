"""Pairs of functions over arrays, `forward(*inputs)` and `backward(*inputs, *d_outputs)`; and an array whose every
operation rounds at random, for those that are written in NumPy."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np

from .protocol import Code, Evaluation, Opaque, Refused, arguments_of
from .rounding import Rounding

_RENAMED = {"power": "pow", "arctan": "atan", "arctan2": "atan2", "arcsin": "asin", "arccos": "acos", "float_power": "pow"}


def _plain(x: Any) -> Any:
    """Without the rounding, in tuples and lists too."""
    if isinstance(x, RoundedArray):
        return x.view(np.ndarray)
    if isinstance(x, (tuple, list)):
        return type(x)(_plain(v) for v in x)
    return x


class RoundedArray(np.ndarray):
    """float64 numbers that carry a `Rounding`; results of functions and sums are rounded by it."""

    rounding: Rounding

    @classmethod
    def of(cls, x: Any, rounding: Rounding) -> RoundedArray:
        told = np.asarray(x, dtype=np.float64).view(cls)
        told.rounding = rounding
        return told

    def __array_finalize__(self, source: Any) -> None:
        self.rounding = getattr(source, "rounding", Rounding("float64", 0))

    def astype(self, dtype: Any, *arguments: Any, **options: Any) -> Any:
        if np.issubdtype(dtype, np.floating):
            # A cast within the code is a cast of what is rounded already.
            return self.copy()
        return self.view(np.ndarray).astype(dtype, *arguments, **options)

    def _wrap(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._wrap(v) for v in value)
        value = np.asarray(value)
        return RoundedArray.of(value, self.rounding) if value.dtype.kind == "f" else value

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        rounding = self.rounding
        for x in inputs:
            if isinstance(x, RoundedArray) and not x.rounding.exact:
                rounding = x.rounding
        options.pop("dtype", None)
        plain = [_plain(x) for x in inputs]
        name = ufunc.__name__
        with np.errstate(all="ignore"):
            told = self._computed(rounding, ufunc, name, method, plain, _plain(options))
        if told is NotImplemented or told is None:
            return told
        if out is not None:
            target = out[0]
            _plain(target)[...] = told
            return target
        carrier = RoundedArray.of(0.0, rounding)
        return carrier._wrap(told)

    @staticmethod
    def _computed(rounding: Rounding, ufunc: np.ufunc, name: str, method: str, plain: list, options: dict) -> Any:
        is_real = all(np.asarray(x).dtype.kind in "fiub" for x in plain)
        if method == "reduce" and name == "add" and is_real and np.asarray(plain[0]).dtype.kind == "f":
            axis = options.get("axis", 0)
            axes = None if axis is None else (axis,) if np.isscalar(axis) else tuple(axis)
            if options.get("where", True) is True and options.get("initial", None) in (None, 0):
                return rounding.sum(plain[0], axes, options.get("keepdims", False))
        if method == "__call__" and not options and len(plain) == 2:
            if name == "add":
                return rounding.add(*plain)
            if name == "subtract" and np.asarray(plain[1]).dtype.kind == "f":
                return rounding.add(plain[0], -np.asarray(plain[1]))
            if name == "matmul":
                return _product(rounding, *plain)
        if method == "accumulate" and name == "add":
            return rounding.cumulative_sum(plain[0], options.get("axis", 0))
        if method == "at":
            getattr(ufunc, method)(*plain, **options)
            return None
        told = getattr(ufunc, method)(*plain, **options)
        if isinstance(told, tuple):
            return told
        told = np.asarray(told)
        return rounding.function(_RENAMED.get(name, name), told) if told.dtype.kind == "f" else told

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        rounding = self.rounding
        name = func.__name__
        if name in ("dot", "inner", "outer", "tensordot", "einsum", "vdot"):
            return RoundedArray.of(_contraction(rounding, name, _plain(args), _plain(kwargs)), rounding)
        told = super().__array_function__(func, types, args, kwargs)
        if isinstance(told, np.ndarray) and not isinstance(told, RoundedArray) and told.dtype.kind == "f":
            told = RoundedArray.of(told, rounding)
        if isinstance(told, RoundedArray):
            told.rounding = rounding
            rounded = rounding.round(_plain(told))
            if not np.array_equal(rounded, _plain(told), equal_nan=True):
                return RoundedArray.of(rounded, rounding)
        return told


def _product(rounding: Rounding, a: Any, b: Any) -> np.ndarray:
    """NumPy's matmul, with axes of one added and taken away."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    shape = np.matmul(a, b).shape
    a, b = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = np.broadcast_to(a, batch + a.shape[-2:]), np.broadcast_to(b, batch + b.shape[-2:])
    return rounding.matmul(a, b).reshape(shape)


def _contraction(rounding: Rounding, name: str, args: Any, kwargs: Any) -> np.ndarray:
    """Products of two arrays and sums of them, by what they are as einsum."""
    if name == "outer":
        return rounding.round(np.outer(*args))
    if name == "vdot":
        return rounding.sum(rounding.round(np.ravel(args[0]) * np.ravel(args[1])))
    if name in ("dot", "inner"):
        a, b = np.asarray(args[0], dtype=np.float64), np.asarray(args[1], dtype=np.float64)
        if a.ndim == 0 or b.ndim == 0:
            return rounding.round(a * b)
        if name == "inner" and b.ndim > 1:
            b = b.swapaxes(-1, -2)
        if a.ndim <= 2 and b.ndim <= 2:
            return _product(rounding, a, b)
        return rounding.round(np.dot(rounding.perturb(a), rounding.perturb(b)))
    if name == "einsum" and len(args) == 3 and isinstance(args[0], str) and "..." not in args[0] and "->" in args[0]:
        return _einsum(rounding, args[0].replace(" ", ""), *args[1:])
    perturbed = [rounding.perturb(x) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for x in args]
    whole: Any = np.einsum if name == "einsum" else np.tensordot
    return rounding.round(whole(*perturbed, **kwargs))


def _einsum(rounding: Rounding, how: str, a: Any, b: Any) -> np.ndarray:
    """Two arrays: terms of every index, and their sum over those that are not in the result."""
    inputs, output = how.split("->")
    first, second = inputs.split(",")
    summed = [c for c in dict.fromkeys(first + second) if c not in output]
    both = np.einsum(f"{first},{second}->{output}{''.join(summed)}", a, b)
    terms = rounding.round(both)
    if not summed:
        return terms
    return rounding.sum(terms, tuple(range(len(output), terms.ndim)))


def in_form(x: np.ndarray, form: str) -> np.ndarray:
    """The same numbers in other memory; NaN where the array has none of its elements."""
    if form == "strided":
        room = np.full((*x.shape, 2), np.nan, dtype=x.dtype)
        room[..., 0] = x
        return room[..., 0]
    if form == "transposed" and x.ndim > 1:
        return np.ascontiguousarray(x.T).T
    return x


class PairCode(Code):
    """A forward and a backward over arrays."""

    forms = ("strided", "transposed")

    def __init__(self, forward: Callable[..., Any], backward: Callable[..., Any], example: Any):
        self.forward, self.backward = forward, backward
        self.arguments = arguments_of(example)
        arrays = [np.asarray(x) if hasattr(x, "__array__") or isinstance(x, list) else x for x in self.arguments]
        self.arguments = tuple(arrays)
        self.places = [i for i, x in enumerate(arrays) if isinstance(x, np.ndarray) and _kind(x.dtype) is not None]
        if not self.places:
            raise ValueError("example: needs an array of floating numbers")
        self.names = [f"input {i}" for i in self.places]
        self.types = [arrays[i].dtype for i in self.places]
        self.kinds = [_kind(t) or "" for t in self.types]
        self.values = [arrays[i].astype(np.float64) for i in self.places]
        self.wanted = list(range(len(self.places)))

    def _inputs(self, arrays: Sequence[Any]) -> list[Any]:
        inputs = list(self.arguments)
        for place, array in zip(self.places, arrays):
            inputs[place] = array
        return inputs

    def _called(self, function: Callable[..., Any], arguments: Sequence[Any]) -> list[Any]:
        try:
            with np.errstate(all="ignore"):
                told = function(*arguments)
        except (ValueError, TypeError, IndexError, RuntimeError, AssertionError, NotImplementedError) as error:
            raise Refused(f"{type(error).__name__}: {error}") from error
        return list(told) if isinstance(told, (tuple, list)) else [told]

    def evaluate(self, values, kind, cotangents, *, form="plain", wanted=None, poisoned=False) -> Evaluation:
        types = self.types if kind == "own" else [np.dtype(kind)] * len(self.types)
        arrays = [in_form(np.array(x, dtype=t), form) for x, t in zip(values, types)]
        copies = [x.copy() for x in arrays]
        inputs = self._inputs(arrays)
        outputs = [np.asarray(y) for y in self._called(self.forward, inputs)]
        told = Evaluation([y.astype(np.float64) for y in outputs], [None] * len(arrays), [_kind(y.dtype) or str(y.dtype) for y in outputs])
        if cotangents is not None:
            given = [in_form(np.array(w, dtype=y.dtype), form) for w, y in zip(cotangents, outputs)]
            seeds = [w.copy() for w in given]
            self._keep(told, self._called(self.backward, [*inputs, *given]))
            told.touched += [f"the gradient of output {i}" for i, (w, s) in enumerate(zip(given, seeds)) if not np.array_equal(w, s)]
        told.touched += [n for n, x, c in zip(self.names, arrays, copies) if not np.array_equal(x, c, equal_nan=True)]
        return told

    def _keep(self, told: Evaluation, gradients: Sequence[Any]) -> None:
        """One for every input, or one for every input of floating numbers."""
        if len(gradients) == len(self.arguments):
            gradients = [gradients[i] for i in self.places]
        if len(gradients) != len(self.places):
            raise Refused(f"backward: {len(gradients)} gradients for {len(self.places)} inputs")
        for i, g in enumerate(gradients):
            told.gradients[i] = None if g is None else np.asarray(_plain(g)).astype(np.float64)

    def sample(self, values, kind, cotangents, seed) -> Evaluation:
        rounding = Rounding(kind, seed)
        arrays = [RoundedArray.of(x, rounding) for x in values]
        outputs = self._called(self.forward, self._inputs(arrays))
        given = [RoundedArray.of(w, rounding) for w in cotangents]
        gradients = self._called(self.backward, [*self._inputs(arrays), *given])
        followed = [x for x in (*outputs, *gradients) if x is not None]
        if kind != "float64" and not all(isinstance(x, RoundedArray) for x in followed):
            raise Opaque("operations outside of NumPy")
        told = Evaluation([np.asarray(_plain(y)).astype(np.float64) for y in outputs], [None] * len(arrays), ["float64"] * len(outputs))
        self._keep(told, gradients)
        return told


def _kind(dtype: Any) -> str | None:
    name = str(dtype)
    return name if name in ("float64", "float32", "float16", "bfloat16") else None
