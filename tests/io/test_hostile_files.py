"""Files made to harm: mutated ones of each format, 10,000 in the sweep, and the attacks that have
names.

Each mutated file is read in a process of its own whose memory is limited and which is watched by an
audit hook: reading it may fail with CheckpointError or succeed, and may do nothing else.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import random
import struct
import subprocess
import sys
import tempfile
import tracemalloc
import types
import zipfile
import zlib
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import adjoint as ad
from adjoint import serialization
from adjoint.io import structure
from adjoint.io.pickle_writer import PickleWriter

from ..sweep import few_or_many

FEW, COUNT = 200, 10_000  # mutated files of each format, in `make test` and in the sweep
MEMORY = 256 << 20  # bytes that a process may take beyond what it has after its imports
ROOT = Path(__file__).parents[2]
TIME = 1200  # seconds until a process that reads them counts as hanging


# ---- the files to begin with ---------------------------------------------------------------------


def sample():
    """A small value with something of everything."""
    base = ad.arange(6.0).reshape(2, 3)
    return {
        "w": ad.nn.Parameter(base), "t": base.T, "b": ad.ones(3, dtype=ad.bfloat16),
        "more": [1, 2**40, 1.5, None, True, "text", b"bytes", (1, 2), {"a": ad.tensor([True])}],
    }  # fmt: skip


def written(value, name):
    """The bytes of the file that `ad.save` writes."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, name)
        ad.save(value, path)
        return Path(path).read_bytes()


def legacy(value):
    """A file as PyTorch wrote them before 1.6."""
    writer = PickleWriter()
    body = writer.dump(value)
    # The storages' ids had six parts: the last says whether one is a view of another.
    body = body.replace(pickle.TUPLE + pickle.BINPERSID, pickle.NONE + pickle.TUPLE + b"Q")
    facts = {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}
    parts = [pickle.dumps(v, 2) for v in (0x1950A86A20F9469CFC6C, 1001, facts)]
    parts += [body, pickle.dumps([str(i) for i in range(len(writer.arrays))], 2)]
    for array in writer.arrays:
        parts += [struct.pack("<q", array.size), array.tobytes()]
    return b"".join(parts)


def unpacked(data):
    """The members of a zip archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(members, method=zipfile.ZIP_STORED):
    """A zip archive with checksums that are right."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return file.getvalue()


def pt_file(text, storage=b"\0" * 24, name="archive"):
    """A .pt file with the pickle `text` and one storage."""
    return packed({f"{name}/data.pkl": text, f"{name}/data/0": storage, f"{name}/version": b"3\n"})


def safetensors_file(header, data=b"\0" * 64):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


# ---- mutations -----------------------------------------------------------------------------------

OPCODES = bytes(v[0] for k, v in vars(pickle).items()
                if k.isupper() and isinstance(v, bytes) and len(v) == 1)  # fmt: skip
NAMES = [b"os\nsystem", b"posix\nsystem", b"builtins\neval", b"__builtin__\nexec", b"torch\nload",
         b"builtins\ngetattr", b"subprocess\nPopen", b"torch\nBoolStorage", b"torch\nfloat64",
         b"adjoint.nn\nLinear", b"torch.nn.modules.linear\nLinear", b"collections\nOrderedDict",
         b"numpy.core.multiarray\n_reconstruct", b"numpy\ndtype", b"torch._utils\n_rebuild_tensor",
         b"torch._tensor\n_rebuild_from_type_v2", b"torch.nn.parameter\nParameter",
         b"torch.storage\nUntypedStorage", b"torch\nSize", b"builtins\nset",
         b"argparse\nNamespace", b"collections\ndefaultdict", b"pathlib\nPosixPath",
         b"torch.nn.functional\nrelu", b"torch.nn.modules.module\nModule", b"torch\nsave",
         b"torch.hub\nload", b"torch.nn.modules.container\nSequential"]  # fmt: skip
NUMBERS = [0, 1, 2, 7, 0x7F, 0x80, 0xFF, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40,
           2**62, 2**63 - 1, 2**64 - 1]  # fmt: skip
PATHS = ["../a", "/etc/passwd", "..\\a", "a/../../b", "C:\\x", "\0", ".", "..", "", "x" * 5000, "~",
         "//host/share", "link.safetensors", "../model.safetensors", "model/../x.safetensors",
         "model-00001-of-00002.safetensors\0.txt", "dir.safetensors"]  # fmt: skip


