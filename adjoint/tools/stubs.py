"""Writes what type checkers read of an installed package: `.pyi` files of its public modules.

    python -m adjoint.tools.stubs FOLDER    into a copy of the package; setup.py does so for wheels

Public functions are made by declarations (`@public`, `unary(...)`), methods are attached to Tensor,
and what few programs need is imported at its first use. Checkers cannot follow that, so these files
say what there is once all has run: signatures as `inspect` has them, with the annotations of the
code. Classes, and functions that are declared plainly, are imported from where they stand.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..core.checked_modules import NamedAsItsClass
from ..core.faces import FACES, NAME, PACKAGES
from ..core.tensor_base import TensorBase
from .stub_facts import (
    GENERIC,
    GIVEN_BACK,
    NUMPY_NAMES,
    ROOT,
    Written,
    has_out,
    home,
    innermost,
    is_checking,
    is_operator,
    is_ours,
    names_of,
    overloads,
    path_of,
    place_of,
    public_names,
    takes_numpy_names,
)

TENSOR = (f"{NAME}.core.tensor_type", "Tensor")
ANY = ("typing", "Any")
CALLABLE = ("collections.abc", "Callable")
NUMBER = ("builtins", "complex")  # type checkers take int and float, and so bool, for complex
COMPILE = (f"{NAME}.compiler.function", "compile")
BOUND = f"{NAME}.compiler.bound"
CONSTANTS = (bool, int, float, str)

# Methods that Python calls, by what they take beside the tensor.
WITH_OTHER = frozenset((
    "add", "and", "div", "floordiv", "ge", "gt", "iadd", "iand", "ifloordiv", "ilshift", "imod",
    "imul", "ior", "ipow", "irshift", "isub", "itruediv", "ixor", "le", "lshift", "lt", "matmul",
    "mod", "mul", "or", "pow", "radd", "rand", "rdiv", "rfloordiv", "rlshift", "rmatmul", "rmod",
    "rmul", "ror", "rpow", "rrshift", "rshift", "rsub", "rtruediv", "rxor", "sub", "truediv", "xor",
))  # fmt: skip
ALONE = frozenset(("abs", "invert", "neg", "pos"))
# Names of an attribute that a checker has from `object`, or that only the package itself uses.
NOT_SHOWN = {"__dict__", "__doc__", "__module__", "__slots__", "__weakref__", "__getattr__",
             "__annotations__", "__orig_bases__", "__parameters__", "__hash__", "__eq__", "__ne__",
             "__firstlineno__", "__static_attributes__"}  # fmt: skip


# ---- one stub ------------------------------------------------------------------------------------


class Stub:
    """The text of one file, with what it imports under names of its own."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.imports: dict[tuple[str, str], str] = {}
        self.lines: list[str] = []
        self.made = ""
        self.unknown: list[str] = []  # names whose type is not known

    def use(self, module: str, name: str) -> str:
        """How this file calls a name of a module, or a module if the name is empty."""
        if (module, name) == (f"{NAME}.tensor", "Tensor"):
            module, name = TENSOR
        known = self.imports.get((module, name))
        if known is None:
            short = (name or module.rpartition(".")[2]).lstrip("_")
            taken = set(self.imports.values())
            known = next(n for n in (f"_{short}{i or ''}" for i in range(99)) if n not in taken)
            self.imports[module, name] = known
        return known

    def text(self) -> str:
        """The whole file."""
        head = []
        for (module, name), alias in sorted(self.imports.items()):
            if alias == "Tensor":  # which this file defines
                continue
            if name:
                head.append(f"from {module} import {name} as {alias}")
            else:
                head.append(f"import {module} as {alias}")
        return "\n".join(("# Written by adjoint.tools.stubs.", *head, "", *self.lines, ""))

    # ---- types -----------------------------------------------------------------------------------

    def annotation(self, said: Any, module: str) -> str:
        """An annotation of a function that stands in a module, by this file's names."""
        if said is inspect.Parameter.empty:
            return self.use(*ANY)
        if isinstance(said, Written):
            return str(said)
        if said is None or said is type(None):
            return "None"
        if isinstance(said, type):
            arguments = GENERIC.get(said.__name__, "").replace("{}", self.use(*ANY))
            return self.of_class(said) + f"[{arguments}]" * bool(arguments)
        text = said if isinstance(said, str) else repr(said)
        try:
            tree = ast.parse(text, mode="eval")
            return ast.unparse(Renamed(self, module).visit(tree))
        except (SyntaxError, KeyError):
            self.unknown.append(f"{module}: {text}")
            return self.use(*ANY)

    def of_class(self, kind: type) -> str:
        """A class, by this file's names."""
        if kind.__module__ == "builtins" and hasattr(builtins, kind.__name__):
            return self.use("builtins", kind.__name__)
        if issubclass(kind, TensorBase) and kind.__name__ == "Tensor":
            return self.use(*TENSOR)
        place = place_of(kind)
        return self.use(*place) if place else self.use(*ANY)

    # ---- functions -------------------------------------------------------------------------------

    def function(
        self, name: str, function: Callable[..., Any], indent: str = "", method: bool = False
    ) -> None:
        """Add the definition of a function, or of a method."""
        module = home(function)
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            self.unknown.append(name)
            self.lines.append(f"{indent}{name}: {self.use(*ANY)}")
            return
        said = overloads(function)
        place = (module, innermost(function).__name__)
        if place in GIVEN_BACK:
            (self.compiler if place == COMPILE else self.giver)(name, signature, module)
            return
        many = len(said) > 0
        for each in said or [signature]:
            self.definition(name, function, each, indent, method, many)

    def compiler(self, name: str, signature: inspect.Signature, module: str) -> None:
        """Add `compile`: what it returns is called as what it is given, and has attributes of its
        own.
        """
        first, *others = signature.parameters.values()
        overload, rest = f"@{self.use('typing', 'overload')}", self.parameters(others, module)
        given = "[" + ", ".join(self.use(BOUND, each) for each in "PR") + "]"
        for taken, kind in ((self.use(BOUND, "ModuleLike"), "CompiledModule"),
                            (self.use(*CALLABLE), "CompiledFunction")):  # fmt: skip
            result = f"{self.use(COMPILE[0], kind)}{given}"
            said = f"{first.name}: {taken}{given}, {rest}"
            self.lines += [overload, f"def {name}({said}) -> {result}: ..."]
        self.lines += [overload, f"def {name}({first.name}: None = None, {rest}) -> "
                                 f"{self.use(BOUND, 'Compiler')}: ..."]  # fmt: skip

    def giver(self, name: str, signature: inspect.Signature, module: str) -> None:
        """Add a function that gives back what it is given, or a decorator."""
        first, *others = signature.parameters.values()
        kind = self.use("typing", "TypeVar")
        self.lines.append(f'_F_{name} = {kind}("_F_{name}", bound={self.use(*CALLABLE)}[..., '
                          f"{self.use(*ANY)}])")  # fmt: skip
        overload, rest = f"@{self.use('typing', 'overload')}", self.parameters(others, module)
        given = self.use(*CALLABLE)
        self.lines += [
            overload, f"def {name}({first.name}: _F_{name}, {rest}) -> _F_{name}: ...",
            overload, f"def {name}({first.name}: None = None, {rest}) -> "
                      f"{given}[[_F_{name}], _F_{name}]: ...",
        ]  # fmt: skip

    def definition(
        self,
        name: str,
        function: Callable[..., Any],
        signature: inspect.Signature,
        indent: str,
        method: bool,
        many: bool,
    ) -> None:
        """Add a definition with a signature, one of `many` or alone."""
        module = home(function)
        parameters = list(signature.parameters.values())
        returns = self.returned(name, function, signature, module)
        if is_operator(function):
            parameters = self.operands(parameters)
        elif has_out(function) and "out" not in signature.parameters:
            out = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None,
                                    annotation=self.out(returns))  # fmt: skip
            rest = [each for each in parameters if each.kind is each.VAR_KEYWORD]
            parameters = [each for each in parameters if each.kind is not each.VAR_KEYWORD]
            parameters += [out, *rest]
        if method:
            first = parameters[0] if parameters else None
            own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
            is_bound = first is not None and first.kind is not first.VAR_POSITIONAL
            parameters = [own, *parameters[is_bound:]]
        variants = [parameters]
        names = [each.name for each in parameters]
        if "dim" in names and "axis" not in names and takes_numpy_names(function):
            variants.append([
                each.replace(name=NUMPY_NAMES.get(each.name, each.name), kind=(
                    each.KEYWORD_ONLY if each.name in NUMPY_NAMES else each.kind))
                for each in sorted(parameters, key=lambda each: each.name in NUMPY_NAMES
                                   or each.kind is each.KEYWORD_ONLY)
            ])  # fmt: skip
        for each in variants:
            if many or len(variants) > 1:
                self.lines.append(f"{indent}@{self.use('typing', 'overload')}")
            said = self.parameters(each, module)
            self.lines.append(f"{indent}def {name}({said}) -> {returns}: ...")

    def returned(
        self, name: str, function: Callable[..., Any], signature: inspect.Signature, module: str
    ) -> str:
        """The type of what a function returns."""
        tensor = self.use(*TENSOR)
        if name == "__new__":
            return "Tensor"
        if is_operator(function) or (name.endswith("_") and not name.startswith("_")):
            return tensor
        said = signature.return_annotation
        if said == "Any" and is_checking(function):
            return tensor
        if said is inspect.Signature.empty:
            said = getattr(innermost(function), "returns", said)
        return self.annotation(said, module)

    def out(self, returns: str) -> Written:
        """The type of what a function of that result may write into."""
        tensor = self.use(*TENSOR)
        several = f"{self.use('builtins', 'tuple')}[{tensor}, ...]"
        kinds = [tensor] * (returns in (tensor, self.use(*ANY))) + [several] * (returns != tensor)
        return Written(" | ".join((*kinds, "None")))

    def operands(self, parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
        """The parameters of an op of one or two inputs."""
        tensor = Written(self.use(*TENSOR))
        either = Written(f"{tensor} | {self.use(*NUMBER)}") if len(parameters) > 2 else tensor
        kept = [each.replace(annotation=either) for each in parameters[:-1]]
        return [*kept, parameters[-1].replace(annotation=Written(f"{tensor} | None"))]

    def parameters(self, parameters: list[inspect.Parameter], module: str) -> str:
        """Parameters as a definition says them."""
        said: list[str] = []
        marked = False
        for each in parameters:
            if each.kind is each.KEYWORD_ONLY and not marked:
                said.append("*")
            marked = marked or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
            stars = (each.kind is each.VAR_POSITIONAL) + 2 * (each.kind is each.VAR_KEYWORD)
            text = "*" * stars + each.name
            if each.name != "self" or each.kind is not each.POSITIONAL_ONLY:
                text += f": {self.annotation(each.annotation, module)}"
            if each.default is not each.empty:
                plain = each.default is None or type(each.default) in (bool, int, str)
                text += f" = {each.default!r}" if plain else " = ..."
            said.append(text)
        return ", ".join(said)

    # ---- modules and classes ---------------------------------------------------------------------

    def member(self, name: str, value: object) -> None:
        """Add what a module has under a name."""
        if not is_ours(value):
            return
        if isinstance(value, types.ModuleType):
            above, _, last = path_of(value).rpartition(".")
            if callable(value) and not isinstance(value, NamedAsItsClass):  # as adjoint.export is
                given = f"*args: {self.use(*ANY)}, **kwargs: {self.use(*ANY)}"
                asked = f"name: {self.use('builtins', 'str')}"
                self.lines += [f"class _Called_{name}:",
                               f"    def __call__(self, {given}) -> None: ...",
                               f"    def __getattr__(self, {asked}) -> {self.use(*ANY)}: ...",
                               f"{name}: _Called_{name}"]  # fmt: skip
            else:
                self.lines.append(f"from {above} import {last} as {name}")
            return
        place = place_of(value)
        if place is not None and place[0] != self.module:
            self.lines.append(f"from {place[0]} import {place[1]} as {name}")
        elif callable(value) and not isinstance(value, type) and hasattr(value, "__code__"):
            self.function(name, value)
        elif isinstance(value, type):
            self.unknown.append(f"{self.module}.{name}")
            self.lines.append(f"{name}: type[{self.use(*ANY)}]")
        else:
            self.lines.append(f"{name}: {self.annotation(type(value), self.module)}")

    def module_text(self) -> str:
        """The file of a module."""
        module = importlib.import_module(self.module)
        for name in public_names(module):
            is_face = self.module == NAME and (name in FACES or name in PACKAGES)
            if is_face and not callable(sys.modules.get(f"{NAME}.{name}")):
                self.lines.append(f"from {NAME} import {name} as {name}")
                continue
            value = getattr(module, name, self)
            if value is not self:
                self.member(name, value)
        return self.text()

    def tensor_text(self) -> str:
        """The file of `Tensor`, with its attached methods."""
        from ..tensor import Tensor

        base = self.use(f"{NAME}.core.tensor_base", "TensorBase")
        handle = self.use(f"{NAME}.core.handles", "RemovableHandle")
        self.lines += [f"RemovableHandle = {handle}", f"class Tensor({base}):"]
        self.imports[TENSOR] = "Tensor"
        tensor, other = "Tensor", f"Tensor | {self.use(*NUMBER)}"
        for name in ("eq", "ne"):
            self.lines.append(f"    def __{name}__(self, other: {self.use('builtins', 'object')})"
                              f" -> {tensor}: ...")  # fmt: skip
        for name, value in sorted(vars(Tensor).items()):
            short = name.strip("_")
            if name in NOT_SHOWN:
                continue
            if name == f"__{short}__" and short in WITH_OTHER:
                self.lines.append(f"    def {name}(self, other: {other}) -> {tensor}: ...")
            elif name == f"__{short}__" and short in ALONE:
                self.lines.append(f"    def {name}(self) -> {tensor}: ...")
            else:
                self.attribute(Tensor, name, value)
        # `==` gives a tensor, where that of any object gives a bool
        return f'# mypy: disable-error-code="override"\n{self.text()}'

    def attribute(self, owner: type, name: str, value: Any) -> None:
        """Add what a class has under a name."""
        indent = "    "
        if isinstance(value, property):
            self.property(name, value)
        elif isinstance(value, (classmethod, staticmethod)):
            self.lines.append(f"{indent}@{self.use('builtins', type(value).__name__)}")
            self.function(name, value.__func__, indent, method=isinstance(value, classmethod))
        elif hasattr(value, "__code__") or hasattr(value, "__get__"):
            bound = value if hasattr(value, "__code__") else value.__get__(None, owner)
            if callable(bound):
                self.function(name, bound, indent, method=name != "__new__")
        else:
            self.lines.append(f"{indent}{name}: {self.annotation(type(value), self.module)}")

    def property(self, name: str, value: property) -> None:
        """Add a property, with what sets it."""
        getter: Any = value.fget
        said = getattr(getter, "__annotations__", {}).get("return", inspect.Signature.empty)
        kind = self.annotation(said, home(getter))
        self.lines += [f"    @{self.use('builtins', 'property')}",
                       f"    def {name}(self) -> {kind}: ..."]  # fmt: skip
        if value.fset is not None:
            self.lines += [f"    @{name}.setter",
                           f"    def {name}(self, value: {kind}) -> None: ..."]  # fmt: skip
        if value.fdel is not None:
            self.lines += [f"    @{name}.deleter", f"    def {name}(self) -> None: ..."]


class Renamed(ast.NodeTransformer):
    """Puts a file's own names for what an annotation names."""

    def __init__(self, stub: Stub, module: str) -> None:
        self.stub, self.names = stub, names_of(module)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A name of the module, or a builtin."""
        if node.id in self.names:
            place = self.names[node.id]
        elif hasattr(builtins, node.id):
            place = ("builtins", node.id)
        else:
            raise KeyError(node.id)
        return ast.Name(self.stub.use(*place))

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        """An annotation within quotation marks."""
        if isinstance(node.value, str):
            return self.visit(ast.parse(node.value, mode="eval").body)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """A type with arguments in brackets; those of a Literal are values."""
        node.value = self.visit(node.value)
        if not ast.unparse(node.value).startswith("_Literal"):
            node.slice = self.visit(node.slice)
        return node


# ---- all stubs -----------------------------------------------------------------------------------


def modules() -> list[str]:
    """Modules whose files do not say what they have: packages that import at the first use, and
    modules whose functions are made by declarations. Classes stand in files of their own.
    """
    kept = {NAME}
    names = [*PACKAGES, *FACES, "nn.functional", "nn.utils", "nn.init", "utils.data"]
    for name in names:
        try:
            module = importlib.import_module(f"{NAME}.{name}")
        except ImportError:  # of a library that is not here
            continue
        path = path_of(module)
        values = [getattr(module, each, None) for each in public_names(module)]
        is_made = any(hasattr(value, "__code__") and not place_of(value) for value in values)
        classes = (value for value in vars(module).values() if isinstance(value, type))
        own = [each for each in classes if is_ours(each)
               and path_of(sys.modules[each.__module__]) == path]  # fmt: skip
        if own and hasattr(module, "__getattr__"):
            raise TypeError(f"stubs: {path} imports at the first use, and defines {own[0].__name__}"
                            "; move the class into a file of its own")  # fmt: skip
        if (hasattr(module, "__getattr__") or is_made) and not own:
            kept.add(path)
    return sorted(kept)


def stubs() -> Iterator[Stub]:
    """Each file that is written, filled."""
    for module in modules():
        stub = Stub(module)
        stub.made = stub.module_text()
        yield stub
    stub = Stub(f"{NAME}.tensor")
    stub.made = stub.tensor_text()
    yield stub


def write(package: Path) -> list[Path]:
    """Write the files into a copy of the package."""
    files = []
    for stub in stubs():
        place = package.parent / stub.module.replace(".", "/")
        is_package = (ROOT.parent / stub.module.replace(".", "/")).is_dir()
        file = place / "__init__.pyi" if is_package else place.with_suffix(".pyi")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(stub.made)
        files.append(file)
    return files


if __name__ == "__main__":
    write(Path(sys.argv[1]))
