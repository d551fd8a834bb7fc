"""`autograd.forward_ad`: every program runs here and in PyTorch, and must end alike."""

from __future__ import annotations

import gc
import importlib
import threading
import weakref

import numpy as np
import pytest

import adjoint as ad
from adjoint.autograd import forward_ad as fwad
from adjoint.core.op import REGISTRY
from adjoint.runtime.dispatch import apply

from ..pytorch import torch

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def flat(found):
    if isinstance(found, dict):
        return [y for key in sorted(found) for y in flat(found[key])]
    if isinstance(found, (tuple, list)):
        return [y for each in found for y in flat(each)]
    return [found]


def namespace(lib):
    return fwad if lib is ad else __import__("torch.autograd.forward_ad").autograd.forward_ad


def pair(lib, x):
    """A tensor's value and tangent, and whether they have histories."""
    primal, tangent = namespace(lib).unpack_dual(x)
    return [primal, tangent]


def ended(lib, program, *given):
    return flat(program(lib, namespace(lib), *given))


def agree(ours, theirs, tolerance=1e-6):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        assert a is not None, "no tangent"
        assert tuple(a.shape) == tuple(b.shape)
        assert str(a.dtype).rpartition(".")[2] == str(b.dtype).rpartition(".")[2]
        assert a.requires_grad == b.requires_grad
        np.testing.assert_allclose(
            a.detach().numpy(), b.detach().resolve_conj().numpy(), rtol=tolerance, atol=tolerance
        )


def both(program, *shapes, level=True, dtype=np.float64, seed=0):
    """`program(library, forward_ad, *tensors)`, inside a level, gives the same on both."""
    generator = np.random.default_rng(seed)
    given = [generator.standard_normal(shape).astype(dtype) for shape in shapes]
    found = []
    for lib in (ad, torch):
        tensors = [lib.tensor(x.copy()) for x in given]
        if level:
            with namespace(lib).dual_level():
                found.append(ended(lib, program, *tensors))
                found[-1] = [y.clone() if hasattr(y, "clone") else y for y in found[-1]]
        else:
            found.append(ended(lib, program, *tensors))
    agree(*found)


# ---- writes --------------------------------------------------------------------------------------


def write_to_a_dual(lib, fw, p, t):
    d = fw.make_dual(p, t)
    d.mul_(2)
    return [p, t, pair(lib, d), pair(lib, p)]


def write_to_a_dual_by_a_dual(lib, fw, p, t, q, u):
    d, e = fw.make_dual(p, t), fw.make_dual(q, u)
    d.mul_(e)
    d += e
    d.sub_(q)
    d.pow_(2)
    return [p, t, q, u, pair(lib, d), pair(lib, e)]


def write_to_a_plain_tensor(lib, fw, p, t):
    x = lib.zeros(4, dtype=lib.float64)
    d = fw.make_dual(p, t)
    x[1:] = d
    found = [pair(lib, x)]
    x.mul_(d.sum())
    return [*found, pair(lib, x), pair(lib, x[0]), pair(lib, x.sum())]


def views_of_what_is_written(lib, fw, p, t):
    x = lib.zeros(4, dtype=lib.float64)
    v, w = x[1:], x[:2]
    d = fw.make_dual(p, t)
    x[1:] = d
    found = [pair(lib, x), pair(lib, v), pair(lib, w)]
    v.mul_(3)
    w.add_(1)
    w[1] = d[0]
    return [*found, pair(lib, x), pair(lib, v), pair(lib, w)]


def write_to_a_view(lib, fw, p, t):
    x = lib.zeros(2, 4, dtype=lib.float64)
    v = x.t()[1:, 0]
    w = x[0].view(2, 2)
    v.copy_(fw.make_dual(p, t))
    v.exp_()
    return [pair(lib, y) for y in (x, v, w, x.t(), w[0], x * x, w.sin().sum())]


def part_of_a_dual_gets_plain(lib, fw, p, t):
    d = fw.make_dual(p, t)
    v = d[:2]
    d[0] = 1.0
    v[1:] = lib.full((1,), 7.0, dtype=lib.float64)
    return [p, t, pair(lib, d), pair(lib, v), pair(lib, d * v.sum())]


def views_of_a_dual(lib, fw, p, t):
    d = fw.make_dual(p, t)
    v = d[1:]
    w = v.unsqueeze(0).expand(2, 2)
    d.mul_(3)
    found = [pair(lib, v), pair(lib, w * 2)]
    v.mul_(2)
    v[0].sin_()
    return [*found, p, t, pair(lib, d), pair(lib, v), pair(lib, w + 0)]


def base_of_a_dual_is_written(lib, fw, p, t):
    d = fw.make_dual(p, t)
    p.mul_(10)
    found = [pair(lib, d), pair(lib, d * d)]
    p[0] = fw.make_dual(lib.tensor(5.0, dtype=lib.float64), lib.tensor(7.0, dtype=lib.float64))
    return [*found, pair(lib, p), pair(lib, d)]


