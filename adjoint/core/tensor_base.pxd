cdef class TensorBase:
    cdef public object _data
    cdef public object _node
    cdef public object _leaf
    cdef public object _changes
    cdef public object _view
    cdef dict __dict__
    cdef object __weakref__
