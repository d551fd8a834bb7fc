"""What `DistributedDataParallel` can be given besides."""
