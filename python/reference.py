#!/usr/bin/env python3
"""Writes a reference bundle from a PyTorch model, to be checked by `retrograd verify --against`.

    from reference import KAN, write_bundle
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), KAN(8, 3, grid=5, degree=3))
    write_bundle("mine.safetensors", model, x, target, loss="cross_entropy")

`python3 reference.py FOLDER` writes three examples there. Needs torch and safetensors.

Everything is computed twice: in float64, the oracle, and in float32, the peer. Parameters and
batch are rounded to float32 first, so that both start from the same numbers. Layers of the
`nn.Sequential` keep their numbers, so parameters are called `N.weight` and so on.
"""

import copy
import json
import sys

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

LOSSES = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "huber": F.huber_loss,
    "bce_logits": F.binary_cross_entropy_with_logits,
    "cross_entropy": F.cross_entropy,
}

OPTIMIZERS = {
    "sgd": {"kind": "sgd", "lr": 0.05},
    "momentum_clip": {"kind": "sgd", "lr": 0.02, "momentum": 0.9, "weight_decay": 1e-3, "clip": 0.5},
    "adam": {"kind": "adam", "lr": 0.01},
    "adamw": {"kind": "adamw", "lr": 0.01, "betas": [0.9, 0.99], "weight_decay": 0.01},
}


class KAN(nn.Module):
    """y_j = bias_j + sum_i (base_weight[j,i] silu(x_i) + sum_m spline_weight[j,i,m] B_m(x_i)), with
    B-splines of `degree` on uniform knots that extend `degree` intervals beyond `range`."""

    def __init__(self, inputs, out, grid=5, degree=3, range=(-1.0, 1.0), base="silu", bias=False):
        super().__init__()
        self.options = {"out": out, "grid": grid, "degree": degree, "range": list(range), "base": base, "bias": bias}
        self.grid, self.degree, self.range = grid, degree, range
        scale = inputs**-0.5
        self.spline_weight = nn.Parameter(torch.randn(out, inputs, grid + degree) * 0.3 * scale)
        if base == "silu":
            self.base_weight = nn.Parameter((torch.rand(out, inputs) * 2 - 1) * scale)
        if bias:
            self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x):
        low, high = self.range
        step = (high - low) / self.grid
        t = low + (torch.arange(self.grid + 2 * self.degree + 1, dtype=x.dtype) - self.degree) * step
        x1 = x.unsqueeze(-1)
        b = ((x1 >= t[:-1]) & (x1 < t[1:])).to(x.dtype)
        for d in range(1, self.degree + 1):
            left = (x1 - t[: -d - 1]) / (t[d:-1] - t[: -d - 1]) * b[..., :-1]
            right = (t[d + 1 :] - x1) / (t[d + 1 :] - t[1:-d]) * b[..., 1:]
            b = left + right
        y = torch.einsum("nim,jim->nj", b, self.spline_weight)
        if hasattr(self, "base_weight"):
            y = y + F.silu(x) @ self.base_weight.T
        return y + self.bias if hasattr(self, "bias") else y


def single(name, value):
    """The one number of an option that PyTorch keeps for height and width."""
    if isinstance(value, (tuple, list)):
        if any(v != value[0] for v in value):
            raise ValueError(f"{name} = {value}: height and width must have the same")
        return value[0]
    return value


def layer(module):
    """A layer as a bundle's model describes it."""

    def needs(condition, what):
        if not condition:
            raise ValueError(f"{module}: a bundle can only hold it with {what}")

    if isinstance(module, KAN):
        return {"kind": "kan", **module.options}
    if isinstance(module, nn.Linear):
        return {"kind": "dense", "out": module.out_features, "bias": module.bias is not None}
    if isinstance(module, nn.Conv2d):
        needs(module.padding_mode in ("zeros", "reflect"), "zeros or reflect beyond the border")
        return {
            "kind": "conv2d",
            "out": module.out_channels,
            "kernel": single("kernel_size", module.kernel_size),
            "stride": single("stride", module.stride),
            "padding": single("padding", module.padding),
            "padding_mode": module.padding_mode,
            "dilation": single("dilation", module.dilation),
            "groups": module.groups,
            "bias": module.bias is not None,
        }
    if isinstance(module, nn.ConvTranspose2d):
        plain = single("dilation", module.dilation) == 1 and module.groups == 1
        needs(plain and single("output_padding", module.output_padding) == 0, "dilation 1, groups 1, no output padding")
        return {
            "kind": "conv_transpose2d",
            "out": module.out_channels,
            "kernel": single("kernel_size", module.kernel_size),
            "stride": single("stride", module.stride),
            "padding": single("padding", module.padding),
            "bias": module.bias is not None,
        }
    if isinstance(module, (nn.MaxPool2d, nn.AvgPool2d)):
        needs(single("padding", module.padding) == 0 and not module.ceil_mode, "no padding, sizes rounded down")
        kind = "max_pool2d" if isinstance(module, nn.MaxPool2d) else "avg_pool2d"
        return {"kind": kind, "kernel": single("kernel_size", module.kernel_size), "stride": single("stride", module.stride)}
    if isinstance(module, nn.Upsample):
        needs(module.mode == "nearest" and module.scale_factor is not None, "nearest and a scale")
        return {"kind": "upsample", "scale": int(single("scale_factor", module.scale_factor))}
    if isinstance(module, (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm2d)):
        needs(module.eps == 1e-5 and module.weight is not None, "eps 1e-5, weight and bias")
        if isinstance(module, nn.GroupNorm):
            return {"kind": "group_norm", "groups": module.num_groups}
        return {"kind": "layer_norm" if isinstance(module, nn.LayerNorm) else "batch_norm2d"}
    if isinstance(module, nn.LeakyReLU):
        return {"kind": "leaky_relu", "slope": module.negative_slope}
    if isinstance(module, nn.ELU):
        return {"kind": "elu", "alpha": module.alpha}
    if isinstance(module, nn.GELU):
        needs(module.approximate == "none", "the exact function")
        return {"kind": "gelu"}
    plain = {nn.Flatten: "flatten", nn.ReLU: "relu", nn.SiLU: "silu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid"}
    for kind, name in plain.items():
        if isinstance(module, kind):
            return {"kind": name}
    raise ValueError(f"{module}: bundles have no such layer")


