#!/usr/bin/env python3
"""Errors of convolutions in f32 against f64, ours beside PyTorch's, as a table.

    pip install . torch && python bench/convolution_errors.py

Kernels of 3×3 between many channels are computed in Winograd's form, which rounds more often: its error must not be
above that of a direct sum as PyTorch makes it. The root of the mean square of the error, over that of the result.
"""

import copy

import torch

import retrograd.torch

SHAPES = [(32, 32, 256), (64, 64, 128), (128, 128, 64), (256, 128, 64), (256, 256, 32)]


def passes(module, x, d_y):
    module.zero_grad()
    x = x.detach().clone().requires_grad_()
    y = module(x)
    y.backward(d_y)
    weight, bias = (dict(module.named_parameters())[name].grad for name in ("weight", "bias"))
    return y.detach(), x.grad, weight, bias


def error(result, exact):
    difference = result.double() - exact
    return float((difference.square().mean() / exact.square().mean()).sqrt())


def main():
    torch.manual_seed(0)
    print("| channels, image | | ours | PyTorch | ours / PyTorch |\n|---|---|--:|--:|--:|")
    above = 0
    for inputs, outputs, side in SHAPES:
        theirs = torch.nn.Conv2d(inputs, outputs, 3, padding=1)
        ours = retrograd.torch.Conv2d(inputs, outputs, 3, padding=1)
        ours.load_state_dict(theirs.state_dict())
        x, d_y = torch.randn(1, inputs, side, side), torch.randn(1, outputs, side, side)
        results = [passes(module, x, d_y) for module in (ours, theirs)]
        exact = passes(copy.deepcopy(theirs).double(), x.double(), d_y.double())
        for name, own, other, right in zip(("y", "d_x", "d_W", "d_b"), *results, exact, strict=True):
            own, other = error(own, right), error(other, right)
            above += own > other
            print(f"| {inputs} → {outputs}, {side}² | {name} | {own:.2e} | {other:.2e} | {own / other:.2f} |")
    print(f"\n{above} of {4 * len(SHAPES)} above PyTorch's, by PyTorch {torch.__version__}.")


if __name__ == "__main__":
    main()
