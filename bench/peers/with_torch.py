"""Training steps and inference in PyTorch: networks of rows and images, and automata. Graphs are in
`torch_graphs.py`."""

import time

import torch
from torch import nn
from torch.nn import functional as F

from problem import TABLE, Automaton

VERSION = torch.__version__


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
        conv = lambda n, x: F.relu(self._modules[str(n)](x))
        skips = []
        for n in (0, 3, 6):
            skips.append(conv(n, x))
            x = F.max_pool2d(skips[-1], 2)
        x = conv(9, x)
        for n in (13, 17, 21):
            x = F.interpolate(x, scale_factor=2, mode="nearest")
            x = conv(n, torch.cat([x, skips.pop()], 1))
        return self._modules["23"](x)


def network(problem):
    """A network of the layers that the workload's weights stand for."""
    if problem.workload.startswith("unet"):
        return Unet()
    shapes = problem.layers()
    if any(name.endswith("spline_weight") for name in problem.params):
        return nn.Sequential(*(Kan(shape[1], shape[0]) for shape in shapes.values()))
    layers = []
    for i in range(max(shapes) + 1):
        if i not in shapes:
            layers.append(nn.GELU() if problem.family == "rows" else nn.ReLU())
        elif len(shapes[i]) == 4:
            layers.append(nn.Conv2d(shapes[i][1], shapes[i][0], 3, padding=1))
        else:
            layers.append(nn.Linear(shapes[i][1], shapes[i][0]))
    return nn.Sequential(*layers)


class TorchAutomaton(nn.Module):
    """Gate by gate: of every gate only c = softmax(logits)·TABLE is used, and
    y = c0 + c1·a + c2·b + c3·a·b. Channels are last, as in papers' code; as `planes` they are first, so that
    a wire is a whole plane of cells and reading it a copy. `compiled` compiles the automaton's step."""

    def __init__(self, problem, planes=False, compiled=None):
        super().__init__()
        parts = self.parts = Automaton(problem)
        self.planes = planes
        for name, values in problem.params.items():
            module = self
            *path, last = name.split(".")
            for part in path:
                if part not in module._modules:
                    module.add_module(part, nn.Module())
                module = module._modules[part]
            module.register_parameter(last, nn.Parameter(torch.tensor(values)))
        self.wires = {name: torch.tensor(w).long() for name, w in parts.wires.items()}
        self.fire = None if parts.fire is None else torch.tensor(parts.fire)
        self.mode = "circular" if parts.periodic else "constant"
        self.table = torch.tensor(TABLE)
        step = self.planes_step if planes else self.channels_step
        self.step = torch.compile(step) if compiled else step

    def channels_step(self, c, state, fires):
        parts, height, width = self.parts, self.parts.height, self.parts.width
        gate = lambda c, a, b: c[..., 0] + c[..., 1] * a + c[..., 2] * b + c[..., 3] * (a * b)
        around = F.pad(state.permute(0, 3, 1, 2), (1, 1, 1, 1), mode=self.mode).permute(0, 2, 3, 1)
        x = torch.stack([around[:, i : i + height, j : j + width] for i in range(3) for j in range(3)], -1)
        x = x[..., None, :].expand(*x.shape[:4], parts.kernels, 9)
        for layer in range(parts.depth["perception"]):
            w = self.wires[f"perception.{layer}"]
            if parts.per_kernel:
                index = torch.arange(parts.kernels)[:, None]
                a, b = x[..., index, w[:, 0]], x[..., index, w[:, 1]]
            else:
                a, b = x[..., w[0]], x[..., w[1]]
            x = gate(c[f"perception.{layer}.logits"], a, b)
        seen = x.transpose(-1, -2).reshape(len(state), height, width, -1)
        x = torch.cat([state, seen], -1)
        for layer in range(parts.depth["update"]):
            w = self.wires[f"update.{layer}"]
            x = gate(c[f"update.{layer}.logits"], x[..., w[0]], x[..., w[1]])
        return x if fires is None else torch.where(fires[None, :, :, None], x, state)

    def planes_step(self, c, state, fires):
        """The state is (channel, board, y, x)."""
        parts, height, width = self.parts, self.parts.height, self.parts.width

        def gate(c, a, b):
            c = c.reshape(*c.shape[:-1], *[1] * (a.ndim - c.ndim + 1), 4)
            return c[..., 0] + c[..., 1] * a + c[..., 2] * b + c[..., 3] * (a * b)

        around = F.pad(state, (1, 1, 1, 1), mode=self.mode)
        x = torch.stack([around[..., i : i + height, j : j + width] for i in range(3) for j in range(3)])
        # (kernel, neighbour, channel, board, y, x)
        x = x[None].expand(parts.kernels, *x.shape)
        for layer in range(parts.depth["perception"]):
            w = self.wires[f"perception.{layer}"]
            if parts.per_kernel:
                index = torch.arange(parts.kernels)[:, None]
                a, b = x[index, w[:, 0]], x[index, w[:, 1]]
            else:
                a, b = x[:, w[0]], x[:, w[1]]
            x = gate(c[f"perception.{layer}.logits"], a, b)
        # Channel, output, kernel, the kernel fastest.
        seen = x.permute(2, 1, 0, 3, 4, 5).reshape(-1, *state.shape[1:])
        x = torch.cat([state, seen])
        for layer in range(parts.depth["update"]):
            w = self.wires[f"update.{layer}"]
            x = gate(c[f"update.{layer}.logits"], x[w[0]], x[w[1]])
        return x if fires is None else torch.where(fires, x, state)

    def forward(self, state):
        c = {name: torch.softmax(logits, -1) @ self.table for name, logits in self.named_parameters()}
        if self.planes:
            state = state.permute(3, 0, 1, 2).contiguous()
        for step in range(self.parts.steps):
            state = self.step(c, state, None if self.fire is None else self.fire[step])
        return state.permute(1, 2, 3, 0) if self.planes else state


