"""Scans outside of captured functions: their bodies are captured all the same, and kept.

What is kept is known by the code of the function, by what that holds (`function_form.py`), and by
guards, as programs of `ad.compile` are. A lambda that is made in each call is captured once. The
node that runs the turns is an op like any other: the tape, modes and transforms see that. What
cannot be captured is run by Python, as is what would be captured again and again.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ...backends import native
from ...backends.native.runtime.pool import WORKER
from ...core import config, dispatch_log, fork_safety, policy
from ...core.dtype import get_default_dtype
from ...core.errors import Unsupported
from ...core.mode import MODE, Mode
from ...core.package import OURS
from ...core.tensor_base import TensorBase
from ...core.tree import parts_of
from ...ir.executable import forgettable
from ...nn import hooks
from ...runtime.node import INFERENCE, Version
from ...runtime.tensors import wrap
from ..guards.code_observer import is_users, place_in
from ..guards.python_state import watched
from ..guards.retraces import RetraceToFollow
from ..guards.state_snapshot import StateSnapshot
from ..guards.tensor_identity import assert_apart, told_apart
from . import machine_loop
from .body_recorder import like
from .control_capture import Capture
from .control_flow_ops import Scan
from .control_forms import Tensors, Tree
from .function_form import FunctionForm, tensor_key
from .scan_turns import TracedTurn, Turns
from .step_capture import CAPTURING
from .subgraphs import Subgraph, keep, leading, pullback

_in_python = config.read("ADJOINT_SCAN") == "python"
_EVENTS = str(Path(threading.__file__).with_name("asyncio"))  # calls users' code back
_codes: dict[int, KeptFunctions] = {}  # by the ids of codes, the last used last
_lock = fork_safety.lock()


def forget() -> None:
    """Forget all functions."""
    _codes.clear()


forgettable(forget)


def known_codes() -> Iterable[KeptFunctions]:
    """Entries of all codes."""
    return _codes.values()


@contextmanager
def from_python() -> Iterator[None]:
    """Context manager: Python runs all turns of scans, as with `ADJOINT_SCAN=python`."""
    global _in_python
    before, _in_python = _in_python, True
    try:
        yield
    finally:
        _in_python = before


def scanned(way: Turns, init: object, rows: Tensors, length: int) -> tuple[Tree, Tree] | None:
    """Results of a scan, run by a node whose body is kept; None where Python is to run the turns.

    Errors: those of its operations.
    """
    mode = MODE.get()
    if _in_python or length < policy.SCAN_FEW or not _is_usual(mode):
        return None
    code = _code_of(way.function)
    if code is None:
        return None
    known = _known(code)
    known.calls += 1
    if known.calls == 1 and length < policy.SCAN_AT_ONCE:
        return None
    if not machine_loop.is_available():
        known.say(native.unusable())
        return None
    try:
        call = _ScanCall(way, init, rows, mode)
        turn = known.turn_for(call, length)
    except Unsupported as error:
        known.say(error)
        return None
    return None if turn is None else turn.run(call, int(length))


def _is_usual(mode: Mode) -> bool:
    """Whether ops run here and now, and nothing looks at each of them or at what they save."""
    usual = mode.executor is None and mode.saved_hooks is None and mode.step is None
    asks = mode.overrides is not None and bool(mode.overrides[1])
    return usual and not (mode.anomaly or mode.blocks or asks)


def _code_of(function: object) -> types.CodeType | None:
    """The code of the user's function; None where Python has none."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
            continue
        within = None if _is_users(function) else _function_in(function)
        if within is None:
            break
        function = within
    code = getattr(function, "__code__", None)  # a method's, too
    if code is None:
        code = getattr(getattr(type(function), "__call__", None), "__code__", None)  # noqa: B004
    return code if type(code) is types.CodeType else None


