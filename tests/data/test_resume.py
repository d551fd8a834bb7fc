"""A run that is saved and gone on with in a new process equals one that was never stopped."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import adjoint as ad
from adjoint import data, nn

from ..sweep import one_in, swept

STEPS = 20


class Noisy(data.Dataset):
    """Items that are drawn anew each time they are read; says what was read."""

    def __init__(self, size=26):
        self.size = size
        self.read = []

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        self.read.append(i)
        return ad.full((4,), float(i)) / 10 + 0.1 * ad.randn(4), i % 3


class Training:
    """A training run and its checkpoints; a pass has 7 batches, so that 20 steps are 3 passes."""

    def __init__(self, workers):
        ad.manual_seed(3)
        self.model = nn.Sequential(
            nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3)
        )
        self.optimizer = ad.optim.AdamW(self.model.parameters(), lr=0.01, amsgrad=True)
        self.scheduler = ad.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, STEPS)
        self.loader = data.DataLoader(
            Noisy(), 4, shuffle=True, num_workers=workers
        )  # fmt: skip
        self.losses = []

    def run(self, steps):
        while True:
            for x, y in self.loader:
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()
                self.losses.append(loss.item())
                if len(self.losses) == steps:
                    return

    def save(self, path):
        names = ("model", "optimizer", "scheduler", "loader")
        state = {name: getattr(self, name).state_dict() for name in names}
        ad.save({**state, "losses": self.losses, "random": ad.get_rng_state()}, path)

    def load(self, path):
        state = ad.load(path)
        for name in ("model", "optimizer", "scheduler", "loader"):
            getattr(self, name).load_state_dict(state[name])
        self.losses = state["losses"]
        ad.set_rng_state(state["random"])


def main(checkpoint, result, workers):
    training = Training(int(workers))
    training.load(checkpoint)
    training.run(STEPS)
    training.save(result)


def assert_same(a, b, path=""):
    """Equal to the last bit; the order of keys is free."""
    assert type(a) is type(b), path
    if isinstance(a, ad.Tensor):
        assert a.dtype is b.dtype and a.detach().numpy().tobytes() == b.detach().numpy().tobytes()
    elif isinstance(a, (dict, list, tuple)):
        keys = set(a) if isinstance(a, dict) else range(len(a))
        assert keys == (set(b) if isinstance(b, dict) else range(len(b))), path
        for key in keys:
            assert_same(a[key], b[key], f"{path}.{key}")
    else:
        assert a == b, path


@pytest.mark.parametrize("workers", [0, swept(2)])
@pytest.mark.parametrize("at", [10, 14])  # in the middle of a pass, and after its last batch
def test_resumed_training_is_the_same_bit_for_bit(workers, at, tmp_path):
    whole = Training(workers)
    whole.run(STEPS)
    whole.save(tmp_path / "whole")
    begun = Training(workers)
    begun.run(at)
    begun.save(tmp_path / "begun")
    root = Path(__file__).parents[2]
    code = "import sys; from tests.data.test_resume import main; main(*sys.argv[1:])"
    arguments = [str(tmp_path / "begun"), str(tmp_path / "end"), str(workers)]
    subprocess.run([sys.executable, "-c", code, *arguments], cwd=root, check=True, timeout=600)
    assert ad.load(tmp_path / "begun")["losses"] == whole.losses[:at]
    assert_same(ad.load(tmp_path / "end"), ad.load(tmp_path / "whole"))


SAMPLERS = {
    "in order": lambda d, g: {"batch_size": 3},
    "shuffled": lambda d, g: {"batch_size": 3, "shuffle": True},
    "shuffled by its generator": lambda d, g: {"batch_size": 3, "shuffle": True, "generator": g},
    "one by one": lambda d, g: {"batch_size": None, "sampler": data.RandomSampler(d, generator=g)},
    "several rounds": lambda d, g: {"sampler": data.RandomSampler(d, num_samples=60, generator=g)},
    "weighted": lambda d, g: {"sampler": data.WeightedRandomSampler([1.0, 2.0] * 13, 20)},
    "subset": lambda d, g: {"sampler": data.SubsetRandomSampler(range(20), generator=g)},
    "buckets": lambda d, g: {
        "batch_sampler": data.BucketBatchSampler([i % 7 for i in range(26)], 3, generator=g)
    },
    "list": lambda d, g: {"batch_sampler": [[1, 2], [3], [4, 5, 6], [7], [8], [9], [10]]},
}


def indices(batches):
    return [b[1].tolist() if isinstance(b[1], ad.Tensor) else b[1] for b in batches]


class Numbers(Noisy):
    def __getitem__(self, i):
        self.read.append(i)
        return ad.rand(()), i


@pytest.mark.parametrize(
    ("name", "workers"),
    [*((name, 0) for name in SAMPLERS), *one_in(12, ((name, 2) for name in SAMPLERS))],
)
def test_every_sampler_goes_on_where_it_was(name, workers):
    def make():
        dataset = Numbers()
        options = SAMPLERS[name](dataset, ad.Generator().manual_seed(9))
        return data.DataLoader(dataset, num_workers=workers, **options)

    ad.manual_seed(1)
    loader = make()
    list(loader)
    batches = iter(loader)
    for _ in range(5):
        next(batches)
    state, random_state = loader.state_dict(), ad.get_rng_state()
    rest, following = list(batches), list(loader)

    ad.manual_seed(77)
    other = make()
    other.load_state_dict(json.loads(json.dumps(state)))
    assert other.state_dict() == state
    ad.set_rng_state(random_state)
    found = list(other)
    assert indices(found) == indices(rest) and rest
    assert all(a[0].equal(b[0]) for a, b in zip(found, rest, strict=True))
    if workers == 0:
        wanted = [[b] if isinstance(b, int) else b for b in indices(rest)]
        assert other.dataset.read == [i for batch in wanted for i in batch]  # and nothing else
    assert indices(other) == indices(following)


class Stream(data.IterableDataset):
    def __iter__(self):
        worker = data.get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        # Unequal shares: worker 0 ends long before the others.
        return iter(range(first, 12 if first == 0 else 40, step))


@pytest.mark.parametrize("workers", [0, 1, swept(3)])
@pytest.mark.parametrize("size", [None, swept(2)])
def test_streams_go_on_where_they_were(workers, size):
    for count in (1, 4, 9):
        loader = data.DataLoader(Stream(), size, num_workers=workers)
        batches = iter(loader)
        for _ in range(count):
            if next(batches, None) is None:
                break
        state = loader.state_dict()
        rest = [ad.as_tensor(b).tolist() for b in batches]
        other = data.DataLoader(Stream(), size, num_workers=workers)
        other.load_state_dict(state)
        assert [ad.as_tensor(b).tolist() for b in other] == (rest or
               [ad.as_tensor(b).tolist() for b in loader])  # fmt: skip


def test_persistent_workers_draw_the_same_after_resuming():
    def make():
        return data.DataLoader(Noisy(), 4, num_workers=2, persistent_workers=True)

    ad.manual_seed(0)
    loader = make()
    list(loader)
    state, random_state = loader.state_dict(), ad.get_rng_state()
    second = [x.tolist() for x, _ in loader]
    other = make()
    other.load_state_dict(state)
    ad.set_rng_state(random_state)
    assert [x.tolist() for x, _ in other] == second


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda s: s.clear(), "no DataLoader's"),
        (lambda s: s.update(default=3), "no DataLoader's"),
        (lambda s: s.update(length=9), "9 batches a pass, this one has 4"),
        (lambda s: s.update(own=[[1, 2]]), "1 generators of its own, this one has 0"),
    ],
)
def test_states_of_other_loaders_are_refused(change, match):
    loader = data.DataLoader(range(8), 2)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    before = dict(state)
    change(state)
    with pytest.raises(ad.CheckpointError, match=match):
        loader.load_state_dict(state)
    assert loader.state_dict() == before


def test_a_stream_resumes_with_as_many_workers_only():
    loader = data.DataLoader(Stream(), 2)
    next(iter(loader))
    other = data.DataLoader(Stream(), 2, num_workers=1)
    with pytest.raises(ad.CheckpointError, match="0 workers, this one has 1"):
        other.load_state_dict(loader.state_dict())


# ---- workers that are kept -----------------------------------------------------------------------


class Draws(data.Dataset):
    """Items that show what a worker draws."""

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return ad.tensor(float(i)), ad.rand(1)


def drawing(**options):
    return data.DataLoader(Draws(), 2, shuffle=True, num_workers=2, **options)


def flat(batches):
    return [x.flatten().tolist() for batch in batches for x in batch]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_seeds_are_drawn_when_pytorch_draws_them(persistent, own):
    torch = pytest.importorskip("torch")

    def orders(library, utils):
        library.manual_seed(3)
        generator = library.Generator().manual_seed(4) if own else None
        loader = utils.DataLoader(
            range(20), 5, shuffle=True, num_workers=1, generator=generator,
            persistent_workers=persistent,
        )  # fmt: skip
        passes = [[batch.tolist() for batch in loader] for _ in range(3)]
        return passes, library.randint(0, 10**6, (3,)).tolist()

    ad.random.follow_torch()
    try:
        assert orders(ad, data) == orders(torch, torch.utils.data)
    finally:
        ad.random.follow_torch(False)


@pytest.mark.parametrize("batches", [0, 1, 3, 4])
@pytest.mark.parametrize("passes", [0, 1, 2])
def test_kept_workers_resume_in_any_pass(passes, batches):
    ad.manual_seed(1)
    loader = drawing(persistent_workers=True)
    for _ in range(passes):
        flat(loader)
    running = iter(loader)
    for _ in range(batches):
        next(running)
    state, now = loader.state_dict(), ad.get_rng_state()
    rest = [flat(running), flat(loader), flat(loader)]
    other = drawing(persistent_workers=True)
    ad.set_rng_state(now)
    other.load_state_dict(state)
    assert [flat(other), flat(other), flat(other)] == rest


def test_kept_workers_resume_between_passes():
    ad.manual_seed(1)
    loader = drawing(persistent_workers=True)
    for passes in range(3):
        state, now = loader.state_dict(), ad.get_rng_state()
        rest = flat(loader)
        other = drawing(persistent_workers=True)
        ad.set_rng_state(now)
        other.load_state_dict(state)
        assert flat(other) == rest, passes
    first = flat(loader)
    assert first != flat(loader)  # what workers draw goes on
