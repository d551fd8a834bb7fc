"""PyTorch's .pt files read and written without it, NumPy's .npz, sharded safetensors."""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import re
import subprocess
import sys
import warnings
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adjoint as ad
from adjoint import serialization
from adjoint.io.pickle_writer import PickleWriter
from adjoint.io.pytorch_names import build, find
from adjoint.io.restricted_pickle import Unpickler

torch = pytest.importorskip("torch")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

DTYPES = [
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
    "complex64", "complex128",
]  # fmt: skip
WAYS = {
    "zip": {},
    "protocol 3": {"pickle_protocol": 3},
    "protocol 4": {"pickle_protocol": 4},
    "protocol 5": {"pickle_protocol": 5},
    "legacy": {"_use_new_zipfile_serialization": False},
    "legacy protocol 4": {"_use_new_zipfile_serialization": False, "pickle_protocol": 4},
}


@pytest.fixture(autouse=True)
def nothing_allowed():
    yield
    serialization.clear_safe_globals()


def from_torch(value, **way):
    """What adjoint reads of what PyTorch writes."""
    file = io.BytesIO()
    torch.save(value, file, **way)
    file.seek(0)
    return ad.load(file)


def to_torch(value, path):
    """What PyTorch reads of what adjoint writes."""
    ad.save(value, path)
    return torch.load(path, weights_only=True)


def as_numpy(tensor):
    """The values of a tensor of either kind, as an array that compares exactly."""
    tensor = tensor.detach()
    if "complex" not in str(tensor.dtype):
        tensor = tensor.double()
    return np.asarray(tensor.numpy())


def assert_same(ours, theirs):
    """Equal in structure, types and values."""
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, ad.Tensor)
        assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
        assert tuple(ours.shape) == tuple(theirs.shape)
        assert ours.requires_grad == theirs.requires_grad
        assert isinstance(ours, ad.nn.Parameter) == isinstance(theirs, torch.nn.Parameter)
        np.testing.assert_array_equal(as_numpy(ours), as_numpy(theirs))
        return
    if isinstance(theirs, dict):
        assert type(ours) is type(theirs) and list(ours) == list(theirs)
        for key in theirs:
            assert_same(ours[key], theirs[key])
    elif isinstance(theirs, (list, tuple)) and not isinstance(theirs, torch.Size):
        assert type(ours) is type(theirs) and len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            assert_same(a, b)
    elif isinstance(theirs, torch.Size):
        assert isinstance(ours, ad.Size) and tuple(ours) == tuple(theirs)
    elif isinstance(theirs, (torch.dtype, torch.device)):
        assert str(ours).split(".")[-1] == str(theirs).split(".")[-1]
    elif isinstance(theirs, np.ndarray):
        np.testing.assert_array_equal(ours, theirs, strict=True)
    else:
        assert type(ours) is type(theirs) and (ours == theirs or theirs != theirs)


PLAIN = [
    None, True, False, 0, 255, 65535, -1, 2**31 - 1, -(2**31), 2**31, 2**63, -(10**30), 1.5,
    float("inf"), float("nan"), "", "tëxt\n", b"", b"\x00\xff", 1 + 2j, (), (1,), (1, 2), (1, 2, 3),
    (1, 2, 3, 4), [], [[]], {}, {"a": {}}, {1: 2, None: 3, (1, "x"): 4, 1.5: 5, False: 6}, set(),
    {1, "a"}, OrderedDict(a=1, b=[2]),
]  # fmt: skip


# ---- reading what PyTorch writes -----------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_reads_every_dtype(way):
    for name in DTYPES:
        for shape in [(), (3,), (0, 2), (2, 3)]:
            theirs = torch.from_numpy(np.random.default_rng(0).uniform(-3, 3, shape))
            theirs = theirs.to(getattr(torch, name))
            assert_same(from_torch(theirs, **WAYS[way]), theirs)


@pytest.mark.parametrize("way", WAYS)
def test_reads_plain_values(way):
    more = [bytearray(b"xx"), Counter("aab"), torch.Size([2, 3]), torch.float16,
            torch.device("cpu"), torch.device("cuda", 1), frozenset({1})]  # fmt: skip
    assert_same(from_torch([*PLAIN, *more], **WAYS[way]), [*PLAIN, *more])