def _function_in(function: object) -> object:
    """The first function that a function of this package holds; None where it holds none."""
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # it has no value
            if callable(cell.cell_contents):
                return cell.cell_contents
    return None


def _is_users(function: object) -> bool:
    code = getattr(function, "__code__", None)
    return type(code) is not types.CodeType or is_users(code)


def _known(code: types.CodeType) -> KeptFunctions:
    with _lock:
        known = _codes.pop(id(code), None)
        is_new = known is None
        if known is None:
            known = KeptFunctions(code)
        _codes[id(code)] = known  # the last
        if is_new:
            _drop_some()
        return known


def _drop_some() -> None:
    """Forget the functions used longest ago, where there are many, or keep much alive."""
    while len(_codes) > 1 and (
        len(_codes) > policy.SCAN_BODIES
        or sum(each.nbytes for each in _codes.values()) > policy.SCAN_BYTES
    ):
        del _codes[next(iter(_codes))]


class _ScanCall:
    """A scan that is called: what its body depends on besides Python's state."""

    def __init__(self, way: Turns, init: object, rows: Tensors, mode: Mode) -> None:
        """Errors: Unsupported for what is not captured."""
        self.way, self.rows = way, rows
        self.carries, self.carry = parts_of(init, "scan: init has")
        self.held = FunctionForm(way.function)
        casts = None if mode.autocast is None else mode.autocast.settings
        self.key: Hashable = (
            tuple(self.held.key), self.carry.key(), way.row.key(), way.reverse,
            tuple([tensor_key(x) for x in self.carries]),
            tuple([(shape[1:], *more) for shape, *more in map(tensor_key, rows)]),
            mode.grad, mode.inference, casts, get_default_dtype(),
        )  # fmt: skip

    @property
    def tensors(self) -> list[Any]:
        """All that the node is given, but for tensors that its body reads elsewhere."""
        return [*self.carries, *self.rows, *self.held.tensors]

    def capture(self) -> Capture:
        """A new one of the modes here, which traces and applies the node."""
        capture = Capture("scan", self.tensors)
        capture.in_graph = False  # histories are known
        return capture


class KeptFunctions:
    """Captured turns of the functions of one code."""

    def __init__(self, code: types.CodeType) -> None:
        self.code = code  # kept, so that no other gets its address
        self.calls = 0
        self.nbytes = 0  # of tensors from elsewhere that captured turns keep
        self.captures = 0
        self.hits = 0  # calls that used one
        self._turns: dict[Hashable, list[_KeptTurn]] = {}  # the last captured last
        self.refused: dict[Hashable, str] = {}
        self._seen: dict[Hashable, None] = {}  # keys that were met and not captured
        self._lock = fork_safety.lock()

    def say(self, why: object) -> None:
        """Tell why Python runs the turns."""
        if dispatch_log.on:
            where = place_in(self.code, self.code.co_firstlineno)
            dispatch_log.said(f"scan{where}", "Python", why)

    def turn_for(self, call: _ScanCall, length: int) -> _KeptTurn | None:
        """The turn for a call, captured if that pays; None where Python is to run it."""
        with CAPTURING:  # another thread's tensors may hold symbols
            pass
        key = call.key
        why = self.refused.get(key)
        if why is not None:
            self.say(why)
            return None
        for turn in self._turns.get(key, ()):
            if turn.fits(call):
                self.hits += 1
                return turn
        if not self._pays(key):
            self.say("what it holds or reads changes with each call")
            return None
        with CAPTURING, self._lock:
            return self._captured(call)

    def _pays(self, key: Hashable) -> bool:
        """Whether to capture for this key: calls have used what was captured before, or it was met
        before.
        """
        if self.captures < policy.SCAN_CAPTURES or self.hits >= self.captures:
            return True
        if key in self._seen and key not in self._turns:
            return True
        if len(self._seen) >= policy.SCAN_FORMS:
            self._seen.clear()
        self._seen[key] = None
        return False

    def _captured(self, call: _ScanCall) -> _KeptTurn | None:
        self.captures += 1
        try:
            turn = _KeptTurn(call)
        except _OtherThreads as error:
            self.captures -= 1
            self.say(error)
            return None
        except Exception as error:  # a mistake of the function's comes again from Python
            told = str(error) if isinstance(error, Unsupported) else f"{type(error).__name__}"
            if len(self.refused) >= policy.SCAN_FORMS:
                self.refused.clear()
            self.refused[call.key] = told
            self.say(told)
            return None
        turns = self._turns.pop(call.key, [])
        self._turns[call.key] = [turn, *turns[: policy.SCAN_CAPTURES - 1]]
        while len(self._turns) > policy.SCAN_FORMS:
            del self._turns[next(iter(self._turns))]
        kept = {id(x): x for turns in self._turns.values() for each in turns
                for x in each.turn.outside}  # fmt: skip
        self.nbytes = sum(x._data.nbytes for x in kept.values())
        with _lock:
            _drop_some()
        return turn


