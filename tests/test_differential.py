"""Random programs beside PyTorch: operations, views written in place, `out=`, NumPy arrays of every
kind, optimizers whose data is replaced, with NaN and infinity among the numbers.

    python -m tests.test_differential FIRST COUNT      # by hand: seeds FIRST to FIRST + COUNT

After each line both have the same tensors, or both have raised an error.
"""

from __future__ import annotations

import random
import sys
import warnings

import numpy as np
import pytest

import adjoint as ad
from adjoint.backends import native

from .pytorch import torch

NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -2.5, 7.0, 1e30, float("nan"), float("inf"),
           float("-inf")]  # fmt: skip
DTYPES = ["float32", "float32", "float32", "float64", "int64", "int32", "uint8", "bool"]
ONE = ["abs", "neg", "exp", "tanh", "sigmoid", "sqrt", "relu", "sign", "floor", "ceil", "round",
       "square", "reciprocal", "isnan", "isfinite", "logical_not", "log1p", "sin", "trunc",
       "expm1", "nan_to_num", "erf"]  # fmt: skip
TWO = ["add", "sub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "eq", "lt", "ge",
       "remainder", "fmod", "logical_and", "atan2", "copysign", "floor_divide"]  # fmt: skip
WITHIN = ["add_", "sub_", "mul_", "div_", "fill_", "clamp_", "copy_", "zero_", "relu_", "round_",
          "masked_fill_", "neg_", "abs_"]  # fmt: skip
ALONG = ["sum", "mean", "amax", "amin", "cumsum", "softmax", "argmax", "prod", "logsumexp", "any",
         "all", "flip", "log_softmax"]  # fmt: skip
# What is left out, since it differs for a reason: operands that share memory with what is written
# (PyTorch raises, or gives what its loop happens to; here it is as if they were apart), `out=` of
# another shape (PyTorch refuses to make NumPy's memory larger), signs of zeros (PyTorch's own
# vector code gives others than its scalar code), softmax of integers and
# bools; products of large numbers, whose order decides whether they become infinite on the way;
# what depends on strides of results, which are row-major here.


def array_of(rng, shape):
    """A NumPy array of any dtype that lies in memory in one of many ways."""
    dtype = rng.choice(DTYPES)
    numbers = NUMBERS if dtype.startswith("float") else [0, 1, 2, 3, 5]
    values = np.array([rng.choice(numbers) for _ in range(int(np.prod(shape)))], dtype)
    x = values.reshape(shape)
    way = rng.randrange(5)
    if way == 1:
        x = np.asfortranarray(x)
    elif way == 2 and x.ndim:
        x = np.repeat(x, 2, -1)[..., ::2]
    elif way == 3 and x.ndim == 2:
        x = np.ascontiguousarray(x.T).T
    elif way == 4:
        x = np.concatenate([x.reshape(-1)[:0], x.reshape(-1)]).reshape(shape)
    return x


def view_of(rng):
    """A function that gives a view."""
    a, b = rng.randrange(3), rng.randrange(1, 4)
    return rng.choice([
        lambda x: x, lambda x: x[a:], lambda x: x[::b], lambda x: x.t() if x.ndim == 2 else x[:a],
        lambda x: x[:1],
        lambda x: x.diagonal() if x.ndim == 2 else x[a:], lambda x: x[..., -1], lambda x: x[None],
        lambda x: x.unsqueeze(-1).expand(*x.shape, 1), lambda x: x.select(0, 0),
    ])  # fmt: skip


def apart(t, x):
    """The same, and no element near another: the gradient of no spread is rounding."""
    return x + 20 * t.arange(float(x.numel())).reshape(x.shape)


SAVING = {  # functions of two tensors of one shape
    "mul": lambda t, x, y: x * y, "div": lambda t, x, y: x / (y * y + 1),
    "atan2": lambda t, x, y: t.atan2(x, y * y + 1), "exp": lambda t, x, y: x.exp() * y,
    "tanh": lambda t, x, y: (x * y).tanh(), "maximum": lambda t, x, y: t.maximum(x, y + 0.25),
    "matmul": lambda t, x, y: x.unsqueeze(-1) @ y.unsqueeze(-2), "pow": lambda t, x, y: x**3 * y,
    "softmax": lambda t, x, y: x.unsqueeze(-1).softmax(0) * y.unsqueeze(-1),
    "sum": lambda t, x, y: x.sum() * y.square(),
    "std": lambda t, x, y: apart(t, x * 3 + y).std() + x.var(),
    "norm": lambda t, x, y: (x + y + 9).norm() * x, "relu": lambda t, x, y: x.relu() * y.relu(),
    "where": lambda t, x, y: t.where(x > y, x * y, y.sigmoid()),
    "logsumexp": lambda t, x, y: (x + y).reshape(-1).logsumexp(0) * y,
}  # fmt: skip
CHANGES = {  # in place, after the function
    "nothing": lambda t, x: None, "add_": lambda t, x: x.add_(1), "mul_": lambda t, x: x.mul_(2),
    "zero_": lambda t, x: x.zero_(), "relu_": lambda t, x: x.relu_(),
    "t_": lambda t, x: x.t_() if x.ndim <= 2 else None,
    "transpose_": lambda t, x: x.transpose_(0, -1) if x.ndim else None,
    "unsqueeze_": lambda t, x: x.unsqueeze_(0), "squeeze_": lambda t, x: x.squeeze_(),
    "a part": lambda t, x: x[:1].mul_(3) if x.ndim else None,
    "copy_": lambda t, x: x.copy_(t.ones_like(x)), "detach_": lambda t, x: x.detach(),
}  # fmt: skip


