"""A kernel as the source text of a Triton function: the IR's second lowering, for GPUs.

The text is of given sizes and strides, which Triton then knows while it compiles. An elementwise
kernel's programs take blocks of the whole index space. A kernel that reduces has rows (positions
along the axes that stay) and columns (along the reduced ones): each program takes some rows, with
all columns at once where they fit, else block by block, in one loop for each reduction that depends
on another. Where rows are too few to fill a GPU, each program takes a share of the columns, and a
second function reduces what the shares have given. Adjacent axes along which all operands lie alike
are one.

>>> k = Kernel(rank=1)
>>> _ = k.output(k.exp(k.input("float32")))
>>> print(write(k, (100,), [(1,)], "example").source)
import triton
import triton.language as tl
<BLANKLINE>
<BLANKLINE>
@triton.jit
def example(p0, p1):
    at = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    at_in = at < 100
    v0 = tl.load(p0 + (at), mask=at_in, other=0)
    v1 = tl.exp(v0)
    tl.store(p1 + (at), v1, mask=at_in)
<BLANKLINE>
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from adjoint.core.errors import NotTraceable

from . import ir
from .analysis import Analysis
from .ir import Kernel, KernelValue

__all__ = ["ROWS", "Shares", "Text", "head", "shares_columns", "write", "write_rows"]

BLOCK = 1024  # elements of an elementwise kernel that a program takes
ROW = 8192  # columns that a program holds in registers
ROWS = 1024  # elements of a row of a table that a program takes
ALIGNED = 16  # bytes that a thread reads at once
CHANNEL = 256  # columns of a channel that programs do not share
TILE = 2048  # elements of several rows that a program takes at once
COLUMNS = 64  # rows beside each other, where these and not the columns lie side by side in memory
PROGRAMS = 1024  # that fill a GPU
OFFSETS = 1 << 31  # what a program counts elements with


class Text(NamedTuple):
    """A Triton function, and how it is launched."""

    source: str
    programs: int
    warps: int
    shares: Shares | None = None


class Shares(NamedTuple):
    """Programs take shares of the columns: `among` for each of a function's `programs`. They write
    what they reduce to further arguments, of shape (among, rows), from which a function with the
    same arguments, called NAME_end, computes the results.
    """

    among: int
    rows: int
    dtypes: tuple[str, ...]  # of what is reduced; bool as int8
    programs: int  # of the end


def write(
    kernel: Kernel,
    sizes: Sequence[int],
    strides: Sequence[Sequence[int]],
    name: str,
    scalars: Sequence[float] = (),
    order: Sequence[int] | None = None,
) -> Text:
    """The function `name` of the inputs' and outputs' pointers.

    `sizes` are those of the kernel's axes; `strides` those of each input along its own axes, in
    elements. Outputs lie without gaps, their axes in the `order` given, outer ones first (row-major
    otherwise), in which the index space is walked, too. `scalars` are the values of the kernel's.
    Errors: NotTraceable for what Triton has no function for, and for float64.
    """
    return _TritonWriter(kernel, sizes, strides, scalars, order).text(name)


def write_rows(kernel: Kernel, columns: Sequence[int], name: str, aligned: bool) -> str:
    """The function `name` that computes an elementwise kernel on the rows of a table and writes
    output k over column `columns[k]`; its programs take blocks of ROWS elements.

    It is given the table of addresses, for each program its row and its first element, and for each
    row its length and the values of the kernel's scalars. Where all addresses are `aligned`, to
    ALIGNED bytes, programs read several elements at once.
    Errors: as for `write`.
    """
    return _Rows(kernel, columns, aligned).function(name)


def shares_columns(space: Sequence[int], axes: Sequence[int]) -> bool:
    """Whether programs are to share the columns of one reduction after another, for there are too
    few rows to fill a GPU with programs that go through all columns for each. An image's channels
    may lie side by side, so that few programs have them all.
    """
    columns = math.prod(space[a] for a in axes)
    rows = math.prod(space) // columns
    if len(space) > 2 and set(range(len(space))) - {*axes} == {1}:
        return columns > CHANNEL and 2 * rows <= PROGRAMS
    return columns > 8 * ROW and 8 * rows <= PROGRAMS


# ---- ops -----------------------------------------------------------------------------------------

_TYPES = {
    "bool": "tl.int1", "float16": "tl.float16", "bfloat16": "tl.bfloat16", "float32": "tl.float32",
    **{name: f"tl.{name}" for name in ir.INTEGERS},
}  # fmt: skip
# What each op is, of operands {0}, {1}, ...
_OPS = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "tl.div_rn({0}, {1})",
    "neg": "-{0}", "abs": "tl.abs({0})", "sqrt": "tl.sqrt_rn({0})", "rsqrt": "tl.rsqrt({0})",
    "reciprocal": "tl.div_rn(tl.full((), 1.0, tl.float32), {0})",
    "floor": "tl.floor({0})", "ceil": "tl.ceil({0})",
    "trunc": "tl.where({0} < 0, tl.ceil({0}), tl.floor({0}))",
    "exp": "tl.exp({0})", "exp2": "tl.exp2({0})", "log": "tl.log({0})", "log2": "tl.log2({0})",
    "log10": "tl.log({0}) * 0.4342944819032518",
    "sin": "tl.sin({0})", "cos": "tl.cos({0})", "erf": "tl.erf({0})",
    "sigmoid": "tl.div_rn(tl.full((), 1.0, tl.float32), 1.0 + tl.exp(-{0}))",
    "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}", "ge": "{0} >= {1}",
    "eq": "{0} == {1}", "ne": "{0} != {1}", "and": "{0} & {1}", "or": "{0} | {1}",
    "xor": "{0} ^ {1}", "not": "~{0}", "fma": "tl.fma({0}, {1}, {2})",
    "isnan": "{0} != {0}", "isinf": 'tl.abs({0}) == float("inf")',
    "isfinite": 'tl.abs({0}) < float("inf")', "where": "tl.where({0}, {1}, {2})",
    "sign": "({0} > 0).to({type}) - ({0} < 0).to({type})",
}  # fmt: skip
# Functions that Triton does not have, as lines that write {y} with names of their own ({y}a, ...).
_BODIES = {
    # Near 0 a polynomial (Cephes), elsewhere by the exponential of -2|x|, which cannot overflow.
    "tanh": """\
{y}a = tl.abs({0})
{y}e = tl.exp(-2.0 * {y}a)
{y}b = tl.div_rn(1.0 - {y}e, 1.0 + {y}e)
{y}s = {0} * {0}
{y}p = (((-5.70498872745e-3 * {y}s + 2.06390887954e-2) * {y}s - 5.37397155531e-2) * {y}s
        + 1.33314422036e-1) * {y}s - 3.33332819422e-1
{y} = tl.where({y}a < 0.625, {0} + {0} * {y}s * {y}p, tl.where({0} < 0, -{y}b, {y}b))""",
    # Kahan's: what 1 + x and exp(x) were rounded by cancels.
    "log1p": """\
{y}u = 1.0 + {0}
{y}d = {y}u - 1.0
{y}q = tl.div_rn({0}, tl.where({y}d == 0, 1.0, {y}d))
{y} = tl.where({y}d == 0, {0}, tl.where({y}u == float("inf"), {y}u, tl.log({y}u) * {y}q))""",
    "expm1": """\
{y}u = tl.exp({0})
{y}d = {y}u - 1.0
{y}l = tl.log({y}u)
{y}q = tl.div_rn({0}, tl.where({y}l == 0, 1.0, {y}l))
{y}r = tl.where({y}u == 1.0, {0}, tl.where({y}d == -1.0, -1.0, {y}d * {y}q))
{y} = tl.where({y}u == float("inf"), {y}u, {y}r)""",
}
_IDENTITIES = {"sum": 0, "max": -math.inf, "min": math.inf, "any": 0, "all": 1}


def _literal(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def head(name: str, arguments: Sequence[str]) -> str:
    """A file's first lines."""
    return f"import triton\nimport triton.language as tl\n\n\n{_jit(name, arguments)}"


