"""`ad.compile`: arguments of any form, modes, recompiles, random numbers, modules, refusals."""

import copy
import dataclasses
import pickle
import re
import threading
import warnings
import weakref
from collections import OrderedDict, namedtuple
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.compiler.capture.step_capture import CAPTURING
from adjoint.core import policy
from adjoint.core.errors import AutogradError, InvalidArgument, InvalidType, ShapeError, Unsupported
from adjoint.runtime.lazy import LazyValue
from adjoint.utils.checkpoint import checkpoint
from tests.native import needs_native

pytestmark = needs_native
GENERATOR = ad.Generator()
Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class Output:
    loss: ad.Tensor
    count: int


def test_arguments_and_results_in_any_form():
    def function(batch, scale, *rest, pair=None, name="a", flag=True):
        x = batch["x"] * scale + rest[0][1] + pair.first - pair.second
        out = x if flag else -x
        return {"out": out, name: (out.sum(), [None, 3, x.shape, ad.float32])}, Output(x.mean(), 2)

    compiled = ad.compile(function)
    x, y = ad.randn(4, 3), ad.randn(3)
    for scale, name, flag in (
        (2.0, "a", True),
        (2, "a", True),
        (-0.0, "b", False),
        (0.0, "b", False),
    ):
        given = ({"x": x}, scale, [0, y]), {"pair": Pair(x, y), "name": name, "flag": flag}
        found, second = compiled(*given[0], **given[1])
        expected, other = function(*given[0], **given[1])
        assert found["out"].tolist() == expected["out"].tolist()
        assert found[name][0].item() == pytest.approx(expected[name][0].item(), rel=1e-6)
        assert found[name][1] == expected[name][1]
        assert type(second) is Output and second.count == 2
        assert second.loss.item() == pytest.approx(other.loss.item(), abs=1e-6)
    assert len(compiled.programs) == 4
    compiled({"x": x}, 2.0, [0, y], pair=Pair(x, y))  # defaults are not named
    assert len(compiled.programs) == 5


def test_one_tensor_twice_is_not_two():
    compiled = ad.compile(lambda x, y: (x is y, x * y))
    x, y = ad.randn(3), ad.randn(3)
    for a, b in ((x, x), (x, y), (y, y), (y, x)):
        same, product = compiled(a, b)
        assert same == (a is b)
        assert product.tolist() == (a * b).tolist()
    assert len(compiled.programs) == 2


def test_what_was_there_before_is_returned_itself():
    weight = nn.Parameter(ad.randn(3))
    compiled = ad.compile(lambda x: (weight, x, x * weight))
    for _ in range(2):
        x = ad.randn(3)
        found = compiled(x)
        assert found[0] is weight and found[1] is x
        assert found[2].tolist() == (x * weight).tolist()


def test_an_ordered_dict_is_returned_as_such():
    compiled = ad.compile(lambda x: OrderedDict(a=x + 1, b=x.sum()))
    for _ in range(2):
        found = compiled(ad.ones(2))
        assert type(found) is OrderedDict and list(found) == ["a", "b"]
        assert found["a"].tolist() == [2, 2]


