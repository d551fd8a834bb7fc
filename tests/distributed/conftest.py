"""One world for all tests of several ranks (`worlds.py`)."""

import os

import pytest

from .worlds import World


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()  # of this process, in the one of the run
    return World(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder)
