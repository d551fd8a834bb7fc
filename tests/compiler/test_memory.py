"""What a compiled step needs beside its program: nothing of eager steps, nothing of captures."""

import gc

import pytest

import adjoint as ad
from adjoint import nn
from adjoint.backends.codegen import run, target
from adjoint.backends.native.lowering.composite import Composite
from adjoint.backends.native.runtime import array_memory
from adjoint.compiler import function
from adjoint.compiler.guards import code_observer
from adjoint.compiler.passes import kernels, rematerialize
from adjoint.compiler.schedule.buffers import aligned
from adjoint.ir.program import Node
from adjoint.runtime.lazy import LazyValue
from tests.native import needs_native

pytestmark = needs_native


def training(model, optimizer):
    criterion = nn.CrossEntropyLoss()

    def step(x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def make(layers=2, options=None):
    ad.manual_seed(0)
    hidden = [each for _ in range(layers) for each in (nn.Linear(8, 8), nn.Tanh())]
    model = nn.Sequential(*hidden, nn.Linear(8, 3))
    return model, ad.optim.Adam(model.parameters(), **(options or {}))


def batch():
    return ad.randn(5, 8), ad.tensor([0, 1, 2, 0, 1])


def alive(kind):
    gc.collect()
    return sum(type(x) is kind for x in gc.get_objects())


@pytest.mark.parametrize("options", [{}, {"amsgrad": True}], ids=str)
def test_the_first_call_is_one_of_the_program(options):
    """Optimizers are given the state with which they begin, and no kernels of eager steps, nor
    their memory, are needed.
    """
    (model, optimizer), (other, eagerly) = make(2, options), make(2, options)
    compiled, eager = ad.compile(training(model, optimizer)), training(other, eagerly)
    for k in range(3):
        x, y = batch()
        assert abs(compiled(x, y).item() - eager(x, y).item()) < 1e-6
        assert len(compiled.programs) == 1 and compiled.reasons == ["first call"]
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            found, state = optimizer.state[p], eagerly.state[q]
            assert [*found] == [*state] and found["step"].item() == state["step"].item() == k + 1
            assert all(abs(found[name] - state[name]).max() < 1e-6 for name in state)
            assert found["exp_avg"].dtype is state["exp_avg"].dtype


@pytest.mark.parametrize("options", [{}, {"nesterov": True}, {"weight_decay": 0.1}], ids=str)
def test_the_first_step_with_momentum_is_one_of_the_program(options):
    """A velocity of zeros becomes the gradient, and no eager step's memory is needed."""
    pairs = []
    for compiles in (True, False):
        model, _ = make(2)
        optimizer = ad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, **options)
        step = training(model, optimizer)
        pairs.append((model, optimizer, ad.compile(step) if compiles else step))
    (model, optimizer, compiled), (other, eagerly, eager) = pairs
    for _ in range(3):
        x, y = batch()
        assert abs(compiled(x, y).item() - eager(x, y).item()) < 1e-6
        assert compiled.reasons == ["first call"]
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            found, state = optimizer.state[p], eagerly.state[q]
            assert [*found] == [*state] == ["momentum_buffer"]
            assert ad.allclose(found["momentum_buffer"], state["momentum_buffer"], atol=1e-6)
            assert ad.allclose(p, q, atol=1e-6)


class Slow(ad.optim.SGD):
    """Its first step is half of a step."""

    def change(self, group, numbers, state, p, g):
        lr, *rest, is_first = numbers
        super().change(group, (lr / 2 if is_first else lr, *rest, is_first), state, p, g)


def test_a_subclass_may_have_a_first_step_of_its_own():
    pairs = []
    for wrap in (ad.compile, lambda step: step):
        model, _ = make(2)
        optimizer = Slow(model.parameters(), lr=0.1, momentum=0.9)
        pairs.append((model, wrap(training(model, optimizer))))
    (model, compiled), (other, eager) = pairs
    for _ in range(3):
        x, y = batch()
        assert abs(compiled(x, y).item() - eager(x, y).item()) < 1e-6
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            assert ad.allclose(p, q, atol=1e-6)


@pytest.mark.parametrize("name", ["Adam", "Adagrad", "NAdam", "RMSprop", "Rprop"])
def test_a_function_is_captured_once_where_its_optimizer_has_no_state(name, monkeypatch):
    captured = []
    capture = function._Variant.capture
    monkeypatch.setattr(
        function._Variant, "capture", lambda *args: captured.append(args) or capture(*args)
    )
    model, _ = make()
    step = ad.compile(training(model, getattr(ad.optim, name)(model.parameters())))
    for _ in range(3):
        step(*batch())
    assert len(captured) == 1


