"""`adjoint infer`, `convert` and `summary`: files in, files and tables out, one line on errors."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.tools.cli.main import main

pytest.importorskip("onnx")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model as ONNX and as tensors, and an input."""
    monkeypatch.chdir(tmp_path)
    ad.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)
    ).eval()
    axes = {"image": {0: "batch"}}
    ad.onnx.export(model, ad.ones(1, 3, 6, 6), "m.onnx", ["image"], ["scores"], dynamic_axes=axes)
    ad.save(model.state_dict(), "m.pt")
    np.save("x.npy", ad.randn(2, 3, 6, 6).numpy().astype(np.float64))
    tmp_path.joinpath("m.param").write_text(
        "7767517\n3 2\npnnx.Input in 0 1 x #x=(2,3)f32\nF.relu act 1 1 x y\npnnx.Output out 1 0 y\n"
    )
    return model, tmp_path


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


def test_infer(folder, capsys):
    model, _ = folder
    x = np.load("x.npy").astype(np.float32)
    expected = model(ad.from_numpy(x)).detach().numpy()
    code, out, _ = run(capsys, "infer", "m.onnx", "--input", "x.npy", "--output", "y.npy")
    assert code == 0 and "written: y.npy" in out
    np.testing.assert_allclose(np.load("y.npy"), expected, rtol=1e-4, atol=1e-5)
    code, out, _ = run(
        capsys, "infer", "m.onnx", "--input", "image=x.npy", "--output", "y.npz", "--repeat", "3",
        "--threads", ad.get_num_threads(), "--listing", "--draw", "m.dot",
    )  # fmt: skip
    assert code == 0 and re.search(r"3 runs: median \d+\.\d+ ms", out)
    assert "convolution" in out and "buffer 0" in out
    np.testing.assert_allclose(np.load("y.npz")["scores"], expected, rtol=1e-4, atol=1e-5)
    assert Path("m.dot").read_text().startswith("digraph")
    code, out, _ = run(capsys, "infer", "m.onnx", "--input", "4,3,6,6")
    assert code == 0 and "scores: float32 (4, 5)" in out
    code, out, _ = run(capsys, "infer", "m.onnx")  # the file's shape
    assert code == 0 and "scores: float32 (1, 5)" in out
    code, out, _ = run(capsys, "infer", "m.param")
    assert code == 0 and "y: float32 (2, 3)" in out


def test_infer_several(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    class Pair(nn.Module):
        def forward(self, a, b):
            return a + b, a * b

    ad.onnx.export(Pair(), (ad.ones(2), ad.ones(2)), "m.onnx", ["a", "b"], ["sum", "product"])
    np.save("a.npy", np.float32([1, 2]))
    np.save("b.npy", np.float32([3, 4]))
    code, _, _ = run(capsys, "infer", "m.onnx", "--input", "b=b.npy", "--input", "a.npy",
                     "--output", "y.npy")  # fmt: skip
    assert code == 0
    assert np.load("y.0.npy").tolist() == [4, 6] and np.load("y.1.npy").tolist() == [3, 8]
    assert "one more given" in failed(capsys, "infer", "m.onnx", *["--input", "a.npy"] * 3)


def test_infer_errors(folder, capsys):
    Path("bad.onnx").write_bytes(b"nothing")
    Path("bad.npy").write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'descr': 'x'}  \n")
    np.save("ints.npy", np.ones((1, 3, 6, 6), np.int64))
    np.save("small.npy", np.ones((1, 3), np.float32))
    np.save("objects.npy", np.array([{}], object), allow_pickle=True)
    for arguments, message in [
        (["missing.onnx"], "No such file"),
        (["bad.onnx"], "not an ONNX file"),
        (["m.pt"], "tensors but not what to compute"),
        (["m.txt"], "known are .adjoint, .onnx, .param"),
        (["m.onnx", "--input", "missing.npy"], "No such file"),
        (["m.onnx", "--input", "bad.npy"], "not a .npy file"),
        (["m.onnx", "--input", "objects.npy"], "not a .npy file"),
        (["m.onnx", "--input", "ints.npy"], "takes float32"),
        (["m.onnx", "--input", "small.npy"], ""),
        (["m.onnx", "--input", "other=x.npy"], "no input 'other'; there are image"),
        (["m.onnx", "--output", "y.txt"], "neither .npy nor .npz"),
        (["m.onnx", "--repeat", "0"], "at least 1"),
        (["m.onnx", "--draw", "picture.gif"], ".svg, .dot or .html"),
    ]:
        assert message in failed(capsys, "infer", *arguments), arguments


