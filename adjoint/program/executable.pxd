from ..eager.arrays cimport Launcher, Stream, Viewer

cdef class Executable:
    cdef public object launch, owner, op, constants
    cdef public Stream stream
    cdef public Executable then
    cdef public Launcher launcher
    cdef public Viewer viewer
    cdef public bint records

cdef class _Cache:
    cdef public dict young, old

cdef _Cache _cache
cpdef Executable find(object key)
cpdef keep(object key, Executable executable)
cpdef tuple inputs_of(Executable executable, object tensors)
