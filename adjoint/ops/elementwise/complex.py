"""Complex numbers: their parts, conjugates and angles, and tensors seen as either kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.errors import DTypeError, ShapeError
from ...core.op import Op, Sample
from ...core.spec import Spec, broadcast_shapes
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply, apply_view, run_known
from ...runtime.mirrors import is_mirror, mirror
from ...runtime.public import METHODS, explaining, public
from ..promotion import cast
from ..samples import COMPLEX, FLOATS, array, binary_samples, each_dtype, strided, unary_samples
from ..shape.sizes import hold_sizes
from .comparison import where
from .functions import square
from .pointwise import COMPLEX_ONLY, Analytic, Elementwise, Floating, to_out
from .relational import eq
from .trigonometry import cos, sin

__all__ = [
    "angle", "complex", "conj", "conj_physical", "imag", "is_complex", "is_conj",
    "is_floating_point", "is_neg", "is_signed", "isreal", "polar", "real", "resolve_conj",
    "resolve_neg", "view_as_complex", "view_as_real",
]  # fmt: skip


# ---- parts --------------------------------------------------------------------------------------


class Part(Elementwise, abstract=True):
    """Base of the two parts of complex numbers, which are views of their memory."""

    kinds = COMPLEX_ONLY
    result = "real"
    exact = True
    view = True
    needs = ""
    samples = unary_samples(dtypes=COMPLEX)


class Real(Part):
    """The real part of each element."""

    linear = True

    def compute(self, xp: Any, x: Any) -> Any:
        """A view."""
        return xp.real(x)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """g; the engine makes it complex."""
        return (g,)

    def reference(self, x: Any) -> Any:
        """Half of the sum with the conjugate."""
        return ((x + np.conj(x)) / 2).real


class Imag(Part):
    """The imaginary part of each element."""

    linear = True

    def compute(self, xp: Any, x: Any) -> Any:
        """A view."""
        return xp.imag(x)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """i g."""
        return (apply(COMPLEX_OP, g.new_zeros(g.shape), g),)

    def reference(self, x: Any) -> Any:
        """The real part after a quarter turn."""
        return np.real(-1j * x)


class Conj(Elementwise):
    """The complex conjugate of each element."""

    ufunc = "conj"
    exact = True
    samples = unary_samples(dtypes=COMPLEX + FLOATS)
    linear = True

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """The conjugate of g."""
        return (conj(g),)

    def reference(self, x: Any) -> Any:
        """Reference value from the parts."""
        return x.real - 1j * x.imag if x.dtype.kind == "c" else x


class Complex(Floating):
    """Complex numbers from their real and imaginary parts."""

    exact = True
    library = "moves"
    samples = binary_samples(dtypes=(dt.float64, dt.float32))

    def infer(self, *specs: Any) -> Spec:
        """The complex dtype of the parts' precision."""
        spec = super().infer(*specs)
        return spec.with_(dtype=spec.dtype.to_complex())

    def compute(self, xp: Any, x1: Any, x2: Any) -> Any:
        """A new array with both parts written into it."""
        if type(x1) is np.ndarray and type(x2) is np.ndarray and xp.moves:
            found = xp.paired(x1, x2)
            if found is not NotImplemented:
                return found
        dtype = (x1 if hasattr(x1, "dtype") else x2).dtype
        shape = broadcast_shapes(np.shape(x1), np.shape(x2), op="complex")
        result = xp.empty(shape, xp.complex64 if dtype.itemsize < 8 else xp.complex128)
        result.real = x1
        result.imag = x2
        return result

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """The parts of g."""
        return (lambda: real(g), lambda: imag(g))

    def reference(self, x1: Any, x2: Any) -> Any:
        """Reference value by arithmetic."""
        return x1 + 1j * x2


COMPLEX_OP = Complex()
_REAL, _IMAG, _CONJ = Real(), Imag(), Conj()


@explaining
@public(method=False)
def real(input: Tensor) -> Tensor:
    """A view of the real parts; a real tensor itself.

    Dtypes: the result is real, of the same precision.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.real.html

    >>> ad.real(ad.tensor([1 + 2j]))
    tensor([1.])
    """
    if not isinstance(input, TensorBase):
        assert_tensor("real", input)
    result: Any = input
    if input._data.dtype.kind == "c":
        result = apply_view(_REAL, input)
    return result


