"""Masked selection in a function that is being captured, where its size is unknown.

`x[mask]` stands there for a tensor of the shape of x: what is computed from it element by element
is computed for all, and a write to what the same mask selects takes the selected ones. Elements
that are not selected are ones throughout, also in what was broadcast, so that neither values nor
gradients of theirs reach anything. Whatever else wants the size, or the values side by side, is
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ...core import dtype as dt
from ...core.device import register_backend
from ...core.errors import Unsupported
from ...core.op import Op
from ...core.tensor_base import TensorBase
from ...runtime.lazy import LazyValue
from ...runtime.node import new_node
from ...runtime.public import FUNCTIONS
from ...runtime.tensors import wrap
from ..promotion import Cast

__all__ = ["Selected", "of_selected", "refuse", "select", "selected_values", "write_selected"]

_UNKNOWN = (
    "what x[mask] selects has a size that only values tell: but for arithmetic with numbers and "
    "tensors that fit each row (x[mask] = x[mask] * 2 + s), a program cannot tell what comes of "
    "it; select with where(mask, ..., x), or sum with where(mask, x, 0)"
)


class _Count:
    """Unknown number of elements that a mask selects: equal to itself, and otherwise not to be
    known.
    """

    def _refuse(self, *_: Any) -> NoReturn:
        refuse("the size of x[mask]")

    def __eq__(self, other: object) -> bool:
        return True if other is self else self._refuse()

    def __hash__(self) -> int:
        return id(self) >> 4

    def __repr__(self) -> str:
        return "?"

    __lt__ = __le__ = __gt__ = __ge__ = __add__ = __radd__ = __sub__ = __rsub__ = _refuse
    __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = _refuse
    __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __bool__ = _refuse
    __index__ = __int__ = __float__ = _refuse


class Selected(LazyValue):
    """Placeholder for the array of `x[mask]`: `full`, a tensor of the shape of x, of which `mask`,
    a tensor that broadcasts to it, selects elements.
    """

    __slots__ = ("full", "mask", "place", "rest")

    strides = ()  # type: ignore[assignment]

    def __init__(self, full: Any, mask: Any, place: int, rest: int, count: Any) -> None:
        shape = full._data.shape
        ahead, behind = shape[:place], shape[len(shape) - rest :]
        super().__init__(None, (), (*ahead, count, *behind), full._data.dtype, full._data.device)
        self.full, self.mask = full, mask
        self.place, self.rest = place, rest  # dimensions before the mask's, and behind them

    def like(self, full: Any) -> Any:
        """A tensor of what the same mask selects of another one."""
        data = Selected(full, self.mask, self.place, self.rest, self.shape[self.place])
        node = None  # gradients flow through `full`; no way leads here
        if full._node is not None:
            node = new_node(full._node.op, (), (), None, data.shape, data.dtype)
        return wrap(data, node)


def select(part: Any, place: int, mask: Any) -> Any:
    """A tensor of what `mask`, of the dimensions of `part` from `place` on, selects there."""
    rest = part._data.ndim - place - mask._data.ndim
    wide = broadcast_mask(mask, rest)
    return Selected(part, wide, place, rest, _Count()).like(_or_one(wide, part))


def broadcast_mask(mask: Any, rest: int) -> Any:
    """A mask as booleans that broadcast to the indexed tensor, with `rest` dimensions more."""
    flags = mask if mask.dtype is dt.bool_ else mask != 0
    return flags.reshape(*mask._data.shape, *(1,) * rest) if rest else flags


def _or_one(mask: Any, x: Any) -> Any:
    return FUNCTIONS["where"](mask, x, True if x.dtype is dt.bool_ else 1)


def of_selected(op: Op, inputs: tuple[Any, ...], run: Callable[..., Any]) -> Any:
    """Result of `run(op, inputs)` where an input may be a masked selection; NotImplemented where
    none is.

    Errors: Unsupported for what needs to know how much is selected.
    """
    for x in inputs:
        if isinstance(x, TensorBase) and type(x._data) is Selected:
            break
    else:
        return NotImplemented
    first = x._data
    if not (op.pointwise or isinstance(op, Cast)) or op.n_outputs != 1:
        refuse(f"{op.name} of x[mask]")
    given = []
    for x in inputs:
        if isinstance(x, TensorBase):
            data = x._data
            if type(data) is Selected:
                if not _are_alike(first, data) or data.full._data.shape != first.full._data.shape:
                    refuse("arithmetic on what two masks select, or one of tensors of two shapes")
                x = _full(x)
            elif data.ndim <= first.rest:
                x = _or_one(first.mask, x)
            else:
                refuse(f"{op.name} of x[mask] and a tensor of {data.ndim} dimensions")
        given.append(x)
    return first.like(_or_one(first.mask, run(op, tuple(given))))


def selected_values(value: Any, part: Any, place: int, mask: Any) -> Any:
    """The full tensor of `value`, a masked selection: it has the shape of `part`, and its elements
    are to be written where `mask` selects some from dimension `place` on.

    Errors: Unsupported for what another mask has selected.
    """
    data = value._data
    rest = part._data.ndim - place - mask._data.ndim
    alike = data.place == place and data.rest == rest and data.full._data.shape == part._data.shape
    if not alike or not _are_equal(broadcast_mask(mask, rest)._data, data.mask._data):
        refuse("x[mask] = y of what another mask has selected, or of a tensor of another shape")
    return _full(value)


def _full(x: Any) -> Any:
    """The full tensor behind a masked selection, with a history where that has one."""
    if x._leaf is not None:
        refuse("requires_grad_() of x[mask]")
    full = x._data.full
    return full if x._node is not None or full._node is None else full.detach()


def refuse(what: str) -> NoReturn:
    """Raises the error for an operation that needs the number of selected elements."""
    raise Unsupported(f"compile: the function reads a value: {what}: {_UNKNOWN}")


def _are_alike(a: Selected, b: Selected) -> bool:
    return a.place == b.place and a.rest == b.rest and _are_equal(a.mask._data, b.mask._data)


def _are_equal(a: Any, b: Any) -> bool:
    """Whether two recorded values are computed by the same ops from the same values."""
    stack, seen = [(a, b)], set()
    while stack:
        a, b = stack.pop()
        if a is b or (id(a), id(b)) in seen:
            continue
        seen.add((id(a), id(b)))
        if not (isinstance(a, LazyValue) and isinstance(b, LazyValue)):
            if type(a) is not type(b) or repr(a) != repr(b):
                return False
            continue
        if a.array is not None and b.array is not None:  # constants
            facts = [(x.dtype, x.shape, x.array.tolist()) for x in (a, b)]
            if facts[0] != facts[1]:
                return False
            continue
        if a.op is None or a.op != b.op or a.op.drawn or a.op.opaque:
            return False
        if len(a.inputs) != len(b.inputs):
            return False
        stack.extend(zip(a.inputs, b.inputs, strict=True))
    return True


def write_selected(x: Any, y: Any) -> None:
    """Replaces the value of the masked selection `x`."""
    x._data = y._data


register_backend(Selected, None, lambda value: value.device)
