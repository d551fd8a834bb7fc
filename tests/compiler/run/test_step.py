"""Training steps as one native program: the same numbers as eagerly, state and gradients kept."""

import copy
import itertools

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.backends.native.runtime.launch_list import LaunchList
from adjoint.core.errors import ShapeError, Unsupported
from tests.native import needs_native
from tests.sweep import one_in

pytestmark = needs_native

OPTIMIZERS = {
    "SGD": lambda p: ad.optim.SGD(p, lr=0.1),
    "momentum": lambda p: ad.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "Adam": lambda p: ad.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: ad.optim.AdamW(p, lr=0.01, amsgrad=True),
    "RMSprop": lambda p: ad.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5),
    "Adagrad": lambda p: ad.optim.Adagrad(p, lr=0.1),
    "groups": lambda p: ad.optim.AdamW(
        [{"params": p[:1], "lr": 0.1, "weight_decay": 0.0}, {"params": p[1:]}]
    ),
}


class Pair:
    """The same model twice: trained eagerly, and by a compiled step."""

    def __init__(self, model, optimizer, criterion, backward=None):
        self.models = model, copy.deepcopy(model)
        self.optimizers = [optimizer(list(m.parameters())) for m in self.models]

        def step_of(m, o):
            def step(x, y):
                o.zero_grad()
                loss = criterion(m(x), y)
                loss.backward()
                o.step()
                return loss

            return step

        self.steps = [step_of(m, o) for m, o in zip(self.models, self.optimizers, strict=True)]
        self.compiled = ad.compile(self.steps[1])

    def run(self, x, y):
        """One step of each; all that they leave is equal."""
        eagerly, found = self.steps[0](x, y), self.compiled(x, y)
        np.testing.assert_allclose(found.item(), eagerly.item(), rtol=1e-5)
        self.check()
        return found

    def check(self):
        for name in ("named_parameters", "named_buffers"):
            pairs = zip(*(getattr(m, name)() for m in self.models), strict=True)
            for (key, a), (_, b) in pairs:
                np.testing.assert_allclose(
                    b.tolist(), a.tolist(), rtol=2e-4, atol=2e-6, err_msg=key
                )
                if a.requires_grad:
                    np.testing.assert_allclose(
                        b.grad.tolist(), a.grad.tolist(), rtol=2e-4, atol=2e-6, err_msg=key
                    )
        for a, b in zip(*(o.state_dict()["state"].values() for o in self.optimizers), strict=True):
            for key, value in a.items():
                np.testing.assert_allclose(b[key].tolist(), value.tolist(), rtol=2e-4, atol=2e-6)

    @property
    def program(self):
        """The only one."""
        [found] = self.compiled.programs
        return found


def digits(batch=16, seed=0):
    draw = np.random.default_rng(seed)
    return (
        ad.tensor(draw.standard_normal((batch, 20)).astype(np.float32)),
        ad.tensor(draw.integers(0, 5, batch)),
    )


def mlp():
    ad.manual_seed(0)
    return nn.Sequential(
        nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 5)
    )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_perceptron_trains_as_eagerly(name):
    pair = Pair(mlp(), OPTIMIZERS[name], nn.CrossEntropyLoss())
    for i in range(8):
        pair.run(*digits(seed=i))


def test_the_step_is_one_call_of_machine_code_and_the_optimizer_one():
    pair = Pair(mlp(), OPTIMIZERS["Adam"], nn.CrossEntropyLoss())
    for i in range(3):
        pair.run(*digits(64, seed=i))
    program = pair.program
    assert [type(call) for call in program.parts[0].calls] == [LaunchList]
    assert len(program.parts[0].calls[0]) <= 19
    [optimizer] = program.steps
    assert [len(launch.run) for launch in optimizer.made.values()] == [1]


@pytest.mark.parametrize("batch", [1, 2, 15, 300])
def test_batches_of_any_size(batch):
    pair = Pair(mlp(), OPTIMIZERS["Adam"], nn.CrossEntropyLoss())
    for i in range(3):
        pair.run(*digits(batch, seed=i))


def test_other_sizes_get_another_program_and_the_first_is_kept():
    pair = Pair(mlp(), OPTIMIZERS["momentum"], nn.CrossEntropyLoss())
    for i, batch in enumerate((8, 8, 8, 5, 5, 8, 8)):
        pair.run(*digits(batch, seed=i))
    assert len(pair.compiled.programs) == 2


