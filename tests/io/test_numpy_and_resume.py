"""NumPy's numbers and arrays in checkpoints, what reads other files, and `utils.Checkpoint`."""

# ruff: noqa: E501 - one case of a table is one line

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

import adjoint as ad


def again(value):
    file = io.BytesIO()
    ad.save(value, file)
    file.seek(0)
    return ad.load(file)


VALUES = {
    "a mean": np.mean([1.0, 2.0]), "float32": np.float32(1.5), "nan": np.float64("nan"),
    "int64": np.int64(-3), "uint16": np.uint16(3), "bool": np.bool_(True), "complex": np.complex64(1j),
    "float16": np.float16(0.1), "text": np.str_("é"), "bytes": np.bytes_(b"x"),
    "time": np.datetime64("2020-01-01T10"), "matrix": np.arange(6.0).reshape(2, 3),
    "transposed": np.arange(6).reshape(2, 3).T, "reversed": np.arange(3)[::-1], "0-d": np.array(2),
    "empty": np.ones((0, 3)), "texts": np.array([["a", "bc"]]), "big-endian": np.array([1, 2], ">i4"),
    "read-only": np.broadcast_to(np.float32(1), (2, 2)), "complex array": np.array([1j]),
    "uint64": np.array([2**64 - 1], np.uint64),
}  # fmt: skip


@pytest.mark.parametrize("name", list(VALUES))
def test_numpy_values_come_back_as_they_were(name):
    value = VALUES[name]
    found = again({"deep": [value]})["deep"][0]
    assert type(found) is type(value) and found.dtype == value.dtype
    assert found.shape == value.shape
    assert np.array_equal(found, value, equal_nan=value.dtype.kind == "f")
    if isinstance(found, np.ndarray):
        assert found.flags.writeable


def test_arrays_share_memory_with_tensors_as_before():
    array = np.zeros(3)
    found = again({"array": array, "tensor": ad.from_numpy(array), "half": array[:2]})
    found["tensor"].add_(1)
    assert found["array"].tolist() == [1.0, 1.0, 1.0] and found["half"].tolist() == [1.0, 1.0]


