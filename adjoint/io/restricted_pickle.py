"""A reader of pickles that runs nothing: the opcodes that data needs, and names from a table.

Python's `pickle` imports whatever a file names and calls it. This machine asks `find` what a name
stands for, calls only what `find` returned, and bounds everything that a file could blow up: the
number of operations, what a dictionary key may cost to hash, how deep and how large the value is.

Source: https://docs.python.org/3/library/pickletools.html
"""

from __future__ import annotations

import pickle
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ..core.device import device
from ..core.dtype import dtype
from ..core.errors import AdjointError, CheckpointError
from ..nn.modules.module import Module
from .placement import is_record

MAX_PICKLE = 64 << 20  # bytes of one pickle; tensors' data lie outside it
MAX_OPERATIONS = 5_000_000  # of which the greediest, an empty set, takes 200 bytes of memory
MAX_DEPTH = 200  # containers inside one another, well inside Python's recursion limit
MAX_SHARED = 1 << 18  # elements that calls are given again and again, beyond two a byte of the file
MAX_VALUES = 100_000_000  # values of a structure written out in full, shared parts repeated


def brief(value: Any) -> str:
    """`value` as messages show it: in bounded text and time, whatever a file made it of."""
    if type(value) in (str, bytes, bytearray):
        return f"{value[:60]!r}{'...' if len(value) > 60 else ''}"
    if isinstance(value, Named):
        return value.name
    if type(value) in (tuple, list) and len(value) <= 8:
        inner = ", ".join(map(_flat, value))
        return f"[{inner}]" if type(value) is list else f"({inner}{',' * (len(value) == 1)})"
    return _flat(value)


def _flat(value: Any) -> str:
    plain = type(value) in (bool, float, type(None), dtype, device)
    if plain or (type(value) is int and value.bit_length() <= 64):
        return repr(value)
    return brief(value) if type(value) in (str, bytes) else f"a {type(value).__name__}"


@dataclass(frozen=True, eq=False)
class Named:
    """A function named in a pickle, which is called and is never a value of its own."""

    name: str
    call: Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Known:
    """A class or function named in a pickle that is a value, and is not called.

    `make` makes an object of the class without running its constructor, where files may have one.
    """

    value: Any
    make: Callable[[], Any] | None = None


