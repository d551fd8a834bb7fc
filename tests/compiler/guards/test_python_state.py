"""What a compiled function's Python reads: a program follows it, or refuses it."""

import cProfile
import functools
import random
import time
import types

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.compiler.guards import state_snapshot
from adjoint.core import policy
from adjoint.core.errors import Unsupported
from tests.native import needs_native

pytestmark = needs_native
SCALE = 2.0


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.factors = [1.0, 2.0]
        self.calls = 0

    def forward(self, x):
        return self.linear(x) * self.factors[1] * SCALE


def test_attributes_containers_modes_and_globals_are_followed(monkeypatch):
    model = Scaled()
    step = ad.compile(lambda x: model(x) * (3.0 if model.training else 1.0))
    x = ad.randn(4, 3)

    def check():
        expected = model(x) * (3.0 if model.training else 1.0)
        np.testing.assert_allclose(step(x).tolist(), expected.tolist(), rtol=1e-6)
        step(x)

    check()
    model.eval()
    check()
    model.factors[1] = 5.0
    check()
    monkeypatch.setitem(globals(), "SCALE", -1.0)
    check()
    model.linear = nn.Linear(3, 2)
    check()
    known = step.programs
    model.calls += 1  # which nothing reads
    step(x)
    assert step.programs == known


def test_variables_of_closures_and_arrays_are_followed():
    factor, shift = 2.0, np.ones(2, np.float32)

    def function(x):
        return x * factor + ad.tensor(shift)

    step = ad.compile(function)
    assert step(ad.ones(2)).tolist() == [3.0, 3.0]
    factor = 4.0
    assert step(ad.ones(2)).tolist() == [5.0, 5.0]
    shift[1] = 0.0
    assert step(ad.ones(2)).tolist() == [5.0, 4.0]


def test_changes_of_python_s_own_state_are_refused_and_put_back():
    seen, counts, kept = [], {"steps": 0}, {1}
    counter = Counter()
    counter.value = 3

    def appends(x):
        seen.append(x)
        return x * 2

    def keeps_an_object(x):
        counts["steps"] = Counter()
        return x * 2

    def adds(x):
        kept.add(len(x))
        return x * 2

    def deletes(x):
        del counter.value
        return x * 2

    for function in (appends, keeps_an_object, adds, deletes):
        with pytest.raises(
            Unsupported, match=r"changes Python's own state.*test_python_state\.py:\d+"
        ):
            ad.compile(function)(ad.ones(2))
    assert seen == [] and kept == {1} and counter.value == 3
    assert counts == {"steps": 0}


def test_calls_with_effects_are_refused():
    def prints(x):
        print("step")
        return x * 2

    def asks(x):
        return x * time.perf_counter()

    def draws(x):
        return x * float(np.random.rand())

    for function, says in ((prints, "print"), (asks, "perf_counter"), (draws, "random")):
        with pytest.raises(Unsupported, match=says):
            ad.compile(function)(ad.ones(2))


class Counter:
    total = 0


def test_what_is_added_to_objects_modules_and_classes_is_what_eager_calls_add():
    counter = Counter()

    def adds(x):
        counter.last = x * 2
        return x + 1

    def counts(x):
        Counter.total += 1
        return x * Counter.total

    def keeps(x):
        global KEPT
        KEPT = x
        return x + 1

    x = ad.ones(2)
    for function in (adds, counts, keeps):
        compiled = ad.compile(function)
        for _ in range(3):
            compiled(x)
        assert len(compiled.programs) <= 2  # where there was nothing before, and afterwards
    try:
        assert counter.last.tolist() == [2, 2] and Counter.total == 3 and KEPT is x
    finally:
        Counter.total = 0
        del globals()["KEPT"]