def results_own_their_tangents(lib, fw, p, t):
    d = fw.make_dual(p, t)
    found = []
    for f in (
        lambda x: x + 1, lambda x: 1 + x, lambda x: x.clone(), lambda x: x * 1, lambda x: -x,
        lambda x: x.to(lib.float32), lambda x: x.contiguous() + 0, lambda x: lib.cat([x, x]),
        lambda x: x.sum(), lambda x: lib.stack([x]), lambda x: x.flip(0), lambda x: x.repeat(2),
        lambda x: x.relu(), lambda x: x.masked_fill(p > 100, 0.0),
        lambda x: lib.where(p < 100, x, p), lambda x: lib.nn.functional.pad(x, (1, 1)),
        lambda x: x.abs(), lambda x: x.clamp(-9, 9), lambda x: lib.nn.functional.leaky_relu(x),
        lambda x: x.index_select(0, lib.tensor([0, 1])), lambda x: x.maximum(p - 100),
        lambda x: x.nan_to_num(), lambda x: x.roll(1), lambda x: x.cumsum(0),
    ):  # fmt: skip
        y = f(d)
        y.mul_(100)
        found += [pair(lib, y), pair(lib, d)]
    return found


def zeroed(lib, fw, p, t):
    d = fw.make_dual(p, t)
    e = d * 2
    v = e[1:]
    d.zero_()
    e.fill_(3.0)
    found = [pair(lib, x) for x in (d, e, v)]
    v.copy_(p[:2])
    return [*found, pair(lib, e), t]


def detached(lib, fw, p, t):
    d = fw.make_dual(p, t)
    e = d.detach()
    f = (d * 2).detach()
    e.mul_(3)
    return [pair(lib, e), pair(lib, d), pair(lib, f), pair(lib, d.data)]


def in_place_chain(lib, fw, p, t):
    d = fw.make_dual(p, t)
    y = d.sigmoid()
    y.mul_(d).add_(d, alpha=2).tanh_().clamp_(-0.5, 0.5).div_(d.abs() + 1)
    y.t_().transpose_(0, 0)
    return [pair(lib, y), pair(lib, d)]


def other_layouts(lib, fw, p, t):
    d = fw.make_dual(p.t(), t)  # the tangent lies in another way, and is copied
    v = d.t().reshape(-1)
    v.mul_(2)
    y = (d * 3).t()
    y[0].add_(1)
    z = y.clone()
    z.view(-1)[0] = 0.0
    return [p, t, pair(lib, d), pair(lib, v), pair(lib, y), pair(lib, z)]


def scattered(lib, fw, p, t):
    d = fw.make_dual(p, t)
    x = lib.ones(5, dtype=lib.float64)
    index = lib.tensor([4, 0, 2])
    x.scatter_(0, index, d)
    y = lib.ones(5, dtype=lib.float64).index_add_(0, index, d)
    z = lib.ones(5, dtype=lib.float64)
    z[index] = d
    w = lib.zeros(3, dtype=lib.float64)
    w[p > -100] = d
    m = lib.zeros(3, dtype=lib.float64).masked_fill_(p > 0, d.sum())
    return [pair(lib, each) for each in (x, y, z, w, m)]


def split_and_written(lib, fw, p, t):
    d = fw.make_dual(p, t)
    a, b = d.split([1, 2])
    found = [pair(lib, a), pair(lib, b)]
    d.mul_(2)
    return [*found, pair(lib, a), pair(lib, b), [pair(lib, y) for y in d.unbind()]]


def dtypes(lib, fw, p, t):
    d = fw.make_dual(p, t)
    x = lib.zeros(3)
    x.copy_(d)
    i = lib.zeros(3, dtype=lib.int64)
    i.copy_(d)
    c = lib.zeros(3, dtype=lib.complex128)
    c.copy_(d)
    found = []
    for y in (x, c):  # in PyTorch the tangents are of the dtype that was copied
        primal, tangent = pair(lib, y)
        found += [primal, tangent.to(y.dtype)]
    return found + [
        pair(lib, y)
        for y in (i, d.to(lib.float32), d.to(lib.complex64), (d * 1j).imag, (d * 1j).abs())
    ]


