"""oneDNN between guard pages: an access outside an array ends the (child) process."""

from __future__ import annotations

import ctypes
import math
import mmap
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from adjoint.backends.native.gemm import products
from adjoint.backends.native.onednn import eager_convolution, pooling_plans
from adjoint.backends.native.onednn import plan as onednn_plan
from adjoint.core import policy

from .onednn_cases import needs_onednn
from .test_onednn_convolution import count, geometry, ints

SIZES = (1, 3, 5, 16, 17, 33, 64, 100, 129, 300)
KEPT = 500  # arrays that stay mapped: more than one round makes


class Guarded:
    """NumPy with arrays that touch a forbidden page, at their end or (`front`) their beginning."""

    def __init__(self):
        self.libc = ctypes.CDLL(None)
        self.libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self.front = False
        self.maps = []

    def __getattr__(self, name):
        return getattr(np, name)

    def empty(self, shape, dtype):
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        if not size:
            return np.empty(shape, dtype)
        page = mmap.PAGESIZE
        inside = -(-size // page) * page
        memory = mmap.mmap(-1, inside + 2 * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for guard in (start, start + page + inside):
            assert self.libc.mprotect(guard, page, 0) == 0
        self.maps = [*self.maps[-KEPT:], memory]
        offset = page if self.front else page + inside - size
        return np.ndarray(shape, dtype, memory, offset)

    def random(self, r, shape, dtype):
        array = self.empty(shape, dtype)
        array[...] = r.standard_normal(shape)
        return array


def main(seed: int, rounds: int) -> None:
    """Everything on random shapes, with inputs and results between guards."""
    guarded = Guarded()
    for module in (eager_convolution, pooling_plans, products):
        module.np = guarded
    for name in ("CONVOLUTION", "POOLING", "PRODUCT"):
        setattr(policy, f"{name}_SMALL", 0)
    policy.PRODUCT_SMALL_BY_ROWS = policy.PRODUCT_FEW_COLUMNS = 0
    onednn_plan._pool().set_num_threads(4)
    r = np.random.default_rng(seed)
    for i in range(rounds):
        guarded.front = bool(r.random() < 0.3)
        policy.CONVOLUTION_GRAIN = int(r.choice([1, 1 << 10, 1 << 21]))
        policy.POOLING_GRAIN = int(r.choice([1, 1 << 10]))
        dtype = np.float32 if r.random() < 0.6 else ml_dtypes.bfloat16
        shapes, options = geometry(r)
        if i % 5 == 0:  # a shape that oneDNN has its fastest kernels for
            shapes = ((2, 64, 9, 9), (48, 64, 3, 3), (2, 48, 9, 9))
            options = ((1, 1), ((1, 1), (1, 1)), (1, 1), 1)
        x, w, y = (guarded.random(r, s, dtype) for s in shapes)
        bias = guarded.random(r, len(w), dtype)
        eager_convolution.conv(x, w, bias, *options, y.shape[2:])
        eager_convolution.conv_input(y, w, *options, x.shape[2:])
        eager_convolution.conv_weight(x, y, *options, w.shape[2:])
        m, k, n = (int(v) for v in r.choice(SIZES, 3))
        if i % 10 == 0:  # several blocks of each dimension
            m, k, n = (int(v) for v in r.integers(260, 530, 3))
        for kind in (dtype, np.float64):
            for a in (guarded.random(r, (m, k), kind), guarded.random(r, (k, m), kind).T):
                for b in (guarded.random(r, (k, n), kind), guarded.random(r, (n, k), kind).T):
                    products.matmul(a, b, bias=guarded.random(r, n, kind))
        rank = int(r.integers(1, 4))
        kernel, stride, size = ints(r, 1, 5, rank), ints(r, 1, 4, rank), ints(r, 1, 14, rank)
        pads = (r.integers(0, k // 2 + 1, 2) for k in kernel)
        padding = tuple((int(before), int(after)) for before, after in pads)
        ones = (1,) * rank
        places = count(size, kernel, stride, padding, ones)
        if min(places) > 0:
            lead = (3, int(r.integers(1, 20)))
            x = guarded.random(r, (*lead, *size), np.float32)
            g = guarded.random(r, (*lead, *places), np.float32)
            y = pooling_plans.max_pool(x, kernel, stride, padding, ones, places)
            pooling_plans.max_pool_input(x, y, g, kernel, stride, padding, ones)
            pooling_plans.sum_pool(x, kernel, stride, padding, places)
            pooling_plans.sum_pool_input(g, kernel, stride, padding, places, size)


@needs_onednn
@pytest.mark.skipif(sys.platform != "linux", reason="mprotect")
@pytest.mark.parametrize("seed", range(2))
def test_nothing_outside_the_arrays_is_touched(seed):
    root = Path(__file__).parents[4]
    code = f"from tests.backends.native.onednn.test_onednn_bounds import main; main({seed}, 50)"
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="mprotect")
@pytest.mark.parametrize("front", [True, False])
def test_the_guards_bite(front):
    root = Path(__file__).parents[4]
    code = f"""
import ctypes
from tests.backends.native.onednn.test_onednn_bounds import Guarded
guarded = Guarded()
guarded.front = {front}
x = guarded.empty((3,), "float32")
x[:] = 1
ctypes.string_at(x.ctypes.data + ({-1 if front else 12}), 1)
"""
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True)
    assert result.returncode < 0  # ended by a signal
