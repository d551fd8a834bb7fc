"""Profile hook for captures: which code ran, and calls with effects that a program could not
repeat.

Cython compiles this file: Python asks it for each call of the function's.
"""

from __future__ import annotations

import _collections_abc
import builtins
import functools
import gc
import importlib
import logging
import os
import random
import sys
import sysconfig
import threading
import types
import warnings
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from ...core import config
from ...core.cython_shim import cython
from ...core.errors import Unsupported
from ...core.package import OURS
from ...core.signal_deferral import DEFERRED, HandlersReplaced

if TYPE_CHECKING:
    import cython  # what the compiler sees

R = TypeVar("R")
_LIBRARIES = tuple(
    os.path.abspath(sysconfig.get_path(name)) + os.sep
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_INSTALLED = tuple(
    os.path.abspath(sysconfig.get_path(name)) + os.sep for name in ("purelib", "platlib")
)
_OWN_LIBRARIES = tuple(  # what this package is built on, and what computes on devices for it
    path + name + os.sep
    for path in _INSTALLED
    for name in ("numpy", "llvmlite", "ml_dtypes", "torch", "triton")
)
# Modules in C all of whose functions only read their arguments, or write to lists and dicts among
# them, which are guarded by what they contain.
_PURE_MODULES = (
    "math cmath operator _operator itertools functools _functools collections _collections "
    "_weakrefset _struct _bisect _heapq contextlib copy copyreg types typing _typing abc re _sre "
    "string numbers fractions dataclasses inspect enum cython_runtime"
)
_PURE = frozenset(_PURE_MODULES.split())
# Functions in C of modules that also have others: those that keep to their arguments, and those
# that a guard or the observer itself attends to. All others are refused.
_PURE_FUNCTIONS = {
    "sys": "_getframe _getframemodulename intern exc_info exception getsizeof is_finalizing audit",
    "gc": "collect is_tracked",
    "_thread": "allocate_lock allocate RLock get_ident get_native_id",
    "_weakref": "proxy _remove_dead_weakref",
    "_abc": (
        "_abc_init _abc_instancecheck _abc_subclasscheck get_cache_token _get_dump "
        "_reset_caches _reset_registry"
    ),
    "_contextvars": "",
    "_decimal": "getcontext localcontext",
    "decimal": "getcontext localcontext",
    "_warnings": "_filters_mutated _filters_mutated_lock_held",
    "warnings": "_filters_mutated _filters_mutated_lock_held",
}
_PURE_NAMES = {module: frozenset(names.split()) for module, names in _PURE_FUNCTIONS.items()}
# Functions of modules that are otherwise known: they read or write what no guard sees.
WITH_EFFECT = ("print", "input", "open", "breakpoint")
# Functions that read or set what they are given the name of, or all that an object has.
BY_NAME = ("getattr", "hasattr", "setattr", "delattr", "vars", "dir")
_WATCHED = (*WITH_EFFECT, *BY_NAME, "super")
_IMPURE = {
    "builtins": frozenset((*WITH_EFFECT, "exec", "eval", "compile", "globals", "__import__")),
    "numpy": frozenset(("tofile", "dump", "fromfile")),
}


class _Apart(HandlersReplaced):
    """Handlers of signals, which run while a function is watched and are no code of the function's:
    what they call is not looked at.
    """

    def __init__(self, watch: CodeObserver) -> None:
        super().__init__()
        self.watch = watch

    def on_signal(self, number: int, frame: types.FrameType | None) -> None:
        """Run the handler that was replaced, unwatched."""
        hook = sys.getprofile()
        if hook is not None:
            self.watch.disable()
        try:
            self.handlers[number](number, frame)
        finally:
            if hook is not None:
                self.watch.enable()


class Stopped(BaseException):
    """The end of a function that was about to call what has an effect; no handler of the function's
    own, or of a library's, takes it for an error.
    """


def _caller() -> types.FrameType:
    """The frame that calls one of the functions below; a compiled one has none itself."""
    return sys._getframe() if cython.compiled else sys._getframe(2)


class _WatchedBuiltIns:
    """Built-in functions with effects, which C may call where the interpreter sees no call (`map`,
    `partial`, a key of `sorted`), and those that read by name: while it is on they tell the
    observer first.
    """

    def __init__(self, watch: CodeObserver) -> None:
        self._thread = threading.get_ident()
        self._originals = {name: getattr(builtins, name) for name in _WATCHED}
        self._watch = watch

    def replace(self) -> None:
        """Put functions that ask first in their places."""
        for name in (*WITH_EFFECT, *BY_NAME):
            function = self._originals[name]
            asks = self._called if name in WITH_EFFECT else self._named
            setattr(builtins, name, functools.partial(asks, function))
        cast(Any, builtins).super = _watched_super(self._named_by_super)

    def put_back(self) -> None:
        """Put the functions back; what still has one of these asks nobody."""
        for name, function in self._originals.items():
            setattr(builtins, name, function)
        self._thread = -1  # no thread's
        del self._watch  # a class lives until the collector runs, and with this what a snapshot has

    def _called(self, function: Callable[..., R], *args: object, **kwargs: object) -> R:
        if threading.get_ident() == self._thread and sys.getprofile() is not None:
            self._watch.refuse(function, _caller())
        return function(*args, **kwargs)

    def _watches(self) -> bool:
        """Whether it is the function that runs."""
        here = threading.get_ident() == self._thread and sys.getprofile() is not None
        return here and not self._watch.is_asking

    def _named(self, function: Callable[..., R], *given: Any) -> R:
        if self._watches():
            frame = _caller()
            if self._watch.is_librarys(frame.f_code):
                self._watch.read(*given, how=cast(Any, function).__name__)
        return function(*given)

    def _named_by_super(self, method: Any, *given: Any) -> Any:
        if self._watches():
            frame = _caller()
            if self._watch.is_librarys(frame.f_code):
                self._watch.read(method.__self__, *given, how=method.__name__, frame=frame)
        return method(*given)


_BY_SUPER = ("__getattribute__", "__setattr__", "__delattr__")


def _watched_super(asks: Callable[..., Any]) -> type:
    """A `super` whose methods that read or set by name, in C, ask first."""
    own: Any = builtins.super

    def get(self: Any, name: str) -> Any:
        method = own.__getattribute__(self, name)
        if name in _BY_SUPER and type(method) is types.MethodWrapperType:
            return functools.partial(asks, method)
        return method

    return type("super", (own,), {"__getattribute__": get})


class CodeObserver:
    """Context manager that notes which code runs, and the first call whose effect a program could
    not repeat.
    """

    def __init__(
        self, begins: Callable[[types.CodeType, types.FrameType], bool],
        reads: Callable[..., None],
    ) -> None:  # fmt: skip
        """`begins` is told of code, with its frame, before it runs for the first time, and then
        each time if it says so; `reads` of the object that a library's code reads by a name, and of
        this name, if it gives one.
        """
        self.codes: dict[int, Any] = {}  # by id: to hash one takes its names and constants
        self._begins = begins
        self._each_time: dict[int, Any] = {}  # code of which `begins` is told each time, by its id
        self.is_asking = False  # whether `begins` runs, which is no code of the function's
        self._reads = reads
        self._librarys: dict[int, tuple[Any, bool]] = {}  # code by id; whether it is a library's
        self._callers: dict[int, tuple[Any, bool]] = {}  # likewise, and whether it is ours
        self.refused: str = ""  # the first call with an effect, and where
        self.changed: dict[int, str] = {}  # by the id of a container that a method changed: where
        self._outer: Any = None
        self._collects = False
        self._random: Any = None  # states of generators that are not ours
        self._apart: Any = None  # while it watches
        self._built_ins: Any = None  # likewise

    def __enter__(self) -> CodeObserver:
        self._random = random.getstate(), np.random.get_state()
        self._outer = sys.getprofile()
        self._collects = gc.isenabled()
        gc.disable()  # finalizers of others are no code of the function's
        self._apart = _Apart(self)
        self._apart.replace()
        self._built_ins = _WatchedBuiltIns(self)
        self._built_ins.replace()
        self.enable()
        return self

    def enable(self) -> None:
        """Install the hook, or install it again after another one inside has ended."""
        if cython.compiled:
            # Python's own way there makes a dict of each frame's variables, for each event.
            PyEval_SetProfile(_on_event, self)
        else:
            sys.setprofile(self._event)

    def disable(self) -> None:
        """Watch no more for a while."""
        if cython.compiled:
            PyEval_SetProfile(cython.NULL, None)
        else:
            sys.setprofile(None)

    def __exit__(self, *exception: object) -> None:
        apart, self._apart = self._apart, None
        apart.put_back()
        apart.own = None  # which refers to it
        DEFERRED.begin()
        try:
            self._leave(exception[0] is None)
        finally:
            DEFERRED.end()
        if apart.error is not None:
            raise apart.error

    def _leave(self, whole: bool) -> None:
        """Put back what was there before; `whole`: the function has come to its end."""
        self._built_ins.put_back()
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
        if drew and whole and not self.refused:
            self.refused = f"numbers of the module {drew}, which other calls would not get"

    def refuse(self, function: object, frame: types.FrameType | None) -> None:
        """End the function before it calls what has an effect, if its own code does so.

        Errors: Stopped.
        """
        users = users_frame(frame)
        if users is not None:
            where = place_in(users.f_code, users.f_lineno)
            self.refused = f"{name_of(function)}(), of which a program knows nothing{where}"
            raise Stopped

    def read(self, *given: object, how: str, frame: types.FrameType | None = None) -> None:
        """Tell what a library's code reads. What that looks at may be asked by methods of users'
        classes, such as a `__getattribute__`; these are no code of the function's.
        """
        self.is_asking = True
        try:
            self._reads(*given, how=how, frame=frame)
        finally:
            self.is_asking = False

    def is_librarys(self, code: types.CodeType) -> bool:
        """Whether code is of a library, not of this package or of the user's."""
        known = self._librarys.get(id(code))
        if known is None:
            name = code.co_filename
            known = self._librarys[id(code)] = code, is_library(name) and not name.startswith(OURS)
        return known[1]

    def assert_known(self) -> None:
        """Check that no call was met of which a program knows nothing.

        Errors: Unsupported otherwise.
        """
        if self.refused:
            raise Unsupported(
                f"compile: the function calls {self.refused}; call it outside of the function"
            )

    def _event(self, frame: types.FrameType, event: str, arg: object) -> None:
        if event == "call":
            code = frame.f_code
            if id(code) not in self.codes or id(code) in self._each_time:
                if code.co_filename == "<string>" and _is_generated(frame):
                    return
                self.codes[id(code)] = code
                self.is_asking = True
                try:
                    if self._begins(code, frame):
                        self._each_time[id(code)] = code
                finally:
                    self.is_asking = False
            name = _READERS.get(id(code))
            if name is not None and not self.refused:
                reader = frame.f_back
                while reader is not None and reader.f_code.co_filename in _READERS_FILES:
                    reader = reader.f_back
                if reader is not None and is_users(reader.f_code):
                    where = place_in(reader.f_code, reader.f_lineno)
                    self.refused = f"{name}, of which a program knows nothing{where}"
                    raise Stopped
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
            elif not self.refused and has_effect(arg, owner):
                self.refuse(arg, frame)


def _on_event(watch: Any, frame: Any, what: Any, arg: Any) -> int:
    """The C profile function that the interpreter calls."""
    if what == PyTrace_CALL:
        watch._event(cython.cast(object, frame), "call", None)
    elif what == PyTrace_C_CALL:
        watch._event(cython.cast(object, frame), "c_call", cython.cast(object, arg))
    return 0


# Library functions in Python that read or write what lies in C, or in their modules, by the ids of
# their code.
_READERS = {
    id(function.__code__): name
    for function, name in (
        (np.seterr, "numpy.seterr()"),
        (np.get_printoptions, "numpy.get_printoptions()"),
        (np.set_printoptions, "numpy.set_printoptions()"),
        (warnings.simplefilter, "warnings.simplefilter()"),
        (warnings.filterwarnings, "warnings.filterwarnings()"),
        (warnings.resetwarnings, "warnings.resetwarnings()"),
        (logging.getLogger, "logging.getLogger()"),
        (logging.Logger.setLevel, "Logger.setLevel()"),
        (logging.disable, "logging.disable()"),
        (threading.current_thread, "threading.current_thread()"),
        (os.getenv, "os.getenv()"),
        (type(os.environ).__getitem__, "os.environ[...]"),
        (type(os.environ).__iter__, "iter(os.environ)"),
        (type(os.environ).__len__, "len(os.environ)"),
        (np.geterr, "numpy.geterr()"),
        (importlib.import_module, "importlib.import_module()"),
    )
}
_READERS_FILES = (
    os.__file__,
    "<frozen os>",
    "<frozen _collections_abc>",
    importlib.__file__,
    _collections_abc.__file__,
)


def reader_of(function: Any) -> str:
    """Name of a library's function in Python for which a function is refused; '' for others."""
    return _READERS.get(id(getattr(function, "__code__", None)), "")


_CONTAINERS = (list, dict, set, deque)


def has_effect(function: Any, owner: object) -> bool:
    """Whether a C function may have an effect, or return something else next time."""
    name = function.__name__
    if isinstance(owner, types.ModuleType) or owner is None:
        module = function.__module__ or (owner.__name__ if owner is not None else "")
        if module in _PURE_NAMES:
            return name not in _PURE_NAMES[module]
    else:
        module = (owner if isinstance(owner, type) else type(owner)).__module__
        if module.startswith("numpy.random") or module == "_io":
            return True
        if module in _PURE_NAMES:
            return False
    if module in _PURE:
        return False
    impure = _IMPURE.get(module.partition(".")[0])
    if impure is not None:
        return name in impure
    return not is_known(module)


def is_known(module: str) -> bool:
    """Whether what this module has in C is understood by capture (numpy, adjoint)."""
    return module.partition(".")[0] in ("numpy", "adjoint", config.CALLED)


def _is_generated(frame: types.FrameType) -> bool:
    """Whether code without a file is a method that Python has made for a named tuple, or for a
    class of this package.
    """
    module = str(frame.f_globals.get("__name__"))
    return module.startswith("namedtuple_") or is_known(module)


def name_of(function: Any) -> str:
    """The name of a function in C, with its module or type."""
    module = function.__module__ or type(function.__self__).__module__
    return f"{module}.{function.__qualname__}".removeprefix("builtins.")


def users_frame(frame: types.FrameType | None) -> types.FrameType | None:
    """The first frame of user code, from this one outwards; None if a frame of the package comes
    first, or during an import, which happens only once.
    """
    users = None
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(OURS):
            break
        if name == IMPORTS:
            return None
        if users is None and not is_library(name):
            users = frame
        frame = frame.f_back
    return users


IMPORTS = "<frozen importlib._bootstrap>"


def is_library(path: str) -> bool:
    """Whether a file belongs to Python or was installed."""
    return path.startswith(("<frozen", *_LIBRARIES))


def is_standard(path: str) -> bool:
    """Whether a file is one of Python's own library."""
    return path.startswith(_LIBRARIES) and not path.startswith(_INSTALLED)


def is_installed(path: str) -> bool:
    """Whether a file was installed, and is not what this package itself is built on."""
    return path.startswith(_INSTALLED) and not path.startswith((*OURS, *_OWN_LIBRARIES))


def is_users(code: types.CodeType) -> bool:
    """Whether code is the user's: neither this package's nor a library's."""
    return not code.co_filename.startswith(OURS) and not is_library(code.co_filename)


def place_in(code: types.CodeType, line: int) -> str:
    """Text of a line in code, for messages."""
    return f" ({code.co_filename}:{line}, in {code.co_name})"


def _same_numpy_state(state: Any) -> bool:
    kind, keys, *more = cast(Any, np.random.get_state())
    return bool((kind, *more) == (state[0], *state[2:]) and np.array_equal(keys, state[1]))


def place_of_caller() -> str:
    """Text of the user's line that is running; '' if there is none."""
    frame: Any = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code):
        frame = frame.f_back
    return "" if frame is None else place_in(frame.f_code, frame.f_lineno)


def place_of(error: BaseException) -> str:
    """Text of the user's line that raised an error, or its cause; '' if there is none."""
    line = ""
    cause: BaseException | None = error
    while cause is not None:
        trace = cause.__traceback__
        while trace is not None:
            if is_users(trace.tb_frame.f_code):
                line = place_in(trace.tb_frame.f_code, trace.tb_lineno)
            trace = trace.tb_next
        cause = cause.__cause__
    return line
