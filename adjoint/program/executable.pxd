cimport cython
from ..eager.arrays cimport Launcher, Stream, Viewer, Viewers, signature

cdef class Executable:
    cdef public object launch, owner, op, constants, seen
    cdef public Stream stream
    cdef public Executable then
    cdef public Launcher launcher
    cdef public Viewer viewer
    cdef public Viewers viewers
    cdef public bint records

cdef class _Cache:
    cdef public dict young, old

cdef _Cache _cache
cpdef Executable find(object key)
cpdef keep(object key, Executable executable)
cpdef tuple inputs_of(Executable executable, object tensors)
@cython.locals(numbers=list, family=Executable, found=Executable)
cpdef Executable find_numbered(object key, object owner, object args, bint grad, bint raw=*)
@cython.locals(given=list, found=Executable)
cpdef object known(object op, list arrays)
