"""Every optimizer and schedule beside PyTorch's, in the options of PyTorch's own `optim_db`."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest

import adjoint as ad

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optim_db  # noqa: E402

from ..sweep import few_or_many, first_of_each, swept  # noqa: E402

torch.set_num_threads(1)  # the tensors are small

FEW, MANY = 20, 100  # steps
# SparseAdam takes sparse gradients only: tests/namespaces/sparse/test_embeddings.py.
INFOS = [info for info in optim_db if info.name != "SparseAdam"]
CASES = [
    pytest.param(info, case.kwargs, id=f"{info.name}-{case.desc}")
    for info in INFOS
    for case in info.optim_inputs_func("cpu")
]


def few(cases):
    """The cases; all but each optimizer's first are left to the sweep."""
    return first_of_each(lambda case: case.values[0].name, cases)


def ours(value, seen=None):
    """`value` with every torch tensor turned into a tensor of ours; one stays one."""
    seen = {} if seen is None else seen
    if isinstance(value, torch.Tensor):
        if id(value) not in seen:
            made = ad.tensor(value.detach().numpy().copy())
            if isinstance(value, torch.nn.Parameter):
                made = ad.nn.Parameter(made)
            elif value.requires_grad:
                made.requires_grad_()
            if value.grad is not None:
                made.requires_grad_()  # what requires none would be skipped here
                made.grad = ad.tensor(value.grad.numpy().copy())
            seen[id(value)] = made
        return seen[id(value)]
    if isinstance(value, dict):
        return {key: ours(each, seen) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(ours(each, seen) for each in value)
    return value


def theirs(value):
    """`value` with every tensor of ours turned into a torch tensor."""
    if isinstance(value, ad.Tensor):
        return torch.from_numpy(value.detach().numpy().copy())
    if isinstance(value, dict):
        return {key: theirs(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(theirs(each) for each in value)
    return value


def program(t, dtype, seed=0):
    """Parameters and a loss: a small network's regression."""
    rng = np.random.default_rng(seed)

    def fixed(*shape):
        return t.tensor(rng.normal(size=shape).astype(dtype))

    weight, bias, out = (t.nn.Parameter(fixed(*shape)) for shape in ((3, 5), (5,), (5, 2)))
    x, y = fixed(20, 3), fixed(20, 2)

    def loss():
        return (((x @ weight + bias).tanh() @ out - y) ** 2).mean()

    return [weight, bias, out], loss


def matrix_program(t, dtype, seed=0):
    """The same without a bias, for Muon."""
    (weight, bias, out), loss = program(t, dtype, seed)
    bias.requires_grad_(False)
    return [weight, out], loss


def convex_program(t, dtype, seed=0):
    """Least squares, for L-BFGS: anywhere else it amplifies rounding without bound."""
    rng = np.random.default_rng(seed)

    def fixed(*shape):
        return t.tensor(rng.normal(size=shape).astype(dtype))

    weight, bias = t.nn.Parameter(fixed(3, 2)), t.nn.Parameter(fixed(2))
    x, y = fixed(20, 3), fixed(20, 2)

    def loss():
        return ((x @ weight + bias - y) ** 2).mean()

    return [weight, bias], loss


def batches_program(t, dtype, seed=0):
    """Logistic regression on batches, for Rprop: its steps are by the gradients' signs, which are
    noise where the gradients vanish.
    """
    rng = np.random.default_rng(seed)

    def fixed(*shape):
        return t.tensor(rng.normal(size=shape).astype(dtype))

    weight, bias = t.nn.Parameter(fixed(3, 2)), t.nn.Parameter(fixed(2))
    batches = [(fixed(20, 3), fixed(20, 2).sign()) for _ in range(7)]
    calls = [0]

    def loss():
        x, y = batches[calls[0] % 7]
        calls[0] += 1
        return t.nn.functional.softplus(-y * (x @ weight + bias)).mean()

    return [weight, bias], loss


def program_for(info):
    """The program on which rounding does not grow."""
    own = {"Muon": matrix_program, "LBFGS": convex_program, "Rprop": batches_program}
    return own.get(info.name, program)


def tolerance_for(info, dtype):
    """Relative; Muon computes in bfloat16."""
    return 1e-2 if info.name == "Muon" else {"float64": 1e-6, "float32": 1e-4}[dtype]


def complex_program(t, dtype, seed=0):
    """Complex parameters and a loss."""
    rng = np.random.default_rng(seed)

    def fixed(*shape):
        return t.tensor((rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype))

    weight, bias = (t.nn.Parameter(fixed(*shape)) for shape in ((3, 2), (2,)))
    x, y = fixed(20, 3), fixed(20, 2)

    def loss():
        return ((x @ weight + bias - y).abs() ** 2).mean()

    return [weight, bias], loss


def large_program(t, dtype, seed=0):
    """A parameter of several blocks, another that is not contiguous."""
    rng = np.random.default_rng(seed)

    def fixed(*shape):
        return t.tensor(rng.normal(size=shape).astype(dtype))

    first = t.nn.Parameter(fixed(300, 500))
    second = t.nn.Parameter(fixed(200, 210).t())
    y, z = fixed(300, 500), fixed(210, 200)

    def loss():
        return ((first - y) ** 2).sum() + ((second - z) ** 4).sum()

    return [first, second], loss


def run(optimizer, loss, steps):
    """`steps` steps; the losses."""
    losses = []

    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    for _ in range(steps):
        losses.append(float(optimizer.step(closure).detach()))
    return losses


def assert_same(actual, expected, tolerance):
    """Equal within `tolerance` relative to the tensor's largest element."""
    for a, b in zip(actual, expected, strict=True):
        if b is None:
            assert a is None or not a.numpy().any()
            continue
        a, b = (np.asarray(x.detach().numpy()) for x in (a, b))
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max())


def assert_same_state(actual, expected, tolerance=1e-4):
    """Two state dicts of one layout and equal values; `actual` is ours."""
    if isinstance(expected, torch.Tensor):
        assert isinstance(actual, ad.Tensor)
        assert str(actual.dtype).split(".")[-1] == str(expected.dtype).split(".")[-1]
        assert tuple(actual.shape) == tuple(expected.shape)
        largest = float(expected.abs().max()) if expected.numel() else 0.0
        np.testing.assert_allclose(
            actual.numpy(), expected.numpy(), rtol=tolerance, atol=tolerance * largest
        )
    elif isinstance(expected, dict):
        assert set(actual) == set(expected)
        for key, value in expected.items():
            assert_same_state(actual[key], value, tolerance)
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected)
        for a, b in zip(actual, expected, strict=True):
            assert_same_state(a, b, tolerance)
    elif isinstance(expected, float):
        assert float(actual) == pytest.approx(expected, rel=tolerance, abs=1e-12)
    else:
        assert actual == expected


def pair(info, kwargs, make, dtype):
    """Program and optimizer of ours, then PyTorch's."""
    made = []
    for t, options in ((ad, ours(kwargs)), (torch, copy.deepcopy(kwargs))):
        params, loss = make(t, dtype)
        made.append((params, loss, getattr(t.optim, info.name)(params, **options)))
    return made


def exists(info):
    if not hasattr(ad.optim, info.name):
        pytest.fail(f"adjoint.optim has no {info.name}")


@few_or_many("steps", FEW, MANY)
@pytest.mark.parametrize("dtype", ["float64", swept("float32")])
@pytest.mark.parametrize(("info", "kwargs"), CASES)
def test_many_steps(info, kwargs, dtype, steps):
    (params, loss, optimizer), (expected, their_loss, their) = pair(
        info, kwargs, program_for(info), dtype
    )
    start = [p.detach().clone() for p in params]
    # With small rates L-BFGS never arrives; each of its steps is 20 iterations.
    steps = steps // 5 if info.name == "LBFGS" and "lr" in kwargs else steps
    losses = run(optimizer, loss, steps)
    their_losses = run(their, their_loss, steps)
    assert losses[-1] != losses[0]
    assert all(
        not np.array_equal(a.numpy(), b.detach().numpy())
        for a, b in zip(start, params, strict=True)
    )
    np.testing.assert_allclose(losses, their_losses, rtol=tolerance_for(info, dtype))
    assert_same(params, expected, tolerance_for(info, dtype))
    if info.name != "LBFGS":  # which remembers differences of what is equal by now
        state = optimizer.state_dict()["state"]
        assert_same_state(state, their.state_dict()["state"], 10 * tolerance_for(info, dtype))


@pytest.mark.parametrize("dtype", ["complex128", swept("complex64")])
@pytest.mark.parametrize(
    ("info", "kwargs"),
    few(
        c
        for c in CASES
        if c.values[0].supports_complex and c.values[0].name not in ("Muon", "Adafactor")
    ),
)
def test_complex_parameters(info, kwargs, dtype):
    (params, loss, optimizer), (expected, their_loss, their) = pair(
        info, kwargs, complex_program, dtype
    )
    steps = 3 if info.name == "LBFGS" else 30
    np.testing.assert_allclose(
        run(optimizer, loss, steps), run(their, their_loss, steps), rtol=1e-4
    )
    assert_same(params, expected, 1e-6 if dtype == "complex128" else 1e-4)


@pytest.mark.parametrize("dtype", [swept("float64"), "float32"])
@pytest.mark.parametrize(("info", "kwargs"), few(c for c in CASES if c.values[0].name != "LBFGS"))
def test_large_and_strided_parameters(info, kwargs, dtype):
    (params, loss, optimizer), (expected, their_loss, their) = pair(
        info, kwargs, large_program, dtype
    )
    versions = [p._version_count for p in params] if hasattr(params[0], "_version_count") else None
    run(optimizer, loss, 3)
    run(their, their_loss, 3)
    assert_same(params, expected, tolerance_for(info, dtype))
    if versions is not None:
        assert all(p._version_count > v for p, v in zip(params, versions, strict=True))


@pytest.mark.parametrize(("info", "kwargs"), few(CASES))
def test_state_of_pytorch_goes_on_here(info, kwargs):
    """Steps there, the state loaded here, steps here = as many steps there; and back."""
    make = program if info.name == "LBFGS" else program_for(info)
    tolerance = tolerance_for(info, "float64")
    (params, loss, optimizer), (expected, their_loss, their) = pair(info, kwargs, make, "float64")
    half = 3 if info.name == "LBFGS" else 49  # a multiple of the number of batches
    run(their, their_loss, half)
    with ad.no_grad():
        for p, q in zip(params, expected, strict=True):
            p.copy_(ad.tensor(q.detach().numpy()))
    optimizer.load_state_dict(ours(their.state_dict()))
    their.load_state_dict(their.state_dict())  # numbers get the parameters' dtype, as in ours
    assert_same_state(optimizer.state_dict()["state"], their.state_dict()["state"], 1e-12)
    np.testing.assert_allclose(
        run(optimizer, loss, half), run(their, their_loss, half), rtol=tolerance
    )
    assert_same(params, expected, tolerance)

    again, again_loss = make(torch, "float64")
    with torch.no_grad():
        for p, q in zip(again, params, strict=True):
            p.copy_(torch.from_numpy(q.detach().numpy()))
    back = getattr(torch.optim, info.name)(again, **copy.deepcopy(kwargs))
    back.load_state_dict(theirs(optimizer.state_dict()))
    run(back, again_loss, half)
    run(optimizer, loss, half)
    assert_same(params, again, tolerance)


STATEFUL = [c for c in CASES if c.values[0].name != "SGD" or "momentum" in c.values[1]]


@pytest.mark.parametrize(("info", "kwargs"), few(STATEFUL))
def test_state_round_trip(info, kwargs):
    """A loaded state goes on bit for bit, and without it the steps are others."""
    options = ours(kwargs)
    make = program if info.name == "LBFGS" else program_for(info)
    kind = getattr(ad.optim, info.name)
    params, loss = make(ad, "float32")
    optimizer = kind(params, **options)
    run(optimizer, loss, 3 if info.name == "LBFGS" else 7)  # which has converged after seven
    saved = copy.deepcopy(optimizer.state_dict())
    start = [p.detach().clone() for p in params]
    run(optimizer, loss, 5)

    def resumed(state):
        new, new_loss = make(ad, "float32")
        with ad.no_grad():
            for p, value in zip(new, start, strict=True):
                p.copy_(value)
        other = kind(new, **ours(kwargs))
        if state is not None:
            other.load_state_dict(state)
        run(other, new_loss, 5)
        return new

    loaded, fresh = resumed(saved), resumed(None)
    for p, q in zip(params, loaded, strict=True):
        assert np.array_equal(p.detach().numpy(), q.detach().numpy())
    assert any(
        not np.array_equal(p.detach().numpy(), q.detach().numpy())
        for p, q in zip(params, fresh, strict=True)
    )


@pytest.mark.parametrize("info", [i for i in INFOS if i.name != "LBFGS"], ids=lambda i: i.name)
def test_options_of_groups(info):
    """Each group has its rate; a group is added on the way; a frozen parameter stays."""
    results = []
    for t in (ad, torch):
        params, loss = program_for(info)(t, "float64")
        groups = [{"params": params[:1], "lr": 0.05}, {"params": params[1:2]}]
        optimizer = getattr(t.optim, info.name)(groups, lr=0.01)
        run(optimizer, loss, 5)
        for p in params[2:]:
            optimizer.add_param_group({"params": [p], "lr": 0.002})
        run(optimizer, loss, 5)
        results.append(params)
    assert_same(results[0], results[1], 1e-6)


DIFFERENTIABLE = [
    pytest.param(c.values[0], c.values[1], id=c.id)
    for c in CASES
    if "differentiable" in c.values[0].supported_impls
    and not any(isinstance(v, torch.Tensor) for v in c.values[1].values())
]


def after_steps(t, kind, kwargs, first, g, steps):
    """The parameter that `steps` steps with gradient `g * g` make of `first`."""
    p = first.clone()
    optimizer = getattr(t.optim, kind)([p], **{**kwargs, "differentiable": True})
    p.grad = g * g + 0.1
    for _ in range(steps):
        optimizer.step()
    return p


@pytest.mark.parametrize(("info", "kwargs"), DIFFERENTIABLE)
def test_differentiable(info, kwargs):
    """Gradients of a step with respect to the parameter and its gradient."""
    results = []
    for t in (ad, torch):
        rng = np.random.default_rng(0)
        first, g = (t.tensor(rng.normal(size=(3, 2))).requires_grad_() for _ in range(2))
        (after_steps(t, info.name, kwargs, first, g, 1) ** 2).sum().backward()
        results.append((first.grad, g.grad))
    assert_same(results[0], results[1], 1e-4)  # PyTorch's correction is computed in float32


@pytest.mark.parametrize(("info", "kwargs"), DIFFERENTIABLE)
def test_differentiable_over_several_steps(info, kwargs):
    """PyTorch's own steps overwrite what their graph needs in some optimizers; ours never."""
    if "momentum" in kwargs and info.name == "SGD":
        pytest.skip("the first velocity is the gradient without its history, as in PyTorch")
    rng = np.random.default_rng(0)
    first, g = (ad.tensor(rng.normal(size=(2, 2))).requires_grad_() for _ in range(2))
    assert ad.autograd.gradcheck(
        lambda *inputs: after_steps(ad, info.name, kwargs, *inputs, 3), (first, g), atol=1e-6
    )


ERRORS = [
    pytest.param(info, case, id=f"{info.name}-{case.optimizer_error_input.desc}")
    for info in INFOS
    if info.optim_error_inputs_func is not None
    for case in info.optim_error_inputs_func("cpu", torch.float32)
]


@pytest.mark.parametrize(("info", "case"), ERRORS)
def test_errors(info, case):
    given = case.optimizer_error_input
    params = [torch.nn.Parameter(torch.randn(1, 1))] if given.params is None else given.params
    params, kwargs = ours([params, given.kwargs])
    kind = getattr(ad.optim, info.name)
    if issubclass(case.error_type, Warning):
        with pytest.warns(case.error_type, match=case.error_regex):
            kind(params, **kwargs)
    elif case.error_on is OptimizerErrorEnum.CONSTRUCTION_ERROR:
        with pytest.raises(case.error_type, match=case.error_regex):
            kind(params, **kwargs)
    else:
        optimizer = kind(params, **kwargs)
        with pytest.raises(case.error_type, match=case.error_regex):
            optimizer.step()


# ---- schedules ---------------------------------------------------------------------------------

EPOCHS = 60
S = "lr_scheduler"
SCHEDULES = {
    "StepLR": lambda s, o: s.StepLR(o, 7),
    "StepLR gamma": lambda s, o: s.StepLR(o, step_size=3, gamma=0.9),
    "MultiStepLR": lambda s, o: s.MultiStepLR(o, [5, 20, 20, 41]),
    "MultiStepLR gamma": lambda s, o: s.MultiStepLR(o, milestones=(1, 2, 30), gamma=0.5),
    "ExponentialLR": lambda s, o: s.ExponentialLR(o, 0.9),
    "ExponentialLR rising": lambda s, o: s.ExponentialLR(o, gamma=1.02),
    "ConstantLR": lambda s, o: s.ConstantLR(o),
    "ConstantLR factor": lambda s, o: s.ConstantLR(o, factor=0.25, total_iters=17),
    "LinearLR": lambda s, o: s.LinearLR(o),
    "LinearLR down": lambda s, o: s.LinearLR(o, 1.0, 0.1, total_iters=40),
    "PolynomialLR": lambda s, o: s.PolynomialLR(o),
    "PolynomialLR power": lambda s, o: s.PolynomialLR(o, total_iters=50, power=2.5),
    "CosineAnnealingLR": lambda s, o: s.CosineAnnealingLR(o, T_max=50),
    "CosineAnnealingLR again": lambda s, o: s.CosineAnnealingLR(o, T_max=9, eta_min=0.01),
    "WarmRestarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, T_0=10),
    "WarmRestarts longer": lambda s, o: s.CosineAnnealingWarmRestarts(o, 5, T_mult=2, eta_min=0.02),
    "OneCycleLR": lambda s, o: s.OneCycleLR(o, max_lr=0.5, total_steps=EPOCHS + 1),
    "OneCycleLR linear": lambda s, o: s.OneCycleLR(
        o, max_lr=[0.5, 1.0], epochs=8, steps_per_epoch=10, pct_start=0.2, anneal_strategy="linear"
    ),
    "OneCycleLR phases": lambda s, o: s.OneCycleLR(
        o, max_lr=0.5, total_steps=70, three_phase=True, cycle_momentum=False, div_factor=10.0
    ),
    "CyclicLR": lambda s, o: s.CyclicLR(o, base_lr=0.01, max_lr=0.5, step_size_up=7),
    "CyclicLR triangular2": lambda s, o: s.CyclicLR(
        o, base_lr=[0.01, 0.02], max_lr=[0.5, 0.6], step_size_up=4, step_size_down=9,
        mode="triangular2",
    ),
    "CyclicLR exp_range": lambda s, o: s.CyclicLR(
        o, 0.01, 0.5, step_size_up=5, mode="exp_range", gamma=0.97, cycle_momentum=False
    ),
    "CyclicLR function": lambda s, o: s.CyclicLR(
        o, 0.01, 0.5, step_size_up=5, scale_fn=scale, scale_mode="iterations"
    ),
    "LambdaLR": lambda s, o: s.LambdaLR(o, lambda n: 0.95**n),
    "LambdaLR of groups": lambda s, o: s.LambdaLR(o, [lambda n: 1 / (n + 1), lambda n: 0.9**n]),
    "MultiplicativeLR": lambda s, o: s.MultiplicativeLR(o, lambda n: 0.95),
    "MultiplicativeLR of groups": lambda s, o: s.MultiplicativeLR(
        o, [lambda n: 1 - 1 / (n + 2), lambda n: 0.9]
    ),
    "SequentialLR": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=5), s.CosineAnnealingLR(o, 30), s.ExponentialLR(o, 0.9)],
        milestones=[5, 35],
    ),
    "SequentialLR steps": lambda s, o: s.SequentialLR(
        o, [s.ConstantLR(o, 0.5, total_iters=3), s.StepLR(o, 4, 0.5)], milestones=[10]
    ),
    "SequentialLR restarts": lambda s, o: s.SequentialLR(
        o, [s.ExponentialLR(o, 0.8), s.CosineAnnealingWarmRestarts(o, 6)], milestones=[9]
    ),
    "ChainedScheduler": lambda s, o: s.ChainedScheduler(
        [s.ConstantLR(o, 0.1, total_iters=4), s.ExponentialLR(o, 0.95)]
    ),
    "ChainedScheduler three": lambda s, o: s.ChainedScheduler(
        [s.LinearLR(o, 0.2, total_iters=9), s.StepLR(o, 5, 0.8), s.MultiStepLR(o, [30], 0.1)]
    ),
}  # fmt: skip