class _OtherThreads(Unsupported):
    """Error: a capture would let tensors hold symbols that other threads may read."""


class _KeptTurn:
    """A captured turn with its guards."""

    turn: TracedTurn

    def __init__(self, call: _ScanCall) -> None:
        """Errors: Unsupported for a body that cannot be captured; its own."""
        capture = call.capture()
        symbols = [*(like(x, capture.grad) for x in call.carries)]
        symbols += [like(x, x._node is not None, x.shape[1:]) for x in call.rows]
        held = [like(x, x._node is not None) for x in call.held.tensors]
        self._objects = call.held.objects  # kept alive, since they are known by their ids
        self._watch(call, capture, symbols, held)
        body = self.turn.body
        self._outside = [_outside_key(x) for x in self.turn.outside]
        self.wanting = capture.settled(body, call.carries)
        if any(self.wanting):
            if any(each.calls_back for each in _all_bodies(body)):
                raise Unsupported("a custom Function or a hook, which Python calls in gradients")
            keep(body, self.turn.carried)
        read = {number for _, number in body.hints}
        self._read = [n in read for n in range(len(body.outputs))]  # by gradients
        self._unread = _unread(body, self.turn.carried) if any(self.wanting) else ()
        self._ops: dict[int, Scan] = {}  # by length
        self._histories: dict[tuple[tuple[bool, ...], int], list[bool]] = {}

    def _watch(
        self, call: _ScanCall, capture: Capture, symbols: Sequence[Any], held: Sequence[Any]
    ) -> None:
        """Trace the turn, with its guards."""
        way = call.way._replace(function=call.held.made(held))
        own = set(map(id, held))

        def trace(_: object, reads: StateSnapshot) -> tuple[TracedTurn, frozenset[int]]:
            if not own.issuperset(reads.tensors.ids()) and _others_run():
                raise _OtherThreads("tensors hold symbols meanwhile, and other threads run")
            turn = way.traced(capture, symbols, call.carry, held, reads)
            return turn, told_apart(reads, ())

        roots = [("the hooks of all modules", hooks.USERS)]
        names: frozenset[str] = frozenset()
        while True:
            try:
                (self.turn, apart), self._guards = watched(way.function, roots, trace, (), names)
                break
            except RetraceToFollow as error:
                if error.names <= names:
                    raise
                names |= error.names
                del capture.met[:]
        self._apart = apart.difference(own)
        assert_apart(call.tensors, self._apart)
        if self._guards.warned:
            raise Unsupported("it warns")

    def fits(self, call: _ScanCall) -> bool:
        """Whether the guards hold: Python's state, and tensors that are read elsewhere."""
        apart = self._apart
        if apart and any(id(x) in apart for x in call.tensors):
            return False
        for x, before in zip(self.turn.outside, self._outside, strict=True):
            if _outside_key(x) != before:
                return False
        return self._guards.hold()

    def run(self, call: _ScanCall, length: int) -> tuple[Tree, Tree]:
        """Apply the node for so many turns."""
        capture, turn = call.capture(), self.turn
        op = self._ops.get(length)
        if op is None:
            if len(self._ops) >= policy.SCAN_FORMS:
                self._ops.clear()
            op = turn.op(length, call.way.reverse, any(self.wanting), capture.drawing(turn.body))
            self._ops[length] = op
        wanting = self._wanting(call, capture, length) if any(self.wanting) else self.wanting
        inputs = [*call.tensors, *turn.outside]
        for n in self._unread:  # who writes to these changes no value that a gradient reads
            x = inputs[n]
            if x._changes is not INFERENCE:
                inputs[n] = wrap(x._data, x._node, Version())
        outputs = capture.applied(op, inputs, wanting)
        return turn.shaped(list(map(_own, outputs, self._read)))

    def _wanting(self, call: _ScanCall, capture: Capture, length: int) -> list[bool]:
        """Flags of outputs: has it a history behind so many turns, as each turn hands it on?"""
        carried = [capture.wants(x) and x._data.dtype.kind in "fcV" for x in call.carries]
        key = tuple(carried), min(length, len(carried) + 1)
        if key not in self._histories:
            self._histories[key] = self._history(*key)
        return self._histories[key]

    def _history(self, carried: Sequence[bool], turns: int) -> list[bool]:
        body, n = self.turn.body, len(carried)
        nodes = [x._node for x in body.inputs]
        always = {node for node in nodes[n:] if node is not None}
        reached = [leading(y) for y in body.outputs]
        ever = [False] * len(reached)
        for _ in range(turns):
            live = always | {node for node, has in zip(nodes, carried, strict=False) if has}
            now = [not live.isdisjoint(each) for each in reached]
            carried = now[:n]
            ever = [*carried, *(a or b for a, b in zip(ever[n:], now[n:], strict=True))]
        return ever


