"""Each op in a batch against the op on each entry, and its forward derivative against its gradient
transposed: all samples of all ops, with every choice of inputs that are batched.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.op import REGISTRY
from adjoint.core.tensor_base import TensorBase
from adjoint.runtime.dispatch import apply

# Ops that run once for each entry, with a warning: there is nothing to be gained by a rule.
ONE_BY_ONE = {"bin_count", "hold_sizes"}
COMPILED = {"mask_at"}  # of programs alone


def by_op():
    """Small samples of each op, three, or one of a pointwise one: they have one rule."""
    found = []
    for cls in REGISTRY.values():
        if not cls.__module__.startswith("adjoint."):
            continue
        name = f"{cls.__name__}-{cls.__module__.rpartition('.')[2]}"
        samples = list(cls.samples())
        small = [s for s in samples if all(np.size(x) < 100 for x in s.inputs)]
        few = small[:1] if cls.pointwise else small[:3]
        found.append(pytest.param(few, id=name))
        found.append(pytest.param(samples, id=f"{name}-all", marks=pytest.mark.sweep))
    return found


def tensors(inputs):
    return [ad.tensor(x) if isinstance(x, np.ndarray) else x for x in inputs]


def batched(x, size, shift):
    """Entries that differ, each as valid as `x`: rolled where that leaves an op's domain alone."""
    if not size:
        return x.new_zeros((0, *x.shape))
    flat = x.reshape(-1)
    rows = [flat.roll(shift * i).reshape(x.shape) if shift else x for i in range(size)]
    return ad.stack(rows)


def same(a, b, tolerance):
    if a.dtype is not b.dtype or a.shape != b.shape:
        return False
    if not a.numel():
        return True
    wide = ad.complex128 if a.dtype.is_complex else ad.float64
    return ad.allclose(a.to(wide), b.to(wide), tolerance, tolerance, equal_nan=True)


def check(sample, size, shift, flags):
    inputs = tensors(sample.inputs)
    many = [batched(x, size, shift) if flag else x for x, flag in zip(inputs, flags, strict=True)]
    dims = tuple(0 if flag else None for flag in flags)
    try:
        rows = [
            apply(sample.op, *[x[i] if flag else x for x, flag in zip(many, flags, strict=True)])
            for i in range(size)
        ]
    except Exception:
        return  # entries that the op refuses
    found = ad.func.vmap(lambda *xs: apply(sample.op, *xs), dims, randomness="different")(*many)
    if sample.op.drawn:
        return
    several = isinstance(found, tuple)
    expected = (
        [ad.stack(list(column)) for column in zip(*rows, strict=True)]
        if several
        else [ad.stack(rows)]
    )
    narrow = any(isinstance(x, TensorBase) and x.itemsize < 4 for x in inputs)
    tolerance = 2e-2 if narrow else 1e-5
    for a, b in zip(found if several else [found], expected, strict=True):
        assert same(a, b, tolerance), (sample.op, flags, a, b)


@pytest.mark.parametrize("samples", by_op())
def test_a_batch_is_what_each_entry_gives(samples):
    for sample in samples:
        if sample.op.name in COMPILED:
            continue
        places = [i for i, x in enumerate(sample.inputs) if isinstance(x, np.ndarray)]
        for chosen in itertools.product((True, False), repeat=len(places)):
            if not any(chosen) or (len(places) > 3 and sum(chosen) not in (1, len(places))):
                continue
            flags = [False] * len(sample.inputs)
            for place, flag in zip(places, chosen, strict=True):
                flags[place] = flag
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore" if sample.op.name in ONE_BY_ONE else "error", UserWarning
                )
                check(sample, 3, 1 if sample.op.pointwise else 0, flags)
                check(sample, 3, 1, flags)


def double_vjp(function, xs, ts):
    """J t, by transposing the vector-Jacobian product of the whole."""
    ys = function(*xs)
    several = isinstance(ys, tuple)
    ys = ys if several else (ys,)
    live = [y for y in ys if y.requires_grad]
    if not live:
        return [None for _ in ys]
    us = [ad.zeros_like(y).requires_grad_() for y in live]
    rows = ad.autograd.grad(live, xs, us, create_graph=True, allow_unused=True)
    pairs = [(r, t) for r, t in zip(rows, ts, strict=True) if r is not None and r.requires_grad]
    if not pairs:
        return [None for _ in ys]
    found = iter(
        ad.autograd.grad([r for r, _ in pairs], us, [t for _, t in pairs], allow_unused=True)
    )
    return [next(found) if y.requires_grad else None for y in ys]


@pytest.mark.parametrize("samples", by_op())
def test_a_tangent_is_the_gradient_transposed(samples):
    """One by one, and together."""
    for sample in samples:
        if not sample.gradients or not sample.op.differentiable or sample.op.drawn:
            continue
        inputs = tensors(sample.inputs)
        floats = [
            i for i, x in enumerate(inputs)
            if isinstance(x, TensorBase) and x.dtype in (ad.float64, ad.complex128)
        ]  # fmt: skip
        for chosen in [(i,) for i in floats] + ([tuple(floats)] if len(floats) > 1 else []):
            ts = [ad.rand_like(inputs[i]) if inputs[i].numel() else inputs[i] for i in chosen]

            def function(*xs, chosen=chosen, op=sample.op, inputs=inputs):
                given = list(inputs)
                for i, x in zip(chosen, xs, strict=True):
                    given[i] = x
                return apply(op, *given)

            xs = [inputs[i].detach().requires_grad_() for i in chosen]
            expected = double_vjp(function, xs, ts)
            values, found = ad.func.jvp(function, tuple(inputs[i] for i in chosen), tuple(ts))
            found = found if isinstance(found, tuple) else (found,)
            values = values if isinstance(values, tuple) else (values,)
            for y, t, u in zip(values, found, expected, strict=True):
                assert t.shape == y.shape and t.dtype is y.dtype, sample.op
                u = ad.zeros_like(y) if u is None else u
                if u.dtype.category >= 2:
                    assert same(t, u, 1e-9), (sample.op, chosen, t, u)


NEW = {
    "new_zeros": lambda x: x.new_zeros(3).copy_(x),
    "new_ones": lambda x: x.new_ones((3,)).mul_(x),
    "new_full": lambda x: x.new_full((3,), 2.0).add_(x),
    "new_empty": lambda x: x.new_empty(3).copy_(x),
    "new_tensor": lambda x: x.new_tensor([1.0, 2.0, 3.0]).sub_(x),
    "new_empty_strided": lambda x: x.new_empty_strided((3,), (1,)).copy_(x),
    "zeros_like": lambda x: ad.zeros_like(x).add_(x),
    "empty_like": lambda x: ad.empty_like(x).copy_(x),
    "full_like": lambda x: ad.full_like(x, 2.0).mul_(x),
}


@pytest.mark.parametrize("name", list(NEW))
def test_what_is_made_of_an_entry_has_memory_for_each(name):
    x = ad.arange(6.0).reshape(2, 3)
    rows = ad.stack([NEW[name](row) for row in x])
    assert ad.func.vmap(NEW[name])(x).equal(rows)
    nested = ad.func.vmap(ad.func.vmap(NEW[name]))(ad.stack([x, x + 1]))
    assert nested[0].equal(rows)
    gradient = ad.func.vmap(ad.func.grad(lambda row: NEW[name](row).sum()))(x)
    assert gradient.equal(ad.stack([ad.func.grad(lambda row: NEW[name](row).sum())(r) for r in x]))
