"""The Python text of a graph, and what the names in it mean.

The text is made of the graph's nodes alone: names are identifiers that the graph checked, numbers
and strings are written down, and everything else is bound to a name. It is compiled in memory;
nothing is read from files, and no `repr` of anybody's object is evaluated.
"""

from __future__ import annotations

import builtins
import enum
import keyword
import math
import operator
import re
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ...core import config
from ...core.argument_repr import argument_repr
from ...core.dtype import dtype
from ...core.errors import InvalidArgument
from ...core.spec import Size
from ...ops.create.conversion import memory_format
from . import targets
from .node import Argument, Node

__all__ = ["CodeGen", "Namespace", "PythonCode", "type_repr"]


class PythonCode(NamedTuple):
    """Text of a function, and its globals."""

    src: str
    globals: dict[str, Any]


_GIVEN = ("inf", "nan", "NoneType", "torch", "adjoint", "device", "fx_pytree", "pytree")
_RESERVED = frozenset((*keyword.kwlist, *dir(builtins), *_GIVEN))
_ILLEGAL = re.compile(r"[^0-9a-zA-Z_]+")
_SUFFIX = re.compile(r"(.*)_(\d+)$")


class Namespace:
    """Names that are taken.

    >>> names = ad.fx.graph.Namespace()
    >>> [names.create_name(name, None) for name in ("add", "add", "x.0")]
    ['add', 'add_1', 'x_0']
    """

    __repr__ = argument_repr

    def __init__(self) -> None:
        self._owners: dict[str, Any] = {}
        self._counts: dict[str, int] = {}

    def create_name(self, candidate: str, obj: Any) -> str:
        """An identifier like `candidate` that is free, and is `obj`'s from now on."""
        if obj is not None:
            for name, owner in self._owners.items():
                if owner is obj:
                    return name
        name = _ILLEGAL.sub("_", candidate) or "_unnamed"
        if name[0].isdigit():
            name = f"_{name}"
        base, number = name, 0
        split = _SUFFIX.fullmatch(name)
        if split is not None:
            base, number = split[1], int(split[2])
            name = f"{base}_{number}"
        if not number:
            number = self._counts.get(base, 0)
        while name in self._owners or not self._is_legal(name, obj):
            number += 1
            name = f"{base}_{number}"
        self._owners[name] = obj
        self._counts[base] = number
        return name

    @staticmethod
    def _is_legal(name: str, obj: Any) -> bool:
        if name not in _RESERVED:
            return True
        return obj is not None and getattr(builtins, name, None) is obj

    def associate(self, name: str, obj: Any) -> None:
        """Associates a name with `obj`."""
        self._owners[name] = obj
        split = _SUFFIX.fullmatch(name)
        if split is not None:
            self._counts[split[1]] = max(self._counts.get(split[1], 0), int(split[2]))


def type_repr(obj: Any) -> str:
    """The name of a type in annotations."""
    if isinstance(obj, type) and not isinstance(obj, types.GenericAlias):
        name = obj.__qualname__
        if obj.__module__ == "builtins":
            return name
        if targets.is_ours(obj) or _is_top(obj):
            return f"{config.CALLED}.{name}" if _is_top(obj) else f"{obj.__module__}.{name}"
        return f"{obj.__module__}.{name}"
    if obj is ...:
        return "..."
    if isinstance(obj, types.FunctionType):
        return obj.__name__
    return repr(obj).replace("adjoint.tensor.Tensor", f"{config.CALLED}.Tensor")


def _is_top(obj: Any) -> bool:
    import adjoint

    return getattr(adjoint, getattr(obj, "__name__", ""), None) is obj


def _infix(symbol: str) -> str:
    return f"{{}} {symbol} {{}}"


_OPERATORS = {
    operator.add: _infix("+"), operator.sub: _infix("-"), operator.mul: _infix("*"),
    operator.floordiv: _infix("//"), operator.truediv: _infix("/"), operator.mod: _infix("%"),
    operator.pow: _infix("**"), operator.lshift: _infix("<<"), operator.rshift: _infix(">>"),
    operator.and_: _infix("&"), operator.or_: _infix("|"), operator.xor: _infix("^"),
    operator.matmul: _infix("@"), operator.eq: _infix("=="), operator.ne: _infix("!="),
    operator.lt: _infix("<"), operator.gt: _infix(">"), operator.le: _infix("<="),
    operator.ge: _infix(">="), operator.getitem: "{}[{}]", operator.neg: "-{}",
    operator.pos: "+{}", operator.invert: "~{}",
}  # fmt: skip
_AUGMENTED = {
    operator.iadd: "+=", operator.isub: "-=", operator.imul: "*=", operator.ifloordiv: "//=",
    operator.itruediv: "/=", operator.imod: "%=", operator.ipow: "**=", operator.ilshift: "<<=",
    operator.irshift: ">>=", operator.iand: "&=", operator.ior: "|=", operator.ixor: "^=",
    operator.imatmul: "@=",
}  # fmt: skip


