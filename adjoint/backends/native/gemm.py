"""A matrix product for machine code to call: single precision, on the calling thread."""

from __future__ import annotations

import ctypes
import functools
from string import Template

from ...core.errors import Unsupported
from . import machine_code, onednn

# oneDNN's OpenMP would start threads of its own: it is told, per calling thread, to use one.
_WRAPPER = Template("""
define i32 @sgemm(i8 signext %ta, i8 signext %tb, i64 %m, i64 %n, i64 %k, float %alpha,
                  ptr %a, i64 %lda, ptr %b, i64 %ldb, float %beta, ptr %c, i64 %ldc) {
  %before = $BEFORE
  $LIMIT
  %status = call i32 inttoptr (i64 $SGEMM to ptr)(
    i8 signext %ta, i8 signext %tb, i64 %m, i64 %n, i64 %k, float %alpha,
    ptr %a, i64 %lda, ptr %b, i64 %ldb, float %beta, ptr %c, i64 %ldc)
  $RESTORE
  ret i32 %status
}
""")


@functools.cache
def address() -> int | None:
    """Where machine code finds the product of row-major matrices; None where there is none.

    `int sgemm(char ta, char tb, int64 m, int64 n, int64 k, float alpha, const float *a, int64 lda,
    const float *b, int64 ldb, float beta, float *c, int64 ldc)` makes the m x n matrix c alpha
    op(a) op(b) + beta c, where op transposes for 'T' and not for 'N', a row of a matrix as it is
    stored begins `ld` elements after the one before, and c is not read for beta 0. It returns 0.

    It computes on the thread that calls it and nowhere else, may be called by any number of threads
    at once, with or without the GIL, and gives the same bits each time.
    """
    try:
        lib = onednn.library()
        sgemm = _address(lib.dll.dnnl_sgemm)
        before, limit, restore = "add i32 0, 0", "", ""
        if lib.threads:
            set_threads, get_threads = map(_address, lib.threads)
            before = f"call i32 inttoptr (i64 {get_threads} to ptr)()"
            limit = f"call void inttoptr (i64 {set_threads} to ptr)(i32 1)"
            restore = f"call void inttoptr (i64 {set_threads} to ptr)(i32 %before)"
        text = _WRAPPER.substitute(SGEMM=sgemm, BEFORE=before, LIMIT=limit, RESTORE=restore)
        return machine_code.load(text, ["sgemm"])[0]
    except Unsupported:
        return None


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


__all__ = ["address"]
