"""Limits are in one file, each with what repeats its measurement; other files have none."""

from __future__ import annotations

import ast
import os
import pathlib
import re
import subprocess
import sys

import pytest

from adjoint.core import policy

ROOT = pathlib.Path(policy.__file__).parents[2]
PACKAGE = ROOT / "adjoint"

# Sizes that are no policy: what is laid out in machine code or fixed by others' interfaces; and
# those of files that wait for `policy` to be wired (their values are held equal below).
NOT_POLICY = {
    "autograd/gradcheck.py": {"FULL"},
    "backends/native/attention/eager_attention.py": {"SPAN_FEATURES"},
    "backends/native/attention/attention_code.py": {"FILLED", "LARGEST"},
    "backends/native/attention/tile_passes.py": {"BLOCK"},
    "backends/native/runtime/block_cache.py": {"HUGE", "_MARGIN", "_OCTAVES"},
    "backends/native/indexing/copies.py": {"LINE", "LOOPS", "TILES"},
    "backends/native/random/random_code.py": {"BLOCKS", "_HEADER"},
    "backends/codegen/cache.py": {"_LINKS", "_SIZE"},
    "backends/codegen/triton.py": {
        "ALIGNED", "BLOCK", "CHANNEL", "COLUMNS", "OFFSETS", "PROGRAMS", "ROW", "ROWS", "TILE",
    },
    "backends/native/gemm/gemm_code.py": {
        "BAND", "CONFLICTING", "DEPTH", "FAR_AHEAD", "FEW", "LARGE", "NARROW", "ROWS",
        "SMALL_RIGHT", "TASK_WORDS", "TURNED_LEFT", "WIDTH",
    },
    "backends/native/indexing/movement.py": {"SEGMENT", "TILE", "UNROLLED"},
    "backends/native/lowering/multi_tensor.py": {"_LENGTH"},
    "backends/native/onednn/newton_schulz.py": {"FEW", "TILE"},
    "backends/native/onednn/api.py": {
        "FORMAT_ANY", "MAJOR", "MAX_DIMS", "MULTIPLE", "QUERY_IMPLEMENTATION", "_UNIMPLEMENTED",
    },
    "backends/native/onednn/convolution_plans.py": {"BLOCK"},
    "backends/native/onednn/plan.py": {"_ALIGNMENT"},
    "backends/native/onednn/pooling_plans.py": {"BLOCK"},
    "backends/native/recurrent/tiles.py": {"LINE", "MOST_ROWS"},
    "backends/native/lowering/machine_routines.py": {"LANES"},
    "backends/native/gemm/tiles.py": {"ITEM"},
    "backends/native/gemm/triangular.py": {"BLOCK", "GROUP", "SPEED"},
    "backends/native/runtime/worker_loop.py": {
        "MAX_THREADS", "_FUTEX_PRIVATE", "_INSIDE", "_OPEN", "_WAITING",
    },
    "backends/native/random/ziggurat.py": {"LAYERS", "_NEAR"},
    "backends/codegen/analysis.py": {"MUCH"},
    "backends/codegen/columns.py": {"FOLD", "TOGETHER"},
    "backends/codegen/lower.py": {"FOLD"},
    "backends/codegen/maths.py": {"LONG"},
    "backends/codegen/schedule.py": {"TALL", "WIDE"},
    "core/arrays.py": {"_DEEP", "_MOST"},
    "compiler/schedule/buffers.py": {"ALIGNMENT"},
    "compiler/freeze/performance_report.py": {"_ARRAY"},
    "compiler/freeze/program.py": {"EXPLAINED", "LONG"},
}  # fmt: skip
WAITING = {
    ("backends/native/lowering/multi_tensor.py", "CHUNK"): "OPTIMIZER_CHUNK",
    ("backends/native/lowering/multi_tensor.py", "_TABLES"): "OPTIMIZER_TABLES",
    ("backends/codegen/run.py", "QUICK"): "KERNEL_QUICK",
}
NUMBERS_IN_PLACE = {"INTERNED", "INTERNED_TYPED"}  # as yet


def sizes(path: pathlib.Path) -> dict[str, int]:
    """The constants of a module that are whole numbers, written as such."""
    found = {}
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            source = ast.unparse(statement.value)
            if name.isupper() and re.fullmatch(r"[\d\s()*+<-]+", source):
                found[name] = eval(source)
    return found


def test_files_have_no_limits_of_their_own() -> None:
    for folder in (
        "autograd", "backends/codegen", "backends/native", "compiler/freeze", "compiler/passes",
        "compiler/schedule", "core", "ir", "optim", "runtime",
    ):  # fmt: skip
        for path in sorted((PACKAGE / folder).glob("*.py")):
            name = str(path.relative_to(PACKAGE))
            waiting = {constant for file, constant in WAITING if file == name}
            found = sizes(path).keys() - waiting - NOT_POLICY.get(name, set())
            assert not found, f"{name}: {sorted(found)} belong into core/policy.py"


def test_those_that_wait_have_the_same_value() -> None:
    for (file, name), limit in WAITING.items():
        found = sizes(PACKAGE / file).get(name)
        assert found in (None, policy.LIMITS[limit].value), (file, name)


def test_every_limit_is_read() -> None:
    text = " ".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    read = {name for name in policy.LIMITS if re.search(rf"policy\.{name}\b", text)}
    assert policy.LIMITS.keys() - read <= set(WAITING.values()) | NUMBERS_IN_PLACE


def test_every_limit_is_an_attribute_with_a_comment_before_it() -> None:
    lines = pathlib.Path(policy.__file__).read_text()
    for name in policy.LIMITS:
        assert isinstance(getattr(policy, name), int)
        assert re.search(rf"^{name} = _(threshold|bound)\(", lines, re.M), name


def test_measurements_can_be_repeated() -> None:
    pytest.importorskip("torch")
    from benchmarks.operations import beside, rows

    labels = [f"{row.family}: {row.label}" for row in (*rows(), *beside())]
    benchmarks = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    for name, (_, repeat) in policy.LIMITS.items():
        if not repeat:
            continue
        assert repeat.split()[0] in benchmarks, name
        pattern = re.search(r"operations --rows (\S+)", repeat)
        assert pattern is None or any(re.search(pattern[1], label) for label in labels), name


def run(limits: str) -> subprocess.CompletedProcess[str]:
    program = "from adjoint.core import policy; print(policy.PARALLEL, policy.VARIANTS)"
    environment = {**os.environ, "ADJOINT_LIMITS": limits}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, cwd=ROOT
    )


def test_limits_can_be_set_from_outside() -> None:
    assert run("").stdout.split() == ["32768", "8"]
    assert run("PARALLEL=0,VARIANTS=3").stdout.split() == ["0", "3"]
    assert "ADJOINT_LIMITS: 'PARALLEL'; write NAME=number" in run("PARALLEL").stderr
    assert "ADJOINT_LIMITS: PARALEL; there are LARGE" in run("PARALEL=3").stderr
