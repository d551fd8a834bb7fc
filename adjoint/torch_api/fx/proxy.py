"""Proxies: what stands for values while a graph is made, and the tracers that make its nodes."""

from __future__ import annotations

import dis
import enum
import operator
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from ...core import fork_safety
from ...core.argument_repr import argument_repr
from ...core.device import device
from ...core.dtype import dtype
from ...core.errors import AdjointError, InvalidArgument
from ...core.overrides import follow, leave
from ...ops.create.conversion import memory_format
from ...tensor import Tensor
from .graph import Graph
from .node import Argument, Node, Target, map_aggregate
from .targets import recorded_call

__all__ = [
    "Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "TraceError", "TracerBase",
]  # fmt: skip

VALUES = (
    str, int, float, bool, complex, bytes, range, dtype, device, memory_format, Tensor,
    type(None), type(...), type(NotImplemented), enum.Enum,
)  # fmt: skip


_living: set[int] = set()  # the proxies that there are, by identity
_lock = fork_safety.lock()  # again in one thread: what is collected meanwhile is a proxy, too


class TraceError(AdjointError, ValueError):
    """A program asked a symbolic value what only a number could say."""


class TracerBase:
    """Records the calls of proxies as nodes; `Tracer` follows modules, too."""

    graph: Graph
    record_stack_traces: bool = False
    check_mutable_operations: bool = False
    trace_asserts: bool = False
    proxy_buffer_attributes: bool = False
    traced_func_name: str = "forward"

    __repr__ = argument_repr

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a node to the graph; subclasses may do more."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        """A proxy of a node's value."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Add a node whose arguments are the proxies' nodes, and return a proxy of it."""
        given = self.create_arg(args)
        named = self.create_arg(kwargs)
        node = self.create_node(kind, target, given, dict(named), name, type_expr)
        if self.record_stack_traces and node.stack_trace is None:
            frames = traceback.extract_stack(sys._getframe(1))
            package = __name__.partition(".")[0]
            users = [f for f in frames if f"/{package}/" not in f.filename.replace("\\", "/")]
            node.stack_trace = "".join(traceback.format_list(users))
        return self.proxy(node) if proxy_factory_fn is None else proxy_factory_fn(node)

    def create_arg(self, a: Any) -> Argument:
        """A value of the traced program as an argument of a node.

        Errors: NotImplementedError for what no node may have.
        """
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return type(a)(*[self.create_arg(each) for each in a])
        if isinstance(a, (tuple, list)):
            found = [self.create_arg(each) for each in a]
            return tuple(found) if isinstance(a, tuple) else found
        if isinstance(a, dict):
            return {self._key(key): self.create_arg(value) for key, value in a.items()}
        if isinstance(a, slice):
            return slice(*[self.create_arg(each) for each in (a.start, a.stop, a.step)])
        if isinstance(a, range):
            return range(*[self.create_arg(each) for each in (a.start, a.stop, a.step)])
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if is_dataclass(a) and not isinstance(a, type):
            named = {each.name: self.create_arg(getattr(a, each.name)) for each in fields(a)}
            return self.create_node("call_function", type(a), (), named)
        if isinstance(a, (*VALUES, Node)):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _key(self, key: Any) -> Any:
        def refuse(each: Any) -> Any:
            if isinstance(each, Node):
                raise InvalidArgument(
                    f"Keys for dictionaries used as an argument cannot contain a Node. Got key: "
                    f"{key}"
                )
            return each

        return map_aggregate(self.create_arg(key), refuse)

    def to_bool(self, obj: Proxy) -> bool:
        """A proxy is asked whether it is true.

        Errors: TraceError, unless a subclass knows.
        """
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """A proxy is asked for its items.

        Errors: TraceError, unless a subclass knows.
        """
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a "
            "loop or as a *args or **kwargs function argument: how many items there are is not "
            "known while tracing; index it, unpack it into names, or wrap the function by fx.wrap"
        )

    def keys(self, obj: Proxy) -> Any:
        """A proxy is asked for its keys."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """A tracer that adds to a graph that there is."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph


class Proxy:
    """Stand-in for the value of a node: operations on it become nodes.

    Source: https://docs.pytorch.org/docs/stable/fx.html#torch.fx.Proxy

    >>> graph = ad.fx.Graph()
    >>> x = ad.fx.Proxy(graph.placeholder("x"))
    >>> y = ad.relu(x).sum() * 2
    >>> list(graph.nodes), y
    ([x, relu, sum_1, mul], Proxy(mul))
    """

    node: Node

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """An instance that is counted: public functions look for proxies only while some exist."""
        made = super().__new__(cls)
        with _lock:
            _living.add(id(made))
            follow(Proxy)
        return made

    def __del__(self) -> None:
        with _lock:
            _living.discard(id(self))
            if not _living:
                leave(Proxy)

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        if name in ("_data", "_node", "_leaf", "_changes", "_view"):
            raise TraceError(
                f"a symbolically traced variable has no value ({name}), which this function of "
                "adjoint's reads; mark the function around it with fx.wrap"
            )
        if name == "node":  # not made yet: copies, pickles
            raise AttributeError(name)
        return Attribute(self, name)

    def __deepcopy__(self, memo: Any) -> Proxy:
        raise TraceError("a symbolically traced variable cannot be copied; copy the graph")

    def __reduce__(self) -> Any:
        raise TraceError("a symbolically traced variable cannot be pickled; pickle the graph")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Records a call of the value."""
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        frame = sys._getframe(1)
        for each in dis.get_instructions(frame.f_code):
            if each.offset == frame.f_lasti and each.opname == "UNPACK_SEQUENCE":
                return (self[i] for i in range(each.argval))
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be "
            "recorded, please call torch.fx.wrap('len') at module scope"
        )

    def keys(self) -> Any:
        """Records a call of `keys`, for a value that is a dict."""
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        tracers: dict[TracerBase, None] = {}

        def noted(each: Any) -> Any:
            if isinstance(each, Proxy):
                tracers[each.tracer] = None
            return each

        kwargs = kwargs or {}
        map_aggregate(args, noted)
        map_aggregate(kwargs, noted)
        if len({id(each.graph) for each in tracers}) > 1:
            raise TraceError(
                f"Found multiple different tracers {list(tracers)} while trying to trace operations"
            )
        tracer = next(iter(tracers))
        kind, target, args, kwargs = recorded_call(function, args, kwargs)
        return tracer.create_proxy(kind, target, args, kwargs)

    if False:  # operators are attached below  # pragma: no cover

        def __getitem__(self, item: Any) -> Any: ...


class Attribute(Proxy):
    """An attribute of what a proxy stands for: a node once it is used, a method if it is called."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root = root
        self.attr = attr
        self.tracer = root.tracer
        self._made: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node that reads the attribute."""
        if self._made is None:
            made = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {})
            self._made = made.node
        return self._made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The method is called."""
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A parameter whose shape is known while tracing."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        self.param = param
        self.name = name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        """The parameter's shape."""
        return self.param.shape

    def size(self, *args: Any) -> Any:
        """The parameter's size."""
        return self.param.size(*args)

    def dim(self) -> int:
        """The number of the parameter's dimensions."""
        return int(self.param.dim())

    @property
    def ndim(self) -> int:
        """The number of the parameter's dimensions."""
        return int(self.param.ndim)

    def numel(self) -> int:
        """The number of the parameter's elements."""
        return int(self.param.numel())

    nelement = numel


def _operator(function: Any, reflected: bool = False) -> Any:
    def operated(self: Proxy, *others: Any) -> Any:
        args = (*others, self) if reflected else (self, *others)
        return self.tracer.create_proxy("call_function", function, args, {})

    return operated


for _name in (
    "add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "lshift", "rshift", "and", "or",
    "xor", "matmul", "eq", "ne", "lt", "gt", "le", "ge", "getitem", "neg", "pos", "invert", "abs",
):  # fmt: skip
    _function = getattr(operator, _name, None) or getattr(operator, f"{_name}_")
    setattr(Proxy, f"__{_name}__", _operator(_function))
for _name in (
    "add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "lshift", "rshift", "and", "or",
    "xor", "matmul",
):  # fmt: skip
    _function = getattr(operator, _name, None) or getattr(operator, f"{_name}_")
    setattr(Proxy, f"__r{_name}__", _operator(_function, reflected=True))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]