def mutate_bytes(rng, data):
    """Flip, cut, overwrite, insert, repeat or move bytes of `data`."""
    raw = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if not raw:
            break
        at, length = rng.randrange(len(raw)), rng.choice((1, 2, 4, 8, 40))
        kind = rng.randrange(8)
        if kind == 0:
            raw[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            raw[at] = rng.randrange(256)
        elif kind == 2:
            del raw[at:]
        elif kind == 3:
            del raw[at : at + length]
        elif kind == 4:
            raw[at : at + length] = bytes([rng.choice((0, 255))]) * length
        elif kind == 5:
            raw[at:at] = raw[at : at + length] * rng.choice((1, 3, 100))
        elif kind == 6:
            size = rng.choice((1, 2, 4, 8))
            number = rng.choice(NUMBERS) % 256**size
            raw[at : at + size] = number.to_bytes(size, rng.choice(("little", "big")))
        else:
            other = rng.randrange(len(raw))
            raw[at : at + length] = raw[other : other + length]
    return bytes(raw)


def mutate_pickle(rng, text):
    """Another opcode, name or number somewhere in a pickle; or plain damage."""
    kind = rng.randrange(6)
    at = rng.randrange(len(text))
    if kind == 0:
        return text[:at] + bytes([rng.choice(OPCODES)]) + text[at + 1 :]
    if kind == 1:
        return text[:at] + bytes([rng.choice(OPCODES)]) + text[at:]
    if kind == 2:  # a name in another one's place
        start = text.find(pickle.GLOBAL, at)
        end = text.find(b"\n", text.find(b"\n", start) + 1)
        if start >= 0 <= end:
            return text[: start + 1] + rng.choice(NAMES) + text[end:]
    if kind == 3:  # a call
        call = pickle.GLOBAL + rng.choice(NAMES) + b"\n" + rng.choice(
            (b"X\x02\0\0\0ls\x85R", b")R", b")\x81", b"}b", b"}R", b")\x81}b", b"0", b"Q", b"\x92",
             b"q\0h\0\x86R", b"(K\x01K\x02t\x81", b"Nb", b"o", b"(tR"))  # fmt: skip
        return text[:at] + call + text[at:]
    if kind == 4:  # a number in another one's place
        start = text.find(pickle.BININT, at)
        if start >= 0:
            number = struct.pack("<I", rng.choice(NUMBERS) % 2**32)
            return text[: start + 1] + number + text[start + 5 :]
    return mutate_bytes(rng, text)


def mutate_json(rng, value):
    """Another value somewhere in what JSON holds."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.2:
            return {k: v for k, v in value.items() if k != key} | {
                rng.choice((*PATHS, "w", "__metadata__")): value[key]
            }
        return {**value, key: mutate_json(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return [*value[:at], mutate_json(rng, value[at]), *value[at + 1 :]]
    return rng.choice(
        (None, True, -1, 0, 1, 2**31, 2**63, 2**64, -(2**63), 1e308, [], {}, [[]], "F64", "I8", "x",
         [0, 2**60], [2**60, 2**61], [-1, 5], {"data_offsets": [0, 8]}, *PATHS)
    )  # fmt: skip


class PytorchZip:
    name = "x.pt"

    def __init__(self):
        self.data = written(sample(), "x.pt")
        self.members = unpacked(self.data)

    def mutated(self, rng):
        if rng.random() < 0.4:
            return mutate_bytes(rng, self.data)
        members = dict(self.members)
        if rng.random() < 0.9:
            members["archive/data.pkl"] = mutate_pickle(rng, members["archive/data.pkl"])
        else:
            name = rng.choice(list(members))
            members[rng.choice((name, *filter(None, PATHS)))] = members.pop(name)
        return packed(members, rng.choice((0, 0, 0, zipfile.ZIP_DEFLATED)))


class PytorchObjects(PytorchZip):
    """Whole modules and records, read with `weights_only=False`."""

    @staticmethod
    def load(path):
        return ad.load(path, weights_only=False)

    def __init__(self):
        n = ad.nn
        layers = n.Sequential(n.Linear(2, 3), n.TransformerEncoderLayer(2, 1, 2), n.LSTM(2, 2))
        more = {"args": argparse.Namespace(a=[1], f=ad.tanh), "d": defaultdict(list, a=[1])}
        self.data = written({"m": layers, "p": Path("a/b"), "s": slice(1, 2), **more}, "x.pt")
        self.members = unpacked(self.data)


class PytorchLegacy:
    name = "x.pt"

    def __init__(self):
        self.data = legacy(sample())

    def mutated(self, rng):
        if rng.random() < 0.4:
            return mutate_bytes(rng, self.data)
        return mutate_pickle(rng, self.data)


class Npz:
    name = "x.npz"

    def __init__(self):
        arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.array(True), "c": np.ones(3, ">i4")}
        self.data = []
        for save in (np.savez, np.savez_compressed):
            file = io.BytesIO()
            save(file, **arrays)
            self.data.append(file.getvalue())

    def mutated(self, rng):
        data = rng.choice(self.data)
        if rng.random() < 0.5:
            return mutate_bytes(rng, data)
        members = unpacked(data)
        name = rng.choice(list(members))
        if rng.random() < 0.5:
            members[name] = mutate_bytes(rng, members[name])
        else:
            old = rng.choice((b"(2, 3)", b"<f8", b"False", b"()", b"'descr'", b"|b1", b">i4"))
            new = rng.choice(
                (
                    b"(2**9, 3)",
                    b"|O8",
                    b"(99999999999,)",
                    b"()",
                    b"(-1, 3)",
                    b"__name__",
                    b"open('x')",
                    b"[(" * 50,
                    b"True",
                    b"<f2",
                    b"<U9",
                    b"1e9",
                )
            )
            text = members[name]
            members[name] = text.replace(old, new)[: len(text)].ljust(len(text), b"\0")
        return packed(members, rng.choice((0, zipfile.ZIP_DEFLATED)))


class Own:
    """The format of `ad.save`: safetensors with the structure as JSON in its metadata."""

    name = "x.safetensors"

    def __init__(self):
        self.data = written(sample(), self.name)
        (size,) = struct.unpack_from("<Q", self.data)
        self.header = json.loads(self.data[8 : 8 + size])
        self.tail = self.data[8 + size :]

    def mutated(self, rng):
        if rng.random() < 0.4:
            return mutate_bytes(rng, self.data)
        header = dict(self.header)
        if rng.random() < 0.7:
            text = json.dumps(mutate_json(rng, json.loads(header["__metadata__"]["adjoint"])))
            if rng.random() < 0.2:
                text = mutate_bytes(rng, text.encode()).decode(errors="replace")
            header["__metadata__"] = {
                "adjoint_version": "1", "adjoint": text,
                "adjoint_crc32": str(zlib.crc32(text.encode())),
            }  # fmt: skip
        else:
            header = mutate_json(rng, header)
        return safetensors_file(header, self.tail)


class GraphFile(Own):
    """What `Graph.save` writes."""

    name = "x.graph"
    load = staticmethod(ad.Graph.load)

    def __init__(self):
        graph, file = ad.Graph(seed=0), io.BytesIO()
        x = graph.input(np.ones((2, 3), np.float32), "x", requires_grad=True)
        with graph:
            y = ad.nn.Linear(3, 4)(x) * ad.rand(2, 4) + graph.input((4,), "unset")
        (g,) = ad.autograd.grad(graph.name(x[0:1].sort(1)[0].std(1).sum(), "y"), (x,))
        graph.name(g, "g")
        graph.forward(graph["y"], g)
        graph.name(y, "unread")
        graph.save(file)
        self.data = file.getvalue()
        (size,) = struct.unpack_from("<Q", self.data)
        self.header = json.loads(self.data[8 : 8 + size])
        self.tail = self.data[8 + size :]


class Safetensors(Own):
    """What other tools write."""

    def __init__(self):
        with tempfile.TemporaryDirectory() as directory:
            ad.io.save_sharded({"a": ad.arange(6.0), "b": ad.ones(2, 3).half()}, directory)
            self.data = Path(directory, "model.safetensors").read_bytes()
        (size,) = struct.unpack_from("<Q", self.data)
        self.header = json.loads(self.data[8 : 8 + size])
        self.tail = self.data[8 + size :]

    def mutated(self, rng):
        if rng.random() < 0.5:
            return mutate_bytes(rng, self.data)
        return safetensors_file(mutate_json(rng, self.header), self.tail)


class Index:
    """The index of sharded safetensors; its shards lie beside it, with traps around them."""

    name = "model.safetensors.index.json"

    def __init__(self):
        os.makedirs("dir.safetensors", exist_ok=True)
        ad.io.save_sharded({"a": ad.ones(4), "b": ad.ones(4)}, ".", max_shard_size=16)
        outside = Path(tempfile.mkdtemp(), "x.safetensors")
        outside.write_bytes(Path("model-00001-of-00002.safetensors").read_bytes())
        os.symlink(outside, "link.safetensors")
        self.data = Path(self.name).read_bytes()

    def mutated(self, rng):
        if rng.random() < 0.3:
            return mutate_bytes(rng, self.data)
        return json.dumps(mutate_json(rng, json.loads(self.data))).encode()


FORMATS = {
    "pytorch zip": PytorchZip, "pytorch objects": PytorchObjects, "pytorch legacy": PytorchLegacy,
    "safetensors": Safetensors, "sharded index": Index, "npz": Npz, "adjoint": Own,
    "graph": GraphFile,
}  # fmt: skip


# ---- the watched process -------------------------------------------------------------------------

_HARMLESS = (
    "object.__getattr__", "sys._getframe", "builtins.id", "os.listdir", "os.scandir", "os.path",
    "fcntl", "gc.", "code.__new__", "array.__new__",
    "compile",  # of a literal, by ast.literal_eval, which runs nothing
)  # fmt: skip


class Watch:
    """Notes what a program does besides reading, while it is armed."""

    def __init__(self):
        self.armed = False
        self.seen = []
        sys.addaudithook(self.audit)

    def audit(self, event, arguments):
        if not self.armed or event.startswith(_HARMLESS):
            return
        writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        if event == "open" and not arguments[2] & writes:
            return
        self.seen.append((event, repr(arguments)[:200]))


def process(name, directory, count):
    """Read mutated files of one format; prints how many were refused and how many were read."""
    import resource
    import warnings

    warnings.simplefilter("ignore")  # NumPy's, about strange numbers
    os.chdir(directory)
    form = FORMATS[name]()
    path = os.path.join(directory, form.name)
    Path(path).write_bytes(form.data[0] if isinstance(form.data, list) else form.data)
    load = getattr(form, "load", ad.load)
    load(path)
    ad.load(io.BytesIO(Safetensors().data))  # imports what is needed
    b"x".decode("cp437")  # likewise, for zipfile
    with pytest.raises(ad.CheckpointError):
        Path(path).write_bytes(b"PK\x03\x04")
        ad.load(path)
    before = sorted(os.listdir(directory))
    modules = set(sys.modules)
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    watch = Watch()
    rng = random.Random(name)
    refused = read = 0
    for number in range(int(count)):
        data = form.mutated(rng)
        Path(path).write_bytes(data)
        watch.armed = True
        try:
            load(path)
            read += 1
        except ad.CheckpointError as error:
            assert not isinstance(error.__cause__, MemoryError), (number, error)
            assert len(str(error)) < 10_000, (number, len(str(error)))
            refused += 1
        finally:
            watch.armed = False
        assert not watch.seen, (number, watch.seen)
    assert sorted(os.listdir(directory)) == before
    assert set(sys.modules) == modules, set(sys.modules) - modules
    print(refused, read)


def test_the_watch_sees(tmp_path):
    program = (
        "import os, sys; from tests.io.test_hostile_files import Watch; watch = Watch()\n"
        "watch.armed = True; open(sys.argv[1]).close(); assert not watch.seen, watch.seen\n"
        "open(sys.argv[2], 'w'); os.system('true'); import wave; eval('1')\n"
        "os.remove(sys.argv[2])\n"
        "watch.armed = False; print(*{event for event, _ in watch.seen})"
    )
    command = [sys.executable, "-c", program, __file__, str(tmp_path / "x")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) >= {"open", "os.system", "import", "exec", "os.remove"}


@pytest.fixture
def memory():
    """A directory in memory where the system has one: disks flush files that are overwritten."""
    shared = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as path:
        yield path


@few_or_many("count", FEW, COUNT)
@pytest.mark.parametrize("name", FORMATS)
def test_mutated_files(name, count, memory):
    pytest.importorskip("resource")  # Windows has no limits
    program = "import sys; from tests.io.test_hostile_files import process; process(*sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", program, name, memory, str(count)],
        cwd=ROOT, capture_output=True, text=True, timeout=TIME,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    refused, read = map(int, done.stdout.split())
    assert refused + read == count and refused > count / 3


# ---- attacks with names --------------------------------------------------------------------------


def load_pickle(text, **more):
    return ad.load(io.BytesIO(pt_file(b"\x80\x02" + text + b".", **more)))


def text_of(string):
    raw = string.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def refuse(text, match, **more):
    """The pickle is refused, with little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(ad.CheckpointError, match=match) as caught:
            load_pickle(text, **more)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert not isinstance(caught.value.__cause__, MemoryError)


@pytest.mark.parametrize(
    "name",
    [
        "os\nsystem",
        "posix\nsystem",
        "builtins\neval",
        "nt\nsystem",
        "__builtin__\neval",
        "subprocess\nPopen",
        "commands\ngetoutput",
        "importlib\nimport_module",
        "os.path\njoin",
        "runpy\nrun_path",
    ],
)
def test_programs_are_never_found(name):
    call = text_of("touch /tmp/harm") + b"\x85"
    refuse(b"c" + name.encode() + b"\n" + call + b"R", "no file may use")
    module, attribute = name.split("\n")
    refuse(text_of(module) + text_of(attribute) + b"\x93" + call + b"R", "no file may use")


@pytest.mark.parametrize(
    ("text", "operation"),
    [
        (b"(S'ls'\nios\nsystem\n", "STRING"), (b"(ios\nsystem\n", "INST"),
        (b"(cos\nsystem\nS'x'\no", "no file may use|OBJ"), (b"\x82\x01", "EXT1"),
        (b"\x83\x01\x00", "EXT2"), (b"\x84\x01\0\0\0", "EXT4"), (b"Pid\n", "PERSID"),
        (b"F1.5\n", "FLOAT"), (b"I1\n", "INT"), (b"L1L\n", "LONG"), (b"V1\n", "UNICODE"),
        (b"\x8b\xff\xff\xff\x7f", "LONG4"), (b"N2", "DUP"), (b"N0", "POP"), (b"(1", "POP_MARK"),
        (b"\x97", "NEXT_BUFFER"), (b"\x98", "READONLY_BUFFER"), (b")}\x92", "NEWOBJ_EX"),
    ],
)  # fmt: skip
def test_operations_that_data_do_not_need(text, operation):
    refuse(text, operation)


TENSOR = (b"ctorch._utils\n_rebuild_tensor_v2\n((" + text_of("storage") + b"ctorch\nFloatStorage\n"
          + text_of("0") + text_of("cpu") + b"K\x06tQ%stR")  # fmt: skip
EMPTY = b"ccollections\nOrderedDict\n)R"


def number(value):
    return b"\x8a\x0a" + value.to_bytes(10, "little", signed=True)


@pytest.mark.parametrize(
    "numbers",
    [
        (1, (6,), (1,)), (0, (7,), (1,)), (0, (2, 3), (4, 1)), (-1, (1,), (1,)), (0, (-1,), (1,)),
        (0, (2,), (-1,)), (2**62, (1,), (1,)), (0, (2**62,), (1,)), (0, (2**61, 2**61), (1, 1)),
        (0, (2,), (2**61,)), (0, (2, 2), (1,)), (0, (1,) * 65, (1,) * 65), (6, (1,), (0,)),
    ],
)  # fmt: skip
def test_tensors_outside_their_storage(numbers):
    offset, size, stride = numbers
    parts = number(offset)
    for values in (size, stride):
        parts += b"(" + b"".join(map(number, values)) + b"t"
    refuse(TENSOR % (parts + b"\x89" + EMPTY), "tensor")


def test_the_bits_of_a_tensor():
    def text(metadata, parts=b"(K\x06t(K\x01t"):
        return TENSOR % (number(0) + parts + b"\x89" + EMPTY + metadata)

    for metadata in (
        b"K\x01",
        b"]",
        b"}" + text_of("neg") + b"K\x01s",
        b"}" + text_of("conj") + b"Ns",
    ):
        refuse(text(metadata), "metadata")
    refuse(text(b"}" + text_of("conj") + b"\x88s"), "bits")  # of a real tensor
    negative = b"}" + text_of("neg") + b"\x88s"
    refuse(text(negative, b"(K\x07t(K\x01t"), "outside")
    storage = np.arange(6, dtype="<f4").tobytes()
    huge = load_pickle(text(negative, b"(" + number(2**40) + b"t(K\0t"), storage=storage)
    assert huge.shape == (2**40,) and huge.stride() == (0,)  # takes no memory of that size
    off = b"}" + text_of("neg") + b"\x89s"
    assert load_pickle(text(off), storage=storage).tolist() == [0, 1, 2, 3, 4, 5]
    assert load_pickle(text(negative), storage=storage).tolist() == [0, -1, -2, -3, -4, -5]


def test_a_tensor_inside_its_storage_is_read():
    parts = number(2) + b"(K\x02t(K\x02t\x89" + EMPTY
    assert load_pickle(TENSOR % parts, storage=np.arange(6, dtype="<f4").tobytes()).tolist() == [
        2,
        4,
    ]


@pytest.mark.parametrize(
    "change",
    [(b"K\x06", b"K\x07"), (b"K\x06", number(2**60)), (b"K\x06", number(-1)), (b"K\x06", b"N"),
     (text_of("storage"), text_of("module")), (text_of("0"), text_of("../0")), (b"Q", b"0NQ"),
     (b"FloatStorage", b"DoubleStorage"), (b"FloatStorage", b"float32"), (b"Q", b"Q\x85"),
     (text_of("0"), b"]"), (b"\x89", b"K\x01"), (b"\x89", b"N")],
)  # fmt: skip
def test_malformed_storages(change):
    text = TENSOR % (b"K\0K\x06\x85K\x01\x85\x89" + EMPTY)
    load_pickle(text)
    refuse(text.replace(*change), None)


def test_integers_cannot_require_grad():
    text = TENSOR % (b"K\0K\x03\x85K\x01\x85\x88" + EMPTY)
    with pytest.raises(ad.AdjointError, match="floating point"):
        load_pickle(text.replace(b"FloatStorage", b"LongStorage").replace(b"K\x06", b"K\x03"))


def test_containers_that_contain_themselves():
    refuse(b"]q\0h\0a", "contains itself")
    refuse(b"}q\0Nh\0s", "contains itself")
    refuse(b"]q\0h\0\x85q\x01ah\x01", "contains itself")
    refuse(EMPTY + b"q\0Nh\0s", "contains itself")


def test_modules_that_contain_themselves_or_nothing():
    linear = b"ctorch.nn.modules.linear\nLinear\n)\x81"
    state = b"}" + text_of("_modules") + b"}" + text_of("x") + b"h\0ssb"
    with serialization.safe_globals([ad.nn.Linear]):
        refuse(linear + b"q\0" + state, "contains itself")
        refuse(linear, "without its state")
        refuse(linear + b"}" + text_of("_modules") + b"}" + text_of("x") + b"K\x01ssb", "modules")
        refuse(linear + b"}" + text_of("__class__") + b"K\x01sb", "replaces")
        refuse(linear + b"]b", "no dict")


@pytest.mark.parametrize("value", [{"device": "cpo"}, {"device": "cpu:x"}, {"device": ""}])
def test_devices_that_nobody_has_named(value):
    with pytest.raises(ad.CheckpointError, match="device"):
        structure.decode(value, None)


def test_values_that_unfold_without_end():
    laughs = b"]q\0" + b"".join(
        b"](" + b"h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1]) for i in range(60)
    )
    refuse(b"(" + laughs + b"t", "parts")


DOUBLED = b")" + b"q\0h\0\x86" * 60  # a pair of the same pair of the same ...: 2**60 parts


@pytest.mark.parametrize(
    "text",
    [
        DOUBLED + b"Q",
        b"c_codecs\nencode\n" + DOUBLED + b"\x85R",
        b"c__builtin__\nbytearray\n" + DOUBLED + b"\x85R",
        b"ctorch\nSize\n" + DOUBLED + b"\x85R",
        b"ctorch\ndevice\n" + DOUBLED + b"\x85R",
        b"cnumpy\ndtype\n" + DOUBLED + b"\x85R",
        b"c__builtin__\ncomplex\n" + DOUBLED + b"\x85R",
    ],
)
def test_values_that_take_forever_to_show(text):
    refuse(text, "a tuple")


def test_values_that_calls_are_given_without_end():
    again = b"h\1h\0\x85R" * 300
    raw = b"B" + struct.pack("<I", 10**6) + b"a" * 10**6 + b"q\0"
    refuse(b"](c__builtin__\nbytearray\nq\1" + raw + b"\x85R" + again + b"e", "without end")
    many = b"]q\0(" + b"K\1" * 10**4 + b"e"
    refuse(b"](c__builtin__\nset\nq\1" + many + b"\x85R" + again + b"e", "without end")
    state = (
        b"K\1J" + struct.pack("<i", 10**6) + b"\x85cnumpy\ndtype\nX\2\0\0\0u1K\0K\1\x87R\x89" + raw
    )
    made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85C\1btR"
    refuse(b"](" + made + b"(" + state + b"tq\2b" + (made + b"h\2b") * 30 + b"e", "without end")


def test_keys_that_take_forever_to_hash():
    doubled = b"K\x01" + b"q\0h\0\x86" * 60
    refuse(b"}" + doubled + b"Ns", "64 parts")
    refuse(b"\x8f(" + doubled + b"\x90", "64 parts")
    refuse(b"(" + doubled + b"\x91", "64 parts")
    refuse(b"c__builtin__\nset\n]" + doubled + b"a\x85R", "64 parts")
    refuse(b"}\x8a\xff" + b"\x01" * 255 + b"Ns", "64 bits")
    refuse(b"}]Ns", "key")


def test_depth():
    refuse(b"]" * 10_000 + b"a" * 9_999, "nests|200")
    refuse(b"(" * 50_000, "lacks|mark|pop")
    refuse(b")" + b"\x85" * 10_000, "nests|200")


def test_memo_and_stack():
    assert load_pickle(b"Nr\xff\xff\xff\xff") is None
    refuse(b"j\xff\xff\xff\xff", "lacks")
    refuse(b"r\0\0\0\0", "lacks")
    for operation in b"ate\x85\x86\x87sub\x81RQ\x90\x91\x93\x94":
        refuse(
            bytes([operation]), "lacks|malformed|without|ends early|no allowed|sets|appends|adds"
        )


def test_operations_are_counted(monkeypatch):
    monkeypatch.setattr("adjoint.io.restricted_pickle.MAX_OPERATIONS", 1000)
    refuse(b"N" * 2000, "1000 operations")


@pytest.mark.parametrize("code", [b"X\xff\xff\xff\xff", b"B\xff\xff\xff\xff", b"\x8d" + b"\xff" * 8,
                                  b"\x8e" + b"\xff" * 8, b"\x96" + b"\xff" * 7 + b"\x7f",
                                  b"T\xff\xff\xff\xff", b"\x95" + b"\xff" * 8])  # fmt: skip
def test_lengths_beyond_the_file(code):
    refuse(code, "ends early|cut short")


def test_state_is_set_on_nothing_else():
    refuse(EMPTY + b"}" + text_of("keys") + b"K\x01sb", "attributes of an OrderedDict")
    refuse(b"]}b", "sets the state of a builtins.list")
    refuse(b"ctorch\nfloat32\n}b", "sets the state")
    text = TENSOR % (b"K\0K\x06\x85K\x01\x85\x89" + EMPTY)
    refuse(text + b"}b", "sets the state of a adjoint")
    for name in ("_data", "backward", "__class__", "grad"):
        kind = (
            b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\n"
            b"ctorch\nTensor\n(" + text.split(b"_v2\n(", 1)[1][: -len(b"tR")] + b"t"
            b"}" + text_of(name) + b"K\x01stR"
        )
        refuse(kind, "own attribute")


def test_allowed_classes_are_the_only_ones():
    class Thing:
        pass

    text = b"cmine\nThing\n)\x81}" + text_of("a") + b"K\x01sb"
    refuse(text, r"mine\.Thing.*safe_globals")
    with serialization.safe_globals([(Thing, "mine.Thing")]):
        assert load_pickle(text).a == 1
        refuse(b"cmine\nOther\n)\x81", r"mine\.Other")
        refuse(b"K\x01)\x81", "no allowed name")
        refuse(b"cmine\nThing\n)\x81)R", "no allowed name")
    refuse(text, r"mine\.Thing")


# ---- modules and records, by weights_only=False --------------------------------------------------


class Trap(ad.nn.Module):
    """A module whose code must not run."""

    def __new__(cls, *arguments):
        raise AssertionError("called")

    def __init__(self, *arguments):
        raise AssertionError("called")

    def __setstate__(self, state):
        raise AssertionError("called")

    def method(self):
        pass


class Plain:
    """No module."""


class Lazy(types.ModuleType):
    """A module that would import what it is asked for."""

    def __getattr__(self, name):
        raise AssertionError("called")


def load_objects(text, **more):
    return ad.load(io.BytesIO(pt_file(b"\x80\x02" + text + b".", **more)), weights_only=False)


def refuse_objects(text, match):
    with pytest.raises(ad.CheckpointError, match=match):
        load_objects(text)


HERE = __name__.encode()
TRAP = b"c" + HERE + b"\nTrap\n"
LINEAR = b"ctorch.nn.modules.linear\nLinear\n"
REGISTRIES = b"".join(text_of(n) + b"}" for n in ("_modules", "_parameters", "_buffers"))
STATE = b"}(" + REGISTRIES + b"u"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (TRAP + b")R", "calls a .*no allowed name"),
        (TRAP + b"K\x01\x85\x81", "no allowed name"),
        (TRAP + b")\x81" + STATE + b"b", "__setstate__ of its own"),
        (LINEAR + b"K\1K\1\x86R", "no allowed name"),
        (LINEAR + b"K\1K\1\x86\x81", "no allowed name"),
        (b"c" + HERE + b"\nPlain\n)\x81", "Plain, and only state dicts"),
        (b"c" + HERE + b"\nload_objects\nN\x85R", "load_objects"),
        (b"cnot.imported\nNet\n)\x81", r"import not\.imported first"),
        (b"ctests.io.trap\nload\n)\x81", r"trap\.load"),
        (b"c__builtin__\ngetattr\n(" + TRAP + text_of("__init__") + b"tR", "__init__"),
        (b"c__builtin__\ngetattr\n(" + TRAP + text_of("method") + b"tR", r"Trap\.method"),
        (b"c__builtin__\ngetattr\n(cargparse\nNamespace\n" + text_of("mro") + b"tR", "looks up"),
        (b"c__builtin__\ngetattr\n(ctorch._C\n_VariableFunctionsClass\n" + text_of("load")
         + b"tR", "load"),
        (b"ctorch\nload\n", r"torch\.load"), (b"ctorch\nsave\n", r"torch\.save"),
        (b"ctorch\ncompile\n", r"torch\.compile"), (b"ctorch.hub\nload\n", r"torch\.hub\.load"),
        (b"ctorch\nset_default_device\n", "set_default_device"),
        (b"ctorch.nn.functional\nrelu\n)R", "no allowed name"),
        (b"ctorch.nn.functional\nrelu\n}b", "sets the state"),
        (LINEAR + b"}b", "sets the state of a builtins.type"),
        (b"cargparse\nNamespace\n)\x81}" + text_of("__class__") + b"K\1sb", "attributes"),
        (b"cargparse\nNamespace\n)\x81K\1b", "attributes"),
        (b"cargparse\nNamespace\n)\x81q\0}" + text_of("a") + b"h\0sb", "contains itself"),
        (LINEAR + b")\x81", "without its state"),
        (LINEAR + b")\x81}(" + text_of("_call_hooks") + b"}ub", r"replaces Linear\._call_hooks"),
        (LINEAR + b")\x81}(" + text_of("forward") + b"Nub", r"replaces Linear\.forward"),
        (LINEAR + b")\x81}(" + text_of("_forward_hooks") + b"}K\1K\1sub", "forward hooks"),
        (LINEAR + b")\x81}" + text_of("_modules") + b"}" + text_of("a") + LINEAR + b"ssb",
         "modules"),
        (LINEAR + b")\x81q\0}(" + text_of("_modules") + b"}" + text_of("x") + b"h\0sub",
         "contains itself"),
        (b"ccollections\ndefaultdict\n" + LINEAR + b"\x85R", "defaultdict makes"),
        (b"ccollections\ndefaultdict\n(cargparse\nNamespace\ntR", "defaultdict makes"),
        (b"cpathlib\nPosixPath\nK\1\x85R", "path is made"),
        (b"c__builtin__\nslice\n(NNK\1tR", None),
        (b"c__builtin__\nslice\n(N]K\1tR", "slice is made"),
        (b"ccollections\ndeque\n]K\1a\x85R", None),
        (b"ccollections\ndeque\nK\1\x85R", "deque is made"),
        (b"ccollections\ndeque\n]" + text_of("x") + b"\x86R", "deque is made"),
        (b"c__builtin__\nxrange\nK\1\x85R", None),
        (b"c__builtin__\nxrange\n]\x85R", "range is made"),
        (b"c__builtin__\nxrange\n(K\1K\1K\0tR", "range is made"),
        (b"cdecimal\nDecimal\n" + text_of("1e999999999999") + b"\x85R", None),
        (b"cdecimal\nDecimal\n" + text_of("no") + b"\x85R", "Decimal is made"),
        (b"cdecimal\nDecimal\n" + text_of("1" * 5000) + b"\x85R", "Decimal is made"),
        (b"cfractions\nFraction\n" + text_of("1/3") + b"\x85R", None),
        (b"cfractions\nFraction\n" + text_of("1e999999999") + b"\x85R", "Fraction is made"),
        (b"cfractions\nFraction\nK\1K\0\x86R", "Fraction is made"),
        (b"cdatetime\ndatetime\n" + text_of("x") + b"\x85R", "datetime is made"),
        (b"cdatetime\ndate\n(K\1K\1K\xfftR", "date is made"),
        (b"cdatetime\ntimezone\ncdatetime\ntimedelta\n)R" + text_of("x") * 2 + b"\x87R",
         "timezone is made"),
        (b"cdatetime\ntimedelta\nN\x85R", "timedelta is made"),
        (b"cos\nsystem\n", "no file may use"), (b"c__builtin__\neval\n", "no file may use"),
        (b"c__builtin__\nopen\n", "no file may use"), (b"cio\nopen\n", r"io\.open"),
        (b"cshutil\nrmtree\n", r"shutil\.rmtree"), (b"cfunctools\npartial\n", r"partial"),
    ],
)  # fmt: skip
def test_modules_and_records_that_attack(monkeypatch, text, match):
    monkeypatch.setitem(sys.modules, "tests.io.trap", Lazy("tests.io.trap"))
    if match is None:
        load_objects(text)
    else:
        refuse_objects(text, match)
    with pytest.raises(ad.CheckpointError):  # by default, none of them
        load_pickle(text)


