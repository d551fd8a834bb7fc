"""Module hooks: where they are kept, and the call of a module that has some."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

from ..autograd.function import Function
from ..autograd.modes import is_grad_enabled
from ..core.errors import InvalidArgument
from ..tensor import RemovableHandle, Tensor

__all__ = [
    "register_module_forward_hook", "register_module_forward_pre_hook",
    "register_module_full_backward_hook", "register_module_full_backward_pre_hook",
]  # fmt: skip


class Entry(NamedTuple):
    """A registered hook and how to call it."""

    function: Callable[..., Any]
    with_kwargs: bool = False
    always_call: bool = False


class Hooks:
    """The hooks around one module's forward and backward; in order of registration."""

    def __init__(self) -> None:
        self.forward_pre: dict[int, Entry] = {}
        self.forward: dict[int, Entry] = {}
        self.backward_pre: dict[int, Entry] = {}
        self.backward: dict[int, Entry] = {}

    def __bool__(self) -> bool:
        return bool(self.forward_pre or self.forward or self.backward_pre or self.backward)


EVERYWHERE = Hooks()  # hooks on all modules
USERS: dict[int, Entry] = {}  # of those, all but the package's own, which only look on


class HookHandle(RemovableHandle):
    """Handle of a module's hook; without the last hook the module is as before the first."""

    def __init__(self, hooks: dict[int, Any], module: Any) -> None:
        super().__init__(hooks)
        self._module = module

    def remove(self) -> None:
        """Take the hook away; a second time does nothing."""
        super().remove()
        if not self._module._call_hooks:
            self._module.__dict__.pop("_call_hooks", None)


class HookFunctions(MutableMapping[int, Any]):
    """The functions of a module's hooks of one kind by their numbers, as PyTorch's `_forward_hooks`
    are: what is removed here does not run any more, what is put here does.
    """

    def __init__(self, module: Any, kind: str) -> None:
        self._module, self._kind = module, kind

    def _entries(self) -> dict[int, Entry]:
        hooks = self._module._call_hooks
        return {} if hooks is None else getattr(hooks, self._kind)

    def __getitem__(self, number: int) -> Any:
        return self._entries()[number].function

    def __setitem__(self, number: int, function: Any) -> None:
        if self._module._call_hooks is None:
            self._module._call_hooks = Hooks()
        self._entries()[number] = Entry(function)

    def __delitem__(self, number: int) -> None:
        del self._entries()[number]
        if not self._module._call_hooks:
            self._module.__dict__.pop("_call_hooks", None)

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._entries()))

    def __len__(self) -> int:
        return len(self._entries())

    def __repr__(self) -> str:
        return repr(OrderedDict(self))


class HooksOfKind:
    """The attribute of modules with the hooks of one kind; set, it has those that are given."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __get__(self, module: Any, owner: Any = None) -> Any:
        return self if module is None else HookFunctions(module, self._kind)

    def __set__(self, module: Any, functions: Mapping[int, Any]) -> None:
        given, now = dict(functions), HookFunctions(module, self._kind)
        now.clear()
        now.update(given)


def add_to(module: Any, kind: str, entry: Entry, prepend: bool = False) -> RemovableHandle:
    """Register `entry` as a hook of a module; the handle removes it."""
    if module._call_hooks is None:
        module._call_hooks = Hooks()
    hooks = getattr(module._call_hooks, kind)
    return add(hooks, entry, prepend, HookHandle(hooks, module))


def add(
    hooks: dict[int, Any], entry: Any, prepend: bool = False, handle: Any = None
) -> RemovableHandle:
    """Register `entry`; the handle, a new one by default, removes it."""
    handle = RemovableHandle(hooks) if handle is None else handle
    after = dict(hooks) if prepend else {}
    if prepend:
        hooks.clear()
    hooks[handle.id] = entry
    hooks.update(after)
    return handle


def call_with_hooks(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`module(*args, **kwargs)` with every hook run."""
    hooks = module._call_hooks or Hooks()
    done: set[int] = set()
    try:
        return _call(module, hooks, args, kwargs, done)
    except Exception:
        for key, entry in (*EVERYWHERE.forward.items(), *hooks.forward.items()):
            if entry.always_call and key not in done:
                try:
                    _after_forward(module, entry, args, kwargs, None)
                except Exception as error:
                    warnings.warn(
                        f"module forward hook with ``always_call=True`` raised an exception that "
                        f"was silenced as another error was raised in forward: {error}",
                        stacklevel=2,
                    )
        raise


