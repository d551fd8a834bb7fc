"""The user's Tensor: the one place where data, ops, graph and autograd are wired together."""

from __future__ import annotations

import functools
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import FrameType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from .autograd import engine, refreshing, wiring
from .autograd.forward_level import carries_tangent
from .autograd.gradients import backward as autograd_backward
from .autograd.levels import Leveled
from .backends import numpy as numpy_backend
from .core import dtype as dt
from .core.argument_errors import REFLECTED, assert_tensor, has_a_say, misplaced
from .core.device import CPU, as_device, host_array, is_device_array, transfer
from .core.errors import (
    AutogradError,
    DeviceError,
    DTypeError,
    InvalidArgument,
    InvalidType,
    ShapeError,
    Unsupported,
)
from .core.faces import load
from .core.handles import RemovableHandle, register
from .core.mode import MODE, note_fact, tell
from .core.overrides import ABSENT, FOLLOWED, asks, concerns, named, overridden, unasked
from .core.package import FOLDER
from .core.spec import Size, normalize_axis
from .core.symbolic_sizes import as_size, is_size
from .core.tensor_base import TensorBase
from .core.torch_function import OverridableMethod, assert_no_dispatch, prepare
from .ops.create import (
    conversion,
    creation,
    deprecated_creation,
    exchange,
    memory,
    ranges,
    resizing,
)
from .ops.elementwise import arithmetic
from .ops.elementwise import complex as complex_ops
from .ops.elementwise import namespace as ew
from .ops.index import indexing, scatter, slicing
from .ops.linalg import householder, linalg, matmul
from .ops.nn import activation, convolution
from .ops.random import filling, random
from .ops.reduce import counting, extrema, quantiles, reduction, scan, sort, statistics
from .ops.shape import arranging, copies, joining, movement
from .ops.signal import fft, spectrograms
from .ops.special import incomplete
from .printing import format_tensor
from .runtime.cells import (
    Cell,
    SourceCell,
    note_branch,
    wants_gradient,
    warn_of_plain,
    warn_of_read,
)
from .runtime.editing import show_other
from .runtime.lazy import LazyValue, concrete
from .runtime.node import INFERENCE, Item, Leaf
from .runtime.op_functions import binary_operator
from .runtime.public import FUNCTIONS, METHODS, naming
from .runtime.tensors import wrap
from .runtime.views import alias, laid_out, register_view
from .runtime.writes import exported, values_of

if TYPE_CHECKING:
    from .ops.argument_types import DeviceLike, DTypeLike, MemoryFormat

__all__ = ["RemovableHandle", "Tensor"]

assert numpy_backend and deprecated_creation and resizing  # whose import registers functions


def _size(self: Any, dim: int | None = None) -> Any:
    """The shape, or the size of one dimension.

    Not called, it is the number of elements, as the array API standard has it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.size.html

    >>> ad.zeros(2, 3).size(), ad.zeros(2, 3).size(-1), ad.zeros(2, 3).size == 6
    (adjoint.Size([2, 3]), 3, True)
    """
    if dim is None:
        return self.shape
    data = self._data
    if type(data) is np.ndarray and type(dim) is int and -data.ndim <= dim < data.ndim:
        return data.shape[dim]
    return self.shape[normalize_axis(dim, self.ndim, "size")]


_size.__name__ = _size.__qualname__ = "size"


class _Count(int):
    """The value of `Tensor.size`: the number of elements as an int; called, PyTorch's method
    `size`.
    """

    _tensor: Any

    def __call__(self, dim: int | None = None) -> Any:
        return _size(self._tensor, dim)


