"""Reductions of random shapes, dtypes, layouts and dims agree with PyTorch, errors included."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adjoint as ad

torch = pytest.importorskip("torch")

SEVERAL_DIMS = ("sum", "mean", "var", "std", "amax", "amin", "logsumexp", "count_nonzero", "nansum")
ONE_DIM = ("prod", "argmax", "argmin", "all", "any", "cumsum", "cumprod", "max", "min")
KEEPS = {"count_nonzero": False, "cumsum": False, "cumprod": False}
DTYPES = ("float64", "float32", "int64", "int32", "uint8", "bool")


@st.composite
def cases(draw):
    """An array that may be transposed or strided, a reduction and its arguments."""
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    dtype = draw(st.sampled_from(DTYPES))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    step = 2 if dtype.startswith("float") else 1
    array = np.asarray(rng.integers(-3 * step, 4 * step, shape) / step).astype(dtype)
    array = array.transpose(draw(st.permutations(range(len(shape)))))
    if array.ndim and draw(st.booleans()):
        array = array[..., ::2]
    name = draw(st.sampled_from(SEVERAL_DIMS + ONE_DIM))
    dims = st.integers(-len(shape) - 1, len(shape))  # one too many on either side
    if name in ONE_DIM:
        dim = draw(dims)
    else:
        dim = draw(dims | st.lists(dims, min_size=1, max_size=3, unique=True).map(tuple))
    keepdim = {"keepdim": draw(st.booleans())} if KEEPS.get(name, True) else {}
    return array, name, dim, keepdim


def run(function, *arguments, **options):
    """The tensors of the result, or the error."""
    try:
        result = function(*arguments, **options)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        return error
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.filterwarnings("ignore:.*degrees of freedom:UserWarning")
@settings(max_examples=600)
@given(cases())
def test_reductions_agree_with_pytorch(case):
    array, name, dim, keepdim = case
    ours = run(getattr(ad, name), ad.from_numpy(array), dim, **keepdim)
    theirs = run(getattr(torch, name), torch.from_numpy(array), dim, **keepdim)
    if isinstance(theirs, Exception):
        assert isinstance(ours, Exception), f"PyTorch refuses: {theirs}"
        return
    assert not isinstance(ours, Exception), f"only we refuse: {ours}"
    for mine, other in zip(ours, theirs, strict=True):
        assert f"torch.{mine.dtype.name}" == str(other.dtype)
        assert tuple(mine.shape) == tuple(other.shape)
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-5, atol=1e-6)
