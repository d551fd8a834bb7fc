"""An optimizer's formula as a kernel: it is run once on symbols, and what it does is compiled.

The symbols are lazy tensors that have no array, for the parameter, its gradient and its state, and
`Scalar`s for options and numbers. What the formula has written to the symbols in the end is what
the kernel writes; which options it read, and how its comparisons of them came out, says for which
others the kernel is the formula too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd.capture import program_of, recording, symbol
from ..backends import native
from ..core import dispatch_log
from ..core.dtype import LOW_PRECISION, from_numpy_dtype
from ..core.errors import NotTraceable
from ..core.spec import Spec
from ..core.symbolic_scalar import ScalarGraph
from ..tensor import Tensor

__all__ = ["Formula", "formula_of"]

_NUMBER: Any = object()  # in a pattern: any number
_ABSENT: Any = object()
_NARROW = frozenset(d.numpy for d in LOW_PRECISION)
_COMPLEX = (np.dtype(np.complex64), np.dtype(np.complex128))  # formulas see them as real numbers
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64), *_COMPLEX, *_NARROW)


class Formula:
    """`change(group, numbers, state, p, g)` as a kernel, for options that lead to the same one.

    Errors: NotTraceable where it cannot be one.
    """

    def __init__(
        self, change: Callable[..., None], group: Any, numbers: Any, names: Any, dtypes: Any
    ) -> None:
        from ..backends.native.lowering.multi_tensor import MultiTensor, real_of

        self.arithmetic = ScalarGraph()
        options = _Options(group, self.arithmetic)
        self.options = options.read
        wide = [np.dtype(np.float32) if dtype in _NARROW else real_of(dtype) for dtype in dtypes]
        symbols = [symbol(Spec((2,), from_numpy_dtype(dtype))) for dtype in wide]
        given = [x._data for x in symbols]
        p, g, *states = symbols
        self.numbers, known = _pattern(numbers, self.arithmetic)
        late = len(self.arithmetic.given)
        with recording():
            change(options, known, dict(zip(names, states, strict=True)), p, g)
        self.written = [
            n
            for n, (x, before) in enumerate(zip(symbols, given, strict=True))
            if x._data is not before
        ]
        if 1 in self.written:
            raise NotTraceable("a formula that changes the gradient")
        program = program_of(given, [symbols[n]._data for n in self.written])
        self.run = MultiTensor(dtypes, program, self.written)
        # The numbers change with each step, and options seldom.
        self.values = self.arithmetic.function(self.run.scalars, late)
        self._asked: list[Any] = []  # the last options, if each is known by being the same object
        self._rest: Any = None  # what gives the scalars for these

    def with_numbers(self, asked: tuple[dict[str, Any], Any]) -> tuple[Formula, Any] | None:
        """Itself, and the kernel's scalars for these options and numbers; None where it is not
        their formula.

        As in the kernel's making, options come in the order in which they were read.
        """
        group, numbers = asked
        given: list[float] = []
        if type(numbers) is float and self.numbers is _NUMBER:
            given.append(numbers)
        elif not _fits(numbers, self.numbers, given):
            return None
        rest = self._rest
        if rest is None or not self._are_asked(group):
            rest = self._of_options(group)
        found = None if rest is None else rest(*given)
        return None if found is None else (self, found)

    def _are_asked(self, group: dict[str, Any]) -> bool:
        """Whether a group's options are the last ones."""
        for k, name in enumerate(self.options):
            if group.get(name, _ABSENT) is not self._asked[k]:
                return False
        return True

    def _of_options(self, group: dict[str, Any]) -> Any:
        """What gives the scalars for a group's options; None where it is not their formula."""
        given: list[float] = []
        asked: list[Any] = []
        same = True  # whether an option that is the same object later says the same
        for name, pattern in self.options.items():
            value = group.get(name, _ABSENT)
            if type(value) is float and pattern is _NUMBER:
                given.append(value)
            elif value is not pattern and not _fits(value, pattern, given):
                return None
            asked.append(value)
            same = same and _is_fixed(value)
        rest = self.values(*given)
        self._asked, self._rest = asked, rest if same else None
        return rest


def formula_of(change: Any, group: Any, numbers: Any, names: Any, dtypes: Any) -> Formula | str:
    """The formula's kernel; the reason, where it has none."""
    strange = [dtype for dtype in dtypes if dtype not in _FLOATS]
    if strange:
        return f"no kernel computes {strange[0]}"
    if not native.load():
        return "the native backend is off"
    try:
        return Formula(change, group, numbers, names, dtypes)
    except Exception as error:
        return dispatch_log.reason_of(error, change)


class _Options:
    """A group's options as a formula sees them: it notes those that it reads."""

    def __init__(self, group: dict[str, Any], arithmetic: ScalarGraph) -> None:
        self._group = group
        self._arithmetic = arithmetic
        self._seen: dict[str, Any] = {}
        self.read: dict[str, Any] = {}  # the pattern of each option that was read

    def get(self, name: str, default: Any = None) -> Any:
        """The option, with symbols for numbers."""
        if name not in self.read:
            value = self._group.get(name, _ABSENT)
            self.read[name], self._seen[name] = _pattern(value, self._arithmetic)
        value = self._seen[name]
        return default if value is _ABSENT else value

    def __getitem__(self, name: str) -> Any:
        value = self.get(name, _ABSENT)
        if value is _ABSENT:
            raise KeyError(name)
        return value

    def __contains__(self, name: str) -> bool:
        return self.get(name, _ABSENT) is not _ABSENT


def _pattern(value: Any, arithmetic: ScalarGraph) -> tuple[Any, Any]:
    """What values must be like where a kernel is to serve them, and `value` with symbols for its
    numbers.
    """
    if isinstance(value, Tensor) and value.numel() == 1:  # a learning rate may be one
        return _NUMBER, arithmetic.scalar(float(value))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _NUMBER, arithmetic.scalar(value)
    if isinstance(value, (list, tuple)):
        pairs = [_pattern(each, arithmetic) for each in value]
        return tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
    return value, value


def _is_fixed(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_fixed, value))
    return value is None or value is _ABSENT or isinstance(value, (bool, int, float, str))


def _fits(value: Any, pattern: Any, numbers: list[float]) -> bool:
    """Whether `value` is like `pattern`; its numbers are added to `numbers`."""
    if pattern is _NUMBER:
        if type(value) is not float:
            if isinstance(value, bool) or not isinstance(value, (int, float, Tensor)):
                return False
            value = float(value)
        numbers.append(value)
        return True
    if type(pattern) is tuple:
        if not isinstance(value, (list, tuple)) or len(value) != len(pattern):
            return False
        for k in range(len(pattern)):
            each, part = value[k], pattern[k]
            if type(each) is float and part is _NUMBER:
                numbers.append(each)
            elif not _fits(each, part, numbers):
                return False
        return True
    return value is pattern or (isinstance(pattern, str) and value == pattern)
