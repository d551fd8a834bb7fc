"""PyTorch's models as the pnnx tool writes them: read, and run with the traced batch and others."""

from __future__ import annotations

import copy
import io
import random
import warnings
import zipfile

import numpy as np
import pytest

import adjoint as ad
import adjoint.pnnx
from adjoint.pnnx.batch import LOST, BatchPosition, _moved
from tests.interop.pnnx.pnnx_files import bin_file, convert, param_text, value
from tests.sweep import one_in

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

F = nn.functional


def conv(a, b, kernel=3, stride=1, groups=1, act=nn.SiLU):
    """Convolution, batch normalization and an activation."""
    layers = [nn.Conv2d(a, b, kernel, stride, kernel // 2, groups=groups, bias=False)]
    return nn.Sequential(*layers, nn.BatchNorm2d(b), act())


class Residual(nn.Module):
    def __init__(self, a, b, stride):
        super().__init__()
        self.body = nn.Sequential(conv(a, b, 3, stride, act=nn.ReLU), nn.Conv2d(b, b, 3, padding=1))
        self.norm = nn.BatchNorm2d(b)
        self.skip = nn.Conv2d(a, b, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        return torch.relu(self.norm(self.body(x)) + self.skip(x))


def resnet():
    stem = [nn.Conv2d(3, 8, 7, 2, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    blocks = [Residual(8, 8, 1), Residual(8, 16, 2)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))


class Squeeze(nn.Module):
    """Channels weighed by what they hold."""

    def __init__(self, c):
        super().__init__()
        self.down, self.up = nn.Conv2d(c, 2, 1), nn.Conv2d(2, c, 1)

    def forward(self, x):
        return x * F.hardsigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class Inverted(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.body = nn.Sequential(
            conv(c, 2 * c, 1, act=nn.ReLU6), conv(2 * c, 2 * c, 3, groups=2 * c, act=nn.Hardswish),
            Squeeze(2 * c), nn.Conv2d(2 * c, c, 1), nn.BatchNorm2d(c),
        )  # fmt: skip

    def forward(self, x):
        return x + self.body(x)


class MobileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(conv(3, 8, 3, 2, act=nn.Hardswish), Inverted(8), Inverted(8))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(8, 5))

    def forward(self, x):
        return self.classifier(self.features(x).mean([2, 3]))


class Detector(nn.Module):
    """As YOLOv5: focus, a bottleneck, pooling at several scales, boxes decoded on a grid."""

    def __init__(self):
        super().__init__()
        self.focus, self.a, self.b = conv(12, 8), conv(8, 8, 1), conv(8, 8, 1)
        self.m, self.c, self.down = conv(8, 8), conv(16, 16, 1), conv(16, 16, 3, 2)
        self.pool, self.after = nn.MaxPool2d(5, 1, 2), conv(64, 16, 1)
        self.up = nn.Upsample(scale_factor=2.0)
        self.heads = nn.ModuleList([nn.Conv2d(32, 21, 1), nn.Conv2d(16, 21, 1)])
        self.register_buffer("anchors", torch.rand(2, 1, 3, 1, 1, 2))

    def boxes(self, i, x, stride):
        y = self.heads[i](x)
        b, _, h, w = y.shape
        y = y.view(b, 3, 7, h, w).permute(0, 1, 3, 4, 2).contiguous()
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack((columns, rows), 2).expand(1, 3, h, w, 2) - 0.5
        place, size, score = y.sigmoid().split((2, 2, 3), 4)
        parts = ((place * 2 + grid) * stride, (size * 2) ** 2 * self.anchors[i], score)
        return torch.cat(parts, 4).view(b, 3 * h * w, 7)

    def forward(self, x):
        corners = [x[..., i::2, j::2] for i in (0, 1) for j in (0, 1)]
        x = self.focus(torch.cat(corners, 1))
        x = self.c(torch.cat((x + self.m(self.a(x)), self.b(x)), 1))
        y = self.down(x)
        p = self.pool(y)
        q = self.pool(p)
        y = self.after(torch.cat((y, p, q, self.pool(q)), 1))
        wide = torch.cat((self.up(y), x), 1)
        return torch.cat((self.boxes(0, wide, 2), self.boxes(1, y, 4)), 1), wide


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.deep, self.up = nn.Conv2d(8, 16, 3, padding=1), nn.ConvTranspose2d(16, 8, 2, 2)
        self.out = nn.Conv2d(32, 2, 1)

    def forward(self, x):
        a = torch.relu(self.norm(self.down(x)))
        b = F.leaky_relu(self.deep(F.max_pool2d(a, 2)), 0.1)
        up = F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=True)
        more = [a.shape[3] - 2 * b.shape[3], a.shape[2] - 2 * b.shape[2]]
        pads = (0, more[0], 0, more[1])
        return self.out(torch.cat([a, F.pad(self.up(b), pads), F.pad(up, pads)], 1)).softmax(1)


class Recurrent(nn.Module):
    """Two layers of one kind, and another over them whose last step is taken."""

    def __init__(self, kind):
        super().__init__()
        self.layers = kind(4, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.second, self.last = kind(10, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x):
        y, state = self.second(self.layers(x)[0])
        h = state[0] if isinstance(state, tuple) else state
        return self.last(y[:, -1]), h[-1]


class Patches(nn.Module):
    """A vision transformer: its class token is expanded to the batch."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.token, self.places = (
            nn.Parameter(torch.rand(1, 1, 8)),
            nn.Parameter(torch.rand(1, 17, 8)),
        )
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(x.shape[0], -1, -1), y], 1) + self.places
        return self.head(self.layer(y)[:, 0])


class Windows(nn.Module):
    """Attention in windows, as Swin: the batch is merged with them and split from them again."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.register_buffer("mask", torch.rand(4, 4, 4))

    def forward(self, x):
        b, h, w, c = x.shape
        y = torch.roll(x, (-1, -1), (1, 2)).view(b, h // 2, 2, w // 2, 2, c)
        y = y.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 4, c)
        q, k, v = self.qkv(y).reshape(y.shape[0], 4, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)).view(b, 4, 2, 4, 4) + self.mask[None, :, None]
        y = scores.view(-1, 2, 4, 4).softmax(-1) @ v
        y = y.transpose(1, 2).reshape(-1, 4, c).view(b, h // 2, w // 2, 2, 2, c)
        return y.permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)


class Heads(nn.Module):
    """Attention written out, sequence first: the batch is merged with the heads behind it."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        steps, b, c = x.shape
        parts = [y.reshape(steps, b * 2, c // 2).transpose(0, 1) for y in self.qkv(x).chunk(3, -1)]
        scores = torch.bmm(parts[0], parts[1].transpose(1, 2)).softmax(-1)
        return torch.bmm(scores, parts[2]).transpose(0, 1).reshape(steps, b, c)


class Shuffle(nn.Module):
    def forward(self, x):
        a, b = x.chunk(2, 1)
        y = torch.cat([b, a], 1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, -1, h, w)


class First(nn.Module):
    """The first output of a model of transformers."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask=None):
        return self.model(ids, attention_mask=mask)[0]


def bert():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=40,
    )  # fmt: skip
    return First(transformers.BertModel(config))


def gpt2():
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=32, n_embd=16, n_layer=2, n_head=2, use_cache=False,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return First(transformers.GPT2LMHeadModel(config))


def image(batch, size=16):
    return torch.rand(batch, 3, size, size)


def tokens(batch):
    return torch.randint(0, 50, (batch, 7))


MODELS = {  # how to make it, its input for a batch, the dimension of that
    "ResNet": (resnet, lambda b: image(b, 32), 0),
    "MobileNet": (MobileNet, image, 0),
    "Detector": (Detector, image, 0),
    "UNet": (UNet, lambda b: image(b, 15), 0),
    "BERT": (bert, tokens, 0),
    "GPT-2": (gpt2, tokens, 0),
    "LSTM": (lambda: Recurrent(nn.LSTM), lambda b: torch.rand(b, 6, 4), 0),
    "GRU": (lambda: Recurrent(nn.GRU), lambda b: torch.rand(b, 6, 4), 0),
    "ViT": (Patches, image, 0),
    "Swin": (Windows, lambda b: torch.rand(b, 4, 4, 8), 0),
    "attention": (Heads, lambda b: torch.rand(6, b, 8), 1),
    "ShuffleNet": (Shuffle, lambda b: torch.rand(b, 8, 4, 4), 0),
}


def made(name, batch):
    """A model with weights that are all drawn, and its input."""
    torch.manual_seed(1)
    make, inputs, _ = MODELS[name]
    model = make().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2)
        for key, buffer in model.named_buffers():
            if key.endswith(("running_mean", "running_var")):
                buffer.uniform_(0.5, 1)
    return model, inputs(batch)


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """The model of a name, the input that it was traced with, and the file: made once."""
    files = {}

    def find(name, batch, **options):
        key = (name, batch, *options.items())
        if key not in files:
            model, x = made(name, batch)
            files[key] = model, x, convert(tmp_path_factory.mktemp("pnnx"), model, (x,), **options)
        return files[key]

    return find


def flat(found):
    return list(found) if isinstance(found, (tuple, list)) else [found]


def assert_same(module, model, *inputs):
    """Equal outputs, up to 1e-5 of the largest."""
    with torch.no_grad():
        wanted = flat(model(*inputs))
    with ad.no_grad():
        found = flat(module(*(ad.tensor(x.numpy()) for x in inputs)))
    for a, b in zip(found, wanted, strict=True):
        scale = max(float(b.abs().max()), 1e-6)
        np.testing.assert_allclose(a.numpy() / scale, b.numpy() / scale, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "traced"),
    [*((name, 1) for name in MODELS), ("attention", 2), *one_in(
        4, ((name, 2) for name in MODELS if name != "attention")
    )],
)  # fmt: skip
def test_models(converted, name, traced):
    model, x, path = converted(name, traced)
    module = ad.pnnx.load(path)
    assert not module.training
    assert_same(module, model, x)
    if (name, traced) == (
        "attention",
        1,
    ):  # a batch of one behind another dimension leaves no trace
        with pytest.raises(ad.Unsupported, match=r"batch of 1.*2 or more"):
            module(ad.rand(6, 3, 8))
        return
    for batch in (3, 1, 5, 3):
        assert_same(module, model, MODELS[name][1](batch))
    assert_same(module, model, x)


