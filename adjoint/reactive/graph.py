"""Graph: operations that stay, and are recomputed when their inputs have changed."""

from __future__ import annotations

import copy
import functools
import gc
import io
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..autograd import refreshing
from ..autograd.graph_writes import forget_contents
from ..autograd.modes import no_grad
from ..autograd.recording import Recorder, source_of
from ..core.device import CPU, as_device
from ..core.dtype import as_dtype, get_default_dtype
from ..core.errors import GraphError, InvalidArgument
from ..core.mode import MODE, Mode, ModeSwitch, mode_with, note_switch
from ..core.tensor_base import TensorBase
from ..nn import Module, Parameter
from ..nn.modules.module import clear_gradients
from ..nn.roots import ROOTS
from ..ops.create.allocation import moved
from ..ops.create.memory import as_tensor
from ..ops.create.values import array_from, target
from ..ops.random.draws import Draw, DrawnFor
from ..ops.random.generators import Generator, counting, is_following, next_draw
from ..ops.random.random import randint
from ..runtime import editing
from ..runtime.cells import (
    Cell,
    GraphState,
    SourceCell,
    assert_consistent,
    downstream,
    notice_foreign_writes,
    push,
    refresh,
    release,
    upstream,
)
from ..runtime.lazy import concrete
from ..runtime.repeats import GraphCopy, mark_stale
from ..runtime.tensors import wrap
from ..tensor import Tensor
from .events import Log
from .modules import Calls
from .nodes import cell_of, input_cell, place_of, showing
from .steps import Block, Steps


