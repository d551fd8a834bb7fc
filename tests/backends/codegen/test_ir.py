"""Construction, checking and printing of kernels."""

import dataclasses

import pytest

from adjoint.backends.codegen import Kernel, KernelValue, Output, verify
from adjoint.core.errors import DTypeError, InvalidArgument, ShapeError, Unsupported


def softmax() -> Kernel:
    k = Kernel(rank=2)
    x = k.input("float32")
    e = k.exp(x - k.max(x, axes=(1,)))
    k.output(e / k.sum(e, axes=(1,)))
    return k


def test_prints_every_value_with_its_dtype_and_axes():
    assert str(softmax()).splitlines() == [
        "kernel rank=2",
        "  %0 = input 0 float32 : float32 (0, 1)",
        "  %1 = max %0 over (1,) : float32 (0,)",
        "  %2 = sub %0 %1 : float32 (0, 1)",
        "  %3 = exp %2 : float32 (0, 1)",
        "  %4 = sum %3 over (1,) : float32 (0,)",
        "  %5 = div %3 %4 : float32 (0, 1)",
        "  output %5 float32 (0, 1)",
    ]


def test_keys_are_equal_for_equal_structure_only():
    assert softmax().key == softmax().key
    other = softmax()
    other.output(other.values[1])
    assert other.key != softmax().key


def test_equal_values_are_one():
    k = Kernel(rank=1)
    x = k.input("float32")
    assert k.exp(x) is k.exp(x)
    assert k.input("float32") is not x
    assert x * 0.0 is not x * -0.0
    assert k.const(1, "int32") is not k.const(1, "int64")


def test_numbers_take_the_dtype_of_the_other_operand():
    k = Kernel(rank=1)
    x = k.input("int8")
    assert (1 - x).dtype == "int8"
    with pytest.raises(DTypeError, match="300 does not fit int8"):
        x + 300
    with pytest.raises(DTypeError, match="does not fit"):
        x * 1.5


def test_narrow_floats_are_float32_inside():
    k = Kernel(rank=1)
    x = k.input("bfloat16")
    assert x.dtype == "float32"
    assert k.output(x + 1, "bfloat16").dtype == "bfloat16"
    with pytest.raises(DTypeError, match="cast it first"):
        k.output(x, "float64")


def test_outputs_are_written_where_they_vary():
    k = Kernel(rank=3)
    x = k.input("float32")
    s = k.sum(x, axes=(0, 2))
    assert k.output(s).axes == (1,)
    assert k.output(x / s).axes == (0, 1, 2)
    assert k.output(s, full=True).axes == (0, 1, 2)


def test_construction_refuses():
    k = Kernel(rank=2)
    x, i = k.input("float32"), k.input("int32")
    with pytest.raises(DTypeError, match="operands are float32, int32"):
        x + i
    with pytest.raises(DTypeError, match="takes float32, float64, not int32"):
        k.exp(i)
    with pytest.raises(DTypeError, match="takes bool, int8"):
        k.not_(x)
    with pytest.raises(DTypeError, match="'complex64'"):
        k.input("complex64")
    with pytest.raises(DTypeError, match="no operand is a kernel value"):
        k.op("add", 1, 2)
    with pytest.raises(InvalidArgument, match="takes 1 operands, not 2"):
        k.exp(x, x)
    with pytest.raises(Unsupported, match="'exq'"):
        k.op("exq", x)
    with pytest.raises(AttributeError, match="'exq'"):
        k.exq(x)
    with pytest.raises(ShapeError, match=r"axes \(2,\) of a kernel of rank 2"):
        k.sum(x, axes=(2,))
    with pytest.raises(ShapeError, match=r"axes \(0, 0\)"):
        k.sum(x, axes=(0, 0))
    k.sum(x, axes=(1,))
    with pytest.raises(ShapeError, match="already reduces over"):
        k.max(x, axes=(0,))
    with pytest.raises(InvalidArgument, match="another kernel"):
        x + Kernel(rank=2).input("float32")
    with pytest.raises(InvalidArgument, match="negative"):
        Kernel(rank=-1)


def malformed(which: int, /, **changes: object) -> Kernel:
    """Softmax with one value changed behind the constructor's back."""
    k = softmax()
    k.values[which] = dataclasses.replace(k.values[which], **changes)
    return k


@pytest.mark.parametrize(
    ("number", "changes", "error", "words"),
    [
        (3, {"dtype": "float64"}, DTypeError, "its operands give float32"),
        (3, {"op": "frobnicate"}, Unsupported, "no such op"),
        (3, {"axes": (0,)}, ShapeError, "its operands vary over"),
        (1, {"attr": (0,)}, ShapeError, "reductions over"),
        (1, {"attr": ()}, ShapeError, "reductions over"),
        (2, {"number": 7}, InvalidArgument, "it is value 2"),
        (0, {"attr": (0, "float99")}, DTypeError, "float99"),
        (0, {"axes": (0, 5)}, ShapeError, "in a kernel of rank 2"),
        (3, {"inputs": ()}, InvalidArgument, "takes 1 operands"),
    ],
)
def test_verify_refuses_malformed_values(number, changes, error, words):
    verify(softmax())
    with pytest.raises(error, match=words):
        verify(malformed(number, **changes))


def test_verify_refuses_values_that_are_not_before():
    k = softmax()
    x = k.values[2]
    later = KernelValue(k, 9, "exp", (x,), "float32", (0, 1))
    k.values[3] = dataclasses.replace(k.values[3], inputs=(later,))
    with pytest.raises(InvalidArgument, match="does not come before"):
        verify(k)


def test_verify_refuses_outputs():
    k = Kernel(rank=2)
    with pytest.raises(InvalidArgument, match="no outputs"):
        verify(k)
    x = k.input("float32")
    s = k.sum(x, axes=(1,))
    k.outputs.append(Output(x, "float32", (0,)))
    with pytest.raises(ShapeError, match="varies over other axes"):
        verify(k)
    k.outputs[:] = [Output(s, "float32", (1,))]
    with pytest.raises(ShapeError, match="neither all axes nor those kept"):
        verify(k)
