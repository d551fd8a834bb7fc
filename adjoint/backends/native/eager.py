"""`core.op.launched` as machine code: what was computed before, for tensors, as one builtin.

It does what its counterpart in Python does (`autograd.tape.launched`), which stays the definition:
looks at the mode and the inputs, finds what launches the op for their shapes, calls it and makes
the tensor. Where an input wants a gradient, or the result is no array, `connect_eager`'s `finish`
makes the tensor.
"""

from __future__ import annotations

import ctypes
from string import Template
from typing import Any

import numpy as np

from ...core import compute as core_compute
from ...core import op as core_op
from ...core.handle import Handle
from ...core.mode import DEFAULT, MODE
from . import machine_code

__all__ = ["serve"]

_HEADER = object.__basicsize__
_TP_NEW = 65  # the number of a type's slot, fixed by Python's stable ABI
_TYPE, _ND, _DIMS, _DESCR = (_HEADER + at for at in (-8, 8, 16, 40))

_CODE = Template(r"""
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare i32 @PyContextVar_Get(ptr, ptr, ptr)
declare ptr @PyTuple_New(i64)
declare ptr @PyLong_FromVoidPtr(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare i32 @PyObject_IsTrue(ptr)
declare ptr @PyObject_Repr(ptr)
declare i32 @PyType_IsSubtype(ptr, ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare ptr @PyErr_Occurred()
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define ptr @launched(ptr %own, ptr %args, i64 %count) {
entry:
  %found = alloca ptr
  %arrays = alloca ptr, i64 %count  ; the inputs: arrays, and numbers
  %room = add i64 %count, 2
  %given = alloca ptr, i64 %room
  %got = call i32 @PyContextVar_Get(ptr $mode, ptr null, ptr %found)
  %failed = icmp ne i32 %got, 0
  br i1 %failed, label %error, label %look
look:
  %mode = load ptr, ptr %found
  call void @Py_DecRef(ptr %mode)  ; the context holds it
  %plain.at = getelementptr i8, ptr %mode, i64 $plain
  %plain = load ptr, ptr %plain.at
  %is.plain = icmp eq ptr %plain, $true
  br i1 %is.plain, label %serving, label %none
serving:
  %accelerate = call ptr @PyDict_GetItemWithError(ptr $names, ptr $accelerate)
  %off = icmp eq ptr %accelerate, $none
  br i1 %off, label %none, label %start
start:
  %op = load ptr, ptr %args
  %key = call ptr @PyTuple_New(i64 %count)
  %items = getelementptr i8, ptr %key, i64 $items
  %id = call ptr @PyLong_FromVoidPtr(ptr %op)
  store ptr %id, ptr %items
  br label %head

head:
  %i = phi i64 [1, %start], [%i.next, %next]
  %wants = phi i1 [false, %start], [%wants.next, %next]
  %numbers = phi i1 [false, %start], [%numbers.next, %next]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %input, label %find
input:
  %x.at = getelementptr ptr, ptr %args, i64 %i
  %x = load ptr, ptr %x.at
  %type.at = getelementptr i8, ptr %x, i64 $type
  %type = load ptr, ptr %type.at
  %array.at = getelementptr ptr, ptr %arrays, i64 %i
  %part.at = getelementptr ptr, ptr %items, i64 %i
  %usual = icmp eq ptr %type, $tensor
  br i1 %usual, label %tensor, label %unusual
unusual:
  %is.float = icmp eq ptr %type, $float
  %is.int = icmp eq ptr %type, $int
  %is.number = or i1 %is.float, %is.int
  br i1 %is.number, label %number, label %perhaps
perhaps:
  %derived = call i32 @PyType_IsSubtype(ptr %type, ptr $handle)
  %is.tensor = icmp ne i32 %derived, 0
  br i1 %is.tensor, label %tensor, label %refuse
number:
  store ptr %x, ptr %array.at
  %true = call i32 @PyObject_IsTrue(ptr %x)
  %is.zero = icmp eq i32 %true, 0
  br i1 %is.zero, label %zero, label %itself
zero:  ; 0.0 and -0.0 are equal
  %text = call ptr @PyObject_Repr(ptr %x)
  br label %named
itself:
  call void @Py_IncRef(ptr %x)
  br label %named
named:
  %name = phi ptr [%text, %zero], [%x, %itself]
  store ptr %name, ptr %part.at
  br label %next
tensor:
  %data.at = getelementptr i8, ptr %x, i64 $data
  %array = load ptr, ptr %data.at
  %unset = icmp eq ptr %array, null
  br i1 %unset, label %refuse, label %whole
whole:
  %array.type.at = getelementptr i8, ptr %array, i64 $type
  %array.type = load ptr, ptr %array.type.at
  %is.array = icmp eq ptr %array.type, $ndarray
  br i1 %is.array, label %shape, label %refuse
shape:
  store ptr %array, ptr %array.at
  %node.at = getelementptr i8, ptr %x, i64 $node
  %node = load ptr, ptr %node.at
  %has.node = icmp ne ptr %node, $none
  %nd.at = getelementptr i8, ptr %array, i64 $nd
  %nd.short = load i32, ptr %nd.at
  %nd = zext i32 %nd.short to i64
  %dims.at = getelementptr i8, ptr %array, i64 $dims
  %dims = load ptr, ptr %dims.at
  %sizes = call ptr @PyTuple_New(i64 %nd)
  store ptr %sizes, ptr %part.at
  %sizes.items = getelementptr i8, ptr %sizes, i64 $items
  br label %axis.head
axis.head:
  %axis = phi i64 [0, %shape], [%axis.next, %axis.one]
  %axis.more = icmp ult i64 %axis, %nd
  br i1 %axis.more, label %axis.one, label %next
axis.one:
  %size.at = getelementptr i64, ptr %dims, i64 %axis
  %size = load i64, ptr %size.at
  %size.object = call ptr @PyLong_FromLongLong(i64 %size)
  %size.to = getelementptr ptr, ptr %sizes.items, i64 %axis
  store ptr %size.object, ptr %size.to
  %axis.next = add i64 %axis, 1
  br label %axis.head
next:
  %wanted = phi i1 [false, %named], [%has.node, %axis.head]
  %numbered = phi i1 [true, %named], [false, %axis.head]
  %wants.next = or i1 %wants, %wanted
  %numbers.next = or i1 %numbers, %numbered
  %i.next = add i64 %i, 1
  br label %head

find:
  %launch = call ptr @PyDict_GetItemWithError(ptr $launchers, ptr %key)
  call void @Py_DecRef(ptr %key)
  %unknown = icmp eq ptr %launch, null
  br i1 %unknown, label %missing, label %hold
hold:  ; what others may let go of meanwhile
  store ptr %launch, ptr %arrays
  br label %hold.head
hold.head:
  %h = phi i64 [0, %hold], [%h.next, %hold.one]
  %h.more = icmp slt i64 %h, %count
  br i1 %h.more, label %hold.one, label %call
hold.one:
  %h.at = getelementptr ptr, ptr %arrays, i64 %h
  %h.object = load ptr, ptr %h.at
  call void @Py_IncRef(ptr %h.object)
  %h.next = add i64 %h, 1
  br label %hold.head
call:
  %operands = getelementptr ptr, ptr %arrays, i64 1
  %fewer = sub i64 %count, 1
  %result = call ptr @PyObject_Vectorcall(ptr %launch, ptr %operands, i64 %fewer, ptr null)
  br label %free.head
free.head:
  %f = phi i64 [0, %call], [%f.next, %free.one]
  %f.more = icmp slt i64 %f, %count
  br i1 %f.more, label %free.one, label %freed
free.one:
  %f.at = getelementptr ptr, ptr %arrays, i64 %f
  %f.object = load ptr, ptr %f.at
  call void @Py_DecRef(ptr %f.object)
  %f.next = add i64 %f, 1
  br label %free.head
freed:
  %null = icmp eq ptr %result, null
  br i1 %null, label %error, label %judge
judge:
  %other = icmp eq ptr %result, $none
  br i1 %other, label %pass, label %kind
kind:
  %y.type.at = getelementptr i8, ptr %result, i64 $type
  %y.type = load ptr, ptr %y.type.at
  %y.is.array = icmp eq ptr %y.type, $ndarray
  br i1 %y.is.array, label %beside, label %finish
beside:  ; integers, say, beside which a float counts as another dtype
  %descr.at = getelementptr i8, ptr %result, i64 $descr
  %descr = load ptr, ptr %descr.at
  %is.single = icmp eq ptr %descr, $float32
  %is.double = icmp eq ptr %descr, $float64
  %is.wide = or i1 %is.single, %is.double
  %none.among = xor i1 %numbers, true
  %fine = or i1 %is.wide, %none.among
  br i1 %fine, label %history, label %drop
drop:
  call void @Py_DecRef(ptr %result)
  br label %none
history:
  %grad.at = getelementptr i8, ptr %mode, i64 $grad
  %grad = load ptr, ptr %grad.at
  %recording = icmp eq ptr %grad, $true
  %recorded = and i1 %recording, %wants
  br i1 %recorded, label %finish, label %make
make:
  %y = call ptr $new(ptr $tensor, ptr $empty, ptr null)
  %y.null = icmp eq ptr %y, null
  br i1 %y.null, label %undo, label %fill
undo:
  call void @Py_DecRef(ptr %result)
  br label %error
fill:
  %y.data = getelementptr i8, ptr %y, i64 $data
  store ptr %result, ptr %y.data
  %y.node = getelementptr i8, ptr %y, i64 $node
  store ptr $none, ptr %y.node
  call void @Py_IncRef(ptr $none)
  %y.leaf = getelementptr i8, ptr %y, i64 $leaf
  store ptr $none, ptr %y.leaf
  call void @Py_IncRef(ptr $none)
  %y.version = getelementptr i8, ptr %y, i64 $version
  store ptr $none, ptr %y.version
  call void @Py_IncRef(ptr $none)
  %y.view = getelementptr i8, ptr %y, i64 $view
  store ptr $none, ptr %y.view
  call void @Py_IncRef(ptr $none)
  ret ptr %y

finish:  ; (op, result, *inputs)
  store ptr %op, ptr %given
  %result.at = getelementptr ptr, ptr %given, i64 1
  store ptr %result, ptr %result.at
  br label %give.head
give.head:
  %g = phi i64 [1, %finish], [%g.next, %give.one]
  %g.more = icmp slt i64 %g, %count
  br i1 %g.more, label %give.one, label %given.all
give.one:
  %g.from = getelementptr ptr, ptr %args, i64 %g
  %g.object = load ptr, ptr %g.from
  %g.next = add i64 %g, 1
  %g.to = getelementptr ptr, ptr %given, i64 %g.next
  store ptr %g.object, ptr %g.to
  br label %give.head
given.all:
  %given.count = add i64 %count, 1
  %made = call ptr @PyObject_Vectorcall(ptr $finish, ptr %given, i64 %given.count, ptr null)
  call void @Py_DecRef(ptr %result)
  ret ptr %made

refuse:
  call void @Py_DecRef(ptr %key)
  br label %none
missing:
  %trouble = call ptr @PyErr_Occurred()
  %is.trouble = icmp ne ptr %trouble, null
  br i1 %is.trouble, label %error, label %none
none:
  call void @Py_IncRef(ptr $none)
  ret ptr $none
pass:
  ret ptr %result
error:
  ret ptr null
}
""")


