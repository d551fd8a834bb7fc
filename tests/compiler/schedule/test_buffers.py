"""Addresses of values before their places are known."""

import itertools

import numpy as np
import pytest

from adjoint.compiler.schedule import buffers
from adjoint.compiler.schedule.buffers import ALIGNMENT, Nowhere, placeholders
from adjoint.core.elements import owner

FLOAT = np.dtype(np.float32)


def test_arrays_that_stand_for_others_lie_apart_and_take_no_memory():
    nowhere = Nowhere()
    large = [(1 << 30,)] * 16
    shapes = [(), (0, 3), (1,), (15,), *large, (2, 0), (1 << 24, 5), (7, 1)]
    found = [nowhere.array(shape, FLOAT) for shape in shapes]
    assert [x.shape for x in found] == shapes
    assert all(x.flags.c_contiguous and x.ctypes.data % ALIGNMENT == 0 for x in found)
    begins = sorted((x.ctypes.data, x.nbytes) for x in found if x.size)
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(begins))
    assert not any(np.may_share_memory(x, y) for x in found for y in found if x is not y)
    assert sum(x.nbytes for x in found) > 1 << 36  # more than most machines have


def test_placeholders_are_zeros_and_each_owns_its_memory():
    shapes = [(), (0, 3), (15,), (3, 5), (1000, 1000)]
    found = placeholders((shape, dtype) for shape in shapes for dtype in (FLOAT, np.dtype(bool)))
    assert [(x.shape, x.dtype) for x in found[::2]] == [(shape, FLOAT) for shape in shapes]
    assert not any(x.any() for x in found)
    assert len({id(owner(x)) for x in found}) == len(found)  # see `Compiled._apart`
    for k, x in enumerate(found):
        x[...] = k
    assert all((x == (k if x.dtype == FLOAT else k > 0)).all() for k, x in enumerate(found))
    assert placeholders([]) == []


def test_address_space_that_is_not_there_is_missing_memory(monkeypatch):
    def refused(*args, **kwargs):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(buffers.mmap, "mmap", refused)
    with pytest.raises(MemoryError, match="no address space for"):
        buffers.Nowhere().array((2, 3), np.dtype(np.float32))
