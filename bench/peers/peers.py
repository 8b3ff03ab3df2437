#!/usr/bin/env python3
"""Training steps of PyTorch, PyTorch Geometric and JAX on a workload that
`retrograd bench NAME --dump FILE` wrote.

    peers.py torch|pyg|jax WORKLOAD FILE SECONDS THREADS

Prints one JSON object: the loss of the initial weights without dropout, the losses before each of
the first three training steps (none where the workload has dropout), and the median and the least
time of a step.
"""

import json
import os
import sys
import time

import numpy as np
from safetensors import safe_open


def read(path):
    with safe_open(path, "numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        return tensors, file.metadata()


def has_dropout(workload):
    return workload.startswith("graph-")


# PyTorch ---------------------------------------------------------------------------------------


def torch_network(workload, tensors):
    """A network of the layers that the workload's name stands for, without its weights."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Kan(nn.Module):
        """As efficient-kan computes it, without its optional scale: the recursion of Cox and de
        Boor on a (samples, in, basis) tensor, then two matrix products."""

        def __init__(self, inputs, out, grid=5, degree=3):
            super().__init__()
            self.degree = degree
            knots = -1 + (torch.arange(grid + 2 * degree + 1) - degree) * (2 / grid)
            self.register_buffer("knots", knots.float(), persistent=False)
            self.base_weight = nn.Parameter(torch.empty(out, inputs))
            self.spline_weight = nn.Parameter(torch.empty(out, inputs, grid + degree))

        def bases(self, x):
            t, x = self.knots, x.unsqueeze(-1)
            b = ((x >= t[:-1]) & (x < t[1:])).to(x.dtype)
            for d in range(1, self.degree + 1):
                left = (x - t[: -(d + 1)]) / (t[d:-1] - t[: -(d + 1)]) * b[..., :-1]
                right = (t[d + 1 :] - x) / (t[d + 1 :] - t[1:-d]) * b[..., 1:]
                b = left + right
            return b

        def forward(self, x):
            base = F.linear(F.silu(x), self.base_weight)
            splines = self.bases(x).flatten(1)
            return base + F.linear(splines, self.spline_weight.flatten(1))

    class Unet(nn.Module):
        """Channels 32, 64, 128 with pooling between, 256 at the bottom, and back. The convolutions
        keep their numbers of the flat list of layers."""

        def __init__(self):
            super().__init__()
            sizes = {0: (1, 32), 3: (32, 64), 6: (64, 128), 9: (128, 256)}
            sizes |= {13: (384, 128), 17: (192, 64), 21: (96, 32), 23: (32, 1)}
            for number, (inputs, out) in sizes.items():
                self.add_module(str(number), nn.Conv2d(inputs, out, 3, padding=1))

        def forward(self, x):
            conv = lambda n, x: F.relu(self.get_submodule(str(n))(x))
            skips = []
            for n in (0, 3, 6):
                skips.append(conv(n, x))
                x = F.max_pool2d(skips[-1], 2)
            x = conv(9, x)
            for n in (13, 17, 21):
                x = F.interpolate(x, scale_factor=2, mode="nearest")
                x = conv(n, torch.cat([x, skips.pop()], 1))
            return self.get_submodule("23")(x)

    if workload == "unet-256":
        return Unet()
    kan = {int(n.split("/")[1].split(".")[0]): t.shape for n, t in tensors.items() if n.endswith("spline_weight")}
    if kan:
        return nn.Sequential(*(Kan(kan[i][1], kan[i][0]) for i in sorted(kan)))
    weights = {int(n.split("/")[1].split(".")[0]): t.shape for n, t in tensors.items() if n.endswith(".weight")}
    layers = []
    for i in range(max(weights) + 1):
        if i not in weights:
            layers.append(nn.GELU() if workload.startswith("mlp") else nn.ReLU())
        elif len(weights[i]) == 4:
            layers.append(nn.Conv2d(weights[i][1], weights[i][0], 3, padding=1))
        else:
            layers.append(nn.Linear(weights[i][1], weights[i][0]))
    return nn.Sequential(*layers)


def graph_parts(tensors):
    import torch

    edges = torch.tensor(tensors["batch/edges"].astype(np.int64))
    places = torch.tensor(tensors["batch/features"].astype(np.int64))
    values = torch.tensor(tensors["batch/values"])
    nodes = len(tensors["target/classes"])
    features = tensors["params/1.lin.weight"].shape[1]
    return edges, places, values, nodes, features


def sparse_gcn(tensors):
    """GCN with sparse features and a sparse, normalised adjacency, in PyTorch alone."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    edges, places, values, nodes, features = graph_parts(tensors)
    loops = torch.arange(nodes)
    source, target = (torch.cat([edge, loops]) for edge in edges)
    degree = torch.bincount(target, minlength=nodes).float()
    weight = (degree[source] * degree[target]).rsqrt()
    adjacency = torch.sparse_coo_tensor(torch.stack([target, source]), weight, (nodes, nodes))
    adjacency = adjacency.coalesce().to_sparse_csr()
    x = torch.sparse_coo_tensor(places, values, (nodes, features)).coalesce().to_sparse_csr()

    class Gcn(nn.Module):
        def __init__(self):
            super().__init__()
            hidden = tensors["params/1.bias"].shape[0]
            for n, (i, o) in {1: (features, hidden), 4: (hidden, 7)}.items():
                layer = nn.Module()
                layer.lin = nn.Linear(i, o, bias=False)
                layer.bias = nn.Parameter(torch.zeros(o))
                self.add_module(str(n), layer)

        def forward(self):
            first, second = (self.get_submodule(n) for n in ("1", "4"))
            v = F.dropout(x.values(), 0.5, self.training)
            dropped = torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), v, x.shape)
            h = torch.sparse.mm(adjacency, torch.sparse.mm(dropped, first.lin.weight.t()))
            h = F.dropout(F.relu(h + first.bias), 0.5, self.training)
            return torch.sparse.mm(adjacency, second.lin(h)) + second.bias

    return Gcn(), ()


