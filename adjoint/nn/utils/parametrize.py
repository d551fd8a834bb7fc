"""Parametrizations: a module's parameter computed, each time it is read, from others.

Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrize.register_parametrization.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...autograd.modes import no_grad
from ...core.errors import InvalidArgument, ShapeError
from ...runtime.public import naming
from ...tensor import Tensor
from ..modules.container import ModuleDict, ModuleList
from ..modules.module import Module
from ..parameter import Parameter

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization",
    "remove_parametrizations",
]  # fmt: skip


def _register(module: Module, name: str, value: Any) -> None:
    if isinstance(value, Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


class ParametrizationList(ModuleList):
    """Parametrizations of one parameter, and the original (or originals) that they start from.

        parameter = module_n(... module_1(original))

    The originals are `original`, or `original0`, `original1`, ... where the last `right_inverse`
    gives several tensors.

    Args:
        modules: Parametrizations, in their order.
        original: Parameter or buffer that they compute.
        unsafe: Whether they may change the shape. Default: False.

    Errors: InvalidArgument for no modules, and for a `right_inverse` that gives neither a tensor
    nor a sequence; ShapeError where the shape would change, unless `unsafe`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrize.ParametrizationList.html

    >>> from adjoint.nn.utils.parametrize import ParametrizationList
    >>> ParametrizationList([ad.nn.Softplus()], ad.nn.Parameter(ad.zeros(1)))().detach()
    tensor([0.6931])
    """

    def __init__(self, modules: Sequence[Module], original: Any, unsafe: bool = False) -> None:
        if not modules:
            raise InvalidArgument("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        new = self._inverse(original, strict=False)
        self.is_tensor = isinstance(new, Tensor)
        if self.is_tensor:
            self.ntensors = 1
            if new is not original:
                with no_grad():
                    original.data = new.detach()
            _register(self, "original", original)
        else:
            if not isinstance(new, Sequence):
                raise InvalidArgument(
                    f"'right_inverse' must return a Tensor or a Sequence of tensors (list, "
                    f"tuple...). Got {type(new).__name__}"
                )
            self.ntensors = len(new)
            for i, part in enumerate(new):
                made = part.detach()
                if isinstance(original, Parameter):
                    made = Parameter(made, original.requires_grad)
                _register(self, f"original{i}", made)
        if not unsafe and self().shape != original.shape and self.is_tensor:
            raise ShapeError(
                "Registering a parametrization may not change the shape of the tensor, unless "
                f"`unsafe` flag is enabled: {tuple(original.shape)} became {tuple(self().shape)}"
            )

    def _inverse(self, value: Any, strict: bool) -> Any:
        with no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    value = module.right_inverse(value)
                elif strict:
                    raise InvalidArgument(
                        f"parametrization {type(module).__name__} does not implement right_inverse."
                    )
        return value

    def right_inverse(self, value: Any) -> None:
        """Set the originals so that the parameter becomes `value`."""
        found = self._inverse(value, strict=True)
        with no_grad():
            if self.is_tensor:
                self.original.copy_(found)
            else:
                for i, part in enumerate(found):
                    getattr(self, f"original{i}").copy_(part)

    def forward(self) -> Any:
        """The parameter."""
        first, *rest = list(self)
        if self.is_tensor:
            value = first(self.original)
        else:
            value = first(*(getattr(self, f"original{i}") for i in range(self.ntensors)))
        for module in rest:
            value = module(value)
        return value


_cache: dict[tuple[int, str], Any] = {}  # by module and name, inside `cached`
_caching = 0  # how many `cached` blocks are open


@contextmanager
def cached() -> Iterator[None]:
    """Compute each parametrized tensor once within a `with` block.

    It is computed when it is first read, and kept until the end of the outermost such block: for
    modules that read one several times in a call.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrize.cached.html

    >>> from adjoint.nn.utils import parametrize as p
    >>> layer = p.register_parametrization(ad.nn.Linear(2, 2), "weight", ad.nn.Softplus())
    >>> with p.cached():
    ...     layer.weight is layer.weight
    True
    >>> layer.weight is layer.weight
    False
    """
    global _caching
    _caching += 1
    try:
        yield
    finally:
        _caching -= 1
        if not _caching:
            _cache.clear()


def _computed(name: str) -> property:
    def get(self: Any) -> Any:
        if not _caching:
            return self.parametrizations[name]()
        value = _cache.get((id(self), name))
        if value is None:
            value = _cache[id(self), name] = self.parametrizations[name]()
        return value

    def set_original(self: Any, value: Any) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(get, set_original)


@naming
def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Compute a module's parameter or buffer by a parametrization from now on.

        module.weight = parametrization(original)

    Where it has a `right_inverse`, the original becomes that of the present value. Several are
    applied in their order.

    Args:
        module: Module to change; it is returned.
        tensor_name: Name of the parameter or buffer.
        parametrization: Module that computes it from the original.
        unsafe: Whether the parametrization may change the shape. Default: False.

    Errors: InvalidArgument where the module has no such tensor; ShapeError where its shape would
    change.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrize.register_parametrization.html

    >>> from adjoint.nn.utils.parametrize import register_parametrization
    >>> layer = register_parametrization(ad.nn.Linear(2, 2), "weight", ad.nn.Softplus())
    >>> bool((layer.weight > 0).all()), list(layer.state_dict())
    (True, ['bias', 'parametrizations.weight.original'])
    """
    parametrization.train(module.training)
    owner: Any = module
    if is_parametrized(module, tensor_name):
        found = owner.parametrizations[tensor_name]
        before = found().shape
        found.append(parametrization)
        found.unsafe |= unsafe
        if not unsafe and found().shape != before:
            raise ShapeError(
                f"Registering a parametrization may not change the shape of the tensor: "
                f"{tuple(before)} became {tuple(found().shape)}; pass unsafe=True"
            )
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise InvalidArgument(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    made = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        kind = type(module)
        module.__class__ = type(f"Parametrized{kind.__name__}", (kind,), {})
        owner.parametrizations = ModuleDict()
    setattr(type(module), tensor_name, _computed(tensor_name))
    owner.parametrizations[tensor_name] = made
    return module


@naming
def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has a parametrization.

    It is about the module itself, not its children.

    Args:
        module: Module.
        tensor_name: Name of a parameter or buffer. Default: None, any.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrize.is_parametrized.html

    >>> from adjoint.nn.utils.parametrize import is_parametrized
    >>> is_parametrized(ad.nn.Linear(1, 1))
    False
    """
    found = module._modules.get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


@naming
def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Make a parametrized tensor a plain parameter or buffer again.

    All parametrizations of that tensor are taken away.

    Args:
        module: Module to change; it is returned.
        tensor_name: Name of the parameter or buffer.
        leave_parametrized: Keep the present value; otherwise that of the original. Default: True.

    Errors: InvalidArgument where there is none, or several originals are to be left.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrize.remove_parametrizations.html

    >>> from adjoint.nn.utils import parametrize as p
    >>> layer = p.register_parametrization(ad.nn.Linear(2, 2), "weight", ad.nn.Softplus())
    >>> type(p.remove_parametrizations(layer, "weight")).__name__
    'Linear'
    """
    if not is_parametrized(module, tensor_name):
        raise InvalidArgument(f"Module {module} does not have a parametrization on {tensor_name}")
    owner: Any = module
    found = owner.parametrizations[tensor_name]
    value = getattr(module, tensor_name)
    if found.is_tensor:
        original = found.original
        if leave_parametrized:
            original.data = value.detach()
    elif leave_parametrized:
        original = Parameter(value.detach()) if value.requires_grad else value
    else:
        raise InvalidArgument(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del owner.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        del owner.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module
