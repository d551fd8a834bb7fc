"""The engine and the modes where PyTorch cannot be run beside: threads, tasks, errors, anomaly,
custom primitives. (What can be compared is in tests/test_scenarios.)
"""

from __future__ import annotations

import asyncio
import copy
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.errors import InvalidType
from adjoint.core.op import Op
from adjoint.runtime.dispatch import apply

from ..pytorch import torch


def leaf(*values):
    return ad.tensor(np.array(values or (2.0,)), requires_grad=True)


class Rule(Op, abstract=True):
    """The identity with whatever gradient rule a test wants."""

    needs = ""

    def __init__(self, rule):
        self.rule = rule

    def infer(self, *specs):
        return specs[0]

    def compute(self, xp, x, *others):
        return x * 1

    def gradient(self, g):
        return self.rule(g)


# ---- modes ---------------------------------------------------------------------------------------


def test_modes_are_per_thread():
    seen = []

    def work():
        seen.append(ad.is_grad_enabled())
        with ad.no_grad():
            ready.set()
            go_on.wait(5)
            seen.append(ad.is_grad_enabled())

    ready, go_on = threading.Event(), threading.Event()
    with ad.no_grad():
        thread = threading.Thread(target=work)
        thread.start()
        ready.wait(5)
    assert ad.is_grad_enabled()
    go_on.set()
    thread.join()
    assert seen == [True, False] and ad.is_grad_enabled()


def test_modes_are_per_task():
    async def quiet():
        with ad.no_grad():
            await asyncio.sleep(0)
            first = ad.is_grad_enabled()
            await asyncio.sleep(0)
            return first, ad.is_grad_enabled()

    async def recording():
        found = []
        for _ in range(4):
            found.append(ad.is_grad_enabled())
            await asyncio.sleep(0)
        return found

    async def main():
        return await asyncio.gather(quiet(), recording(), quiet())

    first, second, third = asyncio.run(main())
    assert first == third == (False, False) and second == [True] * 4


def test_backward_in_one_task_leaves_the_mode_of_others_alone():
    async def train():
        x = leaf(1.0)
        x.register_hook(lambda g: seen.append(ad.is_grad_enabled()))
        (x * x).sum().backward()
        await asyncio.sleep(0)
        return ad.is_grad_enabled()

    seen = []

    async def main():
        return await asyncio.gather(train(), train())

    assert asyncio.run(main()) == [True, True] and seen == [False, False]


def test_decorated_generator_suspends_the_mode():
    @ad.no_grad()
    def generator():
        try:
            sent = yield ad.is_grad_enabled()
            yield (sent, ad.is_grad_enabled())
        except KeyError:
            yield "caught", ad.is_grad_enabled()
        return "done"

    running = generator()
    assert next(running) is False and ad.is_grad_enabled()
    assert running.send(5) == (5, False) and ad.is_grad_enabled()
    assert running.throw(KeyError) == ("caught", False) and ad.is_grad_enabled()
    with pytest.raises(StopIteration) as stop:
        next(running)
    assert stop.value.value == "done" and ad.is_grad_enabled()


def test_generator_abandoned_in_the_middle_restores_the_mode():
    @ad.no_grad()
    def generator():
        yield 1

    running = generator()
    next(running)
    running.close()
    assert ad.is_grad_enabled()


def test_every_switch_restores_on_exceptions():
    for switch in (
        ad.no_grad(),
        ad.enable_grad(),
        ad.inference_mode(),
        ad.autograd.detect_anomaly(),
        ad.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    ):
        with pytest.raises(ZeroDivisionError), switch:
            raise ZeroDivisionError
        with ad.set_grad_enabled(True):
            pass
        assert ad.is_grad_enabled() and not ad.is_inference_mode_enabled()
        assert not ad.is_anomaly_enabled()
        assert (leaf() * 2).grad_fn.saved[0] is None  # nothing packed any more


def test_recursive_use_of_one_switch():
    switch = ad.no_grad()
    with switch, switch:
        assert not ad.is_grad_enabled()
    assert ad.is_grad_enabled()

    @ad.no_grad()
    def down(n):
        return not ad.is_grad_enabled() and (n == 0 or down(n - 1))

    assert down(5) and ad.is_grad_enabled()


def test_mode_objects_with_hooks_are_not_kept():
    import gc
    import weakref

    class Kept:
        pass

    kept = Kept()
    reference = weakref.ref(kept)

    def unpack(t, _kept=kept):
        return t

    x = leaf()
    with ad.autograd.graph.saved_tensors_hooks(lambda t: t, unpack), ad.enable_grad():
        y = x.exp()
        y.backward()
    gc.disable()
    try:
        del y, unpack, kept
        assert reference() is None
    finally:
        gc.enable()