def make_optimizer(options, parameters):
    options = dict(options)
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[options.pop("kind")]
    return kind(parameters, **options)


def compute(model, x, target, loss, optimizers, steps, tensors, suffix):
    """Everything of one precision; `suffix` is empty for float64 and 32 for float32."""
    x = x.clone().requires_grad_(x.is_floating_point())
    run = copy.deepcopy(model)
    y = run(x)
    value = LOSSES[loss](y, target)
    value.backward()
    tensors[f"output{suffix}/y"] = y.detach()
    tensors[f"output{suffix}/loss"] = value.detach().reshape(1)
    tensors[f"grad_input{suffix}/x"] = x.grad
    for name, p in run.named_parameters():
        tensors[f"grad{suffix}/{name}"] = p.grad
    for label, options in optimizers.items():
        run = copy.deepcopy(model)
        options = dict(options)
        clip = options.pop("clip", None)
        optimizer = make_optimizer(options, run.parameters())
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            value = LOSSES[loss](run(x.detach()), target)
            value.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(run.parameters(), clip)
            optimizer.step()
            losses.append(value.detach())
        tensors[f"losses{suffix}/{label}"] = torch.stack(losses)
        for name, p in run.named_parameters():
            tensors[f"after{suffix}/{label}/{name}"] = p.detach()


def write_bundle(path, model, x, target, loss="mse", optimizers=None, steps=5):
    """Writes the bundle. `model` is an nn.Sequential, `x` a batch, `target` values like the output
    or class numbers."""
    if loss not in LOSSES:
        raise ValueError(f"loss {loss!r}: needs one of {', '.join(LOSSES)}")
    optimizers = OPTIMIZERS if optimizers is None else optimizers
    model = copy.deepcopy(model).float().train()
    layers = [layer(module) for module in model]
    x = x.float()
    classes = loss == "cross_entropy"
    target = target.long() if classes else target.float()
    tensors = {"input/x": x.double(), "input/target": target if classes else target.double()}
    for name, p in model.named_parameters():
        tensors[f"param/{name}"] = p.detach().double()
    for dtype, suffix in [(torch.float64, ""), (torch.float32, "32")]:
        to = lambda t: t if classes else t.to(dtype)
        run = copy.deepcopy(model).to(dtype)
        compute(run, x.to(dtype), to(target), loss, optimizers, steps, tensors, suffix)
    metadata = {
        "format": "retrograd-reference-1",
        "model": json.dumps({"family": "network", "input": list(x.shape[1:]), "layers": layers}),
        "task": json.dumps({"loss": loss, "steps": steps, "optimizers": optimizers}),
        "source": f"PyTorch {torch.__version__}, reference.py",
    }
    save_file({name: t.detach().contiguous().clone() for name, t in tensors.items()}, path, metadata)


def examples(folder):
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
    write_bundle(f"{folder}/example_mlp.safetensors", mlp, torch.randn(9, 4), torch.arange(9) % 3, "cross_entropy")
    kan = nn.Sequential(KAN(3, 5, grid=4, degree=2, bias=True), KAN(5, 2, grid=5, degree=3, range=(-2.0, 2.0)))
    write_bundle(f"{folder}/example_kan.safetensors", kan, torch.rand(11, 3) * 2 - 1, torch.randn(11, 2))
    cnn = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"),
        nn.BatchNorm2d(4),
        nn.SiLU(),
        nn.MaxPool2d(2),
        nn.ConvTranspose2d(4, 3, 2, stride=2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(3 * 6 * 4, 2),
    )
    write_bundle(f"{folder}/example_cnn.safetensors", cnn, torch.randn(5, 2, 6, 5), torch.randn(5, 2), "huber")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    examples(sys.argv[1])
