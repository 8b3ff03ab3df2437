"""`kan` in PyTorch's operations: the recursion of Cox and de Boor."""

import torch
from torch import nn
from torch.nn import functional as F


class KAN(nn.Module):
    """y_j = bias_j + sum_i (base_weight[j,i] silu(x_i) + sum_m spline_weight[j,i,m] B_m(x_i)), with
    B-splines of `degree` on uniform knots that extend `degree` intervals beyond `range`, or on
    `knots`, a row of grid + 2·degree + 1 for every input."""

    def __init__(
        self, inputs, out, grid=5, degree=3, range=(-1.0, 1.0), base="silu", bias=False, outside="decay", knots=None
    ):
        super().__init__()
        self.options = {"out": out, "grid": grid, "degree": degree, "range": list(range), "base": base, "bias": bias}
        if outside != "decay":
            self.options["outside"] = outside
        self.grid, self.degree, self.range, self.clamped = grid, degree, range, outside == "clamp"
        if knots is not None:
            self.options["free_knots"] = True
            self.register_buffer("knots", knots)
            self.kept = ["knots"]
        scale = inputs**-0.5
        self.spline_weight = nn.Parameter(torch.randn(out, inputs, grid + degree) * 0.3 * scale)
        if base == "silu":
            self.base_weight = nn.Parameter((torch.rand(out, inputs) * 2 - 1) * scale)
        if bias:
            self.bias = nn.Parameter(torch.zeros(out))

    def uniform(self, dtype):
        low, high = self.range
        step = (high - low) / self.grid
        return low + (torch.arange(self.grid + 2 * self.degree + 1, dtype=dtype) - self.degree) * step

    def forward(self, x):
        shape, x = x.shape, x.reshape(-1, x.shape[-1])
        t = self.knots if hasattr(self, "knots") else self.uniform(x.dtype)
        if self.clamped:
            free = hasattr(self, "knots")
            low, high = (t[:, self.degree], t[:, -1 - self.degree]) if free else self.range
            # At the borders x still moves; what `clamp` does there differs between versions.
            low, high = (torch.as_tensor(v, dtype=x.dtype) for v in (low, high))
            x = torch.where(x < low, low, torch.where(x > high, high, x))
        x1 = x.unsqueeze(-1)
        b = ((x1 >= t[..., :-1]) & (x1 < t[..., 1:])).to(x.dtype)
        for d in range(1, self.degree + 1):
            left = (x1 - t[..., : -d - 1]) / (t[..., d:-1] - t[..., : -d - 1]) * b[..., :-1]
            right = (t[..., d + 1 :] - x1) / (t[..., d + 1 :] - t[..., 1:-d]) * b[..., 1:]
            b = left + right
        y = torch.einsum("nim,jim->nj", b, self.spline_weight)
        if hasattr(self, "base_weight"):
            y = y + F.silu(x) @ self.base_weight.T
        y = y + self.bias if hasattr(self, "bias") else y
        return y.reshape(*shape[:-1], -1)


def make(options, shape):
    names = ["out", "grid", "degree", "range", "base", "bias", "outside"]
    kan = KAN(shape[-1], **{name: options[name] for name in names if name in options})
    if not options.get("free_knots"):
        return kan
    # Where a bundle brings none, knots near the uniform ones.
    t = kan.uniform(torch.float32)
    shifts = (torch.rand(shape[-1], len(t)) - 0.5) * 0.6 * (t[1] - t[0])
    return KAN(shape[-1], **{name: options[name] for name in names if name in options}, knots=t + shifts)


def describe(module):
    if isinstance(module, KAN):
        return {"kind": "kan", **module.options}


KINDS = {"kan": make}
EXAMPLES = {
    "kan": {
        "input": [3],
        "batch": 11,
        "loss": "mse",
        "layers": [
            {"kind": "kan", "out": 5, "grid": 4, "degree": 2, "bias": True},
            {"kind": "kan", "out": 2, "grid": 5, "degree": 3, "range": [-2.0, 2.0]},
        ],
    },
    "kan_free_knots": {
        "input": [3],
        "batch": 9,
        "loss": "huber",
        "layers": [
            {"kind": "kan", "out": 4, "grid": 4, "degree": 3, "base": "none", "free_knots": True},
            {"kind": "kan", "out": 2, "grid": 3, "degree": 1, "outside": "clamp"},
        ],
    },
}
