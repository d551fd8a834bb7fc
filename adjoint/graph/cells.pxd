cimport cython
from .chains cimport Chain, given

@cython.locals(stack=list, arrays=list, cells=tuple, inputs=tuple, stale=bint, ready=bint,
               chaining=bint, fleeting=bint, promised=dict)
cdef object _walk(object state, list wanted, Chain chain)

@cython.locals(reached=list)
cpdef object push(object changed)
