"""What pays at which signal: the networks that `retrograd init` chooses from, beside a Gaussian filter
of the best width, on generated micrographs of several doses (electrons per pixel).

For every dose, noise2noise on the halves of eight micrographs with the settings that `init` writes; PSNR
against the true image, which training never sees. The filter's width is chosen with the true image: no
user could do better. `--method noise2void` learns from single images instead."""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import mrcfile
import numpy as np
from scipy.ndimage import gaussian_filter

TEXT = """
name = "measured"
[model]
family = "denoise"
architecture = "{architecture}"
[data]
method = "{method}"
generate = {{ kind = "micrograph", count = {count}, width = {size}, height = {size}, dose = {dose} }}
patch = 64
[train]
epochs = {epochs}
batch = 8
loss = "mse"
optimizer = {{ kind = "adam", lr = 2e-3 }}
schedule = {{ kind = "cosine" }}
"""


def psnr(image, clean):
    error = np.mean(np.square(image - clean))
    return 10 * np.log10(np.square(clean.max() - clean.min()) / error)


def measure(options, architecture, dose):
    with tempfile.TemporaryDirectory() as folder:
        steps = max(1, options.count * options.size**2 // (64 * 64 * 8))
        text = TEXT.format(
            architecture=architecture,
            method=options.method,
            dose=dose,
            count=options.count,
            size=options.size,
            epochs=max(1, options.steps // steps),
        )
        open(f"{folder}/measured.toml", "w").write(text)
        command = [options.retrograd, "train", "measured.toml", "--no-verify", "--no-report"]
        command += ["--threads", str(options.threads)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        summary = json.load(open(f"{folder}/runs/measured/summary.json"))
        image = lambda name: mrcfile.read(f"{folder}/runs/measured/example-{name}.mrc").astype(float)
        noisy, clean = image("noisy"), image("clean")
        widths = np.arange(0.5, 12.1, 0.5)
        filtered = [psnr(gaussian_filter(noisy, width), clean) for width in widths]
        best = int(np.argmax(filtered))
        return {
            "correlation": summary.get("odd_even_correlation_before", float("nan")),
            "noisy": summary["psnr_before"],
            "gaussian": filtered[best],
            "width": widths[best],
            "network": summary["psnr_after"],
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--doses", type=float, nargs="*", default=[20, 60, 150, 400, 1000, 4000])
    parser.add_argument("--architectures", nargs="*", default=["simple-cnn", "unet-small"])
    parser.add_argument("--method", default="noise2noise")
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=2000, help="as init takes them")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--retrograd", default="retrograd", help="the command")
    options = parser.parse_args()
    if os.sep in options.retrograd:
        options.retrograd = os.path.abspath(options.retrograd)
    names = " | ".join(options.architectures)
    print(f"| dose | odd/even correlation | noisy | Gaussian (σ) | {names} |")
    print("|---|---|---|---|" + "---|" * len(options.architectures))
    for dose in options.doses:
        found = [measure(options, name, dose) for name in options.architectures]
        first = found[0]
        cells = [
            f"{dose:g}",
            f"{first['correlation']:.3f}",
            f"{first['noisy']:.2f}",
            f"{first['gaussian']:.2f} ({first['width']:g})",
        ]
        cells += [f"{one['network']:.2f}" for one in found]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
