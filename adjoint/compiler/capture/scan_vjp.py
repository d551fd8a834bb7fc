"""The vector-Jacobian product of one iteration of a scan, from which its gradient is made: another
scan, in the other direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...runtime.tensors import wrap
from .body_recorder import like
from .loop_products import are_worth_it, factors_of
from .subgraphs import Subgraph, gradients, pullback

if TYPE_CHECKING:
    from .control_flow_ops import Scan


class ScanPullback(NamedTuple):
    """The VJP of an iteration, its body, tensors that this captured besides, and the ops that run
    it, by length.
    """

    step: ScanVJP
    body: Subgraph
    outside: list[Any]
    ops: dict[int, Scan]


def scan_pullback(scan: Scan, gs: Sequence[object], create: bool) -> ScanPullback:
    """The pullback of a scan, of any length, given which of its outputs have gradients; kept by its
    body.
    """
    body = scan.body
    key = (
        "scan", scan.places, scan.carried, scan.sliced, scan.reverse, scan.keeps, create,
        *(each is not None for each in gs),
    )  # fmt: skip
    with body.lock:
        if key not in body.derivatives:
            step = ScanVJP(scan, gs, create)

            def derived() -> tuple[Subgraph, list[Any]]:
                return body.derived("_backward", step.cotangents(), True, create, step.back)

            made, outside = derived()
            if not create and step.leave_products(made):
                made, outside = derived()
            body.derivatives[key] = ScanPullback(step, made, outside, {})
        kept: ScanPullback = body.derivatives[key]
    return kept


class ScanVJP:
    """Vector-Jacobian product of one iteration of a scan, given which outputs of the node have
    gradients. Slots are numbers of the node's inputs.
    """

    carry: dict[int, int]  # slots of carried values with history: the body's inputs that they are
    met: list[int]  # slots of what every iteration reads, whose gradients are sums
    rows: list[int]  # slots of slices that have gradients
    seeds: list[int]  # outputs of the body, not carried, whose gradients arrive
    states: list[int]  # slots of carried values of which those before each iteration have gradients
    # Slots of matrices whose gradients are products behind the loop: of stacks of these values, by
    # id. Those that are `known` are inputs of the scan, of these slots, or kept values.
    products: dict[int, list[tuple[int, int]]]
    stacked: dict[int, Any]  # others, which are stacked for that

    def __init__(self, scan: Scan, gs: Sequence[Any], create: bool) -> None:
        self.body, self.slots, self.create = scan.body, scan.places, create
        body, n = scan.body, scan.carried
        begin, end = n + scan.sliced, len(body.outputs) + len(body.kept)
        numbered = list(enumerate(self.slots))
        self.carry = {slot: k for k, slot in numbered if slot < n and body.inputs[k]._node}
        whole = pullback(body, [True] * len(body.outputs), False)
        reached = [self.slots[k] for k in whole.reached]
        self.met = [slot for slot in reached if slot >= begin]
        self.rows = [slot for slot in reached if n <= slot < begin]
        self.numbers = {slot: k for k, slot in numbered}  # of the body's inputs, by slot
        self.products, self.stacked = {}, {}
        self.known = {id(body.inputs[k]._data): slot for k, slot in numbered if slot < begin}
        self.kept = {id(value) for value, _ in body.hints}
        self.seeds = [
            k for k in range(n, len(body.outputs))
            if gs[k] is not None and body.outputs[k]._node is not None
        ]  # fmt: skip
        self.states = [
            k for k in range(n) if scan.keeps and gs[end + k] is not None and k in self.carry
        ]

    def leave_products(self, made: Subgraph) -> bool:
        """Choose matrices whose gradients are not summed up in the loop but computed behind it, by
        what `back` has given; whether there are such.
        """
        for slot, y in zip(list(self.met), made.outputs[len(self.carry) :], strict=False):
            op = y._data.op
            if op is not None and op.name == "add" and are_worth_it(factors_of(y._data.inputs[1])):
                self.met.remove(slot)
                self.products[slot] = []
        return bool(self.products)

    def _left(self, slot: int, gradient: Any) -> None:
        """Note the factors of a matrix's gradient, or None, as values that are stacked."""
        self.products[slot] = pairs = []
        for factors in () if gradient is None else factors_of(gradient._data) or ():
            a, b = (factor.stacked() for factor in factors)
            pairs.append((id(a), id(b)))
            for x in (a, b):
                if id(x) not in self.known and id(x) not in self.kept:
                    self.stacked[id(x)] = x

    def cotangents(self) -> list[Any]:
        """Symbols for what `back` takes."""
        inputs, outputs = self.body.inputs, self.body.outputs
        return [
            like(x, self.create)
            for x in (
                *(inputs[k] for k in self.carry.values()),
                *(inputs[self.numbers[slot]] for slot in self.met),
                *(outputs[k] for k in self.seeds),
                *(inputs[self.carry[k]] for k in self.states),
            )
        ]

    def back(self, *incoming: Any) -> list[Any]:
        """The gradients of carried values before the iteration, the sums with its share, and the
        gradients of its slices. It takes the gradients of carried values after it, the sums of
        later iterations, the gradients of `seeds`, and those of `states`.
        """
        body, parts = self.body, iter(incoming)
        flowing, sums, arrived, beside = (
            [next(parts) for _ in group]
            for group in (self.carry, self.met, self.seeds, self.states)
        )
        pairs = [
            (body.outputs[slot], each)
            for slot, each in zip(self.carry, flowing, strict=True)
            if body.outputs[slot]._node is not None
        ]
        pairs += [(body.outputs[k], each) for k, each in zip(self.seeds, arrived, strict=True)]
        slots = (*self.carry, *self.met, *self.rows, *self.products)
        targets = [body.inputs[self.numbers[slot]] for slot in slots]
        sent: list[Any] = [None] * len(targets)
        if pairs and targets:
            ys, gs = [y for y, _ in pairs], [each for _, each in pairs]
            sent = list(gradients(ys, targets, gs, self.create))
        for slot, each in zip(self.states, beside, strict=True):
            k = list(self.carry).index(slot)
            sent[k] = each if sent[k] is None else sent[k] + each
        for k, total in enumerate(sums, len(self.carry)):
            sent[k] = total if sent[k] is None else total + sent[k]
        self.stacked = {}
        count = len(slots) - len(self.products)
        for slot, each in zip(self.products, sent[count:], strict=True):
            self._left(slot, each)
        results = [
            wrap(np.zeros(x._data.shape, x._data.dtype)) if each is None else each
            for x, each in zip(targets[:count], sent, strict=False)
        ]
        return [*results, *map(wrap, self.stacked.values())]

    def places(self, begin: int, width: int, read: int, outside: int) -> list[int]:
        """For each input of the derived body, its number among inputs of the derived scan: those
        that are carried, `width` sliced ones, and those read each time, `read` of the scan itself
        and `outside` others. The scan's own inputs before `begin` are the first sliced ones.
        """
        m = len(self.carry) + len(self.met)
        count = len(self.seeds) + len(self.states)
        slots = [m + slot if slot < begin else m + width + slot - begin for slot in self.slots]
        slots += range(m)
        slots += range(m + begin, m + begin + count)
        slots += range(m + begin + count, m + width)
        slots += range(m + width + read, m + width + read + outside)
        return slots
