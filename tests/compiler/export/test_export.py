"""Programs in files: what is loaded computes, and trains on, as the function it was made of."""

import copy
import dataclasses
import io
import os
import subprocess
import sys
import textwrap
import time
from collections import Counter, namedtuple

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core import policy
from adjoint.core.errors import (
    AdjointError,
    CheckpointError,
    IndexingError,
    InvalidArgument,
    InvalidType,
    Unsupported,
)
from adjoint.core.op import REGISTRY
from adjoint.io import checkpoint
from tests.compiler import test_optimizers as optimizers
from tests.compiler import test_training_programs as programs
from tests.native import needs_native

pytestmark = needs_native
F = nn.functional


def exported(function, *example):
    """What is loaded from a file of a function."""
    return loaded(file_of(function, *example))


def file_of(function, *example):
    """The bytes of a file of a function, for an example or a list of some."""
    file = io.BytesIO()
    several = len(example) == 1 and type(example[0]) is list
    ad.export(function, example[0] if several else example, file)
    return file.getvalue()


def loaded(data, **options):
    return ad.export.load(io.BytesIO(data), **options)


def bits(found):
    """All tensors in results, as bytes."""
    if isinstance(found, ad.Tensor):
        data = found.detach().numpy()
        return [(data.shape, str(data.dtype), data.tobytes())]
    if isinstance(found, dict):
        return [x for value in found.values() for x in bits(value)]
    if isinstance(found, (tuple, list)):
        return [x for value in found for x in bits(value)]
    return [found]


def assert_trains_alike(step, loaded, model, examples):
    """Each call of both: results, the model's state and its gradients, bit for bit."""
    for example in examples:
        found, expected = loaded(*example), step(*example)
        assert bits(found) == bits(expected)
        state = loaded.state_dict()
        assert list(state) == list(model.state_dict())
        assert bits(state) == bits(model.state_dict())
        own = loaded.named_parameters()
        for name, p in model.named_parameters():
            assert (p.grad is None) == (own[name].grad is None), name
            if p.grad is not None:
                assert bits(own[name].grad) == bits(p.grad), name


# ---- steps ---------------------------------------------------------------------------------------


def usual(model, loss_of, make=ad.optim.Adam, **options):
    optimizer = make(model.parameters(), **options)

    def step(*batch):
        optimizer.zero_grad()
        loss = loss_of(model, *batch)
        loss.backward()
        optimizer.step()
        return loss

    return step, model


def classified(model, x, y):
    return F.cross_entropy(model(x), y)


def digits(*shape, classes=4):
    return [(ad.randn(*shape), ad.randint(0, classes, shape[:1])) for _ in range(4)]


class Last(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.layer = kind(6, 5, batch_first=True, **options)
        self.head = nn.Linear(5 * (1 + bool(options.get("bidirectional"))), 4)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.head = nn.Linear(8, 24), nn.Linear(8, 4)

    def forward(self, x):
        q, k, v = (each[:, None] for each in self.project(x).chunk(3, -1))
        return self.head(F.scaled_dot_product_attention(q, k, v, is_causal=True)[:, 0, -1])


def mlp():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    return *usual(model, classified, lr=0.02), digits(5, 6)


def statistics_and_dropout():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4))
    model.append(nn.Linear(8, 4))
    return *usual(model, classified, ad.optim.AdamW, amsgrad=True), digits(5, 6)


def images():
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, stride=2, groups=2), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(6, 4),
    )  # fmt: skip
    step = usual(model, classified, ad.optim.SGD, lr=0.1, momentum=0.9, nesterov=True)
    return *step, digits(3, 2, 10, 10)


def lstm():
    return *usual(Last(nn.LSTM, num_layers=2, dropout=0.2), classified), digits(3, 7, 6)


def gru():
    return *usual(Last(nn.GRU, bidirectional=True), classified), digits(3, 7, 6)


def attention():
    return *usual(Attending(), classified), digits(2, policy.ATTENTION_WHOLE, 8)


def gpt():
    config = ad.models.GPT2Config(vocab_size=11, n_positions=8, n_embd=8, n_layer=2, n_head=2)
    model = ad.models.GPT2(config)

    def loss_of(model, tokens):
        found = model(tokens)
        logits = found if isinstance(found, ad.Tensor) else found[0]
        return F.cross_entropy(logits[:, :-1].reshape(-1, 11), tokens[:, 1:].reshape(-1))

    batches = [(ad.randint(0, 11, (2, 8)),) for _ in range(3)]
    return *usual(model, loss_of, ad.optim.AdamW, weight_decay=0.1), batches


def two_optimizers():
    model = nn.ModuleDict({"made": nn.Linear(3, 6), "judged": nn.Linear(6, 1)})
    first = ad.optim.Adam(model["made"].parameters(), lr=0.01)
    second = ad.optim.RMSprop(model["judged"].parameters(), lr=0.01)

    def step(real):
        noise = ad.randn(len(real), 3)
        fake = model["made"](noise)
        second.zero_grad()
        judged = model["judged"](fake.detach()).mean() - model["judged"](real).mean()
        judged.backward()
        second.step()
        first.zero_grad()
        loss = -model["judged"](fake).mean()
        loss.backward()
        first.step()
        return {"judged": judged, "losses": (loss, [judged * 2])}

    return step, model, [(ad.randn(4, 6),) for _ in range(4)]


