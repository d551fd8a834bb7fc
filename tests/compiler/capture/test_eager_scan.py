"""`ad.scan` outside of compiled functions: its function is captured and kept, and gives what Python
gives that runs the turns.
"""

import asyncio
import functools
import threading
import time

import numpy as np
import pytest

import adjoint as ad
from adjoint.compiler.capture import eager_scan
from adjoint.core import policy
from adjoint.core.errors import AutogradError, InvalidArgument, ShapeError
from tests.native import needs_native

from ...sweep import swept

pytestmark = needs_native


@pytest.fixture(autouse=True)
def anew():
    eager_scan.forget()


def counts():
    """Captures, and calls that used one, of all functions."""
    known = list(eager_scan.known_codes())
    return sum(x.captures for x in known), sum(x.hits for x in known)


def drawn(*shape, grad=True):
    return ad.randn(*shape, dtype=ad.float64, requires_grad=grad)


def to_second_order(function, *arguments):
    """Results, gradients, and gradients of their squares."""
    ys = function(*arguments)
    total = sum((y * y).sum() for y in ys if y.dtype.is_floating_point)
    if not total.requires_grad:
        return ys
    wanted = [x for x in arguments if x.requires_grad]
    first = ad.autograd.grad(total, wanted, create_graph=True, allow_unused=True)
    first = [g for g in first if g is not None]
    squares = sum((g * g).sum() for g in first)
    second = []
    if squares.requires_grad:
        second = ad.autograd.grad(squares, wanted, allow_unused=True)
    return [*ys, *first, *(g for g in second if g is not None)]


def assert_alike(found, wanted):
    assert len(found) == len(wanted)
    for x, y in zip(found, wanted, strict=True):
        assert x.dtype == y.dtype and x.requires_grad == y.requires_grad
        np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), 1e-8, 1e-8, strict=True)


def beside_python(function, *arguments, calls=3):
    """Check some calls of a function with a scan in it beside Python."""
    with eager_scan.from_python():
        wanted = to_second_order(function, *arguments)
    before = counts()
    for _ in range(calls):
        found = to_second_order(function, *arguments)
        assert_alike(found, wanted)
    return [now - then for now, then in zip(counts(), before, strict=True)]


BODIES = {
    "sum": lambda c, x, w: (c + x.sum(), c),
    "matrix": lambda c, x, w: ((w @ x).tanh() * 0.3 + c * 0.5, c * x.sum()),
    "two results": lambda c, x, w: (c * 0.9 + x, (c.exp(), {"y": w.sum() * c})),
    "no result": lambda c, x, w: (c * 0.9 + (w * x).sum(1), None),
    "carry untouched": lambda c, x, w: (c, x * c),
    "carry replaced": lambda c, x, w: (x, c),
    "detached": lambda c, x, w: (c.detach() * 0.5 + x, c),
    "no_grad within": lambda c, x, w: (c + ad.no_grad()(lambda: x * w.sum())(), c),
    "inner scan": lambda c, x, w: (ad.scan(lambda a, b: (a * 0.5 + b, a), c, w)[0], x),
    "cond": lambda c, x, w: (ad.cond(c.sum() > 0, lambda c: c * 0.5 + x, lambda c: c - x, (c,)), c),
    "integers": lambda c, x, w: (c * 0.5 + x, (c > x).sum()),
    "sorted": lambda c, x, w: (x.sort()[0] * 0.5 + c, c.argmax()),
    "solve": lambda c, x, w: (ad.linalg.solve(w @ w.T + 3.0 * ad.eye(3).double(), c + x), c),
}


@pytest.mark.parametrize("length", [1, 63, 64, *map(swept, (2, 1000))])
@pytest.mark.parametrize("name", BODIES)
def test_bodies_give_what_python_gives(name, length):
    body = BODIES[name]
    if name == "inner scan" and length > 100:
        length = 100  # Python takes long
    ad.manual_seed(length)

    def f(c, xs, w):
        last, ys = ad.scan(lambda c, x: body(c, x, w), c, xs)
        return [last, *_leaves(ys)]

    captures, hits = beside_python(f, drawn(3), drawn(length, 3), drawn(3, 3))
    assert (captures > 0 and hits > 0) == (length >= policy.SCAN_FEW)


