"""`associative_scan`, beside totals that a loop makes, and PyTorch's."""

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.errors import InvalidArgument, InvalidType, ShapeError, Unsupported
from tests.native import needs_native

from ...sweep import swept
from .test_loop_options import assert_alike, drawn, to_second_order


def affine(one, two):
    """The composition of two maps a x + b."""
    return {"a": one["a"] * two["a"], "b": one["b"] * two["a"] + two["b"]}


def looped(combine, xs, dim, reverse):
    """Totals by a loop over slices."""
    columns = [x.unbind(dim) for x in xs.values()]
    slices = [dict(zip(xs, rows, strict=True)) for rows in zip(*columns, strict=True)]
    totals = []
    for each in reversed(slices) if reverse else slices:
        totals.append(combine(totals[-1], each) if totals else each)
    if reverse:
        totals.reverse()
    return [ad.stack([y[key] for y in totals], dim) for key in xs]


@needs_native
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, *map(swept, (1, -1))])
@pytest.mark.parametrize("count", [1, 5, *map(swept, (2, 3, 4, 8, 13))])
def test_totals_are_those_of_a_loop(count, dim, reverse):
    ad.manual_seed(count)
    shape = [2, 3]
    shape.insert(dim % 3, count)
    a, b = drawn(*shape), drawn(*shape)

    def f(a, b):
        found = ad.associative_scan(affine, {"a": a, "b": b}, dim, reverse, "generic")
        return [found["a"], found["b"]]

    def plain(a, b):
        return looped(affine, {"a": a, "b": b}, dim, reverse)

    wanted = to_second_order(plain, a, b)
    assert_alike(to_second_order(f, a, b), wanted, 1e-8)
    assert_alike(ad.compile(lambda *xs: to_second_order(f, *xs))(a, b), wanted, 1e-8)


@pytest.mark.sweep  # PyTorch's first compiled function takes half a minute
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reverse", [False, True])
def test_as_in_pytorch(reverse):
    torch = pytest.importorskip("torch")
    from torch._higher_order_ops import associative_scan

    xs = np.random.default_rng(0).normal(size=(5, 2, 2))
    product = lambda a, b: a @ b  # noqa: E731
    theirs = associative_scan(product, torch.tensor(xs), 0, reverse, "generic")
    ours = ad.associative_scan(product, ad.tensor(xs), 0, reverse, "generic")
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), 1e-12)


def test_in_a_graph_totals_follow():
    g = ad.Graph()
    with g:
        x = g.input(np.ones(5))
        y = ad.associative_scan(lambda a, b: a + b, x, 0)
    assert y.tolist() == [1, 2, 3, 4, 5]
    x.set(np.full(5, 2.0))
    assert y.tolist() == [2, 4, 6, 8, 10]


def test_what_it_gives_is_new_and_empty_is_empty():
    x = ad.ones(1, 2)
    y = ad.associative_scan(lambda a, b: a, x, 0)
    y.add_(1)
    assert x.tolist() == [[1, 1]]
    assert ad.associative_scan(lambda a, b: a, ad.ones(0, 2), 0).shape == (0, 2)
    shared = ad.associative_scan(lambda a, b: ad.ones(2), ad.zeros(4, 2), 0)
    assert shared.tolist() == [[0, 0], [1, 1], [1, 1], [1, 1]]


def test_what_is_refused():
    x, add = ad.ones(4, 2), lambda a, b: a + b
    with pytest.raises(InvalidArgument, match="combine_mode='scan'"):
        ad.associative_scan(add, x, 0, combine_mode="scan")
    with pytest.raises(InvalidType, match="dim is a float"):
        ad.associative_scan(add, x, 0.0)
    with pytest.raises(ShapeError, match="dim=2"):
        ad.associative_scan(add, x, 2)
    with pytest.raises(ShapeError, match=r"\[4, 3\] slices"):
        ad.associative_scan(lambda a, b: a, (x, x[:3]), 0)
    with pytest.raises(ShapeError, match=r"combine_fn is given .* and gives"):
        ad.associative_scan(lambda a, b: (a + b).double(), x, 0)
    with pytest.raises(Unsupported, match="random operation"):
        ad.associative_scan(lambda a, b: a + ad.rand(2), x, 0)
    with pytest.raises(Unsupported, match="data-dependent"):
        ad.associative_scan(lambda a, b: a if a.sum() > 3 else b, ad.randn(4, 2), 0)
