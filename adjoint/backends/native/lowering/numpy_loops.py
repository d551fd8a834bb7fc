"""NumPy's own inner loops as launches: machine code calls small linear algebra without Python.

A solve or an inverse of a few unknowns takes less time than the call of NumPy's function around it.
NumPy's universal functions hold the C function that computes them; it is called here by its address
with the arrays' memory, so the bits are NumPy's. Where it fails (a singular matrix), it fills its
result with NaN: then Python computes again, and raises what is to be raised.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....core.arrays import address, inner_loop
from ....core.op import Op
from ...codegen.emit import Module
from ..runtime import object_code
from ..runtime.launch_list import Launch
from ..runtime.shared_code import function

_MOST = 1 << 15  # elements up to which one thread computes, with the GIL at hand soon

# Dimensions of the matrices that the functions take and give, as their signatures name them.
_CORES = {
    "inv": ("mm", "mm"),
    "solve": ("mm", "mn", "mn"),
    "det": ("mm", ""),
    "slogdet": ("mm", "", ""),
}
_FAILS = ("inv", "solve")
_FUNCTION, _DATA, _SIZES, _STEPS, _COUNT, _CHECKED, _ARRAYS = range(7)  # words of a launch
_MOST_ARRAYS = 4


class _InnerLoop(NamedTuple):
    """A C function `void(char **arrays, intp *sizes, intp *steps, void *data)`."""

    function: int
    data: int


@functools.cache
def _inner_loop(name: str) -> _InnerLoop | None:
    """The inner loop for float64 of a function of NumPy's linear algebra; None where this NumPy has
    none that is known.
    """
    if sys.implementation.name != "cpython":
        return None
    ufunc = getattr(getattr(np.linalg, "_umath_linalg", None), name, None)
    if type(ufunc) is not np.ufunc:
        return None
    cores = _CORES[name]
    wanted = "d" * (len(cores) - ufunc.nout) + "->" + "d" * ufunc.nout
    found = inner_loop(ufunc, wanted)
    return None if found is None else _InnerLoop(*found)


def bound(
    op: Op, inputs: Sequence[Any], outs: Sequence[Any], otherwise: Callable[[], object]
) -> Launch | None:
    """A launch that computes an op of arrays of float64 into `outs`; None where NumPy has no loop
    for it, or its batches broadcast. It calls `otherwise` where a result is NaN.
    """
    arrays = [*inputs, *outs]
    cores = _CORES.get(op.gufunc, ())
    if len(cores) != len(arrays) or not all(map(_is_plain, arrays)):
        return None
    if len({x.shape[: x.ndim - len(core)] for x, core in zip(arrays, cores, strict=True)}) > 1:
        return None
    batch = arrays[0].shape[: arrays[0].ndim - len(cores[0])]
    loop = _inner_loop(op.gufunc)
    if loop is None or len(batch) > 1 or sum(x.size for x in arrays) > _MOST:
        return None
    lengths = {
        name: size
        for x, core in zip(arrays, cores, strict=True)
        for name, size in zip(core, x.shape[x.ndim - len(core) :], strict=True)
    }
    sizes = np.array([*(batch or (1,)), *lengths.values()], np.int64)
    outer = [x.strides[0] if batch else 0 for x in arrays]
    inner = [
        step for x, core in zip(arrays, cores, strict=True) for step in x.strides[len(batch) :]
    ]
    steps = np.array([*outer, *inner], np.int64)
    checked = outs[0].size if op.gufunc in _FAILS else 0
    words = [loop.function, loop.data, address(sizes), address(steps), len(arrays), checked]
    words += [*map(address, arrays), 0]
    pointers = range(_ARRAYS, _ARRAYS + len(arrays))
    keeps = arrays, sizes, steps
    return Launch(
        _code(), 1, np.array(words, np.int64).tobytes(), pointers, False, False, keeps, otherwise
    )


def _is_plain(x: Any) -> bool:
    """Whether NumPy would give the array to the inner loop as it is."""
    return bool(type(x) is np.ndarray and x.dtype == np.float64 and x.size and x.flags.aligned)


@functools.cache
def _code() -> int:
    """The kernel: it calls the loop with pointers of its own, which the loop moves."""
    return object_code.library(__name__, _text, ["numpy_loop"])[0]


def _text() -> str:
    module = Module()
    with function(module, "void @numpy_loop(i64 %begin, i64 %end, ptr %words)") as (b, _, _, words):
        given = b.address(b.alloca(f"[{_MOST_ARRAYS} x ptr]"))
        count = b.get(b.place("i64", words, _COUNT, "i64"))
        last = count * 8 + 8 * (_ARRAYS - 1)
        with b.counting(count) as (k, _):
            b.put(b.place("i64", given, k * 8), b.get(b.place("i64", words, k * 8 + 8 * _ARRAYS)))
        loop, data, sizes, steps = (
            b.get(b.place("ptr", words, k, "i64")) for k in (_FUNCTION, _DATA, _SIZES, _STEPS)
        )
        b.invoke("void", loop, given, sizes, steps, data)
        checked = b.get(b.place("i64", words, _CHECKED, "i64"))
        out = b.get(b.place("ptr", words, last))
        with b.loop(0, checked) as k:
            x = b.get(b.place("double", out, k * 8))
            with b.when(b.compare("uno", x, x)):
                b.put(b.place("i64", words, last + 8), 1)
    return str(module)