def _leaves(ys):
    if ys is None:
        return []
    if isinstance(ys, dict):
        ys = list(ys.values())
    return [z for y in ys for z in _leaves(y)] if isinstance(ys, (list, tuple)) else [ys]


def test_no_turns():
    last, ys = ad.scan(lambda c, x: (c + x, c * x), ad.ones(3), ad.ones(0, 3))
    assert last.tolist() == [1, 1, 1] and ys.shape == (0, 3)


def test_lambdas_of_each_call_are_captured_once():
    def f(c, xs, w, factor):
        return [*ad.scan(lambda c, x: (c * factor + w * x, c), c, xs)]

    for n in range(6):
        length = 64 + n
        given = drawn(3), drawn(length, 3), drawn(3)
        with eager_scan.from_python():
            wanted = f(*given, 0.5)
        assert_alike(f(*given, 0.5), wanted)
    assert counts() == (1, 5)
    f(drawn(3), drawn(64, 3), drawn(3), 0.25)
    assert counts() == (2, 5)


def test_the_first_call_of_few_turns_is_pythons():
    def f(n):
        return ad.scan(lambda c, x: (c + x, c), ad.zeros(()), ad.ones(n))

    f(63)
    assert counts() == (0, 0)
    assert f(63)[0].item() == 63
    assert counts() == (1, 0)
    assert f(5)[0].item() == 5
    assert counts() == (1, 1)


def test_numbers_that_change_with_each_call_are_left_to_python():
    for k in range(30):
        y, _ = ad.scan(lambda c, x: (c + x * k, None), ad.zeros(()), ad.ones(64))  # noqa: B023
        assert y.item() == 64 * k
    assert counts()[0] == policy.SCAN_CAPTURES


def test_tensors_of_closures_are_inputs():
    def f(c, xs, w):
        scale = w * 2
        pair = [scale, {"w": w}]
        return [*ad.scan(lambda c, x: (c * 0.5 + pair[0] * x, pair[1]["w"] * c), c, xs)]

    for _ in range(3):
        beside_python(f, drawn(3), drawn(70, 3), drawn(3))
    assert counts()[0] == 1


STATE = {"scale": 2.0, "w": None}


def test_what_is_read_elsewhere_is_guarded():
    def f(xs):
        return ad.scan(lambda c, x: (c + x * STATE["scale"], None), ad.zeros(()), xs)[0].item()

    assert [f(ad.ones(64)) for _ in range(3)] == [128] * 3
    STATE["scale"] = 3.0
    try:
        assert [f(ad.ones(64)) for _ in range(3)] == [192] * 3
    finally:
        STATE["scale"] = 2.0
    assert f(ad.ones(64)) == 128


def test_a_module_is_read_by_each_call():
    ad.manual_seed(0)
    cell = ad.nn.Linear(3, 3).double()

    def f(c, xs):
        return [*ad.scan(lambda c, x: (cell(c + x).tanh(), c), c, xs)]

    for _ in range(3):
        beside_python(f, drawn(3), drawn(64, 3))
        with ad.no_grad():
            cell.weight.mul_(0.5)
    assert counts()[0] == 1
    cell.weight = ad.nn.Parameter(drawn(3, 3).detach())
    beside_python(f, drawn(3), drawn(64, 3))
    (g,) = ad.autograd.grad(f(drawn(3), drawn(64, 3))[0].sum(), cell.weight)
    assert g.abs().sum().item() > 0


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr("adjoint.core.policy.SCAN_BODIES", 3)
    functions = [eval(f"lambda c, x: (c * {k}.0 + x, None)") for k in range(6)]
    for function in functions:
        ad.scan(function, ad.zeros(3), ad.ones(64, 3))
    assert [x.code for x in eager_scan.known_codes()] == [f.__code__ for f in functions[3:]]
    monkeypatch.setattr("adjoint.core.policy.SCAN_BYTES", 8 * 100)
    STATE["w"] = drawn(101)
    read = lambda c, x: (c + STATE["w"].sum() * x, None)  # noqa: E731
    ad.scan(read, drawn(3), drawn(64, 3))
    ad.scan(functions[0], ad.zeros(3), ad.ones(64, 3))
    assert [x.code for x in eager_scan.known_codes()] == [functions[0].__code__]


