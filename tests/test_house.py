"""tools/house.py: each count rises when it should, on a small tree, and a limit bites."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def house(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import house

    yield house
    for name in ("house", "house_facts"):
        sys.modules.pop(name, None)


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(textwrap.dedent(text))


SMALL = {
    "adjoint/__init__.py": "from .nn import layers\n",
    "adjoint/__main__.py": "import adjoint\n",
    "adjoint/core/__init__.py": "",
    "adjoint/core/mode.py": "from contextvars import ContextVar\nOTHER = ContextVar('other')\n",
    "adjoint/nn/__init__.py": "",
    "adjoint/nn/layers.py": "from ..core import mode\nfrom ..core.mode import OTHER\n",
    "docs/index.md": "# A page\n\nfour words stand here\n",
}


def statements(number: int) -> str:
    return "".join(f"    x = {each}\n" for each in range(number))


def fields(number: int) -> str:
    return "".join(f"    field{each}: int\n" for each in range(number))


# What a count is, how much it rises by, and by which files; its items are in the last of them.
RISES = {
    "folders at the top": (1, {"adjoint/new/__init__.py": ""}),
    "files at the top": (1, {"adjoint/new.py": ""}),
    "pairs of rooms": (1, {"adjoint/optim/adam.py": "def f():\n    from ..core import mode\n"}),
    "imports against the order": (1, {"adjoint/core/late.py": "import adjoint.nn.layers\n"}),
    "circles of rooms": (1, {"adjoint/core/late.py": "from ..nn import layers\n"}),
    "largest circle of files": (2, {
        "adjoint/nn/a.py": "if typing.TYPE_CHECKING:\n    from . import b\n",
        "adjoint/nn/b.py": "from .a import f\n",
    }),
    "files over 600 lines": (1, {"adjoint/nn/long.py": "\n" * 601}),
    "functions over 60 lines": (1, {
        "adjoint/nn/long.py": "def f():\n" + statements(61)
        + "def g():\n    '''Doc.\n\n    '''\n" + statements(60)
    }),
    "named tuples over 10 fields": (1, {
        "adjoint/nn/wide.py": "class A(NamedTuple):\n" + fields(11)
        + "class B(NamedTuple):\n" + fields(10)
    }),
    "class names in 3 files or more": (1, {
        f"adjoint/nn/{name}.py": "class Same:\n    pass\n" for name in "abc"
    }),
    "file names in 3 folders or more": (1, {f"adjoint/nn/{name}/same.py": "" for name in "abc"}),
    "docstrings without a noun or verb in front, %": (50, {
        "adjoint/nn/said.py": "def f():\n    '''What was there before.'''\n"
        "def g():\n    '''The sum.'''\n"
    }),
    "variables called found": (1, {
        "adjoint/nn/x.py": "found = 1\n", "adjoint/ir/x.py": "found = 1\n"
    }),
    "longest paragraph of docs, words": (1, {
        "docs/long.md": """
            ```
            words of code that do not count at all
            ```
            | words of a table that do not count | at | all |

            1. four words are here
            - here are five,
              or so
            """
    }),
    "annotations that are Any in core, %": (50, {
        "adjoint/core/tensor_type.py": "Value = Any\n",
        "adjoint/core/x.py": """
            from .tensor_type import Value
            def f(a: Any, b: Value | None, c: Any | None, *, d: int, e: Value) -> "int": ...
            def g(a: list[Any], b: int): ...
            """,
    }),
    "type: ignore": (1, {"adjoint/nn/x.py": "x: int = ''  # type: ignore[assignment]\n"}),
    "modes set outside of their try": (4, {
        "adjoint/nn/x.py": """
            def before(mode):
                MODE.set(mode)
                try:
                    yield
                finally:
                    MODE.set(outside)
            def token():
                token = OTHER.set(1)
                try:
                    yield
                finally:
                    OTHER.reset(token)
            def another():
                try:
                    MODE.set(1)
                finally:
                    OTHER.set(1)
            def inner():
                try:
                    def f():
                        mode.MODE.set(1)
                finally:
                    MODE.set(1)
            def inside(self):
                try:
                    if self:
                        MODE.set(1)
                    with self:
                        token = OTHER.set(1)
                finally:
                    OTHER.reset(token)
                    MODE.set(outside)
            def none(event):
                event.set(1)
            class A:
                def __exit__(self, *args):
                    MODE.set(self.outside)
            """
    }),
}  # fmt: skip


def test_each_count_is_shown_to_rise(house):
    named = {count.name for count in house.COUNTS}
    others = {name for name in named if name.startswith("annotations")}
    assert named - others == {name for name in RISES if not name.startswith("annotations")}


@pytest.mark.parametrize("name", RISES)
def test_a_count_rises(house, tmp_path, name):
    count = next(each for each in house.COUNTS if each.name == name)
    write(tmp_path, SMALL)
    before = count.result(house.read_house(tmp_path, {"files": {}})).value
    by, files = RISES[name]
    write(tmp_path, files)
    after = count.result(house.read_house(tmp_path, {"files": {}}))
    assert after.value - before == by
    assert list(files)[-1] in {item.file for item in after.items}


def test_the_small_tree_is_in_order(house, tmp_path):
    write(tmp_path, SMALL)
    small = house.read_house(tmp_path, {"files": {}})
    counts = {count.name: count.result(small).value for count in house.COUNTS}
    assert counts["folders at the top"] == 2
    assert counts["pairs of rooms"] == 3  # __main__ to the face, the face to nn, nn to core
    assert counts["imports against the order"] == 0
    assert counts["circles of rooms"] == 0
    assert counts["largest circle of files"] == 0


def few(house):
    kept = ("files at the top", "type: ignore")
    return [count._replace(limit=1) for count in house.COUNTS if count.name in kept]


def test_a_limit_that_is_exceeded_names_the_new_file_and_what_to_do(house, tmp_path, capsys):
    write(tmp_path, {**SMALL, "adjoint/old.py": "x = 1  # type: ignore[misc]\n"})
    assert house.check(tmp_path, few(house)) == []
    write(tmp_path, {"adjoint/nn/new.py": "x = 1  # type: ignore[misc]\n"})
    said = "\n".join(house.check(tmp_path, few(house)))
    assert "type: ignore: 2, limit 1; give the types" in said
    assert "adjoint/nn/new.py:1: x = 1" in said
    assert "old.py" not in said
    assert "over" in capsys.readouterr().out
    (tmp_path / house.CACHE).unlink()  # with no run before, all of them are named
    said = "\n".join(house.check(tmp_path, few(house)))
    assert "adjoint/nn/new.py:1" in said
    assert "adjoint/old.py:1" in said


def test_the_command_fails_and_shows_files(house, tmp_path, capsys, monkeypatch):
    write(tmp_path, {**SMALL, "adjoint/one.py": "", "adjoint/two.py": ""})
    monkeypatch.setattr(house, "COUNTS", few(house))
    monkeypatch.setattr(house.check, "__defaults__", (house.COUNTS,))
    monkeypatch.setattr(house.show_files, "__defaults__", (house.COUNTS,))
    assert house.main([], tmp_path) == 1
    assert "adjoint/two.py:1" in capsys.readouterr().err
    assert house.main(["--files", "files at"], tmp_path) == 0
    assert "  adjoint/one.py:1: one" in capsys.readouterr().out
    assert house.main(["--files", "nothing"], tmp_path) == 1
    assert "no count is called 'nothing'" in capsys.readouterr().err


def test_what_is_kept_gives_the_same_and_reads_only_what_has_changed(
    house, tmp_path, monkeypatch, capsys
):
    write(tmp_path, SMALL)
    house.check(tmp_path)
    first = capsys.readouterr().out
    read = []
    facts = house.facts_of_module
    monkeypatch.setattr(
        house, "facts_of_module", lambda path, text: read.append(path) or facts(path, text)
    )
    house.check(tmp_path)
    assert capsys.readouterr().out == first
    assert read == []
    write(tmp_path, {"adjoint/nn/layers.py": "x = 1  # type: ignore[misc]\n"})
    house.check(tmp_path)
    assert read == ["adjoint/nn/layers.py"]
    changed = capsys.readouterr().out
    (tmp_path / house.CACHE).write_text("{ half a file")
    house.check(tmp_path)
    assert capsys.readouterr().out == changed != first


def test_circles_are_groups_in_which_each_reaches_each(house):
    pairs = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d"), ("e", "f")]
    assert house.circles(pairs) == [["a", "b", "c"], ["d", "e"]]
    assert house.circles([("a", "b"), ("a", "c"), ("b", "c")]) == []
    long = [(f"{each:06}", f"{each + 1:06}") for each in range(100_000)]
    assert house.circles(long) == []
    assert len(house.circles([*long, ("100000", "000000")])[0]) == 100_001
