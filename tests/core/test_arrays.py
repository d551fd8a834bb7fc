"""How machine code is called: with addresses, sizes and numbers, gathered in `core/arrays.py`,
compiled and interpreted; nothing else in the package reaches into Python's or NumPy's objects.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import adjoint
from adjoint.core import arrays as compiled
from adjoint.core.errors import AdjointError, InvalidArgument

PACKAGE = Path(adjoint.__file__).parent


def interpreted():
    """The file itself, whatever runs."""
    path = PACKAGE / "core" / "arrays.py"
    spec = importlib.util.spec_from_file_location("adjoint.core.interpreted_arrays", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # while it runs, for its own annotations
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module


@pytest.fixture(params=["as it runs", "interpreted"], scope="module")
def arrays(request):
    return compiled if request.param == "as it runs" else interpreted()


# ---- no layouts of objects -----------------------------------------------------------------------

# What reaches into objects: their sizes and addresses as numbers, and Python's and NumPy's C API.
NAMES = {
    "__basicsize__", "_ARRAY_API", "_CFuncPtr", "PYFUNCTYPE", "PyDLL", "py_object", "pythonapi",
}  # fmt: skip
SYMBOL = re.compile(r"@_?Py[A-Z_]\w*")  # of the C API, in LLVM's text
# C structs that are published as such: NumPy's memory handler, DLPack's tensor.
STRUCTS = {"_Handler", "_DLTensor"}
KEYED = {"get", "pop", "setdefault"}  # methods that take a key
# Without one of these words there is none of it.
WORDS = re.compile("|".join((*NAMES, "from_address", r"\bid\b", SYMBOL.pattern)))


def uses(source: str) -> list[str]:
    """Each use of an object's layout: which line, and what stands there."""
    if not WORDS.search(source):
        return []
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    found = []
    for node in ast.walk(tree):
        name = getattr(node, "id", None) or getattr(node, "attr", None)
        wrong = isinstance(node, (ast.Name, ast.Attribute)) and name in NAMES
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            wrong = SYMBOL.search(node.value) is not None
        if isinstance(node, ast.Attribute) and name == "from_address":
            wrong = getattr(node.value, "id", None) not in STRUCTS
        if isinstance(node, ast.Name) and name == "id":
            wrong = not is_key(node, parents)
        if wrong:
            found.append(f"{node.lineno}: {ast.unparse(node)[:60]}")
    return found