def test_statistics_of_batches_and_a_learning_rate_that_changes():
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 5))
    pair = Pair(model, OPTIMIZERS["momentum"], nn.CrossEntropyLoss())
    schedules = [ad.optim.lr_scheduler.StepLR(o, 2, 0.5) for o in pair.optimizers]
    for i in range(8):
        pair.run(*digits(seed=i))
        for schedule in schedules:
            schedule.step()


def test_a_gradient_that_somebody_keeps_stays_as_it_was():
    pair = Pair(mlp(), OPTIMIZERS["SGD"], nn.CrossEntropyLoss())
    kept = []
    for i in range(4):
        pair.run(*digits(seed=i))
        g = pair.models[1][0].weight.grad
        kept.append((g, g.tolist()))
        memory = pair.models[1][2].weight.grad.numpy()
        kept.append((memory, memory.tolist()))
    for g, before in kept:
        assert g.tolist() == before
    del g, memory, kept
    pair.run(*digits())
    before = id(pair.models[1][4].weight.grad)
    pair.run(*digits())
    pair.run(*digits())
    assert id(pair.models[1][4].weight.grad) == before  # of nobody's the memory is used again


def test_parameters_that_are_replaced_or_loaded_are_noticed():
    pair = Pair(mlp(), OPTIMIZERS["Adam"], nn.CrossEntropyLoss())
    for i in range(3):
        pair.run(*digits(seed=i))
    for model in pair.models:
        model[0].weight.data = ad.ones(32, 20) / 20
        model.load_state_dict({k: v * 0.5 for k, v in model.state_dict().items()})
    for i in range(3):
        pair.run(*digits(seed=i))


def test_state_of_the_optimizer_that_is_loaded_is_noticed():
    pair = Pair(mlp(), OPTIMIZERS["Adam"], nn.CrossEntropyLoss())
    for i in range(3):
        pair.run(*digits(seed=i))
    saved = [copy.deepcopy(o.state_dict()) for o in pair.optimizers]
    for i in range(3):
        pair.run(*digits(seed=i))
    for optimizer, state in zip(pair.optimizers, saved, strict=True):
        optimizer.load_state_dict(state)
    for i in range(3):
        pair.run(*digits(seed=i))


def test_arguments_in_any_memory():
    pair = Pair(mlp(), OPTIMIZERS["Adam"], nn.CrossEntropyLoss())
    x, y = digits(600)
    for i in range(3):
        pair.run(x[200 * i : 200 * i + 200], y[200 * i : 200 * i + 200])
    pair.run(x[::3], y[::3])
    pair.run(x.T.contiguous().T[:200], y[:200])
    buffer = np.array(x[:200].tolist(), np.float32)
    for _ in range(3):
        buffer += 0.1
        pair.run(ad.from_numpy(buffer), y[:200])


def test_a_wrong_target_changes_nothing():
    pair = Pair(mlp(), OPTIMIZERS["Adam"], nn.CrossEntropyLoss())
    x, y = digits()
    for _ in range(3):
        pair.run(x, y)
    before = [p.tolist() for p in pair.models[1].parameters()]
    steps = [s["step"].item() for s in pair.optimizers[1].state.values()]
    for wrong in (5, -1):
        with pytest.raises(IndexError, match="Target"):
            pair.compiled(x, y.clone().fill_(wrong))
    assert [p.tolist() for p in pair.models[1].parameters()] == before
    assert [s["step"].item() for s in pair.optimizers[1].state.values()] == steps
    pair.run(x, y)


def test_targets_that_are_ignored_take_the_general_way_and_the_rest_goes_on():
    pair = Pair(mlp(), OPTIMIZERS["Adam"], nn.CrossEntropyLoss())
    x, y = digits()
    for ignored in ([], [0, 3], [1], [], list(range(15))):
        targets = y.clone()
        targets[ad.tensor(ignored, dtype=ad.int64)] = -100
        pair.run(x, targets)
    assert len(pair.compiled.programs) == 1


def test_another_number_of_threads():
    pair = Pair(mlp(), OPTIMIZERS["Adam"], nn.CrossEntropyLoss())
    before = ad.get_num_threads()
    try:
        for i, threads in enumerate((2, 2, 1, 3, 2)):
            ad.set_num_threads(threads)
            pair.run(*digits(300, seed=i))
    finally:
        ad.set_num_threads(before)


