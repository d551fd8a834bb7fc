"""All that a function would be refused for, as far as its code tells.

A capture ends at its first refusal, and cannot go on: what is refused has effects, or no value yet.
So the code is read instead. From the function on, each name and attribute in users' code is looked
up, without running anything, and asked of the tables by which a capture refuses.
"""

from __future__ import annotations

import dis
import inspect
import types
from collections import deque
from collections.abc import Container, Iterator, Mapping
from typing import Any, NamedTuple

from ...core.errors import Unsupported
from ..guards.code_observer import has_effect, is_users, name_of, place_in, reader_of
from ..guards.python_state import remedy_of
from ..guards.running_code import UNFOLLOWED
from ..guards.slots import ABSENT
from ..guards.state_snapshot import StateSnapshot

_VALUES = frozenset(("item", "tolist", "numpy"))  # methods of a tensor that read its values
_OF_C = (
    types.MethodDescriptorType, types.ClassMethodDescriptorType, types.WrapperDescriptorType,
    types.MemberDescriptorType,
)  # fmt: skip
_IN_C = (types.BuiltinFunctionType, types.MethodWrapperType)
_BETWEEN = frozenset(("PUSH_NULL", "PRECALL", "CACHE", "RESUME", "NOP", "EXTENDED_ARG"))


class _Known(NamedTuple):
    """A value that code names, and the expression for it."""

    value: Any
    text: str


_UNKNOWN = _Known(ABSENT, "")


class _Function(NamedTuple):
    """Code, with what its names mean."""

    code: types.CodeType
    own: Mapping[str, Any]  # variables of its module
    built_ins: Mapping[str, Any]
    variables: dict[str, Any]  # of a closure, and its first argument


def refusals(function: object) -> list[str]:
    """Texts of what users' code would be refused for, in the order of the calls: what is touched,
    the line, and the remedy.
    """
    try:
        slots = StateSnapshot([("", function)]).slots
    except Unsupported:  # it reaches too much
        slots = []
    unfollowed = {id(slot.holder) for slot in slots if slot.kind in UNFOLLOWED}
    texts: dict[str, None] = {}
    waiting = deque(_functions(function))
    seen: set[int] = set()
    while waiting:
        each = waiting.popleft()
        if id(each.code) in seen or not is_users(each.code):
            continue
        seen.add(id(each.code))
        for known, where in _named(each):
            text = _refused(known, unfollowed)
            if text:
                what, _, remedy = text.partition("; ")
                texts[f"{what}{where}; {remedy}"] = None
            else:
                waiting.extend(_functions(known.value))
    return list(texts)


def with_others(told: str, function: object) -> str:
    """The message of a refusal, with all others of the function."""
    others = [each for each in refusals(function) if not _is_told(each, told)]
    if not others:
        return told
    listed = "".join(f"\n  {each}" for each in others)
    return f"{told}\nIts code would be refused for this, too:{listed}"


def _is_told(refusal: str, told: str) -> bool:
    """Whether a message is about what the refusal is about: it names the same line."""
    place = refusal[refusal.index(" (") : refusal.index(")", refusal.index(", in "))]
    return place in told


def _named(function: _Function) -> Iterator[tuple[_Known, str]]:
    """Values that code names: variables, and attributes of what is known, each with its line."""
    code = function.code
    stored = [each.argval for each in dis.get_instructions(code) if each.opname == "STORE_FAST"]
    variables = dict(function.variables)
    line, lines = code.co_firstlineno, dict(dis.findlinestarts(code))
    known = _UNKNOWN
    for each in dis.get_instructions(code):
        line = lines.get(each.offset) or line
        opname, name = each.opname, each.argval
        if opname in _BETWEEN:
            continue
        if opname in ("LOAD_ATTR", "LOAD_METHOD"):
            if known is _UNKNOWN and name in _VALUES:
                known = _Known(_VALUES, f"the values of a tensor, by .{name}()")
            else:
                known = _attribute(known, name)
        elif opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            value = function.own.get(name, function.built_ins.get(name, ABSENT))
            known = _UNKNOWN if value is ABSENT else _Known(value, name)
        elif opname.startswith(("LOAD_DEREF", "LOAD_FAST")) and name in variables:
            known = _Known(variables[name], name)
        elif opname == "STORE_FAST" and known is not _UNKNOWN and stored.count(name) == 1:
            variables[name], known = known.value, _UNKNOWN
        else:
            known = _UNKNOWN
        if known is not _UNKNOWN:
            yield known, place_in(code, line)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _named(function._replace(code=inner, variables=variables))


