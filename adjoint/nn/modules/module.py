"""Module: a tree of parameters, buffers and children, with a forward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from ...core.argument_errors import explained, misplaced
from ...core.device import as_device, device
from ...core.dtype import as_dtype, bfloat16, dtype, float16, float32, float64, named
from ...core.errors import AdjointError, InvalidArgument, InvalidType
from ...core.faces import load
from ...core.keywords import explain_keywords
from ...core.mode import MODE
from ...core.tracebacks import cut
from ...ops.create.creation import empty
from ...tensor import RemovableHandle, Tensor
from .. import state
from ..hooks import (
    EVERYWHERE,
    Entry,
    Hooks,
    HooksOfKind,
    add,
    add_to,
    call_with_hooks,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)
from ..parameter import Buffer, Parameter
from ..state import _IncompatibleKeys as _IncompatibleKeys

__all__ = [
    "Module", "register_module_forward_hook", "register_module_forward_pre_hook",
    "register_module_full_backward_hook", "register_module_full_backward_pre_hook",
]  # fmt: skip

MYPY = False  # which mypy alone takes for True
_EXTRA_STATE_KEY_SUFFIX = state.EXTRA_STATE  # packages know it by this name


class _Frozen:
    """Whether there are parameters in a module and below, and none gets a gradient; a program's own
    attribute of the name hides it.
    """

    def __get__(self, module: Any, owner: Any = None) -> Any:
        if module is None:
            return self
        flags = [p.requires_grad for p in module.parameters()]
        return bool(flags) and not any(flags)


if TYPE_CHECKING:
    from typing import ParamSpec, Protocol, TypeVar

    M = TypeVar("M", bound="Module")
    P = ParamSpec("P")
    R = TypeVar("R", covariant=True)

    class _HasForward(Protocol[P, R]):
        def forward(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    class _Call(Protocol):
        """Type of a module's call, for checkers: that of its class's `forward`. The module itself
        can be given where a function is asked for.
        """

        def __get__(self, module: _HasForward[P, R], owner: object = None) -> Callable[P, R]: ...

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


@explain_keywords
class Module:
    """Base class of all neural-network modules.

    A subclass calls `super().__init__()`, assigns parameters, buffers and other modules as
    attributes, which registers them, and defines `forward`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html

    >>> class Scale(ad.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = ad.nn.Parameter(ad.tensor(2.0))
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> Scale()(ad.ones(2)).tolist()
    [2.0, 2.0]
    """

    training: bool
    call_super_init: bool = False
    _version: int = 1
    _call_hooks: Hooks | None = None  # made when the first hook is registered
    _forward_pre_hooks = HooksOfKind("forward_pre")
    _forward_hooks = HooksOfKind("forward")
    _backward_pre_hooks = HooksOfKind("backward_pre")
    _backward_hooks = HooksOfKind("backward")
    _state_dict_hooks: dict[str, dict[int, Any]] | None = None
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _modules: dict[str, Any]
    _shown_as: ClassVar[str] = ""  # what extra_repr says, with the names of attributes in braces
    _shown_unless: ClassVar[
        tuple[tuple[str, Any], ...]
    ] = ()  # what it adds if values are not these

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            got = f"keyword argument {next(iter(kwargs))!r}" if kwargs else f"{len(args)} arguments"
            raise InvalidType(f"{type(self).__name__}.__init__() got an unexpected {got}")
        self.__dict__.update(
            training=True,
            _parameters={},
            _buffers={},
            _non_persistent_buffers_set=set(),
            _modules={},
        )
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the output; every subclass defines it.

        Errors: NotImplementedError where the subclass does not.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.forward

        >>> ad.nn.Identity().forward(3)
        3
        """
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    if TYPE_CHECKING and MYPY:  # which takes this for a function, and has no end with the other

        @property
        def __call__(self: _HasForward[P, R]) -> Callable[P, R]:
            """`forward`, with the hooks around it."""

    elif TYPE_CHECKING:
        __call__: ClassVar[_Call]
    else:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """`forward`, with the hooks around it."""
            executor = MODE.get().executor
            try:
                if executor is None:
                    if self._call_hooks is None and not EVERYWHERE:
                        return self.forward(*args, **kwargs)
                elif hasattr(executor, "call_module"):  # in a Graph, which may have recorded it
                    return executor.call_module(self, args, kwargs)
                return self._call_impl(*args, **kwargs)
            except Exception as error:
                better = explained(error, self.forward, args, kwargs)
                try:
                    if isinstance(better, AdjointError):
                        from ..error_paths import locate  # for errors alone

                        locate(better, self)
                    if better is not error:
                        raise better
                    cut(error)
                    raise
                finally:
                    del better  # this frame may be in a traceback: a cycle, with all tensors in it

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        if self._call_hooks is None and not EVERYWHERE:
            return self.forward(*args, **kwargs)
        return call_with_hooks(self, args, kwargs)

    # ---- registration ------------------------------------------------------------------------

    def __registry(self, which: str, what: str) -> Any:
        found = self.__dict__.get(which)
        if found is None:
            raise AttributeError(
                f"cannot assign {what} before Module.__init__() call; call super().__init__() "
                f"first in {type(self).__name__}.__init__"
            )
        return found

    def __assert_new_name(self, name: Any, registered: Mapping[str, Any], what: str) -> None:
        if not isinstance(name, str):
            raise InvalidType(f"{what} name should be a string. Got {type(name).__name__}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain ".", got: "{name}"')
        if not name:
            raise KeyError(f'{what} name can\'t be empty string ""')
        if name not in registered and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or None to keep the name free.

        Args:
            name: Name of the attribute.
            param: Parameter, or None.

        Errors: KeyError for a bad name; InvalidType for anything but a Parameter.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_parameter

        >>> m = ad.nn.Module()
        >>> m.register_parameter("w", ad.nn.Parameter(ad.ones(1)))
        >>> [name for name, _ in m.named_parameters()]
        ['w']
        """
        registered = self.__registry("_parameters", "parameters")
        self.__assert_new_name(name, registered, "parameter")
        if param is not None and not isinstance(param, Parameter):
            raise InvalidType(
                f"cannot assign '{_type_name(param)}' object to parameter '{name}' "
                "(adjoint.nn.Parameter or None required)"
            )
        if param is not None and param.grad_fn is not None:
            raise InvalidArgument(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                f"created explicitly. To express '{name}' as a function of another Tensor, compute "
                "the value in the forward() method."
            )
        registered[name] = param

    def _new_parameter(
        self, name: str, shape: tuple[int, ...], device: Any, dtype: Any, wanted: bool = True
    ) -> None:
        """Register a parameter that has no values yet; None where it is not wanted."""
        made = Parameter(empty(shape, device=device, dtype=dtype)) if wanted else None
        self.register_parameter(name, made)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that belongs to the module and is not learned.

        Args:
            name: Name of the attribute.
            tensor: Tensor, or None to keep the name free.
            persistent: Whether it is part of `state_dict`. Default: True.

        Errors: KeyError for a bad name; InvalidType for anything but a tensor.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_buffer

        >>> m = ad.nn.Module()
        >>> m.register_buffer("mean", ad.zeros(1))
        >>> list(m.state_dict())
        ['mean']
        """
        registered = self.__registry("_buffers", "buffer")
        self.__assert_new_name(name, registered, "buffer")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise InvalidType(
                f"cannot assign '{_type_name(tensor)}' object to buffer '{name}' "
                "(adjoint.Tensor or None required)"
            )
        registered[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child, which becomes an attribute.

        Args:
            name: Name of the attribute.
            module: Module, or None to keep the name free.

        Errors: KeyError for a bad name; InvalidType for anything but a Module.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.add_module

        >>> m = ad.nn.Module()
        >>> m.add_module("inner", ad.nn.Identity())
        >>> m.inner
        Identity()
        """
        if module is not None and not isinstance(module, Module):
            raise InvalidType(f"{_type_name(module)} is not a Module subclass")
        registered = self.__registry("_modules", "module")
        self.__assert_new_name(name, registered, "module")
        registered[name] = module

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a child, which becomes an attribute.

        Args:
            name: Name of the attribute.
            module: Module, or None to keep the name free.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_module

        >>> ad.nn.Module().register_module("inner", ad.nn.Identity())
        """
        self.add_module(name, module)

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        parameters = own.get("_parameters")
        if isinstance(value, Parameter):
            self.__registry("_parameters", "parameters")
            self.__forget(name, "_parameters")
            self.register_parameter(name, value)
        elif parameters is not None and name in parameters:
            if value is not None:
                raise InvalidType(
                    f"cannot assign '{_type_name(value)}' as parameter '{name}' "
                    "(adjoint.nn.Parameter or None expected); to change its values use .data or "
                    "copy_ under no_grad"
                )
            parameters[name] = None
        elif isinstance(value, Module):
            self.__registry("_modules", "module")
            self.__forget(name, "_modules")
            own["_modules"][name] = value
        elif name in own.get("_modules", ()):
            if value is not None:
                raise InvalidType(
                    f"cannot assign '{_type_name(value)}' as child module '{name}' "
                    "(adjoint.nn.Module or None expected)"
                )
            own["_modules"][name] = None
        elif isinstance(value, Buffer) or name in own.get("_buffers", ()):
            self.__set_buffer(name, value)
        else:
            object.__setattr__(self, name, value)

    def __set_buffer(self, name: str, value: Any) -> None:
        buffers = self.__registry("_buffers", "buffer")
        if value is not None and not isinstance(value, Tensor):
            raise InvalidType(
                f"cannot assign '{_type_name(value)}' as buffer '{name}' "
                "(adjoint.nn.Buffer, adjoint.Tensor or None expected)"
            )
        if isinstance(value, Buffer):
            self.__forget(name, "_buffers")
            self.register_buffer(name, value, value.persistent)
        else:
            buffers[name] = value

    def __forget(self, name: str, keep: str) -> None:
        """Take `name` out of every place but `keep`, where it is about to be put."""
        own = self.__dict__
        own.pop(name, None)
        for registry in ("_parameters", "_buffers", "_modules"):
            if registry != keep:
                own[registry].pop(name, None)
        if keep != "_buffers":
            own["_non_persistent_buffers_set"].discard(name)

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        for registry in ("_parameters", "_modules", "_buffers"):
            found = own.get(registry)
            if found is not None and name in found:
                return found[name]
        raise AttributeError(
            f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self
        )

    def __delattr__(self, name: str) -> None:
        for registry in ("_parameters", "_buffers", "_modules"):
            found = self.__dict__.get(registry, {})
            if name in found:
                del found[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = {*object.__dir__(self), *self._parameters, *self._buffers, *self._modules}
        return sorted(name for name in names if not name[:1].isdigit())

    # ---- traversal ---------------------------------------------------------------------------

    def named_modules(
        self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """Pairs of path and module, this one first.

        Args:
            memo: Modules that are left out, a set, which those that come are added to. Default:
                None.
            prefix: Beginning of the paths. Default: "".
            remove_duplicate: Whether a shared one comes once only. Default: True.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.named_modules

        >>> [name for name, _ in ad.nn.Sequential(ad.nn.Identity()).named_modules()]
        ['', '0']
        """
        memo = set() if memo is None else memo
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            path, module = stack.pop()
            if remove_duplicate:
                if module in memo:
                    continue
                memo.add(module)
            yield path, module
            stack.extend(
                (f"{path}.{name}" if path else name, child)
                for name, child in reversed(module._modules.items())
                if child is not None
            )

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it, each once, or as often as it is there.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.modules

        >>> len(list(ad.nn.Sequential(ad.nn.Identity()).modules()))
        2
        """
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Pairs of name and child, a shared one once.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.named_children

        >>> [name for name, _ in ad.nn.Sequential(ad.nn.Identity()).named_children()]
        ['0']
        """
        seen = set()
        for name, child in self._modules.items():
            if child is not None and child not in seen:
                seen.add(child)
                yield name, child

    def children(self) -> Iterator[Module]:
        """The direct children, each once.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.children

        >>> list(ad.nn.Sequential(ad.nn.Identity()).children())
        [Identity()]
        """
        for _, child in self.named_children():
            yield child

    def _named_members(
        self,
        get: Callable[[Any], Iterable[tuple[str, Any]]],
        prefix: str,
        recurse: bool,
        remove_duplicate: bool,
    ) -> Iterator[tuple[str, Any]]:
        seen = set()
        modules: Iterable[tuple[str, Any]] = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for path, module in modules:
            for name, value in get(module):
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Pairs of path and parameter.

        Args:
            prefix: Beginning of the paths. Default: "".
            recurse: Whether to include the modules below. Default: True.
            remove_duplicate: Whether a shared one comes once only. Default: True.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.named_parameters

        >>> [name for name, _ in ad.nn.Linear(1, 1).named_parameters("fc")]
        ['fc.weight', 'fc.bias']
        """
        return self._named_members(
            lambda module: module._parameters.items(), prefix, recurse, remove_duplicate
        )

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, each once.

        Args:
            recurse: Whether to include the modules below. Default: True.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.parameters

        >>> sum(p.numel() for p in ad.nn.Linear(3, 2).parameters())
        8
        """
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Pairs of path and buffer.

        Args:
            prefix: Beginning of the paths. Default: "".
            recurse: Whether to include the modules below. Default: True.
            remove_duplicate: Whether a shared one comes once only. Default: True.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.named_buffers

        >>> [name for name, _ in ad.nn.BatchNorm1d(1).named_buffers()]
        ['running_mean', 'running_var', 'num_batches_tracked']
        """
        return self._named_members(
            lambda module: module._buffers.items(), prefix, recurse, remove_duplicate
        )

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers, each once.

        Args:
            recurse: Whether to include the modules below. Default: True.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.buffers

        >>> len(list(ad.nn.BatchNorm1d(1).buffers()))
        3
        """
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def get_submodule(self, target: str) -> Any:
        """Module at a path such as "encoder.0"; this one for "".

        Args:
            target: Path, as in "encoder.0".

        Errors: AttributeError where there is none.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.get_submodule

        >>> ad.nn.Sequential(ad.nn.Identity()).get_submodule("0")
        Identity()
        """
        module: Any = self
        for part in target.split(".") if target else ():
            owner = module._get_name()
            if not hasattr(module, part):
                raise AttributeError(f"{owner} has no attribute `{part}` (looking for {target!r})")
            module = getattr(module, part)
            if not isinstance(module, Module):
                raise AttributeError(f"`{part}` is not an nn.Module (looking for {target!r})")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Replace the module at a path.

        Args:
            target: Path, as in "encoder.0".
            module: New module.
            strict: Refuse a path that does not exist yet. Default: False.

        Errors: InvalidArgument for an empty path; AttributeError where the path leads nowhere.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.set_submodule

        >>> m = ad.nn.Sequential(ad.nn.Identity())
        >>> m.set_submodule("0", ad.nn.ReLU())
        >>> m[0]
        ReLU()
        """
        if not target:
            raise InvalidArgument("set_submodule: cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise InvalidArgument(f"set_submodule: `module` is not an nn.Module, found {module!r}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """Parameter at a path such as "encoder.0.weight".

        Args:
            target: Path, as in "encoder.0".

        Errors: AttributeError where there is none.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.get_parameter

        >>> ad.nn.Linear(3, 2).get_parameter("weight").shape
        adjoint.Size([2, 3])
        """
        return self.__get_member(target, "_parameters", "nn.Parameter")

    def get_buffer(self, target: str) -> Tensor:
        """Buffer at a path such as "norm.running_mean".

        Args:
            target: Path, as in "encoder.0".

        Errors: AttributeError where there is none.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.get_buffer

        >>> ad.nn.BatchNorm1d(3).get_buffer("running_mean").shape
        adjoint.Size([3])
        """
        return self.__get_member(target, "_buffers", "buffer")

    def __get_member(self, target: str, registry: str, what: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        found = getattr(module, registry).get(name)
        if found is None:
            raise AttributeError(f"`{name}` is not an {what}")
        return found

    # ---- changes to the whole tree -----------------------------------------------------------

    def apply(self: M, fn: Callable[[Any], Any]) -> M:
        """Call a function on every module below, then on this one; returns this one.

        Args:
            fn: Function of a module.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.apply

        >>> _ = ad.nn.Sequential(ad.nn.Identity()).apply(lambda m: print(type(m).__name__))
        Identity
        Sequential
        """
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def _apply(self: M, fn: Callable[[Any], Any], recurse: bool = True) -> M:
        """Replace the data of every parameter, its gradient and every buffer by `fn` of it."""
        if recurse:
            for child in self.children():
                child._apply(fn)
        from ..conversion import convert

        for name, parameter in self._parameters.items():
            if parameter is not None:
                convert(self, name, parameter, fn)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self: M, *args: Any, **kwargs: Any) -> M:
        """Move to a device and convert floating-point parameters and buffers to a dtype, in place.

        Takes a device, a dtype, both, or a tensor whose two to copy.

        Errors: InvalidType for a dtype that is neither floating point nor complex.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.to

        >>> ad.nn.Linear(1, 1).to(ad.float64).weight.dtype
        adjoint.float64
        """
        where, kind = _parse_to(*args, **kwargs)
        if kind is not None and kind.category < 2:
            raise InvalidType(
                f"nn.Module.to only accepts floating point or complex dtypes, but got desired "
                f"dtype={kind}"
            )

        def convert(x: Tensor) -> Any:
            wanted = kind if kind is not None and x.dtype.category >= 2 else x.dtype
            return x.to(dtype=wanted) if where is None else x.to(device=where, dtype=wanted)

        return self._apply(convert)

    def type(self: M, dst_type: Any) -> M:
        """Convert all parameters and buffers to a dtype, in place.

        Args:
            dst_type: Data type.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.type

        >>> ad.nn.Linear(1, 1).type(ad.float64).bias.dtype
        adjoint.float64
        """
        wanted = as_dtype(dst_type)
        return self._apply(lambda x: x.to(dtype=wanted))

    def __to_floating(self, wanted: dtype) -> Any:
        return self._apply(lambda x: x.to(dtype=wanted) if x.is_floating_point() else x)

    def float(self: M) -> M:
        """Convert floating-point parameters and buffers to float32, in place.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.float

        >>> ad.nn.Linear(1, 1).double().float().weight.dtype
        adjoint.float32
        """
        return self.__to_floating(float32)

    def double(self: M) -> M:
        """Convert floating-point parameters and buffers to float64, in place.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.double

        >>> ad.nn.Linear(1, 1).double().weight.dtype
        adjoint.float64
        """
        return self.__to_floating(float64)

    def half(self: M) -> M:
        """Convert floating-point parameters and buffers to float16, in place.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.half

        >>> ad.nn.Linear(1, 1).half().weight.dtype
        adjoint.float16
        """
        return self.__to_floating(float16)

    def bfloat16(self: M) -> M:
        """Convert floating-point parameters and buffers to bfloat16, in place.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.bfloat16

        >>> ad.nn.Linear(1, 1).bfloat16().weight.dtype
        adjoint.bfloat16
        """
        return self.__to_floating(bfloat16)

    def cpu(self: M) -> M:
        """Move to the CPU, in place.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.cpu

        >>> ad.nn.Linear(1, 1).cpu().weight.device
        device(type='cpu')
        """
        return self.__move("cpu")

    def cuda(self: M, device: Any = None) -> M:
        """Move to a CUDA device, in place.

        Args:
            device: Device, or its number. Default: None, the current CUDA device.

        Errors: DeviceError where there is none.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.cuda
        """
        if isinstance(device, int) or device is None:
            device = f"cuda:{device or 0}"
        return self.__move(device)

    def __move(self, device: Any) -> Any:
        where = as_device(device)  # not by `to`, which in others' classes calls `cpu` and `cuda`
        return self._apply(lambda x: x.to(device=where))

    def to_empty(self: M, *, device: Any, recurse: bool = True) -> M:
        """Move to a device without copying the values.

        Args:
            device: Device.
            recurse: Whether to include the modules below. Default: True.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.to_empty

        >>> ad.nn.Linear(1, 1).to_empty(device="cpu").weight.shape
        adjoint.Size([1, 1])
        """
        where = as_device(device)
        return self._apply(lambda x: x.new_empty(x.shape, device=where), recurse)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Let `forward` run as native programs from now on; hooks run around them as before.

        Errors: those of `ad.compile`, whose arguments these are.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.compile

        >>> layer = ad.nn.Linear(2, 1)
        >>> layer.compile()
        >>> layer(ad.ones(3, 2)).shape
        adjoint.Size([3, 1])
        """
        self.__dict__.pop("forward", None)
        compiler = load("compiler")  # it stands on this room
        self.__dict__["forward"] = compiler.compile(self.forward, *args, **kwargs)

    def train(self: M, mode: bool = True) -> M:
        """Set training mode (dropout drops, batch norm learns statistics), here and below.

        Args:
            mode: True for training, False for evaluation. Default: True.

        Errors: InvalidArgument where `mode` is not a bool.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.train

        >>> ad.nn.Identity().train().training
        True
        """
        if not isinstance(mode, bool):
            raise InvalidArgument(f"train: training mode is expected to be boolean, got {mode!r}")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self: M) -> M:
        """Set evaluation mode, here and below; `train(False)`.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.eval

        >>> ad.nn.Identity().eval().training
        False
        """
        return self.train(False)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Start or stop recording operations on all parameters.

        Args:
            requires_grad: Whether to record. Default: True.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.requires_grad_

        >>> ad.nn.Linear(1, 1).requires_grad_(False).weight.requires_grad
        False
        """
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def freeze(self: M) -> M:
        """Store no gradients for the parameters here and below, and drop those that they have:
        optimizers leave them alone. Gradients still flow through.

        >>> ad.nn.Linear(1, 1).freeze().is_frozen
        True
        """
        for p in self.parameters():
            p.freeze()
        return self

    def unfreeze(self: M) -> M:
        """Store gradients for the parameters here and below again.

        >>> ad.nn.Linear(1, 1).freeze().unfreeze().is_frozen
        False
        """
        return self.requires_grad_(True)

    is_frozen = _Frozen()

    def share_memory(self: M) -> M:
        """Move all parameters and buffers to memory that processes share (`share_memory_`).

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.share_memory

        >>> ad.nn.Linear(1, 1).share_memory().weight.is_shared()
        True
        """
        for tensor in (*self.parameters(), *self.buffers()):
            tensor.share_memory_()
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros.

        Args:
            set_to_none: Drop them; otherwise fill them. Default: True.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.zero_grad

        >>> ad.nn.Linear(1, 1).zero_grad()
        """
        clear_gradients(self.parameters(), set_to_none)

    # ---- state -------------------------------------------------------------------------------

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """All parameters and persistent buffers by path, detached unless `keep_vars`.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.state_dict

        >>> list(ad.nn.Linear(1, 1).state_dict(prefix="fc."))
        ['fc.weight', 'fc.bias']
        """
        for name, value in zip(("destination", "prefix", "keep_vars"), args, strict=False):
            if name == "destination":
                destination = value
            elif name == "prefix":
                prefix = value
            else:
                keep_vars = value
        return state.state_dict(self, destination, prefix, keep_vars)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copy values from a state dict; returns the missing and the unexpected keys.

        Args:
            state_dict: Values by path.
            strict: Refuse missing and unexpected keys. Default: True.
            assign: Take the tensors themselves instead of copying their values. Default: False.

        Errors: CheckpointError (a RuntimeError) that lists everything that does not fit.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.load_state_dict

        >>> m = ad.nn.Linear(1, 1)
        >>> m.load_state_dict(m.state_dict())
        <All keys matched successfully>
        """
        return state.load_state_dict(self, state_dict, strict, assign)

    def get_extra_state(self) -> Any:
        """State beyond parameters and buffers; define it together with `set_extra_state`.

        Errors: NotImplementedError where the subclass does not define it.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.get_extra_state
        """
        raise NotImplementedError(f"{type(self).__name__}.get_extra_state is not defined")

    def set_extra_state(self, state: Any) -> None:
        """Restore what `get_extra_state` returned.

        Errors: NotImplementedError where the subclass does not define it.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.set_extra_state
        """
        raise NotImplementedError(f"{type(self).__name__}.set_extra_state is not defined")

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        extra = type(self).get_extra_state is not Module.get_extra_state
        state.save_own(self, destination, prefix, keep_vars, extra)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        extra = type(self).set_extra_state is not Module.set_extra_state
        state.load_own(
            self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
            error_msgs, extra,
        )  # fmt: skip

    # ---- hooks -------------------------------------------------------------------------------

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` before each forward; it may return other arguments.

        Args:
            hook: Function to call.
            prepend: Call it before the hooks that are there. Default: False.
            with_kwargs: Pass the keyword arguments of the call, too, behind `args`. Default: False.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_forward_pre_hook

        >>> m = ad.nn.Identity()
        >>> handle = m.register_forward_pre_hook(lambda module, args: args[0] + 1)
        >>> m(1)
        2
        """
        return add_to(self, "forward_pre", Entry(hook, with_kwargs), prepend)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call `hook(module, args, output)` after each forward; it may return another output.

        Args:
            hook: Function to call.
            prepend: Call it before the hooks that are there. Default: False.
            with_kwargs: Pass the keyword arguments of the call, too, behind `args`. Default: False.
            always_call: Call it even where the forward raised an error. Default: False.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_forward_hook

        >>> m = ad.nn.Identity()
        >>> handle = m.register_forward_hook(lambda module, args, output: output + 1)
        >>> m(1)
        2
        """
        return add_to(self, "forward", Entry(hook, with_kwargs, always_call), prepend)

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, grad_output)` before the module's gradients are computed.

        Args:
            hook: Function to call.
            prepend: Call it before the hooks that are there. Default: False.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_full_backward_pre_hook

        >>> m, x = ad.nn.Identity(), ad.ones(1, requires_grad=True)
        >>> handle = m.register_full_backward_pre_hook(lambda module, grads: (grads[0] * 2,))
        >>> m(x).backward()
        >>> x.grad
        tensor([2.])
        """
        return add_to(self, "backward_pre", Entry(hook), prepend)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` once the inputs' gradients are known.

        Args:
            hook: Function to call.
            prepend: Call it before the hooks that are there. Default: False.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_full_backward_hook

        >>> m, x = ad.nn.Identity(), ad.ones(1, requires_grad=True)
        >>> handle = m.register_full_backward_hook(lambda module, grads, outs: (grads[0] * 3,))
        >>> m(x).backward()
        >>> x.grad
        tensor([3.])
        """
        return add_to(self, "backward", Entry(hook), prepend)

    register_backward_hook = register_full_backward_hook

    def _state_hooks(self, kind: str) -> dict[int, Any]:
        return (self._state_dict_hooks or {}).get(kind) or {}

    def __add_state_hook(self, kind: str, hook: Any) -> RemovableHandle:
        if self._state_dict_hooks is None:
            self._state_dict_hooks = {}
        return add(self._state_dict_hooks.setdefault(kind, {}), hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before `state_dict` collects.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_state_dict_pre_hook

        >>> m = ad.nn.Identity()
        >>> handle = m.register_state_dict_pre_hook(lambda module, prefix, keep: print("saving"))
        >>> _ = m.state_dict()
        saving
        """
        return self.__add_state_hook("pre", hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` after `state_dict` collected.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_state_dict_post_hook

        >>> m = ad.nn.Identity()
        >>> handle = m.register_state_dict_post_hook(lambda m, s, p, l: s.update(note=1))
        >>> list(m.state_dict())
        ['note']
        """
        return self.__add_state_hook("post", hook)

    _register_state_dict_hook = register_state_dict_post_hook

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, ...)` before this module loads; it may change the
        dict.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_load_state_dict_pre_hook

        >>> m = ad.nn.Identity()
        >>> handle = m.register_load_state_dict_pre_hook(lambda m, s, *rest: s.pop("old", None))
        >>> m.load_state_dict({"old": ad.ones(1)})
        <All keys matched successfully>
        """
        return self.__add_state_hook("load_pre", hook)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        if with_module:
            return self.__add_state_hook("load_pre", hook)
        return self.__add_state_hook("load_pre", partial(_without_module, hook))

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` after this module loaded; it may change the keys.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_load_state_dict_post_hook

        >>> m = ad.nn.Identity()
        >>> handle = m.register_load_state_dict_post_hook(lambda m, keys: keys[1].clear())
        >>> m.load_state_dict({"extra": ad.ones(1)})
        <All keys matched successfully>
        """
        return self.__add_state_hook("load_post", hook)

    # ---- text --------------------------------------------------------------------------------

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """Text of the module's own settings in `repr`; subclasses define it, or `_shown_as`.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.extra_repr

        >>> ad.nn.Linear(1, 2).extra_repr()
        'in_features=1, out_features=2, bias=True'
        """
        return self._shown(self._shown_as, self._shown_unless)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({"_non_persistent_buffers_set": set(), **state})

    def _shown(self, text: str, unless: Iterable[tuple[str, Any]]) -> str:
        """`text` with attributes in the place of their names in braces, then those attributes that
        have other values than `unless` says.
        """
        settings = _Settings(self)
        unusual = [f"{name}={settings[name]}" for name, v in unless if settings[name] != v]
        return ", ".join(filter(None, [text.format_map(settings), *unusual]))

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): {indent(repr(m), 2)}" for name, m in self._modules.items()]
        if not children and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        inner = "\n  ".join(lines + children)
        return f"{self._get_name()}(\n  {inner}\n)"


class _Settings(dict[str, Any]):
    """A module's attributes by name; of a parameter, whether there is one."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def __missing__(self, name: str) -> Any:
        value = getattr(self.module, name)
        is_parameter = name in self.module._parameters or isinstance(value, Tensor)
        return value is not None if is_parameter else value


def indent(text: str, width: int) -> str:
    """`text` with every line but the first moved right."""
    return text.replace("\n", "\n" + " " * width)


def clear_gradients(parameters: Iterable[Any], set_to_none: bool) -> None:
    """Drop gradients, or fill them with zeros after cutting their history."""
    for parameter in parameters:
        if set_to_none:
            parameter.grad = None  # said also where there is none: captures follow it
            continue
        gradient = parameter.grad
        if gradient is None:
            continue
        if gradient.grad_fn is not None:
            parameter.grad = gradient.detach().zero_()
        else:
            gradient.requires_grad_(False).zero_()


def _without_module(hook: Callable[..., Any], module: Any, *args: Any) -> Any:
    return hook(*args)


def _type_name(value: Any) -> str:
    kind = type(value)
    prefix = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{prefix}{kind.__qualname__}"


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """The device and dtype, or None, that the arguments of `to` ask for."""
    where, kind = kwargs.pop("device", None), kwargs.pop("dtype", None)
    other = kwargs.pop("tensor", None)
    for name in ("non_blocking", "memory_format", "copy"):
        kwargs.pop(name, None)
    if kwargs:
        raise InvalidType(f"to: unexpected keyword argument {next(iter(kwargs))!r}")
    for arg in args:
        if isinstance(arg, Tensor):
            other = arg
        elif isinstance(arg, dtype) or (isinstance(arg, str) and named(arg)):
            kind = arg
        elif isinstance(arg, (str, int, device)) and not isinstance(arg, bool):
            where = arg
        elif not isinstance(arg, bool) and arg is not None:
            raise misplaced(arg, "to", due="a device, a dtype or a tensor")
    if other is not None:
        where, kind = other.device, other.dtype
    return None if where is None else as_device(where), None if kind is None else as_dtype(kind)
