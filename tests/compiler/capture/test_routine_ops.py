"""Composites that have hand-written routines, in compiled functions: one node each way."""

import itertools

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.compiler.capture.routine_ops import RoutineBackward, RoutineForward
from adjoint.core import policy
from adjoint.inference import freeze
from tests.native import needs_native

from ...sweep import one_in, swept

pytestmark = needs_native
F = nn.functional


def layer(kind, **options):
    """Its call on a batch of sequences, and what gradients are of."""
    made = kind(6, 5, **options)
    return lambda x: made(x)[0], list(made.parameters())


def cell(kind):
    made = kind(6, 5)

    def run(x):
        state = None
        for each in x:
            state = made(each) if state is None else made(each, state)
        return ad.stack(state) if isinstance(state, tuple) else state

    return run, list(made.parameters())


def some_states():
    made = nn.LSTM(6, 5)
    return lambda x: made(x)[1][1], list(made.parameters())


LAYERS = {
    "LSTM": lambda: layer(nn.LSTM),
    "GRU, two layers, both directions": lambda: layer(nn.GRU, num_layers=2, bidirectional=True),
    "RNN, batch first, no bias": lambda: layer(nn.RNN, batch_first=True, bias=False),
    "LSTM with projections": lambda: layer(nn.LSTM, proj_size=3),
    "LSTM of doubles": lambda: layer(nn.LSTM, dtype=ad.float64),
    "LSTM with dropout": lambda: layer(nn.LSTM, num_layers=2, dropout=0.5),
    "LSTMCell": lambda: cell(nn.LSTMCell),
    "GRUCell": lambda: cell(nn.GRUCell),
    "RNNCell, which has no state kept": lambda: cell(nn.RNNCell),
    "a final state alone": some_states,
}


def compared(run, parameters, *given, tolerance=1e-5):
    """Values and gradients, eagerly and compiled, for three values of the inputs; the program."""

    def step(*inputs):
        for p in parameters:
            p.grad = None
        found = run(*inputs)
        (found * found).sum().backward()
        return found

    compiled = ad.compile(step)
    forward = ad.compile(run)  # whose gradients run outside
    for k in range(3):
        found = []
        for function in (step, compiled, forward):
            ad.manual_seed(k)
            inputs = [(x * (k + 1)).detach().requires_grad_(x.requires_grad) for x in given]
            for p in parameters:
                p.grad = None
            y = function(*inputs)
            if function is forward:
                (y * y).sum().backward()
            found.append([y, *(x.grad for x in (*parameters, *inputs))])
        for other in found[1:]:
            for value, expected in zip(other, found[0], strict=True):
                assert (value is None) == (expected is None)
                if value is not None:
                    np.testing.assert_allclose(
                        value.detach().float().numpy(), expected.detach().float().numpy(),
                        rtol=tolerance, atol=tolerance * expected.abs().max().item(),
                    )  # fmt: skip
    return compiled.programs[0]


def ops(program):
    return [type(node.op) for part in program.parts for node in part.graph.nodes]


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("wants", [False, True])
def test_recurrent_layers(name, wants):
    ad.manual_seed(0)
    run, parameters = LAYERS[name]()
    x = ad.randn(7, 3, 6, dtype=parameters[0].dtype).requires_grad_(wants)
    program = compared(run, parameters, x)
    found = ops(program)
    if "Cell" in name:  # one step is products and kernels, without Python
        assert RoutineForward not in found
        return
    assert RoutineForward in found and found.count(RoutineForward) == found.count(RoutineBackward)
    assert_machine_code(program)


def assert_machine_code(program):
    """That routines are calls of machine code, with nothing of Python between them."""
    listed = [each for part in program.listed() for each in part]
    assert all(
        native
        for steps, native, _ in listed
        if isinstance(steps[0].op, (RoutineForward, RoutineBackward))
    )