def test_pack_hooks_are_given_the_variables():
    seen = []
    with ad.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        x = ad.nn.Parameter(ad.ones(2))
        y = x * x
        z = y * x
    assert [any(t is each for t in seen) for each in (x, y)] == [True, True]
    assert all(t.requires_grad for t in seen)
    z.sum().backward()
    assert x.grad.tolist() == [3, 3]


# ---- the walk ------------------------------------------------------------------------------------


def test_threads_run_independent_backwards():
    def work(seed):
        x = leaf(*np.random.default_rng(seed).standard_normal(5))
        y = x
        for _ in range(200):
            y = (y * x).tanh() + x
        y.sum().backward()
        return x.grad.numpy().copy()

    expected = [work(seed) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(8)))
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_threads_accumulate_into_shared_parameters_without_losing_any():
    w = ad.zeros(200_000, dtype=ad.float64, requires_grad=True)

    def work(_):
        for _ in range(20):
            (w * 1.0).sum().backward()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    np.testing.assert_array_equal(w.grad.numpy(), np.full(200_000, 80.0))


def test_nodes_run_newest_first_and_leaves_as_soon_as_complete():
    order = []
    a, b = leaf(1.0), leaf(1.0)
    c = a * b
    d = c * a
    e = d * b
    for name, x in {"a": a, "b": b, "c": c, "d": d, "e": e}.items():
        x.register_hook(lambda g, name=name: order.append(name))
    e.backward()
    assert order == ["e", "d", "c", "a", "b"]


def test_leaf_is_finished_before_older_nodes_run():
    order = []
    early, late = leaf(1.0), leaf(1.0)
    first = early * 2
    second = first * late
    first.register_hook(lambda g: order.append("first"))
    late.register_post_accumulate_grad_hook(lambda p: order.append("late"))
    second.backward()
    assert order == ["late", "first"]


def test_stepping_in_a_post_accumulate_hook_does_not_disturb_the_other_gradient():
    """All gradients of a node are computed before a leaf among its inputs gets its own."""
    w, x = leaf(3.0), leaf(5.0)

    def step(p):
        with ad.no_grad():
            p.sub_(p.grad)

    w.register_post_accumulate_grad_hook(step)
    (w * (x * 1)).backward()
    assert x.grad.item() == 3 and w.item() == -2


def test_error_in_a_hook_leaves_a_usable_state():
    x = leaf(1.0)
    y = x * 2

    def broken(g):
        raise ZeroDivisionError("in the hook")

    handle = y.register_hook(broken)
    with pytest.raises(ZeroDivisionError, match="in the hook"):
        (y * y).backward()
    assert x.grad is None and ad.is_grad_enabled()
    handle.remove()
    (y * y).backward()
    assert x.grad.item() == 8


@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        (lambda g: 3.0, "expected Variable, but hook returned 'float'"),
        (lambda g: ad.ones(5), "has changed the size of value"),
    ],
)
def test_hooks_that_return_nonsense(replacement, message):
    y = leaf(1.0, 2.0) * 2
    y.register_hook(replacement)
    with pytest.raises((TypeError, RuntimeError), match=message):
        y.sum().backward()


def test_nested_backward_inside_a_hook():
    x, z = leaf(2.0), leaf(3.0)
    inner = z * z

    def hook(g):
        inner.backward()
        return g * 10

    y = x * x
    y.register_hook(hook)
    y.backward()
    assert x.grad.item() == 40 and z.grad.item() == 6


def test_grad_of_the_same_graph_inside_a_hook():
    x = leaf(2.0)
    y = x * x
    z = y * 3
    seen = []

    def hook(g):
        handle.remove()
        seen.append(ad.autograd.grad(z, x, retain_graph=True)[0].item())

    handle = y.register_hook(hook)
    z.backward(retain_graph=True)
    assert seen == [12] and x.grad.item() == 12


def test_leaf_frozen_after_the_forward_gets_nothing():
    a, b = leaf(2.0), leaf(3.0)
    y = a * b
    a.requires_grad_(False)
    y.backward()
    assert a.grad is None and b.grad.item() == 2


def test_undefined_gradients_pass_through():
    x, z = leaf(2.0), leaf(3.0)
    nothing = apply(Rule(lambda g: (None,)), x * x)
    (nothing + z).backward()
    assert x.grad is None and z.grad.item() == 1
    y = x * x
    (apply(Rule(lambda g: (None,)), y) + y).backward()
    assert x.grad.item() == 4


