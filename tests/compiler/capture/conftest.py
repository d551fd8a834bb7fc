"""Scans outside of compiled functions run from Python here: they are what captures are compared
with. `test_eager_scan.py` is about the others.
"""

import pytest

from adjoint.compiler.capture import eager_scan


@pytest.fixture(autouse=True)
def scans_from_python(request):
    if request.module.__name__.endswith("test_eager_scan"):
        yield
    else:
        with eager_scan.from_python():
            yield
