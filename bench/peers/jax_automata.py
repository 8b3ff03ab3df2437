"""Training steps of automata in JAX: of every gate only c = softmax(logits)·TABLE is used, and
y = c0 + c1·a + c2·b + c3·a·b. One jitted function makes a whole training step.

Two forms of the same: channels last, as papers' code has it, and planes, with channels first, so that a wire is a
whole plane of cells. (Products with matrices of zeros and ones instead of indices were slower than either.)"""

import jax
import jax.numpy as jnp
import numpy as np

from problem import TABLE, Automaton
from with_jax import VERSION, first_steps, stepper


def gate(c, a, b):
    return c[..., 0] + c[..., 1] * a + c[..., 2] * b + c[..., 3] * (a * b)


def neighbours(parts, state, axes):
    """The nine cells around each, in a list."""
    y, x = axes
    pad = [(0, 0)] * state.ndim
    pad[y] = pad[x] = (1, 1)
    around = jnp.pad(state, pad, mode="wrap" if parts.periodic else "constant")
    cut = lambda i, n, axis, a: jax.lax.slice_in_dim(a, i, i + n, axis=axis)
    return [cut(i, parts.height, y, cut(j, parts.width, x, around)) for i in range(3) for j in range(3)]


def channels_last(parts):
    def step(c, state):
        x = jnp.stack(neighbours(parts, state, (1, 2)), -1)
        x = jnp.broadcast_to(x[..., None, :], (*x.shape[:4], parts.kernels, 9))
        for layer in range(parts.depth["perception"]):
            w = parts.wires[f"perception.{layer}"]
            if parts.per_kernel:
                index = jnp.arange(parts.kernels)[:, None]
                a, b = x[..., index, w[:, 0]], x[..., index, w[:, 1]]
            else:
                a, b = x[..., w[0]], x[..., w[1]]
            x = gate(c[f"perception.{layer}.logits"], a, b)
        # Channel, output, kernel, the kernel fastest.
        seen = jnp.swapaxes(x, -1, -2).reshape(*state.shape[:3], -1)
        x = jnp.concatenate([state, seen], -1)
        for layer in range(parts.depth["update"]):
            w = parts.wires[f"update.{layer}"]
            x = gate(c[f"update.{layer}.logits"], x[..., w[0]], x[..., w[1]])
        return x

    return step


def planes(parts):
    """The state is (channel, board · y · x)."""
    wide = lambda c, x: c.reshape(*c.shape[:-1], *[1] * (x.ndim - c.ndim + 1), 4)

    def step(c, state):
        boards = state.reshape(-1, parts.batch, parts.height, parts.width)
        x = jnp.stack(neighbours(parts, boards, (2, 3))).reshape(9, *state.shape)
        x = jnp.broadcast_to(x, (parts.kernels, *x.shape))
        for layer in range(parts.depth["perception"]):
            w = parts.wires[f"perception.{layer}"]
            if parts.per_kernel:
                index = jnp.arange(parts.kernels)[:, None]
                a, b = x[index, w[:, 0]], x[index, w[:, 1]]
            else:
                a, b = x[:, w[0]], x[:, w[1]]
            x = gate(wide(c[f"perception.{layer}.logits"], a), a, b)
        seen = x.transpose(2, 1, 0, 3).reshape(-1, state.shape[1])
        x = jnp.concatenate([state, seen])
        for layer in range(parts.depth["update"]):
            w = parts.wires[f"update.{layer}"]
            a, b = x[w[0]], x[w[1]]
            x = gate(wide(c[f"update.{layer}.logits"], a), a, b)
        return x

    return step


def train(problem, mode, threads):
    parts = Automaton(problem)
    flat = "planes" in mode
    forward = planes(parts) if flat else channels_last(parts)
    # As the form has it: (channel, cell), or (board, y, x, channel).
    laid = lambda a: a.reshape(-1, parts.channels).T if flat else a
    state, target, weight = (jnp.array(laid(a)) for a in (parts.state, parts.target, parts.weight))
    fire = None
    if parts.fire is not None:
        fire = jnp.array(np.broadcast_to(parts.fire[:, None], (parts.steps, parts.batch, parts.height, parts.width)))
        fire = fire.reshape(parts.steps, 1, -1) if flat else fire[..., None]

    def loss(params, state):
        c = {name: jax.nn.softmax(logits) @ TABLE.astype(logits.dtype) for name, logits in params.items()}

        def once(state, fires):
            x = forward(c, state)
            return (x if fires is None else jnp.where(fires, x, state)), None

        y = jax.lax.scan(once, state, fire, length=parts.steps)[0]
        return jnp.sum(weight * (y - target) ** 2)

    params = {name: jnp.array(t) for name, t in problem.params.items()}
    step = stepper(problem, params, lambda params, _: loss(params, state), Automaton.CLIP)
    losses, compile_s = first_steps(step)
    # In f64, too: through so many gates f32 is off by some 1e-5, which would hide a mistake.
    with jax.enable_x64(True):
        double = lambda tree: jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), tree)
        inference = float(jax.jit(loss)(double(params), double(state)))
    return {"version": VERSION, "inference": inference, "losses": losses, "compile_s": compile_s}, step
