cimport cython
from .mode cimport Mode

cdef set _NEVER
cdef object _plain
cdef Py_ssize_t _modes

cpdef bint asks(object kind) except -1
cpdef bint is_apart(object value) except -1
cpdef bint concerns(object a, object b=*, object c=*, object d=*) except -1
cdef bint _may_say(object value) except -1
@cython.locals(overriding=list, modes=tuple)
cpdef object overridden(object function, object args, object kwargs, object relevant=*)
cdef object _asked(object values, list overriding)
