"""JAX: functions of arrays, and an interpreter of their jaxpr that rounds every operation at random."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from .protocol import Code, Evaluation, Opaque, Refused, arguments_of
from .rounding import Rounding

_KINDS = ("float64", "float32", "float16", "bfloat16")
# Primitives that hold a jaxpr of their own and run it once, by the name of the parameter.
_CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def _kind(x: Any) -> str | None:
    name = str(getattr(x, "dtype", ""))
    return name if name in _KINDS else None


@contextlib.contextmanager
def _wide() -> Iterator[None]:
    """float64 is float64."""
    enabled = getattr(jax, "enable_x64", None)
    if callable(enabled):
        with enabled(True):
            yield
    else:
        from jax.experimental import enable_x64  # type: ignore[attr-defined]

        with enable_x64():
            yield


def _array(x: Any) -> np.ndarray:
    return np.asarray(x).astype(np.float64)


class JaxCode(Code):
    """A function of arrays or trees of them. Leaves are the arrays of floating numbers."""

    def __init__(self, function: Callable[..., Any], example: Any):
        self.function = function
        arguments = arguments_of(example)
        paths, self.structure = jax.tree_util.tree_flatten_with_path(arguments)
        self.flat = [x for _, x in paths]
        self.places = [i for i, x in enumerate(self.flat) if _kind(x) is not None]
        if not self.places:
            raise ValueError("example: needs an array of floating numbers")
        self.names = ["input " + jax.tree_util.keystr(paths[i][0]).strip("[]").replace("][", ".") for i in self.places]
        self.kinds = [_kind(self.flat[i]) or "" for i in self.places]
        self.values = [_array(self.flat[i]) for i in self.places]
        self.wanted = list(range(len(self.places)))
        # Called hundreds of times, and step by step every operation would be compiled apart.
        self.forward, self.both = jax.jit(self._of_leaves), jax.jit(self._with_gradients)

    def _leaves(self, values, kind: str) -> list[Any]:
        kinds = self.kinds if kind == "own" else [kind] * len(self.kinds)
        return [jnp.asarray(x, dtype=k) for x, k in zip(values, kinds)]

    def _of_leaves(self, *leaves: Any) -> list[Any]:
        flat = list(self.flat)
        for place, leaf in zip(self.places, leaves):
            flat[place] = leaf
        told = self.function(*jax.tree_util.tree_unflatten(self.structure, flat))
        return [y for y in jax.tree_util.tree_leaves(told) if _kind(y) is not None]

    def _with_gradients(self, leaves: list[Any], seeds: list[Any]) -> tuple[list[Any], Any]:
        outputs, back = jax.vjp(self._of_leaves, *leaves)
        return outputs, back([w.astype(y.dtype) for w, y in zip(seeds, outputs)])

    def evaluate(self, values, kind, cotangents, *, form="plain", wanted=None, poisoned=False) -> Evaluation:
        wide = kind == "float64" or "float64" in self.kinds
        with _refusing(), _wide() if wide else contextlib.nullcontext():
            leaves = self._leaves(values, kind)
            if cotangents is None:
                outputs = self.forward(*leaves)
                return Evaluation([_array(y) for y in outputs], [None] * len(leaves), [_kind(y) or "" for y in outputs])
            outputs, gradients = self.both(leaves, [jnp.asarray(w, dtype=leaves[0].dtype) for w in cotangents])
            return Evaluation([_array(y) for y in outputs], [_array(g) for g in gradients], [_kind(y) or "" for y in outputs])

    def sample(self, values, kind, cotangents, seed) -> Evaluation:
        with _refusing(), _wide():
            leaves = [np.asarray(x, dtype=np.float64) for x in values]
            seeds = [np.asarray(w, dtype=np.float64) for w in cotangents]
            traced, shape = jax.make_jaxpr(self._with_gradients, return_shape=True)(leaves, seeds)
            follower = Follower(Rounding(kind, seed))
            told = follower.run(traced.jaxpr, traced.consts, [*leaves, *seeds])
            outputs, gradients = jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(shape), told)
            if kind != "float64" and follower.opaque:
                raise Opaque(follower.opaque)
            return Evaluation([_array(y) for y in outputs], [_array(g) for g in gradients], ["float64"] * len(outputs))


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError, NotImplementedError) as error:
        first = str(error).splitlines()[0] if str(error) else ""
        raise Refused(f"{type(error).__name__}: {first}") from error


class Follower:
    """Runs a jaxpr operation by operation, in float64, with every floating result rounded."""

    def __init__(self, rounding: Rounding):
        self.rounding = rounding
        self.opaque: str | None = None

    def run(self, jaxpr: Any, consts: Any, arguments: Any) -> list[Any]:
        known: dict[Any, Any] = {}

        def read(v: Any) -> Any:
            # A literal has its value.
            return v.val if hasattr(v, "val") else known[v]

        known.update(zip(jaxpr.constvars, consts))
        known.update(zip(jaxpr.invars, arguments))
        for equation in jaxpr.eqns:
            told = self.operation(equation, [read(v) for v in equation.invars])
            known.update(zip(equation.outvars, told))
        return [read(v) for v in jaxpr.outvars]

    def operation(self, equation: Any, inputs: list[Any]) -> list[Any]:
        name, params = equation.primitive.name, dict(equation.params)
        if name in ("scan", "while", "cond"):
            return getattr(self, f"_{name}")(params, inputs)
        for key in _CALLS:
            if key in params and hasattr(params[key], "eqns") or hasattr(params.get(key), "jaxpr"):
                inner = params[key]
                closed = inner if hasattr(inner, "jaxpr") else None
                return self.run(closed.jaxpr if closed else inner, closed.consts if closed else [], inputs)
        if "callback" in name or name in ("ffi_call", "custom_call", "pallas_call"):
            self.opaque = self.opaque or name
        if name == "convert_element_type" and str(params["new_dtype"]) in _KINDS:
            # A cast within the code is a cast of what is rounded already.
            return [self.rounding.round(_array(inputs[0]))]
        handler = None if self.rounding.exact else _HANDLERS.get(name)
        if handler is not None and all(_kind(x) == "float64" for x in inputs):
            return [handler(self.rounding, params, *[_array(x) for x in inputs])]
        if name in _PLAIN:
            with np.errstate(all="ignore"):
                value = np.asarray(_PLAIN[name](params, *[np.asarray(x) for x in inputs]))
            real = value.dtype == np.float64 and not self.rounding.exact
            return [self.rounding.function(_RENAMED.get(name, name), value) if real else value]
        told = equation.primitive.bind(*inputs, **params)
        results = list(told) if equation.primitive.multiple_results else [told]
        return [self._rounded(equation, name, params, inputs, y) for y in results]

    def _rounded(self, equation: Any, name: str, params: dict, inputs: list[Any], y: Any) -> Any:
        if _kind(y) != "float64" or self.rounding.exact:
            return y
        value = _array(y)
        if name in _COMPUTING:
            # How it adds is not known: off as if its inputs were.
            inputs = [jnp.asarray(self.rounding.perturb(_array(x))) if _kind(x) == "float64" else x for x in inputs]
            told = equation.primitive.bind(*inputs, **params)
            if not equation.primitive.multiple_results:
                value = _array(told)
        return self.rounding.function(_RENAMED.get(name, name), value)

    def _scan(self, params: dict, inputs: list[Any]) -> list[Any]:
        consts, carry = params["num_consts"], params["num_carry"]
        body, length = params["jaxpr"], params["length"]
        fixed, state, xs = inputs[:consts], inputs[consts : consts + carry], inputs[consts + carry :]
        ys: list[list[Any]] = []
        order = range(length - 1, -1, -1) if params["reverse"] else range(length)
        for i in order:
            told = self.run(body.jaxpr, body.consts, [*fixed, *state, *[x[i] for x in xs]])
            state, out = told[:carry], told[carry:]
            ys.append(out)
        if params["reverse"]:
            ys.reverse()
        shapes = [v.aval for v in body.jaxpr.outvars[carry:]]
        stacked = [jnp.stack([y[j] for y in ys]) if ys else jnp.zeros((0, *s.shape), s.dtype) for j, s in enumerate(shapes)]
        return [*state, *stacked]

    def _while(self, params: dict, inputs: list[Any]) -> list[Any]:
        first, second = params["cond_nconsts"], params["body_nconsts"]
        asked, fixed, state = inputs[:first], inputs[first : first + second], inputs[first + second :]
        condition, body = params["cond_jaxpr"], params["body_jaxpr"]
        while bool(self.run(condition.jaxpr, condition.consts, [*asked, *state])[0]):
            state = self.run(body.jaxpr, body.consts, [*fixed, *state])
        return state

    def _cond(self, params: dict, inputs: list[Any]) -> list[Any]:
        branches = params["branches"]
        branch = branches[int(np.clip(int(inputs[0]), 0, len(branches) - 1))]
        return self.run(branch.jaxpr, branch.consts, inputs[1:])


_RENAMED = {"logistic": "sigmoid", "integer_pow": "pow", "erf_inv": "erfinv"}
# Sums that are not followed term by term.
_COMPUTING = ("conv_general_dilated", "scatter-add", "scatter_add", "reduce_window_sum", "reduce_prod", "cumprod", "cumlogsumexp",
              "triangular_solve", "cholesky", "fft")  # fmt: skip


def _dot_general(rounding: Rounding, params: dict, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Any contraction as batches of matrices."""
    (ca, cb), (ba, bb) = params["dimension_numbers"]
    fa = [i for i in range(a.ndim) if i not in ca and i not in ba]
    fb = [i for i in range(b.ndim) if i not in cb and i not in bb]
    batch = [a.shape[i] for i in ba]
    rows, columns = [a.shape[i] for i in fa], [b.shape[i] for i in fb]
    k = int(np.prod([a.shape[i] for i in ca], dtype=int))
    left = a.transpose([*ba, *fa, *ca]).reshape([*batch, int(np.prod(rows, dtype=int)), k])
    right = b.transpose([*bb, *cb, *fb]).reshape([*batch, k, int(np.prod(columns, dtype=int))])
    return rounding.matmul(left, right).reshape([*batch, *rows, *columns])