def gradient_after(t, x, function, change, place):
    """The gradient of a function of which an input, or the result, is changed before backward."""
    leaf = x.clone().requires_grad_()
    values = [leaf * 1.0, leaf.detach() * 0.5 + 0.25]
    values.append(function(t, *values))
    total = values[2].sum() if place < 2 else (values[2] * 1.0).sum()
    with t.no_grad():
        change(t, values[place])
    total.backward()
    return leaf.grad


def line_of(rng):
    """A line of a program: what it is called, and a function of the framework and its tensors."""
    i, j, k = (rng.randrange(100) for _ in range(3))
    number, dim = rng.choice([*NUMBERS, 2, -1]), rng.choice([0, -1])
    view, other = view_of(rng), view_of(rng)
    kind = rng.choice(["one", "two", "number", "within", "within", "along", "out", "where", "array",
                       "optimizer", "view", "gradient", "saved"])  # fmt: skip
    if kind == "one":
        name = rng.choice(ONE)
        return name, lambda t, xs: getattr(t, name)(view(xs[i % len(xs)]))
    if kind == "two":
        name = rng.choice(TWO)
        return name, lambda t, xs: getattr(t, name)(view(xs[i % len(xs)]), other(xs[j % len(xs)]))
    if kind == "number":
        name = rng.choice(TWO[:4])
        return name, lambda t, xs: getattr(t, name)(view(xs[i % len(xs)]), number)
    if kind == "within":
        name = rng.choice(WITHIN)

        def within(t, xs):
            x, y = view(xs[i % len(xs)]), other(xs[j % len(xs)]).clone()
            arguments = {
                "fill_": (number,), "clamp_": (-1, 2), "masked_fill_": (x > 0, number),
            }.get(name, (y,) if name in WITHIN[:4] or name == "copy_" else ())  # fmt: skip
            getattr(x, name)(*arguments)

        return name, within
    if kind == "along":
        name = rng.choice(ALONG)
        if name == "flip":
            return name, lambda t, xs: t.flip(view(xs[i % len(xs)]), (dim,))
        floats = name in ("softmax", "log_softmax", "logsumexp", "mean")

        def along(t, xs):
            x = view(xs[i % len(xs)])
            if name == "prod" and x.dtype.is_floating_point:
                x = t.where((x.abs() > 1e9) & x.isfinite(), t.ones_like(x), x)
            return getattr(t, name)(x.float() if floats else x, dim)

        return name, along
    if kind == "out":
        name = rng.choice(["add", "mul", "sub"])

        def out(t, xs):
            x, y, z = xs[i % len(xs)].clone(), xs[j % len(xs)].clone(), view(xs[k % len(xs)])
            if z.shape == t.broadcast_shapes(x.shape, y.shape):
                getattr(t, name)(x, y, out=z)

        return f"{name} out=", out
    if kind == "where":
        return "where", lambda t, xs: t.where(xs[i % len(xs)] > 0, xs[j % len(xs)], xs[k % len(xs)])
    if kind == "array":
        array = array_of(rng, rng.choice([(), (3,), (2, 3), (3, 3), (0, 2), (4, 1)]))
        return f"array {array.dtype}", lambda t, xs: t.from_numpy(array.copy("K"))
    if kind == "optimizer":
        kinds = rng.choice([("SGD", {"momentum": 0.9}), ("Adam", {}), ("AdamW", {}),
                            ("RMSprop", {}), ("Adagrad", {})])  # fmt: skip

        def optimize(t, xs):
            p = t.nn.Parameter(xs[i % len(xs)].detach().clone().float())
            optimizer = getattr(t.optim, kinds[0])([p], lr=0.1, **kinds[1])
            way = p.detach().sign()  # of what steps give, rounding would decide it
            for step in range(3):
                p.grad = t.full_like(p, 0.5 + step) * way
                optimizer.step()
                if step == 0:
                    p.data = view(xs[i % len(xs)]).detach().clone().float().reshape(p.shape)
            return p.detach()

        return kinds[0], optimize
    if kind == "view":
        return "view", lambda t, xs: view(xs[i % len(xs)])

    if kind == "saved":
        function, change = rng.choice(list(SAVING)), rng.choice(list(CHANGES))
        place = rng.randrange(3)

        def saved(t, xs):
            x = view(xs[i % len(xs)]).detach().clone().float().nan_to_num(0.5).clamp_(-2, 2)
            try:
                return gradient_after(t, x, SAVING[function], CHANGES[change], place)
            except RuntimeError as error:  # refused: then the gradient is that without a change
                if "modified by an inplace" not in str(error):
                    raise
                return gradient_after(t, x, SAVING[function], lambda t, y: None, place)

        return f"{change} of {place} of {function}", saved

    name = rng.choice(["exp", "tanh", "sigmoid", "relu", "square", "abs", "sqrt", "sin"])

    def gradient(t, xs):
        x = xs[i % len(xs)].detach().clone()
        if name in ("sigmoid", "tanh"):  # near 1 no digit of what is left to it is right
            x.clamp_(-2, 2)
        x.requires_grad_()
        y = view(getattr(t, name)(x) * 2)
        (y.clone().mul_(number if number == number else 1) + 1).sum().backward()
        return x.grad

    return f"gradient of {name}", gradient


