"""What each file of the house says, from its text alone: what tools/house.py counts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

# Items of a file: [line, text] pairs, in lists by their kind, as JSON has them.
Items = list[list[Any]]
Facts = dict[str, Items]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def facts_of_module(path: str, text: str) -> Facts:
    """What the counts need to know of a Python file of the package."""
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    return {
        "lines": [[1, text.count("\n")]],
        "imports": list(imports(tree, package_of(path))),
        "functions": [[each.lineno, each.name, body_lines(each)] for each in functions],
        "classes": [[each.lineno, each.name] for each in classes],
        "tuples": [[c.lineno, c.name, len(fields(c))] for c in classes if is_named_tuple(c)],
        "docstrings": docstrings([*functions, *classes]),
        "annotations": [item for each in functions for item in annotations_of(each)],
        "aliases": [[each.lineno, name] for each in tree.body for name in aliases_of_any(each)],
        "found": [[n.lineno, n.id] for n in nodes if isinstance(n, ast.Name) and n.id == "found"],
        "ignores": [
            [number, line.strip()]
            for number, line in enumerate(text.splitlines(), 1)
            if "type: ignore" in line
        ],
        "variables": [item for each in nodes for item in context_variables(each)],
        "unguarded": list(unguarded_sets(tree.body, frozenset())),
    }


def package_of(path: str) -> list[str]:
    """The package of a file, from which its relative imports count: ["adjoint", "nn"]."""
    return list(Path(path).parent.parts)


def imports(tree: ast.AST, package: list[str], typing: bool = False) -> Iterator[list[Any]]:
    """Each name that is imported: line, its path, its module's path, whether for types only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield [node.lineno, alias.name, alias.name, typing]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield [node.lineno, f"{module}.{alias.name}", module, typing]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from imports(ast.Module(node.body, []), package, True)
            yield from imports(ast.Module(node.orelse, []), package, typing)
        else:
            yield from imports(node, package, typing)


def body_lines(function: Function) -> int:
    """Lines of a function behind its signature and its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def name_of(node: ast.AST | None) -> str:
    """The last name of a dotted one; "" where it is no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_named_tuple(node: ast.ClassDef) -> bool:
    """Whether a class is a NamedTuple."""
    return any(name_of(base) == "NamedTuple" for base in node.bases)


def fields(node: ast.ClassDef) -> list[ast.AnnAssign]:
    """Annotated names in the body of a class."""
    return [each for each in node.body if isinstance(each, ast.AnnAssign)]


def docstrings(nodes: Iterable[Function | ast.ClassDef]) -> Items:
    """The first line of each docstring."""
    texts = ((node.lineno, ast.get_docstring(node)) for node in nodes)
    return [[line, text.split("\n", 1)[0]] for line, text in texts if text]


def annotations_of(function: Function) -> Items:
    """The annotations of parameters and of the result; those without a name as ""."""
    each = function.args
    given = [p.annotation for p in (*each.posonlyargs, *each.args, *each.kwonlyargs)]
    given.append(function.returns)
    return [[node.lineno, annotation_name(node)] for node in given if node is not None]


def annotation_name(node: ast.AST) -> str:
    """The name of an annotation, without `| None`; "Any" of every other union with Any."""
    if not isinstance(node, ast.BinOp):
        return name_of(node)
    names = [annotation_name(side) for side in (node.left, node.right)]
    sides = [isinstance(side, ast.Constant) for side in (node.left, node.right)]
    return "Any" if "Any" in names else "".join(names) if any(sides) else ""


def aliases_of_any(node: ast.stmt) -> list[str]:
    """Names that a statement at a module's top makes other names of Any."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or name_of(node.value) != "Any":
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [name for name in map(name_of, targets) if name]


def context_variables(node: ast.AST) -> Items:
    """Names that a statement assigns a ContextVar to."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Call):
        return []
    if name_of(node.value.func) != "ContextVar":
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [[node.lineno, name] for name in map(name_of, targets) if name]


def unguarded_sets(body: Iterable[ast.AST], guarded: frozenset[str]) -> Iterator[list[Any]]:
    """Calls `name.set(...)` that are statements, or whose token is assigned, outside of a `try`
    whose `finally` sets or resets the same name: a signal between the two leaves it set.

    What gives back is no such call: a `finally`, an `__exit__`.
    """
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            if getattr(node, "name", "") not in ("__exit__", "__aexit__"):
                yield from unguarded_sets(ast.iter_child_nodes(node), frozenset())
        elif isinstance(node, ast.Try):
            names = guarded | {name for each in node.finalbody for name in given_back(each)}
            inside = (*node.body, *node.handlers, *node.orelse)
            yield from unguarded_sets(inside, names)
        else:
            name = set_by(node)
            if name and name not in guarded:
                yield [getattr(node, "lineno", 0), name]
            yield from unguarded_sets(ast.iter_child_nodes(node), guarded)


def set_by(node: ast.AST) -> str:
    """The name whose `set` a statement calls, or ""."""
    if not isinstance(node, ast.Expr | ast.Assign | ast.AnnAssign):
        return ""
    call = node.value
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        return name_of(call.func.value) if call.func.attr == "set" else ""
    return ""


def given_back(node: ast.AST) -> Iterator[str]:
    """Names whose `set` or `reset` is read anywhere within."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and each.attr in ("set", "reset"):
            yield name_of(each.value)


def facts_of_page(page: str) -> Facts:
    """Words of each paragraph of a page, without code, tables and headings; an item of a list is
    a paragraph.
    """
    paragraphs: Items = []
    code, words = False, 0
    for number, line in enumerate(page.splitlines(), 1):
        line = line.strip()
        fence = line.startswith(("```", "~~~"))
        code ^= fence
        if code or fence or not line or line.startswith(("|", "#")):
            words = 0
            continue
        text = re.sub(r"^([-*+]|\d+[.)]) +", "", line)
        if words == 0 or text != line:
            paragraphs.append([number, 0])
            words = 0
        words += len(text.split())
        paragraphs[-1][1] = words
    return {"paragraphs": paragraphs}
