"""ONNX: modules written, run by onnxruntime, read again, trained and written again."""

from __future__ import annotations

import copy
import io
import os

import numpy as np
import pytest

import adjoint as ad
from adjoint import models, nn

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from adjoint.core.op import REGISTRY  # noqa: E402
from adjoint.onnx import export_elementwise, export_ops  # noqa: E402, F401 - they fill the table
from adjoint.onnx.export_table import TABLE as EXPORTED  # noqa: E402
from adjoint.onnx.importing.operator_table import TABLE as IMPORTED  # noqa: E402
from adjoint.runtime.dispatch import apply  # noqa: E402

from ...sweep import few_or_many  # noqa: E402

ort.set_default_logger_severity(3)


def flat(found):
    """The tensors in an output, in order."""
    if isinstance(found, ad.Tensor):
        return [found]
    parts = found.values() if isinstance(found, dict) else found
    return [x for part in parts if part is not None for x in flat(part)]


def exported(module, *args, axes=None, **options):
    """The bytes of the file."""
    file = io.BytesIO()
    names = [f"x{i}" for i in range(len(args))]
    ad.onnx.export(module, args, file, names, dynamic_axes=axes, **options)
    return file.getvalue()


def by_onnxruntime(data, *args):
    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    names = [x.name for x in session.get_inputs()]
    return session.run(None, dict(zip(names, [x.numpy() for x in args], strict=True)))


def assert_close(found, expected, tolerance=1e-5):
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        x, y = (v.detach().numpy() if isinstance(v, ad.Tensor) else v for v in (x, y))
        assert x.shape == y.shape and x.dtype == y.dtype
        largest = np.abs(np.nan_to_num(y.astype(np.float64))).max(initial=0)
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * largest)


# ---- models --------------------------------------------------------------------------------------


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
        nn.Conv2d(6, 8, 5), nn.ReLU(), nn.AvgPool2d(3, 2, 1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


SMALL = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
}  # fmt: skip
BATCH, TEXT = {"x0": {0: "batch"}}, {"x0": {0: "batch", 1: "time"}}
MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), (4,), BATCH),
    "lenet": (lenet, (1, 16, 16), BATCH),
    "resnet18": (models.resnet18, (3, 32, 32), BATCH),
    "mobilenet_v2": (models.mobilenet_v2, (3, 32, 32), BATCH),
    "unet": (UNet, (3, 8, 8), BATCH),
    "lstm": (lambda: nn.LSTM(4, 5, 2, bidirectional=True, batch_first=True), (3, 4), BATCH),
    "gru": (lambda: nn.GRU(4, 5, 2, batch_first=True), (3, 4), BATCH),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (3, 8), TEXT),
    "vit": (
        lambda: models.ViTForImageClassification(
            models.ViTConfig(image_size=16, patch_size=8, **SMALL)
        ),
        (3, 16, 16),
        BATCH,
    ),
    "bert": (
        lambda: models.Bert(models.BertConfig(vocab_size=50, max_position_embeddings=32, **SMALL)),
        None,
        TEXT,
    ),
    "gpt2": (
        lambda: models.GPT2(
            models.GPT2Config(vocab_size=50, n_positions=32, n_embd=16, n_layer=2, n_head=2)
        ),
        None,
        TEXT,
    ),
}


def example(shape, batch, time=6):
    if shape is None:
        return ad.randint(0, 50, (batch, time))
    return ad.randn(batch, *shape)


@pytest.mark.parametrize("name", MODELS)
def test_round_trip(name):
    """Equal outputs in onnxruntime at two batch sizes; read again; one step of training equal to
    the original's; written again.
    """
    make, shape, axes = MODELS[name]
    ad.manual_seed(0)
    module = make().eval()
    x, other = example(shape, 2), example(shape, 3, 6 if shape else 9)
    data = exported(module, x, axes=axes)
    with ad.no_grad():
        for each in (x, other):
            assert_close(by_onnxruntime(data, each), flat(module(each)))
    loaded = ad.onnx.load(data)
    names = {key for key, _ in loaded.named_parameters()}
    assert names == {key for key, _ in module.named_parameters()}
    for each in (module, loaded):
        outputs = [y for y in flat(each(x)) if y.requires_grad]
        sum((y * y).mean() for y in outputs).backward()
        ad.optim.SGD(each.parameters(), lr=0.1).step()
    parameters = dict(module.named_parameters())
    for key, value in loaded.named_parameters():
        np.testing.assert_allclose(
            value.detach().numpy(), parameters[key].detach().numpy(), rtol=1e-3, atol=2e-4
        )
    again = exported(loaded, x, axes=axes)
    with ad.no_grad():
        for each in (x, other):
            assert_close(by_onnxruntime(again, each), flat(loaded(each)))