def test_models_and_optimizers_as_arguments():
    def train(model, optimizer, x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    compiled = ad.compile(train)
    ad.manual_seed(0)
    first = nn.Linear(3, 2), nn.Linear(3, 2)
    models = [*first, *copy.deepcopy(first)]
    optimizers = [ad.optim.Adam(m.parameters(), lr=0.1) for m in models]
    for i in range(4):
        x, y = ad.full((4, 3), i + 1.0), ad.ones(4, 2)
        for k in range(2):
            found = compiled(models[k], optimizers[k], x, y).item()
            expected = train(models[k + 2], optimizers[k + 2], x, y).item()
            assert found == pytest.approx(expected, rel=1e-5)
    assert len(compiled.programs) == 2


def test_modes_have_programs_of_their_own():
    layer = nn.Linear(3, 2)
    compiled = ad.compile(lambda x: layer(x))
    x = ad.randn(4, 3)
    assert compiled(x).requires_grad
    with ad.no_grad():
        assert not compiled(x).requires_grad
    with ad.autocast("cpu", dtype=ad.bfloat16):
        assert compiled(x).dtype is ad.bfloat16
        assert compiled(x).tolist() == layer(x).tolist()
    with ad.inference_mode():
        assert not compiled(x).requires_grad
    assert compiled(x).dtype is ad.float32
    assert len(compiled.programs) == 4
    assert "grad mode was True and is False" in compiled.reasons[1]


def test_each_program_says_why_and_their_number_is_bounded():
    factors = [1.0]

    def function(x):
        return x * factors[0]

    compiled = ad.compile(function, recompile_limit=3, dynamic=False, fallback="eager")
    compiled(ad.ones(2))
    compiled(ad.ones(3))
    factors[0] = 5.0
    assert compiled(ad.ones(3)).tolist() == [5.0] * 3
    *before, last = compiled.reasons
    assert before == ["first call", "argument 0 was (2,) float32 and is (3,) float32"]
    assert re.fullmatch(r"what factors contains was changed, read \(.*test_function.*\)", last)
    with pytest.warns(UserWarning, match=r"3 programs.*argument 0 was .* is \(7,\).*run eagerly"):
        assert compiled(ad.ones(7)).tolist() == [5.0] * 7
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled(ad.ones(9)).tolist() == [5.0] * 9
        assert compiled(ad.ones(3)).tolist() == [5.0] * 3
    assert len(compiled.programs) == 3
    with pytest.raises(Unsupported, match="has 1 programs"):
        once = ad.compile(function, recompile_limit=1, dynamic=False, fullgraph=True)
        once(ad.ones(1)), once(ad.ones(2))


def changing(limit=16, **options):
    """A compiled function of which each call needs a program, for the text has changed."""
    return ad.compile(lambda x, name: x * len(name), recompile_limit=limit, **options)


def test_a_warning_at_4_and_at_8_programs_names_what_changes(monkeypatch):
    monkeypatch.setattr(policy, "COMPILED_WARNED", policy.LIMITS["COMPILED_WARNED"].value)
    compiled = changing()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(1, 12):
            compiled(ad.ones(2), "x" * n)
    said = [str(each.message) for each in caught]
    assert [each.partition(",")[0] for each in said] == [
        "compile: <lambda> has 4 programs", "compile: <lambda> has 8 programs"
    ]  # fmt: skip
    assert "argument 1 was 'xxx' and is 'xxxx' (3 times)" in said[0]
    assert "past 16 programs (recompile_limit) calls run eagerly" in said[0]
    assert {each.filename for each in caught} == {__file__}
    assert len(compiled.programs) == 11


def test_sizes_that_one_capture_stands_for_are_no_reason_to_warn(monkeypatch):
    monkeypatch.setattr(policy, "COMPILED_WARNED", 2)
    compiled = ad.compile(lambda x: x * 2)
    for n in range(12):
        assert compiled(ad.ones(n)).shape == (n,)
    assert len(compiled.programs) == 12


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_at_the_limit_calls_run_eagerly_whatever_cannot_be_captured_means(limit):
    compiled = changing(limit)  # with fallback="error"
    with pytest.warns(UserWarning, match=f"has {limit} programs, and would need") as caught:
        for n in range(1, 6):
            assert compiled(ad.ones(2), "x" * n).tolist() == [n, n]
    assert [each.filename for each in caught] == [__file__]
    assert len(compiled.programs) == limit
    with pytest.raises(Unsupported, match=f"has {limit} programs, and would need"):
        whole = changing(limit, fullgraph=True)
        for n in range(1, 6):
            whole(ad.ones(2), "x" * n)


def test_numbers_among_arguments_are_inputs_from_the_second_value_on():
    """Whatever is made of them: a factor, a branch, a size, a keyword."""

    def function(x, t, n=1, *, rate=0.5):
        y = x * t if t > 3 else x + t
        return (y * rate**2).repeat(n)

    compiled = ad.compile(function)
    x = ad.ones(2)
    for k in range(12):
        for given, named in (((k,), {}), ((k, 2), {"rate": k / 4}), ((k / 2,), {"rate": 2})):
            ad.testing.assert_close(compiled(x, *given, **named), function(x, *given, **named))
    assert len(compiled.programs) < 12
    factor = ad.compile(lambda x, t: x * t)
    assert [factor(x, k / 2).tolist() for k in range(40)] == [[k / 2] * 2 for k in range(40)]
    assert factor.reasons == ["first call", "argument 1 was 0.0 and is a number (float)"]


def test_numbers_that_several_threads_give_are_those_of_their_calls():
    factor = ad.compile(lambda x, t: x * t)
    factor(ad.ones(1), 0.0), factor(ad.ones(1), 1.0)
    wrong = []

    def call(k):
        for n in range(200):
            t = 1000.0 * k + n
            wrong.extend([t] if factor(ad.ones(1), t).item() != t else [])

    threads = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong and len(factor.programs) == 2


def test_numbers_that_must_be_known_are_constants_and_their_programs_bounded():
    compiled = ad.compile(lambda x, n: x.repeat(n), recompile_limit=3)
    with pytest.warns(UserWarning, match=r"has 3 programs.*which the function read, was 3 and is"):
        for n in range(1, 9):
            assert compiled(ad.ones(2), n).shape == (2 * n,)
    assert len(compiled.programs) == 3


def test_fallback_and_the_line_of_what_cannot_be_captured():
    def branches(x):
        if x.sum() > 0:
            return x * 2
        return x

    with pytest.raises(Unsupported, match=r"reads a value.*test_function\.py:\d+, in branches"):
        ad.compile(branches)(ad.ones(2))
    eager = ad.compile(branches, fallback="eager")
    with pytest.warns(UserWarning, match="branches runs eagerly: the function reads a value"):
        assert eager(ad.ones(2)).tolist() == [2, 2]
    assert eager(-ad.ones(2)).tolist() == [-1, -1]


@pytest.mark.parametrize("held", [np.float64(2.0), {1, 2}, len, np.ones(2)])
def test_a_result_that_programs_do_not_return_is_refused_or_falls_back(held):
    def both(x):
        return x * 2, held

    with pytest.raises(InvalidType, match="the function returned a"):
        ad.compile(both)(ad.ones(2))
    with pytest.raises(Unsupported, match="the function returned a"):
        ad.compile(both)(ad.ones(2))
    eager = ad.compile(both, fallback="eager")
    with pytest.warns(UserWarning, match="both runs eagerly: the function returned a"):
        y, other = eager(ad.ones(2))
    assert y.tolist() == [2, 2] and other is held


def test_errors_of_the_function_are_its_own_and_change_nothing():
    layer, seen = nn.Linear(3, 2), []

    def fails(x):
        seen.append(1)
        return layer(x @ x)

    with pytest.raises(RuntimeError, match="matmul"):
        ad.compile(fails)(ad.ones(2, 3))
    assert seen == [] and type(layer.weight._data) is np.ndarray


def test_results_whose_history_is_over_have_no_gradient_and_say_why():
    layer = nn.Linear(3, 2)
    optimizer = ad.optim.SGD(layer.parameters(), lr=0.1)
    buffer = ad.ones(2)

    def released(x):
        loss = layer(x).sum()
        loss.backward()
        return loss

    def stepped(x):
        loss = released(x)
        optimizer.step()
        return loss

    def overwritten(x):
        found = layer(x) * buffer.clone()
        buffer.add_(1)
        return found.sum()

    def passed_on(x):
        return (released(x), layer(x).sum())

    for function, reason in (
        (released, "a second time"),
        (stepped, "an optimizer has stepped"),
        (passed_on, "a second time"),
    ):
        found = ad.compile(function)(ad.ones(4, 3))
        first = found[0] if isinstance(found, tuple) else found
        assert first.requires_grad
        for y in (first, first * 2):
            with pytest.raises(AutogradError, match=f"{reason}.*call backward within"):
                y.backward()
    layer.zero_grad()
    found[1].backward()
    assert layer.bias.grad.tolist() == [4.0, 4.0]
    ad.compile(overwritten)(ad.ones(4, 3)).backward()
    assert layer.bias.grad.tolist() == [8.0, 8.0] and buffer.tolist() == [2.0, 2.0]


BLOCK = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)


