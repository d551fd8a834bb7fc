"""What was launched before, launched for tensors as they are, by builtins of machine code; and
copies of memory.

They do what their counterparts in Python do, which stay the definition: `autograd.tape.launched`
for an op and its inputs, `autograd.calls.launched` for a function and its arguments. Each looks at
the mode and the inputs, finds what launches them, calls it and makes the tensor; where an input
wants a gradient, or the result is no array, `tape.finish_launched` makes it. `core.op.copied` is
what `autograd.inplace.write` does for plain tensors whose elements lie alike, `core.op.computed`
what the short cuts of `tape` do with NumPy's functions.
"""

from __future__ import annotations

import ctypes
import functools
from string import Template
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core import op as core_op
from ...core.handle import Handle
from ...core.mode import DEFAULT, MODE
from ...program import compute as core_compute
from ...program import fused
from . import machine_code

__all__ = ["serve"]

_HEADER = object.__basicsize__
_TP_NEW = 65  # the number of a type's slot, fixed by Python's stable ABI
_PLACES = {  # in a NumPy array object, any object, and a tuple; fixed by NumPy's and Python's ABI
    "type": _HEADER - 8,
    "nd": _HEADER + 8,
    "dims": _HEADER + 16,
    "descr": _HEADER + 40,
    "elements": _HEADER,
    "flags": _HEADER + 48,
    "items": tuple.__basicsize__,
    "length": _HEADER,
    "list_items": _HEADER + 8,
}

