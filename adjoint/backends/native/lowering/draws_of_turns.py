"""Random numbers for many turns of a loop at once: those of each turn are a draw of its own, made
by the routine of such draws (`random_code.py`). Threads share the turns.
"""

from __future__ import annotations

import functools
import math
import struct

import numpy as np

from ....core import policy
from ....core.arrays import address, call
from ....core.op import Op
from ...codegen.emit import Module, Reg
from ..random.random_code import SEGMENT
from ..random.random_draws import asked_of, routine
from ..runtime import object_code
from ..runtime.pool import default_pool
from ..runtime.shared_code import function
from . import large_arrays

# Words of a call: the routine and its chunks, bytes of a turn's numbers, where the first ones lie,
# the seed, the draw of the first turn and how many further each next one is; then the routine's own
# words, in which a turn sets where its seed and draw are, and where its numbers go.
_ROUTINE, _CHUNKS, _SIZE, _OUT, _SEED, _FIRST, _STEP, _OWN = range(8)
_STATE, _RESULT, _OWN_WORDS = 2, 3, 7  # among the routine's; how many these are
_MASK = (1 << 64) - 1


class DrawsOfTurns:
    """Fills the rows of an array by a draw each."""

    def __init__(self, op: Op) -> None:
        """`op` is a draw without inputs.

        Errors: NotTraceable where no routine makes all of its result.
        """
        kind, shape, _, numbers = asked_of(op, large_arrays)
        self._count = math.prod(shape)
        segment = self._count if kind.serial else SEGMENT
        self._own = struct.pack("=4q", self._count, segment, 0, 0) + numbers.ljust(24, b"\0")
        self._routine, self._chunks = routine(kind), -(-self._count // segment)

    def __call__(self, rows: np.ndarray, seed: int, first: int, step: int) -> None:
        """Fill row t by draw `first` + t * `step`."""
        head = self._routine, self._chunks, rows[:1].nbytes, address(rows)
        state = seed & _MASK, first & _MASK, step & _MASK
        words = struct.pack("=4q3Q", *head, *state) + self._own
        if rows.size >= policy.DRAWS_PARALLEL:
            default_pool().run(_code(), words, len(rows))
        else:
            call(_code(), len(rows), words, None, False)


@functools.cache
def _code() -> int:
    """Address of `void rows(i64 begin, i64 end, i64 *words)`, of which chunks are turns."""
    return object_code.library(__name__, _text, ["rows"])[0]


def _text() -> str:
    module = Module()
    with function(module, "void @rows(i64 %begin, i64 %end, ptr %words)") as (
        b, begin, end, words,
    ):  # fmt: skip
        b.allocas += [f"%own = alloca [{_OWN_WORDS} x i64]", "%state = alloca [2 x i64]"]
        own, state = Reg(b, "ptr", 0, "%own"), Reg(b, "ptr", 0, "%state")

        def word(k: int, elem: str = "i64") -> Reg:
            return b.get(b.place(elem, words, 8 * k))

        code, chunks, size, out, first, step = (
            word(_ROUTINE, "ptr"), word(_CHUNKS), word(_SIZE), word(_OUT, "ptr"), word(_FIRST),
            word(_STEP),
        )  # fmt: skip
        b.put(b.place("i64", state, 0), word(_SEED))
        for k in range(_OWN_WORDS):
            b.put(b.place("i64", own, 8 * k), word(_OWN + k))
        b.put(b.place("ptr", own, 8 * _STATE), state)
        with b.loop(begin, end) as turn:
            b.put(b.place("i64", state, 8), first + turn * step)
            b.put(b.place("ptr", own, 8 * _RESULT), b.at(out, turn * size))
            b.invoke("void", code, b.const("i64", 0), chunks, own)
    return str(module)
