cpdef object now(object slot)
cpdef bint is_same(object slot) except -1
cpdef tuple held_by(object x)
cpdef bint equal(object now, object value) except -1
cpdef bint are_same(object before, object after) except -1
