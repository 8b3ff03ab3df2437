"""Whole runs: experiments trained from Python, with the files that the command leaves."""

from __future__ import annotations

import csv
import html
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Callable, Mapping

import numpy as np

from . import _retrograd
from ._arrays import numbers
from .formulas import threads as _threads


class Interrupted(KeyboardInterrupt):
    """Ctrl-C stopped a run; its state is saved in `folder`, and `train(resume=folder)` goes on."""

    def __init__(self, folder: Path):
        super().__init__(f"stopped; the state is saved: retrograd.train(resume={str(folder)!r}) goes on")
        self.folder = folder


def experiments() -> list[str]:
    """The names of the ready experiments.

    >>> import retrograd
    >>> "moons" in retrograd.experiments()
    True
    """
    return list(_retrograd.experiments())


def _read(experiment) -> tuple[dict[str, Any], str, str | None]:
    """An experiment's description, the name that messages give it, and where its paths begin."""
    if isinstance(experiment, Mapping):
        described = {"name": "experiment", **experiment}
        text = _retrograd.experiment_text(None, json.dumps(described, default=_plain))
        return json.loads(_retrograd.experiment_json(text, "experiment")), "experiment", os.getcwd()
    name = os.fspath(experiment)
    if "\n" in name:
        return json.loads(_retrograd.experiment_json(name, "experiment")), "experiment", os.getcwd()
    if name.endswith(".toml") or os.path.isfile(name):
        text = Path(name).read_text(encoding="utf-8")
        folder = str(Path(name).resolve().parent)
        return json.loads(_retrograd.experiment_json(text, name)), name, folder
    text = _retrograd.experiment_text(name, None)
    return json.loads(_retrograd.experiment_json(text, name)), name, None


