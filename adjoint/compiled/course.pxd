cimport cython
from ..core.tensor_base cimport TensorBase
from ..core.mode cimport Mode
from ..eager.arrays cimport address
from ..eager.elements cimport copies, owner
from ..program.standing cimport Held, have_gradients, have_memory, want_gradients
from .form cimport Results
from .handover cimport (
    Argument, Landing, copy_all, give, move_all, take_all, take_gradients, write_all,
)
from .signature cimport Signature

cdef class Round:
    cdef public object part, step
    cdef public list work, copies, errors
    cdef public bint undone, written

cdef class Course:
    cdef object _program, _memory, _guards, _threads
    cdef list _wanting, _presence, _steps
    cdef bint _general
    cdef list _rounds, _bound, _owned, _owning, _targets, _added, _places, _dropped, _inputs
    cdef list _streams, _stay, _stay_if_sound, _indices, _movers
    cdef Landing _landing
    cdef Results _results
    cdef Py_ssize_t _options
    cdef list _returned, _writes, _given_writes, _copies
    cdef bint _settled
    cdef bint stands(self) except -1
    @cython.locals(x=TensorBase)
    cpdef bint is_over(self) except -1
    @cython.locals(mode=Mode, landing=Landing, target=Argument)
    cpdef object run(self, list arguments, object observer, object lease, object numbers)
    cdef object _take_gradients(self, list arguments)
    @cython.locals(each=Round, undo=list)
    cdef object _compute(self, object observer, object numbers)

cdef class Entry:
    cdef object _program, _mode, _dtype
    cdef list _key
    cdef bint _leaves
    @cython.locals(signature=Signature, course=Course)
    cpdef object run(self, object mode, object args, object kwargs)

@cython.locals(states=Held, options=Held)
cpdef bint stands(
    list wanting, list bound, list presence, list steps, object guards) except -1

@cython.locals(x=TensorBase)
cdef bint are_sound(list arguments, list indices) except -1
cdef bint _show(list tensors, dict known) except -1
