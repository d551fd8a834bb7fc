"""lightning: a Trainer with validation, callbacks, checkpoints and a summary; Fabric."""

from __future__ import annotations

import logging
import tempfile

import lightning
import torch
from common import data, fill, labels
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn import functional as F

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Classifier(lightning.LightningModule):
    def __init__(self, hidden=12, lr=1e-2):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 3))
        self.losses = []

    def training_step(self, batch, index):
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train", loss)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        found = self.net(batch[0])
        hits = (found.argmax(1) == batch[1]).float().mean()
        self.log_dict({"loss": F.cross_entropy(found, batch[1]), "hits": hits})

    test_step = validation_step

    def predict_step(self, batch, index):
        return self.net(batch[0])

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        return {
            "optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}
        }  # fmt: skip


def loader(shuffle=False):
    dataset = torch.utils.data.TensorDataset(data(48, 4), labels(3, 48))
    return torch.utils.data.DataLoader(dataset, batch_size=12, shuffle=shuffle)


def fitted(folder, **options):
    lightning.seed_everything(0, verbose=False)
    model = fill(Classifier())
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", default_root_dir=folder, enable_progress_bar=False,
        logger=CSVLogger(folder), log_every_n_steps=1, **options,
    )  # fmt: skip
    trainer.fit(model, loader(True), loader())
    return trainer, model


def case_trainer():
    with tempfile.TemporaryDirectory() as folder:
        best = ModelCheckpoint(monitor="loss")
        watch = [best, EarlyStopping("loss"), LearningRateMonitor()]
        trainer, model = fitted(folder, callbacks=watch)
        tested = trainer.test(model, loader(), verbose=False)
        shown = trainer.predict(model, loader())
        again = Classifier.load_from_checkpoint(best.best_model_path)
        return [model.losses, tested, torch.cat(shown), again.hparams.hidden, again.net(data(2, 4))]


def case_options():
    with tempfile.TemporaryDirectory() as folder:
        some = {"enable_model_summary": False, "enable_checkpointing": False}
        return [
            fitted(folder, gradient_clip_val=0.5, accumulate_grad_batches=2, **some)[1].losses,
            fitted(folder, precision="64-true", **some)[1].losses,
            fitted(folder, profiler="simple", detect_anomaly=True, **some)[1].losses,
        ]


def case_summary():
    summary = lightning.pytorch.utilities.model_summary.ModelSummary(Classifier(), max_depth=2)
    return [summary.total_parameters, str(summary).splitlines()[:5]]


def case_fabric():
    fabric = lightning.Fabric(accelerator="cpu")
    model = fill(nn.Linear(4, 3))
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    losses = []
    for x, y in fabric.setup_dataloaders(loader()):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses
