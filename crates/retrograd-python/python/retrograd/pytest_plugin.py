"""pytest's fixture `check_gradients`: a test fails with the tensor, the element, the link, and what the mistake
looks like.

    def test_my_layer(check_gradients):
        check_gradients(MyLayer(), torch.randn(5, 7))
        check_gradients(fused, example, reference=plain)
        check_gradients(forward, backward, arrays)
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Callable

import pytest

if TYPE_CHECKING:
    from .verifying import Report


class CheckGradients:
    """Finds out what it is given: two functions and an example are a pair over arrays; a module, or a function with
    an example of tensors, is PyTorch's; one with arrays of JAX is JAX's."""

    def __call__(self, code: Callable[..., Any], *arguments: Any, unchecked: bool = False, **options: Any) -> Report:
        """Fails the test unless everything passed; `unchecked=True` allows rows that could not be checked."""
        __tracebackhide__ = True
        from .verifying import verify

        if len(arguments) == 2 and callable(arguments[0]):
            report = verify.function(code, arguments[0], arguments[1], **options)
        elif len(arguments) == 1:
            report = getattr(verify, _framework(code, arguments[0]))(code, arguments[0], **options)
        else:
            raise TypeError("check_gradients: needs (code, example) or (forward, backward, example)")
        wrong = [row for row in report.problems if row["verdict"] == "fail" or not unchecked]
        if wrong or not report.rows:
            pytest.fail(describe(wrong) + "\n\n" + report.text, pytrace=False)
        return report


def describe(rows: list[dict[str, Any]]) -> str:
    """A sentence for every row that is wrong, the first of each tensor and link."""
    lines, told = [], set()
    for row in rows:
        if (key := (row["tensor"], row["link"], row["verdict"], row["note"])) in told:
            continue
        told.add(key)
        line = f"{row['model']}: {row['tensor']}, link {row['link']}: "
        if row["verdict"] == "unchecked":
            line += "unchecked"
        elif row["worst"] is not None:
            ratio = "more than any" if row["ratio"] is None else f"{row['ratio']:.3g} times the"
            error = "not finite" if row["error"] is None else f"{row['error']:.3g}"
            line += f"element {row['at']} is off by {error}, {ratio} bound"
        else:
            line += "wrong"
        if row["likeness"]:
            line += f"; looks {row['likeness']}"
        if row["note"]:
            line += f" ({row['note']})"
        lines.append(line)
    return "\n".join(lines) or "nothing was checked"


def _framework(code: Callable[..., Any], example: Any) -> str:
    """By the code's class, then by the example's arrays."""
    if _of(type(code), "torch"):
        return "torch"
    if callable(example) and not hasattr(example, "shape"):
        example = example(**{name: 2 for name in inspect.signature(example).parameters})
    leaves = [example]
    while leaves:
        leaf = leaves.pop()
        if isinstance(leaf, dict):
            leaves += leaf.values()
        elif isinstance(leaf, (tuple, list)):
            leaves += leaf
        elif _of(type(leaf), "torch"):
            return "torch"
        elif _of(type(leaf), "jax"):
            return "jax"
    raise TypeError("check_gradients: needs tensors of PyTorch or arrays of JAX in the example; for NumPy, a backward too")


def _of(kind: type, package: str) -> bool:
    return any(base.__module__.split(".")[0].startswith(package) for base in kind.__mro__)


@pytest.fixture(scope="session")
def check_gradients() -> CheckGradients:
    """Checks gradients against independent oracles; see `retrograd.verify.torch`, `.jax` and `.function`."""
    return CheckGradients()
