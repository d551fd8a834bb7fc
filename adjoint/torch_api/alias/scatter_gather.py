"""`torch.nn.parallel.scatter_gather`: parts of a batch for several devices, which are not here."""

from ...core.missing_names import refused

_INSTEAD = "several devices are not here; nn.parallel.DistributedDataParallel divides over ranks"

scatter = refused("nn.parallel", "scatter", _INSTEAD)
scatter_kwargs = refused("nn.parallel", "scatter_kwargs", _INSTEAD)
gather = refused("nn.parallel", "gather", _INSTEAD)
