"""What is looked at by identity before each run of a program."""

from __future__ import annotations

from collections import defaultdict

import pytest

from adjoint.compiler.guards.identity_guards import IdentityGuards

ABSENT = object()


def listed(x, values=True):
    """A container as `IdentityGuards` takes it; of a dict the keys alone without `values`."""
    return x, list(x), list(x.values()) if values and isinstance(x, dict) else None


class Thing:
    a = 1


def variable(value):
    """A variable of a function."""

    def function():
        return value

    return function.__closure__[0]


CHANGES = {
    "another value": lambda held: held.update(b=object()),
    "an equal value": lambda held: held.update(b=(1.0, 2)),
    "one more": lambda held: held.update(c=1),
    "one less": lambda held: held.pop("b"),
    "another name": lambda held: (held.pop("b"), held.update(c=1)),
    "another order": lambda held: held.update(a=held.pop("a")),
}


@pytest.mark.parametrize("kind", [dict, defaultdict])
@pytest.mark.parametrize("change", CHANGES)
def test_a_dict_of_which_all_counts(kind, change):
    held = kind()
    held.update(a=1, b=(1.0, 2 + len(held)))
    looked = IdentityGuards([], [listed(held)])
    assert looked.hold()
    held["b"] = held["b"]
    assert looked.hold()
    CHANGES[change](held)
    assert not looked.hold()


def test_a_dict_of_which_the_keys_count_and_some_values():
    first, second = [1], [2]
    held = {"a": first, "b": second, "c": 0}
    named = [(held, "a", first), (held, "absent", ABSENT)]
    looked = IdentityGuards(named, [listed(held, values=False)], absent=ABSENT)
    assert looked.hold()
    held["b"], held["c"] = [3], 1  # do not count
    assert looked.hold()
    held["absent"] = 1
    assert not looked.hold()
    del held["absent"]
    assert looked.hold()
    held["a"] = [1]
    assert not looked.hold()
    held["a"] = first
    assert looked.hold()


def test_two_looks_at_one_dict_are_both_kept():
    """All values count where they are listed, whatever was listed or named before."""
    held = {"a": [1], "b": [2]}
    for listing in ([listed(held, False), listed(held)], [listed(held), listed(held, False)]):
        looked = IdentityGuards([(held, "a", held["a"])], listing, absent=ABSENT)
        assert looked.hold()
        before, held["b"] = held["b"], [2]
        assert not looked.hold()
        held["b"] = before
    # One name is said to hold two things: never.
    assert not IdentityGuards([(held, "a", 1), (held, "a", 2)], [listed(held, False)]).hold()
    assert not IdentityGuards([(held, "new", 1)], [listed(held, False)], absent=ABSENT).hold()


def test_lists_attributes_variables_and_names():
    members: list = [1, [2]]
    thing, cell, names = Thing(), variable(5), {"x": members}
    own = vars(Thing)["a"]
    looked = IdentityGuards(
        [(names, "x", members), (names, "y", ABSENT)], [listed(members)],
        [(thing, "a", own), (thing, "b", ABSENT)], [(cell, cell.cell_contents)], ABSENT,
    )  # fmt: skip
    assert looked.hold()
    for change, back in [
        (lambda: members.append(1), members.pop),
        (lambda: members.insert(0, members.pop()), lambda: members.append(members.pop(0))),
        (lambda: setattr(thing, "a", 2), lambda: delattr(thing, "a")),
        (lambda: setattr(thing, "b", 2), lambda: delattr(thing, "b")),
        (lambda: setattr(cell, "cell_contents", [5]), lambda: setattr(cell, "cell_contents", 5)),
        (lambda: names.update(x=[*members]), lambda: names.update(x=members)),
        (lambda: names.update(y=None), lambda: names.pop("y")),
    ]:
        change()
        assert not looked.hold()
        back()
        assert looked.hold()
    del cell.cell_contents
    assert not looked.hold()