def test_rule_with_fewer_gradients_than_inputs():
    x, z = leaf(2.0), leaf(3.0)
    y = z * 1
    (apply(Rule(lambda g: (g,)), x, y) + y).backward()
    assert x.grad.item() == 1 and z.grad.item() == 1


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda g: (3.0,), "RuleBackward0: expected Variable or None as a gradient, got float"),
        (lambda g: (g.numpy(),), "got ndarray"),
        (lambda g: (ad.ones(7),), r"RuleBackward0 returned an invalid gradient .* \[7\]"),
    ],
)
def test_rules_that_return_nonsense_are_named(rule, message):
    with pytest.raises((TypeError, RuntimeError), match=message):
        apply(Rule(rule), leaf(1.0, 2.0)).sum().backward()
    assert ad.is_grad_enabled()


def test_gradients_of_broadcast_shapes_are_summed():
    for shape in ((3, 1), (1,), (), (2, 3, 4), (1, 1, 4)):
        x = ad.ones(shape, dtype=ad.float64, requires_grad=True)
        (x * ad.ones(2, 3, 4, dtype=ad.float64)).sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), np.full(shape, 24 / x.numel()))


def test_several_outputs_used_twice_sum_their_gradients_to_any_order():
    x = leaf(3.0, 1.0, 2.0)
    values, _ = x.sort()
    (g,) = ad.autograd.grad((values * values * values).sum(), x, create_graph=True)
    (h,) = ad.autograd.grad((g * g).sum(), x)
    np.testing.assert_allclose(h.numpy(), 36 * x.detach().numpy() ** 3)


def test_third_order():
    x = leaf(0.5)
    y = x.tanh()
    for _ in range(3):
        (y,) = ad.autograd.grad(y, x, create_graph=True)
    t = np.tanh(0.5)
    np.testing.assert_allclose(y.item(), (1 - t**2) * (6 * t**2 - 2))


def test_in_place_sums_do_not_leak_into_other_gradients():
    """Three uses: the second addition is in place, but never into what somebody else holds."""
    x, other = leaf(1.0), leaf(1.0)
    seen = []
    y = x * 1
    a, b, c = y + other, y * 1, y * 1
    a.register_hook(seen.append)
    (a + b + c).backward()
    assert x.grad.item() == 3 and other.grad.item() == 1 and seen[0].item() == 1


def test_accumulating_into_an_expanded_grad_is_not_done_in_its_shared_memory():
    x = leaf(1.0, 1.0)
    x.grad = ad.ones(1, dtype=ad.float64).expand(2)
    (x * ad.tensor([1.0, 5.0], dtype=ad.float64)).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2, 6])


def test_accumulation_counts_as_a_change():
    x, w = leaf(1.0), leaf(2.0)
    (x * 1).backward()
    y = w * x.grad
    (x * 1).backward()
    with pytest.raises(RuntimeError, match="last changed by 'backward'"):
        y.backward()


# ---- anomaly mode --------------------------------------------------------------------------------


def test_anomaly_mode_names_the_op_and_the_users_line():
    x = ad.tensor([-1.0, 4.0], requires_grad=True)
    with ad.autograd.detect_anomaly():
        y = x.sqrt()  # this is the line
        with pytest.raises(RuntimeError) as error:
            y.sum().backward()
    text = str(error.value)
    assert "Function 'SqrtBackward0' returned nan values in its 0th output" in text
    assert "y = x.sqrt()  # this is the line" in text and __file__ in text
    assert "adjoint/autograd" not in re.sub(r"tests[/\\]autograd[/\\]test_autograd", "", text)
    assert (x * 2).sum().backward() is None


