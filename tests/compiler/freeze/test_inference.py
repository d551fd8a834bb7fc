"""Frozen programs: what they compute is what eager execution computes."""

from __future__ import annotations

import inspect
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adjoint as ad
from adjoint import models, nn
from adjoint.backends import native
from adjoint.inference import Program, freeze

from ...sweep import few_or_many

SMALL = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
}  # fmt: skip


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.deep = nn.Conv2d(4, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, 2)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        a = self.norm(self.down(x)).relu()
        b = nn.functional.silu(self.deep(nn.functional.max_pool2d(a, 2)))
        return self.out(ad.cat([a, self.up(b)], 1))


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 5), nn.LeakyReLU(0.1), nn.AvgPool2d(3, 2, 1), nn.Flatten(),
        nn.Dropout(0.5), nn.Linear(32, 10),
    )  # fmt: skip


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), (4,)),
    "lenet": (lenet, (1, 16, 16)),
    "resnet18": (models.resnet18, (3, 32, 32)),
    "mobilenet_v2": (models.mobilenet_v2, (3, 32, 32)),
    "unet": (UNet, (3, 8, 8)),
    "lstm": (lambda: nn.LSTM(4, 5, 2, bidirectional=True, batch_first=True), (3, 4)),
    "gru": (lambda: nn.GRU(4, 5, 2, batch_first=True), (3, 4)),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (3, 8)),
    "vit": (
        lambda: models.ViTForImageClassification(
            models.ViTConfig(image_size=16, patch_size=8, **SMALL)
        ),
        (3, 16, 16),
    ),
    "bert": (
        lambda: models.Bert(models.BertConfig(vocab_size=50, max_position_embeddings=32, **SMALL)),
        None,
    ),
    "gpt2": (
        lambda: models.GPT2(
            models.GPT2Config(vocab_size=50, n_positions=32, n_embd=16, n_layer=2, n_head=2)
        ),
        None,
    ),
}


def example(shape, batch):
    return ad.randint(0, 50, (batch, 6)) if shape is None else ad.randn(batch, *shape)


def flat(found):
    if isinstance(found, ad.Tensor):
        return [found]
    parts = found.values() if isinstance(found, dict) else found
    return [x for part in parts if part is not None for x in flat(part)]


def assert_close(found, expected, tolerance=2e-5):
    found, expected = flat(found), flat(expected)
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        x, y = x.numpy(), y.detach().numpy()
        assert x.shape == y.shape and x.dtype == y.dtype
        finite = np.abs(np.nan_to_num(y.astype(np.float64), posinf=0, neginf=0))
        largest = finite.max(initial=0)
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * largest)


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    """Equal to the module in eval mode at two batch sizes, run twice; the module is as it was."""
    make, shape = MODELS[name]
    ad.manual_seed(0)
    module = make()
    program = freeze(module, example(shape, 2))
    assert module.training
    module.eval()
    for batch in (2, 3, 2):
        x = example(shape, batch)
        assert_close(program(x), module(x))
    assert program.memory.planned < program.memory.without_reuse
    assert str(program).startswith(type(module).__name__)
    program.graph.verify()


@pytest.mark.parametrize("name", MODELS)
def test_every_pass_leaves_a_valid_graph(name):
    from adjoint.compiler.passes import (
        affine,
        basic_passes,
        kernels,
        patterns,
        pipelines,
        static_layers,
        views,
    )
    from adjoint.inference import static_capture  # fmt: skip

    make, shape = MODELS[name]
    graph, _ = static_capture.capture(static_capture.FrozenSource(make()), [example(shape, 2).spec])
    graph.verify()
    folds = basic_passes.Folds()

    def simplify(graph):
        pipelines.run_pipeline("frozen", graph, pipelines.Settings(folds=folds))

    nodes = len(graph.nodes)
    for change in (
        basic_passes.fold_constants, basic_passes.drop_identities, basic_passes.inline_numbers,
        views.hoist_through_views, basic_passes.merge_equal, views.flatten_products,
        affine.fold_affine, basic_passes.drop_dead, simplify, patterns.name_activations,
        static_layers.fuse_epilogues, kernels.fuse_kernels,
    ):  # fmt: skip
        more = (folds,) if "folds" in inspect.signature(change).parameters else ()
        change(graph, *more)
        graph.verify()
    assert len(graph.nodes) < nodes
    assert "dropout" not in " ".join(node.op.name for node in graph.nodes)


RECURRENT = [
    (kind, options, batch)
    for kind in (nn.LSTM, nn.GRU, nn.RNN)
    for options in ({}, {"bidirectional": True, "batch_first": True}, {"bias": False})
    for batch in (1, 5)
]


