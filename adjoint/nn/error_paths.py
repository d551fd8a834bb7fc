"""Paths of modules: an error says in which layer of a model it was met."""

from __future__ import annotations

import sys
from typing import Any

from ..core.errors import AdjointError, InvalidType, Unsupported

__all__ = ["locate", "path_within", "paths_below"]

_COMPILED = "_orig_mod."  # what is in place of a module that is compiled


def locate(error: AdjointError, module: Any) -> None:
    """Begin the message of an error, which `module` meets in its call, with its path within the
    outermost module whose call runs: "in blocks.3.fc: ...". What an inner module has begun stays,
    as do refusals (Unsupported), which say the user's line.
    """
    if error.module or isinstance(error, Unsupported) or len(error.args) != 1:
        return
    if isinstance(error, InvalidType) and not str(error).startswith(f"{type(module).__name__}: "):
        return  # it names what was called around this module, with its argument
    for root in _calling(module):
        path = path_within(root, module)
        if path:
            error.module = path.removeprefix(_COMPILED)
            error.args = (f"in {error.module}: {error.args[0]}",)
            return


def _calling(module: Any) -> list[Any]:
    """The modules whose calls run in this thread, the outermost first."""
    here = sys._getframe(2)  # Module.__call__, which has called `locate`
    call, frame = here.f_code, here.f_back  # f_locals of `here` would hold the error: a cycle
    roots = [module]
    while frame is not None:
        if frame.f_code is call:
            roots.append(frame.f_locals["self"])
        frame = frame.f_back
    return roots[::-1]


def path_within(root: Any, module: Any) -> str:
    """The path of a module below another; empty where it is not below it."""
    return paths_below(root).get(id(module), "")


def paths_below(root: Any) -> dict[int, str]:
    """The paths of a module and all below it, by their ids; the first of several paths."""
    paths: dict[int, str] = {}
    stack = [("", root)]
    while stack:
        path, each = stack.pop()
        if id(each) in paths:
            continue
        paths[id(each)] = path
        children = each.__dict__.get("_modules") or {}
        for name, child in reversed(children.items()):
            if child is not None:
                stack.append((f"{path}.{name}" if path else name, child))
    return paths
