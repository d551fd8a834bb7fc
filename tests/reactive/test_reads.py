"""Nodes whose value a function reads as an argument: what is recorded does not follow that."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import adjoint as ad

X = ad.arange(24.0).view(4, 6)
READ: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "index": (lambda n: X[n], 1),
    "indices": (lambda n: X[n, 1], 1),
    "slice": (lambda n: X[n:], 1),
    "select": (lambda n: X.select(0, n), 1),
    "narrow": (lambda n: X.narrow(0, 0, n), 1),
    "in a list": (lambda n: X[[n, 0]], 1),
    "mask": (lambda n: X[n > 0], 1),
    "roll": (lambda n: X.roll(n, 0), 1),
    "tril": (lambda n: X.tril(n), 1),
    "diagonal": (lambda n: X.diagonal(n), 1),
    "topk": (lambda n: X.topk(n)[0], 1),
    "reshape": (lambda n: X.reshape(n, -1), 1),
    "full": (lambda n: ad.full((2,), n) * n, 1.0),
    "arange": (lambda n: ad.arange(n), 2),
    "tensor_split": (lambda n: X.tensor_split(n)[0], [1, 2]),
    "repeat_interleave": (lambda n: ad.repeat_interleave(n), [1, 2]),
    "unique": (lambda n: ad.unique(n), [1, 2]),
    "histc": (lambda n: ad.histc(n, 4), [1.0, 0.0]),
    "elu": (lambda n: ad.nn.functional.elu(-X, n), 1.0),
}
FOLLOWED: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "index_select": (lambda n: X.index_select(0, n.reshape(1)), 1),
    "indices": (lambda n: X[n, n], [1, 2]),
    "clamp": (lambda n: X.clamp(n, 5.0), 1.0),
    "quantile": (lambda n: X.quantile(n / 4), 1.0),
    "bags": (lambda n: ad.nn.functional.embedding_bag(ad.arange(4), X, n, mode="sum"), [0, 2]),
    "unravel_index": (lambda n: ad.unravel_index(n, (2, 3))[1], [4, 2]),
    "repeat_interleave": (lambda n: X.repeat_interleave(n, 0), [1, 1, 0, 2]),
    "bincount": (lambda n: ad.bincount(n), [1, 0]),
}


@pytest.mark.parametrize("name", READ)
def test_a_function_that_reads_a_node_says_so_once(name: str) -> None:
    function, value = READ[name]
    graph = ad.Graph()
    with graph:
        node = graph.input(ad.tensor(value))
        with pytest.warns(UserWarning, match="was read as an argument") as caught:
            for _ in range(2):
                function(node)
    said = [each for each in caught if "was read" in str(each.message)]
    assert {each.filename for each in said} == {__file__} and len(said) == 1


@pytest.mark.parametrize("name", FOLLOWED)
def test_what_follows_or_refuses_says_nothing(name: str) -> None:
    function, value = FOLLOWED[name]
    graph = ad.Graph()
    with warnings.catch_warnings(), graph:
        warnings.simplefilter("error")
        node = graph.input(ad.tensor(value))
        y = function(node)
    other = ad.tensor(value) + (1 if name != "bags" else ad.tensor([0, 1]))
    node.set(other)
    try:
        assert y.tolist() == function(other).tolist()
    except ad.GraphError as error:
        assert name in ("repeat_interleave", "bincount") and "recorded for other" in str(error)


def test_values_that_the_user_asks_for_say_nothing() -> None:
    graph = ad.Graph()
    with warnings.catch_warnings(), graph:
        warnings.simplefilter("error")
        node = graph.input(ad.tensor(2))
        constant = graph.constant(ad.tensor(1)) if hasattr(graph, "constant") else None
        assert node.item() == 2 and float(node) == 2 and node.tolist() == 2
        assert constant is None or X[constant].shape == (6,)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [1, 2, 3][node] == 3 and list(range(node)) == [0, 1]  # outside of the block
