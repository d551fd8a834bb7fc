"""Checkpoints beside kill -9 and beside damage: the old file, the new one, or a clear error."""

from __future__ import annotations

import json
import mmap
import os
import random
import re
import signal
import struct
import time
import warnings

import pytest

import adjoint as ad
from adjoint import nn

from ..sweep import few_or_many

MUTATIONS = 500


# ---- kill -9 while saving ------------------------------------------------------------------------


def checkpoint(number):
    """A checkpoint every part of which tells its number."""
    return {"begin": number, "w": ad.full((5000,), float(number)), "end": [number, str(number)]}


def assert_is_checkpoint(value, number):
    assert value["begin"] == number and value["end"] == [number, str(number)]
    assert value["w"].equal(ad.full((5000,), float(number)))


def save_until_killed(path, number, progress):
    """The child: saves one number after the other; says which it began and which it finished."""
    while True:
        number += 1
        struct.pack_into("<q", progress, 0, number)
        ad.save(checkpoint(number), path)
        struct.pack_into("<q", progress, 8, number)


def fork():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # "multi-threaded": BLAS's, idle
        return os.fork()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks its victims")
@few_or_many("kills", 10, 60)
def test_a_kill_at_any_moment_leaves_the_old_or_the_new_file(kills, tmp_path):
    path = tmp_path / "x.safetensors"
    ad.save(checkpoint(0), path)
    begin = time.perf_counter()
    for _ in range(10):
        ad.save(checkpoint(0), path)
    usual = (time.perf_counter() - begin) / 10
    rng = random.Random(0)
    progress = mmap.mmap(-1, 16)
    interrupted = most_files = before = 0
    for _ in range(kills):
        last = struct.unpack_from("<q", progress, 0)[0]
        struct.pack_into("<q", progress, 8, last)
        child = fork()
        if child == 0:
            try:
                save_until_killed(path, last, progress)
            finally:
                os._exit(1)
        deadline = time.monotonic() + 10
        while struct.unpack_from("<q", progress, 0)[0] == last and time.monotonic() < deadline:
            time.sleep(0.0002)  # until it has begun to save
        time.sleep(rng.uniform(0, 3 * usual))
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        begun, done = struct.unpack("<qq", progress[:])
        assert begun > last
        found = ad.load(path)
        # Where the first save was begun and not finished, the file is what the last kill left.
        assert found["begin"] in (done if done > last else before, begun)
        assert_is_checkpoint(found, found["begin"])
        before = found["begin"]
        interrupted += begun != done
        most_files = max(most_files, len(os.listdir(tmp_path)))
    assert interrupted > kills // 4  # the kills do hit saves
    assert most_files <= 2  # the file and what the last victim left
    ad.save(checkpoint(-1), path)
    assert os.listdir(tmp_path) == [path.name]


# ---- damage --------------------------------------------------------------------------------------


def training_state():
    """A checkpoint with everything in it: names and shapes repeat, values are shared."""
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8), nn.Dropout(0.5))
    optimizer = ad.optim.AdamW(model.parameters())
    scheduler = ad.optim.lr_scheduler.StepLR(optimizer, 3)
    model(ad.randn(4, 8)).sum().backward()
    optimizer.step()
    scheduler.step()
    base = ad.arange(12)
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "random": ad.get_rng_state(),
        "views": [base, base.reshape(3, 4).T, ad.ones(2, dtype=ad.complex64)],
        "plain": (1, -2.5, True, None, "text", b"bytes", float("nan")),
    }


def split(whole):
    """A file's header as a dictionary, and its data."""
    end = 8 + struct.unpack("<Q", whole[:8])[0]
    return json.loads(whole[8:end]), whole[end:]