@pytest.mark.parametrize("name", ["Detector", "BERT", "LSTM"])
def test_models_that_pnnx_optimizes_less(converted, name):
    model, x, path = converted(name, 2, optlevel=1)
    module = ad.pnnx.load(path)
    assert_same(module, model, x)
    assert_same(module, model, MODELS[name][1](3))


def test_masked_bert(tmp_path):
    """pnnx loses the shapes of constant indices: found out, and a way that works."""
    model, x = made("BERT", 2)
    mask = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
    module = ad.pnnx.load(convert(tmp_path, model, (x, mask)))
    with pytest.raises(ad.CheckpointError, match="optlevel=1"):
        module(*(ad.tensor(t.numpy()) for t in (x, mask)))
    module = ad.pnnx.load(convert(tmp_path, model, (x, mask), optlevel=1))
    assert_same(module, model, x, mask)
    assert_same(module, model, tokens(3), torch.cat([mask, mask[1:]]))


# ---- what a loaded module is ---------------------------------------------------------------------


def test_a_loaded_module_can_be_inspected(converted):
    model, _, path = converted("UNet", 2)
    module = ad.pnnx.load(path)
    state = {k: v.numpy() for k, v in model.state_dict().items()}
    assert {k: v.shape for k, v in module.state_dict().items()} == {
        k: v.shape for k, v in state.items()
    }
    for key, tensor in module.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), state[key])
    assert sum(p.numel() for p in module.parameters()) == sum(p.numel() for p in model.parameters())
    text = repr(module)
    assert "(down): Conv2d(3, 8, kernel_size=(3, 3)" in text and "GroupNorm(2, 8" in text
    assert text.startswith("PnnxModule(\n  0 -> 13, 13 nodes\n  (down)")
    assert type(module.get_submodule("down")) is ad.nn.Conv2d


