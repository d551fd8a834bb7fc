"""Modules: the contract of PyTorch's nn.Module, layers and losses beside PyTorch's own."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections import OrderedDict

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn

from ..sweep import one_in

torch = pytest.importorskip("torch")
F, TF = nn.functional, torch.nn.functional
RNG = np.random.default_rng(0)


def both(*shape, low=-2.0, high=2.0, grad=True, dtype=np.float64):
    """The same random tensor for adjoint and for PyTorch."""
    x = RNG.uniform(low, high, shape).astype(dtype)
    return ad.tensor(x, requires_grad=grad), torch.tensor(x, requires_grad=grad)


def assert_same(a, t, tolerance=1e-10):
    assert tuple(a.shape) == tuple(t.shape)
    assert a.dtype.name == str(t.dtype).split(".")[-1]
    np.testing.assert_allclose(a.detach().numpy(), t.detach().numpy(), tolerance, tolerance)


def twins(name, *args, **kwargs):
    """A layer of both libraries with PyTorch's initial values, in float64."""
    t = getattr(torch.nn, name)(*args, **kwargs).double()
    a = getattr(nn, name)(*args, **kwargs).double()
    missing, unexpected = a.load_state_dict(
        {key: ad.tensor(value.numpy()) for key, value in t.state_dict().items()}
    )
    assert not missing and not unexpected
    return a, t


def assert_layers_agree(a, t, *shapes, tolerance=1e-9):
    inputs = [both(*shape) for shape in shapes]
    ya, yt = a(*(x for x, _ in inputs)), t(*(x for _, x in inputs))
    assert_same(ya, yt, tolerance)
    weight = RNG.uniform(-1, 1, tuple(yt.shape))
    (ya * ad.tensor(weight)).sum().backward()
    (yt * torch.tensor(weight)).sum().backward()
    for xa, xt in inputs:
        assert_same(xa.grad, xt.grad, tolerance)
    for (name, pa), (other, pt) in zip(a.named_parameters(), t.named_parameters(), strict=True):
        assert name == other
        assert_same(pa.grad, pt.grad, tolerance)
    for (name, ba), (other, bt) in zip(a.named_buffers(), t.named_buffers(), strict=True):
        assert name == other
        assert_same(ba, bt, tolerance)


LAYERS = [
    ("Linear", (4, 3), {}, [(5, 4)]),
    ("Linear", (4, 3), {"bias": False}, [(2, 5, 4)]),
    ("Bilinear", (3, 4, 2), {}, [(5, 3), (5, 4)]),
    ("Conv1d", (2, 4, 3), {"stride": 2, "padding": 1}, [(3, 2, 9)]),
    ("Conv2d", (2, 4, 3), {"padding": "same", "groups": 2}, [(2, 2, 5, 6)]),
    ("Conv2d", (2, 3, (2, 3)), {"dilation": 2, "bias": False}, [(2, 7, 8)]),
    ("Conv2d", (2, 3, 3), {"padding": 1, "padding_mode": "reflect"}, [(1, 2, 5, 5)]),
    ("Conv2d", (2, 3, 3), {"padding": (1, 2), "padding_mode": "circular"}, [(1, 2, 5, 5)]),
    ("ConvTranspose2d", (2, 4, 3), {"stride": 2, "output_padding": 1}, [(1, 2, 4, 4)]),
    ("MaxPool1d", (2,), {}, [(2, 3, 8)]),
    ("MaxPool2d", (3,), {"stride": 2, "padding": 1, "ceil_mode": True}, [(2, 3, 8, 7)]),
    ("AvgPool1d", (3,), {"stride": 2}, [(2, 3, 8)]),
    ("AvgPool2d", (2,), {}, [(2, 3, 8, 6)]),
    ("AvgPool2d", (3,), {"stride": 2, "padding": 1, "ceil_mode": True}, [(2, 3, 8, 7)]),
    ("AvgPool2d", (3,), {"padding": 1, "count_include_pad": False}, [(2, 3, 8, 7)]),
    ("AvgPool2d", (2,), {"divisor_override": 3}, [(3, 8, 6)]),
    ("AdaptiveAvgPool1d", (4,), {}, [(2, 3, 10)]),
    ("AdaptiveAvgPool2d", ((3, None),), {}, [(2, 3, 7, 5)]),
    ("AdaptiveMaxPool2d", (3,), {}, [(2, 3, 7, 5)]),
    ("Flatten", (), {}, [(2, 3, 4)]),
    ("Unflatten", (1, (2, 3)), {}, [(4, 6)]),
    ("BatchNorm1d", (3,), {}, [(5, 3)]),
    ("BatchNorm1d", (3,), {"momentum": None, "affine": False}, [(5, 3, 4)]),
    ("BatchNorm2d", (3,), {"momentum": 0.3}, [(2, 3, 4, 5)]),
    ("BatchNorm2d", (3,), {"track_running_stats": False}, [(2, 3, 4, 5)]),
    ("LayerNorm", (4,), {}, [(2, 3, 4)]),
    ("LayerNorm", ((3, 4),), {"bias": False}, [(2, 3, 4)]),
    ("GroupNorm", (2, 4), {}, [(3, 4, 5)]),
    ("RMSNorm", (4,), {"eps": 1e-6}, [(3, 4)]),
    ("InstanceNorm2d", (3,), {"affine": True, "track_running_stats": True}, [(2, 3, 4, 4)]),
    *[(name, (), {}, [(4, 6)]) for name in (
        "ReLU", "ReLU6", "LeakyReLU", "ELU", "SELU", "CELU", "GELU", "SiLU", "Mish", "Tanh",
        "Sigmoid", "LogSigmoid", "Softplus", "Softsign", "Softshrink", "Hardshrink", "Tanhshrink",
        "Hardtanh", "Hardsigmoid", "Hardswish", "GLU", "PReLU",
    )],
    ("GELU", ("tanh",), {}, [(4, 6)]),
    ("Threshold", (0.1, 20.0), {}, [(4, 6)]),
    ("PReLU", (3,), {}, [(2, 3, 4)]),
    *[(name, (), {"dim": 1}, [(4, 6)]) for name in ("Softmax", "LogSoftmax", "Softmin")],
    ("Softmax2d", (), {}, [(2, 3, 4, 4)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "shapes"), LAYERS, ids=[f"{c[0]}-{c[1]}{c[2]}" for c in LAYERS]
)
def test_layer_beside_pytorch(name, args, kwargs, shapes):
    a, t = twins(name, *args, **kwargs)
    assert repr(a) == repr(t)
    assert_layers_agree(a, t, *shapes, tolerance=1e-7)  # PyTorch has some float32 constants


@pytest.mark.parametrize("name", ["BatchNorm1d", "InstanceNorm1d"])
def test_running_statistics_in_evaluation(name):
    a, t = twins(name, 3, affine=True, track_running_stats=True)
    for _ in range(3):
        x, y = both(4, 3, 5)
        a(x), t(y)
    assert_same(a.running_var, t.running_var)
    assert_layers_agree(a.eval(), t.eval(), (4, 3, 5))


def test_batch_norm_refuses_one_value_per_channel():
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        nn.BatchNorm1d(3)(ad.ones(1, 3))
    with pytest.raises(ValueError, match="expected 4D input"):
        nn.BatchNorm2d(3)(ad.ones(1, 3))


@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}, {"max_norm": 1.0}])
def test_embedding(options):
    a, t = twins("Embedding", 5, 3, **options)
    index = np.array([[0, 1, 4], [1, 1, 2]])
    ya, yt = a(ad.tensor(index)), t(torch.tensor(index))
    assert_same(ya, yt)
    (ya * ya).sum().backward()
    (yt * yt).sum().backward()
    assert_same(a.weight.grad, t.weight.grad)
    assert_same(a.weight, t.weight)


