"""Tracing: a function or a module is run once on proxies, which record the graph."""

from __future__ import annotations

import builtins
import collections
import contextlib
import inspect
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import FunctionType, ModuleType
from typing import Any

from ...core.errors import InvalidArgument, Unsupported
from ...nn.modules.container import Sequential
from ...nn.modules.module import Module
from ...nn.parameter import Parameter
from ...nn.top import _assert
from ...tensor import Tensor
from .graph import Graph
from .graph_module import GraphModule
from .node import Argument, Node, Target, has_side_effect
from .proxy import ParameterProxy, Proxy, TracerBase

__all__ = [
    "PH", "ProxyableClassMeta", "Tracer", "is_fx_symbolic_tracing", "is_fx_tracing",
    "symbolic_trace", "wrap",
]  # fmt: skip

_TRACER: ContextVar[Tracer | None] = ContextVar("adjoint_fx_tracer", default=None)
_MISSING: Any = object()
_wrapped: list[tuple[dict[str, Any], str]] = []  # globals, and a name in them


class _PH:
    def __repr__(self) -> str:
        return "PH"


PH = _PH()


def is_fx_tracing() -> bool:
    """Whether a function is being traced here.

    >>> ad.fx._symbolic_trace.is_fx_tracing()
    False
    """
    return _TRACER.get() is not None


is_fx_symbolic_tracing = is_fx_tracing


def wrap(fn_or_name: Any) -> Any:
    """Make tracing keep the calls of a function whole, as one node: a decorator, or called with the
    name that a function of another module has here. At the top level of a module only.

    Errors: NotImplementedError elsewhere.
    Source: https://docs.pytorch.org/docs/stable/fx.html#torch.fx.wrap

    >>> @ad.fx.wrap
    ... def doubled(x): return x * 2 if x.ndim else x
    >>> list(ad.fx.symbolic_trace(lambda x: doubled(x)).graph.nodes)
    [x, doubled, output]
    """
    if isinstance(fn_or_name, str):
        name = fn_or_name
    elif callable(fn_or_name):
        name = fn_or_name.__name__
    else:
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or a string name"
        )
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    if all(names is not frame.f_globals or each != name for names, each in _wrapped):
        _wrapped.append((frame.f_globals, name))
    return fn_or_name


@has_side_effect
def _assert_is_none(value: Any, msg: str) -> None:
    assert value is None, msg


has_side_effect(_assert)


def _proxy_in(values: Any) -> Proxy | None:
    for value in values:
        if isinstance(value, Proxy):
            return value
        if isinstance(value, (list, tuple)):
            found = _proxy_in(value)
            if found is not None:
                return found
    return None


