"""Datasets, samplers, collation, and the DataLoader with and without worker processes."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import signal
import time
import tracemalloc
from collections import OrderedDict, UserDict, defaultdict, namedtuple

import numpy as np
import pytest

import adjoint as ad
from adjoint import data
from adjoint.utils.data import DataLoader
from tests.sweep import one_in

Point = namedtuple("Point", "x y")


class Squares(data.Dataset):
    def __init__(self, size=10):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        if not 0 <= i < self.size:
            raise IndexError(i)
        return i, ad.tensor([float(i * i)])


class Count(data.IterableDataset):
    def __init__(self, end, shared=False):
        self.end = end
        self.shared = shared

    def __iter__(self):
        worker = data.get_worker_info()
        if self.shared and worker is not None:
            return iter(range(worker.id, self.end, worker.num_workers))
        return iter(range(self.end))


def flat(loader):
    return [v for batch in loader for v in batch.tolist()]


# ---- datasets ------------------------------------------------------------------------------------


def test_tensor_dataset():
    rows = data.TensorDataset(ad.arange(6).reshape(3, 2), ad.tensor([7, 8, 9]))
    assert len(rows) == 3 and rows[1][0].tolist() == [2, 3] and rows[-1][1].item() == 9
    with pytest.raises(ValueError, match=r"first sizes \[2, 3\]"):
        data.TensorDataset(ad.ones(2), ad.ones(3))


def test_combined_datasets():
    whole = Squares(3) + Squares(4)
    assert isinstance(whole, data.ConcatDataset) and len(whole) == 7
    assert [whole[i][0] for i in range(7)] == [0, 1, 2, 0, 1, 2, 3] and whole[-1][0] == 3
    with pytest.raises(IndexError, match="7 is out of range"):
        whole[7]
    with pytest.raises(TypeError, match="ChainDataset"):
        data.ConcatDataset([Count(3)])
    assert list(Count(2) + Count(3)) == [0, 1, 0, 1, 2]
    pairs = data.StackDataset(Squares(3), [10, 20, 30])
    assert pairs[2][1] == 30 and len(pairs) == 3
    with pytest.raises(ValueError, match="Size mismatch"):
        data.StackDataset([1], [1, 2])


def test_random_split():
    generator = ad.Generator().manual_seed(3)
    parts = data.random_split(range(10), [7, 3], generator)
    again = data.random_split(range(10), [7, 3], ad.Generator().manual_seed(3))
    assert [list(p) for p in parts] == [list(p) for p in again]
    assert sorted([*parts[0], *parts[1]]) == list(range(10))
    assert [len(p) for p in data.random_split(range(10), [0.5, 0.25, 0.25])] == [6, 2, 2]
    with pytest.raises(ValueError, match=r"\(9 and 10\)"):
        data.random_split(range(10), [6, 3])
    with pytest.raises(ValueError, match="Fraction at index 0"):
        data.random_split(range(10), [-0.5, 1.5])


def test_digits():
    pytest.importorskip("sklearn")
    train, test = data.digits()
    images, labels = train.tensors
    assert images.shape == (1437, 1, 8, 8) and labels.dtype is ad.int64
    assert images.min().item() == 0 and images.max().item() == 1
    assert set(test.tensors[1].tolist()) == set(range(10))
    assert train.tensors[1].equal(data.digits()[0].tensors[1])


@pytest.mark.parametrize("name", ["iris", "breast_cancer", "diabetes"])
def test_tables(name):
    datasets = pytest.importorskip("sklearn.datasets")
    source = getattr(datasets, f"load_{name}")()
    train, test = getattr(data, name)()
    inputs, targets = (
        ad.cat(parts).numpy() for parts in zip(train.tensors, test.tensors, strict=True)
    )
    assert inputs.dtype == np.float32 and len(test) == round(len(inputs) / 5)
    rows = np.column_stack([inputs, targets])
    wanted = np.column_stack([source.data.astype(np.float32), source.target])
    np.testing.assert_array_equal(
        rows[np.lexsort(rows.T)], wanted[np.lexsort(wanted.T)]
    )  # each row once, with its own target
    assert train.tensors[0].equal(getattr(data, name)()[0].tensors[0])


def test_source_code():
    text = data.source_code(50_000)
    assert len(text) == 50_000 and data.source_code(20_000) == text[:20_000]
    assert text.count("    def ") > 20 and data.source_code(0) == ""
    assert len(data.source_code()) > 3_000_000
    for size in (-1, 10**9):
        with pytest.raises(ValueError, match=str(size)):
            data.source_code(size)


# ---- samplers ------------------------------------------------------------------------------------


def test_samplers():
    ad.manual_seed(0)
    assert list(data.SequentialSampler("abc")) == [0, 1, 2]
    shuffled = list(data.RandomSampler(range(50)))
    assert sorted(shuffled) == list(range(50)) and shuffled != list(range(50))
    assert list(data.RandomSampler(range(50))) != shuffled
    ad.manual_seed(0)
    assert list(data.RandomSampler(range(50))) == shuffled
    assert len(list(data.RandomSampler(range(3), replacement=True, num_samples=10))) == 10
    assert sorted(data.RandomSampler(range(3), num_samples=7))[:2] == [0, 0]
    assert sorted(data.SubsetRandomSampler([4, 9])) == [4, 9]
    drawn = list(data.WeightedRandomSampler([1.0, 0.0, 3.0], 4000))
    assert 1 not in drawn and 2.6 < drawn.count(2) / drawn.count(0) < 3.5
    assert sorted(data.WeightedRandomSampler([1.0, 2.0], 2, replacement=False)) == [0, 1]


@pytest.mark.parametrize(
    ("drop", "expected"), [(False, [[0, 1], [2, 3], [4]]), (True, [[0, 1], [2, 3]])]
)
def test_batch_sampler(drop, expected):
    sampler = data.BatchSampler(data.SequentialSampler(range(5)), 2, drop)
    assert list(sampler) == expected and len(sampler) == len(expected)


def test_length_buckets():
    lengths = np.random.default_rng(0).integers(1, 100, 1001).tolist()

    def padding(batches):
        return sum(max(lengths[i] for i in b) * len(b) - sum(lengths[i] for i in b)
                   for b in batches)  # fmt: skip

    sampler = data.BucketBatchSampler(lengths, 8, generator=ad.Generator().manual_seed(1))
    first, second = list(sampler), list(sampler)
    assert len(first) == len(sampler) == 126 and first != second
    assert sorted(i for batch in first for i in batch) == list(range(1001))
    unsorted = list(data.BucketBatchSampler(lengths, 8, pool=1))
    assert padding(first) * 5 < padding(unsorted)
    longest = [max(lengths[i] for i in batch) for batch in first]
    assert longest != sorted(longest)
    full = data.BucketBatchSampler(lengths, 8, drop_last=True)
    assert {len(batch) for batch in full} == {8} and len(list(full)) == len(full) == 125
    ordered = data.BucketBatchSampler([3, 1, 2], 2, shuffle=False)
    assert list(ordered) == list(ordered) == [[1, 2], [0]]
    assert list(data.BucketBatchSampler([], 2)) == []
    assert [b.tolist() for b in DataLoader(range(3), batch_sampler=ordered)] == [[1, 2], [0]]


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: data.BucketBatchSampler([1], 0), "batch_size .* 0"),
        (lambda: data.BucketBatchSampler([1], 1, pool=0), "pool .* 0"),
        (lambda: data.BatchSampler([1], 0, False), "batch_size should be a positive integer .* 0"),
        (lambda: data.BatchSampler([1], True, False), "positive integer"),
        (lambda: data.BatchSampler([1], 1, "x"), "drop_last should be a boolean"),
        (lambda: data.RandomSampler([1], num_samples=-1), "num_samples .* -1"),
        (lambda: data.RandomSampler([1], replacement=1), "replacement should be a boolean"),
        (lambda: data.WeightedRandomSampler([[1.0]], 1), "1d sequence"),
        (lambda: DataLoader([1], num_workers=-1), "num_workers .* -1"),
        (lambda: DataLoader([1], timeout=-1), "timeout .* -1"),
        (lambda: DataLoader([1], prefetch_factor=2), "prefetch_factor"),
        (lambda: DataLoader([1], persistent_workers=True), "persistent_workers"),
        (lambda: DataLoader([1], sampler=[0], shuffle=True), "sampler .* exclusive with shuffle"),
        (lambda: DataLoader([1], batch_sampler=[[0]], batch_size=2), "batch_sampler .* exclusive"),
        (lambda: DataLoader([1], batch_size=None, drop_last=True), "drop_last"),
        (lambda: DataLoader(Count(1), shuffle=True), "unspecified shuffle .* shuffle=True"),
        (lambda: DataLoader(Count(1), sampler=[0]), "unspecified sampler"),
        (lambda: setattr(DataLoader([1]), "batch_size", 3), "batch_size .* should not be set"),
    ],
)
def test_wrong_options(call, match):
    with pytest.raises(ValueError, match=match):
        call()


# ---- collation -----------------------------------------------------------------------------------


def test_default_collate():
    batch = [
        {"p": Point(ad.ones(2), 1), "l": [1.0, True], "s": "a", "a": np.arange(2)},
        {"p": Point(ad.zeros(2), 2), "l": [2.0, False], "s": "b", "a": np.arange(2)},
    ]
    found = data.default_collate(batch)
    assert type(found["p"]) is Point and found["p"].x.shape == (2, 2)
    assert found["p"].y.dtype is ad.int64 and found["l"][0].dtype is ad.float64
    assert found["l"][1].dtype is ad.bool and found["s"] == ["a", "b"]
    assert found["a"].tolist() == [[0, 1], [0, 1]]
    assert isinstance(data.default_collate([(1, 2), (3, 4)]), list)
    with pytest.raises(RuntimeError, match=r"lengths \[1, 2\]"):
        data.default_collate([[1], [1, 2]])
    with pytest.raises(TypeError, match="found <class 'object'>"):
        data.default_collate([object()])
    converted = data.default_convert(Point(np.ones(1), "s"))
    assert isinstance(converted.x, ad.Tensor) and converted.y == "s"


def structures(t):
    """Batches to collate, made by adjoint or by PyTorch."""
    return [
        [True, False], [1, 2.5], [2.5, 1], [Point(1, 2), Point(3, 4)],
        [np.float32(1), np.float32(2)], [np.str_("a")] * 2,
        ["a", "b"], [b"a", b"b"], [(1, "a"), (2, "b")], [[1, 2], [3, 4]],
        [{"a": 1}, {"a": 2}], [OrderedDict(a=1)] * 2, [defaultdict(list, a=1)] * 2, [UserDict(a=1)],
        [np.array(1), np.array(2)], [range(2)] * 2, [None, None], [np.ones(2, "U1")], [(), ()],
        [t.ones(2), t.ones(2)], [((1, 2), [3]), ((4, 5), [6])], [{}, {}], [1, None],
    ]  # fmt: skip


def shown(convert, batch):
    """What `convert` makes of a batch: types, dtypes and values, or the error's base type."""

    def show(x):
        if hasattr(x, "tolist"):
            return str(x.dtype).split(".")[-1], x.tolist()
        if isinstance(x, (dict, UserDict)):
            return type(x).__name__, {key: show(value) for key, value in x.items()}
        if isinstance(x, (list, tuple)):
            return type(x).__name__, [show(part) for part in x]
        return repr(x)

    try:
        return show(convert(batch))
    except (TypeError, RuntimeError):
        return "error"