def test_dropout():
    ad.manual_seed(0)
    x = ad.ones(100, 100, requires_grad=True)
    layer = nn.Dropout(0.25)
    y = layer(x)
    kept = y.detach().numpy() != 0
    assert abs(kept.mean() - 0.75) < 0.02
    np.testing.assert_allclose(y.detach().numpy()[kept], 1 / 0.75, rtol=1e-6)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())
    assert layer.eval()(x) is x
    whole = nn.Dropout2d(0.5)(ad.ones(20, 30, 2, 2)).numpy()
    assert set(np.unique(whole.reshape(600, 4).sum(1))) == {0.0, 8.0}


# ---- losses --------------------------------------------------------------------------------------


def loss_inputs(kind):
    unit = {"low": 0.05, "high": 0.95}
    sign = np.sign(RNG.uniform(-1, 1, (4, 3)))
    return {
        "alike": lambda: [both(4, 3), both(4, 3)],
        "unit": lambda: [both(4, 3, **unit), both(4, 3, **unit)],
        "sign": lambda: [both(4, 3), (ad.tensor(sign), torch.tensor(sign))],
    }[kind]()


PLAIN_LOSSES = [
    ("MSELoss", {}, "alike"),
    ("L1Loss", {}, "alike"),
    ("SmoothL1Loss", {"beta": 0.5}, "alike"),
    ("SmoothL1Loss", {"beta": 0.0}, "alike"),
    ("HuberLoss", {"delta": 0.7}, "alike"),
    ("BCELoss", {}, "unit"),
    ("BCEWithLogitsLoss", {}, "unit"),
    ("KLDivLoss", {}, "unit"),
    ("KLDivLoss", {"log_target": True}, "alike"),
    ("PoissonNLLLoss", {"full": True}, "unit"),
    ("PoissonNLLLoss", {"log_input": False}, "unit"),
    ("SoftMarginLoss", {}, "sign"),
    ("HingeEmbeddingLoss", {"margin": 0.5}, "sign"),
    ("MultiLabelSoftMarginLoss", {}, "unit"),
]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(("name", "options", "kind"), PLAIN_LOSSES)
@pytest.mark.filterwarnings("ignore:reduction")
def test_loss_beside_pytorch(name, options, kind, reduction):
    (xa, xt), (ya, yt) = loss_inputs(kind)
    la = getattr(nn, name)(reduction=reduction, **options)(xa, ya)
    lt = getattr(torch.nn, name)(reduction=reduction, **options)(xt, yt)
    assert_same(la, lt)
    la.sum().backward()
    lt.sum().backward()
    assert_same(xa.grad, xt.grad)
    if yt.requires_grad:
        assert_same(ya.grad, yt.grad, 1e-8)


def test_binary_cross_entropy_at_the_ends():
    x = np.array([0.0, 1.0, 0.0, 1.0])
    y = np.array([0.0, 0.0, 1.0, 1.0])
    xa, xt = ad.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    la, lt = F.binary_cross_entropy(xa, ad.tensor(y)), TF.binary_cross_entropy(xt, torch.tensor(y))
    assert la.item() == lt.item()
    la.backward()
    lt.backward()
    assert_same(xa.grad, xt.grad, 1e-8)  # PyTorch's 1e-12 is a float32
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        F.binary_cross_entropy(ad.tensor([1.5]), ad.tensor([1.0]))