@pytest.mark.parametrize(("kind", "options", "batch"), RECURRENT)
def test_recurrent_layers(kind, options, batch):
    """Large enough for their routine, with its weights packed once; with a state that is given."""
    ad.manual_seed(0)
    module = kind(20, 33, 2, **options)
    shape = (batch, 30, 20) if "batch_first" in options else (30, batch, 20)
    directions = 2 if "bidirectional" in options else 1
    state = ad.randn(2 * directions, batch, 33)
    given = (lambda h: (h, h * 0.5)) if kind is nn.LSTM else (lambda h: h)
    program = freeze(lambda x, h: module(x, given(h)), ad.randn(*shape), state)
    for _ in range(3):
        x, h = ad.randn(*shape), ad.randn(*state.shape)
        assert_close(flatten(program(x, h)), flatten(module(x, given(h))))


def flatten(found):
    return [y for part in found for y in (part if isinstance(part, tuple) else (part,))]


@pytest.mark.parametrize("switch", ["ADJOINT_NATIVE", "ADJOINT_ONEDNN"])
def test_without_libraries(switch, monkeypatch):
    """With no oneDNN, or no kernels either, ops run one by one: the same values."""
    from adjoint.compiler.passes.basic_passes import drop_dead
    from adjoint.compiler.passes.patterns import name_activations
    from adjoint.compiler.passes.pipelines import PIPELINES, entry
    from adjoint.inference import program

    monkeypatch.setattr(program, "_packing", lambda: None)
    if switch == "ADJOINT_NATIVE":
        monkeypatch.setitem(PIPELINES, "frozen plan", (entry(name_activations, drop_dead),))
    for name in ("lenet", "unet", "encoder"):
        make, shape = MODELS[name]
        ad.manual_seed(0)
        module = make().eval()
        x = example(shape, 2)
        frozen = freeze(module, x)
        assert not any(step.how == "oneDNN" for step in frozen.steps)
        assert_close(frozen(x), module(x))


def test_threads_share_the_work_and_not_the_result():
    module = models.resnet18().eval()
    before = ad.get_num_threads()
    x = ad.randn(1, 3, 32, 32)
    try:
        results = []
        for threads in (1, 3):
            ad.set_num_threads(threads)
            results.append(freeze(module, x)(x).numpy())
    finally:
        ad.set_num_threads(before)
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)


