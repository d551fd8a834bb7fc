"""Ops of several views (split, unbind, ...): how they view is kept."""

import numpy as np
import pytest

import adjoint as ad
from adjoint.core import policy
from adjoint.ir import compute as computing

WAYS = {
    "split": lambda x: x.split(2, 1),
    "sizes": lambda x: x.split([1, 3, 2], 1),
    "chunk": lambda x: x.chunk(3, -1),
    "rows": lambda x: x.unbind(0),
    "columns": lambda x: x.unbind(1),
    "list": list,
}


@pytest.fixture
def anew(monkeypatch):
    """How often ops looked anew for what computes them."""
    from adjoint.runtime import dispatch

    found = []

    def counted(op, arrays):
        if op.n_outputs != 1:
            found.append(op)
        return computing.compute_anew(op, arrays)

    monkeypatch.setattr(dispatch, "compute_anew", counted)
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", ["plain", "transposed", "part", "leaf", "computed"])
def test_views_are_those_of_the_first_call(way, make, anew):
    for k in range(4):
        leaf = x = ad.randn(4, 6)
        if make == "transposed":
            x = ad.randn(6, 4).t()
        elif make == "part":
            x = ad.randn(9, 13)[1::2, ::2][:4, :6]
        elif make == "leaf":
            x.requires_grad_()
        elif make == "computed":
            x = leaf.requires_grad_() * 2
        expected = np.asarray(x.tolist())
        anew.clear()
        parts = WAYS[way](x)
        assert k == 0 or not anew
        if way in ("rows", "list"):
            wanted = list(expected)
        elif way == "columns":
            wanted = list(expected.T)
        else:
            ends = np.cumsum([y.shape[1] for y in parts])
            wanted = np.split(expected, ends[:-1], 1)
        assert len(parts) == len(wanted)
        for y, z in zip(parts, wanted, strict=True):
            assert y.tolist() == z.tolist() and y._is_view()
            assert np.may_share_memory(y.detach().numpy(), x.detach().numpy())
        assert [y.requires_grad for y in parts] == [x.requires_grad] * len(parts)
        if x.requires_grad:
            sum((n + 1) * y.sum() for n, y in enumerate(parts)).backward()
            factor = 1 if make == "leaf" else 2
            for n, g in enumerate(WAYS[way](leaf.grad)):
                assert (g == factor * (n + 1)).all()


@pytest.mark.parametrize("way", WAYS)
def test_writes_reach_views_and_what_they_are_of(way):
    for _ in range(3):
        x = ad.zeros(4, 6)
        parts = WAYS[way](x)
        x.add_(1)
        assert all((y == 1).all() for y in parts)
        with ad.no_grad():
            parts = WAYS[way](x)
            parts[1].fill_(7)
        assert (x == 7).sum() == parts[1].numel()
        leaf = ad.zeros(4, 6, requires_grad=True)
        with pytest.raises(RuntimeError, match="multiple views"):
            WAYS[way](leaf * 1)[0].add_(1)


def test_other_modes_are_asked_each_time():
    x = ad.randn(4, 6)
    for _ in range(3):
        x.split(3, 1)
        with ad.inference_mode():
            y = x.split(3, 1)[0]
        assert not y.requires_grad
        with ad.lazy():
            z = x.split(3, 1)[1]
        assert ad.equal(z, x[:, 3:])


def test_how_many_views_are_made_is_not_kept(anew, monkeypatch):
    monkeypatch.setattr(policy, "VIEWS", 5)
    x = ad.zeros(6, 2)
    for _ in range(3):
        assert len(x.unbind(0)) == 6
    assert len(anew) == 3


@pytest.mark.parametrize("equation", ["ij,kj->ik", "bij,bjk->bik", "bhqd,bhkd->bhqk", "i,j->ij"])
def test_equations_that_are_known(equation):
    """`einsum` goes the short way for shapes that it had before, and gives what it gave."""
    sizes = dict(zip("bhijkqd", (2, 3, 4, 5, 6, 4, 5), strict=True))
    left, right = ([sizes[x] for x in part] for part in equation.partition("->")[0].split(","))
    for _ in range(3):
        a, b = np.random.randn(*left), np.random.randn(*right)
        expected = np.einsum(equation, a, b)
        assert np.allclose(ad.einsum(equation, ad.tensor(a), ad.tensor(b)).numpy(), expected)
        assert np.allclose(
            ad.einsum(equation, ad.tensor(a.T.copy()).permute(*range(a.ndim)[::-1]), ad.tensor(b)),
            expected,
        )
    with pytest.raises(RuntimeError):
        ad.einsum(equation, ad.ones(*left, 1), ad.ones(*right))
    if "->ij" not in equation:
        with pytest.raises(RuntimeError, match="size"):
            wrong = [*right[:-1], right[-1] + 1]
            wrong[-1 if equation != "bij,bjk->bik" else -2] = 9
            ad.einsum(equation, ad.ones(*left), ad.ones(*wrong))