def test_bce_with_logits_weights_and_extremes():
    x = np.array([[-800.0, 0.0, 800.0], [1.0, -1.0, 3.0]])
    y, w, p = RNG.uniform(0, 1, (2, 3)), RNG.uniform(0, 1, (2, 3)), np.array([0.5, 2.0, 3.0])
    xa, xt = ad.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    la = nn.BCEWithLogitsLoss(ad.tensor(w), pos_weight=ad.tensor(p))(xa, ad.tensor(y))
    lt = torch.nn.BCEWithLogitsLoss(torch.tensor(w), pos_weight=torch.tensor(p))(
        xt, torch.tensor(y)
    )
    assert_same(la, lt)
    la.backward()
    lt.backward()
    assert_same(xa.grad, xt.grad)


@pytest.mark.parametrize(
    ("reduction", "shape", "weighted", "smoothing"),
    one_in(
        5,
        itertools.product(
            ["none", "mean", "sum"],
            [(5,), (4, 5), (4, 5, 3), (2, 5, 3, 2)],
            [False, True],
            [0.0, 0.2],
        ),
    ),
    ids=str,
)
def test_cross_entropy_beside_pytorch(reduction, shape, weighted, smoothing):
    xa, xt = both(*shape)
    target_shape = shape[:1] + shape[2:] if len(shape) > 1 else ()
    target = RNG.integers(0, 5, target_shape)
    if target.size > 2:
        target.flat[1] = 3
        ignored = 3
    else:
        ignored = -100
    weight = RNG.uniform(0.5, 2, 5) if weighted else None
    options = {
        "ignore_index": ignored, "reduction": reduction, "label_smoothing": smoothing,
    }  # fmt: skip
    la = F.cross_entropy(
        xa, ad.tensor(target), None if weight is None else ad.tensor(weight), **options
    )
    lt = TF.cross_entropy(
        xt, torch.tensor(target), None if weight is None else torch.tensor(weight), **options
    )
    assert_same(la, lt)
    la.sum().backward()
    lt.sum().backward()
    assert_same(xa.grad, xt.grad)
    # With probabilities instead of classes.
    raw = RNG.uniform(0, 1, shape)
    probabilities = raw / raw.sum(0 if len(shape) == 1 else 1, keepdims=True)
    del options["ignore_index"]
    la = F.cross_entropy(
        xa, ad.tensor(probabilities), None if weight is None else ad.tensor(weight), **options
    )
    lt = TF.cross_entropy(
        xt, torch.tensor(probabilities), None if weight is None else torch.tensor(weight), **options
    )
    assert_same(la, lt)


def test_cross_entropy_ignores_infinite_logits_of_ignored_targets():
    x = ad.tensor([[-np.inf, 0.0], [1.0, 2.0]], requires_grad=True)
    loss = F.cross_entropy(x, ad.tensor([-100, 1]))
    loss.backward()
    assert np.isfinite(loss.item())
    assert F.cross_entropy(x, ad.tensor([-100, -100])).isnan().item()


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: F.cross_entropy(ad.ones(3, 2), ad.tensor([0, 1, 2])), IndexError, "Target 2 is"),
        (lambda: F.cross_entropy(ad.ones(3, 2), ad.tensor([0, 1])), ValueError, "batch_size"),
        (lambda: F.cross_entropy(ad.ones(3, 2), ad.tensor([[0], [1], [1]])), RuntimeError, "size"),
        (lambda: F.nll_loss(ad.ones(1, 2), ad.tensor([0]), ad.ones(3)), RuntimeError, "all 2"),
        (lambda: F.mse_loss(ad.ones(2), ad.ones(2), reduction="avg"), ValueError, "avg"),
        (lambda: F.cross_entropy(ad.ones(1, 2), ad.tensor([0]), label_smoothing=2), RuntimeError,
         "label_smoothing"),
        (lambda: F.dropout(ad.ones(1), 1.5), ValueError, "between 0 and 1, but got 1.5"),
        (lambda: nn.Dropout(-1), ValueError, "between 0 and 1, but got -1"),
        (lambda: F.embedding(ad.ones(2), ad.ones(3, 2)), RuntimeError, "Long or Int"),
        (lambda: nn.LayerNorm(3)(ad.ones(2, 4)), RuntimeError, "normalized_shape"),
        (lambda: nn.Conv2d(3, 4, 1, groups=2), ValueError, "in_channels=3 must be divisible"),
        (lambda: nn.Conv2d(2, 4, 1, padding="other"), ValueError, "padding string"),
    ],
)  # fmt: skip
def test_errors_name_values(call, error, match):
    with pytest.raises(error, match=match):
        call()


# ---- the contract --------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(3, 1, bias=False))
        self.register_buffer("seen", ad.zeros(1))
        self.register_buffer("scratch", ad.zeros(1), persistent=False)

    def forward(self, x, scale=1.0):
        return self.rest(self.first(x)) * scale


class TorchNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(2, 3)
        self.rest = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(3, 1, bias=False))
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)