def test_parameters_are_carried():
    start = ad.nn.Parameter(drawn(3).detach())
    for _ in range(3):
        last, _ = ad.scan(lambda c, x: (c * 0.5 + x, c), start, ad.ones(64, 3).double())
        (g,) = ad.autograd.grad(last.sum(), start)
        np.testing.assert_allclose(g.numpy(), 0.5**64)
    assert counts() == (1, 2)


class Step:
    def __init__(self, w):
        self.w = w

    def turn(self, c, x, factor=0.5):
        return c * factor + self.w * x, c

    def __call__(self, c, x):
        return self.turn(c, x)


def test_methods_partials_and_objects():
    step = Step(drawn(3))
    for function in (step, step.turn, functools.partial(step.turn, factor=0.25)):

        def f(c, xs, function=function):
            return [*ad.scan(function, c, xs)]

        beside_python(f, drawn(3), drawn(64, 3))
    before = counts()[0]
    step.w = drawn(3)
    beside_python(lambda c, xs: [*ad.scan(step.turn, c, xs)], drawn(3), drawn(64, 3))
    assert counts()[0] == before + 1


# ---- what Python runs ----------------------------------------------------------------------------


def refused():
    return [why for known in eager_scan.known_codes() for why in known.refused.values()]


def test_a_body_that_reads_a_value_runs_in_python():
    def f(c, xs):
        return [*ad.scan(lambda c, x: (c + x if c.sum().item() > 0 else c - x, c), c, xs)]

    beside_python(f, drawn(3), drawn(70, 3))
    assert "reads a value" in refused()[0] and counts() == (1, 0)


def test_effects_happen_in_each_turn(capsys):
    seen, total = [], 0

    def turn(c, x):
        nonlocal total
        total += 1
        seen.append(x)
        print("turn")
        return c + x, c

    for n in range(1, 4):
        ad.scan(turn, ad.zeros(()), ad.ones(64))
        assert total == len(seen) == 64 * n
    assert capsys.readouterr().out.count("turn") == 3 * 64
    assert all("print()" in why for why in refused())


def test_each_kind_of_effect_alone():
    seen, box, total = [], {"n": 0}, ad.zeros(())
    w = ad.ones(3, requires_grad=True)

    class Holder:
        n = 0

    holder = Holder()

    def appends(c, x):
        seen.append(1)
        return c + x, c

    def sets_item(c, x):
        box["n"] += 1
        return c + x, c

    def sets_attribute(c, x):
        holder.n += 1
        return c + x, c

    def writes(c, x):
        total.add_(1)
        return c + x, c

    def hooks(c, x):
        y = w * x
        y.register_hook(lambda g: seen.append(g))
        return c + y.sum(), c

    for function in (appends, sets_item, sets_attribute, writes, hooks):
        for _ in range(2):
            last, _ = ad.scan(function, ad.zeros(()), ad.ones(64))
            if last.requires_grad:
                last.backward()
    assert len(seen) == 2 * 64 * 2
    assert (box["n"], holder.n, total.item()) == (128, 128, 128)
    assert counts()[1] == 0


def test_draws_are_those_of_python():
    def f():
        ad.manual_seed(3)
        return ad.scan(lambda c, x: (c + x * ad.rand(()), ad.randn(2)), ad.zeros(()), ad.ones(64))

    with eager_scan.from_python():
        wanted = f()
    for _ in range(3):
        assert all(map(ad.equal, f(), wanted))