def _cumsum(rounding: Rounding, params: dict, x: np.ndarray) -> np.ndarray:
    axis = params["axis"]
    if params.get("reverse"):
        return np.flip(rounding.cumulative_sum(np.flip(x, axis), axis), axis)
    return rounding.cumulative_sum(x, axis)


def _placed(params: dict, x: np.ndarray) -> np.ndarray:
    """broadcast_in_dim: axes of x at places of the result."""
    shape = [1] * len(params["shape"])
    for axis, place in enumerate(params["broadcast_dimensions"]):
        shape[place] = x.shape[axis]
    return np.broadcast_to(x.reshape(shape), params["shape"])


# What NumPy does as well: calling JAX operation by operation compiles each for every shape.
_PLAIN: dict[str, Callable[..., Any]] = {
    "mul": lambda p, a, b: a * b,
    "div": lambda p, a, b: a / b if a.dtype.kind == "f" else a // b,
    "neg": lambda p, a: -a,
    "exp": lambda p, a: np.exp(a),
    "log": lambda p, a: np.log(a),
    "log1p": lambda p, a: np.log1p(a),
    "expm1": lambda p, a: np.expm1(a),
    "tanh": lambda p, a: np.tanh(a),
    "sin": lambda p, a: np.sin(a),
    "cos": lambda p, a: np.cos(a),
    "sqrt": lambda p, a: np.sqrt(a),
    "rsqrt": lambda p, a: 1 / np.sqrt(a),
    "abs": lambda p, a: np.abs(a),
    "sign": lambda p, a: np.sign(a),
    "square": lambda p, a: a * a,
    "logistic": lambda p, a: 1 / (1 + np.exp(-a)),
    "max": lambda p, a, b: np.maximum(a, b),
    "min": lambda p, a, b: np.minimum(a, b),
    "integer_pow": lambda p, a: a ** p["y"] if p["y"] >= 0 else 1 / a ** -p["y"],
    "pow": lambda p, a, b: a**b,
    "gt": lambda p, a, b: a > b,
    "ge": lambda p, a, b: a >= b,
    "lt": lambda p, a, b: a < b,
    "le": lambda p, a, b: a <= b,
    "eq": lambda p, a, b: a == b,
    "ne": lambda p, a, b: a != b,
    "select_n": lambda p, which, *cases: np.choose(which.astype(int), cases) if len(cases) > 2 else np.where(which, cases[1], cases[0]),
    "broadcast_in_dim": _placed,
    "reshape": lambda p, a: a.reshape(p["new_sizes"]) if p.get("dimensions") is None else a.transpose(p["dimensions"]).reshape(p["new_sizes"]),
    "transpose": lambda p, a: a.transpose(p["permutation"]),
    "squeeze": lambda p, a: a.squeeze(tuple(p["dimensions"])),
    "reduce_max": lambda p, a: a.max(tuple(p["axes"])),
    "reduce_min": lambda p, a: a.min(tuple(p["axes"])),
    "stop_gradient": lambda p, a: a,
    "copy": lambda p, a: a,
    "copy_p": lambda p, a: a,
}

_HANDLERS: dict[str, Callable[..., np.ndarray]] = {
    "add": lambda rounding, params, a, b: rounding.add(a, b),
    "add_any": lambda rounding, params, a, b: rounding.add(a, b),
    "sub": lambda rounding, params, a, b: rounding.add(a, -b),
    "reduce_sum": lambda rounding, params, x: rounding.sum(x, tuple(params["axes"])),
    "cumsum": _cumsum,
    "dot_general": _dot_general,
}
