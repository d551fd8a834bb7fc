"""CUDA devices under PyTorch's names: available devices, their memory, streams and events.

Tensors on CUDA are PyTorch's tensors, so these functions ask PyTorch, which is imported only where
the machine has a driver for CUDA. Without one, questions have answers (`is_available()` is False,
`device_count()` is 0) and what needs a device raises DeviceError.

Work on a device is queued: an operation returns at once, and reading a value waits for it. So does
`synchronize()`.

Source: https://docs.pytorch.org/docs/stable/cuda.html

>>> ad.cuda.is_available() == (ad.cuda.device_count() > 0)
True
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..backends.cuda import torch_with_cuda
from ..core.argument_repr import argument_repr
from ..core.device import device as Device  # noqa: N812 - the parameters here are called device
from ..core.errors import DeviceError, InvalidType, OutOfMemoryError, Unsupported
from ..ops.random.generators import default_generator

__all__ = [
    "CUDAGraph", "Event", "OutOfMemoryError", "Stream", "StreamContext", "current_device",
    "current_stream",
    "default_stream", "device", "device_count", "empty_cache", "get_arch_list",
    "get_device_capability", "get_device_name", "get_device_properties", "get_rng_state",
    "get_rng_state_all", "graph", "init", "initial_seed", "ipc_collect", "is_available",
    "is_bf16_supported", "is_initialized", "manual_seed", "manual_seed_all",
    "max_memory_allocated", "max_memory_reserved", "mem_get_info", "memory_allocated",
    "memory_reserved", "memory_stats", "memory_summary", "reset_max_memory_allocated",
    "reset_peak_memory_stats", "seed", "seed_all", "set_device", "set_rng_state",
    "set_rng_state_all", "set_stream", "stream", "synchronize",
]  # fmt: skip


_initialized = False  # the switch that PyTorch programs read; is_initialized() asks


def _torch() -> Any:
    """`torch.cuda`, if it is usable; None otherwise."""
    torch = torch_with_cuda()
    return None if torch is None else torch.cuda


def _served(name: str) -> Any:
    torch_cuda = _torch()
    if torch_cuda is None:
        raise DeviceError(
            f"cuda.{name}: there is no CUDA device that adjoint can use; ask "
            "adjoint.cuda.is_available() first"
        )
    return torch_cuda


def _index(device: Any) -> Any:
    """A device as PyTorch takes it: its number, or None for the current one."""
    if device is None or isinstance(device, int):
        return device
    named = device if isinstance(device, Device) else Device(device)
    if named.type != "cuda":
        raise InvalidType(f"cuda: expected a cuda device, but got: {named}")
    return named.index


# ---- which there are -----------------------------------------------------------------------------


def device_count() -> int:
    """The number of CUDA devices on which tensors can live."""
    torch_cuda = _torch()
    return 0 if torch_cuda is None else int(torch_cuda.device_count())


def is_available() -> bool:
    """Whether tensors can live on a CUDA device."""
    return device_count() > 0


def is_initialized() -> bool:
    """Whether CUDA has been started in this process."""
    theirs = getattr(sys.modules.get("torch"), "cuda", None)  # it may have our name
    if theirs is None or theirs is sys.modules[__name__]:
        return False
    return bool(theirs.is_initialized())


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the current device computes in bfloat16."""
    torch_cuda = _torch()
    return torch_cuda is not None and bool(torch_cuda.is_bf16_supported(including_emulation))


def get_arch_list() -> list[str]:
    """The architectures that kernels were built for."""
    torch_cuda = _torch()
    return [] if torch_cuda is None else list(torch_cuda.get_arch_list())


def _asking(name: str, meaning: str) -> Callable[..., Any]:
    """A function that calls PyTorch's function of that name, for a device or the current one."""

    def function(device: Any = None) -> Any:
        return getattr(_served(name), name)(_index(device))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{meaning}\n\n    Errors: DeviceError where there is no device.\n"
    return function


get_device_capability = _asking("get_device_capability", "A device's compute capability.")
get_device_name = _asking("get_device_name", "A device's name.")
mem_get_info = _asking("mem_get_info", "A device's free and total memory in bytes.")
reset_peak_memory_stats = _asking("reset_peak_memory_stats", "Forget the peak memory.")
synchronize = _asking("synchronize", "Wait until a device has done all its work.")


