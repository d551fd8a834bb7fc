"""The end of a capture before code runs that it would be refused for: a call in C on what cannot be
followed cannot be undone.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import cast

from ...core.errors import Unsupported
from ...core.package import NAME
from .code_names import (
    WHOLE,
    CodeNames,
    LibraryModule,
    dicts_read,
    given_names,
    globals_of,
    is_implied,
    items_read,
    keeps,
    reads_whole,
)
from .code_observer import IMPORTS, Stopped, is_installed, place_in, users_frame
from .retraces import RetraceToFollow
from .slots import ABSENT, GuardSource
from .standard_library import state_read_by
from .state_snapshot import StateSnapshot

UNFOLLOWED = ("iterator", "opaque", "large")  # kinds of slots that are not to be read


class RunningCode:
    """Names of the code that has run so far, with what they lead to that cannot be followed."""

    def __init__(self, reads: StateSnapshot) -> None:
        self.names = CodeNames(reads.any_name, reads.generated)
        self.names.names |= reads.gotten
        self.refused: GuardSource | None = None  # the slot that the code behind a stop may read
        self.unknown: Unsupported | None = None  # or why it is refused, or traced again
        self.by_libraries: set[str] = set()  # names in code of libraries to which nothing led
        self.absent: set[str] = set()  # names that libraries asked for where there are none
        self._reads = reads
        self._slots = [n for n, slot in enumerate(reads.slots) if slot.kind in UNFOLLOWED]
        ways = self._above(self._slots, lambda slot: True)
        needs = (reads.slots[n].needs for n in ways)  # names, and the ids of code
        self._needs = {each if isinstance(each, str) else id(each) for each in needs}
        self._begun = False

    def begins(self, code: types.CodeType, frame: types.FrameType) -> bool:
        """Note code that is about to run for the first time; whether it is to be told of each time
        that it runs.

        Errors: Stopped if it may read what cannot be followed, or what nothing has led to.
        """
        installed = is_installed(code.co_filename)
        state = state_read_by(code, frame.f_globals)
        if state:
            self._assert_not_users(code, frame, state)
        if id(code) in self.names.codes:
            self._read_dicts(code, frame)
            return True
        computed = self.names.everything
        self.names.add(code)
        if self._reads.is_unseen_library(code):
            given = given_names(code)
            self.by_libraries.update(code.co_names, given, items_read(code).values())
            self.names.names |= given
            if installed and not _is_imported(frame):
                self._miss_globals(code, frame.f_globals)
        if installed and (reads_whole(code) or "super" in frame.f_globals):
            self._read_all()
        if (
            not self._begun
            or self.names.everything is not computed
            or id(code) in self._needs
            or not self._needs.isdisjoint(code.co_names)
        ):
            self._begun = True
            self._stop_before_unfollowed()
        if self._reads.unknown((code,)) is not None and not _is_imported(frame):
            self.unknown = unknown_code(code)
            raise Stopped
        reads_dicts = installed and bool(dicts_read(code))
        if reads_dicts:
            self._read_dicts(code, frame)
        return reads_dicts or bool(state)

    def _assert_not_users(
        self, code: types.CodeType, frame: types.FrameType, state: str
    ) -> None:  # fmt: skip
        """Refuse what reads changing state of Python's library for code of the user's.

        Errors: Stopped.
        """
        users = users_frame(frame.f_back)
        if users is not None:
            module = frame.f_globals.get("__name__")
            self.unknown = Unsupported(
                f"compile: the function calls {module}.{code.co_name}(), which reads {state}, and "
                "a program would go on with what that was; call it outside of the function, and "
                f"give it what depends on it{place_in(users.f_code, users.f_lineno)}"
            )
            raise Stopped

    def _read_dicts(self, code: types.CodeType, frame: types.FrameType) -> None:
        """Note the objects, among those that were there before, of which a library's code reads
        the `__dict__`.
        """
        outer = frame.f_back
        for name in dicts_read(code):
            if name in code.co_freevars:  # as of the expression that a generator runs
                inner = outer is not None and any(x is code for x in outer.f_code.co_consts)
                kept = outer is not None and inner and keeps(outer.f_code, name)
            else:
                kept = keeps(code, name)
            x = frame.f_locals.get(name, ABSENT) if kept else ABSENT
            if x is ABSENT:
                self._read_all()
            elif self._reads.has_met(x):
                self.reads(x)

    def _stop_before_unfollowed(self) -> None:
        for n in self._slots:
            if any(self._reads.slots[m].parent < 0 for m in self._above([n], self._is_read)):
                self.refused = self._reads.slots[n]
                raise Stopped

    def _miss_globals(self, code: types.CodeType, own: dict[str, object]) -> None:
        """Note the module of a library's code to which nothing led, if it reads a variable there
        that is no function, class or module.
        """
        module = LibraryModule(own.get("__name__", ""))
        held = (own.get(name) for name in globals_of(code) if name in own)
        if module not in self._reads.modules and not all(
            callable(x) or isinstance(x, types.ModuleType) for x in held
        ):
            self._stop_to_follow({module})

    def _read_all(self) -> None:
        """Note that a library's code may read any attribute of any object."""
        self.names.whole = True
        self._stop_to_follow(self._reads.of_objects)

    def reads(
        self, x: object = None, *more: object, how: str = "",
        frame: types.FrameType | None = None,
    ) -> None:  # fmt: skip
        """Note that a library's code reads or sets an attribute of `x` by a name that it has
        computed, the first of `more`, or all that it has; `how` is the name of the function that
        does so. `frame` is what calls a method of `super()`.

        Errors: Stopped if that leads to what cannot be followed.
        """
        missed: set[str] = set()
        only_asks = how == "hasattr"
        given: Sequence[object] = more[:1]
        if given == ("__dict__",) and frame is not None:
            given = (items_read(frame.f_code).get(frame.f_lasti, "__dict__"),)
        if not given or (given[0] == "__dict__" and not only_asks):
            given = [*_own_of(x)] if self._reads.has_met(x) else ()  # else made by what ran
        for name in given:
            if type(name) is not str:
                continue
            if name in WHOLE and not only_asks:
                self._read_all()
            known = name in self.names.names and name not in self.absent
            if known or is_implied(name):
                continue
            if _is_imported_part(x, name):
                continue
            self.names.names.add(name)
            if self._reads.passes_over(x, name):
                # What is not there is looked for in the next trace, together with all such.
                is_absent = how in ("hasattr", "getattr", "__getattribute__") and (
                    name not in self._reads.passed_over and not _has(x, name)
                )
                (self.absent if is_absent else missed).add(name)
            if name in self._needs:
                self._stop_before_unfollowed()
        self._stop_to_follow(missed)

    def _stop_to_follow(self, missed: set[str]) -> None:
        """End the capture before a library reads or writes what was not followed."""
        if missed:
            self.unknown = RetraceToFollow(
                f"compile: a library's function that runs may read {', '.join(sorted(missed)[:3])} "
                "of what the function has, which was not followed",
                missed,
            )
            raise Stopped

    def assert_all_followed(self) -> None:
        """Check that what code of libraries read by name, to which nothing led, is followed.

        Errors: RetraceToFollow with the names that objects have and that were passed over.
        """
        missed = self.absent | (self.by_libraries & self._reads.passed_over)
        if missed:
            raise RetraceToFollow(
                f"compile: a library's function that runs may read {', '.join(sorted(missed)[:3])} "
                "of what the function has, which was not followed",
                missed,
            )

    def _is_read(self, slot: GuardSource) -> bool:
        return self.names.has(slot) or self.names.may_compute(slot)

    def _above(self, begin: Sequence[int], passes: Callable[[GuardSource], bool]) -> Iterator[int]:
        """Some slots and those that lead to them, as far as they pass."""
        slots, ways = self._reads.slots, self._reads.ways
        met, waiting = set(begin), list(begin)
        while waiting:
            place = waiting.pop()
            slot = slots[place]
            if not passes(slot):
                continue
            yield place
            more = {slot.parent, *ways.get(slot.parent, ())} - met if slot.parent >= 0 else ()
            met.update(more)
            waiting.extend(more)


