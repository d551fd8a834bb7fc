"""`profile`: when recording begins and ends, and what was recorded."""

from __future__ import annotations

import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ...core.argument_repr import argument_repr
from ...core.errors import InvalidArgument, ProfilerError
from ...core.mode import MODE, mode_with
from .activities import ProfilerActivity
from .events import USER, EventList, FunctionEvent, FunctionEventAvg
from .recorder import EventRecorder
from .schedules import ProfilerAction, always


class profile:  # noqa: N801 - PyTorch's name
    """Records what runs in this thread, between `start()` and `stop()` or inside a `with` block.

    Events are ops that run eagerly, nodes of backward, optimizers' steps, batches of loaders, nodes
    of graphs that are computed, the steps of compiled programs, and blocks of `record_function`.
    Their times are microseconds. `record_shapes` notes the shapes of inputs, `with_stack` the
    program's lines, `with_flops` the multiplications and additions of products and convolutions,
    `with_modules` an event for each call of a module, and `profile_memory` the bytes of the arrays
    that ops made, and of those among them that were freed. With a `schedule`, windows of steps are
    recorded: call `step()` after each step; after a window, `on_trace_ready(prof)` is called, and
    results are of the last window, or with `acc_events` of all.

    Work that CUDA does is seen as the time of launching it: `activities` and `use_cuda` change
    nothing, and neither does `experimental_config`.
    Errors: InvalidArgument for activities of another type; ProfilerError inside another profile.
    Source: https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler.profile

    >>> with ad.profiler.profile(record_shapes=True) as prof:
    ...     y = ad.ones(2, 3) @ ad.ones(3, 4)
    >>> [event.input_shapes for event in prof.events() if event.name == "mat_mul"]
    [[[2, 3], [3, 4]]]
    """

    _in_repr = ("step_num", "_running")
    __repr__ = argument_repr

    def __init__(
        self,
        *,
        activities: Iterable[Any] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
    ) -> None:
        for activity in activities or ():
            if not isinstance(activity, ProfilerActivity):
                raise InvalidArgument(
                    f"profile: activities holds {activity!r}; give members of ProfilerActivity"
                )
        self.schedule = schedule or always
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.current_action = self.schedule(0)
        self._marks_steps = schedule is not None
        self._options = {
            "record_shapes": record_shapes, "profile_memory": profile_memory,
            "with_stack": with_stack, "with_flops": with_flops, "with_modules": with_modules,
        }  # fmt: skip
        self._accumulates = acc_events
        self._metadata: dict[str, Any] = {}
        self._running = False
        self._recorder: EventRecorder | None = None  # of the window that is recorded
        self._recorded: EventList[FunctionEvent] | None = None
        self._mark: FunctionEvent | None = None  # the event of the present step

    # ---- when ------------------------------------------------------------------------------------

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.stop()

    def start(self) -> None:
        """Begin, with what the schedule says of step 0.

        Errors: ProfilerError where this profile or another one records already.

        >>> prof = ad.profiler.profile()
        >>> prof.start()
        >>> y = ad.ones(2).exp()
        >>> prof.stop()
        >>> "exp" in [event.name for event in prof.events()]
        True
        """
        if self._running:
            raise ProfilerError("profile.start: this profile has started; call stop() before")
        if self.current_action.records:
            self._begin()
        self._running = True

    def stop(self) -> None:
        """End; where something was being recorded, call `on_trace_ready`.

        Errors: ProfilerError where it was not started.
        """
        if not self._running:
            raise ProfilerError("profile.stop: this profile was not started; call start() before")
        self._running = False
        if self._recorder is not None:
            self._finish()
            self._tell()

    def step(self) -> None:
        """Say that a step of the program is over, and the next one begins.

        Errors: ProfilerError where the profile does not run.
        Source: https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler.profile.step

        >>> plan = ad.profiler.schedule(wait=1, warmup=0, active=1, repeat=1)
        >>> with ad.profiler.profile(schedule=plan) as prof:
        ...     for _ in range(3):
        ...         y = ad.ones(2).exp()
        ...         prof.step()
        >>> len([event for event in prof.events() if event.name == "exp"])
        1
        """
        if not self._running:
            raise ProfilerError(
                "profile.step: this profile does not run; call it inside `with profile(...)`, or "
                "between start() and stop()"
            )
        before = self.current_action
        self.step_num += 1
        after = self.current_action = self.schedule(self.step_num)
        saves = before is ProfilerAction.RECORD_AND_SAVE
        if before.records and (saves or not after.records):
            if not saves:
                warnings.warn(
                    f"profile.step: the schedule ends a window with {after.name} instead of "
                    "RECORD_AND_SAVE: on_trace_ready is not called for it",
                    stacklevel=2,
                )
            self._finish()
            if saves:
                self._tell()
        if not after.records:
            return
        if self._recorder is None:
            self._begin()
        else:
            self._recorder.start()  # where a block has brought back an earlier mode
            self._end_mark()
            self._begin_mark()

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[Any]) -> None:
        """Pause recording, or go on with it; `activities` changes nothing but must name the CPU.

        Source: https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler._KinetoProfile.toggle_collection_dynamic

        >>> with ad.profiler.profile() as prof:
        ...     prof.toggle_collection_dynamic(False, [ad.profiler.ProfilerActivity.CPU])
        ...     y = ad.ones(2).exp()
        >>> len(prof.events())
        0
        """
        recorder = self._recorder
        if recorder is None or ProfilerActivity.CPU not in activities:
            return
        MODE.set(mode_with(MODE.get(), observer=recorder if enable else None))

    def _begin(self) -> None:
        """Record a window."""
        other = MODE.get().observer
        if other is not None and other.active:
            raise ProfilerError(
                "profile: Profiler is already enabled on this thread; stop the other profile first"
            )
        self._recorder = EventRecorder(**self._options)
        self._recorder.metadata = self._metadata
        if self._accumulates and self._recorded is not None:
            self._recorder.follow(self._recorded.trace)
        self._recorder.start()
        self._begin_mark()

    def _finish(self) -> None:
        """The window is over."""
        recorder = self._recorder
        assert recorder is not None
        self._end_mark()
        recorder.stop()
        self._recorder = None
        self._recorded = EventList(recorder.events, trace=recorder)

    def _begin_mark(self) -> None:
        if self._marks_steps and self._recorder is not None:
            self._mark = self._recorder.begin(f"ProfilerStep#{self.step_num}", USER)

    def _end_mark(self) -> None:
        if self._mark is not None and self._recorder is not None:
            self._recorder.end(self._mark)
            self._mark = None

    def _tell(self) -> None:
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    # ---- what ------------------------------------------------------------------------------------

    def events(self) -> EventList[FunctionEvent]:
        """All events, in the order in which they began.

        Errors: ProfilerError before anything was recorded.
        Source: https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler._KinetoProfile.events

        >>> with ad.profiler.profile() as prof:
        ...     y = ad.ones(2).exp()
        >>> prof.events()[-1].name
        'exp'
        """
        if self._recorded is None:
            raise ProfilerError(
                "profile.events: nothing was recorded to its end yet; ask after stop() (or the "
                "`with` block), or in on_trace_ready"
            )
        return self._recorded

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList[FunctionEventAvg]:
        """The sums of events of one name; of one name and shapes, or lines of the program.

        Ops have no overloads: `group_by_overload_name` changes nothing.
        Errors: ProfilerError before anything was recorded.
        Source: https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler._KinetoProfile.key_averages

        >>> with ad.profiler.profile() as prof:
        ...     y = ad.ones(2).exp().exp()
        >>> [sum.count for sum in prof.key_averages() if sum.key == "exp"]
        [2]
        """
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def export_chrome_trace(self, path: Any) -> None:
        """Write the events as JSON for chrome://tracing and https://ui.perfetto.dev; compressed,
        where the name ends in ".gz".

        Errors: ProfilerError before anything was recorded.
        Source: https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler._KinetoProfile.export_chrome_trace

        >>> import tempfile, os
        >>> with ad.profiler.profile() as prof:
        ...     y = ad.ones(2).exp()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     prof.export_chrome_trace(os.path.join(folder, "trace.json"))
        """
        self.events().export_chrome_trace(path)

    def export_stacks(self, path: Any, metric: str = "self_cpu_time_total") -> None:
        """Write a line for each place in the program, of the functions that lead there and the
        microseconds spent, as flame graphs are drawn from. Needs `with_stack=True`.

        Errors: ProfilerError before anything was recorded, or without stacks.
        Source: https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler._KinetoProfile.export_stacks
        """
        if not self._options["with_stack"]:
            raise ProfilerError("export_stacks: no stacks were recorded; profile(with_stack=True)")
        self.events().export_stacks(path, metric)

    def add_metadata(self, key: str, value: str) -> None:
        """Add a text to the exported trace, beside its events.

        Source: https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler._KinetoProfile.add_metadata

        >>> with ad.profiler.profile() as prof:
        ...     prof.add_metadata("model", "mlp")
        """
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Add the value of a JSON text to the exported trace.

        Errors: InvalidArgument for a text that is not JSON.
        Source: https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler._KinetoProfile.add_metadata_json

        >>> with ad.profiler.profile() as prof:
        ...     prof.add_metadata_json("sizes", "[64, 10]")
        """
        try:
            self._metadata[key] = json.loads(value)
        except json.JSONDecodeError as error:
            raise InvalidArgument(
                f"add_metadata_json: {value!r} is no JSON ({error}); add_metadata takes any text"
            ) from error

    def total_average(self) -> FunctionEventAvg:
        """The sum of all events.

        >>> with ad.profiler.profile() as prof:
        ...     y = ad.ones(2).exp()
        >>> prof.total_average().key
        'Total'
        """
        return self.events().total_average()


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """A handler for `on_trace_ready` that writes each window's trace into a folder that TensorBoard
    reads.

    Files are called `<worker>.<milliseconds>.pt.trace.json`; the worker is the host and the process
    unless it is given.
    Errors: InvalidArgument where `dir_name` cannot be a folder.
    Source: https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler.tensorboard_trace_handler

    >>> import tempfile, os
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     handler = ad.profiler.tensorboard_trace_handler(folder, "worker")
    ...     with ad.profiler.profile(on_trace_ready=handler):
    ...         y = ad.ones(2).exp()
    ...     len(os.listdir(folder))
    1
    """

    def write(prof: profile) -> None:
        folder = Path(dir_name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidArgument(
                f"tensorboard_trace_handler: can't create directory {dir_name}: {error}"
            ) from error
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns() // 1_000_000}.pt.trace.json"
        prof.export_chrome_trace(folder / (name + ".gz" if use_gzip else name))

    return write
