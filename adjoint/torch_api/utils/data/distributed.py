"""PyTorch's name of the module with the sampler of ranks."""

from ....distributed.sampler import DistributedSampler as DistributedSampler