def _checkpointed(x):
    BLOCK.zero_grad()
    checkpoint(BLOCK, x[None], use_reentrant=False)[..., :3].exp().sum().backward()
    return BLOCK.linear1.weight.grad.clone()


DRAWS = {
    "dropout": lambda x: ad.dropout(x, 0.5, True),
    "two kinds": lambda x: x + ad.randn(6, 8) * ad.rand(8),
    "two generators": lambda x: x + ad.randn(6, 8, generator=GENERATOR) * ad.randn(6, 8),
    "of tensors": lambda x: ad.bernoulli(x.sigmoid()) + ad.rand_like(x) + ad.randperm(8),
    "unused": lambda x: (ad.rand(3), x * ad.rand(6, 8))[1],
    "in place": lambda x: x.clone().normal_() + ad.empty(6, 8).exponential_(),
    "integers": lambda x: ad.multinomial(x.softmax(1), 3) + ad.randint(0, 9, (6, 3)),
    "a distribution": lambda x: ad.distributions.Gamma(x.exp(), 1.0, validate_args=False).rsample(),
    "a layer": lambda x: BLOCK(x[None]).detach(),
    "checkpoint": _checkpointed,
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_are_those_of_eager_calls(name):
    function = DRAWS[name]
    x, compiled = ad.randn(6, 8), ad.compile(DRAWS[name])

    def runs(call, seed):
        ad.manual_seed(seed), GENERATOR.manual_seed(0)
        found = [call(x).tolist() for _ in range(3)]
        return found, ad.get_rng_state().tolist(), GENERATOR.get_state().tolist()

    for seed in (0, 1):
        (expected, *states), (found, *others) = runs(function, seed), runs(compiled, seed)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        assert others == states
    assert len(compiled.programs) == 1


def test_a_failed_run_draws_nothing():
    compiled = ad.compile(lambda x, i: ad.dropout(x, 0.5, True)[i])
    x = ad.ones(5)
    compiled(x, ad.tensor([1]))
    state = ad.get_rng_state().tolist()
    with pytest.raises(IndexError):
        compiled(x, ad.tensor([7]))
    assert ad.get_rng_state().tolist() == state


def test_a_seed_set_within_is_refused():
    def seeds(x):
        ad.rand(2)
        ad.manual_seed(3)
        return x + ad.rand(2)

    ad.manual_seed(1)
    with pytest.raises(Unsupported, match="sets the seed"):
        ad.compile(seeds)(ad.ones(2))
    assert ad.initial_seed() == 1


def test_a_compiled_module_stands_for_the_module():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5))
    compiled = ad.compile(model)
    x = ad.randn(5, 3)
    compiled.eval()
    assert not model.training and not compiled._orig_mod[1].training
    np.testing.assert_allclose(compiled(x).tolist(), model(x).tolist(), rtol=1e-6)
    assert list(compiled.state_dict()) == ["_orig_mod.0.weight", "_orig_mod.0.bias"]
    assert list(map(id, compiled.parameters())) == list(map(id, model.parameters()))
    model.train()
    assert compiled.training and not compiled.eval().training
    model[0] = nn.Linear(3, 2)
    assert compiled(x).shape == (5, 2)
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        np.testing.assert_allclose(other(x).tolist(), model(x).tolist(), rtol=1e-6)
        assert other._orig_mod is not model


