"""Numbers that change from call to call and are used as indices: inputs of one program."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from tests.native import needs_native

pytestmark = needs_native
X = ad.arange(60.0).reshape(10, 6) * -0.7


def _write(x: Any, i: int) -> Any:
    y = x.clone()
    y[i] += 1
    y[i, 2] = 7
    y[i : i + 2, i] *= 3
    part = y[:, i]
    part.add_(i)
    y[1:][i][1:3] = part[:2]
    y[i] = ad.arange(6)  # which is converted
    return y, part


def _through_view(x: Any, i: int) -> Any:
    y = x.clone()
    row = y[i]
    y.mul_(2)  # which the view shows
    row[i % 3 + 1 : i % 3 + 3] = 5
    return y, row * 1


def _gradient(x: Any, i: int) -> Any:
    w = x.detach().clone().requires_grad_()
    z = w * 2
    z[i] = x[i + 1] * w[0]
    (first,) = ad.autograd.grad((z[i : i + 2].exp() * w[i]).sum(), w, create_graph=True)
    (second,) = ad.autograd.grad((first[i] ** 2).sum(), w)
    return first, second


# Functions of a tensor of shape (10, 6) and an int from 0 to 3, each one program from the second
# value on.
READS: dict[str, Callable[..., Any]] = {
    "row": lambda x, i: x[i],
    "row, twice": lambda x, i: x[i] + x[i + 1] - x[2 * i],
    "element": lambda x, i: x[i, i] * 2,
    "column": lambda x, i: x[:, i] * 2,
    "behind ...": lambda x, i: x[..., i] * 2,
    "new dimensions": lambda x, i: x[None, i, None, 1:4] * 2,
    "beside a list": lambda x, i: x[[0, 2]][:, i],
    "slice": lambda x, i: x[i : i + 4] * 2,
    "slice of two": lambda x, i: x[i : i + 4, i + 1 : i + 3] * 2,
    "slice with a step": lambda x, i: x[i : i + 6 : 2] * 2,
    "negative": lambda x, i: x[-1 - i] * 2,
    "negative slice": lambda x, i: x[-5 - i : -3 - i] * 2,
    "empty": lambda x, i: x[i:i].sum() + i,
    "select": lambda x, i: x.select(1, i) * 2,
    "select from behind": lambda x, i: x.select(0, -1 - i) * 2,
    "narrow": lambda x, i: x.narrow(0, i, 3) * 2,
    "narrow from behind": lambda x, i: ad.narrow(x, 1, i - 6, 2) * 2,
    "embedding": lambda x, i: ad.nn.functional.embedding(ad.tensor(i), x),
    "embedding of a list": lambda x, i: ad.nn.functional.embedding(ad.tensor([i, 2]), x),
    "list": lambda x, i: x[[i, i + 1, 0]],
    "index_select": lambda x, i: x.index_select(1, ad.tensor([i])),
    "table": lambda x, i: (1 - x[:, 0][i]).exp() * x,
    "of integers": lambda x, i: ad.arange(10)[i] + ad.arange(20).reshape(10, 2)[i],
    "of flags": lambda x, i: ad.where((x > -9)[i], x, 0.0),
    "of a turned tensor": lambda x, i: x.t()[i].contiguous().reshape(2, 5),
    "flattened": lambda x, i: x[i : i + 2].reshape(-1) * x[i : i + 2].flatten(),
    "writes": _write,
    "writes through views": _through_view,
    "gradients": _gradient,
    "select_scatter": lambda x, i: ad.select_scatter(x, x[0], 0, i),
    "slice_scatter": lambda x, i: ad.slice_scatter(x, x[:2], 0, i, i + 2),
}


def _same(a: Any, b: Any) -> None:
    if isinstance(a, tuple):
        for x, y in zip(a, b, strict=True):
            _same(x, y)
        return
    assert a.shape == b.shape and a.dtype is b.dtype
    x, y = a.detach().numpy(), b.detach().numpy()
    assert x.tobytes() == np.ascontiguousarray(y).tobytes()


@pytest.mark.parametrize("name", READS)
def test_one_program_stands_for_all_values_of_an_index(name: str) -> None:
    function = READS[name]
    step = ad.compile(lambda x, i: function(x, i))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in (1, 2, 3, 0, 2, 1):
            _same(step(X, i), function(X, i))
        assert len(step.programs) <= 2 + (name == "negative"), step.reasons


@pytest.mark.parametrize("name", ["row", "select", "narrow"])
def test_an_index_out_of_range_is_the_error_of_eager_execution(name: str) -> None:
    """After it, the program stands for all others as before."""
    function = READS[name]
    step = ad.compile(lambda x, i: function(x, i))
    for i in (1, 2, 3):
        step(X, i)
    for i in (11, -11, 99):
        with pytest.raises(IndexError) as eager:
            function(X, i)
        with pytest.raises(IndexError) as compiled:
            step(X, i)
        assert str(compiled.value) == str(eager.value) and str(i) in str(eager.value)
    for i in (4, 5, 0):
        _same(step(X, i), function(X, i))
    assert len(step.programs) == 2


class Schedule(ad.nn.Module):
    """A module that counts its calls and reads tables at its count, and writes to one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", ad.arange(50.0).sin())
        self.register_buffer("cache", ad.zeros(2, 50, 3))
        self.rows = ad.nn.Embedding(50, 3, _weight=ad.arange(150.0).cos().reshape(50, 3))
        self.count = 0

    def forward(self, x: Any, *, back: int) -> Any:
        self.count += 1
        self.cache[:, self.count] = x[:2, :3]
        seen = self.cache[1, self.count - 1 : self.count + 1]
        return self.rows.weight[self.count] * self.table[-back] + seen


