"""A model of the package timm is fine-tuned: what it learned on one task helps with few images.

It first learns the digits 0 to 4 and is saved. Of the digits 5 to 9 there are five images each: a
new head, lower rates for lower layers, a cosine schedule and averaged weights, all of them timm's,
tune it to these; beside it the same model learns from the 25 images alone.
timm knows nothing of adjoint: the first lines let its `import torch` be adjoint.

Expected: test accuracy after fine-tuning at least 0.7
Run: python examples/finetune_timm.py   (needs the packages timm and scikit-learn)
"""

import os
import tempfile

import adjoint

torch = adjoint.as_torch()

import timm  # noqa: E402 - it imports torch, which is adjoint now
import torch.nn.functional as F  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from timm.loss import LabelSmoothingCrossEntropy  # noqa: E402
from timm.optim import create_optimizer_v2  # noqa: E402
from timm.scheduler import CosineLRScheduler  # noqa: E402
from timm.utils import ModelEmaV3, accuracy  # noqa: E402

SMOKE = bool(os.environ.get("ADJOINT_SMOKE"))
EPOCHS, TUNING = (1, 1) if SMOKE else (8, 60)
NAME, SIZE, SHOTS = "test_resnet", 32, 5


def load(first):
    """Images of the five digits from `first` on, enlarged, and their labels from 0 on."""
    x, y = load_digits(return_X_y=True)
    chosen = (y >= first) & (y < first + 5)
    images = torch.from_numpy(x[chosen] / 8 - 1).float().reshape(-1, 1, 8, 8)
    return F.interpolate(images, SIZE, mode="bilinear"), torch.from_numpy(y[chosen] - first)


def fit(model, x, y, epochs, lr, layer_decay=None):
    """Train `model`; the average of its weights along the way."""
    optimizer = create_optimizer_v2(
        model, "adamw", lr=lr, weight_decay=0.02, layer_decay=layer_decay
    )
    schedule = CosineLRScheduler(optimizer, t_initial=epochs, warmup_t=2, warmup_lr_init=lr / 10)
    average = ModelEmaV3(model, decay=0.9, use_warmup=True)
    criterion = LabelSmoothingCrossEntropy(0.1)
    step = 0
    for epoch in range(epochs):
        schedule.step(epoch)
        model.train()
        for part in torch.randperm(len(x)).split(25)[: len(x) // 25]:
            optimizer.zero_grad()
            loss = criterion(model(x[part]), y[part])
            loss.backward()
            optimizer.step()
            step += 1
            average.update(model, step)
    return average.module, loss.item()


def score(model, x, y):
    with torch.no_grad():
        return accuracy(model.eval()(x), y)[0].item() / 100


def main():
    torch.manual_seed(0)
    x, y = load(0)
    model = timm.create_model(NAME, in_chans=1, num_classes=5)
    model, _ = fit(model, x, y, EPOCHS, 2e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.pth"
        torch.save(model.state_dict(), path)
        tuned = timm.create_model(NAME, in_chans=1, num_classes=5, checkpoint_path=path)
    tuned.reset_classifier(5)

    x, y = load(5)
    few = torch.cat([(y == label).nonzero()[:SHOTS, 0] for label in range(5)])
    rest = torch.ones(len(x), dtype=torch.bool)
    rest[few] = False
    tuned, loss = fit(tuned, x[few], y[few], TUNING, 1e-3, layer_decay=0.6)
    alone = timm.create_model(NAME, in_chans=1, num_classes=5)
    alone, _ = fit(alone, x[few], y[few], TUNING, 4e-3)
    print(f"loss: {loss:.4f}")
    print(f"test accuracy from 25 images alone: {score(alone, x[rest], y[rest]):.4f}")
    print(f"test accuracy after fine-tuning: {score(tuned, x[rest], y[rest]):.4f}")


if __name__ == "__main__":
    main()
