cimport cython
from cpython.object cimport PyObject
from ...core.tensor_base cimport TensorBase
from ...runtime.node cimport Leaf

ctypedef PyObject *p_object

cdef extern from "Python.h":
    int PyDict_Next(object, Py_ssize_t *, PyObject **, PyObject **)
    PyObject *PyList_GET_ITEM(object, Py_ssize_t)
    ctypedef struct PyTypeObject:
        unsigned int tp_version_tag

ctypedef PyTypeObject *p_type

@cython.locals(each=tuple, x=TensorBase)
cpdef bint have_memory(list bound) except -1

@cython.locals(each=tuple, x=TensorBase, leaf=Leaf, present=bint)
cpdef bint have_gradients(list presence) except -1

@cython.locals(each=tuple, x=TensorBase)
cpdef object want_gradients(list wanting)

@cython.locals(each=tuple)
cpdef bint hold_items(list kept) except -1

cpdef unsigned int version_of(object kind) except? 0

cdef class IdentityGuards:
    cdef list _dicts, _keys, _values, _objects, _names, _attributes, _cells, _contents
    cdef list _lists, _mappings, _others, _of_class, _classes, _kinds, _versions
    cdef object _absent, _any
    cpdef object _is_listed(self, object mapping, object key, object value, object absent)
    @cython.locals(
        k=Py_ssize_t, held=dict, each=tuple, pair=tuple, items=list, keys=list, values=list, holder=list,
        version=cython.uint)
    cpdef bint hold(self) except -1

@cython.locals(k=Py_ssize_t)
cdef bint _has_items(list holder, list items) except -1

@cython.locals(
    k=Py_ssize_t, at=Py_ssize_t, key=p_object, value=p_object, expected=p_object,
    any_value=p_object)
cdef bint _has_pairs(dict held, list keys, list values, object anything) except -1
