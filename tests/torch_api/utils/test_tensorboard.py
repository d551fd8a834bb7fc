"""Event files: read back by TensorBoard's own reader."""

from __future__ import annotations

import io
import math
import os
import subprocess
import sys

import numpy as np
import pytest

import adjoint as ad
from adjoint.utils.event_file import crc32c, png, varint
from adjoint.utils.hparams import hparams
from adjoint.utils.tensorboard import SummaryWriter

accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", exc_type=ImportError
)


def read(directory):
    events = accumulator.EventAccumulator(str(directory), dict.fromkeys(
        ("scalars", "images", "histograms", "tensors"), 0))  # fmt: skip
    events.Reload()
    return events


def test_scalars(tmp_path):
    values = [1.5, ad.tensor(-2.25), np.float32(1e-20), 7, math.inf, ad.tensor([3.0])]
    with SummaryWriter(tmp_path) as writer:
        for step, value in enumerate(values):
            writer.add_scalar("train/loss", value, step * 1000, walltime=100.0 + step)
        writer.add_scalar("größe", math.nan)
    events = read(tmp_path)
    assert sorted(events.Tags()["scalars"]) == ["größe", "train/loss"]
    found = events.Scalars("train/loss")
    assert [e.step for e in found] == [0, 1000, 2000, 3000, 4000, 5000]
    assert [e.wall_time for e in found] == [100.0 + i for i in range(6)]
    expected = [np.float32(v.item() if isinstance(v, ad.Tensor) else v) for v in values]
    assert [np.float32(e.value) for e in found] == expected
    assert math.isnan(events.Scalars("größe")[0].value)


@pytest.mark.parametrize("double", [False, True])
def test_new_style_scalars(tmp_path, double):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("x", 0.1, 3, new_style=True, double_precision=double)
    from tensorboard.util import tensor_util

    (event,) = read(tmp_path).Tensors("x")
    value = tensor_util.make_ndarray(event.tensor_proto)
    assert value == (0.1 if double else np.float32(0.1)) and event.step == 3


def test_several_scalars_are_several_runs(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalars("run/loss", {"train": 1.0, "test": ad.tensor(2.0)}, 5)
    for name, value in (("train", 1.0), ("test", 2.0)):
        (event,) = read(tmp_path / f"run_loss_{name}").Scalars("run/loss")
        assert (event.step, event.value) == (5, value)


def test_histograms(tmp_path):
    values = np.random.default_rng(0).normal(size=1000)
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("default", ad.tensor(values), 1)
        writer.add_histogram("edges", values, 2, bins=[-10.0, -1.0, 0.0, 1.0, 10.0])
        writer.add_histogram("auto", values, 3, bins="auto", max_bins=5)
        writer.add_histogram("integers", ad.arange(10))
        writer.add_histogram_raw("raw", 0, 2, 3, 4.0, 6.0, [1.0, 2.0], [1, 2], 4)
    events = read(tmp_path)
    for name in ("default", "edges", "auto"):
        (event,) = events.Histograms(name)
        found = event.histogram_value
        assert (found.min, found.max, found.num) == (values.min(), values.max(), 1000)
        assert found.sum == pytest.approx(values.sum())
        assert found.sum_squares == pytest.approx((values**2).sum())
        edges = np.array(found.bucket_limit)
        counts, _ = np.histogram(values, [-math.inf, *edges[:-1], math.inf])
        assert sum(found.bucket) == 1000 and len(found.bucket) == len(edges)
        assert (np.abs(counts - found.bucket) <= (name == "auto")).all()
    assert len(events.Histograms("auto")[0].histogram_value.bucket) <= 6
    assert events.Histograms("raw")[0].histogram_value.bucket == [1, 2]
    assert events.Histograms("integers")[0].histogram_value.num == 10


def test_histograms_are_pytorchs(tmp_path):
    summary = pytest.importorskip("torch.utils.tensorboard.summary", exc_type=ImportError)
    values = np.random.default_rng(1).normal(size=500) ** 3
    bins = np.array([-5.0, -1.0, 0.0, 0.5, 20.0])
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("x", values, bins=bins)
    expected = summary.make_histogram(values, bins)
    found = read(tmp_path).Histograms("x")[0].histogram_value
    assert found.bucket == list(expected.bucket)
    assert found.bucket_limit == list(expected.bucket_limit)


def test_text(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_text("notes", "# Überschrift\n" + "x" * 1000, 2)
    events = read(tmp_path)
    (event,) = events.Tensors("notes/text_summary")
    assert event.tensor_proto.string_val[0].decode() == "# Überschrift\n" + "x" * 1000
    assert event.step == 2
    assert events.SummaryMetadata("notes/text_summary").plugin_data.plugin_name == "text"


def decoded(data):
    matplotlib = pytest.importorskip("matplotlib.image")
    return (matplotlib.imread(io.BytesIO(data), format="png") * 255).round().astype(np.uint8)


def test_images(tmp_path):
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 256, (3, 5, 7)).astype(np.uint8)
    with SummaryWriter(tmp_path) as writer:
        writer.add_image("bytes", ad.tensor(colours), 1)
        writer.add_image("floats", ad.tensor(colours / 255.0 + 1e-6), 2)
        writer.add_image("grey", ad.tensor(colours[0]), dataformats="HW")
        writer.add_image("last", colours.transpose(1, 2, 0), dataformats="HWC")
        writer.add_images("batch", ad.tensor(np.stack([colours] * 9)))
    events = read(tmp_path)
    for name, channels in (("bytes", 3), ("floats", 3), ("last", 3)):
        (image,) = events.Images(name)
        assert (image.width, image.height) == (7, 5)
        found = decoded(image.encoded_image_string)
        np.testing.assert_array_equal(found[..., :channels], colours.transpose(1, 2, 0))
    grey = decoded(events.Images("grey")[0].encoded_image_string)
    np.testing.assert_array_equal(grey, colours[0])
    grid = decoded(events.Images("batch")[0].encoded_image_string)
    assert grid.shape[:2] == (10, 56)
    np.testing.assert_array_equal(grid[:5, 49:56, :3], colours.transpose(1, 2, 0))
    assert not grid[5:, 7:].any()


def test_figures(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(2, 1), dpi=50)
    axes.plot([1, 2])
    with SummaryWriter(tmp_path) as writer:
        writer.add_figure("plot", figure, 1)
    (image,) = read(tmp_path).Images("plot")
    assert (image.width, image.height) == (100, 50)
    assert not pyplot.get_fignums()


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_png_of_every_kind(channels):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, channels)).astype(np.uint8)
    found = decoded(png(pixels))
    if channels == 2:
        pixels = pixels[..., [0, 0, 0, 1]]
    np.testing.assert_array_equal(found.reshape(4, 6, -1)[..., : pixels.shape[-1]], pixels)