def attribute_path(root: str, target: str) -> str:
    """Expression for the attribute that `target` names below `root`.

    >>> ad.fx.codegen.attribute_path("self", "layers.0.weight")
    'getattr(self.layers, "0").weight'
    """
    found = root
    for part in target.split("."):
        if part.isidentifier() and not keyword.iskeyword(part):
            found = f"{found}.{part}"
        else:
            found = f'getattr({found}, "{_quoted(part)}")'
    return found


def _quoted(text: str) -> str:
    return text.encode("unicode_escape").decode("ascii").replace('"', '\\"')


class CodeGen:
    """Generator of a graph's source text; subclasses may change the function's head and its end.

    Source: https://docs.pytorch.org/docs/stable/fx.html
    """

    __repr__ = argument_repr

    def __init__(self) -> None:
        self._body_transformer: Callable[[list[str]], list[str]] | None = None

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The line that begins the function."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        return f"def forward({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: str) -> str:
        """The function's last line; `output_args` is the text of its return value."""
        return f"return {output_args}"

    def process_inputs(self, *args: Any) -> Any:
        """The values of the placeholders, from the function's arguments."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """The function's return value, from the value of the output node."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Further globals of the code, by name."""
        return []

    def _python_code(self, nodes: Iterable[Node], root: str, verbose: bool) -> PythonCode:
        return _Writer(self, list(nodes), root, verbose).code()


class _Writer:
    """Writer of one graph's source text."""

    def __init__(self, codegen: CodeGen, nodes: list[Node], root: str, verbose: bool) -> None:
        import adjoint

        self.codegen = codegen
        self.nodes = nodes
        self.root = root
        self.verbose = verbose
        self.namespace = Namespace()
        self.free: list[str] = []
        self.wrapped: dict[str, None] = {}
        self.annotation = ""
        self.body: list[str] = []
        top: Any = adjoint
        if config.CALLED != "adjoint":
            import sys

            top = sys.modules[config.CALLED]
        self.globals: dict[str, Any] = {
            "inf": math.inf, "nan": math.nan, "NoneType": type(None), config.CALLED: top,
            "device": adjoint.device,
        }  # fmt: skip
        for name, value in codegen.additional_globals():
            self.add_global(name, value)
        for node in nodes:  # those of arguments are taken
            self.namespace.associate(node.name, node)
        self.namespace.associate("self", self)

    # ---- names and values ------------------------------------------------------------------------

    def add_global(self, hint: str, obj: Any) -> str:
        """A name by which the code finds an object."""
        if targets.is_ours(obj):
            return targets.qualified_name(obj)
        name = _ILLEGAL.sub("_", hint)
        if self.globals.get(name) is obj:
            return name
        for known, value in self.globals.items():
            if value is obj and known != config.CALLED:
                return known
        name = self.namespace.create_name(name, obj)
        self.globals[name] = obj
        return name

    def type_name(self, obj: Any) -> str:
        """The text of an annotation."""
        if obj is None or obj is type(None):
            return "NoneType" if obj is not None else ""
        if _is_top(obj):
            return f"{config.CALLED}.{obj.__name__}"
        if obj is ...:
            return self.add_global("_", obj)
        if isinstance(obj, types.UnionType):
            return "|".join(map(self.type_name, obj.__args__))
        origin, args = typing.get_origin(obj), typing.get_args(obj)
        if origin is not None and args and not any(isinstance(each, list) for each in args):
            name = getattr(obj, "_name", None) or ""
            if origin is typing.Union:
                made = self.add_global("typing_Union", typing.Union)
            elif hasattr(typing, name) and not isinstance(obj, types.GenericAlias):
                made = self.add_global(f"typing_{name}", getattr(typing, name))
            else:
                made = self.add_global(type_repr(origin), origin)
            return f"{made}[{','.join(map(self.type_name, args))}]"
        return self.add_global(type_repr(obj), obj)

    def shown(self, arg: Argument) -> str:
        """The text of an argument."""
        if isinstance(arg, Node):
            return arg.name
        if isinstance(arg, tuple) and hasattr(arg, "_fields"):
            made = self.add_global(targets.qualified_name(type(arg)), type(arg))
            return f"{made}({', '.join(map(self.shown, arg))})"
        if isinstance(arg, (tuple, Size)):
            return f"({', '.join(map(self.shown, arg))}{',' if len(arg) == 1 else ''})"
        if isinstance(arg, list):
            return f"[{', '.join(map(self.shown, arg))}]"
        if isinstance(arg, dict):
            inner = (f"{self.shown(key)}: {self.shown(value)}" for key, value in arg.items())
            return f"{{{', '.join(inner)}}}"
        if isinstance(arg, slice):
            return f"slice({', '.join(map(self.shown, (arg.start, arg.stop, arg.step)))})"
        kind = type(arg)
        if kind in (int, bool, str, bytes, range, type(None), type(...)):
            return repr(arg)
        if kind is float or (kind is complex and math.isfinite(abs(arg))):
            return repr(arg)  # inf and nan are names
        if kind is dtype or kind is memory_format:
            return f"{config.CALLED}.{arg.name}"
        if isinstance(arg, enum.Enum):
            return f"{self.add_global(type(arg).__name__, type(arg))}.{arg.name}"
        if kind is self.globals["device"]:
            return repr(arg)
        if isinstance(arg, type) or callable(arg):
            return self.add_global(targets.qualified_name(arg), arg)
        return self.add_global("_constant", arg)

    def arguments(self, args: Iterable[Argument], kwargs: dict[str, Argument]) -> str:
        """The text of a call's arguments."""
        for name in kwargs:
            if not name.isidentifier() or keyword.iskeyword(name):
                raise InvalidArgument(f"fx: {name!r} is no name of an argument")
        named = (f"{key} = {self.shown(value)}" for key, value in kwargs.items())
        return ", ".join([*map(self.shown, args), *named])

    # ---- lines -----------------------------------------------------------------------------------

    def line(self, node: Node) -> str:
        """The text of a node."""
        kind = "" if node.type is None else f" : {self.type_name(node.type)}"
        op, target, name = node.op, node.target, node.name
        if op == "placeholder":
            default = f" = {self.shown(node.args[0])}" if node.args else ""
            self.free.append(f"{target}{kind}{default}")
            raw = target.replace("*", "")
            return "" if raw == name else f"{name} = {raw}"
        if op == "output":
            if node.type is not None:
                self.annotation = f" -> {self.type_name(node.type)}"
            return self.codegen.generate_output(self.shown(node.args[0]))
        head = f"{name}{kind} = "
        if op == "get_attr":
            return head + attribute_path(self.root, target)
        if op == "call_module":
            call = self.arguments(node.args, node.kwargs)
            return f"{head}{attribute_path(self.root, target)}({call})"
        if op == "call_method":
            if not target.isidentifier() or keyword.iskeyword(target):
                raise InvalidArgument(f"fx: {target!r} is no name of a method")
            call = self.arguments(node.args[1:], node.kwargs)
            owner = self.shown(node.args[0])
            if not isinstance(node.args[0], Node):
                owner = f"({owner})"
            return f"{head}{owner}.{target}({call})"
        return self.function(node, head)

    def function(self, node: Node, head: str) -> str:
        """The text of a call of a function: an operator, where it has one."""
        target, args = node.target, node.args
        plain = not node.kwargs
        if plain and target in _OPERATORS and len(args) == _OPERATORS[target].count("{}"):
            return head + _OPERATORS[target].format(*map(self.shown, args))
        if plain and target in _AUGMENTED and len(args) == 2:
            first, second = map(self.shown, args)
            return f"{first} {_AUGMENTED[target]} {second};  {head}{first}"
        if plain and target is operator.setitem and len(args) == 3:
            first, item, value = map(self.shown, args)
            return f"{first}[{item}] = {value};  {head}{first}"
        named = plain and target is getattr and len(args) == 2 and isinstance(args[1], str)
        if named and args[1].isidentifier() and not keyword.iskeyword(args[1]):
            return f"{head}{self.shown(args[0])}.{args[1]}"
        name = self.add_global(targets.qualified_name(target), target)
        if node.meta.get("is_wrapped"):
            self.wrapped[name] = None
        return f"{head}{name}({self.arguments(args, node.kwargs)})"

    def last_uses(self) -> dict[Node, list[Node]]:
        """Nodes that are used for the last time by each node."""
        found: dict[Node, list[Node]] = {}
        seen: set[Node] = set()
        for node in reversed(self.nodes):
            for each in node._inputs:
                if each not in seen:
                    seen.add(each)
                    found.setdefault(node, []).append(each)
        return found

    def code(self) -> PythonCode:
        """The text."""
        done = self.last_uses()
        said = False
        for node in self.nodes:
            line = self.line(node)
            if self.verbose and node.op not in ("placeholder", "output"):
                if node.stack_trace:
                    last = node.stack_trace.strip().splitlines()[-2:]
                    self.body.append(f"# {', code: '.join(each.strip() for each in last)}\n")
                    said = False
                elif not said:
                    self.body.append("# No stacktrace found for following nodes\n")
                    said = True
            if node.op in ("placeholder", "output"):
                self.body.append(f"{line}\n" if line else "")
                continue
            dead = [*done.get(node, []), *([] if node.users else [node])]
            names = " = ".join(each.name for each in dead)
            self.body.append(f"{line};  {names} = None\n" if dead else f"{line}\n")
        body = [each for each in self.body if each]
        if not body:
            body = ["pass\n"]
        if self.codegen._body_transformer is not None:
            body = self.codegen._body_transformer(body)
        prologue = self.codegen.gen_fn_def(self.free, self.annotation)
        wraps = "\n".join(
            f'{config.CALLED}.fx._symbolic_trace.wrap("{name}")' for name in self.wrapped
        )
        lines = "".join(body).split("\n")
        text = "\n".join(f"    {line}" if line else "    " for line in lines)
        return PythonCode(f"\n{wraps}\n\n{prologue}\n{text}", self.globals)
