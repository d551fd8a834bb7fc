"""For all tests and docstring examples: their names, and nothing left behind for the next one."""

import gc
import importlib.util
import linecache
import os
import signal

# What is started in the background may ignore interrupts, which tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")  # the test processes already use every core

import numpy  # noqa: E402 - the libraries read the variables when they are imported
import pytest  # noqa: E402
from _pytest.runner import runtestprotocol  # noqa: E402
from hypothesis import settings  # noqa: E402

import adjoint  # noqa: E402
from adjoint import extensions  # noqa: E402
from adjoint.core import policy  # noqa: E402
from adjoint.ir import rewriting  # noqa: E402
from adjoint.nn.roots import ROOTS  # noqa: E402
from tests.programs import Programs  # noqa: E402
from tests.sampled import STEPS  # noqa: E402
from tests.sweep import part_of  # noqa: E402

# Compiled modules are no Python files: tests/core/test_extensions.py runs their docs' examples.
collect_ignore = (
    [f"{name.replace('.', '/')}.py" for name in extensions.MODULES]
    if extensions.state() == "compiled"
    else []
)
collect_ignore += ["adjoint/torch_api/alias/ops.py"]  # it has every name
if importlib.util.find_spec("ray") is None:
    collect_ignore += ["adjoint/distributed/ray.py"]  # importing it says what installs Ray
collect_ignore += ["tests/ecosystem", "tests/outside"]  # for environments of their own

# Tests compile one function many times on purpose; those of the warning set its number.
policy.COMPILED_WARNED = 1 << 30

settings.register_profile("adjoint", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("adjoint")


def pytest_addoption(parser):
    """The option by which `.ci/run` runs a part of the sweep."""
    parser.addoption("--seventh", type=int, choices=range(7), help="only that part of the tests")


def pytest_report_header(config):
    """Which part runs."""
    part = config.getoption("--seventh")
    return [] if part is None else [f"seventh {part} (of 0 to 6) of these tests"]


def leaves_sweep(config):
    """Whether the sweep is left out, as by default."""
    return config.option.markexpr == "not sweep"


def is_swept(marks):
    """Whether one of the marks leaves a test to the sweep."""
    return any(mark.name == "sweep" for mark in marks)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector, name, obj):
    """No items of functions and classes that are swept as a whole."""
    if name.startswith(("test", "Test")) and leaves_sweep(collector.config):
        marks = getattr(obj, "pytestmark", [])
        if is_swept(marks if isinstance(marks, list) else [marks]):
            return []
    return None


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc):
    """Nor of swept cases: nearly half of all items. Those that stay have the names that they have
    among all.
    """
    yield
    file, _, name = metafunc.definition.nodeid.partition("::")
    step = STEPS.get(file, {}).get(name.partition("[")[0], 1)
    there = [call for call in metafunc._calls if not is_swept(call.marks)]
    for number, call in enumerate(there):
        if number % step:
            call.marks.append(pytest.mark.sweep.mark)
    if leaves_sweep(metafunc.config):
        kept = [call for call in metafunc._calls if not is_swept(call.marks)]
        metafunc._calls[:] = kept or metafunc._calls  # none: their mark leaves them out


def pytest_collection_modifyitems(config, items):
    """Leave what is in other parts."""
    part = config.getoption("--seventh")
    if part is None:
        return
    here = [part_of(item.nodeid, 7) == part for item in items]
    others = [item for item, kept in zip(items, here, strict=True) if not kept]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item, kept in zip(items, here, strict=True) if kept]


def pytest_runtest_protocol(item, nextitem):
    """A worker reports a test once, and what is set up before it or taken down behind it only where
    that fails or skips, or its times are asked for: to write and read three reports takes longer
    than most tests.
    """
    if not hasattr(item.config, "workerinput") or item.config.option.durations is not None:
        return None
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_collection_finish():
    """Tests that collect garbage need not look through the tens of thousands that there are."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _only_what_is_new_is_looked_through():
    """Nor through what earlier files have left, and what they have imported. Nor does each doctest
    ask the disk after all files whose lines were read: a traceback reads them again.
    """
    gc.collect()
    gc.freeze()
    for name, entry in list(linecache.cache.items()):
        if len(entry) > 1 and entry[1] is not None:  # no file that is generated
            del linecache.cache[name]


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
