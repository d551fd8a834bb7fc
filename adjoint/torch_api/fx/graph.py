"""Graph: nodes in order, and what changes them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from ...core.errors import AdjointError, InvalidArgument
from . import targets
from .codegen import CodeGen, Namespace, PythonCode
from .node import Argument, Node, Target, map_aggregate, map_arg

__all__ = ["CodeGen", "Graph", "Namespace", "PythonCode"]

_NONE: Any = object()


class _Nodes:
    """The nodes of a graph in order; those that are added or erased meanwhile are met."""

    def __init__(self, graph: Graph, backward: bool = False) -> None:
        self._graph = graph
        self._backward = backward

    def __len__(self) -> int:
        return self._graph._count

    def __iter__(self) -> Iterator[Node]:
        root = self._graph._root
        node = root._prev if self._backward else root._next
        while node is not root:
            if not node._erased:
                yield node
            node = node._prev if self._backward else node._next

    def __reversed__(self) -> _Nodes:
        return _Nodes(self._graph, not self._backward)

    def __repr__(self) -> str:
        return repr(list(self))


class _InsertPoint:
    """Point at which new nodes are inserted; inside a `with`, only there."""

    def __init__(self, graph: Graph, insert: Callable[[Node], None]) -> None:
        self.graph = graph
        self.former, graph._insert = graph._insert, insert

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        self.graph._insert = self.former


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


class Graph:
    """A function's computation, as a list of nodes that programs may change.

    `symbolic_trace` makes one of a function or a module; `GraphModule` runs it.

    Source: https://docs.pytorch.org/docs/stable/fx.html#torch.fx.Graph

    >>> graph = ad.fx.Graph()
    >>> x = graph.placeholder("x")
    >>> y = graph.call_function(ad.relu, (x,))
    >>> _ = graph.output(y)
    >>> print(graph)
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %relu : [num_users=1] = call_function[target=adjoint.relu](args = (%x,), kwargs = {})
        return relu
    >>> ad.fx.GraphModule({}, graph)(ad.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def __init__(
        self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: Any = None
    ) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._count = 0
        self._insert: Callable[[Node], None] = self._root.prepend
        self._graph_namespace = Namespace()
        self.owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self._codegen = CodeGen()

    @property
    def nodes(self) -> Any:
        """The nodes in order; `reversed(graph.nodes)` is the other way."""
        return _Nodes(self)

    def output_node(self) -> Node:
        """The node of the return value."""
        last = next(iter(reversed(self.nodes)), None)
        if last is None or last.op != "output":
            raise AssertionError("the graph has no output node at its end")
        return last

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """The nodes of an op, and of a target where one is given.

        >>> graph = ad.fx.symbolic_trace(lambda x: x.relu() + 1).graph
        >>> graph.find_nodes(op="call_method", target="relu")
        [relu]
        """
        if op == "call_function" and target is None:
            raise AssertionError("find_nodes: a call_function has a target")
        return [
            node
            for node in self.nodes
            if node.op == op and (target is None or node.target == target)
        ]

    # ---- making nodes ----------------------------------------------------------------------------

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a node at the insertion point, at the end unless said otherwise."""
        args = () if args is None else args
        kwargs = {} if kwargs is None else kwargs
        if not isinstance(args, tuple) or not isinstance(kwargs, dict):
            raise InvalidArgument("create_node: args must be a tuple, and kwargs a dict")
        candidate = name if name is not None else self._target_to_str(target)
        node = Node(self, "", op, target, (), {}, type_expr)
        node.name = self._graph_namespace.create_name(candidate, None)
        self._graph_namespace.associate(node.name, node)
        node._update(args, kwargs)
        self._insert(node)
        self._count += 1
        return node

    def _target_to_str(self, target: Any) -> str:
        if callable(target):
            name = str(getattr(target, "__name__", type(target).__name__))
            place = targets.home(target)
            first, _, last = place.rpartition(".")
            if first in ("linalg", "fft", "special"):
                name = f"{first}_{last}"
        else:
            name = target
        if name.startswith("__") and name.endswith("__"):
            name = name[2:-2]
        return _snake_case(name)

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = _NONE) -> Node:
        """Add an input of the function.

        >>> ad.fx.Graph().placeholder("x", default_value=3).args
        (3,)
        """
        if not name.lstrip("*").isidentifier():
            raise InvalidArgument(f"placeholder: {name!r} is no name of an argument")
        args = () if default_value is _NONE else (default_value,)
        return self.create_node(
            "placeholder", name, args, name=name.replace("*", "_", 1).replace("*", "")
            if name.startswith("*") else None, type_expr=type_expr
        )  # fmt: skip

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """Add a node that reads what the module has under a name: a parameter, a buffer."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a call of a module that the owning module has under a name."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a call of a method of the first of `args`."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        """Add a call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """Add the node that says what the function returns."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(
        self, node: Node, arg_transform: Callable[[Node], Argument] = lambda node: node
    ) -> Node:
        """Add a copy of a node, of another graph perhaps; `arg_transform` gives the nodes of this
        graph that stand for its arguments.
        """
        args = map_arg(node.args, arg_transform)
        kwargs = map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False
    ) -> Any:
        """Add copies of all nodes of a graph but its output, whose argument is returned; `val_map`
        gives nodes of this graph that stand for some of its, and gets the others.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                value = map_arg(node.args[0], lambda each: val_map[each])
                return (value, node) if return_output_node else value
            val_map[node] = self.node_copy(node, lambda each: val_map[each])
        return None

    # ---- changing --------------------------------------------------------------------------------

    def erase_node(self, to_erase: Node) -> None:
        """Take a node away that nobody uses.

        Errors: RuntimeError where there are users.
        """
        if to_erase.graph is not self:
            raise MalformedGraph(f"erase_node: {to_erase} is of another graph")
        if to_erase.users:
            raise MalformedGraph(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in "
                f"the graph: {to_erase.users}!"
            )
        if to_erase._erased:
            raise MalformedGraph(f"erase_node: {to_erase} is erased already")
        to_erase._leave()
        to_erase._erased = True
        self._count -= 1
        to_erase._update((), {})

    def inserting_before(self, n: Node | None = None) -> Any:
        """Insert new nodes before a node (None: to the beginning); as a `with`, inside it.

        >>> graph = ad.fx.Graph()
        >>> x = graph.placeholder("x")
        >>> with graph.inserting_before(x):
        ...     y = graph.placeholder("y")
        >>> list(graph.nodes)
        [y, x]
        """
        if n is None:
            return self.inserting_after(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        return _InsertPoint(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> Any:
        """Insert new nodes right behind a node (None: to the end): of several the last comes first,
        as in PyTorch.
        """
        if n is None:
            return self.inserting_before(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert after is not in graph.")
        return _InsertPoint(self, n.append)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Take away nodes that nobody uses and that do nothing else; whether there were any.

        Writes in place stay, which PyTorch takes away.

        >>> graph = ad.fx.Graph()
        >>> x = graph.placeholder("x")
        >>> _ = graph.call_method("neg", (x,)), graph.output(x)
        >>> graph.eliminate_dead_code(), list(graph.nodes)
        (True, [x, output])
        """
        self.lint()
        impure = is_impure_node if is_impure_node is not None else Node.is_impure
        changed = False
        for node in reversed(self.nodes):
            if not node.users and node.op not in ("placeholder", "output") and not impure(node):
                self.erase_node(node)
                changed = True
        return changed

    def lint(self) -> None:
        """Check that the graph is well formed: arguments stand before their users, names are used
        once, and what it calls of its module is there.

        Errors: RuntimeError that says what is wrong.
        """
        names: set[str] = set()
        seen: set[Node] = set()
        for node in self.nodes:
            if node.graph is not self:
                raise MalformedGraph(f"Node '{node}' does not belong to this Graph")
            for each in node.all_input_nodes:
                if each.graph is not self:
                    raise MalformedGraph(
                        f"Argument '{each}' of Node '{node}' does not belong to this Graph"
                    )
                if each not in seen:
                    raise MalformedGraph(
                        f"Argument '{each}' of Node '{node}' was used before it has been defined! "
                        f"Please check that Nodes in the graph are topologically ordered\n{self}"
                    )
            seen.add(node)
            if node.name in names:
                raise MalformedGraph(f"Node redefined name {node.name}!")
            names.add(node.name)
            if self.owning_module is not None and node.op in ("get_attr", "call_module"):
                self._assert_there(node)

    def _assert_there(self, node: Node) -> None:
        from ...nn.modules.module import Module

        found: Any = self.owning_module
        for part in node.target.split("."):
            found = getattr(found, part, _NONE)
            if found is _NONE:
                raise MalformedGraph(
                    f"Node {node} target {node.target} references nonexistent attribute {part}"
                )
        if node.op == "call_module" and not isinstance(found, Module):
            raise MalformedGraph(f"Node {node} target {node.target} does not reference a Module")

    # ---- text ------------------------------------------------------------------------------------

    def python_code(
        self,
        root_module: str,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        expanded_def: bool = False,
        record_func: bool = False,
        additional_meta: list[str] | None = None,
    ) -> PythonCode:
        """The text of a function that computes this, and its globals.

        >>> graph = ad.fx.symbolic_trace(lambda x: x.relu() + 1).graph
        >>> print(graph.python_code("self").src.strip())
        def forward(self, x):
            relu = x.relu();  x = None
            add = relu + 1;  relu = None
            return add
        """
        self._assert_names()
        return self._codegen._python_code(self.nodes, root_module, verbose)

    def _assert_names(self) -> None:
        for node in self.nodes:
            if not node.name.isidentifier():
                raise InvalidArgument(f"fx: node name {node.name!r} is no identifier")
            if node.op == "placeholder" and not node.target.lstrip("*").isidentifier():
                raise InvalidArgument(f"fx: {node.target!r} is no name of an argument")

    def set_codegen(self, codegen: CodeGen) -> None:
        """Set the generator of the source text."""
        self._codegen = codegen

    def on_generate_code(self, make_transformer: Callable[[Any], Any]) -> Any:
        """Register a function that changes the lines of the body whenever the text is made;
        `make_transformer` gets the one that was there (None at first) and gives the new one. As a
        `with`, inside it.

        >>> module = ad.fx.symbolic_trace(lambda x: x + 1)
        >>> _ = module.graph.on_generate_code(lambda former: lambda lines: ["x = x * 2\\n", *lines])
        >>> _ = module.recompile()
        >>> module(ad.ones(1))
        tensor([3.])
        """
        former = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(former)

        @contextlib.contextmanager
        def restoring() -> Iterator[None]:
            try:
                yield
            finally:
                self._codegen._body_transformer = former

        return restoring()

    def process_inputs(self, *args: Any) -> Any:
        """The inputs, as the codegen transforms them."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """The outputs, as the codegen transforms them."""
        return self._codegen.process_outputs(out)

    def print_tabular(self) -> None:
        """Print a table of the nodes.

        >>> ad.fx.symbolic_trace(lambda x: x.neg()).graph.print_tabular()
        opcode       name    target    args    kwargs
        -----------  ------  --------  ------  --------
        placeholder  x       x         ()      {}
        call_method  neg     neg       (x,)    {}
        output       output  output    (neg,)  {}
        """
        head = ["opcode", "name", "target", "args", "kwargs"]
        rows = [
            [str(each) for each in (n.op, n.name, n.target, n.args, n.kwargs)] for n in self.nodes
        ]
        widths = [
            max(len(row[i]) + (2 if row is head else 0) for row in (head, *rows)) for i in range(5)
        ]
        for row in (head, ["-" * width for width in widths], *rows):
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            print("  ".join(cells).rstrip())

    def __repr__(self) -> str:
        return f"<adjoint.fx.Graph: {len(self.nodes)} nodes>"

    def __str__(self) -> str:
        placeholders: list[str] = []
        returned = [""]
        lines = [node.format_node(placeholders, returned) for node in self.nodes]
        return "\n    ".join(["graph():", *[line for line in lines if line]])

    # ---- copies ----------------------------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        """The nodes anew; what they refer to is copied where it is data."""
        import copy

        memo = {} if memo is None else memo
        made = Graph(tracer_cls=self._tracer_cls, tracer_extras=self._tracer_extras)
        memo[id(self)] = made
        found: dict[Node, Node] = {}

        def value(arg: Argument) -> Argument:
            if isinstance(arg, Node):
                return found[arg]
            return arg if callable(arg) else copy.deepcopy(arg, memo)

        for node in self.nodes:
            args, kwargs = map_aggregate(node.args, value), map_aggregate(node.kwargs, value)
            new = made.create_node(node.op, node.target, args, dict(kwargs), node.name, node.type)
            new.meta = dict(node.meta)
            found[node] = memo[id(node)] = new
        made._codegen = copy.copy(self._codegen)
        return made

    def __getstate__(self) -> Any:
        lines = []
        for node in self.nodes:
            args = map_aggregate(node.args, _referred)
            kwargs = map_aggregate(node.kwargs, _referred)
            lines.append((node.op, node.name, node.target, args, dict(kwargs), node.type))
        if self._codegen._body_transformer is not None:
            raise MalformedGraph("fx: a graph with on_generate_code is not pickled")
        return {"nodes": lines, "tracer": self._tracer_cls}

    def __setstate__(self, state: Any) -> None:
        self.__init__(tracer_cls=state["tracer"])  # type: ignore[misc]
        found: dict[str, Node] = {}

        def value(arg: Argument) -> Argument:
            return found[arg.name] if isinstance(arg, _Reference) else arg

        for op, name, target, args, kwargs, kind in state["nodes"]:
            args, kwargs = map_aggregate(args, value), dict(map_aggregate(kwargs, value))
            found[name] = self.create_node(op, target, args, kwargs, name, kind)


class _Reference:
    """A node, in a pickle."""

    def __init__(self, name: str) -> None:
        self.name = name


def _referred(arg: Argument) -> Argument:
    return _Reference(arg.name) if isinstance(arg, Node) else arg


class MalformedGraph(AdjointError, RuntimeError):  # noqa: N818 - reads as what happened
    """A graph is not well formed, or would not be."""