def _own_of(x: object) -> Collection[object]:
    """Names of the attributes that an object has itself; by no method of its class."""
    try:
        own: Collection[object] = object.__getattribute__(x, "__dict__")
    except AttributeError:
        return ()
    return own


def _has(x: object, name: str) -> bool:
    """Whether an object or its class has an attribute; asked of no method of its class."""
    kinds = (*type(x).__mro__, *(cast(type, x).__mro__ if issubclass(type(x), type) else ()))
    return name in _own_of(x) or any(name in _own_of(each) for each in kinds)


def unknown_code(code: types.CodeType) -> RetraceToFollow:
    """The error for code of the user's to which nothing led."""
    return RetraceToFollow(
        f"compile: the function runs {code.co_name}{place_in(code, code.co_firstlineno)}, to which "
        "nothing leads that it names, so that what it reads cannot be followed; call it by a "
        "variable, an attribute or an argument, or outside of the function",
        (code.co_name,),
    )


def _is_imported_part(x: object, name: str) -> bool:
    """Whether `name` is a module below `x`, a package of ours, which has it once it is imported: as
    some are in the first capture of a process.
    """
    if not issubclass(type(x), types.ModuleType):  # `isinstance` may read `__class__` by a method
        return False  # of the object's class, which asks here again
    own = vars(x)
    if own.get("__name__", "").partition(".")[0] != NAME:
        return False
    if name in own:
        return isinstance(own[name], types.ModuleType)
    folders = own.get("__path__", ())
    return any(os.path.exists(os.path.join(folder, f"{name}.py")) for folder in folders)


def _is_imported(frame: types.FrameType | None) -> bool:
    """Whether a frame is of an import, which is not to be ended halfway."""
    while frame is not None and frame.f_code.co_filename != IMPORTS:
        frame = frame.f_back
    return frame is not None
