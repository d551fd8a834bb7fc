"""The same kernels on narrower instruction sets."""

import ctypes
import os
import struct
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import adjoint as ad
from adjoint.backends.codegen import Kernel
from adjoint.backends.codegen import target as target_module
from adjoint.backends.codegen.ir import MATHS
from adjoint.backends.codegen.lower import lower, word_names
from adjoint.backends.codegen.schedule import plan
from adjoint.backends.codegen.target import _LEVELS, Target, host, load, narrowed
from adjoint.core.arrays import address
from adjoint.core.arrays import call as run
from adjoint.core.errors import Unsupported

from .reference import numpy_dtype
from .ulps import errors, truth

AVX2 = Target(host().triple, "haswell", "+avx2,+fma,+f16c,+avx,+bmi2")
NEON = Target("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon")
X86 = host().has("avx2")


def call(kernel, target, *arrays):
    """Compiles for a target that this machine can run too, and calls."""
    shape = arrays[0].shape
    outs = [np.empty([shape[a] for a in o.axes], numpy_dtype(o.dtype)) for o in kernel.outputs]
    strides = [
        [dict(zip(v.axes, x.strides, strict=True)).get(a, 0) for a in range(kernel.rank)]
        for x, v in zip([*arrays, *outs], [*kernel.inputs, *kernel.outputs], strict=True)
    ]
    dtypes = [v.attr[1] for v in kernel.inputs] + [o.dtype for o in kernel.outputs]
    planned = plan(kernel, shape, strides, dtypes)
    call.count += 1
    symbol = f"narrow{call.count}"
    code = target.compile(lower(kernel, planned.layout, target, symbol))
    names = word_names(kernel, planned.layout)
    words = planned.words | {f"p{k}": address(x) for k, x in enumerate([*arrays, *outs])}
    packed = struct.pack(f"{len(names)}q", *(words[name] for name in names))
    run(*load(code, symbol), planned.chunks, packed, None, True)
    return outs


call.count = 0


@pytest.mark.skipif(not X86, reason="runs code for AVX2")
def test_avx2_functions_are_as_accurate():
    assert AVX2.vector_bytes == 32
    rng = np.random.default_rng(0)
    x = rng.integers(0, 1 << 32, 100_000, dtype=np.uint32).view(np.float32)
    x = np.concatenate([x, rng.uniform(-20, 20, 50_003).astype(np.float32)])
    for name in MATHS:
        k = Kernel(rank=1)
        k.output(k.op(name, k.input("float32")))
        (y,) = call(k, AVX2, x)
        assert errors(y, truth(name, x)).max() <= 2, name


@pytest.mark.skipif(not X86, reason="runs code for AVX2")
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bfloat16"])
@pytest.mark.parametrize("axis", [0, 1])
def test_avx2_kernels_with_tails_and_strides(dtype, axis):
    rng = np.random.default_rng(0)
    for n in (1, 3, 7, 8, 9, 31, 33, 100):
        x = rng.integers(-5, 6, (13, 2 * n)).astype(numpy_dtype(dtype))[:, ::2]
        k = Kernel(rank=2)
        v = k.input(dtype)
        top = k.max(v, axes=(axis,))
        k.output(top - v, dtype)
        k.output(k.sum(v, axes=(axis,)))
        below, total = call(k, AVX2, x)
        wide = x.astype(float)
        np.testing.assert_array_equal(below.astype(float), wide.max(axis, keepdims=True) - wide)
        np.testing.assert_array_equal(total, wide.sum(axis))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_code_that_is_compiled_sooner_gives_the_same_bits(dtype):
    assert host().effort == int(os.environ.get("ADJOINT_OPTIMIZE", "2"))
    rng = np.random.default_rng(0)
    for n in (1, 15, 1000):
        x = rng.standard_normal((5, n)).astype(numpy_dtype(dtype))
        k = Kernel(rank=2)
        v = k.input(dtype)
        e = k.exp(v - k.max(v, axes=(1,)))
        k.output(k.sin(v) * v + k.tanh(e), dtype)
        k.output(e / k.sum(e, axes=(1,)), dtype)
        found = [call(k, replace(host(), effort=effort), x) for effort in (0, 2, 3)]
        for a, b, c in zip(*found, strict=True):
            assert a.tobytes() == b.tobytes() == c.tobytes()


WIDEST = ",".join(f"+{name}" for names in _LEVELS.values() for name in names.split())


@pytest.mark.parametrize(("level", "size"), [("x86-64-v3", 32), ("x86-64-v4", 64)])
def test_processors_of_a_level_have_what_it_has(level, size):
    found = replace(AVX2, features=narrowed(f"{WIDEST},+avx512vnni,-sse4a", level))
    assert found.vector_bytes == size and found.has("fma") and not found.has("avx512vnni")
    assert found.has("avx512f") is (size == 64) and "-sse4a" in found.features


def test_levels_that_there_are_not():
    with pytest.raises(ad.InvalidArgument, match="no avx512bw, avx512cd"):
        narrowed(narrowed(WIDEST, "x86-64-v3"), "x86-64-v4")
    with pytest.raises(ad.InvalidArgument, match="expected nothing, or one of"):
        narrowed(WIDEST, "x86-64-v9")