def test_anomaly_mode_names_a_custom_function():
    class Bad(ad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g * float("nan")

    with ad.autograd.set_detect_anomaly(True):
        y = Bad.apply(leaf(1.0))
        with pytest.raises(RuntimeError, match="Function 'BadBackward' returned nan") as error:
            y.backward()
    assert "Bad.apply(leaf(1.0))" in str(error.value)


def test_anomaly_mode_lets_clean_gradients_pass():
    x = leaf(1.0)
    with ad.autograd.detect_anomaly():
        (x.exp() * x).backward()
    np.testing.assert_allclose(x.grad.item(), 2 * np.e)


@pytest.mark.parametrize("turn", [lambda x: x.reshape(6), lambda x: x.t(), lambda x: x.view(3, 2)])
def test_gradients_that_share_memory_know_of_each_others_changes(turn):
    x = ad.ones(2, 3, requires_grad=True)
    y = turn(x)
    gx, gy = ad.autograd.grad((y * 3).sum(), (x, y))
    leaf = ad.ones(2, 3, requires_grad=True)
    saving = (leaf * gx).sum()
    gy.add_(1)
    if np.shares_memory(gx.numpy(), gy.numpy()):
        with pytest.raises(ad.AutogradError, match="modified by an inplace operation"):
            saving.backward()
    else:
        saving.backward()
        assert leaf.grad.sum() == 18


def test_a_hook_may_write_into_the_cotangent_of_a_view():
    x = ad.arange(6.0).requires_grad_()
    y = x * 2
    z = y.reshape(2, 3).t()
    z.register_hook(lambda g: g.mul_(2))
    y.register_hook(lambda g: g.add_(1))
    weights = ad.arange(6.0).reshape(3, 2)
    (z * weights).sum().backward()
    assert weights.equal(ad.arange(6.0).reshape(3, 2))
    assert x.grad.equal((weights.t().reshape(6) * 2 + 1) * 2)


def test_sums_of_infinities_are_nan_without_a_warning():
    x = ad.ones(3, requires_grad=True)
    inner = x * 1
    for _ in range(2):  # into the cotangent of `inner`, and into the gradient that is there
        (inner * float("inf") + inner.neg() * float("inf")).sum().backward(retain_graph=True)
    assert x.grad.isnan().all()
    y = ad.ones(3, requires_grad=True)
    (y * float("inf")).sum().backward()
    (y * float("-inf")).sum().backward()
    assert y.grad.isnan().all()


@pytest.mark.parametrize("way", ["eager", "create_graph", "graph"])
def test_a_gradient_rule_that_returns_one_tensor_is_told_what_to_return(way):
    x = ad.Graph().parameter([1.0, 2.0]) if way == "graph" else leaf(1.0, 2.0)
    one = apply(Rule(lambda g: g * 2), x)
    two = apply(Rule(lambda g: g * 2), x, x)
    for y, count in ((one, 1), (two, 2)):
        message = rf"rule: gradient returned a Tensor, not a tuple; .*\({count}\): \(g,\) for one"
        with pytest.raises(InvalidType, match=message):
            y.sum().backward(create_graph=way == "create_graph")
    assert x.grad is None
    with pytest.raises(InvalidType, match="returned a NoneType"):
        apply(Rule(lambda g: None), x).sum().backward()
    apply(Rule(lambda g: [g * 2]), x).sum().backward()  # a list will do
    assert x.grad.tolist() == [2, 2]


def test_modules_are_made_and_read_in_inference_mode():
    for lib in (ad, torch):
        with lib.inference_mode():
            layer = lib.nn.Linear(3, 4)
            assert layer.weight.requires_grad and layer.weight.is_inference()
            layer.load_state_dict(lib.nn.Linear(3, 4).state_dict())
            assert not layer(lib.ones(2, 3)).requires_grad
            assert copy.deepcopy(layer).weight.requires_grad
            w = lib.ones(3, requires_grad=True)
        (w * 2).sum().backward()
        assert w.grad.tolist() == [2, 2, 2]
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
            w * lib.ones(3, requires_grad=True)
        assert not w.requires_grad_(False).requires_grad
        with pytest.raises(RuntimeError, match="outside InferenceMode"):
            w.requires_grad_()


@pytest.mark.parametrize("inner", [False, True])
def test_a_hook_that_returns_another_dtype_is_refused(inner):
    for lib in (ad, torch):
        x = lib.ones(2, requires_grad=True)
        y = x * 2
        (y if inner else x).register_hook(lambda g: g.double())
        with pytest.raises(RuntimeError, match="has changed the type of value"):
            y.sum().backward()
        assert x.grad is None


@pytest.mark.parametrize("mode", ["all", "any"])
def test_hooks_of_several_gradients(mode):
    seen = {}
    for lib in (ad, torch):
        calls = seen[lib] = []
        a, b, c = (lib.ones(1, requires_grad=True) for _ in range(3))
        hook = lib.autograd.graph.register_multi_grad_hook(
            (a, b, c), lambda g, calls=calls: calls.append(str(g)), mode=mode
        )
        for last in (b, c):
            (a * 2 * last).backward()
        if mode == "any":
            calls[:] = [len(calls)]  # which comes first is the engine's business
        failing = a * b
        failing.register_hook(lambda g: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            failing.backward()
        (a * c * 3).backward()
        count = len(calls)
        hook.remove()
        (a * b * c).backward()
        assert len(calls) == count
    assert seen[ad] == seen[torch]
    with pytest.raises(ad.InvalidArgument, match="'some'"):
        ad.autograd.graph.register_multi_grad_hook((a,), print, mode="some")
