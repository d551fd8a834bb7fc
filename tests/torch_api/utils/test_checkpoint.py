"""utils.checkpoint refuses to compute again what was written since."""

from __future__ import annotations

import pytest

import adjoint as ad
from adjoint.core.errors import AutogradError
from adjoint.utils.checkpoint import checkpoint

CHANGED = r"checkpoint: one of the variables .* by an inplace operation.*last changed by 'mul_'"


def saves_output(x, k):
    return (x * 2).exp() if k is None else (x + k).exp()  # neither op saves x or k


def multiplies(x, k):
    return x * k[0]


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_an_argument_that_is_written_before_backward_is_refused(use_reentrant, which):
    x = ad.ones(2, requires_grad=True)
    given, k, nested = x * 1, ad.ones(2), [ad.ones(2)]
    function = multiplies if which == 2 else saves_output
    y = checkpoint(function, given, nested if which == 2 else k, use_reentrant=use_reentrant)
    (given.detach(), k, nested[0])[which].mul_(3)
    with pytest.raises(AutogradError, match=CHANGED):
        y.sum().backward()
    assert x.grad is None


@pytest.mark.parametrize("function, leaf", [(ad.mul, True), (ad.mul, False), (ad.add, True)])
def test_what_it_reads_besides_arguments_is_refused(function, leaf):
    x, k = ad.ones(2, requires_grad=True), ad.ones(2, requires_grad=leaf)
    y = checkpoint(lambda x: function(x, k).exp(), x)
    with ad.no_grad():
        k.mul_(3)
    with pytest.raises(AutogradError, match=CHANGED):
        y.sum().backward()


def test_a_write_behind_backward_and_to_others_is_fine():
    x, k, other = ad.ones(2, requires_grad=True), ad.ones(2, requires_grad=True), ad.ones(2)
    for _ in range(3):
        y = checkpoint(lambda x: (x * k).exp(), x)
        other.mul_(2)
        y.sum().backward()
        with ad.no_grad():
            k.mul_(3)
    assert x.grad.tolist() == pytest.approx([sum(k * 2.718281828**k for k in (1, 3, 9))] * 2)


def test_a_function_that_writes_what_it_reads_is_refused():
    x, k = ad.ones(2, requires_grad=True), ad.ones(2)

    def grows(x):
        k.mul_(2)
        return (x * k).exp()

    y = checkpoint(grows, x)
    with pytest.raises(AutogradError, match=CHANGED):
        y.sum().backward()
