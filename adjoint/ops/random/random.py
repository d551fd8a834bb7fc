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
import math
import operator
import os
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...core import dtype as dt
from ...core.device import CPU, as_device, device
from ...core.device import device as Device  # noqa: N812 - the parameters here are called device
from ...core.errors import (
    AdjointError,
    DTypeError,
    InvalidArgument,
    InvalidType,
    ShapeError,
    Unsupported,
)
from ...core.mode import MODE, observed
from ...core.scalar import Number
from ...core.tensor_base import TensorBase
from ...eager.arrays import Stream
from ...eager.dispatch import apply
from ...eager.fused import creating
from ...eager.public import FUNCTIONS, INPLACE, explaining, public
from ...eager.tensors import fresh
from ...graph.lazy import LazyValue
from ...program import compute as core_compute
from ...program.executable import forget_calls
from ..create.creation import assert_row_major, assert_strided, finish, into, names_on, sizes_from
from ..create.values import target
from ..elementwise.pointwise import Elementwise
from ..promotion import cast
from ..shape.movement import Permute
from ..shape.sizes import hold_sizes, is_of_graph
from .draws import (
    Bernoulli,
    Draw,
    Exponential,
    Followed,
    Mask,
    Multinomial,
    Normal,
    Once,
    Permutation,
    Poisson,
    RandInt,
    Uniform,
    assert_chances,
    assert_weights,
    memory_order,
)

if TYPE_CHECKING:
    from ...tensor import Tensor

__all__ = [
    "Generator", "bernoulli", "default_generator", "get_rng_state", "initial_seed", "manual_seed",
    "multinomial", "normal", "poisson", "rand", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "randperm", "seed", "set_rng_state",
]  # fmt: skip


# ---- generators ----------------------------------------------------------------------------------


class Generator(Stream):
    """A source of random numbers whose whole state is a seed and a count of draws.

    Errors: DeviceError for a device that does not exist here.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Generator.html

    >>> g = ad.Generator().manual_seed(0)
    >>> state = g.get_state()
    >>> a = ad.rand(3, generator=g)
    >>> g.set_state(state).draws
    0
    >>> ad.rand(3, generator=g).equal(a)
    True
    """

    __slots__ = ("_device", "twister")
    _read_by_name: ClassVar[tuple[str, ...]] = ()  # drawing changes it in compiled functions, too

    twister: Any  # PyTorch's generator, if it draws from that; `draws` counts nevertheless

    def __init__(self, device: Any = "cpu") -> None:
        self._device = as_device(device)
        self.manual_seed(_DEFAULT_SEED)

    @property
    def device(self) -> device:
        """Where the numbers are drawn."""
        return self._device

    def manual_seed(self, seed: int) -> Generator:
        """Start again from `seed`, an int in [-2**63, 2**64); returns the generator."""
        self.key = _checked_seed(seed)
        self.draws = 0
        self.twister = _twister()(self.key) if _switch.on else None
        return self

    def seed(self) -> int:
        """Start again from a seed that the operating system supplies, and return it."""
        self.manual_seed(int.from_bytes(os.urandom(8), "little"))
        return self.key

    def initial_seed(self) -> int:
        """The seed it was started from."""
        return self.key

    def get_state(self) -> Tensor:
        """Seed and number of draws, as a tensor of 16 bytes; PyTorch's 5056 after follow_torch."""
        if self.twister is None:
            state = struct.pack("<QQ", self.key, self.draws)
        else:
            state = self.twister.to_bytes(self.key)
        return finish(np.frombuffer(state, np.uint8).copy(), CPU)

    def set_state(self, new_state: Tensor) -> Generator:
        """Go back to what `get_state` returned."""
        if not isinstance(new_state, TensorBase):
            raise InvalidType(
                f"set_state: expected a tensor of bytes, got {type(new_state).__name__}"
            )
        expected = 16 if self.twister is None else STATE_BYTES
        found = new_state._data.size if new_state.dtype is dt.uint8 else 0
        if found != expected and found in (16, STATE_BYTES):
            now, way = ("adjoint", "") if self.twister is None else ("PyTorch", "False")
            raise InvalidArgument(
                f"set_state: this state of {found} bytes is of another kind of generator; this one "
                f"draws {now}'s numbers, its states have {expected}: call "
                f"random.follow_torch({way}) before it is seeded"
            )
        if found != expected:
            raise InvalidArgument(
                f"set_state: RNG state must be a uint8 tensor of {expected} elements, got "
                f"{new_state.dtype} of shape {tuple(new_state.shape)}; use a get_state() result"
            )
        state = new_state._data.tobytes()
        if self.twister is None:
            self.key, self.draws = struct.unpack("<QQ", state)
        else:
            self.key, self.twister = _twister().of_bytes(state)
            self.draws = 0
        return self

    def clone_state(self) -> Generator:
        """An independent generator in the same state."""
        new = Generator(self._device)
        new.__setstate__(self.__getstate__())
        return new

    def __getstate__(self) -> tuple[Any, ...]:
        """Plain values: seed and draws, behind them the state of PyTorch's in hexadecimals."""
        if self.twister is None:
            return (self.key, self.draws)
        return (self.key, self.draws, self.twister.to_bytes(self.key).hex())

    def __setstate__(self, state: Sequence[Any]) -> None:
        self._device = getattr(self, "_device", CPU)
        self.key, self.draws, *more = state
        self.twister = _twister().of_bytes(bytes.fromhex(more[0]))[1] if more else None

    def __repr__(self) -> str:
        return f"<adjoint.Generator seed={self.key} draws={self.draws}>"


