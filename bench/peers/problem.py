"""A workload that `retrograd bench NAME --dump FILE` wrote: initial weights, a batch, targets, losses."""

import json

import numpy as np
from safetensors import safe_open


class Problem:
    def __init__(self, workload, path):
        self.workload, self.path = workload, path
        with safe_open(path, "numpy") as file:
            self.tensors = {name: file.get_tensor(name) for name in file.keys()}
            self.metadata = file.metadata()
        self.optimizer = json.loads(self.metadata["optimizer"])
        self.params = {n.removeprefix("params/"): t for n, t in self.tensors.items() if n.startswith("params/")}

    @property
    def trains(self):
        """Whether training steps are timed; inference of one sample otherwise."""
        return not self.workload.endswith(("-forward", "-frozen-f32"))

    @property
    def family(self):
        """rows, images, graph or logic."""
        if self.workload.startswith(("graph-", "logic-")):
            return self.workload.split("-")[0]
        return "images" if any(t.ndim == 4 for t in self.params.values()) else "rows"

    @property
    def has_dropout(self):
        return self.family == "graph"

    def layers(self):
        """The numbers of the layers that have weights, in order, and the shape of the largest."""
        shapes = {}
        for name, tensor in self.params.items():
            number = int(name.split(".")[0])
            shapes[number] = max(shapes.get(number, ()), tensor.shape, key=len)
        return dict(sorted(shapes.items()))

    def batch(self):
        """Rows of features, or square images of one channel: two of them, or one."""
        values = self.tensors["batch/values"]
        if self.family == "rows":
            return values.reshape(-1, next(iter(self.layers().values()))[1])
        images = next(n for n in (1, 2) if int((len(values) / n) ** 0.5) ** 2 * n == len(values))
        side = int((len(values) / images) ** 0.5)
        return values.reshape(images, 1, side, side)


class Graph:
    """A graph with sparse features: numbers of nodes, edges with loops, and what a GCN weighs them with."""

    def __init__(self, problem):
        tensors = problem.tensors
        whole = lambda name: tensors[name].astype(np.int64)
        self.edges = whole("batch/edges")
        self.rows, self.columns = whole("batch/features")
        self.values = tensors["batch/values"]
        self.classes = whole("target/classes")
        self.mask = tensors["target/weights"] > 0
        self.nodes = len(self.classes)
        self.features = problem.params["1.lin.weight"].shape[1]
        loops = np.arange(self.nodes)
        source, target = (np.concatenate([edge, loops]) for edge in self.edges)
        # By target, so that sums over neighbours read in order.
        order = np.argsort(target, kind="stable")
        self.source, self.target = source[order], target[order]
        degree = np.bincount(self.target, minlength=self.nodes).astype(np.float32)
        self.weight = 1 / np.sqrt(degree[self.source] * degree[self.target])

    def dense(self):
        x = np.zeros((self.nodes, self.features), np.float32)
        x[self.rows, self.columns] = self.values
        return x


# Of a gate's sixteen functions, in the order of their numbers: c0 + c1·a + c2·b + c3·a·b.
TABLE = np.array(
    [
        [0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, -1], [0, 1, 0, 0],
        [0, 0, 1, -1], [0, 0, 1, 0], [0, 1, 1, -2], [0, 1, 1, -1],
        [1, -1, -1, 1], [1, -1, -1, 2], [1, 0, -1, 0], [1, 0, -1, 1],
        [1, -1, 0, 0], [1, -1, 0, 1], [1, 0, 0, -1], [1, 0, 0, 0],
    ],
    dtype=np.float32,
)  # fmt: skip


class Automaton:
    """The parts of an automaton. Gradients are clipped to ±100."""

    CLIP = 100.0

    def __init__(self, problem):
        tensors = problem.tensors
        spec = json.loads(problem.metadata["model"])
        self.batch, self.height, self.width = (int(n) for n in tensors["batch/shape"])
        self.channels, self.kernels, self.steps = spec["channels"], spec["kernels"], spec["steps"]
        self.wires = {n.removeprefix("buffers/wires."): t.astype(np.int32) for n, t in tensors.items() if "wires" in n}
        self.depth = {part: len(spec[part]) - 1 for part in ("perception", "update")}
        self.periodic = spec["boundary"] == "periodic"
        self.per_kernel = spec.get("per_kernel_wiring", False)
        shape = (self.batch, self.height, self.width, self.channels)
        self.state = tensors["batch/values"].reshape(shape)
        self.target = tensors["target/values"].reshape(shape)
        weights = tensors.get("target/weights", np.ones(self.state.size, np.float32))
        self.weight = weights.reshape(shape)
        fire = tensors.get("batch/fire")
        self.fire = None if fire is None else fire.reshape(self.steps, self.height, self.width) > 0
