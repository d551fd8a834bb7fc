"""Apple's graphics processors under PyTorch's names: there are none here.

Source: https://docs.pytorch.org/docs/stable/mps.html

>>> ad.mps.is_available(), ad.mps.device_count()
(False, 0)
"""

from __future__ import annotations

from .absent_devices import functions

_FUNCTIONS = functions(
    "mps",
    "Event current_allocated_memory device_count driver_allocated_memory empty_cache get_rng_state "
    "is_available manual_seed recommended_max_memory seed set_per_process_memory_fraction "
    "set_rng_state synchronize",
)
globals().update(_FUNCTIONS)
__all__ = list(_FUNCTIONS)
