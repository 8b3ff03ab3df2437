"""The links of the chain for code that is not ours.

| link | compares | held to |
|---|---|---|
| 1 | central differences in float64 ↔ the gradients in float64 | truncation and rounding of the differences |
| 2 | the code in float64 ↔ the reference in float64 | rounding, predicted for float32 and scaled to float64's |
| 3 | the code in its own type ↔ the reference in float64 | rounding, predicted |
| 5 | the same call again, after others, in memory filled with NaN | equal bits |
| 5 | inputs in other forms, gradients of some inputs alone | as 3 |
"""

from __future__ import annotations

import math
from typing import Mapping, Sequence

import numpy as np

from .bounds import MEANINGFUL, bound
from .differences import SCALE_FLOOR, Derivative, Differences, caps, gradient_noise
from .likeness import likeness
from .protocol import Code, Evaluation, Opaque, Refused, to_kind
from .report import Row, compared, failed, unchecked

# Runs of the reference that predict a bound.
RUNS = 16
# Tensors up to this size have differences for every element; of larger ones so many are drawn, and …
ALL_UP_TO = 48
DRAWN = 16
# … random directions through all elements.
DIRECTIONS = 2
# Calls that have to give the same bits.
REPEATS = 4


class Oracle:
    """The right values in float64 and what rounding to a type can explain, at one point."""

    def __init__(self, code: Code, values: list[np.ndarray], cotangents: list[np.ndarray], kind: str):
        self.exact = code.sample(values, "float64", cotangents, 0)
        self.kind = kind
        self.runs: list[Evaluation] = []
        try:
            # Rounding in float64 is float32's, 2²⁹ times smaller.
            sampled = "float32" if kind == "float64" else kind
            self.runs = [code.sample(values, sampled, cotangents, seed) for seed in range(1, RUNS + 1)]
        except Opaque:
            pass

    def gradient(self, leaf: int) -> tuple[np.ndarray, np.ndarray | None]:
        right = self.exact.gradients[leaf]
        assert right is not None
        return right, self._bound(right, [run.gradients[leaf] for run in self.runs])

    def output(self, index: int) -> tuple[np.ndarray, np.ndarray | None]:
        return self.exact.outputs[index], self._bound(
            self.exact.outputs[index], [run.outputs[index] for run in self.runs]
        )

    def _bound(self, right: np.ndarray, runs: Sequence[np.ndarray | None]) -> np.ndarray | None:
        known = [run for run in runs if run is not None]
        if not known:
            return None
        if self.kind == "float64":
            return bound(right, known, "float32") * 2.0**-29
        return bound(right, known, self.kind)


