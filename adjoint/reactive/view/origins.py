"""Origins of nodes, which the tape does not record: module, source line and time.

While `observe()` is active, every op passes through it. What it learns lives as long as the node.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

from ...core.errors import InvalidType
from ...core.mode import MODE, mode_with
from ...core.op import Op
from ...core.package import FOLDER
from ...nn.hooks import register_module_forward_hook, register_module_forward_pre_hook
from ...nn.modules.module import Module
from ...nn.roots import ROOTS, root_name
from ...runtime.dispatch import execute


class Origin(NamedTuple):
    """The place and time at which a node was made."""

    module: str
    file: str
    line: int
    time_us: float
    array: Callable[[], Any]  # the value, or None once it is gone


class Observation:
    """Results of an `observe()` block."""

    last: Any = None  # the last tensor of one element that has a history; it is kept alive


_origins: WeakKeyDictionary[Any, Origin] = WeakKeyDictionary()  # Node -> Origin


def origin_of(node: Any) -> Origin | None:
    """The recorded origin of a node, or None."""
    return _origins.get(node)


class Names:
    """Names of modules, parameters and buffers in a drawing: `given` names, otherwise the classes
    of the outermost modules; those of `model` as the model names them.
    """

    def __init__(self, model: Module | None, given: Mapping[str, Module]) -> None:
        for name, module in given.items():
            if not isinstance(module, Module):
                raise InvalidType(
                    f"graph: {name}={module!r} is no Module; keywords name modules, as in "
                    "graph(G=generator)"
                )
        called = {**ROOTS, **{module: name for name, module in given.items()}}
        self._boxes = {ROOTS[module]: called[module] for module in called if module in ROOTS}
        roots = [*called.items(), *(() if model is None else ((model, ""),))]
        self.tensors = {
            id(tensor): (name, tensor)
            for module, root in roots
            for name, tensor in (*module.named_parameters(root), *module.named_buffers(root))
        }

    def label(self, tensor: Any) -> str:
        """The name of a parameter or buffer; empty for other tensors."""
        return self.tensors.get(id(tensor), ("",))[0]

    def box(self, path: str) -> str:
        """The displayed path of a module: its first name replaced by that of the outermost
        module.
        """
        root, *inner = path.split(".")
        return ".".join((self._boxes.get(root, root), *inner))


@contextlib.contextmanager
def observing(keep_values: bool) -> Iterator[Observation]:
    """See `adjoint.view.observe`."""
    stack = _ModuleStack()
    observation = Observation()

    def observed(op: Op, inputs: tuple[Any, ...]) -> Any:
        begin = time.perf_counter_ns()
        result = execute(op, inputs)
        elapsed = (time.perf_counter_ns() - begin) / 1000
        several = type(result) is tuple
        for y in result if several else (result,):
            node = y._node
            if node is None or node in _origins:
                continue
            if y._data.size == 1:
                observation.last = y
            file, line = _user_line()
            array = (lambda data=y._data: data) if keep_values else ref(y._data)
            origin = Origin(stack.path, file, line, elapsed, array)
            _origins[node] = origin
            if several:  # the node that computes all outputs
                _origins.setdefault(node.parents[0], origin._replace(array=_nothing))
        return result

    before = MODE.get()
    with (
        register_module_forward_pre_hook(stack.enter),
        register_module_forward_hook(stack.leave, always_call=True),
    ):
        try:
            MODE.set(mode_with(before, executor=observed))
            yield observation
        finally:
            MODE.set(mode_with(MODE.get(), executor=before.executor))


def _nothing() -> None:
    return None


class _ModuleStack:
    """The modules whose forward is running, as a path of names."""

    def __init__(self) -> None:
        self.path = ""
        self._frames: list[_Frame] = []
        self._names: WeakKeyDictionary[Module, dict[int, str]] = WeakKeyDictionary()

    def enter(self, module: Module, args: Any) -> None:
        """Called before a module's forward."""
        above = self._frames[-1] if self._frames else None
        if above is None:
            name = root_name(module)
        else:
            name = above.names.get(id(module)) or type(module).__name__
        names = self._names.get(module)
        if names is None:
            names = {id(child): path for path, child in module.named_modules() if path}
            self._names[module] = names
        times = 1
        if above is not None:
            times = above.calls[name] = above.calls.get(name, 0) + 1
        shown = name if times == 1 else f"{name} ({times})"
        path = shown if above is None else f"{above.path}.{shown}"
        self._frames.append(_Frame(id(module), path, names, {}))
        self.path = path

    def leave(self, module: Module, args: Any, output: Any) -> None:
        """Called after a module's forward, also after an exception."""
        while self._frames:
            if self._frames.pop().module == id(module):
                break
        self.path = self._frames[-1].path if self._frames else ""


class _Frame(NamedTuple):
    module: int
    path: str
    names: dict[int, str]  # id of each module below it -> path from here
    calls: dict[str, int]


def _user_line() -> tuple[str, int]:
    """File and line of the innermost frame outside of this package."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(FOLDER):
        frame = frame.f_back
    return ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def source_line(file: str, line: int) -> str:
    """`file.py:12  y = x * w`; empty for an unknown place."""
    if not file:
        return ""
    text = linecache.getline(file, line).strip()
    return f"{os.path.basename(file)}:{line}  {text}".rstrip()