@pytest.mark.parametrize(
    "look",
    [
        lambda optimizer: len(optimizer.state),
        lambda optimizer: len(optimizer.state_dict()["state"]),
        lambda optimizer: 0.0 if not optimizer.state else 1.0,
    ],
)
def test_what_looks_at_an_optimizer_without_state_sees_none(look):
    """As it does eagerly: state that is made for the capture must not be seen in the first call."""
    losses = []
    for compiled in (False, True):
        ad.manual_seed(0)
        model, optimizer = make()

        def step(x, y, model=model, optimizer=optimizer):
            scale = 1 + look(optimizer)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y) * scale
            loss.backward()
            optimizer.step()
            return loss

        run = ad.compile(step) if compiled else step
        losses.append([run(*batch()).item() for _ in range(4)])
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)


def test_libraries_that_look_at_an_optimizer_without_state_see_none(tmp_path, monkeypatch):
    """Their code is no user's, by which a program would be guarded."""
    monkeypatch.setattr(code_observer, "_LIBRARIES", (*code_observer._LIBRARIES, str(tmp_path)))
    (tmp_path / "looking.py").write_text("def look(optimizer): return len(optimizer.state)")
    monkeypatch.syspath_prepend(tmp_path)
    import looking

    test_what_looks_at_an_optimizer_without_state_sees_none(looking.look)


def test_captured_nodes_do_not_wait_for_the_collector():
    """A node and what it gives hold each other: what no program has any more is taken apart."""
    model, optimizer = make(layers=20)
    step = ad.compile(training(model, optimizer))
    gc.collect()
    before = {id(x) for x in gc.get_objects() if type(x) is Node}
    gc.disable()
    try:
        step(*batch())
        made = [x for x in gc.get_objects() if type(x) is Node and id(x) not in before]
    finally:
        gc.enable()
    kept = {id(node) for part in step.programs[0].parts for node in nodes_of(part.graph)}
    assert len(kept) > 50
    waiting = [node for node in made if id(node) not in kept]
    assert len(waiting) < len(kept) / 2


def nodes_of(graph):
    """A program's nodes, and those that its kernels are made of."""
    for node in graph.nodes:
        yield node
        yield from node.op.program.nodes if isinstance(node.op, kernels.Kernel) else ()


def test_a_parameter_without_gradient_gets_no_state():
    model, optimizer = make(1)
    unused = nn.Parameter(ad.ones(3))
    optimizer.add_param_group({"params": [unused]})
    ad.compile(training(model, optimizer))(*batch())
    assert unused not in optimizer.state and len(optimizer.state) == 4


@pytest.mark.parametrize("wrong", ["its values", "its capture"])
def test_a_first_call_that_fails_leaves_no_state(wrong):
    model, optimizer = make(1)
    step = training(model, optimizer)

    def read(x, y):
        loss = step(x, y)
        return loss if loss > 0 else -loss

    compiled = ad.compile(read if wrong == "its capture" else step)
    x, y = batch()
    before = [p.tolist() for p in model.parameters()]
    with pytest.raises((IndexError, RuntimeError)):
        compiled(x, y + 3)
    assert not optimizer.state and [p.tolist() for p in model.parameters()] == before
    if wrong == "its values":
        for k in range(3):
            compiled(x, y)
            assert optimizer.state[model[0].weight]["step"].item() == k + 1


def test_a_first_step_that_differs_from_later_ones_is_an_eager_one():
    model, _ = make(1)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5)
    compiled = ad.compile(training(model, optimizer))
    x, y = batch()
    compiled(x, y)
    assert not compiled.programs
    for p in model.parameters():  # all of the gradient, in spite of dampening
        assert optimizer.state[p]["momentum_buffer"].equal(p.grad)
    compiled(x, y)
    assert len(compiled.programs) == 1


def test_one_optimizer_that_has_to_begin_eagerly_lets_all_do():
    """What the other was given is taken away again: the eager step makes it."""

    def losses(wrap):
        model, optimizer = make(1)
        (first, second) = optimizer, ad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x, y):
            loss = training(model, first)(x, y)
            second.step()
            return loss

        step = wrap(step)
        found = [step(*batch()).item() for _ in range(4)]
        return found, [s["step"].item() for s in first.state.values()], len(second.state)

    found, wanted = losses(ad.compile), losses(lambda step: step)
    assert found[1:] == wanted[1:]
    assert all(abs(a - b) < 1e-5 for a, b in zip(found[0], wanted[0], strict=True))


def test_nothing_of_the_capture_is_kept():
    before = alive(LazyValue)
    model, optimizer = make()
    compiled = ad.compile(training(model, optimizer))
    for _ in range(2):
        compiled(*batch())
    assert alive(LazyValue) == before


