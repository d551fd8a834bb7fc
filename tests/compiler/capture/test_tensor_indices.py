"""Integer tensors without dimensions that are indices: a program looks at them, no capture reads
them. Several index tensors at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from tests.native import needs_native

from .test_number_indices import READS, X

pytestmark = needs_native

# A slice's ends are numbers, as are those of an embedding made of a list.
WITH_TENSORS = [
    name for name in READS
    if name not in ("embedding", "embedding of a list", "empty", "flattened", "gradients", "list",
                    "index_select", "writes", "writes through views", "slice_scatter",
                    "select_scatter", "negative slice") and "slice" not in name
]  # fmt: skip


def assert_same(a: Any, b: Any) -> None:
    if isinstance(a, tuple):
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
        return
    assert a.shape == b.shape and a.dtype is b.dtype
    np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


def _writes(x: Any, i: Any) -> Any:
    y = x.clone()
    y[i] += 1
    y[i, 2] = 7
    part = y[:, i]
    part.add_(3)
    row = y[i]
    y.mul_(2)  # which the view shows
    y.narrow(1, i, 2)[1:3] = row[:2]
    y[i] = ad.arange(6)  # which is converted
    return y, part * 1, row * 1


def _gradients(x: Any, i: Any) -> Any:
    w = x.detach().clone().requires_grad_()
    z = w * 2
    z[i] = x[i + 1] * w[0]
    (first,) = ad.autograd.grad((z.narrow(0, i, 2).exp() * w[i]).sum(), w, create_graph=True)
    (second,) = ad.autograd.grad((first[i] ** 2).sum(), w)
    return first, second


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: READS[name] for name in WITH_TENSORS},
    "writes": _writes,
    "gradients": _gradients,
    "the largest": lambda x, i: x[x[:, i].argmax()] * 2,
    "two": lambda x, i: x[i, x.argmin() % 6] * 2,
    "beside a tensor": lambda x, i: x[ad.arange(3) + i, i],
    "tensors": lambda x, i: x[ad.arange(3) + i, ad.arange(3) * i % 6],
    "tensors apart": lambda x, i: x[ad.arange(3) + i, None, ad.arange(3)[:, None] - i],
    "a tensor and a list": lambda x, i: x[i + ad.arange(2), [0, 1]],
    "narrow by a tensor of one": lambda x, i: x.narrow(0, i.reshape(1), 2) * 2,
}


@pytest.mark.parametrize("dtype", [ad.int64, ad.int32])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_program_stands_for_all_values(name: str, dtype: ad.dtype) -> None:
    function = FUNCTIONS[name]
    step = ad.compile(lambda x, i: function(x, i))
    for i in (1, 2, 3, 0, 2, 1):
        number = ad.tensor(i, dtype=dtype)
        assert_same(step(X, number), function(X, number))
    assert len(step.programs) == 1, step.reasons


@pytest.mark.parametrize(
    "name", ["row", "select", "narrow", "writes", "tensors", "beside a tensor"]
)
def test_out_of_range_is_an_error_and_leaves_the_program(name: str) -> None:
    function = FUNCTIONS[name]
    step = ad.compile(lambda x, i: function(x, i))
    for i in (11, -11, 99):
        with pytest.raises((IndexError, ad.ShapeError)):
            function(X, ad.tensor(i))
        with pytest.raises(IndexError, match="out of"):
            step(X, ad.tensor(i))
    assert_same(step(X, ad.tensor(2)), function(X, ad.tensor(2)))
    assert len(step.programs) == 1


def test_what_lies_beyond_a_dimension_of_none() -> None:
    with pytest.raises(IndexError):
        ad.compile(lambda x, i: x[:0][i] * 2)(X, ad.tensor(0))


LOOPS: dict[str, Callable[..., Any]] = {
    "counter": lambda x: ad.fori_loop(0, 6, lambda k, s: s + x[k] * x[k, k - 1], ad.zeros(6)),
    "carry": lambda x: ad.scan(
        lambda c, y: ((c[0] + 1, c[1] + x[c[0] % 7]), y.sum()), (ad.tensor(0), ad.zeros(6)), x
    ),
    "while": lambda x: ad.while_loop(
        lambda k, s: k < 4, lambda k, s: (k + 1, s + x[k]), (ad.tensor(0), ad.zeros(6))
    )[1],
    "window": lambda x: ad.fori_loop(
        0, 8, lambda k, s: s + x.narrow(0, k, 3).sum(0) * x[-1 - k], ad.zeros(6)
    ),
    "branch": lambda x: ad.cond(x[0, 1] < 0, lambda: x[x[:, 1].argmin()], lambda: x[0]),
    "written": lambda x: ad.fori_loop(1, 6, _set, x * 1),
}


def _set(k: Any, s: Any) -> Any:
    s = s.clone()
    s[k] = s[k - 1] + s[k, k]
    return s


@pytest.mark.parametrize("name", LOOPS)
def test_bodies_of_loops_index_by_their_counter(name: str) -> None:
    def step(x: Any) -> Any:
        found = LOOPS[name](x)
        y = found[0][1] if name == "carry" else found
        return y, ad.autograd.grad((y * y).sum(), x)[0]

    x = X.clone().requires_grad_()
    for each in step(x), ad.compile(step)(x):
        for a, b in zip(each, step(x), strict=True):
            ad.testing.assert_close(a, b)
    rows = [X[k] for k in range(10)]
    if name == "counter":
        expected = sum(rows[k] * rows[k][k - 1] for k in range(6))
        ad.testing.assert_close(step(x)[0].detach(), expected)


def test_a_loop_that_leaves_a_tensor_is_an_error() -> None:
    step = ad.compile(lambda x: ad.fori_loop(0, 11, lambda k, s: s + x[k], ad.zeros(6)))
    with pytest.raises(IndexError, match="index 10 is out of bounds"):
        step(X)


def test_where_such_a_view_lies_is_refused() -> None:
    with pytest.raises(ad.core.errors.Unsupported, match="where the view that a tensor's number"):
        ad.compile(lambda x, i: x[i].as_strided((2,), (1,)) * 2)(X, ad.tensor(1))


def test_sizes_beside_such_an_index() -> None:
    step = ad.compile(lambda x, i: x[i] * x.shape[0], dynamic=True)
    for n in (4, 5, 7, 9):
        assert_same(step(X[:n].clone(), ad.tensor(n - 1)), X[n - 1] * n)
    assert all("stands for such sizes, too" in why for why in step.reasons[1:])
