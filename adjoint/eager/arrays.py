"""NumPy arrays through NumPy's C API: what a call is known by, kernels called by pointer, who owns
memory. Each function stands beside its twin of plain Python, which means the same.

`cython.compiled` is True where Cython compiles this file; interpreted, the name is a stand-in.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.device import device
from ..core.dtype import dtype
from ..core.errors import InvalidArgument
from ..core.interpreted import cython
from ..core.overrides import is_apart, never_asked
from ..core.tensor_base import TensorBase

if TYPE_CHECKING:
    import cython  # what the compiler sees


ndarray = np.ndarray
if cython.compiled:
    import_array()

# ---- tensors -------------------------------------------------------------------------------------


def new_tensor(kind: type) -> Any:
    """A handle of this class, of which nothing is set: `TensorBase.__new__(kind)`."""
    if cython.compiled:
        make = cython.cast(p_type, cython.cast(cython.p_void, TensorBase))
        return make.tp_new(cython.cast(cython.p_void, kind), (), cython.NULL)
    return TensorBase.__new__(kind)


# The two classes that most tensors are of: their objects are never asked what a call does.
_first: type = TensorBase
_second: type = TensorBase


def usual(kind: type) -> None:
    """Tensors are of this class mostly, or of the one before."""
    global _first, _second
    _first, _second = kind, _first
    never_asked(kind)


# ---- what a call is known by ---------------------------------------------------------------------

# Besides tensors and numbers, what may be among the arguments of a call that is known.
_VALUES = frozenset((str, dtype, device, object, type))
_SEQUENCES = (tuple, list, slice)
_MOST = 480  # words of a signature
_DEEP = 4  # sequences in sequences


def signature(
    owner: Any, args: Any, grad: bool, arrays: list[Any], tensors: Any = None, raw: bool = False,
    numbers: Any = None,
) -> Any:  # fmt: skip
    """What decides how `owner` is computed for `args`: of tensors dtype, shape, strides and whether
    a gradient is wanted, of all else type and value; None where there is more to it.

    The tensors' arrays are appended to `arrays`, themselves to `tensors`, where that is a list.
    Where `raw`, arrays may stand for tensors that want no gradient. Where `numbers` is a list, of
    the ints and floats that are arguments themselves the value does not matter: they are appended.
    """
    values: list[Any] = []
    if cython.compiled:
        words[0] = cython.cast(int64_t, cython.cast(cython.p_void, owner))
        words[1] = numbers is not None
        count = _write(words, 2, args, grad, arrays, tensors, values, raw, numbers, 0)
        if count < 0:
            return None
        key = PyBytes_FromStringAndSize(cython.cast(cython.p_char, words), 8 * count)
        return (key, *values) if values else key
    parts: list[Any] = [id(owner), numbers is not None]
    if not _describe(parts, args, grad, arrays, tensors, values, raw, numbers, 0):
        return None
    return (*parts, "values", *values)


def _write(  # type: ignore[no-untyped-def]
    words, count, args, grad, arrays, tensors, values, raw, numbers, depth
):
    """Write the words of `args` behind `count` others; how many there are then, -1: too much."""
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
            wanted = grad and handle._node is not None
            count = _write_array(words, count, data, wanted)
            if count < 0:
                return -1
            arrays.append(data)
            if tensors is not None:
                tensors.append(x)
        elif raw and PyArray_CheckExact(x):
            count = _write_array(words, count, x, False)
            if count < 0:
                return -1
            arrays.append(x)
        elif numbers is not None and (type(x) is float or type(x) is int):
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
        elif type(x) is tuple or type(x) is list:
            words[count] = 4 if type(x) is tuple else 5
            words[count + 1] = len(x)
            count = _write(words, count + 2, x, grad, arrays, tensors, values, raw, None, depth + 1)
            if count < 0:
                return -1
        elif type(x) is slice:
            words[count] = 6
            part = (x.start, x.stop, x.step)
            count = _write(
                words, count + 1, part, grad, arrays, tensors, values, raw, None, depth + 1
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


def _write_array(words, count, data, wanted):  # type: ignore[no-untyped-def]
    """Write the words of an array; -1 for one that kernels do not take."""
    nd = PyArray_NDIM(data)
    kind = PyArray_TYPE(data)
    flags = PyArray_FLAGS(data)
    if nd > 8 or 17 <= kind <= 20 or not flags & NPY_ARRAY_ALIGNED or PyArray_ISBYTESWAPPED(data):
        return -1
    row_major = (flags & NPY_ARRAY_C_CONTIGUOUS) != 0
    words[count] = 8 + 16 * (kind + 4096 * (nd + 16 * (2 * wanted + row_major)))
    count += 1
    dims = PyArray_DIMS(data)
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
    parts: list[Any], args: Any, grad: bool, arrays: list[Any], tensors: Any,
    values: list[Any], raw: bool, numbers: Any, depth: int,
) -> bool:  # fmt: skip
    """The twin of `_write`."""
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
            flags = data.flags
            strides = None if flags.c_contiguous else data.strides
            parts.append((data.dtype.num, data.shape, strides, grad and x._node is not None))
            arrays.append(data)
            if tensors is not None:
                tensors.append(x)
        elif kind is ndarray and raw:
            if not _is_taken(x):
                return False
            parts.append((x.dtype.num, x.shape, None if x.flags.c_contiguous else x.strides, False))
            arrays.append(x)
        elif numbers is not None and (kind is float or kind is int):
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
            if not _describe(parts, items, grad, arrays, tensors, values, raw, None, depth + 1):
                return False
        elif kind in _VALUES:
            parts.append(7)
            values.append(x)
        else:
            return False
    return True


def _is_taken(data: Any) -> bool:
    numeric = data.dtype.kind not in "OSUV" or data.dtype.num > 100  # those of ml_dtypes
    return bool(data.ndim <= 8 and numeric and data.flags.aligned and data.dtype.isnative)


# ---- kernels called by pointer -------------------------------------------------------------------

_LONG = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_SHORT = ctypes.PYFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class Stream:
    """A seed, and how many draws were taken since: the state of a generator."""

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


_drawing = threading.Lock()


class Launcher:
    """Machine code, with all that a call of it needs for arrays of certain dtypes, shapes, strides.

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
    keeps: Any  # what owns memory that the words point to
    pack: Any  # what gives the words `after` for other numbers, where there are such

    def __init__(
        self, address: int, chunks: int, given: Sequence[Any], outputs: Sequence[Any],
        before: bytes, after: bytes, pool: Any, quick: bool, views: Sequence[Any],
        spans: Sequence[tuple[int, int, bool]] = (),
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
        self._views = np.array(self.views, np.int64).reshape(-1, 2).tobytes()
        self._spans = np.array(spans, np.int64).tobytes()
        self._ordered = any(steps is not None for *_, steps in self.outputs)
        words = [(len(shape), *shape, *(steps or ())) for shape, _, steps in self.outputs]
        self._shapes = np.array([n for each in words for n in each], np.int64).tobytes()
        self._types = np.array([kind.num for _, kind, _ in self.outputs], np.int64).tobytes()

    def rebased(self, given: Sequence[Any], views: Sequence[Any]) -> Launcher | None:
        """The same for arrays like `given`, of which it gets these views; None where it takes views
        itself.
        """
        if self.views != tuple([(n, 0) for n in range(self._count)]) or len(views) != self._count:
            return None
        address, chunks, before, after, pool, quick = self.rest
        after = bytes(self._words[-8 - len(after) : -8])
        return Launcher(address, chunks, given, self.outputs, before, after, pool, quick, views)

    def words_behind(self) -> bytes:
        """The words behind the addresses, with the numbers of now."""
        return bytes(self._words[len(self._words) - 8 - len(self.rest[3]) :])

    def numbered(self, numbers: Any) -> Launcher:
        """The same with the words for these numbers."""
        after = self.pack(*numbers)
        other = Launcher.__new__(Launcher)
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
        """The result for arrays, among which numbers are passed over; None for other arrays than
        it was made for.
        """
        arrays = [x for x in operands if type(x) is ndarray]
        if len(arrays) != self._count:
            return None
        for x, (kind, shape, strides) in zip(arrays, self.given):  # noqa: B905
            if x.dtype is not kind or x.shape != shape or x.strides != strides:
                return None
        return self.launch(arrays)

    def launch(self, arrays: list[Any], stream: Any = None) -> Any:
        """The same, where the arrays are known to be like those: an array, or a tuple of several;
        None where they are refused. Of the words `after`, the last two are seed and number of a
        draw from `stream`, if there is one.
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

    def _may_write(self, places: list[int], written: Any) -> bool:
        """Whether what is written may be: the twin of what `_call` asks."""
        spans = np.frombuffer(self._spans, np.int64).reshape(-1, 3).tolist()
        *read, (low, high, _) = spans
        place = places[-1]
        for other, (begin, end, same) in zip(places, read):  # noqa: B905
            meets = other + begin < place + high and place + low < other + end
            if meets and not (same and other == place):
                return False
        return bool(written.flags.writeable)

    def _call(self, arrays, stream):  # type: ignore[no-untyped-def]
        """`launch` by NumPy's C API."""
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


def _made(shape, kind, ordered):  # type: ignore[no-untyped-def]
    """A new array: the number of dimensions, then sizes, then, if `ordered`, strides."""
    if not ordered:
        return PyArray_SimpleNew(shape[0], shape + 1, kind)
    steps = shape + 1 + shape[0]
    return PyArray_New(ndarray, shape[0], shape + 1, kind, steps, cython.NULL, 0, 0, None)


class Viewer:
    """How to view arrays of a certain dtype, shape and strides: as `view` views the array `of`.

    `compute` is what made that view: it makes it where this file is interpreted.
    """

    __slots__ = ("_layout", "_nd", "_offset", "compute")

    def __init__(self, view: Any, of: Any, compute: Any) -> None:
        self.compute = compute
        self._nd = view.ndim
        self._offset = address(view) - address(of)
        self._layout = np.array([*view.shape, *view.strides], np.int64).tobytes()

    def view(self, array: Any) -> Any:
        """The view of an array like those."""
        if cython.compiled:
            layout = cython.cast(p_npy_intp, PyBytes_AS_STRING(self._layout))
            kind = cython.cast(c_dtype, PyArray_DESCR(array))
            Py_INCREF(kind)
            place = cython.cast(cython.p_char, PyArray_DATA(array)) + self._offset
            found = PyArray_NewFromDescr(
                ndarray, kind, self._nd, layout, layout + self._nd,
                cython.cast(cython.p_void, place), PyArray_FLAGS(array) & NPY_ARRAY_WRITEABLE,
                None,
            )  # fmt: skip
            Py_INCREF(array)
            PyArray_SetBaseObject(found, array)
            return found
        return self.compute(array)


class Viewers:
    """How to view such arrays in several ways: as `views` do, each by one of the ops `singles`."""

    __slots__ = ("_each", "compute", "singles")

    def __init__(self, views: Any, of: Any, compute: Any, singles: Any) -> None:
        self.compute = compute
        self.singles = singles
        self._each = [Viewer(view, of, None) for view in views]

    def __call__(self, array: Any) -> Any:
        """The views of an array like those."""
        return tuple(self.views(array))

    def views(self, array: Any) -> list[Any]:
        """The same in a list."""
        if not cython.compiled:
            return list(self.compute(array))
        found = []
        for k in range(len(self._each)):
            each = self._each[k]
            found.append(each.view(array))
        return found


def call(code: int, chunks: int, words: bytes | int, pool: Any, quick: bool) -> None:
    """Run machine code as a `Launcher` does, on words, or on what is at an address: nobody else may
    change it meanwhile.
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


def _call(code: int, chunks: int, start: int, pool: Any, quick: bool) -> None:
    """The twin of a call by pointer."""
    if quick:
        _SHORT(code)(0, chunks, start)
    elif pool:
        _RUN(pool[0])(pool[1], code, start, chunks)
    else:
        _LONG(code)(0, chunks, start)


def address(array: Any) -> int:
    """Where the elements of an array begin."""
    if cython.compiled:
        return cython.cast(int64_t, PyArray_DATA(array))
    return int(array.ctypes.data)


def addresses(arrays: tuple[Any, ...] | list[Any]) -> bytes:
    """Where the elements of each begin, as words."""
    if cython.compiled:
        count = len(arrays)
        found = PyBytes_FromStringAndSize(cython.NULL, 8 * count)
        place = cython.cast(p_int64, PyBytes_AS_STRING(found))
        for k in range(count):
            place[k] = cython.cast(int64_t, PyArray_DATA(arrays[k]))
        return found
    return np.array([x.ctypes.data for x in arrays], np.int64).tobytes()


def array_at(place: int, shape: Sequence[int], kind: Any, strides: Sequence[int]) -> Any:
    """The array that begins at an address, whose strides are not negative; whoever uses it keeps
    the memory.
    """
    end = sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + kind.itemsize
    return np.ndarray(shape, kind, (ctypes.c_char * end).from_address(place), 0, strides)


def write_rows(
    columns: tuple[tuple[Any, ...], ...], kinds: tuple[Any, ...], written: tuple[int, ...],
    rows: Any, length: int, first: int,
) -> None:  # fmt: skip
    """Describe the arrays of each row of `columns` in a row of `rows`, which are int64: how many
    elements each has, at `length`, and from `first` on where they begin, and then those again that
    are `written`.

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


def _may_be_written(arrays: Any) -> bool:
    return all(x.flags.writeable for x in arrays)


def _are_alike(arrays: Any, kinds: tuple[Any, ...]) -> bool:
    if any(type(x) is not ndarray or x.shape != arrays[0].shape for x in arrays):
        return False
    if any(x.dtype is not kind for x, kind in zip(arrays, kinds)):  # noqa: B905
        return False
    return all(x.flags.c_contiguous for x in arrays) or all(x.flags.f_contiguous for x in arrays)


def copy_memory(to: Any, source: Any) -> bool:
    """Whether the elements of `source`, or zeros where it is None, were written into `to`: a copy
    of memory, where both are row-major and alike, and `to` may be written.
    """
    if cython.compiled:
        wanted = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | NPY_ARRAY_WRITEABLE
        if (PyArray_FLAGS(to) & wanted) != wanted:
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


def references(tensor: Any) -> int:
    """How many references there are to `tensor`, a local of the caller, to its array, and to the
    array whose memory that shows, in one number: equal numbers mean equal counts. Memory that is no
    array's counts as held by others.

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


# ---- objects of the C API ------------------------------------------------------------------------

_ABI = {"set": 304, "get": 305}  # places of handlers in NumPy's table of C functions, by its ABI
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def keep(it: Any) -> None:
    """Never collect `it`, not even when the interpreter ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(it))


def capsule(place: int, name: bytes) -> Any:
    """An object by which C functions know an address; whoever makes it keeps the name, too."""
    return _new(place, name, None)


def capsule_address(known: Any, name: bytes | None) -> int:
    """The address.

    Errors: ValueError where the capsule is none of that name.
    """
    return int(_pointer(known, name))


def memory_handler() -> Any:
    """The capsule of what NumPy gets memory from in the current context."""
    return _handlers(ctypes.PYFUNCTYPE(ctypes.py_object), "get")()


def set_memory_handler(handler: Any) -> None:
    """Let NumPy get memory from there, in the current context."""
    _handlers(ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object), "set")(handler)


def _handlers(kind: Any, name: str) -> Any:
    table = capsule_address(np._core._multiarray_umath._ARRAY_API, None)  # type: ignore[attr-defined]
    return kind(ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[_ABI[name]])
