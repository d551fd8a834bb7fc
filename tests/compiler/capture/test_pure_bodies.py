"""Branches, bodies of loops, and compiled functions that are one node: what they read besides
tensors is guarded, what they change besides is refused.
"""

import collections
import inspect
import itertools
import re
import types
from pathlib import Path

import pytest

import adjoint as ad
from adjoint.compiler.capture.capturing import Capturing
from adjoint.core.errors import AdjointError
from tests.native import needs_native

pytestmark = needs_native
PACKAGE = Path(ad.__file__).parent


def scan(body, x):
    return ad.scan(lambda carry, row: (body(carry) * row, carry), x, ad.ones(3, 2))[0]


def cond(body, x):
    return ad.cond(x.sum() > 0, body, lambda v: v * 1.0, (x,))


def while_loop(body, x):
    turns = (ad.tensor(0), x)
    return ad.while_loop(lambda n, _: n < 2, lambda n, v: (n + 1, body(v)), turns)[1]


def node(body, x):
    """A compiled function within a lazy recording."""
    with ad.lazy():
        return COMPILED[body](x) * 1.0


def once(body, x):
    return body(x)


WAYS = [scan, cond, while_loop, node, once]
COMPILED = {}


class State:
    """What bodies read and change; made anew for each test."""


@pytest.fixture
def state(monkeypatch):
    made = State()
    made.weight, made.view = ad.ones(2), ad.ones(4)[2:]
    made.parameter = ad.nn.Parameter(ad.ones(2))
    made.optimizer = ad.optim.SGD([made.parameter], lr=0.1)
    made.schedule = ad.optim.lr_scheduler.StepLR(made.optimizer, 1)
    made.generator = ad.Generator()
    made.layer = ad.nn.BatchNorm1d(2)
    made.count, made.list = 0, []
    precision, dtype = ad.get_float32_matmul_precision(), ad.get_default_dtype()
    seed = ad.random.get_rng_state()
    yield made
    ad.set_float32_matmul_precision(precision)
    ad.set_default_dtype(dtype)
    ad.use_deterministic_algorithms(False)
    ad.random.set_rng_state(seed)


def called(way, body, compiled=True):
    """A function of a tensor that runs the body in this way."""
    if not compiled:
        return lambda x: {scan: thrice, while_loop: twice}.get(way, once)(body, x)
    if way is node:
        COMPILED[body] = ad.compile(body)
        return lambda x: node(body, x)
    return ad.compile(lambda x: way(body, x))


def twice(body, x):
    return body(body(x))


def thrice(body, x):
    return body(body(body(x)))


