"""TorchScript's types and schemas beside PyTorch's; the names of its compiler."""

from __future__ import annotations

import pytest

import adjoint as ad
from adjoint.jit.classes import UNMADE

torch = pytest.importorskip("torch")

PLAIN = ("Any", "Bool", "Complex", "DeviceObj", "Float", "Int", "None", "Number", "PyObject",
         "StreamObj", "String", "SymBool", "SymInt", "Tensor")  # fmt: skip


def made(space):
    """Types of all kinds."""
    one = [getattr(space, f"{name}Type").get() for name in PLAIN]
    i, s, n, t = (getattr(space, f"{k}Type").get() for k in ("Int", "String", "None", "Tensor"))
    number, f, c = space.NumberType.get(), space.FloatType.get(), space.ComplexType.get()
    ints = space.ListType(i)
    return [
        *one, ints, space.ListType.ofTensors(), space.ListType.ofFloats(),
        space.ListType.ofComplexDoubles(), space.ListType.ofBools(), space.ListType.ofStrings(),
        space.ListType(number), space.DictType(s, i), space.DictType(s, ints),
        space.OptionalType(i), space.OptionalType.ofTensor(), space.OptionalType(ints),
        space.OptionalType(space.OptionalType(i)), space.TupleType([i, t]), space.TupleType([]),
        space.TupleType([i]), space.TupleType([number]), space.UnionType([i, s]),
        space.UnionType([i, n]), space.UnionType([s, i, n]), space.UnionType([i, f, c]),
        space.FutureType(i), space.FutureType(number), space.AwaitType(i), space.RRefType(i),
        space.TensorType.getInferred(), space.TensorType.create_from_tensor(space.ones(2, 3)),
    ]  # fmt: skip


def test_types_say_what_they_are():
    for ours, theirs in zip(made(ad), made(torch), strict=True):
        assert ours.kind() == theirs.kind()
        if ours.kind() != "TensorType":
            assert ours.str() == theirs.str()
        assert str(ours) == repr(ours) == ours.annotation_str == theirs.annotation_str
        assert list(map(str, ours.containedTypes())) == list(map(str, theirs.containedTypes()))
        assert ours.requires_grad() == theirs.requires_grad()
        assert not ours.is_interface_type()
        if ours.kind() != "TensorType":
            for name in ("dtype", "sizes", "dim", "scalarType"):
                with pytest.raises(RuntimeError):
                    getattr(ours, name)()
        with pytest.raises(TypeError):
            hash(ours)
        with pytest.raises(TypeError):
            _ = ours == 3


def test_types_are_equal_and_subtypes_where_pytorchs_are():
    ours, theirs = made(ad), made(torch)
    for i, (a, x) in enumerate(zip(ours, theirs, strict=True)):
        for b, y in zip(ours, theirs, strict=True):
            assert (a == b) == (x == y), (a, b)
            assert a.isSubtypeOf(b) == x.isSubtypeOf(y), (i, a, b)


def test_types_of_tensors():
    for space in (ad, torch):
        kind = space.TensorType.create_from_tensor(space.ones(2, 3))
        assert kind.sizes() == [2, 3] and kind.strides() == [3, 1] and kind.dim() == 2
        assert kind.dtype() is space.float32 and kind.device() == space.device("cpu")
        assert not kind.requires_grad() and not kind.undefined()
        every = space.TensorType.get()
        assert every.sizes() is every.dtype() is every.dim() is every.device() is None
        assert every.with_sizes([4]).sizes() == [4]
        assert every.with_dtype(space.int64).dtype() is space.int64
        assert kind.isSubtypeOf(every) and not every.isSubtypeOf(kind)


@pytest.mark.parametrize("space", [ad, torch], ids=["adjoint", "torch"])
def test_wrong_types_are_refused_as_there(space):
    i, ints = space.IntType.get(), space.ListType.ofInts()
    for wrong in (space.IntType, space.TensorType, lambda: space.ListType(3)):
        with pytest.raises(TypeError):
            wrong()
    for wrong in (lambda: space.DictType(ints, i), lambda: space.UnionType([i, i]),
                  lambda: space.unify_type_list([]),
                  lambda: space.unify_type_list([i, space.FloatType.get()])):  # fmt: skip
        with pytest.raises(RuntimeError):
            wrong()
    none = space.NoneType.get()
    assert str(space.unify_type_list([none, i])) == "Optional[int]"
    assert str(space.unify_type_list([i, space.OptionalType(i)])) == "Optional[int]"
    assert str(space.unify_type_list([none, none])) == "NoneType"
    found, why = space.InferredType(i), space.InferredType("why")
    assert found.success() and found.type() == i and not why.success()
    assert why.reason() == "why"
    enum = space.EnumType("__torch__.A", i, [])
    assert str(enum) == "__torch__.A"


