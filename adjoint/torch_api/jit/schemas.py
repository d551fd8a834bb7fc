"""Schemas of operators: `parse_schema` and its results.

Source: https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/README.md

>>> schema = ad.parse_schema("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> t")
>>> schema.name, [argument.name for argument in schema.arguments]
('aten::add', ['self', 'other', 'alpha'])
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ...core.errors import InvalidArgument
from . import types

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[A-Za-z_][\w.]*(?:::[\w.]+)?'
                    r"|[-+]?\d[\w.]*(?:[-+]\d+)?j?|->|\.\.\.|\S)")  # fmt: skip
_PLAIN = {
    "Any": types.AnyType, "AnyClassType": types.AnyType, "Device": types.DeviceObjType,
    "NoneType": types.NoneType, "None": types.NoneType, "PyObject": types.PyObjectType,
    "Scalar": types.NumberType, "Stream": types.StreamObjType, "SymBool": types.SymBoolType,
    "SymInt": types.SymIntType, "Tensor": types.TensorType, "bool": types.BoolType,
    "complex": types.ComplexType, "float": types.FloatType, "int": types.IntType,
    "number": types.NumberType, "str": types.StringType,
}  # fmt: skip
_NUMBERED = ("Layout", "MemoryFormat", "ScalarType")  # numbers, of which a schema has other names
_OF_ONE = {"Future": types.FutureType, "Await": types.AwaitType, "RRef": types.RRefType}
_WORDS = {"None": None, "True": True, "False": False, "Mean": 1, "Sum": 2, "none": 0,
          "strided": 0, "contiguous_format": 0, "long": 4}  # fmt: skip


@dataclass(frozen=True)
class AliasInfo:
    """Alias annotation of an argument: the memory it shares, and whether it is written."""

    before_set: frozenset[str]
    after_set: frozenset[str]
    is_write: bool

    def __str__(self) -> str:
        before = "|".join(sorted(self.before_set))
        after = "" if self.after_set == self.before_set else f" -> {'|'.join(self.after_set)}"
        return f"({before}{'!' if self.is_write else ''}{after})"


class Argument:
    """An argument of a schema, or one of its results: `type` as annotations say it."""

    def __init__(
        self,
        name: str,
        type: Any,
        N: int | None,  # noqa: N803 - PyTorch's name
        default_value: Any,
        kwarg_only: bool,
        alias_info: AliasInfo | None,
        *,
        has_default: bool | None = None,
        text: str | None = None,
    ) -> None:
        self.name, self.real_type, self.N = name, type, N
        self.default_value, self.kwarg_only, self.alias_info = default_value, kwarg_only, alias_info
        self._has_default = default_value is not None if has_default is None else has_default
        self._text = type.str() if text is None else text

    @property
    def type(self) -> Any:
        """The type, in which a layout, a memory format or a dtype is an int."""
        return types.IntType.get() if self.real_type.annotation_str in _NUMBERED else self.real_type

    @property
    def is_out(self) -> bool:
        """Whether the result is written into it."""
        return self.kwarg_only and self.is_write

    @property
    def is_write(self) -> bool:
        """Whether it is written into."""
        return self.alias_info is not None and self.alias_info.is_write

    def has_default_value(self) -> bool:
        """Whether it may be left out."""
        return self._has_default

    def __str__(self) -> str:
        default = f"={_shown(self.default_value, self.real_type)}" if self._has_default else ""
        return f"{self._text} {self.name}{default}" if self.name else self._text

    def _form(self) -> Any:
        return str(self), self.kwarg_only

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Argument) and self._form() == other._form()

    def __hash__(self) -> int:
        return hash(self._form())


def _shown(value: Any, kind: Any) -> str:
    """A default value as a schema has it."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_shown(each, kind) for each in value)}]"
    if isinstance(value, complex):
        return f"{value.real:g}.{value.imag:+g}.j".replace("..", ".")
    if isinstance(value, float):
        text = f"{value:.17g}"
        return text if set(text) & set(".en") else f"{text}."
    return str(value)