def test_deep_modules_are_refused_or_read():
    link = LINEAR + b")\x81}(" + text_of("_modules") + b"}" + text_of("x")
    for depth in (20, 190, 201, 3000):
        text = link * depth + LINEAR + b")\x81" + STATE + b"b" + b"sub" * depth
        if depth < 200:
            assert len(list(load_objects(text).modules())) == depth + 1
        else:
            refuse_objects(text, r"nests|more than")


# ---- archives ------------------------------------------------------------------------------------

ONE = b"\x80\x02K\x01."


def test_member_names_that_lead_elsewhere():
    for name in ("../data.pkl", "/abs/data.pkl", "a/../data.pkl", "a\\data.pkl", "C:/data.pkl"):
        with pytest.raises(ad.CheckpointError, match="called"):
            ad.load(io.BytesIO(packed({name: ONE, "archive/data.pkl": ONE})))


def test_archives_of_other_kinds():
    for members, message in [
        ({"readme": b""}, r"no data\.pkl"),
        ({"a/data.pkl": ONE, "b/data.pkl": ONE}, r"no data\.pkl in its one folder"),
        ({"a/data.pkl": ONE, "a/constants.pkl": ONE}, "TorchScript"),
        ({"a/data.pkl": ONE, "a/byteorder": b"middle"}, "byte order"),
        ({"a.npy": b"x", "b": b""}, "no array"),
    ]:
        with pytest.raises(ad.CheckpointError, match=message):
            ad.load(io.BytesIO(packed(members)))
    with pytest.raises(ad.CheckpointError, match="PyTorch did not write"):
        ad.load(io.BytesIO(pickle.dumps([1])))


