cimport cython
from ..core.arrays cimport CachedLaunch, PhiloxState, CachedView, CachedViews, signature
from ..core.sized_tables cimport SizedTable

cdef class Executable:
    cdef public object launch, owner, op, constants, seen
    cdef public PhiloxState stream
    cdef public Executable then
    cdef public CachedLaunch launcher
    cdef public CachedView viewer
    cdef public CachedViews viewers
    cdef public bint records

cdef SizedTable _cache
cpdef Executable find(object key)
cpdef Executable peek(object key)
cpdef keep(object key, Executable executable)
cpdef tuple inputs_of(Executable executable, object tensors)
@cython.locals(numbers=list, family=Executable, executable=Executable)
cpdef Executable find_numbered(object key, object owner, object args, bint grad, bint raw=*)
@cython.locals(launch_args=list, executable=Executable)
cpdef object known(object op, list arrays)
