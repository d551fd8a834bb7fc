cimport cython
from ...core.tensor_base cimport TensorBase
from ...core.mode cimport Mode
from ...core.arrays cimport address
from ...core.elements cimport copies, owner
from ..guards.identity_guards cimport IdentityGuards, have_gradients, have_memory, want_gradients
from ..capture.result_tree cimport Results
from .bindings cimport (
    Bindings, InputBinding, GradBuffers, copy_all, give, move_all, take_all, take_gradients, write_all,
)
from ..guards.signature cimport Signature

cdef class BoundSegment:
    cdef public object part, step
    cdef public list checks, work, copies, errors
    cdef public bint undone, written

cdef class BoundCall:
    cdef object _program, _memory, _guards, _threads
    cdef list _wanting, _presence, _steps
    cdef bint _general
    cdef list _rounds, _bound, _owned, _places, _dropped
    cdef list _streams, _stay, _stay_if_sound, _indices
    cdef Bindings _bindings
    cdef GradBuffers _landing
    cdef Results _results
    cdef Py_ssize_t _options
    cdef bint _settled, _native
    cdef bint stands(self) except -1
    @cython.locals(x=TensorBase)
    cpdef bint is_over(self) except -1
    @cython.locals(landing=GradBuffers, bindings=Bindings)
    cpdef object run(self, list arguments, object observer, object lease, object numbers)
    @cython.locals(first=BoundSegment)
    cdef bint _prepare(self) except -1
    @cython.locals(mode=Mode, landing=GradBuffers, bindings=Bindings, target=InputBinding)
    cdef object _carry_out(
        self, list arguments, object observer, object lease, object numbers, bint prepared)
    @cython.locals(each=BoundSegment, undo=list)
    cdef object _compute_natively(self)
    cdef object _take_gradients(self, list arguments)
    @cython.locals(each=BoundSegment, undo=list)
    cdef object _compute(self, object observer, object numbers)

cdef class FastPath:
    cdef object _program, _mode, _dtype
    cdef list _key
    cdef bint _leaves, _has_backward
    @cython.locals(signature=Signature, course=BoundCall)
    cpdef object run(self, object mode, object args, object kwargs)
    cdef object _begin(self, list tensors)

@cython.locals(states=IdentityGuards, options=IdentityGuards)
cpdef bint stands(
    list wanting, list bound, list presence, list steps, object guards) except -1

@cython.locals(x=TensorBase)
cdef bint are_sound(list arguments, list indices) except -1
cdef bint _show(list tensors, dict owners) except -1
