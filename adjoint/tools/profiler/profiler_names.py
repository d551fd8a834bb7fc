"""`torch.profiler.profiler`: the module that has PyTorch's `profile`."""

from . import ProfilerAction, profile, schedule, tensorboard_trace_handler
from .schedules import always as _default_schedule_fn

__all__ = [
    "ProfilerAction", "_default_schedule_fn", "profile", "schedule", "tensorboard_trace_handler",
]  # fmt: skip
