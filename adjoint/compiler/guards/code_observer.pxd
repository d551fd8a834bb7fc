from cpython.object cimport PyObject
from ...core.signal_deferral cimport HandlersReplaced

cdef extern from "Python.h":
    ctypedef struct PyFrameObject
    ctypedef int (*Py_tracefunc)(object, PyFrameObject *, int, PyObject *) except -1
    void PyEval_SetProfile(Py_tracefunc, object)
    enum: PyTrace_CALL, PyTrace_C_CALL

cdef int _on_event(object watch, PyFrameObject *frame, int what, PyObject *arg) except -1

cdef class _Apart(HandlersReplaced):
    cdef object watch
    cpdef object on_signal(self, object number, object frame)

cdef class CodeObserver:
    cdef public dict codes
    cdef object _begins
    cdef dict _each_time
    cdef public bint is_asking
    cdef public object _reads
    cdef dict _librarys
    cdef dict _callers
    cdef public str refused
    cdef public dict changed
    cdef object _outer
    cdef _Apart _apart
    cdef object _built_ins
    cdef bint _collects
    cdef object _random
    cdef object _leave(self, bint whole)
    cpdef object _event(self, object frame, str event, object arg)
