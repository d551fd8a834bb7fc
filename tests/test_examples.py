"""Every example runs in smoke form, prints its figure, and its full run is on record."""

from __future__ import annotations

import importlib.util
import math
import os
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
NOT_PROGRAMS = {"record_results", "interleaved"}
PROGRAMS = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem not in NOT_PROGRAMS)
ON_RAY = {"ray_digits", "elastic_digits"}  # a cluster each, which takes most of a minute
WITHOUT_FIGURE = {"digits"}  # the program behind `adjoint demo`, tested with it


def recorder():
    spec = importlib.util.spec_from_file_location("recorder", EXAMPLES / "record_results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.sweep) if n in ON_RAY else n for n in PROGRAMS]
)
def test_example_runs_in_smoke_form(name, tmp_path, programs):
    path = EXAMPLES / f"{name}.py"
    for library in re.findall(
        r"^(?:import|from) (sklearn|gymnasium|ray|timm|transformers)\b", path.read_text(), re.M
    ):
        pytest.importorskip(library)
    source = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH")) if p)
    more = {"HOME": str(tmp_path)} if name in ON_RAY else {}  # where Ray writes
    result = programs.run(path, tmp_path, UserWarning, ADJOINT_SMOKE="1", PYTHONPATH=source, **more)
    assert result.returncode == 0, result.stderr
    if name not in WITHOUT_FIGURE:
        _, printed, _ = recorder().figure_of(path, result.stdout)
        assert math.isfinite(float(printed))


def test_every_example_expects_a_figure():
    assert set(recorder().examples()) == set(PROGRAMS) - WITHOUT_FIGURE


def test_full_runs_on_record_reached_their_figures():
    """The recorded rows are those of today's programs: same figures, none missing."""
    page = (ROOT / "docs" / "measurements" / "examples.md").read_text()
    rows = dict(re.findall(r"^\| (\w+) \| `(.*)$", page, re.M))
    assert set(rows) == set(recorder().examples())
    for name, path in recorder().examples().items():
        figure = recorder().EXPECTED.search(path.read_text())[1]
        _, _, expected, reached, _ = (cell.strip() for cell in rows[name].split("|")[:5])
        now, _, good = recorder().figure_of(path, f"{figure}: {reached}\n")
        assert expected == now and good, name


def test_the_list_of_examples_is_complete():
    page = (ROOT / "docs" / "examples.md").read_text()
    assert set(re.findall(r"^\| `examples/(\w+)\.py`", page, re.M)) == set(PROGRAMS)