class Doubled(ad.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        Doubled.calls += 1
        return g * 2


def test_custom_functions_are_called_in_each_turn():
    x = drawn(3)
    for n in range(1, 3):
        last, _ = ad.scan(lambda c, x: (Doubled.apply(c) * 0.4 + x, None), x, drawn(64, 3))
        last.sum().backward()
        assert Doubled.calls == 64 * n


def test_errors_are_those_of_python():
    def f(c, xs):
        return ad.scan(lambda c, x: (c + x[:2], c), c, xs)

    for _ in range(3):
        with pytest.raises(ShapeError):
            f(ad.ones(3), ad.ones(64, 3))

    def wrong(c, x):
        raise KeyError("of the user's")

    for _ in range(3):
        with pytest.raises(KeyError, match="of the user's"):
            ad.scan(wrong, ad.ones(3), ad.ones(64, 3))
        with pytest.raises(ShapeError):
            ad.scan(lambda c, x: (c.sum(), c), ad.ones(3), ad.ones(64, 3))


def test_an_error_in_the_middle_leaves_all_as_before():
    def f(xs):
        return ad.scan(lambda c, x: (ad.linalg.inv(x) + c, c), ad.zeros(2, 2).double(), xs)

    good = ad.eye(2).double().expand(100, 2, 2).clone()
    for _ in range(3):
        assert f(good)[0].sum().item() == 200
        wrong = good.clone()
        wrong[50] = 0
        with pytest.raises(ad.linalg.LinAlgError):
            f(wrong)
    assert counts()[1] > 0


# ---- modes, transforms, writes -------------------------------------------------------------------


def body(c, x):
    return (c * 0.5 + x).tanh(), c * x


def test_modes():
    given = drawn(3), drawn(64, 3)
    for mode in (ad.no_grad, ad.inference_mode, ad.enable_grad):
        for _ in range(3):
            with mode():
                found = ad.scan(body, *given)
            with eager_scan.from_python(), mode():
                wanted = ad.scan(body, *given)
            assert_alike(found, wanted)
            assert found[0].is_inference() == wanted[0].is_inference()
    w = ad.randn(4, 4, requires_grad=True)
    for _ in range(3):
        with ad.autocast("cpu", dtype=ad.bfloat16):
            found = ad.scan(lambda c, x: ((w @ x).float(), w @ x), ad.zeros(4), ad.ones(64, 4))
            with eager_scan.from_python():
                wanted = ad.scan(lambda c, x: ((w @ x).float(), w @ x), ad.zeros(4), ad.ones(64, 4))
        assert [y.dtype for y in found] == [y.dtype for y in wanted] == [ad.float32, ad.bfloat16]
        assert all(map(ad.equal, found, wanted))


def test_transforms_and_graphs():
    xs = drawn(64, 3, grad=False)

    def f(c):
        return ad.scan(body, c, xs)[0].sum()

    given = drawn(3, grad=False)
    batch = drawn(5, 3, grad=False)
    f(given), f(given)  # it is kept
    tangent = ad.ones(3).double()
    for function in (
        lambda: ad.func.grad(f)(given),
        lambda: ad.func.vmap(f)(batch),
        lambda: ad.func.jvp(f, (given,), (tangent,))[1],
        lambda: ad.func.hessian(f)(given),
        lambda: ad.func.vmap(ad.func.grad(f))(batch),
        lambda: ad.compile(f)(given),
    ):
        with eager_scan.from_python():
            wanted = function()
        assert_alike([function()], [wanted])
    with ad.Graph():
        c = given.clone()
        y = f(c)
        c.mul_(2.0)
    assert_alike([y.snapshot()], [f(given * 2.0)])
    with ad.lazy():
        y = f(given)
    assert_alike([y], [f(given)])


def test_results_may_be_written_before_the_gradient():
    def f(c, xs, w):
        last, ys = ad.scan(lambda c, x: ((c * w + x).exp() * 0.1, (c * w).tanh()), c, xs)
        ys.mul_(2.0)
        last.add_(1.0)
        return [last, ys]

    beside_python(f, drawn(3), drawn(64, 3), drawn(3))


def test_arguments_may_be_written_before_a_gradient_that_does_not_read_them():
    def f(c, xs, w):
        held = xs * 1.0
        last, _ = ad.scan(lambda c, x: (c * w + x, None), c, held)
        held.mul_(2.0)
        return [last]

    beside_python(f, drawn(3), drawn(64, 3), drawn(3))

    def g(c, xs, w):
        held = w * 1.0
        last, _ = ad.scan(lambda c, x: (c * held + x, None), c, xs)
        held.mul_(2.0)
        return [last]

    for _ in range(3):
        with pytest.raises(AutogradError, match="modified"):
            to_second_order(g, drawn(3), drawn(64, 3), drawn(3))


def test_loops_that_count():
    def f(c, w):
        return [ad.fori_loop(0, 70, lambda i, c: c * w + i, c)]

    def g(c, w):
        return [ad.fori_loop(0, 70, lambda i, c: c * w - i, c)]

    for function in (f, g):
        beside_python(function, drawn(3), drawn(3))
    assert [(x.captures, x.code.co_name) for x in eager_scan.known_codes()] == [(1, "<lambda>")] * 2


def test_threads():
    ad.manual_seed(1)
    w = drawn(3, 3)
    given = [(drawn(3), drawn(64 + n, 3)) for n in range(4)]

    def f(c, xs):
        last, ys = ad.scan(lambda c, x: ((w @ c + x).tanh(), c), c, xs)
        return [last, ys, *ad.autograd.grad(last.sum() + ys.sum(), [c, xs, w])]

    with eager_scan.from_python():
        wanted = [f(*each) for each in given]
    failed = []

    def work(n):
        try:
            for _ in range(10):
                assert_alike(f(*given[n]), wanted[n])
        except BaseException as error:
            failed.append(error)

    for _ in range(2):
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        [each.start() for each in threads]
        [each.join() for each in threads]
        assert not failed
        f(*given[0])
    assert counts()[1] > 0


def test_it_can_be_switched_off():
    with eager_scan.from_python():
        for _ in range(3):
            ad.scan(body, ad.ones(3), ad.ones(100, 3))
    assert counts() == (0, 0)
    with pytest.raises(InvalidArgument):
        ad.scan(body, ad.ones(3), ad.ones(100, 3), unroll=0)


@pytest.mark.parametrize("kind", ["timer", "events", "sleeps in C"])
def test_a_thread_that_may_call_users_code_meanwhile_puts_a_capture_off(kind, request):
    """Tensors of modules hold symbols while a body is captured: who wakes then must not see it."""
    layer = ad.nn.Linear(3, 3)

    def body(c, x):
        return layer(c) + x, c.sum()

    done = threading.Event()
    if kind == "timer":
        other = threading.Timer(1000, done.set)
        stop = other.cancel
    elif kind == "events":
        loop = asyncio.new_event_loop()
        other = threading.Thread(target=loop.run_forever)
        request.addfinalizer(loop.close)

        def stop():
            loop.call_soon_threadsafe(loop.stop)
    else:
        other = threading.Thread(target=done.wait)
        stop = done.set
    before = counts()[0]
    other.start()
    try:
        while kind == "events" and not loop.is_running():
            time.sleep(0.001)
        for _ in range(2):
            scanned = ad.scan(body, ad.ones(3), ad.ones(100, 3))
            assert scanned[1].shape == (100,)
        assert counts()[0] == before + (kind == "sleeps in C")
    finally:
        stop()
        other.join()
    ad.scan(body, ad.ones(3), ad.ones(100, 3))
    assert counts()[0] == before + 1
