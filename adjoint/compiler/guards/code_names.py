"""Names in code, which tell what it may read."""

from __future__ import annotations

import dis
import functools
import os
import types
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...core import policy
from ...core.package import OURS
from .code_observer import BY_NAME, is_users
from .retraces import RetraceOnRenewal
from .slots import GuardSource

# Names that, in code, mean that attributes of any name may be read.
ANY_NAME = frozenset((
    "getattr", "setattr", "delattr", "hasattr", "vars", "__dict__", "eval", "exec",
    "__getattribute__", "getattr_static", "getmembers", "attrgetter", "methodcaller", "format",
    "format_map", "asdict", "astuple", "dir",
))  # fmt: skip


# Those of them by which code of a library is not known to read one attribute: see `BY_NAME` and
# `reads_whole`.
WHOLE = ANY_NAME - frozenset(BY_NAME)


_WORDS = (
    "call getattr getattribute getitem setitem len iter next contains enter exit bool eq ne lt le "
    "gt ge hash add sub mul truediv matmul pow neg radd rsub rmul rtruediv iadd isub imul get set "
)


# Methods of our own classes that Python calls implicitly within a function: none that copies,
# prints or pickles, whose names would be taken for names that the function reads.
OURS_IMPLIED = frozenset(f"__{name}__" for name in _WORDS.split())


# What classes keep for those who ask for types: read by code that names it, and by nobody else.
_FOR_TYPES = frozenset((
    "__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__",
    "__orig_bases__", "__parameters__", "__type_params__",
))  # fmt: skip


@functools.lru_cache(maxsize=1 << 14)  # each capture asks for all names of all classes it meets
def is_implied(name: str) -> bool:
    """Whether a name is one that Python looks up by itself: of methods, and of what they read."""
    return name.startswith("__") and name.endswith("__") and name not in _FOR_TYPES


class Lookups(NamedTuple):
    """Names that the code which a snapshot reached looks up: there the next one begins."""

    names: frozenset[str] = frozenset()
    set: frozenset[str] = frozenset()  # names of attributes that it sets
    everything: bool = False  # whether it may read any attribute
    catches: bool = False  # whether it goes on after an error


NOTHING = Lookups()


class LibraryModule(str):
    """The name of a library's module whose variables are followed as those of the user's are."""

    __slots__ = ()


class UserCodeName(str):
    """A name that counts only where it occurs in users' code."""

    __slots__ = ()


@functools.lru_cache(maxsize=policy.CODE_FACTS)
def globals_of(code: types.CodeType) -> frozenset[str]:
    """Names of module variables that code, and code nested in it, reads or sets."""
    names = {
        each.argval
        for each in dis.get_instructions(code)
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL")
    }
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            names |= globals_of(each)
    return frozenset(names)


@functools.lru_cache(maxsize=policy.CODE_FACTS)
def imports_of(code: types.CodeType, package: str | None) -> tuple[str, ...]:
    """Names of the modules that code, and code nested in it, imports."""
    names: dict[str, None] = {}
    level = 0
    constants: list[Any] = []
    for each in dis.get_instructions(code):
        if each.opname.startswith("LOAD_") and "CONST" in each.opname:
            constants.append(each.argval)
        elif each.opname.startswith("LOAD_SMALL_INT"):
            constants.append(each.arg)
        elif each.opname == "IMPORT_NAME":
            level, wanted = constants[-2:]
            parts = (package or "").split(".")
            base = parts[: len(parts) - level + 1] if level else []
            whole = ".".join([*base, *([each.argval] if each.argval else [])])
            names[whole] = None
            names.update(dict.fromkeys(f"{whole}.{name}" for name in wanted or ()))
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            names.update(dict.fromkeys(imports_of(inner, package)))
    return tuple(names)


@functools.lru_cache(maxsize=policy.CODE_FACTS)
def reads_any_name(code: types.CodeType) -> bool:
    """Whether code may read attributes whose names are not among its own: `match` has them in
    patterns and classes.
    """
    return not ANY_NAME.isdisjoint(code.co_names) or any(
        each.opname == "MATCH_CLASS" for each in dis.get_instructions(code)
    )


