"""The end of a capture before code runs that it would be refused for: a call in C on what cannot be
followed cannot be undone.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Iterator, Sequence

from .code_names import CodeNames, LibraryModule, given_names, globals_of, is_implied, reads_whole
from .code_observer import IMPORTS, Stopped, is_installed, place_in
from .retraces import RetraceToFollow
from .slots import GuardSource
from .state_snapshot import StateSnapshot

PACKAGE = __name__.partition(".")[0]
UNFOLLOWED = ("iterator", "opaque", "large")  # kinds of slots that are not to be read


class RunningCode:
    """Names of the code that has run so far, with what they lead to that cannot be followed."""

    def __init__(self, reads: StateSnapshot) -> None:
        self.names = CodeNames(reads.any_name)
        self.names.names |= reads.gotten
        self.refused: GuardSource | None = None  # the slot that the code behind a stop may read
        self.unknown: RetraceToFollow | None = None  # or why the function is traced again
        self.by_libraries: set[str] = set()  # names in code of libraries to which nothing led
        self._reads = reads
        self._slots = [n for n, slot in enumerate(reads.slots) if slot.kind in UNFOLLOWED]
        ways = self._above(self._slots, lambda slot: True)
        needs = (reads.slots[n].needs for n in ways)  # names, and the ids of code
        self._needs = {each if isinstance(each, str) else id(each) for each in needs}
        self._begun = False

    def begins(self, code: types.CodeType, frame: types.FrameType) -> None:
        """Note code that is about to run for the first time.

        Errors: Stopped if it may read what cannot be followed, or what nothing has led to.
        """
        computed = self.names.everything
        self.names.add(code)
        installed = is_installed(code.co_filename)
        if self._reads.is_unseen_library(code):
            given = given_names(code)
            self.by_libraries.update(code.co_names, given)
            self.names.names |= given
            if installed and not _is_imported(frame):
                self._miss_globals(code, frame.f_globals)
        if installed and reads_whole(code):
            self.names.whole = True
            self._stop_to_follow(self._reads.of_objects)
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

    def reads(self, x: object = None, *more: object) -> None:
        """Note that a library's code reads or sets an attribute of `x` by a name that it has
        computed, the first of `more`, or all that it has.

        Errors: Stopped if that leads to what cannot be followed.
        """
        missed: set[str] = set()
        given = more[:1] or [*getattr(x, "__dict__", ())]
        for name in given:
            if type(name) is not str or name in self.names.names or is_implied(name):
                continue
            if _is_imported_part(x, name):
                continue
            self.names.names.add(name)
            if self._reads.passes_over(x, name):
                missed.add(name)
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
        missed = self.by_libraries & self._reads.passed_over
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
    if type(x) is not types.ModuleType or x.__name__.partition(".")[0] != PACKAGE:
        return False
    if name in vars(x):
        return type(vars(x)[name]) is types.ModuleType
    folders = getattr(x, "__path__", ())
    return any(os.path.exists(os.path.join(folder, f"{name}.py")) for folder in folders)


def _is_imported(frame: types.FrameType | None) -> bool:
    """Whether a frame is of an import, which is not to be ended halfway."""
    while frame is not None and frame.f_code.co_filename != IMPORTS:
        frame = frame.f_back
    return frame is not None