def _plain(value):
    """Numbers and arrays of NumPy's in a description."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"the experiment: got a {type(value).__name__}, needs plain values")


def _free_folder(name: str) -> Path:
    folder, n = Path("runs") / name, 2
    while folder.exists():
        folder, n = Path("runs") / f"{name}-{n}", n + 1
    return folder


def _keep_arrays(described: dict[str, Any], folder: Path, arrays: Mapping[str, Any]) -> None:
    """Puts arrays into the run's folder, in the place of files: the run can be resumed, and the
    command can use it."""
    folder.mkdir(parents=True, exist_ok=True)
    data = described.setdefault("data", {})
    for key in ("file", "generate", "targets_file", "weights_file"):
        if key in data:
            raise ValueError(f"data.{key}: got it beside arrays, needs one of the two")
    keys = {"x": "file", "y": "targets_file", "sample_weight": "weights_file"}
    for name, value in arrays.items():
        if value is None:
            continue
        array = np.asarray(value)
        if name == "y" and array.dtype.kind in "iub":
            array = array.astype(np.int64)
        elif name == "y" and array.dtype.kind in "OUS":
            classes, array = np.unique(array.astype(str), return_inverse=True)
            data.setdefault("task", "classification")
            described["_classes"] = classes.tolist()
        else:
            array = numbers(name, value, np.float64 if array.dtype == np.float64 else np.float32)
        path = folder / f"{name}.npy"
        np.save(path, np.ascontiguousarray(array), allow_pickle=False)
        data[keys[name]] = str(path.resolve())


def train(
    experiment: str | os.PathLike | Mapping[str, Any] | None = None,
    x=None,
    y=None,
    *,
    sample_weight=None,
    out: str | os.PathLike | None = None,
    resume: str | os.PathLike | None = None,
    seed: int | None = None,
    epochs: int | None = None,
    device: str = "cpu",
    n_jobs: int | None = None,
    verify: bool = True,
    callback: Callable[[dict[str, Any]], Any] | None = None,
    progress: bool | None = None,
) -> "Run":
    """Trains an experiment: the name of a ready one, a file that ends in .toml, the text of one, or a
    dict of the same form; with `x` and `y`, arrays in the place of files.

    The run is in the folder `out`, or `runs/NAME`, as the command's are. `callback` is called after
    every epoch with its figures: those of the evaluation where there is one (`evaluate_every`), else
    the mean loss since the last one. What it raises stops the run, which saves. So does Ctrl-C:
    `train(resume=folder)` goes on, to the same bits. `progress` shows a bar, in notebooks with the
    curve; on a terminal and in notebooks by default.

    >>> import numpy as np, retrograd, tempfile
    >>> x = np.random.default_rng(0).uniform(-1, 1, (100, 2)); y = x[:, 0] * x[:, 1]
    >>> model = {"family": "kan", "sizes": [2, 3, 1]}
    >>> setting = {"epochs": 5, "optimizer": {"kind": "adam", "lr": 0.02}}
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = retrograd.train({"model": model, "train": setting}, x, y, out=folder.name + "/run")
    >>> len(run.metrics["train_loss"]), run.predict(x[:4]).shape
    (5, (4,))
    """
    if resume is not None:
        folder = Path(resume)
        if experiment is not None or x is not None or out is not None:
            raise TypeError("resume: got an experiment beside it, needs the run's folder alone")
        path = folder / "experiment.toml"
        described, name, base = _read(path)
    else:
        if experiment is None:
            raise TypeError("train: needs an experiment, or resume=")
        described, name, base = _read(experiment)
        folder = _free_folder(described["name"]) if out is None else Path(out)
    settings = described["train"]
    if seed is not None:
        settings["seed"] = int(seed)
    if epochs is not None:
        settings["epochs"] = int(epochs)
    if x is not None:
        if (folder / "experiment.toml").exists():
            raise ValueError(f"out: {folder} holds a run already; resume= goes on with it")
        _keep_arrays(described, folder, {"x": x, "y": y, "sample_weight": sample_weight})
    elif y is not None or sample_weight is not None:
        raise TypeError("y: got it without x")
    classes = described.pop("_classes", None)
    if classes is not None:
        (folder / "classes.json").write_text(json.dumps(classes), encoding="utf-8")
    text = _retrograd.experiment_text(None, json.dumps(described))

    from ._progress import watcher

    watch = watcher(progress, described["name"], int(settings["epochs"]))

    done = 0

    def on_event(kind: str, more: str) -> None:
        nonlocal done
        told = json.loads(more)
        watch(kind, told)
        if kind == "start":
            done = told["step"] // told["steps_per_epoch"]
        # A run that goes on says once more that the epoch ended which it was stopped after.
        ended = kind == "epoch_ended" and told["epoch"] > done
        if callback is not None and (kind == "epoch" or ended):
            callback(told)

    try:
        _retrograd.train(
            text,
            name,
            base,
            folder,
            resume is not None,
            device,
            _threads(n_jobs),
            verify,
            callback is not None,
            on_event,
        )
    except KeyboardInterrupt:
        raise Interrupted(folder) from None
    finally:
        watch("done", {})
    return Run(folder)


def open_run(folder: str | os.PathLike) -> "Run":
    """The run in a folder, of `train` or of the command."""
    return Run(folder)


class Metrics(dict):
    """The figures of every evaluated epoch: columns as arrays."""

    def frame(self):
        """The same as a frame of pandas, which must be installed."""
        try:
            import pandas
        except ImportError:
            raise ImportError("metrics as a frame need pandas: pip install pandas") from None
        return pandas.DataFrame(dict(self))

    def _repr_html_(self) -> str:
        rows = list(zip(*self.values()))
        shown = rows if len(rows) <= 20 else [*rows[:10], None, *rows[-10:]]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self)
        cells = (
            "<td>…</td>" * len(self) if row is None else "".join(f"<td>{v:g}</td>" for v in row)
            for row in shown
        )
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Page:
    """A run's report: notebooks show it, a browser opens the file at `path`."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def html(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def _repr_html_(self) -> str:
        source = html.escape(self.html, quote=True)
        style = "width:100%;height:640px;border:1px solid #8884"
        return f'<iframe srcdoc="{source}" style="{style}"></iframe>'

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"<report {self.path}>"


