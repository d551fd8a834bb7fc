"""Frozen programs beside onnxruntime and PyTorch: models that PyTorch makes and writes as files.

For each model, file format and batch size: the largest difference from PyTorch's output as a share
of its largest element, and how many times as fast as onnxruntime and PyTorch (eager, inference
mode) the program is. One thread each, interleaved, in one process; the time is the thread's own, so
that other programs on the machine count for little.

    python -m benchmarks inference            the table
    python -m benchmarks.inference resnet18   some of its models
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .timing import compare

BATCHES = tuple(map(int, os.environ.get("BATCHES", "1 32").split()))
_HERE = "ADJOINT_BENCHMARK_HERE"  # set in the process that has one thread


def models() -> dict[str, tuple[Callable[[], Any], tuple[int, ...] | None]]:
    """For each model what makes it, and the shape of an input without the batch (None: ids)."""
    import torch
    from torch import nn

    functional = nn.functional

    def lenet() -> Any:
        return nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5),
            nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(),
            nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
        )  # fmt: skip

    class Basic(nn.Module):
        def __init__(self, a: int, b: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(),
                nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b),
            )  # fmt: skip
            self.short = (
                nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b))
                if stride > 1
                else nn.Identity()
            )

        def forward(self, x: Any) -> Any:
            return functional.relu(self.body(x) + self.short(x))

    def resnet18() -> Any:
        layers = [
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        ]  # fmt: skip
        for a, b, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
            layers += [Basic(a, b, stride), Basic(b, b, 1)]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))

    class Inverted(nn.Module):
        def __init__(self, a: int, b: int, stride: int, factor: int) -> None:
            super().__init__()
            wide = a * factor
            first = [nn.Conv2d(a, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()]
            self.body = nn.Sequential(
                *(first if factor > 1 else []),
                nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
                nn.BatchNorm2d(wide), nn.ReLU6(),
                nn.Conv2d(wide, b, 1, bias=False), nn.BatchNorm2d(b),
            )  # fmt: skip
            self.residual = stride == 1 and a == b

        def forward(self, x: Any) -> Any:
            return x + self.body(x) if self.residual else self.body(x)

    def mobilenet() -> Any:
        layers = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()]
        a = 32
        for factor, b, count, stride in (
            (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
            (6, 160, 3, 2), (6, 320, 1, 1),
        ):  # fmt: skip
            for i in range(count):
                layers.append(Inverted(a, b, stride if i == 0 else 1, factor))
                a = b
        layers += [nn.Conv2d(a, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()

            def double(a: int, b: int) -> Any:
                return nn.Sequential(
                    nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(),
                    nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(),
                )  # fmt: skip

            self.down = nn.ModuleList([double(3, 16), double(16, 32), double(32, 64)])
            self.up = nn.ModuleList(
                [nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)]
            )
            self.after = nn.ModuleList([double(64, 32), double(32, 16)])
            self.out = nn.Conv2d(16, 2, 1)

        def forward(self, x: Any) -> Any:
            a = self.down[0](x)
            b = self.down[1](functional.max_pool2d(a, 2))
            c = self.down[2](functional.max_pool2d(b, 2))
            b = self.after[0](torch.cat([self.up[0](c), b], 1))
            return self.out(self.after[1](torch.cat([self.up[1](b), a], 1)))

    class Recurrent(nn.Module):
        def __init__(self, kind: Any) -> None:
            super().__init__()
            self.layers = kind(32, 64, num_layers=2, batch_first=True)
            self.last = nn.Linear(64, 10)

        def forward(self, x: Any) -> Any:
            return self.last(self.layers(x)[0])

    class First(nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            return self.model(x)[0]

    def vit() -> Any:
        import transformers

        return First(transformers.ViTForImageClassification(transformers.ViTConfig(
            image_size=64, patch_size=8, hidden_size=192, num_hidden_layers=4,
            num_attention_heads=3, intermediate_size=768)))  # fmt: skip

    def bert() -> Any:
        import transformers

        return First(transformers.BertModel(transformers.BertConfig(
            vocab_size=1000, hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
            intermediate_size=1024, max_position_embeddings=128)))  # fmt: skip

    def gpt2() -> Any:
        import transformers

        return First(transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=1000, n_positions=128, n_embd=256, n_layer=4, n_head=4, use_cache=False,
            bos_token_id=0, eos_token_id=0)))  # fmt: skip

    return {
        "LeNet": (lenet, (1, 28, 28)),
        "ResNet-18": (resnet18, (3, 64, 64)),
        "MobileNetV2": (mobilenet, (3, 64, 64)),
        "U-Net": (UNet, (3, 64, 64)),
        "LSTM": (lambda: Recurrent(nn.LSTM), (16, 32)),
        "GRU": (lambda: Recurrent(nn.GRU), (16, 32)),
        "ViT": (vit, (3, 64, 64)),
        "BERT": (bert, None),
        "GPT-2": (gpt2, None),
    }


def written(module: Any, x: Any) -> bytes:
    """The ONNX file that PyTorch writes of a module."""
    import torch

    file = io.BytesIO()
    with quiet():
        try:
            torch.onnx.export(module, (x,), file, dynamo=False, opset_version=17)
        except Exception:  # TorchScript's exporter lacks some of transformers' operations
            file = io.BytesIO()
            torch.onnx.export(module, (x,), file, dynamo=True)
    return file.getvalue()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what exporters print."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        with contextlib.redirect_stderr(io.StringIO()):
            yield


def by_pnnx(module: Any, x: Any) -> Any:
    """The module that adjoint reads from the files that the tool pnnx writes; None without it."""
    import torch

    import adjoint as ad

    try:
        import pnnx

        from adjoint import pnnx as ours
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as folder, quiet():
        path = Path(folder) / "model.pt"
        traced = torch.jit.trace(module, x, check_trace=False)
        traced.save(str(path))
        command = [str(Path(pnnx.EXEC_PATH)), str(path), f"inputshape={list(x.shape)}"]
        kind = "i64" if x.dtype == torch.int64 else "f32"
        command[-1] = f"inputshape={str(list(x.shape)).replace(' ', '')}{kind}"
        subprocess.run(command, cwd=folder, capture_output=True, check=True)
        loaded = ours.load(path.with_suffix(".pnnx.param"), path.with_suffix(".pnnx.bin"))
    assert isinstance(loaded, ad.nn.Module)
    return loaded


def rows(wanted: list[str]) -> Iterator[tuple[Any, ...]]:
    """(model, format, batch, difference, ratio to onnxruntime, ratio to PyTorch, microseconds)."""
    import onnxruntime
    import torch

    import adjoint as ad

    torch.set_num_threads(1)
    onnxruntime.set_default_logger_severity(3)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    for name, (make, shape) in models().items():
        if wanted and name not in wanted:
            continue
        torch.manual_seed(0)
        module = make().eval()
        with torch.no_grad():  # PyTorch writes equal parameters only once
            for parameter in module.parameters():
                parameter += 0.01 * torch.randn_like(parameter)
        for batch in BATCHES:
            ids = shape is None
            x = torch.randint(0, 1000, (batch, 64)) if ids else torch.randn(batch, *shape)
            with torch.no_grad():
                expected = module(x).numpy()
            data = written(module, x)
            session = onnxruntime.InferenceSession(
                data, options, providers=["CPUExecutionProvider"]
            )
            feed = {session.get_inputs()[0].name: x.numpy()}
            ours = ad.from_numpy(x.numpy())
            for kind, loaded in (("onnx", ad.onnx.load(data)), ("pnnx", by_pnnx(module, x))):
                if loaded is None:
                    continue
                program = ad.inference.freeze(loaded, ours)
                difference = np.abs(program(ours).numpy() - expected).max() / np.abs(expected).max()

                def eager(module: Any = module, x: Any = x) -> Any:
                    with torch.inference_mode():
                        return module(x)

                def run(program: Any = program, ours: Any = ours) -> Any:
                    return program(ours)

                def ort(session: Any = session, feed: Any = feed) -> Any:
                    return session.run(None, feed)

                first = compare(run, ort, rounds=9, seconds=0.05, clock=time.thread_time)
                second = compare(run, eager, rounds=9, seconds=0.05, clock=time.thread_time)
                yield name, kind, batch, difference, first.ratio, second.ratio, first.ours


def main(arguments: list[str] | None = None) -> None:
    """Print the table as Markdown, in a process with one thread."""
    if _HERE not in os.environ:
        env = {**os.environ, _HERE: "1", "OMP_NUM_THREADS": "1", "ADJOINT_NUM_THREADS": "1",
               "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip
        command = [sys.executable, "-m", "benchmarks.inference", *(arguments or [])]
        subprocess.run(command, env=env, check=True)
        return
    print("| model | file | batch | difference | onnxruntime / ours | PyTorch / ours | ours, us |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for name, kind, batch, difference, ort, eager, ours in rows(arguments or []):
        print(
            f"| {name} | {kind} | {batch} | {difference:.0e} | {ort:.2f} | {eager:.2f} "
            f"| {ours:,.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
