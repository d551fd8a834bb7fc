"""The folder in which other processes find `torch`: whose it is, and how long it stays."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import adjoint as ad
from adjoint.torch_api.alias import path_entry
from adjoint.torch_api.alias.path_entry import METADATA, files

ROOT = Path(ad.__file__).parents[1]
CHILD = "import torch, importlib.metadata as m; print(torch.nn.__name__, m.version('torch'))"
PROGRAM = f"""
import os, subprocess, sys, adjoint
torch = adjoint.as_torch()
child = subprocess.run([sys.executable, "-c", {CHILD!r}], capture_output=True, text=True)
assert child.stdout.split() == ["adjoint.nn", torch.__version__], child.stderr
print(os.path.dirname(os.path.dirname(torch.__file__)))
"""


def started(program, **environment):
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program], text=True, cwd=ROOT,
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip


def printed(program, **environment):
    process = started(program, **environment)
    text = process.communicate()[0]
    assert process.returncode == 0
    return text.strip()


@pytest.fixture
def fresh():
    path_entry.folder.cache_clear()
    yield
    path_entry.folder.cache_clear()


def holds_all(folder):
    return all((Path(folder) / name).read_bytes() == text for name, text in files().items())


def test_no_file_of_the_package_is_a_module_of_pytorchs_name():
    package = Path(ad.__file__).parent
    names = {path.relative_to(package).as_posix() for path in package.rglob("*.py")}
    assert [n for n in names if n.endswith("/torch/__init__.py")] == ["backends/torch/__init__.py"]
    assert not (package / "backends" / METADATA).exists()


def test_it_is_the_users_alone_and_written_once(tmp_path, fresh, monkeypatch):
    monkeypatch.setenv("ADJOINT_CACHE_DIR", str(tmp_path))
    folder = Path(path_entry.folder())
    assert folder.parent == tmp_path and holds_all(folder)
    for path in (folder, *folder.rglob("*")):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o022, path
    written = {path: path.stat().st_ino for path in folder.rglob("*")}
    path_entry.folder.cache_clear()
    assert path_entry.folder() == str(folder)
    assert written == {path: path.stat().st_ino for path in folder.rglob("*")}


def test_what_is_damaged_is_written_again(tmp_path, fresh, monkeypatch):
    monkeypatch.setenv("ADJOINT_CACHE_DIR", str(tmp_path))
    folder = Path(path_entry.folder())
    (folder / "torch" / "__init__.py").write_text("raise SystemExit\n")
    (folder / METADATA / "METADATA").unlink()
    path_entry.folder.cache_clear()
    path_entry.folder()
    assert holds_all(folder)


@pytest.mark.parametrize("part", ["", "torch", METADATA])
def test_where_others_can_write_it_is_not_used(tmp_path, fresh, monkeypatch, part):
    monkeypatch.setenv("ADJOINT_CACHE_DIR", str(tmp_path))
    folder = Path(path_entry.folder())
    (folder / part).chmod(0o777)
    path_entry.folder.cache_clear()
    other = Path(path_entry.folder())
    assert other.name.startswith("adjoint-torch-") and holds_all(other)
    path_entry._remove(other, os.getpid())
    assert not other.exists()


def test_a_link_of_a_files_name_is_replaced_and_not_followed(tmp_path, fresh, monkeypatch):
    monkeypatch.setenv("ADJOINT_CACHE_DIR", str(tmp_path / "cache"))
    folder = Path(path_entry.folder())
    mine = tmp_path / "mine.py"
    mine.write_text("x = 1\n")
    (folder / "torch" / "__init__.py").unlink()
    (folder / "torch" / "__init__.py").symlink_to(mine)
    path_entry.folder.cache_clear()
    path_entry.folder()
    assert mine.read_text() == "x = 1\n" and holds_all(folder)
    assert not (folder / "torch" / "__init__.py").is_symlink()


def test_several_processes_at_once(tmp_path):
    processes = [started(PROGRAM, ADJOINT_CACHE_DIR=str(tmp_path)) for _ in range(4)]
    folders = {process.communicate()[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0] * 4
    (folder,) = folders
    assert holds_all(folder) and Path(folder).parent == tmp_path


def test_without_a_cache_it_is_temporary_and_goes_with_the_process(tmp_path):
    """As where the home can only be read; children have the folder of the process above them."""
    settings = {"ADJOINT_CACHE_DIR": "", "TMPDIR": str(tmp_path)}
    folder = Path(printed(PROGRAM, **settings))
    assert folder.parent == tmp_path and not list(tmp_path.iterdir())
    forking = f"import os; {PROGRAM.strip()}\nif os.fork() == 0: sys.exit()\nos.wait()\n"
    forking += "assert os.path.exists(torch.__file__)"
    printed(forking, **settings)
    assert not list(tmp_path.iterdir())


def test_without_any_folder_it_is_refused(fresh, monkeypatch):
    monkeypatch.setenv("ADJOINT_CACHE_DIR", "")

    def fails(prefix):
        raise FileNotFoundError("No usable temporary directory")

    monkeypatch.setattr("tempfile.mkdtemp", fails)
    with pytest.raises(ad.Unsupported, match="set ADJOINT_CACHE_DIR or TMPDIR"):
        path_entry.folder()
