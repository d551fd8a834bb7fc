"""Gradient modes: no_grad, enable_grad, set_grad_enabled, inference_mode, detect_anomaly. Nested,
per thread and per asyncio task, restored on exceptions; each is a context manager and a decorator.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

from ..core.errors import GraphError
from ..core.mode import MODE, Mode, ModeSwitch, ModeSwitchAtOnce, mode_with

__all__ = [
    "detect_anomaly", "enable_grad", "inference_mode", "is_anomaly_enabled", "is_grad_enabled",
    "is_inference_mode_enabled", "no_grad", "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])


class _ModeSwitch(ModeSwitch):
    """A block in the mode with some `changes`; as a decorator, each call is such a block."""

    changes: dict[str, Any]

    def _inside(self, mode: Mode) -> Mode:
        """Return the mode with the changes."""
        return mode_with(mode, **self.changes)

    def _fresh(self) -> _ModeSwitch:
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._outside = []
        return copy

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
                with self._fresh():
                    running = function(*args, **kwargs)
                step: Callable[[], Any] = functools.partial(next, running)
                while True:
                    try:
                        with self._fresh():
                            item = step()
                    except StopIteration as stop:
                        return stop.value
                    try:
                        sent = yield item
                    except GeneratorExit:
                        running.close()
                        raise
                    except BaseException as error:
                        step = functools.partial(running.throw, error)
                    else:
                        step = functools.partial(running.send, sent)

            return cast(F, generator)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> object:
            with self._fresh():
                return function(*args, **kwargs)

        return cast(F, wrapper)


class _Bare(_ModeSwitch):
    """A switch without arguments: `@no_grad` works as well as `@no_grad()`."""

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        switch = object.__new__(cls)
        if function is None:
            return switch
        switch._outside = []
        return switch(function)

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        super().__init__()


class no_grad(_Bare):  # noqa: N801 - PyTorch's name
    """Record nothing for gradients inside; results do not require grad.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html

    >>> x = ad.ones(2, requires_grad=True)
    >>> with ad.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    changes = {"grad": False}  # noqa: RUF012 - never changed


class enable_grad(_Bare):  # noqa: N801 - PyTorch's name
    """Record again inside, where an outer no_grad switched it off.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.enable_grad.html

    >>> x = ad.ones(2, requires_grad=True)
    >>> with ad.no_grad(), ad.enable_grad():
    ...     (x * 2).requires_grad
    True
    """

    changes = {"grad": True, "inference": False}  # noqa: RUF012 - never changed


class set_grad_enabled(_ModeSwitch, ModeSwitchAtOnce):  # noqa: N801 - PyTorch's name
    """Switch recording on or off, at once as a function, or for a `with` block.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad_mode.set_grad_enabled.html

    >>> with ad.set_grad_enabled(False):
    ...     ad.is_grad_enabled()
    False
    """

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.changes = {"grad": bool(mode)}
        self._enter()

    def __call__(self, function: F) -> F:
        """Decorate `function`; the effect of the constructor is undone."""
        if self._outside:
            self._leave()
        return super().__call__(function)


class inference_mode(_ModeSwitch):  # noqa: N801 - PyTorch's name
    """no_grad, and results that may never take part in autograd later.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad_mode.inference_mode.html

    >>> with ad.inference_mode():
    ...     y = ad.ones(2) * 2
    >>> y.is_inference()
    True
    """

    def __new__(cls, mode: bool | Callable[..., Any] = True) -> Any:
        """A switch, or the decorated function for `@inference_mode` without parentheses."""
        switch = object.__new__(cls)
        if callable(mode):
            switch.__init__()  # type: ignore[misc]
            return switch(mode)
        return switch

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.changes = {"inference": mode, "grad": not mode}


class detect_anomaly(_ModeSwitch):  # noqa: N801 - PyTorch's name
    """Name the op whose gradient became NaN, and the line that called it; without `check_nan`, only
    record the lines. With `forward` the results of operations are looked at as well, and the error
    of the first NaN names operation, module, line and the range of the inputs; it is slow.

    Errors: AutogradError from backward at the first op whose gradient contains NaN, with `forward`
    from the first op whose result does; GraphError for `forward` where operations are recorded, in
    a graph or lazily.
    Source: https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection

    >>> x = ad.tensor(-1.0, requires_grad=True)
    >>> with ad.autograd.detect_anomaly():
    ...     try:
    ...         ad.sqrt(x).backward()
    ...     except RuntimeError as error:
    ...         print(str(error)[:45])
    Function 'SqrtBackward0' returned nan values
    """

    def __init__(self, check_nan: bool = True, forward: bool = False) -> None:
        super().__init__()
        self.changes = {"anomaly": True, "checks_nan": bool(check_nan)}
        self._forward = bool(forward)

    def _inside(self, mode: Mode) -> Mode:
        if not self._forward:
            return super()._inside(mode)
        from .forward_anomaly import execute_without_nan  # which few programs need

        if mode.executor not in (None, execute_without_nan):
            raise GraphError(
                "detect_anomaly: forward=True looks at results, and here operations are recorded; "
                "open it outside of graphs and lazy blocks"
            )
        return mode_with(mode, **self.changes, executor=execute_without_nan)


class set_detect_anomaly(set_grad_enabled):  # noqa: N801 - PyTorch's name
    """Switch anomaly detection on or off, at once as a function, or for a `with` block.

    Source: https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection

    >>> with ad.autograd.set_detect_anomaly(True):
    ...     ad.is_anomaly_enabled()
    True
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        _ModeSwitch.__init__(self)
        self.changes = {"anomaly": bool(mode), "checks_nan": bool(check_nan)}
        self._enter()


def is_grad_enabled() -> bool:
    """Whether operations are recorded for gradients here.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.is_grad_enabled.html

    >>> ad.is_grad_enabled()
    True
    """
    return MODE.get().grad


def is_inference_mode_enabled() -> bool:
    """Whether inference mode is on here.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.is_inference_mode_enabled.html

    >>> ad.is_inference_mode_enabled()
    False
    """
    mode = MODE.get()
    refuse = getattr(mode.executor, "assert_not_inferring", None)
    if refuse is not None:
        refuse()
    return mode.inference


def is_anomaly_enabled() -> bool:
    """Whether anomaly detection is on here.

    Source: https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection

    >>> ad.is_anomaly_enabled()
    False
    """
    return MODE.get().anomaly
