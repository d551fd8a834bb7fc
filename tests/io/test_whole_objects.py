"""Whole modules and objects in PyTorch's files: from ours to PyTorch and from there to ours."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import io
import operator
import os
import re
import subprocess
import sys
import threading
import types
from collections import OrderedDict, defaultdict, deque, namedtuple
from pathlib import Path

import numpy as np
import pytest

import adjoint as ad
from adjoint.io.class_paths import our_object, pytorch_path
from adjoint.serialization import safe_globals, trust

from .layers import layers

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


class Net(ad.nn.Module):
    """One whose constructor needs arguments."""

    def __init__(self, width):
        super().__init__()
        self.fc = ad.nn.Linear(width, width)
        self.again = self.fc
        self.norm_class = ad.nn.LayerNorm
        self.register_buffer("scale", ad.tensor(2.0), persistent=False)
        self.parent = [self]

    def forward(self, x):
        return self.fc(x) * self.scale


class Restores(ad.nn.Module):
    """One that restores its state by code of its own."""

    def __setstate__(self, state):
        self.__dict__.update(state, restored=True)


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 0


@dataclasses.dataclass
class Config:
    width: int
    color: Color = Color.RED
    more: list = dataclasses.field(default_factory=list)


class Slotted:
    __slots__ = ("a",)


class Words(dict):
    pass


class Outer:
    class Inner:
        pass


class Marked(ad.Tensor):
    pass


Pair = namedtuple("Pair", "a b")


def function():
    pass


def read(path, **more):
    return ad.load(path, weights_only=False, **more)


def there_and_back(value, path):
    """What a trusting reader gets of what was written."""
    ad.save(value, path)
    with trust(path):
        return read(path)


def run(module, x):
    """The outputs of a module of either package, as arrays."""
    found = module(*x)
    found = found if isinstance(found, tuple) else (found,)
    found = [part for each in found for part in (each if isinstance(each, tuple) else (each,))]
    return [x.detach().numpy() for x in found if x is not None]


def inputs(t, shapes):
    rng = np.random.default_rng(0)
    drawn = [rng.integers(0, 5, s[1:]) if s[0] == "i" else rng.normal(size=s) for s in shapes]
    return [t.tensor(x if x.dtype.kind == "i" else x.astype("f4")) for x in drawn]


NAMES = list(layers(ad))


@pytest.mark.parametrize("name", NAMES)
def test_layers_there_and_back(name, tmp_path):
    ours, shapes = layers(ad)[name]
    ad.save(ours, tmp_path / "ours.pt")
    theirs = torch.load(tmp_path / "ours.pt", weights_only=False)
    assert type(theirs) is type(layers(torch)[name][0])
    assert list(theirs.state_dict()) == list(ours.state_dict())
    assert theirs.training is ours.training
    torch.save(theirs, tmp_path / "theirs.pt")
    back = read(tmp_path / "theirs.pt")
    again = read(tmp_path / "ours.pt")
    assert type(back) is type(again) is type(ours)
    for mode in (True, False):
        for module in (ours, theirs, back, again):
            module.train(mode)
        expected = run(ours, inputs(ad, shapes))
        for module, t in ((theirs, torch), (back, ad), (again, ad)):
            for x, y in zip(run(module, inputs(t, shapes)), expected, strict=True):
                np.testing.assert_allclose(x, y, atol=2e-5, rtol=1e-4)
    theirs.zero_grad()
    run(theirs, inputs(torch, shapes))
    copied = torch.load(tmp_path / "ours.pt", weights_only=False)
    copied.load_state_dict(theirs.state_dict())


def test_every_path_is_one_of_pytorch():
    """Names under which our classes are written, and found again."""
    import importlib

    count = 0
    for package in ("nn", "nn.parameter", "optim", "optim.lr_scheduler", "distributions",
                    "nn.functional", "utils.data"):  # fmt: skip
        ours = importlib.import_module(f"adjoint.{package}")
        theirs = importlib.import_module(f"torch.{package}")
        for name in getattr(theirs, "__all__", dir(theirs)):
            kind, expected = getattr(ours, name, None), getattr(theirs, name)
            is_kind = isinstance(kind, type) and isinstance(expected, type)
            if not is_kind and not (callable(kind) and package == "nn.functional"):
                continue
            path = pytorch_path(kind)
            if path is None:
                continue
            count += 1
            found = getattr(importlib.import_module(path[0]), path[1])
            if is_kind:
                assert path == (expected.__module__, expected.__qualname__)
            else:
                assert callable(found)
            assert our_object(*path).__name__ == kind.__name__
    assert count > 400


def test_a_module_of_the_user(tmp_path):
    net = Net(3)
    ad.save({"net": net, "args": argparse.Namespace(a=[net.scale])}, tmp_path / "x.pt")
    found = read(tmp_path / "x.pt")
    same, args = found["net"], found["args"]
    assert type(same) is Net and same.again is same.fc and same.norm_class is ad.nn.LayerNorm
    assert same.parent[0] is same and list(same.state_dict()) == list(net.state_dict())
    assert same(ad.ones(1, 3)).tolist() == net(ad.ones(1, 3)).tolist()
    assert args.a[0] is same.scale
    same.scale.mul_(3)
    assert args.a[0].item() == 6
    moved = read(tmp_path / "x.pt", map_location="meta")
    assert moved["net"].fc.weight.device.type == moved["args"].a[0].device.type == "meta"
    with pytest.raises(ad.CheckpointError, match=r"Net.*only state dicts.*weights_only=False"):
        ad.load(tmp_path / "x.pt")


def test_a_class_that_changed_or_is_gone(tmp_path, monkeypatch):
    ad.save(Net(3), tmp_path / "x.pt")
    here = sys.modules[__name__]

    class Other(ad.nn.Module):
        def forward(self, x):
            return self.fc(x)

    class NoModule:
        pass

    class WithMethod(ad.nn.Module):
        def norm_class(self):
            pass

    monkeypatch.setattr(here, "Net", Other)
    assert type(read(tmp_path / "x.pt")) is Other
    monkeypatch.setattr(here, "Net", NoModule)
    with pytest.raises(ad.CheckpointError, match=r"names .*Net"):
        read(tmp_path / "x.pt")
    monkeypatch.setattr(here, "Net", WithMethod)
    with pytest.raises(ad.CheckpointError, match=r"replaces WithMethod\.norm_class"):
        read(tmp_path / "x.pt")
    monkeypatch.delattr(here, "Net")
    with pytest.raises(ad.CheckpointError, match=r"names .*Net"):
        read(tmp_path / "x.pt")


def test_shared_parts_and_views_stay_shared(tmp_path):
    base = ad.arange(6.0)
    value = {"a": base[1:4], "b": base, "layer": ad.nn.Linear(2, 2)}
    value["layer"].bias = ad.nn.Parameter(base[:2])
    value["same"] = value["layer"]
    ad.save(value, tmp_path / "x.pt")
    for found in (read(tmp_path / "x.pt"), torch.load(tmp_path / "x.pt", weights_only=False)):
        assert found["same"] is found["layer"]
        found["b"].fill_(7)
        assert found["a"].tolist() == [7, 7, 7] and found["layer"].bias.tolist() == [7, 7]


OBJECTS = [
    Color.RED, Level.LOW, Config(3, more=[Color.RED]), Pair(1, ad.ones(1)), function, len, int,
    type(None), ad.nn.Linear, ad.relu, ad.nn.functional.gelu, functools.partial(function, 1),
    datetime.date(2026, 11, 26), Path("/a/b"), deque([1, 2], 3), defaultdict(list, a=[1]),
    slice(1, None), range(3), frozenset({1}), Words(a=1), operator.itemgetter(1), re.compile("a+"),
    np.random.RandomState(0).get_state(), np.dtype("f4"), types.SimpleNamespace(a=1),
    2**900, Outer.Inner, "text".upper, str.lower, bytearray(b"ab"), OrderedDict(a=1), ...,
]  # fmt: skip


def test_objects_there_and_back(tmp_path):
    found = there_and_back(OBJECTS, tmp_path / "x.pt")
    theirs = torch.load(tmp_path / "x.pt", weights_only=False)
    for ours, back, other in zip(OBJECTS, found, theirs, strict=True):
        if isinstance(ours, (str, int, frozenset, Path, enum.Enum, bytearray, slice, range)):
            assert back == other == ours
        if ours is not ad.nn.Linear and ours not in (ad.relu, ad.nn.functional.gelu):
            assert type(back) is type(ours) and type(other) is type(ours)
        if isinstance(ours, type) and ours is not ad.nn.Linear:
            assert back is other is ours
    assert found[8] is ad.nn.Linear and theirs[8] is torch.nn.Linear
    assert theirs[9] is torch.relu and found[9] is ad.relu
    assert theirs[10](torch.ones(1)).item() == pytest.approx(found[10](ad.ones(1)).item())
    assert found[2] == OBJECTS[2] and found[3].b.tolist() == [1] and found[19]["a"] == 1
    assert found[14].maxlen == 3 and found[15]["new"] == [] and found[15]["a"] == [1]
    assert (found[22][1] == OBJECTS[22][1]).all() and found[21].match("aa")


def test_records_are_read_by_everybody(tmp_path):
    value = {
        "args": argparse.Namespace(lr=0.1, paths=[Path("a/b")], net=ad.nn.Linear(1, 1)),
        "space": types.SimpleNamespace(a=1), "d": defaultdict(list, a=[1]), "q": deque([1], 3),
        "kinds": [int, dict, str], "s": slice(0, 3, None), "set": defaultdict(set),
    }  # fmt: skip
    zone = datetime.timezone(datetime.timedelta(hours=2), "x")
    value["plain"] = plain = [
        range(1, 9, 2), ..., datetime.datetime(2020, 1, 2, 3, 4, 5, 6, zone), zone,
        datetime.date(2020, 1, 2), datetime.time(1, 2, 3), datetime.timedelta(1, 2, 3),
        decimal.Decimal("-1.50"), decimal.Decimal("Infinity"), fractions.Fraction(-1, 3 * 10**50),
    ]  # fmt: skip
    ad.save(value, tmp_path / "a.pt")
    theirs = torch.load(tmp_path / "a.pt", weights_only=False)
    torch.save(theirs, tmp_path / "b.pt")
    for found in (read(tmp_path / "a.pt"), read(tmp_path / "b.pt")):
        assert found["plain"] == plain
        assert found["args"].lr == 0.1 and found["args"].paths == [Path("a/b")]
        assert type(found["args"].net) is ad.nn.Linear
        assert found["d"] == {"a": [1]} and found["d"]["x"] == [] and found["q"].maxlen == 3
        assert found["kinds"] == [int, dict, str] and found["s"] == slice(0, 3, None)
        assert found["set"]["y"] == set() and found["space"].a == 1


def test_slots_cycles_and_reductions_of_all_forms(tmp_path):
    slotted = Slotted()
    slotted.a = [1]
    loop = argparse.Namespace(name="loop")
    loop.self, loop.held = loop, {"x": [loop]}
    found, again = there_and_back([slotted, loop], tmp_path / "x.pt")
    assert found.a == [1] and again.self is again and again.held["x"][0] is again
    other = torch.load(tmp_path / "x.pt", weights_only=False)[1]
    assert other.held["x"][0] is other
    with pytest.raises(ad.CheckpointError, match="contains itself"), safe_globals([Slotted]):
        read(tmp_path / "x.pt")
    held = argparse.Namespace()
    held.tuple = (held,)
    found = there_and_back(held, tmp_path / "x.pt")
    assert found.tuple[0] is found
    loop = (held,)
    held.tuple = loop
    with pytest.raises(TypeError, match=r"tuple at '0\.tuple' contains itself"):
        ad.save(loop, tmp_path / "x.pt")


def test_tensors_with_classes_and_attributes(tmp_path):
    tagged, parameter = ad.ones(2), ad.nn.Parameter(ad.ones(2))
    tagged.note, parameter.is_special = {"a": 1}, True
    marked = ad.ones(3).as_subclass(Marked)
    layer = ad.nn.Module()
    layer.count = ad.nn.Buffer(ad.zeros(1))
    ad.save([tagged, parameter, layer], tmp_path / "x.pt")
    theirs = torch.load(tmp_path / "x.pt", weights_only=False)
    for found in (theirs, read(tmp_path / "x.pt")):
        assert found[0].note == {"a": 1} and found[1].is_special and found[1].requires_grad
        assert list(found[2].state_dict()) == ["count"]
    assert ad.load(io.BytesIO((tmp_path / "x.pt").read_bytes()), weights_only=False)[1].is_special
    found = there_and_back([marked], tmp_path / "y.pt")[0]
    assert type(found) is Marked and found.tolist() == [1, 1, 1]
    with pytest.raises(ad.CheckpointError, match="Marked"):
        read(tmp_path / "y.pt")


def test_optimizers_and_schedules(tmp_path):
    net = ad.nn.Linear(2, 2)
    optimizer = ad.optim.Adam(net.parameters(), lr=0.5)
    net(ad.ones(1, 2)).sum().backward()
    optimizer.step()
    value = {"net": net, "optimizer": optimizer}
    found = there_and_back(value, tmp_path / "x.pt")
    theirs = torch.load(tmp_path / "x.pt", weights_only=False)
    for each, t in ((found, ad), (theirs, torch)):
        assert each["optimizer"].param_groups[0]["params"][0] is each["net"].weight
        each["net"](t.ones(1, 2)).sum().backward()
        each["optimizer"].step()
    net.zero_grad()
    net(ad.ones(1, 2)).sum().backward()
    optimizer.step()
    for each in (found, theirs):
        np.testing.assert_allclose(
            each["net"].weight.detach().numpy(), net.weight.detach().numpy(), rtol=1e-6
        )


# ---- hooks ---------------------------------------------------------------------------------------

CALLED = []  # by hooks


def before(module, args, kwargs):
    CALLED.append("before")
    return (args[0] + 1,), kwargs


def after(module, args, output):
    CALLED.append("after")
    return output * 2


def always(module, args, output):
    CALLED.append("always")


def before_backward(module, gradients):
    CALLED.append("before backward")


def after_backward(module, inputs, outputs):
    CALLED.append("after backward")
    return tuple(g * 3 for g in inputs)


def with_hooks(f):
    layer = f.nn.Linear(2, 1)
    with f.no_grad():
        layer.weight.fill_(1.0), layer.bias.fill_(0.5)
    layer.register_forward_pre_hook(before, with_kwargs=True)
    layer.register_forward_hook(after)
    layer.register_forward_hook(always, always_call=True)
    layer.register_full_backward_pre_hook(before_backward)
    layer.register_full_backward_hook(after_backward)
    return f.nn.Sequential(layer)


def ran(f, module):
    """What a step gives, and which hooks it has called; and a step that fails."""
    CALLED.clear()
    x = f.ones(1, 2, requires_grad=True)
    y = module(x)
    y.sum().backward()
    calls = list(CALLED)
    CALLED.clear()
    with pytest.raises(RuntimeError):
        module(f.ones(1, 3))
    return y.tolist(), x.grad.tolist(), calls, list(CALLED)


@pytest.mark.parametrize("writer", [ad, torch])
def test_hooks_are_kept_in_trusted_files(tmp_path, writer):
    path = tmp_path / "x.pt"
    writer.save(with_hooks(writer), path)
    expected = ran(torch, with_hooks(torch))
    assert expected[2] == ["before", "after", "always", "before backward", "after backward"]
    assert expected[3] == ["before", "always"] and ran(ad, with_hooks(ad)) == expected
    assert ran(torch, torch.load(path, weights_only=False)) == expected
    with trust(path):
        found = read(path)
    assert ran(ad, found) == expected
    handle = found[0].register_forward_hook(lambda m, args, y: y * 0)
    assert found(ad.ones(1, 2)).item() == 0
    handle.remove()
    assert ran(ad, found) == expected


@pytest.mark.parametrize("writer", [ad, torch])
def test_hooks_are_refused_in_other_files(tmp_path, writer):
    path = tmp_path / "x.pt"
    writer.save(with_hooks(writer), path)
    CALLED.clear()
    for weights_only in (False, True):
        with pytest.raises(ad.CheckpointError):
            ad.load(path, weights_only=weights_only)
    names = [before, after, always, before_backward, after_backward]
    with safe_globals([*names, ad.nn.Linear, ad.nn.Sequential]):
        for weights_only in (False, True):
            with pytest.raises(
                ad.CheckpointError, match=r"backward hooks; remove them.*trust\(path\)"
            ):
                ad.load(path, weights_only=weights_only)
    assert not CALLED


def test_a_trusted_file_whose_hooks_are_no_functions(tmp_path):
    path, module = tmp_path / "x.pt", torch.nn.Linear(1, 1)
    module._forward_hooks[0] = 3
    torch.save(module, path)
    with trust(path), pytest.raises(ad.CheckpointError, match="a hook of a Linear is 3"):
        read(path)
    module = torch.nn.Linear(1, 1)
    module.register_state_dict_pre_hook(always)
    torch.save(module, path)
    with trust(path), pytest.raises(ad.CheckpointError, match="state dict pre hooks"):
        read(path)


# ---- what is refused -----------------------------------------------------------------------------


def hooked(hook):
    layer = ad.nn.Linear(1, 1)
    layer.register_forward_hook(hook)
    return ad.nn.Sequential(layer)


def saved_by_hook():
    layer = ad.nn.Linear(1, 1)
    layer.register_state_dict_pre_hook(print)
    return layer


def with_activation(activation):
    return ad.nn.Sequential(ad.nn.TransformerEncoderLayer(4, 2, 8, activation=activation))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: {"model": with_activation(lambda x: x)}, r"'model\.0\.activation' is a lambda.*"),
        (lambda: [type("Local", (), {})()], r"Local at '0' is not what"),
        (lambda: {"f": open(os.devnull)}, r"TextIOWrapper at 'f'.*__getstate__"),  # noqa: SIM115
        (lambda: argparse.Namespace(it=(i for i in ())), r"generator at 'it'"),
        (lambda: threading.Lock(), "lock at 'the top'"),
        (lambda: {"a": [ad.Graph()]}, r"at 'a\.0' is adjoint's own.*not called \.pt"),
        (lambda: {"g": ad.Generator()}, r"Generator at 'g'.*get_state"),
        (lambda: {"m": hooked([].append)}, r"Linear at 'm\.0' has hooks.*no functions.*remove"),
        (lambda: {"m": hooked(lambda *x: None)}, r"'m\.0\._forward_hooks.* is a lambda"),
        (lambda: saved_by_hook(), "hooks of its state dict"),
        (lambda: ad.nn.LazyLinear(3), "LazyLinear at 'the top' has hooks"),
        (lambda: [ad.nn.UninitializedParameter()], "UninitializedParameter.*lazy"),
        (lambda: sys, "module"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_cannot_be_written_says_where(tmp_path, make, message):
    (tmp_path / "x.pt").write_bytes(b"old")
    with pytest.raises(TypeError, match=message):
        ad.save(make(), tmp_path / "x.pt")
    assert (tmp_path / "x.pt").read_bytes() == b"old" and os.listdir(tmp_path) == ["x.pt"]


def test_objects_that_nest_too_deeply(tmp_path):
    deep = argparse.Namespace()
    for _ in range(500):
        deep = argparse.Namespace(inner=deep)
    with pytest.raises(TypeError, match=r"deeply|more than 200"):
        ad.save(deep, tmp_path / "x.pt")


def test_a_module_that_restores_itself_needs_trust(tmp_path):
    path = tmp_path / "x.pt"
    ad.save(Restores(), path)
    with pytest.raises(ad.CheckpointError, match=r"__setstate__ of its own.*trust"):
        read(path)
    with trust(path):
        assert read(path).restored
    with safe_globals([Restores]):
        assert read(path).restored


def test_trust_is_for_one_path_and_ends(tmp_path):
    value = {"words": re.compile("a+")}
    for name in "ab":
        ad.save(value, tmp_path / f"{name}.pt")
    os.symlink(tmp_path / "a.pt", tmp_path / "link.pt")
    with trust(tmp_path / "link.pt"):
        assert read(tmp_path / "a.pt") == read(str(tmp_path / "link.pt")) == value
        with pytest.raises(ad.CheckpointError, match=r"re\._compile"):
            read(tmp_path / "b.pt")
        with pytest.raises(ad.CheckpointError, match=r"re\._compile"):
            ad.load(tmp_path / "a.pt")
        with pytest.raises(ad.CheckpointError, match=r"re\._compile"):
            read(io.BytesIO((tmp_path / "a.pt").read_bytes()))
    with pytest.raises(ad.CheckpointError, match=r"re\._compile.*trust\(path\)"):
        read(tmp_path / "a.pt")
    with pytest.raises(TypeError, match="expected a path"), trust(io.BytesIO()):
        pass
    with pytest.raises(ad.Unsupported, match="own reader"):
        ad.load(tmp_path / "a.pt", pickle_module=types.ModuleType("dill"))


# ---- the alias -----------------------------------------------------------------------------------

USERS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rnn = nn.LSTM(width, width, batch_first=True)
        self.layers = nn.ModuleList([nn.Linear(width, width), nn.BatchNorm1d(width)])
        self.activation = torch.tanh
    def forward(self, x):
        x = self.rnn(x)[0][:, -1]
        for layer in self.layers:
            x = layer(x)
        return self.activation(x)
"""
WRITES = """
import argparse, sys
import torch
from users import Net
torch.manual_seed(0)
net = Net(4).eval()
x = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
torch.save({"net": net, "args": argparse.Namespace(lr=0.1), "y": net(x).detach()}, sys.argv[1])
"""
READS = """
import sys
import torch
from users import Net
found = torch.load(sys.argv[1], weights_only=False)
x = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
assert type(found["net"]) is Net and found["args"].lr == 0.1
assert torch.allclose(found["net"](x), found["y"], atol=1e-6)
print(torch.__file__)
"""


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_files_of_programs_with_and_without_the_alias(tmp_path, first):
    for name, text in (("users", USERS), ("writes", WRITES), ("reads", READS)):
        (tmp_path / f"{name}.py").write_text(text)
    ways = {"ours": ["-m", "adjoint", "run", "--as-torch"], "theirs": []}
    for program, way in zip(("writes", "reads"), (first, *(set(ways) - {first})), strict=True):
        done = subprocess.run(
            [sys.executable, *ways[way], f"{program}.py", "x.pth"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert (done.stdout.strip() == torch.__file__) is (first == "ours")
