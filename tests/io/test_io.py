"""save and load: what comes back, what is refused, what a crash leaves."""

from __future__ import annotations

import contextlib
import io
import json
import os
import struct
import threading
import zlib
from collections import OrderedDict

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adjoint as ad
from adjoint import nn

safetensors_numpy = pytest.importorskip("safetensors.numpy")

DTYPES = [
    ad.bool, ad.uint8, ad.int8, ad.int16, ad.int32, ad.int64, ad.float16, ad.bfloat16, ad.float32,
    ad.float64, ad.complex64, ad.complex128,
]  # fmt: skip


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.safetensors"


def round_trip(value):
    file = io.BytesIO()
    ad.save(value, file)
    file.seek(0)
    return ad.load(file)


def assert_equal(a, b):
    """Equal in structure, types and values; NaN equals NaN."""
    assert type(a) is type(b)
    if isinstance(a, ad.Tensor):
        assert a.shape == b.shape and a.dtype is b.dtype and a.requires_grad == b.requires_grad
        assert a.detach().numpy().tobytes() == b.detach().numpy().tobytes()
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_equal(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y)
    else:
        assert a == b or (a != a and b != b)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 3)])
def test_every_dtype(dtype, shape):
    raw = np.random.default_rng(0).uniform(-3, 3, shape)
    if dtype.is_complex:
        raw = raw + 1j
    assert_equal(round_trip(ad.tensor(raw).to(dtype)), ad.tensor(raw).to(dtype))


def test_nested_structures():
    value = OrderedDict(
        model={"a.b": ad.ones(2), "a": {"b": ad.zeros(1)}},
        things=[None, True, 3, -(10**30), 1.5, float("inf"), float("nan"), "tëxt\n", b"\x00\xff"],
        pairs=(1, (2.0, [ad.tensor([1, 2])])),
    )
    value["keys"] = {1: "int", "1": "str", None: 0, (1, "x"): 2, 1.5: [], False: 1}
    value["z"] = [1 + 2j, ad.Size([2, 3]), ad.float16, ad.device("cpu"), set(), {1, 2}]
    assert_equal(round_trip(value), value)


trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
    | st.builds(lambda n: ad.arange(n), st.integers(0, 5)),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner)
    | st.dictionaries(st.text() | st.integers(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(trees)
def test_any_tree_comes_back(value):
    assert_equal(round_trip(value), value)


def test_parameters_buffers_and_flags():
    p, frozen = nn.Parameter(ad.ones(2)), nn.Parameter(ad.ones(2), requires_grad=False)
    b = nn.Buffer(ad.ones(1), persistent=False)
    x = ad.ones(1, requires_grad=True)
    for found, wanted in zip(round_trip([p, frozen, b, x]), [p, frozen, b, x], strict=True):
        assert_equal(found, wanted)
        assert found.is_leaf
    assert round_trip(b).persistent is False


def test_shared_tensors_stay_shared():
    base = ad.arange(12.0)
    table = base.reshape(3, 4)
    p = nn.Parameter(ad.ones(2))
    value = {"base": base, "row": table[1], "column": table[:, 2], "t": table.T, "p": [p, p]}
    value["alias"] = p.detach()
    found = round_trip(value)
    for key in ("base", "row", "column", "t", "alias"):
        assert_equal(found[key], value[key])
    assert found["p"][0] is found["p"][1]
    with ad.no_grad():
        found["p"][0].fill_(7)
        found["base"].mul_(10)
    assert found["alias"].tolist() == [7, 7]
    assert found["row"].tolist() == [40, 50, 60, 70] and found["t"][2, 1].item() == 60
    # Writes through one are seen by autograd's checks of another.
    x = ad.ones(4, requires_grad=True)
    y = (x * found["row"]).sum()
    found["base"].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_a_small_view_does_not_store_its_base(path):
    ad.save(ad.zeros(100_000)[:10], path)
    assert path.stat().st_size < 2000


def test_tied_weights_of_a_module(path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.Linear(3, 3), nn.Linear(3, 3)
            self.outer.weight = self.inner.weight

    a, b = Tied(), Tied()
    ad.save(a.state_dict(), path)
    state = ad.load(path)
    assert state["inner.weight"].data_ptr() == state["outer.weight"].data_ptr()
    b.load_state_dict(state)
    assert b.outer.weight.equal(a.inner.weight)


def test_other_tools_read_it_and_it_reads_theirs(path):
    model = nn.Linear(3, 2)
    ad.save(model.state_dict(), path)
    found = safetensors_numpy.load_file(path)
    np.testing.assert_array_equal(found["weight"], model.weight.detach().numpy())
    theirs = {"w": np.ones((2, 2), np.float32), "h": np.ones(3, ml_dtypes.bfloat16)}
    safetensors_numpy.save_file(theirs, path, metadata={"format": "np"})
    loaded = ad.load(path)
    assert loaded["w"].tolist() == [[1, 1], [1, 1]] and loaded["h"].dtype is ad.bfloat16
    loaded["w"].add_(1)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ({"a": [1, object()]}, r"object at 'a\.1'"),
        (nn.Linear(1, 1), r"Linear at 'the top'.*state_dict\(\)"),
        (lambda: 0, "function"),
    ],
)
def test_other_values_are_refused_with_their_path(value, match, path):
    with pytest.raises(TypeError, match=match):
        ad.save(value, path)
    assert not path.exists()


def test_depth_is_bounded(path):
    value = []
    for _ in range(300):
        value = [value]
    with pytest.raises(TypeError, match="more than 200"):
        ad.save(value, path)


# ---- damaged files -------------------------------------------------------------------------------


def content(value=None):
    file = io.BytesIO()
    ad.save({"w": ad.arange(100.0), "n": 1} if value is None else value, file)
    return file.getvalue()


def test_truncation_anywhere_is_noticed(path):
    whole = content()
    for size in [*range(0, len(whole), 37), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(ad.CheckpointError, match=r"x\.safetensors.*cut short"):
            ad.load(path)


def test_a_flipped_bit_anywhere_is_noticed(path):
    whole = bytearray(content())
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    for place in range(header, len(whole), 29):
        damaged = bytearray(whole)
        damaged[place] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(ad.CheckpointError, match="checksum differs"):
            ad.load(path)
    for place in range(0, header, 7):  # in the header: an error, or no difference that matters
        damaged = bytearray(whole)
        damaged[place] ^= 4
        path.write_bytes(damaged)
        with contextlib.suppress(ad.CheckpointError):
            ad.load(path)


def rewritten(change):
    """A checkpoint whose metadata was changed by `change`."""
    arrays = {"w": np.arange(4, dtype=np.float32)}
    metadata = {"adjoint_version": "1", "adjoint": "[]"}
    change(metadata)
    metadata.setdefault("adjoint_crc32", str(zlib.crc32(metadata["adjoint"].encode())))
    return safetensors_numpy.save(arrays, metadata)


CRC32 = zlib.crc32(np.arange(4, dtype=np.float32).tobytes(), zlib.crc32(b"F32 (4,)"))
ENTRY = {"id": 0, "kind": "tensor", "data": "w", "crc32": CRC32}


def with_structure(structure):
    return lambda m: m.update(
        adjoint=structure if isinstance(structure, str) else json.dumps(structure)
    )


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda m: m.update(adjoint_version="2"), "version '2', this adjoint reads 1"),
        (lambda m: m.pop("adjoint_version"), "version ''"),
        (lambda m: m.update(adjoint="[1]", adjoint_crc32="7"), "structure .* checksum differs"),
        (with_structure("{"), "not JSON"),
        (with_structure({"tensor": {**ENTRY, "view": [0, [0], [10**30]]}}), "cannot be understood"),
        (with_structure("[" * 100_000 + "]" * 100_000), "not JSON|nested"),
        (with_structure({"a": 1, "b": 2}), "structure holds"),
        (with_structure({"code": "import os"}), "unknown kind of value, 'code'"),
        (with_structure({"bytes": "%%%"}), "malformed 'bytes'"),
        (with_structure({"dict": [[[], 1]]}), "malformed 'dict'"),
        (
            with_structure({"tensor": {**ENTRY, "data": "other"}}),
            "lacks the data of tensor 'other'",
        ),
        (with_structure({"tensor": {"id": 0}}), "malformed 'tensor'"),
        (with_structure({"tensor": {**ENTRY, "crc32": 1}}), "checksum differs"),
    ],
)
def test_wrong_metadata(change, match, path):
    path.write_bytes(rewritten(change))
    with pytest.raises(ad.CheckpointError, match=match):
        ad.load(path)


