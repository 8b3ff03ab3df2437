"""PyTorch: modules and functions of tensors, and a mode in which every operation of the dispatcher rounds at
random."""

from __future__ import annotations

import contextlib
import functools
import math
from typing import Any, Callable, Iterator, Sequence

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .protocol import Code, Evaluation, Opaque, Refused, arguments_of
from .rounding import Rounding

_KINDS = {torch.float64: "float64", torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
_TYPES = {name: kind for kind, name in _KINDS.items()}

# Names of the dispatcher for what `rounding.MARGINS` calls otherwise.
_FUNCTIONS = {"special_erf": "erf", "special_erfc": "erfc", "pow_": "pow", "exp_": "exp", "tanh_": "tanh", "sigmoid_": "sigmoid"}


def _array(x: torch.Tensor) -> np.ndarray:
    return x.detach().to("cpu", torch.float64).numpy().copy()


class _Leaving(TorchFunctionMode):
    """Sees tensors leave PyTorch, and convolutions as sums of products before autograd takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.left: str | None = None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in ("numpy", "__array__", "data_ptr", "__dlpack__", "to_dlpack", "tolist"):
            self.left = self.left or name
        kwargs = kwargs or {}
        if name in ("conv1d", "conv2d", "conv3d") and not isinstance(kwargs.get("padding", 0), str):
            with self:
                return _convolution(*args, **kwargs)
        return func(*args, **kwargs)


def _convolution(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """A sum over the kernel's places: slices, products and additions, which autograd and the rounding follow."""
    if isinstance(padding, str):
        padding = [d * (k - 1) // 2 if padding == "same" else 0 for d, k in zip(_each(dilation, weight.ndim - 2), weight.shape[2:])]
    dims = weight.ndim - 2
    stride, padding, dilation = (_each(v, dims) for v in (stride, padding, dilation))
    if unbatched := input.ndim == dims + 1:
        input = input[None]
    x = torch.nn.functional.pad(input, [p for q in reversed(padding) for p in (q, q)])
    sizes = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], weight.shape[2:], stride, dilation)]
    batch, out = x.shape[0], weight.shape[0]
    columns = []
    for place in np.ndindex(*weight.shape[2:]):
        window = x
        for axis, (at, s, d, n) in enumerate(zip(place, stride, dilation, sizes)):
            window = window.narrow(axis + 2, at * d, s * (n - 1) + 1)[(slice(None),) * (axis + 2) + (slice(None, None, s),)]
        columns.append(window.reshape(batch, groups, -1, math.prod(sizes)))
    # (batch, groups, places × channels, positions) by (groups, out / groups, places × channels).
    kernel = weight.reshape(groups, out // groups, weight.shape[1], -1).transpose(2, 3).reshape(groups, out // groups, -1)
    y = torch.matmul(kernel[None], torch.cat(columns, 2)).reshape(batch, out, *sizes)
    if bias is not None:
        y = y + bias.reshape(-1, *[1] * dims)
    return y[0] if unbatched else y


def _each(value, dims: int) -> list[int]:
    return [int(v) for v in value] * (dims if len(value) == 1 else 1) if isinstance(value, (tuple, list)) else [int(value)] * dims


class Rounded(TorchDispatchMode):
    """Every floating result of an operation, rounded at random."""

    def __init__(self, rounding: Rounding):
        super().__init__()
        self.rounding = rounding
        self.opaque: str | None = None
        self._decompositions = _decompositions()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        # What the rounding itself does is not the code's.
        with torch._C.DisableTorchFunction():
            return self._dispatch(func, args, dict(kwargs or {}))

    def _dispatch(self, func, args, kwargs):
        if isinstance(kwargs.get("dtype"), torch.dtype) and kwargs["dtype"] in (torch.float32, torch.float16, torch.bfloat16):
            # A cast within the code is a cast of what is rounded already.
            kwargs["dtype"] = torch.float64
        if func.namespace not in ("aten", "prims", "prim", "_c10d_functional"):
            self.opaque = self.opaque or str(func)
        if self.rounding.exact:
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        handler = _HANDLERS.get(name)
        if handler is not None and "out" not in kwargs:
            told = handler(self.rounding, *args, **kwargs)
            if told is not NotImplemented:
                return told
        if func in self._decompositions and handler is None:
            with self:
                return self._decompositions[func](*args, **kwargs)
        return self._rounded(func, name, args, kwargs)

    def _rounded(self, func, name: str, args, kwargs):
        told = func(*args, **kwargs)
        if func.is_view:
            return told
        known = _FUNCTIONS.get(name, name.removesuffix("_"))
        results = [t for t in _pytree.tree_leaves(told) if isinstance(t, torch.Tensor) and t.dtype == torch.float64]
        pointwise = torch.Tag.pointwise in func.tags or name.endswith("_")
        if not pointwise and any(not np.array_equal(a, self.rounding.round(a), equal_nan=True) for a in map(_array, results)):
            # It computed, and how is not known: off as if its inputs were.
            args, kwargs = _pytree.tree_map_only(torch.Tensor, self._perturbed, (args, kwargs))
            told = func(*args, **kwargs)
            results = [t for t in _pytree.tree_leaves(told) if isinstance(t, torch.Tensor) and t.dtype == torch.float64]
        for t in results:
            _set(t, self.rounding.function(known, _array(t)))
        return told

    def _perturbed(self, t: torch.Tensor):
        return _tensor(self.rounding.perturb(_array(t)), t) if t.dtype == torch.float64 else t


# Operations that PyTorch's own list of decompositions leaves whole.
_WHOLE = (
    "native_layer_norm", "native_layer_norm_backward", "native_group_norm", "native_group_norm_backward",
    "native_batch_norm", "native_batch_norm_backward", "_native_batch_norm_legit", "_native_batch_norm_legit_functional",
    "_batch_norm_with_update", "cudnn_batch_norm", "_softmax", "_log_softmax", "_softmax_backward_data",
    "_log_softmax_backward_data", "var", "var_mean", "std", "std_mean", "logsumexp", "gelu", "gelu_backward", "silu",
    "silu_backward", "softplus", "softplus_backward", "nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward",
    "nll_loss2d_backward", "_fused_rms_norm", "_fused_rms_norm_backward", "addmm", "addmv", "baddbmm", "addcmul", "addcdiv",
    "sigmoid_backward", "tanh_backward", "norm", "linalg_vector_norm", "embedding_dense_backward", "mse_loss",
    "mse_loss_backward", "huber_loss", "huber_loss_backward", "smooth_l1_loss", "smooth_l1_loss_backward",
    "binary_cross_entropy", "binary_cross_entropy_backward", "log_sigmoid_forward", "log_sigmoid_backward", "elu",
    "elu_backward",
)  # fmt: skip


@functools.lru_cache(maxsize=1)
def _decompositions() -> dict:
    """Operations of many steps (softmax, norms, losses …) as their steps. What only makes or moves memory stays."""
    moves = ("_like", "empty", "full", "zeros", "copy", "slice", "select", "expand", "view")
    table = torch._decomp.core_aten_decompositions()
    told = {op: how for op, how in table.items() if not any(word in str(op) for word in moves)}
    for op, how in torch._decomp.decomposition_table.items():
        if isinstance(op, torch._ops.OpOverload) and op.overloadpacket.__name__ in _WHOLE:
            told.setdefault(op, how)
    return told


def _set(t: torch.Tensor, value: np.ndarray) -> None:
    t.copy_(_tensor(value, t))


def _tensor(value: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.array(value, dtype=np.float64, order="C")).to(like.device)


def _is_real(*values) -> bool:
    return all(isinstance(v, torch.Tensor) and v.dtype == torch.float64 for v in values)


def _add(sign: float) -> Callable:
    def add(rounding: Rounding, a, b, alpha=1):
        if not _is_real(a, b):
            return NotImplemented
        b = rounding.round(float(alpha) * _array(b)) if alpha != 1 else _array(b)
        return _tensor(rounding.add(_array(a), sign * b), a)

    return add


def _add_in_place(rounding: Rounding, a, b, alpha=1):
    if not _is_real(a, b):
        return NotImplemented
    b = rounding.round(float(alpha) * _array(b)) if alpha != 1 else _array(b)
    _set(a, rounding.add(_array(a), b))
    return a


def _sum(rounding: Rounding, x, dim=None, keepdim=False, *, dtype=None):
    if not _is_real(x):
        return NotImplemented
    axes = None if dim is None or dim == [] else tuple([dim] if isinstance(dim, int) else dim)
    return _tensor(rounding.sum(_array(x), axes, keepdim), x)


def _mean(rounding: Rounding, x, dim=None, keepdim=False, *, dtype=None):
    total = _sum(rounding, x, dim, keepdim)
    if total is NotImplemented:
        return total
    count = x.numel() / max(total.numel(), 1)
    return _tensor(rounding.round(_array(total) / count) if count else _array(total) * np.nan, x)


def _matmul(rounding: Rounding, a, b):
    return _tensor(rounding.matmul(_array(a), _array(b)), a) if _is_real(a, b) else NotImplemented


def _dot(rounding: Rounding, a, b):
    return _tensor(rounding.sum(rounding.round(_array(a) * _array(b))), a) if _is_real(a, b) else NotImplemented


def _vector(rounding: Rounding, a, b):
    return _tensor(rounding.matmul(_array(a), _array(b)[:, None])[:, 0], a) if _is_real(a, b) else NotImplemented


def _cumsum(rounding: Rounding, x, dim, *, dtype=None):
    return _tensor(rounding.cumulative_sum(_array(x), dim), x) if _is_real(x) and x.ndim else NotImplemented


_HANDLERS: dict[str, Callable] = {
    "add": _add(1.0), "sub": _add(-1.0), "add_": _add_in_place, "sum": _sum, "mean": _mean,
    "mm": _matmul, "bmm": _matmul, "dot": _dot, "mv": _vector, "cumsum": _cumsum,
}  # fmt: skip


@contextlib.contextmanager
def _quiet(poisoned: bool) -> Iterator[None]:
    """The same random numbers in every call; new memory filled with NaN where that is asked for."""
    was = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    devices = [0] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices), torch.enable_grad():
        torch.manual_seed(0)
        try:
            if poisoned:
                torch.use_deterministic_algorithms(True, warn_only=True)
                torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
            yield
        finally:
            torch.use_deterministic_algorithms(was[0], warn_only=was[1])
            torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]


