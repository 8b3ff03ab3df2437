"""The verifier: gradients against independent oracles."""

from __future__ import annotations

import inspect
import json
import os
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from . import _retrograd
from ._arrays import numbers, whole


if TYPE_CHECKING:
    from .checking.protocol import Code

# Sizes that are drawn from an example's function.
DRAWS = 8


class Report:
    """What was checked: `passed`, the `rows`, and the table as text."""

    def __init__(self, passed: bool, rows: str, text: str):
        self.passed = passed
        self._json = rows
        self.text = text

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every check with its error, its bound and what came of it."""
        told = json.loads(self._json)
        return told["rows"] if isinstance(told, dict) else told

    @property
    def problems(self) -> list[dict[str, Any]]:
        """The rows that did not pass."""
        return [row for row in self.rows if row["verdict"] != "pass"]

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Report({'passed' if self.passed else 'FAILED'}, {len(self.rows)} checks)"


class Verify:
    """`verify(…)` checks our own models; `verify.torch`, `.jax`, `.numpy` and `.function` other people's code.

    >>> import numpy as np, retrograd
    >>> network = retrograd.Network([2], [{"kind": "kan", "out": 1, "grid": 3, "degree": 3}])
    >>> x = np.random.default_rng(0).uniform(-1, 1, (6, 2))
    >>> report = retrograd.verify(network, x, x[:, :1] * 2, quick=True)
    >>> report.passed
    True

    A pair of functions over arrays, with a mistake in it:

    >>> report = retrograd.verify.numpy(np.tanh, lambda x, d_y: d_y * (1 + np.tanh(x) ** 2), x)
    >>> report.passed, report.problems[0]["tensor"], report.problems[0]["link"]
    (False, 'input 0', '1 differences')
    """

    def __call__(
        self,
        what=None,
        x=None,
        y=None,
        *,
        graph=None,
        edge_weight=None,
        edge_attr=None,
        loss: str = "mse",
        quick: bool = False,
        mutants: bool = True,
        name: str | None = None,
    ) -> Report:
        """Checks gradients against central differences in float64, float32 against the reference within
        predicted bounds, threads, reused memory and trajectories.

        `what` is one of our models (of `retrograd` or `retrograd.torch`, or a fitted estimator) with a
        small batch `x` and targets `y`; or the path of a bundle, or several; or nothing, for everything
        that is built in, with its mutants. `quick` leaves out the trajectories.
        """
        if what is None:
            return Report(*_retrograd.verify_built_in(bool(mutants)))
        if isinstance(what, (str, os.PathLike)):
            what = [what]
        if isinstance(what, (list, tuple)):
            return Report(*_retrograd.verify_bundles([os.fspath(path) for path in what]))
        if hasattr(what, "_verified"):
            engine, params, x, y, loss = what._verified(x, y)
        else:
            engine, params = getattr(what, "_engine", None), getattr(what, "params", None)
        if engine is None:
            raise TypeError(
                f"what: got {type(what).__name__}, needs one of retrograd's models or a path; "
                "verify.torch, .jax, .numpy and .function check other code"
            )
        params = numbers("params", params)
        if x is None or y is None:
            raise TypeError("verify: needs a batch, x and y, for a model")
        y = whole("y", y) if loss == "cross_entropy" else numbers("y", y)
        x = numbers("x", x)
        name = name or type(what).__name__
        if isinstance(engine, _retrograd.GraphNetwork):
            from .models import Graph

            if graph is None:
                raise TypeError("verify: a network over graphs needs graph=")
            weight = None if edge_weight is None else numbers("edge_weight", edge_weight)
            attr = None if edge_attr is None else numbers("edge_attr", edge_attr)
            graph = Graph.of(graph)._graph
            told = engine.verify(name, params, graph, x, y, loss, quick, weight, attr)
        else:
            told = engine.verify(name, params, x, y, loss, quick)
        return Report(*told)

    @staticmethod
    def torch(
        module_or_function: Callable[..., Any],
        example: Any,
        *,
        reference: Callable[..., Any] | None = None,
        draws: int = DRAWS,
        seed: int = 0,
        deterministic: bool = True,
        name: str | None = None,
    ) -> Report:
        """Checks the gradients of a module, or of a function of tensors, in PyTorch.

        `example` is a tensor or a tuple of arguments; or a function whose parameters are sizes (a default is
        the largest) that makes one: then `draws` sizes are drawn, odd, prime and around powers of two, and
        every size is 0 once. Where some tensors of the example require a gradient, those are checked; all of
        floating numbers otherwise, and a module's parameters.

        Code that runs in float64 is its own reference: central differences hold it in float64, and itself in
        float64, with every operation rounded at random to its own type, in that type. A kernel in float32,
        float16 or bfloat16 alone, or one that is compiled, needs a `reference` in plain PyTorch: a function of
        the same arguments, for a module a module with the same parameters.

        Equal calls have to give equal bits; `deterministic=False` only names the difference.
        """
        import torch as framework

        from .checking.with_torch import TorchCode

        def make(given: Any) -> tuple[Code, Code | None]:
            code = TorchCode(module_or_function, given)
            return code, None if reference is None else TorchCode(reference, given, code)

        def seeded(**sizes: int) -> Any:
            with framework.random.fork_rng(devices=[]):
                framework.manual_seed(seed)
                return example(**sizes)

        if callable(example) and not isinstance(example, framework.Tensor):
            seeded.__signature__ = inspect.signature(example)  # type: ignore[attr-defined]
            return _check(name, module_or_function, make, seeded, draws, seed, deterministic)
        return _check(name, module_or_function, make, example, draws, seed, deterministic)

    @staticmethod
    def jax(
        f: Callable[..., Any],
        example: Any,
        *,
        reference: Callable[..., Any] | None = None,
        draws: int = DRAWS,
        seed: int = 0,
        deterministic: bool = True,
        name: str | None = None,
    ) -> Report:
        """Checks the gradients (`jax.vjp`) of a function of arrays, or of trees of them, in JAX. As `torch`; the
        reference's jaxpr is run operation by operation, each rounded at random."""
        from .checking.with_jax import JaxCode

        def make(given: Any) -> tuple[Code, Code | None]:
            return JaxCode(f, given), None if reference is None else JaxCode(reference, given)

        return _check(name, f, make, example, draws, seed, deterministic)

    @staticmethod
    def numpy(
        forward: Callable[..., Any],
        backward: Callable[..., Any],
        example: Any,
        *,
        draws: int = DRAWS,
        seed: int = 0,
        deterministic: bool = True,
        name: str | None = None,
    ) -> Report:
        """Checks a forward and a backward that are written in NumPy and run in the type of their inputs: they are
        their own reference. As `function`."""
        return Verify.function(
            forward, backward, example, draws=draws, seed=seed, deterministic=deterministic, name=name
        )

    @staticmethod
    def function(
        forward: Callable[..., Any],
        backward: Callable[..., Any],
        example: Any,
        *,
        reference: Any = None,
        draws: int = DRAWS,
        seed: int = 0,
        deterministic: bool = True,
        name: str | None = None,
    ) -> Report:
        """Checks any pair of functions over arrays: `forward(*inputs)` returns an output or a tuple of them,
        `backward(*inputs, *d_outputs)` the gradient of every input of floating numbers, or of every input with None
        for others. The example is an array, a tuple of inputs, or a function of sizes.

        `reference`, for code in one type alone or code that is compiled: a pair (forward, backward) in NumPy, or a
        function in plain PyTorch, or in JAX, of the same inputs. Without one, code that doesn't run in float64 is held
        to central differences in its own type, which are rough.
        """
        from .checking.with_numpy import PairCode

        def make(given: Any) -> tuple[Code, Code | None]:
            code = PairCode(forward, backward, given)
            return code, _reference(reference, given)

        return _check(name, forward, make, example, draws, seed, deterministic)