_DEFAULT_SEED = 67280421310721  # PyTorch's, of a generator that nobody seeded
STATE_BYTES = 5056  # of a state of PyTorch's


class _Switch:
    """`follow_torch`: whether what is seeded becomes PyTorch's, and whether anything ever did."""

    on = False
    used = False


_switch = _Switch()


def _twister() -> Any:
    """The class of PyTorch's generators: imported by the first."""
    from .twister import Twister

    return Twister


def counting(seed: int) -> Generator:
    """A generator of counters from this seed, whatever is followed."""
    new = Generator()
    new.__setstate__((_checked_seed(seed), 0))
    return new


def follow_torch(enabled: bool = True) -> None:
    """Let random numbers be PyTorch's: from the same seed, the same numbers as on its CPU.

    The default generator starts again from its seed; others that are seeded from now on follow,
    too. Whole numbers, permutations, uniform numbers, Bernoulli draws, dropout and multinomial are
    PyTorch's bit for bit, normal numbers and what is made of them within 1e-6: so are initial
    weights, and the order of a DataLoader. States have PyTorch's 5056 bytes. `follow_torch(False)`
    goes back. Under `adjoint.as_torch()` it is on.

    >>> ad.random.follow_torch()
    >>> g = ad.manual_seed(0)
    >>> ad.randint(10, (5,)), ad.rand(2)
    (tensor([4, 9, 3, 0, 3]), tensor([0.6341, 0.4901]))
    >>> ad.random.follow_torch(False)
    """
    if enabled == _switch.on:
        return
    _switch.on = enabled
    _switch.used = True
    default_generator.manual_seed(default_generator.key)
    forget_calls()  # among which are some that draw from it by counters


def is_following() -> bool:
    """Whether what is seeded draws PyTorch's numbers."""
    return _switch.on


def _checked_seed(seed: Any) -> int:
    try:
        value = operator.index(seed)
    except TypeError:
        raise InvalidType(f"manual_seed: expected an int, got {seed!r}") from None
    if not -(2**63) <= value < 2**64:
        raise InvalidArgument(f"manual_seed: Overflow: {value} is outside [-2**63, 2**64)")
    return value % 2**64


default_generator = Generator()
default_generator.seed()


@public(method=False)
def manual_seed(seed: int) -> Generator:
    """Seed the default generator; returns it.

    Errors: InvalidArgument outside [-2**63, 2**64).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.manual_seed.html

    >>> g = ad.manual_seed(0)
    >>> a = ad.rand(2)
    >>> g = ad.manual_seed(0)
    >>> ad.rand(2).equal(a)
    True
    """
    return default_generator.manual_seed(seed)