def geometric(workload, tensors):
    """GCN and GAT as PyTorch Geometric's own examples build them: dense features, an edge index."""
    import torch
    from torch import nn
    from torch.nn import functional as F
    from torch_geometric.nn import GATConv, GCNConv

    edges, places, values, nodes, features = graph_parts(tensors)
    x = torch.zeros(nodes, features)
    x[places[0], places[1]] = values

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            if workload.startswith("graph-gcn"):
                hidden = tensors["params/1.bias"].shape[0]
                first, second = (GCNConv(i, o, cached=True) for i, o in ((features, hidden), (hidden, 7)))
                self.p, self.act = 0.5, F.relu
            else:
                first = GATConv(features, 8, heads=8, dropout=0.6)
                second = GATConv(64, 7, heads=1, concat=False, dropout=0.6)
                self.p, self.act = 0.6, F.elu
            self.add_module("1", first)
            self.add_module("4", second)

        def forward(self, x, edges):
            h = self.get_submodule("1")(F.dropout(x, self.p, self.training), edges)
            h = F.dropout(self.act(h), self.p, self.training)
            return self.get_submodule("4")(h, edges)

    return Net(), (x, edges)


def torch_automaton(tensors, metadata):
    """The automaton of `with_jax`, gate by gate in PyTorch."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    spec = json.loads(metadata["model"])
    batch, height, width = (int(n) for n in tensors["batch/shape"])
    channels, kernels, steps = spec["channels"], spec["kernels"], spec["steps"]
    wires = {n.removeprefix("buffers/wires."): torch.tensor(t.astype(np.int64)) for n, t in tensors.items() if "wires" in n}
    depth = {part: len(spec[part]) - 1 for part in ("perception", "update")}
    fire = tensors.get("batch/fire")
    fire = None if fire is None else torch.tensor(fire).reshape(steps, height, width) > 0
    mode = {"periodic": "circular", "zero": "constant"}[spec["boundary"]]
    table = torch.tensor(TABLE)

    class Automaton(nn.Module):
        def __init__(self):
            super().__init__()
            for name, values in tensors.items():
                if name.startswith("params/"):
                    module = self
                    *path, last = name.removeprefix("params/").split(".")
                    for part in path:
                        if part not in module._modules:
                            module.add_module(part, nn.Module())
                        module = module._modules[part]
                    module.register_parameter(last, nn.Parameter(torch.tensor(values)))

        def forward(self, state):
            c = {name: torch.softmax(logits, -1) @ table for name, logits in self.named_parameters()}
            gate = lambda c, a, b: c[..., 0] + c[..., 1] * a + c[..., 2] * b + c[..., 3] * (a * b)
            for step in range(steps):
                planes = state.permute(0, 3, 1, 2)
                around = F.pad(planes, (1, 1, 1, 1), mode=mode).permute(0, 2, 3, 1)
                x = torch.stack([around[:, i : i + height, j : j + width] for i in range(3) for j in range(3)], -1)
                x = x[..., None, :].expand(*x.shape[:4], kernels, 9)
                for layer in range(depth["perception"]):
                    w = wires[f"perception.{layer}"]
                    if spec.get("per_kernel_wiring", False):
                        index = torch.arange(kernels)[:, None]
                        a, b = x[..., index, w[:, 0]], x[..., index, w[:, 1]]
                    else:
                        a, b = x[..., w[0]], x[..., w[1]]
                    x = gate(c[f"perception.{layer}.logits"], a, b)
                seen = x.transpose(-1, -2).reshape(len(state), height, width, -1)
                x = torch.cat([state, seen], -1)
                for layer in range(depth["update"]):
                    w = wires[f"update.{layer}"]
                    x = gate(c[f"update.{layer}.logits"], x[..., w[0]], x[..., w[1]])
                state = x if fire is None else torch.where(fire[step][None, :, :, None], x, state)
            return state

    shape = (batch, height, width, channels)
    state = torch.tensor(tensors["batch/values"]).reshape(shape)
    target = torch.tensor(tensors["target/values"]).reshape(shape)
    weight = torch.tensor(tensors.get("target/weights", np.ones(state.numel(), np.float32))).reshape(shape)
    return Automaton(), state, target, weight


def torch_problem(peer, workload, tensors, metadata):
    """The model, what it is called with, and the loss of what comes out."""
    import torch
    from torch.nn import functional as F

    if workload.startswith("graph-"):
        model, args = geometric(workload, tensors) if peer == "pyg" else sparse_gcn(tensors)
    elif workload.startswith("logic-"):
        model, state, target, weight = torch_automaton(tensors, metadata)
        return model, (state,), lambda y, part=slice(None): (weight[part] * (y - target[part]) ** 2).sum()
    else:
        model = torch_network(workload, tensors)
        values = torch.tensor(tensors["batch/values"])
        first = min((n for n in tensors if n.startswith("params/")), key=lambda n: int(n.split("/")[1].split(".")[0]))
        if tensors[first].ndim == 4 or "cnn" in workload or "unet" in workload:
            images = 2 if workload in ("cnn-128", "cnn-1024") else 1
            side = int(round((len(values) / images) ** 0.5))
            args = (values.reshape(images, 1, side, side),)
        else:
            weight = "params/0.spline_weight" if "params/0.spline_weight" in tensors else "params/0.weight"
            args = (values.reshape(-1, tensors[weight].shape[1]),)

    if "target/classes" in tensors:
        classes = torch.tensor(tensors["target/classes"].astype(np.int64))
        if "target/weights" in tensors:
            mask = torch.tensor(tensors["target/weights"]) > 0
            loss = lambda y, part=slice(None): F.cross_entropy(y[mask], classes[mask])
        else:
            loss = lambda y, part=slice(None): F.cross_entropy(y, classes[part])
    else:
        target = torch.tensor(tensors["target/values"])
        target = target.reshape(len(args[0]), -1)
        loss = lambda y, part=slice(None): F.mse_loss(y, target[part].reshape(y.shape))
    return model, args, loss


def with_torch(peer, workload, tensors, metadata, threads):
    import torch

    torch.set_num_threads(threads)
    optimizer = json.loads(metadata["optimizer"])
    if peer == "pyg":
        import torch_geometric

        version = f"{torch_geometric.__version__} on torch {torch.__version__}"
    else:
        version = torch.__version__
    model, args, loss = torch_problem(peer, workload, tensors, metadata)
    state = {n.removeprefix("params/"): torch.tensor(t) for n, t in tensors.items() if n.startswith("params/")}

    def start(channels_last=False):
        model.load_state_dict(state)
        model.train()
        adam = torch.optim.Adam(
            model.parameters(), optimizer["lr"], optimizer["betas"], optimizer["eps"], optimizer["weight_decay"]
        )
        inputs = args
        if channels_last:
            model.to(memory_format=torch.channels_last)
            inputs = tuple(a.to(memory_format=torch.channels_last) for a in args)

        def step():
            adam.zero_grad(set_to_none=True)
            value = loss(model(*inputs))
            value.backward()
            adam.step()
            return float(value.detach())

        return step

    model.load_state_dict(state)
    model.eval()
    with torch.no_grad():
        inference = float(loss(model(*args)))
    losses = []
    if not has_dropout(workload):
        step = start()
        losses = [step() for _ in range(3)]
    note = ""
    step = start()
    if args and args[0].ndim == 4:
        # The layout of images that is faster here.
        trial = {}
        for last in (False, True):
            step = start(last)
            step()
            before = time.perf_counter()
            step()
            trial[last] = time.perf_counter() - before
        last = trial[True] < trial[False]
        note = "channels last" if last else "contiguous"
        if not last:
            model.to(memory_format=torch.contiguous_format)
        step = start(last)
    return version, inference, losses, step, note


# JAX -------------------------------------------------------------------------------------------

TABLE = np.array(
    [
        [0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, -1], [0, 1, 0, 0],
        [0, 0, 1, -1], [0, 0, 1, 0], [0, 1, 1, -2], [0, 1, 1, -1],
        [1, -1, -1, 1], [1, -1, -1, 2], [1, 0, -1, 0], [1, 0, -1, 1],
        [1, -1, 0, 0], [1, -1, 0, 1], [1, 0, 0, -1], [1, 0, 0, 0],
    ],
    dtype=np.float32,
)  # fmt: skip


def with_jax(workload, tensors, metadata, threads):
    """The automaton in bilinear form: of every gate only c = softmax(logits)·TABLE is used, and
    y = c0 + c1·a + c2·b + c3·a·b. One jitted function makes a whole training step."""
    import jax
    import jax.numpy as jnp

    spec = json.loads(metadata["model"])
    optimizer = json.loads(metadata["optimizer"])
    batch, height, width = (int(n) for n in tensors["batch/shape"])
    channels, kernels, steps = spec["channels"], spec["kernels"], spec["steps"]
    params = {n.removeprefix("params/"): jnp.array(t) for n, t in tensors.items() if n.startswith("params/")}
    wires = {n.removeprefix("buffers/wires."): t.astype(np.int32) for n, t in tensors.items() if "wires" in n}
    depth = {part: len(spec[part]) - 1 for part in ("perception", "update")}
    state = jnp.array(tensors["batch/values"]).reshape(batch, height, width, channels)
    target = jnp.array(tensors["target/values"]).reshape(state.shape)
    weight = jnp.array(tensors.get("target/weights", np.ones(state.size, np.float32))).reshape(state.shape)
    fire = tensors.get("batch/fire")
    fire = None if fire is None else jnp.array(fire).reshape(steps, height, width) > 0
    mode = {"periodic": "wrap", "zero": "constant"}[spec["boundary"]]
    per_kernel = spec.get("per_kernel_wiring", False)

    def coefficients(logits):
        return jax.nn.softmax(logits) @ TABLE

    def gate(c, a, b):
        return c[..., 0] + c[..., 1] * a + c[..., 2] * b + c[..., 3] * (a * b)

    def automaton(params, state):
        c = {name: coefficients(logits) for name, logits in params.items()}

        def step(state, fires):
            around = jnp.pad(state, ((0, 0), (1, 1), (1, 1), (0, 0)), mode=mode)
            x = jnp.stack(
                [around[:, i : i + height, j : j + width] for i in range(3) for j in range(3)], -1
            )  # (batch, y, x, channel, neighbour)
            x = jnp.broadcast_to(x[..., None, :], (*x.shape[:4], kernels, 9))
            for layer in range(depth["perception"]):
                w = wires[f"perception.{layer}"]
                if per_kernel:
                    index = jnp.arange(kernels)[:, None]
                    a, b = x[..., index, w[:, 0]], x[..., index, w[:, 1]]
                else:
                    a, b = x[..., w[0]], x[..., w[1]]
                x = gate(c[f"perception.{layer}.logits"], a, b)
            # Channel, output, kernel, the kernel fastest.
            seen = jnp.swapaxes(x, -1, -2).reshape(batch, height, width, -1)
            x = jnp.concatenate([state, seen], -1)
            for layer in range(depth["update"]):
                w = wires[f"update.{layer}"]
                x = gate(c[f"update.{layer}.logits"], x[..., w[0]], x[..., w[1]])
            if fires is not None:
                x = jnp.where(fires[None, :, :, None], x, state)
            return x, None

        return jax.lax.scan(step, state, fire, length=steps)[0]

    def loss(params, state):
        return jnp.sum(weight * (automaton(params, state) - target) ** 2)

    b1, b2 = optimizer["betas"]
    lr, eps, decay = optimizer["lr"], optimizer["eps"], optimizer["weight_decay"]
    clip = lambda g: jnp.clip(g, -100.0, 100.0)
    tree = jax.tree_util.tree_map

    @jax.jit
    def update(params, m, v, t, state):
        value, grads = jax.value_and_grad(loss)(params, state)
        grads = tree(clip, grads)
        m = tree(lambda m, g: b1 * m + (1 - b1) * g, m, grads)
        v = tree(lambda v, g: b2 * v + (1 - b2) * g * g, v, grads)
        bias1, bias2 = 1 - b1**t, 1 - b2**t
        move = lambda p, m, v: p * (1 - lr * decay) - lr / bias1 * m / (jnp.sqrt(v / bias2) + eps)
        return tree(move, params, m, v), m, v, value

    # In f64: through so many gates its f32 is off by some 1e-5, which would hide a mistake.
    with jax.enable_x64(True):
        wide = lambda tree: jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), tree)
        inference = float(loss(wide(params), wide(state)))
    zeros = tree(jnp.zeros_like, params)
    holder = [params, zeros, zeros, 0]

    def step():
        p, m, v, t = holder
        p, m, v, value = update(p, m, v, np.float32(t + 1), state)
        holder[:] = [p, m, v, t + 1]
        return float(value)

    losses = [step() for _ in range(3)]
    return jax.__version__, inference, losses, step, "jitted"


def main():
    peer, workload, path, seconds, threads = sys.argv[1:]
    seconds, threads = float(seconds), int(threads)
    tensors, metadata = read(path)
    if peer == "jax":
        version, inference, losses, step, note = with_jax(workload, tensors, metadata, threads)
    else:
        version, inference, losses, step, note = with_torch(peer, workload, tensors, metadata, threads)
    start = time.perf_counter()
    while time.perf_counter() - start < 0.3:
        step()
    times = []
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or len(times) < 5:
        before = time.perf_counter_ns()
        step()
        times.append(time.perf_counter_ns() - before)
    times.sort()
    print(
        json.dumps(
            {
                "peer": peer,
                "version": version,
                "workload": workload,
                "inference": inference,
                "losses": losses,
                "step_ns": times[len(times) // 2],
                "min_ns": times[0],
                "steps": len(times),
                "note": note,
            }
        )
    )


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    main()
