"""Attributes, variables and items that a compiled function sets, or that change between calls."""

import copy
import math
from types import SimpleNamespace

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import Unsupported
from tests.native import needs_native

pytestmark = needs_native


class Running(nn.Module):
    """A module that keeps what it has seen: a buffer, a tensor, a tuple, numbers."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("mean", ad.zeros(3))
        self.last = None
        self.hidden = (ad.zeros(3), ad.ones(3))
        self.steps = 0
        self.warmth = 0.5
        self.table = {"n": 0, "sum": ad.zeros(())}
        self.items = [ad.zeros(2), 3]

    def forward(self, x):
        y = self.linear(x)
        self.mean = 0.9 * self.mean + 0.1 * y.mean(0).detach()
        h, c = self.hidden
        self.hidden = (ad.tanh(h + self.mean), c * 0.5)
        self.steps += 1
        self.warmth = self.warmth * 0.9 + 0.01
        self.table["n"] += 2
        self.table["sum"] = self.table["sum"] + x.sum()
        self.items[0] = self.items[0] + self.steps
        if self.training:
            self.last = y.detach()
        return y * self.warmth + self.hidden[0] / self.steps


def state(model):
    """All that a model keeps."""
    return {
        "mean": model.mean.tolist(),
        "hidden": [x.tolist() for x in model.hidden],
        "numbers": (model.steps, model.warmth, model.table["n"], model.items[1]),
        "sum": model.table["sum"].tolist(),
        "item": model.items[0].tolist(),
        "last": None if model.last is None else model.last.tolist(),
    }


def assert_alike(a, b):
    assert a.keys() == b.keys()
    for key in a:
        if a[key] is None or b[key] is None or key == "numbers":
            assert a[key] == b[key]
        else:
            np.testing.assert_allclose(a[key], b[key], rtol=1e-5, atol=1e-6)


def pair():
    ad.manual_seed(0)
    model = Running()
    return model, copy.deepcopy(model)


def test_state_that_a_module_keeps_is_that_of_eager_calls_by_one_program():
    eager, other = pair()
    compiled = ad.compile(lambda x: other(x))
    kept = []
    for i in range(8):
        x = ad.full((4, 3), 0.1 * i)
        np.testing.assert_allclose(compiled(x).tolist(), eager(x).tolist(), rtol=1e-5, atol=1e-6)
        assert_alike(state(other), state(eager))
        assert type(other.steps) is int and type(other.warmth) is float
        assert other._buffers["mean"] is other.mean
        kept.append((other.mean, other.mean.tolist()))
    assert len({id(x) for x, _ in kept}) == 8  # each call's is a tensor of its own
    assert all(x.tolist() == values for x, values in kept)
    assert len(compiled.programs) == 2  # `last` was None, and is a tensor


def replaced(model):
    model.mean = ad.full((3,), 7.0)


def of_another_shape(model):
    model.mean = ad.full((1,), 2.0)


def of_another_dtype(model):
    model.mean = ad.full((3,), 2.0, dtype=ad.float64)


def in_place(model):
    with ad.no_grad():
        model.mean.add_(3.0)


def numbers_set(model):
    model.steps, model.warmth, model.table["n"] = 100, -2.0, 7


def number_of_another_type(model):
    model.steps = 2.5


def loaded(model):
    values = {name: x + 1 for name, x in model.state_dict().items()}
    model.load_state_dict(values)


def evaluated(model):
    model.eval()


def wanting(model):
    model.hidden = (ad.ones(3, requires_grad=True), ad.ones(3))


def shared(model):
    model.hidden = (model.mean, model.mean)


def a_view(model):
    model.mean = ad.arange(6.0).reshape(3, 2)[:, 0]


def of_one_list(model):
    model.hidden = [ad.ones(3), ad.zeros(3)]


CHANGES = [
    replaced, of_another_shape, of_another_dtype, in_place, numbers_set, number_of_another_type,
    loaded, evaluated, wanting, shared, a_view, of_one_list,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_others_set_between_calls_is_followed(change):
    eager, other = pair()
    compiled = ad.compile(lambda x: other(x))
    for i in range(7):
        x = ad.full((4, 3), 0.1 * i)
        if i in (3, 5):
            change(eager)
            change(other)
        np.testing.assert_allclose(compiled(x).tolist(), eager(x).tolist(), rtol=1e-5, atol=1e-6)
        assert_alike(state(other), state(eager))
        assert other.mean.dtype is eager.mean.dtype
        assert other.hidden[0].requires_grad == eager.hidden[0].requires_grad


def test_what_is_deleted_is_missing_as_in_an_eager_call():
    _, other = pair()
    compiled = ad.compile(lambda x: other(x))
    compiled(ad.ones(4, 3))
    before = state(other)
    del other.mean
    with pytest.raises(AttributeError, match="mean"):
        compiled(ad.ones(4, 3))
    other.register_buffer("mean", ad.tensor(before["mean"]))
    assert_alike(state(other), before)
    compiled(ad.ones(4, 3))
    assert other.steps == 2


def test_a_copy_of_a_model_has_state_of_its_own():
    model = ad.compile(pair()[0])
    model(ad.ones(4, 3))
    other = copy.deepcopy(model)
    other(ad.ones(4, 3))
    assert (model.steps, other.steps) == (1, 2)
    assert model.mean.tolist() != other.mean.tolist()


def test_variables_of_closures_and_globals_hold_what_was_computed():
    w, calls = ad.zeros(2), 0
    x = ad.ones(2)

    def step(y):
        nonlocal w, calls
        gradient = w - y
        w = (w - 0.5 * gradient).detach()
        calls += 1
        return gradient.square().sum() * calls

    compiled = ad.compile(step)
    found = [compiled(x).item() for _ in range(4)]
    assert calls == 4 and w.tolist() == [0.9375] * 2
    assert found == [2.0 * 0.25**k * (k + 1) for k in range(4)]
    assert len(compiled.programs) == 1


def test_leaves_that_are_made_anew_are_leaves():
    w = ad.ones(2, requires_grad=True)

    def step(y):
        nonlocal w
        loss = (w - y).square().sum()
        (gradient,) = ad.autograd.grad(loss, w)
        w = (w - 0.25 * gradient).detach().requires_grad_()
        return loss

    compiled = ad.compile(step)
    found = [compiled(ad.zeros(2)).item() for _ in range(4)]
    assert found == [2.0 * 0.25**k for k in range(4)]
    assert w.is_leaf and w.requires_grad and w.grad is None
    w.sum().backward()
    assert w.grad.tolist() == [1, 1]
    assert len(compiled.programs) == 1


def test_branches_on_a_number_have_programs_and_no_more():
    counts = {"steps": 0}

    def step(x):
        counts["steps"] += 1
        return x * 2 if counts["steps"] % 3 == 0 else x * counts["steps"]

    compiled = ad.compile(step)
    found = [compiled(ad.ones(1)).item() for _ in range(30)]
    assert found == [2.0 if n % 3 == 0 else n for n in range(1, 31)]
    assert counts == {"steps": 30} and len(compiled.programs) == 2


def test_a_number_that_is_read_as_a_value_and_changed_is_refused():
    model = Running()

    def step(x):
        model.steps += 1
        return x * math.cos(model.steps)

    with pytest.raises(
        Unsupported, match=r"reads the number 1, which it changes.*test_lifted_state"
    ):
        ad.compile(step)(ad.ones(2))
    assert model.steps == 0


def test_numbers_that_others_set_come_with_each_call():
    model = Running()
    batch = ad.ones(3)

    def step():
        return batch * model.warmth + model.steps

    compiled = ad.compile(step)
    for i in range(6):
        model.warmth, model.steps, batch = 0.5**i, 2 * i, ad.full((3,), 3.0 + i)
        assert compiled().tolist() == [(3.0 + i) * 0.5**i + 2 * i] * 3
    assert len(compiled.programs) == 2


def test_numbers_of_every_dtype_are_those_of_eager_operations():
    numbers = {"f": 0.1, "i": 3}

    def function(x):
        return x + numbers["i"], x * numbers["f"], numbers["f"] - x, x > numbers["i"]

    for dtype in (ad.float16, ad.bfloat16, ad.float32, ad.float64, ad.int32, ad.int64, ad.uint8):
        compiled = ad.compile(function)
        x = ad.arange(6).to(dtype)
        for f, i in ((0.1, 3), (0.7, -4), (1e-3, 1000), (2.5, 2)):
            numbers["f"], numbers["i"] = f, i
            for a, b in zip(compiled(x), function(x), strict=True):
                assert a.dtype is b.dtype
                np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=1e-6)


def test_an_error_leaves_places_as_they_are():
    model = Running()

    def step(x, index):
        model.steps += 1
        model.mean = model.mean + x.sum()
        return nn.functional.embedding(index, x)

    compiled = ad.compile(step)
    compiled(ad.ones(3, 2), ad.tensor([0, 2]))
    before = state(model)
    with pytest.raises(IndexError):
        compiled(ad.ones(3, 2), ad.tensor([0, 3]))
    assert_alike(state(model), before)
    compiled(ad.ones(3, 2), ad.tensor([0, 2]))
    assert model.steps == 2


def test_state_with_a_history_is_followed_to_where_eager_calls_refuse_it():
    model = Running()

    def step(x):
        model.last = model.linear(x) if model.last is None else model.last + model.linear(x)
        return model.last.sum()

    compiled = ad.compile(step)
    compiled(ad.ones(1, 3))
    compiled(ad.ones(1, 3))
    compiled(ad.ones(1, 3)).backward()
    assert model.linear.bias.grad.tolist() == [3, 3, 3]


def test_one_tensor_that_is_kept_and_returned_is_one():
    model = Running()

    def step(x):
        y = x * 2
        model.last = y
        both = [y, x]
        return y, both, both

    compiled = ad.compile(step)
    x = ad.ones(3)
    y, first, second = compiled(x)
    assert model.last is y and first is second and first[0] is y and first[1] is x


def test_a_place_is_set_to_a_number_that_was_equal_at_first():
    held = SimpleNamespace(steps=0, before=0, half=0.0)

    def step(x):
        held.before = held.steps
        held.steps += 1
        held.half = held.before / 2
        return x * held.before + held.half

    compiled = ad.compile(step)
    assert [compiled(ad.ones(1)).item() for _ in range(5)] == [0.0, 1.5, 3.0, 4.5, 6.0]
    assert vars(held) == {"steps": 5, "before": 4, "half": 2.0}
    assert len(compiled.programs) == 1


@pytest.mark.parametrize("kind", ["object", "dict", "list"])
def test_a_place_that_others_set_beside_one_that_the_function_sets(kind):
    held = {"object": SimpleNamespace(n=0, t=1.0), "dict": {"n": 0, "t": 1.0}, "list": [0, 1.0]}
    x = held[kind]
    x = vars(x) if kind == "object" else x
    n, t = (0, 1) if kind == "list" else ("n", "t")

    @ad.compile
    def function(y):
        x[n] += 1
        return y * x[t] + x[n]

    for k in range(5):
        x[t] = 0.5 * k
        assert function(ad.ones(1)).tolist() == [0.5 * k + k + 1]
    assert len(function.reasons) == 2


def test_views_outside_of_what_is_written_hold_arrays_again():
    """Among them arguments without elements, whose memory is no one's."""
    average = ad.zeros(3)
    part, rows = average[:2], average.expand(0, 3)

    @ad.compile
    def step(x):
        average.add_(1.0)
        return x * 2

    for n in range(1, 4):
        assert step(rows).shape == (0, 3)
        assert type(part._data) is type(rows._data) is np.ndarray
        assert part.tolist() == [n, n]
    both = average.expand(2, 3)
    with pytest.raises(Unsupported, match="shown by another tensor"):
        step(both)
    assert both.tolist() == [[3.0] * 3] * 2


@pytest.mark.parametrize("shown", [False, True])
def test_gradients_of_leaves_that_are_views(shown):
    """`ad.arange(6.0).view(2, 3).requires_grad_()` shows another tensor's memory."""
    base = ad.arange(6.0)
    held = base.view(2, 3).t().requires_grad_()

    def step(x):
        loss = (held.t() * x).sum() + x.square().sum()
        loss.backward()
        return loss

    found = []
    for function in (step, ad.compile(step)):
        for n in range(3):
            with ad.no_grad():
                base.copy_(ad.arange(6.0) + n)
            held.grad = None
            x = ad.ones(6).view(2, 3).requires_grad_() if shown else ad.ones(2, 3)
            loss = function(x)
            found.append([loss.item(), held.grad.tolist(), x.grad.tolist() if shown else None])
    assert found[3:] == found[:3]