def scale(x):
    """A user's scale of a cycle."""
    return 0.5 * (1 + np.cos(x / 9))


def two_groups(t, kind="SGD", **kwargs):
    """An optimizer of two groups that has stepped."""
    groups = [
        {"params": [t.nn.Parameter(t.ones(2))]},
        {"params": [t.nn.Parameter(t.ones(3))], "lr": 0.3},
    ]
    options = {"momentum": 0.9} if kind == "SGD" else {}
    return getattr(t.optim, kind)(groups, lr=0.1, **options, **kwargs)


def rates(optimizer):
    """What schedules may change."""
    names = ("lr", "momentum", "betas")
    return [
        float(np.ravel(group[n])[0])
        for group in optimizer.param_groups
        for n in names
        if n in group
    ]


def walk(optimizer, schedule, epochs):
    """The rates after each of `epochs` steps."""
    found = [rates(optimizer)]
    for _ in range(epochs):
        optimizer.step()
        schedule.step()
        found.append(rates(optimizer))
        last = [float(x) for x in schedule.get_last_lr()]
        assert last == [float(group["lr"]) for group in optimizer.param_groups]
    return found


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule(name, kind):
    found = []
    for t in (ad, torch):
        optimizer = two_groups(t, kind)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(walk(optimizer, SCHEDULES[name](t.optim.lr_scheduler, optimizer), EPOCHS))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-15)
    assert len({tuple(row) for row in found[0]}) > 1


