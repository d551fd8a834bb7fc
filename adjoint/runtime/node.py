"""The history of values: Node (how computed), Version (when changed), View (whose storage)."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from numpy import ndarray

from ..core.errors import AutogradError, InvalidType
from ..core.handles import RemovableHandle, register
from ..core.op import Op
from ..core.overrides import ask_again
from ..core.tensor_base import TensorBase

if TYPE_CHECKING:
    import numpy as np

    from ..core.protocols import Watcher
    from ..core.tensor_type import Tensor

next_order: Callable[[], int] = itertools.count(1).__next__  # atomic, also interpreted


class Version:
    """Change counter of one storage, shared by all tensors that show it."""

    __slots__ = (
        "__weakref__", "changed_by", "contents", "count", "exported", "views", "watchers",
    )  # fmt: skip

    count: int
    changed_by: str  # the op that made the last change
    exported: bool  # others know the memory (NumPy, DLPack), and may write to it unseen
    # What a graph has recorded of what it holds (autograd.graph_writes), while its block lasts
    contents: Any
    views: list[weakref.ref[Any]] | None  # live tensors that are views of the storage
    watchers: list[weakref.ref[Any]] | None  # recorded values that depend on what it holds

    def __init__(self) -> None:
        self.count = 0
        self.changed_by = ""
        self.exported = False
        self.contents = None
        self.views = None
        self.watchers = None

    def bump(self, changed_by: str) -> None:
        """Count a change, and notify the watchers."""
        self.count += 1
        self.changed_by = changed_by
        if self.watchers is not None:
            for reference in self.watchers:
                watcher = reference()
                if watcher is not None:
                    watcher.changed()

    def recover(self) -> None:
        """Called when a gradient needs the storage as it was at another count. A subclass that has
        saved the contents restores them, and the count.
        """

    def watch(self, watcher: Watcher) -> None:
        """Tell `watcher` before (`before_change`) and after (`changed`) each change."""
        live = [r for r in self.watchers or () if r() is not None]
        self.watchers = [*live, weakref.ref(watcher)]

    def before_change(self) -> None:
        """Notify the watchers before a write to the storage: those that need its contents copy
        them.
        """
        live = []
        for reference in self.watchers or ():
            watcher = reference()
            if watcher is not None and not watcher.before_change():
                live.append(reference)
        self.watchers = live or None


INFERENCE = Version()  # stands for "no version is kept": a value that autograd may never save


class View:
    """How a tensor views storage: its tensor is `ops` applied to `base`."""

    __slots__ = ("above", "alias", "base", "detached", "op", "refusal")

    base: Any  # a Tensor that is no view itself
    above: View | None  # of the tensor that `op` was applied to; None where that is the base
    op: Op
    refusal: str  # "" or the reason why writing through this view is refused
    detached: bool  # a detached alias of a view, or a view of one: it has no history of the base's
    alias: Any  # of what detached alias this is a view; None where it is that alias, or none

    def __init__(self, base: TensorBase, above: View | None, op: Op, refusal: str = "") -> None:
        self.detached = False
        self.alias = None
        self.base = base
        self.above = above
        self.op = op
        self.refusal = refusal

    @property
    def ops(self) -> tuple[Op, ...]:
        """The ops that lead from the base to here."""
        ops = []
        view: View | None = self
        while view is not None:
            ops.append(view.op)
            view = view.above
        return tuple(reversed(ops))

    @property
    def owner(self) -> Any:
        """The tensor of whose history this one's is a part; None for a detached alias, which has
        its own.
        """
        return self.alias if self.detached else self.base

    @property
    def ops_of_owner(self) -> tuple[Op, ...]:
        """The ops that lead from the owner to here."""
        if not self.detached:
            return self.ops
        return () if self.alias is None else self.ops[len(self.alias._view.ops) :]


RELEASED: Any = ("released",)


class Target:
    """The end of a gradient edge: a node, or a leaf."""

    __slots__ = ("__weakref__", "data_type", "extra", "order", "shape")

    shape: tuple[int, ...]  # of the value whose gradient it is; () where there are several outputs
    data_type: Any  # the dtype of its array
    order: int  # grows with creation: greater than that of every parent
    extra: Extra | None

    def get_extra(self) -> Extra:
        """The rare attributes, made when first asked for."""
        if self.extra is None:
            self.extra = Extra()
        return self.extra

    def computing(self) -> Target:
        """The node that a backward runs: for one of several outputs, the node of all."""
        return self

    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call `fn(grad_outputs)` before this node runs in a backward, with a tuple of its incoming
        gradients (None where there is none); it may return a replacement of the tuple.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.graph.Node.register_prehook.html

        >>> x = ad.ones(1, requires_grad=True)
        >>> y = x * 2
        >>> handle = y.grad_fn.register_prehook(lambda gradients: (gradients[0] * 10,))
        >>> y.backward()
        >>> x.grad
        tensor([20.])
        """
        return register(self.computing().get_extra().prehooks, fn)

    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call `fn(grad_inputs, grad_outputs)` after this node has run in a backward, with tuples
        of the gradients of its inputs (None for those that require none) and of its outputs; it may
        return a replacement of the former. (A leaf has no inputs; its gradient has been stored by
        then.)

        Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.graph.Node.register_hook.html

        >>> x = ad.ones(1, requires_grad=True)
        >>> y = x * 2
        >>> handle = y.grad_fn.register_hook(lambda inputs, outputs: print(inputs, outputs))
        >>> y.backward()
        (tensor([2.]), None) (tensor([1.]),)
        """
        return register(self.computing().get_extra().posthooks, fn)

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for whatever belongs to this node.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.graph.Node.metadata.html

        >>> node = (ad.ones(1, requires_grad=True) * 2).grad_fn
        >>> node.metadata["made by"] = "me"
        >>> node.name(), node.metadata
        ('MulBackward0', {'made by': 'me'})
        """
        extra = self.computing().get_extra()
        if extra.metadata is None:
            extra.metadata = {}
        return extra.metadata


