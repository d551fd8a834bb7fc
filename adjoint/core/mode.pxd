cdef class Mode:
    cdef public object executor, saved_hooks, autocast, run
    cdef public bint grad, inference, anomaly, lasting, plain, fuses