def test_traversal_as_pytorch():
    a, t = Net(), TorchNet()
    for method in ("named_parameters", "named_buffers", "named_modules", "named_children"):
        assert [n for n, _ in getattr(a, method)()] == [n for n, _ in getattr(t, method)()]
    for options in ({"prefix": "x"}, {"prefix": "x", "recurse": False}):
        assert [n for n, _ in a.named_parameters(**options)] == [
            n for n, _ in t.named_parameters(**options)
        ]
    assert list(a.state_dict(prefix="m.")) == list(t.state_dict(prefix="m."))
    assert repr(a) == repr(t).replace("TorchNet", "Net")
    assert len(list(a.parameters())) == 3 and len(list(a.modules())) == 5


def test_shared_modules_and_parameters():
    a = Net()
    a.twin = a.first
    a.tied = a.rest[1].weight
    names = [name for name, _ in a.named_parameters()]
    assert names == ["tied", "first.weight", "first.bias"]
    every = [name for name, _ in a.named_parameters(remove_duplicate=False)]
    assert {"tied", "twin.weight", "twin.bias", "rest.1.weight", "first.weight"} <= set(every)
    assert list(a.state_dict()) == [
        "tied", "seen", "first.weight", "first.bias", "rest.1.weight", "twin.weight", "twin.bias",
    ]  # fmt: skip


def test_registration_rules():
    class Early(nn.Module):
        def __init__(self, value):
            self.x = value

    for value, what in ((nn.Parameter(ad.ones(1)), "parameters"), (nn.ReLU(), "module"),
                        (nn.Buffer(ad.ones(1)), "buffer")):  # fmt: skip
        with pytest.raises(AttributeError, match=f"cannot assign {what} before Module.__init__"):
            Early(value)
    m = nn.Module()
    m.x = nn.Parameter(ad.ones(1))
    with pytest.raises(TypeError, match=r"cannot assign 'adjoint.tensor.Tensor' as parameter 'x'"):
        m.x = ad.ones(1)
    m.x = None
    assert m.x is None and not list(m.parameters())
    with pytest.raises(TypeError, match="as parameter 'x'"):
        m.x = nn.ReLU()
    del m.x
    m.x = 1
    m.x = nn.ReLU()  # a module takes the name from a plain attribute
    assert isinstance(m.x, nn.ReLU) and "x" not in vars(m)
    with pytest.raises(TypeError, match="as child module 'x'"):
        m.x = 3
    del m.x
    with pytest.raises(AttributeError, match="'Module' object has no attribute 'x'"):
        _ = m.x
    m.b = nn.Buffer(ad.ones(1), persistent=False)
    assert not m.state_dict() and len(list(m.buffers())) == 1
    m.b = ad.zeros(2)
    assert m.b.shape == (2,)
    with pytest.raises(TypeError, match="as buffer 'b'"):
        m.b = 3
    for name, match in (("", "empty string"), ("a.b", r"contain \"\.\""), ("train", "already")):
        with pytest.raises(KeyError, match=match):
            m.register_buffer(name, ad.ones(1))
        with pytest.raises(KeyError, match=match):
            m.register_parameter(name, nn.Parameter(ad.ones(1)))
        with pytest.raises(KeyError, match=match):
            m.add_module(name, nn.ReLU())
    with pytest.raises(ValueError, match="Cannot assign non-leaf Tensor"):
        leaf = nn.Parameter(ad.ones(1))
        computed = nn.Parameter(ad.ones(1))
        computed._node = (leaf * 2)._node
        m.register_parameter("computed", computed)
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        nn.Module(size=1)
    with pytest.raises(NotImplementedError, match='missing the required "forward"'):
        nn.Module()(1)


def test_parameter():
    data = ad.ones(2)
    p = nn.Parameter(data)
    assert p.requires_grad and p.is_leaf and isinstance(p, ad.Tensor)
    assert repr(p) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
    data.zero_()
    assert p.tolist() == [0.0, 0.0]
    assert type(p * 2) is ad.Tensor and not isinstance(p.detach(), nn.Parameter)
    frozen = nn.Parameter(ad.ones(1), requires_grad=False)
    assert not frozen.requires_grad
    assert nn.Parameter().shape == (0,)
    (p * p).sum().backward()
    for twin in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert isinstance(twin, nn.Parameter) and twin.requires_grad and twin.grad is None
    with pytest.raises(TypeError, match=r"expected a tensor .* got list"):
        nn.Parameter([1.0])
    with pytest.raises(RuntimeError, match="floating point"):
        nn.Parameter(ad.tensor([1]))


def test_deepcopy_and_pickle():
    a = Net()
    a.tied = a.first.weight
    for twin in (copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
        assert twin.tied is twin.first.weight and twin.tied is not a.tied
        assert [n for n, _ in twin.named_parameters()] == [n for n, _ in a.named_parameters()]
        with ad.no_grad():
            twin.first.bias.add_(1)
        assert not twin.first.bias.equal(a.first.bias)
        assert list(twin.state_dict()) == list(a.state_dict())


def test_modes_and_conversion():
    a = Net()
    assert a.training and not a.eval().rest[0].training
    with pytest.raises(ValueError, match="expected to be boolean"):
        a.train(1)
    weight = a.first.weight
    a(ad.ones(1, 2)).sum().backward()
    assert a.double() is a
    assert a.first.weight is weight and weight.dtype is ad.float64
    assert weight.grad.dtype is ad.float64 and weight.is_leaf and weight.requires_grad
    a(ad.ones(1, 2, dtype=ad.float64)).sum().backward()
    assert a.to(ad.float32).seen.dtype is ad.float32
    assert a.to(ad.ones(1, dtype=ad.float64)).seen.dtype is ad.float64
    assert nn.BatchNorm1d(2).half().num_batches_tracked.dtype is ad.int64
    with pytest.raises(TypeError, match="floating point or complex"):
        a.to(ad.int64)
    a.zero_grad(set_to_none=False)
    assert weight.grad.abs().sum().item() == 0
    a.zero_grad()
    assert weight.grad is None
    assert a.freeze().is_frozen and not a.unfreeze().is_frozen
    seen = []
    assert a.apply(lambda m: seen.append(type(m).__name__)) is a
    assert seen == ["Linear", "ReLU", "Linear", "Sequential", "Net"]


def test_freezing_lets_gradients_pass():
    a = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 1))
    a[1].freeze()
    a(ad.ones(1, 2)).sum().backward()
    assert a[1].weight.grad is None and a[0].weight.grad is not None


