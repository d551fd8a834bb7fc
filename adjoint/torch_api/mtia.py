"""Meta's accelerators (MTIA) under PyTorch's names: there are none here.

Source: https://docs.pytorch.org/docs/stable/mtia.html

>>> ad.mtia.is_available(), ad.mtia.device_count()
(False, 0)
"""

from __future__ import annotations

from .absent_devices import functions

_FUNCTIONS = functions(
    "mtia",
    "Event Stream StreamContext current_device current_stream default_stream device device_count "
    "empty_cache get_device_capability get_device_properties get_rng_state init is_available "
    "is_bf16_supported is_initialized manual_seed manual_seed_all max_memory_allocated "
    "memory_allocated memory_stats reset_peak_memory_stats seed seed_all set_device "
    "set_rng_state set_stream stream synchronize",
)
globals().update(_FUNCTIONS)
__all__ = list(_FUNCTIONS)