def test_entries_are_readable_after_flush_and_after_a_kill(tmp_path):
    program = (
        "import os, sys\n"
        "from adjoint.utils.tensorboard import SummaryWriter\n"
        "writer = SummaryWriter(sys.argv[1])\n"
        "for step in range(10): writer.add_scalar('x', step, step)\n"
        "writer.flush()\n"
        "for step in range(10, 1000): writer.add_scalar('x', step, step)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    code = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False).returncode
    assert code == -9
    found = read(tmp_path).Scalars("x")
    assert len(found) >= 10 and [e.value for e in found] == list(range(len(found)))


def test_entries_not_flushed_are_there_after_an_ordinary_end(tmp_path):
    program = (
        "import sys\n"
        "from adjoint.utils.tensorboard import SummaryWriter\n"
        "SummaryWriter(sys.argv[1]).add_scalar('x', 1.0)\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program, str(tmp_path)], check=True)
    assert read(tmp_path).Scalars("x")[0].value == 1.0


def test_flush_secs(tmp_path):
    writer = SummaryWriter(tmp_path, flush_secs=0)
    writer.add_scalar("x", 1.0, 1)
    assert len(read(tmp_path).Scalars("x")) == 1
    writer.close()


def test_a_restart_voids_what_came_after_it(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        for step in range(10):
            writer.add_scalar("x", 0.0, step)
    with SummaryWriter(tmp_path, purge_step=4, filename_suffix=".second") as writer:
        writer.add_scalar("x", 1.0, 4)
    assert [(e.step, e.value) for e in read(tmp_path).Scalars("x")] == [
        (0, 0.0), (1, 0.0), (2, 0.0), (3, 0.0), (4, 1.0),
    ]  # fmt: skip


def test_writing_after_close_opens_another_file(tmp_path):
    writer = SummaryWriter(tmp_path)
    writer.add_scalar("x", 1.0, 1)
    writer.close()
    writer.add_scalar("x", 2.0, 2)
    writer.close()
    assert len(os.listdir(tmp_path)) == 2
    assert [e.value for e in read(tmp_path).Scalars("x")] == [1.0, 2.0]


def test_default_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with SummaryWriter(comment="_lr1") as writer:
        assert writer.get_logdir().startswith("runs") and writer.log_dir.endswith("_lr1")
        assert len(os.listdir(writer.log_dir)) == 1


def test_errors(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(ValueError, match="one number"):
            writer.add_scalar("x", ad.ones(2))
        with pytest.raises(TypeError, match="tag"):
            writer.add_scalar(3, 1.0)
        with pytest.raises(ValueError, match="no element"):
            writer.add_histogram("x", [])
        with pytest.raises(ValueError, match="empty"):
            writer.add_histogram("x", [math.nan])
        with pytest.raises(ValueError, match="bucket_limits"):
            writer.add_histogram_raw("x", 0, 1, 1, 1, 1, [1.0], [1, 2])
        with pytest.raises(ValueError, match="dataformats"):
            writer.add_image("x", ad.ones(3, 2, 2), dataformats="CHX")
        with pytest.raises(ValueError, match="input_format"):
            writer.add_image("x", ad.ones(2, 2))
        with pytest.raises(ValueError, match="channels"):
            writer.add_image("x", ad.ones(5, 2, 2))
        with pytest.raises(NotImplementedError, match="add_text"):
            writer.add_graph(None)
    assert read(tmp_path).Tags()["scalars"] == []


def test_encoding():
    assert varint(0) == b"\0" and varint(300) == b"\xac\x02"
    assert varint(-1) == b"\xff" * 9 + b"\x01"
    assert crc32c(b"") == 0
    assert crc32c(bytes(range(32))) == 0x46DD794E  # RFC 3720's examples
    assert crc32c(b"\xff" * 32) == 0x62A8AB43


def test_negative_and_large_steps(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        for step in (-5, 2**40, ad.tensor(7)):
            writer.add_scalar(f"at{int(step)}", 1.0, step)
    events = read(tmp_path)
    for step in (-5, 2**40, 7):
        assert events.Scalars(f"at{step}")[0].step == step


GIVEN = {"lr": 0.1, "size": 3, "kind": "größe", "fast": True, "none": None, "t": 2.5}
DOMAINS = {"lr": [0.1, 0.2], "kind": ["a", "größe"]}


def test_hyperparameters_are_pytorchs(tmp_path):
    torch = pytest.importorskip("torch")
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
    from torch.utils.tensorboard.summary import hparams as their_hparams

    def content(summary):
        (value,) = summary.value
        plugin = value.metadata.plugin_data
        return value.tag, plugin.plugin_name, HParamsPluginData.FromString(plugin.content)

    metrics = {"loss": 0.5, "accuracy": 1}
    ours = hparams({**GIVEN, "t": ad.tensor(2.5)}, metrics, DOMAINS)
    theirs = their_hparams({**GIVEN, "t": torch.tensor([2.5])}, metrics, DOMAINS)
    for a, b in zip(ours, theirs, strict=True):
        assert content(Summary.FromString(a)) == content(b)
    with SummaryWriter(tmp_path) as writer:
        writer.add_hparams(GIVEN, metrics, run_name="first", global_step=3)
        writer._get_file_writer().add_summary(theirs[0], 1)  # an object of TensorBoard's
        assert writer.file_writer.get_logdir() == str(tmp_path)
    found = read(tmp_path / "first")
    assert [e.step for e in found.Scalars("loss")] == [3]
    names = ("experiment", "session_start_info", "session_end_info")
    tags = {f"_hparams_/{name}" for name in names}
    assert set(found.PluginTagToContent("hparams")) == tags
    assert set(read(tmp_path).PluginTagToContent("hparams")) == {"_hparams_/experiment"}


def test_hyperparameters_that_are_refused_as_pytorchs(tmp_path):
    pytest.importorskip("torch")
    from torch.utils.tensorboard.summary import hparams as their_hparams

    for bad in (([], {}), ({}, []), ({"a": 1}, {}, [1]), ({"a": 1}, {}, {"b": [1]}),
                ({"a": 1}, {}, {"a": ["x"]}), ({"a": [1]}, {})):  # fmt: skip
        with pytest.raises((TypeError, ValueError)) as theirs:
            their_hparams(*bad)
        with pytest.raises(theirs.type):
            hparams(*bad)
    with SummaryWriter(tmp_path) as writer, pytest.raises(TypeError, match="add_summary"):
        writer.file_writer.add_summary("text")