@functools.lru_cache(maxsize=policy.CODE_FACTS)
def reads_whole(code: types.CodeType) -> bool:
    """Whether code may read any attributes by other means than the functions that are watched:
    `BY_NAME`, and methods of `super()`. One item of a `__dict__` is no such read, nor is that of
    a variable that keeps its value (`dicts_read`).
    """
    named = WHOLE.intersection(code.co_names)
    if named <= {"__dict__", "__getattribute__"}:
        ops = _operations(code)
        for k, (opname, argument, _) in enumerate(ops):
            if opname == "MATCH_CLASS":
                return True
            if opname == "LOAD_CONST":
                continue
            if argument == "__dict__" and not (
                opname == "LOAD_ATTR" and (_item(ops, k + 1) or _variable(ops, k - 1))
            ):
                return True
            if argument == "__getattribute__" and not _is_of_super(ops, k):
                return True
        return False
    return True


@functools.lru_cache(maxsize=policy.CODE_FACTS)
def items_read(code: types.CodeType) -> dict[int, str]:
    """The constant names by which code reads one item of a `__dict__`, by the offset of the
    instruction that gets the dict: an attribute, or a call that `super()` attends to.
    """
    names: dict[int, str] = {}
    if "__dict__" not in code.co_names and "__dict__" not in code.co_consts:
        return names
    ops = _operations(code)
    for k, (opname, argument, offset) in enumerate(ops):
        if argument != "__dict__":
            continue
        if opname == "LOAD_CONST":
            k += 1
            opname, count, offset = ops[k]
            if not opname.startswith("CALL") or count != 1:
                continue
        name = _item(ops, k + 1)
        if name:
            names[offset] = name
    return names


@functools.lru_cache(maxsize=policy.CODE_FACTS)
def dicts_read(code: types.CodeType) -> frozenset[str]:
    """Names of variables, which keep their values, of whose objects code reads the `__dict__`."""
    if "__dict__" not in code.co_names:
        return frozenset()
    ops = _operations(code)
    names = (
        "" if _item(ops, k + 1) else _variable(ops, k - 1)
        for k, (opname, argument, _) in enumerate(ops)
        if argument == "__dict__" and opname == "LOAD_ATTR"
    )
    return frozenset(names) - {""}


def keeps(code: types.CodeType, name: str) -> bool:
    """Whether a variable of code, or of code around it, is an argument that it never sets."""
    return name in code.co_varnames[: code.co_argcount] and not _is_set(_operations(code), name)


def _is_set(ops: Sequence[tuple[str, object, int]], name: str) -> bool:
    return any(
        ("STORE" in opname or "DELETE" in opname)
        and (name in argument if isinstance(argument, tuple) else name == argument)
        for opname, argument, _ in ops
    )


def _variable(ops: Sequence[tuple[str, object, int]], k: int) -> str:
    """The variable that an instruction loads, if no instruction sets it; '' otherwise."""
    opname, name, _ = ops[k]
    if k < 0 or opname not in _LOADS or type(name) is not str or _is_set(ops, name):
        return ""
    return name


_LOADS = ("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_DEREF")


def _operations(code: types.CodeType) -> list[tuple[str, object, int]]:
    """Instructions of code with their arguments and offsets, but for those that do nothing here."""
    return [
        (each.opname, each.argval, each.offset)
        for each in dis.get_instructions(code)
        if each.opname not in ("PRECALL", "CACHE", "NOP", "EXTENDED_ARG")
    ]


def _item(ops: Sequence[tuple[str, object, int]], k: int) -> str:
    """The constant name by which instructions read the item of a dict that is at hand: `["name"]`,
    `.get("name")` or `.get("name", constant)`; '' for all else.
    """
    is_get = ops[k][0] in ("LOAD_ATTR", "LOAD_METHOD") and ops[k][1] == "get"
    k += is_get
    opname, name, _ = ops[k]
    if opname != "LOAD_CONST" or type(name) is not str:
        return ""
    count = 1 + (is_get and ops[k + 1][0] == "LOAD_CONST")
    opname, argument, _ = ops[k + count]
    if is_get:
        return name if opname.startswith("CALL") and argument == count else ""
    is_item = opname == "BINARY_SUBSCR" or (opname == "BINARY_OP" and argument == _SUBSCRIPT)
    return name if is_item else ""


_SUBSCRIPT = next(
    (k for k, each in enumerate([each[1] for each in getattr(dis, "_nb_ops", ())]) if each == "[]"),
    -1,
)


