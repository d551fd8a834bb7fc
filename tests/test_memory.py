"""What is kept alive, for how long, and who shares memory with whom."""

from __future__ import annotations

import gc
import tracemalloc
import weakref

import numpy as np
import pytest

import adjoint as ad
from adjoint.autograd.graph import saved_tensors_hooks
from adjoint.utils.checkpoint import checkpoint, checkpoint_sequential

from .sweep import few_or_many, swept

MIB = 2**20


@pytest.fixture(autouse=True)
def no_collector():
    """Everything here is freed by reference counts alone."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def leaf(*shape, dtype=ad.float32):
    return ad.tensor(np.ones(shape), dtype=dtype, requires_grad=True)


def big(count=1):
    """`count` MiB of float32."""
    return ad.tensor(np.ones((count, MIB // 4), np.float32))


# ---- depth ---------------------------------------------------------------------------------------


@few_or_many("depth", 200_000, 1_000_000)
@pytest.mark.parametrize(
    "step", [lambda y, x: y + x, *map(swept, (lambda y, x: y.tanh(), lambda y, x: y * x))]
)
def test_many_nodes_deep(step, depth):
    """Where a step's cost grew with the depth, there would be no end of it."""
    x = leaf(1)
    y = x
    for _ in range(depth):
        y = step(y, x)
    y.backward()
    assert np.isfinite(x.grad.item())
    node = weakref.ref(y.grad_fn)
    del y
    assert node() is None


def test_long_chain_of_views():
    x = leaf(4)
    y = x
    for _ in range(50_000):
        y = y.reshape(2, 2).reshape(4)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.ones(4))


def test_long_chain_of_in_place_writes_through_views():
    x = leaf(2)
    y = x * 1
    for _ in range(3_000):
        y[:1].add_(x[:1])
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [3001, 1])


def test_ten_thousand_diamonds():
    x = leaf(1, dtype=ad.float64)
    y = x
    for _ in range(10_000):
        y = y * 0.5 + y * 0.5
    y.backward()
    assert x.grad.item() == 1


def test_grad_of_a_deep_graph_to_an_intermediate():
    x = leaf(1)
    y = x
    for i in range(50_000):
        y = y + x
        if i == 49_990:
            middle = y
    (g,) = ad.autograd.grad(y, middle)
    assert g.item() == 1


# ---- lifetime ------------------------------------------------------------------------------------


def test_dropping_the_loss_frees_the_graph_at_once():
    x = leaf(3)
    a = x.tanh()
    b = a.exp() * a
    c = ad.stack([b, b.reshape(3)]).sum(0)
    c.mul_(2)
    loss = c[1:].sum()
    nodes = [weakref.ref(t.grad_fn) for t in (a, b, c, loss)]
    arrays = [weakref.ref(t._data) for t in (a, b, c)]
    del a, b, c
    assert all(node() is not None for node in nodes)
    del loss
    assert not any(each() is not None for each in nodes + arrays)


