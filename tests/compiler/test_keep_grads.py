"""`keep_grads=False`: gradients go into the optimizer, and no memory is kept for them."""

import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import InvalidArgument, RecordingError, Unsupported
from tests.native import needs_native

pytestmark = needs_native


class Case:
    """A model with an optimizer, and a step of both."""

    def __init__(self, make=ad.optim.Adam, clears=True):
        ad.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(30, 40, bias=False), nn.Tanh(), nn.Linear(40, 2, bias=False)
        )
        self.optimizer = make(self.model.parameters(), lr=0.01)
        self.clears = clears

    def step(self, x):
        if self.clears:
            self.optimizer.zero_grad()
        loss = self.model(x).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss

    @property
    def gradients(self):
        return [p.grad for p in self.model.parameters() if p.grad is not None]


x = ad.ones(5, 30)


@pytest.mark.parametrize("make", [ad.optim.Adam, ad.optim.SGD, ad.optim.Muon, ad.optim.Adafactor])
@pytest.mark.parametrize("clears", [True, False])
def test_parameters_are_as_ever_and_gradients_none(make, clears):
    kept, dropped = Case(make), Case(make, clears)
    step, usual = ad.compile(dropped.step, keep_grads=False), ad.compile(kept.step)
    for n in (5, 5, 5, 3):
        wanted = usual(x[:n])
        assert abs(step(x[:n]).item() - wanted.item()) < 1e-6
        stepped = [p for group in dropped.optimizer.param_groups for p in group["params"]]
        assert [p.grad for p in stepped] == [None] * len(stepped)
    pairs = zip(kept.model.parameters(), dropped.model.parameters(), strict=True)
    for p, q in pairs:
        ad.testing.assert_close(p, q)
    assert len(step.programs) == len(usual.programs)


def test_no_bytes_are_kept_for_gradients():
    kept, dropped = Case(), Case()
    found = []
    for case, keeps in ((kept, True), (dropped, False)):
        step = ad.compile(case.step, keep_grads=keeps)
        step(x)
        found.append(step.explain(x))
        [program] = step.programs
        assert bool(program.landing.homes) is keeps
    size = sum(p.numel() * 4 for p in kept.model.parameters())
    assert [each.gradients for each in found] == [size, 0]
    assert "gradients that are kept (.grad): none" in str(found[1])
    assert "gradients that are kept (.grad): 5.0 KiB" in str(found[0])
    assert found[1].memory < found[0].memory + size


def test_a_step_that_a_scaler_skips_drops_them_too():
    case = Case(ad.optim.SGD)
    scaler = ad.amp.GradScaler("cpu", init_scale=4.0)

    @ad.compile(keep_grads=False)
    def step(x):
        scaler.scale(case.model(x).square().mean()).backward()
        scaler.step(case.optimizer)
        scaler.update()

    for value in (float("inf"), 1.0, float("inf"), 1.0):
        before = case.model[0].weight.tolist()
        step(x * value)
        assert case.gradients == []
        assert (case.model[0].weight.tolist() == before) is (value != 1.0)


def test_what_would_lose_a_gradient_is_refused():
    case = Case()
    case.step(x)
    with pytest.raises(Unsupported, match="no optimizer steps"):
        ad.compile(lambda x: case.model(x).sum().backward(), keep_grads=False)(x)
    with pytest.raises(Unsupported, match="no optimizer steps"):
        ad.compile(case.model, keep_grads=False)(x)

    def returns(x):
        case.step(x)
        return {"gradient": [case.model[0].weight.grad]}

    with pytest.raises(Unsupported, match="returns the gradient"):
        ad.compile(returns, keep_grads=False)(x)
    case.clears = False
    step = ad.compile(case.step, keep_grads=False)
    with pytest.raises(Unsupported, match="was there before it; call zero_grad"):
        step(x)
    case.optimizer.zero_grad()
    step(x)
    step(x)
    case.model[0].weight.grad = ad.ones(40, 30)  # by others, meanwhile
    with pytest.raises(Unsupported, match="was there before it; call zero_grad"):
        step(x)
    with pytest.raises(InvalidArgument, match="keep_grads"):
        ad.compile(case.model, keep_grads=False, mode="pieces")
    with ad.Graph(), pytest.raises(RecordingError):
        step(x)


def test_gradients_of_others_are_kept():
    case, table = Case(), ad.ones(5, 30, requires_grad=True)

    @ad.compile(keep_grads=False)
    def step(x):
        case.optimizer.zero_grad()
        table.grad = None
        case.model(x * table).sum().backward()
        case.optimizer.step()

    for _ in range(3):
        step(x)
        assert case.gradients == [] and table.grad is not None


@pytest.mark.parametrize("way", ["eager", "disable", "pieces", "fallback", "inner", "pickled"])
def test_other_ways_drop_them_too(way):
    case = Case()
    if way == "eager":
        step = ad.compile(case.step, keep_grads=False, backend="eager")
    elif way == "disable":
        step = ad.compile(case.step, keep_grads=False, disable=True)
    elif way == "pieces":
        step = ad.compile(case.step, keep_grads=False, mode="pieces")
    elif way == "inner":
        inner = ad.compile(case.step, keep_grads=False)
        step = ad.compile(lambda x: inner(x) * 1)
    elif way == "pickled":
        step = ad.compile(case.step, keep_grads=False)
        step = step.__reduce__()[0](*step.__reduce__()[1])
    else:
        step = ad.compile(lambda x: (case.step(x).item(), print("", end="")), keep_grads=False,
                          fallback="eager")  # fmt: skip
        case.step(x)
        with pytest.warns(UserWarning, match="runs eagerly"):
            step(x)
    for _ in range(3):
        step(x)
        assert case.gradients == []
