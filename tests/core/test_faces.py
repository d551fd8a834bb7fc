"""Faces: public modules that stand in a room are one module under two names, in every order."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import adjoint as ad
from adjoint.core import faces
from adjoint.core.faces import FACES, OLD_PATHS, PACKAGES, PLACES, stubs

from ..sweep import swept

ROOT = Path(ad.__file__).parents[1]
PACKAGE = Path(ad.__file__).parent
PAIRS = {  # each module that has a face, by it
    str(file.relative_to(PACKAGE).with_suffix("")).replace(os.sep, ".").removesuffix(".__init__"): (
        text.split()[1].removeprefix("adjoint.")
    )
    for file, text in stubs(PACKAGE)
}
ABSENT = {"einops", "sklearn"}  # libraries that they are for may be absent

IMPORTING = """
import importlib, sys
import adjoint
from adjoint.core.faces import NOT_PYTORCHS
order, alias, pairs = sys.argv[1], sys.argv[2], eval(sys.argv[3])
if alias:
    adjoint.as_torch()
seen = {}
for face, place in pairs.items():
    names = [f"adjoint.{face}", f"adjoint.{place}"]
    if alias and face.partition(".")[0] not in NOT_PYTORCHS:
        try:
            importlib.import_module(f"torch.{face}")
            names.insert(1, f"torch.{face}")
        except ModuleNotFoundError as error:  # PyTorch has none
            assert f"torch.{face}".startswith(error.name), error
    found = [importlib.import_module(name) for name in names[:: 1 if order == "face" else -1]]
    assert all(module is found[0] for module in found), names
    assert all(sys.modules[name] is found[0] for name in names), names
    assert found[0].__name__ == f"adjoint.{face}" or face == "extensions", found[0].__name__
    assert found[0].__spec__.name == f"adjoint.{place}", found[0].__spec__
    above, _, last = face.rpartition(".")
    holder = sys.modules[f"adjoint.{above}" if above else "adjoint"]
    assert vars(holder)[last] is found[0] or callable(vars(holder)[last]), face
files = {}
for name, module in list(sys.modules.items()):
    file = getattr(module, "__file__", None)
    if name.partition(".")[0] == "adjoint" and file:
        assert files.setdefault(file, module) is module, name
print(len(files))
"""


@pytest.mark.parametrize("alias", ["", "alias"])
@pytest.mark.parametrize("order", ["face", "room"])
def test_no_file_is_loaded_twice(order, alias):
    pairs = {face: place for face, place in PAIRS.items() if face not in ABSENT}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORTING, order, alias, repr(pairs)],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 300


def test_every_face_is_in_a_room_and_under_no_other_name():
    tops = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"}
    for face, place in FACES.items():
        path = PACKAGE / place.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").exists(), place
        assert face.partition(".")[0] not in tops or "." in face, face
    assert tops >= set(PACKAGES)
    assert len(set(FACES.values())) == len(FACES)


def test_every_name_of_the_tables_is_there():
    for name in PLACES:
        assert getattr(ad, name) is faces.find(name)
    for space, names in faces.NAMES.items():
        for name in names:
            assert getattr(getattr(ad, space), name) is faces.find(name, space)
    for old, place in OLD_PATHS.items():
        assert importlib.import_module(f"adjoint.{old}") is faces.load(place)


@pytest.mark.parametrize("face", [face for face in FACES if face not in ABSENT])
def test_what_is_public_calls_itself_by_the_face(face):
    module = importlib.import_module(f"adjoint.{face}")
    place = FACES[face]
    for name in getattr(module, "__all__", ()):
        found = getattr(module, name)
        if inspect.isclass(found) or inspect.isfunction(found):
            assert not found.__module__.startswith(f"adjoint.{place}."), name
            assert found.__module__ != f"adjoint.{place}" or face == "extensions", name


def test_a_pickle_names_the_face():
    data = pickle.dumps(ad.onnx.OnnxModule)
    assert b"adjoint.onnx.model" in data and b"interop" not in data
    assert pickle.loads(data) is ad.onnx.OnnxModule


def test_what_is_not_there_is_said_by_the_name_that_was_asked_for():
    for name in ("adjoint.onnx.nothing", "adjoint.linalg.nothing", "adjoint.nothing"):
        with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}'"):
            importlib.import_module(name)


def test_a_face_is_reloaded_as_its_module(monkeypatch):
    module = importlib.import_module("adjoint.quasirandom")
    before = dict(vars(module))
    try:
        assert importlib.reload(module) is module
        assert module.__name__ == "adjoint.quasirandom"
        assert sys.modules["adjoint.namespaces.quasirandom"] is module
    finally:
        vars(module).update(before)


def test_a_face_below_another_that_is_imported_later_is_its_attribute():
    program = """
