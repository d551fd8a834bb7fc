"""The exception classes: each also subclasses the builtin that PyTorch raises in its place."""

from __future__ import annotations

__all__ = [
    "AdjointError", "AutogradError", "BackendGap", "CheckpointError", "DTypeError", "DeviceError",
    "DistributedError", "FallbackError", "GraphError", "IndexingError", "InvalidArgument",
    "InvalidType", "LayoutError", "LinalgError", "MissingName", "NotTraceable",
    "OutOfMemoryError", "ProfilerError", "ShapeError", "UnknownColumn", "Unsupported",
]  # fmt: skip


class AdjointError(Exception):
    """Base of every error that adjoint raises on purpose."""

    module: str = ""  # path of the module in which it was met, below the one that was called


class ShapeError(AdjointError, RuntimeError, ValueError):
    """Shapes do not fit an operation."""


class DTypeError(AdjointError, RuntimeError, TypeError):
    """A dtype does not fit an operation, or two dtypes do not promote as asked."""


class DeviceError(AdjointError, RuntimeError):
    """A device is unknown, missing, or differs between inputs."""


class NoCuda(DeviceError, AssertionError):  # noqa: N818 - reads as what happened
    """A CUDA device was asked for where there is none."""


class IndexingError(AdjointError, IndexError, RuntimeError):
    """An index or a dimension number is out of range (RuntimeError where gather meets it)."""


class InvalidArgument(AdjointError, ValueError, RuntimeError):  # noqa: N818 - reads as what happened
    """An argument's value is outside what the operation accepts."""


class NumberTooLarge(InvalidArgument, OverflowError):  # noqa: N818 - reads as what happened
    """A Python int that no integer dtype holds."""


class InvalidType(AdjointError, TypeError):  # noqa: N818 - reads as what happened
    """An argument is of a type that the operation does not accept."""

    wrong: tuple[object, str]  # the argument, and what was due


class AutogradError(AdjointError, RuntimeError):
    """A gradient was asked for that cannot be computed."""


class GraphError(AdjointError, RuntimeError):
    """A graph was used in a way that its structure does not allow."""


class OutOfMemoryError(AdjointError, MemoryError, RuntimeError):
    """There is no memory for a result."""


class LinalgError(AdjointError, RuntimeError, ValueError):
    """A matrix is singular, not positive definite, or a decomposition did not converge."""


class ProfilerError(AdjointError, RuntimeError, AssertionError):
    """A profile was used before it had started, before it had ended, or inside another one."""


class UnknownColumn(InvalidArgument, AttributeError):  # noqa: N818 - reads as what happened
    """A profile was to be sorted or exported by a column that its events lack."""


class DistributedError(AdjointError, RuntimeError, ValueError):
    """A rank does not answer or does something else, or there is no process group."""


class CheckpointError(AdjointError, ValueError, RuntimeError):
    """A file is not a valid checkpoint, or does not fit what it is loaded into."""


class Unsupported(AdjointError, NotImplementedError):  # noqa: N818 - reads as what happened
    """A gap: the message names what is missing and the way out."""


class LayoutError(Unsupported, TypeError):
    """A sparse tensor was given to a function of dense tensors only, or the other way round."""


class RecordingError(GraphError, Unsupported):
    """A compiled function cannot be recorded as a node: it has effects beyond computing its
    outputs.
    """


class MissingName(Unsupported, AttributeError):  # noqa: N818 - likewise
    """PyTorch has the name, adjoint lacks it (`hasattr` is False); the message says what to use
    instead.
    """


class BackendGap(Unsupported, AttributeError):  # noqa: N818 - likewise
    """A backend's namespace lacks a function (so `hasattr` answers as it should)."""


class NotTraceable(Exception):  # noqa: N818 - never reaches a user
    """A computation that cannot become a kernel. The message gives the cause, worded to follow
    "NumPy, because of ...".

    Raised on purpose only: nothing else, but an AdjointError of a capture (which the plain way then
    raises again), leads to a slower way.
    """


class FallbackError(RuntimeError):
    """A slower way was taken where a kernel is expected (`ADJOINT_STRICT=1`, for tests)."""
