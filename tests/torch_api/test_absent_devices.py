"""The modules of devices that are not here (`xpu`, `mps`, `mtia`), beside PyTorch's."""

from __future__ import annotations

import pytest

import adjoint as ad

torch = pytest.importorskip("torch")

KINDS = ("mps", "mtia", "xpu")
ASKED = [
    (kind, name)
    for kind in KINDS
    for name in ("is_available", "device_count", "is_initialized", "is_bf16_supported")
    if hasattr(getattr(torch, kind), name) and (kind, name) != ("mtia", "is_bf16_supported")
]  # PyTorch's mtia says True of bfloat16 even so


@pytest.mark.parametrize("kind", KINDS)
def test_all_names_are_pytorchs(kind):
    ours, theirs = getattr(ad, kind), getattr(torch, kind)
    assert {"is_available", "manual_seed", "synchronize"} <= set(ours.__all__)
    assert [name for name in ours.__all__ if not hasattr(theirs, name)] == []
    assert not hasattr(ours, "no_such_name")


@pytest.mark.parametrize(("kind", "name"), ASKED)
def test_questions_are_answered(kind, name):
    theirs = getattr(torch, kind)
    answer = getattr(getattr(ad, kind), name)()
    assert not answer and type(answer) in (bool, int)
    assert answer == getattr(theirs, name)() or theirs.is_available()


@pytest.mark.parametrize("kind", KINDS)
def test_what_needs_a_device_is_refused(kind):
    module = getattr(ad, kind)
    module.manual_seed(3)  # is for a device that may come
    module.empty_cache()
    for name in ("synchronize", "get_rng_state"):
        with pytest.raises(ad.DeviceError, match=rf"{kind}\.{name}: there are no {kind} devices"):
            getattr(module, name)()


def test_a_program_chooses_its_device():
    found = "cpu"
    for kind in ("cuda", *KINDS):
        if getattr(ad, kind).is_available():
            found = kind
    assert found == "cpu" or ad.cuda.is_available()


@pytest.mark.parametrize("name", ["mps", "xpu:1", "xla"])
def test_a_device_that_is_not_here_can_be_named_and_compared(name):
    for t in (ad, torch):
        place = t.device(name)
        assert place == t.device(name) != t.device("cpu")
        assert (str(place), place.type) == (name, name.partition(":")[0])
        assert t.zeros(2).device.type != place.type
        with pytest.raises((RuntimeError, AssertionError)):
            t.ones(1, device=place)
    with pytest.raises(ad.DeviceError, match="no backend serves"):
        ad.nn.Linear(1, 1).to(name)
    with pytest.raises(ad.DeviceError, match="Invalid device string"):
        ad.device("mpx")
