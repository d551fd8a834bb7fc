"""GraphModule: a module whose forward is what a graph says."""

from __future__ import annotations

import copy
import itertools
import linecache
import os
from typing import Any, ClassVar

from ...core import config
from ...core.errors import InvalidArgument, Unsupported
from ...nn.modules.module import Module
from ...nn.parameter import Parameter
from ...tensor import Tensor
from .graph import Graph, MalformedGraph, PythonCode

__all__ = ["GraphModule"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_counter = itertools.count()


def compiled(code: PythonCode, name: str) -> Any:
    """The function `forward` of a text that a graph made, in memory."""
    place = f"<fx.{name}.{next(_counter)}>"
    names = {"__name__": "<fx>", **code.globals}
    exec(compile(code.src, place, "exec"), names)
    lines = code.src.splitlines(keepends=True)
    linecache.cache[place] = (len(code.src), None, lines, place)  # which errors show
    return names["forward"]


class _CodeOnlyModule(Module):
    """A module that has given attributes, and computes nothing."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """Copies the attribute of a dotted name from `from_module` to `to_module`, in modules of the
    same names.
    """
    *above, last = target.split(".")
    for part in above:
        inner = getattr(to_module, part, None)
        source = getattr(from_module, part)
        if source is inner:
            return
        if inner is None:
            inner = Module()
            setattr(to_module, part, inner)
        from_module, to_module = source, inner
    _set(to_module, last, getattr(from_module, last))


def _assign_attr(value: Any, to_module: Module, target: str) -> None:
    """Assigns a value to a dotted name of `to_module`."""
    *above, last = target.split(".")
    for part in above:
        inner = getattr(to_module, part, None)
        if inner is None:
            inner = Module()
            setattr(to_module, part, inner)
        to_module = inner
    _set(to_module, last, value)


def _set(module: Module, name: str, value: Any) -> None:
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        if name not in module._buffers and hasattr(module, name):
            delattr(module, name)
        module.register_buffer(name, value)
    else:
        setattr(module, name, value)


class GraphModule(Module):
    """A module that runs a graph. Its code is made of the graph, and compiled in memory; whoever
    changes the graph calls `recompile`.

    `root` is the module, or a dict of names, that has what the graph calls and reads.

    Source: https://docs.pytorch.org/docs/stable/fx.html#torch.fx.GraphModule

    >>> module = ad.fx.symbolic_trace(ad.nn.Sequential(ad.nn.Linear(2, 1), ad.nn.ReLU()))
    >>> for node in module.graph.nodes:
    ...     if node.target == "1":
    ...         node.target = "gelu"
    >>> module.add_submodule("gelu", ad.nn.GELU())
    True
    >>> _ = module.recompile()
    >>> module.delete_all_unused_submodules()
    >>> module
    Sequential(
      (0): Linear(in_features=2, out_features=1, bias=True)
      (gelu): GELU(approximate='none')
    )
    """

    _graph: Graph
    meta: dict[str, Any]
    _instances: ClassVar[int] = 0

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """An instance with a class of its own, whose `forward` is its graph's."""
        base = next(each for each in cls.__mro__ if "_made_for_one" not in vars(each))
        own = type(base.__name__, (base,), {"_made_for_one": True, "__module__": base.__module__})
        return super().__new__(own)

    def __init__(self, root: Any, graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        named = [n for n in graph.nodes if n.op in ("get_attr", "call_module")]
        if isinstance(root, Module):
            self.training = root.training
            for node in named:
                _copy_attr(root, self, node.target)
            preserved = getattr(root, "meta", None)
            self.meta = dict(preserved) if isinstance(preserved, dict) else {}
        elif isinstance(root, dict):
            found = {}
            for node in named:
                if node.target not in root:
                    raise MalformedGraph(
                        f"Node {node} referenced target {node.target} but that target was not "
                        "provided in ``root``!"
                    )
                found[node.target] = root[node.target]
            for target in sorted(found, key=lambda each: each.count(".")):
                _assign_attr(found[target], self, target)
            self.meta = {}
        else:
            raise InvalidArgument(
                f"GraphModule: root is a module or a dict, got {type(root).__name__}"
            )
        self.graph = graph
        self._tracer_cls = None
        if graph._tracer_cls and "<locals>" not in graph._tracer_cls.__qualname__:
            self._tracer_cls = graph._tracer_cls

    @property
    def graph(self) -> Graph:
        """The graph; assigning one recompiles."""
        return self._graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(graph)}")
        self.__dict__["_graph"] = graph
        graph.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The text of `forward`."""
        return str(self._code)

    def recompile(self) -> PythonCode:
        """Make `forward` anew of the graph.

        >>> module = ad.fx.symbolic_trace(lambda x: x + 1)
        >>> module.graph.find_nodes(op="placeholder")[0].next.args = (2, 3)
        >>> _ = module.recompile(); module(0)
        5
        """
        made = self._graph.python_code("self")
        self.__dict__["_code"] = made.src
        forward = compiled(made, type(self).__name__)
        forward.__module__ = "<fx>"
        type(self).forward = forward  # type: ignore[method-assign]
        return made

    def add_submodule(self, target: str, m: Module) -> bool:
        """Add a module under a name; modules of the names above it are made. Returns whether it
        could be added.
        """
        *above, last = target.split(".")
        module: Any = self
        for part in above:
            inner = getattr(module, part, None)
            if inner is None:
                inner = Module()
                setattr(module, part, inner)
            if not isinstance(inner, Module):
                return False
            module = inner
        module.add_module(last, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Take the module of a name away; whether there was one."""
        *above, last = target.split(".")
        module: Any = self
        for part in above:
            module = getattr(module, part, None)
            if not isinstance(module, Module):
                return False
        if not isinstance(getattr(module, last, None), Module):
            return False
        delattr(module, last)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Take modules away that the graph neither calls nor reads."""
        used: set[str] = set()
        for node in self._graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = node.target.split(".")
                used |= {".".join(parts[:i]) for i in range(1, len(parts) + 1)}
                found = getattr(self, parts[0], None)
                for part in parts[1:]:
                    found = getattr(found, part, None)
                if isinstance(found, Module):
                    used |= {f"{node.target}.{name}" for name, _ in found.named_modules() if name}
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    def print_readable(
        self,
        print_output: bool = True,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        *,
        fast_sympy_print: bool = False,
        expanded_def: bool = False,
        additional_meta: list[str] | None = None,
    ) -> str:
        """Print, and return, the code as that of a class, with those of graph modules inside.

        >>> _ = ad.fx.symbolic_trace(lambda x: x + 1).print_readable()
        class <lambda>(adjoint.nn.Module):
            def forward(self, x):
                # No stacktrace found for following nodes
                add = x + 1;  x = None
                return add
        <BLANKLINE>
        """
        text = self._readable()
        if print_output:
            print(text)
        return text

    def _readable(self) -> str:
        code = self._graph.python_code("self", verbose=True).src.strip()
        lines = [line for line in code.split("\n") if line.strip()]
        body = "\n".join(f"    {line}" for line in lines)
        parts = [f"class {type(self).__name__}({config.CALLED}.nn.Module):\n{body}\n"]
        for child in self.children():
            if isinstance(child, GraphModule):
                inner = child._readable().rstrip("\n")
                parts.append("\n".join(f"    {line}".rstrip() for line in inner.split("\n")) + "\n")
        return "\n".join(parts)

    def to_folder(self, folder: str | os.PathLike[str], module_name: str = "FxModule") -> None:
        """Refused: code is not written to files, nor read from them.

        Errors: Unsupported.
        """
        raise Unsupported(
            "GraphModule.to_folder: generated code is neither written to files nor loaded from "
            "them; print(module.code) shows it, state_dict() has the values, adjoint.export "
            "writes programs"
        )

    def __str__(self) -> str:
        hint = "# To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__repr__(), self._code, hint])

    # ---- copies ----------------------------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        type(made).__name__ = type(self).__name__
        state = {name: value for name, value in vars(self).items() if name != "_graph"}
        made.__dict__.update(copy.deepcopy(state, memo))
        made.graph = copy.deepcopy(self._graph, memo)
        return made

    def __copy__(self) -> Any:
        made = GraphModule(self, self._graph, type(self).__name__)
        self._graph.owning_module = self
        made.meta = dict(self.meta)
        return made

    def __reduce__(self) -> Any:
        """A pickle has the nodes of the graph and the values, and no code; that is made anew."""
        state = {name: value for name, value in vars(self).items() if name != "_code"}
        base = next(each for each in type(self).__mro__ if "_made_for_one" not in vars(each))
        return (_restored, (base, type(self).__name__, state))


def _restored(base: Any, name: str, state: dict[str, Any]) -> Any:
    made = base.__new__(base)
    type(made).__name__ = name
    graph = state.pop("_graph")
    made.__dict__.update(state)
    made.graph = graph
    return made