def test_lookup_by_path():
    a = Net()
    assert a.get_submodule("rest.1") is a.rest[1] and a.get_submodule("") is a
    assert a.get_parameter("rest.1.weight") is a.rest[1].weight
    assert a.get_buffer("seen") is a.seen
    for call in (
        lambda: a.get_submodule("rest.7"), lambda: a.get_submodule("seen"),
        lambda: a.get_parameter("seen"), lambda: a.get_buffer("first.weight"),
    ):  # fmt: skip
        with pytest.raises(AttributeError, match="`"):
            call()
    a.set_submodule("rest.0", nn.Tanh())
    assert isinstance(a.rest[0], nn.Tanh)


# ---- state dicts ---------------------------------------------------------------------------------


def test_state_dict_round_trip():
    a, b = Net(), Net()
    state = a.state_dict()
    assert not state["first.weight"].requires_grad and list(state) == [
        "seen", "first.weight", "first.bias", "rest.1.weight",
    ]  # fmt: skip
    assert a.state_dict(keep_vars=True)["first.weight"] is a.first.weight
    weight = b.first.weight
    assert repr(b.load_state_dict(state)) == "<All keys matched successfully>"
    assert b.first.weight is weight and weight.equal(a.first.weight)
    state["first.weight"].zero_()
    assert a.first.weight.abs().sum().item() == 0  # a state dict shares memory
    assert weight.abs().sum().item() > 0  # and loading copies


def test_state_dict_mismatch_lists_everything():
    a = Net()
    state = a.state_dict()
    del state["seen"]
    state["extra"] = ad.ones(1)
    state["rest.9.weight"] = ad.ones(1)
    state["first.weight"] = ad.ones(5, 5)
    with pytest.raises(RuntimeError) as caught:
        a.load_state_dict(state)
    assert str(caught.value).startswith(
        "Error(s) in loading state_dict for Net:\n"
        '\tMissing key(s) in state_dict: "seen". \n'
        '\tUnexpected key(s) in state_dict: "extra", "rest.9.weight". \n'
        "\tsize mismatch for first.weight: copying a param with shape adjoint.Size([5, 5]) from "
        "checkpoint, the shape in current model is adjoint.Size([3, 2])."
    )
    assert isinstance(caught.value, ad.CheckpointError)
    del state["first.weight"]
    found = a.load_state_dict(state, strict=False)
    assert found.missing_keys == ["seen", "first.weight"]
    assert found.unexpected_keys == ["extra", "rest.9.weight"]
    with pytest.raises(TypeError, match="dict-like"):
        a.load_state_dict([1])


def test_load_with_assign():
    a = Net()
    new = ad.full((3, 2), 7.0)
    state = {**a.state_dict(), "first.weight": new}
    a.load_state_dict(state, assign=True)
    assert isinstance(a.first.weight, nn.Parameter) and a.first.weight.requires_grad
    assert a.first.weight.data_ptr() == new.data_ptr()


def test_extra_state_and_state_hooks():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = 3

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    a, b = nn.Sequential(Counter()), nn.Sequential(Counter())
    a[0].count = 9
    b.load_state_dict(a.state_dict())
    assert b[0].count == 9
    with pytest.raises(RuntimeError, match="_extra_state"):
        b.load_state_dict({})
    m = nn.Linear(1, 1)
    order = []
    m.register_state_dict_pre_hook(lambda *args: order.append("pre"))
    m.register_state_dict_post_hook(lambda module, state, prefix, local: order.append("post"))
    m.register_load_state_dict_pre_hook(
        lambda module, state, prefix, *rest: state.update({"weight": state.pop("old")})
    )
    m.register_load_state_dict_post_hook(lambda module, keys: order.append("loaded"))
    m.load_state_dict({"old": ad.ones(1, 1), "bias": ad.ones(1)})
    assert m.weight.item() == 1 and m.state_dict()["bias"].item() == 1
    assert order == ["loaded", "pre", "post"]


def test_old_batch_norm_without_counter_loads():
    m = nn.BatchNorm1d(2)
    state = {k: v for k, v in m.state_dict().items() if k != "num_batches_tracked"}
    m.load_state_dict(dict(state))


# ---- hooks ---------------------------------------------------------------------------------------


def test_forward_hooks():
    m = nn.Identity()
    order = []
    m.register_forward_pre_hook(lambda module, args: order.append("a"))
    m.register_forward_pre_hook(lambda module, args: order.append("b"), prepend=True)
    handle = m.register_forward_hook(lambda module, args, out: out * 10)
    m.register_forward_hook(
        lambda module, args, kwargs, out: order.append(kwargs), with_kwargs=True
    )
    assert m(ad.ones(1)).item() == 10
    assert order == ["b", "a", {}]
    handle.remove()
    assert m(ad.ones(1)).item() == 1

    net = Net()
    net.register_forward_pre_hook(
        lambda module, args, kwargs: (args, {"scale": 0.0}), with_kwargs=True
    )
    assert net(ad.ones(1, 2)).item() == 0
    bad = nn.Identity()
    bad.register_forward_pre_hook(lambda module, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match="must return None or a tuple"):
        bad(1)


