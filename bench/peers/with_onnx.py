"""Inference of one sample with ONNX Runtime, of what PyTorch's exporter makes of the network."""

import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from with_torch import timed, torch_problem

VERSION = f"{onnxruntime.__version__} (exported by torch {torch.__version__})"


def infer(problem, mode, threads):
    model, (x,), loss = torch_problem(problem)
    model.load_state_dict({name: torch.tensor(t) for name, t in problem.params.items()})
    model.eval()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1 if mode == "one thread" else threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        torch.onnx.export(model, (x,), path, dynamo=True, verbose=False)
        session, seconds = timed(lambda: onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"]))
    name, x = session.get_inputs()[0].name, np.asarray(x)
    step = lambda: session.run(None, {name: x})[0]
    value = float(loss(torch.tensor(step())))
    return {"version": VERSION, "inference": value, "compile_s": seconds}, step
