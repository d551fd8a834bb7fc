"""In-place methods and `out=` exist wherever PyTorch has them, and give what the function gives."""

from __future__ import annotations

import itertools

import pytest

import adjoint as ad
from tests.sweep import few_or_many

torch = pytest.importorskip("torch")

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

from ..peers.op_db import DRAWN, UNINITIALISED, Missing, full_name, resolve, to_ours  # noqa: E402

# PyTorch's code generator gives these an `out=` that its documentation does not have.
UNDOCUMENTED = {
    "lu", "nn.functional.avg_pool2d", "nn.functional.avg_pool3d", "nn.functional.gelu",
    "nn.functional.hardshrink", "nn.functional.linear", "nn.functional.logsigmoid",
    "nn.functional.normalize", "nn.functional.softplus", "nn.functional.softshrink",
}  # fmt: skip

# What is shown is memory between the elements, of which a clone has other.
OF_MEMORY = {"as_strided/partial_views"}

COMPARABLE = [
    entry for entry in op_db
    if full_name(entry) not in DRAWN | UNINITIALISED | OF_MEMORY
    and not entry.name.startswith("_")
    and torch.float64 in entry.dtypes
    and "sparse" not in entry.name
]  # fmt: skip


def cases(entry, count):
    """A few inputs of an entry, as adjoint's values: (first input, other arguments, keywords)."""
    found = entry.sample_inputs("cpu", torch.float64, requires_grad=False)
    for sample in itertools.islice(found, count):
        yield to_ours(sample.input), to_ours(sample.args), to_ours(sample.kwargs)


def named(entries):
    return [pytest.param(entry, id=full_name(entry)) for entry in entries]


def function_of(entry):
    try:
        return resolve(entry)
    except Missing:
        pytest.skip("a function that adjoint has not")


WITH_OUT = [e for e in COMPARABLE if e.supports_out and full_name(e) not in UNDOCUMENTED]


@few_or_many("count", 1, 3)
@pytest.mark.parametrize("entry", named(WITH_OUT))
def test_out_gets_the_result(entry, count):
    function = function_of(entry)
    for x, args, kwargs in cases(entry, count):
        expected = function(x, *args, **kwargs)
        several = isinstance(expected, tuple)
        wanted = expected if several else (expected,)
        if not all(isinstance(y, ad.Tensor) for y in wanted):
            continue
        for make in (ad.zeros_like, lambda y: ad.empty(0, dtype=y.dtype)):
            outs = tuple(make(y) for y in wanted)
            function(x, *args, **kwargs, out=outs if several else outs[0])
            for y, out in zip(wanted, outs, strict=True):
                assert out.shape == y.shape
                assert ad.allclose(out, y, equal_nan=True)


def in_place_name(entry):
    name = getattr(entry.inplace_variant, "__name__", "")
    return name if hasattr(torch.Tensor, name) else None


@few_or_many("count", 1, 3)
@pytest.mark.parametrize("entry", named(e for e in COMPARABLE if in_place_name(e)))
def test_in_place_method_gives_what_the_function_gives(entry, count):
    function = function_of(entry)
    method = getattr(ad.Tensor, in_place_name(entry))
    for x, args, kwargs in cases(entry, count):
        expected = function(x, *args, **kwargs)
        rebinds = entry.inplace_variant.__name__ in REBINDING
        if not rebinds and (expected.shape != x.shape or expected.dtype.category > 2):
            continue
        changed = x.clone()
        assert method(changed, *args, **kwargs) is changed
        assert changed.dtype is x.dtype and changed.shape == expected.shape
        assert ad.allclose(changed, expected.to(x.dtype), equal_nan=True)


REBINDING = {"as_strided_", "squeeze_", "t_", "transpose_", "unsqueeze_"}
