"""What a compiled function returns shares memory with what it would share it with eagerly."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

import adjoint as ad
from adjoint import nn
from tests.native import needs_native

pytestmark = needs_native


def _pair(x: Any) -> Any:
    y = x * 2
    return y.t(), y


def _detached(x: Any) -> Any:
    y = x * 2
    return y.detach(), {"y": y}


def _overlapping(x: Any) -> Any:
    y = x * 2
    return [y[1:], y, y[0]]


def _written(x: Any) -> Any:
    x.add_(1)
    return x[1]


# Functions of a tensor of shape (3, 4).
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "turned": lambda x: x.t(),
    "row": lambda x: x[1],
    "flat": lambda x: x.view(-1),
    "reshaped": lambda x: x.reshape(2, 6),
    "detached": lambda x: x.detach(),
    "data": lambda x: x.data,
    "detached row": lambda x: x[1].detach()[2:],
    "part of a part": lambda x: x[1:].t()[0],
    "parts": lambda x: list(x.chunk(3)),
    "expanded": lambda x: x[:, :1].expand(3, 4)[0, :1],
    "written": _written,
    "with the whole": _pair,
    "an alias with it": _detached,
    "overlapping": _overlapping,
    "its own": lambda x: (x + 1).t(),
    "same": lambda x: x,
}


def tensors_in(found: Any) -> list[Any]:
    return ad.utils._pytree.tree_leaves(found)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_writes_are_seen_where_they_are_eagerly(name: str) -> None:
    seen = []
    for function in (FUNCTIONS[name], ad.compile(FUNCTIONS[name])):
        x, story = ad.zeros(3, 4), []
        for call in range(3):
            found = tensors_in(function(x))
            for n, y in enumerate(found):
                y += 10.0 ** (n + call)
                story.append([x.tolist(), *(each.tolist() for each in found)])
        seen.append((story, [y.shape for y in found]))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("number", [int, ad.tensor])
@pytest.mark.parametrize("name", ["row", "column", "part", "turned part", "behind a result"])
def test_places_that_come_with_each_call(name: str, number: Callable[[int], Any]) -> None:
    def function(x: Any, i: Any) -> Any:
        if name == "row":
            return x[i]
        if name == "column":
            return x[:, i]
        if name == "part":
            return x.narrow(0, i, 2)
        if name == "turned part":
            return x.t().narrow(1, i, 2)
        y = x * 2
        return y[i], y

    step = ad.compile(function)
    for i in (1, 0, 1, -2, -1) if name in ("row", "column") else (1, 0, 1):
        seen = []
        for run in (function, step):
            x = ad.zeros(3, 4)
            first, *more = tensors_in(run(x, number(i)))
            first += 1
            seen.append((x.tolist(), first.tolist(), *(y.tolist() for y in more)))
        assert seen[0] == seen[1]
    assert len(step.programs) <= 3
    with pytest.raises(IndexError):
        step(ad.zeros(3, 4), number(5))


def test_history_and_gradients() -> None:
    for make in (
        lambda w: w.t(), lambda w: w[1:].detach(), lambda w: w.detach().requires_grad_(),
        lambda w: (w * 2, (w * 3).t()),
    ):  # fmt: skip
        w = ad.ones(2, 3).requires_grad_()
        for function in (make, ad.compile(make)):
            found = tensors_in(function(w))
            wanted = [make(w)] if not isinstance(make(w), tuple) else make(w)
            assert [y.requires_grad for y in found] == [y.requires_grad for y in wanted]
            assert [y.is_leaf for y in found] == [y.is_leaf for y in wanted]
            total = sum((y * y).sum() for y in found)
            if found[0].is_leaf:
                continue
            (g,) = ad.autograd.grad(total, w)
            (expected,) = ad.autograd.grad(sum((y * y).sum() for y in wanted), w)
            ad.testing.assert_close(g, expected)


def test_parameters_and_buffers() -> None:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(ad.zeros(2, 3))
            self.register_buffer("seen", ad.zeros(4))

        def forward(self, x: Any) -> Any:
            self.seen += x
            return self.weight.t(), self.seen[1:]

    for wrap in (lambda m: m, ad.compile):
        head = Head()
        run = wrap(head)
        for call in range(1, 4):
            weight, seen = run(ad.ones(4))
            with ad.no_grad():
                weight.add_(1)
            assert head.weight.sum().item() == 6 * call
            assert seen.tolist() == head.seen[1:].tolist() == [call] * 3
            seen.zero_()
            head.seen += call  # which the next call adds to
            head.seen[1:] = call


def test_a_tensor_that_is_kept_is_a_view() -> None:
    class Last:
        row: Any = None

        def step(self, x: Any) -> Any:
            self.row = x[0]
            return x.sum()

    seen = []
    for compiled in (False, True):
        last, x = Last(), ad.zeros(2, 3)
        step = ad.compile(last.step) if compiled else last.step
        for _ in range(3):
            step(x)
            last.row += 1
        seen.append(x.tolist())
    assert seen[0] == seen[1] == [[3.0] * 3, [0.0] * 3]


def test_sizes_that_change() -> None:
    step = ad.compile(lambda x: (x.t(), x.reshape(-1)))
    for n in (2, 3, 4, 5, 3):
        x = ad.zeros(n, 4)
        a, b = step(x)
        a += 1
        b += 1
        assert x.tolist() == [[2.0] * 4] * n


def test_results_of_a_program_in_a_file_are_new() -> None:
    file = io.BytesIO()
    ad.export(lambda x: (x.t(), (x * 2).chunk(2)), ad.zeros(2, 3), file)
    file.seek(0)
    x = ad.zeros(2, 3)
    first, parts = ad.export.load(file)(x)
    first += 1
    parts[0].add_(1)
    assert x.sum().item() == 0 and parts[1].sum().item() == 0


SIBLINGS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "alias and view": lambda y: (y.detach(), y[1:]),
    "view and alias": lambda y: (y[1:], y.detach()),
    "views": lambda y: (y[0], y[:2]),
    "aliases": lambda y: (y.detach(), y.detach()),
    "views of a view": lambda y: (y.t()[0], y.t()[:, 1:], y.detach()[0]),
    "parts": lambda y: tuple(y.chunk(2)),
}


@pytest.mark.parametrize("name", SIBLINGS)
def test_results_of_one_that_is_not_returned(name: str) -> None:
    def function(w: Any) -> Any:
        return SIBLINGS[name](w * 2)

    seen = []
    for run in (function, ad.compile(function)):
        w = ad.ones(2, 3).requires_grad_()
        found = run(w)
        wanting = [y for y in found if y.requires_grad]
        grads = []
        if wanting:
            sums = [(y * y).sum() for y in wanting]
            grads = [g.tolist() for g in ad.autograd.grad(sums, w)]
        seen.append(([y.requires_grad for y in found], grads))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("name", SIBLINGS)
def test_writes_to_one_result_are_seen_in_another(name: str) -> None:
    def function(w: Any) -> Any:
        return SIBLINGS[name](w * 2)

    seen = []
    for run in (function, ad.compile(function)):
        found = run(ad.ones(2, 3))
        for n, y in enumerate(found):
            y += 10**n
        seen.append([y.tolist() for y in found])
    assert seen[0] == seen[1]
