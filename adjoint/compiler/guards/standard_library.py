"""Functions of Python's own library that read what their module keeps, and what changes there:
`threading.active_count`, `tempfile.gettempdir`, `mimetypes.guess_type`. Nobody follows these.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Iterable

from .code_names import globals_of
from .code_observer import is_standard
from .slots import PLAIN

# Modules whose variables are tables that stay, caches of results, or guarded by themselves.
_CONSTANT_MODULES = (
    "abc ast bisect calendar codecs collections contextlib copy copyreg dataclasses decimal dis "
    "enum fractions functools genericpath heapq importlib inspect itertools json keyword "
    "linecache logging math numbers opcode operator posixpath pprint re reprlib statistics string "
    "struct sysconfig textwrap token tokenize traceback types typing warnings weakref"
)
_CONSTANT = frozenset(_CONSTANT_MODULES.split())
_STAYS = (*PLAIN, tuple, frozenset, types.ModuleType)


def state_read_by(code: types.CodeType, own: dict[str, object]) -> str:
    """A variable of its module that a function of Python's library reads and that may change: one
    that is no constant, or that a function there sets. '' for none, and for other code.
    """
    module = str(own.get("__name__"))
    if not is_standard(code.co_filename) or module.partition(".")[0] in _CONSTANT:
        return ""
    names = [name for name in globals_of(code) if name in own]
    changing = {name for name in names if not callable(own[name]) and type(own[name]) not in _STAYS}
    if not changing and names:
        changing = set(names) & set_in(own)
    return f"{module}.{min(changing)}" if changing else ""


_SET: dict[str, frozenset[str]] = {}  # by the name of a module


def set_in(own: dict[str, object]) -> frozenset[str]:
    """Variables of a module that its functions set."""
    module = str(own.get("__name__"))
    if module not in _SET:
        _SET[module] = frozenset(_names_set(_codes_of(own.values(), module)))
    return _SET[module]


def _codes_of(values: Iterable[object], module: str) -> list[types.CodeType]:
    codes = []
    for x in values:
        if isinstance(x, types.FunctionType) and x.__module__ == module:
            codes.append(x.__code__)
        elif isinstance(x, type) and x.__module__ == module:
            codes += [f.__code__ for f in vars(x).values() if isinstance(f, types.FunctionType)]
    return codes


def _names_set(codes: Iterable[types.CodeType]) -> set[str]:
    names = set()
    for code in codes:
        for each in dis.get_instructions(code):
            if each.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                names.add(each.argval)
    return names