def _place(kind: type, name: str) -> int:
    """How many bytes into an object of a class that slot lies."""
    one: Any = object.__new__(kind)
    mark = object()
    vars(kind)[name].__set__(one, mark)
    words = (ctypes.c_uint64 * (kind.__basicsize__ // 8)).from_address(id(one))
    return 8 * list(words).index(id(mark))


def _pointer(it: object) -> str:
    """The address of an object, which stays, as an operand."""
    machine_code.keep(it)
    return f"inttoptr (i64 {id(it)} to ptr)"


def serve() -> None:
    """Let `core.op.launched` be this from now on."""
    tensor, finish = core_op.eager_parts()
    get_slot = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_int)(
        ("PyType_GetSlot", ctypes.pythonapi)
    )
    objects: dict[str, Any] = {
        "mode": MODE, "true": True, "none": None, "names": vars(core_compute),
        "accelerate": "accelerate", "launchers": core_compute.launchers, "tensor": tensor,
        "handle": Handle, "float": float, "int": int, "ndarray": np.ndarray, "empty": (),
        "float32": np.dtype(np.float32), "float64": np.dtype(np.float64), "finish": finish,
    }  # fmt: skip
    places = {name: _place(Handle, f"_{name}") for name in ("node", "leaf", "version", "view")}
    places |= {name: _place(type(DEFAULT), name) for name in ("plain", "grad")}
    text = _CODE.substitute(
        {name: _pointer(it) for name, it in objects.items()},
        **places,
        data=_place(Handle, "_data"),
        type=_TYPE,
        nd=_ND,
        dims=_DIMS,
        descr=_DESCR,
        items=tuple.__basicsize__,
        new=f"inttoptr (i64 {get_slot(object, _TP_NEW)} to ptr)",
    )
    [address] = machine_code.load(text, ["launched"])
    core_op.launched = machine_code.builtin(address, "launched", None)