SIZES = [  # steps, rows, inputs, units
    (3, 15, 1, 33), (40, 2, 17, 16), *map(swept, [
        ((2, 1, 1, 1),), ((9, 64, 5, 7),), ((2, 3, 130, 31),), ((300, 3, 2, 15),)])
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "lies"),
    one_in(
        3, itertools.product([nn.LSTM, nn.GRU, nn.RNN], ["", "rows first", "gaps", "given states"])
    ),
)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_recurrent_layers_of_sizes(kind, sizes, lies):
    steps, rows, inputs, units = sizes
    ad.manual_seed(1)
    made = kind(inputs, units, batch_first=lies == "rows first")
    x = ad.randn(rows, steps, inputs) if lies == "rows first" else ad.randn(steps, rows, inputs)
    states = [ad.randn(units, rows).requires_grad_() for _ in range(2)]  # turned below

    def run(x, *states):
        if lies == "gaps":
            x = ad.stack([x, -x], -1)[..., 0]
        if lies != "given states":
            return made(x)[0].square()
        given = [s.t()[None] for s in states]
        found, last = made(x, tuple(given) if kind is nn.LSTM else given[0])
        last = last[0] + last[1] if kind is nn.LSTM else last
        return found.sum(0) + last[0].sin()

    given = states[: 2 if kind is nn.LSTM else 1] if lies == "given states" else []
    program = compared(run, list(made.parameters()), x.requires_grad_(), *given, tolerance=1e-4)
    if RoutineForward in ops(program):
        assert_machine_code(program)


LAST = {  # what is read of an output of 7 steps, and whether it is the last step's alone
    "first": (lambda y, rest: y[0], False),
    "last": (lambda y, rest: y[-1], True),
    "by number": (lambda y, rest: y[6], True),
    "as a part": (lambda y, rest: y[6:], False),
    "rows first": (lambda y, rest: y.transpose(0, 1)[:, -1], True),
    "units first": (lambda y, rest: y.permute(2, 1, 0)[:, :, -1], False),
    "some rows": (lambda y, rest: y[-1, :2], False),
    "some units": (lambda y, rest: y[-1, :, 1:], False),
    "backwards": (lambda y, rest: y[-1].flip(0), True),
    "twice": (lambda y, rest: y[-1] * y[-1], None),
    "two steps": (lambda y, rest: y[-1] + y[2], False),
    "with the final state": (lambda y, rest: y[-1] * rest[0][0], False),
    "with the final cells": (lambda y, rest: y[-1] * rest[1][0], True),
}


@pytest.mark.parametrize("name", LAST)
def test_give_final_states(name):
    """Gradients of the last step alone are those of the final state."""
    ad.manual_seed(0)
    read, gives = LAST[name]
    made = nn.LSTM(6, 5)
    x = ad.randn(7, 3, 6).requires_grad_()
    program = compared(lambda x: read(*made(x)), list(made.parameters()), x)
    [behind] = [
        node.op
        for part in program.parts
        for node in part.graph.nodes
        if type(node.op) is RoutineBackward
    ]
    if gives is not None:
        assert (behind.given[:2] == (False, True)) is gives


