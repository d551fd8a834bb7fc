"""Tensors that change their size or their memory, and what their views then show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.argument_errors import assert_tensor
from ...core.errors import AutogradError, DTypeError, InvalidArgument, Unsupported
from ...core.spec import prod
from ...core.tensor_type import Tensor
from ...runtime.editing import (
    count_change,
    is_followed,
    leave_memory,
    live_views,
    refollow,
    show_other,
)
from ...runtime.lazy import LazyValue
from ...runtime.node import Version, View
from ...runtime.public import explaining, public
from ...runtime.tensors import wrap
from ...runtime.views import register_view
from ...runtime.writes import exported
from ..memory_formats import assert_memory_format
from .allocation import names_on, sizes_from
from .memory import UntypedStorage, owner_of

if TYPE_CHECKING:
    from ...ops.argument_types import Dims, MemoryFormat

__all__: list[str] = []


def _assert_replaceable(x: Any, name: str) -> None:
    """Refuse to give `x` other memory where autograd or a recording would lose track of it."""
    if isinstance(x._data, LazyValue) and x._data.rises:
        raise Unsupported(
            f"{name}: cannot resize variables that have a forward grad, or are inside a function "
            "transform; make another tensor"
        )
    base = x if x._view is None else x._view.base
    if x._node is not None or base._node is not None:
        raise AutogradError(f"{name}: the tensor requires grad; detach() it first")


@public(plain=True)
def resize_(self: Tensor, *sizes: Dims, memory_format: MemoryFormat | None = None) -> Tensor:
    """Change this tensor's shape in place; elements that still fit keep their values. A view shows
    that much of the memory that it is a part of, from where it begins. Where memory grows, all
    that show it follow.

    Shapes: any; new elements are uninitialised.
    Errors: AutogradError for a tensor that requires grad; Unsupported for memory of others (NumPy,
    devices) that would have to grow under views.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.resize_.html

    >>> ad.tensor([1, 2, 3, 4]).resize_(2, 2)
    tensor([[1, 2],
            [3, 4]])
    """
    shape = sizes_from(sizes, None, "resize_")
    assert_memory_format(memory_format, "resize_")
    _assert_replaceable(self, "resize_")
    if shape == tuple(self.shape):
        return self
    views = live_views(self)
    if self._view is not None or views:
        _resize_shared(self, shape, views)
        return self
    old, count = np.ravel(self._data, "K"), prod(shape)
    array = (_grown(old, count, self.device) if count > old.size else old)[:count].reshape(shape)
    if is_followed(self) or not np.may_share_memory(array, self._data):
        show_other(self, array, "resize_")
    else:
        self._data = array
        count_change(self, "resize_")
    return self


def _grown(old: Any, count: int, device: Any) -> Any:
    memory = names_on(device).empty(count, old.dtype)
    memory[: old.size] = old
    return memory


def _steps(shape: tuple[int, ...]) -> list[int]:
    return [prod(shape[i + 1 :]) for i in range(len(shape))]


def _resize_shared(x: Any, shape: tuple[int, ...], views: list[Any]) -> None:
    """Resize a tensor whose memory others show."""
    if x._view is None:  # what x has been until now is the base from now on
        base = wrap(x._data, None, x._changes)
        for each in views:
            each._view.base = base
    else:
        base = x._view.base
    start, needed = x._storage_offset(), x._storage_offset() + prod(shape)
    if needed > UntypedStorage(base)._owner.size:
        base = _grow_under(base, [*views, *([] if x._view is None else [x])], needed)
    part = base.as_strided(shape, _steps(shape), start)
    if is_followed(x):
        x._changes.before_change()
    followed = is_followed(x)
    if followed:
        refollow(x, part._data)
    x._data, x._view, x._changes = part._data, part._view, part._changes
    register_view(x)
    if followed:
        x._changes.bump("resize_")
    else:
        count_change(x, "resize_")


def _grow_under(base: Any, views: list[Any], count: int) -> Any:
    """Move the memory of `base` and of its views to a larger one; returns the tensor of that."""
    old = owner_of(base._data)
    version: Version = base._changes
    shown = [x for x in (base, *views) if not isinstance(x._data, np.ndarray)]
    if version.exported or shown or not old.flags.owndata:
        raise Unsupported(
            f"resize_: {count} elements need other memory, and this one is known outside (to "
            "NumPy, a device or a graph); clone() the tensor first"
        )
    if version.watchers is not None:
        version.before_change()
    memory = _grown(np.ravel(old, "K"), count, base.device)
    root = wrap(memory, None, version)
    first = (base._data.ctypes.data - old.ctypes.data) // old.itemsize
    below = base.as_strided(base.shape, base.stride(), first)._view
    lowest = View(root, None, below.op)
    seen = set()
    for each in (base, *views):
        offset = each._data.ctypes.data - old.ctypes.data
        array = np.ndarray(each._data.shape, each._data.dtype, memory, offset, each._data.strides)
        each._data = array
        view = each._view
        if each is base:
            base._view = lowest
            register_view(base)
        while view is not None and view is not lowest and id(view) not in seen:
            seen.add(id(view))
            view.base = root
            above = view.above
            if above is None:
                view.above = lowest
            view = above
    return root


@public()
@explaining
def resize_as_(self: Tensor, other: Tensor, memory_format: MemoryFormat | None = None) -> Tensor:
    """Change this tensor's shape in place to that of `other`.

    Errors: those of `resize_`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.resize_as_.html

    >>> ad.tensor([1, 2, 3, 4]).resize_as_(ad.zeros(2, 2))
    tensor([[1, 2],
            [3, 4]])
    """
    return resize_(self, tuple(other.shape), memory_format=memory_format)  # type: ignore[no-any-return]


@public(plain=True)
def set_(
    self: Tensor,
    source: Any = None,
    storage_offset: int = 0,
    size: Dims | None = None,
    stride: Dims | None = None,
) -> Tensor:
    """Make this tensor show the memory of `source`, in place; without it, become empty. With
    `size`, and `stride` (row-major unless given), it shows that part, from `storage_offset` on.

    Shapes: `source` is a tensor of this dtype, or a storage: of one of any dtype if it counts bytes
    (`untyped_storage`), which are then read as this tensor's elements.
    Errors: AutogradError for a tensor that requires grad; DTypeError where the dtypes differ. Views
    of this tensor keep showing the memory that it had.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.set_.html

    >>> x, y = ad.zeros(1), ad.ones(2)
    >>> x.set_(y).data_ptr() == y.data_ptr()
    True
    >>> x.set_(ad.arange(6.0), 1, (2, 2), (2, 1))
    tensor([[1., 2.],
            [3., 4.]])
    """
    _assert_replaceable(self, "set_")
    if source is None:
        show_other(self, names_on(self.device).empty(0, self._data.dtype), "set_")
    else:
        if isinstance(source, UntypedStorage):
            source = source.shown_as(self.dtype)
        assert_tensor("set_", source, "source")
        if source.dtype is not self.dtype:
            raise DTypeError(f"set_: source has {source.dtype}, this tensor {self.dtype}")
        alias: Any = source.detach()  # type: ignore[attr-defined]
        if size is not None:
            size = (size,) if isinstance(size, int) else tuple(size)
            steps = _steps(size) if stride is None else stride
            alias = alias.as_strided(size, steps, storage_offset)
        elif storage_offset or stride is not None:
            raise InvalidArgument("set_: storage_offset and stride go with a size; give it, too")
        if is_followed(self):  # the graph goes on following this tensor, by its own count of writes
            show_other(self, exported(alias)._data, "set_")
            exported(self)  # neither of the two is told of writes to the other
            return self
        saved_at = 0 if self._changes is None else self._changes.count
        leave_memory(self)
        self._data, self._changes, self._view = alias._data, alias._changes, alias._view
        if self._view is not None:
            register_view(self)
        count_change(self, "set_", least=saved_at)
    return self
