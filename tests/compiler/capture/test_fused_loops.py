"""Loops whose body is one function, beside Python's loop over eager ops, and beside records."""

import _thread
import subprocess
import sys
import threading
import time
from collections import Counter

import numpy as np
import pytest

import adjoint as ad
from adjoint.backends.native.loops import loop_code
from adjoint.compiler.capture import fused_loop
from tests.native import needs_native

from ...sweep import swept

F = ad.nn.functional
pytestmark = needs_native


@pytest.fixture(autouse=True)
def made(monkeypatch):
    """How many loops have become one function, and how many have not, by reason."""
    counts = Counter()

    def note(body, make, before=fused_loop.fused):
        loop = before(body, make)
        counts["one function" if loop else body.by_records] += 1
        return loop

    monkeypatch.setattr("adjoint.compiler.capture.loop_lowering.fused", note)
    return counts


def by_records(monkeypatch, function, *given):
    """What a new program of the function gives, whose loops go through records."""
    with monkeypatch.context() as patch:
        patch.setattr(fused_loop, "is_on", lambda: False)
        return ad.compile(function)(*given)


def unrolled(turn, c, rows, reverse=False):
    """The scan as a Python loop over eager ops."""
    found = []
    order = range(len(rows))
    for t in reversed(order) if reverse else order:
        c, y = turn(c, rows[t])
        found.append(y)
    found = found[::-1] if reverse else found
    return c, ad.stack(found) if found else None


UNARY = {
    "neg": lambda x: -x,
    "abs": abs,
    "exp": lambda x: x.exp() * 0.1,
    "log": lambda x: (x * x + 1).log(),
    "log1p": lambda x: (x * x).log1p(),
    "expm1": lambda x: x.expm1() * 0.1,
    "sqrt": lambda x: (x * x + 1).sqrt(),
    "rsqrt": lambda x: (x * x + 1).rsqrt(),
    "tanh": ad.tanh,
    "sigmoid": ad.sigmoid,
    "sin": ad.sin,
    "cos": ad.cos,
    "tan": lambda x: (x * 0.1).tan(),
    "atan": ad.atan,
    "sinh": lambda x: x.sinh() * 0.1,
    "asinh": ad.asinh,
    "erf": ad.erf,
    "power": lambda x: (x * x + 1) ** 0.3,
    "square": lambda x: x**2 * 0.1,
    "reciprocal": lambda x: 1 / (x * x + 1),
    "floor": lambda x: x.floor() * 0.1 + x,
    "round": lambda x: x.round() * 0.1 + x,
    "sign": lambda x: x.sign() * 0.1 + x,
    "clip": lambda x: x.clip(-0.5, 0.7),
    "relu": lambda x: F.relu(x) + 0.1 * x,
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "where": lambda x: ad.where(x > 0.1, x, x * 0.1),
    "logical": lambda x: ad.where((x > 0) & ~(x > 1), x, 0.5 * x),
    "sum": lambda x: x - x.sum() * 0.01,
    "mean": lambda x: x - x.mean(),
    "prod": lambda x: x + (x * 0.1 + 1).prod() * 0.01,
    "amax": lambda x: x - x.amax(),
    "amin": lambda x: x + x.amin() * 0.1,
    "sum of rows": lambda x: x - x.sum(0, keepdim=True) * 0.1,
    "sum of columns": lambda x: x - x.sum(-1, keepdim=True) * 0.1,
    "max of rows": lambda x: x - x.amax(0),
    "var": lambda x: x / (1 + x.var()),
    "norm": lambda x: x / (1 + x.norm()),
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, 0),
    "logsumexp": lambda x: x - ad.logsumexp(x, 0),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "index": lambda x: x + x[-1] * 0.1,
    "slices": lambda x: ad.cat([x[1:], x[:1]]),
    "steps": lambda x: x + ad.cat([x[::2], x[1::2]]) * 0.1,
    "flip": lambda x: x.flip(0) * 0.9,
    "roll": lambda x: ad.roll(x, 2, 0) - x,
    "pad": lambda x: x + F.pad(x, (1, 0))[..., :-1] * 0.1,
    "stack": lambda x: ad.stack([x, x * 0.5]).sum(0) * 0.5,
    "chunk": lambda x: ad.cat(x.chunk(2)[::-1]),
    "expand": lambda x: x + x[:1].expand(x.shape) * 0.1,
    "reshape": lambda x: x.reshape(-1).flip(0).reshape(x.shape),
    "tril": lambda x: x + x.reshape(x.shape[0], -1).tril().reshape(x.shape) * 0.1,
    "cast": lambda x: x.float().double() * 0.5 if x.dtype is ad.float64 else x.double().float(),
    "whole": lambda x: x * 0.5 + (x * 4).to(ad.int64).to(x.dtype) * 0.1,
    "remainder": lambda x: x % 0.7,
    "detach": lambda x: x.detach() * 0.5 + x * 0.1,
}
BINARY = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: 0.5 * (x - y),
    "mul": lambda x, y: x * y.tanh(),
    "div": lambda x, y: x / (1.5 + y * y),
    "maximum": ad.maximum,
    "minimum": ad.minimum,
    "atan2": ad.atan2,
    "hypot": lambda x, y: ad.hypot(x, y + 0.1) * 0.5,
    "lerp": lambda x, y: ad.lerp(x, y, 0.3),
    "outer": lambda x, y: x + ad.outer(x.reshape(-1)[:8], y.reshape(-1)[:8]).sin().sum() * 0.01,
    "dot": lambda x, y: x + (x.reshape(-1) @ y.reshape(-1)) * 0.01,
    "rolled": lambda x, y: ad.roll(x, -1, 0) * y.tanh(),
}
PRODUCTS = {
    "product": lambda x, y: x @ y * 0.3,
    "transposed": lambda x, y: x.T @ y * 0.3,
    "right": lambda x, y: x @ y.T * 0.3,
    "vector": lambda x, y: x + (x @ y[0]) * 0.1,
    "batched": lambda x, y: ad.stack([x, y]).matmul(y)[0] * 0.3,
    "linear": lambda x, y: F.linear(x, y, y[0]) * 0.3,
    "solve": lambda x, y: ad.linalg.solve(x * 0.1 + 2 * ad.eye(len(x), dtype=x.dtype), y),
    "inverse": lambda x, y: ad.linalg.inv(x * 0.1 + y * 0.1 + 2 * ad.eye(len(x), dtype=x.dtype)),
    "slogdet": lambda x, y: x * 0.5 + ad.linalg.slogdet(x * 0.1 - ad.eye(len(x)).to(x))[1] * y,
}
TOLERANCE = {ad.float32: (2e-3, 2e-4), ad.float64: (1e-8, 1e-9)}