def test_neon_code_is_vector_code():
    k = Kernel(rank=2)
    x = k.input("float32")
    e = k.exp(x - k.max(x, axes=(1,)))
    k.output(e / k.sum(e, axes=(1,)))
    layout = plan(k, (4, 100), [(400, 4)] * 2, ["float32"] * 2).layout
    text = NEON.assembly(lower(k, layout, NEON, "f"))
    assert NEON.vector_bytes == 16
    for instruction in ("fmla\tv", "fdiv\tv", "ldp\tq"):
        assert instruction in text
    assert NEON.compile(lower(k, layout, NEON, "f"))[:4] == b"\x7fELF"


@pytest.mark.parametrize("target", [AVX2, NEON, host()], ids=["avx2", "neon", "host"])
@pytest.mark.parametrize("shape", [(1, 1), (5, 10)])
def test_float16_of_float64_by_way_of_float32_calls_nothing(target, shape):
    """Neither the processors nor the C library can round float64 to float16."""
    k = Kernel(rank=2)
    x = k.input("float16")
    wide = k.cast(x, "float64")
    k.output(k.cast(k.copysign(k.sqrt(wide) / 3, wide), "float32"), "float16")
    layout = plan(k, shape, [(20, 2)] * 2, ["float16"] * 2).layout
    assert "__trunc" not in target.assembly(lower(k, layout, target, "f"))


def test_code_of_another_name_is_refused():
    k = Kernel(rank=1)
    k.output(-k.input("int16"))
    layout = plan(k, (10,), [(2,)] * 2, ["int16"] * 2).layout
    code = host().compile(lower(k, layout, host(), "present"))
    with pytest.raises(NotImplementedError, match="without absent"):
        load(code, "absent")


def test_code_reaches_its_constants_wherever_memory_is_mapped():
    """In a process whose address space is cut up, constants may not be placed far from code."""
    program = """
import mmap, random
import numpy as np
from adjoint.backends.codegen import Compiled, Kernel
rng, kept = random.Random(1), []
for i in range(60):
    for _ in range(rng.randrange(60)):
        size = rng.choice((1 << 12, 1 << 13, 1 << 14, 1 << 16, 1 << 20, 1 << 28, 1 << 31))
        kept.append(mmap.mmap(-1, size, prot=mmap.PROT_READ))
    while len(kept) > 300:
        kept.pop(rng.randrange(len(kept)))
    k = Kernel(rank=1)
    x = k.input("float32")
    k.output(k.sin(x * (i + 0.5)))
    y = Compiled(k)(np.ones(50, np.float32))
    assert np.allclose(y, np.sin(i + 0.5), atol=1e-5)
"""
    environment = {**os.environ, "ADJOINT_CACHE_BYTES": "0"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_freed_code_leaves_no_memory():
    """LLVM's engine and context keep some KiB of every code: they go with it."""
    program = """
import gc, os
from adjoint.backends.codegen import target

def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def rounds(first, count):
    for n in range(first, first + count):
        text = f"define float @f(float %x) {{ %y = fadd float %x, {n}.5 ret float %y }}"
        code = target.LoadedCode(target.host().compile(text), "f")
        assert code.address
    return resident()

before = rounds(0, 100)
print((rounds(100, 1000) - before) // 1000)
"""
    if not os.path.exists("/proc/self/statm"):
        pytest.skip("the system does not say what memory is resident")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 4096  # bytes a code; 10 KiB with one engine for all


def test_code_outlives_others_of_its_engine():
    """It is there as long as what owns it, whatever was freed or linked since."""
    text = "define i64 @f(i64 %x) {{ %y = add i64 %x, {} ret i64 %y }}"
    kept = {}
    for n in range(200):
        code = target_module.LoadedCode(host().compile(text.format(n)), "f")
        assert code.address
        if n % 37 == 0:
            kept[n] = code
    for n, code in kept.items():
        assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address)(1000) == 1000 + n


def waiting(name, value):
    """Code that gives a number, not linked yet."""
    text = f"define i64 @{name}() {{ ret i64 {value} }}"
    return target_module.LoadedCode(host().compile(text), name)


def result(code):
    return ctypes.CFUNCTYPE(ctypes.c_int64)(code.address)()


@pytest.fixture
def links(monkeypatch):
    """How many codes were linked each time."""
    found = []
    link = target_module._linked
    monkeypatch.setattr(target_module, "_waiting", [])
    monkeypatch.setattr(
        target_module,
        "_linked",
        lambda codes, passing=False: found.append(len(codes)) or link(codes, passing),
    )
    return found


def test_codes_that_wait_are_linked_at_once(links):
    codes = [waiting(f"waits{k}", k) for k in range(5)]
    del codes[2]  # nobody wants it
    assert not links
    assert [result(code) for code in codes] == [0, 1, 3, 4]
    assert links == [4]
    assert result(waiting("later", 7)) == 7
    assert links == [4, 1]
    code = weakref.ref(codes[0]._owner)
    del codes[1:]
    assert code() is not None and result(codes[0]) == 0  # as long as one of them is there
    codes.clear()
    assert code() is None


def test_codes_of_one_name_are_linked_apart(links):
    first, second = waiting("twin", 1), waiting("twin", 2)
    assert [result(second), result(first)] == [2, 1]
    assert links == [2, 1, 1]


def test_a_code_that_cannot_be_linked_holds_up_no_other(links):
    bad = target_module.LoadedCode(host().compile("define i64 @is() { ret i64 1 }"), "is_not")
    good = waiting("good", 3)
    assert result(good) == 3
    for _ in range(2):
        with pytest.raises(Unsupported, match="without is_not"):
            result(bad)


def test_threads_that_ask_for_codes():
    codes = [waiting(f"asked{k}", k) for k in range(200)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(result, codes))
    assert found == list(range(200))