def _call(
    module: Any, hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any], done: set[int]
) -> Any:
    for entry in (*EVERYWHERE.forward_pre.values(), *hooks.forward_pre.values()):
        args, kwargs = _before_forward(module, entry, args, kwargs)
    backward = None
    before = (*EVERYWHERE.backward_pre.values(), *hooks.backward_pre.values())
    after = (*EVERYWHERE.backward.values(), *hooks.backward.values())
    if before or after:
        backward = _BackwardHooks(
            module, [entry.function for entry in before], [entry.function for entry in after]
        )
        args = backward.watch_inputs(args)
    result = module.forward(*args, **kwargs)
    for key, entry in (*EVERYWHERE.forward.items(), *hooks.forward.items()):
        done.add(key)
        replacement = _after_forward(module, entry, args, kwargs, result)
        if replacement is not None:
            result = replacement
    return result if backward is None else backward.watch_outputs(result)


def _before_forward(
    module: Any, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if entry.with_kwargs:
        found = entry.function(module, args, kwargs)
        if found is None:
            return args, kwargs
        if isinstance(found, tuple) and len(found) == 2:
            return found
        raise InvalidArgument(
            f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got "
            f"{found}."
        )
    found = entry.function(module, args)
    if found is None:
        return args, kwargs
    return (found if isinstance(found, tuple) else (found,)), kwargs


def _after_forward(
    module: Any, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> Any:
    if entry.with_kwargs:
        return entry.function(module, args, kwargs, result)
    return entry.function(module, args, result)


# ---- backward ------------------------------------------------------------------------------------


class _Watch(Function):
    """Passes tensors on unchanged, and shows their gradients to `see` on the way back."""

    @staticmethod
    def forward(ctx: Any, see: Callable[..., Any], *tensors: Any) -> Any:
        """The tensors themselves."""
        ctx.set_materialize_grads(False)
        ctx.see = see
        return tuple(x.view_as(x) for x in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Pass the gradients on as `see` changes them."""
        return (None, *ctx.see(gradients))


class _BackwardHooks:
    """One call's backward hooks: they run when the gradients of all its inputs are known."""

    def __init__(
        self, module: Any, before: list[Callable[..., Any]], after: list[Callable[..., Any]]
    ) -> None:
        self.module = module
        self.before = before
        self.after = after
        self.grad_outputs: tuple[Any, ...] | None = None
        self.input_count = 0
        self.output_count = 0
        self.watches_inputs = False

    def watch_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, with the gradients of the tensors among them watched."""
        self.input_count = len(args)
        watched, places = _watch(self._inputs_ready, args)
        self.watches_inputs = places is not None
        self.input_places = places or ()
        return watched

    def watch_outputs(self, result: Any) -> Any:
        """The result, with the gradients of its tensors watched."""
        single = not isinstance(result, tuple)
        values = (result,) if single else result
        self.output_count = len(values)
        watched, places = _watch(self._outputs_ready, values)
        self.output_places = places or ()
        if single:
            return watched[0]
        return type(result)(*watched) if hasattr(result, "_fields") else watched

    def _outputs_ready(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        packed = _spread(gradients, self.output_places, self.output_count)
        for hook in self.before:
            found = hook(self.module, packed)
            if found is not None:
                packed = _checked(found, self.output_count, "pre")
        self.grad_outputs = packed
        if not self.watches_inputs:
            for hook in self.after:
                found = hook(self.module, _spread((), (), self.input_count), packed)
                if found is not None and any(g is not None for g in found):
                    raise InvalidArgument(
                        "Backward hook for Modules where no input requires gradient should always "
                        "return None or None for all gradients."
                    )
            self.grad_outputs = None
        return tuple(packed[i] for i in self.output_places)

    def _inputs_ready(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        packed = _spread(gradients, self.input_places, self.input_count)
        grad_outputs = self.grad_outputs
        if grad_outputs is None:
            return gradients
        for hook in self.after:
            found = hook(self.module, packed, grad_outputs)
            if found is not None:
                packed = _checked(found, self.input_count, "")
        self.grad_outputs = None
        return tuple(packed[i] for i in self.input_places)


def _watch(see: Any, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[int, ...] | None]:
    """`values` with their tensors watched by `see`, and where those are; None without gradients."""
    places = tuple(
        i for i, value in enumerate(values) if isinstance(value, Tensor) and value.requires_grad
    )
    if not places or not is_grad_enabled():
        return values, None
    tensors = _Watch.apply(see, *(values[i] for i in places))
    found = list(values)
    for i, tensor in zip(places, tensors, strict=True):
        found[i] = tensor
    return tuple(found), places


def _spread(gradients: tuple[Any, ...], places: tuple[int, ...], count: int) -> tuple[Any, ...]:
    found = [None] * count
    for i, gradient in zip(places, gradients, strict=True):
        found[i] = gradient
    return tuple(found)


def _checked(found: Any, count: int, which: str) -> tuple[Any, ...]:
    result = found if isinstance(found, tuple) else (found,)
    if len(result) != count:
        raise InvalidArgument(
            f"Backward {which}hook returned an invalid number of grads: got {len(result)}, but "
            f"expected {count}"
        )
    return result


# ---- hooks on all modules ------------------------------------------------------------------------


class _HandleOnAll(RemovableHandle):
    """Handle of a user's hook on all modules."""

    def remove(self) -> None:
        """Take the hook away; a second time does nothing."""
        super().remove()
        USERS.pop(self.id, None)


def _add_on_all(hooks: dict[int, Any], entry: Entry) -> RemovableHandle:
    handle = add(hooks, entry, handle=_HandleOnAll(hooks))
    USERS[handle.id] = entry
    return handle


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, args)` before the forward of every module.

    It may return other arguments. `remove()` of the handle that is returned takes the hook away.

    Args:
        hook: Function to call.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.modules.module.register_module_forward_pre_hook.html

    >>> names = []
    >>> hook = lambda m, args: names.append(type(m).__name__)
    >>> with ad.nn.modules.module.register_module_forward_pre_hook(hook):
    ...     y = ad.nn.Sequential(ad.nn.Identity())(ad.ones(1))
    >>> names
    ['Sequential', 'Identity']
    """
    return _add_on_all(EVERYWHERE.forward_pre, Entry(hook))


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call `hook(module, args, output)` after the forward of every module.

    It may return another output. `remove()` of the handle that is returned takes the hook away.

    Args:
        hook: Function to call.
        with_kwargs: Pass the keyword arguments of the call, too, behind `args`. Default: False.
        always_call: Call it even where the forward raised an error. Default: False.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.modules.module.register_module_forward_hook.html

    >>> names = []
    >>> hook = lambda m, args, out: names.append(type(m).__name__)
    >>> with ad.nn.modules.module.register_module_forward_hook(hook):
    ...     y = ad.nn.Sequential(ad.nn.Identity())(ad.ones(1))
    >>> names
    ['Identity', 'Sequential']
    """
    return _add_on_all(EVERYWHERE.forward, Entry(hook, with_kwargs, always_call))


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_output)` before the gradients of every module are computed.

    It may return other gradients. `remove()` of the handle that is returned takes the hook away.

    Args:
        hook: Function to call.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.modules.module.register_module_full_backward_pre_hook.html

    >>> hook = lambda m, grads: print(grads)
    >>> with ad.nn.modules.module.register_module_full_backward_pre_hook(hook):
    ...     ad.nn.Identity()(ad.ones(1, requires_grad=True)).backward()
    (tensor([1.]),)
    """
    return _add_on_all(EVERYWHERE.backward_pre, Entry(hook))


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_input, grad_output)` once a module's gradients are known.

    It is called for every module, once the gradients of its inputs are known, and may return
    others. `remove()` of the handle that is returned takes the hook away.

    Args:
        hook: Function to call.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.modules.module.register_module_full_backward_hook.html

    >>> hook = lambda m, grads, outs: print(grads)
    >>> with ad.nn.modules.module.register_module_full_backward_hook(hook):
    ...     ad.nn.Identity()(ad.ones(1, requires_grad=True)).backward()
    (tensor([1.]),)
    """
    return _add_on_all(EVERYWHERE.backward, Entry(hook))