def alike(ours, theirs):
    """What differs; empty where nothing does."""
    a, b = ours.detach().numpy(), theirs.detach().numpy()
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype}{a.shape}, not {b.dtype}{b.shape}"
    if a.tobytes() == b.tobytes():  # nearly all
        return ""
    with np.errstate(all="ignore"):
        same = np.isclose(a, b, rtol=2e-5, atol=1e-6, equal_nan=True) if a.dtype != bool else a == b
    return "" if same.all() else f"{a.tolist()}, not {b.tolist()}"


def other_signs(ours, theirs):
    """Whether zeros, in memory that can be written, have other signs."""
    a, b = ours.detach().numpy(), theirs.detach().numpy()
    can = a.dtype.kind == "f" and 0 not in a.strides and a.flags.writeable
    return can and not np.array_equal(np.signbit(a) & (a == 0), np.signbit(b) & (b == 0))


def tried(t, xs, line):
    """The result of a line, or its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return line(t, xs), None
        except Exception as error:
            return None, error


def difference(seed, lines=12):
    """What differs in one program; empty where nothing does."""
    rng = random.Random(seed)
    start = [array_of(rng, shape) for shape in ((2, 3), (3,), (3, 3))]
    ours, theirs = ([t.from_numpy(x.copy("K")) for x in start] for t in (ad, torch))
    done = []
    for _ in range(lines):
        name, line = line_of(rng)
        (y, error), (wanted, their_error) = tried(ad, ours, line), tried(torch, theirs, line)
        done.append(name)
        if (error is None) != (their_error is None):
            return f"{seed}: {done}: {error!r}, not {their_error!r}"
        if error is not None:
            continue
        if wanted is not None:
            if name != "view" and not (found := alike(y, wanted)):  # rounding must not add up
                y.detach().copy_(ad.from_numpy(wanted.detach().numpy().copy()))
            ours.append(y)
            theirs.append(wanted)
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if found := alike(a, b):
                return f"{seed}: {done}: tensor {i}: {found}"
            if other_signs(a, b):  # of zeros, which roots and copysign would make much of
                with ad.no_grad():
                    a.copy_(ad.from_numpy(b.detach().numpy().copy()))
    return ""


# 8,000 in the sweep, and 12,000 others where it is repeated on NumPy alone: those need no compiler.
SWEPT = range(1000, 9000, 1000) if not native.unusable() else range(20_000, 32_000, 1000)


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.sweep) for n in SWEPT)])
def test_random_programs(first):
    found = [
        text for text in map(difference, range(first, first + (1000 if first else 40))) if text
    ]
    assert not found, "\n".join(found[:5])


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_after_it_was_saved(change):
    """Refused where PyTorch refuses it, or as if nothing had changed; else PyTorch's gradient."""
    for function in SAVING:
        for place in range(3):
            found = []
            for t in (torch, ad):
                x = t.arange(-2.5, 3.5).reshape(2, 3)
                try:
                    found.append(gradient_after(t, x, SAVING[function], CHANGES[change], place))
                except RuntimeError as error:
                    assert "modified by an inplace" in str(error)
                    found.append(gradient_after(t, x, SAVING[function], lambda t, y: None, place))
            theirs, ours = (g.numpy() for g in found)
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5, err_msg=function)


def test_the_programs_notice_what_is_wrong(monkeypatch):
    monkeypatch.setattr(ad, "sub", lambda x, y, **kwargs: x + y)
    assert any(difference(seed) for seed in range(200))


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:])
    wrong = [text for text in map(difference, range(first, first + count)) if text]
    print(f"{count} programs from {first}: {len(wrong)} differ")
    print("\n".join(wrong[:40]))