def test_convert_tensors(folder, capsys):
    model, _ = folder
    state = model.state_dict()
    for source, target in (
        ("m.pt", "a.safetensors"), ("a.safetensors", "b.npz"), ("b.npz", "c.pth"),
        ("m.onnx", "d.npz"),
    ):  # fmt: skip
        code, out, _ = run(capsys, "convert", source, target)
        assert code == 0 and re.search(r"[\d,]+ bytes", out)
    for name in ("a.safetensors", "b.npz", "c.pth", "d.npz"):
        found = ad.load(name)
        for key in ("0.weight", "4.bias", "1.running_mean"):
            assert ad.equal(found[key], state[key]), name
    assert "holds no tensors" in failed(capsys, "convert", "m.param", "e.npz")


def test_convert_graphs(folder, capsys):
    """The simplified file computes the same, for any batch, without batch normalization."""
    code, _, _ = run(capsys, "convert", "m.onnx", "s.onnx")
    assert code == 0
    x = ad.from_numpy(np.load("x.npy").astype(np.float32))
    one, two = ad.onnx.load("m.onnx"), ad.onnx.load("s.onnx")
    np.testing.assert_allclose(two(x).detach(), one(x).detach(), rtol=1e-4, atol=1e-5)
    assert "running_mean" not in " ".join(two.state_dict())
    code, _, _ = run(capsys, "convert", "m.param", "r.onnx")
    assert code == 0
    assert ad.onnx.load("r.onnx")(ad.tensor([[-1.0, 0.0, 1.0]])).tolist() == [[0, 0, 1]]


def test_convert_errors(folder, capsys):
    Path("bad.pt").write_bytes(b"PK\x03\x04nothing")
    for arguments, message in [
        (["missing.pt", "x.npz"], "no such file"),
        (["bad.pt", "x.npz"], ""),
        (["m.pt", "x.zip"], "the suffix says the format"),
        (["m.pt", "x.onnx"], "tensors but not what to compute"),
        (["m.onnx", "x.param"], "read, not written"),
        (["x.npy", "y.npz"], "known are"),
    ]:
        assert message in failed(capsys, "convert", *arguments), arguments


def test_summary(folder, capsys):
    code, out, _ = run(capsys, "summary", "m.onnx", "--draw", "m.html")
    assert code == 0
    for line in (
        r"inputs   image: float32 \(batch, 3, 6, 6\)",
        r"outputs  scores",
        r"0.weight +float32 +4 x 3 x 3 x 3 +108",
        r"Conv +1",
        r"frozen: \d+ nodes, intermediate values",
    ):
        assert re.search(line, out), (line, out)
    assert "<html" in Path("m.html").read_text()
    for name in ("m.pt",):
        code, out, _ = run(capsys, "summary", name)
        assert code == 0 and re.search(r"9 tensors, 454 elements, 1.8 KiB", out), out
    code, out, _ = run(capsys, "summary", "m.param")
    assert code == 0 and re.search(r"F.relu +1", out)
    assert "has no graph" in failed(capsys, "summary", "m.pt", "--draw", "m.svg")
    Path("program.py").write_text("model = 1")
    assert "needs --input" in failed(capsys, "summary", "program.py")
    assert "known are" in failed(capsys, "summary", "m.txt")


def test_long_tables_are_cut(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ad.save({f"t{i}": ad.ones(1) for i in range(100)}, "many.safetensors")
    code, out, _ = run(capsys, "summary", "many.safetensors")
    assert code == 0 and "60 more (--all)" in out and "t99" in out and "t50" not in out
    code, out, _ = run(capsys, "summary", "many.safetensors", "--all")
    assert code == 0 and "t50" in out


@pytest.mark.parametrize("name", ["m.onnx", "m.param", "x.npy", "m.pt"])
def test_mutated_files_end_in_one_line(folder, capsys, name):
    """Whatever is in a file, the command ends with a result or one line."""
    random = np.random.default_rng(0)
    data = Path(name).read_bytes()
    refused = 0
    for _ in range(60):
        changed = bytearray(data)
        for _ in range(int(random.integers(1, 6))):
            changed[int(random.integers(0, len(changed)))] = int(random.integers(0, 256))
        if random.random() < 0.3:
            del changed[int(random.integers(0, len(changed))) :]
        other = f"mutated{name[1:]}"
        Path(other).write_bytes(changed)
        if name == "x.npy":
            arguments = ["infer", "m.onnx", "--input", other]
        else:
            arguments = ["summary" if random.random() < 0.5 else "convert", other]
            arguments += ["t.npz"] if arguments[0] == "convert" else []
        code, _, err = run(capsys, *arguments)
        assert code in (0, 1) and (code == 0 or err.count("\n") == 1), err
        refused += code
    assert refused > 5