@public(method=False)
def seed() -> int:
    """Seed the default generator from the operating system; returns the seed.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.seed.html

    >>> ad.seed() == ad.initial_seed()
    True
    """
    return default_generator.seed()


@public(method=False)
def initial_seed() -> int:
    """The seed of the default generator.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.initial_seed.html

    >>> g = ad.manual_seed(7)
    >>> ad.initial_seed()
    7
    """
    return default_generator.initial_seed()


@public(method=False)
def get_rng_state() -> Tensor:
    """The state of the default generator, as a tensor of bytes.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.get_rng_state.html

    >>> ad.get_rng_state().shape
    adjoint.Size([16])
    """
    return default_generator.get_state()


@public(method=False)
def set_rng_state(new_state: Tensor) -> None:
    """Bring the default generator back to a state that `get_rng_state` returned.

    Errors: InvalidArgument for anything else.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.set_rng_state.html

    >>> state = ad.get_rng_state()
    >>> a = ad.rand(2)
    >>> ad.set_rng_state(state)
    >>> ad.rand(2).equal(a)
    True
    """
    default_generator.set_state(new_state)


def _drawing_now(generator: Generator | None) -> Generator:
    """That one, or the one of the graph that is recorded, or the default one."""
    if generator is None:
        executor = MODE.get().executor
        own = None if executor is None else getattr(executor, "generator", None)  # a Graph's
        return own or default_generator
    if not isinstance(generator, Generator):
        raise InvalidType(
            f"generator: expected an adjoint.Generator, got {type(generator).__name__}"
        )
    return generator


def next_draw(generator: Generator | None) -> tuple[int, int]:
    """Seed and number of a new draw from `generator`, or from the default one."""
    generator = _drawing_now(generator)
    note = getattr(MODE.get().executor, "note_draw", None)  # a capture's
    return generator.next_draw() if note is None else note(generator)


def torch_generator(generator: Generator | None, place: Device = CPU) -> Generator | None:
    """The generator that draws for that argument, if it is PyTorch's and the numbers are real."""
    if not _switch.used or place.type == "meta":
        return None
    generator = _drawing_now(generator)
    if generator.twister is None:
        return None
    if hasattr(MODE.get().executor, "generator"):
        raise Unsupported(
            "random numbers of a Graph come from counters, not from PyTorch's generator, so that "
            "each can be drawn again; give it a seed: Graph(seed=...)"
        )
    return generator


def followed(
    generator: Generator, place: Device, method: str, args: tuple[Any, ...],
    shape: Sequence[int], d: dt.dtype, like: Any = None,
) -> Tensor:  # fmt: skip
    """What PyTorch's generator draws by a method of `Twister`, in the order of memory of `like`."""
    data = getattr(like, "_data", None)
    order = _order(data) if data is not None and tuple(data.shape) == tuple(shape) else None
    shape = tuple(int(n) for n in shape)
    args = tuple(x.value() if type(x) is Number else x for x in args)
    executor = MODE.get().executor
    if executor is None:
        generator.draws += 1
        array = observed(method, generator.twister.draw, method, args, shape, d, order)
        return finish(array, place)
    note = getattr(executor, "note_draw", None)
    if note is None:
        result = _drawn_once(
            generator, lambda once: Followed(once, 0, method, args, shape, d, order)
        )
    else:
        seed, draw = note(generator)
        result = apply(Followed(seed, draw, method, args, shape, d, order))
    return result if place is CPU else result.to(place)  # type: ignore[no-any-return]


def _order(data: Any) -> tuple[int, ...] | None:
    """The dimensions of an array as they are in memory, the slowest first; of a recorded value, as
    they will be where only permutations and elementwise operations tell; None: row-major.
    """
    turned: list[tuple[int, ...]] = []
    while type(data) is LazyValue and data.op is not None:
        if isinstance(data.op, Permute):
            turned.append(data.op.axes)
        elif not isinstance(data.op, Elementwise):
            return _turned(None, turned, len(data.shape))
        alike = [x for x in data.inputs if getattr(x, "ndim", None) == len(data.shape)]
        if not alike:
            return _turned(None, turned, len(data.shape))
        data = alike[0]
    if type(data) is LazyValue:
        data = data.array
    return _turned(memory_order(data) if type(data) is np.ndarray else None, turned, 0)


