from cpython.exc cimport PyErr_CheckSignals

cdef class HandlersReplaced:
    cdef public dict handlers
    cdef public object error, own
    cpdef object replace(self)
    cpdef object put_back(self)
    cpdef object on_signal(self, object number, object frame)

cdef class Deferral(HandlersReplaced):
    cdef public Py_ssize_t depth
    cdef public list arrived
    cpdef object begin(self)
    cpdef object end(self)
    cpdef object poll(self)
    cpdef object deliver(self)

cpdef object complete(object actions)