WRITES = {
    f.__name__: (f, shapes)
    for f, *shapes in (
        (write_to_a_dual, 3, 3), (write_to_a_dual_by_a_dual, 3, 3, 3, 3),
        (write_to_a_plain_tensor, 3, 3), (views_of_what_is_written, 3, 3),
        (write_to_a_view, 3, 3), (part_of_a_dual_gets_plain, 3, 3), (views_of_a_dual, 3, 3),
        (base_of_a_dual_is_written, 3, 3), (results_own_their_tangents, 3, 3), (zeroed, 3, 3),
        (detached, 3, 3), (in_place_chain, 3, 3), (other_layouts, (2, 3), (3, 2)),
        (scattered, 3, 3), (split_and_written, 3, 3), (dtypes, 3, 3),
    )
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_writes(name):
    program, shapes = WRITES[name]
    both(program, *shapes)


# ---- both modes ----------------------------------------------------------------------------------


def forward_over_reverse(lib, fw, p, t):
    p.requires_grad_()
    d = fw.make_dual(p, t)
    y = (d.sin() * d.exp()).sum()
    (g,) = lib.autograd.grad(y, d, retain_graph=True)
    (h,) = lib.autograd.grad(fw.unpack_dual(y).primal, p, create_graph=True)
    found = [pair(lib, x) for x in (d, y, g, h)]
    y.backward()
    return [*found, p.grad.clone(), pair(lib, p.grad)]


def reverse_over_forward(lib, fw, p, t):
    p.requires_grad_()
    t.requires_grad_()
    d = fw.make_dual(p, t)
    y = fw.unpack_dual((d.sin() * d.tanh()).sum()).tangent
    g, h = lib.autograd.grad(y, (p, t), create_graph=True)
    k = lib.autograd.grad(g.sum() * h.sum(), p)
    return [y, g, h, k]


def reverse_through_writes(lib, fw, p, t):
    p.requires_grad_()
    t.requires_grad_()
    d = fw.make_dual(p * 1, t * 1)
    d.mul_(2)
    v = d[1:]
    v.exp_()
    x = lib.zeros(4, dtype=lib.float64)
    x[1:] = d
    x[:2] *= d[0]
    value, tangent = fw.unpack_dual(x.sin().sum())
    return [
        pair(lib, x),
        lib.autograd.grad(value, p, retain_graph=True),
        lib.autograd.grad(tangent, (p, t)),
    ]


def written_base_with_a_history(lib, fw, p, t):
    p.requires_grad_()
    q = p * 2
    d = fw.make_dual(q, t)
    q.mul_(3)
    y = (d * d).sum()
    found = [pair(lib, d), lib.autograd.grad(y, p, retain_graph=True)]
    d.sin_()
    return [*found, pair(lib, q), lib.autograd.grad(q.sum(), p, retain_graph=True),
            lib.autograd.grad(d.sum(), p)]  # fmt: skip


def written_after_it_was_saved(lib, fw, p, t):
    p.requires_grad_()
    d = fw.make_dual(p * 1, t)
    y = fw.unpack_dual(d * d).tangent
    d.add_(1)
    lib.autograd.grad(y.sum(), p)


def a_leaf_is_written(lib, fw, p, t):
    fw.make_dual(p.requires_grad_(), t).mul_(2)


def a_tangent_that_is_a_leaf_is_written(lib, fw, p, t):
    fw.make_dual(p, t.requires_grad_()).mul_(2)


def modes(lib, fw, p, t):
    d = fw.make_dual(p, t)
    with lib.no_grad():
        found = [pair(lib, d * 2), pair(lib, d.exp_())]
    with lib.inference_mode():
        found.append(pair(lib, d * 2))
    with fw._set_fwd_grad_enabled(False):
        found += [pair(lib, d * 2), pair(lib, d), fw._is_fwd_grad_enabled()]
    return [*found, pair(lib, d * 3), fw._is_fwd_grad_enabled()]


def reads(lib, fw, p, t):
    d = fw.make_dual(p, t)
    y = (d * d).sum()
    return [
        d.detach().numpy().tolist(), d.tolist(), y.item() > 0, bool(y > 0), float(y) > 0, len(d),
        pair(lib, d > 0), pair(lib, d.argmax()), pair(lib, lib.zeros_like(d)), tuple(d.shape),
        pair(lib, d.new_ones(2)), d.requires_grad, d.is_leaf, pair(lib, d.sort()[0]),
        pair(lib, d.sort()[1]), d.stride(), d.is_contiguous(), d.max().item(),
    ]  # fmt: skip


def leaves_made_inside(lib, fw, p, t):
    d = fw.make_dual(p, t)
    x = (d * 2).detach().requires_grad_()
    e = (d * 2).requires_grad_()
    g = lib.autograd.grad((e * e * x).sum(), (e, x))
    return [pair(lib, x), pair(lib, e), [pair(lib, y) for y in g]]


def modules(lib, fw, p, t, x):
    module = lib.nn.Sequential(
        lib.nn.Linear(3, 4), lib.nn.LayerNorm(4), lib.nn.GELU(), lib.nn.Linear(4, 2)
    ).double()
    generator = np.random.default_rng(0)
    with lib.no_grad():
        for q in module.parameters():
            q.copy_(lib.tensor(generator.standard_normal(tuple(q.shape))))
    duals = {
        name: fw.make_dual(q, lib.tensor(generator.standard_normal(tuple(q.shape))))
        for name, q in module.named_parameters()
    }
    target = lib.tensor([0, 1])
    loss = lib.nn.functional.cross_entropy
    found = [pair(lib, loss(lib.func.functional_call(module, duals, (x,)), target))]
    for name, dual in duals.items():
        place, _, key = name.rpartition(".")
        owner = module.get_submodule(place)
        delattr(owner, key)
        setattr(owner, key, dual)
    y = module(x)
    found.append(pair(lib, loss(y, target)))
    return [*found, pair(lib, y)]


def functions_of_functions(lib, fw, p, t):
    d = fw.make_dual(p, t)
    g = lib.func.grad(lambda x: (x.sin() * d).sum())(d)
    v = lib.func.vmap(lambda x: x.exp() * d.sum())(d)
    return [pair(lib, g), pair(lib, v)]


TAPES = {
    f.__name__: (f, shapes)
    for f, *shapes in (
        (forward_over_reverse, 3, 3), (reverse_over_forward, 3, 3), (reverse_through_writes, 3, 3),
        (written_base_with_a_history, 3, 3), (modes, 3, 3), (reads, 3, 3),
        (leaves_made_inside, 3, 3), (modules, 3, 3, (2, 3)), (functions_of_functions, 3, 3),
    )
}  # fmt: skip


@pytest.mark.parametrize("name", TAPES)
def test_tapes(name):
    program, shapes = TAPES[name]
    both(program, *shapes)


# ---- Functions of the user -----------------------------------------------------------------------


def function(lib, forward, backward, jvp):
    return type("Custom", (lib.autograd.Function,), {
        "forward": staticmethod(forward), "backward": staticmethod(backward),
        "jvp": staticmethod(jvp),
    })  # fmt: skip


def product(lib):
    def forward(ctx, x, y, k):
        ctx.save_for_forward(x, y)
        ctx.save_for_backward(x, y)
        ctx.k = k
        return x * y * k, x + 1, k

    def backward(ctx, *g):
        x, y = ctx.saved_tensors
        return g[0] * y * ctx.k + g[1], g[0] * x * ctx.k, None

    def jvp(ctx, t, s, k):
        assert k is None
        x, y = ctx.saved_tensors
        return (t * y + x * s) * ctx.k, t, None

    return function(lib, forward, backward, jvp)


def a_function(lib, fw, p, t, q):
    d = fw.make_dual(p, t)
    y, z, k = product(lib).apply(d, q, 3)
    y.mul_(2)
    return [pair(lib, y), pair(lib, z), k, pair(lib, d), pair(lib, d * d)]


def a_function_in_both_modes(lib, fw, p, t, q):
    p.requires_grad_()
    q.requires_grad_()
    t.requires_grad_()
    d = fw.make_dual(p, t)
    y, _, _ = product(lib).apply(d, q, 3)
    value, tangent = fw.unpack_dual((y * y).sum())
    g = lib.autograd.grad((y * y).sum(), (p, q), retain_graph=True)
    return [
        [pair(lib, x) for x in g],
        lib.autograd.grad(value, (p, q), retain_graph=True)[0].detach() * 1,
        lib.autograd.grad(tangent, (p, q, t)),
    ]


def a_function_that_saves_its_output(lib, fw, p, t):
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        ctx.save_for_forward(y)
        return y

    def backward(ctx, g):
        return g * ctx.saved_tensors[0]

    def jvp(ctx, t):
        return t * ctx.saved_tensors[0]

    p.requires_grad_()
    d = fw.make_dual(p, t)
    y = function(lib, forward, backward, jvp).apply(d)
    (g,) = lib.autograd.grad(y.sum(), p)
    return [pair(lib, y), pair(lib, g)]


def a_function_in_place(lib, fw, p, t):
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    def jvp(ctx, t):
        return t.mul_(2)

    d = fw.make_dual(p, t)
    e = d * 3
    v = e[1:]
    f = function(lib, forward, lambda ctx, g: g * 2, jvp)
    return [pair(lib, f.apply(d)), p, t, pair(lib, f.apply(e)), pair(lib, v), pair(lib, e)]


def a_function_that_gives_a_view(lib, fw, p, t):
    f = function(lib, lambda ctx, x: x.view_as(x), lambda ctx, g: g, lambda ctx, t: t.view_as(t))
    d = fw.make_dual(p, t)
    y = f.apply(d)
    d.mul_(2)
    return [pair(lib, y), pair(lib, y * 2)]


def a_function_with_setup_context(lib, fw, p, t):
    class Sine(lib.autograd.Function):
        @staticmethod
        def forward(x, scale=2.0):
            return x.sin() * scale

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.scale = inputs[1]
            ctx.save_for_backward(inputs[0])
            ctx.save_for_forward(inputs[0])

        @staticmethod
        def backward(ctx, g):
            return g * ctx.scale * ctx.saved_tensors[0].cos(), None

        @staticmethod
        def jvp(ctx, t, _):
            return t * ctx.scale * ctx.saved_tensors[0].cos()

    d = fw.make_dual(p, t)
    return [pair(lib, Sine.apply(d, 3.0)), pair(lib, Sine.apply(Sine.apply(d, 1.0), 2.0)),
            Sine.apply(p, 3.0)]  # fmt: skip


FUNCTIONS = {
    f.__name__: (f, shapes)
    for f, *shapes in (
        (a_function, 3, 3, 3), (a_function_in_both_modes, 3, 3, 3),
        (a_function_that_saves_its_output, 3, 3), (a_function_in_place, 3, 3),
        (a_function_that_gives_a_view, 3, 3), (a_function_with_setup_context, 3, 3),
    )
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    program, shapes = FUNCTIONS[name]
    both(program, *shapes)


def test_func_jvp_calls_jvp_too():
    def program(lib, fw, p, t, q):
        f = lib.func

        class Setup(lib.autograd.Function):
            @staticmethod
            def forward(x):
                return x * x

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(*inputs)
                ctx.save_for_forward(*inputs)

            @staticmethod
            def backward(ctx, g):
                return 2 * g * ctx.saved_tensors[0]

            @staticmethod
            def jvp(ctx, t):
                return 7 * t * ctx.saved_tensors[0]  # to be known by

        return [f.jvp(Setup.apply, (p,), (t,)), f.jvp(lambda x: Setup.apply(x).sin(), (p,), (t,)),
                f.grad(lambda x: Setup.apply(x).sum())(p)]  # fmt: skip

    both(program, 3, 3, 3, level=False)


def test_hessians_of_a_function_of_the_user():
    """Forward over reverse: its backward, of duals."""

    class Cubed(ad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * x**2

    x = ad.tensor([1.0, 2.0])
    found = ad.func.hessian(lambda x: Cubed.apply(x).sum())(x)
    assert found.tolist() == [[6.0, 0.0], [0.0, 12.0]]
    nested = ad.func.jacfwd(ad.func.jacfwd(lambda x: Cubed.apply(x).sum()))(x)
    assert nested.tolist() == found.tolist()


# ---- errors --------------------------------------------------------------------------------------


def level_in_level(lib, fw, p, t):
    with fw.dual_level():
        pass


def wrong_function(jvp):
    def program(lib, fw, p, t):
        f = function(lib, lambda ctx, x: x * 2, lambda ctx, g: g, jvp)
        f.apply(fw.make_dual(p, t))

    return program


def function_without_jvp(lib, fw, p, t):
    class Doubled(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    Doubled.apply(fw.make_dual(p, t))


INSIDE = {
    "nested": (level_in_level, "Nested forward mode AD is not supported"),
    "shape": (lambda lib, fw, p, t: fw.make_dual(p, t[:2]), "has a different size"),
    "integers": (lambda lib, fw, p, t: fw.make_dual(p.long(), t), "Expected primal to be floating"),
    "integer tangent": (
        lambda lib, fw, p, t: fw.make_dual(p, t.long()), "Expected tangent to be floating"
    ),
    "twice": (
        lambda lib, fw, p, t: fw.make_dual(fw.make_dual(p, t), t),
        "Making a dual Tensor based on a Tensor that already has a forward gradient",
    ),
    "tangent is dual": (
        lambda lib, fw, p, t: fw.make_dual(p, fw.make_dual(p, t)),
        "Setting a forward grad that itself has a forward gradient",
    ),
    "level": (lambda lib, fw, p, t: fw.make_dual(p, t, level=1), "Invalid level given"),
    "negative level": (lambda lib, fw, p, t: fw.make_dual(p, t, level=-1), "no level exists"),
    "exit": (lambda lib, fw, p, t: fw.exit_dual_level(level=3), "not the last one"),
    "expanded": (
        lambda lib, fw, p, t: fw.make_dual(p[:1].expand(3), t), "single memory location"
    ),
    "unpack": (lambda lib, fw, p, t: fw.unpack_dual(1.0), "must be"),
    "leaf": (a_leaf_is_written, "leaf Variable that requires grad"),
    "tangent leaf": (a_tangent_that_is_a_leaf_is_written, "leaf Variable that requires grad"),
    "saved": (written_after_it_was_saved, "modified by an inplace operation"),
    "out": (
        lambda lib, fw, p, t: lib.add(fw.make_dual(p, t), 1, out=lib.zeros(3)), r"forward AD.*out"
    ),
    "out of an op": (
        lambda lib, fw, p, t: lib.exp(p, out=fw.make_dual(p, t)), r"forward AD.*out"
    ),
    "without jvp": (function_without_jvp, "must implement the jvp function"),
    "jvp of another shape": (wrong_function(lambda ctx, t: t.sum()), "has a different size"),
    "too many tangents": (
        wrong_function(lambda ctx, t: (t, t)), r"expected 1 but got 2"
    ),
    "no tensor": (wrong_function(lambda ctx, t: 1.0), r"got float"),
}  # fmt: skip


@pytest.mark.parametrize("name", INSIDE)
def test_errors_like_pytorch(name):
    program, message = INSIDE[name]
    raised = []
    for lib in (torch, ad):
        p, t = (lib.ones(3, dtype=lib.float64) for _ in range(2))
        with namespace(lib).dual_level(), pytest.raises(Exception, match=message) as error:
            program(lib, namespace(lib), p, t)
        raised.append(error.type)
    assert issubclass(raised[1], raised[0])
    with pytest.raises(RuntimeError):
        fwad.exit_dual_level()  # none is left


def test_errors_outside_like_pytorch():
    for lib in (torch, ad):
        fw = namespace(lib)
        with pytest.raises(RuntimeError, match="no level exists"):
            fw.make_dual(lib.ones(1), lib.ones(1))
        with pytest.raises(RuntimeError, match="must be a positive number"):
            fw.exit_dual_level()
        assert fw.unpack_dual(lib.ones(1)).tangent is None


def test_imaginary_tangents_of_real_tensors_are_refused():
    with fwad.dual_level(), pytest.raises(ValueError, match="imaginary"):
        fwad.make_dual(ad.ones(2), ad.ones(2) * 1j)


# ---- what is left --------------------------------------------------------------------------------


def test_after_the_level_tensors_are_plain():
    p, t = ad.tensor([1.0, 2.0]), ad.tensor([3.0, 4.0])
    x = ad.zeros(2)
    w = p.clone().requires_grad_()
    with fwad.dual_level():
        d = fwad.make_dual(p, t)
        y = d * 2
        v = y[:1]
        x.copy_(d)
        kept = fwad.unpack_dual(y).tangent
        z = fwad.make_dual(w, t) ** 2
    assert [fwad.unpack_dual(each).tangent for each in (d, y, v, x, z)] == [None] * 5
    assert kept.tolist() == [6.0, 8.0]
    assert repr(y) == "tensor([2., 4.])"
    v.mul_(10)
    x += y
    y.add_(x)
    assert y.tolist() == [41.0, 10.0] and x.tolist() == [21.0, 6.0] and v.tolist() == [41.0]
    d.mul_(2)
    assert p.tolist() == [2.0, 4.0] and t.tolist() == [3.0, 4.0]
    z.sum().backward()
    assert w.grad.tolist() == [2.0, 4.0]
    with fwad.dual_level():
        assert fwad.unpack_dual(d).tangent is None
        assert fwad.unpack_dual(fwad.make_dual(d, t) * y).tangent.tolist() == [123.0, 40.0]


def test_a_level_frees_its_tangents():
    p, t = ad.ones(3), ad.ones(3)
    with fwad.dual_level():
        d = fwad.make_dual(p, t)
        y = (d * 2).requires_grad_() ** 2
        arrays = [weakref.ref(each._data.tangent) for each in (y, y * 3) if each is not None]
        held = weakref.ref(y._data)
        assert arrays[0]() is not None and held().tangent is not None
    gc.collect()
    assert [each() for each in arrays] == [None, None]
    assert held() is None or held().tangent is None
    y.sum().backward()
    assert t.tolist() == [1.0, 1.0, 1.0]


def test_a_level_ends_where_an_error_leaves_it():
    with pytest.raises(ZeroDivisionError), fwad.dual_level():
        d = fwad.make_dual(ad.ones(1), ad.ones(1))
        1 / 0  # noqa: B018
    with fwad.dual_level():
        assert fwad.unpack_dual(d * 2).tangent is None


def test_a_level_by_calls_and_as_a_decorator():
    assert fwad.enter_dual_level() == 0
    d = fwad.make_dual(ad.ones(1), ad.ones(1), level=0)
    assert fwad.unpack_dual(d, level=0).tangent is not None
    assert fwad.unpack_dual(d, level=-1).tangent is None
    fwad.exit_dual_level(level=0)

    @fwad.dual_level()
    def slope(f, x):
        return fwad.unpack_dual(f(fwad.make_dual(x, ad.ones_like(x)))).tangent

    assert [slope(lambda x: x * x, ad.tensor(v)).item() for v in (1.0, 3.0)] == [2.0, 6.0]


def test_threads_share_the_level():
    found = []

    def run(d, p):
        found.append(fwad.unpack_dual(d * 2).tangent.tolist())
        found.append(fwad.unpack_dual(fwad.make_dual(p, p) * 2).tangent.tolist())

    with fwad.dual_level(), fwad._set_fwd_grad_enabled(True):
        p = ad.ones(1)
        thread = threading.Thread(target=run, args=(fwad.make_dual(p, p), p))
        thread.start()
        thread.join()
    assert found == [[2.0], [2.0]]


def test_printing():
    for lib in (ad, torch):
        fw = namespace(lib)
        p, t = lib.tensor([1.0, 2.0]), lib.tensor([0.5, 0.25])
        with fw.dual_level():
            d = fw.make_dual(p, t)
            assert repr(d) == "tensor([1., 2.], tangent=tensor([0.5000, 0.2500]))"
            e = fw.make_dual(p.requires_grad_(), t) * 2
            assert repr(e).startswith("tensor([2., 4.], grad_fn=<MulBackward0>,")
            assert "tangent=tensor([1.0000, 0.5000]" in repr(e)


# ---- other ways to execute -----------------------------------------------------------------------


def test_lazily_duals_are_computed_at_once():
    p, t = ad.tensor([1.0, 2.0]), ad.tensor([3.0, 4.0])
    with ad.lazy(), fwad.dual_level():
        q = p * 2
        d = fwad.make_dual(q, t)
        y = d * (p + 1)
        x = ad.zeros(2)
        x.copy_(y)
        d.mul_(3)
        v = ad.zeros(2) + 1
        v[0] = d[1]
        found = [fwad.unpack_dual(each) for each in (y, x, d, v, d.softmax(0))]
    with fwad.dual_level():
        with ad.lazy():
            e = fwad.make_dual(p * 2, t) * 3
            z = (e * e).sum()
        wanted = fwad.unpack_dual((fwad.make_dual(p * 2, t) * 3).square().sum())
        assert fwad.unpack_dual(z).tangent.tolist() == wanted.tangent.tolist()
    assert [a.tolist() for a, _ in found[:4]] == [[4, 12], [4, 12], [6, 12], [12, 1]]
    assert [b.tolist() for _, b in found[:4]] == [[6, 12], [6, 12], [9, 12], [12, 0]]
    assert q.tolist() == [6.0, 12.0]


def test_graphs_and_compiled_functions_refuse_duals():
    graph = ad.Graph()
    p, t = ad.tensor([1.0, 2.0]), ad.tensor([3.0, 4.0])
    with graph:
        c = p * 2
        with pytest.raises(NotImplementedError, match="forward_ad"):
            fwad.enter_dual_level()
    with fwad.dual_level():
        d = fwad.make_dual(p, t)
        with pytest.raises(NotImplementedError, match="forward_ad"):
            fwad.make_dual(c, t)
        for f in (lambda: d * c, lambda: c * d, lambda: c.add_(d), lambda: d.add_(c)):
            with pytest.raises(NotImplementedError, match="forward_ad"):
                f()
        with graph:
            for f in (lambda: d * 2, lambda: d.mul_(2), lambda: fwad.make_dual(p, t),
                      lambda: ad.zeros(2).copy_(d), lambda: d[0], lambda: p * d,
                      lambda: d.softmax(0), lambda: d.numpy()):  # fmt: skip
                with pytest.raises(NotImplementedError, match="forward_ad"):
                    f()
        with pytest.raises(NotImplementedError, match="forward_ad"):
            ad.compile(lambda x: x.sin() * 2)(d)

    @ad.compile
    def inside(x):
        with fwad.dual_level():
            return fwad.unpack_dual(fwad.make_dual(x, x) * x).tangent

    with pytest.raises(NotImplementedError, match="forward_ad"):
        inside(p)
    with pytest.raises(RuntimeError):
        fwad.exit_dual_level()
    assert p.tolist() == [1.0, 2.0] and t.tolist() == [3.0, 4.0]


def test_transforms_inside_and_outside_of_a_level():
    p, t = ad.tensor([1.0, 2.0, 3.0]), ad.tensor([3.0, 4.0, 5.0])

    def tangent(x, v):
        with fwad.dual_level():
            d = fwad.make_dual(x, v)
            return fwad.unpack_dual((d * d).sin().sum() * d[0]).tangent

    rows = ad.stack([p, p + 1]), ad.stack([t, t * 2])
    expected = ad.stack([tangent(*each) for each in zip(*rows, strict=True)])
    assert ad.allclose(ad.func.vmap(tangent)(*rows), expected)
    assert ad.allclose(ad.func.vmap(tangent, (None, 0))(p, rows[1])[0], tangent(p, t))
    second = ad.func.jvp(lambda x: tangent(x, t), (p,), (t,))[1]
    reference = ad.func.jvp(
        lambda x: ad.func.jvp(lambda y: (y * y).sin().sum() * y[0], (x,), (t,))[1], (p,), (t,)
    )[1]
    assert ad.allclose(second, reference)
    with fwad.dual_level():
        d = fwad.make_dual(p, t)
        inner = ad.func.jvp(lambda x: (x * x).sin().sum() * x[0], (d,), (t,))[1]
        assert ad.allclose(fwad.unpack_dual(inner).tangent, reference)
        mixed = ad.func.jvp(lambda x: (x * d).sum(), (p,), (t,))
        assert ad.allclose(fwad.unpack_dual(mixed[1]).tangent, (t * t).sum())
        assert ad.allclose(fwad.unpack_dual(mixed[0]).tangent, (p * t).sum())
        g = ad.func.grad(lambda x: (x**3).sum())(d)
        assert ad.allclose(fwad.unpack_dual(g).tangent, 6 * p * t)
        h = ad.func.vmap(ad.func.grad(lambda x: x**3))(d)
        assert ad.allclose(fwad.unpack_dual(h).tangent, 6 * p * t)
        with pytest.raises(NotImplementedError, match="inside vmap"):
            ad.func.vmap(lambda x: fwad.make_dual(x, x))(p)
    assert ad.allclose(ad.func.grad(lambda x: tangent(x, t))(p), ad.func.jvp(
        ad.func.grad(lambda y: (y * y).sin().sum() * y[0]), (p,), (t,))[1])  # fmt: skip


def test_what_gives_a_tensor_other_memory():
    p, t = ad.tensor([1.0, 2.0]), ad.tensor([3.0, 4.0])
    with fwad.dual_level():
        d = fwad.make_dual(p, t) * 1
        for f in (lambda: d.resize_(1), lambda: d.set_(p), lambda: d[:1].resize_(2)):
            with pytest.raises(NotImplementedError, match="forward grad"):
                f()
        with pytest.raises(RuntimeError, match="detach views"):
            fwad.make_dual(p, t).detach_()
        d.data = ad.tensor([7.0, 8.0])
        assert [x.tolist() for x in fwad.unpack_dual(d * d)] == [[49.0, 64.0], [42.0, 64.0]]
        with pytest.raises(RuntimeError, match="shape"):
            d.data = ad.ones(3)
        e = (d * 1).detach_()
        assert fwad.unpack_dual(e).tangent is None


# ---- all ops -------------------------------------------------------------------------------------


def samples():
    """One small sample of each op that has a gradient."""
    for cls in REGISTRY.values():
        if not cls.__module__.startswith("adjoint.") or not cls.differentiable:
            continue
        for sample in cls.samples():
            small = all(np.size(x) < 100 for x in sample.inputs)
            if small and sample.gradients and not sample.op.drawn and floats_of(sample.inputs):
                yield pytest.param(sample, id=f"{cls.__name__}-{cls.__module__.rpartition('.')[2]}")
                break


def floats_of(inputs):
    kinds = (np.float64, np.complex128)
    return [i for i, x in enumerate(inputs) if isinstance(x, np.ndarray) and x.dtype.type in kinds]


@pytest.mark.parametrize("sample", list(samples()))
def test_ops_give_what_func_jvp_gives(sample):
    """Also what is written to a plain tensor, through the tape, and by a result that is changed."""
    inputs = [ad.tensor(x) if isinstance(x, np.ndarray) else x for x in sample.inputs]
    floats = floats_of(sample.inputs)
    tangents = [ad.rand_like(inputs[i]) for i in floats]

    def function(*xs):
        given = list(inputs)
        for i, x in zip(floats, xs, strict=True):
            given[i] = x
        found = apply(sample.op, *given)
        return found if isinstance(found, tuple) else (found,)

    primals = [inputs[i] for i in floats]
    values, expected = ad.func.jvp(function, tuple(primals), tuple(tangents))
    with fwad.dual_level():
        duals = [fwad.make_dual(x, t) for x, t in zip(primals, tangents, strict=True)]
        for y, value, t in zip(function(*duals), values, expected, strict=True):
            primal, tangent = fwad.unpack_dual(y)
            assert ad.equal(primal.nan_to_num(), value.nan_to_num())
            tangent = ad.zeros_like(primal) if tangent is None else tangent
            assert tangent.dtype is t.dtype and tangent.shape == t.shape
            assert ad.allclose(tangent, t, equal_nan=True) or y.dtype.category < 2
            if y.dtype.category < 2:
                continue
            whole = ad.zeros(2, *y.shape, dtype=y.dtype)
            whole[1] = y
            written = fwad.unpack_dual(whole).tangent
            if written is not None:
                assert ad.allclose(written[1], t, equal_nan=True) and not written[0].any()
            else:
                assert not t.any()
        for d, t in zip(duals, tangents, strict=True):
            assert fwad.unpack_dual(d).tangent is t


@pytest.mark.parametrize("lib", [ad, torch], ids=["adjoint", "torch"])
def test_a_tangent_lies_as_its_primal_gaps_included(lib):
    fwad = importlib.import_module(f"{lib.__name__}.autograd.forward_ad")
    with fwad.dual_level():
        primal = lib.arange(32.0).reshape(4, 8)[::2]
        x = fwad.make_dual(primal, lib.arange(16.0).reshape(2, 8))
        assert fwad.unpack_dual(x).tangent.stride() == (16, 1)
        assert (
            fwad.unpack_dual(x.view_as(x)).tangent.tolist() == np.arange(16).reshape(2, 8).tolist()
        )
        try:  # of memory beyond rows: as PyTorch, or refused, but never without the tangent
            y = x.as_strided((2, 2), (16, 1))
        except NotImplementedError as error:
            assert lib is ad and "as_strided" in str(error)
        else:
            assert fwad.unpack_dual(y).tangent.tolist() == [[0, 1], [8, 9]]
        z = x.detach()  # a tensor of its own, to which a dual is written
        view = z[:1]
        z.mul_(fwad.make_dual(lib.ones(2, 8), lib.ones(2, 8)))
        assert fwad.unpack_dual(z).tangent.tolist() == primal.tolist()
        assert fwad.unpack_dual(view).tangent.tolist() == primal[:1].tolist()
        assert fwad.unpack_dual(x).tangent.tolist() == np.arange(16).reshape(2, 8).tolist()
