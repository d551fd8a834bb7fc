"""Names that every docstring example may use."""

import numpy
import pytest

import adjoint


@pytest.fixture(autouse=True)
def _names(doctest_namespace):
    doctest_namespace["ad"] = adjoint
    doctest_namespace["np"] = numpy
