"""Type checkers know what users' programs do, with the package as a wheel has it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WRONG = """\
import adjoint as ad
import adjoint.nn.functional as F
from adjoint import nn

ad.randnn(2, 3)
ad.ones(2).sumx()
nn.Linearr(2, 3)
F.relux(ad.ones(2))
ad.optim.Adamm([])
ad.linalg.normm(ad.ones(2))
nn.Linear(2, 3)("text")


@ad.compile
def twice(x: ad.Tensor) -> ad.Tensor:
    return 2 * x


twice("text")
ad.zeros(2, dtype=3)
ad.ones(2).sum(dim=1.5)
F.conv2d(ad.ones(1, 1, 2, 2), ad.ones(1, 1, 1, 1), stride="two")
nn.TransformerEncoderLayer(2, 1)("text")
number: int = nn.TransformerEncoderLayer(2, 1)(ad.ones(1, 2))
twice.reason
nn.LSTM(2, 3)("text")
ad.compile(nn.Linear(2, 2))("text")
output: int = nn.GRU(2, 3)(ad.ones(1, 2))[0]
"""
WRONG_LINES = [5, 6, 7, 8, 9, 10, 11, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28]
RIGHT = """\
from collections.abc import Callable
from typing import Any

import adjoint as ad
from adjoint import nn

total: ad.Tensor = ad.sum(ad.ones(2, 2), axis=1, keepdims=True)
again: ad.Tensor = ad.ones(2, 2).sum(dim=1).add_(1).relu()
ad.add(total, 1, out=again)
values: ad.Tensor = ad.max(ad.ones(2, 2), 1).values
largest: ad.Tensor = ad.max(total)
number: int | float = total.item() + 1
equal: ad.Tensor = total == 1
moved: nn.Linear = nn.Linear(2, 2).to("cpu").eval()
result: ad.Tensor = moved(ad.Tensor([[1, 2]]))


class Twice(nn.Module):
    def forward(self, x: ad.Tensor, times: int = 2) -> tuple[ad.Tensor, int]:
        return x * times, times


doubled: tuple[ad.Tensor, int] = Twice()(total, times=3)


@ad.compile(fullgraph=True)
def thrice(x: ad.Tensor, n: int) -> ad.Tensor:
    return x * n


three: ad.Tensor = thrice(total, n=3)
class Model:
    @ad.compile
    def step(self, x: ad.Tensor, n: int = 1) -> ad.Tensor:
        return x * n


why: list[str] = thrice.reasons + Model().step.reasons
slowest: list[str] = [row.name for row in thrice.explain(total, n=3).rows]
stepped: ad.Tensor = Model().step(total, n=2)
told: str = Model.step.explain(Model(), total).table()
linear = ad.compile(moved, dynamic=True)
mapped: ad.Tensor = linear(total)
report: str = linear.explain(total).table()
packed = nn.utils.rnn.pack_sequence([ad.ones(4, 2), ad.ones(3, 2)])
sequences: nn.utils.rnn.PackedSequence = nn.GRU(2, 3)(packed)[0]
outputs, (hidden, state) = nn.LSTM(2, 3)(ad.ones(4, 1, 2))
known: tuple[ad.Tensor, ad.Tensor, ad.Tensor] = (outputs, hidden, state)
cell: ad.Tensor = nn.GRUCell(2, 3)(total)
written: ad.Tensor = ad.zeros(2, 3, dtype="float64", device="cpu").sum((0, 1)).to(ad.float32)
layers: list[Callable[[ad.Tensor], Any]] = [nn.Linear(2, 2), nn.Sequential(), Twice()]
attended: ad.Tensor = nn.MultiheadAttention(2, 1)(total, total, total)[0]


class Cube(ad.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: ad.Tensor) -> ad.Tensor:
        return x**3

    @staticmethod
    def backward(ctx: Any, g: ad.Tensor) -> ad.Tensor:
        return 3 * g


with ad.profiler.profile() as prof:
    pass
names: list[str] = [event.name for event in prof.events()]
"""
# What pyright finds in programs that run: what isinstance finds in a value of type Any holds the
# unknown.
FOUND = {"own_backend.py": ("Argument", "Return", "Type")}
OF_BARE_FUNCTIONS = ("[no-untyped-def]", "[no-untyped-call]")


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """What mypy knows of each program, its errors, and pyright's."""
    folder = tmp_path_factory.mktemp("types")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        user_types = importlib.import_module("user_types")
        user_types.install(folder / "package")
        programs = user_types.write_programs(folder / "programs")
        for name, text in (("wrong", WRONG), ("right", RIGHT)):
            programs.append(folder / "programs" / f"{name}.py")
            programs[-1].write_text(text)
        known, errors = user_types.known(folder, programs)
        second = user_types.pyright(folder, programs)
        out = {each.name: user_types.lines_left_out(each.read_text()) for each in programs}
        errors = [each for each in errors if not is_of_bare_function(each, out)]
    sys.modules.pop("user_types")
    return known, errors, second


def is_of_bare_function(error, out):
    """Whether an error is in a function without annotations, or says that there are none."""
    file, line, _ = error.split(":", 2)
    return error.endswith(OF_BARE_FUNCTIONS) or int(line) in out.get(Path(file).name, ())


def lines_of(errors, name):
    """Lines of a program that mypy finds errors in."""
    found = [each.split(":", 3) for each in errors if f"{name}.py:" in each and ": error:" in each]
    return sorted({int(line) for _, line, _, _ in found})


def test_at_most_a_tenth_of_the_expressions_is_unknown(checked):
    programs = [each for each in checked[0] if each.name not in ("wrong.py", "right.py")]
    total = sum(each.expressions for each in programs)
    assert total > 2500
    assert sum(len(each.unknown) for each in programs) / total <= 0.1


def test_mypy_finds_no_errors_in_programs(checked):
    errors = [each for each in checked[1] if ": error:" in each and "package/" not in each]
    assert [each for each in errors if "wrong.py" not in each] == []


def test_mypy_finds_no_errors_in_what_is_written_for_it(checked):
    errors = [each for each in checked[1] if "package/" in each and ": error:" in each]
    assert [each for each in errors if not each.endswith("[override]")] == []  # Tensor.__eq__


def test_pyright_finds_no_errors_and_nothing_unknown_in_programs(checked):
    found = [(name, text) for name, _, text in checked[2] if name != "wrong.py"]
    assert [(name, text) for name, text in found if not text.startswith(FOUND.get(name, ()))] == []
    assert {name for name, _ in found} == set(FOUND)


def test_both_see_wrong_names_attributes_and_arguments(checked):
    _, errors, second = checked
    assert lines_of(errors, "wrong") == WRONG_LINES
    assert sorted({line for name, line, _ in second if name == "wrong.py"}) == WRONG_LINES
