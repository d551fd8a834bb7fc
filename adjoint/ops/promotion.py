"""Type promotion of tensors and Python numbers, by PyTorch's rules, and the cast it needs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.exceptions import ComplexWarning

from ..core import dtype as dt
from ..core.argument_errors import misplaced
from ..core.dtype import dtype, promote_types
from ..core.errors import DTypeError, InvalidArgument, InvalidType, NumberTooLarge
from ..core.op import Op, Sample
from ..core.spec import Spec
from ..core.symbolic_scalar import SymbolicFloat, SymbolicNumber
from ..core.symbolic_sizes import is_size
from ..core.tensor_base import TensorBase
from ..core.tensor_type import Tensor
from ..runtime.dispatch import apply
from ..runtime.public import explaining, public

__all__ = ["can_cast", "result_type"]


@dataclass(eq=False, repr=False)
class Cast(Op):
    """Conversion to another dtype."""

    to: dtype
    exact = True
    core = (0,)
    linear = True

    def infer(self, spec: Spec) -> Spec:
        """The spec with the new dtype."""
        return spec.with_(dtype=self.to)

    def compute(self, xp: Any, x: Any) -> Any:
        """A converted copy; complex to real keeps the real part."""
        if x.dtype.kind == "c" and self.to.category in (1, 2):
            x = x.real
        return x.astype(self.to.numpy)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """The engine converts back."""
        return (g,)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Every pair of dtypes."""
        values = np.array([[0.0, 1.5, 2.0], [3.0, 1.0, 100.0]])
        for source in dt.ALL:
            for target in dt.ALL:
                label = f"{source.name}-{target.name}"
                yield Sample(cls(target), (values.astype(source.numpy),), label)
        yield Sample(cls(dt.float64), (np.zeros((0, 2), np.float32),), "empty")
        yield Sample(cls(dt.float32), (np.array(2.5),), "0-d", gradients=False)

    def reference(self, x: Any) -> Any:
        """NumPy's own conversion."""
        real = np.real(x) if self.to.category in (1, 2) else x
        return np.asarray(real).astype(self.to.numpy)


def _combine(higher: dtype | None, lower: dtype | None) -> dtype | None:
    """The result dtype where operands of one priority meet those of a lower one."""
    if higher is None or lower is None:
        return higher or lower
    if higher.is_complex:
        return higher
    if higher.is_floating_point:
        return higher.to_complex() if lower.is_complex else higher
    if higher is dt.bool_ or lower.category >= 2:
        return promote_types(higher, lower)
    return higher


def _join(current: dtype | None, more: dtype) -> dtype:
    return more if current is None else promote_types(current, more)


def common_dtype(values: Iterable[Any], name: str = "result_type") -> dtype:
    """The dtype in which tensors and Python numbers meet: tensors with dimensions decide before
    0-d tensors, and those before numbers, unless a later one is of a higher category.
    """
    dimensioned: dtype | None = None
    zero_dim: dtype | None = None
    number: dtype | None = None
    for value in values:
        if isinstance(value, TensorBase):
            if value._data.ndim:
                dimensioned = _join(dimensioned, value.dtype)
            else:
                zero_dim = _join(zero_dim, value.dtype)
        else:
            try:
                number = _join(number, dt.of_scalar(value))
            except InvalidType:
                raise misplaced(value, name, due="a tensor or a number") from None
    found = _combine(_combine(dimensioned, zero_dim), number)
    if found is None:
        raise InvalidType(f"{name}: needs at least one tensor or number")
    return found


def note_real(x: Any, to: dtype) -> None:
    """Warn where complex values are converted to real ones, as PyTorch does."""
    if x._data.dtype.kind == "c" and to.category in (1, 2):
        warnings.warn(
            "Casting complex values to real discards the imaginary part; take .real, or .abs()",
            ComplexWarning,
            stacklevel=3,
        )


def cast(x: Any, to: dtype) -> Tensor:
    """`x` in dtype `to`, or the one of that name; `x` itself where it has it already."""
    if type(to) is not dtype:
        to = dt.as_dtype(to)
    if x._data.dtype is to.numpy or x.dtype is to:
        result: Tensor = x
    else:
        note_real(x, to)
        result = apply(Cast(to), x)
    return result


def promote(
    name: str, *values: Any, floating: bool = False, fits: bool = False
) -> tuple[dtype, list[Any]]:
    """The common dtype of `values` and the values brought to it (numbers that fit stay numbers).

    With `floating`, integers and bools become the default floating-point dtype. With `fits`,
    integers that the dtype does not hold are refused; otherwise they wrap.
    """
    kinds = {v._data.dtype if isinstance(v, TensorBase) else None for v in values}
    if len(kinds) == 1 and None not in kinds:  # the usual case
        common = values[0].dtype
        if common.category >= 2 or not floating:
            return common, list(values)
    common = common_dtype(values, name)
    if floating and common.category < 2:
        common = dt.get_default_dtype()
    fits = fits or common.numpy not in kinds  # where it is the number's own dtype, nothing wraps
    return common, [
        cast(v, common) if isinstance(v, TensorBase) else number(v, common, name, fits)
        for v in values
    ]


