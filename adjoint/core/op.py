"""The Op contract, and the registry of primitives."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from math import copysign
from typing import Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary

from .device import CPU, device


class Sample(NamedTuple):
    """One input on which the registry-driven tests run an op."""

    op: Op
    inputs: tuple[Any, ...]  # NumPy arrays or Python numbers
    label: str = ""
    tolerance: float | None = None  # relative; None takes the dtype's default
    gradients: bool = True  # False at points where the function has no derivative
    reference: bool = True  # False where no reference computes this sample


_WORD = re.compile(r"\w+")
# Words in annotations of fields whose equal values are interchangeable.
_EXACT = {
    "None", "bool", "int", "str", "tuple", "class", "adjoint", "core", "dt", "dtype", "device",
    "Device", "Sizes", "Pairs", "Item",
}  # fmt: skip


class _Interned(type):
    """Metaclass of ops that interns them: equal fields give one object, so that kernels and
    launchers made for an op are found by its identity.
    """

    made: dict[Any, Any]  # by their fields; of classes whose fields 1, 1.0 and True mean the same
    interned: str  # "" for classes whose ops are not; "typed" where those differ, and -0.0 does

    def __call__(cls, *fields: Any, **named: Any) -> Any:
        if named or not cls.interned:
            return super().__call__(*fields, **named)
        try:
            if cls.interned == "typed":
                if 0.0 in fields and -1.0 in [copysign(1.0, f) for f in fields if f == 0.0]:
                    return super().__call__(*fields)  # which equals 0.0
                return _typed(cls, *fields)
            op = cls.made.get(fields)
        except (TypeError, ValueError):  # an array among the fields, or a wrong number of them
            return super().__call__(*fields)
        if op is None:
            op = super().__call__(*fields)
            vars(op)["kept"] = True  # a frozen dataclass too
            if len(cls.made) >= 1024:
                cls.made.clear()
            op = cls.made.setdefault(fields, op)
        return op


@functools.lru_cache(maxsize=4096, typed=True)
def _typed(cls: Any, *fields: Any) -> Any:
    op = type.__call__(cls, *fields)
    vars(op)["kept"] = True  # a frozen dataclass too
    return op


class Op(metaclass=_Interned):
    """A primitive operation.

    A subclass states everything about itself in one place; its dataclass fields are its identity:
    equal op and equal inputs give an equal value. They are never changed, and making an op of the
    registry with the same fields again (by position; not a random draw) gives the same object.
    Subclasses with fields are dataclasses; equality, hash and repr are this class's (`eq=False,
    repr=False`), since a hundred classes that each make their own would take a fifth of the
    package's import time.

    `needs` says what `gradient` reads: tokens among `x` (the only input), `x1`, `x2`, ... (inputs
    by position), `xs` (the tuple of all inputs), `y` (the output; the tuple of several outputs),
    `spec`, `spec1`, ..., `specs` (shapes and dtypes of inputs, which keep no value alive). One
    string serves all inputs; a tuple gives one string per input: what that input's gradient
    reads, so that the rest is not stored when only some inputs want gradients. Where it is not
    given, the names of the arguments of `gradient` behind g are the tokens.

    `gradient(g, *needed)` gets the cotangent (of several outputs a tuple, None for those that no
    gradient reaches) and the needed values in the order of `tokens`, None for what was not stored.
    It returns one entry per input: a Tensor, None, or a function of no arguments that computes the
    Tensor and is called only where that input wants a gradient. Shapes that were broadcast and
    dtypes that were promoted are taken back by the engine.
    """

    needs: ClassVar[str | tuple[str, ...]] = ""
    n_outputs: ClassVar[int] = 1  # an int, or a property for ops whose fields decide
    view: ClassVar[bool] = False  # compute may return a view of its first input
    overlaps: ClassVar[bool] = False  # a view in which an element of memory may stand twice
    exact: ClassVar[bool] = False  # moves or compares values: float16/bfloat16 need no float32
    strict: ClassVar[bool] = False  # infer must run first: compute accepts what it should refuse
    # A library may compute it: "large" arrays only, or "always"; "product", "linear",
    # "linear_input" and "linear_weight": matrix products; "moves": native code for indices;
    # "draws": for random numbers.
    library: ClassVar[str] = ""
    gufunc: ClassVar[str] = ""  # the function of NumPy's linear algebra that computes float64
    pointwise: ClassVar[bool] = False  # each element of the result depends on those there only
    copies: ClassVar[bool] = False  # gives its input's value in memory of its own: a program's copy
    grows: ClassVar[bool] = False  # what it gives is larger than its inputs: small ones too
    joins: ClassVar[bool] = False  # takes any number of inputs of one kind
    differentiable: ClassVar[bool] = True  # False: the output never requires grad
    kept: ClassVar[bool] = False  # the one object with its fields, which is used again
    opaque: ClassVar[bool] = False  # runs a user's code, which is not to be traced
    device: device = CPU  # where an op without inputs computes
    drawn: ClassVar[bool] = False  # random: its numbers are those that the host draws
    linear: ClassVar[bool] = False  # in all its tensors together: it is its own derivative
    # How it computes many at once (`vmap`), where its fields do not say it: for each input (the
    # last stands for the rest) the dimensions at its end that it works on, before which all
    # broadcast; pointwise ops work on none.
    core: ClassVar[tuple[int, ...] | None] = None
    by_rows: ClassVar[bool] = (
        False  # the same to each entry along the first dimension of its inputs
    )
    # batch(size, flags, *inputs): the same for inputs of which those with a flag have one more
    # dimension in front, of that size, as its results have; where neither of these says it.
    batch: ClassVar[Callable[..., Any] | None] = None
    # output_again(self, *what is saved before `y`): the output, where it was written to since; for
    # ops whose output PyTorch does not save, and which may be changed in place there.
    output_again: ClassVar[Callable[..., Any] | None] = None

    # Derived from the fields, and from `needs`, when the class is made.
    numbers: ClassVar[bool] = False  # among the fields may be numbers of any type
    tokens: ClassVar[tuple[str, ...]] = ()
    wanted_by: ClassVar[tuple[frozenset[str], ...] | None] = None  # per input; None: all alike
    keeps_values: ClassVar[bool] = False  # a token other than a spec
    own_tokens: ClassVar[bool] = False  # each op of the class says its own `tokens`
    saving: ClassVar[Any] = None  # `saving_of` the tokens; None where each op has its own

    @classmethod
    def of(cls, *fields: Any) -> Any:
        """The op with these fields."""
        return cls(*fields)

    def infer(self, *specs: Any) -> Any:
        """The output's Spec (a tuple of them for several outputs) from the inputs' specs."""
        raise NotImplementedError(f"{type(self).__name__}.infer")

    def compute(self, xp: Any, *arrays: Any) -> Any:
        """The output array, computed with backend namespace `xp`."""
        raise NotImplementedError(f"{type(self).__name__}.compute")

    def write(self, xp: Any, x: Any, *arrays: Any) -> None:
        """In-place `compute`: writes the result into the memory of `x` (only ops declared with
        `writing`, whose gradient reads neither their first input nor their output).
        """
        raise NotImplementedError(f"{type(self).__name__}.write")

    def batched(self, size: int) -> Op | None:
        """The op that applies this one to each of the `size` entries along a new first dimension of
        all inputs, derived from the fields; None where they do not determine it.
        """
        depends = False
        values = []
        for name, field in getattr(type(self), "__dataclass_fields__", {}).items():
            if field.init:
                value = getattr(self, name)
                change = _IN_BATCHES.get(name)
                depends = depends or change is not None
                values.append(value if change is None else change(value, size))
        return type(self)(*values) if depends else None

    def resized(self, fill: Callable[[Any], Any]) -> Op:
        """The op with each attribute replaced by `fill(attribute)`, which puts actual sizes in the
        place of symbolic ones.
        """
        own = {name: x for name, x in vars(self).items() if name != "kept"}
        now = {name: fill(x) for name, x in own.items()}
        if all(now[name] is x for name, x in own.items()):
            return self
        fields = getattr(type(self), "__dataclass_fields__", {})
        parameters = [name for name, field in fields.items() if field.init]
        if parameters:
            return type(self)(
                *[now[name] if name in now else getattr(self, name) for name in parameters]
            )
        made: Op = object.__new__(type(self))
        vars(made).update(now)
        return made

    def output_views(self, shape: tuple[int, ...]) -> Sequence[Op]:
        """One single-output view op per output, for an input of `shape` (view ops with several
        outputs only).
        """
        raise NotImplementedError(f"{type(self).__name__}.output_views")

    def gradient(self, g: Any, *needed: Any) -> tuple[Any, ...]:
        """The vector-Jacobian product, in public ops on Tensors."""
        raise NotImplementedError(f"{type(self).__name__}.gradient")

    # gradient_over(xp, g, *needed arrays): writes into the array g what `gradient` returns for the
    # only input. The engine calls it, where it is defined, when nobody else holds g.
    gradient_over: ClassVar[Callable[..., None] | None] = None

    # gradient_view(g, *needed): what `gradient` returns for the only input, as a view of the NumPy
    # array g, or a copy. The engine calls it, where it is defined, when cotangents stay inside: no
    # graph is to be created, and only leaves keep what reaches them, which copy what others hold.
    gradient_view: ClassVar[Callable[..., Any] | None] = None

    shortened: ClassVar[tuple[Any, Any]] = (None, None)  # these two

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Inputs for the registry-driven tests; an op without any fails their collection."""
        raise NotImplementedError(f"{cls.__name__}.samples")

    def reference(self, *arrays: Any) -> Any:
        """Independent reference value by NumPy or SciPy, computed in another way than `compute`."""
        raise NotImplementedError(f"{type(self).__name__}.reference")

    def _attributes(self) -> tuple[Any, ...]:
        """The values of the fields; an op with other state is only equal to itself."""
        fields = getattr(type(self), "__dataclass_fields__", ())
        if not fields and self.__dict__.keys() - {"kept"}:
            return (id(self),)
        return tuple([getattr(self, name) for name in fields])

    def without_numbers(self, numbers: list[Any]) -> Op:
        """A representative of all ops that differ from this one only in float fields; the floats
        are appended to `numbers`.
        """
        if not type(self).numbers:
            return self
        values = self._attributes()
        floats = [x for x in values if type(x) is float]
        if not floats:
            return self
        key = (type(self), *[float if type(x) is float else (type(x), x) for x in values])
        try:
            representative = _alike.setdefault(key, self)
        except TypeError:  # an array, say
            return self
        numbers += floats
        return representative

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return self is other or self._attributes() == other._attributes()  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((type(self), *self._attributes()))

    def __repr__(self) -> str:
        fields = getattr(type(self), "__dataclass_fields__", ())
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in fields)
        return f"{type(self).__name__}({shown})"

    @property
    def name(self) -> str:
        """The op's name in messages: the class name in snake case."""
        return snake_case(type(self).__name__)

    def __init_subclass__(cls, abstract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "gradient" in cls.__dict__ and "needs" not in cls.__dict__:
            code = inspect.unwrap(cls.gradient).__code__
            names = code.co_varnames[2 : code.co_argcount]
            if all(map(_TOKEN.fullmatch, names)) and not code.co_flags & inspect.CO_VARARGS:
                cls.needs = " ".join(names)
        needs = cls.needs
        each = (needs,) if isinstance(needs, str) else needs
        tokens = {token for text in each for token in text.split()}
        cls.tokens = tuple(sorted(tokens, key=_token_order))
        by_input = tuple(frozenset(text.split()) for text in each)
        cls.wanted_by = None if isinstance(needs, str) else by_input
        cls.keeps_values = any(not token.startswith("spec") for token in cls.tokens)
        cls.shortened = cls.gradient_over, cls.gradient_view
        cls.saving = None if cls.own_tokens else saving_of(cls.tokens, cls.wanted_by)
        if "gradient" in cls.__dict__:
            code = inspect.unwrap(cls.gradient).__code__
            accepted = code.co_argcount + bool(code.co_flags & inspect.CO_VARARGS) - 2
            if accepted != len(cls.tokens):
                raise TypeError(
                    f"{cls.__name__}.gradient takes {accepted} values after g, but needs names "
                    f"{len(cls.tokens)}: {cls.tokens}; call its arguments x, x1, y, spec, ... or "
                    "set needs"
                )
        if "differentiable" not in cls.__dict__:
            cls.differentiable = cls.gradient is not Op.gradient
        cls.made = {}
        for annotation in map(str, inspect.get_annotations(cls).values()):
            if "ClassVar" not in annotation and not _EXACT.issuperset(_WORD.findall(annotation)):
                cls.numbers = True
        made_by_hand = any(
            "__init__" in vars(c) and "__dataclass_fields__" not in vars(c)
            for c in cls.__mro__[:-1]
        )  # so that there may be state that is no field
        shared = not (abstract or cls.drawn or made_by_hand)
        cls.interned = ("typed" if cls.numbers else "plain") if shared else ""
        if not abstract:
            REGISTRY[f"{cls.__module__}.{cls.__qualname__}"] = cls


def saving_of(
    tokens: Sequence[str], wanted_by: tuple[frozenset[str], ...] | None
) -> tuple[tuple[str, int, Sequence[int]], ...]:
    """Plan of what a node of an op saves, one entry per token: its kind, the input's position, and
    the positions of the inputs of which at least one must require a gradient.
    """
    plan = []
    for token in tokens:
        kind = token.rstrip("0123456789")
        place = int(token[len(kind) :] or 1) - 1
        each = enumerate(wanted_by or ())
        wanting: Sequence[int] = range(1 << 16)
        if wanted_by is not None:
            wanting = tuple([i for i, t in each if token in t])
        plan.append((kind, place, wanting))
    return tuple(plan)


_next: Callable[[int, int], int] = lambda axis, size: axis + 1  # noqa: E731 - as those below
# How fields of these names change when a dimension is added in front.
_IN_BATCHES: dict[str, Callable[[Any, int], Any]] = {
    "axis": _next,
    "axis1": _next,
    "axis2": _next,
    "axes": lambda axes, size: tuple([axis + 1 for axis in axes]),
    "shape": lambda shape, size: (size, *shape),
    "items": lambda items, size: ((0, size, 1), *items),
}

_TOKEN = re.compile(r"xs|x[0-9]*|y|specs|spec[0-9]*")


def _token_order(token: str) -> tuple[int, str]:
    return ("xsy".find(token[0]) if not token.startswith("spec") else 9, token)


REGISTRY: dict[str, type[Op]] = {}
_alike: WeakValueDictionary[Any, Op] = WeakValueDictionary()  # one of those that differ in floats


@functools.lru_cache(maxsize=1024)
def snake_case(name: str) -> str:
    """`ScatterAdd` -> `scatter_add`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
