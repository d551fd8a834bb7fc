"""Where the time of a training loop goes: a profile of some of its steps, and a trace of them.

Expected: share of a step inside events at least 0.8
Run: python examples/profile_training.py
"""

import os
import tempfile
from pathlib import Path

import adjoint as torch
from adjoint import nn
from adjoint.profiler import ProfilerActivity, profile, record_function, schedule
from adjoint.utils.data import DataLoader, TensorDataset

SMOKE = bool(os.environ.get("ADJOINT_SMOKE"))
STEPS = 8 if SMOKE else 60
ACTIVE = 2 if SMOKE else 20


def build_model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 49, 10)
    )


def train(model, steps, prof=None):
    images, labels = torch.randn(32 * steps, 1, 16, 16), torch.randint(0, 10, (32 * steps,))
    losses = []
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for batch, wanted in DataLoader(TensorDataset(images, labels), batch_size=32):
        optimizer.zero_grad()
        with record_function("forward"):
            loss = nn.functional.cross_entropy(model(batch), wanted)
        with record_function("backward"):
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if prof is not None:
            prof.step()
    return losses


def main():
    torch.manual_seed(0)
    plan = schedule(wait=STEPS - ACTIVE - 2, warmup=2, active=ACTIVE, repeat=1)
    with profile(
        activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True, profile_memory=True,
        with_flops=True,
    ) as prof:  # fmt: skip
        train(build_model(), STEPS, prof)
    print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=12))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        prof.export_chrome_trace(str(path))
        print(f"a trace of {path.stat().st_size:,} bytes, for https://ui.perfetto.dev")
    steps = [event for event in prof.events() if event.name.startswith("ProfilerStep")]
    whole = sum(event.cpu_time_total for event in steps)
    outside = sum(event.self_cpu_time_total for event in steps)
    print(f"share of a step inside events: {1 - outside / whole:.3f}")


if __name__ == "__main__":
    main()