@pytest.mark.parametrize("opset", range(17, 23))
def test_opsets(opset):
    ad.manual_seed(1)
    module = lenet().eval()
    x = ad.randn(2, 1, 16, 16)
    data = exported(module, x, axes=BATCH, opset_version=opset)
    assert onnx.load_from_string(data).opset_import[0].version == opset
    assert_close(by_onnxruntime(data, x), flat(module(x)))


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


F = nn.functional
FUNCTIONS = {
    "abs": lambda x: x.abs(), "clamp": lambda x: x.clamp(-0.5, 0.5), "expm1": lambda x: x.expm1(),
    "hardswish": F.hardswish, "elu": F.elu, "selu": F.selu, "celu": lambda x: F.celu(x, 2.0),
    "softplus": lambda x: F.softplus(x, 2.0, 1.0), "mish": F.mish, "erfc": lambda x: x.erfc(),
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"), "trunc": lambda x: x.trunc(),
    "var": lambda x: ad.var_mean(x, 1), "std": lambda x: x.std((0, 1), keepdim=True),
    "norm": lambda x: (x.norm(), x.norm(1, 1), x.norm(3.0, 0)), "prod": lambda x: x.prod(1),
    "cumsum": lambda x: x.cumsum(1), "topk": lambda x: x.topk(2, 1)[1], "sort": lambda x: x.sort(1),
    "argmax": lambda x: (x.argmax(1), x.argmin(), x.argmax(0, keepdim=True)),
    "any": lambda x: ((x > 0).all(1), (x > 2).any()), "flip": lambda x: x.flip(0, 1),
    "tril": lambda x: (x.tril(1), (x > 0).triu()), "steps": lambda x: x[::2, 1:-1],
    "new": lambda x: x[None, 1, :, None], "unbind": lambda x: x.unbind(1),
    "roll": lambda x: x.roll(1),
    "stack": lambda x: ad.stack([x, x + 1], 1), "chunk": lambda x: x.chunk(2, 1)[1],
    "gather": lambda x: x.gather(1, x.argsort(1)), "where": lambda x: ad.where(x > 0, x, -x),
    "index": lambda x: x[ad.tensor([0, 2, 1]), ad.tensor([1, 1, 0])],
    "softmax": lambda x: x.softmax(0),
    "scatter": lambda x: ad.zeros(3, 4).scatter(1, x.argsort(1), x), "pad": lambda x: F.pad(x, (1,
    2)),
    "floor": lambda x: (x // 0.3, x % 0.7, ad.fmod(x, 0.7)), "pow": lambda x: (x * x) ** 1.5,
    "integers": lambda x: (x.long() * 7 // 2, x.long() % 3, x.int() + 1),
    "log2": lambda x: (x * x).log2(),
    "masked": lambda x: x.masked_fill(x > 0, 7.0), "lerp": lambda x: x.lerp(x * 2, 0.3),
    "write": lambda x: write(x.clone()), "logsumexp": lambda x: x.logsumexp(1),
    "ne": lambda x: (x != 0) & (x > -1) | (x < 5), "square": lambda x: x.square().rsqrt(),
    "einsum": lambda x: ad.einsum("ij,kj->ik", x, x), "isnan": lambda x: x.isnan(),
}  # fmt: skip


def write(x):
    x[1, 1:3] = 5.0
    return x


@pytest.mark.parametrize("name", FUNCTIONS)
def test_operations(name):
    """Each as onnxruntime computes it, and as it is read again."""
    ad.manual_seed(2)
    x = ad.randn(3, 4)
    module = Function(FUNCTIONS[name])
    data = exported(module, x)
    expected = flat(module(x))
    assert_close(by_onnxruntime(data, x), expected)
    assert_close(flat(ad.onnx.load(data)(x)), expected)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_resizing(mode):
    module = nn.Upsample(scale_factor=2, mode=mode)
    x = ad.randn(2, 3, 4, 5)
    data = exported(module, x, axes=BATCH)
    other = ad.randn(1, 3, 4, 5)
    assert_close(by_onnxruntime(data, other), flat(module(other)))


# ---- every primitive, on the samples of the registry ---------------------------------------------

PRIMITIVES = sorted(
    (cls for key, cls in REGISTRY.items() if key.startswith("adjoint.ops.")
     and cls.__name__ in EXPORTED),
    key=lambda cls: cls.__qualname__,
)  # fmt: skip


def converted(sample):
    """The arrays of a sample in the dtypes that onnxruntime has, or None."""
    arrays = [np.array(x) for x in sample.inputs if isinstance(x, np.ndarray)]
    if not arrays or any(x.dtype.kind in "cV" or x.dtype == np.float16 for x in arrays):
        return None
    return [x.astype(np.float32) if x.dtype == np.float64 else x for x in arrays]


@few_or_many("most", 2, 1000)
@pytest.mark.parametrize("cls", PRIMITIVES, ids=lambda cls: cls.__name__)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_primitives(cls, most):
    """Each sample, of which so many at most are compared: onnxruntime's result is ours, or export
    refuses; and so read again.
    """
    compared = 0
    for sample in cls.samples():
        if compared == most:
            break
        arrays = converted(sample)
        if arrays is None or "special" in sample.label:  # NaN: the standard leaves it open
            continue

        def run(*tensors, sample=sample):
            given = iter(tensors)
            inputs = [next(given) if isinstance(x, np.ndarray) else x for x in sample.inputs]
            return apply(sample.op, *inputs)

        tensors = list(map(ad.from_numpy, arrays))
        try:
            expected = flat(run(*tensors))
            data = exported(Function(run), *tensors)
        except ad.AdjointError:
            continue  # an operator that lacks this dtype, or needs a newer opset
        assert_close(flat(ad.onnx.load(data)(*tensors)), expected, 1e-4)
        try:
            found = by_onnxruntime(data, *tensors)
        except Exception as error:
            if "NOT_IMPLEMENTED" in str(error) or "bfloat16" in str(error) or not arrays[0].size:
                continue  # a dtype that onnxruntime lacks
            raise
        assert_close(found, expected, 1e-4)
        compared += 1
    assert compared


# ---- what export refuses -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda x: x * float(x.sum()), ad.Unsupported, "reads values"),
        (lambda x: x[x > 0], ad.Unsupported, "reads values"),
        (lambda x: x.digamma(), ad.Unsupported, "polygamma"),
        (lambda x: {"y": [x, "text"]}, ad.InvalidType, "str"),
    ],
)
def test_refused(function, error, message):
    with pytest.raises(error, match=message):
        exported(Function(function), ad.ones(2))


