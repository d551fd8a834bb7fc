"""Hooks within a compiled function: what stays at tensors from outside, or works after the run."""

import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import Unsupported
from tests.native import needs_native

pytestmark = needs_native


@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_a_hook_that_stays_at_a_tensor_from_outside_is_refused(kind):
    w = ad.ones(2, requires_grad=True)

    def of_state(x):
        getattr(w, kind)(lambda g: None)
        return w * x

    with pytest.raises(Unsupported, match="registers a hook on a tensor from outside"):
        ad.compile(of_state)(ad.ones(2))
    assert not (w._node.extra and w._node.extra.hooks) and not w._leaf.after

    def of_argument(x):
        getattr(x, kind)(lambda g: None)
        return x * 2

    with pytest.raises(Unsupported, match="registers a hook on a tensor from outside"):
        ad.compile(of_argument)(ad.ones(2, requires_grad=True))


def test_a_hook_on_a_computed_argument_is_refused():
    def halved(x):
        x.register_hook(lambda g: g * 0.5)
        return x * 2

    with pytest.raises(Unsupported, match="registers a hook on a tensor from outside"):
        ad.compile(halved)(ad.ones(2, requires_grad=True) * 1)


def test_a_hook_within_a_branch_is_refused():
    w = ad.ones(2, requires_grad=True)

    def branch(a):
        w.register_hook(lambda g: g * 2)
        return a * w

    def step(x):
        return ad.cond(x.sum() > 0, branch, lambda a: a * w, (x,))

    with pytest.raises(Unsupported, match="registers a hook on a tensor from outside"):
        ad.compile(step)(ad.ones(2))
    assert not (w._node.extra and w._node.extra.hooks)


def test_a_hook_that_is_removed_within_works():
    w, layer = ad.ones(2, requires_grad=True), nn.Linear(2, 2)

    @ad.compile
    def step(x):
        handle = w.register_hook(lambda g: g * 5)
        other = w.register_hook(lambda g: g + 1)
        other.remove()
        again = w.register_hook(lambda g: g * 1)
        doubled = layer.register_forward_hook(lambda module, given, found: found * 2)
        y = layer(x)
        w.grad = None
        (w * x).sum().backward()
        handle.remove()
        again.remove()
        doubled.remove()
        return y

    x = ad.ones(2)
    assert ad.allclose(step(x), layer(x) * 2)
    assert step(x) is not None and w.grad.tolist() == [5.0, 5.0]
    assert len(step.programs) == 1
    assert "_call_hooks" not in layer.__dict__


def test_retain_grad_of_what_comes_or_goes_is_refused():
    def of_argument(x):
        x.retain_grad()
        return x * 3

    with pytest.raises(Unsupported, match="retain_grad"):
        ad.compile(of_argument)(ad.ones(2, requires_grad=True) * 1)

    def of_result(x):
        y = x * 2
        y.retain_grad()
        return y, y * 3

    with pytest.raises(Unsupported, match="retain_grad"):
        ad.compile(of_result)(ad.ones(2, requires_grad=True))


@pytest.mark.parametrize("what", ["draws random numbers", "writes to a tensor", "sets gradients"])
def test_a_backward_from_outside_neither_draws_nor_writes(what):
    w, seen = ad.ones(2, requires_grad=True), ad.zeros(())

    def hook(g):
        if what == "writes to a tensor":
            seen.add_(g.mean())
            return g
        if what == "sets gradients":
            with ad.enable_grad():
                (w * 2).sum().backward()
            return g
        return g + ad.randn(2)

    @ad.compile
    def step(x):
        y = x * w
        y.register_hook(hook)
        return y * 2

    ad.manual_seed(0)
    expected = ad.randn(3).tolist()
    ad.manual_seed(0)
    y = step(ad.ones(2))
    assert seen.item() == 0 and w.grad is None and ad.randn(3).tolist() == expected
    with pytest.raises(ad.AutogradError, match=what):
        y.sum().backward()


@pytest.mark.parametrize("of", ["one", "all"])
def test_hooks_of_optimizers_that_come_later_run(of):
    w, seen = ad.ones(2, requires_grad=True), ad.zeros(())
    optimizer = ad.optim.SGD([w], lr=0.1)

    @ad.compile
    def step(x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()

    step(ad.ones(2))
    module = ad.optim.optimizer
    register = {
        "one": optimizer.register_step_post_hook,
        "all": module.register_optimizer_step_post_hook,
    }[of]
    with register(lambda *_: seen.add_(1)):
        step(ad.ones(2))
        step(ad.ones(2))
    step(ad.ones(2))
    assert seen.item() == 2 and len(step.programs) == 2


def test_hooks_of_all_modules_that_come_later_run_and_the_profilers_do_not_count():
    layer = nn.Linear(2, 2)
    step = ad.compile(lambda x: layer(x))
    x = ad.ones(2)
    y = step(x)
    with ad.profiler.profile(with_modules=True):
        step(x)
    assert step.reasons == ["first call"]
    with nn.modules.module.register_module_forward_hook(lambda module, given, found: found * 0):
        assert step(x).tolist() == [0.0, 0.0]
    assert step(x).equal(y)
    assert step.reasons[1:] == ["what the hooks of all modules contains was changed"]


def test_a_hook_of_a_leaf_that_is_returned_is_refused():
    """It would run at a backward outside, of which a program knows nothing."""

    @ad.compile
    def step(x):
        y = (x * 2).requires_grad_()
        y.register_hook(lambda g: g * 2)
        return y

    with pytest.raises(Unsupported, match="registers a hook on a tensor that it made"):
        step(ad.ones(2))
