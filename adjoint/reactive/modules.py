"""Module calls inside a graph: names of the modules that nodes belong to, and the writes to buffers
that a call does again for each new value.

A call runs the module's forward, and what that does becomes nodes: nothing of an earlier call is
used again, since no one can tell what else than its arguments a forward reads. (Steps reuse values,
not calls: steps.py.)
"""

from __future__ import annotations

import dataclasses
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

from ..autograd.graph_writes import Contents
from ..core.tensor_base import TensorBase
from ..nn.modules.module import Module
from ..nn.roots import root_name
from ..runtime import repeats
from ..runtime.cells import Cell, GraphState, users_frame
from ..runtime.node import next_order


class Calls:
    """The module calls of one graph."""

    def __init__(self, state: GraphState) -> None:
        self._state = state
        self._modules: weakref.WeakSet[Any] = weakref.WeakSet()
        self._names: dict[int, str] | None = None  # of the modules inside the one being called

    def modules(self) -> list[Any]:
        """The modules called from outside any other, while they live."""
        return list(self._modules)

    def call(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call `module(*args, **kwargs)`; its nodes remember the modules that they belong to."""
        state = self._state
        with state.lock:
            scope, names = state.scope, self._names
            has_modes = False
            if names is None:
                self._modules.add(module)
                self._names = {}
                for name, each in module.named_modules():
                    self._names[id(each)] = name
                    has_modes = has_modes or reads_mode(type(each))
                state.scope = (root_name(module),)
            else:
                name = names.get(id(module), type(module).__name__)
                state.scope = (*scope[:1], *name.split(".")) if name else scope
            call = None
            if names is None or module._buffers:
                call = ModuleCall(state, module, args, kwargs)
                state.calling.append(call)
            try:
                result = module._call_impl(*args, **kwargs)
            finally:
                state.scope, self._names = scope, names
                if call is not None:
                    state.calling.pop()
            if call is not None and (has_modes or call.writes):
                call.end(result, has_modes)
            return result


class ModuleCall:
    """A call of a module that is being recorded, and the buffers that it has written so far."""

    __slots__ = ("_buffers", "_is_known", "begin", "given", "module", "state", "writes")

    def __init__(self, state: GraphState, module: Module, *given: Any) -> None:
        self.state = state
        self.module = module
        self.given = given
        self.begin = next_order()
        self.writes: dict[int, Any] = {}  # by a buffer's `id`: the source of what it held, and it
        self._buffers: dict[int, tuple[Any, str]] | None = None
        self._is_known: bool | None = None
        if module.training and module._buffers:
            for buffer in module._buffers.values():  # a source of its own for this call's nodes
                state.sources.pop(id(buffer), None)

    def owns(self, base: Any) -> bool:
        """Whether a tensor that is about to be written is a buffer of the module; notes it then."""
        if self._buffers is None:
            self._buffers = {
                id(buffer): (weakref.ref(each), name)
                for each in self.module.modules()
                for name, buffer in each._buffers.items()
                if buffer is not None
            }
        if id(base) not in self._buffers:
            return False
        if id(base) not in self.writes:
            self.writes[id(base)] = self.state.sources.get(id(base)), base
        return True

    @property
    def is_known(self) -> bool:
        """Whether what it was given can be computed, so that what it writes is written at once."""
        if self._is_known is None:
            self._is_known = repeats.has_values(self.state, list(cells_in(self.given)))
        return self._is_known

    def end(self, result: Any, has_modes: bool) -> None:
        """Let the nodes of the result do again what the call has done."""
        owners = [cell for cell in cells_in(result) if cell.order > self.begin and cell.op]
        if has_modes:
            for cell in owners:
                mode = repeats.RecordedMode(weakref.ref(self.module), self.module.training)
                repeats.attach(cell, mode)
        if self.writes:
            self._end_writes(owners)

    def _end_writes(self, owners: list[Cell]) -> None:
        assert self._buffers is not None
        writes: list[repeats.BufferWrite] = []
        for key, (base, buffer) in self.writes.items():
            version = buffer._changes
            contents = None if version is None else version.contents
            if type(contents) is not Contents or not contents.are_current(version):
                self._warn_of_buffer(self._buffers[key][1])
                continue
            version.contents = None  # it is memory again
            writes.append(repeats.BufferWrite(*self._buffers[key], base, contents.cell))
        if not owners:  # nothing was computed of the arguments but what was written
            owners = [cell for cell in cells_in(self.given) if cell.op is not None]
        if not (writes and owners):
            return
        last = self.state.stamp() if self.is_known else repeats.never
        record = repeats.BufferWrites(last, writes)
        for cell in owners:
            repeats.attach(cell, record)

    def _warn_of_buffer(self, name: str) -> None:
        kind = type(self.module).__name__
        key = "buffer", kind, name
        if key in self.state.said:
            return
        self.state.said.add(key)
        warnings.warn(
            f"Graph: {kind} writes its buffer {name!r} in a way that is not done again for later "
            "values: what it writes carries a gradient, or others know the memory; write "
            "value.detach() under no_grad, in place",
            stacklevel=users_frame()[0],
        )


def cells_in(tree: Any) -> Iterator[Cell]:
    """The cells of the tensors in containers and dataclasses."""
    stack, met = [tree], set()
    while stack:
        each = stack.pop()
        if isinstance(each, TensorBase):
            if isinstance(each._data, Cell):
                yield each._data
        elif id(each) not in met:
            met.add(id(each))
            if isinstance(each, (tuple, list)):
                stack += each
            elif isinstance(each, dict):
                stack += each.values()
            elif dataclasses.is_dataclass(each):
                stack += vars(each).values()


_reading: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def reads_mode(kind: type) -> bool:
    """Whether code of a module's class names `training`."""
    reads = _reading.get(kind)
    if reads is None:
        own = kind.__mro__[: kind.__mro__.index(Module)]
        codes = [getattr(each, "__code__", None) for base in own for each in vars(base).values()]
        reads = any(code is not None and "training" in code.co_names for code in codes)
        _reading[kind] = reads
    return reads