def integer_range(to: dtype) -> tuple[int, int]:
    """The smallest and largest number that PyTorch converts (unsigned types wrap negatives)."""
    info = dt.iinfo(to)
    return (info.min if to.is_signed else -info.max, info.max)


def assert_number(value: int, to: dtype, name: str, fits: bool) -> None:
    """Refuse an int that neither int64 nor uint64 holds; where it `fits`, one that `to` does not
    hold.
    """
    if not -(2**63) <= value < 2**64:
        raise NumberTooLarge(
            f"{name}: Overflow when unpacking long long: {value} is no 64-bit integer; use a "
            "floating-point tensor"
        )
    if fits and to.category == 1:
        low, high = integer_range(to)
        if not low <= value <= high:
            raise InvalidArgument(
                f"{name}: value cannot be converted to type {to.name} without overflow: {value} "
                f"is outside [{low}, {high}]; use a wider dtype"
            )


def number(value: Any, to: dtype, name: str = "number", fits: bool = False) -> Any:
    """A Python number that an array of dtype `to` takes without being promoted itself. Beside
    narrow floats a number of a capture stays one: see `with_wide_numbers`. But a size is read:
    kernels round less often beside a constant, and bits may not say which sizes came before.

    Errors: those of `assert_number`.
    """
    if type(value) is SymbolicNumber:
        narrow = to in dt.LOW_PRECISION
        if narrow and not is_size(value):
            return value
        if not narrow and to.category in (1, 2):
            return value.operand(to)
        value = value.value()
    if to.category < 2 and isinstance(value, int):
        assert_number(value, to, name, fits)
    if to.category == 1:
        if isinstance(value, int):
            if not -(2 ** (8 * to.itemsize - 1)) <= value < 2 ** (8 * to.itemsize - 1):
                return int(np.asarray(value % 2 ** (8 * to.itemsize), np.uint64).astype(to.numpy))
            return int(value) if to.is_signed or value >= 0 else int(value) % 256**to.itemsize
        return int(value)
    if to.category == 2:
        return value if type(value) is SymbolicFloat else float(value)
    if to.category == 3:
        return complex(value)
    return bool(value)


def with_wide_numbers(op: Op, inputs: tuple[Any, ...], run: Callable[..., Any]) -> Any:
    """Result of `run(op, inputs)` where a number that comes with each run stands beside narrow
    floats. These are widened to float32 for it, as eagerly, and the result is rounded once;
    NotImplemented where there is no such number.
    """
    if not any(type(x) is SymbolicNumber for x in inputs):
        return NotImplemented
    narrow = [x for x in inputs if isinstance(x, TensorBase) and x.dtype in dt.LOW_PRECISION]
    if not narrow or not op.pointwise or op.n_outputs != 1:
        return run(op, tuple([x.value() if type(x) is SymbolicNumber else x for x in inputs]))
    wide = tuple(
        cast(x, dt.float32) if any(x is each for each in narrow)
        else x.operand(dt.float32) if type(x) is SymbolicNumber
        else x
        for x in inputs
    )  # fmt: skip
    found = run(op, wide)
    return cast(found, narrow[0].dtype) if found.dtype is dt.float32 else found


def as_tensor_like(value: Any, like: Tensor) -> Tensor:
    """`value` as a tensor beside `like`; a number becomes 0-d in the dtype it promotes to."""
    if isinstance(value, TensorBase):
        return value  # type: ignore[return-value]
    return like.new_tensor(value, dtype=common_dtype((like, value)))


@explaining
@public(method=False)
def result_type(tensor1: Tensor, tensor2: Tensor) -> dtype:
    """The dtype that an operation on both (tensors or numbers) would give.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.result_type.html

    >>> ad.result_type(ad.tensor([1, 2]), 1.0)
    adjoint.float32
    """
    return common_dtype((tensor1, tensor2))


@public(method=False)
def can_cast(from_: dtype, to: dtype) -> bool:
    """Whether an in-place operation may store `from_` values in a tensor of dtype `to`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.can_cast.html

    >>> ad.can_cast(ad.float32, ad.int32)
    False
    """
    return dt.as_dtype(from_).category <= dt.as_dtype(to).category


def assert_can_store(name: str, result: dtype, target: dtype) -> None:
    """Refuse to write `result` values into a tensor of dtype `target`."""
    if result.category > target.category:
        raise DTypeError(
            f"{name}: result type {result} can't be cast to the desired output type {target}; "
            "use the operation that is not in place, or convert the tensor first"
        )
