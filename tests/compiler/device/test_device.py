"""Compiled steps on a device of PyTorch's: the values, states and gradients of eager execution."""

from __future__ import annotations

import copy

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch, whose tensors are the storage, is not installed")

import adjoint as ad
from adjoint import nn
from adjoint.backends.torch import Array
from adjoint.compiler.device.device_step import OnDevice
from adjoint.compiler.passes import device_passes
from adjoint.core import policy
from adjoint.core.errors import AutogradError, Unsupported

DEVICES = [
    pytest.param("torch"),
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not ad.cuda.is_available(), reason="there is no CUDA device"),
    ),
]


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


MODELS = {
    "an MLP with dropout": (
        lambda: nn.Sequential(
            nn.Linear(12, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4), nn.LogSoftmax(-1)
        ),
        (6, 12),
        lambda p: ad.optim.AdamW(p, lr=0.01, amsgrad=True),
    ),
    "a convolutional net": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.GELU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(64, 4), nn.LogSoftmax(-1),
        ),
        (5, 3, 8, 8),
        lambda p: ad.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    ),
    "an encoder": (
        lambda: nn.Sequential(
            nn.TransformerEncoderLayer(12, 2, 16, batch_first=True), nn.Flatten(),
            nn.Linear(36, 4), nn.LogSoftmax(-1),
        ),
        (4, 3, 12),
        # The keys' bias has no gradient but for rounding, which Adam would make large.
        lambda p: ad.optim.SGD(p, lr=0.05, momentum=0.9),
    ),
    "a recurrent layer": (
        lambda: nn.Sequential(_Last(), nn.Linear(8, 4), nn.LogSoftmax(-1)),
        (4, 5, 12),
        lambda p: ad.optim.RMSprop(p, lr=0.01, centered=True),
    ),
}  # fmt: skip


class _Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(12, 8, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0][:, -1]


class Pair:
    """A model twice: trained eagerly, and by a compiled step."""

    def __init__(self, name, device):
        make, shape, optimizer = MODELS[name]
        ad.manual_seed(0)
        model = make().to(device)
        self.models = model, copy.deepcopy(model)
        self.optimizers = [optimizer(list(m.parameters())) for m in self.models]
        self.x = ad.randn(*shape, device=device)
        self.y = ad.randint(0, 4, (shape[0],), device=device)
        first, second = map(self._step, (0, 1))
        self.eagerly, self.compiled = first, ad.compile(second)

    def _step(self, n):
        model, optimizer = self.models[n], self.optimizers[n]

        def step(x, y):
            optimizer.zero_grad()
            loss = nn.functional.nll_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    def run(self):
        """One step of each, with the same random numbers."""
        losses = []
        state = ad.get_rng_state()
        for step in (self.eagerly, self.compiled):
            ad.set_rng_state(state)
            losses.append(step(self.x, self.y).item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)

    def check(self):
        for name in ("named_parameters", "named_buffers"):
            pairs = zip(*(getattr(m, name)() for m in self.models), strict=True)
            for (key, a), (_, b) in pairs:
                close(b, a, key)
                if a.requires_grad:
                    close(b.grad, a.grad, key)
        for a, b in zip(*(o.state_dict()["state"].values() for o in self.optimizers), strict=True):
            for key, value in a.items():
                close(b[key], value, key)

    @property
    def program(self):
        [found] = self.compiled.programs
        return found


def close(found, expected, said=""):
    np.testing.assert_allclose(
        found.tolist(), expected.tolist(), rtol=1e-4, atol=1e-6, err_msg=said
    )


@pytest.mark.parametrize("name", MODELS)
def test_one_capture_stands_for_many_sizes(name, device):
    pair = Pair(name, device)
    x, y = pair.x, pair.y
    whole = len(x)
    for rows in (whole, whole + 3, whole + 1, whole + 5, 9, whole):
        pair.x = ad.cat([x, x.flip(0), x])[:rows]
        pair.y = ad.cat([y, y, y])[:rows]
        pair.run()
    pair.check()
    assert sum("stands for such sizes" in each for each in pair.compiled.reasons)


@pytest.mark.parametrize("name", MODELS)
def test_a_whole_step_is_one_program_with_the_values_of_eager_steps(name, device):
    pair = Pair(name, device)
    for _ in range(4):
        pair.run()
    pair.check()
    assert pair.compiled.reasons == ["first call"]
    assert type(pair.program) is OnDevice
    assert all(type(p._data) is Array for p in pair.models[1].parameters())