def test_a_module_compiled_in_place_keeps_its_hooks():
    model, seen = nn.Linear(3, 2), []
    x = ad.randn(4, 3)
    expected = model(x)
    model.compile()
    model.register_forward_hook(lambda *_: seen.append(1))
    for _ in range(2):
        np.testing.assert_allclose(model(x).tolist(), expected.tolist(), rtol=1e-6)
    assert seen == [1, 1]
    other = copy.deepcopy(model)
    with ad.no_grad():
        other.weight.zero_()
    np.testing.assert_allclose(model(x).tolist(), expected.tolist(), rtol=1e-6)
    assert other(x).tolist() == [other.bias.tolist()] * 4
    assert list(model.state_dict()) == ["weight", "bias"]


def test_methods_and_nested_functions():
    class Scaler:
        def __init__(self, factor):
            self.factor = factor

        @ad.compile
        def scale(self, x):
            return double(x) * self.factor

    double = ad.compile(lambda x: x * 2)
    first, second = Scaler(3.0), Scaler(4.0)
    for scaler, expected in ((first, 6.0), (second, 8.0), (first, 6.0)):
        assert scaler.scale(ad.ones(1)).item() == expected
    assert double.programs == []
    assert double(ad.ones(1)).item() == 2


@pytest.mark.parametrize("mode", [None, "pieces"])
def test_a_nested_function_has_second_derivatives_in_a_first_step_that_runs_eagerly(mode):
    """SGD with momentum has no buffer yet: nothing within is compiled, so all is differentiable."""

    def trained(compiled):
        x = ad.linspace(-1, 1, 8).reshape(4, 2)
        ad.manual_seed(0)
        model = ad.nn.Sequential(ad.nn.Linear(2, 3), ad.nn.Tanh(), ad.nn.Linear(3, 1))
        inner = ad.compile(model, mode=mode) if compiled else model
        optimizer = ad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x):
            optimizer.zero_grad()
            x = x.detach().requires_grad_()
            (slope,) = ad.autograd.grad(inner(x).sum(), x, create_graph=True)
            loss = (slope**2).sum()
            loss.backward()
            optimizer.step()
            return loss

        step = ad.compile(step) if compiled else step
        return [step(x).item() for _ in range(3)], [p.tolist() for p in model.parameters()], inner

    found, expected = trained(True), trained(False)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    for p, q in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-4, atol=1e-6)
    x = ad.ones(1, 2)  # outside it is compiled, with other values than the mode of that step had
    np.testing.assert_allclose(found[2](x).tolist(), expected[2](x).tolist(), rtol=1e-4)