def _leaf(function: Any) -> Any:
    """`function`, which becomes a node where a proxy is among its arguments."""

    def called(*args: Any, **kwargs: Any) -> Any:
        proxy = _proxy_in((*args, *kwargs.values()))
        if proxy is None:
            return function(*args, **kwargs)
        made = proxy.tracer.create_proxy("call_function", function, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made

    called.__name__ = getattr(function, "__name__", "called")
    called.__wrapped__ = function  # type: ignore[attr-defined]
    return called


class _Patches:
    """Names that mean something else while tracing, in dicts of globals."""

    def __init__(self) -> None:
        self._former: list[tuple[dict[str, Any], str, Any]] = []
        self._done: set[tuple[int, str]] = set()

    def leaf(self, names: dict[str, Any], name: str, function: Any) -> None:
        """Patches a name so that its calls are leaves."""
        if (id(names), name) not in self._done:
            self._done.add((id(names), name))
            self._former.append((names, name, names.get(name, _MISSING)))
            names[name] = _leaf(function)

    def undo(self) -> None:
        """Restores all patched names."""
        for names, name, value in reversed(self._former):
            if value is _MISSING:
                names.pop(name, None)
            else:
                names[name] = value
        self._former.clear()


_module_call = Module.__call__
_module_getattr = Module.__getattr__
_active = 0  # how many traces run, in all threads


def _traced_call(module: Any, *args: Any, **kwargs: Any) -> Any:
    tracer = _TRACER.get()
    if tracer is None:
        return _module_call(module, *args, **kwargs)
    return tracer._called(module, args, kwargs)


def _traced_getattr(module: Any, name: str) -> Any:
    value = _module_getattr(module, name)
    tracer = _TRACER.get()
    return value if tracer is None else tracer.getattr(name, value, tracer._parameter_proxies)


@contextlib.contextmanager
def _following(tracer: Tracer) -> Iterator[None]:
    """Modules tell the tracer when they are called, and which parameters are read."""
    global _active
    outside = _TRACER.get()
    try:
        _active += 1
        Module.__call__ = _traced_call  # type: ignore[method-assign, assignment]
        Module.__getattr__ = _traced_getattr  # type: ignore[method-assign]
        _TRACER.set(tracer)
        yield
    finally:
        _TRACER.set(outside)
        _active -= 1
        if not _active:
            Module.__call__ = _module_call  # type: ignore[method-assign]
            Module.__getattr__ = _module_getattr  # type: ignore[method-assign]


class Tracer(TracerBase):
    """Runs a module or a function on proxies, and keeps what they meet as a graph. Subclasses say
    which modules stay whole (`is_leaf_module`), and may see each call and each node.

    Source: https://docs.pytorch.org/docs/stable/fx.html#torch.fx.Tracer

    >>> class Whole(ad.fx.Tracer):
    ...     def is_leaf_module(self, m, module_qualified_name):
    ...         return True
    >>> net = ad.nn.Sequential(ad.nn.Linear(2, 2), ad.nn.ReLU())
    >>> [node.target for node in Whole().trace(net).nodes]
    ['input', '0', '1', 'output']
    """

    root: Module

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        self._autowrap_modules = autowrap_modules
        self._autowrap = {
            id(function): function
            for function in (
                *(
                    value
                    for module in autowrap_modules
                    for name, value in vars(module).items()
                    if not name.startswith("_") and callable(value)
                ),
                *autowrap_functions,
            )
        }
        self.param_shapes_constant = param_shapes_constant
        self.module_stack: collections.OrderedDict[str, Any] = collections.OrderedDict()
        self.num_calls: dict[str, int] = {}
        self.tensor_attrs: dict[int, str] = {}
        self._paths: dict[int, str] = {}
        self._parameter_proxies: dict[str, Proxy] = {}
        self._qualname_counter: dict[str, int] = collections.defaultdict(int)

    def get_fresh_qualname(self, prefix: str) -> str:
        """A name that the root has not."""
        while True:
            name = f"{prefix}{self._qualname_counter[prefix]}"
            self._qualname_counter[prefix] += 1
            if not hasattr(self.root, name):
                return name

    def create_arg(self, a: Any) -> Argument:
        """An argument as the base class makes it; parameters, buffers and other tensors become
        attributes of the root.

        Errors: NameError for a parameter that is not the root's.
        """
        if isinstance(a, Parameter):
            for name, each in self.root.named_parameters():
                if each is a:
                    return self.create_node("get_attr", name, (), {})
            raise NameError("parameter is not a member of this module")
        if isinstance(a, Tensor):
            for name, buffer in self.root.named_buffers():
                if buffer is a:
                    return self.create_node("get_attr", name, (), {})
            held = self.tensor_attrs.get(id(a))
            if held is None:
                held = self.get_fresh_qualname("_tensor_constant")
                self.tensor_attrs[id(a)] = held
                setattr(self.root, held, a)
            return self.create_node("get_attr", held, (), {})
        if isinstance(a, Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            given = tuple([self.create_arg(each) for each in a])
            return self.create_node("call_function", type(a), given, {})
        return super().create_arg(a)

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Creates a node as the base class does, and notes in which modules it stands."""
        node = super().create_node(kind, target, args, kwargs, name, type_expr)
        if self.module_stack:
            node.meta["nn_module_stack"] = self.module_stack.copy()
        return node

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a module stays whole: those of the framework but Sequential."""
        place = type(m).__module__
        ours = place.startswith((_NN, "torch.nn."))
        return ours and not isinstance(m, Sequential) and not isinstance(m, GraphModule)

    def path_of_module(self, mod: Module) -> str:
        """The name of a module below the root.

        Errors: NameError where it is not there.
        """
        path = self._paths.get(id(mod))
        if path is None:
            for name, each in self.root.named_modules():
                if each is mod:
                    return name
            raise NameError("module is not installed as a submodule")
        return path

    def _called(self, module: Module, args: Any, kwargs: Any) -> Any:
        for function in (type(module).forward,):
            names = getattr(inspect.unwrap(function), "__globals__", None)
            if names is not None:
                self._wrap_in(names)

        def forward(*args: Any, **kwargs: Any) -> Any:
            return _module_call(module, *args, **kwargs)

        return self.call_module(module, forward, args, kwargs)

    def call_module(
        self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Records a module's call: a leaf becomes a node, any other module is traced through."""
        path = self.path_of_module(m)
        calls = self.num_calls.get(path, 0)
        self.num_calls[path] = calls + 1
        key = f"{path}@{calls}" if calls else path
        self.module_stack[key] = (path, type(m))
        try:
            if not self.is_leaf_module(m, path):
                return forward(*args, **kwargs)
            return self.create_proxy("call_module", path, args, kwargs)
        finally:
            self.module_stack.popitem()

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]) -> Any:
        """The value of a module's attribute while tracing: a parameter is a node."""
        kind: Any = Parameter
        found: Any
        if isinstance(attr_val, kind):
            found = self.root.named_parameters()
        elif self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            found = self.root.named_buffers()
        else:
            return attr_val
        for name, each in found:
            if each is attr_val:
                if name not in parameter_proxy_cache:
                    proxy = self.create_proxy("get_attr", name, (), {})
                    if self.param_shapes_constant:
                        proxy = ParameterProxy(self, proxy.node, name, attr_val)
                    parameter_proxy_cache[name] = proxy
                return parameter_proxy_cache[name]
        return attr_val

    def _proxy_placeholder(
        self, name: str, concrete_args: Any, signature: Any, parameter: Any
    ) -> Any:
        default = () if parameter is None or parameter.default is parameter.empty else (
            parameter.default,
        )  # fmt: skip
        kind = self._hints.get(name.lstrip("*"))
        if concrete_args is None or name not in concrete_args:
            return self.create_proxy(
                "placeholder", name, default, {}, name=_without_stars(name), type_expr=kind
            )
        value = concrete_args[name]
        made = self.create_proxy("placeholder", f"{name}_1", default, {})
        said = f"{name} has been specialized to have value {value} but got another value"
        if value is None:
            self.create_proxy("call_function", _assert_is_none, (made, said), {})
        elif isinstance(value, (bool, int, float, str)):
            equal: Any = made == value  # type: ignore[comparison-overlap]
            self.create_proxy("call_function", _assert, (equal, said), {}, name="_assert")
        elif isinstance(value, (list, tuple, dict)) or value is PH:
            raise Unsupported(
                f"symbolic_trace: concrete_args[{name!r}] is a container; bind it with "
                "functools.partial, or trace a function that builds it"
            )
        else:
            warnings.warn(
                f"Was not able to add assertion to guarantee correct input {name} to specialized "
                "function. It is up to the user to make sure that your inputs match the inputs "
                "you specialized the function with.",
                stacklevel=2,
            )
        return value

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        """The function, and its arguments: proxies of its placeholders."""
        function = inspect.unwrap(root_fn)
        code = function.__code__
        plain, only = code.co_argcount, code.co_kwonlyargcount
        names = list(code.co_varnames[: plain + only])
        signature = inspect.signature(function)
        self._hints = {
            name: each.annotation
            for name, each in signature.parameters.items()
            if each.annotation is not each.empty and not _is_hidden(function, each.annotation)
        }
        args: list[Any] = []
        if is_module:
            if not plain:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            args.append(self.root)
            names = names[1:]
            plain -= 1
        if isinstance(concrete_args, tuple):
            if len(names) != len(concrete_args):
                raise RuntimeError(
                    f"Tracing expected {len(names)} arguments but got {len(concrete_args)} "
                    "concrete arguments"
                )
            concrete_args = dict(zip(names, concrete_args, strict=True))
        unknown = set(concrete_args or ()) - set(names)
        if unknown:
            raise InvalidArgument(
                f"symbolic_trace: concrete_args names {sorted(unknown)}, which are no arguments of "
                f"{getattr(function, '__name__', function)}; it has {names}"
            )
        found = [
            self._proxy_placeholder(name, concrete_args, signature, signature.parameters[name])
            for name in names
        ]
        args += found[:plain]
        by_name = dict(zip(names[plain:], found[plain:], strict=True))
        place = len(names) + is_module
        several = None
        keywords = None
        if code.co_flags & inspect.CO_VARARGS:
            several = self._proxy_placeholder(f"*{code.co_varnames[place]}", None, signature, None)
            place += 1
        if code.co_flags & inspect.CO_VARKEYWORDS:
            keywords = self._proxy_placeholder(
                f"**{code.co_varnames[place]}", None, signature, None
            )
        if several is None and keywords is None:
            return (lambda *given: root_fn(*given, **by_name)) if by_name else root_fn, args
        return _with_rest(function, several, keywords, by_name, root_fn), args

    def _wrap_in(self, names: dict[str, Any]) -> None:
        if id(names) in self._seen_globals:
            return
        self._seen_globals.add(id(names))
        for name, value in list(names.items()):
            if not name.startswith("_") and callable(value) and id(value) in self._autowrap:
                self._patches.leaf(names, name, value)

    def trace(self, root: Any, concrete_args: Any = None) -> Graph:
        """The graph of a module or a function; `concrete_args` are values of arguments that the
        graph is made for.

        Errors: TraceError where the program asks what only a number could say.
        """
        if isinstance(root, Module):
            self.root = root
            function = type(root).forward
            if not hasattr(type(root), self.traced_func_name):
                raise AssertionError(
                    f"traced_func_name={self.traced_func_name} doesn't exist in {type(root)}"
                )
            function = getattr(type(root), self.traced_func_name)
        else:
            self.root = Module()
            function = root
        if not isinstance(inspect.unwrap(function), FunctionType):
            raise InvalidArgument(
                f"symbolic_trace: Expected a module or a function of Python, got {root!r:.60}; "
                "give an instance of a class, and mark functions of C with fx.wrap"
            )
        self.graph = Graph(tracer_cls=type(self))
        self.tensor_attrs = {}
        self.module_stack.clear()
        self.num_calls = {}
        self._paths = {id(each): name for name, each in self.root.named_modules()}
        self._parameter_proxies = {}
        self._seen_globals: set[int] = set()
        self._patches = _Patches()
        for path, module in self.root.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Tensor):
                    self.tensor_attrs.setdefault(id(value), f"{path}.{name}".lstrip("."))
        try:
            called, args = self.create_args_for_root(
                function, isinstance(root, Module), concrete_args
            )
            with _following(self):
                self._patch(inspect.unwrap(function).__globals__)
                result = called(*args)
                self.create_node(
                    "output", "output", (self.create_arg(result),), {},
                    type_expr=_returned(function),
                )  # fmt: skip
        finally:
            self._patches.undo()
            self._parameter_proxies = {}
        return self.graph

    def _patch(self, own: dict[str, Any]) -> None:
        for names, name in _wrapped:
            value = names.get(name, getattr(builtins, name, None))
            if callable(value):
                self._patches.leaf(names, name, value)
        self._wrap_in(own)
        for module in self._autowrap_modules:
            self._wrap_in(vars(module))


