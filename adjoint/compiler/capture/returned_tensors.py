"""Analysis of a captured function's return value: which tensors it computed, and the tree spec
around them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...core.deferred_effects import Later
from ...core.device import device
from ...core.dtype import dtype
from ...core.errors import AutogradError, InvalidType, Unsupported
from ...core.op import Op
from ...core.spec import Size
from ...core.symbolic_scalar import SymbolicNumber
from ...core.symbolic_sizes import all_known, is_size, known
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...core.tree import ConstantSpec, TreeSpec, container, parts_in
from ...ops.index.number_places import NumberPlace, numbers_of
from ...ops.index.slicing import BasicIndex
from ...runtime.lazy import LazyValue
from ...runtime.tensors import wrap
from ..guards.identity_guards import hooks_of
from ..guards.slots import PLAIN
from .result_tree import (
    ArgumentResult,
    ComputedResult,
    NumberResult,
    PlaceResult,
    Results,
    ViewResult,
)


class UnsupportedResult(Unsupported, InvalidType):
    """A result of a type that programs do not return: a gap, for which `fallback` serves."""


class Returned:
    """The tensors that a function returned, and the tree spec that rebuilds its result in
    each run.

    Tensors that existed before (a parameter, an argument) are returned themselves, not as copies;
    an object that occurs twice remains one object.
    Errors: UnsupportedResult for a result that is no tensor, constant, or container of these.
    """

    def __init__(
        self, result: object, met: Mapping[int, Any], arguments: Sequence[Any],
        fresh: Mapping[int, Any] | None = None,
        given: Callable[[object], TreeSpec | None] | None = None,
        fill: Callable[[Op], Op] | None = None,
    ) -> None:  # fmt: skip
        """`met` are outside tensors that were read, `fresh` those that the function has made
        without recording them, both by id. Other tensors that are not recorded are from outside.
        `given` is asked for the tree spec of a part that comes with each call. `fill` puts the
        present sizes into an op; without it results are values, which share no memory.
        """
        self.tensors: list[Any] = []  # computed ones, while the function is captured
        self.histories: list[bool] = []  # whether they want gradients
        self.why: str | Exception | None = None  # why results that want gradients have none
        self.results: Any = None  # rebuilds the results of a run, once the capture is over
        self.leaves: list[bool] = []  # whether they are leaves, which the function has made
        self.numbers: list[SymbolicNumber] = []  # computed ones
        self.read: frozenset[int] = frozenset()  # results, of which these are gradients, that are
        # saved for theirs
        self._met, self._fresh, self._given = met, fresh, given
        self._arguments, self._fill = arguments, fill
        self._known: dict[int, TreeSpec] = {}
        self._owners = {} if fill is None else self._find_owners(result)
        self._form = self._of(result)
        del self._met, self._fresh, self._given, self._arguments, self._known, self._fill

    def close(self, why: str | Exception | None) -> None:
        """End the capture. `why` says why results without a node have no gradient, None where no
        path leads to tensors from outside.
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

    def _of(self, part: Any) -> TreeSpec:
        """Tree spec of a part, one object for a part that occurs twice."""
        if type(part) in PLAIN:
            if type(part) is slice and not all_known((part.start, part.stop, part.step)):
                part = slice(*known((part.start, part.stop, part.step)))
            return ConstantSpec(part)
        form = self._known.get(id(part))
        if form is None:
            form = None if self._given is None else self._given(part)
            form = self._known[id(part)] = form or self._new(part)
        else:
            form.shared = True
        return form

    def _view(self, part: TensorBase, fill: Callable[[Op], Op]) -> TreeSpec | None:
        """Spec of a view of an argument, of a tensor from outside or of another result, or of an
        alias; None for what has memory of its own.
        """
        owner = None if part._changes is None else self._owners.get(id(part._changes))
        view = part._view
        base = owner if view is None else view.base  # which may be an alias of the owner
        if owner is None or base is None or base is part:
            return None
        ops = () if view is None else view.ops
        if not all_known((*part.shape, *base.shape)):
            known(tuple(base.shape))  # it stands for no others
            ops = tuple(map(fill, ops))
        shape = tuple(known(tuple(part.shape)))
        leaf = part._leaf is not None and part._node is part._leaf
        graded = part._node is not None and not leaf
        detached = view is None or view.detached
        steps = tuple(map(self._op_of, ops))
        return ViewResult(self._of(base), steps, shape, graded, detached, leaf)

    def _op_of(self, op: Op) -> Op | list[object]:
        """A view op, or as a list the index of one whose numbers come with each run."""
        if not numbers_of(op):
            return op
        assert isinstance(op, BasicIndex)
        items: list[object] = []
        given: tuple[object, ...] = op.items
        for item in given:
            if not isinstance(item, NumberPlace):
                items.append(slice(*item) if type(item) is tuple else item)
                continue
            computed = item.number is None
            place = len(self.tensors if computed else self.numbers)
            items.append(PlaceResult(place, computed, item.count, item.step))
            if item.number is not None:
                self.numbers.append(item.number)
                continue
            self.tensors.append(wrap(item.symbol))
            self.histories.append(False)
            self.leaves.append(False)
        return items

    def _find_owners(self, result: object) -> dict[int, TensorBase]:
        """Tensors whose memory results show, by the ids of their versions, which views and aliases
        share: those from outside; of several results, what they are views or aliases of.
        """
        outside = (*self._arguments, *(each.tensor for each in self._met.values()))
        owners = {id(x._changes): x for x in outside if x._changes is not None and x._view is None}
        groups: dict[int, dict[int, TensorBase]] = {}
        for x in parts_in((result,)):
            if isinstance(x, TensorBase) and x._changes is not None:
                groups.setdefault(id(x._changes), {})[id(x)] = x
        for version, several in groups.items():
            if len(several) > 1:
                bases = [x if x._view is None else x._view.base for x in several.values()]
                with_history = [x for x in bases if x._node is not None]  # an alias has none
                owners.setdefault(version, (with_history or bases)[0])
        return owners

    def _new(self, part: Any) -> TreeSpec:
        kind = type(part)
        if kind is Later:
            part.refuse()
        if kind is SymbolicNumber and not is_size(part):
            self.numbers.append(part)
            return NumberResult(len(self.numbers) - 1)
        if isinstance(part, TensorBase):
            for n, x in enumerate(self._arguments):
                if part is x:
                    return ArgumentResult(n)
            untouched = self._fresh is not None and id(part) not in self._fresh
            if id(part) in self._met or (untouched and not isinstance(part._data, LazyValue)):
                return ConstantSpec(part)
            view = None if self._fill is None else self._view(part, self._fill)
            if view is not None:
                return view
            leaf = part._leaf is not None and part._node is part._leaf
            if part._leaf is not None and part._leaf.grad is not None:
                raise Unsupported(
                    "compile: the function returned, or keeps, a tensor that it made and that has "
                    "a gradient; return the gradient, or make the tensor outside"
                )
            if leaf and hooks_of(part):
                raise Unsupported(
                    "compile: the function registers a hook on a tensor that it made, a leaf, and "
                    "returned, or keeps; register it outside of the function"
                )
            if part.retains_grad:  # type: ignore[attr-defined]
                raise Unsupported(
                    "compile: the function returned, or keeps, a tensor that is to keep its "
                    "gradient (retain_grad), which another result would not reach; call backward "
                    "within the function"
                )
            self.tensors.append(part)
            self.histories.append(part._node is not None and not leaf)
            self.leaves.append(leaf)
            return ComputedResult(len(self.tensors) - 1)
        if kind is SymbolicNumber or kind is Size:  # sizes, by which it stands for no others
            return ConstantSpec(part.value() if kind is SymbolicNumber else Size(known(part)))
        if kind in (dtype, device):
            return ConstantSpec(part)
        is_known = kind in (tuple, list) or isinstance(part, dict) or hasattr(kind, "_fields")
        if is_known or dataclasses.is_dataclass(kind):
            spec = container(part, lambda x, name: self._of(x))
            if spec is not None:
                return spec
        raise UnsupportedResult(
            f"compile: the function returned a {kind.__name__}; what is returned are tensors and "
            "constants, in tuples, lists, dicts and dataclasses"
        )


class Ended(Op, abstract=True):
    """Op of a compiled function's result whose history has ended."""

    def __init__(self, why: str | Exception | None) -> None:
        self.why = why

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """Refuse to go further back, or pass no gradient on."""
        if self.why is None:
            return (None,)
        if isinstance(self.why, Exception):
            raise type(self.why)(*self.why.args)
        raise AutogradError(
            f"compile: backward through what a compiled function returned: {self.why}; call "
            "backward within the function"
        )
