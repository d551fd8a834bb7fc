cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from libc.string cimport memcpy
from numpy cimport (
    NPY_ARRAY_C_CONTIGUOUS, NPY_FLOAT32, NPY_FLOAT64, PyArray_BASE, PyArray_CheckExact,
    PyArray_DATA, PyArray_DIMS, PyArray_FLAGS, PyArray_NBYTES, PyArray_NDIM, PyArray_SIZE,
    PyArray_SimpleNew, PyArray_TYPE, import_array, ndarray as c_ndarray,
)

ctypedef int64_t* p_int64

cpdef list copies(list arrays)
cpdef tuple order_in_memory(object array)
@cython.locals(first=double)
cpdef object common_number(list arrays)

cdef double _number(object array) except? -1
cpdef object put_number(list arrays, double value)

@cython.locals(width=Py_ssize_t, at=p_int64)
cpdef object put_words(object table, Py_ssize_t first, Py_ssize_t end, Py_ssize_t place, bytes words)

@cython.locals(to=p_int64, which=p_int64, by=p_int64, k=Py_ssize_t)
cpdef object put_addresses(object words, object places, object offsets, int64_t begin)

@cython.locals(size=Py_ssize_t, at=p_int64, k=Py_ssize_t)
cpdef bint are_below(object index, int64_t bound) except -1

@cython.locals(holder=c_ndarray, base="PyObject*")
cpdef object owner(object array)
