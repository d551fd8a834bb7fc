"""Random graphs, assignments, edits, reads and backwards: as eager, and only the affected ran."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import adjoint as ad
from adjoint.core.errors import AutogradError, GraphError, ShapeError

from ..sweep import few_or_many
from .oracle import FUNCTIONS, SEED, Oracle

# Nodes follow what a program writes: that is what these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:Graph. ")

PICK = st.integers(0, 30)
SHAPES = st.sampled_from([(2, 3), (3, 2), (1, 3), (3, 3)])
NAMES = st.sampled_from(sorted(FUNCTIONS))
ONE_STEP = sorted(name for name, f in FUNCTIONS.items() if len(f.steps) == 1)
ACTIONS = st.sampled_from([
    "change", "reshape", "reshape", "reshape_alike", "reshape_alike", "replace", "remove",
    "remove_unused", "splice", "read",
])  # fmt: skip
ASSIGNMENTS = st.sampled_from(["set", "copy_", "add_", "item", "same"])


class Machine(RuleBasedStateMachine):
    """One graph, changed in every way; beside it the oracle."""

    def __init__(self):
        super().__init__()
        self.numbers = np.random.default_rng(0)
        self.derived = []  # (loss, leaf, the tensor that is the gradient)
        self.in_batch = False  # shapes need not agree yet
        self.edited = set()  # the steps edited in the last batch
        self.gone = []  # the nodes removed in this batch

    @initialize(cutoff=st.booleans())
    def begin(self, cutoff):
        self.graph = ad.Graph(seed=SEED, cutoff=cutoff)
        self.oracle = Oracle(cutoff)
        for kind in ("input", "parameter", "outside"):
            self.new_source(kind, (2, 3))
        for name, inputs in (("mul", (0, 1)), ("sin", (2,)), ("add", (3, 4)), ("sort", (5,))):
            nodes = [self.oracle.nodes[i] for i in inputs]
            with self.graph:
                y = FUNCTIONS[name].compute(*(n.tensor for n in nodes))
            self.oracle.call(name, [(n, False) for n in nodes], y, True)

    # ---- building --------------------------------------------------------------------------------

    def values(self, shape):
        return self.numbers.standard_normal(shape)

    def new_source(self, kind, shape):
        value = self.values(shape)
        if kind == "outside":
            tensor = ad.nn.Parameter(ad.tensor(value.copy()))
            with self.graph:
                (cell,) = tensor.sum().node.cells  # the source that follows it
        else:
            tensor = getattr(self.graph, kind)(value)
            cell = tensor.node
        return self.oracle.source(kind, tensor, cell, value, kind != "input")

    def pick(self, number, only=lambda node: True):
        nodes = [n for n in self.oracle.nodes if n.tensor is not None and only(n)]
        return nodes[number % len(nodes)] if nodes else None

    @precondition(lambda self: len(self.oracle.nodes) < 8)
    @rule(kind=st.sampled_from(["input", "parameter", "outside"]), shape=SHAPES)
    def add_source(self, kind, shape):
        self.new_source(kind, shape)

    @rule(shape=SHAPES)
    def add_draw(self, shape):
        with self.graph:
            y = ad.rand(shape, dtype=ad.float64)
        self.oracle.draw(y, shape)

    @rule(
        name=NAMES,
        places=st.tuples(PICK, PICK),
        detached=st.sampled_from([(False, False), (False, False), (True, False), (False, True)]),
        recorded=st.sampled_from([True, True, True, False]),
    )
    def compute(self, name, places, detached, recorded):
        function = FUNCTIONS[name]
        inputs = [
            (self.pick(place), cut)
            for place, cut in zip(places[: function.arity], detached, strict=False)
        ]
        frozen = inputs[0][0].kind == "outside" and not inputs[0][0].wants
        if name == "clone" and (detached[0] or frozen or not recorded):
            return  # a copy, which is no node: see test_steps.py
        inputs = [(x, cut and x.kind != "outside") for x, cut in inputs]  # an alias is a source
        tensors = [x.tensor.detach() if cut else x.tensor for x, cut in inputs]
        with self.graph, ad.set_grad_enabled(recorded):
            try:
                y = function.compute(*tensors)
            except ShapeError:
                return
        assert tuple(y.shape) == tuple(self.fresh_shape(function, inputs))
        self.oracle.call(name, inputs, y, recorded)

    def fresh_shape(self, function, inputs):
        values = self.oracle.evaluate([x for x, _ in inputs])
        return function.compute(*(values[x] for x, _ in inputs)).shape

    @rule(place=PICK)
    def double_in_place(self, place):
        node = self.pick(place, lambda n: not n.is_source and not self.has_views(n))
        if node is not None:
            node.tensor.mul_(2.0)
            self.oracle.call("double", [(node, False)], node.tensor, True)
            node.tensor = None

    def has_views(self, node):
        """Whether writing to the node's tensor changes, or is seen by, other tensors: a view of a
        detached tensor has another base, of the same memory.
        """
        x = node.tensor
        views = [o.tensor._view for o in self.oracle.nodes if o.tensor is not None]
        bases = [view.base for view in (x._view, *views) if view is not None]
        shared = any(b is x or (b._changes is not None and b._changes is x._changes) for b in bases)
        return x._view is not None or shared or any(g is x for *_, g in self.derived)

    # ---- assigning -------------------------------------------------------------------------------

    def assign(self, node, how):
        x = node.tensor
        value = self.values(node.value.shape)
        if how == "same" or (how == "item" and value[:1, 1:].size == 0):
            how, value = "set", node.value.copy()
        with ad.no_grad():
            if how == "add_":
                x.add_(ad.tensor(value))
                value = node.value + value
            elif how == "item":
                x[0, 1] = float(value[0, 1])
                value = np.concatenate([value.flat[1:2], node.value.flat[2:]])
                value = np.concatenate([node.value.flat[:1], value]).reshape(node.value.shape)
            elif how == "copy_":
                x.copy_(ad.tensor(value))
            else:
                x.set(value)
        node.value = value
        node.step.version = next(_versions)

    @rule(place=PICK, how=ASSIGNMENTS)
    def change(self, place, how):
        self.assign(self.pick(place, lambda n: n.is_source), how)

    @rule()
    def optimizer_step(self):
        stepped = [n for n in self.oracle.nodes if n.wants and n.grad is not None]
        if stepped:
            ad.optim.SGD([n.tensor for n in stepped], lr=0.5).step()
        for node in stepped:
            node.value = node.value - 0.5 * node.grad
            node.step.version = next(_versions)

    @rule(place=PICK)
    def zero_grad(self, place):
        node = self.pick(place, lambda n: n.is_source)
        node.tensor.grad = None
        node.grad = None

    @rule(place=PICK, freeze=st.booleans())
    def freeze(self, place, freeze):
        node = self.pick(place, lambda n: n.is_source)
        (self.graph.freeze if freeze else self.graph.unfreeze)(node.tensor)
        assert self.graph.is_frozen(node.tensor) == freeze
        node.wants = not freeze

    @rule(actions=st.lists(st.tuples(ACTIONS, PICK, PICK), max_size=4), fails=st.booleans())
    def batch(self, actions, fails):
        """Any changes: all of them, or, where it fails or shapes do not agree in the end, none."""
        self.do_batch(actions, fails)

    def do_batch(self, actions, fails):
        nodes = list(self.oracle.nodes)
        before = [(n, list(n.inputs), n.value, n.step.version, n.grad) for n in nodes]
        edges = [(s, list(s.inputs)) for n in nodes for s in n.steps]
        self.edited = set()
        fitting = True
        try:
            with self.graph.batch():
                self.in_batch = True
                for action, place, other in actions:
                    getattr(self, f"do_{action}")(place, other)
                self.in_batch = False
                fitting = self.fits()
                if fails:
                    raise KeyError("in the middle")
            assert fitting
        except (KeyError, ShapeError) as error:
            assert fails or not fitting, error
            self.oracle.nodes[:] = nodes
            for node, inputs, value, version, grad in before:
                node.inputs, node.value, node.grad = inputs, value, grad
                if node.is_source:
                    node.step.version = version
            for step, above in edges:
                step.inputs = above
            for step in self.edited:
                step.seen = None
            for node in nodes:
                for step in node.steps:
                    step.has_value &= step.cell.array is not None
        finally:
            self.in_batch = False
            self.edited.clear()
            self.gone.clear()

    def fits(self):
        """Whether the shapes of all nodes agree."""
        try:
            self.oracle.evaluate(self.oracle.nodes)
        except ShapeError:
            return False
        return True

    def do_change(self, place, other):
        how = ("set", "copy_", "add_", "same")[other % 4]
        self.assign(self.pick(place, lambda n: n.is_source), how)

    def do_reshape(self, place, other):
        """Set a source to a value of another shape."""
        node = self.pick(place, lambda n: n.kind in ("input", "parameter"))
        if node is not None:
            self.reshape_node(node, other)

    def reshape_node(self, node, other):
        shape = [(2, 3), (3, 2), (1, 3), (3, 3), (0, 3), (2, 1)][other % 6]
        if shape == node.value.shape:
            return
        old, node.value = node.value, self.values(shape)
        if not self.in_batch and not self.fits():
            with pytest.raises(ShapeError, match=r"at node .* the graph is unchanged"):
                node.tensor.set(node.value)
            node.value = old
            return
        node.tensor.set(node.value)
        assert node.tensor.shape == shape
        node.step.version = next(_versions)
        node.grad = None
        self.forget_shapes()

    def do_reshape_alike(self, place, other):
        """Set all inputs and parameters of a shape to values of another: with them, what was
        computed elementwise still agrees.
        """
        node = self.pick(place, lambda n: n.kind in ("input", "parameter"))
        if node is None:
            return
        shape = node.value.shape
        for each in self.oracle.nodes:
            if each.kind in ("input", "parameter") and each.value.shape == shape:
                self.reshape_node(each, other)

    @rule(place=PICK, other=PICK)
    def reshape(self, place, other):
        self.do_reshape(place, other)

    # ---- editing ---------------------------------------------------------------------------------

    def edit(self, changes, perform):
        """`perform()` lets each of the steps `changes` have other inputs: (node, what its inputs
        become, {step: its inputs}). In a batch, shapes need not agree.
        """
        before = [(node, node.inputs) for node, _, _ in changes]
        for node, inputs, _ in changes:
            node.inputs = inputs
        refused = None
        if any(node in x.above() for node, inputs, _ in changes for x, _ in inputs):
            refused = GraphError
        elif not self.in_batch and not self.fits():
            refused = ShapeError
        if refused is not None:
            for node, inputs in before:
                node.inputs = inputs
            edits = self.graph.stats()["edits"]
            with pytest.raises(refused):
                perform()
            assert self.graph.stats()["edits"] == edits
            return
        perform()
        for _, _, steps in changes:
            for step, inputs in steps.items():
                step.inputs = inputs
                step.seen = None
                if self.in_batch:
                    self.edited.add(step)
        self.forget_shapes()

    def forget_shapes(self):
        """A step whose shape is another one now has no value any more."""
        for node in self.oracle.nodes:
            for step in node.steps:
                if step.has_value and step.cell.array is None:
                    array = None if step.before is None else step.before[0]
                    assert array is None or array.shape != tuple(step.cell.shape)
                    step.has_value = False

    def users_changes(self, old, new, users):
        changes = []
        for user in users:
            inputs = [(new, cut) if x is old else (x, cut) for x, cut in user.inputs]
            steps = {
                s: [new.step if x is old.step else x for x in s.inputs]
                for s in user.steps
                if old.step in s.inputs
            }
            changes.append((user, inputs, steps))
        return changes

    def do_replace(self, place, other):
        old, new = self.pick(place), self.pick(other)
        users = [n for n in self.oracle.nodes if any(x is old for x, _ in n.inputs)]
        if old is not new:
            self.edit(
                self.users_changes(old, new, users),
                lambda: self.graph.replace(old.tensor, new.tensor),
            )

    @rule(place=PICK, other=PICK)
    def replace(self, place, other):
        self.do_replace(place, other)

    @rule(place=PICK, index=st.integers(0, 1), other=PICK)
    def set_input(self, place, index, other):
        node = self.pick(place, lambda n: n.kind in ONE_STEP)
        if node is None:
            return
        new = self.pick(other)
        index %= len(node.inputs)
        inputs = list(node.inputs)
        if inputs[index][0] is new:
            return
        inputs[index] = (new, False)
        steps = {node.step: [x.step for x, _ in inputs]}
        self.edit([(node, inputs, steps)], lambda: node.tensor.set_input(index, new.tensor))

    @rule(place=PICK)
    def insert_after(self, place):
        node = self.pick(place)
        users = [n for n in self.oracle.nodes if any(x is node for x, _ in n.inputs)]
        y = self.graph.insert_after(node.tensor, ad.tanh)
        new = self.oracle.call("tanh", [(node, False)], y, True)
        for user, inputs, steps in self.users_changes(node, new, users):
            user.inputs = inputs
            for step, above in steps.items():
                step.inputs, step.seen = above, None
        self.forget_shapes()

    def do_remove(self, place, other=0):
        node = self.pick(place, lambda n: n.kind != "outside")
        if node is not None:
            self.remove_node(node)

    def do_remove_unused(self, place, other=0):
        used = {x for n in self.oracle.nodes for x, _ in n.inputs}
        node = self.pick(place, lambda n: n.kind != "outside" and n not in used)
        if node is not None:
            self.remove_node(node)

    def remove_node(self, node):
        if len(self.oracle.nodes) < 4:
            return
        used = any(x is node for n in self.oracle.nodes for x, _ in n.inputs)
        users = {u for s in node.steps[-1:] for u in s.cell.living_users() if not u.planned}
        hidden = {s.cell for n in self.gone for s in n.steps}  # which only the batch can bring back
        if users and users <= hidden and not used:
            return
        if used or any(node is loss for loss, _, _ in self.derived):
            with pytest.raises(GraphError, match="is used by"):
                self.graph.remove(node.tensor)
            return
        self.graph.remove(node.tensor)
        self.forget(node)

    def forget(self, node):
        self.oracle.nodes.remove(node)
        if self.in_batch:
            self.edited.add(node.step)
            self.gone.append(node)
        assert node.step.cell not in {x.node for x in self.graph.nodes}
        with pytest.raises(GraphError, match="removed"):
            node.tensor.set(0.0)
        if not self.in_batch or self.fits():
            with pytest.raises(GraphError, match="removed"):
                node.tensor.detach().numpy()

    @rule(place=PICK)
    def remove(self, place):
        self.do_remove(place)

    def do_splice(self, place, other=0):
        node = self.pick(place, lambda n: n.kind in ONE_STEP and len(n.inputs) == 1)
        if node is None or any(node is loss for loss, _, _ in self.derived):
            return
        ((new, cut),) = node.inputs
        users = [n for n in self.oracle.nodes if any(x is node for x, _ in n.inputs)]
        changes = self.users_changes(node, new, users)
        for user, inputs, _ in changes:
            for i, (x, _) in enumerate(user.inputs):
                inputs[i] = (inputs[i][0], inputs[i][1] or (x is node and cut))
        self.edit(changes, lambda: (self.graph.splice_out(node.tensor), self.forget(node)))

    @rule(place=PICK)
    def splice(self, place):
        self.do_splice(place)

    @precondition(lambda self: not self.derived)
    @rule()
    def go_on_with_a_copy(self):
        old = self.graph
        new = old.copy()
        self.graph = new

        def twin(node):
            return node.tensor if node.kind == "outside" else new.twin(node.tensor)

        def cell(old_cell):
            outside = getattr(old_cell, "follows", None)
            if outside is None:
                return new._twins[id(old_cell)][1]()
            with new:
                return outside.sum().node.cells[0]

        self.oracle = self.oracle.copied(twin, cell)

    # ---- reading ---------------------------------------------------------------------------------

    def do_read(self, place, other=0):
        node = self.pick(place)
        if self.in_batch and not self.fits():
            try:
                self.oracle.evaluate([node])
            except ShapeError:
                with pytest.raises(ShapeError, match="at node"):
                    node.tensor.detach().numpy()
            return
        self.read_node(node)

    def read_node(self, node):
        with self.graph.events() as log:
            value = node.tensor.detach().numpy()
        expected = set() if node.kind == "outside" else self.oracle.read(node.step)
        assert len(log.cells) == len(set(log.cells))
        assert set(log.cells) == expected
        assert not any(s.cell.stale for n in node.above() for s in n.steps)
        self.note_let_go(node)
        assert_same(value, self.oracle.evaluate([node])[node].detach().numpy())

    @rule(place=PICK)
    def read(self, place):
        self.do_read(place)

    @rule()
    def read_everything(self):
        for node in self.oracle.nodes:
            if node.tensor is not None:
                self.read_node(node)
        for i in range(len(self.derived)):
            self.read_derivative(i)

    def note_let_go(self, read=None):
        """What was recorded under no_grad may go, unless it was read, or something waits for it."""
        for node in self.oracle.nodes:
            for step in () if node.recorded or node is read else node.steps:
                if step.has_value and step.cell.array is None:
                    assert not any(user.stale for user in step.cell.living_users())
                    step.has_value = False

    def note_runs(self, log, above):
        """Of the steps known, those of `log` ran: each was out of date, and lies above. Whether a
        value that was released since had changed is what the log says.
        """
        cells = log.cells
        steps = {s.cell: s for n in self.oracle.nodes for s in n.steps}
        near = {s for n in above for s in n.steps}
        assert len(cells) == len(set(cells))
        for cell in cells:
            step = steps.get(cell)
            if step is None:
                continue
            assert step in near
            if step.seen != [x.version for x in step.inputs]:
                version = step.version
                self.oracle.has_run(step)
                if cell.array is None and cell in log._cut:
                    step.version = version
            else:
                assert not step.has_value
                self.oracle._take(step)
        self.note_let_go()

    @rule(place=PICK, retain=st.booleans(), on_graph=st.booleans())
    def backward(self, place, retain, on_graph):
        self.do_backward(place, retain, on_graph)

    @rule(
        place=PICK, retain=st.booleans(), removed=st.lists(PICK, min_size=1, max_size=4),
        fails=st.booleans(),
    )  # fmt: skip
    def backward_and_remove(self, place, retain, removed, fails):
        """What a recorded backward pass goes through is taken out, from the end up."""
        self.do_backward(place, retain, False)
        self.do_batch([("remove_unused", each, 0) for each in removed], fails)

    def do_backward(self, place, retain, on_graph):
        loss = self.pick(place, lambda n: n.kind != "outside")
        if loss is None:
            return
        values = self.oracle.evaluate([loss])
        y = values[loss]
        assert loss.tensor.requires_grad == y.requires_grad
        with self.graph.events() as log:
            if not y.requires_grad:
                with pytest.raises(AutogradError):
                    loss.tensor.backward()
            elif on_graph:
                self.graph.backward(loss.tensor, retain_graph=retain)
            else:
                loss.tensor.backward(retain_graph=retain)
        self.note_runs(log, loss.above())
        if not y.requires_grad:
            return
        wanted = [n for n, v in values.items() if v.requires_grad]
        grads = ad.autograd.grad(y, [values[n] for n in wanted], ad.ones_like(y), allow_unused=True)
        for node, g in zip(wanted, grads, strict=True):
            if g is not None and node.is_source:
                node.grad = g.numpy() if node.grad is None else node.grad + g.numpy()
            elif retain and g is not None and node.tensor is not None and node.recorded:
                assert_same(node.tensor.grad.numpy(), g.numpy())
        through = {n for n, g in zip(wanted, grads, strict=True) if g is not None}
        for node in loss.above():
            if node in through and not node.is_source and node is not loss:
                assert retain or node.step.cell.array is None
            for step in node.steps:
                if step.op != "source" and step.cell.array is None and step.has_value:
                    assert not retain
                    assert node in through
                    assert step is not loss.step
                    step.has_value = False

    @precondition(lambda self: len(self.derived) < 2)
    @rule(place=PICK, other=PICK)
    def derive(self, place, other):
        leaf = self.pick(other, lambda n: n.wants)
        if leaf is None:
            return
        loss = self.pick(place, lambda n: leaf in n.above() and n is not leaf)
        if loss is None or self.gradient(loss, leaf) is None:
            return
        total = self.oracle.call("total", [(loss, False)], loss.tensor.sum((0, 1), True), True)
        (g,) = ad.autograd.grad(total.tensor, leaf.tensor)
        self.derived.append((total, leaf, g))

    def gradient(self, loss, leaf):
        """The gradient of the sum of `loss`, computed eagerly; None where there is none."""
        values = self.oracle.evaluate([loss, leaf])
        if not values[loss].requires_grad or not values[leaf].requires_grad:
            return None
        (g,) = ad.autograd.grad(values[loss].sum(), [values[leaf]], allow_unused=True)
        return g

    @precondition(lambda self: self.derived)
    @rule(place=PICK)
    def read_derived(self, place):
        self.read_derivative(place % len(self.derived))

    def read_derivative(self, place):
        loss, leaf, g = self.derived[place]
        wants, leaf.wants = leaf.wants, True  # freezing does not concern what was asked for before
        expected = self.gradient(loss, leaf)
        leaf.wants = wants
        with self.graph.events() as log:
            value = g.detach().numpy()
        self.note_runs(log, [n for x, _, _ in self.derived for n in x.above()])
        if expected is None:
            assert not value.any()
        else:
            assert_same(value, expected.numpy())
        with self.graph.events() as log:
            g.detach().numpy()
        assert log.cells == []

    # ---- what always holds -----------------------------------------------------------------------

    @invariant()
    def all_is_well(self):
        self.graph.check_invariants()
        self.note_let_go()
        values = self.oracle.evaluate(self.oracle.nodes)
        for node in self.oracle.nodes:
            for step in node.steps:
                cell = step.cell
                assert step.has_value == (cell.array is not None)
                assert cell.stale or step.up_to_date()
            if not node.step.cell.stale and node.step.has_value:
                assert_same(node.step.cell.array, values[node].detach().numpy())
            if node.is_source:
                have = node.tensor.grad
                assert (have is None) == (node.grad is None)
                if have is not None:
                    assert_same(have.numpy(), node.grad)


_versions = itertools.count(-1, -1)  # of assigned sources: never one that was there before


def assert_same(have, want):
    assert have.shape == want.shape
    np.testing.assert_allclose(have, want, rtol=1e-12, atol=1e-12)


@few_or_many("count", 40, 400)
def test_machine(count):
    options = settings(max_examples=count, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(Machine, settings=options)
