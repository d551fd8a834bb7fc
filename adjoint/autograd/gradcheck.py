"""gradcheck and gradgradcheck: gradients against central differences.

Complex numbers count as pairs of reals: a gradient is dL/dre + i dL/dim, PyTorch's convention, so
that one Jacobian of reals covers every combination of real and complex inputs and outputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, SupportsInt

import numpy as np

from ..core.device import device_of, host_array, is_device_array, transfer
from ..core.errors import AutogradError, InvalidArgument, InvalidType
from ..core.tensor_base import TensorBase
from ..core.tensor_type import Tensor
from ..runtime.public import naming
from ..runtime.tensors import wrap
from ..runtime.tensors import zeros as tape_zeros
from .batching import Batched, BatchLevel
from .forward_level import ForwardLevel
from .gradients import grad
from .levels import entered
from .modes import enable_grad

if TYPE_CHECKING:
    from .protocols import BackendArray

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]

FORWARD = "Jacobian computed with forward mode mismatch"
FULL = 20_000  # entries of a Jacobian that is still checked in full unless the caller chooses


class GradcheckError(AutogradError):
    """A gradient differs from its finite difference."""


class _NothingToCheck(InvalidArgument, AssertionError):  # noqa: N818 - reads as what happened
    """The switches of a check contradict each other."""


@naming
def gradcheck(
    func: Callable[..., Any],
    inputs: Sequence[Any] | Tensor,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool | None = None,
    masked: bool | None = None,
) -> bool:
    """Whether the gradients of `func(*inputs)` agree with central differences.

    Checked are the inputs that require grad, which should be float64 or complex128; the others
    are handed through. `fast_mode` compares one random projection of each Jacobian instead of all
    its entries; None does so only for large Jacobians. With `check_forward_ad` the tangents of
    duals (`autograd.forward_ad`) must agree as well, which `check_backward_ad=False` leaves alone.

    Errors: GradcheckError (unless `raise_exception` is False) naming the output, the input, the
    worst entry and both values; InvalidType for an output that is no tensor; InvalidArgument where
    nothing is to be checked, or batches of tangents without tangents.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.gradcheck.gradcheck.html

    >>> x = ad.tensor([0.5, 2.0], dtype=ad.float64, requires_grad=True)
    >>> ad.autograd.gradcheck(lambda x: (x * x).sum(), (x,))
    True
    """
    if not (check_forward_ad or check_backward_ad):
        raise _NothingToCheck(
            "gradcheck: Expected at least one of check_forward_ad or check_backward_ad to be True"
        )
    if check_batched_grad and not check_backward_ad:
        raise _NothingToCheck(
            "gradcheck: Setting check_batched_grad=True requires check_backward_ad to be True"
        )
    if check_batched_forward_grad and not check_forward_ad:
        raise _NothingToCheck(
            "gradcheck: Setting check_batched_forward_grad=True requires check_forward_ad to be "
            "True"
        )
    values = _as_tuple(inputs)
    checked = _checked_inputs(values)
    try:
        with enable_grad():
            ys = _outputs(func, values)
            check = _Check(func, values, checked, eps, atol, rtol)
            _assert_constant_outputs(check, ys)
            if check_forward_ad:
                check.compare_tangents(ys, fast_mode)
                if check_undefined_grad:
                    _assert_none_is_zero(check)
                if check_batched_forward_grad:
                    _assert_batched_tangents(check)
            if not check_backward_ad:
                return True
            live = [i for i, y in enumerate(ys) if _differentiable(y)]
            for i in live:
                check.compare(i, ys[i], fast_mode)
                _assert_repeatable(check, i, ys[i], nondet_tol)
                if check_grad_dtypes:
                    _assert_dtypes(check, i, ys[i])
                if check_batched_grad:
                    _assert_batched(check, i, ys[i])
            if check_undefined_grad and live:
                _assert_zero_in_zero_out(check, [ys[i] for i in live])
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


@naming
def gradgradcheck(
    func: Callable[..., Any],
    inputs: Sequence[Any] | Tensor,
    grad_outputs: Sequence[Any] | Tensor | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool | None = None,
    masked: bool = False,
) -> bool:
    """Whether the second derivatives of `func(*inputs)` agree with central differences.

    The function that is checked maps `inputs` and `grad_outputs` (random unless given) to the
    gradients of the inputs; `check_fwd_over_rev` takes duals through it, `check_rev_over_rev` its
    gradients.

    Errors: as `gradcheck`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.gradcheck.gradgradcheck.html

    >>> x = ad.tensor([0.5, 2.0], dtype=ad.float64, requires_grad=True)
    >>> ad.autograd.gradgradcheck(lambda x: x * x * x, (x,))
    True
    """
    if check_undefined_grad and not check_rev_over_rev:
        raise _NothingToCheck(
            "gradgradcheck: Setting check_undefined_grad=True requires check_rev_over_rev to be "
            "True"
        )
    values = _as_tuple(inputs)
    count = len(values)
    with enable_grad():
        if grad_outputs is None:
            live = [y for y in _outputs(func, values) if _differentiable(y)]
            rng = np.random.default_rng(0)
            cotangents = tuple(_random_cotangent(rng, y, gen_non_contig_grad_outputs) for y in live)
        else:
            cotangents = _as_tuple(grad_outputs)
            for g in cotangents:
                if isinstance(g, TensorBase) and _is_float(g) and g._node is None:
                    g.requires_grad_()  # type: ignore[attr-defined]

    def gradients(*arguments: Any) -> tuple[Any, ...]:
        arguments_with_grad = [
            x.requires_grad_() if isinstance(value, TensorBase) and value._node is not None else x
            for x, value in zip(arguments[:count], values, strict=True)
        ]
        ys = [y for y in _outputs(func, arguments_with_grad) if _differentiable(y)]
        xs = [x for x in arguments_with_grad if isinstance(x, TensorBase) and x._node is not None]
        grads = grad(ys, xs, list(arguments[count:]), create_graph=True, allow_unused=True)
        return tuple(g for g in grads if g is not None)

    return gradcheck(
        gradients,
        (*values, *cotangents),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
    )


class _Check:
    """One function at one point, with the tolerances of the comparison."""

    def __init__(
        self,
        func: Callable[..., Any],
        values: tuple[Any, ...],
        checked: list[int],
        eps: float,
        atol: float,
        rtol: float,
    ) -> None:
        self.func = func
        self.values = values
        self.checked = checked  # positions in `values` of the inputs that require grad
        self.eps = eps
        self.atol = atol
        self.rtol = rtol
        self.rng = np.random.default_rng(0)

    def evaluate(self, which: int) -> np.ndarray:
        """Output number `which` as a flat array of reals."""
        return _reals(_outputs(self.func, self.values)[which]._data)

    def vjp(self, y: Tensor, cotangent: np.ndarray) -> list[Any]:
        """The gradients (None: none) of the checked inputs, from a flat array of reals."""
        g = wrap(_from_reals(cotangent, y._data))
        xs = [self.values[i] for i in self.checked]
        return list(grad(y, xs, g, retain_graph=True, allow_unused=True))

    def flat_vjp(self, y: Tensor, cotangent: np.ndarray) -> list[Any]:
        """`vjp` as flat arrays of reals, zero where there is no gradient."""
        return [
            np.zeros(_reals(self.values[i]._data).size) if g is None else _reals(g._data)
            for i, g in zip(self.checked, self.vjp(y, cotangent), strict=True)
        ]

    def tangents(self, moved: dict[int, Any]) -> list[Any]:
        """The tangent of each output (None for zero) where inputs have these tangents."""
        level = ForwardLevel()
        try:
            duals = [
                level.make(x.detach(), moved[i])
                if i in moved
                else x.detach()
                if i in self.checked
                else x
                for i, x in enumerate(self.values)
            ]
            outputs = _outputs(self.func, duals)
            return [y._data.tangent if level.at(y) else None for y in outputs]
        finally:
            level.close()

    def flat_tangents(self, moved: dict[int, Any], ys: Sequence[Any]) -> list[Any]:
        """`tangents` as flat arrays of reals, zero where there is no tangent."""
        return [
            np.zeros(_reals(y._data).size) if t is None else _reals(t._data)
            for y, t in zip(ys, self.tangents(moved), strict=True)
        ]

    def tangent(self, position: int, direction: np.ndarray) -> dict[int, Any]:
        """A tangent for one input only."""
        return {position: wrap(_from_reals(direction, self.values[position]._data))}

    def compare_tangents(self, ys: Sequence[Any], fast: bool | None) -> None:
        """Raise GradcheckError unless the outputs have the right tangents."""
        live = [i for i, y in enumerate(ys) if _is_float(y)]
        sizes = {i: _reals(ys[i]._data).size for i in live}
        for position in self.checked:
            n = _reals(self.values[position]._data).size
            if fast or (fast is None and n * sum(sizes.values()) > FULL):
                u = _unit(self.rng, n)
                tangents = self.flat_tangents(self.tangent(position, u), ys)
                for i in live:
                    v = _unit(self.rng, sizes[i])
                    numerical = float(v @ self.difference(i, position, u))
                    analytical = float(v @ tangents[i])
                    if not np.isclose(analytical, numerical, rtol=self.rtol, atol=self.atol):
                        raise GradcheckError(
                            f"gradcheck: {FORWARD} for output {i} with respect to input "
                            f"{position}, along a random direction: numerical {numerical!r}, "
                            f"analytical {analytical!r}"
                        )
                continue
            matrices = {i: (np.empty((sizes[i], n)), np.empty((sizes[i], n))) for i in live}
            for column, direction in enumerate(_basis(n)):
                tangents = self.flat_tangents(self.tangent(position, direction), ys)
                for i, (numbers, analytic) in matrices.items():
                    numbers[:, column] = self.difference(i, position, direction)
                    analytic[:, column] = tangents[i]
            for i, (numbers, analytic) in matrices.items():
                self._assert_close(i, ys[i], position, numbers, analytic, FORWARD)

    def difference(self, which: int, position: int, direction: np.ndarray) -> np.ndarray:
        """The central difference of output `which` along `direction` of one input."""
        array = self.values[position]._data
        original = array.copy()
        step = _from_reals(direction * self.eps, array)
        try:
            array[...] = original + step
            high = self.evaluate(which)
            array[...] = original - step
            low = self.evaluate(which)
        finally:
            array[...] = original
        return (high - low) / (2 * self.eps)

    def compare(self, which: int, y: Tensor, fast: bool | None) -> None:
        """Raise GradcheckError unless output `which` has the right gradients."""
        size = _reals(y._data).size
        sizes = [_reals(self.values[i]._data).size for i in self.checked]
        if size == 0 or fast or (fast is None and size * sum(sizes) > FULL):
            self._compare_projection(which, y, size, sizes)
            return
        analytical = [np.empty((size, n)) for n in sizes]
        for row, cotangent in enumerate(_basis(size)):
            for matrix, g in zip(analytical, self.flat_vjp(y, cotangent), strict=True):
                matrix[row] = g
        for position, matrix, n in zip(self.checked, analytical, sizes, strict=True):
            numerical = np.empty((size, n))
            for column, direction in enumerate(_basis(n)):
                numerical[:, column] = self.difference(which, position, direction)
            self._assert_close(which, y, position, numerical, matrix)

    def _compare_projection(self, which: int, y: Tensor, size: int, sizes: list[int]) -> None:
        v = _unit(self.rng, size)
        for position, g, n in zip(self.checked, self.flat_vjp(y, v), sizes, strict=True):
            u = _unit(self.rng, n)
            numerical = float(v @ self.difference(which, position, u))
            analytical = float(g @ u)
            if not np.isclose(analytical, numerical, rtol=self.rtol, atol=self.atol):
                if size * n <= FULL:
                    self.compare(which, y, False)  # names the entry
                raise GradcheckError(
                    f"gradcheck: Jacobian mismatch for output {which} with respect to input "
                    f"{position}, along a random direction: numerical {numerical!r}, analytical "
                    f"{analytical!r}"
                )

    def _assert_close(
        self,
        which: int,
        y: Tensor,
        position: int,
        numerical: np.ndarray,
        analytical: np.ndarray,
        what: str = "Jacobian mismatch",
    ) -> None:
        close = np.isclose(analytical, numerical, rtol=self.rtol, atol=self.atol)
        if close.all():
            return
        error = np.where(close, -1.0, np.nan_to_num(np.abs(analytical - numerical), nan=np.inf))
        row, column = np.unravel_index(int(error.argmax()), error.shape)
        raise GradcheckError(
            f"gradcheck: {what} for output {which} with respect to input {position}, "
            f"at output index {_place(row, y._data)} and input index "
            f"{_place(column, self.values[position]._data)}: numerical "
            f"{numerical[row, column]!r}, analytical {analytical[row, column]!r} "
            f"({int((~close).sum())} of {close.size} entries differ).\n"
            f"numerical:\n{numerical}\nanalytical:\n{analytical}"
        )


# ---- further checks ------------------------------------------------------------------------------


def _assert_constant_outputs(check: _Check, ys: Sequence[Any]) -> None:
    """Outputs that do not require grad must not depend on the inputs that do."""
    for which, y in enumerate(ys):
        if y._node is not None or not _is_float(y):
            continue
        for position in check.checked:
            n = _reals(check.values[position]._data).size
            change = check.difference(which, position, _unit(check.rng, n))
            if change.size and not np.allclose(change, 0, atol=check.atol):
                raise GradcheckError(
                    f"gradcheck: Numerical gradient for function expected to be zero: output "
                    f"{which} does not require grad, but changes with input {position} (by "
                    f"{np.abs(change).max()!r} per unit)"
                )


def _assert_repeatable(check: _Check, which: int, y: Tensor, tolerance: float) -> None:
    v = _unit(check.rng, _reals(y._data).size)
    first, second = check.flat_vjp(y, v), check.flat_vjp(y, v)
    for position, a, b in zip(check.checked, first, second, strict=True):
        if not np.allclose(a, b, rtol=0, atol=tolerance, equal_nan=True):
            raise GradcheckError(
                f"gradcheck: Backward is not reentrant, i.e., running backward with same input "
                f"and grad_output multiple times gives different values, although analytical "
                f"gradient matches numerical gradient (output {which}, input {position}, largest "
                f"difference {np.abs(a - b).max()!r}, nondet_tol {tolerance})"
            )


def _assert_dtypes(check: _Check, which: int, y: Tensor) -> None:
    gradients = check.vjp(y, np.ones(_reals(y._data).size))
    for position, g in zip(check.checked, gradients, strict=True):
        if g is not None and g.dtype is not check.values[position].dtype:
            raise GradcheckError(
                f"gradcheck: the gradient of output {which} with respect to input {position} has "
                f"dtype {g.dtype}, the input {check.values[position].dtype}"
            )


def _assert_batched(check: _Check, which: int, y: Tensor) -> None:
    vs = [_unit(check.rng, _reals(y._data).size) for _ in range(2)]
    xs = [check.values[i] for i in check.checked]
    batch = wrap(np.stack([_from_reals(v, y._data) for v in vs]))
    batched = grad(y, xs, batch, retain_graph=True, allow_unused=True, is_grads_batched=True)
    for row, v in enumerate(vs):
        for position, one, both in zip(check.checked, check.vjp(y, v), batched, strict=True):
            if one is not None and not np.allclose(_reals(one._data), _reals(both._data[row])):
                raise GradcheckError(
                    f"gradcheck: batched gradients of output {which} with respect to input "
                    f"{position} differ from those computed one by one"
                )


def _assert_zero_in_zero_out(check: _Check, ys: list[Any]) -> None:
    xs = [check.values[i] for i in check.checked]
    zeros = [tape_zeros(y._data.shape, y._data.dtype, y.device) for y in ys]
    gradients = grad(ys, xs, zeros, retain_graph=True, allow_unused=True)
    for position, g in zip(check.checked, gradients, strict=True):
        if g is not None and g._data.size and not (g._data == 0).all():
            raise GradcheckError(
                f"gradcheck: backward not multiplied by grad_output: with grad_outputs of zeros, "
                f"the gradient of input {position} is {g._data!r}"
            )


def _assert_none_is_zero(check: _Check) -> None:
    """Check that a missing tangent of an input has the same effect as a zero tangent."""
    moved = {
        i: wrap(_from_reals(_unit(check.rng, _reals(x._data).size), x._data))
        for i, x in enumerate(check.values)
        if i in check.checked
    }
    for i in check.checked:
        array = check.values[i]._data
        zero = wrap(_from_reals(np.zeros(_reals(array).size), array))
        some = check.tangents({k: t for k, t in moved.items() if k != i})
        all_of_them = check.tangents({**moved, i: zero})
        for which, (a, b) in enumerate(zip(some, all_of_them, strict=True)):
            got, expected = (0.0 if t is None else _reals(t._data) for t in (a, b))
            if not np.allclose(got, expected):
                raise GradcheckError(
                    f"gradcheck: Mismatch in tangent values for output {which} when input {i} has "
                    f"an undefined tangent value: got {got!r}, expected {expected!r}, as with a "
                    "tangent of zeros"
                )


def _assert_batched_tangents(check: _Check) -> None:
    for i in check.checked:
        array = check.values[i]._data
        vs = [_unit(check.rng, _reals(array).size) for _ in range(2)]
        level = BatchLevel(len(vs), "error")
        batch = wrap(np.stack([_from_reals(v, array) for v in vs]))
        with entered(level):
            together = check.tangents({i: wrap(Batched(level, batch))})
        for row, v in enumerate(vs):
            for which, (one, many) in enumerate(
                zip(check.tangents(check.tangent(i, v)), together, strict=True)
            ):
                each = many
                if many is not None and level.at(many):
                    each = many._data.inner if many._data.whole else many._data.inner[row]
                in_batch, expected = (0.0 if t is None else _reals(t._data) for t in (each, one))
                if not np.allclose(in_batch, expected):
                    raise GradcheckError(
                        f"gradcheck: batched tangents of output {which} along input {i} differ "
                        "from those computed one by one"
                    )


# ---- inputs, outputs, pairs of reals -------------------------------------------------------------


def _as_tuple(value: object) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _is_float(x: Tensor) -> bool:
    return bool(x._data.dtype.kind in "fcV")


def _differentiable(y: Tensor) -> bool:
    return y._node is not None and _is_float(y)


def _checked_inputs(values: tuple[Any, ...]) -> list[int]:
    """Positions of the inputs that require grad, after refusing what cannot be perturbed."""
    checked = []
    for i, x in enumerate(values):
        if not isinstance(x, TensorBase) or x._node is None:
            continue
        data = x._data
        if data.dtype not in (np.dtype(np.float64), np.dtype(np.complex128)):
            warnings.warn(
                f"gradcheck: Input #{i} requires gradient and is not a double precision floating "
                f"point or complex (it is {x.dtype}); finite differences will be inaccurate",
                stacklevel=3,
            )
        overlaps = data.size and any(
            n > 1 and s == 0 for n, s in zip(data.shape, data.strides, strict=True)
        )
        if overlaps or not data.flags.writeable:
            raise AutogradError(
                f"gradcheck: The {i}th input has a dimension with stride 0 or read-only memory. "
                "gradcheck() needs to perturb its elements one by one; call .clone() on it first"
            )
        checked.append(i)
    if not checked:
        raise AutogradError(
            "gradcheck: expects at least one input tensor to require gradient, but none of them "
            "have requires_grad=True"
        )
    return checked


def _outputs(func: Callable[..., Any], values: Sequence[Any]) -> tuple[Any, ...]:
    outputs = _as_tuple(func(*values))
    for i, y in enumerate(outputs):
        if not isinstance(y, TensorBase):
            raise InvalidType(
                f"gradcheck: Expected Tensor outputs only, but output {i} is a {type(y).__name__}"
            )
    return outputs


def _reals(array: BackendArray) -> np.ndarray:
    """A flat float64 copy in the host's memory; complex entries become pairs."""
    array = host_array(array, {})
    if array.dtype.kind == "c":
        return np.array(array, np.complex128, order="C").reshape(-1).view(np.float64)
    return np.array(array, np.float64).reshape(-1)


