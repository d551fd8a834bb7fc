"""Trees: taken apart, put together, told apart."""

import dataclasses
import types
from collections import OrderedDict, defaultdict, namedtuple

import pytest

import adjoint as ad
from adjoint.core.errors import InvalidType
from adjoint.core.tree import children_of, leaves, mapped, named_leaves, parts_in, parts_of

Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class Point:
    x: object
    y: object


@dataclasses.dataclass
class Output(OrderedDict):
    """A dataclass that is also a mapping of those of its fields that are there."""

    loss: object = None
    logits: object = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)


CONTAINERS = {
    "dict": lambda x, y: {"b": x, "a": y},
    "list": lambda x, y: [x, y],
    "tuple": lambda x, y: (x, y),
    "named tuple": Pair,
    "dataclass": Point,
    "ordered dict": lambda x, y: OrderedDict(b=x, a=y),
    "default dict": lambda x, y: defaultdict(list, b=x, a=y),
    "dataclass and mapping": Output,
    "nested": lambda x, y: {"a": [Pair(x, ()), {}], "b": Point((y,), None)},
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_tree_is_built_again_of_its_leaves(name):
    make = CONTAINERS[name]
    x, y = ad.ones(1), ad.ones(2)
    tree = make(x, y)
    tensors, spec = parts_of(tree, "it gives")
    assert tensors[0] is x and tensors[1] is y and len(tensors) == 2
    for values in ((1, 2), (3, 4)):
        made = spec.unflatten(values)
        assert made == make(*values) and type(made) is type(tree)
    for each, value in ((x, 1), (y, 2)):
        assert any(part is each for part in parts_in(tree)), value
    assert [part for part in leaves(make(1, 2)) if part is not None] == [1, 2]
    assert mapped(make(1, 2), lambda x: x and x + 1) == make(2, 3)


def test_a_spec_keeps_no_leaf():
    tensor = ad.ones(1)
    _, spec = parts_of({"a": Point(tensor, [tensor]), "b": OrderedDict(c=tensor)}, "it gives")
    blank = spec.unflatten([None] * 3)
    assert not any(isinstance(part, ad.Tensor) for part in parts_in(blank))


def test_keys_tell_forms_and_constants_apart():
    x = ad.ones(1)
    trees = [
        [x, x], (x, x), [x], [[x], x], Pair(x, x), {"a": x}, {"b": x}, Point(x, x), [x, 1],
        [x, True], [x, 1.0], [x, x.shape], [x, 0.0], [x, -0.0], [x, "1"], [x, None],
    ]  # fmt: skip
    keys = [parts_of(each, "it gives", constants=True)[1].key() for each in trees]
    assert len(set(keys)) == len(keys)
    again = [parts_of(each, "it gives", constants=True)[1].key() for each in trees]
    assert keys == again


def test_the_order_of_names_counts():
    x, y = ad.ones(1), ad.ones(2)
    specs = [parts_of(each, "it gives")[1] for each in ({"a": x, "b": y}, {"b": y, "a": x})]
    assert not specs[0].is_like(specs[1], 2) and specs[0].is_like(specs[0], 2)


def test_what_is_no_tree_is_refused():
    x = ad.ones(1)
    with pytest.raises(InvalidType, match="it gives a int; give tensors"):
        parts_of([x, 3], "it gives")
    with pytest.raises(InvalidType, match="it gives a int; give tensors"):
        parts_of(3, "it gives", constants=True)
    for other in (x, x.shape, "text", {1}, Point, types.MappingProxyType({"a": x})):
        assert children_of(other) is None


def test_leaves_are_named_as_one_would_write_them():
    tree = {"a": [1, Point(2, (3,))]}
    named = {"it['a'][0]": 1, "it['a'][1].x": 2, "it['a'][1].y[0]": 3}
    assert dict(named_leaves(tree, "it")) == named
    whole = dict(named_leaves(tree, "it", lambda x: isinstance(x, Point)))
    assert list(whole) == ["it['a'][0]", "it['a'][1]"]
