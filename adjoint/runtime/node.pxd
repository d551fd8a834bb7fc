cimport cython
from ..core.tensor_base cimport TensorBase

cdef class Version:
    cdef public Py_ssize_t count
    cdef public object changed_by
    cdef public bint exported
    cdef public object contents
    cdef public object views
    cdef public object watchers
    cdef object __weakref__

cdef class View:
    cdef public object base
    cdef public object above
    cdef public object alias
    cdef public object op
    cdef public object refusal
    cdef public bint detached

cdef class Target:
    cdef public tuple shape
    cdef public object data_type
    cdef public Py_ssize_t order
    cdef public Extra extra
    cdef object __weakref__

cdef class Node(Target):
    cdef public object op
    cdef public tuple parents
    cdef public tuple saved
    cdef public tuple versions
    @cython.locals(saved=tuple, versions=tuple, version=Version, expected=Py_ssize_t, i=Py_ssize_t,
                   packed=bint)
    cpdef tuple values(self)
    cdef tuple _with_output(self, tuple saved)

cdef class Extra:
    cdef public dict hooks
    cdef public dict prehooks
    cdef public dict posthooks
    cdef public object metadata
    cdef public object retained
    cdef public object traceback

cdef class Leaf(Target):
    cdef public object grad
    cdef public object place
    cdef public object tensor
    cdef public object after

cdef class Packed:
    cdef public tuple levels
    cdef public object node
    cdef public object packed
    cdef public object unpack_hook

cpdef Node new_node(object op, tuple parents, tuple saved, tuple versions, tuple shape,
                    object data_type)
