"""The table of pipelines: each pass has an entry, and runs where that says."""

from __future__ import annotations

import ast
import pathlib
import re
import textwrap

import adjoint as ad
from adjoint.compiler.passes import pipelines
from adjoint.compiler.passes.basic_passes import drop_dead
from adjoint.compiler.passes.pipelines import PIPELINES, Entry, Settings, entry, run_pipeline
from adjoint.ir import rewriting
from adjoint.ir.program import Program, Value
from adjoint.ops.shape.arranging import Flip
from tests.native import needs_native

ROOT = pathlib.Path(__file__).parents[3]


def passes_of(name):
    return [run for each in PIPELINES[name] for run in (*each.passes, *each.then)]


def test_each_pass_has_an_entry():
    named = {run.__name__ for name in PIPELINES for run in passes_of(name)}
    within_another = {"recompute"}  # of `fuse_kernels`
    own = {name for name, run in rewriting.PASSES.items() if "adjoint.compiler" in run.__module__}
    assert own == named | within_another


def test_no_client_has_a_list_of_passes_of_its_own():
    """Passes are called by the table alone, but by passes."""
    names = {run.__name__ for name in PIPELINES for run in passes_of(name)}
    room = ROOT / "adjoint" / "compiler"
    for path in room.rglob("*.py"):
        text = path.read_text()
        if path.name == "pipelines.py" or "@rewriting" in text:
            continue
        called = {
            node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Call) and isinstance(node.func, (ast.Attribute, ast.Name))
        }
        assert not called & names, path


def test_entries_are_sound():
    fields = Settings.__dataclass_fields__
    for name in PIPELINES:
        for each in PIPELINES[name]:
            assert not each.when or each.when in fields
            assert each.passes
        for run in passes_of(name):
            assert set(pipelines._parameters(run)) <= set(fields), run


def changing(name, changes, log):
    def run(graph):
        log.append(name)
        return changes.pop(0) if changes else 0

    run.__name__ = name
    return rewriting.rewriting(run)


def test_passes_run_in_order_on_their_conditions(monkeypatch):
    """`when` is a setting, `then` comes behind changes, what is repeated ends without them."""
    monkeypatch.setattr(rewriting, "PASSES", {})
    log = []
    first, second, third, fourth, tidy = (
        changing(name, changes, log)
        for name, changes in (
            ("first", [1]), ("second", []), ("third", [0, 0]), ("fourth", [2, 1]), ("tidy", []),
        )
    )  # fmt: skip
    monkeypatch.setitem(
        PIPELINES, "tried",
        (
            entry(first, second, then=(tidy,)),
            entry(third, then=(tidy,)),
            entry(third, when="nearly"),
            Entry((fourth,), repeated=True),
        ),
    )  # fmt: skip
    graph = Program([], [], [])
    run_pipeline("tried", graph)
    assert log == ["first", "second", "tidy", "third", "fourth", "fourth", "fourth"]
    log.clear()
    run_pipeline("tried", graph, Settings(nearly=True))
    assert log == ["first", "second", "third", "third", "fourth"]


@needs_native
def test_a_captured_function_goes_through_the_table():
    stages = ad.compile(lambda x: (x * 1).exp() + 2).graph(ad.ones(3))
    ran = [each.name for each in stages.stages if each.name in rewriting.PASSES]
    wanted = [run.__name__ for each in PIPELINES["step"] for run in each.passes]
    assert "reassociate" not in ran and "recompute" in ran
    assert [x for x in ran if x != "recompute"] == [x for x in wanted if x != "reassociate"]


def test_the_recipe(monkeypatch):
    """That of CONTRIBUTING.md, as it stands there."""
    monkeypatch.setattr(rewriting, "PASSES", dict(rewriting.PASSES))
    text = (ROOT / "CONTRIBUTING.md").read_text()
    [code] = [x for x in re.findall(r" +```py\n(.*?) +```\n", text, re.S) if "drop_flips" in x]
    names = {"rewriting": rewriting.rewriting, "Program": Program, "Value": Value, "Flip": Flip}
    exec(textwrap.dedent(code), names)
    own = entry(names["drop_flips"], then=(drop_dead,))
    monkeypatch.setitem(PIPELINES, "step", (own, *PIPELINES["step"]))
    turned = ad.compile(lambda x: x.exp().flip(0).flip(0) + x.flip(0).flip(1))
    stages = turned.graph(ad.ones(2, 3))
    assert [node.op.name for node in stages["captured"].program.nodes].count("flip") == 4
    assert [node.op.name for node in stages["drop_dead"].program.nodes].count("flip") == 2
    assert stages["drop_flips"].changes == 1
    x = ad.arange(6.0).reshape(2, 3)
    assert ad.allclose(turned(x), x.exp() + x.flip(0).flip(1))
