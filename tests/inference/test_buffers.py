"""Addresses of values before their places are known."""

import itertools

import numpy as np

from adjoint.inference.buffers import ALIGNMENT, Nowhere

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