class Node(Target):
    """A recorded op in the autograd graph: its parents, and the values that its gradient reads."""

    __slots__ = ("op", "parents", "saved", "versions")

    runs_undefined = False  # run even where no gradient reaches it

    op: Op
    parents: tuple[Any, ...]  # Node, Leaf or None for each input
    saved: tuple[Any, ...]  # aligned with op.tokens; RELEASED once a backward has used them
    versions: tuple[Any, ...] | None  # of `saved` when it was saved; None: all zero

    def __init__(
        self,
        op: Op,
        parents: tuple[Any, ...],
        saved: tuple[Any, ...],
        versions: tuple[int, ...] | None,
        shape: tuple[int, ...],
        data_type: np.dtype | None,
    ) -> None:
        self.op = op
        self.parents = parents
        self.saved = saved
        self.versions = versions
        self.shape = shape
        self.data_type = data_type
        self.order = next_order()
        self.extra = None

    def computing(self) -> Target:
        """The node that a backward runs: for one of several outputs, the node of all."""
        return self.parents[0] if isinstance(self.op, Item) else self

    def name(self) -> str:
        """The op's class name in PyTorch's form, as `repr(tensor)` shows it."""
        if isinstance(self.op, Item):
            return str(self.parents[0].name())
        return f"{type(self.op).__name__}Backward0"

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The nodes of the inputs, in PyTorch's format of (node, output number)."""
        return tuple((parent, 0) for parent in self.parents)

    def __getattr__(self, name: str) -> Any:  # saved values by PyTorch's names
        from .saved import saved_attribute

        return saved_attribute(self, name)

    def __dir__(self) -> list[str]:
        from .saved import names_of

        return [*object.__dir__(self), *(f"_saved_{name}" for name in names_of(self.computing()))]

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"

    def values(self) -> tuple[Any, ...]:
        """The saved values; AutogradError where they were released or have changed since."""
        saved = self.saved
        if saved is RELEASED:
            raise AutogradError(
                f"{self.op.name}: Trying to backward through the graph a second time; the values "
                "it saved were released by the first backward. Pass retain_graph=True to the "
                "first backward (or compute the forward again)"
            )
        if not self.op.keeps_values:
            return saved
        if self.op.output_again is not None:
            saved = self._with_output(saved)
        versions = self.versions
        packed = False
        for i, value in enumerate(saved):
            if isinstance(value, TensorBase):
                version = value._changes
                if version is not None:
                    expected = 0 if versions is None else versions[i]
                    if version.count != expected:
                        assert_unchanged(self.op.name, value, expected)
            elif type(value) is tuple:
                for j, each in enumerate(value):
                    if type(each) is Packed:
                        packed = True
                    else:
                        assert_unchanged(
                            self.op.name, each, 0 if versions is None else versions[i][j]
                        )
            elif type(value) is Packed:
                packed = True
        return tuple(map(unpacked, saved)) if packed else saved

    def _with_output(self, saved: tuple[Any, ...]) -> tuple[Any, ...]:
        """The saved values with the output recomputed, if it was written to since. Not if a capture
        cannot tell whether the write went through `data`: then the memory counts as it is.
        """
        place = self.op.tokens.index("y")
        value = saved[place]
        outputs = value if type(value) is tuple else (value,)
        versions = [getattr(y, "_changes", None) for y in outputs]
        if all(version is None or version.count == 0 for version in versions):
            return saved
        for y, version in zip(outputs, versions, strict=True):
            if version is not None and version.exported and type(y._data) is not ndarray:
                return saved
        again: Any = self.op.output_again
        return (*saved[:place], again(*saved[:place]), *saved[place + 1 :])

    def release(self) -> None:
        """Drop the saved values."""
        if self.op.keeps_values:
            self.saved = RELEASED


def new_node(
    op: Op,
    parents: tuple[Any, ...],
    saved: tuple[Any, ...],
    versions: tuple[Any, ...] | None,
    shape: tuple[int, ...],
    data_type: np.dtype | None,
) -> Node:  # the arguments of `Node`, in the shortest way
    """`Node(...)` without the cost of calling a type."""
    node = Node.__new__(Node)
    node.op = op
    node.parents = parents
    node.saved = saved
    node.versions = versions
    node.shape = shape
    node.data_type = data_type
    node.order = next_order()
    node.extra = None
    return node


