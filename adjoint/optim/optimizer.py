"""Optimizer: parameter groups, per-parameter state, state dicts."""

from __future__ import annotations

import copy
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from itertools import chain
from typing import Any, ClassVar

from ..autograd.modes import enable_grad
from ..core.argument_errors import described, remedy
from ..core.errors import CheckpointError, InvalidArgument, InvalidType, LayoutError
from ..core.keywords import explain_keywords
from ..core.mode import MODE, mode_with, observed, unobserved
from ..nn.hooks import add
from ..nn.modules.module import clear_gradients
from ..ops.create.conversion import Sparse
from ..tensor import RemovableHandle, Tensor
from .options import as_float as as_float
from .options import assert_not_negative as assert_not_negative
from .options import checked as checked
from .step_hooks import ON_ALL as ON_ALL
from .step_hooks import (
    _with_hooks,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]

ParamsT = Iterable[Any]  # what optimizers take: parameters, groups, or names with parameters
Group = dict[str, Any]  # parameters, and the options that they have in common
State = dict[str, Any]  # what an optimizer remembers of one parameter


class _Required:
    """Marks a default that the user must give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()
STEPPED: ContextVar[list[Any] | None] = ContextVar("STEPPED", default=None)  # for whoever asks


@explain_keywords
class Optimizer:
    """Base of optimizers: groups of parameters, a state for each of them, hooks and state dicts.

    A subclass calls `super().__init__(params, defaults)` and defines `update(group, parameters)`,
    or `step` itself. Parameters without a gradient are skipped.

    Args:
        params: Parameters to change: an iterable of tensors, of pairs (name, tensor), or of dicts
            (groups) that hold `params` and, where a group differs, options.
        defaults: Options of the groups that do not give them.

    Errors: InvalidArgument for no parameters, one in two groups, one that is no leaf, or names for
    some only; InvalidType for anything but tensors, for a single tensor, and for a set.
    Source: https://docs.pytorch.org/docs/stable/optim.html#torch.optim.Optimizer

    >>> class Descent(ad.optim.Optimizer):
    ...     def __init__(self, params, lr): super().__init__(params, {"lr": lr})
    ...     def update(self, group, parameters):
    ...         for p in parameters: p.sub_(p.grad * group["lr"])
    >>> p = ad.nn.Parameter(ad.ones(1))
    >>> p.sum().backward()
    >>> Descent([p], lr=0.25).step()
    >>> p.item()
    0.75
    """

    _hook_kinds: ClassVar[tuple[str, ...]] = (
        "before_step", "after_step", "before_save", "after_save", "before_load", "after_load",
    )  # fmt: skip
    # What compiled functions follow only where a user's code names it, where each step of their
    # programs reads it anyway; None: they follow all.
    _read_by_name: ClassVar[tuple[str, ...] | None] = None
    _read_always: ClassVar[tuple[str, ...]] = ("_hooks",)  # and what they follow in any case
    # Whether a step treats every element alike, so that parts of parameters can be given to it.
    by_element: ClassVar[bool] = False
    # Names of the tensors like a parameter that each state has, and that begin as zeros.
    zeros: ClassVar[tuple[str, ...]] = ()
    # Whether a step takes sparse gradients, by `update_sparse`; None: its own code sees to them.
    takes_sparse: ClassVar[bool | None] = None
    state: defaultdict[Any, Any]
    param_groups: list[dict[str, Any]]
    _has_stepped = False  # schedules warn where they step first

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self._make_hooks()
        if isinstance(params, Tensor):
            raise InvalidType(
                "params argument given to the optimizer should be an iterable of Tensors or "
                f"dicts, but got {type(params).__name__}; put it in a list"
            )
        self.state = defaultdict(dict)
        self.param_groups = []
        groups = list(params)
        if not groups:
            raise InvalidArgument(
                f"{type(self).__name__}: optimizer got an empty parameter list; pass "
                "model.parameters() (a generator is empty once it has been read)"
            )
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(dict(group) if isinstance(group, dict) else group)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.step)  # type: ignore[method-assign]

    def _members(self) -> list[tuple[dict[str, Any], str]]:
        """Where the lists stand that say which tensors it is about: compiled functions follow them,
        whoever names them.
        """
        return [
            (self.__dict__, "param_groups"),
            *((group, "params") for group in self.param_groups),
        ]

    def _note_step(self) -> None:
        """Tell whoever asked that a step is made, or would be if gradients were finite."""
        stepped = STEPPED.get()
        if stepped is not None:
            stepped.append(self)

    def __getattr__(self, name: str) -> Any:
        if name == "_hooks":  # a wrapper's that has not called our constructor
            self._make_hooks()
            return self._hooks
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _patch_step_function(self) -> None:
        """Let `step` run hooks: it does."""

    def _make_hooks(self) -> None:
        self._hooks: dict[str, dict[int, Any]] = {kind: {} for kind in self._hook_kinds}

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_hooks" not in self.__dict__:
            self._make_hooks()
        for group in self.param_groups:  # options that a newer version has added
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            for key in sorted(group):
                if key != "params":
                    text += f"    {key}: {group[key]}\n"
        return text + ")"

    # ---- groups ------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own.

        Args:
            param_group: Dict with `params`, a tensor or several, and options; those that it lacks
                are the defaults.

        Errors: InvalidType for anything but a dict of tensors; InvalidArgument for a parameter
        that is no leaf or is in another group.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.add_param_group.html

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=0.1)
        >>> optimizer.add_param_group({"params": [ad.nn.Parameter(ad.ones(1))], "lr": 0.5})
        >>> [group["lr"] for group in optimizer.param_groups]
        [0.1, 0.5]
        """
        if not isinstance(param_group, dict):
            raise InvalidType(f"param_group must be a dict, but got {type(param_group).__name__}")
        param_group["params"] = self._listed(param_group["params"], param_group)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise InvalidArgument(
                    f"parameter group didn't specify a value of required optimization parameter "
                    f"{name}"
                )
            param_group.setdefault(name, default)
        new = [id(p) for p in param_group["params"]]
        if len(set(new)) != len(new):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; each counts as "
                "often as it is listed; pass each once",
                stacklevel=3,
            )
        named = "param_names" in param_group
        if any(("param_names" in group) != named for group in self.param_groups):
            raise InvalidArgument(
                "all optimizer param groups should be with/without names. cannot add param group "
                f"{'with' if named else 'without'} names to the optimizer"
            )
        old = {id(p) for group in self.param_groups for p in group["params"]}
        if not old.isdisjoint(new):
            raise InvalidArgument("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def _listed(self, params: Any, group: dict[str, Any]) -> list[Any]:
        """The parameters as a list; names from `named_parameters()` go to `group`."""
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, (set, frozenset)):
            raise InvalidType(
                "optimizer parameters need to be organized in ordered collections, but the "
                "ordering of tensors in sets will change between runs. Please use a list instead."
            )
        found = list(params)
        named = [isinstance(p, tuple) and len(p) == 2 for p in found]
        if any(named):
            if not all(named):
                raise InvalidArgument(
                    "all optimizer params should be with/without names. Some param names are "
                    f"missing: {named.count(False)} of {len(named)} are without"
                )
            group["param_names"] = [name for name, _ in found]
            found = [p for _, p in found]
        for p in found:
            if not isinstance(p, Tensor):
                raise InvalidType(
                    f"{type(self).__name__}: optimizer can only optimize Tensors, but one of the "
                    f"params is {described(p)}; {remedy(p)}"
                )
            if hasattr(p, "global_shape") and not self.by_element:
                raise InvalidArgument(
                    f"{type(self).__name__}: a step looks at whole parameters, but this one is the "
                    f"part of {tuple(p.shape)} that a rank has of {tuple(p.global_shape)} "
                    "(fully_shard); use an optimizer that treats every element alike, as AdamW "
                    "(one of your own says so by `by_element = True`)"
                )
            if not (self.defaults.get("differentiable") or p.is_leaf or p.retains_grad):
                raise InvalidArgument(
                    f"{type(self).__name__}: can't optimize a non-leaf Tensor (shape "
                    f"{tuple(p.shape)}); pass the tensors that it was computed from, or detach() it"
                )
        return found

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros.

        Args:
            set_to_none: Drop them; otherwise fill them. Default: True.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html

        >>> p = ad.nn.Parameter(ad.ones(1))
        >>> p.sum().backward()
        >>> ad.optim.SGD([p], lr=0.1).zero_grad()
        >>> p.grad is None
        True
        """
        if MODE.get().observer is None:
            clear_gradients(self._parameters(), set_to_none)
            return
        name = f"Optimizer.zero_grad#{type(self).__name__}.zero_grad"
        observed(name, clear_gradients, self._parameters(), set_to_none)

    # ---- the step ----------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters once by their gradients; returns the closure's loss.

        Args:
            closure: Function that clears the gradients, computes the loss, calls backward and
                returns the loss. Default: None, the gradients are there.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.step.html

        >>> p = ad.nn.Parameter(ad.ones(1))
        >>> p.sum().backward()
        >>> ad.optim.SGD([p], lr=0.25).step()
        >>> p.item()
        0.75
        """
        loss = None
        differentiable = bool(self.defaults.get("differentiable", False))
        outside = MODE.get()
        try:
            MODE.set(mode_with(unobserved(MODE.get()), grad=differentiable))
            if closure is not None:
                with enable_grad():
                    loss = closure()
            groups, sparse = [], False
            for group in self.param_groups:
                parameters = [p for p in group["params"] if p.grad is not None]
                if parameters:
                    groups.append((group, parameters))
                for p in parameters:
                    sparse = sparse or type(p._leaf.grad._data) is Sparse
            if sparse and self.takes_sparse is not None:
                groups = self._without_sparse(groups)
            if MODE.get().observer is not None:
                MODE.set(mode_with(MODE.get(), observer=None))  # kernels, as without
            self.update_groups(groups)
        finally:
            MODE.set(outside)
        return loss

    def _without_sparse(self, groups: list[tuple[Group, list[Any]]]) -> list[Any]:
        """The groups without the parameters of sparse gradients, which are changed; if one of them
        is refused, none.
        """
        found = [(group, p) for group, parameters in groups for p in parameters if is_sparse(p)]
        for group, _ in found:
            self.assert_takes_sparse(group)
        for group, p in found:
            self.update_sparse(group, p)
        rest = [
            (group, [p for p in parameters if not is_sparse(p)]) for group, parameters in groups
        ]
        return [(group, parameters) for group, parameters in rest if parameters]

    def assert_takes_sparse(self, group: Group) -> None:
        """Refuse sparse gradients, where a step takes none with the options of `group`.

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=0.1)
        >>> optimizer.assert_takes_sparse(optimizer.param_groups[0])
        """
        if not self.takes_sparse:
            raise LayoutError(
                f"{type(self).__name__} does not support sparse gradients, please consider "
                "SparseAdam instead (or SGD, Adagrad)"
            )
        if group.get("weight_decay"):
            raise LayoutError(
                f"{type(self).__name__}: weight_decay option is not compatible with sparse "
                "gradients; it must be 0"
            )

    def update_sparse(self, group: Group, p: Any) -> None:
        """Change a parameter whose gradient is sparse; subclasses that take these define it.

        >>> p = ad.nn.Parameter(ad.ones(2))
        >>> p.grad = ad.sparse_coo_tensor([[1]], [1.0], (2,))
        >>> optimizer = ad.optim.SGD([p], lr=0.25)
        >>> with ad.no_grad():
        ...     optimizer.update_sparse(optimizer.param_groups[0], p)
        >>> p.tolist()
        [1.0, 0.75]
        """
        raise NotImplementedError(f"{type(self).__name__} must define update_sparse")

    def update_groups(self, groups: list[tuple[dict[str, Any], list[Any]]]) -> None:
        """Change the parameters that have a gradient, of each group that has some.

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=0.1)
        >>> optimizer.update_groups([])
        """
        for group, parameters in groups:
            self.update(group, parameters)

    def update(self, group: Group, parameters: list[Any]) -> None:
        """Change the group's parameters that have a gradient; subclasses define it.

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=0.1)
        >>> optimizer.update(optimizer.param_groups[0], [])
        """
        raise NotImplementedError(f"{type(self).__name__} must define update, or step")

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; it may return other arguments.

        Args:
            hook: Function to call.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.register_step_pre_hook.html

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=0.1)
        >>> handle = optimizer.register_step_pre_hook(lambda o, args, kwargs: print("before"))
        >>> optimizer.step()
        before
        """
        return add(self._hooks["before_step"], hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step.

        Args:
            hook: Function to call.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.register_step_post_hook.html

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=0.1)
        >>> handle = optimizer.register_step_post_hook(lambda o, args, kwargs: print("after"))
        >>> optimizer.step()
        after
        """
        return add(self._hooks["after_step"], hook)

    # ---- state dict --------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The state of all parameters, which are numbered, and the groups' options.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.state_dict.html

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=0.1)
        >>> optimizer.state_dict()["param_groups"][0]["params"]
        [0]
        """
        for hook in self._hooks["before_save"].values():
            hook(self)
        numbers = {id(p): i for i, p in enumerate(self._parameters())}
        groups = [
            {**group, "params": [numbers[id(p)] for p in group["params"]]}
            for group in self.param_groups
        ]
        state = {
            (numbers[id(key)] if isinstance(key, Tensor) else key): value
            for key, value in self.state.items()
        }
        result: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in self._hooks["after_save"].values():
            changed = hook(self, result)
            if changed is not None:
                result = changed
        return result

    def _parameters(self) -> Iterable[Any]:
        return chain.from_iterable(group["params"] for group in self.param_groups)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over the state and the options of a state dict; tensors are copied.

        Args:
            state_dict: State, as `state_dict()` of such an optimizer gives it.

        Errors: CheckpointError (a ValueError) where the groups do not match, or a state lacks what
        this optimizer keeps: it is another's.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.load_state_dict.html

        >>> p = ad.nn.Parameter(ad.ones(1))
        >>> a, b = ad.optim.SGD([p], lr=0.1), ad.optim.SGD([p], lr=0.9)
        >>> b.load_state_dict(a.state_dict())
        >>> b.param_groups[0]["lr"]
        0.1
        """
        state_dict = dict(state_dict)
        for hook in self._hooks["before_load"].values():
            changed = hook(self, state_dict)
            if changed is not None:
                state_dict = changed
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise CheckpointError(
                f"loaded state dict has a different number of parameter groups: {len(saved)}, the "
                f"optimizer has {len(self.param_groups)}"
            )
        for i, (old, new) in enumerate(zip(self.param_groups, saved, strict=True)):
            if len(old["params"]) != len(new["params"]):
                raise CheckpointError(
                    f"loaded state dict contains a parameter group that doesn't match the size of "
                    f"optimizer's group: group {i} has {len(new['params'])} parameters, the "
                    f"optimizer's has {len(old['params'])}"
                )
        keys = chain.from_iterable(group["params"] for group in saved)
        by_key = dict(zip(keys, self._parameters(), strict=True))
        state: defaultdict[Any, Any] = defaultdict(dict)
        for group in saved:
            for key in group["params"]:
                self._assert_own(key, state_dict["state"].get(key), {**self.defaults, **group})
        for key, value in state_dict["state"].items():
            if key in by_key:
                state[by_key[key]] = _like(value, by_key[key])
            else:
                state[key] = copy.deepcopy(value)
        groups = []
        for old, new in zip(self.param_groups, saved, strict=True):
            group = {k: copy.deepcopy(v) for k, v in new.items() if k != "params"}
            group["params"] = old["params"]
            if "param_names" in old and "param_names" not in group:
                group["param_names"] = old["param_names"]
            groups.append(group)
        for old, new in zip(self.param_groups, groups, strict=True):  # stay, as programs know them
            old.clear()
            old.update(new)
        self.__setstate__({"state": state, "param_groups": self.param_groups})
        for hook in self._hooks["after_load"].values():
            hook(self)

    def state_names(self, group: Group) -> tuple[str, ...]:
        """Names that each state of such a group has once it was made."""
        return self.zeros

    def _assert_own(self, key: Any, state: Any, group: Group) -> None:
        """Check that a parameter's state has what every state of this optimizer has."""
        lacks = [name for name in self.state_names(group) if name not in state] if state else []
        if lacks:
            raise CheckpointError(
                f"{type(self).__name__}: the loaded state of parameter {key} lacks "
                f"{', '.join(lacks)}; it has {', '.join(map(str, state))}, so it is another "
                "optimizer's: load it into that one, or start without a state"
            )

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer)` before `state_dict` collects.

        Args:
            hook: Function to call.
            prepend: Call it before the hooks that are there. Default: False.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.register_state_dict_pre_hook.html

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=0.1)
        >>> handle = optimizer.register_state_dict_pre_hook(lambda o: print("saving"))
        >>> _ = optimizer.state_dict()
        saving
        """
        return add(self._hooks["before_save"], hook, prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` after `state_dict` collected; it may return another.

        Args:
            hook: Function to call.
            prepend: Call it before the hooks that are there. Default: False.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.register_state_dict_post_hook.html

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=0.1)
        >>> handle = optimizer.register_state_dict_post_hook(lambda o, s: {"version": 2, **s})
        >>> optimizer.state_dict()["version"]
        2
        """
        return add(self._hooks["after_save"], hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before loading; it may return another.

        Args:
            hook: Function to call.
            prepend: Call it before the hooks that are there. Default: False.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.register_load_state_dict_pre_hook.html

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=0.1)
        >>> handle = optimizer.register_load_state_dict_pre_hook(lambda o, s: print("loading"))
        >>> optimizer.load_state_dict(optimizer.state_dict())
        loading
        """
        return add(self._hooks["before_load"], hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer)` after loading.

        Args:
            hook: Function to call.
            prepend: Call it before the hooks that are there. Default: False.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.register_load_state_dict_post_hook.html

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=0.1)
        >>> handle = optimizer.register_load_state_dict_post_hook(lambda o: print("loaded"))
        >>> optimizer.load_state_dict(optimizer.state_dict())
        loaded
        """
        return add(self._hooks["after_load"], hook, prepend)


Optimizer.step = _with_hooks(Optimizer.step)  # type: ignore[method-assign]


def _like(value: Any, p: Tensor, key: str = "") -> Any:
    """A copy of state `value`; floating-point tensors get the parameter's dtype and device."""
    if isinstance(value, Tensor):
        if key == "step" or not p.is_floating_point():
            return value.detach().clone()
        return value.detach().clone().to(device=p.device, dtype=p.dtype)
    if isinstance(value, Mapping):
        return {k: _like(v, p, k) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_like(v, p) for v in value)
    return copy.deepcopy(value)


def is_sparse(p: Any) -> bool:
    """Whether the gradient of `p` is sparse."""
    return type(p.grad._data) is Sparse
