"""autograd.Function: every scenario runs here and in PyTorch, and must end alike."""

from __future__ import annotations

import contextlib
import gc
import weakref

import numpy as np
import pytest

import adjoint as ad
from adjoint.autograd import gradcheck, gradgradcheck

from ..pytorch import torch

SCENARIOS = []


def scenario(function):
    """`function(lib)` returns numbers, strings and tensors to compare between the libraries."""
    SCENARIOS.append(function)
    return function


def leaf(lib, *values):
    return lib.tensor(list(values) or 2.0, dtype=lib.float64, requires_grad=True)


def plain(value):
    if isinstance(value, (ad.Tensor, torch.Tensor)):
        return value.detach().numpy().tolist()
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    return value


def exp_class(lib):
    class Exp(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * y

    return Exp


@scenario
def saved_output(lib):
    x = leaf(lib, 1.0, 2.0)
    exp_class(lib).apply(x).sum().backward()
    return x.grad


@scenario
def double_backward_through_a_saved_output(lib):
    x = leaf(lib, 0.5, 2.0)
    y = exp_class(lib).apply(x).sum()
    (g,) = lib.autograd.grad(y, x, create_graph=True)
    (h,) = lib.autograd.grad(g.sum(), x, create_graph=True)
    return g, h, lib.autograd.grad(h.sum(), x)


@scenario
def double_backward_through_saved_inputs(lib):
    class Mul(lib.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g * b, g * a

    a, b = leaf(lib, 2.0), leaf(lib, 5.0)
    y = Mul.apply(a, Mul.apply(a, b))
    ga, gb = lib.autograd.grad(y, (a, b), create_graph=True)
    return ga, gb, lib.autograd.grad(ga + gb, (a, b))


@scenario
def free_attributes_and_plain_arguments(lib):
    class Scale(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor, flag=None):
            ctx.factor, ctx.shape, ctx.order = factor, x.shape, "mine"
            return x * factor

        @staticmethod
        def backward(ctx, g):
            assert ctx.order == "mine" and tuple(ctx.shape) == (2,)
            return g * ctx.factor, None, None

    x = leaf(lib, 1.0, 2.0)
    (Scale.apply(x, 3) + Scale.apply(x, 4, "flag")).sum().backward()
    return x.grad


@scenario
def several_outputs_and_undefined_gradients(lib):
    seen = []

    class Two(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x, materialize):
            ctx.set_materialize_grads(materialize)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            seen.append((None if a is None else plain(a), None if b is None else plain(b)))
            parts = [p * k for p, k in ((a, 2), (b, 3)) if p is not None]
            return parts[0] if len(parts) == 1 else parts[0] + parts[1], None

    x = leaf(lib, 1.0, 2.0)
    Two.apply(x, True)[0].sum().backward()
    Two.apply(x, False)[1].sum().backward()
    a, b = Two.apply(x, True)
    (a * b).sum().backward()
    return seen, x.grad


@scenario
def non_tensor_and_integer_outputs(lib):
    class Mixed(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, "text", x.long()

        @staticmethod
        def backward(ctx, g, text, index):
            assert text is None
            return g * 2

    x = leaf(lib, 1.0, 2.0)
    y, text, index = Mixed.apply(x)
    y.sum().backward()
    return x.grad, text, index, index.requires_grad


@scenario
def non_differentiable_output(lib):
    class Sort(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            other = x * 10
            ctx.mark_non_differentiable(other)
            return x * 2, other

        @staticmethod
        def backward(ctx, g, h):
            return g * 2

    x = leaf(lib, 1.0, 2.0)
    y, other = Sort.apply(x)
    (y * other).sum().backward()
    return x.grad, y.requires_grad, other.requires_grad


@scenario
def dirty_input(lib):
    class Double(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            x.mul_(2)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf(lib, 1.0, 2.0)
    y = x * 3
    before = y * 1
    z = Double.apply(y)
    (z * y).sum().backward()
    with lib.no_grad():
        plain_z = Double.apply(x * 1)
    return z is y, x.grad, before, plain_z


@scenario
def input_returned_as_is(lib):
    class Identity(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 5

    x = leaf(lib, 1.0, 2.0)
    y = Identity.apply(x)
    y.sum().backward()
    return y is x, x.grad, y.grad_fn is None, x.is_leaf, y.data_ptr() == x.data_ptr()


@scenario
def view_of_the_input(lib):
    class Flat(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            return x.reshape(-1)

        @staticmethod
        def backward(ctx, g):
            return g.reshape(ctx.shape) * 7

    x = lib.ones(2, 2, dtype=lib.float64, requires_grad=True)
    Flat.apply(x * 1).sum().backward()
    return x.grad


@scenario
def needs_input_grad(lib):
    seen = []

    class Add(lib.autograd.Function):
        @staticmethod
        def forward(ctx, a, b, n):
            seen.append(tuple(ctx.needs_input_grad))
            return a + b

        @staticmethod
        def backward(ctx, g):
            seen.append(tuple(ctx.needs_input_grad))
            return g if ctx.needs_input_grad[0] else None, g, None

    a, b = leaf(lib, 1.0), leaf(lib, 2.0)
    Add.apply(a.detach(), b, 1).backward()
    with lib.no_grad():
        Add.apply(a, b, 1)
    return seen, a.grad is None, b.grad


@scenario
def list_of_tensors_whose_gradient_is_none(lib):
    class Total(lib.autograd.Function):
        @staticmethod
        def forward(ctx, xs, y):
            return xs[0] + xs[1] + y

        @staticmethod
        def backward(ctx, g):
            return None, g

    a, y = leaf(lib, 1.0), leaf(lib, 2.0)
    out = Total.apply([a, a], y)
    out.backward()
    return a.grad is None, y.grad


@scenario
def star_arguments(lib):
    class Total(lib.autograd.Function):
        @staticmethod
        def forward(ctx, *xs):
            return sum(xs[1:], xs[0])

        @staticmethod
        def backward(ctx, g):
            return (g, g * 2, g * 3)

    xs = [leaf(lib, float(i)) for i in range(3)]
    Total.apply(*xs).backward()
    return [x.grad for x in xs]


@scenario
def separate_setup_context_with_keywords(lib):
    class Power(lib.autograd.Function):
        @staticmethod
        def forward(x, n=3):
            return x**n

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.n = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * ctx.n * x ** (ctx.n - 1), None

    x = leaf(lib, 2.0)
    (Power.apply(x) + Power.apply(x, 2) + Power.apply(x, n=4)).backward()
    return x.grad


@scenario
def vjp_instead_of_backward(lib):
    class Triple(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 3

        @staticmethod
        def vjp(ctx, g):
            return g * 3

    x = leaf(lib, 2.0)
    Triple.apply(x).backward()
    return x.grad


@scenario
def gradients_broadcast_and_extra_nones(lib):
    class Odd(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return (g.expand(3, 2), None, None)

    x = leaf(lib, 1.0, 2.0)
    Odd.apply(x).sum().backward()
    return x.grad


@scenario
def zeros_flow_below_a_function_that_returns_none(lib):
    called = []

    class Below(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            called.append(plain(g))
            return g

    class Stop(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return None

    x, z = leaf(lib, 1.0, 2.0), leaf(lib, 3.0)
    (Stop.apply(Below.apply(x)).sum() + Stop.apply(z * 2).sum()).backward()
    return called, x.grad, z.grad is None


@scenario
def saved_none_and_intermediate(lib):
    class Square(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            twice = x * 2
            ctx.save_for_backward(None, twice)
            return x * x

        @staticmethod
        def backward(ctx, g):
            nothing, twice = ctx.saved_tensors
            assert nothing is None and not twice.requires_grad
            return g * twice

    x = leaf(lib, 3.0)
    Square.apply(x).backward()
    return x.grad


@scenario
def forward_runs_without_recording(lib):
    class Look(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.recorded = (x * 2).requires_grad, lib.is_grad_enabled(), x.requires_grad
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf(lib, 3.0)
    y = Look.apply(x)
    return y.grad_fn.recorded, y.grad_fn.name(), y.requires_grad


@scenario
def retain_graph_and_hooks(lib):
    Exp = exp_class(lib)
    x = leaf(lib, 0.5)
    y = Exp.apply(x)
    y.register_hook(lambda g: g * 10)
    y.backward(retain_graph=True)
    y.backward()
    return x.grad, y.grad_fn.name()


@scenario
def backward_calls_autograd_inside(lib):
    class Inner(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with lib.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.y = ctx.x**3
            return ctx.y.detach()

        @staticmethod
        def backward(ctx, g):
            return lib.autograd.grad(ctx.y, ctx.x, g)[0]

    x = leaf(lib, 2.0)
    (Inner.apply(x) * x).backward()
    return x.grad


@pytest.mark.parametrize("run", SCENARIOS, ids=lambda f: f.__name__)
def test_like_pytorch(run):
    assert plain(run(ad)) == plain(run(torch))


# ---- errors --------------------------------------------------------------------------------------


def failing(lib, forward=None, backward=None):
    class Failing(lib.autograd.Function):
        pass

    Failing.forward = staticmethod(forward or (lambda ctx, x, k=2: x * 1))
    if backward is not None:
        Failing.backward = staticmethod(backward)
    return Failing


def twice(lib):
    y = exp_class(lib).apply(leaf(lib, 1.0))
    y.backward()
    y.backward()


def changed_saved_output(lib):
    y = exp_class(lib).apply(leaf(lib, 1.0))
    with lib.no_grad():
        y.add_(1)
    y.backward()


def changed_saved_input(lib):
    class Square(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return ctx.saved_tensors[0] * 2 * g

    x = leaf(lib, 1.0) * 1
    y = Square.apply(x)
    x.mul_(2)
    y.backward()


def dirty(lib, leaf_input, returned):
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.mul_(2)
        return x if returned else x * 1

    x = leaf(lib, 1.0)
    failing(lib, forward, lambda ctx, g: g).apply(x if leaf_input else x * 1)


def written_view(lib, write):
    F = failing(lib, lambda ctx, x: x.reshape(-1), lambda ctx, g: g)
    base = leaf(lib, 1.0, 2.0) * 1
    y = F.apply(base)
    if write == "view":
        y.mul_(2)
    else:
        base.mul_(2)
        y.sum().backward()


def twice_differentiated(lib):
    once = lib.autograd.function.once_differentiable
    F = failing(lib, backward=once(lambda ctx, g: g * 2))
    x = leaf(lib, 1.0)
    (g,) = lib.autograd.grad(F.apply(x).exp(), x, create_graph=True)
    g.backward()


def both_names(lib):
    F = failing(lib, backward=lambda ctx, g: g)
    F.vjp = staticmethod(lambda ctx, g: g)
    F.apply(leaf(lib, 1.0)).backward()


def run_failing(lib, backward, args=()):
    failing(lib, backward=backward).apply(leaf(lib, 1.0, 2.0), *args).sum().backward()


ERRORS = {
    "too few": (
        lambda lib: run_failing(lib, lambda ctx, g: g, (2,)),
        "incorrect number of gradients",
    ),
    "too many": (
        lambda lib: run_failing(lib, lambda ctx, g: (g, g, g), (2,)),
        r"FailingBackward returned an incorrect number of gradients \(expected 2, got 3\)",
    ),
    "not a tensor": (lambda lib: run_failing(lib, lambda ctx, g: 3.0), "expected Variable or None"),
    "number gets one": (
        lambda lib: run_failing(lib, lambda ctx, g: (g, g), (2,)),
        "at position 2, but the corresponding forward input was not a Variable",
    ),
    "wrong shape": (
        lambda lib: run_failing(lib, lambda ctx, g: lib.ones(3, dtype=lib.float64)),
        r"Function FailingBackward returned an invalid gradient at index 0 - got \[3\] but",
    ),
    "no backward": (
        lambda lib: run_failing(lib, None),
        "You must implement either the backward or vjp",
    ),
    "no forward": (
        lambda lib: lib.autograd.Function.apply(leaf(lib)),
        "You must implement the forward function",
    ),
    "saves a number": (
        lambda lib: failing(lib, lambda ctx, x: ctx.save_for_backward(3)).apply(leaf(lib)),
        "save_for_backward can only save variables, but argument 0 is of type int",
    ),
    "twice": (twice, "Trying to backward through the graph a second time"),
    "changed output": (changed_saved_output, "has been modified by an inplace operation"),
    "changed input": (changed_saved_input, "has been modified by an inplace operation"),
    "dirty leaf": (lambda lib: dirty(lib, True, True), "a leaf Variable that requires grad"),
    "dirty, not returned": (
        lambda lib: dirty(lib, False, False),
        "marked as dirty during the forward method were not returned as output",
    ),
    "view written": (lambda lib: written_view(lib, "view"), "is a view and is being modified"),
    "base written": (lambda lib: written_view(lib, "base"), "created inside a custom Function"),
    "once differentiable": (twice_differentiated, "trying to differentiate twice a function"),
    "backward and vjp": (both_names, "Implementing both 'backward' and 'vjp'"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_like_pytorch(name):
    function, message = ERRORS[name]
    with pytest.raises(Exception, match=message) as theirs:
        function(torch)
    with pytest.raises(theirs.type, match=message):
        function(ad)


def test_second_backward_works_where_nothing_was_saved():
    y = failing(ad, backward=lambda ctx, g: g).apply(x := leaf(ad, 1.0))
    y.backward()
    y.backward()
    assert x.grad.item() == 2


def test_error_in_backward_restores_the_mode():
    def broken(ctx, g):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_failing(ad, broken)
    assert ad.is_grad_enabled() and (leaf(ad) * 2).requires_grad


def test_gradcheck_through_a_function():
    x = leaf(ad, 0.5, -1.0)
    assert gradcheck(exp_class(ad).apply, x)
    assert gradgradcheck(exp_class(ad).apply, x)


def test_custom_function_is_freed_at_once():
    gc.disable()
    try:
        x = leaf(ad, 0.5)
        y = exp_class(ad).apply(x)
        node = weakref.ref(y.grad_fn)
        array = weakref.ref(y.grad_fn.saved_tensors[0]._data)
        del y
        assert node() is None and array() is None
    finally:
        gc.enable()


def test_saved_tensors_are_dropped_by_backward():
    y = exp_class(ad).apply(leaf(ad, 0.5))
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        _ = y.grad_fn.saved_tensors


def test_instances_are_refused():
    with pytest.raises(RuntimeError, match="apply"):
        exp_class(ad)()


def test_float32_in_gradients_conform():
    F = failing(ad, backward=lambda ctx, g: g.to(ad.float64))
    x = ad.ones(2, requires_grad=True)
    F.apply(x).sum().backward()
    assert x.grad.dtype is ad.float32
    np.testing.assert_array_equal(x.grad.numpy(), [1, 1])


# ---- containers, which PyTorch detaches ----------------------------------------------------------


class Weighted(ad.autograd.Function):
    """Sum of the tensors in a list, times their numbers, and of y."""

    @staticmethod
    def forward(ctx, xs, y, *, times=1):
        ctx.wanted, ctx.times = ctx.needs_input_grad, times
        ctx.save_for_backward(*xs)
        return sum(x * i * times for i, x in enumerate(xs, 1)) + y, xs[0] * y

    @staticmethod
    def backward(ctx, g, h):
        xs = ctx.saved_tensors
        grads = [g * i * ctx.times for i in range(1, len(xs) + 1)]
        grads[0] = grads[0] + h * 5
        return grads, None


@pytest.mark.parametrize("way", ["eager", "lazy", "graph"])
@pytest.mark.parametrize("kind", [list, tuple])
def test_tensors_in_lists_have_gradients(kind, way):
    a, b = ad.ones(2, requires_grad=True), ad.ones(2, requires_grad=True)
    context = {"eager": contextlib.nullcontext, "lazy": ad.lazy, "graph": ad.Graph}[way]()
    with context:
        y, z = Weighted.apply(kind([a, b]), 5.0, times=2)
        (y.sum() + z.sum()).backward()
    assert a.grad.tolist() == [7, 7]
    assert b.grad.tolist() == [4, 4]
    frozen = ad.ones(2)
    y, _ = Weighted.apply(kind([frozen, frozen]), 5.0)
    assert not y.requires_grad


def test_needs_input_grad_is_one_an_argument():
    seen = []

    class Seen(ad.autograd.Function):
        @staticmethod
        def forward(ctx, xs, y, n):
            seen.append(ctx.needs_input_grad)
            return y * n

        @staticmethod
        def backward(ctx, g):
            return None, g, None

    x, y = ad.ones(1, requires_grad=True), ad.ones(1)
    Seen.apply([y, x], y, 3)
    Seen.apply([y], y, 3)
    Seen.apply([], x, 3)
    assert seen == [(True, False, False), (False, False, False), (False, True, False)]


class Numbers(ad.autograd.Function):
    """Forward reads values, so a graph runs it as a whole."""

    @staticmethod
    def forward(ctx, xs):
        ctx.save_for_backward(*xs)
        return ad.from_numpy(xs[0].detach().numpy() * xs[1].detach().numpy())

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return [g * b, g * a]


def test_tensors_in_lists_where_forward_reads_values():
    a, b = ad.tensor([2.0], requires_grad=True), ad.tensor([3.0], requires_grad=True)
    for context in (contextlib.nullcontext(), ad.Graph()):
        a.grad = b.grad = None
        with context:
            Numbers.apply([a, b]).sum().backward()
        assert (a.grad.item(), b.grad.item()) == (3, 2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda g: [g], "argument 0 of forward is a list of 2.*got 1"),
        (lambda g: (g, g), "incorrect number of gradients"),
        (lambda g: g, "got a Tensor"),
    ],
)
def test_gradients_of_lists_are_counted(given, message):
    class Sum(ad.autograd.Function):
        @staticmethod
        def forward(ctx, xs):
            return xs[0] + xs[1]

        @staticmethod
        def backward(ctx, g):
            return given(g)

    x = ad.ones(1, requires_grad=True)
    with pytest.raises(ad.AutogradError, match=message):
        Sum.apply([x, x]).backward()


def test_a_list_that_forward_returns_is_differentiated():
    class Two(ad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return [x * 2, x * 3]

        @staticmethod
        def backward(ctx, g, h):
            return g * 2 + h * 3

    x = ad.ones(1, requires_grad=True)
    ys = Two.apply(x)
    assert type(ys) is list
    (ys[0] + ys[1] * 10).backward()
    assert x.grad.item() == 32


@pytest.mark.parametrize(
    "result", [lambda y: {"y": y}, lambda y: (y, [y]), lambda y: (y, {"y": y}), lambda y: [[y]]]
)
def test_tensors_that_would_come_back_without_history_are_refused(result):
    class Held(ad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return result(x * 2)

        @staticmethod
        def backward(ctx, *g):
            return g[0]

    with pytest.raises(ad.InvalidType, match="without gradients; return a tuple"):
        Held.apply(ad.ones(1, requires_grad=True))
    Held.apply(ad.ones(1))  # nothing is lost


def test_tensors_by_keyword_only_are_refused():
    class Key(ad.autograd.Function):
        @staticmethod
        def forward(ctx, x, *, y):
            return x * y

    with pytest.raises(ad.InvalidType, match="make them positional"):
        Key.apply(ad.ones(1), y=ad.ones(1))
    assert Key.apply(ad.ones(1), y=2).item() == 2


def test_what_is_no_tensor_is_saved_where_no_gradient_is_wanted():
    for t in (ad, torch):

        class Times(t.autograd.Function):
            @staticmethod
            def forward(ctx, x, n):
                ctx.save_for_backward(x, n)
                return x * n

            @staticmethod
            def backward(ctx, g):
                return g, None

        assert Times.apply(t.ones(2), 3).tolist() == [3.0, 3.0]
        with t.no_grad():
            assert Times.apply(t.ones(2, requires_grad=True), 3).tolist() == [3.0, 3.0]
        with pytest.raises(TypeError, match="can only save variables, but argument 1 is of type"):
            Times.apply(t.ones(2, requires_grad=True), 3)