def check(function, shape, dtype, length, reverse, monkeypatch, made, both=True):
    """Values and gradients of a scan over a body, beside the eager loop, and in `both` ways beside
    each other.
    """
    ad.manual_seed(0)
    c, w = (ad.randn(shape, dtype=dtype).mul_(0.5).requires_grad_() for _ in range(2))
    rows = (ad.randn((length, *shape), dtype=dtype) * 0.5).requires_grad_()
    leaves = [c, w, rows]

    def turn(c, row):
        c = function(c * 0.9, w + row * 0.1)
        return c, (c * row).sum()

    def gradients(c, ys):
        total = (c.double() ** 2).sum() + ys.double().sum()
        return [c, ys, *ad.autograd.grad(total, leaves, allow_unused=True)]

    def scanned():
        return gradients(*ad.scan(turn, c, rows, reverse=reverse))

    made.clear()
    found = ad.compile(scanned)()
    ways = Counter(made)
    others = by_records(monkeypatch, scanned) if both else found
    wanted = gradients(*unrolled(turn, c, rows, reverse)) if length else [c]
    rtol, atol = TOLERANCE[dtype]
    for x, y in zip(found, others, strict=True):
        np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol, atol)
    for x, y in zip(found, wanted, strict=bool(length)):
        y = ad.zeros(x.shape) if y is None else y
        np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol, atol)
    return ways


CASES = [  # sizes and dtypes, and whether records are tried as well
    ((2, 17), ad.float64, False),
    *(swept((shape, kind, True)) for shape in ((3,), (4, 4), (2, 17)) for kind in TOLERANCE),
]


@pytest.mark.parametrize(("shape", "dtype", "both"), CASES, ids=str)
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_ops_as_bodies(name, shape, dtype, both, monkeypatch, made):
    function = BINARY.get(name) or (lambda x, y: UNARY[name](x) + y * 0.1)
    ways = check(function, shape, dtype, 3, shape == (4, 4), monkeypatch, made, both)
    assert list(ways) == ["one function"]


@pytest.mark.parametrize(
    ("size", "dtype", "both"),
    [(3, ad.float64, False), *(swept((n, kind, True)) for n in (1, 2, 5, 8) for kind in TOLERANCE)],
    ids=str,
)
@pytest.mark.parametrize("name", PRODUCTS)
def test_matrices_as_bodies(name, size, dtype, both, monkeypatch, made):
    ways = check(PRODUCTS[name], (size, size), dtype, 4, bool(size % 2), monkeypatch, made, both)
    assert list(ways) == ["one function"]