VARYING = {
    "number": lambda x: x * x.shape[0] + (x.shape[1] - 2),
    "sum": lambda x: x.sum(0) / x.shape[0],
    "range": lambda x: x + ad.arange(x.shape[1]),
    "constant": lambda x: ad.cat([x, ad.full((x.shape[0], 1), 2.0)], 1),
    "slice": lambda x: x[: x.shape[0] - 1, x.shape[1] // x.shape[1] :],
    "flat": lambda x: x.reshape(-1),
    "mask": lambda x: x * ad.ones(x.shape[1], x.shape[1]).tril()[: x.shape[0]],
    "expand": lambda x: x[None].expand(x.shape[1], -1, -1),
}


@pytest.mark.parametrize("name", VARYING)
def test_sizes_that_vary(name):
    """Values that depend on sizes follow them."""
    module = Function(VARYING[name])
    data = exported(module, ad.ones(3, 4), axes={"x0": {0: "n", 1: "m"}})
    for shape in ((3, 4), (5, 5), (2, 9)):
        x = ad.randn(shape)
        assert_close(by_onnxruntime(data, x), flat(module(x)))


def test_sizes_that_cannot_be_followed():
    for function in (
        lambda x: x * (1 / x.shape[0]),
        lambda x: x[: x.shape[0] // 4],
        lambda x: x + float(np.log(x.shape[0])),
    ):
        with pytest.raises(ad.InvalidArgument, match="dynamic_axes"):
            exported(Function(function), ad.ones(3, 4), axes={"x0": {0: "n"}})


def test_sizes_that_decide_what_runs():
    class Loop(nn.Module):
        def forward(self, x):
            total = x[0]
            for step in x[1:]:
                total = (total * step).tanh()
            return total

    with pytest.raises(ad.InvalidArgument, match="dynamic_axes"):
        exported(Loop(), ad.ones(3, 1, 2), axes={"x0": {0: "time"}})


RECURRENT = [
    (kind, options)
    for kind in ("LSTM", "GRU", "RNN")
    for options in ({}, {"bidirectional": True, "num_layers": 2}, {"bias": False})
] + [("RNN", {"nonlinearity": "relu"}), ("LSTM", {"batch_first": True})]


@pytest.mark.parametrize(("kind", "options"), RECURRENT)
def test_recurrent_layers_are_operators(kind, options):
    """One node a layer and direction, of any length and batch; the file trains on."""
    module = getattr(nn, kind)(3, 4, **options)
    data = exported(module, ad.randn(5, 2, 3), axes={"x0": {0: "time", 1: "batch"}})
    kinds = [node.op_type for node in onnx.load_from_string(data).graph.node]
    layers = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    assert kinds.count(kind) == layers
    loaded = ad.onnx.load(data)
    for shape in ((5, 2, 3), (9, 4, 3)):
        x = ad.randn(*shape)
        expected = flat(module(x))
        assert_close(expected, by_onnxruntime(data, x))
        assert_close(flat(loaded(x)), expected)
    loaded(x)[0].sum().backward()
    module(x)[0].sum().backward()
    for name, p in module.named_parameters():
        ad.testing.assert_close(loaded.get_parameter(name).grad, p.grad, rtol=1e-4, atol=1e-5)


def test_projections_are_written_out():
    module = nn.LSTM(3, 4, proj_size=2)
    x = ad.randn(5, 2, 3)
    assert_close(flat(module(x)), by_onnxruntime(exported(module, x), x))


def test_arguments(tmp_path):
    module, x = nn.Linear(2, 2), ad.ones(1, 2)
    path = tmp_path / "x.onnx"
    for options, message in [
        ({"opset_version": 9}, "opset"), ({"input_names": ["a", "b"]}, "names"),
        ({"dynamic_axes": {"z": {0: "n"}}}, "dynamic_axes"),
        ({"dynamic_axes": {"input": {5: "n"}}}, "dimension"),
    ]:  # fmt: skip
        with pytest.raises(ad.InvalidArgument, match=message):
            ad.onnx.export(module, x, path, **options)
    with pytest.raises(ad.InvalidType, match="tensors"):
        ad.onnx.export(module, (1,), path)
    assert not path.exists()
    ad.onnx.export(module, x, path, ["a"], ["b"], {"a": [0]})
    found = ad.onnx.load(path)
    assert (found.input_names, found.output_names) == (["a"], ["b"])
    assert os.listdir(tmp_path) == ["x.onnx"]


def test_arguments_of_pytorch(tmp_path, capsys):
    path, x = tmp_path / "x.onnx", ad.ones(1, 2)
    module = nn.Linear(2, 2)
    ad.onnx.export(
        model=module, args=(x,), f=path, verbose=True, do_constant_folding=False, dynamo=False,
        export_params=True, keep_initializers_as_inputs=False, external_data=False, training=0,
    )  # fmt: skip
    assert "Gemm" in capsys.readouterr().out or "MatMul" in path.read_bytes().decode("latin1")
    ad.testing.assert_close(ad.onnx.load(path)(x), module(x))
    path.unlink()
    for options in [
        {"export_params": False}, {"training": 1}, {"keep_initializers_as_inputs": True},
        {"external_data": True}, {"dynamic_shapes": {"x": {0: "n"}}}, {"dynamo": True},
    ]:  # fmt: skip
        with pytest.raises(ad.Unsupported, match=f"onnx.export: {next(iter(options))}="):
            ad.onnx.export(module, x, path, **options)
    with pytest.raises(ad.Unsupported, match="f=None"):
        ad.onnx.export(module, x)
    for given in [{}, {"module": module, "model": module}]:
        with pytest.raises(ad.InvalidType, match="give the module once"):
            ad.onnx.export(args=x, f=path, **given)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        ad.onnx.export(module, x, path, colour=1)
    assert not path.exists()


def test_export_changes_nothing():
    module = lenet().train()
    module[2].eval()
    state = {key: value.clone() for key, value in module.state_dict().items()}
    exported(module, ad.ones(2, 1, 16, 16))
    assert module.training and not module[2].training
    for key, value in module.state_dict().items():
        assert ad.equal(value, state[key])


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm, self.fc = nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 3)
        self.block = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))

    def forward(self, x):
        return self.block(self.fc(self.norm(self.table(x))).tanh())


