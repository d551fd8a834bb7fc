"""Numbers that change from call to call and are used as indices: inputs of one program."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad

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
    assert x.tobytes() == np.ascontiguousarray(y).tobytes() or (x.tolist(), y.tolist()) == (0, 0)


@pytest.mark.parametrize("name", READS)
def test_one_program_stands_for_all_values_of_an_index(name: str) -> None:
    function = READS[name]
    step = ad.compile(lambda x, i: function(x, i))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in (1, 2, 3, 0, 2, 1):
            _same(step(X, i), function(X, i))
        assert len(step.programs) <= 2 + (name == "negative"), step.reasons