_NN = f"{__name__.partition('.')[0]}.nn."


def _without_stars(name: str) -> str | None:
    return f"_{name.lstrip('*')}" if name.startswith("*") else None


def _returned(function: Any) -> Any:
    function = inspect.unwrap(function)
    found = getattr(function, "__annotations__", {}).get("return")
    return None if _is_hidden(function, found) else found


def _is_hidden(function: Any, annotation: Any) -> bool:
    """Annotations of our own modules are strings, which PyTorch's have not."""
    module = str(getattr(function, "__module__", ""))
    return isinstance(annotation, str) and module.startswith((_NN, "torch.nn."))


def _with_rest(
    function: Any, several: Any, keywords: Any, by_name: dict[str, Any], root_fn: Any
) -> Any:
    """`function` as one of plain arguments, whose `*args` and `**kwargs` are one proxy each: they
    are names of its body like the others.
    """
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    rest = (several is not None) + (keywords is not None)
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    plain = code.replace(co_argcount=count + rest, co_kwonlyargcount=0, co_flags=flags)
    made = FunctionType(plain, function.__globals__, function.__name__, None, function.__closure__)
    names = code.co_varnames[code.co_argcount : count]
    tail = [by_name[name] for name in names]
    tail += [each for each in (several, keywords) if each is not None]
    return lambda *given: made(*given, *tail)