def _from_reals(flat: np.ndarray, like: BackendArray) -> Any:
    """The array of `like`'s shape and dtype that `_reals` would turn into `flat`."""
    if like.dtype.kind == "c":
        flat = np.ascontiguousarray(flat).view(np.complex128)
    array = flat.reshape(like.shape).astype(like.dtype)
    return transfer(array, device_of(like)) if is_device_array(like) else array


def _place(number: SupportsInt, array: BackendArray) -> str:
    """The index in `array`, as text, of real number `number` of `_reals(array)`."""
    part = ""
    if array.dtype.kind == "c":
        number, odd = divmod(int(number), 2)
        part = " (imaginary part)" if odd else " (real part)"
    return f"{tuple(int(i) for i in np.unravel_index(int(number), array.shape))}{part}"


def _basis(size: int) -> Iterator[Any]:
    for i in range(size):
        e = np.zeros(size)
        e[i] = 1
        yield e


def _unit(rng: np.random.Generator, size: int) -> np.ndarray:
    v = rng.standard_normal(size)
    return v / (np.linalg.norm(v) or 1.0)


def _random_cotangent(rng: np.random.Generator, y: Tensor, strided: bool) -> Tensor:
    shape = y._data.shape
    if strided and shape:
        values = _random(rng, (*shape[:-1], 2 * shape[-1]), y._data.dtype)[..., ::2]
    else:
        values = _random(rng, shape, y._data.dtype)
    if is_device_array(y._data):
        values = transfer(values, y.device)
    return wrap(values).requires_grad_()


def _random(rng: np.random.Generator, shape: tuple[int, ...], data_type: np.dtype) -> np.ndarray:
    values = rng.standard_normal(shape)
    if data_type.kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return np.asarray(values).astype(data_type)
