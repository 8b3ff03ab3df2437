"""From an example, or a function of sizes, to a report."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from .chain import Chain
from .protocol import Code, Refused
from .report import Row, as_json, failed, summary, table
from .sizes import draws, parameters, zeros

# From an example to the code at it, and to its reference.
Maker = Callable[[Any], "tuple[Code, Code | None]"]


def check(name: str, make: Maker, example: Any, draw: int, seed: int, deterministic: bool) -> tuple[bool, str, str]:
    """All rows: of the example, or of as many drawn sizes."""
    rows: list[Row] = []
    if not _is_sizes(example):
        code, reference = make(example)
        rows += Chain(name, code, reference, {}, seed, deterministic).run()
        return _told(rows)
    largest = parameters(example)
    for i, sizes in enumerate(draws(largest, draw, seed)):
        label = name + " (" + ", ".join(f"{k}={v}" for k, v in sizes.items()) + ")"
        code, reference = make(_made(example, sizes, seed))
        rows += Chain(label, code, reference, sizes, seed + i, deterministic).run(light=i > 0)
    rows = _merged(rows)
    for sizes in zeros(largest):
        rows += _empty(name, make, example, sizes, seed)
    return _told(rows)


def _merged(rows: list[Row]) -> list[Row]:
    """Without rows that say nothing at one size of a tensor that passes the same link at another (a norm over one
    element has a gradient of 0); the row that passes says so."""
    passed = {(row.tensor, row.link): row for row in reversed(rows) if row.verdict == "pass"}
    kept = []
    for row in rows:
        other = passed.get((row.tensor, row.link))
        if row.verdict != "unchecked" or other is None:
            kept.append(row)
        else:
            where = row.model[row.model.rindex("(") :]
            other.note = f"{other.note}; unchecked at {where}" if other.note else f"unchecked at {where}"
    return kept


def _is_sizes(example: Any) -> bool:
    return callable(example) and not hasattr(example, "shape")


def _made(example: Callable[..., Any], sizes: dict[str, int], seed: int) -> Any:
    """The example at sizes, with NumPy's own random numbers as they were before."""
    state = np.random.get_state()
    try:
        np.random.seed(seed)
        return example(**sizes)
    finally:
        np.random.set_state(state)


def _empty(name: str, make: Maker, example, sizes: dict[str, int], seed: int) -> list[Row]:
    """Nothing in, nothing out: no garbage, and the gradients' shapes. Code may refuse it."""
    label = name + " (" + ", ".join(f"{k}={v}" for k, v in sizes.items()) + ")"
    try:
        code, _ = make(_made(example, sizes, seed))
        outputs = code.evaluate(code.values, "own", None).outputs
        ones = [np.ones(y.shape) for y in outputs]
        got = code.evaluate(code.values, "own", ones)
    except (Refused, ValueError, RuntimeError, ZeroDivisionError, IndexError, TypeError):
        return []
    if all(x.size for x in code.values):
        return []
    rows = []
    # Sums over nothing are 0.
    nothing = not any(y.size for y in outputs)
    for i in code.wanted:
        told = got.gradients[i]
        if told is not None and told.shape != code.values[i].shape:
            text = f"an empty input: gradient of shape {list(told.shape)}, needs {list(code.values[i].shape)}"
            rows.append(failed(label, code.names[i], "form", text))
        elif told is not None and nothing and np.any(told != 0):
            rows.append(failed(label, code.names[i], "form", "an empty input: a sum over nothing is not 0"))
    return rows or [Row(label, "all", "5 form", "pass", 0.0, 0.0, 0.0, 0, note="an empty input")]


def _told(rows: list[Row]) -> tuple[bool, str, str]:
    passed = bool(rows) and all(row.verdict == "pass" for row in rows)
    return passed, as_json(rows), table(rows) + summary(rows) + "\n"
