"""LLVM IR with addresses of this process to functions in memory, which stay there until it ends.

What has none is kept on disk: see `object_code.py`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from typing import Any

from ....core import debug
from ....core.errors import Unsupported
from ....eager.arrays import keep

_NUMBERS = itertools.count()


@functools.cache
def _jit(opt: int) -> Any:
    """LLVM's linker for this process; it and all code in it stay, whatever Python collects.

    Threads and NumPy arrays may run the code while the interpreter is being torn down.
    """
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise Unsupported("generated code needs llvmlite: pip install llvmlite") from error
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=opt
    )
    jit = llvm.create_lljit_compiler(machine)
    keep(jit)
    return jit


def load(text: str, names: Iterable[str], opt: int = 2) -> list[int]:
    """Compile LLVM IR, which may call the C library; the addresses of the functions `names`. With
    `opt` 0, code that mostly calls functions is compiled in a quarter of the time.

    Errors: Unsupported without llvmlite.

    >>> import ctypes
    >>> from adjoint.backends.native.runtime import machine_code
    >>> [address] = machine_code.load("define i64 @one() { ret i64 1 }", ["one"])
    >>> ctypes.CFUNCTYPE(ctypes.c_int64)(address)()
    1
    """
    jit = _jit(opt)
    import llvmlite.binding as llvm

    names = list(names)
    if "code" in debug.on:
        debug.say("code", f"{', '.join(names)}:\n{text}")
    builder = llvm.JITLibraryBuilder().add_ir(text).add_current_process()
    for name in names:
        builder.export_symbol(name)
    tracker = builder.link(jit, f"adjoint-{next(_NUMBERS)}")
    keep(tracker)
    return [tracker[name] for name in names]
