"""Optimizers' formulas as kernels: the bits that the ops give, in one launch a step."""

from __future__ import annotations

import copy
import gc
import math
import weakref
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import adjoint as ad
from adjoint.backends.native.lowering import multi_tensor
from adjoint.backends.native.runtime import pool
from adjoint.core import policy
from adjoint.core.errors import AutogradError
from adjoint.ir import compute
from adjoint.optim import adafactor, elementwise
from adjoint.optim.elementwise import ElementwiseOptimizer
from tests.native import needs_native

pytestmark = needs_native

OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "SGD": ("SGD", {"lr": 0.1}),
    "SGD-momentum": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    "SGD-nesterov": (
        "SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "maximize": True}
    ),
    "Adam": ("Adam", {"lr": 0.1}),
    "Adam-all": ("Adam", {"amsgrad": True, "weight_decay": 0.1, "maximize": True}),
    "Adam-tensor": ("Adam", {"lr": ad.tensor(0.1), "betas": (0.6, 0.95), "foreach": False}),
    "AdamW": ("AdamW", {"lr": 0.1, "capturable": True}),
    "Adamax": ("Adamax", {"lr": 0.1, "weight_decay": 0.01}),
    "NAdam": ("NAdam", {"lr": 0.1, "decoupled_weight_decay": True, "weight_decay": 0.1}),
    "RAdam": ("RAdam", {"lr": 0.1, "betas": (0.8, 0.9)}),
    "Adagrad": ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.1}),
    "Adadelta": ("Adadelta", {}),
    "RMSprop": ("RMSprop", {"lr": 0.1}),
    "RMSprop-all": ("RMSprop", {"centered": True, "momentum": 0.9, "weight_decay": 0.1}),
    "Rprop": ("Rprop", {"lr": 0.1}),
    "ASGD": ("ASGD", {"lr": 0.1, "t0": 5, "lambd": 0.1}),
}  # fmt: skip
DTYPES = [ad.float32, ad.float64, ad.bfloat16, ad.float16]
SHAPES = [(3, 4), (), (0, 3), (1,), (5, 1, 2), (40000,), (17, 19)]
KINDS_OF_STEP = {"SGD-momentum": 2, "SGD-nesterov": 2, "RAdam": 2, "ASGD": 2}  # first, and later


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels from the first step on."""
    monkeypatch.setattr(policy, "OPTIMIZER_PATIENCE", 0)


class Launches:
    """Counts the loops that are run inside."""

    def __enter__(self) -> Launches:
        self.before = multi_tensor.launches[0]
        return self

    def __exit__(self, *exception: object) -> None:
        self.count = multi_tensor.launches[0] - self.before


def values(rng: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    return ad.tensor(rng.standard_normal(shape, np.float32)).to(dtype)


def parameters(dtype: Any = ad.float32, shapes: Any = SHAPES, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [ad.nn.Parameter(values(rng, shape, dtype)) for shape in shapes]


def steps(optimizer: Any, params: list[Any], count: int, seed: int = 1) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        for p in params:
            p.grad = values(rng, tuple(p.shape), p.dtype)
        optimizer.step()


def make(name: str, params: Any) -> Any:
    kind, options = OPTIMIZERS[name]
    return getattr(ad.optim, kind)(params, **options)


def everything(optimizer: Any, params: list[Any]) -> list[np.ndarray]:
    """The bits of parameters and state."""
    tensors = [*params]
    for p in params:
        tensors += [x for x in optimizer.state.get(p, {}).values() if isinstance(x, ad.Tensor)]
    return [np.ascontiguousarray(x.detach()._data).reshape(-1).view(np.uint8) for x in tensors]


def assert_same(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.fixture
def by_ops(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a function without kernels: NumPy computes the formula."""

    def run(function: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(compute, "accelerate", None)
            return function()

    return run


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The formulas that were captured."""
    found: list[Any] = []
    original = elementwise.formula_of

    def note(*args: Any) -> Any:
        found.append(original(*args))
        return found[-1]

    monkeypatch.setattr(elementwise, "formula_of", note)
    return found


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_bits_of_the_ops_in_one_launch_a_step(
    name: str, dtype: Any, by_ops: Any, made: list[Any]
) -> None:
    def train() -> Any:
        params = parameters(dtype)
        optimizer = make(name, params)
        steps(optimizer, params, 9)
        return everything(optimizer, params)

    with Launches() as run:
        found = train()
    assert run.count == 9
    assert len(made) == KINDS_OF_STEP.get(name, 1) and all(type(each) is not str for each in made)
    assert_same(found, by_ops(train))
    assert run.count == 9  # by_ops ran none


@pytest.mark.parametrize("name", ["SGD-momentum", "Adam-all", "Rprop"])
def test_special_values(name: str, by_ops: Any) -> None:
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3e38, 1.0]
    grid = np.array(np.meshgrid(special, special), np.float32).reshape(2, -1)

    def train() -> Any:
        p = ad.nn.Parameter(ad.tensor(grid[0].copy()))
        optimizer = make(name, [p])
        for _ in range(3):
            p.grad = ad.tensor(grid[1].copy())
            optimizer.step()
        return everything(optimizer, [p])

    for x, y in zip(train(), by_ops(train), strict=True):
        x, y = (z.view(np.float32) for z in (x, y))
        np.testing.assert_array_equal(x, y)  # a NaN's sign is nobody's promise
        np.testing.assert_array_equal(np.signbit(x[x == 0]), np.signbit(y[y == 0]))


def layouts(rng: Any) -> list[tuple[Any, Any]]:
    """Parameters and gradients in memory that differ in how they lie there, of one shape."""
    x, g = (rng.standard_normal((6, 8)).astype(np.float32) for _ in range(2))
    wide = rng.standard_normal((12, 24)).astype(np.float32)
    return [
        (x, g),
        (np.asfortranarray(x), np.asfortranarray(g)),
        (x.copy(), np.asfortranarray(g)),
        (np.asfortranarray(x), g.copy()),
        (wide[::2, ::3], g.copy()),
        (x.copy(), wide[::-2, ::-3]),
        (x.copy(), np.broadcast_to(g[:1], g.shape)),
        (np.broadcast_to(x[:1], x.shape).copy(), wide[6:, 8:16]),
    ]


def test_any_strides(by_ops: Any) -> None:
    def train() -> Any:
        rng = np.random.default_rng(3)
        params, gradients = [], []
        for x, g in layouts(rng):
            p = ad.nn.Parameter(ad.zeros(1))
            p._data = x
            p.grad = None
            p._leaf.shape = x.shape
            params.append(p)
            gradients.append(g)
        optimizer = make("Adam", params)
        for _ in range(4):
            for p, g in zip(params, gradients, strict=True):
                p.grad = ad.zeros(6, 8)
                p.grad._data = g
            optimizer.step()
        return everything(optimizer, params)

    with Launches() as run:
        found = train()
    assert run.count == 4
    assert_same(found, by_ops(train))


def test_many_tensors_of_random_sizes(by_ops: Any) -> None:
    rng = np.random.default_rng(5)
    shapes = [(int(n),) for n in rng.integers(0, 300, 200)]
    shapes += [(multi_tensor.CHUNK * k + d,) for k in (1, 2, 3) for d in (-1, 0, 1)]

    def train() -> Any:
        params = parameters(shapes=shapes)
        optimizer = make("AdamW", params)
        steps(optimizer, params, 3)
        return everything(optimizer, params)

    assert_same(train(), by_ops(train))


def test_threads_do_not_change_the_bits() -> None:
    def train() -> Any:
        params = parameters(shapes=[(100_003,), (7,), (65_536,), (300, 300)])
        optimizer = make("Adam", params)
        steps(optimizer, params, 3)
        return everything(optimizer, params)

    shared = pool.default_pool()
    before = shared.num_threads
    found = []
    try:
        for threads in (1, 2, 3, 4, 4):
            shared.set_num_threads(threads)
            found.append(train())
    finally:
        shared.set_num_threads(before)
    for other in found[1:]:
        assert_same(other, found[0])


def test_numbers_that_change_need_no_other_kernel(by_ops: Any, made: list[Any]) -> None:
    def train() -> Any:
        params = parameters()
        optimizer = make("Adam", params)
        schedule = ad.optim.lr_scheduler.OneCycleLR(optimizer, 0.3, 12)
        for n in range(10):
            steps(optimizer, params, 1, n)
            schedule.step()
        return everything(optimizer, params)

    found = train()
    assert len(made) == 1
    assert_same(found, by_ops(train))


def test_options_that_decide_make_another_kernel(by_ops: Any, made: list[Any]) -> None:
    def train() -> Any:
        params = parameters()
        optimizer = make("Adam", params)
        steps(optimizer, params, 2)
        for change in (
            {"weight_decay": 0.1}, {"decoupled_weight_decay": True}, {"amsgrad": True},
            {"maximize": True}, {"maximize": False}, {"betas": (0.2, 0.3)},
        ):  # fmt: skip
            optimizer.param_groups[0].update(change)
            steps(optimizer, params, 2)
        return everything(optimizer, params)

    with Launches() as run:
        found = train()
    # the last change is the lerp's, which goes from the nearer end
    assert (len(made), run.count) == (6, 14)
    assert_same(found, by_ops(train))


def test_groups_that_differ_in_numbers_share_a_launch(by_ops: Any) -> None:
    def train(second: dict[str, Any]) -> Any:
        params = parameters()
        groups = [{"params": params[:3], "lr": 0.1}, {"params": params[3:], **second}]
        optimizer = ad.optim.AdamW(groups)
        steps(optimizer, params, 3)
        return everything(optimizer, params)

    for second, count in (({"lr": 0.2, "eps": 1e-3}, 3), ({"weight_decay": 0}, 6)):
        with Launches() as run:
            found = train(second)
        assert run.count == count
        assert_same(found, by_ops(lambda second=second: train(second)))


@pytest.mark.parametrize("name", ["SGD-momentum", "Adam", "ASGD", "NAdam", "RAdam"])
def test_parameters_at_different_steps(name: str, by_ops: Any) -> None:
    def train() -> Any:
        params = parameters()
        optimizer = make(name, params)
        steps(optimizer, params[::2], 3)
        for p in params[::2]:
            p.grad = None
        steps(optimizer, params[:4], 3)
        params[0].requires_grad_(False)
        steps(optimizer, params, 4)
        return everything(optimizer, params)

    with Launches() as run:
        found = train()
    assert run.count >= 10  # each for several parameters
    assert_same(found, by_ops(train))


def test_dtypes_may_be_mixed(by_ops: Any) -> None:
    def train() -> Any:
        params = [p for dtype in DTYPES for p in parameters(dtype, [(3, 4), (5000,)])]
        optimizer = make("Adam", params)
        steps(optimizer, params, 3)
        return everything(optimizer, params)

    with Launches() as run:
        found = train()
    assert run.count == 3 * len(DTYPES)
    assert_same(found, by_ops(train))


def test_narrow_floats_are_computed_in_float32_and_rounded_once() -> None:
    rng = np.random.default_rng(0)
    p = ad.nn.Parameter(values(rng, (100,), ad.bfloat16))
    q = ad.nn.Parameter(p.detach().float())
    p.grad = values(rng, (100,), ad.bfloat16)
    q.grad = p.grad.float()
    optimizer, wide = make("Adam", [p]), make("Adam", [q])
    optimizer.step()
    wide.step()
    assert p.detach().equal(q.detach().bfloat16())
    assert optimizer.state[p]["exp_avg_sq"].equal(wide.state[q]["exp_avg_sq"].bfloat16())


def test_complex_parameters_are_twice_as_many_numbers(by_ops: Any) -> None:
    def train() -> Any:
        rng = np.random.default_rng(0)
        z = rng.standard_normal((2, 3, 4)) @ np.ones((4, 4))
        params = [ad.nn.Parameter(ad.tensor(z[0] + 1j * z[1])), *parameters()]
        optimizer = make("Adam", params)
        params[0].grad = ad.tensor(z[1] - 1j * z[0])
        for p in params[1:]:
            p.grad = ad.ones_like(p)
        optimizer.step()
        return everything(optimizer, params)

    with Launches() as run:
        found = train()
    assert run.count == 2  # theirs, and that of the others
    assert_same(found, by_ops(train))


# ---- matrices, reductions, directions ------------------------------------------------------------

MATRICES = [(3, 4), (40, 50), (130, 70)]
OTHERS: dict[str, tuple[dict[str, Any], Any]] = {
    "Adafactor": ({"lr": 0.1, "weight_decay": 0.1}, [*SHAPES, (2, 30, 40)]),
    "Adafactor-maximize": ({"lr": 0.1, "maximize": True, "eps": (1e-5, 1e-2)}, SHAPES),
    "Muon": ({"lr": 0.1}, MATRICES),
    "Muon-plain": ({"lr": 0.1, "nesterov": False, "adjust_lr_fn": "match_rms_adamw"}, MATRICES),
    "LBFGS": ({"lr": 0.1, "max_iter": 4, "history_size": 3}, SHAPES),
    "LBFGS-search": ({"max_iter": 4, "line_search_fn": "strong_wolfe"}, SHAPES),
}


@pytest.mark.parametrize("dtype", [ad.float32, ad.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_elementwise_is_what_the_ops_give(name: str, dtype: Any, by_ops: Any) -> None:
    options, shapes = OTHERS[name]

    def train() -> Any:
        params = parameters(dtype, shapes)
        rng = np.random.default_rng(7)
        targets = [values(rng, tuple(p.shape), dtype) for p in params]
        optimizer = getattr(ad.optim, name.split("-")[0])(params, **options)

        def closure() -> Any:
            optimizer.zero_grad()
            pairs = zip(params, targets, strict=True)
            loss = sum(((p - t) * (p - t)).sum() for p, t in pairs)
            loss.backward()
            return loss

        for _ in range(4):
            optimizer.step(closure)
        return [p.detach().numpy() for p in params]

    # Muon rounds to bfloat16 what is summed in another order.
    tolerance = 1e-2 if "Muon" in name else 1e-5 if dtype is ad.float32 else 1e-12
    for x, y in zip(train(), by_ops(train), strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def test_adafactors_numbers_that_change_need_no_other_kernel() -> None:
    params = parameters(shapes=[(30, 40), (700,)])
    optimizer = ad.optim.Adafactor(params, lr=0.1)
    steps(optimizer, params, 2)
    known = kernel_cache_sizes()
    for n in range(5):
        optimizer.param_groups[0]["lr"] = 0.1 / (n + 2)
        steps(optimizer, params, 1)
    assert kernel_cache_sizes() == known


def kernel_cache_sizes() -> list[int]:
    """How many plans Adafactor's composites have."""
    composites = [adafactor._change, adafactor._mean, adafactor._norms, adafactor._over_mean]
    return [len(each.declared.plans) for each in composites]


# ---- memory --------------------------------------------------------------------------------------


def with_data(array: np.ndarray) -> Any:
    """A parameter that shows this memory."""
    p = ad.nn.Parameter(ad.from_numpy(array))
    assert np.shares_memory(p._data, array)
    return p


def overlapping(kind: str) -> tuple[list[Any], list[Any]]:
    """Parameters, and their gradients, where something written overlaps something else."""
    memory = np.linspace(-1, 1, 400, dtype=np.float32)
    g = np.linspace(2, 3, 100, dtype=np.float32)
    if kind == "parameters":
        return [with_data(memory[:100]), with_data(memory[50:150])], [g, g]
    if kind == "same":
        return [with_data(memory[:100]), with_data(memory[:100])], [g, g]
    if kind == "own gradient":
        return [with_data(memory[:100]), with_data(memory[100:200])], [memory[:100], g]
    if kind == "shifted gradient":
        return [with_data(memory[:100]), with_data(memory[200:300])], [memory[1:101], g]
    return [with_data(memory[200:300]), with_data(memory[:100])], [g, memory[250:350]]


@pytest.mark.parametrize("kind", ["parameters", "same", "own gradient", "shifted gradient", "next"])
def test_overlaps_are_written_one_after_the_other(kind: str, by_ops: Any) -> None:
    def train() -> Any:
        params, gradients = overlapping(kind)
        optimizer = make("SGD", params)
        for _ in range(3):
            for p, g in zip(params, gradients, strict=True):
                p.grad = ad.from_numpy(g)
            optimizer.step()
        return everything(optimizer, params)

    with Launches() as run:
        found = train()
    assert run.count == 0
    assert_same(found, by_ops(train))


def test_neighbours_and_shared_gradients_are_no_overlap(by_ops: Any) -> None:
    def train() -> Any:
        memory = np.linspace(-1, 1, 300, dtype=np.float32)
        params = [with_data(memory[k : k + 100]) for k in (200, 0, 100)]
        g = ad.ones(100)
        for p in params:
            p.grad = g
        optimizer = make("SGD", params)
        optimizer.step()
        return everything(optimizer, params)

    with Launches() as run:
        found = train()
    assert run.count == 1
    assert_same(found, by_ops(train))


def test_memory_that_cannot_be_written_is_refused() -> None:
    params = parameters()
    optimizer = make("SGD", params)
    params[2]._data.flags.writeable = params[0]._data.flags.writeable = False
    before = params[0].detach().clone()
    with pytest.raises((AutogradError, ValueError), match="read-only"):
        steps(optimizer, params, 1)
    assert params[0].detach().equal(before)


def test_arrays_may_be_exchanged_between_steps(by_ops: Any) -> None:
    def train() -> Any:
        params = parameters()
        optimizer = make("Adam", params)
        steps(optimizer, params, 2)
        for p in params:
            p.data = p.detach() * 2
            optimizer.state[p]["exp_avg"] = optimizer.state[p]["exp_avg"] + 1
        steps(optimizer, params, 2)
        return everything(optimizer, params)

    assert_same(train(), by_ops(train))


# ---- what else sees a step -----------------------------------------------------------------------


def test_every_change_is_counted() -> None:
    params = parameters()
    optimizer = make("Adam", params)
    steps(optimizer, params, 1)
    state = optimizer.state[params[0]]
    tensors = [params[0], *state.values()]
    before = [x._changes.count for x in tensors]
    steps(optimizer, params, 1)
    assert all(x._changes.count > n for x, n in zip(tensors, before, strict=True))
    loss = (params[0] * params[0]).sum()
    steps(optimizer, params, 1)
    with pytest.raises(AutogradError, match="last changed by 'step'"):
        loss.backward()


@pytest.mark.filterwarnings("ignore:Graph. ")
@pytest.mark.parametrize("kernels_serve", [True, False])
def test_recorded_values_stay_what_they_were(kernels_serve: bool, by_ops: Any) -> None:
    def check() -> None:
        p = ad.nn.Parameter(ad.ones(200_000))
        optimizer = ad.optim.SGD([p], lr=0.5)
        with ad.lazy():
            before = p.detach() * 3
        graph = ad.Graph()
        with graph:
            after = p * 3
        assert after[0].item() == 3
        p.grad = ad.ones(200_000)
        optimizer.step()
        assert before[0].item() == 3
        assert after[0].item() == 1.5
        assert p.detach()[0].item() == 0.5

    check() if kernels_serve else by_ops(check)


def test_views_of_a_parameter_see_the_step() -> None:
    p = ad.nn.Parameter(ad.ones(4, 5))
    view = p.detach().t()[1:]
    p.grad = ad.ones(4, 5)
    ad.optim.SGD([p], lr=0.25).step()
    assert view.tolist() == [[0.75] * 4] * 4


def test_differentiable_steps_run_op_by_op() -> None:
    p = ad.nn.Parameter(ad.ones(3))
    x = p.clone()
    x.retain_grad()
    optimizer = ad.optim.SGD([p], lr=0.5, differentiable=True)
    g = ad.ones(3, requires_grad=True)
    p.requires_grad_(True)
    p.grad = g * 2
    with Launches() as run, pytest.raises(AutogradError, match="leaf"):
        optimizer.step()
    assert run.count == 0


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_loaded_state_goes_on_bit_for_bit(name: str) -> None:
    params = parameters()
    optimizer = make(name, params)
    steps(optimizer, params, 3)
    others = [ad.nn.Parameter(p.detach().clone()) for p in params]
    other = make(name, others)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    twin, twins = copy.deepcopy((optimizer, params))
    with Launches() as run:
        for each, its in ((optimizer, params), (other, others), (twin, twins)):
            steps(each, its, 3, 2)
    assert run.count == 9
    assert_same(everything(other, others), everything(optimizer, params))
    assert_same(everything(twin, twins), everything(optimizer, params))


def test_an_optimizer_is_freed_at_once() -> None:
    params = parameters()
    optimizer = make("Adam", params)
    steps(optimizer, params, 2)
    state = weakref.ref(optimizer.state[params[0]]["exp_avg"])
    gc.disable()
    try:
        del optimizer
        assert state() is None
    finally:
        gc.enable()


# ---- when and of what ----------------------------------------------------------------------------


def test_small_parameters_wait_before_a_kernel_is_compiled(monkeypatch: Any, by_ops: Any) -> None:
    monkeypatch.setattr(policy, "OPTIMIZER_PATIENCE", 3)
    monkeypatch.setattr(compute, "LARGE", 4096)

    def train() -> Any:
        params = parameters(shapes=[(5,), (2, 2)])
        optimizer = make("Adam", params)
        steps(optimizer, params, 6)
        return everything(optimizer, params)

    with Launches() as run:
        found = train()
    assert run.count == 3
    assert_same(found, by_ops(train))
    with Launches() as run:
        params = parameters()
        steps(make("Adam", params), params, 1)
    assert run.count == 1


class Formula(ElementwiseOptimizer):
    """An optimizer of a formula that a test gives."""

    zeros = ("m",)

    def __init__(self, params: Any, formula: Any, **options: Any) -> None:
        super().__init__(params, {"lr": 0.5, **options})
        self.formula = formula

    def change(self, group: Any, numbers: Any, state: Any, p: Any, g: Any) -> None:
        """The test's."""
        self.formula(group, numbers, state, p, g)


def _where(o: Any, n: Any, s: Any, p: Any, g: Any) -> None:
    s["m"].copy_(ad.where(g > 0, s["m"] + g, s["m"] * o["lr"]))
    p.sub_(s["m"].tanh() / n)


def _swap(o: Any, n: Any, s: Any, p: Any, g: Any) -> None:
    old = p.clone()
    p.copy_(s["m"])
    s["m"].copy_(old + g)


def _fill(o: Any, n: Any, s: Any, p: Any, g: Any) -> None:
    p.fill_(o["lr"])
    s["m"].zero_()


def _branches(o: Any, n: Any, s: Any, p: Any, g: Any) -> None:
    p.add_(g, alpha=-o["lr"] if n < 3 else -(o["lr"] ** 2))
    if "extra" in o or o.get("lr") > 10:
        p.neg_()


def _mean(o: Any, n: Any, s: Any, p: Any, g: Any) -> None:
    p.sub_(g - g.mean())


def _read(o: Any, n: Any, s: Any, p: Any, g: Any) -> None:
    p.sub_(g * (1 if g.sum().item() > 0 else 2))


def _root(o: Any, n: Any, s: Any, p: Any, g: Any) -> None:
    p.sub_(g * math.sqrt(o["lr"]))


def _writes_gradient(o: Any, n: Any, s: Any, p: Any, g: Any) -> None:
    g.mul_(2)
    p.sub_(g)


def _outside(o: Any, n: Any, s: Any, p: Any, g: Any) -> None:
    p.sub_(g * ad.tensor(2.0))


@pytest.mark.parametrize(
    ("formula", "has_kernel"),
    [
        (_where, True), (_swap, True), (_branches, True), (_fill, True), (_mean, False),
        (_read, False), (_root, False), (_writes_gradient, False), (_outside, False),
    ],
)  # fmt: skip
def test_formulas_of_users(formula: Any, has_kernel: bool, by_ops: Any) -> None:
    def train() -> Any:
        params = parameters(shapes=[(50,), (3, 4)])
        optimizer = Formula(params, formula)
        steps(optimizer, params, 5)
        return everything(optimizer, params)

    with Launches() as run:
        found = train()
    assert run.count == (5 if has_kernel else 0)
    expected = by_ops(train)
    if formula in (_where, _mean):  # tanh and the sum are NumPy's there
        for x, y in zip(found[:2], expected[:2], strict=True):
            np.testing.assert_allclose(x.view(np.float32), y.view(np.float32), rtol=1e-6, atol=1e-6)
    else:
        assert_same(found, expected)


def test_a_formula_that_decides_anew_each_step_stays_with_the_ops(made: list[Any]) -> None:
    def decide(o: Any, n: Any, s: Any, p: Any, g: Any) -> None:
        for k in range(100):
            if n == k:
                p.sub_(g, alpha=k)

    params = parameters(shapes=[(50,)])
    optimizer = Formula(params, decide)
    with Launches() as run:
        steps(optimizer, params, 30)
    assert len(made) == run.count == policy.VARIANTS


def test_an_error_in_a_formula_is_the_users_to_see() -> None:
    def wrong(o: Any, n: Any, s: Any, p: Any, g: Any) -> None:
        p.sub_(o["missing"] * g)

    params = parameters(shapes=[(50,)])
    with pytest.raises(KeyError, match="missing"):
        steps(Formula(params, wrong), params, 1)


# ---- clipping ------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", [2.0, 1.0, math.inf, -math.inf, 0.0, 3.0])
@pytest.mark.parametrize("dtype", [ad.float32, ad.float64], ids=lambda d: d.name)
def test_clipping_scales_all_gradients_in_one_launch(norm: float, dtype: Any, by_ops: Any) -> None:
    def clip(bound: float) -> tuple[Any, list[Any]]:
        params = parameters(dtype, [s for s in SHAPES if 0 not in s])
        rng = np.random.default_rng(4)
        for p in params:
            p.grad = values(rng, tuple(p.shape), dtype)
        before = [p.grad._changes.count if p.grad._changes else 0 for p in params]
        total = ad.nn.utils.clip_grad_norm_(params, bound, norm)
        assert all(
            (p.grad._changes.count if p.grad._changes else 0) >= n
            for p, n in zip(params, before, strict=True)
        )
        return total.item(), [p.grad.numpy() for p in params]

    for bound, count in ((1e9, 0), (1e-9, 1)):
        with Launches() as run:
            total, found = clip(bound)
        assert run.count == count
        expected_total, expected = by_ops(lambda bound=bound: clip(bound))
        tolerance = 1e-6 if dtype is ad.float32 else 1e-14
        assert total == pytest.approx(expected_total, rel=tolerance)
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=2 * tolerance)


def test_clipping_is_seen_by_autograd_and_takes_any_strides() -> None:
    x = ad.ones(4, 4, requires_grad=True)
    p, q = ad.nn.Parameter(ad.ones(4, 4)), ad.nn.Parameter(ad.ones(4, 4))
    p.grad, q.grad = ad.full((4, 4), 3.0), ad.full((8, 8), 3.0)[::2, ::2]
    y = (x * p.grad).sum()
    total = ad.nn.utils.clip_grad_norm_([p, q], 1.0)
    assert total.item() == pytest.approx(math.sqrt(32 * 9))
    for each in (p, q):
        np.testing.assert_allclose(each.grad.numpy(), 1 / math.sqrt(32), rtol=1e-6)
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        y.backward()
