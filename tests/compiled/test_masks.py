"""Writes to what a mask selects, in compiled functions."""

import pytest

import adjoint as ad
from adjoint.backends import native
from adjoint.core.errors import Unsupported

pytestmark = pytest.mark.skipif(native.reason_off() is not None, reason="no native code")
w = ad.tensor([1.0, 2.0, 3.0], requires_grad=True)


def number(y):
    y[y < 0] = 0


def scalar(y):
    y[y < 1] = w.sum()


def rows(y):
    y[y.sum(1) > 0] = w


def one_row(y):
    y[y.sum(1) > 0] = ad.full((1, 3), 2.0)


def columns(y):
    y[..., y[0] > 0] = 1


def part(y):
    y[:, 1:][y[:, 1:] < 1] = 7


def bytes_as_mask(y):
    y[(y < 0).to(ad.uint8)] = 4


@pytest.mark.parametrize("write", [number, scalar, rows, one_row, columns, part, bytes_as_mask])
def test_a_masked_write_is_captured_for_any_mask(write):
    def function(x):
        y = x * w
        if write is bytes_as_mask:
            y = x * w.detach() + w
        write(y)
        return y, ad.autograd.grad(y.square().sum(), w)[0]

    compiled = ad.compile(function)
    for values in ([[1.0, -1.0, 2.0], [0.0, 3.0, -9.0]], [[-1.0] * 3] * 2, [[1.0] * 3] * 2):
        x = ad.tensor(values)
        for found, wanted in zip(compiled(x), function(x), strict=True):
            ad.testing.assert_close(found, wanted)
    assert compiled.reasons == ["first call"]


def test_parameters_and_arguments_are_written():
    state = ad.arange(4.0)

    @ad.compile
    def function(x, mask):
        x[mask] = -1
        state[state > 2] = 0

    x = ad.ones(4)
    function(x, ad.tensor([True, False, False, True]))
    assert x.tolist() == [-1.0, 1.0, 1.0, -1.0]
    assert state.tolist() == [0.0, 1.0, 2.0, 0.0]


def test_other_shapes_and_dtypes_are_refused_as_eagerly():
    def function(value):
        y = x * 0
        y[y.sum(1) == 0] = value
        return y

    x = ad.ones(2, 3)
    for value in (ad.ones(4), ad.ones(3, dtype=ad.float64)):
        with pytest.raises(Exception) as eager:
            function(value)
        with pytest.raises(type(eager.value)):
            ad.compile(function)(value)
    with pytest.raises(Unsupported, match="reads a value"):
        ad.compile(function)(ad.ones(2, 3))  # a row for each


def test_a_mask_from_outside_is_no_constant():
    mask = ad.tensor([True, False, True])
    with pytest.raises(Unsupported, match="reads a value"):
        ad.compile(lambda x: x[mask])(ad.arange(3.0))
    compiled = ad.compile(lambda x: x[ad.tensor([True, False, True])])
    assert compiled(ad.arange(3.0)).tolist() == [0.0, 2.0]