@pytest.mark.parametrize("length", [0, 1, 2, 15, 1000])
@pytest.mark.parametrize("reverse", [False, True])
def test_lengths(length, reverse, monkeypatch, made):
    ways = check(
        lambda x, y: x.sin() + y * 0.1, (3,), ad.float64, length, reverse, monkeypatch, made
    )
    assert list(ways) == ["one function"]


@pytest.mark.parametrize("shape", [(), (1,), (8,), (9,), (16,), (67,), (2, 3, 5), (300,)], ids=str)
@pytest.mark.parametrize("dtype", [ad.float64, ad.float32], ids=str)
def test_shapes(shape, dtype, monkeypatch, made):
    ways = check(lambda x, y: x.tanh() - y * x.mean(), shape, dtype, 3, False, monkeypatch, made)
    assert list(ways) == ["one function"]


@pytest.mark.parametrize("size", [20, 40])
def test_matrices_that_stay_in_memory(size, monkeypatch, made):
    ad.manual_seed(0)
    w, u = (ad.randn(size, size, dtype=ad.float64) / size**0.5 for _ in range(2))
    for function in (
        lambda x, y: ad.tanh(w @ x + u @ y),
        lambda x, y: ad.tanh(x @ w + y @ u.T),
        lambda x, y: F.linear(x, w, y).tanh(),
        lambda x, y: (ad.stack([x, y]) @ w).sum(0).tanh(),
        lambda x, y: (w[1:, ::2] @ x[::2]).sum() * y,
    ):
        ways = check(function, (size,), ad.float64, 3, False, monkeypatch, made)
        assert list(ways) == ["one function"]


def test_matrices_that_come_with_each_turn(monkeypatch, made):
    def turn(c, w):
        c = (w @ c + w.T @ c + c @ w).tanh()
        return c, c * 2

    def f(c, rows):
        return list(ad.scan(turn, c, rows))

    given = ad.randn(20, dtype=ad.float64), ad.randn(3, 20, 20, dtype=ad.float64)
    wanted = unrolled(turn, *given)
    for found in (ad.compile(f)(*given), by_records(monkeypatch, f, *given)):
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x.numpy(), y.numpy(), 1e-10)
    assert made["one function"] == 1


def test_carries_of_several_dtypes(monkeypatch, made):
    def turn(carry, row):
        a, b, n, go = carry
        after = (a + b.double() * row, b * 0.5 + n.float(), n + 1, ~go), (a.sum() * n, go)
        return after if row.ndim else None

    def f(rows):
        first = ad.ones(5, dtype=ad.float64), ad.ones(5), ad.tensor(3), ad.tensor(True)
        (a, b, n, go), (y, z) = ad.scan(turn, first, rows)
        return [a, b, n, go, y, z]

    rows = ad.randn(7, 5, dtype=ad.float64)
    found, others, eager = ad.compile(f)(rows), by_records(monkeypatch, f, rows), f(rows)
    assert made == {"one function": 1, "switched off": 1}
    for x, y, z in zip(found, others, eager, strict=True):
        assert x.dtype is y.dtype is z.dtype
        np.testing.assert_allclose(x.numpy(), y.numpy(), 1e-12)
        np.testing.assert_allclose(x.numpy(), z.numpy(), 1e-6)


@pytest.mark.parametrize("dtype", [ad.int64, ad.int32, ad.int8, ad.uint8], ids=str)
def test_whole_numbers_wrap_and_divide_alike(dtype, monkeypatch, made):
    def turn(c, row):
        return c * 3 + row // 2 - c % 5, (c ^ row, c > row)

    def f(c, rows):
        c, (y, z) = ad.scan(turn, c, rows)
        return [c, y, z]

    given = ad.tensor([1, 2, 0]).to(dtype), ad.tensor([[3, 0, 100], [7, 5, 0]]).to(dtype)
    found = ad.compile(f)(*given)
    for x, y, z in zip(found, by_records(monkeypatch, f, *given), f(*given), strict=True):
        assert x.tolist() == y.tolist() == z.tolist()
    assert made["one function"] == 1


