"""`torch.utils.flop_counter`: the multiplications and additions of a block, by modules."""

from __future__ import annotations

import warnings
from collections import defaultdict
from typing import Any

from ...core.argument_repr import argument_repr
from ...core.errors import Unsupported
from .events import FunctionEvent
from .recorder import EventRecorder

__all__ = ["FlopCounterMode"]

_SUFFIXES = ("", "K", "M", "B", "T")


class _Named(EventRecorder):
    """Records with modules under their paths: the outermost one's class, then attributes' names."""

    def __init__(self) -> None:
        super().__init__(with_flops=True, with_modules=True)
        self._paths: dict[Any, str] = {}

    def composite(self, declared: Any, args: tuple[Any, ...], one_by_one: bool) -> Any:
        """A composite, op by op, so that the products in it are seen."""
        return super().composite(declared, args, True)

    def _name_of(self, module: Any) -> str:
        if module not in self._paths:
            root = type(module).__name__
            for path, below in module.named_modules():
                self._paths.setdefault(below, f"{root}.{path}" if path else root)
        return self._paths[module]


class FlopCounterMode:
    """Counts the multiplications and additions of products and convolutions inside of a block.

    What backward computes counts for the whole, "Global", and for no module. `depth` is how many
    levels of modules the table shows, which is printed at the end if `display`.

    Errors: Unsupported for `custom_mapping`, which is of PyTorch's operators.
    Source: https://github.com/pytorch/pytorch/blob/main/torch/utils/flop_counter.py

    >>> from adjoint.profiler.flop_counter import FlopCounterMode
    >>> with FlopCounterMode(display=False) as counter:
    ...     y = ad.nn.Sequential(ad.nn.Linear(4, 3))(ad.ones(2, 4))
    >>> counter.get_total_flops(), sorted(counter.get_flop_counts())
    (48, ['Global', 'Sequential', 'Sequential.0'])
    """

    __repr__ = argument_repr

    def __init__(
        self,
        mods: Any = None,
        depth: int | None = 2,
        display: bool = True,
        custom_mapping: dict[Any, Any] | None = None,
    ) -> None:
        if mods is not None:
            warnings.warn(
                "mods argument is not needed anymore, you can stop passing it", stacklevel=2
            )
        if custom_mapping:
            raise Unsupported(
                f"FlopCounterMode: custom_mapping of {list(custom_mapping)}; what operators take "
                "is counted by their own kinds here"
            )
        self.depth = depth
        self.display = display
        self.flop_counts: dict[str, dict[Any, int]] = {}
        self._recorder: _Named | None = None

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self._recorder = _Named()
        self._recorder.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        recorder, self._recorder = self._recorder, None
        assert recorder is not None
        recorder.stop()
        counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        modules = set(recorder._paths.values())
        for event in recorder.events:
            if event.flops:
                for place in {"Global", *_around(event, modules)}:
                    counts[place][event.name] += event.flops
        self.flop_counts.update({place: dict(found) for place, found in counts.items()})
        if self.display:
            print(self.get_table())

    def get_total_flops(self) -> int:
        """Floating-point operations of the whole block."""
        return sum(self.flop_counts.get("Global", {}).values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """Floating-point operations of each module, and of the block ("Global"), by ops' names."""
        return {place: dict(found) for place, found in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """The counts as text, of modules up to a depth."""
        depth = depth or self.depth or 999999
        total = self.get_total_flops()
        power = max((i for i in range(len(_SUFFIXES)) if total >= 1000**i), default=0)
        places = [
            place
            for place in sorted(self.flop_counts)
            if place != "Global" and place.count(".") < depth
        ]
        inside = any(sum(self.flop_counts[place].values()) >= total for place in places)
        rows = [("Module", "FLOP", "% Total")]
        for place in [*([] if inside or not total else ["Global"]), *places]:
            left = " " * (place.count(".") + (not inside and place != "Global"))
            found = self.flop_counts[place]
            for name, count in ((place, sum(found.values())), *found.items()):
                shown = f"{count / 1000**power:.3f}{_SUFFIXES[power]}" if power else str(count)
                named = f"{left}{name}" if name == place else f"{left} - {name}"
                rows.append((named, shown, f"{count / total:.2%}"))
        if len(rows) == 1:
            rows.append(("Global", "0", "0%"))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        rows.insert(1, tuple("-" * width for width in widths))  # type: ignore[arg-type]
        return "\n".join(
            f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}".rstrip() for a, b, c in rows
        )


def _around(event: FunctionEvent, modules: set[str]) -> list[str]:
    """The modules whose forward an event is in."""
    found, above = [], event.cpu_parent
    while above is not None:
        if above.name in modules:
            found.append(above.name)
        above = above.cpu_parent
    return found
