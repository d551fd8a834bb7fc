"""Wiring of layers: fills the slots through which the dispatcher and public functions call layers
above them.

There are no others (`tests/test_wiring.py`), but `ir.compute.accelerate`, which the native
backend fills when it is switched on.
"""

from __future__ import annotations

from ..core.device import watch_backends
from ..ops.create.conversion import Sparse
from ..ops.index.selected import Selected, write_selected
from ..runtime import fused, public, tensors
from ..runtime.cells import Cell, SourceCell
from ..runtime.dispatch import EXECUTORS
from ..runtime.lazy import LazyValue
from ..runtime.op_functions import RECORDERS
from ..runtime.writes import WRITERS
from . import devices, fusion, graph_writes, inplace, levels, overwriting, recording
from .batching import Batched
from .dual import Dual
from .forward_level import OpenDual

__all__ = ["wire"]


def wire(tensor_class: type) -> None:
    """Connect the layers: operations return tensors of this class, with in-place methods."""
    tensors.connect(tensor_class)
    public.connect(inplace.write_out, inplace.write, inplace.rebind, overwriting.write_anew)
    fused.connect(fusion.execute)
    RECORDERS[1], RECORDERS[2] = recording.record_one, recording.record_pair
    EXECUTORS[LazyValue] = recording.settle_and_execute
    EXECUTORS[Cell] = EXECUTORS[SourceCell] = recording.record_where_inputs_are
    watch_backends(lambda array: EXECUTORS.update({array: devices.execute_on_device}))
    for kind in (Batched, Dual, OpenDual):
        EXECUTORS[kind], WRITERS[kind] = levels.run_leveled, levels.write_leveled
    EXECUTORS[Sparse], WRITERS[Sparse] = devices.execute_sparsely, devices.write_sparse
    WRITERS[LazyValue] = recording.write_lazily
    WRITERS[Cell] = WRITERS[SourceCell] = graph_writes.write
    WRITERS[Selected] = write_selected
    for name, function in public.INPLACE.items():
        setattr(tensor_class, name, inplace.inplace_method(name, function))
