"""Every op of the registry on every sample, compiled with its gradients: as eagerly.

Values are the same bits, but for ops that add up many numbers (`TOLERANCE`): fused, they may do so
in another order. Inputs that an op refuses are refused with the same error.
"""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.op import REGISTRY
from adjoint.runtime.dispatch import apply
from tests.native import needs_native

from ..sweep import first_of_each
from .agreement import assert_equal, assert_same_error, error_of

pytestmark = needs_native

TOLERANCE = {"float64": 1e-12, "complex128": 1e-12, "float32": 1e-5, "complex64": 1e-5,
             "float16": 4e-3, "bfloat16": 3.2e-2}  # fmt: skip


def cases():
    for name, kind in sorted(REGISTRY.items()):
        if not name.startswith("adjoint.") or kind.drawn:
            continue
        for i, sample in enumerate(kind.samples()):
            yield pytest.param(sample, id=f"{kind.__name__}-{sample.label or i}")


def few_of_each_op(given):
    return first_of_each(lambda case: type(case.values[0].op), given)


def tensors(inputs):
    """Leaves that share the arrays' layout, with gradients wanted where there may be some."""
    found = []
    for x in inputs:
        if isinstance(x, np.ndarray):
            x = ad.from_numpy(x)
            if x.is_floating_point() or x.is_complex():
                x.requires_grad_()
        found.append(x)
    return found


def outputs(value):
    return value if isinstance(value, tuple) else (value,)


def gradients(results, inputs):
    """Of all results, weighted by numbers that differ."""
    ends = [y for y in results if y.requires_grad]
    leaves = [x for x in inputs if isinstance(x, ad.Tensor) and x.requires_grad]
    if not ends or not leaves:
        return []
    seeds = []
    for y in ends:
        numbers = ad.arange(1, y.numel() + 1, dtype=ad.float64).reshape(y.shape)
        seeds.append((numbers * 0.37).sin().to(y.dtype))
    return list(ad.autograd.grad(ends, leaves, seeds, allow_unused=True))


def check(op, inputs):
    def forward(*given):
        return outputs(apply(op, *given))

    def both(*given):
        found = forward(*given)
        return found, gradients(found, given)

    given = tensors(inputs)
    results, error = error_of(forward, *given)
    compiled = ad.compile(forward)
    found, own_error = error_of(compiled, *given)
    assert_same_error(own_error, error, "forward")
    if error is not None:
        return
    tolerance = max(
        TOLERANCE.get(x.dtype.name, 0) for x in (*results, *given) if isinstance(x, ad.Tensor)
    )
    assert_equal(found, results, tolerance, "forward")
    expected, error = error_of(gradients, results, given)
    outside, own_error = error_of(gradients, found, given)
    assert_same_error(own_error, error, "gradients from outside")
    inside, own_error = error_of(ad.compile(both), *given)
    assert_same_error(own_error, error, "gradients within")
    if error is None:
        assert_equal(outside, expected, tolerance, "gradients from outside")
        assert_equal(inside[1], expected, tolerance, "gradients within")
    # Another call of the same program.
    again, _ = error_of(compiled, *given)
    assert_equal(again, results, tolerance, "another call")
    assert len(compiled.programs) == 1


@pytest.mark.parametrize("sample", few_of_each_op(cases()))
def test_an_op_is_what_it_is_eagerly(sample):
    check(sample.op, sample.inputs)
