"""TorchScript's types as values, for programs that read annotations or schemas: they print,
compare, contain each other and say what is a subtype of what, as PyTorch's do. Nothing is
compiled by them.

Source: https://docs.pytorch.org/docs/stable/jit_language_reference.html#supported-type

>>> ad.ListType(ad.IntType.get()), ad.OptionalType.ofTensor()
(List[int], Optional[Tensor])
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from ...core.errors import InvalidArgument, InvalidType
from ...tensor import Tensor


class Type:
    """Base of all types. `str()` is how schemas write it, `annotation_str` how Python does."""

    __hash__ = None  # type: ignore[assignment]  # as PyTorch's
    short = ""  # how a schema writes it
    said = ""  # how an annotation does

    def __init__(self, *args: Any) -> None:
        raise InvalidType(
            f"{type(self).__name__}: No constructor defined! {type(self).__name__}.get() gives the "
            "one there is"
        )

    @classmethod
    def get(cls) -> Any:
        """The one type of this kind."""
        found = cls.__dict__.get("_only")
        if found is None:
            found = cls._only = cls.__new__(cls)  # type: ignore[attr-defined]
        return found

    def kind(self) -> builtins.str:
        """The name of its class."""
        return type(self).__name__

    def str(self) -> builtins.str:
        """Text of the type in a schema."""
        return self.short

    @property
    def annotation_str(self) -> builtins.str:
        """Text of the type in an annotation of Python."""
        return self.said or self.short

    def __repr__(self) -> builtins.str:
        return self.annotation_str

    def containedTypes(self) -> list[Any]:  # noqa: N802 - PyTorch's names
        """The types that it is made of."""
        return []

    def _form(self) -> Any:
        """Equal for equal types."""
        return type(self), tuple(each._form() for each in self.containedTypes())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Type):
            raise InvalidType(f"{self}: types are compared with types, got {other!r:.60}")
        return bool(self._form() == other._form())

    def isSubtypeOf(self, other: Any) -> bool:  # noqa: N802
        """Whether each value of this type is one of the other type."""
        if isinstance(other, AnyType) or self == other:
            return True
        if isinstance(other, UnionType):
            return any(self.isSubtypeOf(each) for each in other.members)
        if isinstance(other, NumberType):
            return isinstance(self, (IntType, FloatType, ComplexType))
        return self._is_narrower(other)

    def _is_narrower(self, other: Any) -> bool:
        return False

    def is_interface_type(self) -> bool:
        """False: no interface is one here."""
        return False

    def requires_grad(self) -> bool:
        """Whether a tensor in it may require a gradient."""
        return any(each.requires_grad() for each in self.containedTypes())

    def __getattr__(self, name: builtins.str) -> Any:
        """Methods of tensors' types alone, which refuse to be called.

        Errors: InvalidArgument.
        """
        if name not in _OF_TENSORS:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")

        def no_tensor(*args: Any) -> NoReturn:
            raise InvalidArgument(f"{self}.{name}: it is the type of no tensor")

        return no_tensor


_OF_TENSORS = (
    "contiguous", "device", "dim", "dtype", "scalarType", "sizes", "strides", "symbolic_sizes",
    "undefined", "varyingSizes", "with_device", "with_dtype", "with_sizes",
)  # fmt: skip


def _plain(name: builtins.str, short: builtins.str, said: builtins.str = "") -> Any:
    made = type(name, (Type,), {"short": short, "said": said, "__module__": __name__})
    made.__doc__ = f"The type that schemas write {short}; `get()` gives it."
    return made


AnyType = _plain("AnyType", "Any")
BoolType = _plain("BoolType", "bool")
ComplexType = _plain("ComplexType", "complex")
DeviceObjType = _plain("DeviceObjType", "Device")
FloatType = _plain("FloatType", "float")
IntType = _plain("IntType", "int")
NoneType = _plain("NoneType", "NoneType")
NumberType = _plain("NumberType", "Scalar", "number")
PyObjectType = _plain("PyObjectType", "PyObject")
StreamObjType = _plain("StreamObjType", "Stream")
StringType = _plain("StringType", "str")
SymBoolType = _plain("SymBoolType", "SymBool", "bool")
SymIntType = _plain("SymIntType", "SymInt", "int")


class TensorType(Type):
    """Tensors: all of them, or those of one dtype, shape, strides and device."""

    short = "Tensor"
    about: tuple[Any, ...] | None = None  # dtype, sizes, strides, device, requires_grad

    @classmethod
    def getInferred(cls) -> Any:  # noqa: N802
        """The type of all tensors."""
        return cls.get()

    @classmethod
    def create_from_tensor(cls, t: Tensor) -> Any:
        """The type of tensors like `t`."""
        return cls._of((t.dtype, list(t.shape), list(t.stride()), t.device, t.requires_grad))

    @classmethod
    def _of(cls, about: tuple[Any, ...]) -> Any:
        found = cls.__new__(cls)
        found.about = about
        return found

    def _form(self) -> Any:
        return TensorType, self.about

    def _is_narrower(self, other: Any) -> bool:
        if not isinstance(other, TensorType):
            return False
        mine = self.about or (None,) * 5
        return all(b is None or a == b for a, b in zip(mine, other.about or (), strict=False))

    def _part(self, place: int) -> Any:
        return None if self.about is None else self.about[place]

    def dtype(self) -> Any:
        """The dtype, None where it may be any."""
        return self._part(0)

    def sizes(self) -> Any:
        """The shape, None where it may be any."""
        return self._part(1)

    def strides(self) -> Any:
        """The strides, None where they may be any."""
        return self._part(2)

    def device(self) -> Any:
        """The device, None where it may be any."""
        return self._part(3)

    def dim(self) -> int | None:
        """Number of dimensions, None where it may be any number."""
        sizes = self._part(1)
        return None if sizes is None else len(sizes)

    def requires_grad(self) -> bool:
        """Whether such a tensor may require a gradient."""
        return bool(self._part(4)) if self.about else True

    def undefined(self) -> bool:
        """False: None stands for no tensor."""
        return False

    def _with(self, place: int, value: Any) -> Any:
        parts = list(self.about or (None,) * 5)
        parts[place] = value
        return self._of(tuple(parts))

    def with_dtype(self, dtype: Any) -> Any:
        """This type with one dtype."""
        return self._with(0, dtype)

    def with_sizes(self, sizes: Sequence[int]) -> Any:
        """This type with one shape."""
        return self._with(1, list(sizes))

    def with_device(self, device: Any) -> Any:
        """This type with one device."""
        return self._with(3, device)


class _Container(Type):
    """Base of types that contain values of other types."""

    schema, annotation = "{}", "{}"

    def __init__(self, *members: Any) -> None:
        for each in members:
            if not isinstance(each, Type):
                raise InvalidType(f"{type(self).__name__}: expected a type, got {each!r:.60}")
        self.members = list(members)

    @classmethod
    def get(cls) -> NoReturn:
        """Refused: a container type is made of another type.

        Errors: InvalidType.
        """
        raise InvalidType(f"{cls.__name__}: is made of other types, {cls.__name__}(...)")

    def str(self) -> builtins.str:
        """Text of the type in a schema."""
        return self.schema.format(", ".join(each.str() for each in self.members))

    @property
    def annotation_str(self) -> builtins.str:
        """Text of the type in an annotation of Python."""
        return self.annotation.format(", ".join(each.annotation_str for each in self.members))

    def containedTypes(self) -> list[Any]:  # noqa: N802
        """The types that it is made of."""
        return list(self.members)


class _OfOne(_Container):
    def __init__(self, element: Any) -> None:
        super().__init__(element)

    def getElementType(self) -> Any:  # noqa: N802
        """The type of the elements."""
        return self.members[0]


class ListType(_OfOne):
    """Lists of values of one type.

    >>> ad.ListType(ad.IntType.get()).str()
    'int[]'
    """

    schema, annotation = "{}[]", "List[{}]"

    @classmethod
    def ofInts(cls) -> Any:  # noqa: N802
        """The type of lists of ints."""
        return cls(IntType.get())

    @classmethod
    def ofTensors(cls) -> Any:  # noqa: N802
        """The type of lists of tensors."""
        return cls(TensorType.get())

    @classmethod
    def ofFloats(cls) -> Any:  # noqa: N802
        """The type of lists of floats."""
        return cls(FloatType.get())

    @classmethod
    def ofComplexDoubles(cls) -> Any:  # noqa: N802
        """The type of lists of complex numbers."""
        return cls(ComplexType.get())

    @classmethod
    def ofBools(cls) -> Any:  # noqa: N802
        """The type of lists of bools."""
        return cls(BoolType.get())

    @classmethod
    def ofStrings(cls) -> Any:  # noqa: N802
        """The type of lists of strings."""
        return cls(StringType.get())


class _Covariant(_OfOne):
    """Base of covariant types: a subtype of another where its member is."""

    def _is_narrower(self, other: Any) -> bool:
        return type(self) is type(other) and self.members[0].isSubtypeOf(other.members[0])


class FutureType(_Covariant):
    """Futures of a type."""

    schema = annotation = "Future[{}]"


class AwaitType(_Covariant):
    """The type of values that are computed when they are waited for."""

    schema, annotation = "Await({})", "Await[{}]"


class RRefType(_Covariant):
    """References to values elsewhere."""

    schema = annotation = "RRef[{}]"


class DictType(_Container):
    """Dictionaries of keys of one type and values of another.

    Errors: InvalidArgument for keys of another type than int, float, complex, Tensor, Device, str.
    """

    schema, annotation = "Dict({})", "Dict[{}]"
    _KEYS = (IntType, FloatType, ComplexType, StringType, DeviceObjType, TensorType)

    def __init__(self, key: Any, value: Any) -> None:
        super().__init__(key, value)
        if not isinstance(key, self._KEYS):
            raise InvalidArgument(
                f"Cannot create dict for key type '{key.str()}', only int, float, complex, Tensor, "
                "device and string keys are supported"
            )

    def getKeyType(self) -> Any:  # noqa: N802
        """The type of the keys."""
        return self.members[0]

    def getValueType(self) -> Any:  # noqa: N802
        """The type of the values."""
        return self.members[1]


class TupleType(_Container):
    """Tuples of values of these types.

    >>> ad.TupleType([ad.IntType.get(), ad.StringType.get()])
    Tuple[int, str]
    """

    schema = "({})"

    def __init__(self, elements: Iterable[Any]) -> None:
        super().__init__(*elements)

    @property
    def annotation_str(self) -> builtins.str:
        """Text of the type in an annotation of Python."""
        inside = ", ".join(each.annotation_str for each in self.members)
        return f"Tuple[{inside or '()'}]"

    def elements(self) -> list[Any]:
        """The types of the elements."""
        return list(self.members)

    def _is_narrower(self, other: Any) -> bool:
        return (
            isinstance(other, TupleType)
            and len(self.members) == len(other.members)
            and all(a.isSubtypeOf(b) for a, b in zip(self.members, other.members, strict=True))
        )


_NUMBERS = (IntType, FloatType, ComplexType)


def _unified(members: Iterable[Any]) -> list[Any]:
    """The members of a union, without those that are of another's type, in PyTorch's order."""
    flat: list[Any] = []
    for each in members:
        flat += each.members if isinstance(each, UnionType) else [each]
    kept = [
        each
        for i, each in enumerate(flat)
        if not any(
            each.isSubtypeOf(other) and (j < i or other != each)
            for j, other in enumerate(flat)
            if j != i
        )
    ]
    return sorted(kept, key=lambda each: _RANKS.get(type(each).__name__, len(_RANKS)))


_ORDER = (
    "Any", "Enum", "Tensor", "Tuple", "List", "Dict", "Number", "Float", "Complex", "Future",
    "Await", "RRef", "Int", "None", "String", "Bool", "Optional", "DeviceObj", "StreamObj",
    "PyObject", "SymInt", "SymBool",
)  # fmt: skip
_RANKS = {f"{name}Type": place for place, name in enumerate(_ORDER)}


class UnionType(_Container):
    """Values of any of these types; of one and None, it is an OptionalType.

    Errors: InvalidArgument where one type alone is left.
    """

    schema, annotation = "Union({})", "Union[{}]"

    def __new__(cls, members: Any = (), *args: Any) -> Any:
        """A union type; an OptionalType for one type and None."""
        if cls is UnionType:
            left = _unified(members)
            if len(left) == 2 and sum(isinstance(each, NoneType) for each in left) == 1:
                cls = OptionalType
        return object.__new__(cls)

    def __init__(self, members: Iterable[Any]) -> None:
        members = list(members)
        left = _unified(members)
        if not left or (len(left) == 1 and len({repr(each) for each in members}) == 1):
            raise InvalidArgument(f"UnionType: of one type alone, {members}")
        super().__init__(*left)

    def _shown(self) -> list[Any]:
        """The members; the three kinds of numbers, where all are there, as one."""
        if not all(any(isinstance(each, kind) for each in self.members) for kind in _NUMBERS):
            return self.members
        others = [each for each in self.members if not isinstance(each, _NUMBERS)]
        return [*others, NumberType.get()]

    def str(self) -> builtins.str:
        """Text of the type in a schema."""
        return self.schema.format(", ".join(each.str() for each in self._shown()))

    @property
    def annotation_str(self) -> builtins.str:
        """Text of the type in an annotation of Python."""
        return self.annotation.format(", ".join(each.annotation_str for each in self._shown()))

    def _form(self) -> Any:
        shown = tuple(sorted(map(repr, self._shown())))
        return NumberType.get()._form() if shown == ("number",) else (UnionType, shown)

    def _is_narrower(self, other: Any) -> bool:
        return all(each.isSubtypeOf(other) for each in self.members)

    def isSubtypeOf(self, other: Any) -> bool:  # noqa: N802
        """Whether each of its types is one of the other type."""
        return isinstance(other, AnyType) or all(each.isSubtypeOf(other) for each in self.members)


class OptionalType(UnionType):
    """Values of a type, or None.

    >>> ad.IntType.get().isSubtypeOf(ad.OptionalType(ad.IntType.get()))
    True
    """

    def __init__(self, element: Any) -> None:
        given = element if isinstance(element, (list, tuple)) else [element, NoneType.get()]
        super().__init__(given)

    @classmethod
    def ofTensor(cls) -> Any:  # noqa: N802
        """The type of an optional tensor."""
        return cls(TensorType.get())

    def getElementType(self) -> Any:  # noqa: N802
        """The type of values other than None."""
        others = [each for each in self.members if not isinstance(each, NoneType)]
        return others[0] if len(others) == 1 else UnionType(others)

    def containedTypes(self) -> list[Any]:  # noqa: N802
        """The type of values other than None."""
        return [self.getElementType()]

    def str(self) -> builtins.str:
        """Text of the type in a schema."""
        return f"{self.getElementType().str()}?"

    @property
    def annotation_str(self) -> builtins.str:
        """Text of the type in an annotation of Python."""
        return f"Optional[{self.getElementType().annotation_str}]"


class EnumType(Type):
    """An enumeration: its name, and the type of its values."""

    def __init__(self, name: builtins.str, value_type: Any, values: Sequence[Any]) -> None:
        self.short, self.value_type, self.values = name, value_type, list(values)

    def str(self) -> builtins.str:
        """Text of the type in a schema."""
        return f"Enum<{self.short}>"

    def _form(self) -> Any:
        return EnumType, self.short


class InferredType:
    """A type that was found, or the reason why none was."""

    def __init__(self, found: Any) -> None:
        if not isinstance(found, (Type, builtins.str)):
            raise InvalidType(f"InferredType: expected a type or a reason, got {found!r:.60}")
        self._found = found

    def success(self) -> bool:
        """Whether there is a type."""
        return isinstance(self._found, Type)

    def type(self) -> Any:
        """The type.

        Errors: InvalidArgument where there is none.
        """
        if not self.success():
            raise InvalidArgument(f"InferredType.type: there is none: {self._found}")
        return self._found

    def reason(self) -> builtins.str:
        """The reason why there is no type.

        Errors: InvalidArgument where there is one.
        """
        if self.success():
            raise InvalidArgument(f"InferredType.reason: the type is there: {self._found}")
        return str(self._found)


def unify_type_list(types: Sequence[Any]) -> Any:
    """The one type of all, where None may be among them.

    Errors: InvalidArgument where they differ otherwise, or for none.

    >>> ad.unify_type_list([ad.IntType.get(), ad.NoneType.get()])
    Optional[int]
    """
    if not types:
        raise InvalidArgument("unify_type_list: Cannot get unified type from empty list")
    found = types[0]
    for place, each in enumerate(types[1:], 1):
        if each.isSubtypeOf(found):
            continue
        if found.isSubtypeOf(each):
            found = each
        elif isinstance(found, NoneType) or isinstance(each, NoneType):
            found = OptionalType(each if isinstance(found, NoneType) else found)
        else:
            raise InvalidArgument(
                f"unify_type_list: Could not unify type list since element {place} of type "
                f"{each} did not match the types before it ({found})"
            )
    return found


class Opaque(Type):
    """A type of which a schema has but the name, such as Generator; `like` is what annotations
    say.
    """

    def __init__(self, short: builtins.str, said: builtins.str = "") -> None:
        self.short, self.said = short, said

    def kind(self) -> builtins.str:
        """The name of PyTorch's class for it."""
        return "IntType" if self.said == "int" else f"{self.short}ObjType"

    def _form(self) -> Any:
        return Opaque, self.short