@pytest.mark.parametrize("cut", [1, 13, 36])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_resumes(name, cut):
    """Saved, loaded into fresh objects: the same rates as without the break, and as PyTorch's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer = two_groups(ad)
        schedule = SCHEDULES[name](ad.optim.lr_scheduler, optimizer)
        walk(optimizer, schedule, cut)
        saved = copy.deepcopy((optimizer.state_dict(), schedule.state_dict()))
        expected = walk(optimizer, schedule, EPOCHS - cut)
        optimizer = two_groups(ad)
        schedule = SCHEDULES[name](ad.optim.lr_scheduler, optimizer)
        optimizer.load_state_dict(saved[0])
        schedule.load_state_dict(saved[1])
        assert walk(optimizer, schedule, EPOCHS - cut) == expected


@pytest.mark.parametrize(
    "name", ["StepLR", "CosineAnnealingLR", "WarmRestarts longer", "LinearLR", "CyclicLR"]
)
def test_state_of_pytorchs_schedule_goes_on_here(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs_ = two_groups(torch)
        their_schedule = SCHEDULES[name](torch.optim.lr_scheduler, theirs_)
        walk(theirs_, their_schedule, 23)
        optimizer = two_groups(ad)
        schedule = SCHEDULES[name](ad.optim.lr_scheduler, optimizer)
        optimizer.load_state_dict(ours(theirs_.state_dict()))
        schedule.load_state_dict(their_schedule.state_dict())
        np.testing.assert_allclose(
            walk(optimizer, schedule, 20), walk(theirs_, their_schedule, 20), rtol=1e-9
        )


@pytest.mark.parametrize("name", [
    "StepLR", "MultiStepLR", "ExponentialLR", "ConstantLR", "LinearLR", "PolynomialLR",
    "CosineAnnealingLR", "WarmRestarts longer",
])  # fmt: skip
def test_schedule_at_given_epochs(name):
    found = []
    for t in (ad, torch):
        optimizer = two_groups(t)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            schedule = SCHEDULES[name](t.optim.lr_scheduler, optimizer)
            values = []
            for epoch in (0, 3, 4, 20, 2, 55):
                optimizer.step()
                schedule.step(epoch)
                values.append(rates(optimizer))
        found.append(values)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("options", [
    {}, {"patience": 2, "factor": 0.5}, {"mode": "max", "patience": 0},
    {"threshold_mode": "abs", "patience": 1},
    {"mode": "max", "threshold_mode": "abs", "patience": 1, "cooldown": 3},
    {"patience": 1, "min_lr": [0.05, 0.01], "eps": 0.01}, {"patience": 3, "threshold": 0.1},
], ids=str)  # fmt: skip
def test_plateau(options):
    metrics = np.random.default_rng(0).normal(size=EPOCHS).cumsum() / 10 + 2
    found = []
    for t in (ad, torch):
        optimizer = two_groups(t)
        schedule = t.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        values = []
        for i, metric in enumerate(metrics):
            optimizer.step()
            schedule.step(t.tensor(metric) if i % 2 else float(metric))
            values.append(rates(optimizer))
            if i == 30:  # saved and loaded on the way
                saved = copy.deepcopy((optimizer.state_dict(), schedule.state_dict()))
                optimizer = two_groups(t)
                schedule = t.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
                optimizer.load_state_dict(saved[0])
                schedule.load_state_dict(saved[1])
        found.append(values)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)
    assert len({tuple(row) for row in found[0]}) > 1


def test_tensor_rates_stay_the_same_tensor():
    for t in (ad, torch):
        rate = t.tensor(0.5)
        optimizer = t.optim.SGD([t.nn.Parameter(t.ones(1))], lr=rate)
        schedule = t.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        optimizer.step()
        schedule.step()
        assert optimizer.param_groups[0]["lr"] is rate
        assert float(rate) == 0.25


SCHEDULE_ERRORS = {
    "CosineAnnealingWarmRestarts T_0": lambda s, o: s.CosineAnnealingWarmRestarts(o, 0),
    "CosineAnnealingWarmRestarts T_mult": lambda s, o: s.CosineAnnealingWarmRestarts(o, 1, 1.5),
    "ConstantLR": lambda s, o: s.ConstantLR(o, factor=1.5),
    "LinearLR start": lambda s, o: s.LinearLR(o, start_factor=0),
    "LinearLR end": lambda s, o: s.LinearLR(o, end_factor=2),
    "OneCycleLR steps": lambda s, o: s.OneCycleLR(o, 0.1),
    "OneCycleLR zero": lambda s, o: s.OneCycleLR(o, 0.1, total_steps=0),
    "OneCycleLR share": lambda s, o: s.OneCycleLR(o, 0.1, total_steps=5, pct_start=2.0),
    "OneCycleLR strategy": lambda s, o: s.OneCycleLR(o, 0.1, 5, anneal_strategy="up"),
    "CyclicLR mode": lambda s, o: s.CyclicLR(o, 0.1, 0.2, mode="up"),
    "LambdaLR": lambda s, o: s.LambdaLR(o, [lambda n: 1.0]),
    "ReduceLROnPlateau factor": lambda s, o: s.ReduceLROnPlateau(o, factor=1.0),
    "ReduceLROnPlateau mode": lambda s, o: s.ReduceLROnPlateau(o, mode="up"),
    "ReduceLROnPlateau threshold": lambda s, o: s.ReduceLROnPlateau(o, threshold_mode="up"),
    "SequentialLR": lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1)], [1]),
    "no optimizer": lambda s, o: s.StepLR(3, 1),
    "no initial rate": lambda s, o: s.StepLR(o, 1, last_epoch=3),
    "empty chain": lambda s, o: s.ChainedScheduler([]),
}


@pytest.mark.parametrize("name", SCHEDULE_ERRORS)
def test_schedule_errors(name):
    with pytest.raises((ValueError, TypeError, KeyError)) as expected:
        SCHEDULE_ERRORS[name](torch.optim.lr_scheduler, two_groups(torch))
    with pytest.raises(expected.type):
        SCHEDULE_ERRORS[name](ad.optim.lr_scheduler, two_groups(ad))


# ---- averages ----------------------------------------------------------------------------------


def averages(t):
    """A dictionary of the ways to average."""
    u = t.optim.swa_utils
    return {
        "mean": {},
        "mean function": {"avg_fn": u.get_swa_avg_fn()},
        "means in place": {"multi_avg_fn": u.get_swa_multi_avg_fn()},
        "moving": {"avg_fn": u.get_ema_avg_fn(0.9)},
        "moving in place": {"multi_avg_fn": u.get_ema_multi_avg_fn(0.9)},
        "buffers": {"multi_avg_fn": u.get_ema_multi_avg_fn(0.75), "use_buffers": True},
    }


def network(t):
    """A network with batch normalization, of fixed weights."""
    model = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.BatchNorm1d(4), t.nn.Linear(4, 2))
    rng = np.random.default_rng(1)
    with t.no_grad():
        for p in model.parameters():
            p.copy_(t.tensor(rng.normal(size=tuple(p.shape)).astype("float32")))
    return model


@pytest.mark.parametrize("name", list(averages(ad)))
def test_averaged_model(name):
    found = []
    for t in (ad, torch):
        rng = np.random.default_rng(0)
        batches = [t.tensor(rng.normal(size=(8, 3)).astype("float32")) for _ in range(6)]
        model = network(t)
        optimizer = t.optim.SGD(model.parameters(), lr=0.05)
        averaged = t.optim.swa_utils.AveragedModel(model, **averages(t)[name])
        for x in batches:
            optimizer.zero_grad()
            (model(x) ** 2).mean().backward()
            optimizer.step()
            averaged.update_parameters(model)
        state = {k: v.numpy().copy() for k, v in averaged.state_dict().items()}
        t.optim.swa_utils.update_bn([(x, None) for x in batches], averaged)
        assert averaged.training
        again = {k: v.numpy().copy() for k, v in averaged.state_dict().items()}
        found.append((state, again, averaged(batches[0]).detach().numpy()))
    for a, b in zip(found[0][:2], found[1][:2], strict=True):
        assert list(a) == list(b)
        for key in a:
            assert a[key].dtype == b[key].dtype
            np.testing.assert_allclose(a[key], b[key], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[0][2], found[1][2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [
    {"swa_lr": 0.05}, {"swa_lr": [0.05, 0.5], "anneal_epochs": 4, "anneal_strategy": "linear"},
    {"swa_lr": 0.05, "anneal_epochs": 0},
], ids=str)  # fmt: skip
def test_swalr(options):
    found = []
    for t in (ad, torch):
        optimizer = two_groups(t)
        schedule = t.optim.swa_utils.SWALR(optimizer, **options)
        values = walk(optimizer, schedule, 6)
        saved = copy.deepcopy((optimizer.state_dict(), schedule.state_dict()))
        optimizer = two_groups(t)
        schedule = t.optim.swa_utils.SWALR(optimizer, **options)
        optimizer.load_state_dict(saved[0])
        schedule.load_state_dict(saved[1])
        found.append(values + walk(optimizer, schedule, 12))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


@pytest.mark.parametrize("options", [
    {"swa_lr": [0.1]}, {"swa_lr": 0.1, "anneal_strategy": "up"},
    {"swa_lr": 0.1, "anneal_epochs": -1},
], ids=str)  # fmt: skip
def test_swalr_errors(options):
    for t in (ad, torch):
        with pytest.raises(ValueError):
            t.optim.swa_utils.SWALR(two_groups(t), **options)
