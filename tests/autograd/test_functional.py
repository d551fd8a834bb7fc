"""autograd.functional: every call runs here and in PyTorch, and must end alike."""

from __future__ import annotations

import pytest

import adjoint as ad

from ..pytorch import torch


def t(lib, *values, grad=False):
    return lib.tensor(list(values), dtype=lib.float64, requires_grad=grad)


def cube(x):
    return (x * x * x).sum()


def two(x, y):
    return (x * x * y).sum()


A, B, V = (1.0, 2.0), (3.0, 4.0), (1.0, -1.0)

CALLS = {
    "jacobian": lambda lib, f: f.jacobian(lambda x: x * x, t(lib, *A)),
    "jacobian of a matrix": lambda lib, f: f.jacobian(
        lambda x: x.reshape(2, 2) * 3, t(lib, 1.0, 2.0, 3.0, 4.0)
    ),
    "jacobian, several inputs and outputs": lambda lib, f: f.jacobian(
        lambda x, y: (x * y, (x + y).sum()), (t(lib, *A), t(lib, *B))
    ),
    "jacobian, independent input": lambda lib, f: f.jacobian(
        lambda x, y: x * 2, (t(lib, *A), t(lib, *B))
    ),
    "jacobian, constant output": lambda lib, f: f.jacobian(lambda x: t(lib, 1.0), t(lib, *A)),
    "jacobian, vectorize": lambda lib, f: f.jacobian(cube, t(lib, *A), vectorize=True),
    "jacobian forward": lambda lib, f: f.jacobian(
        lambda x, y: (x * y, (x.exp() + y).sum(), t(lib, 1.0)),
        (t(lib, *A), t(lib, *B)),
        strategy="forward-mode",
        vectorize=True,
    ),
    "jacobian of a matrix forward": lambda lib, f: f.jacobian(
        lambda x: x.reshape(2, 2) @ x.reshape(2, 2),
        t(lib, 1.0, 2.0, 3.0, 4.0),
        strategy="forward-mode",
        vectorize=True,
    ),
    "jacobian of a scalar forward": lambda lib, f: f.jacobian(
        lambda x: x.sin(), lib.tensor(0.0), strategy="forward-mode", vectorize=True
    ),
    "hessian forward": lambda lib, f: f.hessian(
        cube, t(lib, *A), outer_jacobian_strategy="forward-mode", vectorize=True
    ).detach(),
    "hessian of several inputs forward": lambda lib, f: [
        [block.detach() for block in row]
        for row in f.hessian(
            lambda x, y: two(x, y) + y.exp().prod(),
            (t(lib, *A), t(lib, *B)),
            outer_jacobian_strategy="forward-mode",
            vectorize=True,
        )
    ],
    "hessian of a linear function forward": lambda lib, f: f.hessian(
        lambda x: (x * 2).sum(), t(lib, *A), outer_jacobian_strategy="forward-mode", vectorize=True
    ).detach(),
    "hessian, vectorize": lambda lib, f: f.hessian(cube, t(lib, *A), vectorize=True),
    "hessian": lambda lib, f: f.hessian(cube, t(lib, *A)),
    "hessian of several inputs": lambda lib, f: f.hessian(two, (t(lib, *A), t(lib, *B))),
    "hessian, independent input": lambda lib, f: f.hessian(
        lambda x, y: cube(x), (t(lib, *A), t(lib, *B))
    ),
    "hessian of a linear function": lambda lib, f: f.hessian(lambda x: (x * 2).sum(), t(lib, *A)),
    "vjp": lambda lib, f: f.vjp(lambda x: x * x, t(lib, *A), t(lib, *V)),
    "vjp without v": lambda lib, f: f.vjp(cube, t(lib, *A)),
    "vjp of several": lambda lib, f: f.vjp(
        lambda x, y: (x * x, y), (t(lib, *A), t(lib, 1.0)), (t(lib, *A), t(lib, 1.0))
    ),
    "jvp": lambda lib, f: f.jvp(lambda x: x * x, t(lib, *A), t(lib, *V)),
    "jvp of a linear function": lambda lib, f: f.jvp(lambda x: x * 2, t(lib, *A), t(lib, *V)),
    "jvp of a constant": lambda lib, f: f.jvp(lambda x: t(lib, 3.0), t(lib, *A), t(lib, *V)),
    "jvp of several": lambda lib, f: f.jvp(
        lambda x, y: (x * y, y), (t(lib, *A), t(lib, *B)), (t(lib, *V), t(lib, 1.0, 1.0))
    ),
    "jvp without v": lambda lib, f: f.jvp(lambda x: x * x, t(lib, 1.0)),
    "complex jacobian": lambda lib, f: f.vjp(
        lambda x: x * x,
        lib.tensor([1 + 2j], dtype=lib.complex128),
        lib.tensor([1 - 1j], dtype=lib.complex128),
    ),
}
for name in ("vhp", "hvp"):
    CALLS |= {
        name: lambda lib, f, n=name: getattr(f, n)(cube, t(lib, *A), t(lib, *V)),
        f"{name} of several": lambda lib, f, n=name: getattr(f, n)(
            two, (t(lib, *A), t(lib, *B)), (t(lib, *A), t(lib, *V))
        ),
        f"{name} of a linear function": lambda lib, f, n=name: getattr(f, n)(
            lambda x: (x * 2).sum(), t(lib, *A), t(lib, *V)
        ),
        f"{name} without v": lambda lib, f, n=name: getattr(f, n)(cube, t(lib, 3.0)),
    }


