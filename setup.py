"""Builds the core's extensions: the same Python files that run interpreted, compiled by Cython.

Where there is no compiler, nothing is built and everything runs interpreted (`adjoint info` says
which it is). What was built carries the hash of its sources: see adjoint/extensions.py.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("extensions", ROOT / "adjoint" / "extensions.py")
extensions = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(extensions)


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
        super().run()
        note.unlink(missing_ok=True)
        if all(Path(self.get_ext_fullpath(each.name)).exists() for each in self.extensions):
            note.write_text(sources + "\n")


def made() -> list[Extension]:
    """The extensions; none where Cython is missing, or for a free-threaded Python."""
    if not extensions.is_supported():
        return []
    try:
        import numpy
        from Cython.Build import cythonize
    except ImportError:
        return []
    level = [] if "-O" in os.environ.get("CFLAGS", "") else ["-O1"]
    each = [
        Extension(
            name,
            [f"{name.replace('.', '/')}.py"],
            include_dirs=[numpy.get_include()],
            define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")],
            extra_compile_args=[] if sys.platform == "win32" else [*level, "-fno-strict-aliasing"],
            optional=True,
        )
        for name in extensions.MODULES
    ]
    directives = {
        "language_level": 3,
        "annotation_typing": False,
        "auto_pickle": False,
        "boundscheck": True,  # C arrays and pointers, in eager/arrays.py, are not checked anyway
        "wraparound": True,
        "initializedcheck": False,
        "cdivision": True,
        "always_allow_keywords": True,
        "warn.unreachable": False,
    }
    # Cython declares what the NumPy that it finds has, so another NumPy's C files do not compile.
    place = f"build/cython/{sys.implementation.cache_tag}-numpy-{numpy.__version__}"
    found = cythonize(
        each, build_dir=place, compiler_directives=directives, quiet=True,
        include_path=[str(ROOT)],
    )  # fmt: skip
    for extension in found:
        extension.optional = True
    return list(found)


setup(ext_modules=made(), cmdclass={"build_ext": Build})