def _jit(name: str, arguments: Sequence[str]) -> str:
    """A function's first lines."""
    return f"@triton.jit\ndef {name}({', '.join(arguments)}):"


def _least(dtype: str, sign: int) -> int:
    """The least (or, with -1, the greatest) integer of a dtype."""
    bits = 8 * ir.ITEMSIZE[dtype]
    if dtype in ir.UNSIGNED:
        return 0 if sign > 0 else 2**bits - 1
    return -(2 ** (bits - 1)) if sign > 0 else 2 ** (bits - 1) - 1


# ---- positions -----------------------------------------------------------------------------------


class _Index:
    """A number that says the position along some axes together, and what it is along each."""

    def __init__(
        self, name: str, axes: Sequence[int], sizes: Sequence[int],
        strides: Sequence[dict[int, int]], apart: set[int],
    ) -> None:  # fmt: skip
        """`strides` of each operand by axis; `apart` are axes whose own positions are asked for."""
        self.name = name
        self.size = math.prod(sizes[a] for a in axes)
        self.loops: list[tuple[int, list[int]]] = []  # sizes and axes, outer ones first
        for a in axes:
            if sizes[a] == 1:
                continue
            if self.loops:
                size, group = self.loops[-1]
                outer = group[-1]
                alike = all(s.get(outer, 0) == s.get(a, 0) * sizes[a] for s in strides)
                if alike and not apart & {outer, a}:
                    self.loops[-1] = size * sizes[a], [*group, a]
                    continue
            self.loops.append((sizes[a], [a]))

    def position(self, axis: int) -> str:
        """The position along an axis, written by the number; "" where that says none."""
        after = self.size
        for size, axes in self.loops:
            outer, after = after, after // size
            if axes[-1] == axis:
                return self._between(outer, after)
        return ""

    def offset(self, strides: dict[int, int]) -> list[str]:
        """The terms of an operand's offset."""
        merged: list[tuple[int, int]] = []  # sizes and strides, of loops along which it lies alike
        for size, axes in self.loops:
            stride = strides.get(axes[-1], 0)
            if merged and merged[-1][1] == stride * size:
                merged[-1] = merged[-1][0] * size, stride
            else:
                merged.append((size, stride))
        terms = []
        after = self.size
        for size, stride in merged:
            outer, after = after, after // size
            if stride:
                text = self._between(outer, after)
                terms.append(text if stride == 1 else f"{text} * {stride}")
        return terms

    def _between(self, outer: int, after: int) -> str:
        """Expression of a part of the index: modulo `outer`, divided by `after`."""
        text = self.name if after == 1 else f"{self.name} // {after}"
        if outer != self.size:
            return f"({text} % {outer // after})"
        return text if after == 1 else f"({text})"