def put(module, path, layer):
    parent, _, leaf = path.rpartition(".")
    setattr(module.get_submodule(parent), leaf, layer)


@pytest.mark.parametrize(
    "path, make",
    [
        ("table", lambda: nn.Embedding(5, 4)),
        ("norm", lambda: nn.LayerNorm(4, eps=0.5)),
        ("fc", lambda: nn.Linear(4, 3, bias=False)),
        ("block.0", lambda: nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))),
    ],
)
def test_a_replaced_layer_is_what_runs_and_trains(path, make):
    module, x = Words(), ad.tensor([[1, 2, 4], [0, 0, 3]])
    loaded = ad.onnx.load(exported(module, x))
    assert_close(loaded(x), module(x))
    copied, layer = copy.deepcopy(loaded), make()
    for each in (module, loaded):
        put(each, path, layer)
    for number in (0.3, 3.0):  # it may change between calls
        with ad.no_grad():
            for parameter in layer.parameters():
                parameter.add_(number)
        assert_close(loaded(x), module(x))
    loaded(x).sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
    put(copied, path, second := make())
    put(module, path, second)
    assert_close(copied(x), module(x))
    put(copied, path, layer)  # another in the same place
    put(module, path, layer)
    assert_close(copied(x), module(x))


def test_what_the_graph_cannot_call_is_refused():
    x = ad.tensor([[1, 2]])
    loaded = ad.onnx.load(exported(Words(), x))
    loaded.block = nn.Linear(3, 2)
    with pytest.raises(ad.Unsupported, match=r"a Linear was put at block, which the graph cannot"):
        loaded(x)
    loaded.block = nn.Module()
    with pytest.raises(ad.InvalidArgument, match=r"computes with block.0, and there is no '0' any"):
        loaded(x)


