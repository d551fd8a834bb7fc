"""Node: one line of a graph."""

from __future__ import annotations

import builtins
import operator
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ...core.errors import InvalidArgument
from .immutable_collections import immutable_dict, immutable_list
from .targets import SIDE_EFFECTS, shown_target

if TYPE_CHECKING:
    from .graph import Graph

__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg"]

Target = Any  # a function, or the name of a method, a module or an attribute
Argument = Any  # a node, a value, or containers of them

OPS = (
    "placeholder", "get_attr", "call_function", "call_module", "call_method", "output", "root",
)  # fmt: skip


def map_aggregate(a: Argument, fn: Callable[[Argument], Argument]) -> Argument:
    """`a` with `fn` of all that is in its tuples, lists, dicts and slices.

    >>> ad.fx.node.map_aggregate([1, (2, {"k": 3})], lambda x: x + 1)
    [2, (3, {'k': 4})]
    """
    if isinstance(a, tuple):
        found = [map_aggregate(each, fn) for each in a]
        return type(a)(*found) if hasattr(a, "_fields") else tuple(found)
    if isinstance(a, list):
        return immutable_list([map_aggregate(each, fn) for each in a])
    if isinstance(a, dict):
        return immutable_dict((key, map_aggregate(value, fn)) for key, value in a.items())
    if isinstance(a, slice):
        return slice(*[map_aggregate(each, fn) for each in (a.start, a.stop, a.step)])
    return fn(a)