@pytest.mark.parametrize("turns", [0, 1, 2, 15, 63, 64, 65, 1000])
def test_while_loops_and_their_gradients(turns, monkeypatch, made):
    def f(x, w, limit):
        def body(n, y):
            return n + 1, (w @ y).sin() * 0.9 + x

        n, y = ad.while_loop(lambda n, y: (n < limit) & (y.abs().max() < 100), body, (limit * 0, x))
        return [n, y, *ad.autograd.grad((y * y).sum(), [x, w])]

    ad.manual_seed(0)
    x, w = (ad.randn(s, dtype=ad.float64, requires_grad=True) for s in ((5,), (5, 5)))
    given = x, w, ad.tensor(turns)
    compiled = ad.compile(f)
    for _ in range(2):
        found = compiled(*given)
    assert made == {"one function": 2}
    for a, b in zip(found, by_records(monkeypatch, f, *given), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), 1e-9, 1e-12)
    y = x
    for _ in range(turns):
        y = (w @ y).sin() * 0.9 + x
    wanted = ad.autograd.grad((y * y).sum(), [x, w], allow_unused=True)
    for a, b in zip(found[2:], wanted, strict=True):
        b = ad.zeros_like(w) if b is None else b
        np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-9, 1e-12)


def test_adaptive_steps(monkeypatch, made):
    def f(y, end):
        def slope(y):
            return ad.stack([y[1], (1 - y[0] ** 2) * y[1] - y[0]])

        def body(t, h, y):
            half = y + h / 2 * slope(y)
            coarse, fine = y + h * slope(y), y + h * slope(half)
            error = (coarse - fine).abs().max() / 1e-3
            accept = error < 1
            t, y = ad.where(accept, t + h, t), ad.where(accept, fine, y)
            return t, h * (0.9 / error.sqrt()).clip(0.2, 2.0), y

        return list(ad.while_loop(lambda t, h, y: t < end, body, (end * 0, end * 0 + 0.01, y)))

    given = ad.tensor([2.0, 0.0], dtype=ad.float64), ad.tensor(3.0, dtype=ad.float64)
    found = ad.compile(f)(*given)
    for x, y, z in zip(found, by_records(monkeypatch, f, *given), f(*given), strict=True):
        np.testing.assert_allclose(x.numpy(), y.numpy(), 1e-9)
        np.testing.assert_allclose(x.numpy(), z.numpy(), 1e-9)
    assert made["one function"] == 1


def test_loops_within_go_through_records_and_are_one_function_themselves(made):
    def inner(c, row):
        return (c + row).sin(), c.sum()

    def turn(c, row):
        c, y = ad.scan(inner, c, ad.stack([row, c, row]))
        return c * 0.9, y

    given = ad.randn(3, dtype=ad.float64), ad.randn(4, 3, dtype=ad.float64)
    compiled = ad.compile(lambda c, rows: ad.scan(turn, c, rows))
    for x, y in zip(compiled(*given), ad.scan(turn, *given), strict=True):
        np.testing.assert_allclose(x.numpy(), y.numpy(), 1e-12)
    assert made["one function"] >= 1 and sum(made.values()) > made["one function"]
    said = str(compiled.explain(*given))
    assert "turns of scan go through records: scan: " in said


def test_explain_says_that_turns_are_one_function(monkeypatch):
    compiled = ad.compile(lambda c, rows: ad.scan(lambda c, row: (c + row, c * row), c, rows))
    given = ad.ones(3), ad.ones(4, 3)
    assert "turns of scan are one function" in str(compiled.explain(*given))
    drawing = ad.compile(lambda c, rows: ad.scan(lambda c, row: (c + ad.rand(3), c), c, rows))
    assert "turns of scan are one function" in str(drawing.explain(*given))
    drawing = ad.compile(lambda c, rows: ad.scan(lambda c, row: (ad.poisson(row), c), c, rows))
    assert "turns of scan go through records: random numbers" in str(drawing.explain(*given))


@pytest.mark.parametrize("function", ["solve", "inv", "slogdet"])
def test_what_is_singular_is_left_to_records(function, made):
    def turn(c, row):
        if function == "solve":
            y = ad.linalg.solve(row, c)
        else:
            y = ad.linalg.inv(row) if function == "inv" else row * ad.linalg.slogdet(row)[1]
        return c * 0.5 + y, y

    def f(c, rows):
        return ad.scan(turn, c, rows)

    rows = ad.eye(3, dtype=ad.float64).expand(5, 3, 3).clone()
    compiled, c = ad.compile(f), ad.randn(3, 3, dtype=ad.float64)
    wanted = compiled(c, rows)[0].tolist()
    wrong = rows.clone()
    wrong[3, 1] = wrong[3, 0]
    for _ in range(2):
        if function == "slogdet":
            assert not compiled(c, wrong)[0].isfinite().all()
        else:
            with pytest.raises(ad.linalg.LinAlgError) as caught:
                compiled(c, wrong)
            assert any("scan: in turn 3" in each for each in caught.value.__notes__)
        assert compiled(c, rows)[0].tolist() == wanted
    assert made == {"one function": 1}