def test_inside_lazy_execution_and_graphs_it_is_recorded():
    compiled = ad.compile(lambda x: x.exp() * 2)
    with ad.lazy():
        assert compiled(ad.zeros(3)).tolist() == [2, 2, 2]
    assert compiled.programs == []


def test_options():
    assert ad.compile(len, disable=True) is len
    assert ad.compile(len, backend="eager") is len
    assert ad.compile(mode="reduce-overhead", fullgraph=True)(abs)(ad.tensor(-1.0)).item() == 1
    for wrong in ({"mode": "fast"}, {"backend": "tvm"}, {"fallback": 1}):
        with pytest.raises(InvalidArgument):
            ad.compile(len, **wrong)
    with pytest.raises(TypeError):
        ad.compile(3)
    with pytest.raises(TypeError, match="dynamic='yes'; it is True, False or None"):
        ad.compile(len, dynamic="yes")
    assert repr(ad.compile(len, name="size", options={"max_autotune": True})) == "<compiled size>"
    with pytest.raises(Unsupported, match="shapes_spec"):
        ad.compile(len, shapes_spec={})


def test_gradients_are_added_up_whatever_tensors_hold_them():
    def steps(compile_it):
        ad.manual_seed(0)
        layer = nn.Linear(3, 2)
        optimizer = ad.optim.SGD(layer.parameters(), lr=0.1)
        step = compile_it(lambda x: layer(x).pow(2).mean().backward())
        seen = []
        for i in range(12):
            step(ad.full((4, 3), float(i)))
            seen.append([p.grad.tolist() for p in layer.parameters()])
            if i == 5:
                layer.weight.grad = ad.ones(2, 3)
            if i % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
        return seen, step

    (expected, _), (found, step) = steps(lambda f: f), steps(ad.compile)
    for a, b in zip(found, expected, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5)
    assert len(step.programs) == 2


def test_gradients_cleared_at_the_end_are_not_forgotten_at_the_begin():
    def steps(compile_it):
        ad.manual_seed(0)
        layer = nn.Linear(3, 2)
        optimizer = ad.optim.SGD(layer.parameters(), lr=0.1)

        def step(x):
            layer(x).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        step, seen = compile_it(step), []
        for i in range(8):
            if i in (3, 6):
                layer.weight.grad = ad.ones(2, 3)
            step(ad.full((4, 3), float(i)))
            seen.append(layer.weight.tolist())
            assert layer.weight.grad is None and layer.bias.grad is None
        return seen

    np.testing.assert_allclose(steps(ad.compile), steps(lambda f: f), rtol=1e-5)


def test_a_failed_capture_leaves_gradients_there():
    layer = nn.Linear(3, 2)
    layer(ad.ones(1, 3)).sum().backward()
    kept = layer.weight.grad

    def step(x):
        layer.zero_grad()
        return float(layer(x).sum())

    with pytest.raises(Unsupported, match="reads a value"):
        ad.compile(step)(ad.ones(1, 3))
    assert layer.weight.grad is kept