@pytest.mark.parametrize("size", [1, 7])
def test_convolutions_with_channels_last_give_what_others_do(size, device, monkeypatch):
    monkeypatch.setattr(device_passes, "has_matrix_units", lambda place: True)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1), nn.Conv2d(8, 8, 1), nn.GELU(),
        nn.Conv2d(8, 4, (3, 2), 1, (1, 0)), nn.Conv2d(4, 4, 3, padding=1, groups=2),
    ).to(device)  # fmt: skip
    models = model, copy.deepcopy(model)
    images = ad.randn(2, 3, 9, 2 * size + 1, device=device)
    found = []
    for made in models:
        x = images.clone().requires_grad_()
        step = lambda x, made=made: (made(x), made(x).flatten(1).sum().backward())[0]  # noqa: E731
        run = ad.compile(step) if made is models[1] else step
        for _ in range(3):
            y = run(x)
        found.append([y, x.grad, *(p.grad for p in made.parameters()), *made.buffers()])
    tolerance = 1e-2 if device == "cuda" else 1e-4  # ten bits, and the same sums in other orders
    for a, b in zip(*found, strict=True):
        size = max(a.abs().max().item(), 1)
        np.testing.assert_allclose(b.tolist(), a.tolist(), rtol=tolerance, atol=tolerance * size)
        assert b.is_contiguous()
    program = run.programs[-1]
    laid = [n for n in program.parts[0].graph.nodes if n.op.name == "channels_last"]
    assert len(laid) == 4  # the images, and weights; of the fourth channels are in groups
    names = [n.op.name for n in program.parts[0].graph.nodes]
    assert {"pool_with_places", "spread_from_places"} < {*names}
    assert "max_pool_input" not in names


def test_states_between_calls_are_those_of_eager_code(device):
    pair = Pair("an MLP with dropout", device)
    for _ in range(2):
        pair.run()
    for model, optimizer in zip(pair.models, pair.optimizers, strict=True):
        optimizer.param_groups[0]["lr"] = 0.1
        with ad.no_grad():
            model[0].weight.mul_(0.5)
        model[3].bias.data = ad.ones(4, device=device)
    for _ in range(2):
        pair.run()
    assert len(pair.compiled.programs) == 1
    for model in pair.models:
        model.eval()
    pair.run()
    pair.check()
    for optimizer in pair.optimizers:
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    pair.run()
    pair.check()
    assert len(pair.compiled.programs) == 2  # which go on with the loaded state


def test_gradients_accumulate_and_are_nobody_elses(device):
    w = nn.Parameter(ad.tensor([1.0, 2.0], device=device))

    @ad.compile
    def step(x):
        (w * x).sum().backward()

    x = ad.tensor([3.0, 4.0], device=device)
    step(x)
    first = w.grad
    assert first.tolist() == [3, 4]
    step(x)
    step(x)
    assert w.grad.tolist() == [9, 12]
    assert first.tolist() in ([3, 4], [9, 12])  # kept, or added to
    w.grad.zero_()
    assert x.tolist() == [3, 4]  # the gradient was no view of it
    assert w.tolist() == [1, 2]


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_several_batches_are_added_as_they_come(name, device, monkeypatch):
    monkeypatch.setattr(policy, "RUNNING_SUM", 0)
    pair = Pair(name, device)

    def step(n):
        model, optimizer = pair.models[n], pair.optimizers[n]

        def several(x, y):
            optimizer.zero_grad()
            loss = 0
            for part, wanted in zip(x.chunk(3), y.chunk(3), strict=True):
                found = nn.functional.nll_loss(model(part), wanted)
                found.backward()
                loss = loss + found.detach()
            optimizer.step()
            return loss

        return several

    pair.eagerly, pair.compiled = step(0), ad.compile(step(1))
    for _ in range(3):
        pair.run()
    pair.check()


def test_results_share_the_memory_that_they_share_eagerly(device):
    w = nn.Parameter(ad.arange(4.0, device=device))
    function = ad.compile(lambda x: (w.detach()[1:], x.reshape(2, 2), x.clone().t(), x * 1))
    x = ad.ones(4, device=device)
    for n, y in enumerate(function(x)):
        y.fill_(7.0 + n)
    assert w.tolist() == [0, 7, 7, 7]
    assert x.tolist() == [8] * 4


def test_values_from_before_an_optimizer_s_step_stay(device):
    w = nn.Parameter(ad.ones(2, device=device))
    optimizer = ad.optim.SGD([w], lr=1.0)

    @ad.compile
    def step(x):
        optimizer.zero_grad()
        before = w * 1.0
        (w * x).sum().backward()
        optimizer.step()
        return before.detach() + x

    x = ad.tensor([2.0, 3.0], device=device)
    assert step(x).tolist() == [3, 4]
    assert w.tolist() == [-1, -2]


