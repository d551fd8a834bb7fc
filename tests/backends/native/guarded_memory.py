"""A pytest plugin: NumPy's arrays lie between pages that nobody may touch, and are unmapped when
they are freed. `python -m pytest -p tests.backends.native.guarded_memory ...`

An access outside an array, or to one that is gone, ends the process. Two arrays of three end where
the forbidden page begins, the third begins where one ends. The allocator is machine code: NumPy
frees arrays also while an exception is on its way, when no Python code may run.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from string import Template
from typing import Any

# A mapping: a page with its size and the block's, a forbidden page, the block's pages, another
# forbidden page. A block begins in the first of its pages, wherever it lies in them.
_CODE = Template("""
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @mprotect(ptr, i64, i32)
declare i32 @munmap(ptr, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
@count = internal global i64 0

define ptr @malloc_guarded(ptr %own, i64 %wanted) {
  %none = icmp eq i64 %wanted, 0
  %size = select i1 %none, i64 1, i64 %wanted
  %up = add i64 %size, $last
  %inside = and i64 %up, $mask
  %whole = add i64 %inside, $three
  %start = call ptr @mmap(ptr null, i64 %whole, i32 0, i32 $flags, i32 -1, i64 0)
  %failed = icmp eq ptr %start, inttoptr (i64 -1 to ptr)
  br i1 %failed, label %fail, label %open
fail:
  ret ptr null
open:
  %a = call i32 @mprotect(ptr %start, i64 $page, i32 3)
  %block = getelementptr i8, ptr %start, i64 $two
  %b = call i32 @mprotect(ptr %block, i64 %inside, i32 3)
  store i64 %whole, ptr %start
  %size.at = getelementptr i64, ptr %start, i64 1
  store i64 %size, ptr %size.at
  %n = atomicrmw add ptr @count, i64 1 monotonic
  %third = urem i64 %n, 3
  %at.front = icmp eq i64 %third, 0
  %rest = sub i64 %inside, %size
  %shift = select i1 %at.front, i64 0, i64 %rest
  %result = getelementptr i8, ptr %block, i64 %shift
  ret ptr %result
}

define ptr @calloc_guarded(ptr %own, i64 %count, i64 %each) {
  %size = mul i64 %count, %each
  %result = call ptr @malloc_guarded(ptr %own, i64 %size)
  ret ptr %result
}

define internal ptr @start_of(ptr %block) {
  %address = ptrtoint ptr %block to i64
  %first = and i64 %address, $mask
  %start = sub i64 %first, $two
  %result = inttoptr i64 %start to ptr
  ret ptr %result
}

define void @free_guarded(ptr %own, ptr %block, i64 %size) {
  %nothing = icmp eq ptr %block, null
  br i1 %nothing, label %done, label %unmap
unmap:
  %start = call ptr @start_of(ptr %block)
  %whole = load i64, ptr %start
  %a = call i32 @munmap(ptr %start, i64 %whole)
  br label %done
done:
  ret void
}

define ptr @realloc_guarded(ptr %own, ptr %block, i64 %size) {
  %moved = call ptr @malloc_guarded(ptr %own, i64 %size)
  %nothing = icmp eq ptr %block, null
  %failed = icmp eq ptr %moved, null
  %no.copy = or i1 %nothing, %failed
  br i1 %no.copy, label %done, label %copy
copy:
  %start = call ptr @start_of(ptr %block)
  %old.at = getelementptr i64, ptr %start, i64 1
  %old = load i64, ptr %old.at
  %less = icmp ult i64 %old, %size
  %length = select i1 %less, i64 %old, i64 %size
  call void @llvm.memcpy.p0.p0.i64(ptr %moved, ptr %block, i64 %length, i1 0)
  call void @free_guarded(ptr %own, ptr %block, i64 %old)
  br label %done
done:
  ret ptr %moved
}
""")


def install() -> None:
    """From now on: NumPy's arrays of this context, and those of adjoint's operations."""
    from adjoint.backends.native.runtime import array_memory, object_code
    from adjoint.core.arrays import capsule, keep, set_memory_handler
    from adjoint.ir import compute

    page = mmap.PAGESIZE
    text = _CODE.substitute(
        page=page, two=2 * page, three=3 * page, last=page - 1, mask=-page,
        flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
    )  # fmt: skip
    names = [f"{kind}_guarded" for kind in ("malloc", "calloc", "realloc", "free")]
    handler = array_memory._Handler(b"guarded", 1, (0, *object_code.of_text(text, names)))
    keep(handler)  # arrays may be freed when the interpreter ends
    ours = capsule(ctypes.addressof(handler), array_memory._CAPSULE)
    cache = array_memory._Cache(
        handler.allocator, lambda: set_memory_handler(ours), lambda limit: None
    )
    array_memory._cache = lambda: cache  # type: ignore[assignment]
    set_memory_handler(ours)
    compute.prepare_contexts(array_memory.use_in)


def pytest_configure(config: Any) -> None:
    """As the plugin of a test run."""
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401 - loaded before: its own memory is not guarded
    install()