def torch_problem(problem, mode=""):
    """The model, what it is called with, and the loss of what comes out. The loss of a part of the batch
    takes which."""
    tensors = problem.tensors
    if problem.family == "logic":
        model = TorchAutomaton(problem, "planes" in mode, "compiled" in mode)
        parts = model.parts
        state, target, weight = (torch.tensor(t) for t in (parts.state, parts.target, parts.weight))
        return model, (state,), lambda y, part=slice(None): (weight[part] * (y - target[part]) ** 2).sum()
    model = network(problem)
    batch = torch.tensor(problem.batch())
    if "target/classes" in tensors:
        classes = torch.tensor(tensors["target/classes"]).long()
        return model, (batch,), lambda y, part=slice(None): F.cross_entropy(y, classes[part])
    target = torch.tensor(tensors["target/values"]).reshape(len(batch), -1)
    return model, (batch,), lambda y, part=slice(None): F.mse_loss(y, target[part].reshape(y.shape))


def compiler(mode):
    """What `torch.compile` is asked for, or none."""
    if "compiled" not in mode:
        return lambda function: function
    return lambda function: torch.compile(function, mode="max-autotune" if "max-autotune" in mode else None)


def adam(problem, model, mode):
    o = problem.optimizer
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[o["kind"]]
    fused = True if "plain Adam" not in mode else None
    return kind(model.parameters(), o["lr"], o["betas"], o["eps"], o["weight_decay"], fused=fused)


def start(problem, mode, made):
    """A training step from the initial weights, which gives the loss before it."""
    model, args, loss = made
    model.load_state_dict({name: torch.tensor(t) for name, t in problem.params.items()})
    model.train()
    if "channels last" in mode:
        model.to(memory_format=torch.channels_last)
        args = tuple(a.to(memory_format=torch.channels_last) for a in args)
    optimizer = adam(problem, model, mode)
    # An automaton compiles its own step: all of them in one graph take minutes.
    forward = lambda *inputs: loss(model(*inputs))
    forward = forward if problem.family == "logic" else compiler(mode)(forward)

    def step():
        optimizer.zero_grad(set_to_none=True)
        value = forward(*args)
        value.backward()
        if problem.family == "logic":
            nn.utils.clip_grad_value_(model.parameters(), Automaton.CLIP)
        optimizer.step()
        return float(value.detach())

    return step


def timed(function):
    before = time.perf_counter()
    result = function()
    return result, time.perf_counter() - before


def first_steps(step, compiled):
    """The losses before three steps, and what the first took beyond the third: compilation."""
    first, slow = timed(step)
    second = step()
    third, fast = timed(step)
    return [first, second, third], max(0.0, slow - fast) if compiled else None


def train(problem, mode, threads):
    torch.set_num_threads(threads)
    step = start(problem, mode, torch_problem(problem, mode))
    losses, compile_s = first_steps(step, "compiled" in mode)
    return {"version": VERSION, "losses": losses, "compile_s": compile_s}, step


def infer(problem, mode, threads):
    """Inference of the whole batch, which is one sample."""
    torch.set_num_threads(threads)
    if "frozen" in mode:
        import torch._inductor.config as inductor

        inductor.freezing = True
    model, args, loss = torch_problem(problem)
    model.load_state_dict({name: torch.tensor(t) for name, t in problem.params.items()})
    model.eval()
    if "channels last" in mode:
        model.to(memory_format=torch.channels_last)
        args = tuple(a.to(memory_format=torch.channels_last) for a in args)
    forward = compiler(mode)(model)
    with torch.no_grad():
        y, slow = timed(lambda: forward(*args))
        _, fast = timed(lambda: forward(*args))
        value = float(loss(y))

    def step():
        with torch.no_grad():
            forward(*args)

    compile_s = max(0.0, slow - fast) if "compiled" in mode else None
    return {"version": VERSION, "inference": value, "compile_s": compile_s}, step