@pytest.mark.parametrize("way", WAYS)
def test_reads_numpy_values(way):
    value = [np.arange(6.0).reshape(2, 3), np.asfortranarray(np.ones((2, 3), np.int16)),
             np.array(True), np.zeros((0, 2), np.complex64), np.float32(2.5),
             np.int64(7)]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_same(from_torch(value, **WAYS[way]), value)


def test_writes_numpy_arrays(tmp_path):
    """As PyTorch does: it reads them with `weights_only=False`."""
    rows = np.arange(6.0).reshape(2, 3)
    value = [rows, np.asfortranarray(rows), np.array(True), np.zeros((0, 2), np.complex64), rows,
             np.arange(9, dtype=np.uint64)[::-2], np.float16([np.nan, -0.0])]  # fmt: skip
    ad.save([*value, np.arange(3, dtype=">i4")], tmp_path / "a.pt")
    torch.save(value, tmp_path / "b.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        theirs, ours = torch.load(tmp_path / "a.pt", weights_only=False), ad.load(tmp_path / "a.pt")
    assert ours[7].tolist() == theirs[7].tolist() == [0, 1, 2]
    for found in (theirs[:7], ours[:7], ad.load(tmp_path / "b.pt")):
        assert found[4] is found[0]
        for x, y in zip(found, value, strict=True):
            np.testing.assert_array_equal(x, y, strict=True)
    for odd in (np.array(["x"]), np.array([None]), np.array([1], "M8[s]")):
        with pytest.raises(TypeError, match="cannot store"):
            ad.save({"x": odd}, tmp_path / "c.pt")
    assert not (tmp_path / "c.pt").exists()


@pytest.mark.parametrize("way", WAYS)
def test_views_share_their_storage(way):
    base = torch.arange(12.0).reshape(3, 4)
    ours = from_torch({"a": base, "t": base.T, "v": base[1:, ::2], "same": base}, **WAYS[way])
    assert ours["same"] is ours["a"]
    assert ours["t"].stride() == (1, 4) and ours["v"].stride() == (4, 2)
    ours["t"].mul_(2)
    assert ours["a"].tolist() == (base * 2).tolist()
    assert ours["v"].tolist() == (base * 2)[1:, ::2].tolist()
    assert ours["a"]._version_count == ours["v"]._version_count == 1


def test_views_of_other_forms():
    x = torch.arange(6.0)
    value = [x[2:4], x.expand(2, 6), x.reshape(2, 3).T[1:], x.view(torch.int32), x[::3], x[6:]]
    assert_same(from_torch(value[:3]), value[:3])
    assert_same(from_torch(value[4:]), value[4:])
    assert_same(from_torch([value[3]]), [value[3]])


@pytest.mark.parametrize("way", WAYS)
def test_conjugates_and_negatives(way):
    """PyTorch stores them as bits beside the memory, which adjoint's tensors have not."""
    z = torch.tensor([1 + 2j, 3 - 1j])
    value = {
        "z": z, "conj": z.conj(), "view": z.conj()[1:], "mH": torch.stack([z, z]).mH,
        "neg": torch._neg_view(z), "both": torch._neg_view(z.conj()),
        "wide": z.conj()[:1].expand(3), "none": z.conj()[2:],
        "parameter": torch.nn.Parameter(z.conj()), "twice": z.conj().conj(),
        "bfloat16": torch._neg_view(torch.tensor([1.5, -2.0]).bfloat16()),
    }  # fmt: skip
    ours = from_torch(value, **WAYS[way])
    assert {name: x.detach().tolist() for name, x in ours.items()} == {
        "z": [1 + 2j, 3 - 1j], "conj": [1 - 2j, 3 + 1j], "view": [3 + 1j],
        "mH": [[1 - 2j, 1 - 2j], [3 + 1j, 3 + 1j]], "neg": [-1 - 2j, -3 + 1j],
        "both": [-1 + 2j, -3 - 1j], "wide": [1 - 2j] * 3, "none": [],
        "parameter": [1 - 2j, 3 + 1j], "twice": [1 + 2j, 3 - 1j], "bfloat16": [-1.5, 2.0],
    }  # fmt: skip
    assert ours["wide"].stride() == (0,) and ours["mH"].stride() == (1, 2)
    ours["conj"][1] = 7j  # which the other views of the conjugate share
    assert ours["view"].tolist() == [7j] and ours["z"].tolist() == [1 + 2j, 3 - 1j]
    imaginary = from_torch({"x": z.conj().imag, "real": z.conj().real}, **WAYS[way])
    assert imaginary["x"].tolist() == [-2.0, 1.0] and imaginary["real"].tolist() == [1.0, 3.0]


def test_parameters_gradients_and_attributes():
    p = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    q = torch.ones(2, requires_grad=True)
    tagged = torch.ones(1)
    tagged.note = {"a": 1}
    buffer = torch.nn.Buffer(torch.ones(3))
    ours = from_torch([torch.nn.Parameter(torch.ones(2)), p, q, tagged, buffer])
    assert_same(ours[:3], [torch.nn.Parameter(torch.ones(2)), p, q])
    assert ours[3].note == {"a": 1}
    assert ours[4].tolist() == [1.0, 1.0, 1.0]


def test_state_dicts_of_models_and_optimizers():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model(torch.ones(2, 3, 5, 5)).sum().backward()
    optimizer.step()
    ours = from_torch({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "n": 3})
    assert_same(dict(ours["model"]), dict(model.state_dict()))
    assert_same(ours["optimizer"], optimizer.state_dict())
    assert ours["model"]._metadata[""] == {"version": 1}
    same = ad.nn.Sequential(ad.nn.Conv2d(3, 4, 3), ad.nn.BatchNorm2d(4))
    same.load_state_dict(ours["model"])
    twin = ad.optim.Adam(same.parameters(), lr=1.0)
    twin.load_state_dict(ours["optimizer"])
    assert twin.param_groups[0]["lr"] == 1e-2
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 5)).astype(np.float32)
    model.eval(), same.eval()
    np.testing.assert_allclose(
        same(ad.tensor(x)).detach().numpy(), model(torch.tensor(x)).detach().numpy(), atol=1e-5
    )


