"""accelerate: a training loop, accumulation, clipping, gathering, hooks."""

from __future__ import annotations

import tempfile

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import extract_model_from_parallel, find_batch_size, send_to_device, set_seed
from common import data, fill, labels, told
from torch import nn


def _parts():
    model = fill(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)))
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(data(24, 6), labels(3, 24)), batch_size=4
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    return model, loader, optimizer, schedule


def case_training():
    set_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, loader, optimizer, schedule = accelerator.prepare(*_parts())
    losses = []
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(loss)
    found = accelerator.gather_for_metrics(model(data(3, 6)))
    plain = accelerator.unwrap_model(model)
    return [
        losses,
        found,
        schedule.get_last_lr(),
        type(extract_model_from_parallel(plain)).__name__,
    ]


def case_bf16():
    AcceleratorState._reset_state(True)
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    model, loader, optimizer, _ = accelerator.prepare(*_parts())
    losses = []
    for x, y in loader:
        with accelerator.autocast():
            out = model(x)
        loss = F.cross_entropy(out, y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)
    return [losses[-1], str(out.dtype)]


def case_state():
    AcceleratorState._reset_state(True)
    accelerator = Accelerator(cpu=True)
    model, loader, optimizer, _ = accelerator.prepare(*_parts())
    for x, y in loader:
        accelerator.backward(F.cross_entropy(model(x), y))
        optimizer.step()
    after = told(model(data(2, 6)))
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_state(folder)
        fill(model, 5)
        accelerator.load_state(folder)
    return [after, model(data(2, 6)), len(optimizer.state_dict()["state"])]


def case_utilities():
    sent = send_to_device({"a": data(2, 3), "b": [data(1)]}, "cpu")
    return [sent, find_batch_size(sent), Accelerator(cpu=True).reduce(data(2), "sum")]
