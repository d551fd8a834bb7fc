"""Table of pipelines: the passes that a program goes through, in order, each with its condition.

A pass is a function in a file, and one entry here. The function's name is what `graph()`,
`ADJOINT_DEBUG=passes` and an error of the verifier show.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ...ir.program import Program, Value
from ..capture.routine_ops import give_final_states
from ..schedule.barrier_free import gather_rows
from .affine import fold_affine
from .algebra import exact_algebra, reassociate
from .basic_passes import (
    Folds,
    drop_dead,
    drop_expansions,
    drop_identities,
    fold_constants,
    inline_numbers,
    merge_equal,
)
from .batched_gemm import batch_products
from .decompose import open_activations, open_narrow_gradients, open_outer_products, open_variances
from .device_passes import (
    inline_host_numbers,
    keep_places,
    lay_channels_last,
    open_batch_norms,
    read_narrow,
)
from .kernels import Kernel, fuse_kernels, keep_less
from .layouts import block_layouts
from .patterns import name_activations
from .static_layers import accumulate_products, fuse_epilogues, rectify_products
from .views import flatten_products, hoist_through_views

if TYPE_CHECKING:
    Pass = Callable[..., int]

__all__ = ["PIPELINES", "Entry", "Settings", "run_pipeline"]


@dataclass(frozen=True)
class Settings:
    """Conditions of passes, and what they are told besides the program: a pass gets those fields
    that its parameters are named after.
    """

    folds: Folds = field(default_factory=Folds)  # constants that were computed before

    # Conditions
    nearly: bool = False  # results may differ by rounding (`reassociate=True`)
    packed: bool = False  # layers are a library's, with packed weights
    fused: bool = True  # the device has kernels
    matrix_units: bool = False  # the device has units for matrix products

    # Of `fuse_kernels`
    checked: bool = False
    said: list[tuple[str, str]] | None = None
    again: bool = False
    kind: type[Kernel] = Kernel

    # Of `keep_less`
    first: int = 0
    moving: Collection[Value] = ()


class Entry(NamedTuple):
    """Passes at their place in a pipeline."""

    passes: tuple[Pass, ...]
    when: str = ""  # the setting that must be on
    then: tuple[Pass, ...] = ()  # passes that follow where these have changed something
    repeated: bool = False  # until nothing changes


def entry(*passes: Pass, when: str = "", then: tuple[Pass, ...] = ()) -> Entry:
    """An entry of some passes that share their condition."""
    return Entry(passes, when, then)


_BIT_BY_BIT = (
    entry(fold_constants, drop_identities, drop_expansions, exact_algebra),
    entry(reassociate, when="nearly"),
    entry(merge_equal, inline_numbers, drop_dead),
)

PIPELINES: dict[str, tuple[Entry, ...]] = {
    # A captured function as a whole, before it is cut at optimizers' steps
    "whole": (entry(keep_less),),
    # Each segment of it, in native code
    "step": (
        *_BIT_BY_BIT,
        entry(give_final_states, then=(drop_dead,)),
        entry(block_layouts, then=(drop_identities, drop_dead)),
        entry(
            open_activations, open_variances, open_outer_products, open_narrow_gradients,
            then=(merge_equal, drop_dead),
        ),
        entry(rectify_products, accumulate_products),
        entry(fuse_kernels, drop_dead),
        entry(batch_products, gather_rows),
    ),
    # The same on a device, where computing again without kernels would be ops of their own
    "whole on device": (),
    "step on device": (
        *_BIT_BY_BIT,
        entry(keep_places),
        entry(inline_host_numbers, when="fused"),
        entry(read_narrow, when="fused", then=(drop_dead,)),
        entry(open_batch_norms, when="fused", then=(merge_equal, drop_dead)),
        entry(fuse_kernels, drop_dead, when="fused"),
        entry(lay_channels_last, when="matrix_units"),
    ),
    # The body of a loop that is one function
    "loop": (
        *_BIT_BY_BIT,
        entry(open_activations, open_variances, then=(merge_equal, drop_dead)),
    ),
    # A frozen module in the registry's ops, and then in kernels and layers
    "frozen": (
        Entry(
            (
                fold_constants, drop_identities, drop_expansions, inline_numbers,
                hoist_through_views, merge_equal, flatten_products, fold_affine, drop_dead,
            ),
            repeated=True,
        ),
    ),
    "frozen plan": (
        entry(name_activations),
        entry(fuse_epilogues, when="packed"),
        entry(fuse_kernels, drop_dead),
    ),
}  # fmt: skip


def run_pipeline(name: str, graph: Program, settings: Settings | None = None) -> None:
    """Run the passes of the pipeline called `name` on a program."""
    settings = settings or Settings()
    for each in PIPELINES[name]:
        if each.when and not getattr(settings, each.when):
            continue
        changes = _run_all(each.passes, graph, settings)
        while each.repeated and changes:
            changes = _run_all(each.passes, graph, settings)
        if changes:
            _run_all(each.then, graph, settings)


def _run_all(passes: tuple[Pass, ...], graph: Program, settings: Settings) -> int:
    """Run passes one after another, and return how many changes they have made."""
    changes = 0
    for run in passes:
        changes += run(graph, **{name: getattr(settings, name) for name in _parameters(run)})
    return changes


def _parameters(run: Any) -> tuple[str, ...]:
    """Names of a pass's parameters besides the program."""
    code = run.__wrapped__.__code__
    names: tuple[str, ...] = code.co_varnames[1 : code.co_argcount]
    return names
