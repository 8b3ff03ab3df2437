"""What users give, as arrays that the engine borrows."""

from __future__ import annotations

import numpy as np


def is_sparse(value) -> bool:
    """Whether it is a sparse matrix of SciPy's."""
    return hasattr(value, "tocsr") and hasattr(value, "nnz")


def numbers(what: str, value, dtype=np.float32) -> np.ndarray:
    """An array of numbers in C order. Copied only where type or order differ.

    >>> numbers("x", [[1, 2], [3, 4]]).dtype
    dtype('float32')
    >>> numbers("x", ["a"])
    Traceback (most recent call last):
    ...
    TypeError: x: got an array of <U1, needs numbers
    """
    if type(value) is np.ndarray and value.dtype == dtype and value.flags.c_contiguous:
        return value
    if value is None:
        raise TypeError(f"{what}: got None, needs numbers")
    if is_sparse(value):
        raise TypeError(f"{what}: got a sparse matrix, needs a dense array; .toarray() makes one")
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        value = value.detach().cpu().numpy()
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{what}: rows of different lengths, needs an array: {error}") from None
    kind = array.dtype.kind
    if kind == "O":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{what}: got an array of objects, needs numbers: {error}") from None
    elif kind == "c":
        raise ValueError(f"{what}: got complex numbers, needs real ones")
    elif kind not in "fiub":
        raise TypeError(f"{what}: got an array of {array.dtype}, needs numbers")
    return np.asarray(array, dtype=dtype, order="C")


def whole(what: str, value) -> np.ndarray:
    """An array of whole numbers, int64, in C order."""
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        value = value.detach().cpu().numpy()
    array = np.asarray(value)
    if array.size == 0:
        return np.ascontiguousarray(array, dtype=np.int64)
    if array.dtype.kind == "f" and not np.all(np.floor(array) == array):
        raise ValueError(f"{what}: got fractions, needs whole numbers")
    if array.dtype.kind not in "iubf":
        raise TypeError(f"{what}: got an array of {array.dtype}, needs whole numbers")
    return np.ascontiguousarray(array, dtype=np.int64)


def from_flat(places, flat: np.ndarray) -> dict[str, np.ndarray]:
    """The tensors of a flat vector under their names, in PyTorch's shapes; views of it."""
    tensors = {}
    for name, shape, order, offset in places:
        stored = flat[offset : offset + int(np.prod(shape, dtype=np.int64))]
        stored = stored.reshape([shape[axis] for axis in order])
        tensors[name] = stored.transpose(np.argsort(order))
    return tensors


def into_flat(places, tensors, flat: np.ndarray, what: str = "state") -> None:
    """Writes tensors under their names into a flat vector."""
    views = from_flat(places, flat)
    for name, view in views.items():
        if name not in tensors:
            raise ValueError(f"{what}: has no {name!r}, needs it with shape {list(view.shape)}")
        value = numbers(name, tensors[name], flat.dtype)
        if value.shape != view.shape:
            raise ValueError(
                f"{name}: got the shape {list(value.shape)}, needs {list(view.shape)}"
            )
        if not np.isfinite(value).all():
            raise ValueError(f"{name}: got NaN or an infinity, needs finite numbers")
        view[...] = value
