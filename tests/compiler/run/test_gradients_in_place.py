"""Gradients of compiled functions: read and written where they are, bound to once."""

import threading
import weakref

import pytest

import adjoint as ad
import adjoint.nn.functional as F
from adjoint import nn
from adjoint.compiler.run import step as steps
from adjoint.core import policy
from adjoint.core.errors import Unsupported

from ...backends.native.onednn.onednn_cases import needs_onednn, without_memory  # noqa: F401


@pytest.fixture
def bindings(monkeypatch):
    """How often programs were connected to memory."""
    found = []
    connect = steps.CompiledStep._connect

    def counted(self):
        found.append(self)
        return connect(self)

    monkeypatch.setattr(steps.CompiledStep, "_connect", counted)
    return found


X, Y = ad.randn(6, 8), ad.randint(0, 4, (6,))


def layers(width=16):
    ad.manual_seed(3)
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 4))


def loss_of(model, x=X, y=Y):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return loss


def both(make):
    """What `make(compile)` gives, eagerly and compiled."""
    return make(lambda function: function), make(ad.compile)


def accumulate(compiled):
    model = layers()
    optimizer = ad.optim.Adam(model.parameters(), lr=0.01)
    backward = compiled(lambda x, y: loss_of(model, x, y))

    def run(k):
        for n in range(3):
            backward(X[n : n + 3] + k, Y[n : n + 3])
        optimizer.step()
        optimizer.zero_grad()

    return model, run


def apart(compiled):
    model = layers()
    optimizer = ad.optim.Adam(model.parameters(), lr=0.01)
    backward = compiled(lambda x, y: loss_of(model, x, y))
    step = compiled(optimizer.step)

    def run(k):
        optimizer.zero_grad()
        backward(X + k, Y)
        step()

    return model, run


def eager_backward(compiled):
    model = layers()
    optimizer = ad.optim.AdamW(model.parameters(), lr=0.01)
    step = compiled(optimizer.step)

    def run(k):
        optimizer.zero_grad()
        loss_of(model, X + k)
        step()

    return model, run


def clipped(compiled):
    model = layers()
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    backward = compiled(lambda x, y: loss_of(model, x, y))
    clip = compiled(lambda: nn.utils.clip_grad_norm_(model.parameters(), 0.1))

    def run(k):
        optimizer.zero_grad()
        backward(X + k, Y)
        clip()
        optimizer.step()

    return model, run


