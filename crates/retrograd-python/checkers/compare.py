#!/usr/bin/env python3
"""Gradient checkers side by side, on twenty wrong kernels and the twenty right ones (cases.py).

    python3 compare.py              prints the table of docs/verification.md
    python3 compare.py gather       those whose names have the word, with what each checker says

Every checker gets the same kernel in float32 and is used as its documentation says: `retrograd.verify.torch` with
the example's function and the plain definition; `torch.autograd.gradcheck` and `jax.test_util.check_grads` at the
usual sizes, with their defaults, and gradcheck with the wider tolerances that float32 needs as well.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from typing import Any, Callable

import jax
import jax.numpy as jnp
import numpy as np
import torch
from cases import CASES, Case
from jax.test_util import check_grads

import retrograd

f32 = np.float32


def _single(x: Any) -> Any:
    """As the kernel takes it: float32, in the memory that it is in."""
    return np.asarray(x, f32) if x.dtype.kind == "f" else x


def _several(told: Any) -> tuple:
    return told if isinstance(told, tuple) else (told,)


def in_torch(forward: Callable, backward: Callable) -> Callable:
    """The kernel as a function of tensors."""

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.inputs = [_single(t.detach().numpy()) for t in inputs]
            told = forward(*ctx.inputs)
            tensors = tuple(torch.from_numpy(np.array(y, f32)) for y in _several(told))
            return tensors if isinstance(told, tuple) else tensors[0]

        @staticmethod
        def backward(ctx, *d_outputs):
            told = backward(*ctx.inputs, *[_single(d.numpy()) for d in d_outputs])
            gradients = [None if g is None else torch.from_numpy(np.array(g, f32)) for g in _several(told)]
            return tuple(gradients)

    return Kernel.apply


def in_jax(forward: Callable, backward: Callable, example: tuple) -> Callable:
    """The kernel as a function of the arrays of floating numbers, for JAX."""
    real = [i for i, x in enumerate(example) if x.dtype.kind == "f"]
    told = forward(*[np.array(x) for x in example])
    shapes = jax.tree_util.tree_map(lambda y: jax.ShapeDtypeStruct(np.shape(y), f32), told)
    inputs = [jax.ShapeDtypeStruct(example[i].shape, f32) for i in real]

    def all_of(arrays):
        whole = [np.array(x) for x in example]
        for i, x in zip(real, arrays):
            whole[i] = np.array(x, f32)
        return whole

    def run(*arrays):
        return jax.tree_util.tree_map(lambda y: np.array(y, f32), forward(*all_of(arrays)))

    def run_back(arrays, seeds):
        gradients = _several(backward(*all_of(arrays), *[np.array(d, f32) for d in seeds]))
        gradients = [gradients[i] for i in real] if len(gradients) == len(example) else gradients
        return tuple(np.array(g, f32) for g in gradients)

    @jax.custom_vjp
    def kernel(*arrays):
        return jax.pure_callback(run, shapes, *arrays)

    kernel.defvjp(
        lambda *arrays: (kernel(*arrays), arrays),
        lambda arrays, seeds: jax.pure_callback(run_back, tuple(inputs), arrays, _several(seeds)),
    )
    return kernel


def _pair(case: Case, wrong: bool) -> tuple[Callable, Callable]:
    if not wrong:
        return case.forward, case.backward
    return case.wrong_forward or case.forward, case.wrong_backward or case.backward


def _usual(case: Case) -> tuple:
    return _several(case.example(**case.usual))


def ours(case: Case, wrong: bool) -> str:
    """What `retrograd.verify.torch` finds; empty where it passes."""

    def example(**sizes: int) -> tuple:
        return tuple(torch.from_numpy(x) for x in _several(case.example(**sizes)))

    # Its parameters are the sizes.
    example.__signature__ = inspect.signature(case.example)  # type: ignore[attr-defined]
    report = retrograd.verify.torch(in_torch(*_pair(case, wrong)), example, reference=case.plain, name=case.name)
    failed = [row for row in report.rows if row["verdict"] == "fail"]
    if not failed:
        return ""
    row = failed[0]
    return f"link {row['link']}: {row['tensor']} {row['at'] or ''} {row['likeness']} {row['note']}".strip()


def gradcheck(case: Case, wrong: bool, **tolerances: float) -> str:
    inputs = [torch.from_numpy(np.array(x)) for x in _usual(case)]
    inputs = [t.requires_grad_() if t.is_floating_point() else t for t in inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.autograd.gradcheck(in_torch(*_pair(case, wrong)), tuple(inputs), **tolerances)
        except Exception as error:  # whatever it says, it says no
            return str(error).splitlines()[0]
    return ""


def wider(case: Case, wrong: bool) -> str:
    return gradcheck(case, wrong, eps=1e-3, atol=1e-2, rtol=1e-2)


def of_jax(case: Case, wrong: bool) -> str:
    example = _usual(case)
    arrays = [jnp.asarray(x) for x in example if x.dtype.kind == "f"]
    try:
        check_grads(in_jax(*_pair(case, wrong), example), tuple(arrays), order=1, modes=("rev",))
    except Exception as error:
        return str(error).strip().splitlines()[0]
    return ""


CHECKERS: dict[str, Callable[[Case, bool], str]] = {
    "`retrograd.verify.torch`": ours,
    "`gradcheck`": gradcheck,
    "`gradcheck`, wider": wider,
    "`check_grads`": of_jax,
}


def main() -> None:
    # Empty examples are empty sums and means, and one thread is enough.
    warnings.simplefilter("ignore", RuntimeWarning)
    torch.set_num_threads(1)
    chosen = [case for case in CASES if all(word in case.name for word in sys.argv[1:])]
    names = list(CHECKERS)
    print("| kernel | mistake | source | " + " | ".join(names) + " |\n|---|---|---|" + "---|" * len(names))
    found, alarms = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for case in chosen:
        cells = []
        for name, checker in CHECKERS.items():
            caught, alarm = checker(case, True), checker(case, False)
            # What accuses the right kernel as well has found nothing.
            found[name] += bool(caught) and not alarm
            alarms[name] += bool(alarm)
            cells.append("accuses the right one, too" if alarm and caught else "found" if caught else "**missed**")
            if len(sys.argv) > 1:
                print(f"{name}\n    wrong: {caught or 'passes'}\n    right: {alarm or 'passes'}", file=sys.stderr)
        print(f"| {case.name} | {case.mistake} | {case.source} | " + " | ".join(cells) + " |", flush=True)
    print(f"| **found of {len(chosen)}** | | | " + " | ".join(f"**{found[n]}**" for n in names) + " |")
    print(f"| **right kernels accused** | | | " + " | ".join(f"**{alarms[n]}**" for n in names) + " |")


if __name__ == "__main__":
    main()
