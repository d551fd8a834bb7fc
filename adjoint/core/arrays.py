"""NumPy arrays through NumPy's C API: signatures of calls, kernels called by pointer, ownership of
memory. Each function stands beside its twin in plain Python, which means the same.
`cython.compiled` is True where Cython compiles this file; interpreted, the name is a stand-in.

`cython.compiled` is True where Cython compiles this file; interpreted, the name is a stand-in.
"""

from __future__ import annotations

import ctypes
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from . import fork_safety
from .cython_shim import cython
from .device import device
from .dtype import dtype
from .errors import InvalidArgument
from .overrides import is_apart, never_asked
from .spec import Size
from .tensor_base import TensorBase

if TYPE_CHECKING:
    import cython  # what the compiler sees

    from .op import Op


ndarray = np.ndarray
T = TypeVar("T", bound=TensorBase)
if cython.compiled:
    import_array()

# ---- tensors -------------------------------------------------------------------------------------


def new_tensor(kind: type[T]) -> T:
    """A new tensor of this class with no fields set: `TensorBase.__new__(kind)`."""
    if cython.compiled:
        make = cython.cast(p_type, cython.cast(cython.p_void, TensorBase))
        return make.tp_new(cython.cast(cython.p_void, kind), (), cython.NULL)
    return TensorBase.__new__(kind)


# The classes of most tensors, which have no `__torch_function__` to consult.
_first: type = TensorBase
_second: type = TensorBase


def usual(kind: type) -> None:
    """Declare the class of most tensors; the one declared before stays a usual one, too."""
    global _first, _second
    _first, _second = kind, _first
    never_asked(kind)


# ---- signatures of calls -------------------------------------------------------------------------

# Types of arguments, besides tensors and numbers, that a signature can contain.
_VALUES = frozenset((str, dtype, device, object, type))
_SEQUENCES = (tuple, list, slice, Size)
_MOST = 480  # words of a signature
_DEEP = 4  # sequences in sequences


def signature(
    owner: object, args: Iterable[Any], grad: bool, arrays: list[Any],
    tensors: list[Any] | None = None, raw: bool = False, numbers: list[Any] | None = None,
    sizes: list[int] | None = None,
) -> bytes | tuple[Any, ...] | None:  # fmt: skip
    """Key of a call in the cache of executables: dtype, shape, strides and `requires_grad` of
    tensors, type and value of all other arguments. None if these do not determine how `owner` is
    computed.

    The tensors' arrays are appended to `arrays`, themselves to `tensors`, where that is a list.
    Where `raw`, arrays may stand for tensors that want no gradient. Where `numbers` is a list, of
    the ints and floats that are arguments themselves the value does not matter: they are appended.
    Nor do the sizes of arrays, and strides of those that are not row-major, where `sizes` is a
    list, to which they are appended; `numbers` are the floats then.
    """
    values: list[Any] = []
    if cython.compiled:
        words[0] = cython.cast(int64_t, cython.cast(cython.p_void, owner))
        words[1] = 2 if sizes is not None else numbers is not None
        count = _write(words, 2, args, grad, arrays, tensors, values, raw, numbers, sizes, 0)
        if count < 0:
            return None
        key = PyBytes_FromStringAndSize(cython.cast(cython.p_char, words), 8 * count)
        return (key, *values) if values else key
    parts: list[Any] = [id(owner), 2 if sizes is not None else numbers is not None]
    if not _describe(parts, args, grad, arrays, tensors, values, raw, numbers, sizes, 0):
        return None
    return (*parts, "values", *values)