class Run:
    """A trained run: its summary, its figures, its report and its model."""

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        if not (self.folder / "experiment.toml").is_file():
            raise FileNotFoundError(f"{self.folder}: needs the folder of a run, with its experiment.toml")

    @property
    def experiment(self) -> dict[str, Any]:
        """The experiment as it was trained."""
        path = self.folder / "experiment.toml"
        return json.loads(_retrograd.experiment_json(path.read_text(encoding="utf-8"), str(path)))

    @property
    def family(self) -> str:
        return self.experiment["model"]["family"]

    @property
    def summary(self) -> dict[str, Any]:
        """What `summary.json` says of the end of the run."""
        return json.loads((self.folder / "summary.json").read_text(encoding="utf-8"))

    @property
    def metrics(self) -> Metrics:
        """The figures of every evaluated epoch."""
        path = self.folder / "metrics.csv"
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        columns = zip(*rows[1:]) if len(rows) > 1 else ((),) * len(rows[0])
        figures = Metrics()
        for name, cells in zip(rows[0], columns):
            values = np.array([float(cell) if cell else np.nan for cell in cells])
            whole = name in ("epoch", "step", "best")
            figures[name] = values.astype(np.int64) if whole else values
        return figures

    def report(self) -> Page:
        """The report, one page with curves and pictures."""
        return Page(self.folder / "report.html")

    def tensors(self) -> dict[str, np.ndarray]:
        """Weights and buffers under PyTorch's names."""
        return dict(_retrograd.read_tensors(self.folder / "model.safetensors"))

    def model(self):
        """The trained model on arrays, for the families `network`, `kan`, `graph` and `logic_ca`.
        What the data was normalised by is not part of it; `predict` knows that."""
        from .models import Automaton, GraphNetwork, Network

        described = dict(self.experiment["model"])
        family, state = described.pop("family"), self.tensors()
        if family == "logic_ca":
            return Automaton(**described, state=state)
        if family == "graph":
            described.setdefault("features", state[min(state)].shape[-1])
            return GraphNetwork(**described, state=state)
        if family == "kan":
            sizes = described["sizes"]
            keys = ("grid", "degree", "range", "base", "bias", "outside")
            options = {key: described[key] for key in keys if key in described}
            options = {"grid": 5, "degree": 3, **options}
            free = {"free_knots": True} if described.get("update_grid") else {}
            layers = [{"kind": "kan", "out": n, **options, **free} for n in sizes[1:]]
            return Network(sizes[0], layers, state=state)
        if family == "network":
            shape = described.get("input") or self._sample_shape()
            return Network(shape, described["layers"], state=state)
        raise ValueError(f"model: the family {family!r} has none on arrays; predict uses it")

    def _sample_shape(self) -> list[int]:
        data = self.experiment.get("data", {})
        if str(data.get("file", "")).endswith(".npy"):
            return list(np.load(data["file"], mmap_mode="r").shape[1:])
        raise ValueError("model: the experiment doesn't say the shape of its input; predict knows it")

    def circuit(self):
        """The exact circuit of an automaton."""
        if self.family != "logic_ca":
            raise ValueError(f"circuit: the family {self.family!r} has none, needs logic_ca")
        return self.model().circuit()

    def predict(self, x=None, *, n_jobs: int | None = None) -> np.ndarray:
        """Predictions for new data in the units and words of the run's own: an array, a frame of
        pandas or a file for tables; an image (rows, columns), or several, for denoisers; for graphs
        the files that the command's `run` takes, or nothing for every node, graph or test link of the
        run's own data (of links the probability, of texts the restored lines)."""
        if self.family == "denoise":
            return denoise(x, self, n_jobs=n_jobs)
        columns = self._columns(x, n_jobs)
        if self.family == "graph":
            told = dict(columns)
            if "p(link)" in told:
                return np.array(told["p(link)"], dtype=np.float64)
            return _words(told.get("predicted") or told["restored"])
        predicted = [cells for name, cells in columns if name.startswith("predicted_")]
        if any(name.startswith("probability_") for name, _ in columns):
            classes = self.folder / "classes.json"
            if classes.is_file():
                words = json.loads(classes.read_text(encoding="utf-8"))
                return np.array([words[int(cell)] for cell in predicted[0]])
            return _words(predicted[0])
        # Written with the digits of float32, and read back as such.
        values = np.array([[cell or "nan" for cell in cells] for cells in predicted], dtype=np.float32)
        return values[0] if len(values) == 1 else values.T

    def predict_proba(self, x=None, *, n_jobs: int | None = None) -> np.ndarray:
        """The probability of every class, in the order of the classes."""
        start = "p(" if self.family == "graph" else "probability_"
        named = [cells for name, cells in self._columns(x, n_jobs) if name.startswith(start)]
        if not named:
            raise ValueError("predict_proba: the run learnt numbers, needs one that learnt classes")
        return np.array([[float(cell or "nan") for cell in cells] for cells in named]).T

    def _columns(self, x, n_jobs):
        threads = _threads(n_jobs)
        if self.family == "graph":
            return _retrograd.predict(self.folder, _files(x), threads)
        if isinstance(x, (str, os.PathLike)):
            return _retrograd.predict(self.folder, [x], threads)
        if x is None:
            raise TypeError(f"x: got nothing; a run of the family {self.family!r} needs data to predict")
        with tempfile.TemporaryDirectory() as folder:
            if hasattr(x, "to_csv"):
                path = Path(folder) / "x.csv"
                x.to_csv(path, index=False)
            else:
                path = Path(folder) / "x.npy"
                np.save(path, numbers("x", x, np.float64), allow_pickle=False)
            return _retrograd.predict(self.folder, [path], threads)

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def __repr__(self) -> str:
        loss = self.summary.get("train_loss") if (self.folder / "summary.json").is_file() else None
        told = "" if loss is None else f", train_loss {loss:.4g}"
        return f"Run({str(self.folder)!r}{told})"