@pytest.mark.parametrize("name", ["default_collate", "default_convert"])
def test_structures_are_collated_as_in_pytorch(name):
    torch = pytest.importorskip("torch")
    theirs = getattr(torch.utils.data, name)
    for a, b in zip(structures(ad), structures(torch), strict=True):
        assert shown(getattr(data, name), a) == shown(theirs, b), b


# ---- loader --------------------------------------------------------------------------------------


BATCHES = [
    {}, {"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": None},
    {"batch_sampler": [[1, 2], [9], [0, 0]]}, {"sampler": [5, 3]},
]  # fmt: skip


@pytest.mark.parametrize(
    ("workers", "options"),
    [*((0, options) for options in BATCHES), *one_in(3, [(2, options) for options in BATCHES])],
)
def test_batches(workers, options):
    batched = options.get("batch_size", 1)
    if "batch_sampler" in options:
        expected = options["batch_sampler"]
    else:
        order = options.get("sampler", range(10))
        expected = list(order) if batched is None else list(
            data.BatchSampler(order, batched, options.get("drop_last", False))
        )  # fmt: skip
    loader = DataLoader(Squares(), num_workers=workers, **options)
    assert len(loader) == len(expected)
    for _ in range(2):
        found = list(loader)
        numbers = [b[0] if batched is None else b[0].tolist() for b in found]
        assert numbers == expected
        for number, (_, square) in zip(expected, found, strict=True):
            want = [[n * n] for n in number] if batched is not None else [number * number]
            assert square.tolist() == want


