"""`adjoint demo`: train on real digits, save, predict in a new process, draw a picture."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import adjoint as ad

from ...core import config
from ...core.errors import AdjointError, CheckpointError, Unsupported
from ...core.progress import progress
from .digits import DigitNet, History, accuracy_of, logits_of, train

EPOCHS = 20
SMOKE_STEPS = 4
_NEEDED = {"sklearn": "scikit-learn", "matplotlib": "matplotlib", "tqdm": "tqdm"}


HELP = "train a small network on real handwritten digits"


def add_arguments(add: Callable[..., Any]) -> None:
    """Add the command's arguments."""
    folder = Path("runs/digits")
    here = "(default: %(default)s)"
    add("--out", type=Path, default=folder, metavar="FOLDER", help=f"for what it writes {here}")
    add("--epochs", type=_positive, default=EPOCHS, metavar="N", help=f"of training {here}")
    add("--predict", type=Path, metavar="FILE", help="read a checkpoint and predict, no more")
    add("--logits", type=Path, metavar="FILE", help="with --predict: save the outputs to FILE")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def run(options: argparse.Namespace) -> int:
    """The subcommand."""
    assert_installed("sklearn" if options.predict else "")
    with one_thread():
        if options.predict:
            return predict(options.predict, options.logits)
        return demonstrate(options.out, options.epochs)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Products this small are fastest on one thread, and then round alike for any core count."""
    before = ad.get_num_threads()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a BLAS without the setting: slower, no worse
        ad.set_num_threads(1)
        try:
            yield
        finally:
            ad.set_num_threads(before)


def assert_installed(only: str = "") -> None:
    """Raise an error that names missing packages, before any work is done."""
    missing = [
        distribution
        for module, distribution in _NEEDED.items()
        if (not only or module == only) and importlib.util.find_spec(module) is None
    ]
    if missing:
        raise Unsupported(
            f"the demo needs {', '.join(missing)}, not installed here; install with: "
            "pip install 'adjoint[demo]'"
        )


def demonstrate(folder: Path, epochs: int) -> int:
    """Train, save, read back in a new process, draw."""
    smoke = bool(config.read("ADJOINT_SMOKE"))
    folder.mkdir(parents=True, exist_ok=True)
    ad.manual_seed(0)
    train_set, test_set = ad.data.digits()
    model = DigitNet()
    count = sum(p.numel() for p in model.parameters())
    print(
        f"Training a network of {count:,} parameters on {len(train_set)} images of handwritten "
        f"digits; {len(test_set)} more are kept for the test."
    )
    history = train_with_bar(model, train_set, test_set, epochs, SMOKE_STEPS if smoke else None)
    images, labels = test_set.tensors
    logits = logits_of(model, images)
    accuracy = accuracy_of(logits, labels)
    print(f"Test accuracy: {accuracy:.2%} after {history.seconds:.1f} s of training")

    checkpoint = folder / "model.safetensors"
    ad.save({"model": model.state_dict(), "accuracy": accuracy}, checkpoint)
    print(f"Checkpoint: {checkpoint}")
    if not logits_from_new_process(checkpoint).equal(logits):
        raise CheckpointError(
            "the network that a new process read from the checkpoint computes other outputs"
        )
    print("A new process read it back and predicts exactly the same.")

    from .picture import draw

    picture = folder / "digits.png"
    draw(picture, history, images.numpy(), labels.numpy(), logits.softmax(1).numpy())
    print(f"Picture: {picture}")
    print(NEXT.format(checkpoint=checkpoint))
    return 0


NEXT = """
What to try next
  train longer                      adjoint demo --epochs 60
  predict with the saved network    adjoint demo --predict {checkpoint}
  see what this machine offers      adjoint info
  change the network                examples/digits.py, the same in sixty lines"""


def train_with_bar(
    model: DigitNet, train_set: Any, test_set: Any, epochs: int, max_steps: int | None
) -> History:
    """Train, with a progress bar where someone is looking."""
    total = max_steps or epochs * -(-len(train_set) // 64)
    with progress(total=total) as bar:
        shown = {"loss": "", "test": ""}

        def report(loss: float, accuracy: float | None) -> None:
            shown["loss"] = f"{loss:.3f}"
            if accuracy is not None:
                shown["test"] = f"{accuracy:.1%}"
            bar.set_postfix(shown, refresh=False)
            bar.update(min(1, total - bar.n))

        return train(model, train_set, test_set, epochs, max_steps, report)


def logits_from_new_process(checkpoint: Path) -> Any:
    """The test images' logits, computed by a new Python that knows the checkpoint only."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "logits.safetensors")
        source = str(Path(ad.__file__).resolve().parents[1])
        path = os.pathsep.join(p for p in (source, os.environ.get("PYTHONPATH", "")) if p)
        command = [sys.executable, "-m", "adjoint", "demo", "--predict", str(checkpoint),
                   "--logits", file]  # fmt: skip
        result = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
        )
        if result.returncode:
            raise PredictionError(f"the new process failed:\n{result.stderr.strip()}")
        return ad.load(file)


class PredictionError(AdjointError, RuntimeError):
    """The process that should predict did not."""


def predict(checkpoint: Path, logits_file: Path | None) -> int:
    """Read a checkpoint and predict the test images."""
    loaded = ad.load(checkpoint)
    if not isinstance(loaded, dict) or "model" not in loaded:
        raise CheckpointError(f"{checkpoint} is no checkpoint of `adjoint demo`")
    model = DigitNet()
    model.load_state_dict(loaded["model"])
    _, test_set = ad.data.digits()
    images, labels = test_set.tensors
    logits = logits_of(model, images)
    if logits_file is not None:
        ad.save(logits, logits_file)
    guesses = logits.argmax(1)
    wrong = (guesses != labels).nonzero().reshape(-1).tolist()
    print(f"{checkpoint}: {accuracy_of(logits, labels):.2%} of {len(labels)} test images right")
    print(f"  first digits    {' '.join(map(str, labels[:20].tolist()))}")
    print(f"  predicted       {' '.join(map(str, guesses[:20].tolist()))}")
    for i in wrong[:8]:
        print(f"  image {i}: a {labels[i].item()} taken for a {guesses[i].item()}")
    return 0
