"""Loops in machine code: the bits of loops whose turns Python runs, in whatever they do."""

import _thread
import threading
import time
from collections import Counter
from unittest import mock

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.compiler.capture import control_flow_ops, fused_loop, machine_loop
from adjoint.compiler.capture.loop_products import summed
from adjoint.core.errors import Unsupported
from tests.native import needs_native

from ...sweep import swept
from .random_loops import RandomLoop

F = ad.nn.functional
pytestmark = needs_native


def by_python(monkeypatch, function, *given):
    """What a new program of the function gives, whose turns Python runs."""
    with monkeypatch.context() as patch:
        patch.setattr(machine_loop, "is_available", lambda: False)
        patch.setattr(fused_loop, "is_on", lambda: False)
        return ad.compile(function)(*given)


@pytest.fixture
def by_records(monkeypatch):
    """Loops that go through records, also where the body could be one function."""
    monkeypatch.setattr(fused_loop, "is_on", lambda: False)


def bits(results):
    return [(y.shape, str(y.dtype), y.detach().numpy().tobytes()) for y in results]


@pytest.mark.parametrize(
    ("first", "count"),
    [*((50 * k, 50) for k in range(4)), *(swept((250 * k, 250)) for k in range(1, 21))],
)
def test_random_loops_are_alike_all_ways(first, count, monkeypatch):
    """Those through records have the bits of loops in Python; where the body is one function they
    differ by rounding; and a second call computes of its own arguments.
    """
    loops = Counter()

    def note(body, make, before=fused_loop.fused):
        loop = before(body, make)
        loops["one function"] += loop is not None
        return loop

    monkeypatch.setattr("adjoint.compiler.capture.loop_lowering.fused", note)
    for seed in range(first, first + count):
        loop = RandomLoop(seed)
        given, others = loop.arguments(seed), loop.arguments(seed + 1)
        rtol = 2e-3 if loop.dtype is ad.float32 or loop.narrow else 1e-7
        as_usual = ad.compile(loop)
        found = as_usual(*given)
        with monkeypatch.context() as patch:
            patch.setattr(fused_loop, "is_on", lambda: False)
            records = ad.compile(loop)
            by_records = records(*given)
        assert bits(by_records) == bits(by_python(monkeypatch, loop, *given)), seed
        ways = zip(found, by_records, loop(*given), strict=False)
        again = zip(as_usual(*others), records(*others), loop(*others), strict=False)
        for x, y, z in [*ways, *again]:
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol, rtol, err_msg=str(seed))
            np.testing.assert_allclose(x.numpy(), z.numpy(), 2e-3, 2e-3, err_msg=str(seed))
    assert loops["one function"] > count // 4


def total(carry, row):
    return carry + row, carry * row


def test_an_op_that_only_numpy_computes_is_called_each_turn_and_named(by_records):
    def f(c, rows):
        return ad.scan(lambda c, row: (ad.linalg.inv(c + row) * 0.5, c.sum()), c, rows)

    given = ad.eye(3), ad.randn(20, 3, 3) * 0.1
    compiled = ad.compile(f)
    for x, y in zip(compiled(*given), f(*given), strict=True):
        np.testing.assert_allclose(x.numpy(), y.numpy(), 1e-4)
    explained = compiled.explain(*given)
    [row] = explained.host_calls
    assert (row.name, row.called) == ("scan", ("inverse",))
    assert "Python is called in each turn of scan, for inverse" in str(explained)


def test_loops_of_machine_code_call_no_python():
    def f(x, rows):
        def inner(c, row):
            return ad.cond(c.sum() > 0, lambda c: c * 0.5, lambda c: c + row, (c,)), c

        def turn(c, row):
            (c,) = ad.while_loop(lambda c: c.sum() < 20, lambda c: (c + 1,), (c,))
            return ad.scan(inner, c, ad.stack([row, c]))[0], row

        return ad.scan(turn, x, rows)

    given = ad.randn(3), ad.randn(10, 3)
    compiled = ad.compile(f)
    for x, y in zip(compiled(*given), f(*given), strict=True):
        np.testing.assert_allclose(x.numpy(), y.numpy(), 1e-6)
    assert not compiled.explain(*given).host_calls