class FunctionSchema:
    """Name, arguments and results of an operator."""

    def __init__(
        self,
        name: str,
        overload_name: str,
        arguments: Sequence[Argument],
        returns: Sequence[Argument],
        is_vararg: bool = False,
        is_varret: bool = False,
    ) -> None:
        self.name, self.overload_name = name, overload_name
        self.arguments, self.returns = list(arguments), list(returns)
        self.is_vararg, self.is_varret = is_vararg, is_varret

    @property
    def is_mutable(self) -> bool:
        """Whether it writes into an argument."""
        return any(each.is_write for each in self.arguments)

    def __str__(self) -> str:
        parts: list[str] = []
        for place, each in enumerate(self.arguments):
            if each.kwarg_only and not (place and self.arguments[place - 1].kwarg_only):
                parts.append("*")
            parts.append(str(each))
        parts += ["..."] * self.is_vararg
        results = [str(each) for each in self.returns] + ["..."] * self.is_varret
        alone = len(results) == 1
        name = f"{self.name}.{self.overload_name}" if self.overload_name else self.name
        result = results[0] if alone else f"({', '.join(results)})"
        return f"{name}({', '.join(parts)}) -> {result}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionSchema) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def is_backward_compatible_with(self, old: FunctionSchema) -> bool:
        """Whether each call of the schema `old` is one of this: the same arguments, in their
        order, of types at least as wide; more of them only with defaults.
        """
        if (self.name, self.overload_name) != (old.name, old.overload_name):
            return False
        if len(self.returns) != len(old.returns) or len(self.arguments) < len(old.arguments):
            return False
        results = zip(self.returns, old.returns, strict=True)
        if not all(new.type.isSubtypeOf(was.type) for new, was in results):
            return False
        mine = {each.name: each for each in self.arguments}
        ordered = [each.name for each in self.arguments if not each.kwarg_only]
        for place, was in enumerate(each for each in old.arguments if not each.kwarg_only):
            if place >= len(ordered) or ordered[place] != was.name:
                return False
        for was in old.arguments:
            new = mine.pop(was.name, None)
            if new is None or not was.type.isSubtypeOf(new.type):
                return False
            if was.has_default_value() and new.default_value != was.default_value:
                return False
        return all(each.has_default_value() for each in mine.values())


def parse_schema(schema: str, allow_typevars: bool = True) -> FunctionSchema:
    """A schema taken apart: "name.overload(Type argument=default, *, ...) -> Type".

    Errors: InvalidArgument where the text is none.

    >>> str(ad.parse_schema("f(int[2] x=[1,2]) -> (Tensor, int)"))
    'f(int[2] x=[1, 2]) -> (Tensor, int)'
    """
    return _SchemaReader(schema).schema()