def get_device_properties(device: Any = None) -> Any:
    """A device's properties, as PyTorch has them.

    Errors: DeviceError where there is no device.
    """
    torch_cuda = _served("get_device_properties")
    index = _index(device)
    return torch_cuda.get_device_properties(torch_cuda.current_device() if index is None else index)


def init() -> None:
    """Start CUDA in this process.

    Errors: DeviceError where there is no device.
    """
    _served("init").init()


def current_device() -> int:
    """The number of the current device.

    Errors: DeviceError where there is no device.
    """
    return int(_served("current_device").current_device())


def set_device(device: Any) -> None:
    """Make a device the current one, which "cuda" without a number means.

    Errors: DeviceError where there is no device.
    """
    _served("set_device").set_device(_index(device))


class device:  # noqa: N801 - PyTorch's name
    """Context manager that changes the current device.

    Errors: DeviceError where there is no device.
    """

    __repr__ = argument_repr

    def __init__(self, device: Any) -> None:
        self.index = _index(device)

    def __enter__(self) -> None:
        self.before = current_device()
        if self.index is not None:
            set_device(self.index)

    def __exit__(self, *exc: Any) -> None:
        set_device(self.before)


# ---- memory --------------------------------------------------------------------------------------


def _counting(name: str, meaning: str) -> Callable[..., int]:
    """A function that returns PyTorch's count of bytes on a device; 0 where CUDA has not been
    started.
    """

    def function(device: Any = None) -> int:
        if not is_initialized():
            return 0
        return int(getattr(_served(name), name)(_index(device)))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{meaning}\n\n    >>> ad.cuda.{name}() >= 0\n    True\n"
    return function


memory_allocated = _counting("memory_allocated", "Bytes that tensors occupy on a device.")
max_memory_allocated = _counting(
    "max_memory_allocated", "The most bytes that tensors have occupied on a device."
)
memory_reserved = _counting("memory_reserved", "Bytes that the allocator holds on a device.")
max_memory_reserved = _counting(
    "max_memory_reserved", "The most bytes that the allocator has held on a device."
)


def reset_max_memory_allocated(device: Any = None) -> None:
    """`reset_peak_memory_stats`, under its old name."""
    reset_peak_memory_stats(device)


def memory_stats(device: Any = None) -> dict[str, Any]:
    """All counts of PyTorch's allocator on a device; empty where CUDA has not been started."""
    return dict(_served("memory_stats").memory_stats(_index(device))) if is_initialized() else {}


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """`memory_stats` as text.

    Errors: DeviceError where there is no device.
    """
    return str(_served("memory_summary").memory_summary(_index(device), abbreviated))


def empty_cache() -> None:
    """Give cached memory of the devices back.

    >>> ad.cuda.empty_cache()
    """
    if is_initialized():
        _served("empty_cache").empty_cache()


def ipc_collect() -> None:
    """Free memory that other processes no longer use.

    >>> ad.cuda.ipc_collect()
    """
    if is_initialized():
        _served("ipc_collect").ipc_collect()


# ---- random numbers ------------------------------------------------------------------------------
# Draws are numbered, and a number says what is drawn wherever that is: the devices share the
# default generator with the host, so that a program draws the same on each.


def manual_seed(seed: int) -> None:
    """Seed the default generator, from which all devices draw; does nothing where there is no
    device.

    >>> ad.cuda.manual_seed(0)
    """
    if is_available():
        default_generator.manual_seed(seed)
    else:
        int(seed)


def manual_seed_all(seed: int) -> None:
    """`manual_seed` for all devices."""
    manual_seed(seed)


def seed() -> None:
    """Seed the default generator at random; does nothing where there is no device."""
    if is_available():
        default_generator.seed()


def seed_all() -> None:
    """`seed` for all devices."""
    seed()


def initial_seed() -> int:
    """The seed of the default generator.

    Errors: DeviceError where there is no device.
    """
    _served("initial_seed")
    return default_generator.initial_seed()


def get_rng_state(device: Any = None) -> Any:
    """The state of the default generator.

    Errors: DeviceError where there is no device.
    """
    _served("get_rng_state")
    return default_generator.get_state()


def set_rng_state(new_state: Any, device: Any = None) -> None:
    """Set the state of the default generator.

    Errors: DeviceError where there is no device.
    """
    _served("set_rng_state")
    default_generator.set_state(new_state)


def get_rng_state_all() -> list[Any]:
    """The default generator's state for each device."""
    return [default_generator.get_state() for _ in range(device_count())]