def _is_of_super(ops: Sequence[tuple[str, object, int]], k: int) -> bool:
    """Whether an instruction gets a method of `super()`."""
    if ops[k][0].startswith("LOAD_SUPER"):
        return True
    return k > 1 and ops[k - 2][:2] == ("LOAD_GLOBAL", "super") and ops[k - 1][0].startswith("CALL")


@functools.lru_cache(maxsize=policy.CODE_FACTS)
def given_names(code: types.CodeType) -> frozenset[str]:
    """Names that code may give to what reads attributes by any name, as constants in it."""
    if not reads_any_name(code):
        return frozenset()
    return frozenset(x for x in code.co_consts if isinstance(x, str) and x.isidentifier())


@functools.lru_cache(maxsize=policy.CODE_FACTS)
def catches_errors(code: types.CodeType) -> bool:
    """Whether code may go on after an error in it."""
    counts = Counter(each.opname for each in dis.get_instructions(code))
    handlers = counts["PUSH_EXC_INFO"] + counts["SETUP_FINALLY"]  # of Python 3.11, and before
    return handlers > counts["WITH_EXCEPT_START"] or "suppress" in code.co_names


_TEXT = frozenset(
    ("str", "repr", "format", "format_map", "array2string", "array_str", "array_repr")
)


@functools.lru_cache(maxsize=policy.CODE_FACTS)
def writes_text(code: types.CodeType) -> bool:
    """Whether code of the user's may make the text of an object."""
    return is_users(code) and (
        not _TEXT.isdisjoint(code.co_names)
        or any(isinstance(each, str) and "%" in each for each in code.co_consts)
        or any(each.opname.startswith("FORMAT_") for each in dis.get_instructions(code))
    )


@functools.lru_cache(maxsize=policy.CODE_FACTS)
def set_by(code: types.CodeType) -> frozenset[str]:
    """Names of attributes that code sets."""
    return frozenset(
        each.argval for each in dis.get_instructions(code) if each.opname == "STORE_ATTR"
    )


# Code of the capture itself, which reads nothing of the user's objects that it has not registered.
_COMPILER = tuple(os.path.join(each, "compiler", "") for each in OURS)


def of_compiler(code: types.CodeType) -> bool:
    """Whether code is the compiler's."""
    return code.co_filename.startswith(_COMPILER)


class CodeNames:
    """Names in the code that ran, which tell what it may have read."""

    def __init__(
        self, any_name: bool, generated: Mapping[int, types.CodeType] | None = None
    ) -> None:
        """`any_name`: whether users' code may read names that it computes; `generated`: code that
        has no file and is no user's, by its id.
        """
        self.codes: dict[int, types.CodeType] = {}  # by id: to hash one takes its constants
        self.names: set[str] = set()
        self.users: set[str] = set()  # those in users' code
        self.everything = any_name  # whether users' code may read names that it computes
        self._generated = generated or {}
        self.whole = False  # whether code of libraries may, by other means than `BY_NAME`

    def add(self, code: types.CodeType) -> None:
        """Take over the names of code that runs."""
        self.codes[id(code)] = code
        if not of_compiler(code):
            self.names.update(code.co_names, items_read(code).values())
        if is_users(code) and id(code) not in self._generated:
            self.users.update(code.co_names, given_names(code))
            self.everything = self.everything or reads_any_name(code)

    def has(self, slot: GuardSource) -> bool:
        """Whether a slot is read even without reads by computed names."""
        needs = slot.needs
        if needs is None:
            return not self.everything or slot.kind != "dict" or slot.key in self.names
        if type(needs) is UserCodeName:
            return needs in self.users
        if type(needs) is str:
            return needs in self.names or is_implied(needs)
        return id(needs) in self.codes

    def may_compute(self, slot: GuardSource) -> bool:
        """Whether a slot is read by any code, or may be by a computed name."""
        computed = self.everything or self.whole
        return slot.needs is None or (computed and isinstance(slot.needs, str))

    def assert_none(self, renewed: Iterable[frozenset[str]]) -> None:
        """Check that no code but our own names what has been renewed.

        Errors: RetraceOnRenewal otherwise.
        """
        for names in renewed:
            if any(
                not names.isdisjoint(code.co_names) and not code.co_filename.startswith(OURS)
                for code in self.codes.values()
            ):
                raise RetraceOnRenewal(f"compile: the function names {', '.join(sorted(names))}")
