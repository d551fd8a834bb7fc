"""A shim for Cython's `cython` module where files of the core are interpreted.

Files that are compiled, too, import `cython` from here, and, where only the compiler looks, from
Cython: it replaces `cython.compiled` by True, and drops what is behind its being False.
"""

from __future__ import annotations


class cython:  # noqa: N801 - the name that the compiler knows
    """Stand-in for the `cython` module, with the attributes that interpreted files read."""

    compiled = False