@pytest.mark.parametrize("nested", [False, True])
def test_an_error_names_its_turn_and_leaves_all_as_it_was(nested):
    table = ad.randn(4, 3)
    state = ad.zeros(3)

    def turn(c, i):
        return c + F.embedding(i, table), c

    def f(c, rows):
        state.add_(1)
        if nested:
            c = ad.scan(lambda c, i: (ad.scan(turn, c, i)[0], i), c, rows.reshape(-1, 2))[0]
        else:
            c, _ = ad.scan(turn, c, rows)
        state.add_(c.sum() * 0)
        return c

    compiled, rows = ad.compile(f), ad.tensor([0, 1, 2, 3, 1, 2])
    wanted = compiled(ad.zeros(3), rows).tolist()
    state.zero_()
    wrong = rows.clone()
    wrong[5] = 7
    for _ in range(2):
        with pytest.raises(IndexError) as caught:
            compiled(ad.zeros(3), wrong)
        notes = caught.value.__notes__
        assert any("scan: in turn 1" if nested else "scan: in turn 5" in each for each in notes)
        assert state.tolist() == [0, 0, 0]
        assert compiled(ad.zeros(3), rows).tolist() == wanted
        state.zero_()


def test_interrupts_end_a_loop_that_never_ends():
    def f(x):
        return ad.while_loop(lambda n, x: n >= 0, lambda n, x: (n * 1, x * 0.5), (ad.tensor(0), x))

    compiled = ad.compile(f)
    x = ad.ones(3)
    for _ in range(2):
        timer = threading.Timer(0.3, _thread.interrupt_main)
        began = time.monotonic()
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            compiled(x)
        assert time.monotonic() - began < 5
        timer.join()
    assert x.tolist() == [1, 1, 1]


def test_other_threads_run_while_a_loop_does():
    def f(x):
        body = lambda n, x: (n + 1, x * 0.5 + 1)  # noqa: E731
        return ad.while_loop(lambda n, x: n < 30_000_000, body, (ad.tensor(0), x))[1]

    compiled, seen = ad.compile(f), []
    compiled(ad.ones(3))
    ended = threading.Event()

    def count():
        while not ended.is_set():
            seen.append(0)
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    while not seen:
        time.sleep(0)
    before = len(seen)
    compiled(ad.ones(3))
    during = len(seen) - before
    ended.set()
    thread.join()
    assert during > 0


def test_a_while_loop_keeps_as_many_turns_as_there_are():
    def f(x, limit):
        _, y = ad.while_loop(
            lambda n, y: n < limit, lambda n, y: (n + 1, y * 0.99 + x), (ad.tensor(0), x)
        )
        return y, *ad.autograd.grad(y.sum(), [x])

    compiled = ad.compile(f)
    for turns in (0, 1, 63, 64, 65, 1000, 3, 5000):
        x = ad.randn(3, dtype=ad.float64, requires_grad=True)
        y, g = compiled(x, ad.tensor(turns))
        expected = 0.99**turns + sum(0.99**k for k in range(turns))
        np.testing.assert_allclose(g.numpy(), np.full(3, expected), 1e-10)
        np.testing.assert_allclose(y.detach().numpy(), x.detach().numpy() * expected, 1e-10)
    assert len(compiled.programs) == 1


@pytest.mark.parametrize("kind", ["transposed", "expanded", "reversed", "unaligned", "strided"])
def test_rows_of_any_layout(kind):
    base = np.random.default_rng(0).normal(size=(6, 4))
    if kind == "unaligned":
        raw = np.zeros(6 * 4 * 8 + 1, np.uint8)
        rows = raw[1:].view(np.float64).reshape(6, 4)
        rows[...] = base
    else:
        rows = {
            "transposed": np.asfortranarray(base),
            "expanded": np.broadcast_to(base[:1], (6, 4)),
            "reversed": base[::-1],
            "strided": np.repeat(base, 2, axis=1)[:, ::2],
        }[kind]
    rows = ad.from_numpy(rows.copy() if kind in ("expanded", "reversed") else rows)
    if kind == "expanded":
        rows = rows[:1].expand(6, 4)
    start = ad.ones(4, dtype=ad.float64)
    for compiled in (ad.compile(lambda c, x: ad.scan(total, c, x)),):
        for x, y in zip(compiled(start, rows), ad.scan(total, start, rows), strict=True):
            np.testing.assert_allclose(x.numpy(), y.numpy(), 1e-12)


@pytest.mark.parametrize("size", [1, 3, 20_000, 200_000])
@pytest.mark.parametrize("threads", [1, 2])
def test_large_values_and_threads(size, threads, monkeypatch, by_records):
    before = ad.get_num_threads()
    ad.set_num_threads(threads)
    try:

        def f(c, rows):
            def turn(carry, row):
                a, b = carry
                return (b, (a + row).tanh() * b), a.sum()

            return ad.scan(turn, (c, c * 2), rows, reverse=True)

        given = ad.randn(size), ad.randn(5, size)
        (a, b), y = ad.compile(f)(*given)
        (p, q), z = by_python(monkeypatch, f, *given)
        assert bits([a, b, y]) == bits([p, q, z])
    finally:
        ad.set_num_threads(before)