def test_shuffling_is_the_same_for_any_number_of_workers():
    def order(workers):
        loader = DataLoader(
            range(30), 4, shuffle=True, num_workers=workers,
            generator=ad.Generator().manual_seed(5),
        )  # fmt: skip
        return flat(loader), flat(loader)

    first, second = order(0)
    assert first != second and sorted(first) == list(range(30))
    assert order(2) == (first, second)


def test_the_short_way_for_tensor_datasets_equals_the_long_one():
    rows = data.TensorDataset(ad.arange(20).reshape(10, 2), ad.arange(10.0, requires_grad=True))
    some = data.Subset(data.Subset(rows, list(range(1, 10))), [0, 3, 8, 5])
    for dataset in (rows, some):
        short = list(DataLoader(dataset, 3))
        long = list(DataLoader(dataset, 3, collate_fn=lambda batch: data.default_collate(batch)))
        assert [type(b) for b in short] == [type(b) for b in long]
        for (xs, ys), (xl, yl) in zip(short, long, strict=True):
            assert xs.equal(xl) and ys.equal(yl) and ys.requires_grad


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_iterable_datasets(workers):
    shared = DataLoader(Count(10, shared=True), 2, num_workers=workers)
    assert sorted(flat(shared)) == list(range(10))
    copies = DataLoader(Count(4), 3, num_workers=workers)
    assert sorted(flat(copies)) == sorted(list(range(4)) * max(workers, 1))
    full = DataLoader(Count(10), 4, drop_last=True, num_workers=workers)
    assert all(len(b) == 4 for b in full)
    assert [int(x) for x in DataLoader(Count(3), batch_size=None)] == [0, 1, 2]


