"""What the command is given: a program's own arguments, files of each kind, and wrong ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.tools.cli.main import main

PROGRAM = """
import sys
import adjoint as ad
print("given", sys.argv[1:])
model = ad.nn.Linear(3, 2)
x = ad.ones(4, 3)
loss = model(x).sum()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a program, and one model in files of each kind."""
    monkeypatch.chdir(tmp_path)
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    x = ad.randn(5, 3)
    Path("m.py").write_text(PROGRAM)
    ad.export(model, (x,), "m.adjoint")
    for name in ("m.ad", "m.pt", "m.safetensors", "m.npz"):
        ad.save(model.state_dict(), name)
    np.save("x.npy", x.numpy())
    return model, x.numpy()


def run(capsys, *arguments):
    """(exit code, output, errors)."""
    code = main(list(map(str, arguments)))
    out, err = capsys.readouterr()
    return code, out, err


def failed(capsys, *arguments):
    """The one line that says what is wrong."""
    code, out, err = run(capsys, *arguments)
    assert code == 1 and err.startswith("adjoint: ") and err.count("\n") == 1, (out, err)
    return err


# ---- programs and their arguments ----------------------------------------------------------------


def test_alone_it_prints_help(capsys):
    code, out, err = run(capsys)
    assert code == 0 and not err
    assert "usage: adjoint" in out and "summary" in out


@pytest.mark.parametrize(
    "arguments, given",
    [
        (("-o", "p.html", "--", "--foo", "1"), ["--foo", "1"]),
        (("--", "--foo", "--", "-o"), ["--foo", "--", "-o"]),
        (("1", "2", "-o", "p.html"), ["1", "2"]),
        (("-o", "p.html", "1", "--", "--two"), ["1", "--two"]),
        (("-o", "p.html"), []),
    ],
)
def test_a_programs_arguments(folder, capsys, arguments, given):
    code, out, _ = run(capsys, "view", "m.py", "--no-open", *arguments)
    assert code == 0 and f"given {given}" in out
    assert Path("p.html" if "p.html" in arguments else "m.html").stat().st_size > 1000
    more = [a for a in arguments if a not in ("-o", "p.html") or "-o" in given]
    code, out, _ = run(capsys, "summary", "m.py", "--input", "4,3", *more)
    assert code == 0 and f"given {given}" in out and "Linear" in out


def test_a_programs_arguments_with_dashes_stand_behind_two(folder, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["view", "m.py", "--foo", "1"])
    assert caught.value.code == 2
    assert "unrecognized arguments: --foo; a program's own stand behind --" in (
        capsys.readouterr().err
    )
    with pytest.raises(SystemExit):
        main(["infer", "m.adjoint", "surplus"])
    assert "unrecognized arguments: surplus\n" in capsys.readouterr().err


def test_a_program_is_asked_for_inputs_by_the_names_of_what_it_has(folder, capsys):
    _, _, err = run(capsys, "summary", "m.py")
    assert "needs --input" in err and "Traceback" not in err
    assert "model (adjoint.Linear)" in err and "x (adjoint.Tensor of shape (4, 3))" in err
    code, out, _ = run(capsys, "summary", "m.py", "--input", "x")
    assert code == 0 and "Linear" in out


def test_files_that_are_no_programs(folder, capsys):
    for name in ("m.pt", "m.safetensors", "m.adjoint"):
        assert f"{name} is no Python program" in failed(capsys, "view", name)
    Path("broken.py").write_text("def f(:\n")
    assert "broken.py is no Python program: invalid syntax" in failed(capsys, "view", "broken.py")
    assert "broken.py is no Python" in failed(capsys, "summary", "broken.py", "--input", "1")
    assert "no such file" in failed(capsys, "summary", "missing.py").lower()
    assert "no such file" in failed(capsys, "view", "missing.py").lower()
    assert "directory" in failed(capsys, "view", ".")


# ---- model files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["m.ad", "m.adjoint", "m.pt", "m.safetensors", "m.npz"])
def test_summary_of_each_kind(folder, capsys, name):
    code, out, _ = run(capsys, "summary", name)
    assert code == 0 and "0.weight" in out and "4 tensors, 26 elements" in out
    if name == "m.adjoint":
        assert "inputs   input: float32 (5, 3)" in out


def test_infer_of_an_exported_program(folder, capsys):
    model, x = folder
    code, out, _ = run(
        capsys, "infer", "m.adjoint", "--input", "x.npy", "--output", "y.npy", "--repeat", "2"
    )
    assert code == 0 and "2 runs: median" in out
    np.testing.assert_allclose(np.load("y.npy"), model(ad.from_numpy(x)).detach(), rtol=1e-5)
    code, out, _ = run(capsys, "infer", "m.adjoint")  # random numbers of the file's shape
    assert code == 0 and "output 0: float32 (5, 2)" in out
    assert "compiled as it is" in failed(capsys, "infer", "m.adjoint", "--listing")
    assert "compiled" in failed(capsys, "summary", "m.adjoint", "--draw", "m.dot")
    for name in ("m.ad", "m.pt", "m.safetensors"):
        assert f"{name} holds tensors but not what" in failed(capsys, "infer", name)


def test_the_input_whose_shape_is_wrong_is_named(folder, capsys):
    wrong = "input 'input' is of shape (5, 4), the file says input: float32 (5, 3)"
    assert wrong in failed(capsys, "infer", "m.adjoint", "--input", "5,4")
    pytest.importorskip("onnx")
    model, x = folder
    axes = {"image": {0: "batch"}}
    ad.onnx.export(model, ad.from_numpy(x), "m.onnx", ["image"], ["y"], dynamic_axes=axes)
    assert run(capsys, "infer", "m.onnx", "--input", "7,3")[0] == 0
    err = failed(capsys, "infer", "m.onnx", "--input", "7,4")
    assert "input 'image' is of shape (7, 4), the file says image: float32 (batch, 3)" in err
    err = failed(capsys, "infer", "m.onnx", "--input", "7,3,4")
    assert "input 'image' is of shape (7, 3, 4)" in err


def test_files_that_hold_something_else(folder, capsys):
    for name in ("m.ad", "m.adjoint", "m.onnx", "m.pt", "m.safetensors", "m.param", "m.npz"):
        Path(name).write_bytes(b"no model at all\n" * 9)
        assert "Traceback" not in failed(capsys, "summary", name)
        failed(capsys, "infer", name)
        failed(capsys, "convert", name, "y.safetensors")
    ad.save({"x": ad.ones(2)}, "other.adjoint")
    assert "holds no exported function" in failed(capsys, "infer", "other.adjoint")


@pytest.mark.parametrize("source", ["m.ad", "m.adjoint", "m.pt", "m.safetensors"])
@pytest.mark.parametrize("target", ["y.ad", "y.pt", "y.safetensors", "y.npz"])
def test_convert_each_into_each(folder, capsys, source, target):
    model, _ = folder
    code, _, err = run(capsys, "convert", source, target)
    assert code == 0, err
    found = ad.load(target)
    assert set(found) == set(model.state_dict())
    assert all(ad.equal(found[name], x) for name, x in model.state_dict().items())


def test_convert_to_what_is_not_written(folder, capsys):
    assert "made by adjoint.export" in failed(capsys, "convert", "m.pt", "y.adjoint")
    assert "adjoint.onnx.export" in failed(capsys, "convert", "m.adjoint", "y.onnx")


def test_convert_onto_itself_needs_force(folder, capsys):
    model, _ = folder
    shutil.copy("m.pt", "first.pt")
    assert "--force replaces it" in failed(capsys, "convert", "m.pt", "m.pt")
    assert "--force replaces it" in failed(
        capsys, "convert", "m.pt", "../" + Path.cwd().name + "/m.pt"
    )
    assert Path("m.pt").read_bytes() == Path("first.pt").read_bytes()
    code, _, err = run(capsys, "convert", "m.pt", "m.pt", "--force")
    assert code == 0, err
    assert ad.equal(ad.load("m.pt")["0.weight"], model.state_dict()["0.weight"])
    assert run(capsys, "convert", "m.safetensors", "m.safetensors", "--force")[0] == 0
    assert ad.equal(ad.load("m.safetensors")["0.weight"], model.state_dict()["0.weight"])
