"""Intel's graphics processors under PyTorch's names: there are none here.

Source: https://docs.pytorch.org/docs/stable/xpu.html

>>> ad.xpu.is_available(), ad.xpu.device_count()
(False, 0)
"""

from __future__ import annotations

from .absent_devices import functions

_FUNCTIONS = functions(
    "xpu",
    "Event Stream StreamContext current_device current_stream device device_count device_of "
    "empty_cache get_arch_list get_device_capability get_device_name get_device_properties "
    "get_rng_state get_rng_state_all init initial_seed is_available is_bf16_supported "
    "is_initialized is_tf32_supported manual_seed manual_seed_all max_memory_allocated "
    "max_memory_reserved mem_get_info memory_allocated memory_reserved memory_stats "
    "reset_accumulated_memory_stats reset_peak_memory_stats seed seed_all set_device "
    "set_rng_state set_rng_state_all set_stream stream synchronize",
)
globals().update(_FUNCTIONS)
__all__ = list(_FUNCTIONS)
