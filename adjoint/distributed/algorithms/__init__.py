"""Communication hooks and joins for `DistributedDataParallel`."""