def differentiated(lib, call):
    x, v = t(lib, *A, grad=True), t(lib, *V, grad=True)
    results = call(lib.autograd.functional, x, v)
    results = results if isinstance(results, tuple) else (results,)
    total = sum((r.sum() for r in results[1:]), results[0].sum())
    grads = lib.autograd.grad(total, (x, v), allow_unused=True)
    return [r.requires_grad for r in results], grads


def elementwise_cube(x):
    return x * x * x


CALLS |= {
    f"{name} with create_graph": lambda lib, f, call=call: differentiated(lib, call)
    for name, call in {
        "jacobian": lambda f, x, v: f.jacobian(elementwise_cube, x, create_graph=True),
        "hessian": lambda f, x, v: f.hessian(cube, x, create_graph=True),
        "vjp": lambda f, x, v: f.vjp(elementwise_cube, x, v, create_graph=True),
        "jvp": lambda f, x, v: f.jvp(elementwise_cube, x, v, create_graph=True),
        "vhp": lambda f, x, v: f.vhp(cube, x, v, create_graph=True),
        "hvp": lambda f, x, v: f.hvp(cube, x, v, create_graph=True),
    }.items()
}


def plain(value):
    if isinstance(value, (tuple, list)):
        return tuple(map(plain, value))
    return (
        value.detach().resolve_conj().numpy().tolist()
        if torch.is_tensor(value)
        else (value.detach().numpy().tolist() if isinstance(value, ad.Tensor) else value)
    )


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # PyTorch's own
@pytest.mark.parametrize("name", CALLS)
def test_like_pytorch(name):
    theirs = plain(CALLS[name](torch, torch.autograd.functional))
    assert plain(CALLS[name](ad, ad.autograd.functional)) == theirs


ERRORS = {
    "strict, independent input": (
        lambda lib, f: f.jacobian(lambda x, y: x * 2, (t(lib, *A), t(lib, *B)), strict=True),
        "Output 0 of the user-provided function is independent of input 1",
    ),
    "strict, constant output": (
        lambda lib, f: f.jacobian(lambda x: t(lib, 1.0), t(lib, *A), strict=True),
        "Output 0 of the user-provided function does not require gradients",
    ),
    "strict jvp": (
        lambda lib, f: f.jvp(lambda x: t(lib, 1.0), t(lib, *A), t(lib, *V), strict=True),
        "Output 0 of the user-provided function does not require gradients",
    ),
    "strict vhp": (
        lambda lib, f: f.vhp(lambda x: (x * 2).sum(), t(lib, *A), t(lib, *V), strict=True),
        "independent|does not require gradients",
    ),
    "hessian of a vector": (
        lambda lib, f: f.hessian(lambda x: x * x, t(lib, *A)),
        "given to hessian should contain a single element",
    ),
    "hvp of a vector": (
        lambda lib, f: f.hvp(lambda x: x * x, t(lib, *A), t(lib, *V)),
        "given to hvp should contain a single element",
    ),
    "v is missing": (
        lambda lib, f: f.vjp(lambda x: x * x, t(lib, *A)),
        "The vector v can only be None if",
    ),
    "v is missing, jvp": (
        lambda lib, f: f.jvp(lambda x: x * x, t(lib, *A)),
        "can only be None if the input to the user-provided function is a single Tensor",
    ),
    "v of another shape": (
        lambda lib, f: f.vjp(lambda x: x * x, t(lib, *A), t(lib, 1.0)),
        "v has invalid size: should be",
    ),
    "v of another length": (
        lambda lib, f: f.vjp(lambda x, y: (x, y), (t(lib, *A), t(lib, *A)), (t(lib, *A),)),
        "v is a tuple of invalid length: should be 2 but got 1",
    ),
    "output is no tensor": (
        lambda lib, f: f.jacobian(lambda x: 3, t(lib, *A)),
        "must be either a Tensor or a tuple of Tensors",
    ),
    "input is no tensor": (
        lambda lib, f: f.jacobian(lambda x: x, 3),
        "The inputs given to jacobian must be either a Tensor or a tuple of Tensors",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_like_pytorch(name):
    call, message = ERRORS[name]
    with pytest.raises(Exception, match=message) as theirs:
        call(torch, torch.autograd.functional)
    with pytest.raises(theirs.type, match=message):
        call(ad, ad.autograd.functional)


@pytest.mark.parametrize("options", [
    {"strategy": "forward-mode"}, {"strategy": "forward-mode", "vectorize": True, "strict": True},
    {"strategy": "forward-mode", "vectorize": True, "create_graph": True},
    {"vectorize": True, "strict": True},
])  # fmt: skip
def test_options_that_do_not_go_together(options):
    kinds = []
    of_hessian = {
        "outer_jacobian_strategy" if key == "strategy" else key: value
        for key, value in options.items()
    }
    for lib in (ad, torch):
        with pytest.raises((NotImplementedError, RuntimeError)) as found:
            lib.autograd.functional.jacobian(cube, t(lib, *A), **options)
        kinds.append(isinstance(found.value, NotImplementedError))
        with pytest.raises((NotImplementedError, RuntimeError)) as found:
            lib.autograd.functional.hessian(cube, t(lib, *A), **of_hessian)
        kinds.append(isinstance(found.value, NotImplementedError))
    assert kinds[:2] == kinds[2:]


def test_inputs_and_mode_are_left_alone():
    x = t(ad, *A, grad=True)
    with ad.no_grad():
        found = ad.autograd.functional.jacobian(elementwise_cube, x)
        assert not ad.is_grad_enabled()
    assert x.grad is None and not found.requires_grad
