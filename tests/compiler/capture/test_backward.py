"""Gradients through what a compiled function returns: `ad.compile(model)` trains."""

import copy
import gc

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import AutogradError, Unsupported
from adjoint.utils.checkpoint import checkpoint
from tests.native import needs_native

pytestmark = needs_native


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 4)

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1])


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(ad.ones(6, 4))
        self.register_buffer("calls", ad.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return checkpoint(lambda y: ad.dropout(y, 0.5, True) @ self.weight, x, use_reentrant=False)


NORMED = nn.utils.parametrizations.spectral_norm
MODELS = {
    "dropout": lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 4)),
    "statistics": lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 3, 3), nn.Flatten(), nn.Linear(12, 4)
    ),
    "attention": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.TransformerEncoderLayer(6, 2, 8, batch_first=True),
        nn.Flatten(), nn.Linear(6, 4),
    ),
    "recurrent": lambda: nn.Sequential(nn.Unflatten(1, (1, 6)), Recurrent()),
    "spectral norm": lambda: nn.Sequential(NORMED(nn.Linear(6, 4)), nn.Tanh(), nn.Linear(4, 4)),
    "a buffer, checkpoint": Counted,
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_compiled_model_trains_as_it_would_eagerly(name):
    ad.manual_seed(0)
    models = [MODELS[name]()]
    models.append(copy.deepcopy(models[0]))
    compiled = ad.compile(models[1])
    batches = [(ad.randn(5, 6), ad.randint(0, 4, (5,))) for _ in range(5)]
    losses = []
    for model, call in zip(models, (models[0], compiled), strict=True):
        ad.manual_seed(1)
        optimizer = ad.optim.Adam(model.parameters(), lr=0.05)
        losses.append([])
        for x, y in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(call(x), y)
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    for key, value in models[0].state_dict().items():
        found = models[1].state_dict()[key]
        np.testing.assert_allclose(found.numpy(), value.numpy(), rtol=1e-4, atol=1e-6)
    (program,) = compiled._compiled_call.programs
    assert len(program.others) == 1  # one memory, used again


WEIGHT = ad.randn(3, 3).requires_grad_()


def several(x):
    return x @ WEIGHT, (x * 2).sum(), {"weight": WEIGHT.sum()}, x.detach(), (x @ WEIGHT).exp()


USES = {
    "one": lambda y: y[0].sum(),
    "of the argument alone": lambda y: y[1],
    "of the parameter alone": lambda y: y[2]["weight"],
    "two": lambda y: (y[0] * y[4]).sum(),
    "all": lambda y: y[0].sum() * y[1] + y[2]["weight"] * y[4].mean(),
    "a view, written": lambda y: y[0].mul_(3)[1].sum(),
}


@pytest.mark.parametrize("use", USES)
def test_gradients_of_some_results(use):
    found = []
    for function in (several, ad.compile(several)):
        leaf = ad.ones(2, 3).requires_grad_()
        for x in (leaf, leaf * 3):
            leaf.grad = WEIGHT.grad = None
            USES[use](function(x)).backward()
            found.append([leaf.grad, WEIGHT.grad])
    for (x, w), (eager_x, eager_w) in zip(found[2:], found[:2], strict=True):
        for g, expected in ((x, eager_x), (w, eager_w)):
            assert (g is None) == (expected is None)
            if g is not None:
                np.testing.assert_allclose(g.numpy(), expected.numpy(), rtol=1e-5)


def test_calls_that_wait_for_backward_have_memory_of_their_own():
    weight = ad.tensor([2.0, 3.0], requires_grad=True)
    compiled = ad.compile(lambda x: (x * weight).exp())
    given = [ad.full((2,), 0.1 * k) for k in range(5)]
    waiting = [compiled(x) for x in given]
    (program,) = compiled.programs
    assert len(program.others) == 5
    sum(y.sum() for y in waiting).backward()
    expected = sum(x.numpy() * np.exp(x.numpy() * [2.0, 3.0]) for x in given)
    np.testing.assert_allclose(weight.grad.numpy(), expected, rtol=1e-5)
    kept, waiting = weight.grad, []
    gc.collect()
    for _ in range(3):
        compiled(given[1]).sum().backward()  # accumulates
    compiled(given[2])
    assert len(program.others) == 5
    expected = expected + 3 * given[1].numpy() * np.exp(given[1].numpy() * [2.0, 3.0])
    np.testing.assert_allclose(kept.numpy(), expected, rtol=1e-5)


