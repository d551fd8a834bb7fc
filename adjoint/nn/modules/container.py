"""Containers: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from ...core.errors import IndexingError, InvalidArgument, InvalidType
from ...tensor import Tensor
from ..parameter import Parameter
from .module import Module, indent

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


def position(index: Any, length: int, owner: str) -> int:
    """`index` counted from the front; IndexingError where it is out of range."""
    found = operator.index(index)
    if not -length <= found < length:
        raise IndexingError(f"{owner}: index {found} is out of range for {length} entries")
    return found % length


class _Listed(Module):
    """Base of containers whose children are numbered."""

    def _renumber(self, modules: Iterable[Any]) -> None:
        self._modules = OrderedDict((str(i), module) for i, module in enumerate(modules))

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __getitem__(self, index: Any) -> Any:
        children = list(self._modules.values())
        if isinstance(index, slice):
            return self._sliced(index)
        return children[position(index, len(children), self._get_name())]

    def _sliced(self, index: slice) -> Any:
        return type(self)(list(self._modules.values())[index])

    def __setitem__(self, index: int, module: Module) -> None:
        keys = list(self._modules)
        setattr(self, keys[position(index, len(keys), self._get_name())], module)

    def __delitem__(self, index: Any) -> None:
        keys = list(self._modules)
        if isinstance(index, slice):
            for key in keys[index]:
                delattr(self, key)
        else:
            delattr(self, keys[position(index, len(keys), self._get_name())])
        self._renumber(self._modules.values())

    def append(self, module: Module) -> Any:
        """Add a module at the end; returns the container.

        >>> len(ad.nn.ModuleList().append(ad.nn.Identity()))
        1
        """
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Add a module before position `index`; returns the container.

        Errors: InvalidType for anything but a Module; IndexingError out of range.

        >>> ad.nn.ModuleList([ad.nn.Identity()]).insert(0, ad.nn.ReLU())[0]
        ReLU()
        """
        if not isinstance(module, Module):
            raise InvalidType(f"insert: module should be of type Module, got {type(module)}")
        children = list(self._modules.values())
        if not -len(children) <= index <= len(children):
            raise IndexingError(
                f"insert: index {index} is out of range for {len(children)} entries"
            )
        children.insert(index if index >= 0 else index + len(children), module)
        self._renumber(children)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add several modules at the end; returns the container.

        Errors: InvalidType where `modules` cannot be iterated over.

        >>> len(ad.nn.ModuleList().extend([ad.nn.Identity(), ad.nn.ReLU()]))
        2
        """
        if not isinstance(modules, Iterable):
            raise InvalidType(
                f"extend: should be called with an iterable, but got {type(modules).__name__}"
            )
        for module in list(modules):
            self.append(module)
        return self

    def pop(self, key: Any) -> Any:
        """Take out and return the module at a position.

        >>> ad.nn.ModuleList([ad.nn.ReLU()]).pop(0)
        ReLU()
        """
        found = self[key]
        del self[key]
        return found


class Sequential(_Listed):
    """Modules that run one after the other, each on the output of the one before.

        y = module_n(... module_1(x))

    Args:
        args: Modules, which get the names "0", "1", ...; or one OrderedDict of names and modules.

    Errors: InvalidType for what is no module.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Sequential.html

    >>> ad.nn.Sequential(ad.nn.Linear(4, 3), ad.nn.ReLU())
    Sequential(
      (0): Linear(in_features=4, out_features=3, bias=True)
      (1): ReLU()
    )
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def forward(self, input: Any) -> Tensor:
        """The last module's output."""
        for module in self._modules.values():
            input = module(input)
        return input

    def _sliced(self, index: slice) -> Any:
        return type(self)(OrderedDict(list(self._modules.items())[index]))

    def __add__(self, other: Any) -> Any:
        _assert_sequential(other)
        return Sequential(*self, *other)

    def __iadd__(self, other: Any) -> Any:
        _assert_sequential(other)
        return self.extend(other)

    def __mul__(self, times: int) -> Any:
        if not isinstance(times, int):
            raise InvalidType(f"unsupported operand type(s) for *: Sequential and {type(times)}")
        if times <= 0:
            raise InvalidArgument(f"Non-positive multiplication factor {times} for Sequential")
        return Sequential(*(module for _ in range(times) for module in self))

    __rmul__ = __mul__

    def __imul__(self, times: int) -> Any:
        self._renumber((self * times)._modules.values())
        return self


def _assert_sequential(other: Any) -> None:
    if not isinstance(other, Sequential):
        raise InvalidArgument(
            f"add operator supports only objects of Sequential class, but {type(other)} is given"
        )


