"""What a captured function returns: tensors that it computed, in the form in which it gave them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..core.device import device
from ..core.dtype import dtype
from ..core.errors import AutogradError, InvalidType
from ..core.op import Op
from ..core.spec import Size
from ..core.tensor_base import TensorBase
from ..eager.tensors import wrap
from ..graph.node import Leaf, new_node
from ..program.reads import PLAIN

Form = Callable[[Iterator[Any], Sequence[Any]], Any]  # of computed tensors and arguments


class Returned:
    """The computed results, and what gives the function's form to others.

    Tensors that were there before (a parameter, an argument) are themselves, and not copies.
    Errors: InvalidType for what is neither tensor nor constant, nor a container of such.
    """

    def __init__(self, found: Any, met: Mapping[int, Any], arguments: Sequence[Any]) -> None:
        self.tensors: list[Any] = []  # computed ones, while the function is captured
        self._histories: list[bool] = []  # whether they want gradients
        self._why: str | Exception | None = None  # those that want gradients have none
        self._met = met
        self._arguments = arguments
        self._form = self._of(found)
        del self._met, self._arguments

    def close(self, why: str | Exception | None) -> None:
        """The capture is over; `why` results without a node have no gradient, None where they lead
        to nothing that was there before.
        """
        self.tensors.clear()
        self._why = why

    def wrapped(
        self, arrays: Sequence[Any], nodes: Mapping[int, Any], states: Any, arguments: Sequence[Any]
    ) -> list[Any]:
        """Tensors of what was computed now, some of which have nodes. Others that want gradients
        stand behind the nodes of `states` and `arguments`, to which there is no way.
        """
        found = [wrap(array, nodes.get(n)) for n, array in enumerate(arrays)]
        ends = [y for y, want in zip(found, self._histories, strict=True) if want and not y._node]
        if ends:
            parents: tuple[Any, ...] = (_NOWHERE,)
            if self._why is not None:
                parents = (*states, *[x._node for x in arguments if x._node is not None])
            for y in ends:
                y._node = _ended(y._data, self._why, parents)
        return found

    def rebuilt(self, computed: Iterator[Any], arguments: Sequence[Any]) -> Any:
        """What the function would return."""
        return self._form(computed, arguments)

    def _of(self, found: Any) -> Form:
        kind = type(found)
        if isinstance(found, TensorBase):
            for n, x in enumerate(self._arguments):
                if found is x:
                    return lambda computed, arguments: arguments[n]
            if id(found) in self._met:
                return lambda computed, arguments: found
            self.tensors.append(found)
            self._histories.append(found._node is not None)
            return _next
        if kind in PLAIN or kind in (Size, dtype, device):
            return lambda computed, arguments: found
        if isinstance(found, dict):
            parts = {key: self._of(x) for key, x in found.items()}
            shell = copy.copy(found) if kind is not dict else {}
            for key in shell:
                shell[key] = None  # no symbols are kept
            return lambda computed, arguments: _filled(shell, parts, computed, arguments)
        if kind in (tuple, list):
            each = [self._of(x) for x in found]
            return lambda computed, arguments: kind([part(computed, arguments) for part in each])
        if isinstance(found, tuple) and hasattr(kind, "_fields"):
            named = [self._of(x) for x in found]
            return lambda computed, arguments: kind(*[part(computed, arguments) for part in named])
        if dataclasses.is_dataclass(kind):
            fields = {f.name: self._of(getattr(found, f.name)) for f in dataclasses.fields(found)}
            like = copy.copy(found)
            for name in fields:
                object.__setattr__(like, name, None)
            return lambda computed, arguments: _set(like, fields, computed, arguments)
        raise InvalidType(
            f"compile: the function returned a {kind.__name__}; what is returned are tensors and "
            "constants, in tuples, lists, dicts and dataclasses"
        )


def _next(computed: Iterator[Any], arguments: Sequence[Any]) -> Any:
    return next(computed)


def _filled(shell: Any, parts: dict[Any, Form], computed: Any, arguments: Any) -> Any:
    made = copy.copy(shell)
    for key, part in parts.items():
        made[key] = part(computed, arguments)
    return made


def _set(like: Any, fields: dict[str, Form], computed: Any, arguments: Any) -> Any:
    made = copy.copy(like)
    for name, part in fields.items():
        object.__setattr__(made, name, part(computed, arguments))
    return made


class Ended(Op, abstract=True):
    """The result of a compiled function, whose gradients ended there."""

    def __init__(self, why: str | Exception | None) -> None:
        self.why = why

    def gradient(self, g: Any) -> tuple[Any, ...]:
        """There is none."""
        if self.why is None:
            return (None,)
        if isinstance(self.why, Exception):
            raise type(self.why)(*self.why.args)
        raise AutogradError(
            f"compile: backward through what a compiled function returned: {self.why}; call "
            "backward within the function"
        )


def _ended(array: Any, why: str | Exception | None, parents: Any) -> Any:
    """The node of a result that wants gradients, which says so when it is to give some."""
    return new_node(Ended(why), parents or (_NOWHERE,), (), None, array.shape, array.dtype)


_KEPT = wrap(np.zeros(()))
_NOWHERE = Leaf(_KEPT)