def whole(compiled, keep=None, width=16):
    model = layers(width)
    optimizer = ad.optim.Adam(model.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        optimizer.step()
        return loss

    step = compiled(step)

    def run(k):
        step(X + k, Y)
        if keep is not None:
            keep(model)

    return model, run


@pytest.mark.parametrize("make", [accumulate, apart, eager_backward, clipped, whole])
def test_programs_are_bound_once(make, bindings):
    (model, run), (other, compiled) = both(make)
    for k in range(4):
        run(0.1 * k)
        compiled(0.1 * k)
    bindings.clear()
    for k in range(4):
        run(0.1 * k)
        compiled(0.1 * k)
    assert not bindings
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert ad.allclose(p, q, atol=1e-5)


WAYS = {
    "tensors": lambda g: g,
    "views": lambda g: g[0],
    "detached": lambda g: g.detach(),
    "arrays": lambda g: g.numpy(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("width", [16, 3000])  # below and above what is copied
def test_gradients_that_are_kept_stay_as_they_are(way, width, bindings):
    def kept(compiled):
        found = []
        keep = WAYS[way]
        _, run = whole(
            compiled, lambda model: found.append([keep(p.grad) for p in model.parameters()]), width
        )
        for k in range(5):
            run(0.3 * k)
        return found

    expected, found = both(kept)
    for before, now in zip(expected, found, strict=True):
        for g, h in zip(before, now, strict=True):
            assert ad.allclose(ad.as_tensor(g), ad.as_tensor(h), atol=1e-5)
    assert len(bindings) <= 2  # one of another test's kind: where an error may come late


def test_memory_of_gradients_is_used_again_where_nobody_keeps_them():
    model, run = whole(ad.compile, width=3000)
    run(0)
    first = [p.grad.data_ptr() for p in model.parameters()]
    for k in range(3):
        run(k)
        assert [p.grad.data_ptr() for p in model.parameters()] == first


def test_a_gradient_in_several_places():
    a, b = (ad.randn(70, 70, requires_grad=True) for _ in range(2))

    @ad.compile
    def step(x):
        a.grad = b.grad = None
        ((a + b) * x).sum().backward()
        return a.grad, b.grad * 2

    for _ in range(3):
        x = ad.randn(70, 70)
        first, second = step(x)
        for found, expected in ((first, x), (second, 2 * x), (a.grad, x), (b.grad, x)):
            assert ad.equal(found, expected)
        a.grad.add_(1)
        assert ad.equal(b.grad, x) and ad.equal(first, x)


def test_gradients_that_others_put_in_their_place():
    w = ad.randn(80, 80, requires_grad=True)
    add = ad.compile(lambda x: (w * x).sum().backward())
    x = ad.randn(80, 80)
    for begin in (
        ad.zeros(80, 80), ad.ones(80, 80), ad.randn(80, 80).t(), ad.randn(160, 80)[::2],
        ad.ones(1, 1).expand(80, 80).clone(),
    ):  # fmt: skip
        w.grad = begin.clone(memory_format=ad.preserve_format) if begin._is_view() else begin
        before = w.grad.clone()
        place = w.grad
        add(x)
        assert ad.equal(w.grad, before + x) and w.grad is place


def test_an_argument_that_is_the_gradient():
    w = ad.randn(80, 80, requires_grad=True)
    add = ad.compile(lambda x: (w * x).sum().backward())
    x = ad.randn(80, 80)
    w.grad = ad.zeros(80, 80)
    add(x)
    before = w.grad.clone()
    for shown in (w.grad, w.grad.detach()):
        with pytest.raises(Unsupported, match="shown by another tensor"):
            add(shown)
    assert ad.equal(w.grad, before)
    add(x)
    assert ad.equal(w.grad, before + x)


def test_gradients_that_share_memory():
    a, b = (ad.randn(40, 40, requires_grad=True) for _ in range(2))
    add = ad.compile(lambda x: ((a + 2 * b) * x).sum().backward())
    x = ad.randn(40, 40)
    add(x), add(x)
    memory = ad.zeros(40, 40)
    a.grad, b.grad = memory.detach(), memory.detach()
    with pytest.raises(Unsupported):
        add(x)
    assert not memory.any()


def test_sizes_share_memory():
    model = layers(64)
    optimizer = ad.optim.Adam(model.parameters(), lr=0.01)
    twin = layers(64)
    other = ad.optim.Adam(twin.parameters(), lr=0.01)

    def step(model, optimizer, x, y):
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        optimizer.step()
        return loss

    compiled = ad.compile(lambda x, y: step(model, optimizer, x, y))
    for _ in range(2):
        for n in range(6, 0, -1):
            assert ad.allclose(compiled(X[:n], Y[:n]), step(twin, other, X[:n], Y[:n]), atol=1e-5)
            for p, q in zip(model.parameters(), twin.parameters(), strict=True):
                assert ad.allclose(p.grad, q.grad, atol=1e-5)
    programs = compiled.programs
    assert len(programs) == 6 and len({id(each.landing) for each in programs}) == 1
    assert all(each.bytes < 1 << 18 for each in programs)  # Python's
    arenas = {id(each.parts[0].space.arena.base) for each in programs}
    assert len(arenas) == 1  # the first one was the largest


def test_threads_with_other_sizes():
    model = layers(64).requires_grad_(False)
    compiled = ad.compile(lambda x: model(x).softmax(-1))
    inputs = [ad.randn(n, 8) for n in range(1, 9)]
    expected = [model(x).softmax(-1) for x in inputs]
    for x in inputs:
        compiled(x)
    wrong = []

    def work(k):
        for n in range(300):
            i = (k + n) % len(inputs)
            if not ad.allclose(compiled(inputs[i]), expected[i], atol=1e-6):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(3 * k,)) for k in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_another_thread_in_the_middle_of_a_program_holds_up_no_other_size(bindings):
    model = layers(64)
    compiled = ad.compile(lambda x, y: loss_of(model, x, y))
    for n in (6, 4):
        model.zero_grad()
        compiled(X[:n], Y[:n])
    larger = next(each for each in compiled.programs if each.arguments[0].shape[0] == 6)
    begun, ended = threading.Event(), threading.Event()

    def hold():
        with larger:
            begun.set()
            ended.wait(60)

    holding = threading.Thread(target=hold)
    holding.start()
    begun.wait(60)
    bindings.clear()
    found = []
    for _ in range(3):
        model.zero_grad()
        compiled(X[:4], Y[:4])
        found.append([p.grad.clone() for p in model.parameters()])
    assert holding.is_alive() and len(bindings) == 1  # once, to memory of its own
    assert sum(each.shares for each in compiled.programs) == 1
    ended.set()
    holding.join()
    model.zero_grad()
    loss_of(model, X[:4], Y[:4])
    for gradients in found:
        for g, p in zip(gradients, model.parameters(), strict=True):
            assert ad.allclose(g, p.grad, atol=1e-6)


def test_a_failed_step_leaves_gradients():
    weight = ad.randn(100, 100, requires_grad=True)
    optimizer = ad.optim.SGD([weight], lr=0.1)

    @ad.compile
    def step(x, i):
        optimizer.zero_grad()
        loss = (weight * x).sum() + weight[i].sum()
        loss.backward()
        optimizer.step()
        return loss

    x = ad.randn(100, 100)
    step(x, ad.tensor([1]))
    before, gradient = weight.clone(), weight.grad.clone()
    for _ in range(2):
        with pytest.raises(IndexError):
            step(x, ad.tensor([100]))
        assert ad.equal(weight, before) and ad.equal(weight.grad, gradient)
    step(x, ad.tensor([2]))
    assert not ad.equal(weight, before)


@pytest.mark.parametrize("clears", ["inside", "before", "never"])
@pytest.mark.parametrize("width", [16, 3000])  # below and above what is copied
def test_a_step_that_fails_behind_its_gradients_leaves_those_of_before(clears, width, bindings):
    model, table = layers(width), nn.Embedding(5, 8)
    twin, twins_table = layers(width), nn.Embedding(5, 8)
    twins_table.load_state_dict(table.state_dict())

    def training(model, table):
        parameters = [*model.parameters(), *table.parameters()]
        optimizer = ad.optim.SGD(parameters, lr=0.01)

        def step(x, y, i):
            if clears == "inside":
                optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            large = model[0].weight.grad.sum() > 1e30  # the index is known behind a gradient
            F.cross_entropy(model(table(i + large.long())), y).backward()
            optimizer.step()

        return parameters, optimizer, step

    parameters, optimizer, step = training(model, table)
    others, eager_optimizer, eager = training(twin, twins_table)
    compiled = ad.compile(step)
    good, wrong = ad.tensor([0, 1, 2, 3, 4, 0]), ad.tensor([0, 1, 2, 3, 5, 0])

    def agree():
        for p, q in zip(parameters, others, strict=True):
            assert ad.allclose(p, q, atol=1e-5) and (p.grad is None) == (q.grad is None)
            assert p.grad is None or ad.allclose(p.grad, q.grad, atol=1e-4)

    for _ in range(2):
        for _ in range(2):
            if clears == "before":
                optimizer.zero_grad()
                eager_optimizer.zero_grad()
            compiled(X, Y, good)
            eager(X, Y, good)
            agree()
        if clears == "before":
            optimizer.zero_grad()
        held = [None if p.grad is None else p.grad for p in parameters]
        before = [None if g is None else g.clone() for g in held]
        with pytest.raises(IndexError):
            compiled(X, Y, wrong)
        assert all(p.grad is g for p, g in zip(parameters, held, strict=True))
        assert all(g is None or ad.equal(g, b) for g, b in zip(held, before, strict=True))
        del held
    if width == 16:  # else sums lie apart until the last term is added
        assert any(program.late and program.bindings.movers for program in compiled.programs)
    assert len(bindings) == len(compiled.programs)  # each once


@pytest.mark.parametrize("kind", [ad.int64, ad.int32])
def test_arguments_say_whether_a_step_fails_behind_its_gradients(kind, monkeypatch):
    """Where all indices are sound, gradients are written over those of before."""
    monkeypatch.setattr(policy, "APART", 0)
    monkeypatch.setattr(policy, "RUNNING_SUM", 0)
    table, layer = nn.Embedding(9, 8), nn.Linear(8, 5)
    parameters = [*table.parameters(), *layer.parameters()]
    optimizer = ad.optim.SGD(parameters, lr=0.01)
    x, y = ad.randint(0, 9, (3, 4)).to(kind), ad.randint(0, 5, (3, 4))

    def step(x, y):
        optimizer.zero_grad()
        for k in range(3):
            F.cross_entropy(layer(table(x[k])), y[k]).backward()

    compiled = ad.compile(step)
    compiled(x, y)
    [program] = compiled.programs
    assert program.late and program.bindings.movers
    for wrong in (None, None, (x, 9), (x, -10), (y, 5), (y, -100), (y, -1), None, None):
        given = x.clone(), y.clone()
        if wrong is not None:
            given[wrong[0] is y][2, 3] = wrong[1]
        before = [(p.grad, p.grad.clone()) for p in parameters]
        fails = wrong is not None and wrong[1] != -100  # which is ignored
        if fails:
            with pytest.raises(IndexError):
                compiled(*given)
            for p, (g, values) in zip(parameters, before, strict=True):
                assert p.grad is g and ad.equal(g, values)
            continue
        del before
        compiled(*given)
        found = [p.grad.clone() for p in parameters]
        step(*given)
        for g, p in zip(found, parameters, strict=True):
            assert ad.allclose(g, p.grad, atol=1e-5)
        for p, g in zip(parameters, found, strict=True):
            p.grad = g
        del found, g
    compiled(x, y)
    places = [p.grad.data_ptr() for p in parameters]
    compiled(x, y)
    assert (places == [p.grad.data_ptr() for p in parameters]) == (kind is ad.int64)


def several_batches(compiled):
    """A step with products of few rows, which oneDNN computes, in front of and behind gradients."""
    ad.manual_seed(3)
    model = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 512))
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = ad.randn(48, 512), ad.randn(48, 512)

    def step():
        optimizer.zero_grad()
        for k in range(3):
            part = slice(16 * k, 16 * k + 16)
            F.mse_loss(model(x[part]), y[part]).backward()
        optimizer.step()

    return model, compiled(step)


