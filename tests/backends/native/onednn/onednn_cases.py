"""What the tests of oneDNN share: the pool's size, and arrays with awkward strides."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from adjoint.backends.native.onednn import api as onednn
from adjoint.backends.native.onednn import plan as onednn_plan

needs_onednn = pytest.mark.skipif(
    onednn.unavailable() is not None, reason=f"oneDNN: {onednn.unavailable()}"
)


@pytest.fixture(params=[1, 4])
def workers(request):
    """The pool with one thread and with four."""
    pool = onednn_plan._pool()
    before = pool.num_threads
    pool.set_num_threads(request.param)
    yield request.param
    pool.set_num_threads(before)


OUT_OF_MEMORY = 1  # of dnnl_status_t


@pytest.fixture
def without_memory(monkeypatch):
    """In calls that are bound meanwhile the library finds no memory; how often it was asked."""
    asked = []
    kind = ctypes.CFUNCTYPE(*[ctypes.c_int] + 4 * [ctypes.c_void_p])
    execute = kind(lambda *_: asked.append(1) or OUT_OF_MEMORY)
    original = onednn_plan.OneDnnPlan.call

    def call(*args, **kwargs):
        made = original(*args, **kwargs)
        for words, *_ in made.keeps[1].phases:
            words[onednn_plan._EXECUTE] = ctypes.cast(execute, ctypes.c_void_p).value
        return made

    monkeypatch.setattr(onednn_plan.OneDnnPlan, "call", call)
    yield asked


def like(x, dtype):
    """x converted, with the same strides in elements, over memory of its own."""
    if not x.size:
        return x.astype(dtype)
    owner = x
    while owner.base is not None:
        owner = owner.base
    memory = owner.astype(dtype)
    first = (x.ctypes.data - owner.ctypes.data) // x.itemsize * memory.itemsize
    strides = [s // x.itemsize * memory.itemsize for s in x.strides]
    return np.ndarray(x.shape, dtype, memory.view(np.uint8).reshape(-1).data, first, strides)


def matrices(r, batch, rows, columns):
    """A batch of matrices: contiguous, transposed, with gaps, reversed, permuted or broadcast."""
    batch = tuple(1 if r.random() < 0.3 else n for n in batch)
    if r.random() < 0.4:
        batch = batch[int(r.integers(0, len(batch) + 1)) :]
    draw = r.standard_normal
    match int(r.integers(0, 7)):
        case 1:
            return draw((*batch, columns, rows)).swapaxes(-1, -2)
        case 2:
            return draw((*batch, rows + 2, columns + 3))[..., 1 : rows + 1, 2 : columns + 2]
        case 3:
            whole = draw((*batch, columns + 2, rows + 3))
            return whole[..., 1 : columns + 1, 2 : rows + 2].swapaxes(-1, -2)
        case 4:
            return draw((*batch, rows, 2 * columns))[..., ::2]
        case 5:
            return draw((*batch, rows, columns))[..., ::-1, :]
        case 6 if batch:
            return draw((*batch[:-1], rows, batch[-1], columns)).swapaxes(-2, -3)
        case _:
            return draw((*batch, rows, columns))


def assert_near(found, expected, tolerance):
    """Equal shapes, and differences small beside the largest value."""
    assert found.shape == expected.shape
    if expected.size:
        error = np.abs(found.astype(np.float64) - expected).max()
        assert error <= tolerance * max(1.0, np.abs(expected).max()), error
