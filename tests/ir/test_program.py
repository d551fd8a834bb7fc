"""Programs: the capture, the verifier, and each pass before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.autograd.capture import CaptureRecorder, program_of, recording, symbol
from adjoint.core import dtype as dt
from adjoint.core.errors import AutogradError, GraphError, NotTraceable, ShapeError, Unsupported
from adjoint.core.spec import Spec
from adjoint.core.tree import parts_of
from adjoint.ir.passes import drawn, small, unused_inputs, without_reshapes
from adjoint.ir.program import Program, Value, make
from adjoint.ops.elementwise.arithmetic import MUL
from adjoint.ops.elementwise.functions import Tanh
from adjoint.runtime.lazy import LazyValue

MATRIX = Spec((6, 4), dt.float32)


def captured(function: Any, *specs: Spec, **options: Any) -> Program:
    """The program of a function, checked."""
    inputs = list(map(symbol, specs))
    with recording(**options):
        found = function(*inputs)
    results, _ = parts_of(found, "it gives")
    program = program_of([x._data for x in inputs], [y._data for y in results])
    program.verify()
    return program


def names(program: Program) -> list[str]:
    return [node.op.name for node in program.nodes]


# ---- capture -------------------------------------------------------------------------------------


def test_what_is_recorded_is_read_off_in_order() -> None:
    program = captured(lambda x, y: ((x * y).tanh() + y.exp(), x), MATRIX, MATRIX)
    assert names(program) == ["mul", "tanh", "exp", "add"]
    x, y = program.inputs
    assert program.nodes[0].inputs == (x, y)
    assert program.outputs == [program.nodes[-1].output, x]
    assert program.outputs[0].spec == MATRIX
    assert (x.node, x.op, x.name) == (None, None, "x0")


def test_ops_with_several_outputs_are_one_node() -> None:
    program = captured(lambda x: ad.var_mean(x, 1), MATRIX)
    assert len(program.nodes) == 1
    assert program.outputs == list(program.nodes[0].outputs)
    assert [y.index for y in program.outputs] == [0, 1]


def test_what_outputs_do_not_need_is_left_out() -> None:
    def function(x: Any) -> Any:
        x.exp()
        return x.tanh()

    assert names(captured(function, MATRIX)) == ["tanh"]


def test_the_mode_outside_does_not_count() -> None:
    with ad.no_grad(), ad.autocast("cpu", dtype=ad.bfloat16):
        program = captured(lambda x: x @ x.t(), MATRIX)
    assert program.outputs[0].spec == Spec((6, 6), dt.float32)
    assert type(ad.ones(2)._data) is np.ndarray  # and nothing is left behind


def test_other_tensors_are_refused_or_constants() -> None:
    w = ad.randn(6, 4)
    with pytest.raises(NotTraceable, match="a tensor that is no argument"):
        captured(lambda x: x * w, MATRIX)
    with pytest.raises(NotTraceable, match="was not recorded"):
        captured(lambda x: w, MATRIX)
    x = symbol(MATRIX)
    with recording():
        y = x * w

    def known(data: Any) -> Value:
        assert isinstance(data, LazyValue)
        return Value(MATRIX, array=data.array, name="w")

    program = program_of([x._data], [y._data], known)
    program.verify()
    (constant,) = program.constants()
    assert constant.array is w._data and constant.name == "w"


def test_reading_values_is_said_in_the_clients_words() -> None:
    with pytest.raises(Unsupported, match="the client: no values here"):
        captured(lambda x: x * x.sum().item(), MATRIX, reads="the client: no values here")
    with pytest.raises(AutogradError, match="was given no value"):
        captured(lambda x: x * x.sum().item(), MATRIX)
    with pytest.raises(ShapeError, match="mul"):
        captured(lambda x: x * x.t(), MATRIX)
    assert type(ad.ones(2)._data) is np.ndarray


def test_a_recorder_takes_composites_as_a_whole() -> None:
    seen = []

    def whole(function: Any, native: str, args: Any) -> Any:
        seen.append((function.__name__, native))
        return (Tanh(), args[:1]) if native == "attention.eager_attention" else None

    spec = Spec((2, 3, 4), dt.float32)
    attention = ad.nn.functional.scaled_dot_product_attention
    program = captured(lambda x: attention(x, x, x), spec, executor=CaptureRecorder(whole))
    assert names(program) == ["tanh"]
    assert seen == [("attention", "attention.eager_attention")]


# ---- the verifier --------------------------------------------------------------------------------


def test_a_node_of_another_program_is_noticed() -> None:
    x = Value(MATRIX)
    tanh = make(Tanh(), x)
    after = make(Tanh(), tanh.output)
    Program([x, tanh.output], [after], [after.output]).verify()  # what another computes is given
    with pytest.raises(GraphError, match="before it is computed"):
        Program([x], [after], [after.output]).verify()
    with pytest.raises(GraphError, match="not its own"):
        Program([x], [tanh, tanh], [tanh.output]).verify()


# ---- passes --------------------------------------------------------------------------------------


def test_between_cuts_a_part_out() -> None:
    program = captured(lambda x, y: ((x * y).tanh().exp(), y.sin()), MATRIX, MATRIX)
    product, tanh, exp, _ = program.nodes
    part = program.between([product.output], program.outputs[:1])
    part.verify()
    assert part.nodes == [tanh, exp] and part.inputs == [product.output]
    assert program.needed([exp.output]) == {
        *program.inputs, product.output, tanh.output, exp.output
    }  # fmt: skip
    assert len(program.nodes) == 4  # left alone


def test_with_inputs_leaves_the_program_alone() -> None:
    program = captured(lambda x: (x.tanh() * x).exp(), MATRIX)
    before = [node.inputs for node in program.nodes]
    tanh, product, exp = program.nodes
    other = Value(MATRIX)
    changed = program.with_inputs([other], {tanh.output: other})
    changed.verify()
    assert names(changed) == ["mul", "exp"]
    assert changed.inputs == [*program.inputs, other]
    assert changed.nodes[0].inputs == (other, program.inputs[0])
    assert changed.nodes[0] is not product and changed.nodes[1] is not exp
    assert [node.inputs for node in program.nodes] == before
    assert program.with_inputs([], {}).nodes == program.nodes  # the same, where nothing changes


def test_without_reshapes() -> None:
    def function(x: Any, y: Any) -> Any:
        return (x.reshape(3, 8).reshape(24).exp() * y).reshape(6, 4).reshape(2, 12)

    program = captured(function, MATRIX, Spec((24,), dt.float32))
    assert names(program).count("reshape") == 4
    bare, further = without_reshapes(program)
    bare.verify()
    assert names(bare) == ["exp", "mul"]
    assert further == [(0, (24,))]
    assert [x.shape for x in bare.inputs] == [(6, 4), (24,), (24,)]
    assert bare.outputs[0].shape == (24,)
    assert unused_inputs(bare) == {0}
    assert unused_inputs(program) == set()


def test_a_reshape_in_the_middle_stays() -> None:
    program = captured(lambda x: x.exp().reshape(4, 6).sum(0), MATRIX)
    bare, further = without_reshapes(program)
    assert names(bare) == ["exp", "reshape", "sum"] and further == []


def test_drawn() -> None:
    program = captured(lambda x: ad.nn.functional.dropout(x, 0.5).exp(), MATRIX)
    found = drawn(program)
    assert [y.node.op.drawn for y in found if y.node is not None] == [True]


def test_small_values_are_those_that_the_other_program_needs() -> None:
    def function(x: Any) -> Any:
        mean = x.mean(1, keepdim=True)
        return x - mean, mean * 2 + x.sum(), (mean.exp() * x)

    program = captured(function, Spec((64, 64), dt.float32))
    mean = next(node.output for node in program.nodes if node.op.name == "mean")
    ahead = program.between(program.inputs, program.outputs[:1])
    assert small(ahead, program.outputs[2:], 16, 0) == [mean]
    assert small(ahead, program.outputs[2:], 65, 0) == []  # not small enough
    assert small(ahead, program.outputs[2:], 16, 64 * 64 + 1) == []  # nothing is large


def test_numbers_are_inputs_of_nodes() -> None:
    node = make(MUL, Value(MATRIX), 2.0)
    assert node.inputs[1] == 2.0 and node.values == (node.inputs[0],)
    assert node.output.spec == MATRIX