def _as_new(input: Any) -> Any:
    """`input` for the order of memory of a new tensor like it; None where that is row-major."""
    order = _order(input._data)
    return None if order is None or list(order) == sorted(order) else input


def _turned(
    order: tuple[int, ...] | None, turned: Sequence[tuple[int, ...]], ndim: int
) -> tuple[int, ...] | None:
    """An order behind permutations, the last of which is the first of `turned`."""
    for axes in reversed(turned):
        order = tuple(axes.index(n) for n in (order or range(len(axes))))
    return order


def _drawn_once(generator: Generator, make: Callable[[Any], Any], *inputs: Any) -> Any:
    """What an op gives that draws from PyTorch's generator: now, also where others are recorded."""
    once = Once(generator.twister)
    generator.draws += 1
    y = apply(make(once), *inputs)
    reason = None
    if not once.done:
        try:
            y.detach().numpy()  # where others are recorded it is computed now
        except AdjointError as error:
            reason = error
    if not once.done:
        raise Unsupported(
            "random numbers of PyTorch's generator come one after another: they cannot be recorded "
            "here; call random.follow_torch(False), or draw outside"
        ) from reason
    return y


def rejecting(kind: Any, generator: Generator | None, *inputs: Any) -> Any:
    """What the sampler `kind` draws for these inputs, by as many numbers as their values need."""
    own = torch_generator(generator, inputs[0].device)
    if own is None:
        return apply(kind(*next_draw(generator)), *inputs)
    if hasattr(MODE.get().executor, "note_draw"):
        raise Unsupported(
            f"compile: {kind.__name__} takes as many of the numbers of PyTorch's generator as "
            "values say; draw outside of the function, or call random.follow_torch(False)"
        )
    return _drawn_once(own, lambda once: kind(once, 0), *inputs)


def drawn(
    kind: Callable[..., Draw], generator: Generator | None, place: Device, *fields: Any
) -> Tensor:
    """What `kind` gives for a new seed and draw, these fields, and a device."""
    plain = MODE.get().plain
    if place.type == "meta":  # of which no element is drawn
        number = 0, 0
    elif plain and generator is None:
        number = default_generator.next_draw()
    else:
        number = next_draw(generator)
    if plain and place is CPU and core_compute.accelerate is not None:
        known = core_compute.draws.get((kind, fields))
        found = None if known is None else known(*number)
        if found is not None:
            return fresh(found)  # type: ignore[no-any-return]
    return apply(kind(*number, *fields, place))  # type: ignore[no-any-return]


# ---- public functions ----------------------------------------------------------------------------


def _assert_kind(name: str, d: dt.dtype, categories: tuple[int, ...] = (2,)) -> None:
    if d.category not in categories:
        raise DTypeError(f'{name}: "{name}" not implemented for {d}; use a floating-point dtype')


def draw_uniform(
    shape: tuple[int, ...],
    d: dt.dtype,
    generator: Generator | None,
    place: Device = CPU,
    like: Any = None,
    low: float = 0.0,
    high: float = 1.0,
) -> Tensor:
    """Uniform numbers of [low, high); complex dtypes have them in both parts of [0, 1)."""
    _assert_kind("uniform", d, (2, 3))
    if (own := torch_generator(generator, place)) is not None:
        return followed(own, place, "uniform", (float(low), float(high)), shape, d, like)
    if d.is_complex and place.type == "meta":
        return finish(names_on(place).empty(shape, d.numpy), place)
    if d.is_complex:
        pairs = drawn(Uniform, generator, place, (*shape, 2), d.to_real())
        return finish(pairs._data.view(d.numpy)[..., 0], place)
    values = drawn(Uniform, generator, place, shape, d)
    return values if (low, high) == (0.0, 1.0) else values * (high - low) + low


