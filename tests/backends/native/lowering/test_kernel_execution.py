"""The registry on the native backend: kernels traced from each op's own compute, and libraries."""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad
from adjoint.backends import native
from adjoint.ir import compute as core_compute
from adjoint.runtime.dispatch import apply

pytest.importorskip("llvmlite", reason="llvmlite is not installed")

from adjoint.backends.native.lowering import kernel_execution
from adjoint.backends.native.lowering.tracing import Tracer
from adjoint.core.errors import NotTraceable
from tests.ops.test_ops import CASES, few_of_each_op, outputs, tensors, widen
from tests.sweep import few_or_many

TOLERANCE = {"float64": 1e-12, "float32": 4e-6, "float16": 2e-3, "bfloat16": 1.6e-2}


@pytest.fixture
def always(monkeypatch):
    """Kernels for arrays of any size; yields the ops that were computed by them."""
    ran = []
    usual = kernel_execution.accelerate

    def accelerate(op, arrays):
        result = usual(op, arrays)
        if result is not NotImplemented:
            ran.append(op)
        return result

    for name in ("SMALL", "LARGE"):
        monkeypatch.setattr(core_compute, name, -1)
    core_compute.forget()
    monkeypatch.setattr(core_compute, "accelerate", accelerate)
    return ran


@pytest.fixture
def never(monkeypatch):
    monkeypatch.setattr(core_compute, "accelerate", None)
    core_compute.forget()


@pytest.mark.parametrize("sample", few_of_each_op(CASES))
def test_values_are_numpys(sample, always, monkeypatch):
    found = outputs(apply(sample.op, *tensors(sample)))
    monkeypatch.setattr(core_compute, "accelerate", None)
    expected = outputs(apply(sample.op, *tensors(sample)))
    for a, b in zip(found, expected, strict=True):
        assert a.spec == b.spec
        tolerance = TOLERANCE.get(a.dtype.name, 0)
        np.testing.assert_allclose(
            widen(a.numpy()), widen(b.numpy()), rtol=tolerance, atol=tolerance
        )


def test_most_elementwise_ops_and_reductions_are_kernels(always):
    kernels = set()
    for case in CASES:
        sample = case.values[0]
        if type(sample.op).__name__ in kernels:
            continue
        always.clear()
        apply(sample.op, *tensors(sample))
        kernels.update(type(op).__name__ for op in always)
    wanted = {
        "Add", "Mul", "Exp", "Tanh", "Gelu", "Silu", "Softplus", "Softmax", "LogSoftmax", "Sum",
        "Mean", "Amax", "VarMean", "LogSumExp", "Where", "Clamp", "ReluGradient", "Cast", "Erf",
        "Pow", "Convolution", "MatMul", "Linear", "MaxPool",
    }  # fmt: skip
    assert wanted - kernels == set()
    assert len(kernels) >= 95


@few_or_many("count", 60, 2000)
def test_random_shapes_strides_and_dtypes(count, always, monkeypatch):
    rng = np.random.default_rng(0)
    functions = [
        lambda x, y: x + y,
        lambda x, y: (x * y).tanh(),
        lambda x, y: ad.where(x > y, x, y * 2),
        lambda x, y: x.softmax(-1) if x.ndim else x,
        lambda x, y: (x - y).abs().sum(),
        lambda x, y: x.amax(0) if x.ndim and x.numel() else x,
        lambda x, y: ad.nn.functional.gelu(x) if x.is_floating_point() else -x,
        lambda x, y: x.float().mean(-1) if x.ndim else x,
    ]
    for _ in range(count):
        shape = tuple(int(n) for n in rng.integers(0, 6, rng.integers(0, 4)))
        dtype = rng.choice(["float32", "float64", "int32", "int64", "float16"])
        x, y = (_random(rng, shape, dtype) for _ in range(2))
        function = functions[rng.integers(len(functions))]
        if dtype.startswith("int"):
            function = functions[rng.choice([0, 2, 4, 5])]
        monkeypatch.setattr(core_compute, "accelerate", kernel_execution.accelerate)
        found = function(x, y)
        monkeypatch.setattr(core_compute, "accelerate", None)
        expected = function(x, y)
        assert found.spec == expected.spec
        tolerance = TOLERANCE.get(found.dtype.name, 0)
        np.testing.assert_allclose(
            widen(found.numpy()), widen(expected.numpy()), rtol=tolerance, atol=tolerance
        )


def _random(rng, shape, dtype):
    """A tensor of random strides: transposed, sliced, reversed or broadcast memory."""
    axes = rng.permutation(len(shape))
    memory = rng.standard_normal([2 * shape[a] for a in axes]) * 3
    array = memory.astype(dtype)[tuple(slice(None, None, 2) for _ in axes)]
    array = array.transpose(np.argsort(axes)) if len(axes) else array
    return ad.from_numpy(np.asarray(array))


def test_the_same_bits_every_time(always):
    x = ad.randn(300, 700)
    first = [x.sum(), x.softmax(1), x.mean(0), x.var(1)]
    for _ in range(3):
        for a, b in zip(first, [x.sum(), x.softmax(1), x.mean(0), x.var(1)], strict=True):
            assert a.equal(b)


def test_what_cannot_be_traced_says_so():
    tracer = Tracer((3,))
    x = tracer.input((3,), np.dtype(np.float32))
    for attempt in (
        lambda: tracer.names.sort(x),
        lambda: bool(x),
        lambda: x + np.ones(3),
        lambda: x + 1j,
        lambda: x.reshape(1, 3)[0],
        lambda: tracer.input((3,), np.dtype(np.complex64)),
    ):
        with pytest.raises(NotTraceable):
            attempt()


def test_it_can_be_switched_off(monkeypatch):
    before = native.unusable()
    monkeypatch.setenv("ADJOINT_BACKEND", "numpy")
    try:
        assert not native.enable()
        assert native.unusable() == "ADJOINT_BACKEND=numpy"
        assert ad.ones(100, 100).exp().sum().item() > 0
        monkeypatch.setenv("ADJOINT_BACKEND", "nonsense")
        with pytest.raises(ad.InvalidArgument, match="auto, numpy or native"):
            native.enable()
    finally:
        monkeypatch.undo()
        native.enable()
    assert native.unusable() == before


def test_row_major_copies_are_row_major():
    """Kernels keep their inputs' memory order; `contiguous` is about nothing else."""
    x = ad.randn(300, 400).t()
    assert x.contiguous().is_contiguous()
    assert x.clone(memory_format=ad.contiguous_format).is_contiguous()
    assert x.clone().stride() == x.stride()
    assert x.contiguous().equal(x)


def test_large_arrays_go_to_another_device(monkeypatch):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    x = ad.randn(300, 400)
    assert x.to("torch").cpu().equal(x)
