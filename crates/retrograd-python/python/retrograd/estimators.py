"""Estimators for scikit-learn: networks and KANs on tables.

Equal rows are one row of their weights' sum, rows of weight 0 are left out, and the order of the rows
decides nothing: a sample of weight 3 is, to the last bit, a sample that was given three times.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from . import _retrograd
from ._sklearn import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    _check_sample_weight,
    check_classification_targets,
    check_is_fitted,
    seed_of,
    validate_data,
)
from .formulas import Formula, Picture, named, threads

#: Rows that are kept for pictures and formulas.
SHOWN = 1000
#: Rows that are predicted at a time.
CHUNK = 4096


def _spread(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every column; 1 where a column has none."""
    mean = np.average(values, axis=0, weights=weights)
    spread = np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weights))
    spread[~(spread > 0)] = 1.0
    return mean, spread


class _Table(BaseEstimator):
    """A network on a table: everything but its layers and its targets."""

    def __init__(self, params):
        # Families name their parameters; scikit-learn reads them from there.
        params = dict(params)
        for name in ("self", "__class__"):
            params.pop(name, None)
        for name, value in params.items():
            setattr(self, name, value)

    # What families of estimators bring.

    def _layers(self, outputs: int) -> list[dict[str, Any]]:
        raise NotImplementedError

    def _scaling(self, x: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shift and scale of every column."""
        raise NotImplementedError

    def _sparsity(self) -> dict[str, float] | None:
        return None

    def _update_grid(self) -> tuple[int, int] | None:
        return None

    # Training.

    def _check(self) -> None:
        for name in ("epochs", "batch_size"):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"{name}: got {value!r}, needs a whole number of at least 1")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate: got {self.learning_rate!r}, needs a number > 0")
        if not 0 < self.validation_fraction < 1:
            got = self.validation_fraction
            raise ValueError(f"validation_fraction: got {got!r}, needs a share between 0 and 1")

    def _settings(self, seed: int) -> str:
        train: dict[str, Any] = {
            "epochs": int(self.epochs),
            "batch": int(self.batch_size),
            "optimizer": {"kind": "adam", "lr": float(self.learning_rate)},
            "schedule": {"kind": "cosine"},
            "seed": seed,
        }
        if self.weight_decay:
            train["optimizer"] = {
                "kind": "adamw",
                "lr": float(self.learning_rate),
                "weight_decay": float(self.weight_decay),
            }
        if self.early_stopping:
            train["early_stopping"] = int(self.patience)
        else:
            # Without validation there is nothing to measure.
            train["evaluate_every"] = max(1, int(self.epochs) // 50)
        return json.dumps(train)

    def _train(self, x: np.ndarray, y: np.ndarray, weights: np.ndarray, classes: int) -> None:
        """Trains on rows, values or class numbers, and weights, in float64."""
        self._check()
        seed = seed_of(self.random_state)
        x, y, weights = _merged(x, y, weights)
        self.shift_, self.scale_ = self._scaling(x, weights)
        rows = np.random.default_rng(0).permutation(len(x))[:SHOWN]
        self._shown = np.ascontiguousarray(x[rows]), np.ascontiguousarray(y[rows])
        inputs = self._inputs(x)
        if classes:
            goal, outputs = y[:, 0].astype(np.int64), classes
        else:
            mean, spread = _spread(y, weights)
            self.target_shift_, self.target_scale_ = mean, spread
            goal, outputs = ((y - mean) / spread).astype(np.float32), y.shape[1]
        weights = (weights / weights.max()).astype(np.float32)
        spec: dict[str, Any] = {"input": [x.shape[1]], "layers": self._layers(outputs)}
        sparsity = self._sparsity()
        if sparsity:
            spec["sparsity"] = sparsity
        self.spec_ = json.dumps(spec)
        network = _retrograd.Network(self.spec_)
        validation = None
        if self.early_stopping:
            order = np.random.default_rng(seed).permutation(len(inputs))
            held = max(1, round(len(order) * self.validation_fraction))
            if held >= len(order):
                raise ValueError(f"early_stopping: got {len(order)} samples, needs at least 2")
            kept, held = np.sort(order[held:]), np.sort(order[:held])
            validation = (inputs[held], goal[held], weights[held])
            inputs, goal, weights = inputs[kept], goal[kept], weights[kept]
            if not validation[2].any() or not weights.any():
                raise ValueError("sample_weight: got zeros in all of one part of the split")
        losses: list[dict[str, float]] = []

        def on_event(kind: str, more: str) -> None:
            if kind == "epoch":
                told = json.loads(more)
                losses.append(told)
                if self.verbose:
                    figures = {k: v for k, v in told.items() if k.endswith("loss")}
                    print(f"epoch {told['epoch']}: " + "  ".join(f"{k} {v:.4g}" for k, v in figures.items()))

        self.params_, summary = _retrograd.fit(
            network,
            self._settings(seed),
            inputs,
            goal,
            classes,
            weights,
            validation,
            self._update_grid(),
            self.device,
            threads(self.n_jobs),
            on_event,
        )
        self.summary_ = json.loads(summary)
        self.loss_curve_ = [told["train_loss"] for told in losses]
        self.n_iter_ = int(self.summary_["epochs"])
        self.buffers_ = dict(network.buffers())
        self._network = network

    def _inputs(self, x: np.ndarray) -> np.ndarray:
        scaled = (np.asarray(x, dtype=np.float64) - self.shift_) * self.scale_
        return np.ascontiguousarray(scaled, dtype=np.float32)

    def _outputs(self, x) -> np.ndarray:
        check_is_fitted(self, "params_")
        x = validate_data(self, x, dtype=[np.float64, np.float32], reset=False)
        inputs = self._inputs(x)
        parts = [
            self._network.forward(self.params_, inputs[i : i + CHUNK])[0]
            for i in range(0, len(inputs), CHUNK)
        ]
        return np.concatenate(parts)

    def _verified(self, x, y):
        """What `retrograd.verify` checks: the trained network on the rows that were kept."""
        check_is_fitted(self, "params_")
        rows, goal = self._shown
        rows, goal = rows[:8], goal[:8]
        classes = getattr(self, "classes_", None)
        if classes is not None:
            labels = (goal[:, 0].astype(np.int64) + 1) % max(2, len(classes))
            return self._network, self.params_, self._inputs(rows), labels, "cross_entropy"
        goal = (goal - self.target_shift_) / self.target_scale_ + 1.0
        return self._network, self.params_, self._inputs(rows), goal.astype(np.float32), "mse"

    # Files.

    def __getstate__(self):
        state = dict(super().__getstate__())
        state.pop("_network", None)
        return state

    def __setstate__(self, state) -> None:
        super().__setstate__(state)
        if "spec_" in self.__dict__:
            self._restore()

    def _restore(self) -> None:
        self._network = _retrograd.Network(self.spec_)
        for name, values in self.buffers_.items():
            self._network.set_buffer(name, np.asarray(values, dtype=np.float64, order="C"))

    def save(self, path: str | os.PathLike) -> None:
        """Writes a fitted estimator to a file: arrays and settings, no code."""
        check_is_fitted(self, "params_")
        arrays, plain = {}, {}
        for name, value in self.__getstate__().items():
            if isinstance(value, np.ndarray) and value.dtype.kind != "O":
                arrays[name] = value
            elif name == "_shown":
                arrays["_shown_x"], arrays["_shown_y"] = value
            elif name == "buffers_":
                arrays.update({f"buffer {k}": v for k, v in value.items()})
            elif isinstance(value, np.ndarray):
                plain[name] = {"objects": value.tolist()}
            else:
                plain[name] = value
        plain["class"] = type(self).__name__
        try:
            text = json.dumps(plain)
        except TypeError as error:
            raise ValueError(f"save: a setting that no file can hold: {error}; pickle can") from None
        with open(path, "wb") as file:
            np.savez(file, settings=np.array(text), **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike):
        """Reads what `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            if "settings" not in file:
                raise ValueError(f"{path}: needs a file that save() wrote")
            state = json.loads(str(file["settings"]))
            kind = state.pop("class")
            if kind != cls.__name__:
                raise ValueError(f"{path}: holds a {kind}, needs a {cls.__name__}")
            arrays = {name: file[name] for name in file.files if name != "settings"}
        for name, value in state.items():
            if isinstance(value, dict) and set(value) == {"objects"}:
                state[name] = np.array(value["objects"], dtype=object)
        state["_shown"] = arrays.pop("_shown_x"), arrays.pop("_shown_y")
        state["buffers_"] = {
            name[len("buffer ") :]: arrays.pop(name) for name in list(arrays) if name.startswith("buffer ")
        }
        for name in ("hidden", "layers"):
            if isinstance(state.get(name), list):
                state[name] = tuple(state[name])
        estimator = cls()
        estimator.__dict__.update(state)
        estimator.__dict__.update(arrays)
        estimator._restore()
        return estimator


def _merged(x: np.ndarray, y: np.ndarray, weights: np.ndarray):
    """Every row once, in an order of its own, with the sum of its weights."""
    used = weights > 0
    if not used.any():
        raise ValueError("sample_weight: got only zeros, needs at least one that counts")
    x, y, weights = x[used], y[used], weights[used]
    # One zero of the two, and bytes that compare.
    rows = np.ascontiguousarray(np.hstack([x, y]) + 0.0)
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return x[first], y[first], np.bincount(which.ravel(), weights=weights)


class _Kan(_Table):
    """What KANs bring: layers of splines over the data's range, pictures."""

    def __init__(
        self,
        hidden=(8,),
        *,
        grid=5,
        degree=3,
        sparsity=0.0,
        update_grid=0,
        epochs=200,
        batch_size=64,
        learning_rate=0.01,
        weight_decay=0.0,
        early_stopping=False,
        validation_fraction=0.1,
        patience=20,
        random_state=0,
        n_jobs=None,
        device="cpu",
        verbose=0,
    ):
        super().__init__(locals())

    def _layers(self, outputs):
        options = {"grid": int(self.grid), "degree": int(self.degree)}
        if self.update_grid:
            options["free_knots"] = True
        widths = [*(int(n) for n in self.hidden), outputs]
        return [{"kind": "kan", "out": n, "bias": True, **options} for n in widths]

    def _scaling(self, x, weights):
        low, high = x.min(axis=0), x.max(axis=0)
        half = (high - low) / 2
        half[~(half > 0)] = 1.0
        return (low + high) / 2, 1.0 / half

    def _sparsity(self):
        if not self.sparsity:
            return None
        return {"l1": float(self.sparsity), "entropy": float(self.sparsity)}

    def _update_grid(self):
        if not self.update_grid:
            return None
        return int(self.update_grid), max(1, int(self.epochs) // 2)

    def plot(self, ax=None) -> Picture:
        """The network's picture: every edge with its function over the training data. Notebooks show
        it; with matplotlib's `ax` it is also drawn there."""
        check_is_fitted(self, "params_")
        x = self._inputs(self._shown[0])
        svg = self._network.plot(self.params_, x, False)
        picture = Picture(svg, lambda: self._network.plot(self.params_, x, True))
        if ax is not None:
            import io

            from matplotlib import image

            ax.imshow(image.imread(io.BytesIO(picture.png), format="png"))
            ax.set_axis_off()
        return picture


class _Plain(_Table):
    """What networks bring: dense layers, or any of an experiment's."""

    def __init__(
        self,
        hidden=(64, 64),
        *,
        activation="silu",
        dropout=0.0,
        layers=None,
        epochs=200,
        batch_size=64,
        learning_rate=0.005,
        weight_decay=0.0,
        early_stopping=False,
        validation_fraction=0.1,
        patience=20,
        random_state=0,
        n_jobs=None,
        device="cpu",
        verbose=0,
    ):
        super().__init__(locals())

    def _layers(self, outputs):
        if self.layers is not None:
            return [*(dict(layer) for layer in self.layers), {"kind": "dense", "out": outputs}]
        layers: list[dict[str, Any]] = []
        for width in self.hidden:
            layers += [{"kind": "dense", "out": int(width)}, {"kind": self.activation}]
            if self.dropout:
                layers.append({"kind": "dropout", "p": float(self.dropout)})
        return [*layers, {"kind": "dense", "out": outputs}]

    def _scaling(self, x, weights):
        mean, spread = _spread(x, weights)
        return mean, 1.0 / spread


class _Regression(RegressorMixin):
    def fit(self, X, y, sample_weight=None):
        """Trains on rows `X`, numbers `y` and, where given, a weight of every row."""
        X, y = validate_data(
            self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True
        )
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        y = np.asarray(y, dtype=np.float64)
        self._column = y.ndim == 1
        self._train(X.astype(np.float64), y.reshape(len(y), -1), weights, 0)
        return self

    def predict(self, X) -> np.ndarray:
        """A number, or a row of them, for every row."""
        y = self._outputs(X).astype(np.float64) * self.target_scale_ + self.target_shift_
        return y[:, 0] if self._column else y

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class _Classification(ClassifierMixin):
    def fit(self, X, y, sample_weight=None):
        """Trains on rows `X`, classes `y` and, where given, a weight of every row."""
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        numbers = numbers.reshape(-1, 1).astype(np.float64)
        self._train(X.astype(np.float64), numbers, weights, len(self.classes_))
        return self

    def predict_proba(self, X) -> np.ndarray:
        """The probability of every class, in the order of `classes_`."""
        logits = self._outputs(X).astype(np.float64)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)

    def predict(self, X) -> np.ndarray:
        """The most likely class of every row."""
        likeliest = self._outputs(X).argmax(axis=1)
        return self.classes_[likeliest]


class KanRegressor(_Regression, _Kan):
    """A Kolmogorov–Arnold network that learns numbers.

    `hidden` are the widths between inputs and outputs, `grid` the intervals and `degree` the degree of
    the splines on every edge. `sparsity` asks for few edges, `update_grid` lets the knots follow the
    data every so many epochs of the first half. `early_stopping` keeps a `validation_fraction` apart
    and stops after `patience` epochs without a better loss. `n_jobs` are threads and `device` is
    "cpu", "gpu" or "gpu:NAME"; the same seed gives the same bits whatever the threads.

    >>> import numpy as np
    >>> from retrograd import KanRegressor
    >>> x = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    >>> model = KanRegressor(hidden=(3,), epochs=60).fit(x, np.sin(3 * x[:, 0]) + x[:, 1] ** 2)
    >>> bool(model.score(x, np.sin(3 * x[:, 0]) + x[:, 1] ** 2) > 0.95)
    True
    """

    def formula(self, *, threshold: float = 0.02, decimals: int = 3) -> Formula | list[Formula]:
        """What the network has learnt, as a formula in the columns' names and units: edges below
        `threshold` of their layer's largest importance are left out, the others matched against
        functions, and all constants tuned on the training data. `str()` of it is its text; it has
        `latex`, and `sympy()` where SymPy is installed. A list where `y` had several columns."""
        check_is_fitted(self, "params_")
        x, y = self._shown
        found, error = self._network.formula(
            self.params_,
            np.ascontiguousarray(x),
            np.ascontiguousarray(y),
            (self.scale_.tolist(), (-self.shift_ * self.scale_).tolist()),
            (self.target_scale_.tolist(), self.target_shift_.tolist()),
            float(threshold),
            int(decimals),
        )
        plain = [f"x_{i + 1}" for i in range(self.n_features_in_)]
        names = [str(n) for n in getattr(self, "feature_names_in_", plain)]
        error *= float(self.target_scale_[0]) if self._column else 1.0
        formulas = [named(text, latex, error, names) for text, latex in found]
        return formulas[0] if self._column else formulas


class KanClassifier(_Classification, _Kan):
    """A Kolmogorov–Arnold network that learns classes; its parameters are those of `KanRegressor`.

    >>> import numpy as np
    >>> from retrograd import KanClassifier
    >>> x = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    >>> model = KanClassifier(hidden=(3,), epochs=40).fit(x, np.where(x[:, 0] * x[:, 1] > 0, "a", "b"))
    >>> model.predict_proba(x[:2]).shape, [str(c) for c in model.classes_]
    ((2, 2), ['a', 'b'])
    """


class NetworkRegressor(_Regression, _Plain):
    """A network of dense layers that learns numbers.

    `hidden` are the widths of the layers, `activation` the function between them, `dropout` the share
    that is dropped in training. `layers`, in the place of these, are layers as an experiment file
    lists them, without the last. The other parameters are those of `KanRegressor`.

    >>> import numpy as np
    >>> from retrograd import NetworkRegressor
    >>> x = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    >>> NetworkRegressor(epochs=40).fit(x, x).predict(x[:3]).shape
    (3, 2)
    """


class NetworkClassifier(_Classification, _Plain):
    """A network of dense layers that learns classes; its parameters are those of
    `NetworkRegressor`.

    >>> import numpy as np
    >>> from retrograd import NetworkClassifier
    >>> x = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    >>> model = NetworkClassifier(epochs=40).fit(x, x[:, 0] > 0, sample_weight=np.abs(x[:, 0]))
    >>> bool(model.score(x, x[:, 0] > 0) > 0.9)
    True
    """