def draw_normal(
    shape: tuple[int, ...],
    d: dt.dtype,
    generator: Generator | None,
    place: Device = CPU,
    like: Any = None,
    mean: float = 0.0,
    std: float = 1.0,
) -> Tensor:
    """Normal numbers."""
    _assert_kind("normal_kernel_cpu", d, (2, 3))
    if (own := torch_generator(generator, place)) is not None:
        return followed(own, place, "normal", (mean, std), shape, d, like)
    values = drawn(Normal, generator, place, shape, d)
    return values if (mean, std) == (0.0, 1.0) else values * std + mean


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
    *sizes: Any,
    size: Any = None,
    generator: Generator | None = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
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
    *sizes: Any,
    size: Any = None,
    generator: Generator | None = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
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
    low: int,
    high: Any = None,
    size: Any = None,
    *,
    generator: Generator | None = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
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
    elif high is None:
        low, high = 0, low
    if size is None:
        raise InvalidType('randint: missing required argument: "size"')
    d = (target(dtype) or dt.int64) if out is None else out.dtype
    shape, place = sizes_from((tuple(size),), None, "randint"), _place(device, out)
    result = _draw_integers(low, high, shape, d, generator, place, out)
    return _finished(result, out, dtype, device, requires_grad, "randint", pin_memory)