def test_a_loaded_module_trains(converted):
    """It is for inference, and yet its layers are layers."""
    model, x, path = converted("UNet", 2)
    module = ad.pnnx.load(path)
    module(ad.tensor(x.numpy())).square().sum().backward()
    model(x).square().sum().backward()
    wanted = dict(model.named_parameters())
    for key, parameter in module.named_parameters():
        expected = wanted[key].grad.numpy()
        scale = np.abs(expected).max()
        np.testing.assert_allclose(parameter.grad.numpy() / scale, expected / scale, atol=1e-4)


def test_a_loaded_module_can_be_recorded(converted):
    """As static inference and export do."""
    pytest.importorskip("onnx")
    model, x, path = converted("Detector", 2)
    module = ad.pnnx.load(path)
    with ad.lazy(), ad.no_grad():
        recorded = module(ad.tensor(image(3).numpy()))
    assert recorded[0].shape == (3, 240, 7)
    file = io.BytesIO()
    ad.onnx.export(module, ad.tensor(x.numpy()), file, dynamic_axes={"input": {0: "n"}})
    assert_same(ad.onnx.load(file.getvalue()), model, image(4))


LINEAR = (
    "pnnx.Input i 0 1 x #x=(1,3)f32",
    "nn.Linear block.fc 1 1 x h in_features=3 out_features=4 bias=False @weight=(4,3)f32 "
    "#h=(1,4)f32",
    "Tensor.reshape r 1 1 h y shape=(1,2,2) #y=(1,2,2)f32", "pnnx.Output o 1 0 y",
)  # fmt: skip


@pytest.mark.parametrize("batch", [1, 5])
def test_a_replaced_layer_is_what_runs_and_trains(batch):
    module = load(*LINEAR, **{"block.fc.weight": np.ones((4, 3), np.float32)})
    x = ad.rand(batch, 3)
    assert module(x).shape == (batch, 2, 2)
    copied = copy.deepcopy(module)
    for new in (
        ad.nn.Linear(3, 4),
        ad.nn.Sequential(ad.nn.Linear(3, 8), ad.nn.Tanh(), ad.nn.Linear(8, 4)),
        ad.nn.utils.parametrizations.weight_norm(ad.nn.Linear(3, 4)),
    ):
        for block in (module.block, ad.nn.Module()):  # the layer, and the module that has it
            block.fc = new
            module.block = block
            found = module(x)
            np.testing.assert_array_equal(found.tolist(), new(x).reshape(-1, 2, 2).tolist())
            found.sum().backward()
            assert all(p.grad is not None for p in new.parameters())
    assert copied(x).tolist() == (x.sum(1)[:, None, None] * ad.ones(2, 2)).tolist()
    module.block = ad.nn.Module()
    with pytest.raises(ad.InvalidArgument, match=r"computes with block.fc, and there is no 'fc'"):
        module(x)


