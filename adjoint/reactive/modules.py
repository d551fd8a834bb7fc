"""Module calls inside a graph: recorded once per signature, and reused after.

A call's signature is the module with its settings, and its arguments: nodes of the graph by
identity (attached and detached apart), other tensors by shape and dtype, anything else by value.
Called again with other tensors of the same shapes, the recorded nodes get the new values as inputs;
called again with the same nodes, they are simply up to date or not. What a call does besides its
result is done again: buffers that it writes (running statistics) and random draws.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..core.errors import GraphError
from ..core.mode import MODE, mode_with
from ..core.op import Op
from ..core.tensor_base import TensorBase
from ..eager.tensors import wrap
from ..eager.writes import before_change
from ..graph.cells import Cell, Source, State, push
from ..graph.lazy import concrete
from ..graph.node import Node, Version
from ..nn.hooks import EVERYWHERE
from ..nn.modules.module import Module
from ..nn.roots import root_name
from ..ops.random.draws import Draw
from ..ops.random.random import next_draw
from ..tensor import Tensor

if TYPE_CHECKING:
    from .graph import Graph

_LIMIT = 64  # signatures whose recorded calls a graph keeps
_COPIES = 4  # recorded calls of one signature: more than one where earlier results are in use
_SIMPLE = frozenset((int, float, bool, str, bytes, type(None)))


class Superseded(Op, abstract=True):
    """How the result of a call came to be whose nodes another call uses now."""

    def gradient(self, g: Any) -> tuple[Any, ...]:
        """Refused: the nodes hold other values."""
        raise GraphError(
            "backward: this tensor is the result of an earlier module call, whose nodes a later "
            "call with the same signature reuses; its value is kept, its gradients are not. Call "
            "backward before the module is called again, or use graph.input(...) nodes as arguments"
        )


class Call:
    """One recorded call."""

    __slots__ = ("draws", "effects", "handles", "inputs", "members", "module", "outputs", "result")

    module: Module
    inputs: list[Any]  # tensors that stand for arguments from outside the graph
    result: Any  # what forward returned
    outputs: list[Cell]  # the cells in it
    members: list[Cell]  # the cells that were recorded
    effects: list[tuple[Any, Cell]]  # (tensor outside, what was written to it), in order
    draws: list[Cell]
    handles: list[weakref.ref[Any]]  # tensors that show `outputs` of the last call

    def __init__(self, module: Module) -> None:
        self.module = module
        self.inputs = []
        self.result = None
        self.outputs = []
        self.members = []
        self.effects = []
        self.draws = []
        self.handles = []


class _NotReusable(Exception):  # noqa: N818 - never leaves this module
    """The call has no signature by which it could be found again."""


class Calls:
    """The recorded calls of one graph, the last used last."""

    def __init__(self, state: State, graph: Graph) -> None:
        self._state = state
        self._graph = weakref.ref(graph)
        self._found: dict[Any, list[Call]] = {}
        self._owner: dict[Cell, Call] = {}
        self._modules: weakref.WeakSet[Any] = weakref.WeakSet()
        self._names: dict[int, str] | None = None  # of the modules inside the one being recorded
        self._counts = {"calls_recorded": 0, "calls_reused": 0, "calls_not_reusable": 0}

    def modules(self) -> list[Any]:
        """The modules called from outside any other, while they live."""
        return list(self._modules)

    def stats(self) -> dict[str, int]:
        """How many calls are kept, were recorded, reused, or could not be."""
        return {"calls_kept": sum(map(len, self._found.values())), **self._counts}

    def clear(self) -> None:
        """Forget all recorded calls."""
        self._found.clear()
        self._owner.clear()

    def forget_cells(self, cells: set[Cell]) -> None:
        """Forget the calls that `cells` belong to."""
        gone = {id(self._owner[cell]) for cell in cells if cell in self._owner}
        for key, calls in list(self._found.items()):
            if any(id(call) in gone for call in calls):
                self._forget(key)

    def _forget(self, key: Any) -> None:
        for call in self._found.pop(key):
            self._disown(call)

    def _disown(self, call: Call) -> None:
        for cell in call.members:
            self._owner.pop(cell, None)

    # ---- calling ---------------------------------------------------------------------------------

    def call(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What `module(*args, **kwargs)` returns inside the graph."""
        if self._names is not None:
            return self._call_inside(module, args, kwargs)
        with self._state.lock:
            self._modules.add(module)
            if EVERYWHERE or any(m._hooks is not None for m in module.modules()):
                self._counts["calls_not_reusable"] += 1
                return self._record(Call(module), args, kwargs)
            outside: list[Any] = []
            try:
                mode = MODE.get()
                casts = mode.autocast and mode.autocast.signature
                key: Any = (id(module), _settings(module), mode.grad, mode.inference, casts)
                key = (*key, _signature(args, outside), _signature(kwargs, outside))
            except _NotReusable:
                self._counts["calls_not_reusable"] += 1
                return self._record(Call(module), args, kwargs)
            call = self._free(key, bool(outside))
            if call is None:
                return self._record_new(key, module, args, kwargs, outside)
            self._counts["calls_reused"] += 1
            return self._reuse(call, outside)

    def owns(self, cell: Cell) -> bool:
        """Whether `cell` belongs to a recorded call."""
        return cell in self._owner

    def _free(self, key: Any, rebound: bool) -> Call | None:
        """A recorded call with this signature whose nodes may be used: where they would get other
        inputs, one that nothing outside is computed from.
        """
        calls = self._found.pop(key, None)
        if calls is None:
            return None
        self._found[key] = calls
        graph = self._graph()
        if graph is not None:
            graph.drop_plans()
        return next((call for call in calls if not rebound or not self._is_busy(call)), None)

    def _call_inside(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        state = self._state
        scope = state.scope
        assert self._names is not None
        name = self._names.get(id(module), type(module).__name__)
        state.scope = (*scope[:1], *name.split(".")) if name else scope
        try:
            return module._call(args, kwargs)
        finally:
            state.scope = scope

    def _record(self, call: Call, args: Any, kwargs: Any) -> Any:
        """Run the module's forward, whose operations become nodes."""
        state = self._state
        module = call.module
        self._names = {id(m): name for name, m in module.named_modules()}
        mode = MODE.get()
        graph = self._graph()
        if graph is not None and mode.executor is not graph.recorder:
            MODE.set(mode_with(mode, executor=graph.recorder))
        state.scope = (root_name(module),)
        try:
            return module._call(args, kwargs)
        finally:
            state.scope = ()
            MODE.set(mode)
            self._names = None

    def _record_new(
        self, key: Any, module: Module, args: Any, kwargs: Any, outside: list[Any]
    ) -> Any:
        state = self._state
        call = Call(module)
        stand_ins = {id(x): self._stand_in(x) for x in outside}
        call.inputs = [stand_ins[id(x)] for x in outside]
        before = state.reads
        state.effects, outer = call.effects, state.effects
        state.members, members = call.members, state.members
        try:
            result = self._record(call, _replaced(args, stand_ins), _replaced(kwargs, stand_ins))
        finally:
            state.effects, state.members = outer, members
        self._counts["calls_recorded"] += 1
        try:
            tensors = list(_tensors(result))
        except _NotReusable:
            tensors = None
        reads = state.reads - before - len(call.effects)
        if tensors is None or reads or any(isinstance(v, Cell) for v in args):
            self._counts["calls_not_reusable"] += 1
            return result
        call.outputs = [x._data for x in tensors if isinstance(x._data, Cell)]
        call.draws = [cell for cell in call.members if isinstance(cell.op, Draw)]
        call.result = result
        for cell in call.members:
            self._owner[cell] = call
        copies = self._found.pop(key, [])
        self._found[key] = [*copies, call]
        if len(copies) >= _COPIES:
            self._disown(self._found[key].pop(0))
        while len(self._found) > _LIMIT:
            self._forget(next(iter(self._found)))
        return self._handed_out(call)

    def _stand_in(self, x: Any) -> Any:
        array = concrete(x).copy()
        source = Source(self._state, array.shape, array.dtype, array)
        tensor: Any = wrap(source, None, Version())
        tensor._version.watch(source)
        source.handle = weakref.ref(tensor)
        source.note(name="argument")
        return tensor

    def _reuse(self, call: Call, outside: list[Any]) -> Any:
        if outside:
            self._supersede(call)
        for stand_in, x in zip(call.inputs, outside, strict=True):
            source = stand_in._data
            array = concrete(x)
            if source.array is None or not _equal(source.array, array):
                source.assign(array.copy())
        self.redraw(call.draws)
        for tensor, cell in call.effects:
            value = cell.realize()
            before_change(tensor)
            tensor._data[...] = value
            if tensor._version is not None:
                tensor._version.bump(type(call.module).__name__)
        return self._handed_out(call)

    def redraw(self, draws: Iterable[Cell]) -> None:
        """Let random nodes draw their next numbers."""
        mode = MODE.get()
        graph = self._graph()
        if graph is not None:
            MODE.set(mode_with(mode, executor=graph.recorder))
        try:
            for cell in draws:
                seed, draw = next_draw(None)
                cell.op = dataclasses.replace(cell.op, seed=seed, draw=draw)  # type: ignore[type-var]
                cell.stale = True
                cell.seen = None
                push(cell)
        finally:
            MODE.set(mode)

    def _handed_out(self, call: Call) -> Any:
        call.handles = [r for r in call.handles if r() is not None]
        return _mapped(call.result, lambda x: self._handle(call, x))

    def _handle(self, call: Call, x: Any) -> Any:
        if not isinstance(x._data, Cell):
            return x
        handle = wrap(x._data, x._node, x._version)
        call.handles.append(weakref.ref(handle))
        return handle

    def _is_busy(self, call: Call) -> bool:
        """Whether something outside the recorded calls is computed from the call's result."""
        stack, seen = [call], {id(call)}
        while stack:
            for cell in stack.pop().outputs:
                for user in cell.living_users():
                    owner = self._owner.get(user)
                    if owner is None:
                        if user.planned < 2:
                            return True
                    elif id(owner) not in seen:
                        seen.add(id(owner))
                        stack.append(owner)
        return False

    def _supersede(self, call: Call) -> None:
        """Let the tensors that earlier calls returned keep their values."""
        stack, seen = [call], {id(call)}
        while stack:
            each = stack.pop()
            for reference in each.handles:
                handle = reference()
                if handle is None or not isinstance(handle._data, Cell):
                    continue
                array = handle._data.realize()
                wanted = handle.requires_grad
                handle._data = array.copy() if array.base is not None else array
                handle._node = handle._leaf = handle._view = handle._version = None
                if wanted:
                    handle._node = Node(Superseded(), (None,), (), None, array.shape, array.dtype)
            each.handles = []
            for cell in each.outputs:
                for user in cell.living_users():
                    owner = self._owner.get(user)
                    if owner is not None and id(owner) not in seen:
                        seen.add(id(owner))
                        stack.append(owner)


# ---- signatures and structures -------------------------------------------------------------------


def _settings(module: Module) -> tuple[Any, ...]:
    """What of a module decides what its forward records."""
    found: list[Any] = []
    for each in module.modules():
        found.append(id(each))
        found.extend([v for v in each.__dict__.values() if type(v) in _SIMPLE])
        found.extend(map(id, each._parameters.values()))
        found.extend(map(id, each._buffers.values()))
    return tuple(found)


def _signature(value: Any, outside: list[Any]) -> Any:
    """`value` as a key; collects the tensors from outside the graph that are arguments."""
    if isinstance(value, TensorBase):
        cell = value._data
        if isinstance(cell, Cell):
            handle = cell.handle() if isinstance(cell, Source) else None
            attached = value._node is not None or handle is value
            return ("node" if attached else "detached", id(cell))
        if value._node is not None:
            return ("leaf", id(value))
        outside.append(value)
        return ("tensor", value._data.shape, value._data.dtype)
    kind = type(value)
    if kind in (tuple, list):
        return (kind, *(_signature(each, outside) for each in value))
    if kind is dict:
        return (dict, *((k, _signature(v, outside)) for k, v in value.items()))
    try:
        hash(value)
    except TypeError:
        raise _NotReusable from None
    return (kind, value)


def _replaced(value: Any, stand_ins: dict[int, Any]) -> Any:
    if isinstance(value, TensorBase):
        return stand_ins.get(id(value), value)
    if type(value) in (tuple, list):
        return type(value)(_replaced(each, stand_ins) for each in value)
    if type(value) is dict:
        return {k: _replaced(v, stand_ins) for k, v in value.items()}
    return value


def _tensors(value: Any) -> Iterable[Any]:
    """The tensors in a result."""
    if isinstance(value, Tensor):
        yield value
    elif type(value) in (tuple, list):
        for each in value:
            yield from _tensors(each)
    elif type(value) is dict:
        for each in value.values():
            yield from _tensors(each)
    elif type(value) not in _SIMPLE:
        raise _NotReusable


def _mapped(value: Any, function: Any) -> Any:
    if isinstance(value, Tensor):
        return function(value)
    if type(value) in (tuple, list):
        return type(value)(_mapped(each, function) for each in value)
    if type(value) is dict:
        return {k: _mapped(v, function) for k, v in value.items()}
    return value


def _equal(a: Any, b: Any) -> bool:
    """Whether two arrays hold the same."""
    return type(a) is type(b) and a.shape == b.shape and bool((a == b).all())
