"""`torch.profiler.profiler`: the module that has PyTorch's `profile`."""

from ..profiler import ProfilerAction, profile, schedule, tensorboard_trace_handler
from ..profiler.schedules import always as _default_schedule_fn

__all__ = [
    "ProfilerAction", "_default_schedule_fn", "profile", "schedule", "tensorboard_trace_handler",
]  # fmt: skip