def _others_run() -> bool:
    """Whether other threads are in the user's code, or in this package, or wait to call it at any
    time: they may read tensors.
    """
    if threading.active_count() == 1:
        return False
    own = threading.get_ident()
    threads = threading.enumerate()
    if any(isinstance(x, threading.Timer) for x in threads):
        return True
    ours = {x.ident for x in threads if x.name.startswith(WORKER)}
    for number, frame in sys._current_frames().items():
        stack: Any = None if number == own or number in ours else frame
        while stack is not None:
            file = stack.f_code.co_filename
            if is_users(stack.f_code) or file.startswith((*OURS, _EVENTS)):
                return True
            stack = stack.f_back
    return False


def _own(y: Any, read: bool) -> Any:
    """An output as the user gets it: who writes to it changes no value that a gradient reads."""
    if y._node is None:
        return y
    if read:
        return y.clone()
    y._changes = Version()
    return y


def _outside_key(x: TensorBase) -> tuple[object, ...] | None:
    """Facts of a tensor that a body reads elsewhere; None for one not in the host's memory."""
    data = x._data
    return (data.shape, data.dtype, x._node is None) if type(data) is np.ndarray else None


def _unread(body: Subgraph, carried: int) -> list[int]:
    """Numbers of the inputs whose values no gradient reads. Of carried ones it reads those that
    turns began with, which the node keeps.
    """
    back = pullback(body, [True] * len(body.outputs), False).body.program()
    read = {x for node in back.nodes for x in node.values} | set(back.outputs)
    inputs = back.inputs[: len(body.inputs)]
    return [n for n, x in enumerate(inputs) if n < carried or x not in read]


def _all_bodies(body: Subgraph) -> Iterator[Subgraph]:
    """A body, and those of control flow in it."""
    yield body
    for node in body.program().nodes:
        for each in getattr(node.op, "subgraphs", tuple)():
            yield from _all_bodies(each)
