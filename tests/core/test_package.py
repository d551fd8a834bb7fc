"""What is the package's own: all its folders, and nothing beside it."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import adjoint as ad
from adjoint.compiler.guards import code_observer
from adjoint.core import package
from adjoint.nn.modules.linear import Linear
from adjoint.optim.sgd import SGD
from adjoint.profiler import profile
from adjoint.runtime.cells import users_frame

ROOT = Path(ad.__file__).parent


def test_the_folder_is_that_of_the_package():
    assert ROOT.samefile(package.FOLDER) and package.FOLDER.endswith(os.sep)
    assert ad.__name__ == package.NAME
    assert (package.FOLDER, "adjoint" + os.sep) == package.OURS
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "adjoint" and getattr(module, "__file__", None):
            assert module.__file__.startswith(package.FOLDER), name


def test_no_other_file_counts_folders():
    counting = {
        file.relative_to(ROOT).as_posix()
        for file in ROOT.rglob("*.py")
        if "dirname(" in (text := file.read_text()) and "__file__" in text
    }
    assert counting == {"core/package.py"}


def test_a_watch_knows_all_of_it_and_nothing_else():
    for function in (Linear.forward, SGD.step, ad.data.default_collate, profile.start):
        code = getattr(function, "__wrapped__", function).__code__
        assert not code_observer.is_users(code), code.co_filename
    assert code_observer.is_users(test_a_watch_knows_all_of_it_and_nothing_else.__code__)


def test_a_warning_names_the_line_of_its_user():
    module = ad.nn.Module()
    module.forward = users_frame
    level, frame = module()  # from within the package
    assert level > 0 and frame.f_code.co_filename == __file__


def test_a_profile_shows_the_lines_of_its_user():
    with profile(with_stack=True) as profiled:
        Linear(2, 2)(ad.ones(1, 2))
    lines = [line for event in profiled.events() for line in event.stack]
    assert any(__file__ in line for line in lines)
    assert not any(line.startswith(package.FOLDER) for line in lines)


def test_code_elsewhere_is_the_users():
    beside = compile("x = 1", package.FOLDER.rstrip(os.sep) + "_more/a.py", "exec")
    assert isinstance(beside, types.CodeType) and code_observer.is_users(beside)