def assert_unchanged(name: str, value: Any, expected: int) -> None:
    """Refuse a saved tensor that is not at the expected version (values without a version pass)."""
    version = getattr(value, "_changes", None)
    if version is not None and version.count != expected:
        version.recover()
        if version.count == expected:
            return
        raise AutogradError(
            f"{name}: one of the variables needed for gradient computation has been modified by an "
            f"inplace operation: a tensor of shape {tuple(value.shape)} saved at version "
            f"{expected} is at version {version.count}, last changed by {version.changed_by!r}. "
            "Clone it before changing it, or use the operation that is not in place"
        )


def _levels_of_tangents(data: Any) -> tuple[object, ...]:
    """The levels of forward mode at which a value has a tangent."""
    levels = []
    while hasattr(type(data), "inner"):  # its class is asked: a recorded value would be computed
        if getattr(data, "tangent", None) is not None:
            levels.append(data.level)
        data = data.inner._data
    return tuple(levels)


class Packed:
    """A saved tensor as packed by `saved_tensors_hooks`."""

    __slots__ = ("levels", "node", "packed", "unpack_hook")

    def __init__(self, tensor: TensorBase, node: object, hooks: tuple[Any, Any]) -> None:
        self.levels = _levels_of_tangents(tensor._data)
        self.packed = hooks[0](tensor)
        self.unpack_hook = hooks[1]
        self.node = node  # of the tensor that was saved; None for an output of the saving node

    def unpack(self) -> TensorBase:
        """The tensor that the unpack hook returns, with the history of the saved one."""
        y = ask_again(self.unpack_hook, self.packed)
        if not isinstance(y, TensorBase):
            raise InvalidType(
                "saved_tensors_hooks: output of saved tensor unpack_hook expected to be a Tensor "
                f"but got result of type {type(y).__name__}"
            )
        if self.levels:
            kept = _levels_of_tangents(y._data)
            wanted = [level for level in self.levels if not getattr(level, "closed", False)]
            if any(level not in kept for level in wanted):
                raise AutogradError(
                    "saved_tensors_hooks: the tensor that unpack_hook returned lacks the tangent "
                    "of the saved one (func.jvp, jacfwd, hessian, forward_ad), and derivatives "
                    "would be lost; use reverse mode alone (jacrev of jacrev), or no hooks"
                )
        z = TensorBase.__new__(type(y))
        z._data, z._changes, z._node, z._leaf, z._view = y._data, y._changes, self.node, None, None
        return z


def unpacked(value: object) -> Any:
    """A saved value for the gradient rule: packed tensors are unpacked."""
    if type(value) is tuple:
        return tuple(map(unpacked, value))
    return value.unpack() if type(value) is Packed else value


class Extra:
    """Rare attributes of nodes: hooks and the like."""

    __slots__ = ("hooks", "metadata", "posthooks", "prehooks", "retained", "traceback")

    hooks: dict[int, Callable[..., Any]]  # on the gradient that flows into the node
    prehooks: dict[int, Callable[..., Any]]  # on all incoming gradients, as a tuple
    posthooks: dict[int, Callable[..., Any]]  # on incoming and outgoing gradients
    metadata: dict[Any, Any] | None  # the user's
    retained: Any  # Leaf of the tensor that retains the incoming gradient (`retain_grad`)
    traceback: str | None  # where the node was made, in anomaly mode

    def __init__(self) -> None:
        self.hooks = {}
        self.prehooks = {}
        self.posthooks = {}
        self.metadata = None
        self.retained = None
        self.traceback = None


class Leaf(Target):
    """The end of a chain of nodes: the incoming gradient is accumulated here as the tensor's
    `.grad`.
    """

    __slots__ = ("after", "grad", "place", "tensor")

    grad: Any  # Tensor or None
    place: Any  # Tensor in whose memory a gradient begins, where it fits; None: in its own
    tensor: weakref.ref[Any]
    after: dict[int, Callable[..., Any]] | None  # called with the tensor once `grad` is up to date

    def __init__(self, tensor: TensorBase) -> None:
        data = tensor._data
        self.grad = None
        self.place = None
        self.tensor = weakref.ref(tensor)
        self.after = None
        self.shape = tuple(data.shape)
        self.data_type = data.dtype
        self.order = next_order()
        self.extra = None

    parents: tuple[Any, ...] = ()

    @property
    def variable(self) -> Tensor | None:
        """The tensor, while it lives."""
        return self.tensor()

    def name(self) -> str:
        """The name in PyTorch's form."""
        return "torch::autograd::AccumulateGrad"

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self):#x}>"


class Item(Op, abstract=True):
    """The op that selects output number `index` of a node with several outputs (bookkeeping, never
    run).
    """

    def __init__(self, index: int) -> None:
        self.index = index

    def compute(self, xp: Any, *outputs: Any) -> Any:
        """The output of that number."""
        return outputs[0][self.index]

    def gradient(self, g: Any) -> tuple[Any, ...]:
        """Never called: the engine handles items itself."""
        raise AssertionError("Item.gradient is never called")