def accumulation():
    model = nn.Linear(3, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        loss = model(x).square().mean()
        loss.backward()  # adds to what is there
        optimizer.step()
        return loss

    return step, model, [(ad.randn(4, 3),) for _ in range(4)]


def groups_and_half_precision():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)).bfloat16()
    groups = [
        {"params": model[0].parameters(), "lr": 0.1},
        {"params": model[2].parameters(), "weight_decay": 0.01},
    ]
    optimizer = ad.optim.Adam(groups, lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.bfloat16()), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step, model, digits(5, 6)


STEPS = [
    mlp, statistics_and_dropout, images, lstm, gru, attention, gpt, two_optimizers, accumulation,
    groups_and_half_precision,
]  # fmt: skip


@pytest.mark.parametrize("make", STEPS, ids=lambda make: make.__name__)
def test_a_loaded_step_trains_on_as_the_compiled_one(make):
    ad.manual_seed(0)
    step, model, examples = make()
    compiled = ad.compile(step)
    for _ in range(2):
        compiled(*examples[0])
    loaded = exported(compiled, *examples[0])
    assert_trains_alike(compiled, loaded, model, examples * 2)
    file = io.BytesIO()  # and on, from another file
    ad.export.save(loaded, file)
    file.seek(0)
    again = ad.export.load(file)
    assert_trains_alike(compiled, again, model, examples)
    for optimizer in again.optimizers:
        optimizer.param_groups[0]["lr"] *= 0.5
    loaded(*examples[0])
    again(*examples[0])
    assert bits(loaded.state_dict()) != bits(again.state_dict())


@pytest.mark.parametrize("name", programs.NAMES)
def test_training_programs_of_other_tests(name):
    _, compiled, (_, model) = programs.both_of(name)
    examples = [(ad.full((6, 4), 0.3 * i + 0.1) + ad.arange(4) * 0.1,) for i in range(4)]
    compiled(*examples[0])
    loaded = exported(compiled, *examples[0])
    for example in examples:
        assert bits(loaded(*example)) == bits(compiled(*example))
    known = loaded.state_dict()
    for name, x in model.state_dict().items():
        assert any(bits(known[key]) == bits(x) for key in known if key.endswith(name)), name


