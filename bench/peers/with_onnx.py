"""Inference of one sample with ONNX Runtime, of what PyTorch's exporter makes of the network. It is exported by
another process, so that the memory of this one is ONNX Runtime's."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime

VERSION = onnxruntime.__version__


def export(workload, problem, out):
    import torch

    from problem import Problem
    from with_torch import torch_problem

    problem = Problem(workload, problem)
    model, (x,), _ = torch_problem(problem)
    model.load_state_dict({name: torch.tensor(t) for name, t in problem.params.items()})
    torch.onnx.export(model.eval(), (x,), out, dynamo=True, verbose=False)


def loss(problem, y):
    if "target/classes" in problem.tensors:
        classes = problem.tensors["target/classes"].astype(int)
        y = y.astype(np.float64)
        return float(np.mean(np.log(np.exp(y).sum(1)) - y[np.arange(len(y)), classes]))
    return float(np.mean((y.ravel() - problem.tensors["target/values"]) ** 2))


def infer(problem, mode, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1 if mode == "one thread" else threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        subprocess.run([sys.executable, __file__, problem.workload, problem.path, path], check=True, stdout=sys.stderr)
        before = time.perf_counter()
        session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
        seconds = time.perf_counter() - before
    name, x = session.get_inputs()[0].name, problem.batch()
    step = lambda: session.run(None, {name: x})[0]
    return {"version": VERSION, "inference": loss(problem, step()), "compile_s": seconds}, step


if __name__ == "__main__":
    export(*sys.argv[1:])