def _words(cells: list[str]) -> np.ndarray:
    """Numbers where all of them are, else the words."""
    for kind in (int, float):
        try:
            return np.array([kind(cell) for cell in cells])
        except ValueError:
            continue
    return np.array(cells)


def _files(x) -> list[str | os.PathLike]:
    """No file, one, or several."""
    if x is None:
        return []
    files = [x] if isinstance(x, (str, os.PathLike)) else x
    if not isinstance(files, (list, tuple)) or not all(isinstance(f, (str, os.PathLike)) for f in files):
        raise TypeError(
            f"x: got {type(x).__name__}; a graph's run predicts files, or its own data without any; "
            "run.model() takes arrays"
        )
    return list(files)


def denoise(images, run: Run | str | os.PathLike, *, memory_mib: int = 1024, n_jobs: int | None = None):
    """Images (rows, columns), or several of them, denoised by a trained run, tile by tile: the tiles
    that are computed at a time stay within `memory_mib`."""
    folder = run.folder if isinstance(run, Run) else Path(run)
    return _apply(_retrograd.Denoiser(folder), images, memory_mib, _threads(n_jobs))


def _apply(denoiser, images, memory_mib: int, n_threads: int) -> np.ndarray:
    given = numbers("images", images)
    if given.ndim < 2:
        raise ValueError(f"images: got the shape {list(given.shape)}, needs [rows, columns] or more axes")
    flat = given.reshape(-1, *given.shape[-2:])
    if flat.shape[0] == 0:
        raise ValueError(f"images: got the shape {list(given.shape)}, needs at least one image")
    clean = [denoiser.apply(np.ascontiguousarray(i), int(memory_mib), n_threads) for i in flat]
    return np.stack(clean).reshape(given.shape)


