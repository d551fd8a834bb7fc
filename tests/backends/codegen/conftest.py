"""Kernels compiled by these tests are kept in a directory of their own, until their last: what
other tests compile is everybody's.
"""

import os

import pytest


@pytest.fixture(autouse=True, scope="package")
def kernels_of_this_run(tmp_path_factory):
    before = os.environ.get("ADJOINT_CACHE_DIR")
    os.environ["ADJOINT_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["ADJOINT_CACHE_DIR"]
    else:
        os.environ["ADJOINT_CACHE_DIR"] = before