def test_pytorch_files_hold_plain_numbers(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "x.pt"
    numbers = {"a": np.float32(1.5), "b": np.int64(2), "c": np.bool_(True), "d": np.float64(3)}
    ad.save(numbers, path)
    for found in (ad.load(path), torch.load(path, weights_only=True)):
        assert found == {"a": 1.5, "b": 2, "c": True, "d": 3.0}
        assert [type(v) for v in found.values()] == [float, int, bool, float]
    ad.save({"a": np.ones(2)}, path)
    assert ad.load(path)["a"].tolist() == [1, 1]


@pytest.mark.parametrize(
    "value", [np.array([{}], object), np.zeros(1, [("a", int)]), np.ma.array([1.0]), np.dtype("f4")]
)
def test_other_numpy_values_are_refused(value):
    with pytest.raises(ad.InvalidType, match=r"at 'deep.0'"):
        ad.save({"deep": [value]}, io.BytesIO())


@pytest.mark.parametrize(
    "content",
    [["|O", [1], "AAAAAAAAAAA="], ["<f8", [2], "AAAAAAAAAAA="], ["<f8", [-1, 0], ""], ["f8", None, ""],
     ["<f8", None, ""], ["<U1000000000", [1], ""], [1, 2, 3], "x", ["<f8", "ab", ""], ["<f8", [2**70], ""]],
)  # fmt: skip
def test_malformed_numpy_values(content):
    from adjoint.io.structure import decode

    with pytest.raises(ad.CheckpointError, match=r"numpy|NumPy"):
        decode({"numpy": content}, lambda entry: None)


OTHERS = {
    "m.onnx": (b"\x08\x07\x12\x07adjoint", "ONNX.*adjoint.onnx.load"),
    "m.param": (b"7767517\n1 1\n", "adjoint.pnnx.load"),
    "m.pnnx.bin": (b"PK\x03\x04", "adjoint.pnnx.load.*param"),
    "a.npy": (b"\x93NUMPY\x01\x00", "numpy.load"),
    "a.gguf": (b"GGUF\x03\0\0\0", "safetensors"),
    "a.h5": (b"\x89HDF\r\n\x1a\n", "h5py"),
    "a.safetensors": (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    "a.pt": (b"<!DOCTYPE html>", "download"),
    "a.pt.gz": (b"\x1f\x8b\x08", "unpack"),
    "a.tflite": (b"\x1c\0\0\0TFL3", "ONNX"),
}


@pytest.mark.parametrize("name", list(OTHERS))
def test_what_reads_other_files_is_named(name, tmp_path):
    content, words = OTHERS[name]
    path = tmp_path / name
    path.write_bytes(content + bytes(64))
    with pytest.raises(ad.CheckpointError, match=words) as caught:
        ad.load(path)
    assert name in str(caught.value)
    if name not in ("m.pnnx.bin",):
        with pytest.raises(ad.CheckpointError, match=words):
            ad.load(io.BytesIO(content + bytes(64)))


@pytest.mark.parametrize(
    ("member", "words"),
    [("constants.pkl", "TorchScript.*pnnx"), ("archive_format", "torch.export")],
)
def test_programs_are_named(member, words, tmp_path):
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"model/{member}", b"x" * 100)
    with pytest.raises(ad.CheckpointError, match=words):
        ad.load(path)


# ---- utils.Checkpoint ----------------------------------------------------------------------------


class Training:
    def __init__(self):
        ad.manual_seed(7)
        self.model = ad.nn.Sequential(ad.nn.Linear(4, 8), ad.nn.Dropout(0.5), ad.nn.Linear(8, 1))
        self.optimizer = ad.optim.Adam(self.model.parameters(), lr=0.1)
        self.scheduler = ad.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
        self.generator = ad.Generator().manual_seed(3)
        data = ad.data.TensorDataset(ad.arange(40.0).reshape(10, 4) / 40)
        self.loader = ad.data.DataLoader(data, 2, shuffle=True, generator=self.generator)
        self.batches = iter(self.loader)
        self.checkpoint = ad.utils.Checkpoint(
            model=self.model, optimizer=self.optimizer, scheduler=self.scheduler,
            loader=self.loader, generator=self.generator, ema=None,
        )  # fmt: skip

    def run(self, steps):
        losses = []
        for _ in range(steps):
            try:
                (x,) = next(self.batches)
            except StopIteration:
                self.batches = iter(self.loader)
                (x,) = next(self.batches)
            self.optimizer.zero_grad()
            loss = self.model(x).square().mean()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            losses.append(loss.item())
        return losses


def test_training_goes_on_bit_for_bit(tmp_path):
    path = tmp_path / "training.ad"
    first = Training()
    first.run(3)
    first.checkpoint.save(path, step=3, mean=np.mean([1.0, 2.0]))
    wanted = first.run(6)
    second = Training()
    second.run(1)
    assert second.checkpoint.load(path) == {"step": 3, "mean": 1.5}
    second.batches = iter(second.loader)
    assert second.run(6) == wanted


def test_all_parts_come_back_or_none(tmp_path):
    path = tmp_path / "training.ad"
    model, other = ad.nn.Linear(2, 2), ad.nn.Linear(2, 3)
    ad.utils.Checkpoint(a=model, b=other).save(path)
    fits, differs = ad.nn.Linear(2, 2), ad.nn.Linear(3, 3)
    before = fits.weight.clone()
    draws = ad.get_rng_state()
    with pytest.raises(ad.AdjointError, match="weight"):
        ad.utils.Checkpoint(a=fits, b=differs).load(path)
    assert fits.weight.equal(before) and ad.get_rng_state().equal(draws)
    larger = ad.nn.Sequential(ad.nn.Linear(2, 2), ad.nn.Linear(2, 3))
    ad.utils.Checkpoint(a=larger).save(path)
    partly = ad.nn.Sequential(ad.nn.Linear(2, 2), ad.nn.Linear(2, 2))  # the first layer fits
    before = partly[0].weight.clone()
    with pytest.raises(ad.AdjointError, match=r"1\.weight"):
        ad.utils.Checkpoint(a=partly).load(path)
    assert partly[0].weight.equal(before)
    for strange in ({"parts": 3, "values": {}}, {"parts": {}, "values": [1]}, [1]):
        ad.save(strange, path)
        with pytest.raises(ad.CheckpointError, match="no checkpoint of this class"):
            ad.utils.Checkpoint(a=fits).load(path)


def test_checkpoints_of_other_parts(tmp_path):
    path = tmp_path / "training.ad"
    model = ad.nn.Linear(2, 2)
    ad.utils.Checkpoint(model=model).save(path)
    with pytest.raises(ad.CheckpointError, match=r"\['model'\], here are \['model', 'optimizer'\]"):
        ad.utils.Checkpoint(model=model, optimizer=ad.optim.SGD(model.parameters(), 0.1)).load(path)
    ad.save(model.state_dict(), path)
    with pytest.raises(ad.CheckpointError, match=r"no checkpoint of this class; adjoint\.load"):
        ad.utils.Checkpoint(model=model).load(path)
    with pytest.raises(FileNotFoundError):
        ad.utils.Checkpoint(model=model).load(tmp_path / "none.ad")
    with pytest.raises(ad.InvalidType, match=r"'step', a int, has no state.*save\(\)"):
        ad.utils.Checkpoint(step=3)
    with pytest.raises(ad.InvalidType, match="default generator"):
        ad.utils.Checkpoint(random=model)
    with pytest.raises(ad.InvalidType, match=r"at 'values\.what'"):
        ad.utils.Checkpoint(model=model).save(path, what=object())
