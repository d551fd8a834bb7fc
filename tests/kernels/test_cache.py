"""The disk cache: kept kernels are used, unless they could be anybody else's or are damaged."""

import os
import subprocess
import sys

import pytest

from adjoint.kernels import cache

NAME = "a" * 64


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("ADJOINT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def test_reads_what_was_written(place):
    assert cache.read(NAME) is None
    cache.write(NAME, b"code")
    assert cache.read(NAME) == b"code"
    assert place.stat().st_mode & 0o777 == 0o700
    assert (place / NAME).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("at", [0, 5, 17, 20, 48, 49, -1])
def test_a_changed_byte_makes_a_file_absent(place, at):
    cache.write(NAME, b"some code")
    content = bytearray((place / NAME).read_bytes())
    content[at] ^= 1
    (place / NAME).write_bytes(content)
    assert cache.read(NAME) is None


def test_truncated_renamed_and_empty_files_are_absent(place):
    cache.write(NAME, b"some code")
    content = (place / NAME).read_bytes()
    for size in range(len(content)):
        (place / NAME).write_bytes(content[:size])
        assert cache.read(NAME) is None
    (place / ("b" * 64)).write_bytes(content)
    assert cache.read("b" * 64) is None


def test_files_that_others_could_have_written_are_absent(place, monkeypatch, tmp_path):
    cache.write(NAME, b"code")
    for mode in (0o620, 0o602, 0o666):
        (place / NAME).chmod(mode)
        assert cache.read(NAME) is None
    (place / NAME).chmod(0o600)
    assert cache.read(NAME) == b"code"
    for mode in (0o770, 0o707):
        place.chmod(mode)
        assert cache.directory() is None
        assert cache.read(NAME) is None
    place.chmod(0o700)
    (tmp_path / "elsewhere").write_bytes((place / NAME).read_bytes())
    (place / NAME).unlink()
    (place / NAME).symlink_to(tmp_path / "elsewhere")
    assert cache.read(NAME) is None
    (place / NAME).unlink()
    os.mkfifo(place / NAME, 0o600)
    assert cache.read(NAME) is None
    monkeypatch.setattr(cache, "_user", lambda: os.geteuid() + 1)
    assert cache.directory() is None


def test_a_linked_directory_is_not_used(place, tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    place.parent.mkdir()
    place.symlink_to(tmp_path / "real")
    assert cache.directory() is None


def test_without_a_place_nothing_is_kept(monkeypatch, place, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ADJOINT_CACHE_DIR", str(tmp_path / "file" / "below"))
    cache.write(NAME, b"code")
    assert cache.read(NAME) is None
    monkeypatch.setenv("ADJOINT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("ADJOINT_CACHE_BYTES", "0")
    cache.write(NAME, b"code")
    assert not place.exists()


def test_the_oldest_used_are_removed_when_there_is_too_much(place, monkeypatch):
    monkeypatch.setenv("ADJOINT_CACHE_BYTES", "4000")
    monkeypatch.setattr(cache, "_written", 0)
    names = [f"{k:064x}" for k in range(8)]
    for age, name in enumerate(names[:6]):
        cache.write(name, bytes(500))
        os.utime(place / name, (1000 + age, 1000 + age))
    assert cache.read(names[0]) is not None  # used: newer than the others
    for name in names[6:]:
        cache.write(name, bytes(500))
    assert {path.name for path in place.iterdir()} == {names[k] for k in (0, 4, 5, 6, 7)}


def test_left_over_temporary_files_are_removed_too(place, monkeypatch):
    monkeypatch.setenv("ADJOINT_CACHE_BYTES", "2000")
    monkeypatch.setattr(cache, "_written", 0)
    cache.write(NAME, bytes(100))
    (place / ".left").write_bytes(bytes(5000))
    os.utime(place / ".left", (1, 1))
    cache.write("b" * 64, bytes(500))
    assert not (place / ".left").exists()


PROGRAM = """
import sys, numpy as np
from adjoint.kernels import Compiled, Kernel, target
compiles = []
compile = target.Target.compile
def counted(self, text):
    compiles.append(text)
    return compile(self, text)
target.Target.compile = counted
x = np.arange(1000, dtype=np.float32)
for n in range(6):  # and what calls them
    k = Kernel(rank=1)
    k.output(k.input("float32") * n + n)
    assert (Compiled(k)(x) == x * n + n).all()
print(len(compiles))
"""


def run(**environment):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def compiled_by(process):
    out, error = process.communicate()
    assert process.returncode == 0, error
    return int(out)


def test_processes_at_once_and_then_one_that_starts_warm(place):
    together = [run() for _ in range(2)]
    assert all(0 <= compiled_by(process) <= 6 for process in together)
    assert compiled_by(run()) == 0
    for path in place.iterdir():
        path.write_bytes(path.read_bytes()[:-3] + b"bad")
    assert compiled_by(run()) == 6


def test_names_depend_on_everything_given_and_on_the_compiler(monkeypatch):
    name = cache.digest("kernel", "layout")
    assert len(name) == 64 and name == cache.digest("kernel", "layout")
    assert name != cache.digest("kernellayout") != cache.digest("kernel", "layou", "t")
    monkeypatch.setattr(cache, "_sources", lambda: "another version")
    assert name != cache.digest("kernel", "layout")