def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Argument:
    """`a` with `fn` of each node in it.

    >>> x = ad.fx.Graph().placeholder("x")
    >>> ad.fx.map_arg([x, 1], lambda node: node.name)
    ['x', 1]
    """
    if not callable(fn):
        raise InvalidArgument("map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda each: fn(each) if isinstance(each, Node) else each)


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Keep calls of a function from the elimination of dead code; a decorator.

    >>> @ad.fx.has_side_effect
    ... def said(x): print(x)
    >>> ad.fx.Graph().call_function(said).is_impure()
    True
    """
    SIDE_EFFECTS.add(fn)
    return fn


_IN_PLACE = {
    operator.setitem, operator.delitem, operator.iadd, operator.iand, operator.ifloordiv,
    operator.ilshift, operator.imatmul, operator.imod, operator.imul, operator.ior, operator.ipow,
    operator.irshift, operator.isub, operator.itruediv, operator.ixor,
}  # fmt: skip


class Node:
    """One line of a graph: an op (`placeholder`, `get_attr`, `call_function`, `call_module`,
    `call_method`, `output`) with its target and arguments; where another node is an argument, it is
    the node itself.

    Source: https://docs.pytorch.org/docs/stable/fx.html#torch.fx.Node

    >>> graph = ad.fx.Graph()
    >>> x = graph.placeholder("x")
    >>> y = graph.call_method("relu", (x,))
    >>> y.op, y.target, y.args, list(x.users)
    ('call_method', 'relu', (x,), [relu])
    """

    graph: Graph
    name: str
    op: str
    target: Target
    users: dict[Node, None]  # those that have it as an argument, in order of their making
    type: Any  # an annotation
    meta: dict[str, Any]  # what passes note

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        return_type: Any = None,
    ) -> None:
        if op not in OPS:
            raise AssertionError(f"op '{op}' is not in {OPS}")
        if op == "call_function":
            if not callable(target):
                raise InvalidArgument(
                    f"Node [name = {name!r}] target {target} has type "
                    f"{builtins.type(target).__name__} but a Callable is expected"
                )
        elif not isinstance(target, str):
            raise InvalidArgument(
                f"Node [name = {name!r}] target {target} has type "
                f"{builtins.type(target).__name__} but a str is expected"
            )
        self.graph = graph
        self.name = name
        self.op = op
        self.target = target
        self.users = {}
        self.type = return_type
        self.meta = {}
        self._inputs: dict[Node, None] = {}
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = immutable_dict()
        self._prev = self._next = self
        self._erased = False
        self._update(args, kwargs)

    # ---- its place -----------------------------------------------------------------------------

    @property
    def next(self) -> Node:
        """The node behind this one; behind the last is the graph's root."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move `x` to the place before this node.

        >>> graph = ad.fx.Graph()
        >>> a, b = graph.placeholder("a"), graph.placeholder("b")
        >>> a.prepend(b); list(graph.nodes)
        [b, a]
        """
        if x.graph is not self.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if x is self:
            return
        x._leave()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x

    def append(self, x: Node) -> None:
        """Move `x` to the place behind this node."""
        if x is not self:
            self._next.prepend(x)

    def _leave(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    # ---- its arguments ---------------------------------------------------------------------------

    @property
    def args(self) -> tuple[Argument, ...]:
        """The arguments by position; may be assigned."""
        return self._args

    @args.setter
    def args(self, args: tuple[Argument, ...]) -> None:
        self._update(args, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """The arguments by name; may be assigned."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Argument]) -> None:
        self._update(self._args, kwargs)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among its arguments, each once."""
        return list(self._inputs)

    def _update(self, args: Iterable[Argument], kwargs: dict[str, Argument]) -> None:
        inputs: dict[Node, None] = {}

        def noted(node: Node) -> Node:
            inputs[node] = None
            return node

        new_args = map_arg(tuple(args), noted)
        new_kwargs = map_arg(dict(kwargs), noted)
        for old in self._inputs:
            old.users.pop(self, None)
        self._args, self._kwargs, self._inputs = new_args, new_kwargs, inputs
        for node in inputs:
            node.users.setdefault(self)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Change the argument at a place."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Put an argument before the one at a place."""
        if not 0 <= idx <= len(self._args):
            raise AssertionError(
                f"insert_args index must be between 0 and len(self.args) {len(self._args)}"
            )
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Change, or add, the argument of a name."""
        self.kwargs = {**self._kwargs, key: arg}

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] = lambda user: True,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Replace this node by another in all its users; `delete_user_cb` says of which users.
        Returns those that changed.

        >>> graph = ad.fx.Graph()
        >>> a, b = graph.placeholder("a"), graph.placeholder("b")
        >>> c = graph.call_method("neg", (a,))
        >>> a.replace_all_uses_with(b), c.args
        ([neg], (b,))
        """
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError(
                    "Called node.replace_all_uses_with(replace_with, propagate_meta=True), but "
                    "replace_with already has .meta keys"
                )
            replace_with.meta.update(self.meta)
        changed = [user for user in self.users if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Use `new_input` wherever `old_input` is among the arguments."""

        def replaced(node: Node) -> Node:
            return new_input if node is old_input else node

        self._update(map_arg(self._args, replaced), map_arg(self._kwargs, replaced))

    # ---- what it is ------------------------------------------------------------------------------

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether it does more than give a value, so that it stays where nobody uses it: inputs and
        outputs, writes in place, and what `has_side_effect` declared.
        """
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            return self.target in SIDE_EFFECTS or self.target in _IN_PLACE
        if self.op == "call_method":
            return self.target.endswith("_") and not self.target.endswith("__")
        if self.op == "call_module":
            module = self.graph.owning_module
            if module is None:
                raise AssertionError("self.graph.owning_module not set for purity check")
            try:
                return getattr(module.get_submodule(self.target), "_is_impure", False)
            except AttributeError:
                raise AssertionError(
                    f"Did not find expected submodule target {self.target}"
                ) from None
        return False

    @property
    def stack_trace(self) -> str | None:
        """The place in the traced program that made the node, if the tracer recorded that."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """The line that it is in `print(graph)`.

        >>> x = ad.fx.Graph().placeholder("x")
        >>> x.format_node()
        '%x : [num_users=0] = placeholder[target=x]'
        """
        from .codegen import type_repr

        kind = f"{type_repr(self.type)} " if self.type is not None else ""
        if self.op == "output":
            if self.type is not None and maybe_return_typename is not None:
                maybe_return_typename[0] = f" -> {type_repr(self.type)}"
            return f"return {self.args[0]}"
        head = f"%{self.name} : {kind}[num_users={len(self.users)}] = {self.op}"
        target = f"[target={shown_target(self.target)}]"
        if self.op == "placeholder":
            if placeholder_names is not None:
                placeholder_names.append(f"{self.target}{f' : {kind}'.rstrip() if kind else ''}")
            default = f"(default={self.args[0]})" if self.args else ""
            return head + target + default
        if self.op == "get_attr":
            return head + target
        return f"{head}{target}(args = {_shown(self.args)}, kwargs = {_shown(self.kwargs)})"

    def _rename(self, candidate: str) -> None:
        """Take a name like `candidate`, as far as it is free."""
        if candidate != self.name:
            self.name = self.graph._graph_namespace.create_name(candidate, None)

    def __repr__(self) -> str:
        return self.name

    def __lt__(self, other: Node) -> bool:
        return self._place() < other._place()

    def __gt__(self, other: Node) -> bool:
        return self._place() > other._place()

    def _place(self) -> int:
        return next(i for i, node in enumerate(self.graph.nodes) if node is self)


def _shown(arg: Argument) -> str:
    if isinstance(arg, Node):
        return f"%{arg.name}"
    if isinstance(arg, list):
        return f"[{', '.join(map(_shown, arg))}]"
    if isinstance(arg, tuple):
        return f"({', '.join(map(_shown, arg))}{',' if len(arg) == 1 else ''})"
    if isinstance(arg, dict):
        return f"{{{', '.join(f'{key}: {_shown(value)}' for key, value in arg.items())}}}"
    if isinstance(arg, (types.FunctionType, types.BuiltinFunctionType)):
        return shown_target(arg)
    return str(arg)