def _write(  # type: ignore[no-untyped-def]
    words, count, args, grad, arrays, tensors, values, raw, numbers, sizes, depth
):
    """Append the words of `args` to `count` others; returns the new count, or -1 where there is no
    signature.
    """
    if depth > _DEEP:
        return -1
    for x in args:
        if count > _MOST:
            return -1
        if isinstance(x, TensorBase):
            handle = x
            data = handle._data
            if not PyArray_CheckExact(data):
                return -1
            if type(x) is not _first and type(x) is not _second and is_apart(x):
                return -1
            requires_grad = grad and handle._node is not None
            count = _write_array(words, count, data, requires_grad, sizes)
            if count < 0:
                return -1
            arrays.append(data)
            if tensors is not None:
                tensors.append(x)
        elif raw and PyArray_CheckExact(x):
            count = _write_array(words, count, x, False, sizes)
            if count < 0:
                return -1
            arrays.append(x)
        elif numbers is not None and (type(x) is float or (type(x) is int and sizes is None)):
            words[count] = 9 if type(x) is float else 10
            count += 1
            numbers.append(x)
        elif type(x) is float:
            words[count] = 1
            number = x
            memcpy(cython.address(words[count + 1]), cython.address(number), 8)
            count += 2
        elif type(x) is int:
            whole = PyLong_AsLongLongAndOverflow(x, cython.address(overflow))
            if overflow:
                return -1
            words[count] = 2
            words[count + 1] = whole
            count += 2
        elif x is None or x is True or x is False or x is Ellipsis:
            words[count] = 3
            words[count + 1] = cython.cast(int64_t, cython.cast(cython.p_void, x))
            count += 2
        elif type(x) is tuple or type(x) is list or type(x) is Size:
            words[count] = 4 if type(x) is tuple else 5 if type(x) is list else 12
            words[count + 1] = len(x)
            count = _write(
                words, count + 2, x, grad, arrays, tensors, values, raw, None, sizes, depth + 1
            )
            if count < 0:
                return -1
        elif type(x) is slice:
            words[count] = 6
            part = (x.start, x.stop, x.step)
            count = _write(
                words, count + 1, part, grad, arrays, tensors, values, raw, None, sizes, depth + 1
            )
            if count < 0:
                return -1
        elif type(x) in _VALUES:
            words[count] = 7
            count += 1
            values.append(x)
        else:
            return -1
    return count


def _write_array(words, count, data, requires_grad, sizes):  # type: ignore[no-untyped-def]
    """Append the words of an array; -1 for one that kernels do not accept."""
    nd = PyArray_NDIM(data)
    kind = PyArray_TYPE(data)
    flags = PyArray_FLAGS(data)
    if nd > 8 or 17 <= kind <= 20 or not flags & NPY_ARRAY_ALIGNED or PyArray_ISBYTESWAPPED(data):
        return -1
    row_major = (flags & NPY_ARRAY_C_CONTIGUOUS) != 0
    words[count] = 8 + 16 * (kind + 4096 * (nd + 16 * (2 * requires_grad + row_major)))
    count += 1
    dims = PyArray_DIMS(data)
    if sizes is not None:
        for i in range(nd):
            sizes.append(dims[i])
        if not row_major:
            strides = PyArray_STRIDES(data)
            for i in range(nd):
                sizes.append(strides[i])
        return count
    for i in range(nd):
        words[count + i] = dims[i]
    count += nd
    if not row_major:
        strides = PyArray_STRIDES(data)
        for i in range(nd):
            words[count + i] = strides[i]
        count += nd
    return count


def _describe(
    parts: list[Any], args: Iterable[Any], grad: bool, arrays: list[Any],
    tensors: list[Any] | None, values: list[Any], raw: bool, numbers: list[Any] | None,
    sizes: list[int] | None, depth: int,
) -> bool:  # fmt: skip
    """Interpreted twin of `_write`."""
    if depth > _DEEP:
        return False
    for x in args:
        kind = type(x)
        if len(parts) > _MOST:
            return False
        if isinstance(x, TensorBase):
            data = getattr(x, "_data", None)
            if type(data) is not ndarray or not _is_taken(data):
                return False
            if kind is not _first and kind is not _second and is_apart(x):
                return False
            parts.append((*_described(data, sizes), grad and x._node is not None))
            arrays.append(data)
            if tensors is not None:
                tensors.append(x)
        elif kind is ndarray and raw:
            if not _is_taken(x):
                return False
            parts.append((*_described(x, sizes), False))
            arrays.append(x)
        elif numbers is not None and (kind is float or (kind is int and sizes is None)):
            parts.append(9 if kind is float else 10)
            numbers.append(x)
        elif kind is float:
            parts += (1, x.hex())
        elif kind is int:
            if not -(1 << 63) <= x < 1 << 63:
                return False
            parts += (2, x)
        elif x is None or x is True or x is False or x is Ellipsis:
            parts += (3, id(x))
        elif kind in _SEQUENCES:
            items = (x.start, x.stop, x.step) if kind is slice else x
            parts += (_SEQUENCES.index(kind), len(items))
            if not _describe(
                parts, items, grad, arrays, tensors, values, raw, None, sizes, depth + 1
            ):
                return False
        elif kind in _VALUES:
            parts.append(7)
            values.append(x)
        else:
            return False
    return True


