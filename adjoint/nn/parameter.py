"""Parameter and Buffer: tensors that a Module registers by themselves when assigned to it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..core.argument_errors import assert_tensor
from ..core.arrays import usual
from ..core.errors import AutogradError, InvalidType
from ..core.overrides import asks, disabled
from ..ops.create import memory
from ..ops.create.creation import empty
from ..tensor import Tensor, adopt

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "is_lazy"]


def _detached(data: Any, name: str) -> Tensor:
    """`data` without history, sharing its storage and its version."""
    if data is None:
        return Tensor()
    assert_tensor(name, data, "data")
    return Tensor.detach(data)


class _ParameterMeta(type):
    """Lets tensors of other subclasses be parameters, which they say of themselves."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if super().__instancecheck__(instance):
            return True
        return (
            cls is Parameter
            and isinstance(instance, Tensor)
            and bool(instance.__dict__.get("_is_param", False))
        )


class Parameter(Tensor, metaclass=_ParameterMeta):
    """Tensor that is a module's parameter: assigning it to a Module registers it.

    Of a tensor of another subclass of Tensor it is a tensor of that subclass, which counts as a
    Parameter.

    Args:
        data: Tensor whose storage it shares. Default: None, an empty one.
        requires_grad: Whether gradients are computed for it. Default: True.

    Shapes: that of `data`.
    Errors: InvalidType where `data` is not a tensor; AutogradError for integers that should
    require grad.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.parameter.Parameter.html

    >>> ad.nn.Parameter(ad.ones(2))
    Parameter containing:
    tensor([1., 1.], requires_grad=True)
    """

    __slots__ = ()
    __torch_function__ = disabled  # type: ignore[assignment]

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Any:
        """See the class."""
        if data is not None and asks(type(data)) and isinstance(data, Tensor):
            return _of_subclass(data, requires_grad)
        parameter = adopt(cls, _detached(data, "Parameter"))
        return Tensor.requires_grad_(parameter) if requires_grad else parameter

    def __init__(self, data: Any = None, requires_grad: bool = True) -> None:
        """See the class; `__new__` does the work."""

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _copy(self, memo, self.requires_grad)


def _of_subclass(data: Any, requires_grad: bool) -> Any:
    """A parameter of the class that `data` is of, which says what functions do with it."""
    made = data.detach().requires_grad_(requires_grad)
    if type(made) is not type(data):
        raise InvalidType(
            f"Parameter: detach() of a {type(data).__name__} gives a {type(made).__name__}; let "
            "its __torch_function__ give a tensor of the same class"
        )
    made._is_param = True
    return made


usual(Parameter)


class UninitializedParameter(Parameter):
    """Parameter whose shape is not known yet.

    Lazy modules `materialize` it on their first call; until then it has no elements.

    Args:
        requires_grad: Whether gradients are computed for it. Default: True.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.parameter.UninitializedParameter.html

    >>> p = ad.nn.UninitializedParameter()
    >>> p.materialize((2, 3))
    >>> type(p).__name__, p.shape
    ('Parameter', adjoint.Size([2, 3]))
    """

    __slots__ = ()

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        """See the class."""
        return super().__new__(cls, empty(0, device=device, dtype=dtype), requires_grad)

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        """See the class; `__new__` does the work."""

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become a Parameter of `shape` whose values are arbitrary."""
        place = self.device if device is None else device
        made = empty(tuple(shape), device=place, dtype=dtype or self.dtype)
        self._show(made._data)
        self.__class__ = Parameter  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedBuffer(Tensor):
    """Buffer whose shape is not known yet.

    `materialize` makes a tensor of it; until then it has no elements.

    Args:
        requires_grad: Whether gradients are computed for it. Default: False.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.
        persistent: Whether it is part of `state_dict`. Default: True.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.parameter.UninitializedBuffer.html

    >>> b = ad.nn.UninitializedBuffer()
    >>> b.materialize((2, 3))
    >>> type(b).__name__, b.shape
    ('Tensor', adjoint.Size([2, 3]))
    """

    __torch_function__ = disabled  # type: ignore[assignment]

    def __new__(
        cls,
        requires_grad: bool = False,
        device: Any = None,
        dtype: Any = None,
        persistent: bool = True,
    ) -> Any:
        """See the class."""
        made = adopt(cls, empty(0, device=device, dtype=dtype)).requires_grad_(requires_grad)
        made.persistent = persistent
        return made

    def __init__(
        self,
        requires_grad: bool = False,
        device: Any = None,
        dtype: Any = None,
        persistent: bool = True,
    ) -> None:
        """See the class; `__new__` does the work."""

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become a tensor of `shape` whose values are arbitrary."""
        place = self.device if device is None else device
        self._show(empty(tuple(shape), device=place, dtype=dtype or self.dtype)._data)
        self.__class__ = Tensor  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


def is_lazy(param: Any) -> bool:
    """Whether `param` is an UninitializedParameter, or such a buffer.

    >>> from adjoint.nn.parameter import is_lazy
    >>> is_lazy(ad.nn.Parameter(ad.ones(1)))
    False
    """
    return isinstance(param, (UninitializedBuffer, UninitializedParameter))


class Buffer(Tensor):
    """Tensor that is a module's state without being learned: assigning it registers a buffer.

    It moves with the module and is saved with it.

    Args:
        data: Tensor whose storage it shares. Default: None, an empty one.
        persistent: Whether it is part of `state_dict`. Default: True.

    Shapes: that of `data`.
    Errors: InvalidType where `data` is not a tensor.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.parameter.Buffer.html

    >>> m = ad.nn.Module()
    >>> m.count = ad.nn.Buffer(ad.zeros(1))
    >>> list(m.state_dict())
    ['count']
    """

    __slots__ = ()
    __torch_function__ = disabled  # type: ignore[assignment]

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        """See the class."""
        buffer = adopt(cls, _detached(data, "Buffer"))
        buffer.persistent = persistent
        return buffer

    def __init__(self, data: Any = None, *, persistent: bool = True) -> None:
        """See the class; `__new__` does the work."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _copy(self, memo, self.requires_grad)


def _copy(source: Any, memo: dict[int, Any], requires_grad: bool) -> Any:
    """A deep copy: data and attributes, not the gradient."""
    if id(source) in memo:
        return memo[id(source)]
    if not source.is_leaf:
        raise AutogradError("deepcopy: a parameter with history cannot be copied; detach() first")
    plain, make = source.detach(), partial(adopt, type(source))
    if type(plain._data) is np.ndarray:
        copied = memory.copied(plain, plain._data, memo, make)
    else:
        copied = make(plain.clone())
    copied.__dict__.update(source.__dict__)
    memo[id(source)] = copied
    return copied.requires_grad_() if requires_grad else copied
