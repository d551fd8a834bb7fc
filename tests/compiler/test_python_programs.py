"""Random Python programs: compiled, they give and leave what they do eagerly, or are refused.

State is reached in hundreds of ways, changed between calls, and functions have effects; all of it
crossed with the ways to call, `mode="pieces"`, `fallback="eager"` and lazy execution.
`random_python.py` makes the programs, of the parts in `python_ways.py`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.native import needs_native

from ..sweep import swept
from . import random_python
from .python_ways import EFFECTS, NOT_YET, WAYS, is_not_yet
from .random_python import Call, Change, Part, Program

pytestmark = needs_native
REFUSED_EFFECT = next(effect for effect in EFFECTS if effect.name == "print")
REFUSED = 0.4  # at most this share of all programs; no mode but "compile" and "dynamic" refuses


@pytest.mark.parametrize(
    ("first", "count"), [(0, 200), *(swept((1000 + 500 * k, 500)) for k in range(20))]
)
def test_random_programs_give_and_leave_what_they_do_eagerly(first, count):
    found: Counter[str] = Counter()
    faults = []
    for seed in range(first, first + count):
        program = random_python.made(seed)
        try:
            refused = random_python.compared(program)
        except AssertionError as error:
            faults.append(f"seed {seed}: {error}")
            continue
        found["refused" if refused else "equal"] += 1
        otherwise = refused.startswith(("compile: backward", "eager: "))  # by who compiles within
        if refused and not otherwise and program.mode not in random_python.REFUSING:
            faults.append(f"seed {seed}: {refused}\n{program.described()}")
    assert not faults, "\n".join(faults)
    print(f"{found['refused'] / count:.0%} of {count} programs are refused, {len(faults)} differ")
    assert found["refused"] <= REFUSED * count, found


def test_there_are_many_ways():
    assert len(WAYS) >= 60 and len(EFFECTS) >= 20
    assert len({kind for way in WAYS for kind, _ in way.changes}) >= 30
    names = [way.name for way in WAYS] + [f"!{effect.name}" for effect in EFFECTS]
    names += [f"@{place}" for place in random_python.PLACES]
    assert len(names) == len(set(names))
    for entry in (entry for entries in NOT_YET.values() for entry in entries):
        name = entry.partition(": ")[0]
        assert not name or name in names, f"NOT_YET has {entry}, which is no way"
    without = [way for way in WAYS if not is_not_yet(way.name)]
    assert len(without) >= 0.85 * len(WAYS)


def alone(of, mode, *changes):
    """A program of one part, called before each change and after the last."""
    part = Part(1, of, "inline", "product", "5.0")
    calls = [Call("plain", ())]
    for kind, source in changes:
        calls.append(Call("plain", (Change(1, kind, part.text(source, "7.0")),)))
    return Program(0, "module", mode, (part,), (*calls, Call("plain", ())))


def test_a_stale_program_is_found_and_made_short(monkeypatch):
    way = next(way for way in WAYS if way.name == "attribute")
    monkeypatch.setattr(random_python, "compiled", lambda program, function: once(function))
    program = alone(way, "compile", *way.changes)
    assert "AssertionError" in random_python.fault_of(program)
    short = random_python.shortened(program)
    assert sum(len(call.changes) for call in short.calls) == 1 and len(short.calls) == 2


def once(function):
    """A wrong compiler, whose programs never look at state again."""
    kept = []

    def call(x):
        if not kept:
            kept.append(function(x))
        return kept[0]

    return call


@pytest.mark.parametrize("of", [swept(entry) for entries in NOT_YET.values() for entry in entries])
def test_what_is_not_yet_mended_still_differs(of):
    """One that no longer does is to be deleted from `NOT_YET`."""
    name, _, word = of.partition(": ")
    if name.startswith("@"):
        kind = "tensor" if word else "attribute"
        way = next(each for each in WAYS if each.name == kind)
        placed = alone(way, "compile", *way.changes[:1])
        placed = placed._replace(parts=(placed.parts[0]._replace(place=name[1:]),))
        assert random_python.fault_of(placed, True), f"{of} is as it should be: delete it"
        return
    faults = []
    for each in [*EFFECTS, *WAYS]:
        if name and name != ("!" if each in EFFECTS else "") + each.name:
            continue
        changes = getattr(each, "changes", ())
        if not name and word not in {kind for kind, _ in changes}:
            continue
        if word == "left":  # by a call that is refused for something else
            program, refused = alone(each, "compile", *changes[:1]), REFUSED_EFFECT
            parts = (*program.parts, Part(2, refused, "inline", "product", "5.0"))
            programs = [program, program._replace(parts=parts)]
        elif word in random_python.MODES:
            programs = [alone(each, word, *changes[:1])]
        else:
            chosen = [change for change in changes if not word or change[0] == word]
            programs = [
                alone(each, mode, change)
                for mode in ("compile", "pieces", "fallback")
                for change in chosen or [("", "pass")]
            ]
        faults += filter(None, (random_python.fault_of(each, True) for each in programs))
        if faults:
            return
    raise AssertionError(f"{of} is as it should be: delete it from NOT_YET")