def test_large_gradients_that_are_kept_are_not_written_again():
    layer = nn.Linear(200, 100)
    compiled = ad.compile(layer)
    kept = []
    for k in range(3):
        layer.zero_grad()
        compiled(ad.full((4, 200), float(k))).sum().backward()
        kept.append(layer.weight.grad)
    assert [g.mean().item() for g in kept] == [0.0, 4.0, 8.0]
    (program,) = compiled._compiled_call.programs
    (flow,) = [flow for flow in program.bindings.tangents if flow.mover is not None]
    assert flow.array is None  # the leaf's alone


def test_backward_twice_and_changed_values_are_refused_as_eagerly():
    weight = ad.ones(3, requires_grad=True)
    compiled = ad.compile(lambda x: (x * weight).sum())
    x = ad.full((3,), 2.0)
    y = compiled(x)
    y.backward(retain_graph=True)
    y.backward()
    assert weight.grad.tolist() == [4.0] * 3
    with pytest.raises(AutogradError, match=r"a second time.*retain_graph"):
        y.backward()
    for changed in (x, weight):
        leaf = x.clone().requires_grad_()
        y = compiled(leaf) if changed is weight else compiled(x)
        with ad.no_grad():
            changed.add_(1)
        with pytest.raises(AutogradError, match="modified by an inplace operation"):
            y.backward()


def test_second_derivatives_are_computed_within_and_from_outside():
    def slope(x):
        return ad.autograd.grad((x**3).sum(), x, create_graph=True)[0]

    x = ad.tensor([1.0, 2.0], requires_grad=True)
    ad.compile(slope)(x).sum().backward()
    assert x.grad.tolist() == [6.0, 12.0]
    y = ad.compile(lambda x: (x**3).sum())(x)
    (g,) = ad.autograd.grad(y, x, create_graph=True)
    assert g.tolist() == [3.0, 12.0]
    g.sum().backward()
    assert x.grad.tolist() == [12.0, 24.0]


def test_hooks_of_parameters_run_once():
    weight, seen = ad.ones(2, requires_grad=True), []
    weight.register_hook(lambda g: seen.append(g.tolist()) or g * 2)
    compiled = ad.compile(lambda x: (x * weight).sum())
    for _ in range(2):
        weight.grad = None
        compiled(ad.tensor([1.0, 3.0])).backward()
        assert weight.grad.tolist() == [2.0, 6.0]
    assert seen == [[1.0, 3.0]] * 2