@dataclass(eq=False)
class Unpickler:
    """Reads one pickle from `data` at `position`, which `load` moves behind it.

    `find(module, name)` says what a name stands for: a Named, a Known, an object that the user
    allowed, or a plain value. `persistent` resolves what the writer stored elsewhere.
    `build(instance, state)` restores an object and returns whether it could.
    """

    data: bytes
    find: Callable[[str, str], Any]
    persistent: Callable[[Any], Any]
    build: Callable[[Any, Any], bool]
    position: int = 0
    stack: list[Any] = field(init=False, default_factory=list)
    # The stacks below each open mark, the outermost first.
    marks: list[list[Any]] = field(init=False, default_factory=list)
    memo: dict[int, Any] = field(init=False, default_factory=dict)
    # What `find` gave, by id: nothing else is called.
    callables: dict[int, Any] = field(init=False, default_factory=dict)
    known: dict[int, Known] = field(init=False, default_factory=dict)  # likewise, by their values
    given: int = field(init=False, default=0)  # elements that calls were given so far

    def load(self) -> Any:
        """The value; CheckpointError for anything that is not plain data."""
        try:
            operations = self._operations()
            for _ in range(MAX_OPERATIONS):
                code = self._byte()
                if code == _STOP:
                    return self._last()
                operation = operations.get(code)
                if operation is None:
                    raise CheckpointError(f"{_name(code)} is not an operation of plain data")
                operation(self)
        except AdjointError:
            raise
        except (IndexError, KeyError) as error:
            raise CheckpointError(f"the pickle uses a value that it lacks: {error}") from error
        except RecursionError:
            raise CheckpointError("the pickle nests too deeply") from None
        except (TypeError, ValueError, OverflowError, AttributeError, struct.error) as error:
            raise CheckpointError(f"the pickle is malformed: {error}") from error
        raise CheckpointError(f"the pickle takes more than {MAX_OPERATIONS} operations")

    def _operations(self) -> dict[int, Callable[[Any], None]]:
        return _OPERATIONS

    # ---- bytes -----------------------------------------------------------------------------------

    def _byte(self) -> int:
        self.position += 1
        if self.position > len(self.data):
            raise CheckpointError("the pickle ends early; was the file cut short?")
        return self.data[self.position - 1]

    def _take(self, count: int) -> bytes:
        start, self.position = self.position, self.position + count
        if self.position > len(self.data):
            raise CheckpointError("the pickle ends early; was the file cut short?")
        return self.data[start : self.position]

    def _number(self, form: str, size: int) -> Any:
        return struct.unpack(form, self._take(size))[0]

    def _line(self) -> str:
        end = self.data.find(b"\n", self.position, self.position + 1000)
        if end < 0:
            raise CheckpointError("the pickle holds a name of more than 1000 bytes")
        line = self._take(end - self.position).decode()
        self.position += 1
        return line

    # ---- the stack -------------------------------------------------------------------------------

    def _last(self) -> Any:
        return self.stack.pop()

    def _push_mark(self) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def _pop_mark(self) -> list[Any]:
        items = self.stack
        self.stack = self.marks.pop()
        return items

    def _tuple(self) -> None:
        items = self._pop_mark()  # first: it brings another stack back
        self.stack.append(tuple(items))

    def _fold(self, count: int) -> None:
        if len(self.stack) < count:
            raise IndexError("the stack is empty")
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def _memoize(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    # ---- containers ------------------------------------------------------------------------------

    def _append(self, items: Iterable[Any]) -> None:
        target = self.stack[-1]
        if type(target) not in (list, deque):
            raise CheckpointError(f"the pickle appends to a {type(target).__name__}")
        target.extend(items)

    def _add(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not set:
            raise CheckpointError(f"the pickle adds to a {type(target).__name__}")
        for item in items:
            assert_key(item)
            target.add(item)

    def _set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) not in (dict, OrderedDict, Counter, defaultdict):
            raise CheckpointError(f"the pickle sets items of a {type(target).__name__}")
        if len(items) % 2:
            raise CheckpointError("the pickle holds a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            assert_key(key)
            target[key] = value

    def _frozen(self) -> None:
        items = self._pop_mark()
        for item in items:
            assert_key(item)
        self.stack.append(frozenset(items))

    # ---- names and objects -----------------------------------------------------------------------

    def _global(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str:
            raise CheckpointError("the pickle holds a name that is no text")
        found = self.find(module, name)
        if isinstance(found, Known):
            self._push_known(found)
            return
        if callable(found) or isinstance(found, Named):
            self.callables[id(found)] = found
        self.stack.append(found)

    def _push_known(self, found: Known) -> None:
        self.known[id(found.value)] = found
        self.stack.append(found.value)

    def _stack_global(self) -> None:
        name, module = self._last(), self._last()
        self._global(module, name)

    def _callable(self, target: Any) -> Any:
        if self.callables.get(id(target)) is not target:
            raise CheckpointError(f"the pickle calls a {type(target).__name__}, no allowed name")
        return target

    def _spend(self, value: Any, level: int = 0) -> None:
        """Count the elements that a call is given: it may copy them, however often it is given the
        same ones.
        """
        if type(value) in _SIZED:
            self.given += len(value)
            if self.given > MAX_SHARED + 2 * len(self.data):
                raise CheckpointError("the pickle gives the same values to calls without end")
            if type(value) is tuple and level < 2:
                for part in value:
                    self._spend(part, level + 1)

    def _reduce(self) -> None:
        arguments, target = self._last(), self._callable(self._last())
        if type(arguments) is not tuple:
            raise CheckpointError("the pickle calls a function without a tuple of arguments")
        self._spend(arguments)
        call = target.call if isinstance(target, Named) else target
        made = call(*arguments)
        self._push_known(made) if isinstance(made, Known) else self.stack.append(made)

    def _new_object(self) -> None:
        arguments, target = self._last(), self._last()
        known = self.known.get(id(target))
        if known is not None and known.make is not None and arguments == ():
            self.stack.append(known.make())
            return
        self._callable(target)
        if type(arguments) is not tuple:
            raise CheckpointError("the pickle makes an object without a tuple of arguments")
        self._spend(arguments)
        if isinstance(target, Named):
            self.stack.append(target.call(*arguments))
        elif isinstance(target, type):
            self.stack.append(target.__new__(target, *arguments))
        else:
            raise CheckpointError(f"the pickle makes an object of {brief(target)}, no class")

    def _build(self) -> None:
        state, instance = self._last(), self.stack[-1]
        self._spend(state)
        if not self.build(instance, state):
            raise CheckpointError(
                f"the pickle sets the state of a {type(instance).__module__}."
                f"{type(instance).__qualname__}, which no file may do"
            )

    def _persistent(self) -> None:
        self.stack.append(self.persistent(self._last()))


_STOP = ord(".")
_NAMES = {value[0]: name for name, value in vars(pickle).items()
          if name.isupper() and isinstance(value, bytes) and len(value) == 1}  # fmt: skip


def _name(code: int) -> str:
    return f"the pickle operation {_NAMES.get(code, code)}"


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def _long(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)


def _push(read: Callable[[Unpickler], Any]) -> Callable[[Unpickler], None]:
    return lambda machine: machine.stack.append(read(machine))


def _skip(machine: Unpickler) -> None:
    """A frame's length, of use to readers of streams only."""
    if machine._number("<Q", 8) > len(machine.data) - machine.position:
        raise CheckpointError("the pickle ends early; was the file cut short?")


_OPERATIONS: dict[int, Callable[[Unpickler], None]] = {
    code[0]: operation
    for code, operation in {
        pickle.PROTO: lambda m: _assert_protocol(m._byte()),
        pickle.FRAME: _skip,
        # values
        pickle.NONE: _push(lambda m: None),
        pickle.NEWTRUE: _push(lambda m: True),
        pickle.NEWFALSE: _push(lambda m: False),
        pickle.BININT: _push(lambda m: m._number("<i", 4)),
        pickle.BININT1: _push(lambda m: m._byte()),
        pickle.BININT2: _push(lambda m: m._number("<H", 2)),
        pickle.LONG1: _push(lambda m: _long(m._take(m._byte()))),
        pickle.BINFLOAT: _push(lambda m: m._number(">d", 8)),
        pickle.BINUNICODE: _push(lambda m: _text(m._take(m._number("<I", 4)))),
        pickle.SHORT_BINUNICODE: _push(lambda m: _text(m._take(m._byte()))),
        pickle.BINUNICODE8: _push(lambda m: _text(m._take(m._number("<Q", 8)))),
        pickle.BINSTRING: _push(lambda m: _text(m._take(m._number("<I", 4)))),  # Python 2's
        pickle.SHORT_BINSTRING: _push(lambda m: _text(m._take(m._byte()))),
        pickle.BINBYTES: _push(lambda m: m._take(m._number("<I", 4))),
        pickle.SHORT_BINBYTES: _push(lambda m: m._take(m._byte())),
        pickle.BINBYTES8: _push(lambda m: m._take(m._number("<Q", 8))),
        pickle.BYTEARRAY8: _push(lambda m: bytearray(m._take(m._number("<Q", 8)))),
        # containers
        pickle.EMPTY_TUPLE: _push(lambda m: ()),
        pickle.EMPTY_LIST: _push(lambda m: []),
        pickle.EMPTY_DICT: _push(lambda m: {}),
        pickle.EMPTY_SET: _push(lambda m: set()),
        pickle.TUPLE: Unpickler._tuple,
        pickle.TUPLE1: lambda m: m._fold(1),
        pickle.TUPLE2: lambda m: m._fold(2),
        pickle.TUPLE3: lambda m: m._fold(3),
        pickle.FROZENSET: Unpickler._frozen,
        pickle.APPEND: lambda m: m._append([m._last()]),
        pickle.APPENDS: lambda m: m._append(m._pop_mark()),
        pickle.ADDITEMS: lambda m: m._add(m._pop_mark()),
        pickle.SETITEM: lambda m: m._set_items([m.stack.pop(-2), m._last()]),
        pickle.SETITEMS: lambda m: m._set_items(m._pop_mark()),
        # the stack and the memo
        pickle.MARK: Unpickler._push_mark,
        pickle.BINPUT: lambda m: m._memoize(m._byte()),
        pickle.LONG_BINPUT: lambda m: m._memoize(m._number("<I", 4)),
        pickle.MEMOIZE: lambda m: m._memoize(len(m.memo)),
        pickle.BINGET: _push(lambda m: m.memo[m._byte()]),
        pickle.LONG_BINGET: _push(lambda m: m.memo[m._number("<I", 4)]),
        # names and objects
        pickle.GLOBAL: lambda m: m._global(m._line(), m._line()),
        pickle.STACK_GLOBAL: Unpickler._stack_global,
        pickle.REDUCE: Unpickler._reduce,
        pickle.NEWOBJ: Unpickler._new_object,
        pickle.BUILD: Unpickler._build,
        pickle.BINPERSID: Unpickler._persistent,
    }.items()
}


def _assert_protocol(version: int) -> None:
    if not 2 <= version <= 5:
        raise CheckpointError(f"the pickle has protocol {version}; 2 to 5 are read")


_SIZED = (str, bytes, bytearray, tuple, list, dict, OrderedDict, Counter, defaultdict, deque, set,
          frozenset)  # fmt: skip
_FLAT_KEYS = (str, bytes, float, bool, type(None), dtype, device)


def assert_key(key: Any, budget: int = 64) -> int:
    """Refuse what would take long to hash (a tuple that holds itself many times over) or that
    makes many equal hashes (huge integers); what is left of `budget`.
    """
    if type(key) in _FLAT_KEYS:
        return budget - 1
    if type(key) is int:
        if key.bit_length() > 64:
            raise CheckpointError("the pickle holds a dictionary key of more than 64 bits")
        return budget - 1
    if type(key) is tuple or isinstance(key, tuple):
        for part in key:
            if budget <= 0:
                break
            budget = assert_key(part, budget)
        if budget <= 0:
            raise CheckpointError("the pickle holds a dictionary key of more than 64 parts")
        return budget - 1
    if type(key) in (list, dict, set, frozenset, complex) or isinstance(key, Named):
        raise CheckpointError(f"the pickle holds a dictionary key that is a {type(key).__name__}")
    return budget - 1  # an object of an allowed class


def assert_finite(value: Any, leftovers: tuple[type, ...] = ()) -> None:
    """Refuse containers that hold themselves, or nest or unfold beyond all use; and values of the
    classes `leftovers`, which only stand for something.
    """
    leftovers = (Named, *leftovers)
    sizes: dict[int, tuple[int, int]] = {}  # depth and number of values of each finished container
    opened: set[int] = set()
    pending: list[tuple[Any, bool]] = [(value, False)]
    while pending:
        part, seen = pending.pop()
        if isinstance(part, leftovers):
            name = getattr(part, "name", type(part).__name__)
            raise CheckpointError(f"the pickle holds {name} itself as a value")
        inner = _inner(part)
        if inner is None or (not seen and id(part) in sizes):
            continue
        if seen:
            opened.discard(id(part))
            known = [sizes.get(id(p), (0, 1)) for p in inner]
            depth = 1 + max((d for d, _ in known), default=0)
            count = 1 + sum(n for _, n in known)
            if depth > MAX_DEPTH or count > MAX_VALUES:
                raise CheckpointError(
                    f"the value nests {depth} containers and has {count} parts; at most "
                    f"{MAX_DEPTH} and {MAX_VALUES} are read"
                )
            sizes[id(part)] = (depth, count)
        elif id(part) in opened:
            raise CheckpointError(f"the pickle holds a {type(part).__name__} that contains itself")
        else:
            opened.add(id(part))
            pending.append((part, True))
            pending.extend((p, False) for p in inner)


def _inner(value: Any) -> list[Any] | None:
    """Items of a container or a module; None for anything else."""
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return list(value)
    if is_record(value):
        return list(vars(value).values())
    if isinstance(value, Module):
        if "_modules" not in value.__dict__:
            raise CheckpointError(f"the pickle holds a {type(value).__name__} without its state")
        return list(value._modules.values())
    return None