def test_rows_that_swap_places():
    given = ad.tensor([[0.0, 2, 1], [1, 0, 3], [4, 1, 0]], dtype=ad.float64)
    rows = ad.stack([given, given.flip(0), -given.T, given[[1, 2, 0]]])

    def turn(c, row):
        sign, size = ad.linalg.slogdet(row)
        return c + ad.linalg.solve(row, c), (ad.linalg.inv(row), sign, size)

    c = ad.eye(3, dtype=ad.float64)
    c, found = ad.compile(lambda c, rows: ad.scan(turn, c, rows))(c, rows)
    for t, row in enumerate(rows):
        sign, size = np.linalg.slogdet(row.numpy())
        np.testing.assert_allclose(found[0][t].numpy(), np.linalg.inv(row.numpy()), 1e-12, 1e-14)
        assert found[1][t].item() == sign
        np.testing.assert_allclose(found[2][t].item(), size, 1e-12)


def test_bodies_that_are_not_known_go_through_records(monkeypatch, made):
    def sorting(c, row):
        return (c + row).sort()[0], c

    given = ad.randn(5, dtype=ad.float64), ad.randn(4, 5, dtype=ad.float64)
    found = ad.compile(lambda c, rows: ad.scan(sorting, c, rows))(*given)
    for x, y in zip(found, ad.scan(sorting, *given), strict=True):
        np.testing.assert_allclose(x.numpy(), y.numpy(), 1e-12)
    large = ad.randn(600, dtype=ad.float64), ad.randn(4, 600, dtype=ad.float64)
    ad.compile(lambda c, rows: ad.scan(lambda c, row: (c + row, c), c, rows))(*large)
    half = ad.ones(3, dtype=ad.float16), ad.ones(4, 3, dtype=ad.float16)
    ad.compile(lambda c, rows: ad.scan(lambda c, row: (c + row, c), c, rows))(*half)
    assert made["one function"] == 0 and len(made) == 3


def test_interrupts_end_loops_in_the_middle():
    def f(x):
        return ad.while_loop(lambda n, x: n >= 0, lambda n, x: (n * 1, x * 0.5), (ad.tensor(0), x))

    compiled, x = ad.compile(f), ad.ones(3)
    for _ in range(2):
        timer = threading.Timer(0.3, _thread.interrupt_main)
        began = time.monotonic()
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            compiled(x)
        assert time.monotonic() - began < 5
        timer.join()
    assert x.tolist() == [1, 1, 1]


def test_a_loop_that_is_left_and_called_again_goes_on_with_what_it_carries():
    turns = 6_000_000  # more than one stretch without Python

    def body(n, x, go, y):
        return n + 1, x * 0.5 + 1, ~go, y.roll(1, 0)

    def f(x, y):
        first = ad.tensor(0), x, ad.tensor([True, False, True]), y
        return list(ad.while_loop(lambda n, *rest: n < turns, body, first))

    given = ad.ones(3), ad.arange(11).double()
    n, x, go, y = ad.compile(f)(*given)
    assert n.item() == turns and x.tolist() == [2, 2, 2] and go.tolist() == [True, False, True]
    assert y.tolist() == given[1].roll(turns % 11, 0).tolist()


def test_a_first_call_captures_once_and_imports_little():
    """What is imported while a function is captured was taken for what it has: six captures."""
    program = """
import sys
import adjoint as ad
from adjoint.compiler import function

captures = []
capture = function._Variant.capture
function._Variant.capture = lambda *args, **kwargs: captures.append(1) or capture(*args, **kwargs)
f = ad.compile(lambda c, x: ad.scan(lambda c, x: (c.T * 0.5 + x, c), c, x))
f(ad.ones(3, 3), ad.ones(5, 3, 3))
print(len(captures), "numpy.ma" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "False"]


def test_a_function_that_is_called_often_is_no_part_of_the_loop(made, monkeypatch):
    """More than 16 calls of one elementary function are calls: LLVM takes long to inline them."""
    texts = []
    loaded = loop_code.loaded
    monkeypatch.setattr(loop_code, "loaded", lambda text: texts.append(text) or loaded(text))
    f = lambda c, x: ad.scan(lambda c, x: (c.abs() ** 1.5 + x, None), c, x)[0]  # noqa: E731
    for count, attribute in ((8, "alwaysinline"), (512, "noinline")):
        given = ad.rand(count), ad.rand(4)
        np.testing.assert_allclose(ad.compile(f)(*given).numpy(), f(*given).numpy(), 1e-5)
        lines = texts.pop().splitlines()
        (header,) = [x for x in lines if x.startswith("define internal") and "@pow." in x]
        assert attribute in header