def test_tensors_outside_that_were_computed_pass_gradients_on():
    weight = ad.rand(3, 3).requires_grad_()
    turned, doubled = weight.t(), weight * 2

    def function(x):
        return (x @ turned @ weight @ doubled).sum()

    found = []
    for each in (function, ad.compile(function)):
        weight.grad = None
        each(ad.ones(2, 3)).backward(retain_graph=True)
        found.append(weight.grad.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_frozen_parameters_have_another_program():
    layer = nn.Linear(2, 2)
    compiled = ad.compile(layer)
    x = ad.ones(3, 2)
    compiled(x).sum().backward()
    layer.bias.requires_grad_(False)
    layer.zero_grad()
    compiled(x).sum().backward()
    assert layer.bias.grad is None and layer.weight.grad.tolist() == [[3.0, 3.0]] * 2
    layer.weight.requires_grad_(False)
    assert not compiled(x).requires_grad
    layer.requires_grad_()
    compiled(x).sum().backward()
    assert layer.bias.grad.tolist() == [3.0, 3.0]
    assert len(compiled._compiled_call.programs) == 3


def test_a_parameter_frozen_between_steps_gets_no_gradient_any_more():
    layer = nn.Linear(2, 2)

    @ad.compile
    def step(x):
        layer.zero_grad()
        loss = layer(x).sum()
        loss.backward()
        return loss

    step(ad.ones(3, 2))
    layer.bias.requires_grad_(False)
    step(ad.ones(3, 2))
    assert layer.bias.grad is None and layer.weight.grad is not None
    assert step.reasons[1] == "requires_grad of a tensor of shape (2,) was True"


def test_gradients_set_within_reach_leaves_among_the_arguments():
    def function(x):
        y = (x**2).sum()
        y.backward()
        return y

    compiled = ad.compile(function)
    for _ in range(2):
        x = ad.ones(3).requires_grad_()
        compiled(x)
        compiled(x)
        assert x.grad.tolist() == [4.0] * 3
    with pytest.raises(Unsupported, match="reaches an argument that was computed"):
        compiled(ad.ones(3).requires_grad_() * 2)


def test_leaves_made_anew_for_each_call_need_one_program():
    compiled = ad.compile(lambda x: (x**2).sum())
    for k in range(4):
        x = ad.full((3,), float(k)).requires_grad_()
        compiled(x).backward()
        assert x.grad.tolist() == [2.0 * k] * 3
    assert compiled.reasons == ["first call"]
    assert not compiled(ad.ones(3)).requires_grad
    assert compiled.reasons[1].endswith("and is (3,) float32")


@pytest.mark.parametrize("dtype", [ad.float64, ad.bfloat16, ad.complex64])
@pytest.mark.parametrize("shape", [(), (0, 3), (1, 15)])
def test_dtypes_and_sizes(dtype, shape):
    found = []
    for function in (lambda x: x * x * 3, ad.compile(lambda x: x * x * 3)):
        x = ad.full(shape, 2.0, dtype=dtype).requires_grad_()
        function(x).backward(ad.ones(shape, dtype=dtype))
        found.append(x.grad)
    assert found[0].dtype is found[1].dtype is dtype and found[0].tolist() == found[1].tolist()


def test_whether_there_is_a_gradient_is_a_guard_where_python_reads_it():
    layer = nn.Linear(2, 2)

    def norm():
        return sum([p.grad.norm() for p in layer.parameters() if p.grad is not None], ad.zeros(()))

    compiled = [ad.compile(norm), ad.compile(layer), ad.compile(lambda: layer(ad.ones(1, 2)))]
    for present in (False, True, False, True):
        layer.zero_grad()
        if present:
            layer(ad.ones(1, 2)).sum().backward()
        assert compiled[0]().item() == pytest.approx(norm().item())
        compiled[1](ad.ones(1, 2))
        compiled[2]()
    functions = compiled[0], compiled[1]._compiled_call, compiled[2]
    assert [len(each.reasons) for each in functions] == [2, 1, 1]
    assert compiled[0].reasons[1] == "a tensor of shape (2, 2) had no gradient and has one"


def test_gradients_that_are_zeros_whatever_comes_in():
    compiled = ad.compile(lambda x: (x.floor(), x * 2))
    x = ad.full((64, 64), 1.5, requires_grad=True)  # large: such gradients are written in place
    first, second = compiled(x)
    assert first.tolist() == [[1.0] * 64] * 64
    [g] = ad.autograd.grad(first.sum(), x, retain_graph=True)
    assert g.tolist() == [[0.0] * 64] * 64
    [g] = ad.autograd.grad(second.sum(), x)
    assert g.tolist() == [[2.0] * 64] * 64
    alone = ad.compile(lambda x: x.floor())
    for _ in range(2):
        [g] = ad.autograd.grad(alone(x).sum(), x)
        assert g.tolist() == [[0.0] * 64] * 64


def test_a_result_leads_to_what_it_depends_on_and_to_nothing_else():
    compiled = ad.compile(lambda x, y: (x * 2, y.floor()))
    x, y = ad.ones(3, requires_grad=True), ad.ones(3, requires_grad=True)
    first, second = compiled(x, y)
    assert ad.autograd.grad(first.sum(), [x, y], retain_graph=True, allow_unused=True)[1] is None
    found = ad.autograd.grad(second.sum(), [x, y], allow_unused=True)
    assert found[0] is None and found[1].tolist() == [0.0] * 3


@pytest.mark.parametrize("unused", [True, False])
def test_gradients_that_there_are_not_are_never_none(unused):
    x = ad.ones(3, requires_grad=True) * 2
    compiled = ad.compile(lambda x: ad.special.zeta(x, x))
    with pytest.raises(Unsupported, match="the derivative for 'zeta' is not implemented"):
        ad.autograd.grad(compiled(x).sum(), x, allow_unused=unused)
    weight = nn.Parameter(ad.ones(3))

    def step(x):
        loss = (weight * x).sum()
        loss.backward()
        return loss

    with pytest.raises(ad.AutogradError, match="what a compiled function returned"):
        ad.autograd.grad(ad.compile(step)(x.detach()), weight, allow_unused=unused)


def test_results_that_lead_to_nothing_give_nothing():
    x = ad.ones(3, requires_grad=True)
    compiled = ad.compile(lambda x: ad.linalg.vector_norm(x, 0))
    assert ad.autograd.grad(compiled(x), x, allow_unused=True) == (None,)
    compiled(x).backward()
    assert x.grad is None


def test_what_looks_at_values_says_so():
    with pytest.raises(Unsupported, match="reads a value"):
        ad.compile(lambda x: ad.unique(x * 1))(ad.eye(2))
    with ad.lazy():
        found = ad.linalg.inv_ex(ad.eye(2) * 2)[0]
    assert found.tolist() == [[0.5, 0.0], [0.0, 0.5]]


def test_a_parameter_that_is_shown_and_changed_before_backward_is_refused():
    """Backward reads a view of it, as eagerly."""
    w, x = nn.Parameter(ad.ones(8)), ad.ones(8, 3).requires_grad_()
    f = ad.compile(lambda x: (x * w.reshape(8, 1)).sin())
    f(x).sum().backward()
    y = f(x)
    with ad.no_grad():
        w.mul_(5.0)
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("mode", [ad.no_grad, ad.inference_mode])
def test_arguments_want_gradients_in_every_mode(mode):
    """Python may ask for that, and set another mode within."""

    def step(x):
        with ad.enable_grad():
            y = (x * x).sum()
        return ad.autograd.grad(y, x)[0] if x.requires_grad else x

    x = ad.ones(3, requires_grad=True)
    with mode():
        assert ad.compile(step)(x).tolist() == step(x).tolist() == [2.0] * 3


@pytest.mark.parametrize("kind", ["products", "cond", "while_loop", "scan"])
def test_a_backward_behind_a_step_refuses_what_the_step_has_changed(kind):
    """What was saved of a parameter is not what it is now: as in eager execution, an error (values
    were those of both at once).
    """
    bodies = {
        "products": lambda x, w: x * w * w,
        "cond": lambda x, w: ad.cond(x.sum() > 0, lambda a: a * w * w, lambda a: a, (x,)),
        "while_loop": lambda x, w: ad.while_loop(
            lambda k, a: k < 2, lambda k, a: (k + 1, a * w), (ad.zeros((), dtype=ad.int64), x)
        )[1],
        "scan": lambda x, w: ad.scan(lambda c, a: (c * w.sum(), a * c * w), x[0], x)[1],
    }
    w = ad.tensor([0.7], requires_grad=True)
    optimizer = ad.optim.SGD([w], lr=0.1)

    def step(x, again):
        optimizer.zero_grad()
        loss = bodies[kind](x, w).square().sum()
        loss.backward(retain_graph=again)
        optimizer.step()
        if again:
            loss.backward()
        return loss

    compiled = ad.compile(step)
    x = ad.ones(3)
    outside = (w * w).sum()  # which a capture that fails leaves as it was
    before = w.detach().clone()
    for function in (step, compiled):
        with ad.no_grad():
            w.copy_(before)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            function(x, True)
    with ad.no_grad():
        w.copy_(before)
    outside = (w * w).sum()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            compiled(x, True)
        compiled.graph(x, False)
    assert ad.equal(w, before)
    outside.backward()
    assert len(compiled.programs) == 0
    compiled(x, False)
    assert len(compiled.programs) == 1 and not ad.equal(w, before)


@pytest.mark.parametrize("replaced", ["parameter", "argument"])
def test_data_that_are_others_at_backward_are_refused(replaced):
    """Eagerly they enter gradients; a program has the memory that it read."""
    w = ad.randn(3, 3).requires_grad_()
    x = ad.randn(2, 3).requires_grad_()
    product = ad.compile(lambda x: x @ w)
    y = product(x)
    other = w if replaced == "parameter" else x
    before = other.data
    other.data = before * 2
    with pytest.raises(AutogradError, match=r"other data \(x.data = ...\)"):
        y.sum().backward()
    other.data = before * 3
    y = product(x)
    y.sum().backward()
    assert ad.allclose(w.grad, x.detach().t() @ ad.ones(2, 3))


def test_gradients_of_products_without_rows():
    w = ad.zeros(0, 1, requires_grad=True)
    y = ad.compile(lambda x: nn.functional.linear(x, w))(ad.zeros(0, 1))
    y.sum().backward()
    assert y.shape == (0, 0) and w.grad.shape == (0, 1)


def test_gradients_that_a_backward_outside_would_set():
    """A checkpoint runs a backward within the backward: what it adds is not there before."""
    w = ad.ones(3, dtype=ad.float64, requires_grad=True)

    def step(x):
        y = checkpoint(lambda v: (v * w.sum()).sin(), x, use_reentrant=True)
        loss = x.sin().sum() + (y * y).mean() + (x * x).mean()
        loss.backward(retain_graph=True)
        return loss

    found = []
    for function in (step, ad.compile(step)):
        for _ in range(2):
            w.grad = None
            x = ad.arange(3.0, dtype=ad.float64).reshape(1, 3).requires_grad_()
            loss = function(x)
            found.append((w.grad.clone(), x.grad.clone()))
    for a, b in found[2:]:
        assert ad.allclose(a, found[0][0]) and ad.allclose(b, found[0][1])
    with pytest.raises(AutogradError, match="sets gradients"):
        loss.backward()
