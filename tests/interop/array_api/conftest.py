"""The namespaces under test: ours, and two others that show that the tests themselves are right."""

from __future__ import annotations

import importlib
import warnings

import numpy as np
import pytest

import adjoint as ad

NAMES = ("adjoint", "array_api_strict", "numpy")


def namespace(name):
    if name == "adjoint":
        return ad.array_api
    if name == "array_api_strict":
        found = pytest.importorskip("array_api_strict")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # 2024.12 is not its newest version
            found.set_array_api_strict_flags(api_version="2024.12")
        return found
    return importlib.import_module(name)


@pytest.fixture(params=NAMES)
def xp(request):
    with np.errstate(all="ignore"):
        yield namespace(request.param)


@pytest.fixture
def ours():
    return ad.array_api