def test_a_layer_of_other_sizes():
    """What was learnt of the sizes of the former layer is forgotten."""
    module = load(*LINEAR[:2], "Tensor.flatten r 1 1 h y start_dim=0 end_dim=1", LINEAR[3],
                  **{"block.fc.weight": np.ones((4, 3), np.float32)})  # fmt: skip
    assert module(ad.ones(5, 3)).shape == (20,)
    module.block.fc = ad.nn.Linear(3, 7)
    assert module(ad.ones(1, 3)).shape == (7,) and module(ad.ones(5, 3)).shape == (35,)


def test_replaced_tensors_are_what_runs():
    module = load("pnnx.Input i 0 1 x", "pnnx.Attribute a.b 0 1 w @data=(2)f32",
                  "pnnx.Expression e 2 1 x w y expr=mul(@0,@1)", "pnnx.Output o 1 0 y",
                  **{"a.b.data": np.ones(2, np.float32)})  # fmt: skip
    module.a.b.data = ad.nn.Parameter(ad.tensor([2.0, 3.0]))
    assert module(ad.ones(2)).tolist() == [2, 3]
    module.a.b = ad.nn.Linear(2, 2)
    with pytest.raises(ad.InvalidArgument, match=r"tensor a.b.data, and a Linear was put in"):
        module(ad.ones(2))


def test_arrays_and_names_as_inputs():
    module = load("pnnx.Input pnnx_input_0 0 1 a", "pnnx.Input pnnx_input_1 0 1 b",
                  "pnnx.Expression e 2 1 a b y expr=sub(@0,@1)", "pnnx.Output o 1 0 y")  # fmt: skip
    for x in (np.float32([[4, 1]])[:, ::-1], np.float32(3), np.array([4, 1], ">f4")):
        y = module(b=x, a=ad.ones(1))
        assert y.tolist() == (np.ones(1) - x).tolist() and y.dtype is ad.float32
        with pytest.raises(ad.InvalidArgument, match=r"expected the inputs a, b, got 1 and a"):
            module(x, a=x)
    with pytest.raises(ad.InvalidType, match="list"):
        module([1.0], ad.ones(1))


def test_nothing_is_drawn_while_loading():
    """The layers' weights come from the file; the global generator stays as it is."""
    text = param_text(
        "pnnx.Input i 0 1 x",
        "nn.Linear l 1 1 x y in_features=2 out_features=2 bias=False @weight=(2,2)f32",
        "pnnx.Output o 1 0 y",
    )  # fmt: skip
    weights = bin_file({"l.weight": np.eye(2, dtype=np.float32)})
    ad.manual_seed(3)
    wanted = ad.rand(2).tolist()
    ad.manual_seed(3)
    ad.pnnx.load(io.BytesIO(text), io.BytesIO(weights))
    assert ad.rand(2).tolist() == wanted


# ---- order ---------------------------------------------------------------------------------------


def test_operators_in_any_order(converted):
    model, x, path = converted("Detector", 2)
    head, counts, *lines = path.read_text().splitlines()
    weights = path.with_suffix(".bin").read_bytes()
    rng = random.Random(0)
    for _ in range(5):
        rng.shuffle(lines)
        text = "\n".join([head, counts, *lines]).encode()
        module = ad.pnnx.load(io.BytesIO(text), io.BytesIO(weights))
        computed = set(module.input_names) | set(module._places)
        for _, _, inputs, outputs in module.operators:
            assert computed.issuperset(inputs)
            computed.update(outputs)
        assert_same(module, model, x)


def test_inputs_keep_their_numbers():
    lines = [
        "pnnx.Output pnnx_output_1 1 0 b", "pnnx.Expression e 2 1 b a y expr=sub(@0,@1)",
        "pnnx.Output pnnx_output_0 1 0 y", "pnnx.Input pnnx_input_1 0 1 b",
        "pnnx.Input pnnx_input_0 0 1 a",
    ]  # fmt: skip
    module = ad.pnnx.load(io.BytesIO(param_text(*lines)))
    assert (module.input_names, module.output_names) == (["a", "b"], ["y", "b"])
    found = module(ad.tensor([1.0]), ad.tensor([5.0]))
    assert [t.tolist() for t in found] == [[4.0], [5.0]]


def test_what_no_output_needs_is_dropped():
    module = load(
        "pnnx.Input i 0 1 x #x=(2)f32", "F.relu r 1 1 x y", "pnnx.Attribute a 0 1 w @data=(9)f32",
        "nn.ReLU dead 1 1 y z", "torch.cat c 2 1 z w v dim=0", "pnnx.Output o 1 0 y",
    )  # fmt: skip
    assert module.operators == [("F.relu", "r", ("x",), ("y",))] and not list(module.children())


def load(*lines, **weights):
    return ad.pnnx.load(io.BytesIO(param_text(*lines)), io.BytesIO(bin_file(weights)))


