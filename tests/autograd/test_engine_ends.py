"""What runs at the end of a backward, and gradients in a place that was given."""

import numpy as np
import pytest

import adjoint as ad
from adjoint.autograd import engine


def noting(log, name):
    return lambda _: engine.at_end(lambda: log.append(name))


def test_callbacks_run_in_order_when_all_gradients_are_there():
    a, b = ad.ones(2, requires_grad=True), ad.ones(2, requires_grad=True)
    log = []
    a.register_post_accumulate_grad_hook(noting(log, "a"))
    b.register_post_accumulate_grad_hook(
        lambda _: engine.at_end(lambda: log.append((a.grad is None, b.grad is None)))
    )
    (a * 2 + b).sum().backward()
    assert sorted(map(str, log)) == ["(False, False)", "a"]
    (b * 1).sum().backward()  # a's hook does not run again
    assert len(log) == 3


def test_callbacks_wait_for_the_outermost_backward():
    a = ad.ones(2, requires_grad=True)
    log = []
    a.register_post_accumulate_grad_hook(noting(log, "end"))

    class Inner(ad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            with ad.enable_grad():
                (a * 3).sum().backward()
            log.append("inner is done")
            return g

    Inner.apply(ad.ones(2, requires_grad=True)).sum().backward()
    assert log == ["inner is done", "end"]


def test_a_backward_that_fails_forgets_its_callbacks():
    a = ad.ones(2, requires_grad=True)
    log = []
    a.register_post_accumulate_grad_hook(noting(log, "end"))

    def fail(_):
        raise KeyError("hook")

    handle = a.register_post_accumulate_grad_hook(fail)
    with pytest.raises(KeyError):
        (a * 2).sum().backward()
    handle.remove()
    assert log == []
    (a * 2).sum().backward()
    assert log == ["end"]


def test_a_callback_may_run_a_backward():
    a, b = ad.ones(2, requires_grad=True), ad.ones(2, requires_grad=True)
    a.register_post_accumulate_grad_hook(lambda _: engine.at_end(lambda: (b * 5).sum().backward()))
    (a * 2).sum().backward()
    assert b.grad.tolist() == [5, 5]


def test_outside_of_a_backward_it_is_an_error():
    with pytest.raises(ad.AutogradError, match="no backward runs"):
        engine.at_end(print)


@pytest.mark.parametrize("times", [1, 3])
def test_a_gradient_begins_in_its_place_also_after_zero_grad(times):
    memory = ad.full((5,), 7.0)
    w = ad.nn.Parameter(ad.tensor([1.0, 2.0]))
    w._leaf.place = place = memory[1:3]
    optimizer = ad.optim.SGD([w], lr=0.1)
    for _ in range(times):
        optimizer.zero_grad(set_to_none=True)
        (w * 2).sum().backward()
        (w * 3).sum().backward()
        assert w.grad is place
        assert memory.tolist() == [7, 5, 5, 7, 7]
        optimizer.step()
    np.testing.assert_allclose(w.tolist(), [1 - 0.5 * times, 2 - 0.5 * times], rtol=1e-6)


def test_a_place_that_does_not_fit_is_left_alone():
    w = ad.nn.Parameter(ad.ones(2))
    w._leaf.place = place = ad.zeros(3)
    (w * 2).sum().backward()
    assert w.grad.tolist() == [2, 2] and place.tolist() == [0, 0, 0]


def test_what_saved_the_place_sees_that_it_has_changed():
    w, x = ad.nn.Parameter(ad.ones(2)), ad.ones(2, requires_grad=True)
    w._leaf.place = place = ad.zeros(2)
    y = (x * place).sum()
    (w * 2).sum().backward()
    with pytest.raises(ad.AutogradError, match="modified by an inplace operation"):
        y.backward()


def test_the_gradients_own_memory_is_not_the_place():
    """A gradient that others hold (a root's seed, shared by two leaves) stays as it is."""
    w, v = ad.nn.Parameter(ad.ones(2)), ad.nn.Parameter(ad.ones(2))
    w._leaf.place = ad.zeros(2)
    seed = ad.ones(2)
    (w + v).backward(seed)
    with ad.no_grad():
        w.grad.mul_(9)
    assert v.grad.tolist() == [1, 1] and seed.tolist() == [1, 1]


def test_who_walks():
    seen = []
    a = ad.ones(2, requires_grad=True)
    a.register_hook(lambda g: seen.append(engine.is_walking()))
    (a * 2).sum().backward()
    assert seen == [True] and not engine.is_walking()
