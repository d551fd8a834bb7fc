"""Names of modules below `torch.distributed.checkpoint` that packages import."""

from __future__ import annotations

from ...core.missing_names import refused

for _name in (
    "DefaultLoadPlanner", "DefaultSavePlanner", "HuggingFaceStorageReader",
    "HuggingFaceStorageWriter", "StateDictOptions", "get_model_state_dict",
    "get_optimizer_state_dict", "get_state_dict", "set_model_state_dict",
    "set_optimizer_state_dict", "set_state_dict",
):  # fmt: skip
    globals()[_name] = refused(
        "distributed.checkpoint", _name, "distributed.checkpoint has save and load of state dicts"
    )