class Kept(nn.Module):
    """Tensors in attributes, an item, and two that change places."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 5)
        self.register_buffer("h", ad.zeros(4, 5))
        self.register_buffer("a", ad.zeros(2))
        self.register_buffer("b", ad.ones(2))
        self.seen = {"last": ad.zeros(4, 3)}
        self.register_buffer("first", self.h)  # the same tensor, which stays

    def forward(self, x):
        self.h = self.cell(x, self.h).detach()
        self.a, self.b = self.b, self.a + 1
        difference = x - self.seen["last"]
        self.seen["last"] = x.clone()
        return self.h.sum() + self.first.sum() + (self.a * ad.tensor([1.0, 10.0])).sum(), difference


def test_tensors_that_a_function_sets_are_state_of_a_file():
    ad.manual_seed(0)
    model = Kept()
    before = {name: (x, x.tolist()) for name, x in model.named_buffers()}
    last = model.seen["last"]
    with ad.no_grad():
        loaded = exported(model, ad.zeros(4, 3))
        assert {name: (x, x.tolist()) for name, x in model.named_buffers()} == before
        assert model.seen["last"] is last  # nothing has changed
        for k in range(5):
            x = ad.full((4, 3), 0.3 * k) + ad.arange(3)
            assert bits(loaded(x)) == bits(ad.compile(model)(x))
        file = io.BytesIO()
        ad.export.save(loaded, file)
        file.seek(0)
        again = ad.export.load(file)
        assert bits(again(x)) == bits(ad.compile(model)(x))
        known = again.state_dict()
        for name in ("h", "a", "b", "first"):
            assert known[name].tolist() == getattr(model, name).tolist()


def test_other_things_that_a_function_sets_are_refused_by_files():
    class Setting(nn.Module):
        def __init__(self, value):
            super().__init__()
            self.layer, self.value = nn.Linear(2, 2), value

    class Grows(Setting):
        def forward(self, x):
            self.value = ad.cat([self.value, x.detach()])
            return self.layer(x)

    class Tracks(Setting):
        def forward(self, x):
            self.value = self.layer(x)
            return self.value * 2

    class Begins(Setting):
        def forward(self, x):
            self.value = x.detach() if self.value is None else self.value + x.detach()
            return self.layer(x)

    x = ad.ones(1, 2)
    for kind, value in ((Grows, x), (Tracks, x), (Begins, None)):
        model = kind(value)
        with pytest.raises(Unsupported, match=r"export: .*set no attributes but to numbers"):
            exported(model, x)
        assert model.value is value


@pytest.mark.parametrize("name", sorted(set(optimizers.CLASSES) - {*optimizers.REFUSED, "Muon"}))
@pytest.mark.parametrize("ran", [False, True])
def test_every_optimizer_that_compiles(name, ran):
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    options = {"lr": 0.01, "momentum": 0.9} if name == "SGD" else {}
    step, _ = usual(model, classified, optimizers.CLASSES[name], **options)
    examples = digits(5, 6)
    compiled = ad.compile(step)
    if ran:
        compiled(*examples[0])
    try:
        loaded = exported(compiled, *examples[0])
    except Unsupported as error:
        assert not ran and "call the function once before" in str(error)
        assert name in ("SGD", "RMSprop", "Rprop", "Adafactor"), name
        return
    if ran:
        assert_trains_alike(compiled, loaded, model, examples)
        return
    for example in examples:  # the compiled function's first call is an eager one
        np.testing.assert_allclose(loaded(*example).item(), compiled(*example).item(), rtol=1e-4)
    assert list(loaded.optimizers[0].state_dict()["state"]) == [0, 1, 2, 3]


# ---- without the model's code --------------------------------------------------------------------


def in_another_process(tmp_path, program, *files):
    """What a program without the model's code prints, run where no tests can be imported."""
    path = tmp_path / "runs.py"
    path.write_text("import sys\nimport adjoint as ad\n" + textwrap.dedent(program))
    source = os.path.dirname(os.path.dirname(ad.__file__))
    found = subprocess.run(
        [sys.executable, "-W", "error", "-P", str(path), *map(str, files)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": source},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    return found.stdout.split()


def test_another_process_without_the_code_computes_and_trains_on_bit_for_bit(tmp_path):
    ad.manual_seed(0)
    step, model, examples = statistics_and_dropout()
    compiled = ad.compile(step)
    compiled(*examples[0])
    x, y = examples[1]
    ad.save({"x": x, "y": y}, tmp_path / "batch")
    ad.export(compiled, (x, y), tmp_path / "step.adjoint")
    model.eval()
    with ad.no_grad():
        ad.export(model, (x,), tmp_path / "model.adjoint")
        expected = ad.compile(model)(x)
    model.train()
    losses = in_another_process(
        tmp_path,
        """
        assert not any(name.startswith("tests") for name in sys.modules)
        batch = ad.load(sys.argv[1])
        model, step = map(ad.export.load, sys.argv[2:4])
        print(model(batch["x"]).numpy().tobytes().hex())
        step.optimizers[0].param_groups[0]["lr"] = 0.005
        for _ in range(5):
            print(step(batch["x"], batch["y"]).detach().numpy().tobytes().hex())
        ad.save(step.state_dict(), sys.argv[4])
        step.save(sys.argv[5])
        """,
        *(tmp_path / name for name in ("batch", "model.adjoint", "step.adjoint", "out", "later")),
    )
    assert losses[0] == expected.numpy().tobytes().hex()
    options = step.__closure__[step.__code__.co_freevars.index("optimizer")].cell_contents
    options.param_groups[0]["lr"] = 0.005
    assert losses[1:] == [compiled(x, y).detach().numpy().tobytes().hex() for _ in range(5)]
    assert bits(ad.load(tmp_path / "out")) == bits(model.state_dict())
    later = ad.export.load(tmp_path / "later")
    assert_trains_alike(compiled, later, model, examples)
    other = statistics_and_dropout()[1]  # names are the model's: it can be put together again
    assert str(other.load_state_dict(later.state_dict())) == "<All keys matched successfully>"


# ---- state ---------------------------------------------------------------------------------------


def test_exporting_changes_nothing_and_needs_no_step_before():
    ad.manual_seed(0)
    step, model, examples = statistics_and_dropout()
    before, random = bits(model.state_dict()), ad.get_rng_state()
    program = exported(step, *examples[0])
    optimizer = step.__closure__[step.__code__.co_freevars.index("optimizer")].cell_contents
    assert bits(model.state_dict()) == before and ad.get_rng_state().equal(random)
    assert not optimizer.state and all(p.grad is None for p in model.parameters())
    program(*examples[0])
    assert bits(model.state_dict()) == before  # the program's state is a copy
    assert program.optimizers[0].state_dict()["state"][0]["step"].item() == 1.0
    assert not program.generators[0].get_state().equal(random)


def test_learning_rates_are_scheduled_and_optimizers_take_over_states():
    ad.manual_seed(0)
    step, _, examples = mlp()
    compiled = ad.compile(step)
    compiled(*examples[0])
    a, b = (exported(compiled, *examples[0]) for _ in range(2))
    schedules = [ad.optim.lr_scheduler.StepLR(each.optimizers[0], 1, 0.1) for each in (a, b)]
    for example in examples:
        a(*example)
        schedules[0].step()
    assert a.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.02 * 0.1**4)
    b(*examples[0])
    b.load_state_dict(a.state_dict())
    b.optimizers[0].load_state_dict(a.optimizers[0].state_dict())  # other tensors from now on
    assert bits(a(*examples[1])) == bits(b(*examples[1]))
    assert bits(a.state_dict()) == bits(b.state_dict())
    again = loaded(_saved(b))
    assert bits(a(*examples[2])) == bits(b(*examples[2])) == bits(again(*examples[2]))
    assert bits(a.state_dict()) == bits(b.state_dict()) == bits(again.state_dict())


def _saved(program):
    file = io.BytesIO()
    ad.export.save(program, file)
    return file.getvalue()


@pytest.mark.parametrize("ran", [0, 2])
def test_a_copy_goes_on_by_itself(ran):
    """Also of what has run, whose programs are bound to the first one's memory."""
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    optimizer = ad.optim.Adam(model.parameters(), lr=0.1)
    scheduler = ad.optim.lr_scheduler.StepLR(optimizer, 3)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    x = ad.ones(5, 3)
    first = exported(step, x)
    for _ in range(ran):
        first(x)
    second = copy.deepcopy(first)
    wanted = [first(x).item() for _ in range(4)]
    third = copy.deepcopy(first)
    assert [second(x).item() for _ in range(4)] == wanted
    assert [third(x).item() for _ in range(2)] == [first(x).item() for _ in range(2)]


def test_a_copied_module_has_parameters_of_its_own():
    model = nn.Linear(3, 2)
    first = exported(model, ad.ones(4, 3)).module()
    x = ad.ones(4, 3)
    before = first(x)
    second = copy.deepcopy(first)
    with ad.no_grad():
        for p in second.parameters():
            p.zero_()
    assert (first(x) == before).all() and (second(x) == 0).all()


def test_a_state_of_another_form_is_refused_until_it_is_put_back():
    step, _, examples = accumulation()
    compiled = ad.compile(step)
    for _ in range(2):
        compiled(*examples[0])
    program = exported(compiled, *examples[0])
    program(*examples[0])
    weight = program.named_parameters()["weight"]
    kept, weight.grad = weight.grad, None
    with pytest.raises(Unsupported, match=r"the state of step is not what it was.*gradient"):
        program(*examples[0])
    weight.grad = kept
    program(*examples[0])
    weight.requires_grad_(False)
    with pytest.raises(Unsupported, match=r"requires_grad of a tensor of shape \(2, 3\) was True"):
        program(*examples[0])
    weight.requires_grad_()
    data, weight.data = weight.data, ad.ones(4, 4)
    with pytest.raises(Unsupported, match=r"\(2, 3\)"):
        program(*examples[0])
    weight.data = data
    program(*examples[0])
    with pytest.raises(CheckpointError, match=r"missing 'bias', unexpected 'b', 'weight' of shape"):
        program.load_state_dict({"weight": ad.ones(1), "b": ad.ones(2)})
    program.optimizers[0].add_param_group({"params": [nn.Parameter(ad.ones(1))]})
    with pytest.raises(Unsupported, match="optimizer SGD of step has other parameters"):
        program(*examples[0])


def test_names_of_several_modules_loose_tensors_and_objects():
    class Trainer:
        def __init__(self):
            self.encoder, self.decoder = nn.Linear(3, 2), nn.Linear(2, 3)
            self.scale = ad.ones(1, requires_grad=True)
            self.unused = nn.Linear(1, 1)
            self.optimizer = ad.optim.SGD(
                [*self.encoder.parameters(), *self.decoder.parameters(), self.scale], lr=0.1
            )

        @ad.compile
        def step(self, x):
            self.optimizer.zero_grad()
            loss = (self.decoder(self.encoder(x)) * self.scale - x).square().mean()
            loss.backward()
            self.optimizer.step()
            return loss

    trainer = Trainer()
    program = exported(trainer.step, ad.ones(2, 3))
    assert list(program.state_dict()) == [
        "encoder.weight", "encoder.bias", "decoder.weight", "decoder.bias", "scale"
    ]  # fmt: skip
    assert bits(program(ad.ones(2, 3))) == bits(ad.compile(trainer.step)(ad.ones(2, 3)))
    assert program.state_dict()["scale"].equal(trainer.scale)


def test_tied_weights_and_buffers_that_are_not_persistent():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    model.register_buffer("count", ad.zeros(()), persistent=False)
    step, _ = usual(model, lambda model, x: model(x).mean() + model.count.add_(1).detach())
    program = exported(step, ad.ones(2, 3))
    assert list(program.state_dict()) == list(model.state_dict())
    assert len(program.parameters()) == 3
    ahead, counted = program(ad.ones(2, 3)).item(), loaded(_saved(program))(ad.ones(2, 3)).item()
    assert counted > ahead + 0.5  # the count is in the file
    a, b = (program.state_dict()[name] for name in ("0.weight", "1.weight"))
    assert a.equal(b)


# ---- arguments and results -----------------------------------------------------------------------

Pair = namedtuple("Pair", "x y")


@dataclasses.dataclass
class Found:
    loss: ad.Tensor
    parts: dict


def test_forms_of_arguments_and_results():
    weight = ad.ones(3, requires_grad=True)

    def function(pair, options, *, scale=2.0, mode="sum"):
        total = (pair.x * options["w"][0] * scale * weight).sum() if mode == "sum" else pair.y
        parts = {"x": pair.x, "none": None, "kind": ad.float32, "weight": weight, 3: (1, [total])}
        return Found(total, parts), Pair(total * 2, options["w"][1]), mode

    pair, options = Pair(ad.ones(3), ad.zeros(2)), {"w": [ad.full((3,), 2.0), 7]}
    example = ((pair, options), {"scale": 3.0})
    file = io.BytesIO()
    ad.export(function, example[0], file, example[1])
    program = loaded(file.getvalue())
    found, expected = program(*example[0], scale=3.0), function(*example[0], scale=3.0)
    assert found[0]["loss"].item() == expected[0].loss.item() == 18.0
    assert type(found[0]) is dict and type(found[1]) is tuple and found[1][1] == 7
    parts = found[0]["parts"]
    assert parts["x"] is pair.x and parts["none"] is None and parts["kind"] is ad.float32
    assert parts["weight"] is program.named_parameters()["weight"]
    assert parts[3][0] == 1 and parts[3][1][0].item() == 18.0 and found[2] == "sum"
    assert program((pair.x, pair.y), options=options, scale=3.0)[0]["loss"].item() == 18.0
    x = pair.x
    assert program((x, pair.y), {"w": [x, 7]}, scale=3.0)[0]["loss"].item() == 9.0  # the same twice
    for args, kwargs, got in (
        (example[0], {"scale": 4.0}, "scale: 4.0"),
        (example[0], {}, r"argument 0\[0\]: \(3,\) float32.*$"),
        ((Pair(ad.ones(4), ad.zeros(2)), options), {"scale": 3.0}, r"0\[0\]: \(4,\) float32"),
        ((Pair(ad.ones(3).double(), ad.zeros(2)), options), {"scale": 3.0}, r"\(3,\) float64"),
        ((pair, {"v": options["w"]}), {"scale": 3.0}, r"1\['v'\]"),
        ((pair,), {"scale": 3.0}, "scale: 3.0"),
        ((pair, object()), {"scale": 3.0}, "argument 1: a <class 'object'>"),
    ):
        with pytest.raises(InvalidArgument, match=rf"exported for .*scale: 3.0; it was.*{got}"):
            program(*args, **kwargs)


def test_several_examples_share_the_state():
    step, _, _ = mlp()
    small, large = digits(3, 6)[0], digits(8, 6)[0]
    program = exported(step, [small, large])
    assert program.signatures == [
        f"argument 0: ({n}, 6) float32, argument 1: ({n},) int64" for n in (3, 8)
    ]
    compiled = ad.compile(step)
    for example in (small, large, large, small):  # the compiled one begins eagerly
        assert program(*example).item() == pytest.approx(compiled(*example).item(), rel=1e-5)
    assert program.optimizers[0].state_dict()["state"][0]["step"].item() == 4.0
    with pytest.raises(InvalidArgument, match=r"\(3, 6\).*; or .*\(8, 6\).*called with .*\(5, 6\)"):
        program(*digits(5, 6)[0])


@pytest.mark.parametrize("size", [0, 1, 15, 100_000])
def test_sizes(size):
    function = lambda x: ((x * 2).exp().sum(), x.flip(0))  # noqa: E731
    x = ad.rand(size)
    assert bits(exported(function, x)(x)) == bits(ad.compile(function)(x))


def test_layouts_of_arguments_and_states():
    model = nn.Linear(4, 3)
    model.weight.data = ad.randn(4, 3).t()
    program = exported(model, ad.ones(2, 4))
    x = ad.randn(4, 2).t()
    assert bits(program(x)) == bits(ad.compile(model)(x))


# ---- modules, and modes --------------------------------------------------------------------------


def test_a_loaded_model_can_be_trained_from_outside():
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 4))
    examples = digits(5, 6)
    program = exported(model, examples[0][0])
    compiled = ad.compile(model)
    assert isinstance(program.module(), nn.Module)
    pairs = []
    for call, owner in ((program, program), (compiled, model)):
        optimizer = ad.optim.Adam(owner.parameters(), lr=0.05)
        for x, y in examples:
            optimizer.zero_grad()
            F.cross_entropy(call(x), y).backward()
            optimizer.step()
        with ad.no_grad():
            pairs.append([call(examples[0][0]), owner.state_dict()])
            assert not pairs[-1][0].requires_grad
    assert bits(pairs[0]) == bits(pairs[1])
    with pytest.raises(InvalidArgument, match=r"called with .* that wants a gradient"):
        program(ad.ones(5, 6, requires_grad=True))