def _place(device: Any, out: Any) -> Device:
    """Where the numbers are drawn."""
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
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
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
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Numbers spread evenly over [0, 1), in the shape and dtype of `input`.

    Errors: DTypeError for a dtype that is not floating point or complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.rand_like.html

    >>> ad.rand_like(ad.zeros(2, 3)).shape
    adjoint.Size([2, 3])
    """
    assert_strided("rand_like", layout)
    assert_row_major(memory_format, "rand_like")
    place = input.device if device is None else as_device(device)
    result = draw_uniform(tuple(input.shape), target(dtype) or input.dtype, generator, place, input)
    return _finished(
        _like(result, input), None, dtype, device, requires_grad, "rand_like", pin_memory
    )


@explaining
@public(method=False)
def randn_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Standard normal numbers in the shape and dtype of `input`.

    Errors: DTypeError for a dtype that is not floating point or complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.randn_like.html

    >>> ad.randn_like(ad.zeros(2, 3)).shape
    adjoint.Size([2, 3])
    """
    assert_strided("randn_like", layout)
    assert_row_major(memory_format, "randn_like")
    place = input.device if device is None else as_device(device)
    d = target(dtype) or input.dtype
    result = draw_normal(tuple(input.shape), d, generator, place, _as_new(input))
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
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Whole numbers of [low, high) in the shape and dtype of `input`; low is 0 if left out.

    Errors: InvalidArgument where the range is empty or the dtype cannot hold it.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.randint_like.html

    >>> ad.randint_like(ad.zeros(2), 5, 6)
    tensor([5., 5.])
    """
    assert_strided("randint_like", layout)
    assert_row_major(memory_format, "randint_like")
    if low is None and high is None:
        raise InvalidType("randint_like: missing a required argument: 'high'")
    low, high = (0, low) if high is None else (0 if low is None else low, high)
    place = input.device if device is None else as_device(device)
    d = target(dtype) or input.dtype
    result = _draw_integers(low, high, tuple(input.shape), d, generator, place, input)
    return _finished(
        _like(result, input), None, dtype, device, requires_grad, "randint_like", pin_memory
    )


@explaining
@public(method=False)
def normal(
    mean: Any,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Generator | None = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
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
    parameters = [p for p in (mean, std) if isinstance(p, TensorBase)]
    if isinstance(std, TensorBase):
        if std._data.size and not std._data.min() >= 0:
            raise InvalidArgument(
                f"normal: expects all elements of std >= 0.0, got {std._data.min()}"
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
        shape = np.broadcast_shapes(*(tuple(p.shape) for p in parameters))
        d = parameters[0].dtype
        if len(parameters) == 2:
            d = dt.promote_types(d, parameters[1].dtype)
    place = parameters[0].device if parameters else _place(device, out)
    drawn: Any = draw_normal(shape, d, generator, place, out)
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
        ones = _mask(tuple(input.shape), input.dtype, p, 1.0, generator, input.device, input)
        return _like(ones, input)
    _assert_kind("bernoulli_tensor_cpu_p_", input.dtype)
    return _chosen(input, generator, input)


def _chosen(input: Any, generator: Generator | None, like: Any) -> Any:
    """1 with the probabilities of `input`, else 0."""
    own = torch_generator(generator, input.device)
    if own is None:
        return apply(Bernoulli(*next_draw(generator)), input)
    if type(input._data) is np.ndarray:
        assert_chances(input._data)
    wide = dt.float64 if input.dtype is dt.float64 else dt.float32
    points = followed(own, input.device, "uniform", (), tuple(input.shape), wide, like)
    return cast((cast(input, wide) - points).sign().clamp(min=0), input.dtype)


def _assert_probability(p: Any, name: str) -> None:
    if not 0 <= p <= 1:
        raise InvalidArgument(f"{name}: expects p to be in [0, 1], but got p={p}")


def _like(drawn: Any, *inputs: Any) -> Any:
    """Numbers that were drawn for the shape of `inputs`."""
    return hold_sizes("random", drawn, *inputs) if is_of_graph(drawn) else drawn


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
    """What dropout multiplies `input` by: 0 with probability `p`, else 1 / (1 - p) (1 if not
    `scale`); of `input`'s shape unless another is given.
    """
    _assert_probability(p, "dropout")
    keep = 1.0 - p
    value = 1.0 / keep if scale and keep else 1.0
    where = tuple(input.shape if shape is None else shape)
    if p == 1 and torch_generator(generator, input.device) is not None:  # which draws nothing then
        return input.new_zeros(where)
    return _like(_mask(where, input.dtype, keep, value, generator, input.device, input), input)


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
        return _followed_multinomial(own, input, int(num_samples), replacement)
    return apply(Multinomial(*next_draw(generator), int(num_samples), replacement), input)


def _followed_multinomial(own: Generator, input: Any, count: int, replacement: bool) -> Any:
    """As PyTorch does: the first clocks that ring, or places among the running totals."""
    input = input.detach()
    if type(input._data) is np.ndarray:
        assert_weights(input._data, count, replacement)
    if not replacement or count == 1:
        clocks: Any = followed(
            own, input.device, "exponential", (), tuple(input.shape), input.dtype, input
        )
        speeds = input / clocks
        return speeds.argmax(-1, keepdim=True) if count == 1 else speeds.topk(count).indices
    totals = input.cumsum(-1)
    totals = cast(totals / totals[..., -1:], dt.float64)
    shape = (*input.shape[:-1], count)
    points = followed(own, input.device, "uniform", (), shape, dt.float64)
    return FUNCTIONS["searchsorted"](totals, points)


# ---- in-place methods ----------------------------------------------------------------------------
# Each takes the tensor as it is and returns what it becomes; see autograd/inplace.py.


def _uniform(self: Tensor, *bounds: Any, generator: Any = None, **named: Any) -> Tensor:
    """Numbers spread evenly over [from, to); 0 and 1 unless given."""
    low, high = _bounds("uniform_", bounds, named, (0.0, 1.0))
    if not low <= high:
        raise InvalidArgument(
            f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}"
        )
    shape = tuple(self.shape)
    return draw_uniform(shape, self.dtype, generator, self.device, self, low, high)


def _bounds(name: str, given: tuple[Any, ...], named: dict[str, Any], default: Any) -> list[Any]:
    """The arguments `from` (which Python cannot name) and `to`."""
    if len(given) > 2 or not set(named) <= {"from", "to"}:
        raise InvalidType(f"{name}: takes from and to, got {given} and {named}")
    found = list(given) + list(default[len(given) :])
    return [named.get("from", found[0]), named.get("to", found[1])]


def _normal(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """Normal numbers."""
    _assert_std(std, "normal_")
    shape = tuple(self.shape)
    return draw_normal(shape, self.dtype, generator, self.device, self, mean, std)


def _bernoulli(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """1 with probability p (a number, or a tensor that broadcasts), else 0."""
    if isinstance(p, TensorBase):
        chances = cast(p.expand(self.shape), dt.float64)  # type: ignore[attr-defined]
        if torch_generator(generator, self.device) is not None:
            chances = p.expand(self.shape)  # type: ignore[attr-defined]
        return cast(_chosen(chances.detach(), generator, self), self.dtype)
    _assert_probability(p, "bernoulli_")
    return _mask(tuple(self.shape), self.dtype, p, 1.0, generator, self.device, self)


def _random(self: Tensor, *bounds: Any, generator: Any = None, **named: Any) -> Tensor:
    """Whole numbers of [from, to); of all that the dtype holds exactly unless given."""
    if len(bounds) == 1 and not named:
        bounds = (0, bounds[0])
    d = self.dtype
    digits = {dt.float64: 53, dt.float32: 24, dt.float16: 11, dt.bfloat16: 8, dt.bool_: 0}
    most = 2 ** digits[d] if d in digits else dt.iinfo(d).max
    low, high = _bounds("random_", bounds, named, (0, None))
    if (low, high) == (0, None) and (own := torch_generator(generator, self.device)) is not None:
        shape = tuple(self.shape)
        return followed(own, self.device, "whole", (1 if d is dt.bool_ else most,), shape, d, self)
    high = most + 1 if high is None and d is not dt.int64 else 2**63 - 1 if high is None else high
    return _draw_integers(low, high, tuple(self.shape), d, generator, self.device, self)


def _unit(self: Tensor, generator: Any) -> Tensor:
    """Uniform numbers of (0, 1] in at least float32."""
    wide = dt.float64 if self.dtype is dt.float64 else dt.float32
    drawn: Any = draw_uniform(tuple(self.shape), wide, generator, self.device)
    return 1 - drawn  # type: ignore[no-any-return]


def _as_torch(self: Tensor, generator: Any, method: str, *args: float) -> Tensor | None:
    """What PyTorch's generator draws for a tensor, if it is asked."""
    own = torch_generator(generator, self.device)
    if own is None:
        return None
    shape = tuple(self.shape)
    return followed(own, self.device, method, tuple(map(float, args)), shape, self.dtype, self)


