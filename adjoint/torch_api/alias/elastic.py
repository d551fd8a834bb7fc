"""`torch.distributed.elastic`, of which there is what a program's own processes do: write down why
one failed (`record`). What starts and watches processes is `adjoint run --nproc`.
"""

from __future__ import annotations

import faulthandler
import functools
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from ...core.errors import MissingName
from ...core.missing_names import MODULES

__all__ = ["ChildFailedError", "ErrorHandler", "get_error_handler", "record"]
__path__: list[str] = []  # PyTorch's is a package, whose modules are this one, too

_BELOW = ("errors", "multiprocessing")


class ErrorHandler:
    """Writes an exception, in PyTorch's form, to the file that TORCHELASTIC_ERROR_FILE names; to
    none where it names none.

    Source: https://docs.pytorch.org/docs/stable/elastic/errors.html
    """

    def initialize(self) -> None:
        """Make Python print where its threads were if a fault kills the process."""
        try:
            faulthandler.enable(all_threads=True)
        except Exception as error:  # where standard error is no file
            message = f"Unable to enable fault handler. {type(error).__name__}: {error}"
            warnings.warn(message, stacklevel=2)

    def record_exception(self, e: BaseException) -> None:
        """Write what `e` says, the stack that is being handled, and when."""
        path = os.environ.get("TORCHELASTIC_ERROR_FILE")
        if not path:
            return
        more = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
        said = {"message": f"{type(e).__name__}: {e}", "extraInfo": more}
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"message": said}, file)


class ChildFailedError(Exception):
    """Error of PyTorch's launcher, where a process that it started failed. Nothing here raises it:
    `adjoint run` ends with the status of the rank that failed.
    """


def get_error_handler() -> ErrorHandler:
    """The handler that `record` uses where it is given none."""
    return ErrorHandler()


def record(fn: Callable[..., Any], error_handler: ErrorHandler | None = None) -> Callable[..., Any]:
    """A function that does as `fn`, and has an exception that leaves it written down first; to end
    with status 0 (`sys.exit(0)`) is to return.

    Source: https://docs.pytorch.org/docs/stable/elastic/errors.html

    >>> from adjoint.torch_api.alias.elastic import record
    >>> @record
    ... def main():
    ...     return 3
    >>> main()
    3
    """
    handler = error_handler or get_error_handler()

    @functools.wraps(fn)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit as end:
            if end.code == 0:
                return None
            raise
        except Exception as error:
            handler.record_exception(error)
            raise

    return recorded


def __getattr__(name: str) -> Any:
    if name in _BELOW:
        return sys.modules[__name__]
    if name.startswith("__"):
        raise AttributeError(f"module 'torch.distributed.elastic' has no attribute {name!r}")
    why = MODULES["distributed.elastic.agent"]
    raise MissingName(f"module 'torch.distributed.elastic' has no attribute {name!r}: {why}")
