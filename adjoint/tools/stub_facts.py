"""Facts for `.pyi` files: what files of the package say, and how its functions are declared."""

from __future__ import annotations

import ast
import copy
import functools
import importlib
import importlib.util
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..core.faces import NAME
from ..core.tensor_base import TensorBase
from ..runtime.public import FUNCTIONS, METHODS

ROOT = Path(__file__).resolve().parent.parent


# ---- what files say ------------------------------------------------------------------------------


@functools.cache
def tree_of(file: str) -> ast.Module:
    """The parsed text of a Python file."""
    return ast.parse(Path(file).read_text())


def path_of(module: types.ModuleType) -> str:
    """The dotted name by which a checker finds a module, whose own name may be a face."""
    file = Path(module.__file__ or "").resolve()
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def names_of(module: str) -> dict[str, tuple[str, str]]:
    """Where each name that a module's file binds comes from: a module and a name in it, which is
    empty for a module itself. Imports for checkers only are among them.
    """
    loaded = importlib.import_module(module)
    file = loaded.__file__ or ""
    place = path_of(loaded)
    package = place if file.endswith("__init__.py") else place.rpartition(".")[0]
    names: dict[str, tuple[str, str]] = {}
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.ImportFrom):
            source = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            for each in node.names:
                names[each.asname or each.name] = origin(source, each.name)
        elif isinstance(node, ast.Import):
            for each in node.names:
                if each.asname or "." not in each.name:
                    names[each.asname or each.name] = (each.name, "")
    for statement in statements(tree_of(file).body):
        for name in bound(statement):
            names[name] = (place, name)
    return names


def origin(source: str, name: str) -> tuple[str, str]:
    """A name of a module, or a module: the one that `from source import name` gives."""
    file = ROOT.parent / source.replace(".", "/") / f"{name}.py"
    is_module = file.exists() or (file.with_suffix("") / "__init__.py").exists()
    return (f"{source}.{name}", "") if is_module and source.startswith(NAME) else (source, name)


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those below `if` and `try` among them."""
    for statement in body:
        yield statement
        for part in ("body", "orelse"):
            if isinstance(statement, (ast.If, ast.Try)):
                yield from statements(getattr(statement, part))


def bound(statement: ast.stmt) -> list[str]:
    """Names that a statement binds, but for imports."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    return [
        each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)
    ]


@functools.cache
def defined(module: str) -> dict[str, list[ast.FunctionDef | ast.ClassDef]]:
    """The statements that define functions and classes of a module's file, by their names."""
    kept: dict[str, list[ast.FunctionDef | ast.ClassDef]] = {}
    for statement in statements(tree_of(importlib.import_module(module).__file__ or "").body):
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            kept.setdefault(statement.name, []).append(statement)
    return kept


class Written(str):
    """An annotation that is written in a stub's own names."""


def home(function: Callable[..., Any]) -> str:
    """The module in whose file a function's annotations stand."""
    inner = innermost(function)
    place = getattr(inner, "__globals__", {}).get("__name__") or inner.__module__
    return path_of(sys.modules[place])


def is_ours(value: object) -> bool:
    """Whether a value is no other library's module, function or class, which ours use."""
    if isinstance(value, types.ModuleType):
        return f"{value.__name__}.".startswith(f"{NAME}.")
    made = isinstance(value, type) or hasattr(value, "__code__")
    return not made or f"{value.__module__}.".startswith(f"{NAME}.")


def innermost(function: Callable[..., Any]) -> Any:
    """The function that declarations have been put around."""
    return inspect.unwrap(function)


def is_operator(function: Callable[..., Any]) -> bool:
    """Whether a function is made of one op of one or two inputs (`runtime/op_functions.py`)."""
    return innermost(function).__code__.co_name == "operator"


def overloads(function: Callable[..., Any]) -> list[inspect.Signature]:
    """The signatures that a function's file declares before it."""
    inner = innermost(function)
    kept = []
    for each in defined(home(function)).get(inner.__name__, []):
        if any(ast.unparse(one) == "overload" for one in each.decorator_list):
            text = ast.unparse(ast.fix_missing_locations(Bare().visit(copy.deepcopy(each))))
            names: dict[str, Any] = {}
            exec(f"from __future__ import annotations\n{text}", names)
            kept.append(inspect.signature(names[inner.__name__]))
    return kept


class Bare(ast.NodeTransformer):
    """Takes the decorators of a function away."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """The function alone."""
        node.decorator_list = []
        return node


def has_out(function: Any) -> bool:
    """Whether a declaration has given a function the keyword `out`."""
    while function.__code__.co_name != "writing_out" and hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function.__code__.co_name == "writing_out"


def is_checking(function: Callable[..., Any]) -> bool:
    """Whether a function only checks, so that what its body returns is not what a call does."""
    statements_of = defined(home(function)).get(innermost(function).__name__, [])
    return any(ast.unparse(one) in ("checking", "writing") for each in statements_of
               for one in each.decorator_list)  # fmt: skip


def takes_numpy_names(function: Callable[..., Any]) -> bool:
    """Whether a declaration lets a function take `axis` for `dim`."""
    return innermost(function) in _DECLARED or has_out(function)


_DECLARED = {innermost(function) for function in (*FUNCTIONS.values(), *METHODS.values())}
# Functions that give back the function that they are given, or what behaves as it does.
GIVEN_BACK = {(f"{NAME}.compiler.function", "compile"), (f"{NAME}.compiler", "disable")}
# Generic classes of which a module has objects, and the arguments of each.
GENERIC = {"ContextVar": "{}", "Pattern": "{}", "dict": "{}, {}", "frozenset": "{}", "list": "{}",
           "set": "{}", "tuple": "{}, ..."}  # fmt: skip
NUMPY_NAMES = {"dim": "axis", "keepdim": "keepdims"}


def place_of(value: object) -> tuple[str, str] | None:
    """Where a class stands, or a function that is declared plainly, for a checker; None where a
    file does not say it.
    """
    name = getattr(value, "__qualname__", "")
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    if module is None or "." in name or not isinstance(value, (type, *FUNCTION_TYPES)):
        return None
    if not (module.__name__ + ".").startswith(f"{NAME}."):
        return (module.__name__, name) if isinstance(value, type) else None
    place = path_of(module)
    statements_of = defined(place).get(name, [])
    if vars(module).get(name) is not value or not statements_of:
        return None
    if isinstance(value, type):
        return place, name
    if (place, name) in GIVEN_BACK:
        return None
    for each in statements_of:
        declared = [ast.unparse(one).partition("(")[0] for one in each.decorator_list]
        if set(declared) - PLAIN:
            return None
    return place, name


FUNCTION_TYPES = (types.FunctionType, type(TensorBase.__init_subclass__))
PLAIN = {"naming", "overload", "typing.overload", "contextlib.contextmanager", "contextmanager"}


def public_names(module: types.ModuleType) -> list[str]:
    """Names that users read of a module."""
    said = getattr(module, "__all__", None)
    names = dir(module) if said is None or hasattr(module, "__getattr__") else said
    return sorted({name for name in names if not name.startswith("_")} | set(said or ())
                  | ({"__version__"} & set(dir(module))))  # fmt: skip
