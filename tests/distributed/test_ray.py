"""Ranks that Ray starts: what each program of ray_programs.py has left."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests.distributed.worlds import ROOT

HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(
    not HAS_RAY, reason="Ray is not installed: pip install 'adjoint[ray,torch]'"
)
FASTER = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "20",
}


def run(name, folder):
    """A program; its HOME is the folder, where Ray writes."""
    source = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH")) if p)
    file = pathlib.Path(__file__).with_name("ray_programs.py")
    done = subprocess.run(
        [sys.executable, str(file), name, str(folder)],
        env={**os.environ, **FASTER, "PYTHONPATH": source, "HOME": str(folder)},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def log(folder, name):
    return [json.loads(line) for line in (folder / f"{name}.log").read_text().splitlines()]


def parameters(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The parameters of the same training in one process, without Ray's workers."""
    folder = tmp_path_factory.mktemp("alone")
    run("alone", folder)
    return parameters(folder, "alone")


def assert_equal_to(expected, found):
    assert found.keys() == expected.keys()
    for name, numbers in expected.items():
        np.testing.assert_allclose(found[name], numbers, rtol=1e-10, atol=1e-12)


@needs_ray
@pytest.mark.sweep
def test_a_killed_worker_goes_on_to_the_same_bits(tmp_path, alone):
    run("killed", tmp_path)
    said = log(tmp_path, "killed")
    assert [row["size"] for row in said] == [2] * 4
    assert [row["resumed"] for row in said] == [False, False, True, True]
    assert {row["step"] for row in said[2:]} <= {3, 6}
    assert log(tmp_path, "result") == [{"step": 12}]
    undisturbed = parameters(tmp_path, "undisturbed")
    assert parameters(tmp_path, "killed") == undisturbed
    assert_equal_to(alone, undisturbed)


@needs_ray
@pytest.mark.sweep
def test_a_lost_and_a_new_node_change_the_number_of_ranks(tmp_path, alone):
    run("elastic", tmp_path)
    said = log(tmp_path, "elastic")
    assert [row["size"] for row in said] == [2, 2, 1, 2, 2]
    assert [row["resumed"] for row in said] == [False, False, True, True, True]
    assert_equal_to(alone, parameters(tmp_path, "elastic"))


@needs_ray
def test_what_the_trainer_refuses():
    import adjoint as ad
    from adjoint.distributed.ray import Trainer

    with pytest.raises(ad.Unsupported, match=r"backend='mpi' under Ray.*gloo"):
        Trainer(print, backend="mpi")
    with pytest.raises(ad.InvalidArgument, match="backend_config is this trainer's own"):
        Trainer(print, backend_config=None)


def test_without_ray_the_error_says_what_installs_it(tmp_path):
    code = (
        "import sys\n"
        "sys.modules['ray'] = None\n"
        "import adjoint as ad, adjoint.distributed\n"
        "try:\n    import adjoint.distributed.ray\n"
        "except ad.Unsupported as error:\n    print(error)\n"
    )
    source = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH")) if p)
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": source},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "needs Ray Train" in done.stdout and "pip install 'adjoint[ray,torch]'" in done.stdout