class _SchemaReader:
    """Parser of a schema's text, word by word."""

    def __init__(self, text: str) -> None:
        self.text, self.place = text, 0

    def fail(self, expected: str) -> NoReturn:
        raise InvalidArgument(
            f"parse_schema: expected {expected} but found {self.peek() or 'eof'!r} here: "
            f"{self.text}\n{' ' * self.place}~ <--- HERE"
        )

    def peek(self) -> str:
        found = _TOKEN.match(self.text, self.place)
        return found.group(1) if found else ""

    def next(self) -> str:
        found = _TOKEN.match(self.text, self.place)
        if found is None:
            self.fail("more")
        self.place = found.end()
        return found.group(1)

    def takes(self, word: str) -> bool:
        """Read a word if it comes next."""
        found = self.peek() == word
        if found:
            self.next()
        return found

    def expect(self, word: str) -> None:
        if not self.takes(word):
            self.fail(repr(word))

    def schema(self) -> FunctionSchema:
        """Reads the whole schema."""
        if not re.match(r"[A-Za-z_]", self.peek()):
            self.fail("ident")
        name, _, overload = self.next().partition(".")
        self.expect("(")
        arguments, vararg = self.arguments(")", True)
        self.expect("->")
        returns: list[Argument] = []
        varret = False
        if self.takes("..."):
            varret = True
        elif self.takes("("):
            returns, varret = self.arguments(")", False)
        else:
            returns = [self.argument(False, False)]
        if self.peek():
            self.fail("the end")
        return FunctionSchema(name, overload, arguments, returns, vararg, varret)

    def arguments(self, end: str, named: bool) -> tuple[list[Argument], bool]:
        """Reads the arguments up to a bracket; also tells whether any more may follow."""
        found: list[Argument] = []
        by_name = more = False
        while not self.takes(end):
            if (found or by_name or more) and not (by_name and not found):
                self.expect(",")
            if self.takes("..."):
                more = True
            elif named and self.takes("*"):
                by_name = True
                self.expect(",")
                found.append(self.argument(named, True))
            else:
                found.append(self.argument(named, by_name))
                if found[-1].has_default_value() or by_name or not named:
                    continue
                if any(each.has_default_value() for each in found):
                    raise InvalidArgument(
                        f"parse_schema: {found[-1].name} has no default, but one before it has: "
                        f"{self.text}"
                    )
        return found, more

    def argument(self, named: bool, by_name: bool) -> Argument:
        begin = self.place
        kind, count, alias = self.kind()
        text = self.text[begin : self.place].strip()
        name = ""
        if re.match(r"[A-Za-z_]", self.peek()):
            name = self.next()
        elif named:
            self.fail("ident")
        has = self.takes("=")
        value = self.default(kind) if has else None
        text = re.sub(r"\s*->\s*", " -> ", re.sub(r"\s*,\s*", ", ", text))
        return Argument(name, kind, count, value, by_name, alias, has_default=has, text=text)

    def kind(self) -> tuple[Any, int | None, AliasInfo | None]:
        """Reads a type, the size of its list, and its alias annotation."""
        alias = None
        if self.takes("("):
            parts, _ = self.arguments(")", False)
            kind: Any = types.TupleType([each.real_type for each in parts])
        else:
            word = self.next()
            kind = self.named(word)
            if word == "Tensor" and self.takes("("):
                alias = self.alias()
        count = None
        while self.peek() in ("[", "?"):
            if self.next() == "?":
                kind = types.OptionalType(kind)
                continue
            if self.peek() != "]":
                count = int(self.next())
            self.expect("]")
            kind = types.ListType(kind)
            if self.peek() == "(":
                self.next()
                alias = self.alias()
        return kind, count, alias

    def named(self, word: str) -> Any:
        if word in _PLAIN:
            return _PLAIN[word].get()
        if word in _OF_ONE or word == "Dict":
            self.expect("(")
            members = [self.kind()[0]]
            while self.takes(","):
                members.append(self.kind()[0])
            self.expect(")")
            return types.DictType(*members) if word == "Dict" else _OF_ONE[word](*members)
        if word in (*_NUMBERED, "Generator", "Storage", "QScheme", "DeviceIndex", "Quantizer"):
            return types.Opaque(word)
        if re.fullmatch(r"[a-z]\w*", word):
            return types.Opaque(word)  # stands for any type
        return self.fail(f"a type, not {word},")

    def alias(self) -> AliasInfo:
        """Reads the alias annotation in the brackets behind Tensor."""
        sets: list[set[str]] = [set()]
        writes = False
        while not self.takes(")"):
            word = self.next()
            if word == "!":
                writes = True
            elif word == "->":
                sets.append(set())
            elif word != "|":
                sets[-1].add(word)
        return AliasInfo(frozenset(sets[0]), frozenset(sets[-1]), writes)

    def default(self, kind: Any) -> Any:
        word = self.next()
        if word == "[":
            found = []
            while not self.takes("]"):
                found.append(self.default(kind))
                self.takes(",")
            return found
        if word in _WORDS:
            return _WORDS[word]
        try:
            value = ast.literal_eval(word.removeprefix("+"))
        except (ValueError, SyntaxError):
            self.fail(f"a default value, not {word},")
        return float(value) if isinstance(kind, types.FloatType) else value
