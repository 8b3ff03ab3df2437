"""What a person sees while a model trains: a bar on a terminal, a bar and the curve in a notebook."""

from __future__ import annotations

import html
import math
import sys
import time
from typing import Any, Callable

#: The colours of the curves, and of their figures.
COLOURS = {"train_loss": "#3b82f6", "validation_loss": "#f97316"}

#: At most so often is something drawn anew, in seconds.
REFRESH = 0.2


def in_notebook() -> bool:
    """Whether a notebook shows what is displayed."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return type(get_ipython()).__name__ == "ZMQInteractiveShell"


def watcher(progress: bool | None, name: str, epochs: int) -> Callable[[str, dict[str, Any]], None]:
    """What is told the events of a run."""
    if progress is False:
        return lambda kind, told: None
    if "IPython" in sys.modules and in_notebook():
        return Notebook(name, epochs)
    if progress or sys.stderr.isatty():
        return Terminal(name, epochs)
    return lambda kind, told: None


class _Watcher:
    def __init__(self, name: str, epochs: int):
        self.name, self.epochs = name, epochs
        self.losses: list[tuple[float, float]] = []
        self.validation: list[tuple[float, float]] = []
        self.figures: dict[str, str] = {}
        self.epoch = 0
        self.drawn = 0.0

    def __call__(self, kind: str, told: dict[str, Any]) -> None:
        if kind == "epoch":
            self.epoch = told["epoch"]
            self.losses.append((told["epoch"], told["train_loss"]))
            if told.get("validation_loss") is not None:
                self.validation.append((told["epoch"], told["validation_loss"]))
            known = ("epoch", "step", "lr", "best", "seconds")
            figures = {k: f"{k} {v:.4g}" for k, v in told.items() if k not in known and v is not None}
            # The losses first, which are drawn.
            self.figures = {**{k: figures[k] for k in COLOURS if k in figures}, **figures}
        elif kind != "done":
            return
        now = time.monotonic()
        if kind == "done" or now - self.drawn >= REFRESH:
            self.drawn = now
            self.draw(kind == "done")

    def draw(self, done: bool) -> None:
        raise NotImplementedError


class Terminal(_Watcher):
    """A bar on stderr."""

    def draw(self, done: bool) -> None:
        share = min(1.0, self.epoch / max(1, self.epochs))
        bar = ("━" * round(28 * share)).ljust(28)
        end = "\n" if done else ""
        figures = "  ".join(self.figures.values())
        print(f"\r{bar} {share:4.0%}  {figures}\x1b[K", end=end, file=sys.stderr, flush=True)


class Notebook(_Watcher):
    """A bar and the curve of the loss, in a cell's output."""

    def __init__(self, name: str, epochs: int):
        super().__init__(name, epochs)
        from IPython.display import HTML, display

        self.html = HTML
        self.handle = display(HTML(self.page()), display_id=True)

    def draw(self, done: bool) -> None:
        self.handle.update(self.html(self.page()))

    def page(self) -> str:
        share = 100 * min(1.0, self.epoch / max(1, self.epochs))
        figures = " &nbsp; ".join(
            f'<span style="color:{COLOURS.get(name, "inherit")}">{html.escape(text)}</span>'
            for name, text in self.figures.items()
        )
        return (
            f'<div style="font-family:sans-serif;max-width:640px"><b>{html.escape(self.name)}</b> '
            f"epoch {self.epoch} of {self.epochs}<br>"
            '<div style="background:#8883;height:8px;border-radius:4px;margin:4px 0">'
            f'<div style="background:{COLOURS["train_loss"]};height:8px;border-radius:4px;width:{share:.1f}%"></div>'
            f"</div>{curve(self.losses, self.validation)}<br><small>{figures}</small></div>"
        )


def curve(losses, validation) -> str:
    """The curves as SVG, logarithmic where they can be."""
    points = [p for p in [*losses, *validation] if math.isfinite(p[1])]
    if len(losses) < 2 or not points:
        return ""
    low, high = min(v for _, v in points), max(v for _, v in points)
    scale = math.log if low > 0 else float
    low, high = scale(low), scale(high)
    last = max(e for e, _ in points)

    def line(values, colour):
        if len(values) < 2:
            return ""
        step = max(1, len(values) // 320)
        kept = [*values[::step], values[-1]]
        places = (
            f"{640 * e / last:.1f},{115 - 110 * (scale(v) - low) / ((high - low) or 1):.1f}"
            for e, v in kept
            if math.isfinite(v)
        )
        return f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{" ".join(places)}"/>'

    body = line(losses, COLOURS["train_loss"]) + line(validation, COLOURS["validation_loss"])
    return f'<svg viewBox="0 0 640 120" width="100%" role="img">{body}</svg>'