def _reference(reference: Any, example: Any) -> Code | None:
    """Of a pair of functions: another pair, or a function of PyTorch or JAX, which is tried with PyTorch first."""
    from .checking.protocol import Refused, arguments_of
    from .checking.with_numpy import PairCode

    if reference is None:
        return None
    if isinstance(reference, (tuple, list)):
        return PairCode(reference[0], reference[1], example)
    given = arguments_of(example)
    tried = []
    for framework in ("torch", "jax"):
        try:
            if framework == "torch":
                import torch

                from .checking.with_torch import TorchCode

                tensors = tuple(torch.from_numpy(np.array(x)) if isinstance(x, np.ndarray) else x for x in given)
                code: Code = TorchCode(reference, tensors)
            else:
                import jax.numpy as jnp

                from .checking.with_jax import JaxCode

                code = JaxCode(reference, tuple(jnp.asarray(x) if isinstance(x, np.ndarray) else x for x in given))
            code.evaluate(code.values, "own", None)
            return code
        except ImportError:
            tried.append(f"{framework} is not installed")
        except Refused as error:
            tried.append(f"with {framework} it raised {error}")
    raise TypeError(f"reference: needs a pair of functions, or a function of PyTorch's or JAX's; {'; '.join(tried)}")


def _check(name, function, make, example, draws: int, seed: int, deterministic: bool) -> Report:
    from .checking.entry import check

    if not isinstance(draws, int) or draws < 1:
        raise ValueError(f"draws: got {draws!r}, needs a whole number from 1 on")
    # `apply` of an autograd.Function is its class's.
    owner = getattr(function, "__self__", None)
    own = owner if isinstance(owner, type) else function
    name = name or getattr(own, "__name__", type(function).__name__)
    return Report(*check(name, make, example, draws, seed, deterministic))


verify = Verify()