def _described(data: np.ndarray, sizes: list[int] | None) -> tuple[Any, ...]:
    """The description of an array that `_write_array` writes."""
    row_major = data.flags.c_contiguous
    if sizes is None:
        return data.dtype.num, data.shape, None if row_major else data.strides
    sizes += data.shape if row_major else (*data.shape, *data.strides)
    return data.dtype.num, data.ndim, row_major


def _is_taken(data: np.ndarray) -> bool:
    numeric = data.dtype.kind not in "OSUV" or data.dtype.num > 100  # those of ml_dtypes
    return bool(data.ndim <= 8 and numeric and data.flags.aligned and data.dtype.isnative)


# ---- kernels called by pointer -------------------------------------------------------------------

_LONG = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_SHORT = ctypes.PYFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class PhiloxState:
    """State of a random generator: a seed, and the count of draws so far."""

    __slots__ = ("draws", "key")

    key: int  # the seed, in [0, 2**64)
    draws: int  # the number of the next one

    def next_draw(self) -> tuple[int, int]:
        """Seed and number of a new draw."""
        if cython.compiled:  # nobody else has the GIL meanwhile
            draw = self.draws
            self.draws = draw + 1
            return self.key, draw
        with _drawing:
            draw = self.draws
            self.draws = draw + 1
        return self.key, draw


_drawing = fork_safety.lock()


