"""Bundles of every family that PyTorch wrote come out the same when they are made anew (python/anew.py)."""

import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

SOURCE = pathlib.Path(os.environ["RETROGRAD_SOURCE"])
NAMES = ["mlp", "kan_2_5_1", "kan_free_knots", "graph_gcn", "dag_tanh", "logic_life_small", "logic_async_small"]


def anew(*arguments):
    command = [sys.executable, str(SOURCE / "python" / "anew.py"), *map(str, arguments)]
    options = {"capture_output": True, "text": True, "timeout": 300}
    return subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, **options)


def bundle(name):
    return SOURCE / "crates" / "retrograd" / "tests" / "reference" / f"{name}.safetensors"


def test_bundles_of_every_family_are_made_anew_the_same():
    told = anew("--check", *map(bundle, NAMES))
    assert told.returncode == 0, told.stdout + told.stderr
    assert sum(line.endswith("the same") for line in told.stdout.splitlines()) == len(NAMES), told.stdout


def test_a_bundle_that_differs_is_named_and_mended(tmp_path):
    import safetensors

    file = tmp_path / "dag_tanh.safetensors"
    shutil.copy(bundle("dag_tanh"), file)
    with safetensors.safe_open(file, "np") as opened:
        metadata = opened.metadata()
    tensors = load_file(file)
    tensors["grad/bias"] = tensors["grad/bias"] * np.float64(1 + 1e-8)
    save_file(tensors, file, metadata)
    told = anew("--check", file)
    assert told.returncode == 1 and "grad/bias: off by" in told.stdout, told.stdout + told.stderr
    assert anew(file).returncode == 0
    assert anew("--check", file).returncode == 0