def test_what_saved_a_parameter_knows_that_it_has_changed():
    pair = Pair(mlp(), OPTIMIZERS["SGD"], nn.CrossEntropyLoss())
    for i in range(2):
        pair.run(*digits(seed=i))
    loss = pair.models[1](digits()[0]).sum()
    pair.run(*digits())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_gradients_add_up_where_nobody_clears_them():
    ad.manual_seed(0)
    models = [nn.Linear(20, 5) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())

    def step_of(model):
        def step(x, y):
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            return loss

        return step

    eagerly, compiled = step_of(models[0]), ad.compile(step_of(models[1]))
    for i in range(4):
        eagerly(*digits(seed=i))
        compiled(*digits(seed=i))
        for a, b in zip(*(m.parameters() for m in models), strict=True):
            np.testing.assert_allclose(b.grad.tolist(), a.grad.tolist(), rtol=1e-4, atol=1e-6)


class Tied(nn.Module):
    """Words, their weights used twice."""

    def __init__(self):
        super().__init__()
        self.words, self.norm, self.head = nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 11)
        self.head.weight = self.words.weight

    def forward(self, x):
        return self.head(self.norm(self.words(x))).mean(1)


class Recurrent(nn.Module):
    """An LSTM's last output."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.LSTM(5, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


class Attending(nn.Module):
    """A transformer's layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.layer(x).mean(1))


class Residual(nn.Module):
    """One layer several times, behind a frozen one."""

    def __init__(self):
        super().__init__()
        self.frozen, self.layer, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        x = self.frozen(x)
        for _ in range(3):
            x = x + nn.functional.silu(self.layer(x))
        return self.head(x)


def convolutions():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3),
    )  # fmt: skip


NETWORKS = {
    "convolutions": (convolutions, lambda: ad.randn(4, 1, 8, 8)),
    "words": (Tied, lambda: ad.randint(0, 11, (4, 5))),
    "recurrent": (Recurrent, lambda: ad.randn(4, 4, 5)),
    "attention": (Attending, lambda: ad.randn(4, 4, 8)),
    "residual": (Residual, lambda: ad.randn(4, 6)),
}