# ---- the batch -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before, place, after, wanted",
    [
        ((2, 3, 4), (0, 1, 1), (2, 12), (0, 1, 1)),
        ((2, 7, 8), (0, 1, 1), (14, 8), (0, 1, 7)),  # merged with what is behind it
        ((14, 8), (0, 1, 7), (2, 7, 2, 4), (0, 1, 1)),  # and split again
        ((7, 2, 8), (1, 1, 1), (14, 8), (0, 7, 1)),  # with what is before it
        ((14, 8), (0, 7, 1), (7, 2, 8), (1, 1, 1)),
        ((7, 2, 8), (1, 1, 1), (7, 4, 4), (1, 1, 2)),
        ((2, 2, 2), (1, 1, 1), (2, 2, 2), (1, 1, 1)),  # sizes alone would not tell
        ((4, 2, 3), (1, 1, 1), (24,), (0, 4, 3)),
        ((2, 3), (0, 1, 1), (3, 2), None),  # not row by row
        ((1, 12), (0, 1, 1), (3, 4), (0, 1, 3)),
        ((1, 12), (0, 1, 1), (1, 3, 4), (0, 1, 1)),
        ((1, 1, 6), (1, 1, 1), (1, 1, 2, 3), (1, 1, 1)),
        ((5, 1, 6), (1, 1, 1), (5, 2, 3), None),  # a batch of one could be on either side
        ((5, 1, 6), (1, 1, 1), (5, 1, 2, 3), (1, 1, 1)),
    ],
)
def test_where_a_reshape_takes_the_batch(before, place, after, wanted):
    found = _moved(before, BatchPosition(*place), after, before[place[0]] // (place[1] * place[2]))
    assert found == (None if wanted is None else BatchPosition(*wanted))
    if wanted is None:
        return
    now = 5  # moved for real: which row of the batch every element is of
    was = before[place[0]] // (place[1] * place[2])
    for batch in (was, now):
        shape = [*before]
        shape[place[0]] = place[1] * batch * place[2]
        index = np.arange(batch).reshape(
            *[1] * place[0], 1, batch, 1, *[1] * (len(before) - place[0] - 1)
        )
        rows = np.broadcast_to(index, (*before[: place[0]], place[1], batch, place[2],
                                       *before[place[0] + 1 :])).reshape(shape)  # fmt: skip
        size = [*after]
        size[wanted[0]] = wanted[1] * batch * wanted[2]
        apart = rows.reshape(
            *size[: wanted[0]], wanted[1], batch, wanted[2], *size[wanted[0] + 1 :]
        )
        moved = np.moveaxis(apart, wanted[0] + 1, 0)
        assert (moved == np.arange(batch).reshape(-1, *[1] * (moved.ndim - 1))).all()


CONSTANT = np.broadcast_to(np.arange(12, dtype=np.float32).reshape(1, 3, 4), (2, 3, 4))
INPUT = "pnnx.Input i 0 1 x #x=(2,3,4)f32"


def test_constants_of_the_traced_batch():
    lines = (INPUT, "pnnx.Attribute c 0 1 w @data=(2,3,4)f32",
             "pnnx.Expression e 2 1 x w y expr=add(@0,@1)", "torch.cat k 2 1 w x z dim=1",
             "pnnx.Output pnnx_output_0 1 0 y", "pnnx.Output pnnx_output_1 1 0 z")  # fmt: skip
    module = load(*lines, **{"c.data": CONSTANT})
    x = np.random.default_rng(0).random((5, 3, 4)).astype(np.float32)
    y, z = module(ad.tensor(x))
    np.testing.assert_allclose(y.detach().numpy(), x + CONSTANT[:1], rtol=1e-6)
    assert (z.detach().numpy()[:, :3] == CONSTANT[:1]).all() and (
        z.detach().numpy()[:, 3:] == x
    ).all()
    other = CONSTANT + np.arange(2, dtype=np.float32).reshape(2, 1, 1)
    module = load(*lines, **{"c.data": other})
    np.testing.assert_allclose(
        module(ad.tensor(x[:2]))[0].detach().numpy(), x[:2] + other, rtol=1e-6
    )
    with pytest.raises(ad.Unsupported, match="'w' has other values for each"):
        module(ad.tensor(x))


@pytest.mark.parametrize(
    "operators, wanted",
    [
        (["Tensor.expand e 1 1 x z sizes=(5,2,3,4) $input=x",
          "Tensor.permute p 1 1 z y dims=(1,0,2,3)"],
         lambda x: np.broadcast_to(x[:, None], (len(x), 5, 3, 4))),
        (["torch.flatten f 1 1 x z start_dim=0 end_dim=1 $input=x",
          "Tensor.reshape r 1 1 z y shape=(2,12) $input=z"], lambda x: x.reshape(-1, 12)),
        (["torch.flatten f 1 1 x z start_dim=0 end_dim=1 $input=x",
          "Tensor.unflatten r 1 1 z y dim=0 sizes=(2,3) $input=z"], lambda x: x),
        (["torch.cat c 2 1 x x z dim=0", "Tensor.reshape r 1 1 z y shape=(2,2,3,4) $input=z"],
         lambda x: np.stack((x, x))),
        (["torch.cat c 2 1 x x z dim=0",
          "torch.split s 1 2 z a y split_size_or_sections=(2,2) dim=0"], lambda x: x),
        (["torch.repeat_interleave c 1 1 x z repeats=3 dim=0 $input=x",
          "Tensor.reshape r 1 1 z y shape=(2,3,12) $input=z"],
         lambda x: np.repeat(x[:, None], 3, 1).reshape(len(x), 3, 12)),
        (["Tensor.repeat c 1 1 x z sizes=(3,1,1) $input=x",
          "Tensor.reshape r 1 1 z y shape=(3,2,12) $input=z"],
         lambda x: np.repeat(x[None], 3, 0).reshape(3, len(x), 12)),
        (["Tensor.slice s 1 1 x y dim=0 start=0 end=2 step=1 $input=x"], lambda x: x),
        (["torch.narrow s 1 1 x y dim=0 start=0 length=2 $input=x"], lambda x: x),
        (["torch.mean s 1 1 x y dim=(0) keepdim=False $input=x"], lambda x: x.mean(0)),
        (["Tensor.slice s 1 1 x z dim=1 start=0 end=1 step=1 $input=x",
          "torch.squeeze q 1 1 z y $input=z"], lambda x: x[:, 0]),
        (["torch.squeeze q 1 1 x y dim=0 $input=x"], lambda x: x),
        (["torch.flatten f 1 1 x z start_dim=1 end_dim=2 $input=x", "torch.t t 1 1 z w $input=z",
          "torch.mm m 2 1 z w v $input=z $mat2=w", "F.softmax s 1 1 v y dim=1 $input=v"],
         lambda x: softmax(x.reshape(len(x), 12) @ x.reshape(len(x), 12).T)),
        (["torch.zeros z 0 1 z size=(2,3,4)", "torch.cat c 2 1 z x y dim=2"],
         lambda x: np.concatenate((x * 0, x), 2)),
        (["torch.ones z 0 1 z size=(2,1,4)", "Tensor.expand_as e 2 1 z x y $input=z $other=x"],
         np.ones_like),
        (["torch.ones z 0 1 z size=(2,2,4)", "torch.transpose t 1 1 x w dim0=1 dim1=2 $input=x",
          "torch.bmm m 2 1 z w v $input=z $mat2=w", "torch.sum s 1 1 v y dim=(1) keepdim=False"],
         lambda x: 2 * x.sum(2)),
        (["torch.zeros z 0 1 z size=(2,3,4)", "pnnx.Expression e 2 1 z x y expr=add(@0,@1)"],
         lambda x: x),
    ],
)  # fmt: skip
def test_operators_that_meet_the_batch(operators, wanted):
    module = load(INPUT, *operators, "pnnx.Output o 1 0 y")
    for batch in (2, 5, 1):
        x = np.random.default_rng(0).random((batch, 3, 4)).astype(np.float32)
        found = module(ad.tensor(x)).numpy()
        assert found.shape == wanted(x).shape
        np.testing.assert_allclose(found, wanted(x), rtol=1e-5)


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize(
    "operators, message",
    [
        (["Tensor.select s 1 1 x y dim=0 index=0 $input=x"], "some rows"),
        (["torch.unbind s 1 2 x z y dim=0"], "some rows"),
        (["torch.cat c 2 1 x x z dim=0", "Tensor.slice s 1 1 z y dim=0 start=2 end=4 step=1"],
         "some rows"),
        (["torch.flatten f 1 1 x z start_dim=1 end_dim=2", "torch.t t 1 1 z w",
          "torch.mm m 2 1 z w v $input=z $mat2=w", "Tensor.reshape r 1 1 v y shape=(4)"],
         "does not tell"),
        (["torch.as_strided s 1 1 x y size=(2,2) stride=(1,1) $input=x"], "memory"),
        (["torch.split s 1 2 x a y split_size_or_sections=(1,1) dim=0"], "splits the batch"),
        (["Tensor.slice s 1 1 x y dim=0 start=0 end=-1 step=1"], "some rows"),
        (["torch.transpose t 1 1 x z dim0=0 dim1=2", "Tensor.reshape r 1 1 z y shape=(8,3)"],
         "does not tell where the batch goes"),
    ],
)  # fmt: skip
def test_what_the_file_does_not_tell_is_an_error(operators, message):
    module = load(INPUT, *operators, "pnnx.Output o 1 0 y")
    module(ad.ones(2, 3, 4))
    with pytest.raises(ad.Unsupported, match=message):
        module(ad.ones(5, 3, 4))


def random_operator(rng, shape, number):
    """A line that moves or changes elements each on its own, from v{number} to the next."""
    a, b, name = f"v{number}", f"v{number + 1}", f"op{number} 1 1 v{number} v{number + 1}"
    dim = rng.randrange(len(shape))
    kind = rng.randrange(9)
    if kind == 0 and len(shape) > 1:  # two neighbours merged
        dim = rng.randrange(len(shape) - 1)
        size = (*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :])
        if rng.random() < 0.5:
            return f"torch.flatten {name} start_dim={dim} end_dim={dim + 1} $input={a}"
        return f"Tensor.reshape {name} shape={value(size)} $input={a}"
    if kind == 1:  # one split
        factors = [f for f in range(1, shape[dim] + 1) if shape[dim] % f == 0]
        f = rng.choice(factors)
        if rng.random() < 0.5:
            return f"Tensor.unflatten {name} dim={dim} sizes=({f},{shape[dim] // f}) $input={a}"
        size = (*shape[:dim], f, shape[dim] // f, *shape[dim + 1 :])
        return f"Tensor.reshape {name} shape={value(size)} $input={a}"
    if kind == 2:
        order = rng.sample(range(len(shape)), len(shape))
        return f"Tensor.permute {name} dims={value(order)} $input={a}"
    if kind == 3:
        return f"torch.cat op{number} 2 1 {a} {a} {b} dim={dim}"
    if kind == 4:
        return f"torch.unsqueeze {name} dim={dim} $input={a}"
    if kind == 5:
        counts = [rng.choice((1, 1, 2)) for _ in shape]
        return f"Tensor.repeat {name} sizes={value(counts)} $input={a}"
    if kind == 6:
        return f"torch.repeat_interleave {name} repeats=2 dim={dim} $input={a}"
    if kind == 7:
        return f"Tensor.expand {name} sizes={value((2, *shape))} $input={a}"
    return f"pnnx.Expression {name} expr=add(mul(@0,2),1)"


@pytest.mark.parametrize("traced", [1, 2, 3])
def test_rows_of_a_batch_stay_apart(traced, monkeypatch):
    """Random graphs: each row of any batch gives what a traced batch of only that row gives."""
    batches = []
    plain = adjoint.pnnx.module.batch_of
    monkeypatch.setattr(
        adjoint.pnnx.module, "batch_of", lambda *a: batches.append(plain(*a)) or batches[-1]
    )
    rng, compared = random.Random(traced), 0
    for _ in range(150):
        axis = rng.randrange(3)
        shape = [rng.choice((1, 2, 3, 4)) for _ in range(3)]
        shape[axis] = traced
        lines = [f"pnnx.Input i 0 1 v0 #v0={value(shape)}f32"]
        for number in range(rng.randrange(2, 9)):
            module = load(*lines, f"pnnx.Output o 1 0 v{number}")
            now = tuple(module(ad.zeros(*shape)).shape)
            if np.prod(now) > 5000 or len(now) > 7:
                break
            lines.append(random_operator(rng, now, number))
        module = load(*lines, f"pnnx.Output o 1 0 v{len(lines) - 1}")
        x = np.random.default_rng(rng.randrange(999)).random((*shape[:axis], 4, *shape[axis + 1 :]))
        x = x.astype(np.float32)
        try:
            found = module(ad.tensor(x)).numpy()
        except ad.Unsupported:
            continue
        place = batches[-1].places[module.output_names[0]]
        if place == LOST:
            continue
        for row in range(4):
            alone = np.repeat(x.take([row], axis), traced, axis)
            wanted = apart(module(ad.tensor(alone)).numpy(), place, traced)
            np.testing.assert_array_equal(apart(found, place, 4)[row], wanted[0], str(lines))
        compared += 1
    assert compared > (60 if traced == 1 else 120)


def apart(array, place, batch):
    """The array with the batch first."""
    size = array.shape
    parts = (place.outer, batch, place.inner)
    return np.moveaxis(
        array.reshape(*size[: place.axis], *parts, *size[place.axis + 1 :]), place.axis + 1, 0
    )


def test_a_batch_that_is_dropped():
    """Traced with one row, and squeezed: more rows have no place to go."""
    lines = ["torch.squeeze q 1 1 x y $input=x", "pnnx.Output o 1 0 y"]
    module = load("pnnx.Input i 0 1 x #x=(1,3)f32", *lines)
    assert module(ad.ones(1, 3)).shape == (3,)
    with pytest.raises(ad.Unsupported, match="drops the batch"):
        module(ad.ones(2, 3))


def test_attention_of_constants():
    """As in a decoder whose queries are parameters, expanded to the batch."""
    text = (
        "pnnx.Input i 0 1 x #x=(2,5,4)f32", "torch.ones q 0 1 q size=(2,3,4)",
        "nn.MultiheadAttention a 2 1 q x y embed_dim=4 num_heads=2 bias=True batch_first=True "
        "@in_proj_weight=(12,4)f32 @in_proj_bias=(12)f32 @out_proj.weight=(4,4)f32 "
        "@out_proj.bias=(4)f32", "pnnx.Output o 1 0 y",
    )  # fmt: skip
    rng = np.random.default_rng(0)
    sizes = {"in_proj_weight": (12, 4), "in_proj_bias": (12,), "out_proj.weight": (4, 4),
             "out_proj.bias": (4,)}  # fmt: skip
    weights = {f"a.{k}": rng.random(v).astype(np.float32) for k, v in sizes.items()}
    module = load(*text, **weights)
    x = rng.random((5, 5, 4)).astype(np.float32)
    with ad.no_grad():
        rows = [module(ad.tensor(x[[i, i]])).numpy()[:1] for i in range(5)]
        np.testing.assert_allclose(module(ad.tensor(x)).numpy(), np.concatenate(rows), rtol=1e-5)


def test_other_sizes_than_the_batch(tmp_path):
    """What does not depend on sizes runs with others; what does says for which it was traced."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3))
    module = ad.pnnx.load(convert(tmp_path, net, (image(1),)))
    assert_same(module, net, image(2, 20))
    module = load(INPUT, "Tensor.reshape r 1 1 x y shape=(2,12)", "pnnx.Output o 1 0 y")
    with pytest.raises(ad.ShapeError, match=r"\(3, 5, 4\).*traced for.*\(2, 3, 4\)"):
        module(ad.ones(3, 5, 4))


def test_errors_of_a_call():
    module = load(INPUT, "F.relu r 1 1 x y", "pnnx.Output o 1 0 y")
    with pytest.raises(ad.InvalidArgument, match="expected the inputs x, got 0"):
        module()
    module = load(INPUT, "F.softmax s 1 1 x y dim=7 $input=x", "pnnx.Output o 1 0 y")
    with pytest.raises(ad.AdjointError, match="7"):
        module(ad.ones(2, 3, 4))
    module = load(INPUT, "F.relu s 1 1 x y unknown=7 $input=x", "pnnx.Output o 1 0 y")
    with pytest.raises(ad.CheckpointError, match=r"'s' \(F.relu\).*unknown"):
        module(ad.ones(2, 3, 4))


# ---- sources -------------------------------------------------------------------------------------


def test_paths_and_files(tmp_path):
    text = param_text(
        "pnnx.Input i 0 1 x", "pnnx.Attribute a 0 1 w @data=(2)f32",
        "pnnx.Expression e 2 1 x w y expr=mul(@0,@1)", "pnnx.Output o 1 0 y",
    )  # fmt: skip
    weights = bin_file({"a.data": np.array([2, 3], np.float32)})
    path = tmp_path / "net.pnnx.param"
    path.write_bytes(text)
    with pytest.raises(ad.CheckpointError, match=r"net.pnnx.param.*no .bin file"):
        ad.pnnx.load(path)
    path.with_suffix(".bin").write_bytes(weights)
    other = tmp_path / "elsewhere"
    other.write_bytes(weights)
    with open(path, "rb") as file:
        modules = [ad.pnnx.load(str(path)), ad.pnnx.load(path, other), ad.pnnx.load(file, other)]
    assert all(module(ad.ones(2)).tolist() == [2, 3] for module in modules)
    assert list(modules[0].state_dict()) == ["a.data"]
    for name in ("net", "net.pnnx", "net.pnnx.bin"):
        assert ad.pnnx.load(tmp_path / name)(ad.ones(2)).tolist() == [2, 3]
    with pytest.raises(ad.InvalidType, match="int"):
        ad.pnnx.load(3)
    with pytest.raises(ad.CheckpointError, match="directory"):
        ad.pnnx.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        ad.pnnx.load(tmp_path / "none.param")


def test_files_of_ncnn_and_of_optlevel_0_are_recognised():
    lines = "Input in0 0 1 x", "InnerProduct l 1 1 x y 0=2 1=0 2=4"
    with pytest.raises(ad.Unsupported, match=r"InnerProduct.*a file of ncnn: read the one called"):
        ad.pnnx.load(io.BytesIO(param_text(*lines[:1], lines[1].replace("y", "out0"),
                                           "pnnx.Output o 1 0 out0")))  # fmt: skip
    with pytest.raises(ad.CheckpointError, match=r"a file of ncnn"):
        ad.pnnx.load(io.BytesIO(param_text(*lines)))
    lines = ("pnnx.Input i 0 1 x", "prim::Constant c 0 1 v value=2", "aten::mul m 2 1 x v y",
             "pnnx.Output o 1 0 y")  # fmt: skip
    with pytest.raises(ad.Unsupported, match=r"aten::mul.*optlevel=0: convert with optlevel=1"):
        load(*lines)
    weights = bin_file({"a.data": b"12345678"})
    with zipfile.ZipFile(twice := io.BytesIO(weights), "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr("a.data", b"12345678")
    text = param_text("pnnx.Attribute a 0 1 w @data=(2)f32", "pnnx.Output o 1 0 w")
    with pytest.raises(ad.CheckpointError, match=r"twice; was it written with optlevel=0\?"):
        ad.pnnx.load(io.BytesIO(text), io.BytesIO(twice.getvalue()))