@pytest.mark.parametrize("length", [0, 1, 2, 9])
@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_of_matrices_are_products_behind_the_loop(length, reverse, monkeypatch):
    ad.manual_seed(0)
    w, u = (ad.randn(24, 24, dtype=ad.float64, requires_grad=True) for _ in range(2))
    layer = nn.Linear(24, 24, dtype=ad.float64)
    unused = ad.randn(24, 24, dtype=ad.float64, requires_grad=True)
    parameters = [w, u, unused, *layer.parameters()]

    def turn(h, x):
        h = (w @ h + x @ u + layer(h.reshape(1, 24)).reshape(24)).tanh() + x @ u.T * 0.1
        return h + 0 * (unused.detach() @ h), (w.T @ x).sum()

    def f(h, xs):
        h, ys = ad.scan(turn, h, xs, reverse=reverse)
        return ad.autograd.grad((h * h).sum() + ys.sum(), parameters, allow_unused=True)

    made = mock.Mock(wraps=summed)
    monkeypatch.setitem(vars(control_flow_ops), "summed", made)  # unseen by the capture
    given = ad.randn(24, dtype=ad.float64), ad.randn(length, 24, dtype=ad.float64)
    found = ad.compile(f)(*given)
    assert [tuple(call.args[1]) for call in made.call_args_list] == [(24, 24)] * 3
    wanted = f(*given) if length else [None] * 5
    for x, y in zip(found, wanted, strict=True):
        if y is None:
            assert x is None or not x.any()
        else:
            np.testing.assert_allclose(x.numpy(), y.numpy(), 1e-9, 1e-12)


@pytest.mark.parametrize("how", ["bound", "by an observer"])
@pytest.mark.parametrize("fused", [False, True])
def test_after_an_interrupt_a_loop_begins_anew(how, fused, monkeypatch):
    monkeypatch.setattr(fused_loop, "is_on", lambda: fused)
    length, turns = (4_000_000, 40_000_000) if fused else (400_000, 400_000)
    state = ad.zeros(())

    def f(c, xs):
        c, _ = ad.scan(lambda c, x: (c * 0.999 + x, x.sum()), c, xs)
        body = lambda n, c: (n + 1, c * 0.5 + 1)  # noqa: E731
        return ad.while_loop(lambda n, c: n < turns, body, (0 * n, c))[1]

    n = ad.tensor(0)
    rows = ad.ones(length, 1)

    def step(c):
        state.add_(1)
        y = f(c, rows)
        state.mul_(2)
        return y

    compiled = ad.compile(step)
    wanted = compiled(ad.ones(3)).tolist()
    state.zero_()
    run = compiled.explain if how == "by an observer" else compiled
    hits = 0
    for k in range(12):
        timer = threading.Timer(0.001 + 0.002 * k, _thread.interrupt_main)
        try:
            timer.start()
            run(ad.ones(3))
            timer.join()
            time.sleep(0.01)
        except KeyboardInterrupt:
            assert state.item() in (0, 2)  # not at all, or whole: a run may end before it is asked
            hits += state.item() == 0
        timer.join()
        state.zero_()
        assert compiled(ad.ones(3)).tolist() == wanted
        state.zero_()
    assert hits


def test_a_loop_that_is_run_while_it_runs_says_so(by_records):
    depth = []

    def f(c, xs):
        return ad.scan(lambda c, x: (ad.linalg.inv(c) + x, x), c, xs)[0]

    compiled = ad.compile(f)
    given = ad.eye(2), ad.ones(5, 2, 2)
    wanted = compiled(*given).tolist()
    inverse = np.linalg.inv

    def once(a, *rest):
        if not depth:
            depth.append(1)
            compiled(*given)
        return inverse(a, *rest)

    np.linalg.inv = once
    try:
        with pytest.raises(Unsupported, match="while it runs"):
            compiled(*given)
    finally:
        np.linalg.inv = inverse
    assert depth and compiled(*given).tolist() == wanted


FLOATS = [ad.bfloat16, ad.float16, ad.complex64, ad.complex128]