def test_gradients_reach_arguments_and_modules_have_the_names():
    model = nn.Sequential(nn.Linear(3, 2), nn.Softmax(1))
    x = ad.randn(4, 3, requires_grad=True)
    module = ad.export.export(model, (x,)).module()
    assert list(module.state_dict()) == ["0.weight", "0.bias"]
    assert [name for name, _ in module.named_parameters()] == ["0.weight", "0.bias"]
    found = []
    for each in (module, ad.compile(model)):
        y = x.detach().requires_grad_()
        each(y).square().sum().backward()
        found.append([y.grad, *(p.grad for p in each.parameters())])
    assert bits(found[0]) == bits(found[1])
    with ad.no_grad():
        for each in (module, model):
            each.get_parameter("0.bias").copy_(ad.tensor([3.0, -1.0]))
    assert bits(module(x)) == bits(ad.compile(model)(x))
    assert module.program.state_dict()["0.bias"].tolist() == [3.0, -1.0]


def test_what_python_read_is_as_it_was():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    scale = [2.0]
    model.eval()
    program = exported(lambda x: model(x) * scale[0], ad.ones(2, 3))
    expected = program(ad.ones(2, 3)).tolist()
    scale[0] = 5.0
    model.train()
    assert program(ad.ones(2, 3)).tolist() == expected
    with ad.autocast("cpu"):
        cast = exported(model[0], ad.ones(2, 3))
    assert cast(ad.ones(2, 3)).dtype is ad.bfloat16


