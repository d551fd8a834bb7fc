"""Object code is kept by its text: sources that change without another text need no compiler."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from adjoint.backends.codegen import cache, target
from adjoint.core import debug

TEXT = "define i64 @k{name}() {{ ret i64 {value} }}"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADJOINT_CACHE_DIR", str(tmp_path))
    return tmp_path / "kernels"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that the compiler gets."""
    texts: list[str] = []
    compile = target.Target.compile

    def counted(self: target.Target, text: str) -> bytes:
        texts.append(text)
        return compile(self, text)

    monkeypatch.setattr(target.Target, "compile", counted)
    return texts


def call(address: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64)(address)()


def run(value: int, what: str = "test", host: str = "here") -> int:
    """What the function of a text returns, by both ways to load it."""
    name = cache.digest(what, host)
    text = TEXT.format(name=name, value=value)
    [address] = target.kept(name, lambda: text, f"k{name}")
    code = target.freed(name, lambda: text, f"k{name}")
    assert call(address) == call(code.address)
    return call(address)


def test_other_sources_of_the_same_text_call_no_compiler(place, compiled, monkeypatch):
    assert run(7) == 7 and len(compiled) == 1
    monkeypatch.setattr(cache, "_sources", lambda: "another version")
    assert run(7) == 7 and len(compiled) == 1
    assert len(list(place.iterdir())) == 4  # the key, the code, and its two names
    monkeypatch.setattr(cache, "_sources", lambda: "a version that writes other code")
    assert run(8) == 8 and len(compiled) == 2
    monkeypatch.setattr(cache, "_sources", lambda: "another version")
    assert run(7) == 7 and len(compiled) == 2


def test_kernels_of_the_same_text_share_their_code_and_are_linked_together(place, compiled):
    codes = []
    for number in range(3):
        name = cache.digest("kernel", str(number))
        text = TEXT.format(name=name, value=number // 2)
        codes.append(target.freed(name, lambda text=text: text, f"k{name}"))
    assert len(compiled) == 2
    assert [call(code.address) for code in codes] == [0, 0, 1]
    assert codes[0].address == codes[1].address
    del codes[0]
    assert call(codes[0].address) == 0


def test_another_compiler_or_processor_compiles_anew(place, compiled, monkeypatch):
    """What a text becomes depends on them as well."""
    assert run(7) == 7
    with monkeypatch.context() as changed:
        changed.setattr(cache, "_compiler", lambda: "another LLVM")
        changed.setattr(cache, "_sources", lambda: "another LLVM")
        assert run(7) == 7 and len(compiled) == 2
    digest = cache.text_digest("text", "name", "here")
    assert digest == cache.text_digest("text", "name", "here")
    assert digest != cache.text_digest("text", "name", "there")
    assert digest != cache.text_digest("texts", "name", "here")


def test_the_name_of_a_compiler_is_of_its_versions_and_of_the_source_that_calls_it(monkeypatch):
    compiler = cache._compiler.__wrapped__
    before = compiler()
    assert before == cache._compiler()
    with monkeypatch.context() as changed:
        changed.setattr(cache, "_versions", lambda: ("another",))
        assert compiler() != before
    read = Path.read_bytes
    monkeypatch.setattr(
        Path, "read_bytes", lambda path: read(path) + (b"#" if path.name == "target.py" else b"")
    )
    assert compiler() != before


@pytest.mark.parametrize("spoil", ["missing", "damaged", "moved"])
def test_code_that_is_not_sound_is_compiled_again(place, compiled, spoil):
    assert run(7) == 7
    for path in place.iterdir():
        content = path.read_bytes()
        if b"ELF" in content:
            if spoil == "missing":
                path.unlink()
            elif spoil == "damaged":
                path.write_bytes(content[:-1] + b"?")
            else:
                other = cache.read(path.name)
                cache.write("b" * 64, other)
                path.write_bytes((place / ("b" * 64)).read_bytes())
    assert run(7) == 7 and len(compiled) == 2
    assert run(7) == 7 and len(compiled) == 2


def test_names_of_code_are_signed_like_code(place, compiled):
    """A name that leads to other code of the user's is not followed."""
    assert (run(7, "seven"), run(8, "eight")) == (7, 8)
    seven, eight = (place / cache.digest(what, "here") for what in ("seven", "eight"))
    eight.write_bytes(seven.read_bytes())
    assert run(8, "eight") == 8


def test_without_a_folder_code_is_compiled_each_time(place, compiled, monkeypatch):
    monkeypatch.setenv("ADJOINT_CACHE_BYTES", "0")
    assert run(7) == 7 and len(compiled) == 2
    assert not place.exists()


def test_the_debug_level_says_what_was_compiled(place, capsys, monkeypatch):
    monkeypatch.setattr(debug, "on", frozenset({"kernels"}))
    run(7)
    said = capsys.readouterr().err
    assert ": sought by its text: [Errno 2]" in said and ": compiled: [Errno 2]" in said
    monkeypatch.setattr(cache, "_sources", lambda: "another version")
    run(7)
    said = capsys.readouterr().err
    assert ": sought by its text: [Errno 2]" in said and "compiled" not in said