class CachedLaunch:
    """A kernel's machine code with all that a call needs for arrays of certain dtypes, shapes and
    strides.

    The code is `void(int64 begin, int64 end, int64 *words)` and does the chunks from begin to end.
    Its words are `before`, the addresses of the elements of `views` and of the outputs, `after`,
    and one in which it refuses the arrays: then the result is None. A view is an input's number,
    and how many bytes from its first element; input -1 is the words `after`. `pool` is the address
    of what shares the chunks among threads, and that of its state, or None; `quick`: so little that
    the GIL is kept.

    With `spans`, the last view is written (there are no outputs), and arrays are refused where that
    may not be: of each view there are the bytes before and after its first element, and whether it
    may be the memory that is written, each element being read before it is.
    """

    __slots__ = (
        "_address", "_before", "_chunks", "_count", "_ordered", "_outputs", "_pointers", "_quick",
        "_run",
        "_shapes", "_spans", "_state", "_total", "_types", "_views", "_words", "given", "keeps",
        "outputs", "pack", "rest", "views",
    )  # fmt: skip

    given: tuple[Any, ...]  # dtype, shape and strides of each input
    outputs: tuple[Any, ...]  # shape, dtype and strides of each; None: all are row-major
    views: tuple[Any, ...]
    rest: tuple[Any, ...]  # the other arguments
    keeps: Any  # owners of memory that the words point to
    pack: Any  # a function from other numbers to the words `after`; None where there are none

    def __init__(
        self, address: int, chunks: int, given: Sequence[Any], outputs: Sequence[Any],
        before: bytes, after: bytes, pool: tuple[int, int] | None, quick: bool,
        views: Sequence[Any], spans: Sequence[tuple[int, int, bool]] = (),
    ) -> None:  # fmt: skip
        self.given = tuple([(x.dtype, x.shape, x.strides) for x in given])
        self.outputs = tuple(
            [(tuple(s), np.dtype(kind), *(more or (None,))) for s, kind, *more in outputs]
        )
        self.views = tuple(views)
        self.rest = address, chunks, before, after, pool, quick
        self.keeps = self.pack = None
        self._address = address
        self._chunks = chunks
        self._quick = bool(quick)
        self._run, self._state = pool or (0, 0)
        self._count = len(self.given)
        self._pointers = len(self.views)
        self._outputs = len(self.outputs)
        self._before = len(before) // 8
        self._total = (len(before) + len(after)) // 8 + self._pointers + self._outputs
        self._words = bytearray(
            before + bytes(8 * (self._pointers + self._outputs)) + after + bytes(8)
        )
        self._views = _words_of([n for view in self.views for n in view])
        self._spans = _words_of([n for span in spans for n in span])
        self._ordered = any(steps is not None for *_, steps in self.outputs)
        words = [(len(shape), *shape, *(steps or ())) for shape, _, steps in self.outputs]
        self._shapes = _words_of([n for each in words for n in each])
        self._types = _words_of([kind.num for _, kind, _ in self.outputs])

    def rebased(self, given: Sequence[Any], views: Sequence[Any]) -> CachedLaunch | None:
        """A copy of the kernel for arrays like `given`, read through these views; None if it reads
        views already.
        """
        if self.views != tuple([(n, 0) for n in range(self._count)]) or len(views) != self._count:
            return None
        address, chunks, before, after, pool, quick = self.rest
        after = bytes(self._words[-8 - len(after) : -8])
        return CachedLaunch(address, chunks, given, self.outputs, before, after, pool, quick, views)

    def words_behind(self) -> bytes:
        """The words after the addresses, with their current numbers."""
        return bytes(self._words[len(self._words) - 8 - len(self.rest[3]) :])

    def numbered(self, numbers: Iterable[Any]) -> CachedLaunch:
        """A copy with the words for other numbers."""
        after = self.pack(*numbers)
        other = CachedLaunch.__new__(CachedLaunch)
        other.rest = self.rest
        other.given = self.given
        other.outputs = self.outputs
        other.views = self.views
        other.keeps = self.keeps
        other.pack = self.pack
        other._address = self._address
        other._chunks = self._chunks
        other._quick = self._quick
        other._run = self._run
        other._state = self._state
        other._count = self._count
        other._pointers = self._pointers
        other._outputs = self._outputs
        other._before = self._before
        other._total = self._total
        other._views = self._views
        other._spans = self._spans
        other._shapes = self._shapes
        other._ordered = self._ordered
        other._types = self._types
        words = bytearray(self._words)
        if cython.compiled:
            behind = PyByteArray_AS_STRING(words) + len(words) - 8 - len(after)
            memcpy(behind, PyBytes_AS_STRING(after), len(after))
        else:
            words[-8 - len(after) : -8] = after
        other._words = words
        return other

    def __call__(self, *operands: Any) -> Any:
        """The result for arrays; numbers among the operands are ignored. None for arrays other than
        it was made for.
        """
        arrays = [x for x in operands if type(x) is ndarray]
        if len(arrays) != self._count:
            return None
        for x, (kind, shape, strides) in zip(arrays, self.given):  # noqa: B905
            if x.dtype is not kind or x.shape != shape or x.strides != strides:
                return None
        return self.launch(arrays)

    def resized(
        self, given: Sequence[Any], shapes: Sequence[tuple[int, ...]], chunks: int, before: bytes,
        after: bytes, pool: tuple[int, int] | None, quick: bool,
    ) -> CachedLaunch:  # fmt: skip
        """A copy for row-major outputs of other shapes, of as many dimensions, and inputs like
        `given`.
        """
        other = CachedLaunch.__new__(CachedLaunch)
        other.rest = self._address, chunks, before, after, pool, quick
        other.given = tuple([(x.dtype, x.shape, x.strides) for x in given])
        other.outputs = tuple(
            [(s, each[1], None) for s, each in zip(shapes, self.outputs)]  # noqa: B905
        )
        other.views = self.views
        other.keeps = self.keeps
        other.pack = self.pack
        other._address = self._address
        other._chunks = chunks
        other._quick = quick
        other._run, other._state = pool or (0, 0)
        other._count = self._count
        other._pointers = self._pointers
        other._outputs = self._outputs
        other._before = self._before
        other._total = self._total
        other._views = self._views
        other._spans = self._spans
        other._types = self._types
        other._ordered = False
        other._words = bytearray(
            before + bytes(8 * (self._pointers + self._outputs)) + after + bytes(8)
        )
        other._shapes = _words_of([n for shape in shapes for n in (len(shape), *shape)])
        return other

    def launch(self, arrays: list[Any], stream: PhiloxState | None = None) -> Any:
        """The result (an array, or a tuple of several) for arrays known to have the right dtypes,
        shapes and strides; None where they are refused. With a `stream`, seed and number of a draw
        replace the last two words of `after`.
        """
        if cython.compiled:
            return self._call(arrays, stream)
        results = tuple(
            [np.ndarray(shape, kind, strides=steps) for shape, kind, steps in self.outputs]
        )
        code = bytearray(self._words)
        words = np.frombuffer(code, np.int64)
        end = self._before + len(self.views) + len(results)
        behind = words.ctypes.data + 8 * end
        places = [
            (arrays[n].ctypes.data if n >= 0 else behind) + offset for n, offset in self.views
        ]
        places += [y.ctypes.data for y in results]
        if self._spans and not self._may_write(places, arrays[self.views[-1][0]]):
            return None
        words[self._before : end] = places
        if stream is not None:
            words[-3:-1] = np.array(stream.next_draw(), np.uint64).view(np.int64)
        start = words.ctypes.data
        pool = (self._run, self._state) if self._run else None
        _call(self._address, self._chunks, start, pool, self._quick)
        if words[-1]:
            return None
        return results[0] if len(results) == 1 else results

    def _may_write(self, places: list[int], written: np.ndarray) -> bool:
        """Whether the written view overlaps none that is read, and is writable: twin of the check
        in `_call`.
        """
        spans = np.frombuffer(self._spans, np.int64).reshape(-1, 3).tolist()
        *read, (low, high, _) = spans
        place = places[-1]
        for other, (begin, end, same) in zip(places, read):  # noqa: B905
            meets = other + begin < place + high and place + low < other + end
            if meets and not (same and other == place):
                return False
        return bool(written.flags.writeable)

    def _call(self, arrays, stream):  # type: ignore[no-untyped-def]
        """`launch` through NumPy's C API."""
        shape = cython.cast(p_int64, PyBytes_AS_STRING(self._shapes))
        types = cython.cast(p_int64, PyBytes_AS_STRING(self._types))
        result = None
        several = None
        if self._outputs == 1:
            result = _made(shape, types[0], self._ordered)
        else:
            several = []
            for k in range(self._outputs):
                several.append(_made(shape, types[k], self._ordered))
                shape += 1 + (2 if self._ordered else 1) * shape[0]
        owned = self._words if self._quick else bytearray(self._words)
        # From here on no Python runs until the code has, so that `owned` is nobody else's.
        words = cython.cast(p_int64, PyByteArray_AS_STRING(owned))
        view = cython.cast(p_int64, PyBytes_AS_STRING(self._views))
        at = self._before
        behind = cython.cast(int64_t, words) + 8 * (at + self._pointers + self._outputs)
        for k in range(self._pointers):
            if view[2 * k] < 0:
                words[at] = behind + view[2 * k + 1]
            else:
                item = arrays[view[2 * k]]
                words[at] = cython.cast(int64_t, PyArray_DATA(item)) + view[2 * k + 1]
            at += 1
        if several is None:
            words[at] = cython.cast(int64_t, PyArray_DATA(result))
        else:
            for k in range(self._outputs):
                item = several[k]
                words[at + k] = cython.cast(int64_t, PyArray_DATA(item))
        if PyBytes_GET_SIZE(self._spans):
            item = arrays[view[2 * self._pointers - 2]]
            if not PyArray_FLAGS(item) & NPY_ARRAY_WRITEABLE:
                return None
            span = cython.cast(p_int64, PyBytes_AS_STRING(self._spans))
            place = words[at - 1]
            low = place + span[3 * self._pointers - 3]
            high = place + span[3 * self._pointers - 2]
            for k in range(self._pointers - 1):
                other = words[self._before + k]
                meets = other + span[3 * k] < high and low < other + span[3 * k + 1]
                if meets and (other != place or not span[3 * k + 2]):
                    return None
        if stream is not None:
            words[self._total - 2] = cython.cast(int64_t, stream.key)
            words[self._total - 1] = cython.cast(int64_t, stream.draws)
            stream.draws += 1
        words[self._total] = 0
        code = cython.cast(kernel_t, cython.cast(cython.p_void, self._address))
        chunks = self._chunks
        if self._quick:
            code(0, chunks, words)
        elif self._run:
            run = cython.cast(run_t, cython.cast(cython.p_void, self._run))
            state = cython.cast(cython.p_void, self._state)
            with cython.nogil:
                run(state, cython.cast(cython.p_void, code), words, chunks)
        else:
            with cython.nogil:
                code(0, chunks, words)
        if words[self._total]:
            return None
        return result if several is None else tuple(several)