class Chain:
    """All links for one code at one example."""

    def __init__(
        self,
        model: str,
        code: Code,
        reference: Code | None,
        sizes: Mapping[str, int],
        seed: int,
        deterministic: bool = True,
    ):
        self.model, self.code, self.reference = model, code, reference
        self.deterministic, self.seed = deterministic, seed
        self.kind = code.own()
        self.rng = np.random.default_rng([seed, 7])
        # Numbers that every type involved holds.
        self.values = [to_kind(x, kind) for x, kind in zip(code.values, code.kinds)]
        self.in_f64 = code.runs_in_f64()
        self.oracle_code = reference or (code if self.in_f64 else None)
        self.sizes = dict(sizes)
        for name, x in zip(code.names, self.values):
            for axis, size in enumerate(x.shape):
                self.sizes.setdefault(f"axis {axis} of {name}", size)
            self.sizes.setdefault(f"elements of {name}", x.size)
        self.rows: list[Row] = []
        self.cotangents: list[np.ndarray] = []
        self.earlier: dict[str, np.ndarray] = {}
        # The largest gradient of all.
        self.largest = 0.0

    # Rows.

    def _compare(self, link: str, tensor: str, got, right, limit, note="", gradients=None) -> Row:
        """A row of one tensor, with what a wrong one looks like."""
        got = np.full(right.shape, np.nan) if got is None else got
        if limit is None:
            return self._without_bound(link, tensor, got, right, note)
        row = compared(self.model, tensor, link, got, right, limit, note)
        scale = max(float(np.max(np.abs(right[np.isfinite(right)]), initial=0.0)), SCALE_FLOOR * self.largest)
        if row.verdict == "fail":
            others = {f"{n}": v for n, v in zip(self.code.names, self.values)}
            others |= {f"the gradient of output {i}": c for i, c in enumerate(self.cotangents)}
            row.likeness = likeness(got, right, limit, self.sizes, others, gradients)
        elif scale > 0 and not float(np.median(limit)) < MEANINGFUL * scale:
            row.verdict = "unchecked"
            row.note = "the bound is a tenth of the tensor's scale or more" + (f"; {note}" if note else "")
        return row

    def _without_bound(self, link: str, tensor: str, got, right, note: str) -> Row:
        """Where no bound is known: equal bits pass, a tenth of the scale fails."""
        # A gradient that is nothing beside the others is rounding.
        scale = max(float(np.max(np.abs(right), initial=0.0)), SCALE_FLOOR * self.largest)
        row = compared(self.model, tensor, link, got, right, np.full(right.shape, MEANINGFUL * scale), note)
        if row.verdict == "pass" and row.error > 0:
            row.verdict = "unchecked"
            row.note = "operations can't be followed: give reference=" + (f"; {note}" if note else "")
        return row

    # The links.

    def run(self, light: bool = False) -> list[Row]:
        """Every link; `light` leaves out those that say nothing new at another size."""
        code = self.code
        try:
            first = code.evaluate(self.values, "own", None)
        except Refused as error:
            self.rows.append(failed(self.model, "forward", "kernel", f"raised {error}"))
            return self.rows
        if not first.outputs:
            self.rows.append(unchecked(self.model, "outputs", "kernel", "no output has a gradient"))
            return self.rows
        kinds = first.kinds
        self.cotangents = [
            to_kind(self.rng.normal(size=y.shape), kind if kind != "float64" else self.kind)
            for y, kind in zip(first.outputs, kinds)
        ]
        try:
            first = code.evaluate(self.values, "own", self.cotangents)
        except Refused as error:
            self.rows.append(failed(self.model, "backward", "kernel", f"raised {error}"))
            return self.rows
        known = [g[np.isfinite(g)] for g in first.gradients if g is not None]
        self.largest = max(float(np.max(np.abs(g), initial=0.0)) for g in known)
        oracle = self._oracle(self.values, self.cotangents)
        if oracle is not None and not self._shapes_agree(first, oracle.exact):
            return self.rows
        self._differences(light)
        if self.in_f64 and self.reference is not None and self.kind != "float64":
            self._reference_in_f64()
        if self.oracle_code is None:
            self._differences_in_own_type(first)
        elif oracle is not None and self.kind != "float64":
            self._against(first, oracle, "kernel")
        elif oracle is not None and self.reference is not None:
            self._against(first, oracle, "reference")
        self._bits(first, light)
        if not light:
            self._forms(first, oracle)
        return self.rows

    def _oracle(self, values, cotangents) -> Oracle | None:
        if self.oracle_code is None:
            return None
        try:
            return Oracle(self.oracle_code, values, cotangents, self.kind)
        except Refused as error:
            self.rows.append(unchecked(self.model, "reference", "kernel", f"the reference raised {error}"))
        except Opaque:
            # Not even in float64 under the follower: the code as it is.
            pass
        return None

    def _shapes_agree(self, got: Evaluation, right: Evaluation) -> bool:
        shapes = [y.shape for y in got.outputs], [y.shape for y in right.outputs]
        if shapes[0] != shapes[1]:
            text = "outputs {}, the reference's {}".format(*[[list(s) for s in side] for side in shapes])
            self.rows.append(failed(self.model, "outputs", "kernel", text))
        return shapes[0] == shapes[1]

    def _against(self, got: Evaluation, oracle: Oracle, link: str, note: str = "", outputs: bool = True) -> None:
        """Everything that was computed, against the oracle."""
        names = self.code.names
        rights = {f"the gradient of {names[i]}": oracle.gradient(i)[0] for i in self.code.wanted}
        if outputs:
            for i, y in enumerate(got.outputs):
                right, limit = oracle.output(i)
                self.rows.append(self._compare(link, f"output {i}" if len(got.outputs) > 1 else "output", y, right, limit, note))
        for i in self.code.wanted:
            if got.gradients[i] is None and note:
                continue
            right, limit = oracle.gradient(i)
            others = {n: g for n, g in rights.items() if n != f"the gradient of {names[i]}"}
            self.rows.append(self._compare(link, names[i], got.gradients[i], right, limit, note, others))

    def _reference_in_f64(self) -> None:
        assert self.reference is not None
        try:
            got = self.code.evaluate(self.values, "float64", self.cotangents)
            oracle = Oracle(self.reference, self.values, self.cotangents, "float64")
        except (Refused, Opaque) as error:
            self.rows.append(unchecked(self.model, "all", "reference", str(error)))
            return
        self._against(got, oracle, "reference")

    # Link 1.

    def _loss(self, code: Code, kind: str):
        def loss(values: Sequence[np.ndarray]) -> float:
            outputs = code.evaluate(values, kind, None).outputs
            return math.fsum(float(np.vdot(w, y)) for w, y in zip(self.cotangents, outputs))

        return loss

    def _gradients(self, code: Code, kind: str):
        def gradients(values: Sequence[np.ndarray]) -> list[np.ndarray]:
            told = code.evaluate(values, kind, self.cotangents).gradients
            return [np.zeros(x.shape) if g is None or g.shape != x.shape else g for g, x in zip(told, values)]

        return gradients

    def _differences(self, light: bool) -> None:
        """Of the code where it runs in float64, of the reference otherwise."""
        code = self.code if self.in_f64 else self.reference
        if code is None:
            return
        note = "" if code is self.code else "of the reference"
        try:
            told = code.evaluate(self.values, "float64", self.cotangents)
            differences = Differences(self._loss(code, "float64"), self.values, "float64", self.seed)
            slack = gradient_noise(self._gradients(code, "float64"), self.values, "float64", self.seed)
        except Refused as error:
            self.rows.append(unchecked(self.model, "all", "differences", f"raised {error}"))
            return
        gradients = [np.zeros(x.shape) if g is None else g for g, x in zip(told.gradients, self.values)]
        limits = caps([gradients[i] for i in self.code.wanted])
        for i, cap in zip(self.code.wanted, limits):
            if told.gradients[i] is not None and self.values[i].size:
                self.rows.append(self._differentiated(differences, i, gradients[i], cap, note, light, slack[i]))

    def _differentiated(
        self, differences: Differences, leaf: int, gradient: np.ndarray, cap: float, note: str, light: bool,
        slack: np.ndarray,
    ) -> Row:
        """A tensor's gradient against differences: every element of a small one; of a large one some, and all
        at once along random directions, which are halved until the element is found where they disagree."""
        name, size = self.code.names[leaf], gradient.size
        if gradient.shape != self.values[leaf].shape:
            text = f"gradient of shape {list(gradient.shape)}, needs {list(self.values[leaf].shape)}"
            return failed(self.model, name, "differences", text)
        chosen: set[int] = set(range(size))
        if size > ALL_UP_TO or light:
            chosen = {0, size - 1, *self.rng.integers(size, size=4 if light else DRAWN).tolist()}
            for _ in range(DIRECTIONS):
                chosen |= self._bisect(differences, leaf, gradient, cap, slack)
        right: np.ndarray = gradient.copy().reshape(-1)
        limit: np.ndarray = np.full(size, np.inf)
        for index in chosen:
            told = differences.element(leaf, index, cap)
            right[index], limit[index] = told.value, told.bound + slack.flat[index]
        checked = limit <= max(cap, 1e-300)
        if not np.all(np.isfinite(gradient)):
            checked |= ~np.isfinite(gradient.reshape(-1))
        # An error that exceeds its bound stands, however wide the bound.
        with np.errstate(invalid="ignore"):
            checked |= np.abs(gradient.reshape(-1) - right) > limit
        limit = np.where(checked, limit, np.inf).reshape(gradient.shape)
        right = np.where(checked, right, gradient.reshape(-1)).reshape(gradient.shape)
        row = compared(self.model, name, "differences", gradient, right, limit, note)
        row.elements = int(checked.sum())
        if row.verdict == "fail" and checked.sum() == size:
            others = dict(zip(self.code.names, self.values))
            others |= {f"the gradient of output {i}": c for i, c in enumerate(self.cotangents)}
            row.likeness = likeness(gradient, right, limit, self.sizes, others)
        elif row.verdict == "pass" and 2 * len(chosen) > 2 * row.elements + len(chosen):
            row.verdict = "unchecked"
            row.note = "most elements are at a kink, or their differences are too rough"
        return row

    def _bisect(
        self, differences: Differences, leaf: int, gradient: np.ndarray, cap: float, slack: np.ndarray
    ) -> set[int]:
        """Elements that disagree, by random directions over fewer and fewer of them."""
        direction = self.rng.normal(size=gradient.size)

        def disagrees(members: np.ndarray) -> bool:
            own = np.zeros(gradient.size)
            own[members] = direction[members]
            told: Derivative = differences.along(leaf, own.reshape(gradient.shape), cap)
            expected = math.fsum((gradient.reshape(-1) * own).tolist())
            return not abs(told.value - expected) <= told.bound + float(np.sum(slack.reshape(-1) * np.abs(own)))

        members = np.arange(gradient.size)
        if not disagrees(members):
            return set()
        while members.size > 1:
            left, right = np.array_split(members, 2)
            members = left if disagrees(left) else right
        return {int(members[0])}

    def _differences_in_own_type(self, first: Evaluation) -> None:
        """Without any reference: differences in the code's own type, as rough as they are."""
        if self.kind not in ("float32", "float64"):
            text = f"runs in {self.kind} alone: give reference="
            self.rows.append(unchecked(self.model, "all", "kernel", text))
            return
        try:
            differences = Differences(self._loss(self.code, "own"), self.values, self.kind, self.seed)
            slack = gradient_noise(self._gradients(self.code, "own"), self.values, self.kind, self.seed)
        except Refused as error:
            self.rows.append(unchecked(self.model, "all", "differences", f"raised {error}"))
            return
        for i in self.code.wanted:
            gradient = first.gradients[i]
            name = self.code.names[i]
            if gradient is None or gradient.shape != self.values[i].shape:
                got = "none" if gradient is None else f"shape {list(gradient.shape)}"
                self.rows.append(failed(self.model, name, "differences", f"gradient: {got}"))
                continue
            if not gradient.size:
                continue
            cap = MEANINGFUL / 10 * float(np.max(np.abs(gradient[np.isfinite(gradient)]), initial=0.0))
            note = f"in {self.kind}: rough; give reference="
            self.rows.append(self._differentiated(differences, i, gradient, cap, note, False, slack[i]))

    # Link 5.

    def _bits(self, first: Evaluation, light: bool) -> None:
        """Equal calls, equal bits; other calls in between; memory that nobody wrote; inputs left alone."""
        code = self.code
        if first.touched:
            self.rows.append(failed(self.model, ", ".join(first.touched), "bits", "changed by the call"))
        elsewhere = [
            to_kind(self.rng.permutation(x.reshape(-1)).reshape(x.shape), kind) if i in code.wanted else x
            for i, (x, kind) in enumerate(zip(self.values, code.kinds))
        ]
        calls = [("called again", self.values, False)] * (1 if light else REPEATS)
        calls += [("called after another input", self.values, False)]
        if code.poison:
            calls += [("in memory filled with NaN", self.values, True)]
        for what, values, poisoned in calls:
            if what == "called after another input":
                try:
                    other = code.evaluate(elsewhere, "own", self.cotangents)
                    names = [f"the gradient of the call before of {code.names[i]}" for i in code.wanted]
                    self.earlier = {n: g for n, i in zip(names, code.wanted) if (g := other.gradients[i]) is not None}
                except Refused:
                    continue
            try:
                again = code.evaluate(values, "own", self.cotangents, poisoned=poisoned)
            except Refused as error:
                self.rows.append(failed(self.model, "all", "bits", f"{what}: raised {error}"))
                continue
            row = self._same_bits(first, again, what)
            if row is not None:
                self.rows.append(row)
                return
        self.rows.append(
            Row(self.model, "all", "5 bits", "pass", 0.0, 0.0, 0.0, sum(x.size for x in self.values), note="calls repeat")
        )

    def _same_bits(self, first: Evaluation, again: Evaluation, what: str) -> Row | None:
        """The first tensor that differs."""
        pairs: list[tuple[str, np.ndarray | None, np.ndarray | None]] = []
        pairs += [("output", a, b) for a, b in zip(first.outputs, again.outputs)]
        pairs += [(self.code.names[i], first.gradients[i], again.gradients[i]) for i in self.code.wanted]
        for name, a, b in pairs:
            if a is None or b is None or (a.shape == b.shape and np.array_equal(a, b, equal_nan=True)):
                continue
            row = compared(self.model, name, "bits", b, a, np.zeros(a.shape))
            memory = what != "called again"
            row.note = f"{what}: {'reads memory that is stale or was never written' if memory else 'not deterministic'}"
            if not self.deterministic and np.all(np.isfinite(b)):
                row.verdict = "pass"
            others = {n: g for n, g in self.earlier.items() if n.endswith(f" of {name}")}
            row.likeness = likeness(b, a, np.zeros(a.shape), self.sizes, None, others) if memory else ""
            return row
        return None

    def _forms(self, first: Evaluation, oracle: Oracle | None) -> None:
        """The same numbers in other memory, and gradients of some inputs alone."""
        code = self.code
        plain = oracle or _Plain(first)
        for form in code.forms:
            self._form(f"inputs {form}", plain, self.values, self.cotangents, form=form)
        if code.subsets and len(code.wanted) > 1:
            subsets = [[i] for i in code.wanted]
            subsets += [[j for j in code.wanted if j != i] for i in code.wanted if len(code.wanted) > 2]
            for subset in subsets[:8]:
                names = ", ".join(code.names[i] for i in subset)
                self._form(f"only {names} requires a gradient", plain, self.values, self.cotangents, wanted=subset)
        if not code.broadcasts:
            return
        # A sum's gradient, which frameworks hand over as one number with strides of 0.
        ones = [np.ones(w.shape) for w in self.cotangents]
        for what, values, cotangents, form in [
            ("gradient of a sum", self.values, ones, "expanded"),
            ("inputs broadcast", [_broadcast(x) if i in code.wanted else x for i, x in enumerate(self.values)], self.cotangents, "broadcast"),
        ]:
            try:
                right = self._oracle(values, cotangents) or _Plain(code.evaluate(values, "own", cotangents))
            except Refused:
                continue
            self._form(what, right, values, cotangents, form=form)

    def _form(self, what: str, oracle, values, cotangents, **options) -> None:
        start = len(self.rows)
        try:
            got = self.code.evaluate(values, "own", cotangents, **options)
        except Refused as error:
            self.rows.append(failed(self.model, "all", "form", f"{what}: raised {error}"))
            return
        self._against(got, oracle, "form", what)
        rows, self.rows = self.rows[start:], self.rows[:start]
        if got.touched:
            rows.append(failed(self.model, ", ".join(got.touched), "form", f"{what}: changed by the call"))
        bad = [row for row in rows if row.verdict == "fail"]
        # One row where all is well.
        worst = max(rows, key=lambda row: (row.verdict != "unchecked", row.ratio if not math.isnan(row.ratio) else -1))
        self.rows += bad or [worst]


class _Plain:
    """In an oracle's place where there is none: the plain call."""

    def __init__(self, told: Evaluation):
        self.exact = told

    def gradient(self, leaf: int):
        told = self.exact.gradients[leaf]
        return (np.zeros(0) if told is None else told), None

    def output(self, index: int):
        return self.exact.outputs[index], None


def _broadcast(x: np.ndarray) -> np.ndarray:
    """The same along the longest axis."""
    if not x.ndim or not x.size:
        return x
    axis = int(np.argmax(x.shape))
    return np.broadcast_to(np.take(x, [0], axis), x.shape).copy()