def test_attributes_that_each_call_counts_are_indices() -> None:
    models = Schedule(), Schedule()
    step = ad.compile(models[1], fullgraph=True)
    for i in range(40):
        _same(step(X, back=i + 1), models[0](X, back=i + 1))
        _same(models[1].cache, models[0].cache)
    assert len(step._compiled_call.programs) <= 2 and models[1].count == 40


def test_a_row_is_trained_by_its_number() -> None:
    found = []
    for compile_ in (lambda function: function, ad.compile):
        weight = ad.nn.Parameter(ad.arange(60.0).cos().reshape(20, 3))
        optimizer = ad.optim.Adam([weight], lr=0.1)

        def step(i: int, weight: Any = weight, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = (weight[i] ** 2).sum() - weight[i + 1 : i + 3].exp().mean()
            loss.backward()
            optimizer.step()
            return loss

        run = compile_(step)
        found.append([run(5 * n % 17).item() for n in range(40)] + weight.tolist())
    assert found[0] == found[1] and len(run.programs) <= 2


def test_a_number_beside_a_size_that_grows() -> None:
    """As in decoding: the state is longer with each call, and the position further."""

    def decode(x: Any, cache: Any, position: int) -> Any:
        return x * cache.sum(0) + X[position % 10, :4], ad.cat([cache, x[None]])

    step = ad.compile(decode, fullgraph=True)
    caches = [ad.ones(1, 4), ad.ones(1, 4)]
    for position in range(24):
        x = X[position % 7, :4]
        y, caches[0] = step(x, caches[0], position)
        expected, caches[1] = decode(x, caches[1], position)
        _same((y, caches[0]), (expected, caches[1]))
    assert sum("stands for such sizes" in reason for reason in step.reasons) > 18


def test_what_depends_on_the_place_in_memory_is_read() -> None:
    """One program a value, since strides are counted from the beginning of the storage."""

    def function(x: Any, i: int) -> Any:
        part = x[i : i + 4]
        return part.as_strided((2, 2), (4, 1), part.storage_offset() + 1) * 2

    step = ad.compile(function)
    for i in (1, 2, 3, 2):
        _same(step(X, i), function(X, i))
    assert len(step.programs) == 3


def test_a_size_that_a_number_decides_is_never_an_error() -> None:
    step = ad.compile(lambda x, n: x[:n].sum(), recompile_limit=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [step(X, n).item() for n in range(9)] == [X[:n].sum().item() for n in range(9)]


@pytest.mark.parametrize("exponent", [2, 3, 0.5, -1, 1.5])
def test_powers_of_numbers_that_vary_are_those_of_constants(exponent: float) -> None:
    x = ad.arange(1.0, 200.0) / 7
    step = ad.compile(lambda x, n: x**n)
    kind = type(exponent)
    for n in (kind(4), kind(5), exponent, kind(6), exponent):
        _same(step(x, n), x**n)