def _words_of(numbers: list[int]) -> bytes:
    """The numbers as int64 words."""
    return array("q", numbers).tobytes()


def _made(shape, kind, ordered):  # type: ignore[no-untyped-def]
    """A new array; `shape` points to the number of dimensions, the sizes and, if `ordered`, the
    strides.
    """
    if not ordered:
        return PyArray_SimpleNew(shape[0], shape + 1, kind)
    steps = shape + 1 + shape[0]
    return PyArray_New(ndarray, shape[0], shape + 1, kind, steps, cython.NULL, 0, 0, None)


class CachedView:
    """Makes views of arrays of a certain dtype, shape and strides, laid out as `view` is in the
    array `of`.

    `compute` is what made that view: it makes it where this file is interpreted.
    """

    __slots__ = ("_layout", "_nd", "_offset", "compute")

    def __init__(self, view: np.ndarray, of: np.ndarray, compute: Any) -> None:
        self.compute = compute
        self._nd = view.ndim
        self._offset = address(view) - address(of)
        self._layout = np.array([*view.shape, *view.strides], np.int64).tobytes()

    def view(self, array: np.ndarray) -> np.ndarray:
        """The view of an array of that dtype, shape and strides."""
        if cython.compiled:
            layout = cython.cast(p_npy_intp, PyBytes_AS_STRING(self._layout))
            kind = cython.cast(c_dtype, PyArray_DESCR(array))
            Py_INCREF(kind)
            place = cython.cast(cython.p_char, PyArray_DATA(array)) + self._offset
            view = PyArray_NewFromDescr(
                ndarray, kind, self._nd, layout, layout + self._nd,
                cython.cast(cython.p_void, place), PyArray_FLAGS(array) & NPY_ARRAY_WRITEABLE,
                None,
            )  # fmt: skip
            Py_INCREF(array)
            PyArray_SetBaseObject(view, array)
            return view
        return self.compute(array)


