"""`adjoint shim`: a torch of adjoint's in a folder of packages, and out of it again."""

from __future__ import annotations

import csv
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

import adjoint as ad
from adjoint.tools.cli.main import main
from adjoint.torch_api.alias import shim
from adjoint.torch_api.alias.path_entry import folder

ROOT = Path(ad.__file__).parents[1]


@pytest.fixture
def alone(monkeypatch):
    """A path on which PyTorch is not."""
    monkeypatch.setattr(
        sys, "path", [each for each in sys.path if not Path(each, "torch").exists()]
    )


def test_there_and_gone(tmp_path, alone, capsys):
    folder = tmp_path / "packages"
    for _ in range(2):  # again renews it
        assert main(["shim", "--into", str(folder)]) == 0
    assert "torch-2.13.0.dist-info" in capsys.readouterr().out
    found = list(importlib.metadata.distributions(name="torch", path=[str(folder)]))
    assert [each.version for each in found] == ["2.13.0"]
    record = (folder / "torch-2.13.0.dist-info/RECORD").read_text()
    listed = {row[0] for row in csv.reader(record.splitlines())}
    there = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert listed == there
    program = (
        "import torch, importlib.metadata, subprocess, sys; assert torch.__version__ == '2.13.0'\n"
        "import adjoint; assert torch.nn is adjoint.nn and adjoint.as_torch() is torch\n"
        "assert importlib.metadata.version('torch') == '2.13.0'\n"
        "child = 'import torch.nn; assert torch.nn.__name__ == \"adjoint.nn\"'\n"
        "subprocess.run([sys.executable, '-c', child], check=True)"
    )
    path = os.pathsep.join((str(folder), str(ROOT)))
    subprocess.run(
        [sys.executable, "-W", "error", "-c", program], check=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert main(["shim", "--uninstall", "--into", str(folder)]) == 0
    assert not list(folder.iterdir())
    assert main(["shim", "--uninstall", "--into", str(folder)]) == 1
    assert "nothing is removed" in capsys.readouterr().err


def test_pytorch_is_left_alone(tmp_path, alone, monkeypatch):
    package, metadata = tmp_path / "torch", tmp_path / "torch-2.9.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0\n")
    (metadata / "INSTALLER").write_text("pip\n")
    for step in ("metadata", "package"):
        with pytest.raises(ad.Unsupported, match="PyTorch itself is installed"):
            shim.install(tmp_path)
        with pytest.raises(ad.Unsupported, match="no torch of adjoint's"):
            shim.uninstall(tmp_path)
        if step == "metadata":
            package.mkdir()
            (package / "__init__.py").write_text("from torch._C import *\n")
            (metadata / "METADATA").unlink()
            (metadata / "INSTALLER").unlink()
    assert (package / "__init__.py").exists() and metadata.exists()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    with pytest.raises(ad.Unsupported, match="PyTorch itself"):  # it would be found elsewhere
        shim.install(tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_the_path_of_children_is_none_of_pytorch(tmp_path, alone, monkeypatch):
    monkeypatch.setattr(sys, "path", [folder(), *sys.path])
    shim.install(tmp_path)
    assert (tmp_path / "torch" / "__init__.py").exists()


def test_pip_keeps_to_the_version(tmp_path, alone, monkeypatch, capsys):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "with space"))
    settings = tmp_path / ("pip.ini" if os.name == "nt" else "pip.conf")
    for _ in range(2):
        assert main(["shim"]) == 0 and "--constraint" not in capsys.readouterr().out
    constraints = settings.read_text().rpartition("constraint = ")[2].strip()
    assert constraints.startswith("file:///") and "with%20space" in constraints
    path = tmp_path / "with space" / "torch-2.13.0.dist-info" / "constraints.txt"
    assert path.read_text() == "torch==2.13.0\n"
    assert main(["shim", "--uninstall"]) == 0 and not settings.exists()
    settings.write_text("[global]\n")  # one's own is left alone, and one is told
    assert main(["shim"]) == 0 and "--constraint" in capsys.readouterr().out
    assert main(["shim", "--uninstall"]) == 0 and settings.read_text() == "[global]\n"


def test_without_an_environment(monkeypatch, capsys):
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert main(["shim"]) == 1
    assert "virtual environment" in capsys.readouterr().err
