"""What Python costs, and what it gains: `bench/side-by-side --python` builds the package and runs this.

    python.py [--quick] COMMAND

COMMAND is the `retrograd` command. Prints a Markdown page. Everything is measured alternately, and the
figures are medians.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import retrograd
import retrograd.torch

SIZES = [21, 64, 64, 24]
BATCH = 256


def say(text):
    print(text, file=sys.stderr, flush=True)


class EfficientKan(nn.Module):
    """A KAN layer as efficient-kan computes it, without its optional scale: the recursion of Cox and de
    Boor on a (samples, in, basis) tensor, then two matrix products."""

    def __init__(self, layer):
        super().__init__()
        knots = -1 + (torch.arange(12) - 3) * (2 / 5)
        self.register_buffer("knots", knots.float())
        self.base_weight = nn.Parameter(layer.base_weight.detach().clone().contiguous())
        self.spline_weight = nn.Parameter(layer.spline_weight.detach().clone().contiguous())

    def forward(self, x):
        t, y = self.knots, x.unsqueeze(-1)
        b = ((y >= t[:-1]) & (y < t[1:])).to(x.dtype)
        for d in range(1, 4):
            left = (y - t[: -(d + 1)]) / (t[d:-1] - t[: -(d + 1)]) * b[..., :-1]
            right = (t[d + 1 :] - y) / (t[d + 1 :] - t[1:-d]) * b[..., 1:]
            b = left + right
        base = F.linear(F.silu(x), self.base_weight)
        return base + F.linear(b.flatten(1), self.spline_weight.flatten(1))


def stepper(model, x, y, fused=None):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=fused)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def median_time(call, seconds):
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def torch_steps(rounds, seconds):
    """A training step with PyTorch's Adam: our module, and efficient-kan's form from the same weights, run eagerly and
    compiled with a fused Adam."""
    torch.manual_seed(0)
    ours = retrograd.torch.KAN(SIZES)
    theirs = lambda: nn.Sequential(*(EfficientKan(ours.get_submodule(str(i))) for i in range(len(SIZES) - 1)))
    x, y = torch.rand(BATCH, SIZES[0]) * 2 - 1, torch.rand(BATCH, SIZES[-1])
    eager, compiled = theirs(), torch.compile(theirs())
    steps = [stepper(ours, x, y), stepper(eager, x, y), stepper(compiled, x, y, fused=True)]
    # The same losses, or the times mean nothing.
    for _ in range(3):
        losses = [step().item() for step in steps]
        if max(losses) - min(losses) > 1e-4 * abs(losses[0]):
            raise RuntimeError(f"losses {losses} don't agree")
    times = [[] for _ in steps]
    for _ in range(rounds):
        for step, own in zip(steps, times):
            own.append(median_time(step, seconds))
    return [statistics.median(own) for own in times]


def whole_training(command, rounds, epochs):
    """Milliseconds a step of a whole training: from Python, and by the command."""
    here, there = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            run = retrograd.train("kan-poker", out=f"{folder}/here", epochs=epochs, verify=False, progress=False)
            here.append(run.summary["ms_per_step"])
            arguments = ["train", "kan-poker", "--epochs", str(epochs), "--no-verify", "-q"]
            subprocess.run([command, *arguments, "--out", f"{folder}/there"], check=True, capture_output=True)
            told = json.loads(Path(folder, "there", "summary.json").read_text())
            there.append(told["ms_per_step"])
    return statistics.median(here), statistics.median(there)


def small_call(rounds):
    """Microseconds of a small network's forward: from Python, and the Rust call alone."""
    network = retrograd.Network([4], [{"kind": "dense", "out": 8}, {"kind": "tanh"}, {"kind": "dense", "out": 1}])
    x = np.random.default_rng(0).random((1, 4)).astype(np.float32)
    here, there = [], []
    for _ in range(rounds):
        repeats = 20_000
        start = time.perf_counter()
        for _ in range(repeats):
            network(x)
        here.append((time.perf_counter() - start) / repeats * 1e6)
        there.append(network._engine.seconds_per_forward(network.params, x, repeats) * 1e6)
    return statistics.median(here), statistics.median(there)