def test_checks_of_values_are_in_the_file():
    weight = ad.ones(3, requires_grad=True)
    optimizer = ad.optim.SGD([weight], lr=0.1)

    def step(x, y, index):
        optimizer.zero_grad()
        loss = F.binary_cross_entropy(x * weight, y) + weight[index].sum()
        loss.backward()
        optimizer.step()
        return loss

    program = exported(step, ad.full((3,), 0.5), ad.ones(3), ad.tensor([0, 1]))
    program(ad.full((3,), 0.5), ad.ones(3), ad.tensor([0, 1]))
    before = bits(program.state_dict())
    with pytest.raises(InvalidArgument, match="should be between 0 and 1"):
        program(ad.full((3,), 5.0), ad.ones(3), ad.tensor([0, 1]))
    with pytest.raises(IndexingError, match="out of"):
        program(ad.full((3,), 0.5), ad.ones(3), ad.tensor([0, 9]))
    assert bits(program.state_dict()) == before
    program(ad.full((3,), 0.5), ad.ones(3), ad.tensor([0, 1]))


def test_where_ops_are_recorded_and_profiles():
    program = exported(lambda x: x * 2, ad.ones(3))
    with ad.lazy(), pytest.raises(Unsupported, match="a program already"):
        program(ad.ones(3))
    with pytest.raises(Unsupported, match="a program already"):
        ad.compile(lambda x: program(x))(ad.ones(3))
    with ad.lazy():
        x = ad.ones(3) + 1
    assert program(x).tolist() == [4.0] * 3
    with ad.profiler.profile() as profile:
        program(ad.ones(3))
    assert any("Compiled#<lambda>" in event.key for event in profile.key_averages())
    assert [row.name for row in program.explain(ad.ones(3)).rows] == ["mul"]
    assert repr(program) == "<exported <lambda>: argument 0: (3,) float32>"


