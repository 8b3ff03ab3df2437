"""Rows, and the table of them, in the form of the engine's own reports."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field

import numpy as np

LINKS = {
    "differences": "1 differences",
    "reference": "2 reference in f64",
    "kernel": "3 kernel",
    "bits": "5 bits",
    "form": "5 form",
}


@dataclass
class Row:
    """One comparison: the worst element's error, its bound and their ratio."""

    model: str
    tensor: str
    link: str
    verdict: str
    error: float = math.nan
    bound: float = math.nan
    ratio: float = math.nan
    elements: int = 0
    worst: int | None = None
    at: list[int] = field(default_factory=list)
    likeness: str = ""
    note: str = ""

    def told(self) -> dict:
        values = asdict(self)
        for name in ("error", "bound", "ratio"):
            if not math.isfinite(values[name]):
                values[name] = None
        return values


def unchecked(model: str, tensor: str, link: str, note: str) -> Row:
    return Row(model, tensor, LINKS[link], "unchecked", note=note)


def failed(model: str, tensor: str, link: str, note: str) -> Row:
    return Row(model, tensor, LINKS[link], "fail", ratio=math.inf, note=note)


def compared(
    model: str, tensor: str, link: str, got: np.ndarray, right: np.ndarray, bound: np.ndarray, note: str = ""
) -> Row:
    """The one comparison: values against right ones, each with its own bound."""
    row = Row(model, tensor, LINKS[link], "pass", 0.0, 0.0, 0.0, int(right.size), note=note)
    if got.shape != right.shape:
        row.verdict, row.ratio = "fail", math.inf
        row.note = f"shape {list(got.shape)}, needs {list(right.shape)}"
        return row
    if right.size == 0:
        return row
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.abs(got - right)
        ratio = np.where(error == 0, 0.0, error / bound)
    same = (got == right) | (np.isnan(got) & np.isnan(right))
    ratio = np.where(same, 0.0, np.nan_to_num(ratio, nan=np.inf, posinf=np.inf))
    worst = int(np.argmax(ratio))
    row.error, row.bound = float(error.flat[worst]), float(np.broadcast_to(bound, right.shape).flat[worst])
    row.ratio = float(ratio.flat[worst])
    row.verdict = "pass" if row.ratio <= 1 else "fail"
    row.worst, row.at = worst, [int(i) for i in np.unravel_index(worst, right.shape)]
    return row


def _number(x: float) -> str:
    return "–" if math.isnan(x) else "0" if x == 0 else f"{x:.1e}"


def table(rows: list[Row]) -> str:
    """The rows for people."""
    header = ["model", "tensor", "link", "error", "bound", "ratio", "verdict", ""]
    lines = [header]
    for row in rows:
        remarks = []
        if row.verdict == "fail" and row.worst is not None:
            remarks.append(f"worst at {row.at}")
        if row.likeness:
            remarks.append(f"looks {row.likeness}")
        if row.note:
            remarks.append(row.note)
        ratio = "–" if math.isnan(row.ratio) else f"{row.ratio:.3f}" if row.ratio < 1000 else _number(row.ratio)
        verdict = row.verdict.upper() if row.verdict == "fail" else row.verdict
        cells = [row.model, row.tensor, row.link, _number(row.error), _number(row.bound), ratio, verdict]
        lines.append([*cells, ", ".join(remarks)])
    widths = [max(len(line[c]) for line in lines) for c in range(len(header))]
    text = ""
    for line in lines:
        cells = [c.rjust(w) if 3 <= i < 6 else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths))]
        text += "  ".join(cells).rstrip() + "\n"
    return text


def summary(rows: list[Row]) -> str:
    count = {v: sum(row.verdict == v for row in rows) for v in ("pass", "fail", "unchecked")}
    elements = sum(row.elements for row in rows)
    return (
        f"{len(rows)} checks over {elements} elements: {count['pass']} passed, {count['fail']} failed, "
        f"{count['unchecked']} unchecked"
    )


def as_json(rows: list[Row]) -> str:
    return json.dumps({"rows": [row.told() for row in rows]})
