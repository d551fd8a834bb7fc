"""What a captured function returns: tensors that it computed, in the form in which it gave them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.deferred import Later
from ..core.device import device
from ..core.dtype import dtype
from ..core.errors import AutogradError, InvalidType, Unsupported
from ..core.op import Op
from ..core.scalar import Number
from ..core.sizes import all_known, is_size, known
from ..core.spec import Size
from ..core.tensor_base import TensorBase
from ..graph.lazy import LazyValue
from ..program.reads import PLAIN
from ..program.standing import hooks_of
from .form import (
    Computed,
    Constant,
    Fields,
    Filled,
    Form,
    Given,
    Items,
    Named,
    Numbered,
    Results,
)  # fmt: skip


class Returned:
    """The computed results, and what gives the function's form to others.

    Tensors that were there before (a parameter, an argument) are themselves, and not copies; what
    is there twice is one object.
    Errors: InvalidType for what is neither tensor nor constant, nor a container of such.
    """

    def __init__(
        self, found: Any, met: Mapping[int, Any], arguments: Sequence[Any],
        fresh: Mapping[int, Any] | None = None,
    ) -> None:  # fmt: skip
        """`met`: tensors from outside that were read; `fresh`: those that the function has made
        without recording them, where others that are not recorded are from outside; each by id.
        """
        self.tensors: list[Any] = []  # computed ones, while the function is captured
        self.histories: list[bool] = []  # whether they want gradients
        self.why: str | Exception | None = None  # those that want gradients have none
        self.results: Any = None  # what gives those of a run, when the capture is over
        self.leaves: list[bool] = []  # whether they are leaves, which the function has made
        self.numbers: list[Number] = []  # computed ones
        self._met, self._fresh = met, fresh
        self._arguments = arguments
        self._known: dict[int, Form] = {}
        self._form = self._of(found)
        del self._met, self._fresh, self._arguments, self._known

    def close(self, why: str | Exception | None) -> None:
        """The capture is over; `why` results without a node have no gradient, None where they lead
        to nothing that was there before.
        """
        self.tensors.clear()
        self.why = why
        self.results = Results(
            self._form,
            [n for n, want in enumerate(self.histories) if want],
            [n for n, leaf in enumerate(self.leaves) if leaf],
            Ended(why),
            why is not None,
        )

    def _of(self, found: Any) -> Form:
        """The form of a part, which is one object where it stands twice."""
        if type(found) in PLAIN:
            if type(found) is slice and not all_known((found.start, found.stop, found.step)):
                found = slice(*known((found.start, found.stop, found.step)))
            return Constant(found)
        form = self._known.get(id(found))
        if form is None:
            form = self._known[id(found)] = self._new(found)
        else:
            form.shared = True
        return form

    def _new(self, found: Any) -> Form:
        kind = type(found)
        if kind is Later:
            found.refuse()
        if kind is Number and not is_size(found):
            self.numbers.append(found)
            return Numbered(len(self.numbers) - 1)
        if isinstance(found, TensorBase):
            for n, x in enumerate(self._arguments):
                if found is x:
                    return Given(n)
            untouched = self._fresh is not None and id(found) not in self._fresh
            if id(found) in self._met or (untouched and not isinstance(found._data, LazyValue)):
                return Constant(found)
            leaf = found._leaf is not None and found._node is found._leaf
            if found._leaf is not None and found._leaf.grad is not None:
                raise Unsupported(
                    "compile: the function returned, or keeps, a tensor that it made and that has "
                    "a gradient; return the gradient, or make the tensor outside"
                )
            if leaf and hooks_of(found):
                raise Unsupported(
                    "compile: the function registers a hook on a tensor that it made, a leaf, and "
                    "returned, or keeps; register it outside of the function"
                )
            if found.retains_grad:  # type: ignore[attr-defined]
                raise Unsupported(
                    "compile: the function returned, or keeps, a tensor that is to keep its "
                    "gradient (retain_grad), which another result would not reach; call backward "
                    "within the function"
                )
            self.tensors.append(found)
            self.histories.append(found._node is not None and not leaf)
            self.leaves.append(leaf)
            return Computed(len(self.tensors) - 1)
        if kind is Number or kind is Size:  # sizes, by which it stands for no others
            return Constant(found.value() if kind is Number else Size(known(found)))
        if kind in (dtype, device):
            return Constant(found)
        if isinstance(found, dict):
            parts = {key: self._of(x) for key, x in found.items()}
            shell = copy.copy(found) if kind is not dict else {}
            for key in shell:
                shell[key] = None  # no symbols are kept
            return Filled(shell, parts)
        if kind in (tuple, list):
            return Items(kind, [self._of(x) for x in found])
        if isinstance(found, tuple) and hasattr(kind, "_fields"):
            return Named(kind, [self._of(x) for x in found])
        if dataclasses.is_dataclass(kind):
            fields = {f.name: self._of(getattr(found, f.name)) for f in dataclasses.fields(found)}
            like = copy.copy(found)
            for name in fields:
                object.__setattr__(like, name, None)
            return Fields(like, fields)
        raise InvalidType(
            f"compile: the function returned a {kind.__name__}; what is returned are tensors and "
            "constants, in tuples, lists, dicts and dataclasses"
        )


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
