"""Machine code without tables of frames, which each C++ exception of the process would read."""

import pytest

from adjoint.backends import native
from adjoint.backends.codegen import target

pytestmark = pytest.mark.skipif(native.unusable() is not None, reason="no kernels here")

TEXT = """
declare i32 @getpid()
define i32 @number() {
  %x = call i32 @getpid()
  ret i32 %x
}"""


def test_no_code_has_tables_of_frames():
    """The text asks for some, since what it calls might throw."""
    assert b".eh_frame" not in target.host().compile(TEXT)
