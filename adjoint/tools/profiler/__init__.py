"""Time and memory profiles of a program, under the names of `torch.profiler`.

Source: https://docs.pytorch.org/docs/stable/profiler.html
"""

from .activities import DeviceType, ProfilerActivity, kineto_available, supported_activities
from .annotations import record_function
from .profiling import profile, tensorboard_trace_handler
from .schedules import ProfilerAction, schedule

__all__ = [
    "DeviceType", "ProfilerAction", "ProfilerActivity", "kineto_available", "profile",
    "record_function", "schedule", "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip
