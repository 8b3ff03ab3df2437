"""Training steps and inference in JAX: networks of rows and images. One jitted function makes a whole
step; its arguments are donated. Graphs and automata are in files of their own."""

import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

VERSION = jax.__version__
GRID, DEGREE = 5, 3


def bases(x):
    """The recursion of Cox and de Boor, as efficient-kan has it."""
    t = np.float32(-1 + (np.arange(GRID + 2 * DEGREE + 1) - DEGREE) * (2 / GRID))
    x = x[..., None]
    b = ((x >= t[:-1]) & (x < t[1:])).astype(x.dtype)
    for d in range(1, DEGREE + 1):
        left = (x - t[: -(d + 1)]) / (t[d:-1] - t[: -(d + 1)]) * b[..., :-1]
        right = (t[d + 1 :] - x) / (t[d + 1 :] - t[1:-d]) * b[..., 1:]
        b = left + right
    return b


def rows(problem):
    """A function of weights and rows."""
    numbers = list(problem.layers())
    if any(name.endswith("spline_weight") for name in problem.params):

        def kan(params, x):
            for n in numbers:
                base, spline = params[f"{n}.base_weight"], params[f"{n}.spline_weight"]
                splines = bases(x).reshape(len(x), -1)
                x = jax.nn.silu(x) @ base.T + splines @ spline.reshape(len(spline), -1).T
            return x

        return kan

    def mlp(params, x):
        for n in numbers:
            x = x @ params[f"{n}.weight"].T + params[f"{n}.bias"]
            x = x if n == numbers[-1] else jax.nn.gelu(x, approximate=False)
        return x

    return mlp


def images(problem, last):
    """A function of weights and images whose channels are last, or first."""
    layout = ("NHWC", "HWIO", "NHWC") if last else ("NCHW", "OIHW", "NCHW")
    axis = -1 if last else 1
    numbers = list(problem.layers())

    def conv(params, n, x):
        bias = params[f"{n}.bias"]
        y = lax.conv_general_dilated(x, params[f"{n}.weight"], (1, 1), "SAME", dimension_numbers=layout)
        return y + (bias if last else bias[:, None, None])

    def plain(params, x):
        for n in numbers:
            x = conv(params, n, x)
            x = x if n == numbers[-1] else jax.nn.relu(x)
        return x

    # Pooling and repetition by reshaping: without windows, which XLA's gradients are slow with.
    def halve(x):
        n, a, b, c = x.shape
        if last:
            return x.reshape(n, a // 2, 2, b // 2, 2, c).max((2, 4))
        return x.reshape(n, a, b // 2, 2, c // 2, 2).max((3, 5))

    def double(x):
        return jnp.repeat(jnp.repeat(x, 2, 1 if last else 2), 2, 2 if last else 3)

    def unet(params, x):
        skips = []
        for n in numbers[:3]:
            skips.append(jax.nn.relu(conv(params, n, x)))
            x = halve(skips[-1])
        x = jax.nn.relu(conv(params, numbers[3], x))
        for n in numbers[4:7]:
            x = jax.nn.relu(conv(params, n, jnp.concatenate([double(x), skips.pop()], axis)))
        return conv(params, numbers[7], x)

    return unet if problem.workload.startswith("unet") else plain


def cross_entropy(y, classes):
    return -jnp.take_along_axis(jax.nn.log_softmax(y), classes[:, None], 1).mean()


def network(problem, mode):
    """Weights, a batch, the network's function, and the loss of what it gives."""
    last = "channels last" in mode
    params = {n: jnp.array(t.transpose(2, 3, 1, 0) if last and t.ndim == 4 else t) for n, t in problem.params.items()}
    x = problem.batch()
    if problem.family == "rows":
        function = rows(problem)
    else:
        function = images(problem, last)
        x = x.transpose(0, 2, 3, 1) if last else x
    if "target/classes" in problem.tensors:
        classes = jnp.array(problem.tensors["target/classes"].astype(np.int32))
        return params, jnp.array(x), function, lambda y: cross_entropy(y, classes)
    # One channel: its place is all the same.
    target = jnp.array(problem.tensors["target/values"])
    return params, jnp.array(x), function, lambda y: ((y.reshape(-1) - target) ** 2).mean()


def stepper(problem, params, loss, clip=None):
    """A training step with Adam or AdamW, which gives the loss before it: `loss` takes weights and a key."""
    o = problem.optimizer
    (b1, b2), lr, eps, decay = o["betas"], o["lr"], o["eps"], o["weight_decay"]
    decoupled = o["kind"] == "adamw"
    tree = jax.tree.map

    def update(params, m, v, t, key):
        value, grads = jax.value_and_grad(loss)(params, key)
        if clip is not None:
            grads = tree(lambda g: jnp.clip(g, -clip, clip), grads)
        if decay and not decoupled:
            grads = tree(lambda g, p: g + decay * p, grads, params)
        m = tree(lambda m, g: b1 * m + (1 - b1) * g, m, grads)
        v = tree(lambda v, g: b2 * v + (1 - b2) * g * g, v, grads)
        bias1, bias2 = 1 - b1**t, 1 - b2**t
        kept = 1 - lr * decay if decoupled else 1.0
        move = lambda p, m, v: p * kept - lr / bias1 * m / (jnp.sqrt(v / bias2) + eps)
        return tree(move, params, m, v), m, v, value

    update = jax.jit(update, donate_argnums=(0, 1, 2))
    zeros = lambda: tree(jnp.zeros_like, params)
    holder = [tree(jnp.copy, params), zeros(), zeros(), 0]
    keys = jax.random.key(0)

    def step():
        p, m, v, t = holder
        key = jax.random.fold_in(keys, t) if problem.has_dropout else None
        p, m, v, value = update(p, m, v, np.float32(t + 1), key)
        holder[:] = [p, m, v, t + 1]
        return float(value)

    return step


def first_steps(step):
    """The losses before three steps, and what the first took beyond the third: compilation."""
    values, times = [], []
    for _ in range(3):
        before = time.perf_counter()
        values.append(step())
        times.append(time.perf_counter() - before)
    return values, max(0.0, times[0] - times[2])


def train(problem, mode, threads):
    params, x, function, loss = network(problem, mode)
    step = stepper(problem, params, lambda params, _: loss(function(params, x)))
    losses, compile_s = first_steps(step)
    return {"version": VERSION, "losses": losses, "compile_s": compile_s}, step


def infer(problem, mode, threads):
    params, x, function, loss = network(problem, mode)
    forward = jax.jit(function)
    step = lambda: jax.block_until_ready(forward(params, x))
    _, compile_s = first_steps(step)
    return {"version": VERSION, "inference": float(loss(step())), "compile_s": compile_s}, step
