"""Compiled or interpreted: which of the core's files run, and that both say the same."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import adjoint as ad
from adjoint import extensions

ROOT = Path(ad.__file__).parent.parent

PROGRAM = """
import json, sys, zlib
import numpy as np
import adjoint as ad
from adjoint.ir import executable
ad.manual_seed(0)
bits = []
for shape in ((), (1,), (3, 5), (0, 4), (15,), (70, 70)):
    for dtype in (ad.float32, ad.float64, ad.bfloat16, ad.int64):
        for run in range(3):
            x = (ad.arange(1, 1 + int(np.prod(shape))).reshape(shape) / 7).to(dtype)
            x.requires_grad_(dtype.is_floating_point)
            y = x * 2 + x.t() if len(shape) == 2 and shape[0] == shape[1] else x * x - x
            z = ad.cat([y.reshape(-1), y.flatten()])
            if x.requires_grad:
                z = z.softmax(-1).exp() @ ad.ones_like(z)
                z.backward()
                bits.append(zlib.crc32(x.grad.detach().double().numpy().tobytes()))
            bits.append(zlib.crc32(z.detach().double().numpy().tobytes()))
model = ad.nn.Sequential(ad.nn.Linear(6, 9), ad.nn.Tanh(), ad.nn.Linear(9, 3))
optimizer = ad.optim.Adam(model.parameters())
for step in range(4):
    optimizer.zero_grad()
    loss = ad.nn.functional.cross_entropy(model(ad.randn(5, 6)), ad.arange(5) % 3)
    loss.backward()
    optimizer.step()
    bits.append(loss.item())
print(json.dumps([ad.extensions.state(), bits, sorted(executable.counts().items())]))
"""


def run(compiled: str) -> list:
    environment = {**os.environ, "ADJOINT_COMPILED": compiled}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, cwd=ROOT
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout.splitlines()[-1])


@pytest.mark.skipif(extensions.state() != "compiled", reason=f"the core is {extensions.state()}")
def test_compiled_and_interpreted_give_the_same_bits_and_keep_the_same():
    compiled, interpreted = run("1"), run("0")
    assert compiled[0] == "compiled"
    assert interpreted[0] == "interpreted: ADJOINT_COMPILED=0"
    assert compiled[1:] == interpreted[1:]


@pytest.mark.parametrize("name", extensions.MODULES)
def test_the_examples_in_the_docs_of_compiled_files(name):
    module = importlib.import_module(name)
    names = {**vars(module), "ad": ad, "np": np}
    result = doctest.testmod(module, globs=names, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_each_compiled_file_has_its_types():
    for name in extensions.MODULES:
        file = ROOT / (name.replace(".", "/") + ".py")
        assert file.exists()
        assert file.with_suffix(".pxd").exists()
        assert importlib.util.find_spec(name) is not None


def test_an_extension_older_than_its_source_does_not_run(tmp_path):
    for name in sorted({name.split(".")[1] for name in extensions.MODULES}):
        shutil.copytree(
            ROOT / "adjoint" / name, tmp_path / "adjoint" / name,
            ignore=shutil.ignore_patterns("__pycache__"),
        )  # fmt: skip
    (tmp_path / "adjoint" / "__init__.py").write_text("from .core import extensions\n")
    note = tmp_path / "adjoint" / extensions.NOTE
    note.write_text(extensions.source_hash(tmp_path / "adjoint") + "\n")
    says = "import adjoint; print(adjoint.extensions.state())"

    def state() -> tuple[str, str]:
        found = subprocess.run(
            [sys.executable, "-c", says], cwd=tmp_path, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path), "ADJOINT_COMPILED": ""},
        )  # fmt: skip
        return found.stdout.strip(), found.stderr

    assert state() == ("compiled", "")
    with open(tmp_path / "adjoint" / "core" / "tensor_base.py", "a") as file:
        file.write("\n# changed\n")
    said, warning = state()
    assert said == "interpreted: the extensions are older than their sources"
    assert "build it again" in warning
    note.unlink()
    assert state()[0].startswith("interpreted: no extensions were built")


def test_info_says_which_it_is(capsys):
    from adjoint.tools.cli.main import main

    main(["info", "--json"])
    assert json.loads(capsys.readouterr().out)["core"] == ad.extensions.state()


@pytest.fixture
def builder():
    spec = importlib.util.spec_from_file_location("builder", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_step_of_building_that_was_interrupted_is_known_to_the_next(
    builder, monkeypatch, tmp_path
):
    monkeypatch.setattr(builder, "ROOT", tmp_path)

    def step(error: type[BaseException] | None = None) -> bool:
        with builder.marked("step") as interrupted:
            if error is not None:
                raise error
        return interrupted

    assert not step()
    with pytest.raises(KeyboardInterrupt):
        step(KeyboardInterrupt)
    assert step()
    assert not step()


def test_nothing_is_compiled_where_the_core_is_to_run_interpreted(builder, monkeypatch):
    monkeypatch.setenv("ADJOINT_COMPILED", "0")
    assert builder.made() == []
