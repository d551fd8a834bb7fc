"""Functions of the namespace keep gradients, which agree with finite differences."""

from __future__ import annotations

import pytest

import adjoint as ad
from adjoint.autograd import gradcheck

from .test_signatures import BINARY, UNARY

xp = ad.array_api
NOT_DIFFERENTIABLE = """
bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor equal
greater greater_equal imag isfinite isinf isnan less less_equal logical_and logical_not logical_or
logical_xor nextafter not_equal signbit
""".split()  # noqa: SIM905 - a table


def tensor(*shape, low=0.2, high=0.8, seed=0):
    generator = ad.Generator().manual_seed(seed)
    values = ad.rand(shape, generator=generator, dtype=ad.float64) * (high - low) + low
    return values.requires_grad_()


@pytest.mark.parametrize("name", [n for n in UNARY.split() if n not in NOT_DIFFERENTIABLE])
def test_functions_of_one_array(name):
    x = tensor(5, low=1.2, high=1.8) if name == "acosh" else tensor(5)
    assert gradcheck(getattr(xp, name), (x,))


@pytest.mark.parametrize("name", [n for n in BINARY.split() if n not in NOT_DIFFERENTIABLE])
def test_functions_of_two_arrays(name):
    x1, x2 = tensor(4, 3, low=1.1, high=1.3), tensor(3, seed=1)
    function = getattr(xp, name)
    if name == "floor_divide":
        assert not function(x1, x2).requires_grad or gradcheck(function, (x1, x2))
        return
    assert gradcheck(function, (x1, x2))
    assert gradcheck(lambda x: function(x, 0.5), (x1,))


INDICES = ad.tensor([[2, 0], [1, 1]])
COMPOSED = {
    "clip": lambda x: xp.clip(x, min=0.3, max=ad.full((), 0.7, dtype=ad.float64)),
    "take": lambda x: xp.take(x, INDICES[0], axis=1),
    "take_along_axis": lambda x: xp.take_along_axis(x, INDICES, axis=1),
    "where": lambda x: xp.where(x > 0.5, x * 2, 0),
    "prod": lambda x: xp.prod(x, axis=(0, 1)),
    "sum over no axes": lambda x: xp.sum(x, axis=()),
    "std": lambda x: xp.std(x, axis=0, correction=1),
    "cumulative_sum": lambda x: xp.cumulative_sum(x, axis=1, include_initial=True),
    "cumulative_prod": lambda x: xp.cumulative_prod(x, axis=-1),
    "diff": lambda x: xp.diff(x, n=2, append=ad.ones(2, 1, dtype=ad.float64)),
    "unique_values": xp.unique_values,
    "sort": lambda x: xp.sort(x, descending=True),
    "concat": lambda x: xp.concat([x, x * 2], axis=None),
    "repeat": lambda x: xp.repeat(x, ad.tensor([1, 0, 2]), axis=1),
    "roll": lambda x: xp.roll(x, (1, 2), axis=(0, 1)),
    "tensordot": lambda x: xp.tensordot(x, x, axes=([0], [0])),
    "vecdot": lambda x: xp.vecdot(x, x[0]),
    "cross": lambda x: xp.linalg.cross(x, x[::-1]),
    "solve": lambda x: xp.linalg.solve(x[:, :2] + 2 * ad.eye(2, dtype=ad.float64), x),
    "matrix_norm": lambda x: xp.linalg.matrix_norm(x, ord="nuc"),
    "vector_norm": lambda x: xp.linalg.vector_norm(x, axis=(0, 1), ord=3),
    "trace": lambda x: xp.linalg.trace(x, offset=1),
    "rfft": lambda x: xp.real(xp.fft.rfft(x, n=4)),
    "astype": lambda x: xp.real(xp.astype(x, xp.complex128) * 2j * 1j),
    "meshgrid": lambda x: xp.meshgrid(x[0], x[1])[1],
}


@pytest.mark.parametrize("name", COMPOSED)
def test_other_functions(name):
    assert gradcheck(COMPOSED[name], (tensor(2, 3),))


def test_nan_and_zeros_do_not_spoil_the_gradients_of_others():
    x = ad.tensor([2.0, ad.nan, -3.0], requires_grad=True)
    xp.sign(x).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]
    y = ad.tensor([4.0, -4.0, 5.0], requires_grad=True)
    xp.remainder(y, 2.0).sum().backward()
    assert y.grad.tolist() == [1.0, 0.0, 1.0]  # where the sign of a zero is changed it is constant