class GraphRecorder(Recorder):
    """The executor inside `with graph:`."""

    __slots__ = ("calls", "generator")

    def __init__(self, state: GraphState, calls: Calls, generator: Generator | None) -> None:
        super().__init__(state)
        self.calls = calls
        self.generator = generator

    def call_module(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a module, whose nodes are labelled with its name."""
        return self.calls.call(module, args, kwargs)


def _before_read(state: GraphState, targets: list[Cell] | None) -> None:
    """Update shapes and gradients after edits, before `targets` are read (None: all)."""
    if editing.settle(state, targets):
        refreshing.derive_again(state)
        state.edited.clear()


def _from_bytes(content: bytes) -> Graph:
    """A graph of a pickle."""
    return Graph.load(io.BytesIO(content))


class Graph(ModeSwitch):
    """A lasting graph: change an input, and only what depends on it is computed again.

    Operations on its tensors, and all operations inside `with graph:`, are recorded as nodes and
    stay as long as something can ask for them. Reading a tensor (`item`, `numpy`, `print`, ...)
    computes what is stale above it and nothing else; gradients are nodes too.

    `seed` gives the graph random numbers of its own. With `cutoff`, a node that is recomputed to
    the value it had, bit for bit, counts as unchanged. With `lines`, nodes remember the line of the
    user's program that made them.

    >>> graph = ad.Graph()
    >>> w, x, b = graph.parameter(3.0), graph.input(2.0), graph.parameter(1.0)
    >>> y = w * x + b
    >>> y.item()
    7.0
    >>> x.set(10.0).item(), y.item()
    (10.0, 31.0)
    >>> y.backward()
    >>> w.grad, b.grad
    (tensor(10.), tensor(1.))
    """

    def __init__(
        self, seed: int | None = None, *, cutoff: bool = False, lines: bool = False
    ) -> None:
        super().__init__()
        self._state = GraphState()
        self._state.cutoff = cutoff
        self._state.places = lines
        self._state.owner = weakref.ref(self)
        self._state.before_read = _before_read
        self._named: dict[str, Any] = {}
        self._parameters: dict[str, Any] = {}
        self._inputs: dict[str, Any] = {}
        # Of a copy, by the id of a cell of the original: weak references to that cell and its copy
        self._twins: dict[int, tuple[weakref.ref[Cell], weakref.ref[Cell]]] = {}
        self._handles: weakref.WeakKeyDictionary[Cell, Any] = weakref.WeakKeyDictionary()
        self._twins_of: Callable[[], GraphState | None] = lambda: (
            None
        )  # weak: what this is a copy of
        self._ends: list[Any] = []  # tensors of a copy that nothing in it uses: they keep the rest
        if seed is None and is_following():  # a graph's numbers are drawn again, one by one
            seed = int(randint(2**62, ()))
        self.generator = None if seed is None else counting(seed)
        self.calls = Calls(self._state)
        self.steps = Steps(self._state)
        self.recorder = GraphRecorder(self._state, self.calls, self.generator)
        self.plans: dict[Any, Any] = {}  # recorded backward passes, the last used last
        self.retained: dict[Cell, Any] = {}  # gradients of the last backward(retain_graph=True)
        self.training = True

    # ---- recording -------------------------------------------------------------------------------

    _gives_itself = True

    def _inside(self, mode: Mode) -> Mode:
        """Return the mode of `with graph:`, in which the graph records."""
        state = self._state
        if state.foreign and state not in mode.blocks:
            notice_foreign_writes(state)
        state.blocks += 1
        return mode_with(mode, executor=self.recorder, step=None, blocks=(*mode.blocks, state))

    def _left(self) -> None:
        """End a block: behind the outermost, what was written inside is memory again."""
        state = self._state
        state.blocks -= 1
        state.branch = None
        if state.blocks or not (state.written or state.foreign):
            return
        mode = MODE.get()
        try:
            MODE.set(mode_with(mode, blocks=(*mode.blocks, state)))  # it was written inside
            with state.lock:
                notice_foreign_writes(state)
                forget_contents(state)
        finally:
            MODE.set(mode)

    def step(self, reuse: bool | None = None) -> Block:
        """Context manager of a training step: values computed inside are kept, with their
        gradients, as in PyTorch; what has not changed since an earlier step is not recomputed.

        Inside, a tensor of the graph stands for the value that it has now, and random numbers are
        those of the program, not of the graph's `seed`. `reuse`: whether to look
        for values that are known already; by default as long as that saves time. `graph.stats()`
        says what it found: `step_ops`, `step_reused`, `step_unknown`, `step_unknown_because`.

        Errors: GraphError for a computed node of the graph that wants a gradient; InvalidArgument
        for another `reuse`.

        >>> graph, w = ad.Graph(), ad.tensor(3.0, requires_grad=True)
        >>> losses = []
        >>> for _ in range(2):
        ...     with graph.step():
        ...         losses.append(w * w)
        ...     losses[-1].backward()
        ...     ad.optim.SGD([w], lr=0.5).step()
        >>> [loss.item() for loss in losses]
        [9.0, 0.0]
        """
        if reuse not in (None, True, False):
            raise InvalidArgument(f"step: reuse may be None, True or False, got {reuse!r}")
        note_switch("graph.step")
        return Block(self.steps, reuse)

    def reuse(self, module: Module) -> Module:
        """Promise that the result of `module` depends only on its arguments, parameters and
        buffers: in steps, a call with values as before then runs none of its code. A call for which
        that cannot be told, or through which gradients are to flow, is run, the first time with a
        warning. Returns the module.

        >>> graph, teacher = ad.Graph(), ad.nn.Linear(2, 2).requires_grad_(False)
        >>> x = ad.ones(1, 2)
        >>> for _ in range(4):
        ...     with graph.step():
        ...         y = graph.reuse(teacher)(x)
        >>> graph.stats()["step_reused"] > 0
        True
        """
        self.steps.trust(module)
        return module

    @contextmanager
    def building(self) -> Iterator[Graph]:
        """`with graph:` for recording very many nodes: Python's garbage collector, which would scan
        all of them again and again and find nothing (nodes make no cycles), is paused.

        >>> graph = ad.Graph()
        >>> x = y = graph.input(1.0)
        >>> with graph.building():
        ...     for _ in range(1000):
        ...         y = y + x
        >>> y.item()
        1001.0
        """
        running = gc.isenabled()
        try:
            gc.disable()
            with self:
                yield self
        finally:
            if running:
                gc.enable()

    def input(
        self,
        value: Any = None,
        name: str | None = None,
        *,
        shape: Sequence[int] | None = None,
        dtype: Any = None,
        requires_grad: bool = False,
    ) -> Tensor:
        """A new input: a tensor to be set. `value` may be its first value, or a shape (a tuple of
        ints), in which case it must be set before it is read.

        Errors: GraphError for a name that is taken.

        >>> graph = ad.Graph()
        >>> x = graph.input((2,), name="x")
        >>> y = x.sum()
        >>> x.set([1.0, 2.0]).shape, y.item()
        (adjoint.Size([2]), 3.0)
        """
        value, shape = _value_or_shape("input", value, shape)
        label = self._free_label(name, "input")
        tensor: Tensor = self._source(Tensor, value, shape, dtype, requires_grad, label)
        self._inputs[label] = tensor
        return tensor

    def parameter(
        self,
        value: Any = None,
        name: str | None = None,
        *,
        shape: Sequence[int] | None = None,
        dtype: Any = None,
        requires_grad: bool = True,
    ) -> Any:
        """A new parameter: a leaf that requires grad, for optimizers and `backward`.

        Errors: GraphError for a name that is taken; AutogradError for integers.

        >>> graph = ad.Graph()
        >>> w = graph.parameter([1.0, 2.0], name="w")
        >>> (w * w).sum().backward()
        >>> w.grad
        tensor([2., 4.])
        """
        value, shape = _value_or_shape("parameter", value, shape)
        if value is None:
            value = np.zeros(tuple(shape or ()), _dtype(dtype).numpy)
        label = self._free_label(name, "parameter")
        tensor = self._source(Parameter, value, None, dtype, requires_grad, label)
        self._parameters[label] = tensor
        return tensor

    def _source(
        self,
        kind: type,
        value: Any,
        shape: Sequence[int] | None,
        dtype: Any,
        requires_grad: bool,
        label: str,
    ) -> Any:
        array = None if value is None else _own_array(value, dtype)
        if array is None:
            cell = SourceCell(self._state, tuple(shape or ()), _dtype(dtype).numpy)
        else:
            cell = SourceCell(self._state, array.shape, array.dtype, array)
        tensor = showing(cell, kind)
        if requires_grad:
            tensor.requires_grad_()
        self._keep(label, tensor, cell)
        return tensor

    def _free_label(self, name: str | None, what: str) -> str:
        """The name of a new source: the one given, or one that is free.

        Errors: GraphError for a name that is taken.
        """
        named = self._named
        if name:
            if name in named:
                raise GraphError(f"{what}: the graph has a node named {name!r} already")
            return name
        number = len(named)
        while (label := f"{what}{number}") in named:
            number += 1
        return label

    def name(self, node: Any, name: str) -> Any:
        """Give a node a name, by which the graph keeps it: `graph[name]`. Returns the node.

        Errors: GraphError for a name that is taken, or a tensor of no graph.

        >>> graph = ad.Graph()
        >>> y = graph.name(graph.input(1.0) * 2, "y")
        >>> graph["y"].item()
        2.0
        """
        cell = self._cell(node, "name")
        if name in self._named:
            raise GraphError(f"name: the graph has a node named {name!r} already")
        self._keep(name, node, cell)
        return node

    def rename(self, node: Any, new: str) -> Any:
        """Change the name of a node, which may be passed by its name. Returns the node.

        Errors: GraphError for a name that is taken, or that no node has.

        >>> graph = ad.Graph()
        >>> x = graph.input(1.0, name="x")
        >>> graph.rename("x", "weight") is x, "x" in graph
        (True, False)
        """
        cell = self._cell(node, "rename")
        old = {node} if isinstance(node, str) else self._names_of(cell)
        tensor = self[node] if isinstance(node, str) else node
        if new in self._named and new not in old:
            raise GraphError(f"rename: the graph has a node named {new!r} already")
        self._relabel(lambda name: new if name in old else name)
        self._keep(new, tensor, cell)
        return tensor

    def _keep(self, label: str, tensor: Any, cell: Cell) -> None:
        if self._state.undo is not None:
            self._note_undo(functools.partial(setattr, cell, "about", cell.about))
            self._note_undo(lambda: self._relabel(lambda name: None if name == label else name))
        cell.note(name=label)
        self._named[label] = tensor

    def _names_of(self, cell: Cell) -> set[str]:
        sources = self._state.sources
        return {
            name for name, x in self._named.items() if x._data is cell or sources.get(id(x)) is cell
        }

    def _relabel(self, new: Callable[[str], str | None]) -> None:
        """Rename each named node from `name` to `new(name)`; None removes the name."""
        for attribute in ("_named", "_inputs", "_parameters"):
            names = getattr(self, attribute)
            self._note_undo(functools.partial(setattr, self, attribute, names))
            renamed = {label: x for name, x in names.items() if (label := new(name)) is not None}
            setattr(self, attribute, renamed)

    def _note_undo(self, undo: Callable[[], None]) -> None:
        """Register an undo action for the current batch, if there is one."""
        if self._state.undo is not None:
            self._state.undo.edits.append(undo)

    def __getitem__(self, name: str) -> Any:
        try:
            return self._named[name]
        except KeyError:
            raise GraphError(
                f"graph: no node is named {name!r}; there are {sorted(self._named)}"
            ) from None

    def __contains__(self, name: str) -> bool:
        return name in self._named

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs by name."""
        return dict(self._inputs)

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """Names and parameters: those made by `graph.parameter`, and those outside that nodes use
        (a Module's), named as in their module, after the class of the outermost module.

        >>> graph = ad.Graph()
        >>> w = graph.parameter(1.0, name="w")
        >>> [name for name, _ in graph.named_parameters()]
        ['w']
        """
        yield from self._parameters.items()
        names = {
            id(parameter): f"{root}.{name}"
            for module, root in ROOTS.items()
            for name, parameter in module.named_parameters()
        }
        number = 0
        for cell in self._state.cells():
            tensor = cell.follows if isinstance(cell, SourceCell) else None
            if isinstance(tensor, Parameter):
                name = (cell.about or {}).get("name") or names.get(id(tensor))
                if name is None:
                    name = f"outside{number}"
                    number += 1
                yield name, tensor

    def parameters(self) -> Iterator[Any]:
        """The parameters without their names."""
        for _, parameter in self.named_parameters():
            yield parameter

    @property
    def nodes(self) -> list[Any]:
        """All nodes, inputs before what uses them, without those that only compute gradients.

        >>> graph = ad.Graph()
        >>> y = graph.input(1.0, name="x") + 1
        >>> [each.node.label for each in graph.nodes]
        ['x', 'add']
        """
        return [self._handle(cell) for cell in self._cells()[0]]

    def _handle(self, cell: Cell) -> Any:
        """The tensor by which this graph shows a cell, the same each time while somebody has it."""
        kept = self._handles.get(cell)
        tensor = None if kept is None else kept()
        if tensor is None or tensor._data is not cell:
            tensor = refreshing.tensor_of(cell)
            self._handles[cell] = weakref.ref(tensor)
        return tensor

    @property
    def gradient_nodes(self) -> list[Any]:
        """The nodes that compute gradients, for `backward` or for what `autograd.grad` gave.

        >>> graph = ad.Graph()
        >>> w = graph.parameter(3.0)
        >>> y = w * w
        >>> y.backward()
        >>> len(graph), sorted({each.node.label for each in graph.gradient_nodes})
        (2, ['add', 'input', 'mul'])
        """
        return [self._handle(cell) for cell in self._cells()[1]]

    def __len__(self) -> int:
        return len(self._cells()[0])

    def _cells(self) -> tuple[list[Cell], list[Cell]]:
        """The user's cells, and those that compute gradients; inputs before users."""
        by_purpose: tuple[list[Cell], list[Cell]] = ([], [])
        for cell in self._state.cells():
            several = cell.dtype is None  # whose values are the cells of its outputs
            if not several and not (cell.about and cell.about.get("removed")):
                by_purpose[cell.planned > 0].append(cell)
        return by_purpose

    def __bool__(self) -> bool:
        return True

    def _cell(self, x: Any, name: str) -> Cell:
        x = self[x] if isinstance(x, str) else x
        if isinstance(x, TensorBase) and not isinstance(x._data, Cell):
            followed = self._state.sources.get(id(x))
            if followed is not None:
                return followed
        cell = cell_of(x, name)
        if cell.state is not self._state:
            raise GraphError(f"{name}: {cell!r} belongs to another graph")
        return cell

    # ---- values ----------------------------------------------------------------------------------

    def forward(self, *nodes: Any) -> Any:
        """Bring `nodes` up to date, running only the stale part of what they need; returns them.

        Errors: GraphError for an input that was never set; what the operations raise.

        >>> graph = ad.Graph()
        >>> graph.forward(graph.input(2.0) * 3)
        tensor(6.)
        """
        state = self._state
        cells = []
        for node in nodes:
            cell = getattr(node, "_data", None)
            if not isinstance(cell, Cell) or cell.state is not state:
                cell = self._cell(node, "forward")
            cell.read = True  # in the knowledge that it is brought up to date
            cells.append(cell)
        refresh(cells)
        return nodes[0] if len(nodes) == 1 else nodes

    def peek(self, node: Any) -> Tensor:
        """The last computed value of `node`, as a plain tensor, without computing now: after an
        optimizer's step, for instance, the loss before it.

        Errors: GraphError where none was computed, or it was released.

        >>> graph = ad.Graph()
        >>> x = graph.input(1.0)
        >>> y = x * 2
        >>> y.item(), x.set(5.0).item(), graph.peek(y).item()
        (2.0, 5.0, 2.0)
        """
        cell = self._cell(node, "peek")
        if cell.array is None:
            raise GraphError(f"peek: {cell!r} has no value yet, or it was released; read the node")
        tensor: Tensor = wrap(cell.array.copy())
        return tensor

    def backward(
        self, loss: Any, gradient: Any = None, retain_graph: bool = False, inputs: Any = None
    ) -> None:
        """Make sure that `loss` is up to date and add its gradients to the leaves' `.grad`.

        With `retain_graph`, the gradients of computed nodes can be read from their `.grad` until
        the next backward; otherwise the values that gradients flowed through are released, and
        computed again when they are needed.

        Errors: GraphError, AutogradError for a node that no gradient can start from.

        >>> graph = ad.Graph()
        >>> w = graph.parameter(3.0)
        >>> graph.backward(w * w)
        >>> w.grad
        tensor(6.)
        """
        self._cell(loss, "backward")
        targets = [inputs] if isinstance(inputs, TensorBase) else inputs
        refreshing.backward(loss, gradient, retain_graph, targets)

    def no_grad_scope(self, function: Callable[[], Any]) -> Any:
        """The result of `function()`, called with gradients off.

        >>> graph = ad.Graph()
        >>> graph.no_grad_scope(lambda: ad.is_grad_enabled())
        False
        """
        with no_grad():
            return function()

    @contextmanager
    def batch(self) -> Iterator[Graph]:
        """Context manager that makes several changes atomic: if an error leaves the block, the
        graph is as before.

        Shapes must agree when the outermost block ends, or something in it is read.
        Errors: those of the first node whose inputs do not fit; nothing is changed then.

        >>> graph = ad.Graph()
        >>> x = graph.input(1.0)
        >>> try:
        ...     with graph.batch():
        ...         x.set(5.0)
        ...         raise ValueError
        ... except ValueError:
        ...     x.item()
        tensor(5.)
        1.0
        """
        with editing.transaction(self._state):
            yield self

    def redraw(self) -> None:
        """Draw all random nodes anew; nodes that depend on them become stale.

        >>> graph = ad.Graph(seed=0)
        >>> with graph:
        ...     x = ad.rand(3)
        >>> before = x.clone().numpy().copy()
        >>> graph.redraw()
        >>> bool((x.numpy() != before).all())
        True
        """
        mode = MODE.get()
        try:
            MODE.set(mode_with(mode, executor=self.recorder))  # whose generator may be the graph's
            for cell in self._state.cells():
                if isinstance(cell.op, (Draw, DrawnFor)):
                    cell.op = cell.op.renumbered(*next_draw(None))
                    cell.stale = True
                    cell.seen = None
                    push(cell)
        finally:
            MODE.set(mode)

    def freeze_draws(self, frozen: bool = True) -> None:
        """Keep the numbers that random nodes have, whatever changes (or no longer).

        A node that draws for a tensor (dropout, `rand_like`, a distribution's samples) otherwise
        draws anew for each new value of it.

        >>> graph = ad.Graph()
        >>> x = graph.input(ad.zeros(3))
        >>> noise = ad.rand_like(x)
        >>> graph.freeze_draws()
        >>> before = noise.numpy().copy()
        >>> _ = x.set(ad.ones(3))
        >>> bool((noise.numpy() == before).all())
        True
        """
        self._state.draws_frozen = frozen
        self._state.said.add("kept draw")

    def release(self, *nodes: Any) -> None:
        """Drop the values of all computed nodes, or of the nodes from which `nodes` were computed
        (their own stay); dropped values are recomputed when needed.

        Errors: GraphError for a tensor of no graph, or of another.

        >>> graph = ad.Graph()
        >>> h = graph.input(2.0) * 3
        >>> y = h + 1
        >>> y.item()
        7.0
        >>> graph.release(y)
        >>> h.is_computed, y.is_computed, graph.stats()["released"], h.item()
        (False, True, 1, 6.0)
        """
        state = self._state
        kept = {self._cell(node, "release") for node in nodes}
        with state.lock:
            release(cell for cell in upstream(kept) if cell not in kept)
            if not nodes:
                release(state.cells())

    def drop_plans(self, cell: Cell | None = None) -> None:
        """Forget the backward passes of `cell`, and those of results that no longer exist."""
        for key, plan in list(self.plans.items()):
            if key[0] is cell or plan.result() is None:
                del self.plans[key]

    # ---- gradients and modes ---------------------------------------------------------------------

    def train(self, mode: bool = True) -> Graph:
        """Put the modules called in this graph into training mode, or out of it."""
        self.training = mode
        for module in self.calls.modules():
            module.train(mode)
        mark_stale(self._state)
        return self

    def eval(self) -> Graph:
        """Put the modules called in this graph into evaluation mode."""
        return self.train(False)

    def freeze(self, *what: Any) -> None:
        """Store no gradients for these leaves, or for the parameters of these modules.

        >>> graph = ad.Graph()
        >>> w = graph.parameter(1.0)
        >>> graph.freeze(w)
        >>> graph.is_frozen(w)
        True
        """
        for leaf in _leaves(what):
            leaf.requires_grad_(False)

    def unfreeze(self, *what: Any) -> None:
        """Store gradients for these leaves again: undoes `freeze`."""
        for leaf in _leaves(what):
            leaf.requires_grad_(True)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters that the graph uses, or fill them with zeros.

        >>> graph = ad.Graph()
        >>> w = graph.parameter(3.0)
        >>> loss = w * w
        >>> loss.backward()
        >>> graph.zero_grad()
        >>> w.grad
        """
        clear_gradients(self.parameters(), set_to_none)

    def is_frozen(self, what: Any) -> bool:
        """Whether no gradient is stored for a leaf, or any parameter of a module."""
        return all(leaf._node is None for leaf in _leaves((what,)))

    # ---- editing ---------------------------------------------------------------------------------

    def replace(self, old: Any, new: Any) -> Any:
        """Replace `old` by `new` in everything that uses it; returns `new`.

        Shapes and dtypes downstream are inferred again at once.
        Errors: GraphError for a cycle; the errors of the operations. Nothing is changed then.

        >>> graph = ad.Graph()
        >>> x = graph.input(2.0)
        >>> h = x * 3
        >>> y = h + 1
        >>> _ = graph.replace(h, x * 5)
        >>> y.item()
        11.0
        """
        with editing.transaction(self._state, single=True):
            cell = self._cell(old, "replace")
            new = self[new] if isinstance(new, str) else new
            other = input_cell(cell, new, cell)
            if isinstance(new, TensorBase):
                self._cell(new, "replace")
            editing.rewire(_using(other, cell, cell.living_users()))
        return new

    def insert_after(self, node: Any, function: Callable[[Any], Any]) -> Any:
        """Insert `function(node)` between `node` and everything that used it; returns the inserted
        node.

        Errors: as `replace`.

        >>> graph = ad.Graph()
        >>> x = graph.input(-2.0)
        >>> h = x * 3
        >>> y = h + 1
        >>> _ = graph.insert_after(h, ad.relu)
        >>> y.item()
        1.0
        """
        with editing.transaction(self._state, single=True):
            cell = self._cell(node, "insert_after")
            users = cell.living_users()
            with self:
                new = function(self[node] if isinstance(node, str) else node)
            other = self._cell(new, "insert_after")
            editing.rewire(_using(other, cell, users))
        return new

    def splice_out(self, node: Any, index: int | None = None) -> Any:
        """Remove a node between its input and its users, which use the input instead; returns the
        input. If there are several inputs, `index` chooses one.

        Errors: GraphError for a node without an input that is a tensor, or with several where none
        is said; otherwise as `replace` and `remove`.

        >>> graph = ad.Graph()
        >>> x = graph.input(2.0)
        >>> h = x * 3
        >>> y = h + 1
        >>> graph.splice_out(h) is x, y.item()
        (True, 3.0)
        """
        with editing.transaction(self._state, single=True):
            cell = self._cell(node, "splice_out")
            places = (
                range(len(cell.inputs)) if index is None else [place_of(cell, "splice_out", index)]
            )
            tensors = {x for i in places if isinstance(x := cell.inputs[i], Cell) and x.dtype}
            if len(tensors) != 1:
                raise GraphError(
                    f"splice_out: {cell.label!r} has {len(tensors)} inputs that are tensors, and "
                    "its users need one in its place; say by `index` which"
                )
            (x,) = tensors
            users = [user for user in cell.living_users() if not user.planned]
            uses = [(user, i) for user in users for i, y in enumerate(user.inputs) if y is cell]
            detached = any(cell.inputs[i] is x and i in cell.cut for i in places)
            editing.rewire(_using(x, cell, users))
            for user, i in uses if detached else ():
                user.cut = tuple(sorted({*user.cut, i}))
            self.remove(node)
        return refreshing.tensor_of(x)

    def remove(self, node: Any) -> None:
        """Remove a node that nothing uses from the graph, with its name and with what only it could
        reach (in a batch, which could undo that, when the batch ends). Reading or setting it is an
        error from then on. Recorded backward passes that contained it do not count as users; they
        are recorded anew.

        Errors: GraphError where other nodes use it, or a gradient that `autograd.grad` gave.

        >>> graph = ad.Graph()
        >>> w = graph.parameter(2.0)
        >>> y = w * 3
        >>> y.backward()
        >>> graph.remove(y)
        >>> graph.nodes == [w]
        True
        """
        state = self._state
        with editing.transaction(state, single=True):
            cell = self._cell(node, "remove")
            editing.remove(cell)
            names = self._names_of(cell)
            self._relabel(lambda name: None if name in names else name)
            if isinstance(cell, SourceCell) and cell.follows is not None:
                key = id(cell.follows)
                state.sources.pop(key, None)
                self._note_undo(lambda: state.sources.update({key: cell}))

    def users(self, node: Any) -> list[Any]:
        """The nodes that compute from `node`, except those of recorded gradients.

        >>> graph = ad.Graph()
        >>> x = graph.input(1.0)
        >>> y = x + 1
        >>> [n.node.label for n in graph.users(x)]
        ['add']
        """
        users = self._cell(node, "users").living_users()
        return [self._handle(user) for user in users if not user.planned]

    def inputs_of(self, node: Any) -> list[Any]:
        """The inputs of a node in the numbering of `set_input`: nodes, and numbers unchanged.

        >>> graph = ad.Graph()
        >>> x = graph.input(1.0)
        >>> inputs = graph.inputs_of(x * 2)
        >>> inputs[0] is x, inputs[1]
        (True, 2)
        """
        inputs = self._cell(node, "inputs_of").inputs
        return [self._handle(x) if isinstance(x, Cell) else x for x in inputs]

    def copy(self, share: bool = True) -> Graph:
        """An independent graph with the same nodes, names, values and structure of gradients.

        Inputs and parameters made by this graph are copied; tensors outside (a Module's parameters)
        are shared, unless `share` is False: then they are copied too, and the copy trains apart.
        `copy.twin(node)` is the copy of a node, and of a tensor outside.

        Errors: AutogradError for a tensor outside with a history, where it is to be copied.

        >>> graph = ad.Graph()
        >>> x = graph.input(2.0, name="x")
        >>> w = ad.nn.Parameter(ad.tensor(3.0))
        >>> y = x * w
        >>> other = graph.copy(share=False)
        >>> _ = other["x"].set(10.0), other.twin(w).set(4.0)
        >>> other.twin(y).item(), y.item()
        (40.0, 6.0)
        """
        return self._copied(share, {})

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        """`copy(share=False)`, with the copies that `memo` has of tensors outside."""
        return self._copied(False, memo)

    def __reduce__(self) -> tuple[Any, ...]:
        """The bytes of `save`."""
        file = io.BytesIO()
        self.save(file)
        return _from_bytes, (file.getvalue(),)

    def state_dict(self) -> dict[str, Any]:
        """The values of the graph's inputs and parameters, the numbers of its draws, and the state
        of its generator: what `load_state_dict` brings back into a graph that the same program has
        recorded. `utils.Checkpoint(graph=graph, model=model, ...)` keeps it with all else.

        >>> graph = ad.Graph()
        >>> x = graph.input(ad.tensor([1.0, 2.0]))
        >>> state = graph.state_dict()
        >>> _ = x.set([5.0, 6.0])
        >>> graph.load_state_dict(state)
        >>> x
        tensor([1., 2.])
        """
        from . import resuming

        return resuming.state_of(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Bring back what `state_dict` gave, here or in another process.

        Errors: CheckpointError for the state of another program's graph; nothing is changed then.
        """
        from . import resuming

        resuming.bring_back(self, state_dict)

    def _copied(self, share: bool, memo: dict[int, Any]) -> Graph:
        from ..runtime.copying import copy_cells, copy_repeats
        from . import saving  # with the files' formats, when first needed

        state = self._state
        with state.lock:
            cells = saving.lasting(self)
            new = Graph(cutoff=state.cutoff, lines=state.places)
            if self.generator is not None:
                new.generator = new.recorder.generator = self.generator.clone_state()
            apart: dict[Cell, SourceCell] = {}
            for cell in () if share else cells:
                if isinstance(cell, SourceCell) and cell.follows is not None:
                    source = source_of(new._state, copy.deepcopy(cell.follows, memo))
                    if isinstance(source, SourceCell):  # as it is outside of blocks
                        apart[cell] = source
            twins = copy_cells(cells, new._state, apart)
            generators = self.generator, new.generator
            own = None if share else functools.partial(copy.deepcopy, memo=memo)
            copy_repeats(GraphCopy(twins, generators, own))
            new._twins = {
                id(cell): (cell.reference, twin.reference) for cell, twin in twins.items()
            }
            new._twins_of = weakref.ref(state)
            named = {self._cell(tensor, "copy") for tensor in self._named.values()}
            tensors = {
                cell: new._tensor_for(cell, twin)
                for cell, twin in twins.items()
                if not twin.users or cell in named or state.derived or cell.handle() is not None
            }
            new._ends.extend(saving.ends((twins[cell], x) for cell, x in tensors.items()))
            for names, theirs in (
                (self._named, new._named),
                (self._inputs, new._inputs),
                (self._parameters, new._parameters),
            ):
                for name, tensor in names.items():
                    theirs[name] = tensors[self._cell(tensor, "copy")]
            for parts in saving.derivations(self, tensors):
                saving.derive(*parts)
        new.training = self.training
        return new

    def _tensor_for(self, cell: Cell, twin: Cell) -> Any:
        handle = cell.handle()
        if handle is None or (isinstance(cell, SourceCell) and cell.follows is not None):
            return refreshing.tensor_of(twin)
        tensor = showing(twin, type(handle))
        if handle._node is not None:
            tensor.requires_grad_()
        return tensor

    def twin(self, node: Any) -> Any:
        """In a copy of a graph: the copy of a node of the original, or of a tensor outside (which
        is the tensor itself where both graphs share it).

        Errors: GraphError for what was not there when the copy was made.
        """
        origin = self._twins_of()
        cell: Cell | None = None if origin is None else origin.sources.get(id(node))
        if cell is None:
            cell = cell_of(node, "twin")
        known, reference = self._twins.get(id(cell), (None, None))
        twin = reference() if reference is not None and known is cell.reference else None
        if twin is None:
            raise GraphError(
                f"twin: {node._data!r} was not in the graph when it was copied, or nothing uses "
                "its copy any more"
            )
        return refreshing.tensor_of(twin)

    # ---- saving ----------------------------------------------------------------------------------

    def save(self, f: Any) -> None:
        """Write the graph as one file: nodes, values, names, and the tensors outside that it uses.

        `f` is a path or a file open for writing bytes; the file is safetensors, as `adjoint.save`
        writes it. What a program holds beside the graph (hooks, modules, optimizers) is not in it.

        Errors: InvalidType for a node that a file cannot hold (a custom Function); GraphError for
        tensors outside with a history; OSError where the file cannot be written.

        >>> import io
        >>> graph, file = ad.Graph(), io.BytesIO()
        >>> y = graph.name(graph.input(2.0, name="x") * 3, "y")
        >>> graph.save(file)
        >>> _ = file.seek(0)
        >>> again = ad.Graph.load(file)
        >>> again["x"].set(10.0).item(), again["y"].item()
        (10.0, 30.0)
        """
        from . import saving

        saving.save(self, f)

    @classmethod
    def load(cls, f: Any, map_location: Any = None) -> Graph:
        """The graph stored in a file by `save`; computed values are not computed again.

        Tensors that were outside the graph are new tensors outside it; `parameters()` has those
        that are Parameters. Nothing in the file is executed. `map_location`: as in `adjoint.load`.

        Errors: CheckpointError for any other file, an incomplete or an altered one.

        >>> import io
        >>> file = io.BytesIO()
        >>> ad.Graph(seed=0).save(file)
        >>> _ = file.seek(0)
        >>> ad.Graph.load(file)
        <adjoint.Graph: 0 nodes, 0 named>
        """
        graph = cls()
        from . import saving

        saving.load(graph, f, map_location)
        return graph

    # ---- observation -----------------------------------------------------------------------------

    def events(self) -> Log:
        """A log of which nodes ran, for a `with` block; see `Log`."""
        return Log(self._state)

    def stats(self) -> dict[str, Any]:
        """Counts of nodes, with their edges, inputs, stale and released ones; of the nodes that
        compute gradients; of bytes held by all, nodes ever run, edits, backward plans; of steps,
        their ops, how many of these were reused or could not be recognised, and why not.

        >>> graph = ad.Graph()
        >>> y = graph.input(1.0) + 1
        >>> graph.stats()["nodes"], graph.stats()["stale"]
        (2, 1)
        """
        cells, gradients = self._cells()
        arrays = {id(c.array): c.array for c in (*cells, *gradients)}.values()
        return {
            "nodes": len(cells),
            "gradient_nodes": len(gradients),
            "edges": sum(len(c.cells) for c in cells),
            "inputs": sum(c.op is None for c in cells),
            "stale": sum(c.stale for c in cells),
            "released": sum(not c.stale and c.array is None and c.op is not None for c in cells),
            "bytes": sum(a.nbytes for a in arrays if isinstance(a, np.ndarray) and a.base is None),
            "runs": self._state.runs,
            "edits": self._state.edits,
            "plans": len(self.plans),
            **self.steps.counts,
            "step_unknown_because": dict(self.steps.unknown),
        }

    def check_invariants(self) -> None:
        """Check the invariants of every node; GraphError names the first node that breaks one.

        >>> ad.Graph().check_invariants()
        """
        with self._state.lock:
            assert_consistent(self._state.cells())

    def affected_by(self, node: Any) -> list[Any]:
        """The nodes that a change of `node` makes stale, in the order they would run.

        >>> graph = ad.Graph()
        >>> x = graph.input(1.0)
        >>> y = x + 1
        >>> [n.node.label for n in graph.affected_by(x)]
        ['add']
        """
        cell = self._cell(node, "affected_by")
        return [refreshing.tensor_of(c) for c in downstream([cell]) if c is not cell]

    def touch(self, node: Any) -> None:
        """Announce that the memory of an input was changed from outside, through NumPy for
        instance.
        """
        cell = self._cell(node, "touch")
        if not isinstance(cell, SourceCell):
            raise GraphError(f"touch: node {cell.label!r} is computed")
        with self._state.lock:
            state = self._state
            cell.version = state.set_last = state.changed_last = state.stamp()
            push(cell)

    def __repr__(self) -> str:
        count = len(self)
        return f"<adjoint.Graph: {count} node{'s'[: count != 1]}, {len(self._named)} named>"


def _value_or_shape(name: str, value: Any, shape: Any) -> tuple[Any, Any]:
    """Value and shape of a new source; a tuple of ints given as the value is the shape."""
    if shape is None and isinstance(value, tuple) and all(type(n) is int for n in value):
        value, shape = None, value
    if value is None and shape is None:
        raise InvalidArgument(f"{name}: give a value or a shape")
    return value, shape


def _using(new: Any, old: Cell, users: Sequence[Cell]) -> dict[Cell, tuple[Any, ...]]:
    """The inputs of `users` with `old` replaced by `new`."""
    return {user: tuple([new if x is old else x for x in user.inputs]) for user in users}


def _own_array(value: object, dtype: object) -> Any:
    """A new array with `value`, as `tensor` makes it."""
    if isinstance(value, TensorBase):
        return concrete(as_tensor(value, dtype=dtype)).copy(order="K")
    array, place = array_from(value, target(dtype), copy=True), as_device(None)
    return array if place is CPU else moved(array, place)


def _dtype(dtype: Any) -> Any:
    return get_default_dtype() if dtype is None else as_dtype(dtype)


def _leaves(what: Sequence[Any]) -> list[Any]:
    leaves: list[Any] = []
    for each in what:
        leaves.extend(each.parameters() if isinstance(each, Module) else [each])
    return leaves
