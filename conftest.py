"""For all tests and docstring examples: their names, and nothing left behind for the next one."""

import numpy
import pytest
from hypothesis import settings

import adjoint

settings.register_profile("adjoint", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("adjoint")


@pytest.fixture(autouse=True)
def _fresh(doctest_namespace):
    """Names for the docstring examples, a fixed seed, default printing and dtype."""
    doctest_namespace["ad"] = adjoint
    doctest_namespace["np"] = numpy
    adjoint.manual_seed(0)
    yield
    adjoint.set_printoptions(profile="default")
    adjoint.set_default_dtype(adjoint.float32)
