"""Random numbers: counter-based draws that are pure ops of (seed, draw number).

A generator's state is its seed and the number of draws taken from it; draw number n reads its own
stream of the Philox counter space. So eager, lazy and compiled runs of one program draw the same
numbers, and restoring two integers restores the sequence bit for bit.

After `follow_torch()` a generator that is seeded is PyTorch's instead (`twister.py`), whose draws
come one after another: they are made at once where others are recorded, and as a run begins in
compiled functions. `followed` is the one place that asks it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.device import as_device
from ...core.device import device as Device  # noqa: N812 - the parameters here are called device
from ...core.errors import DTypeError, InvalidArgument, InvalidType, ShapeError
from ...core.mode import refuse_where
from ...core.spec import broadcast_shapes
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.fused import creating
from ...runtime.public import explaining, public
from ...runtime.tensors import fresh
from ..argument_dtypes import REALS, assert_dtypes
from ..create.allocation import assert_strided, into, sizes_from
from ..create.values import target
from ..memory_formats import assert_memory_format
from ..promotion import cast
from ..shape.sizes import hold_sizes, is_of_graph
from .draws import (
    Bernoulli,
    DrawnFor,
    Mask,
    Multinomial,
    Normal,
    Permutation,
    Poisson,
    RandInt,
    Uniform,
    assert_chances,
)
from .generators import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
    torch_generator,
)
from .generators import follow_torch as follow_torch
from .streams import (
    _as_new,
    _assert_kind,
    draw_for,
    draw_normal,
    draw_uniform,
    drawn,
    drawn_from,
    drawn_plainly,
    few_plain,
    followed,
    followed_multinomial,
    rejecting,
)

if TYPE_CHECKING:
    from ...ops.argument_types import DeviceLike, Dims, DTypeLike, Layout, MemoryFormat

__all__ = [
    "Generator", "bernoulli", "default_generator", "get_rng_state", "initial_seed", "manual_seed",
    "multinomial", "normal", "poisson", "rand", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "randperm", "seed", "set_rng_state",
]  # fmt: skip


def _finished(
    result: Any,
    out: Any,
    dtype: Any,
    device: Any,
    requires_grad: bool,
    name: str,
    pin_memory: bool = False,
) -> Tensor:
    if out is not None:
        return into(result._data, out, dtype, name)
    if pin_memory:
        result = result.pin_memory()
    return result.requires_grad_() if requires_grad else result


@public(method=False)
@functools.partial(creating, draw=(Uniform, default_generator))
def rand(
    *sizes: Dims,
    size: Dims | None = None,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Numbers spread evenly over [0, 1).

    Shapes: the sizes given as numbers or as one sequence.
    Errors: DTypeError for a dtype that is not floating point or complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.rand.html

    >>> ad.rand(2, 3).shape
    adjoint.Size([2, 3])
    """
    assert_strided("rand", layout)
    d = (target(dtype) or dt.get_default_dtype()) if out is None else out.dtype
    place = _place(device, out)
    result = draw_uniform(sizes_from(sizes, size, "rand"), d, generator, place, out)
    return _finished(result, out, dtype, device, requires_grad, "rand", pin_memory)