def test_files_without_checksums(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(torch.ones(3), tmp_path / "x.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert ad.load(tmp_path / "x.pt").tolist() == [1, 1, 1]


def test_big_endian_files(tmp_path):
    path = tmp_path / "x.pt"
    values = np.arange(5.0)
    torch.save({"a": torch.tensor(values)}, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            data = values.astype(">f8").tobytes() if name.endswith("/data/0") else data
            archive.writestr(name, b"big" if name.endswith("byteorder") else data)
    assert ad.load(path)["a"].tolist() == values.tolist()


def test_reads_without_pytorch(tmp_path):
    torch.save({"a": torch.ones(2), "b": [torch.zeros(1)]}, tmp_path / "x.pt")
    program = (
        "import sys; sys.modules['torch'] = None; import adjoint as ad; import pickle\n"
        "pickle.Unpickler = pickle._Unpickler = pickle.loads = pickle.load = None\n"
        "print(ad.load(sys.argv[1]))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "x.pt")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "{'a': tensor([1., 1.]), 'b': [tensor([0.])]}\n"


# ---- whole modules, and names that are refused ---------------------------------------------------


class Payload:
    """Runs a program when it is unpickled by a reader that runs programs."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def test_names_of_programs_are_refused(tmp_path):
    trap = tmp_path / "trap"
    for function in (os.system, eval, exec, subprocess.check_output, os.open, getattr, __import__):
        for way in WAYS.values():
            with pytest.raises(ad.CheckpointError, match=r"names .*, which no file may use"):
                from_torch([Payload(function, f"touch {trap}")], **way)
            with (
                serialization.safe_globals(
                    [(function, f"{function.__module__}.{function.__name__}")]
                ),
                pytest.raises(ad.CheckpointError, match="no file may use"),
            ):
                from_torch([Payload(function, f"touch {trap}")], **way)
    assert not trap.exists()


def test_other_names_are_refused_with_the_remedy():
    with pytest.raises(ad.CheckpointError, match=r"argparse\.Namespace.*safe_globals"):
        from_torch({"args": argparse.Namespace(a=1)})
    for value, name in [
        (torch.nn.Linear(1, 1), r"torch\.nn\.modules\.linear\.Linear"),
        (torch.ones(2, 2).to_sparse_bsr((1, 1)), "sparse_bsr"),
        (torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8), "storage|QInt8Storage"),
        (torch.ones(2).to(torch.float8_e4m3fn), "float8_e4m3fn"),
        (torch.ones(2, dtype=torch.uint16), "uint16"),
        (torch.ones(2, device="meta"), "meta"),
        (torch.ones(2).storage(), "storage"),
        (torch.Tensor, "torch.*Tensor"),
    ]:
        with pytest.raises(ad.CheckpointError, match=name):
            from_torch([value])


def test_allowed_classes():
    value = {"args": argparse.Namespace(a=1, b=[torch.ones(1)])}
    with serialization.safe_globals([argparse.Namespace]):
        assert serialization.get_safe_globals() == [argparse.Namespace]
        for way in WAYS.values():
            ours = from_torch(value, **way)["args"]
            assert type(ours) is argparse.Namespace and ours.a == 1 and ours.b[0].tolist() == [1.0]
    assert serialization.get_safe_globals() == []
    serialization.add_safe_globals([(dict, "argparse.Namespace")])
    with pytest.raises(ad.CheckpointError, match="no attribute '__dict__'"):
        from_torch(argparse.Namespace(a=1))
    with pytest.raises(TypeError, match=r"module\.name"):
        serialization.add_safe_globals([("a", "b", "c")])


def whole_modules(t):
    """Modules of `t`, and the shape of an input; None for integers below 5."""
    n = t.nn
    return {
        "Linear": (n.Linear(3, 4), (2, 3)),
        "Conv2d": (n.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), (1, 2, 5, 5)),
        "Conv1d": (n.Conv1d(2, 3, 3, padding="same"), (1, 2, 5)),
        "ConvTranspose2d": (n.ConvTranspose2d(2, 3, 3, stride=2), (1, 2, 4, 4)),
        "BatchNorm2d": (n.BatchNorm2d(3), (2, 3, 4, 4)),
        "LayerNorm": (n.LayerNorm(4), (2, 4)),
        "GroupNorm": (n.GroupNorm(2, 4), (2, 4, 3)),
        "InstanceNorm2d": (n.InstanceNorm2d(3, affine=True), (2, 3, 4, 4)),
        "RMSNorm": (n.RMSNorm(4), (2, 4)),
        "Embedding": (n.Embedding(5, 3, padding_idx=0), None),
        "EmbeddingBag": (n.EmbeddingBag(5, 3), None),
        "LSTM": (n.LSTM(3, 4, 2, bidirectional=True), (5, 2, 3)),
        "GRU": (n.GRU(3, 4), (5, 2, 3)),
        "RNN": (n.RNN(3, 4), (5, 2, 3)),
        "TransformerEncoderLayer": (n.TransformerEncoderLayer(4, 2, 8), (5, 2, 4)),
        "TransformerEncoder": (
            n.TransformerEncoder(
                n.TransformerEncoderLayer(4, 2, 8, activation="gelu", batch_first=True), 2
            ),
            (5, 2, 4),
        ),
        "activations": (
            n.Sequential(n.ReLU(), n.GELU(), n.LeakyReLU(0.2), n.PReLU(), n.ReLU6(), n.Hardswish(),
                         n.SiLU(), n.ELU(), n.Softplus(), n.Softmax(-1)), (2, 3)
        ),
        "layers": (
            n.Sequential(n.Conv2d(1, 4, 3), n.MaxPool2d(2), n.Dropout(0.5), n.AvgPool2d(2),
                         n.Upsample(scale_factor=2), n.PixelShuffle(2), n.ReflectionPad2d(1),
                         n.AdaptiveAvgPool2d(2), n.Flatten(), n.Linear(4, 2), n.Identity()),
            (1, 1, 10, 10),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", whole_modules(torch))
def test_whole_modules(name):
    torch.manual_seed(0)
    theirs, shape = whole_modules(torch)[name]
    theirs.eval()
    modules = {type(m) for m in whole_modules(ad)[name][0].modules()}
    allowed = [*modules, ad.nn.functional.relu, ad.nn.functional.gelu]
    with serialization.safe_globals(allowed):
        ours = [from_torch(theirs, **way) for way in (WAYS["zip"], WAYS["legacy"])]
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, (2, 3)) if shape is None else rng.normal(size=shape).astype(np.float32)
    expected = theirs(torch.tensor(x))
    for module in ours:
        assert not module.training
        assert list(module.state_dict()) == list(theirs.state_dict())
        y = module(ad.tensor(x))
        first = (y[0], expected[0]) if isinstance(expected, tuple) else (y, expected)
        np.testing.assert_allclose(first[0].detach().numpy(), first[1].detach().numpy(), atol=1e-5)
        module.train()
        y = module(ad.tensor(x))
        (y[0] if isinstance(y, tuple) else y).sum().backward()


def test_a_class_of_the_user_s_own():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(2, 3)
            self.register_buffer("scale", torch.tensor(2.0), persistent=False)
            self.sizes = [2, 3]

    class Twin(ad.nn.Module):
        def forward(self, x):
            return self.fc(x) * self.scale

    Net.__module__, Net.__qualname__ = __name__, "Net"  # as if it stood at the top of a module
    globals()["Net"] = Net
    try:
        theirs = Net()
        with serialization.safe_globals([(Twin, f"{__name__}.Net"), ad.nn.Linear]):
            ours = from_torch(theirs)
    finally:
        del globals()["Net"]
    assert type(ours) is Twin and ours.sizes == [2, 3]
    assert list(ours.state_dict()) == ["fc.weight", "fc.bias"]
    expected = (theirs.fc(torch.ones(1, 2)) * 2).tolist()
    np.testing.assert_allclose(ours(ad.ones(1, 2)).tolist(), expected, rtol=1e-6)
    assert [p.requires_grad for p in ours.parameters()] == [True, True]


def test_a_module_with_hooks_or_foreign_parts_is_refused():
    theirs = torch.nn.Linear(1, 1)
    theirs.register_forward_hook(print)
    with serialization.safe_globals([ad.nn.Linear, print]), pytest.raises(ad.CheckpointError):
        from_torch(theirs)
    theirs = torch.nn.Linear(1, 1)
    theirs.__dict__["forward"] = 3
    with (
        serialization.safe_globals([ad.nn.Linear]),
        pytest.raises(ad.CheckpointError, match=r"replaces Linear\.forward"),
    ):
        from_torch(theirs)


def test_the_names_in_a_file():
    value = [
        argparse.Namespace(a=1),
        torch.nn.Linear(1, 1),
        torch.ones(1),
        OrderedDict(a=np.ones(2)),
    ]
    expected = ["argparse.Namespace", "torch.nn.modules.linear.Linear"]
    for way in WAYS.values():
        file = io.BytesIO()
        torch.save(value, file, **way)
        file.seek(0)
        assert serialization.get_unsafe_globals_in_checkpoint(file) == expected
        file.seek(0)
        with serialization.safe_globals([ad.nn.Linear]):
            assert serialization.get_unsafe_globals_in_checkpoint(file) == expected[:1]
    with pytest.raises(ad.CheckpointError, match="not one of PyTorch's"):
        serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(b"text"))


# ---- writing what PyTorch reads ------------------------------------------------------------------


def test_writes_every_dtype(tmp_path):
    for name in DTYPES:
        for shape in [(), (3,), (0, 2), (2, 3)]:
            raw = np.random.default_rng(0).uniform(-3, 3, shape)
            ours = ad.tensor(raw).to(getattr(ad, name))
            assert_same(ours, to_torch(ours, tmp_path / "x.pt"))


def test_writes_plain_values(tmp_path):
    value = [*PLAIN, ad.Size([2, 3]), ad.float16, ad.device("cpu")]
    assert_same(value, to_torch(value, tmp_path / "x.pth"))
    again = ad.load(tmp_path / "x.pth")
    assert again[:14] == value[:14] and again[-3:] == value[-3:]


def test_writes_views_as_views(tmp_path):
    base = ad.arange(12.0).reshape(3, 4)
    value = {"a": base, "t": base.T, "v": base[1:, ::2], "e": ad.ones(1).expand(5), "same": base,
             "flipped": base.flip(0), "empty": base[3:]}  # fmt: skip
    theirs = to_torch(value, tmp_path / "x.pt")
    assert_same(value, theirs)
    assert theirs["same"] is theirs["a"]
    assert theirs["t"].untyped_storage().data_ptr() == theirs["a"].untyped_storage().data_ptr()
    assert theirs["t"].stride() == (1, 4) and theirs["e"].stride() == (0,)
    part = ad.zeros(1_000_000)[:3]
    ad.save(part, tmp_path / "part.pt")
    assert os.path.getsize(tmp_path / "part.pt") < 2000
    with pytest.raises(ad.DTypeError, match="different dtypes"):
        ad.save([base, base.view(ad.int32)], tmp_path / "x.pt")


def test_writes_state_dicts(tmp_path):
    model = ad.nn.Sequential(ad.nn.Linear(3, 4), ad.nn.BatchNorm1d(4))
    optimizer = ad.optim.AdamW(model.parameters(), lr=1e-2)
    model(ad.ones(2, 3)).sum().backward()
    optimizer.step()
    value = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "p": model[0].weight}
    theirs = to_torch(value, tmp_path / "x.pt")
    same = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    same.load_state_dict(theirs["model"])
    assert theirs["model"]._metadata == dict(model.state_dict()._metadata)
    twin = torch.optim.AdamW(same.parameters())
    twin.load_state_dict(theirs["optimizer"])
    assert twin.param_groups[0]["lr"] == 1e-2
    assert isinstance(theirs["p"], torch.nn.Parameter) and theirs["p"].requires_grad


def test_files_are_the_same_every_time_and_aligned(tmp_path):
    value = {"a": ad.ones(3), "b": ad.zeros(5)}
    ad.save(value, tmp_path / "x.pt")
    ad.save(value, tmp_path / "y.pt")
    assert (tmp_path / "x.pt").read_bytes() == (tmp_path / "y.pt").read_bytes()
    theirs = torch.load(tmp_path / "x.pt", weights_only=True, mmap=True)
    assert theirs["b"].data_ptr() % 64 == 0 and theirs["a"].tolist() == [1, 1, 1]
    with zipfile.ZipFile(tmp_path / "x.pt") as archive:
        assert archive.testzip() is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([np.array(["text"])], r"'0'.*arrays of numbers.*adjoint\.tensor"),
        ({"a": [(i for i in ())]}, r"generator at 'a\.0'"),
        (10**700, "255 bytes"),
        ({"a": {2**64: 1}}, "'a' holds a dictionary key of more than 64 bits"),
        ([{1j}], "'0' holds a dictionary key that is a complex"),
    ],
)
def test_refuses_to_write(tmp_path, value, message):
    (tmp_path / "x.pt").write_bytes(b"old")
    with pytest.raises(TypeError, match=message):
        ad.save(value, tmp_path / "x.pt")
    assert (tmp_path / "x.pt").read_bytes() == b"old" and os.listdir(tmp_path) == ["x.pt"]


def test_refuses_to_write_cycles_and_depth(tmp_path):
    cycle = []
    cycle.append({"again": cycle})
    with pytest.raises(TypeError, match="contains itself"):
        ad.save(cycle, tmp_path / "x.pt")
    deep = []
    for _ in range(201):
        deep = [deep]
    with pytest.raises(TypeError, match="more than 200"):
        ad.save(deep, tmp_path / "x.pt")


trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
    | st.complex_numbers(allow_nan=False)
    | st.lists(st.integers(0, 3), max_size=3).map(ad.zeros),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple)
    | st.dictionaries(st.text() | st.integers(-(2**63), 2**63), inner),
    max_leaves=15,
)  # fmt: skip


@settings(max_examples=100)
@given(tree=trees)
def test_round_trip_property(tmp_path_factory, tree):
    path = tmp_path_factory.getbasetemp() / "tree.pt"
    assert_same(tree, to_torch(tree, path))
    assert_same(ad.load(path), torch.load(path, weights_only=True))


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**2000), 2**2000) | st.floats() | st.text()
    | st.binary() | st.complex_numbers(allow_nan=False)
    | st.sets(st.integers(-(2**63), 2**64 - 1) | st.text()),
    lambda inner: st.lists(inner) | st.tuples(inner, inner, inner, inner) | st.tuples(inner)
    | st.dictionaries(st.text() | st.tuples(st.integers(-9, 9)), inner),
    max_leaves=25,
)  # fmt: skip


@given(value=plain, protocol=st.integers(2, 5))
def test_the_machine_reads_what_python_s_pickle_writes(value, protocol):
    shared = [value, (value, [value]), value]
    machine = Unpickler(pickle.dumps(shared, protocol), find, None, build)
    found = machine.load()
    assert_same(found, shared)
    if isinstance(value, (list, dict, set)):
        assert found[0] is found[1][0] is found[1][1][0] is found[2]


@given(value=plain)
def test_python_s_pickle_reads_what_we_write(value):
    assert_same(pickle.loads(PickleWriter().dump([value, (value,)])), [value, (value,)])


# ---- NumPy's .npz --------------------------------------------------------------------------------


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_reads_npz(tmp_path, save):
    arrays = {
        "x": np.arange(6.0).reshape(2, 3), "t": np.asfortranarray(np.ones((2, 3), np.int16)),
        "zero": np.array(3, np.uint8), "empty": np.zeros((0, 2), bool), "a/b": np.ones(2) + 1j,
        "big": np.arange(3, dtype=">i4"), "large": np.zeros((300, 400), np.float32),
    }  # fmt: skip
    save(tmp_path / "x.npz", **arrays)
    ours = ad.load(tmp_path / "x.npz")
    assert list(ours) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(ours[name].numpy(), array)
        assert ours[name].numpy().dtype == array.dtype.newbyteorder("=")
    ours["x"].add_(1)


def test_writes_npz(tmp_path):
    tensors = {"x": ad.arange(6.0).reshape(2, 3).T, "p": ad.nn.Parameter(ad.ones(2)),
               "b/c": ad.tensor(True), "e": ad.empty(0, 3)}  # fmt: skip
    ad.save(tensors, tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz", allow_pickle=False) as theirs:
        assert sorted(theirs) == sorted(tensors)
        for name in tensors:
            np.testing.assert_array_equal(theirs[name], tensors[name].detach().numpy(), strict=True)
    assert_equal = {k: v.tolist() for k, v in ad.load(tmp_path / "x.npz").items()}
    assert assert_equal == {k: v.tolist() for k, v in tensors.items()}
    for bad in ({"a": 1}, [ad.ones(1)], {1: ad.ones(1)}):
        with pytest.raises(TypeError, match="save_npz"):
            ad.save(bad, tmp_path / "y.npz")
    for bad in ({"../a": ad.ones(1)}, {"a": ad.ones(1, dtype=ad.bfloat16)}):
        with pytest.raises(ValueError, match="save_npz"):
            ad.save(bad, tmp_path / "y.npz")
    assert not (tmp_path / "y.npz").exists()


def test_objects_in_npz_are_refused(tmp_path):
    trap = tmp_path / "trap"
    np.savez(tmp_path / "x.npz", a=np.array([Payload(os.system, f"touch {trap}")], object))
    with pytest.raises(ad.CheckpointError, match="only arrays of numbers"):
        ad.load(tmp_path / "x.npz")
    assert not trap.exists()


def test_npz_bombs_are_bounded(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros(1_000_000))
    with pytest.raises(ad.CheckpointError, match="max_bytes"):
        ad.io.load_npz(tmp_path / "x.npz", max_bytes=100_000)
    assert ad.io.load_npz(tmp_path / "x.npz")["a"].sum() == 0


# ---- sharded safetensors -------------------------------------------------------------------------


def test_sharded_round_trip(tmp_path):
    tensors = {f"layer.{i}.w": ad.rand(4, i + 1) for i in range(5)}
    tensors["half"] = ad.ones(3, dtype=ad.bfloat16)
    names = ad.io.save_sharded(tensors, tmp_path, max_shard_size=100)
    assert len(names) > 2 and sorted([*names, "model.safetensors.index.json"]) == sorted(
        os.listdir(tmp_path)
    )
    for place in (tmp_path, tmp_path / "model.safetensors.index.json"):
        ours = ad.load(place)
        assert sorted(ours) == sorted(tensors)
        assert all((ours[k] == tensors[k]).all() for k in tensors)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    from safetensors import safe_open

    for key, name in index["weight_map"].items():
        with safe_open(tmp_path / name, "pt") as shard:
            assert shard.metadata() == {"format": "pt"}
            assert shard.get_tensor(key).tolist() == tensors[key].tolist()


def test_sharded_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        ad.load(tmp_path)
    with pytest.raises(TypeError, match="save_sharded"):
        ad.io.save_sharded({"a": 1}, tmp_path)
    ad.io.save_sharded({"a": ad.ones(4), "b": ad.ones(4)}, tmp_path, max_shard_size=16)
    os.remove(tmp_path / "model-00002-of-00002.safetensors")
    with pytest.raises(ad.CheckpointError, match="missing"):
        ad.load(tmp_path)


def _weights(value, last=200):
    return {f"w{i}": ad.full((last if i == 4 else 200, 50), float(value)) for i in range(5)}


@pytest.mark.parametrize("first", [40_000, 10**9])
@pytest.mark.parametrize("second", [40_000, 90_000, 10**9])
def test_a_sharded_checkpoint_takes_the_place_of_another(tmp_path, first, second):
    for value in (1, 2, 3):  # the third has names for its shards that the first had
        ad.io.save_sharded(_weights(value), tmp_path, first if value == 1 else second)
        assert {v.unique().item() for v in ad.load(tmp_path).values()} == {value}
    names = {n for n in os.listdir(tmp_path) if n.endswith(".safetensors")}
    assert len(names) == {40_000: 5, 90_000: 3, 10**9: 1}[second]


@pytest.mark.parametrize("size", [40_000, 10**9])
def test_a_failed_save_leaves_the_checkpoint_that_was_there(tmp_path, size, monkeypatch):
    from adjoint.io import sharded

    ad.io.save_sharded(_weights(1), tmp_path, 40_000)
    calls = []

    def full(array):
        calls.append(array)
        if len(calls) > 3:
            raise OSError("no space left on device")
        return array

    monkeypatch.setattr(sharded, "_bytes", full)
    with pytest.raises(OSError, match="no space"):
        ad.io.save_sharded(_weights(2), tmp_path, size)
    monkeypatch.undo()
    assert {v.unique().item() for v in ad.load(tmp_path).values()} == {1}
    ad.io.save_sharded(_weights(3), tmp_path, size)
    assert {v.unique().item() for v in ad.load(tmp_path).values()} == {3}


def test_a_dtype_that_there_is_not_is_named(tmp_path):
    from safetensors.torch import save_file

    path = tmp_path / "model.safetensors"
    save_file({"f8": torch.ones(2).to(torch.float8_e4m3fn), "w": torch.ones(2)}, path)
    for place in (path, tmp_path):
        with pytest.raises(ad.Unsupported, match=r"'f8' in the dtype F8_E4M3"):
            ad.load(place)


# ---- the documentation ---------------------------------------------------------------------------


def test_the_documented_way_there_and_back(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "model_files.md").read_text()
    blocks = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    command = [sys.executable, "-W", "error", "-c", "\n".join(blocks)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, tuned, last = map(float, re.findall(r"0\.\d+", done.stdout))
    assert first > tuned > last


def test_a_layout_is_ours(tmp_path):
    torch.save({"layout": torch.strided}, tmp_path / "layout.pt")
    assert ad.load(tmp_path / "layout.pt")["layout"] is ad.strided
