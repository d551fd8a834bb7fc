"""Tensors from outside by whose values Python goes while a function is captured: never constants
that nobody looks at again. Either the program is guarded by them, or it is an error.
"""

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.errors import Unsupported
from tests.native import needs_native

pytestmark = needs_native
i, flag = ad.tensor(1), ad.tensor(True)
u, h = ad.tensor([1, 2, 2]), ad.tensor(2.5)
BEFORE, AFTER = (1, True, [1, 2, 2], 2.5), (2, False, [3, 1, 1], 0.5)


def hold(values):
    for tensor, value in zip((i, flag, u, h), values, strict=True):
        tensor.copy_(ad.tensor(value))


FOLLOWED = {
    "an index": lambda x: x[i],
    "a slice": lambda x: x[i:],
    "a range": lambda x: x + sum(range(i)),
    "a mask without dimensions": lambda x: x[flag],
    "tolist": lambda x: x * u.tolist()[0],
    "numpy": lambda x: x * float(u.numpy()[0]),
    "tensor of it": lambda x: x + ad.tensor(h),
    "tensor of ints": lambda x: x + ad.tensor([i, i, i]),
    "unravel_index": lambda x: x + ad.unravel_index(u, (2, 3))[1],
    "tensor_split": lambda x: ad.tensor_split(x, u)[0].sum(),
    "unique": lambda x: x + ad.unique(u).sum(),
    "unique_consecutive": lambda x: x + ad.unique_consecutive(u).sum(),
    "nonzero": lambda x: x + ad.nonzero(u > 1).sum(),
    "where": lambda x: x + ad.where(u > 1)[0].sum(),
    "bincount": lambda x: x + ad.bincount(u).square().sum(),
    "one_hot": lambda x: x + ad.one_hot(u).shape[1],
    "repeat_interleave": lambda x: ad.repeat_interleave(x, u).sum(),
    "masked_select": lambda x: x.masked_select(u > 1).sum(),
    "masked_scatter": lambda x: x.masked_scatter(u > 1, x),
    "index_fill": lambda x: ad.index_fill(x, 0, u - 1, h),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_change_outside_is_seen(name):
    function = FOLLOWED[name]
    compiled = ad.compile(function)
    x = ad.tensor([1.0, 2.0, 3.0])
    for values in (BEFORE, AFTER, BEFORE, AFTER):
        hold(values)
        wanted = function(x).tolist()
        assert compiled(x).tolist() == wanted
    assert len(compiled.reasons) <= 2


REFUSED = {
    "bincount": (lambda x, k: ad.bincount(k), "zeros.*index_add"),
    "unique": (lambda x, k: ad.unique(k), "size"),
    "unique_consecutive": (lambda x, k: ad.unique_consecutive(k), "size"),
    "nonzero": (lambda x, k: ad.nonzero(k), "where"),
    "argwhere": (lambda x, k: ad.argwhere(k), "where"),
    "where": (lambda x, k: ad.where(k > 1), "where"),
    "masked_select": (lambda x, k: ad.masked_select(k, k > 1), "where"),
    "one_hot": (lambda x, k: ad.one_hot(k), "num_classes"),
    "repeat_interleave": (lambda x, k: ad.repeat_interleave(x, k), "size"),
    "histc": (lambda x, k: ad.histc(x, 3), "min.*max"),
    "histogram": (lambda x, k: ad.histogram(x, 3).hist, "range"),
    "histc outside": (lambda x, k: x + ad.histc(h.reshape(1), 3), "min.*max"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_result_whose_size_only_values_tell_is_refused(name):
    function, remedy = REFUSED[name]
    with pytest.raises(Unsupported, match=rf"reads a value.*{remedy}.*test_outside_values.py:\d+"):
        ad.compile(function)(ad.tensor([1.0, 2.0, 3.0]), ad.tensor([0, 2, 1]))


def test_an_array_that_shows_a_tensor_is_not_written_meanwhile():
    def function(x):
        array = u.numpy()
        array[0] = 5
        return x

    with pytest.raises(ValueError, match="read-only"):
        ad.compile(function)(ad.ones(3))
    assert isinstance(u.numpy(), np.ndarray)


def ill(kind):
    """Matrices some of which are singular."""
    x = ad.tensor([[[2.0, 1.0], [1.0, 3.0]], [[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]])
    return x[:1] if kind == "regular" else x[0] if kind == "one" else x[:0] if kind == "none" else x


@pytest.mark.parametrize("kind", ["regular", "singular", "one", "none"])
@pytest.mark.parametrize(
    "function",
    [
        ad.linalg.inv_ex,
        lambda A: ad.linalg.solve_ex(A, A.detach() * 0 + 1.0),
        ad.linalg.lu_factor_ex,
        ad.linalg.cond,
    ],
)
def test_what_says_by_a_result_that_a_matrix_is_singular_is_captured(kind, function):
    def both(A):
        found = function(A)
        found = found if isinstance(found, tuple) else (found,)
        ends = [y for y in found if y.requires_grad]
        return *found, ad.autograd.grad(sum(y.square().sum() for y in ends), A)[0]

    A = ill(kind).requires_grad_()
    if function is ad.linalg.cond:  # whose gradient is none of eager code's either
        both = lambda A: (function(A.detach()),)  # noqa: E731
    compiled = ad.compile(both)
    for y, expected in zip(compiled(A), both(A), strict=True):
        assert y.dtype is expected.dtype
        ad.testing.assert_close(y, expected, equal_nan=True)
    assert compiled.reasons == ["first call"]
