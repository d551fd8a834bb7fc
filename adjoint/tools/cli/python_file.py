"""Runs the user's file for commands that look at the objects it made."""

from __future__ import annotations

import contextlib
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...core.argument_errors import described
from ...core.errors import InvalidArgument


class PythonFile:
    """A Python file, and the names that it has defined so far."""

    def __init__(self, path: Path, arguments: list[str]) -> None:
        self.path = path
        self.arguments = arguments
        try:
            self.code = compile(path.read_bytes(), str(path), "exec")
        except (SyntaxError, ValueError) as error:  # ValueError: of bytes that are no text
            raise InvalidArgument(
                f"{path.name} is no Python program: {error}; of a model file, `adjoint summary "
                f"{path.name} --draw graph.html` draws the graph"
            ) from None
        self.module = types.ModuleType("__main__")
        self.module.__file__ = str(path)

    def run(self) -> None:
        """Run the file as `python FILE ARGUMENTS` would, with errors shown as Python shows them."""
        with self._as_main():
            try:
                exec(self.code, self.module.__dict__)
            except SystemExit as end:
                if end.code not in (None, 0):
                    raise
            except Exception as error:
                trace = error.__traceback__
                traceback.print_exception(error.with_traceback(trace and trace.tb_next))
                raise SystemExit(1) from error

    @contextlib.contextmanager
    def _as_main(self) -> Iterator[None]:
        before = sys.modules["__main__"], sys.argv, sys.path[:]
        sys.modules["__main__"] = self.module
        sys.argv = [str(self.path), *self.arguments]
        sys.path.insert(0, str(self.path.resolve().parent))
        try:
            yield
        finally:
            sys.modules["__main__"], sys.argv, sys.path[:] = before

    def find(
        self,
        wanted: str | None,
        usual: tuple[str, ...],
        fits: Callable[[Any], bool],
        what: str,
        otherwise: Any = None,
    ) -> Any:
        """The variable of that name; without one, the first usual name, the last that fits, or
        `otherwise`.

        Errors: InvalidArgument where there is none.
        """
        found = {name: value for name, value in self.module.__dict__.items() if fits(value)}
        if wanted is not None:
            if wanted not in found:
                raise InvalidArgument(
                    f"{self.path.name} has no {what} named {wanted!r}; it has {_listed(found)}"
                )
            return found[wanted]
        for name in usual:
            if name in found:
                return found[name]
        if not found and otherwise is not None:
            return otherwise
        if not found:
            raise InvalidArgument(
                f"{self.path.name} left no {what} in a global variable; assign it to "
                f"{_listed(usual)}, outside of functions"
            )
        return list(found.values())[-1]

    def variables(self, fits: Callable[[Any], bool]) -> list[str]:
        """Names and descriptions of the public variables that fit."""
        return [
            f"{name} ({described(value)})"
            for name, value in self.module.__dict__.items()
            if not name.startswith("_") and fits(value)
        ]


def _listed(names: Any) -> str:
    return ", ".join(names) or "none"
