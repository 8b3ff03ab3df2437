"""An estimator for scikit-learn that denoises images."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import numpy as np

from . import _retrograd
from ._arrays import numbers
from ._sklearn import BaseEstimator, TransformerMixin, check_is_fitted, seed_of
from .formulas import threads
from .runs import _apply


class Denoiser(TransformerMixin, BaseEstimator):
    """A convolutional network that denoises images.

    `fit(noisy, clean)` learns from pairs; `fit(noisy, noisy_again)` with `method="noise2noise"` from
    two noisy pictures of the same; `fit(noisy)` from noisy images alone (noise2void). Images are
    (rows, columns), or several of them; `transform` takes any size, tile by tile within `memory_mib`.

    >>> import numpy as np
    >>> from retrograd import Denoiser
    >>> noisy = np.random.default_rng(0).normal(100, 20, (4, 64, 64))
    >>> denoiser = Denoiser(epochs=1, patch=32).fit(noisy)
    >>> denoiser.transform(noisy[0]).shape
    (64, 64)
    """

    def __init__(
        self,
        *,
        method="auto",
        architecture="simple-cnn",
        patch=64,
        epochs=30,
        batch_size=8,
        learning_rate=2e-3,
        validation_fraction=0.2,
        random_state=0,
        n_jobs=None,
        device="cpu",
        memory_mib=1024,
    ):
        self.method = method
        self.architecture = architecture
        self.patch = patch
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.memory_mib = memory_mib

    def fit(self, X, y=None):
        """Trains on noisy images `X` and, where there are any, what they should look like."""
        noisy = _images("X", X)
        clean = None if y is None else _images("y", y)
        method = self.method
        if method == "auto":
            method = "noise2void" if clean is None else "supervised"
        if clean is not None and [i.shape for i in clean] != [i.shape for i in noisy]:
            raise ValueError("y: got images of other sizes, needs those of X")
        seed = seed_of(self.random_state)
        with tempfile.TemporaryDirectory() as folder:
            paths = {"inputs": [], "targets": []}
            for key, images in (("inputs", noisy), ("targets", clean or [])):
                for i, image in enumerate(images):
                    path = Path(folder) / f"{key}-{i:05}.npy"
                    np.save(path, image)
                    paths[key].append(str(path))
            data = {"method": method, "patch": int(self.patch), "inputs": paths["inputs"]}
            if clean is not None:
                data["targets"] = paths["targets"]
            data["validation"] = float(self.validation_fraction) if len(noisy) > 1 else 0.0
            described = {
                "name": "denoiser",
                "model": {"family": "denoise", "architecture": self.architecture},
                "data": data,
                "train": {
                    "epochs": int(self.epochs),
                    "batch": int(self.batch_size),
                    "optimizer": {"kind": "adam", "lr": float(self.learning_rate)},
                    "schedule": {"kind": "cosine"},
                    "seed": seed,
                },
            }
            text = _retrograd.experiment_text(None, json.dumps(described))
            run = Path(folder) / "run"
            n_threads = threads(self.n_jobs)
            summary = _retrograd.train(
                text, "denoiser", folder, run, False, self.device, n_threads, False, False
            )
            self.summary_ = json.loads(summary)
            self.experiment_ = (run / "experiment.toml").read_text(encoding="utf-8")
            self.model_ = (run / "model.safetensors").read_bytes()
            self._denoiser = _retrograd.Denoiser(run)
        return self

    def transform(self, X) -> np.ndarray:
        """The images, denoised."""
        check_is_fitted(self, "model_")
        return _apply(self._denoiser, X, int(self.memory_mib), threads(self.n_jobs))

    def _restore(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "experiment.toml").write_text(self.experiment_, encoding="utf-8")
            (Path(folder) / "model.safetensors").write_bytes(self.model_)
            self._denoiser = _retrograd.Denoiser(Path(folder))

    def __getstate__(self):
        state = dict(super().__getstate__())
        state.pop("_denoiser", None)
        return state

    def __setstate__(self, state) -> None:
        super().__setstate__(state)
        if "model_" in self.__dict__:
            self._restore()

    def save(self, folder: str | os.PathLike) -> None:
        """Writes the trained denoiser into a folder that the `retrograd` command uses too."""
        check_is_fitted(self, "model_")
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "experiment.toml").write_text(self.experiment_, encoding="utf-8")
        (folder / "model.safetensors").write_bytes(self.model_)

    @classmethod
    def load(cls, folder: str | os.PathLike) -> "Denoiser":
        """Reads what `save` wrote, or the run of an experiment."""
        folder = Path(folder)
        denoiser = cls()
        denoiser.experiment_ = (folder / "experiment.toml").read_text(encoding="utf-8")
        denoiser.model_ = (folder / "model.safetensors").read_bytes()
        denoiser._restore()
        return denoiser


def _images(what: str, value) -> list[np.ndarray]:
    """Images in float32, each (rows, columns)."""
    if isinstance(value, (list, tuple)) and len({np.shape(i) for i in value}) != 1:
        images = [numbers(what, image) for image in value]
    else:
        array = numbers(what, value)
        images = [array] if array.ndim == 2 else list(array)
    for image in images:
        if image.ndim != 2 or image.size == 0:
            raise ValueError(f"{what}: got an image of shape {list(image.shape)}, needs [rows, columns]")
        if not np.isfinite(image).all():
            raise ValueError(f"{what}: got NaN or an infinity, needs finite pixels")
    if not images:
        raise ValueError(f"{what}: got no image, needs at least one")
    return images