@explaining
@public(method=False)
def imag(input: Tensor) -> Tensor:
    """A view of the imaginary parts.

    Dtypes: complex; the result is real, of the same precision.
    Errors: DTypeError for a real tensor.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.imag.html

    >>> ad.imag(ad.tensor([1 + 2j]))
    tensor([2.])
    """
    assert_tensor("imag", input)
    if not input.dtype.is_complex:
        raise DTypeError(
            "imag: is not implemented for tensors with non-complex dtypes, got "
            f"{input.dtype}; the imaginary part of a real tensor is zeros_like(x)"
        )
    return apply(_IMAG, input)


def _write_part(part: Any) -> Any:
    def write(self: Any, value: Any) -> None:
        target = part(self)
        target.copy_(value) if isinstance(value, TensorBase) else target.fill_(value)

    return write


# Attributes of tensors, as in PyTorch.
METHODS["real"] = property(real, _write_part(real), doc=real.__doc__)  # type: ignore[assignment]
METHODS["imag"] = property(imag, _write_part(imag), doc=imag.__doc__)  # type: ignore[assignment]


@public(out=True, inplace=True)
def conj_physical(input: Tensor) -> Tensor:
    """The complex conjugate of each element; a real tensor itself.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.conj_physical.html

    >>> ad.conj_physical(ad.tensor([1 + 2j]))
    tensor([1.-2.j])
    """
    assert_tensor("conj_physical", input)
    return apply(_CONJ, input) if input.dtype.is_complex else input


@explaining
@public()
def conj(input: Tensor) -> Tensor:
    """The complex conjugate of each element, a view; a real tensor itself.

    The conjugate is computed at once: PyTorch's lazy conjugate bit does not exist here. Writes to
    either tensor are carried to the other.

    Errors: Unsupported for a write to either in a compiled function or with gradients.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.conj.html

    >>> ad.conj(ad.tensor([1 + 2j]))
    tensor([1.-2.j])
    """
    if not isinstance(input, TensorBase):
        assert_tensor("conj", input)
    result: Any = input
    if input._data.dtype.kind == "c":
        result = apply(_CONJ, input)
        mirror(input, result)
    return result


@explaining
@public()
def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself, or a copy of what `conj` has given, to which no write is carried.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.resolve_conj.html

    >>> ad.resolve_conj(ad.tensor([1 + 2j]))
    tensor([1.+2.j])
    """
    assert_tensor("resolve_conj", input)
    return input.clone() if is_mirror(input) else input


@explaining
@public()
def resolve_neg(input: Tensor) -> Tensor:
    """The tensor itself: negatives are always computed at once.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.resolve_neg.html

    >>> ad.resolve_neg(ad.tensor([1.]))
    tensor([1.])
    """
    assert_tensor("resolve_neg", input)
    return input


@explaining
@public()
def is_conj(input: Tensor) -> bool:
    """Whether the tensor is a conjugate not yet computed: never.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.is_conj.html

    >>> ad.is_conj(ad.tensor([1 + 2j]).conj())
    False
    """
    assert_tensor("is_conj", input)
    return False


@explaining
@public()
def is_neg(input: Tensor) -> bool:
    """Whether the tensor is a negative not yet computed: never.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_neg.html

    >>> ad.is_neg(-ad.tensor([1.]))
    False
    """
    assert_tensor("is_neg", input)
    return False


@explaining
@public(method=False)
def complex(real: Any, imag: Any, *, out: Tensor | None = None) -> Tensor:
    """Complex numbers from their real and imaginary parts.

    Shapes: `real` and `imag` broadcast.
    Dtypes: float32 parts make complex64, float64 parts complex128; both the same.
    Errors: DTypeError for other dtypes, or for two that differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.complex.html

    >>> ad.complex(ad.tensor([1., 2.]), ad.tensor([3., 4.]))
    tensor([1.+3.j, 2.+4.j])
    """
    result: Any = run_known(COMPLEX_OP, (real, imag))
    if result is not None:
        return to_out(result, out, "complex")
    assert_tensor("complex", real, "real")
    assert_tensor("complex", imag, "imag")
    if not (real.dtype.is_floating_point and imag.dtype.is_floating_point):
        raise DTypeError(
            "complex: Expected both inputs to be float16, float32 or float64 tensors but got "
            f"{real.dtype} and {imag.dtype}; convert with .float()"
        )
    if real.dtype is not imag.dtype:
        raise DTypeError(
            f"complex: Expected object of scalar type {real.dtype} but got scalar type "
            f"{imag.dtype} for second argument; convert one with .to()"
        )
    return to_out(apply(COMPLEX_OP, real, imag), out, "complex")


@public(method=False)
def polar(abs: Any, angle: Any, *, out: Tensor | None = None) -> Tensor:
    """Complex numbers from their absolute values and angles.

    Shapes: `abs` and `angle` broadcast.
    Dtypes: float32 makes complex64, float64 complex128; both the same.
    Errors: DTypeError for other dtypes, or for two that differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.polar.html

    >>> ad.polar(ad.tensor([2.]), ad.tensor([0.]))
    tensor([2.+0.j])
    """
    assert_tensor("polar", abs, "abs")
    assert_tensor("polar", angle, "angle")
    if not abs.dtype.is_floating_point or abs.dtype is not angle.dtype:
        raise DTypeError(
            "polar: Expected both inputs to be floating-point tensors of one dtype, got "
            f"{abs.dtype} and {angle.dtype}; convert one with .to()"
        )
    return to_out(complex(abs * cos(angle), abs * sin(angle)), out, "polar")


# ---- angles --------------------------------------------------------------------------------------


class Angle(Analytic):
    """The angle of each complex number in the plane, between -pi and pi."""

    result = "real"
    samples = unary_samples(dtypes=COMPLEX + FLOATS)

    def compute(self, xp: Any, x: Any) -> Any:
        """Angle in radians; for real numbers pi where negative, 0 elsewhere, NaN for NaN."""
        if x.dtype.kind == "c":
            return xp.arctan2(x.imag, x.real)
        zero, pi = xp.asarray(0, dtype=x.dtype), xp.asarray(np.pi, dtype=x.dtype)
        return xp.where(x < 0, pi, xp.where(x >= 0, zero, x))

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """i g x / |x|^2, and 0 at 0; zero for real numbers."""
        if not x.dtype.is_complex:
            return (g.new_zeros(g.shape),)
        size = square(x.real) + square(x.imag)
        zero = eq(size, 0)
        scale = where(zero, 0, g / where(zero, 1, size))
        return (complex(-(scale * x.imag), scale * x.real),)

    def reference(self, x: Any) -> Any:
        """NumPy's own, which has NaN too."""
        wide = x.astype(np.complex128) if x.dtype.kind == "c" else x.astype(np.float64)
        value = np.angle(wide)
        return value if x.dtype.kind == "c" else np.where(wide == 0, 0, value)


