"""Generators: their state is a seed and the number of draws; the default one, and PyTorch's."""

from __future__ import annotations

import operator
import os
import struct
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ...core import dtype as dt
from ...core.arrays import PhiloxState
from ...core.device import CPU, as_device, device
from ...core.device import device as Device  # noqa: N812 - the parameters here are called device
from ...core.errors import InvalidArgument, InvalidType, Unsupported
from ...core.mode import MODE, note_setting, tell
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...ir.executable import forget_calls
from ...runtime.public import public
from ..create.allocation import finish

__all__ = [
    "Generator", "default_generator", "get_rng_state", "initial_seed", "manual_seed", "seed",
    "set_rng_state",
]  # fmt: skip


class Generator(PhiloxState):
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
    _facts: ClassVar[tuple[str, ...]] = ("key", "draws", "twister")  # guarded where users name them

    twister: Any  # PyTorch's generator, if it draws from that; `draws` counts nevertheless

    def __init__(self, device: Any = "cpu") -> None:
        self._device = as_device(device)
        self.manual_seed(_DEFAULT_SEED)

    @property
    def device(self) -> device:
        """Device on which the numbers are drawn."""
        return self._device

    def manual_seed(self, seed: int) -> Generator:
        """Start again from `seed`, an int in [-2**63, 2**64); returns the generator."""
        tell("note_seed", self)
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
        return int(note_setting(lambda: self.key))

    def get_state(self) -> Tensor:
        """Seed and number of draws, as a tensor of 16 bytes; PyTorch's 5056 after follow_torch."""
        if self.twister is None:
            state = struct.pack("<QQ", self.key, self.draws)
        else:
            state = self.twister.to_bytes(self.key)
        found = finish(np.frombuffer(state, np.uint8).copy(), CPU)
        tell("note_state_read", found, self)
        return found

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
        draws = tell("note_state", self, new_state)
        if draws is not None:
            self.draws = draws
            return self
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
        tell("note_seed", self)
        self._device = getattr(self, "_device", CPU)
        self.key, self.draws, *more = state
        self.twister = _twister().of_bytes(bytes.fromhex(more[0]))[1] if more else None

    def __repr__(self) -> str:
        return f"<adjoint.Generator seed={self.key} draws={self.draws}>"


_DEFAULT_SEED = 67280421310721  # PyTorch's, of a generator that nobody seeded
STATE_BYTES = 5056  # of a state of PyTorch's


class _Switch:
    """State of `follow_torch`: whether seeded generators draw PyTorch's numbers, and whether any
    ever did.
    """

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
    """Make random numbers PyTorch's: from the same seed, the same numbers as on its CPU.

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
    """Whether seeded generators draw PyTorch's numbers."""
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


def drawing_now(generator: Generator | None) -> Generator:
    """The given generator, or the one of the graph that is recorded, or the default one."""
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
    generator = drawing_now(generator)
    note = getattr(MODE.get().executor, "note_draw", None)  # a capture's
    return generator.next_draw() if note is None else note(generator)


def torch_generator(generator: Generator | None, place: Device = CPU) -> Generator | None:
    """The generator that draws for that argument, if it is PyTorch's and the numbers are real."""
    if not _switch.used or place.type == "meta":
        return None
    generator = drawing_now(generator)
    if generator.twister is None:
        return None
    if hasattr(MODE.get().executor, "generator"):
        raise not_of_counters()
    return generator


def not_of_counters() -> Unsupported:
    """An error for a draw in a graph from PyTorch's generator."""
    return Unsupported(
        "random numbers of a Graph come from counters, not from PyTorch's generator, so that "
        "each can be drawn again; give it a seed: Graph(seed=...)"
    )
