"""How the modules for PyTorch call the kernels: a function for autograd over an engine's forward and
backward, and a module whose parameters are views of the engine's flat vector."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

_TYPES = {torch.float32: np.float32, torch.float64: np.float64}


class _Function(torch.autograd.Function):
    """One forward of an engine, and the backward that follows it."""

    @staticmethod
    def forward(ctx, module, call, x, weight, attr, *params):
        keep = any(ctx.needs_input_grad)
        flat = module._flat.numpy()
        arrays = [None if t is None else t.detach().numpy() for t in (x, weight, attr)]
        y, tape = call.forward(flat, arrays, keep)
        ctx.module, ctx.call, ctx.tape = module, call, tape
        ctx.given = [t is not None for t in (x, weight, attr)]
        ctx.save_for_backward(*(t for t in (x, weight, attr) if t is not None), *params)
        return torch.from_numpy(y)

    @staticmethod
    def backward(ctx, d_y):
        if torch.is_grad_enabled():
            raise RuntimeError(
                "retrograd.torch: a gradient of a gradient was asked for (create_graph=True); "
                "retrograd's kernels have first derivatives alone"
            )
        saved = list(ctx.saved_tensors)
        tensors = [saved.pop(0) if there else None for there in ctx.given]
        arrays = [None if t is None else t.detach().numpy() for t in tensors]
        of_input = any(ctx.needs_input_grad[2:5])
        of_params = any(ctx.needs_input_grad[5:])
        module, flat = ctx.module, ctx.module._flat.numpy()
        d_y = d_y.contiguous().numpy()
        d_params, d_input = ctx.call.backward(flat, arrays, ctx.tape, d_y, of_params, of_input)
        gradients, first = [], 0
        for tensor, wanted in zip(tensors, ctx.needs_input_grad[2:5]):
            if tensor is None or d_input is None:
                gradients.append(None)
                continue
            part = d_input[first : first + tensor.numel()]
            first += tensor.numel()
            gradients.append(torch.from_numpy(part).view(tensor.shape) if wanted else None)
        views = [None] * (len(ctx.needs_input_grad) - 5)
        if d_params is not None:
            views = module._views(torch.from_numpy(d_params))
            views = [v if wanted else None for v, wanted in zip(views, ctx.needs_input_grad[5:])]
        return (None, None, *gradients, *views)


class OnArrays:
    """Calls of a network."""

    def __init__(self, engine, training: bool, seed: int):
        self.engine, self.training, self.seed = engine, training, seed

    def forward(self, flat, arrays, keep):
        return self.engine.forward(flat, arrays[0], self.training, self.seed, keep)

    def backward(self, flat, arrays, tape, d_y, of_params, of_input):
        return self.engine.backward(flat, arrays[0], tape, d_y, of_params, of_input)


class Absorbing(OnArrays):
    """Calls of a network whose running statistics follow training."""

    def __init__(self, module, engine, training, seed):
        super().__init__(engine, training, seed)
        self.module = module

    def forward(self, flat, arrays, keep):
        moves = self.training and self.module._moves
        y, tape = super().forward(flat, arrays, keep or moves)
        if moves:
            self.engine.absorb(tape)
            self.module._take_buffers(self.engine)
        return y, tape


class OnGraph:
    """Calls of a network over a graph."""

    def __init__(self, engine, graph, training: bool, seed: int):
        self.engine, self.graph, self.training, self.seed = engine, graph, training, seed

    def forward(self, flat, arrays, keep):
        x, weight, attr = arrays
        return self.engine.forward(flat, self.graph, x, weight, attr, self.training, self.seed, keep)

    def backward(self, flat, arrays, tape, d_y, of_params, of_input):
        x, weight, attr = arrays
        return self.engine.backward(
            flat, self.graph, x, tape, d_y, weight, attr, of_params, of_input
        )


class OnGrids:
    """Calls of an automaton."""

    def __init__(self, engine, fire):
        self.engine, self.fire = engine, fire

    def forward(self, flat, arrays, keep):
        return self.engine.forward(flat, arrays[0], self.fire, keep)

    def backward(self, flat, arrays, tape, d_y, of_params, of_input):
        return self.engine.backward(
            flat, arrays[0], tape, d_y, self.fire, of_params, of_input
        )


class Module(nn.Module):
    """Parameters as views of one flat vector, and what calls an engine with it."""

    #: What stands before the names of the only layer's tensors.
    _prefix = ""

    def _begin(self, engine, seed: int | None) -> None:
        if seed is None:
            # PyTorch's own generator decides: torch.manual_seed is obeyed.
            seed = int(torch.randint(2**31 - 1, ()))
        self._engine = engine
        self._layout = [
            (name.removeprefix(self._prefix), shape, order, offset)
            for name, shape, order, offset in engine.places()
        ]
        self._flat = torch.from_numpy(engine.init(seed))
        for (name, *_), view in zip(self._layout, self._views(self._flat)):
            owner, leaf = self._owner(name)
            owner.register_parameter(leaf, nn.Parameter(view))
        for name, values in engine.buffers():
            owner, leaf = self._owner(name.removeprefix(self._prefix))
            owner.register_buffer(leaf, torch.from_numpy(values.copy()))
        self._buffer_names = [name for name, _ in engine.buffers()]
        self._told: dict[str, tuple[int, int]] = {}
        self._tell_buffers()

    def _owner(self, name: str) -> tuple[nn.Module, str]:
        *path, leaf = name.split(".")
        owner: nn.Module = self
        for part in path:
            if part not in owner._modules:
                owner.add_module(part, nn.Module())
            owner = owner._modules[part]
        return owner, leaf

    def _views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """The tensors of a flat vector, in PyTorch's shapes."""
        views = []
        for _, shape, order, offset in self._layout:
            size = 1
            for n in shape:
                size *= n
            stored = flat[offset : offset + size].view([shape[axis] for axis in order])
            views.append(stored.permute([order.index(axis) for axis in range(len(order))]))
        return views

    def _params(self) -> list[nn.Parameter]:
        found = self.__dict__.get("_found")
        if found is None:
            found = []
            for name, *_ in self._layout:
                owner, leaf = self._owner(name)
                found.append((owner._parameters, leaf))
            self.__dict__["_found"] = found
        return [owner[leaf] for owner, leaf in found]

    def _flatten(self, params: list[nn.Parameter]) -> None:
        """Makes the parameters views of one vector again, where a copy, a cast or a load has made
        tensors of their own of them."""
        flat = self._flat
        start, size = flat.data_ptr(), flat.element_size()
        if all(
            p.dtype == flat.dtype and p.data_ptr() == start + offset * size
            for p, (*_, offset) in zip(params, self._layout)
        ) and all(p.stride() == v for p, v in zip(params, self._strides())):
            return
        kinds = {p.dtype for p in params}
        if len(kinds) != 1 or not kinds <= set(_TYPES) or any(p.device.type != "cpu" for p in params):
            raise TypeError(
                f"parameters: got {', '.join(sorted(str(k) for k in kinds))} on "
                f"{params[0].device}, needs all float32 or all float64 on the CPU"
            )
        self._gather(params, kinds.pop())

    def _gather(self, params: list[nn.Parameter], kind: torch.dtype) -> None:
        """Copies the parameters into one vector, and makes them views of it."""
        self._flat = torch.empty(sum(p.numel() for p in params), dtype=kind)
        with torch.no_grad():
            for param, view in zip(params, self._views(self._flat)):
                view.copy_(param)
                param.data = view

    def _strides(self) -> list[tuple[int, ...]]:
        strides = self.__dict__.get("_known_strides")
        if strides is None:
            strides = [view.stride() for view in self._views(self._flat)]
            self.__dict__["_known_strides"] = strides
        return strides

    def _tell_buffers(self, engine=None) -> None:
        """Lets the engine know of buffers that were loaded or changed."""
        for name in self._buffer_names:
            owner, leaf = self._owner(name.removeprefix(self._prefix))
            tensor = owner._buffers[leaf]
            state = (tensor.data_ptr(), tensor._version)
            if engine is not None or self._told.get(name) != state:
                values = np.asarray(tensor.detach().numpy(), dtype=np.float64, order="C")
                (engine or self._engine).set_buffer(name, values)
                self._told[name] = state

    def _take_buffers(self, engine) -> None:
        """Takes over the statistics that a training step has moved."""
        with torch.no_grad():
            for name, values in engine.buffers():
                owner, leaf = self._owner(name.removeprefix(self._prefix))
                tensor = owner._buffers[leaf]
                tensor.copy_(torch.from_numpy(values))
                self._told[name] = (tensor.data_ptr(), tensor._version)

    def _input(self, what: str, value) -> torch.Tensor:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{what}: got {type(value).__name__}, needs a tensor")
        if value.device.type != "cpu":
            raise TypeError(f"{what}: got a tensor on {value.device}, needs one on the CPU")
        if value.layout != torch.strided:
            raise TypeError(f"{what}: got a sparse tensor, needs a dense one; .to_dense() makes one")
        if value.dtype != self._flat.dtype:
            raise TypeError(f"{what}: got {value.dtype}, needs {self._flat.dtype}, as the parameters")
        return value.contiguous()

    @torch.compiler.disable
    def _call(self, make, x, weight=None, attr=None):
        params = self._params()
        self._flatten(params)
        self._tell_buffers()
        x = self._input("x", x)
        if weight is not None:
            weight = self._input("edge_weight", weight)
        if attr is not None:
            attr = self._input("edge_attr", attr)
        return _Function.apply(self, make(), x, weight, attr, *params)

    @property
    def params(self) -> np.ndarray:
        """A copy of the parameters as one vector of float32."""
        self._flatten(self._params())
        return self._flat.numpy().astype(np.float32)

    # Engines are made anew where a module is copied, pickled or sent to a worker.

    def _make_engine(self):
        raise NotImplementedError

    def __getstate__(self):
        state = dict(self.__dict__)
        for name in ("_engine", "_engines", "_flat", "_found", "_known_strides", "_last"):
            state.pop(name, None)
        state["_told"] = {}
        return state

    def __setstate__(self, state) -> None:
        super().__setstate__(state)
        self._engine = self._make_engine()
        params = self._params()
        self._gather(params, params[0].dtype)
        self._tell_buffers()