def symbolic_trace(root: Any, concrete_args: Any = None) -> GraphModule:
    """A module of a graph that computes what a module or a function does.

    `concrete_args` gives arguments that the graph is made for: values of conditions, for example.

    Errors: TraceError where the program asks what only a number could say, such as `if x > 0`.
    Source: https://docs.pytorch.org/docs/stable/fx.html#torch.fx.symbolic_trace

    >>> def f(x, y):
    ...     return ad.relu(x) + y
    >>> module = ad.fx.symbolic_trace(f)
    >>> print(module.code.strip())
    def forward(self, x, y):
        relu = adjoint.relu(x);  x = None
        add = relu + y;  relu = y = None
        return add
    >>> module(ad.tensor([-1.0]), 2)
    tensor([2.])
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)


class ProxyableClassMeta(type):
    """The metaclass of classes whose objects may be made of proxies: making one is a node then.

    Source: https://docs.pytorch.org/docs/stable/fx.html

    >>> class Pair(metaclass=ad.fx.ProxyableClassMeta):
    ...     def __init__(self, a, b): self.a, self.b = a, b
    >>> list(ad.fx.symbolic_trace(lambda x: Pair(x, 1).a).graph.nodes)
    [x, pair, getattr_1, output]
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """An object, or a node that makes one."""
        proxy = _proxy_in((*args, *kwargs.values())) if is_fx_tracing() else None
        if proxy is None:
            return super().__call__(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", cls, args, kwargs)
