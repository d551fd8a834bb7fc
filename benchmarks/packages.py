"""Training steps of packages that import torch: under the alias in one process, with PyTorch in
another, in turns.

The packages are those of `make ecosystem`, which is run before; both processes have the same ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ROOT / "build" / "ecosystem"
THREADS = 2


def _model(name: str) -> tuple[Any, Any]:
    """A model, and its loss for inputs that were drawn once."""
    import torch

    if name.startswith("timm"):
        import timm

        model = timm.create_model("resnet18", num_classes=10)
        x, y = torch.randn(4, 3, 128, 128), torch.randint(0, 10, (4,))
        return model, lambda: torch.nn.functional.cross_entropy(model(x), y)
    import transformers

    ids = torch.randint(0, 1000, (8, 64))
    if name.startswith("BERT"):
        model = transformers.BertForMaskedLM(transformers.BertConfig(
            vocab_size=1000, hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=512,
        ))  # fmt: skip
    else:
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=1000, n_positions=64, n_embd=128, n_layer=2, n_head=2,
        ))  # fmt: skip
    return model, lambda: model(input_ids=ids, labels=ids).loss


NAMES = ("timm's resnet18, 4x3x128x128", "BERT, 2 layers, 128 wide, 8x64", "GPT-2, the same")


def _work(aliased: bool) -> None:
    """Answer each line of input, the number of a model, after a step of that."""
    if aliased:
        import adjoint

        adjoint.as_torch()
    sys.path.extend(sys.argv[3:])
    import torch

    if not aliased:
        # torchvision from PyPI is built for CUDA; of its operators none is used here
        declared = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
    torch.manual_seed(0)
    torch.set_num_threads(THREADS)
    steps: dict[int, Any] = {}
    for line in sys.stdin:
        number = int(line)
        if number not in steps:
            steps[number] = _step(NAMES[number])
        steps[number]()
        print("done", file=sys.stderr, flush=True)


def _step(name: str) -> Any:
    import torch

    model, loss_of = _model(name)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        loss_of().backward()
        optimizer.step()

    return step


class _Worker:
    """A process that takes steps."""

    def __init__(self, python: Path | str, kind: str, *more: str) -> None:
        self.process = subprocess.Popen(
            [str(python), "-W", "ignore", __file__, "worker", kind, *more],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip

    def step(self, number: int) -> None:
        assert self.process.stdin is not None and self.process.stderr is not None
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        said = ""
        while (line := self.process.stderr.readline()) != "done\n":
            said += line
            if not line:
                raise SystemExit(said)


def main() -> None:
    """Print the table."""
    from .timing import compare, header, row

    python = PACKAGES / "bin" / "python"
    header(f"Steps of packages' models (AdamW, {THREADS} threads; a process each)")
    if not python.exists():
        print("not run: `make ecosystem` installs the packages")
        return
    site = sysconfig.get_path("purelib", vars={"base": str(PACKAGES)})
    ours, theirs = _Worker(python, "ours"), _Worker(sys.executable, "theirs", site)
    for number, name in enumerate(NAMES):
        row(name, compare(
            lambda number=number: ours.step(number), lambda number=number: theirs.step(number),
            seconds=0.5,
        ))  # fmt: skip
    for worker in (ours, theirs):
        worker.process.kill()
        worker.process.wait()


if __name__ == "__main__":
    _work(sys.argv[2] == "ours")
