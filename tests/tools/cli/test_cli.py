"""The command: demo (shortened), info, errors, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import adjoint as ad
from adjoint.tools.cli import info
from adjoint.tools.cli.main import main


@pytest.fixture
def smoke(monkeypatch, tmp_path):
    for name in ("sklearn", "matplotlib", "tqdm"):
        pytest.importorskip(name)
    monkeypatch.setenv("ADJOINT_SMOKE", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs" / "digits"


def test_demo_shortened(smoke, capsys):
    assert main(["demo"]) == 0
    text = capsys.readouterr().out
    assert "A new process read it back and predicts exactly the same." in text
    assert "What to try next" in text
    first = text.split("Test accuracy: ")[1].split(" after")[0]
    saved = ad.load(smoke / "model.safetensors")
    assert first == f"{saved['accuracy']:.2%}"
    assert (smoke / "digits.png").read_bytes().startswith(b"\x89PNG")
    assert main(["demo"]) == 0  # again: the same number
    assert capsys.readouterr().out.split("Test accuracy: ")[1].split(" after")[0] == first
    assert main(["demo", "--predict", str(smoke / "model.safetensors")]) == 0
    assert f"{saved['accuracy']:.2%} of 360 test images right" in capsys.readouterr().out


def test_demo_errors(smoke, capsys):
    assert main(["demo", "--predict", "missing.safetensors"]) == 1
    assert "No such file" in capsys.readouterr().err
    ad.save([1], "other.safetensors")
    assert main(["demo", "--predict", "other.safetensors"]) == 1
    assert "is no checkpoint of `adjoint demo`" in capsys.readouterr().err
    ad.save({"model": {"x": ad.ones(1)}}, "other.safetensors")
    assert main(["demo", "--predict", "other.safetensors"]) == 1
    assert "Missing key(s)" in capsys.readouterr().err


def test_missing_libraries_are_named(monkeypatch, capsys, tmp_path):
    found = info.importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *a: None if name == "tqdm" else found(name, *a)
    )
    assert main(["demo", "--out", str(tmp_path)]) == 1
    assert "needs tqdm, not installed here; install with: pip install 'adjoint[demo]'" in (
        capsys.readouterr().err
    )


def test_digits_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(NotImplementedError, match=r"adjoint\[demo\]"):
        ad.data.digits()


@pytest.mark.parametrize("arguments", [["dance"], ["demo", "--epochs", "0"]])
def test_wrong_arguments(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: adjoint" in capsys.readouterr().err


def test_info(capsys):
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    for part in (ad.__version__, "numpy", "threads", "instructions", "ADJOINT_SMOKE"):
        assert part in text
    assert main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["adjoint"] == ad.__version__ and "numpy" in facts["backends"]


def test_processor_reads_cpuinfo(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel name\t: Fast 9\nflags\t\t: fpu avx2 amx_bf16\n")
    assert info.processor(str(file)) == ("Fast 9", {"fpu", "avx2", "amx_bf16"})
    assert info.processor(str(tmp_path / "none"))[1] == set()


def test_as_a_module():
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(ad.__file__))}
    command = [sys.executable, "-m", "adjoint", "--version"]
    result = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert result.stdout == f"adjoint {ad.__version__}\n"