@pytest.mark.parametrize("library", ["adjoint", "torch"])
def test_dictionaries_of_hooks_are_the_modules(library):
    lib = ad if library == "adjoint" else torch
    m = lib.nn.Identity()
    assert not m._forward_hooks and list(m._forward_pre_hooks.items()) == []

    def double(module, args):
        return args[0] * 2

    def tenfold(module, args, out):
        return out * 10

    first = m.register_forward_pre_hook(double)
    second = m.register_forward_hook(tenfold)
    assert dict(m._forward_pre_hooks) == {first.id: double}
    assert repr(m._forward_hooks) == repr(OrderedDict({second.id: tenfold}))
    assert m(lib.ones(1)).item() == 20
    del m._forward_pre_hooks[first.id]
    first.remove()
    assert m(lib.ones(1)).item() == 10
    m._forward_hooks[-1] = lambda module, args, out: out + 1
    assert m(lib.ones(1)).item() == 11
    m._forward_hooks.clear()
    assert m(lib.ones(1)).item() == 1 and len(m._forward_hooks) == 0
    m._forward_pre_hooks = OrderedDict({7: double})
    assert m(lib.ones(1)).item() == 2
    with pytest.raises(KeyError):
        m._forward_pre_hooks.pop(8)
    m.register_full_backward_hook(lambda module, grads, outs: (grads[0] * 3,))
    x = lib.ones(1, requires_grad=True)
    m(x).backward()
    assert x.grad.item() == 6 and len(m._backward_hooks) == 1 and not m._backward_pre_hooks
    m._backward_hooks.popitem()
    m(x).backward()
    assert x.grad.item() == 8


def test_always_called_hooks_run_after_an_error():
    class Broken(nn.Module):
        def forward(self, x):
            raise ZeroDivisionError

    m = Broken()
    seen = []
    m.register_forward_hook(lambda module, args, out: seen.append("normal"))
    m.register_forward_hook(lambda module, args, out: seen.append(out), always_call=True)
    with pytest.raises(ZeroDivisionError):
        m(1)
    assert seen == [None]


@pytest.mark.parametrize("library", ["adjoint", "torch"])
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_full_backward_hooks(library):
    lib = ad if library == "adjoint" else torch

    class Two(lib.nn.Module):
        def forward(self, x, y, flag):
            return x * y, x + y

    m = Two()
    seen = []
    m.register_full_backward_pre_hook(
        lambda module, outs: seen.append(("pre", [None if g is None else g.item() for g in outs]))
    )
    m.register_full_backward_hook(
        lambda module, ins, outs: seen.append(
            ("post", [None if g is None else g.item() for g in (*ins, *outs)])
        )
    )
    x, y = (lib.tensor([v], requires_grad=True) for v in (2.0, 3.0))
    product, total = m(x, y, True)
    (product * 5).sum().backward()
    assert seen == [("pre", [5.0, None]), ("post", [15.0, 10.0, None, 5.0, None])]
    m.register_full_backward_hook(lambda module, ins, outs: (ins[0] * 100, ins[1], None))
    x.grad = None
    product, total = m(x, y, True)
    (product + total).sum().backward()
    assert x.grad.item() == 400.0 and y.grad.item() == 10.0 + 3.0
    # No input wants a gradient: the hook sees None for the inputs.
    linear = lib.nn.Linear(1, 1)
    seen.clear()
    linear.register_full_backward_hook(lambda module, ins, outs: seen.append(ins))
    linear(lib.ones(1, 1)).sum().backward()
    assert seen == [(None,)] and linear.weight.grad is not None


def test_hooks_on_all_modules():
    names = []
    hook = lambda module, args, out: names.append(type(module).__name__)  # noqa: E731
    with ad.nn.modules.module.register_module_forward_hook(hook):
        nn.Sequential(nn.ReLU())(ad.ones(1))
    nn.ReLU()(ad.ones(1))
    assert names == ["ReLU", "Sequential"]


# ---- containers ----------------------------------------------------------------------------------


def test_sequential():
    s = nn.Sequential(OrderedDict(a=nn.Linear(2, 2), b=nn.ReLU()))
    assert s.a is s[0] and isinstance(s[1:], nn.Sequential) and list(s[1:]._modules) == ["b"]
    assert s[-1] is s.b and len(s) == 2
    s[0] = nn.Identity()
    assert isinstance(s.a, nn.Identity)
    numbered = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Identity())
    del numbered[0]
    assert list(numbered._modules) == ["0", "1"] and isinstance(numbered[0], nn.Tanh)
    assert numbered.append(nn.ReLU()) is numbered and len(numbered) == 3
    numbered.insert(0, nn.GELU()).extend([nn.SiLU()])
    assert [type(m).__name__ for m in numbered] == ["GELU", "Tanh", "Identity", "ReLU", "SiLU"]
    assert isinstance(numbered.pop(1), nn.Tanh)
    assert len(numbered + numbered) == 8 and len(numbered * 2) == 8 and len(2 * numbered) == 8
    with pytest.raises(IndexError, match="out of range"):
        numbered[9]
    with pytest.raises(TypeError, match="not a Module subclass"):
        nn.Sequential(3)


