cdef class SizedTable:
    cdef object __weakref__
    cdef public dict young, fresh, old
    cdef public object mark, name, weigh
    cpdef object find(self, object key)
    cpdef object again(self, object key)
    cpdef object peek(self, object key)