@pytest.mark.parametrize("reverse", [False, True])
def test_final_states_of_layers_that_go_back(reverse):
    """Where a direction ends is its last step: the first one of those that go back."""
    ad.manual_seed(0)
    made = nn.GRU(6, 5, bidirectional=True)
    half = slice(5, None) if reverse else slice(0, 5)
    x = ad.randn(7, 3, 6).requires_grad_()
    for step in (0, -1):
        compared(lambda x, step=step: made(x)[0][step, :, half], list(made.parameters()), x)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_whose_parameters_lie_with_gaps(kind):
    made = kind(6, 5)
    for p in made.parameters():
        wide = ad.stack([p.detach(), -p.detach()], -1)
        p.data = wide[..., 0] if p.ndim == 1 else wide[..., 0].t().contiguous().t()
    assert not any(p.is_contiguous() for p in made.parameters())
    x = ad.randn(7, 3, 6)

    def step():
        made.zero_grad()
        loss = made(x)[0].square().sum()
        loss.backward()
        return loss

    def losses(step):
        found = []
        with ad.no_grad():
            for p, value in zip(made.parameters(), begun, strict=True):
                p.copy_(value)
        for _ in range(4):
            found.append(step().item())
            with ad.no_grad():  # values change where they lie
                for p in made.parameters():
                    p.sub_(p.grad, alpha=0.01)
        return found

    begun = [p.detach().clone() for p in made.parameters()]
    expected = losses(step)
    assert len(set(expected)) == 4
    assert losses(ad.compile(step)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("frozen", [["weight_ih_l0"], ["weight_hh_l0", "bias_ih_l0"], ["bias"]])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_of_which_parts_want_gradients(kind, frozen):
    made = kind(6, 5, num_layers=2, bidirectional=True)
    for name, p in made.named_parameters():
        p.requires_grad_(not any(name.startswith(each) for each in frozen))
    parameters = [p for p in made.parameters() if p.requires_grad]
    assert_machine_code(compared(lambda x: made(x)[0], parameters, ad.randn(7, 3, 6)))


def test_a_recurrent_layer_without_gradients_knows_weights_that_are_constants():
    made = nn.LSTM(40, 33, 2)
    for x in (ad.randn(5, 1, 40), ad.randn(5, 70, 40)):  # products of all inputs at once, and not
        program = freeze(made, x)
        expected = made(x)
        for _ in range(2):
            for y, z in zip(program(x)[0], expected[0], strict=True):
                assert ad.allclose(y, z, atol=1e-6)


MASKS = {
    "none": lambda n: {},
    "causal": lambda n: {"is_causal": True},
    "bool": lambda n: {"attn_mask": ad.ones(n, n, dtype=ad.bool).tril()},
    "float": lambda n: {"attn_mask": ad.ones(n, n).tril(-3)},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("length", [15, policy.ATTENTION_WHOLE])
def test_attention(mask, length):
    options = MASKS[mask](length)
    given = [ad.randn(2, 2, length, 8).requires_grad_() for _ in range(3)]
    program = compared(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options), [], *given
    )
    assert (RoutineForward in ops(program)) == (length == policy.ATTENTION_WHOLE)
    assert_machine_code(program)


@pytest.mark.parametrize("heads", [(), (2, 3), swept(((1,),)), swept(((1, 9),))])
@pytest.mark.parametrize("features", [(16, 32), (33, 16), swept(((8, 8),)), swept(((1, 5),))])
@pytest.mark.parametrize("lies", ["", "one key head", "gaps", "masked rows"])
def test_attention_of_shapes(heads, features, lies):
    few, columns = features
    length, source = policy.ATTENTION_WHOLE + 3, policy.ATTENTION_WHOLE + 30
    of_keys = heads and (*heads[:-1], 1) if lies == "one key head" else heads
    shapes = (*heads, length, few), (*of_keys, source, few), (*of_keys, source, columns)
    given = [ad.randn(shape).requires_grad_() for shape in shapes]
    mask = ad.rand(source) > 0.3 if lies == "masked rows" else None

    def run(q, k, v):
        if lies == "gaps":
            q, k, v = (ad.stack([x, -x], -1)[..., 0] for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, mask)

    program = compared(run, [], *given, tolerance=1e-4)
    if RoutineForward in ops(program):
        assert_machine_code(program)


def test_attention_of_transposed_heads_and_of_queries_alone():
    length = policy.ATTENTION_WHOLE
    key = ad.randn(2, length, 4, 8)

    def run(x):
        heads = x.reshape(2, length, 4, 8).transpose(1, 2)
        return F.scaled_dot_product_attention(heads, key.transpose(1, 2), key.transpose(1, 2))

    assert RoutineForward in ops(compared(run, [], ad.randn(2, length, 32).requires_grad_()))


def test_narrow_attention():
    given = [ad.randn(2, 2, 512, 8).bfloat16().requires_grad_() for _ in range(3)]
    compared(lambda *x: F.scaled_dot_product_attention(*x), [], *given, tolerance=2e-2)


def test_second_derivatives_are_of_the_body():
    made = nn.GRU(6, 5)

    def step(x):
        y = made(x)[0]
        (g,) = ad.autograd.grad(y.square().sum(), x, create_graph=True)
        return ad.autograd.grad(g.square().sum(), made.weight_hh_l0)[0]

    x = ad.randn(4, 2, 6).requires_grad_()
    np.testing.assert_allclose(ad.compile(step)(x).numpy(), step(x).numpy(), rtol=1e-4, atol=1e-6)


def test_without_gradients_nothing_is_kept():
    made = nn.LSTM(6, 5)
    compiled = ad.compile(made)
    x = ad.randn(4, 2, 6)
    with ad.no_grad():
        np.testing.assert_allclose(compiled(x)[0].numpy(), made(x)[0].numpy(), rtol=1e-6)
    (program,) = compiled._compiled_call.programs
    (node,) = [
        n for part in program.parts for n in part.graph.nodes if type(n.op) is RoutineForward
    ]
    assert len(node.outputs) == 3 and node.op.written.routine.kept == ()


def test_narrow_floats_are_rounded_where_they_leave_a_kernel():
    x = ad.randn(8, 3).bfloat16()
    found = ad.compile(lambda x: (x * x + x).float())(x).double()
    assert found.tolist() == (x.double() * x.double() + x.double()).tolist()