def test_checks_of_values_are_made_at_each_run_before_anything_is_changed():
    layer = nn.Linear(3, 1)
    optimizer = ad.optim.SGD(layer.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy(layer(x).sigmoid() * y[0], y[1])
        loss.backward()
        optimizer.step()
        return loss

    compiled = ad.compile(step)
    x, good, wrong = ad.ones(4, 3), ad.ones(2, 4, 1), ad.full((2, 4, 1), 9.0)
    for _ in range(2):
        compiled(x, good)
    before = [p.tolist() for p in layer.parameters()]
    with pytest.raises(InvalidArgument, match="between 0 and 1"):
        compiled(x, wrong)
    assert [p.tolist() for p in layer.parameters()] == before
    compiled(x, good)
    assert len(compiled.programs) == 1
    with pytest.raises(InvalidArgument, match="between 0 and 1"):
        ad.compile(nn.functional.binary_cross_entropy)(ad.full((2,), 2.0), ad.ones(2))


def test_threads_that_call_first_at_once_capture_one_after_another():
    ad.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)])
    x = ad.randn(4, 8)
    expected = model(x).tolist()
    compiled = [ad.compile(lambda x, k=k: (model(x), k)) for k in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda f: f(x)[0].tolist(), compiled * 5))
    for each in found:
        np.testing.assert_allclose(each, expected, rtol=1e-5, atol=1e-6)
    assert all(len(f.programs) == 1 for f in compiled)


def test_a_run_waits_while_another_thread_captures():
    """A capture that begins when a run has begun: its symbols are no memory to connect to."""
    model = nn.Linear(3, 2)
    x = ad.randn(4, 3)
    compiled = ad.compile(lambda x: model(x).detach())
    expected = compiled(x).tolist()
    array = model.weight._data
    with CAPTURING, ThreadPoolExecutor(1) as pool:
        model.weight._data = LazyValue(None, (), array.shape, array.dtype)
        running = pool.submit(compiled.programs[0].run, [x])
        assert wait([running], 0.2).not_done
        model.weight._data = array
        CAPTURING.release()
        found, _ = running.result(60)
        CAPTURING.acquire()
    assert found.tolist() == expected


def test_what_a_call_lets_go_of_may_call_another():
    """A finalizer of the gradient that a step replaces runs in the middle of the call."""
    model = nn.Linear(3, 2)
    x = ad.randn(4, 3)
    other = ad.compile(lambda x: x * 2)
    other(x)
    found = []

    @ad.compile
    def step(x):
        model.zero_grad()
        model(x).sum().backward()

    model(x).sum().backward()
    weakref.finalize(model.weight.grad, lambda: found.append(other(x)))
    running = threading.Thread(target=step, args=(x,), daemon=True)
    running.start()
    running.join(60)
    assert not running.is_alive()
    assert found[0].tolist() == (x * 2).tolist()


def test_narrow_parameters_and_their_gradients():
    ad.manual_seed(0)
    models = [nn.Linear(4, 3).to(ad.bfloat16)]
    models.append(copy.deepcopy(models[0]))

    def step_of(model):
        optimizer = ad.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            optimizer.step()
            return loss

        return step

    eager, compiled = step_of(models[0]), ad.compile(step_of(models[1]))
    for i in range(4):
        x = ad.full((2, 4), i / 4, dtype=ad.bfloat16)
        assert compiled(x).item() == pytest.approx(eager(x).item(), rel=0.02)
        np.testing.assert_allclose(models[1].weight.tolist(), models[0].weight.tolist(), 0.05, 0.01)
    assert len(compiled.programs) == 1


@pytest.mark.parametrize("count", [16, 100_000])
def test_results_and_gradients_that_are_views_of_what_was_given(count):
    sliced = ad.compile(lambda x: (x[1:], x * 2, x.reshape(4, -1).t()))
    padded = ad.compile(lambda x: nn.functional.pad(x, (1, 1)))
    for k in range(3):
        x = ad.arange(count).float() + k
        part, double, turned = sliced(x)
        assert part.tolist() == x[1:].tolist() and double.tolist() == (2 * x).tolist()
        assert turned.tolist() == x.reshape(4, -1).t().tolist()
        x.requires_grad_()
        g = ad.arange(count + 2).float() * k
        padded(x).backward(g)
        assert x.grad.tolist() == g[1:-1].tolist()


def attention(x):
    """Heads as nanoGPT takes them: views of the parts of one product."""
    q, k = ((x * 2).chunk(2, -1)[n].view(2, 3, 2, 2).transpose(1, 2) for n in (0, 1))
    return (q @ k.mT).sum()