def test_module_list_and_dict():
    layers = nn.ModuleList([nn.Linear(1, 1)])
    layers += [nn.ReLU()]
    assert len(layers) == 2 and isinstance(layers[0:1], nn.ModuleList)
    same = torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.ReLU(), torch.nn.Linear(1, 2)])
    assert repr(nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Linear(1, 2)])) == repr(same)
    with pytest.raises(NotImplementedError):
        layers(1)
    named = nn.ModuleDict([["a", nn.ReLU()]])
    named["b"] = nn.Linear(1, 1)
    assert list(named) == ["a", "b"] and "a" in named and len(named) == 2
    named.update({"c": nn.Tanh()})
    assert isinstance(named.pop("c"), nn.Tanh)
    assert [n for n, _ in named.named_parameters()] == ["b.weight", "b.bias"]
    named.clear()
    assert not len(named)
    with pytest.raises(TypeError, match="iterable of key/value pairs"):
        named.update(3)
    with pytest.raises(ValueError, match="2 is required"):
        named.update([("a", nn.ReLU(), 1)])


def test_parameter_list_and_dict():
    values = nn.ParameterList([ad.ones(1), ad.zeros(2)])
    assert isinstance(values[0], nn.Parameter) and len(values) == 2
    values.append(ad.ones(3)).extend([nn.Parameter(ad.ones(4))])
    assert [n for n, _ in values.named_parameters()] == ["0", "1", "2", "3"]
    values[0] = ad.full((1,), 5.0)
    assert values[0].item() == 5 and len(values[1:]) == 3 and values.pop().shape == (4,)
    assert len(list(values)) == 3
    with pytest.raises(TypeError, match="iterable"):
        values.extend(3)
    with pytest.raises(RuntimeError, match="should not be called"):
        values()
    table = nn.ParameterDict({"w": ad.ones(1), "keys": ad.zeros(1)})
    assert isinstance(table["keys"], nn.Parameter) and callable(table.keys)
    assert sorted(table.state_dict()) and len(list(table.parameters())) == 2
    assert list((table | {"z": ad.ones(1)}).keys()) == ["keys", "w", "z"]
    assert table.get("none") is None and table.setdefault("n", ad.ones(1)).shape == (1,)
    assert table.popitem()[0] == "n" and table.pop("w").shape == (1,)
    with pytest.raises(KeyError):
        table["w"]
    with pytest.raises(TypeError, match="not a string"):
        table[3] = ad.ones(1)


def test_parameter_dict_sorts_plain_dicts_as_optimizers_files_expect():
    a, b = ad.ones(1), ad.zeros(2)
    assert list(nn.ParameterDict({"b": b, "a": a})) == ["a", "b"]
    assert list(nn.ParameterDict(OrderedDict(b=b, a=a))) == ["b", "a"]
    assert list(nn.ParameterDict([("b", b), ("a", a)])) == ["b", "a"]
    assert list(nn.ParameterDict(nn.ParameterDict([("b", b), ("a", a)]))) == ["b", "a"]
    assert list(nn.ModuleDict({"b": nn.ReLU(), "a": nn.ReLU()})) == ["b", "a"]


@pytest.mark.parametrize(("base", "value"), [(nn.ModuleDict, nn.ReLU()), (nn.ParameterDict, 1)])
def test_dicts_whose_keys_a_subclass_spells_otherwise(base, value):
    class Dotted(base):
        def __getitem__(self, key):
            return super().__getitem__(key.replace(".", "#"))

        def __setitem__(self, key, value):
            super().__setitem__(key.replace(".", "#"), value)

        def __delitem__(self, key):
            super().__delitem__(key.replace(".", "#"))

        def __contains__(self, key):
            return super().__contains__(key.replace(".", "#"))

        def keys(self):
            return [key.replace("#", ".") for key in super().keys()]  # noqa: SIM118

    table = Dotted({"a.b": value})
    assert "a.b" in table and "a.c" not in table and table["a.b"] is value
    assert list(table.keys()) == ["a.b"] and list(table) == ["a#b"] and len(table) == 1
    assert table.pop("a.b") is value and not len(table)
    table["a.c"] = value
    table.clear()
    assert "a.c" not in table and not list(table)


# ---- initial values, clipping --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fill", "expected"),
    [
        (lambda w: nn.init.xavier_uniform_(w, 2.0), 2 * np.sqrt(2 / (200 + 300))),
        (lambda w: nn.init.xavier_normal_(w), np.sqrt(2 / (200 + 300))),
        (lambda w: nn.init.kaiming_uniform_(w, nonlinearity="relu"), np.sqrt(2 / 300)),
        (lambda w: nn.init.kaiming_normal_(w, 0.5, "fan_out"), np.sqrt(2 / 1.25 / 200)),
        (lambda w: nn.init.trunc_normal_(w, std=0.1), 0.1),
        (lambda w: nn.init.uniform_(w, -3, 3), np.sqrt(3)),
        (lambda w: nn.init.normal_(w, 1.0, 0.3), 0.3),
    ],
)
def test_initial_spread(fill, expected):
    ad.manual_seed(0)
    w = nn.Parameter(ad.empty(200, 300))
    assert fill(w) is w and w.is_leaf and w.requires_grad
    assert abs(w.detach().numpy().std() / expected - 1) < 0.02