def test_compressed_and_encrypted_members_are_refused():
    bomb = packed({"archive/data.pkl": ONE, "archive/data/0": b"\0" * 10_000_000}, 8)
    assert len(bomb) < 20_000
    with pytest.raises(ad.CheckpointError, match="compressed"):
        ad.load(io.BytesIO(bomb))
    plain = bytearray(packed({"archive/data.pkl": ONE}))
    plain[plain.rfind(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(ad.CheckpointError, match="encrypted"):
        ad.load(io.BytesIO(plain))


def test_members_may_not_overlap_or_repeat():
    data = bytearray(pt_file(ONE, b"\0" * 1000))
    entry = data.rfind(b"PK\x01\x02")
    first = data.find(b"PK\x01\x02")
    data[entry + 42 : entry + 46] = data[first + 42 : first + 46]  # both at the first one's place
    with pytest.raises(ad.CheckpointError, match=r"overlap|where it says"):
        ad.load(io.BytesIO(data))
    with pytest.warns(UserWarning, match="Duplicate"):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("archive/data.pkl", ONE)
            archive.writestr("archive/data.pkl", ONE)
    with pytest.raises(ad.CheckpointError, match="twice"):
        ad.load(io.BytesIO(file.getvalue()))


def test_a_member_inside_of_another():
    inner = packed({"archive/data/0": b"\0" * 24})
    header = inner[: inner.find(b"PK\x01\x02")]
    outer = packed({"archive/data.pkl": ONE + header})
    place = outer.find(header)
    start = outer.find(b"PK\x01\x02")
    entry = bytearray(inner[inner.find(b"PK\x01\x02") : inner.rfind(b"PK\x05\x06")])
    entry[42:46] = struct.pack("<L", place)
    directory = outer[start : outer.rfind(b"PK\x05\x06")] + entry
    end = struct.pack("<4s4HLLH", b"PK\x05\x06", 0, 0, 2, 2, len(directory), start, 0)
    with pytest.raises(ad.CheckpointError, match="overlap"):
        ad.load(io.BytesIO(outer[:start] + directory + end))


def test_a_member_inside_of_the_directory():
    data = packed({"archive/data.pkl": ONE, "archive/data/0": b"\0" * 24})
    start, end = data.find(b"PK\x01\x02"), data.rfind(b"PK\x05\x06")
    hidden = packed({"archive/data/1": b"\0" * 24})
    header = hidden[: hidden.find(b"PK\x01\x02")]
    entry = bytearray(hidden[hidden.find(b"PK\x01\x02") : hidden.rfind(b"PK\x05\x06")])
    entry[42:46] = struct.pack("<L", end + len(entry))
    entry[32:34] = struct.pack("<H", len(header))  # its comment, which holds the member
    directory = data[start:end] + entry + header
    last = struct.pack("<4s4HLLH", b"PK\x05\x06", 0, 0, 3, 3, len(directory), start, 0)
    with pytest.raises(ad.CheckpointError, match="overlap"):
        ad.load(io.BytesIO(data[:start] + directory + last))


def test_sizes_of_64_bits_are_read_and_checked():
    def large(size):
        text, name, all32 = ONE, b"archive/data.pkl", 2**32 - 1
        extra = struct.pack("<HHQQQ", 1, 24, size, size, 0)
        crc = zlib.crc32(text)
        local = struct.pack("<4s5H3L2H", b"PK\x03\x04", 45, 0, 0, 0, 0, crc, 5, 5, len(name), 0)
        body = local + name + text
        numbers = 0, 0, 0, 0, crc, all32, all32, len(name), len(extra), 0, 0, 0, 0, all32
        entry = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 45, 45, *numbers) + name + extra
        end64 = struct.pack(
            "<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, len(entry), len(body)
        )
        locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, len(body) + len(entry), 1)
        end = struct.pack("<4s4HLLH", b"PK\x05\x06", 0, 0, 1, 1, all32, all32, 0)
        return io.BytesIO(body + entry + end64 + locator + end)

    assert ad.load(large(len(ONE))) == 1
    for size in (6, 2**32, 2**63, 2**64 - 1):
        with pytest.raises(ad.CheckpointError, match=r"outside|overlap"):
            ad.load(large(size))


