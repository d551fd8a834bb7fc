cimport cython
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove, memset
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.ref cimport Py_INCREF
from numpy cimport (
    NPY_ARRAY_ALIGNED, NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_F_CONTIGUOUS, NPY_ARRAY_WRITEABLE, PyArray_BASE, PyArray_CheckExact, PyArray_DATA, PyArray_DESCR, PyArray_DIMS,
    PyArray_FLAGS, PyArray_ISBYTESWAPPED, PyArray_NBYTES, PyArray_NDIM, PyArray_SIZE,
    PyArray_SimpleNew, PyArray_STRIDES, PyArray_TYPE, dtype as c_dtype, import_array, ndarray as c_ndarray, npy_intp,
)
from .overrides cimport is_apart
from .tensor_base cimport TensorBase

cdef object _first, _second

cdef extern from "numpy/arrayobject.h":
    c_ndarray PyArray_NewFromDescr(type, c_dtype, int, npy_intp*, npy_intp*, void*, int, object)
    c_ndarray PyArray_New(type, int, npy_intp*, int, npy_intp*, void*, int, int, object)
    int PyArray_SetBaseObject(c_ndarray, object) except -1

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object)
    ctypedef struct PyTypeObject:
        object (*tp_new)(void*, object, void*)

ctypedef PyTypeObject* p_type

ctypedef int64_t* p_int64

@cython.locals(make=p_type)
cpdef object new_tensor(object kind)

ctypedef npy_intp* p_npy_intp
ctypedef void (*kernel_t)(int64_t, int64_t, int64_t*) noexcept nogil
ctypedef void (*run_t)(void*, void*, int64_t*, int64_t) noexcept nogil

@cython.locals(words=int64_t[512], count=Py_ssize_t, values=list)
cpdef object signature(
    object owner, object args, bint grad, list arrays, object tensors=*, bint raw=*,
    object numbers=*, list sizes=*)

@cython.locals(handle=TensorBase, number=double, overflow=int, whole=int64_t, requires_grad=bint)
cdef Py_ssize_t _write(
    int64_t* words, Py_ssize_t count, object args, bint grad, list arrays, object tensors,
    list values, bint raw, object numbers, list sizes, int depth) except -2

@cython.locals(nd=int, kind=int, flags=int, row_major=bint, i=int, dims="npy_intp*",
               strides="npy_intp*")
cdef Py_ssize_t _write_array(int64_t* words, Py_ssize_t count, object data, bint requires_grad, list sizes) except -2

cdef class PhiloxState:
    cdef public uint64_t key, draws
    @cython.locals(draw=uint64_t)
    cpdef tuple next_draw(self)

cdef class CachedLaunch:
    cdef public tuple given, outputs, views, rest
    cdef public object keeps, pack
    cdef int64_t _address, _chunks, _run, _state
    cdef bint _ordered, _quick
    cdef Py_ssize_t _count, _pointers, _outputs, _before, _total
    cdef bytearray _words
    cdef bytes _views
    cdef object _shapes
    cdef bytes _types, _spans
    @cython.locals(after=bytes, other=CachedLaunch, words=bytearray, behind=cython.p_char)
    cpdef CachedLaunch numbered(self, object numbers)
    @cython.locals(other=CachedLaunch)
    cpdef CachedLaunch resized(
        self, object given, object shapes, int64_t chunks, bytes before, bytes after, object pool,
        bint quick)
    cpdef object launch(self, list arrays, PhiloxState stream=*)
    @cython.locals(shape=p_int64, types=p_int64, words=p_int64, view=p_int64, at=Py_ssize_t,
                   k=Py_ssize_t, code=kernel_t, run=run_t, chunks=int64_t, owned=bytearray,
                   several=list, span=p_int64, place=int64_t, low=int64_t, high=int64_t,
                   other=int64_t, meets=bint, behind=int64_t)
    cdef object _call(self, list arrays, PhiloxState stream)

@cython.locals(steps=p_int64)
cdef object _made(int64_t* shape, int64_t kind, bint ordered)

cdef class CachedView:
    cdef public object compute
    cdef int _nd
    cdef int64_t _offset
    cdef bytes _layout
    @cython.locals(layout=p_npy_intp, place=cython.p_char, kind=c_dtype, view=c_ndarray)
    cpdef object view(self, object array)

cdef class CachedViews:
    cdef public object compute, singles
    cdef list _each
    @cython.locals(each=CachedView, k=Py_ssize_t)
    cpdef list views(self, object array)

cpdef object address(object array)
@cython.locals(required=int, size=Py_ssize_t, nd=int)
cpdef bint copy_memory(object to, object source) except -1

@cython.locals(handle=TensorBase, count=int64_t, owned=bint)
cpdef int64_t references(object tensor) except -1

cpdef int64_t identity(object it) except -1

@cython.locals(place=p_int64, kernel=kernel_t, run=run_t, at=int64_t, state=int64_t)
cpdef object call(int64_t code, int64_t chunks, object words, object pool, bint quick)

@cython.locals(count=Py_ssize_t, k=Py_ssize_t, place=p_int64)
cpdef bytes addresses(object arrays)

@cython.locals(table=p_int64, row=p_int64, width=Py_ssize_t, i=Py_ssize_t, k=Py_ssize_t,
               count=Py_ssize_t, size=int64_t, order=int, nd=int, n=Py_ssize_t, dims="npy_intp*",
               column=tuple, x=c_ndarray)
cpdef object write_rows(
    tuple columns, tuple kinds, tuple written, object rows, Py_ssize_t length, Py_ssize_t first)