def test_threads_take_turns():
    from concurrent.futures import ThreadPoolExecutor

    counter = ad.zeros(())
    program = exported(lambda x: (counter.add_(1), (x @ x).sum())[1], ad.ones(20, 20))
    with ThreadPoolExecutor(4) as pool:
        given = [ad.full((20, 20), float(k % 5)) for k in range(200)]
        found = [y.item() for y in pool.map(program, given)]
    assert found == [20.0**3 * (k % 5) ** 2 for k in range(200)]
    assert program.state_dict()["counter"].item() == 200.0


# ---- what cannot be exported ---------------------------------------------------------------------


def test_a_step_with_momentum_that_has_never_run():
    """Its velocities begin as zeros in the file; here there are none yet."""

    def training():
        ad.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = ad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            optimizer.step()
            return loss

        return step, optimizer

    (step, optimizer), (eager, _) = training(), training()
    file = io.BytesIO()
    ad.export(step, (ad.ones(2, 3),), file)
    assert not optimizer.state
    file.seek(0)
    loaded = ad.export.load(file)
    for _ in range(4):
        x = ad.randn(2, 3)
        assert loaded(x).item() == pytest.approx(eager(x).item(), rel=1e-5)


def test_what_cannot_be_exported_is_an_error():
    outside = ad.ones(3, requires_grad=True) * 2
    weight = ad.ones(3, requires_grad=True)

    class Mine(ad.optim.SGD):
        pass

    mine = Mine([weight], lr=0.1)
    dampened = ad.optim.SGD([weight], lr=0.1, momentum=0.9, dampening=0.5)

    def step_of(optimizer):
        def step(x):
            optimizer.zero_grad()
            (x * weight).sum().backward()
            optimizer.step()

        return step

    x = ad.ones(3)
    for function, args, error, says in (
        (lambda x: x if x.sum() > 0 else -x, (x,), Unsupported, "reads a value"),
        (lambda x: print("here"), (x,), Unsupported, "print"),
        (lambda x: x * outside, (x,), Unsupported, "computed outside of the function"),
        (lambda x, m: m(x), (x, nn.Linear(3, 3)), Unsupported, "holds, a Linear"),
        (lambda x, p: x * p, (x, nn.Parameter(x)), Unsupported, "holds, a Parameter"),
        (lambda x: (x, range(3)), (x,), InvalidType, "returns: a range"),
        (lambda x: {x.ndim: x, (1, 2): x}, (x,), InvalidType, r"\(1, 2\) as a key"),
        (step_of(mine), (x,), Unsupported, "Mine, an optimizer that is none of"),
        (step_of(dampened), (x,), Unsupported, "call the function once before"),
        (3, (x,), InvalidType, "expected a function or a module"),
        (lambda x: x, {"x": x}, InvalidType, "an example is a tuple"),
    ):
        with pytest.raises(error, match=says):
            ad.export(function, args, io.BytesIO())
    with pytest.raises(Unsupported, match="dynamic_shapes"):
        ad.export.export(nn.Linear(3, 3), (x,), dynamic_shapes={})
    with pytest.raises(InvalidType, match="args are a tuple"):
        ad.export.export(nn.Linear(3, 3), x)
    with pytest.raises(InvalidType, match="expected an ExportedProgram"):
        ad.export.save(nn.Linear(3, 3), io.BytesIO())
    with ad.no_grad():
        assert exported(lambda x: x * outside, x)(x).tolist() == [2.0] * 3