def test_default_initial_values_stay_in_pytorchs_bounds():
    ad.manual_seed(0)
    for layer, fan_in in ((nn.Linear(50, 400), 50), (nn.Conv2d(4, 99, 3), 36)):
        bound = 1 / np.sqrt(fan_in)
        for p in layer.parameters():
            values = np.abs(p.detach().numpy())
            assert values.max() <= bound
            assert values.max() > 0.9 * bound


def test_other_initialisers():
    w = ad.empty(3, 5)
    q = nn.init.orthogonal_(w, gain=2.0)
    np.testing.assert_allclose((q @ q.T).numpy(), 4 * np.eye(3), atol=1e-5)
    assert nn.init.eye_(ad.empty(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    d = torch.nn.init.dirac_(torch.empty(4, 2, 3, 3), groups=2)
    np.testing.assert_array_equal(nn.init.dirac_(ad.empty(4, 2, 3, 3), groups=2).numpy(), d.numpy())
    assert (nn.init.sparse_(ad.empty(10, 4), 0.3) == 0).sum(0).tolist() == [3, 3, 3, 3]
    for name in ("relu", "tanh", "sigmoid", "selu", "leaky_relu", "linear", "conv2d"):
        assert nn.init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    with pytest.raises(ValueError, match="fewer than 2 dimensions"):
        nn.init.xavier_normal_(ad.empty(3))
    with pytest.raises(ValueError, match="Unsupported nonlinearity"):
        nn.init.calculate_gain("other")


@pytest.mark.parametrize("norm", [2.0, 1.0, float("inf")])
def test_clipping(norm):
    a, t = both(3, 2)
    pa, pt = [a], [t]
    (a * a * 3).sum().backward()
    (t * t * 3).sum().backward()
    na = nn.utils.clip_grad_norm_(pa, 1.5, norm)
    nt = torch.nn.utils.clip_grad_norm_(pt, 1.5, norm)
    assert_same(na, nt)
    assert_same(a.grad, t.grad)
    nn.utils.clip_grad_value_(pa, 0.1)
    torch.nn.utils.clip_grad_value_(pt, 0.1)
    assert_same(a.grad, t.grad)
    a.grad = a.grad * float("nan")
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_(pa, 1.0, error_if_nonfinite=True)


def test_parameters_and_vectors():
    m = nn.Linear(3, 2)
    vector = nn.utils.parameters_to_vector(m.parameters())
    assert vector.shape == (8,) and vector.requires_grad
    nn.utils.vector_to_parameters(ad.arange(8.0), m.parameters())
    assert m.bias.tolist() == [6.0, 7.0] and m.weight.is_leaf
    with pytest.raises(ValueError, match="at least 6"):
        nn.utils.vector_to_parameters(ad.ones(3), m.parameters())


@pytest.mark.parametrize(
    "make",
    [lambda t: t.nn.Linear(2, 3), lambda t: t.nn.Conv1d(1, 2, 1), lambda t: t.nn.LayerNorm(3)],
)
def test_a_layer_shows_itself_with_a_plain_tensor_as_bias(make):
    for t in (ad, torch):
        layer = make(t)
        shown = repr(layer)
        bias = layer.bias.detach().clone()
        del layer.bias
        layer.bias = bias
        assert repr(layer) == shown


class Restored(ad.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.cache = ad.nn.Linear(1, 1), 3

    def __getstate__(self):
        return {k: v for k, v in self.__dict__.items() if k != "cache"}

    def __setstate__(self, state):
        super().__setstate__(state)
        self.cache = 5


def test_a_module_restores_itself():
    module = copy.deepcopy(Restored())
    assert module.cache == 5 and module.layer(ad.ones(1)).shape == (1,)
    assert pickle.loads(pickle.dumps(Restored())).cache == 5


def test_attention_under_a_mask_and_causal():
    q = np.random.default_rng(0).standard_normal((1, 2, 5, 4)).astype("f4")
    allowed = np.random.default_rng(1).random((5, 5)) > 0.4
    allowed[:, 0] = True
    for mask in (allowed, np.where(allowed, 0.5, -2.0).astype("f4")):
        found = []
        for t in (ad, torch):
            x = t.from_numpy(q)
            attend = t.nn.functional.scaled_dot_product_attention
            found.append(attend(x, x, x, attn_mask=t.from_numpy(mask), is_causal=True).numpy())
        assert np.allclose(*found, atol=1e-6)


class Shifted(nn.Module):
    """A layer whose hook is its own method, and whose `to` calls `cpu`."""

    def __init__(self):
        super().__init__()
        self.seen = []
        self._register_load_state_dict_pre_hook(self.look)

    def look(self, state, *rest):
        self.seen.append(sorted(state))

    def to(self, device):
        return self.cpu()


def test_a_hook_without_the_module_is_pickled_and_follows_a_copy():
    m = Shifted()
    for new in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        new.load_state_dict({})
        assert new.seen == [[]]
    assert m.seen == []


def test_a_class_whose_to_calls_cpu():
    m = Shifted()
    assert m.to("cpu") is m


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_refuses_another_number_of_channels(count, training):
    norm = nn.BatchNorm2d(count).train(training)
    with pytest.raises(
        ad.ShapeError, match=f"running_mean should contain 4 elements.* not {count}"
    ):
        norm(ad.ones(2, 4, 2, 2))
    with pytest.raises(ad.ShapeError, match="bias should contain 4 elements"):
        ad.nn.functional.batch_norm(ad.ones(2, 4), None, None, bias=ad.ones(count), training=True)