@pytest.mark.parametrize("dtype", [*FLOATS, ad.int8, ad.int64, ad.bool], ids=str)
def test_values_of_any_dtype(dtype, monkeypatch):
    ad.manual_seed(0)
    c, xs, x = (ad.randn(*shape).to(dtype) for shape in ((5,), (4, 5), (5,)))
    wants = dtype in FLOATS
    c = c.requires_grad_() if wants else c
    times = (lambda a, b: a ^ b) if dtype is ad.bool else (lambda a, b: a * b)

    def f(c, xs):
        turn = lambda ab, x: ((ab[1], times(ab[0], x)), ab[0])  # noqa: E731
        (a, b), y = ad.scan(turn, (c, c), xs, reverse=True)
        body = lambda n, z: (n + 1, times(z, x))  # noqa: E731
        n, z = ad.while_loop(lambda n, z: n < 5, body, (ad.tensor(0), c))
        total = z.abs().sum() + y.abs().sum() if wants else None
        return [a, b, y, n, z, *(ad.autograd.grad(total, [c]) if wants else ())]

    found, wanted = ad.compile(f)(c, xs), by_python(monkeypatch, f, c, xs)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype is b.dtype
        np.testing.assert_array_equal(*(y.detach().to(ad.complex128).numpy() for y in (a, b)))


@pytest.mark.parametrize("dtype", [*FLOATS, ad.float32, ad.int8, ad.int64], ids=str)
def test_conditions_of_any_dtype(dtype):
    def f(c, go):
        _, c = ad.while_loop(
            lambda n, c: (n < 4).to(dtype), lambda n, c: (n + 1, c * 2), (go * 0, c)
        )
        return ad.cond(go.to(dtype), lambda c: c * 2, lambda c: c + 1, (c,))

    compiled = ad.compile(f)
    for go, wanted in ((0.0, 17.0), (-0.0, 17.0), (1.0, 32.0)):
        assert compiled(ad.ones(2), ad.tensor(go)).tolist() == [wanted, wanted]


@pytest.mark.parametrize("length", [0, 1, 5])
@pytest.mark.parametrize("compiles", [False, True])
def test_products_of_few_rows_behind_the_loop(length, compiles):
    ad.manual_seed(0)
    w, u = (ad.randn(24, 24, dtype=ad.float64, requires_grad=True) for _ in range(2))

    def turn(h, x):
        h = (w @ h * 0.1 + (h.T @ u).T * 0.1).tanh() + x.reshape(24, 1)
        return h, h.sum()

    def f(h, xs):
        h, ys = ad.scan(turn, h, xs)
        return ad.autograd.grad((h * h).sum() + ys.sum(), [w, u])

    given = ad.randn(24, 3, dtype=ad.float64), ad.randn(length, 24, dtype=ad.float64)
    found = ad.compile(f)(*given) if compiles or not length else f(*given)
    h = given[0]
    ys = []
    for x in given[1]:
        h, y = turn(h, x)
        ys.append(y)
    if length:
        wanted = ad.autograd.grad((h * h).sum() + sum(ys), [w, u])
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x.numpy(), y.numpy(), 1e-9, 1e-12)
    else:
        assert not any(x.any() for x in found)
        assert not any(x.any() for x in f(*given))


def both_by_sum(c, r):
    return c + r.sum(), c * r.sum()


def sizes_in_branch(x):
    return ad.cond(
        x.sum() > 0,
        lambda a: ad.scan(both_by_sum, a.sum(), a.reshape(1, -1))[1].sum() + a,
        lambda a: ad.scan(both_by_sum, a.sum() * 0, a)[1].sum() + a * 0.5,
        (x,),
    )


def sizes_in_loop(x):
    outer = lambda c, r: (ad.scan(both_by_sum, c, r.reshape(-1, 1))[0], c * 2)  # noqa: E731
    return ad.scan(outer, x.sum() * 0, x)[1]


def sizes_in_while(x):
    body = lambda n, x: (n + 1, ad.scan(both_by_sum, x.sum() * 0, x)[1].sum() * 0.1 + x)  # noqa: E731
    return ad.while_loop(lambda n, x: n < 3, body, (ad.tensor(0), x))[1]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", [sizes_in_branch, sizes_in_loop, sizes_in_while])
def test_loops_within_are_of_other_sizes_too(function, dynamic):
    compiled = ad.compile(function, dynamic=dynamic)
    for rows, columns in ((5, 3), (3, 3), (7, 3), (7, 4), (2, 6), (1, 1)):
        x = (ad.rand(rows, columns, dtype=ad.float64) - 0.3).requires_grad_()
        twin = x.detach().clone().requires_grad_()
        results = compiled(x), function(twin)
        for y in results:
            y.sum().backward()
        np.testing.assert_allclose(results[0].tolist(), results[1].tolist(), 1e-9)
        np.testing.assert_allclose(x.grad.tolist(), twin.grad.tolist(), 1e-9)
