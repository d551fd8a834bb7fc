"""Shared fixtures: names for the doctests, one thread, a fixed seed."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")