class _AskingCount(_Count):
    """A `_Count` that consults `__torch_function__` when called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _ASKING_SIZE.asking(self._tensor, *args, **kwargs)


_ASKING_SIZE = OverridableMethod(_size)


class _SizeOrCount:
    """`Tensor.size`: PyTorch's method and the array API standard's attribute in one."""

    def __init__(self, kind: type[_Count], asking: Any = None) -> None:
        self.kind = kind
        self.asking = asking

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        if tensor is None:
            return _size
        number = tensor._data.size
        if is_size(number):
            return MethodType(_size, tensor)
        count = self.kind(number)
        count._tensor = tensor
        return count


class _Attributes:
    """Descriptor of a tensor's `__dict__`, which may be assigned, as in PyTorch: its entries are
    replaced.
    """

    def __get__(self, x: Any, owner: Any = None) -> Any:
        return _ATTRIBUTES.__get__(x, owner)

    def __set__(self, x: Any, entries: dict[str, Any]) -> None:
        new, own = dict(entries), _ATTRIBUTES.__get__(x, type(x))
        own.clear()
        own.update(new)


_ATTRIBUTES: Any = vars(TensorBase)["__dict__"]


def _let_attributes_be_set(kind: type) -> None:
    """Give `kind` its own `__dict__` descriptor, if a class beside Tensor, before it among the
    bases, brings one: Python would find that first, and it cannot be set for objects of compiled
    classes.
    """
    first = next(vars(each)["__dict__"] for each in kind.__mro__ if "__dict__" in vars(each))
    if isinstance(first, _Attributes) or getattr(kind.__setattr__, "attributes", None):
        return
    before: Any = kind.__setattr__

    def __setattr__(self: Any, name: str, value: Any) -> None:  # noqa: N807 - of the class
        if name == "__dict__":
            _Attributes().__set__(self, value)
        else:
            before(self, name, value)

    vars(__setattr__)["attributes"] = True
    kind.__setattr__ = __setattr__  # type: ignore[method-assign, assignment]


class Tensor(TensorBase):
    """An array with automatic differentiation.

    Make one with `adjoint.tensor(data)`. `Tensor(2, 3)` gives uninitialised memory of that shape
    and `Tensor([1, 2])` a tensor of the default dtype, as in PyTorch; `dtype`, `device` and
    `requires_grad` say otherwise.

    Source: https://docs.pytorch.org/docs/stable/tensors.html

    >>> x = ad.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    >>> ad.Tensor([1, 2], dtype="int64")
    tensor([1, 2])
    """

    __slots__ = ()
    __dict__ = _Attributes()  # type: ignore[assignment]

    if TYPE_CHECKING:  # methods made from public functions are attached below

        def __getattr__(self, name: str) -> Any: ...

        def __getitem__(self, index: Any) -> Tensor: ...

        def __setitem__(self, index: Any, value: Any) -> None: ...

        def __eq__(self, other: object) -> Any: ...  # type: ignore[override]

        def __ne__(self, other: object) -> Any: ...  # type: ignore[override]

        def __lt__(self, other: Any) -> Tensor: ...

        def __le__(self, other: Any) -> Tensor: ...

        def __gt__(self, other: Any) -> Tensor: ...

        def __ge__(self, other: Any) -> Tensor: ...

        def __invert__(self) -> Tensor: ...

        def __and__(self, other: Any) -> Tensor: ...

        def __or__(self, other: Any) -> Tensor: ...

        def __pow__(self, other: Any) -> Tensor: ...

        def __rpow__(self, other: Any) -> Tensor: ...

    def __new__(
        cls,
        *data: Any,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Any:
        """A new tensor: see the class."""
        assert_no_dispatch(cls)
        kind = dt.get_default_dtype() if dtype is None else dt.as_dtype(dtype)
        source = conversion.legacy_new(kind, data, device)
        if dtype is not None:
            source = source.to(kind)  # of a tensor, whose dtype is kept otherwise
        made = adopt(cls, source)
        return made.requires_grad_() if requires_grad else made

    # ---- subclasses ------------------------------------------------------------------------------

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _let_attributes_be_set(cls)
        prepare(cls, silent)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The default override for subclasses: the result of the public function with tensors
        converted to the subclass. Classes may override it, and call this with `super()`.

        NotImplemented where there are others among the arguments, of which it does not derive.
        Source: https://docs.pytorch.org/docs/stable/notes/extending.html#subclassing-torch-tensor

        >>> class Named(ad.Tensor):
        ...     @classmethod
        ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
        ...         print(func.__name__)
        ...         return super().__torch_function__(func, types, args, kwargs)
        >>> y = ad.ones(2).as_subclass(Named) * 2
        mul
        >>> type(y).__name__
        'Named'
        """
        if not all(issubclass(cls, each) for each in types) or any(map(_is_anothers, args)):
            return NotImplemented
        result = unasked(func, args, kwargs or {})
        return result if func in NOT_WRAPPED else converted(result, cls)

    def module_load(self, other: Tensor, assign: bool = False) -> Tensor:
        """The new value of a parameter when `other` is loaded into it: `other` itself, if `assign`,
        else this tensor with the values of `other`; without history. A subclass may override it.

        Errors: ShapeError where `other` does not broadcast to this tensor's shape.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.module_load.html

        >>> ad.zeros(2).module_load(ad.tensor([1.0, 2.0]))
        tensor([1., 2.])
        """
        if FOLLOWED and concerns(other):
            said = overridden(Tensor.module_load, (self, other), {"assign": assign})
            if said is not ABSENT:
                return said  # type: ignore[no-any-return]
        return other.detach() if assign else self.copy_(other).detach()

    # ---- gradients -------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow back to this tensor; may be set on leaves."""
        node = self._node
        return node is not None and (type(node) is not Cell or wants_gradient(node))

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Start or stop recording operations on this leaf, in place.

        Errors: AutogradError for integers, and when stopping a tensor that was computed.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.requires_grad_.html

        >>> ad.zeros(2).requires_grad_().requires_grad
        True
        """
        if requires_grad == self.requires_grad:
            return self
        executor = MODE.get().executor
        if self._leaf is not None and hasattr(executor, "note_gradient"):
            executor.meet(self)  # type: ignore[union-attr]
        refreshing.leaves_changed()
        if requires_grad:
            if self.dtype.category < 2:
                raise AutogradError(
                    "requires_grad_: only Tensors of floating point and complex dtype can require "
                    f"gradients, not {self.dtype}; convert with .float() first"
                )
            if self._changes is INFERENCE and not MODE.get().inference:
                raise AutogradError(
                    "requires_grad_: Setting requires_grad=True on inference tensor outside "
                    "InferenceMode is not allowed; clone it first"
                )
            if isinstance(self._data, Cell):
                refreshing.own_cell(self)
            if self._leaf is None or tuple(self._data.shape) != self._leaf.shape:
                self._leaf = Leaf(self)
            self._node = self._leaf
        else:
            if self._node is not self._leaf:
                raise AutogradError(
                    "requires_grad_: you can only change requires_grad flags of leaf variables; "
                    "use .detach() to get a tensor without history"
                )
            self._node = None
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether this tensor was made by the user, not computed from one that requires grad."""
        note_fact("is_leaf", self)
        return self._is_leaf()

    def _is_leaf(self) -> bool:
        return self._node is None or self._node is self._leaf

    @property
    def grad_fn(self) -> Any:
        """The Node that recorded how this tensor was computed; None for a leaf."""
        note_fact("grad_fn", self)
        node = self._node
        if node is self._leaf or (type(node) is Cell and not wants_gradient(node)):
            return None
        return node

    @property
    def _version(self) -> int:
        """The number of writes to this tensor's memory, also through views.

        Errors: AutogradError for a tensor of inference mode, which keeps no count.
        Source: https://docs.pytorch.org/docs/stable/notes/autograd.html#in-place-correctness-checks

        >>> x = ad.zeros(2)
        >>> x.add_(1)[0].zero_()
        tensor(0.)
        >>> x._version
        2
        """
        note_fact("_version", self)
        changes = self._changes
        if changes is INFERENCE:
            raise AutogradError(
                "_version: Inference tensors do not track version counter; clone it outside of "
                "inference mode"
            )
        return 0 if changes is None else int(changes.count)

    @property
    def output_nr(self) -> int:
        """The index of this tensor among the outputs of its op."""
        op = getattr(self._node, "op", None)
        return getattr(op, "index", 0) if isinstance(op, Item) else 0

    @property
    def grad(self) -> Any:
        """The gradient accumulated by `backward`; None before.

        Warns where it is None because only leaves, and tensors with `retain_grad()`, keep theirs.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.grad.html
        """
        leaf = self._leaf
        if leaf is not None or self._node is None:
            executor = MODE.get().executor
            if executor is not None and hasattr(executor, "note_gradient_read"):
                executor.note_gradient_read(self)
            return None if leaf is None else leaf.grad
        retained = refreshing.retained_gradient(self) if type(self._data) is Cell else None
        if retained is None:
            _warn_of_no_gradient(self)
        return retained

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise misplaced(value, "grad", due="a tensor or None")
            if value._data.shape != self._data.shape:
                raise ShapeError(
                    f"grad: assigned grad has data of a different size: {tuple(value.shape)}, the "
                    f"tensor's is {tuple(self.shape)}"
                )
            if value.dtype is not self.dtype:
                raise DTypeError(
                    f"grad: assigned grad has data of a different type: {value.dtype}, the "
                    f"tensor's is {self.dtype}"
                )
            if value.device != self.device:
                raise DeviceError(
                    f"grad: assigned grad is on {value.device}, the tensor on {self.device}; move "
                    f"it with .to({str(self.device)!r})"
                )
            if value is self:
                raise AutogradError("grad: can't assign Variable as its own grad")
        executor = MODE.get().executor
        if executor is not None and hasattr(executor, "note_gradient"):
            executor.note_gradient(self)
        if self._leaf is None:
            if value is None:
                return
            self._leaf = Leaf(self)
        self._leaf.grad = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @naming
    def backward(
        self,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Add the gradients of this tensor (of its sum, without `gradient`) to the leaves' `.grad`.

        Shapes: `gradient` has the shape of this tensor.
        Errors: AutogradError where nothing was recorded, or the graph was used up already.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html

        >>> x = ad.tensor(3.0, requires_grad=True)
        >>> (x * x).backward()
        >>> x.grad
        tensor(6.)
        """
        if inputs is None and not create_graph and not isinstance(self._data, Cell):
            node = self._node
            if node is not None:
                engine.run_backward(
                    ((node, engine.seed(self, gradient)),),
                    retain_graph=bool(retain_graph),
                    create_graph=False,
                )
                return
        autograd_backward(self, gradient, retain_graph, create_graph, inputs=inputs)

    def retain_grad(self) -> None:
        """Keep the gradient of this computed tensor in `.grad` too.

        Errors: AutogradError for a tensor that does not require grad.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.retain_grad.html

        >>> x = ad.ones(1, requires_grad=True)
        >>> y = x * 2
        >>> y.retain_grad()
        >>> (y * 3).backward()
        >>> y.grad
        tensor([3.])
        """
        node = self._node
        if node is None:
            raise AutogradError(
                "retain_grad: can't retain_grad on Tensor that has requires_grad=False"
            )
        executor = MODE.get().executor
        if executor is not None and hasattr(executor, "note_retained"):
            executor.note_retained(self)
        if node is self._leaf:
            return
        if self._leaf is None:
            self._leaf = Leaf(self)
        node.get_extra().retained = self._leaf
        refreshing.leaves_changed()

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called on this computed tensor."""
        node = self._node
        if node is None or node is self._leaf or node.extra is None:
            return False
        return node.extra.retained is self._leaf and self._leaf is not None

    def register_hook(self, hook: Callable[[Tensor], Any]) -> RemovableHandle:
        """Call `hook` with this tensor's fresh gradient in each backward; it may return another.

        Errors: AutogradError for a tensor that does not require grad.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.register_hook.html

        >>> x = ad.ones(1, requires_grad=True)
        >>> handle = x.register_hook(lambda g: g * 10)
        >>> x.sum().backward()
        >>> x.grad
        tensor([10.])
        """
        if self._node is None:
            raise AutogradError(
                "register_hook: cannot register a hook on a tensor that doesn't require gradient"
            )
        refreshing.leaves_changed()
        return _hooked(self, self._node.get_extra().hooks, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Any], Any]) -> RemovableHandle:
        """Call `hook(tensor)` once this leaf's `.grad` is up to date, in each backward.

        Errors: AutogradError for a tensor that is not a leaf requiring grad.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.register_post_accumulate_grad_hook.html

        >>> x = ad.ones(1, requires_grad=True)
        >>> handle = x.register_post_accumulate_grad_hook(lambda p: print(p.grad))
        >>> x.sum().backward()
        tensor([1.])
        """
        if self._node is None or self._node is not self._leaf:
            raise AutogradError(
                "register_post_accumulate_grad_hook: post accumulate grad hooks cannot be "
                "registered on non-leaf tensors; use register_hook"
            )
        if self._leaf.after is None:
            self._leaf.after = {}
        return _hooked(self, self._leaf.after, hook)

    def detach(self) -> Tensor:
        """A tensor that shares this one's storage and has no history.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach.html

        >>> (ad.ones(1, requires_grad=True) * 2).detach().requires_grad
        False
        """
        _captured(self)
        detached = alias(self)
        if isinstance(self._data, Leveled):
            detached._data = self._data.without_history()
        return detached

    def as_subclass(self, cls: Any) -> Any:
        """This tensor as an instance of a subclass of Tensor, with its memory and history.

        Errors: InvalidType for another class.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.as_subclass.html

        >>> type(ad.ones(1).as_subclass(ad.nn.Parameter)).__name__
        'Parameter'
        """
        _assert_class("as_subclass", cls)
        converted_tensor = unasked(FUNCTIONS["view_as"], (self, self), {})
        converted_tensor.__class__ = cls
        return converted_tensor

    @staticmethod
    def _make_subclass(cls: Any, data: Tensor, require_grad: bool = False, **_: Any) -> Any:
        """A tensor of a subclass of Tensor, with the memory of `data` and no history."""
        _assert_class("_make_subclass", cls)
        assert_tensor("_make_subclass", data, "data")
        made = Tensor.detach(data)
        made.__class__ = cls
        return Tensor.requires_grad_(made) if require_grad else made

    @staticmethod
    def _make_wrapper_subclass(*_: Any, **__: Any) -> Any:
        """Refused: such tensors have no data of their own, and need `__torch_dispatch__`."""
        raise Unsupported(
            "_make_wrapper_subclass: a tensor without data of its own needs __torch_dispatch__, "
            "which is not supported; keep the tensor that is wrapped in an attribute, and define "
            "__torch_function__"
        )

    def detach_(self) -> Tensor:
        """Forget this tensor's history, in place.

        Errors: AutogradError for a view, whose base would keep it.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach_.html

        >>> (ad.ones(1, requires_grad=True) * 2).detach_().is_leaf
        True
        """
        assert_tensor("detach_", self)
        if self._view is not None and (self._node is not None or carries_tangent(self)):
            raise AutogradError("detach_: can't detach views in-place; use detach() instead")
        self._node = None
        if isinstance(self._data, Leveled):
            self._data = self._data.without_history()
        return self

    @property
    def data(self) -> Tensor:
        """This tensor's storage without history or version; assigning replaces the storage."""
        if _captured(self) is not None:
            shown = alias(self)
            shown._changes.exported = True  # nobody is to compute again what it was before a write
            return shown
        if isinstance(self._data, Leveled):
            return self.detach()
        if isinstance(self._data, Cell):
            return alias(self)
        if isinstance(self._data, conversion.Sparse):
            return wrap(self._data, None, alias(self)._changes)
        data = concrete(self)
        if (self._changes is not None and self._changes.watchers is not None) or MODE.get().blocks:
            return alias(self)  # of which graphs are told
        exported(self)  # neither of the two is told of writes to the other
        return exported(wrap(data))

    @data.setter
    def data(self, value: Any) -> None:
        assert_tensor("data", value, "value")
        if self._node is not None and value.dtype.category < 2:
            raise DTypeError("data: a tensor that requires grad needs floating-point data")
        capture = _captured(self)
        if capture is not None:
            capture.replace(self, value)
            return
        if isinstance(self._data, SourceCell):
            self.set(value)
            return
        if value.layout is not self.layout:
            sparse = value if value.layout is not conversion.strided else self
            raise conversion.refused("data", sparse._data, "takes a tensor of the same layout")
        if isinstance(self._data, Leveled) and not self._data.expired and not carries_tangent(self):
            raise Unsupported(
                "data: mutating directly with `.data` inside a transform of func (vmap, jvp) would "
                "lose what the tensor stands for there; use copy_"
            )
        data = value._data if value.layout is not conversion.strided else concrete(value)
        exported(value)  # neither of the two is told of writes to the other
        self._show(self._data.over(data) if carries_tangent(self) else data)
        exported(self)

    def _show(self, data: Any) -> None:
        """Take `data` as memory from now on, which nobody else writes to unseen."""
        show_other(self, data, "data", is_write=False)

    def freeze(self) -> Tensor:
        """Store no gradient for this leaf from now on, and drop the present one, so that optimizers
        skip it. (`requires_grad_(False)` keeps it, and optimizers apply it, as in PyTorch.)

        >>> ad.ones(1, requires_grad=True).freeze().is_frozen
        True
        """
        self.requires_grad_(False)
        if self.grad is not None:
            self.grad = None
        return self

    def unfreeze(self) -> Tensor:
        """Store gradients for this leaf again; `requires_grad_(True)`.

        >>> ad.ones(1).freeze().unfreeze().is_frozen
        False
        """
        return self.requires_grad_(True)

    @property
    def is_frozen(self) -> bool:
        """Whether this is a leaf that gets no gradient."""
        return not self.requires_grad

    @property
    def is_computed(self) -> bool:
        """Whether the value is computed and up to date: not before a lazy tensor is read, nor if a
        tensor of a Graph was released or one of its inputs has changed.

        >>> with ad.lazy():
        ...     x = ad.ones(2) + 1
        >>> x.is_computed, ad.realize(x).is_computed
        (False, True)
        """
        data = self._data
        if not isinstance(data, LazyValue) or data.kept is not None:
            return True
        return data.array is not None and not (isinstance(data, Cell) and data.stale)

    def is_inference(self) -> bool:
        """Whether this tensor was made in inference mode.

        >>> ad.ones(1).is_inference()
        False
        """
        note_fact("is_inference", self)
        return self._changes is INFERENCE

    @property
    def _base(self) -> Any:
        """The tensor of which this one is a view; None for a tensor that is no view."""
        note_fact("_base", self)
        return None if self._view is None else self._view.base

    def _is_view(self) -> bool:
        note_fact("_base", self)
        return self._view is not None

    # ---- facts -----------------------------------------------------------------------------------

    size: Any = _SizeOrCount(_Count, _SizeOrCount(_AskingCount))

    def dim(self) -> int:
        """The number of dimensions.

        >>> ad.zeros(2, 3).dim()
        2
        """
        return self.ndim

    ndimension = dim

    def dim_order(self, *, ambiguity_check: bool | list[Any] = False) -> tuple[int, ...]:
        """The dimensions, ordered from the longest step in memory to the shortest.

        With `ambiguity_check`, an order that the steps leave open (sizes of 1, equal steps) is an
        error; of several layouts that are named, one must fit.

        Errors: InvalidArgument for such an order.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.dim_order.html

        >>> ad.zeros(2, 3).T.dim_order()
        (1, 0)
        """
        steps = self.stride()
        if (
            ambiguity_check is not False
            and self.numel()
            and (1 in self.shape or len({*steps}) < len(steps))
        ):
            formats = ambiguity_check if isinstance(ambiguity_check, list) else []
            if sum(self.is_contiguous(memory_format=each) for each in formats) != 1:
                raise InvalidArgument(
                    f"dim_order: shape {tuple(self.shape)} with steps {steps} has no unique "
                    "order; name the one layout that it has: ambiguity_check=[...]"
                )
        return tuple(sorted(range(self.ndim), key=lambda i: -steps[i]))

    def is_same_size(self, other: Tensor) -> bool:
        """Whether the shapes are equal.

        >>> ad.zeros(2).is_same_size(ad.zeros(1))
        False
        """
        if FOLLOWED and concerns(other):
            said = overridden(Tensor.is_same_size, (self, other), {})
            if said is not ABSENT:
                return said  # type: ignore[no-any-return]
        assert_tensor("is_same_size", other, "other")
        return tuple(self.shape) == tuple(other.shape)

    def is_distributed(self) -> bool:
        """Whether this tensor is spread over several ranks: always False."""
        return False

    def numel(self) -> int:
        """The number of elements.

        >>> ad.zeros(2, 3).numel()
        6
        """
        size = self._data.size
        return size if type(size) is int else as_size(size)  # type: ignore[no-any-return]

    nelement = numel

    @property
    def nbytes(self) -> int:
        """The bytes that the elements take."""
        return int(self._data.size * self._data.dtype.itemsize)

    def element_size(self) -> int:
        """The bytes that one element takes.

        >>> ad.zeros(2).element_size()
        4
        """
        return int(self._data.dtype.itemsize)

    @property
    def itemsize(self) -> int:
        """The bytes that one element takes."""
        return int(self._data.dtype.itemsize)

    def stride(self, dim: int | None = None) -> Any:
        """The steps in memory, in elements, along all dimensions or one.

        >>> ad.zeros(2, 3).stride()
        (3, 1)
        """
        data = laid_out(self)
        item = data.dtype.itemsize
        strides = tuple(s // item for s in data.strides)
        return strides if dim is None else strides[normalize_axis(dim, self.ndim, "stride")]

    def storage_offset(self) -> int:
        """The position of this view's first element in its storage, in elements.

        >>> ad.arange(4)[2:].storage_offset()
        2
        """
        note_fact("storage_offset", self)
        return self._storage_offset()

    def _storage_offset(self) -> int:
        if self._view is not None and isinstance(self._data, LazyValue):
            slicing.number_places().settle_numbers(self._view.ops)
        data = laid_out(self)
        return int(data.ctypes.data - memory.owner_of(data).ctypes.data) // self.element_size()

    def is_contiguous(self, memory_format: MemoryFormat | None = None) -> bool:
        """Whether the elements lie in row-major order without gaps; with a `memory_format` of
        channels last, whether the second dimension is last in memory.

        >>> ad.zeros(2, 3).T.is_contiguous()
        False
        >>> ad.zeros(1, 5, 5, 3).permute(0, 3, 1, 2).is_contiguous(memory_format=ad.channels_last)
        True
        """
        if self.layout is not conversion.strided:
            return False
        data = laid_out(self)
        rank = {"channels_last": 4, "channels_last_3d": 5}.get(
            str(memory_format).rpartition(".")[2]
        )
        if rank is None:
            return bool(data.flags.c_contiguous)
        if data.ndim != rank:
            return False
        return bool(data.transpose(0, *range(2, rank), 1).flags.c_contiguous)

    def data_ptr(self) -> int:
        """The address of the first element."""
        note_fact("data_ptr", self)
        return int(concrete(exported(self)).ctypes.data)

    def is_floating_point(self) -> bool:
        """Whether the dtype is a floating-point one.

        >>> ad.zeros(1).is_floating_point()
        True
        """
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Whether the dtype is complex.

        >>> ad.zeros(1).is_complex()
        False
        """
        return self.dtype.is_complex

    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers.

        >>> ad.zeros(1, dtype=ad.uint8).is_signed()
        False
        """
        return self.dtype.is_signed

    @property
    def is_cuda(self) -> bool:
        """Whether the data lives on a CUDA device."""
        return self.device.type == "cuda"

    @property
    def is_cpu(self) -> bool:
        """Whether the data lives in the host's memory, under the device "cpu"."""
        return self.device.type == "cpu"

    @property
    def layout(self) -> Any:
        """The storage layout of the elements: `strided`, `sparse_coo`, `sparse_csr` or
        `sparse_csc`.

        Source: https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch.layout

        >>> ad.zeros(2).layout
        adjoint.strided
        """
        data = self._data
        kept = data.kept if isinstance(data, LazyValue) else None
        return conversion.strided if kept is None else kept

    @property
    def is_sparse(self) -> bool:
        """Whether the layout is `sparse_coo`.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_sparse.html

        >>> ad.zeros(2).is_sparse
        False
        """
        return self.layout is conversion.sparse_coo

    @property
    def is_sparse_csr(self) -> bool:
        """Whether the layout is `sparse_csr`.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_sparse_csr.html

        >>> ad.zeros(2).is_sparse_csr
        False
        """
        return self.layout is conversion.sparse_csr

    @property
    def is_meta(self) -> bool:
        """Whether the tensor is on the device "meta": without elements.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_meta.html

        >>> ad.zeros(2, device="meta").is_meta
        True
        """
        return self.device.type == "meta"

    is_quantized = False
    is_nested = False
    is_mkldnn = False
    is_mps = is_xpu = is_xla = is_ipu = is_vulkan = is_maia = is_mtia = False
    names: Any = None

    @property
    def name(self) -> None:
        """None: tensors have no names.

        >>> ad.ones(1).name is None
        True
        """

    @property
    def volatile(self) -> bool:
        """Always False; PyTorch's old word for `no_grad`, whose setter only warns.

        >>> ad.ones(1).volatile
        False
        """
        return False

    @volatile.setter
    def volatile(self, value: bool) -> None:
        warnings.warn("volatile was removed (Variable.volatile is always False)", stacklevel=2)

    @property
    def grad_dtype(self) -> dt.dtype:
        """The dtype that gradients of this leaf have: its own, which cannot be set.

        Errors: AutogradError for what is no leaf; Unsupported where another dtype is set.

        >>> ad.ones(1).grad_dtype
        adjoint.float32
        """
        if not self._is_leaf():
            raise AutogradError("grad_dtype can only be accessed on leaf tensors.")
        return self.dtype

    @grad_dtype.setter
    def grad_dtype(self, value: dt.dtype | None) -> None:
        if value is not self.grad_dtype:
            raise Unsupported(
                f"grad_dtype: gradients of a leaf have its dtype, {self.dtype}, not {value}; a "
                "hook may convert them elsewhere"
            )

    def get_device(self) -> int:
        """The CUDA device number; -1 on the CPU."""
        return -1 if self.device.index is None else self.device.index

    @property
    def _version_count(self) -> int:
        return 0 if self._changes is None else int(self._changes.count)

    # ---- values out ------------------------------------------------------------------------------

    def item(self) -> int | float | bool:
        """The value of a tensor of one element, as a Python number.

        Errors: InvalidArgument for any other number of elements.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.item.html

        >>> ad.tensor([2.5]).item()
        2.5
        """
        _note_argument(self)
        data = self._read()
        if data.size != 1:
            raise InvalidArgument(
                f"item: a Tensor with {data.size} elements cannot be converted to Scalar "
                f"(shape {tuple(data.shape)}); use tolist() or index one element"
            )
        value: Any = data.item()
        is_number = isinstance(value, (bool, int, float, complex))
        return value if is_number else float(value)

    def _read(self) -> Any:
        """The array, for a decision or number that the program continues with."""
        executor = MODE.get().executor
        if executor is not None and hasattr(executor, "note_read"):
            executor.note_read()
        return concrete(self)

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.tolist.html

        >>> ad.tensor([[1, 2]]).tolist()
        [[1, 2]]
        """
        _note_argument(self)
        data = values_of(self, followed=True)
        narrow = data.dtype.kind == "V" and not is_device_array(data)
        return (data.astype(np.float32) if narrow else data).tolist()

    def numpy(self, *, force: bool = False) -> np.ndarray[Any, Any]:
        """A new NumPy array that shares this tensor's memory; `force` copies from other devices.

        Errors: AutogradError for a tensor that requires grad, InvalidType for one on CUDA, unless
        `force`.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.numpy.html

        >>> ad.ones(2).numpy()
        array([1., 1.], dtype=float32)
        """
        if self._node is not None and not force and MODE.get().grad and self.requires_grad:
            raise AutogradError(
                "numpy: can't call numpy() on Tensor that requires grad; use "
                "tensor.detach().numpy() instead"
            )
        if _captured(self) is not None:
            view = values_of(self).view()  # known as long as nobody writes there
            view.flags.writeable = False
            return view
        data = concrete(self)
        if not is_device_array(data):
            exported(self)
            return data.view()  # the caller's own: shape, dtype and flags of ours stay
        return data.to_host() if force else data.numpy()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        data = self.numpy()
        if dtype is not None and np.dtype(dtype) != data.dtype:
            if copy is False:
                raise InvalidArgument("__array__: a conversion needs a copy")
            return data.astype(dtype)
        return data.copy() if copy else data

    __array_priority__ = 1000

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        if isinstance(self._data, Cell):
            warn_of_plain(self._data, "NumPy")
        return wrap(np.asarray(array))

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if self.requires_grad:
            raise AutogradError(
                "__dlpack__: can't export tensors that require gradient; use tensor.detach()"
            )
        options = {"max_version": max_version, "dl_device": dl_device, "copy": copy}
        return exchange.export_dlpack(concrete(exported(self)), options)

    def __dlpack_device__(self) -> Any:
        return concrete(self).__dlpack_device__()

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise InvalidArgument(
                f"__array_namespace__: adjoint.array_api is version 2024.12, not {api_version!r}"
            )
        return load("interop.array_api")  # it stands on this room

    def to_device(self, device: DeviceLike, /, *, stream: Any = None) -> Tensor:
        """This tensor on another device; the array API standard's name of `to(device)`.

        Errors: DeviceError for a device that does not exist here.
        Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.array.to_device.html

        >>> ad.ones(1).to_device("cpu")
        tensor([1.])
        """
        return conversion.to(self, device)

    def __bool__(self) -> bool:
        data = self._read()
        if isinstance(self._data, Cell):
            note_branch(self._data, sys._getframe(1))
        if data.size != 1:
            raise InvalidArgument(
                f"bool: Boolean value of Tensor with {data.size} values is ambiguous (shape "
                f"{tuple(data.shape)}); use .any() or .all()"
            )
        return bool(data.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self._data.dtype.kind not in "biu" or self._data.size != 1:
            raise InvalidType(
                "index: only integer tensors of a single element can be converted to an index, "
                f"got shape {tuple(self.shape)} of {self.dtype}"
            )
        _note_argument(self, is_index=True)
        return int(values_of(self, followed=True).item())

    def __len__(self) -> int:
        if not self._data.ndim:
            raise InvalidType("len: len() of a 0-d tensor")
        return int(self._data.shape[0])

    def __iter__(self) -> Iterator[Tensor]:
        if not self._data.ndim:
            raise InvalidType("iter: iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __reversed__(self) -> Tensor:
        return self.flip(0) if self._data.ndim else self

    def __contains__(self, element: Any) -> bool:
        if not isinstance(element, (TensorBase, bool, int, float, complex, np.generic)):
            raise InvalidArgument(
                "contains: Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
                f"{type(element)}"
            )
        return bool((self == element).any())

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        tell("note_read")
        return format_tensor(self)

    def __format__(self, spec: str) -> str:
        if self._data.ndim:
            return object.__format__(self, spec)
        return format(self.item(), spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        if not self._is_leaf():
            raise AutogradError(
                "deepcopy: only Tensors created explicitly by the user (graph leaves) support the "
                "deepcopy protocol; detach() first"
            )
        import copy

        data = self._data if self.layout is not conversion.strided else concrete(self)
        result = memory.copied(self, data, memo, functools.partial(adopt, type(self)))
        memo[id(self)] = result
        for name, value in self.__dict__.items():
            setattr(result, name, copy.deepcopy(value, memo))
        if self._node is not None:
            result.requires_grad_()
        if self.grad is not None:
            result.grad = copy.deepcopy(self.grad, memo)
        return result

    def __copy__(self) -> Any:
        result = adopt(type(self), alias(self))
        result._node, result._leaf, result._view = self._node, self._leaf, self._view
        result.__dict__.update(self.__dict__)
        return result

    def __reduce__(self) -> Any:
        if isinstance(self._data, Cell) and not self._is_leaf():
            raise AutogradError("pickle: a node of a graph cannot be pickled; detach() it first")
        if self.layout is not conversion.strided:
            made = (*conversion.sparse_parts(self), type(self), self.requires_grad)
            return (_rebuild_sparse, (*made, dict(self.__dict__)))
        data = host_array(concrete(self), {})
        raw = data.astype(np.float32) if data.dtype.kind == "V" else data
        parts = (type(self), raw, self.dtype.name, self.requires_grad, dict(self.__dict__))
        return (_rebuild, parts if self.device is CPU else (*parts, str(self.device)))

    # ---- operators -------------------------------------------------------------------------------

    __add__ = binary_operator(ew.ADD, ew.add)
    __sub__ = binary_operator(ew.SUB, ew.sub, "iufc")
    __mul__ = binary_operator(ew.MUL, ew.mul)
    __truediv__ = binary_operator(ew.DIV, ew.div, "fc")

    __neg__ = ew.neg

    def __pos__(self) -> Tensor:
        return self.positive()

    def __rdiv__(self, other: Any) -> Any:
        if FOLLOWED and concerns(self, other):
            said = overridden(Tensor.__rdiv__, (self, other), {})
            if said is not ABSENT:
                return said
        return ew.div(other, self)

    def __radd__(self, other: Any) -> Any:
        if isinstance(other, (list, tuple, str, bytes)):
            return NotImplemented  # Python joins and repeats sequences
        return ew.add(self, other)

    def __rsub__(self, other: Any) -> Any:
        if FOLLOWED and concerns(self, other):
            said = overridden(Tensor.__rsub__, (self, other), {})
            if said is not ABSENT:
                return said
        return ew.sub(other, self)

    def __rmul__(self, other: Any) -> Any:
        if isinstance(other, (list, tuple, str, bytes)):
            return NotImplemented  # Python joins and repeats sequences
        return ew.mul(self, other)

    __rtruediv__ = __rdiv__

    def __matmul__(self, other: Tensor) -> Tensor:  # not matmul itself, which overrides are told of
        if FOLLOWED and concerns(self, other):
            said = overridden(Tensor.__matmul__, (self, other), {})
            if said is not ABSENT:
                return said
        return NotImplemented if has_a_say(other, "__rmatmul__") else matmul.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        if FOLLOWED and concerns(self, other):
            said = overridden(Tensor.__rmatmul__, (self, other), {})
            if said is not ABSENT:
                return said
        return matmul.matmul(other, self)


def _assert_class(name: str, cls: Any) -> None:
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise InvalidType(f"{name}: {cls} does not derive from Tensor")
    assert_no_dispatch(cls)


def _is_anothers(value: Any) -> bool:
    """Whether a value is a tensor of PyTorch itself, whose functions would call ours again."""
    kind = type(value)
    is_tensor_like = not isinstance(value, TensorBase) and hasattr(kind, "__torch_function__")
    return is_tensor_like and not asks(kind)


def converted(result: Any, cls: type) -> Any:
    """Tensors, also in tuples and lists, converted to a subclass of Tensor."""
    if isinstance(result, Tensor):
        return (
            result if cls is Tensor or isinstance(result, cls) else Tensor.as_subclass(result, cls)
        )
    if isinstance(result, (tuple, list)) and type(result) is not Size:
        parts = [converted(each, cls) for each in result]
        kind = type(result)
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)  # type: ignore[arg-type]
    return result


def _captured(x: Any) -> Any:
    """The capture that runs here, after noting that the function uses `x`; None where there is
    none.
    """
    executor = MODE.get().executor
    if executor is None or not hasattr(executor, "meet"):
        return None
    executor.meet(x)
    return executor


def _hooked(x: Tensor, hooks: dict[int, Any], hook: Callable[[Any], Any]) -> RemovableHandle:
    """Add a hook to those of `x`; returns its handle."""
    executor = MODE.get().executor
    if executor is not None and hasattr(executor, "note_hooks"):
        executor.note_hooks(x, hooks)
    return register(hooks, hook)


# Where functions are whose results are recorded.
_MADE_OF = tuple(
    os.path.join(FOLDER, *parts)
    for parts in (
        ("ops", ""), ("nn", "functional", ""), ("nn", "utils", "rnn.py"), ("distributions", "")
    )
)  # fmt: skip


def _note_argument(x: Tensor, is_index: bool = False) -> None:
    """Warn where a function of this package reads a node, as an argument of what it records; or
    whoever takes it for an index in a block of its graph, as compiled functions have no frames.
    """
    if not isinstance(x._data, Cell):
        return
    if is_index and x._data.state in MODE.get().blocks:
        warn_of_read(x._data)
        return
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    if frame is not None and frame.f_code.co_filename.startswith(_MADE_OF):
        warn_of_read(x._data)


def _warn_of_no_gradient(x: Tensor) -> None:
    """Warn that `x`, which was computed, has no `.grad`, unless the package itself reads it."""
    reader = sys._getframe(2).f_code.co_filename
    if x.requires_grad and not reader.startswith(FOLDER):
        warnings.warn(
            "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its "
            ".grad attribute won't be populated during autograd.backward(). If you indeed want "
            "the .grad field to be populated for a non-leaf Tensor, use .retain_grad() on the "
            "non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure you access "
            "the leaf Tensor instead.",
            stacklevel=3,
        )


REFLECTED.update(
    {getattr(Tensor, f"__{name}__"): f"__r{name}__" for name in ("add", "sub", "mul", "truediv")}
)


def _operator(function_name: str, reflected: bool = False) -> Callable[[Any, Any], Any]:
    """The operator method that calls the public function of that name."""

    def operator(self: Any, other: Any) -> Any:
        if isinstance(other, (str, bytes, dict, set, type(None))):
            return NotImplemented
        if FOLLOWED and concerns(self, other):
            said = overridden(operator, (self, other), {})
            if said is not ABSENT:
                return said
        function = FUNCTIONS[function_name]
        try:
            return function(other, self) if reflected else function(self, other)
        except TypeError:
            if not reflected and has_a_say(other, _ANSWERS[function_name]):
                return NotImplemented
            raise

    return operator


# Functions of operators -> what Python asks of the right side where the left has no answer.
_ANSWERS = {
    "eq": "__eq__", "ne": "__ne__", "lt": "__gt__", "le": "__ge__", "gt": "__lt__", "ge": "__le__",
    "pow": "__rpow__", "floor_divide": "__rfloordiv__", "remainder": "__rmod__",
    "bitwise_and": "__rand__", "bitwise_or": "__ror__", "bitwise_xor": "__rxor__",
    "bitwise_left_shift": "__rlshift__", "bitwise_right_shift": "__rrshift__",
}  # fmt: skip


for _dunder, _function_name in {
    "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
    "pow": "pow", "floordiv": "floor_divide", "mod": "remainder",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}.items():  # fmt: skip
    setattr(Tensor, f"__{_dunder}__", _operator(_function_name))
    if _dunder not in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(Tensor, f"__r{_dunder}__", _operator(_function_name, reflected=True))
for _dunder, _function_name in {"abs": "abs", "invert": "bitwise_not"}.items():
    setattr(Tensor, f"__{_dunder}__", lambda self, name=_function_name: FUNCTIONS[name](self))


def _augmented(method: str, answer: str) -> Callable[[Any, Any], Any]:
    def operator(self: Any, other: Any) -> Any:
        try:
            return getattr(self, method)(other)
        except TypeError:
            if has_a_say(other, answer):
                return NotImplemented
            raise

    return operator


for _dunder, _method in {
    "iadd": "add_", "isub": "sub_", "imul": "mul_", "itruediv": "div_", "ipow": "pow_",
    "ifloordiv": "floor_divide_", "imod": "remainder_", "iand": "bitwise_and_",
    "ior": "bitwise_or_", "ixor": "bitwise_xor_",
    "ilshift": "bitwise_left_shift_", "irshift": "bitwise_right_shift_",
}.items():  # fmt: skip
    setattr(Tensor, f"__{_dunder}__", _augmented(_method, f"__r{_dunder[1:]}__"))


for _name, _function in list(vars(Tensor).items()):
    if getattr(_function, "__name__", "") in ("operator", "<lambda>"):
        _function.__name__ = _function.__qualname__ = _name


def adopt(cls: type, source: Any) -> Any:
    """A new tensor of class `cls` with the data of `source`."""
    tensor: Any = TensorBase.__new__(cls)
    tensor._data = source._data
    tensor._node = tensor._leaf = tensor._view = None
    tensor._changes = version = source._changes
    if isinstance(tensor._data, LazyValue) and version is not None and version is not INFERENCE:
        tensor._view = source._view  # writes to recorded values must find it
        register_view(tensor)
    return tensor


def _rebuild(
    cls: type, raw: Any, dtype: str, requires_grad: bool, attributes: Any, device: str = "cpu"
) -> Any:
    array = raw.astype(dt.by_name(dtype).numpy, copy=False)
    there = as_device(device)
    tensor = adopt(cls, wrap(array if there is CPU else transfer(array, there)))
    tensor.__dict__.update(attributes)
    return tensor.requires_grad_(requires_grad)


def _rebuild_sparse(
    kept: Any, parts: Any, is_coalesced: bool, cls: type, requires_grad: bool, attributes: Any
) -> Any:
    tensor = adopt(cls, conversion.sparse_of(kept, parts, is_coalesced))
    tensor.__dict__.update(attributes)
    return tensor.requires_grad_(requires_grad)


class _OfSparse:
    """Descriptor of a method for sparse tensors; the module of all of them is imported on first
    use.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        from .ops.sparse.deprecated_sparse import METHODS

        for name, method in METHODS.items():
            setattr(Tensor, name, method)
        return getattr(owner if tensor is None else tensor, self.name)


for _name in (
    "_coalesced_", "_indices", "_nnz", "_values", "ccol_indices", "coalesce", "col_indices",
    "crow_indices",
    "dense_dim", "indices", "is_coalesced", "resize_as_sparse_", "row_indices", "smm", "sparse_dim",
    "sparse_mask", "sparse_resize_", "sparse_resize_and_clear_", "sspaddmm", "to_dense",
    "to_sparse", "to_sparse_bsc", "to_sparse_bsr", "to_sparse_coo", "to_sparse_csc",
    "to_sparse_csr", "values",
):  # fmt: skip
    _later = _OfSparse()
    _later.__set_name__(Tensor, _name)
    setattr(Tensor, _name, _later)


wiring.wire(Tensor)
for _name, _function in METHODS.items():
    if not hasattr(Tensor, _name):
        setattr(Tensor, _name, _function)
for _name, _function in movement.PROPERTIES.items():
    setattr(Tensor, _name, property(_function))


# ---- what subclasses have for their own ----------------------------------------------------------

NOT_WRAPPED = frozenset((Tensor._base.__get__, Tensor.grad.__get__))  # type: ignore[attr-defined]

_UNASKED = frozenset((  # constructors, the tensor's own state, and methods that ask themselves
    "__getattribute__", "__hash__", "__init__", "__init_subclass__", "__new__", "__pos__",
    "__abs__", "__iter__", "__neg__", "__torch_function__", "_read", "_show",
    "_version_count", "as_subclass", "spec",
    "__matmul__", "__radd__", "__rdiv__", "__rmatmul__", "__rmul__", "__rsub__", "__rtruediv__",
    "_changes", "_data", "_leaf", "_node", "_view",
))  # fmt: skip


def silent() -> tuple[type, dict[str, Any]]:
    """Tensor, and its methods and properties, by name, that do not consult `__torch_function__`
    themselves.
    """
    members = {}
    operators = {_operator("eq").__code__, _augmented("add_", "").__code__}
    for name, value in {**vars(TensorBase), **vars(Tensor)}.items():
        if name in _UNASKED or isinstance(value, (staticmethod, classmethod)):
            continue
        is_method = name in METHODS or getattr(value, "__module__", "") == __name__
        if is_method and callable(value):
            if getattr(value, "__code__", None) not in operators:
                members[name] = value
        elif isinstance(value, _SizeOrCount) or (
            hasattr(type(value), "__set__") and not name.startswith("__")
        ):
            members[name] = value
    return Tensor, members


for _name in ("__getitem__", "__setitem__", "split", "where", "type"):
    METHODS[_name].__name__ = _name
for _name, _method in {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "mod": "remainder", "pow": "pow",
    "matmul": "matmul", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "ne": "ne",
    "rand": "bitwise_and", "ror": "bitwise_or", "rxor": "bitwise_xor",
}.items():  # fmt: skip
    named(vars(Tensor)[f"__{_name}__"], functools.partial(getattr, Tensor, _method))
for _method in ("add", "sub", "div"):  # what these call, which asks in the first call of a process
    named(getattr(arithmetic, f"_{_method}"), functools.partial(getattr, Tensor, _method))