def _attribute(of: _Known, name: str) -> _Known:
    """An attribute, looked up without running code of the user's."""
    x, text = of.value, f"{of.text}.{name}"
    if of is _UNKNOWN or x is _VALUES:
        return _UNKNOWN
    for registry in ("_modules", "_parameters", "_buffers"):
        held = getattr(x, "__dict__", {}).get(registry)
        if type(held) is dict and name in held:
            return _Known(held[name], text)
    value = inspect.getattr_static(x, name, ABSENT)
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__ if isinstance(value, staticmethod) else value.__get__(None, type(x))
    elif isinstance(value, types.FunctionType) and not isinstance(x, (type, types.ModuleType)):
        value = types.MethodType(value, x) if name not in getattr(x, "__dict__", {}) else value
    elif isinstance(value, property) and value.fget is not None:
        value = types.MethodType(value.fget, x)
    elif isinstance(value, _OF_C):
        try:
            value = value.__get__(x, type(x))
        except AttributeError:  # an empty slot
            return _UNKNOWN
    return _UNKNOWN if value is ABSENT else _Known(value, text)


def _functions(x: Any) -> Iterator[_Function]:
    """The functions of the user's that run where an object is called."""
    if isinstance(x, types.MethodType):
        for each in _functions(x.__func__):
            first = each.code.co_varnames[:1]
            yield each._replace(variables={**each.variables, **dict.fromkeys(first, x.__self__)})
    elif isinstance(x, types.FunctionType):
        cells = zip(x.__code__.co_freevars, x.__closure__ or (), strict=True)
        variables = {name: _content(cell) for name, cell in cells}
        variables = {name: value for name, value in variables.items() if value is not ABSENT}
        built_ins: Any = getattr(x, "__builtins__", {})
        yield _Function(x.__code__, x.__globals__, built_ins, variables)
    elif isinstance(x, type):
        for name in ("__new__", "__init__"):
            yield from _functions(inspect.getattr_static(x, name, None))
    elif hasattr(type(x), "__call__"):  # noqa: B004 - whether the class has it, not whether it may
        for name in ("forward", "__call__"):
            method = inspect.getattr_static(type(x), name, None)
            if isinstance(method, types.FunctionType):
                yield from _functions(types.MethodType(method, x))
        for each in (getattr(x, "__dict__", {}).get("_modules") or {}).values():
            yield from _functions(each)
        wrapped = getattr(x, "__dict__", {}).get("__wrapped__")
        if wrapped is not None:
            yield from _functions(wrapped)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


def _refused(known: _Known, unfollowed: Container[int]) -> str:
    """Reason why what code names would be refused, and the remedy; '' where it would not."""
    x, text = known
    if x is _VALUES:
        return f"may read {text}; compute with tensors, or read it outside of the function"
    if isinstance(x, _IN_C):
        is_written_down = name_of(x) == "_warnings.warn" and "." in text  # see `WarningLog`
        name = "" if is_written_down or not has_effect(x, x.__self__) else f"{name_of(x)}()"
    else:
        name = reader_of(x)
    if name:
        return f"may call {name}, of which a program knows nothing; {remedy_of(x)}"
    if id(x) in unfollowed:
        kind = type(x).__qualname__
        return f"may read {text}, of the type {kind}, which is not followed; {remedy_of(x)}"
    return ""