_ANGLE = Angle()


@public(out=True)
def angle(input: Tensor) -> Tensor:
    """The angle of each element in the complex plane; pi for negative real numbers.

    Dtypes: the result is real; integers become the default floating-point dtype.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.angle.html

    >>> ad.angle(ad.tensor([1j, -1 + 0j]))
    tensor([1.5708, 3.1416])
    """
    result: Any = run_known(_ANGLE, (input,))
    if result is None:
        assert_tensor("angle", input)
        x: Any = input
        if x.dtype.category < 2:
            x = cast(x, dt.get_default_dtype())
        result = apply(_ANGLE, x)
    return result


# ---- tensors seen as the other kind --------------------------------------------------------------


class ViewAsReal(Op):
    """Complex numbers as pairs of real ones in a last dimension of size 2."""

    view = True
    exact = True
    strict: ClassVar[bool] = True
    core = (0,)
    linear = True

    def infer(self, spec: Spec) -> Spec:
        """A spec of one more dimension; real."""
        if not spec.dtype.is_complex:
            raise DTypeError(
                f"view_as_real: is only supported for complex tensors, got {spec.dtype}"
            )
        return spec.with_(shape=(*spec.shape, 2), dtype=spec.dtype.to_real())

    def compute(self, xp: Any, x: Any) -> Any:
        """A view."""
        return x[..., None].view(x.real.dtype)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """Back to complex numbers."""
        return (apply(_VIEW_AS_COMPLEX, g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Both precisions; strided, 0-d, empty."""
        yield from each_dtype(cls(), COMPLEX, (2, 3))
        yield Sample(cls(), (strided(array((3, 4), COMPLEX[0])),), "strided")
        yield Sample(cls(), (array((), COMPLEX[0]),), "0-d")
        yield Sample(cls(), (array((0, 3), COMPLEX[0]),), "empty")

    def reference(self, x: Any) -> Any:
        """The parts stacked."""
        return np.stack([x.real, x.imag], -1)


class ViewAsComplex(Op):
    """Pairs of real numbers in a last dimension of size 2 as complex ones."""

    view = True
    exact = True
    strict: ClassVar[bool] = True
    core = (1,)
    linear = True

    def infer(self, spec: Spec) -> Spec:
        """A spec of one dimension less; complex."""
        if spec.dtype not in (dt.float32, dt.float64):
            raise DTypeError(
                "view_as_complex: is only supported for float32 and float64 tensors, got "
                f"{spec.dtype}; convert with .float()"
            )
        if not spec.shape or spec.shape[-1] != 2:
            raise ShapeError(
                "view_as_complex: Tensor must have a last dimension of size 2, got shape "
                f"{spec.shape}"
            )
        return spec.with_(shape=spec.shape[:-1], dtype=spec.dtype.to_complex())

    def compute(self, xp: Any, x: Any) -> Any:
        """A view where each pair lies together, otherwise a copy."""
        if x.strides[-1] != x.itemsize:
            x = xp.ascontiguousarray(x)
        return x.view(xp.complex64 if x.itemsize == 4 else xp.complex128)[..., 0]

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """Back to pairs."""
        return (apply(_VIEW_AS_REAL, g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Both precisions; strided, 0-d, empty."""
        yield from each_dtype(cls(), (dt.float64, dt.float32), (3, 2))
        yield Sample(cls(), (np.moveaxis(array((2, 3)), 0, -1),), "strided")
        yield Sample(cls(), (array((2,)),), "0-d")
        yield Sample(cls(), (array((0, 2)),), "empty")

    def reference(self, x: Any) -> Any:
        """Reference value by arithmetic."""
        return x[..., 0] + 1j * x[..., 1]


_VIEW_AS_REAL, _VIEW_AS_COMPLEX = ViewAsReal(), ViewAsComplex()


@explaining
@public(method=False)
def view_as_real(input: Tensor) -> Tensor:
    """A view of complex numbers as pairs of real ones in a last dimension of size 2.

    Errors: DTypeError for a real tensor.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.view_as_real.html

    >>> ad.view_as_real(ad.tensor([1 + 2j]))
    tensor([[1., 2.]])
    """
    assert_tensor("view_as_real", input)
    return apply(_VIEW_AS_REAL, input)


@public(method=False)
def view_as_complex(input: Tensor) -> Tensor:
    """A view of pairs of real numbers, in a last dimension of size 2, as complex ones.

    Errors: DTypeError for dtypes but float32 and float64; ShapeError for another last dimension,
        or where the two numbers of a pair do not lie together in memory.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.view_as_complex.html

    >>> ad.view_as_complex(ad.tensor([[1., 2.]]))
    tensor([1.+2.j])
    """
    assert_tensor("view_as_complex", input)
    _VIEW_AS_COMPLEX.infer(input.spec)
    if input.stride(-1) != 1:
        raise ShapeError(
            "view_as_complex: Tensor must have a last dimension with stride 1, got strides "
            f"{input.stride()}; call .contiguous() first"
        )
    return apply(_VIEW_AS_COMPLEX, input)


# ---- kinds of dtype ------------------------------------------------------------------------------


@explaining
@public(method=False)
def is_complex(input: Tensor) -> bool:
    """Whether the tensor's dtype is complex.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.is_complex.html

    >>> ad.is_complex(ad.tensor([1j]))
    True
    """
    assert_tensor("is_complex", input)
    return bool(input.dtype.is_complex)


@explaining
@public(method=False)
def is_floating_point(input: Tensor) -> bool:
    """Whether the tensor's dtype is a floating-point one.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.is_floating_point.html

    >>> ad.is_floating_point(ad.tensor([1.]))
    True
    """
    assert_tensor("is_floating_point", input)
    return bool(input.dtype.is_floating_point)


@explaining
@public(method=False)
def is_signed(input: Tensor) -> bool:
    """Whether the tensor's dtype has negative numbers.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_signed.html

    >>> ad.is_signed(ad.tensor([1]))
    True
    """
    assert_tensor("is_signed", input)
    return bool(input.dtype.is_signed)


@explaining
@public(out=False)
def isreal(input: Tensor) -> Tensor:
    """Whether each element is real: every element of a real tensor, those without imaginary part
    of a complex one.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.isreal.html

    >>> ad.isreal(ad.tensor([1 + 0j, 1j]))
    tensor([ True, False])
    """
    assert_tensor("isreal", input)
    if input.dtype.is_complex:
        return eq(imag(input), 0)
    return hold_sizes("isreal", eq(input.new_zeros(input.shape), 0), input)
