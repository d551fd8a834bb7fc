"""For all tests and docstring examples: their names, and nothing left behind for the next one."""

import gc
import importlib.util
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
if importlib.util.find_spec("ray") is None:
    collect_ignore += ["adjoint/distributed/ray.py"]  # importing it says what installs Ray
collect_ignore += ["tests/ecosystem"]  # programs for an environment of their own: make ecosystem

settings.register_profile("adjoint", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("adjoint")


def pytest_collection_finish():
    """Tests that collect garbage need not look through the tens of thousands that there are."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _only_what_is_new_is_looked_through():
    """Nor through what earlier files have left, and what they have imported."""
    gc.collect()
    gc.freeze()


def verifier():
    """Verifies each program that a pass has changed; where it says nothing, nothing has changed."""
    before = []

    def watch(name, graph, made):
        nodes = [(node, node.op, node.inputs, node.outputs) for node in graph.nodes]
        now = (list(graph.inputs), nodes, list(graph.outputs))
        if made is None:
            before.append(now)
        elif before.pop() != now:
            assert made, f"{name} has changed a program without a word"
            rewriting.verify(name, graph, made)

    return watch


@pytest.fixture(autouse=True)
def _fresh(doctest_namespace):
    """Names for the docstring examples, a fixed seed, default printing and dtype."""
    doctest_namespace["ad"] = adjoint
    doctest_namespace["np"] = numpy
    adjoint.manual_seed(0)
    with rewriting.watching(verifier()):
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