class CachedViews:
    """Makes several views of such arrays, laid out as `views`, each by one of the ops `singles`."""

    __slots__ = ("_each", "compute", "singles")

    def __init__(
        self, views: Iterable[np.ndarray], of: np.ndarray,
        compute: Callable[[np.ndarray], Iterable[np.ndarray]], singles: Sequence[Op],
    ) -> None:  # fmt: skip
        self.compute = compute
        self.singles = singles
        self._each = [CachedView(view, of, None) for view in views]

    def __call__(self, array: np.ndarray) -> tuple[np.ndarray, ...]:
        """The views of an array, as a tuple."""
        return tuple(self.views(array))

    def views(self, array: np.ndarray) -> list[np.ndarray]:
        """The views of an array, as a list."""
        if not cython.compiled:
            return list(self.compute(array))
        result = []
        for k in range(len(self._each)):
            each = self._each[k]
            result.append(each.view(array))
        return result


def call(
    code: int, chunks: int, words: bytes | int, pool: tuple[int, int] | None, quick: bool
) -> None:
    """Run machine code as a `CachedLaunch` does, on words, or on words at an address, which nobody
    else may change meanwhile.
    """
    if cython.compiled:
        if isinstance(words, bytes):
            place = cython.cast(p_int64, PyBytes_AS_STRING(words))
        else:
            place = cython.cast(p_int64, cython.cast(int64_t, words))
        kernel = cython.cast(kernel_t, cython.cast(cython.p_void, code))
        if quick:
            kernel(0, chunks, place)
            return
        at, state = pool or (0, 0)
        if at:
            run = cython.cast(run_t, cython.cast(cython.p_void, at))
            with cython.nogil:
                run(
                    cython.cast(cython.p_void, state), cython.cast(cython.p_void, kernel),
                    place, chunks,
                )  # fmt: skip
        else:
            with cython.nogil:
                kernel(0, chunks, place)
        return
    if isinstance(words, bytes):
        own = np.frombuffer(bytearray(words), np.uint8)
        _call(code, chunks, own.ctypes.data, pool, quick)
    else:
        _call(code, chunks, words, pool, quick)


def _call(code: int, chunks: int, start: int, pool: tuple[int, int] | None, quick: bool) -> None:
    """Interpreted twin of a call by pointer."""
    if quick:
        _SHORT(code)(0, chunks, start)
    elif pool:
        _RUN(pool[0])(pool[1], code, start, chunks)
    else:
        _LONG(code)(0, chunks, start)


def address(array: np.ndarray) -> int:
    """The address of an array's first element."""
    if cython.compiled:
        return cython.cast(int64_t, PyArray_DATA(array))
    return int(array.ctypes.data)


