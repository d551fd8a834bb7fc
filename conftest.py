"""For all tests and docstring examples: their names, and nothing left behind for the next one."""

import gc
import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")  # the test processes already use every core

import numpy  # noqa: E402 - the libraries read the variables when they are imported
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

import adjoint  # noqa: E402
from adjoint import extensions  # noqa: E402
from adjoint.nn.roots import ROOTS  # noqa: E402
from adjoint.program import rewriting  # noqa: E402
from tests.programs import Programs  # noqa: E402

# Compiled modules are no Python files: tests/test_extensions.py runs the examples of their docs.
collect_ignore = (
    [f"{name.replace('.', '/')}.py" for name in extensions.MODULES]
    if extensions.state() == "compiled"
    else []
)
collect_ignore += ["adjoint/alias/site", "adjoint/alias/ops.py"]  # the latter has every name

settings.register_profile("adjoint", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("adjoint")


def pytest_collection_finish():
    """Tests that collect garbage need not look through the tens of thousands that there are."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _fresh(doctest_namespace):
    """Names for the docstring examples, a fixed seed, default printing and dtype."""
    doctest_namespace["ad"] = adjoint
    doctest_namespace["np"] = numpy
    adjoint.manual_seed(0)
    with rewriting.watching(rewriting.verify):  # each program after each pass
        yield
    adjoint.set_printoptions(profile="default")
    adjoint.set_default_dtype(adjoint.float32)
    adjoint.set_default_device("cpu")
    ROOTS.clear()  # names that modules got when they were called in a graph, or observed


@pytest.fixture(scope="session")
def programs():
    """Runs programs in forks of one process that has imported what they do."""
    running = Programs()
    yield running
    running.close()