@needs_onednn
def test_a_product_without_memory_is_no_reason_to_write_gradients_late(without_memory):  # noqa: F811
    (eager, one), (model, step) = both(several_batches)
    for _ in range(3):
        one()
        step()
        for p, q in zip(eager.parameters(), model.parameters(), strict=True):
            assert ad.allclose(p, q, atol=1e-5) and ad.allclose(p.grad, q.grad, atol=1e-5)
    [program] = step.programs
    assert not program.late and program.bindings.movers and not program.bindings.copies
    assert without_memory


def test_a_function_that_is_called_while_it_runs():
    """Its memory is in use: an error, neither a deadlock nor wrong values, for any size."""
    model = layers()
    twin = layers()
    said = []

    def again(n):
        try:
            step(X[:n], Y[:n])
        except Unsupported as error:
            said.append(str(error))

    @ad.compile
    def step(x, y):
        model.zero_grad()
        return loss_of(model, x, y)

    for n in (6, 4, 6, 4):
        model.zero_grad()
        loss_of(model)
        for size in (6, 4):
            weakref.finalize(model[0].weight.grad, again, size)
        running = threading.Thread(target=step, args=(X[:n], Y[:n]), daemon=True)
        running.start()
        running.join(60)
        assert not running.is_alive()
        twin.zero_grad()
        loss_of(twin, X[:n], Y[:n])
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            assert ad.allclose(p.grad, q.grad, atol=1e-6)
    assert len(said) == 8 and all("while it runs" in each for each in said)