def test_attributes_and_variables_that_appear_later_are_followed(monkeypatch):
    counter = Counter()

    def tries(x):
        try:
            return x * counter.factor
        except AttributeError:
            return x * abs(-1)

    compiled = ad.compile(tries)
    assert compiled(ad.ones(2)).tolist() == [1, 1]
    monkeypatch.setitem(globals(), "abs", lambda x: 7)
    assert compiled(ad.ones(2)).tolist() == [7, 7]
    counter.factor = 3
    assert compiled(ad.ones(2)).tolist() == [3, 3]


def test_random_numbers_of_others_are_drawn_once_where_a_capture_is_refused():
    def function(x):
        return x * random.random() + np.random.random()

    random.seed(0)
    np.random.seed(0)
    expected = [function(ad.ones(1)).item() for _ in range(3)]
    random.seed(0)
    np.random.seed(0)
    compiled = ad.compile(function, fallback="eager")
    with pytest.warns(UserWarning, match="runs eagerly"):
        found = [compiled(ad.ones(1)).item() for _ in range(3)]
    assert found == expected


def test_hooks_of_tensors_are_noticed_and_what_they_read():
    weight, factors = nn.Parameter(ad.ones(2)), [0.5]

    def step(x):
        weight.grad = None
        (weight * x).sum().backward()
        return weight.grad.clone()

    compiled = ad.compile(step)
    assert compiled(ad.ones(2)).tolist() == [1.0, 1.0]
    handle = weight.register_hook(lambda g: g * factors[0])
    assert compiled(ad.ones(2)).tolist() == [0.5, 0.5]
    factors[0] = 0.25
    assert compiled(ad.ones(2)).tolist() == [0.25, 0.25]
    handle.remove()
    assert compiled(ad.ones(2)).tolist() == [1.0, 1.0]
    assert compiled(ad.ones(2)).tolist() == [1.0, 1.0] and len(compiled.programs) == 3
    assert compiled.reasons[1] == "hooks of a tensor of shape (2,) were added or removed"


def test_a_profile_of_cprofile_goes_on():
    profile = cProfile.Profile()
    profile.enable()
    found = ad.compile(lambda x: x * 2)(ad.ones(2))
    np.cumsum(np.ones(3))
    profile.disable()
    assert found.tolist() == [2.0, 2.0]
    profile.create_stats()
    assert any(name == "cumsum" for _, _, name in profile.stats)


@pytest.mark.parametrize("read", [float, bool, lambda x: x.numpy().copy(), ad.Tensor.tolist])
def test_what_is_drawn_is_no_constant(read):
    def step(x):
        return x * read(ad.rand(()) < 0.5)

    ad.manual_seed(3)
    before = ad.get_rng_state().tolist()
    with pytest.raises(Unsupported, match="reads a value"):
        ad.compile(step)(ad.ones(2))
    assert ad.get_rng_state().tolist() == before


def test_draws_that_have_a_gradient_keep_it():
    x = ad.full((4,), 0.3, requires_grad=True)

    def step(x):
        return ad.bernoulli(ad.sigmoid(x)) * x

    found = []
    for each in (step, ad.compile(step)):
        ad.manual_seed(1)
        y = each(x)
        found.append([y.tolist(), ad.autograd.grad(y.sum(), x)[0].tolist()])
        assert ad.compile(ad.bernoulli)(x).requires_grad == ad.bernoulli(x).requires_grad
    assert found[0] == found[1]


def test_what_compiled_functions_keep_for_themselves_is_not_read():
    """A function with attributes, a module compiled in place, one that calls another: none looks at
    programs.
    """

    @ad.compile
    def counted(x):
        counted.calls += 1
        return x * counted.calls

    counted.calls = 0
    assert [counted(ad.ones(())).item() for _ in range(4)] == [1, 2, 3, 4]
    assert counted.calls == 4 and len(counted.programs) == 1

    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    model.compile()
    x = ad.ones(2, 4)
    for _ in range(2):
        model.train()(x)
        model.eval()(x)
    assert len(model.forward.programs) == 2
    assert all(len(each.guards) < 60 for each in model.forward.programs)

    outer = ad.compile(lambda x: counted(model(x)).sum())
    for _ in range(3):
        outer(x)
        model(x)
    assert len(outer.programs) == 1


