"""What the package stands on: arrays in, arrays out."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Circuit",
    "Denoiser",
    "Graph",
    "GraphNetwork",
    "InternalError",
    "LogicCa",
    "Model",
    "Network",
    "Tape",
    "VERSION",
    "command",
    "experiment_json",
    "experiment_text",
    "experiments",
    "find_formula",
    "fit",
    "forked",
    "panic_for_a_test",
    "predict",
    "read_tensors",
    "threads",
    "train",
    "verify_built_in",
    "verify_bundles",
]

VERSION: str

_Floats = NDArray[np.float32] | NDArray[np.float64]
_Place = tuple[str, list[int], list[int], int]
_Checked = tuple[bool, str, str]
_Path = str | PathLike[str]

class InternalError(RuntimeError): ...

@final
class Tape: ...

class Model:
    def places(self) -> list[_Place]: ...
    def buffers(self) -> list[tuple[str, NDArray[np.float64]]]: ...
    def set_buffer(self, name: str, values: NDArray[np.float64]) -> None: ...
    def init(self, seed: int) -> NDArray[np.float32]: ...
    def absorb(self, tape: Tape) -> None: ...

@final
class Network(Model):
    def __new__(cls, spec: str) -> Network: ...
    @property
    def input_shape(self) -> list[int]: ...
    @property
    def output_shape(self) -> list[int]: ...
    def forward(
        self, params: _Floats, x: _Floats, training: bool = False, seed: int = 0, keep: bool = False
    ) -> tuple[_Floats, Tape | None]: ...
    def backward(
        self,
        params: _Floats,
        x: _Floats,
        tape: Tape,
        d_output: _Floats,
        of_params: bool = True,
        of_input: bool = True,
    ) -> tuple[_Floats | None, _Floats | None]: ...
    def seconds_per_forward(self, params: NDArray[np.float32], x: NDArray[np.float32], repeats: int) -> float: ...
    def plot(self, params: NDArray[np.float32], x: NDArray[np.float32], png: bool) -> str | bytes: ...
    def formula(
        self,
        params: NDArray[np.float32],
        x: NDArray[np.float64],
        y: NDArray[np.float64],
        inputs: tuple[Sequence[float], Sequence[float]],
        outputs: tuple[Sequence[float], Sequence[float]],
        threshold: float,
        decimals: int,
    ) -> tuple[list[tuple[str, str]], float]: ...
    def verify(
        self,
        name: str,
        params: NDArray[np.float32],
        x: NDArray[np.float32],
        target: NDArray[Any],
        loss: str,
        quick: bool,
    ) -> _Checked: ...

@final
class Graph:
    def __new__(
        cls,
        nodes: int,
        edge_index: NDArray[np.int64],
        self_loops: str = "keep",
        duplicates: str = "keep",
        graph_of_node: NDArray[np.int64] | None = None,
        graphs: int = 1,
    ) -> Graph: ...
    @property
    def nodes(self) -> int: ...
    @property
    def edges(self) -> int: ...
    @property
    def graphs(self) -> int: ...
    def kept(self) -> NDArray[np.int64]: ...
    def edge_index(self) -> NDArray[np.int64]: ...

@final
class GraphNetwork(Model):
    def __new__(cls, spec: str) -> GraphNetwork: ...
    @property
    def output_width(self) -> int: ...
    def forward(
        self,
        params: _Floats,
        graph: Graph,
        x: _Floats,
        edge_weight: _Floats | None = None,
        edge_attr: _Floats | None = None,
        training: bool = False,
        seed: int = 0,
        keep: bool = False,
    ) -> tuple[_Floats, Tape | None]: ...
    def backward(
        self,
        params: _Floats,
        graph: Graph,
        x: _Floats,
        tape: Tape,
        d_output: _Floats,
        edge_weight: _Floats | None = None,
        edge_attr: _Floats | None = None,
        of_params: bool = True,
        of_input: bool = True,
    ) -> tuple[_Floats | None, _Floats | None]: ...
    def verify(
        self,
        name: str,
        params: NDArray[np.float32],
        graph: Graph,
        x: NDArray[np.float32],
        target: NDArray[Any],
        loss: str,
        quick: bool,
        edge_weight: NDArray[np.float32] | None = None,
        edge_attr: NDArray[np.float32] | None = None,
    ) -> _Checked: ...

@final
class LogicCa(Model):
    def __new__(cls, spec: str, seed: int) -> LogicCa: ...
    def forward(
        self, params: _Floats, state: _Floats, fire: NDArray[np.bool_] | None = None, keep: bool = False
    ) -> tuple[_Floats, Tape | None]: ...
    def backward(
        self,
        params: _Floats,
        state: _Floats,
        tape: Tape,
        d_output: _Floats,
        fire: NDArray[np.bool_] | None = None,
        of_params: bool = True,
        of_input: bool = True,
    ) -> tuple[_Floats | None, _Floats | None]: ...
    def circuit(self, params: NDArray[np.float32]) -> Circuit: ...
    def verify(
        self,
        name: str,
        params: NDArray[np.float32],
        state: NDArray[np.float32],
        target: NDArray[Any],
        loss: str,
        quick: bool,
    ) -> _Checked: ...

@final
class Circuit:
    def __new__(cls, json: str) -> Circuit: ...
    @property
    def gates(self) -> int: ...
    @property
    def channels(self) -> int: ...
    def json(self) -> str: ...
    def c(self) -> str: ...
    def verilog(self) -> str: ...
    def svg(self) -> str: ...
    def step(
        self, state: NDArray[np.bool_], steps: int, fire: NDArray[np.bool_] | None = None
    ) -> NDArray[np.bool_]: ...

@final
class Denoiser:
    def __new__(cls, run: _Path) -> Denoiser: ...
    def apply(self, image: NDArray[np.float32], memory_mib: int, threads: int) -> NDArray[np.float32]: ...

def find_formula(
    x: NDArray[np.float32],
    y: NDArray[np.float32],
    sizes: Sequence[int],
    range: Sequence[float],
    starts: int,
    threads: int,
) -> tuple[list[tuple[str, str]], float, float, int]: ...
def experiments() -> list[str]: ...
def experiment_text(name: str | None, json: str | None) -> str: ...
def experiment_json(text: str, path: _Path) -> str: ...
def train(
    text: str,
    path: _Path,
    base: _Path | None,
    folder: _Path,
    resume: bool,
    device: str,
    threads: int,
    verify: bool,
    every_epoch: bool,
    on_event: Callable[[str, str], Any] | None = None,
) -> str: ...
def fit(
    network: Network,
    train: str,
    x: NDArray[np.float32],
    y: NDArray[Any],
    classes: int = 0,
    weights: NDArray[np.float32] | None = None,
    validation: tuple[NDArray[np.float32], NDArray[Any], NDArray[np.float32] | None] | None = None,
    update_grid: tuple[int, int] | None = None,
    device: str = "cpu",
    threads: int = 0,
    on_event: Callable[[str, str], Any] | None = None,
) -> tuple[NDArray[np.float32], str]: ...
def predict(run: _Path, files: list[_Path], threads: int) -> list[tuple[str, list[str]]]: ...
def read_tensors(path: _Path) -> list[tuple[str, NDArray[Any]]]: ...
def verify_bundles(paths: Sequence[_Path]) -> _Checked: ...
def verify_built_in(mutants: bool) -> _Checked: ...
def command(args: Sequence[str]) -> int: ...
def forked() -> None: ...
def threads() -> int: ...
def panic_for_a_test() -> None: ...