class _TritonWriter:
    """The lines of one function."""

    def __init__(
        self, kernel: Kernel, sizes: Sequence[int], strides: Sequence[Sequence[int]],
        scalars: Sequence[float], order: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        order = range(kernel.rank) if order is None else order
        self.kernel = kernel
        self.sizes = tuple(sizes)
        self.scalars = scalars
        self.about = Analysis(kernel)
        self.lines: list[str] = []
        self.indent = 1
        self.shared = False  # among programs are the columns
        self.masks = True  # whether blocks may reach further than there is something
        self.names: dict[int, str] = {}
        operands = [
            dict(zip(v.axes, s, strict=True)) for v, s in zip(kernel.inputs, strides, strict=True)
        ]
        for o in kernel.outputs:
            steps, step = {}, 1
            for a in reversed(order):
                if a in o.axes:
                    steps[a] = step
                    step *= self.sizes[a]
            operands.append(steps)
        self.operands = operands
        apart = {v.attr[0] for v in self.about.live if v.op == "index"}
        reduced = kernel.reduced
        kept = [a for a in order if a not in reduced]
        self.indices = [_Index("row" if reduced else "at", kept, self.sizes, operands, apart)]
        if reduced:
            along = [a for a in order if a in reduced]
            self.indices.append(_Index("col", along, self.sizes, operands, apart))
        self.check()

    def check(self) -> None:
        """Refuse what Triton cannot do."""
        extents = [sum(n * (self.sizes[a] - 1) for a, n in each.items()) for each in self.operands]
        if max(math.prod(self.sizes), *map(abs, extents), 0) >= OFFSETS:
            raise NotTraceable("more elements than 32 bits count")
        for v in self.about.live:
            known = (*_OPS, *_BODIES, *_IDENTITIES, "input", "scalar", "const", "index", "size",
                     "cast", "maximum", "minimum", "pow")  # fmt: skip
            if v.op not in known or (v.op == "pow" and self.power(v) is None):
                raise NotTraceable(f"{v.op} is no function of Triton's")
            if v.dtype not in _TYPES:
                raise NotTraceable(f"{v.dtype} on a GPU")
            if v.op == "sum" and v.dtype in ir.INTEGERS and v.dtype not in ("int32", "int64"):
                raise NotTraceable(f"a sum of {v.dtype}")

    def text(self, name: str) -> Text:
        """The source text of the function."""
        launched: Any = self.reducing(name) if self.kernel.reduced else self.elementwise()
        return Text("\n".join([head(name, self.pointers()), *self.lines, ""]), *launched)

    def pointers(self) -> list[str]:
        """The names of the function's arguments."""
        names = [f"p{k}" for k in range(len(self.operands))]
        return names + [f"s{n}" for n in range(len(self.about.stages[0][0]) if self.shared else 0)]

    def line(self, text: str) -> None:
        """Appends a line, or several."""
        self.lines += ["    " * self.indent + each for each in text.split("\n")]

    # ---- loops -----------------------------------------------------------------------------------

    def elementwise(self) -> tuple[int, int]:
        """Writes an elementwise kernel: blocks of the whole space."""
        (index,) = self.indices
        self.begin(index, f"tl.program_id(0) * {BLOCK} + tl.arange(0, {BLOCK})")
        for v in self.about.live:
            self.value(v)
        for k in range(len(self.kernel.outputs)):
            self.store(k)
        return -(-index.size // BLOCK), 4

    def begin(self, index: _Index, text: str) -> None:
        """The positions, and which of them there are."""
        self.line(f"{index.name} = {text}")
        self.line(f"{index.name}_in = {index.name} < {index.size}")

    def reducing(self, name: str) -> tuple[int, int, Shares | None]:
        """Writes a reduction: some rows at a time, with all columns or blocks of them."""
        row, col = self.indices
        whole = 1 << (col.size - 1).bit_length()
        if self.is_beside(row, col):
            rows = min(COLUMNS, 1 << (row.size - 1).bit_length())
            block = min(whole, max(1, 2 * TILE // rows))
        else:
            block = whole if whole <= ROW else TILE
            rows = min(max(1, TILE // block), 1 << (row.size - 1).bit_length())
        self.begin(row, f"(tl.program_id(0) * {rows} + tl.arange(0, {rows}))[:, None]")
        if block == whole:
            self.begin(col, f"tl.arange(0, {block})[None, :]")
            for v in self.about.live:
                if v.op in ir.REDUCTIONS:
                    self.finish(v, self.masked(v))
                else:
                    self.value(v)
            for k in range(len(self.kernel.outputs)):
                self.store(k)
            shares = None
        else:
            shares = self.by_blocks(name, rows, block)
        return -(-row.size // rows), 4 if rows * block <= TILE else 8, shares

    def is_beside(self, row: _Index, col: _Index) -> bool:
        """Whether rows, and not columns, lie side by side in the inputs."""
        largest = max(self.operands[: len(self.kernel.inputs)] or [{}], key=len)
        steps = [(s, a) for a, s in largest.items() if s and self.sizes[a] != 1]
        return bool(steps) and min(steps)[1] not in self.kernel.reduced and row.size > 1

    def by_blocks(self, name: str, rows: int, block: int) -> Shares | None:
        """A loop over blocks of columns for each stage; or over the blocks of a share."""
        about, (row, col) = self.about, self.indices
        share = self.share_of(-(-row.size // rows), -(-col.size // block)) * block
        self.shared = share > 0
        bounds = f"0, {col.size}"
        if share:
            bounds = f"tl.program_id(1) * {share}, tl.program_id(1) * {share} + {share}"
        for stage, (reductions, outputs) in enumerate(about.stages):
            self.row_values(stage)
            for v in reductions:
                dtype = "tl.int32" if v.dtype == "bool" else _TYPES[v.dtype]
                start = _literal(self.identity(v))
                self.line(f"a{v.number} = tl.full(({rows}, {block}), {start}, {dtype})")
            self.line(f"for start in range({bounds}, {block}):")
            self.indent += 1
            self.begin(col, f"(start + tl.arange(0, {block}))[None, :]")
            before = dict(self.names)
            for v in about.needed(stage, {}):
                self.value(v)
            for v in reductions:
                self.line(f"a{v.number} = {self.joined(v, f'a{v.number}', self.masked(v))}")
            for k in outputs:
                self.store(k)
            self.indent -= 1
            self.names = before
            for v in reductions:
                self.finish(v, f"a{v.number}")
        if share:
            return self.ending(name, -(-col.size // share))
        self.finish_rows()
        return None

    def finish_rows(self) -> None:
        """Writes the code for values and outputs that have one element a row."""
        self.row_values(len(self.about.stages))
        for k in range(len(self.kernel.outputs)):
            if not self.about.full_output(k):
                self.store(k)

    def share_of(self, programs: int, blocks: int) -> int:
        """The blocks that a program takes where columns are shared among programs; 0 where not: for
        rows enough, and where what is reduced is wanted for each column.
        """
        if len(self.about.stages) > 1 or 2 * programs > PROGRAMS or blocks < 4:
            return 0
        # Those that read much have a GPU's registers sooner.
        most = max(map(len, self.operands))
        reads = sum(len(each) == most for each in self.operands[: len(self.kernel.inputs)])
        many = PROGRAMS if reads < 3 else PROGRAMS // 4
        return -(-blocks // min(blocks // 2, max(many // programs, 1)))

    def ending(self, name: str, count: int) -> Shares:
        """Write what a share has reduced; and the function that reduces the shares."""
        row, (reductions, _) = self.indices[0], self.about.stages[0]
        place = f"tl.program_id(1) * {row.size} + {row.name}"
        for n, v in enumerate(reductions):
            kind = "tl.int8" if v.dtype == "bool" else _TYPES[v.dtype]
            x = f"{self.names[v.number]}.to({kind})"
            self.line(f"tl.store(s{n} + ({place}), {x}, mask={row.name}_in)")
        self.lines.append("\n\n" + _jit(f"{name}_end", self.pointers()))
        self.names = {}
        width = 1 << (count - 1).bit_length()
        rows = min(max(1, TILE // width), 1 << (row.size - 1).bit_length())
        self.begin(row, f"(tl.program_id(0) * {rows} + tl.arange(0, {rows}))[:, None]")
        self.line(f"share = tl.arange(0, {width})[None, :]")
        self.line(f"share_in = (share < {count}) & {row.name}_in")
        for n, v in enumerate(reductions):
            other = _literal(self.identity(v))
            x = f"tl.load(s{n} + (share * {row.size} + {row.name}), mask=share_in, other={other})"
            self.finish(v, f"{x}.to(tl.int32)" if v.dtype == "bool" else x)
        self.finish_rows()
        dtypes = tuple("int8" if v.dtype == "bool" else v.dtype for v in reductions)
        return Shares(count, row.size, dtypes, -(-row.size // rows))

    def row_values(self, stage: int) -> None:
        """Writes the values that have one element a row and are known after so many loops."""
        for v in self.about.live:
            full = self.about.full[v.number]
            if v.op not in ir.REDUCTIONS and not full and self.about.depth[v.number] <= stage:
                self.value(v)

    # ---- reductions ------------------------------------------------------------------------------

    def identity(self, v: KernelValue) -> Any:
        """The identity element of a reduction."""
        if v.op in ("max", "min") and v.dtype not in ir.FLOATS:
            if v.dtype == "bool":
                return int(v.op == "min")
            return _least(v.dtype, 1 if v.op == "max" else -1)
        element = _IDENTITIES[v.op]
        return float(element) if v.dtype in ir.FLOATS else element

    def masked(self, v: KernelValue) -> str:
        """A value in the columns that exist; the identity in the others."""
        x = self.names[v.inputs[0].number]
        if v.dtype == "bool":
            x = f"({x}).to(tl.int32)"
        return f"tl.where(col_in, {x}, {_literal(self.identity(v))})"

    def joined(self, v: KernelValue, a: str, b: str) -> str:
        """Two partial results as one."""
        if v.op == "sum":
            return f"{a} + {b}"
        function = "maximum" if v.op in ("max", "any") else "minimum"
        spread = ", propagate_nan=tl.PropagateNan.ALL" if v.dtype in ir.FLOATS else ""
        return f"tl.{function}({a}, {b}{spread})"

    def finish(self, v: KernelValue, x: str) -> None:
        """The reduction of a block; of floats the extremum is NaN, where one is."""
        y = self.names[v.number] = f"v{v.number}"
        function = {"any": "max", "all": "min"}.get(v.op, v.op)
        if function != "sum" and v.dtype in ir.FLOATS:
            self.line(f"{y}x = {x}")
            self.line(f"{y}n = tl.max(({y}x != {y}x).to(tl.int32), 1, keep_dims=True)")
            extremum = f"tl.{function}({y}x, 1, keep_dims=True)"
            self.line(f'{y} = tl.where({y}n != 0, float("nan"), {extremum})')
        else:
            end = " != 0" if v.dtype == "bool" else ""
            self.line(f"{y} = tl.{function}({x}, 1, keep_dims=True){end}")

    # ---- values ----------------------------------------------------------------------------------

    def value(self, v: KernelValue) -> None:
        """The line that computes a value, unless it is known."""
        if v.number in self.names:
            return
        y = f"v{v.number}"
        given = [self.names[x.number] for x in v.inputs]
        if v.op in _BODIES:
            self.line(_BODIES[v.op].format(*given, y=y))
        else:
            self.line(f"{y} = {self.expression(v, given)}")
        self.names[v.number] = y

    def expression(self, v: KernelValue, given: Sequence[str]) -> str:
        """The Triton expression of a value."""
        kind = _TYPES[v.dtype]
        if v.op == "input":
            return self.load(v)
        if v.op in ("const", "scalar", "size"):
            number = v.attr
            if v.op == "scalar":
                number = self.scalars[v.attr[0]]
            elif v.op == "size":
                number = math.prod(self.sizes[a] for a in v.attr)
            number = float(number) if v.dtype in ir.FLOATS else number
            return f"tl.full((), {_literal(number)}, {kind})"
        if v.op == "index":
            return f"{self.position(v.attr[0])}.to(tl.int64)"
        if v.op == "cast":
            return self.cast(v, given[0])
        if v.op == "pow":
            return str(self.power(v)).format(*given)
        if v.op in ("maximum", "minimum"):
            if v.dtype == "bool":
                return f"{given[0]} {'|' if v.op == 'maximum' else '&'} {given[1]}"
            spread = ", propagate_nan=tl.PropagateNan.ALL" if v.dtype in ir.FLOATS else ""
            return f"tl.{v.op}({given[0]}, {given[1]}{spread})"
        return _OPS[v.op].format(*given, type=kind)

    def position(self, axis: int) -> str:
        """The position along an axis; 0 where there is only one."""
        texts = [text for index in self.indices if (text := index.position(axis))]
        return f"({texts[0]})" if texts else "tl.full((), 0, tl.int64)"

    def cast(self, v: KernelValue, x: str) -> str:
        """The expression of a cast; narrow floats are rounded and stay float32."""
        (to,) = v.attr
        if to == "bool":
            return f"{x} != 0"
        if to in ir.NARROW:
            return f"{x}.to({_TYPES[to]}).to(tl.float32)"
        return f"{x}.to({_TYPES[to]})"

    def power(self, v: KernelValue) -> str | None:
        """A power with a known exponent by products and roots; None for others."""
        exponent = v.inputs[1]
        if exponent.op != "const":
            return None
        return {
            2.0: "{0} * {0}", 3.0: "{0} * {0} * {0}", 4.0: "({0} * {0}) * ({0} * {0})",
            1.0: "{0} * 1.0", 0.5: "tl.sqrt_rn({0})", -0.5: "tl.rsqrt({0})",
            -1.0: "tl.div_rn(tl.full((), 1.0, tl.float32), {0})",
        }.get(float(exponent.attr))  # fmt: skip

    # ---- memory ----------------------------------------------------------------------------------

    def place(self, k: int) -> tuple[str, str]:
        """An operand's offset and mask; "" where it is one number."""
        terms: list[str] = []
        masks = []
        for index in self.indices:
            own = index.offset(self.operands[k])
            terms += own
            if own and self.masks:
                masks.append(f"{index.name}_in")
        return " + ".join(terms), " & ".join(masks)

    def load(self, v: KernelValue) -> str:
        """An input's elements."""
        k, dtype = v.attr
        offset, mask = self.place(k)
        place = f"p{k} + ({offset})" if offset else f"p{k}"
        text = f"tl.load({place}, mask={mask}, other=0)" if mask else f"tl.load({place})"
        if dtype in ir.NARROW or dtype == "bool":
            text += f".to({_TYPES[v.dtype]})"
        return text

    def store(self, k: int) -> None:
        """Write an output."""
        output = self.kernel.outputs[k]
        x = self.names[output.value.number]
        operand = len(self.kernel.inputs) + k
        terms: list[str] = []
        masks = []
        for index in self.indices:
            if index.name == "col" and not self.about.full_output(k):
                continue
            terms += index.offset(self.operands[operand])
            masks.append(f"{index.name}_in")
        terms = terms or ["0"]
        # Of one block's shape, whatever axes the operand has.
        zeros = [f"{mask[:-3]} * 0" for mask in masks if not any(mask[:-3] in t for t in terms)]
        place = " + ".join([*terms, *zeros])
        mask = f", mask={' & '.join(masks)}" if self.masks else ""
        self.line(f"tl.store(p{operand} + ({place}), {x}{mask})")


class _Rows(_TritonWriter):
    """An elementwise kernel of one axis on many tensors: pointers come from a table."""

    def __init__(self, kernel: Kernel, columns: Sequence[int], aligned: bool) -> None:
        self.columns = columns
        self.aligned = aligned
        super().__init__(kernel, (1 << 30,), [(1,)] * len(kernel.inputs), ())

    def function(self, name: str) -> str:
        """The lines; programs of whole blocks have no masks, which would part what is read."""
        count = len(self.kernel.inputs)
        self.line("row = tl.load(rows + tl.program_id(0))")
        self.line(f"start = tl.multiple_of(tl.load(starts + tl.program_id(0)), {ROWS})")
        self.line(f"at = start + tl.arange(0, {ROWS})")
        self.line("size = tl.load(lengths + row)")
        for k, v in enumerate(self.kernel.inputs):
            kind = "tl.int8" if v.attr[1] == "bool" else _TYPES[v.attr[1]]
            address = f"tl.load(table + row * {count} + {k}).to(tl.pointer_type({kind}))"
            self.line(f"p{k} = tl.multiple_of({address}, {ALIGNED})" if self.aligned
                      else f"p{k} = {address}")  # fmt: skip
        for k, column in enumerate(self.columns):
            self.line(f"p{count + k} = p{column}")
        for self.masks in (False, True):
            self.line("else:" if self.masks else f"if start + {ROWS} <= size:")
            self.indent += 1
            self.names = {}
            if self.masks:
                self.line("at_in = at < size")
            for v in self.about.live:
                self.value(v)
            for k in range(len(self.kernel.outputs)):
                self.store(k)
            self.indent -= 1
        given = ("table", "rows", "starts", "lengths", "numbers")
        return "\n".join([head(name, given), *self.lines, ""])

    def expression(self, v: KernelValue, given: Sequence[str]) -> str:
        """The Triton expression of a value; scalars are read for the row."""
        if v.op == "scalar":
            return f"tl.load(numbers + row * {len(self.kernel.scalars)} + {v.attr[0]})"
        return super().expression(v, given)
