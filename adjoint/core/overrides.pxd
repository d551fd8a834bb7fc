cimport cython
from .mode cimport Mode

cpdef bint asks(object kind) except -1
cpdef bint is_apart(object value) except -1
@cython.locals(found=list, modes=tuple)
cpdef object overridden(object function, object args, object kwargs)
cdef object _asked(object values, list found)