@public(method=False)
@functools.partial(creating, draw=(Normal, default_generator))
def randn(
    *sizes: Dims,
    size: Dims | None = None,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Numbers with the standard normal distribution; complex ones have variance 1 in all.

    Shapes: the sizes given as numbers or as one sequence.
    Errors: DTypeError for a dtype that is not floating point or complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.randn.html

    >>> ad.randn(2, 3).shape
    adjoint.Size([2, 3])
    """
    assert_strided("randn", layout)
    d = (target(dtype) or dt.get_default_dtype()) if out is None else out.dtype
    place = _place(device, out)
    result = draw_normal(sizes_from(sizes, size, "randn"), d, generator, place, out)
    return _finished(result, out, dtype, device, requires_grad, "randn", pin_memory)


@explaining
@public(method=False)
def randint(
    low: Any = None,
    high: Any = None,
    size: tuple[int, ...] | list[int] | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Whole numbers spread evenly over [low, high); `randint(high, size)` starts at 0.

    Shapes: `size`.
    Dtypes: int64 unless another is given.
    Errors: InvalidArgument where the range is empty or the dtype cannot hold it.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.randint.html

    >>> bool((ad.randint(3, 5, (100,)) >= 3).all())
    True
    """
    assert_strided("randint", layout)
    if isinstance(high, (tuple, list)):
        low, high, size = 0, low, high
    elif low is None:
        low = 0
    elif high is None:
        low, high = 0, low
    if high is None:
        raise InvalidType('randint: missing required argument: "high"')
    if size is None:
        raise InvalidType('randint: missing required argument: "size"')
    d = (target(dtype) or dt.int64) if out is None else out.dtype
    shape, place = sizes_from((tuple(size),), None, "randint"), _place(device, out)
    result = _draw_integers(low, high, shape, d, generator, place, out)
    return _finished(result, out, dtype, device, requires_grad, "randint", pin_memory)


def _place(device: Any, out: Any) -> Device:
    """Device on which the numbers are drawn."""
    return as_device(device) if out is None else out.device  # type: ignore[no-any-return]


def _draw_integers(
    low: Any,
    high: Any,
    shape: tuple[int, ...],
    d: dt.dtype,
    generator: Any,
    place: Device,
    like: Any = None,
) -> Tensor:
    low, high = int(low), int(high)
    if low >= high:
        raise InvalidArgument(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    least, most = (0, 1) if d is dt.bool_ else _whole_numbers(d)
    if low < least or high - 1 > most:
        raise InvalidArgument(
            f"random_: from={low} and to - 1={high - 1} must lie within [{least}, {most}], the "
            f"range of {d}"
        )
    if (own := torch_generator(generator, place)) is not None:
        return followed(own, place, "integers", (low, high), shape, d, like)
    return drawn(RandInt, generator, place, low, high, shape, d)


@functools.cache
def _whole_numbers(d: dt.dtype) -> tuple[int, int]:
    """The range of whole numbers that `d` can hold."""
    if d.category == 1:
        info = dt.iinfo(d)
        return info.min, info.max
    limit = min(int(dt.finfo(d).max), 2**63 - 1)
    return -limit, limit


@explaining
@public(method=False)
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """The numbers 0 to n - 1 in random order.

    Shapes: (n,).
    Dtypes: int64 unless another is given.
    Errors: InvalidArgument for a negative n.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.randperm.html

    >>> sorted(ad.randperm(4).tolist())
    [0, 1, 2, 3]
    """
    assert_strided("randperm", layout)
    if n < 0:
        raise InvalidArgument(f"randperm: n must be non-negative, got {n}")
    d = (target(dtype) or dt.int64) if out is None else out.dtype
    place = _place(device, out)
    if (own := torch_generator(generator, place)) is not None:
        result = followed(own, place, "permutation", (), (int(n),), d)
    else:
        result = drawn(Permutation, generator, place, int(n), d)
    return _finished(result, out, dtype, device, requires_grad, "randperm")


@explaining
@public(method=False)
def rand_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Numbers spread evenly over [0, 1), in the shape and dtype of `input`.

    Errors: DTypeError for a dtype that is not floating point or complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.rand_like.html

    >>> ad.rand_like(ad.zeros(2, 3)).shape
    adjoint.Size([2, 3])
    """
    assert_strided("rand_like", layout)
    assert_memory_format(memory_format, "rand_like")
    place = input.device if device is None else as_device(device)
    d = target(dtype) or input.dtype
    result = draw_for((input,), draw_uniform, tuple(input.shape), d, generator, place, input)
    return _finished(
        _like(result, input), None, dtype, device, requires_grad, "rand_like", pin_memory
    )


@explaining
@public(method=False)
def randn_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Standard normal numbers in the shape and dtype of `input`.

    Errors: DTypeError for a dtype that is not floating point or complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.randn_like.html

    >>> ad.randn_like(ad.zeros(2, 3)).shape
    adjoint.Size([2, 3])
    """
    assert_strided("randn_like", layout)
    assert_memory_format(memory_format, "randn_like")
    place = input.device if device is None else as_device(device)
    d = target(dtype) or input.dtype
    like = _as_new(input)
    result = draw_for((input,), draw_normal, tuple(input.shape), d, generator, place, like)
    return _finished(
        _like(result, input), None, dtype, device, requires_grad, "randn_like", pin_memory
    )


@explaining
@public(method=False)
def randint_like(
    input: Tensor,
    low: Any = None,
    high: Any = None,
    *,
    generator: Generator | None = None,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Whole numbers of [low, high) in the shape and dtype of `input`; low is 0 if left out.

    Errors: InvalidArgument where the range is empty or the dtype cannot hold it.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.randint_like.html

    >>> ad.randint_like(ad.zeros(2), 5, 6)
    tensor([5., 5.])
    """
    assert_strided("randint_like", layout)
    assert_memory_format(memory_format, "randint_like")
    if low is None and high is None:
        raise InvalidType("randint_like: missing a required argument: 'high'")
    low, high = (0, low) if high is None else (0 if low is None else low, high)
    place = input.device if device is None else as_device(device)
    d = target(dtype) or input.dtype
    shape = tuple(input.shape)
    _assert_kind("randint_like", d, (0, 1, 2))
    result = draw_for((input,), _draw_integers, low, high, shape, d, generator, place, input)
    return _finished(
        _like(result, input), None, dtype, device, requires_grad, "randint_like", pin_memory
    )


@explaining
@public(method=False)
def normal(
    mean: Any,
    std: Any = 1.0,
    size: tuple[int, ...] | list[int] | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Normal numbers with the given mean and standard deviation, numbers or tensors.

    Gradients reach `mean` and `std` as through mean + std * randn.

    Shapes: `mean` and `std` broadcast; `size` where both are numbers.
    Errors: InvalidArgument for a negative `std`; InvalidType where `size` is missing.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.normal.html

    >>> ad.normal(ad.tensor([1., 2.]), 0.0)
    tensor([1., 2.])
    """
    assert_strided("normal", layout)
    assert_dtypes("normal", REALS, std=std)
    parameters = [p for p in (mean, std) if isinstance(p, TensorBase)]
    if isinstance(std, TensorBase):
        if std._data.size:
            asked: Any = std
            refuse_where(
                (asked >= 0).logical_not().any(),
                lambda: InvalidArgument("normal: expects all elements of std >= 0.0"),
            )
    else:
        _assert_std(std, "normal")
    if not parameters:
        if size is None:
            raise InvalidType('normal: missing required argument: "size"')
        shape = sizes_from((tuple(size),), None, "normal")
        d = (target(dtype) or dt.get_default_dtype()) if out is None else out.dtype
    else:
        if size is not None:
            raise InvalidType("normal: size is given by the tensors; leave it out")
        shape = broadcast_shapes(*(tuple(p.shape) for p in parameters), op="normal")
        d = parameters[0].dtype
        if len(parameters) == 2:
            d = dt.promote_types(d, parameters[1].dtype)
    place = parameters[0].device if parameters else _place(device, out)
    drawn: Any = draw_for(parameters, draw_normal, shape, d, generator, place, out)
    result = _like(drawn, *parameters) * std + mean
    return _finished(result, out, dtype, device, requires_grad, "normal")


def _assert_std(std: Any, name: str) -> None:
    if not std >= 0:
        raise InvalidArgument(f"{name}: expects std >= 0.0, but found std {std}")


@public(out=True)
def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None
) -> Tensor:
    """1 with the probability that `input` (or the number `p`) gives, else 0.

    Shapes: any.
    Dtypes: that of `input`.
    Errors: InvalidArgument for a probability outside [0, 1].
    Source: https://docs.pytorch.org/docs/stable/generated/torch.bernoulli.html

    >>> ad.bernoulli(ad.tensor([0., 1.]))
    tensor([0., 1.])
    """
    if p is not None:
        _assert_probability(p, "bernoulli")
        shape, place = tuple(input.shape), input.device
        ones = draw_for((input,), _mask, shape, input.dtype, p, 1.0, generator, place, input)
        return _like(ones, input)
    _assert_kind("bernoulli_tensor_cpu_p_", input.dtype)
    return _chosen(input, generator, input)


def _chosen(input: Any, generator: Generator | None, like: Any) -> Any:
    """1 with the probabilities of `input`, else 0."""
    own = torch_generator(generator, input.device)
    if own is None:
        return drawn_from(Bernoulli, generator, (input,))
    if type(input._data) is np.ndarray:
        assert_chances(input._data)
    if few_plain((input,)) is not None and like is input:
        points = drawn_plainly(own, "uniform", input._data)
        return fresh((points < input._data).astype(input._data.dtype))
    wide = dt.float64 if input.dtype is dt.float64 else dt.float32
    points = followed(own, input.device, "uniform", (), tuple(input.shape), wide, like)
    return cast((cast(input, wide) - points).sign().clamp(min=0), input.dtype)


def _assert_probability(p: Any, name: str) -> None:
    if not 0 <= p <= 1:
        raise InvalidArgument(f"{name}: expects p to be in [0, 1], but got p={p}")


def _like(drawn: Any, *inputs: Any) -> Any:
    """Numbers that were drawn for the shape of `inputs`."""
    if not is_of_graph(drawn):
        return drawn
    op = drawn._data.op
    if isinstance(op, DrawnFor) and op.follows and drawn._data.cells[0] is inputs[0]._data:
        return drawn  # it is of any size
    return hold_sizes("random", drawn, *inputs)


def _mask(
    shape: tuple[int, ...],
    d: dt.dtype,
    keep: float,
    value: float,
    generator: Any,
    place: Device,
    like: Any = None,
) -> Tensor:
    keep = keep if isinstance(keep, float) else float(keep)  # also a number that is yet to come
    if (own := torch_generator(generator, place)) is not None:
        return followed(own, place, "mask", (keep, value), shape, d, like)
    return drawn(Mask, generator, place, keep, value, shape, d)


def dropout_mask(
    input: Tensor,
    p: float,
    *,
    scale: bool = True,
    shape: Sequence[int] | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """The mask by which dropout multiplies `input`: 0 with probability `p`, else 1 / (1 - p) (1 if
    not `scale`); of `input`'s shape unless another is given.
    """
    _assert_probability(p, "dropout")
    keep = 1.0 - p
    value = 1.0 / keep if scale and keep else 1.0
    where = tuple(input.shape if shape is None else shape)
    if p == 1 and torch_generator(generator, input.device) is not None:  # which draws nothing then
        return input.new_zeros(where)
    mask = draw_for(
        (input,), _mask, where, input.dtype, keep, value, generator, input.device, input
    )
    return _like(mask, input)


@explaining
@public()
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Whole numbers with the Poisson distributions whose rates `input` gives.

    Shapes: any.
    Dtypes: that of `input`.
    Errors: InvalidArgument for a negative rate.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.poisson.html

    >>> ad.poisson(ad.zeros(2))
    tensor([0., 0.])
    """
    _assert_kind("poisson_cpu", input.dtype)
    return rejecting(Poisson, generator, input)  # type: ignore[no-any-return]


@public(out=True)
def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Indices drawn with probabilities in proportion to the weights in each row of `input`.

    Shapes: (n,) -> (num_samples,) and (rows, n) -> (rows, num_samples).
    Dtypes: the result is int64.
    Errors: InvalidArgument for negative or infinite weights, rows of zeros, and more samples than
    weights without replacement; ShapeError for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.multinomial.html

    >>> ad.multinomial(ad.tensor([0., 1., 0.]), 2, replacement=True)
    tensor([1, 1])
    """
    if input.ndim not in (1, 2):
        raise ShapeError(
            f"multinomial: prob_dist must be 1 or 2 dim, got shape {tuple(input.shape)}"
        )
    if input.dtype.category != 2:
        raise DTypeError(
            f"multinomial: only supports floating-point dtypes for input, got {input.dtype}"
        )
    if num_samples <= 0:
        raise InvalidArgument(
            f"multinomial: cannot sample n_sample <= 0 samples, got {num_samples}"
        )
    if not replacement and num_samples > input.shape[-1]:
        raise InvalidArgument(
            f"multinomial: cannot sample n_sample > prob_dist.size(-1) samples without "
            f"replacement ({num_samples} > {input.shape[-1]}); pass replacement=True"
        )
    if (own := torch_generator(generator, input.device)) is not None:
        return followed_multinomial(own, input, int(num_samples), replacement)
    return drawn_from(Multinomial, generator, (input,), int(num_samples), replacement)