def test_dropping_the_loss_frees_its_memory():
    x = big()
    w = leaf(MIB // 4)
    (x * w).tanh()  # the native backend is loaded, and its kernels are made
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        y = x * w
        for _ in range(10):
            y = y.tanh()
        assert tracemalloc.get_traced_memory()[0] - before > 10 * MIB
        del y
        assert tracemalloc.get_traced_memory()[0] - before < 0.1 * MIB
    finally:
        tracemalloc.stop()


def test_create_graph_leaves_no_cycle_behind():
    x = leaf(3)
    y = x.exp().tanh()
    (g,) = ad.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = ad.autograd.grad(g.sum(), x, create_graph=True)
    nodes = [weakref.ref(t.grad_fn) for t in (y, g, h)]
    del y, g, h
    assert not any(node() is not None for node in nodes)


def test_views_and_in_place_writes_leave_no_cycle_behind():
    x = leaf(4)
    y = x * 2
    view = y[:2]
    view.mul_(3)
    y.add_(1)
    kept = [weakref.ref(t) for t in (y, view)]
    del y, view
    assert not any(each() is not None for each in kept)


def test_values_that_no_gradient_reads_are_not_kept():
    x = leaf(3)
    a = x * 2
    array = weakref.ref(a._data)
    b = a + 1
    del a
    assert array() is None  # Add saves nothing
    c = b.exp()
    array = weakref.ref(b._data)
    del b
    assert array() is None and c.requires_grad  # Exp saves its output only


def test_only_what_the_wanted_gradient_reads_is_kept():
    x, constant = leaf(3), ad.ones(3)
    y = constant * x.detach() * 1
    product = x * y
    kept = weakref.ref(y._data)
    del y
    assert kept() is not None  # the gradient of x reads y
    other = ad.ones(3) * 2
    product = product * other.detach() + other
    array = weakref.ref(other._data)
    del other
    assert array() is not None and product.requires_grad
    values = [v for v in (x * ad.ones(3)).grad_fn.saved if v is x]
    assert not values  # x itself is not: the constant wants no gradient


def test_backward_frees_saved_values_and_gradients_as_it_goes():
    """Ten saved values are dropped one by one: the peak is that of the forward and little more."""
    w = leaf(MIB // 4)
    tracemalloc.start()
    try:
        y = w
        for _ in range(10):
            y = y.tanh()
        before = tracemalloc.get_traced_memory()[0]
        g = ad.ones(MIB // 4)
        tracemalloc.reset_peak()
        y.backward(g)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak < 5.5 * MIB  # g, and the temporaries of one rule


def test_accumulation_frees_the_fresh_gradient_at_once():
    """Leaves take their gradient as soon as it is complete, so fresh gradients never pile up."""
    leaves = [leaf(MIB // 4) for _ in range(12)]
    for x in leaves:
        x.grad = ad.zeros(MIB // 4)

    def loss():
        total = leaves[0] * 2
        for x in leaves[1:]:
            total = total + x * 2
        return total

    tracemalloc.start()
    try:
        y = loss()
        g = ad.ones(MIB // 4)
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        y.backward(g)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak < 4.5 * MIB
    assert all(x.grad[0].item() == 2 for x in leaves)


def test_a_weight_used_many_times_sums_in_place():
    w = leaf(MIB // 4)
    ys = [w * float(i) for i in range(1, 9)]
    total = ys[0]
    for y in ys[1:]:
        total = total + y
    del ys, y
    g = ad.ones(MIB // 4)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        total.backward(g)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert w.grad[0].item() == 36
    assert peak < 4.5 * MIB


def test_post_accumulate_hooks_can_free_gradients_early():
    alive, most = 0, 0
    leaves = [leaf(10) for _ in range(20)]

    def step(parameter):
        nonlocal alive, most
        alive += 1
        most = max(most, sum(x.grad is not None for x in leaves))
        parameter.grad = None

    y = ad.ones(10)
    for x in leaves:
        x.register_post_accumulate_grad_hook(step)
        y = (y * x).tanh()
    y.sum().backward()
    assert alive == 20 and most == 1


# ---- who shares memory ---------------------------------------------------------------------------


def shares(a, b):
    return np.shares_memory(a.detach().numpy(), b.detach().numpy())


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_of_two_leaves_never_share_memory(create_graph):
    a, b = leaf(3), leaf(3)
    (a + b).sum().backward(create_graph=create_graph)
    assert not shares(a.grad, b.grad)
    with ad.no_grad():
        a.grad.add_(1)
    np.testing.assert_array_equal(b.grad.detach().numpy(), np.ones(3))


@pytest.mark.parametrize("create_graph", [False, True])
def test_the_callers_gradient_is_not_shared(create_graph):
    a = leaf(3)
    for function in (lambda x: x + 0, lambda x: x.reshape(3, 1).reshape(3), lambda x: x):
        g = ad.ones(3)
        a.grad = None
        function(a).backward(g, create_graph=create_graph)
        assert not shares(a.grad, g)


def test_retained_gradients_share_no_memory():
    x = leaf(3)
    y = x + 1
    z = y + 1
    y.retain_grad()
    z.retain_grad()
    z.sum().backward()
    assert not shares(y.grad, z.grad) and not shares(x.grad, y.grad)


def test_gradients_returned_to_the_caller_share_nothing_with_leaves():
    x = leaf(3)
    y = x + 1
    (g,) = ad.autograd.grad(y, y, ad.ones(3), retain_graph=True)
    y.backward(g)
    assert not shares(x.grad, g)


def test_a_hook_that_writes_into_its_gradient_changes_only_that_path():
    a, b = leaf(3), leaf(3)
    y = a * 1

    def write(g):
        g.mul_(10)

    y.register_hook(write)
    g = ad.ones(3)
    (y + b).backward(g)
    np.testing.assert_array_equal(a.grad.numpy(), [10, 10, 10])
    np.testing.assert_array_equal(b.grad.numpy(), [1, 1, 1])
    np.testing.assert_array_equal(g.numpy(), [1, 1, 1])


def test_a_gradient_that_nobody_else_holds_is_kept_without_a_copy():
    """The fresh gradient of a product becomes `.grad` itself."""
    x = leaf(MIB)
    y = x * 2.0
    g = ad.ones(MIB)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        y.backward(g)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak < 4.5 * MIB  # 4 MiB is the gradient itself


def test_relu_reuses_the_memory_of_a_gradient_that_nobody_else_holds():
    x = leaf(MIB)
    y = (x * 1.0).relu() * 2.0
    g = ad.ones(MIB)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        y.backward(g)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak < 9.5 * MIB
    np.testing.assert_array_equal(g.numpy(), np.ones(MIB))


def test_relu_leaves_gradients_alone_that_somebody_holds():
    x = leaf(2, dtype=ad.float64)
    seen = []
    y = (x - 2).relu()
    y.register_hook(seen.append)
    g = ad.tensor([3.0, 4.0], dtype=ad.float64)
    (y * 1).backward(g)
    np.testing.assert_array_equal(seen[0].numpy(), [3, 4])
    np.testing.assert_array_equal(x.grad.numpy(), [0, 0])
    y = (x - 2).relu()
    y.backward(g)
    np.testing.assert_array_equal(g.numpy(), [3, 4])


# ---- saved-tensor hooks and checkpoints ----------------------------------------------------------


def test_saved_tensor_hooks_see_each_saved_tensor_and_restore_its_history():
    packed = []

    def pack(x):
        packed.append(x.requires_grad)
        return x.numpy().copy()

    x = leaf(3, dtype=ad.float64)
    with saved_tensors_hooks(pack, ad.from_numpy):
        y = (x * x.exp()).tanh()
    assert packed == [False, True, True, False]  # outputs come without their history
    (g,) = ad.autograd.grad(y.sum(), x, create_graph=True)
    plain = (x * x.exp()).tanh()
    (expected,) = ad.autograd.grad(plain.sum(), x, create_graph=True)
    ad.testing.assert_close(g, expected)
    ad.testing.assert_close(ad.autograd.grad(g.sum(), x)[0], ad.autograd.grad(expected.sum(), x)[0])


def test_saved_tensor_hooks_errors():
    x = leaf(3)
    with saved_tensors_hooks(lambda t: t, lambda t: 3):
        y = x.exp()
    with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor but got"):
        y.sum().backward()
    with (
        saved_tensors_hooks(lambda t: t.mul_(2), lambda t: t),
        pytest.raises(RuntimeError, match="pack hook is modifying its input in place"),
    ):
        x.exp()
    assert (x * 2).requires_grad


def forward_peak(function):
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        y = function()
        kept = tracemalloc.get_traced_memory()[0] - before
        y.sum().backward()
        return kept
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_keeps_only_the_input(use_reentrant):
    x = leaf(MIB // 4)

    def block(h):
        for _ in range(10):
            h = h.tanh()
        return h

    assert forward_peak(lambda: block(x)) > 9 * MIB
    expected, x.grad = x.grad, None
    assert forward_peak(lambda: checkpoint(block, x, use_reentrant=use_reentrant)) < 1.5 * MIB
    ad.testing.assert_close(x.grad, expected)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_draws_the_same_random_numbers(use_reentrant):
    x = leaf(50, dtype=ad.float64)

    def noisy(h):
        return h * ad.rand(50, dtype=ad.float64).exp() * h

    ad.manual_seed(3)
    y = checkpoint(noisy, x, use_reentrant=use_reentrant)
    state = ad.get_rng_state()
    y.sum().backward()
    ad.testing.assert_close(ad.get_rng_state(), state)  # backward draws nothing that is seen
    ad.manual_seed(3)
    other = leaf(50, dtype=ad.float64)
    noisy(other).sum().backward()
    ad.testing.assert_close(x.grad, other.grad)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_reaches_parameters_and_several_inputs(use_reentrant):
    w, a, b = (leaf(3, dtype=ad.float64) for _ in range(3))

    def block(p, q, factor):
        return p * w * factor, (q * w).exp()

    u, v = checkpoint(block, a, b, 2.0, use_reentrant=use_reentrant)
    (u * v).sum().backward()
    found = [t.grad for t in (w, a, b)]
    for t in (w, a, b):
        t.grad = None
    u, v = block(a, b, 2.0)
    (u * v).sum().backward()
    for g, t in zip(found, (w, a, b), strict=True):
        ad.testing.assert_close(g, t.grad)


def test_checkpoint_with_keywords_autograd_grad_and_retain_graph():
    x = leaf(3, dtype=ad.float64)
    calls = []

    def block(h, *, factor):
        calls.append(1)
        return (h * factor).exp().tanh()

    y = checkpoint(block, x, factor=0.5).sum()
    first = ad.autograd.grad(y, x, retain_graph=True)
    second = ad.autograd.grad(y, x)
    ad.testing.assert_close(first, second)
    ad.testing.assert_close(first, ad.autograd.grad(block(x, factor=0.5).sum(), x))
    assert len(calls) == 4  # forward, two recomputations, and the plain call


def test_nested_checkpoints():
    x = leaf(3, dtype=ad.float64)

    def inner(h):
        return h.exp().tanh()

    def outer(h):
        return checkpoint(inner, h.tanh()) * h

    checkpoint(outer, x).sum().backward()
    found, x.grad = x.grad, None
    (inner(x.tanh()) * x).sum().backward()
    ad.testing.assert_close(found, x.grad)


def test_checkpoint_notices_a_function_that_does_something_else():
    x = leaf(3)
    calls = []

    def changing(h):
        calls.append(1)
        return h.exp() if len(calls) == 1 else h * 2

    with pytest.raises(RuntimeError, match="different number of tensors was saved"):
        checkpoint(changing, x).sum().backward()
    calls.clear()

    def reshaping(h):
        calls.append(1)
        return (h if len(calls) == 1 else h[:1]).exp()

    with pytest.raises(RuntimeError, match="different metadata"):
        checkpoint(reshaping, x).sum().backward()


def test_checkpoint_errors():
    x = leaf(3)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: factor"):
        checkpoint(lambda h, factor: h, x, use_reentrant=True, factor=1)
    with pytest.raises(RuntimeError, match="none of output has requires_grad=True"):
        checkpoint(lambda h: h.detach(), x, use_reentrant=True).sum().backward()


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("segments", [1, 2, 3, 5])
def test_checkpoint_sequential(segments, use_reentrant):
    functions = [ad.exp, ad.tanh, lambda h: h * 2, ad.tanh, ad.exp]
    x = leaf(3, dtype=ad.float64)
    checkpoint_sequential(functions, segments, x, use_reentrant=use_reentrant).sum().backward()
    other = leaf(3, dtype=ad.float64)
    y = other
    for function in functions:
        y = function(y)
    y.sum().backward()
    ad.testing.assert_close(x.grad, other.grad)


@pytest.mark.parametrize("count", ["sum", "count_nonzero", "bincount"])
def test_small_integers_are_counted_without_wide_copies(count):
    x = (ad.arange(4 * MIB) % 100).to(ad.int8)
    wanted = getattr(x.long(), count)()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        got = getattr(x, count)()
        assert tracemalloc.get_traced_memory()[1] - before < 6 * MIB
    finally:
        tracemalloc.stop()
    assert got.dtype is ad.int64 and got.equal(wanted)
