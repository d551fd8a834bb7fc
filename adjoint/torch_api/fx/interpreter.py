"""Interpreter and Transformer: a graph is run, or written anew, node by node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...core.argument_repr import argument_repr
from ...nn.modules.module import Module
from ._symbolic_trace import Tracer
from .graph import Graph
from .graph_module import GraphModule
from .node import Argument, Node, Target, map_aggregate, map_arg
from .proxy import Proxy

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs a graph module node by node; subclasses see, or change, what nodes do: `run_node`, and a
    method for each op.

    Source: https://docs.pytorch.org/docs/stable/fx.html#torch.fx.Interpreter

    >>> class Shapes(ad.fx.Interpreter):
    ...     def run_node(self, n):
    ...         value = super().run_node(n)
    ...         print(n, tuple(value.shape))
    ...         return value
    >>> _ = Shapes(ad.fx.symbolic_trace(lambda x: x.sum(0).relu())).run(ad.ones(2, 3))
    x (2, 3)
    sum_1 (3,)
    relu (3,)
    output (3,)
    """

    __repr__ = argument_repr

    def __init__(
        self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None
    ) -> None:
        self.module: Any = module
        self.submodules = dict(module.named_modules())
        self.graph: Graph = self.module.graph if graph is None else graph
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.args_iter: Iterator[Any] = iter(())
        self.user_to_last_uses: dict[Node, list[Node]] = {}
        if garbage_collect_values:
            seen: set[Node] = set()
            for node in reversed(self.graph.nodes):
                for each in node.all_input_nodes:
                    if each not in seen:
                        seen.add(each)
                        self.user_to_last_uses.setdefault(node, []).append(each)

    def run(
        self,
        *args: Any,
        initial_env: dict[Node, Any] | None = None,
        enable_io_processing: bool = True,
    ) -> Any:
        """Runs the graph on `args` and returns its output; `initial_env` has values of nodes that
        are known.
        """
        self.env = {} if initial_env is None else dict(initial_env)
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    _explain(error, node)
                raise
            for each in self.user_to_last_uses.get(node, ()):
                self.env.pop(each, None)
            if node.op == "output":
                value = self.env[node]
                return self.graph.process_outputs(value) if enable_io_processing else value
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """`run` of the items of a list, which is emptied."""
        args = tuple(args_list)
        args_list.clear()
        return self.run(*args)

    def run_node(self, n: Node) -> Any:
        """The value of a node."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of an input.

        Errors: RuntimeError where it was not given.
        """
        if target.startswith("**"):
            return {}
        if target.startswith("*"):
            return list(self.args_iter)
        for value in self.args_iter:
            return value
        if args:
            return args[0]
        raise RuntimeError(
            f"Expected positional argument for parameter {target}, but one was not passed in!"
        )

    def get_attr(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The module's attribute of a name."""
        return self.fetch_attr(target)

    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of a function."""
        return target(*args, **kwargs)

    def call_method(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of a method."""
        owner, *rest = args
        return getattr(owner, target)(*rest, **kwargs)

    def call_module(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of a module."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The graph's output value."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """The module's attribute of a dotted name.

        Errors: RuntimeError where it has not.
        """
        found: Any = self.module
        parts = target.split(".")
        for i, part in enumerate(parts):
            if not hasattr(found, part):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(parts[: i + 1])}")
            found = getattr(found, part)
        return found

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A node's arguments, with values in the place of nodes."""
        return self.map_nodes_to_values(n.args, n), dict(self.map_nodes_to_values(n.kwargs, n))

    def map_nodes_to_values(self, args: Argument, n: Node) -> Any:
        """`args` with values in the place of nodes; lists and dicts are a user's own."""

        def value(node: Node) -> Any:
            if node not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {node}! Run Graph.lint() to diagnose "
                    "such issues"
                )
            return self.env[node]

        return _plain(map_arg(args, value))


def _plain(args: Any) -> Any:
    """`args` with lists and dicts that may be changed."""
    if isinstance(args, list):
        return [_plain(each) for each in args]
    if type(args) is tuple:
        return tuple([_plain(each) for each in args])
    if isinstance(args, dict):
        return {key: _plain(value) for key, value in args.items()}
    return args


def _explain(error: Exception, node: Node) -> None:
    said = f"While executing {node.format_node()}"
    text = f"{error.args[0]}\n\n{said}" if error.args else said
    said_trace = f"{text}\nOriginal traceback:\n{node.stack_trace}"
    if isinstance(error, KeyError) or not (error.args and isinstance(error.args[0], str)):
        return
    error.args = (said_trace, *error.args[1:])


class _Appending(Tracer):
    def __init__(self, graph: Graph, former: Tracer | None = None) -> None:
        super().__init__()
        self.graph = graph

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        return True


class Transformer(Interpreter):
    """Writes a graph anew, node by node; subclasses change what a node becomes.

    Source: https://docs.pytorch.org/docs/stable/fx.html#torch.fx.Transformer

    >>> class Softer(ad.fx.Transformer):
    ...     def call_method(self, target, args, kwargs):
    ...         return super().call_method("sigmoid" if target == "relu" else target, args, kwargs)
    >>> print(Softer(ad.fx.symbolic_trace(lambda x: x.relu())).transform().code.strip())
    def forward(self, x):
        sigmoid = x.sigmoid();  x = None
        return sigmoid
    """

    module: GraphModule

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph(tracer_cls=module.graph._tracer_cls)
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer = _Appending(self.new_graph)
        self.tracer.root = module

    def placeholder(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A placeholder of the new graph."""
        name = f"_{target.lstrip('*')}" if target.startswith("*") else None
        made = self.tracer.create_node("placeholder", target, args, {}, name)
        return Proxy(made, self.tracer)

    def get_attr(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A node that reads what the module has."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a module."""
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a function."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The module of the new graph."""
        result = super().run(enable_io_processing=False)
        if result is not None:

            def node_of(each: Any) -> Any:
                return each.node if isinstance(each, Proxy) else each

            old = self.graph.output_node()
            made = self.new_graph.output(map_aggregate(result, node_of), old.type)
            made.meta = dict(old.meta)
        return GraphModule(self.module, self.new_graph, type(self.module).__name__)
