"""Builds the core's extensions: the same Python files that run interpreted, compiled by Cython.

Where there is no compiler, or with `ADJOINT_COMPILED=0`, nothing is built and everything runs
interpreted (`adjoint info` says which it is). What was built carries the hash of its sources: see
adjoint/core/extensions.py.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


def alone(name: str) -> ModuleType:
    """A file of the core that imports nothing of ours."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "adjoint" / "core" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


extensions, faces = alone("extensions"), alone("faces")


class Files(build_py):
    """Copies the package's files, and writes what tells type checkers of its faces."""

    def run(self) -> None:
        """Copy, and write beside the copies."""
        super().run()
        if not getattr(self, "editable_mode", False):
            package = Path(self.build_lib) / "adjoint"
            for file, text in faces.stubs(package):
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            command = [sys.executable, "-m", "adjoint.tools.stubs", str(package.resolve())]
            paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
            environment = {**os.environ, "ADJOINT_COMPILED": "0", "PYTHONPATH": paths}
            subprocess.run(command, check=True, cwd=ROOT, env=environment)


@contextlib.contextmanager
def marked(step: str) -> Iterator[bool]:
    """A step with a mark on disk until it has ended; yields whether the last one was interrupted,
    in which case files that look newer than their sources may lack their ends.
    """
    mark = ROOT / "build" / f"{step}.unfinished"
    interrupted = mark.exists()
    mark.parent.mkdir(exist_ok=True)
    mark.touch()
    yield interrupted
    mark.unlink(missing_ok=True)


class Build(build_ext):
    """Builds the extensions, all or none: they refer to each other's types."""

    def finalize_options(self) -> None:
        """As many compilers at once as there are cores."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        """Build, and note what was built from which sources; nothing where these have been built
        in their place, so that several installations of one tree (`make test`) compile once.
        """
        sources = extensions.source_hash(ROOT / "adjoint")  # of now: they may change meanwhile
        inplace = self.inplace or getattr(self, "editable_mode", False)
        folder = (ROOT if inplace else Path(self.build_lib)) / "adjoint"
        note = folder / extensions.NOTE
        if inplace and not self.force and note.exists() and note.read_text().strip() == sources:
            names = [self.get_ext_filename(self.get_ext_fullname(e.name)) for e in self.extensions]
            if all((ROOT / name).exists() for name in names):
                return
        note.unlink(missing_ok=True)  # first: what follows may be interrupted
        with marked(f"extensions.{sys.implementation.cache_tag}") as interrupted:
            self.force = self.force or interrupted
            super().run()
        if all(Path(self.get_ext_fullpath(each.name)).exists() for each in self.extensions):
            note.write_text(sources + "\n")


def made() -> list[Extension]:
    """The extensions; none where Cython is missing, for a free-threaded Python, or where the core
    is to run interpreted.
    """
    if not extensions.is_supported() or os.environ.get("ADJOINT_COMPILED", "") == "0":
        return []
    try:
        import numpy
        from Cython import __version__ as version
        from Cython.Build import cythonize
    except ImportError:
        return []
    level = [] if "-O" in os.environ.get("CFLAGS", "") else ["-O1"]
    flags = (
        []
        if sys.platform == "win32"
        else [*level, "-g0", "-fno-strict-aliasing", "-ffp-contract=off"]
    )
    macros = [("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")]
    if sys.platform == "linux":  # gcc: what runs once, at import, is not worth optimizing
        macros.append(("CYTHON_SMALL_CODE", '__attribute__((cold, optimize("O0")))'))
    each = [
        Extension(
            name,
            [f"{name.replace('.', '/')}.py"],
            include_dirs=[numpy.get_include()],
            define_macros=macros,
            extra_compile_args=flags,
            optional=True,
        )
        for name in extensions.MODULES
    ]
    directives = {
        "language_level": 3,
        "annotation_typing": False,
        "auto_pickle": False,
        "boundscheck": True,  # C arrays and pointers, in core/arrays.py, are not checked anyway
        "wraparound": True,
        "initializedcheck": False,
        "cdivision": True,
        "always_allow_keywords": True,
        "warn.unreachable": False,
    }
    # Cython declares what the NumPy that it finds has, so another NumPy's C files do not compile;
    # another Python's do.
    place = f"cython/{version}-numpy-{numpy.__version__}"
    with marked(place.replace("/", "-")) as interrupted:
        found = cythonize(
            each, build_dir=f"build/{place}", compiler_directives=directives, quiet=True,
            include_path=[str(ROOT)], force=interrupted or None, nthreads=os.cpu_count() or 1,
        )  # fmt: skip
    for extension in found:
        extension.optional = True
    return list(found)


if __name__ == "__main__":  # Cython's processes may import this file
    setup(ext_modules=made(), cmdclass={"build_ext": Build, "build_py": Files})