def addresses(arrays: tuple[Any, ...] | list[Any]) -> bytes:
    """The addresses of the arrays' first elements, as int64 words."""
    if cython.compiled:
        count = len(arrays)
        words = PyBytes_FromStringAndSize(cython.NULL, 8 * count)
        place = cython.cast(p_int64, PyBytes_AS_STRING(words))
        for k in range(count):
            place[k] = cython.cast(int64_t, PyArray_DATA(arrays[k]))
        return words
    return np.array([x.ctypes.data for x in arrays], np.int64).tobytes()


def array_at(place: int, shape: Sequence[int], kind: Any, strides: Sequence[int]) -> np.ndarray:
    """An array over memory at an address, with strides that are not negative. The caller must keep
    the memory alive.
    """
    end = sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + kind.itemsize
    return np.ndarray(shape, kind, (ctypes.c_char * end).from_address(place), 0, strides)


def write_rows(
    columns: tuple[tuple[Any, ...], ...], kinds: tuple[Any, ...], written: tuple[int, ...],
    rows: np.ndarray, length: int, first: int,
) -> None:  # fmt: skip
    """Describe the arrays of each row of `columns` in a row of the int64 table `rows`: at `length`
    the number of elements of each, and from `first` on the addresses of all, followed by those of
    the arrays `written` again.

    They have -1 elements unless they are of those dtypes, of one shape, all row-major or all
    column-major, and may be written if they are to be.
    """
    for column in columns:
        if len(column) != len(columns[0]) or len(column) > len(rows):
            raise InvalidArgument(f"write_rows: a column of {len(column)} rows, not as the others")
    if cython.compiled:
        table = cython.cast(p_int64, PyArray_DATA(rows))
        width = PyArray_DIMS(rows)[1]
        count = len(columns)
        nd = 0
        dims = cython.NULL
        for i in range(len(columns[0])):
            row = table + i * width
            size = -1
            order = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS
            for k in range(count):
                x = cython.cast(c_ndarray, cython.cast(tuple, columns[k])[i])
                if not PyArray_CheckExact(x):
                    size = -1
                    break
                order &= PyArray_FLAGS(x)
                if order == 0 or cython.cast(object, PyArray_DESCR(x)) is not kinds[k]:
                    size = -1
                    break
                if k == 0:
                    nd = PyArray_NDIM(x)
                    dims = PyArray_DIMS(x)
                    size = PyArray_SIZE(x)
                elif PyArray_NDIM(x) != nd or memcmp(dims, PyArray_DIMS(x), 8 * nd) != 0:
                    size = -1
                    break
                row[first + k] = cython.cast(int64_t, PyArray_DATA(x))
            if size >= 0:
                for k in range(len(written)):
                    n = written[k]
                    x = cython.cast(c_ndarray, cython.cast(tuple, columns[n])[i])
                    if not PyArray_FLAGS(x) & NPY_ARRAY_WRITEABLE:
                        size = -1
                    row[first + count + k] = cython.cast(int64_t, PyArray_DATA(x))
            row[length] = size
        return
    for i, arrays in enumerate(zip(*columns)):  # noqa: B905
        rows[i, length] = -1
        if _are_alike(arrays, kinds) and _may_be_written([arrays[n] for n in written]):
            rows[i, length] = arrays[0].size
            chosen = [*arrays, *[arrays[n] for n in written]]
            rows[i, first : first + len(chosen)] = [x.ctypes.data for x in chosen]


def _may_be_written(arrays: Iterable[np.ndarray]) -> bool:
    return all(x.flags.writeable for x in arrays)


def _are_alike(arrays: Sequence[np.ndarray], kinds: tuple[Any, ...]) -> bool:
    if any(type(x) is not ndarray or x.shape != arrays[0].shape for x in arrays):
        return False
    if any(x.dtype is not kind for x, kind in zip(arrays, kinds)):  # noqa: B905
        return False
    return all(x.flags.c_contiguous for x in arrays) or all(x.flags.f_contiguous for x in arrays)