def test_lists_of_members_are_bounded():
    entries = b"PK\x01\x02" + b"\0" * (17 << 20)
    end = struct.pack("<4s4HLLH", b"PK\x05\x06", 0, 0, 1, 1, len(entries), 0, 0)
    file = io.BytesIO(entries + end)
    tracemalloc.start()
    try:
        with pytest.raises(ad.CheckpointError, match="list of members has 178"):
            ad.load(file)
        assert tracemalloc.get_traced_memory()[1] < 24 << 20  # the copy of what the file gave
    finally:
        tracemalloc.stop()


def test_altered_data_are_noticed(tmp_path):
    ad.save({"a": ad.ones(100)}, tmp_path / "x.pt")
    data = bytearray((tmp_path / "x.pt").read_bytes())
    data[data.find(np.ones(100, np.float32).tobytes()) + 5] ^= 1
    with pytest.raises(ad.CheckpointError, match="checksum"):
        ad.load(io.BytesIO(data))


def test_legacy_files_cannot_promise_what_they_lack():
    data = legacy([ad.ones(5)])
    assert ad.load(io.BytesIO(data))[0].tolist() == [1] * 5
    small, large = (
        pickle.BININT + struct.pack("<i", 5),
        pickle.BININT + struct.pack("<i", 2**31 - 1),
    )
    with pytest.raises(ad.CheckpointError, match="promised"):
        ad.load(io.BytesIO(data.replace(small, large)))
    with pytest.raises(ad.CheckpointError, match="elements"):
        ad.load(io.BytesIO(data.replace(struct.pack("<q", 5), struct.pack("<q", 6))))
    with pytest.raises(ad.CheckpointError, match="does not match"):
        ad.load(io.BytesIO(data.replace(pickle.dumps(["0"], 2), pickle.dumps(["1"], 2))))