def test_shapes_and_strides_of_what_is_recorded_are_known_without_its_values():
    x = ad.randn(2, 3, 8)
    ad.testing.assert_close(ad.compile(attention)(x), attention(x))

    def told(x):
        y = (x * 2).chunk(2, -1)[1]
        return y * 1, y.stride(), y.is_contiguous(), y.storage_offset(), y.mT.stride(1)

    (found, *said), (wanted, *expected) = ad.compile(told)(x), told(x)
    assert said == expected == [(24, 8, 1), False, 4, 1]
    ad.testing.assert_close(found, wanted)
    for function in (lambda x: x.mT.view(-1), lambda x: (x * 2).mT.view(-1)):
        with pytest.raises(ShapeError, match=r"view size \[-1\] is not compatible"):
            ad.compile(function)(x)
    with ad.lazy():
        y = (x * 2).view(6, 8)
        assert y._data.array is None  # computed when it is read, and no sooner
    ad.testing.assert_close(y, (x * 2).reshape(6, 8))


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_may_change_without_end(dynamic, monkeypatch):
    monkeypatch.setattr(policy, "COMPILED_SIZES", 4)
    factors = [1.0]

    def function(x):
        y = x.cumsum(0) * factors[0] / x.shape[0]
        return y if x.shape[0] != 13 else -y  # the function's Python runs for each size

    compiled = ad.compile(function, dynamic=dynamic, recompile_limit=2)
    for n in (*range(9, 16), 0, 1, 257, 257):
        x = ad.arange(n).float()
        ad.testing.assert_close(compiled(x), function(x))
    assert len(compiled.reasons) == 10
    assert len(compiled.programs) == 4
    with pytest.warns(UserWarning, match="compiled again for sizes"):
        ad.testing.assert_close(compiled(ad.ones(9)), function(ad.ones(9)))
    compiled(ad.ones(3, 2))  # another number of dimensions is another program
    with pytest.warns(UserWarning, match=r"2 programs.*float32 and is \(3,\) float64"):
        compiled(ad.ones(3, dtype=ad.float64))


def test_programs_for_many_sizes_are_bounded_by_their_memory(monkeypatch):
    monkeypatch.setattr(policy, "COMPILED_BYTES", 4 << 20)
    for wants in (False, True):  # what waits for a backward is the call's own
        compiled = ad.compile(lambda x: (x.exp() @ x.exp()).sin())
        for n in range(150, 170):
            compiled(ad.ones(n, n, requires_grad=wants))
        assert len(compiled.programs) in (range(2, 10) if wants else [20])
        assert sum(each.bytes for each in compiled.programs) <= 4 << 20


def test_regions_for_profiles_have_no_effect_and_leave_nothing_open():
    region = ad.profiler.record_function("outside")
    model = nn.Linear(3, 3)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)

    @ad.compile
    def step(x):
        with region:
            with ad.autograd.profiler.record_function(f"of {x.shape[0]}", "a text"):
                loss = model(x).exp().sum()
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        return loss

    losses = [step(ad.ones(2, 3)).item() for _ in range(3)]
    assert losses[2] < losses[1] < losses[0]
    assert step.reasons == ["first call"] and region._open == []
    with ad.profiler.profile() as prof:
        step(ad.ones(2, 3))
        step(ad.ones(4, 3))  # is compiled meanwhile
    names = [event.name for event in prof.events()]
    assert names.count("Compiled#step") == 2
    assert "outside" not in names and "of 4" not in names
    assert region._open == []

    @ad.compile
    def fails(x):
        with region:
            return x.item()

    with pytest.raises(RuntimeError, match="reads a value"):
        fails(ad.ones(()))
    assert region._open == []


def test_what_nothing_is_done_with_is_returned_itself():
    """Also where nothing else is done with it: a parameter as argument, a tensor of a closure."""
    w = ad.nn.Parameter(ad.ones(2))
    held = ad.ones(3, requires_grad=True)
    function = ad.compile(lambda x: {"given": x.contiguous(), "held": held, "made": ad.zeros(2)})
    for _ in range(2):
        found = function(w)
        assert found["given"] is w and found["held"] is held
    assert function(w)["made"] is not found["made"]
    (found["given"].sum() + found["held"].sum()).backward()
    assert w.grad.tolist() == [1.0, 1.0] and held.grad.tolist() == [1.0, 1.0, 1.0]