@pytest.mark.parametrize(
    "view", [[0, [5], [1]], [-1, [2], [1]], [3, [2], [1]], [0, [2], [-1]], [0, [2], ["x"]],
             [0, [10**18], [1]], [0, [2, 2], [1]]],
)  # fmt: skip
def test_views_outside_their_storage_are_refused(view, path):
    structure = {"tensor": {**ENTRY, "view": view}}
    path.write_bytes(rewritten(with_structure(structure)))
    with pytest.raises(ad.CheckpointError):
        ad.load(path)
    structure["tensor"]["view"] = [3, [2], [-1]]
    path.write_bytes(rewritten(with_structure(structure)))
    assert ad.load(path).tolist() == [3.0, 2.0]


def test_an_oversized_header_is_refused(path):
    path.write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    with pytest.raises(ad.CheckpointError):
        ad.load(path)
    path.write_bytes(struct.pack("<Q", 200 << 20) + b"{" * 100)
    with pytest.raises(ad.CheckpointError):
        ad.load(path)


def test_missing_files_and_wrong_arguments(path):
    with pytest.raises(FileNotFoundError):
        ad.load(path)
    with pytest.raises(FileNotFoundError):
        ad.save({}, path.parent / "missing" / "x")
    for call in (lambda: ad.load(3), lambda: ad.save({}, 3)):
        with pytest.raises(TypeError, match="expected a path"):
            call()


def test_pickle_is_never_read(path):
    import pickle

    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ad.CheckpointError):
        ad.load(path)


# ---- crashes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_no_other(at, path, monkeypatch):
    ad.save({"n": 1}, path)

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(os, at, fail)
    with pytest.raises(OSError, match="disk full"):
        ad.save({"n": 2}, path)
    monkeypatch.undo()
    assert ad.load(path) == {"n": 1}
    assert os.listdir(path.parent) == [path.name]


def test_a_file_that_cannot_grow_leaves_the_old_one(path):
    resource = pytest.importorskip("resource")
    ad.save({"n": 1}, path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            ad.save({"n": ad.zeros(100_000)}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert ad.load(path) == {"n": 1} and os.listdir(path.parent) == [path.name]


def test_only_leftovers_of_dead_writers_of_this_file_are_removed(path):
    from adjoint.io.atomic import replacing

    dead = path.with_name(f".{path.name}.0123abcd.tmp")
    others = [path.with_name(f".y{path.name}.0123abcd.tmp"), path.with_name(f".{path.name}.tmp")]
    for file in (dead, *others):
        file.touch()
    with replacing(path) as mine:  # two writers at a time: the later rename wins
        ad.save({"n": 1}, path)
        assert ad.load(path) == {"n": 1} and os.path.exists(mine.fileno())
        mine.write(b"complete")
    assert path.read_bytes() == b"complete"
    assert {p.name for p in path.parent.iterdir()} == {path.name, *(o.name for o in others)}


def test_replacing_keeps_permissions_and_links(path):
    ad.save(1, path)
    os.chmod(path, 0o640)
    link = path.parent / "link"
    link.symlink_to(path)
    ad.save(2, link)
    assert link.is_symlink() and ad.load(path) == 2
    assert os.stat(path).st_mode & 0o777 == 0o640


def test_loaded_tensors_are_writable_and_own_their_memory(path):
    ad.save({"w": ad.ones(3)}, path)
    w = ad.load(path)["w"]
    w.add_(1)
    path.unlink()
    assert w.tolist() == [2, 2, 2]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["x.pt", "x.safetensors"])
def test_a_named_pipe_is_read_to_its_end(tmp_path, name):
    ad.save({"a": ad.ones(2)}, tmp_path / name)
    data, pipe = (tmp_path / name).read_bytes(), tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(data,))
    writer.start()
    found = ad.load(pipe)
    writer.join()
    assert found["a"].tolist() == [1.0, 1.0]