class ModuleList(_Listed):
    """List of modules, registered as children.

    It is indexed, sliced, appended to and changed as a list is. It has no `forward`.

    Args:
        modules: Modules to begin with. Default: None.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ModuleList.html

    >>> ad.nn.ModuleList([ad.nn.ReLU() for _ in range(3)])
    ModuleList(
      (0-2): 3 x ReLU()
    )
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> Any:
        return ModuleList(chain(self, other))

    def __iadd__(self, modules: Iterable[Module]) -> Any:
        return self.extend(modules)

    def __repr__(self) -> str:
        """Equal neighbours are written once, as `(0-2): 3 x ...`."""
        texts = [repr(module) for module in self]
        if not texts:
            return f"{self._get_name()}()"
        groups: list[list[int]] = []
        for i, text in enumerate(texts):
            if groups and texts[groups[-1][0]] == text:
                groups[-1].append(i)
            else:
                groups.append([i])
        lines = [
            indent(
                f"({g[0]}): {texts[g[0]]}"
                if len(g) == 1
                else f"({g[0]}-{g[-1]}): {len(g)} x {texts[g[0]]}",
                2,
            )
            for g in groups
        ]
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


class _Keyed(Module):
    """Base of dicts of modules and of parameters."""

    _own_keys: Callable[..., Any]  # what they hold; subclasses give `keys` other names

    def __len__(self) -> int:
        return len(self._own_keys())

    def __iter__(self) -> Iterator[str]:
        return iter(self._own_keys())

    def __contains__(self, key: object) -> bool:
        return key in self._own_keys()

    def clear(self) -> None:
        """Take out everything.

        >>> ad.nn.ModuleDict({"act": ad.nn.ReLU()}).clear()
        """
        for key in list(self._own_keys()):
            del self[key]

    def pop(self: Any, key: str) -> Any:
        """Take out and return one module or value.

        >>> ad.nn.ModuleDict({"act": ad.nn.ReLU()}).pop("act")
        ReLU()
        """
        found = self[key]
        del self[key]
        return found


class ModuleDict(_Keyed):
    """Dict of modules, registered as children, in the order of insertion.

    It is read and changed as a dict is. It has no `forward`.

    Args:
        modules: Mapping, or pairs, of names and modules to begin with. Default: None.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ModuleDict.html

    >>> ad.nn.ModuleDict({"act": ad.nn.ReLU()})["act"]
    ReLU()
    """

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def keys(self) -> Any:
        """The names.

        >>> list(ad.nn.ModuleDict({"act": ad.nn.ReLU()}).keys())
        ['act']
        """
        return self._modules.keys()

    _own_keys = keys

    def items(self) -> Any:
        """Pairs of name and module.

        >>> list(ad.nn.ModuleDict({"act": ad.nn.ReLU()}).items())
        [('act', ReLU())]
        """
        return self._modules.items()

    def values(self) -> Any:
        """The modules.

        >>> list(ad.nn.ModuleDict({"act": ad.nn.ReLU()}).values())
        [ReLU()]
        """
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Add or replace modules from a mapping or pairs.

        Errors: InvalidType for anything else.

        >>> ad.nn.ModuleDict().update([("act", ad.nn.ReLU())])
        """
        for key, module in pairs_of(modules, "ModuleDict.update"):
            self[key] = module


def pairs_of(values: Any, owner: str) -> Iterable[tuple[Any, Any]]:
    """The pairs of a mapping, or of an iterable of pairs."""
    if isinstance(values, (Mapping, ModuleDict, ParameterDict)):
        return list(values.items())
    if not isinstance(values, Iterable):
        raise InvalidType(
            f"{owner} should be called with an iterable of key/value pairs, but got "
            f"{type(values).__name__}"
        )
    found = []
    for i, pair in enumerate(values):
        if not isinstance(pair, Iterable):
            raise InvalidType(f"{owner}: element {i} should be Iterable; is {type(pair).__name__}")
        entry = tuple(pair)
        if len(entry) != 2:
            raise InvalidArgument(f"{owner}: element {i} has length {len(entry)}; 2 is required")
        found.append(entry)
    return found


def _as_parameter(value: Any) -> Any:
    """A plain tensor becomes a Parameter; everything else stays itself."""
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        return Parameter(value)
    return value