# ---- files that are not what was written ---------------------------------------------------------


def structure_of(data):
    """What a file holds, to be changed and written again with right checksums."""
    return checkpoint.load(io.BytesIO(data))


def rewritten(found):
    file = io.BytesIO()
    checkpoint.save(found, file)
    return file.getvalue()


def small_files():
    """A training step that has some of everything, and a model."""
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
    step, _ = usual(model, lambda model, x, y: F.cross_entropy(model(x), y))
    example = ad.randn(3, 3), ad.tensor([0, 1, 1])
    step(*example)
    inner = Last(nn.LSTM)
    x = ad.randn(2, 3, 6)
    return [(file_of(step, *example), example), (file_of(inner, x), (x,))]


def outcome(data, example):
    """What happens with a file: nothing but errors of ours, or a result."""
    try:
        loaded(data, memory=1 << 24)(*example)
    except (AdjointError, MemoryError) as error:
        return type(error).__name__
    return "a result"


def test_bytes_that_were_changed_are_noticed():
    data, example = small_files()[0]
    random = np.random.default_rng(0)
    before = bits(loaded(data)(*example))
    begin = time.perf_counter()
    for k in range(250):
        changed = bytearray(data)
        at, length = int(random.integers(len(data))), int(random.integers(1, 40))
        if k % 5 == 0:
            del changed[at:]
        elif k % 5 == 1:
            changed[at] ^= 1 << int(random.integers(8))
        elif k % 5 == 2:
            changed[at : at + length] = random.bytes(length)
        elif k % 5 == 3:
            del changed[at : at + length]
        else:
            changed[at:at] = changed[at : at + length]
        if bytes(changed) == data:
            continue
        try:
            program = loaded(bytes(changed))
        except CheckpointError:
            continue
        assert bits(program(*example)) == before  # spaces, or a name's order
    assert time.perf_counter() - begin < 60


def places_of(x, path=()):
    """Where a structure has something that can be changed."""
    found = [path]
    if isinstance(x, dict):
        for key in x:
            found += places_of(x[key], (*path, key))
    elif isinstance(x, (list, tuple)):
        for n, each in enumerate(x):
            found += places_of(each, (*path, n))
    return found


def with_change(x, path, change):
    """A copy in which one place is changed."""
    if not path:
        return change(x)
    key, *rest = path
    if isinstance(x, dict):
        return {k: with_change(v, rest, change) if k == key else v for k, v in x.items()}
    return type(x)(with_change(v, rest, change) if n == key else v for n, v in enumerate(x))


def changed(random, x):
    """Something else in the place of `x`."""
    kinds = [None, True, -1, 0, 1, 2, 7, 1 << 40, 1 << 63, 0.5, float("nan"), "", "x", [], (), {}]
    kinds += [ad.float64, ad.int64, ad.ones(2, 3), (1 << 20, 1 << 20), ("op", "Add", [])]
    others = sorted(REGISTRY)
    if isinstance(x, str):
        kinds += [others[int(random.integers(len(others)))], "SGD", "Adadelta", "LBFGS", "draw"]
    if type(x) is int:
        kinds += [x + 1, x - 1, x + 1, x - 1, int(random.integers(0, 20))] * 3
    if isinstance(x, (list, tuple)) and x:
        n = int(random.integers(len(x)))
        kind = type(x)
        parts = list(x)
        kinds += [kind(parts[:n] + parts[n + 1 :]), kind(parts[: n + 1] + parts[n:])] * 5
        kinds += [kind(parts[::-1]), kind(parts + parts)] * 2
    if isinstance(x, dict) and x:
        keys = list(x)
        kinds += [{k: x[k] for k in keys[1:]}, {keys[0]: x[keys[-1]]}] * 3
    return kinds[int(random.integers(len(kinds)))]


def hostile(count, seed, files, chosen=lambda path: True):
    """What came of structures (with examples) changed at random places among those `chosen`, whose
    checksums are right.
    """
    random = np.random.default_rng(seed)
    places = [list(filter(chosen, places_of(found))) for found, _ in files]
    outcomes = Counter()
    for k in range(count):
        (found, example), paths = files[k % len(files)], places[k % len(files)]
        for _ in range(int(random.integers(1, 3))):
            path = paths[int(random.integers(len(paths)))]
            try:
                found = with_change(found, path, lambda x: changed(random, x))
            except (KeyError, TypeError, IndexError):  # it is there no more
                continue
        outcomes[outcome(rewritten(found), example)] += 1
    return outcomes


def small_structures():
    return [(structure_of(data), example) for data, example in small_files()]


