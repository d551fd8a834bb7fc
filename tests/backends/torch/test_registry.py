"""Every op of the registry on every sample: value, spec, first and second derivative as by NumPy.

`python -m tests.backends.torch.test_registry [device]` prints how many ops pass.
"""

from __future__ import annotations

import contextlib
import sys

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.op import REGISTRY
from adjoint.core.spec import Spec
from adjoint.runtime.dispatch import apply
from tests.sweep import few_or_many, spread

from . import comparing
from .comparing import assert_same, gradients, on_device, on_host, outputs, samples

SAMPLES = dict(samples())


def check_values(sample, device):
    host = on_host(sample)
    expected = outputs(apply(sample.op, *host))
    op, inputs = on_device(sample.op, host, device)
    found = outputs(apply(op, *inputs))
    if type(op).__name__ == "Transfer":
        device = "cpu"  # where its samples go to
    for y, e in zip(found, expected, strict=True):
        assert_same(y, e, device, sample.tolerance)
    inferred = op.infer(*(x.spec if isinstance(x, ad.Tensor) else x for x in inputs))
    assert [y.spec for y in found] == list((inferred,) if isinstance(inferred, Spec) else inferred)
    for x, h in zip(inputs, host, strict=True):
        if isinstance(x, ad.Tensor):  # inputs are left alone
            np.testing.assert_array_equal(comparing.wide(x), comparing.wide(h))


def differentiable(sample):
    kinds = [x.dtype for x in sample.inputs if hasattr(x, "dtype") and x.dtype.kind in "fcV"]
    wide = (np.float32, np.float64, np.complex128)
    return sample.gradients and sample.op.differentiable and all(d in wide for d in kinds)


def check_gradients(sample, device):
    host = on_host(sample)
    expected = gradients(sample.op, host)
    op, inputs = on_device(sample.op, host, device)
    found = gradients(op, inputs)
    assert (found is None) == (expected is None)
    for g, e in zip(found or (), expected or (), strict=True):
        assert (g is None) == (e is None)
        if g is not None:
            assert_same(g, e, device, 1e-3 if "32" in g.dtype.name else 1e-7)


# Samples of which the result is not unique, each with what must hold instead: PyTorch's answer is
# another one than NumPy's, and as good.


def check_svd(sample, device):
    """Singular vectors of a matrix that is not square: those that belong to no singular value are
    any basis of the rest, and each may have the other sign.
    """
    (a,) = on_host(sample)
    op, inputs = on_device(sample.op, [a], device)
    u, s, vh = apply(op, *inputs)
    assert_same(s, apply(sample.op, a)[1], device)
    k = s.shape[-1]
    back = (u[..., :k] * s.to(u.dtype).unsqueeze(-2)) @ vh[..., :k, :]
    assert_same(back, a, device, 1e-5)
    for q in (u, vh.mH):
        assert_same(
            q.mH @ q,
            ad.eye(q.shape[-1], dtype=q.dtype).expand(q.mH.shape[:-1] + q.shape[-1:]),
            device,
            1e-5,
        )


def check_eigh(sample, device):
    """Eigenvectors, each of which may have another sign or phase."""
    (a,) = on_host(sample)
    op, inputs = on_device(sample.op, [a], device)
    values, vectors = apply(op, *inputs)
    assert_same(values, apply(sample.op, a)[0], device)
    back = (vectors * values.to(vectors.dtype).unsqueeze(-2)) @ vectors.mH
    assert_same(back, a, device, 1e-5)


NOT_UNIQUE = {"SVD-wide": check_svd, "SVD-full": check_svd, "SVD-full-wide": check_svd}
NOT_UNIQUE = {name: check for name, check in NOT_UNIQUE.items() if name in SAMPLES}


SIGNS = {"SVD": check_svd, "Eigh": check_eigh}  # CUDA's library decides otherwise than LAPACK


def check_of(name, device):
    """What is checked of a sample's values."""
    if device == "cuda" and name.split("-")[0] in SIGNS:
        return SIGNS[name.split("-")[0]]
    return NOT_UNIQUE.get(name, check_values)


def by_op():
    """The names of the samples of each op: a test for each would take longer than they do."""
    found = {}
    for name, sample in SAMPLES.items():
        found.setdefault(type(sample.op).__name__, []).append(name)
    return found


OPS = by_op()


@contextlib.contextmanager
def naming(name):
    """Say in errors which sample fails."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{name}: {error}") from error


@few_or_many("count", 3, 1000)
@pytest.mark.parametrize("op", OPS)
def test_values_and_specs(op, count, device):
    for name in spread(OPS[op], count):
        with naming(name):
            check_of(name, device)(SAMPLES[name], device)


@few_or_many("count", 1, 1000)
@pytest.mark.parametrize("op", OPS)
def test_first_and_second_derivatives(op, count, device):
    names = [n for n in OPS[op] if differentiable(SAMPLES[n]) and n not in NOT_UNIQUE][:count]
    if not names:
        pytest.skip("it has no derivative")
    if device == "cuda" and op in SIGNS:
        pytest.skip("its derivative depends on the signs of vectors, which differ; see 'torch'")
    for name in names:
        with naming(name):
            check_gradients(SAMPLES[name], device)


def test_the_exceptions_are_few_and_needed():
    assert len(NOT_UNIQUE) <= 3
    for name in NOT_UNIQUE:
        with pytest.raises(AssertionError):
            check_values(SAMPLES[name], "torch")


def test_the_check_sees_a_wrong_result(monkeypatch):
    """The checker itself: a value that is off by a thousandth does not pass."""
    from adjoint.backends.torch import place
    from adjoint.backends.torch.namespace import on

    space = on(place(ad.device("torch")))
    right = space.tanh
    monkeypatch.setattr(space, "tanh", lambda x: right(x) * 1.001)
    with pytest.raises(AssertionError):
        check_values(SAMPLES["Tanh-float32"], "torch")


def count(device):
    """How many ops there are, and which fail on a device."""
    failing = {}
    for name, sample in SAMPLES.items():
        try:
            check = check_of(name, device)
            check(sample, device)
            if check is check_values and differentiable(sample):
                check_gradients(sample, device)
        except Exception as error:
            failing.setdefault(type(sample.op).__name__, f"{name}: {error}")
    return len({type(s.op) for s in SAMPLES.values()}), failing


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else "torch"
    total, failing = count(where)
    for name, reason in failing.items():
        print(f"{name}: {' '.join(reason.split())[:200]}")
    registered = sum(name.startswith("adjoint.") for name in REGISTRY)
    print(f"{total - len(failing)} of {registered} ops pass on {where!r} ({len(SAMPLES)} samples)")
