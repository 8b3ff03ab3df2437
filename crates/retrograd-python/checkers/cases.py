"""Twenty mistakes in backward passes as other projects had them, written anew as small kernels in float32 on the
CPU, each beside the right kernel, a plain definition in PyTorch, and an example of every size.

A kernel is a pair of functions over NumPy arrays that compute in float32 whatever they are given. `usual` are the
sizes of an ordinary unit test. The sources are public issues and pull requests; no code is theirs.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np
import torch
from torch.nn import functional as F

f32 = np.float32


@dataclass
class Case:
    """A kernel, what was wrong with it, and where."""

    name: str
    source: str
    mistake: str
    forward: Callable[..., Any]
    backward: Callable[..., Any]
    plain: Callable[..., Any]
    example: Callable[..., Any]
    usual: dict[str, int]
    wrong_forward: Callable[..., Any] | None = None
    wrong_backward: Callable[..., Any] | None = None


def _normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(f32)


def _raw(x: np.ndarray) -> np.ndarray:
    """The memory from the array's first element on, as if the array were contiguous (and again from its start where
    there is less of it)."""
    _, end = np.lib.array_utils.byte_bounds(x)
    count = max(1, (end - x.__array_interface__["data"][0]) // x.itemsize)
    flat = np.lib.stride_tricks.as_strided(x, (count,), (x.itemsize,))
    return np.resize(flat, x.shape)


def _bf16(x: np.ndarray) -> np.ndarray:
    return torch.from_numpy(np.array(x, dtype=f32)).bfloat16().float().numpy()


def _softmax(s: np.ndarray) -> np.ndarray:
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# Attention: (queries, d), (keys, d), (keys, d).


def _mask(queries: int, keys: int, offset: int) -> np.ndarray:
    return np.where(np.arange(keys)[None] > np.arange(queries)[:, None] + offset, f32(-np.inf), f32(0))


def _attention(q, k, v, mask):
    scale = f32(1 / np.sqrt(q.shape[-1]))
    return _softmax(q @ k.T * scale + mask) @ v


def _attention_backward(q, k, v, d_y, mask):
    scale = f32(1 / np.sqrt(q.shape[-1]))
    p = _softmax(q @ k.T * scale + mask)
    d_p = d_y @ v.T
    d_s = p * (d_p - (p * d_p).sum(-1, keepdims=True)) * scale
    return d_s @ k, d_s.T @ q, p.T @ d_y


def _full(q, k):
    return _mask(len(q), len(k), len(k))


def _corner(q, k):
    return _mask(len(q), len(k), len(k) - len(q))


causal_ignored = Case(
    "fused attention",
    "triton-lang/triton #4541",
    "backward takes the causal mask where forward has none",
    lambda q, k, v: _attention(q, k, v, _full(q, k)),
    lambda q, k, v, d: _attention_backward(q, k, v, d, _full(q, k)),
    lambda q, k, v: torch.softmax(q @ k.T / q.shape[-1] ** 0.5, -1) @ v,
    lambda n=33, d=17: tuple(_normal(n, d, seed=s) for s in range(3)),
    {"n": 4, "d": 8},
    wrong_backward=lambda q, k, v, d: _attention_backward(q, k, v, d, _mask(len(q), len(k), 0)),
)

cross_alignment = Case(
    "causal cross-attention",
    "xlite-dev/ffpa-attn #300",
    "backward aligns the mask at the top left, forward at the bottom right",
    lambda q, k, v: _attention(q, k, v, _corner(q, k)),
    lambda q, k, v, d: _attention_backward(q, k, v, d, _corner(q, k)),
    lambda q, k, v: torch.softmax(
        q @ k.T / q.shape[-1] ** 0.5 + torch.triu(torch.full((len(q), len(k)), -torch.inf, dtype=q.dtype), len(k) - len(q) + 1), -1
    )
    @ v,
    lambda n=17, more=9, d=8: (_normal(n, d), _normal(n + more, d, seed=1), _normal(n + more, d, seed=2)),
    {"n": 4, "more": 0, "d": 8},
    wrong_backward=lambda q, k, v, d: _attention_backward(q, k, v, d, _mask(len(q), len(k), 0)),
)


def _grouped(q, k, v):
    """(groups, share, n, d) queries over (groups, n, d) keys."""
    s = np.einsum("gsnd,gmd->gsnm", q, k) * f32(1 / np.sqrt(q.shape[-1]))
    return np.einsum("gsnm,gmd->gsnd", _softmax(s), v)


def _grouped_backward(q, k, v, d_y, swapped=False):
    scale = f32(1 / np.sqrt(q.shape[-1]))
    p = _softmax(np.einsum("gsnd,gmd->gsnm", q, k) * scale)
    d_p = np.einsum("gsnd,gmd->gsnm", d_y, v)
    d_s = p * (d_p - (p * d_p).sum(-1, keepdims=True)) * scale
    d_q = np.einsum("gsnm,gmd->gsnd", d_s, k)
    each_k, each_v = np.einsum("gsnm,gsnd->gsmd", d_s, q), np.einsum("gsnm,gsnd->gsmd", p, d_y)
    groups, share = q.shape[:2]
    d_k, d_v = np.zeros_like(k), np.zeros_like(v)
    for head in range(groups * share):
        group = head % share % groups if swapped and groups != share else head // share
        d_k[group] += each_k[head // share, head % share]
        d_v[group] += each_v[head // share, head % share]
    return d_q, d_k, d_v


grouped_heads = Case(
    "grouped-query attention",
    "XunhaoLai/native-sparse-attention-triton #27",
    "heads are split by the wrong count: right only where both counts are equal",
    _grouped,
    _grouped_backward,
    lambda q, k, v: torch.softmax(q @ k[:, None].mT / q.shape[-1] ** 0.5, -1) @ v[:, None],
    lambda groups=3, share=4, n=9: (_normal(groups, share, n, 5), _normal(groups, n, 5, seed=1), _normal(groups, n, 5, seed=2)),
    {"groups": 2, "share": 2, "n": 4},
    wrong_backward=lambda q, k, v, d: _grouped_backward(q, k, v, d, swapped=True),
)

# Elementwise.


def _silu_backward(x, d_y):
    s = 1 / (1 + np.exp(-x))
    return d_y * s * (1 + x * (1 - s))


strided_gradient = Case(
    "fused SiLU",
    "Dao-AILab/flash-attention #355",
    "backward reads the output's gradient as if it were contiguous",
    lambda x: x / (1 + np.exp(-x)),
    _silu_backward,
    F.silu,
    lambda n=65, d=33: _normal(n, d),
    {"n": 4, "d": 8},
    wrong_backward=lambda x, d_y: _silu_backward(x, _raw(d_y)),
)


def _gelu_backward(x, d_y):
    s = 1 / (1 + np.exp(f32(-1.702) * x))
    return d_y * (s + f32(1.702) * x * s * (1 - s))


def _tanh_gelu_backward(x, d_y):
    a, b = f32(np.sqrt(2 / np.pi)), f32(0.044715)
    t = np.tanh(a * (x + b * x**3))
    return d_y * (f32(0.5) * (1 + t) + f32(0.5) * x * (1 - t * t) * a * (1 + 3 * b * x * x))


gelu_mismatch = Case(
    "GELU by a sigmoid",
    "harvard-edge/cs249r_book #1399",
    "backward is the derivative of another approximation",
    lambda x: x / (1 + np.exp(f32(-1.702) * x)),
    _gelu_backward,
    lambda x: x * torch.sigmoid(1.702 * x),
    lambda n=129: _normal(n),
    {"n": 8},
    wrong_backward=_tanh_gelu_backward,
)

rough_tanh = Case(
    "tanh",
    "tenstorrent/tt-metal #55349",
    "the derivative comes from a polynomial that is good to three digits",
    np.tanh,
    lambda x, d_y: d_y * (1 - np.tanh(x) ** 2),
    torch.tanh,
    lambda n=129: _normal(n),
    {"n": 8},
    wrong_backward=lambda x, d_y: d_y * (1 - np.tanh(x) ** 2) * (1 - f32(8e-4) * np.cos(3 * x)),
)

# Norms.


def _layer_norm(x, w):
    m = x.mean(-1, keepdims=True)
    return (x - m) / np.sqrt(((x - m) ** 2).mean(-1, keepdims=True) + f32(1e-5)) * w


def _layer_norm_rows(x, w, d_y):
    """Over the rows of matrices; w is as long as a row."""
    m = x.mean(-1, keepdims=True)
    r = 1 / np.sqrt(((x - m) ** 2).mean(-1, keepdims=True) + f32(1e-5))
    h, g = (x - m) * r, d_y * w
    d_x = r * (g - g.mean(-1, keepdims=True) - h * (g * h).mean(-1, keepdims=True))
    return d_x, (d_y * h).sum(0)


def _layer_norm_backward(x, w, d_y):
    d = x.shape[-1]
    d_x, d_w = _layer_norm_rows(x.reshape(-1, d), w, d_y.reshape(-1, d))
    return d_x.reshape(x.shape), d_w


def _layer_norm_as_matrix(x, w, d_y):
    rows = x.shape[0]
    wide = np.tile(w, x.size // rows // w.size)
    d_x, d_w = _layer_norm_rows(x.reshape(rows, -1), wide, d_y.reshape(rows, -1))
    return d_x.reshape(x.shape), d_w[: w.size]


norm_of_rank_3 = Case(
    "layer norm",
    "flagos-ai/FlagGems #5392",
    "backward takes the first axis for the rows: right for matrices alone",
    _layer_norm,
    _layer_norm_backward,
    lambda x, w: F.layer_norm(x, (x.shape[-1],), w, eps=1e-5),
    lambda batch=3, time=9, d=33: (_normal(batch, time, d), _normal(d, seed=1)),
    {"batch": 4, "time": 1, "d": 8},
    wrong_backward=_layer_norm_as_matrix,
)


def _rms_norm(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + f32(1e-6)) * w


def _rms_norm_backward(x, w, d_y, total=lambda t: t.sum(0)):
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + f32(1e-6))
    h, g = x * r, d_y * w
    return r * (g - h * (g * h).mean(-1, keepdims=True)), total(d_y * h)


def _sum_in_bf16(terms):
    total = np.zeros(terms.shape[1:], f32)
    for row in _bf16(terms):
        total = _bf16(total + row)
    return total


sum_in_bf16 = Case(
    "RMS norm",
    "linkedin/Liger-Kernel #950",
    "the weight's gradient is summed in bfloat16",
    _rms_norm,
    _rms_norm_backward,
    lambda x, w: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w,
    lambda n=65, d=33: (_normal(n, d), _normal(d, seed=1)),
    {"n": 4, "d": 8},
    wrong_backward=lambda x, w, d_y: _rms_norm_backward(x, w, d_y, _sum_in_bf16),
)


def _batch_norm(x, w, b):
    m, v = x.mean(0), x.var(0)
    return (x - m) / np.sqrt(v + f32(1e-5)) * w + b


def _batch_norm_backward(x, w, b, d_y, scaled=True):
    r = 1 / np.sqrt(x.var(0) + f32(1e-5))
    h = (x - x.mean(0)) * r
    g = d_y * w if scaled else d_y
    return r * (g - g.mean(0) - h * (g * h).mean(0)), (d_y * h).sum(0), d_y.sum(0)


norm_without_scale = Case(
    "batch norm",
    "denizyuret/Knet.jl #288",
    "the input's gradient leaves out the scale",
    _batch_norm,
    _batch_norm_backward,
    lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True, eps=1e-5),
    lambda n=33, d=17: (_normal(n + 3, d), _normal(d, seed=1) + 1, _normal(d, seed=2)),
    {"n": 4, "d": 8},
    wrong_backward=lambda x, w, b, d_y: _batch_norm_backward(x, w, b, d_y, scaled=False),
)

# Indices.


def _places(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, max(n, 1), max(2 * n - 3, n))


def _gather_backward(x, index, d_y, add=True):
    d_x = np.zeros_like(x)
    if add:
        np.add.at(d_x, index, d_y)
    else:
        d_x[index] = d_y
    return d_x, None


repeated_indices = Case(
    "gather",
    "pytorch/pytorch #1631",
    "repeated indices overwrite each other's gradient",
    lambda x, index: x[index],
    _gather_backward,
    lambda x, index: x[index],
    lambda n=33, d=7: (_normal(n, d), _places(n)),
    {"n": 4, "d": 8},
    wrong_backward=lambda x, index, d_y: _gather_backward(x, index, d_y, add=False),
)


class _Pool:
    """Memory that is handed out as it was left."""

    def __init__(self) -> None:
        self.last = np.zeros(0, f32)

    def empty(self, shape) -> np.ndarray:
        return np.resize(self.last, shape).astype(f32) if self.last.size else np.zeros(shape, f32)


_pool = _Pool()
KEPT = 5


def _truncated(x):
    _pool.last = np.array(x, dtype=f32)
    return x[:KEPT] * 2


def _truncated_backward(x, d_y, empty=np.zeros):
    d_x = empty(x.shape).astype(f32)
    d_x[:KEPT] = d_y * 2
    return d_x


never_written = Case(
    "packing of segments",
    "pytorch/FBGEMM #5754",
    "rows beyond the longest segment are never written",
    _truncated,
    _truncated_backward,
    lambda x: x[:KEPT] * 2,
    lambda n=9, d=5: _normal(n, d),
    {"n": 4, "d": 8},
    wrong_backward=lambda x, d_y: _truncated_backward(x, d_y, _pool.empty),
)

# Convolutions and pooling.


def _windows(x, width):
    """(batch, channels, length) as (batch, channels, positions, width)."""
    return np.lib.stride_tricks.sliding_window_view(x, width, -1)


def _grouped_conv(x, w):
    """Two groups of channels; w is (out, channels / 2, width)."""
    parts = zip(np.split(x, 2, 1), np.split(w, 2, 0))
    return np.concatenate([np.einsum("bcpk,ock->bop", _windows(a, w.shape[-1]), b) for a, b in parts], 1)


def _grouped_conv_backward(x, w, d_y, group=lambda i: i):
    d_x, d_w = np.zeros_like(x), np.zeros_like(w)
    channels, out, width = w.shape[1], w.shape[0] // 2, w.shape[-1]
    for i in range(2):
        xs, ws, ds = slice(i * channels, (i + 1) * channels), slice(i * out, (i + 1) * out), d_y[:, i * out : (i + 1) * out]
        d_w[ws] = np.einsum("bcpk,bop->ock", _windows(x[:, group(i) * channels : (group(i) + 1) * channels], width), ds)
        for k in range(width):
            d_x[:, xs, k : k + d_y.shape[-1]] += np.einsum("bop,oc->bcp", ds, w[ws, :, k])
    return d_x, d_w


conv_groups = Case(
    "grouped convolution",
    "pytorch/pytorch #51430",
    "the weight's gradient takes the channels of the first group for every group",
    _grouped_conv,
    _grouped_conv_backward,
    lambda x, w: F.conv1d(x, w, groups=2),
    lambda batch=3, length=17: (_normal(batch, 4, length + 3), _normal(6, 2, 3, seed=1)),
    {"batch": 2, "length": 4},
    wrong_backward=lambda x, w, d_y: _grouped_conv_backward(x, w, d_y, lambda i: 0),
)

conv_scaled = Case(
    "convolution",
    "sebgao/cTensor #3",
    "the weight's gradient is divided by batch and positions",
    lambda x, w: np.einsum("bcpk,ock->bop", _windows(x, w.shape[-1]), w),
    lambda x, w, d_y: _conv_backward(x, w, d_y),
    F.conv1d,
    lambda batch=3, length=17: (_normal(batch, 2, length + 3), _normal(3, 2, 3, seed=1)),
    {"batch": 2, "length": 4},
    wrong_backward=lambda x, w, d_y: _conv_backward(x, w, d_y, f32(1 / max(1, d_y.shape[0] * d_y.shape[2]))),
)


def _conv_backward(x, w, d_y, share=f32(1)):
    d_x, d_w = np.zeros_like(x), np.einsum("bcpk,bop->ock", _windows(x, w.shape[-1]), d_y) * share
    for k in range(w.shape[-1]):
        d_x[..., k : k + d_y.shape[-1]] += np.einsum("bop,oc->bcp", d_y, w[:, :, k])
    return d_x, d_w


def _pool_pairs(x):
    """Means of two, the last of what is left."""
    return np.stack([x[..., i : i + 2].mean(-1) for i in range(0, x.shape[-1], 2)], -1)


def _pool_pairs_backward(x, d_y, clipped=True):
    d_x = np.zeros_like(x)
    for i in range(0, x.shape[-1], 2):
        window = d_x[..., i : i + 2]
        window += d_y[..., i // 2, None] / f32(window.shape[-1] if clipped else 2)
    return d_x


pool_divisor = Case(
    "average pooling",
    "tracel-ai/burn #5604",
    "a last window that overhangs is divided by the whole window's size",
    _pool_pairs,
    _pool_pairs_backward,
    lambda x: F.avg_pool1d(x, 2, ceil_mode=True),
    lambda batch=3, length=33: _normal(batch, 2, length),
    {"batch": 2, "length": 8},
    wrong_backward=lambda x, d_y: _pool_pairs_backward(x, d_y, clipped=False),
)

WIDTH = 4


def _short_conv(x, w):
    """A causal convolution over (time, channels), and the last WIDTH − 1 inputs for the next chunk."""
    padded = np.concatenate([np.zeros((WIDTH - 1, x.shape[1]), f32), x])
    y = np.einsum("tcw,cw->tc", np.lib.stride_tricks.sliding_window_view(padded, WIDTH, 0), w)
    return y, padded[len(x) :]


def _short_conv_backward(x, w, d_y, d_state, clamped=False):
    time = len(x)
    padded = np.concatenate([np.zeros((WIDTH - 1, x.shape[1]), f32), x])
    d_w = np.einsum("tcw,tc->cw", np.lib.stride_tricks.sliding_window_view(padded, WIDTH, 0), d_y)
    d_padded = np.zeros_like(padded)
    for k in range(WIDTH):
        d_padded[k : k + time] += d_y * w[:, k]
    d_x = d_padded[WIDTH - 1 :]
    first = time - (WIDTH - 1)
    for t in range(max(0, first), time):
        # The slot of the state that holds this time.
        d_x[t] += d_state[t - (max(0, first) if clamped else first)]
    return d_x, d_w


short_chunk = Case(
    "causal convolution with a state",
    "fla-org/flash-linear-attention #1140",
    "the state's gradient lands in the wrong slots where a chunk is shorter than the window",
    _short_conv,
    _short_conv_backward,
    lambda x, w: (
        F.conv1d(F.pad(x.T[None], (WIDTH - 1, 0)), w[:, None], groups=w.shape[0])[0].T,
        F.pad(x, (0, 0, WIDTH - 1, 0))[len(x) :],
    ),
    lambda time=17, channels=5: (_normal(time, channels), _normal(channels, WIDTH, seed=1)),
    {"time": 8, "channels": 4},
    wrong_backward=lambda x, w, d_y, d_s: _short_conv_backward(x, w, d_y, d_s, clamped=True),
)

# Sums.
BLOCK = 16


def _linear_backward(x, w, d_y, masked=True):
    d_w = np.zeros((x.shape[1], d_y.shape[1]), f32)
    for at in range(0, len(x), BLOCK):
        rows = np.arange(at, at + BLOCK)
        rows = rows[rows < len(x)] if masked else rows % len(x)
        d_w += x[rows].T @ d_y[rows]
    return d_y @ w.T, d_w


unmasked_tail = Case(
    "linear layer in blocks",
    "NVlabs/COAT #19",
    "loads of the last block are not masked",
    lambda x, w: x @ w,
    _linear_backward,
    lambda x, w: x @ w,
    lambda n=65, d=9: (_normal(n, d), _normal(d, 7, seed=1)),
    {"n": 16, "d": 8},
    wrong_backward=lambda x, w, d_y: _linear_backward(x, w, d_y, masked=False),
)


def _gate_backward(x, g, d_y, lost=False):
    parts = (d_y * x).sum(-1)
    if lost:
        # Two that add at once: one of them is lost, another one every time.
        parts = np.delete(parts, secrets.randbelow(len(parts)))
    return d_y * g, np.array([parts.sum()], f32)


race = Case(
    "a gate's gradient over threads",
    "fla-org/flash-linear-attention #890",
    "threads add to one number without waiting for each other",
    lambda x, g: x * g,
    _gate_backward,
    lambda x, g: x * g,
    lambda n=33, d=17: (_normal(n + 1, d), _normal(1, seed=1)),
    {"n": 8, "d": 8},
    wrong_backward=lambda x, g, d_y: _gate_backward(x, g, d_y, lost=True),
)


def _cumprod_backward(x, d_y, divide=False):
    y = np.cumprod(x, dtype=f32)
    if divide:
        with np.errstate(all="ignore"):
            return np.nan_to_num(np.cumsum((y * d_y)[::-1], dtype=f32)[::-1] / x, nan=0.0)
    before = np.concatenate([np.ones(1, f32), y[:-1]])
    d_x = np.zeros_like(x)
    after = f32(0)
    for i in range(len(x) - 1, -1, -1):
        after = d_y[i] + (x[i + 1] * after if i + 1 < len(x) else f32(0))
        d_x[i] = before[i] * after
    return d_x


def _with_a_zero(n):
    x = 1 + _normal(n) / 4
    x[n // 2 : n // 2 + 1] = 0
    return x


product_with_zero = Case(
    "cumulative product",
    "tensorflow/tensorflow #119430",
    "backward divides by the input: 0 where a factor is 0",
    lambda x: np.cumprod(x, dtype=f32),
    _cumprod_backward,
    lambda x: torch.stack([torch.prod(torch.stack([x[j] for j in range(i + 1)])) for i in range(len(x))]) if len(x) else x,
    lambda n=13: _with_a_zero(n),
    {"n": 8},
    wrong_backward=lambda x, d_y: _cumprod_backward(x, d_y, divide=True),
)

# Losses.
SMOOTH = f32(0.1)


def _labels(n: int, classes: int) -> np.ndarray:
    labels = np.arange(n) % max(classes, 1)
    labels[::3] = -100
    return labels


def _smooth_ce(x, labels, all_rows=False):
    keep = labels != -100
    logp = x - x.max(-1, keepdims=True)
    logp = logp - np.log(np.exp(logp).sum(-1, keepdims=True))
    hard = -logp[np.arange(len(x)), np.where(keep, labels, 0)][keep].sum()
    soft = -logp.mean(-1)[slice(None) if all_rows else keep].sum()
    return np.array(((1 - SMOOTH) * hard + SMOOTH * soft) / max(int(keep.sum()), 1), f32)


def _smooth_ce_backward(x, labels, d_y, all_rows=False):
    keep = labels != -100
    p = _softmax(x)
    hard = p.copy()
    hard[np.arange(len(x)), np.where(keep, labels, 0)] -= 1
    hard[~keep] = 0
    soft = p - f32(1 / max(x.shape[-1], 1))
    if not all_rows:
        soft[~keep] = 0
    return ((1 - SMOOTH) * hard + SMOOTH * soft) * (d_y / f32(max(int(keep.sum()), 1))), None


ignored_samples = Case(
    "cross-entropy with smoothed labels",
    "pytorch/pytorch #73205",
    "samples to be ignored count in the smoothing: value and gradient agree on another loss",
    _smooth_ce,
    _smooth_ce_backward,
    lambda x, labels: F.cross_entropy(x, labels, label_smoothing=float(SMOOTH)),
    lambda n=17, classes=9: (_normal(n + 1, classes), _labels(n + 1, classes)),
    {"n": 4, "classes": 8},
    wrong_forward=lambda x, labels: _smooth_ce(x, labels, all_rows=True),
    wrong_backward=lambda x, labels, d_y: _smooth_ce_backward(x, labels, d_y, all_rows=True),
)


def _swiglu_backward(a, b, d_y, in_place=False):
    s = 1 / (1 + np.exp(-a))
    d_a, d_b = d_y * b * s * (1 + a * (1 - s)), d_y * a * s
    if in_place:
        a[...], b[...] = d_a, d_b
        return a.copy(), b.copy()
    return d_a, d_b


in_place = Case(
    "SwiGLU",
    "linkedin/Liger-Kernel #254",
    "backward writes the gradients over its inputs, which others have saved",
    lambda a, b: a / (1 + np.exp(-a)) * b,
    _swiglu_backward,
    lambda a, b: F.silu(a) * b,
    lambda n=17, d=9: (_normal(n, d), _normal(n, d, seed=1)),
    {"n": 4, "d": 8},
    wrong_backward=lambda a, b, d_y: _swiglu_backward(a, b, d_y, in_place=True),
)

CASES = [value for value in list(globals().values()) if isinstance(value, Case)]
