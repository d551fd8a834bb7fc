cdef class Mode:
    cdef public object executor, saved_hooks, autocast, run, step
    cdef public bint grad, inference, anomaly, lasting, plain, fuses