def test_arrays_and_names_as_inputs_of_a_loaded_module():
    loaded = ad.onnx.load(exported(Words(), ad.tensor([[1, 2]])))
    x = np.array([[3, 1]])
    assert_close(loaded(x0=x[:, ::-1]), loaded(ad.tensor([[1, 3]])))
    with pytest.raises(ad.InvalidArgument, match="expected the inputs x0, got 0 and ids"):
        loaded(ids=x)


# ---- operators that only import knows ------------------------------------------------------------


def file_of(nodes, inputs, initializers=(), outputs=("y",), opset=17):
    """A model of `nodes`; inputs are arrays by name."""
    helper, numpy_helper = onnx.helper, onnx.numpy_helper

    def info(name, array):
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_value_info(name, kind, array.shape)

    graph = helper.make_graph(
        [helper.make_node(*args, **options) for *args, options in nodes],
        "test",
        [info(*item) for item in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(value, key) for key, value in dict(initializers).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return model.SerializeToString()


def arrays(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


X = arrays((1, 4, 5, 6))[0]
I64 = np.int64
CASES = {
    **{kind: ([X], {}, {}) for kind in (
        "Softsign", "HardSwish", "HardSigmoid", "ThresholdedRelu", "LeakyRelu", "Selu",
        "Celu", "Softplus", "GlobalMaxPool", "GlobalAveragePool", "ReduceL1", "ReduceL2",
        "ReduceSumSquare", "ReduceLogSumExp", "ReduceProd", "Flatten", "Transpose", "Shape", "Size",
        "IsNaN", "Sign", "Round", "LpNormalization",
    )},
    "DepthToSpace": ([X], {}, {"blocksize": 2}),
    "CRD": ("DepthToSpace", [X], {}, {"blocksize": 2, "mode": "CRD"}),
    "SpaceToDepth": ([X[..., :4, :]], {}, {"blocksize": 2}),
    "PRelu": ([X], {"s": arrays((4, 1, 1))[0]}, {}),
    "Softmax": ([X], {}, {"axis": 1}),
    "LRN": ([X], {}, {"size": 3}),
    "InstanceNormalization": ([X], dict(zip("ab", arrays((4,), (4,)), strict=True)), {}),
    "LayerNormalization": ([X], dict(zip("ab", arrays((5, 6), (5, 6)), strict=True)), {"axis": 2}),
    "GatherElements": ([X], {"i": np.zeros((1, 4, 5, 2), I64) - 1}, {"axis": 3}),
    "GatherND": ([X], {"i": np.array([[0, 1], [0, 3]], I64)}, {}),
    "ScatterND": ([X[0]], {"i": np.array([[1], [3]], I64), "u": arrays((2, 5, 6))[0]}, {}),
    "ScatterElements": ([X[0, 0]], {"i": np.array([[1, -1]], I64), "u": arrays((1, 2))[0]},
    {"axis": 1}),
    "Gather": ([X], {"i": np.array([[0, -1]], I64)}, {"axis": 2}),
    "Tile": ([X], {"r": np.array([1, 2, 1, 3], I64)}, {}),
    "Expand": ([X[0, 0]], {"r": np.array([2, 1, 6], I64)}, {}),
    "Reflect": ("Pad", [X], {"p": np.array([0, 0, 1, 2, 0, 0, 2, 1], I64)}, {"mode": "reflect"}),
    "Edge": ("Pad", [X], {"p": np.array([0, 0, 1, 2, 0, 0, 2, 1], I64)}, {"mode": "edge"}),
    "Slice": ([X], {"s": np.array([-1, 1], I64), "e": np.array([-99, 4], I64), "a": np.array([3,
    -2], I64),
                        "t": np.array([-2, 1], I64)}, {}),
    "Conv": ([X], {"w": arrays((6, 2, 3, 3))[0]}, {"group": 2, "auto_pad": "SAME_UPPER",
                                                   "strides": [2, 2]}),
    "ConvTranspose": ([X], dict(zip("wb", arrays((4, 3, 3, 3), (3,)), strict=True)),
                      {"strides": [2, 2], "pads": [1, 0, 0, 1], "output_padding": [1, 1]}),
    "MaxPool": ([X], {}, {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    "AveragePool": ([X], {}, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 0, 0]}),
    "included": ("AveragePool", [X], {}, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1],
                                          "count_include_pad": 1}),
    "Gemm": ([X[0, 0]], dict(zip("bc", arrays((3, 6), (3,)), strict=True)), {"transB": 1,
    "alpha": 0.5}),
    "Einsum": ([X[0]], {"m": arrays((6, 2))[0]}, {"equation": "aij,jk->aik"}),
    "Clip": ([X], {"low": np.float32(-0.5), "high": np.float32(0.25)}, {}),
    "CumSum": ([X], {"a": np.array(2, I64)}, {"exclusive": 1, "reverse": 1}),
    "Trilu": ([X], {"k": np.array(1, I64)}, {"upper": 0}),
    "OneHot": ([np.array([1, -1, 2], I64)], {"d": np.array(3, I64), "v": np.array([0, 5], I64)},
    {}),
    "Cast": ([X], {}, {"to": 7}),
    "Mod": ([np.array([5, -5], I64)], {"b": np.array([3, 3], I64)}, {}),
    "Div": ([np.array([5, -5], I64)], {"b": np.array([3, 3], I64)}, {}),
    "Max": ([X], {"b": arrays((6,))[0], "c": arrays((5, 1))[0]}, {}),
    "Mean": ([X], {"b": arrays((6,))[0]}, {}),
    "BatchNormalization": ([X], dict(zip("abcd", [*arrays((4,), (4,), (4,)), np.ones(4,
    np.float32)],
                                         strict=True)), {}),
    **{f"{kind} {way}": (kind, [arrays((3, 2, 4))[0]], {
        "w": arrays((1 + (way == "bidirectional"), gates * 5, 4))[0],
        "r": arrays((1 + (way == "bidirectional"), gates * 5, 5), seed=1)[0],
        "b": arrays((1 + (way == "bidirectional"), gates * 10), seed=2)[0]},
        {"hidden_size": 5, "direction": way, **more})
       for kind, gates, more in (("LSTM", 4, {}), ("GRU", 3, {}), ("RNN", 1, {}))
       for way in ("forward", "reverse", "bidirectional")},
    **{f"Resize {mode} {kind}": ("Resize", [X], {"": None, "s": np.array([1, 1, 1.6, 0.5],
    np.float32)},
                                 {"mode": mode, "coordinate_transformation_mode": kind})
       for mode in ("nearest", "linear", "cubic")
       for kind in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operators(name):
    """What each computes, by onnxruntime."""
    kind, given, constants, options = CASES[name] if len(CASES[name]) == 4 else (name, *CASES[name])
    inputs = {f"x{i}": value for i, value in enumerate(given)}
    names = [*inputs, *constants]
    kept = {key: np.asarray(value) for key, value in constants.items() if key}
    data = file_of([(kind, names, ["y"], options)], inputs, kept)
    args = [ad.from_numpy(x.copy()) for x in given]
    found = ad.onnx.load(data)(*args)
    assert_close(flat(found), by_onnxruntime(data, *args), 2e-5)


REDUCED_OVER_NOTHING = {
    "ReduceSumSquare": [9.0, 16.0, 0.25],
    "ReduceL1": [3.0, 4.0, 0.5],
    "ReduceL2": [3.0, 4.0, 0.5],
    "ReduceLogSum": [np.nan, 1.3862944, -0.6931472],
    **{f"Reduce{kind}": [-3.0, 4.0, 0.5] for kind in (
        "Sum", "Mean", "Max", "Min", "Prod", "LogSumExp",
    )},
}  # fmt: skip


@pytest.mark.parametrize("kind", REDUCED_OVER_NOTHING)
def test_reductions_over_no_axes(kind):
    """Of `noop_with_empty_axes` the steps around the sum remain, by the standard."""
    x = np.array([-3.0, 4.0, 0.5], np.float32)
    none = {"a": np.array([], I64)}
    for names, constants in ((["x"], {}), (["x", "a"], none)):
        node = (kind, names, ["y"], {"noop_with_empty_axes": 1})
        for given in (x, x[1]):
            loaded = ad.onnx.load(file_of([node], {"x": given}, constants, opset=18))
            (found,) = flat(loaded(ad.tensor(given)))
            expected = np.float32(REDUCED_OVER_NOTHING[kind])
            expected = expected if given.ndim else expected[1]
            assert found.shape == expected.shape
            np.testing.assert_allclose(found.detach().numpy(), expected, 1e-6)
    node = (kind, ["x"], ["y"], {"noop_with_empty_axes": 0})  # over all of them
    (found,) = flat(ad.onnx.load(file_of([node], {"x": x}, opset=18))(ad.tensor(x)))
    assert found.shape == (1,)


def test_shape_arithmetic():
    """A view by the input's own sizes, as PyTorch writes it."""
    (x,) = arrays((2, 3, 4))
    data = file_of(
        [
            ("Shape", ["x"], ["s"], {}), ("Gather", ["s", "zero"], ["n"], {}),
            ("Unsqueeze", ["n", "axes"], ["n1"], {}),
            ("Concat", ["n1", "minus"], ["to"], {"axis": 0}),
            ("Reshape", ["x", "to"], ["y"], {}),
        ],
        {"x": x},
        {"zero": np.array(0), "axes": np.array([0]), "minus": np.array([-1])},
    )  # fmt: skip
    loaded = ad.onnx.load(data)
    assert loaded(ad.ones(5, 3, 4)).shape == (5, 12)
    again = exported(loaded, ad.ones(2, 3, 4), axes=BATCH)
    assert by_onnxruntime(again, ad.ones(7, 3, 4))[0].shape == (7, 12)


def test_constants_are_folded():
    data = file_of(
        [("Add", ["a", "a"], ["b"], {}), ("Mul", ["x", "b"], ["y"], {}), ("Neg", ["x"], ["z"], {})],
        {"x": np.ones(2, np.int64)},
        {"a": np.array([1, 2])},
    )
    loaded = ad.onnx.load(data)
    assert loaded.extra_repr() == "x -> y, 1 nodes"
    assert loaded(ad.tensor([1, 1])).tolist() == [2, 4]


def test_training_mode():
    """Batch normalization takes the batch's statistics and moves its own."""
    (w,) = arrays((4,))
    constants = dict(
        zip("wbmv", [w, w, np.zeros(4, np.float32), np.ones(4, np.float32)], strict=True)
    )
    data = file_of([("BatchNormalization", ["x", *"wbmv"], ["y"], {})], {"x": X}, constants)
    loaded = ad.onnx.load(data)
    peer = nn.BatchNorm2d(4)
    peer.weight.data = peer.bias.data = ad.from_numpy(w.copy())
    assert [n for n, _ in loaded.named_buffers()] == ["m", "v"]
    x = ad.from_numpy(X.copy())
    loaded.train()
    assert_close([loaded(x)], [peer(x)])
    assert_close([loaded.m, loaded.v], [peer.running_mean, peer.running_var])


def test_normalization_is_one_node():
    nodes = onnx.load_from_string(exported(lenet(), ad.ones(1, 1, 16, 16))).graph.node
    assert [node.op_type for node in nodes if node.op_type != "Constant"] == [
        "Conv", "BatchNormalization", "Relu", "MaxPool", "Conv", "Relu", "AveragePool", "Mul",
        "Div",
        "Reshape", "Gemm", "Identity",
    ]  # fmt: skip
    data = exported(nn.LayerNorm((3, 4)), ad.ones(2, 3, 4))
    kinds = [node.op_type for node in onnx.load_from_string(data).graph.node]
    assert kinds == ["LayerNormalization", "Identity"]


def test_products_that_are_no_normalization():
    """The mean of something else, and axes that are not the last."""
    ad.manual_seed(3)
    w, b = ad.randn(4), ad.randn(4)

    def other(x):
        c = x - (x + 1).mean(1, keepdim=True)
        return c * ((c * c).mean(1, keepdim=True) + 1e-5).rsqrt() * w + b

    def first(x):
        c = x - x.mean(0, keepdim=True)
        return c * ((c * c).mean(0, keepdim=True) + 1e-5).rsqrt() * w + b

    x = ad.randn(3, 4)
    for function in (other, first):
        data = exported(Function(function), x)
        assert_close(by_onnxruntime(data, x), [function(x)])
        kinds = {node.op_type for node in onnx.load_from_string(data).graph.node}
        assert "LayerNormalization" not in kinds


def test_folding_batch_normalization():
    ad.manual_seed(4)
    module = models.resnet18()
    module(ad.randn(4, 3, 32, 32))  # statistics that are not 0 and 1
    x = ad.randn(2, 3, 32, 32)
    loaded = ad.onnx.load(exported(module, x))
    steps = len(loaded._steps)
    assert ad.onnx.fold_batch_norm(loaded) == 20
    assert len(loaded._steps) == steps - 20 and not list(loaded.named_buffers())
    assert_close([loaded(x)], [module.eval()(x)], 1e-4)
    loaded(x).sum().backward()
    assert all(p.grad is not None for p in loaded.parameters())
    again = exported(loaded, x)
    assert_close(by_onnxruntime(again, x), [loaded(x)], 1e-4)
    assert ad.onnx.fold_batch_norm(loaded) == 0
    with pytest.raises(ad.InvalidType, match="load"):
        ad.onnx.fold_batch_norm(module)


def test_folding_keeps_what_others_use():
    """The convolution's own output is wanted too; a bias is folded into."""
    ad.manual_seed(5)
    conv, norm = nn.Conv2d(4, 3, 3), nn.BatchNorm2d(3)
    norm(ad.randn(2, 3, 5, 5))
    x = ad.from_numpy(X.copy())
    both = nn.ModuleList([conv, norm])
    both.forward = lambda x: (conv(x), norm(conv(x)))
    loaded = ad.onnx.load(exported(both, x))
    one = nn.Sequential(conv, norm)
    folded = ad.onnx.load(exported(one, x))
    assert (ad.onnx.fold_batch_norm(loaded), ad.onnx.fold_batch_norm(folded)) == (0, 1)
    assert_close([*loaded(x)], [conv(x), one.eval()(x)])
    assert_close([folded(x)], [one(x)])


def test_table_is_of_the_standard():
    assert set(IMPORTED) <= {schema.name for schema in onnx.defs.get_all_schemas_with_history()}


def test_programs_are_frozen_and_exported_in_inference_mode(tmp_path):
    model, x = ad.nn.Sequential(ad.nn.Linear(3, 4), ad.nn.ReLU()), ad.ones(2, 3)
    expected = model(x)
    path = str(tmp_path / "model.onnx")
    with ad.inference_mode():
        ad.onnx.export(model, (x,), path)
        for found in (ad.inference.freeze(model, x), ad.onnx.load(path)):
            np.testing.assert_allclose(found(x).numpy(), expected.detach().numpy(), rtol=1e-6)