def joined(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def flip_bits(whole, rng):
    damaged = bytearray(whole)
    for place in rng.sample(range(len(whole)), rng.choice([1, 1, 2, 8])):
        damaged[place] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def flip_a_bit_of_the_header(whole, rng):
    damaged = bytearray(whole)
    end = 8 + struct.unpack("<Q", whole[:8])[0]
    damaged[rng.randrange(end)] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def truncate(whole, rng):
    return whole[: rng.randrange(len(whole))]


def append(whole, rng):
    return whole + rng.randbytes(rng.randrange(1, 100))


def overwrite_a_block(whole, rng):
    size = rng.randrange(1, 600)
    start = rng.randrange(len(whole) - size)
    block = rng.choice([bytes(size), rng.randbytes(size), whole[:size]])
    return whole[:start] + block + whole[start + size :]


def lie_about_the_header_size(whole, rng):
    size = struct.unpack("<Q", whole[:8])[0]
    lie = rng.choice([0, 1, size - 1, size + 8, 10**8, 10**8 + 1, 2**40, 2**63, 2**64 - 1])
    return struct.pack("<Q", lie) + whole[8:]


def change_the_version(whole, rng):
    header, data = split(whole)
    header["__metadata__"]["adjoint_version"] = rng.choice(["0", "2", "10", "", "-1", "1.0", "x"])
    return joined(header, data)


def lose_metadata(whole, rng):
    header, data = split(whole)
    del header["__metadata__"][rng.choice(["adjoint", "adjoint_version", "adjoint_crc32"])]
    return joined(header, data)


def edit_the_structure(whole, rng):
    header, data = split(whole)
    text = header["__metadata__"]["adjoint"]
    place = rng.choice([m.start() for m in re.finditer(r"\d", text)])
    digit = rng.choice([d for d in "0123456789" if d != text[place]])
    header["__metadata__"]["adjoint"] = text[:place] + digit + text[place + 1 :]
    return joined(header, data)


def tensors_of(header):
    return sorted(name for name in header if name != "__metadata__")


def change_a_dtype(whole, rng):
    header, data = split(whole)
    info = header[rng.choice(tensors_of(header))]
    same_size = {"F32": ["I32", "U32"], "I64": ["F64", "U64"], "U8": ["I8", "BOOL"]}
    other = ["F16", "I8", "F64", "F8_E4M3", "C64", "X"]
    info["dtype"] = rng.choice(same_size.get(info["dtype"], []) + other[: rng.randrange(1, 7)])
    return joined(header, data)


def change_a_shape(whole, rng):
    header, data = split(whole)
    names = [name for name in tensors_of(header) if header[name]["shape"] not in ([], [1])]
    info = header[rng.choice(names)]
    size = 1
    for n in info["shape"]:
        size *= n
    choices = [[size, 1], [1, size], [2, size // 2], [size + 1], [2**62, 4], [-1], [], [0]]
    info["shape"] = rng.choice(choices)
    return joined(header, data)


def change_offsets(whole, rng):
    header, data = split(whole)
    info = header[rng.choice(tensors_of(header))]
    begin, end = info["data_offsets"]
    info["data_offsets"] = rng.choice(
        [[begin + 4, end + 4], [end, begin], [begin, end + 1], [0, 2**63], [-4, end], [begin]]
    )
    return joined(header, data)


def swap_two_tensors(whole, rng):
    header, data = split(whole)
    by_shape = {}
    for name in tensors_of(header):
        info = header[name]
        begin, end = info["data_offsets"]
        by_shape.setdefault((info["dtype"], *info["shape"]), {})[data[begin:end]] = name
    first, second = rng.sample(
        rng.choice([list(same.values()) for same in by_shape.values() if len(same) > 1]), 2
    )
    header[first], header[second] = header[second], header[first]
    return joined(header, data)


MUTATORS = [
    flip_bits, flip_a_bit_of_the_header, truncate, append, overwrite_a_block,
    lie_about_the_header_size, change_the_version, lose_metadata, edit_the_structure,
    change_a_dtype, change_a_shape, change_offsets, swap_two_tensors,
]  # fmt: skip


@pytest.mark.parametrize("mutate", MUTATORS, ids=lambda m: m.__name__)
def test_damage_is_an_error_and_changes_nothing(mutate, tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "x.safetensors"
    state = training_state()
    ad.save(state, path)
    whole = path.read_bytes()
    random_state = ad.get_rng_state()
    rng = random.Random(mutate.__name__)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = 0
    while done < -(-MUTATIONS // len(MUTATORS)):
        damaged = mutate(whole, rng)
        if damaged == whole:
            continue
        path.write_bytes(damaged)
        with pytest.raises(ad.CheckpointError, match=r"x\.safetensors"):
            ad.load(path)
        assert path.read_bytes() == damaged and os.listdir(tmp_path) == [path.name]
        done += 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 100_000  # KiB
    assert ad.get_rng_state().equal(random_state)
    path.write_bytes(whole)
    assert ad.load(path)["model"]["0.weight"].equal(state["model"]["0.weight"])