def test_several_threads_call_one_program():
    module = lenet().eval()
    xs = [example((1, 16, 16), 2) for _ in range(8)]
    program = freeze(module, xs[0])
    found = [None] * len(xs)

    def work(i):
        for _ in range(5):
            found[i] = program(xs[i]).numpy()

    workers = [threading.Thread(target=work, args=(i,)) for i in range(len(xs))]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    for x, y in zip(xs, found, strict=True):
        np.testing.assert_allclose(y, module(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_program_keeps_its_own_parameters():
    module = nn.Linear(2, 2)
    x = ad.ones(1, 2)
    program = freeze(module, x)
    expected = module(x).detach().clone()
    with ad.no_grad():
        module.weight.zero_()
    assert ad.equal(program(x), expected)
    assert program(ad.ones(3, 2)).shape == (3, 2)  # planned anew, from the parameters as they were
    assert ad.equal(program(ad.ones(3, 2))[0], expected[0])


def test_a_function_keeps_what_it_uses():
    w = ad.tensor([2.0, 3.0])
    program = freeze(lambda x: x * w, ad.ones(2))
    w.zero_()
    assert program(ad.ones(2)).tolist() == [2.0, 3.0]
    assert program(ad.ones(3, 2)).tolist() == [[2.0, 3.0]] * 3


def test_results_never_alias():
    program = freeze(lambda x: (x, x.t(), x[:1], x), ad.ones(2, 2))
    x = ad.ones(2, 2)
    found = program(x)
    again = program(x * 5)
    assert all(y.eq(1).all() for y in found)
    arrays = [y.numpy() for y in (*found, *again, x)]
    for i, a in enumerate(arrays):
        assert not any(np.may_share_memory(a, b) for b in arrays[i + 1 :])
    found[0].zero_()
    assert found[3].eq(1).all()


def test_structures():
    point = __import__("collections").namedtuple("Point", "x y")

    def function(a, b):
        return {"sum": a + b, "parts": [a * 2, (b, None)], "point": point(a - b, a)}

    found = freeze(function, ad.ones(2), ad.ones(2))(ad.tensor([1.0, 2.0]), ad.ones(2))
    assert found["sum"].tolist() == [2.0, 3.0]
    assert found["parts"][0].tolist() == [2.0, 4.0]
    assert isinstance(found["parts"], list) and found["parts"][1][1] is None
    assert found["point"].x.tolist() == [0.0, 1.0]


def test_constant_and_empty_results():
    program = freeze(lambda x: (ad.arange(3), x[:0] * 2, x.sum()), ad.ones(2, 3))
    a, b, c = program(ad.ones(2, 3))
    assert a.tolist() == [0, 1, 2] and b.shape == (0, 3) and c.item() == 6
    a.zero_()
    assert program(ad.ones(2, 3))[0].tolist() == [0, 1, 2]
    a, b, c = program(ad.ones(0, 3))
    assert b.shape == (0, 3) and c.item() == 0


def test_arrays_lists_and_other_dtypes():
    program = freeze(lambda x: x * 2, ad.ones(2))
    assert program(np.float32([1, 2])).tolist() == [2, 4]
    assert program([1, 2]).dtype is ad.float32  # the example's
    assert program(np.asfortranarray(np.ones((2, 3)))[::-1]).dtype is ad.float64
    assert program(ad.ones(3, dtype=ad.bfloat16)).dtype is ad.bfloat16
    assert program(ad.tensor([1 + 2j])).tolist() == [2 + 4j]


def test_plans_are_bounded():
    program = freeze(lambda x: x + 1, ad.ones(1))
    for n in range(1, 40):
        assert program(ad.ones(n)).shape == (n,)
    assert len(program._plans) == 16


def test_errors():
    with pytest.raises(ad.Unsupported, match="reads values of its input"):
        freeze(lambda x: x[x > 0], ad.ones(2))
    with pytest.raises(ad.Unsupported, match="draws random numbers"):
        freeze(lambda x: x + ad.rand(2), ad.ones(2))
    with pytest.raises(ad.InvalidType, match="the result has a str"):
        freeze(lambda x: "text", ad.ones(2))
    with pytest.raises(ad.InvalidType, match="a module or a function"):
        freeze(3, ad.ones(2))
    program = freeze(nn.Linear(2, 3), ad.ones(1, 2))
    with pytest.raises(ad.InvalidArgument, match=r"Linear: too many.*it takes \(input"):
        program(ad.ones(1, 2), ad.ones(1))
    with pytest.raises(ad.ShapeError):
        program(ad.ones(1, 5))
    with pytest.raises(ad.InvalidType):
        program("text")
    assert program(ad.ones(4, 2)).shape == (4, 3)


def test_other_devices_are_refused():
    pytest.importorskip("torch")
    program = freeze(lambda x: x * 2, ad.ones(2))
    with pytest.raises(ad.DeviceError, match=r"move it with .to\('cpu'\)"):
        program(ad.ones(2).to("torch"))
    with pytest.raises(ad.DeviceError, match=r"frozen on torch; move it with .to\('torch'\)"):
        freeze(nn.Linear(2, 2).to("torch"), ad.ones(1, 2))


def test_an_error_while_running_leaves_the_program_usable():
    table = ad.arange(6.0).reshape(3, 2)
    program = freeze(lambda i: table[i] * 2, ad.zeros(2, dtype=ad.int64))
    with pytest.raises(IndexError):
        program(ad.tensor([0, 7]))
    assert program(ad.tensor([2, 0])).tolist() == [[8, 10], [0, 2]]


def test_numbers_of_any_kind():
    x = ad.tensor([[np.nan, -1.0, np.inf], [2.0, -np.inf, 0.0]])

    def function(x):
        return x.clamp(0, 6), x.relu(), ad.softmax(x[1:], 1), x.sign(), nn.functional.hardswish(x)

    assert_close(freeze(function, x)(x), function(x))


# ---- random programs -----------------------------------------------------------------------------

OPS = {
    "exp": lambda x, y: (x * 0.1).exp(),
    "tanh": lambda x, y: x.tanh(),
    "relu": lambda x, y: x.relu(),
    "clamp": lambda x, y: x.clamp(-1, 1),
    "gelu": lambda x, y: nn.functional.gelu(x),
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "number": lambda x, y: 2 - x / 3,
    "where": lambda x, y: ad.where(x > y, x, y * 2),
    "mean": lambda x, y: y - x.mean(-1, keepdim=True),
    "sum": lambda x, y: x.sum(0, keepdim=True) * 0.1 + y,
    "softmax": lambda x, y: ad.softmax(x, -1),
    "norm": lambda x, y: nn.functional.layer_norm(x, x.shape[-1:]),
    "matmul": lambda x, y: x @ y.transpose(-1, -2) @ y * 0.1,
    "linear": lambda x, y: nn.functional.linear(x, _WEIGHT, _BIAS),
    "product": lambda x, y: x @ _WEIGHT,
    "transpose": lambda x, y: x.transpose(0, 1).contiguous().transpose(0, 1),
    "reshape": lambda x, y: x.reshape(-1).reshape(2, 2, 6).reshape(4, 6),
    "flip": lambda x, y: x.flip(0),
    "split": lambda x, y: ad.cat(x.split(2, 1)[::-1], 1),
    "stack": lambda x, y: ad.stack([x, y]).sum(0),
    "slice": lambda x, y: ad.cat([x[:1], y[1:]]),
    "sort": lambda x, y: x.sort(0)[0],
    "cumsum": lambda x, y: x.cumsum(1) * 0.1,
    "cast": lambda x, y: (x * 4).to(ad.int32).to(ad.float32) / 4,
    "max": lambda x, y: x.max(1, keepdim=True)[0] + y,
    "image": lambda x, y: nn.functional.conv2d(
        x.reshape(1, 1, 4, 6), _KERNEL, _TWO, padding=1
    ).mean(1).reshape(4, 6),
    "pool": lambda x, y: nn.functional.max_pool2d(x.reshape(1, 1, 4, 6), 3, 1, 1).reshape(4, 6),
    "mask": lambda x, y: x.masked_fill(y > 0, 0.5),
}  # fmt: skip
_RANDOM = np.random.default_rng(0)
_WEIGHT, _BIAS, _KERNEL, _TWO = (
    ad.from_numpy(_RANDOM.standard_normal(shape).astype(np.float32) * 0.4)
    for shape in ((6, 6), (6,), (2, 1, 3, 3), (2,))
)


@st.composite
def programs(draw):
    """Names of ops, and which earlier values each takes."""
    steps = draw(st.lists(st.sampled_from(sorted(OPS)), min_size=1, max_size=12))
    return [(name, draw(st.integers(0, i + 1)), draw(st.integers(0, i + 1)))
            for i, name in enumerate(steps)]  # fmt: skip


def interpret(steps, a, b):
    values = [a, b]
    for name, i, j in steps:
        values.append(OPS[name](values[i], values[j]))
    return values[2:][-3:]


@few_or_many("count", 20, 200)
def test_random_programs(count):
    """Frozen equals eager, whatever the ops; run twice on memory that was used."""

    @settings(max_examples=count, deadline=None, derandomize=True)
    @given(programs())
    def check(steps):
        check_program(steps)

    check()


def check_program(steps):
    a, b = (ad.from_numpy(_RANDOM.standard_normal((4, 6)).astype(np.float32)) for _ in range(2))
    program = freeze(lambda a, b: interpret(steps, a, b), a, b)
    program.graph.verify()
    _assert_buffers_apart(program)
    for x, y in ((a, b), (b, a), (a, b)):
        assert_close(program(x, y), interpret(steps, x, y), 1e-4)


def _assert_buffers_apart(program: Program):
    """Buffers that are needed at the same time do not overlap."""
    schedule = program._first.schedule
    placed = list(zip(schedule.layout.offsets, schedule.buffers, strict=True))
    for i, (start, one) in enumerate(placed):
        for other, two in placed[i + 1 :]:
            if one.begin <= two.end and two.begin <= one.end:
                assert start + one.size <= other or other + two.size <= start


def test_numbers_that_are_stacked():
    program = ad.inference.freeze(lambda x: ad.stack([x.sum(), x.max(), x[0, 0]]), ad.ones(2, 3))
    x = ad.randn(2, 3)
    np.testing.assert_allclose(
        program(x).tolist(), [x.sum().item(), x.max().item(), x[0, 0].item()], rtol=1e-6
    )


@pytest.mark.parametrize("shape", [(1,), (), (1, 5), (4, 5), (5,)])
def test_biases_that_broadcast(shape):
    x, w, b = ad.randn(4, 3), ad.randn(5, 3), ad.rand(5, 4, 5).sum() * ad.ones(shape)
    layer = ad.nn.functional.linear
    program = ad.inference.freeze(lambda x: layer(x, w * x[0, 0], b), x)
    np.testing.assert_allclose(program(x).tolist(), layer(x, w * x[0, 0], b).tolist(), rtol=1e-5)


def test_a_program_is_explained():
    """Each layer by itself, with what it multiplies and moves; nothing changes."""
    ad.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(64, 5)
    ).eval()
    x = ad.randn(2, 3, 8, 8)
    program = ad.inference.freeze(model, x)
    before = program(x)
    explained = program.explain(x)
    names = [row.name for row in explained.rows if row.operations]
    if native.unusable():
        assert [name.partition("_")[0] for name in names] == ["convolution"] * 2 + ["linear"]
    else:
        assert names == ["convolution_relu", "convolution", "linear"]
    operations = [row.operations for row in explained.rows if row.operations]
    assert operations == [2 * 2 * 8 * 36 * 27, 2 * 2 * 4 * 16 * 72, 2 * 2 * 64 * 5]
    assert all(row.seconds > 0 for row in explained.rows)
    assert explained.memory == program.memory.planned
    assert "steps in" in str(explained) and len(program.explain(x[:1]).rows) >= 3
    assert ad.equal(program(x), before)