def set_rng_state_all(new_states: Any) -> None:
    """Set the default generator's state, from the first of one for each device.

    Errors: DeviceError for more states than there are devices.
    """
    states = list(new_states)
    if len(states) > device_count():
        _served("set_rng_state_all")
    if states:
        default_generator.set_state(states[0])


# ---- streams and events --------------------------------------------------------------------------


class Stream:
    """A queue of work on a device, PyTorch's; use it with `with adjoint.cuda.stream(s):`.

    Errors: DeviceError where there is no device.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.cuda.Stream.html

    >>> if ad.cuda.is_available():
    ...     ad.cuda.Stream().synchronize()
    """

    __repr__ = argument_repr

    def __init__(self, device: Any = None, priority: int = 0, *, wraps: Any = None) -> None:
        if wraps is None:
            wraps = _served("Stream").Stream(_index(device), priority)
        self.stream = wraps

    def synchronize(self) -> None:
        """Wait until all work queued so far is done."""
        self.stream.synchronize()

    def query(self) -> bool:
        """Whether all work queued so far is done."""
        return bool(self.stream.query())

    def wait_event(self, event: Event) -> None:
        """Let later work here wait for an event."""
        self.stream.wait_event(event.event)

    def wait_stream(self, stream: Stream) -> None:
        """Let later work here wait for the work queued on another stream."""
        self.stream.wait_stream(stream.stream)

    def record_event(self, event: Event | None = None) -> Event:
        """Mark this place in the queue."""
        mark = Event() if event is None else event
        mark.record(self)
        return mark

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and bool(self.stream == other.stream)

    def __hash__(self) -> int:
        return hash(self.stream)


class Event:
    """A mark in a stream, PyTorch's: to wait for, or (with `enable_timing`) to measure by.

    Errors: DeviceError where there is no device.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.cuda.Event.html

    >>> if ad.cuda.is_available():
    ...     ad.cuda.Event().record()
    """

    __repr__ = argument_repr

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self.event = _served("Event").Event(enable_timing, blocking, interprocess)

    def record(self, stream: Stream | None = None) -> None:
        """Mark the present end of a stream's queue."""
        self.event.record() if stream is None else self.event.record(stream.stream)

    def wait(self, stream: Stream | None = None) -> None:
        """Let later work on a stream wait for this mark."""
        self.event.wait() if stream is None else self.event.wait(stream.stream)

    def query(self) -> bool:
        """Whether the work before the mark is done."""
        return bool(self.event.query())

    def synchronize(self) -> None:
        """Wait until the work before the mark is done."""
        self.event.synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between two marks."""
        return float(self.event.elapsed_time(end_event.event))


def current_stream(device: Any = None) -> Stream:
    """The stream that work is queued on.

    Errors: DeviceError where there is no device.
    """
    return Stream(wraps=_served("current_stream").current_stream(_index(device)))


def default_stream(device: Any = None) -> Stream:
    """The stream that work is queued on unless another is chosen.

    Errors: DeviceError where there is no device.
    """
    return Stream(wraps=_served("default_stream").default_stream(_index(device)))


def set_stream(stream: Stream) -> None:
    """Queue work on another stream from now on.

    Errors: DeviceError where there is no device.
    """
    _served("set_stream").set_stream(stream.stream)


class StreamContext:
    """Context manager that queues work on a stream; None changes nothing."""

    __repr__ = argument_repr

    def __init__(self, stream: Stream | None) -> None:
        self.chosen = stream

    def __enter__(self) -> None:
        if self.chosen is not None:
            self.context = _served("stream").stream(self.chosen.stream)
            self.context.__enter__()

    def __exit__(self, *exc: Any) -> None:
        if self.chosen is not None:
            self.context.__exit__(*exc)


def stream(stream: Stream | None) -> StreamContext:
    """Queue work inside a block on a stream.

    >>> with ad.cuda.stream(None):
    ...     x = ad.ones(1)
    """
    return StreamContext(stream)


class CUDAGraph:
    """Stand-in for PyTorch's class, without instances: a compiled function on a device is a CUDA
    graph where possible.

    Errors: Unsupported.
    """

    __repr__ = argument_repr

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise Unsupported(f"cuda.{type(self).__name__}: adjoint.compile makes such graphs itself")


class graph(CUDAGraph):  # noqa: N801 - PyTorch's name
    """Stand-in for PyTorch's class, without instances."""