class Environment(data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        worker = data.get_worker_info()
        return {
            "worker": worker.id, "pid": os.getpid(), "python": random.random(),
            "numpy": float(np.random.rand()), "adjoint": float(ad.rand(1)),
            "threads": ad.get_num_threads(), "started": int(os.environ.get("STARTED", "-1")),
        }  # fmt: skip


def mark(worker_id):
    os.environ["STARTED"] = str(worker_id)


def test_workers_have_their_own_seeds_and_start_function():
    def run():
        ad.manual_seed(1)
        loader = DataLoader(Environment(), 1, num_workers=2, worker_init_fn=mark)
        batches = list(loader)
        return {key: [b[key].item() for b in batches] for key in batches[0]}

    first, second = run(), run()
    assert first["worker"] == [0, 1] * 4 == first["started"]
    assert len(set(first["pid"])) == 2 and os.getpid() not in first["pid"]
    for key in ("python", "numpy", "adjoint"):
        assert len(set(first[key])) == 8 and first[key] == second[key]
    assert set(first["threads"]) == {1} and "STARTED" not in os.environ


class Slow(Squares):
    def __getitem__(self, i):
        time.sleep(0.03 if i % 2 == 0 else 0)
        return i


def test_results_come_in_order_although_workers_differ_in_speed():
    assert flat(DataLoader(Slow(8), 1, num_workers=2, prefetch_factor=3)) == list(range(8))


def test_persistent_workers_are_kept():
    loader = DataLoader(Environment(), 4, num_workers=1, persistent_workers=True)
    pids = {pid for _ in range(3) for batch in loader for pid in batch["pid"].tolist()}
    assert len(pids) == 1
    for _ in loader:  # leaving a pass early does not mix its batches into the next
        break
    squares = DataLoader(Squares(8), 1, num_workers=2, persistent_workers=True, prefetch_factor=2)
    for _ in squares:
        break
    assert [b[0].item() for b in squares] == list(range(8))


class Failing(Squares):
    def __init__(self, what):
        super().__init__()
        self.what = what

    def __getitem__(self, i):
        if i == 5:
            self.what()
        return i


class TwoArguments(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)


def divide():
    return 1 / 0


def lookup():
    return {}["missing key"]


def odd():
    raise TwoArguments(1, 2)


@pytest.mark.parametrize(
    ("what", "error"), [(divide, ZeroDivisionError), (lookup, KeyError), (odd, RuntimeError)]
)
def test_an_error_in_a_worker_is_raised_here_with_its_traceback(what, error):
    seen = []
    with pytest.raises(error) as caught:
        for batch in DataLoader(Failing(what), 2, num_workers=2):
            seen.append(batch.tolist())
    assert seen == [[0, 1], [2, 3]]
    text = str(caught.value)
    assert "in DataLoader worker process 0" in text and f"in {what.__name__}" in text


def refuse(worker_id):
    raise ValueError(f"no start for {worker_id}")


def test_an_error_in_the_start_function():
    with pytest.raises(ValueError, match="no start for 0"):
        list(DataLoader(Squares(), num_workers=1, worker_init_fn=refuse))


class Unpicklable(Squares):
    def __getitem__(self, i):
        return i


def closure_batch(batch):
    return lambda: batch


def test_a_batch_that_cannot_be_sent():
    with pytest.raises(Exception, match="while sending a batch"):
        list(DataLoader(Unpicklable(), num_workers=1, collate_fn=closure_batch))


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def leave():
    os._exit(3)


@pytest.mark.parametrize(
    ("what", "match"), [(die, "was killed by signal 9"), (leave, "ended with code 3")]
)
def test_a_worker_that_dies_is_reported(what, match):
    with pytest.raises(RuntimeError, match=rf"worker \(pid \d+\) exited unexpectedly: it {match}"):
        list(DataLoader(Failing(what), 1, num_workers=2))


class Sleeping(Squares):
    def __init__(self):
        super().__init__()
        self.done = multiprocessing.Value("i", 0)

    def __getitem__(self, i):
        if i == 5:
            time.sleep(60)
            self.done.value += 1
        return i


def test_timeout():
    dataset = Sleeping()
    with pytest.raises(RuntimeError, match=r"timed out after 0\.5 seconds"):
        list(DataLoader(dataset, 5, num_workers=1, timeout=0.5))
    assert dataset.done.value == 0


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_no_worker_outlives_its_loop():
    iterator = iter(DataLoader(Environment(), 1, num_workers=2))
    pids = [next(iterator)["pid"].item(), next(iterator)["pid"].item()]
    assert all(alive(pid) for pid in pids)
    del iterator
    assert not any(alive(pid) for pid in pids)


def test_tensors_of_all_kinds_cross_the_process_border():
    batch = [ad.ones(2, dtype=ad.bfloat16), ad.tensor(True), ad.zeros(0, 3), ad.ones(300, 300)]
    (found,) = DataLoader([batch], batch_size=None, num_workers=1)
    for a, b in zip(found, batch, strict=True):
        assert a.dtype is b.dtype and a.equal(b)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_start_methods(method):
    loader = DataLoader(Squares(4), 2, num_workers=1, multiprocessing_context=method)
    assert [b[0].tolist() for b in loader] == [[0, 1], [2, 3]]


def test_ten_thousand_million_draws_are_made_in_pieces():
    g = ad.Generator().manual_seed(3)
    sampler = ad.data.RandomSampler(range(50), True, 10_000_000_000, g)
    assert len(sampler) == 10_000_000_000
    tracemalloc.start()
    found = list(itertools.islice(sampler, 2**20 + 7))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000_000
    g = ad.Generator().manual_seed(3)
    expected = ad.randint(0, 50, (2**20,), generator=g).tolist()
    assert found[: 2**20] == expected
    assert found[2**20 :] == ad.randint(0, 50, (2**20,), generator=g).tolist()[:7]


def test_types_may_be_added_to_what_makes_batches(monkeypatch):
    from adjoint.data import collate

    class Own:
        def __init__(self, value):
            self.value = value

    with pytest.raises(TypeError):
        collate.default_collate([Own(1)])
    monkeypatch.setitem(
        collate.default_collate_fn_map,
        Own,
        lambda batch, *, collate_fn_map: collate.collate(
            [each.value for each in batch], collate_fn_map=collate_fn_map
        ),
    )
    found = collate.default_collate([{"a": (Own(1), "x")}, {"a": (Own(2), "y")}])
    assert found["a"][0].tolist() == [1, 2] and list(found["a"][1]) == ["x", "y"]
    with pytest.raises(TypeError):
        collate.collate([1, 2])
