"""Operators that programs declare: `ad.library` as `torch.library`."""

from __future__ import annotations

import collections.abc
import itertools
import types

import numpy as np
import pytest
import torch

import adjoint as ad
from adjoint.torch_api.alias import ops as our_ops

number = itertools.count()
OPS = {ad: our_ops, torch: torch.ops}
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")


def both(program, *given):
    """`program(library, namespace, *tensors)` on both gives the same."""
    name = f"adjoint_test_{next(number)}"
    found = []
    for lib in (ad, torch):
        y = program(lib, name, *[lib.tensor(x) for x in given])
        found.append([np.asarray(t.detach()) for t in (y if isinstance(y, tuple) else (y,))])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def cubed(lib, name):
    def function(x, k=2.0, *, n=1):
        return lib.tensor(x.numpy() ** 3 * k + n)

    function.__annotations__ = {"x": lib.Tensor, "k": float, "n": int, "return": lib.Tensor}
    op = lib.library.custom_op(f"{name}::cubed", mutates_args=())(function)

    @op.register_fake
    def _(x, k=2.0, *, n=1):
        return lib.empty_like(x)

    def setup(ctx, inputs, keyword_only_inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.k = inputs[1]

    def backward(ctx, g):
        return g * 3 * ctx.saved_tensors[0] ** 2 * ctx.k, None

    op.register_autograd(backward, setup_context=setup)

    @op.register_vmap
    def _(info, in_dims, x, k=2.0, *, n=1):
        return op(x, k, n=n), in_dims[0]

    return op


def test_calls_gradients_and_batches():
    def program(lib, name, x):
        op = cubed(lib, name)
        x.requires_grad_()
        y = op(x, n=2)
        (g,) = lib.autograd.grad(op(x, 3.0).sum(), x)
        called = getattr(OPS[lib], name).cubed(x, 1.5), getattr(OPS[lib], name).cubed.default(x)
        return y, g, *called, lib.vmap(op)(x.detach())

    both(program, [[1.0, 2.0], [3.0, -1.0]])


def test_what_was_not_registered():
    name = f"adjoint_test_{next(number)}"
    op = ad.library.custom_op(
        f"{name}::f", lambda x: ad.tensor(x.numpy()), mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    x = ad.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        op(x).sum().backward()
    with pytest.raises(RuntimeError, match="vmap"):
        ad.vmap(op)(ad.ones(2, 2))
    with pytest.raises(AttributeError, match="no such operator"):
        getattr(our_ops, name).other(x)
    with pytest.raises(ValueError, match="no namespace"):
        ad.library.custom_op("f", op, mutates_args=(), schema="(Tensor x) -> Tensor")
    with pytest.raises(RuntimeError, match="does not exist"):
        ad.library.register_vmap(f"{name}::g", lambda info, dims, x: (x, 0))
    with pytest.raises(TypeError, match=r"Tensor x"):
        op(x, 3)


def test_an_output_that_is_an_input_is_refused():
    name = f"adjoint_test_{next(number)}"
    schema = "(Tensor x) -> Tensor"
    for i, function in enumerate((lambda x: x, lambda x: x[0], lambda x: x.detach())):
        op = ad.library.custom_op(f"{name}::f{i}", function, mutates_args=(), schema=schema)
        with pytest.raises(RuntimeError, match="may not alias"):
            op(ad.ones(2))


def test_writes_are_known_to_autograd():
    name = f"adjoint_test_{next(number)}"

    def unseen(x, y):
        x.numpy()[:] = 7.0

    unseen.__annotations__ = {"x": ad.Tensor, "y": ad.Tensor, "return": None}
    op = ad.library.custom_op(f"{name}::unseen", mutates_args={"x"})(unseen)
    assert op._schema == "unseen(Tensor(a0!) x, Tensor y) -> ()"
    x, w = ad.ones(2), ad.ones(2, requires_grad=True)
    y = x * w
    assert op(x, x.clone()) is None and x.tolist() == [7.0, 7.0]
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="leaf"):
        op(w, x)


def test_libraries():
    def program(lib, name, x, y):
        library = lib.library.Library(name, "FRAGMENT")
        library.define(
            "f(Tensor x, Tensor y, float k=2.0, *, bool b=False, int[] n=[1, 2]) -> Tensor"
        )
        op = getattr(OPS[lib], name).f
        with pytest.raises(NotImplementedError, match="Could not run"):
            op(x, y)
        library.impl(
            "f", lambda x, y, k=2.0, *, b=False, n=(1, 2): x * k + (y if b else len(n)), "CPU"
        )
        lib.library.register_autograd(
            f"{name}::f", lambda ctx, g: (g * 5, None, None, None, None), lib=library
        )
        x.requires_grad_()
        (g,) = lib.autograd.grad(op(x, y).sum(), x)
        library.define("whole(Tensor x) -> Tensor")
        library.impl("whole", lambda x: x.sin(), "CompositeImplicitAutograd")
        (h,) = lib.autograd.grad(getattr(OPS[lib], name).whole(x).sum(), x)
        return op(x, y, b=True), op(x, y, 3.0, n=[1]), g, h

    both(program, [1.0, 2.0], [3.0, 4.0])


SIGNATURES = [
    lambda lib: {"x": lib.Tensor, "y": list[int], "return": lib.Tensor},
    lambda lib: {"x": lib.Tensor | None, "y": collections.abc.Sequence[lib.Tensor],
                 "return": tuple[lib.Tensor, lib.Tensor]},
    lambda lib: {"x": lib.Tensor, "y": int | float | bool, "return": list[lib.Tensor]},
    lambda lib: {"x": lib.dtype | None, "y": lib.device | None, "return": int},
    lambda lib: {"x": list[lib.Tensor | None], "y": str, "return": None},
    lambda lib: {"x": lib.Tensor, "return": None},
    lambda lib: {"x": dict, "y": str, "return": None},
    lambda lib: {"x": lib.Tensor, "y": str},
]  # fmt: skip


@pytest.mark.parametrize("which", range(len(SIGNATURES)))
@pytest.mark.parametrize("mutates", [(), ("x",), "unknown"])
def test_schemas(which, mutates):
    found = []
    for lib in (ad, torch):

        def f(x, y): ...

        f.__annotations__ = SIGNATURES[which](lib)
        try:
            found.append(lib.library.infer_schema(f, mutates_args=mutates))
        except ValueError:
            found.append("refused")
    assert found[0] == found[1]


def test_opcheck():
    name = f"adjoint_test_{next(number)}"
    op = cubed(ad, name)
    assert set(ad.library.opcheck(op, (ad.ones(2),)).values()) == {"SUCCESS"}
    op.register_fake(lambda x, k=2.0, *, n=1: ad.empty(3))
    with pytest.raises(RuntimeError, match="fake"):
        ad.library.opcheck(op, (ad.ones(2),))

    def writes(x):
        return x.add_(1) * 1

    schema = "(Tensor x) -> Tensor"
    bad = ad.library.custom_op(f"{name}::bad", writes, mutates_args=(), schema=schema)
    with pytest.raises(RuntimeError, match="mutated"):
        ad.library.opcheck(bad, (ad.ones(2),))


def scaled(x, n, *, by=2.0, shift=False):
    return x * n * by + shift


def keywords(t):
    """What an operator with keyword-only arguments computes, its gradient, and that of a batch."""
    hints = {"x": t.Tensor, "n": int, "by": float, "shift": bool, "return": t.Tensor}
    function = types.FunctionType(scaled.__code__, globals())
    function.__kwdefaults__, function.__annotations__ = scaled.__kwdefaults__, hints
    op = t.library.custom_op("keywords::scaled", function, mutates_args=())
    op.register_fake(lambda x, n, *, by=2.0, shift=False: x.new_empty(x.shape))

    def setup(ctx, inputs, keyword_only_inputs, output):
        assert len(inputs) == 2 and list(keyword_only_inputs) == ["by", "shift"]
        ctx.factor = inputs[1] * keyword_only_inputs["by"]

    op.register_autograd(lambda ctx, g: (g * ctx.factor, None), setup_context=setup)
    op.register_vmap(lambda info, dims, x, n, *, by, shift: (op(x, n, by=by, shift=shift), 0))
    x = t.ones(2, requires_grad=True)
    op(x, 3, by=5.0).sum().backward()
    mapped = t.func.vmap(lambda x: op(x, 2, by=3.0, shift=True))(t.ones(3, 2))
    with pytest.raises((TypeError, RuntimeError)):
        op(x, 3, 5.0)
    return op(t.ones(2), 1, shift=True).tolist(), x.grad.tolist(), mapped.tolist()


def test_keyword_only_arguments():
    assert keywords(ad) == keywords(torch)
