"""ONNX's own node tests: every one that the onnx package generates, on `onnx.load`."""

from __future__ import annotations

import collections
import re
import warnings

import numpy as np
import pytest

import adjoint as ad

onnx = pytest.importorskip("onnx", reason="onnx is not installed")

from adjoint.core.errors import AdjointError  # noqa: E402
from adjoint.onnx.files import array_of  # noqa: E402

# What is refused, and why; `docs/onnx.md` lists it. Everything else must give the right values.
REFUSED = {
    "no float8 and no types of less than a byte": r"element type (1[789]|2\d) is not supported",
    "no strings": r"element type 8 |type object|operator '(String|Regex|TfIdf|LabelEncoder)",
    "no sequences and no optional values": r"operator '(Sequence|Optional|SplitToS)|no tensor",
    "no control flow": r"operator '(If|Loop|Scan)'",
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


def test_every_node_test():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of computing the expected values
        from onnx.backend.test.case.node import collect_testcases

        cases = [case for case in collect_testcases("") if case.model is not None]
    counts = collections.Counter()
    wrong = []
    for case in cases:
        found = outcome(case)
        if found == "right" or found in REFUSED:
            counts[found] += 1
        elif case.name not in OTHERWISE:
            wrong.append(found)
    assert not wrong, "\n".join(wrong)
    assert counts["right"] >= 1579, counts