def test_an_endless_walk_is_refused(monkeypatch):
    class Chain:
        link = None

    monkeypatch.setattr(policy, "GUARDED_SLOTS", 500)
    chain = chain_of = Chain()
    for _ in range(1000):
        chain_of.link = Chain()
        chain_of = chain_of.link

    def step(x):
        return x * (2 if chain.link else 1)

    with pytest.raises(Unsupported, match=r"may read more than 500 .* such as chain\.link"):
        ad.compile(step)(ad.ones(1))


def test_attributes_that_a_class_gets_before_its_bases_are_noticed():
    class Base:
        factor = 2.0

    class Derived(Base):
        pass

    thing = Derived()
    scaled = ad.compile(lambda x: x * thing.factor)
    found = [scaled(ad.ones(())).item()]
    Derived.factor = 4.0
    found.append(scaled(ad.ones(())).item())
    del Derived.factor
    found.append(scaled(ad.ones(())).item())
    assert found == [2.0, 4.0, 2.0]


def test_what_is_imported_meanwhile_may_do_anything(tmp_path, monkeypatch):
    """Once, as it would eagerly; the function itself may not."""
    monkeypatch.syspath_prepend(str(tmp_path))
    source = "import time\nSTARTED = time.time()\n\n\ndef doubled(x):\n    return x * 2\n"
    (tmp_path / "imported_late.py").write_text(source)

    @ad.compile
    def function(x):
        from imported_late import doubled

        return doubled(x) + 1

    assert [function(x).tolist() for x in (ad.ones(2), ad.zeros(2))] == [[3, 3], [1, 1]]
    assert function.reasons == ["first call"]

    @ad.compile
    def late(x):
        import time

        return x * time.time()

    with pytest.raises(Unsupported, match=r"time\.time\(\), of which a program knows nothing"):
        late(ad.ones(2))


def test_modules_that_are_made_by_hand_are_read():
    """Those of a session, or of code that a program runs, have no file."""
    settings = types.ModuleType("settings")
    settings.scale, settings.rng = 2.0, np.random.default_rng(0)
    settings.draw = functools.partial(settings.rng.standard_normal, 3)

    class Source:
        def __init__(self):
            self.rng = np.random.default_rng(0)

        def draw(self):
            return ad.from_numpy(self.rng.standard_normal(3))

    class Shown(types.ModuleType):
        def __getattr__(self, name):
            return getattr(ad, name)

    f = ad.compile(lambda x: x * settings.scale)
    assert f(ad.ones(1)) == 2
    settings.scale = 3.0
    assert f(ad.ones(1)) == 3
    shown = Shown("torch")
    shown.draw = Source().draw
    for function in (lambda x: x + shown.draw(), lambda x: x + ad.from_numpy(settings.draw())):
        with pytest.raises(RuntimeError, match="source of random numbers"):
            ad.compile(function)(ad.zeros(3))


def test_a_function_is_looked_through_twice_and_later_once(monkeypatch):
    """Names of code that is found late lead to what was passed over, without another round."""
    rounds = []

    class Counted(state_snapshot.OutsideTensors):
        def __init__(self):
            rounds.append(1)
            super().__init__()

    monkeypatch.setattr(state_snapshot, "OutsideTensors", Counted)
    model = ad.nn.Sequential(ad.nn.Linear(3, 4), ad.nn.BatchNorm1d(4), ad.nn.Dropout(0.1))
    compiled = ad.compile(lambda x: model(x).sum())
    compiled(ad.ones(5, 3))
    assert len(rounds) <= 2
    model.eval()
    rounds.clear()
    compiled(ad.ones(5, 3))
    assert len(rounds) == 1