def _in_form(x: torch.Tensor, form: str) -> torch.Tensor:
    """The same numbers in other memory; NaN where the tensor has none of its elements."""
    if form == "strided":
        room = torch.full((*x.shape, 2), math.nan, dtype=x.dtype, device=x.device)
        room[..., 0] = x
        return room[..., 0]
    if form == "transposed" and x.ndim > 1:
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if form == "broadcast" and x.ndim and x.numel():
        axis = int(np.argmax(x.shape))
        return x.narrow(axis, 0, 1).clone().expand(x.shape)
    return x


class TorchCode(Code):
    """A module or a function. Leaves are the arguments' tensors of floating numbers and a module's parameters."""

    forms = ("strided", "transposed")
    broadcasts = True
    subsets = True
    poison = True

    def __init__(self, function: Callable[..., Any], example: Any, like: TorchCode | None = None):
        self.function = function
        self.arguments = arguments_of(example)
        self.module = function if isinstance(function, torch.nn.Module) else None
        flat, self.structure = _pytree.tree_flatten(self.arguments)
        self.flat = flat
        self.places = [i for i, t in enumerate(flat) if isinstance(t, torch.Tensor) and t.dtype in _KINDS]
        parameters = dict(self.module.named_parameters()) if self.module is not None else {}
        self.parameters = list(parameters)
        self.buffers = dict(self.module.named_buffers()) if self.module is not None else {}
        tensors = [flat[i] for i in self.places] + list(parameters.values())
        self.names = [f"input {i}" for i in self.places] + self.parameters
        self.kinds = [_KINDS[t.dtype] for t in tensors]
        self.devices = [t.device for t in tensors]
        self.values = [_array(t) for t in tensors]
        asked = [i for i, t in enumerate(tensors[: len(self.places)]) if t.requires_grad] or range(len(self.places))
        trained = [len(self.places) + i for i, p in enumerate(parameters.values()) if p.requires_grad]
        self.wanted = [*asked, *trained]
        if like is not None:
            self.wanted = like.wanted
        if not self.wanted:
            raise ValueError("example: needs a tensor of floating numbers")

    def _call(self, leaves: Sequence[torch.Tensor], wide: bool) -> list[torch.Tensor]:
        flat = list(self.flat)
        for place, leaf in zip(self.places, leaves):
            flat[place] = leaf
        arguments = _pytree.tree_unflatten(flat, self.structure)
        if self.module is None:
            told = self.function(*arguments)
        else:
            state = dict(zip(self.parameters, leaves[len(self.places) :]))
            for name, buffer in self.buffers.items():
                state[name] = buffer.clone().double() if wide and buffer.dtype in _KINDS else buffer.clone()
            told = torch.func.functional_call(self.module, state, arguments)
        tensors = [t for t in _pytree.tree_leaves(told) if isinstance(t, torch.Tensor)]
        return [t for t in tensors if t.dtype in _KINDS]

    def _leaves(self, values, kind: str, form: str, wanted) -> list[torch.Tensor]:
        kinds = self.kinds if kind == "own" else [kind] * len(self.kinds)
        leaves = []
        for i, (value, own, device) in enumerate(zip(values, kinds, self.devices)):
            leaf = torch.tensor(np.ascontiguousarray(value), dtype=_TYPES[own], device=device)
            leaf = _in_form(leaf, form if i in self.wanted else "plain")
            leaves.append(leaf.requires_grad_(i in wanted))
        return leaves

    def evaluate(self, values, kind, cotangents, *, form="plain", wanted=None, poisoned=False) -> Evaluation:
        wanted = self.wanted if wanted is None else list(wanted)
        leaves = self._leaves(values, kind, form, wanted)
        copies = [leaf.detach().clone() for leaf in leaves]
        with _refusing(), _quiet(poisoned):
            outputs = self._call(leaves, kind == "float64")
            told = Evaluation([_array(y) for y in outputs], [None] * len(leaves), [_KINDS[y.dtype] for y in outputs])
            if cotangents is None:
                return told
            given = [_cotangent(w, y, form) for w, y in zip(cotangents, outputs)]
            self._keep(told, leaves, wanted, _gradients(outputs, [leaves[i] for i in wanted], given))
        for name, leaf, copy in zip(self.names, leaves, copies):
            if not torch.equal(leaf.detach().nan_to_num(), copy.nan_to_num()):
                told.touched.append(name)
        for i, (seed, w) in enumerate(zip(given, cotangents)):
            if not np.array_equal(_array(seed), _array(torch.tensor(w, dtype=seed.dtype))):
                told.touched.append(f"the gradient of output {i}")
        return told

    def sample(self, values, kind, cotangents, seed) -> Evaluation:
        leaves = self._leaves(values, "float64", "plain", self.wanted)
        mode, leaving = Rounded(Rounding(kind, seed)), _Leaving()
        plain = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
        given = [torch.tensor(w, dtype=torch.float64) for w in cotangents]
        with _refusing(), _quiet(False), plain, leaving, mode:
            outputs = self._call(leaves, True)
            given = [w.to(y.device) for w, y in zip(given, outputs)]
            gradients = _gradients(outputs, [leaves[i] for i in self.wanted], given)
        if kind != "float64" and (mode.opaque or leaving.left):
            raise Opaque(mode.opaque or leaving.left or "")
        told = Evaluation([_array(y) for y in outputs], [None] * len(leaves), ["float64"] * len(outputs))
        self._keep(told, leaves, self.wanted, gradients)
        return told

    @staticmethod
    def _keep(told: Evaluation, leaves, wanted, gradients) -> None:
        for i, g in zip(wanted, gradients):
            # What is not used has a gradient of zeros.
            told.gradients[i] = np.zeros(leaves[i].shape) if g is None else _array(g)


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Errors of the code's own, as such."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError, NotImplementedError) as error:
        first = str(error).splitlines()[0] if str(error) else ""
        raise Refused(f"{type(error).__name__}: {first}") from error


def _cotangent(w: np.ndarray, y: torch.Tensor, form: str) -> torch.Tensor:
    """The gradient of an output, in the form of memory that is asked for."""
    seed = torch.tensor(w, dtype=y.dtype, device=y.device)
    if form == "expanded" and w.size:
        return seed.reshape(-1)[:1].reshape([1] * y.ndim).expand(y.shape)
    return _in_form(seed, "plain" if form == "broadcast" else form)


def _gradients(outputs, leaves, given) -> Sequence[torch.Tensor | None]:
    pairs = [(y, w) for y, w in zip(outputs, given) if y.requires_grad]
    if not pairs:
        return [None] * len(leaves)
    return torch.autograd.grad([y for y, _ in pairs], leaves, [w for _, w in pairs], allow_unused=True)
