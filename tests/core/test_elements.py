"""Elements of arrays by NumPy's C API, and the Python that means the same."""

from __future__ import annotations

import numpy as np
import pytest

from adjoint.core import elements


@pytest.mark.parametrize("kind", ("f4", "f8", "f2", "c8", "i8", "?", "u1", "M8[s]"))
@pytest.mark.parametrize("shape", ((), (0, 3), (1,), (3, 5), (15, 2, 2)))
def test_copies_are_row_major_and_own_their_memory(kind, shape):
    x = np.arange(int(np.prod(shape))).reshape(shape).astype(kind)
    for array in (x, x.T, x[..., ::-1] if shape else x):
        (found,) = elements.copies([array])
        assert found.dtype == array.dtype
        assert found.flags.c_contiguous
        assert found.base is None
        np.testing.assert_array_equal(found, array)


def test_a_common_number_is_one_that_all_have():
    arrays = [np.array(3.0, kind) for kind in (np.float32, np.float64, np.float16, np.int64)]
    assert elements.common_number(arrays) == 3.0
    elements.put_number(arrays, 5.0)
    assert [x.item() for x in arrays] == [5.0] * 4
    arrays[2].fill(6)
    assert elements.common_number(arrays) is None
    assert elements.common_number([np.array(np.nan)]) is None
    assert elements.common_number([np.array(-1.0, np.float32)]) == -1.0


def test_words_are_put_into_rows():
    table = np.zeros((4, 5), np.int64)
    elements.put_words(table, 1, 3, 2, np.array([7, 8], np.int64).tobytes())
    assert table.tolist() == [[0] * 5, [0, 0, 7, 8, 0], [0, 0, 7, 8, 0], [0] * 5]
    elements.put_words(table, 2, 2, 3, b"")
    for first, end, place in ((0, 5, 0), (3, 2, 0), (-1, 1, 0), (0, 1, 4), (0, 1, -1)):
        with pytest.raises(IndexError, match="put_words"):
            elements.put_words(table, first, end, place, bytes(16))


def test_addresses_are_put_at_places():
    words = np.zeros(4, np.int64)
    elements.put_addresses(words, np.array([3, 1]), np.array([0, 8]), 100)
    assert words.tolist() == [0, 108, 0, 100]


@pytest.mark.parametrize("count", (1, 15, 5000))
def test_indices_below_a_bound(count):
    index = np.arange(count)
    assert elements.are_below(index, count)
    assert not elements.are_below(index, count - 1)
    assert not elements.are_below(index - 1, count)
    assert elements.are_below(index[::-1], count)


def test_who_owns_memory():
    x = np.zeros((3, 4))
    assert elements.owner(x) is x
    assert elements.owner(x[1:, ::2].T) is x
    assert type(elements.owner(np.frombuffer(bytearray(8)))) is np.ndarray
