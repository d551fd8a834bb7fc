"""ONNX files made to harm: mutated ones in a watched process, and attacks by name."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn

onnx = pytest.importorskip("onnx")
from tests.io.test_hostile_files import (  # noqa: E402
    COUNT,
    FEW,
    MEMORY,
    NUMBERS,
    ROOT,
    TIME,
    Watch,
    mutate_bytes,
)  # fmt: skip
from tests.sweep import few_or_many  # noqa: E402


def layers():
    """What a small convolutional network gives."""
    module = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(2, 2),
    )  # fmt: skip
    file = io.BytesIO()
    ad.onnx.export(module, ad.ones(1, 1, 4, 4), file, dynamic_axes={"input": {0: "n"}})
    return file.getvalue()


def structure():
    """Constants from which sizes are computed while loading."""
    node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    two = onnx.numpy_helper.from_array(np.array([2]), "")
    nodes = [
        node("Shape", ["s"], ["n"]), node("ConstantOfShape", ["n"], ["z"], value=two),
        node("Range", ["zero", "b", "one"], ["r"]), node("Expand", ["r", "e"], ["x"]),
        node("Tile", ["x", "rep"], ["t"]), node("Slice", ["t", "st", "en"], ["q"]),
        node("Pad", ["q", "p"], ["w"]), node("Concat", ["w", "w"], ["v"], axis=0),
        node("Reshape", ["v", "m1"], ["u"]), node("OneHot", ["u", "b", "oo"], ["oh"]),
        node("Gather", ["v", "i"], ["g"], axis=0), node("Squeeze", ["g"], ["y1"]),
        node("ReduceSum", ["oh"], ["k"], keepdims=0), node("Cast", ["k"], ["kf"], to=1),
        node("Mul", ["in", "kf"], ["y2"]), node("Split", ["in", "spl"], ["sa", "sb"], axis=0),
        node("Unsqueeze", ["sa", "i0"], ["y3"]), node("Trilu", ["oh", "zero"], ["tl"]),
        node("Size", ["tl"], ["sz"]), node("Add", ["sz", "z"], ["y4"]),
        node("Resize", ["in4", "", "sc"], ["y5"], mode="linear"),
    ]  # fmt: skip
    lists = {"e": [2, 4], "rep": [1, 2], "st": [0, 1], "en": [2, 7], "p": [0, 1, 1, 0], "m1": [-1],
             "oo": [0, 1], "i": [0, -1], "spl": [1, 2], "i0": [0]}  # fmt: skip
    arrays = {key: np.array(value) for key, value in lists.items()}
    arrays |= {"zero": np.array(0), "one": np.array(1), "b": np.array(4)}
    arrays |= {"s": np.ones((2, 3)), "sc": np.array([1, 1, 2, 2], np.float32)}
    graph = onnx.helper.make_graph(
        nodes, "g", [info("in", 1, [3]), info("in4", 1, [1, 1, 2, 2])],
        [onnx.ValueInfoProto(name=f"y{i}") for i in range(1, 6)],
        [onnx.numpy_helper.from_array(array, key) for key, array in arrays.items()],
    )  # fmt: skip
    opset = onnx.helper.make_opsetid("", 17)
    return onnx.helper.make_model(graph, opset_imports=[opset]).SerializeToString()


def mutated(rng, data, kinds):
    """Damage to the bytes, or another name, operator, attribute, size or number in the message."""
    if rng.random() < 0.4:
        return mutate_bytes(rng, data)
    model = onnx.load_from_string(data)
    graph = model.graph
    names = [name for node in graph.node for name in (*node.input, *node.output)]
    for _ in range(rng.choice((1, 1, 2))):
        kind = rng.randrange(8)
        node, tensor = rng.choice(graph.node), rng.choice(graph.initializer)
        if kind == 0 and node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(names)
        elif kind == 1:
            node.op_type = rng.choice(kinds)
        elif kind == 2 and node.attribute:
            attribute = rng.choice(node.attribute)
            attribute.i = rng.choice(NUMBERS) % 2**63 * rng.choice((1, -1))
            if attribute.ints:
                place = rng.randrange(len(attribute.ints))
                attribute.ints[place] = rng.choice(NUMBERS) % 2**63
        elif kind == 3 and tensor.data_type == 7:
            values = np.frombuffer(tensor.raw_data, np.int64).copy()
            values[rng.randrange(values.size)] = rng.choice((*NUMBERS[:14], -1, -5))
            tensor.raw_data = values.tobytes()
        elif kind == 4:
            tensor.dims.append(rng.choice(NUMBERS) % 2**63)
        elif kind == 5 and tensor.dims:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(NUMBERS) % 2**63
        elif kind == 6:
            node.output[0] = rng.choice(names)
        else:
            tensor.data_location = 1
            tensor.external_data.add(key="location", value=rng.choice(("/etc/passwd", "../x", "x")))
    return model.SerializeToString()


def process(count):
    """Read mutated files; prints how many were refused and how many were read."""
    import resource

    from adjoint.onnx.importing.operator_table import TABLE

    warnings.simplefilter("error")
    ad.backends.native.enable(False)  # compiles and loads libraries when it is first used
    ad.manual_seed(0)  # for the weights
    seeds = [layers(), structure()]
    assert all(ad.onnx.load(data).output_names for data in seeds)
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    watch, rng, kinds = Watch(), random.Random(6), sorted(TABLE)
    refused = read = 0
    for number in range(count):
        data = mutated(rng, rng.choice(seeds), kinds)
        watch.armed = True
        try:
            ad.onnx.load(data)
            read += 1
        except ad.AdjointError as error:
            assert not isinstance(error.__cause__, MemoryError), (number, error)
            assert len(str(error)) < 2_000, (number, len(str(error)))
            refused += 1
        finally:
            watch.armed = False
        assert not [s for s in watch.seen if s[0] != "import"], (number, watch.seen)
    print(refused, read)


@few_or_many("count", FEW, COUNT)
def test_mutated_files(count):
    program = f"from tests.interop.onnx.test_onnx_hostile import process; process({count})"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIME)
    assert done.returncode == 0, done.stderr[-3000:]
    refused, read = map(int, done.stdout.split())
    assert refused + read == count and refused > count // 2 and read > count // 100


# ---- attacks that have names ---------------------------------------------------------------------


def model_of(nodes, initializers=(), outputs=("y",), inputs=("x",)):
    """A model of which nothing was checked."""
    graph = onnx.GraphProto(name="g")
    graph.node.extend(onnx.helper.make_node(*n[:3], **(n[3] if len(n) > 3 else {})) for n in nodes)
    graph.input.extend(onnx.helper.make_tensor_value_info(n, 1, [2]) for n in inputs)
    graph.output.extend(onnx.ValueInfoProto(name=n) for n in outputs)
    graph.initializer.extend(initializers)
    opset = onnx.helper.make_opsetid("", 17)
    return onnx.helper.make_model(graph, opset_imports=[opset])


def tensor(name, values):
    return onnx.numpy_helper.from_array(np.asarray(values), name)


def refuse(model, message, kind=ad.CheckpointError):
    data = model if isinstance(model, bytes) else model.SerializeToString()
    with pytest.raises(kind, match=message):
        ad.onnx.load(data)


def test_graphs_that_are_none():
    refuse(b"", "no graph")
    refuse(b"\xff" * 100, "not an ONNX file")
    refuse(model_of([("Add", ["x", "b"], ["a"]), ("Add", ["x", "a"], ["b"])], outputs="b"), "cycle")
    refuse(model_of([("Neg", ["y"], ["y"])]), "cycle")
    refuse(model_of([("Neg", ["x"], ["y"]), ("Abs", ["x"], ["y"])]), "twice")
    refuse(model_of([("Neg", ["x"], ["x"])]), "twice")
    refuse(model_of([("Neg", ["x"], ["a"])]), "nothing computes")
    refuse(model_of([], outputs="x", inputs="xx"), "one name")
    refuse(model_of([("Neg", ["x"], ["y"])], [tensor("a", [1])] * 2), "two initializers")
    model = model_of([("Neg", ["x"], ["y"])])
    model.opset_import[0].version = 3
    refuse(model, "opset")


def test_operators_that_are_not_ours():
    refuse(model_of([("Evil", ["x"], ["y"])]), "Evil", ad.Unsupported)
    refuse(model_of([("Neg", ["x"], ["y"], {"domain": "com.x"})]), "domain", ad.Unsupported)
    body = onnx.helper.make_graph([], "b", [], [])
    loop = [("Neg", ["x"], ["y"], {"body": body})]
    refuse(model_of(loop), "subgraph", ad.Unsupported)


@pytest.mark.parametrize("dims", [[2**62], [-1], [2**40, 2**40], [3], [2, 2**31], [1] * 65])
def test_shapes_beyond_their_data(dims):
    weight = tensor("w", np.ones(2, np.float32))
    del weight.dims[:]
    weight.dims.extend(dims)
    refuse(model_of([("Mul", ["x", "w"], ["y"])], [weight]), "shape")
    weight.ClearField("raw_data")
    weight.float_data.extend([1.0, 2.0])
    refuse(model_of([("Mul", ["x", "w"], ["y"])], [weight]), "shape")


@pytest.mark.parametrize("field", ["raw_data", "float_data"])
def test_no_elements_of_a_shape_without_end(field):
    weight = onnx.TensorProto(name="w", data_type=1, dims=[0, 2**40, 2**40])
    if field == "raw_data":
        weight.raw_data = b""
    refuse(model_of([("Mul", ["x", "w"], ["y"])], [weight]), "malformed shape")


BOMBS = {
    "ConstantOfShape": ([("ConstantOfShape", ["n"], ["y"])], {"n": [2**31, 2**31]}),
    "Expand": ([("Expand", ["o", "n"], ["y"])], {"o": [1], "n": [2**40]}),
    "Tile": ([("Tile", ["o", "n"], ["y"])], {"o": [1], "n": [2**40]}),
    "Range": ([("Range", ["z", "n", "o"], ["y"])], {"z": 0, "o": 1, "n": 2**40}),
    "OneHot": ([("OneHot", ["z", "n", "o"], ["y"])], {"z": [0], "n": 2**40, "o": [0, 1]}),
    "Pad": ([("Pad", ["o", "n"], ["y"])], {"o": [1], "n": [2**40, 2**40]}),
    "outer": ([("Reshape", ["v", "c"], ["w"]), ("Add", ["v", "w"], ["y"])],
              {"v": np.ones(50_000), "c": [-1, 1]}),
    "doubling": ([("Concat", [f"a{i}"] * 2, [f"a{i + 1}"], {"axis": 0}) for i in range(60)]
                 + [("Neg", ["a60"], ["y"])], {"a0": [1]}),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_constants_that_grow(name):
    """They are not computed while loading."""
    import tracemalloc

    nodes, arrays = BOMBS[name]
    data = model_of(nodes, [tensor(k, v) for k, v in arrays.items()]).SerializeToString()
    tracemalloc.start()
    try:
        loaded = ad.onnx.load(data)
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()
    assert loaded.extra_repr().startswith("x -> y")
    if name not in ("outer", "doubling"):
        with pytest.raises(ad.AdjointError, match=f"{name}.*sizes"):
            loaded(ad.ones(2))


def external(location, **entries):
    """A model whose weight is in another file."""
    weight = onnx.TensorProto(name="w", data_type=1, dims=[2], data_location=1)
    for key, value in {"location": location, **entries}.items():
        weight.external_data.add(key=key, value=str(value))
    return model_of([("Mul", ["x", "w"], ["y"])], [weight]).SerializeToString()


PATHS = ["../w", "/etc/passwd", "a/../../w", "..\\w", "C:\\w", "", ".", "~/w", "//host/w", "a//w",
         "link", "linked/w", "missing", "folder", "w\0"]  # fmt: skip


@pytest.mark.parametrize("location", PATHS)
def test_external_data_stays_below_the_model(tmp_path, location):
    home = tmp_path / "home"
    (home / "folder").mkdir(parents=True)
    (tmp_path / "w").write_bytes(b"\0" * 8)
    os.symlink(tmp_path / "w", home / "link")
    os.symlink(tmp_path, home / "linked")
    path = home / "x.onnx"
    path.write_bytes(external(location))
    with pytest.raises(ad.CheckpointError, match=r"data|link|regular"):
        ad.onnx.load(path)


@pytest.mark.parametrize(
    "entries",
    [{"offset": 4}, {"length": 4}, {"offset": -1}, {"offset": 2**62}, {"length": "8x"},
     {"offset": "9" * 30}],
)  # fmt: skip
def test_external_data_of_another_size(tmp_path, entries):
    (tmp_path / "w").write_bytes(b"\0" * 8)
    (tmp_path / "x.onnx").write_bytes(external("w", **entries))
    with pytest.raises(ad.CheckpointError, match=r"bytes|malformed"):
        ad.onnx.load(tmp_path / "x.onnx")


def test_external_data_is_read(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w").write_bytes(b"\0" * 4 + np.array([2, 3], "<f4").tobytes())
    data = external("sub/w", offset=4, length=8)
    (tmp_path / "x.onnx").write_bytes(data)
    loaded = ad.onnx.load(tmp_path / "x.onnx")
    assert loaded(ad.ones(2)).tolist() == [2, 3]
    refuse(data, "by its path")


def test_names_of_all_kinds():
    """Names in files are no attributes of modules."""
    names = [
        "forward",
        "__class__",
        "_steps",
        "a.b",
        "a",
        "training",
        "x y/z",
        "é",
        "a..b",
        "." * 99,
    ]
    nodes = [("Add", [f"v{i}" if i else "x", n], [f"v{i + 1}"]) for i, n in enumerate(names)]
    model = model_of(nodes, [tensor(n, np.ones(2, np.float32)) for n in names], [nodes[-1][2][0]])
    loaded = ad.onnx.load(model.SerializeToString())
    assert loaded(ad.zeros(2)).tolist() == [len(names)] * 2
    assert len(loaded.state_dict()) == len(names)


def test_sources(tmp_path):
    with pytest.raises(ad.InvalidType, match="path"):
        ad.onnx.load(3)
    with pytest.raises(ad.CheckpointError, match="directory"):
        ad.onnx.load(tmp_path)
    path = Path(tmp_path, "x.onnx")
    path.write_bytes(structure())
    with open(path, "rb") as file:
        assert ad.onnx.load(file).input_names == ["in", "in4"]