def test_structures_that_were_made_by_hand_end_in_errors_of_ours():
    begin = time.perf_counter()
    outcomes = hostile(300, 0, small_structures())
    assert outcomes["CheckpointError"] > 200
    assert time.perf_counter() - begin < 120


@pytest.mark.sweep
def test_many_structures_that_were_made_by_hand():
    assert hostile(2000, 1, small_structures())["CheckpointError"] > 1000


def test_what_a_file_says_wrongly_is_named():
    data, example = small_files()[0]
    found = structure_of(data)
    with pytest.raises(CheckpointError, match=r"version 2 of exported functions.*reads version 1"):
        loaded(rewritten({**found, "adjoint.export": 2}))
    with pytest.raises(CheckpointError, match="holds no exported function"):
        loaded(rewritten({"weight": ad.ones(2)}))

    def reading(change, *path):
        return loaded(rewritten(with_change(found, path, change)), memory=1 << 20)

    program = found["programs"][0]
    linear = next(n for n, op in enumerate(program["ops"]) if "Linear" in str(op))
    update = next(n for n, op in enumerate(program["ops"]) if op[0] == "update")
    steps = next(n for n, node in enumerate(program["nodes"]) if node[0] == update)
    ops, nodes, optimizer = ("programs", 0, "ops"), ("programs", 0, "nodes"), ("optimizers", 0)
    for change, path, says in (
        (lambda x: ("op", "os.system", []), (*ops, linear), "there is no op 'os.system'"),
        (lambda x: ("op", x[1], ["text"]), (*ops, linear), "is not made of"),
        (lambda x: [*x[:-1], 10**6], (*nodes, 0, 1), "reads value 1000000 before there is one"),
        (lambda x: [len(program["kinds"])], (*nodes, 0, 2), "it has no shape"),
        (lambda x: ((1 << 40, 1 << 18), ad.float64), ("programs", 0, "kinds", 0), "memory=..."),
        (lambda x: ((1 << 40, 1 << 40), ad.float64), ("programs", 0, "kinds", 0), "is no shape"),
        (lambda x: ((2, 2), x[1]), ("programs", 0, "kinds", 0), "gives|differ|not|is"),
        (lambda x: "LBFGS", (*optimizer, "class"), "no optimizer 'LBFGS' whose steps"),
        (lambda x: {**x, "lr": "much"}, (*optimizer, "groups", 0, "options"), "no option 'lr'"),
        (lambda x: {**x, "lr": -1.0}, (*optimizer, "groups", 0, "options"), "learning rate"),
        (lambda x: {**x, "betas": (0.9,)}, (*optimizer, "defaults"), "no option 'betas'"),
        (lambda x: {**x, "exp_avg": x["step"]}, (*optimizer, "state", 0), "'exp_avg' of Adam"),
        (lambda x: x[::-1], (*nodes, steps, 1), "an optimizer is given"),
        (lambda x: [0, 0], ("programs", 0, "written"), "writes something twice"),
        (lambda x: x[:-1], ("programs", 0, "outputs"), "its outputs are not what"),
        (lambda x: [*x, ("SystemExit", "")], ("programs", 0, "errors"), "no error 'SystemExit'"),
        (lambda x: ("tensor", 5), ("programs", 0, "returned"), "it has no tensor 5"),
        (lambda x: [(0, 0)], ("programs", 0, "streams"), "of 0 times"),
        (lambda x: [ad.ones(3)], ("generators",), "RNG state"),
    ):
        with pytest.raises(CheckpointError, match=says):
            reading(change, *path)
    assert bits(reading(lambda x: x, "name")(*example)) == bits(loaded(data)(*example))


def test_memory_is_bounded_before_any_is_taken():
    data = file_of(lambda x: (x + (ad.ones(1000) * 2).exp() * 3).sum(), ad.ones(1000))
    expected = 1000 * (1 + 3 * np.exp(2.0))
    assert loaded(data, memory=1 << 20)(ad.ones(1000)).item() == pytest.approx(expected, rel=1e-5)
    for memory, says in ((2000, r"takes more than the 2000 bytes"), (5000, r"8000 of them for")):
        with pytest.raises(CheckpointError, match=says):
            loaded(data, memory=memory)
    many = file_of(lambda x: sum((x + k).exp().sum() for k in range(40)), ad.ones(1000))
    with pytest.raises(CheckpointError, match=r"its values take 12\d{4} bytes, 0 of them"):
        loaded(many, memory=8000)


def test_what_is_written_to_an_argument_is_refused():
    with pytest.raises(Unsupported, match="writes to an argument"):
        exported(lambda x: x.mul_(2), ad.ones(2))


def test_a_program_that_goes_by_the_order_of_memory(tmp_path):
    ad.export(
        lambda x: x.as_strided((2, 2), (1, 2), 0).clone(),
        (ad.arange(6.0).view(2, 3),),
        tmp_path / "a",
    )
    loaded = ad.export.load(tmp_path / "a")
    x = ad.arange(12.0).view(4, 3)
    assert loaded(x[:2]).tolist() == [[0, 2], [1, 3]]
    for other in (x[2:], ad.arange(6.0).view(3, 2).t()):
        with pytest.raises(Unsupported, match=r"as_strided: of memory from outside"):
            loaded(other)