def clipped(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    return loss


def cleared_last(model, optimizer, x, y):
    scores = model(x)
    loss = nn.functional.cross_entropy(scores, y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return {"loss": loss.detach(), "classes": [scores.argmax(1)]}


def accumulated(model, optimizer, x, y):
    optimizer.zero_grad()
    total = 0.0
    for half in (slice(0, 2), slice(2, 4)):
        loss = nn.functional.cross_entropy(model(x[half]), y[half]) / 2
        loss.backward()
        total = total + loss.detach()
    optimizer.step()
    return total


def read_again(model, optimizer, x, y):
    """The loss before the optimizer's step, and after it."""
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    with ad.no_grad():
        return loss, nn.functional.cross_entropy(model(x), y)


def flat(result):
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        return [x for each in result for x in flat(each)]
    return [result.tolist()]


@pytest.mark.parametrize(
    ("name", "step"),
    one_in(3, itertools.product(NETWORKS, [clipped, cleared_last, accumulated, read_again])),
)
def test_networks_and_ways_to_train_them(name, step):
    make, draw = NETWORKS[name]
    ad.manual_seed(1)
    model = make()
    models = model, copy.deepcopy(model)
    optimizers = [
        ad.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
        for m in models
    ]
    compiled = ad.compile(lambda x, y: step(models[1], optimizers[1], x, y))
    for seed in range(5):
        ad.manual_seed(seed)
        x, y = draw(), ad.randint(0, 3, (4,))
        expected, found = step(models[0], optimizers[0], x, y), compiled(x, y)
        for a, b in zip(flat(expected), flat(found), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-6)
        for (key, a), b in zip(
            models[0].state_dict().items(), models[1].state_dict().values(), strict=True
        ):
            np.testing.assert_allclose(b.tolist(), a.tolist(), rtol=2e-4, atol=2e-6, err_msg=key)
        for a, b in zip(*(m.parameters() for m in models), strict=True):
            assert (a.grad is None) == (b.grad is None)
            if a.grad is not None:
                np.testing.assert_allclose(b.grad.tolist(), a.grad.tolist(), rtol=2e-4, atol=2e-6)
    assert len(compiled.programs) == 1


def test_two_networks_with_an_optimizer_each():
    def made():
        ad.manual_seed(3)
        generator = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))
        critic = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
        one = ad.optim.Adam(generator.parameters(), lr=0.01)
        other = ad.optim.SGD(critic.parameters(), lr=0.1, momentum=0.5)
        loss_of = nn.BCEWithLogitsLoss()

        def step(real, noise):
            fake = generator(noise)
            other.zero_grad()
            right, wrong = critic(real), critic(fake.detach())
            loss = loss_of(right, ad.ones_like(right)) + loss_of(wrong, ad.zeros_like(wrong))
            loss.backward()
            other.step()
            one.zero_grad()
            fooled = critic(fake)
            gain = loss_of(fooled, ad.ones_like(fooled))
            gain.backward()
            one.step()
            return loss, gain, fake.detach()

        return [*generator.parameters(), *critic.parameters()], step

    (parameters, eagerly), (others, step) = made(), made()
    compiled = ad.compile(step)
    for seed in range(5):
        ad.manual_seed(seed)
        real, noise = ad.randn(16, 3), ad.randn(16, 2)
        for a, b in zip(eagerly(real, noise), compiled(real, noise), strict=True):
            np.testing.assert_allclose(b.tolist(), a.tolist(), rtol=1e-4, atol=1e-6)
        for a, b in zip(parameters, others, strict=True):
            np.testing.assert_allclose(b.tolist(), a.tolist(), rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(b.grad.tolist(), a.grad.tolist(), rtol=1e-4, atol=1e-6)
    assert len(compiled.programs) == 1


def test_buffers_that_change_places_and_results_that_show_what_is_written():
    a, b = ad.arange(3.0), ad.ones(3)

    def swap(x):
        before = a.clone()
        a.copy_(b)
        b.copy_(before)
        return a, before, x

    compiled = ad.compile(swap)
    for i in range(4):
        first, second, x = compiled(ad.full((2,), float(i)))
        expected = [[1, 1, 1], [0, 1, 2]] if i % 2 == 0 else [[0, 1, 2], [1, 1, 1]]
        assert [first.tolist(), second.tolist()] == expected
        assert [a.tolist(), b.tolist()] == expected
        assert x.tolist() == [i, i]


def test_a_learning_rate_and_options_that_change():
    pair = Pair(mlp(), OPTIMIZERS["momentum"], nn.CrossEntropyLoss())
    changes = [{}, {}, {"lr": 0.01}, {"weight_decay": 0.0}, {"momentum": 0.5}, {"lr": 1}]
    for i, change in enumerate(changes):
        for optimizer in pair.optimizers:
            optimizer.param_groups[0].update(change)
        pair.run(*digits(seed=i))


def reads(x):
    return x * 2 if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (reads, "reads a value"),
        (lambda x: x.tolist(), "reads a value"),
        (lambda x: x.numpy() + 1, "reads a value|returned"),
        (lambda x: iter(x.shape), "returned"),
    ],
)
def test_what_cannot_be_captured_is_refused(function, says):
    x = ad.randn(4, 4)
    before = x.tolist()
    with pytest.raises((Unsupported, TypeError), match=says):
        ad.compile(function)(x)
    assert x.tolist() == before


def test_arguments_that_want_gradients():
    x = ad.randn(3, requires_grad=True)
    with ad.no_grad():
        assert ad.compile(lambda x: x.sum())(x * 2).item() == pytest.approx((x * 2).sum().item())

    def step(x):
        (x * x).sum().backward()

    ad.compile(step)(x)
    assert x.grad.tolist() == (2 * x).tolist()


def test_several_threads_take_turns():
    from concurrent.futures import ThreadPoolExecutor

    ad.manual_seed(0)
    model = nn.Linear(20, 5)
    scores = ad.compile(lambda x: model(x).softmax(1))
    batches = [digits(64, seed)[0] for seed in range(16)]
    expected = [model(x).softmax(1).tolist() for x in batches]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: scores(x).tolist(), batches * 4))
    np.testing.assert_allclose(found, expected * 4, rtol=1e-5)


