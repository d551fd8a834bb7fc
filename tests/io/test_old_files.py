"""Files of an earlier version are read: `old_files.zip` has some, written by commit 842c4e08.

They are a pickle of each kind of object, paths that pickles of public functions name (`named.txt`),
a checkpoint, a file of PyTorch's form, exported programs and a graph.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import pytest

import adjoint as ad
from adjoint.core.errors import CheckpointError
from adjoint.io.stored_ops import Ops

FILES = zipfile.ZipFile(Path(__file__).with_name("old_files.zip"))
PICKLES = [name for name in FILES.namelist() if name.endswith(".pickle")]
EXPORTED = [name for name in FILES.namelist() if name.endswith(".export")]
NAMED = FILES.read("named.txt").decode().split()


@pytest.mark.parametrize("name", PICKLES)
def test_a_pickle_is_read(name):
    found = pickle.loads(FILES.read(name))
    again = pickle.loads(pickle.dumps(found))
    assert type(again).__qualname__ == type(found).__qualname__


@pytest.mark.parametrize("path", NAMED)
def test_a_path_of_then_is_the_public_object(path):
    module, _, name = path.rpartition(".")
    found = pickle.loads(f"c{module}\n{name}\n.".encode())
    public = getattr(ad, name, None)
    assert found is public or getattr(found, "__wrapped__", found) is public or public is None


def test_a_path_that_never_was_is_not_read():
    for path in ("adjoint.compiled.nothing", "adjoint.eager", "adjoint.later"):
        with pytest.raises(ModuleNotFoundError, match=path):
            pickle.loads(f"c{path}\nname\n.".encode())


@pytest.mark.parametrize("name", EXPORTED)
def test_an_exported_program_runs(name):
    program = ad.export.load(io.BytesIO(FILES.read(name)))
    shape = {"conv": (1, 1, 8, 8), "random": (3,)}.get(name.partition(".")[0], (2, 3))
    assert program(ad.ones(*shape)).isfinite().all()


def test_models_are_read():
    whole = ad.load(io.BytesIO(FILES.read("whole_module.pt")), weights_only=False)
    assert isinstance(whole, ad.nn.Sequential) and whole(ad.ones(2, 3)).shape == (2, 2)
    for name in ("mixed.pt", "mixed.ckpt", "mixed.safetensors"):
        found = ad.load(io.BytesIO(FILES.read(name)))
        whole.load_state_dict(found["model"])
        assert found["step"] == 3 and found["optimizer"]["param_groups"][0]["lr"] == 0.1


def test_a_graph_is_read():
    graph = ad.Graph.load(io.BytesIO(FILES.read("graph.saved")))
    assert isinstance(graph, ad.Graph)


def test_an_op_whose_file_has_another_name_now_is_found_by_its_own():
    ops = Ops()
    relu = ops.read(("op", "adjoint.ops.elsewhere.Relu", []))
    assert type(relu).__name__ == "Relu"
    with pytest.raises(CheckpointError, match="there is no op"):  # two ops have the name
        ops.read(("op", "adjoint.ops.elsewhere.Unfold", []))
    with pytest.raises(CheckpointError, match="there is no op"):  # a user's
        ops.read(("op", "elsewhere.Relu", []))
