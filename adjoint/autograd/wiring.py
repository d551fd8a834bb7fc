"""Where slots are filled: what the dispatcher and public functions call of the layers above them.

There are no others (`tests/test_wiring.py`), but `program.compute.accelerate`, which the native
backend fills when it is switched on.
"""

from __future__ import annotations

import numpy as np

from ..core.device import watch_backends
from ..eager import fused, public, tensors
from ..eager.dispatch import EXECUTORS
from ..eager.operators import RECORDERS
from ..eager.writes import WRITERS
from ..graph.cells import Cell, Source
from ..graph.lazy import LazyValue
from ..ops.create.conversion import Sparse
from ..ops.index.selected import Selected, write_selected
from . import devices, fusion, inplace, levels, overwriting, recording
from .batching import Batched
from .dual import Dual
from .forward_level import OpenDual

__all__ = ["wire"]


def wire(tensor_class: type) -> None:
    """Let operations give tensors of this class, with methods in place."""
    tensors.connect(tensor_class)
    public.connect(inplace.write_out, inplace.write, inplace.rebind, overwriting.write_anew)
    fused.connect(fusion.execute)
    RECORDERS[1], RECORDERS[2] = recording.record_one, recording.record_pair
    EXECUTORS[LazyValue] = recording.settle_and_execute
    EXECUTORS[Cell] = EXECUTORS[Source] = recording.record_where_inputs_are
    watch_backends(lambda array: EXECUTORS.update({array: devices.execute_on_device}))
    for kind in (Batched, Dual, OpenDual):
        EXECUTORS[kind], WRITERS[kind] = levels.run_leveled, levels.write_leveled
    EXECUTORS[Sparse], WRITERS[Sparse] = devices.execute_sparsely, devices.write_sparse
    WRITERS[LazyValue] = recording.write_lazily
    WRITERS[np.ndarray] = recording.rewrite
    WRITERS[Cell] = WRITERS[Source] = recording.write_cell
    WRITERS[Selected] = write_selected
    for name, function in public.INPLACE.items():
        setattr(tensor_class, name, inplace.inplace_method(name, function))
