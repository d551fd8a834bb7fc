"""DistributedSampler against PyTorch's."""

from __future__ import annotations

import warnings

import pytest

import adjoint as ad
from adjoint.utils.data.distributed import DistributedSampler

reference = pytest.importorskip("torch.utils.data.distributed").DistributedSampler


@pytest.mark.parametrize("size", [0, 1, 2, 15, 16, 1000])
@pytest.mark.parametrize("ranks", [1, 3, 4])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
def test_pytorchs_order(size, ranks, shuffle, drop_last):
    for rank in range(ranks):
        options = {"num_replicas": ranks, "rank": rank, "shuffle": shuffle}
        ours = DistributedSampler(range(size), seed=2**32 + 7, drop_last=drop_last, **options)
        theirs = reference(range(size), seed=2**32 + 7, drop_last=drop_last, **options)
        if size == 0 or (drop_last and size < ranks):
            assert list(ours) == [] and len(ours) == 0
            continue
        assert (len(ours), ours.total_size) == (len(theirs), theirs.total_size)
        for epoch in (0, 1, 5):
            ours.set_epoch(epoch)
            theirs.set_epoch(epoch)
            assert list(ours) == list(theirs)


@pytest.mark.parametrize("size", [0, 1, 10, 11])
def test_exact_gives_each_index_once(size):
    shares = [list(DistributedSampler(range(size), 4, r, exact=True)) for r in range(4)]
    assert sorted(i for share in shares for i in share) == list(range(size))
    lengths = [len(DistributedSampler(range(size), 4, r, exact=True)) for r in range(4)]
    assert lengths == [len(share) for share in shares]


def test_a_forgotten_epoch_warns():
    sampler = DistributedSampler(range(4), 2, 0)
    list(sampler)
    with pytest.warns(UserWarning, match="set_epoch"):
        list(sampler)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler.set_epoch(1)
        list(sampler)
        plain = DistributedSampler(range(4), 2, 0, shuffle=False)
        list(plain)
        list(plain)


def test_ranks_come_from_the_group_and_are_checked():
    ad.distributed.init_process_group("fake", rank=2, world_size=3)
    try:
        assert list(DistributedSampler(range(6), shuffle=False)) == [2, 5]
    finally:
        ad.distributed.destroy_process_group()
    with pytest.raises(ad.DistributedError, match="init_process_group"):
        DistributedSampler(range(6))
    with pytest.raises(ad.InvalidArgument, match=r"interval \[0, 1\]"):
        DistributedSampler(range(6), 2, 2)
    with pytest.raises(ad.InvalidArgument, match="exact"):
        DistributedSampler(range(6), 2, 0, exact=True, drop_last=True)