SCHEMAS = [
    "aten::foo.bar(Tensor self, int[2] x=[1,2], *, float? y=None, Tensor(a!) out) -> "
    "(Tensor(a!), int)",
    "f(str s) -> ()", "f(Device? d=None) -> ()", "f(ScalarType t) -> Tensor[]",
    "f(Scalar x=1) -> Scalar", "f(int[] y=[]) -> int[]", "f(Tensor?[] w) -> ()",
    "f(float f=1e-5) -> ()", "f(int r=Mean) -> ()", "f(Dict(str, int) m) -> ()",
    "f((int, float) u) -> ()", "f(bool b=True) -> bool x", "f(Tensor(a) self) -> Tensor(a)",
    "f(Tensor(a -> *) self) -> Tensor(a)[]", "f(Tensor(a!)[] self) -> ()",
    "f(int[2]? x=None) -> ()", "f(SymInt[] x) -> SymInt", 'f(str x="ab") -> ()', "f(t x) -> t",
    "f(Any a, number n, complex c, Future(int) f) -> ()",
    "f(float x=1, float y=1.5, complex c=1j) -> ()", "f(Layout l=strided) -> ()",
    "f(bool[3] m) -> (Tensor a, Tensor b)", "f(int? x=3, *, Tensor y) -> ()",
    "f(Tensor self, ...) -> ...", "f() -> ()", "f(int x=-1, *, bool k=False) -> (int)",
]  # fmt: skip


@pytest.mark.parametrize("text", SCHEMAS)
def test_schemas_are_read_as_pytorchs(text):
    ours, theirs = ad.parse_schema(text), torch.parse_schema(text)
    assert str(ours) == str(theirs)
    for name in ("name", "overload_name", "is_mutable"):
        assert getattr(ours, name) == getattr(theirs, name)
    for a, b in zip(ours.arguments + ours.returns, theirs.arguments + theirs.returns, strict=True):
        assert (a.name, str(a.type), str(a.real_type)) == (b.name, str(b.type), str(b.real_type))
        assert (a.default_value, a.kwarg_only, a.N) == (b.default_value, b.kwarg_only, b.N)
        assert (a.is_out, a.has_default_value()) == (b.is_out, b.has_default_value())
        assert (a.alias_info is None) == (b.alias_info is None)
        if a.alias_info:
            assert a.alias_info.is_write == b.alias_info.is_write
    assert ours == ad.parse_schema(text) and ours.is_backward_compatible_with(ours)


@pytest.mark.parametrize("text", ["nonsense(", "f(int x=1, int y) -> ()", "f(Nothing x) -> ()",
                                  "f(int x)", "f(int) -> ()", "f(int x=inf) -> ()"])  # fmt: skip
def test_what_is_no_schema_is_refused(text):
    for space in (ad, torch):
        with pytest.raises(RuntimeError):
            space.parse_schema(text)


def test_schemas_that_grew_serve_older_calls():
    for space in (ad, torch):
        old, new, other = map(space.parse_schema, (
            "f(Tensor x) -> Tensor", "f(Tensor x, int n=1) -> Tensor",
            "f(Tensor x, int n) -> Tensor",
        ))  # fmt: skip
        assert new.is_backward_compatible_with(old)
        assert not other.is_backward_compatible_with(old)
        assert not old.is_backward_compatible_with(new)
        made = space.FunctionSchema("a", "b", [], [], False, False)
        assert str(made) == "a.b() -> ()"
        assert space.Argument("x", space.IntType.get(), None, None, False, None).name == "x"


def test_nothing_is_of_the_compilers_classes():
    for name in UNMADE:
        kind = getattr(ad, name)
        assert isinstance(getattr(torch, name), type) and kind.__name__ == name
        assert not isinstance(ad.nn.Linear(1, 1), kind) and not issubclass(ad.nn.Module, kind)
        with pytest.raises(TypeError, match=r"adjoint\.compile"):
            kind()
    for name in ("FatalError", "JITException", "AcceleratorError"):
        mine, theirs = getattr(ad, name), getattr(torch, name)
        assert issubclass(mine, Exception)
        assert issubclass(mine, RuntimeError) == issubclass(theirs, RuntimeError)


def test_enumerations_have_pytorchs_members():
    assert {e.name: e.value for e in ad.Tag} == {
        n: int(v) for n, v in torch.Tag.__members__.items()
    }
    assert ad.SUM is ad.AggregationType.SUM and ad.AVG.value == int(torch.AVG)


def test_calls_ahead_are_done_at_once():
    made = ad.fork(lambda x: x + 1, ad.ones(2))
    assert isinstance(made, ad.Future) and ad.wait(made).tolist() == [2, 2]
