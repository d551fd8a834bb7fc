"""`utils.swap_tensors`, and conversions of modules that swap, beside PyTorch."""

from __future__ import annotations

import weakref

import pytest

import adjoint as ad
from adjoint.nn import conversion

torch = pytest.importorskip("torch")
import torch.__future__ as their_switches  # noqa: E402

FRAMEWORKS = {ad: conversion, torch: their_switches}


@pytest.mark.parametrize("f", FRAMEWORKS)
def test_each_object_goes_on_with_the_others_content(f):
    class Named(f.Tensor):
        label = "none"

    a = f.nn.Parameter(f.ones(2))
    (a * 3).sum().backward()
    a.note = "of a"
    calls = []
    a.register_hook(lambda g: calls.append(g.tolist()))
    b = f.arange(6.0).reshape(2, 3).clone().as_subclass(Named)
    b.label = "b"
    f.utils.swap_tensors(a, b)
    assert type(a) is Named and type(b) is f.nn.Parameter
    assert a.label == "b" and not hasattr(a, "note") and b.note == "of a"
    assert a.shape == (2, 3) and not a.requires_grad and a.grad is None
    assert b.tolist() == [1, 1] and b.requires_grad and b.is_leaf and b.grad.tolist() == [3, 3]
    (b * 2).sum().backward()
    assert b.grad.tolist() == [5, 5] and calls == [[2, 2]]
    with f.no_grad():
        b.mul_(4)
        a.add_(1)
    assert b.tolist() == [4, 4] and a.tolist() == [[1, 2, 3], [4, 5, 6]]
    f.utils.swap_tensors(a, a)
    assert a.tolist() == [[1, 2, 3], [4, 5, 6]] and type(a) is Named


@pytest.mark.parametrize("f", FRAMEWORKS)
def test_history_moves_along(f):
    x = f.ones(2, requires_grad=True)
    y, z = x * 2, f.zeros(3)
    if f is ad:  # PyTorch refuses it then, by a weak reference of its own
        y.retain_grad()
    f.utils.swap_tensors(y, z)
    assert y.tolist() == [0, 0, 0] and y.grad_fn is None and z.grad_fn.name() == "MulBackward0"
    z.sum().backward()
    assert x.grad.tolist() == [2, 2]
    assert f is torch or (z.grad.tolist() == [1, 1] and y.grad is None)


@pytest.mark.parametrize("f", FRAMEWORKS)
def test_views_may_be_swapped_and_what_has_views_may_not(f):
    base, other = f.zeros(4), f.ones(2)
    part = base[:2]
    f.utils.swap_tensors(part, other)
    other.add_(5)
    assert base.tolist() == [5, 5, 0, 0] and part.tolist() == [1, 1]
    base.add_(1)
    part.mul_(2)
    assert other.tolist() == [6, 6] and part.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match=r"Expected use_count of t1|gradient edge"):
        f.utils.swap_tensors(base, f.ones(1))
    del other
    f.utils.swap_tensors(base, part)
    assert base.tolist() == [2, 2] and part.tolist() == [6, 6, 1, 1]


@pytest.mark.parametrize("f", FRAMEWORKS)
def test_backward_through_what_was_computed_before_is_refused(f):
    a, b = f.ones(2, requires_grad=True), f.zeros(2, requires_grad=True)
    y = a.sum()  # saves no tensor: there is AccumulateGrad alone
    f.utils.swap_tensors(a, b)
    with pytest.raises(RuntimeError, match="poisoned by swap_tensors"):
        y.backward()
    a.sum().backward()
    assert a.grad.tolist() == [1, 1] and b.grad is None