def copy_memory(to: np.ndarray, source: np.ndarray | None) -> bool:
    """Copy the elements of `source` (or zeros, if it is None) into `to` as one block of memory;
    False, with nothing done, unless both are row-major and alike, and `to` is writable.
    """
    if cython.compiled:
        required = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | NPY_ARRAY_WRITEABLE
        if (PyArray_FLAGS(to) & required) != required:
            return False
        size = PyArray_NBYTES(to)
        if source is None:
            memset(PyArray_DATA(to), 0, size)
            return True
        nd = PyArray_NDIM(to)
        if (
            PyArray_TYPE(source) != PyArray_TYPE(to)
            or PyArray_NDIM(source) != nd
            or not PyArray_FLAGS(source) & NPY_ARRAY_C_CONTIGUOUS
            or memcmp(PyArray_DIMS(to), PyArray_DIMS(source), 8 * nd) != 0
        ):
            return False
        memmove(PyArray_DATA(to), PyArray_DATA(source), size)
        return True
    if not to.flags.carray:
        return False
    if source is None:
        to.fill(0)
        return True
    if source.dtype.num != to.dtype.num or source.shape != to.shape:
        return False
    if not source.flags.c_contiguous:
        return False
    to[...] = source
    return True


# ---- who owns memory -----------------------------------------------------------------------------


def references(tensor: TensorBase) -> int:
    """Reference counts of `tensor` (a local of the caller), of its array, and of that array's base,
    packed into one number: equal numbers mean equal counts. Memory that no array owns counts as
    held by others.

    What is counted where nobody else holds it depends on the caller, and on whether it is compiled:
    each caller has a function that counts it for one of its own variables.
    """
    if cython.compiled:
        handle = tensor
        data = handle._data
        count = Py_REFCNT(tensor) + (1 << 20) * Py_REFCNT(data)
        if PyArray_CheckExact(data) and PyArray_BASE(data) == cython.NULL:
            return count
        base = data.base
        if base is None:
            return count
        owned = type(base) is type(data) and base.base is None and base.size == data.size
        return count + (1 << 40) * (Py_REFCNT(base) if owned else 1000)
    data = tensor._data
    count = sys.getrefcount(tensor) + (1 << 20) * sys.getrefcount(data)
    base = data.base
    if base is None:
        return count
    owned = type(base) is type(data) and base.base is None and base.size == data.size
    return count + (1 << 40) * (sys.getrefcount(base) if owned else 1000)


def identity(it: object) -> int:
    """A hash of `it` as itself, whatever it is equal to."""
    if cython.compiled:
        return cython.cast(int64_t, cython.cast(cython.p_void, it)) >> 4
    return id(it) >> 4


# ---- objects of the C API ------------------------------------------------------------------------

_ABI = {"set": 304, "get": 305}  # places of handlers in NumPy's table of C functions, by its ABI
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def keep(it: object) -> None:
    """Make an object immortal, even when the interpreter ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(it))


def capsule(place: int, name: bytes) -> object:
    """A PyCapsule around an address; the caller keeps the name alive."""
    return _new(place, name, None)


def capsule_address(holder: object, name: bytes | None) -> int:
    """The address in a PyCapsule.

    Errors: ValueError where the capsule is none of that name.
    """
    return int(_pointer(holder, name))


def memory_handler() -> object:
    """The capsule of NumPy's memory allocator in the current context."""
    return _handlers(ctypes.PYFUNCTYPE(ctypes.py_object), "get")()


def set_memory_handler(handler: object) -> None:
    """Set NumPy's memory allocator in the current context."""
    _handlers(ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object), "set")(handler)


def _handlers(kind: Any, name: str) -> Any:
    table = capsule_address(np._core._multiarray_umath._ARRAY_API, None)  # type: ignore[attr-defined]
    return kind(ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[_ABI[name]])


def inner_loop(ufunc: np.ufunc, types: str) -> tuple[int, int] | None:
    """The addresses of a ufunc's C loop for some types and of its data; None where the object is
    not laid out as it is known to be.
    """
    head = object.__basicsize__  # behind which a PyUFuncObject has these fields
    counts = [ctypes.c_int.from_address(id(ufunc) + head + 4 * k).value for k in range(3)]
    if counts != [ufunc.nin, ufunc.nout, ufunc.nargs] or types not in ufunc.types:
        return None
    functions, data = (
        ctypes.c_void_p.from_address(id(ufunc) + head + 16 + 8 * k).value for k in range(2)
    )
    if not functions or ctypes.c_int.from_address(id(ufunc) + head + 32).value != ufunc.ntypes:
        return None
    place = 8 * ufunc.types.index(types)
    loop = ctypes.c_void_p.from_address(functions + place).value
    own = ctypes.c_void_p.from_address(data + place).value if data else 0
    return None if loop is None else (loop, own or 0)