import adjoint, adjoint.core.progress as place, sys
assert "adjoint.utils" not in sys.modules
import adjoint.utils.progress
assert adjoint.utils.progress is place
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, cwd=ROOT)


def test_a_module_that_fails_is_tried_again():
    program = """
import sys
sys.modules["adjoint.interop.pnnx.text"] = None
try:
    import adjoint.pnnx
except ModuleNotFoundError:
    pass
assert "adjoint.pnnx" not in sys.modules and "adjoint.interop.pnnx" not in sys.modules
del sys.modules["adjoint.interop.pnnx.text"]
import adjoint.pnnx, adjoint.interop.pnnx
assert adjoint.pnnx is adjoint.interop.pnnx
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_threads_get_the_same_module():
    program = """
import importlib, threading
import adjoint
names = ["adjoint.fx.graph", "adjoint.torch_api.fx.graph", "adjoint.onnx", "adjoint.interop.onnx"]
for base in range(0, len(names), 2):
    found, start = [], threading.Barrier(8)
    def one(name):
        start.wait()
        found.append(importlib.import_module(name))
    threads = [threading.Thread(target=one, args=(names[base + i % 2],)) for i in range(8)]
    [each.start() for each in threads]
    [each.join() for each in threads]
    assert len({id(module) for module in found}) == 1 and len(found) == 8
    assert hasattr(found[0], "__all__") or found[0].Graph
"""
    assert threading.active_count()
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, cwd=ROOT)


# ---- type checkers -------------------------------------------------------------------------------

USER = """
import adjoint as ad
import adjoint.fx.graph
import adjoint.linalg
import adjoint.nn.parallel
import adjoint.onnx
import adjoint.utils.data.dataset
from adjoint.func import vmap
from adjoint.inference import Program
from adjoint.profiler import profile

reveal_type(adjoint.linalg.norm(ad.ones(3)))
reveal_type(adjoint.fx.graph.Graph())
reveal_type(adjoint.onnx.load)
reveal_type(vmap)

def f(program: Program, profiled: profile, data: adjoint.utils.data.dataset.Dataset[int]) -> int:
    return program.nothing
"""
SEEN = (
    'Revealed type is "adjoint.tensor.Tensor"',
    'Revealed type is "adjoint.torch_api.fx.graph.Graph"',
    "-> adjoint.interop.onnx.model.OnnxModule",
    "randomness: str",
    '"Program" has no attribute "nothing"',
)


def test_each_face_has_a_line_for_type_checkers():
    written = dict(stubs(PACKAGE))
    assert len(written) > 150 and len({file.suffix for file in written}) == 1
    for file, text in written.items():
        (statement,) = ast.parse(text).body
        path = PACKAGE.parent / statement.module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), file


@pytest.mark.parametrize("program", [swept(USER)], ids=["user"])
def test_mypy_sees_the_faces_of_an_installed_package(tmp_path, program):
    library, file = tmp_path / "library", tmp_path / "user.py"
    setup = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(library)]
    subprocess.run(setup, check=True, cwd=ROOT, capture_output=True)
    file.write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file=",
         f"--cache-dir={tmp_path / 'cache'}", str(file)],
        env={**os.environ, "MYPYPATH": str(library)}, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert all(line in done.stdout for line in SEEN), done.stdout
    assert "Found 1 error" in done.stdout or "Found 2 errors" in done.stdout, done.stdout