def test_gradients_through_what_is_returned(device):
    layer = nn.Linear(3, 2).to(device)
    compiled = ad.compile(layer)
    x = ad.randn(4, 3, device=device, requires_grad=True)
    ys = [compiled(x * k) for k in (1, 2)]  # two calls wait for their backward
    (ys[0].exp().sum() + ys[1].sin().sum()).backward()
    found = [t.grad.clone() for t in (x, layer.weight, layer.bias)]
    for t in (x, layer.weight, layer.bias):
        t.grad = None
    (layer(x).exp().sum() + layer(x * 2).sin().sum()).backward()
    for a, t in zip(found, (x, layer.weight, layer.bias), strict=True):
        close(a, t.grad)
    y = compiled(x)
    y.sum().backward()
    with pytest.raises(AutogradError, match="second time"):
        y.sum().backward()


def test_an_error_leaves_states_and_generators_as_they_were(device):
    layer = nn.Embedding(4, 2).to(device)
    optimizer = ad.optim.SGD(layer.parameters(), lr=1.0)

    @ad.compile
    def step(probabilities):
        optimizer.zero_grad()
        drawn = ad.bernoulli(probabilities)
        loss = (layer.weight[:, 0] * drawn).sum()
        loss.backward()
        optimizer.step()
        return loss

    step(ad.full((4,), 0.5, device=device))
    weights, state = layer.weight.tolist(), ad.get_rng_state().tolist()
    with pytest.raises((ValueError, RuntimeError), match="bernoulli"):
        step(ad.full((4,), 2.0, device=device))
    assert layer.weight.tolist() == weights
    assert ad.get_rng_state().tolist() == state


def test_devices_have_programs_of_their_own_and_do_not_mix(device):
    function = ad.compile(lambda x: x * 2 + 1)
    for place in (device, "cpu", device):
        y = function(ad.ones(3, device=place))
        assert (y.device.type, y.tolist()) == (place, [3] * 3)
    assert len(function.programs) == 2
    assert f"on {device}" in function.reasons[1]
    both = ad.compile(lambda x, y: x + y)
    with pytest.raises(Unsupported, match=rf"tensors on {device}.* and cpu in one function"):
        both(ad.ones(3, device=device), ad.ones(3))
    assert both(ad.ones(3), ad.ones(3)).device.type == "cpu"


def test_a_tensor_of_the_host_without_dimensions_is_a_number(device):
    x, factor = ad.arange(3.0, device=device), ad.tensor(2.0)
    function = ad.compile(lambda x: (factor * x, x / factor, (x * factor).sum().to("cpu")))
    for value in (2.0, 5.0):
        factor.fill_(value)
        a, b, c = function(x)
        assert a.device.type == b.device.type == device
        assert c.device.type == "cpu"
        assert (a.tolist(), c.item()) == ([0, value, 2 * value], 3 * value)
        assert b.tolist() == (x / value).tolist()
    assert len(function.programs) == 1


def test_a_model_that_moves_is_compiled_again(device):
    layer = nn.Linear(3, 2)
    compiled = ad.compile(lambda: layer.weight.sum() * 2)
    before = compiled().item()
    layer.to(device)
    assert compiled().item() == pytest.approx(before)
    assert compiled().device.type == device
    layer.to("cpu")
    assert compiled().device.type == "cpu"


def test_sizes_and_dtypes(device):
    def function(x):
        y = x * 2 + 1
        return y.sum(), y.softmax(-1), (y > 1).any()

    compiled = ad.compile(function)
    for shape in ((0,), (1,), (15,), (3, 0), (1 << 12, 3)):
        for dtype in (ad.float32, ad.float64, ad.bfloat16):
            x = ad.randn(*shape, dtype=ad.float32, device=device).to(dtype)
            for a, b in zip(compiled(x), function(x), strict=True):
                assert (a.dtype, a.shape) == (b.dtype, b.shape)
                narrow = a.dtype is ad.bfloat16  # a kernel rounds once, ops each
                np.testing.assert_allclose(
                    a.tolist(), b.tolist(), rtol=0.05 if narrow else 1e-5, atol=1e-6
                )


def test_an_autocast_step(device):
    layer = nn.Linear(8, 4).to(device)
    x = ad.randn(5, 8, device=device)

    def function():
        with ad.autocast(device, dtype=ad.bfloat16):
            return layer(x).relu()

    found, expected = ad.compile(function)(), function()
    assert found.dtype is expected.dtype is ad.bfloat16
    assert found.tolist() == expected.tolist()


def test_a_program_is_explained(device):
    pair = Pair("an MLP with dropout", device)
    pair.run()
    found = pair.compiled.explain(pair.x, pair.y)
    names = [row.name for row in found.rows]
    assert names.count("linear") == 2
    assert names[-1] == "AdamW.step"
    assert {row.how for row in found.rows if row.name == "linear"} == {"product"}
    assert 0 < found.memory <= found.without_reuse
    assert found.peaks.operations > 0 < found.peaks.bytes
    assert "AdamW.step" in str(found)
