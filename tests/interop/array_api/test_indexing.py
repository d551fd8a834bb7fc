"""Reading and writing `x[...]` as the standard has it, beside NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import adjoint as ad

shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
slowly = settings(max_examples=300, deadline=None, derandomize=True, database=None)


def array_of(shape):
    return np.arange(int(np.prod(shape))).reshape(shape)


@given(data=st.data())
@slowly
def test_integers_slices_of_any_step_ellipsis_and_none(data):
    shape = data.draw(shapes)
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    array = array_of(shape)
    x = ad.tensor(array)
    part = x[index]
    assert part.numpy().tolist() == array[index].tolist()
    assert part.shape == array[index].shape
    value = -array_of(array[index].shape) - 1
    x[index], array[index] = ad.tensor(value), value
    assert x.numpy().tolist() == array.tolist()


@given(data=st.data())
@slowly
def test_masks_and_arrays_of_integers(data):
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=4))
    array = array_of(shape)
    x = ad.tensor(array)
    mask = data.draw(hnp.arrays(bool, shape))
    assert x[ad.tensor(mask)].tolist() == array[mask].tolist()
    index = tuple(
        data.draw(hnp.arrays(np.int64, (2, 1), elements=st.integers(-size, size - 1)))
        for size in shape
    )
    assert x[tuple(map(ad.tensor, index))].tolist() == array[index].tolist()
    x[ad.tensor(mask)], array[mask] = -1, -1
    assert x.tolist() == array.tolist()


def test_a_backward_slice_beside_a_mask_and_an_array():
    array = array_of((4, 3, 5))
    x = ad.tensor(array)
    mask = np.array([True, False, True])
    assert x[::-1, ad.tensor(mask), 1].tolist() == array[::-1][:, mask, 1].tolist()
    places = np.array([4, 0])
    assert x[3:0:-2, ..., ad.tensor(places)].tolist() == array[3:0:-2, ..., places].tolist()
    x[::-1, ad.tensor(mask), ::-2] = 7
    array[::-1][:, mask, ::-2] = 7
    copy = array_of((4, 3, 5))
    copy[:, mask, ::-2] = 7
    assert x.tolist() == copy.tolist()


def test_gradients_flow_through_backward_slices():
    x = ad.arange(4.0).requires_grad_()
    (x[::-1] * ad.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert x.grad.tolist() == [4.0, 3.0, 2.0, 1.0]
    y = ad.zeros(4).requires_grad_()
    value = ad.ones(2).requires_grad_()
    z = y * 1
    z[::-2] = value * ad.tensor([5.0, 7.0])
    (z * ad.arange(4.0)).sum().backward()
    assert value.grad.tolist() == [15.0, 7.0]
    assert y.grad.tolist() == [0.0, 0.0, 2.0, 0.0]


@pytest.mark.parametrize("index", [slice(None, None, 0), (0, slice(None, None, -1), 0)])
def test_errors(index):
    with pytest.raises((IndexError, ValueError)):
        ad.zeros(2, 2)[index]
    with pytest.raises((IndexError, ValueError)):
        ad.zeros(2, 2)[index] = 1
