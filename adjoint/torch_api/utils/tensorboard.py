"""Logs that TensorBoard shows.

Source: https://docs.pytorch.org/docs/stable/tensorboard.html
"""

from __future__ import annotations

import functools
import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.argument_repr import argument_repr
from ...core.errors import InvalidArgument, InvalidType, ShapeError, Unsupported
from ...tensor import Tensor
from .event_file import (
    EventFile,
    field_bytes,
    field_double,
    field_doubles,
    field_float,
    field_int,
    png,
)

__all__ = ["FileWriter", "SummaryWriter"]


class SummaryWriter:
    """Writes scalars, histograms, texts and images of a run to a directory for TensorBoard.

    The directory is `log_dir`, or runs/<time>_<host><comment>. An entry after `close` opens another
    file. Entries wait in memory for up to `flush_secs` seconds.
    Errors: Unsupported for graphs.
    Source: https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter

    >>> import tempfile
    >>> from adjoint.utils.tensorboard import SummaryWriter
    >>> with SummaryWriter(tempfile.mkdtemp()) as writer:
    ...     for step in range(3):
    ...         writer.add_scalar("loss", 1 / (step + 1), step)
    """

    __repr__ = argument_repr

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            now = time.strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = os.fspath(log_dir)
        self.purge_step = purge_step
        self.flush_secs = flush_secs
        self.filename_suffix = filename_suffix
        self._files: dict[str, EventFile] = {}
        self._file(self.log_dir)

    def get_logdir(self) -> str:
        """The directory of the run."""
        return self.log_dir

    def _file(self, directory: str) -> EventFile:
        if directory not in self._files:
            file = EventFile(directory, self.filename_suffix, self.flush_secs)
            if self.purge_step is not None:  # a restart: what was logged from there on is void
                file.write(field_bytes(7, field_int(1, 1)), self.purge_step, None)
                self.purge_step = None
            self._files[directory] = file
        return self._files[directory]

    def _write(
        self, tag: str, value: bytes, step: Any, walltime: float | None, directory: str = ""
    ) -> None:
        if not isinstance(tag, str):
            raise InvalidType(f"SummaryWriter: a tag must be a str, got {tag!r}")
        summary = field_bytes(5, field_bytes(1, field_bytes(1, tag) + value))
        step = None if step is None else int(_array(step))
        self._file(directory or self.log_dir).write(summary, step, walltime)

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: Any = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """A number at a step of training."""
        number = _scalar(scalar_value, tag)
        if new_style or double_precision:
            kind = field_int(1, 2) + field_doubles(6, [number])  # DT_DOUBLE
            if not double_precision:
                kind = field_int(1, 1) + field_bytes(5, np.float32(number).tobytes())
            value = field_bytes(9, field_bytes(1, field_bytes(1, "scalars")) + field_int(4, 1))
            value = field_bytes(8, kind + field_bytes(2, b"")) + value
        else:
            value = field_float(2, number)
        self._write(tag, value, global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Several numbers in one chart: each is a run of its own, in a directory below."""
        walltime = time.time() if walltime is None else walltime
        for tag, scalar in tag_scalar_dict.items():
            name = f"{main_tag.replace('/', '_')}_{tag}"
            directory = os.path.join(self.log_dir, name)
            value = field_float(2, _scalar(scalar, tag))
            self._write(main_tag, value, global_step, walltime, directory)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: Any = None,
        bins: str | Sequence[float] = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Write the distribution of values: `bins` are TensorFlow's, a rule of np.histogram, or
        edges.
        """
        edges = _tensorflow_edges() if isinstance(bins, str) and bins == "tensorflow" else bins
        value = _histogram(_array(values).astype(np.float64).ravel(), edges, max_bins)
        self._write(tag, field_bytes(5, value), global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: int,
        sum: float,
        sum_squares: float,
        bucket_limits: Sequence[float],
        bucket_counts: Sequence[float],
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """A histogram that was counted elsewhere."""
        if len(bucket_limits) != len(bucket_counts):
            raise InvalidArgument(
                "add_histogram_raw: len(bucket_limits) != len(bucket_counts), got "
                f"{len(bucket_limits)} and {len(bucket_counts)}"
            )
        value = _encoded(min, max, num, sum, sum_squares, bucket_limits, bucket_counts)
        self._write(tag, field_bytes(5, value), global_step, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Text, in Markdown."""
        plugin = field_bytes(9, field_bytes(1, field_bytes(1, "text")) + field_int(4, 2))
        shape = field_bytes(2, field_bytes(2, field_int(1, 1)))
        value = field_bytes(8, field_int(1, 7) + shape + field_bytes(8, text_string))  # DT_STRING
        self._write(f"{tag}/text_summary", value + plugin, global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """An image: bytes, or floating-point numbers of [0, 1]; `dataformats` names dimensions."""
        pixels = _pixels(_as_hwc(_array(img_tensor), dataformats), tag)
        height, width, channels = pixels.shape
        size = field_int(1, height) + field_int(2, width) + field_int(3, channels)
        value = field_bytes(4, size + field_bytes(4, png(pixels)))
        self._write(tag, value, global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """A batch of images, in rows of up to eight."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: Any = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """A matplotlib figure, or several side by side, as an image."""
        figures = list(figure) if isinstance(figure, (list, tuple)) else [figure]
        drawn = []
        for f in figures:
            f.canvas.draw()
            drawn.append(np.asarray(f.canvas.buffer_rgba())[..., :3])
        if close:
            from matplotlib import pyplot

            for f in figures:
                pyplot.close(f)
        self.add_images(tag, np.stack(drawn), global_step, walltime, "NHWC")

    def add_graph(self, model: Any, *args: Any, **kwargs: Any) -> None:
        """Refused: TensorBoard's graphs are TensorFlow's."""
        raise Unsupported(
            "SummaryWriter.add_graph: adjoint's graphs have no TensorFlow form; log repr(model) "
            "with add_text"
        )

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any],
        hparam_domain_discrete: Mapping[str, list[Any]] | None = None,
        run_name: str | None = None,
        global_step: Any = None,
    ) -> None:
        """Hyperparameters and what was reached with them, as a run of its own, in a directory
        below: `run_name`, or the time.

        Errors: those of `hparams.hparams`; InvalidType for what is no dictionary.
        """
        from .hparams import hparams

        parts = hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        directory = os.path.join(self.log_dir, run_name or str(time.time()))
        with SummaryWriter(directory) as writer:
            for part in parts:
                writer.file_writer.add_summary(part, global_step)
            for tag, value in metric_dict.items():
                writer.add_scalar(tag, value, global_step)

    @property
    def file_writer(self) -> FileWriter:
        """A writer that takes serialized summaries as they are."""
        return FileWriter(self)

    def _get_file_writer(self) -> FileWriter:
        return FileWriter(self)

    def flush(self) -> None:
        """Hand all entries to the operating system, for TensorBoard to see."""
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        """Flush and close the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class FileWriter:
    """Takes summaries that were made elsewhere: serialized, or TensorBoard's own objects."""

    __repr__ = argument_repr

    def __init__(self, writer: SummaryWriter) -> None:
        self._writer = writer

    def get_logdir(self) -> str:
        """The directory of the run."""
        return self._writer.get_logdir()

    def add_summary(
        self, summary: Any, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Write a summary at a step of training.

        Errors: InvalidType for what is neither.
        """
        made = getattr(summary, "SerializeToString", None)
        data = summary if made is None else made()
        if not isinstance(data, bytes):
            raise InvalidType(
                f"add_summary: expected a summary, got {type(summary).__name__}; hparams() makes "
                "some, and so does tensorboard"
            )
        step = None if global_step is None else int(_array(global_step))
        content = field_bytes(5, data)
        self._writer._file(self._writer.log_dir).write(content, step, walltime)

    def flush(self) -> None:
        """Flushes the writer."""
        self._writer.flush()

    def close(self) -> None:
        """Closes the writer."""
        self._writer.close()


def _array(x: Any) -> Any:
    return np.asarray(x.detach().cpu().numpy() if isinstance(x, Tensor) else x)


def _scalar(x: Any, tag: str) -> float:
    array = _array(x)
    if array.size != 1:
        raise ShapeError(
            f"add_scalar: {tag!r} needs one number, got shape {array.shape}; reduce it first"
        )
    return float(array.reshape(()))


# ---- histograms ----------------------------------------------------------------------------------


@functools.cache
def _tensorflow_edges() -> Any:
    """Edges that grow by a tenth from 1e-12 to 1e20, on both sides of 0."""
    edges, edge = [], 1e-12
    while edge < 1e20:
        edges.append(edge)
        edge *= 1.1
    return np.array([*(-e for e in reversed(edges)), 0.0, *edges])


def _histogram(values: Any, bins: Any, max_bins: int | None) -> bytes:
    if values.size == 0:
        raise InvalidArgument("add_histogram: The input has no element.")
    counts, limits = np.histogram(values, bins)
    if max_bins is not None and len(counts) > max_bins:
        together = -(-len(counts) // max_bins)
        kept = np.arange(0, len(counts), together)
        counts = np.add.reduceat(counts, kept)
        limits = np.append(limits[kept], limits[-1])
    # one empty bucket below the first full one, from which TensorBoard takes its left edge
    full = np.flatnonzero(counts)
    if not full.size:
        raise InvalidArgument(
            "add_histogram: The histogram is empty: no value lies within the buckets; are all NaN?"
        )
    first, last = full[0], full[-1]
    if first > 0:
        counts, limits = counts[first - 1 : last + 1], limits[first : last + 2]
    else:
        counts = np.concatenate([[0], counts[: last + 1]])
        limits = limits[: last + 2]
    with np.errstate(over="ignore"):
        squares = float(values.dot(values))
    return _encoded(values.min(), values.max(), values.size, values.sum(), squares, limits, counts)


def _encoded(
    least: Any, most: Any, count: Any, total: Any, squares: Any, limits: Any, counts: Any
) -> bytes:
    numbers = enumerate((least, most, count, total, squares), 1)
    head = b"".join(field_double(i, float(v)) for i, v in numbers)
    return head + field_doubles(6, limits) + field_doubles(7, counts)


# ---- images --------------------------------------------------------------------------------------


def _as_hwc(image: Any, formats: str) -> Any:
    """The image, or a grid of a batch of them, as (height, width, channels)."""
    names = formats.upper()
    if len(set(names)) != len(names) or set(names) not in (set("HW"), set("CHW"), set("NCHW")):
        raise InvalidArgument(
            f"add_image: dataformats must name the dimensions, like CHW, HW, NCHW; got {formats!r}"
        )
    if image.ndim != len(names):
        raise ShapeError(
            "add_image: size of input tensor and input format are different, tensor shape: "
            f"{image.shape}, input_format: {formats}"
        )
    if "N" not in names:
        if "C" not in names:
            image, names = image[..., None], names + "C"
        return image.transpose([names.index(d) for d in "HWC"])
    images = image.transpose([names.index(d) for d in "NHWC"])
    count, height, width, channels = images.shape
    columns = min(count, 8)
    rows = -(-count // columns) if count else 0
    grid = np.zeros((rows * columns, height, width, channels), images.dtype)
    grid[:count] = images
    grid = grid.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    return grid.reshape(rows * height, columns * width, channels)


def _pixels(image: Any, tag: str) -> Any:
    """Bytes of an image of one to four channels."""
    if not (image.size and 1 <= image.shape[-1] <= 4):
        raise ShapeError(
            f"add_image: {tag!r} needs pixels of 1 to 4 channels, got {image.shape} as (height, "
            "width, channels); is dataformats right?"
        )
    if image.dtype != np.uint8:
        scaled = image.astype(np.float64) * 255
        image = np.nan_to_num(scaled).clip(0, 255).astype(np.uint8)
    return image