def is_key(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether an object's identity tells it from others, and is no number to compute with."""
    while node in parents:
        child, node = node, parents[node]
        if isinstance(node, ast.BinOp):
            return False
        if isinstance(node, (ast.Compare, ast.FormattedValue)):
            return True
        if isinstance(node, ast.Subscript) and child is node.slice:
            return True
        if isinstance(node, ast.DictComp) and child is node.key:
            return True
        method = getattr(node, "func", None)
        if isinstance(method, ast.Attribute) and child in node.args and method.attr in KEYED:
            return True
        if isinstance(node, ast.Assign):
            return [getattr(x, "id", "") for x in node.targets] in (["key"], ["name"])
    return False


def writers_of_code() -> Iterator[Path]:
    """Files that write machine code, or call it."""
    for folder in ("backends/codegen", "backends/native", "backends/torch"):
        yield from (PACKAGE / folder).rglob("*.py")


def test_no_other_file_knows_how_objects_are_laid_out():
    files = set(PACKAGE.rglob("*.py")) - {PACKAGE / "core" / "arrays.py"}
    writers = set(writers_of_code())
    assert len(writers) > 50
    for path in sorted(files):
        found = uses(path.read_text())
        if path not in writers:  # whose identities are keys, however they are named
            found = [use for use in found if not use.endswith(": id")]
        assert not found, f"{path.relative_to(PACKAGE)}: {found}"


@pytest.mark.parametrize(
    "source",
    [
        "DATA_OFFSET = object.__basicsize__",
        "run(code, id(words) + 32, chunks)",
        "words = struct.pack('q', id(array))",
        "words = (len(table), *map(id, arrays))",
        "places = [id(x) for x in arrays]",
        "kind = ctypes.c_int64.from_address(place)",
        "function = ctypes.PYFUNCTYPE(None)(place)",
        "ctypes.pythonapi.Py_IncRef(it)",
        "text = 'declare ptr @PyLong_AsVoidPtr(ptr)'",
        "text = '@_Py_NoneStruct = external global i8'",
        "text = f'call void @PyErr_SetString(ptr {x})'",
    ],
)
def test_what_is_looked_for_is_found(source):
    assert uses(source)


@pytest.mark.parametrize(
    "source",
    [
        "key = (id(op), shape)",
        "found = kept.get(id(y))",
        "pads = {id(step): step for step in steps}",
        "theirs = _Handler.from_address(place)",
    ],
)
def test_what_is_allowed_is_not(source):
    assert not uses(source)


# ---- addresses, rows, calls ----------------------------------------------------------------------


def test_addresses_are_those_of_the_elements(arrays):
    x = np.zeros((3, 4), np.float32)
    given = [x, x[1:], x[::-1], x.T, np.ones(0), np.array(1.0)]
    expected = [each.__array_interface__["data"][0] for each in given]
    assert np.frombuffer(arrays.addresses(given), np.int64).tolist() == expected
    assert arrays.addresses(tuple(given)) == arrays.addresses(given)
    assert [arrays.address(each) for each in given] == expected
    assert arrays.addresses([]) == b""


def described(arrays, columns, written=(0,), dtype=np.float32):
    """What `write_rows` says of columns of one dtype."""
    count = len(columns[0])
    rows = np.full((count + 1, 2 + len(columns) + len(written)), 7, np.int64)
    kinds = (np.dtype(dtype),) * len(columns)
    arrays.write_rows(tuple(map(tuple, columns)), kinds, written, rows, 1, 2)
    assert (rows[:, 0] == 7).all()
    assert (rows[count] == 7).all()  # nothing else is written
    return rows[:count, 1], rows[:count, 2:]


def test_rows_have_lengths_and_addresses(arrays):
    p = [np.zeros(shape, np.float32) for shape in ((3,), (2, 5), (), (0, 4))]
    g = [np.ones_like(x) for x in p]
    p.append(np.zeros((4, 6), np.float32).T)
    g.append(np.ones((4, 6), np.float32).T)  # column-major, both
    lengths, places = described(arrays, [p, g], written=(0,))
    assert lengths.tolist() == [3, 10, 1, 0, 24]
    for row, (x, y) in zip(places, zip(p, g, strict=True), strict=True):
        assert row.tolist() == [a.__array_interface__["data"][0] for a in (x, y, x)]


def test_rows_that_do_not_fit_have_no_length(arrays):
    class Other(np.ndarray):
        pass

    fixed = np.zeros((2, 3), np.float32)
    fixed.flags.writeable = False
    x = np.zeros((2, 3), np.float32)
    unfit = [
        (x, np.zeros((3, 2), np.float32)), (x, np.zeros(6, np.float32)), (x, x.astype(np.float64)),
        (x, np.asfortranarray(x)), (x[:, ::2], x[:, ::2]), (x, None), (x, [0.0]),
        (x, x.view(Other)), (fixed, x), (x, x.astype(">f4")),
    ]  # fmt: skip
    lengths, _ = described(arrays, list(zip(*unfit, strict=True)))
    assert lengths.tolist() == [-1] * len(unfit)
    lengths, _ = described(arrays, [[x], [fixed]])  # which is only read
    assert lengths.tolist() == [6]


def test_columns_of_different_lengths_are_refused(arrays):
    x = np.zeros(3, np.float32)
    rows = np.zeros((4, 4), np.int64)
    for columns in (((x, x), (x,)), ((x,) * 5, (x,) * 5)):
        with pytest.raises(InvalidArgument, match="write_rows"):
            arrays.write_rows(columns, (x.dtype,) * 2, (), rows, 0, 1)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_calls_by_bytes_and_by_address(arrays, quick, shared):
    pytest.importorskip("llvmlite")
    from adjoint.backends.native.runtime import object_code
    from adjoint.backends.native.runtime.pool import Pool

    text = """
define void @note(i64 %begin, i64 %end, ptr %words) {
  %to = load ptr, ptr %words
  br label %chunk
chunk:
  %i = phi i64 [%begin, %0], [%next, %chunk]
  %at = getelementptr i64, ptr %to, i64 %i
  store i64 %i, ptr %at
  %next = add i64 %i, 1
  %done = icmp eq i64 %next, %end
  br i1 %done, label %return, label %chunk
return:
  ret void
}
"""
    [note] = object_code.of_text(text, ["note"])
    with Pool(2) as pool:
        entry = pool.entry() if shared else None
        for chunks in (1, 5):
            found = np.full(6, -1, np.int64)
            words = np.array([found.ctypes.data], np.int64)
            arrays.call(note, chunks, words.tobytes(), entry, quick)
            assert found.tolist() == [*range(chunks), *[-1] * (6 - chunks)]
            found[:] = -1
            arrays.call(note, chunks, words.ctypes.data, entry, quick)
            assert found.tolist() == [*range(chunks), *[-1] * (6 - chunks)]


# ---- small stacks, little memory -----------------------------------------------------------------

SMALL_STACK = """
import threading
import adjoint as ad

ones, errors = [ad.ones(1)] * {count}, []

def work():
    try:
        for _ in range(3):  # the third is launched, where there are few
            assert float(ad.cat(ones).sum()) == {count}
            assert ad.stack(ones[:6000]).shape == (6000, 1)
        parameters = [ad.nn.Parameter(ad.ones(3)) for _ in range(6000)]
        for p in parameters:
            p.grad = ad.ones(3)
        optimizer = ad.optim.Adam(parameters)
        for _ in range(3):
            optimizer.step()
    except BaseException as error:
        errors.append(error)

threading.stack_size(256 * 1024)
thread = threading.Thread(target=work)
thread.start()
thread.join()
assert not errors, errors
print("fine")
"""


def test_long_lists_of_tensors_need_no_stack():
    program = SMALL_STACK.format(count=20_000)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "fine\n", done.stderr[-2000:]


def test_out_of_memory_is_an_error_of_ours():
    x = adjoint.ones(1, dtype=adjoint.uint8).expand(1 << 46)
    with pytest.raises(AdjointError, match="clone: Unable to allocate") as error:
        x.clone()
    assert isinstance(error.value, MemoryError)


MUTATED = """
import gc
import adjoint as ad
gc.set_threshold(1)
victim = []
def clear(phase, info):
    if victim:
        victim.pop().clear()
gc.callbacks.append(clear)
def tensors():
    return [ad.ones(3) * i for i in range(20)]
for call in (ad.cat, ad.stack, ad.block_diag, ad.autograd.backward):
    for turn in range(12):
        given = tensors()
        if turn > 3:
            victim.append(given)
        try:
            call(*given) if call is ad.block_diag else call(given)
        except (ValueError, RuntimeError, TypeError, IndexError):
            pass
        victim.clear()
print("fine")
"""


def test_lists_that_the_collector_empties_while_they_are_launched():
    command = [sys.executable, "-X", "dev", "-W", "ignore", "-c", MUTATED]
    checked = {**os.environ, "PYTHONMALLOC": "debug"}
    done = subprocess.run(command, capture_output=True, text=True, env=checked)
    assert done.stdout == "fine\n", done.stderr[-2000:]