class ParameterList(Module):
    """List whose tensors are registered as parameters; other values are kept as they are.

    It is indexed, sliced, appended to and changed as a list is.

    Args:
        values: Values to begin with. Default: None.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ParameterList.html

    >>> len(ad.nn.ParameterList([ad.ones(1), ad.zeros(2)]))
    2
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(getattr(self, str(i)) for i in range(*index.indices(self._size)))
        return getattr(self, str(position(index, self._size, "ParameterList")))

    def __setitem__(self, index: int, value: Any) -> None:
        name = str(position(index, self._size, "ParameterList"))
        setattr(self, name, _as_parameter(value))

    def __iter__(self) -> Iterator[Any]:
        return iter(self[i] for i in range(self._size))

    def __iadd__(self, values: Iterable[Any]) -> Any:
        return self.extend(values)

    def append(self, value: Any) -> Any:
        """Add a value at the end; returns the list.

        >>> len(ad.nn.ParameterList().append(ad.ones(1)))
        1
        """
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> Any:
        """Add several values at the end; returns the list.

        Errors: InvalidType for a tensor, or anything that cannot be iterated over.

        >>> len(ad.nn.ParameterList().extend([ad.ones(1)]))
        1
        """
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise InvalidType(
                f"ParameterList.extend should be called with an iterable, but got "
                f"{type(values).__name__}"
            )
        for value in values:
            self.append(value)
        return self

    def pop(self, index: int = -1) -> Any:
        """Take out and return the value at a position.

        >>> ad.nn.ParameterList([ad.ones(1)]).pop().shape
        adjoint.Size([1])
        """
        values = list(self)
        found = values.pop(index)
        for i in range(self._size):
            delattr(self, str(i))
        self._size = 0
        self.extend(values)
        return found

    def extra_repr(self) -> str:
        """One line per value."""
        return "\n".join(_described(f"({i})", value) for i, value in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A list cannot be called."""
        raise InvalidArgument("ParameterList should not be called.")


class ParameterDict(_Keyed):
    """Dict whose tensors are registered as parameters; other values are kept as they are.

    It is read and changed as a dict is.

    Args:
        parameters: Mapping, or pairs, of names and values to begin with. Default: None.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ParameterDict.html

    >>> list(ad.nn.ParameterDict({"w": ad.ones(1)}).keys())
    ['w']
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def _attribute(self, key: Any) -> str:
        """Under what name a key is kept: one that is no attribute of the class."""
        if not isinstance(key, str):
            raise InvalidType(
                f"Index given to ParameterDict cannot be used as a key as it is not a string "
                f"(type is '{type(key).__name__}'); use str(key)"
            )
        return key if not hasattr(type(self), key) and not key.startswith("_") else f"_key_{key}"

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, self._attribute(key))

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, self._attribute(key), _as_parameter(value))
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._attribute(key))

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __or__(self, other: Any) -> ParameterDict:
        result = self.copy()
        result.update(other)
        return result

    def __ror__(self, other: Any) -> ParameterDict:
        result = ParameterDict(other)
        result.update(self)
        return result

    def __ior__(self, other: Any) -> ParameterDict:
        self.update(other)
        return self

    def copy(self) -> ParameterDict:
        """Make another dict of the same parameters.

        >>> len(ad.nn.ParameterDict({"w": ad.ones(1)}).copy())
        1
        """
        return ParameterDict(OrderedDict((key, self[key]) for key in self._keys))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of a key, set to `default` where it is missing.

        >>> ad.nn.ParameterDict().setdefault("w", ad.ones(1)).shape
        adjoint.Size([1])
        """
        if key not in self:
            self[key] = default
        return self[key]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or `default`.

        >>> ad.nn.ParameterDict().get("w", 1)
        1
        """
        return self[key] if key in self else default  # noqa: SIM401

    def popitem(self) -> tuple[str, Any]:
        """Take out and return the pair that was added last.

        >>> ad.nn.ParameterDict({"w": ad.ones(1)}).popitem()[0]
        'w'
        """
        key = next(reversed(self._keys))
        return key, self.pop(key)

    @classmethod
    def fromkeys(cls, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A dict with one value for all keys.

        >>> list(ad.nn.ParameterDict.fromkeys(["a", "b"], 1).values())
        [1, 1]
        """
        return cls((key, default) for key in keys)

    def keys(self) -> Any:
        """The names.

        >>> list(ad.nn.ParameterDict({"w": 1}).keys())
        ['w']
        """
        return self._keys.keys()

    _own_keys = keys

    def items(self) -> Iterable[tuple[str, Any]]:
        """Pairs of name and value.

        >>> list(ad.nn.ParameterDict({"w": 1}).items())
        [('w', 1)]
        """
        return [(key, self[key]) for key in self._keys]

    def values(self) -> Iterable[Any]:
        """The values.

        >>> list(ad.nn.ParameterDict({"w": 1}).values())
        [1]
        """
        return [self[key] for key in self._keys]

    def update(self, parameters: Any) -> None:
        """Add or replace values from a mapping or pairs; of a plain dict in the order of its keys.

        Errors: InvalidType for anything else.

        >>> ad.nn.ParameterDict().update({"w": ad.ones(1)})
        """
        plain = isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict)
        pairs = pairs_of(parameters, "ParameterDict.update")
        for key, value in sorted(pairs) if plain else pairs:  # as PyTorch
            self[key] = value

    def extra_repr(self) -> str:
        """One line per value."""
        return "\n".join(_described(f"({key})", value) for key, value in self.items())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A dict cannot be called."""
        raise InvalidArgument("ParameterDict should not be called.")


def _described(label: str, value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"  {label}: Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    return (
        f"  {label}: {kind} containing: [{value.dtype} of size {'x'.join(map(str, value.shape))}]"
    )
