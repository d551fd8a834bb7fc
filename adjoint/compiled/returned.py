"""What a captured function returns: tensors that it computed, in the form in which it gave them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core.deferred import Later
from ..core.device import device
from ..core.dtype import dtype
from ..core.errors import AutogradError, InvalidType, Unsupported
from ..core.op import Op
from ..core.scalar import Number
from ..core.spec import Size
from ..core.tensor_base import TensorBase
from ..eager.tensors import wrap
from ..graph.node import Leaf, new_node
from ..program.reads import PLAIN


class Made(NamedTuple):
    """What a run gives, from which results are made."""

    computed: Sequence[Any]  # tensors
    arguments: Sequence[Any]
    numbers: Sequence[Any]
    objects: dict[int, Any]  # containers that were made already, by their part's id


Form = Callable[[Made], Any]


class Returned:
    """The computed results, and what gives the function's form to others.

    Tensors that were there before (a parameter, an argument) are themselves, and not copies; what
    is there twice is one object.
    Errors: InvalidType for what is neither tensor nor constant, nor a container of such.
    """

    def __init__(self, found: Any, met: Mapping[int, Any], arguments: Sequence[Any]) -> None:
        self.tensors: list[Any] = []  # computed ones, while the function is captured
        self.histories: list[bool] = []  # whether they want gradients
        self.why: str | Exception | None = None  # those that want gradients have none
        self.leaves: list[bool] = []  # whether they are leaves, which the function has made
        self.numbers: list[Number] = []  # computed ones
        self._met = met
        self._arguments = arguments
        self._known: dict[int, Form] = {}
        self._form = self._of(found)
        del self._met, self._arguments, self._known

    def close(self, why: str | Exception | None) -> None:
        """The capture is over; `why` results without a node have no gradient, None where they lead
        to nothing that was there before.
        """
        self.tensors.clear()
        self.why = why
        self._ended = Ended(why)

    def wrapped(
        self, arrays: Sequence[Any], nodes: Mapping[int, Any], states: Any, arguments: Sequence[Any]
    ) -> list[Any]:
        """Tensors of what was computed now, some of which have nodes, some are leaves. Others that
        want gradients stand behind the nodes of `states` and `arguments`, to which there is no way.
        """
        found = [wrap(array, nodes.get(n)) for n, array in enumerate(arrays)]
        ends = [y for y, want in zip(found, self.histories, strict=True) if want and not y._node]
        if ends:
            parents: tuple[Any, ...] = (_NOWHERE,)
            if self.why is not None:
                parents = (*states, *[x._node for x in arguments if x._node is not None])
            for y in ends:
                y._node = new_node(
                    self._ended, parents or (_NOWHERE,), (), None, y._data.shape, y._data.dtype
                )
        for y, leaf in zip(found, self.leaves, strict=True):
            if leaf:
                y.requires_grad_()
        return found

    def rebuilt(
        self, computed: Sequence[Any], arguments: Sequence[Any], numbers: Sequence[Any] = ()
    ) -> Any:
        """What the function would return."""
        return self._form(Made(computed, arguments, numbers, {}))

    def _of(self, found: Any) -> Form:
        """The form of a part, which is one object where it stands twice."""
        if type(found) in PLAIN:
            return lambda made: found
        form = self._known.get(id(found))
        if form is None:
            form = self._known[id(found)] = self._new(found)
        return form

    def _new(self, found: Any) -> Form:
        kind = type(found)
        if kind is Later:
            found.refuse()
        if kind is Number:
            place = len(self.numbers)
            self.numbers.append(found)
            return lambda made: made.numbers[place]
        if isinstance(found, TensorBase):
            for n, x in enumerate(self._arguments):
                if found is x:
                    return lambda made: made.arguments[n]
            if id(found) in self._met:
                return lambda made: found
            leaf = found._leaf is not None and found._node is found._leaf
            if found._leaf is not None and found._leaf.grad is not None:
                raise Unsupported(
                    "compile: the function returned, or keeps, a tensor that it made and that has "
                    "a gradient; return the gradient, or make the tensor outside"
                )
            if _keeps_gradient(found):
                raise Unsupported(
                    "compile: the function returned, or keeps, a tensor that is to keep its "
                    "gradient (retain_grad), which another result would not reach; call backward "
                    "within the function"
                )
            count = len(self.tensors)
            self.tensors.append(found)
            self.histories.append(found._node is not None and not leaf)
            self.leaves.append(leaf)
            return lambda made: made.computed[count]
        if kind in (Size, dtype, device):
            return lambda made: found
        if isinstance(found, dict):
            parts = {key: self._of(x) for key, x in found.items()}
            shell = copy.copy(found) if kind is not dict else {}
            for key in shell:
                shell[key] = None  # no symbols are kept
            return _once(lambda made: _filled(shell, parts, made))
        if kind in (tuple, list):
            each = [self._of(x) for x in found]
            return _once(lambda made: kind([part(made) for part in each]))
        if isinstance(found, tuple) and hasattr(kind, "_fields"):
            named = [self._of(x) for x in found]
            return _once(lambda made: kind(*[part(made) for part in named]))
        if dataclasses.is_dataclass(kind):
            fields = {f.name: self._of(getattr(found, f.name)) for f in dataclasses.fields(found)}
            like = copy.copy(found)
            for name in fields:
                object.__setattr__(like, name, None)
            return _once(lambda made: _set(like, fields, made))
        raise InvalidType(
            f"compile: the function returned a {kind.__name__}; what is returned are tensors and "
            "constants, in tuples, lists, dicts and dataclasses"
        )


def _keeps_gradient(x: Any) -> bool:
    """Whether `retain_grad` was called on a computed tensor."""
    return bool(x.retains_grad)


def _once(form: Form) -> Form:
    """The form, which gives the same object again within one run."""

    def found(made: Made) -> Any:
        if id(form) not in made.objects:
            made.objects[id(form)] = form(made)
        return made.objects[id(form)]

    return found


def _filled(shell: Any, parts: dict[Any, Form], made: Made) -> Any:
    result = copy.copy(shell)
    for key, part in parts.items():
        result[key] = part(made)
    return result


def _set(like: Any, fields: dict[str, Form], made: Made) -> Any:
    result = copy.copy(like)
    for name, part in fields.items():
        object.__setattr__(result, name, part(made))
    return result


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


_KEPT = wrap(np.zeros(()))
_NOWHERE = Leaf(_KEPT)