READS = {
    "precision": (
        lambda state, x: x * len(ad.get_float32_matmul_precision()),
        lambda state: ad.set_float32_matmul_precision("high"),
    ),
    "determinism": (
        lambda state, x: x * (2.0 + ad.are_deterministic_algorithms_enabled()),
        lambda state: ad.use_deterministic_algorithms(True),
    ),
    "seed": (
        lambda state, x: x * (1.0 + ad.initial_seed() % 7),
        lambda state: ad.manual_seed(ad.initial_seed() + 1),
    ),
    "gradient of no leaf": (
        lambda state, x: x * (1.0 + (state.weight.grad is None)),
        lambda state: setattr(state.weight, "grad", ad.ones(2)),
    ),
    "gradient of a view": (
        lambda state, x: x * (1.0 + (state.view.grad is None)),
        lambda state: setattr(state.view, "grad", ad.ones(2)),
    ),
    "gradient": (
        lambda state, x: x * (1.0 + (state.parameter.grad is None)),
        lambda state: setattr(state.parameter, "grad", ad.ones(2)),
    ),
    "version": (
        lambda state, x: x * (1.0 + state.weight._version),
        lambda state: state.weight.add_(1),
    ),
    "memory": (
        lambda state, x: x * (1.0 + state.weight.data_ptr() % 64),
        lambda state: setattr(state.weight, "data", ad.ones(3)[1:]),
    ),
    "attribute": (
        lambda state, x: x * (1.0 + state.count),
        lambda state: setattr(state, "count", 4),
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", READS)
def test_what_is_read_is_followed_or_refused(state, way, name):
    read, change = READS[name]
    given = ad.tensor([1.0, 2.0])

    def body(x):
        return read(state, x)

    function, eager = called(way, body), called(way, body, compiled=False)
    for _ in range(2):
        try:
            assert function(given).tolist() == eager(given).tolist()
        except AdjointError as error:  # a refusal, which says where
            assert name in ("version", "memory") or way is node, error
            assert "test_pure_bodies.py" in str(error)
        change(state)


def test_gradients_of_arguments_that_require_none_are_refused():
    with pytest.raises(AdjointError, match=r"requires none.*test_pure_bodies\.py"):
        ad.compile(lambda x: x * (2.0 if x.grad is None else 3.0))(ad.ones(2))


def switches_gradients(state):
    return lambda x: (ad.set_grad_enabled(False), x * 2.0)[1]


def switches_dtype(state):
    return lambda x: (ad.set_default_dtype(ad.float64), x * 2.0)[1]


def switches_precision(state):
    return lambda x: (ad.set_float32_matmul_precision("medium"), x * 2.0)[1]


def seeds(state):
    return lambda x: (state.generator.manual_seed(3), x * 2.0)[1]


def makes_a_generator(state):
    return lambda x: x * ad.rand(2, generator=ad.Generator())


def computes_with_a_state(state):
    return lambda x: x * ad.random.get_rng_state()[:2]


def steps(state):
    return lambda x: (state.optimizer.step(), x * 2.0)[1]


def schedules(state):
    return lambda x: (state.schedule.step(), x * 2.0)[1]


def counts(state):
    def body(x):
        state.count += 1
        return x * 2.0

    return body


def appends(state):
    return lambda x: (state.list.append(1), x * 2.0)[1]


def trains(state):
    return lambda x: (state.layer.eval(), x * 2.0)[1]


def retains(state):
    def body(x):
        y = state.parameter * x
        y.retain_grad()
        return y * 1.0

    return body


CHANGES = [
    switches_gradients, switches_dtype, switches_precision, seeds, makes_a_generator,
    computes_with_a_state, steps, schedules, counts, appends, trains, retains,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS[:4])
@pytest.mark.parametrize("make", CHANGES)
def test_what_is_changed_is_refused_and_left_as_it_was(state, way, make):
    body = make(state)
    function = called(way, body)
    before = seen(state)
    with pytest.raises(AdjointError, match=r"test_pure_bodies\.py|mode grad|layer\.training"):
        function(ad.tensor([1.0, 2.0]))
    assert seen(state) == before


def seen(state):
    return (
        ad.is_grad_enabled(), ad.get_default_dtype(), ad.get_float32_matmul_precision(),
        state.generator.initial_seed(), ad.random.get_rng_state().tolist(), state.count,
        state.parameter.tolist(), [group["lr"] for group in state.optimizer.param_groups],
        len(state.list), state.layer.training,
    )  # fmt: skip


def list_(x):
    out = []

    def body(v):
        out.append(1.0)
        return v * 2.0

    return body, lambda: len(out)


def variable(x):
    n = 0

    def body(v):
        nonlocal n
        n += 1
        return v * 2.0

    return body, lambda: n


def iterator(x):
    numbers = itertools.count(1)
    return lambda v: v * float(next(numbers)), lambda: 1


def items(x):
    numbers = iter([1.0, 2.0, 3.0])
    return lambda v: v * next(numbers), lambda: 1


def queue(x):
    held = types.SimpleNamespace(queue=collections.deque())

    def body(v):
        held.queue.append(1)
        return v * 2.0

    return body, lambda: len(held.queue)


def default(x):
    def body(v, seen=[]):  # noqa: B006 - that is the point
        seen.append(1)
        return v * len(seen)

    return body, lambda: 1


def of_a_class(x):
    class Counter:
        n = 0

    def body(v):
        Counter.n += 1
        return v * Counter.n

    return body, lambda: 1


def method(x):
    class Counter:
        n = 0

        def count(self, v):
            self.n += 1
            return v * self.n

    return Counter().count, lambda: 1


def of_bytes(x):
    kept = bytearray()

    def body(v):
        kept.append(1)
        return v * len(kept)

    return body, lambda: 1


@pytest.mark.parametrize("way", WAYS[:3])
@pytest.mark.parametrize(
    "make", [list_, variable, iterator, items, queue, default, of_a_class, method, of_bytes]
)
def test_variables_of_the_function_around_are_not_changed(way, make):
    @ad.compile
    def function(x):
        body, number = make(x)
        return way(body, x) * number()

    with pytest.raises(AdjointError, match="changes"):
        function(ad.tensor([1.0, 2.0]))


@pytest.mark.parametrize("way", WAYS[:3])
def test_variables_that_stay_are_read(way):
    @ad.compile
    def function(x):
        held = types.SimpleNamespace(numbers=[2.0, 3.0], by={"a": 4.0})
        return way(lambda v: v * held.numbers[1] * held.by["a"], x)

    turns = {scan: 3, while_loop: 2}.get(way, 1)
    assert function(ad.ones(2)).tolist() == [12.0**turns] * 2


def test_each_kind_of_which_a_capture_is_told_has_an_answer():
    """An executor that lacked one would take what it is about for constant."""
    told = re.compile(
        r'(?<!_)tell\(\s*"(\w+)"|(?:getattr|hasattr)\(\s*[\w.()]*executor,\s*"((?:note|assert)_\w+|meet)"'
    )
    names = set()
    for path in PACKAGE.rglob("*.py"):
        names |= {a or b for a, b in told.findall(path.read_text())}
    names -= {"note_fresh"}  # of what is known to be new, which nobody else has
    assert len(names) >= 15
    known = {name for name, x in inspect.getmembers(Capturing) if not name.startswith("_")}
    assert names <= known, names - known


def test_what_a_body_made_and_wrote_is_a_result_and_has_a_gradient():
    w = ad.tensor([0.5, -1.0, 2.0], requires_grad=True)

    def made(c):
        y = ad.zeros(3)
        y[0] = c[1] * w[0]
        y[1:] = c[:2] * w[1:]
        y += w
        return y

    def scanned(x):
        return ad.scan(lambda c, _: (made(c) * c, made(c)), x, length=3)

    def branched(x):
        return ad.cond(x.sum() > 0, made, lambda c: ad.ones(3).mul_(c), (x,)), x

    def repeated(x):
        return ad.while_loop(lambda c, n: n < 3, lambda c, n: (made(c), n.add(1)), (x, x.sum() * 0))

    def with_gradient(function, x):
        y, other = function(x)
        return y, other, ad.autograd.grad(y.square().sum(), w)[0]

    for function in (scanned, branched, repeated):
        compiled = ad.compile(lambda x, f=function: with_gradient(f, x))
        for found, wanted in zip(
            compiled(ad.ones(3)), with_gradient(function, ad.ones(3)), strict=True
        ):
            ad.testing.assert_close(found, wanted)


def test_what_a_body_made_and_writes_again_is_refused_as_eagerly():
    w = ad.ones(3, requires_grad=True)

    def step(c):
        y = ad.zeros(3).add_(c * w)
        y += c * y.sin()
        return y.mul_(y.cos())

    def f(x):
        y, _ = ad.scan(lambda c, _: (step(c), None), x, length=2)
        return ad.autograd.grad(y.sum(), w)[0]

    for run in (f, ad.compile(f)):
        with pytest.raises(ad.AutogradError, match="modified by an inplace operation"):
            run(ad.ones(3))