def test_values_from_before_an_optimizer_s_step_stay_and_views_follow():
    def made():
        ad.manual_seed(1)
        w, v = (nn.Parameter(ad.randn(3)) for _ in range(2))
        optimizer = ad.optim.SGD([w, v], lr=0.1, momentum=0.9)

        def step(x):
            optimizer.zero_grad()
            kept, copied, shown = w * 1.0, w.detach().clone(), w.detach()
            (w * v).sum().backward()
            optimizer.step()
            after = (kept.detach() + x).sum()
            between = w.detach().clone()
            optimizer.step()
            return kept.detach(), copied, shown, after, between, (between * 2).sum()

        return (w, v), step

    (parameters, eagerly), (others, step) = made(), made()
    compiled = ad.compile(step)
    for i in range(4):
        x = ad.full((3,), float(i))
        for a, b in zip(eagerly(x), compiled(x), strict=True):
            np.testing.assert_allclose(b.tolist(), a.tolist(), rtol=1e-5, atol=1e-6)
        for a, b in zip(parameters, others, strict=True):
            np.testing.assert_allclose(b.tolist(), a.tolist(), rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(b.grad.tolist(), a.grad.tolist(), rtol=1e-5, atol=1e-6)
    assert len(compiled.programs) == 1


def test_memory_of_gradients_is_used_again_where_one_is_a_constant(monkeypatch):
    layer = nn.Linear(3, 2)

    def step(x):
        layer.zero_grad()
        total = layer(x).sum()  # the bias's gradient is known before
        total.backward()
        return total

    compiled = ad.compile(step)
    for i in range(3):
        compiled(ad.full((4, 3), float(i)))
        assert layer.bias.grad.tolist() == [4, 4]
        assert layer.weight.grad.tolist() == [[4.0 * i] * 3] * 2
    program = compiled.programs[0]
    monkeypatch.setattr(program, "_bind", None)
    for _ in range(3):
        compiled(ad.ones(4, 3))


def test_a_gradient_that_no_operation_has_computed_is_refused():
    w, v = (nn.Parameter(ad.ones(3)) for _ in range(2))
    optimizer = ad.optim.SGD([w, v], lr=0.5)

    def step(x, given):
        optimizer.zero_grad()
        (w + x).backward(given())
        (v * 2).sum().backward()
        optimizer.step()

    with pytest.raises(Unsupported, match=r"no operation has computed|another tensor"):
        ad.compile(lambda x: step(x, v.detach))(ad.ones(3))
    assert w.tolist() == v.tolist() == [1, 1, 1]
    ad.compile(lambda x: step(x, lambda: v * 1))(ad.ones(3))
    assert [w.grad.tolist(), w.tolist(), v.tolist()] == [[1] * 3, [0.5] * 3, [0] * 3]


def test_memory_of_eager_calls_is_given_back():
    """What the allocator keeps of them would lie beside the program's own memory."""
    x = ad.ones(1 << 20)
    for _ in range(2):
        (x * 2 + 1).sum()
    assert ad.memory_stats()["cached"] >= x.numpy().nbytes
    ad.compile(lambda x: (x * 3).sum())(x)
    assert ad.memory_stats()["cached"] < x.numpy().nbytes


def test_targets_that_are_a_copied_part_of_an_argument_are_checked_as_they_are_now():
    weight = ad.randn(5, 4).requires_grad_()

    def step(x, y):
        weight.grad = None
        loss = nn.functional.cross_entropy((x @ weight).reshape(-1, 4), y[:, 1:].reshape(-1))
        loss.backward()
        return loss

    compiled = ad.compile(step)
    for k in range(3):  # before, what the last call had left in memory was checked
        x, y = ad.randn(2, 3, 5), (ad.arange(8).reshape(2, 4) + k) % 4
        np.testing.assert_allclose(compiled(x, y).item(), step(x, y).item(), rtol=1e-6)
    y[1, 2] = 7
    before = weight.grad.tolist()
    with pytest.raises(IndexError, match="Target 7 is out of bounds"):
        compiled(x, y)
    assert weight.grad.tolist() == before
    y[1, 2], y[0, 0] = 3, 99  # which is not read
    assert compiled(x, y).item() == pytest.approx(step(x, y).item(), rel=1e-6)


def test_a_parameter_of_another_shape_is_noticed():
    layer = nn.Linear(3, 2)
    compiled = ad.compile(layer)
    compiled(ad.ones(1, 3))
    layer.weight.data, layer.bias.data = ad.ones(5, 3), ad.ones(5)
    assert compiled(ad.ones(1, 3)).tolist() == [[4.0] * 5]
    assert compiled._compiled_call.reasons[1] == (
        "a state was (2, 3) float32 and is (5, 3) float32"
    )


def test_views_of_what_is_computed_are_views_of_symbols():
    """`view` asks whether memory allows it: of a part, yes; of what was transposed, no."""

    def heads(x):
        parts = (x * 2).chunk(3, dim=-1)
        return [part.view(2, 3, 2, 2).transpose(1, 2) for part in parts]

    x = ad.arange(72.0).reshape(2, 3, 12)
    for found, expected in zip(ad.compile(heads)(x), heads(x), strict=True):
        assert found.tolist() == expected.tolist()
    with pytest.raises(RuntimeError, match="is not compatible with input tensor's size"):
        ad.compile(lambda x: (x * 2).transpose(0, 1).view(-1))(x)


def test_what_a_write_to_a_view_has_made_of_its_base_is_returned():
    def step(x):
        y = ad.nn.functional.softplus(x * 2)
        y.T[0] = x.sum()
        return y

    x = ad.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(ad.compile(step)(x).numpy(), step(x).numpy(), rtol=1e-6)


def test_windows_are_views():
    def step(x):
        return x.unfold(0, 2, 1), x.unfold(0, 3, 2) * 2

    x = ad.arange(6.0)
    for found, expected in zip(ad.compile(step)(x), step(x), strict=True):
        assert found.tolist() == expected.tolist()


def test_what_the_function_makes_and_writes_is_made_in_each_call():
    def step(x):
        total, rows, grid = ad.zeros(3), ad.ones(2, 3), ad.full((2, 3), 2.0)
        total.mul_(2).add_(x)
        rows.T[0] = x.sum()
        grid[:, 1:] *= x[0]
        start = ad.tensor([1.0, 2.0, 3.0])
        for k in range(2):
            start += x * k
        return total, rows, grid, start

    compiled = ad.compile(step)
    found = [compiled(ad.full((3,), 2.0)) for _ in range(3)]
    for each in found:
        for a, b in zip(each, step(ad.full((3,), 2.0)), strict=True):
            assert a.tolist() == b.tolist()
    assert found[0][0] is not found[1][0]


def test_what_the_function_makes_may_get_a_history():
    weight = nn.Parameter(ad.ones(3))

    def step(x):
        rows = ad.zeros(2, 3)
        rows[0] = weight * x
        rows[1] += rows[0].detach()
        own = ad.ones(3, requires_grad=True)
        (rows * own).sum().backward()
        return rows, own.grad

    compiled = ad.compile(step)
    for k in range(3):
        weight.grad = None
        expected = step(ad.full((3,), 2.0 + k))
        gradient, weight.grad = weight.grad, None
        found = compiled(ad.full((3,), 2.0 + k))
        assert [y.tolist() for y in found] == [y.tolist() for y in expected]
        assert weight.grad.tolist() == gradient.tolist()
    assert len(compiled.programs) == 1


@pytest.mark.parametrize("name", ["SGD", "momentum", "Adam"])
def test_what_is_written_to_parameters_before_an_optimizers_step_counts(name):
    ad.manual_seed(0)
    models = mlp(), mlp()
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [OPTIMIZERS[name](list(m.parameters())) for m in models]

    def step_of(model, optimizer):
        def step(x, y):
            optimizer.zero_grad()
            with ad.no_grad():
                for p in model.parameters():
                    p.mul_(0.9)
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            with ad.no_grad():
                model[0].bias.add_(1.0)
            optimizer.step()
            return loss

        return step

    eager, compiled = step_of(models[0], optimizers[0]), step_of(models[1], optimizers[1])
    compiled = ad.compile(compiled)
    for i in range(4):
        np.testing.assert_allclose(
            compiled(*digits(seed=i)).item(), eager(*digits(seed=i)).item(), rtol=1e-4
        )
        for p, q in zip(*(m.parameters() for m in models), strict=True):
            np.testing.assert_allclose(q.tolist(), p.tolist(), rtol=2e-4, atol=1e-5)
    assert len(compiled.programs) == 1


def test_one_result_of_a_routine_that_gives_a_tuple():
    cell = nn.GRUCell(3, 4)
    with ad.no_grad():
        assert ad.compile(cell)(ad.ones(5, 3)).shape == (5, 4)


def test_the_order_of_what_was_written_to_views_around_a_step_of_an_optimizer():
    weight = nn.Parameter(ad.ones(2, 2))
    optimizer = ad.optim.SGD([weight], lr=0.5)

    def step(x):
        optimizer.zero_grad()
        y = weight * x
        y.T[0] = 3.0
        y.sum().backward(retain_graph=True)
        optimizer.step()
        return y

    found = ad.compile(step)(ad.ones(2, 2))
    assert found.tolist() == [[3.0, 1.0], [3.0, 1.0]]
    assert weight.tolist() == [[1.0, 0.5], [1.0, 0.5]]


def test_memory_of_arrays_is_read_and_never_written():
    numbers = np.zeros(3, np.float32)

    def step(x):
        y = ad.from_numpy(numbers)
        y += x
        return y

    with pytest.raises(Unsupported, match="shares with an array"):
        ad.compile(step)(ad.ones(3))
    assert numbers.tolist() == [0.0] * 3
    found = ad.compile(lambda x: ad.from_numpy(np.ones(3, np.float32)) + x)(ad.ones(3))
    assert found.tolist() == [2.0] * 3


def test_view_is_a_view_of_what_has_a_layout_for_it():
    weight = nn.Parameter(ad.arange(6.0).reshape(2, 3))

    def step(x):
        y = x * 2
        y.view(-1)[0] += 1
        part = y.view(3, 2).view_as(x)
        return part, x.view(-1), weight.view(3, 2) * 2, y.T.contiguous().view(6)

    x = ad.arange(6.0).reshape(2, 3)
    for found, expected in zip(ad.compile(step)(x), step(x), strict=True):
        assert found.tolist() == expected.tolist()
    with pytest.raises(ShapeError, match="is not compatible"):  # no view of what lies otherwise
        ad.compile(lambda x: x.view(-1))(x.T)


def test_one_gradient_of_two_tensors_is_refused():
    weights = [nn.Parameter(ad.ones(2)) for _ in range(2)]
    optimizer = ad.optim.SGD(weights, lr=0.1)

    @ad.compile
    def step(x):
        optimizer.zero_grad(set_to_none=False)
        (weights[0] * weights[1] * x).sum().backward()

    for _ in range(2):
        step(ad.ones(2))
    weights[1].grad = weights[0].grad
    with pytest.raises(Unsupported, match="one and the same gradient"):
        step(ad.ones(2))


def test_what_was_written_to_a_view_is_a_result_before_gradients_come():
    """Beside another result with gradients: it was computed with these, and zeros until then."""
    layer = nn.Linear(4, 4)

    def step(x):
        y = x + 1
        part = y.squeeze()
        part.lerp_(part * 3, 0.25)
        return layer(x), y

    x = ad.randn(5, 4)
    for found, expected in zip(ad.compile(step)(x), step(x), strict=True):
        np.testing.assert_allclose(found.tolist(), expected.tolist(), rtol=1e-6)


def test_gradients_that_are_constants():
    layer = nn.Linear(3, 3)

    def step(x):
        y = nn.functional.linear(x[-1], layer.weight, layer.bias)
        y.zero_()
        loss = x.sin().sum() + (y * y).mean()
        loss.backward()
        return loss

    x = ad.randn(3, 3).requires_grad_()
    for run in (step, ad.compile(step)):
        x.grad = layer.weight.grad = layer.bias.grad = None
        run(x)
        np.testing.assert_allclose(x.grad.tolist(), x.cos().tolist(), rtol=1e-6)
        assert layer.bias.grad is None or layer.bias.grad.tolist() == [0.0] * 3


def test_gradients_of_before_lend_their_memory():
    """Those of the first step, which is eager, are written over, but where somebody has them."""
    model = nn.Linear(6, 4)
    optimizer = ad.optim.Adam(model.parameters(), lr=1e-3)

    @ad.compile
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step(ad.ones(3, 6))
    kept = model.bias.grad
    before, value = model.weight.grad._data.ctypes.data, kept.tolist()
    step(ad.zeros(3, 6))
    assert model.weight.grad._data.ctypes.data == before
    assert kept.tolist() == value and model.bias.grad is not kept


def test_a_first_step_that_fails_changes_nothing_and_the_next_one_may_do():
    """The optimizer's own error comes before it writes: its counts alone are put back."""
    weight = ad.nn.Parameter(ad.ones(4, 6).t())  # not contiguous
    optimizer = ad.optim.Adam([weight], lr=0.1)
    x = ad.ones(3, 6)

    def step():
        optimizer.zero_grad()
        loss = (x @ weight).sum()
        loss.backward()
        optimizer.step()
        return loss

    step()
    before = weight.tolist(), optimizer.state[weight]["step"].item()
    compiled = ad.compile(step)
    for _ in range(2):
        with pytest.raises(Unsupported, match="make parameters contiguous"):
            compiled()
        assert (weight.tolist(), optimizer.state[weight]["step"].item()) == before


def test_memory_that_cannot_be_bound_is_refused_each_time():
    """A program whose parameters have come to share memory, and then do no more."""
    p, q = (ad.nn.Parameter(ad.ones(4)) for _ in range(2))
    optimizer = ad.optim.SGD([p, q], lr=0.1)

    @ad.compile
    def step():
        optimizer.zero_grad()
        loss = (p * q).sum()
        loss.backward()
        optimizer.step()
        return loss

    step()
    own = q.data.clone()
    q.data = p.data[:]
    for _ in range(2):
        with pytest.raises(Unsupported, match="memory"):
            step()
    q.data = own
    assert step().item() == pytest.approx(4 * 0.9 * 0.9)


@pytest.mark.parametrize("part", [slice(None), slice(0, 2)])
def test_gradients_of_embeddings_are_written_where_they_are_wanted(part):
    """The index was found to be within the table before, if it is the same one; a wrong one changes
    nothing in any case.
    """
    table, layer = nn.Embedding(5, 3), nn.Linear(3, 2)
    parameters = [*table.parameters(), *layer.parameters()]
    optimizer = ad.optim.SGD(parameters, lr=0.1)

    @ad.compile
    def step(x):
        optimizer.zero_grad()
        loss = layer(table(x)).square().mean() + layer(table(x[part])).sum()
        loss.backward()
        optimizer.step()
        return loss

    step(ad.tensor([0, 4, -0, 1]))
    [program] = step.programs
    assert not program.late and not program.bindings.copies
    before = [x.tolist() for p in parameters for x in (p, p.grad)]
    with pytest.raises(IndexError):
        step(ad.tensor([0, 5, 1, 1]))
    assert [x.tolist() for p in parameters for x in (p, p.grad)] == before


def test_a_first_step_that_fails_leaves_gradients_as_they_were():
    """Their memory is the program's already, when the optimizer's states turn out not to fit."""
    ad.manual_seed(0)
    model, x = nn.Linear(4, 3).double(), ad.randn(5, 4, dtype=ad.float64)
    optimizer = ad.optim.NAdam(model.parameters(), lr=0.1)

    @ad.compile
    def step(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    step(x)
    model.float()
    before = [p.grad.tolist() for p in model.parameters()]
    values = [p.tolist() for p in model.parameters()]
    with pytest.raises(Exception, match="dtype"):
        step(x.float())
    assert [p.grad.tolist() for p in model.parameters()] == before
    assert [p.tolist() for p in model.parameters()] == values


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(), lambda x: x.unfold(0, 2, 1), lambda x: x[:, ::2],
        lambda x: x.expand(2, 5, 4),
        lambda x: x.t()[1:], lambda x: x.diagonal(), lambda x: x.flip(0),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "reading",
    [
        lambda x: x.flatten(), lambda x: x.reshape(-1, 1) * 2, lambda x: x.contiguous().view(-1),
        lambda x: ad.cat([x, x]).reshape(-1), lambda x: x.sum(0), lambda x: x @ x.mT,
    ],
)  # fmt: skip
def test_views_made_before_a_step_and_read_after_it(view, reading):
    """They lie as they do eagerly: what is a view of a row-major array may be a copy of theirs."""
    model = ad.nn.Linear(4, 3)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    x, y = ad.randn(5, 4), ad.randn(5, 4)

    def step(x, y):
        shown = view(x * y)
        optimizer.step()
        return reading(shown) if shown.ndim > 1 else shown.flatten()

    compiled = ad.compile(step)
    for scale in (1.0, 2.0):
        model.weight.grad, model.bias.grad = ad.ones(3, 4), ad.ones(3)
        expected = step(x * scale, y)
        np.testing.assert_allclose(
            compiled(x * scale, y).numpy(), expected.numpy(), rtol=1e-5, atol=1e-6
        )


def test_a_variance_of_which_only_the_mean_is_read():
    """Its gradient needs that alone, when what the variance was is written over."""

    def function(x):
        y = x.var()
        y.view(-1)[0] += 1
        return y

    x = ad.randn(2, 4, requires_grad=True)
    other = x.detach().clone().requires_grad_()
    ad.compile(function)(x).backward()
    function(other).backward()
    np.testing.assert_allclose(x.grad.numpy(), other.grad.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    "function", [lambda x: x.std(), lambda x: x.exp(), lambda x: x.std(-1, keepdim=True)]
)
def test_data_of_what_a_node_has_saved_is_not_computed_again(function):
    """Eagerly its gradient reads what was written; a program would read what was before."""

    @ad.compile
    def step(x):
        y = function(x)
        y.data.mul_(0.5)
        (y * y).mean().backward()

    with pytest.raises(ad.AutogradError, match="modified by an inplace"):
        step(ad.rand(3, 4, requires_grad=True))
