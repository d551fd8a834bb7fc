"""Kernels touch their arrays and nothing else, and outputs may overlap inputs."""

import ctypes
import mmap
import subprocess
import sys

import numpy as np
import pytest

from adjoint.backends.codegen import Compiled, Kernel

PAGE = mmap.PAGESIZE


class Guarded:
    """Arrays between two pages that nobody may touch."""

    def __init__(self, pages: int = 2) -> None:
        self.memory = mmap.mmap(-1, (pages + 2) * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for at in (start, start + (pages + 1) * PAGE):
            assert protect(at, PAGE, 0) == 0
        self.bytes = np.frombuffer(self.memory, np.uint8, pages * PAGE, PAGE)

    def array(self, shape: tuple[int, ...], dtype: str, at_end: bool) -> np.ndarray:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        part = self.bytes[-size:] if at_end else self.bytes[:size]
        return part.view(dtype).reshape(shape)


def kernels(dtype: str) -> list[tuple[Kernel, int]]:
    """With the number of inputs."""
    made = []
    for name in ("add", "exp", "softmax", "sum", "columns", "index"):
        k = Kernel(rank=2)
        x = k.input(dtype)
        if name == "add":
            k.output(x + k.input(dtype))
        elif name == "index":
            k.output(k.cast(k.index(1), dtype) + x)
        elif name == "sum":
            k.output(k.sum(x, axes=(1,)))
        elif name == "columns":
            k.output(k.sum(x, axes=(0,)))
        elif name == "exp" and dtype.startswith("float"):
            k.output(k.sin(k.exp(x)))
        elif name == "softmax" and dtype.startswith("float"):
            e = k.exp(x - k.max(x, axes=(1,)))
            k.output(e / k.sum(e, axes=(1,)))
        else:
            continue
        made.append((k, len(k.inputs)))
    return made


def touch_everything() -> None:
    guards = [Guarded() for _ in range(3)]
    for dtype in ("float32", "float64", "int8", "int16"):
        for kernel, inputs in kernels(dtype):
            f = Compiled(kernel)
            for n in [1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 65, 200]:
                for at_end in (False, True):
                    for view in (slice(None), slice(None, None, 2), slice(None, None, -3)):
                        arrays = [g.array((3, n), dtype, at_end)[:, view] for g in guards[:inputs]]
                        for x in arrays:
                            x[:] = 1
                        shape = arrays[0].shape
                        kept = tuple(shape[a] for a in kernel.outputs[0].axes)
                        f(*arrays, out=guards[2].array(kept, dtype, at_end))


def overreach() -> None:
    """Reads one element more than there is: the guard must notice."""
    x = Guarded().array((4,), "float32", at_end=True)
    k = Kernel(rank=1)
    k.output(k.input("float32") + 1)
    Compiled(k)(np.lib.stride_tricks.as_strided(x, (5,), (4,)))


@pytest.mark.parametrize(("what", "survives"), [("touch_everything", True), ("overreach", False)])
def test_nothing_outside_the_arrays_is_touched(what, survives):
    code = f"from tests.backends.codegen.test_memory import {what}; {what}()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode == 0) is survives, ended.stderr


def shifted(x: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(x[1:], x[:-1]), (x[:-1], x[1:]), (x, x[::-1]), (x[::-1], x), (x, x)]


@pytest.mark.parametrize("n", [5, 40, 5000])
def test_outputs_that_overlap_inputs_are_as_if_inputs_were_copied(n):
    k = Kernel(rank=1)
    k.output(k.input("float32") * 2 + 1)
    f = Compiled(k)
    for which in range(5):
        x = np.arange(n, dtype=np.float32)
        target, source = shifted(x)[which]
        wanted = source * 2 + 1
        assert f(source, out=target) is target
        np.testing.assert_array_equal(target, wanted)


def test_softmax_over_its_own_input():
    rng = np.random.default_rng(0)
    for axis in (0, 1):
        k = Kernel(rank=2)
        x = k.input("float32")
        e = k.exp(x - k.max(x, axes=(axis,)))
        k.output(e / k.sum(e, axes=(axis,)))
        k.output(k.sum(x, axes=(axis,)))
        f = Compiled(k)
        x = rng.standard_normal((33, 65), dtype=np.float32)
        wanted, sums = f(x)
        total = np.empty_like(sums)
        f(x, out=(x, total))
        np.testing.assert_array_equal(x, wanted)
        np.testing.assert_array_equal(total, sums)


def test_a_row_result_over_the_row_it_comes_from():
    k = Kernel(rank=2)
    k.output(k.sum(k.input("float32"), axes=(0,)))
    x = np.ones((300, 400), np.float32)
    out = Compiled(k)(x, out=x[0])
    np.testing.assert_array_equal(out, np.full(400, 300))
    np.testing.assert_array_equal(x[1:], np.ones((299, 400)))


def test_an_in_place_update_of_several_arrays():
    """As an optimizer does: outputs are the very inputs."""
    k = Kernel(rank=1)
    w, m, g = k.input("float32"), k.input("float32"), k.input("float32")
    later = m * 0.5 + g
    k.output(w - later * 0.1)
    k.output(later)
    w, m, g = (np.full(10_001, v, np.float32) for v in (1, 2, 3))
    Compiled(k)(w, m, g, out=(w, m))
    np.testing.assert_allclose(w, np.full(10_001, 0.6), rtol=1e-6)
    np.testing.assert_array_equal(m, np.full(10_001, 4))
