"""Simplification of a captured graph within the registry's ops."""

from __future__ import annotations

from ...ir.program import Program
from .affine import fold_affine
from .basic_passes import (
    Folds,
    drop_dead,
    drop_expansions,
    drop_identities,
    fold_constants,
    inline_numbers,
    merge_equal,
)
from .views import flatten_products, hoist_through_views


def simplify(graph: Program, folds: Folds) -> Program:
    """Apply the passes that keep to the registry's ops, until none of them changes anything."""
    while True:
        changed = fold_constants(graph, folds)
        changed += drop_identities(graph)
        changed += drop_expansions(graph)
        changed += inline_numbers(graph)
        changed += hoist_through_views(graph)
        changed += merge_equal(graph)
        changed += flatten_products(graph, folds)
        changed += fold_affine(graph, folds)
        changed += drop_dead(graph)
        if not changed:
            return graph