def test_equal_layers_are_written_down_once():
    """Kernels of the same ops on the same are one object, whatever the number of layers."""
    counts = []
    for layers in (3, 9):
        before = alive(Composite)
        model, optimizer = make(layers)
        compiled = ad.compile(training(model, optimizer))
        compiled(*batch())
        counts.append(alive(Composite) - before)
        del compiled, model, optimizer
    assert counts[0] == counts[1] > 0


def test_a_step_that_was_compiled_keeps_its_kernels_programs_alone():
    """The captured nodes are let go of; equal kernels have one program."""
    before = alive(Node)
    model, optimizer = make(9)
    compiled = ad.compile(training(model, optimizer))
    compiled(*batch())
    [program] = compiled.programs
    assert not program.captured.program.nodes
    nodes = [node for part in program.parts for node in part.graph.nodes]
    ops = [node.op for node in nodes if isinstance(node.op, kernels.Kernel)]
    written = {id(op.program): op.program for op in ops}
    assert len(written) < len(ops)
    updates = len(program.captured.effects.updates)
    assert alive(Node) - before == (
        len(nodes) + sum(len(each.nodes) for each in written.values()) + updates
    )
    for op in ops:
        assert op.program is op.composite.program
        assert all(x.node is None for x in op.program.inputs)
    assert str(compiled.explain(*batch())) and str(compiled.graph(*batch()))


def test_kernels_are_linked_at_once(monkeypatch):
    """LLVM takes 36 KiB for each time."""
    linked = []
    link = target._linked
    monkeypatch.setattr(run, "_codes", {})
    monkeypatch.setattr(
        target, "_linked", lambda codes, passing: linked.append(len(codes)) or link(codes, passing)
    )
    compiled = ad.compile(lambda x: ((x.exp() @ x).sin().sum(0) @ x).softmax(-1))
    x = ad.randn(33, 33)
    assert ad.allclose(compiled(x), compiled.function(x))
    assert linked[0] >= 3


class Block(nn.Module):
    """A normalization whose result products read, forward and for their weights' gradients."""

    def __init__(self, width=64):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).tanh())


def trained(monkeypatch, keeps):
    """A program, its loss, its gradients; `keeps`: what normalizations give is kept meanwhile."""
    if keeps:
        monkeypatch.setattr(rematerialize, "give_again", lambda *_: set())
    ad.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(4)))

    @ad.compile
    def step(x):
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    loss = step(ad.randn(4, 100, 64)).item()
    found = [p.grad for p in model.parameters()]
    monkeypatch.undo()
    return step.programs[0], loss, found


def test_what_products_read_is_given_again_by_kernels_of_backward(monkeypatch):
    """What normalizations give need not be kept, but for those near the peak, at the end."""
    one, loss, gradients = trained(monkeypatch, keeps=True)
    other, same, others = trained(monkeypatch, keeps=False)
    size = 4 * 100 * 64 * 4
    assert one.sizes()[0] - other.sizes()[0] > 1.9 * size
    assert len(one.listed()[0]) == len(other.listed()[0])  # no more kernels
    assert abs(loss - same) < 1e-6
    for g, h in zip(gradients, others, strict=True):
        assert abs(g - h).max() < 1e-6


def test_the_arena_is_no_larger_than_what_lives_at_once():
    model, optimizer = make(6)
    compiled = ad.compile(training(model, optimizer))
    compiled(*batch())
    [schedule] = [part.schedule for part in compiled.programs[0].parts[:1]]
    live = [
        sum(aligned(b.size) for b in schedule.buffers if b.begin <= k <= b.end)
        for k in range(len(schedule.steps) + 1)
    ]
    assert schedule.layout.size <= 1.05 * max(live)


def test_products_are_not_computed_to_bind_them():
    """Only what they would be computed by is found out; their results would lie beside all else."""
    model = nn.Linear(512, 512)
    compiled = ad.compile(lambda x: model(x).sum())
    array_memory.release_memory()
    array_memory.reset_peak()
    before = array_memory.memory_stats()["allocated"]
    compiled(ad.ones(300, 512))
    most = array_memory.memory_stats()["peak"] - before
    assert most <= 1.2 * 4 * 300 * 512 + 2 * 65536  # the argument


def test_kernels_of_other_numbers_are_others():
    """Equal but for a number, its type or its sign, or the order of what they read."""

    @ad.compile
    def different(x, y):
        first = [(x * n).tanh() for n in (1.5, 2.5)]
        second = [ad.where(x > n, x, y) for n in (0.0, -0.5)]
        return *first, *second, (x - y).exp(), (y - x).exp(), x / ad.maximum(y, x), y / x

    x, y = ad.randn(4, 5), ad.rand(4, 5) + 0.5
    for found, wanted in zip(different(x, y), different.function(x, y), strict=True):
        assert abs(found - wanted).max() < 1e-6