_CODE = Template(r"""
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare i32 @PyContextVar_Get(ptr, ptr, ptr)
declare ptr @PyTuple_New(i64)
declare ptr @PyLong_FromVoidPtr(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare i64 @PyLong_AsLongLong(ptr)
declare i32 @PyObject_IsTrue(ptr)
declare ptr @PyObject_Repr(ptr)
declare i32 @PyType_IsSubtype(ptr, ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare void @PyErr_Clear()
declare i32 @PyErr_ExceptionMatches(ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

@dtypes = internal constant [$dtypes x ptr] [$dtype_list]
@sizes = internal constant [$dtypes x i64] [$size_list]

define internal ptr @type_of(ptr %x) alwaysinline {
  %at = getelementptr i8, ptr %x, i64 $type
  %type = load ptr, ptr %at
  ret ptr %type
}

define internal i64 @nd_of(ptr %array) alwaysinline {
  %at = getelementptr i8, ptr %array, i64 $nd
  %short = load i32, ptr %at
  %nd = zext i32 %short to i64
  ret i64 %nd
}

define internal ptr @dims_of(ptr %array) alwaysinline {
  %at = getelementptr i8, ptr %array, i64 $dims
  %dims = load ptr, ptr %at
  ret ptr %dims
}

define internal ptr @descr_of(ptr %array) alwaysinline {
  %at = getelementptr i8, ptr %array, i64 $descr
  %descr = load ptr, ptr %at
  ret ptr %descr
}

define internal ptr @kept(ptr %x) alwaysinline {
  call void @Py_IncRef(ptr %x)
  ret ptr %x
}

define internal ptr @plain_mode() {  ; null where something watches, or nothing is launched
  %found = alloca ptr
  store ptr $none, ptr %found
  %status = call i32 @PyContextVar_Get(ptr $mode, ptr null, ptr %found)
  %mode = load ptr, ptr %found
  call void @Py_DecRef(ptr %mode)  ; the context holds it
  %plain.at = getelementptr i8, ptr %mode, i64 $plain
  %plain = load ptr, ptr %plain.at
  %accelerate = call ptr @PyDict_GetItemWithError(ptr $compute, ptr $accelerate)
  %is.plain = icmp eq ptr %plain, $true
  %is.on = icmp ne ptr %accelerate, $none
  %both = and i1 %is.plain, %is.on
  %result = select i1 %both, ptr %mode, ptr null
  ret ptr %result
}

define internal i1 @is_recording(ptr %mode) alwaysinline {
  %grad.at = getelementptr i8, ptr %mode, i64 $grad
  %grad = load ptr, ptr %grad.at
  %result = icmp eq ptr %grad, $true
  ret i1 %result
}

define internal i1 @is_tensor(ptr %type) alwaysinline {
entry:
  %usual = icmp eq ptr %type, $tensor
  br i1 %usual, label %yes, label %perhaps
perhaps:
  %derived = call i32 @PyType_IsSubtype(ptr %type, ptr $handle)
  %result = icmp ne i32 %derived, 0
  ret i1 %result
yes:
  ret i1 true
}

define internal ptr @array_of(ptr %x) alwaysinline {  ; null for a tensor of other data
entry:
  %at = getelementptr i8, ptr %x, i64 $data
  %data = load ptr, ptr %at
  %unset = icmp eq ptr %data, null
  br i1 %unset, label %other, label %look
look:
  %type = call ptr @type_of(ptr %data)
  %is.array = icmp eq ptr %type, $ndarray
  br i1 %is.array, label %array, label %other
array:
  ret ptr %data
other:
  ret ptr null
}

define internal i1 @has_node(ptr %x) alwaysinline {
  %at = getelementptr i8, ptr %x, i64 $node
  %node = load ptr, ptr %at
  %result = icmp ne ptr %node, $none
  ret i1 %result
}

define internal ptr @shape_of(ptr %array) {
entry:
  %nd = call i64 @nd_of(ptr %array)
  %dims = call ptr @dims_of(ptr %array)
  %shape = call ptr @PyTuple_New(i64 %nd)
  %items = getelementptr i8, ptr %shape, i64 $items
  br label %head
head:
  %axis = phi i64 [0, %entry], [%next, %one]
  %more = icmp ult i64 %axis, %nd
  br i1 %more, label %one, label %over
one:
  %size.at = getelementptr i64, ptr %dims, i64 %axis
  %size = load i64, ptr %size.at
  %number = call ptr @PyLong_FromLongLong(i64 %size)
  %to = getelementptr ptr, ptr %items, i64 %axis
  store ptr %number, ptr %to
  %next = add i64 %axis, 1
  br label %head
over:
  ret ptr %shape
}

define internal i64 @size_of(ptr %array) {
entry:
  %nd = call i64 @nd_of(ptr %array)
  %dims = call ptr @dims_of(ptr %array)
  br label %head
head:
  %axis = phi i64 [0, %entry], [%next, %one]
  %size = phi i64 [1, %entry], [%product, %one]
  %more = icmp ult i64 %axis, %nd
  br i1 %more, label %one, label %over
one:
  %length.at = getelementptr i64, ptr %dims, i64 %axis
  %length = load i64, ptr %length.at
  %product = mul i64 %size, %length
  %next = add i64 %axis, 1
  br label %head
over:
  ret i64 %size
}

define internal ptr @number_key(ptr %x) {  ; 0.0 and -0.0 are equal
  %true = call i32 @PyObject_IsTrue(ptr %x)
  %is.zero = icmp eq i32 %true, 0
  br i1 %is.zero, label %zero, label %itself
zero:
  %text = call ptr @PyObject_Repr(ptr %x)
  ret ptr %text
itself:
  %kept = call ptr @kept(ptr %x)
  ret ptr %kept
}

define internal void @count(ptr %objects, i64 %count, i1 %up) {
entry:
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %counted]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %over
one:
  %at = getelementptr ptr, ptr %objects, i64 %i
  %object = load ptr, ptr %at
  br i1 %up, label %more.of.it, label %less.of.it
more.of.it:
  call void @Py_IncRef(ptr %object)
  br label %counted
less.of.it:
  call void @Py_DecRef(ptr %object)
  br label %counted
counted:
  %next = add i64 %i, 1
  br label %head
over:
  ret void
}

define internal ptr @found_in(ptr %known, ptr %key) {  ; null, and no error, where there is none
entry:
  %value = call ptr @PyDict_GetItemWithError(ptr %known, ptr %key)
  call void @Py_DecRef(ptr %key)
  %missing = icmp eq ptr %value, null
  br i1 %missing, label %none, label %some
none:
  call void @PyErr_Clear()
  ret ptr null
some:
  ret ptr %value
}

define internal ptr @called(ptr %launch, ptr %arrays, i64 %count) {
  call void @Py_IncRef(ptr %launch)  ; others may let go of all these meanwhile
  call void @count(ptr %arrays, i64 %count, i1 true)
  %result = call ptr @PyObject_Vectorcall(ptr %launch, ptr %arrays, i64 %count, ptr null)
  call void @count(ptr %arrays, i64 %count, i1 false)
  call void @Py_DecRef(ptr %launch)
  ret ptr %result
}

; The tensor of a launcher's result: null and None as they are. given: op, room, *inputs.
define internal ptr @tensor_of(ptr %result, ptr %given, i64 %count, i1 %wants) {
entry:
  %failed = icmp eq ptr %result, null
  %refused = icmp eq ptr %result, $none
  %nothing = or i1 %failed, %refused
  br i1 %nothing, label %pass, label %look
look:
  %type = call ptr @type_of(ptr %result)
  %is.array = icmp eq ptr %type, $ndarray
  %unwanted = xor i1 %wants, true
  %usual = and i1 %is.array, %unwanted
  br i1 %usual, label %make, label %finish
make:
  %y = call ptr $new(ptr $tensor, ptr $empty, ptr null)
  %null = icmp eq ptr %y, null
  br i1 %null, label %drop, label %fill
fill:
  %data.at = getelementptr i8, ptr %y, i64 $data
  store ptr %result, ptr %data.at
$empty_fields
  ret ptr %y
finish:
  %at = getelementptr ptr, ptr %given, i64 1
  store ptr %result, ptr %at
  %all = add i64 %count, 2
  %made = call ptr @PyObject_Vectorcall(ptr $finish, ptr %given, i64 %all, ptr null)
  br label %drop
drop:
  %tensor = phi ptr [null, %make], [%made, %finish]
  call void @Py_DecRef(ptr %result)
  ret ptr %tensor
pass:
  ret ptr %result
}

define ptr @launched(ptr %own, ptr %args, i64 %count) {  ; (op, *inputs)
entry:
  %arrays = alloca ptr, i64 %count  ; the inputs: arrays, and numbers
  %room = add i64 %count, 2
  %given = alloca ptr, i64 %room
  %mode = call ptr @plain_mode()
  %watched = icmp eq ptr %mode, null
  br i1 %watched, label %none, label %start
start:
  %op = load ptr, ptr %args
  store ptr %op, ptr %given
  %inputs = getelementptr ptr, ptr %given, i64 2
  %key = call ptr @PyTuple_New(i64 %count)
  %parts = getelementptr i8, ptr %key, i64 $items
  %id = call ptr @PyLong_FromVoidPtr(ptr %op)
  store ptr %id, ptr %parts
  %fewer = sub i64 %count, 1
  br label %head
head:
  %i = phi i64 [0, %start], [%i.next, %next]
  %wants = phi i1 [false, %start], [%wants.next, %next]
  %numbers = phi i1 [false, %start], [%numbers.next, %next]
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i, %fewer
  br i1 %more, label %input, label %find
input:
  %x.at = getelementptr ptr, ptr %args, i64 %i.next
  %x = load ptr, ptr %x.at
  %given.at = getelementptr ptr, ptr %inputs, i64 %i
  store ptr %x, ptr %given.at
  %array.at = getelementptr ptr, ptr %arrays, i64 %i
  %part.at = getelementptr ptr, ptr %parts, i64 %i.next
  %type = call ptr @type_of(ptr %x)
  %is.float = icmp eq ptr %type, $float
  %is.int = icmp eq ptr %type, $int
  %is.number = or i1 %is.float, %is.int
  br i1 %is.number, label %number, label %other
number:
  store ptr %x, ptr %array.at
  %number.key = call ptr @number_key(ptr %x)
  store ptr %number.key, ptr %part.at
  br label %next
other:
  %is.tensor = call i1 @is_tensor(ptr %type)
  br i1 %is.tensor, label %tensor, label %refuse
tensor:
  %array = call ptr @array_of(ptr %x)
  %elsewhere = icmp eq ptr %array, null
  br i1 %elsewhere, label %refuse, label %shape
shape:
  store ptr %array, ptr %array.at
  %wanted = call i1 @has_node(ptr %x)
  %shape.key = call ptr @shape_of(ptr %array)
  store ptr %shape.key, ptr %part.at
  br label %next
next:
  %wants.too = phi i1 [false, %number], [%wanted, %shape]
  %wants.next = or i1 %wants, %wants.too
  %numbers.next = or i1 %numbers, %is.number
  br label %head

find:
  %launch = call ptr @found_in(ptr $launchers, ptr %key)
  %unknown = icmp eq ptr %launch, null
  br i1 %unknown, label %none, label %known
known:
  %result = call ptr @called(ptr %launch, ptr %arrays, i64 %fewer)
  %failed = icmp eq ptr %result, null
  %alone = xor i1 %numbers, true
  %simple = or i1 %failed, %alone
  br i1 %simple, label %deliver, label %beside
beside:  ; a number beside integers, say, counts as another dtype
  %y.type = call ptr @type_of(ptr %result)
  %is.array = icmp eq ptr %y.type, $ndarray
  br i1 %is.array, label %judge, label %deliver
judge:
  %descr = call ptr @descr_of(ptr %result)
  %is.single = icmp eq ptr %descr, $float32
  %is.double = icmp eq ptr %descr, $float64
  %is.wide = or i1 %is.single, %is.double
  br i1 %is.wide, label %deliver, label %drop
deliver:
  %recording = call i1 @is_recording(ptr %mode)
  %recorded = and i1 %recording, %wants
  %y = call ptr @tensor_of(ptr %result, ptr %given, i64 %fewer, i1 %recorded)
  ret ptr %y
drop:
  call void @Py_DecRef(ptr %result)
  br label %none
refuse:
  call void @Py_DecRef(ptr %key)
  br label %none
none:
  %nothing = call ptr @kept(ptr $none)
  ret ptr %nothing
}

define internal i1 @is_sequence(ptr %x) alwaysinline {
  %type = call ptr @type_of(ptr %x)
  %is.tuple = icmp eq ptr %type, $tuple
  %is.list = icmp eq ptr %type, $list
  %result = or i1 %is.tuple, %is.list
  ret i1 %result
}

define internal i64 @length_of(ptr %sequence) alwaysinline {
  %at = getelementptr i8, ptr %sequence, i64 $length
  %length = load i64, ptr %at
  ret i64 %length
}

; The arguments into `flat`, of tuples and lists the items behind them; how many, also without flat.
define internal i64 @flattened(ptr %args, i64 %count, ptr %flat) {
entry:
  %fill = icmp ne ptr %flat, null
  br label %head
head:
  %i = phi i64 [0, %entry], [%i.next, %next]
  %n = phi i64 [0, %entry], [%n.after, %next]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %over
one:
  %x.at = getelementptr ptr, ptr %args, i64 %i
  %x = load ptr, ptr %x.at
  %n.next = add i64 %n, 1
  %to = getelementptr ptr, ptr %flat, i64 %n
  br i1 %fill, label %put, label %look
put:
  store ptr %x, ptr %to
  br label %look
look:
  %sequence = call i1 @is_sequence(ptr %x)
  br i1 %sequence, label %inside, label %next
inside:
  %length = call i64 @length_of(ptr %x)
  %n.inside = add i64 %n.next, %length
  br i1 %fill, label %items, label %next
items:
  %type = call ptr @type_of(ptr %x)
  %is.tuple = icmp eq ptr %type, $tuple
  %own.items = getelementptr i8, ptr %x, i64 $items
  %list.items.at = getelementptr i8, ptr %x, i64 $list_items
  %list.items = load ptr, ptr %list.items.at
  %from = select i1 %is.tuple, ptr %own.items, ptr %list.items
  %behind = getelementptr ptr, ptr %flat, i64 %n.next
  %bytes = shl i64 %length, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %behind, ptr %from, i64 %bytes, i1 0)
  br label %next
next:
  %n.after = phi i64 [%n.next, %look], [%n.inside, %inside], [%n.inside, %items]
  %i.next = add i64 %i, 1
  br label %head
over:
  ret i64 %n
}

define ptr @call_launched(ptr %own, ptr %args.of, i64 %two) {  ; (known, args)
entry:
  %dict = load ptr, ptr %args.of
  %tuple.at = getelementptr ptr, ptr %args.of, i64 1
  %tuple = load ptr, ptr %tuple.at
  %whole = call i64 @length_of(ptr %tuple)
  %own.args = getelementptr i8, ptr %tuple, i64 $items
  %count = call i64 @flattened(ptr %own.args, i64 %whole, ptr null)
  %args = alloca ptr, i64 %count
  call i64 @flattened(ptr %own.args, i64 %whole, ptr %args)
  %arrays = alloca ptr, i64 %count
  %most = mul i64 %count, 3
  %parts = alloca ptr, i64 %most
  %room = add i64 %count, 2
  %given = alloca ptr, i64 %room
  %inputs = getelementptr ptr, ptr %given, i64 2
  %mode = call ptr @plain_mode()
  %watched = icmp eq ptr %mode, null
  br i1 %watched, label %none, label %start
start:
  %recording = call i1 @is_recording(ptr %mode)
  br label %head
head:
  %i = phi i64 [0, %start], [%i.next, %next]
  %n = phi i64 [0, %start], [%n.next, %next]
  %tensors = phi i64 [0, %start], [%tensors.next, %next]
  %wants = phi i1 [false, %start], [%wants.next, %next]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %input, label %find
input:
  %x.at = getelementptr ptr, ptr %args, i64 %i
  %x = load ptr, ptr %x.at
  %part.at = getelementptr ptr, ptr %parts, i64 %n
  %part2.at = getelementptr ptr, ptr %part.at, i64 1
  %part3.at = getelementptr ptr, ptr %part.at, i64 2
  %type = call ptr @type_of(ptr %x)
  %is.tensor = call i1 @is_tensor(ptr %type)
  br i1 %is.tensor, label %tensor, label %other
tensor:
  %array = call ptr @array_of(ptr %x)
  %elsewhere = icmp eq ptr %array, null
  br i1 %elsewhere, label %refuse, label %shape
shape:
  %array.at = getelementptr ptr, ptr %arrays, i64 %tensors
  store ptr %array, ptr %array.at
  %given.at = getelementptr ptr, ptr %inputs, i64 %tensors
  store ptr %x, ptr %given.at
  %tensors.more = add i64 %tensors, 1
  %shape.key = call ptr @shape_of(ptr %array)
  store ptr %shape.key, ptr %part.at
  %descr = call ptr @descr_of(ptr %array)
  %descr.key = call ptr @kept(ptr %descr)
  store ptr %descr.key, ptr %part2.at
  %node = call i1 @has_node(ptr %x)
  %wanted = and i1 %node, %recording
  br i1 %wanted, label %mark, label %two.parts
mark:
  %mark.key = call ptr @kept(ptr $wanted)
  store ptr %mark.key, ptr %part3.at
  br label %three.parts
other:
  %is.none = icmp eq ptr %x, $none
  br i1 %is.none, label %nothing.given, label %value
nothing.given:
  %none.key = call ptr @kept(ptr $none)
  store ptr %none.key, ptr %part.at
  br label %one.part
value:
  %type.key = call ptr @kept(ptr %type)
  store ptr %type.key, ptr %part.at
  %sequence = call i1 @is_sequence(ptr %x)
  br i1 %sequence, label %several, label %single
several:
  %length = call i64 @length_of(ptr %x)
  %length.key = call ptr @PyLong_FromLongLong(i64 %length)
  br label %valued
single:
  %is.float = icmp eq ptr %type, $float
  br i1 %is.float, label %number, label %anything
number:
  %number.key = call ptr @number_key(ptr %x)
  br label %valued
anything:
  %itself = call ptr @kept(ptr %x)
  br label %valued
valued:
  %value.key = phi ptr [%number.key, %number], [%itself, %anything], [%length.key, %several]
  store ptr %value.key, ptr %part2.at
  br label %two.parts
one.part:
  br label %next
two.parts:
  %tensors.two = phi i64 [%tensors.more, %shape], [%tensors, %valued]
  br label %next
three.parts:
  br label %next
next:
  %used = phi i64 [1, %one.part], [2, %two.parts], [3, %three.parts]
  %wants.too = phi i1 [false, %one.part], [false, %two.parts], [true, %three.parts]
  %tensors.next = phi i64 [%tensors, %one.part], [%tensors.two, %two.parts],
                          [%tensors.more, %three.parts]
  %wants.next = or i1 %wants, %wants.too
  %n.next = add i64 %n, %used
  %i.next = add i64 %i, 1
  br label %head

find:
  %key = call ptr @PyTuple_New(i64 %n)
  %items = getelementptr i8, ptr %key, i64 $items
  %bytes = shl i64 %n, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %items, ptr %parts, i64 %bytes, i1 0)
  %entry.found = call ptr @found_in(ptr %dict, ptr %key)
  %unknown = icmp eq ptr %entry.found, null
  %alone = icmp eq i64 %tensors, 0
  %never = or i1 %unknown, %alone
  br i1 %never, label %none, label %known
known:
  %always.at = getelementptr i8, ptr %entry.found, i64 $items
  %always.item = getelementptr ptr, ptr %always.at, i64 2
  %always.object = load ptr, ptr %always.item
  %always = icmp eq ptr %always.object, $true
  %least.object = call ptr @PyDict_GetItemWithError(ptr $fused, ptr $least)
  %least = call i64 @PyLong_AsLongLong(ptr %least.object)
  %first = load ptr, ptr %arrays
  %size = call i64 @size_of(ptr %first)
  %is.small = icmp slt i64 %size, %least
  %often = xor i1 %always, true
  %small = and i1 %is.small, %often
  br i1 %small, label %none, label %call
call:
  call void @Py_IncRef(ptr %entry.found)
  %launch.at = getelementptr i8, ptr %entry.found, i64 $items
  %launch = load ptr, ptr %launch.at
  %op.at = getelementptr ptr, ptr %launch.at, i64 1
  %op = load ptr, ptr %op.at
  store ptr %op, ptr %given
  call void @count(ptr %inputs, i64 %tensors, i1 true)  ; a list might let go of them
  %result = call ptr @called(ptr %launch, ptr %arrays, i64 %tensors)
  %y = call ptr @tensor_of(ptr %result, ptr %given, i64 %tensors, i1 %wants)
  call void @count(ptr %inputs, i64 %tensors, i1 false)
  call void @Py_DecRef(ptr %entry.found)
  ret ptr %y
refuse:
  call void @count(ptr %parts, i64 %n, i1 false)
  br label %none
none:
  %nothing = call ptr @kept(ptr $none)
  ret ptr %nothing
}

define internal i64 @bytes_of(ptr %array) {  ; of a row-major one; -1 for other dtypes than ours
entry:
  %descr = call ptr @descr_of(ptr %array)
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %look]
  %more = icmp ult i64 %i, $dtypes
  br i1 %more, label %look, label %none
look:
  %dtype.at = getelementptr [$dtypes x ptr], ptr @dtypes, i64 0, i64 %i
  %dtype = load ptr, ptr %dtype.at
  %next = add i64 %i, 1
  %same = icmp eq ptr %dtype, %descr
  br i1 %same, label %found, label %head
found:
  %bytes.at = getelementptr [$dtypes x i64], ptr @sizes, i64 0, i64 %i
  %bytes = load i64, ptr %bytes.at
  %size = call i64 @size_of(ptr %array)
  %all = mul i64 %size, %bytes
  ret i64 %all
none:
  ret i64 -1
}

define internal i1 @has_flags(ptr %array, i32 %wanted) alwaysinline {
  %at = getelementptr i8, ptr %array, i64 $flags
  %flags = load i32, ptr %at
  %these = and i32 %flags, %wanted
  %result = icmp eq i32 %these, %wanted
  ret i1 %result
}

define internal i1 @lies_alike(ptr %x, ptr %y) {  ; a row-major y, of x's shape and dtype
entry:
  %row.major = call i1 @has_flags(ptr %y, i32 1)
  %descr = call ptr @descr_of(ptr %x)
  %y.descr = call ptr @descr_of(ptr %y)
  %same.dtype = icmp eq ptr %descr, %y.descr
  %nd = call i64 @nd_of(ptr %x)
  %y.nd = call i64 @nd_of(ptr %y)
  %same.nd = icmp eq i64 %nd, %y.nd
  %both = and i1 %row.major, %same.dtype
  %like = and i1 %both, %same.nd
  br i1 %like, label %sizes, label %no
sizes:
  %dims = call ptr @dims_of(ptr %x)
  %y.dims = call ptr @dims_of(ptr %y)
  br label %head
head:
  %axis = phi i64 [0, %sizes], [%next, %one]
  %more = icmp ult i64 %axis, %nd
  br i1 %more, label %one, label %yes
one:
  %size.at = getelementptr i64, ptr %dims, i64 %axis
  %size = load i64, ptr %size.at
  %y.size.at = getelementptr i64, ptr %y.dims, i64 %axis
  %y.size = load i64, ptr %y.size.at
  %next = add i64 %axis, 1
  %same = icmp eq i64 %size, %y.size
  br i1 %same, label %head, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; (function, dtypes, *inputs): NumPy's function of tensors of one of the dtypes, in the context in
; which ops compute; None where a gradient is wanted, and in all other cases.
define ptr @computed(ptr %own, ptr %args, i64 %count) {
entry:
  %function = load ptr, ptr %args
  %known.at = getelementptr ptr, ptr %args, i64 1
  %known = load ptr, ptr %known.at
  %arrays = alloca ptr, i64 %count  ; room, function, the arrays
  %room = add i64 %count, 2
  %given = alloca ptr, i64 %room
  %function.at = getelementptr ptr, ptr %arrays, i64 1
  store ptr %function, ptr %function.at
  %mode = call ptr @plain_mode()
  %watched = icmp eq ptr %mode, null
  br i1 %watched, label %none, label %start
start:
  %recording = call i1 @is_recording(ptr %mode)
  br label %head
head:
  %i = phi i64 [2, %start], [%next, %alike]
  %before = phi ptr [null, %start], [%descr, %alike]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %input, label %call
input:
  %x.at = getelementptr ptr, ptr %args, i64 %i
  %x = load ptr, ptr %x.at
  %type = call ptr @type_of(ptr %x)
  %is.tensor = call i1 @is_tensor(ptr %type)
  br i1 %is.tensor, label %tensor, label %none
tensor:
  %array = call ptr @array_of(ptr %x)
  %elsewhere = icmp eq ptr %array, null
  %node = call i1 @has_node(ptr %x)
  %wants = and i1 %node, %recording
  %unusual = or i1 %elsewhere, %wants
  br i1 %unusual, label %none, label %dtype
dtype:
  %array.at = getelementptr ptr, ptr %arrays, i64 %i
  store ptr %array, ptr %array.at
  %descr = call ptr @descr_of(ptr %array)
  %first = icmp eq ptr %before, null
  %same = icmp eq ptr %before, %descr
  %fine = or i1 %first, %same
  br i1 %fine, label %alike, label %none
alike:
  %next = add i64 %i, 1
  br label %head
call:
  %found = call ptr @PyDict_GetItemWithError(ptr %known, ptr %before)
  %other = icmp eq ptr %found, null
  br i1 %other, label %none, label %run
run:
  %run.of = call ptr @PyObject_GetAttr(ptr $quiet, ptr $run)
  %run.null = icmp eq ptr %run.of, null
  br i1 %run.null, label %error, label %go
go:
  %fewer = sub i64 %count, 1
  %result = call ptr @called(ptr %run.of, ptr %function.at, i64 %fewer)
  call void @Py_DecRef(ptr %run.of)
  %failed = icmp eq ptr %result, null
  br i1 %failed, label %judge, label %look
judge:  ; the general way says what is wrong
  %value = call i32 @PyErr_ExceptionMatches(ptr $value_error)
  %runtime = call i32 @PyErr_ExceptionMatches(ptr $runtime_error)
  %either = or i32 %value, %runtime
  %expected = icmp ne i32 %either, 0
  br i1 %expected, label %clear, label %error
clear:
  call void @PyErr_Clear()
  br label %none
look:
  %result.type = call ptr @type_of(ptr %result)
  %is.array = icmp eq ptr %result.type, $ndarray
  br i1 %is.array, label %make, label %drop
make:
  %y = call ptr @tensor_of(ptr %result, ptr %given, i64 0, i1 false)
  ret ptr %y
drop:  ; a scalar
  call void @Py_DecRef(ptr %result)
  br label %none
error:
  ret ptr null
none:
  %nothing = call ptr @kept(ptr $none)
  ret ptr %nothing
}

; (x, y, name): y's elements, or zeros where it is None, into x; False, and nothing, elsewhere.
define ptr @copied(ptr %own, ptr %args, i64 %count) {
entry:
  %x = load ptr, ptr %args
  %y.at = getelementptr ptr, ptr %args, i64 1
  %y = load ptr, ptr %y.at
  %name.at = getelementptr ptr, ptr %args, i64 2
  %name = load ptr, ptr %name.at
  %mode = call ptr @plain_mode()
  %watched = icmp eq ptr %mode, null
  br i1 %watched, label %no, label %target
target:
  %x.type = call ptr @type_of(ptr %x)
  %x.is.tensor = call i1 @is_tensor(ptr %x.type)
  br i1 %x.is.tensor, label %whole, label %no
whole:
  %to = call ptr @array_of(ptr %x)
  %x.elsewhere = icmp eq ptr %to, null
  %x.wants = call i1 @has_node(ptr %x)
  %view.at = getelementptr i8, ptr %x, i64 $view
  %view = load ptr, ptr %view.at
  %is.view = icmp ne ptr %view, $none
  %bound = or i1 %x.wants, %is.view
  %unusual = or i1 %x.elsewhere, %bound
  br i1 %unusual, label %no, label %memory
memory:
  %writable = call i1 @has_flags(ptr %to, i32 1281)  ; row-major, aligned, writeable
  %bytes = call i64 @bytes_of(ptr %to)
  %few = icmp ule i64 %bytes, $most
  %version.at = getelementptr i8, ptr %x, i64 $version
  %version = load ptr, ptr %version.at
  %is.inference = icmp eq ptr %version, $inference
  %no.version = icmp eq ptr %version, $none
  %never = or i1 %is.inference, %no.version
  %known = xor i1 %never, true
  %fits = and i1 %writable, %few
  %fine = and i1 %fits, %known
  br i1 %fine, label %listeners, label %no
listeners:
  %watchers.at = getelementptr i8, ptr %version, i64 $watchers
  %watchers = load ptr, ptr %watchers.at
  %unwatched = icmp eq ptr %watchers, $none
  br i1 %unwatched, label %source, label %no
source:
  %to.data.at = getelementptr i8, ptr %to, i64 $elements
  %to.data = load ptr, ptr %to.data.at
  %is.none = icmp eq ptr %y, $none
  br i1 %is.none, label %clear, label %given
clear:
  call void @llvm.memset.p0.i64(ptr %to.data, i8 0, i64 %bytes, i1 0)
  br label %bump
given:
  %y.type = call ptr @type_of(ptr %y)
  %y.is.tensor = call i1 @is_tensor(ptr %y.type)
  br i1 %y.is.tensor, label %array, label %no
array:
  %from = call ptr @array_of(ptr %y)
  %y.elsewhere = icmp eq ptr %from, null
  %recording = call i1 @is_recording(ptr %mode)
  %node = call i1 @has_node(ptr %y)
  %wants = and i1 %node, %recording
  %y.unusual = or i1 %y.elsewhere, %wants
  br i1 %y.unusual, label %no, label %compare
compare:
  %alike = call i1 @lies_alike(ptr %to, ptr %from)
  br i1 %alike, label %copy, label %no
copy:
  %from.data.at = getelementptr i8, ptr %from, i64 $elements
  %from.data = load ptr, ptr %from.data.at
  call void @llvm.memmove.p0.p0.i64(ptr %to.data, ptr %from.data, i64 %bytes, i1 0)
  br label %bump
bump:
  %count.at = getelementptr i8, ptr %version, i64 $count
  %old = load ptr, ptr %count.at
  %number = call i64 @PyLong_AsLongLong(ptr %old)
  %number.next = add i64 %number, 1
  %new = call ptr @PyLong_FromLongLong(i64 %number.next)
  store ptr %new, ptr %count.at
  call void @Py_DecRef(ptr %old)
  %by.at = getelementptr i8, ptr %version, i64 $changed_by
  %by.old = load ptr, ptr %by.at
  %by = call ptr @kept(ptr %name)
  store ptr %by, ptr %by.at
  call void @Py_DecRef(ptr %by.old)
  %yes = call ptr @kept(ptr $true)
  ret ptr %yes
no:
  %false = call ptr @kept(ptr $false)
  ret ptr %false
}
""")
_MOST = 1 << 18  # bytes that are copied so: few enough that no thread waits long for the GIL


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