def test_a_backward_that_reads_what_was_swapped_is_refused():
    # PyTorch refuses the swap itself: it counts who holds the memory
    for saved_at in (0, 1, 2):
        a, b = ad.ones(2), ad.zeros(2)
        w = ad.ones(2, requires_grad=True)
        for _ in range(saved_at):
            a.add_(1)
        y = (w * a).sum()
        b.add_(1)
        ad.utils.swap_tensors(a, b)
        with pytest.raises(RuntimeError, match="last changed by 'swap_tensors'"):
            y.backward()


@pytest.mark.parametrize("f", FRAMEWORKS)
@pytest.mark.parametrize("wanting", [False, True])
def test_weak_references_are_refused(f, wanting):
    a, b = f.ones(2, requires_grad=wanting), f.zeros(2)
    reference = weakref.ref(a)
    for pair, name in (((a, b), "t1"), ((b, a), "t2")):
        with pytest.raises(RuntimeError, match=f"Cannot swap {name} because it has weakref"):
            f.utils.swap_tensors(*pair)
    del reference
    keyed = weakref.WeakValueDictionary({1: a})
    with pytest.raises(RuntimeError, match="has weakref"):
        f.utils.swap_tensors(a, b)
    del keyed
    f.utils.swap_tensors(a, b)
    f.utils.swap_tensors(a, b)
    assert a.tolist() == [1, 1] and a.requires_grad is wanting


@pytest.mark.parametrize("f", FRAMEWORKS)
def test_slots(f):
    class Slotted(f.Tensor):
        __slots__ = ("place",)

    class Other(f.Tensor):
        __slots__ = ("place",)

    a, b = Slotted([1.0, 1.0]), Slotted([0.0, 0.0])
    a.place = 1
    f.utils.swap_tensors(a, b)
    assert b.place == 1 and not hasattr(a, "place") and a.tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="if they have different slots"):
        f.utils.swap_tensors(a, f.ones(2))
    with pytest.raises((TypeError, AttributeError)):
        f.utils.swap_tensors(f.ones(2), 3)


def test_what_is_not_computed_yet_is_refused():
    for make in (ad.lazy, ad.Graph, ad.inference_mode):
        with make():
            x = ad.ones(2) * 2
        with pytest.raises(ad.Unsupported, match="swap_tensors: t2 is a value of a graph"):
            ad.utils.swap_tensors(ad.ones(2), x)


@pytest.mark.parametrize(("f", "switches"), FRAMEWORKS.items())
def test_modules_are_converted_by_swapping(f, switches):
    assert not switches.get_swap_module_params_on_conversion()
    m = f.nn.Linear(2, 2)
    m(f.ones(1, 2)).sum().backward()
    weight, gradient, values = m.weight, m.weight.grad, m.weight.tolist()
    optimizer = f.optim.SGD(m.parameters(), lr=0.5)
    switches.set_swap_module_params_on_conversion(True)
    try:
        m.double()
        assert m.weight is weight and m.weight.grad is gradient and type(weight) is f.nn.Parameter
        assert weight.dtype is gradient.dtype is f.float64 and weight.requires_grad
        optimizer.step()
        assert m.weight.tolist() == [[v - 0.5 for v in row] for row in values]
        reference = weakref.ref(m.bias)
        with pytest.raises(RuntimeError, match=r"_apply\(\): Couldn't swap Linear.bias"):
            m.float()
        assert m.bias.grad is not None and reference() is m.bias
    finally:
        switches.set_swap_module_params_on_conversion(False)


@pytest.mark.parametrize(("f", "switches"), FRAMEWORKS.items())
def test_modules_are_converted_with_new_parameters(f, switches):
    m = f.nn.Linear(2, 2)
    m(f.ones(1, 2)).sum().backward()
    weight = m.weight
    switches.set_overwrite_module_params_on_conversion(True)
    try:
        m.double()
        assert switches.get_overwrite_module_params_on_conversion()
        assert m.weight is not weight and weight.dtype is f.float32
        assert m.weight.dtype is m.weight.grad.dtype is f.float64
    finally:
        switches.set_overwrite_module_params_on_conversion(False)