def _exponential(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """Numbers with the exponential distribution of rate lambd."""
    if not lambd > 0:
        raise InvalidArgument(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    _assert_kind("exponential_", self.dtype)
    if (found := _as_torch(self, generator, "exponential", lambd)) is not None:
        return found
    values = drawn(Exponential, generator, self.device, tuple(self.shape), self.dtype)
    return values if lambd == 1.0 else values / lambd


def _geometric(self: Tensor, p: float, *, generator: Any = None) -> Tensor:
    """The number of trials up to the first success, each of probability p."""
    if not 0 < p < 1:
        raise InvalidArgument(f"geometric_ expects p to be in (0, 1), but got p={p}")
    if (found := _as_torch(self, generator, "geometric", p)) is not None:
        return found
    trials = (_unit(self, generator).log() / math.log1p(-p)).ceil().clamp(min=1)
    return cast(trials, self.dtype)


def _cauchy(
    self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None
) -> Tensor:
    """Numbers with the Cauchy distribution."""
    if not sigma > 0:
        raise InvalidArgument(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    _assert_kind("cauchy_", self.dtype)
    if (found := _as_torch(self, generator, "cauchy", median, sigma)) is not None:
        return found
    angle = (_unit(self, generator) - 0.5) * math.pi
    return cast(angle.tan() * sigma + median, self.dtype)


def _log_normal(
    self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Any = None
) -> Tensor:
    """Numbers whose logarithm is normal with this mean and standard deviation."""
    if not std > 0:
        raise InvalidArgument(f"log_normal_ expects std > 0.0, but found std={std}")
    _assert_kind("log_normal_", self.dtype)
    if (found := _as_torch(self, generator, "log_normal", mean, std)) is not None:
        return found
    drawn: Any = draw_normal(tuple(self.shape), self.dtype, generator, self.device)
    logarithm: Any = drawn * std + mean
    return logarithm.exp()


def _drawing(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def draw(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return _like(function(self, *args, **kwargs), self)

    return draw


for _function in (
    _uniform, _normal, _bernoulli, _random, _exponential, _geometric, _cauchy, _log_normal,
):  # fmt: skip
    INPLACE[f"{_function.__name__[1:]}_"] = _drawing(_function)
