"""Signals and machine code: no signal handler runs on the stack of a thread inside oneDNN.

While it computes, `dnnl_sgemm` of oneDNN before 3.11.2 points the stack pointer to a workspace that
malloc gave. A handler's frame is pushed below the stack pointer, so it would overwrite whatever
malloc has put before that workspace. Asynchronous signals are therefore blocked around each
execution of oneDNN, and in the pool's workers for as long as they live. The kernel keeps a blocked
signal pending, or gives it to another thread; Python's handler runs with the next bytecode of the
main thread either way. An alternate signal stack would not do: it serves only handlers that were
installed with SA_ONSTACK, as Python's are and those of other libraries need not be.

Synchronous signals (SIGSEGV and its like) are what the thread itself does, and stay unblocked.
"""

from __future__ import annotations

import signal
import sys

from ...codegen.emit import Module, Reg
from .shared_code import Writer

_SYNCHRONOUS = ("SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGSEGV", "SIGSYS")
_WORDS = 16  # of 64 bits: the kernel's set of signals, in the C library's room


def has_signals() -> bool:
    """Return whether the system has signals that a thread can block."""
    return sys.platform != "win32"


def functions() -> str:
    """LLVM IR of `void block_signals(ptr before)` and `void restore_signals(ptr before)`.

    `before` is room for a set of signals, as `room` makes it. Where there are no signals, neither
    does anything.
    """
    if not has_signals():
        return "\n".join(
            f"define internal void @{name}(ptr %before) {{\n  ret void\n}}"
            for name in ("block_signals", "restore_signals")
        )
    synchronous = sum(1 << (getattr(signal, name) - 1) for name in _SYNCHRONOUS)
    words = [~synchronous, *[-1] * (_WORDS - 1)]
    mask = ", ".join(f"i64 {word}" for word in words)
    return f"""
@asynchronous = internal constant [{_WORDS} x i64] [{mask}]
declare i32 @pthread_sigmask(i32, ptr, ptr)

define internal void @block_signals(ptr %before) {{
  %status = call i32 @pthread_sigmask(i32 {int(signal.SIG_BLOCK)}, ptr @asynchronous, ptr %before)
  ret void
}}

define internal void @restore_signals(ptr %before) {{
  %status = call i32 @pthread_sigmask(i32 {int(signal.SIG_SETMASK)}, ptr %before, ptr null)
  ret void
}}
"""


def add_functions(module: Module) -> None:
    """Add `functions` to a module."""
    module.functions["block_signals"] = functions()


def room(b: Writer) -> Reg:
    """Allocate a set of signals on the stack of the function; its address."""
    return b.address(b.alloca(f"[{_WORDS} x i64]"))


def block(b: Writer) -> Reg:
    """Block asynchronous signals on this thread from here on; the address of the set before."""
    before = room(b)
    b.invoke("void", "block_signals", before)
    return before


def restore(b: Writer, before: Reg) -> None:
    """Let this thread have the signals that it had at `block`."""
    b.invoke("void", "restore_signals", before)