# ---- indexes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [p for p in PATHS if p not in ("link.safetensors", "dir.safetensors")]
)
def test_an_index_stays_in_its_directory(tmp_path, name):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(ad.CheckpointError, match="beside their index"):
        ad.load(tmp_path)


def test_links_that_lead_out_of_the_directory(tmp_path):
    home, outside = tmp_path / "home", tmp_path / "outside"
    ad.io.save_sharded({"a": ad.ones(2)}, outside)
    home.mkdir()
    os.symlink(outside / "model.safetensors", home / "x.safetensors")
    index = home / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "x.safetensors"}}))
    with pytest.raises(ad.CheckpointError, match="leads out"):
        ad.load(home)
    os.symlink(outside / "model.safetensors", home / "model.safetensors")
    index.unlink()
    with pytest.raises(ad.CheckpointError, match="leads out"):
        ad.load(home)


def test_links_of_hugging_face_s_cache_are_followed(tmp_path):
    snapshot, blobs = tmp_path / "models--x" / "snapshots" / "abc", tmp_path / "models--x" / "blobs"
    ad.io.save_sharded({"a": ad.ones(2)}, blobs)
    snapshot.mkdir(parents=True)
    os.rename(blobs / "model.safetensors", blobs / "5f3c")
    os.symlink("../../blobs/5f3c", snapshot / "model.safetensors")
    assert ad.load(snapshot)["a"].tolist() == [1, 1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"weight_map": []}',
        '{"weight_map": {}}',
        "[" * 99999,
        '{"weight_map": {"a": 1}}',
        '{"weight_map": {"a": null}}',
        "\xff",
    ],
)
def test_malformed_indexes(tmp_path, text):
    (tmp_path / "model.safetensors.index.json").write_bytes(text.encode("latin1"))
    with pytest.raises(ad.CheckpointError, match=r"index\.json"):
        ad.load(tmp_path)
