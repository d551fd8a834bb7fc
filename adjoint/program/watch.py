"""Which code runs while a function is captured, and calls that a program could not repeat.

Cython compiles this file: Python asks it for each call of the function's.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import sysconfig
import types
from collections import deque
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..core import config
from ..core.interpreted import cython

if TYPE_CHECKING:
    import cython  # what the compiler sees

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
OURS = (_PACKAGE, os.path.basename(_PACKAGE[:-1]) + os.sep)  # compiled files have relative names
_LIBRARIES = tuple(
    os.path.abspath(sysconfig.get_path(name)) + os.sep
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_PURE_MODULES = (
    "builtins math cmath operator _operator itertools functools _functools collections "
    "_collections _abc _weakref _weakrefset _struct _bisect _heapq contextlib _contextvars copy "
    "copyreg types typing _typing abc warnings _warnings re _sre string numbers fractions "
    "decimal _decimal dataclasses inspect enum sys _thread threading gc cython_runtime "
)
_PURE = frozenset(_PURE_MODULES.split())
_IMPURE = frozenset(("print", "input", "open", "breakpoint", "exec", "eval", "compile"))


class Watch:
    """Which code runs within it, and calls that a program could not repeat."""

    def __init__(self) -> None:
        self.codes: dict[int, Any] = {}  # by id: to hash one takes its names and constants
        self._callers: dict[int, tuple[Any, bool]] = {}  # likewise, and whether it is ours
        self.refused: str = ""  # the first call with an effect, and where
        self.changed: dict[int, str] = {}  # by the id of a container that a method changed: where
        self._outer: Any = None
        self._collects = False
        self._random: Any = None  # states of generators that are not ours

    def __enter__(self) -> Watch:
        self._outer = sys.getprofile()
        self._collects = gc.isenabled()
        gc.disable()  # finalizers of others are no code of the function's
        self._random = random.getstate(), np.random.get_state()
        self.enable()
        return self

    def enable(self) -> None:
        """Watch, or watch on when another has ended within."""
        if cython.compiled:
            # Python's own way there makes a dict of each frame's variables, for each event.
            PyEval_SetProfile(_on_event, self)
        else:
            sys.setprofile(self._event)

    def __exit__(self, *exception: object) -> None:
        if self._outer is None or callable(self._outer):
            sys.setprofile(self._outer)
        else:  # cProfile's, and ours, which are called from C
            sys.setprofile(None)
            self._outer.enable()
        if self._collects:
            gc.enable()
        state, numpy_state = self._random
        self._random = None
        drew = ""
        if random.getstate() != state:
            random.setstate(state)  # the function will run again
            drew = "random"
        if not _same_numpy_state(numpy_state):
            np.random.set_state(numpy_state)
            drew = drew or "numpy.random"
        if drew and exception[0] is None and not self.refused:
            self.refused = f"numbers of the module {drew}, which other calls would not get"

    def _event(self, frame: Any, event: str, arg: Any) -> Any:
        if event == "call":
            code = frame.f_code
            self.codes[id(code)] = code
        elif event == "c_call":
            code = frame.f_code
            caller = self._callers.get(id(code))
            if caller is None:
                caller = self._callers[id(code)] = code, code.co_filename.startswith(OURS)
            if caller[1]:
                return
            owner = getattr(arg, "__self__", None)
            if type(owner) in _CONTAINERS:
                self.changed[id(owner)] = place_in(code, frame.f_lineno)
            elif not self.refused and _has_effect(arg, owner):
                users = _users_frame(frame)
                if users is not None:
                    where = place_in(users.f_code, users.f_lineno)
                    self.refused = f"{_name_of(arg)}(), of which a program knows nothing{where}"


def _on_event(watch: Any, frame: Any, what: Any, arg: Any) -> int:
    """As the interpreter calls it."""
    if what == PyTrace_CALL:
        watch._event(cython.cast(object, frame), "call", None)
    elif what == PyTrace_C_CALL:
        watch._event(cython.cast(object, frame), "c_call", cython.cast(object, arg))
    return 0


_CONTAINERS = (list, dict, set, deque)


def _has_effect(function: Any, owner: Any) -> bool:
    """Whether a function without Python code may do something, or give something else next time."""
    if isinstance(owner, types.ModuleType) or owner is None:
        module = function.__module__ or (owner.__name__ if owner is not None else "")
        if module == "builtins":
            return function.__name__ in _IMPURE
        return module not in _PURE and not _is_known(module)
    kind = owner if isinstance(owner, type) else type(owner)
    module = kind.__module__
    if module.startswith("numpy.random") or module == "_io":
        return True
    return module not in _PURE and not _is_known(module)


def _is_known(module: str) -> bool:
    """Whether a program knows what a module has in C."""
    return module.partition(".")[0] in ("numpy", "adjoint", config.CALLED)


def _name_of(function: Any) -> str:
    module = function.__module__ or type(function.__self__).__module__
    return f"{module}.{function.__qualname__}".removeprefix("builtins.")


def _users_frame(frame: Any) -> Any:
    """The first frame of a user's, from this one outwards; None if the package called before, and
    for what happens while something is imported, which does so once.
    """
    found = None
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(OURS):
            break
        if name == _IMPORTS:
            return None
        if found is None and not is_library(name):
            found = frame
        frame = frame.f_back
    return found


_IMPORTS = "<frozen importlib._bootstrap>"


def is_library(path: str) -> bool:
    """Whether a file is Python's, or was installed."""
    return path.startswith(("<frozen", *_LIBRARIES))


def is_users(code: Any) -> bool:
    """Whether code is neither ours nor a library's."""
    return not code.co_filename.startswith(OURS) and not is_library(code.co_filename)


def place_in(code: Any, line: int) -> str:
    """A line of code, in words."""
    return f" ({code.co_filename}:{line}, in {code.co_name})"


def _same_numpy_state(state: Any) -> bool:
    kind, keys, *more = cast(Any, np.random.get_state())
    return bool((kind, *more) == (state[0], *state[2:]) and np.array_equal(keys, state[1]))


def place_of_caller() -> str:
    """The user's line that is running, in words; '' where there is none."""
    frame: Any = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code):
        frame = frame.f_back
    return "" if frame is None else place_in(frame.f_code, frame.f_lineno)


def place_of(error: BaseException) -> str:
    """The user's line that raised an error, or its cause, in words; '' where there is none."""
    found = ""
    cause: BaseException | None = error
    while cause is not None:
        trace = cause.__traceback__
        while trace is not None:
            if is_users(trace.tb_frame.f_code):
                found = place_in(trace.tb_frame.f_code, trace.tb_lineno)
            trace = trace.tb_next
        cause = cause.__cause__
    return found
