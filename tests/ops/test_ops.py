"""Every op of the registry on every sample: value, spec, first- and second-order gradient."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.op import REGISTRY
from adjoint.core.spec import Spec
from adjoint.runtime.dispatch import apply

from ..sweep import first_of_each

TOLERANCE = {"float64": 1e-9, "complex128": 1e-9, "float32": 2e-5, "complex64": 2e-5,
             "float16": 2e-3, "bfloat16": 1.6e-2}  # fmt: skip


def cases():
    for name, cls in sorted(REGISTRY.items()):
        if not name.startswith("adjoint."):
            continue
        samples = list(cls.samples())
        assert samples, f"{name} has no samples"
        for i, sample in enumerate(samples):
            yield pytest.param(sample, id=f"{cls.__name__}-{sample.label or i}")


CASES = list(cases())


def few_of_each_op(cases, count=2):
    """The cases; all but `count` of each op are left to the sweep."""
    return first_of_each(lambda case: type(case.values[0].op), cases, count)


def tensors(sample):
    """The sample's inputs as tensors that share its arrays' layout."""
    return [ad.from_numpy(x) if isinstance(x, np.ndarray) else x for x in sample.inputs]


def outputs(value):
    return value if isinstance(value, tuple) else (value,)


def widen(x):
    """An array in a precision that comparisons can be made in."""
    x = np.asarray(x)
    return x.astype(np.float64) if x.dtype.kind in "fVbiu" else x.astype(np.complex128)


@pytest.mark.parametrize("sample", few_of_each_op(CASES))
def test_value_and_spec(sample):
    before = [x.copy() if isinstance(x, np.ndarray) else x for x in sample.inputs]
    result = outputs(apply(sample.op, *tensors(sample)))
    specs = [x.spec if isinstance(x, ad.Tensor) else x for x in tensors(sample)]
    inferred = sample.op.infer(*specs)
    inferred = (inferred,) if isinstance(inferred, Spec) else inferred
    assert [y.spec for y in result] == list(inferred)
    if sample.reference:
        expected = outputs(sample.op.reference(*sample.inputs))
        for y, e in zip(result, expected, strict=True):
            assert y.shape == np.shape(e)
            tolerance = sample.tolerance or TOLERANCE.get(y.dtype.name, 0)
            np.testing.assert_allclose(widen(y.numpy()), widen(e), rtol=tolerance, atol=tolerance)
    for x, b in zip(sample.inputs, before, strict=True):
        if isinstance(x, np.ndarray):
            np.testing.assert_array_equal(widen(x), widen(b))  # inputs are left alone


def differentiable(sample):
    kinds = [x.dtype.kind in "fc" for x in sample.inputs if isinstance(x, np.ndarray)]
    wide = all(
        x.dtype in (np.float64, np.complex128)
        for x in sample.inputs
        if isinstance(x, np.ndarray) and x.dtype.kind in "fcV"
    )
    return sample.gradients and sample.op.differentiable and any(kinds) and wide


@pytest.mark.parametrize("sample", few_of_each_op(c for c in CASES if differentiable(c.values[0])))
def test_gradients_to_second_order(sample):
    inputs = []
    for x in tensors(sample):
        if isinstance(x, ad.Tensor) and x.dtype.category >= 2:
            x = x.detach().requires_grad_()
        inputs.append(x)

    def function(*values):
        found = outputs(apply(sample.op, *values))
        return tuple(y for y in found if y.requires_grad and y.dtype in (ad.float64, ad.complex128))

    if not function(*inputs):
        pytest.skip("this sample's output dtype has no gradient")
    seed = zlib.crc32(repr(sample.op).encode())
    assert seed >= 0
    assert ad.autograd.gradcheck(function, inputs)
    assert ad.autograd.gradgradcheck(function, inputs)