@functools.cache
def serve() -> None:
    """Let the functions of `core.op` and `core.fused` be these from now on."""
    tensor, finish, inference = core_op.eager_parts()
    get_slot = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_int)(
        ("PyType_GetSlot", ctypes.pythonapi)
    )
    objects: dict[str, Any] = {
        "mode": MODE, "true": True, "false": False, "none": None, "inference": inference,
        "compute": vars(core_compute),
        "accelerate": "accelerate", "launchers": core_compute.launchers, "tensor": tensor,
        "handle": Handle, "float": float, "int": int, "tuple": tuple, "list": list,
        "ndarray": np.ndarray, "empty": (),
        "float32": np.dtype(np.float32), "float64": np.dtype(np.float64), "finish": finish,
        "wanted": fused.WANTED, "fused": vars(fused), "least": "SMALLEST",
        "quiet": core_compute.quiet, "run": "run", "value_error": ValueError,
        "runtime_error": RuntimeError,
    }  # fmt: skip
    unused = [_place(Handle, name) for name in ("_node", "_leaf", "_version", "_view")]
    text = _CODE.substitute(
        {name: _pointer(it) for name, it in objects.items()},
        **_PLACES,
        data=_place(Handle, "_data"),
        node=_place(Handle, "_node"),
        plain=_place(type(DEFAULT), "plain"),
        grad=_place(type(DEFAULT), "grad"),
        version=_place(Handle, "_version"),
        view=_place(Handle, "_view"),
        count=_place(type(inference), "count"),
        changed_by=_place(type(inference), "changed_by"),
        watchers=_place(type(inference), "watchers"),
        most=_MOST,
        dtypes=len(dt.ALL),
        dtype_list=", ".join(f"ptr {_pointer(d.numpy)}" for d in dt.ALL),
        size_list=", ".join(f"i64 {d.itemsize}" for d in dt.ALL),
        new=f"inttoptr (i64 {get_slot(object, _TP_NEW)} to ptr)",
        empty_fields="\n".join(
            f"  %field{k} = getelementptr i8, ptr %y, i64 {place}\n"
            f"  %none{k} = call ptr @kept(ptr {_pointer(None)})\n"
            f"  store ptr %none{k}, ptr %field{k}"
            for k, place in enumerate(unused)
        ),
    )
    names = ["launched", "call_launched", "copied", "computed"]
    core_op.launched, fused.launched, core_op.copied, core_op.computed = (
        machine_code.builtin(address, name, None)
        for name, address in zip(names, machine_code.load(text, names, opt=0), strict=True)
    )