def tables(samples):
    """Time and R² of a fit on a table, default settings but for pykan's shape."""
    from sklearn.datasets import make_friedman1
    from sklearn.neural_network import MLPRegressor

    x, y = make_friedman1(samples + 5000, n_features=10, noise=0.5, random_state=0)
    train, test = slice(0, samples), slice(samples, None)

    def fit(make):
        start = time.perf_counter()
        model = make().fit(x[train], y[train])
        return time.perf_counter() - start, model.score(x[test], y[test])

    yield "`KanRegressor()`", *fit(retrograd.KanRegressor)
    yield "`NetworkRegressor()`", *fit(retrograd.NetworkRegressor)
    yield "scikit-learn `MLPRegressor(max_iter=1000)`", *fit(lambda: MLPRegressor(max_iter=1000, random_state=0))
    try:
        from kan import KAN
    except ImportError as error:
        say(f"pykan is left out: {error}")
        return
    with tempfile.TemporaryDirectory() as folder:
        scale = lambda a: torch.tensor(a, dtype=torch.float32)
        goal = ((y - y[train].mean()) / y[train].std()).reshape(-1, 1)
        data = {
            "train_input": scale(2 * x[train] - 1),
            "train_label": scale(goal[train]),
            "test_input": scale(2 * x[test] - 1),
            "test_label": scale(goal[test]),
        }
        model = KAN(width=[10, 8, 1], grid=5, k=3, seed=0, ckpt_path=folder, auto_save=False)
        start = time.perf_counter()
        model.fit(data, opt="LBFGS", steps=50, lamb=0.0)
        seconds = time.perf_counter() - start
        with torch.no_grad():
            wrong = (model(data["test_input"]) - data["test_label"]).square().sum()
        spread = (data["test_label"] - data["test_label"].mean()).square().sum()
        yield "pykan `KAN([10, 8, 1])`, 50 steps of LBFGS, its default", seconds, float(1 - wrong / spread)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("command")
    options = parser.parse_args()
    rounds = 2 if options.quick else 7
    print("# Python\n")
    print(f"`bench/side-by-side --python`; PyTorch {torch.__version__}, {torch.get_num_threads()} threads,")
    print("everything alternately, medians.\n")
    say("a training step through PyTorch")
    ours, eager, compiled = torch_steps(rounds, 0.3 if options.quick else 1.5)
    print("| a training step with PyTorch's Adam, KAN 21-64-64-24, batch 256 | time |\n|---|---|")
    print(f"| `retrograd.torch.KAN` | {ours * 1e3:.3f} ms |")
    print(f"| efficient-kan's form in PyTorch, eager | {eager * 1e3:.3f} ms |")
    print(f"| the same compiled, with a fused Adam | {compiled * 1e3:.3f} ms |")
    print(f"| ratio of the faster | {min(eager, compiled) / ours:.1f} |\n")
    say("a whole training")
    here, there = whole_training(options.command, 1 if options.quick else 5, 1 if options.quick else 4)
    print("| a whole training inside our loop (`kan-poker`) | time of a step |\n|---|---|")
    print(f"| `retrograd.train` | {here:.4f} ms |\n| `retrograd train` | {there:.4f} ms |")
    print(f"| ratio | {here / there:.3f} |\n")
    say("a small call")
    here, there = small_call(rounds)
    print("| forward of a small network, one sample | time |\n|---|---|")
    print(f"| from Python | {here:.2f} µs |\n| the Rust call alone | {there:.2f} µs |")
    print(f"| difference | {here - there:.2f} µs |\n")
    say("tables")
    samples = 2_000 if options.quick else 20_000
    print(f"| fit on {samples:,} × 10 (Friedman's first function, noise 0.5) | seconds | R² on new rows |\n|---|---|---|")
    for name, seconds, score in tables(samples):
        print(f"| {name} | {seconds:.1f} | {score:.4f} |", flush=True)


main()
