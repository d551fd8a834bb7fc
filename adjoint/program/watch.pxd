from cpython.object cimport PyObject

cdef extern from "Python.h":
    ctypedef struct PyFrameObject
    ctypedef int (*Py_tracefunc)(object, PyFrameObject *, int, PyObject *) except -1
    void PyEval_SetProfile(Py_tracefunc, object)
    enum: PyTrace_CALL, PyTrace_C_CALL

cdef int _on_event(object watch, PyFrameObject *frame, int what, PyObject *arg) except -1

cdef class Watch:
    cdef public dict codes
    cdef dict _callers
    cdef public str refused
    cdef public dict changed
    cdef object _outer
    cdef bint _collects
    cdef object _random
    cpdef object _event(self, object frame, str event, object arg)
