"""ONNX's own node tests: every one that the onnx package generates, on `onnx.load`."""

from __future__ import annotations

import collections
import functools
import pathlib
import pickle
import random
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest

import adjoint as ad

onnx = pytest.importorskip("onnx", reason="onnx is not installed")

from adjoint.core.errors import AdjointError  # noqa: E402
from adjoint.onnx.files import array_of  # noqa: E402
from tests.io.test_hostile_files import ROOT  # noqa: E402
from tests.sweep import few_or_many, swept  # noqa: E402

# What is refused, and why; `docs/onnx.md` lists it. Everything else must give the right values.
REFUSED = {
    "no float8 and no types of less than a byte": r"element type (1[789]|2\d) is not supported",
    "no strings": r"element type 8 |type object|operator '(String|Regex|TfIdf|LabelEncoder)",
    "no sequences and no optional values": r"operator '(Sequence|Optional|SplitToS)|no tensor",
    "Scan of opset 8 goes over a batch": r"the form of opset 8",
    "random numbers are others": r"operator '(Random|Bernoulli|Multinomial)",
    "only ONNX's main operators": r"opset \[\]|only ONNX's own operators",
    "no images": r"operator 'ImageDecoder'",
    "operators before opset 7 differ": r"opset \[1\]",
}
# Right by onnxruntime, which the standard's tests contradict, or random.
OTHERWISE = {
    "test_resize_downsample_scales_linear_align_corners": "onnxruntime differs as well",
    "test_resize_downsample_scales_cubic_align_corners": "onnxruntime differs as well",
    "test_training_dropout": "random numbers are others",
    "test_training_dropout_default": "random numbers are others",
    "test_training_dropout_default_mask": "random numbers are others",
    "test_training_dropout_mask": "random numbers are others",
}
LOOSE = {"float16": 2e-2, "bfloat16": 4e-2}  # computed in float32, rounded elsewhere


def array(value):
    if isinstance(value, onnx.TensorProto):
        return array_of(value, None)
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    raise ad.Unsupported("no tensor")


def compare(found, expected, case):
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if expected.dtype.kind not in "fV":
        np.testing.assert_array_equal(found, expected)
        return
    loose = LOOSE.get(expected.dtype.name, 0)
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(
        found, expected, rtol=max(case.rtol, loose, 1e-3), atol=max(case.atol, loose / 5, 1e-5)
    )


def run(case):
    module = ad.onnx.load(case.model.SerializeToString())
    for inputs, outputs in case.data_sets:
        found = module(*(ad.from_numpy(array(x).copy()) for x in inputs))
        found = found if isinstance(found, tuple) else (found,)
        assert len(found) == len(outputs)
        for y, expected in zip(found, outputs, strict=True):
            compare(y.numpy(), array(expected), case)


def outcome(case):
    """ "right", the reason why the case is refused, or what is wrong."""
    try:
        run(case)
    except AdjointError as error:
        text = " ".join(str(error).split())
        for reason, pattern in REFUSED.items():
            if re.search(pattern, text):
                return reason
        return f"{case.name}: {text[:200]}"
    except AssertionError as error:
        return f"{case.name}: {' '.join(str(error).split())[:200]}"
    return "right"


@functools.cache
def all_cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of computing the expected values
        from onnx.backend.test.case.node import collect_testcases

        return [case for case in collect_testcases("") if case.model is not None]


@few_or_many("most", 2, 1000)
def test_every_node_test(most):
    """Of each operator so many."""
    seen = collections.Counter()
    cases = []
    for case in all_cases():
        operators = tuple(node.op_type for node in case.model.graph.node)
        seen[operators] += 1
        if seen[operators] <= most:
            cases.append(case)
    counts = collections.Counter()
    wrong = []
    for case in cases:
        found = outcome(case)
        if found == "right" or found in REFUSED:
            counts[found] += 1
        elif case.name not in OTHERWISE:
            wrong.append(found)
    assert not wrong, "\n".join(wrong)
    assert counts["right"] >= (1606 if most == 1000 else 300), counts


# ---- the same models, damaged --------------------------------------------------------------------

INTS = (0, -1, 1, 5, 100, 127, 2**31 - 1, -(2**31), 2**62, -(2**63))
FLOATS = (0.0, -1.0, 1e30, -1e30, float("nan"), float("inf"), 1e-30)


def damaged(rng, data, inputs):
    """The model with another attribute, or its inputs with another element or shape."""
    model = onnx.ModelProto.FromString(data)
    node = rng.choice(model.graph.node)
    inputs = [x.copy() for x in inputs]
    kind = rng.randrange(3) if inputs else 0
    if kind == 0 and node.attribute:
        attribute = rng.choice(node.attribute)
        if attribute.ints:
            attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(INTS)
        elif attribute.type == onnx.AttributeProto.INT:
            attribute.i = rng.choice(INTS)
        elif attribute.type == onnx.AttributeProto.FLOAT:
            attribute.f = rng.choice(FLOATS)
        else:
            attribute.s = rng.choice((b"", b"x", b"linear", b"SAME_UPPER"))
    elif kind == 1:
        x = rng.choice(inputs)
        if x.size and x.dtype.kind in "iuf":
            values = FLOATS if x.dtype.kind == "f" else [np.int64(v) for v in INTS]
            with np.errstate(all="ignore"):
                value = np.asarray(rng.choice(values)).astype(x.dtype)
            x.reshape(-1)[rng.randrange(x.size)] = value
    elif inputs:
        i = rng.randrange(len(inputs))
        x = inputs[i]
        shapes = [x[None], x.reshape(-1), x.reshape(-1)[:0]]
        inputs[i] = rng.choice(shapes)
    return model.SerializeToString(), inputs


def process(file):
    """Load and run the models of a file, damaged, with little memory; prints how many ran and were
    refused.
    """
    import resource

    warnings.simplefilter("ignore")
    ad.backends.native.enable(False)  # compiles and loads libraries when it is first used
    cases = pickle.loads(pathlib.Path(file).read_bytes())
    pages = pathlib.Path("/proc/self/statm").read_text().split()[0]
    size = int(pages) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 30), size + (1 << 30)))
    rng = random.Random(7)
    ran = refused = 0
    for name, model, given in cases:
        for _ in range(6):
            data, inputs = damaged(rng, model, given)
            try:
                ad.onnx.load(data)(*map(ad.from_numpy, inputs))
                ran += 1
            except ad.AdjointError:
                refused += 1
            except Exception as error:
                raise AssertionError(name) from error
    print(ran, refused)


@pytest.mark.parametrize("step", [30, swept(1)])
def test_damaged_models(step, tmp_path):
    """Clear errors or results, within a gigabyte and the time: for every operator that is read."""
    cases = [
        (case.name, case.model.SerializeToString(), [array(x) for x in case.data_sets[0][0]])
        for case in all_cases()[::step]
        if outcome(case) == "right"
    ]
    file = tmp_path / "cases"
    file.write_bytes(pickle.dumps(cases))
    program = (
        f"from tests.interop.onnx.test_onnx_conformance import process; process({str(file)!r})"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    ran, refused = map(int, done.stdout.split())
    assert ran + refused > 9_000 / step and refused > 2_000 / step
